"""Pairing: run both sides of a case in processes of their own, whatever dies, and judge what came of it.

The idea: this runs in a clean child of the loader that opens no session itself; it forks, and a death is a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzzparity.case import Case
from fuzzparity.execution import ORT, TORCH, Execution
from fuzzparity.explain.records import REFEREE, Pairing, TwinSpec, death
from fuzzparity.explain.twin import open_twin
from fuzzparity.explain.unbuilt import pair_unbuilt, torch_alone
from fuzzparity.finding import Bucket, Suspect, bucket_of
from fuzzparity.oracle.judge import Oracle, has_same_outputs
from fuzzparity.oracle.metrics import SITE as METRIC
from fuzzparity.verdict import Judgement, Kind, Verdict
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.limits import Limits
from fuzzparity.work.loader import Context


def limits_of(context: Context, suspect: Suspect, factor: float = 1.0) -> Limits:
    """Return the limits of a risky run; a hang is confirmed at three times the limit, minimized at the limit."""
    scale = factor if suspect.verdict.kind is Kind.HANG else 1.0
    return Limits(context.limits.run_seconds * scale, context.limits.memory_bytes)


def matching(bucket: Bucket, case: Case, judgement: Judgement) -> Verdict | None:
    """Return the verdict of a judgement that falls into a bucket, whatever its cause, if there is one."""
    for verdict in judgement.verdicts:
        if bucket_of(bucket.build, case, verdict) == bucket.provisional:
            return verdict
    return None


def asked_of(what: Bucket | Verdict) -> frozenset[str] | None:
    """Return the output or metric that a bucket or verdict is about, None where it is about none in particular."""
    about = what.site if what.site.startswith(METRIC) else what.output
    return frozenset({about}) if about else None


def pair_alone(
    context: Context,
    spec: TwinSpec,
    case: Case,
    limits: Limits,
    asked: frozenset[str] | None = None,
    before: Pairing | None = None,
    *,
    is_brief: bool = False,
) -> Pairing:
    """Run both sides of a case in a process of its own and judge it, or what is asked of it, whatever dies.

    `is_brief`: by little evidence. A try `before` this one, asked the same, lends its judgement where both sides
    answer as they did there.
    """
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
        if before is not None and _is_known(before, (expected, actual), second):
            return Pairing(expected, actual, before.judgement)
        return Pairing(expected, actual, twin.judge(case, expected, actual, second, asked=asked, is_brief=is_brief))

    answer = run_alone(body, map_path=map_of(context), limits=limits, on_message=done.append)
    if isinstance(answer, Pairing):
        return answer
    if isinstance(answer, Exit):
        return _after_death(context, spec, case, limits, answer, done, asked)
    expected = torch_alone(context, case, limits)
    return Pairing(expected, answer, _judge_records(context, spec, case, expected, answer))


def _is_known(before: Pairing, first: tuple[Execution, ...], second: tuple[Execution, ...]) -> bool:
    """Tell whether both sides answer twice as they did in an earlier try, in which they did not change either."""
    if any(verdict.kind is Kind.UNSTABLE for verdict in before.judgement.verdicts):
        return False
    earlier = (before.expected, before.actual)
    return all(_is_the_same(one, two) for runs in (first, second) for one, two in zip(earlier, runs, strict=True))


def _is_the_same(one: Execution, two: Execution) -> bool:
    """Tell whether two executions gave the same answer by the same decisions."""
    return one.is_ok and two.is_ok and has_same_outputs(one, two) and one.decisions == two.decisions


def _after_death(
    context: Context,
    spec: TwinSpec,
    case: Case,
    limits: Limits,
    exit_: Exit,
    done: list[Execution],
    asked: frozenset[str] | None,
) -> Pairing:
    """Complete the executions of a try whose process died."""
    side = exit_.announced.side if exit_.announced else ""
    if side not in (TORCH, ORT):
        if side == REFEREE and spec.use_referee:  # a referee that dies is no vote
            return pair_alone(context, replace(spec, use_referee=False), case, limits, asked)
        raise RuntimeError(f"a risky run ended with {exit_.text} outside of any side:\n{exit_.fault}")
    dead = death(exit_, side)
    if side == TORCH:
        actual = done[1] if len(done) > 1 else ort_alone(context, spec, case, limits)
        return Pairing(dead, actual, _judge_records(context, spec, case, dead, actual))
    expected = done[0] if done else torch_alone(context, case, limits)
    return Pairing(expected, dead, _judge_records(context, spec, case, expected, dead))


def ort_alone(context: Context, spec: TwinSpec, case: Case, limits: Limits) -> Execution:
    """Run ORT alone, in a process of its own."""

    def body(announcer: Announcer, send: Callable[[Any], None]) -> Execution:
        twin = open_twin(context, spec, announcer, case)
        return twin if isinstance(twin, Execution) else twin.run_ort(case)

    answer = run_alone(body, map_path=map_of(context), limits=limits)
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
        metrics=context.loaded.target.metrics,
        is_typical=lambda case: spec.statistics.is_typical(contract, case, any_rows=True),
    )


def map_of(context: Context) -> Path:
    """Return where the processes forked from this one announce what they run."""
    return context.map_path.with_name(context.map_path.name + ".alone.map")
