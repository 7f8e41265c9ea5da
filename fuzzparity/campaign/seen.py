"""Seen: which inputs a worker has run before, in a fixed amount of memory.

The idea: one bit by a 64-bit hash of an input's bytes, computed for all rows of a stack in a few vector operations
(multiply-add of words by fixed random odd numbers: Dietzfelbinger et al., "A reliable randomized algorithm for the
closest-pair problem", 1997). It counts inputs and decides nothing, so a collision costs one in a count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, Case

_BITS = 1 << 27  # 16 MiB
_CHUNK = 1 << 15  # words hashed by one set of multipliers
_MULTIPLIERS = np.random.Generator(np.random.Philox(key=1)).integers(0, 2**63, _CHUNK, np.uint64) * np.uint64(2) + 1
_MIX = np.uint64(0xFF51AFD7ED558CCD)

Hashes = npt.NDArray[np.uint64]


class Seen:
    """Mark inputs and count those that are new.

    Bits that are taken count as seen; the table is cleared when half of it is taken, so a count is never above the
    truth by more than inputs that come again after 90 million others, and below it by a third at most.
    """

    def __init__(self) -> None:
        """Allocate the table; its pages are touched as they fill."""
        self._table = np.zeros(_BITS // 8, np.uint8)
        self._taken = 0

    def add_case(self, case: Case) -> bool:
        """Mark a case and tell whether it is new."""
        salt = hash(tuple((array.dtype.num, array.shape) for array in case.inputs.values()))
        return self._add(_hashes([array.reshape(1, -1) for array in case.inputs.values()], salt)) == 1

    def add_rows(self, case: Case, places: Sequence[int | None]) -> int:
        """Mark each row of a stack, `places` saying where each input has its rows; return how many are new."""
        arrays = zip(case.inputs.values(), places, strict=True)
        rows = [np.moveaxis(array, place, 0) for array, place in arrays if place is not None]
        salt = hash(tuple(array.shape[1:] for array in rows))
        flat = [np.ascontiguousarray(array).reshape(len(array), math.prod(array.shape[1:])) for array in rows]
        return self._add(_hashes(flat, salt))

    def _add(self, hashes: Hashes) -> int:
        if self._taken > _BITS // 2:
            self._table[:] = 0
            self._taken = 0
        bits = np.unique(hashes & np.uint64(_BITS - 1))
        places, masks = bits >> np.uint64(3), np.uint8(1) << (bits & np.uint64(7)).astype(np.uint8)
        new = int(np.count_nonzero(self._table[places] & masks == 0))
        np.bitwise_or.at(self._table, places, masks)
        self._taken += new
        return new


def _hashes(blocks: Sequence[Array], salt: int) -> Hashes:
    """Return one hash for each row of several [rows, elements]."""
    found = np.full(len(blocks[0]) if blocks else 1, salt & 0x7FFFFFFFFFFFFFFF, np.uint64)
    for block in blocks:
        for words in _chunks(block):
            found = found * _MIX + (words * _MULTIPLIERS[: words.shape[1]]).sum(axis=1, dtype=np.uint64)
            found ^= found >> np.uint64(29)
            found *= _MIX
            found ^= found >> np.uint64(32)
    return found


def _chunks(block: Array) -> Iterator[Hashes]:
    """Yield the bytes of rows as words, [rows, up to _CHUNK]; the last word is filled up with zeros."""
    raw = (
        np.ascontiguousarray(block).view(np.uint8).reshape(len(block), -1) if block.size else np.zeros((len(block), 0))
    )
    raw = raw.astype(np.uint8, copy=False)
    odd = raw.shape[1] % 8
    if odd:
        raw = np.concatenate([raw, np.zeros((len(raw), 8 - odd), np.uint8)], axis=1)
    words = raw.view(np.uint64) if raw.size else np.zeros((len(block), 0), np.uint64)
    for start in range(0, words.shape[1], _CHUNK):
        yield words[:, start : start + _CHUNK]
