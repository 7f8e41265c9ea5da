"""Matching: torch's and ONNX's values paired by what they hold, for files that do not say where they come from.

The idea: values that are the same number for number, up to the noise of a graph, are the same value; what one run
computed and another did not is where they part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fuzzparity.blame.nodes import onnx_eps
from fuzzparity.case import Array, is_float
from fuzzparity.values import Event

_SAMPLED = 64  # numbers of a value that are looked at first
_SAME = 256.0  # eps of the largest |value|: noise grows along a graph, faults worth telling are larger


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
        self._by_size: dict[tuple[int, str], list[tuple[Array, Sample]]] = {}
        for event in events:
            for array in event.outputs:
                self._by_size.setdefault((array.size, array.dtype.kind), []).append((array, Sample.of(array)))

    def holds(self, array: Array) -> bool:
        """Tell whether torch had this value."""
        sample = Sample.of(array)
        alike = self._by_size.get((array.size, array.dtype.kind), ())
        return any(sample.may_be(other) and are_same(array, one) for one, other in alike)


@dataclass(frozen=True, slots=True)
class Sample:
    """Hold a few of a value's numbers: what differs in them is not the same, without a look at all of it."""

    numbers: npt.NDArray[np.float64]
    allowed: float  # distance at which two numbers of this value are still the same

    @classmethod
    def of(cls, array: Array) -> Sample:
        """Take numbers spread over a value."""
        flat = array.reshape(-1)
        step = max(1, flat.size // _SAMPLED)
        numbers = (
            flat[::step].astype(np.float64) if array.dtype.kind in "biuf" or is_float(array.dtype) else np.empty(0)
        )
        if not is_float(array.dtype):
            return cls(numbers, 0.0)
        with np.errstate(all="ignore"):
            wide = np.abs(flat if array.dtype.kind == "f" else flat.astype(np.float32))
            size = float(wide.max(initial=0.0, where=np.isfinite(wide)))
        return cls(numbers, _SAME * onnx_eps(array.dtype) * size)

    def may_be(self, other: Sample) -> bool:
        """Tell whether two values may hold the same numbers, as `are_same` has it."""
        if self.numbers.shape != other.numbers.shape:
            return False
        with np.errstate(all="ignore"):
            apart = np.abs(self.numbers - other.numbers) > self.allowed
        if apart.any():
            return False
        return bool((np.isnan(self.numbers) == np.isnan(other.numbers)).all())


def departure(eager: Sequence[Event], captured: Sequence[Event]) -> Iterator[tuple[int, Event]]:
    """Yield (place, event) of what the module computed and the captured program did not, in order."""
    book = _Book(captured)
    for place, event in enumerate(eager):
        floats = [array for array in event.outputs if array.size]
        if event.is_refused or (floats and not all(book.holds(array) for array in floats)):
            yield place, event
