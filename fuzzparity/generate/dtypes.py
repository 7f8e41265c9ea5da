"""Dtypes: what a generator has to know of each element type, ml_dtypes included.

The idea: values are made in a working type that numpy computes well (float32 or float64, int64, bool) and cast once at
the end, saturating for integers, so that a mutator never thinks about wrapping.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from fuzzparity.case import Array, is_float


@dataclass(frozen=True, slots=True)
class Traits:
    """Describe an element type. `family`: "float", "int", "bool", "complex", or "opaque" (never mutated)."""

    dtype: np.dtype[Any]
    family: str
    working: np.dtype[Any]
    low: float | int = 0
    high: float | int = 0
    eps: float = 0.0
    tiny: float = 0.0  # smallest normal
    subnormal: float = 0.0  # smallest positive


@cache
def traits_of(name: str) -> Traits:
    """Return the traits of a dtype by its numpy name."""
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return Traits(dtype, "bool", dtype, 0, 1)
    if dtype.kind == "c":
        real = traits_of("float32" if dtype.itemsize == 8 else "float64")
        return Traits(dtype, "complex", real.dtype, real.low, real.high, real.eps, real.tiny, real.subnormal)
    if is_float(dtype):
        limits = ml_dtypes.finfo(dtype) if dtype.kind == "V" or dtype.name.startswith("float8") else np.finfo(dtype)
        working = np.dtype(np.float64 if dtype.itemsize >= 8 else np.float32)
        high, low = float(limits.max), float(limits.min)
        return Traits(
            dtype, "float", working, low, high, float(limits.eps), float(limits.tiny), float(limits.smallest_subnormal)
        )
    if dtype.kind in "iu" or (dtype.kind == "V" and "int" in dtype.name):
        bounds = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.iinfo(dtype)
        return Traits(dtype, "int", np.dtype(np.int64), int(bounds.min), int(bounds.max))
    return Traits(dtype, "opaque", dtype)


def cast(values: Any, traits: Traits) -> Array:
    """Return values as a C-contiguous array of the dtype; integers saturate, floats overflow to infinity.

    0-d stays 0-d. The caller has silenced numpy's floating-point warnings.
    """
    array = np.asarray(values)
    if array.dtype != traits.dtype:
        # numpy turns 0-d arrays into scalars on the way
        array = np.asarray(_as_integers(array, traits) if traits.family == "int" else array.astype(traits.dtype))
    return array if array.flags.c_contiguous else array.copy(order="C")


def _as_integers(array: Array, traits: Traits) -> Array:
    low, high = int(traits.low), int(traits.high)
    if array.dtype.kind == "f":
        top = float(high)
        top = top if top <= high else float(np.nextafter(top, 0.0))  # float(2**63 - 1) is 2**63, which would wrap
        array = np.clip(np.nan_to_num(array.astype(np.float64), nan=0.0), float(low), top)
        return array.astype(traits.dtype if traits.dtype.kind in "iu" else np.int64).astype(traits.dtype)
    if array.dtype.kind in "iu" and traits.dtype.kind in "iu" and np.can_cast(array.dtype, traits.dtype, "safe"):
        return array.astype(traits.dtype)
    if array.dtype == np.int64:
        # uint64's upper half has no int64 working value; fills write it directly
        return np.minimum(np.maximum(array, low), min(high, 2**63 - 1)).astype(traits.dtype)
    return np.clip(array.astype(np.int64), low, min(high, 2**63 - 1)).astype(traits.dtype)


def filled(shape: tuple[int, ...], value: float | int, traits: Traits) -> Array:
    """Return an array of one value, saturated to the dtype (exact for every Python int in range)."""
    if traits.family == "int":
        value = min(max(int(value), int(traits.low)), int(traits.high))
    return np.full(shape, value, traits.dtype)


@cache
def integer_ladder(low: int, high: int) -> tuple[int, ...]:
    """Return the integers between two bounds on which engines differ: small ones, powers of two, ends, past 2**53."""
    rungs = [0, 1, -1, 2, -2, 3, -3, 5, -5, 7, -7, 10, 100, low, high, low + 1, high - 1]
    for bits in (7, 8, 15, 16, 24, 31, 32, 40, 53, 60, 62, 63):
        rungs += [2**bits, 2**bits - 1, 2**bits + 1, -(2**bits), -(2**bits) - 1]
    return tuple(dict.fromkeys(rung for rung in rungs if low <= rung <= high))


WRONG_DTYPES: dict[str, tuple[str, ...]] = {  # what users pass by mistake, most common first
    "float32": ("float64", "float16", "int64", "int32", "bool"),
    "float64": ("float32", "int64"),
    "float16": ("float32", "float64"),
    "int64": ("int32", "float32", "bool"),
    "int32": ("int64", "float32", "bool"),
    "bool": ("int64", "uint8", "float32"),
    "uint8": ("float32", "int64", "int8"),
}


def wrong_dtypes(name: str) -> tuple[str, ...]:
    """Return dtypes that a caller may confuse with this one."""
    return WRONG_DTYPES.get(name, ("float32", "int64") if name not in ("float32", "int64") else ("float64",))
