"""Quality: twins of a coarser arithmetic (quantized, half), judged by signal-to-noise ratio and flipped decisions.

The idea: no elementwise bound separates the noise of eight bits from a fault. What separates them is how strong the
noise is on the seeds, how strong it may be with that many bits at all, and whether decisions flip that torch was
sure of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, is_float
from fuzzparity.execution import Execution
from fuzzparity.oracle.compare import as_float64, place
from fuzzparity.verdict import Comparison, Kind

DB_PER_BIT = 6.02  # of a uniform quantizer: Bennett, "Spectra of quantized signals", 1948
# Three bits: a scale reaches for peaks, about 12 dB above the mean power, and layers add their noise. Sound 8-bit twins
# of corpora/digits have a median of 37 and 41 dB over its seeds, against 30 dB here; broken ones 2 and 19 dB.
LOST_BITS = 3.0
SINGLE_DB = 20.0  # one input may fall that far below: ten times the noise; the seeds of those sound twins go to 14 dB
CLEARLY_DB = 6.0  # below the worst of the seeds: twice its noise
FLOAT_DB = 80.0  # noise of 1e-4: the largest of 13 real float32 models (FACTS); below it a twin is no coarser one
_FLIP = 4.0  # times the largest error on the seeds: a flip needs errors of opposite signs, each may be twice that

Wide = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Quality:
    """Hold what the seeds show of one output; `bits` are those of its significands. Figures are 0 or inf without seeds.

    `typical_db`: the median signal-to-noise ratio over the items (of the leading axis) of the seeds;
    `worst_db` the lowest. `noise`, `peak`: the largest
    root mean square and the largest single error. `flip_margin`: the largest margin of torch's that was flipped.
    """

    name: str
    bits: int
    typical_db: float = math.inf
    worst_db: float = math.inf
    noise: float = 0.0
    peak: float = 0.0
    flip_margin: float = 0.0
    seeds: int = 0

    @property
    def typical_floor_db(self) -> float:
        """Return the ratio that so many bits give at least on typical inputs."""
        return DB_PER_BIT * max(1.0, self.bits - LOST_BITS)

    @property
    def is_sound(self) -> bool:
        """Tell whether the seeds show no more noise than so many bits explain."""
        return self.typical_db >= self.typical_floor_db

    @property
    def least_db(self) -> float:
        """Return the ratio below which a case is beyond the noise."""
        if not self.seeds or not self.is_sound:
            return self.typical_floor_db
        return max(min(self.worst_db, FLOAT_DB) - CLEARLY_DB, self.typical_floor_db - SINGLE_DB)

    @property
    def sure_margin(self) -> float:
        """Return the margin above which torch's decision may not flip; nobody knows it of a twin that is not sound."""
        return max(self.flip_margin, _FLIP * self.peak) if self.seeds and self.is_sound else math.inf

    @property
    def words(self) -> str:
        """Return where the bound comes from, in words."""
        if not self.seeds:
            return f"{self.least_db:.1f} dB from {self.bits} bits; no seed to calibrate by"
        shown = f"the seeds have {self.typical_db:.1f} dB, at worst {self.worst_db:.1f} dB"
        if not self.is_sound:
            return f"{shown}; {self.bits} bits give {self.typical_floor_db:.1f} dB"
        return shown


def compare_quality(expected: Array, actual: Array, quality: Quality, plain: Comparison) -> Comparison:
    """Judge a float output of finite pairs by its noise and its decisions; `plain` is how its elements compare."""
    if plain.kind not in (Kind.AGREE, Kind.NUMERIC) or not plain.max_abs:
        return plain
    e, a = as_float64(expected), as_float64(actual)
    signal, noise = _power_of(e, a)
    with np.errstate(all="ignore"):
        allowed = signal * 10.0 ** (-quality.least_db / 20.0)
        if quality.is_sound:  # a small signal has the seeds' noise all the same: a scale is fixed, or set by others
            allowed = np.maximum(allowed, 10.0 ** (CLEARLY_DB / 20.0) * quality.noise)
        excess = np.where(noise > 0.0, noise / allowed, 0.0)
    worst = int(excess.argmax())
    found = replace(plain, error_ratio=float(excess[worst]), detail="", kind=Kind.AGREE, differing=0)
    if not excess[worst] <= 1.0:
        item = f" of item {worst}" if len(excess) > 1 else ""
        said = f"signal-to-noise ratio{item} {_db(signal[worst], noise[worst]):.1f} dB; {quality.words}"
        return replace(found, kind=Kind.NUMERIC, detail=said, differing=plain.differing)
    return _with_flips(e, a, quality, found)


def flips(expected: Array, actual: Array) -> tuple[npt.NDArray[np.bool_], Wide]:
    """Return where a decision flips, and by what margin torch took it: argmax along the last axis, else the sign."""
    e, a = as_float64(expected), as_float64(actual)
    if e.ndim and e.shape[-1] >= 2:
        top = np.partition(e, -2, axis=-1)
        margin = top[..., -1] - top[..., -2]
        return e.argmax(-1) != a.argmax(-1), margin
    return (e > 0) != (a > 0), np.abs(e)


def calibrated(name: str, bits: int, pairs: Iterable[tuple[Array, Array]]) -> Quality:
    """Return what pairs of (torch, ORT) outputs of seeds show."""
    ratios: list[float] = []
    quality = Quality(name, bits)
    for e, a in pairs:
        wide, other = as_float64(e), as_float64(a)
        if e.shape != a.shape or not e.size or not (np.isfinite(wide).all() and np.isfinite(other).all()):
            continue
        signal, noises = _power_of(wide, other)
        ratios += [_db(s, n) for s, n in zip(signal.tolist(), noises.tolist(), strict=True)]
        flipped, margin = flips(e, a)
        quality = replace(
            quality,
            noise=max(quality.noise, float(noises.max())),
            peak=max(quality.peak, float(np.abs(wide - other).max())),
            flip_margin=max(quality.flip_margin, float(margin[flipped].max(initial=0.0))),
            seeds=quality.seeds + 1,
        )
    return replace(quality, typical_db=float(np.median(ratios)), worst_db=min(ratios)) if ratios else quality


def decided_by(outputs: Sequence[str], executions: Sequence[Execution]) -> dict[str, tuple[int, int]]:
    """Return integer output -> (place of a float output, axis) where torch's is the argmax of that on every seed."""
    found: dict[str, tuple[int, int]] = {}
    done = [one.outputs for one in executions if one.is_ok and len(one.outputs) == len(outputs)]
    if not done:
        return {}
    for index, name in enumerate(outputs):
        if done[0][index].dtype.kind not in "iu":
            continue
        for other, values in enumerate(done[0]):
            axes = range(values.ndim) if is_float(values.dtype) else ()
            axis = next((k for k in axes if all(_is_argmax(one[index], one[other], k) for one in done)), None)
            if axis is not None:
                found[name] = (other, axis)
                break
    return found


def excuse_flips(
    comparison: Comparison, indices: tuple[Array, Array], values: Array, axis: int, quality: Quality
) -> Comparison:
    """Return a comparison of argmax indices as agreement where no flip has a margin that torch was sure of."""
    if comparison.kind is not Kind.DECISION or not _is_index(indices[1], values.shape[axis]):
        return comparison
    wide = as_float64(values)
    margin = np.asarray([np.take_along_axis(wide, np.expand_dims(_like(x, wide, axis), axis), axis) for x in indices])
    lost = np.squeeze(margin[0] - margin[1], axis).reshape(-1)
    flipped = (indices[0] != indices[1]).reshape(-1)
    worst = float(lost[flipped].max(initial=0.0))
    if worst <= quality.sure_margin:
        return replace(comparison, kind=Kind.AGREE, error_ratio=worst / quality.sure_margin if worst else 0.0)
    index = int(np.where(flipped, lost, -math.inf).argmax())
    said = (
        f"torch {int(indices[0].flat[index])}, ORT {int(indices[1].flat[index])} where torch's margin is {worst:.3g}; "
        f"noise explains flips up to {quality.sure_margin:.3g}"
    )
    return replace(comparison, index=place(index, indices[0].shape), detail=said)


def _with_flips(e: Wide, a: Wide, quality: Quality, found: Comparison) -> Comparison:
    """Return a decision where torch's margin was larger than what noise flips."""
    flipped, margin = flips(e, a)
    sure = flipped & (margin > quality.sure_margin)
    if not sure.any():
        return found
    index = int(np.where(sure, margin, -1.0).argmax())
    said = (
        f"{int(sure.sum())} of {margin.size} decisions flip, one where torch's margin is {margin.flat[index]:.3g}; "
        f"noise explains flips up to {quality.sure_margin:.3g}"
    )
    return replace(found, kind=Kind.DECISION, error_ratio=math.inf, differing=int(sure.sum()), detail=said)


def _is_argmax(indices: Array, values: Array, axis: int) -> bool:
    shape = (*values.shape[:axis], *values.shape[axis + 1 :])
    if values.shape[axis] < 2 or indices.shape not in (shape, (*shape[:axis], 1, *shape[axis:])):
        return False
    return bool((values.argmax(axis).reshape(-1) == indices.reshape(-1)).all())


def _is_index(indices: Array, length: int) -> bool:
    return bool(((indices >= 0) & (indices < length)).all())


def _like(indices: Array, values: Wide, axis: int) -> Array:
    return indices.reshape((*values.shape[:axis], *values.shape[axis + 1 :]))


def _power_of(e: Wide, a: Wide) -> tuple[Wide, Wide]:
    """Return the root mean square of signal and noise, of each item of the leading axis; equal infinities count not."""
    form = (len(e), -1) if e.ndim > 1 else (1, -1)
    with np.errstate(all="ignore"):
        noise = np.where((e == a) | (np.isnan(e) & np.isnan(a)), 0.0, e - a)
        signal = np.where(np.isfinite(e), e, 0.0)
    return _rms(signal.reshape(form)), _rms(noise.reshape(form))


def _rms(rows: Wide) -> Wide:
    top = np.abs(rows).max(axis=1, initial=0.0)
    scale = np.where(top > 0.0, top, 1.0)  # squares of large values overflow
    with np.errstate(all="ignore"):
        found: Wide = top * np.sqrt(np.mean((rows / scale[:, None]) ** 2, axis=1))
    return found


def _db(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 20.0 * math.log10(signal / noise) if signal else -math.inf
