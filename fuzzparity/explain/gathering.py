"""Gathering: read validation data once, keep a diverse part of it, and let all of it count for ranges.

The idea: the same few lines serve `import`, which stores what is kept, and the gate, which runs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from fuzzparity.case import Case
from fuzzparity.explain.dataset import Gathered, GatherSpec, Progress, Taken
from fuzzparity.generate.diverse import WORDS, DiverseChoice
from fuzzparity.generate.ranges import RangeTally
from fuzzparity.sides.seeds import SeedReader
from fuzzparity.work.loader import Context

PROGRESS_SECONDS = 0.5
MOST_BYTES = 1 << 30  # of the cases that are chosen
_MESSAGE_BYTES = 1 << 25
_MESSAGE_CASES = 256


class Ticker:
    """Send progress a few times a second at most."""

    def __init__(self, send: Callable[[Progress], None]) -> None:
        """Bind to where progress goes."""
        self._send = send
        self._last = time.monotonic()

    def tell(self, cases: int, where: str) -> None:
        """Take the state of the moment."""
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS:
            self._last = now
            self._send(Progress(cases, where))


def gather(context: Context, spec: GatherSpec) -> Gathered:
    """Read files and folders, send the cases to keep as `Taken`, and return what is known of all of them."""
    reader = SeedReader(context.loaded, spec.contract)
    ranges = RangeTally(context.loaded.seed)
    ticker = Ticker(context.send)
    choice = DiverseChoice(context.loaded.seed, spec.limit, MOST_BYTES) if spec.limit is not None else None
    outbox = _Outbox(lambda cases: context.send(Taken(cases)))
    for found in reader.read(spec.paths, own=False):
        ranges.add(found.case, found.where)
        ticker.tell(ranges.count, found.where)
        if choice is not None:
            choice.offer(found.case)
        else:
            outbox.add([found.case])
    if choice is not None:
        outbox.add(choice.cases)
    outbox.flush()
    notes = [*reader.notes, *ranges.warnings]
    if choice is not None and outbox.count < ranges.count:
        notes.insert(0, chosen_words(outbox.count, ranges.count))
    return Gathered(ranges.count, outbox.count, ranges.ranges(), tuple(reader.skipped), tuple(notes))


def chosen_words(kept: int, read: int) -> str:
    """Say how a part was chosen."""
    return f"{kept:,} of {read:,} inputs kept: {WORDS}; all of them count for ranges"


class _Outbox:
    """Send cases in messages of a bounded size."""

    def __init__(self, send: Callable[[tuple[Case, ...]], None]) -> None:
        self._send = send
        self._waiting: list[Case] = []
        self._nbytes = 0
        self.count = 0

    def add(self, cases: Iterable[Case]) -> None:
        """Take cases in, in order."""
        for case in cases:
            self._waiting.append(case)
            self._nbytes += case.nbytes
            self.count += 1
            if self._nbytes >= _MESSAGE_BYTES or len(self._waiting) >= _MESSAGE_CASES:
                self.flush()

    def flush(self) -> None:
        """Send what waits."""
        if self._waiting:
            self._send(tuple(self._waiting))
        self._waiting, self._nbytes = [], 0
