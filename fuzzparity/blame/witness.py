"""Witness: with which of the two sides a third answer agrees.

The idea: an arbiter computes the case in another way. Where torch and ORT differ, its answer is one side's, the other's
or neither's; where they agree it has nothing to say. What a side *did* (died, refused, answered) is compared first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, is_float
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.verdict import Kind

NEITHER = "neither"
NO_VOTE = ""
_NEAR = 0.1  # of the distance between the sides: closer to one of them is that side's answer
_DIFFERING = 0.5  # of the largest difference: only elements that differ about as much as the worst decide


def sides_with(kind: Kind, output: int | None, expected: Execution, actual: Execution, answer: Execution) -> str:
    """Return "torch", "ort", "neither", or "" where the answer is no vote.

    `output`: place of the output that the verdict is about, None for a verdict about the whole case.
    """
    if expected.is_ok and actual.is_ok:
        if not answer.is_ok:
            return NEITHER if answer.status is Status.REFUSED else NO_VOTE
        if output is None or not _have_output(output, expected, actual, answer):
            return _by_count(expected, actual, answer)
        return _by_output(kind, expected.outputs[output], actual.outputs[output], answer.outputs[output])
    return _by_status(expected, actual, answer)


def _have_output(output: int, *executions: Execution) -> bool:
    return all(output < len(execution.outputs) for execution in executions)


def _by_count(expected: Execution, actual: Execution, answer: Execution) -> str:
    counts = [len(execution.outputs) for execution in (expected, actual, answer)]
    return _one_of(counts[2] == counts[0], counts[2] == counts[1])


def _by_status(expected: Execution, actual: Execution, answer: Execution) -> str:
    """Compare what was done; a hang or a lack of memory of an arbiter is no vote unless a side did the same."""
    if answer.status in (Status.HANG, Status.OOM) and answer.status not in (expected.status, actual.status):
        return NO_VOTE
    if expected.is_ok == actual.is_ok:  # one refuses where the other dies
        return _one_of(answer.status is expected.status, answer.status is actual.status)
    return _one_of(answer.is_ok == expected.is_ok, answer.is_ok == actual.is_ok)


def _one_of(is_torchs: bool, is_orts: bool) -> str:
    if is_torchs == is_orts:
        return NEITHER if not is_torchs else NO_VOTE
    return TORCH if is_torchs else ORT


def _by_output(kind: Kind, torch: Array, ort: Array, answer: Array) -> str:
    if kind is Kind.DTYPE:
        return _one_of(answer.dtype == torch.dtype, answer.dtype == ort.dtype)
    if torch.shape != ort.shape:
        return _one_of(answer.shape == torch.shape, answer.shape == ort.shape)
    if answer.shape != torch.shape:
        return NEITHER
    if torch.dtype.kind in "biuSUO":
        return _by_equality(torch, ort, answer)
    return _by_distance(_wide(torch), _wide(ort), _wide(answer))


def _by_equality(torch: Array, ort: Array, answer: Array) -> str:
    at = torch != ort
    return _one_of(bool((answer[at] == torch[at]).all()), bool((answer[at] == ort[at]).all()))


def _wide(array: Array) -> npt.NDArray[np.float64]:
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], -1).astype(np.float64)
    return array.astype(np.float64) if is_float(array.dtype) or array.dtype.kind in "biu" else np.zeros(array.shape)


def _by_distance(torch: npt.NDArray[np.float64], ort: npt.NDArray[np.float64], answer: npt.NDArray[np.float64]) -> str:
    """Compare patterns of NaN and infinity where these differ, else distances where the sides differ most."""
    with np.errstate(all="ignore"):
        pattern_differs = ~_same_class(torch, ort)
        if pattern_differs.any():
            at = pattern_differs
            return _one_of(bool(_same_class(answer[at], torch[at]).all()), bool(_same_class(answer[at], ort[at]).all()))
        gap = np.abs(torch - ort)
        gap[~np.isfinite(gap)] = 0.0
        if not gap.size or gap.max() == 0.0:
            return NO_VOTE
        at = gap >= _DIFFERING * gap.max()
        near_torch = np.abs(answer - torch)[at] <= _NEAR * gap[at]
        near_ort = np.abs(answer - ort)[at] <= _NEAR * gap[at]
    return _one_of(bool(near_torch.all()), bool(near_ort.all()))


def _same_class(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Tell where both are finite, both NaN, or the same infinity."""
    both: npt.NDArray[np.bool_] = (
        (np.isfinite(one) & np.isfinite(other)) | (np.isnan(one) & np.isnan(other)) | ((one == other) & np.isinf(one))
    )
    return both
