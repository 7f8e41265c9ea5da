"""Model: make the arrays of a small model (its inputs and weights) smaller and plainer while a fault stays.

The idea: weights are inputs that happen to be stored, so one loop minimizes both. Sizes first, and all axes of one size
together, since that is how tensors fit; then whole arrays are made up (constants, small integers, seeded noise of the
same mean and spread), so that nothing of a confidential model has to be shown; then single values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.contract import Contract
from fuzzparity.errors import NotReproduced
from fuzzparity.minimize.loop import minimize

Arrays = Mapping[str, Array]
_MOST_ROUNDS = 3  # of sizes; each one may make room for the next
_FEW = 4096  # elements in all, up to which single values are looked at
_SMALL = 32  # elements of one array, up to which its values are better simplified than made up


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Hold the smallest arrays found; `recipes`: numpy expressions of those that are made up whole."""

    arrays: dict[str, Array] = field(repr=False)
    recipes: dict[str, str] = field(default_factory=dict)
    executions: int = 0


class _Attempts:
    """Spend executions on proposals; the best arrays stand at any time."""

    def __init__(
        self,
        arrays: Arrays,
        interesting: Callable[[Arrays], bool],
        limit: int,
        deadline: float,
        on_better: Callable[[Shrunk], None],
    ) -> None:
        self.best = Shrunk(dict(arrays))
        self._interesting, self._limit, self.deadline = interesting, limit, deadline
        self._on_better = on_better

    @property
    def left(self) -> int:
        """Return how many executions may still be spent."""
        return self._limit - self.best.executions if time.monotonic() < self.deadline else 0

    def propose(self, arrays: Arrays, recipes: Mapping[str, str] = {}) -> bool:
        """Make these arrays the best where they still show the fault; recipes of changed arrays are lost."""
        if self.left <= 0:
            return False
        changed = {name: array for name, array in arrays.items() if not _is_same(array, self.best.arrays[name])}
        if not changed:
            return False
        executions = self.best.executions + 1
        candidate = {**self.best.arrays, **changed}
        if not self._interesting(candidate):
            self.best = replace(self.best, executions=executions)
            return False
        kept = {name: text for name, text in self.best.recipes.items() if name not in changed}
        self.best = Shrunk(candidate, kept | {n: t for n, t in recipes.items() if n in changed}, executions)
        self._on_better(self.best)
        return True


def shrunk(
    arrays: Arrays,
    interesting: Callable[[Arrays], bool],
    *,
    limit_executions: int,
    seconds: float,
    on_better: Callable[[Shrunk], None] = lambda found: None,
) -> Shrunk:
    """Return smaller and plainer arrays that are still interesting, by the same names."""
    attempts = _Attempts(arrays, interesting, limit_executions, time.monotonic() + seconds, on_better)
    if sum(array.size for array in arrays.values()) > _FEW:  # what is large is dear to ask about: small sizes first
        _shrink_together(attempts)
    _make_up_all(attempts)
    for _ in range(_MOST_ROUNDS):
        if not any([_shrink_together(attempts), _shrink_alone(attempts)]):
            break
    for name in sorted(attempts.best.arrays, key=lambda one: -attempts.best.arrays[one].size):
        _make_up(attempts, name)
    _simplify_values(attempts)
    return attempts.best


def _is_same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _sizes_below(size: int) -> Iterator[int]:
    """Yield the sizes to try instead of one, smallest first."""
    yield from (small for small in (1, 2, 3, 4, 8, 16) if small < size)
    yield from sorted({size // 8, size // 4, size // 2} - {0, 1, 2, 3, 4, 8, 16})


def _shrink_together(attempts: _Attempts) -> bool:
    """Cut all axes of one size to a smaller one, in integer lists too that name the size (targets of a Reshape)."""
    changed = False
    for size in sorted({s for array in attempts.best.arrays.values() for s in array.shape if s > 1}, reverse=True):
        for small in _sizes_below(size):
            kept = {name: _cut(array, size, small) for name, array in attempts.best.arrays.items()}
            named = {name: _renamed_size(array, size, small) for name, array in kept.items()}
            if attempts.propose(kept) or attempts.propose(named):
                changed = True
                break
    return changed


def _cut(array: Array, size: int, small: int) -> Array:
    where = tuple(slice(small) if s == size else slice(None) for s in array.shape)
    return np.ascontiguousarray(array[where]) if array.ndim else array


def _renamed_size(array: Array, size: int, small: int) -> Array:
    if array.dtype != np.int64 or array.ndim > 1 or array.size > 16:
        return array
    return np.where(array == size, np.int64(small), array)


def _shrink_alone(attempts: _Attempts) -> bool:
    """Cut single axes."""
    changed = False
    for name in attempts.best.arrays:
        for axis in range(attempts.best.arrays[name].ndim):
            array = attempts.best.arrays[name]
            for small in _sizes_below(array.shape[axis]):
                where = (*[slice(None)] * axis, slice(small))
                if attempts.propose({name: np.ascontiguousarray(array[where])}):
                    changed = True
                    break
    return changed


def _make_up_all(attempts: _Attempts) -> None:
    """Exchange all large arrays for seeded noise at once: most faults need no one's weights."""
    made = {
        name: drawn(array)
        for name, array in attempts.best.arrays.items()
        if array.size > _SMALL and is_float(array.dtype)
    }
    known = {name: found for name, found in made.items() if found is not None}
    attempts.propose({name: array for name, (array, _) in known.items()}, {n: text for n, (_, text) in known.items()})


def _make_up(attempts: _Attempts, name: str) -> None:
    """Exchange one array for the plainest that will do."""
    array = attempts.best.arrays[name]
    if array.size <= 1 or array.dtype.kind not in "fiubV" or not (is_float(array.dtype) or array.dtype.kind in "iub"):
        return
    values = (0, 1) if array.dtype.kind == "b" else (0, 1, 0.5) if is_float(array.dtype) else (0, 1, 2)
    for value in values:
        if attempts.propose({name: np.full(array.shape, value, array.dtype)}):
            return
    if array.size <= _SMALL:
        return
    for found in (counted(array), drawn(array)):
        if found is not None and attempts.propose({name: found[0]}, {name: found[1]}):
            return
    _thin_out(attempts, name)


def _thin_out(attempts: _Attempts, name: str) -> None:
    """Keep only the largest few values of an array."""
    for few in (1, 4, 16, 64):
        array = attempts.best.arrays[name]
        if array.size <= few or not is_float(array.dtype):
            return
        flat = array.reshape(-1).copy()
        rank = np.argsort(-np.abs(np.nan_to_num(flat.astype(np.float64), nan=np.inf)), kind="stable")
        flat[rank[few:]] = 0
        if attempts.propose({name: flat.reshape(array.shape)}):
            return


def counted(array: Array) -> tuple[Array, str] | None:
    """Return (an array of small integers in turn, its numpy expression)."""
    if array.dtype.kind not in "fiu":
        return None
    low = 0 if array.dtype.kind == "u" else -3
    text = f"(np.arange({array.size}) % 7 - {-low}).reshape({array.shape!r}).astype({array.dtype.name!r})"
    made = (np.arange(array.size) % 7 + low).reshape(array.shape).astype(array.dtype)
    return made, text.replace(" - 0", "")


def drawn(array: Array) -> tuple[Array, str] | None:
    """Return (seeded normal noise of an array's mean and spread, in two digits, its numpy expression)."""
    if array.dtype.kind != "f":
        return None
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    mean, spread = (_digits(float(finite.mean())), _digits(float(finite.std()))) if finite.size else (0.0, 1.0)
    if spread == 0.0 or not np.isfinite(mean + spread):
        return None
    noise = np.random.default_rng(0).standard_normal(array.shape)
    made = (noise * spread + mean).astype(array.dtype)
    text = f"np.random.default_rng(0).standard_normal({array.shape!r}) * {spread!r} + {mean!r}"
    return made, f"({text}).astype({array.dtype.name!r})"


def _digits(value: float) -> float:
    return float(f"{value:.1e}")


def _simplify_values(attempts: _Attempts) -> None:
    """Simplify single values of arrays that are not made up, by the passes that minimize cases."""
    arrays = {name: a for name, a in attempts.best.arrays.items() if name not in attempts.best.recipes and a.size}
    if not arrays or sum(array.size for array in arrays.values()) > _FEW or attempts.left <= 1:
        return
    start = Case(arrays)

    def interesting(case: Case) -> bool:
        return case == start or attempts.propose(case.inputs)

    try:
        minimize(
            start,
            interesting,
            limit_executions=attempts.left,
            deadline_seconds=max(0.0, attempts.deadline - time.monotonic()),
            contract=_FIXED,
        )
    except NotReproduced:  # it shows: it is the best so far
        return


_FIXED = Contract(())  # no dim may vary


def made_up(array: Array, original: Array | None) -> bool:
    """Tell whether an array holds nothing of the user's: one value throughout, or small whole numbers."""
    if original is None or array.size <= 1:
        return True
    flat = array.reshape(-1)
    if flat.tobytes() == np.full_like(flat, flat[0]).tobytes():
        return True
    wide = flat.astype(np.float64) if array.dtype.kind != "c" else np.abs(flat)
    finite = wide[np.isfinite(wide)]
    return bool((finite == np.rint(finite)).all() and np.abs(finite).max(initial=0.0) < 100)
