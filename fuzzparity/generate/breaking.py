"""Breaking: the few ways to leave a contract on purpose.

The idea: what two engines refuse, or should, is worth a small, capped share of cases. Each way is a name and a build;
a build gives None where the contract has nothing of that sort to break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fuzzparity.case import Array
from fuzzparity.generate.dtypes import filled, wrong_dtypes
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.shapes import resized, shapes_for
from fuzzparity.generate.values import Fill, planted_nonfinite

Build = Callable[[list[Array]], list[Array] | None]


def breaking_steps(scene: Scene) -> Iterator[tuple[str, Build]]:
    """Return every way to leave this contract, indices and values first, dtypes and dims after them."""
    for index in range(len(scene.names)):
        if index not in scene.opaque:
            yield from _value_breaks(scene, index)
    for index, (item, domain) in enumerate(zip(scene.contract.inputs, scene.domains, strict=True)):
        if index in scene.opaque:
            continue
        if domain.traits.family != "opaque":
            for dtype in wrong_dtypes(item.dtype):
                yield f"{item.name} as {dtype}", _cast_to(index, dtype)
        for place, dim in enumerate(item.dims):
            if not dim.is_dynamic:
                for size in (dim.size + 1, dim.size - 1, 0, dim.size * 2):
                    if size >= 0 and size != dim.size:
                        yield f"{item.name} axis {place} size {size}", _resize_one(scene, index, place, size)
    yield from _axis_breaks(scene)


def _value_breaks(scene: Scene, index: int) -> Iterator[tuple[str, Build]]:
    domain = scene.domains[index]
    name, traits = domain.name, domain.traits
    if domain.index_limit is not None or domain.index_symbol:
        for label, position, shift in (("-1", 0, None), ("limit", -1, 0), ("past limit", 0, 1000), ("limit + 1", 0, 1)):
            yield f"{name} index {label}", _index_at(scene, index, position, shift)
    for bound, away in ((domain.low, -1.0), (domain.high, 1.0)):
        if bound is not None and traits.low < bound + away < traits.high:
            step = max(1.0, abs(float(bound)) * 0.01) * away
            yield f"{name} value past {bound:g}", _one_value(scene, index, float(bound) + step)
            yield f"{name} all past {bound:g}", _all_values(scene, index, float(bound) + step)
    if not domain.allow_nonfinite:
        for fill in planted_nonfinite(domain)[:6]:
            yield f"{name} {fill.name}, forbidden", _filled_with(scene, index, fill)


def _exchange(arrays: list[Array], index: int, array: Array) -> list[Array]:
    return [array if place == index else other for place, other in enumerate(arrays)]


def _filled_with(scene: Scene, index: int, fill: Fill) -> Build:
    return lambda arrays: _exchange(arrays, index, scene.fill(index, arrays[index], fill))


def _cast_to(index: int, dtype: str) -> Build:
    return lambda arrays: _exchange(arrays, index, _plainly_cast(arrays[index], np.dtype(dtype)))


def _plainly_cast(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype.kind == "c" and dtype.kind != "c":
        array = array.real
    if dtype.kind in "iu" and array.dtype.kind in "fV":  # casting NaN or a huge float is undefined in C
        array = np.clip(np.nan_to_num(array.astype(np.float64)), -100.0, 100.0)
    return np.asarray(array.astype(dtype)).copy(order="C")


def _resize_one(scene: Scene, index: int, place: int, size: int) -> Build:
    def build(arrays: list[Array]) -> list[Array] | None:
        array = arrays[index]
        shape = (*array.shape[:place], size, *array.shape[place + 1 :])
        shapes = [shape if other == index else a.shape for other, a in enumerate(arrays)]
        if not scene.fits(shapes):
            return None
        return _exchange(arrays, index, resized(array, shape).copy(order="C"))

    return build


def _axis_breaks(scene: Scene) -> Iterator[tuple[str, Build]]:
    for axis in scene.axes:
        sizes = [axis.low - 1, *([axis.high + 1] if axis.high is not None else [])]
        if axis.multiple_of > 1:
            sizes.append(axis.nearest(axis.size) + 1)
        for size in sizes:
            if size >= 0 and not axis.admits(size):
                yield f"size {axis.symbol}={size}, not admitted", _resize_axis(scene, axis.symbol, size)
        if len(axis.places) > 1:
            index, place = axis.places[-1]
            for delta in (1, -1):
                yield f"{scene.names[index]} axis {place} alone {delta:+d}", _resize_by(scene, index, place, delta)


def _resize_axis(scene: Scene, symbol: str, size: int) -> Build:
    def build(arrays: list[Array]) -> list[Array] | None:
        shapes = shapes_for(scene.contract, {**scene.sizes(arrays), symbol: size})
        if not scene.fits(shapes):
            return None
        return [resized(array, shape).copy(order="C") for array, shape in zip(arrays, shapes, strict=True)]

    return build


def _resize_by(scene: Scene, index: int, place: int, delta: int) -> Build:
    def build(arrays: list[Array]) -> list[Array] | None:
        size = arrays[index].shape[place] + delta
        return _resize_one(scene, index, place, size)(arrays) if size >= 0 else None

    return build


def _index_at(scene: Scene, index: int, position: int, shift: int | None) -> Build:
    """Put an index at a position: -1 where `shift` is None, else that far past the limit."""

    def build(arrays: list[Array]) -> list[Array] | None:
        domain, array = scene.domains[index], arrays[index]
        limit = domain.index_limit
        if limit is None:
            limit = scene.sizes(arrays).get(domain.index_symbol)
        value = -1 if shift is None else (limit or 0) + shift
        if limit is None or array.size == 0 or not domain.traits.low <= value <= domain.traits.high:
            return None
        return _one_value(scene, index, value, position)(arrays)

    return build


def _one_value(scene: Scene, index: int, value: float | int, position: int = 0) -> Build:
    def build(arrays: list[Array]) -> list[Array] | None:
        if arrays[index].size == 0:
            return None
        flat = arrays[index].copy(order="C").reshape(-1)
        flat[position] = filled((), value, scene.domains[index].traits)
        return _exchange(arrays, index, flat.reshape(arrays[index].shape))

    return build


def _all_values(scene: Scene, index: int, value: float | int) -> Build:
    return lambda arrays: _exchange(arrays, index, filled(arrays[index].shape, value, scene.domains[index].traits))
