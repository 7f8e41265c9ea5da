"""Boundaries: the part of the inner loop that looks for inputs at which a decision falls the other way.

The idea: of the cases that run anyway, a few are held by their form, and the seeds for good; two of them on which
something was decided differently are the ends of a line that is halved. The search has a budget of its own, counted in
executions: a tenth of what the campaign runs, one search at a time, and less for decisions that showed nothing. A
comparison that comes out one way on every case is approached along its gradient, from a seed or from a case that ran.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fuzzparity.case import Array, Case, Lineage, is_float
from fuzzparity.contract import Contract
from fuzzparity.decisions import Threshold
from fuzzparity.execution import Execution
from fuzzparity.explain.records import REFEREE
from fuzzparity.generate.between import joins, same
from fuzzparity.generate.boundary import Pair, Probe, Search, Shown, approach, probes, search
from fuzzparity.generate.contract import Valid, breach, rounded
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.generate.rng import Rng
from fuzzparity.work.announce import Announcer

LABEL = "boundary"
SEED_LABEL = "seed"
MUTATOR = "boundary search"
_SHARE = 0.1  # executions for each one that is not a search's
_DEAREST = 128  # executions of one search
_START_AT = 64  # executions in hand, with which a search may start; most take fewer
_AT_FIRST = 128  # executions in hand at the start
_MOST_IN_HAND = 256
_PATIENCE = 256  # executions of one decision's searches that may show nothing, before it has to wait
_LONGEST_WAIT = 8  # times as many cases as one search after the other would have to wait for
_MOST_SEEDS = 4
_LOOK_EVERY = 4  # cases between two looks for a line; twice as many after one that found nothing
_MOST_BETWEEN = 64
_HELD_FORMS = 16
_HELD_CASES = 4  # of one form
_MOST_BYTES = 1 << 20  # of inputs and outputs of a case that is held
_GRADIENT_COSTS = 8  # executions: what a run with gradients takes of a small model's time
_APPROACH_EVERY = 4  # looks
_MOST_FRUITLESS = 8  # looks for thresholds in which there was none, before there are taken to be none
_STREAM = -0xB0  # of chance: no lease has this number

_Form = tuple[tuple[tuple[int, ...], np.dtype[np.generic]], ...]


class Gradients(Protocol):
    """Find the thresholds inside torch's side, and which way leads to them."""

    def met(self, case: Case) -> tuple[Threshold, ...]:
        """Return those that a run comes by."""

    def toward(self, case: Case, threshold: Threshold) -> tuple[float, dict[str, Array]] | None:
        """Return the margin and its gradient by each float input."""


class AnnouncedGradients:
    """Announce every run with gradients as one that is no side's own: what dies there is not told of one."""

    def __init__(self, gradients: Gradients, announcer: Announcer) -> None:
        """Wrap what finds thresholds in this process."""
        self._gradients = gradients
        self._announcer = announcer

    def met(self, case: Case) -> tuple[Threshold, ...]:
        """Return those that a run comes by."""
        self._announcer.case(case)
        with self._announcer.at(REFEREE):
            return self._gradients.met(case)

    def toward(self, case: Case, threshold: Threshold) -> tuple[float, dict[str, Array]] | None:
        """Return the margin and its gradient by each float input."""
        self._announcer.case(case)
        with self._announcer.at(REFEREE):
            return self._gradients.toward(case, threshold)


@dataclass(frozen=True)
class _Held:
    """Hold a case that may become the end of a line."""

    proposal: Proposal
    pair: Pair


@dataclass(slots=True)
class _Running:
    """Hold the search that is going on, and what came of it so far."""

    key: str
    parent: Proposal
    steps: Search
    next: Case
    executions: int = 0
    shown: bool = False


class Boundaries:
    """Hold the ends of lines and the search under way; the same for the same cases and outcomes."""

    def __init__(
        self,
        contract: Contract,
        outputs: Sequence[str],
        seeds: Sequence[Case],
        rng_seed: int,
        valid: Valid | None = None,
        *,
        gradients: Gradients | None = None,
        of_rows: bool = False,
    ) -> None:
        """Start with an allowance; the first cases to run are seeds, to be held.

        `of_rows`: which element of a row of floats is the largest is a decision as well: of a metric, as a rule.
        """
        self._contract = contract
        self._outputs = tuple(outputs)
        self._valid = valid
        self._of_rows = of_rows
        self._fixed = frozenset(item.name for item in contract.inputs if item.is_opaque)
        self._gradients = gradients
        self._fruitless = 0  # looks for thresholds
        self._approaches = 0
        self._sides: dict[str, set[bool]] = {}  # key of a threshold -> on which sides of it cases were
        self._rng = Rng(rng_seed, _STREAM)
        self._in_hand = float(_AT_FIRST)
        self._held: OrderedDict[_Form, deque[_Held]] = OrderedDict()
        self._running: _Running | None = None
        self._looks = 0
        self._between = _LOOK_EVERY  # cases, from the last look to the next
        self._next_look = _LOOK_EVERY
        self._seeds: list[_Held] = []
        self._unrun = list(seeds[:_MOST_SEEDS][::-1])
        self.executions: Counter[str] = Counter()  # of searches, by decision
        self._barren: Counter[str] = Counter()  # the same, since one showed something
        self._cases = 0  # that are no step of a search
        self._waits: dict[str, float] = {}  # decision -> number of cases before its next search

    @property
    def has_next(self) -> bool:
        """Tell whether a case of a search waits to be run."""
        return self._running is not None or bool(self._unrun)

    def take(self, generator: Generator) -> Proposal:
        """Return the case that waits, as the next proposal of the stream."""
        if self._running is None:
            seed = self._unrun.pop()
            return generator.following(
                Proposal(seed, Lineage(origin="seed"), SEED_LABEL), seed, (SEED_LABEL,), SEED_LABEL
            )
        return generator.following(self._running.parent, self._running.next, (MUTATOR,), LABEL)

    def drop(self) -> None:
        """End the search under way: its next case may not run."""
        self._running = None

    def note(self, proposal: Proposal, expected: Execution, actual: Execution, *, is_suspicious: bool) -> None:
        """Take in what a case showed: one of the search goes on with it, any other may become the end of a line."""
        pair = expected, actual
        if proposal.label == LABEL:
            self._go_on(Shown(pair, is_suspicious))
            return
        self._cases += 1
        self._in_hand = min(self._in_hand + _SHARE, _MOST_IN_HAND)
        if not self._is_fit(proposal, pair):
            return
        form = _form_of(proposal.case)
        held = self._held.setdefault(form, deque(maxlen=_HELD_CASES))
        self._held.move_to_end(form)
        if len(self._held) > _HELD_FORMS:
            self._held.popitem(last=False)
        this = _Held(proposal, pair)
        if self._running is None and self._in_hand >= _START_AT and self._cases >= self._next_look:
            self._looks += 1
            self._look(this, held)
            self._between = _LOOK_EVERY if self._running is not None else min(2 * self._between, _MOST_BETWEEN)
            self._next_look = self._cases + self._between
        if proposal.label == SEED_LABEL:
            self._seeds.append(this)
        else:
            held.append(this)

    def _is_fit(self, proposal: Proposal, pair: Pair) -> bool:
        case = proposal.case
        if proposal.contract_breaking or not (pair[0].is_ok and pair[1].is_ok) or not case.elements:
            return False
        answers = sum(output.nbytes for execution in pair for output in execution.outputs)
        return case.nbytes + answers <= _MOST_BYTES and case.is_finite

    def _look(self, this: _Held, held: Sequence[_Held]) -> None:
        """Start a search on a line between a case and one that is held: of the decision that had least of them."""
        found: list[tuple[int, int, _Held, Probe]] = []
        for other in (*self._seeds, *held):
            if not self._may_join(other.proposal.case, this.proposal.case):
                continue
            ends = other.pair, this.pair
            for rank, probe in enumerate(probes(*ends, self._outputs, self._rng, of_rows=self._of_rows)):
                if self._waits.get(probe.key, 0.0) <= self._cases:
                    found.append((self.executions[probe.key], rank, other, probe))
        if not found or self._looks % _APPROACH_EVERY == 0:
            self._approach(this)
        if not found or self._running is not None:
            return
        _, _, other, probe = min(found, key=lambda one: one[:2])
        self._start(
            probe.key,
            other.proposal,
            search(other.proposal.case, this.proposal.case, probe, (other.pair, this.pair), self._rng, self._fixed),
        )

    def _start(self, key: str, parent: Proposal, steps: Search) -> None:
        """Start a search, whose first case waits from now on."""
        if (case := next(steps, None)) is not None:
            self._running = _Running(key, parent, steps, case)
            self._skip_what_breaks(self._running)

    def _approach(self, this: _Held) -> None:
        """Start a search along a gradient: to a threshold that all cases were on one side of, or the least tried one.

        From a seed and from a case that ran in turn: seeds are tame, and other cases come by other thresholds.
        """
        if self._gradients is None or self._fruitless >= _MOST_FRUITLESS:
            return
        number = self._approaches
        self._approaches += 1
        start = self._seeds[number // 2 % len(self._seeds)] if self._seeds and number % 2 == 0 else this
        self._in_hand -= _GRADIENT_COSTS
        met = self._gradients.met(start.proposal.case)
        self._fruitless = 0 if met else self._fruitless + 1
        for one in met:
            self._sides.setdefault(one.key, set()).add(one.margin > 0.0)
        due = [one for one in met if self._waits.get(one.key, 0.0) <= self._cases]
        if due:
            chosen = min(due, key=lambda one: (len(self._sides[one.key]), self.executions[one.key]))
            self._start(
                chosen.key,
                start.proposal,
                approach(start.proposal.case, chosen, self._toward, self._confined, self._rng, self._fixed),
            )
            if self._running is None:  # nothing led across it
                self._waits[chosen.key] = self._cases + _PATIENCE

    def _toward(self, case: Case, threshold: Threshold) -> tuple[float, dict[str, Array]] | None:
        """Return a margin and its gradient by the inputs that may change, paid for."""
        assert self._gradients is not None
        self._in_hand -= _GRADIENT_COSTS
        self.executions[threshold.key] += _GRADIENT_COSTS
        found = self._gradients.toward(case, threshold)
        if found is None:
            return None
        return found[0], {name: one for name, one in found[1].items() if name not in self._fixed}

    def _confined(self, case: Case) -> Case:
        """Return a case with its floats within the bounds of the contract."""
        inputs = {}
        for item in self._contract.inputs:
            array = case.inputs[item.name]
            if is_float(array.dtype) and (item.low is not None or item.high is not None):
                low = -np.inf if item.low is None else rounded(item.low, array.dtype)
                high = np.inf if item.high is None else rounded(item.high, array.dtype)
                inputs[item.name] = np.clip(array.astype(np.float64), low, high).astype(array.dtype)
        return case.replace(**inputs) if inputs else case

    def _may_join(self, start: Case, end: Case) -> bool:
        """Tell whether the cases between two are cases: inputs that are left as in the seeds have to be alike."""
        alike = all(same(start.inputs[name], end.inputs[name]) for name in sorted(self._fixed))
        return alike and joins(start, end)

    def _go_on(self, shown: Shown) -> None:
        """Send a search what its case showed, and let the next one wait."""
        running = self._running
        if running is None:
            return
        self._in_hand -= 1
        self.executions[running.key] += 1
        running.executions += 1
        running.shown |= shown.is_suspicious
        self._advance(running, shown)
        if self._running is not None:
            self._skip_what_breaks(running)

    def _advance(self, running: _Running, shown: Shown) -> None:
        try:
            running.next = running.steps.send(shown)
        except StopIteration:
            self._end(running)
            return
        if running.executions >= _DEAREST:
            self._end(running)

    def _skip_what_breaks(self, running: _Running) -> None:
        """End a search whose next case leaves the contract: what is between two cases may be none."""
        if breach(self._contract, running.next, self._valid):
            self._end(running)

    def _end(self, running: _Running) -> None:
        self._running = None
        self._barren[running.key] = 0 if running.shown else self._barren[running.key] + running.executions
        if (turns := self._barren[running.key] // _PATIENCE) > 0:
            self._waits[running.key] = self._cases + min(2**turns, _LONGEST_WAIT) * running.executions / _SHARE


def _form_of(case: Case) -> _Form:
    return tuple((array.shape, array.dtype) for array in case.inputs.values())
