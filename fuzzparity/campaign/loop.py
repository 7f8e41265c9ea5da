"""Loop: the life of a campaign in the parent process: leases out, kept cases and suspects in, until it is over.

The idea: the parent runs nothing native and decides everything: who works on what, what is stored, when to stop. One
turn of the loop waits for events, takes them, starts what is due and shows the state; every end goes through `_end`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from fuzzparity.campaign.crew import Crew, Slot
from fuzzparity.campaign.docket import Docket
from fuzzparity.campaign.observer import Observer
from fuzzparity.campaign.options import FuzzOptions
from fuzzparity.campaign.rechecking import recheck, seconds_for, take_over
from fuzzparity.campaign.records import (
    PROBE_JOB,
    Again,
    Avoided,
    Elsewhere,
    Hits,
    Kept,
    LeaseDone,
    Noted,
    ProbeSpec,
    Ready,
    Unstacked,
    WorkerSpec,
)
from fuzzparity.campaign.setup import Prepared, close_pool, prepare, suspect_of_death
from fuzzparity.campaign.state import Clock, Totals, resident_bytes, set_aside
from fuzzparity.case import Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import KeptCase, Snapshot
from fuzzparity.execution import ORT, TORCH
from fuzzparity.finding import Finding, Suspect
from fuzzparity.generate.relations import RefusalTally, Rule
from fuzzparity.generate.understood import refusal_notes
from fuzzparity.goals import goals_of, standings
from fuzzparity.known import Told
from fuzzparity.probe.latency import ProbeRow, choose
from fuzzparity.report.paying import efforts_of
from fuzzparity.report.records import CampaignResult, CampaignStatus
from fuzzparity.work.pool import Child, Died, Event, Finished, LoaderLost, Message

FINISH_SECONDS = 30.0  # after a time that was asked for: DESIGN, "Commands"
_FINISH_UNASKED_SECONDS = 60.0  # where a number of cases, or the gate, ended the campaign: nobody counts on its end
_PROBE_SECONDS = 5.0  # of these, kept for the last probe
_STOP_SECONDS = 5.0
_SNAPSHOT_SECONDS = 10.0
_RSS_SECONDS = 2.0
_PROBE_CASES = 4
_MOST_FAULTS = 20
_MOST_BARREN_DEATHS = 6  # workers that die one after the other without one execution: something else is wrong
_REJECTED_SHARE = 0.9  # of executions; up to one in sixteen is no fair try: it leaves the contract, or is a seed again


class Campaign:
    """Run one campaign from the target's name to its result."""

    def __init__(self, options: FuzzOptions, observer: Observer) -> None:
        """Remember what to do and whom to tell."""
        self._options = options
        self._observer = observer
        self._begun = time.monotonic()
        self._signal: int | None = None
        self._is_begun = False  # stored as a campaign; before that a signal leaves nothing to tell
        self._clock = Clock()
        self._counters = Totals()
        self._crew: Crew | None = None  # there is none when nothing can be fuzzed
        self._pending_rows: list[KeptCase] = []
        self._probe_child: Child | None = None
        self._probe_rows: tuple[ProbeRow, ...] = ()
        self._last = dict.fromkeys(("snapshot", "probe", "rss", "shown"), time.monotonic())
        self._rss_bytes = 0
        self._fault_text = ""
        self.builds: tuple[tuple[str, ...], ...] = ((),)  # the dtypes of each build that the target asks for
        self._rules: tuple[Rule, ...] = ()
        self._refusals = RefusalTally()
        self._elsewhere: dict[str, tuple[int, int]] = {}  # line -> cases that agreed, and that differed
        self._noted: set[str] = set()

    def run(self) -> CampaignResult:
        """Run to the end, whichever it is; everything found is stored when this returns or raises."""
        with self._signals():
            prepared = prepare(
                self._options.target, workers=self._options.workers, say=self._say, writes=not self._options.fresh
            )
            self.builds = prepared.loaded.builds
            self._options = self._options.shared(len(self.builds))
            try:
                if self._options.fresh:
                    set_aside(prepared)
                with Corpus.open(prepared.places.corpus, create=True) as corpus:
                    return self._run(prepared, corpus)
            finally:
                close_pool(prepared.pool)

    def _say(self, stage: str) -> None:
        self._observer.status(CampaignStatus(stage, time.monotonic() - self._begun))

    def _run(self, prepared: Prepared, corpus: Corpus) -> CampaignResult:
        self._prepared, self._corpus = prepared, corpus
        self._rechecked = recheck(prepared, corpus, seconds_for(self._options.seconds), self._say)
        self._setup_seconds = time.monotonic() - self._begun
        state = corpus.resume_state(prepared.facts.build.digest, self._options.rng_seed)
        self._campaign_id = corpus.begin_campaign(
            prepared.facts,
            self._options.command,
            self._options.rng_seed,
            ort=prepared.facts.ort,
            setup_seconds=self._setup_seconds,
            next_lease=state.next_lease,
            next_sequence=state.next_sequence,
        )
        self._is_begun = True
        notes = list(prepared.notes)
        if state.campaigns:
            notes.append(f"resumed: {state.executions} executions and {state.corpus_size} cases from earlier campaigns")
        self._observer.started(prepared.facts, prepared.places, tuple(notes))
        self._noted.update(notes)
        self._docket = Docket(prepared, corpus, self._campaign_id, self._observer, self._clock.seconds, asks_again=True)
        self._docket.resume(state.unfinished)
        for suspect in prepared.suspects:
            self._docket.take(suspect)
        take_over(self._rechecked, self._docket, self._observer)
        seeds = prepared.seeds or (tuple(s.case for s in prepared.suspects) if self._options.force else ())
        if seeds and prepared.twin is not None and prepared.can_run:
            corpus.keep_cases(self._campaign_id, [KeptCase(case, Lineage(origin="seed")) for case in seeds])
            spec = WorkerSpec(
                prepared.twin,
                str(prepared.places.corpus),
                tuple(case.digest for case in seeds),
                self._options.rng_seed,
                self._options.cases is not None,
                engine=self._options.engine,
            )
            self._crew = Crew(
                prepared.pool,
                prepared.limits,
                spec,
                workers=self._options.workers,
                next_lease=state.next_lease,
                next_sequence=state.next_sequence,
                sweep_from=state.state.get("sweep_from") if state.campaigns else 0,
                most_executions=self._options.cases,
            )
            self._fuzz(self._crew)
        return self._end(tuple(notes))

    # -- the loop -----------------------------------------------------------------------------------------------

    def _fuzz(self, crew: Crew) -> None:
        """Turn until time, count or a signal ends it."""
        self._clock.started = time.monotonic()
        while not self._is_over():
            if self._probe_child is None:
                crew.tend()
            self._turn(most_investigations=1)
            self._probe_if_due(self._options.probe_seconds)
        self._clock.stopped = time.monotonic()
        self._stop(crew)

    def _turn(self, *, most_investigations: int, seconds_left: float | None = None) -> None:
        for event in self._prepared.pool.wait(0.1):
            self._take(event)
        self._store_kept()
        if self._prepared.twin is not None:
            self._docket.start(self._prepared.twin, most=most_investigations, seconds_left=seconds_left)
        self._show()

    def _store_kept(self) -> None:
        if self._pending_rows:
            self._corpus.keep_cases(self._campaign_id, self._pending_rows)
            self._pending_rows.clear()

    def _is_over(self) -> bool:
        if self._signal is not None or self._counters.faults > _MOST_FAULTS:
            return True
        if self._counters.barren_deaths >= _MOST_BARREN_DEATHS:
            self._observer.note("workers die before they execute anything; giving up")
            return True
        if self._options.cases is not None and self._counters.executions >= self._options.cases:
            return True
        return self._options.seconds is not None and self._clock.seconds() >= self._options.seconds

    # -- events -------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if isinstance(event, LoaderLost):
            self._replace_loader(event)
        elif self._docket.owns(event.child):
            note = self._docket.handle(event)
            if note:
                self._observer.note(note)
            if isinstance(event, Died) and event.exit.fault:
                self._fault(event.exit.fault)
        elif event.child is self._probe_child:
            self._take_probe(event)
        elif self._crew is not None and (slot := self._crew.slot_of(event.child)) is not None:
            self._take_worker(self._crew, slot, event)

    def _take_worker(self, crew: Crew, slot: Slot, event: Message | Finished | Died) -> None:
        if isinstance(event, Died):
            self._worker_died(crew, slot, event)
        elif isinstance(event, Finished):
            slot.child = None
        elif isinstance(event.payload, Kept):
            self._pending_rows.append(event.payload.row)
            crew.keep(slot, event.payload.row.case.digest)
        elif isinstance(event.payload, Suspect):
            self._docket.take(event.payload)
        elif isinstance(event.payload, Again):
            for finding_id in event.payload.findings:
                self._docket.again(finding_id, event.payload.case, event.payload.lineage)
        elif isinstance(event.payload, Hits):
            self._docket.hits(event.payload.counts)
        elif isinstance(event.payload, Ready):
            slot.is_ready = True
            self._note_once(event.payload.note)
        elif isinstance(event.payload, Unstacked):
            crew.unstack()
            self._note_once(event.payload.reason)
        elif isinstance(event.payload, Noted):
            self._note_once(event.payload.text)
        elif isinstance(event.payload, Elsewhere):
            self._went_elsewhere(event.payload)
        elif isinstance(event.payload, Avoided):
            slot.avoided += event.payload.count
        elif isinstance(event.payload, LeaseDone):
            self._lease_done(crew, slot, event.payload)

    def _went_elsewhere(self, told: Elsewhere) -> None:
        for line, (agreed, differed) in told.counts.items():
            before = self._elsewhere.get(line, (0, 0))
            self._elsewhere[line] = (before[0] + agreed, before[1] + differed)

    def _lease_done(self, crew: Crew, slot: Slot, done: LeaseDone) -> None:
        crew.finish(slot, done)
        self._counters.executions += done.executions
        self._counters.inputs += done.inputs
        self._counters.rejected += done.rejected
        self._rules = done.rules or self._rules
        self._refusals.update(done.refusals)
        self._counters.barren_deaths = 0
        self._corpus.add_efforts(self._campaign_id, done.efforts)
        self._counters.add_efforts(done.efforts)
        self._checkpoint()

    def _checkpoint(self) -> None:
        if self._crew is None:
            return
        self._corpus.checkpoint(
            self._campaign_id,
            seconds=self._clock.seconds(),
            executions=self._counters.executions,
            inputs=self._counters.inputs,
            rejected=self._counters.rejected,
            next_lease=self._crew.next_lease,
            next_sequence=self._crew.next_sequence,
            state={"sweep_from": self._crew.sweep_from},
        )

    def _worker_died(self, crew: Crew, slot: Slot, event: Died) -> None:
        """Take the death of a worker: a finding when a side was running, and the rest of its lease goes on."""
        announced = event.exit.announced
        if not slot.is_ready and self._prepared.facts.contract.batch:
            self._note_once("rows are not stacked: a worker died before it had proven them independent")
        lease, begun = crew.bury(slot, event.exit)
        self._counters.deaths += 1
        self._counters.executions += begun
        self._counters.inputs += begun
        if not slot.is_spare:
            self._counters.barren_deaths = 0 if begun else self._counters.barren_deaths + 1
        if event.exit.fault:
            self._fault(event.exit.fault)
        elif event.exit.with_loader:
            pass  # told once, for the loader
        elif announced is not None and announced.case is not None and announced.side in (TORCH, ORT):
            lineage = Lineage(
                rng_seed=self._options.rng_seed,
                lease=lease.number if lease else 0,
                sequence=announced.sequence,
            )
            suspect = suspect_of_death(self._prepared.facts, self._prepared.twin, event.exit, announced.case, lineage)
            crew.learn(suspect.bucket.finding_id, announced.case)
            self._docket.take(suspect)
        else:
            where = f"in the {announced.side}" if announced is not None and announced.side else "between runs"
            self._observer.note(f"a worker died with {event.exit.text} {where}; another takes its place")

    def _note_once(self, text: str) -> None:
        """Tell what every worker says, when the first one does."""
        if text and text not in self._noted:
            self._noted.add(text)
            self._observer.note(text)

    def _fault(self, text: str) -> None:
        self._counters.faults += 1
        self._fault_text = text
        self._observer.note(f"internal fault (please report): {text.strip().splitlines()[-1]}")

    def _replace_loader(self, event: LoaderLost) -> None:
        """Start the loader again after it died; its children died with it."""
        self._observer.note(f"the loader died with {event.exit.text}; starting it again")
        assert self._prepared.twin is not None
        self._prepared.pool.restart()
        self._prepared.twin = self._prepared.twin.reloaded()
        if self._crew is not None:
            self._crew.use(self._prepared.twin)
        self._probe_child = None

    # -- probe --------------------------------------------------------------------------------------------------

    def _probe_if_due(self, every_seconds: float) -> None:
        """Start a probe when it is due; leases are withheld until it is done, so that it measures alone."""
        now = time.monotonic()
        if self._probe_child is not None or now - self._last["probe"] < every_seconds:
            return
        self._start_probe()

    def _start_probe(self) -> None:
        self._last["probe"], contract = time.monotonic(), self._prepared.facts.contract
        cases = choose(
            [case for case, _ in self._corpus.pool(256) if case.elements and contract.has_dtypes_of(case)], _PROBE_CASES
        )
        if not cases or self._prepared.twin is None:
            return
        self._probe_child = self._prepared.pool.launch(
            PROBE_JOB, (ProbeSpec(self._prepared.twin, tuple(cases)),), limits=self._prepared.limits, label="probe"
        )

    def _take_probe(self, event: Message | Finished | Died) -> None:
        if isinstance(event, Finished):
            self._probe_rows = tuple(event.result)
            self._corpus.add_probe(self._campaign_id, self._probe_rows, seconds=self._clock.seconds())
        elif isinstance(event, Died):
            self._observer.note(f"the probe ended with {event.exit.text}")
        if not isinstance(event, Message):
            self._probe_child = None

    # -- ends ---------------------------------------------------------------------------------------------------

    def _stop(self, crew: Crew) -> None:
        """End the workers and take what they had sent; a case that is cut off is no suspect."""
        crew.kill()
        deadline = time.monotonic() + _STOP_SECONDS
        while not crew.is_gone and time.monotonic() < deadline:
            for event in self._prepared.pool.wait(0.1):
                slot = None if isinstance(event, LoaderLost) else crew.slot_of(event.child)
                if slot is not None and isinstance(event, Died):
                    _, begun = crew.bury(slot, event.exit)
                    self._counters.executions += max(0, begun - 1)
                    self._counters.inputs += max(0, begun - 1)
                else:
                    self._take(event)
        self._store_kept()

    def _end(self, notes: tuple[str, ...]) -> CampaignResult:
        if self._signal is None:
            is_timed = self._options.seconds is not None and self._clock.started is not None
            deadline = time.monotonic() + (FINISH_SECONDS if is_timed else _FINISH_UNASKED_SECONDS)
            self._finish_pending(deadline)
            self._last_probe(deadline)
        self._checkpoint()
        exit_code = self._exit_code()
        notes += refusal_notes(
            self._prepared.facts.contract, self._rules, self._refusals, self._is_nearly_all_refused()
        )
        self._snapshot()
        self._corpus.end_campaign(
            self._campaign_id,
            seconds=self._clock.seconds(),
            executions=self._counters.executions,
            inputs=self._counters.inputs,
            rejected=self._counters.rejected,
            exit_code=exit_code,
            interrupted=self._signal is not None,
        )
        findings = self._findings(self._docket.findings)
        goals = goals_of(self._prepared.facts.build.notes)
        notes += tuple(standings(goals, findings, self._elsewhere, self._counters.executions))
        return CampaignResult(
            self._campaign_id,
            self._prepared.facts,
            self._prepared.places.corpus,
            self._prepared.places.crashes,
            self._clock.seconds(),
            self._setup_seconds,
            self._counters.executions,
            self._counters.inputs,
            self._counters.rejected,
            self._corpus.size,
            findings,
            frozenset(self._docket.new_ids),
            exit_code,
            self._docket.hits_here,
            self._signal,
            notes + ((f"internal fault:\n{self._fault_text}",) if self._fault_text else ()),
            self._probe_rows,
            self._standings(),
            self._rechecked.rechecks,
        )

    def _findings(self, ids: Iterable[str]) -> tuple[Finding, ...]:
        """Return findings as they are stored now, each with the entry of the ledger that it falls under."""
        return tuple(self._prepared.ledger.marked(self._corpus.finding(finding_id)) for finding_id in ids)

    def _standings(self) -> tuple[Told, ...]:
        """Return what became of the entries of the ledger: by all that this build is known to show."""
        build, ledger = self._prepared.facts.build.digest, self._prepared.ledger
        here = [f for f in self._corpus.findings() if f.bucket.build == build and f.reproduced is not False]
        return tuple(ledger.standings(here, self._rechecked.gone))

    def _finish_pending(self, deadline: float) -> None:
        """Confirm and minimize what is queued, leaving time for the probe; the rest waits for the next campaign."""
        deadline -= _PROBE_SECONDS
        while self._docket.pending and self._signal is None and time.monotonic() < deadline:
            left = deadline - time.monotonic() - 1.0
            self._turn(most_investigations=max(2, self._options.workers), seconds_left=max(0.5, left))

    def _last_probe(self, deadline: float) -> None:
        if self._clock.started is None or self._signal is not None:
            return
        self._start_probe()
        while self._probe_child is not None and self._signal is None and time.monotonic() < deadline:
            self._turn(most_investigations=0)

    def _exit_code(self) -> int:
        if self._signal is not None:
            return 128 + self._signal
        if self._counters.faults:
            return 3
        seen, new = self._findings(self._docket.findings), self._docket.new_ids
        is_back = any(f.reproduced and f.known is not None and f.known.is_fixed for f in seen)
        if is_back and self._options.fail_on:  # said to be fixed: it fails, new to this corpus or not
            return 1
        told = [f for f in seen if f.finding_id in new and f.reproduced and not f.is_silent]
        rules = self._options.fail_on
        if any(rule.matches(finding) for finding in told for rule in rules):
            return 1
        if self._clock.started is not None and self._is_nearly_all_refused():
            return 4
        if self._clock.started is None:  # the gate ended it: a known fault still keeps everything from being judged
            return 1 if any(f.reproduced and not f.is_silent and rule.matches(f) for f in seen for rule in rules) else 4
        return 0

    def _is_nearly_all_refused(self) -> bool:
        return self._counters.rejected >= _REJECTED_SHARE * self._counters.executions

    # -- showing ------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._last["rss"] > _RSS_SECONDS:
            self._last["rss"] = now
            self._rss_bytes = resident_bytes([child.pid for child in self._prepared.pool.children])
        if now - self._last["snapshot"] > _SNAPSHOT_SECONDS:
            self._snapshot()
        if now - self._last["shown"] > 0.25:
            self._last["shown"] = now
            self._observer.status(self._status())

    def _status(self) -> CampaignStatus:
        seconds = self._clock.seconds()
        counts: dict[tuple[str, str], int] = {}
        known = 0
        for finding in self._docket.findings.values():
            if finding.known is not None and finding.is_silent:
                known += 1
                continue
            if finding.duplicate_of in self._docket.findings:
                continue
            key = (finding.bucket.kind, finding.verdict.grade.value)
            counts[key] = counts.get(key, 0) + 1
        last_new = self._docket.last_new_seconds
        running = self._clock.stopped is None and self._clock.started is not None
        return CampaignStatus(
            stage="fuzzing" if running else "finishing",
            seconds=seconds,
            limit_seconds=self._options.seconds,
            executions=self._counters.executions,
            limit_executions=self._options.cases,
            inputs=self._counters.inputs,
            rejected=self._counters.rejected,
            executions_per_second=self._counters.executions / seconds if seconds > 0 else 0.0,
            inputs_per_second=self._counters.inputs / seconds if seconds > 0 else 0.0,
            corpus_size=self._corpus.size,
            workers=self._crew.alive if self._crew is not None else 0,
            deaths=self._counters.deaths,
            pending=self._docket.pending,
            findings=counts,
            known=known,
            since_new_seconds=None if last_new is None else seconds - last_new,
            rss_bytes=self._rss_bytes,
            efforts=efforts_of(self._counters.efforts),
        )

    def _snapshot(self) -> None:
        self._last["snapshot"] = time.monotonic()
        self._corpus.snapshot(
            self._campaign_id,
            Snapshot(
                self._clock.seconds(),
                self._counters.executions,
                self._counters.inputs,
                self._corpus.size,
                len(self._docket.findings),
                self._rss_bytes,
                self._counters.rejected,
                self._options.workers,
            ),
        )

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let Ctrl-C, SIGTERM and SIGHUP end the campaign in order; a second one ends the process at once."""

        def handler(number: int, frame: FrameType | None) -> None:
            if self._signal is not None or not self._is_begun:
                raise KeyboardInterrupt(number)
            self._signal = number

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, handler) for number in numbers}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)
