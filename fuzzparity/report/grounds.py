"""Grounds: what a verdict rests on, a line for each figure.

The idea: one wording everywhere (explain, finding show, issue.md), and only what was measured is said; a figure that
could not be had is named with its reason.
"""

from __future__ import annotations

import math

from fuzzparity.oracle.headlines import side_name
from fuzzparity.oracle.weighing import OUT_OF_RANGE
from fuzzparity.verdict import Comparison, Evidence, Grade, Kind, Verdict

_READABLE = 1e6  # ratios beyond it are written with an exponent


def grounds(verdict: Verdict, *, is_private: bool = False) -> list[str]:
    """Return the evidence of a verdict as lines; `is_private` leaves out sizes that belong to real data."""
    lines = []
    if verdict.comparison is not None:
        lines += _of_comparison(verdict.comparison, is_private)
    return lines + evidence_grounds(verdict)


def evidence_grounds(verdict: Verdict) -> list[str]:
    """Return what the arbiters say of a verdict, without the sizes of its error."""
    return [] if verdict.evidence is None else _of_evidence(verdict, verdict.evidence)


def _of_comparison(found: Comparison, is_private: bool) -> list[str]:
    if found.kind is not Kind.NUMERIC:
        return []
    parts = [f"error ratio {found.error_ratio:.3g} (largest error over allowed error)", f"{found.ulp:,.0f} ulp there"]
    if not is_private:
        parts.append(f"largest error {found.max_abs:.3g}, {found.scaled:.3g} of the largest value")
    if found.rms_error:
        parts.append(f"{found.rms_error:.3g} of torch's root mean square")
    return ["; ".join(parts)]


def _of_evidence(verdict: Verdict, evidence: Evidence) -> list[str]:
    lines = [_distances(evidence)]
    lines += [f"the exact answer moves by {move:.3g} under {test}" for test, move in evidence.moves.items()]
    lines += _excess(verdict.grade, evidence)
    lines += _bound(evidence)
    lines += _tie(verdict, evidence)
    if evidence.condition is not None:
        lines.append(
            f"the exact answer moves {_times(evidence.condition)} as far as the inputs (relative to the largest)"
        )
    lines += _tolerance(verdict, evidence)
    lines += _noise(evidence)
    return lines + ([evidence.note] if evidence.note else [])


def _distances(evidence: Evidence) -> str:
    if evidence.torch_distance is None or evidence.ort_distance is None:
        return f"exact answer: {evidence.source}" + (f", {evidence.draws} draws" if evidence.draws else "")
    return (
        f"{evidence.source}: torch is {evidence.torch_distance:.3g} and ORT {evidence.ort_distance:.3g} from the exact "
        f"answer ({evidence.draws} draws)"
    )


def _excess(grade: Grade, evidence: Evidence) -> list[str]:
    """Say how many times a far side is beyond what arithmetic explains, or that it explains the difference."""
    if evidence.explained is None:
        return [f"beyond every move: {', '.join(evidence.far_sides)}"] if evidence.far_sides else []
    explained = f"{evidence.explained:.2g}, 8 moves and what assert_close allows"
    if evidence.note == OUT_OF_RANGE:
        return [f"arithmetic explains {explained}; what is beyond that, the range of the precision: {evidence.note}"]
    if grade is Grade.INHERENT:
        return [f"arithmetic explains {explained}: both sides lie within it"]
    return [
        f"{side_name(side)} is {_times(evidence.excess[side])} farther from exact than arithmetic explains "
        f"({explained})"
        for side in evidence.far_sides
        if side in evidence.excess
    ]


def _bound(evidence: Evidence) -> list[str]:
    if evidence.rounding_bound is None:
        unknown = evidence.rounding_unknown
        return [f"no bound on roundings in any order: not known from {unknown} on"] if unknown else []
    distances = {"torch": evidence.torch_distance or 0.0, "ort": evidence.ort_distance or 0.0}
    beyond = [side for side, size in distances.items() if size > evidence.rounding_bound]
    told = f"beyond even that: {_sides(beyond)}" if beyond else "both sides lie within it"
    return [f"roundings in any order add up to {evidence.rounding_bound:.2g} at most there; {told}"]


def _tie(verdict: Verdict, evidence: Evidence) -> list[str]:
    lines = []
    distance = evidence.tie_distance
    if distance is not None and math.isinf(distance):
        lines.append(
            "nothing tried up to 8 times one ulp, eps of the maximum or a rounding makes the exact answer the other one"
        )
    elif distance == 0.0:
        lines.append("the exact answer lies on the threshold itself: next to nothing makes it the other one")
    elif distance is not None:
        lines.append(
            f"the exact answer becomes the other one at {distance:.2g} times {evidence.tie_test} (8 is the limit)"
        )
    if evidence.score_gap is not None:
        lines.append(f"the scores of the two choices lie at most {evidence.score_gap:,.0f} ulp apart")
    return lines


def _tolerance(verdict: Verdict, evidence: Evidence) -> list[str]:
    """Return the line to paste, with its reason."""
    text = defensible(verdict.output, evidence)
    return [f"can be defended here: {text}, since it covers 8 moves of the exact answer on this data"] if text else []


def defensible(output: str | None, evidence: Evidence | None) -> str:
    """Return the tolerance that can be defended as the text that declares it, "" where there is none to defend."""
    if evidence is None or output is None or evidence.defensible_atol is None or evidence.defensible_rtol is None:
        return ""
    kind, size = ("rtol", evidence.defensible_rtol) if evidence.defensible_rtol else ("atol", evidence.defensible_atol)
    return f'tolerances={{"{output}": Tolerance({kind}={size:g})}}'


def _noise(evidence: Evidence) -> list[str]:
    lines = []
    if evidence.noise:
        told = ", ".join(
            f"{side_name(side)} {'gives the same bits' if not size else f'moves by {size:.2g}'}"
            for side, size in evidence.noise.items()
        )
        lines.append(f"run again on this input: {told}")
    if evidence.seed_noise is not None:
        lines.append(f"on the seeds the sides differ by {evidence.seed_noise:.2g} of the largest value")
    return lines


def _sides(sides: tuple[str, ...] | list[str]) -> str:
    return " and ".join(side_name(side) for side in sides)


def _times(ratio: float) -> str:
    text = f"{ratio:,.0f}" if 100 <= ratio < _READABLE else f"{ratio:.2g}"
    return f"{text} times"
