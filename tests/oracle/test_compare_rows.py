"""A row in a stack is screened as it would be alone: same kind, same error ratio."""

import numpy as np
import pytest

from fuzzparity.case import Array
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle.compare import Allowance, compare
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import Policy
from fuzzparity.oracle.rows import KINDS, compare_rows, look_at_rows
from fuzzparity.target import Tolerance
from fuzzparity.verdict import Kind, Realism

ALLOWANCES = (
    Allowance(1.3e-6, 1e-5),
    Allowance(1.3e-6, 1e-5, floor=1e-4),
    Allowance(0.0, 0.0, is_users=True),
    Allowance(0.0, 2.0, is_users=True),
)


def pair_of(kind: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """Make two outputs of 48 rows, some alike, some off a little, a lot, or in what is not finite."""
    if kind == "int64":
        e = rng.integers(-5, 5, (48, 7))
        return e, np.where(rng.random((48, 1)) < 0.5, e, e + rng.integers(0, 4, (48, 7)))
    if kind == "bool":
        e = rng.random((48, 7)) < 0.5
        return e, np.where(rng.random((48, 7)) < 0.98, e, ~e)
    wide = rng.standard_normal((48, 7)) * 10.0 ** rng.integers(-6, 6, (48, 1))
    other = wide * (1 + 10.0 ** rng.integers(-9, -2, (48, 1)) * rng.standard_normal((48, 7)))
    for array in (wide, other):
        array[rng.random((48, 7)) < 0.01] = np.nan
        array[rng.random((48, 7)) < 0.01] = np.inf
    wide[:4, 0] = other[:4, 0] = np.nan
    wide[4:8, 0] = other[4:8, 0] = -np.inf
    other[8:12] = wide[8:12]
    with np.errstate(all="ignore"):
        if kind == "complex64":
            return (wide + 1j * other).astype(np.complex64), (other + 1j * other).astype(np.complex64)
        return wide.astype(kind), other.astype(kind)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "int64", "bool", "complex64"])
def test_rows_are_screened_as_if_alone(kind: str, axis: int):
    rng = np.random.default_rng(0)
    for allowance in ALLOWANCES:
        e, a = (np.moveaxis(array, 0, axis) for array in pair_of(kind, rng))
        found = compare_rows(e, a, allowance, axis)
        for row in range(48):
            alone = compare(*(np.ascontiguousarray(np.take(array, [row], axis)) for array in (e, a)), allowance)
            assert KINDS[found.kinds[row]] is alone.kind, (row, alone)
            if alone.kind is not Kind.NONFINITE:
                assert found.ratios[row] == pytest.approx(alone.error_ratio, rel=1e-5)


def test_the_relative_look_finds_rows_that_are_small_altogether():
    oracle = Oracle(("y",), Policy(("y",)), lambda case: "", lambda case: Realism.UNKNOWN)
    e = np.full((4, 3), 1e-9, np.float32)
    a = e.copy()
    a[2] *= 1.5
    pair = (Execution(TORCH, Status.OK, (e,)), Execution(ORT, Status.OK, (a,)))
    plain, close = look_at_rows(oracle, *pair, (0,)), look_at_rows(oracle, *pair, (0,), relative=True)
    assert plain is not None
    assert close is not None
    assert not plain.suspicious.any()
    assert close.suspicious.tolist() == [False, False, True, False]
    assert close.key(2).startswith("0:numeric")


def test_a_tolerance_of_the_user_decides_alone():
    oracle = Oracle(
        ("y",), Policy(("y",), tolerances={"y": Tolerance(atol=1.0)}), lambda case: "", lambda case: Realism.UNKNOWN
    )
    e, a = np.zeros((2, 3), np.float32), np.asarray([[0.5, 0, 0], [1.5, 0, 0]], np.float32)
    found = look_at_rows(
        oracle, Execution(TORCH, Status.OK, (e,)), Execution(ORT, Status.OK, (a,)), (0,), relative=True
    )
    assert found is not None
    assert found.suspicious.tolist() == [False, True]


def test_outputs_of_another_form_are_left_to_the_look_at_the_whole():
    oracle = Oracle(("y",), Policy(("y",)), lambda case: "", lambda case: Realism.UNKNOWN)
    e, a = np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)
    assert look_at_rows(oracle, Execution(TORCH, Status.OK, (e,)), Execution(ORT, Status.OK, (a,)), (0,)) is None
