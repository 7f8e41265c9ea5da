"""Parity: judge inputs on both sides of a target in this process, for property tests of one's own.

The idea: a target is opened once (exported where it gives no ONNX, its seeds run to learn the noise) and stays open, so
that a call costs one run of each side; what differs is run again and weighed as `fuzzparity explain` does it. A side
that kills its process ends this one: `fuzzparity fuzz` contains that.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fuzzparity.case import Array, Case
from fuzzparity.contract import Contract, TargetFacts
from fuzzparity.errors import InvalidCase, InvalidTarget
from fuzzparity.target import Target
from fuzzparity.verdict import Grade, Judgement, Verdict

if TYPE_CHECKING:
    from fuzzparity.explain.twin import Twin
    from fuzzparity.sides.load import LoadedTarget

Named = Target | Callable[[], Target] | str | Path
_MOST_OPEN = 16  # targets kept open in one process
_MOST_SHOWN = 32  # elements of an input that are written out in a message


def assert_parity(target: Named, inputs: Mapping[str, Any]) -> Judgement:
    """Raise AssertionError where torch and ONNX Runtime differ by a fault; return the judgement otherwise.

    `target`: a `Target`, a callable that returns one, or what the command line takes (a folder, `file.py:name`). It is
    opened once and kept as long as it is the same object. `inputs`: name -> array or tensor, one for each input; of a
    target with `dtypes` the build of their dtypes is taken. What arithmetic explains, ties and inputs outside of the
    contract do not raise. The inputs that do are saved, and the message says where and how to have them explained.

    Raises `InvalidTarget` for a target that is wrong and `InvalidCase` for inputs that do not fit it.
    """
    opened = opened_target(target)
    with one_thread():
        case = opened.case(inputs)
        judgement = opened.build_for(case).judge(case)
    bugs = [verdict for verdict in judgement.verdicts if verdict.grade is Grade.BUG]
    if bugs:
        raise AssertionError(_message(opened, case, judgement, bugs))
    return judgement


@functools.lru_cache(maxsize=_MOST_OPEN)
def opened_target(target: Named) -> OpenTarget:
    """Return a target that stays open in this process, the same one for the same object."""
    return OpenTarget(_loaded(target))


class OpenTarget:
    """Hold a loaded target and its builds, each made when it is first asked for."""

    def __init__(self, loaded: LoadedTarget) -> None:
        """Read which builds the target asks for; nothing is exported yet."""
        from fuzzparity.sides.dtypes import combinations, words

        self.loaded = loaded
        self._scratch = tempfile.TemporaryDirectory(prefix="fuzzparity-parity-")
        self._combinations = {words(one): one for one in combinations(loaded)}
        self._builds: dict[tuple[str, ...], OpenBuild] = {}

    @property
    def dtypes(self) -> tuple[tuple[str, ...], ...]:
        """Return the builds by their dtypes ("image=float16"), that of the target's own inputs in front."""
        return tuple(self._combinations)

    def build(self, dtypes: tuple[str, ...]) -> OpenBuild:
        """Return the build of some of `dtypes`."""
        from fuzzparity.sides.dtypes import cast_loaded

        if dtypes not in self._builds:
            with one_thread():
                folder = Path(self._scratch.name) / str(len(self._builds))
                folder.mkdir(exist_ok=True)
                self._builds[dtypes] = OpenBuild(cast_loaded(self.loaded, self._combinations[dtypes]), folder)
        return self._builds[dtypes]

    def build_for(self, case: Case) -> OpenBuild:
        """Return the build of which a case has the dtypes, the first one where it has those of none."""
        for dtypes, wanted in self._combinations.items():
            if all(case.inputs[name].dtype.name == dtype for name, dtype in wanted.items()):
                return self.build(dtypes)
        return self.build(self.dtypes[0])

    def case(self, inputs: Mapping[str, Any]) -> Case:
        """Return inputs as a case in forward's order; what else rides along under "label" is kept for metrics."""
        from fuzzparity.sides.load import as_array

        names = tuple(self.loaded.seed.inputs)
        label = inputs.get("label") if "label" not in names else None
        missing = [name for name in names if name not in inputs]
        unknown = [name for name in inputs if name not in names and name != "label"]
        if missing or unknown:
            said = [f"{what}: {', '.join(map(repr, found))}" for what, found in _kinds(missing, unknown)]
            raise InvalidCase(f"{'; '.join(said)}; the target's inputs are {', '.join(map(repr, names))}")
        try:
            return Case({name: as_array(name, inputs[name]) for name in names}, label)
        except InvalidTarget as error:  # the same words, about inputs that are not the target's own
            raise InvalidCase(f"{error.problem}; {error.advice}") from None


class OpenBuild:
    """Hold one build with both sides open and the oracle that judges them, or the finding that there is none."""

    def __init__(self, loaded: LoadedTarget, folder: Path) -> None:
        """Build and gate a target; `InvalidTarget` when it is wrong."""
        from fuzzparity.campaign.gate import build, gate
        from fuzzparity.campaign.records import GateSpec
        from fuzzparity.execution import Execution
        from fuzzparity.explain.records import TwinSpec
        from fuzzparity.explain.twin import open_twin
        from fuzzparity.work.announce import Announcer
        from fuzzparity.work.limits import Limits
        from fuzzparity.work.loader import Context

        path = folder / "announced.map"
        context = Context(loaded, cast(Any, _Unheard()), Announcer(path), path, Limits())
        built = build(context, str(folder / "builds"))
        self.facts: TargetFacts = built.facts
        self.seeds: tuple[Case, ...] = (loaded.seed,)
        self._twin: Twin | None = None
        self._unable: Judgement | None = None
        if built.dead is not None or built.error is not None:
            self._unable = _of_no_model(built.error, built.dead)
            return
        report = gate(context, GateSpec(built.facts))
        twin = open_twin(context, TwinSpec(built.facts, report.policy, report.statistics), context.announcer)
        if isinstance(twin, Execution):
            self._unable = Judgement(report.suspects[0].verdict.kind, verdicts=(report.suspects[0].verdict,))
            return
        self._twin = twin
        self.seeds = tuple(dict.fromkeys((loaded.seed, *report.agreed)))

    @property
    def contract(self) -> Contract:
        """Return what a case of this build must be like."""
        return self.facts.contract

    def judge(self, case: Case) -> Judgement:
        """Run both sides; what looks different is run again and judged with evidence, as `explain` does it."""
        if self._twin is None:
            assert self._unable is not None
            return self._unable
        twin = self._twin
        expected, actual = twin.run(case)
        screening = twin.screen(case, expected, actual, relative=True)
        second = (twin.run_torch(case), twin.run_ort(case)) if screening.is_suspicious else None
        return twin.judge(case, expected, actual, second)


class _Unheard:
    """Stand for a parent process that does not listen."""

    def send(self, message: object) -> None:
        """Drop a message."""


def _of_no_model(error: Any, dead: Any) -> Judgement:
    from fuzzparity.explain.unbuilt import export_verdict

    if error is None:
        raise InvalidTarget(
            "run", f"the module ends its process on the target's own inputs ({dead.status.value})", "run it by itself"
        )
    verdict = export_verdict(error)
    return Judgement(verdict.kind, verdicts=(verdict,))


def _loaded(target: Named) -> LoadedTarget:
    """Return a loaded target; one that is given as an object counts as loaded from where this process runs."""
    from fuzzparity.sides import load

    if isinstance(target, (str, Path)):
        with one_thread():
            return load.load_target(str(target))
    found = target if isinstance(target, Target) else target()
    if not isinstance(found, Target):
        raise InvalidTarget(
            "load", f"{target!r:.80} gives {type(found).__name__}", "give a Target, or a callable that returns one"
        )
    return load.loaded_here(found)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread, as workers do; what the process had is put back."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _kinds(missing: list[str], unknown: list[str]) -> list[tuple[str, list[str]]]:
    return [(what, found) for what, found in (("missing", missing), ("unknown", unknown)) if found]


def _message(opened: OpenTarget, case: Case, judgement: Judgement, bugs: list[Verdict]) -> str:
    """Return what an AssertionError says: each fault with its evidence, the inputs, and what to do next."""
    from fuzzparity.report.sentences import evidence_sentences

    lines = []
    for verdict in bugs:
        lines.append(f"{verdict.kind.value} ({verdict.grade.value}): {verdict.headline}")
        lines += [f"  {sentence}" for sentence in evidence_sentences(verdict.evidence)]
    others = len(judgement.verdicts) - len(bugs)
    if others:
        lines.append(f"  and {others} more that {'is' if others == 1 else 'are'} no fault")
    lines += [f"  {name}: {_shown(array)}" for name, array in case.inputs.items()]
    return "\n".join([*lines, _advice(opened, case)])


def _shown(array: Array) -> str:
    form = f"{array.dtype.name}{list(array.shape)}"
    return f"{form} {array.tolist()}" if array.size <= _MOST_SHOWN else form


def _advice(opened: OpenTarget, case: Case) -> str:
    """Save the inputs of a failure, the last one over those before it, and say how to have them explained."""
    from fuzzparity.campaign.options import STATE_FOLDER
    from fuzzparity.corpus.codec import encode

    spec = opened.loaded.spec or "TARGET"
    path = Path(STATE_FOLDER) / opened.loaded.name / "parity.safetensors"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(dict(case.inputs)))
    except OSError as error:
        return f"whose fault it is: fuzzparity explain {spec} INPUTS (they could not be saved: {error.strerror})"
    said = "" if opened.loaded.spec else " (TARGET: the file and name of this target)"
    return f"whose fault it is, and the smallest inputs: fuzzparity explain {spec} {path}{said}"
