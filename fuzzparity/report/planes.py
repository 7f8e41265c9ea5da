"""Planes: choose what of two outputs a picture shows, and thin it out without losing the fault.

The idea: a picture has two axes at most. They are taken where a reader looks for them (height and width of an image,
steps and features of a sequence), at the place of the worst element; where elements must be left out, the one that
differs most stands for its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array

Values = npt.NDArray[np.float64]

MOST_CELLS = 96  # along one axis of a map: beyond, a cell of a 260 px panel would be smaller than 3 px
MOST_POINTS = 320  # of a profile: 2 px each at 640 px
FEW_VALUES = 12  # are written out as a table
_LEAST_MAP = 4  # a map with fewer rows or columns reads worse than a profile
_MOST_CHANNELS = 4  # a last axis this short after two longer ones is that of colours


@dataclass(frozen=True, slots=True)
class Plane:
    """Hold what is shown: torch, ORT and their difference, all of one shape [rows, columns], or [points] of a profile.

    `error` is |ORT - torch|: 0 where both are NaN or the same infinity, inf where only one is, NaN where differences
    do not count. `marked` is the worst element's place. `kept` tells of how many elements one stands for its
    neighbours.
    """

    expected: Values = field(repr=False)
    actual: Values = field(repr=False)
    error: Values = field(repr=False)
    axes: tuple[int, ...]
    lengths: tuple[int, ...]  # of those axes before thinning
    fixed: tuple[tuple[int, int, int], ...] = ()  # axis, index, length of the other axes that have more than one
    marked: tuple[int, ...] | None = None
    is_thinned: bool = False


def plane_of(
    expected: Array, actual: Array, worst: tuple[int, ...] | None = None, where: Array | None = None
) -> Plane | None:
    """Return what to show of two outputs; None when shapes differ, nothing is there, or it is no number."""
    if expected.shape != actual.shape or expected.size == 0 or not (_is_number(expected) and _is_number(actual)):
        return None
    is_place = worst is not None and len(worst) == expected.ndim
    if worst is None or not is_place or not all(0 <= i < n for i, n in zip(worst, expected.shape, strict=True)):
        worst = _worst(error_of(wide(expected), wide(actual), where))
    axes = chosen_axes(expected.shape)
    cut = tuple(slice(None) if axis in axes else index for axis, index in enumerate(worst))
    mask = None if where is None else np.broadcast_to(where, expected.shape)[cut]
    left, right = wide(expected[cut]), wide(actual[cut])
    fixed = [
        (axis, index, expected.shape[axis])
        for axis, index in enumerate(worst)
        if axis not in axes and expected.shape[axis] > 1
    ]
    lengths = left.shape
    error = error_of(left, right, mask)
    marked = tuple(worst[axis] for axis in axes)
    left, right, error, marked = _thinned(left, right, error, marked)
    return Plane(left, right, error, axes, lengths, tuple(fixed), marked, left.shape != lengths)


def chosen_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the one or two axes to show: of the last ones that have more than one element."""
    kept = [axis for axis, length in enumerate(shape) if length > 1]
    if len(kept) >= 3 and shape[kept[-1]] <= _MOST_CHANNELS < min(shape[kept[-2]], shape[kept[-3]]):
        kept = kept[:-1]
    kept = kept[-2:]
    if len(kept) == 2 and min(shape[axis] for axis in kept) < _LEAST_MAP:
        kept = [max(kept, key=lambda axis: (shape[axis], axis))]
    return tuple(kept) or ((len(shape) - 1,) if shape else ())


def wide(array: Array) -> Values:
    """Return an array as float64: complex numbers by their size, True as 1."""
    return (np.abs(array) if array.dtype.kind == "c" else array).astype(np.float64)


def error_of(expected: Values, actual: Values, where: Array | None = None) -> Values:
    """Return |actual - expected| as `Plane` says."""
    with np.errstate(all="ignore"):
        error = np.abs(actual - expected)
    is_same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    error = np.where(is_same, 0.0, np.where(np.isfinite(expected) & np.isfinite(actual), error, np.inf))
    return error if where is None else np.where(where, error, np.nan)


def _is_number(array: Array) -> bool:
    return array.dtype.kind in "biufcV" and array.dtype.names is None


def _worst(error: Values) -> tuple[int, ...]:
    place = np.unravel_index(int(np.argmax(np.nan_to_num(error, nan=-1.0))), error.shape)
    return tuple(int(index) for index in place)


def _thinned(
    expected: Values, actual: Values, error: Values, marked: tuple[int, ...]
) -> tuple[Values, Values, Values, tuple[int, ...]]:
    """Return at most MOST_CELLS (MOST_POINTS) along each axis: of each block the element that differs most."""
    most = MOST_POINTS if error.ndim < 2 else MOST_CELLS
    steps = tuple(-(-length // most) for length in error.shape)
    if all(step == 1 for step in steps):
        return expected, actual, error, marked
    padding = [(0, -length % step) for length, step in zip(error.shape, steps, strict=True)]
    key = np.pad(np.nan_to_num(error, nan=-1.0, posinf=np.finfo(np.float64).max), padding, constant_values=-2.0)
    chosen = _blocks(key, steps).argmax(axis=-1)
    thin = (_picked(np.pad(array, padding), steps, chosen) for array in (expected, actual, error))
    place = tuple(index // step for index, step in zip(marked, steps, strict=True))
    return next(thin), next(thin), next(thin), place


def _blocks(array: Values, steps: tuple[int, ...]) -> Values:
    """Return [blocks..., elements of a block]."""
    if array.ndim == 1:
        return array.reshape(-1, steps[0])
    rows, columns = (length // step for length, step in zip(array.shape, steps, strict=True))
    return array.reshape(rows, steps[0], columns, steps[1]).swapaxes(1, 2).reshape(rows, columns, -1)


def _picked(array: Values, steps: tuple[int, ...], chosen: npt.NDArray[np.intp]) -> Values:
    return np.take_along_axis(_blocks(array, steps), chosen[..., None], axis=-1)[..., 0]
