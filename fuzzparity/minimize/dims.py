"""Dims: passes that make dims smaller.

The idea: only what the contract lets vary may vary, and dims of one symbol move together, so that a proposal stays a
case of the target. A dim that breaks the contract already is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from fuzzparity.case import Array, Case
from fuzzparity.contract import Contract, Dim
from fuzzparity.minimize.search import Search, remove_runs, smallest_run


@dataclass(frozen=True, slots=True)
class Axes:
    """Name axes that have one size and change together, with the dims of the contract that the size keeps to."""

    members: tuple[tuple[str, int], ...]
    size: int
    dims: tuple[Dim, ...] = ()

    def admits(self, size: int) -> bool:
        """Tell whether the axes may take a size."""
        return all(dim.admits(size) for dim in self.dims)

    def smaller(self) -> Iterator[int]:
        """Yield the sizes below the present one, smallest first."""
        return (size for size in range(self.size) if self.admits(size))


def free_axes(case: Case, contract: Contract) -> list[Axes]:
    """Return the axes of a case that may change, largest first."""
    contracts = {item.name: item for item in contract.inputs}
    groups: dict[tuple[str, int], list[tuple[str, int]]] = {}
    dims: dict[tuple[str, int], list[Dim]] = {}
    for name, array in case.inputs.items():
        item = contracts.get(name)
        is_known = item is not None and len(item.dims) == array.ndim
        for axis, size in enumerate(array.shape):
            dim = item.dims[axis] if item is not None and is_known else None
            if item is None or (dim is not None and not dim.is_dynamic and dim.size == size):
                continue
            is_kept = dim is not None and dim.is_dynamic
            key = (dim.symbol, size) if dim is not None and is_kept else (f"{name}\0{axis}", size)
            groups.setdefault(key, []).append((name, axis))
            if dim is not None and is_kept and dim.admits(size):
                dims.setdefault(key, []).append(dim)
    found = [Axes(tuple(members), key[1], tuple(dims.get(key, ()))) for key, members in groups.items()]
    return sorted(found, key=lambda axes: -axes.size)


def shrink_together(search: Search, effort: int) -> None:
    """Set all free dims to small sizes at once: most faults need none of them."""
    for least in (1, 2, 3):
        inputs = dict(search.best.inputs)
        for axes in free_axes(search.best, search.contract):
            size = next((s for s in axes.smaller() if s >= least), axes.size)
            inputs.update(_kept(inputs, axes, np.arange(size)))
        if search.propose(inputs):
            return


def shrink_sizes(search: Search, effort: int) -> None:
    """Cut each dim to its first entries (later also its last): small sizes, then by bisection."""
    for axes in free_axes(search.best, search.contract):
        floor = -1
        for size in islice(axes.smaller(), (4, 12, 24)[effort]):
            floor = size
            if _cut(search, axes, size, from_end=effort > 0):
                break
        else:
            _bisect(search, axes, floor)


def delete_slices(search: Search, effort: int) -> None:
    """Delete slices anywhere along each dim, in runs that grow while they are accepted."""
    for axes in free_axes(search.best, search.contract):

        def attempt(start: int, stop: int, axes: Axes = axes) -> bool:
            name, axis = axes.members[0]
            size = search.best.inputs[name].shape[axis]
            if not axes.admits(size - (stop - start)):
                return False
            keep = np.delete(np.arange(size), slice(start, stop))
            return search.propose(_kept(search.best.inputs, axes, keep))

        # a dim that must be a multiple loses that many slices at a time
        step = max((dim.multiple_of for dim in axes.dims), default=1)
        remove_runs(axes.size, max(step, smallest_run(axes.size, effort)), attempt)


def _bisect(search: Search, axes: Axes, floor: int) -> None:
    """Find the smallest size above `floor` that will do, as if all larger ones would."""
    low, high = floor, axes.size
    while high - low > 1:
        middle = next((s for s in range((low + high) // 2, low, -1) if axes.admits(s)), low)
        if middle == low:
            low = (low + high) // 2
        elif _cut(search, axes, middle, from_end=False):
            high = middle
        else:
            low = middle


def _cut(search: Search, axes: Axes, size: int, *, from_end: bool) -> bool:
    name, axis = axes.members[0]
    present = search.best.inputs[name].shape[axis]
    keeps = [np.arange(size)]
    if from_end and size:
        keeps.append(np.arange(present - size, present))
    return any(search.propose(_kept(search.best.inputs, axes, keep)) for keep in keeps)


def _kept(inputs: Mapping[str, Array], axes: Axes, keep: Array) -> dict[str, Array]:
    """Return the inputs of `axes` with only some entries along each of them."""
    changed: dict[str, Array] = {}
    for name, axis in axes.members:
        changed[name] = np.ascontiguousarray(np.take(changed.get(name, inputs[name]), keep, axis=axis))
    return changed
