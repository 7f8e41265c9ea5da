"""Links: what holds between the inputs of every seed: lengths within a size, a mask where there is padding, one shape.

The idea: a few plain relations are tried on all seeds, and those without an exception are believed; moves that change
one input of a link change the other as well, most of the time. Nothing of it is contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fuzzparity.case import Array
from fuzzparity.contract import Contract, Role
from fuzzparity.generate.texture import Texture

WITHIN, SORTED, ENDS, SHAPE, MARKS, COUNTS = "within", "sorted", "ends", "shape", "marks", "counts"
_LISTED = (Role.TOKENS, Role.INDICES, Role.MASK)


@dataclass(frozen=True, slots=True)
class Link:
    """Say that a relation holds in all seeds, by the places of the inputs in the contract.

    `kind`: `WITHIN` (values of `index` are 0 to the size of `other`'s `axis`), `SORTED` (values ascend from 0), `ENDS`
    (the last one is the size of `other`'s `axis`), `SHAPE` (both have one), `MARKS` (`index` is 0 where `other` is
    padded, else not), `COUNTS` (`index` holds how many places of each row of `other` are not padded).
    """

    kind: str
    index: int
    other: int = -1
    axis: int = -1


def links_of(contract: Contract, seeds: Sequence[Sequence[Array]], textures: Sequence[Texture]) -> tuple[Link, ...]:
    """Return the links that hold in all seeds, each a list of arrays in the contract's order."""
    if not seeds:
        return ()
    tried = (*_counting(contract), *_shapes(contract), *_of_padding(contract, textures))
    return tuple(link for link in tried if all(_holds(link, seed, textures) for seed in seeds))


def _counting(contract: Contract) -> Iterator[Link]:
    places = {item.name: place for place, item in enumerate(contract.inputs)}
    for index, item in enumerate(contract.inputs):
        if item.role is Role.OFFSETS:
            yield Link(SORTED, index)
        if item.counted is not None:
            other, axis = places[item.counted[0]], item.counted[1]
            yield Link(WITHIN, index, other, axis)
            if item.role is Role.OFFSETS:
                yield Link(ENDS, index, other, axis)


def _shapes(contract: Contract) -> Iterator[Link]:
    """Yield pairs with the first input of tokens or a mask; two plain inputs of one shape tell nothing."""
    listed = [index for index, item in enumerate(contract.inputs) if item.role in _LISTED and len(item.dims) > 1]
    for index, item in enumerate(contract.inputs):
        for other in listed:
            same_rank = len(item.dims) == len(contract.inputs[other].dims)
            if same_rank and other != index and (index not in listed or other < index):
                yield Link(SHAPE, index, other)
                break


def _of_padding(contract: Contract, textures: Sequence[Texture]) -> Iterator[Link]:
    padded = [place for place, texture in enumerate(textures) if texture.padding is not None]
    for index, item in enumerate(contract.inputs):
        for other in padded:
            if item.role is Role.MASK:
                yield Link(MARKS, index, other)
            elif item.role is Role.LENGTHS:
                yield Link(COUNTS, index, other)


def _holds(link: Link, seed: Sequence[Array], textures: Sequence[Texture]) -> bool:
    return _RULES[link.kind](link, seed, textures)


def _within(link: Link, seed: Sequence[Array], textures: Sequence[Texture]) -> bool:
    values, size = seed[link.index], seed[link.other].shape[link.axis]
    return not values.size or bool(values.min() >= 0 and values.max() <= size)


def _sorted(link: Link, seed: Sequence[Array], textures: Sequence[Texture]) -> bool:
    values = seed[link.index].reshape(-1)
    return not values.size or bool(values[0] == 0 and (np.diff(values) >= 0).all())


def _ends(link: Link, seed: Sequence[Array], textures: Sequence[Texture]) -> bool:
    values, size = seed[link.index].reshape(-1), seed[link.other].shape[link.axis]
    return len(values) > 1 and bool(values[-1] == size and size > 0)


def _one_shape(link: Link, seed: Sequence[Array], textures: Sequence[Texture]) -> bool:
    return seed[link.index].shape == seed[link.other].shape


def _marks(link: Link, seed: Sequence[Array], textures: Sequence[Texture]) -> bool:
    wanted = marked(seed[link.index], seed[link.other], textures[link.other])
    return wanted is not None and bool(((seed[link.index] != 0) == wanted).all())


def _counts(link: Link, seed: Sequence[Array], textures: Sequence[Texture]) -> bool:
    wanted = counted(seed[link.index], seed[link.other], textures[link.other])
    return wanted is not None and bool((seed[link.index] == wanted).all())


_RULES: dict[str, Callable[[Link, Sequence[Array], Sequence[Texture]], bool]] = {
    **{WITHIN: _within, SORTED: _sorted, ENDS: _ends, SHAPE: _one_shape, MARKS: _marks, COUNTS: _counts},
}


def marked(mask: Array, array: Array, texture: Texture) -> Array | None:
    """Return where an input is not padded, as flags of the mask's shape; None where they do not fit together."""
    places = texture.padding.places(array) if texture.padding is not None else None
    if places is None or places.ndim < mask.ndim:
        return None
    assert texture.padding is not None
    if places.ndim > mask.ndim:  # features: all of a place are padded or none
        places = np.moveaxis(places, texture.padding.axis, min(1, texture.padding.axis))
        places = places.reshape(*places.shape[: mask.ndim], -1)[..., 0]
    return ~places if places.shape == mask.shape else None


def counted(lengths: Array, array: Array, texture: Texture) -> Array | None:
    """Return how many places of each row are not padded, of the lengths' shape; None where they do not fit."""
    padding = texture.padding
    runs = padding.lengths(array) if padding is not None else None
    if runs is None or runs.size != lengths.size:
        return None
    assert padding is not None
    return np.asarray(array.shape[padding.axis] - runs).reshape(lengths.shape)
