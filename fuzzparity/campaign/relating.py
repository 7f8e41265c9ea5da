"""Relating: the small part of a campaign that runs a case again, with its rows or its padding changed, or much later.

The idea: the case made from one that agrees is judged as any other, torch against ORT, so that a side that minds the
order or the number of rows, or what stands at padding, differs there; which side that is, its investigation tells. What
both sides mind alike is no fault of parity, and is noted once. The first seed has to come out as it did before all
other calls: a side that it does not is unstable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fuzzparity.campaign.records import Noted
from fuzzparity.case import Case, Lineage
from fuzzparity.execution import Execution
from fuzzparity.explain.relations import Padding, Related, broken, proven_padding, rows_of
from fuzzparity.explain.twin import Twin
from fuzzparity.finding import suspects_of
from fuzzparity.generate.contract import Valid, breach
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.generate.rng import Rng
from fuzzparity.verdict import Kind

_ONE_IN = 64  # executions of ordinary cases, after which one is run again otherwise
_LATER = 256  # executions of ordinary cases, after which the first seed is run again
_FAR = 8.0  # times what is allowed: kernels round otherwise for other numbers of rows
_DEAR_SECONDS = 1.0  # of a seed's run
HISTORY = "the first seed, later"
_PATIENCE = 4 * _ONE_IN  # cases without padding, after which it is the turn of rows
_STREAM = -4  # of chance: no lease has this number


@dataclass(frozen=True, slots=True)
class _Asked:
    """Hold a case that waits to be run again otherwise, and what both sides answered to it as it was."""

    related: Related
    parent: Proposal
    answers: tuple[Execution, Execution]


class Relating:
    """Choose which cases of a campaign run again with rows or padding changed; the same for the same cases."""

    def __init__(
        self,
        twin: Twin,
        generator: Generator,
        seeds: Sequence[Case],
        valid: Valid | None,
        send: Callable[[object], None],
    ) -> None:
        """Start without a relation."""
        self._twin = twin
        self._generator = generator
        self._contract = twin.spec.facts.contract
        self._seeds = tuple(seeds)
        self._valid = valid
        self._send = send
        self._rows = rows_of(self._contract, self._seeds[0], valid, generator)
        self._axes: tuple[int, ...] | None = None
        self._padding: Padding | None = None
        self._rng = Rng(0, _STREAM)
        self._count = 0
        self._made_of_rows = True  # the last one
        self._calls = 0
        self._first: tuple[Execution, Execution] | None = None  # what the first seed gave before anything else ran
        self._next: _Asked | None = None
        self._running: _Asked | None = None
        self._said: set[str] = set()

    def prove(self, rng_seed: int) -> None:
        """Find out on the seeds which relations both sides keep; of a model that is slow beyond doubt, none."""
        run, oracle = self._twin.run, self._twin.oracle
        self._rng = Rng(rng_seed, _STREAM)
        self._first = run(self._seeds[0])
        if all(max(e.seconds for e in pair) > _DEAR_SECONDS for pair in (self._first, run(self._seeds[0]))):
            return
        if self._rows is not None and self._twin.arms.line_on_values() is None:
            self._axes = self._rows.proven(run, oracle, rng_seed)
        if self._twin.where is not None:
            self._padding = proven_padding(self._contract, self._seeds[0], self._valid, run, oracle, rng_seed)

    @property
    def relations(self) -> tuple[str, ...]:
        """Return what is proven, in words."""
        rows = ("rows",) if self._axes is not None else ()
        return (*rows, *(("padding",) if self._padding is not None else ()))

    @property
    def has_next(self) -> bool:
        """Tell whether a case waits to be run."""
        return self._next is not None

    def take(self) -> Proposal:
        """Return the case that waits, as the next proposal of the stream."""
        assert self._next is not None
        self._running, self._next = self._next, None
        parent, related = self._running.parent, self._running.related
        return self._generator.following(parent, related.case, (related.relation,), parent.label)

    def drop(self) -> None:
        """Give up the case that was taken."""
        self._running = None

    def note(self, proposal: Proposal, expected: Execution, actual: Execution, *, is_suspicious: bool) -> None:
        """Look at a case that ran: compare it with the one that it was made of, or let it be run again otherwise."""
        running, self._running = self._running, None
        if running is not None:
            if running.related.relation == HISTORY:
                self._look_back(running, (expected, actual))
            elif running.related.case is proposal.case and not is_suspicious:
                self._compare(running, (expected, actual))
            return
        self._calls += 1
        if self._calls % _LATER == 0 and self._first is not None and self._next is None:
            seed = self._seeds[0]
            self._next = _Asked(Related(HISTORY, seed), Proposal(seed, Lineage(origin="seed"), "near"), self._first)
            return
        if not self.relations or proposal.contract_breaking or proposal.nonfinite or is_suspicious:
            return
        if not (expected.is_ok and actual.is_ok):
            return
        self._count += 1
        if self._count < _ONE_IN or self._next is not None:
            return
        related = self._made(proposal.case)
        if related is not None and not breach(self._contract, related.case, self._valid):
            self._count = 0
            self._made_of_rows = bool(related.rows)
            self._next = _Asked(related, proposal, (expected, actual))

    def _made(self, case: Case) -> Related | None:
        """Return a related case, by turns of its padding and of its rows; None where it has none."""
        is_of_padding = self._axes is None or (self._made_of_rows and self._count < _PATIENCE)
        if self._padding is not None and is_of_padding:
            return self._padding.changed(case, self._rng)
        if self._rows is None or self._axes is None or not (rows := self._rows.count(case)):
            return None
        draw = self._rng.unit()
        if draw < 0.6:
            return self._rows.permuted(case, self._rng)
        row = self._rng.below(rows)
        return self._rows.alone(case, row) if draw < 0.8 else self._rows.repeated(case, row)

    def _look_back(self, asked: _Asked, answers: tuple[Execution, Execution]) -> None:
        """Report a side whose answer to the first seed is another one now, by more than is allowed."""
        pairs = zip(asked.answers, answers, strict=True)
        if HISTORY in self._said or not any(self._is_other(asked.related, *pair) for pair in pairs):
            return
        self._said.add(HISTORY)
        case = asked.related.case
        judgement = self._twin.judge(case, *asked.answers, answers, relative=False)
        build = self._twin.spec.facts.build.digest
        for suspect in suspects_of(build, case, asked.parent.lineage, judgement, *asked.answers):
            met = suspect.verdict.comparison
            if suspect.verdict.kind is Kind.UNSTABLE and (met is None or met.kind is not Kind.AGREE):
                self._send(suspect)
        self._send(
            Noted(
                f"after {self._calls} cases the first seed no longer gives what it gave at first: state is kept, not "
                "put back, and what is found from then on may not come back alone"
            )
        )

    def _is_other(self, related: Related, first: Execution, later: Execution) -> bool:
        """Tell whether a side answers otherwise than it did, by more than is allowed."""
        if first.status is not later.status:
            return True
        found = broken(self._twin.oracle, related, (), first, later)
        return found is not None and found.is_broken

    def _compare(self, asked: _Asked, answers: tuple[Execution, Execution]) -> None:
        """Note it where both sides, which agree with each other, are far from keeping a relation."""
        related = asked.related
        found = [
            broken(self._twin.oracle, related, self._axes or (), first, second)
            for first, second in zip(asked.answers, answers, strict=True)
        ]
        if any(one is None for one in found) or related.relation in self._said:
            return
        by_output = zip(*(one.comparisons for one in found if one is not None), strict=True)
        names = [
            name
            for name, comparisons in zip(self._twin.oracle.outputs, by_output, strict=True)
            if all(comparison.error_ratio > _FAR for comparison in comparisons)
        ]
        if names:
            self._said.add(related.relation)
            alike = "on both sides alike, which is no fault of parity"
            self._send(Noted(f"{related.relation}: output {', '.join(names)} changes {alike}"))
