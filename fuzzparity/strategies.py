"""Strategies: Hypothesis draws recipes for inputs of a target, and fuzzparity's own generator makes them.

The idea: Hypothesis is good at small choices and at shrinking them, and no engine for tensors. A recipe is a handful
of choices (sizes, a kind of values for each input, where, a power of ten, a seed of chance); the arrays follow from it.
Recipes shrink to small sizes, to values of the target's own inputs, to zeros and ones, and to scale 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuzzparity.case import Array, Case
from fuzzparity.errors import InvalidCase
from fuzzparity.generate.contract import Valid, breach
from fuzzparity.generate.moves import region_of
from fuzzparity.generate.mutators import fresh_values
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.shapes import shapes_for
from fuzzparity.generate.values import Fill
from fuzzparity.parity import Named, OpenTarget, opened_target

try:
    from hypothesis import strategies as st
except ImportError as error:  # it is no dependency of a campaign
    raise ImportError("fuzzparity.strategies needs Hypothesis: pip install hypothesis") from error

MOST_ELEMENTS = 1 << 14
_MOST_BYTES = 64 << 20
_GROUPS = ("seed", "classic", "fresh", "nonfinite")  # plainest first: Hypothesis shrinks toward the front
_SHARES = (0, 1, 1, 1, 2, 2, 2, 3)  # of them in drawn recipes
_PLACES = ("everywhere", "everywhere", "in a part")
_EXPONENTS = (0, 0, 0, 0, 0, 0, 1, -1, 2, -2, 3, -3, 5, -5, 8, -8, 15, -15, 25, -25)
_MOST_SIZE = 300  # of a free dim that nothing says more about


@dataclass(frozen=True, slots=True)
class Values:
    """Say how the values of one input are made: a kind of values, over all of it or a part, times a power of ten.

    `group`: "seed" (as in a seed), "classic" (a fill by number), "fresh" (drawn anew) or "nonfinite" (a fill by number
    that plants NaN and infinities). Numbers wrap around where an input has fewer fills.
    """

    group: str = "seed"
    number: int = 0
    place: str = "everywhere"
    exponent: int = 0


@dataclass(frozen=True, slots=True)
class Recipe:
    """Say how inputs are made: sizes of the free dims by symbol, values by input, and one seed for all chance.

    `dtypes`: the build, of a target that asks for several ("image=float16").
    """

    sizes: Mapping[str, int]
    values: Mapping[str, Values]
    rng_seed: int = 0
    dtypes: tuple[str, ...] = ()


def inputs(
    target: Named, *, nonfinite: bool = True, max_elements: int = MOST_ELEMENTS
) -> st.SearchStrategy[dict[str, Array]]:
    """Return a strategy for inputs of a target, inside its contract: name -> array, as `assert_parity` takes them.

    `nonfinite`: plant NaN and infinities in some, where the contract allows them. `max_elements`: of all inputs
    together. The target is opened when the first test that uses the strategy starts.
    """
    return recipes(target, nonfinite=nonfinite, max_elements=max_elements).map(
        lambda recipe: dict(made(target, recipe, max_elements=max_elements).inputs)
    )


def recipes(target: Named, *, nonfinite: bool = True, max_elements: int = MOST_ELEMENTS) -> st.SearchStrategy[Recipe]:
    """Return a strategy for recipes, of which `made` makes the inputs."""
    return st.deferred(lambda: _recipes(opened_target(target), nonfinite, max_elements))


def made(target: Named, recipe: Recipe, *, max_elements: int = MOST_ELEMENTS) -> Case:
    """Return the inputs of a recipe: the same ones for the same recipe and target, on every machine."""
    kitchen = _kitchen(opened_target(target), recipe.dtypes, max_elements)
    return kitchen.case(recipe)


def _recipes(opened: OpenTarget, nonfinite: bool, max_elements: int) -> st.SearchStrategy[Recipe]:
    def of(dtypes: tuple[str, ...]) -> st.SearchStrategy[Recipe]:
        kitchen = _kitchen(opened, dtypes, max_elements)
        sizes = {axis.symbol: kitchen.sizes(axis.symbol) for axis in kitchen.scene.axes}
        values = {kitchen.scene.names[index]: kitchen.values(index, nonfinite) for index in kitchen.scene.mutable}
        drawn = st.builds(
            Recipe,
            st.fixed_dictionaries(sizes),
            st.fixed_dictionaries(values),
            st.integers(0, 2**32 - 1),
            st.just(dtypes),
        )
        return drawn if kitchen.valid is None else drawn.map(kitchen.mended).filter(kitchen.is_valid)

    return of(opened.dtypes[0]) if len(opened.dtypes) == 1 else st.sampled_from(opened.dtypes).flatmap(of)


class _Kitchen:
    """Hold what recipes of one build are drawn from and made of."""

    def __init__(self, opened: OpenTarget, dtypes: tuple[str, ...], max_elements: int) -> None:
        """Read the contract and the seeds once."""
        build = opened.build(dtypes)
        most = max(max_elements, *(seed.elements for seed in build.seeds))
        self.dtypes = dtypes
        self.scene = Scene(build.contract, build.seeds, most, _MOST_BYTES)
        if not self.scene.seeds:
            raise InvalidCase(
                f"the target's inputs cannot be brought inside its contract: {_why(build.contract, build.seeds)}"
            )
        self._has_nonfinite_seeds = not all(seed.is_finite for seed in build.seeds)
        self.valid: Valid | None = opened.loaded.target.valid
        self._contract = build.contract

    # What is drawn

    def sizes(self, symbol: str) -> st.SearchStrategy[int]:
        """Return sizes of a free dim: any, or one that the model and experience call telling.

        Both are drawn, so that a telling size shrinks to any other.
        """
        axis = next(axis for axis in self.scene.axes if axis.symbol == symbol)
        others = sum(array.size for array in self.scene.seeds[0]) // max(1, axis.size)
        most = max(axis.size, min(self.scene.max_elements // max(1, others), max(_MOST_SIZE, 2 * axis.size)))
        menu = [size for size in self.scene.menus[symbol] if size <= most] or [axis.nearest(axis.size)]
        low, high = min(*menu, axis.nearest(0)), max(menu)
        telling = st.sampled_from([None, None, *menu])
        return st.builds(
            lambda free, told: axis.nearest(free if told is None else told), st.integers(low, high), telling
        )

    def values(self, index: int, nonfinite: bool) -> st.SearchStrategy[Values]:
        """Return kinds of values of one input."""
        groups = [_GROUPS[share] for share in _SHARES]
        if not (nonfinite and self.scene.nonfinite[index]):
            groups = [group for group in groups if group != "nonfinite"]
        is_float = self.scene.domains[index].traits.family == "float"
        return st.builds(
            Values,
            st.sampled_from(groups),
            st.integers(0, len(self.scene.classics[index]) - 1),
            st.sampled_from(_PLACES),
            st.sampled_from(_EXPONENTS) if is_float else st.just(0),
        )

    def mended(self, recipe: Recipe) -> Recipe:
        """Return a recipe that the target's own `valid` takes: this one, else with a seed's sizes or values."""
        tried = (recipe, replace(recipe, sizes={}), replace(recipe, values={}))
        return next((one for one in tried if self.is_valid(one)), recipe)

    def is_valid(self, recipe: Recipe) -> bool:
        """Tell whether the target's own `valid` takes what a recipe makes."""
        return not breach(self._contract, self.case(recipe), self.valid)

    # What is made

    def case(self, recipe: Recipe) -> Case:
        """Return the inputs of a recipe, inside the contract."""
        scene, rng = self.scene, Rng(recipe.rng_seed, 0)
        with np.errstate(all="ignore"):
            draft = self._resized(recipe.sizes, rng)
            for index in scene.mutable:
                values = recipe.values.get(scene.names[index], Values())
                draft[index] = self._filled(index, draft[index], values, rng)
            keeps = self._has_nonfinite_seeds or any(one.group == "nonfinite" for one in recipe.values.values())
            settled = scene.settle(draft, keep_nonfinite=keeps)
            return scene.case(scene.seeds[0] if settled is None else settled)  # None: nothing for an index to point at

    def _resized(self, wanted: Mapping[str, int], rng: Rng) -> list[Array]:
        """Return a seed's arrays at wanted sizes, the largest of which is halved as long as a cap is passed."""
        scene = self.scene
        seed = list(rng.pick(scene.seeds)) if len(scene.seeds) > 1 and rng.chance(0.5) else list(scene.seeds[0])
        axes = {axis.symbol: axis for axis in scene.axes}
        sizes = {symbol: axes[symbol].nearest(size) for symbol, size in wanted.items() if symbol in axes}
        while sizes and not scene.fits(shapes_for(self._contract, {**scene.sizes(seed), **sizes})):
            largest = max(sizes, key=lambda symbol: sizes[symbol])
            smaller = axes[largest].nearest(sizes[largest] // 2)
            if smaller >= sizes[largest]:
                return seed
            sizes[largest] = smaller
        return scene.resize(seed, sizes, exactly=True) or seed

    def _filled(self, index: int, array: Array, values: Values, rng: Rng) -> Array:
        scene = self.scene
        if values.group != "seed" and array.size:
            fill = self._fill(index, values, rng)
            region: Any = region_of(array.shape, rng) if values.place == "in a part" else (...,)
            array = array.copy(order="C")
            array[region] = scene.fill(index, array[region], fill)
        if values.exponent and scene.domains[index].traits.family == "float":
            array = scene.fill(index, array, Fill("scaled", _scaled(values.exponent)))
        return array

    def _fill(self, index: int, values: Values, rng: Rng) -> Fill:
        fills = {"classic": self.scene.classics[index], "nonfinite": self.scene.nonfinite[index]}.get(values.group, ())
        return fills[values.number % len(fills)] if fills else Fill("fresh", fresh_values(self.scene, index, rng))


def _scaled(exponent: int) -> Callable[[Array], Array]:
    return lambda x: np.asarray(x * x.dtype.type(10.0**exponent))


def _why(contract: Any, seeds: tuple[Case, ...]) -> str:
    return breach(contract, seeds[0]) or "an index input has nothing to point at"


@functools.lru_cache(maxsize=64)
def _kitchen(opened: OpenTarget, dtypes: tuple[str, ...], max_elements: int) -> _Kitchen:
    """Return the kitchen of a build, made once for each open target."""
    return _Kitchen(opened, dtypes or opened.dtypes[0], max_elements)
