"""Delta debugging over passes: the set that is found heals, and no smaller part of it does."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzparity.blame.passes import smallest_healing_set

NAMES = [f"Pass{index}" for index in range(12)]


@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=4))
def test_the_set_is_minimal_and_heals(guilty: set[str]):
    def heals(disabled: tuple[str, ...]) -> bool:
        return guilty <= set(disabled)  # the fault needs only one of them left

    found = smallest_healing_set(NAMES, heals)
    assert found is not None
    assert set(found) == guilty


@given(st.lists(st.sets(st.sampled_from(NAMES), min_size=1, max_size=3), min_size=2, max_size=3))
def test_one_of_several_ways_to_heal_is_enough(ways: list[set[str]]):
    def heals(disabled: tuple[str, ...]) -> bool:
        return any(way <= set(disabled) for way in ways)

    found = smallest_healing_set(NAMES, heals)
    assert found is not None
    assert heals(found)
    assert not any(heals(part) for part in itertools.combinations(found, len(found) - 1))


@pytest.mark.parametrize("passes", [[], NAMES])
def test_nothing_is_named_when_nothing_heals(passes: list[str]):
    assert smallest_healing_set(passes, lambda disabled: False) is None
