"""Docket: the findings of a campaign from suspicion to reproducer.

The idea: a suspect is in the database before anything else happens to it. Then at most a few investigations run at a
time, bugs first and small cases before huge ones, each in a clean child; what they send updates the database and the
reproducer folder at once.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fuzzparity.campaign.asking import Asker, causes_beside
from fuzzparity.campaign.causes import join
from fuzzparity.campaign.observer import Observer
from fuzzparity.campaign.records import INVESTIGATE_JOB
from fuzzparity.campaign.setup import Prepared
from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import Payload
from fuzzparity.errors import InvalidUsage
from fuzzparity.execution import Execution, node_told
from fuzzparity.explain.records import Better, Interim, InvestigateSpec, Investigation, Reexport, Slipped, TwinSpec
from fuzzparity.finding import IN_BATCH, Confirmation, Finding, Stage, Suspect, Where, may_blame, suspects_of
from fuzzparity.oracle.policy import largest_magnitude
from fuzzparity.report.content import ReproducerContent, content_of_payload
from fuzzparity.report.reproducer import write_reproducer
from fuzzparity.target import Tolerance
from fuzzparity.verdict import GRADES, Grade, Kind, Realism, Verdict
from fuzzparity.work.hurry import set_hurry
from fuzzparity.work.pool import Child, Died, Finished, Message

_MINIMIZE_SECONDS = 12.0
_MINIMIZE_EXECUTIONS = 4000
_BLAME_SECONDS = 30.0
_LESSER_SHARE = 0.25  # of that for ties, inherents, contract breaches and notes
_LESSER_WAIT_SECONDS = 3.0  # of these, since a bug often follows at once and should not have to wait
_MOST_DEATHS = 2  # investigations killed from outside (with the loader, by the kernel) are started again
_LABEL = "investigate"


@dataclass(slots=True)
class _Work:
    """Hold one suspect under investigation."""

    finding_id: str
    suspect: Suspect
    at_seconds: float  # when it was taken
    best: Case | None = None
    deaths: int = 0
    is_hurried: bool = False  # started with less time than it may take, since the campaign ends


@dataclass(slots=True)
class Docket:
    """Take suspects, run investigations, keep findings."""

    prepared: Prepared
    corpus: Corpus
    campaign_id: str
    observer: Observer
    elapsed: Callable[[], float]
    findings: dict[str, Finding] = field(default_factory=dict)
    new_ids: set[str] = field(default_factory=set)
    hits_here: dict[str, int] = field(default_factory=dict)  # finding id -> hits in this campaign
    last_new_seconds: float | None = None
    _queue: list[tuple[int, int, int, _Work]] = field(default_factory=list)
    _running: dict[int, _Work] = field(default_factory=dict)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    asks_again: bool = False  # whether repeats of known findings are asked which cause they show
    _asker: Asker = field(init=False)
    _reexports: list[Reexport] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make what asks repeats."""
        self._asker = Asker(self.prepared, self.corpus, self.take, self._unhit)

    def take(self, suspect: Suspect) -> None:
        """Store a suspect and queue it; one of a known bucket counts as a hit."""
        finding_id, is_new = self.corpus.suspect(self.campaign_id, suspect, self.elapsed())
        self.hits_here[finding_id] = self.hits_here.get(finding_id, 0) + 1
        if not is_new:
            self._asker.offer(finding_id, suspect.case, suspect.lineage)
        if finding_id in self.findings:
            return
        finding = self.corpus.finding(finding_id)
        if is_new:
            self.new_ids.add(finding_id)
            self.last_new_seconds = self.elapsed()
        self._changed(finding)
        if is_new or finding.stage in (Stage.SUSPECTED, Stage.CONFIRMED):
            self._enqueue(finding_id, suspect)

    def resume(self, finding_ids: tuple[str, ...]) -> None:
        """Queue findings that an earlier campaign stored but did not get to confirm."""
        for finding_id in finding_ids:
            payload = self.corpus.finding_payload(finding_id)
            suspect = Suspect(
                payload.finding.bucket,
                payload.case,
                payload.lineage,
                payload.finding.verdict,
                payload.finding.realism,
                payload.expected,
                payload.actual,
            )
            self._changed(payload.finding)
            self._enqueue(finding_id, suspect)

    def _enqueue(self, finding_id: str, suspect: Suspect) -> None:
        self._requeue(_Work(finding_id, suspect, self.elapsed()))

    def _requeue(self, work: _Work) -> None:
        rank = GRADES.index(work.suspect.verdict.grade)
        heapq.heappush(self._queue, (rank, _dearness(work.suspect.case), next(self._order), work))

    def hits(self, counts: dict[str, int]) -> None:
        """Count repeats of known findings; one seen in an earlier campaign is thereby seen in this one too."""
        for finding_id, count in counts.items():
            self.hits_here[finding_id] = self.hits_here.get(finding_id, 0) + count
            self.corpus.hit(finding_id, count, campaign_id=self.campaign_id, at_seconds=self.elapsed())
            if finding_id not in self.findings:
                self._changed(self.corpus.finding(finding_id))

    def again(self, finding_id: str, case: Case, lineage: Lineage) -> None:
        """Take a repeat of a known finding, whose hit is counted elsewhere: it may be asked which cause it shows."""
        self._asker.offer(finding_id, case, lineage)

    def _unhit(self, finding_id: str) -> None:
        """Take a hit back that was counted for a finding by its bucket, and turned out to be of another cause."""
        self.hits({finding_id: -1})

    @property
    def pending(self) -> int:
        """Return how many suspects wait or are being investigated, and repeats that are asked or were never asked."""
        waiting = self.asks_again and self._asker.is_waiting(self.findings, self._busy)
        return len(self._queue) + self.running + int(waiting)

    @property
    def running(self) -> int:
        """Return how many investigations run now, those of repeats included."""
        return len(self._running) + self._asker.running

    def start(self, twin: TwinSpec, *, most: int, seconds_left: float | None = None) -> None:
        """Start queued investigations up to `most` at a time; `seconds_left` is shared by all that wait."""
        while self.running < most:
            if self._ask_again(twin, seconds_left):
                continue
            if not self._queue or (seconds_left is None and self._is_too_early()):
                break
            *_, work = heapq.heappop(self._queue)
            share = 1.0 if work.suspect.verdict.grade is Grade.BUG else _LESSER_SHARE
            seconds = _MINIMIZE_SECONDS * share
            if seconds_left is not None:
                seconds = min(seconds, max(0.5, seconds_left * most / (len(self._queue) + 1)))
            blame_seconds = _BLAME_SECONDS if seconds_left is None else min(_BLAME_SECONDS, seconds)
            work.is_hurried = blame_seconds < _BLAME_SECONDS
            spec = InvestigateSpec(
                replace(twin, reexports=tuple(self._reexports)),
                work.suspect,
                minimize_executions=int(_MINIMIZE_EXECUTIONS * share),
                minimize_seconds=seconds,
                blame_seconds=blame_seconds,
                beside=causes_beside(self.corpus, work.suspect.bucket),
                is_patient=not self._queue and seconds_left is None,
            )
            child = self.prepared.pool.launch(INVESTIGATE_JOB, (spec,), limits=self.prepared.limits, label=_LABEL)
            self._running[child.child_id] = work
        set_hurry(self.prepared.pool.folder, is_on=self._has_bug)

    def _is_too_early(self) -> bool:
        """Tell whether what waits first is no bug and so new that one may follow at its heels."""
        *_, work = self._queue[0]
        return not self._has_bug and self.elapsed() - work.at_seconds < _LESSER_WAIT_SECONDS

    def owns(self, child: Child) -> bool:
        """Tell whether a child is one of the investigations."""
        return child.child_id in self._running or self._asker.owns(child)

    def _ask_again(self, twin: TwinSpec, seconds_left: float | None) -> bool:
        """Ask repeats where they are due: for their share while a campaign goes on, at its end after the bugs."""
        has_bug = self._has_bug
        if not self.asks_again or (has_bug and seconds_left is not None):
            return False
        return self._asker.start(
            twin, self.findings, self._busy, self.elapsed(), is_free=not has_bug, seconds_left=seconds_left
        )

    @property
    def _has_bug(self) -> bool:
        """Tell whether a bug waits: bugs come first."""
        return bool(self._queue) and self._queue[0][0] == 0

    @property
    def _busy(self) -> set[str]:
        """Return the findings that an investigation is at work on."""
        return {work.finding_id for work in self._running.values()}

    def handle(self, event: Message | Finished | Died) -> str:
        """Take an event of an investigation; return a note when something is worth telling."""
        if self._asker.owns(event.child):
            self._asker.handle(event)
            return ""
        work = self._running[event.child.child_id]
        if isinstance(event, Message):
            self._message(work, event.payload)
            return ""
        del self._running[event.child.child_id]
        if isinstance(event, Finished):
            self._finish(work, event.result)
            return ""
        work.deaths += 1
        if not event.exit.fault and work.deaths <= _MOST_DEATHS:
            self._requeue(work)
            return ""
        reason = event.exit.fault.strip().splitlines()[-1] if event.exit.fault else event.exit.text
        self._keep_best(work)
        return f"the investigation of {work.finding_id} ended early: {reason}"

    def _message(self, work: _Work, payload: object) -> None:
        if isinstance(payload, Confirmation):
            self.corpus.confirm(work.finding_id, payload, work.suspect)
            self._changed(self.corpus.finding(work.finding_id))
            if not payload.reproduced and payload.judgement is not None:
                for suspect in other_suspects(work.suspect, payload):
                    self.take(suspect)
            elif payload.reproduced:
                # written as soon as it is confirmed; minimizing replaces it by a smaller one
                self._reproducer(self.corpus.finding(work.finding_id))
        elif isinstance(payload, Better):
            work.best = payload.case
        elif isinstance(payload, Interim):
            # while it is not blamed it stays confirmed: cut off there, the next campaign goes on from this smaller case
            work.best = None
            self._store(work, payload.investigation, Stage.MINIMIZED if payload.is_blamed else Stage.CONFIRMED)
        elif isinstance(payload, Slipped):
            self.take(payload.suspect)
        elif isinstance(payload, Reexport):
            self._reexports.append(payload)

    def _keep_best(self, work: _Work) -> None:
        finding = self.corpus.finding(work.finding_id)
        if finding.stage is Stage.CONFIRMED and work.best is not None:
            self.observer.note(f"{work.finding_id}: minimizing ended early; the confirmed case stands")

    def _finish(self, work: _Work, outcome: Investigation) -> None:
        if outcome.confirmation.reproduced:
            # left without blame for want of time it stays confirmed: the next campaign that meets it asks again
            is_open = work.is_hurried and outcome.verdict is not None and may_blame(outcome.verdict)
            self._store(work, outcome, Stage.CONFIRMED if is_open else Stage.MINIMIZED, is_done=True)

    def _store(self, work: _Work, outcome: Investigation, stage: Stage, *, is_done: bool = False) -> None:
        """Store what an investigation came to, and write its reproducer; `is_done`: its place was looked for."""
        finding = self.corpus.finding(work.finding_id)
        verdict, cut = outcome.verdict or finding.verdict, outcome.cut
        finding = replace(
            finding,
            stage=stage,
            verdict=verdict,
            realism=Realism.NEAR if work.suspect.realism is Realism.NEAR else outcome.realism,  # seen on real data
            case_digest=outcome.case.digest,
            where=replace(where_of(verdict, outcome.actual), batch=_batch_of(work.suspect)),
            minimized_elements=outcome.case.elements,
            minimized_shapes=outcome.case.shapes,
            model_nodes=cut.nodes if cut is not None else self.prepared.facts.build.nodes,
            model_bytes=len(cut.model) if cut is not None else self.prepared.facts.build.onnx_bytes,
        )
        self.corpus.minimized(finding, outcome.case, outcome.expected, outcome.actual, work.suspect)
        if cut is not None:
            self.corpus.set_cut(finding.finding_id, cut)
        if outcome.case != work.suspect.case:  # minimizing keeps the bucket, and may lead from one cause to another
            self._asker.offer(finding.finding_id, work.suspect.case, work.suspect.lineage)
        changed = join(self.corpus, finding) if is_done else []
        for finding_id in dict.fromkeys((*changed, finding.finding_id)):
            self._reproducer(self.corpus.finding(finding_id))

    def _reproducer(self, finding: Finding) -> None:
        payload = self.corpus.finding_payload(finding.finding_id)
        content = content_of(payload, self.prepared)
        try:
            folder = write_reproducer(self.prepared.places.crashes, content)
        except (InvalidUsage, OSError) as error:  # a full disk must not end a campaign whose database holds it all
            self.observer.note(
                f"the reproducer of {finding.finding_id} could not be written ({error}); "
                f"`fuzzparity corpus export {finding.finding_id}` writes it later"
            )
            return
        self.corpus.set_path(finding.finding_id, folder, standalone=content.standalone)
        self._changed(self.corpus.finding(finding.finding_id))

    def _changed(self, finding: Finding) -> None:
        finding = self.prepared.ledger.marked(finding)
        self.findings[finding.finding_id] = finding
        self.observer.finding(finding, is_new=finding.finding_id in self.new_ids)


def _dearness(case: Case) -> int:
    """Return a case's size in steps of sixteen: what a huge one costs must not keep many small ones waiting."""
    return case.elements.bit_length() // 4


def content_of(payload: Payload, prepared: Prepared) -> ReproducerContent:
    """Return what the reproducer of a stored finding is made of, with the tolerances and limits it was judged by."""
    allowances: dict[str, Tolerance] = {}
    regions: dict[str, Tolerance] = {}
    if prepared.twin is not None and payload.expected is not None and payload.expected.is_ok:
        for name, array in zip(prepared.facts.outputs, payload.expected.outputs, strict=False):
            allowance = prepared.twin.policy.allowance(name, array.dtype)
            floor = allowance.floor * largest_magnitude(array) if allowance.floor else 0.0
            allowances[name] = Tolerance(allowance.rtol, max(allowance.atol, floor))
            own = prepared.twin.policy.regions(name)
            regions |= {region.text: Tolerance(item.rtol, item.atol) for region, item in own}
    return replace(
        content_of_payload(payload),
        allowed=allowances,
        regions=regions,
        limit_seconds=prepared.limits.run_seconds,
        memory_bytes=prepared.limits.memory_bytes,
    )


def where_of(verdict: Verdict, actual: Execution | None) -> Where:
    """Return where a finding lies as far as verdict and ORT's own message tell."""
    index = verdict.comparison.index if verdict.comparison else None
    place = Where(*node_told(actual))
    known = verdict.attribution
    if known is not None:
        node = (known.op, known.onnx_node) if known.op else (place.op, place.onnx_node)
        place = Where(*node, known.fx_node, known.source)
    if verdict.kind is Kind.BRANCH_SPLIT and not place.source and ":" in verdict.site:
        place = replace(place, source=verdict.site)  # the line that decided is known before the place is sought
    return replace(place, output=verdict.output or "", index=index)


def _batch_of(suspect: Suspect) -> str:
    """Return `IN_BATCH` for a case that was met as a stack of rows of which none differs alone."""
    return IN_BATCH if IN_BATCH in suspect.lineage.mutators else ""


def other_suspects(suspect: Suspect, confirmation: Confirmation) -> list[Suspect]:
    """Return what a fresh session made of a case that did not show its own bucket."""
    assert confirmation.judgement is not None
    return suspects_of(
        suspect.bucket.build,
        suspect.case,
        suspect.lineage,
        confirmation.judgement,
        confirmation.expected,
        confirmation.actual,
    )
