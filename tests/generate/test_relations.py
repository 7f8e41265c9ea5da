"""What sizes a target takes is learned from refusals by both sides, heals when wrong, and steers the generator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from contracts import seed_for

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.execution import ORT, TORCH, Execution, Refusal, Status
from fuzzparity.generate.breaking import breaking_steps
from fuzzparity.generate.generator import Generator
from fuzzparity.generate.relations import RefusalTally, Rule, SizeRelations
from fuzzparity.generate.scene import Scene
from fuzzparity.minimize.loop import minimize

Takes = Callable[[dict[str, int]], bool]


def free(*sizes: int, **places: int) -> Contract:
    """Make a contract of one float input whose dims are all free, "a", "b", ..."""
    dims = tuple(Dim(size, symbol) for size, symbol in zip(sizes, "abcd", strict=False))
    return Contract((InputContract("x", "float32", dims),))


def fuzzed(contract: Contract, takes: Takes, count: int = 600, rng_seed: int = 0) -> tuple[Generator, list[bool]]:
    """Let a generator propose cases to a target that refuses some sizes; return it and what became of the cases."""
    generator = Generator(contract, [seed_for(contract)], rng_seed, max_elements=1 << 16)
    generator.begin(0)
    outcomes = []
    for _ in range(count):
        made = generator.propose()
        sizes = {d.symbol: n for d, n in zip(contract.inputs[0].dims, made.case.inputs["x"].shape, strict=True)}
        refused = not made.contract_breaking and not takes(sizes)
        generator.learn(made, frozenset({f"size:{sizes}"}), refused_by_both=refused)
        if not made.contract_breaking:
            outcomes.append(refused)
    return generator, outcomes


def rules_of(generator: Generator) -> dict[str, Rule]:
    return {rule.symbol: rule for rule in generator._scene.relations.rules}


@pytest.mark.parametrize("rng_seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("sizes", "takes", "wanted"),
    [
        ((16,), lambda s: s["a"] % 8 == 0 and s["a"] > 0, {"a": (8, 0)}),
        ((4, 48), lambda s: s["b"] % 12 == 0, {"b": (12, 0)}),
        ((4, 17), lambda s: s["b"] % 4 == 1, {"b": (4, 1)}),
    ],
)
def test_a_multiple_is_learned_and_kept_to(
    sizes: tuple[int, ...], takes: Takes, wanted: dict[str, tuple[int, int]], rng_seed: int
) -> None:
    generator, outcomes = fuzzed(free(*sizes), takes, 900, rng_seed)
    found = rules_of(generator)
    assert {symbol: (rule.step, rule.rest) for symbol, rule in found.items() if rule.step > 1} == wanted
    late = outcomes[len(outcomes) // 2 :]
    assert 0 < sum(late) < 0.15 * len(late), "most sizes are taken, and a few go on trying what is not"


def test_bounds_are_learned_as_they_are() -> None:
    generator, _ = fuzzed(free(8, 12), lambda s: 3 <= s["a"] <= 40)
    rule = rules_of(generator)["a"]
    assert (rule.low, rule.step) == (3, 1)
    assert rule.high is not None
    assert 40 <= rule.high <= 62, "the smallest size above that was tried and refused"
    assert "b" not in rules_of(generator)
    assert 2 in rule.refused


def test_dims_that_have_to_be_equal_are_learned_and_moved_together() -> None:
    generator, outcomes = fuzzed(free(6, 6, 3), lambda s: s["a"] == s["b"], 900)
    assert rules_of(generator)["b"].equal_to == "a"
    assert set(rules_of(generator)) == {"b"}
    late = outcomes[len(outcomes) // 2 :]
    assert sum(late) < 0.2 * len(late)


def test_nothing_is_learned_where_nothing_is_refused_or_values_are_the_reason() -> None:
    generator, _ = fuzzed(free(6, 6), lambda s: True)
    assert not rules_of(generator)
    relations = SizeRelations(["a"])
    for size in (3, 4, 5, 8, 9, 16):
        relations.observe({"a": size}, refused=True)
        relations.observe({"a": size}, refused=False)
    assert relations.rules == ()


def test_a_wrong_guess_heals() -> None:
    relations = SizeRelations(["a"])
    for size in (4, 8, 16):
        relations.observe({"a": size}, refused=False)
    for size in (5, 7, 9, 11):
        relations.observe({"a": size}, refused=True, said="odd")
    assert [(rule.step, rule.said) for rule in relations.rules] == [(2, "odd")]
    assert relations.adapted({"a": 7}) == {"a": 8}
    wishes = [relations.adapted({"a": 7})["a"] for _ in range(40)]
    assert wishes.count(7) == 2, "one in sixteen goes as wished"
    relations.observe({"a": 7}, refused=False)
    assert relations.rules == ()
    assert relations.adapted({"a": 9}) == {"a": 9}


def test_a_rule_finds_the_nearest_size_it_lets_through() -> None:
    rule = Rule("a", low=3, high=30, step=8, rest=1)
    assert [rule.nearest(size) for size in (0, 9, 12, 13, 14, 100)] == [9, 9, 9, 17, 17, 25]
    assert all(rule.lets(rule.nearest(size)) for size in range(100))


def test_the_commonest_message_of_each_side_is_told() -> None:
    tally = RefusalTally()
    for number, words in enumerate(("bad", "bad", "worse")):
        torch = Execution(TORCH, Status.REFUSED, refusal=Refusal("ValueError", words, text=f"{words} {number}"))
        tally.add(torch, Execution(ORT, Status.OOM))
    told = RefusalTally()
    told.update(tally.taken())
    assert told.commonest() == ["torch refused 2 times with ValueError: bad 0", "ORT refused 3 times with oom"]
    assert not tally.counts


def audio() -> tuple[Contract, list[Case]]:
    """A state, a rate and audio: the first two are opaque, and the state shares the batch with the audio."""
    batch = Dim(1, "batch")
    contract = Contract(
        (
            InputContract("audio", "float32", (batch, Dim(8, "n"))),
            InputContract("state", "float32", (Dim(2), batch, Dim(3)), is_opaque=True),
            InputContract("sr", "int64", (), is_opaque=True),
        )
    )
    rng = np.random.default_rng(0)
    seeds = [
        Case(
            {
                "audio": rng.standard_normal((1, 8), np.float32),
                "state": np.full((2, 1, 3), rate, np.float32),
                "sr": np.array(rate),
            }
        )
        for rate in (8000, 16000)
    ]
    return contract, seeds


def test_opaque_inputs_stay_as_in_the_seeds_together() -> None:
    contract, seeds = audio()
    generator = Generator(contract, seeds, 3)
    generator.begin(0)
    met = set()
    for number in range(800):
        made = generator.propose()
        state, rate = made.case.inputs["state"], int(made.case.inputs["sr"])
        assert state.shape == (2, 1, 3)
        assert (state == rate).all(), "both come from one seed"
        met.add((rate, made.case.inputs["audio"].shape[1]))
        generator.learn(made, frozenset({f"x:{number}"}))
    assert {rate for rate, _ in met} == {8000, 16000}
    assert len({size for _, size in met}) > 5, "the other dims still vary"
    names = [name for name, _ in breaking_steps(Scene(contract, seeds, 1 << 12, 1 << 16))]
    assert names
    assert not [name for name in names if name.startswith(("state", "sr", "size batch"))]


def test_the_minimizer_leaves_opaque_inputs_alone() -> None:
    contract, seeds = audio()
    found = minimize(seeds[1], lambda case: True, limit_executions=400, deadline_seconds=60.0, contract=contract).case
    assert int(found.inputs["sr"]) == 16000
    assert (found.inputs["state"] == 16000).all()
    assert found.inputs["audio"].size == 0
