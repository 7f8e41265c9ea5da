"""Weighing: what the draws say about one differing output, gathered at the elements that differ.

The idea: only offending elements are looked at, and only maxima and "was reached" flags are kept, so that a draw is
forgotten as soon as it was observed. One class for each kind of difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array
from fuzzparity.execution import ORT, TORCH
from fuzzparity.oracle.compare import Allowance, as_float64, as_integers, largest_finite
from fuzzparity.oracle.draws import EPS_OF_MAXIMUM, RAMP
from fuzzparity.oracle.policy import DEFAULTS, precision
from fuzzparity.verdict import Evidence, Grade, Kind

MOVES = 8.0  # a side is far beyond this many moves of the exact answer: DESIGN, "Evidence"
OVERFLOW_MARGIN = 8.0  # an intermediate this close to the largest float overflows in a sound formulation as well
OUT_OF_RANGE = "an intermediate leaves the range of the working precision"
JUMP = 1000.0  # rounding rarely spreads an answer over so many default tolerances; only asks for six more draws
SOURCE = "torch float64"

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
        return np.flatnonzero(_difference(e, a) > self.allowance.at(np.abs(e), largest_finite(np.abs(e))))

    def exceeds(self, rtol: float, scale: float) -> bool:
        """Tell whether some element differs by more than `rtol` of itself plus `scale` of the largest.

        Both grow to 8 times assert_close's rtol where the working dtype is coarser than float32.
        """
        least = MOVES * DEFAULTS.get(self.working_dtype, (precision(self.working_dtype).eps, 0.0))[0]
        e, a = as_float64(self.expected).reshape(-1), as_float64(self.actual).reshape(-1)
        magnitude = np.abs(e)
        bound = max(rtol, least) * magnitude + max(scale, least) * largest_finite(magnitude) + self.default.atol
        return bool((_difference(e, a) > bound).any())


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a question: grade, the side at fault where it is plain, blame where evidence gives it."""

    grade: Grade
    evidence: Evidence
    side: str = ""
    blame: str = "unknown"


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

    @property
    def is_settled(self) -> bool:
        """Tell whether no further draw can change the answer."""
        raise NotImplementedError

    def observe(self, test: str, outputs: tuple[Array, ...]) -> None:
        """Take in the outputs of one draw; an output of another shape says nothing about single elements."""
        output = outputs[self.question.position]
        if output.shape == self.exact_shape:
            self._take(test, output)

    @property
    def may_jump(self) -> bool:
        """Tell whether a settled answer may be an order of equal values rather than rounding."""
        return False

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

    def answer(self, count: int) -> Answer:
        """Return the answer after all draws."""
        raise NotImplementedError

    def _take(self, test: str, output: Array) -> None:
        raise NotImplementedError


class NumericWeighing(Weighing):
    """Weigh finite differences: distance of each side to the exact answer against the largest move of it."""

    may_be_tie = True

    def __init__(self, question: Question, exact: Array) -> None:
        super().__init__(question, exact)
        self.torch = as_float64(question.expected).reshape(-1)[self.at]
        self.ort = as_float64(question.actual).reshape(-1)[self.at]
        whole = as_float64(exact).reshape(-1)
        self.exact = whole[self.at]
        self.row_length = max(1, whole.size // max(1, math.prod(exact.shape[:-1])))
        self.allowed = question.default.at(np.abs(self.exact), largest_finite(np.abs(whole)))
        self.moves: dict[str, Wide] = {}
        self.move = np.zeros(self.at.shape)
        self.is_two_valued = np.ones(self.at.shape, dtype=np.bool_)
        self.order_torch = np.zeros(self.at.shape, dtype=np.bool_)  # a ramp gave the side's answer
        self.order_ort = self.order_torch.copy()
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
        sides = zip((self.torch, self.ort), self._far(), strict=True)
        return any(bool(far.any()) and bool(self._near(values, side)[far].all()) for side, far in sides)

    def _bound(self) -> Wide:
        return MOVES * self.move + self.allowed

    def _near(self, values: Wide, side: Wide) -> Flags:
        return _difference(values, side) <= self._bound()

    def _far(self) -> tuple[Flags, Flags]:
        """Return where torch and where ORT are far; what a ramp gave is right for an order nobody can tell apart."""
        torch_far, ort_far = self._beyond()
        by_order = self.order_ort & ort_far
        return torch_far & ~self.order_torch & ~by_order, ort_far & ~self.order_ort

    def _beyond(self) -> tuple[Flags, Flags]:
        return ~self._near(self.torch, self.exact), ~self._near(self.ort, self.exact)

    def _take(self, test: str, output: Array) -> None:
        values = as_float64(output).reshape(-1)[self.at]
        if test == RAMP:
            # ramps move by less than the other tests: they show an order, not a size
            self._judge_clusters(values)
            self.order_torch |= self._near(values, self.torch)
            self.order_ort |= self._near(values, self.ort)
            return
        move = _difference(values, self.exact)
        move[~np.isfinite(values)] = 0.0  # beyond the edge of a domain: says nothing about size
        self.moves[test] = np.maximum(self.moves.get(test, self.move * 0.0), move)
        np.maximum(self.move, move, out=self.move)
        self._judge_clusters(values)

    def _judge_clusters(self, values: Wide) -> None:
        """Note where the exact answer jumps between the two sides' answers instead of spreading around."""
        near_torch = _difference(values, self.torch) <= self.allowed
        near_ort = _difference(values, self.ort) <= self.allowed
        self.is_two_valued &= near_torch | near_ort
        self.was_torch |= bool(near_torch.all())
        self.was_ort |= bool(near_ort.all())

    @property
    def may_jump(self) -> bool:
        """Tell whether the sides are so far apart that another order of equal values is worth a look."""
        return bool((_difference(self.torch, self.ort) > JUMP * self.allowed).any()) and not self.was_ort

    def answer(self, count: int) -> Answer:
        """Return the answer after all draws."""
        torch_far, ort_far = self._far()
        both = torch_far & ort_far
        if both.any():
            # float64 means something else than both sides: then only their own difference counts, against the largest
            # move of the answer's row, since an element at a bound (a spike under a norm) stands still beside others
            apart = _difference(self.torch, self.ort) > 2.0 * MOVES * self._row_move() + self.allowed
            torch_far, ort_far = torch_far & (apart | ~both), ort_far & (apart | ~both)
        excused = self._out_of_range(torch_far, ort_far)
        torch_far, ort_far = torch_far & ~excused, ort_far & ~excused
        far = tuple(side for side, flags in ((TORCH, torch_far), (ORT, ort_far)) if flags.any())
        evidence = self._evidence(count, torch_far | ort_far, far)
        if not far and excused.any():
            return Answer(Grade.INHERENT, replace(evidence, note=OUT_OF_RANGE), blame="precision")
        if not far:
            jumps = bool((self.is_two_valued & (self.move > self.allowed)).all())
            is_tie = self.is_by_order or jumps or (self.was_torch and self.was_ort)
            return Answer(Grade.TIE if is_tie else Grade.INHERENT, evidence, blame="none")
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
        return bool((_difference(self.torch, self.ort) > accepted)[far].any())

    @property
    def is_by_order(self) -> bool:
        """Tell whether ramps gave the answer of a side that is far otherwise."""
        torch_far, ort_far = self._beyond()
        return bool(((self.order_torch & torch_far) | (self.order_ort & ort_far)).any())

    def _evidence(self, count: int, far: Flags, far_sides: tuple[str, ...]) -> Evidence:
        """Report the figures at the element that is farthest beyond its bound."""
        torch, ort = _difference(self.torch, self.exact), _difference(self.ort, self.exact)
        excess = np.maximum(torch, ort) / np.maximum(self._bound(), np.finfo(np.float64).tiny)
        worst = int(np.argmax(np.where(far, excess, -1.0) if far.any() else excess))
        note = "the exact answer differs from both sides" if len(far_sides) == 2 else ""
        return Evidence(
            source=SOURCE,
            torch_distance=float(torch[worst]),
            ort_distance=float(ort[worst]),
            moves={test: float(move[worst]) for test, move in self.moves.items()},
            draws=count,
            far_sides=far_sides,
            note=note or ("equal values in another order" if self.is_by_order else ""),
        )


class ReachWeighing(Weighing):
    """Weigh answers that have no size (decisions, shapes): which of them indistinguishable inputs give."""

    is_decision = True
    may_be_tie = True

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
        return bool((self.reached_ort & (self.reached_torch | self.by_order)).all())

    def is_given_by(self, outputs: tuple[Array, ...]) -> bool:
        """Tell whether these outputs are the answer of a far side wherever it is far."""
        output = outputs[self.question.position]
        if output.shape != self.exact_shape:
            return False
        values = self._of(output)
        sides = ((self.torch, ~self.reached_torch), (self.ort, ~self.reached_ort))
        return any(bool(far.any()) and bool((values == side)[far].all()) for side, far in sides)

    def _take(self, test: str, output: Array) -> None:
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
        evidence = Evidence(source=SOURCE, draws=count, far_sides=far, note=note)
        if not far and excused.any():
            return Answer(Grade.INHERENT, replace(evidence, note=OUT_OF_RANGE), blame="precision")
        if not far:
            return Answer(Grade.TIE, evidence, blame="none")
        side = far[0] if len(far) == 1 else ""
        return Answer(Grade.BUG, evidence, side=side, blame=TORCH if side == TORCH else "unknown")


class ShapeWeighing(ReachWeighing):
    """Weigh shapes: a length that depends on values may flip as a decision does."""

    may_be_tie = False

    def _of(self, output: Array) -> Array:
        return np.array([_shape_id(output.shape)], dtype=object)

    def observe(self, test: str, outputs: tuple[Array, ...]) -> None:
        """Take in the shape that one draw gives."""
        self._take(test, outputs[self.question.position])

    def set_overflow(self, overflows: bool, *, is_extreme: bool) -> None:
        """Learn of an overflow only where torch itself, in its own precision, gives another shape than float64."""
        if not self.exact_torch.all():
            super().set_overflow(overflows, is_extreme=is_extreme)


class NonfiniteWeighing(Weighing):
    """Weigh NaN and Inf patterns: semantics are a bug, an overflow of torch's own formulation is inherent."""

    def __init__(self, question: Question, exact: Array, *, is_finite: bool) -> None:
        super().__init__(question, exact)
        self.is_finite = is_finite
        values = as_float64(question.expected).reshape(-1)[self.at], as_float64(question.actual).reshape(-1)[self.at]
        self.torch, self.ort = pattern(values[0]), pattern(values[1])
        self.exact = pattern(as_float64(exact).reshape(-1)[self.at])
        self.reached_torch, self.reached_ort = self.exact == self.torch, self.exact == self.ort
        # the exact answer is an infinity of the inputs' own: one that an overflow made on the way may have met it
        self.may_meet = (self.exact >= 2) & (not is_finite)
        self.wants_peak = bool(((self.exact == 0) | ~self.reached_torch | self.may_meet).any())

    @property
    def is_settled(self) -> bool:
        """Tell whether no further draw can change the answer."""
        # with NaN or Inf in the inputs, draws change nothing: it is a question of semantics
        return not self.is_finite or bool(self._excused().all())

    def _take(self, test: str, output: Array) -> None:
        values = as_float64(output).reshape(-1)[self.at]
        # noise of eps times the maximum carries small values over the edge of a domain: no answer of theirs
        if self.is_finite and test != EPS_OF_MAXIMUM:
            kinds = pattern(values)
            self.reached_torch |= kinds == self.torch
            self.reached_ort |= kinds == self.ort

    def _excused(self) -> Flags:
        is_finite = self.exact == 0
        excused: Flags = self.reached_torch & self.reached_ort
        # a referee that is no wider overflows as torch does: its infinity is no answer
        excused |= self.overflows & (is_finite | (not self.is_wider))
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
            is_precision = self.overflows or is_torchs
            note = OUT_OF_RANGE if is_precision else "a singularity"
            evidence = Evidence(source=SOURCE, draws=count, note=note)
            return Answer(Grade.INHERENT, evidence, blame="precision" if is_precision else "none")
        torch_right, ort_right = self.torch[left] == self.exact[left], self.ort[left] == self.exact[left]
        far = tuple(side for side, right in ((TORCH, torch_right), (ORT, ort_right)) if not right.all())
        note = "" if self.is_finite else "the inputs hold NaN or Inf: semantics"
        evidence = Evidence(source=SOURCE, draws=count, far_sides=far, note=note)
        side = far[0] if len(far) == 1 else ""
        return Answer(Grade.BUG, evidence, side=side, blame=TORCH if side == TORCH else "unknown")


def weighing_of(question: Question, exact: tuple[Array, ...], *, is_finite: bool) -> Weighing:
    """Return the weighing that fits a question's kind."""
    output = exact[question.position]
    if question.kind is Kind.SHAPE:
        return ShapeWeighing(question, output)
    if question.kind is Kind.DECISION:
        return ReachWeighing(question, output)
    if question.kind is Kind.NONFINITE:
        return NonfiniteWeighing(question, output, is_finite=is_finite)
    return NumericWeighing(question, output)


def pattern(values: Wide) -> npt.NDArray[np.int8]:
    """Return 0 for finite values, 1 for NaN, 2 for +Inf, 3 for -Inf."""
    return np.select([np.isnan(values), values == np.inf, values == -np.inf], [1, 2, 3], 0).astype(np.int8)


def _difference(one: Wide, other: Wide) -> Wide:
    """Return |one - other|, 0 where both are the same infinity; NaN becomes infinity, so that it is never near."""
    with np.errstate(all="ignore"):
        difference: Wide = np.abs(one - other)
    difference[one == other] = 0.0
    difference[np.isnan(difference)] = np.inf
    return difference


def _shape_id(shape: tuple[int, ...]) -> Any:
    return "x".join(map(str, shape))
