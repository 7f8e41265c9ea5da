"""A breach is said in words, and realism follows the seeds."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import DTYPES, one_input, seed_for

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.generate.contract import SeedStatistics, SeedTally, breach
from fuzzparity.verdict import Realism

PAIR = Contract(
    (
        InputContract("a", "float32", (Dim(2, "n", low=1, high=10, multiple_of=2), Dim(3)), low=-1.0, high=0.1),
        InputContract("i", "int64", (Dim(2, "n", low=1, high=10, multiple_of=2),), index_limit=5),
        InputContract("j", "int64", (Dim(1),), index_symbol="n"),
        InputContract("b", "float32", (), allow_nonfinite=False),
    )
)


def case(**changes: np.ndarray) -> Case:
    inputs = {
        "a": np.zeros((2, 3), np.float32),
        "i": np.zeros(2, np.int64),
        "j": np.zeros(1, np.int64),
        "b": np.array(0, np.float32),
    }
    return Case({**inputs, **changes})


def test_a_case_inside_the_contract_breaks_nothing() -> None:
    assert breach(PAIR, case()) == ""
    assert breach(PAIR, case(a=np.full((2, 3), np.float32(0.1)))) == ""  # the bound as float32 spells it


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"a": np.zeros((2, 3))}, "float64; the contract says float32"),
        ({"a": np.zeros((2, 3, 1), np.float32)}, "3 dims; the contract says 2"),
        ({"a": np.zeros((2, 4), np.float32)}, "size 4 on axis 1; the contract says 3"),
        ({"a": np.zeros((3, 3), np.float32)}, "1..10, a multiple of 2"),
        ({"a": np.zeros((4, 3), np.float32)}, "dim n is 4 in a axis 0 but 2 in i axis 0"),
        ({"a": np.full((2, 3), 0.2, np.float32)}, "declared range ends at 0.1"),
        ({"a": np.full((2, 3), -2, np.float32)}, "declared range starts at -1"),
        ({"a": np.full((2, 3), np.inf, np.float32)}, "declared range ends at 0.1"),
        ({"i": np.array([0, 5])}, "holds index 5; the indexed axis has 5 items"),
        ({"i": np.array([0, -1])}, "holds index -1"),
        ({"j": np.array([2])}, "holds index 2; the indexed axis has 2 items"),
        ({"b": np.array(np.nan, np.float32)}, "which the contract forbids"),
        ({"extra": np.zeros(1)}, "the contract has a, i, j, b"),
    ],
)
def test_each_breach_is_said_in_words(changes: dict[str, np.ndarray], words: str) -> None:
    assert words in breach(PAIR, case(**changes))


def test_valid_has_the_last_word_and_may_raise() -> None:
    assert "refuses" in breach(PAIR, case(), lambda inputs: False)
    assert "ZeroDivisionError" in breach(PAIR, case(), lambda inputs: bool(1 // 0))
    assert breach(PAIR, case(), lambda inputs: inputs["a"].shape == (2, 3)) == ""


@pytest.mark.parametrize("dtype", DTYPES)
def test_breach_and_realism_know_every_dtype(dtype: str) -> None:
    bounded = {} if dtype in ("bool", "complex64") else {"low": 0.0, "high": 1.0}
    contract = one_input(dtype, (3,), **bounded)
    ones = Case({"x": np.ones(3).astype(dtype)})
    assert breach(contract, ones) == ""
    assert SeedStatistics.of([ones], True).realism(contract, ones) is Realism.NEAR


def test_realism_is_near_within_a_widened_span_and_wild_beyond() -> None:
    contract = one_input("float32", (4, 6))
    seeds = [seed_for(contract, n) for n in range(5)]
    statistics = SeedStatistics.of(seeds, True)
    low = min(float(s.inputs["x"].min()) for s in seeds)
    high = max(float(s.inputs["x"].max()) for s in seeds)
    at = lambda value: Case({"x": np.full((4, 6), value, np.float32)})  # noqa: E731
    assert statistics.realism(contract, at(high + 0.09 * (high - low))) is Realism.NEAR
    assert statistics.realism(contract, at(high + 0.11 * (high - low))) is Realism.WILD
    assert statistics.realism(contract, at(np.nan)) is Realism.WILD
    assert SeedStatistics.of(seeds, False).realism(contract, seeds[0]) is Realism.UNKNOWN


def test_what_is_typical_may_have_any_number_of_rows() -> None:
    item = InputContract("x", "float32", (Dim(4, "batch"), Dim(3, "width")))
    contract = Contract((item,), batch="batch")
    seed = Case({"x": np.array([[0, 1, 2]] * 4, np.float32)})
    known = SeedStatistics.of([seed] * 5, True)
    fewer, narrower = (Case({"x": array}) for array in (seed.inputs["x"][:1], seed.inputs["x"][:, :2]))
    assert [known.is_typical(contract, case) for case in (seed, fewer, narrower)] == [True, False, False]
    assert [known.is_typical(contract, case, any_rows=True) for case in (seed, fewer, narrower)] == [True, True, False]


def test_a_declared_range_is_realistic_only_while_seeds_are_few() -> None:
    contract = Contract((InputContract("x", "float32", (Dim(4, "n", low=1, high=9, is_declared=True),)),))
    longer = Case({"x": np.zeros(9, np.float32)})
    seeds = [Case({"x": np.linspace(-1, 1, 4, dtype=np.float32)})] * 4
    assert SeedStatistics.of(seeds[:3], True).realism(contract, longer) is Realism.NEAR
    assert SeedStatistics.of(seeds, True).realism(contract, longer) is Realism.WILD


def test_statistics_grow_case_by_case_and_a_seed_without_finite_values_moves_no_end() -> None:
    tally = SeedTally()
    for values in ([np.nan, np.inf], [3.0, np.nan], [5.0, 4.0]):
        tally.add(Case({"x": np.array([values], np.float32), "y": np.zeros(len(values))}))
    tally.add(Case({"x": np.full((3, 1), 9, np.float32), "y": np.zeros((1, 1))}))
    found = tally.statistics(True)
    assert found.count == 4
    assert (found.spreads["x"].low, found.spreads["x"].high) == (3.0, 9.0)
    assert found.spreads["x"].sizes == ((1, 3), (1, 2))
    assert "y" not in found.spreads, "its rank changes"
