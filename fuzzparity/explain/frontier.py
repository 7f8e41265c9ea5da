"""Frontier: the first node behind the values that torch had too, with the value that torch has in its place.

The idea: where a file's values agree with torch's up to a node, and torch's own value put in that node's place heals
the output, the node alone shows the fault. It needs one run of each side, and a session for each candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuzzparity.blame.cut import Ground, Part
from fuzzparity.blame.matching import are_same, counterpart
from fuzzparity.blame.subgraphs import needs_of
from fuzzparity.case import Array
from fuzzparity.values import Event

_MOST_TRIED = 12  # substitutions; each is a session of the whole model

Heals = Callable[[str, Array], bool]  # ONNX value, torch's value -> the output is torch's again


def part_at_frontier(
    ground: Ground, events: Sequence[Event], shows: Callable[[Part], bool], heals: Heals
) -> Part | None:
    """Return the first node that leaves torch's values, alone on them, with torch's answer; None without a sure one."""
    had: dict[tuple[int, str], list[Array]] = {}
    for event in events:
        for array in event.outputs:
            had.setdefault((array.size, array.dtype.kind), []).append(array)
    right = set(ground.feeds) | set(ground.view.constants)
    tried = 0
    for place in ground.places:
        node = ground.model.graph.node[place]
        names = [name for name in node.output if name in ground.values]
        follows = all(name in right for name in needs_of(node))
        for name in names:
            value = ground.values[name]
            if any(are_same(value, one) for one in had.get((value.size, value.dtype.kind), ())):
                right.add(name)
        if not follows or len(names) != 1 or names[0] in right or tried >= _MOST_TRIED:
            continue
        answer = _answer(ground.values[names[0]], events)
        part = ground.part([place])
        if answer is None or part is None or part.outputs != (names[0],):
            right.add(names[0])  # a step of a pattern that torch does in one: what follows may be torch's again
            continue
        part = replace(part, expected={names[0]: answer})
        tried += 1
        if shows(part) and heals(names[0], answer):
            return part
        right.add(names[0])
    return None


def _answer(value: Array, events: Sequence[Event]) -> Array | None:
    found = counterpart(value, events, 0)
    if found is None or found[1].dtype != value.dtype:
        return None
    return np.ascontiguousarray(found[1].reshape(value.shape))


def worst_slice(
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array],
    actual: Mapping[str, Array],
    run: Callable[[Mapping[str, Array]], Sequence[Any] | None],
) -> tuple[dict[str, Array], dict[str, Array]] | None:
    """Return (inputs, right answers) cut to the worst element along each axis along which a part works row by row.

    That it does is seen, not assumed: on the slice, ORT gives the slice of its answer. None where no axis can be cut.
    """
    if len(expected) != 1:
        return None
    (name,) = expected
    given, right, wrong = dict(feeds), expected[name], actual[name]
    if right.shape != wrong.shape or not right.size:
        return None
    is_cut = False
    for axis in range(right.ndim):
        size = right.shape[axis]
        if size < 2:
            continue
        place = np.unravel_index(int(_gap(right, wrong).argmax()), right.shape)[axis]
        at = (*[slice(None)] * axis, slice(int(place), int(place) + 1))
        fewer = {
            one: np.ascontiguousarray(a[at]) if a.ndim == right.ndim and a.shape[axis] == size else a
            for one, a in given.items()
        }
        answer = run(fewer)
        if not answer or np.asarray(answer[0]).shape != wrong[at].shape:
            continue
        if np.array_equal(np.asarray(answer[0]), wrong[at], equal_nan=wrong.dtype.kind in "fc"):
            given, right, wrong, is_cut = fewer, np.ascontiguousarray(right[at]), np.ascontiguousarray(wrong[at]), True
    return (given, {name: right}) if is_cut else None


def _gap(right: Array, wrong: Array) -> Array:
    if right.dtype.kind in "biu":
        return np.asarray(right != wrong, np.float64)
    with np.errstate(all="ignore"):
        gap = np.abs(right.astype(np.float64) - wrong.astype(np.float64))
        gap[(right == wrong) | (np.isnan(right) & np.isnan(wrong))] = 0.0
        gap[np.isnan(gap)] = np.inf
    return np.asarray(gap)
