"""Shapes: the free dims of a contract as axes, the sizes worth trying on them, and resizing an array to fit.

The idea: dims that the contract has equal are one axis with one size, so that no resize can break an equality; sizes
come from knowledge of what code does with sizes (halves, strides, powers of two) and of the graph's own constants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fuzzparity.case import Array
from fuzzparity.contract import Contract

_CLASSIC_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 257, 1000, 1024)
_MAX_DRIFT_LENGTH = 4096
_MAX_MENU = 128  # sizes kept for one axis
_CODE_SIZES = 20  # of those that model and code name, with neighbours, in a menu
_CODE_PERIODS = 6
_LANDING = 8 * 2.0**-23  # how close to a whole number a product is within float32's rounding


@dataclass(frozen=True, slots=True)
class Axis:
    """Describe one free dim: its symbol, bounds, size in the first seed, and each (input, dim) where it stands."""

    symbol: str
    low: int
    high: int | None
    multiple_of: int
    size: int
    places: tuple[tuple[int, int], ...]

    def admits(self, size: int) -> bool:
        """Tell whether a size is inside the bounds of every place."""
        return self.low <= size and (self.high is None or size <= self.high) and size % self.multiple_of == 0

    def nearest(self, size: int) -> int:
        """Return the admitted size closest to a wish (upwards to `low` when nothing else is admitted)."""
        step = self.multiple_of
        lowest = -(-self.low // step) * step
        size = max(lowest, round(size / step) * step)
        return size if self.high is None else min(size, max(lowest, self.high // step * step))


def axes_of(contract: Contract) -> tuple[Axis, ...]:
    """Return the free dims of a contract, in order of appearance; equal symbols are merged and their bounds met."""
    axes: dict[str, Axis] = {}
    for index, item in enumerate(contract.inputs):
        for place, dim in enumerate(item.dims):
            if not dim.symbol:
                continue
            known = axes.get(dim.symbol)
            if known is None:
                axes[dim.symbol] = Axis(dim.symbol, dim.low, dim.high, dim.multiple_of, dim.size, ((index, place),))
                continue
            highs = [high for high in (known.high, dim.high) if high is not None]
            axes[dim.symbol] = Axis(
                dim.symbol,
                max(known.low, dim.low),
                min(highs) if highs else None,
                math.lcm(known.multiple_of, dim.multiple_of),
                known.size,
                (*known.places, (index, place)),
            )
    return tuple(axes.values())


def size_menu(
    axis: Axis,
    sizes: Sequence[int],
    constants: Sequence[float],
    seed_sizes: Sequence[int],
    periods: Sequence[int] = (),
    factors: Sequence[float] = (),
) -> list[int]:
    """Return sizes worth trying on an axis, all admitted, most telling first.

    Ends of the bounds and the graph's sizes with their neighbours, 0 to 3, the seeds' sizes with neighbours, halves
    and doubles, odd, prime and power-of-two sizes, lengths at which a constant of the graph rounds differently or a
    factor of the code lands on a whole number, and multiples of periods with their neighbours.
    """
    own = list(dict.fromkeys((axis.size, *seed_sizes)))[:8]
    wishes = [0, 1, 2, 3]
    for size in own:
        wishes += [size + 1, size - 1, size * 2, size * 2 + 1]
    for end in (axis.low, axis.high):
        if end is not None:
            wishes += [end, end + axis.multiple_of, end - axis.multiple_of]
    for period in periods[:_CODE_PERIODS]:
        wishes += [period, 2 * period, 2 * period + 1, 3 * period - 1]
    for size in sizes[:_CODE_SIZES]:
        wishes += [size, size + 1, size - 1, size + 2]
    wishes += landing_lengths(factors)
    wishes += drifting_lengths(constants)
    for size in own:
        wishes += [size // 2, size + 2, size * 3, size * 4 + 1, *own]
    wishes += _CLASSIC_SIZES
    if axis.multiple_of > 1:
        wishes = [near for wish in wishes for near in (wish, wish * axis.multiple_of)]
    admitted = dict.fromkeys(axis.nearest(max(wish, 0)) for wish in wishes)
    return [size for size in admitted if axis.admits(size)][:_MAX_MENU]


def landing_lengths(factors: Sequence[float]) -> list[int]:
    """Return lengths n for which n * factor is a whole number, but for rounding, or is rounded to another one."""
    found: list[int] = []
    lengths = np.arange(1, _MAX_DRIFT_LENGTH + 1)
    for factor in factors[:8]:
        if not 1e-3 < abs(factor) < 1e3:
            continue
        exact = Fraction(repr(float(factor)))
        products = lengths * float(factor)
        if exact.denominator < 1 << 40:  # a decimal that someone wrote; others are reciprocals, known as floats only
            floors = np.array([n * exact.numerator // exact.denominator for n in range(1, _MAX_DRIFT_LENGTH + 1)])
            other = (np.floor(products) != floors) | (
                np.floor(lengths.astype(np.float32) * np.float32(factor)).astype(np.float64) != floors
            )
            found += [int(n) for n in lengths[other][:6]]
        landing = lengths[np.abs(products - np.round(products)) <= _LANDING * np.abs(products)]
        found += [int(n) for n in landing[:4]]
    return list(dict.fromkeys(found))[:32]


def drifting_lengths(constants: Sequence[float]) -> list[int]:
    """Return lengths n at which floor(n * constant) depends on the precision of the constant.

    A scale that stands in a graph as float32 was a decimal in someone's source: where both products fall on different
    sides of an integer, sizes computed from them differ by one.
    """
    found: list[int] = []
    lengths = np.arange(1, _MAX_DRIFT_LENGTH + 1)
    for constant in constants[:32]:
        if not 1e-3 < abs(constant) < 1e3 or float(constant).is_integer():
            continue
        single = np.float32(constant)
        exact = np.floor(lengths * float(str(single)))
        rough = np.floor((lengths.astype(np.float32) * single).astype(np.float64))
        rougher = np.floor(lengths * float(single))
        found += [int(n) for n in lengths[(exact != rough) | (exact != rougher)][:4]]
    return list(dict.fromkeys(found))[:24]


def sizes_of(axes: Sequence[Axis], arrays: Sequence[Array]) -> dict[str, int]:
    """Return the size of each axis in a set of arrays."""
    return {axis.symbol: arrays[axis.places[0][0]].shape[axis.places[0][1]] for axis in axes}


def shapes_for(contract: Contract, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Return the shape of each input under given sizes of the axes; derived dims follow from those."""
    if contract.derived:
        sizes = {**sizes, **{one.symbol: one.of(sizes[one.root]) for one in contract.derived}}
    return [tuple(sizes[dim.symbol] if dim.symbol else dim.size for dim in item.dims) for item in contract.inputs]


def resized(array: Array, shape: tuple[int, ...], offset: int = 0, edge: bool = False) -> Array:
    """Return an array of the new shape filled with the old one's values: cropped, and tiled or edge-padded.

    `offset` moves the window on every axis that changes. An empty array gives zeros.
    """
    assert array.ndim == len(shape), (array.shape, shape)
    if 0 in array.shape:
        return np.zeros(shape, array.dtype)
    for axis, (old, new) in enumerate(zip(array.shape, shape, strict=True)):
        if old == new:
            continue
        if offset == 0 and new < old:
            array = array[(slice(None),) * axis + (slice(new),)]
            continue
        picked = np.arange(offset, offset + new)
        array = np.take(array, np.minimum(picked, old - 1) if edge else picked % old, axis=axis)
    return array


def is_prime(size: int) -> bool:
    """Tell whether a size is prime."""
    return size > 1 and all(size % divisor for divisor in range(2, math.isqrt(size) + 1))
