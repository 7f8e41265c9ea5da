"""Boundaries: the part of the inner loop that looks for inputs at which a decision falls the other way.

The idea: of the cases that run anyway, a few are held by their form, and the seeds for good; two of them on which
something was decided differently are the ends of a line that is halved. The search has a budget of its own, counted in
executions: a tenth of what the campaign runs, one search at a time, and less for decisions that showed nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from fuzzparity.case import Case, Lineage
from fuzzparity.contract import Contract
from fuzzparity.execution import Execution
from fuzzparity.generate.boundary import Pair, Probe, Search, Shown, joins, probes, search
from fuzzparity.generate.contract import Valid, breach
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.generate.rng import Rng

LABEL = "boundary"
SEED_LABEL = "seed"
MUTATOR = "boundary search"
_SHARE = 0.1  # executions for each one that is not a search's
_DEAREST = 128  # executions of one search
_START_AT = 64  # executions in hand, with which a search may start; most take fewer
_AT_FIRST = 128  # executions in hand at the start
_MOST_IN_HAND = 256
_PATIENCE = 256  # executions of one decision's searches that may show nothing, before it has to wait
_LONGEST_WAIT = 4  # times as many cases as one search after the other would have to wait for
_MOST_SEEDS = 4
_LOOK_EVERY = 4  # cases between two looks for a line
_HELD_FORMS = 16
_HELD_CASES = 4  # of one form
_MOST_BYTES = 1 << 20  # of inputs and outputs of a case that is held
_STREAM = -0xB0  # of chance: no lease has this number

_Form = tuple[tuple[str, str, tuple[int, ...]], ...]


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
        of_rows: bool = False,
    ) -> None:
        """Start with an allowance; the first cases to run are seeds, to be held.

        `of_rows`: which element of a row of floats is the largest is a decision as well: of a metric, as a rule.
        """
        self._contract = contract
        self._outputs = tuple(outputs)
        self._valid = valid
        self._of_rows = of_rows
        self._rng = Rng(rng_seed, _STREAM)
        self._in_hand = float(_AT_FIRST)
        self._held: OrderedDict[_Form, deque[_Held]] = OrderedDict()
        self._running: _Running | None = None
        self._looks = 0
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
        held = self._held.setdefault(_form_of(proposal.case), deque(maxlen=_HELD_CASES))
        self._held.move_to_end(_form_of(proposal.case))
        if len(self._held) > _HELD_FORMS:
            self._held.popitem(last=False)
        this = _Held(proposal, pair)
        if self._running is None and self._in_hand >= _START_AT:
            self._looks += 1
            if self._looks % _LOOK_EVERY == 0:
                self._look(this, held)
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
        if not found:
            return
        _, _, other, probe = min(found, key=lambda one: one[:2])
        steps = search(other.proposal.case, this.proposal.case, probe, (other.pair, this.pair), self._rng)
        if (case := next(steps, None)) is not None:
            self._running = _Running(probe.key, other.proposal, steps, case)
            self._skip_what_breaks(self._running)

    def _may_join(self, start: Case, end: Case) -> bool:
        """Tell whether the cases between two are cases: inputs that are left as in the seeds have to be alike."""
        for item in self._contract.inputs:
            if item.is_opaque and start.inputs[item.name].tobytes() != end.inputs[item.name].tobytes():
                return False
        return joins(start, end)

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
            self._waits[running.key] = self._cases + min(turns, _LONGEST_WAIT) * running.executions / _SHARE


def _form_of(case: Case) -> _Form:
    return tuple((name, array.dtype.str, array.shape) for name, array in case.inputs.items())
