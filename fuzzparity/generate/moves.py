"""Moves: what a mutator is, and the small pieces that all of them are made of.

The idea: a mutator gets a draft (a list of arrays, never written in place) and returns a new one, or None where it
has nothing to do. It need not think about the contract: `Scene.settle` confines what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

from fuzzparity.case import Array
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.values import Fill

Draft = list[Array]
Move = Callable[[Scene, Draft, Draft, Rng], Draft | None]  # scene, draft, second parent, chance
Region = tuple[slice | EllipsisType, ...]


@dataclass(frozen=True, slots=True)
class Mutator:
    """Name a move, the family it belongs to ("shape", "value", "local", "near", "cross"), and its starting weight.

    `needs`: families of dtype of which the contract must have one; () for any.
    """

    name: str
    family: str
    weight: float
    move: Move
    needs: tuple[str, ...] = ()


def exchange(draft: Draft, index: int, array: Any) -> Draft:
    """Return a draft with one input exchanged."""
    copy = list(draft)
    copy[index] = array
    return copy


def numeric_input(scene: Scene, draft: Draft, rng: Rng) -> int | None:
    """Draw an input of floats or integers that has elements."""
    places = [i for i in scene.mutable if scene.domains[i].traits.family in ("float", "int") and draft[i].size]
    return rng.pick(places) if places else None


def filled_with(scene: Scene, draft: Draft, index: int, values: Callable[[Array], Any]) -> Draft:
    """Return a draft with one input's values replaced by a function of them in the working type."""
    return exchange(draft, index, scene.fill(index, draft[index], Fill("", values)))


def float_input(scene: Scene, draft: Draft, rng: Rng) -> int | None:
    """Draw an input of floats that has elements."""
    places = [i for i in scene.mutable if scene.domains[i].traits.family == "float" and draft[i].size]
    return rng.pick(places) if places else None


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
