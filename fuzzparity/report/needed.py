"""Needed: the smallest tolerance under which a numeric difference agrees, absolute or relative alone.

The idea: "which tolerance can I defend" begins with "which one would do", so it is computed from the recorded answers
and checked against the comparison itself (Polygraphy calls it the minimum tolerance required).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fuzzparity.case import Array, is_float
from fuzzparity.corpus.records import Payload
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import Execution
from fuzzparity.oracle.compare import Allowance, as_float64, compare
from fuzzparity.oracle.regions import region_of
from fuzzparity.report.advice import round_up
from fuzzparity.verdict import Kind, Verdict

_MOST_RTOL = 1.0  # from there on an answer of 0 passes for anything
_MOST_STEPS = 4  # of the last digit shown: the comparison itself rounds in float32, by much less than one of them


@dataclass(frozen=True, slots=True)
class Needed:
    """Hold the smallest tolerances, rounded up to two digits; None where no tolerance of that sort does alone."""

    atol: float | None
    rtol: float | None

    @property
    def text(self) -> str:
        """Return the tolerances as a sentence without a subject, "" when none does."""
        parts = [] if self.atol is None else [f"atol {self.atol:g} (rtol 0)"]
        parts += [] if self.rtol is None else [f"rtol {self.rtol:g} (atol 0)"]
        return f"agrees from {' or '.join(parts)} on" if parts else ""


def needed(expected: Array, actual: Array) -> Needed | None:
    """Return what two float outputs of one shape need to agree; None where no tolerance can make them agree."""
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return None
    if not (is_float(expected.dtype) or expected.dtype.kind == "c") or not expected.size:
        return None
    e, a = as_float64(expected), as_float64(actual)
    same = (e == a) | (np.isnan(e) & np.isnan(a))
    if not (np.isfinite(e) & np.isfinite(a) | same).all():
        return None
    with np.errstate(all="ignore"):
        error = np.where(same, 0.0, np.abs(e - a))
        relative = np.where(error == 0.0, 0.0, error / np.abs(e))
    atol = _smallest(float(error.max()), lambda value: _agrees(expected, actual, Allowance(0.0, value, is_users=True)))
    rtol = None
    if (largest := float(relative.max())) < _MOST_RTOL:
        rtol = _smallest(largest, lambda value: _agrees(expected, actual, Allowance(value, 0.0, is_users=True)))
    return Needed(atol, rtol)


def _smallest(value: float, does: Callable[[float], bool]) -> float | None:
    """Return a bound rounded up to two digits, a step of the second one more where the comparison rounds down."""
    if not math.isfinite(value):
        return None
    found = round_up(value)
    for _ in range(_MOST_STEPS):
        if does(found):
            return found
        found = round_up(math.nextafter(found, math.inf))
    return None


def _agrees(expected: Array, actual: Array, allowance: Allowance) -> bool:
    with np.errstate(all="ignore"):
        return compare(expected, actual, allowance).kind is Kind.AGREE


def needed_for(
    verdict: Verdict, outputs: Sequence[str], expected: Execution | None, actual: Execution | None
) -> Needed | None:
    """Return what the output of a numeric verdict needs to agree, from the executions; None where that says nothing."""
    if verdict.kind is not Kind.NUMERIC or expected is None or actual is None:
        return None
    place = next((place for place, name in enumerate(outputs) if name == verdict.output), len(outputs))
    if place >= min(len(expected.outputs), len(actual.outputs)):
        return None
    e, a = expected.outputs[place], actual.outputs[place]
    if verdict.comparison is not None and verdict.comparison.region and e.shape == a.shape:
        try:
            region = region_of(verdict.comparison.region, outputs)
            e, a = (e[region.parts], a[region.parts]) if region is not None else (e, a)
        except (InvalidTarget, IndexError):
            return None
    return needed(np.asarray(e), np.asarray(a))


def needed_of(payload: Payload) -> Needed | None:
    """Return what the output of a stored finding needs to agree."""
    outputs = payload.facts.outputs if payload.facts is not None else ()
    return needed_for(payload.finding.verdict, outputs, payload.expected, payload.actual)
