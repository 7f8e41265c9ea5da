"""Question: what is asked of evidence about one differing output, and what it answers.

The idea: a question holds both sides' values and the bounds within which arithmetic always explains a difference; who
weighs it never needs to know where it came from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array
from fuzzparity.oracle.compare import Allowance, as_float64, as_integers, largest_finite
from fuzzparity.oracle.policy import DEFAULTS, precision
from fuzzparity.verdict import Evidence, Grade, Kind

MOVES = 8.0  # a side is far beyond this many moves of the exact answer: DESIGN, "Evidence"

Wide = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Question:
    """Ask whether arithmetic explains an output that differs beyond `allowance`; within `default` it always does."""

    position: int  # among the outputs
    kind: Kind
    expected: Array
    actual: Array
    allowance: Allowance
    default: Allowance
    working_dtype: str
    is_relative: bool = False  # asked by the relative look: then without the rounding test nothing is an alarm
    material: Allowance | None = None  # what a numeric error must exceed to be more than a note

    def offending(self) -> npt.NDArray[np.intp]:
        """Return the flat indices (by parts for complex numbers) at which the sides differ beyond the screen."""
        if self.kind is Kind.SHAPE:
            return np.zeros(1, dtype=np.intp)  # one answer for the whole output
        if self.kind is Kind.DECISION:
            return np.flatnonzero(as_integers(self.expected).reshape(-1) != as_integers(self.actual).reshape(-1))
        e, a = as_float64(self.expected).reshape(-1), as_float64(self.actual).reshape(-1)
        if self.kind is Kind.NONFINITE:
            return np.flatnonzero(pattern(e) != pattern(a))
        return np.flatnonzero(difference(e, a) > self.allowance.at(np.abs(e), largest_finite(np.abs(e))))

    def exceeds(self, rtol: float, scale: float) -> bool:
        """Tell whether some element differs by more than `rtol` of itself plus `scale` of the largest.

        Both grow to 8 times assert_close's rtol where the working dtype is coarser than float32.
        """
        least = MOVES * DEFAULTS.get(self.working_dtype, (precision(self.working_dtype).eps, 0.0))[0]
        e, a = as_float64(self.expected).reshape(-1), as_float64(self.actual).reshape(-1)
        magnitude = np.abs(e)
        bound = max(rtol, least) * magnitude + max(scale, least) * largest_finite(magnitude) + self.default.atol
        return bool((difference(e, a) > bound).any())


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a question: grade, the side at fault where it is plain, blame where evidence gives it."""

    grade: Grade
    evidence: Evidence
    side: str = ""
    blame: str = "unknown"


def pattern(values: Wide) -> npt.NDArray[np.int8]:
    """Return 0 for finite values, 1 for NaN, 2 for +Inf, 3 for -Inf."""
    return np.select([np.isnan(values), values == np.inf, values == -np.inf], [1, 2, 3], 0).astype(np.int8)


def difference(one: Wide, other: Wide) -> Wide:
    """Return |one - other|, 0 where both are the same infinity; NaN becomes infinity, so that it is never near."""
    with np.errstate(all="ignore"):
        difference: Wide = np.abs(one - other)
    difference[one == other] = 0.0
    difference[np.isnan(difference)] = np.inf
    return difference
