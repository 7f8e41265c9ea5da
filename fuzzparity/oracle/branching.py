"""Branching: outputs that differ because the sides took different arms.

The idea: a path that parts says nothing by itself. Only where torch, sent into the arms that ORT took, gives ORT's own
answer is the branch what makes the difference; every other difference of the same run keeps its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fuzzparity.case import Case
from fuzzparity.decisions import COND, ONNX_IF, ONNX_LOOP, WHILE_LOOP, Decision, Path, outcomes, parting
from fuzzparity.execution import Execution
from fuzzparity.oracle import draws
from fuzzparity.verdict import Comparison, Evidence, Grade, Kind, Verdict

REPLACED = frozenset({Kind.NUMERIC, Kind.DECISION, Kind.NONFINITE, Kind.SHAPE, Kind.DTYPE})
_ARITHMETIC = frozenset({Grade.TIE, Grade.INHERENT})
_MOST_PARTED = 4  # conditions of one path that are tried alone
_DRAWS = 8  # of each test by which a condition is moved
_LEFT = 1.0 / 64.0  # of a difference: as much as arithmetic on values of that size may leave
_REACH = 8.0  # times what arithmetic moves a condition by (DESIGN, "Evidence")


class Arms(Protocol):
    """Answer what the oracle asks of branches, on one build."""

    def sample(self) -> Path:
        """Return the path of the sample that was exported."""

    def sent(self, case: Case, arms: Mapping[str, int]) -> Execution | None:
        """Run torch with some arms given (key -> outcome); None where its code cannot be sent into them."""

    def exact(self, case: Case) -> Path:
        """Return the path of the exact run, of torch itself where there is no exact one."""

    def rounded(self, case: Case, draw: int) -> Path:
        """Return the path of an exact run with every intermediate rounded at random; empty where there is none."""

    def code(self, decision: Decision) -> str:
        """Return the text of a decision's line; "" where it is not known, or nobody's business."""


@dataclass(frozen=True, slots=True)
class Split:
    """Hold the first decision that torch took otherwise than ORT; `is_burnt`: ORT has no such decision at all."""

    decision: Decision
    arms: Mapping[str, int]  # those that ORT took, by torch's keys
    is_burnt: bool

    @property
    def other(self) -> int:
        """Return the arm that ORT took."""
        return self.arms[self.decision.key]


def splits(expected: Execution, actual: Execution, sample: Callable[[], Path]) -> Iterator[Split]:
    """Yield where the paths part, as far as they are recorded: from ORT's own, then from what the export kept."""
    shared = dict(shared_arms(expected.decisions, actual.decisions))
    parted = parting(expected.decisions, shared)
    if parted is not None:
        yield Split(parted, shared, is_burnt=False)
    if not any(one.has_arms for one in expected.decisions):
        return
    has_own = bool(actual.decisions)  # what control flow operators decide is then not burnt in
    exported = sample()
    burnable = [one for one in exported if one.has_arms and one.key not in shared]
    kept = outcomes(one for one in burnable if not (has_own and one.what in (COND, WHILE_LOOP)))
    parted = parting(expected.decisions, kept)
    if parted is not None:
        yield Split(parted, {**kept, **shared}, is_burnt=True)
    if has_own:
        yield from _partly_burnt(expected.decisions, exported, {**kept, **shared})


def _partly_burnt(path: Path, sample: Path, known: Mapping[str, int]) -> Iterator[Split]:
    """Yield each condition that pairs with nothing of ORT as burnt in by itself, then all of them.

    ORT has branches of its own beside them, so which are gone is not known: what sending torch gives has to show it.
    """
    was = outcomes(one for one in sample if one.what == COND and one.key not in known)
    parted = [one for one in path if one.what == COND and was.get(one.key, one.outcome) != one.outcome]
    for one in parted[:_MOST_PARTED]:
        yield Split(one, {**known, one.key: was[one.key]}, is_burnt=True)
    if len(parted) > 1:
        yield Split(parted[0], {**known, **{one.key: was[one.key] for one in parted}}, is_burnt=True)


def shared_arms(torch: Path, ort: Path) -> Iterator[tuple[str, int]]:
    """Yield torch's key and ORT's outcome of each decision that both sides have, paired by source line and order.

    Where the graph does not say which lines its branches come from, they pair if there are as many of them as torch
    has, all in order. A loop of ORT says how often torch's condition should have held.
    """
    for ours, theirs in _paired(torch, ort, COND, ONNX_IF):
        if len(ours) == len(theirs):
            yield from ((one.key, other.outcome) for one, other in zip(ours, theirs, strict=True))
    for ours, theirs in _paired(torch, ort, WHILE_LOOP, ONNX_LOOP):
        if len(theirs) == 1:
            yield from ((one.key, int(place < theirs[0].outcome)) for place, one in enumerate(ours))


def _paired(torch: Path, ort: Path, what: str, onnx_what: str) -> Iterator[tuple[list[Decision], list[Decision]]]:
    ours = [one for one in torch if one.what == what]
    theirs = [one for one in ort if one.what == onnx_what and one.outcome >= 0]
    if not all(one.source for one in theirs):
        yield ours, theirs
        return
    for source in dict.fromkeys(one.source for one in ours):
        yield [one for one in ours if one.source == source], [one for one in theirs if one.source == source]


def told_by_arms(
    case: Case,
    verdicts: Sequence[Verdict],
    names: Sequence[str],
    expected: Execution,
    actual: Execution,
    arms: Arms,
    compare: Callable[[Execution, Execution], Sequence[Comparison]],
    working_dtype: str,
) -> list[Verdict]:
    """Return verdicts with one `branch_split` in the place of those that the arms explain.

    `compare` looks at two executions as the verdicts' own screen did. A branch that a metric's verdict rests on is
    explained with its output or not at all.
    """
    differing = [v for v in verdicts if v.kind in REPLACED and v.output in names and not v.site]
    if not differing:
        return list(verdicts)
    for split in splits(expected, actual, arms.sample):
        sent = arms.sent(case, split.arms)
        if sent is None or not sent.is_ok or len(sent.outputs) != len(actual.outputs):
            continue
        looks = dict(zip(names, compare(sent, actual), strict=True))
        explained = [v for v in differing if v.output is not None and _is_explained(v, looks[v.output])]
        if explained:
            grade = _grade(case, split, explained, arms, working_dtype)
            told = _verdict(split, explained[0], grade, arms.code(split.decision))
            return [told, *(v for v in verdicts if v not in explained)]
    return list(verdicts)


def _is_explained(verdict: Verdict, look: Comparison) -> bool:
    """Tell whether next to nothing of a difference is left once torch takes ORT's arms."""
    if look.kind is Kind.AGREE:
        return True
    before = verdict.comparison
    is_sized = before is not None and before.kind is Kind.NUMERIC and look.kind is Kind.NUMERIC
    return is_sized and before is not None and look.error_ratio <= _LEFT * before.error_ratio


def _verdict(split: Split, first: Verdict, grade: Grade, code: str) -> Verdict:
    decision = split.decision
    where = f"{decision.source}{f' (`{code}`)' if code else ''}"
    truth = "true" if decision.outcome else "false"
    if split.is_burnt:
        was = "true" if split.other else "false"
        said = (
            f"torch takes the arm at {where} that ORT does not have: {truth} here, and burnt in as {was} by the export"
        )
        note = "no arm: sent into the arms of the exported sample, torch gives ORT's answer"
    else:
        off = f", {decision.margin:+.2g} from its threshold" if decision.margin is not None else ""
        said = f"torch and ORT take different arms at {where}: {truth} in torch{off}"
        note = "sent into ORT's arms, torch gives ORT's answer"
        if grade is Grade.TIE:
            said += "; arithmetic alone moves it across"
    evidence = first.evidence
    if evidence is None or split.is_burnt:
        evidence = Evidence(source=f"none: {note}", note=note)
    return replace(
        first,
        kind=Kind.BRANCH_SPLIT,
        grade=grade,
        site=decision.source or decision.key,
        side="",
        evidence=evidence,
        headline=f"{said}; {first.headline}",
        blame="unknown" if grade is Grade.BUG else "none",
    )


def _grade(case: Case, split: Split, explained: Sequence[Verdict], arms: Arms, working_dtype: str) -> Grade:
    """Return the grade: an arm that is not there is a bug, one that arithmetic may miss a tie."""
    if split.is_burnt:
        return Grade.BUG
    if any(verdict.grade in _ARITHMETIC for verdict in explained):
        return Grade.TIE
    return Grade.TIE if _is_on_the_brink(case, split.decision, arms, working_dtype) else Grade.BUG


def _is_on_the_brink(case: Case, decision: Decision, arms: Arms, working_dtype: str) -> bool:
    """Tell whether arithmetic may move a condition across its threshold.

    Either inputs that nobody can tell from these, eight times over, flip it in the exact run, or its exact distance is
    within eight times what rounding moves that by.
    """
    exact = _of(arms.exact(case), decision.key)
    if exact is None:
        return False
    for draw in range(_DRAWS if draws.can_perturb(case) else 0):
        for moved in (
            draws.one_ulp(case, draw, _REACH),
            draws.eps_of_maximum(case, draw, working_dtype, _REACH),
        ):
            found = _of(arms.exact(moved), decision.key)
            if found is not None and found.outcome != exact.outcome:
                return True
    if exact.margin is None:
        return False
    moves = []
    for draw in range(_DRAWS):
        found = _of(arms.rounded(case, draw), decision.key)
        if found is not None and found.margin is not None:
            moves.append(abs(found.margin - exact.margin))
    return bool(moves) and abs(exact.margin) <= _REACH * max(moves)


def _of(path: Path, key: str) -> Decision | None:
    return next((one for one in path if one.key == key), None)
