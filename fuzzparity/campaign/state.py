"""State: what a campaign counts while it runs, its clock, and what it reads of the system.

The idea: small parts that the loop holds, without a view of one another.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psutil

from fuzzparity.campaign.setup import Prepared
from fuzzparity.corpus.database import Corpus


@dataclass(slots=True)
class Totals:
    """Count what all leases did together, and what went wrong."""

    executions: int = 0
    inputs: int = 0
    rejected: int = 0
    deaths: int = 0
    faults: int = 0
    barren_deaths: int = 0
    efforts: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # (kind, name) -> tried, kept

    def add_efforts(self, efforts: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        """Add what the moves and families of one lease did."""
        for key, (tried, kept) in efforts.items():
            before = self.efforts.get(key, (0, 0))
            self.efforts[key] = (before[0] + tried, before[1] + kept)


@dataclass(slots=True)
class Clock:
    """Measure fuzzing time: from the first lease to the end of the last, probes included."""

    started: float | None = None
    stopped: float | None = None

    def seconds(self) -> float:
        """Return the fuzzing time so far."""
        if self.started is None:
            return 0.0
        return (self.stopped if self.stopped is not None else time.monotonic()) - self.started


def set_aside(prepared: Prepared) -> None:
    """Move an earlier corpus out of the way (`--fresh`); nothing is deleted."""
    corpus = prepared.places.corpus
    if not corpus.exists():
        return
    with Corpus.open(corpus):  # proves that it is a corpus and that no campaign is writing to it
        pass
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    for suffix in ("", "-wal", "-shm"):
        old = corpus.with_name(corpus.name + suffix)
        if old.exists():
            old.rename(corpus.with_name(f"{corpus.stem}-{stamp}{corpus.suffix}{suffix}"))


def resident_bytes(pids: list[int]) -> int:
    """Return the resident memory of this process and `pids`; a process that is gone counts nothing."""
    total = psutil.Process().memory_info().rss
    for pid in pids:
        try:
            total += psutil.Process(pid).memory_info().rss
        except (psutil.NoSuchProcess, ValueError):
            pass
    return int(total)
