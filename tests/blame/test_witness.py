"""With which side an arbiter agrees, for every kind of difference."""

import numpy as np
import pytest

from fuzzparity.blame.witness import sides_with
from fuzzparity.execution import ORT, TORCH, Execution, Refusal, Status
from fuzzparity.verdict import Kind


def answered(*outputs: object, dtype: str = "float32") -> Execution:
    return Execution("any", Status.OK, tuple(np.asarray(output, dtype) for output in outputs))


REFUSED = Execution("any", Status.REFUSED, refusal=Refusal("ValueError", "no"))
DEAD = Execution("any", Status.CRASHED, signal=11)
HUNG = Execution("any", Status.HANG)


@pytest.mark.parametrize(
    ("third", "side"),
    [
        ([1.0, 2.0, 3.0], TORCH),
        ([1.0, 2.5, 3.0], ORT),
        ([1.0, 2.51, 3.9], ORT),  # only the element that differs speaks
        ([1.0, 2.25, 3.0], "neither"),
        ([1.0, 9.0, 3.0], "neither"),
        ([1.0, np.nan, 3.0], "neither"),
    ],
)
def test_numbers_agree_with_the_side_they_are_close_to(third: list[float], side: str):
    torch, ort = answered([1.0, 2.0, 3.0]), answered([1.0, 2.5, 3.0])
    assert sides_with(Kind.NUMERIC, 0, torch, ort, answered(third)) == side


@pytest.mark.parametrize(
    ("third", "side"),
    [([np.nan, 1.0], TORCH), ([0.0, 1.0], ORT), ([np.inf, 1.0], "neither")],
)
def test_patterns_are_compared_where_they_differ(third: list[float], side: str):
    assert sides_with(Kind.NONFINITE, 0, answered([np.nan, 1.0]), answered([0.0, 1.0]), answered(third)) == side


def test_shapes_and_dtypes():
    two, three = answered([1.0, 2.0]), answered([1.0, 2.0, 3.0])
    assert sides_with(Kind.SHAPE, 0, two, three, answered([7.0, 8.0])) == TORCH
    assert sides_with(Kind.SHAPE, 0, two, three, answered([7.0])) == "neither"
    assert sides_with(Kind.DTYPE, 0, two, answered([1.0, 2.0], dtype="float64"), two) == TORCH


def test_integers_are_compared_as_integers():
    large = 2**62
    torch, ort = answered([large, 5], dtype="int64"), answered([large + 1, 5], dtype="int64")
    assert sides_with(Kind.DECISION, 0, torch, ort, answered([large, 9], dtype="int64")) == TORCH
    assert sides_with(Kind.DECISION, 0, torch, ort, answered([large + 1, 9], dtype="int64")) == ORT


def test_what_a_side_did_comes_first():
    answer = answered([1.0])
    assert sides_with(Kind.CRASH, None, answer, DEAD, answered([5.0])) == TORCH
    assert sides_with(Kind.CRASH, None, answer, DEAD, DEAD) == ORT
    assert sides_with(Kind.ERROR_SPLIT, None, REFUSED, answer, REFUSED) == TORCH
    assert sides_with(Kind.ERROR_SPLIT, None, REFUSED, answer, answer) == ORT


def test_an_arbiter_that_hangs_is_no_vote_unless_a_side_hangs_too():
    assert sides_with(Kind.CRASH, None, answered([1.0]), DEAD, HUNG) == ""
    assert sides_with(Kind.CRASH, None, REFUSED, DEAD, DEAD) == ORT
    assert sides_with(Kind.CRASH, None, REFUSED, DEAD, REFUSED) == TORCH
    assert sides_with(Kind.CRASH, None, REFUSED, DEAD, answered([1.0])) == "neither"
    assert sides_with(Kind.HANG, None, answered([1.0]), HUNG, HUNG) == ORT


def test_an_answer_that_agrees_with_both_is_no_vote():
    same = answered([1.0])
    assert sides_with(Kind.NUMERIC, 0, same, same, same) == ""
