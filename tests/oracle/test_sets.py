"""Outputs that are sets: items in any order, within the user's tolerance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzparity import InvalidTarget, Target, Tolerance
from fuzzparity.case import Case
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle import Oracle, Policy
from fuzzparity.oracle.compare import Allowance
from fuzzparity.oracle.sets import MOST_ITEMS, reordered
from fuzzparity.verdict import Kind, Realism

HALF = Allowance(0.0, 0.5, is_users=True)


def kind_of(e, a, tolerance):
    oracle = Oracle(("y",), Policy(("y",), tolerances={"y": tolerance}), lambda c: "", lambda c: Realism.NEAR)
    sides = (Execution(side, Status.OK, (np.asarray(x),)) for side, x in ((TORCH, e), (ORT, a)))
    return oracle.judge(Case({"x": np.zeros(1)}), *sides, None).kind


@given(st.permutations(range(7)), st.integers(0, 2**16))
def test_any_order_of_the_same_items_agrees_and_one_item_that_is_off_does_not(order, seed):
    e = np.random.default_rng(seed).uniform(0, 100, (2, 7, 4)).astype(np.float32)
    a = e[:, list(order)] + np.float32(0.25)
    tolerance = Tolerance(atol=0.5, unordered=1)
    assert kind_of(e, a, tolerance) is Kind.AGREE
    a[1, 3, 2] += 300
    assert kind_of(e, a, tolerance) is Kind.NUMERIC


def test_a_batch_is_no_set_and_without_the_word_order_counts():
    e = np.arange(6.0).reshape(2, 3)
    assert kind_of(e, e[:, ::-1], Tolerance(unordered=-1)) is Kind.AGREE
    assert kind_of(e, e[::-1], Tolerance(unordered=-1)) is Kind.NUMERIC
    assert kind_of(e, e[::-1], Tolerance(unordered=0)) is Kind.AGREE
    assert kind_of(e, e[:, ::-1], Tolerance()) is Kind.NUMERIC
    assert kind_of(e, e[:1], Tolerance(unordered=0)) is Kind.SHAPE


def test_indices_are_sets_too_and_no_item_may_be_used_twice():
    assert kind_of(np.array([3, 1, 2]), np.array([1, 2, 3]), Tolerance(unordered=0)) is Kind.AGREE
    assert kind_of(np.array([3, 1, 2]), np.array([1, 1, 3]), Tolerance(unordered=0)) is Kind.DECISION
    assert kind_of(np.array([np.nan, 1.0]), np.array([1.0, np.nan]), Tolerance(unordered=0)) is Kind.AGREE


def test_every_item_gets_a_partner_within_its_tolerance_where_there_is_such_a_pairing():
    e, a = np.array([0.0, 0.4, 0.8]), np.array([0.4, 0.8, 1.2])  # by nearness alone 0.0 would be left with 1.2
    assert np.abs(reordered(e, a, 0, HALF) - e).max() <= 0.5
    e = np.arange(40.0) * 0.4
    assert np.abs(reordered(e, np.random.default_rng(1).permutation(e + 0.4), 0, HALF) - e).max() <= 0.5


def test_large_sets_are_paired_by_their_values():
    e = np.random.default_rng(2).uniform(size=(MOST_ITEMS + 1, 3))
    a = np.random.default_rng(3).permutation(e)
    assert np.array_equal(reordered(e, a, 0, HALF), e)


def test_the_axis_is_a_number_and_a_slice_is_no_set():
    with pytest.raises(InvalidTarget, match="give the axis"):
        Tolerance(unordered="items")
    with pytest.raises(InvalidTarget, match="name the whole output"):
        Target(module=print, inputs={"x": np.zeros(1)}, tolerances={"y[0]": Tolerance(unordered=0)})
