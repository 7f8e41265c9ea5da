"""Cut: the fewest nodes of a graph that still carry a fault, fed with the values that stand at the cut.

The idea: values captured from a right run make every set of nodes a model of its own, with known inputs and a known
answer. So the search asks one side only, enters bodies by making the taken one a graph, and keeps a pattern that a
graph pass needs, since a node is left out only where the fault survives that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from fuzzparity.blame.inner import body_model
from fuzzparity.blame.subgraphs import CONTAINERS, View, constant_of, needs_of, reference_body_runs
from fuzzparity.case import Array

Run = Callable[[bytes, Mapping[str, Array]], "list[Any] | None"]  # model, feeds -> outputs; None: refused
_DEEPEST = 8  # of nested bodies, as in `inner`
_MOST_TURNS = 24  # of a loop's bodies that are looked into
_MANY_BYTES = 16 << 20  # of weights: writing and loading half of them takes as long as some hundred small sessions


@dataclass(frozen=True, slots=True)
class Part:
    """Hold a set of nodes as a model of its own: what it reads and what it should answer, by ONNX name.

    `expected` lacks what nobody could compute; `path`: the bodies that it was taken out of.
    """

    model: bytes = field(repr=False)
    feeds: dict[str, Array] = field(repr=False)
    outputs: tuple[str, ...]
    expected: dict[str, Array] = field(repr=False)
    nodes: int
    path: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Tell whether the right answer of every output is known."""
        return all(name in self.expected for name in self.outputs)


Shows = Callable[[Part], bool]
Values = Callable[[onnx.ModelProto, Mapping[str, Array]], Mapping[str, Any]]  # every value of a right run


class Ground:
    """Hold a graph in which to cut: its nodes that lead to the wanted values, and the values of a right run."""

    def __init__(
        self,
        model: onnx.ModelProto,
        feeds: Mapping[str, Array],
        values: Mapping[str, Any],
        wanted: Sequence[str],
        path: tuple[str, ...] = (),
    ) -> None:
        """Index the graph; `values` may lack some, and then no cut goes through them."""
        self.model, self.path, self.feeds = model, path, dict(feeds)
        self.view = View(model, model.graph)
        arrays = {name: np.asarray(one) for name, one in values.items() if isinstance(one, (np.ndarray, np.generic))}
        self.values: dict[str, Array] = {**arrays, **self.feeds}
        self.weight_bytes = sum(array.nbytes for array in self.view.constants.values())
        self._graph_outputs = {item.name for item in model.graph.output}
        leads = self.view.ancestors(wanted)
        self.places = [
            place
            for place, node in enumerate(model.graph.node)
            if constant_of(node) is None and any(name in leads for name in node.output if name)
        ]
        self._read = {name for node in model.graph.node for name in needs_of(node)} | self._graph_outputs

    def places_of(self, names: Collection[str], op: str = "") -> list[int]:
        """Return the places of nodes by name (of one without a name, that of its value)."""
        found = []
        for place in self.places:
            node = self.model.graph.node[place]
            label = node.name or next((name for name in node.output if name), "")
            if label in names and op in ("", node.op_type):
                found.append(place)
        return found

    def part(self, places: Iterable[int]) -> Part | None:
        """Return a set of nodes as a model; None where a value that it reads is not known.

        Its outputs are what none of its own nodes reads: more of them would keep passes from acting.
        """
        nodes = [self.model.graph.node[place] for place in sorted(places)]
        if not nodes:
            return None
        made = {name for node in nodes for name in node.output if name}
        read = list(dict.fromkeys(name for node in nodes for name in needs_of(node)))
        outer = [name for name in read if name not in made and name not in self.view.constants]
        if any(name not in self.values for name in outer):
            return None
        inner = set(read)
        outputs = [n for node in nodes for n in node.output if n and n in self._read and n not in inner]
        if not outputs:
            outputs = [next(name for name in nodes[-1].output if name)]
        feeds = {name: self.values[name] for name in outer}
        expected = {name: self.values[name] for name in outputs if name in self.values}
        return Part(
            self.view.model_of(nodes, feeds, outputs), feeds, tuple(outputs), expected, len(nodes), path=self.path
        )


class Search:
    """Look for the smallest part that shows the fault, as long as `may_go_on` says so; the best stands at any time."""

    def __init__(
        self,
        shows: Shows,
        *,
        may_go_on: Callable[[], bool] = lambda: True,
        on_better: Callable[[Part], None] = lambda part: None,
    ) -> None:
        """Bind to a predicate; `on_better` sees each smaller part."""
        self._shows, self._may_go_on, self._on_better = shows, may_go_on, on_better
        self._asked: dict[tuple[tuple[str, ...], tuple[int, ...]], Part | None] = {}
        self.runs = 0
        self.best: Part | None = None

    def smallest(self, ground: Ground, hint: Sequence[int] = ()) -> tuple[int, ...] | None:
        """Return the places of the smallest set found in one graph, None where the whole does not show it.

        `hint`: places that are asked first, as those of a node that blame has found.
        """
        chosen = tuple(sorted(hint))
        if not chosen or self._try(ground, chosen) is None:
            chosen = tuple(ground.places)
            alone = self._one_alone(ground, chosen) if ground.weight_bytes > _MANY_BYTES else None
            if alone is not None:
                return alone
            if not chosen or self._try(ground, chosen) is None:
                return None
            chosen = self._shortest_end(ground, chosen)
            chosen = self._latest_start(ground, chosen)
        return self._without_each(ground, chosen)

    def _one_alone(self, ground: Ground, chosen: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the first node that shows it alone: half of a heavy graph costs more than all nodes one by one."""
        return next(((place,) for place in chosen if self._try(ground, (place,)) is not None), None)

    def enter(
        self, ground: Ground, place: int, values: Values, run: Run, inside: Collection[str] = ()
    ) -> tuple[Ground, tuple[int, ...]] | None:
        """Return (a body of a node as a graph of its own, the smallest set in it), None where no body shows it.

        `values(model, feeds)` gives a right run of a body, `run` its next turn; `inside`: names to ask first.
        """
        node = ground.model.graph.node[place]
        if node.op_type not in CONTAINERS or len(ground.path) >= _DEEPEST:
            return None
        known = {**ground.view.constants, **ground.values}
        for one in reference_body_runs(ground.view, node, known, run, _MOST_TURNS):
            if not self._may_go_on():
                return None
            turn = "" if node.op_type == "If" else f"[{one.turn}]"
            path = (*ground.path, f"{node.name or node.op_type}/{one.attribute}{turn}")
            model, fed = body_model(one.view, one.feeds)
            wanted = [item.name for item in model.graph.output]
            body = Ground(model, fed, values(model, fed), wanted, path)
            chosen = self.smallest(body, body.places_of(inside))
            if chosen is not None:
                deeper = self.enter(body, chosen[0], values, run, inside) if len(chosen) == 1 else None
                return deeper or (body, chosen)
        return None

    def _try(self, ground: Ground, places: tuple[int, ...]) -> Part | None:
        """Return the part of these places where it shows the fault; each set is asked once."""
        key = (ground.path, places)
        if key in self._asked:
            return self._asked[key]
        part = ground.part(places)
        found = None
        if part is not None and self._may_go_on():
            self.runs += 1
            found = part if self._shows(part) else None
        self._asked[key] = found
        if found is not None and (self.best is None or self._is_smaller(found, self.best)):
            self.best = found
            self._on_better(found)
        return found

    @staticmethod
    def _is_smaller(one: Part, other: Part) -> bool:
        return (-len(one.path), one.nodes, len(one.feeds)) < (-len(other.path), other.nodes, len(other.feeds))

    def _shortest_end(self, ground: Ground, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shortest beginning that shows it, as if all longer ones did."""
        low, high = 0, len(chosen)
        while high - low > 1:
            middle = (low + high) // 2
            if self._try(ground, chosen[:middle]) is not None:
                high = middle
            else:
                low = middle
        return chosen[:high]

    def _latest_start(self, ground: Ground, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shortest end of it that shows it, its inputs captured."""
        low, high = 0, len(chosen)
        while high - low > 1:
            middle = (low + high) // 2
            if self._try(ground, chosen[middle:]) is not None:
                low = middle
            else:
                high = middle
        return chosen[low:]

    def _without_each(self, ground: Ground, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Return a set of which no single node can be left out; long runs of nodes are tried first."""
        length = max(1, len(chosen) // 2)
        while len(chosen) > 1:
            before, stop = len(chosen), len(chosen)
            while stop > 0:
                start = max(0, stop - length)
                fewer = chosen[:start] + chosen[stop:]
                if fewer and self._try(ground, fewer) is not None:
                    chosen = fewer
                stop = start
            if length == 1 and len(chosen) == before:
                break
            length = max(1, length // 2)
        return chosen


def stepwise_values(model: onnx.ModelProto, feeds: Mapping[str, Array], run: Run) -> dict[str, Array]:
    """Return the values of the main graph computed node by node, as far as `run` answers.

    For a graph that no run gets through: what stands before the node that refuses is there all the same.
    """
    view = View(model, model.graph)
    known = dict(feeds)
    for node in model.graph.node:
        names = [name for name in node.output if name]
        if constant_of(node) is not None or any(n not in known and n not in view.constants for n in needs_of(node)):
            continue
        fed = {name: known[name] for name in needs_of(node) if name in known}
        answer = run(view.model_of([node], fed, names), fed)
        for name, value in zip(names, answer or (), strict=False):
            if isinstance(value, (np.ndarray, np.generic)):
                known[name] = np.asarray(value)
    return {name: value for name, value in known.items() if name not in feeds}
