"""Sets: outputs whose items may come in any order, such as boxes that were sorted by scores which tie.

The idea: ORT's items are put into torch's order before anything is compared, each with the item that is nearest to it
in units of what is allowed; then the ordinary comparison speaks, in torch's coordinates.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array
from fuzzparity.oracle.compare import Allowance, as_float64, has_equal_bits, largest_finite

MOST_ITEMS = 1024  # of one set, whose pairs are all looked at; larger ones are sorted by their values
_MOST_CELLS = 1 << 24  # pairs times the elements of an item, looked at in one go: 128 MiB

Wide = npt.NDArray[np.float64]


def reordered(expected: Array, actual: Array, axis: int, allowance: Allowance) -> Array:
    """Return `actual` with the items along `axis` in the order of `expected`; as it is where the forms differ.

    What comes before the axis are sets of their own (a batch), what comes behind it one item.
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype or not -expected.ndim <= axis < expected.ndim:
        return actual
    if not expected.size or has_equal_bits(expected, actual):
        return actual
    axis %= expected.ndim
    form = (-1, expected.shape[axis], int(np.prod(expected.shape[axis + 1 :], dtype=np.int64)))
    sets = zip(as_float64(expected).reshape(form), as_float64(actual).reshape(form), strict=True)
    orders = [_order(e, a, allowance) for e, a in sets]
    items = actual.reshape(form[0] if form[0] > 0 else len(orders), *form[1:])
    found: Array = np.stack([one[order] for one, order in zip(items, orders, strict=True)]).reshape(actual.shape)
    return found


def _order(e: Wide, a: Wide, allowance: Allowance) -> npt.NDArray[np.intp]:
    """Return the place in `a` of the partner of each item of `e`."""
    count = len(e)
    if count > MOST_ITEMS or count * count * e.shape[1] > _MOST_CELLS:
        order = np.empty(count, np.intp)
        order[np.lexsort(e.T[::-1])] = np.lexsort(a.T[::-1])
        return order
    with np.errstate(all="ignore"):
        magnitude = np.abs(e)
        allowed = allowance.at(magnitude, largest_finite(magnitude))[:, None]
        same = (e[:, None] == a[None]) | (np.isnan(e)[:, None] & np.isnan(a)[None])
        ratios = np.where(same, 0.0, np.abs(e[:, None] - a[None]) / allowed).max(axis=2, initial=0.0)
    return _partners(np.where(np.isnan(ratios), np.inf, ratios))


def _partners(ratios: Wide) -> npt.NDArray[np.intp]:
    """Return a partner for each row: within 1 for as many as can be (augmenting paths: Kuhn, 1955), else nearest."""
    count = len(ratios)
    near = [np.flatnonzero(row <= 1.0)[np.argsort(row[row <= 1.0], kind="stable")] for row in ratios]
    owner = np.full(count, -1, np.intp)  # of each column
    for row in range(count):
        _augment(row, near, owner)
    partner = np.full(count, -1, np.intp)
    partner[owner[owner >= 0]] = np.flatnonzero(owner >= 0)
    left = np.flatnonzero(owner < 0)
    for row in np.flatnonzero(partner < 0).tolist():
        best = int(np.argmin(ratios[row, left]))
        partner[row] = left[best]
        left = np.delete(left, best)
    return partner


def _augment(start: int, near: list[npt.NDArray[np.intp]], owner: npt.NDArray[np.intp]) -> None:
    """Give a row a column, moving others along a path where theirs are taken; breadth first, without recursion."""
    came_from: dict[int, int] = {}  # column -> row that reached it
    rows = [start]
    for row in rows:
        for column in near[row].tolist():
            if column in came_from:
                continue
            came_from[column] = row
            if owner[column] >= 0:
                rows.append(int(owner[column]))
                continue
            while True:  # back along the path
                back = came_from[column]
                previous = int(np.flatnonzero(owner == back)[0]) if (owner == back).any() else -1
                owner[column] = back
                if back == start:
                    return
                owner[previous] = -1
                column = previous
