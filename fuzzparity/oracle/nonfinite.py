"""Nonfinite: weigh patterns of NaN and infinity, where semantics stand against overflow.

The idea: what NaN and Inf of the inputs make is semantics, on which engines must agree; what leaves the range of the
working precision on the way is nobody's fault.
"""

from __future__ import annotations

import numpy as np

from fuzzparity.case import Array
from fuzzparity.execution import ORT, TORCH
from fuzzparity.oracle.compare import as_float64
from fuzzparity.oracle.draws import EPS_OF_MAXIMUM, RAMP, ROUNDED
from fuzzparity.oracle.question import Answer, Flags, Question, Wide, difference, pattern
from fuzzparity.oracle.weighing import OUT_OF_RANGE, Weighing
from fuzzparity.verdict import Evidence, Grade


class NonfiniteWeighing(Weighing):
    """Weigh NaN and Inf patterns: semantics are a bug, an overflow of torch's own formulation is inherent."""

    def __init__(self, question: Question, exact: Array, *, is_finite: bool) -> None:
        super().__init__(question, exact)
        self.is_finite = is_finite
        self.values = (
            as_float64(question.expected).reshape(-1)[self.at],
            as_float64(question.actual).reshape(-1)[self.at],
        )
        self.torch, self.ort = pattern(self.values[0]), pattern(self.values[1])
        self.exact = pattern(as_float64(exact).reshape(-1)[self.at])
        self.reached_torch, self.reached_ort = self.exact == self.torch, self.exact == self.ort
        # the exact answer is an infinity of the inputs' own: one that an overflow made on the way may have met it
        self.may_meet = (self.exact >= 2) & (not is_finite)
        self.order_torch = np.zeros(self.at.shape, dtype=np.bool_)  # another order of equal values gave its answer
        self.order_ort = self.order_torch.copy()
        self.is_moved = False  # rounding gave another pattern than the exact answer's
        self.wants_peak = bool(((self.exact == 0) | ~self.reached_torch | self.may_meet).any())

    @property
    def is_settled(self) -> bool:
        """Tell whether no further draw can change the answer."""
        # with NaN or Inf in the inputs, it is a question of semantics, unless torch's own rounding counts as well
        is_semantic = not self.is_finite and bool((self.torch == self.exact).all())
        return is_semantic or bool(self._excused().all())

    @property
    def wants_more_rounded(self) -> bool:
        """Tell whether further roundings may well reach what those so far did not."""
        return self.is_moved and not self.is_settled

    def _take(self, test: str, output: Array, change: float) -> None:
        values = as_float64(output).reshape(-1)[self.at]
        if test == RAMP:
            self.order_torch |= self._hit(values, TORCH)
            self.order_ort |= self._hit(values, ORT)
            return
        # noise of eps times the maximum carries small values over the edge of a domain: no answer of theirs
        if test == ROUNDED or (self.is_finite and test != EPS_OF_MAXIMUM):
            kinds = pattern(values)
            self.is_moved |= test == ROUNDED and bool((kinds != self.exact).any())
            self.reached_torch |= kinds == self.torch
            self.reached_ort |= kinds == self.ort

    def _hit(self, values: Wide, side: str) -> Flags:
        """Return where values are a side's answer: the same pattern, and the same number where it is one."""
        theirs, kinds = (self.values[0], self.torch) if side == TORCH else (self.values[1], self.ort)
        near = difference(values, theirs) <= self.question.default.at(np.abs(theirs), 0.0)
        hit: Flags = (pattern(values) == kinds) & ((kinds != 0) | near)
        return hit

    @property
    def may_be_order(self) -> bool:
        """Tell whether another order of equal values is worth a look."""
        return not bool(self._excused().all())

    def is_given_by(self, outputs: tuple[Array, ...]) -> bool:
        """Tell whether these outputs are the answer of the side that the exact one is not, wherever it is not."""
        output = outputs[self.question.position]
        if output.shape != self.exact_shape:
            return False
        values, left = as_float64(output).reshape(-1)[self.at], ~self._excused()
        wrong = ((ORT, left & (self.ort != self.exact)), (TORCH, left & (self.torch != self.exact)))
        return any(bool(flags.any()) and bool(self._hit(values, side)[flags].all()) for side, flags in wrong)

    @property
    def flips_by_order(self) -> bool:
        """Tell whether equal values in another order gave the answer that the exact one does not."""
        return bool(self._by_order().any())

    def _by_order(self) -> Flags:
        torch_right, ort_right = self.torch == self.exact, self.ort == self.exact
        by_order: Flags = (torch_right | self.order_torch) & (ort_right | self.order_ort) & ~self._excused()
        return by_order

    def _excused(self) -> Flags:
        is_finite = self.exact == 0
        excused: Flags = self.reached_torch & self.reached_ort
        # a referee that is no wider overflows as torch does, inside operators too: its infinity is no answer
        excused |= self.overflows & (is_finite | (not self.is_wider))
        excused |= (self.is_extreme and self.is_finite and not self.is_wider) & ~is_finite
        # torch itself left the range of its precision where the exact answer is finite: nothing ORT does is worse
        excused |= is_finite & (self.torch != 0)
        # and where the inputs hold NaN or Inf, an overflow of torch may have met one of them: inf - inf is NaN
        excused |= (self.overflows or self.is_extreme) & (self.torch != self.exact)
        excused |= self.overflows & self.may_meet & (self.ort != 0)  # ORT's may as well, by another order of a sum
        return excused

    def answer(self, count: int) -> Answer:
        """Return the answer after all draws."""
        left = ~self._excused()
        if not left.any():
            is_torchs = bool(((self.torch != 0) & (self.exact == 0)).any())
            is_precision = self.overflows or is_torchs or (self.is_extreme and not self.is_wider)
            note = OUT_OF_RANGE if is_precision else "a singularity"
            evidence = Evidence(source=self.source, draws=count, note=note)
            return Answer(Grade.INHERENT, evidence, blame="precision" if is_precision else "none")
        left &= ~self._by_order()
        if not left.any():
            evidence = Evidence(source=self.source, draws=count, note="equal values in another order")
            return Answer(Grade.TIE, evidence, blame="none")
        torch_right, ort_right = self.torch[left] == self.exact[left], self.ort[left] == self.exact[left]
        far = tuple(side for side, right in ((TORCH, torch_right), (ORT, ort_right)) if not right.all())
        note = "" if self.is_finite else "the inputs hold NaN or Inf: semantics"
        evidence = Evidence(source=self.source, draws=count, far_sides=far, note=note)
        side = far[0] if len(far) == 1 else ""
        return Answer(Grade.BUG, evidence, side=side, blame=TORCH if side == TORCH else "unknown")
