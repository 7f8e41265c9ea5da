"""Rng: the one source of chance of a generator, a Philox stream keyed by `rng_seed` and lease.

The idea: a recipe draws a few dozen scalars and, at times, one large array. Scalars come from a block drawn ahead,
arrays straight from numpy; both are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_T = TypeVar("_T")
_BLOCK = 1024  # scalars drawn at once: a single draw costs ten times a list pop


class Rng:
    """Draw scalars cheaply and arrays in bulk."""

    def __init__(self, rng_seed: int, lease: int) -> None:
        """Key the stream; any int is a key, negative ones included."""
        key = [rng_seed & 0xFFFFFFFFFFFFFFFF, lease & 0xFFFFFFFFFFFFFFFF]
        self.numpy = np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))
        self._block: list[float] = []

    def unit(self) -> float:
        """Draw from [0, 1)."""
        if not self._block:
            self._block = self.numpy.random(_BLOCK).tolist()
        return self._block.pop()

    def chance(self, probability: float) -> bool:
        """Draw true with a probability."""
        return self.unit() < probability

    def below(self, bound: int) -> int:
        """Draw an int from 0 to `bound` - 1; 0 when the bound is 0."""
        return int(self.unit() * bound)

    def between(self, low: float, high: float) -> float:
        """Draw a float from [low, high)."""
        return low + self.unit() * (high - low)

    def pick(self, items: Sequence[_T]) -> _T:
        """Draw one item of a sequence that has at least one."""
        return items[int(self.unit() * len(items))]

    def sign(self) -> int:
        """Draw -1 or 1."""
        return 1 if self.unit() < 0.5 else -1

    def normal(self, shape: tuple[int, ...], dtype: Any = np.float32) -> npt.NDArray[Any]:
        """Draw standard normals, float32 or float64."""
        return np.asarray(self.numpy.standard_normal(shape, dtype=dtype))

    def uniform(self, shape: tuple[int, ...], dtype: Any = np.float32) -> npt.NDArray[Any]:
        """Draw from [0, 1), float32 or float64."""
        return np.asarray(self.numpy.random(shape, dtype=dtype))

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """Draw int64 from `low` to `high`, both included."""
        return np.asarray(self.numpy.integers(low, high, size=shape, dtype=np.int64, endpoint=True))
