"""Role moves: what is worth writing into masks, lengths, offsets and tokens because of what they are.

The idea: a mask has padding, holes and rows without anything; lengths end at the size that they count along; offsets
are sorted, and two equal ones leave nothing between them; a token is often one that the code names. Any value may be
tried there, but a fault of these kinds needs the structure, which chance does not draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fuzzparity.case import Array
from fuzzparity.contract import Role
from fuzzparity.generate.dtypes import cast
from fuzzparity.generate.links import ENDS, SORTED
from fuzzparity.generate.moves import Draft, Mutator, exchange
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene

Build = Callable[[Draft], Draft | None]
_MOST_SPECIAL = 16
_UNRELATED_SHARE = 0.25  # of cases whose lengths are left as drawn
_PATTERNS = ("right", "left", "both", "holes", "middle", "one row", "one element", "alone")


def roles_of(scene: Scene) -> frozenset[Role]:
    """Return the roles of inputs whose values may change, lengths and offsets where what they count is known."""
    found = {scene.role(index) for index in scene.mutable}
    known = {scene.role(index) for index in scene.counting}
    return frozenset(role for role in found if role not in (Role.LENGTHS, Role.OFFSETS) or role in known)


def _of(scene: Scene, draft: Draft, *roles: Role) -> list[int]:
    return [index for index in scene.mutable if scene.role(index) in roles and draft[index].size]


def _structured_mask(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Write padding of a length of its own into each row, holes, or rows without anything."""
    places = [index for index in _of(scene, draft, Role.MASK) if draft[index].ndim]
    if not places:
        return None
    index = rng.pick(places)
    array = draft[index]
    flags = _mask(rng.pick(_PATTERNS), array.reshape(-1, array.shape[-1]) != 0, rng)
    return exchange(draft, index, cast(flags.reshape(array.shape), scene.domains[index].traits))


def _mask(pattern: str, now: Array, rng: Rng) -> Array:
    rows, width = now.shape
    places = np.arange(width)
    kept = rng.integers(0 if rng.chance(0.2) else 1, width, (rows, 1))
    if pattern == "right":
        return np.asarray(places < kept)
    if pattern == "left":
        return np.asarray(places >= width - kept)
    if pattern == "both":
        start = (rng.uniform((rows, 1)) * (width - kept + 1)).astype(np.int64)
        return np.asarray((places >= start) & (places < start + kept))
    if pattern == "holes":
        return np.asarray(rng.uniform((rows, width)) < 0.8)
    flags = now.copy() if rng.chance(0.5) else np.ones_like(now)
    if pattern == "middle":
        flags[:, width // 2] = False
    elif pattern == "one row":
        flags[rng.below(rows)] = False
    elif pattern == "one element":
        flags[rng.below(rows), rng.below(width)] ^= True
    else:
        flags[:] = False
        flags[np.arange(rows), rng.integers(0, width - 1, (rows,))] = True
    return flags


def _lengths(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Draw lengths up to the size that they count along: full ones, ones, zeros, all the same, ascending."""
    places = [index for index in scene.counting if scene.role(index) is Role.LENGTHS and draft[index].size]
    if not places:
        return None
    index = rng.pick(places)
    shape, size = draft[index].shape, scene.counted(index, draft)
    drawn = rng.integers(0 if rng.chance(0.3) else min(1, size), size, shape)
    draw = rng.unit()
    if draw < 0.5:
        telling = np.array([size, 1, max(0, size - 1), 0, (size + 1) // 2])
        few = telling[: 2 + rng.below(4)]
        picked = few[rng.integers(0, len(few) - 1, shape)]
        drawn = np.where(rng.uniform(shape) < 0.6, picked, drawn) if draw < 0.3 else picked
    elif draw < 0.7:
        drawn = np.sort(drawn, axis=-1) if drawn.ndim else drawn
    elif draw < 0.8:
        drawn = np.full(shape, drawn.reshape(-1)[0])
    return exchange(draft, index, cast(drawn, scene.domains[index].traits))


def _offsets(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Draw sorted offsets from 0 up to the size, at times with equal ones or some at the end: empty parts."""
    places = [index for index in scene.counting if scene.role(index) is Role.OFFSETS and draft[index].size]
    if not places:
        return None
    index = rng.pick(places)
    count, size = draft[index].size, scene.counted(index, draft)
    drawn = rng.integers(0, size, (count,))
    if rng.chance(0.5):
        drawn[rng.below(count)] = drawn[rng.below(count)]
    drawn[0] = 0
    if rng.chance(0.3):
        drawn[-1] = size
    return exchange(draft, index, cast(np.sort(drawn).reshape(draft[index].shape), scene.domains[index].traits))


def _tokens(scene: Scene, draft: Draft, other: Draft, rng: Rng) -> Draft | None:
    """Swap tokens for others that data or code know, repeat a stretch of them, or pad their end with one."""
    places = _of(scene, draft, Role.TOKENS, Role.INDICES)
    if not places:
        return None
    index = rng.pick(places)
    array = draft[index].copy()
    rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    width, draw = rows.shape[1], rng.unit()
    if draw < 0.5:
        known = special_tokens(scene, index)
        table = np.concatenate([scene.fitted(index, other[index], array.shape).reshape(-1)[:256], known])
        swapped = rng.uniform(rows.shape) < rng.pick((0.05, 0.2, 1.0 / max(1, width)))
        swapped[rng.below(len(rows)), rng.below(width)] = True
        pool = known if len(known) and rng.chance(0.5) else table
        rows[swapped] = pool[rng.integers(0, len(pool) - 1, (int(swapped.sum()),))]
    elif draw < 0.7:
        period = 1 + rng.below(min(4, width))
        start = rng.below(width)
        rows[:, start:] = np.resize(rows[:, start : start + period], (len(rows), width - start)) if width else 0
    elif draw < 0.85:
        rows[:, rng.below(width) :] = rng.pick([*special_tokens(scene, index).tolist(), int(rows[0, -1])])
    else:
        rows[:] = rows[:, np.asarray(rng.numpy.permutation(width))]
    return exchange(draft, index, rows.reshape(array.shape))


def related(scene: Scene, draft: Draft, rng: Rng) -> Draft:
    """Return a draft whose offsets are in order, and lengths most of the time within the size that they count along."""
    for index in scene.counting:
        array = draft[index]
        if not array.size or scene.role(index) is Role.OFFSETS or rng.chance(_UNRELATED_SHARE):
            continue
        size = scene.counted(index, draft)
        if int(array.min()) < 0 or int(array.max()) > size:
            draft = exchange(draft, index, np.clip(array, 0, size))
    return ordered(scene, draft)


def ordered(scene: Scene, draft: Draft) -> Draft:
    """Return a draft whose offsets ascend and stay within the size that they count along.

    Only where those of all seeds do: they begin with 0 then, and end with that size where those of all seeds end so.
    """
    kept = {(link.kind, link.index) for link in scene.links}
    for index in scene.counting:
        array = draft[index]
        if not array.size or (SORTED, index) not in kept:
            continue
        size = scene.counted(index, draft)
        flat = np.sort(np.clip(array.reshape(-1), 0, size))
        if (ENDS, index) in kept:
            flat[-1] = size
        flat[0] = 0
        if not np.array_equal(flat, array.reshape(-1)):
            draft = exchange(draft, index, flat.reshape(array.shape).astype(array.dtype))
    return draft


def disorders(scene: Scene) -> Iterator[tuple[str, Build]]:
    """Yield the ways to break the order of offsets, which holds in all seeds: name and build."""
    for link in scene.links:
        if link.kind == SORTED and link.index in scene.counting and link.index in scene.mutable:
            name = scene.names[link.index]
            yield f"{name} out of order", _disordered(scene, link.index, "swapped")
            yield f"{name} in reverse", _disordered(scene, link.index, "reversed")
            yield f"{name} past the size", _disordered(scene, link.index, "past")
            yield f"{name} not from 0", _disordered(scene, link.index, "late")


def _disordered(scene: Scene, index: int, how: str) -> Build:
    def build(arrays: Draft) -> Draft | None:
        flat, size = arrays[index].reshape(-1).copy(), scene.counted(index, arrays)
        if how == "past":
            flat[-1:] = size + 1
        elif how == "late":
            flat[:1] = min(1, size)
        elif how == "reversed":
            flat = flat[::-1].copy()
        else:
            flat[1:3] = flat[1:3][::-1].copy()
        is_same = np.array_equal(flat, arrays[index].reshape(-1))
        return None if is_same else exchange(arrays, index, flat.reshape(arrays[index].shape))

    return build


def special_tokens(scene: Scene, index: int) -> Array:
    """Return whole numbers of code and graph that an input may hold."""
    low, high = scene.domains[index].bounds
    numbers = [int(c) for c in scene.domains[index].constants if c.is_integer() and low <= c <= high]
    return np.asarray(numbers[:_MOST_SPECIAL], scene.domains[index].traits.dtype)


ROLE_MOVES = (
    (Role.MASK, Mutator("structured mask", "value", 2.0, _structured_mask)),
    (Role.LENGTHS, Mutator("lengths", "value", 2.0, _lengths)),
    (Role.OFFSETS, Mutator("sorted offsets", "value", 2.0, _offsets)),
    (Role.TOKENS, Mutator("token swaps", "near", 1.0, _tokens)),
    (Role.INDICES, Mutator("index swaps", "near", 1.0, _tokens)),
)


def role_steps(scene: Scene) -> Iterator[tuple[str, int, Array]]:
    """Yield telling values of lengths and offsets as shares of the size: (name, input, shares to repeat)."""
    for index in scene.counting:
        for name, shares in _LENGTH_SHARES if scene.role(index) is Role.LENGTHS else _OFFSET_SHARES:
            yield f"{scene.names[index]} {name}", index, np.array(shares)


_Shares = tuple[tuple[str, tuple[float, ...]], ...]
_LENGTH_SHARES: _Shares = (  # of the size; a share below 0 stands for 1
    ("full, one, and between", (1.0, -1.0, 0.5, 0.25, 0.75, 0.5)),
    ("all full", (1.0,)),
    ("all one", (-1.0,)),
    ("one full, others none", (1.0, 0.0)),
    ("halves", (0.5, 1.0, 0.25)),
    ("none", (0.0,)),
)
_OFFSET_SHARES: _Shares = (
    ("with an empty part inside", (0.0, 0.5, 0.5, 0.75)),
    ("with an empty first part", (0.0, 0.0, 0.5)),
    ("with an empty last part", (0.0, 0.5, 1.0)),
    ("all at the start", (0.0,)),
)


def written(scene: Scene, index: int, shares: Array, arrays: Draft) -> Draft:
    """Return a draft whose lengths or offsets are shares of the size, those of offsets in order."""
    size, array = scene.counted(index, arrays), arrays[index]
    values = np.resize(np.where(shares < 0, min(1, size), np.round(shares * size)), array.size)
    if scene.role(index) is Role.OFFSETS:
        values = np.sort(values)
    return exchange(arrays, index, cast(values.reshape(array.shape).astype(np.int64), scene.domains[index].traits))
