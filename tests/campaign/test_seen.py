"""Inputs are counted once, row by row or case by case."""

import numpy as np

from fuzzparity.campaign.seen import Seen
from fuzzparity.case import Case


def test_each_row_of_a_stack_counts_once_whatever_comes_with_it():
    seen, rng = Seen(), np.random.default_rng(0)
    rows = rng.standard_normal((200, 7)).astype(np.float32)
    state = rng.standard_normal((2, 200, 3))
    rate = np.asarray(16000)

    def stack(order: list[int]) -> Case:
        return Case({"x": rows[order], "state": state[:, order], "rate": rate})

    assert seen.add_rows(stack(list(range(150))), (0, 1, None)) == 150
    assert seen.add_rows(stack(list(range(199, 99, -1))), (0, 1, None)) == 50
    assert seen.add_rows(stack([3, 3, 7]), (0, 1, None)) == 0
    changed = state.copy()
    changed[1, 3, 2] = np.nextafter(changed[1, 3, 2], 9.0)
    assert seen.add_rows(Case({"x": rows, "state": changed, "rate": rate}), (0, 1, None)) == 1
    assert seen.add_rows(Case({"x": rows[:0], "state": state[:, :0], "rate": rate}), (0, 1, None)) == 0


def test_cases_that_differ_in_a_bit_a_shape_or_a_dtype_are_different():
    seen = Seen()
    zeros = np.zeros((4, 3), np.float32)
    one_bit = zeros.copy()
    one_bit[3, 2] = -0.0
    cases = [zeros, one_bit, zeros.reshape(3, 4), zeros.astype(np.int32), np.zeros((0, 3), np.float32), np.zeros(())]
    assert [seen.add_case(Case({"x": array})) for array in cases] == [True] * len(cases)
    assert [seen.add_case(Case({"x": array})) for array in cases] == [False] * len(cases)


def test_large_and_odd_numbers_of_bytes_are_read_to_the_end():
    seen = Seen()
    large = np.zeros((2, 300_001), np.uint8)
    large[1, -1] = 1
    assert seen.add_rows(Case({"x": large}), (0,)) == 2
