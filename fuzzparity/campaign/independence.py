"""Independence: proof that on both sides no row of a stack minds the others.

The idea: of one stack half the rows are exchanged for wild ones, and for rows of NaN and infinities where the contract
allows them. Shapes and thereby kernels stay the same, so the other half must come out the same bit by bit: no tolerance
can hide a leak. Then the same rows in a smaller stack, and one alone, have to agree within the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fuzzparity.case import Array, Case, Lineage
from fuzzparity.execution import Execution
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.rows import Stack, Stacker
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.rows import by_row, compare_rows

_ROWS = 8
_STREAM = -1  # of chance: no lease has this number
Pair = tuple[Execution, Execution]
Run = Callable[[Case], Pair]


@dataclass(frozen=True, slots=True)
class Proof:
    """Say where each output has its rows, which labels of stacks both sides take, and how much comes out.

    `growth`: output elements for each input element.
    """

    axes: tuple[int, ...]
    labels: frozenset[str]
    growth: float


class Dependent(Exception):
    """Say in words why rows are not stacked."""


def prove(run: Run, stacker: Stacker, oracle: Oracle, rng_seed: int) -> Proof:
    """Return the proof that rows may be stacked; `Dependent` when they may not."""
    rng = Rng(rng_seed, _STREAM)
    base = stacker.stack(rng, {"near": _ROWS}, Lineage(), "near", is_full=True)
    if base is None:
        raise Dependent("a case of usual size does not hold two rows")
    fewer = stacker.maker.admitted(base.rows - 1)
    if fewer < 1:
        raise Dependent("the number of rows cannot vary")
    pair = _answers(run, base.case, f"a case of {base.rows} rows")
    small = _answers(run, base.take(range(fewer)), f"a case of {fewer} rows")
    axes = tuple(_axes(oracle.outputs, pair, small, base.rows, fewer))
    _require_agreement(oracle, axes, pair, small, range(fewer))
    least = stacker.maker.least
    alone = _answers(run, base.take([0] * least), f"a case of {least} row(s)")
    _require_agreement(oracle, axes, pair, alone, range(1))
    labels = frozenset(_proven_labels(run, stacker, oracle, base, pair, axes, rng))
    inputs = stacker.maker.row_elements(list(base.case.inputs.values()))
    outputs = sum(array.size for array in pair[0].outputs) / base.rows
    return Proof(axes, labels, outputs / max(inputs, 1))


def affordable(run: Run, stacker: Stacker, rows: int, seconds: float, rng_seed: int) -> int:
    """Return up to how many rows a stack may have for neither side to take longer than `seconds`.

    Only a model that is slow beyond doubt is affected: what a campaign runs must not depend on the machine's mood.
    """
    while rows > 2:
        stack = stacker.stack(Rng(rng_seed, _STREAM), {"near": rows}, Lineage(), "near", is_full=True)
        if stack is None or any(max(e.seconds for e in run(stack.case)) <= seconds for _ in range(2)):
            break
        rows = min(rows, stack.rows) // 2
    return rows


def _answers(run: Run, case: Case, what: str) -> Pair:
    pair = run(case)
    for execution in pair:
        if not execution.is_ok:
            said = execution.refusal.said if execution.refusal is not None else execution.status.value
            raise Dependent(f"{execution.side} does not take {what}: {said[:160]}")
    return pair


def _axes(names: Sequence[str], pair: Pair, small: Pair, rows: int, fewer: int) -> Iterator[int]:
    """Yield for each output the one axis whose size is the number of rows, on both sides."""
    (expected, actual), (less, less_actual) = pair, small
    if not len(names) == len(expected.outputs) == len(actual.outputs) == len(less.outputs) == len(less_actual.outputs):
        raise Dependent("the sides do not have the same outputs")
    for index, name in enumerate(names):
        shapes = [execution.outputs[index].shape for execution in (expected, actual, less, less_actual)]
        if shapes[0] != shapes[1] or shapes[2] != shapes[3] or len(shapes[0]) != len(shapes[2]):
            raise Dependent(f"output {name} is not of one shape on both sides")
        axes = [axis for axis, sizes in enumerate(zip(shapes[0], shapes[2], strict=True)) if sizes[0] != sizes[1]]
        if len(axes) != 1 or (shapes[0][axes[0]], shapes[2][axes[0]]) != (rows, fewer):
            raise Dependent(f"output {name} has no axis along which its rows lie")
        yield axes[0]


def _require_agreement(oracle: Oracle, axes: Sequence[int], pair: Pair, other: Pair, rows: Sequence[int]) -> None:
    """Require that the first rows of a stack come out of a smaller one within the screen."""
    for first, second in zip(pair, other, strict=True):
        for name, one, two, axis in zip(oracle.outputs, first.outputs, second.outputs, axes, strict=True):
            part, same = (np.take(array, rows, axis=axis) for array in (one, two))
            if compare_rows(part, same, oracle.allowance(name, part), axis).kinds.any():
                raise Dependent(f"output {name} of {first.side} depends on how many rows there are")


def _proven_labels(
    run: Run, stacker: Stacker, oracle: Oracle, base: Stack, pair: Pair, axes: Sequence[int], rng: Rng
) -> Iterator[str]:
    """Yield the labels of rows that leave the others as they are; those that a side refuses are left out."""
    for label in ("near", "recipe", "nonfinite"):
        if label == "nonfinite" and not stacker.maker.can_plant:
            continue
        other = stacker.stack(
            rng, {label: base.rows}, Lineage(), label, is_full=True, like=list(base.case.inputs.values())
        )
        if other is None or other.rows != base.rows:
            if label != "near":
                continue
            other = base
        takes = True
        for start in (0, 1):
            kept = list(range(start, base.rows, 2))
            mixed = run(_exchanged(base, other, kept))
            if not (mixed[0].is_ok and mixed[1].is_ok):
                takes = False
                continue
            for first, second in zip(pair, mixed, strict=True):
                if (name := changed_output(oracle, axes, first, second, kept)) and _is_leak(
                    run, oracle, axes, base, first, second, kept
                ):
                    raise Dependent(f"output {name} of {first.side} depends on other rows")
        if takes:
            yield label


def _is_leak(
    run: Run,
    oracle: Oracle,
    axes: Sequence[int],
    base: Stack,
    first: Execution,
    second: Execution,
    kept: Sequence[int],
) -> bool:
    """Tell whether changed bits come of other rows: a side that repeats itself bit by bit, or is beyond the screen."""
    again = next(execution for execution in run(base.case) if execution.side == first.side)
    if not again.is_ok or not changed_output(oracle, axes, first, again, kept):
        return True
    return not within_screen(oracle, axes, first, second, kept)


def within_screen(
    oracle: Oracle, axes: Sequence[int], first: Execution, second: Execution, rows: Sequence[int]
) -> bool:
    """Tell whether some rows of two executions of one side agree within the screen."""
    for name, one, two, axis in zip(oracle.outputs, first.outputs, second.outputs, axes, strict=True):
        part, same = (np.take(array, rows, axis=axis) for array in (one, two))
        if compare_rows(part, same, oracle.allowance(name, part), axis).kinds.any():
            return False
    return True


def _exchanged(base: Stack, other: Stack, kept: Sequence[int]) -> Case:
    """Return a stack's case with every row but those `kept` from another stack, in the order turned round."""
    arrays = {}
    rest = [row for row in range(base.rows) if row not in set(kept)]
    for (name, array), from_other, place in zip(
        base.case.inputs.items(), other.case.inputs.values(), base.places, strict=True
    ):
        if place is not None:
            array = array.copy()
            np.moveaxis(array, place, 0)[rest] = np.moveaxis(from_other, place, 0)[rest[::-1]]
        arrays[name] = array
    return Case(arrays)


def changed_output(
    oracle: Oracle, axes: Sequence[int], first: Execution, second: Execution, rows: Sequence[int]
) -> str:
    """Return the name of an output of which one of the rows is not bit by bit the same; "" when all are."""
    for name, one, two, axis in zip(oracle.outputs, first.outputs, second.outputs, axes, strict=True):
        if one.shape != two.shape or not _same_rows(one, two, axis, rows):
            return name
    return ""


def _same_rows(one: Array, two: Array, axis: int, rows: Sequence[int]) -> bool:
    first, second = by_row(one, axis)[rows], by_row(two, axis)[rows]
    if first.tobytes() == second.tobytes():
        return True
    if first.dtype.kind == "V":
        first, second = first.astype(np.float64), second.astype(np.float64)
    return bool(np.array_equal(first, second, equal_nan=first.dtype.kind == "f"))
