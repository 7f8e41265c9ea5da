import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fuzzparity.oracle import Allowance, compare
from fuzzparity.verdict import Kind

DEFAULT = Allowance(1.3e-6, 1e-5)
NONE = Allowance(0.0, 0.0)
DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128]


def array(*values, dtype=np.float32):
    return np.array(values, dtype)


def test_shape_comes_before_dtype_and_dtype_before_values():
    one = compare(np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float64), DEFAULT)
    assert (one.kind, one.error_ratio, one.detail) == (Kind.SHAPE, math.inf, "shape [2, 4] / [3, 4]")
    assert compare(np.zeros(()), np.zeros(1), DEFAULT).kind is Kind.SHAPE
    two = compare(array(1), array(math.nan, dtype=np.float64), DEFAULT)
    assert (two.kind, two.detail) == (Kind.DTYPE, "dtype float32 / float64")
    assert compare(array(1), array(1, dtype=np.int32), DEFAULT).kind is Kind.DTYPE


@pytest.mark.parametrize("dtype", [*DTYPES, np.int64, np.bool_, ml_dtypes.int4])
def test_empty_arrays_agree_when_shape_and_dtype_do(dtype):
    assert compare(np.zeros((0, 3), dtype), np.zeros((0, 3), dtype), NONE).kind is Kind.AGREE
    assert compare(np.zeros((0, 3), dtype), np.zeros((0, 2), dtype), NONE).kind is Kind.SHAPE


@pytest.mark.parametrize("dtype", DTYPES[:4])
def test_nan_infinity_and_signed_zero_equal_themselves_whatever_their_bits(dtype):
    e, a = array(math.nan, math.inf, -math.inf, 0.0, 1.0, dtype=dtype), array(0, 0, 0, 0, 1.0, dtype=dtype)
    a[:4] = [-math.nan, math.inf, -math.inf, -0.0]
    for allowance in (DEFAULT, NONE, Allowance(0, 0, floor=1e-6)):
        found = compare(e, a, allowance)
        assert (found.kind, found.error_ratio) == (Kind.AGREE, 0.0)


@pytest.mark.parametrize(
    "pair", [(1, math.nan), (math.nan, 1), (math.inf, -math.inf), (math.inf, 3e38), (math.nan, math.inf)]
)
@pytest.mark.parametrize("size", [2, 5000])
def test_a_pattern_that_differs_in_one_place_is_nonfinite_and_says_where(pair, size):
    e, a = np.ones(size, np.float32), np.ones(size, np.float32)
    e[size - 1], a[size - 1] = pair
    found = compare(e, a, Allowance(1e6, 1e30))
    assert (found.kind, found.error_ratio, found.index, found.differing) == (Kind.NONFINITE, math.inf, (size - 1,), 1)
    np.testing.assert_array_equal(np.float32([found.expected_at, found.actual_at]), np.float32(pair))


def test_one_error_of_a_hundred_percent_among_a_million_is_seen():
    e = np.ones(10**6, np.float32)
    a = e.copy()
    a[123_456] = 0
    found = compare(e.reshape(1000, 1000), a.reshape(1000, 1000), DEFAULT)
    assert (found.kind, found.index, found.differing) == (Kind.NUMERIC, (123, 456), 1)
    assert found.error_ratio == pytest.approx(1 / 1.13e-5, rel=1e-4)
    assert (found.max_abs, found.scaled) == (1.0, 1.0)


def test_integers_are_compared_as_integers_over_their_whole_range():
    big = 2**62
    found = compare(array(big, dtype=np.int64), array(big + 1, dtype=np.int64), DEFAULT)
    assert (found.kind, found.expected_at, found.actual_at, found.max_abs) == (Kind.DECISION, big, big + 1, 1.0)
    info = np.iinfo(np.int64)
    extreme = compare(array(info.min, dtype=np.int64), array(info.max, dtype=np.int64), DEFAULT)
    assert extreme.max_abs == 2.0**64
    unsigned = compare(array(0, dtype=np.uint8), array(255, dtype=np.uint8), DEFAULT)
    assert (unsigned.max_abs, unsigned.actual_at) == (255.0, 255)
    four = compare(array(7, dtype=ml_dtypes.int4), array(-8, dtype=ml_dtypes.int4), DEFAULT)
    assert (four.kind, four.max_abs) == (Kind.DECISION, 15.0)
    flag = compare(array(True, dtype=bool), array(False, dtype=bool), DEFAULT)
    assert (flag.kind, flag.expected_at, flag.actual_at) == (Kind.DECISION, True, False)


def test_only_a_users_tolerance_lets_integers_differ():
    e, a = array(100, 7, dtype=np.uint8), array(101, 7, dtype=np.uint8)
    assert compare(e, a, Allowance(0, 1)).kind is Kind.DECISION
    assert compare(e, a, Allowance(0, 1, is_users=True)).kind is Kind.AGREE
    assert compare(e, a, Allowance(0, 0, is_users=True)).kind is Kind.DECISION


def test_complex_numbers_are_compared_by_parts():
    found = compare(array(1 + 2j, dtype=np.complex64), array(1 + 2.5j, dtype=np.complex64), DEFAULT)
    assert (found.kind, found.max_abs, found.index) == (Kind.NUMERIC, 0.5, (0, 1))
    broken = compare(array(complex(1, math.nan), dtype=complex), array(1 + 1j, dtype=complex), DEFAULT)
    assert broken.kind is Kind.NONFINITE


def test_the_floor_allows_a_share_of_the_largest_expected_value():
    e, a = array(1000, 1e-3), array(1000, 1.5e-3)
    assert compare(e, a, DEFAULT).kind is Kind.NUMERIC
    assert compare(e, a, Allowance(1.3e-6, 1e-5, floor=1e-6)).kind is Kind.AGREE


def test_ulp_distance_counts_the_values_between():
    for dtype, step in ((np.float32, 3), (np.float16, 2), (ml_dtypes.bfloat16, 2)):
        e = array(1.0, dtype=dtype)
        a = (e.view(f"u{e.dtype.itemsize}") + np.array(step, f"u{e.dtype.itemsize}")).view(dtype)
        assert compare(e, a, NONE).ulp == step
    across = compare(array(np.float32(1e-45)), array(np.float32(-1e-45)), NONE)
    assert across.ulp == 2


def test_huge_differences_do_not_overflow_into_agreement():
    assert compare(array(3e38), array(-3e38), Allowance(1e-3, 0)).kind is Kind.NUMERIC
    assert compare(array(1e308, dtype=np.float64), array(-1e308, dtype=np.float64), DEFAULT).kind is Kind.NUMERIC


def test_arrays_in_any_memory_order_are_compared_by_position():
    e = np.arange(6000, dtype=np.float32).reshape(60, 100)
    a = np.asfortranarray(e)
    assert compare(e, a, NONE).error_ratio == 0.0
    assert compare(e[:, ::-1], a[:, ::-1], NONE).kind is Kind.AGREE
    wrong = a.copy(order="F")
    wrong[3, 7] += 1
    assert compare(e, wrong, NONE).index == (3, 7)
    big = e.astype(">f4")
    assert compare(big, big.copy(), NONE).kind is Kind.AGREE


ANY = hnp.arrays(np.float32, st.shared(hnp.array_shapes(max_dims=3, max_side=4), key="s"), elements=st.floats(width=32))


@settings(max_examples=300, deadline=None)
@given(
    e=ANY, a=ANY, dtype=st.sampled_from(DTYPES[:4]), rtol=st.sampled_from([0, 1e-3]), atol=st.sampled_from([0, 1e-5])
)
def test_the_answer_is_that_of_a_plain_loop_over_elements(e, a, dtype, rtol, atol):
    with np.errstate(all="ignore"):
        e, a = e.astype(dtype), a.astype(dtype)
    found = compare(e, a, Allowance(rtol, atol))
    ratios = []
    for x, y in zip(e.astype(np.float64).ravel().tolist(), a.astype(np.float64).ravel().tolist(), strict=True):
        if x == y or (math.isnan(x) and math.isnan(y)):
            ratios.append(0.0)
        elif not (math.isfinite(x) and math.isfinite(y)):
            assert found.kind is Kind.NONFINITE
            return
        else:
            allowed = atol + rtol * abs(x)
            ratios.append(abs(x - y) / allowed if allowed else math.inf)
    assert found.kind is (Kind.NUMERIC if max(ratios) > 1 else Kind.AGREE)
    # float32 arithmetic of the quick pass
    assert found.error_ratio == pytest.approx(max(ratios), rel=1e-5, abs=1e-30)
