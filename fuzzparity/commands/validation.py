"""Validation: what `check --all-seeds`, `explain TARGET FOLDER` and `import` do, which go through whole data sets.

The idea: one child streams the data and sends a row, or cases, for each input; here they are added up, stored, and
survive whatever happens to the child. A death is the row of the input that caused it, and the next child goes on
behind it. Ctrl-C ends the stream, and what is there by then is the answer.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzzparity.campaign.setup import Prepared, Stage, suspect_of_death
from fuzzparity.case import Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import KeptCase
from fuzzparity.errors import InvalidCase, WorkerLost
from fuzzparity.execution import ORT, TORCH
from fuzzparity.explain.dataset import (
    Done,
    Gathered,
    GatherSpec,
    Opening,
    Row,
    Skipped,
    Taken,
    Validated,
    ValidateSpec,
    Validation,
)
from fuzzparity.explain.records import REFEREE, TwinSpec
from fuzzparity.finding import Suspect
from fuzzparity.generate.ranges import InputRanges, Seen
from fuzzparity.verdict import Realism
from fuzzparity.work.alone import Exit

_VALIDATE_JOB = "fuzzparity.explain.validating:validate"
_GATHER_JOB = "fuzzparity.explain.gathering:gather"
_STOPPED = "stopped by Ctrl-C"


@dataclass(frozen=True, slots=True)
class Imported:
    """Say what an import took: cases new to the corpus, cases already there, what was skipped and why."""

    corpus: Path
    added: int
    known: int
    skipped: tuple[str, ...]
    read: int = 0
    ranges: tuple[InputRanges, ...] = ()
    notes: tuple[str, ...] = ()
    stopped: str = ""


def run_all(
    prepared: Prepared,
    paths: tuple[str, ...],
    say: Callable[[str], None],
    *,
    own: bool,
    take: Callable[[Suspect], None],
) -> Validation:
    """Run all of the data on both sides and return its table; each suspect of a bucket not met before goes to `take`.

    The data is the target's own seeds, if `own`, then files and folders.
    """
    assert prepared.twin is not None
    stream = _Stream(prepared, say, take, Validation(prepared.facts.outputs))
    begun = time.monotonic()
    try:
        stream.run(ValidateSpec(prepared.twin, paths, own))
    except KeyboardInterrupt:
        stream.table.stopped = _STOPPED
    stream.table.seconds = time.monotonic() - begun
    stream.table.skipped[:] = dict.fromkeys(stream.table.skipped)
    stream.table.notes[:] = dict.fromkeys(stream.table.notes)
    return stream.table


@dataclass(slots=True)
class _Stream:
    """Take rows from one child after the other."""

    prepared: Prepared
    say: Callable[[str], None]
    take: Callable[[Suspect], None]
    table: Validation
    opening: Opening | None = None
    after: tuple[int, int] | None = None
    seen: dict[str, Seen] | None = None
    told: set[str] = field(default_factory=set)

    def run(self, spec: ValidateSpec) -> None:
        """Run children until one gets to the end of the data."""
        pool = self.prepared.pool
        pool.tick = lambda: self.say(self._words())
        try:
            while True:
                self.opening = None
                given = replace(spec, after=self.after, seen=self.seen)
                answer = pool.run(
                    _VALIDATE_JOB, given, limits=self.prepared.limits, label="validate", on_message=self._hear
                )
                if isinstance(answer, Validated):
                    self.table.ranges = answer.ranges
                    self.table.notes += answer.notes
                    return
                assert isinstance(answer, Exit)
                spec = self._bury(answer, spec)
        finally:
            pool.tick = lambda: None

    def _words(self) -> str:
        where = self.opening.where if self.opening else ""
        return f"running the data: {len(self.table.rows):,} inputs, {self.table.beyond:,} differ, {where}"

    def _hear(self, message: Any) -> None:
        if isinstance(message, Opening):
            self.opening = message
        elif isinstance(message, Done):
            self.table.rows.append(message.row)
            self.after, self.seen = message.row.place, message.seen
        elif isinstance(message, Skipped):
            self.table.skipped.append(message.text)
        elif isinstance(message, Suspect):
            self._tell(message)

    def _tell(self, suspect: Suspect) -> None:
        if suspect.bucket.finding_id not in self.told:
            self.told.add(suspect.bucket.finding_id)
            self.take(suspect)

    def _bury(self, exit_: Exit, spec: ValidateSpec) -> ValidateSpec:
        """Make a death the row of its input, and return what the next child does."""
        if exit_.with_loader or self.opening is None:
            raise WorkerLost(f"the process that runs the data died with {exit_.text}\n{exit_.fault}")
        announced = exit_.announced
        side = announced.side if announced is not None else ""
        if side == REFEREE and spec.twin.use_referee:  # a referee that dies is no vote: the same input without it
            return replace(spec, twin=replace(spec.twin, use_referee=False))
        if announced is None or announced.case is None or side not in (TORCH, ORT) or announced.note == "load":
            where = self.opening.where
            if side:
                raise WorkerLost(f"the process that runs the data died with {exit_.text} on {where}\n{exit_.fault}")
            self.table.skipped.append(f"{where}: reading it ended the process with {exit_.text}")
            self.after = (self.opening.source + 1, -1)  # in front of the first case of the next source
            return spec
        place = (self.opening.source, announced.sequence)
        self._tell_death(exit_, spec.twin, place)
        self.after = place
        return spec

    def _tell_death(self, exit_: Exit, twin: TwinSpec, place: tuple[int, int]) -> None:
        assert exit_.announced is not None
        assert exit_.announced.case is not None
        assert self.opening is not None
        suspect = suspect_of_death(self.prepared.facts, twin, exit_, exit_.announced.case, Lineage(origin="given"))
        suspect = replace(suspect, realism=Realism.NEAR if exit_.announced.case.is_finite else suspect.realism)
        where = f"{self.opening.where}[{place[1]}]" if place[1] else self.opening.where
        verdict = suspect.verdict
        self.table.rows.append(
            Row(
                where,
                place,
                verdict.kind.value,
                verdict.grade.value,
                realism=suspect.realism.value,
                headline=verdict.headline,
                finding_ids=(suspect.bucket.finding_id,),
            )
        )
        self._tell(suspect)


def import_all(prepared: Prepared, paths: tuple[str, ...], limit: int | None, say: Callable[[str], None]) -> Imported:
    """Read data into the corpus of a prepared target, as it streams by; campaigns start from it."""
    spec = GatherSpec(paths, prepared.facts.contract, limit)
    stage = Stage("reading the data", say)
    prepared.pool.tick = stage.tick
    with Corpus.open(prepared.places.corpus, create=True) as corpus:
        store = _Store(corpus, corpus.begin_campaign(prepared.facts, "import", 0, ort=prepared.facts.ort))
        begun = time.monotonic()

        def hear(message: Any) -> None:
            store.take(message) if isinstance(message, Taken) else stage.hear(message)

        answer: Any = None
        exit_code = 0
        try:
            answer = prepared.pool.run(_GATHER_JOB, spec, limits=prepared.limits, label="gather", on_message=hear)
        except KeyboardInterrupt:
            exit_code = 128 + signal.SIGINT
        finally:
            prepared.pool.tick = lambda: None
            corpus.end_campaign(
                store.campaign_id,
                seconds=time.monotonic() - begun,
                executions=0,
                inputs=store.added + store.known,
                exit_code=exit_code,
                interrupted=exit_code != 0,
            )
        return _imported(prepared.places.corpus, store, answer, paths)


def _imported(corpus: Path, store: _Store, answer: Any, paths: tuple[str, ...]) -> Imported:
    if answer is None:
        return Imported(corpus, store.added, store.known, (), stopped=_STOPPED)
    if isinstance(answer, Exit):
        raise WorkerLost(f"the process that reads {', '.join(paths)} died with {answer.text}\n{answer.fault}")
    assert isinstance(answer, Gathered)
    if not answer.read:
        told = "; ".join(answer.skipped[:3]) or "empty"
        raise InvalidCase(f"no input could be read from {', '.join(paths)}: {told}")
    return Imported(corpus, store.added, store.known, answer.skipped, answer.read, answer.ranges, answer.notes)


@dataclass(slots=True)
class _Store:
    """Put cases into a corpus as they come, each once."""

    corpus: Corpus
    campaign_id: str
    known_digests: set[str] = field(default_factory=set)
    added: int = 0
    known: int = 0

    def __post_init__(self) -> None:
        """Learn what is there already."""
        self.known_digests = {row.digest for row in self.corpus.cases()}

    def take(self, taken: Taken) -> None:
        """Store cases in one transaction."""
        fresh = [case for case in dict.fromkeys(taken.cases) if case.digest not in self.known_digests]
        self.corpus.keep_cases(self.campaign_id, [KeptCase(case, Lineage(origin="import")) for case in fresh])
        self.known_digests |= {case.digest for case in fresh}
        self.added += len(fresh)
        self.known += len(taken.cases) - len(fresh)
