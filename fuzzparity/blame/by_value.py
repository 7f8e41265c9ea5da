"""By value: where a graph leaves torch, told by what values hold, for files that do not say where they come from.

The idea: a node's counterpart is the operator of torch's that is of its kind and read the same numbers. Where such a
pair gives different numbers and torch's, put in the node's place, heal the output, the node alone is at fault. Numbers
that are the same by chance, as in a minimized input full of zeros, pair nothing without such support.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from fuzzparity.blame.cut import Part
from fuzzparity.blame.families import DOES_OWN, MOVING, family, is_akin, main_place, weight
from fuzzparity.blame.matching import Sample, are_same
from fuzzparity.blame.paired import Run
from fuzzparity.blame.subgraphs import CONTAINERS, BodyRun, View, constant_of, free_names, needs_of, reference_body_runs
from fuzzparity.case import Array, is_float
from fuzzparity.values import Event

_MOST_TRIES = 120  # substitutions; each is a session of the whole model
_MOST_EARLIER = 40  # of these, to come closer to where it begins
_TELLING = 4  # different numbers that a float value must hold to pair by them alone; an integer one four times as many

Heals = Callable[[str, Array], bool]  # ONNX value, torch's value -> the output is torch's again


@dataclass(frozen=True, slots=True)
class Match:
    """Hold the node at fault, and what torch ran in its place.

    `between`: how many nodes are not told apart. `heals`: torch's value in its place gives torch's output. `is_sure`:
    its counterpart is of its kind and read the same numbers. `lost`: an operator of torch's that no node stands for;
    the node is then the one that reads what this should have changed.
    """

    node: onnx.NodeProto
    event: Event | None
    between: int
    heals: bool
    part: Part | None = None  # the nodes between what agrees and what heals, with torch's value of the latter
    is_sure: bool = False
    lost: Event | None = None


def locate_by_values(
    model: onnx.ModelProto,
    values: Mapping[str, Any],
    feeds: Mapping[str, Array],
    events: Sequence[Event],
    outputs: Sequence[str],
    heals: Heals,
) -> Match | None:
    """Return the first place at which the graph leaves torch's values; None where nothing can be said."""
    known = {name: np.asarray(value) for name, value in values.items() if isinstance(value, (np.ndarray, np.generic))}
    return locate_in(View(model, model.graph), {**known, **feeds}, feeds, events, outputs, heals)


def locate_in(
    view: View,
    values: Mapping[str, Array],
    feeds: Collection[str],
    events: Sequence[Event],
    outputs: Sequence[str],
    heals: Heals,
) -> Match | None:
    """Return the first place at which one graph, whose `values` are known, leaves torch's values."""
    book = _Book(view, values, feeds, events)
    if any(name in book.right and heals(name, book.values[name]) for name in outputs):
        return None  # the file itself gives torch's output
    behind = book.behind(outputs)
    for pair in sorted(_pairs(book, behind), key=lambda pair: pair.rank)[:_MOST_TRIES]:
        if heals(pair.name, pair.value):
            return _match(book, pair if pair.is_strict else _earlier(book, pair, heals), True)
    # no value alone heals: of several faults, the first node that gives other numbers than its counterpart
    own = next((pair for pair in _pairs(book, behind) if pair.is_strict), None)
    if own is not None:
        return _match(book, own, False)
    if not behind:
        return None
    nodes = [view.makers[name] for name in behind]
    return Match(nodes[main_place("", [node.op_type for node in nodes])], None, len(behind), False)


def locate_inside(
    view: View, node: onnx.NodeProto, values: Mapping[str, Array], events: Sequence[Event], run: Run
) -> tuple[Match, tuple[str, ...]] | None:
    """Return (the place in the bodies that a node ran, the path to it); None where none is sure.

    The bodies run on the file's own values, in order; in one of them the first node that gives other numbers than an
    operator of its kind that read the same.
    """
    if node.op_type not in CONTAINERS:
        return None
    for one in reference_body_runs(view, node, {**view.constants, **values}, run):
        label = f"{node.name}/{one.attribute}" + ("" if node.op_type == "If" else f"[{one.turn}]")
        own = _body_values(one, run)
        known = {**own, **one.feeds}
        outputs = [item.name for item in one.view.graph.output]
        match = locate_in(one.view, known, one.feeds, events, outputs, lambda name, value: False)
        if match is None or match.event is None:
            continue
        deeper = locate_inside(one.view, match.node, known, events, run)
        return (deeper[0], (label, *deeper[1])) if deeper else (match, (label,))
    return None


def _body_values(one: BodyRun, run: Run) -> dict[str, Array]:
    """Return the values of one run of a body."""
    names = [name for node in one.view.graph.node if constant_of(node) is None for name in node.output if name]
    outer = {name: one.view.constants[name] for name in free_names(one.view.graph) if name in one.view.constants}
    fed = {**outer, **one.feeds}
    answer = run(one.view.model_of(list(one.view.graph.node), fed, names), fed)
    found = zip(names, answer or (), strict=False)
    return {name: np.asarray(value) for name, value in found if isinstance(value, (np.ndarray, np.generic))}


def counterpart_of(event: Event, view: View, values: Mapping[str, Array]) -> onnx.NodeProto | None:
    """Return the first node of an operator's kind that reads something it read."""
    for node in view.graph.node:
        read = _read_by(node, view, values)
        if is_akin(event.op, node.op_type) and any(are_same(one, other) for one in read for other in event.inputs):
            return node
    return None


def event_of(node: onnx.NodeProto, view: View, values: Mapping[str, Array], events: Sequence[Event]) -> Event | None:
    """Return the first operator of torch's of a node's kind that read something it reads; else one that read it."""
    read = _read_by(node, view, values)
    near = [event for event in events if any(are_same(one, other) for one in read for other in event.inputs)]
    return next((event for event in near if is_akin(event.op, node.op_type)), near[0] if near else None)


def _read_by(node: onnx.NodeProto, view: View, values: Mapping[str, Array]) -> list[Array]:
    """Return the values that a node reads, constants aside."""
    names = [name for name in needs_of(node) if name not in view.constants]
    return [np.asarray(values[name]) for name in names if name in values]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Hold a value of the file and one of torch's that may be its right one."""

    name: str
    event: Event
    array: Array = field(repr=False)
    given: Array = field(repr=False)  # the file's
    is_strict: bool  # of one kind, and all that the node reads the operator read too
    rank: tuple[int, int, int, int, int]

    @property
    def value(self) -> Array:
        """Return torch's value in the form of the file's."""
        array = self.array.reshape(self.given.shape) if self.array.size == self.given.size else self.array
        return array.astype(self.given.dtype)


def _pairs(book: _Book, behind: Sequence[str]) -> Iterator[_Pair]:
    """Yield what may stand for each value behind those that agree, in the graph's order."""
    for name in behind:
        value = book.values.get(name)
        if value is None:
            continue
        node = book.view.makers[name]
        read = book.reads(node)
        region = [one for one in book.behind([name]) if one != name]
        sources = [book.values[one] for one in book.given_to([*region, name]) if one in book.values]
        for event in book.events:
            if id(event) in book.taken:
                continue
            for array in event.outputs:
                if not _could_be(value, array):
                    continue
                akin = is_akin(event.op, node.op_type)
                shares = any(book.is_among(one, sources) for one in event.inputs)
                is_strict = akin and not region and bool(read) and all(book.is_among(one, event.inputs) for one in read)
                support = 0 if is_strict else 1 if akin or shares else 2
                closeness = (int(not akin) + int(not shares), int(event.is_inner))
                rank = (support, int(array.size != value.size), book.view.order[name], *closeness)
                yield _Pair(name, event, array, value, is_strict, rank)


def _earlier(book: _Book, found: _Pair, heals: Heals) -> _Pair:
    """Return what heals before a value that heals, by nodes behind what agrees that do work of their own."""
    region = [name for name in book.behind([found.name]) if name != found.name]
    able = [name for name in region if weight(book.view.makers[name].op_type) >= DOES_OWN]
    for pair in list(_pairs(book, able))[:_MOST_EARLIER]:
        value = book.values[pair.name]
        if value.size > 1 and value.size == pair.array.size and heals(pair.name, pair.value):
            return pair
    return next((pair for pair in _read_instead(book, found, region) if heals(pair.name, pair.value)), found)


def _read_instead(book: _Book, found: _Pair, region: Collection[str]) -> Iterator[_Pair]:
    """Yield what a node reads, with what torch read: where it heals, torch has no step like the one before."""
    for name in needs_of(book.view.makers[found.name]):
        if name not in region or name not in book.values:
            continue
        value = book.values[name]
        for array in found.event.inputs:
            if array.size == value.size and _could_be(value, array) and not book.same(array, value):
                yield replace(found, name=name, array=array, given=value)


def _match(book: _Book, pair: _Pair, heals: bool) -> Match:
    region = book.behind([pair.name])
    nodes = [book.view.makers[name] for name in region]
    lost = book.lost(nodes[-1], pair.event) if heals and len(nodes) == 1 else None
    node = nodes[main_place(pair.event.op, [one.op_type for one in nodes])]
    part = None if lost is not None else _part(book, pair.name, pair.value)
    is_sure = heals and pair.is_strict and lost is None
    return Match(node, pair.event, len(region), heals, part, is_sure, lost)


def _part(book: _Book, name: str, value: Array) -> Part | None:
    """Return the nodes that lead from values that agree with torch's to one that torch has otherwise."""
    view = book.view
    found = view.between([name], book.right | (book.values.keys() - view.makers.keys()))
    if found is None or not found[0]:
        return None
    feeds = {one: book.values[one] for one in found[1] if one in book.values and one not in view.constants}
    return Part(view.model_of(found[0], feeds, [name]), feeds, (name,), {name: value}, len(found[0]))


@dataclass
class _Book:
    """Know which values of a graph are torch's.

    `right`: values that torch had, by more than chance. `taken`: events, by id, that such values stand for.
    """

    view: View
    values: Mapping[str, Array]
    feeds: Collection[str]
    events: Sequence[Event]
    right: set[str] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    _pairs: dict[tuple[int, int], bool] = field(default_factory=dict, repr=False)
    _samples: dict[int, tuple[Array, Sample]] = field(
        default_factory=dict, repr=False
    )  # held: an id must not come again

    def __post_init__(self) -> None:
        """Walk the graph once."""
        by_size: dict[tuple[int, str], list[tuple[int, Array]]] = {}
        for place, event in enumerate(self.events):
            for array in event.outputs:
                by_size.setdefault((array.size, array.dtype.kind), []).append((place, array))
        for node in self.view.graph.node:
            for name in node.output:
                value = self.values.get(name)
                if value is None or constant_of(node) is not None:
                    continue
                alike = by_size.get((value.size, value.dtype.kind), ())
                if self._moves(node, value):
                    self.right.add(name)
                    continue
                same = [self.events[place] for place, one in alike if self.same(value, one)]
                if any(self._supports(node, value, event) for event in same):
                    self.right.add(name)
                    self.taken.update(id(event) for event in same if self._stands_for(node, value, event))

    def _stands_for(self, node: onnx.NodeProto, value: Array, event: Event) -> bool:
        """Tell whether a node with a right value is what the file has for an operator of torch's that gave it."""
        if is_akin(event.op, node.op_type):
            return True
        if not _is_telling(value):
            return False
        # a clamp that had nothing to clamp gave what it read, and stands for a node of its own that follows
        is_step = any(is_akin(event.op, kind) for kind in self._kinds)
        return not (is_step and self.is_among(value, event.inputs))

    @functools.cached_property
    def _kinds(self) -> frozenset[str]:
        """Return the kinds of nodes that do more than hand on what they read."""
        return frozenset(node.op_type for node in self.view.graph.node) - MOVING

    def _supports(self, node: onnx.NodeProto, value: Array, event: Event) -> bool:
        """Tell whether it is no chance that a node gives what an operator of torch's gave."""
        if is_akin(event.op, node.op_type):
            return True
        read = self.reads(node)
        if self.is_among(value, read):  # it did nothing: what it read is no proof that it should not have
            return False
        if any(self.is_among(one, event.inputs) for one in read if one.size > 1 or is_float(one.dtype)):
            return True
        # one of the model's own numbers, such as a bias, torch has whatever it is given
        return _is_telling(value) and not self.is_among(value, list(self.view.constants.values()))

    def _moves(self, node: onnx.NodeProto, value: Array) -> bool:
        """Tell whether a node hands on right numbers in another form."""
        if node.op_type not in (*MOVING, "Expand") or not node.input:
            return False
        given = self.values.get(node.input[0])
        is_right = node.input[0] in self.right or node.input[0] in self.feeds
        if not is_right or given is None or given.size != value.size:
            return False
        if node.op_type == "Transpose":  # in another order: right unless torch moved the same numbers otherwise
            akin = [event for event in self.events if is_akin(event.op, "Transpose")]
            return not any(self.is_among(given, event.inputs) for event in akin)
        if given.dtype.kind == value.dtype.kind:
            return are_same(value, given)  # in the eps of the new type
        return bool((given.reshape(-1).astype(np.float64) == value.reshape(-1).astype(np.float64)).all())

    def same(self, one: Array, other: Array) -> bool:
        """Tell whether two values hold the same numbers; each pair is looked at once."""
        if one.size != other.size or one.dtype.kind != other.dtype.kind:
            return False
        key = (id(one), id(other))
        if key not in self._pairs:
            may_be = one is other or self._sample(one).may_be(self._sample(other))
            self._pairs[key] = one is other or (may_be and are_same(one, other))
        return self._pairs[key]

    def _sample(self, array: Array) -> Sample:
        if id(array) not in self._samples:
            self._samples[id(array)] = (array, Sample.of(array))
        return self._samples[id(array)][1]

    def is_among(self, array: Array, others: Sequence[Array]) -> bool:
        """Tell whether one of some values holds the same numbers."""
        return any(self.same(array, one) for one in others)

    def reads(self, node: onnx.NodeProto) -> list[Array]:
        """Return the values that a node reads, constants aside."""
        return _read_by(node, self.view, self.values)

    def behind(self, outputs: Sequence[str]) -> list[str]:
        """Return the values between those that agree and the outputs, in the graph's order."""
        found: set[str] = set()
        first = {name for name in outputs if name in self.view.makers}
        asked = list(first)
        while asked:
            name = asked.pop()
            if name in found or name in self.feeds or name in self.view.constants or name not in self.view.makers:
                continue
            if name in self.right and name not in first:
                continue
            found.add(name)
            asked += needs_of(self.view.makers[name])
        return sorted(found, key=lambda name: self.view.order[name])

    def given_to(self, names: Sequence[str]) -> list[str]:
        """Return what the nodes that make some values read from outside of them, constants aside."""
        inside = set(names)
        needed = [need for name in names for need in needs_of(self.view.makers[name])]
        return [need for need in dict.fromkeys(needed) if need not in inside and need not in self.view.constants]

    def lost(self, node: onnx.NodeProto, event: Event) -> Event | None:
        """Return torch's operator that changed what its counterpart read, where the node reads it unchanged."""
        if not is_akin(event.op, node.op_type):
            return None
        read = self.reads(node)
        for array in event.inputs:
            chain = self._way_back(array, read)
            own = [one for one in chain if not one.is_inner] or chain
            if own:
                return max(own, key=lambda one: max((weight(op) for op in family(one.op)), default=1))
        return None

    def _way_back(self, array: Array, read: Sequence[Array], steps: int = 6) -> list[Event]:
        """Return the operators that lead from what a node reads to a value of torch's; none where none do."""
        if steps == 0 or self.is_among(array, list(self.values.values())):
            return []
        made = [one for one in self.events if any(array is output for output in one.outputs)]
        for event in made or self._written_before(array):
            if any(self.is_among(one, self._before(event)) for one in read):
                return [event]
            for one in event.inputs:
                chain = self._way_back(one, read, steps - 1)
                if chain:
                    return [event, *chain]
        return []

    def _written_before(self, array: Array) -> list[Event]:
        """Return the last operator that wrote in place before a value was read that no operator gave."""
        reading = (place for place, one in enumerate(self.events) if any(array is given for given in one.inputs))
        return [one for one in self.events[: next(reading, 0)] if _writes(one.op)][-1:]

    def _before(self, event: Event) -> list[Array]:
        """Return what an operator read; of one that wrote in place, all that torch had until then."""
        if not _writes(event.op):
            return list(event.inputs)
        place = next(place for place, one in enumerate(self.events) if one is event)
        return [array for one in self.events[:place] for array in one.outputs]


def _writes(op: str) -> bool:
    parts = op.split(".")
    return len(parts) > 1 and parts[1].endswith("_") and not parts[1].endswith("__")


def _could_be(value: Array, array: Array) -> bool:
    return value.dtype.kind == array.dtype.kind and (value.size == array.size or value.ndim == array.ndim)


def _is_telling(value: Array) -> bool:
    """Tell whether a value holds enough different numbers that no other value is likely to hold them too."""
    least = _TELLING if is_float(value.dtype) else 4 * _TELLING
    return value.size >= least and len(np.unique(value.astype(np.float64))) >= least
