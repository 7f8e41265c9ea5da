"""Relations: what sizes a target seems to take, learned from the cases that both sides refuse.

The idea: a refusal is evidence about one axis only beside an accepted case that differs from it in that axis alone.
The least that explains all evidence is believed (a bound, a remainder, two axes that are equal), never that which says
most, and any later case that is not refused by both may prove it wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fuzzparity.execution import ORT, Execution

Sizes = tuple[int, ...]

_MOST_SIZES = 1024  # distinct accepted, and distinct refused, combinations of sizes that are remembered
_LEAST_REFUSALS = 2  # of sizes that a bound leaves out: one may have had another reason
_LEAST_INSIDE = 2  # distinct refused sizes between accepted ones, before a remainder is believed
_LEAST_ACCEPTED = 3  # distinct sizes, before a remainder or an upper bound is believed
_LEAST_BEYOND = 3  # distinct refused sizes above all accepted ones, before an upper bound is believed
_LEAST_UNEQUAL = 3  # refusals of unequal sizes, each beside an accepted case of equal ones
_LEAST_FOR_ONE = 24  # distinct refused sizes, before an axis counts as one that takes a single size
_LARGEST_STEP = 4096
_WISH_EVERY = 16  # one in so many adapted sizes is left as wished, so that a wrong guess heals
_MOST_MESSAGES = 256


@dataclass(frozen=True, slots=True)
class Rule:
    """Say which sizes of an axis were accepted: low..high, `size % step == rest`, and equal to another axis.

    `refused`: sizes that both sides refused, for showing; `said`: what torch, or else ORT, said of one of them.
    """

    symbol: str
    low: int = 0
    high: int | None = None
    step: int = 1
    rest: int = 0
    equal_to: str = ""
    refused: tuple[int, ...] = ()
    said: str = ""

    def nearest(self, size: int) -> int:
        """Return the size closest to a wish that the rule lets through."""
        lowest = self.low + (self.rest - self.low) % self.step
        size = max(lowest, size + self.step // 2 - (size + self.step // 2 - self.rest) % self.step)
        if self.high is not None and size > self.high:
            size = max(lowest, self.high - (self.high - self.rest) % self.step)
        return size

    def lets(self, size: int) -> bool:
        """Tell whether a size is inside the bounds and has the remainder."""
        return self.low <= size and (self.high is None or size <= self.high) and size % self.step == self.rest


class SizeRelations:
    """Observe the sizes of cases and what became of them, and derive rules from that."""

    def __init__(self, symbols: Sequence[str]) -> None:
        """Start with nothing seen of the axes that may change."""
        self._symbols = tuple(symbols)
        self._accepted: dict[Sizes, None] = {}
        self._refused: dict[Sizes, int] = {}
        self._said: dict[Sizes, str] = {}
        self._rules: dict[str, Rule] = {}
        self._changes = 0
        self._wishes = 0

    def observe(self, sizes: Mapping[str, int], refused: bool, said: str = "") -> bool:
        """Take in one case by the sizes of its axes, and tell whether these were not known to be accepted.

        `said` is what a side that refuses it says.
        """
        key = tuple(sizes[symbol] for symbol in self._symbols)
        if not key or key in self._accepted:
            return False
        if not refused:
            self._accept(key)
        elif key in self._refused or len(self._refused) < _MOST_SIZES:
            self._refused[key] = self._refused.get(key, 0) + 1
            self._said.setdefault(key, said)
            self._changes += self._refused[key] <= _LEAST_REFUSALS
        return True

    def _accept(self, key: Sizes) -> None:
        is_surprise = self._refused.pop(key, 0) > 0 or self._contradicts(key)
        if len(self._accepted) >= _MOST_SIZES:
            if not is_surprise:
                return
            del self._accepted[next(iter(self._accepted))]
        self._accepted[key] = None
        self._changes += len(self._refused) + 1 if is_surprise else bool(self._refused)

    def _contradicts(self, key: Sizes) -> bool:
        sizes = dict(zip(self._symbols, key, strict=True))
        return any(
            not rule.lets(sizes[rule.symbol]) or (rule.equal_to and sizes[rule.equal_to] != sizes[rule.symbol])
            for rule in self._rules.values()
        )

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return what is believed now, one rule at most for an axis."""
        if self._changes > len(self._refused) // 8:
            self._changes = 0
            self._rules = {rule.symbol: rule for rule in self._derived()}
        return tuple(self._rules.values())

    @property
    def accepted(self) -> list[dict[str, int]]:
        """Return the combinations of sizes that were not refused by both sides."""
        return [dict(zip(self._symbols, key, strict=True)) for key in self._accepted]

    def adapted(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Return wished-for sizes as the rules let them through; now and then as they were wished for."""
        if not self._refused or not self.rules:
            return dict(wanted)
        found: dict[str, int] = {}
        for symbol, size in wanted.items():
            rule = self._rules.get(symbol)
            is_single = rule is not None and rule.low == rule.high and len(wanted) > 1  # they may have to move together
            found.setdefault(symbol, size if rule is None or is_single else rule.nearest(size))
            if rule is not None and rule.equal_to:
                found[rule.equal_to] = found[symbol]
            for other in self._rules.values():
                if other.equal_to == symbol:
                    found[other.symbol] = found[symbol]
        if found != dict(wanted):
            self._wishes += 1
            if self._wishes % _WISH_EVERY == 0:
                return dict(wanted)
        return found

    # Deriving

    def _derived(self) -> Iterator[Rule]:
        if not self._refused or not self._accepted:
            return
        equal = self._equalities()
        for index, symbol in enumerate(self._symbols):
            if index in equal:
                first, evidence = equal[index]
                sizes = tuple(sorted({key[index] for key in evidence}))
                yield Rule(symbol, equal_to=self._symbols[first], refused=sizes, said=self._words(evidence))
                continue
            partners = [index, *(other for other, (first, _) in equal.items() if first == index)]
            accepted, refused = self._along(partners, set(equal))
            rule = _rule_of(symbol, accepted, Counter({size: self._count(keys) for size, keys in refused.items()}))
            if rule is not None:
                yield Rule(
                    symbol,
                    rule.low,
                    rule.high,
                    rule.step,
                    rule.rest,
                    refused=rule.refused,
                    said=self._words([key for size in rule.refused for key in refused[size]]),
                )

    def _count(self, keys: Sequence[Sizes]) -> int:
        return sum(self._refused[key] for key in keys)

    def _words(self, keys: Sequence[Sizes]) -> str:
        return next((said for key in keys if (said := self._said.get(key, ""))), "")

    def _along(self, axes: Sequence[int], equal: set[int]) -> tuple[set[int], dict[int, list[Sizes]]]:
        """Return the sizes that some case was accepted with, and those refused beside an accepted case.

        `axes` move as one; refused cases that break an equality say nothing here.
        """
        lines: set[Sizes] = {_without(key, axes) for key in self._accepted}
        accepted = {key[axes[0]] for key in self._accepted}
        refused: dict[int, list[Sizes]] = {}
        for key in self._refused:
            size = key[axes[0]]
            if size in accepted or any(key[axis] != size for axis in axes) or _without(key, axes) not in lines:
                continue
            refused.setdefault(size, []).append(key)
        return accepted, refused

    def _equalities(self) -> dict[int, tuple[int, list[Sizes]]]:
        """Return axis -> (an earlier axis that it has to equal, the refused cases that say so)."""
        found: dict[int, tuple[int, list[Sizes]]] = {}
        for second in range(1, len(self._symbols)):
            for first in range(second):
                if first in found or any(key[first] != key[second] for key in self._accepted):
                    continue
                if len({key[first] for key in self._accepted}) < 2:
                    continue
                evidence = [
                    key
                    for key in self._refused
                    if key[first] != key[second]
                    and (
                        _with(key, second, key[first]) in self._accepted
                        or _with(key, first, key[second]) in self._accepted
                    )
                ]
                if self._count(evidence) >= _LEAST_UNEQUAL:
                    found[second] = (first, evidence)
                    break
        return found


def _with(key: Sizes, index: int, size: int) -> Sizes:
    return (*key[:index], size, *key[index + 1 :])


def _without(key: Sizes, axes: Sequence[int]) -> Sizes:
    return tuple(-1 if index in axes else size for index, size in enumerate(key))


def _rule_of(symbol: str, accepted: set[int], refused: Mapping[int, int]) -> Rule | None:
    """Return the least rule that explains why some sizes are refused, None where nothing simple does."""
    first, last = min(accepted), max(accepted)
    step, rest = _step_of(accepted, [size for size in refused if first < size < last])
    other = [size for size in refused if size % step == rest]  # what the remainder does not explain
    below, above = [size for size in other if size < first], [size for size in other if size > last]
    is_regular = not any(first < size < last for size in other)
    low, high = 0, None
    if is_regular and sum(refused[size] for size in below) >= _LEAST_REFUSALS:
        low = max(below) + 1
    if is_regular and len(above) >= _LEAST_BEYOND and len(accepted) >= _LEAST_ACCEPTED:
        high = min(above) - 1
    if len(accepted) == 1 and len(refused) >= _LEAST_FOR_ONE and any(size > 2 * last for size in above):
        low, high = first, first
    if low == 0 and high is None and step == 1:
        return None
    explained = [size for size in refused if size % step != rest or size < low or (high is not None and size > high)]
    return Rule(symbol, low, high, step, rest, refused=tuple(sorted(explained)))


def _step_of(accepted: set[int], inside: Sequence[int]) -> tuple[int, int]:
    """Return the smallest step, and the remainder, that all accepted sizes have and none refused between them."""
    if len(accepted) < _LEAST_ACCEPTED or len(inside) < _LEAST_INSIDE:
        return 1, 0
    first = min(accepted)
    common = math.gcd(*(size - first for size in accepted))
    for step in range(2, min(common, _LARGEST_STEP) + 1):
        if common % step == 0 and not any((size - first) % step == 0 for size in inside):
            return step, first % step
    return 1, 0


@dataclass(slots=True)
class RefusalTally:
    """Count what each side said of cases that both refused."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # (side, normalized) -> times
    texts: dict[tuple[str, str], str] = field(default_factory=dict)  # the first message as it was

    def add(self, expected: Execution, actual: Execution) -> str:
        """Take in a case that both sides refused, and return what is told of it: torch's word, else ORT's."""
        for execution in (expected, actual):
            refusal = execution.refusal
            words = f"{refusal.error_class}: {refusal.message}" if refusal is not None else execution.status.value
            key = (execution.side, words)
            if key in self.counts or len(self.counts) < _MOST_MESSAGES:
                self.counts[key] += 1
                self.texts.setdefault(key, refusal.said if refusal is not None else words)
        told = expected if expected.refusal is not None or actual.refusal is None else actual
        return f"{told.side}: {told.refusal.said if told.refusal is not None else told.status.value}"

    def update(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Take in what another process counted, by (side, message as it was)."""
        for key, count in counts.items():
            self.counts[key] += count
            self.texts.setdefault(key, key[1])

    def taken(self) -> dict[tuple[str, str], int]:
        """Return what was counted since the last call, by (side, message as it was)."""
        found = {(key[0], self.texts[key]): count for key, count in self.counts.items()}
        self.counts.clear()
        return found

    def commonest(self) -> list[str]:
        """Return the commonest message of each side, in words."""
        lines = []
        for side in dict.fromkeys(side for side, _ in self.counts):
            (_, words), count = max(
                ((key, count) for key, count in self.counts.items() if key[0] == side), key=lambda item: item[1]
            )
            name = "ORT" if side == ORT else side
            lines.append(f"{name} refused {count:,} times with {self.texts[side, words]}")
        return lines
