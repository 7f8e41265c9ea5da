"""Diverse: choose a few cases out of a stream of many so that they differ as much as possible.

The idea: farthest-first in one pass. A case is a short vector of cheap figures; when one too many is held, of the two
closest the later one goes. Nothing is read twice, memory is that of the chosen, and the choice depends on the order of
the stream alone. Cases that hold an end of the data (smallest or largest value or size) go last, so that the chosen
span what all of the data spans.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fuzzparity.case import Array, Case, is_float

_PIECES = 8  # of an array whose means stand for how it changes along itself
_CHANNELS = 4
WORDS = "as different as possible in shape, values by channel, sparsity and course; ends of values and sizes kept"


class DiverseChoice:
    """Hold at most `limit` cases and `max_bytes` of what is offered."""

    def __init__(self, first: Case, limit: int, max_bytes: int) -> None:
        """Take a case by whose values figures are scaled; it is not among the chosen."""
        self._limit = limit
        self._max_bytes = max_bytes
        self._scales = {name: _scale(array) for name, array in first.inputs.items()}
        self._cases: list[tuple[int, Case]] = []  # order of arrival, case
        self._figures = np.zeros((0, 0))
        self._nearest = np.zeros(0)  # squared distance to the closest other one
        self._partner = np.zeros(0, dtype=np.int64)
        self._ends: dict[tuple[str, str], tuple[float, int]] = {}  # (input, end) -> figure, arrival of its holder
        self._digests: set[str] = set()
        self._nbytes = 0
        self.offered = 0

    @property
    def cases(self) -> tuple[Case, ...]:
        """Return the chosen, in the order in which they came."""
        return tuple(case for _, case in sorted(self._cases, key=lambda item: item[0]))

    def offer(self, case: Case) -> None:
        """Take a case in, at the price of another when there are too many; one that is held already is nothing new."""
        if case.digest in self._digests or case.nbytes > self._max_bytes:
            return
        self.offered += 1
        arrival = self.offered
        for key, figure in _ends(case):
            if key not in self._ends or figure > self._ends[key][0]:
                self._ends[key] = (figure, arrival)
        self._insert(arrival, case)
        while len(self._cases) > self._limit or self._nbytes > self._max_bytes:
            self._remove(self._closest())

    def _insert(self, arrival: int, case: Case) -> None:
        figures = np.concatenate([_figures(array, self._scales.get(name, 1.0)) for name, array in case.inputs.items()])
        if not len(self._cases) or len(figures) > self._figures.shape[1]:  # ranks may differ from case to case
            width = max(len(figures), self._figures.shape[1])
            grown = np.zeros((len(self._cases), width))
            grown[:, : self._figures.shape[1]] = self._figures
            self._figures = grown
        row = np.zeros(self._figures.shape[1])
        row[: len(figures)] = figures
        distances = ((self._figures - row) ** 2).sum(axis=1)
        index = len(self._cases)
        closer = distances < self._nearest
        self._nearest[closer], self._partner[closer] = distances[closer], index
        partner = int(distances.argmin()) if index else -1
        self._nearest = np.append(self._nearest, distances[partner] if index else np.inf)
        self._partner = np.append(self._partner, partner)
        self._figures = np.vstack([self._figures, row])
        self._cases.append((arrival, case))
        self._digests.add(case.digest)
        self._nbytes += case.nbytes

    def _closest(self) -> int:
        """Return the index of the case to give up: the later of the two closest, unless it holds an end."""
        holders = {arrival for _, arrival in self._ends.values()}
        order = np.argsort(self._nearest, kind="stable")
        for index in map(int, order):
            pair = sorted({index, int(self._partner[index])} - {-1}, key=lambda i: -self._cases[i][0])
            for candidate in pair:
                if self._cases[candidate][0] not in holders:
                    return candidate
        return max(range(len(self._cases)), key=lambda i: self._cases[i][0])  # fewer places than ends

    def _remove(self, index: int) -> None:
        _, case = self._cases.pop(index)
        self._digests.discard(case.digest)
        self._nbytes -= case.nbytes
        keep = np.arange(len(self._nearest)) != index
        self._figures, self._nearest, self._partner = self._figures[keep], self._nearest[keep], self._partner[keep]
        lost = np.flatnonzero(self._partner == index)
        self._partner[self._partner > index] -= 1
        for row in map(int, lost):
            self._seek(row)

    def _seek(self, row: int) -> None:
        distances = ((self._figures - self._figures[row]) ** 2).sum(axis=1)
        distances[row] = np.inf
        partner = int(distances.argmin())
        self._nearest[row] = distances[partner]
        self._partner[row] = partner if np.isfinite(distances[partner]) else -1


def _scale(array: Array) -> float:
    """Return the magnitude by which an input's values are measured: the deviation of the first seed, 1 without one."""
    values = _plain(array)
    deviation = float(values.std()) if values.size else 0.0
    return deviation if np.isfinite(deviation) and deviation > 0 else 1.0


def _plain(array: Array) -> Array:
    """Return the finite values as float64, in one dim."""
    wide = array.reshape(-1).astype(np.float32 if is_float(array.dtype) else np.float64)
    part: Array = wide[np.isfinite(wide)] if is_float(array.dtype) else wide
    return part.astype(np.float64)


def _figures(array: Array, scale: float) -> Array:
    """Return what an array is like: sizes, values over all and by channel, sparsity, means along itself."""
    values = _plain(array) if array.dtype.kind != "c" else np.abs(array).reshape(-1)
    sizes = np.log2(1.0 + np.asarray(array.shape, dtype=np.float64))
    if not values.size:
        return np.concatenate([sizes, np.zeros(5 + _CHANNELS + _PIECES)])
    whole = np.asarray([values.mean(), values.std(), values.min(), values.max()]) / scale
    zeros = float((values == 0).mean())
    pieces = np.asarray([piece.mean() if piece.size else 0.0 for piece in np.array_split(values, _PIECES)]) / scale
    channels = np.zeros(_CHANNELS)
    if array.ndim >= 3 and values.size == array.size:
        means = values.reshape(array.shape).mean(axis=(0, *range(2, array.ndim)))[:_CHANNELS] / scale
        channels[: len(means)] = means
    with np.errstate(over="ignore"):
        return np.concatenate([sizes, np.arcsinh(whole), [4.0 * zeros], np.arcsinh(channels), np.arcsinh(pieces)])


def _ends(case: Case) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the ends that a case may hold: the larger the figure, the further out."""
    for name, array in case.inputs.items():
        for axis, size in enumerate(array.shape):
            yield (name, f"longest {axis}"), float(size)
            yield (name, f"shortest {axis}"), -float(size)
        if array.dtype.kind != "c":
            values = _plain(array)
            if values.size:
                yield (name, "largest"), float(values.max())
                yield (name, "smallest"), -float(values.min())
