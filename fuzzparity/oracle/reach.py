"""Reach: weigh answers without a size (decisions, shapes) by which of them indistinguishable inputs give.

The idea: an answer that one draw reaches is one that arithmetic may give; one that no draw reaches is a fault.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fuzzparity.case import Array
from fuzzparity.execution import ORT, TORCH
from fuzzparity.oracle.compare import as_integers
from fuzzparity.oracle.draws import RAMP
from fuzzparity.oracle.question import Answer, Flags, Question
from fuzzparity.oracle.weighing import OUT_OF_RANGE, Weighing
from fuzzparity.verdict import Evidence, Grade


class ReachWeighing(Weighing):
    """Weigh answers that have no size (decisions, shapes): which of them indistinguishable inputs give."""

    is_decision = True
    may_be_tie = True
    is_whole = False  # one answer for the whole output

    def __init__(self, question: Question, exact: Array) -> None:
        super().__init__(question, exact)
        self.torch, self.ort = self._of(question.expected), self._of(question.actual)
        first = self._of(exact)
        self.exact_torch, self.exact_ort = first == self.torch, first == self.ort
        self.reached_torch, self.reached_ort = self.exact_torch.copy(), self.exact_ort.copy()
        self.by_order = np.zeros(self.reached_ort.shape, dtype=np.bool_)

    def _of(self, output: Array) -> Array:
        return as_integers(output).reshape(-1)[self.at]

    @property
    def is_settled(self) -> bool:
        """Tell whether no further draw can change the answer."""
        return self.is_unmoved or bool((self.reached_ort & (self.reached_torch | self.by_order)).all())

    @property
    def wants_more_rounded(self) -> bool:
        """Tell whether most of several differing elements need no further draw: then the others may by more of them."""
        return (
            self.at.size > 1 and 2 * int((self.reached_ort & (self.reached_torch | self.by_order)).sum()) > self.at.size
        )

    def is_given_by(self, outputs: tuple[Array, ...]) -> bool:
        """Tell whether these outputs are the answer of a far side wherever it is far."""
        output = outputs[self.question.position]
        if output.shape != self.exact_shape:
            return False
        values = self._of(output)
        sides = ((self.torch, ~self.reached_torch), (self.ort, ~self.reached_ort))
        return any(bool(far.any()) and bool((values == side)[far].all()) for side, far in sides)

    def flipped(self, outputs: tuple[Array, ...]) -> Flags:
        """Return at which differing elements these outputs give the answer that the exact one does not."""
        output = outputs[self.question.position]
        if output.shape != self.exact_shape and not self.is_whole:
            return np.zeros(self.reached_ort.shape, dtype=np.bool_)
        flags: Flags = self._of(output) == np.where(self.exact_ort, self.torch, self.ort)
        return flags

    @property
    def flips_by_order(self) -> bool:
        """Tell whether equal values in another order gave the answer that the exact one does not."""
        return bool(self.by_order.any())

    def _take(self, test: str, output: Array, change: float) -> None:
        values = self._of(output)
        reached = values == self.ort
        self.reached_torch |= values == self.torch
        if test == RAMP:
            # ORT is right for an order that nobody can tell from the given one, wherever it is not right already
            self.by_order |= reached & ~self.exact_ort
        self.reached_ort |= reached

    def answer(self, count: int) -> Answer:
        """Return the answer after all draws."""
        torch_missed, ort_missed = ~(self.reached_torch | self.by_order), ~self.reached_ort
        excused = self._out_of_range(torch_missed, ort_missed)
        missed = ((TORCH, torch_missed & ~excused), (ORT, ort_missed & ~excused))
        far = tuple(side for side, flags in missed if flags.any())
        told = "torch" if self.exact_torch.all() else "ORT" if self.exact_ort.all() else "neither side everywhere"
        note = f"float64 gives the answer of {told}"
        evidence = Evidence(source=self.source, draws=count, far_sides=far, note=note)
        if not far and excused.any():
            return Answer(Grade.INHERENT, replace(evidence, note=OUT_OF_RANGE), blame="precision")
        if not far:
            return Answer(Grade.TIE, evidence, blame="none")
        side = far[0] if len(far) == 1 else ""
        return Answer(Grade.BUG, evidence, side=side, blame=TORCH if side == TORCH else "unknown")


class ShapeWeighing(ReachWeighing):
    """Weigh shapes: a length that depends on values may flip as a decision does."""

    may_be_tie = False
    is_whole = True

    def _of(self, output: Array) -> Array:
        return np.array([_shape_id(output.shape)], dtype=object)

    def observe(self, test: str, outputs: tuple[Array, ...], change: float = 0.0) -> None:
        """Take in the shape that one draw gives."""
        self._take(test, outputs[self.question.position], change)

    def set_overflow(self, overflows: bool, *, is_extreme: bool) -> None:
        """Learn of an overflow only where torch itself, in its own precision, gives another shape than float64."""
        if not self.exact_torch.all():
            super().set_overflow(overflows, is_extreme=is_extreme)


def _shape_id(shape: tuple[int, ...]) -> Any:
    return "x".join(map(str, shape))
