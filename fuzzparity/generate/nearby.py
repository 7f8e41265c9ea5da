"""Nearby: the moves that leave data as it could have been met: louder, darker, shifted, cropped, said in other words.

The idea: what a user meets is what the seeds show, moved a little; faults found here are the first to be told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzzparity.case import Array
from fuzzparity.generate.moves import Draft, Mutator, exchange, filled_with, float_input, region_of
from fuzzparity.generate.ranges import channel_axis
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.values import Fill

_SNAPPING = 0.5  # share of near moves after which values are at the levels of the seeds, where those have few


def _moved(scene: Scene, draft: Draft, index: int, values: Callable[[Array], Any], rng: Rng) -> Draft:
    """Return a draft with an input's values moved as in `filled_with`, its zeros and padding, and often its ties, kept.

    Sparse data stays sparse, and padding stays padding: moves of their own change them.
    """
    texture = scene.textures[index]
    if texture.is_plain:
        return filled_with(scene, draft, index, values)
    snaps = rng.chance(_SNAPPING)
    return filled_with(scene, draft, index, lambda x: texture.like(x, values(x), snaps))


def _snapped(scene: Scene, draft: Draft, index: int, values: Callable[[Array], Any], rng: Rng) -> Draft:
    """Return a draft with an input's values made anew, often at the levels of the seeds, where those have few."""
    texture = scene.textures[index]
    if not texture.has_ties or not rng.chance(_SNAPPING):
        return filled_with(scene, draft, index, values)
    return filled_with(scene, draft, index, lambda x: texture.snapped(np.asarray(values(x))))


def _gain(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    index = float_input(scene, draft, rng)
    factor = rng.between(0.5, 1.08)
    return None if index is None else _moved(scene, draft, index, lambda x: x * x.dtype.type(factor), rng)


def _offset(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    index = float_input(scene, draft, rng)
    if index is None:
        return None
    low, high, _ = _ends(scene, index, draft[index])
    shift = (high - low) * rng.between(-0.05, 0.05)
    return _moved(scene, draft, index, lambda x: x + np.asarray(shift).astype(x.dtype), rng)


def _noise(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Add noise at -40 dB of the seeds' span, or far less."""
    index = float_input(scene, draft, rng)
    if index is None:
        return None
    level = max(scene.domains[index].spread, 1e-6) * rng.pick((1e-2, 1e-3, 1e-5))
    return _moved(scene, draft, index, lambda x: x + rng.normal(x.shape, x.dtype) * x.dtype.type(level), rng)


def _last_digits(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Move values to floats next to them, one or two away: all of them, or a few."""
    index = float_input(scene, draft, rng)
    if index is None:
        return None
    eps, share = scene.domains[index].traits.eps, rng.pick((0.05, 0.5, 1.0))

    def values(x: Array) -> Array:
        steps = rng.integers(-2, 2, x.shape) * (rng.uniform(x.shape) < share)
        return np.asarray(x * (1 + steps.astype(x.dtype) * x.dtype.type(max(eps, float(np.finfo(x.dtype).eps)))))

    return _moved(scene, draft, index, values, rng)


def _with_axis(scene: Scene, draft: Draft, rng: Rng) -> tuple[int, int] | None:
    places = [i for i in scene.mutable if draft[i].size > 1]
    index = rng.pick(places) if places else None
    return None if index is None else (index, rng.below(draft[index].ndim))


def _roll(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    if (found := _with_axis(scene, draft, rng)) is None:
        return None
    index, axis = found
    return exchange(draft, index, np.roll(draft[index], 1 + rng.below(draft[index].shape[axis]), axis))


def _flip(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    if (found := _with_axis(scene, draft, rng)) is None:
        return None
    index, axis = found
    return exchange(draft, index, np.flip(draft[index], axis))


def _repeat_rows(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Reorder the slices along an axis, some of them twice."""
    if (found := _with_axis(scene, draft, rng)) is None:
        return None
    index, axis = found
    length = draft[index].shape[axis]
    order = np.arange(length)
    for _ in range(1 + rng.below(3)):
        order[rng.below(length)] = rng.below(length)
    return exchange(draft, index, np.take(draft[index], order, axis))


def _mix(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Mix two parents linearly: the middle between two seeds is often realistic, and on a decision's border."""
    index = float_input(scene, draft, rng)
    if index is None:
        return None
    donor = scene.fitted(index, other[index], draft[index].shape)
    share = rng.unit()
    if not scene.textures[index].is_plain and rng.chance(0.5):  # a mix of two sparse inputs has fewer zeros
        return filled_with(
            scene, draft, index, lambda x: np.where(rng.uniform(x.shape) < share, x, donor.astype(x.dtype))
        )
    return _moved(
        scene, draft, index, lambda x: x * x.dtype.type(share) + donor.astype(x.dtype) * x.dtype.type(1 - share), rng
    )


def _channels(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Give each channel a gain and an offset of its own: another lamp, another microphone."""
    index = float_input(scene, draft, rng)
    if index is None or draft[index].ndim < 2:
        return None
    axis = scene.textures[index].axis
    axis = channel_axis(draft[index]) if axis is None else axis
    axis = 1 if axis is None else axis
    shape = tuple(draft[index].shape[axis] if place == axis else 1 for place in range(draft[index].ndim))
    gain, shift = 0.4 + 0.8 * rng.uniform(shape, np.float64), rng.uniform(shape, np.float64) - 0.5
    low, high, _ = _ends(scene, index, draft[index])

    def values(x: Array) -> Array:
        return np.asarray(np.clip(x * gain + shift * (high - low) * rng.pick((0.1, 0.5, 1.0)), low, high))

    return _moved(scene, draft, index, values, rng)


def _ends(scene: Scene, index: int, array: Array) -> tuple[Any, Any, Any]:
    """Return the ends and the mean of the seeds' values: by channel, to broadcast over an array, or of the input."""
    domain = scene.domains[index]
    return scene.textures[index].ends(array) or (domain.seed_low, domain.seed_low + domain.spread, domain.mean)


def _contrast(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Stretch the values around their mean and cut them off at the seeds' ends: many meet the ends exactly."""
    index = float_input(scene, draft, rng)
    if index is None:
        return None
    factor = rng.pick((0.05, 0.3, 2.0, 4.0, 30.0))
    low, high, mean = _ends(scene, index, draft[index])
    centre = draft[index].astype(np.float64).mean() if np.ndim(mean) == 0 else mean
    return _moved(scene, draft, index, lambda x: np.clip(centre + (x - centre) * factor, low, high), rng)


def _steps(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Round to few levels, as stored pixels and samples are: ties and exact ends abound."""
    index = float_input(scene, draft, rng)
    if index is None or not scene.domains[index].spread:
        return None
    low, high, _ = _ends(scene, index, draft[index])
    step = np.maximum(high - low, 1e-30) / rng.pick((1, 3, 15, 255, 65535))
    return _moved(scene, draft, index, lambda x: np.clip(np.round((x - low) / step) * step + low, low, high), rng)


def _resample(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Crop a stretch of one axis and spread it over all of it, by nearest or linear resampling."""
    if (found := _with_axis(scene, draft, rng)) is None:
        return None
    index, axis = found
    length = draft[index].shape[axis]
    width = max(1, int(length * rng.between(0.3, 1.0)))
    start = rng.below(length - width + 1)
    places = start + np.arange(length) * (width / length)
    low = places.astype(np.int64)
    if scene.domains[index].traits.family != "float" or rng.chance(0.5):
        return exchange(draft, index, np.take(draft[index], low, axis))
    part = (places - low).reshape((-1,) + (1,) * (draft[index].ndim - 1 - axis))

    def values(x: Array) -> Array:
        one, two = np.take(x, low, axis), np.take(x, np.minimum(low + 1, length - 1), axis)
        return np.asarray(one + (two - one) * part)

    return _snapped(scene, draft, index, values, rng)


def _blank(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Blank a block at one level of the data: a covered corner, a silent stretch, padding."""
    index = float_input(scene, draft, rng)
    if index is None:
        return None
    level = np.broadcast_to(rng.pick((0.0, *_ends(scene, index, draft[index]))), draft[index].shape)
    array = draft[index].copy()
    region = region_of(array.shape, rng)
    array[region] = scene.fill(index, array[region], Fill("", lambda x: level[region].astype(x.dtype)))
    return exchange(draft, index, array)


NEARBY = (
    Mutator("gain", "near", 0.7, _gain, ("float",)),
    Mutator("offset", "near", 0.7, _offset, ("float",)),
    Mutator("noise", "near", 0.7, _noise, ("float",)),
    Mutator("last digits", "near", 0.4, _last_digits, ("float",)),
    Mutator("roll", "near", 0.5, _roll),
    Mutator("flip", "near", 0.5, _flip),
    Mutator("repeat rows", "near", 0.5, _repeat_rows),
    Mutator("channel gains", "near", 0.5, _channels, ("float",)),
    Mutator("contrast", "near", 0.4, _contrast, ("float",)),
    Mutator("few levels", "near", 0.4, _steps, ("float",)),
    Mutator("resample", "near", 0.4, _resample),
    Mutator("blank", "near", 0.4, _blank, ("float",)),
    Mutator("mix", "near", 1.0, _mix, ("float",)),
)
