"""Evidence: whether a difference is beyond arithmetic, from the exact answer and how far arithmetic may move it.

The idea: no engine is the reference. The exact answer (float64) and its moves under indistinguishable inputs and under
rounding decide; a side is far where it lies beyond 8 times the largest of these moves and the default tolerance. A
referee that cannot run is no vote: then only what is beyond a coarser bound is a bug, and the rest is a note.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fuzzparity.case import Array, Case
from fuzzparity.execution import TORCH
from fuzzparity.oracle import brink, draws
from fuzzparity.oracle.nonfinite import NonfiniteWeighing
from fuzzparity.oracle.numeric import NumericWeighing
from fuzzparity.oracle.policy import precision
from fuzzparity.oracle.question import Answer, Question
from fuzzparity.oracle.reach import ReachWeighing, ShapeWeighing
from fuzzparity.oracle.spread import relative_change
from fuzzparity.oracle.weighing import OVERFLOW_MARGIN, Weighing
from fuzzparity.verdict import Evidence, Grade, Kind

DRAWS = 16  # of one-ulp and of eps-of-maximum changes: DESIGN, "Evidence"
ROUNDED_DRAWS = 12
MOST_ROUNDED = (
    64  # where most of many flipped decisions were reached: one that a draw in ten reaches is missed in 1 of 800
)
_USUAL_OPERATORS = 400  # of a model that gets all of its rounded runs; longer ones get fewer, a third at least
LEAST_DRAWS = 6  # two of each test, so that the figures of an inherent difference are no accident of one draw
_THRIFT = 5  # of a brief look
_MOST_TIES = 2  # of one case whose distance is measured: the others are told without
AMPLIFIED = 8.0  # what a decision is made on is moved as far as 8 moves of a numeric answer would reach
# Larger roundings of a decision, a third for other answers: what a draw in six reaches is missed in 1 of 80.
MOST_AMPLIFIED = 24
# No referee: 0.1 % is the rtol of the ONNX backend test runner, and ten times the largest noise of 13 real models
# (1e-4 of the maximum); coarser dtypes by their own eps.
COARSE_RTOL = 1e-3
COARSE_SCALE = 1e-3

Outcome = tuple[str, tuple[Array, ...], float]  # test, outputs, relative change of the inputs


class Referee(Protocol):
    """Answer a case in float64, exactly and with rounding to the working precision; None where it cannot."""

    @property
    def source(self) -> str:
        """Return who answers: "torch float64", or "ONNX reference in float64" where the module cannot."""

    @property
    def is_of_file(self) -> bool:
        """Tell whether it answers what the ONNX file means: then it cannot tell a fault of the file from torch's."""

    @property
    def missing(self) -> str:
        """Return why it cannot run; "" while it can."""

    @property
    def operators(self) -> int:
        """Return how many operators the last rounded run had, 0 where that is not known: what it cost."""

    def exact(self, case: Case) -> tuple[Array, ...] | None:
        """Return the outputs in float64; integer outputs stay integers."""

    def rounded(self, case: Case, draw: int, times: float = 1.0) -> tuple[Array, ...] | None:
        """Return the outputs of a float64 run with every intermediate rounded at random to the working precision.

        `times`: how many such roundings each is off by; what needs no rounding stays as it is.
        """

    def peak(self, case: Case) -> float:
        """Return the largest finite |intermediate| of the float64 run."""

    def unmoved(self, case: Case) -> frozenset[int]:
        """Return the places of outputs that come from integers alone, so that no draw moves them."""

    def bounds(self, case: Case) -> tuple[tuple[Array | None, ...], str]:
        """Return for each output how far roundings in any order may move it at most, and where that is not known.

        None for an output whose bound is not known; then the text names the operator from which on it is not.
        """


@dataclass
class _Draws:
    """Hand out the outputs of each draw, and count them; only this knows that the referee may fail half-way."""

    case: Case
    referee: Referee
    working_dtype: str
    thrift: int = 1  # by how much fewer draws are made
    count: int = 0
    tests: dict[str, int] = field(default_factory=dict)

    def base(self) -> Iterator[Outcome]:
        """Yield the three tests in turn, so that a clear answer comes early."""
        can_perturb, can_round = draws.can_perturb(self.case), True
        for draw in range(DRAWS // self.thrift):
            if can_perturb:
                yield from self._exact(draws.ONE_ULP, draws.one_ulp(self.case, draw))
                yield from self._exact(draws.EPS_OF_MAXIMUM, draws.eps_of_maximum(self.case, draw, self.working_dtype))
            if can_round and draw < self._affordable(ROUNDED_DRAWS):
                outputs = self.referee.rounded(self.case, draw)
                can_round = outputs is not None
                if outputs is not None:
                    yield self._counted(draws.ROUNDED, outputs)

    def more_rounded(self) -> Iterator[Outcome]:
        """Yield further draws of the rounding test."""
        for draw in range(self._affordable(ROUNDED_DRAWS), self._affordable(MOST_ROUNDED)):
            outputs = self.referee.rounded(self.case, draw)
            if outputs is None:
                return
            yield self._counted(draws.ROUNDED, outputs)

    def _affordable(self, wanted: int) -> int:
        """Return how many rounded runs a long model gets; each of its operators costs some 20 us, however small."""
        operators, wanted = self.referee.operators, math.ceil(wanted / self.thrift)
        return wanted if not operators else max(wanted // 3, min(wanted, wanted * _USUAL_OPERATORS // operators))

    def amplified(self) -> Iterator[Outcome]:
        """Yield the tests with up to 8 times their size: the error bound of what a decision is made on."""
        if draws.can_perturb(self.case):
            for draw in range(DRAWS, DRAWS + DRAWS // (2 * self.thrift)):
                yield from self._exact(draws.AMPLIFIED, draws.one_ulp(self.case, draw, AMPLIFIED))
                noisy = draws.eps_of_maximum(self.case, draw, self.working_dtype, AMPLIFIED)
                yield from self._exact(draws.AMPLIFIED, noisy)
            for moved in draws.in_step(self.case, self.working_dtype, AMPLIFIED):
                yield from self._exact(draws.AMPLIFIED, moved)
        yield from self._amplified_roundings(0, MOST_AMPLIFIED // 3)

    def more_amplified(self) -> Iterator[Outcome]:
        """Yield further draws of larger roundings."""
        yield from self._amplified_roundings(MOST_AMPLIFIED // 3, MOST_AMPLIFIED)

    def _amplified_roundings(self, first: int, last: int) -> Iterator[Outcome]:
        for draw in range(self._affordable(first), self._affordable(last)):
            outputs = self.referee.rounded(self.case, draw, AMPLIFIED / (1 << draw % 3))
            if outputs is None:
                return
            yield self._counted(draws.AMPLIFIED, outputs)

    def ramps(self, zero_size: float) -> Iterator[Outcome]:
        """Yield the outputs of ramps, which break ties among equal values."""
        for case in draws.ramps(self.case, zero_size):
            yield from self._exact(draws.RAMP, case)

    def zeros_alike(self, zero_size: float) -> tuple[Array, ...] | None:
        """Return the exact outputs with all zeros moved by one amount, which is no draw."""
        return self.referee.exact(draws.shifted_zeros(self.case, zero_size))

    def ordered_nonfinite(self) -> Iterator[Outcome]:
        """Yield the outputs with numbers in the place of NaN and infinities: all alike first, then in some orders."""
        for case in draws.ordered_nonfinite(self.case):
            for test, outputs, change in self._exact(draws.RAMP, case):
                yield test, tuple(draws.restored(output, self.working_dtype) for output in outputs), change

    def _exact(self, test: str, case: Case) -> Iterator[Outcome]:
        outputs = self.referee.exact(case)
        if outputs is not None:
            yield self._counted(test, outputs, relative_change(self.case, case))

    def _counted(self, test: str, outputs: tuple[Array, ...], change: float = 0.0) -> Outcome:
        self.count += 1
        self.tests[test] = self.tests.get(test, 0) + 1
        return test, outputs, change


def weigh(
    case: Case,
    referee: Referee | None,
    questions: Sequence[Question],
    working_dtype: str,
    *,
    is_wild: bool = False,
    is_brief: bool = False,
) -> list[Answer]:
    """Answer for each differing output whether the difference is a bug, inherent or a tie.

    All questions share the draws (up to 44 float64 runs, then up to 44 amplified, 21 for ties and 52 more roundings);
    they stop as soon as every question is settled, after the first few where an answer comes from integers alone. The
    distance of a tie takes up to 54 more, and a bound on roundings one that costs some 15 times a plain one.
    `is_brief` makes a fifth of the draws and leaves these two out: what it calls a bug, a full look may excuse.
    """
    exact = referee.exact(case) if referee is not None else None  # one that failed on another case may answer this one
    if referee is None or exact is None:
        why = "no referee" if referee is None else referee.missing or "the referee gave no answer"
        return [_without_referee(case, question, why, is_wild) for question in questions]
    comparable = [q for q in questions if q.kind is Kind.SHAPE or exact[q.position].shape == q.expected.shape]
    weighings = [weighing_of(question, exact, is_finite=case.is_finite) for question in comparable]
    _learn_overflow([w for w in weighings if w.wants_peak], case, referee, working_dtype)
    for w in weighings:
        w.source = referee.source
    decisions = [w for w in weighings if w.is_decision]
    still = referee.unmoved(case) if decisions else frozenset()
    for w in decisions:
        w.is_unmoved = w.question.position in still
    source = _Draws(case, referee, working_dtype, _THRIFT if is_brief else 1)
    _observe(weighings, source.base(), least=LEAST_DRAWS)
    _observe([w for w in weighings if w.may_step], source.amplified())
    _observe([w for w in weighings if w.is_decision], source.more_amplified())
    _break_ties(weighings, source)
    _observe([w for w in weighings if w.wants_more_rounded], source.more_rounded())
    _learn_overflow([w for w in weighings if not (w.wants_peak or w.is_settled)], case, referee, working_dtype)
    _learn_bounds([w for w in weighings if isinstance(w, NumericWeighing) and not is_brief], case, referee)
    answers = {w.question.position: _answer(case, w, source, is_wild) for w in weighings}
    if not is_brief:
        _measure_ties(weighings, answers, source)
    why = "the exact answer has another shape"
    return [answers.get(q.position) or _without_referee(case, q, why, is_wild) for q in questions]


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


def _learn_overflow(weighings: Sequence[Weighing], case: Case, referee: Referee, working_dtype: str) -> None:
    """Tell weighings whether torch's own formulation comes near the largest float on these inputs, or its squares do.

    A model that holds such a number itself (a mask filled with `torch.finfo(dtype).min`) peaks there on any inputs:
    then the inputs alone tell, since products of up to four inputs under the fourth root stay finite.
    """
    if not weighings:
        return
    largest = precision(working_dtype).largest
    peak = referee.peak(case)
    overflows, is_extreme = not peak * OVERFLOW_MARGIN <= largest, peak > largest**0.5
    if is_extreme and referee.peak(draws.calm(case)) > largest**0.5:
        size = draws.largest_input(case)
        overflows, is_extreme = overflows and size > largest**0.25, size > largest**0.5
    for w in weighings:
        w.is_wider = largest < precision("float64").largest
        w.set_overflow(overflows, is_extreme=is_extreme)


def _learn_bounds(weighings: Sequence[NumericWeighing], case: Case, referee: Referee) -> None:
    """Tell weighings how far roundings in any order may move their output: shown, and never more than that."""
    if not weighings:
        return
    bounds, unknown = referee.bounds(case)
    for w in weighings:
        bound = bounds[w.question.position] if w.question.position < len(bounds) else None
        fits = bound is not None and bound.shape == w.exact_shape and bound.dtype.kind == "f"
        w.bounds, w.bounds_unknown = bound.reshape(-1) if bound is not None and fits else None, unknown


def _measure_ties(weighings: Sequence[Weighing], answers: dict[int, Answer], source: _Draws) -> None:
    """Add to ties how near their threshold is, and to decisions that are bugs that no test reached it."""
    can_perturb, left = draws.can_perturb(source.case), _MOST_TIES
    for w in weighings:
        answer = answers[w.question.position]
        if answer.grade is Grade.TIE and left:
            left -= 1
            found, test = brink.distance(w, source.case, source.referee, source.working_dtype)
        elif answer.grade is Grade.BUG and isinstance(w, ReachWeighing) and can_perturb:
            found, test = math.inf, ""
        else:
            continue
        evidence = replace(answer.evidence, tie_distance=found, tie_test=test)
        answers[w.question.position] = replace(answer, evidence=evidence)


def _answer(case: Case, weighing: Weighing, source: _Draws, is_wild: bool) -> Answer:
    """Return a weighing's answer; the relative look has no vote where the rounding test could not run."""
    if weighing.question.is_relative and draws.ROUNDED not in source.tests and not weighing.is_settled:
        return _without_referee(case, weighing.question, "the rounding test could not run", is_wild)
    answer = weighing.answer(source.count)
    if source.referee.is_of_file and answer.side == TORCH:
        # the file gives ORT's answer: then export may have changed the meaning as well as torch may be wrong
        note = "the ONNX file gives ORT's answer: it means something else than the module, or torch is wrong"
        return Answer(answer.grade, replace(answer.evidence, note=note))
    return answer


def _observe(weighings: Sequence[Weighing], outcomes: Iterator[Outcome], *, least: int = 0) -> None:
    """Show at least some draws to the weighings, then more until each is settled."""
    while least > 0 or not all(w.is_settled for w in weighings):
        outcome = next(outcomes, None)
        if outcome is None:
            return
        least -= 1
        for w in weighings:
            w.observe(*outcome)


def _break_ties(weighings: Sequence[Weighing], source: _Draws) -> None:
    """Look for ORT's answer among those of inputs whose equal values differ by less than an ulp.

    Zeros take part only where moving all of them by one amount does not already give ORT's answer: that would be a
    threshold at zero, which an engine must get right, and not an order among equals.
    """
    undecided = [w for w in weighings if w.may_be_tie and not w.is_settled]
    jumping = [w for w in weighings if w.may_jump and w.is_settled]
    if draws.can_perturb(source.case):
        _show(jumping, source.ramps(0.0))
    _order_nonfinite([w for w in weighings if isinstance(w, NonfiniteWeighing) and w.may_be_order], source)
    if not undecided:
        return
    if draws.can_perturb(source.case):
        _observe(undecided, source.ramps(0.0))
    for zero_size in draws.zero_sizes(source.case, source.working_dtype):
        _observe(_by_order(undecided, source.zeros_alike(zero_size)), source.ramps(zero_size))
    left = [w for w in undecided if not w.is_settled]
    if left and not source.case.is_finite:
        outcomes = source.ordered_nonfinite()
        _observe(_by_order(left, _outputs_of(outcomes)), outcomes)


def _order_nonfinite(weighings: Sequence[NonfiniteWeighing], source: _Draws) -> None:
    """Show ramps to patterns of NaN and infinity, which another order of equals may give; zeros as above."""
    if not weighings:
        return
    if draws.can_perturb(source.case):
        _show(weighings, source.ramps(0.0))
    for zero_size in draws.zero_sizes(source.case, source.working_dtype):
        _show(_by_order(weighings, source.zeros_alike(zero_size)), source.ramps(zero_size))
    if not source.case.is_finite:
        outcomes = source.ordered_nonfinite()
        _show(_by_order(weighings, _outputs_of(outcomes)), outcomes)


def _by_order(weighings: Sequence[Weighing], alike: tuple[Array, ...] | None) -> list[Weighing]:
    """Return those whose other answer an order may give: moving equal values all alike gives it not."""
    return [w for w in weighings if alike is not None and not w.is_given_by(alike)]


def _outputs_of(outcomes: Iterator[Outcome]) -> tuple[Array, ...] | None:
    """Take the next draw's outputs, None where there is none."""
    outcome = next(outcomes, None)
    return None if outcome is None else outcome[1]


def _show(weighings: Sequence[Weighing], outcomes: Iterator[Outcome]) -> None:
    """Show all draws to weighings, settled or not."""
    for outcome in outcomes if weighings else ():
        for w in weighings:
            w.observe(*outcome)


def _without_referee(case: Case, question: Question, why: str, is_wild: bool) -> Answer:
    """Judge without the exact answer: see the module's docstring, and the constants for the bound.

    On wild inputs no bound on a number holds: a cancellation can lose every digit.
    """
    kind = question.kind
    if kind is Kind.NUMERIC:
        is_beyond = not is_wild and question.exceeds(COARSE_RTOL, COARSE_SCALE)
    elif kind is Kind.NONFINITE:
        # products of up to four inputs stay finite: then no formulation overflows by itself
        limit = precision(question.working_dtype).largest ** 0.25
        is_beyond = not case.is_finite or draws.largest_input(case) <= limit
    else:
        is_beyond = kind is not Kind.DECISION or not draws.has_floats(case)
    note = "beyond what noise explains" if is_beyond else "nobody can tell a fault from arithmetic here"
    grade = Grade.BUG if is_beyond else Grade.NOTE
    return Answer(grade, evidence=Evidence(source=f"missing: {why}", note=note))
