"""Pool: the cases that recipes start from, the smallest known one per feature, bounded in count and bytes.

The idea: a feature owns one case. A signal family is chosen before a feature of it, so that a talkative family does
not drown a quiet one (FACTS, "Feedback"), and by what the family's cases have brought lately; then rare features lend
their case more often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuzzparity.case import Array, Case, sort_key
from fuzzparity.generate.bandit import Arms, Choice
from fuzzparity.generate.rng import Rng

SortKey = tuple[Any, ...]
MAX_FEATURES = 1 << 14
SEEDS = "seeds"
_SEED_SHARE = 0.35
_FAMILY_FLOOR = 0.25
_LOOK_EVERY = 16  # hits of a feature between two looks at the full order
_CHEAP_ELEMENTS = 4096  # up to here the full order is computed to break a tie of elements and dims


@dataclass(slots=True, eq=False)
class Entry:
    """Hold one case of the pool. Seeds own nothing and always stay."""

    case: Case
    arrays: list[Array]
    is_seed: bool = False
    owned: set[str] = field(default_factory=set)
    is_finite: bool = True
    _key: SortKey | None = None

    @property
    def key(self) -> SortKey:
        """Return the case's place in the total order, computed once."""
        if self._key is None:
            self._key = sort_key(self.case)
        return self._key


class Pool:
    """Keep seeds and the smallest case per feature."""

    def __init__(self, seeds: Sequence[Entry], max_entries: int, max_bytes: int) -> None:
        """Start from seeds; caps are on what comes on top of them."""
        self.seeds = tuple(seeds)
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.nbytes = 0
        self.hits: dict[str, int] = {}
        self.entries: dict[str, Entry] = {}  # by digest, in order of arrival
        self._owners: dict[str, Entry] = {}
        self._families: dict[str, list[str]] = {}
        self._names: tuple[str, ...] = ()  # of the families
        self.parents = Arms("parents")
        self.parents.add(SEEDS)
        self._choice = Choice(self.parents, _FAMILY_FLOOR)

    def note(self, features: Iterable[str]) -> None:
        """Count features without keeping a case."""
        for feature in sorted(features):
            if feature in self.hits:
                self.hits[feature] += 1
            elif len(self.hits) < MAX_FEATURES:
                self.hits[feature] = 1

    def offer(self, case: Case, arrays: list[Array], features: frozenset[str]) -> bool:
        """Keep a case that shows a new feature, or an old one on fewer elements; tell whether it was kept."""
        wanted = [feature for feature in sorted(features) if self._wants(feature, case)]
        self.note(features)
        if not wanted or case.nbytes > self.max_bytes:
            return False
        entry = self.entries.get(case.digest)
        if entry is None:
            entry = Entry(case, arrays, is_finite=case.is_finite)
            self.entries[case.digest] = entry
            self.nbytes += case.nbytes
        for feature in wanted:
            self._give(feature, entry)
        self._evict()
        return True

    def _wants(self, feature: str, case: Case) -> bool:
        owner = self._owners.get(feature)
        if owner is None:  # a known feature without an owner was evicted, or shown by a case that is not kept
            return feature not in self.hits and len(self.hits) < MAX_FEATURES
        mine, theirs = _size(case), _size(owner.case)
        if mine != theirs:
            return mine < theirs
        # the full order reads every value: a look now and then simplifies as well as one at every hit
        if case.elements > _CHEAP_ELEMENTS or self.hits[feature] % _LOOK_EVERY:
            return False
        return sort_key(case) < owner.key

    def _give(self, feature: str, entry: Entry) -> None:
        owner = self._owners.get(feature)
        if owner is None:
            self._families.setdefault(feature.partition(":")[0], []).append(feature)
            self._names = tuple(self._families)
        elif owner is not entry:
            owner.owned.discard(feature)
            if not owner.owned:
                self._drop(owner)
        self._owners[feature] = entry
        entry.owned.add(feature)

    def _drop(self, entry: Entry) -> None:
        del self.entries[entry.case.digest]
        self.nbytes -= entry.case.nbytes
        for feature in entry.owned:
            del self._owners[feature]
            self._families[feature.partition(":")[0]].remove(feature)
        self._families = {family: features for family, features in self._families.items() if features}
        self._names = tuple(self._families)

    def _evict(self) -> None:
        """Make room, an eighth at a time: cases whose rarest feature is most common go first, large before small."""
        if len(self.entries) <= self.max_entries and self.nbytes <= self.max_bytes:
            return
        order = sorted(
            self.entries.values(),
            key=lambda e: (-min(self.hits[f] for f in e.owned), -e.case.nbytes, e.case.digest),
        )
        for entry in order:
            if len(self.entries) <= self.max_entries * 7 // 8 and self.nbytes <= self.max_bytes * 7 // 8:
                return
            self._drop(entry)

    def begin(self) -> None:
        """Start a lease, whose chance is another stream."""
        self._choice.forget()

    def choose(self, rng: Rng, finite: bool = True) -> Entry:
        """Draw a parent: a seed, or the owner of the rarest of three features of one family."""
        return self.choose_from(rng, finite)[0]

    def choose_from(self, rng: Rng, finite: bool = True) -> tuple[Entry, str]:
        """Draw a parent as `choose` does, and tell which family lent it; `SEEDS` for a seed."""
        if not self._names or rng.chance(_SEED_SHARE):
            return rng.pick(self.seeds), SEEDS
        family = self._choice.pick(self._names, rng)
        features = self._families[family]
        rarest = min([rng.pick(features) for _ in range(3)], key=self.hits.__getitem__)
        entry = self._owners[rarest]
        return (entry, family) if entry.is_finite or not finite else (rng.pick(self.seeds), SEEDS)

    def check(self) -> None:
        """Assert the book-keeping: owners and owned agree, every entry owns something, bytes add up."""
        assert all(feature in entry.owned for feature, entry in self._owners.items())
        assert all(entry.owned for entry in self.entries.values())
        assert sum(len(entry.owned) for entry in self.entries.values()) == len(self._owners)
        assert self.nbytes == sum(entry.case.nbytes for entry in self.entries.values())
        assert sorted(f for features in self._families.values() for f in features) == sorted(self._owners)


def _size(case: Case) -> tuple[int, int]:
    return case.elements, sum(sum(array.shape) for array in case.inputs.values())
