"""Repeats: cases of known findings that wait to be asked whose fault they are, so that a second cause surfaces.

The idea: all that wait of a bucket are asked at once, since most are explained at first sight, the bucket asked least
first, for a bounded share of the campaign.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from fuzzparity.case import Case, Lineage

_MOST_WAITING = 64  # of one finding; those in between go, the first and the newest stay
_MOST_BYTES = 256 << 20  # of all that wait
_SHARE = 0.3  # of one core, of the time since the campaign began
_SHARE_BESIDE_BUGS = 0.1  # while bugs wait that nobody has looked at
_GRACE_SECONDS = 6.0  # that are not counted


@dataclass(frozen=True, slots=True)
class Repeat:
    """Hold a case that fell into the bucket of a finding again."""

    case: Case
    lineage: Lineage


@dataclass(slots=True)
class _Bucket:
    """Hold the cases of one bucket that wait."""

    waiting: deque[Repeat] = field(default_factory=deque)
    digests: set[str] = field(default_factory=set)
    asked: int = 0

    @property
    def nbytes(self) -> int:
        """Return the size of what waits."""
        return sum(one.case.nbytes for one in self.waiting)

    def thin(self) -> None:
        """Drop one from the middle."""
        del self.waiting[len(self.waiting) // 2]


class Repeats:
    """Hold what waits, by the finding that opened the bucket, and choose what is asked next."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._buckets: dict[str, _Bucket] = {}
        self._spent_seconds = 0.0

    def offer(self, finding_id: str, repeat: Repeat) -> None:
        """Take a case that may be asked later; one that is known already is left out."""
        bucket = self._buckets.setdefault(finding_id, _Bucket())
        if repeat.case.digest not in bucket.digests:
            bucket.digests.add(repeat.case.digest)
            bucket.waiting.append(repeat)
            self._thin(bucket)

    def give_back(self, finding_id: str, repeats: Sequence[Repeat]) -> None:
        """Take what was not asked after all; it is the first again."""
        bucket = self._buckets[finding_id]
        bucket.waiting.extendleft(reversed(repeats))
        self._thin(bucket)

    def _thin(self, bucket: _Bucket) -> None:
        """Drop what is too much: in a bucket by number, in all of them by size, from the largest."""
        while len(bucket.waiting) > _MOST_WAITING:
            bucket.thin()
        sizes = {name: one.nbytes for name, one in self._buckets.items()}
        while sum(sizes.values()) > _MOST_BYTES:
            largest = max(sizes, key=lambda name: sizes[name])
            self._buckets[largest].thin()
            sizes[largest] = self._buckets[largest].nbytes

    def waiting(self, *, unasked: bool = False) -> list[str]:
        """Return the findings whose buckets have cases that wait, the one asked least first, then the one of most."""
        found = [(one.asked, -len(one.waiting), name) for name, one in self._buckets.items() if one.waiting]
        return [name for asked, _, name in sorted(found) if not (unasked and asked)]

    def is_due(self, at_seconds: float, *, has_bug: bool = False) -> bool:
        """Tell whether the share of the campaign leaves time for another child; `has_bug`: a bug waits meanwhile."""
        if has_bug:
            return self._spent_seconds + _GRACE_SECONDS <= _SHARE_BESIDE_BUGS * at_seconds
        return self._spent_seconds <= _GRACE_SECONDS + _SHARE * at_seconds

    def take(self, finding_id: str) -> tuple[Repeat, ...]:
        """Return what waits of a bucket: by turns the first that looked different and the newest."""
        bucket = self._buckets[finding_id]
        waiting = bucket.waiting
        bucket.asked += len(waiting)
        return tuple(waiting.popleft() if place % 2 == 0 else waiting.pop() for place in range(len(waiting)))

    def spent(self, seconds: float) -> None:
        """Take in how long a child worked."""
        self._spent_seconds += seconds
