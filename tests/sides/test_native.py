"""Roundings in the precision in which torch computes each operator: a norm of halves that is done in float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from small_models import case, loaded
from test_referee import distance

from fuzzparity.sides.native import Followed, Step, native_steps
from fuzzparity.sides.referee import Referee

ROW = np.random.default_rng(0).normal(1.5, 0.1, size=(2, 3)).astype(np.float16)
HALF = "float16"


def small_beside_large(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return ((wide + 1e-5) - wide) * 1e5


def back_as_it_came(x: torch.Tensor) -> torch.Tensor:
    return small_beside_large(x).to(x.dtype) + x


def spread(forward: Callable[..., torch.Tensor], row: np.ndarray = ROW) -> float:
    return distance(Referee(loaded(forward, {"x": row}), HALF), case(x=row))


def test_what_is_computed_in_float32_is_rounded_to_float32_and_what_comes_back_to_halves() -> None:
    assert spread(lambda x: (small_beside_large(x), x + x)[0].half()) < 0.05, "1e-5 beside 1.5: lost in halves alone"
    apart = spread(back_as_it_came)
    assert 2.0**-11 < apart < 0.05, "the way back rounds to halves, though in float64 it is no cast"
    assert spread(lambda x: ((x + 1e-5) - x) * 1e5) > 0.9, "computed in halves"


def test_a_file_of_halves_beside_a_module_of_floats_is_rounded_to_halves_throughout() -> None:
    row = ROW.astype(np.float32)
    assert spread(small_beside_large, row) > 0.9
    assert native_steps(loaded(small_beside_large, {"x": row}), case(x=row), 10) == ()


def test_a_module_that_takes_another_way_in_float64_is_rounded_to_halves_from_there_on() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x * 1.0 if x.dtype == torch.float16 else x.flip(0).flip(0)
        return small_beside_large(y).half()

    assert spread(forward) > 0.9


def test_the_steps_are_those_of_torch_less_its_casts() -> None:
    target = loaded(back_as_it_came, {"x": ROW})
    assert native_steps(target, case(x=ROW), 10) == (
        Step("add", 23),
        Step("sub", 23),
        Step("mul", 10),  # what is cast afterwards is left with no more
        Step("add", 10),
    )
    assert native_steps(loaded(lambda x: x @ x, {"x": ROW}), case(x=ROW), 10) == (), "torch refuses it"
    followed = Followed((Step("add", 23), Step("mul", 10)))
    assert [followed.next(name) for name in ("_to_copy", "add", "sub", "mul")] == [None, 23, None, None]


def test_one_record_serves_all_draws_of_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    referee, watched = Referee(loaded(back_as_it_came, {"x": ROW}), HALF), []
    monkeypatch.setattr("fuzzparity.sides.referee.native_steps", lambda *given: watched.append(given) or ())
    for row in (ROW, ROW + 1):
        for draw in range(3):
            assert referee.rounded(case(x=row), draw) is not None
    assert len(watched) == 2
