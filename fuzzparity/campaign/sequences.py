"""Sequences: cases that go on from an earlier one, with the outputs that a target carries fed back into its inputs.

The idea: whoever ships a model that carries state runs it step after step, so states that only several steps reach must
be tried. In a campaign torch's own state goes into the next case of both sides, so that every step is judged from the
same inputs; in the gate each side also feeds back its own state, which shows how an error grows.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.contract import Contract, TargetFacts
from fuzzparity.execution import Execution
from fuzzparity.generate.contract import Valid, breach
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.target import Target

DRIFT_STEPS = 50
_ONE_IN = 12  # cases that are followed
_DEEPEST = 8  # follow-ups of most cases
_LONG_IN = 16  # sequences of which one is long
_LONG_STEPS = (16, 32, 64, 128, 256)
_FIRST_STEPS = 128  # of a worker's first sequence, in the order of the data
_SHARE = 0.4  # of executions, while a sequence is under way
_IN_ORDER_SHARE = 0.7  # of sequences that take the seeds in their order; the others repeat what the case holds
_MOST_CHANGES = 4  # of the order of calls in a long sequence
_DRIFT_SECONDS = 10.0  # after which no further step is taken
_MOST_SHAKEN = 8.0  # times what one ulp of the state moves, that rounding explains: as for single cases
_TOLD_STEPS = (1, 10, DRIFT_STEPS)
LABEL = "carry"
SWAPPED, REPEATED, RESET, SILENCE, ELSEWHERE = "steps swapped", "step repeated", "state reset", "silence", "other step"
_CHANGES = (SWAPPED, REPEATED, RESET, SILENCE, ELSEWHERE)


class Sides(Protocol):
    """Run a case on both sides, torch first; announced, so that a death is told of that case."""

    def run(self, case: Case) -> tuple[Execution, Execution]:
        """Run one case."""

    def run_torch(self, case: Case) -> Execution:
        """Run one case on torch alone."""


@dataclass(frozen=True)
class Carrying:
    """Hold what a target carries (`carry`: output -> input), the names of its outputs, and its contract."""

    carry: Mapping[str, str]
    outputs: tuple[str, ...]
    contract: Contract
    valid: Valid | None = None

    def next_step(self, case: Case, answer: Execution, others: Case | None = None) -> Case | None:
        """Return the case that follows one, given what a side answered; None when it would leave the contract.

        `others` gives the inputs that are not carried, where they fit the state; else they are as they were.
        """
        if not answer.is_ok or len(answer.outputs) != len(self.outputs):
            return None
        state = {name: answer.outputs[self.outputs.index(output)] for output, name in self.carry.items()}
        for given in (others, case) if others is not None else (case,):
            made = case.replace(**{name: array for name, array in given.inputs.items() if name not in state})
            made = made.replace(**{name: _as(array, case.inputs[name]) for name, array in state.items()})
            if not breach(self.contract, made, self.valid):
                return made
        return None

    def silent(self, case: Case) -> Case:
        """Return a case whose float inputs, but for what is carried and what stays as in the seeds, hold zero.

        Where the contract has no zero it is the number next to it.
        """
        quiet = {}
        for item in self.contract.inputs:
            array = case.inputs[item.name]
            if item.name in self.carry.values() or item.is_opaque or not is_float(array.dtype):
                continue
            number = max(item.low or 0.0, min(0.0, item.high if item.high is not None else 0.0))
            quiet[item.name] = np.full(array.shape, number).astype(array.dtype)
        return case.replace(**quiet)

    def shaken(self, case: Case, draw: int) -> Case:
        """Return a case whose carried floats are each moved by up to one ulp of the largest of them."""
        random = np.random.default_rng(draw)
        moved = {}
        for name in self.carry.values():
            state = case.inputs[name]
            if state.dtype.kind != "f" or not state.size:
                continue
            with np.errstate(all="ignore"):
                ulp = np.spacing(np.max(np.abs(state), initial=0.0, where=np.isfinite(state)))
                moved[name] = (state + random.uniform(-1.0, 1.0, state.shape) * ulp).astype(state.dtype)
        made = case.replace(**moved)
        return case if breach(self.contract, made, self.valid) else made

    def reset(self, case: Case, start: Case) -> Case | None:
        """Return a case with the state that another one starts from; None where that does not fit its other inputs."""
        made = case.replace(**{name: start.inputs[name] for name in self.carry.values()})
        return None if breach(self.contract, made, self.valid) else made

    @property
    def mutators(self) -> tuple[str, ...]:
        """Return the names under which lineage tells these steps."""
        return tuple(f"carry {output}->{name}" for output, name in self.carry.items())


def carrying_of(target: Target, facts: TargetFacts) -> Carrying:
    """Return what a target carries; nothing, most often."""
    return Carrying(target.carry, facts.outputs, facts.contract, target.valid)


def _as(array: Array, model: Array) -> Array:
    return array.astype(model.dtype) if is_float(array.dtype) and is_float(model.dtype) else array


@dataclass(frozen=True, slots=True)
class _Step:
    """Say what a step takes in beside the state: inputs of a seed, or None for those of the case before it.

    `change`: what was done to the order of calls here, "" where it is the usual one.
    """

    seed: int | None
    change: str = ""


class Sequences:
    """Choose which cases of a campaign are followed, how far and in which order; the same for the same cases."""

    def __init__(self, carrying: Carrying, seeds: Sequence[Case], rng_seed: int) -> None:
        """Follow with the seeds, in their order, as the inputs that are not carried."""
        self._carrying = carrying
        self._seeds = tuple(seeds)
        self._rng_seed = rng_seed
        self._plan: deque[_Step] = deque()  # of the sequence under way
        self._next: tuple[Proposal, Case, str] | None = None
        self._turns = Random(rng_seed)
        self._is_first = True  # the first sequence is a long one: a short campaign needs it as well

    @property
    def has_next(self) -> bool:
        """Tell whether a step waits to be run."""
        return self._next is not None

    def is_due(self) -> bool:
        """Tell whether the next execution should be a step: a long sequence must not keep everything else waiting."""
        return self._next is not None and self._turns.random() < _SHARE

    def note(self, proposal: Proposal, expected: Execution, actual: Execution) -> None:
        """Look at a case that ran, and let a step of it wait where it is to be followed."""
        if not self._carrying.carry or proposal.contract_breaking:
            return
        if proposal.label != LABEL:
            if self._next is not None:
                return  # one sequence at a time
            self._begin(proposal)
        if not (expected.is_ok and actual.is_ok):
            self._plan.clear()
        while self._plan:
            step = self._plan.popleft()
            case = self._following(proposal.case, expected, step)
            if case is None:  # the state leaves the contract
                self._plan.clear()
            elif case != proposal.case:  # the same step from the same state tells nothing
                self._next = proposal, case, step.change
                return

    def _begin(self, proposal: Proposal) -> None:
        """Plan what follows a case, where it is one that is followed."""
        lineage = proposal.lineage
        chance = zlib.crc32(f"{self._rng_seed} {lineage.lease} {lineage.sequence}".encode())
        is_followed = chance % _ONE_IN == 0
        if not is_followed and not self._is_first:
            self._plan.clear()
            return
        self._plan = deque(_plan(Random(chance), len(self._seeds), is_first=self._is_first))
        self._is_first = False

    def _following(self, case: Case, answer: Execution, step: _Step) -> Case | None:
        """Return the case of a step; a change of order that the contract does not admit is left out."""
        others = None if step.seed is None else self._seeds[step.seed]
        if step.change == SILENCE and (made := self._carrying.next_step(case, answer, self._carrying.silent(case))):
            return made
        made = self._carrying.next_step(case, answer, others)
        if step.change == RESET and made is not None:
            return self._carrying.reset(made, self._seeds[0]) or made
        return made

    def take(self, generator: Generator) -> Proposal:
        """Return the step that waits, as the next proposal of the stream."""
        assert self._next is not None
        (parent, case, change), self._next = self._next, None
        names = (*self._carrying.mutators, change) if change else self._carrying.mutators
        return generator.following(parent, case, names, LABEL)


def _plan(random: Random, seeds: int, *, is_first: bool = False) -> list[_Step]:
    """Return the steps of a sequence: the data in its order, or the same inputs on and on, then changes of order."""
    if is_first:
        return [_Step(step % seeds) for step in range(_FIRST_STEPS)]
    is_long = random.randrange(_LONG_IN) == 0
    steps = random.choice(_LONG_STEPS) if is_long else 1 + random.randrange(_DEEPEST)
    first = random.randrange(seeds)
    in_order = random.random() < _IN_ORDER_SHARE
    plan = [_Step((first + step) % seeds if in_order else None) for step in range(steps)]
    for _ in range(random.randrange(_MOST_CHANGES + 1) if is_long else random.randrange(2)):
        _change(plan, random, seeds)
    return plan


def _change(plan: list[_Step], random: Random, seeds: int) -> None:
    """Change the order of calls in one place of a plan."""
    change = random.choice(_CHANGES)
    place = random.randrange(len(plan))
    stretch = range(place, min(len(plan), place + 1 + random.randrange(max(1, len(plan) // 2))))
    if change == SWAPPED and place + 1 < len(plan):
        plan[place], plan[place + 1] = (_Step(plan[at].seed, SWAPPED) for at in (place + 1, place))
    elif change == ELSEWHERE:
        plan[place] = _Step(random.randrange(seeds), ELSEWHERE)
    elif change == RESET:
        plan[place] = _Step(plan[place].seed, RESET)
    elif change in (SILENCE, REPEATED):
        for at in stretch:
            plan[at] = _Step(None, change)


@dataclass(frozen=True)
class Drift:
    """Hold how far the sides drift apart when each feeds back its own state.

    `errors`: by step, the largest error of any output over that output's largest magnitude. `shaken`: the same of torch
    against itself, with its own state changed by up to one ulp of its largest number before every step.
    """

    errors: tuple[float, ...]
    ended: str = ""  # why before the last step
    shaken: tuple[float, ...] = ()
    apart_at: int = 0  # first step, from 1, at which the sides are further apart than one step may be; 0: none
    apart_kind: str = ""  # of that difference
    single: int = 0  # steps that differed from torch's own state, each a case that shows it alone

    @property
    def note(self) -> str:
        """Return one line with figures."""
        if not self.errors:
            return f"carry: no step could be run: {self.ended}"
        told = sorted({step for step in (*_TOLD_STEPS, len(self.errors)) if step <= len(self.errors)})
        figures = ", ".join(f"{self.errors[step - 1]:.1e} at step {step}" for step in told)
        end = f"; ended there: {self.ended}" if self.ended else ""
        parts = [f"carry: each side on its own state, error over the output's largest value {figures}{end}"]
        if self.shaken:
            parts.append(f"one ulp of the state at every step moves torch by {self.shaken[-1]:.1e}")
        if self.apart_at:
            parts.append(f"beyond what is allowed from step {self.apart_at} on ({self.apart_kind})")
            if self.grows_unseen:
                parts.append("no single step shows it, only a run of steps does")
        return "; ".join(parts)

    @property
    def grows_unseen(self) -> bool:
        """Tell whether only a run of steps shows a difference, and one that rounding the state does not explain."""
        if not self.apart_at or self.single or len(self.shaken) < self.apart_at:
            return False
        later = slice(self.apart_at - 1, None)
        return max(self.errors[later]) > _MOST_SHAKEN * max(self.shaken[later])


def drift(
    carrying: Carrying,
    sides: Sides,
    seeds: Sequence[Case],
    look: Callable[[Case, Execution, Execution], bool],
    steps: int = DRIFT_STEPS,
    deadly: Collection[str] = (),
    kind_of: Callable[[Case, Execution, Execution], str] = lambda case, expected, actual: "",
) -> Drift:
    """Run the seeds step after step, each side on its own state.

    `look` is given each step from torch's state, and tells whether it differs. `kind_of` says of what kind two answers
    differ, "" where they agree. `deadly`: digests of cases that killed an earlier attempt; the sequence ends before one
    of them.
    """
    found, started = _Drifting(), time.monotonic()
    torch_case = ort_case = shaken_case = seeds[0]
    for step in range(steps):
        if step > 1 and time.monotonic() - started > _DRIFT_SECONDS:
            break
        if deadly and {torch_case.digest, ort_case.digest, shaken_case.digest} & set(deadly):
            return found.ended("a side died")
        expected, actual = sides.run(torch_case)
        if step:
            found.single += look(torch_case, expected, actual)
        if ort_case != torch_case:
            actual = sides.run(ort_case)[1]
        if not (expected.is_ok and actual.is_ok):
            side = actual if expected.is_ok else expected
            return found.ended(f"{side.side} {side.status.value}")
        shaken = sides.run_torch(shaken_case) if step else expected
        found.add(expected, actual, shaken, kind_of(torch_case, expected, actual))
        others = seeds[(step + 1) % len(seeds)]
        following = carrying.next_step(torch_case, expected, others)
        own = carrying.next_step(ort_case, actual, others)
        if following is None or own is None:
            return found.ended("the state leaves the contract")
        torch_case, ort_case = following, own
        moved = carrying.next_step(shaken_case, shaken, others)
        shaken_case = following if moved is None else carrying.shaken(moved, step)
    return found.ended("")


class _Drifting:
    """Gather the figures of a drift, step by step."""

    def __init__(self) -> None:
        self.single = 0
        self._errors: list[float] = []
        self._shaken: list[float] = []
        self._apart: tuple[int, str] = (0, "")

    def add(self, expected: Execution, actual: Execution, shaken: Execution, kind: str) -> None:
        """Add one step."""
        self._errors.append(_largest_error(expected, actual))
        self._shaken.append(_largest_error(expected, shaken) if shaken.is_ok else float("inf"))
        if kind and not self._apart[0]:
            self._apart = len(self._errors), kind

    def ended(self, why: str) -> Drift:
        """Return all of it."""
        return Drift(tuple(self._errors), why, tuple(self._shaken), *self._apart, self.single)


def _largest_error(expected: Execution, actual: Execution) -> float:
    """Return the largest error of any output over its largest magnitude; infinity where shapes differ."""
    found = [0.0]
    for one, other in zip(expected.outputs, actual.outputs, strict=False):
        if one.shape != other.shape:
            return float("inf")
        if one.size and one.dtype.kind in "biufV":
            a, b = one.astype(np.float64), other.astype(np.float64)
            with np.errstate(all="ignore"):
                error = np.max(np.abs(a - b), initial=0.0, where=np.isfinite(a) & np.isfinite(b))
                size = np.max(np.abs(a), initial=0.0, where=np.isfinite(a))
            found.append(float(error / size) if size else float(error))
    return max(found)
