"""The generator keeps the contract, its budgets and its bounds, and follows from its seed and feedback alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from contracts import DTYPES, contracts, one_input, seed_for
from hypothesis import HealthCheck, given, settings

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Derived, Dim, InputContract
from fuzzparity.errors import InvalidCase
from fuzzparity.generate.contract import breach
from fuzzparity.generate.generator import Generator, Proposal

IMAGE = Contract(
    (InputContract("image", "float32", (Dim(2, "b"), Dim(3), Dim(8, "h"), Dim(8, "w"))),), sizes=(16,), constants=(0.5,)
)
TEXT = Contract(
    (
        InputContract("ids", "int64", (Dim(2, "b"), Dim(5, "t", low=1, high=32)), index_limit=100),
        InputContract("mask", "bool", (Dim(2, "b"), Dim(5, "t", low=1, high=32))),
        InputContract("scale", "float32", ()),
    )
)


def feedback(proposal: Proposal) -> frozenset[str]:
    """Stand in for a judged execution: some features that depend on the case alone."""
    case = proposal.case
    return frozenset({f"size:{case.elements.bit_length()}", f"hash:{int(case.digest[:2], 16)}"})


def drive(generator: Generator, count: int) -> list[Proposal]:
    proposals = []
    for _ in range(count):
        proposal = generator.propose()
        generator.learn(proposal, feedback(proposal), refused_by_both=proposal.case.elements % 7 == 3)
        proposals.append(proposal)
    return proposals


@given(contracts())
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_case_is_inside_the_contract_unless_it_says_otherwise(contract: Contract) -> None:
    try:
        generator = Generator(contract, [seed_for(contract)], 1)
    except InvalidCase:  # bounds that no case can meet, an index into an empty axis
        return
    generator.begin(0)
    for proposal in [*drive(generator, 40), *_random(generator, 60)]:
        assert bool(breach(contract, proposal.case)) == proposal.contract_breaking, breach(contract, proposal.case)
        assert proposal.nonfinite == (not proposal.case.is_finite)
        for array in proposal.case.inputs.values():
            assert isinstance(array, np.ndarray)
            assert array.flags.c_contiguous
    generator.pool.check()


def _random(generator: Generator, count: int) -> list[Proposal]:
    generator.begin(1, sweep_from=10**6)  # past the sweep's end
    return drive(generator, count)


@pytest.mark.parametrize("contract", [IMAGE, TEXT, one_input("int64", ())])
def test_the_same_seed_and_feedback_give_the_same_cases(contract: Contract) -> None:
    streams = []
    for _ in range(2):
        generator = Generator(contract, [seed_for(contract, n) for n in range(3)], 42)
        generator.begin(0)
        first = drive(generator, 250)
        streams.append([p.case.digest for p in [*first, *_random(generator, 250)]])
    assert streams[0] == streams[1]


def test_another_seed_or_lease_gives_other_cases() -> None:
    def digests(rng_seed: int, lease: int) -> set[str]:
        generator = Generator(IMAGE, [seed_for(IMAGE)], rng_seed)
        generator.begin(lease)
        return {p.case.digest for p in drive(generator, 50)}

    base = digests(1, 1)
    assert len(base & digests(2, 1)) < 10
    assert len(base & digests(1, 2)) < 10


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4)])
def test_every_dtype_and_rank_works(dtype: str, shape: tuple[int, ...]) -> None:
    contract = one_input(dtype, shape)
    generator = Generator(contract, [seed_for(contract)], 0)
    generator.begin(0)
    for proposal in [*drive(generator, 40), *_random(generator, 40)]:
        if not proposal.contract_breaking:
            assert proposal.case.inputs["x"].dtype.name == dtype
            assert proposal.case.inputs["x"].shape == shape


def test_budgets_hold_after_the_sweep() -> None:
    generator = Generator(IMAGE, [seed_for(IMAGE)], 0)
    generator.begin(1)
    labels = Counter(proposal.label for proposal in drive(generator, 2000))
    assert 0.02 < labels["breaking"] / 2000 < 0.04
    assert 0.07 < labels["nonfinite"] / 2000 < 0.13
    assert labels["near"] > 200


def test_a_target_with_two_cases_still_gets_proposals() -> None:
    contract = one_input("bool", ())
    generator = Generator(contract, [seed_for(contract)], 0)
    generator.begin(0)
    values = {bool(p.case.inputs["x"]) for p in drive(generator, 200) if not p.contract_breaking}
    assert values == {True, False}


def test_caps_on_elements_and_bytes_hold() -> None:
    generator = Generator(IMAGE, [seed_for(IMAGE)], 0, max_elements=5000, max_bytes=12000)
    generator.begin(0)
    for proposal in [*drive(generator, 400), *_random(generator, 400)]:
        assert proposal.case.elements <= 5000
        if not proposal.contract_breaking:  # a wrong dtype may be wider
            assert proposal.case.nbytes <= 12000


def test_growth_reaches_large_sizes_at_times() -> None:
    contract = Contract((InputContract("x", "float32", (Dim(1, "n"), Dim(64))),))
    generator = Generator(contract, [seed_for(contract)], 0)
    generator.begin(1)
    largest = max(proposal.case.elements for proposal in drive(generator, 4000))
    assert largest > (1 << 20) // 16


def test_sizes_refused_by_both_sides_are_tried_less() -> None:
    contract = Contract((InputContract("x", "float32", (Dim(4, "n"),)),))

    def zeros(refuse: bool) -> int:
        generator = Generator(contract, [seed_for(contract)], 0)
        generator.begin(1)
        count = 0
        for _ in range(600):
            proposal = generator.propose()
            empty = proposal.case.elements == 0
            count += empty
            generator.learn(proposal, feedback(proposal), refused_by_both=refuse and empty)
        return count

    # an empty case is one digest; repetitions only come up when novel ones do not
    assert zeros(refuse=True) <= zeros(refuse=False)


def test_learning_keeps_what_is_new_and_refuses_what_is_not() -> None:
    generator = Generator(IMAGE, [seed_for(IMAGE)], 0)
    generator.begin(1)
    first = next(p for p in (generator.propose() for _ in range(50)) if not p.contract_breaking)
    assert generator.learn(first, frozenset({"kind:new"}))
    assert not generator.learn(first, frozenset({"kind:new"}))
    assert not generator.learn(first, frozenset({"kind:other"}), refused_by_both=True)
    assert sum(kept for _, kept in generator.statistics().values()) <= sum(
        tried for tried, _ in generator.statistics().values()
    )


def test_features_known_elsewhere_are_not_new_here() -> None:
    generator = Generator(IMAGE, [seed_for(IMAGE)], 0)
    generator.begin(1, known={"kind:known"})
    proposal = next(p for p in (generator.propose() for _ in range(50)) if not p.contract_breaking)
    assert not generator.learn(proposal, frozenset({"kind:known"}))


def test_adopted_cases_become_parents_and_bad_ones_do_not() -> None:
    generator = Generator(IMAGE, [seed_for(IMAGE)], 0)
    generator.begin(1)
    adopted = seed_for(IMAGE, 9)
    generator.adopt(adopted, frozenset({"kind:rare"}))
    generator.adopt(Case({"image": np.zeros((1, 1, 8, 8), np.float32)}), frozenset({"kind:bad"}))
    assert list(generator.pool.entries) == [adopted.digest]
    parents = {parent for p in drive(generator, 100) for parent in p.lineage.parents}
    assert adopted.digest in parents


def test_a_sweep_goes_on_in_the_next_lease_and_in_another_worker() -> None:
    whole = Generator(TEXT, [seed_for(TEXT)], 0)
    whole.begin(0)
    expected = [whole.propose().case.digest for _ in range(60)]
    halves = Generator(TEXT, [seed_for(TEXT)], 0)
    halves.begin(0)
    found = [halves.propose().case.digest for _ in range(20)]
    halves.begin(1)
    found += [halves.propose().case.digest for _ in range(20)]
    heir = Generator(TEXT, [seed_for(TEXT)], 0)
    heir.begin(2, sweep_from=halves.sweep_position)
    found += [heir.propose().case.digest for _ in range(20)]
    # the heir does not know what was proposed before it, so it may repeat, but it skips nothing
    assert found[:40] == expected[:40]
    assert set(expected[40:]) <= set(found[40:]) | {heir.propose().case.digest for _ in range(40)}


def test_a_sweep_ends() -> None:
    generator = Generator(TEXT, [seed_for(TEXT)], 0)
    generator.begin(0)
    labels = [generator.propose().label for _ in range(900)]
    assert generator.sweep_position is None
    assert labels.index("recipe") > 100


def test_valid_of_the_target_is_asked() -> None:
    def valid(inputs: dict[str, np.ndarray]) -> bool:
        return inputs["image"].shape[0] != 2 or bool(np.all(np.abs(inputs["image"]) < 1e6))

    generator = Generator(IMAGE, [seed_for(IMAGE)], 0, valid=valid)
    generator.begin(0)
    for proposal in [*drive(generator, 200), *_random(generator, 200)]:
        assert proposal.contract_breaking or valid(dict(proposal.case.inputs))


def test_lineage_names_parents_mutators_and_place() -> None:
    seed = seed_for(IMAGE)
    generator = Generator(IMAGE, [seed], 7)
    generator.begin(3, sequence=1000)
    for number, proposal in enumerate(drive(generator, 50)):
        lineage = proposal.lineage
        assert (lineage.rng_seed, lineage.lease, lineage.sequence) == (7, 3, 1000 + number)
        assert lineage.parents
        assert lineage.mutators or proposal.case == seed


def test_parents_are_never_written_to() -> None:
    seeds = [seed_for(TEXT, n) for n in range(2)]
    before = [seed.digest for seed in seeds]
    for seed in seeds:
        for array in seed.inputs.values():
            array.flags.writeable = False
    generator = Generator(TEXT, seeds, 0)
    generator.begin(0)
    drive(generator, 300)
    _random(generator, 600)
    assert [Case(dict(seed.inputs)).digest for seed in seeds] == before


def test_seeds_outside_the_contract_are_brought_inside_or_named() -> None:
    long = Case({"x": np.zeros(40, np.float32)})
    contract = Contract((InputContract("x", "float32", (Dim(4, "n", high=8),), low=1.0),))
    generator = Generator(contract, [long], 0)
    generator.begin(1)
    assert all(p.contract_breaking or not breach(contract, p.case) for p in drive(generator, 50))
    with pytest.raises(InvalidCase, match="the contract wants x"):
        Generator(contract, [Case({"y": np.zeros(4, np.float32)})], 0)
    with pytest.raises(InvalidCase, match="1 dims"):
        Generator(contract, [Case({"x": np.zeros((4, 4), np.float32)})], 0)
    with pytest.raises(InvalidCase, match="at least one"):
        Generator(contract, [], 0)


def test_a_derived_dim_follows_in_every_case() -> None:
    n, twice = Dim(3, "n", low=1, high=50), Dim(7, "2*n + 1")
    inputs = (InputContract("a", "float32", (n,)), InputContract("b", "float32", (twice, Dim(2))))
    contract = Contract(inputs, derived=(Derived("2*n + 1", "n", 2, 1),))
    seed = Case({"a": np.ones(3, np.float32), "b": np.ones((7, 2), np.float32)})
    generator = Generator(contract, [seed], 0)
    generator.begin(0)
    sizes = set()
    for _ in range(600):
        proposal = generator.propose()
        a, b = (array.shape for array in proposal.case.inputs.values())
        if not proposal.contract_breaking:
            assert b == (2 * a[0] + 1, 2)
            assert breach(contract, proposal.case) == ""
            sizes.add(a[0])
    assert len(sizes) > 10
    wrong = seed.replace(b=np.ones((6, 2), np.float32))
    assert "the contract wants 7" in breach(contract, wrong)
