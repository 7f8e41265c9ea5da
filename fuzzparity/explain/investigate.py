"""Investigate: confirm one suspect in fresh sessions, alone, then minimize it.

The idea: this job runs in a clean child of the loader that opens no session itself. Every run that may kill its
process is forked from it, so a crash is an answer like any other; a campaign, `explain` and `replay --current` call
the same code.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzzparity.case import Case, Lineage
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.explain.records import (
    REFEREE,
    Better,
    InvestigateSpec,
    Investigation,
    Pairing,
    Slipped,
    TwinSpec,
    death,
)
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.explain.unbuilt import pair_unbuilt, torch_alone
from fuzzparity.finding import Bucket, Confirmation, Suspect, bucket_of
from fuzzparity.minimize.loop import minimize
from fuzzparity.oracle.judge import Oracle
from fuzzparity.verdict import Judgement, Kind, Verdict
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.limits import CONFIRM_FACTOR, Limits
from fuzzparity.work.loader import Context

DEADLY = frozenset({Kind.CRASH, Kind.HANG, Kind.OOM})
_MAX_SLIPS = 4


def investigate(context: Context, spec: InvestigateSpec) -> Investigation:
    """Confirm a suspect, tell the parent, minimize it, and run the smallest case once more in a fresh session."""
    suspect = spec.suspect
    confirmation = confirm(context, spec)
    context.send(confirmation)
    if not confirmation.reproduced:
        return Investigation(suspect, confirmation, suspect.case)
    case, executions, fixpoint = _minimize(context, spec)
    if case == suspect.case and not spec.twin.is_built:  # nothing smaller, and confirmed a moment ago
        return _as_confirmed(suspect, confirmation, executions)
    last = pair_alone(context, spec.twin, case, _limits(context, suspect))
    verdict = _matching(suspect.bucket, case, last.judgement)
    if verdict is None:  # the smallest case does not come back in a fresh session: keep the one that did
        return _as_confirmed(suspect, confirmation, executions)
    realism = last.judgement.realism
    return Investigation(
        suspect, confirmation, case, verdict, last.expected, last.actual, realism, executions, fixpoint
    )


def _as_confirmed(suspect: Suspect, confirmation: Confirmation, executions: int) -> Investigation:
    """Return the outcome when the case that was confirmed is the one to keep."""
    return Investigation(
        suspect,
        confirmation,
        suspect.case,
        confirmation.verdict,
        confirmation.expected,
        confirmation.actual,
        suspect.realism,
        executions,
    )


def confirm(context: Context, spec: InvestigateSpec) -> Confirmation:
    """Run a suspect's case in fresh processes and count how often its bucket shows."""
    suspect = spec.suspect
    limits = _limits(context, suspect, factor=CONFIRM_FACTOR)
    shown = 0
    found: tuple[Verdict, Pairing] | None = None
    tries = 1 if suspect.verdict.kind in (Kind.HANG, Kind.EXPORT_ERROR) else spec.tries  # those that take long
    last: Pairing | None = None
    for _ in range(tries):
        last = pair_alone(context, spec.twin, suspect.case, limits)
        verdict = _matching(suspect.bucket, suspect.case, last.judgement)
        if verdict is not None:
            shown += 1
            found = found or (verdict, last)
    if found is None:
        assert last is not None
        return Confirmation(0, tries, last.judgement, None, last.expected, last.actual)
    verdict, pairing = found
    return Confirmation(shown, tries, pairing.judgement, verdict, pairing.expected, pairing.actual)


def _limits(context: Context, suspect: Suspect, factor: float = 1.0) -> Limits:
    """Return the limits of a risky run; a hang is confirmed at three times the limit, minimized at the limit."""
    scale = factor if suspect.verdict.kind is Kind.HANG else 1.0
    return Limits(context.limits.run_seconds * scale, context.limits.memory_bytes)


def _matching(bucket: Bucket, case: Case, judgement: Judgement) -> Verdict | None:
    """Return the verdict of a judgement that falls into a bucket, if there is one."""
    for verdict in judgement.verdicts:
        if bucket_of(bucket.build, case, verdict) == bucket:
            return verdict
    return None


def pair_alone(context: Context, spec: TwinSpec, case: Case, limits: Limits) -> Pairing:
    """Run both sides of a case in a process of its own and judge it, whatever dies."""
    if not spec.is_built:
        return pair_unbuilt(context, spec, case, limits, oracle_of(context, spec))
    done: list[Execution] = []

    def body(announcer: Announcer, send: Callable[[Any], None]) -> Pairing | Execution:
        twin = open_twin(context, spec, announcer, case)
        if isinstance(twin, Execution):
            return twin
        expected = twin.run_torch(case)
        send(expected)
        actual = twin.run_ort(case)
        send(actual)
        second = (twin.run_torch(case), twin.run_ort(case))
        return Pairing(expected, actual, twin.judge(case, expected, actual, second))

    answer = run_alone(body, map_path=_map(context), limits=limits, on_message=done.append)
    if isinstance(answer, Pairing):
        return answer
    if isinstance(answer, Exit):
        return _after_death(context, spec, case, limits, answer, done)
    expected = torch_alone(context, case, limits)
    return Pairing(expected, answer, _judge_records(context, spec, case, expected, answer))


def _after_death(
    context: Context, spec: TwinSpec, case: Case, limits: Limits, exit_: Exit, done: list[Execution]
) -> Pairing:
    """Complete the executions of a try whose process died."""
    side = exit_.announced.side if exit_.announced else ""
    if side not in (TORCH, ORT):
        if side == REFEREE and spec.use_referee:  # a referee that dies is no vote
            return pair_alone(context, replace(spec, use_referee=False), case, limits)
        raise RuntimeError(f"a risky run ended with {exit_.text} outside of any side:\n{exit_.fault}")
    dead = death(exit_, side)
    if side == TORCH:
        actual = done[1] if len(done) > 1 else _ort_alone(context, spec, case, limits)
        return Pairing(dead, actual, _judge_records(context, spec, case, dead, actual))
    expected = done[0] if done else torch_alone(context, case, limits)
    return Pairing(expected, dead, _judge_records(context, spec, case, expected, dead))


def _ort_alone(context: Context, spec: TwinSpec, case: Case, limits: Limits) -> Execution:
    """Run ORT alone, in a process of its own."""

    def body(announcer: Announcer, send: Callable[[Any], None]) -> Execution:
        twin = open_twin(context, spec, announcer, case)
        return twin if isinstance(twin, Execution) else twin.run_ort(case)

    answer = run_alone(body, map_path=_map(context), limits=limits)
    return death(answer, ORT) if isinstance(answer, Exit) else answer


def _judge_records(context: Context, spec: TwinSpec, case: Case, expected: Execution, actual: Execution) -> Judgement:
    """Judge finished executions where one is a death or a failed load: no evidence is needed."""
    return oracle_of(context, spec).judge(case, expected, actual, None)


def oracle_of(context: Context, spec: TwinSpec) -> Oracle:
    """Return the oracle of a spec without opening any side."""
    from fuzzparity.generate.contract import breach

    contract = spec.facts.contract
    return Oracle(
        spec.facts.outputs,
        spec.policy,
        breach=lambda case: breach(contract, case, context.loaded.target.valid),
        realism=lambda case: spec.statistics.realism(contract, case),
    )


def _map(context: Context) -> Any:
    return context.map_path.with_name(context.map_path.name + ".alone.map")


def _minimize(context: Context, spec: InvestigateSpec) -> tuple[Case, int, bool]:
    """Minimize a confirmed suspect: in one process for differences, one process per candidate for deaths."""
    if spec.minimize_executions <= 0 or spec.suspect.verdict.kind is Kind.EXPORT_ERROR:
        return spec.suspect.case, 0, False
    if spec.suspect.verdict.kind in DEADLY or spec.suspect.verdict.kind is Kind.LOAD_ERROR:
        return _minimize_deaths(context, spec)
    best = [spec.suspect.case]

    def on_message(message: Any) -> None:
        if isinstance(message, Better):
            best[0] = message.case
        context.send(message)

    answer = run_alone(
        lambda announcer, send: _minimize_here(context, spec, announcer, send),
        map_path=_map(context),
        limits=_limits(context, spec.suspect),
        on_message=on_message,
        total_seconds=3 * spec.minimize_seconds + 10,
    )
    if isinstance(answer, Exit):  # a candidate killed the process: the best so far stands
        return best[0], 0, False
    case, executions, fixpoint = answer
    return case, executions, fixpoint


def _minimize_here(
    context: Context, spec: InvestigateSpec, announcer: Announcer, send: Callable[[Any], None]
) -> tuple[Case, int, bool]:
    bucket = spec.suspect.bucket
    twin = open_twin(context, spec.twin, announcer, spec.suspect.case)
    if isinstance(twin, Execution):
        return spec.suspect.case, 0, False
    slips: dict[Bucket, bool] = {}

    def interesting(case: Case) -> bool:
        judgement, expected, actual = judge_for(twin, bucket, case)
        if judgement is None:
            return False
        found = False
        for verdict in judgement.verdicts:
            other = bucket_of(bucket.build, case, verdict)
            if other == bucket:
                found = True
            elif other not in slips and len(slips) < _MAX_SLIPS and not found:
                slips[other] = True
                lineage = Lineage(origin="minimize", parents=(spec.suspect.case.digest,))
                send(Slipped(Suspect(other, case, lineage, verdict, judgement.realism, expected, actual)))
        return found

    result = minimize(
        spec.suspect.case,
        interesting,
        limit_executions=spec.minimize_executions,
        deadline_seconds=spec.minimize_seconds,
        contract=spec.twin.facts.contract,
        on_better=lambda case: send(Better(case)),
    )
    return result.case, result.executions, result.reached_fixpoint


def judge_for(twin: Twin, bucket: Bucket, case: Case) -> tuple[Judgement | None, Execution, Execution]:
    """Judge a case only as far as needed to say whether it can show `bucket`."""
    expected, actual = twin.run(case)
    if bucket.kind == Kind.UNSTABLE.value:
        second = (twin.run_torch(case), twin.run_ort(case))
        return twin.judge(case, expected, actual, second), expected, actual
    if not twin.screen(expected, actual, relative=True).is_suspicious:
        return None, expected, actual
    return twin.judge(case, expected, actual), expected, actual


def _minimize_deaths(context: Context, spec: InvestigateSpec) -> tuple[Case, int, bool]:
    """Minimize a crash, hang or failed load: each candidate runs its side in a process of its own."""
    suspect = spec.suspect
    limits = _limits(context, suspect)
    oracle = oracle_of(context, spec.twin)
    other = Execution(ORT if suspect.verdict.side == TORCH else TORCH, Status.OK)

    def interesting(case: Case) -> bool:
        if suspect.verdict.side == TORCH:
            execution = torch_alone(context, case, limits)
        else:
            execution = _ort_alone(context, spec.twin, case, limits)
        if execution.is_ok:
            return False
        both = (execution, other) if suspect.verdict.side == TORCH else (other, execution)
        return _matching(suspect.bucket, case, oracle.judge(case, *both, None)) is not None

    deadline = time.monotonic() + spec.minimize_seconds
    result = minimize(
        suspect.case,
        interesting,
        limit_executions=spec.minimize_executions,
        deadline_seconds=max(0.0, deadline - time.monotonic()),
        contract=spec.twin.facts.contract,
        on_better=lambda case: context.send(Better(case)),
    )
    return result.case, result.executions, result.reached_fixpoint
