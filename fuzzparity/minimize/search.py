"""Search: the best case so far, the budget, and the one rule by which a proposal becomes the best.

The idea: a proposal costs an execution only when it was not seen before and is simpler in the total order, so passes
may propose freely, in any order, and repeat themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fuzzparity.case import Array, Case, distinct, magnitude, value_cost
from fuzzparity.contract import Contract

Values = tuple[int, int, float]


class BudgetSpent(Exception):
    """Leave the passes: executions or time are used up. Never leaves this package."""


class Search:
    """Hold the best case, and spend executions on proposals that are simpler than it."""

    def __init__(
        self,
        start: Case,
        interesting: Callable[[Case], bool],
        contract: Contract,
        *,
        limit_executions: int,
        deadline: float,
        clock: Callable[[], float],
        on_better: Callable[[Case], None] | None = None,
    ) -> None:
        """Begin at `start`, found interesting by one execution; `deadline` is in the time of `clock`."""
        self.best = start
        self.contract = contract
        self.executions = 1
        self.accepted = 0
        self._interesting = interesting
        self._limit_executions = limit_executions
        self._deadline = deadline
        self._clock = clock
        self._on_better = on_better
        self._opaque = [item.name for item in contract.inputs if item.is_opaque]
        self._seen = {start.digest}
        self._values: dict[int, tuple[Array, Values]] = {}  # by id; holding the array keeps the id its own
        self._key = self._key_of(start)

    def propose(self, inputs: Mapping[str, Array]) -> bool:
        """Make the best case with these inputs exchanged the best, if it is simpler and interesting.

        Opaque inputs stay as they are: a proposal that changes one is declined.
        """
        if any(name in inputs and not _is_same(inputs[name], self.best.inputs[name]) for name in self._opaque):
            return False
        candidate = Case({**self.best.inputs, **inputs})
        if self._sizes(candidate) > self._key[:2] or candidate.digest in self._seen:
            return False
        self._seen.add(candidate.digest)
        key = self._key_of(candidate)
        if key >= self._key:
            return False
        if self.executions >= self._limit_executions or self._clock() >= self._deadline:
            raise BudgetSpent
        self.executions += 1
        if not self._interesting(candidate):
            return False
        self.best, self._key = candidate, key
        self.accepted += 1
        kept = {id(array) for array in candidate.inputs.values()}
        self._values = {key: value for key, value in self._values.items() if key in kept}
        if self._on_better is not None:
            self._on_better(candidate)
        return True

    def _key_of(self, case: Case) -> tuple[int, int, int, int, float, str]:
        """Return `sort_key(case)`; what it says of arrays that the best case shares is remembered."""
        costs, distincts, magnitudes = zip(*(self._values_of(a) for a in case.inputs.values()), strict=True)
        return (*self._sizes(case), sum(costs), sum(distincts), sum(magnitudes), case.digest)

    def _values_of(self, array: Array) -> Values:
        found = self._values.get(id(array))
        if found is None:
            found = self._values[id(array)] = (array, (value_cost(array), distinct(array), magnitude(array)))
        return found[1]

    @staticmethod
    def _sizes(case: Case) -> tuple[int, int]:
        return case.elements, sum(sum(array.shape) for array in case.inputs.values())


def _is_same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def remove_runs(size: int, smallest: int, attempt: Callable[[int, int], bool]) -> None:
    """Offer runs [start, stop) of a sequence to `attempt`, from its end, longer ones as long as it accepts.

    Adaptive deletion as in Hypothesis: n accepted removals cost about log n attempts. `smallest` is the shortest run.
    """
    stop, length = size, smallest
    while stop > 0:
        start = max(0, stop - length)
        if attempt(start, stop):
            stop, length = start, 2 * length
        elif length > smallest:
            length = max(smallest, length // 4)
        else:
            stop = start


def smallest_run(size: int, effort: int) -> int:
    """Return the shortest run that is worth an execution: an eighth of all first, single elements at effort 2."""
    return max(1, -(-size // (8, 64, size or 1)[effort]))
