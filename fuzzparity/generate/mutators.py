"""Mutators: the moves that a random recipe is made of; here those over values, whole or in parts, and two parents.

The idea: see `moves`. What a move draws is of the kinds that the sweep writes one at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzzparity.case import Array
from fuzzparity.generate.dtypes import filled, integer_ladder
from fuzzparity.generate.moves import Draft, Mutator, exchange, filled_with, numeric_input, region_of
from fuzzparity.generate.nearby import NEARBY
from fuzzparity.generate.resizing import RESIZING
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.roles import ROLE_MOVES, roles_of
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.texturing import texture_moves
from fuzzparity.generate.thresholds import THRESHOLDS
from fuzzparity.generate.values import Fill

# Values, whole inputs


def _classic(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    index = rng.pick(scene.mutable)
    return exchange(draft, index, scene.fill(index, draft[index], rng.pick(scene.classics[index])))


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
    return filled_with(scene, draft, index, fresh_values(scene, index, rng))


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
    index = numeric_input(scene, draft, rng)
    if index is None or not scene.domains[index].constants:
        return None
    constant = rng.pick(scene.domains[index].constants)
    width = max(abs(constant), 1e-6) * rng.pick((1e-7, 1e-3, 0.1, 1.0))
    return filled_with(scene, draft, index, lambda x: rng.normal(x.shape) * width + constant)


def _few_distinct(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Repeat few of the values that are there, so that ties and duplicates abound."""
    index = numeric_input(scene, draft, rng)
    if index is None:
        return None
    count = 1 + rng.below(4)

    def values(x: Array) -> Array:
        flat = x.reshape(-1)
        few = flat[rng.integers(0, flat.size - 1, (count,))]
        return np.asarray(few[rng.integers(0, count - 1, x.shape)])

    return filled_with(scene, draft, index, values)


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
    return exchange(draft, index, array)


def _set_elements(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Change one to four elements a little or to a telling value."""
    index = numeric_input(scene, draft, rng)
    if index is None:
        return None
    domain = scene.domains[index]
    array = draft[index].copy()
    flat = array.reshape(-1)
    for _ in range(1 + rng.below(4)):
        at = rng.below(flat.size)
        flat[at] = filled((), _telling_value(domain.bounds, domain.constants, float(flat[at]), rng), domain.traits)
    return exchange(draft, index, array)


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
    return exchange(draft, index, array)


VALUES = (
    Mutator("classic fill", "value", 3.0, _classic),
    Mutator("classic fill everywhere", "value", 1.0, _classic_everywhere),
    Mutator("scale inputs", "value", 1.0, _scale_inputs, ("float",)),
    Mutator("fresh values", "value", 2.0, _fresh),
    Mutator("near a constant", "value", 1.0, _near_constant, ("float", "int")),
    Mutator("few distinct values", "value", 1.0, _few_distinct, ("float", "int")),
    Mutator("integer ladder", "value", 1.5, _ladder, ("int",)),
    Mutator("patch", "local", 3.0, _patch),
    Mutator("set elements", "local", 2.0, _set_elements, ("float", "int")),
    Mutator("swap inputs", "cross", 0.7, _swap_inputs),
    Mutator("swap patch", "cross", 0.7, _swap_patch),
)
MUTATORS = (*RESIZING, *VALUES, *THRESHOLDS, *NEARBY)
_OF_CONSTANTS = frozenset({"near a constant", "reach a constant"})


def mutators_for(scene: Scene) -> tuple[Mutator, ...]:
    """Return the mutators that can do something on this contract."""
    families = {scene.domains[index].traits.family for index in scene.mutable}
    idle = set() if scene.contract.constants else set(_OF_CONSTANTS)
    idle |= set() if scene.periods else {"resize to periods"}
    idle |= set() if len(scene.axes) > 1 else {"swap sizes", "stretch"}
    roles = roles_of(scene)
    kept = [*(mutator for role, mutator in ROLE_MOVES if role in roles), *texture_moves(scene)]
    for mutator in MUTATORS:
        has_place = scene.axes if mutator.family == "shape" else scene.mutable
        has_dtype = not mutator.needs or families & set(mutator.needs)
        if has_place and has_dtype and mutator.name not in idle:
            kept.append(mutator)
    return tuple(kept)
