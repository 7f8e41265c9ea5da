"""Builds in words: what became of each build that a target's `dtypes` ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType

from fuzzparity.report.layout import pairs
from fuzzparity.report.records import BuildRun


def builds_object(runs: Sequence[BuildRun]) -> list[dict[str, Any]]:
    """Return `builds` of the `--json` object: one entry for each build, `problem` for one that could not be run."""
    return [_object(run) for run in runs]


def _object(run: BuildRun) -> dict[str, Any]:
    found: dict[str, Any] = {"dtypes": dict(text.partition("=")[::2] for text in run.dtypes), "problem": run.problem}
    result = run.result
    if result is not None:
        found |= {
            "build": result.facts.build.digest,
            "seconds": result.seconds,
            "executions": result.executions,
            "inputs": result.inputs,
            "findings": [finding.finding_id for finding in result.findings],
            "exit_code": result.exit_code,
        }
    return found


def builds_text(runs: Sequence[BuildRun]) -> RenderableType:
    """Return a line for each build."""
    return pairs([("build", _line(run)) for run in runs])


def _line(run: BuildRun) -> str:
    name = ", ".join(run.dtypes)
    if run.result is None:
        return f"{name}: cannot be run: {run.problem}"
    result = run.result
    return (
        f"{name} ({result.facts.build.digest[:12]}): {result.executions:,} executions, "
        f"{len(result.findings)} finding(s), {len(result.new_ids)} new"
    )
