"""Boundary: cases at the place where a decision of a model falls the other way.

The idea: two inputs on which a decision falls differently have a boundary on the line between them. Halving that line,
each point cast to the inputs' own dtypes, reaches neighbouring floats in some thirty steps; there, a few ulps to either
side, rounding alone decides, and so does a threshold that one side has elsewhere. A search is a coroutine: it yields a
case and is sent what both sides did with it.
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

MOST_HALVINGS = 72  # float32 takes 24, one more for each doubling of the elements that move, and more towards zero
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


class Line:
    """Hold the cases between two of equal names, dtypes and shapes; inputs that are not numbers change half-way."""

    def __init__(self, start: Case, end: Case) -> None:
        """Join two cases; `is_between` tells whether that was possible."""
        self.start, self.end = start, end
        self._moving = {
            name: (_wide(array), _wide(end.inputs[name]))
            for name, array in start.inputs.items()
            if array.dtype.kind != "b" and not _same(array, end.inputs[name])
        }

    @staticmethod
    def joins(start: Case, end: Case) -> bool:
        """Tell whether two cases can be joined: one form, finite, and different in something."""
        if start.shapes != end.shapes or not (start.is_finite and end.is_finite):
            return False
        pairs = [(array, end.inputs[name]) for name, array in start.inputs.items()]
        if any(one.dtype != other.dtype or (one.dtype.kind == "V" and not is_float(one.dtype)) for one, other in pairs):
            return False
        return any(one.dtype.kind != "b" and not _same(one, other) for one, other in pairs)

    def at(self, place: float) -> Case:
        """Return the case at a place from 0.0 (start) to 1.0 (end), rounded to the inputs' dtypes."""
        inputs = {}
        for name, array in self.start.inputs.items():
            if name in self._moving:
                one, other = self._moving[name]
                moved = np.where(one == other, one, one * (1.0 - place) + other * place)
                inputs[name] = _narrow(moved, array.dtype)
            else:
                inputs[name] = array if place < 0.5 else self.end.inputs[name]
        return Case(inputs)


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _narrow(moved: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        whole = np.rint(moved)
        # 2^63 is a float64 and no int64: the largest values are given as they are
        return np.where(whole >= limits.max, limits.max, whole).astype(dtype)
    with np.errstate(all="ignore"):
        return moved.astype(dtype)


def _same(one: Array, other: Array) -> bool:
    return one.tobytes() == other.tobytes()


def is_same_case(one: Case, other: Case) -> bool:
    """Tell whether two cases of one form hold the same bytes, without their digests."""
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
    """Hold a case of a line, where it lies, and what the sides did with it."""

    place: float
    case: Case
    pair: Pair


def search(line: Line, probe: Probe, ends: tuple[Pair, Pair], rng: Rng) -> Search:
    """Return the search for the boundary of a decision between the ends of a line, which `ends` are the answers to.

    It ends where no boundary is found, after steps to both sides of it, or with the second step that is suspicious.
    """
    low, high = _Met(0.0, line.start, ends[0]), _Met(1.0, line.end, ends[1])
    narrow = _narrow_jump if probe.is_jump else _narrow_outcome
    found = yield from narrow(line, probe, low, high)
    if found is None:
        return
    splits = 0
    for case in steps_around(found[0].case, found[1].case, rng):
        shown = yield case
        splits += shown.is_suspicious
        if splits >= _ENOUGH_SPLITS:
            return


_Narrowed = Generator[Case, Shown, tuple[_Met, _Met] | None]


def _halved(line: Line, low: _Met, high: _Met) -> Generator[Case, Shown, _Met | None]:
    """Run the middle of two, where that is a case of its own; None where no place lies between them."""
    place = (low.place + high.place) / 2.0
    if not low.place < place < high.place or is_same_case(low.case, high.case):
        return None
    case = line.at(place)
    for met in (low, high):
        if is_same_case(case, met.case):
            return _Met(place, met.case, met.pair)
    shown = yield case
    return _Met(place, case, shown.pair)


def _narrow_outcome(line: Line, probe: Probe, low: _Met, high: _Met) -> _Narrowed:
    """Halve the line by whether the outcome is still that of its start; a refusal is an outcome as well."""
    start = probe.outcome(low.pair)
    for _ in range(MOST_HALVINGS):
        middle = yield from _halved(line, low, high)
        if middle is None:
            break
        if probe.outcome(middle.pair) == start:
            low = middle
        else:
            high = middle
    return low, high


def _narrow_jump(line: Line, probe: Probe, low: _Met, high: _Met) -> _Narrowed:
    """Halve the line by which half changes some element more than the other half does; None where none stands out.

    What stands out shrinks with the halves where the output is smooth, or has a kink, and stays where it jumps.
    """
    excesses: list[float] = []
    for _ in range(MOST_HALVINGS):
        middle = yield from _halved(line, low, high)
        if middle is None:
            break
        excess = _excess(*(probe.values(met.pair) for met in (low, middle, high)))
        if excess is None:
            return None
        excesses.append(abs(excess))
        if len(excesses) > _JUMP_AFTER and excesses[-1] < _LEAST_OF_JUMP * excesses[-1 - _LOOK_BACK]:
            return None
        low, high = (middle, high) if excess > 0.0 else (low, middle)
    return low, high


def _excess(low: Array | None, middle: Array | None, high: Array | None) -> float | None:
    """Return by how much the upper half changes one element more than the lower half does (negative: less).

    Of the element for which this is most; None where it is within rounding, or no number.
    """
    if low is None or middle is None or high is None or not low.shape == middle.shape == high.shape or not low.size:
        return None
    with np.errstate(all="ignore"):
        excess = (np.abs(high - middle) - np.abs(middle - low)).reshape(-1)
        size = float(np.abs(middle).max())
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


def _real(array: Array) -> Array:
    return array.astype(np.float64)


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
    integer = np.dtype(f"i{array.dtype.itemsize}")
    bits = np.ascontiguousarray(array).view(integer).reshape(array.shape)
    least = np.iinfo(integer).min
    # negative floats order backwards by their bits: turned round, neighbours are one apart everywhere
    ordered = np.where(bits < 0, least - bits, bits) + move.astype(integer)
    moved = np.where(ordered < 0, least - ordered, ordered).astype(integer).view(array.dtype).reshape(array.shape)
    with np.errstate(all="ignore"):
        kept = ~np.isfinite(moved.astype(np.float64)) | (array.astype(np.float64) == 0.0)
    return np.where(kept, array, moved).astype(array.dtype)
