import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzparity.execution import Execution, Status
from fuzzparity.oracle.compare import Allowance, compare
from fuzzparity.report.needed import needed, needed_for
from fuzzparity.verdict import Comparison, Grade, Kind, Verdict

FINITE = st.floats(-(2.0**99), 2.0**99, width=32).filter(lambda x: x == 0 or abs(x) >= 2.0**-100)  # no subnormals


def agrees(e, a, rtol, atol):
    return compare(e, a, Allowance(rtol, atol, is_users=True)).kind is Kind.AGREE


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=6))
def test_the_tolerances_do_and_a_tenth_less_does_not(values):
    e, a = (np.array(side, np.float32) for side in zip(*values, strict=True))
    found = needed(e, a)
    if found.atol is not None:
        assert agrees(e, a, 0.0, found.atol)
        assert not found.atol or not agrees(e, a, 0.0, found.atol * 0.9)
    if found.rtol is not None:
        assert agrees(e, a, found.rtol, 0.0)
        assert not found.rtol or not agrees(e, a, found.rtol * 0.9, 0.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.complex64])
def test_figures_are_those_of_plain_arithmetic(dtype):
    found = needed(np.array([1.0, -4.0, 0.5], dtype), np.array([1.0, -4.25, 0.5625], dtype))
    assert (found.atol, found.rtol) == (0.25, 0.13)  # 0.0625 of 0.5 is 0.125
    assert found.text == "agrees from atol 0.25 (rtol 0) or rtol 0.13 (atol 0) on"


def test_no_relative_tolerance_covers_an_error_at_zero_and_none_covers_nan():
    assert needed(np.zeros(2, np.float32), np.float32([0, 2**-10])).text == "agrees from atol 0.00098 (rtol 0) on"
    assert needed(np.float32([1, np.nan]), np.float32([1, 2])) is None
    assert needed(np.float32([np.inf, np.nan, 2]), np.float32([np.inf, np.nan, 3])).atol == 1.0
    assert needed(np.zeros(2, np.float32), np.zeros(3, np.float32)) is None
    assert needed(np.zeros(2, np.int64), np.ones(2, np.int64)) is None
    assert needed(np.zeros(0, np.float32), np.zeros(0, np.float32)) is None


def test_a_slice_with_a_tolerance_of_its_own_is_looked_at_alone():
    def ran(side, y):
        return Execution(side, Status.OK, (np.float32(y), np.float32([0])))

    expected, actual = ran("torch", [[1, 10], [1, 10]]), ran("ort", [[1.5, 12], [1, 10]])
    whole = Verdict(Kind.NUMERIC, Grade.BUG, "y", comparison=Comparison(Kind.NUMERIC))
    part = Verdict(Kind.NUMERIC, Grade.BUG, "y", comparison=Comparison(Kind.NUMERIC, region="y[..., :1]"))
    assert needed_for(whole, ("y", "z"), expected, actual).atol == 2.0
    assert needed_for(part, ("y", "z"), expected, actual).atol == 0.5
    assert needed_for(Verdict(Kind.SHAPE, Grade.BUG, "y"), ("y", "z"), expected, actual) is None
    assert needed_for(whole, ("y", "z"), expected, None) is None
