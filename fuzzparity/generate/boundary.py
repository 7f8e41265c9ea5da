"""Boundary: cases at the place where a decision of a model falls the other way.

The idea: two inputs on which a decision falls differently have a boundary between them. Halving what lies between, in
float64 and rounded to the inputs' own dtypes, reaches neighbouring floats in some thirty steps; there, a few ulps to
either side, rounding alone decides, and so does a threshold that one side has elsewhere. A search is a coroutine: it
yields a case and is sent what both sides did with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, Case, is_finite, is_float
from fuzzparity.decisions import Threshold, outcomes
from fuzzparity.execution import Execution
from fuzzparity.generate.between import middle, same, steps_around
from fuzzparity.generate.rng import Rng

Pair = tuple[Execution, Execution]
# the margin of a threshold on a case and its gradient by each float input; None where it is not met
Toward = Callable[[Case, Threshold], tuple[float, Mapping[str, Array]] | None]

MOST_HALVINGS = 96  # float32 takes some 30, float64 60, and one more for each doubling of the elements that move
_BY_BITS_AFTER = 16  # halvings: then two ends lie near each other, but for what is on its way to zero
_ENOUGH_SPLITS = 2  # cases on which the sides decide differently, after which the steps end
_JUMP_AFTER = 7  # halvings, before what goes on shrinking is taken for no jump
_LOOK_BACK = 4
_LEAST_OF_JUMP = 0.25  # of what stood out that many halvings ago: at a kink it would be a sixteenth
_ROUNDING = 2.0**-16  # of the largest value: what no longer stands out from the rounding of float32
_WIDEST_ROW = 4096
_OVERSHOOT = 1.5  # times a Newton step
_MOST_APPROACHES = 12  # steps


@dataclass(frozen=True)
class Probe:
    """Read one decision of one side, 0 torch and 1 ORT. `key` names it in counts; `of` gives its outcome.

    `of_case` gives it where no run of a side tells. Without either an output of floats is looked at, which may jump.
    """

    key: str
    of: Callable[[Execution], Hashable] | None = None
    side: int = 0
    output: int = 0
    of_case: Callable[[Case], Hashable] | None = None

    @property
    def is_jump(self) -> bool:
        """Tell whether no outcome is known, only an output that changes."""
        return self.of is None and self.of_case is None

    def outcome(self, case: Case, pair: Pair) -> Hashable:
        """Return what was decided; how the side ended where it gave no answer."""
        if self.of_case is not None:
            return self.of_case(case)
        execution = pair[self.side]
        if self.of is None or not execution.is_ok:
            return execution.status.value
        return self.of(execution)

    def values(self, pair: Pair) -> Array | None:
        """Return the output of floats that may jump, in float64; None where the side gave no answer."""
        execution = pair[self.side]
        return execution.outputs[self.output].astype(np.float64) if execution.is_ok else None


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
        if not same(a, b) and is_finite(a) and is_finite(b):
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


def search(
    start: Case, end: Case, probe: Probe, ends: tuple[Pair, Pair], rng: Rng, fixed: frozenset[str] = frozenset()
) -> Search:
    """Return the search for the boundary of a decision between two cases, which `ends` are the answers to.

    `fixed`: inputs that are no part of it. It ends where no boundary is found, after steps to both sides of it, or with
    the second step that is suspicious.
    """
    narrow = _narrow_jump if probe.is_jump else _narrow_outcome
    found = yield from narrow(probe, _Met(start, ends[0]), _Met(end, ends[1]))
    if found is None:
        return
    splits = 0
    for case in steps_around(found[0].case, found[1].case, rng, fixed):
        shown = yield case
        splits += shown.is_suspicious
        if splits >= _ENOUGH_SPLITS:
            return


_Narrowed = Generator[Case, Shown, tuple[_Met, _Met] | None]


def _narrow_outcome(probe: Probe, low: _Met, high: _Met) -> _Narrowed:
    """Halve the line by whether the outcome is still that of its start; a refusal is an outcome as well."""
    start = probe.outcome(low.case, low.pair)
    for turn in range(MOST_HALVINGS):
        case = middle(low.case, high.case, by_bits=turn >= _BY_BITS_AFTER)
        if case is None:
            break
        shown = yield case
        if probe.outcome(case, shown.pair) == start:
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


# Towards a decision that came out one way only


def approach(
    case: Case,
    threshold: Threshold,
    toward: Toward,
    confined: Callable[[Case], Case],
    rng: Rng,
    fixed: frozenset[str] = frozenset(),
) -> Search:
    """Return the search that first goes along a threshold's gradient until its margin changes sign.

    `confined` puts a case that was moved back into its bounds. The search ends at once where the sign does not change.
    Both ends run as well: they are cases like others.
    """
    ends = _crossed(case, threshold, toward, confined)
    if ends is None:
        return
    first = yield ends[0]
    second = yield ends[1]
    probe = Probe(threshold.key, of_case=lambda one: _is_above(toward(one, threshold)))
    yield from search(*ends, probe, (first.pair, second.pair), rng, fixed)


def _is_above(found: tuple[float, Mapping[str, Array]] | None) -> bool | None:
    return None if found is None else found[0] > 0.0


def _crossed(
    case: Case, threshold: Threshold, toward: Toward, confined: Callable[[Case], Case]
) -> tuple[Case, Case] | None:
    """Return two cases on the two sides of a threshold, by Newton steps that overshoot more and more.

    A step after which the margin is no smaller is taken back, and the next one is a quarter of it.
    """
    found, reach = toward(case, threshold), _OVERSHOOT
    for _ in range(_MOST_APPROACHES):
        if found is None or not found[1] or found[0] == 0.0:
            return None
        moved = _newton(case, *found, reach)
        if moved is None:
            return None
        moved = confined(moved)
        after = toward(moved, threshold)
        if after is not None and (after[0] > 0.0) != (found[0] > 0.0):
            return case, moved
        if after is not None and abs(after[0]) < abs(found[0]):
            case, found, reach = moved, after, reach * _OVERSHOOT
        else:
            reach /= 4.0
    return None


def _newton(case: Case, margin: float, gradients: Mapping[str, Array], reach: float) -> Case | None:
    """Return the case at which a linear margin would be zero for `reach` 1; None where that is not finite."""
    with np.errstate(all="ignore"):
        square = sum(float(np.sum(one * one)) for one in gradients.values())
        if not 0.0 < square < math.inf:
            return None
        moved = {
            name: (case.inputs[name].astype(np.float64) - reach * margin / square * one).astype(case.inputs[name].dtype)
            for name, one in gradients.items()
        }
    made = case.replace(**moved)
    return made if made.is_finite else None
