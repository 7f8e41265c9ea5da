"""Texturing: near moves over what texture the seeds show: more or fewer zeros, more ties, padding moved.

The idea: a row with one place more of padding, on the other side or with none, is as real as the seeds; masks and
lengths that follow the padding in every seed follow it here, most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fuzzparity.case import Array
from fuzzparity.generate.dtypes import cast
from fuzzparity.generate.links import COUNTS, MARKS
from fuzzparity.generate.moves import Draft, Mutator, exchange
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.texture import Padding, as_rows

Build = Callable[[Draft], Draft | None]
_FOLLOWING = 0.85  # share of moves of padding that masks and lengths follow
_OTHER_SIDE = 0.25


def texture_moves(scene: Scene) -> Iterator[Mutator]:
    """Yield the moves for which the seeds show a texture."""
    textures = [scene.textures[index] for index in scene.mutable]
    if any(texture.is_sparse for texture in textures):
        yield Mutator("more or fewer zeros", "near", 1.0, _zeros)
    if any(texture.has_ties for texture in textures):
        yield Mutator("more ties", "near", 0.7, _ties)
    if any(texture.padding is not None for texture in textures):
        yield Mutator("move padding", "near", 1.5, _move_padding)


def _zeros(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Make some values zero, or some zeros values that stand elsewhere."""
    places = [index for index in scene.mutable if scene.textures[index].is_sparse and draft[index].size]
    if not places:
        return None
    index = rng.pick(places)
    array = draft[index].copy()
    flat = array.reshape(-1)
    values = flat[flat != 0]
    chosen = rng.uniform(flat.shape) < rng.pick((0.02, 0.2, 0.6))
    if rng.chance(0.5) or not len(values):
        flat[chosen] = 0
    else:
        chosen &= flat == 0
        flat[chosen] = values[rng.integers(0, len(values) - 1, (int(chosen.sum()),))]
    return exchange(draft, index, array)


def _ties(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Write values over others of the same input, so that more of them tie; all are at levels of the seeds then."""
    places = [index for index in scene.mutable if scene.textures[index].has_ties and draft[index].size > 1]
    if not places:
        return None
    index = rng.pick(places)
    traits = scene.domains[index].traits
    array = cast(scene.textures[index].snapped(draft[index].astype(traits.working)), traits).copy()
    flat = array.reshape(-1)
    chosen = rng.uniform(flat.shape) < rng.pick((0.05, 0.3, 0.9))
    few = flat[rng.integers(0, flat.size - 1, (1 + rng.below(4),))]
    flat[chosen] = few[rng.integers(0, len(few) - 1, (int(chosen.sum()),))]
    return exchange(draft, index, array)


def _move_padding(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Give rows padding of another length: less, more, none, all but one place, or at the other end."""
    places = [index for index in scene.mutable if scene.textures[index].padding is not None and draft[index].size]
    if not places:
        return None
    index = rng.pick(places)
    padding = scene.textures[index].padding
    assert padding is not None
    if (now := padding.lengths(draft[index])) is None:
        return None
    counts = _new_counts(now, draft[index].shape[padding.axis], rng)
    is_left = padding.is_left ^ rng.chance(_OTHER_SIDE)
    return _padded(scene, draft, index, counts, is_left, rng.below(64), follows=rng.chance(_FOLLOWING))


def _padded(
    scene: Scene, draft: Draft, index: int, counts: Array, is_left: bool, turn: int, *, follows: bool
) -> Draft | None:
    """Return a draft in which so many places of each row are padded, the row's content turned and repeated elsewhere.

    `follows`: masks and lengths that follow the padding in the seeds do so here.
    """
    padding, array = scene.textures[index].padding, draft[index]
    assert padding is not None
    rows = as_rows(array, padding.axis)
    if rows is None:
        return None
    at = np.arange(rows.shape[1])[None]
    padded = at < counts[:, None] if is_left else at >= rows.shape[1] - counts[:, None]
    written = _content(rows, padding, turn)
    if is_left:  # content begins behind the padding
        written = np.take_along_axis(written, np.maximum(at - counts[:, None], 0)[..., None], axis=1)
    written[padded] = padding.value
    draft = exchange(draft, index, _from_rows(written, array, padding.axis))
    return _following(scene, draft, index, ~padded) if follows else draft


def padding_steps(scene: Scene) -> Iterator[tuple[str, Build]]:
    """Yield telling paddings of inputs that have some in the seeds: name and build."""
    for index in scene.mutable:
        if scene.textures[index].padding is not None:
            for name, share, is_same_side in _PADDINGS:
                yield f"{scene.names[index]} {name}", _padding_to(scene, index, share, is_same_side)


_PADDINGS = (  # name, share of the places from which all rows are padded (-1: ever more of them), at the seeds' side
    ("without padding", 0.0, True),
    ("padded but for one place", 1.0, True),
    ("padded from one place to all but one", -1.0, True),
    ("padded at the other end", -1.0, False),
    ("half padded", 0.5, True),
)


def _padding_to(scene: Scene, index: int, share: float, is_same_side: bool) -> Build:
    def build(arrays: Draft) -> Draft | None:
        padding = scene.textures[index].padding
        now = padding.lengths(arrays[index]) if padding is not None else None
        if padding is None or now is None:
            return None
        most = arrays[index].shape[padding.axis] - 1
        shares = np.linspace(0.0, 1.0, len(now)) if share < 0 else np.full(len(now), share)
        counts = np.clip(np.round(shares * most), 1 if share < 0 else 0, max(most, 0)).astype(np.int64)
        return _padded(scene, arrays, index, counts, padding.is_left ^ (not is_same_side), 0, follows=True)

    return build


def _new_counts(now: Array, width: int, rng: Rng) -> Array:
    """Draw how many places of each row are padded."""
    draw = rng.unit()
    if draw < 0.3:
        drawn = now + rng.integers(-2, 2, now.shape)
    elif draw < 0.6:
        drawn = rng.integers(0, width - 1, now.shape)
    elif draw < 0.8:
        drawn = np.full(now.shape, rng.pick((0, 0, 1, width - 1, width // 2)))
    else:
        drawn = now.copy()
        drawn[rng.below(len(now))] = rng.pick((0, 1, width - 1, width))
    return np.clip(drawn, 0, width - (0 if rng.chance(0.1) else 1))


def _content(rows: Array, padding: Padding, turn: int) -> Array:
    """Return rows [rows, places, features] in which content stands at every place, that of each row repeated."""
    held = ~(rows == np.asarray(padding.value).astype(rows.dtype)).all(axis=2)
    written = rows.copy()
    full = rows[held]
    for row, mask in enumerate(held):
        own = rows[row][mask] if mask.any() else full
        if len(own) and not mask.all():
            written[row] = np.resize(np.roll(own, -(turn % len(own)), axis=0), rows[row].shape)
    return written


def _from_rows(rows: Array, like: Array, axis: int) -> Array:
    if axis == 0:
        return rows.reshape(like.shape)
    moved = np.moveaxis(like, axis, 1)
    return np.ascontiguousarray(np.moveaxis(rows.reshape(moved.shape), 1, axis))


def _following(scene: Scene, draft: Draft, index: int, content: Array) -> Draft:
    """Return a draft whose masks and lengths say where content stands, [rows, places]."""
    for link in scene.links:
        if link.other != index or link.kind not in (MARKS, COUNTS) or link.index not in scene.mutable:
            continue
        told = content if link.kind == MARKS else content.sum(axis=1)
        if told.size == draft[link.index].size:
            array = cast(told.reshape(draft[link.index].shape), scene.domains[link.index].traits)
            draft = exchange(draft, link.index, array)
    return draft
