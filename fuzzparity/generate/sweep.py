"""Sweep: the cheap classics in a fixed order, the first thing that a campaign tries.

The idea: most faults sit where code meets 0, 1, odd, huge, tied or masked. These are tried one at a time and then
jointly, streams interleaved, so that a campaign cut short has seen some of everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice, product

from fuzzparity.case import Array
from fuzzparity.generate.breaking import breaking_steps
from fuzzparity.generate.dtypes import filled
from fuzzparity.generate.resizing import swapped
from fuzzparity.generate.roles import disorders, role_steps, written
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.shapes import Axis
from fuzzparity.generate.texturing import padding_steps
from fuzzparity.generate.values import Fill

Build = Callable[[list[Array]], list[Array] | None]
MAX_STEPS = 4096
_MAX_PAIRS = 24
_Extreme = int | tuple[str, int]
_MAX_GROWTH = 16  # times the largest seed, that a shape of the sweep may cost; growth to the cap comes later
_MIN_ELEMENTS = 1 << 16
_MAX_AXIS_PAIRS = 6
_RATIOS = (10, 32, 3, 100)
_LEAST, _MOST = "least", "most"  # of a domain, and how far from it
_INTEGER_PAIRS: tuple[tuple[_Extreme, _Extreme], ...] = (
    *(((_LEAST, 0), -1), ((_LEAST, 0), 0), (-1, (_LEAST, 0)), ((_MOST, 0), -1), (-7, 2), (7, -2), (0, 0)),
    *(((_MOST, 0), (_MOST, 0)), (2, 10), ((_LEAST, 1), -1), ((_MOST, -1), -1), ((_LEAST, 2), -1)),
)
_MOST_OFFSETS = 6  # further distances from the least value, from the numbers that the model itself holds
_FLOAT_PAIRS = ((25, 15), (15, 25), (-25, 25), (30, -30), (19, 19), (-20, -20), (10, 30))
_ZERO_PAIRS = ((0.0, -1.0), (-0.0, -1.0), (-1.0, 0.0), (0.0, 0.0), (1.0, 0.0), (-0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Step:
    """Name one case of the sweep and how to build it from a parent; `build` gives None where it does not apply."""

    names: tuple[str, ...]
    build: Build
    breaking: bool = False
    nonfinite: bool = False
    disorders: bool = False  # it breaks what holds in all seeds, and no declared contract


def sweep(scene: Scene) -> Iterator[Step]:
    """Return the steps of the sweep, at most `MAX_STEPS`; building them costs nothing until asked."""
    streams = (
        _single_shapes(scene),
        _fills(scene),
        _joint_fills(scene),
        _pairs(scene),
        _nonfinite(scene),
        _by_role(scene),
        _joint_shapes(scene),
        _every(breaking_steps_of(scene), 4),
    )
    return islice((step for step in _interleaved(streams) if step is not None), MAX_STEPS)


def _interleaved(streams: Iterable[Iterator[Step | None]]) -> Iterator[Step | None]:
    active = list(streams)
    while active:
        for stream in list(active):
            step = next(stream, _END)
            if isinstance(step, _End):
                active.remove(stream)
            else:
                yield step


class _End:
    """Mark the end of a stream."""


_END = _End()


def _every(steps: Iterator[Step], rarity: int) -> Iterator[Step | None]:
    for step in steps:
        yield step
        yield from [None] * (rarity - 1)


def breaking_steps_of(scene: Scene) -> Iterator[Step]:
    """Return one step for each way to leave the contract."""
    for name, build in breaking_steps(scene):
        yield Step((name,), build, breaking=True)
    for name, build in disorders(scene):
        yield Step((name,), build, breaking=True, disorders=True)


def _single_shapes(scene: Scene) -> Iterator[Step]:
    menus = [scene.menus[axis.symbol] for axis in scene.axes]
    for rank in range(max(map(len, menus), default=0)):
        for axis, menu in zip(scene.axes, menus, strict=True):
            if rank < len(menu):
                yield _resizing(scene, {axis.symbol: menu[rank]})


def _joint_shapes(scene: Scene) -> Iterator[Step]:
    if len(scene.axes) < 2:
        return
    pairs = list(islice(combinations(scene.axes, 2), _MAX_AXIS_PAIRS))
    for first, second in pairs:
        yield Step((f"sizes of {first.symbol} and {second.symbol} swapped",), _swapping(scene, first, second))
    for stretched in zip(*(_stretched(scene, *pair) for pair in pairs), strict=False):
        yield from stretched
    groups = {tuple(axis.symbol for axis in scene.axes if axis.size == size) for size in {a.size for a in scene.axes}}
    groups.add(tuple(axis.symbol for axis in scene.axes))
    for group in sorted(group for group in groups if len(group) > 1):
        for size in scene.menus[group[0]][:48]:
            yield _resizing(scene, {axis.symbol: axis.nearest(size) for axis in scene.axes if axis.symbol in group})
    for first, second in pairs:
        for a, b in product(scene.menus[first.symbol][:8], scene.menus[second.symbol][:8]):
            yield _resizing(scene, {first.symbol: a, second.symbol: b})


def _stretched(scene: Scene, first: Axis, second: Axis) -> Iterator[Step]:
    """Yield extreme aspect ratios of two axes: about as many elements, at a few proportions, either way round."""
    area = max(1, first.size * second.size)
    for ratio in _RATIOS:
        short = max(1, round((area / ratio) ** 0.5))
        for a, b in ((short, short * ratio), (short * ratio, short)):
            yield _resizing(scene, {first.symbol: first.nearest(a), second.symbol: second.nearest(b)})


def _swapping(scene: Scene, first: Axis, second: Axis) -> Build:
    return lambda arrays: swapped(scene, arrays, first, second)


def _resizing(scene: Scene, wanted: dict[str, int]) -> Step:
    label = ", ".join(f"{symbol}={size}" for symbol, size in wanted.items())

    def build(arrays: list[Array]) -> list[Array] | None:
        resized = scene.resize(arrays, wanted)
        if resized is None or sum(a.size for a in resized) > max(
            _MIN_ELEMENTS, _MAX_GROWTH * sum(array.size for array in arrays)
        ):
            return None
        return resized

    return Step((f"size {label}",), build)


def _fills(scene: Scene) -> Iterator[Step]:
    for rank in range(max(map(len, scene.classics), default=0)):
        for index in scene.mutable:
            if rank < len(scene.classics[index]):
                fill = scene.classics[index][rank]
                yield Step((f"{scene.names[index]} {fill.name}",), _filling(scene, {index: fill}))


def _joint_fills(scene: Scene) -> Iterator[Step]:
    if len(scene.mutable) < 2:
        return
    by_name: dict[str, dict[int, Fill]] = {}
    for index in scene.mutable:
        for fill in scene.classics[index]:
            by_name.setdefault(fill.name, {})[index] = fill
    for name, fills in by_name.items():
        if len(fills) > 1:
            yield Step((f"together {name}",), _filling(scene, fills))


def _nonfinite(scene: Scene) -> Iterator[Step]:
    for rank in range(max(map(len, scene.nonfinite), default=0)):
        for index, fills in enumerate(scene.nonfinite):
            if rank < len(fills):
                names = (f"{scene.names[index]} {fills[rank].name}",)
                yield Step(names, _filling(scene, {index: fills[rank]}), nonfinite=True)


def _by_role(scene: Scene) -> Iterator[Step]:
    for name, index, shares in role_steps(scene):
        yield Step((name,), _writing(scene, index, shares))
    for name, build in padding_steps(scene):
        yield Step((name,), build)


def _writing(scene: Scene, index: int, shares: Array) -> Build:
    return lambda arrays: written(scene, index, shares, arrays) if arrays[index].size else None


def _filling(scene: Scene, fills: dict[int, Fill]) -> Build:
    def build(arrays: list[Array]) -> list[Array]:
        return [
            scene.fill(index, array, fills[index]) if index in fills else array for index, array in enumerate(arrays)
        ]

    return build


def _pairs(scene: Scene) -> Iterator[Step]:
    """Give extremes to two inputs at once: a fault may need both operands."""
    integers = [index for index in scene.mutable if scene.domains[index].traits.family == "int"]
    floats = [index for index in scene.mutable if scene.domains[index].traits.family == "float"]
    # what the model adds or takes away first carries another value than the least one to the end of its range
    numbers = [int(c) for c in scene.contract.constants if 2 < abs(c) < 1 << 24 and c == int(c)][:_MOST_OFFSETS]
    offsets = [((_LEAST, abs(number)), -1) for number in numbers]
    for i, j in islice(combinations(integers, 2), _MAX_PAIRS):
        for a, b in (*_INTEGER_PAIRS, *offsets):
            fills = {i: _integer_end(scene, i, a), j: _integer_end(scene, j, b)}
            yield Step(("extreme pair", fills[i].name, fills[j].name), _filling(scene, fills))
            swapped = {j: _integer_end(scene, j, a), i: _integer_end(scene, i, b)}
            yield Step(("extreme pair", swapped[j].name, swapped[i].name), _filling(scene, swapped))
    for i, j in islice(combinations(floats, 2), _MAX_PAIRS):
        for k, m in _FLOAT_PAIRS:
            yield Step(("scaled pair", f"1e{k}", f"1e{m}"), _filling(scene, {i: _power(k), j: _power(m)}))
        for x, y in _ZERO_PAIRS:
            fills = {i: _whole(scene, i, x), j: _whole(scene, j, y)}
            yield Step(("zero pair", fills[i].name, fills[j].name), _filling(scene, fills))


def _integer_end(scene: Scene, index: int, end: _Extreme) -> Fill:
    if isinstance(end, int):
        return _whole(scene, index, end)
    low, high = scene.domains[index].bounds
    return _whole(scene, index, int(low if end[0] == _LEAST else high) + end[1])


def _whole(scene: Scene, index: int, value: float | int) -> Fill:
    traits = scene.domains[index].traits
    return Fill(f"all {value}", lambda x: filled(x.shape, value, traits))


def _power(exponent: int) -> Fill:
    return Fill(f"scaled 1e{exponent}", lambda x: x * x.dtype.type(10.0**exponent))
