"""Numeric: weigh finite differences by how far the exact answer moves.

The idea: each side's distance to the exact answer stands against 8 times the largest move of it at that element; an
answer that jumps between two values, or that another order of equal values gives, is a tie and not noise.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fuzzparity.case import Array
from fuzzparity.execution import ORT, TORCH
from fuzzparity.oracle.compare import as_float64, largest_finite
from fuzzparity.oracle.draws import AMPLIFIED, RAMP
from fuzzparity.oracle.question import MOVES, Answer, Flags, Question, Wide, difference
from fuzzparity.oracle.spread import Spread
from fuzzparity.oracle.weighing import ELSEWHERE, OUT_OF_RANGE, Weighing
from fuzzparity.verdict import Evidence, Grade

JUMP = 1000.0  # rounding rarely spreads an answer over so many default tolerances; only asks for six more draws


class NumericWeighing(Weighing):
    """Weigh finite differences: distance of each side to the exact answer against the largest move of it."""

    may_be_tie = True

    def __init__(self, question: Question, exact: Array) -> None:
        super().__init__(question, exact)
        self.torch = as_float64(question.expected).reshape(-1)[self.at]
        self.ort = as_float64(question.actual).reshape(-1)[self.at]
        whole = as_float64(exact).reshape(-1)
        self.spread = Spread(exact)
        self.bounds: Array | None = None  # what roundings in any order may add up to, flat
        self.bounds_unknown = ""
        self.exact = whole[self.at]
        self.row_length = max(1, whole.size // max(1, math.prod(exact.shape[:-1])))
        largest = largest_finite(np.abs(whole))
        self.allowed = question.default.at(np.abs(self.exact), largest)
        # of a side's answer as of the exact one: a draw moves what it reaches in proportion to its size
        self.at_torch = np.maximum(self.allowed, question.default.at(np.abs(self.torch), largest))
        self.at_ort = np.maximum(self.allowed, question.default.at(np.abs(self.ort), largest))
        self.moves: dict[str, Wide] = {}
        self.move = np.zeros(self.at.shape)
        self.is_two_valued = np.ones(self.at.shape, dtype=np.bool_)
        self.order_torch = np.zeros(self.at.shape, dtype=np.bool_)  # a ramp gave the side's answer
        self.order_ort = self.order_torch.copy()
        self.step_torch, self.step_ort = self.order_torch.copy(), self.order_torch.copy()  # an amplified draw did
        self.was_torch, self.was_ort = False, False  # one draw gave all of a side's answer
        self._judge_clusters(self.exact)

    @property
    def is_settled(self) -> bool:
        """Tell whether no further draw can change the answer."""
        torch_far, ort_far = self._far()
        return not (torch_far.any() or ort_far.any())

    def is_given_by(self, outputs: tuple[Array, ...]) -> bool:
        """Tell whether these outputs are the answer of a far side wherever it is far."""
        output = outputs[self.question.position]
        if output.shape != self.exact_shape:
            return False
        values = as_float64(output).reshape(-1)[self.at]
        sides = zip(self._reached(values), self._far(), strict=True)
        return any(bool(far.any()) and bool(reached[far].all()) for reached, far in sides)

    def flipped(self, outputs: tuple[Array, ...]) -> Flags:
        """Return at which differing elements these outputs are near the side that the exact answer is not near."""
        output = outputs[self.question.position]
        if output.shape != self.exact_shape:
            return np.zeros(self.at.shape, dtype=np.bool_)
        values = as_float64(output).reshape(-1)[self.at]
        is_orts = difference(self.exact, self.ort) <= self.allowed
        near_torch, near_ort = self._hit(values)
        return np.where(is_orts, near_torch, near_ort)

    @property
    def flips_by_order(self) -> bool:
        """Tell whether equal values in another order gave the answer that the exact one does not."""
        return self.is_by_order

    def _bound(self) -> Wide:
        return MOVES * self.move + self.allowed

    def _near(self, values: Wide, side: Wide) -> Flags:
        return difference(values, side) <= self._bound()

    def _hit(self, values: Wide) -> tuple[Flags, Flags]:
        """Return where values are torch's and where they are ORT's answer, to the default tolerance of that answer."""
        return difference(values, self.torch) <= self.at_torch, difference(values, self.ort) <= self.at_ort

    def _reached(self, values: Wide) -> tuple[Flags, Flags]:
        """Return the same to that tolerance and 8 moves."""
        slack = MOVES * self.move
        near_torch = difference(values, self.torch) <= slack + self.at_torch
        return near_torch, difference(values, self.ort) <= slack + self.at_ort

    def _far(self) -> tuple[Flags, Flags]:
        """Return where torch and where ORT are far; what a ramp gave is right for an order nobody can tell apart."""
        torch_far, ort_far = self._beyond()
        by_order = self.order_ort & ort_far
        torch_far, ort_far = torch_far & ~self.order_torch & ~by_order, ort_far & ~self.order_ort
        return torch_far & ~self.step_torch, ort_far & ~self.step_ort

    def _beyond(self) -> tuple[Flags, Flags]:
        return ~self._near(self.torch, self.exact), ~self._near(self.ort, self.exact)

    def _take(self, test: str, output: Array, change: float) -> None:
        whole = as_float64(output).reshape(-1)
        values = whole[self.at]
        if test == RAMP:
            # ramps move by less than the other tests: they show an order, not a size
            self._judge_clusters(values)
            reached_torch, reached_ort = self._reached(values)
            self.order_torch |= reached_torch
            self.order_ort |= reached_ort
            return
        if test == AMPLIFIED:
            # the sides lie too far apart for rounding: what carries the exact answer over is a threshold between them
            reached_torch, reached_ort = self._reached(values)
            self.step_torch |= reached_torch & self._is_steep()
            self.step_ort |= reached_ort & self._is_steep()
            return
        self.spread.take(whole, change)
        move = difference(values, self.exact)
        move[~np.isfinite(values)] = 0.0  # beyond the edge of a domain: says nothing about size
        self.moves[test] = np.maximum(self.moves.get(test, self.move * 0.0), move)
        np.maximum(self.move, move, out=self.move)
        self._judge_clusters(values)

    def _judge_clusters(self, values: Wide) -> None:
        """Note where the exact answer jumps between the two sides' answers instead of spreading around."""
        near_torch, near_ort = self._hit(values)
        self.is_two_valued &= near_torch | near_ort
        self.was_torch |= bool(near_torch.all())
        self.was_ort |= bool(near_ort.all())

    @property
    def may_jump(self) -> bool:
        """Tell whether the sides are so far apart that another order of equal values is worth a look."""
        return bool(self._is_steep().any()) and not self.was_ort

    @property
    def may_step(self) -> bool:
        """Tell whether the sides are so far apart that they may stand on the two sides of a threshold."""
        return bool(self._is_steep().any())

    def _is_steep(self) -> Flags:
        return difference(self.torch, self.ort) > JUMP * self.allowed

    def answer(self, count: int) -> Answer:
        """Return the answer after all draws."""
        torch_far, ort_far = self._far()
        both = torch_far & ort_far
        if both.any():
            # float64 means something else than both sides: then only their own difference counts, against the largest
            # move of the answer's row, since an element at a bound (a spike under a norm) stands still beside others
            apart = difference(self.torch, self.ort) > 2.0 * MOVES * self._row_move() + self.allowed
            torch_far, ort_far = torch_far & (apart | ~both), ort_far & (apart | ~both)
        excused = self._out_of_range(torch_far, ort_far)
        torch_far, ort_far = torch_far & ~excused, ort_far & ~excused
        far = tuple(side for side, flags in ((TORCH, torch_far), (ORT, ort_far)) if flags.any())
        evidence = self._evidence(count, torch_far | ort_far, far)
        if not far and excused.any():
            return Answer(Grade.INHERENT, replace(evidence, note=OUT_OF_RANGE), blame="precision")
        if not far:
            jumps = bool((self.is_two_valued & (self.move > self.allowed)).all())
            if self.is_by_order or self.is_by_step or jumps or (self.was_torch and self.was_ort):
                return Answer(Grade.TIE, evidence, blame="none")
            return Answer(Grade.INHERENT, self._with_tolerance(evidence), blame="none")
        side = far[0] if len(far) == 1 else ""
        grade = Grade.BUG if self._is_material(torch_far | ort_far) else Grade.NOTE
        return Answer(grade, evidence, side=side, blame=TORCH if side == TORCH else "unknown")

    def _row_move(self) -> Wide:
        """Return the largest move of each element's row along the last axis, as far as the row differs at all."""
        _, rows = np.unique(self.at // self.row_length, return_inverse=True)
        largest = np.zeros(int(rows.max()) + 1 if rows.size else 0)
        np.maximum.at(largest, rows, self.move)
        return largest[rows]

    def _is_material(self, far: Flags) -> bool:
        """Tell whether the sides differ, where one is far, by more than practice accepts."""
        if self.question.material is None:
            return True
        accepted = self.question.material.at(np.abs(self.torch), 0.0)
        return bool((difference(self.torch, self.ort) > accepted)[far].any())

    @property
    def is_by_step(self) -> bool:
        """Tell whether larger draws gave the answer of a side that is far otherwise."""
        torch_far, ort_far = self._beyond()
        return bool(((self.step_torch & torch_far) | (self.step_ort & ort_far)).any())

    @property
    def is_by_order(self) -> bool:
        """Tell whether ramps gave the answer of a side that is far otherwise."""
        torch_far, ort_far = self._beyond()
        return bool(((self.order_torch & torch_far) | (self.order_ort & ort_far)).any())

    def _evidence(self, count: int, far: Flags, far_sides: tuple[str, ...]) -> Evidence:
        """Report the figures at the element that is told as the worst, or else at the one farthest beyond its bound."""
        torch, ort = difference(self.torch, self.exact), difference(self.ort, self.exact)
        bound = np.maximum(self._bound(), np.finfo(np.float64).tiny)
        excess = np.maximum(torch, ort) / bound
        largest = largest_finite(np.abs(as_float64(self.question.expected)))
        allowed = np.maximum(self.question.allowance.at(np.abs(self.torch), largest), np.finfo(np.float64).tiny)
        worst = int(np.argmax(difference(self.torch, self.ort) / allowed))
        note = "the exact answer differs from both sides" if len(far_sides) == 2 else ""
        if far.any() and not far[worst]:
            worst = int(np.argmax(np.where(far, excess, -1.0)))
            note = note or f"{ELSEWHERE} {self._place(worst)}"
        bounded = math.inf if self.bounds is None else float(self.bounds[self.at[worst]])
        return Evidence(
            source=self.source,
            torch_distance=float(torch[worst]),
            ort_distance=float(ort[worst]),
            moves={test: float(move[worst]) for test, move in self.moves.items()},
            draws=count,
            far_sides=far_sides,
            note=note or ("equal values in another order" if self.is_by_order else ""),
            explained=float(bound[worst]),
            excess={TORCH: float(torch[worst] / bound[worst]), ORT: float(ort[worst] / bound[worst])},
            rounding_bound=bounded if math.isfinite(bounded) else None,
            rounding_unknown="" if math.isfinite(bounded) else self.bounds_unknown,
            condition=self.spread.condition,
        )

    def _place(self, worst: int) -> list[int]:
        """Return the index of a differing element; complex numbers count their parts in a last axis."""
        wide = as_float64(self.question.expected)
        return [int(i) for i in np.unravel_index(self.at[worst], wide.shape)]

    def _with_tolerance(self, evidence: Evidence) -> Evidence:
        """Add the tolerance that can be defended for this output on this data."""
        found = self.spread.tolerance(self.question.expected, self.question.actual)
        if found is None:
            return evidence
        return replace(evidence, defensible_rtol=found[0], defensible_atol=found[1])
