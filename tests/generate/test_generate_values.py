"""Fills keep shapes; dtypes saturate; sizes and resizing keep their promises."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import DTYPES, INTEGERS, one_input, seed_for
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.generate.domain import domain_of
from fuzzparity.generate.dtypes import cast, integer_ladder, traits_of
from fuzzparity.generate.moves import region_of
from fuzzparity.generate.mutators import MUTATORS
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.shapes import axes_of, drifting_lengths, resized, size_menu
from fuzzparity.generate.values import classics, planted_nonfinite


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 2), (1,), (3, 4)])
def test_every_fill_keeps_shape_and_dtype(dtype: str, shape: tuple[int, ...]) -> None:
    contract = Contract(one_input(dtype, shape).inputs, constants=(0.5, 3.0, 1e30))
    scene = Scene(contract, [seed_for(contract)], 1 << 20, 1 << 20)
    array = seed_for(contract).inputs["x"]
    domain = domain_of(contract.inputs[0], contract, [array])
    with np.errstate(all="ignore"):
        for fill in (*classics(domain), *planted_nonfinite(domain)):
            filled = scene.fill(0, array, fill)
            assert (filled.dtype, filled.shape) == (array.dtype, shape), fill.name


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_saturate(dtype: str) -> None:
    traits = traits_of(dtype)
    with np.errstate(all="ignore"):
        found = cast(np.array([np.inf, -np.inf, np.nan, 3.0, 1e300, -1e300]), traits).astype(object)
    wide = [int(value) for value in found]
    assert wide[1] == wide[5] == traits.low
    assert wide[2:4] == [0, 3]
    assert wide[0] == wide[4] >= int(traits.high) * (1 - 2**-40)
    assert cast(np.array([-(2**63)]), traits)[0] == traits.low


def test_the_ladder_stays_between_its_bounds() -> None:
    assert set(integer_ladder(0, 5)) == {0, 1, 2, 3, 4, 5}
    assert min(integer_ladder(-128, 127)) == -128


@given(st.lists(st.integers(0, 5), max_size=4), st.data())
@settings(deadline=None)
def test_resizing_gives_the_shape_and_only_values_that_were_there(old: list[int], data: st.DataObject) -> None:
    new = tuple(data.draw(st.integers(0, 9)) for _ in old)
    array = np.arange(1, 1 + int(np.prod(old)), dtype=np.int64).reshape(old)
    result = resized(array, new, offset=data.draw(st.integers(0, 3)), edge=data.draw(st.booleans()))
    assert result.shape == new
    assert set(result.reshape(-1).tolist()) <= set(array.reshape(-1).tolist()) | {0}


@given(st.integers(0, 40), st.one_of(st.none(), st.integers(0, 80)), st.integers(1, 8), st.lists(st.integers(0, 200)))
@settings(deadline=None)
def test_menus_only_hold_admitted_sizes(low: int, width: int | None, step: int, sizes: list[int]) -> None:
    high = None if width is None else low + width
    contract = Contract((InputContract("x", "float32", (Dim(low, "n", low, high, step),)),))
    axis = axes_of(contract)[0]
    menu = size_menu(axis, sizes, (2.3,), [low])
    assert all(axis.admits(size) for size in menu)
    assert len(set(menu)) == len(menu) <= 128
    if high is None or high // step * step >= low:
        assert menu


def test_lengths_at_which_a_decimal_scale_rounds_apart_are_found() -> None:
    for length in drifting_lengths([float(np.float32(2.3))]):
        exact, single = length * 2.3, float(np.float32(2.3))
        assert np.floor(exact) != np.floor(length * single) or np.floor(exact) != np.floor(
            float(np.float32(length) * np.float32(2.3))
        )
    assert drifting_lengths([float(np.float32(2.3))])
    assert drifting_lengths([0.0, 1.0, np.pi * 1e9]) == []


@given(st.lists(st.integers(1, 6), max_size=4), st.integers(0, 1000))
@settings(deadline=None)
def test_a_region_is_a_writable_part_that_is_never_empty(shape: list[int], number: int) -> None:
    array = np.zeros(shape)
    part = array[region_of(tuple(shape), Rng(number, 0))]
    assert part.size > 0
    assert part.ndim == len(shape)


def test_mutators_have_names_of_their_own() -> None:
    assert len({mutator.name for mutator in MUTATORS}) == len(MUTATORS)
