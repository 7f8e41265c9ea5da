"""Nearby: the moves that leave data as it could have been met: louder, darker, shifted, cropped, said in other words.

The idea: what a user meets is what the seeds show, moved a little; faults found here are the first to be told.
"""

from __future__ import annotations

import numpy as np

from fuzzparity.generate.moves import Draft, Mutator, exchange, filled_with, float_input
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene


def _gain(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    index = float_input(scene, draft, rng)
    factor = rng.between(0.5, 1.08)
    return None if index is None else filled_with(scene, draft, index, lambda x: x * x.dtype.type(factor))


def _offset(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    index = float_input(scene, draft, rng)
    if index is None:
        return None
    shift = scene.domains[index].spread * rng.between(-0.05, 0.05)
    return filled_with(scene, draft, index, lambda x: x + x.dtype.type(shift))


def _noise(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Add noise at -40 dB of the seeds' span, or far less."""
    index = float_input(scene, draft, rng)
    if index is None:
        return None
    level = max(scene.domains[index].spread, 1e-6) * rng.pick((1e-2, 1e-3, 1e-5))
    return filled_with(scene, draft, index, lambda x: x + rng.normal(x.shape, x.dtype) * x.dtype.type(level))


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
    return filled_with(
        scene, draft, index, lambda x: x * x.dtype.type(share) + donor.astype(x.dtype) * x.dtype.type(1 - share)
    )


NEARBY = (
    Mutator("gain", "near", 0.7, _gain, ("float",)),
    Mutator("offset", "near", 0.7, _offset, ("float",)),
    Mutator("noise", "near", 0.7, _noise, ("float",)),
    Mutator("roll", "near", 0.5, _roll),
    Mutator("flip", "near", 0.5, _flip),
    Mutator("repeat rows", "near", 0.5, _repeat_rows),
    Mutator("mix", "near", 1.0, _mix, ("float",)),
)
