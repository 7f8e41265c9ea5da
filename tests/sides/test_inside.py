"""Roundings inside one operator: distances that cancel, and sums so long that their partial sums matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_models import case, loaded

from fuzzparity.sides.inside import LONG, euclidean_distances
from fuzzparity.sides.referee import Referee


def move(forward: Any, **inputs: np.ndarray[Any, Any]) -> float:
    """Return the largest move of the exact answer under the rounding test."""
    referee, one = Referee(loaded(forward, inputs)), case(**inputs)
    exact = referee.exact(one)
    assert exact is not None, referee.missing
    moved = [referee.rounded(one, draw) for draw in range(12)]
    return max(float(np.abs(each[0] - exact[0]).max()) for each in moved if each is not None)


def test_distances_of_near_points_far_away_are_rounded_as_the_squares_that_cancel() -> None:
    x = (np.random.default_rng(0).normal(size=(40, 3)) * 1e-2 + 100).astype(np.float32)
    wide = torch.from_numpy(x).double()
    torch.testing.assert_close(euclidean_distances(wide, wide), torch.cdist(wide, wide), rtol=1e-6, atol=1e-5)
    narrow = torch.from_numpy(x)
    error = float((torch.cdist(narrow, narrow) - torch.cdist(wide, wide)).abs().max())
    assert error / 8 < move(lambda x: torch.cdist(x, x), x=x)


def test_a_long_sum_by_lanes_in_float32_lies_within_eight_moves() -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=200_000) + 1e6).astype(np.float32)
    lanes = np.cumsum(x.reshape(-1, 8), axis=0, dtype=np.float32)[-1]  # as a kernel does with vectors of 8 floats
    error = abs(float(lanes.sum()) - x.astype(np.float64).sum())
    assert error > 64 * 2.0**-24 * 2e11 / 200_000**0.5  # 8 times what rounding the terms alone would explain
    assert error < 8 * move(lambda x: x.sum(0, keepdim=True), x=x)


def test_a_sum_of_usual_length_by_lanes_lies_within_eight_moves_where_its_partial_sums_are_large() -> None:
    x = np.full((1, 512), np.float32(999.72035), np.float32)  # a feature on an offset, of which the mean is taken off
    lanes = np.cumsum(x.reshape(-1, 8), axis=0, dtype=np.float32)[-1]
    mean = lanes.sum(dtype=np.float32) / np.float32(512)
    error = abs(float(mean) - float(x[0, 0]))
    assert error > 8 * float(np.spacing(np.float32(999.0)))  # beyond what rounding the terms and the result explains
    assert error < 8 * move(lambda x: x.mean(1), x=x)


def test_what_cancels_in_a_sum_of_usual_length_and_a_sum_in_halves_move_by_their_terms_alone() -> None:
    x = np.random.default_rng(0).normal(size=LONG).astype(np.float32)
    x[LONG // 2 :] = -x[: LONG // 2]
    assert move(lambda x: x.sum(0, keepdim=True), x=x) < 8 * LONG**0.5 * 2.0**-24
    half = np.full(LONG, 0.1, np.float16)  # added up in float32 by every engine
    total = float(half.astype(np.float64).sum())
    referee, one = Referee(loaded(lambda x: x.sum(0, keepdim=True), {"x": half}), "float16"), case(x=half)
    moved = [referee.rounded(one, draw) for draw in range(12)]
    assert max(abs(float(each[0][0]) - total) for each in moved if each is not None) < 2 * 2.0**-10 * total


def test_a_long_count_stays_exact() -> None:
    x = np.random.default_rng(0).normal(size=3 * LONG).astype(np.float32)
    assert move(lambda x: (x > 0).to(x.dtype).sum(0, keepdim=True), x=x) == 0.0
    assert move(lambda x: x.round().sum(), x=x) == 0.0


def test_a_resize_of_a_long_side_is_off_by_its_rounded_positions() -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 7, 1000)).astype(np.float32)

    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=(11, 13), mode="bicubic")

    wide = torch.from_numpy(x)
    error = float((forward(wide) - forward(wide.double())).abs().max())
    assert error > 1e-4  # far beyond the roundings of values of size 1
    assert error / 4 < move(forward, x=x) < 10 * error


def test_a_nan_that_a_resize_reads_with_weight_0_does_not_hide_the_rounded_position() -> None:
    x = np.float32([0, 0, 425, 0, 0, np.nan, 0]).reshape(1, 1, 7, 1)  # ONNX Runtime reads 2e-7 of the 425
    assert 1e-5 < move(lambda x: torch.nn.functional.interpolate(x, size=(1, 1), mode="bilinear"), x=x) < 1e-3


def test_equal_values_are_put_in_any_order_and_unequal_ones_in_theirs() -> None:
    x = np.array([[0.0, 0.0, 3.0, 0.0, 0.0, 1.0]], np.float32)

    def indices(forward: Any) -> list[tuple[int, ...]]:
        referee, one = Referee(loaded(forward, {"x": x})), case(x=x)
        found = [referee.rounded(one, draw) for draw in range(12)]
        return [tuple(map(int, each[0].reshape(-1))) for each in found if each is not None]

    top = indices(lambda x: (x @ torch.eye(6)).topk(4, -1)[1])
    assert {each[:2] for each in top} == {(2, 5)}
    assert (2, 5, 0, 1) in top  # by their places, as ONNX says
    assert len(set(top)) > 4
    assert len(set(indices(lambda x: torch.sort(x, dim=1)[1]))) > 4
    assert set(indices(lambda x: torch.sort(x, dim=1, stable=True)[1])) == {(0, 1, 3, 4, 5, 2)}


def test_a_product_below_the_smallest_normal_is_rounded_to_the_steps_there_or_to_zero() -> None:
    x = np.array([1e-30, -1e-22, 0.0, 1.5e-20], np.float32)
    referee, one = Referee(loaded(lambda x: x * x.abs(), {"x": x})), case(x=x)
    found = [referee.rounded(one, draw) for draw in range(12)]
    values = np.stack([each[0] for each in found if each is not None])
    step = 2.0**-149
    assert np.array_equal(values[:, :3] / step, np.round(values[:, :3] / step))
    assert (values[:, 0] == 0.0).all()
    assert set(values[:, 1] / step) <= {-8.0, -7.0}
    assert (np.signbit(values[:, 1])).all()
    assert (abs(values[:, 3] - 2.25e-40) <= step).all()


def test_rows_of_equal_values_divided_by_their_deviation_give_what_any_rounding_of_mean_and_deviation_gives() -> None:
    for length in (8, 257):
        x = np.full((1, length), np.float32(0.014266339), np.float32)
        forward = {"x": x}
        referee, one = (
            Referee(loaded(lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True), forward)),
            case(x=x),
        )
        found = [referee.rounded(one, draw) for draw in range(40)]
        values = np.array([each[0][0, 0] for each in found if each is not None])
        assert np.isnan(values).any()  # both exact
        assert (values == np.inf).any() or length == 8
        assert (values == -np.inf).any()  # the mean is off, the deviation is not
        assert np.isfinite(values).any()
    x = np.full((1, 9), 3.0, np.float32)  # whole numbers add up exactly in any order
    assert move(lambda x: x.std(1) + x.mean(1), x=x) == 0.0
    assert move(lambda x, w: x @ w, x=np.ones((1, 9), np.float32), w=np.full((9, 2), 0.5, np.float32)) == 0.0


def test_a_deviation_of_equal_large_values_may_overflow_where_the_mean_is_off() -> None:
    x = np.full((1, 64), 1e30, np.float32)
    referee, one = Referee(loaded(lambda x: x.var(1), {"x": x})), case(x=x)
    found = {float(each[0][0]) for each in (referee.rounded(one, draw) for draw in range(12)) if each is not None}
    assert found == {0.0, np.inf}
    half = np.array([300.0, -250.0], np.float16)
    rounded = Referee(loaded(lambda x: x.abs() * x, {"x": half}), "float16").rounded(case(x=half), 0)
    assert rounded is not None
    assert rounded[0][0] == np.inf
    assert abs(rounded[0][1] + 62500.0) <= 32.0


@pytest.mark.parametrize("norm", [torch.nn.LayerNorm(16), torch.nn.GroupNorm(2, 4), torch.nn.InstanceNorm1d(4)])
def test_a_norm_of_equal_values_is_off_by_an_ulp_of_their_mean_over_its_epsilon(norm: torch.nn.Module) -> None:
    x = np.full((2, 4, 16), np.float32(1234.567), np.float32)
    ulp = float(np.spacing(x[0, 0, 0])) / 1e-5**0.5
    assert ulp / 2 < move(norm, x=x) < 4 * ulp
    spread = np.random.default_rng(0).normal(size=(2, 4, 16)).astype(np.float32)
    assert move(norm, x=spread) < 1e-5
