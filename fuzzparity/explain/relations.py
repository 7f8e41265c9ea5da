"""Relations: what must hold between two cases of one side, without a twin to compare with.

The idea: where rows are independent, a row's answer is the same alone, beside copies of itself and in any order of
rows; where padding does not count, other values there change nothing that counts. A relation is used only where both
sides keep it on the seeds, within what the oracle allows. A side that breaks it while the other keeps it is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fuzzparity.case import Array, Case, Lineage, is_float
from fuzzparity.contract import Contract, Dim, InputContract, Role
from fuzzparity.execution import Execution
from fuzzparity.generate.contract import Valid, breach
from fuzzparity.generate.generator import Generator
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.rows import Stacker, take_rows
from fuzzparity.oracle.judge import Oracle
from fuzzparity.verdict import Comparison, Kind

PERMUTED, ALONE, REPEATED, PADDED = "rows permuted", "one row alone", "one row repeated", "padding changed"
_ROWS = 4  # of the stack on which relations of rows are proven
_STREAM = -2  # of chance: no lease has this number
_FACTORS = (1.0, -1.0, 8.0, 100.0)  # of what stands elsewhere in the input, written to padding
_REST = 3  # of so many positions, one is padded where a seed has no padding

Pair = tuple[Execution, Execution]
Run = Callable[[Case], Pair]


@dataclass(frozen=True, slots=True)
class Related:
    """Hold a case made of another one. `rows`: by place in it, the row of the first; () where none moves."""

    relation: str
    case: Case
    rows: tuple[int, ...] = ()


def broken(oracle: Oracle, related: Related, axes: Sequence[int], first: Execution, second: Execution) -> Break | None:
    """Compare what a side answered to a case with what it answered to the related one; None where that cannot be."""
    if not (first.is_ok and second.is_ok and len(first.outputs) == len(second.outputs)):
        return None
    part = first if not related.rows else _rows_of(first, related.rows, axes)
    if part is None or not _same_masks(part, second):
        return None
    screening = oracle.screen(part, second)
    return Break(screening.comparisons) if screening.comparisons else None


@dataclass(frozen=True, slots=True)
class Break:
    """Hold by output how far a side is from keeping a relation."""

    comparisons: tuple[Comparison, ...]

    @property
    def is_broken(self) -> bool:
        """Tell whether any output is beyond what is allowed."""
        return any(comparison.kind is not Kind.AGREE for comparison in self.comparisons)


def _rows_of(execution: Execution, rows: Sequence[int], axes: Sequence[int]) -> Execution | None:
    """Return some rows of an answer, masks included."""
    if len(axes) != len(execution.outputs):
        return None
    along = list(zip(execution.outputs, axes, strict=True))
    if any(array.ndim <= axis or array.shape[axis] <= max(rows) for array, axis in along):
        return None
    outputs = tuple(np.take(array, rows, axis=axis) for array, axis in along)
    masks = execution.where or (None,) * len(along)
    where = tuple(
        None if mask is None else np.take(np.broadcast_to(mask, array.shape), rows, axis=axis)
        for mask, (array, axis) in zip(masks, along, strict=True)
    )
    return replace(execution, outputs=outputs, where=where)


def _same_masks(one: Execution, other: Execution) -> bool:
    """Tell whether the same places count in two answers."""
    none = (None,) * len(other.outputs)
    for first, second, array in zip(one.where or none, other.where or none, other.outputs, strict=True):
        if (first is None) != (second is None):
            return False
        if first is not None and second is not None:
            try:
                same = np.array_equal(np.broadcast_to(first, array.shape), np.broadcast_to(second, array.shape))
            except ValueError:  # outputs of other sizes
                return False
            if not same:
                return False
    return True


def axes_of(first: Execution, second: Execution, rows: int, others: int) -> tuple[int, ...] | None:
    """Return where each output has its rows, from two answers to different numbers of them; None where that is open."""
    if not (first.is_ok and second.is_ok and len(first.outputs) == len(second.outputs)) or rows == others:
        return None
    axes = []
    for one, two in zip(first.outputs, second.outputs, strict=True):
        if one.ndim != two.ndim:
            return None
        found = [axis for axis, sizes in enumerate(zip(one.shape, two.shape, strict=True)) if sizes[0] != sizes[1]]
        if len(found) != 1 or (one.shape[found[0]], two.shape[found[0]]) != (rows, others):
            return None
        axes.append(found[0])
    return tuple(axes)


class Rows:
    """Make cases whose rows are those of another one: permuted, alone, beside copies of themselves."""

    def __init__(self, stacker: Stacker, contract: Contract, valid: Valid | None) -> None:
        """Work along the batch dim for which a generator makes stacks."""
        self._maker = stacker.maker
        self._stacker = stacker
        self._contract = contract
        self._valid = valid

    @property
    def least(self) -> int:
        """Return the smallest number of rows, 1 or more, that a case may have."""
        return self._maker.least

    def count(self, case: Case) -> int:
        """Return how many rows a case has."""
        return next(
            int(array.shape[place])
            for array, place in zip(case.inputs.values(), self._maker.places, strict=True)
            if place is not None
        )

    def permuted(self, case: Case, rng: Rng) -> Related | None:
        """Return a case with its rows in another order, the first and last of them at other places."""
        rows = self.count(case)
        if rows < 2:
            return None
        if rows == 2 or rng.chance(0.5):
            return self._taken(PERMUTED, case, range(rows - 1, -1, -1))
        shift = 1 + rng.below(rows - 1)
        return self._taken(PERMUTED, case, [(row + shift) % rows for row in range(rows)])

    def alone(self, case: Case, row: int) -> Related | None:
        """Return one row in as small a case as there may be."""
        return self._taken(ALONE, case, [row] * self.least) if self.count(case) > self.least else None

    def repeated(self, case: Case, row: int) -> Related | None:
        """Return one row beside copies of itself, where a case may have more rows than this one."""
        rows = self._maker.admitted(max(2 * self.count(case), self.least + 1))
        return self._taken(REPEATED, case, [row] * rows) if rows > self.count(case) else None

    def _taken(self, relation: str, case: Case, rows: Sequence[int]) -> Related | None:
        made = take_rows(case, self._maker.places, rows)
        return None if breach(self._contract, made, self._valid) else Related(relation, made, tuple(rows))

    def proven(
        self, run: Run, oracle: Oracle, rng_seed: int = 0, *, sides: Sequence[int] = (0, 1)
    ) -> tuple[int, ...] | None:
        """Return where the outputs have their rows when the sides keep every relation on rows near the seeds.

        `sides`: those that have to, by place in what `run` returns.
        """
        rng = Rng(rng_seed, _STREAM)
        stack = self._stacker.stack(rng, {"near": max(_ROWS, 2 * self.least)}, Lineage(), "near", is_full=True)
        if stack is None or stack.rows < 2:
            return None
        case = stack.case
        made = (self.alone(case, stack.rows - 1), self.repeated(case, 0), self.permuted(case, rng))
        if made[2] is None or (made[0] is None and made[1] is None):
            return None
        pair = run(case)
        axes: tuple[int, ...] | None = None
        for related in made:
            if related is None:
                continue
            other = run(related.case)
            for side in sides:
                first, second = pair[side], other[side]
                axes = axes or axes_of(first, second, stack.rows, len(related.rows))
                kept = broken(oracle, related, axes, first, second) if axes is not None else None
                if kept is None or kept.is_broken:
                    return None
        return axes


def rows_of(contract: Contract, seed: Case, valid: Valid | None, generator: Generator | None = None) -> Rows | None:
    """Return the relations of rows; None where the contract has no batch dim along which a case may grow."""
    if not contract.batch:
        return None
    if generator is None:
        generator = Generator(contract, [seed], 0, valid=valid)
    return None if generator.stacker is None else Rows(generator.stacker, contract, valid)


@dataclass(frozen=True, slots=True)
class Padding:
    """Say what tells which positions are padding, and which inputs hold something there.

    `source`: a mask [rows, positions], of rank 2 but for sizes 1, or lengths [rows]. `keeps_nonzero`: of a mask,
    whether it is not zero where something counts. `places`: inputs with the axes of rows and positions.
    """

    source: InputContract
    keeps_nonzero: bool
    places: tuple[tuple[InputContract, int, int], ...]

    def padded(self, case: Case) -> Array | None:
        """Return which positions are padding, as bool [rows, positions]; None where that cannot be told."""
        array = case.inputs[self.source.name]
        item, row_axis, axis = self.places[0]
        shape = case.inputs[item.name].shape
        rows, positions = shape[row_axis], shape[axis]
        if self.source.role is Role.LENGTHS:
            if array.size != rows:
                return None
            return np.asarray(np.arange(positions) >= array.reshape(-1, 1))
        if array.size != rows * positions:
            return None
        return np.asarray((array.reshape(rows, positions) != 0) != self.keeps_nonzero)

    def with_padding(self, case: Case) -> Case:
        """Return a case of which the end is padding in every row, where it has none or nothing else."""
        padded = self.padded(case)
        if padded is None or (padded.any() and not padded.all()):
            return case
        array = case.inputs[self.source.name]
        positions = padded.shape[1]
        kept = max(1, positions - max(1, positions // _REST))
        if self.source.role is Role.LENGTHS:
            return case.replace(**{self.source.name: np.full_like(array, kept)})
        flags = np.broadcast_to((np.arange(positions) < kept) == self.keeps_nonzero, padded.shape)
        return case.replace(**{self.source.name: flags.reshape(array.shape).astype(array.dtype)})

    def changed(self, case: Case, rng: Rng) -> Related | None:
        """Return a case with other values at its padding; None where it has none."""
        padded = self.padded(case)
        if padded is None or not padded.any() or padded.all():
            return None
        made = case
        for item, row_axis, axis in self.places:
            array = case.inputs[item.name]
            if array.size and padded.shape == (array.shape[row_axis], array.shape[axis]):
                made = made.replace(**{item.name: _written(item, array, (row_axis, axis), padded, rng)})
        return None if made == case else Related(PADDED, made)


def _written(item: InputContract, array: Array, axes: tuple[int, int], padded: Array, rng: Rng) -> Array:
    """Return an input with values from elsewhere in it at its padding, floats larger or turned round at times."""
    made = array.copy()
    view = np.moveaxis(made, axes, (0, 1))
    pool = array.reshape(-1)
    drawn = pool[rng.integers(0, pool.size - 1, view[padded].shape)]
    if array.dtype.kind == "b":
        drawn = ~view[padded]
    elif is_float(array.dtype):
        with np.errstate(all="ignore"):
            wide = drawn.astype(np.float64) * rng.pick(_FACTORS)
            low, high = (np.inf * sign if end is None else end for end, sign in ((item.low, -1), (item.high, 1)))
            drawn = np.clip(wide, low, high).astype(array.dtype)
    elif item.index_limit is not None and rng.chance(0.5):
        drawn = rng.integers(0, item.index_limit - 1, drawn.shape).astype(array.dtype)
    view[padded] = drawn
    return made


def paddings_of(contract: Contract, seed: Case) -> Iterator[Padding]:
    """Yield what may tell of padding, by the roles of a contract's inputs; masks in both senses."""
    for item in contract.inputs:
        if item.role is Role.LENGTHS and item.counted is not None and seed.inputs[item.name].ndim == 1:
            counted = contract.input(item.counted[0])
            places = _alike(contract, seed, item, counted, 0, item.counted[1])
            if places:
                yield Padding(item, True, places)
        elif item.role is Role.MASK:
            long = [axis for axis, dim in enumerate(item.dims) if dim.is_dynamic or dim.size != 1]
            if len(long) == 2 and (places := _alike(contract, seed, item, item, *long)):
                yield Padding(item, True, places)
                yield Padding(item, False, places)


def _alike(
    contract: Contract, seed: Case, source: InputContract, like: InputContract, row_axis: int, axis: int
) -> tuple[tuple[InputContract, int, int], ...]:
    """Return the inputs that have the rows and positions of one of them, and their axes."""
    rows, positions = like.dims[row_axis], like.dims[axis]
    found = []
    for item in contract.inputs:
        if item.name == source.name or item.is_opaque or item.role in (Role.MASK, Role.LENGTHS, Role.OFFSETS):
            continue
        first, second = (
            next((place for place, dim in enumerate(item.dims) if _is_same_dim(dim, wanted, place, at)), None)
            for wanted, at in ((rows, row_axis), (positions, axis))
        )
        if first is not None and second is not None and first != second:
            found.append((item, first, second))
    return tuple(found)


def _is_same_dim(dim: Dim, wanted: Dim, place: int, at: int) -> bool:
    if wanted.symbol or dim.symbol:
        return dim.symbol == wanted.symbol
    return dim.size == wanted.size and place == at


def proven_padding(
    contract: Contract, seed: Case, valid: Valid | None, run: Run, oracle: Oracle, rng_seed: int = 0
) -> Padding | None:
    """Return what tells of padding such that both sides' valid outputs do not depend on it, on the first seed.

    The places that are not padding have to matter, else nothing is shown.
    """
    for padding in paddings_of(contract, seed):
        rng = Rng(rng_seed, _STREAM)
        base = padding.with_padding(seed)
        made = [padding.changed(base, rng) for _ in range(2)]
        inverse = replace(padding, keeps_nonzero=not padding.keeps_nonzero)
        counter = inverse.changed(base, rng) if padding.source.role is Role.MASK else None
        cases = [base, *(related.case for related in made if related is not None)]
        if len(cases) < 2 or any(breach(contract, case, valid) for case in cases):
            continue
        pair = run(base)
        if not any(mask is not None and mask.any() for mask in pair[0].where):
            continue
        if all(_keeps(oracle, related, pair, run) for related in made if related is not None) and (
            counter is None or not _keeps(oracle, counter, pair, run)
        ):
            return padding
    return None


def _keeps(oracle: Oracle, related: Related, pair: Pair, run: Run) -> bool:
    """Tell whether both sides keep a relation in which no row moves."""
    for first, second in zip(pair, run(related.case), strict=True):
        found = broken(oracle, related, (), first, second)
        if found is None or found.is_broken:
            return False
    return True
