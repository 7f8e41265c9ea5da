"""Site: what a search for the place of one verdict works on, and what it may ask.

The idea: a search names a value and asks whether it heals, or a part and asks what ONNX Runtime gives for it; each
search runs in a process of its own, since any part may die.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzzparity.blame.localize import Located
from fuzzparity.case import Array, Case
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.explain.arbiters import LONGEST_SECONDS, Bench
from fuzzparity.explain.pairing import map_of
from fuzzparity.explain.records import TwinSpec
from fuzzparity.oracle.where import counted
from fuzzparity.values import Event
from fuzzparity.verdict import Grade, Verdict
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.loader import Context

if TYPE_CHECKING:
    from fuzzparity.sides.bare import Sessions

_OF_ONE_CASE = ("steps", "ort_values")  # what is kept of a site and holds for its case alone


class Site:
    """Look for the place of one verdict on one case of one build."""

    def __init__(
        self,
        context: Context,
        spec: TwinSpec,
        case: Case,
        verdict: Verdict,
        expected: Execution,
        actual: Execution,
        deadline: float,
        sessions: Sessions | None = None,
    ) -> None:
        self._context = context
        self._spec = spec
        self._case = case
        self._verdict = verdict
        self._expected, self._actual = expected, actual
        self._deadline = deadline
        self._sessions = sessions
        self._bench = Bench(context, spec, case)
        self.plain_ort = replace(self._bench.ort, optimization_level="none")
        names = spec.facts.outputs
        self.output = names.index(verdict.output) if verdict.output in names else None

    def on(self, case: Case, expected: Execution, actual: Execution) -> Site:
        """Return the site of another case, with what was made of the build so far."""
        other = copy.copy(self)
        other._case, other._expected, other._actual = case, expected, actual
        other._bench = Bench(self._context, self._spec, case)
        for name in _OF_ONE_CASE:
            other.__dict__.pop(name, None)
        return other

    @property
    def expected(self) -> Execution:
        """Return what torch did with the case."""
        return self._expected

    @property
    def actual(self) -> Execution:
        """Return what ONNX Runtime did with the case."""
        return self._actual

    def fork(
        self,
        body: Callable[[Callable[[Any], None]], Located | None],
        on_message: Callable[[Any], None] = lambda message: None,
        longest: float = LONGEST_SECONDS,
    ) -> Located | None:
        """Run a search in a process of its own; one that fails or dies has found nothing.

        What the search sends reaches `on_message` while it runs.
        """
        left = min(self._deadline - time.monotonic(), longest)
        if left <= 0:
            return None

        def attempt(announcer: Announcer, send: Callable[[Any], None]) -> Located | None:
            try:
                found = body(send)
            except Exception:  # exporters, evaluators and foreign modules raise whatever they meet
                return None
            if found is None:
                return None
            return replace(found, source=self.source_of(found.stack) or found.source, value=None)

        answer = run_alone(
            attempt,
            map_path=map_of(self._context),
            limits=self._context.limits,
            on_message=on_message,
            total_seconds=left,
        )
        return None if isinstance(answer, Exit) else answer

    @functools.cached_property
    def model(self) -> Any:
        """Return the model of the build."""
        import onnx

        return onnx.load(self._bench.model)

    @functools.cached_property
    def view(self) -> Any:
        """Return the main graph as values and the nodes that make them."""
        from fuzzparity.blame.subgraphs import View

        return View(self.model, self.model.graph)

    @functools.cached_property
    def program(self) -> tuple[Any, bool]:
        """Return (torch's decomposed program, whether it is known to be what the build was made from)."""
        from fuzzparity.explain.programs import program_of

        return program_of(self.loaded, self.build, self._bench.model.parent)

    @functools.cached_property
    def steps(self) -> list[Event]:
        """Return the operators that torch runs on the case, those of its own decompositions too."""
        from fuzzparity.sides.eager import eager_events

        return eager_events(self.loaded, self.case, steps=True)

    @functools.cached_property
    def ort_values(self) -> dict[str, Array]:
        """Return the values of the main graph as ONNX Runtime without passes gives them."""
        from fuzzparity.explain.programs import onnx_values

        return onnx_values(self.model, self.feeds, self.run_plain, prefers_run=True)

    @property
    def feeds(self) -> dict[str, Array]:
        """Return the case by ONNX input name."""
        return self._bench.feeds

    @property
    def loaded(self) -> Any:
        """Return the target."""
        return self._context.loaded

    @property
    def case(self) -> Case:
        """Return the case."""
        return self._case

    @property
    def bench(self) -> Bench:
        """Return the arbiters' bench."""
        return self._bench

    @property
    def build(self) -> Any:
        """Return the record of the build."""
        return self._spec.facts.build

    @property
    def verdict(self) -> Verdict:
        """Return the verdict whose place is sought."""
        return self._verdict

    @property
    def run_seconds(self) -> float:
        """Return after how many seconds a run counts as one that does not end."""
        return self._context.limits.run_seconds

    @property
    def grade(self) -> Grade:
        """Return the verdict's grade."""
        return self._verdict.grade

    @property
    def part(self) -> str:
        """Return the part that is blamed, without its detail."""
        return self._verdict.blame.partition(":")[0]

    def run_plain(self, model: bytes, feeds: Mapping[str, Array]) -> list[Any] | None:
        """Run a part on ORT without optimization."""
        from fuzzparity.sides.bare import run_bare

        return run_bare(model, feeds, self.plain_ort, self._sessions)

    def run_optimized(self, model: bytes, feeds: Mapping[str, Array]) -> list[Any] | None:
        """Run a part on ORT as it is tested."""
        from fuzzparity.sides.bare import run_bare

        return run_bare(model, feeds, self._bench.ort, self._sessions)

    def heals(self, name: str, value: Array) -> bool:
        """Tell whether the whole model, given a value, gives torch's output at the tested level."""
        from fuzzparity.blame.subgraphs import substituted
        from fuzzparity.blame.witness import sides_with

        if not self._expected.is_ok or time.monotonic() > self._deadline:
            return False
        changed = substituted(self.model, name, value).SerializeToString()
        outputs = self.run_optimized(changed, {**self.feeds, f"{name}__given": value})
        if outputs is None:
            return False
        answer = Execution(ORT, Status.OK, tuple(outputs))
        answer = counted(answer, self._expected.where)
        return sides_with(self._verdict.kind, self.output, self._expected, self._actual, answer) == TORCH

    def matters(self, program: Any, name: str, value: Array) -> bool:
        """Tell whether torch's program, going on from a value at a node, gives another output than torch's."""
        from fuzzparity.blame.witness import sides_with

        if not self._expected.is_ok:
            return False
        scope = program.run(self.case, {name: value})
        if scope.refused_at:
            return True
        outputs = tuple(scope.values[one] for one in scope.outputs if one in scope.values)
        if len(outputs) != len(scope.outputs):
            return False
        answer = counted(Execution(TORCH, Status.OK, outputs), self._expected.where)
        side = sides_with(self._verdict.kind, self.output, self._expected, self._actual, answer)
        return side not in ("", TORCH)

    def source_of(self, stack: str) -> str:
        """Return "file:line" of the user's own code in a stack, relative to the target's folder or to where we are."""
        from fuzzparity.sides.own_code import own_place, places_in

        place = own_place(places_in(stack))
        return self.relative(f"{place[0]}:{place[1]}") if place is not None else ""

    def relative(self, source: str) -> str:
        """Return a "file:line" relative to the target's folder, else to the working directory, else by name alone."""
        file, _, line = source.rpartition(":")
        path = Path(file).resolve()
        folder = Path(self.loaded.folder).resolve() if self.loaded.folder else None
        folder = folder.parent if folder is not None and folder.is_file() else folder
        for root in (folder, Path.cwd()):
            if root is not None and path.is_relative_to(root):
                return f"{path.relative_to(root)}:{line}"
        return f"{path.name}:{line}"
