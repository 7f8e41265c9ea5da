"""Values: passes that make values simpler, shapes as they are.

The idea: first everything at once, then runs, then equal values together (a tie stays a tie), then one by one; toward
0, 1, small integers, few digits. `Search` keeps what the total order calls simpler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from fuzzparity.case import Array, is_float
from fuzzparity.minimize.search import Search, remove_runs, smallest_run

Change = Callable[[Array], Array]
MANY = 48  # distinct values of one input beyond which they are not treated as groups


def simplify_tensors(search: Search, effort: int) -> None:
    """Fill whole inputs with 0 or 1, or round all of their values."""
    for name in search.best.inputs:
        for change in (_zeros, _ones, *ROUNDINGS):
            if search.propose({name: change(search.best.inputs[name])}):
                break


def zero_runs(search: Search, effort: int) -> None:
    """Set runs of values to zero."""
    for name in search.best.inputs:
        _change_runs(search, name, effort, _zeros)


def simplify_runs(search: Search, effort: int) -> None:
    """Set runs of values to one, or round them."""
    for name in search.best.inputs:
        for change in (_ones, *ROUNDINGS):
            _change_runs(search, name, effort, change)


def simplify_equal_values(search: Search, effort: int) -> None:
    """Exchange all occurrences of a value at once."""
    for name in search.best.inputs:
        values = distinct_values(search.best.inputs[name])
        if len(values) <= MANY * 4**effort:
            for value in values:
                _simplify_where(search, name, lambda array, value=value: _occurrences(array, value))  # type: ignore[misc]


def simplify_single_values(search: Search, effort: int) -> None:
    """Exchange values one by one; dear, so only at the last."""
    if effort < 2:
        return
    for name in search.best.inputs:
        for position in nonzero(search.best.inputs[name]):
            _simplify_where(search, name, lambda array, at=position: np.array([at]))  # type: ignore[misc]


def nonzero(array: Array) -> Array:
    """Return the flat indices of everything that is not +0."""
    flat = array.reshape(-1)
    wide = flat if flat.dtype.kind in "biuc" else flat.astype(np.float64)
    is_other = wide != 0
    if wide.dtype.kind == "f":
        is_other |= np.signbit(wide)
    return np.flatnonzero(is_other)


def distinct_values(array: Array) -> list[Any]:
    """Return the distinct values other than +0, in order of their first occurrence; NaN once."""
    found: dict[Any, Any] = {}
    for value in array.reshape(-1)[nonzero(array)].tolist():
        found.setdefault(repr(value), value)
        if len(found) > MANY * 16:
            break
    return list(found.values())


def simpler_values(value: Any, dtype: np.dtype[Any]) -> Iterator[Any]:
    """Yield values to try instead of one, simplest first; some may be no simpler."""
    if dtype.kind in "bc":
        yield from (0, 1)
        return
    yield from (0, 1, 2, -1, -2)
    if not is_float(dtype):
        yield -value
        yield from _powers(value)
        return
    if math.isnan(value):
        yield math.nan  # the usual payload and sign
        return
    if math.isinf(value):
        yield -value
        return
    yield -value
    yield from (float(np.trunc(value)), float(np.rint(value)), round(value, 1), round(value, 2))
    yield from (_digits(value, 1), _digits(value, 2), _digits(value, 3))


def _powers(value: int) -> Iterator[int]:
    """Yield the powers of two around an integer of any size, with its sign."""
    if value:
        for bits in (abs(value).bit_length() - 1, abs(value).bit_length()):
            yield (1 << bits) * (1 if value > 0 else -1)
            yield (1 << bits) - 1


def _digits(value: float, digits: int) -> float:
    """Round to a number of significant digits."""
    return float(f"{value:.{digits - 1}e}")


def _simplify_where(search: Search, name: str, positions: Callable[[Array], Array]) -> None:
    """Exchange the value at some positions (one value, by construction) for a simpler one."""
    array = search.best.inputs[name]
    at = positions(array)
    if not at.size:
        return
    value = array.reshape(-1)[at[0]].item() if array.dtype.kind != "V" else _plain(array, int(at[0]))
    for simple in simpler_values(value, array.dtype):
        if _propose_value(search, name, at, simple):
            value = simple
            break
    _bisect_integer(search, name, at, value)


def _bisect_integer(search: Search, name: str, at: Array, value: Any) -> None:
    """Bring a large integral value toward zero, as if every larger one would do."""
    if isinstance(value, (bool, complex)) or not math.isfinite(value) or abs(value) <= 2 or value != int(value):
        return
    sign, low, high = (1 if value > 0 else -1), 2, abs(int(value))
    while high - low > 1:
        middle = (low + high) // 2
        if _propose_value(search, name, at, sign * middle):
            high = middle
        else:
            low = middle


def _propose_value(search: Search, name: str, at: Array, value: Any) -> bool:
    array = search.best.inputs[name]
    if not holds(array.dtype, value):
        return False
    flat = array.reshape(-1).copy()
    flat[at] = value
    return search.propose({name: flat.reshape(array.shape)})


def holds(dtype: np.dtype[Any], value: Any) -> bool:
    """Tell whether a dtype can hold a value, roughly for floats."""
    if dtype.kind in "iu" or (dtype.kind == "V" and not is_float(dtype)):
        info = ml_dtypes.iinfo(dtype)
        return bool(int(info.min) <= value <= int(info.max))
    if is_float(dtype) and math.isfinite(value):
        return bool(abs(value) <= float(ml_dtypes.finfo(dtype).max))
    return True


def _change_runs(search: Search, name: str, effort: int, change: Change) -> None:
    """Apply a change to runs of the values other than zero."""
    array = search.best.inputs[name]
    # only where it changes something: all others would be the same case again
    different = np.flatnonzero(_bits_differ(array, change(array)))

    def attempt(start: int, stop: int) -> bool:
        present = search.best.inputs[name]
        flat, at = present.reshape(-1).copy(), different[start:stop]
        flat[at] = change(flat[at])
        return search.propose({name: flat.reshape(present.shape)})

    remove_runs(different.size, smallest_run(different.size, effort), attempt)


def _bits_differ(one: Array, other: Array) -> Array:
    width = one.dtype.itemsize
    rows = (np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(-1, width) for x in (one, other))
    return np.asarray(np.not_equal(*rows).any(axis=1))


def _occurrences(array: Array, value: Any) -> Array:
    flat = array.reshape(-1)
    wide = flat if flat.dtype.kind in "biuc" else flat.astype(np.float64)
    same = wide == value
    if isinstance(value, float):
        same = np.isnan(wide) if math.isnan(value) else same & (np.signbit(wide) == (math.copysign(1.0, value) < 0))
    return np.flatnonzero(same)


def _plain(array: Array, position: int) -> Any:
    """Return an element of an ml_dtypes array as a Python number."""
    element = array.reshape(-1)[position]
    return float(element) if is_float(array.dtype) else int(element)


def _zeros(array: Array) -> Array:
    return np.zeros(array.shape, array.dtype)


def _ones(array: Array) -> Array:
    return np.ones(array.shape, array.dtype)


def _rounded_to(decimals: int) -> Change:
    def change(array: Array) -> Array:
        if not is_float(array.dtype):
            return array
        with np.errstate(all="ignore"):
            rounded: Array = np.round(array.astype(np.float64), decimals).astype(array.dtype)
        return rounded

    return change


ROUNDINGS: tuple[Change, ...] = (_rounded_to(0), _rounded_to(1), _rounded_to(2))
