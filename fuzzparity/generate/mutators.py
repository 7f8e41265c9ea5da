"""Mutators: the moves that a random recipe is made of, over shapes, values, parts of values, and two parents.

The idea: a mutator gets a draft (a list of arrays, never written in place) and returns a new one, or None where it
has nothing to do. It need not think about the contract: `Scene.settle` confines what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np

from fuzzparity.case import Array
from fuzzparity.generate.dtypes import filled, integer_ladder
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.values import Fill

Draft = list[Array]
Move = Callable[[Scene, Draft, Draft, Rng], Draft | None]  # scene, draft, second parent, chance
Region = tuple[slice | EllipsisType, ...]


@dataclass(frozen=True, slots=True)
class Mutator:
    """Name a move, the family it belongs to ("shape", "value", "local", "near", "cross"), and its starting weight."""

    name: str
    family: str
    weight: float
    move: Move


def _exchange(draft: Draft, index: int, array: Any) -> Draft:
    copy = list(draft)
    copy[index] = array
    return copy


def _numeric_input(scene: Scene, draft: Draft, rng: Rng) -> int | None:
    """Draw an input of floats or integers that has elements."""
    places = [i for i in scene.mutable if scene.domains[i].traits.family in ("float", "int") and draft[i].size]
    return rng.pick(places) if places else None


def _filled_with(scene: Scene, draft: Draft, index: int, name: str, values: Callable[[Array], Any]) -> Draft:
    return _exchange(draft, index, scene.fill(index, draft[index], Fill(name, values)))


# Shapes


def _draw_size(scene: Scene, symbol: str, current: int, rng: Rng) -> int:
    axis = next(axis for axis in scene.axes if axis.symbol == symbol)
    for _ in range(3):
        draw = rng.unit()
        if draw < 0.6:
            size = rng.pick(scene.menus[symbol])
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
    return scene.resize(draft, {axis.symbol: size}, offset=rng.below(3), edge=rng.chance(0.2))


def _resize_equals(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Move axes that are equal in the draft together: they may have to be, though no contract says so."""
    sizes = scene.sizes(draft)
    axis = rng.pick(scene.axes)
    size = _draw_size(scene, axis.symbol, sizes[axis.symbol], rng)
    equals = [a for a in scene.axes if sizes[a.symbol] == sizes[axis.symbol]]
    return scene.resize(draft, {a.symbol: a.nearest(size) for a in equals}, offset=rng.below(3))


def _resize_all(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    sizes = scene.sizes(draft)
    return scene.resize(draft, {a.symbol: _draw_size(scene, a.symbol, sizes[a.symbol], rng) for a in scene.axes})


def _grow(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Grow one axis by a power of two, at times to the cap."""
    axis = rng.pick(scene.axes)
    sizes = scene.sizes(draft)
    size = max(1, sizes[axis.symbol])
    for factor in (2 ** (1 + rng.below(8)), 4, 2):
        grown = scene.resize(draft, {axis.symbol: axis.nearest(size * factor + rng.below(2))})
        if grown is not None:
            return grown
    return None


# Values, whole inputs


def _classic(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    index = rng.pick(scene.mutable)
    return _exchange(draft, index, scene.fill(index, draft[index], rng.pick(scene.classics[index])))


def _classic_everywhere(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    name = rng.pick(scene.classics[rng.pick(scene.mutable)]).name
    copy = list(draft)
    for index in scene.mutable:
        for fill in scene.classics[index]:
            if fill.name == name:
                copy[index] = scene.fill(index, draft[index], fill)
    return copy


def _scale_inputs(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Scale every float input by its own power of ten."""
    copy = list(draft)
    for index in scene.mutable:
        traits = scene.domains[index].traits
        if traits.family == "float" and rng.chance(0.7):
            reach = np.log10(traits.high)
            factor = 10.0 ** rng.between(-reach / 2, reach * 0.8)
            copy[index] = scene.fill(index, draft[index], Fill("", lambda x, f=factor: x * x.dtype.type(f)))  # type: ignore[misc]
    return copy


def _fresh(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Draw all values anew: normal, uniform or of every magnitude for floats, any kind of range for integers."""
    index = rng.pick(scene.mutable)
    return _filled_with(scene, draft, index, "fresh", fresh_values(scene, index, rng))


def fresh_values(scene: Scene, index: int, rng: Rng) -> Callable[[Array], Any]:
    """Return a function that draws new values of an input in an array's shape and working type."""
    domain = scene.domains[index]
    if domain.is_flags and domain.traits.family != "float":
        probability = rng.pick((0.5, 0.1, 0.9, 0.02, 0.98))
        return lambda x: rng.uniform(x.shape) < probability
    if domain.traits.family == "int":
        low, high = _integer_range(scene, index, rng)
        return lambda x: rng.integers(low, high, x.shape)
    draw = rng.unit()
    scale, centre = max(domain.spread, 1e-3) / 4, domain.mean
    if draw < 0.4:
        return lambda x: rng.normal(x.shape, x.dtype) * x.dtype.type(scale) + x.dtype.type(centre)
    if draw < 0.7:
        start = x0 if (x0 := domain.low) is not None else centre - scale * 2
        width = domain.high - start if domain.high is not None else scale * 4
        return lambda x: rng.uniform(x.shape, x.dtype) * x.dtype.type(width) + x.dtype.type(start)
    low, high = np.log2(max(domain.traits.subnormal, 1e-300)), np.log2(domain.traits.high)
    centre2, reach = rng.between(low * 0.5, high * 0.7), rng.pick((4.0, 16.0, 64.0))
    return lambda x: rng.normal(x.shape, x.dtype) * np.exp2(rng.uniform(x.shape, x.dtype) * reach + centre2)


def _integer_range(scene: Scene, index: int, rng: Rng) -> tuple[int, int]:
    low, high = (int(bound) for bound in scene.domains[index].bounds)
    high = min(high, 2**63 - 1)
    reach = rng.pick((2, 4, 10, 100, 1000, 1 << 20, 1 << 54))
    if low >= 0:
        return low, min(high, low + reach)
    return max(low, -reach), min(high, reach)


def _near_constant(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Draw values at and around one constant of the graph."""
    index = _numeric_input(scene, draft, rng)
    if index is None or not scene.domains[index].constants:
        return None
    constant = rng.pick(scene.domains[index].constants)
    width = max(abs(constant), 1e-6) * rng.pick((1e-7, 1e-3, 0.1, 1.0))
    return _filled_with(scene, draft, index, "", lambda x: rng.normal(x.shape) * width + constant)


def _few_distinct(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Repeat few of the values that are there, so that ties and duplicates abound."""
    index = _numeric_input(scene, draft, rng)
    if index is None:
        return None
    count = 1 + rng.below(4)

    def values(x: Array) -> Array:
        flat = x.reshape(-1)
        few = flat[rng.integers(0, flat.size - 1, (count,))]
        return np.asarray(few[rng.integers(0, count - 1, x.shape)])

    return _filled_with(scene, draft, index, "", values)


def _ladder(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Draw integers from the ladder of extremes, in one input or in all."""
    places = [i for i in scene.mutable if scene.domains[i].traits.family == "int"]
    if not places:
        return None
    copy = list(draft)
    for index in places if rng.chance(0.5) else [rng.pick(places)]:
        low, high = (int(bound) for bound in scene.domains[index].bounds)
        rungs = integer_ladder(low, high) or (low,)
        few = [rng.pick(rungs) for _ in range(1 + rng.below(4))]
        wide = np.asarray(few, np.uint64 if min(few) >= 0 else np.int64).astype(draft[index].dtype)
        copy[index] = np.asarray(wide[rng.integers(0, len(few) - 1, draft[index].shape)])
    return copy


# Parts of values


def region_of(shape: tuple[int, ...], rng: Rng) -> Region:
    """Draw a part of an array: an element, a row, a channel, a line of the last axis, or a block."""
    draw = rng.unit()
    parts: list[slice | EllipsisType] = [slice(None)] * len(shape)
    places = list(range(len(shape)))
    if draw >= 0.35 and places:
        chosen = 0 if draw < 0.5 else min(1, len(shape) - 1) if draw < 0.6 else rng.pick(places)
        if draw < 0.7:
            at = rng.below(shape[chosen])
            return (*parts[:chosen], slice(at, at + 1), *parts[chosen + 1 :], ...)
        if draw < 0.8:
            places = places[:-1]
    for place in places:
        width = 1 if draw < 0.35 or 0.7 <= draw < 0.8 else 1 + rng.below(shape[place])
        start = rng.below(shape[place] - width + 1)
        parts[place] = slice(start, start + width)
    return (*parts, ...)


def _patch(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Apply a classic fill, or fresh values, to a part of one input."""
    index = rng.pick(scene.mutable)
    if draft[index].size == 0:
        return None
    array = draft[index].copy()
    region = region_of(array.shape, rng)
    fresh = rng.chance(0.25)
    fill = Fill("", fresh_values(scene, index, rng)) if fresh else rng.pick(scene.classics[index])
    array[region] = scene.fill(index, array[region], fill)
    return _exchange(draft, index, array)


def _set_elements(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Change one to four elements a little or to a telling value."""
    index = _numeric_input(scene, draft, rng)
    if index is None:
        return None
    domain = scene.domains[index]
    array = draft[index].copy()
    flat = array.reshape(-1)
    for _ in range(1 + rng.below(4)):
        at = rng.below(flat.size)
        flat[at] = filled((), _telling_value(domain.bounds, domain.constants, float(flat[at]), rng), domain.traits)
    return _exchange(draft, index, array)


def _telling_value(bounds: tuple[float, float], constants: tuple[float, ...], current: float, rng: Rng) -> float | int:
    draw = rng.unit()
    if not np.isfinite(current) or draw < 0.2:
        return rng.pick((0, 1, -1, 2, -2, 3))
    if draw < 0.3:
        return rng.pick(bounds)
    if draw < 0.45 and constants:
        return rng.pick(constants) * rng.pick((1.0, 1.001, 0.999, -1.0))
    if draw < 0.7:
        return current + rng.pick((1.0, -1.0, 0.5, -0.5))
    return current * rng.pick((-1.0, 2.0, 10.0, 0.1, 1e3, 1e-3, 1.0 + 2**-20))


# Near the data


def _gain(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    index = _float_input(scene, draft, rng)
    factor = rng.between(0.5, 1.08)
    return None if index is None else _filled_with(scene, draft, index, "", lambda x: x * x.dtype.type(factor))


def _offset(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    index = _float_input(scene, draft, rng)
    if index is None:
        return None
    shift = scene.domains[index].spread * rng.between(-0.05, 0.05)
    return _filled_with(scene, draft, index, "", lambda x: x + x.dtype.type(shift))


def _noise(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Add noise at -40 dB of the seeds' span, or far less."""
    index = _float_input(scene, draft, rng)
    if index is None:
        return None
    level = max(scene.domains[index].spread, 1e-6) * rng.pick((1e-2, 1e-3, 1e-5))
    return _filled_with(scene, draft, index, "", lambda x: x + rng.normal(x.shape, x.dtype) * x.dtype.type(level))


def _float_input(scene: Scene, draft: Draft, rng: Rng) -> int | None:
    places = [i for i in scene.mutable if scene.domains[i].traits.family == "float" and draft[i].size]
    return rng.pick(places) if places else None


def _with_axis(scene: Scene, draft: Draft, rng: Rng) -> tuple[int, int] | None:
    places = [i for i in scene.mutable if draft[i].size > 1]
    index = rng.pick(places) if places else None
    return None if index is None else (index, rng.below(draft[index].ndim))


def _roll(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    if (found := _with_axis(scene, draft, rng)) is None:
        return None
    index, axis = found
    return _exchange(draft, index, np.roll(draft[index], 1 + rng.below(draft[index].shape[axis]), axis))


def _flip(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    if (found := _with_axis(scene, draft, rng)) is None:
        return None
    index, axis = found
    return _exchange(draft, index, np.flip(draft[index], axis))


def _repeat_rows(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Reorder the slices along an axis, some of them twice."""
    if (found := _with_axis(scene, draft, rng)) is None:
        return None
    index, axis = found
    length = draft[index].shape[axis]
    order = np.arange(length)
    for _ in range(1 + rng.below(3)):
        order[rng.below(length)] = rng.below(length)
    return _exchange(draft, index, np.take(draft[index], order, axis))


# Two parents


def _swap_inputs(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Take some inputs from the second parent, resized to fit."""
    copy = list(draft)
    for index in scene.mutable:
        if rng.chance(0.5):
            copy[index] = scene.fitted(index, other[index], draft[index].shape)
    return copy


def _swap_patch(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    index = rng.pick(scene.mutable)
    if draft[index].size == 0:
        return None
    array = draft[index].copy()
    region = region_of(array.shape, rng)
    array[region] = scene.fitted(index, other[index], array.shape)[region]
    return _exchange(draft, index, array)


def _mix(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Mix two parents linearly: the middle between two seeds is often realistic, and on a decision's border."""
    index = _float_input(scene, draft, rng)
    if index is None:
        return None
    donor = scene.fitted(index, other[index], draft[index].shape)
    share = rng.unit()
    return _filled_with(
        scene, draft, index, "", lambda x: x * x.dtype.type(share) + donor.astype(x.dtype) * x.dtype.type(1 - share)
    )


MUTATORS = (
    Mutator("resize one axis", "shape", 3.0, _resize_one),
    Mutator("resize equal axes", "shape", 2.0, _resize_equals),
    Mutator("resize all axes", "shape", 1.0, _resize_all),
    Mutator("grow", "shape", 0.3, _grow),
    Mutator("classic fill", "value", 3.0, _classic),
    Mutator("classic fill everywhere", "value", 1.0, _classic_everywhere),
    Mutator("scale inputs", "value", 1.0, _scale_inputs),
    Mutator("fresh values", "value", 2.0, _fresh),
    Mutator("near a constant", "value", 1.0, _near_constant),
    Mutator("few distinct values", "value", 1.0, _few_distinct),
    Mutator("integer ladder", "value", 1.5, _ladder),
    Mutator("patch", "local", 3.0, _patch),
    Mutator("set elements", "local", 2.0, _set_elements),
    Mutator("gain", "near", 0.7, _gain),
    Mutator("offset", "near", 0.7, _offset),
    Mutator("noise", "near", 0.7, _noise),
    Mutator("roll", "near", 0.5, _roll),
    Mutator("flip", "near", 0.5, _flip),
    Mutator("repeat rows", "near", 0.5, _repeat_rows),
    Mutator("swap inputs", "cross", 0.7, _swap_inputs),
    Mutator("swap patch", "cross", 0.7, _swap_patch),
    Mutator("mix", "near", 1.0, _mix),
)


def mutators_for(scene: Scene) -> tuple[Mutator, ...]:
    """Return the mutators that can do something on this contract."""
    families = {scene.domains[index].traits.family for index in scene.mutable}
    impossible = set()
    if "float" not in families:
        impossible |= {"scale inputs", "gain", "offset", "noise", "mix"}
    if not families & {"float", "int"}:
        impossible |= {"near a constant", "few distinct values", "set elements"}
    if "int" not in families:
        impossible.add("integer ladder")
    if not scene.contract.constants:
        impossible.add("near a constant")
    kept = (m for m in MUTATORS if m.name not in impossible and (scene.axes if m.family == "shape" else scene.mutable))
    return tuple(kept)
