"""Issue: the text of a bug report, routed to the project whose part is guilty.

The idea: it is ready to paste and safe to paste. Values stand in it only when the case is not real data, a model only
when its weights are not real either, absolute directories never do, and a finding without known blame says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import jinja2

from fuzzparity.case import Array
from fuzzparity.report.advice import born, known_by
from fuzzparity.report.clean import fenced, inline_markdown, printable, without_paths
from fuzzparity.report.content import (
    COMPARING,
    IMPORT_OF_TARGET,
    ReproducerContent,
    expected_outputs,
    feeds,
    headline,
    said,
)
from fuzzparity.report.cutting import cut_snippet
from fuzzparity.report.grounds import grounds
from fuzzparity.report.literal import array_literal, needs_ml_dtypes
from fuzzparity.verdict import Kind


@dataclass(frozen=True, slots=True)
class Route:
    """Say where a report belongs."""

    name: str
    address: str
    reason: str


_PYTORCH = "https://github.com/pytorch/pytorch/issues"
_ONNXSCRIPT = "https://github.com/microsoft/onnxscript/issues"
_ONNXRUNTIME = "https://github.com/microsoft/onnxruntime/issues"


def route(blame: str, origin: str) -> Route:
    """Return where a finding belongs by its blame; `origin` is the build's ("exported by dynamo", ..., "given")."""
    part = blame.partition(":")[0]
    if part == "export":
        if "dynamo" in origin:
            return Route("onnxscript", _ONNXSCRIPT, "the captured program is right, its translation to ONNX is not")
        return Route("pytorch", _PYTORCH, "the traced program is right, the exporter's translation is not")
    routes = {
        "capture": Route("own code", "", "the captured program already gives ORT's answer: see the module's own code"),
        "onnx_file": Route("own code", "", "the given ONNX file means something else than the module"),
        "optimizer": Route("onnxruntime", _ONNXRUNTIME, "ORT without this graph optimization agrees with torch"),
        "kernel": Route("onnxruntime", _ONNXRUNTIME, "the kernel differs from the ONNX reference"),
        "precision": Route("onnxruntime", _ONNXRUNTIME, "the working precision explains it"),
        "arena": Route("onnxruntime", _ONNXRUNTIME, "ORT's memory arena explains it"),
        "torch": Route("pytorch", _PYTORCH, "torch is the side far from the exact answer"),
        "onnx": Route("onnx", "https://github.com/onnx/onnx/issues", "the ONNX reference is the side that is wrong"),
        "none": Route("nowhere", "", "no part is at fault: conditioning or a tie explains the difference"),
    }
    return routes.get(part, Route("not yet known", "", "blame is not known yet: run `fuzzparity explain` on it first"))


def issue_text(content: ReproducerContent, source: str | None) -> str:
    """Return issue.md; `source` is the model as Python source when it is small enough."""
    verdict, facts = content.finding.verdict, content.facts
    is_private = content.confidential or "real data" in content.contains
    may_hold_code = not is_private and "real weights" not in content.contains
    environment = facts.environment
    versions = [f"{name} {version}" for name, version in sorted(environment.packages.items())]
    lines = [f"Python {environment.python}, {environment.platform}, {environment.cpu}", *versions, environment.line]
    lines += [f"model: {facts.build.origin}, opset {facts.build.opset_obtained}, {facts.build.nodes} nodes"]
    cut_code = _cut_code(content, is_private)
    return _TEMPLATE.render(
        title=inline_markdown(_title(content, is_private)),
        route=route(verdict.blame, facts.build.origin),
        blame=inline_markdown(verdict.blame),
        environment=fenced("\n".join(without_paths(line, content.target_folder) for line in lines)),
        expected=inline_markdown("torch " + _private_said(content, is_private, is_expected=True)),
        actual=inline_markdown("ONNX Runtime " + _private_said(content, is_private, is_expected=False)),
        inputs=[inline_markdown(f"{name}: {a.dtype.name}{list(a.shape)}") for name, a in content.case.inputs.items()],
        evidence=[inline_markdown(line) for line in evidence_lines(content, is_private)],
        code=cut_code or (_code(content, source) if may_hold_code else None),
        has_cut=cut_code is not None,
        is_private=is_private,
        is_whole=may_hold_code,
        contains=", ".join(content.contains),
        finding_id=content.finding.finding_id,
        kind=verdict.kind.value,
        grade=verdict.grade.value,
        realism=content.finding.realism.value,
        standalone=content.standalone,
    )


def _title(content: ReproducerContent, is_private: bool) -> str:
    """Return the headline; a private one only says what kind of difference it is, since headlines quote values."""
    verdict = content.finding.verdict
    if not is_private:
        return headline(content)
    place = content.finding.where.op or verdict.site or verdict.side
    return f"{verdict.kind.value} between torch and ONNX Runtime" + (f" ({place})" if place else "")


def _private_said(content: ReproducerContent, is_private: bool, *, is_expected: bool) -> str:
    execution = content.expected if is_expected else content.actual
    text = without_paths(said(execution), content.target_folder)
    comparison = content.finding.verdict.comparison
    if comparison is None or is_private or execution is None or not execution.is_ok:
        return text
    value = comparison.expected_at if is_expected else comparison.actual_at
    place = f" at {list(comparison.index)}" if comparison.index is not None else ""
    return text if value is None else f"{text}; {content.finding.verdict.output or 'output'}{place} is {value}"


def evidence_lines(content: ReproducerContent, is_private: bool = False) -> list[str]:
    """Return what the verdict rests on, a line each."""
    verdict = content.finding.verdict
    lines = []
    comparison = verdict.comparison
    if comparison is not None and comparison.kind is not Kind.NUMERIC:
        lines.append(f"error ratio {comparison.error_ratio:.3g} (largest error over allowed error)")
    lines += grounds(verdict, is_private=is_private)
    if comparison is not None and comparison.compared:
        lines.append(f"{comparison.differing} of {comparison.compared} elements differ")
    if comparison is not None and comparison.detail:
        lines.append(comparison.detail)
    lines += [f"the error looks like: {text}" for text in verdict.looks_like]
    lines += known_by(verdict)
    lines += [born(verdict)] if born(verdict) and not is_private else []
    if verdict.attribution is not None and verdict.attribution.workaround:
        lines.append(f"until it is fixed: {verdict.attribution.workaround}")
    return [printable(without_paths(line, content.target_folder), 300) for line in lines]


def _cut_code(content: ReproducerContent, is_private: bool) -> str | None:
    """Return the cut as a short program, where nothing in it is private: then its values are made up too."""
    cut = content.cut
    if cut is None or (is_private and cut.real_values):
        return None
    snippet = cut_snippet(content)
    return None if snippet is None else fenced(snippet, "python")


def _code(content: ReproducerContent, source: str | None) -> str | None:
    """Return a short program for the report, or None when inputs or model are too large to be read."""
    if source is None or content.standalone == IMPORT_OF_TARGET:
        return None
    inputs = _spelled(dict(content.case.inputs))
    if inputs is None or needs_ml_dtypes(content.case.inputs.values()):
        return None
    named = feeds(content)
    pairs = ", ".join(f"{named[name]!a}: {text}" for name, text in inputs.items() if name in named)
    lines = [
        "import numpy as np",
        "import onnxruntime as ort",
        "from onnx import helper, numpy_helper",
        "",
        'nan, inf = float("nan"), float("inf")',
        "",
        "",
        "def model():",
        source.rstrip("\n"),
        "",
        "",
        f"feeds = {{{pairs}}}",
    ]
    outputs = expected_outputs(content)
    if content.finding.verdict.kind in COMPARING and outputs is not None:
        texts = _spelled(outputs)
        if texts is not None:
            lines += [f'print("torch:", {text})' for text in texts.values()]
    lines += _session_lines(content)
    return fenced("\n".join(lines), "python")


def _session_lines(content: ReproducerContent) -> list[str]:
    ort, default = content.ort, ["CPUExecutionProvider"]
    extra = f", disabled_optimizers={list(ort.disabled_optimizers)!r}" if ort.disabled_optimizers else ""
    times = 20 if content.finding.verdict.kind is Kind.UNSTABLE else 1
    level = content.ort_level
    lines = ["options = ort.SessionOptions()"]
    lines += [f"options.graph_optimization_level = ort.GraphOptimizationLevel.{level}"]
    lines += [f"options.intra_op_num_threads = {ort.threads or 1}"]
    lines += [f"options.add_session_config_entry({key!a}, {value!a})" for key, value in ort.config.items()]
    providers = list(ort.providers) or default
    opened = f"ort.InferenceSession(model().SerializeToString(), options, providers={providers!a}{extra})"
    run = 'print("ORT:  ", session.run(None, feeds))'
    return [*lines, f"session = {opened}", run if times == 1 else f"for _ in range({times}):\n    {run}"]


def _spelled(arrays: dict[str, Array]) -> dict[str, str] | None:
    texts = {name: array_literal(array) for name, array in arrays.items()}
    known = {name: text for name, text in texts.items() if text is not None}
    return known if len(known) == len(texts) else None


_TEMPLATE = jinja2.Environment(
    loader=jinja2.PackageLoader("fuzzparity.report", "templates"),
    undefined=jinja2.StrictUndefined,
    autoescape=False,
    keep_trailing_newline=True,
    trim_blocks=True,
).get_template("issue.md.j2")
