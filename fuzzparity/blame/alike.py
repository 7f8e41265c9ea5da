"""Alike: in which way two answers of a cut differ, and by how much, so that a smaller one keeps to the same fault.

The idea: a fault is first a pattern (a shape, a type, NaN, an integer) and only then a size. What shrinks must keep the
pattern; a plain error must stay clear of rounding, and within reach of what it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fuzzparity.blame.nodes import local_error
from fuzzparity.case import Array, is_float

CLEAR = 64.0  # eps of the largest |value|: past the rounding of sums up to some thousands; the same as in `nodes`
LONG_CLEAR = 256.0  # of several nodes in a row: noise grows along a graph; the same as in `matching`
_KEPT = 16.0  # an error may shrink to this part of what it was: a change of the scale, no change of the subject


@dataclass(frozen=True, slots=True)
class Difference:
    """Say how two answers differ: `way` is "shape", "dtype", "nonfinite", "discrete", "numeric" or "" (not at all).

    `error`: the largest error over the largest |value|, in eps; infinite for all ways but "numeric".
    """

    way: str = ""
    error: float = 0.0

    def keeps(self, first: Difference) -> bool:
        """Tell whether it is still the fault that `first` was."""
        if self.way != first.way:
            return False
        return self.way != "numeric" or self.error >= max(CLEAR, min(first.error, 1e6) / _KEPT)


NONE = Difference()
_WAYS = ("shape", "dtype", "nonfinite", "discrete", "numeric", "")


def difference(expected: Sequence[Array], actual: Sequence[Array], clear: float = CLEAR) -> Difference:
    """Return how answers differ; numbers that differ by no more than `clear` eps of their largest do not."""
    if len(expected) != len(actual):
        return Difference("shape", float("inf"))
    found = [_of_one(np.asarray(e), np.asarray(a), clear) for e, a in zip(expected, actual, strict=True)]
    return min(found, key=lambda one: (_WAYS.index(one.way), -one.error), default=NONE)


def _of_one(expected: Array, actual: Array, clear: float) -> Difference:
    if expected.shape != actual.shape:
        return Difference("shape", float("inf"))
    if expected.dtype != actual.dtype:
        return Difference("dtype", float("inf"))
    error = local_error([expected], [actual])
    if not is_float(expected.dtype) and expected.dtype.kind != "c":
        return Difference("discrete", error) if error else NONE
    if error == float("inf"):
        with np.errstate(all="ignore"):
            finite = [
                np.isfinite(one.astype(np.complex128 if one.dtype.kind == "c" else np.float64))
                for one in (expected, actual)
            ]
        # an error over values that are all zero is no pattern
        return Difference("numeric" if finite[0].all() and finite[1].all() else "nonfinite", error)
    return Difference("numeric", error) if error > clear else NONE


def largest_errors(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> dict[str, float]:
    """Return the largest absolute error of each output, in its own units; infinite where it is no number."""
    found: dict[str, float] = {}
    for name, one in expected.items():
        other = actual[name]
        if one.shape != other.shape or one.dtype != other.dtype or not is_float(one.dtype):
            found[name] = 0.0
            continue
        left, right = one.astype(np.float64), other.astype(np.float64)
        with np.errstate(all="ignore"):
            same = (left == right) | (np.isnan(left) & np.isnan(right))
            gap = np.where(same, 0.0, np.abs(left - right))
        found[name] = float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))
    return found
