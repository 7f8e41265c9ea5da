"""Cutting: from a blamed finding to the few nodes of its model that show it, on the values that stand there.

The idea: blame says what to compare with. A pass's fault shows against ORT without it, a kernel's against the ONNX
reference, an exporter's against torch's own value at the place that was found; a death and a refusal show by
themselves. All of it runs in a fork; the best so far is told while the search goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fuzzparity.case import Array, Case
from fuzzparity.execution import Execution
from fuzzparity.explain.pairing import map_of
from fuzzparity.explain.records import TwinSpec
from fuzzparity.explain.showing import COMPARED, DEATHS, REFUSALS, Sizes, Trying
from fuzzparity.explain.shrinking import Shrinking
from fuzzparity.finding import Cut
from fuzzparity.verdict import Grade, Verdict
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.loader import Context

if TYPE_CHECKING:
    from fuzzparity.blame.cut import Ground, Part
    from fuzzparity.blame.localize import Located

_SEARCH_SHARE = 0.5  # of the seconds, for nodes; the rest is for sizes and values
_MOST_DEATHS = 6  # of searches that met a fault that ends their process; the best so far stands
_GRACE_SECONDS = 5.0  # to end by itself
_EXPORT_SECONDS = 20.0  # for one more export, of a module of a few calls
_HEAVY_BYTES = 32 << 20  # of a model: each look at it as a whole takes a second, so a search gets twice the time


def cut_of(
    context: Context,
    spec: TwinSpec,
    case: Case,
    verdict: Verdict,
    expected: Execution,
    actual: Execution,
    found: Located | None,
    *,
    seconds: float,
) -> Cut | None:
    """Return the smallest part of the model that shows a blamed verdict on its case; None where none was found.

    `found`: the place that localization has found. Bounded by `seconds`; what was found by then stands.
    """
    is_worth_it = verdict.grade is Grade.BUG and verdict.kind in DEATHS | REFUSALS | COMPARED
    if not is_worth_it or not spec.is_built or seconds <= 0 or verdict.side.startswith("torch"):
        return None
    seconds *= 2 if spec.facts.build.onnx_bytes > _HEAVY_BYTES else 1
    deadline, found_cuts, deadly = time.monotonic() + seconds, [], set[Sizes]()
    for _ in range(_MOST_DEATHS):
        left = deadline - time.monotonic()
        job = _Job(context, spec, case, verdict, expected, actual, found, deadline, frozenset(deadly))
        best, killer = _searched(context, job, left + (_EXPORT_SECONDS if verdict.blame == "export" else 0.0))
        found_cuts += [best] if best is not None else []
        if killer is None or time.monotonic() >= deadline:
            break
        deadly.add(killer)
    return min(reversed(found_cuts), key=_size, default=None)


def _searched(context: Context, job: _Job, seconds: float) -> tuple[Cut | None, Sizes | None]:
    """Return the best that a search found in a process of its own, and the sizes at which that died, if it did."""
    best: list[Cut] = []
    tried: list[Sizes] = []

    def on_message(message: Cut | Trying) -> None:
        if isinstance(message, Trying):
            tried[:] = [message.sizes]
        else:
            best[:] = [message]

    answer = run_alone(
        job.run,
        map_path=map_of(context),
        limits=context.limits,
        on_message=on_message,
        total_seconds=seconds + _GRACE_SECONDS,
    )
    is_dead = isinstance(answer, Exit) and answer.signal is not None and not answer.hang
    return best[0] if best else None, tried[0] if is_dead and tried else None


def _size(cut: Cut) -> tuple[int, int]:
    return cut.nodes, sum(array.size for array in cut.feeds.values()) + len(cut.model)


class _Job(Shrinking):
    """Cut one finding in a process of its own."""

    def run(self, announcer: Announcer, send: Callable[[Any], None]) -> None:
        """Search, telling each better cut."""
        self._send = send
        part = self._given_part() or self._searched_part()
        if part is not None:
            self.shrink(part)

    # nodes

    def _given_part(self) -> Part | None:
        """Return the nodes that localization has found on torch's own values, where ORT leaves them there."""
        found = self._found
        if found is None or found.part is None or self._verdict.kind not in COMPARED:
            return None
        return found.part if self._shows(found.part) else None

    def _searched_part(self) -> Part | None:
        """Return the smallest set of nodes by search; bodies are entered where one node is left."""
        import onnx

        from fuzzparity.blame.cut import Ground, Search

        model = onnx.load(self._bench.model)
        feeds = self._bench.feeds
        outputs = [item.name for item in model.graph.output]
        names = self._spec.facts.outputs
        place = names.index(self._verdict.output) if self._verdict.output in names else None
        wanted = [outputs[place]] if place is not None and place < len(outputs) else outputs
        ground = Ground(model, feeds, self._values(model, feeds), wanted)
        if self._is_torchs:
            return self._by_torchs_values(ground)
        until = time.monotonic() + (self._deadline - time.monotonic()) * _SEARCH_SHARE
        search = Search(self._shows, may_go_on=lambda: time.monotonic() < until, on_better=self.tell)
        chosen = search.smallest(ground, self._hint(ground))
        if chosen is not None and len(chosen) == 1:
            search.enter(ground, chosen[0], self._values, self._plain_run, self._inside())
        return search.best

    def _plain_run(self, model: bytes, feeds: Mapping[str, Array]) -> list[Any] | None:
        right = self._right(model, feeds)
        return None if right is None else list(right)

    def _hint(self, ground: Ground) -> list[int]:
        """Return the places that localization or blame has named."""
        found, known = self._found, self._verdict.attribution
        if found is not None and found.pattern:
            return ground.places_of(found.pattern)
        if found is not None and found.path:
            return ground.places_of({found.path[0].partition("/")[0]})
        if known is not None and known.onnx_node:
            return ground.places_of({known.onnx_node}, known.op)
        return []

    def _inside(self) -> set[str]:
        """Return the names of nodes in bodies that localization has found."""
        found = self._found
        if found is None:
            return set()
        return {step.partition("/")[0] for step in found.path} | {found.onnx_node}

    def _by_torchs_values(self, ground: Ground) -> Part | None:
        """Return the first node that leaves torch's values, else what leads from the last of these to the output."""
        from fuzzparity.blame.cut import Part
        from fuzzparity.blame.matching import are_same
        from fuzzparity.explain.frontier import part_at_frontier
        from fuzzparity.explain.site import Site
        from fuzzparity.sides.eager import eager_events

        names = self._spec.facts.outputs
        place = names.index(self._verdict.output) if self._verdict.output in names else -1
        if place < 0 or not self._recorded.is_ok or self._part not in ("export", "capture", "onnx_file", "unknown"):
            return None
        events = eager_events(self._context.loaded, self._case)
        site = Site(self._context, self._spec, self._case, self._verdict, self._recorded, self._wrong, self._deadline)
        found = part_at_frontier(ground, events, self._shows, site.heals)
        if found is not None:
            return found
        arrays = [array for event in events for array in event.outputs]
        values = {name: one for name, one in ground.values.items() if name in ground.feeds or _says_much(one)}
        right = {name for name, value in values.items() if any(are_same(value, array) for array in arrays)}
        wanted = ground.model.graph.output[place].name
        between = ground.view.between([wanted], (right | ground.feeds.keys()) - {wanted})
        if between is None or not between[0] or self._part == "unknown":
            return None
        given = {n: values[n] for n in between[1] if n in values and n not in ground.view.constants}
        answer = {wanted: self._recorded.outputs[place]}
        part = Part(ground.view.model_of(between[0], given, [wanted]), given, (wanted,), answer, len(between[0]))
        return part if self._shows(part) else None


def _says_much(value: Any) -> bool:
    """Tell whether a value is worth being recognized by: more than a few plain numbers."""
    array = np.asarray(value)
    return (
        array.dtype.kind in "fV" and array.size >= 2 and np.unique(array.reshape(-1)[:64].astype(np.float64)).size > 1
    )
