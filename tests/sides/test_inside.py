"""Roundings inside one operator: distances that cancel, and sums so long that their partial sums matter."""

from __future__ import annotations

from typing import Any

import numpy as np
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


def test_a_long_sum_by_lanes_in_float32_lies_within_eight_moves_and_a_short_one_moves_as_before() -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=200_000) + 1e6).astype(np.float32)
    lanes = np.cumsum(x.reshape(-1, 8), axis=0, dtype=np.float32)[-1]  # as a kernel does with vectors of 8 floats
    error = abs(float(lanes.sum()) - x.astype(np.float64).sum())
    assert error > 64 * 2.0**-24 * 2e11 / 200_000**0.5  # 8 times what rounding the terms alone would explain
    assert error < 8 * move(lambda x: x.sum(0, keepdim=True), x=x)
    # of LONG terms: only the terms are rounded
    short = x[:LONG] / np.float32(1e6)
    assert move(lambda x: x.sum(0, keepdim=True), x=short) < 4 * LONG**0.5 * 2.0**-24 + LONG * 2.0**-23


def test_a_long_count_stays_exact() -> None:
    x = np.random.default_rng(0).normal(size=3 * LONG).astype(np.float32)
    assert move(lambda x: (x > 0).to(x.dtype).sum(0, keepdim=True), x=x) == 0.0
    assert move(lambda x: x.round().sum(), x=x) == 0.0
