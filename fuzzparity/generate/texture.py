"""Texture: what the seeds show of an input's values beyond their ends: channels, exact zeros, ties, and padding.

The idea: data that users meet is rarely smooth noise; it has a background of zeros, few levels, channels of their own
scale, rows padded with one value. A few seeds tell, moves near the data keep or move it, and nothing of it is contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzzparity.case import Array, is_float
from fuzzparity.contract import InputContract, Role
from fuzzparity.generate.dtypes import traits_of
from fuzzparity.generate.ranges import channel_axis

MOST_SEEDS = 16  # that are read; the choice of seeds is a diverse one
_MOST_ELEMENTS = 1 << 20  # of all of them, that channels and padding are sought in
_MOST_SAMPLE = 1 << 16  # elements of all seeds together that zeros and ties are counted in
_LEAST_SAMPLE = 16
_SPARSE_FLOATS = 0.1  # exact zeros: arithmetic makes none by chance
_SPARSE_INTEGERS = 0.6
_TIED = 0.5  # share of values that another one equals
_TIED_IN_STEPS = 0.05  # the same, where all are multiples of a step
_FEW_INTEGERS = 8
_MOST_LEVELS = 1024  # that are kept to snap values to
_STEP_ERROR = 1e-3  # of a step, that a level may lie beside it
_APART = 0.25  # channels differ from here, in deviations ...
_SURE = 5.0  # ... and standard errors
_WIDER = 1.5  # or where one deviation is so much larger
_PADDED_ROLES = frozenset({Role.TOKENS, Role.INDICES, Role.GENERIC, Role.STATE})


@dataclass(frozen=True, slots=True)
class Channel:
    """Hold mean, standard deviation, smallest and largest finite value of one channel."""

    mean: float
    deviation: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Padding:
    """Say that rows end, or begin, with a value that stands nowhere else in them.

    `axis`: along which, the rows lying along axis 0 where that is another one; `low`, `high`: padded places of a row,
    over all rows, of which `rows` of `of` are padded.
    """

    axis: int
    value: float
    is_left: bool
    low: int
    high: int
    rows: int
    of: int

    def lengths(self, array: Array) -> Array | None:
        """Return by row how many places are padded, int64 [rows]; None where the array has no such axis."""
        rows = as_rows(array, self.axis)
        return None if rows is None else _runs(rows, np.full(len(rows), self.value), self.is_left)

    def places(self, array: Array) -> Array | None:
        """Return where an array is padded, bool of its shape; None where it has no such axis."""
        counts = self.lengths(array)
        if counts is None:
            return None
        at = np.arange(array.shape[self.axis])
        along = at[None] < counts[:, None] if self.is_left else at[None] >= len(at) - counts[:, None]
        shape = [1] * array.ndim
        shape[self.axis] = len(at)
        if self.axis:
            shape[0] = len(counts)
        return np.asarray(np.broadcast_to(along.reshape(shape), array.shape))


@dataclass(frozen=True, slots=True)
class Texture:
    """Hold the texture of one input. `zeros`: share of exact zeros, padding left out; `tied`: share of other values
    that one of them equals; `distinct`: how many there are of `sample`, 0 where they are many.

    `levels` are these values in order, the least alone where they are too many to hold; `step`: they are multiples of
    it apart.
    """

    axis: int | None = None  # of channels
    channels: tuple[Channel, ...] = ()
    differ: bool = False  # the channels, by more than chance
    zeros: float = 0.0
    is_sparse: bool = False
    tied: float = 0.0
    distinct: int = 0
    sample: int = 0
    levels: tuple[float, ...] = ()
    step: float = 0.0
    padding: Padding | None = None

    @property
    def is_plain(self) -> bool:
        """Tell whether there is nothing for moves to keep: no zeros, ties or padding."""
        return not (self.is_sparse or self.has_ties or self.padding is not None)

    @property
    def has_ties(self) -> bool:
        """Tell whether values are taken from few levels."""
        return bool(self.levels)

    def snapped(self, values: Array) -> Array:
        """Return values at the nearest levels of the seeds; there are some."""
        wide = values.astype(np.float64)
        if self.levels and not self.step:
            table = np.asarray(self.levels)
            above = np.clip(np.searchsorted(table, wide), 1, max(1, len(table) - 1))
            low, high = table[np.maximum(above - 1, 0)], table[np.minimum(above, len(table) - 1)]
            near = np.where(wide - low <= high - wide, low, high)
        else:
            near = self.levels[0] + np.round((wide - self.levels[0]) / self.step) * self.step
        return np.where(np.isfinite(wide), near, wide).astype(values.dtype)

    def kept(self, values: Array) -> Array | None:
        """Return which elements a near move leaves alone, bool of the shape: sparse zeros and padding; None: none."""
        places = self.padding.places(values) if self.padding is not None else None
        if self.is_sparse:
            zeros = values == 0
            return np.asarray(zeros if places is None else zeros | places)
        return places

    def like(self, before: Array, after: Any, snaps: bool) -> Array:
        """Return what a near move made of values, with zeros and padding as before, and at levels where it `snaps`."""
        made = np.asarray(after)
        if snaps and self.has_ties:
            made = self.snapped(made)
        kept = self.kept(before)
        return made if kept is None else np.where(kept, before, made)

    def ends(self, array: Array) -> tuple[Array, Array, Array] | None:
        """Return low, high and mean of each channel, to broadcast over an array; None where it has no channels."""
        axis = self.axis
        if axis is None or not self.channels or axis >= array.ndim or array.shape[axis] != len(self.channels):
            return None
        shape = tuple(len(self.channels) if place == axis else 1 for place in range(array.ndim))
        table = np.asarray([(one.low, one.high, one.mean) for one in self.channels])
        return table[:, 0].reshape(shape), table[:, 1].reshape(shape), table[:, 2].reshape(shape)


def texture_of(item: InputContract, arrays: Sequence[Array]) -> Texture:
    """Return the texture of one input; `arrays` are its values in the seeds, of one rank."""
    arrays = _first([array for array in arrays[:MOST_SEEDS] if array.size and array.dtype.kind in "fiuV"])
    if not arrays or item.is_opaque:
        return Texture()
    arrays = [array.astype(np.float32) if array.dtype.kind == "V" else array for array in arrays]
    axis = _channels_along(item, arrays)
    channels, differ = _channels(arrays, axis) if axis is not None else ((), False)
    padding = _padding(item, arrays) if item.role in _PADDED_ROLES else None
    sample = _sample(arrays, padding)
    if len(sample) < _LEAST_SAMPLE or _is_flags(sample):
        return Texture(axis, channels, differ, padding=padding)
    floats = is_float(arrays[0].dtype)
    zeros = float(np.mean(sample == 0))
    is_sparse = (_SPARSE_FLOATS if floats else _SPARSE_INTEGERS) <= zeros < 1.0 and not _is_listed(item)
    rest = sample[sample != 0] if is_sparse else sample
    tied, distinct, levels, step = _ties(rest, item.dtype) if not _is_listed(item) else _NO_TIES
    return Texture(axis, channels, differ, zeros, is_sparse, tied, distinct, len(rest), levels, step, padding)


def _first(arrays: Sequence[Array]) -> list[Array]:
    """Return the first arrays, as many as are read in no time."""
    kept: list[Array] = []
    for array in arrays:
        if kept and sum(one.size for one in kept) + array.size > _MOST_ELEMENTS:
            break
        kept.append(array)
    return kept


def _is_listed(item: InputContract) -> bool:
    """Tell whether numbers stand for things, so that zeros and ties among them mean nothing of themselves."""
    return item.role not in (Role.GENERIC, Role.IMAGE, Role.STATE) or item.index_limit is not None


def _is_flags(sample: Array) -> bool:
    return bool(((sample == 0) | (sample == 1)).all())


def _sample(arrays: Sequence[Array], padding: Padding | None) -> Array:
    """Return finite values outside of padding, at even distances of each array."""
    share = max(1, _MOST_SAMPLE // len(arrays))
    parts = []
    for array in arrays:
        places = padding.places(array) if padding is not None else None
        flat = array.reshape(-1) if places is None else array[~places]
        flat = flat[:: max(1, flat.size // share)]
        parts.append(flat[np.isfinite(flat)] if flat.dtype.kind == "f" else flat)
    return np.concatenate(parts)


# Channels


def _channels_along(item: InputContract, arrays: Sequence[Array]) -> int | None:
    axis = channel_axis(arrays[0])
    if axis is None or item.dims[axis].is_dynamic or item.role not in (Role.IMAGE, Role.GENERIC, Role.STATE):
        return None
    if axis == 0 and item.role is not Role.IMAGE:  # rows, most likely
        return None
    width = arrays[0].shape[axis]
    is_plain = is_float(arrays[0].dtype) or item.role is Role.IMAGE
    return axis if width > 1 and is_plain and all(array.shape[axis] == width for array in arrays) else None


def _channels(arrays: Sequence[Array], axis: int) -> tuple[tuple[Channel, ...], bool]:
    """Return the channels, and whether they differ by more than chance; () where one holds no finite value."""
    width = arrays[0].shape[axis]
    sums = np.zeros((3, width))
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    for array in arrays:
        wide = np.moveaxis(array, axis, 0).reshape(width, -1).astype(np.float64)
        finite = np.isfinite(wide)
        known = np.where(finite, wide, 0.0)
        with np.errstate(over="ignore"):
            sums += np.stack([finite.sum(1), known.sum(1), (known * known).sum(1)])
        low = np.minimum(low, np.where(finite, wide, np.inf).min(1))
        high = np.maximum(high, np.where(finite, wide, -np.inf).max(1))
    count, total, squares = sums
    if not count.all() or not np.isfinite(sums).all():
        return (), False
    mean = total / count
    deviation = np.sqrt(np.maximum(0.0, squares / count - mean * mean))
    channels = tuple(Channel(*map(float, row)) for row in zip(mean, deviation, low, high, strict=True))
    usual, least = float(np.sqrt(np.mean(deviation**2))), float(count.min())
    gap = float(mean.max() - mean.min())
    is_apart = gap > _APART * usual and gap > _SURE * usual / np.sqrt(least)
    is_wider = float(deviation.max()) > _WIDER * float(deviation.min()) and least >= 4 * _SURE**2
    return channels, bool(is_apart or is_wider)


# Ties


_Ties = tuple[float, int, tuple[float, ...], float]
_NO_TIES: _Ties = (0.0, 0, (), 0.0)


def _ties(sample: Array, dtype: str) -> _Ties:
    """Return (share of tied values, distinct values, levels, step) of values, nothing where ties are usual."""
    traits = traits_of(dtype)
    if len(sample) < _LEAST_SAMPLE or (traits.family == "float" and traits.dtype.itemsize == 1):
        return _NO_TIES
    levels, counts = np.unique(sample, return_counts=True)
    if len(levels) < 2:
        return _NO_TIES
    tied = float(counts[counts > 1].sum() / len(sample))
    if traits.family == "int":
        is_few = len(levels) <= _FEW_INTEGERS and len(sample) >= 8 * len(levels)
        return (tied, len(levels), tuple(map(float, levels)), 0.0) if is_few else _NO_TIES
    step = _step_of(levels, traits.eps) if tied >= _TIED_IN_STEPS else 0.0
    most = len(sample) * (_TIED if traits.dtype.itemsize > 2 else _TIED_IN_STEPS)  # a short float ties by itself
    is_few = tied >= _TIED and len(levels) <= min(most, _MOST_LEVELS)
    kept = tuple(map(float, levels)) if is_few else ()
    return (tied, len(levels), kept or (float(levels[0]),), step) if kept or step else _NO_TIES


def _step_of(levels: Array, eps: float) -> float:
    """Return what sorted values are multiples of it apart, 0.0 where there is no such step wider than rounding."""
    wide = levels.astype(np.float64)
    gaps = np.diff(wide)
    least = float(gaps.min())
    rounding = eps * float(np.abs(wide).max())
    span = float(wide[-1] - wide[0])
    if len(levels) < 3 or least <= 16 * rounding or not np.isfinite(span):
        return 0.0
    step = span / round(span / least)
    parts = (wide - wide[0]) / step
    error = _STEP_ERROR + 2 * rounding / step
    return step if error < 0.1 and bool((np.abs(parts - np.round(parts)) <= error).all()) else 0.0


# Padding


def as_rows(array: Array, axis: int) -> Array | None:
    """Return an array as [rows, places, features], the places along `axis`; None where it has no such axis."""
    if axis >= array.ndim or not array.size:
        return None
    if axis == 0:
        return array.reshape(1, array.shape[0], -1)
    return np.moveaxis(array, axis, 1).reshape(array.shape[0], array.shape[axis], -1)


def _runs(rows: Array, values: Array, is_left: bool) -> Array:
    """Return how many places of each row, from one end on, hold nothing but its value."""
    holds = (rows == values.astype(rows.dtype)[:, None, None]).all(axis=2)
    ended = ~(holds if is_left else holds[:, ::-1])
    return np.asarray(np.where(ended.any(axis=1), ended.argmax(axis=1), rows.shape[1]))


def _axes(array: Array) -> tuple[int, ...]:
    if array.ndim == 3:
        return (1, 2) if is_float(array.dtype) else ()
    return (array.ndim - 1,) if array.ndim in (1, 2) else ()


def _padding(item: InputContract, arrays: Sequence[Array]) -> Padding | None:
    """Return the padding that explains most rows, None where nothing speaks for any."""
    found = [one for axis in _axes(arrays[0]) for side in (False, True) for one in _padded(arrays, axis, side)]
    return max(found, key=lambda one: one.rows, default=None)


def _padded(arrays: Sequence[Array], axis: int, is_left: bool) -> Iterator[Padding]:
    """Yield the padding at one end: the commonest value of runs there, where it stands nowhere else."""
    blocks = [rows for array in arrays if (rows := as_rows(array, axis)) is not None and rows.shape[1] > 2]
    if not blocks or all(bool((np.diff(rows[:, :, 0].astype(np.float64), axis=1) >= 0).all()) for rows in blocks):
        return  # of sorted numbers the last ones are the largest, not padding
    ends = [rows[:, 0 if is_left else -1, 0] for rows in blocks]
    runs = [_runs(rows, end, is_left) for rows, end in zip(blocks, ends, strict=True)]
    long = [end[(run >= 2) & (run < rows.shape[1])] for rows, end, run in zip(blocks, ends, runs, strict=True)]
    values, counts = np.unique(np.concatenate(long), return_counts=True)
    if not len(values) or not np.isfinite(values[counts.argmax()]):
        return
    value = values[counts.argmax()]
    lengths, content = [], set[float]()
    for rows in blocks:
        run = _runs(rows, np.full(len(rows), value), is_left)
        if ((rows == value).all(axis=2).sum(axis=1) != run).any():
            return  # it stands elsewhere too
        lengths.append(run[run < rows.shape[1]])
        content |= set(rows[:, :, 0][rows[:, :, 0] != value][:64].tolist())
    all_lengths = np.concatenate(lengths)
    padded = int((all_lengths > 0).sum())
    if len(content) < 2 or not (padded >= 2 or all_lengths.max(initial=0) >= 3):
        return
    low, high = int(all_lengths.min()), int(all_lengths.max())
    yield Padding(axis, float(value), is_left, low, high, padded, sum(map(len, blocks)))
