"""Noise: the random numbers by which doubles are rounded to a working precision, or moved by some of its roundings.

The idea: plain numpy, for torch's dispatch modes and for a run of the ONNX file alike; one draw, one answer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from fuzzparity.case import Array

_FLOAT32_UNIT = 2.0**-24
_LEAST_EXPONENTS = {23: -126, 10: -14, 7: -126, 3: -6, 2: -14}  # mantissa bits -> exponent of the smallest normal


class Noise:
    """Hand out the random numbers of one draw: slices of one long sequence, begun at places that the draw decides.

    Numbers made anew for every operator took most of a run, for the noise on weights above all.
    """

    _STARTS = 16  # bits of a random place
    _LONGEST = 1 << 20
    _raw: ClassVar[Array] = np.empty(0, np.int64)
    _low: ClassVar[dict[int, Array]] = {}
    _factors: ClassVar[dict[int, Array]] = {}

    def __init__(self, bits: int, draw: int, times: float = 1.0) -> None:
        self.mask = (1 << (52 - bits)) - 1  # of the bits that do not fit
        self._least_normal = 2.0 ** _LEAST_EXPONENTS[bits] if bits in _LEAST_EXPONENTS else 0.0
        # float8_e4m3fn, alone of these, ends elsewhere and has no infinity
        ends = bits in _LEAST_EXPONENTS and bits != 3
        self._largest = (2.0 - 2.0**-bits) * 2.0 ** (1 - _LEAST_EXPONENTS[bits]) if ends else math.inf
        self._bits = bits
        self._unit = 2.0 ** -(bits + 1)  # roundoff
        self._times = times
        self._draw = random.Random(draw)

    def rounded(self, array: Array) -> Array:
        """Return doubles rounded at random to the precision and its range; what fits, and any other array, as it is."""
        if array.dtype != np.float64:
            return array
        bits = array.view(np.int64)
        rounded = np.empty_like(bits)
        np.add(bits, self.low_bits(bits.shape), out=rounded)
        np.bitwise_and(rounded, ~self.mask, out=rounded)
        if array.size and math.isnan(np.maximum.reduce(array, axis=None)):
            # a NaN must not be carried into an infinity; infinities have no low bits and stay
            np.copyto(rounded, bits, where=np.isnan(array))
        wide: Array = rounded.view(np.float64)
        size = np.abs(array)
        if array.size and np.fmax.reduce(size, axis=None) > self._largest:
            np.copyto(wide, np.copysign(np.inf, array), where=size > self._largest)
        is_small = size < self._least_normal
        if is_small.any() and (is_small := is_small & (size > 0.0)).any():
            wide[is_small] = self._underflowing(array[is_small])
        return wide if self._times == 1.0 else self._farther(array, wide)

    def _farther(self, array: Array, rounded: Array) -> Array:
        """Return values as many times as far off; those that were rounded to something that is no number stay."""
        with np.errstate(all="ignore"):
            off = self._times * (rounded - array)
        return np.where(np.isfinite(off), array + off, rounded)

    def _underflowing(self, array: Array) -> Array:
        """Return values below the smallest normal rounded at random to the steps that are left there, or to zero."""
        step = self._least_normal * 2.0**-self._bits
        steps = np.abs(array) / step
        whole = np.floor(steps)
        is_up = self.low_bits(array.shape) < (steps - whole) * (self.mask + 1)
        return np.copysign((whole + is_up) * step, array)

    def noisy(self, array: Array) -> Array:
        """Return doubles off by one unit roundoff each, any other array as it is."""
        return array * self.factors(array.shape) if array.dtype == np.float64 else array

    def fits(self, array: Array) -> bool:
        """Tell whether every value has this precision already."""
        if array.dtype != np.float64:
            return True
        return not int(np.bitwise_or.reduce(array.view(np.int64), axis=None)) & self.mask

    def low_bits(self, shape: tuple[int, ...]) -> Array:
        """Return uniform integers over the bits that do not fit."""
        return self._slice(self._low, shape, self._as_low)

    def factors(self, shape: tuple[int, ...]) -> Array:
        """Return 1 plus or minus one unit, each with probability one half."""
        factors = self._slice(self._factors, shape, self._as_factors)
        return factors if self._times == 1.0 else 1.0 + self._times * (factors - 1.0)

    @property
    def unit(self) -> float:
        """Return the unit roundoff, as many times as values are off by it."""
        return self._times * self._unit

    @property
    def is_fine(self) -> bool:
        """Tell whether the precision is float32's or finer."""
        return self._unit <= _FLOAT32_UNIT

    @property
    def position_unit(self) -> float:
        """Return what positions are off by: in halves as well, they are held in float32."""
        return self._times * min(self._unit, _FLOAT32_UNIT)

    def signs(self, shape: tuple[int, ...]) -> Array:
        """Return 1 or -1, each with probability one half."""
        signs: Array = np.asarray(np.sign(self.factors(shape) - 1.0))
        return signs

    def _slice(self, kept: dict[int, Array], shape: tuple[int, ...], of_raw: Callable[[Array], Array]) -> Array:
        size = math.prod(shape)
        if size > self._LONGEST:
            source = np.random.SFC64(self._draw.getrandbits(64))
            return of_raw(source.random_raw(size).view(np.int64)).reshape(shape)
        start = self._draw.getrandbits(self._STARTS)
        sequence = kept.get(self._bits)
        if sequence is None or sequence.size < start + size:
            sequence = kept[self._bits] = of_raw(self._sequence(start + size))
        return sequence[start : start + size].reshape(shape)

    @classmethod
    def _sequence(cls, size: int) -> Array:
        """Return the sequence, made again and longer when it is too short: its beginning never changes."""
        if cls._raw.size < size:
            length = 1 << max(size - 1, 1 << cls._STARTS).bit_length()
            cls._raw = np.random.SFC64(0).random_raw(length).view(np.int64)
        return cls._raw

    def _as_low(self, raw: Array) -> Array:
        low: Array = raw & ((1 << (52 - self._bits)) - 1)
        return low

    def _as_factors(self, raw: Array) -> Array:
        return np.where(raw < 0, 1.0 - self._unit, 1.0 + self._unit)
