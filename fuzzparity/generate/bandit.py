"""Bandit: which moves and which kinds of parent pay, learned from what their executions brought.

The idea: an arm is paid when its execution showed something new. Arms are drawn by Thompson sampling: a rate is drawn
for each from what is known of it, so that little-known arms get their turns; a floor keeps every arm alive, since what
paid an hour ago is not what pays now. Old counts fade for the same reason. Costs are executions of usual size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, Protocol, TypeVar

from fuzzparity.generate.rng import Rng

FADE = 0.9  # what is left of old counts after each look
FLOOR = 0.25  # of its starting weight, that a move keeps whatever it brings
_DOUBT = 20.0  # executions that an unknown arm is thought to have had for one success
_AHEAD = 64  # choices drawn at once

# (kind, name) -> how often it was used, and how often its execution showed something new. Kinds: "move", "parents"
Efforts = dict[tuple[str, str], tuple[int, int]]


@dataclass(slots=True)
class _Arm:
    tried: int = 0
    kept: int = 0
    cost: float = 0.0  # these two fade
    paid: float = 0.0
    told: tuple[int, int] = (0, 0)


class Arms:
    """Count what each of several named choices cost and brought."""

    def __init__(self, kind: str) -> None:
        """`kind` names them in what is told."""
        self.kind = kind
        self._arms: dict[str, _Arm] = {}

    def add(self, name: str) -> None:
        """Make an arm known."""
        self._arms.setdefault(name, _Arm())

    def tried(self, name: str, cost: float = 1.0) -> None:
        """Count one use."""
        arm = self._arms.get(name)
        if arm is not None:
            arm.tried += 1
            arm.cost += cost

    def paid(self, name: str) -> None:
        """Count that a use showed something new; what is no arm does not count."""
        arm = self._arms.get(name)
        if arm is not None:
            arm.kept += 1
            arm.paid += 1.0

    def fade(self) -> None:
        """Let old counts weigh less."""
        for arm in self._arms.values():
            arm.cost *= FADE
            arm.paid *= FADE

    def rates(self, names: Sequence[str], count: int, rng: Rng) -> list[list[float]]:
        """Draw `count` times a rate of success for each arm: [count][arms]."""
        arms = [self._arms[name] for name in names]
        good = [1.0 + arm.paid for arm in arms]
        bad = [_DOUBT + max(0.0, arm.cost - arm.paid) for arm in arms]
        drawn: list[list[float]] = rng.numpy.beta(good, bad, (count, len(arms))).tolist()
        return drawn

    def totals(self) -> dict[str, tuple[int, int]]:
        """Return by name how often it was used and how often it paid."""
        return {name: (arm.tried, arm.kept) for name, arm in self._arms.items()}

    def taken(self) -> Efforts:
        """Return what was counted since this was asked last."""
        efforts: Efforts = {}
        for name, arm in self._arms.items():
            tried, kept = arm.tried - arm.told[0], arm.kept - arm.told[1]
            arm.told = (arm.tried, arm.kept)
            if tried or kept:
                efforts[self.kind, name] = (tried, kept)
        return efforts


def weights_of(arms: Arms, rng: Rng) -> dict[str, float]:
    """Return by name a factor from the floor to 1 for the next stretch: one drawn rate over the best of them."""
    names = tuple(arms.totals())
    if not names:
        return {}
    (rates,) = arms.rates(names, 1, rng)
    arms.fade()
    best = max(rates)
    return {name: FLOOR + (1.0 - FLOOR) * rate / best for name, rate in zip(names, rates, strict=True)}


class Choice:
    """Choose among arms that come and go, by Thompson sampling with a floor."""

    def __init__(self, arms: Arms, floor: float) -> None:
        """`floor`: the share of choices that are drawn evenly."""
        self._arms = arms
        self._floor = floor
        self._names: tuple[str, ...] = ()
        self._ahead: list[int] = []

    def forget(self) -> None:
        """Drop what was drawn ahead: another stream of chance begins."""
        self._ahead.clear()

    def pick(self, names: tuple[str, ...], rng: Rng) -> str:
        """Return one of the names, of which there is at least one."""
        if not self._ahead or names != self._names:
            for name in names:
                self._arms.add(name)
            self._names = names
            self._arms.fade()
            best = [max(range(len(names)), key=rates.__getitem__) for rates in self._arms.rates(names, _AHEAD, rng)]
            self._ahead = [rng.below(len(names)) if rng.chance(self._floor) else place for place in best]
        return names[self._ahead.pop()]


class Named(Protocol):
    """Describe what can be weighed: a move with a name and a starting weight."""

    @property
    def name(self) -> str:
        """Return the name."""

    @property
    def weight(self) -> float:
        """Return the starting weight."""


_N = TypeVar("_N", bound=Named)


class Weighed(Generic[_N]):
    """Choose among moves by their weights, which follow what they bring, from four times apart at most."""

    def __init__(self, moves: Sequence[_N]) -> None:
        """Start from the starting weights."""
        self.arms = Arms("move")
        for move in moves:
            self.arms.add(move.name)
        self._moves = moves
        self._weights = list(accumulate(move.weight for move in moves))

    def reweigh(self, rng: Rng) -> None:
        """Take in what was learned since."""
        factors = weights_of(self.arms, rng)
        self._weights = list(accumulate(move.weight * factors[move.name] for move in self._moves))

    def pick(self, rng: Rng) -> _N:
        """Draw a move; there is at least one."""
        target = rng.unit() * self._weights[-1]
        return self._moves[min(bisect_right(self._weights, target), len(self._moves) - 1)]
