"""Headlines: one true sentence for each verdict, with its figures.

The idea: a reader who sees nothing else must not be misled, so a sentence says only what was measured. torch comes
first wherever two values stand beside each other.
"""

from __future__ import annotations

import math
import signal

from fuzzparity.execution import Execution, Status
from fuzzparity.oracle.question import Answer
from fuzzparity.oracle.weighing import ELSEWHERE, OUT_OF_RANGE, SOURCE
from fuzzparity.verdict import Comparison, Evidence, Grade, Kind

NAMES = {"torch": "torch", "ort": "ORT"}


def side_name(side: str) -> str:
    """Return how a side is called in a sentence."""
    return NAMES.get(side, side)


def death_site(execution: Execution) -> str:
    """Return signal or exit code and the phase: "SIGSEGV run", "exit 3 load"."""
    if execution.signal is not None:
        return f"{_signal_name(execution.signal)} {execution.phase}"
    code = "unknown exit" if execution.exit_code is None else f"exit {execution.exit_code}"
    return f"{code} {execution.phase}"


def of_death(execution: Execution, other: Execution) -> str:
    """Say how a side died, and what the other one did."""
    how = death_site(execution).removesuffix(f" {execution.phase}")
    when = " while loading" if execution.phase == "load" else ""
    return f"{side_name(execution.side)} dies with {how}{when}; {side_name(other.side)} {_did(other)}"


def of_hang(execution: Execution, other: Execution) -> str:
    """Say that a side had to be stopped."""
    after = f" after {execution.seconds:.3g} s" if execution.seconds else ""
    return f"{side_name(execution.side)} does not answer{after}; {side_name(other.side)} {_did(other)}"


def of_memory(execution: Execution, other: Execution) -> str:
    """Say that a side ran out of memory."""
    return f"{side_name(execution.side)} runs out of memory; {side_name(other.side)} {_did(other)}"


def of_refusal(execution: Execution, other: Execution) -> str:
    """Say that a side refuses and the other does not."""
    said = _refusal_text(execution)
    if execution.phase == "load":
        return f"{side_name(execution.side)} does not load the model: {said}"
    return f"{side_name(execution.side)} refuses what {side_name(other.side)} answers: {said}"


def of_comparison(output: str, comparison: Comparison, answer: Answer | None) -> str:
    """Say how an output differs, and what the evidence makes of it."""
    if comparison.kind in (Kind.SHAPE, Kind.DTYPE):
        said = f"{output}: {comparison.detail} (torch / ORT)"
    elif comparison.kind is Kind.NONFINITE:
        pair = f"torch {_value(comparison.expected_at)}, ORT {_value(comparison.actual_at)}"
        said = f"{output}: {pair} at {_place(comparison)} ({comparison.detail}, torch / ORT)"
    elif comparison.kind in (Kind.DECISION, Kind.NUMERIC) and comparison.detail:
        said = f"{output}: {comparison.detail}"
    elif comparison.kind is Kind.DECISION:
        pair = f"torch {comparison.expected_at}, ORT {comparison.actual_at}"
        said = f"{output}: {pair} at {_place(comparison)} ({comparison.differing} of {comparison.compared} differ)"
    else:
        said = _numeric(output, comparison)
    tail = _tail(answer) if answer is not None else ""
    return f"{said}; {tail}" if tail else said


def _numeric(output: str, comparison: Comparison) -> str:
    e, a = comparison.expected_at, comparison.actual_at
    if not isinstance(e, (int, float)) or not isinstance(a, (int, float)):
        return f"{output}: torch and ORT differ"
    difference = abs(e - a)
    ratio = comparison.error_ratio
    allowed = difference / ratio if 0.0 < ratio < math.inf else 0.0
    pair = f"torch {_value(e)}, ORT {_value(a)}"
    return f"{output}: ORT is {difference:.2g} off torch at {_place(comparison)} ({pair}; allowed {allowed:.2g})"


def _tail(answer: Answer) -> str:
    """Say what the evidence is."""
    evidence = answer.evidence
    if evidence.source.startswith("missing"):
        return f"no exact answer ({evidence.source.removeprefix('missing: ')}): {evidence.note}"
    if evidence.source.startswith("none"):
        return ""
    if answer.grade is Grade.TIE:
        return evidence.note if "order" in evidence.note else "both answers are those of inputs within rounding"
    if answer.grade is Grade.INHERENT:
        return _inherent(evidence)
    if len(evidence.far_sides) == 1:
        right = "ort" if evidence.far_sides == ("torch",) else "torch"
        return f"{_exact(evidence)} sides with {side_name(right)}{_distances(evidence)}"
    if len(evidence.far_sides) == 2:
        return f"{_exact(evidence)} sides with neither{_distances(evidence)}"
    return evidence.note


def _exact(evidence: Evidence) -> str:
    return "the exact answer" if evidence.source == SOURCE else f"the {evidence.source}"


def _inherent(evidence: Evidence) -> str:
    if evidence.note == OUT_OF_RANGE:  # which explains what rounding does not
        off = (evidence.torch_distance, evidence.ort_distance)
        distances = f"; torch is {off[0]:.2g} off the exact answer, ORT {off[1]:.2g}" if None not in off else ""
        return evidence.note + distances
    if not evidence.moves:
        return evidence.note
    return f"rounding alone moves the exact answer by {max(evidence.moves.values()):.2g}{_distances(evidence)}"


def _distances(evidence: Evidence) -> str:
    if evidence.torch_distance is None or evidence.ort_distance is None or evidence.note.startswith(ELSEWHERE):
        return ""
    return f" (torch {evidence.torch_distance:.2g} off it, ORT {evidence.ort_distance:.2g})"


def _did(execution: Execution) -> str:
    if execution.status is Status.REFUSED:
        return f"refuses ({_refusal_text(execution)})"
    return {
        Status.OK: "answers",
        Status.CRASHED: f"dies too ({death_site(execution)})",
        Status.HANG: "does not answer either",
        Status.OOM: "runs out of memory",
    }[execution.status]


def _refusal_text(execution: Execution) -> str:
    refusal = execution.refusal
    if refusal is None:
        return "without a message"
    message = refusal.text or refusal.message
    message = message if len(message) <= 200 else f"{message[:197]}..."
    return f"{refusal.error_class}: {message}" if message else refusal.error_class


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(abs(number)).name
    except ValueError:
        return f"signal {abs(number)}"


def _place(comparison: Comparison) -> str:
    return str(list(comparison.index or ()))


def _value(value: float | int | bool | str | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
