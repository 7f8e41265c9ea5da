"""Stacking: the part of the inner loop that runs many rows at once, once it is proven that they are independent.

The idea: a stack is one execution of both sides, looked at along its rows. What is worth a closer look, a suspicious
row or one that shows something new, is queued and runs alone as an ordinary case with its own place in the stream. When
a stack differs and none of its rows does alone, the stack itself runs as an ordinary case: the fault is in the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fuzzparity.campaign.independence import Dependent, Proof, affordable, changed_output, prove, within_screen
from fuzzparity.campaign.records import Unstacked
from fuzzparity.campaign.seen import Seen
from fuzzparity.case import Array, Case
from fuzzparity.execution import Execution
from fuzzparity.explain.twin import Twin
from fuzzparity.finding import IN_BATCH
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.generate.rowfeatures import RowFeatures
from fuzzparity.generate.rows import MOST_ROWS, Stack, take_rows, why_not
from fuzzparity.oracle.rows import RowLook, by_row, look_at_rows

_PERIOD = 2  # every so many executions is a stack
_SWEEP_PERIOD = 3  # while the sweep of classics goes on
_RECHECK_EVERY = 64
_RELATIVE_EVERY = 4
_MOST_ALONE = 4  # rows of one stack that run alone for one reason
_MOST_LOOKED = 32  # suspicious rows of one stack whose look-alikes are told apart
_MOST_MARKS = 4096
_WIDEN_AFTER = 16  # stacks that both sides took, before their number of rows is doubled again
_MULTIPLY_ADDS = 1 << 24  # of one stack, as far as the size of the weights tells
_MOST_GROWTH = 8  # times the elements of its input, that the output of a stack of full size may have
_LEAST_ROWS = 4  # that a dear model still gets: the weights are read once for all of them
_SLOW_SHARE = 0.25  # of the time limit of a run, that a stack may take
_JUDGED_ALWAYS = 2  # of one look, before only powers of four are
_MANY_ROWS = 16  # of an ordinary case, from which evidence on a few of them is worth a run more


@dataclass(slots=True)
class Mark:
    """Count cases or stacks that look the same before evidence, and hold the findings that the last full look gave."""

    met: int = 0
    findings: tuple[str, ...] = ()

    def is_due(self) -> bool:
        """Count one more, and tell whether it gets a full look: the first two, then each power of four."""
        self.met += 1
        return self.met <= _JUDGED_ALWAYS or (not self.met & (self.met - 1) and self.met.bit_length() % 2 == 1)


@dataclass(slots=True)
class _Split:
    """Follow the suspicious rows of one stack that run alone."""

    stack: Stack
    left: int
    shown: bool = False


@dataclass(frozen=True, slots=True)
class _Again:
    """Hold what has to run again: a row of a stack alone, among copies of itself (`first` given), or all of it.

    `is_form`: the answers differ in shape, which the fewest rows mostly show as well, and evidence on them is cheap.
    """

    stack: Stack
    row: int | None = None
    split: _Split | None = None
    mark: Mark | None = None
    is_in_batch: bool = False  # no row of it differs alone
    is_form: bool = False
    first: tuple[Execution, Execution] | None = None


@dataclass(frozen=True, slots=True)
class Stepped:
    """Tell what an ordinary case showed: whether it differed, and which findings that is."""

    is_suspicious: bool
    findings: tuple[str, ...] = ()


@dataclass(slots=True)
class Counters:
    """Count what a lease has done. `inputs`: distinct judged rows; `executions`: runs of the pair, a stack is one."""

    executions: int = 0
    inputs: int = 0
    rejected: int = 0
    judged: int = 0
    hits: dict[str, int] = field(default_factory=dict)

    def hit(self, findings: tuple[str, ...]) -> None:
        """Count a hit of each finding."""
        for finding_id in findings:
            self.hits[finding_id] = self.hits.get(finding_id, 0) + 1


Step = Callable[[Proposal, Counters], Stepped]


class Stacking:
    """Run stacks for one worker, and queue what has to run again. Without a proof it does nothing."""

    def __init__(self, twin: Twin, generator: Generator, seen: Seen, send: Callable[[object], None]) -> None:
        """Start without a proof."""
        self._twin = twin
        self._generator = generator
        self._seen = seen
        self._send = send
        self._proof: Proof | None = None
        self._most: dict[str, int] = {}  # rows by label, at present
        self._cap: dict[str, int] = {}  # rows by label, when both sides take them
        self._taken: dict[str, int] = {}  # stacks by label since the last one that a side refused
        self._features = RowFeatures(generator.pool.hits)
        self._marks: dict[str, Mark] = {}
        self._queue: deque[_Again] = deque()
        self._stacks = 0

    @property
    def is_on(self) -> bool:
        """Tell whether rows are stacked."""
        return self._proof is not None

    @property
    def has_queued(self) -> bool:
        """Tell whether rows wait to run alone."""
        return bool(self._queue)

    def prove(self, rng_seed: int, limit_seconds: float) -> str:
        """Try to prove that rows are independent; return why they are not stacked, "" when they are."""
        spec, stacker = self._twin.spec, self._generator.stacker
        contract = spec.facts.contract
        if not contract.batch:
            return ""
        said = f"rows are not stacked along {contract.batch}"
        if self._twin.where is not None or self._twin.oracle.meter or not spec.policy.is_by_element:
            return f"{said}: compare_where, metrics and tolerances of slices or whole outputs are applied case by case"
        if stacker is None:
            return f"{said}: {why_not(contract) or 'no value of a row may change'}"
        if (line := self._twin.arms.line_on_values()) is not None:
            return f"{said}: forward decides on values of the whole batch{f' at {line}' if line else ''}"
        try:
            proof = prove(self._twin.run, stacker, self._twin.oracle, rng_seed)
        except Dependent as reason:
            return f"{said}: {reason}"
        weights = max(1, spec.facts.build.onnx_bytes // 4)
        rows = min(MOST_ROWS, max(_LEAST_ROWS, _MULTIPLY_ADDS // weights))
        rows = min(rows, max(2, int(MOST_ROWS * _MOST_GROWTH / max(proof.growth, 1e-9))))
        rows = affordable(self._twin.run, stacker, rows, _SLOW_SHARE * limit_seconds, rng_seed)
        self._proof = proof
        self._most = {label: rows for label in sorted(proof.labels)}
        self._cap = dict(self._most)
        self._taken = dict.fromkeys(self._most, 0)
        return ""

    def is_due(self) -> bool:
        """Tell whether the next execution should be a stack."""
        period = _SWEEP_PERIOD if self._generator.is_sweeping else _PERIOD
        return self._proof is not None and self._generator.next_sequence % period == period - 1

    def count(self, proposal: Proposal) -> int:
        """Mark an ordinary case as seen and return how many new inputs it is: its rows, where they are independent."""
        proof, stacker, case = self._proof, self._generator.stacker, proposal.case
        if proof is None or stacker is None or proposal.contract_breaking:
            return int(self._seen.add_case(case))
        places = stacker.maker.places
        if not any(array.size for array, _ in _with_rows(case, places)):  # a case without rows is an input as well
            return int(self._seen.add_case(case))
        return self._seen.add_rows(case, places)

    def telling_rows(self, proposal: Proposal, expected: Execution, actual: Execution) -> Case | None:
        """Return the case of a few rows that differ, one of each look, out of an ordinary case of many rows.

        None where the rows are few, are not proven independent, or do not differ by themselves.
        """
        proof, stacker, case = self._proof, self._generator.stacker, proposal.case
        is_left = proposal.contract_breaking or IN_BATCH in proposal.lineage.mutators
        if proof is None or stacker is None or is_left or not (expected.is_ok and actual.is_ok):
            return None
        maker = stacker.maker
        counts = {array.shape[place] for array, place in _with_rows(case, maker.places) if array.ndim > place}
        rows = counts.pop() if len(counts) == 1 else 0
        if rows < _MANY_ROWS * maker.least or not _has_rows(expected, proof.axes, rows):
            return None
        look = look_at_rows(self._twin.oracle, expected, actual, proof.axes, relative=True)
        if look is None:  # a form that differs, which any rows mostly show
            return take_rows(case, maker.places, range(maker.least))
        chosen: dict[str, int] = {}
        for row in _tamest_first(expected, proof.axes, look.suspicious.nonzero()[0])[:_MOST_LOOKED]:
            chosen.setdefault(look.key(row), row)
        few = list(chosen.values())[:_MOST_ALONE]
        return take_rows(case, maker.places, few + few[-1:] * (-len(few) % maker.least)) if few else None

    def draw(self) -> Stack | None:
        """Return the next stack of the stream, None where none could be made."""
        return self._generator.stack(self._most)

    def run(self, stack: Stack, counters: Counters) -> None:
        """Run a stack and look along its rows."""
        proof = self._proof
        assert proof is not None
        self._stacks += 1
        expected, actual = self._twin.run(stack.case, stack.lineage.sequence)
        counters.executions += 1
        if not (expected.is_ok and actual.is_ok):
            self._refused(stack, expected, actual, counters)
            return
        self._accepted(stack.label)
        counters.inputs += self._seen.add_rows(stack.case, stack.places)
        look = None
        if _has_rows(expected, proof.axes, stack.rows) and len(actual.outputs) == len(proof.axes):
            relative = self._stacks % _RELATIVE_EVERY == 0
            look = look_at_rows(self._twin.oracle, expected, actual, proof.axes, relative=relative)
        if look is None:  # a form that differs, as a whole
            self._whole(stack, "form", counters, is_form=True)
            return
        alone = self._suspects(stack, expected, look, counters) if look.suspicious.any() else set()
        ratios = [comparison.ratios for comparison in look.comparisons]
        for row in self._features.novel(expected, actual, proof.axes, ratios, _MOST_ALONE):
            if row not in alone:
                self._queue.append(_Again(stack, row))
        if self._stacks % _RECHECK_EVERY == 0:
            self._queue.append(_Again(stack, self._stacks // _RECHECK_EVERY % stack.rows, first=(expected, actual)))

    def _suspects(self, stack: Stack, expected: Execution, look: RowLook, counters: Counters) -> set[int]:
        """Queue suspicious rows, the tamest of each look; those of a known look are hits of what it showed."""
        rows: dict[str, int] = {}
        assert self._proof is not None
        for row in _tamest_first(expected, self._proof.axes, look.suspicious.nonzero()[0])[:_MOST_LOOKED]:
            rows.setdefault(look.key(row), row)
        due: list[tuple[int, Mark]] = []
        for key, row in rows.items():
            mark = self._mark(f"{stack.nonfinite}:{key}")
            if mark.is_due() and len(due) < _MOST_ALONE:
                due.append((row, mark))
            else:
                counters.hit(mark.findings)
        split = _Split(stack, len(due))
        self._queue.extend(_Again(stack, row, split, mark) for row, mark in due)
        return {row for row, _ in due}

    def _mark(self, key: str) -> Mark:
        if len(self._marks) >= _MOST_MARKS:
            self._marks.clear()
        return self._marks.setdefault(key, Mark())

    def _refused(self, stack: Stack, expected: Execution, actual: Execution, counters: Counters) -> None:
        """Take a stack that a side refuses: where only one does, it runs again as a case; the next ones are smaller."""
        if expected.is_ok or actual.is_ok:
            self._whole(stack, f"{expected.status.value}|{actual.status.value}", counters)
        else:
            counters.rejected += 1
        label = stack.label
        self._taken[label] = 0
        self._most[label] = max(2, self._most[label] // 2)

    def _whole(self, stack: Stack, key: str, counters: Counters, *, is_form: bool = False) -> None:
        mark = self._mark(f"{stack.nonfinite}:{key}")
        if mark.is_due():
            self._queue.append(_Again(stack, mark=mark, is_form=is_form))
        else:
            counters.hit(mark.findings)

    def _accepted(self, label: str) -> None:
        self._taken[label] += 1
        if self._taken[label] % _WIDEN_AFTER == 0:
            self._most[label] = min(self._cap[label], self._most[label] * 2)

    def again(self, counters: Counters, step: Step) -> None:
        """Run what was queued first: rows of a stack alone, or all of it, as an ordinary case by `step`."""
        again = self._queue.popleft()
        stack, row, mark, split = again.stack, again.row, again.mark, again.split
        if again.first is not None and row is not None:
            self._recheck(stack, row, again.first, counters)
            return
        assert self._generator.stacker is not None
        least = self._generator.stacker.maker.least
        if again.is_form and least < stack.rows:
            stepped = step(self._generator.alone(stack.take(range(least)), stack, ("stack",)), counters)
            if not stepped.is_suspicious:
                self._queue.append(_Again(stack, mark=mark))
        elif row is None or again.is_in_batch:
            names = (IN_BATCH,) if again.is_in_batch else ("stack",)
            case = stack.case if row is None else stack.take([row] * stack.rows)
            stepped = step(self._generator.alone(case, stack, names), counters)
            if row is not None and not stepped.is_suspicious:
                self._queue.append(_Again(stack, mark=mark, is_in_batch=True))
        else:
            stepped = step(self._generator.alone(stack.take([row] * least), stack, stack.names_of(row)), counters)
        if mark is not None:
            mark.findings = stepped.findings
        if split is not None:
            split.left -= 1
            split.shown |= stepped.is_suspicious
            if not split.left and not split.shown:
                # copies of one row first: evidence on them is not clouded by wild rows beside them
                self._queue.append(_Again(stack, row, mark=mark, is_in_batch=True))

    def _recheck(self, stack: Stack, row: int, first: tuple[Execution, Execution], counters: Counters) -> None:
        """Run a row among copies of itself: in a stack of the same shape its bits may not change."""
        proof = self._proof
        if proof is None:
            return
        proposal = self._generator.alone(stack.take([row] * stack.rows), stack, ("stack",))
        second = self._twin.run(proposal.case, proposal.lineage.sequence)
        counters.executions += 1
        for one, two in zip(first, second, strict=True):
            if not two.is_ok or not _has_rows(two, proof.axes, stack.rows):
                continue  # refused now: rows are not what changed that
            name = changed_output(self._twin.oracle, proof.axes, one, two, [row])
            if name and not within_screen(self._twin.oracle, proof.axes, one, two, [row]):
                self._proof = None
                self._send(Unstacked(f"rows are no longer stacked: output {name} of {one.side} depends on other rows"))
                return


def _tamest_first(expected: Execution, axes: tuple[int, ...], rows: Array) -> list[int]:
    """Return rows in order of how far the magnitude of their outputs is from 1: evidence says most about tame ones."""
    wildness = np.zeros(len(rows))
    with np.errstate(all="ignore"):
        for output, axis in zip(expected.outputs, axes, strict=True):
            if output.size and output.dtype.kind in "fc":
                magnitude = np.abs(by_row(output, axis)[rows]).max(axis=1)
                wildness += np.where(magnitude == 0, 0.0, np.abs(np.log2(magnitude.astype(np.float64))))
    wildness = np.where(np.isfinite(wildness), wildness, np.inf)
    found: list[int] = rows[np.argsort(wildness, kind="stable")].tolist()
    return found


def _with_rows(case: Case, places: Sequence[int | None]) -> list[tuple[Array, int]]:
    """Return the inputs that hold rows, each with the axis along which it does."""
    return [(array, place) for array, place in zip(case.inputs.values(), places, strict=True) if place is not None]


def _has_rows(execution: Execution, axes: tuple[int, ...], rows: int) -> bool:
    """Tell whether every output has its rows where the proof found them."""
    return len(execution.outputs) == len(axes) and all(
        array.ndim > axis and array.shape[axis] == rows for array, axis in zip(execution.outputs, axes, strict=True)
    )
