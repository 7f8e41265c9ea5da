"""Compare one output of two executions: what the numbers say, before anybody judges.

The idea: one precedence (shape, dtype, non-finite pattern, integers as integers, then numbers) and one figure, the
error ratio. NaN equals NaN and an infinity equals itself, on purpose; -0.0 equals 0.0. Equal bits leave early.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, is_float
from fuzzparity.verdict import Comparison, Kind

FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Allowance:
    """Allow an error of `atol + rtol * |expected|`; `atol` is at least `floor` times the largest finite |expected|.

    `source` says where the numbers come from; `is_users` that the user set them, so that nothing overrides them.
    """

    rtol: float
    atol: float
    floor: float = 0.0
    source: str = ""
    is_users: bool = False

    def at(self, magnitude: FloatArray, largest: float) -> FloatArray:
        """Return the allowed error where |expected| is `magnitude`, in a tensor whose largest is `largest`."""
        allowed = magnitude * self.rtol
        allowed += max(self.atol, self.floor * largest)
        return allowed


def compare(expected: Array, actual: Array, allowance: Allowance) -> Comparison:
    """Compare an output of torch (`expected`) with ORT's; the error ratio is infinite where nothing is allowed."""
    if expected.shape != actual.shape:
        return _unlike(Kind.SHAPE, f"shape {list(expected.shape)} / {list(actual.shape)}")
    if expected.dtype != actual.dtype:
        return _unlike(Kind.DTYPE, f"dtype {expected.dtype.name} / {actual.dtype.name}")
    if has_equal_bits(expected, actual):
        return _agreement(expected.size)
    if expected.dtype.kind in "fc" or is_float(expected.dtype):
        with np.errstate(all="ignore"):
            return _compare_floats(expected, actual, allowance)
    return _compare_exact(expected, actual, allowance)


def has_equal_bits(expected: Array, actual: Array) -> bool:
    """Tell whether two arrays of one shape and dtype hold the same bytes."""
    if expected.nbytes > 2048 and expected.nbytes % 8 == 0 and _is_plain(expected) and _is_plain(actual):
        return bool(np.array_equal(expected.reshape(-1).view(np.uint64), actual.reshape(-1).view(np.uint64)))
    return expected.tobytes() == actual.tobytes()


def real_parts(array: Array) -> Array:
    """Return complex numbers as real ones, (real, imaginary) along a new last axis; other arrays as they are."""
    if array.dtype.kind != "c":
        return array
    parts = np.ascontiguousarray(array).view(array.real.dtype)
    return parts.reshape(*array.shape, 2)


def as_float64(array: Array) -> npt.NDArray[np.float64]:
    """Return an output in float64, complex numbers by parts."""
    wide: npt.NDArray[np.float64] = real_parts(array).astype(np.float64)
    return wide


def as_integers(array: Array) -> Array:
    """Return booleans and narrow ml_dtypes integers in a dtype that numpy calculates with; others as they are."""
    return array.astype(np.int64) if array.dtype.kind in "bV" else array


def largest_finite(magnitude: FloatArray) -> float:
    """Return the largest finite value of |tensor|, 0.0 when there is none."""
    finite = magnitude[np.isfinite(magnitude)]
    return float(finite.max()) if finite.size else 0.0


def root_mean_square(array: Array) -> float:
    """Return the root mean square of the finite values of a real tensor, the smallest float where all are zero."""
    wide = array.astype(np.float64)
    largest = largest_finite(np.abs(wide))
    if largest == 0.0:
        return float(np.finfo(np.float64).tiny)
    scaled = wide[np.isfinite(wide)] / largest  # squares neither overflow nor vanish
    return largest * math.sqrt(float((scaled * scaled).mean()))


def ulp_distance(expected: Array, actual: Array, index: int) -> float:
    """Return how many values of their dtype lie between two floats at a flat index; NaN when one is not finite."""
    e, a = (x.reshape(-1)[index : index + 1] for x in (expected, actual))
    if not (np.isfinite(e.astype(np.float64)).all() and np.isfinite(a.astype(np.float64)).all()):
        return math.nan
    bits = 8 * e.dtype.itemsize
    return float(abs(_ordinal(e, bits) - _ordinal(a, bits)))


def _ordinal(single: Array, bits: int) -> int:
    """Number the floats of a dtype in their order, both zeros at 0."""
    word = int(single.view(f"u{bits // 8}")[0])
    sign = 1 << (bits - 1)
    return -(word - sign) if word & sign else word


def _is_plain(array: Array) -> bool:
    return array.flags.c_contiguous and array.dtype.kind != "O"


@lru_cache(maxsize=1024)
def _agreement(size: int) -> Comparison:
    return Comparison(Kind.AGREE, compared=size)


def _unlike(kind: Kind, detail: str) -> Comparison:
    return Comparison(kind, error_ratio=math.inf, detail=detail)


def _compare_floats(expected: Array, actual: Array, allowance: Allowance) -> Comparison:
    """Compare in one pass; anything that is not finite in it is sorted out by `_compare_with_specials`."""
    expected, actual = real_parts(expected), real_parts(actual)
    e, a = expected.reshape(-1), actual.reshape(-1)
    if (
        e.dtype != np.float32
    ):  # float32 stays: differences of near values are exact, and half the memory is half the time
        e, a = e.astype(np.float64), a.astype(np.float64)
    magnitude = np.abs(e)
    largest = float(magnitude[magnitude.argmax()])  # NaN when there is one; quicker than max() on small arrays
    if math.isfinite(largest):
        error = e - a
        np.abs(error, out=error)
        allowed = allowance.at(magnitude, largest)
        ratio = np.divide(error, allowed, out=allowed)
        index = int(ratio.argmax())  # of the first NaN when there is one
        if math.isfinite(ratio[index]):
            return _numeric(expected, actual, error, ratio, index, largest)
    return _compare_with_specials(expected, actual, allowance)


def _compare_with_specials(expected: Array, actual: Array, allowance: Allowance) -> Comparison:
    e, a = expected.reshape(-1).astype(np.float64), actual.reshape(-1).astype(np.float64)
    same = (e == a) | (np.isnan(e) & np.isnan(a))
    broken = ~same & ~(np.isfinite(e) & np.isfinite(a))
    if broken.any():
        return _nonfinite(e, a, broken, expected.shape)
    magnitude = np.abs(e)
    largest = largest_finite(magnitude)
    error = np.where(same, 0.0, np.abs(e - a))
    ratio = np.where(error == 0.0, 0.0, error / allowance.at(magnitude, largest))
    return _numeric(expected, actual, error, ratio, int(ratio.argmax()), largest)


def _numeric(
    expected: Array, actual: Array, error: FloatArray, ratio: FloatArray, index: int, largest: float
) -> Comparison:
    """Make the record of finite pairs; `error` and `ratio` are flat, as `index` is."""
    worst = float(ratio[index])
    max_abs = float(error[error.argmax()])
    differs = worst > 1.0
    return Comparison(
        kind=Kind.NUMERIC if differs else Kind.AGREE,
        error_ratio=worst,
        max_abs=max_abs,
        scaled=max_abs / largest if largest else (math.inf if max_abs else 0.0),
        ulp=ulp_distance(expected, actual, index) if differs else 0.0,
        rms_error=max_abs / root_mean_square(expected) if differs else 0.0,
        index=place(index, expected.shape),
        expected_at=float(expected.flat[index]),
        actual_at=float(actual.flat[index]),
        differing=int((ratio > 1.0).sum()) if differs else 0,
        compared=expected.size,
    )


def _nonfinite(e: FloatArray, a: FloatArray, broken: npt.NDArray[np.bool_], shape: tuple[int, ...]) -> Comparison:
    index = int(broken.argmax())
    counts = [f"NaN {int(np.isnan(e).sum())} / {int(np.isnan(a).sum())}"]
    if np.isinf(e).any() or np.isinf(a).any():
        counts.append(f"Inf {int(np.isinf(e).sum())} / {int(np.isinf(a).sum())}")
    return Comparison(
        kind=Kind.NONFINITE,
        error_ratio=math.inf,
        max_abs=math.inf,
        scaled=math.inf,
        ulp=math.nan,
        index=place(index, shape),
        expected_at=float(e[index]),
        actual_at=float(a[index]),
        differing=int(broken.sum()),
        compared=e.size,
        detail=", ".join(counts),
    )


def _compare_exact(expected: Array, actual: Array, allowance: Allowance) -> Comparison:
    """Compare integers and booleans as integers; only a user's tolerance allows them to differ."""
    e, a = as_integers(expected), as_integers(actual)
    wrong = e != a
    if not wrong.any():
        return _agreement(expected.size)
    distance = integer_distance(e, a)
    if allowance.is_users:
        with np.errstate(all="ignore"):
            magnitude = np.abs(e.astype(np.float64))
            ratio = np.where(wrong, distance / allowance.at(magnitude, largest_finite(magnitude)), 0.0)
        wrong = ratio > 1.0
        index, worst = int(ratio.argmax()), float(ratio.max())
    else:
        index, worst = int(distance.argmax()), math.inf
    largest = float(np.abs(e.astype(np.float64)).max())
    is_bool = expected.dtype.kind == "b"
    return Comparison(
        kind=Kind.DECISION if worst > 1.0 else Kind.AGREE,
        error_ratio=worst,
        max_abs=float(distance.max()),
        scaled=float(distance.max()) / largest if largest else math.inf,
        index=place(index, expected.shape),
        expected_at=bool(e.flat[index]) if is_bool else int(e.flat[index]),
        actual_at=bool(a.flat[index]) if is_bool else int(a.flat[index]),
        differing=int(wrong.sum()),
        compared=expected.size,
    )


def integer_distance(e: Array, a: Array) -> Array:
    """Return |e - a| of integers, exact over the whole range of their dtype: unsigned, so that nothing overflows."""
    unsigned = np.dtype(f"u{e.dtype.itemsize}")
    up, down = e.astype(unsigned) - a.astype(unsigned), a.astype(unsigned) - e.astype(unsigned)
    distance: Array = np.where(e > a, up, down)
    return distance


def place(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a flat index as a tuple of plain integers; np.unravel_index, but quick for one index."""
    found: list[int] = []
    for size in reversed(shape):
        index, position = divmod(index, size)
        found.append(position)
    return tuple(reversed(found))
