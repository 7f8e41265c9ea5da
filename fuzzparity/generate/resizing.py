"""Resizing: the moves over shapes.

The idea: sizes come from the menu of an axis, from multiples of the periods that model and code know, and from steps
and powers of two; two axes at a time give each other's size and extreme aspect ratios.
"""

from __future__ import annotations

import numpy as np

from fuzzparity.generate.moves import Draft, Mutator
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.shapes import Axis, shapes_for

_APART_SHARE = 0.25  # of resized drafts in which inputs of one shape in all seeds part


def _draw_size(scene: Scene, symbol: str, current: int, rng: Rng) -> int:
    axis = next(axis for axis in scene.axes if axis.symbol == symbol)
    for _ in range(3):
        draw = rng.unit()
        if draw < 0.55:
            size = rng.pick(scene.menus[symbol])
        elif draw < 0.7 and scene.periods:
            period = rng.pick(scene.periods)
            size = axis.nearest(max(0, period * int(2.0 ** rng.between(0.0, 5.0)) + rng.below(3) - 1))
        elif draw < 0.85:
            size = axis.nearest(max(0, current + rng.sign() * (1 + rng.below(4))))
        else:
            size = axis.nearest(int(2.0 ** rng.between(0.0, 9.0)))
        if size != current and rng.chance(scene.willingness(symbol, size)):
            return size
    return current


def _resize_one(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    axis = rng.pick(scene.axes)
    size = _draw_size(scene, axis.symbol, scene.sizes(draft)[axis.symbol], rng)
    return scene.resize(draft, _together(scene, {axis.symbol: size}, rng), offset=rng.below(3), edge=rng.chance(0.2))


def _together(scene: Scene, wanted: dict[str, int], rng: Rng) -> dict[str, int]:
    """Return wished-for sizes with those of inputs that share their shape in all seeds, most of the time."""
    if not any(scene.tied(symbol) for symbol in wanted) or rng.chance(_APART_SHARE):
        return wanted
    axes, together, led = {axis.symbol: axis for axis in scene.axes}, dict(wanted), set[str]()
    for symbol, size in wanted.items():
        if symbol not in led:
            together |= {other: axes[other].nearest(size) for other in scene.tied(symbol)}
            led.update(scene.tied(symbol))
    return together


def _resize_equals(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Move axes that are equal in the draft together: they may have to be, though no contract says so."""
    sizes = scene.sizes(draft)
    axis = rng.pick(scene.axes)
    size = _draw_size(scene, axis.symbol, sizes[axis.symbol], rng)
    equals = [a for a in scene.axes if sizes[a.symbol] == sizes[axis.symbol]]
    return scene.resize(draft, {a.symbol: a.nearest(size) for a in equals}, offset=rng.below(3))


def _resize_all(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    sizes = scene.sizes(draft)
    wanted = {a.symbol: _draw_size(scene, a.symbol, sizes[a.symbol], rng) for a in scene.axes}
    return scene.resize(draft, _together(scene, wanted, rng))


def _resize_to_periods(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Bring every axis to a multiple of one period, or one more or less than that."""
    if not scene.periods:
        return None
    period = rng.pick(scene.periods)
    wanted = {
        axis.symbol: axis.nearest(max(0, period * int(2.0 ** rng.between(0.0, 3.0)) + rng.below(3) - 1))
        for axis in scene.axes
        if axis.symbol != scene.contract.batch or rng.chance(0.3)
    }
    return scene.resize(draft, wanted)


def _grow(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Grow one axis by a power of two, at times to the cap."""
    axis = rng.pick(scene.axes)
    sizes = scene.sizes(draft)
    size = max(1, sizes[axis.symbol])
    for factor in (2 ** (1 + rng.below(8)), 4, 2):
        wanted = {axis.symbol: axis.nearest(size * factor + rng.below(2))}
        grown = scene.resize(draft, _together(scene, wanted, rng))
        if grown is not None:
            return grown
    return None


def _two_axes(scene: Scene, rng: Rng) -> tuple[Axis, Axis] | None:
    if len(scene.axes) < 2:
        return None
    first = rng.below(len(scene.axes))
    second = (first + 1 + rng.below(len(scene.axes) - 1)) % len(scene.axes)
    return scene.axes[first], scene.axes[second]


def _swap_sizes(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Give two axes each other's size, as of a picture that stands upright instead of lying."""
    pair = _two_axes(scene, rng)
    return None if pair is None else swapped(scene, draft, *pair)


def swapped(scene: Scene, draft: Draft, first: Axis, second: Axis) -> Draft | None:
    """Return the draft with two axes' sizes exchanged, inside the contract; values are those of the transpose."""
    sizes = scene.sizes(draft)
    wanted = {
        first.symbol: first.nearest(sizes[second.symbol]),
        second.symbol: second.nearest(sizes[first.symbol]),
    }
    turned = list(draft)
    for index in scene.mutable:
        places = [place for axis in (first, second) for owner, place in axis.places if owner == index]
        if len(places) == 2:
            turned[index] = np.swapaxes(draft[index], *places)
    shapes = shapes_for(scene.contract, {**sizes, **wanted})
    if all(array.shape == shape for array, shape in zip(turned, shapes, strict=True)):
        return turned
    return scene.resize(draft, wanted)


def _stretch(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Make one axis longer and another shorter by about the same factor: an extreme aspect ratio."""
    pair = _two_axes(scene, rng)
    if pair is None:
        return None
    sizes, factor = scene.sizes(draft), 2.0 ** rng.between(0.5, 5.0)
    longer, shorter = pair
    wanted = {
        longer.symbol: longer.nearest(round(max(1, sizes[longer.symbol]) * factor) + rng.below(2)),
        shorter.symbol: shorter.nearest(max(1, round(sizes[shorter.symbol] / factor)) + rng.below(2)),
    }
    return scene.resize(draft, wanted)


RESIZING = (
    Mutator("resize one axis", "shape", 3.0, _resize_one),
    Mutator("resize equal axes", "shape", 2.0, _resize_equals),
    Mutator("resize all axes", "shape", 1.0, _resize_all),
    Mutator("resize to periods", "shape", 1.0, _resize_to_periods),
    Mutator("swap sizes", "shape", 0.3, _swap_sizes),
    Mutator("stretch", "shape", 0.5, _stretch),
    Mutator("grow", "shape", 0.3, _grow),
)
