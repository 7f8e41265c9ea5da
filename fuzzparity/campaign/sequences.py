"""Sequences: cases that go on from an earlier one, with the outputs that a target carries fed back into its inputs.

The idea: whoever ships a model that carries state runs it step after step, so states that only several steps reach must
be tried. In a campaign torch's own state goes into the next case of both sides, so that every step is judged from the
same inputs; in the gate each side also feeds back its own state, which shows how an error grows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.contract import Contract, TargetFacts
from fuzzparity.execution import Execution
from fuzzparity.generate.contract import Valid, breach
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.target import Target

DRIFT_STEPS = 50
_ONE_IN = 8  # cases that are followed
_DEEPEST = 8  # follow-ups of one case
_DRIFT_SECONDS = 10.0  # a slower model takes fewer steps
_TOLD_STEPS = (1, 10, DRIFT_STEPS)
LABEL = "carry"


class Sides(Protocol):
    """Run a case on both sides, torch first; announced, so that a death is told of that case."""

    def run(self, case: Case) -> tuple[Execution, Execution]:
        """Run one case."""


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

    @property
    def mutators(self) -> tuple[str, ...]:
        """Return the names under which lineage tells these steps."""
        return tuple(f"carry {output}->{name}" for output, name in self.carry.items())


def carrying_of(target: Target, facts: TargetFacts) -> Carrying:
    """Return what a target carries; nothing, most often."""
    return Carrying(target.carry, facts.outputs, facts.contract, target.valid)


def _as(array: Array, model: Array) -> Array:
    return array.astype(model.dtype) if is_float(array.dtype) and is_float(model.dtype) else array


class Sequences:
    """Choose which cases of a campaign are followed, and how far; the same for the same cases."""

    def __init__(self, carrying: Carrying, seeds: Sequence[Case], rng_seed: int) -> None:
        """Take turns with the seeds for the inputs that are not carried."""
        self._carrying = carrying
        self._seeds = tuple(seeds)
        self._rng_seed = rng_seed
        self._left = 0  # steps that the sequence under way still has
        self._next: tuple[Proposal, Case] | None = None

    @property
    def has_next(self) -> bool:
        """Tell whether a step waits to be run."""
        return self._next is not None

    def begin(self) -> None:
        """Drop what waits: a lease starts from nothing but its number."""
        self._next = None

    def note(self, proposal: Proposal, expected: Execution, actual: Execution) -> None:
        """Look at a case that ran, and let a step of it wait where it is to be followed."""
        if not self._carrying.carry or proposal.contract_breaking:
            return
        lineage = proposal.lineage
        chance = zlib.crc32(f"{self._rng_seed} {lineage.lease} {lineage.sequence}".encode())
        if proposal.label == LABEL:
            self._left -= 1
        else:
            self._left = 1 + (chance >> 3) % _DEEPEST if chance % _ONE_IN == 0 else 0
        if self._left <= 0 or not (expected.is_ok and actual.is_ok):
            return
        others = self._seeds[(chance >> 8) % len(self._seeds)] if chance >> 7 & 1 else None
        case = self._carrying.next_step(proposal.case, expected, others)
        if case is not None and case != proposal.case:
            self._next = proposal, case

    def take(self, generator: Generator) -> Proposal:
        """Return the step that waits, as the next proposal of the stream."""
        assert self._next is not None
        (parent, case), self._next = self._next, None
        return generator.following(parent, case, self._carrying.mutators, LABEL)


@dataclass(frozen=True)
class Drift:
    """Hold how far the sides drift apart when each feeds back its own state.

    `errors`: by step, the largest error of any output over that output's largest magnitude.
    """

    errors: tuple[float, ...]
    ended: str = ""  # why before the last step

    @property
    def note(self) -> str:
        """Return one line with figures."""
        if not self.errors:
            return f"carry: no step could be run: {self.ended}"
        told = sorted({step for step in (*_TOLD_STEPS, len(self.errors)) if step <= len(self.errors)})
        figures = ", ".join(f"{self.errors[step - 1]:.1e} at step {step}" for step in told)
        end = f"; ended there: {self.ended}" if self.ended else ""
        return f"carry: each side on its own state, error over the output's largest value {figures}{end}"


def drift(
    carrying: Carrying,
    sides: Sides,
    seeds: Sequence[Case],
    look: Callable[[Case, Execution, Execution], None],
    run_seconds: float,
    steps: int = DRIFT_STEPS,
    deadly: Collection[str] = (),
) -> Drift:
    """Run the seeds step after step, each side on its own state, and `look` at each step from torch's state.

    `deadly`: digests of cases that killed an earlier attempt; the sequence ends before one of them.
    """
    steps = min(steps, max(2, int(_DRIFT_SECONDS / max(4 * run_seconds, 1e-9))))
    errors: list[float] = []
    torch_case = ort_case = seeds[0]
    for step in range(steps):
        if torch_case.digest in deadly or ort_case.digest in deadly:
            return Drift(tuple(errors), "a side died")
        expected, actual = sides.run(torch_case)
        if step:
            look(torch_case, expected, actual)
        if ort_case != torch_case:
            actual = sides.run(ort_case)[1]
        if not (expected.is_ok and actual.is_ok):
            side = actual if expected.is_ok else expected
            return Drift(tuple(errors), f"{side.side} {side.status.value}")
        errors.append(_largest_error(expected, actual))
        others = seeds[(step + 1) % len(seeds)]
        following = carrying.next_step(torch_case, expected, others)
        own = carrying.next_step(ort_case, actual, others)
        if following is None or own is None:
            return Drift(tuple(errors), "the state leaves the contract")
        torch_case, ort_case = following, own
    return Drift(tuple(errors))


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
