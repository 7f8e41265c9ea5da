"""Spread: how far the exact answer of a whole output moves, and what follows for its reader.

The idea: the largest relative move over the relative change of the inputs is a condition number as seen on this data,
and the smallest tolerance over 8 moves is the one that can be defended for it. Neither decides anything.
"""

from __future__ import annotations

import math

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.oracle.compare import as_float64, largest_finite, root_mean_square
from fuzzparity.oracle.question import MOVES, Wide, difference

_SLACK = 1.0 + 1e-6  # an allowance may be computed in float32, whose rounding must not push a covered error over it


class Spread:
    """Gather the largest move of every element of one output."""

    def __init__(self, exact: Array) -> None:
        """Start from the exact answer, any shape."""
        self._exact = as_float64(exact).reshape(-1)
        self._largest = largest_finite(np.abs(self._exact))
        self.move = np.zeros(self._exact.shape)
        self.condition: float | None = None

    def take(self, values: Wide, change: float) -> None:
        """Take in the flat answer to one draw, whose inputs changed by `change` of their largest |value|."""
        move = difference(values, self._exact)
        move[~np.isfinite(move)] = 0.0  # beyond the edge of a domain: says nothing about size
        np.maximum(self.move, move, out=self.move)
        if change > 0.0 and self._largest > 0.0:
            seen = float(move.max(initial=0.0)) / self._largest / change
            self.condition = max(self.condition or 0.0, seen)

    def tolerance(self, expected: Array, actual: Array) -> tuple[float, float] | None:
        """Return (rtol, atol), one of them 0, that covers 8 moves and the sides' difference at every element.

        The form is the one that allows less at an element of average size. None where nothing finite covers them.
        """
        torch, ort = as_float64(expected).reshape(-1), as_float64(actual).reshape(-1)
        if torch.shape != self.move.shape:
            return None
        needed = np.maximum(MOVES * self.move, difference(torch, ort)) * _SLACK
        atol = float(needed.max(initial=0.0))
        if not 0.0 < atol < math.inf:
            return None
        rows = needed > 0.0
        with np.errstate(all="ignore"):
            rtol = float((needed[rows] / np.abs(torch[rows])).max())
        size = root_mean_square(torch)
        if min(rtol, atol / size if size else math.inf) >= 1.0:
            return None  # it would let the whole output pass
        if rtol * size < atol:
            return one_digit_up(rtol), 0.0
        return 0.0, one_digit_up(atol)


def one_digit_up(value: float) -> float:
    """Return a positive finite number rounded up to one significant digit."""
    exponent = math.floor(math.log10(value))
    digit = max(1, math.floor(value / 10.0**exponent)) if exponent > -300 else 1
    while float(f"{digit}e{exponent}") < value:
        digit += 1
    return float(f"{digit}e{exponent}")


def relative_change(case: Case, moved: Case) -> float:
    """Return the largest change of a float input over that input's largest |value|; 0.0 where nothing changed."""
    found = 0.0
    for name, array in case.inputs.items():
        if not (is_float(array.dtype) or array.dtype.kind == "c"):
            continue
        one, other = (as_float64(x).reshape(-1) for x in (array, moved.inputs[name]))
        largest = largest_finite(np.abs(one))
        if largest > 0.0:
            found = max(found, largest_finite(difference(one, other)) / largest)
    return found
