"""Figures: what stands beside a verdict's evidence once it is given, from the executions alone.

The idea: noise of a side against itself and the gap between two scores need no referee and decide nothing; they tell
a reader how firm the ground is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fuzzparity.case import Array, is_float
from fuzzparity.execution import Execution
from fuzzparity.oracle.compare import as_float64, as_integers, integer_distance, ulp_distance
from fuzzparity.oracle.question import difference
from fuzzparity.verdict import Evidence, Kind, Verdict


def with_figures(
    verdict: Verdict,
    outputs: Sequence[str],
    first: tuple[Execution, Execution],
    second: tuple[Execution, Execution] | None,
    seed_noise: Mapping[str, float],
) -> Verdict:
    """Return a verdict on one output with the run-to-run noise of both sides, that on the seeds, and the score gap.

    `first` and `second` are (torch, ORT) executions of one case; without a repetition there is no run-to-run noise.
    """
    name = verdict.output
    if verdict.evidence is None or name is None or name not in outputs:
        return verdict
    position = list(outputs).index(name)
    repeats = zip(first, second, strict=True) if second is not None else ()
    noise = {one.side: _largest(one, again, position) for one, again in repeats}
    expected, actual = first
    gap = score_gap(expected.outputs, actual.outputs, position) if verdict.kind is Kind.DECISION else None
    evidence: Evidence = replace(
        verdict.evidence,
        noise={side: size for side, size in noise.items() if size is not None},
        seed_noise=seed_noise.get(name),
        score_gap=gap,
    )
    return replace(verdict, evidence=evidence)


def _largest(one: Execution, again: Execution, position: int) -> float | None:
    """Return the largest difference between two runs in one output, None where they cannot be compared."""
    if position >= min(len(one.outputs), len(again.outputs)):
        return None
    x, y = one.outputs[position], again.outputs[position]
    if x.shape != y.shape or x.dtype != y.dtype:
        return None
    if not x.size:
        return 0.0
    if x.dtype.kind in "biu":
        return float(integer_distance(as_integers(x), as_integers(y)).max())
    e, a = as_float64(x).reshape(-1), as_float64(y).reshape(-1)
    apart = difference(e, a)
    apart[np.isnan(e) & np.isnan(a)] = 0.0
    return float(apart.max())


def score_gap(expected: Sequence[Array], actual: Sequence[Array], position: int) -> float | None:
    """Return the largest gap in ulps between the scores of the two choices where they differ; None without scores.

    Scores are a float output of which the choices plainly are the arg max, on both sides and everywhere, or the values
    beside the indices of a top-k: of the same shape, and in falling order.
    """
    torch, ort = expected[position], actual[position]
    if torch.dtype.kind not in "iu" or torch.shape != ort.shape or len(expected) != len(actual):
        return None
    for place, scores in enumerate(expected):
        other = actual[place]
        if not is_float(scores.dtype) or scores.shape != other.shape or scores.dtype != other.dtype or not scores.size:
            continue
        pairs = _of_argmax(torch, ort, scores, other)
        pairs = _of_top(torch, ort, scores, other) if pairs is None else pairs
        if pairs is not None:
            return max(ulp_distance(*pairs, index) for index in range(pairs[0].size)) if pairs[0].size else None
    return None


def _of_argmax(torch: Array, ort: Array, scores: Array, other: Array) -> tuple[Array, Array] | None:
    """Return torch's scores of both choices where these differ, if the choices are the arg max along some axis."""
    for axis in range(scores.ndim):
        for keeps in (False, True):
            if not (_is_argmax(torch, scores, axis, keeps) and _is_argmax(ort, other, axis, keeps)):
                continue
            chosen = [x if keeps else np.expand_dims(x, axis) for x in (torch, ort)]
            one, two = (np.take_along_axis(scores, x.astype(np.int64), axis) for x in chosen)
            apart = chosen[0] != chosen[1]
            return one[apart], two[apart]
    return None


def _is_argmax(choice: Array, scores: Array, axis: int, keeps: bool) -> bool:
    found = scores.argmax(axis, keepdims=keeps)
    return found.shape == choice.shape and bool((found == choice).all())


def _of_top(torch: Array, ort: Array, scores: Array, other: Array) -> tuple[Array, Array] | None:
    """Return both sides' scores where their indices differ, if the scores lie beside the indices and fall."""
    if scores.shape != torch.shape or scores.ndim == 0 or scores.shape[-1] < 2:
        return None
    if any(bool((np.diff(as_float64(x), axis=-1) > 0).any()) for x in (scores, other)):
        return None
    apart = torch != ort
    return scores[apart], other[apart]
