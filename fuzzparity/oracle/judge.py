"""Oracle: judge two executions of one case, the cheap screen first and evidence only where it is needed.

The idea: what a side *did* (died, hung, refused) comes before what it answered; each differing output then gets one
verdict, whose grade is the contract's where the case is outside of it, and the evidence's everywhere else.

Decisions of grade, for cases outside the contract: a death stays `bug` (no input may end a process), all else is
`contract`. A hang or a lack of memory there says little: no promise was made about such sizes and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fuzzparity.case import Array, Case
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle import headlines
from fuzzparity.oracle.branching import Arms, told_by_arms
from fuzzparity.oracle.compare import Allowance, compare, has_equal_bits, real_parts
from fuzzparity.oracle.evidence import Referee, weigh
from fuzzparity.oracle.figures import with_figures
from fuzzparity.oracle.metrics import SITE as METRIC
from fuzzparity.oracle.metrics import Meter
from fuzzparity.oracle.policy import Policy, relative_allowance
from fuzzparity.oracle.quality import compare_quality, excuse_flips
from fuzzparity.oracle.question import Answer, Question
from fuzzparity.oracle.regions import compare_regions, outside
from fuzzparity.oracle.sets import reordered
from fuzzparity.target import Metric
from fuzzparity.verdict import (
    GRADES,
    PRECEDENCE,
    Comparison,
    Evidence,
    Grade,
    Judgement,
    Kind,
    Measure,
    Realism,
    Verdict,
)

WEIGHED = frozenset({Kind.SHAPE, Kind.NONFINITE, Kind.DECISION, Kind.NUMERIC})
_SIZED = frozenset({Kind.NUMERIC, Kind.DECISION})
_FAILED = {Status.REFUSED, Status.OOM}
NO_VOTE = Evidence(source="none: nothing to weigh")


@dataclass(frozen=True, slots=True)
class Screening:
    """Hold the cheap look: the kind that comes first, and one comparison for each output."""

    kind: Kind
    comparisons: tuple[Comparison, ...] = ()
    is_relative: bool = False  # only the relative look found anything
    measures: tuple[Measure, ...] = ()

    @property
    def is_suspicious(self) -> bool:
        """Tell whether the case is worth judging."""
        return self.kind is not Kind.AGREE and self.kind is not Kind.REJECTED


class Oracle:
    """Judge executions of one build under one policy.

    `breach(case)` says in words why a case is outside the contract ("" inside); `realism(case)` how close it is to the
    seeds. Both are asked only when there is something to judge.
    """

    def __init__(
        self,
        outputs: Sequence[str],
        policy: Policy,
        breach: Callable[[Case], str],
        realism: Callable[[Case], Realism],
        metrics: Sequence[Metric] = (),
        is_typical: Callable[[Case], bool] = lambda case: True,
    ) -> None:
        """Bind the oracle to a target's outputs and metrics, and to what is known of its cases.

        `is_typical(case)` says whether a case is like the seeds, be they real or not: what holds a quantized twin to
        the noise of its calibration.
        """
        self.outputs = tuple(outputs)
        self.policy = policy
        self.breach = breach
        self.realism = realism
        self.is_typical = is_typical
        self.meter = Meter(metrics, outputs)
        self._allowances: dict[tuple[str, np.dtype[np.generic]], Allowance] = {}
        self._unordered = {name: axis for name in self.outputs if (axis := policy.unordered(name)) is not None}
        self._regions = {name: found for name in self.outputs if (found := policy.regions(name))}

    def screen(
        self, expected: Execution, actual: Execution, *, relative: bool = False, case: Case | None = None
    ) -> Screening:
        """Compare two executions cheaply; `relative` adds the relative look where everything else agrees.

        Metrics are asked where the case is given.
        """
        found = self._screen(expected, actual, relative=relative)
        if case is None or not self.meter:
            return found
        measures = self.meter.measure(case, expected, actual, agrees=found.kind is Kind.AGREE)
        kinds = [found.kind, *(Kind.DECISION for one in measures if one.breaks)]
        return replace(found, kind=min(kinds, key=PRECEDENCE.index), measures=measures)

    def _screen(self, expected: Execution, actual: Execution, *, relative: bool) -> Screening:
        if not (expected.is_ok and actual.is_ok):
            return Screening(_status_kind(expected, actual))
        if len(expected.outputs) != len(actual.outputs):
            return Screening(Kind.SHAPE)
        pairs = zip(self.names(expected), expected.outputs, actual.outputs, strict=True)
        comparisons = tuple(self._compare(name, e, a) for name, e, a in pairs)
        if self.policy.decided:
            comparisons = self._excuse_flips(expected, actual, comparisons)
        kind = _first(comparisons)
        if relative and kind is Kind.AGREE:
            closer = self._look_relatively(expected, actual, comparisons)
            return Screening(_first(closer), closer, is_relative=_first(closer) is not Kind.AGREE)
        return Screening(kind, comparisons)

    def judge(
        self,
        case: Case,
        expected: Execution,
        actual: Execution,
        referee: Referee | None,
        *,
        second: tuple[Execution, Execution] | None = None,
        relative: bool = False,
        arms: Arms | None = None,
        asked: frozenset[str] | None = None,
        is_brief: bool = False,
    ) -> Judgement:
        """Judge a case; `second` is a repetition of both executions, compared with the first ones bit by bit.

        `arms` answers whether the sides differ because they took different branches. `asked` names the outputs
        and metrics ("metric:" before these) that verdicts are wanted on, all where it is None: evidence is dear.
        `is_brief` takes little of it: what is a bug by that, a full look may still excuse.
        """
        unstable = list(self._unstable(expected, actual, second)) if second is not None else []
        whole = self.screen(expected, actual, relative=relative, case=case)
        screening, unasked = (whole, ()) if asked is None else _narrowed(whole, self.names(expected), asked)
        realism = self.realism(case)
        if not screening.is_suspicious and not unstable:
            return Judgement(whole.kind, realism, comparisons=whole.comparisons, measures=whole.measures)
        breach = self.breach(case)
        verdicts = list(unstable)
        if screening.is_suspicious and not any(v.grade is not Grade.NOTE or v.side == TORCH for v in unstable):
            asking = (referee, breach, realism, is_brief)
            found = self._judge_first(case, expected, actual, screening, *asking)
            verdicts += found if arms is None else self._by_arms(case, expected, actual, screening, found, arms)
        told = (self.names(expected), (expected, actual), second, self.policy.noise)
        verdicts = [with_figures(v, *told) for v in (map(_outside, verdicts) if breach else verdicts)]
        verdicts.sort(key=lambda v: (PRECEDENCE.index(v.kind), GRADES.index(v.grade)))
        kind = min([verdicts[0].kind if verdicts else whole.kind, *unasked], key=PRECEDENCE.index)
        return Judgement(kind, realism, tuple(verdicts), whole.comparisons, whole.measures)

    def allowance(self, name: str, output: Array) -> Allowance:
        """Return the screen of an output, looked up once for each name and dtype."""
        key = (name, output.dtype)
        found = self._allowances.get(key)
        if found is None:
            found = self._allowances[key] = self.policy.allowance(name, output.dtype)
        return found

    def names(self, execution: Execution) -> tuple[str, ...]:
        """Return what the outputs of an execution are called: by their places where they are not the target's."""
        if len(execution.outputs) == len(self.outputs):
            return self.outputs
        return tuple(f"output {i}" for i in range(len(execution.outputs)))

    def _compare(self, name: str, expected: Array, actual: Array) -> Comparison:
        """Compare one output under its allowance, each slice with a tolerance of its own under that."""
        if (axis := self._unordered.get(name)) is not None:
            actual = reordered(expected, actual, axis, self.allowance(name, expected))
        if self._regions and name in self._regions:
            return compare_regions(expected, actual, self._regions[name], self.allowance(name, expected))
        found = compare(expected, actual, self.allowance(name, expected))
        quality = self.policy.quality.get(name)
        return found if quality is None else compare_quality(expected, actual, quality, found)

    def _excuse_flips(
        self, expected: Execution, actual: Execution, comparisons: tuple[Comparison, ...]
    ) -> tuple[Comparison, ...]:
        """Let indices flip that are the argmax of a quantized twin's output, where its noise explains it."""
        found = list(comparisons)
        for name, (place, axis) in self.policy.decided.items():
            position, quality = self.outputs.index(name), self.policy.quality.get(self.outputs[place])
            values = expected.outputs[place] if place < len(expected.outputs) else None
            if quality is not None and values is not None and values.ndim > axis:
                indices = expected.outputs[position], actual.outputs[position]
                found[position] = excuse_flips(found[position], indices, values, axis, quality)
        return tuple(found)

    def _has_quality(self, name: str) -> bool:
        """Tell whether an output, or what it is the argmax of, is held to the noise of a coarser twin."""
        decided = self.policy.decided.get(name)
        return name in self.policy.quality or (decided is not None and self.outputs[decided[0]] in self.policy.quality)

    def _source(self, name: str, comparison: Comparison, output: Array) -> str:
        """Return where the numbers come from by which an output was screened, where it differs most."""
        for region, allowance in self._regions.get(name, ()):
            if region.text == comparison.region:
                return allowance.source
        return self.allowance(name, output).source

    def _outside(self, name: str, output: Array) -> Array:
        """Return what of an output evidence is asked about: not the slices of which the user's word decides."""
        return outside(output, self._regions[name]) if name in self._regions else output

    def _look_relatively(
        self, expected: Execution, actual: Execution, comparisons: tuple[Comparison, ...]
    ) -> tuple[Comparison, ...]:
        """Replace the comparison of each output in which only the relative look finds something."""
        looks = []
        for name, e, a, screened in zip(
            self.names(expected), expected.outputs, actual.outputs, comparisons, strict=True
        ):
            is_settled = self.allowance(name, e).is_users or name in self.policy.quality
            if is_settled or e.dtype.kind in "biu" or screened.max_abs == 0.0:
                looks.append(screened)
                continue
            rest, other = self._outside(name, e), self._outside(name, a)
            look = compare(rest, other, relative_allowance(self.policy.working_dtype(e.dtype)))
            looks.append(look if look.kind is Kind.NUMERIC else screened)
        return tuple(looks)

    def _judge_first(
        self,
        case: Case,
        expected: Execution,
        actual: Execution,
        screening: Screening,
        referee: Referee | None,
        breach: str,
        realism: Realism,
        is_brief: bool,
    ) -> list[Verdict]:
        """Judge the first executions: what the sides did, else what they answered."""
        if not (expected.is_ok and actual.is_ok):
            return list(_status_verdicts(expected, actual, realism))
        if len(expected.outputs) != len(actual.outputs):
            detail = f"{len(expected.outputs)} outputs / {len(actual.outputs)} outputs"
            comparison = Comparison(Kind.SHAPE, error_ratio=np.inf, detail=detail)
            return [Verdict(Kind.SHAPE, Grade.BUG, comparison=comparison, headline=f"{detail} (torch / ORT)")]
        answers = {} if breach else self._weigh(case, expected, actual, screening, referee, realism, is_brief)
        verdicts = []
        for position, (name, comparison) in enumerate(zip(self.names(expected), screening.comparisons, strict=True)):
            if comparison.kind is Kind.AGREE:
                continue
            answer = answers.get(position)
            if self._has_quality(name) and comparison.kind in _SIZED:
                if answer is None or answer.grade not in (Grade.INHERENT, Grade.TIE):
                    answer = self._by_quality(case)
            elif answer is None:
                source = self._source(name, comparison, expected.outputs[position])
                answer = Answer(Grade.BUG, evidence=replace(NO_VOTE, note=source))
            verdicts.append(_verdict(name, comparison, answer))
        asked, is_wild = None if breach else referee, realism is Realism.WILD
        working = self.policy.computing_dtype
        return verdicts + list(self.meter.verdicts(case, screening.measures, expected, asked, working, is_wild=is_wild))

    def _by_arms(
        self,
        case: Case,
        expected: Execution,
        actual: Execution,
        screening: Screening,
        verdicts: list[Verdict],
        arms: Arms,
    ) -> list[Verdict]:
        """Replace the verdicts that different branches explain."""
        if not (expected.is_ok and actual.is_ok and len(expected.outputs) == len(actual.outputs)):
            return verdicts

        def look(one: Execution, other: Execution) -> tuple[Comparison, ...]:
            return self._screen(one, other, relative=screening.is_relative).comparisons

        working, names = self.policy.computing_dtype, self.names(expected)
        return told_by_arms(case, verdicts, names, expected, actual, arms, look, working)

    def _by_quality(self, case: Case) -> Answer:
        """Grade what is beyond a coarser twin's noise: on a case unlike the seeds nobody promised that noise."""
        if self.is_typical(case):
            return Answer(Grade.BUG, evidence=replace(NO_VOTE, note="beyond the noise of the seeds and of so few bits"))
        note = "unlike the seeds: values or sizes that the twin was not calibrated for"
        return Answer(Grade.NOTE, evidence=replace(NO_VOTE, note=note))

    def _weigh(
        self,
        case: Case,
        expected: Execution,
        actual: Execution,
        screening: Screening,
        referee: Referee | None,
        realism: Realism,
        is_brief: bool,
    ) -> dict[int, Answer]:
        """Ask for evidence on every output that differs and on which the user has not spoken."""
        questions = []
        for position, comparison in enumerate(screening.comparisons):
            e, a = expected.outputs[position], actual.outputs[position]
            name = self.names(expected)[position]
            allowance = self.allowance(name, e)
            has_size = comparison.kind in _SIZED
            # what a coarser twin's noise does not explain, rounding in its own precision may
            is_settled = allowance.is_users or bool(comparison.region)
            if comparison.kind not in WEIGHED or (has_size and is_settled):
                continue
            if has_size:
                e, a = self._outside(name, e), self._outside(name, a)
            working = self.policy.working_dtype(e.dtype)
            default = self.policy.default(e.dtype)
            if self._has_quality(name):
                allowance = default
            if screening.is_relative:
                allowance = default = relative_allowance(working)
            material = self.policy.material(name, e.dtype)
            is_relative = screening.is_relative
            questions.append(
                Question(position, comparison.kind, e, a, allowance, default, working, is_relative, material)
            )
        if not questions:
            return {}
        is_wild, working = realism is Realism.WILD, self.policy.computing_dtype
        answers = weigh(case, referee, questions, working, is_wild=is_wild, is_brief=is_brief)
        return {q.position: answer for q, answer in zip(questions, answers, strict=True)}

    def _unstable(
        self, expected: Execution, actual: Execution, second: tuple[Execution, Execution]
    ) -> Iterator[Verdict]:
        """Compare each side with itself: bits first, then how far beyond the screen.

        Beyond it, ORT against itself is a bug; torch against itself usually means state or random numbers in the
        module, so it is a note. Within it, both are notes: sums depend on how memory is aligned.
        """
        for first, again in zip((expected, actual), second, strict=True):
            if first.is_ok and again.is_ok and has_same_outputs(first, again):
                continue
            if not (first.is_ok and again.is_ok):
                if first.status is again.status:
                    continue
                said = f"{first.status.value} first, then {again.status.value}"
                yield _unstable_verdict(first.side, None, None, said, is_beyond=True)
                continue
            yield self._unstable_outputs(first, again)

    def _unstable_outputs(self, first: Execution, again: Execution) -> Verdict:
        if len(first.outputs) != len(again.outputs):
            said = f"{len(first.outputs)} outputs first, then {len(again.outputs)}"
            return _unstable_verdict(first.side, None, None, said, is_beyond=True)
        rows = [
            (self._compare(name, e, a), name)
            for name, e, a in zip(self.names(first), first.outputs, again.outputs, strict=True)
            if not _same_bits(e, a)
        ]
        comparison, name = max(rows, key=lambda row: row[0].error_ratio)
        said = f"{comparison.expected_at} first, then {comparison.actual_at} at {list(comparison.index or ())}"
        said = comparison.detail if comparison.kind in (Kind.SHAPE, Kind.DTYPE) else said
        return _unstable_verdict(first.side, name, comparison, said, is_beyond=comparison.kind is not Kind.AGREE)


def _narrowed(whole: Screening, names: Sequence[str], asked: frozenset[str]) -> tuple[Screening, tuple[Kind, ...]]:
    """Return a screening in which outputs and metrics that nobody asks about agree, and what kinds those are of."""
    if not whole.comparisons:
        return whole, ()
    pairs = list(zip(names, whole.comparisons, strict=True))
    looks = tuple(look if name in asked else Comparison(Kind.AGREE) for name, look in pairs)
    measures = tuple(one for one in whole.measures if f"{METRIC}{one.metric}" in asked)
    unasked = tuple(look.kind for name, look in pairs if name not in asked)
    return replace(whole, comparisons=looks, measures=measures), unasked


def _unstable_verdict(
    side: str, output: str | None, comparison: Comparison | None, said: str, *, is_beyond: bool
) -> Verdict:
    grade = Grade.BUG if is_beyond and side == ORT else Grade.NOTE
    advice = "; the module keeps state or draws random numbers" if is_beyond and side == TORCH else ""
    where = f"{output}: " if output else ""
    headline = f"{where}{headlines.side_name(side)} differs from itself on the same input ({said}){advice}"
    return Verdict(Kind.UNSTABLE, grade, output, side, comparison=comparison, headline=headline)


def _verdict(name: str, comparison: Comparison, answer: Answer) -> Verdict:
    return Verdict(
        kind=comparison.kind,
        grade=answer.grade,
        output=name,
        side=answer.side,
        comparison=comparison,
        evidence=answer.evidence,
        blame=answer.blame,
        headline=headlines.of_comparison(comparison.region or name, comparison, answer),
    )


def _outside(verdict: Verdict) -> Verdict:
    """Grade a verdict on a case outside the contract: only a death stays what it is."""
    if verdict.kind is Kind.CRASH or (verdict.kind is Kind.UNSTABLE and verdict.grade is Grade.NOTE):
        return verdict
    return replace(verdict, grade=Grade.CONTRACT)


def _first(comparisons: Sequence[Comparison]) -> Kind:
    kinds = {comparison.kind for comparison in comparisons}
    if not kinds or kinds == {Kind.AGREE}:
        return Kind.AGREE
    return min(kinds, key=PRECEDENCE.index)


def _status_kind(expected: Execution, actual: Execution) -> Kind:
    """Return the kind of a case in which a side gave no answer."""
    statuses = {expected.status, actual.status}
    if Status.CRASHED in statuses:
        return Kind.CRASH
    if Status.HANG in statuses:
        return Kind.HANG
    if statuses <= _FAILED and "load" not in (expected.phase, actual.phase):
        return Kind.REJECTED
    if Status.OOM in statuses:
        return Kind.OOM
    return Kind.LOAD_ERROR if "load" in (expected.phase, actual.phase) else Kind.ERROR_SPLIT


def _status_verdicts(expected: Execution, actual: Execution, realism: Realism) -> Iterator[Verdict]:
    """Yield a verdict for each side that gave no answer, of the kinds that come first."""
    kind = _status_kind(expected, actual)
    for execution, other in ((expected, actual), (actual, expected)):
        status = execution.status
        blame = TORCH if execution.side == TORCH else "unknown"
        if kind is Kind.CRASH and status is Status.CRASHED:
            site, said = headlines.death_site(execution), headlines.of_death(execution, other)
            yield Verdict(kind, Grade.BUG, None, execution.side, site, blame=blame, headline=said)
        elif kind is Kind.HANG and status is Status.HANG:
            # both sides busy: the input is dear for the model, and parity has nothing to say
            grade = Grade.NOTE if other.status is Status.HANG else Grade.BUG
            said = headlines.of_hang(execution, other)
            yield Verdict(kind, grade, None, execution.side, execution.phase, blame=blame, headline=said)
        elif kind is Kind.OOM and status is Status.OOM:
            said = headlines.of_memory(execution, other)
            yield Verdict(kind, Grade.NOTE, None, execution.side, execution.phase, headline=said)
        elif status is Status.REFUSED and (
            kind is Kind.ERROR_SPLIT or (kind, execution.phase) == (Kind.LOAD_ERROR, "load")
        ):
            yield _refusal_verdict(kind, execution, other, realism)


def _refusal_verdict(kind: Kind, execution: Execution, other: Execution, realism: Realism) -> Verdict:
    """Grade a refusal: torch itself says that an input is outside, unless the input looks like the seeds."""
    refusal = execution.refusal
    site = (refusal.site or refusal.error_class) if refusal is not None else ""
    is_torchs_word = kind is Kind.ERROR_SPLIT and execution.side != ORT and realism is not Realism.NEAR
    grade = Grade.CONTRACT if is_torchs_word else Grade.BUG
    return Verdict(kind, grade, None, execution.side, site, headline=headlines.of_refusal(execution, other))


def has_same_outputs(first: Execution, again: Execution) -> bool:
    """Tell whether two executions gave the same outputs bit by bit, NaN payloads ignored."""
    return len(first.outputs) == len(again.outputs) and all(
        _same_bits(e, a) for e, a in zip(first.outputs, again.outputs, strict=True)
    )


def _same_bits(first: Array, again: Array) -> bool:
    """Tell whether two outputs are equal bit by bit, NaN payloads ignored."""
    if first.shape != again.shape or first.dtype != again.dtype:
        return False
    if has_equal_bits(first, again):
        return True
    if first.dtype.kind in "biuSUO":
        return bool(np.array_equal(first, again))
    one, two = (real_parts(x).astype(np.float64) for x in (first, again))
    both_nan = np.isnan(one) & np.isnan(two)
    return bool((((one == two) & (np.signbit(one) == np.signbit(two))) | both_nan).all())
