"""Running: the bodies of `explain`, `check`, `import`, `probe` and `replay --current`, which open a target.

The idea: each is a short campaign without a loop: the same setup, the same docket, the same records at its end.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzzparity.campaign.docket import Docket, where_of
from fuzzparity.campaign.observer import Observer
from fuzzparity.campaign.options import STATE_FOLDER, TargetOptions
from fuzzparity.campaign.rechecking import judged
from fuzzparity.campaign.records import EXAMINE_JOB, INVESTIGATE_JOB, PROBE_JOB, ProbeSpec
from fuzzparity.campaign.setup import Prepared, close_pool, prepare
from fuzzparity.case import Case
from fuzzparity.commands.knowing import Seen, exit_code, look, note_replay
from fuzzparity.commands.understanding import understand
from fuzzparity.commands.validation import Imported, import_all, run_all
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import Payload
from fuzzparity.errors import InvalidCase, InvalidTarget, WorkerLost
from fuzzparity.explain.dataset import Validation
from fuzzparity.explain.records import (
    Examined,
    ExamineSpec,
    InputSpec,
    InputsRead,
    InvestigateSpec,
    Investigation,
)
from fuzzparity.finding import Finding, Suspect, Where, bucket_of
from fuzzparity.known import Told
from fuzzparity.probe.latency import ProbeRow, choose
from fuzzparity.report.records import CampaignResult, CampaignStatus
from fuzzparity.verdict import Grade, Kind
from fuzzparity.work.alone import Exit
from fuzzparity.work.pool import LoaderLost

_EXPLAIN_SECONDS = 120.0
_FEW_INPUTS = 16  # that are explained one by one
_READ_JOB = "fuzzparity.explain.examine:read"


@dataclass(frozen=True, slots=True)
class Explained:
    """Hold what `explain` made of one input: the examination, and the finding when the sides differ."""

    name: str
    examined: Examined
    findings: tuple[Finding, ...] = ()


@contextmanager
def opened(
    options: TargetOptions,
    observer: Observer,
    *,
    gate: bool = True,
    first_seeds_only: bool = False,
    writes: bool = False,
) -> Iterator[Prepared]:
    """Prepare a target and close everything that belongs to it afterwards."""
    prepared = prepare(
        options, workers=1, say=saying(observer), gate=gate, first_seeds_only=first_seeds_only, writes=writes
    )
    try:
        yield prepared
    finally:
        close_pool(prepared.pool)


def saying(observer: Observer) -> Callable[[str], None]:
    """Return what tells an observer the stage of a command and how long it has been going on."""
    begun = time.monotonic()
    return lambda stage: observer.status(CampaignStatus(stage, time.monotonic() - begun))


def check(options: TargetOptions, observer: Observer) -> tuple[Prepared, Seen]:
    """Load, export and gate a target, and return what was learned, and what of it is known.

    To a corpus nothing is written but what became of findings of earlier builds.
    """
    with opened(options, observer) as prepared:
        prepared.understood = understand(prepared)
        return prepared, look(prepared, saying(observer))


@dataclass(frozen=True, slots=True)
class Checked:
    """Hold what `check` made of one more build of a target; `problem`: why it cannot be run."""

    prepared: Prepared | None = None
    dtypes: tuple[str, ...] = ()
    problem: str = ""
    seen: Seen = field(default_factory=Seen)

    @property
    def has_bug(self) -> bool:
        """Tell whether a seed showed a bug that is not known, or something that is said to be fixed."""
        return self.seen.has_bug


def check_builds(options: TargetOptions, builds: tuple[tuple[str, ...], ...], observer: Observer) -> list[Checked]:
    """Check the further builds that a target's dtypes ask for, unless one build was chosen."""
    checked = []
    for dtypes in () if options.dtypes else builds[1:]:
        try:
            with opened(replace(options, dtypes=dtypes), observer) as prepared:
                checked.append(Checked(prepared, dtypes, seen=look(prepared, saying(observer))))
        except InvalidTarget as error:  # the first build is sound: this one is told, and the others go on
            checked.append(Checked(None, dtypes, error.problem))
    return checked


def check_all(options: TargetOptions, observer: Observer) -> tuple[Prepared, Seen, Validation | None]:
    """Check a target, then run all of its data on both sides; None when there is no twin to run it on."""
    with opened(options, observer, first_seeds_only=True) as prepared:
        if not prepared.can_run or prepared.twin is None:
            return prepared, look(prepared, saying(observer)), None
        table = run_all(prepared, options.seeds, saying(observer), own=True, take=prepared.suspects.append)
        if not table.rows and not table.stopped:
            raise InvalidCase("there is no data to go through: give --seeds PATH, or seeds= in the target")
        prepared.ranges, prepared.tried = table.ranges, len(table.rows) + 1
        prepared.suspects[:] = {item.bucket.finding_id: item for item in reversed(prepared.suspects)}.values()
        prepared.understood = understand(prepared)
        return prepared, look(prepared, saying(observer)), table


def read_inputs(prepared: Prepared, paths: tuple[str, ...], limit: int) -> InputsRead:
    """Read files of inputs as cases of a target, in a child, up to a limit."""
    spec = InputSpec(paths, prepared.facts.contract, limit)
    answer = prepared.pool.run(_READ_JOB, spec, limits=prepared.limits, label="read")
    if isinstance(answer, Exit):
        raise WorkerLost(f"the process that reads {', '.join(paths)} died with {answer.text}")
    assert isinstance(answer, InputsRead)
    return answer


def explain(
    options: TargetOptions, paths: tuple[str, ...], observer: Observer, command: str
) -> tuple[CampaignResult, list[Explained], Validation | None]:
    """Run given inputs on both sides, judge each with evidence, and minimize what differs.

    A folder, or more than a few inputs, become a table instead of an explanation of each.
    """
    begun = time.monotonic()
    with opened(options, observer, writes=True) as prepared:
        if options.tolerances is not None:
            _apart(prepared, options)
        few = None
        if not any(Path(path).is_dir() for path in paths) or not prepared.can_run:
            few = read_inputs(prepared, paths, _FEW_INPUTS)
            for text in (*few.skipped, *few.notes):
                observer.note(text)
        observer.started(prepared.facts, prepared.places, tuple(prepared.notes))
        setup_seconds = time.monotonic() - begun
        if few is not None and (few.is_all or not prepared.can_run):
            result, explained = _examine_all(prepared, list(few.cases), observer, command, setup_seconds)
            return result, explained, None
        return _explain_table(prepared, paths, observer, command, setup_seconds)


def _apart(prepared: Prepared, options: TargetOptions) -> None:
    """Keep what another policy says out of the target's corpus and reproducers: in a folder made anew by each call."""
    folder = Path(STATE_FOLDER) / "under-policy" / prepared.facts.build.digest[:12]
    if folder.exists():
        shutil.rmtree(folder)
    corpus, crashes = options.corpus or folder / "corpus.sqlite", options.crashes or folder / "crashes"
    prepared.places = replace(prepared.places, corpus=corpus, crashes=crashes)
    prepared.notes.append("judged under the policies of --policy, not the target's; stored apart from its findings")


def _explain_table(
    prepared: Prepared, paths: tuple[str, ...], observer: Observer, command: str, setup_seconds: float
) -> tuple[CampaignResult, list[Explained], Validation]:
    """Run many inputs in one stream; what differs is stored at once and minimized at the end."""
    started = time.monotonic()
    with Corpus.open(prepared.places.corpus, create=True) as corpus:
        campaign_id = corpus.begin_campaign(
            prepared.facts, command, 0, ort=prepared.facts.ort, setup_seconds=setup_seconds
        )
        docket = Docket(prepared, corpus, campaign_id, observer, lambda: time.monotonic() - started)
        table = run_all(prepared, paths, saying(observer), own=False, take=docket.take)
        if not table.stopped:
            try:
                finish(prepared, docket, _EXPLAIN_SECONDS)
            except KeyboardInterrupt:
                table.stopped = "stopped by Ctrl-C while the findings were minimized"
        code = exit_code(docket.findings.values(), table.has(Grade.BUG))
        code = 128 + signal.SIGINT if table.stopped else code
        kinds = [row.kind for row in table.rows]
        return _ended(docket, kinds, setup_seconds, code, is_stopped=bool(table.stopped)), [], table


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
        explained = [Explained(name, found, _findings_of(docket, found)) for name, found in examined]
        has_bug = any(s.verdict.grade is Grade.BUG for _, found in examined for s in found.suspects)
        code = exit_code((finding for item in explained for finding in item.findings), has_bug)
        kinds = [found.judgement.kind for _, found in examined]
        return _ended(docket, kinds, setup_seconds, code), explained


def _findings_of(docket: Docket, found: Examined) -> tuple[Finding, ...]:
    """Return the finding of each suspect of one input as it is stored now, with its entry of known issues.

    What a bucket's finding knows was learned on the input that it was first met with, and another input may fall into
    the bucket for another reason: then arbiters are asked about this one.
    """
    findings = []
    for suspect in found.suspects:
        finding = docket.corpus.finding(suspect.bucket.finding_id)
        if suspect.case.digest not in (finding.first_case_digest, finding.case_digest):
            finding = _asked_here(docket.prepared, suspect, finding)
        findings.append(docket.prepared.ledger.marked(finding))
    return tuple(findings)


def _asked_here(prepared: Prepared, suspect: Suspect, finding: Finding) -> Finding:
    """Return a finding with blame and place as arbiters tell them on this case, which is not stored."""
    if suspect.verdict.grade is not Grade.BUG:
        return finding
    assert prepared.twin is not None
    spec = InvestigateSpec(prepared.twin, suspect, tries=1, minimize_executions=0, cut_seconds=0.0)
    answer = prepared.pool.run(INVESTIGATE_JOB, spec, limits=prepared.limits, label="investigate")
    if not isinstance(answer, Investigation) or answer.verdict is None:
        return replace(finding, verdict=replace(finding.verdict, blame="unknown", attribution=None), where=Where())
    return replace(finding, verdict=answer.verdict, where=where_of(answer.verdict, answer.actual))


def _ended(
    docket: Docket, kinds: Sequence[str], setup_seconds: float, code: int, *, is_stopped: bool = False
) -> CampaignResult:
    """Store the end of an `explain` over inputs of these kinds, and return its result."""
    prepared, corpus, seconds = docket.prepared, docket.corpus, docket.elapsed()
    inputs, rejected = len(kinds), sum(kind == Kind.REJECTED for kind in kinds)
    corpus.end_campaign(
        docket.campaign_id,
        seconds=seconds,
        executions=inputs,
        inputs=inputs,
        rejected=rejected,
        exit_code=code,
        interrupted=is_stopped,
    )
    return CampaignResult(
        docket.campaign_id,
        prepared.facts,
        prepared.places.corpus,
        prepared.places.crashes,
        seconds,
        setup_seconds,
        inputs,
        inputs,
        rejected,
        corpus.size,
        tuple(docket.findings.values()),
        frozenset(docket.new_ids),
        code,
        docket.hits_here,
        int(signal.SIGINT) if is_stopped else None,
        known=tuple(prepared.ledger.standings(list(docket.findings.values()))),
    )


def examine(prepared: Prepared, case: Case) -> Examined:
    """Judge one case in a fresh process."""
    assert prepared.twin is not None
    answer = prepared.pool.run(EXAMINE_JOB, ExamineSpec(prepared.twin, case), limits=prepared.limits, label="examine")
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
    with opened(options, observer, gate=False, writes=True) as prepared:
        return import_all(prepared, paths, limit, saying(observer))


def probe(options: TargetOptions, observer: Observer, *, cases: int, rounds: int) -> list[ProbeRow]:
    """Time both sides on kept cases, or on the seeds when nothing is kept yet, and store the figures."""
    with opened(options, observer, writes=True) as prepared:
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


def replay_current(
    options: TargetOptions, payload: Payload, path: Path, observer: Observer
) -> tuple[bool, Examined, list[Told]]:
    """Run a stored finding's case on both sides of today's code and export; True when its kind and output show.

    What became of it is remembered in the corpus at `path`; what that means for known issues is the third.
    """
    if payload.facts is not None and not options.dtypes:
        options = replace(options, dtypes=payload.facts.dtypes)  # the build it was found on
    with opened(options, observer) as prepared:
        examined = examine(prepared, payload.case)
        became = judged(prepared, payload.finding, examined)
    if became.build != payload.finding.bucket.build:
        note_replay(path, became)
    wanted = payload.finding.bucket
    shows = any(
        replace(bucket_of(wanted.build, payload.case, verdict), site=wanted.site) == wanted.provisional
        for verdict in examined.judgement.verdicts
    )
    told = prepared.ledger.standings(*(([payload.finding], []) if shows else ([], [payload.finding])))
    return shows, examined, told
