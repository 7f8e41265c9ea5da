"""Boundary: cases at the place where a decision of a model falls the other way.

The idea: two inputs on which a decision falls differently have a boundary between them. Halving what lies between, in
float64 and rounded to the inputs' own dtypes, reaches neighbouring floats in some thirty steps; there, a few ulps to
either side, rounding alone decides, and so does a threshold that one side has elsewhere. A search is a coroutine: it
yields a case and is sent what both sides did with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, Case, is_finite, is_float
from fuzzparity.decisions import outcomes
from fuzzparity.execution import Execution
from fuzzparity.generate.rng import Rng

Pair = tuple[Execution, Execution]

MOST_HALVINGS = 96  # float32 takes some 30, float64 60, and one more for each doubling of the elements that move
_BY_BITS_AFTER = 16  # halvings: then two ends lie near each other, but for what is on its way to zero
ULPS = (1, 2, 4, 8)
_SINGLE_STEPS = 8  # cases with one element moved
_MIXED_STEPS = 8  # cases with every element moved its own way
_ENOUGH_SPLITS = 2  # cases on which the sides decide differently, after which the steps end
_JUMP_AFTER = 7  # halvings, before what goes on shrinking is taken for no jump
_LOOK_BACK = 4
_LEAST_OF_JUMP = 0.25  # of what stood out that many halvings ago: at a kink it would be a sixteenth
_ROUNDING = 2.0**-16  # of the largest value: what no longer stands out from the rounding of float32
_WIDEST_ROW = 4096


@dataclass(frozen=True)
class Probe:
    """Read one decision of one side, 0 torch and 1 ORT. `key` names it in counts; `of` gives its outcome.

    Without `of` an output of floats is looked at, which may jump somewhere.
    """

    key: str
    of: Callable[[Execution], Hashable] | None = None
    side: int = 0
    output: int = 0

    @property
    def is_jump(self) -> bool:
        """Tell whether no outcome is known, only an output that changes."""
        return self.of is None

    def outcome(self, pair: Pair) -> Hashable:
        """Return what was decided; how the side ended where it gave no answer."""
        execution = pair[self.side]
        if self.of is None or not execution.is_ok:
            return execution.status.value
        return self.of(execution)

    def values(self, pair: Pair) -> Array | None:
        """Return the output of floats that may jump, in float64; None where the side gave no answer."""
        execution = pair[self.side]
        return execution.outputs[self.output].astype(np.float64) if execution.is_ok else None


# Between two cases


def joins(start: Case, end: Case) -> bool:
    """Tell whether cases lie between two: one form, finite, and numbers that differ."""
    if start.shapes != end.shapes or not (start.is_finite and end.is_finite):
        return False
    pairs = [(array, end.inputs[name]) for name, array in start.inputs.items()]
    if any(one.dtype != other.dtype or (one.dtype.kind == "V" and not is_float(one.dtype)) for one, other in pairs):
        return False
    return any(one.dtype.kind != "b" and not _same(one, other) for one, other in pairs)


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
    if low.dtype.kind == "b" or _same(low, high):
        return low
    if by_bits and is_float(low.dtype):
        one, other = _ordered(low), _ordered(high)
        # the mean of two integers without their sum, which may not fit
        return _unordered((one & other) + ((one ^ other) >> 1), low.dtype)
    wide = np.complex128 if low.dtype.kind == "c" else np.float64
    moved = low.astype(wide) * 0.5 + high.astype(wide) * 0.5
    if low.dtype.kind in "iu":  # of integers beyond 2^53 only the leading digits are met; the last ones by going over
        moved = np.rint(moved)
        fits = np.abs(moved) < 2.0**53
        return np.where(fits, moved, 0.0).astype(low.dtype) if fits.all() else low
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


def _same(one: Array, other: Array) -> bool:
    return one.tobytes() == other.tobytes()


def _is_same_case(one: Case, other: Case) -> bool:
    return all(_same(array, other.inputs[name]) for name, array in one.inputs.items())


# What decides


def probes(first: Pair, second: Pair, names: tuple[str, ...], rng: Rng, *, of_rows: bool = False) -> Iterator[Probe]:
    """Yield what decided differently on two cases of one form, the most telling first; one probe for each key.

    Decisions on the way come first (branches, loops), then sizes that depend on values, integers and truth values, then
    jumps of floats, then, where `of_rows`, which element of a row of floats is the largest.
    """
    one, other = first[0], second[0]
    if not (one.is_ok and other.is_ok and len(one.outputs) == len(other.outputs) == len(names)):
        return
    for side in (0, 1):
        yield from _decisions(first, second, side)
    for index, (a, b, name) in enumerate(zip(one.outputs, other.outputs, names, strict=True)):
        if a.shape != b.shape:
            yield Probe(f"size of {name}", _shape_of(index))
    same_form = [
        (index, a, b)
        for index, (a, b) in enumerate(zip(one.outputs, other.outputs, strict=True))
        if a.shape == b.shape and a.dtype == b.dtype and a.size
    ]
    for index, a, b in same_form:
        if a.dtype.kind in "biu" and (places := np.flatnonzero(a != b)).size:
            yield Probe(names[index], _element_of(index, int(rng.pick(places.tolist()))))
    floats = [(index, a, b) for index, a, b in same_form if is_float(a.dtype)]
    for index, a, b in floats:
        if not _same(a, b) and is_finite(a) and is_finite(b):
            yield Probe(f"jump of {names[index]}", output=index)
    for index, a, b in floats if of_rows else ():
        if (found := _rows_that_differ(a, b)) is not None and found.size:
            yield Probe(f"largest of {names[index]}", _largest_of(index, int(rng.pick(found.tolist()))))


def _decisions(first: Pair, second: Pair, side: int) -> Iterator[Probe]:
    """Yield the decisions on a side's way that came out otherwise; what one leads to is met in one run only."""
    before, after = outcomes(first[side].decisions), outcomes(second[side].decisions)
    for key, outcome in before.items():
        if after.get(key, outcome) != outcome:
            yield Probe(key, _decision_of(key), side)


def _decision_of(key: str) -> Callable[[Execution], Hashable]:
    return lambda execution: outcomes(execution.decisions).get(key)


def _shape_of(index: int) -> Callable[[Execution], Hashable]:
    return lambda execution: execution.outputs[index].shape


def _element_of(index: int, place: int) -> Callable[[Execution], Hashable]:
    def read(execution: Execution) -> Hashable:
        output = execution.outputs[index]
        value: Hashable = output.reshape(-1)[place].item() if place < output.size else None
        return value

    return read


def _largest_of(index: int, row: int) -> Callable[[Execution], Hashable]:
    def read(execution: Execution) -> Hashable:
        output = execution.outputs[index]
        if output.ndim == 0 or (row + 1) * output.shape[-1] > output.size:
            return None
        return int(output.reshape(-1, output.shape[-1])[row].astype(np.float64).argmax())

    return read


def _rows_that_differ(a: Array, b: Array) -> npt.NDArray[np.intp] | None:
    if a.ndim == 0 or not 1 < a.shape[-1] <= _WIDEST_ROW:
        return None
    one, other = (x.reshape(-1, x.shape[-1]).astype(np.float64) for x in (a, b))
    return np.flatnonzero(one.argmax(axis=1) != other.argmax(axis=1))


# The search


@dataclass(frozen=True)
class Shown:
    """Say what a case showed: what both sides did, and whether the oracle wants a closer look."""

    pair: Pair
    is_suspicious: bool = False


Search = Generator[Case, Shown, None]


@dataclass(frozen=True)
class _Met:
    """Hold a case of a line and what the sides did with it."""

    case: Case
    pair: Pair


def search(start: Case, end: Case, probe: Probe, ends: tuple[Pair, Pair], rng: Rng) -> Search:
    """Return the search for the boundary of a decision between two cases, which `ends` are the answers to.

    It ends where no boundary is found, after steps to both sides of it, or with the second step that is suspicious.
    """
    narrow = _narrow_jump if probe.is_jump else _narrow_outcome
    found = yield from narrow(probe, _Met(start, ends[0]), _Met(end, ends[1]))
    if found is None:
        return
    splits = 0
    for case in steps_around(found[0].case, found[1].case, rng):
        shown = yield case
        splits += shown.is_suspicious
        if splits >= _ENOUGH_SPLITS:
            return


_Narrowed = Generator[Case, Shown, tuple[_Met, _Met] | None]


def _narrow_outcome(probe: Probe, low: _Met, high: _Met) -> _Narrowed:
    """Halve the line by whether the outcome is still that of its start; a refusal is an outcome as well."""
    start = probe.outcome(low.pair)
    for turn in range(MOST_HALVINGS):
        case = middle(low.case, high.case, by_bits=turn >= _BY_BITS_AFTER)
        if case is None:
            break
        shown = yield case
        if probe.outcome(shown.pair) == start:
            low = _Met(case, shown.pair)
        else:
            high = _Met(case, shown.pair)
    return low, high


def _narrow_jump(probe: Probe, low: _Met, high: _Met) -> _Narrowed:
    """Halve the line by which half changes some element more than the other half does; None where none stands out.

    What stands out shrinks with the halves where the output is smooth, or has a kink, and stays where it jumps.
    """
    excesses: list[float] = []
    for turn in range(MOST_HALVINGS):
        case = middle(low.case, high.case, by_bits=turn >= _BY_BITS_AFTER)
        if case is None:
            break
        shown = yield case
        excess = _excess(*(probe.values(pair) for pair in (low.pair, shown.pair, high.pair)))
        if excess is None:
            return None
        excesses.append(abs(excess))
        if len(excesses) > _JUMP_AFTER and excesses[-1] < _LEAST_OF_JUMP * excesses[-1 - _LOOK_BACK]:
            return None
        met = _Met(case, shown.pair)
        low, high = (met, high) if excess > 0.0 else (low, met)
    return low, high


def _excess(low: Array | None, between: Array | None, high: Array | None) -> float | None:
    """Return by how much the upper half changes one element more than the lower half does (negative: less).

    Of the element for which this is most; None where it is within rounding, or no number.
    """
    if low is None or between is None or high is None or not low.shape == between.shape == high.shape or not low.size:
        return None
    with np.errstate(all="ignore"):
        excess = (np.abs(high - between) - np.abs(between - low)).reshape(-1)
        size = float(np.abs(between).max())
    place = int(np.abs(excess).argmax())
    found = float(excess[place])
    return found if math.isfinite(found) and abs(found) > _ROUNDING * size else None


# Steps of some ulps


def steps_around(low: Case, high: Case, rng: Rng) -> Iterator[Case]:
    """Yield cases some ulps to both sides of a boundary, which lies between two neighbouring cases.

    All elements first, away from the boundary on either side; then every element its own way; then single ones.
    """
    away = {name: np.sign(_real(high.inputs[name]) - _real(array)) for name, array in _steppable(low).items()}
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
