"""Relating: which side of a finding breaks a relation that the other one keeps.

The idea: where torch and ORT differ on a batch, the same rows alone, beside copies of themselves or in another order
ask each side about itself; the one that answers otherwise is at fault, and no third engine is needed to say so. Nothing
is said unless its own change is as large as the difference between the sides, and both sides keep the relation on the
seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fuzzparity.case import Case
from fuzzparity.errors import InvalidCase
from fuzzparity.execution import ORT, TORCH, Execution
from fuzzparity.explain.pairing import map_of
from fuzzparity.explain.records import TwinSpec
from fuzzparity.explain.relations import (
    ALONE,
    PADDED,
    PERMUTED,
    REPEATED,
    Break,
    Related,
    Rows,
    axes_of,
    broken,
    proven_padding,
    rows_of,
)
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.generate.rng import Rng
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.verdict import RELATION, Attribution, Comparison, Grade, Kind, Statement, Verdict
from fuzzparity.work.alone import run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.loader import Context

_KINDS = frozenset({Kind.NUMERIC, Kind.DECISION, Kind.NONFINITE})
_LEAST_SHARE = 0.5  # of the sides' difference, that the change of the side at fault makes up
_MOST_SHARE = 0.125  # of that change, that the other side may show
_LONGEST_SECONDS = 10.0
_STREAM = -3  # of chance
_NAMES = {TORCH: "torch", ORT: "ORT"}
_WHEN = {
    ALONE: "when the row runs alone",
    REPEATED: "when the row runs beside copies of itself",
    PERMUTED: "when the rows come in another order",
    PADDED: "when the padding holds other values",
}


@dataclass(frozen=True, slots=True)
class Guilt:
    """Say which side breaks a relation that the other one keeps, and by how much."""

    side: str
    relation: str
    comparison: Comparison
    seconds: float = 0.0


def told_by_relations(context: Context, spec: TwinSpec, case: Case, verdict: Verdict, *, seconds: float) -> Verdict:
    """Return a bug's verdict with the side that breaks a relation, where one does and the other does not."""
    if verdict.grade is not Grade.BUG or verdict.kind not in _KINDS or not spec.is_built or seconds <= 0:
        return verdict
    target, contract = context.loaded.target, spec.facts.contract
    if not contract.batch and target.compare_where is None:
        return verdict

    def body(announcer: Announcer, send: Callable[[Any], None]) -> Guilt | None:
        twin = open_twin(context, spec, announcer, case)
        if isinstance(twin, Execution):
            return None
        return _Asking(twin, context.loaded, case, verdict).guilt()

    answer = run_alone(
        body, map_path=map_of(context), limits=context.limits, total_seconds=min(seconds, _LONGEST_SECONDS)
    )
    return told(verdict, answer) if isinstance(answer, Guilt) else verdict


def told(verdict: Verdict, guilt: Guilt) -> Verdict:
    """Return a verdict that names the side at fault, with what it was asked among the arbiters' statements."""
    one, other = (_NAMES[TORCH], _NAMES[ORT]) if guilt.side == TORCH else (_NAMES[ORT], _NAMES[TORCH])
    innocent = ORT if guilt.side == TORCH else TORCH
    found, when = guilt.comparison, _WHEN[guilt.relation]
    said = f"{one} gives {found.expected_at}, then {found.actual_at}; {other} gives the same"
    statement = Statement(f"{RELATION}{guilt.relation}", innocent, said, guilt.seconds)
    how = f"{one} alone answers otherwise {when}"
    known = verdict.attribution or Attribution(how="")
    known = replace(known, how=f"{known.how}; {how}" if known.how else how, statements=(*known.statements, statement))
    headline = f"{verdict.headline}; only {one} answers otherwise {when}"
    return replace(verdict, side=verdict.side or guilt.side, attribution=known, headline=headline)


class _Asking:
    """Ask both sides of one case about themselves."""

    def __init__(self, twin: Twin, loaded: LoadedTarget, case: Case, verdict: Verdict) -> None:
        self._twin = twin
        self._loaded = loaded
        self._contract = twin.spec.facts.contract
        self._case = case
        self._verdict = verdict
        self._output = twin.oracle.outputs.index(verdict.output) if verdict.output in twin.oracle.outputs else -1

    def guilt(self) -> Guilt | None:
        """Return the first relation that tells a side, and that is proven on the seeds."""
        if self._output < 0 or self._twin.oracle.breach(self._case):
            return None
        pair = self._twin.run(self._case)
        for guilt in self._of_rows(pair):
            return guilt
        return self._of_padding(pair)

    def _of_rows(self, pair: tuple[Execution, Execution]) -> Iterator[Guilt]:
        """Yield what relations of rows tell, once they are proven."""
        try:
            rows = rows_of(self._contract, self._loaded.seed, self._loaded.target.valid)
        except InvalidCase:  # no seed inside of the contract to prove anything on
            return
        if rows is None or not rows.count(self._case) or self._twin.arms.line_on_values() is not None:
            return  # what decides on values of the whole batch is not meant to be independent
        axes: tuple[int, ...] | None = None
        for related in self._made(rows, pair):
            other = self._twin.run(related.case)
            axes = axes or axes_of(pair[0], other[0], rows.count(self._case), len(related.rows))
            if axes is None:
                continue
            guilt = self._compared(related, axes, pair, other)
            if guilt is not None and rows.proven(self._twin.run, self._twin.oracle, sides=self._kept_by(guilt)) == axes:
                yield guilt

    def _kept_by(self, guilt: Guilt) -> tuple[int, ...]:
        """Return which sides have to keep relations of rows on the seeds: both, unless the target declares them."""
        if self._loaded.target.batch is None:
            return 0, 1
        return (1,) if guilt.side == TORCH else (0,)

    def _made(self, rows: Rows, pair: tuple[Execution, Execution]) -> Iterator[Related]:
        """Yield the related cases to ask: first those whose number of rows is another, which show where rows lie."""
        count, index = rows.count(self._case), self._verdict.comparison.index if self._verdict.comparison else None
        output = pair[0].outputs[self._output] if pair[0].is_ok else None
        axis = next((axis for axis, size in enumerate(output.shape) if size == count), 0) if output is not None else 0
        row = index[axis] if index and axis < len(index) and index[axis] < count else 0
        made = (rows.alone(self._case, row), rows.repeated(self._case, row), rows.permuted(self._case, Rng(0, _STREAM)))
        yield from (related for related in made if related is not None)

    def _of_padding(self, pair: tuple[Execution, Execution]) -> Guilt | None:
        if self._twin.where is None:
            return None
        padding = proven_padding(
            self._contract, self._loaded.seed, self._loaded.target.valid, self._twin.run, self._twin.oracle
        )
        if padding is None:
            return None
        rng = Rng(0, _STREAM)
        for _ in range(3):
            related = padding.changed(self._case, rng)
            if related is None or self._twin.oracle.breach(related.case):
                continue
            guilt = self._compared(related, (), pair, self._twin.run(related.case))
            if guilt is not None:
                return guilt
        return None

    def _compared(
        self,
        related: Related,
        axes: tuple[int, ...],
        pair: tuple[Execution, Execution],
        other: tuple[Execution, Execution],
    ) -> Guilt | None:
        """Return the side whose change of answer makes up the difference between the sides, if there is one."""
        found = [broken(self._twin.oracle, related, axes, *one) for one in zip(pair, other, strict=True)]
        if found[0] is None or found[1] is None:
            return None
        agrees = self._agrees(related, other)
        for side, own, others in ((TORCH, found[0], found[1]), (ORT, found[1], found[0])):
            if self._is_guilty(own, others, agrees=agrees):
                comparison = own.comparisons[self._output]
                return Guilt(side, related.relation, comparison, sum(execution.seconds for execution in other))
        return None

    def _agrees(self, related: Related, other: tuple[Execution, Execution]) -> bool:
        """Tell whether the sides agree on the related case, in the verdict's output."""
        comparisons = self._twin.screen(related.case, *other).comparisons
        return bool(comparisons) and comparisons[self._output].kind is Kind.AGREE

    def _is_guilty(self, own: Break, others: Break, *, agrees: bool) -> bool:
        mine, other = own.comparisons[self._output], others.comparisons[self._output]
        if mine.kind is Kind.AGREE or other.kind is not Kind.AGREE:
            return False
        met = self._verdict.comparison
        if self._verdict.kind is not Kind.NUMERIC or mine.kind is not Kind.NUMERIC or met is None:
            # nothing has a size there: rounding elsewhere may flip a decision, so both have to agree in the end
            return agrees
        return mine.max_abs >= _LEAST_SHARE * met.max_abs and other.max_abs <= _MOST_SHARE * mine.max_abs
