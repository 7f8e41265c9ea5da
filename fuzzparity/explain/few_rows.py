"""Few rows: the cases of one or two rows on which a finding of many may show, tried before anything is minimized.

The idea: evidence on a thousand rows costs a thousand times as much as on one, and passes that begin with the first
rows meet the one that matters last. The row that differs most mostly shows the finding alone; where inputs with NaN or
infinity are part of the finding, beside the first row that holds one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fuzzparity.case import Array, Case, is_finite
from fuzzparity.contract import Contract, Dim

_MANY = 8  # rows, below which the passes alone are as fast


def few_rows(case: Case, contract: Contract, index: tuple[int, ...] | None) -> Iterator[Case]:
    """Yield small cases of the rows that `index`, an element of the output that differs most, may lie in.

    Which of its axes holds the rows is not known, so each that may is tried, the first ahead. Nothing is yielded where
    the contract has no batch dim, or the case few rows.
    """
    places = _places(case, contract)
    rows = {case.inputs[name].shape[axis] for name, axis, _ in places}
    if len(rows) != 1 or (count := rows.pop()) < _MANY:
        return
    bad = None if case.is_finite else _first_nonfinite(case, places, count)
    for row in dict.fromkeys(place for place in index or (0,) if 0 <= place < count):
        chosen = [row] if bad is None or bad == row else [row, bad]
        sizes = range(len(chosen), count)
        size = next((size for size in sizes if all(dim.admits(size) for _, _, dim in places)), None)
        if size is not None:
            yield _taken(case, places, [*chosen, *[row] * (size - len(chosen))])


def _places(case: Case, contract: Contract) -> list[tuple[str, int, Dim]]:
    """Return where the inputs of a case hold rows."""
    found = []
    for item in contract.inputs:
        if contract.batch and item.name in case.inputs and len(item.dims) == case.inputs[item.name].ndim:
            found += [(item.name, axis, dim) for axis, dim in enumerate(item.dims) if dim.symbol == contract.batch]
    return found


def _taken(case: Case, places: list[tuple[str, int, Dim]], rows: list[int]) -> Case:
    inputs: dict[str, Array] = dict(case.inputs)
    for name, axis, _ in places:
        inputs[name] = np.ascontiguousarray(np.take(inputs[name], rows, axis=axis))
    return Case(inputs)


def _first_nonfinite(case: Case, places: list[tuple[str, int, Dim]], count: int) -> int | None:
    """Return the first row that holds NaN or infinity, in whichever input; None where no row does."""
    for row in range(count):
        if any(not is_finite(case.inputs[name].take(row, axis=axis)) for name, axis, _ in places):
            return row
    return None
