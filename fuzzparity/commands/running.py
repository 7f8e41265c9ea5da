"""Running: the bodies of `explain`, `check`, `import`, `probe` and `replay --current`, which open a target.

The idea: each is a short campaign without a loop: the same setup, the same docket, the same records at its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fuzzparity.campaign.docket import Docket
from fuzzparity.campaign.observer import Observer
from fuzzparity.campaign.options import TargetOptions
from fuzzparity.campaign.records import PROBE_JOB, ProbeSpec
from fuzzparity.campaign.setup import Prepared, close_pool, prepare
from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import KeptCase, Payload
from fuzzparity.errors import InvalidCase, WorkerLost
from fuzzparity.explain.records import Examined, ExamineSpec, InputSpec
from fuzzparity.finding import Finding, bucket_of
from fuzzparity.probe.latency import ProbeRow, choose
from fuzzparity.report.records import CampaignResult, CampaignStatus
from fuzzparity.verdict import Grade, Kind
from fuzzparity.work.alone import Exit
from fuzzparity.work.pool import LoaderLost

_EXPLAIN_SECONDS = 120.0
_EXAMINE_JOB = "fuzzparity.explain.examine:examine"
_READ_JOB = "fuzzparity.explain.examine:read"


@dataclass(frozen=True, slots=True)
class Explained:
    """Hold what `explain` made of one input: the examination, and the finding when the sides differ."""

    name: str
    examined: Examined
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """Say what an import took: cases new to the corpus, cases already there, files that were skipped and why."""

    corpus: Path
    added: int
    known: int
    skipped: tuple[str, ...]


@contextmanager
def opened(options: TargetOptions, observer: Observer, *, gate: bool = True) -> Iterator[Prepared]:
    """Prepare a target and close everything that belongs to it afterwards."""
    begun = time.monotonic()

    def say(stage: str) -> None:
        observer.status(CampaignStatus(stage, time.monotonic() - begun))

    prepared = prepare(options, workers=1, say=say, gate=gate)
    try:
        yield prepared
    finally:
        close_pool(prepared.pool)


def check(options: TargetOptions, observer: Observer) -> Prepared:
    """Load, export and gate a target, and return what was learned; nothing is written to a corpus."""
    with opened(options, observer) as prepared:
        return prepared


def read_inputs(prepared: Prepared, paths: tuple[str, ...]) -> tuple[list[tuple[str, Case]], list[str]]:
    """Read files and folders of inputs as cases of a target, in a child; return them and what was skipped."""
    answer = prepared.pool.run(_READ_JOB, InputSpec(paths), limits=prepared.limits, label="read")
    if isinstance(answer, Exit):
        raise WorkerLost(f"the process that reads {', '.join(paths)} died with {answer.text}")
    cases, skipped = answer
    return cases, skipped


def explain(
    options: TargetOptions, paths: tuple[str, ...], observer: Observer, command: str
) -> tuple[CampaignResult, list[Explained]]:
    """Run given inputs on both sides, judge each with evidence, and minimize what differs."""
    begun = time.monotonic()
    with opened(options, observer) as prepared:
        named, skipped = read_inputs(prepared, paths)
        for text in skipped:
            observer.note(f"skipped: {text}")
        if not named:
            raise InvalidCase(f"no input could be read from {', '.join(paths)}")
        observer.started(prepared.facts, prepared.places, tuple(prepared.notes))
        return _examine_all(prepared, named, observer, command, time.monotonic() - begun)


def _examine_all(
    prepared: Prepared, named: list[tuple[str, Case]], observer: Observer, command: str, setup_seconds: float
) -> tuple[CampaignResult, list[Explained]]:
    started = time.monotonic()
    with Corpus.open(prepared.places.corpus, create=True) as corpus:
        campaign_id = corpus.begin_campaign(
            prepared.facts, command, 0, ort=prepared.facts.ort, setup_seconds=setup_seconds
        )
        docket = Docket(prepared, corpus, campaign_id, observer, lambda: time.monotonic() - started)
        examined = [(name, examine(prepared, case)) for name, case in named]
        for _, found in examined:
            for suspect in found.suspects:
                docket.take(suspect)
        finish(prepared, docket, _EXPLAIN_SECONDS)
        explained = [
            Explained(name, found, tuple(corpus.finding(s.bucket.finding_id) for s in found.suspects))
            for name, found in examined
        ]
        exit_code = int(any(s.verdict.grade is Grade.BUG for _, found in examined for s in found.suspects))
        rejected = sum(found.judgement.kind is Kind.REJECTED for _, found in examined)
        seconds = time.monotonic() - started
        corpus.end_campaign(
            campaign_id,
            seconds=seconds,
            executions=len(named),
            inputs=len(named),
            rejected=rejected,
            exit_code=exit_code,
            interrupted=False,
        )
        result = CampaignResult(
            campaign_id,
            prepared.facts,
            prepared.places.corpus,
            prepared.places.crashes,
            seconds,
            setup_seconds,
            len(named),
            len(named),
            rejected,
            corpus.size,
            tuple(docket.findings.values()),
            frozenset(docket.new_ids),
            exit_code,
            docket.hits_here,
        )
        return result, explained


def examine(prepared: Prepared, case: Case) -> Examined:
    """Judge one case in a fresh process."""
    assert prepared.twin is not None
    answer = prepared.pool.run(_EXAMINE_JOB, ExamineSpec(prepared.twin, case), limits=prepared.limits, label="examine")
    if isinstance(answer, Exit):
        raise WorkerLost(f"the examination died with {answer.text}\n{answer.fault}")
    assert isinstance(answer, Examined)
    return answer


def finish(prepared: Prepared, docket: Docket, limit_seconds: float) -> None:
    """Investigate everything a docket holds, for at most `limit_seconds`."""
    deadline = time.monotonic() + limit_seconds
    while docket.pending and time.monotonic() < deadline:
        assert prepared.twin is not None
        docket.start(prepared.twin, most=2, seconds_left=max(1.0, deadline - time.monotonic()))
        for event in prepared.pool.wait(0.2):
            if isinstance(event, LoaderLost):
                raise WorkerLost(f"the loader died with {event.exit.text}; what was found is stored")
            if note := docket.handle(event):
                docket.observer.note(note)


def import_data(options: TargetOptions, paths: tuple[str, ...], limit: int | None, observer: Observer) -> Imported:
    """Read validation data into the corpus of a target; campaigns start from it."""
    with opened(options, observer) as prepared:
        named, skipped = read_inputs(prepared, paths)
        if not named:
            raise InvalidCase(f"no input could be read from {', '.join(paths)}: {'; '.join(skipped) or 'empty'}")
        cases = list(dict.fromkeys(case for _, case in named))
        chosen = cases if limit is None else _spread(cases, limit)
        with Corpus.open(prepared.places.corpus, create=True) as corpus:
            before = {row.digest for row in corpus.cases()}
            campaign_id = corpus.begin_campaign(prepared.facts, "import", 0, ort=prepared.facts.ort)
            rows = [KeptCase(case, Lineage(origin="import")) for case in chosen]
            corpus.keep_cases(campaign_id, rows)
            corpus.end_campaign(campaign_id, seconds=0.0, executions=0, inputs=0, exit_code=0, interrupted=False)
        known = sum(case.digest in before for case in chosen)
        return Imported(prepared.places.corpus, len(chosen) - known, known, tuple(skipped))


def _spread(cases: list[Case], limit: int) -> list[Case]:
    """Choose `limit` cases evenly along the order by size and digest, so that shapes and contents vary."""
    ordered = sorted(cases, key=lambda case: (case.elements, case.digest))
    if limit >= len(ordered):
        return ordered
    step = len(ordered) / limit
    return [ordered[int(index * step)] for index in range(limit)]


def probe(options: TargetOptions, observer: Observer, *, cases: int, rounds: int) -> list[ProbeRow]:
    """Time both sides on kept cases, or on the seeds when nothing is kept yet, and store the figures."""
    with opened(options, observer) as prepared:
        assert prepared.twin is not None
        path = prepared.places.corpus
        pool = [prepared.seeds[0]] if prepared.seeds else []
        with Corpus.open(path, create=True) as corpus:
            pool = [case for case, _ in corpus.pool(1024) if case.elements] or list(prepared.seeds) or pool
            if not pool:
                raise InvalidCase("there is no case on which both sides answer; nothing to time")
            spec = ProbeSpec(prepared.twin, tuple(choose(pool, cases)), rounds)
            answer = prepared.pool.run(PROBE_JOB, spec, limits=prepared.limits, label="probe")
            if isinstance(answer, Exit):
                raise WorkerLost(f"the probe died with {answer.text}\n{answer.fault}")
            campaign_id = corpus.begin_campaign(prepared.facts, "probe", 0, ort=prepared.facts.ort)
            corpus.add_probe(campaign_id, answer)
            corpus.end_campaign(campaign_id, seconds=0.0, executions=0, inputs=0, exit_code=0, interrupted=False)
            return list(answer)


def replay_current(options: TargetOptions, payload: Payload, observer: Observer) -> tuple[bool, Examined]:
    """Run a stored finding's case on both sides of today's code and export; True when its kind and output show."""
    with opened(options, observer) as prepared:
        examined = examine(prepared, payload.case)
    wanted = payload.finding.bucket
    shows = any(
        replace(bucket_of(wanted.build, payload.case, verdict), site=wanted.site) == wanted
        for verdict in examined.judgement.verdicts
    )
    return shows, examined
