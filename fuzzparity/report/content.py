"""Content: all that a reproducer is made of, and what follows from it.

The idea: one record goes in, and every file of the folder (code, data, texts) is a view of that record; nothing is
looked up elsewhere, so the database alone can write the folder again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fuzzparity.case import Array, Case, Lineage, is_float
from fuzzparity.contract import TargetFacts
from fuzzparity.corpus.records import Payload
from fuzzparity.errors import CorpusError
from fuzzparity.execution import Execution, Status
from fuzzparity.finding import Cut, Finding
from fuzzparity.oracle.compare import Allowance
from fuzzparity.oracle.metrics import SITE as METRIC_SITE
from fuzzparity.oracle.regions import Region, Regions, ordered, outside, region_of
from fuzzparity.report.clean import printable, without_paths
from fuzzparity.report.literal import MOST_ELEMENTS
from fuzzparity.report.torch_code import is_torch_code
from fuzzparity.target import Ort, Tolerance
from fuzzparity.verdict import Kind, Realism

WRITTEN_OUT = "code written out"
RECORDED_OUTPUTS = "recorded outputs"
IMPORT_OF_TARGET = "import of the target"
REFERENCE = "reference evaluator"
_WRITTEN_WAYS = frozenset({"shape", "dtype", "nonfinite", "discrete", "numeric", "refusal", "crash", "hang"})
COMPARING = frozenset({Kind.NUMERIC, Kind.SHAPE, Kind.DTYPE, Kind.NONFINITE, Kind.DECISION, Kind.BRANCH_SPLIT})
PATIENCE_SECONDS = 300.0  # for a finding that is no hang: slower is "cannot judge", never "gone"

# torch.testing.assert_close defaults (pytorch docs): used for an output of which no allowance was recorded
DEFAULT_ALLOWED = {
    "float16": Tolerance(rtol=1e-3, atol=1e-5),
    "bfloat16": Tolerance(rtol=1.6e-2, atol=1e-5),
    "float32": Tolerance(rtol=1.3e-6, atol=1e-5),
    "float64": Tolerance(rtol=1e-7, atol=1e-7),
}

LEVELS = {  # Ort.optimization_level -> onnxruntime.GraphOptimizationLevel
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}


@dataclass(frozen=True, slots=True)
class ReproducerContent:
    """Hold all that a reproducer is made of.

    `allowed`: the tolerance of each output that the finding was judged by (a floor folded into `atol`). `regions`:
    those of slices, "boxes[..., :4]". `contains`: which of "real data", "real weights", "source code" are in it.
    """

    finding: Finding
    case: Case
    expected: Execution | None
    actual: Execution | None
    model: bytes = field(repr=False)
    facts: TargetFacts
    lineage: Lineage = field(default_factory=Lineage)
    ort: Ort = field(default_factory=Ort)
    target_spec: str = ""
    target_folder: str = ""
    confidential: bool = False
    contains: tuple[str, ...] = ()
    allowed: dict[str, Tolerance] = field(default_factory=dict)
    regions: dict[str, Tolerance] = field(default_factory=dict)
    limit_seconds: float = 20.0  # of a hang
    memory_bytes: int | None = None  # address space of an out-of-memory finding
    write_out: bool = True  # small inputs and models in repro.py itself
    model_files: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # external data, by file name
    cut: Cut | None = field(default=None, repr=False)  # the part of the model that shows it

    @property
    def standalone(self) -> str:
        """Return which torch side shows the finding: code, recorded outputs, the reference, or the imported target."""
        cut = self.cut
        if self.writes_torch:
            return WRITTEN_OUT
        if cut is not None and self.writes_cut:
            is_long = any(array.size > MOST_ELEMENTS for array in cut.expected.values())
            return REFERENCE if is_long and "ONNX reference" in cut.shown_by else RECORDED_OUTPUTS
        kind = self.finding.verdict.kind
        is_torch_alone = self.finding.verdict.side.startswith("torch") and kind is not Kind.ERROR_SPLIT
        if kind is Kind.EXPORT_ERROR or (is_torch_alone and kind not in COMPARING):
            return IMPORT_OF_TARGET
        return RECORDED_OUTPUTS

    @property
    def writes_cut(self) -> bool:
        """Tell whether `repro.py` is the cut: one that ORT's Python takes as it is."""
        cut = self.cut
        if cut is None or not self.write_out or cut.way not in _WRITTEN_WAYS:
            return False
        arrays = (*cut.feeds.values(), *cut.expected.values(), *cut.torch_own.values())
        return not any(array.dtype.kind == "V" for array in arrays)

    @property
    def writes_torch(self) -> bool:
        """Tell whether `repro.py` holds torch's own code of the cut."""
        cut = self.cut
        if cut is None or not self.writes_cut or not cut.expected:
            return False
        return is_torch_code(cut.torch_code, cut.torch_takes)

    @property
    def ort_level(self) -> str:
        """Return the session's graph optimization level as onnxruntime names it."""
        return LEVELS[self.ort.optimization_level]


def content_of_payload(payload: Payload) -> ReproducerContent:
    """Return what a stored finding's reproducer is made of, from the database alone."""
    facts = payload.facts
    if facts is None:
        raise CorpusError(f"the build of finding {payload.finding.finding_id} is not in this corpus; run it again")
    return ReproducerContent(
        payload.finding,
        payload.case,
        payload.expected,
        payload.actual,
        payload.model or b"",
        facts,
        payload.lineage,
        payload.ort,
        facts.spec,
        facts.folder,
        facts.confidential,
        contains_of(payload.finding, facts),
        model_files=payload.model_files,
        cut=payload.cut,
    )


def contains_of(finding: Finding, facts: TargetFacts) -> tuple[str, ...]:
    """Return what of the user's own is in a reproducer: weights always, data when the case is close to real seeds."""
    is_data = facts.has_real_seeds and finding.realism is Realism.NEAR
    return ("real weights", "real data") if is_data else ("real weights",)


def expected_outputs(content: ReproducerContent) -> dict[str, Array] | None:
    """Return torch's recorded outputs by name; outputs beyond the known names are called `output_N`."""
    if content.expected is None or not content.expected.is_ok:
        return None
    names = content.facts.outputs
    named: dict[str, Array] = {}
    for index, array in enumerate(content.expected.outputs):
        name = names[index] if index < len(names) else f"output_{index}"
        named[name if name not in named else f"{name}_{index}"] = array
    return named


WHERE = "where."  # before an output's name, in expected.safetensors: the mask of what counts there


def masks(content: ReproducerContent) -> dict[str, Array]:
    """Return the masks of what counts, by output, each of its output's rank; only outputs that have one."""
    outputs = expected_outputs(content)
    if content.expected is None or outputs is None:
        return {}
    pairs = zip(outputs, content.expected.where, strict=False)
    return {name: mask for name, mask in pairs if mask is not None}


def regions_of(
    tolerances: Mapping[str, Tolerance], outputs: Iterable[str]
) -> dict[str, tuple[tuple[Region, Allowance], ...]]:
    """Return the slices that have a tolerance of their own, by output, the most specific first."""
    found: dict[str, list[tuple[Region, Allowance]]] = {}
    for key, item in tolerances.items():
        region = region_of(key, outputs)
        if region is not None:
            found.setdefault(region.output, []).append((region, Allowance(item.rtol, item.atol, is_users=True)))
    return {name: ordered(pairs) for name, pairs in found.items()}


def allowed(content: ReproducerContent, outputs: dict[str, Array]) -> dict[str, Tolerance]:
    """Return the tolerance of every output, under which the recorded answers themselves show the finding.

    A numeric finding whose error lies below the screen (a purely relative look found it), or was judged by its
    signal-to-noise ratio, shows when at least half of the recorded error is there: such outputs get half of it as
    `atol`. So do the outputs of a finding by a metric, which is code that no reproducer runs.
    """
    chosen = {}
    for name, array in outputs.items():
        chosen[name] = content.allowed.get(name) or DEFAULT_ALLOWED.get(array.dtype.name) or Tolerance()
    verdict = content.finding.verdict
    comparison = verdict.comparison
    if comparison is None or comparison.region in content.regions:
        return chosen
    is_metric = verdict.site.startswith(METRIC_SITE)
    if verdict.kind is not Kind.NUMERIC and not is_metric:
        return chosen
    recorded = dict(zip(outputs, content.actual.outputs if content.actual else (), strict=False))
    is_noise = is_metric or bool(comparison.detail)
    for name in outputs:
        if name not in recorded or (name != verdict.output and not (is_metric and verdict.output is None)):
            continue
        regions = regions_of(content.regions, outputs).get(name, ())
        if is_noise or not _exceeds(outputs[name], recorded[name], chosen[name], regions):
            largest = largest_error(outputs[name], recorded[name]) if is_metric else comparison.max_abs
            chosen[name] = Tolerance(atol=largest / 2 if largest < float("inf") else 0.0)
    return chosen


def largest_error(expected: Array, actual: Array) -> float:
    """Return the largest finite error of two outputs, 0.0 where they have none or another form."""
    if expected.shape != actual.shape or expected.dtype != actual.dtype or expected.dtype.kind == "c":
        return 0.0
    with np.errstate(all="ignore"):
        error = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
    return float(error[np.isfinite(error)].max(initial=0.0))


def _exceeds(expected: Array, actual: Array, tolerance: Tolerance, regions: Regions) -> bool:
    """Tell whether two arrays lie beyond a tolerance anywhere outside of `regions`; unequal shapes and dtypes do."""
    if expected.shape != actual.shape or expected.dtype != actual.dtype or not is_float(expected.dtype):
        return True
    if regions:
        expected, actual = outside(expected, regions), outside(actual, regions)
    left, right = expected.astype(np.float64), actual.astype(np.float64)
    return not bool(np.allclose(right, left, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True))


def feeds(content: ReproducerContent) -> dict[str, str]:
    """Return input name -> ONNX input name, without inputs that the graph lost."""
    return {item.name: item.onnx_name for item in content.facts.contract.inputs if item.onnx_name}


def limit_seconds(content: ReproducerContent) -> float:
    """Return how long a run may take: the hang's own limit, otherwise enough patience to be sure."""
    return content.limit_seconds if content.finding.verdict.kind is Kind.HANG else PATIENCE_SECONDS


def phase(content: ReproducerContent) -> str:
    """Return the phase of the side at fault: "load" or "run"."""
    if content.finding.verdict.kind in (Kind.LOAD_ERROR, Kind.EXPORT_ERROR):
        return "load"
    side = content.expected if content.finding.verdict.side.startswith("torch") else content.actual
    return side.phase if side is not None else "run"


def said(execution: Execution | None, names: tuple[str, ...] = ()) -> str:
    """Return in one line what a side did."""
    if execution is None:
        return "not recorded"
    if execution.status is Status.OK:
        shown = [f"{a.dtype.name}{list(a.shape)}" for a in execution.outputs[:8]]
        return "answers " + ", ".join(shown) + (", ..." if len(execution.outputs) > 8 else "")
    if execution.refusal is not None:
        return f"refuses at {execution.phase}: {execution.refusal.said}"
    how = {Status.HANG: "gives no answer in time", Status.OOM: "runs out of memory"}.get(execution.status, "dies")
    end = f" by signal {execution.signal}" if execution.signal else ""
    end += f" with exit code {execution.exit_code}" if execution.exit_code else ""
    return f"{how} at {execution.phase}{end}"


def headline(content: ReproducerContent) -> str:
    """Return the finding's headline as one clean line without absolute paths."""
    verdict = content.finding.verdict
    text = verdict.headline or f"{verdict.kind.value} {verdict.output or verdict.side}".strip()
    return printable(without_paths(text, content.target_folder), 300)


def fault(content: ReproducerContent) -> Execution | None:
    """Return the execution of the side at fault."""
    return content.expected if content.finding.verdict.side.startswith("torch") else content.actual


def relative_spec(content: ReproducerContent, place: Path) -> str:
    """Return the target's spec relative to the reproducer's folder; a module name stays as it is."""
    if not content.target_folder:
        return content.target_spec
    path, separator, name = content.target_spec.partition(".py:")
    folder = Path(content.target_folder)
    is_file = bool(separator) or path.endswith(".py")
    file = folder / (Path(path).name + (".py" if separator else "")) if is_file else folder
    return os.path.relpath(file.resolve(), place.resolve()) + (f":{name}" if separator else "")
