"""Diverse choice: one pass, bounded, deterministic, and the ends of the data stay."""

from __future__ import annotations

import numpy as np
import pytest

from fuzzparity.case import Case
from fuzzparity.generate.diverse import DiverseChoice


def case(value: float, size: int = 6, spread: float = 0.0) -> Case:
    return Case({"x": (value + spread * np.linspace(-1, 1, size, dtype=np.float32)).reshape(1, size)})


def chosen(cases: list[Case], limit: int, max_bytes: int = 1 << 20) -> list[Case]:
    choice = DiverseChoice(case(0, spread=1), limit, max_bytes)
    for one in cases:
        choice.offer(one)
    return list(choice.cases)


def test_all_are_kept_in_their_order_where_there_is_room() -> None:
    cases = [case(value) for value in (3, 1, 2, 1)]
    assert chosen(cases, 10) == cases[:3]


def test_one_of_each_kind_is_chosen_out_of_crowds() -> None:
    rng = np.random.default_rng(0)
    kinds = [(0.0, 6, 0.5), (5.0, 6, 0.5), (-5.0, 6, 2.0), (0.0, 60, 0.5), (0.0, 6, 3.0)]
    crowd = [case(value + 0.01 * rng.normal(), size, spread) for value, size, spread in kinds for _ in range(100)]
    rng.shuffle(crowd)  # type: ignore[arg-type]
    found = chosen(crowd, 12)
    assert len(found) == 12
    shapes = {one.inputs["x"].shape for one in found}
    assert shapes == {(1, 6), (1, 60)}
    means = [float(one.inputs["x"].mean()) for one in found]
    assert any(mean > 4 for mean in means)
    assert any(mean < -4 for mean in means)
    assert chosen(crowd, 12) == found


def test_the_chosen_span_what_all_of_the_data_spans() -> None:
    rng = np.random.default_rng(1)
    cases = [case(rng.normal(), int(rng.integers(3, 9)), abs(rng.normal())) for _ in range(300)]
    found = chosen(cases, 16)
    for ends in (lambda one: one.inputs["x"].max(), lambda one: -one.inputs["x"].min(), lambda one: one.elements):
        assert max(map(ends, found)) == max(map(ends, cases))
    assert min(one.elements for one in found) == min(one.elements for one in cases)


@pytest.mark.parametrize("limit", [1, 2])
def test_fewer_places_than_ends_are_filled_all_the_same(limit: int) -> None:
    assert len(chosen([case(value) for value in range(50)], limit)) == limit


def test_bytes_are_bounded_and_odd_values_do_no_harm() -> None:
    odd = [
        Case({"x": np.zeros((0, 3), np.float32)}),
        Case({"x": np.full((1, 2), np.nan, np.float32)}),
        Case({"x": np.full((1, 2), np.inf, np.float32)}),
        Case({"x": np.full((1, 2, 3, 3), 3e38, np.float32)}),
        Case({"x": np.array(2**62)}),
        Case({"x": np.array([True, False])}),
    ]
    assert chosen(odd, 10) == odd
    many = [case(value, 100) for value in range(20)]
    assert len(chosen(many, 20, max_bytes=1200)) == 3
    assert chosen([case(0, 1000)], 5, max_bytes=100) == []
