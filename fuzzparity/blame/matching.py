"""Matching: torch's and ONNX's values paired by what they hold, for files that do not say where they come from.

The idea: values that are the same number for number are the same value. Behind the last ones that agree lies the
fault; the first value there that, replaced by one of torch's own, heals the output tells its node. It is a guess, and
told as one, unless a single node lies between what agrees and what heals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from fuzzparity.blame.cut import Part
from fuzzparity.blame.nodes import onnx_eps
from fuzzparity.blame.subgraphs import View, needs_of
from fuzzparity.case import Array, is_float
from fuzzparity.values import Event

_SAME = 256.0  # eps of the largest |value|: noise grows along a graph, faults worth telling are larger
_MOST_TRIES = 160  # substitutions; each is a session of the whole model

Heals = Callable[[str, Array], bool]


@dataclass(frozen=True, slots=True)
class Match:
    """Hold the node at fault, and what torch ran in its place; `between`: how many nodes are not told apart."""

    node: onnx.NodeProto
    event: Event | None
    between: int
    heals: bool
    part: Part | None = None  # the nodes between what agrees and what heals, with torch's value of the latter


def locate_by_values(
    model: onnx.ModelProto,
    values: Mapping[str, Any],
    feeds: Mapping[str, Array],
    events: Sequence[Event],
    outputs: Sequence[str],
    heals: Heals,
) -> Match | None:
    """Return the first node behind the values that agree with torch's; None where nothing can be said."""
    view = View(model, model.graph)
    book = _Book(events)
    values = {name: np.asarray(value) for name, value in values.items() if isinstance(value, (np.ndarray, np.generic))}
    matched = {name for name, array in values.items() if name in view.makers and book.holds(array)}
    behind = _behind(view, outputs, matched, feeds)
    if not behind:
        return None
    spare = [(event, array) for event in events for array in event.outputs if not _is_among(array, values)]
    tries = 0
    for name in behind:
        for event, array in spare:
            if name not in values or not _could_be(values[name], array):
                continue
            tries += 1
            if tries > _MOST_TRIES:
                break
            value = array.reshape(values[name].shape) if array.size == values[name].size else array
            if heals(name, value.astype(values[name].dtype)):
                region = _behind(view, [name], matched, feeds)
                part = _part(view, name, matched, {**values, **feeds}, value.astype(values[name].dtype))
                return Match(_main(view, region), event, len(region), True, part)
    return Match(view.makers[behind[0]], None, len(behind), False)


def _part(view: View, name: str, matched: set[str], known: Mapping[str, Array], value: Array) -> Part | None:
    """Return the nodes that lead from values that agree with torch's to one that torch has otherwise."""
    found = view.between([name], matched | (known.keys() - view.makers.keys()))
    if found is None or not found[0]:
        return None
    feeds = {one: known[one] for one in found[1] if one in known and one not in view.constants}
    return Part(view.model_of(found[0], feeds, [name]), feeds, (name,), {name: value}, len(found[0]))


def _main(view: View, region: Sequence[str]) -> onnx.NodeProto:
    from fuzzparity.blame.localize import main_node
    from fuzzparity.blame.origins import origin_of

    nodes = [view.makers[name] for name in region]
    return main_node(nodes, origin_of(nodes[-1]))


def _behind(view: View, outputs: Sequence[str], matched: set[str], feeds: Mapping[str, Array]) -> list[str]:
    """Return the values between those that agree and the outputs, in the graph's order."""
    found: set[str] = set()
    asked = [name for name in outputs if name in view.makers]
    first = set(asked)
    while asked:
        name = asked.pop()
        if name in found or name in feeds or name in view.constants or name not in view.makers:
            continue
        if name in matched and name not in first:
            continue
        found.add(name)
        asked += needs_of(view.makers[name])
    return sorted(found, key=lambda name: view.order[name])


def _could_be(value: Array, array: Array) -> bool:
    return value.dtype.kind == array.dtype.kind and (value.size == array.size or value.ndim == array.ndim)


def _is_among(array: Array, values: Mapping[str, Array]) -> bool:
    return any(are_same(array, value) for value in values.values())


def source_of(array: Array, events: Sequence[Event]) -> Event | None:
    """Return the first operator of torch's that gave this value."""
    for event in events:
        if event.source and any(are_same(array, output) for output in event.outputs):
            return event
    return None


def counterpart(value: Array, events: Sequence[Event], start: int) -> tuple[int, Array] | None:
    """Return (place, torch's value) for a value of the file: the same numbers, else the nearest of that shape.

    Sought from `start` on, since both sides compute in about the same order; None where nothing has its shape or lies
    within a tenth of its size.
    """
    nearest: tuple[float, int, Array] | None = None
    for place in range(start, len(events)):
        for array in events[place].outputs:
            if array.size != value.size or array.dtype.kind != value.dtype.kind:
                continue
            if are_same(array, value):
                return place, array
            gap = _gap(array, value) if array.shape == value.shape else 1.0
            if gap < 0.1 and (nearest is None or gap < nearest[0]):  # noise is far below, another value far above
                nearest = (gap, place, array)
    return (nearest[1], nearest[2]) if nearest is not None else None


def _gap(one: Array, other: Array) -> float:
    """Return the median distance of two values of one shape over the largest |value|; 1.0 where it is no number."""
    if not is_float(one.dtype) or not one.size:
        return 1.0
    left, right = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(all="ignore"):
        size = np.abs(left[np.isfinite(left)]).max(initial=0.0)
        gap = float(np.median(np.abs(left - right))) / size if size else 1.0
    return gap if np.isfinite(gap) else 1.0


def are_same(one: Array, other: Array) -> bool:
    """Tell whether two values hold the same numbers in the same order, up to the noise of a graph."""
    if one.size != other.size or one.dtype.kind != other.dtype.kind or not one.size:
        return False
    left, right = one.reshape(-1), other.reshape(-1)
    if not is_float(one.dtype):
        return one.dtype.kind in "biu" and bool((left == right).all())
    wide, narrow = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (wide == narrow) | (np.isnan(wide) & np.isnan(narrow))
        size = np.abs(wide[np.isfinite(wide)]).max(initial=0.0)
        near = np.abs(wide - narrow) <= _SAME * onnx_eps(one.dtype) * size
    return bool((same | near).all())


class _Book:
    """Look values up among torch's, by size first."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._by_size: dict[tuple[int, str], list[Array]] = {}
        for event in events:
            for array in event.outputs:
                self._by_size.setdefault((array.size, array.dtype.kind), []).append(array)

    def holds(self, array: Array) -> bool:
        """Tell whether torch had this value."""
        return any(are_same(array, one) for one in self._by_size.get((array.size, array.dtype.kind), ()))


def departure(eager: Sequence[Event], captured: Sequence[Event]) -> Iterator[tuple[int, Event]]:
    """Yield (place, event) of what the module computed and the captured program did not, in order."""
    book = _Book(captured)
    for place, event in enumerate(eager):
        floats = [array for array in event.outputs if array.size]
        if event.is_refused or (floats and not all(book.holds(array) for array in floats)):
            yield place, event
