"""Advice: what a verdict means for its reader and what to do next, a sentence or two.

The idea: advice follows from kind, grade and blame alone, and never claims more than they do.
"""

from __future__ import annotations

import math

from fuzzparity.verdict import RELATION, Comparison, Grade, Kind, Verdict

_BY_GRADE = {
    Grade.INHERENT: "Conditioning explains it: the exact answer moves as far under one-ulp changes. No part is wrong.",
    Grade.TIE: "A decision flipped within rounding of its threshold: do not depend on which way it falls.",
    Grade.CONTRACT: "The case is outside the target's contract: declare `ranges`, `valid` or sizes to keep it out.",
}
_BY_KIND = {
    Kind.CRASH: "The process dies: no exception handler can save a service from it. Guard the input before the model.",
    Kind.HANG: "No answer in time: bound the run from outside, or guard the input that drives the loop.",
    Kind.OOM: "Memory ran out on one side only: bound the shapes that are accepted.",
    Kind.ERROR_SPLIT: "One side refuses what the other answers: decide which of the two is meant.",
    Kind.LOAD_ERROR: "ORT cannot open the model: try another optimization level, or disable the pass it names.",
    Kind.EXPORT_ERROR: "The exporter fails on this module: the message names the operation it has no answer for.",
    Kind.SHAPE: "Sizes differ: look for arithmetic on sizes or a size that export burnt in.",
    Kind.DTYPE: "Types differ: consumers of the ONNX output read other bytes.",
    Kind.NONFINITE: "NaN or infinity on one side only: it spreads through everything that follows.",
    Kind.UNSTABLE: "The side differs from itself: no tolerance can be defended until that is understood.",
    Kind.BRANCH_SPLIT: "The sides took different branches: export may have kept one arm only.",
    Kind.SLOW: "Time is out of proportion on one side: compare the neighbouring shapes with `fuzzparity probe`.",
    Kind.LEAK: "Memory does not come back: see the arena settings of ORT's run options.",
}
_BY_BLAME = {
    "capture": "The captured program already gives ORT's answer: change the module's own code.",
    "export": "Capture is right and translation wrong: report it to the exporter, or rewrite the operation.",
    "onnx_file": "The given ONNX file means something else than the module: are these the same weights?",
    "optimizer": "ORT without this pass agrees with torch: put it into `Ort(disabled_optimizers=[...])` until fixed.",
    "kernel": "The kernel itself is wrong at every optimization level: report it to ONNX Runtime.",
    "torch": "torch is the side far from the exact answer: ORT may well be the better one here.",
    "precision": "The working precision explains it: compute this part in float32.",
}


def advice(verdict: Verdict) -> str:
    """Return what a verdict's reader can do, most specific first; empty when there is nothing to say."""
    if verdict.grade in _BY_GRADE:
        return _BY_GRADE[verdict.grade]
    told = _BY_BLAME.get(verdict.blame.partition(":")[0]) or _BY_KIND.get(verdict.kind, "")
    if verdict.kind in (Kind.NUMERIC, Kind.DECISION) and not told:
        told = "Beyond what arithmetic explains: find the guilty part before loosening a tolerance."
    return told


def known_by(verdict: Verdict) -> list[str]:
    """Return how blame is known, a line each: the reasoning, then what every arbiter said."""
    known = verdict.attribution
    if known is None:
        return []
    told = {"torch": "gives torch's answer", "ort": "gives ORT's answer", "neither": "gives another answer than both"}
    kept = {"torch": "torch keeps it, ORT does not", "ort": "ORT keeps it, torch does not"}
    lines = [known.how] if known.how else []
    for said in known.statements:
        vote = (kept if said.arbiter.startswith(RELATION) else told).get(said.sides_with, "no vote")
        why = f" ({said.said})" if said.said and said.said != "ok" else ""
        lines.append(f"{said.arbiter}: {vote}{why}")
    return lines


def born(verdict: Verdict) -> str:
    """Return where a deviation is born, in the graph and in the user's own code; empty where that is not known."""
    known = verdict.attribution
    if known is None or not known.place_how:
        return ""
    code = ", ".join(part for part in (known.module, known.source) if part)
    return known.place_how + (f"; from {code}" if code else "") + (" (a guess)" if known.is_guess else "")


def passing_tolerance(comparison: Comparison | None) -> str:
    """Return the smallest `atol` under which a numeric difference would pass, as text; empty when none would."""
    if comparison is None or comparison.kind is not Kind.NUMERIC or not 0 < comparison.max_abs < math.inf:
        return ""
    return f"passes from atol={round_up(comparison.max_abs):g} on"


def round_up(value: float) -> float:
    """Return a positive number rounded up to two digits, so that what it bounds stays bounded."""
    if not 0 < value < math.inf:
        return value
    scale: float = 10.0 ** (math.floor(math.log10(value)) - 1)
    if scale == 0.0:
        return value
    rounded = math.ceil(value / scale) * scale
    return rounded if rounded >= value else value
