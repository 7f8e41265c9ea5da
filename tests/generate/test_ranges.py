"""Ranges: first seed and data side by side, and warnings with the figures they rest on."""

from __future__ import annotations

import numpy as np
import pytest

from fuzzparity.case import Array, Case
from fuzzparity.generate.ranges import RangeTally, channel_axis

RNG = np.random.default_rng(0)
UNIT = RNG.random((1, 3, 8, 9)).astype(np.float32)
BYTES = np.round(UNIT * 255)
NORMALIZED = (UNIT - np.float32(0.5)) / np.float32(0.25)


def warnings(first: Array, *data: Array) -> list[str]:
    tally = RangeTally(Case({"x": first}))
    for index, array in enumerate(data):
        tally.add(Case({"x": array}), f"file{index}")
    return tally.warnings


def test_spans_are_told_by_channel_over_all_of_the_data() -> None:
    data = [np.stack([np.full((8, 9), c + n, np.float32) for c in range(3)])[None] for n in range(4)]
    tally = RangeTally(Case({"x": UNIT}))
    for array in data:
        tally.add(Case({"x": array}))
    found = tally.ranges()[0]
    assert found.channels == ("0", "1", "2")
    assert [(span.low, span.mean, span.high) for span in found.data] == [(c, c + 1.5, c + 3) for c in range(3)]
    assert found.first[0].high == pytest.approx(UNIT[:, 0].max())


@pytest.mark.parametrize(
    ("first", "data", "said"),
    [
        (UNIT, BYTES, "looks like 0..255 where the first seed is 0..1"),
        (BYTES, UNIT, "looks like 0..1 where the first seed is 0..255"),
        (NORMALIZED, UNIT, "the first seed looks normalized"),
        (NORMALIZED, BYTES, "the first seed looks normalized"),
        (UNIT, NORMALIZED, "the data looks normalized"),
        (UNIT, UNIT.transpose(0, 2, 3, 1), "the layout looks swapped"),
        (UNIT.transpose(0, 2, 3, 1), UNIT, "the layout looks swapped"),
        (UNIT, UNIT * np.float32(np.nan), "hold NaN or infinity"),
    ],
)
def test_data_that_is_fed_wrongly_is_told_with_the_figures(first: Array, data: Array, said: str) -> None:
    found = warnings(first, data, data)
    assert any(said in text for text in found)
    assert all(any(character.isdigit() for character in text) for text in found)


@pytest.mark.parametrize(
    ("first", "data"),
    [
        (UNIT, UNIT * np.float32(0.5)),
        (UNIT, UNIT[:, :, :4, :5]),
        (BYTES, BYTES),
        (NORMALIZED, NORMALIZED * np.float32(1.3)),
        (RNG.normal(size=(2, 20)).astype(np.float32), RNG.random((2, 20)).astype(np.float32)),
        (np.arange(6).reshape(1, 6), np.arange(6).reshape(1, 6) * 40),
        (UNIT * 3, UNIT * 5),
        (np.array([[1, 1, 0]]), np.array([[1, 1, 1]])),  # a mask without padding
        (np.zeros((2, 4), np.float32), np.zeros((2, 4), np.float32)),  # the state before the first step
    ],
)
def test_data_like_the_first_seed_and_data_of_no_known_scale_raise_no_warning(first: Array, data: Array) -> None:
    assert warnings(first, data, data) == []


def test_blank_items_are_counted_and_named() -> None:
    blank = np.zeros((1, 3, 8, 9), np.float32)
    assert warnings(UNIT, UNIT, blank, blank) == ["x: 2 of 3 inputs hold one value only (file1, file2)"]
    tokens = np.arange(6).reshape(1, 6)
    assert warnings(tokens, tokens, tokens * 0) == ["x: 1 of 2 inputs are all padding (file1)"]


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1, 3, 8, 8), 1), ((1, 8, 8, 3), 3), ((3, 8, 8), 0), ((8, 8, 3), 2), ((2, 5), 1), ((2, 500), None), ((7,), None)],
)
def test_channels_are_found_in_every_layout(shape: tuple[int, ...], axis: int | None) -> None:
    assert channel_axis(np.zeros(shape, np.float32)) == axis
