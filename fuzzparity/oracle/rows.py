"""Rows: the screen of a stack of rows, each row judged as if it had run alone, all of them in one pass.

The idea: the same precedence and figures as `compare`, along rows: the largest magnitude that a floor refers to is the
row's own. Rows whose numbers are all finite are done in a few vector operations; the others are looked at as a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, is_float
from fuzzparity.execution import Execution
from fuzzparity.oracle.compare import Allowance, as_integers, has_equal_bits, integer_distance, real_parts
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import relative_allowance
from fuzzparity.verdict import Kind

Floats = npt.NDArray[np.float64]
KINDS = (Kind.AGREE, Kind.NUMERIC, Kind.DECISION, Kind.NONFINITE)
_AGREE, _NUMERIC, _DECISION, _NONFINITE = range(4)


@dataclass(frozen=True, slots=True)
class RowComparison:
    """Hold one output's figures by row: places in `KINDS`, and error ratios, infinite where nothing is allowed."""

    kinds: npt.NDArray[np.int8]
    ratios: Floats


@dataclass(frozen=True, slots=True)
class RowLook:
    """Hold the figures of every output, and which rows are worth running alone."""

    comparisons: tuple[RowComparison, ...]
    suspicious: npt.NDArray[np.bool_]

    def key(self, row: int) -> str:
        """Return what a suspicious row shares with those that look like it: kinds, and error ratios by two decades."""
        parts = []
        for index, comparison in enumerate(self.comparisons):
            kind, ratio = KINDS[comparison.kinds[row]], float(comparison.ratios[row])
            if kind is not Kind.AGREE:
                parts.append(f"{index}:{kind.value}:{decades_of(ratio)}")
        return "|".join(parts)


def decades_of(ratio: float) -> str:
    """Return an error ratio's magnitude, two decades at a time."""
    return str(int(np.log10(max(ratio, 1.0)) // 2)) if np.isfinite(ratio) else "inf"


def by_row(output: Array, axis: int) -> Array:
    """Return an output as [rows, elements]; complex numbers by parts."""
    if output.dtype.kind == "c":
        output = real_parts(output)
    front = output if axis == 0 else np.moveaxis(output, axis, 0)
    return front.reshape(front.shape[0], -1)


def look_at_rows(
    oracle: Oracle, expected: Execution, actual: Execution, axes: Sequence[int], *, relative: bool = False
) -> RowLook | None:
    """Screen every row of two executions, `axes` saying where each output has its rows; None when a form differs.

    `relative` adds the look without an absolute bound, as for single cases.
    """
    comparisons = []
    suspicious: npt.NDArray[np.bool_] | None = None
    for name, e, a, axis in zip(oracle.outputs, expected.outputs, actual.outputs, axes, strict=True):
        if e.shape != a.shape or e.dtype != a.dtype:
            return None
        allowance = oracle.allowance(name, e)
        found = compare_rows(e, a, allowance, axis)
        if relative and not allowance.is_users and found.ratios.any() and e.dtype.kind not in "biu":
            found = _closer(found, compare_rows(e, a, relative_allowance(oracle.policy.working_dtype(e.dtype)), axis))
        comparisons.append(found)
        differs = found.kinds != _AGREE
        suspicious = differs if suspicious is None else suspicious | differs
    return None if suspicious is None else RowLook(tuple(comparisons), suspicious)


def _closer(screened: RowComparison, looked: RowComparison) -> RowComparison:
    """Add to a screen what only the relative look finds."""
    newly = (screened.kinds == _AGREE) & (looked.kinds == _NUMERIC)
    if not newly.any():
        return screened
    return RowComparison(np.where(newly, looked.kinds, screened.kinds), np.where(newly, looked.ratios, screened.ratios))


def compare_rows(expected: Array, actual: Array, allowance: Allowance, axis: int) -> RowComparison:
    """Compare an output of torch with ORT's row by row; both have one shape and dtype."""
    rows = expected.shape[axis]
    if expected.size == 0 or has_equal_bits(expected, actual):
        return RowComparison(np.zeros(rows, np.int8), np.zeros(rows))
    e, a = by_row(expected, axis), by_row(actual, axis)
    if e.dtype.kind == "f" or is_float(e.dtype):
        with np.errstate(all="ignore"):
            return _compare_floats(e, a, allowance)
    return _compare_exact(as_integers(e), as_integers(a), allowance)


def _compare_floats(e: Array, a: Array, allowance: Allowance) -> RowComparison:
    if e.dtype != np.float32:  # as in `compare`: differences of near float32 values are exact
        e, a = e.astype(np.float64), a.astype(np.float64)
    magnitude = np.abs(e)
    largest = magnitude.max(axis=1)
    ratio = np.abs(e - a)
    ratio /= _allowed(magnitude, largest, allowance)
    worst = ratio.max(axis=1).astype(np.float64)
    kinds = (worst > 1.0).astype(np.int8)  # _NUMERIC
    odd = ~(np.isfinite(worst) & np.isfinite(largest))
    if odd.any():
        special = _compare_specials(e[odd].astype(np.float64), a[odd].astype(np.float64), allowance)
        kinds[odd], worst[odd] = special.kinds, special.ratios
    return RowComparison(kinds, worst)


def _allowed(magnitude: Array, largest: Array, allowance: Allowance) -> Array:
    allowed: Array = magnitude * magnitude.dtype.type(allowance.rtol)
    least = np.maximum(allowance.atol, allowance.floor * largest) if allowance.floor else np.asarray([allowance.atol])
    allowed += least.astype(magnitude.dtype)[:, None]
    return allowed


def _compare_specials(e: Floats, a: Floats, allowance: Allowance) -> RowComparison:
    same = (e == a) | (np.isnan(e) & np.isnan(a))
    broken = (~same & ~(np.isfinite(e) & np.isfinite(a))).any(axis=1)
    magnitude = np.abs(e)
    largest = np.where(np.isfinite(magnitude), magnitude, 0.0).max(axis=1)
    error = np.where(same, 0.0, np.abs(e - a))
    ratio = np.where(error == 0.0, 0.0, error / _allowed(magnitude, largest, allowance)).max(axis=1)
    worst = np.where(broken, np.inf, ratio)
    return RowComparison(np.where(broken, _NONFINITE, ratio > 1.0).astype(np.int8), worst)


def _compare_exact(e: Array, a: Array, allowance: Allowance) -> RowComparison:
    wrong = e != a
    if not wrong.any():
        return RowComparison(np.zeros(len(e), np.int8), np.zeros(len(e)))
    if allowance.is_users:
        with np.errstate(all="ignore"):
            magnitude = np.abs(e.astype(np.float64))
            allowed = _allowed(magnitude, magnitude.max(axis=1), allowance)
            worst = np.where(wrong, integer_distance(e, a) / allowed, 0.0).max(axis=1)
    else:
        worst = np.where(wrong.any(axis=1), np.inf, 0.0)
    return RowComparison(np.where(worst > 1.0, _DECISION, _AGREE).astype(np.int8), worst)
