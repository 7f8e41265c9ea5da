"""Minimize: the loop over passes, from cheap and coarse to dear and fine, until nothing gets simpler.

The idea: the minimizer knows a predicate and a total order, and nothing else. Its first act is to check that the start
is interesting. Passes depend on the best case alone, so a result that no pass improves is a fixpoint: minimizing it
again changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fuzzparity.case import Case
from fuzzparity.contract import Contract
from fuzzparity.errors import NotReproduced
from fuzzparity.minimize.dims import delete_slices, shrink_sizes, shrink_together
from fuzzparity.minimize.search import BudgetSpent, Search
from fuzzparity.minimize.values import (
    simplify_equal_values,
    simplify_runs,
    simplify_single_values,
    simplify_tensors,
    zero_runs,
)

Pass = Callable[[Search, int], None]
EFFORTS = (0, 1, 2)  # eighths, sixty-fourths, single elements
PASSES: dict[str, Pass] = {  # dims first: every later execution gets cheaper
    "shrink_together": shrink_together,
    "shrink_sizes": shrink_sizes,
    "delete_slices": delete_slices,
    "simplify_tensors": simplify_tensors,
    "zero_runs": zero_runs,
    "simplify_equal_values": simplify_equal_values,
    "simplify_runs": simplify_runs,
    "simplify_single_values": simplify_single_values,
}


@dataclass(frozen=True, slots=True)
class PassStatistics:
    """Count what a pass cost and gave."""

    runs: int = 0
    executions: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Minimized:
    """Hold the simplest interesting case found; `reached_fixpoint` is false when the budget ended the search."""

    case: Case
    executions: int
    passes: dict[str, PassStatistics] = field(default_factory=dict)
    reached_fixpoint: bool = False


def minimize(
    case: Case,
    interesting: Callable[[Case], bool],
    *,
    limit_executions: int,
    deadline_seconds: float,
    contract: Contract,
    clock: Callable[[], float] = time.monotonic,
    on_better: Callable[[Case], None] | None = None,
) -> Minimized:
    """Return the simplest case that is still interesting, within a number of executions and a time from now.

    `interesting` may be dear (a forked run): it is asked once per candidate, and only about candidates simpler than the
    best so far. `on_better` sees every improvement, so that an interrupted search loses none. Raises NotReproduced when
    the start is not interesting.
    """
    deadline = clock() + deadline_seconds
    if not interesting(case):
        raise NotReproduced(
            f"{case!r} does not show what it is to be minimized for; confirm the finding first (replay it alone)"
        )
    search = Search(
        case,
        interesting,
        contract,
        limit_executions=limit_executions,
        deadline=deadline,
        clock=clock,
        on_better=on_better,
    )
    statistics = dict.fromkeys(PASSES, PassStatistics())
    try:
        for effort in EFFORTS:
            while _run_passes(search, effort, statistics):
                pass
    except BudgetSpent:
        return Minimized(search.best, search.executions, statistics, reached_fixpoint=False)
    return Minimized(search.best, search.executions, statistics, reached_fixpoint=True)


def _run_passes(search: Search, effort: int, statistics: dict[str, PassStatistics]) -> bool:
    """Run every pass once; tell whether any of them made the case simpler."""
    before = search.accepted
    for name, run in PASSES.items():
        executions, accepted = search.executions, search.accepted
        try:
            run(search, effort)
        finally:
            old = statistics[name]
            statistics[name] = replace(
                old,
                runs=old.runs + 1,
                executions=old.executions + search.executions - executions,
                accepted=old.accepted + search.accepted - accepted,
            )
    return search.accepted > before
