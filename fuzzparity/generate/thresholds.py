"""Thresholds: values that make a sum, a mean, a norm or an element meet a constant, and multiples of a unit.

The idea: a model rarely compares an input itself: it compares what it has computed. Rows are shifted or scaled so that
a statistic of theirs comes to lie on a constant of the code or the graph, exactly, just past it, or between two of
them; and what is rounded somewhere inside is given multiples and half multiples of the step it is rounded to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuzzparity.case import Array
from fuzzparity.generate.moves import Draft, Mutator, exchange, filled_with, float_input, numeric_input
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene

_CLOSENESS = 7.0  # decades: how near to a constant, relative to it
_ANYWHERE = 0.35  # share of rows of halves within the reach of a byte, in place of an edge
_REACH = 256
_EDGES = np.array([0.0, 0.0, 0.0, 127.0, -128.0, 255.0])  # multiples around which a quantizer saturates, and zero


def targets(constants: Sequence[float], count: int, rng: Rng) -> Array:
    """Draw `count` float64 targets: constants, a little more or less than one, or between two."""
    table = np.asarray(constants, np.float64)
    units = rng.numpy.random((4, count))
    chosen = table[(units[0] * len(table)).astype(np.int64)]
    other = table[(units[3] * len(table)).astype(np.int64)]
    off = chosen * 10.0 ** (-_CLOSENESS * units[2]) * np.where(units[3] < 0.5, 1.0, -1.0)
    return np.asarray(np.where(units[1] < 0.25, chosen, np.where(units[1] < 0.75, chosen + off, (chosen + other) / 2)))


Reach = Callable[[Array, Array], Array]  # rows [rows, elements] in float64, targets [rows, 1]


def _reach_norm(rows: Array, target: Array) -> Array:
    return np.asarray(rows * (target / np.sqrt((rows * rows).sum(axis=1, keepdims=True))))


def _reach_spread(rows: Array, target: Array) -> Array:
    mean = rows.mean(axis=1, keepdims=True)
    return np.asarray(mean + (rows - mean) * (target / rows.std(axis=1, keepdims=True)))


REACHES: tuple[tuple[str, Reach], ...] = (
    ("sum", lambda rows, target: rows + (target - rows.sum(axis=1, keepdims=True)) / rows.shape[1]),
    ("mean", lambda rows, target: rows + (target - rows.mean(axis=1, keepdims=True))),
    ("largest", lambda rows, target: rows + (target - rows.max(axis=1, keepdims=True))),
    ("smallest", lambda rows, target: rows + (target - rows.min(axis=1, keepdims=True))),
    ("magnitude", lambda rows, target: rows * (target / np.abs(rows).max(axis=1, keepdims=True))),
    ("norm", _reach_norm),
    ("deviation", _reach_spread),
)


def reaching(rows: Array, constants: Sequence[float], rng: Rng) -> Array:
    """Return rows [rows, elements], floats or integers, of which a statistic of each lies at or near a constant."""
    target = targets(constants, len(rows), rng)[:, None]
    if rows.dtype.kind in "iu":  # one element makes up the sum
        changed = rows.copy()
        place = rng.numpy.integers(0, rows.shape[1], (len(rows), 1))
        with np.errstate(over="ignore"):
            rest = rows.sum(axis=1, keepdims=True) - np.take_along_axis(rows, place, 1)
            wanted = np.clip(np.round(target), -(2.0**62), 2.0**62).astype(np.int64) - rest
        np.put_along_axis(changed, place, wanted, 1)
        return changed
    _, reach = rng.pick(REACHES)
    wide = rows.astype(np.float64)
    made = reach(wide, target)
    return np.where(np.isfinite(made), made, wide).astype(rows.dtype)


def multiples(shape: tuple[int, int], units: Sequence[float], rng: Rng) -> Array:
    """Draw rows of multiples and half multiples of a unit each, around zero or where a quantizer saturates.

    Its zero point is not known here: some rows hold halves from all over a byte's reach.
    """
    rows = shape[0]
    which = rng.numpy.random((3, rows, 1))
    unit = np.asarray(units, np.float64)[(which[0] * len(units)).astype(np.int64)]
    edge = _EDGES[(which[1] * len(_EDGES)).astype(np.int64)]
    halves = edge + rng.numpy.integers(-9, 10, shape) / 2.0
    anywhere = which[2] < _ANYWHERE
    if anywhere.any():
        halves = np.where(anywhere, rng.numpy.integers(-2 * _REACH, 2 * _REACH, shape) / 2.0, halves)
    return np.asarray(unit * halves)


def _in_rows(array: Array, rng: Rng) -> Array:
    """Return an array that has elements as rows: all of it, along its first axis, or along its last."""
    draw = rng.unit()
    width = array.size if draw < 0.5 or not array.ndim else array.shape[-1] if draw < 0.7 else array[0].size
    return array.reshape(-1, width)


def _reach_constant(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Bring a statistic of one input, or of each of its rows, to a constant."""
    index = numeric_input(scene, draft, rng)
    if index is None or not scene.domains[index].constants:
        return None
    constants = scene.domains[index].constants

    def values(x: Array) -> Any:
        return reaching(_in_rows(x, rng), constants, rng).reshape(x.shape)

    return filled_with(scene, draft, index, values)


def _whole_multiples(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    index = float_input(scene, draft, rng)
    if index is None:
        return None
    return filled_with(scene, draft, index, lambda x: multiples((1, x.size), scene.units, rng).reshape(x.shape))


def _one_constant_row(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Make one slice of an input hold a single value: its deviation is zero, its order is all ties."""
    index = numeric_input(scene, draft, rng)
    if index is None or draft[index].ndim == 0:
        return None
    array = draft[index].copy()
    rows = array.reshape(-1, array.shape[-1])
    row = rng.below(len(rows))
    rows[row] = rows[row, 0]
    return exchange(draft, index, rows.reshape(array.shape))


THRESHOLDS = (
    Mutator("reach a constant", "value", 1.5, _reach_constant, ("float", "int")),
    Mutator("multiples of a unit", "value", 0.7, _whole_multiples, ("float",)),
    Mutator("one constant row", "local", 0.5, _one_constant_row, ("float", "int")),
)
