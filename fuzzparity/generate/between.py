"""Between: the cases that lie between two others, down to neighbouring floats, and those some ulps around them.

The idea: floats ordered by their bits are integers, neighbours one apart; with that order the middle of two floats
reaches zero and tiny values as soon as any other, and a step of so many ulps is an addition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.generate.rng import Rng

ULPS = (1, 2, 4, 8)
_SINGLE_STEPS = 8  # cases with one element moved
_MIXED_STEPS = 8  # cases with every element moved its own way


def joins(start: Case, end: Case) -> bool:
    """Tell whether cases lie between two: one form, finite, and numbers that differ."""
    if start.shapes != end.shapes or not (start.is_finite and end.is_finite):
        return False
    pairs = [(array, end.inputs[name]) for name, array in start.inputs.items()]
    if any(one.dtype != other.dtype or (one.dtype.kind == "V" and not is_float(one.dtype)) for one, other in pairs):
        return False
    return any(one.dtype.kind != "b" and not same(one, other) for one, other in pairs)


def middle(low: Case, high: Case, *, by_bits: bool = False) -> Case | None:
    """Return the case half-way between two, rounded to the inputs' dtypes; None where nothing lies between them.

    `by_bits`: half-way in the order of the floats themselves, which reaches zero and tiny values as soon as others.
    Where each element is at most one step from its neighbour, half of those that differ go over.
    """
    inputs = {name: _middle(array, high.inputs[name], by_bits) for name, array in low.inputs.items()}
    case = Case(inputs)
    if not (_is_same_case(case, low) or _is_same_case(case, high)):
        return case
    return _half_over(low, high)


def _middle(low: Array, high: Array, by_bits: bool) -> Array:
    if low.dtype.kind == "b" or same(low, high):
        return low
    if by_bits and is_float(low.dtype):
        one, other = _ordered(low), _ordered(high)
        # the mean of two integers without their sum, which may not fit
        return _unordered((one & other) + ((one ^ other) >> 1), low.dtype)
    wide = np.complex128 if low.dtype.kind == "c" else np.float64
    moved = low.astype(wide) * 0.5 + high.astype(wide) * 0.5
    if low.dtype.kind in "iu":  # of integers beyond 2^53 only the leading digits are met; the last ones by going over
        moved = np.rint(moved)
        return moved.astype(low.dtype) if np.abs(moved).max() < 2.0**53 else low
    with np.errstate(all="ignore"):
        return moved.astype(low.dtype)


def _half_over(low: Case, high: Case) -> Case | None:
    """Return a case with half of the elements that differ taken from the other one, None where only one does."""
    flat = {name: np.flatnonzero(_differing(array, high.inputs[name])) for name, array in low.inputs.items()}
    left = sum(places.size for places in flat.values()) // 2
    if not left:
        return None
    inputs = dict(low.inputs)
    for name, places in flat.items():
        taken = places[:left]
        left -= taken.size
        if taken.size:
            array = low.inputs[name].copy(order="C")
            array.reshape(-1)[taken] = high.inputs[name].reshape(-1)[taken]
            inputs[name] = array
    return Case(inputs)


def _differing(one: Array, other: Array) -> Array:
    """Return where two arrays differ, signs of zero included."""
    differs: Array = one != other
    return differs | (np.signbit(_real(one)) != np.signbit(_real(other))) if is_float(one.dtype) else differs


def _real(array: Array) -> Array:
    return array.astype(np.float64)


def _ordered(array: Array) -> Array:
    """Return the bits of floats as integers in the same order, neighbours one apart; both zeros are 0."""
    integer = np.dtype(f"i{array.dtype.itemsize}")
    bits = np.ascontiguousarray(array).view(integer).reshape(array.shape)
    return np.where(bits < 0, np.iinfo(integer).min - bits, bits).astype(integer)


def _unordered(ordered: Array, dtype: np.dtype[Any]) -> Array:
    bits = np.where(ordered < 0, np.iinfo(ordered.dtype).min - ordered, ordered).astype(ordered.dtype)
    return bits.view(dtype)


def same(one: Array, other: Array) -> bool:
    """Tell whether two arrays hold the same bytes."""
    return one.tobytes() == other.tobytes()


def _is_same_case(one: Case, other: Case) -> bool:
    return all(same(array, other.inputs[name]) for name, array in one.inputs.items())


# Steps of some ulps


def steps_around(low: Case, high: Case, rng: Rng, fixed: frozenset[str] = frozenset()) -> Iterator[Case]:
    """Yield cases some ulps to both sides of a boundary, which lies between two neighbouring cases.

    All elements first, away from the boundary on either side; then every element its own way; then single ones.
    `fixed`: inputs that stay as they are.
    """
    away = {
        name: np.sign(_real(high.inputs[name]) - _real(array))
        for name, array in _steppable(low).items()
        if name not in fixed
    }
    if not away:
        return
    for count in ULPS:
        # an element that is alike in both moves up: which way is away from the boundary is not known of it
        yield stepped(high, {name: np.where(way == 0, 1.0, way) * count for name, way in away.items()})
        yield stepped(low, {name: np.where(way == 0, -1.0, -way) * count for name, way in away.items()})
    for turn in range(_MIXED_STEPS):
        count = ULPS[turn // 2 % len(ULPS)]
        moves = {name: rng.integers(-count, count, way.shape).astype(np.float64) for name, way in away.items()}
        yield stepped((low, high)[turn % 2], moves)
    names = [name for name, way in away.items() if way.size]
    for turn in range(_SINGLE_STEPS if names else 0):
        name = rng.pick(names)
        move = np.zeros(away[name].size)
        move[rng.below(move.size)] = rng.sign() * rng.pick(ULPS)
        yield stepped((low, high)[turn % 2], {name: move.reshape(away[name].shape)})


def _steppable(case: Case) -> dict[str, Array]:
    """Return the inputs that have a next value in the order of their bits."""
    return {
        name: array for name, array in case.inputs.items() if array.dtype.kind in "f" or array.dtype.name == "bfloat16"
    }


def stepped(case: Case, moves: dict[str, Array]) -> Case:
    """Return a case with elements moved by whole numbers of ulps; zeros, and what would not be finite, stay."""
    inputs = dict(case.inputs)
    for name, move in moves.items():
        inputs[name] = _stepped(case.inputs[name], move)
    return Case(inputs)


def _stepped(array: Array, move: Array) -> Array:
    ordered = _ordered(array)
    moved = _unordered((ordered + move.astype(ordered.dtype)).astype(ordered.dtype), array.dtype)
    with np.errstate(all="ignore"):
        kept = ~np.isfinite(_real(moved)) | (_real(array) == 0.0)
    return np.where(kept, array, moved).astype(array.dtype)
