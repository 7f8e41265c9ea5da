"""Rows: stacks of rows made in bulk, along the one dim in which the rows of a case do not depend on one another.

The idea: what is dear about a small case is everything around the model. A stack takes the sizes of one parent, draws
its rows from a few parents of the pool, and lets groups of them through row moves of their own; then it is confined to
the contract like any case. Finite rows and rows with NaN or infinities are never in one stack.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from fuzzparity.case import Array, Case, Lineage
from fuzzparity.contract import Contract, Role
from fuzzparity.generate.bandit import Arms, weights_of
from fuzzparity.generate.contract import Valid, breach
from fuzzparity.generate.pool import SEEDS, Entry, Pool
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.rowmoves import ROW_MOVES, Block, RowMove, chosen, masks
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.shapes import Axis

MOST_ROWS = 256
_MOST_GROUPS = 8
_BANK_ROWS = 64  # of one parent, that a stack may start from
_BASES = 3  # parents whose rows a stack starts from; the first one's sizes are the stack's
_NEAR_SHARE = 0.2
_NONFINITE_SHARE = 0.15
_FULL_SHARE = 0.75  # of stacks with as many rows as they may have; other counts meet the tails of kernels
_SNAPPING = 0.5  # share of near moves after which values are at the levels of the seeds
_ASKED_ROWS = 32  # of a stack where the target's own `valid` is asked about each


@dataclass(frozen=True, slots=True)
class Group:
    """Say how a stretch of a stack's rows was made."""

    start: int
    stop: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """Hold rows that run together. `label`: "near", "recipe" or "nonfinite", as of single cases."""

    case: Case
    lineage: Lineage
    label: str
    rows: int
    places: tuple[int | None, ...]  # by input, the axis along which it holds rows; None: shared by all of them
    groups: tuple[Group, ...] = field(default=(), repr=False)
    family: str = ""  # of signals, that lent the first parent

    @property
    def nonfinite(self) -> bool:
        """Tell whether its rows may hold NaN or infinities."""
        return self.label == "nonfinite"

    def take(self, rows: Sequence[int] | Array) -> Case:
        """Return the case of some of the rows, in their order."""
        return take_rows(self.case, self.places, rows)

    def names_of(self, row: int) -> tuple[str, ...]:
        """Return the moves that a row went through."""
        return next((group.names for group in self.groups if group.start <= row < group.stop), ())


def take_rows(case: Case, places: Sequence[int | None], rows: Sequence[int] | Array) -> Case:
    """Return the case of some rows, in their order. `places`: by input, the axis of its rows; None: it has none."""
    return Case(
        {
            name: array if place is None else np.ascontiguousarray(np.take(array, rows, axis=place))
            for (name, array), place in zip(case.inputs.items(), places, strict=True)
        }
    )


def why_not(contract: Contract) -> str:
    """Return what in a contract itself forbids stacking along its batch dim, in words; "" when nothing does."""
    for item in contract.inputs:
        if sum(dim.symbol == contract.batch for dim in item.dims) > 1:
            return f"input {item.name} has {contract.batch} on two axes"
        if item.role is Role.OFFSETS and any(dim.symbol == contract.batch for dim in item.dims):
            return f"the offsets {item.name} are in order"
        if item.index_symbol == contract.batch:
            return f"the values of input {item.name} point at rows"
    for one in contract.derived:
        if contract.batch in (one.root, one.symbol):
            return f"dim {one.symbol} follows from dim {one.root}"
    if not any(dim.symbol == contract.batch for item in contract.inputs for dim in item.dims):
        return f"no input has the dim {contract.batch}"
    return ""


class RowMaker:
    """Make stacks for one scene, whose contract has a batch dim."""

    def __init__(self, scene: Scene, axis: Axis) -> None:
        """Find where the rows lie in each input."""
        self._scene = scene
        self._axis = axis
        inputs = dict(axis.places)
        self.places: tuple[int | None, ...] = tuple(inputs.get(index) for index in range(len(scene.names)))
        self._changing = [index for index in scene.mutable if self.places[index] is not None]
        self._plantable = [index for index in self._changing if scene.nonfinite[index]]
        self._moves: dict[tuple[int, bool], tuple[list[RowMove], list[float]]] = {}
        for index in self._changing:
            family = scene.domains[index].traits.family
            for is_near in (False, True):
                moves = [m for m in ROW_MOVES if family in m.families and (m.is_near or not is_near)]
                self._moves[index, is_near] = (moves, list(accumulate(m.weight for m in moves)))
        self.arms = Arms("move")
        for moves, _ in self._moves.values():
            for move in moves:
                self.arms.add(move.name)

    def reweigh(self, rng: Rng) -> None:
        """Let moves whose rows showed something new weigh more."""
        factors = weights_of(self.arms, rng)
        for moves, weights in self._moves.values():
            weights[:] = accumulate(move.weight * factors[move.name] for move in moves)

    @property
    def can_change(self) -> bool:
        """Tell whether there is a row's value to change at all."""
        return bool(self._changing)

    @property
    def can_plant(self) -> bool:
        """Tell whether the contract allows rows with NaN or infinities."""
        return bool(self._plantable)

    @property
    def least(self) -> int:
        """Return the smallest number of rows, 1 or more, that a case may have."""
        step = self._axis.multiple_of
        return max(step, -(-max(self._axis.low, 1) // step) * step)

    def row_elements(self, arrays: Sequence[Array]) -> int:
        """Return the input elements of one row at a parent's sizes; a parent without rows has sizes as well."""
        return sum(
            math.prod(array.shape[:place]) * math.prod(array.shape[place + 1 :])
            for array, place in zip(arrays, self.places, strict=True)
            if place is not None
        )

    def admitted(self, rows: int) -> int:
        """Return the largest number of rows up to `rows` that a case may have, 0 where there is none."""
        if self._axis.high is not None:
            rows = min(rows, self._axis.high)
        rows -= rows % self._axis.multiple_of
        return rows if rows >= self.least else 0

    def make(
        self, parents: Sequence[Sequence[Array]], rows: int, label: str, rng: Rng
    ) -> tuple[list[Array], tuple[Group, ...]] | None:
        """Return the arrays of a stack and how its rows were made; sizes and shared inputs are the first parent's.

        None where a row holds nothing, or the contract admits none of it.
        """
        scene = self._scene
        with np.errstate(all="ignore"):
            bank = self._bank(parents, rows)
            if bank is None:
                return None
            chosen_rows = rng.numpy.integers(0, len(bank[self._changing[0]]), rows)
            blocks = {index: bank[index][chosen_rows] for index in bank}
            others = {index: bank[index][rng.numpy.integers(0, len(bank[index]), rows)] for index in self._changing}
            groups = self._move(parents[0], blocks, others, label, rng)
            arrays = [
                self._unflattened(index, blocks[index], array) if index in blocks else array
                for index, array in enumerate(parents[0])
            ]
            settled = scene.settle(arrays, keep_nonfinite=label == "nonfinite")
        return (
            None if settled is None else ([a if a.flags.c_contiguous else a.copy(order="C") for a in settled], groups)
        )

    def _bank(self, parents: Sequence[Sequence[Array]], rows: int) -> dict[int, Array] | None:
        """Return rows to start from: by input [rows, elements] in the working type, paired across inputs."""
        first = parents[0]
        kept = [parent for parent in parents if self._count(parent)]
        bank: dict[int, list[Array]] = {index: [] for index, place in enumerate(self.places) if place is not None}
        for parent in kept:
            count = min(self._count(parent), _BANK_ROWS, rows)
            for index, parts in bank.items():
                place = self.places[index]
                assert place is not None
                # rows first: many rows of a small parent, at the sizes of a large one, may be more than memory holds
                rows_of = np.take(parent[index], range(count), axis=place)
                shape = list(first[index].shape)
                shape[place] = count
                parts.append(self._flattened(index, self._scene.fitted(index, rows_of, tuple(shape)), count))
        if not kept or not all(bank[index][0].shape[1] for index in self._changing):
            return None
        return {index: parts[0] if len(parts) == 1 else np.concatenate(parts) for index, parts in bank.items()}

    def _count(self, arrays: Sequence[Array]) -> int:
        index, place = self._axis.places[0]
        return int(arrays[index].shape[place])

    def _flattened(self, index: int, array: Array, rows: int) -> Array:
        traits = self._scene.domains[index].traits
        place = self.places[index]
        assert place is not None
        front = np.ascontiguousarray(np.moveaxis(array, place, 0))
        if traits.family == "complex":
            front = front.reshape(rows, -1).view(traits.working)
        return front.reshape(rows, -1).astype(traits.working)

    def _unflattened(self, index: int, block: Array, like: Array) -> Array:
        traits, place = self._scene.domains[index].traits, self.places[index]
        assert place is not None
        if traits.family == "complex":
            block = np.ascontiguousarray(block).view(traits.dtype)
        shape = (*like.shape[:place], *like.shape[place + 1 :])
        return np.moveaxis(block.reshape(len(block), *shape), 0, place)

    def _move(
        self,
        first: Sequence[Array],
        blocks: dict[int, Array],
        others: dict[int, Array],
        label: str,
        rng: Rng,
    ) -> tuple[Group, ...]:
        """Let each group of rows through one to three moves, and plant what is not finite; write to `blocks`."""
        rows = len(others[self._changing[0]])
        count = min(_MOST_GROUPS, rows)
        groups = []
        for number in range(count):
            part = slice(number * rows // count, (number + 1) * rows // count)
            names: list[str] = []
            draw = rng.unit()
            for _ in range((1 if draw < 0.5 else 2 if draw < 0.8 else 3) - (label == "nonfinite")):
                index = rng.pick(self._changing)
                moves, weights = self._moves[index, label == "near"]
                if not moves:
                    continue
                move = moves[min(int(np.searchsorted(weights, rng.unit() * weights[-1], "right")), len(moves) - 1)]
                values = self._scene.domains[index].traits.working
                shape, is_leading = self._row_shape(first, index), self.places[index] == 0
                block = Block(self._scene, index, blocks[index][part], others[index][part], shape, is_leading)
                moved = np.asarray(move.move(block, rng)).astype(values, copy=False)
                blocks[index][part] = self._like(block, moved, rng) if move.keeps else moved
                names.append(move.name)
                self.arms.tried(move.name, 1.0 / count)
            if label == "nonfinite":
                names.append(self._plant(first, blocks, others, part, rng))
            groups.append(Group(part.start, part.stop, tuple(names)))
        return tuple(groups)

    def _like(self, block: Block, moved: Array, rng: Rng) -> Array:
        """Return moved rows with what the seeds' texture keeps: zeros, padding, and often ties."""
        texture = self._scene.textures[block.index]
        if texture.is_plain or not block.is_leading:
            return moved
        shape = (len(moved), *block.shape)
        like = texture.like(block.values.reshape(shape), moved.reshape(shape), rng.chance(_SNAPPING))
        return like.reshape(moved.shape).astype(moved.dtype, copy=False)

    def _row_shape(self, first: Sequence[Array], index: int) -> tuple[int, ...]:
        place = self.places[index]
        assert place is not None
        shape = first[index].shape
        pair = (2,) if self._scene.domains[index].traits.family == "complex" else ()
        return (*shape[:place], *shape[place + 1 :], *pair)

    def _plant(
        self, first: Sequence[Array], blocks: dict[int, Array], others: dict[int, Array], part: slice, rng: Rng
    ) -> str:
        """Write NaN or an infinity into a part of each row of a group."""
        index = rng.pick(self._plantable)
        x = blocks[index][part]
        where = masks(Block(self._scene, index, x, others[index][part], self._row_shape(first, index)), rng)
        if rng.chance(0.1):
            where = np.ones_like(where)
        value = chosen((np.nan, np.inf, -np.inf), (len(x), 1), rng, x.dtype)
        blocks[index][part] = np.where(where, value, x)
        return "row nonfinite"


class Stacker:
    """Make stacks of usual size from the parents of a pool."""

    def __init__(self, scene: Scene, pool: Pool, axis: Axis, usual_elements: int, valid: Valid | None) -> None:
        """Read where the rows lie once."""
        self._scene = scene
        self._pool = pool
        self._usual_elements = usual_elements
        self._valid = valid
        self.maker = RowMaker(scene, axis)

    def stack(
        self,
        rng: Rng,
        most_rows: Mapping[str, int],
        lineage: Lineage,
        label: str = "",
        *,
        is_full: bool = False,
        like: list[Array] | None = None,
    ) -> Stack | None:
        """Return a stack no larger than a usual case, and of up to `most_rows` by label; None where none fits.

        `label` asks for one kind of rows, `is_full` for as many rows as there may be, `like` for the sizes and shared
        inputs of other arrays than a parent's.
        """
        label = label or self._draw_label(rng)
        parents, family = self._parents(label, rng)
        if like is not None:
            parents[0] = Entry(self._scene.case(like), like)
        most = self._most(parents[0], most_rows.get(label, 0))
        if not is_full and most > 2 and not rng.chance(_FULL_SHARE):
            most = self.maker.admitted(2 + rng.below(most - 1))
        made = self.maker.make([parent.arrays for parent in parents], most, label, rng) if most >= 2 else None
        if made is None:
            return None
        arrays, groups = made
        lineage = replace(lineage, parents=tuple(dict.fromkeys(parent.case.digest for parent in parents)))
        stack = Stack(self._scene.case(arrays), lineage, label, most, self.maker.places, groups, family)
        return stack if self._valid is None else self._valid_part(stack, self._valid)

    def _draw_label(self, rng: Rng) -> str:
        draw = rng.unit()
        if draw < _NONFINITE_SHARE and self.maker.can_plant:
            return "nonfinite"
        return "near" if draw > 1.0 - _NEAR_SHARE else "recipe"

    def _parents(self, label: str, rng: Rng) -> tuple[list[Entry], str]:
        """Draw parents, and tell which family lent the first one.

        One whose rows are too large for two of them to be of usual size gives way to a seed.
        """
        if label == "near":
            return [rng.pick(self._pool.seeds) for _ in range(_BASES)], SEEDS
        finite = label != "nonfinite"
        first, family = self._pool.choose_from(rng, finite=finite)
        others = [self._pool.choose(rng, finite=finite) for _ in range(_BASES - 1)]
        if self._most(first, MOST_ROWS) < 2:
            first, family = rng.pick(self._pool.seeds), SEEDS
        return [first, *others], family

    def _most(self, parent: Entry, most_rows: int) -> int:
        usual = self._usual_elements // max(1, self.maker.row_elements(parent.arrays))
        return self.maker.admitted(min(most_rows, usual, _ASKED_ROWS if self._valid is not None else MOST_ROWS))

    def _valid_part(self, stack: Stack, valid: Valid) -> Stack | None:
        """Return the stack of those rows that the target's `valid` accepts alone, where it accepts that stack too."""
        contract, least = self._scene.contract, self.maker.least
        kept = [row for row in range(stack.rows) if not breach(contract, stack.take([row] * least), valid)]
        count = self.maker.admitted(len(kept))
        if count < 2:
            return None
        part = replace(stack, case=stack.take(kept[:count]), rows=count, groups=())
        return None if breach(contract, part.case, valid) else part


def stacker_for(scene: Scene, pool: Pool, usual_elements: int, valid: Valid | None) -> Stacker | None:
    """Return what makes stacks along the contract's batch dim; None where the contract alone forbids it."""
    axis = next((axis for axis in scene.axes if scene.contract.batch and axis.symbol == scene.contract.batch), None)
    if axis is None or why_not(scene.contract):
        return None
    stacker = Stacker(scene, pool, axis, usual_elements, valid)
    return stacker if stacker.maker.can_change else None
