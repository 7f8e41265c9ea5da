"""Row moves: what a stack's rows are made by, many rows at once, each with chance of its own.

The idea: the same kinds of value that the mutators write one case at a time, as vector operations: what a mutator draws
once (a factor, a constant, a place), a row move draws for each row. A block is the values of one input, a row each, in
the working type; a move returns new values of the block's shape and never writes to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzzparity.case import Array
from fuzzparity.generate.domain import Domain
from fuzzparity.generate.dtypes import integer_ladder
from fuzzparity.generate.mutators import fresh_values
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.thresholds import multiples, reaching

_NOISE = (1e-2, 1e-3, 1e-5)  # of the seeds' span, as the mutators have it
_WIDTHS = (1e-7, 1e-3, 0.1, 1.0)  # around a constant of the graph
_SMALL = np.array([0.0, 1.0, -1.0, 2.0, -2.0, 3.0])
_FACTORS = np.array([-1.0, 2.0, 10.0, 0.1, 1e3, 1e-3, 1.0 + 2**-20])
_STEPS = np.array([1.0, -1.0, 0.5, -0.5])
_BESIDE = np.array([1.0, 1.001, 0.999, -1.0])
_MAGNITUDES = (1e-8, 1e-4, 300.0, 1e4, 70000.0, 1e15, 1e25, 1e30, 2.0**24 + 2, 2.0**31, 2.0**63)
_PARTS = (1.0, 2.0, 10.0)  # of which rounded values are a whole number


@dataclass(frozen=True, slots=True)
class Block:
    """Hold one input's part of a group of rows: `values` and `others` [rows, elements], `shape` of one row."""

    scene: Scene
    index: int
    values: Array
    others: Array  # rows to cross these with
    shape: tuple[int, ...]
    is_leading: bool = False  # rows lie along the first axis: with them in front the shape is the input's

    @property
    def domain(self) -> Domain:
        """Return the domain of the input."""
        return self.scene.domains[self.index]


Move = Callable[[Block, Rng], Any]


@dataclass(frozen=True, slots=True)
class RowMove:
    """Name a move, the families of dtype it works on, whether it stays near the seeds, and its weight."""

    name: str
    families: frozenset[str]
    weight: float
    move: Move
    is_near: bool = False
    keeps: bool = False  # zeros, padding and, at times, ties stay where the seeds have them


def chosen(values: tuple[float, ...] | Array, shape: tuple[int, ...], rng: Rng, dtype: Any) -> Array:
    """Draw an array of some of the values."""
    table = np.asarray(values, dtype)
    return np.asarray(table[rng.numpy.integers(0, len(table), shape)])


def masks(block: Block, rng: Rng) -> Array:
    """Draw for each row a part of it, [rows, elements]: elements, a stretch of one axis, or a stretch of them all."""
    rows, elements = block.values.shape
    draw = rng.unit()
    if draw < 0.25 or not block.shape:
        few = rng.numpy.integers(0, elements, (rows, 1 + rng.below(3)))
        mask = np.zeros((rows, elements), bool)
        np.put_along_axis(mask, few, True, 1)
        return mask
    if draw < 0.5:
        size, places = elements, np.arange(elements)
    else:
        axis = rng.below(len(block.shape))
        size = block.shape[axis]
        places = np.arange(elements) // max(1, int(np.prod(block.shape[axis + 1 :]))) % size
    start = rng.numpy.integers(0, size, (rows, 1))
    width = 1 + (rng.numpy.random((rows, 1)) ** 2 * size).astype(np.int64)
    return np.asarray((places >= start) & (places < start + width))


# Floats


def _scaled(block: Block, rng: Rng) -> Any:
    reach = np.log10(block.domain.traits.high)
    power = rng.uniform((len(block.values), 1), np.float64) * reach * 1.3 - reach / 2
    return block.values * (10.0**power).astype(block.values.dtype)


def _magnitudes(block: Block, rng: Rng) -> Any:
    """Draw normals, each row around a magnitude of its own between the smallest and the largest."""
    x, traits = block.values, block.domain.traits
    low, high = np.log2(max(traits.subnormal, 1e-300)), np.log2(traits.high)
    centre = rng.uniform((len(x), 1), np.float64) * (high * 0.8 - low * 0.5) + low * 0.5
    reach = chosen((0.0, 4.0, 16.0), (len(x), 1), rng, x.dtype)
    return rng.normal(x.shape, x.dtype) * np.exp2(rng.uniform(x.shape, x.dtype) * reach + centre.astype(x.dtype))


def _fresh(block: Block, rng: Rng) -> Any:
    return fresh_values(block.scene, block.index, rng)(block.values)


def _gain(block: Block, rng: Rng) -> Any:
    return block.values * (0.5 + 0.58 * rng.uniform((len(block.values), 1), block.values.dtype))


def _offset(block: Block, rng: Rng) -> Any:
    """Shift each row by up to a twentieth of the seeds' span, that of each channel where there are channels."""
    x, spread = block.values, np.asarray(block.domain.spread)
    shift = (rng.uniform((len(x), 1), x.dtype) - 0.5) * 0.1
    ends = block.scene.textures[block.index].ends(x.reshape(len(x), *block.shape)) if block.is_leading else None
    if ends is not None:
        spread = np.broadcast_to(ends[1] - ends[0], (1, *block.shape)).reshape(1, -1)
    return x + shift * spread.astype(x.dtype)


def _noise(block: Block, rng: Rng) -> Any:
    x = block.values
    level = chosen(_NOISE, (len(x), 1), rng, x.dtype) * x.dtype.type(max(block.domain.spread, 1e-6))
    return x + rng.normal(x.shape, x.dtype) * level


def _last_digits(block: Block, rng: Rng) -> Any:
    x = block.values
    steps = rng.numpy.integers(-2, 3, x.shape).astype(x.dtype)
    return x * (1 + steps * x.dtype.type(max(block.domain.traits.eps, float(np.finfo(x.dtype).eps))))


def _mix(block: Block, rng: Rng) -> Any:
    share = rng.uniform((len(block.values), 1), block.values.dtype)
    return block.values * share + block.others * (1 - share)


def _near_constant(block: Block, rng: Rng) -> Any:
    x, domain = block.values, block.domain
    constant = chosen(domain.constants or (0.0, 1.0, 0.5), (len(x), 1), rng, np.float64)
    width = np.maximum(np.abs(constant), 1e-6) * chosen(_WIDTHS, (len(x), 1), rng, np.float64)
    return rng.normal(x.shape, np.float64) * width + constant


def _reach_constant(block: Block, rng: Rng) -> Any:
    return reaching(block.values, block.domain.constants or (0.0, 1.0), rng)


def _multiples(block: Block, rng: Rng) -> Any:
    rows, elements = block.values.shape
    return multiples((rows, elements), block.scene.units, rng)


def _telling_values(block: Block, rng: Rng) -> Any:
    """Change one to four elements of each row a little or to a telling value."""
    x, domain = block.values, block.domain
    shape = (len(x), 1 + rng.below(4))
    units = rng.numpy.random((4, *shape))  # one draw in bulk: these arrays are small and many
    places = (units[0] * x.shape[1]).astype(np.int64)
    now = np.take_along_axis(x, places, 1).astype(np.float64)
    candidates = (
        _one_of(_SMALL, units[1]),
        _one_of(np.array(domain.bounds, np.float64), units[1]),
        _one_of(np.array(domain.constants or (0.0,)), units[1]) * _one_of(_BESIDE, units[2]),
        now + _one_of(_STEPS, units[1]),
        now * _one_of(_FACTORS, units[1]),
    )
    changed = x.copy()
    new = np.choose((units[3] * len(candidates)).astype(np.int64), candidates)
    np.put_along_axis(changed, places, _as(new, x.dtype), 1)
    return changed


def _one_of(table: Array, units: Array) -> Array:
    """Return the entries of a table at shares of its length, [0, 1)."""
    return np.asarray(table[(units * len(table)).astype(np.int64)])


def _few_magnitudes(block: Block, rng: Rng) -> Any:
    """Fill each row with one or two telling magnitudes of either sign, some elements left as they are."""
    x, traits = block.values, block.domain.traits
    table = [v for v in (*_MAGNITUDES, traits.tiny, traits.subnormal, traits.high, traits.high / 2) if v <= traits.high]
    table += [0.0, -0.0, 0.5, 1.0, block.domain.mean]
    two = chosen(tuple(table), (len(x), 2), rng, x.dtype) * chosen((1.0, -1.0), (len(x), 2), rng, x.dtype)
    written = np.where(rng.uniform(x.shape) < rng.uniform((len(x), 1)), two[:, :1], two[:, 1:])
    return np.where(rng.uniform(x.shape) < chosen((0.1, 0.5, 1.0), (len(x), 1), rng, np.float32), written, x)


def _spike(block: Block, rng: Rng) -> Any:
    x = block.values.copy()
    place = rng.numpy.integers(0, x.shape[1], (len(x), 1))
    height = np.abs(x).max(axis=1, keepdims=True) * 1000 + 1000
    np.put_along_axis(x, place, height * chosen((1.0, -1.0), (len(x), 1), rng, x.dtype), 1)
    return x


def _rounded(block: Block, rng: Rng) -> Any:
    """Round to whole, half or tenth numbers, so that values tie."""
    parts = chosen(_PARTS, (len(block.values), 1), rng, block.values.dtype)
    return np.round(block.values * parts) / parts


def _equal_maxima(block: Block, rng: Rng) -> Any:
    x = block.values.copy()
    place = rng.numpy.integers(0, x.shape[1], (len(x), 1))
    np.put_along_axis(x, place, x.max(axis=1, keepdims=True), 1)
    return x


# Any numbers


def _sparse(block: Block, rng: Rng) -> Any:
    kept = rng.uniform(block.values.shape) < chosen((0.02, 0.2, 0.8), (len(block.values), 1), rng, np.float32)
    return np.where(kept, block.values, block.values.dtype.type(0))


def _few_distinct(block: Block, rng: Rng) -> Any:
    x, count = block.values, 1 + rng.below(4)
    few = np.take_along_axis(x, rng.numpy.integers(0, x.shape[1], (len(x), count)), 1)
    return np.take_along_axis(few, rng.numpy.integers(0, count, x.shape), 1)


def _shuffled(block: Block, rng: Rng) -> Any:
    return rng.numpy.permuted(block.values, axis=1)


def _rolled(block: Block, rng: Rng) -> Any:
    return np.roll(block.values, rng.below(block.values.shape[1]), 1)


def _crossed(block: Block, rng: Rng) -> Any:
    return np.where(masks(block, rng), block.others, block.values)


def _classic_patch(block: Block, rng: Rng) -> Any:
    """Write a part of a classic fill into each row."""
    return np.where(masks(block, rng), _classic_of(block, block.values[:1], rng), block.values)


def _classic(block: Block, rng: Rng) -> Any:
    return _classic_of(block, block.values, rng)


def _classic_of(block: Block, rows: Array, rng: Rng) -> Array:
    traits = block.domain.traits
    shaped = rows.reshape(len(rows), *block.shape)
    with_shape = rng.pick(block.scene.classics[block.index]).apply(shaped)
    return _as(np.asarray(with_shape).reshape(rows.shape), traits.working)


# Integers and flags


def _integer_rungs(block: Block, rng: Rng) -> Any:
    """Draw each row from four rungs of the ladder of extremes."""
    low, high = (int(bound) for bound in block.domain.bounds)
    rungs = integer_ladder(max(low, -(2**63)), min(high, 2**63 - 1)) or (max(low, 0),)
    few = chosen(np.asarray(rungs, np.int64), (len(block.values), 4), rng, np.int64)
    return np.take_along_axis(few, rng.numpy.integers(0, 4, block.values.shape), 1)


def _integer_steps(block: Block, rng: Rng) -> Any:
    return block.values + rng.numpy.integers(-1, 2, block.values.shape)


def _flags(block: Block, rng: Rng) -> Any:
    share = chosen((0.5, 0.1, 0.9, 0.02, 0.98, 0.0, 1.0), (len(block.values), 1), rng, np.float32)
    return (rng.uniform(block.values.shape) < share).astype(block.values.dtype)


def _as(values: Any, dtype: np.dtype[Any]) -> Array:
    """Return values in a working type; floats that become integers are saturated, not wrapped."""
    array = np.asarray(values)
    if dtype.kind == "i" and array.dtype.kind == "f":
        array = np.clip(np.nan_to_num(array), -(2.0**63), np.nextafter(2.0**63, 0.0))
    return array.astype(dtype, copy=False)


_FLOAT = frozenset({"float", "complex"})
_NUMBER = frozenset({"float", "int", "complex"})
_ANY = frozenset({"float", "int", "complex", "bool"})
ROW_MOVES = (
    RowMove("row gain", _FLOAT, 0.7, _gain, is_near=True, keeps=True),
    RowMove("row offset", _FLOAT, 0.7, _offset, is_near=True, keeps=True),
    RowMove("row noise", _FLOAT, 1.0, _noise, is_near=True, keeps=True),
    RowMove("row last digits", _FLOAT, 0.5, _last_digits, is_near=True, keeps=True),
    RowMove("row mix", _FLOAT, 0.7, _mix, is_near=True, keeps=True),
    RowMove("row roll", _ANY, 0.3, _rolled, is_near=True),
    RowMove("row shuffle", _ANY, 0.4, _shuffled, is_near=True),
    RowMove("row cross", _ANY, 1.0, _crossed, is_near=True),
    RowMove("row scale", _FLOAT, 1.5, _scaled),
    RowMove("row magnitudes", _FLOAT, 1.0, _magnitudes),
    RowMove("row fresh values", _ANY, 2.0, _fresh),
    RowMove("row near a constant", _NUMBER, 1.5, _near_constant),
    RowMove("row reaches a constant", frozenset({"float", "int"}), 1.5, _reach_constant),
    RowMove("row multiples of a unit", _FLOAT, 1.0, _multiples),
    RowMove("row telling values", _NUMBER, 2.5, _telling_values),
    RowMove("row few magnitudes", _FLOAT, 1.5, _few_magnitudes),
    RowMove("row spike", _FLOAT, 0.7, _spike),
    RowMove("row rounded", _FLOAT, 0.7, _rounded),
    RowMove("row equal maxima", _FLOAT, 0.5, _equal_maxima),
    RowMove("row sparse", _NUMBER, 0.7, _sparse),
    RowMove("row few distinct", _NUMBER, 1.0, _few_distinct),
    RowMove("row classic patch", _ANY, 3.0, _classic_patch),
    RowMove("row classic", _ANY, 0.7, _classic),
    RowMove("row integer ladder", frozenset({"int"}), 1.5, _integer_rungs),
    RowMove("row integer steps", frozenset({"int"}), 0.7, _integer_steps),
    RowMove("row flags", frozenset({"bool"}), 1.5, _flags),
)
