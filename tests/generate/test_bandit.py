"""What pays is chosen more often, what does not keeps its floor, and all of it follows from chance and outcomes."""

from __future__ import annotations

from collections import Counter

import numpy as np
from contracts import seed_for

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.generate.bandit import FLOOR, Arms, Choice, Weighed, weights_of
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.generate.moves import Mutator
from fuzzparity.generate.rng import Rng

PLAIN = Contract((InputContract("x", "float32", (Dim(4, "b"), Dim(9, "t"))),), constants=(2.5,), batch="b")


def still(*args: object) -> None:
    return None


MOVES = tuple(Mutator(name, "value", 1.0, still) for name in "abcd")


def test_a_family_that_pays_is_chosen_more_often_and_the_others_stay() -> None:
    arms, rng = Arms("parents"), Rng(0, 0)
    choice = Choice(arms, 0.25)
    names = ("outcome", "ratio", "decision", "path")
    drawn: Counter[str] = Counter()
    for turn in range(3000):
        name = choice.pick(names, rng)
        drawn[name] += turn >= 1000
        arms.tried(name)
        if name == "path" and rng.chance(0.3):
            arms.paid(name)
    assert drawn["path"] > 1200
    assert min(drawn[name] for name in names) > 2000 * 0.25 / 4 * 0.7


def test_what_paid_once_is_left_when_another_begins_to_pay() -> None:
    arms, rng = Arms("parents"), Rng(1, 0)
    choice = Choice(arms, 0.25)
    halves = []
    for paying in ("a", "b"):
        drawn: Counter[str] = Counter()
        for _ in range(3000):
            name = choice.pick(("a", "b"), rng)
            drawn[name] += 1
            arms.tried(name)
            if name == paying and rng.chance(0.3):
                arms.paid(name)
        halves.append(drawn)
    assert halves[0]["a"] > halves[0]["b"]
    assert halves[1]["b"] > halves[1]["a"]


def test_moves_keep_a_quarter_of_their_weight_whatever_they_bring() -> None:
    weighed, rng = Weighed(MOVES), Rng(0, 0)
    for _ in range(2000):
        weighed.arms.tried("a")
        weighed.arms.tried("b")
        weighed.arms.paid("b")
    factors = weights_of(weighed.arms, rng)
    assert factors["b"] == 1.0
    assert FLOOR <= factors["a"] < 0.3
    weighed.reweigh(rng)
    drawn = Counter(weighed.pick(rng).name for _ in range(2000))
    assert drawn["b"] > 2.5 * drawn["a"] > 100


def test_larger_cases_cost_more() -> None:
    arms = Arms("move")
    for name in ("small", "large"):
        arms.add(name)
        for _ in range(200):
            arms.tried(name, 1.0 if name == "small" else 16.0)
            arms.paid(name)
    rates = np.mean(arms.rates(("small", "large"), 500, Rng(0, 0)), axis=0)
    assert rates[0] > 4 * rates[1]


def drive(generator: Generator, leases: int) -> list[Proposal]:
    made = []
    for lease in range(1, leases + 1):
        generator.begin(lease)
        for _ in range(150):
            stack = generator.stack({"recipe": 16, "near": 16}) if len(made) % 3 == 0 else None
            proposal = generator.alone(stack.take([0]), stack, stack.names_of(0)) if stack else generator.propose()
            shown = {f"ratio:{proposal.case.digest[:2]}", f"shape:{proposal.case.elements.bit_length()}"}
            generator.learn(proposal, frozenset(shown))
            made.append(proposal)
    return made


def test_efforts_are_told_once_and_follow_from_seed_and_outcomes() -> None:
    told = []
    for _ in range(2):
        generator = Generator(PLAIN, [seed_for(PLAIN)], 7)
        digests = [p.case.digest for p in drive(generator, 4)]
        efforts = generator.efforts()
        assert generator.efforts() == {}
        told.append((digests, efforts))
    assert told[0] == told[1]
    efforts = told[0][1]
    kinds = {kind for kind, _ in efforts}
    assert kinds == {"move", "parents"}
    assert {"seeds", "ratio", "shape"} <= {name for kind, name in efforts if kind == "parents"}
    assert any(name.startswith("row ") for _, name in efforts)
    assert all(0 <= kept <= tried or name.startswith("row ") for (_, name), (tried, kept) in efforts.items())


def test_large_cases_come_back_with_a_seed_between() -> None:
    seed = seed_for(PLAIN)
    generator = Generator(PLAIN, [seed], 3)
    generator.begin(1)
    made = [generator.propose() for _ in range(1500)]
    places = [n for n, p in enumerate(made) if p.lineage.mutators == ("between large cases",)]
    small = [n for n in places if made[n].case.digest == seed.digest]
    assert len(small) > 5
    for place in small:
        before, after = made[place - 1].case, made[place + 1].case
        assert before.digest == after.digest
        assert before.elements >= 4 * seed.elements
    assert isinstance(made[places[0]].case, Case)
