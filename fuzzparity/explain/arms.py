"""Arms: what the oracle asks of branches, answered by the two sides of one build.

The idea: every run is announced, so that a death is put down to the side that died.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from fuzzparity.case import Array, Case
from fuzzparity.decisions import COND, TENSOR_BOOL, TENSOR_ITEM, WHILE_LOOP, Decision, Path
from fuzzparity.execution import ORT, TORCH, Execution
from fuzzparity.explain.records import REFEREE
from fuzzparity.oracle.compare import has_equal_bits
from fuzzparity.sides.pair import Pair
from fuzzparity.work.announce import Announcer

_ON_VALUES = frozenset({TENSOR_BOOL, TENSOR_ITEM, COND, WHILE_LOOP})


class TwinArms:
    """Answer for one pair. `note`: what is to be said of the copy that puts out its branches; "" as a rule."""

    def __init__(self, pair: Pair, announcer: Announcer, masked: Callable[[Case, Execution], Execution]) -> None:
        """Bind to a pair; `masked` clears of an execution what does not count."""
        self.note = ""
        self._pair = pair
        self._announcer = announcer
        self._masked = masked

    @functools.cached_property
    def _sample(self) -> Path:
        with self._announcer.at(TORCH):
            return self._pair.sample_path

    def sample(self) -> Path:
        """Return the path of the sample that was exported."""
        return self._sample

    def line_on_values(self) -> str | None:
        """Return the line at which the sample's run read a value to go on; None where it read none."""
        return next((one.source for one in self._sample if one.what in _ON_VALUES), None)

    def sent(self, case: Case, arms: Mapping[str, int]) -> Execution | None:
        """Run torch with some arms given; None where its code cannot be sent into them."""
        with self._announcer.at(TORCH):
            execution = self._pair.torch_side.sent(case, arms)
        return None if execution is None else self._masked(case, execution)

    def exact(self, case: Case) -> Path:
        """Return the path of the exact run, of torch itself where there is no exact one."""
        with self._announcer.at(REFEREE):
            path = self._pair.exact_path(case)
        if path:
            return path
        with self._announcer.at(TORCH):
            return self._pair.run_torch(case).decisions

    def rounded(self, case: Case, draw: int) -> Path:
        """Return the path of an exact run with every intermediate rounded at random; empty where there is none."""
        with self._announcer.at(REFEREE):
            return self._pair.exact_path(case, draw)

    def code(self, decision: Decision) -> str:
        """Return the text of a decision's line."""
        return self._pair.code_at(decision.source)

    def taken_notes(self) -> tuple[str, ...]:
        """Return what is to be said and has not been taken before."""
        note, self.note = self.note, ""
        return (note,) if note else ()

    def decided(self, case: Case, actual: Execution) -> Execution:
        """Return ORT's execution with the branches that it took, where its model has any and they can be believed."""
        if not actual.is_ok or actual.decisions or not self._pair.branching.has_branches:
            return actual
        with self._announcer.at(ORT):
            told = self._pair.branching.run(case)
        if told is None:
            return actual
        told = self._masked(case, told)
        if len(told.outputs) != len(actual.outputs) or not all(map(_same, told.outputs, actual.outputs)):
            self.note = "branches of the ONNX model are not told: the copy that puts them out gives other bits"
            return actual
        return replace(actual, decisions=told.decisions)


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and has_equal_bits(one, other)
