"""Weighing: what the draws say about one differing output, gathered at the elements that differ.

The idea: only offending elements are looked at, and only maxima and "was reached" flags are kept, so that a draw is
forgotten as soon as it was observed. One class for each kind of difference: `numeric`, `reach`, `nonfinite`.
"""

from __future__ import annotations

import numpy as np

from fuzzparity.case import Array
from fuzzparity.oracle.question import Answer, Flags, Question

OVERFLOW_MARGIN = 8.0  # an intermediate this close to the largest float overflows in a sound formulation as well
ELSEWHERE = "these distances are at"  # begins the note of evidence on another element than the one told as the worst
OUT_OF_RANGE = "an intermediate leaves the range of the working precision"
SOURCE = "torch float64"  # who gives the exact answer where nobody says otherwise


class Weighing:
    """Hold what is common: where the sides differ, and whether each side's answer was reached there."""

    is_decision = False
    may_be_tie = False
    wants_peak = False

    def __init__(self, question: Question, exact: Array) -> None:
        """Start with what the exact answer itself says."""
        self.question = question
        self.exact_shape = exact.shape
        self.at = question.offending()
        self.overflows, self.is_extreme = False, False
        self.is_wider = True  # the referee's range is wider than the working precision's
        self.source = SOURCE  # who gave the exact answer
        self.is_unmoved = False  # it comes from integers alone, so that no draw says more than the first

    @property
    def is_settled(self) -> bool:
        """Tell whether no further draw can change the answer."""
        raise NotImplementedError

    def observe(self, test: str, outputs: tuple[Array, ...], change: float = 0.0) -> None:
        """Take in the outputs of one draw; an output of another shape says nothing about single elements.

        `change`: how far the draw moved the inputs, relative to their largest |value|; 0.0 where it moved none.
        """
        output = outputs[self.question.position]
        if output.shape == self.exact_shape:
            self._take(test, output, change)

    @property
    def may_jump(self) -> bool:
        """Tell whether a settled answer may be an order of equal values rather than rounding."""
        return False

    @property
    def wants_more_rounded(self) -> bool:
        """Tell whether further roundings may well reach what those so far did not."""
        return False

    @property
    def may_step(self) -> bool:
        """Tell whether the answer may lie on one side of a threshold, which is weighed by larger draws."""
        return self.is_decision

    def set_overflow(self, overflows: bool, *, is_extreme: bool) -> None:
        """Learn whether torch's own formulation comes near the largest float.

        `is_extreme`: squares of its values do, so that operators may overflow inside (norms, variances).
        """
        self.overflows, self.is_extreme = overflows, is_extreme

    def _out_of_range(self, torch_far: Flags, ort_far: Flags) -> Flags:
        """Return where an overflow explains a far side: torch's own, and ORT's only where torch comes near it."""
        may_overflow_inside = self.overflows or self.is_extreme
        excused: Flags = (torch_far & may_overflow_inside) | (ort_far & (self.overflows and self.is_extreme))
        return excused

    def is_given_by(self, outputs: tuple[Array, ...]) -> bool:
        """Tell whether these outputs are the answer of a far side wherever it is far."""
        return False

    def flipped(self, outputs: tuple[Array, ...]) -> Flags:
        """Return at which differing elements these outputs give the answer that the exact one does not."""
        return np.zeros(self.at.shape, dtype=np.bool_)

    @property
    def flips_by_order(self) -> bool:
        """Tell whether equal values in another order gave the answer that the exact one does not."""
        return False

    def answer(self, count: int) -> Answer:
        """Return the answer after all draws."""
        raise NotImplementedError

    def _take(self, test: str, output: Array, change: float) -> None:
        raise NotImplementedError
