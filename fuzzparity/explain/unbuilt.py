"""Unbuilt: a target of which no twin could be made: its export is tried, its first seed run, and both tried again.

The idea: an exporter that fails and a module that dies on its own inputs are findings like any other, so they are
confirmed by doing the same once more in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzzparity.case import Case
from fuzzparity.execution import ORT, TORCH, Execution, Refusal, Status
from fuzzparity.explain.records import Pairing, TwinSpec, death
from fuzzparity.oracle.judge import Oracle
from fuzzparity.verdict import Grade, Judgement, Kind, Realism, Verdict
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.limits import Limits
from fuzzparity.work.loader import Context

if TYPE_CHECKING:
    from fuzzparity.sides.export import Attempt, BuildResult


def build_alone(context: Context, folder: Path) -> BuildResult:
    """Make the build of a target, each export in a process of its own where this one may fork."""
    from fuzzparity.sides.export import Attempt, make_build, run_here

    def alone(attempt: Callable[[], Attempt]) -> Attempt:
        answer: Attempt | Exit = run_alone(
            lambda announcer, send: attempt(),
            map_path=context.map_path.with_name(f"{context.map_path.name}.export"),
            limits=context.limits,
            total_seconds=context.limits.other_seconds,
        )
        if isinstance(answer, Exit):
            return Attempt(error=Refusal(answer.text, f"the exporting process ended with {answer.text}", "exporter"))
        return answer

    # one with CUDA may not fork, and one that may is still clean: no export has run in it
    can_fork = context.loaded.device == "cpu"
    return make_build(context.loaded, folder, alone=alone if can_fork else run_here)


def torch_alone(context: Context, case: Case, limits: Limits) -> Execution:
    """Run torch without any session, in a process of its own."""
    from fuzzparity.sides.torch_side import TorchSide

    def body(announcer: Announcer, send: Callable[[Any], None]) -> Execution:
        announcer.case(case)
        side = TorchSide(context.loaded)
        with announcer.at(TORCH):
            return side.run(case)

    path = context.map_path.with_name(context.map_path.name + ".alone.map")
    answer = run_alone(body, map_path=path, limits=limits)
    return death(answer, TORCH) if isinstance(answer, Exit) else answer


def export_verdict(refusal: Refusal) -> Verdict:
    """Return the verdict on an exporter that fails on a sound module."""
    return Verdict(
        Kind.EXPORT_ERROR,
        Grade.BUG,
        side=ORT,
        site=f"{refusal.error_class} {refusal.site}".strip(),
        blame="export",
        headline=f"the module cannot be exported: {refusal.said}",
    )


def not_exported(refusal: Refusal) -> Execution:
    """Return the execution of the ORT side of a module that has no model."""
    return Execution(ORT, Status.REFUSED, refusal=refusal, phase="load")


def first_seed_verdict(dead: Execution, case: Case, oracle: Oracle) -> Verdict:
    """Return the verdict on a module that dies or hangs on the target's own inputs, before any twin was made."""
    (verdict,) = oracle.judge(case, dead, Execution(ORT, Status.OK), None).verdicts
    said, _, _ = verdict.headline.partition("; ")
    return replace(verdict, headline=f"{said} on the target's own inputs; nothing was exported")


def pair_unbuilt(context: Context, spec: TwinSpec, case: Case, limits: Limits, oracle: Oracle) -> Pairing:
    """Run torch on a case and, when it answers, export once more; judge what came of it."""
    expected = torch_alone(context, case, limits)
    if expected.status in (Status.CRASHED, Status.HANG):
        verdict = first_seed_verdict(expected, case, oracle)
        actual = Execution(ORT, Status.OK)
        return Pairing(expected, actual, Judgement(verdict.kind, oracle.realism(case), (verdict,)))
    error = build_alone(context, context.map_path.with_name("again")).error
    if error is None:
        actual = Execution(ORT, Status.OK)
        return Pairing(expected, actual, Judgement(Kind.AGREE, Realism.UNKNOWN))
    verdict = export_verdict(error)
    return Pairing(expected, not_exported(error), Judgement(verdict.kind, Realism.UNKNOWN, (verdict,)))
