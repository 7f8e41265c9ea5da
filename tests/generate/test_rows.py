"""Stacks of rows keep the contract and are varied; what a row shows in a stack is what it would show alone."""

from __future__ import annotations

import tracemalloc

import numpy as np
from contracts import contracts, seed_for
from hypothesis import HealthCheck, given, settings

from fuzzparity.case import Case, Lineage
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.errors import InvalidCase
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.generate.contract import breach
from fuzzparity.generate.feedback import features
from fuzzparity.generate.generator import Generator
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.rowfeatures import RowFeatures
from fuzzparity.generate.rows import Stack, why_not
from fuzzparity.verdict import Judgement, Kind

ROWS = Dim(3, "rows")
PLAIN = Contract((InputContract("x", "float32", (ROWS, Dim(16))),), constants=(0.5,), batch="rows")
MIXED = Contract(
    (
        InputContract("ids", "int64", (ROWS, Dim(5)), index_limit=11),
        InputContract("state", "float32", (Dim(2), ROWS, Dim(4)), low=-1.0, high=1.0, allow_nonfinite=False),
        InputContract("mask", "bool", (ROWS, Dim(5))),
        InputContract("rate", "int64", ()),
    ),
    batch="rows",
)


def stacks(contract: Contract, count: int, rng_seed: int = 0, **rest: object) -> list[Stack]:
    generator = Generator(contract, [seed_for(contract)], rng_seed, **rest)  # type: ignore[arg-type]
    generator.begin(1)
    most = dict.fromkeys(("near", "recipe", "nonfinite"), 256)
    found = [generator.stack(most) for _ in range(count)]
    return [stack for stack in found if stack is not None]


def test_stacks_are_inside_the_contract_and_keep_what_rows_share():
    for stack in stacks(MIXED, 40):
        assert breach(MIXED, stack.case) == ""
        assert stack.places == (0, 1, 0, None)
        assert np.array_equal(stack.case.inputs["rate"], seed_for(MIXED).inputs["rate"])
        one = stack.take([stack.rows - 1])
        assert breach(MIXED, one) == ""
        assert np.array_equal(one.inputs["state"][:, 0], stack.case.inputs["state"][:, -1], equal_nan=True)


def test_finite_rows_and_others_are_in_stacks_of_their_own():
    found = stacks(PLAIN, 60)
    assert {stack.label for stack in found} == {"near", "recipe", "nonfinite"}
    for stack in found:
        assert stack.case.is_finite == (not stack.nonfinite)
        if stack.nonfinite:
            assert not np.isfinite(stack.case.inputs["x"]).all(axis=1).any()


def test_rows_differ_from_one_another_and_reach_from_the_smallest_to_the_largest_magnitudes():
    wild = [stack for stack in stacks(PLAIN, 60) if stack.label == "recipe"]
    rows = np.concatenate([stack.case.inputs["x"] for stack in wild])
    assert len(np.unique(rows, axis=0)) > 0.7 * len(rows)
    largest = np.abs(rows).max(axis=1)
    assert (largest > 1e30).mean() > 0.05
    assert ((largest > 0) & (largest < 1e-20)).any()
    assert (rows == 0.5).any()
    assert ((rows > 0.4999) & (rows < 0.5001) & (rows != 0.5)).any()
    assert max(stack.rows for stack in wild) == 256
    assert len({stack.rows for stack in wild}) > 3


def test_many_rows_of_a_small_parent_are_never_all_made_as_large_as_another():
    image = InputContract("x", "float32", (Dim(2, "batch"), Dim(3), Dim(8, "height"), Dim(8, "width")))
    contract = Contract((image,), batch="batch")
    generator = Generator(contract, [Case({"x": np.ones((2, 3, 8, 8), np.float32)})], 0)
    assert generator.stacker is not None
    large, many = np.ones((1, 3, 500, 500), np.float32), np.ones((5000, 3, 1, 1), np.float32)
    tracemalloc.start()
    made = generator.stacker.maker.make([[large], [many]], 4, "recipe", Rng(0, 0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made is not None
    assert made[0][0].shape == (4, 3, 500, 500)
    assert peak < 64 * large.nbytes  # 5000 rows of that size are 15 GB


def test_a_parent_without_rows_does_not_hide_how_large_its_rows_would_be():
    image = InputContract("x", "float32", (Dim(2, "batch"), Dim(3), Dim(8, "height"), Dim(8, "width")))
    contract = Contract((image,), batch="batch")
    generator = Generator(contract, [Case({"x": np.ones((2, 3, 8, 8), np.float32)})], 0)
    generator.begin(1)
    assert generator.stacker is not None
    none, few = np.ones((0, 3, 500, 500), np.float32), np.ones((2, 3, 1, 1), np.float32)
    assert generator.stacker.maker.row_elements([none]) == 750_000
    assert generator.stacker.maker.row_elements([few]) == 3
    rng, lineage, most = Rng(0, 0), Lineage(), dict.fromkeys(("near", "recipe", "nonfinite"), 256)
    found = [generator.stacker.stack(rng, most, lineage, "recipe", like=[none]) for _ in range(4)]
    assert found == [None] * 4


def test_the_same_chance_gives_the_same_stacks():
    first, again = stacks(MIXED, 10, 5), stacks(MIXED, 10, 5)
    assert [stack.case.digest for stack in first] == [stack.case.digest for stack in again]
    assert [stack.case.digest for stack in first] != [stack.case.digest for stack in stacks(MIXED, 10, 6)]


def test_only_rows_that_the_target_calls_valid_are_stacked():
    def valid(inputs: dict[str, np.ndarray]) -> bool:
        return bool((inputs["x"].sum(axis=1) > 0).all())

    found = stacks(PLAIN, 40, valid=valid)
    assert found
    assert all(valid(dict(stack.case.inputs)) and stack.rows <= 32 for stack in found)


def test_a_contract_in_which_rows_point_at_one_another_is_not_stacked():
    rows = Dim(3, "rows", low=1)
    points = InputContract("i", "int64", (rows,), index_symbol="rows")
    assert "point at rows" in why_not(Contract((points,), batch="rows"))
    assert "two axes" in why_not(Contract((InputContract("x", "float32", (rows, rows)),), batch="rows"))
    assert "no input" in why_not(Contract((InputContract("x", "float32", (Dim(3),)),), batch="rows"))
    assert Generator(PLAIN, [seed_for(PLAIN)], 0).stacker is not None
    assert Generator(Contract(PLAIN.inputs), [seed_for(PLAIN)], 0).stacker is None


@given(contracts())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_contract_with_a_batch_dim_gives_stacks_inside_it(contract: Contract) -> None:
    contract = Contract(contract.inputs, contract.sizes, contract.constants, batch="n")
    try:
        generator = Generator(contract, [seed_for(contract)], 1)
    except InvalidCase:
        return
    if generator.stacker is None:
        return
    for label in ("near", "recipe", "nonfinite"):
        if label == "nonfinite" and not generator.stacker.maker.can_plant:
            continue
        stack = generator.stacker.stack(Rng(1, 1), {label: 16}, Lineage(), label)
        if stack is not None:
            assert breach(contract, stack.case) == ""
            assert all(array.flags.c_contiguous for array in stack.case.inputs.values())


def test_a_row_shows_in_a_stack_what_it_shows_alone():
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((64, 5)) * 10.0 ** rng.integers(-30, 30, (64, 1))).astype(np.float32)
    logits[3, 1], logits[4, 2], logits[5] = np.nan, np.inf, -np.inf
    counts = rng.integers(-4, 300, (2, 64))
    flags = rng.random((64, 3)) < 0.5
    outputs, axes = (logits, counts, flags), (0, 1, 0)
    expected, actual = (Execution(side, Status.OK, outputs) for side in (TORCH, ORT))
    ratios = [np.zeros(64)] * 3
    alone: list[frozenset[str]] = []
    for row in range(64):
        cut = tuple(np.take(output, [row], axis) for output, axis in zip(outputs, axes, strict=True))
        pair = [Execution(side, Status.OK, cut) for side in (TORCH, ORT)]
        case = Case({"x": np.zeros((1, 16), np.float32)})
        alone.append(features(case, PLAIN, *pair, Judgement(Kind.AGREE)))
    families = ("range:", "nonfinite:", "decision:")
    known: set[str] = set()
    for row in RowFeatures(known).novel(expected, actual, axes, ratios, 64):
        known |= alone[row]
    everything = {feature for row in alone for feature in row if feature.startswith(families)}
    assert {feature for feature in known if feature.startswith(families)} == everything
    assert RowFeatures(known | {f"ratio:{i}:none" for i in range(3)}).novel(expected, actual, axes, ratios, 64) == []
