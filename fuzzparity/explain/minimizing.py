"""Minimizing: make the case of a confirmed finding smaller while its bucket stays.

The idea: candidates run in one forked process as long as they only differ, and in one process each where they kill it.
A candidate that kills the common process is a fault of its own: it is told, its likes are left out, and the search
goes on from the best so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fuzzparity.case import Case, Lineage
from fuzzparity.errors import NotReproduced
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.explain.few_rows import few_rows
from fuzzparity.explain.pairing import asked_of, limits_of, map_of, matching, oracle_of, ort_alone
from fuzzparity.explain.records import Better, InvestigateSpec, Slipped, death
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.explain.unbuilt import torch_alone
from fuzzparity.finding import Bucket, Confirmation, Suspect, bucket_of
from fuzzparity.minimize.loop import minimize
from fuzzparity.verdict import Grade, Judgement, Kind, Realism
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.hurry import HurriedClock
from fuzzparity.work.loader import Context

DEADLY = frozenset({Kind.CRASH, Kind.HANG, Kind.OOM})
_MAX_SLIPS = 4
_MOST_DEATHS = 6  # of candidates, before the best so far stands
_LEAST_SECONDS = 0.5
_MOST_TRAIL = 32  # cases on the way, kept for whom minimizing leads astray


@dataclass(frozen=True, slots=True)
class Smallest:
    """Hold the smallest case found, and what it cost."""

    case: Case
    executions: int = 0
    reached_fixpoint: bool = False
    trail: tuple[Case, ...] = ()  # ever smaller cases that show the bucket, from the start on


def smallest(context: Context, spec: InvestigateSpec, confirmation: Confirmation) -> Smallest:
    """Minimize a confirmed suspect, as far as its executions and seconds go."""
    suspect = spec.suspect
    if spec.minimize_executions <= 0 or suspect.verdict.kind is Kind.EXPORT_ERROR:
        return Smallest(suspect.case)
    if suspect.verdict.kind in DEADLY or suspect.verdict.kind is Kind.LOAD_ERROR:
        try:
            return _among_deaths(context, spec, confirmation)
        except NotReproduced:  # confirmed a moment ago: a death that comes and goes is told as it was
            return Smallest(suspect.case)
    return _among_differences(context, spec, confirmation)


def _among_differences(context: Context, spec: InvestigateSpec, confirmation: Confirmation) -> Smallest:
    """Minimize in a forked process, and in another one after each candidate that kills it."""
    best = [spec.suspect.case]
    trail = [spec.suspect.case]
    deadly: list[Case] = []
    deadline = time.monotonic() + spec.minimize_seconds

    def on_message(message: Any) -> None:
        if isinstance(message, Better):
            best[0] = message.case
            trail.append(message.case)
            if len(trail) > _MOST_TRAIL:
                del trail[1::2]
        context.send(message)

    while len(deadly) < _MOST_DEATHS:
        left = max(_LEAST_SECONDS, deadline - time.monotonic())
        answer = run_alone(
            partial(_here, context, spec, best[0], deadly, left, confirmation.judgement),
            map_path=map_of(context),
            limits=limits_of(context, spec.suspect),
            on_message=on_message,
            total_seconds=3 * left + 10,
        )
        if isinstance(answer, Smallest):
            return replace(answer, trail=tuple(trail))
        assert isinstance(answer, Exit)
        announced = answer.announced
        if announced is None or announced.case is None or announced.side not in (TORCH, ORT):
            break
        deadly.append(announced.case)
        _tell_death(context, spec, answer, announced.case)
        if time.monotonic() > deadline:
            break
    return Smallest(best[0], trail=tuple(trail))


def _tell_death(context: Context, spec: InvestigateSpec, exit_: Exit, case: Case) -> None:
    """Send the death of a candidate as a suspect of its own."""
    assert exit_.announced is not None
    side = exit_.announced.side
    dead = death(exit_, side)
    other = Execution(ORT if side == TORCH else TORCH, Status.OK)
    expected, actual = (dead, other) if side == TORCH else (other, dead)
    judgement = oracle_of(context, spec.twin).judge(case, expected, actual, None)
    lineage = Lineage(origin="minimize", parents=(spec.suspect.case.digest,))
    for verdict in judgement.verdicts:
        bucket = bucket_of(spec.suspect.bucket.build, case, verdict)
        suspect = Suspect(bucket, case, lineage, verdict, Realism.UNKNOWN)
        context.send(Slipped(replace(suspect, realism=judgement.realism)))


def _is_like(case: Case, deadly: Case) -> bool:
    """Tell whether a candidate has the shapes of one that killed its process, or is empty along the same axes."""
    if case.shapes == deadly.shapes:
        return True
    empty = [(name, axis) for name, shape in deadly.shapes.items() for axis, size in enumerate(shape) if size == 0]
    return bool(empty) and all(axis < len(case.shapes[name]) and case.shapes[name][axis] == 0 for name, axis in empty)


def _here(
    context: Context,
    spec: InvestigateSpec,
    start: Case,
    deadly: list[Case],
    seconds: float,
    confirmed: Judgement | None,
    announcer: Announcer,
    send: Callable[[Any], None],
) -> Smallest:
    """Minimize from `start` in this process."""
    bucket = spec.suspect.bucket.provisional
    twin = open_twin(context, spec.twin, announcer, start)
    if isinstance(twin, Execution):
        return Smallest(start)
    slips: set[Bucket] = set()
    looks = confirmed.comparisons if confirmed is not None else ()
    known = {(name, look.kind) for name, look in zip(spec.twin.facts.outputs, looks, strict=False)}
    shown = {start.digest}  # it was confirmed a moment ago, or is the best so far

    def interesting(case: Case) -> bool:
        if case.digest in shown:
            return True
        if any(_is_like(case, other) for other in deadly):
            return False
        judgement, expected, actual = judge_for(twin, bucket, case, known)
        if judgement is None:
            return False
        found = False
        for verdict in judgement.verdicts:
            other = bucket_of(bucket.build, case, verdict)
            if other == bucket:
                found = True
            elif other not in slips and len(slips) < _MAX_SLIPS and not found:
                slips.add(other)
                lineage = Lineage(origin="minimize", parents=(spec.suspect.case.digest,))
                send(Slipped(Suspect(other, case, lineage, verdict, judgement.realism, expected, actual)))
        return found

    clock = HurriedClock(context.map_path.parent)
    deadline = clock() + seconds
    if start == spec.suspect.case:
        comparison = spec.suspect.verdict.comparison
        candidates = few_rows(start, spec.twin.facts.contract, comparison.index if comparison is not None else None)
        few = next(filter(interesting, candidates), None)
        if few is not None:
            start = few
            shown.add(few.digest)
            send(Better(few))
    result = minimize(
        start,
        interesting,
        limit_executions=spec.minimize_executions,
        deadline_seconds=max(_LEAST_SECONDS, deadline - clock()),
        contract=spec.twin.facts.contract,
        clock=clock,
        on_better=lambda case: send(Better(case)),
    )
    return Smallest(result.case, result.executions, result.reached_fixpoint)


def judge_for(
    twin: Twin, bucket: Bucket, case: Case, known: set[tuple[str, Kind]]
) -> tuple[Judgement | None, Execution, Execution]:
    """Judge a case as far as needed to say whether it may show `bucket`, and what is not `known` to differ so."""
    expected, actual = twin.run(case)
    if bucket.kind == Kind.UNSTABLE.value:
        second = (twin.run_torch(case), twin.run_ort(case))
        return twin.judge(case, expected, actual, second), expected, actual
    screening = twin.screen(case, expected, actual, relative=True)
    if not screening.is_suspicious:
        return None, expected, actual
    asked = asked_of(bucket)
    if asked is not None:
        looks = zip(twin.oracle.names(expected), screening.comparisons, strict=False)
        new = {(name, look.kind) for name, look in looks if look.kind is not Kind.AGREE} - known
        known |= new
        asked |= {name for name, _ in new}
    is_brief = bucket.grade == Grade.BUG.value  # what is left at the end is judged in full
    return twin.judge(case, expected, actual, asked=asked, is_brief=is_brief), expected, actual


def _among_deaths(context: Context, spec: InvestigateSpec, confirmation: Confirmation) -> Smallest:
    """Minimize a crash, hang or failed load: each candidate runs in a process of its own.

    What the other side does is part of the finding: "ORT dies where torch answers" must not become a case that torch
    refuses.
    """
    suspect = spec.suspect
    limits = limits_of(context, suspect)
    oracle = oracle_of(context, spec.twin)
    is_torch = suspect.verdict.side == TORCH
    other = confirmation.actual if is_torch else confirmation.expected
    if not spec.twin.is_built:  # there is no ORT side
        other = None

    def run(side: str, case: Case) -> Execution:
        return torch_alone(context, case, limits) if side == TORCH else ort_alone(context, spec.twin, case, limits)

    def interesting(case: Case) -> bool:
        execution = run(suspect.verdict.side, case)
        if execution.is_ok:
            return False
        answer = Execution(ORT if is_torch else TORCH, Status.OK)
        both = (execution, answer) if is_torch else (answer, execution)
        if matching(suspect.bucket, case, oracle.judge(case, *both, None)) is None:
            return False
        return other is None or run(ORT if is_torch else TORCH, case).status is other.status

    result = minimize(
        suspect.case,
        interesting,
        limit_executions=spec.minimize_executions,
        deadline_seconds=spec.minimize_seconds,
        contract=spec.twin.facts.contract,
        clock=HurriedClock(context.map_path.parent),
        on_better=lambda case: context.send(Better(case)),
    )
    return Smallest(result.case, result.executions, result.reached_fixpoint)
