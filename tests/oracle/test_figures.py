"""Figures beside a verdict: noise of the sides, gaps between scores, and how near a tie is to its threshold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from engines import NumpyReferee, f32, judge, make_oracle, run

from fuzzparity.case import Case
from fuzzparity.corpus.plain import from_plain
from fuzzparity.execution import ORT, TORCH
from fuzzparity.oracle.figures import score_gap
from fuzzparity.oracle.spread import one_digit_up
from fuzzparity.verdict import Evidence, Grade, Kind, as_plain


def shifted(delta):
    return lambda r, x: (r(x + np.float32(delta)),)


def test_the_noise_of_each_side_against_itself_is_said_and_none_is_zero():
    case = Case({"x": f32(1, 2, 3)})
    expected, actual, again = (run(shifted(d), case, side) for d, side in ((0, TORCH), (0.1, ORT), (0.1 + 2**-22, ORT)))
    oracle = make_oracle(noise={"y0": 3e-7})
    verdicts = oracle.judge(case, expected, actual, NumpyReferee(shifted(0)), second=(expected, again)).verdicts
    (numeric,) = (v for v in verdicts if v.kind is Kind.NUMERIC)
    assert numeric.evidence.noise == {"torch": 0.0, "ort": pytest.approx(2**-22, rel=0.5)}
    assert numeric.evidence.seed_noise == 3e-7
    assert oracle.judge(case, expected, actual, None).worst.evidence.noise == {}


def ceil_after(shift):
    def ceil(r, x):
        return (np.ceil(r(r(x * x.dtype.type(2)) - x.dtype.type(shift))).astype(np.int64),)

    return ceil


@pytest.mark.parametrize(("ulps", "low", "high"), [(1, 0.3, 1.0), (4, 1.5, 4.0)])
def test_the_distance_of_a_tie_is_that_of_its_threshold_in_units_of_the_tests(ulps, low, high):
    # x lies some ulps above 5, where 2 x rounds up to another integer: ORT does not see so little
    x = f32(5 + ulps * 2.0**-21)
    verdict = judge(ceil_after(0), ceil_after(1e-5), x).worst
    assert (verdict.kind, verdict.grade) == (Kind.DECISION, Grade.TIE)
    # one ulp of 5 is 2^-21, noise of eps of the maximum reaches 1.25 times that
    assert low <= verdict.evidence.tie_distance <= high
    assert verdict.evidence.tie_test in ("one ulp", "eps of maximum")


def test_a_decision_that_nothing_reaches_is_a_bug_at_no_distance():
    verdict = judge(ceil_after(0), ceil_after(1e-2), f32(5.001)).worst
    assert (verdict.grade, verdict.evidence.tie_distance) == (Grade.BUG, math.inf)


def test_equal_values_in_another_order_are_at_the_threshold():
    first = judge(lambda r, x: (x.argmax(-1),), lambda r, x: (x.shape[-1] - 1 - x[..., ::-1].argmax(-1),), f32(2, 2, 1))
    assert (first.worst.grade, first.worst.evidence.tie_distance) == (Grade.TIE, 0.0)


def test_a_length_within_rounding_has_a_distance_too():
    def repeat(step):
        return lambda r, x: (np.zeros(int(np.ceil(r(x[0] * x.dtype.type(1.1)) - x.dtype.type(step)))),)

    verdict = judge(repeat(0), repeat(1e-6), f32(9.09091)).worst
    assert (verdict.kind, verdict.grade) == (Kind.SHAPE, Grade.TIE)
    assert 0.0 < verdict.evidence.tie_distance <= 8.0


def test_a_jump_of_a_number_has_a_distance_too():
    def step(threshold):
        return lambda r, x: (r(np.where(x > threshold, 10.0, 0.0)),)

    verdict = judge(step(3.0), step(np.nextafter(np.float32(3), np.float32(4))), f32(3.0000002)).worst
    assert (verdict.kind, verdict.grade) == (Kind.NUMERIC, Grade.TIE)
    assert 0.5 <= verdict.evidence.tie_distance <= 1.5


def test_the_gap_between_scores_is_given_where_an_output_plainly_holds_them():
    scores = f32([1, 2, 3], [5, 4, 5 - 2**-20])
    other = f32([1, 2, 3], [5 - 2**-20, 4, 5])
    choice, others = scores.argmax(-1), other.argmax(-1)
    assert score_gap((choice, scores), (others, other), 0) == 2.0
    assert score_gap((scores, choice), (other, others), 1) == 2.0
    top, tops = np.array([[0, 2], [1, 0]]), np.array([[2, 0], [1, 0]])
    assert score_gap((f32([3, 3], [2, 1]), top), (f32([3, 3], [2, 1]), tops), 1) == 0.0
    # no scores: not what was chosen from, or no float output at all
    assert score_gap((choice, -scores), (others, -other), 0) is None
    assert score_gap((choice,), (others,), 0) is None


def test_one_digit_rounds_up_and_never_down():
    assert [one_digit_up(x) for x in (0.0021, 0.003, 9.5, 1e-30, 0.95, 1.0)] == [0.003, 0.003, 10.0, 1e-30, 1.0, 1.0]
    for x in np.random.default_rng(0).lognormal(0, 20, 500).tolist():
        assert x <= one_digit_up(x) <= 2.0 * x


def test_evidence_of_an_older_database_still_loads_and_the_new_one_survives():
    old = {"source": "torch float64", "torch_distance": 1e-7, "ort_distance": 1.0, "draws": 44, "far_sides": ["ort"]}
    old |= {"moves": {"one ulp": 1e-8}, "note": ""}
    assert from_plain(Evidence, old).tie_distance is None
    new = Evidence("torch float64", noise={"ort": 0.0}, tie_distance=math.inf, excess={"ort": 4.1e3}, condition=12.0)
    assert from_plain(Evidence, as_plain(new)) == new


def test_many_ties_that_rounding_flips_now_and_then_are_a_tie_and_a_wrong_one_among_them_is_a_bug():
    def compared(r, x):
        return (r(x * x.dtype.type(0.3)) > r(r(x / x.dtype.type(3)) * x.dtype.type(0.9)),)

    def other(r, x):
        return (np.where(np.arange(x.size) % 2, ~compared(r, x)[0], compared(r, x)[0]),)

    x = np.abs(np.random.default_rng(3).standard_normal(64)).astype(np.float32) + np.float32(0.5)
    verdict = judge(compared, other, x).worst
    assert (verdict.kind, verdict.grade) == (Kind.DECISION, Grade.TIE)

    def wrong(r, x):
        return (np.append(other(r, x)[0], x[0] < 0),)

    verdict = judge(lambda r, x: (np.append(compared(r, x)[0], x[0] > 0),), wrong, x).worst
    assert (verdict.kind, verdict.grade) == (Kind.DECISION, Grade.BUG)
