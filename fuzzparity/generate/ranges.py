"""Ranges: the values of the first seed and of all the data side by side, channel by channel, and what looks wrong.

The idea: most validation data that is "fed wrongly" shows in four figures: pixels of 0..255 where the model was given
0..1, pixels where it was given normalized ones, channels in the wrong place, blank items. Everything is summed while
the data streams by; a warning always says the figures it rests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fuzzparity.case import Array, Case, is_float

_MOST_CHANNELS = 16
_SIGN_OF_NORMALIZED = -0.5  # pixels normalized by mean and deviation go at least this far below zero ...
_MOST_NORMALIZED = 10.0  # ... and never far from it
_SIGN_OF_BYTES = 16.0  # above this, values that start at zero are not in 0..1


@dataclass(frozen=True, slots=True)
class Span:
    """Hold smallest, mean and largest finite value of one channel; None where there was none."""

    low: float | None = None
    mean: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class InputRanges:
    """Hold the spans of one input: of the first seed and of the data, for each channel or for all values ("all")."""

    name: str
    channels: tuple[str, ...]
    first: tuple[Span, ...]
    data: tuple[Span, ...]
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sums:
    """Sum up one channel."""

    low: float = np.inf
    high: float = -np.inf
    total: float = 0.0
    count: int = 0

    def add(self, values: Array) -> None:
        """Take in the finite values among these."""
        wide = values if values.dtype.kind in "fiub" else values.astype(np.float32)
        finite = wide[np.isfinite(wide)] if wide.dtype.kind == "f" else wide.reshape(-1)
        if finite.size:
            self.low = min(self.low, float(finite.min()))
            self.high = max(self.high, float(finite.max()))
            self.total += float(finite.sum(dtype=np.float64))
            self.count += finite.size

    @property
    def span(self) -> Span:
        """Return what was summed."""
        return Span(self.low, self.total / self.count, self.high) if self.count else Span()


@dataclass(slots=True)
class Seen:
    """Hold what was seen of one input of the data: sums by channel, and the items that look odd."""

    sums: list[_Sums] = field(default_factory=list)
    cases: int = 0
    swapped: int = 0
    constant: list[str] = field(default_factory=list)
    constants: int = 0
    not_finite: int = 0


@dataclass(slots=True)
class _Tally:
    """Compare one input of the data with the first seed's, which is no part of what was seen."""

    first: Array
    axis: int | None
    seen: Seen


class RangeTally:
    """Gather ranges from cases that come one by one and are not kept."""

    def __init__(self, first: Case, state: dict[str, Seen] | None = None) -> None:
        """Take the first seed, with which everything is compared, and what another tally saw before."""
        self._tallies = {name: _tally(array) for name, array in first.inputs.items()}
        for name, seen in (state or {}).items():
            self._tallies[name].seen = seen
        self.count = 0

    @property
    def state(self) -> dict[str, Seen]:
        """Return what was seen so far: small, so that it can be sent ahead of a death."""
        return {name: tally.seen for name, tally in self._tallies.items()}

    def add(self, case: Case, where: str = "") -> None:
        """Take in one case of the data; `where` names it in warnings."""
        self.count += 1
        for name, array in case.inputs.items():
            _add(self._tallies[name], array, where)

    def ranges(self) -> tuple[InputRanges, ...]:
        """Return first seed and data side by side, for each input of numbers."""
        return tuple(_ranges(name, tally) for name, tally in self._tallies.items() if tally.first.dtype.kind not in "c")

    @property
    def warnings(self) -> list[str]:
        """Return what looks wrong, a line each."""
        return [text for item in self.ranges() for text in item.warnings]


def channel_axis(array: Array) -> int | None:
    """Return the axis that most likely holds channels or features, None where there is none to tell apart."""
    if array.ndim < 2:
        return None
    if array.ndim == 2:
        return 1 if is_float(array.dtype) and array.shape[1] <= _MOST_CHANNELS else None
    first = array.ndim - 3 if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[1] > 4 else 1
    if array.shape[-1] in (1, 3, 4) and array.shape[first] > 4:
        return array.ndim - 1
    return first if array.shape[first] <= _MOST_CHANNELS else None


def _tally(array: Array) -> _Tally:
    axis = channel_axis(array)
    count = array.shape[axis] if axis is not None else 1
    return _Tally(array, axis, Seen([_Sums() for _ in range(count)]))


def _add(tally: _Tally, array: Array, where: str) -> None:
    if array.dtype.kind == "c" or not array.size:
        return
    tally.seen.cases += 1
    parts = _channels(array, tally.axis, len(tally.seen.sums))
    tally.seen.swapped += _is_swapped(tally.first, array)
    if parts is None:
        parts = [array] * len(tally.seen.sums)
    for sums, part in zip(tally.seen.sums, parts, strict=True):
        sums.add(part)
    if is_float(array.dtype):
        tally.seen.not_finite += not np.isfinite(array if array.dtype.kind == "f" else array.astype(np.float32)).all()
    if array.size > 1 and array.ndim >= 2 and (array.reshape(-1)[0] == array).all():
        tally.seen.constants += 1
        if where and len(tally.seen.constant) < 3:
            tally.seen.constant.append(where)


def _channels(array: Array, axis: int | None, count: int) -> list[Array] | None:
    """Return the parts of an array by channel; None when it has another number of them."""
    if axis is None:
        return [array]
    if array.ndim <= axis or array.shape[axis] != count:
        return None
    return [array.take(index, axis=axis) for index in range(count)]


def _is_swapped(first: Array, array: Array) -> bool:
    """Tell whether an array has its channels last where the first seed has them first, or the other way round."""
    if array.ndim != first.ndim or array.ndim not in (3, 4):
        return False
    front = array.ndim - 3
    for here, there in ((front, array.ndim - 1), (array.ndim - 1, front)):
        channels = first.shape[here]
        if channels in (1, 3, 4) and first.shape[there] > 4:
            return bool(array.shape[there] == channels and array.shape[here] != channels)
    return False


def _ranges(name: str, tally: _Tally) -> InputRanges:
    first = _tally(tally.first)
    parts = _channels(tally.first, first.axis, len(first.seen.sums)) or [tally.first]
    for sums, part in zip(first.seen.sums, parts, strict=True):
        sums.add(part)
    names = ("all",) if tally.axis is None else tuple(map(str, range(len(tally.seen.sums))))
    spans = tuple(sums.span for sums in first.seen.sums)
    data = tuple(sums.span for sums in tally.seen.sums)
    return InputRanges(name, names, spans, data, tuple(_warnings(name, tally, spans, data)))


def _whole(spans: Sequence[Span]) -> Span:
    """Return the span over all channels; its mean is that of the channels."""
    lows = [span.low for span in spans if span.low is not None]
    means = [span.mean for span in spans if span.mean is not None]
    highs = [span.high for span in spans if span.high is not None]
    return Span(min(lows), sum(means) / len(means), max(highs)) if lows else Span()


def _warnings(name: str, tally: _Tally, first: Sequence[Span], data: Sequence[Span]) -> list[str]:
    found = []
    if is_float(tally.first.dtype) and tally.first.ndim >= 3:
        found += _scale_warnings(name, _whole(first), _whole(data))
    if tally.seen.swapped:
        found.append(
            f"{name}: in {tally.seen.swapped} of {tally.seen.cases} inputs the channels stand where the first seed, "
            f"{list(tally.first.shape)}, has height or width: the layout looks swapped"
        )
    if tally.seen.constants and tally.seen.cases > 1 and _varies(tally.first):
        what = "hold one value only" if is_float(tally.first.dtype) or tally.first.ndim > 2 else "are all padding"
        where = (
            f" ({', '.join(tally.seen.constant)}{', ...' if tally.seen.constants > len(tally.seen.constant) else ''})"
        )
        found.append(
            f"{name}: {tally.seen.constants} of {tally.seen.cases} inputs {what}{where if tally.seen.constant else ''}"
        )
    if tally.seen.not_finite:
        found.append(f"{name}: {tally.seen.not_finite} of {tally.seen.cases} inputs hold NaN or infinity")
    return found


def _varies(first: Array) -> bool:
    """Tell whether blank data says anything: not of masks and types, nor where the first seed is blank itself."""
    if first.size < 2 or (first.reshape(-1)[0] == first).all():
        return False
    return is_float(first.dtype) or bool(first.max() > 1)


def _scale_warnings(name: str, first: Span, data: Span) -> list[str]:
    """Compare the ranges of pictures and signals as a whole."""
    if first.low is None or first.high is None or data.low is None or data.high is None:
        return []
    told = f"the first seed spans {first.low:.3g}..{first.high:.3g}, the data {data.low:.3g}..{data.high:.3g}"
    if _is_unit(first) and _is_bytes(data):
        return [f"{name}: {told}: the data looks like 0..255 where the first seed is 0..1; divide it in read"]
    if _is_bytes(first) and _is_unit(data):
        return [f"{name}: {told}: the data looks like 0..1 where the first seed is 0..255; multiply it in read"]
    if _is_normalized(first) and (_is_unit(data) or _is_bytes(data)):
        return [
            f"{name}: {told}: the first seed looks normalized (mean {first.mean:.3g}) and the data does not; normalize "
            "it in read as in training, or take a real input as the first seed if it is only a stand-in"
        ]
    if _is_normalized(data) and (_is_unit(first) or _is_bytes(first)):
        return [f"{name}: {told}: the data looks normalized (mean {data.mean:.3g}) and the first seed does not"]
    return []


def _is_unit(span: Span) -> bool:
    return span.low is not None and span.high is not None and 0 <= span.low < span.high <= 1.001


def _is_bytes(span: Span) -> bool:
    return span.low is not None and span.high is not None and span.low >= 0 and _SIGN_OF_BYTES < span.high <= 255.5


def _is_normalized(span: Span) -> bool:
    if span.low is None or span.high is None:
        return False
    return -_MOST_NORMALIZED < span.low < _SIGN_OF_NORMALIZED and span.high < _MOST_NORMALIZED
