"""Perils: what cases that kill a side have in common, so that their likes become rare.

The idea: a death costs a process, a hang its whole time limit, and the tenth of one kind teaches nothing. A few plain
traits of a case (an empty axis, a value at the end of its type) are compared over the deaths of one bucket; cases that
have all that these share run once in a while only. It is a guess that heals: cases that survive it end it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from fuzzparity.case import Array, Case, is_float

Peril = frozenset[str]

LEARNT_AFTER = 3  # deaths of one bucket: two may share anything
RARITY = 16  # of the cases in a peril one in so many runs, as rules about sizes are tested (generate/relations.py)
SURVIVORS = 2  # of those that ran end it: one may be a death that comes and goes
_HUGE = 1e30  # a float whose square is beyond float32


@dataclass(slots=True)
class Deaths:
    """Learn from the deaths of a campaign, by bucket."""

    _shared: dict[str, Peril] = field(default_factory=dict)
    _met: dict[str, int] = field(default_factory=dict)
    _harmless: set[Peril] = field(default_factory=set)

    def learn(self, bucket: str, case: Case) -> None:
        """Take one more death of a bucket."""
        traits = traits_of(case)
        self._shared[bucket] = self._shared.get(bucket, traits) & traits
        self._met[bucket] = self._met.get(bucket, 0) + 1

    def forget(self, perils: Iterable[Peril]) -> None:
        """Drop what cases have survived."""
        self._harmless.update(perils)

    @property
    def perils(self) -> tuple[Peril, ...]:
        """Return what is known to be perilous, in the order of the first deaths."""
        found = (shared for bucket, shared in self._shared.items() if self._met[bucket] >= LEARNT_AFTER)
        return tuple(dict.fromkeys(shared for shared in found if shared and shared not in self._harmless))


class Caution:
    """Let cases that are in a peril through once in a while: `RARITY - 1` wait before the first one runs."""

    def __init__(self, perils: Iterable[Peril] = ()) -> None:
        """Start with what others have learnt."""
        self._met = dict.fromkeys(perils, 0)
        self._survived: dict[Peril, int] = {}
        self._left_out = 0  # since it was last told

    def heed(self, perils: Iterable[Peril]) -> None:
        """Replace what is perilous; counts of what stays go on."""
        survived = {peril for peril, count in self._survived.items() if count >= SURVIVORS}
        self._met = {peril: self._met.get(peril, 0) for peril in perils if peril not in survived}

    def avoids(self, case: Case) -> bool:
        """Count a case, and tell whether it is to be left out this time."""
        perils = self._of(case)
        for peril in perils:
            self._met[peril] += 1
        is_left_out = bool(perils) and not any(self._met[peril] % RARITY == 0 for peril in perils)
        self._left_out += is_left_out
        return is_left_out

    def left_out(self) -> int:
        """Return how many cases were left out since this was asked last."""
        count, self._left_out = self._left_out, 0
        return count

    def survived(self, case: Case) -> None:
        """Take in that a case has run; a peril that enough cases survive is none."""
        for peril in self._of(case):
            self._survived[peril] = self._survived.get(peril, 0) + 1
            if self._survived[peril] >= SURVIVORS:
                del self._met[peril]

    @property
    def harmless(self) -> tuple[Peril, ...]:
        """Return the perils that were none."""
        return tuple(peril for peril, count in self._survived.items() if count >= SURVIVORS)

    def _of(self, case: Case) -> list[Peril]:
        if not self._met:
            return []
        traits = traits_of(case)
        return [peril for peril in self._met if peril <= traits]


def traits_of(case: Case) -> Peril:
    """Return the plain traits of a case, each "input trait"."""
    return frozenset(
        f"{name} {trait}"
        for name, array in case.inputs.items()
        for trait in (*_shape_traits(array), *_value_traits(array))
    )


def _shape_traits(array: Array) -> Iterator[str]:
    for axis, size in enumerate(array.shape):
        if size == 0:
            yield f"empty along {axis}"
        elif size == 1:
            yield f"single along {axis}"
        elif size % 2:
            yield f"odd along {axis}"


def _value_traits(array: Array) -> Iterator[str]:
    if not array.size or array.dtype.kind == "b":
        return
    if is_float(array.dtype):
        wide = array.astype(np.float32) if array.dtype.kind == "V" else array
        if wide.dtype.kind == "c":
            return
        with np.errstate(all="ignore"):
            low, high = float(np.fmin.reduce(wide, axis=None)), float(np.fmax.reduce(wide, axis=None))
        if np.isnan(wide).any():
            yield "nan"
        if high == np.inf:
            yield "inf"
        elif high > _HUGE:
            yield "huge"
        if low == -np.inf:
            yield "-inf"
        elif low < -_HUGE:
            yield "-huge"
    elif array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        low, high = int(array.min()), int(array.max())
        if low == limits.min:
            yield "least"
        if high == limits.max:
            yield "largest"
        if low < 0:
            yield "negative"
    if (array == 0).any():
        yield "zero"
    if array.dtype.kind != "u" and (array == -1).any():
        yield "-1"
