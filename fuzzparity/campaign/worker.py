"""Worker: the inner loop of a campaign: choose, mutate, run both sides, judge.

The idea: a worker takes a lease (a number, a budget, what others kept meanwhile) and works through it without asking.
Kept cases and suspects leave at once, so that a death loses nothing that was found; counters leave at the end. The
sequence of cases depends on `rng_seed`, the lease number and outcomes alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fuzzparity.campaign.boundaries import AnnouncedGradients, Boundaries
from fuzzparity.campaign.looks import Lookout, traits_of
from fuzzparity.campaign.otherarms import OtherArms
from fuzzparity.campaign.records import (
    Again,
    Avoided,
    Elsewhere,
    Hits,
    Kept,
    Lease,
    LeaseDone,
    Noted,
    Ready,
    WorkerSpec,
)
from fuzzparity.campaign.relating import Relating
from fuzzparity.campaign.seen import Seen
from fuzzparity.campaign.sequences import Sequences, carrying_of
from fuzzparity.campaign.stacking import Counters, Mark, Stacking, Stepped
from fuzzparity.case import Case
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import KeptCase
from fuzzparity.execution import Execution
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.finding import REPEATED_KINDS, Suspect, suspects_of
from fuzzparity.generate.contract import breach
from fuzzparity.generate.feedback import features
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.generate.perils import Caution
from fuzzparity.generate.relations import RefusalTally
from fuzzparity.oracle.judge import Screening
from fuzzparity.oracle.metrics import SITE as METRIC
from fuzzparity.oracle.rows import decades_of
from fuzzparity.sides.gradients import Thresholds
from fuzzparity.verdict import Grade, Judgement, Kind, Realism, Verdict
from fuzzparity.work.loader import Context

_RELATIVE_EVERY = 4  # the sample of cases that get the purely relative look as well
_MOST_LOOK_ALIKES = 4096
FEW_ROWS = "a few of its rows"


def serve(context: Context, spec: WorkerSpec) -> None:
    """Work through leases until the parent sends None."""
    worker = Worker(context, spec)
    context.send(Ready(worker.note))
    while (lease := context.receive()) is not None:
        context.send(worker.work(lease))


class Worker:
    """Hold what lives from lease to lease: both sides, the generator, what was seen."""

    def __init__(self, context: Context, spec: WorkerSpec) -> None:
        """Open both sides and fill the generator from the corpus."""
        self._context = context
        self._spec = spec
        self._facts = spec.twin.facts
        with Corpus.open(Path(spec.corpus_path), read_only=True) as corpus:
            seeds = [corpus.case(digest) for digest in spec.seeds]
            pool = corpus.pool()
        twin = open_twin(context, spec.twin, context.announcer, seeds[0])
        if isinstance(twin, Execution):
            raise RuntimeError(f"the gate could open the model, this worker cannot: {twin.refusal}")
        self._twin: Twin = twin
        self._generator = Generator(self._facts.contract, seeds, spec.rng_seed, valid=context.loaded.target.valid)
        known_seeds = set(spec.seeds)
        of_builds = bool(context.loaded.target.dtypes)  # the corpus then holds cases of every build
        for case, case_features in pool:
            if case.digest not in known_seeds and not (of_builds and not self._facts.contract.has_dtypes_of(case)):
                self._generator.adopt(case, case_features)
        self._seen = Seen()
        self._look_alikes: dict[str, Mark] = {}
        self._told: set[str] = set()
        self._lookout = Lookout()
        self._refusals = RefusalTally()
        self._caution = Caution()
        self._other_arms = OtherArms(twin.arms)
        self._sequences = Sequences(carrying_of(context.loaded.target, self._facts), seeds, spec.rng_seed)
        target = context.loaded.target
        self._boundaries = Boundaries(
            self._facts.contract,
            self._facts.outputs,
            seeds,
            spec.rng_seed,
            target.valid,
            gradients=AnnouncedGradients(Thresholds(context.loaded), context.announcer),
            of_rows=bool(target.metrics),
        )
        self._stacking = Stacking(twin, self._generator, self._seen, context.send)
        self._relating = Relating(twin, self._generator, seeds, target.valid, context.send)
        self.note = ""
        if spec.may_stack:
            self.note = self._stacking.prove(spec.rng_seed, context.limits.run_seconds)
            self._relating.prove(spec.rng_seed)

    @property
    def generator(self) -> Generator:
        """Return what proposes cases here."""
        return self._generator

    def work(self, lease: Lease) -> LeaseDone:
        """Run one lease to its end."""
        turns = self.begin(lease)
        while not turns.is_over:
            turns.turn(self._generator.propose)
        return turns.done()

    def begin(self, lease: Lease) -> Turns:
        """Take a lease, of which turns can be made one by one."""
        self._adopt(lease.adopt)
        self._caution.heed(lease.perils)
        self._caution.left_out()  # those of the lease before are in its count
        self._generator.begin(lease.number, sweep_from=lease.sweep_from, sequence=lease.first_sequence)
        return Turns(self, lease, is_timed=not self._spec.is_deterministic)

    def turn(self, counters: Counters, propose: Callable[[], Proposal]) -> None:
        """Make one turn; where the memory of this process does not suffice, the case is given up."""
        try:
            self._turn(counters, propose)
        except MemoryError:  # the child's own limit, met between runs
            counters.rejected += 1
            self._boundaries.drop()

    def skip(self) -> None:
        """Make a turn that an earlier worker got through, and run nothing."""
        try:
            self._pass()
        except MemoryError:
            self._boundaries.drop()

    def done(self, lease: Lease, counters: Counters, seconds: float) -> LeaseDone:
        """Return what a lease came to, and send what is counted apart."""
        if counters.hits:
            self._context.send(Hits(counters.hits))
        if counts := self._other_arms.taken():
            self._context.send(Elsewhere(counts))
        return LeaseDone(
            lease.number,
            counters.executions,
            counters.inputs,
            counters.rejected,
            counters.judged,
            seconds,
            self._generator.sweep_position,
            self._generator.efforts(),
            self._generator.rules,
            self._refusals.taken(),
            self._caution.harmless,
        )

    def _turn(self, counters: Counters, propose: Callable[[], Proposal]) -> None:
        """Make one execution: a step of a sequence, a case run otherwise, what a stack left, a stack, or a new case."""
        if self._sequences.is_due():
            proposal = self._sequences.take(self._generator)
            counters.inputs += self._seen.add_case(proposal.case)
            self._step(proposal, counters, relative=proposal.lineage.sequence % _RELATIVE_EVERY == 0)
        elif self._relating.has_next:
            proposal = self._relating.take()
            if self._is_avoided(proposal.case):
                self._relating.drop()
                return
            counters.inputs += self._stacking.count(proposal)
            self._step(proposal, counters, relative=True)
        elif self._boundaries.has_next:
            proposal = self._boundaries.take(self._generator)
            if self._is_avoided(proposal.case):
                self._boundaries.drop()
                return
            counters.inputs += self._seen.add_case(proposal.case)
            self._step(proposal, counters, relative=False)
        elif self._stacking.has_queued:
            self._stacking.again(counters, self._again)
        elif self._stacking.is_due() and (stack := self._stacking.draw()) is not None:
            if not self._is_avoided(stack.case):
                self._stacking.run(stack, counters)
                self._caution.survived(stack.case)
        else:
            proposal = propose()
            if self._is_avoided(proposal.case):
                return  # its place in the stream stays empty; the campaign hands out another one
            relative = proposal.label == "sweep" or proposal.lineage.sequence % _RELATIVE_EVERY == 0
            self._step(proposal, counters, relative=relative)
            counters.inputs += self._stacking.count(proposal)
            self._caution.survived(proposal.case)

    def _is_avoided(self, case: Case) -> bool:
        """Tell whether a case is left out, since its likes killed workers; one that is not may kill this one."""
        if self._caution.avoids(case):
            return True
        if count := self._caution.left_out():
            self._context.send(Avoided(count))
        return False

    def _pass(self) -> None:
        """Draw what an earlier worker got through, and run nothing."""
        if not (self._stacking.is_due() and self._stacking.draw() is not None):
            self._generator.propose()

    def _again(self, proposal: Proposal, counters: Counters) -> Stepped:
        """Run a case whose rows a stack has run before: no new input."""
        return self._step(proposal, counters, relative=True)

    def _step(self, proposal: Proposal, counters: Counters, *, relative: bool) -> Stepped:
        case = proposal.case
        expected, actual = self._twin.run(case, proposal.lineage.sequence)
        counters.executions += 1
        screening = self._twin.screen(case, expected, actual, relative=relative)
        self._other_arms.add(expected, actual, is_suspicious=screening.is_suspicious)
        for note in (*self._twin.oracle.meter.taken(), *self._twin.arms.taken_notes()):
            self._context.send(Noted(note))
        judgement = Judgement(screening.kind, comparisons=screening.comparisons, measures=screening.measures)
        signals = features(case, self._facts.contract, expected, actual, judgement)
        is_rejected = screening.kind is Kind.REJECTED
        counters.rejected += is_rejected
        said = self._refusals.add(expected, actual) if is_rejected else ""
        kept = self._generator.learn(proposal, signals, refused_by_both=is_rejected, said=said)
        names = self._twin.oracle.names(expected)
        parts = self._parts(proposal, judgement, names) if screening.is_suspicious else {}
        due = self._due(parts)
        if due or kept:
            second = (self._twin.run_torch(case), self._twin.run_ort(case))
            if not due and (_differs(expected, second[0]) or _differs(actual, second[1])):
                parts = self._parts(proposal, judgement, names)
                due = self._due(parts)
            if due:
                few = self._on_few_rows(proposal, screening, expected, actual)
                judgement = self._judge(*(few or (proposal, expected, actual, second)), parts, due, counters)
        counters.hit(_findings(mark for name, mark in parts.items() if name not in due))
        findings = _findings(parts.values())
        if parts:
            self._look_again(proposal, judgement, findings)
        if kept:
            self._keep(proposal, signals, judgement)
        self._sequences.note(proposal, expected, actual)
        self._relating.note(proposal, expected, actual, is_suspicious=screening.is_suspicious)
        self._boundaries.note(proposal, expected, actual, is_suspicious=screening.is_suspicious)
        return Stepped(screening.is_suspicious, findings)

    def _on_few_rows(
        self, proposal: Proposal, screening: Screening, expected: Execution, actual: Execution
    ) -> tuple[Proposal, Execution, Execution, tuple[Execution, Execution]] | None:
        """Return a few rows of a large case, with what both sides answer to them, where they show all that it shows.

        Evidence runs a case some dozens of times: on hundreds of rows that would stop this worker for minutes.
        """
        case = self._stacking.telling_rows(proposal, expected, actual)
        if case is None:
            return None
        sequence, lineage = proposal.lineage.sequence, proposal.lineage
        answers = self._twin.run(case, sequence)
        shown = self._twin.screen(case, *answers, relative=True).comparisons
        if [one.kind for one in shown] != [one.kind for one in screening.comparisons]:
            return None
        if any(_arms(one) != _arms(two) for one, two in zip((expected, actual), answers, strict=True)):
            return None  # the number of rows decides on an arm, or what the rows hold together
        part = replace(proposal, case=case, lineage=replace(lineage, mutators=(*lineage.mutators, FEW_ROWS)))
        return part, *answers, (self._twin.run_torch(case), self._twin.run_ort(case))

    def _parts(self, proposal: Proposal, screened: Judgement, names: Sequence[str]) -> dict[str, Mark]:
        """Return the mark of each output and metric that differs; of the whole, named "", where none does."""
        if len(self._look_alikes) >= _MOST_LOOK_ALIKES:
            self._look_alikes.clear()
        is_near = self._twin.realism(proposal.case) is Realism.NEAR
        keys = _look_alike_keys(proposal, screened, names, is_near=is_near)
        return {name: self._look_alikes.setdefault(key, Mark()) for name, key in keys.items()}

    @staticmethod
    def _due(parts: dict[str, Mark]) -> frozenset[str]:
        """Count one more of each part's kind, and return those that get a full look."""
        return frozenset([name for name, mark in parts.items() if mark.is_due()])

    def _judge(
        self,
        proposal: Proposal,
        expected: Execution,
        actual: Execution,
        second: tuple[Execution, Execution],
        parts: dict[str, Mark],
        due: frozenset[str],
        counters: Counters,
    ) -> Judgement:
        """Judge what is due of a suspicious case in full and report what is new."""
        counters.judged += 1
        judgement = self._twin.judge(proposal.case, expected, actual, second, asked=None if "" in due else due)
        suspects = suspects_of(self._facts.build.digest, proposal.case, proposal.lineage, judgement, expected, actual)
        for name in due:
            parts[name].findings = tuple(one.bucket.finding_id for one in suspects if _is_about(name, one.verdict))
        for suspect in suspects:
            self._tell(suspect, counters)
            if suspect.verdict.grade is Grade.BUG and suspect.verdict.kind in REPEATED_KINDS:
                self._lookout.meet(suspect.bucket.finding_id, self._traits(proposal, judgement))
        return judgement

    def _look_again(self, proposal: Proposal, judgement: Judgement, findings: tuple[str, ...]) -> None:
        """Send a repeat of known findings that looks different: it may be of another cause."""
        if self._lookout.knows(findings):
            chosen = self._lookout.chosen(findings, self._traits(proposal, judgement), proposal.case)
            if chosen:
                self._context.send(Again(chosen, proposal.case, proposal.lineage))

    def _traits(self, proposal: Proposal, judgement: Judgement) -> frozenset[str]:
        realism = self._twin.realism(proposal.case).value
        return traits_of(proposal.case, proposal.lineage, proposal.label, realism, judgement.comparisons)

    def _tell(self, suspect: Suspect, counters: Counters) -> None:
        """Send a suspect of a bucket not told before; else count a hit."""
        finding_id = suspect.bucket.finding_id
        if finding_id in self._told:
            counters.hit((finding_id,))
            return
        self._told.add(finding_id)
        self._context.send(suspect)

    def _keep(self, proposal: Proposal, signals: frozenset[str], judgement: Judgement) -> None:
        row = KeptCase(
            proposal.case,
            proposal.lineage,
            signals,
            judgement.kind.value,
            judgement.error_ratio,
            self._twin.realism(proposal.case).value,
            bool(breach(self._facts.contract, proposal.case, self._context.loaded.target.valid)),
        )
        self._context.send(Kept(row))

    def _adopt(self, digests: tuple[str, ...]) -> None:
        if not digests:
            return
        with Corpus.open(Path(self._spec.corpus_path), read_only=True) as corpus:
            for digest in digests:
                self._generator.adopt(corpus.case(digest), corpus.features_of(digest))


class Turns:
    """Make the turns of one lease. `is_timed`: its time ends it as well as its number of executions."""

    def __init__(self, worker: Worker, lease: Lease, *, is_timed: bool) -> None:
        """Start with the turns that an earlier worker got through before it died."""
        self._worker = worker
        self._lease = lease
        self._is_timed = is_timed
        self._counters = Counters()
        self._started = time.monotonic()
        self._made = lease.skip
        for _ in range(lease.skip):
            worker.skip()

    @property
    def is_over(self) -> bool:
        """Tell whether no turn is left."""
        is_late = self._is_timed and time.monotonic() - self._started > self._lease.seconds
        return self._made >= self._lease.executions or (is_late and self._made > self._lease.skip)

    def turn(self, propose: Callable[[], Proposal]) -> None:
        """Make the next turn; `propose` gives the case of one that has none waiting."""
        self._made += 1
        self._worker.turn(self._counters, propose)

    def done(self) -> LeaseDone:
        """Return what the lease came to."""
        return self._worker.done(self._lease, self._counters, time.monotonic() - self._started)


def _arms(execution: Execution) -> list[tuple[str, int]]:
    """Return which arms an execution took."""
    return [(one.key, one.outcome) for one in execution.decisions if one.has_arms]


def _look_alike_keys(
    proposal: Proposal, screened: Judgement, outputs: Sequence[str], *, is_near: bool
) -> dict[str, str]:
    """Return for each output and metric that differs what such cases share of which a full look would tell nothing new.

    The error ratio's magnitude is part of it, two decades at a time: a tie and a gross fault look different. So is
    whether an output differs alone: a fault of its own may lie behind one that shows in others too. What wild values
    do to arithmetic must not hide what differs near the seeds. An output's key says nothing else of the other outputs,
    since where several faults meet nearly every case would look new.
    """
    differing = {
        name: one for name, one in zip(outputs, screened.comparisons, strict=False) if one.kind is not Kind.AGREE
    }
    broken = [f"{METRIC}{one.metric}" for one in screened.measures if one.breaks]
    many = len(differing) + len(broken) > 1
    shared = f"{proposal.contract_breaking}|{proposal.nonfinite}|{is_near}|{many}"
    keys = {name: f"{name}|{one.kind.value}|{decades_of(one.error_ratio)}|{shared}" for name, one in differing.items()}
    keys |= {name: f"{name}|{shared}" for name in broken}
    return keys or {"": f"|{screened.kind.value}|{shared}"}


def _is_about(name: str, verdict: Verdict) -> bool:
    """Tell whether a verdict is about an output or metric; one about none in particular is about each."""
    return name in ("", verdict.site if verdict.site.startswith(METRIC) else verdict.output) or not verdict.output


def _findings(marks: Iterable[Mark]) -> tuple[str, ...]:
    """Return the findings that some marks hold, each once."""
    return tuple(dict.fromkeys(finding_id for mark in marks for finding_id in mark.findings))


def _differs(first: Execution, second: Execution) -> bool:
    """Tell whether two runs of one side are not the same bits; NaN payloads do not count."""
    if first.status is not second.status:
        return True
    if len(first.outputs) != len(second.outputs):
        return True
    for one, two in zip(first.outputs, second.outputs, strict=True):
        if one.shape != two.shape or one.dtype != two.dtype:
            return True
        if one.tobytes() != two.tobytes() and not _same_but_nan(one, two):
            return True
    return False


def _same_but_nan(one: np.ndarray, two: np.ndarray) -> bool:
    equal_nan = one.dtype.kind in "fc"
    return bool(np.array_equal(one, two, equal_nan=equal_nan))
