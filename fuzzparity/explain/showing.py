"""Showing: whether a part of a model shows a finding, and what answers it is held against.

The idea: blame says what is right: a pass's fault shows against ORT without it, a kernel's against the ONNX reference,
an exporter's against torch; a death and a refusal show by themselves. What may die runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fuzzparity.case import Array, Case
from fuzzparity.execution import ORT, Execution, Status
from fuzzparity.explain.arbiters import Bench
from fuzzparity.explain.records import TwinSpec
from fuzzparity.target import Ort
from fuzzparity.verdict import Kind, Verdict
from fuzzparity.work.alone import Exit, run_alone, signal_name
from fuzzparity.work.limits import Limits
from fuzzparity.work.loader import Context

if TYPE_CHECKING:
    from fuzzparity.blame.alike import Difference
    from fuzzparity.blame.cut import Part
    from fuzzparity.blame.localize import Located

DEATHS = frozenset({Kind.CRASH, Kind.HANG})
REFUSALS = frozenset({Kind.LOAD_ERROR, Kind.ERROR_SPLIT})
COMPARED = frozenset({Kind.NUMERIC, Kind.NONFINITE, Kind.SHAPE, Kind.DTYPE, Kind.DECISION, Kind.BRANCH_SPLIT})


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold whether a model shows the fault on its inputs, and both answers where there are two."""

    shows: bool
    expected: tuple[Array, ...] = ()
    actual: tuple[Array, ...] = ()
    difference: Difference | None = None


Sizes = tuple[tuple[tuple[int, ...], ...], int]  # of the arrays that a part is given, and its model's bytes


@dataclass(frozen=True, slots=True)
class Trying:
    """Tell which sizes of a part run next in the process of the search: they may be the last it runs."""

    sizes: Sizes


class Showing:
    """Ask of parts whether they show one finding."""

    def __init__(
        self,
        context: Context,
        spec: TwinSpec,
        case: Case,
        verdict: Verdict,
        expected: Execution,
        actual: Execution,
        found: Located | None,
        deadline: float,
        deadly: frozenset[Sizes] = frozenset(),
    ) -> None:
        """Bind to one finding; `deadly` are sizes of parts that ended the process of an earlier search."""
        self._context, self._spec, self._case, self._verdict = context, spec, case, verdict
        self._recorded, self._wrong, self._found, self._deadline = expected, actual, found, deadline
        self._bench = Bench(context, spec, case)
        self._plain = replace(self._bench.ort, optimization_level="none")
        self._part, _, self._detail = verdict.blame.partition(":")
        self._send: Callable[[Any], None] = lambda message: None
        self._deadly, self._met = deadly, set(deadly)
        self._executions = 0
        self._first: Difference | None = None  # how the first answer differed: smaller ones must differ so too

    @property
    def _is_torchs(self) -> bool:
        """Tell whether the right answer is torch's own."""
        return self._verdict.kind in COMPARED and self._part not in ("optimizer", "kernel", "precision")

    # what to run

    def _ort(self, model: bytes, feeds: Mapping[str, Array]) -> Execution:
        """Run a part as it is tested; where the fault is a death, in a process of its own."""
        from fuzzparity.sides.parts import run_part

        run = partial(run_part, model, feeds, self._bench.ort, self._context.loaded.folder)
        if self._verdict.kind not in DEATHS:
            return run()
        path = self._context.map_path.with_name(self._context.map_path.name + ".cut.map")
        seconds = self._context.limits.run_seconds
        limits = Limits(seconds, self._context.limits.memory_bytes)
        answer = run_alone(lambda announcer, send: run(), map_path=path, limits=limits, total_seconds=seconds)
        if not isinstance(answer, Exit):
            return answer if isinstance(answer, Execution) else Execution(ORT, Status.REFUSED)
        return Execution(ORT, Status.HANG if answer.hang else Status.CRASHED, signal=answer.signal)

    def _right(self, model: bytes, feeds: Mapping[str, Array]) -> tuple[Array, ...] | None:
        """Run what blame says is right; None where it cannot tell."""
        import onnx

        from fuzzparity.blame.reference import run_reference
        from fuzzparity.sides.parts import run_part

        if self._part == "optimizer" or self._verdict.kind in REFUSALS:
            execution = run_part(model, feeds, self._without_passes(), self._context.loaded.folder)
        else:
            execution = run_reference(onnx.ModelProto.FromString(model), feeds)
        return tuple(execution.outputs) if execution.is_ok else None

    def _without_passes(self) -> Ort:
        passes = tuple(name for name in self._detail.split("+") if name and name != "unknown")
        if self._part != "optimizer" or not passes:
            return self._plain
        return replace(self._bench.ort, disabled_optimizers=(*self._bench.ort.disabled_optimizers, *passes))

    def _values(self, model: Any, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """Return every value of a right run of a graph, as far as one comes."""
        from fuzzparity.blame.cut import stepwise_values
        from fuzzparity.explain.programs import onnx_values
        from fuzzparity.sides.bare import run_bare

        def reference(part: bytes, given: Mapping[str, Array]) -> list[Any] | None:
            import onnx

            from fuzzparity.blame.reference import run_reference

            execution = run_reference(onnx.ModelProto.FromString(part), given)
            return list(execution.outputs) if execution.is_ok else None

        def plain(part: bytes, given: Mapping[str, Array]) -> list[Any] | None:
            return run_bare(part, given, self._plain)

        run = reference if self._verdict.kind in DEATHS else plain
        try:
            prefers_run = self._part != "kernel" and run is plain
            values = onnx_values(model, feeds, run if run is plain else lambda *given: None, prefers_run=prefers_run)
        except Exception:  # an evaluator raises whatever it meets; then node by node, as far as it goes
            values = {}
        return values or stepwise_values(model, feeds, run)

    # what shows

    def _asked(self, model: bytes, feeds: Mapping[str, Array], expected: tuple[Array, ...] | None) -> Answer:
        """Ask whether a model shows the fault; `expected` is computed where it is None."""
        from fuzzparity.blame.alike import CLEAR, difference

        self._executions += 1
        sizes = tuple(array.shape for array in feeds.values()), len(model)
        if sizes in self._deadly:
            return Answer(False)
        if sizes not in self._met:
            self._met.add(sizes)
            self._send(Trying(sizes))
        actual = self._ort(model, feeds)
        if self._verdict.kind in DEATHS:
            return Answer(self._dies_alike(actual))
        if self._verdict.kind in REFUSALS:
            return Answer(self._refuses_alike(actual))
        if not actual.is_ok:
            return Answer(False)
        expected = self._right(model, feeds) if expected is None else expected
        if expected is None:
            return Answer(False)
        found = difference(expected, actual.outputs, CLEAR)
        shows = found.way != "" and (self._first is None or found.keeps(self._first))
        return Answer(shows, expected, actual.outputs, found)

    def _dies_alike(self, actual: Execution) -> bool:
        if self._verdict.kind is Kind.HANG:
            return actual.status is Status.HANG
        signal = self._verdict.site.split()[0] if self._verdict.site else ""
        told = signal_name(actual.signal) if actual.signal is not None else ""
        return actual.status is Status.CRASHED and (not signal.startswith("SIG") or told == signal)

    def _refuses_alike(self, actual: Execution) -> bool:
        """Tell whether ORT refuses at the same site: its source line where the message names one, else its message."""
        if actual.is_ok or actual.refusal is None:
            return False
        return self._verdict.site in (actual.refusal.site, "") or self._verdict.site.endswith(actual.refusal.site)

    def _shows(self, part: Part) -> bool:
        """Tell whether a set of nodes shows the fault against captured values."""
        from fuzzparity.blame.alike import CLEAR, LONG_CLEAR, difference

        self._executions += 1
        is_compared = self._verdict.kind in COMPARED
        if is_compared and not part.is_known:
            return False
        actual = self._ort(part.model, part.feeds)
        if not is_compared:
            return self._dies_alike(actual) if self._verdict.kind in DEATHS else self._refuses_alike(actual)
        if not actual.is_ok:
            return False
        clear = CLEAR if part.nodes == 1 else LONG_CLEAR
        return difference([part.expected[name] for name in part.outputs], actual.outputs, clear).way != ""
