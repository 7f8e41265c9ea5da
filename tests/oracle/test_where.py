"""compare_where: elsewhere nothing counts but shape and dtype, for the sides and for the exact answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from engines import NumpyReferee, f32, make_oracle

from fuzzparity.case import Case
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle.where import MaskedReferee, Where, aligned
from fuzzparity.verdict import Judgement, Kind

MASK = np.array([[1, 1, 0], [1, 0, 0]])
CASE = Case({"x": np.ones((2, 3, 4), np.float32), "mask": MASK})
PADDED: Callable[[dict[str, Any]], Any] = lambda inputs: {"y": inputs["mask"] > 0}  # noqa: E731


def executions(expected: np.ndarray, actual: np.ndarray, where: Where, case: Case = CASE) -> list[Execution]:
    pair = ((TORCH, expected), (ORT, actual))
    return [where.applied(case, Execution(side, Status.OK, (array,))) for side, array in pair]


def judged(expected: np.ndarray, actual: np.ndarray) -> Judgement:
    first, other = executions(expected, actual, Where(PADDED, ("y",)))
    return make_oracle().judge(CASE, first, other, None)


def test_nan_garbage_and_signs_elsewhere_are_no_difference_and_the_place_is_that_of_the_whole_output() -> None:
    torch = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    ort = torch.copy()
    ort[0, 2], ort[1, 1], ort[1, 2] = np.nan, 1e30, -np.inf
    assert judged(torch, ort).kind is Kind.AGREE
    assert judged(ort, torch).kind is Kind.AGREE
    ort[1, 0, 3] += 1
    found = judged(torch, ort).verdicts[0]
    assert (found.kind, found.comparison.index, found.comparison.differing) == (Kind.NUMERIC, (1, 0, 3), 1)  # type: ignore[union-attr]
    assert judged(torch, ort[:1]).kind is Kind.SHAPE
    assert judged(torch, ort.astype(np.float64)).kind is Kind.DTYPE


@pytest.mark.parametrize("dtype", ["int64", "bool", "float16", "complex64", ml_dtypes.bfloat16])
def test_every_dtype_can_be_cleared(dtype: Any) -> None:
    torch = np.ones((2, 3), dtype)
    ort = torch.copy()
    ort[MASK == 0] = 0
    first, other = executions(torch, ort, Where(PADDED, ("y",)))
    assert first.outputs[0].dtype == torch.dtype
    assert make_oracle().screen(first, other).kind is Kind.AGREE
    assert torch.all(), "the side's own output is left as it was"


def test_a_mask_of_lower_rank_gives_the_leading_dims() -> None:
    mask = np.ones((2, 3), np.bool_)
    assert aligned(mask, (2, 3, 4)).shape == (2, 3, 1)  # type: ignore[union-attr]
    assert aligned(np.array(True), (2, 3)).shape == (1, 1)  # type: ignore[union-attr]
    assert aligned(mask, (3, 2, 3)) is None
    assert aligned(mask, (3, 2, 3), trailing=True).shape == (1, 2, 3)  # type: ignore[union-attr]
    assert aligned(mask, (2,)) is None


def test_masks_that_fit_the_last_dims_of_the_seeds_alone_are_aligned_there_in_every_case() -> None:
    where = Where(lambda inputs: {"y": np.array([True, True, True, False])}, ("y",))
    assert where.settle(CASE, [np.zeros((2, 3, 4))])
    assert where.trailing == ("y",)
    assert not where.settle(CASE, [np.zeros((2, 3, 4))])
    torch = np.zeros((4, 3, 4), np.float32)  # as many rows as columns
    ort = torch.copy()
    ort[..., 3] = 5
    first, other = executions(torch, ort, Where(lambda inputs: {"y": np.array([1, 1, 1, 0])}, ("y",), where.trailing))
    assert make_oracle().screen(first, other).kind is Kind.AGREE


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda inputs: inputs["ids"], "compare_where() raised KeyError: 'ids'"),
        (lambda inputs: {"z": inputs["mask"]}, "names 'z', which is no output"),
        (lambda inputs: {"y": inputs["x"]}, "masks of other types than bool: 'y' float32"),
        (lambda inputs: {"y": np.ones(5, bool)}, "a mask of shape [5]; the output has [2, 3, 4]"),
        (lambda inputs: [1], "compare_where() gave list"),
    ],
)
def test_what_is_wrong_with_it_is_said_on_the_seeds(function: Any, said: str) -> None:
    with pytest.raises(InvalidTarget) as caught:
        Where(function, ("y",)).settle(CASE, [np.zeros((2, 3, 4))])
    assert said in str(caught.value)


def test_where_it_fails_on_a_mutated_case_all_is_compared_and_the_case_is_outside() -> None:
    where = Where(lambda inputs: {"y": inputs["mask"].reshape(2, 3) > 0}, ("y",))
    assert where.problem(CASE) == ""
    empty = Case({"x": np.ones((0, 3, 4), np.float32), "mask": MASK[:0]})
    first, other = executions(np.zeros((2, 3, 4), np.float32), np.ones((2, 3, 4), np.float32), where, empty)
    assert make_oracle().screen(first, other).kind is Kind.NUMERIC
    assert first.where == ()
    assert where.problem(empty).startswith("compare_where() raised ValueError")
    odd = Where(lambda inputs: {"y": inputs["mask"] > 0}, ("y",))
    shorter = np.zeros((2, 2, 4), np.float32)
    executions(shorter, shorter, odd)
    assert "a mask of shape [2, 3]; the output has [2, 2, 4]" in odd.problem(CASE)


def test_the_exact_answer_is_cleared_as_well() -> None:
    case = Case({"x": f32(*np.linspace(0.1, 3, 6)).reshape(2, 3)})
    masks = (MASK[:2].astype(bool),)
    referee = MaskedReferee(NumpyReferee(lambda r, x: (x / (MASK > 0),)), masks)
    for outputs in (referee.exact(case), referee.rounded(case, 0)):
        assert outputs is not None
        assert (outputs[0][MASK == 0] == 0).all()
        assert outputs[0][MASK > 0].all()
