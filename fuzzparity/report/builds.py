"""Builds in words: what became of each build that a target's `dtypes` ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from fuzzparity.contract import TargetFacts
from fuzzparity.finding import Suspect
from fuzzparity.report.answers import check_object, check_text
from fuzzparity.report.layout import pairs
from fuzzparity.report.records import BuildRun


class _Prepared(Protocol):
    """What `check` learned of one build."""

    @property
    def facts(self) -> TargetFacts: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def suspects(self) -> Sequence[Suspect]: ...
    @property
    def tried(self) -> int: ...


class _Checked(Protocol):
    """One more build that `check` looked at."""

    @property
    def prepared(self) -> _Prepared | None: ...
    @property
    def dtypes(self) -> tuple[str, ...]: ...
    @property
    def problem(self) -> str: ...


def builds_object(runs: Sequence[BuildRun]) -> list[dict[str, Any]]:
    """Return `builds` of the `--json` object: one entry for each build, `problem` for one that could not be run."""
    return [_object(run) for run in runs]


def _object(run: BuildRun) -> dict[str, Any]:
    found: dict[str, Any] = {"dtypes": _by_input(run.dtypes), "problem": run.problem}
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


def checked_object(checked: _Checked) -> dict[str, Any]:
    """Return one further build as `check --json` writes it."""
    found: dict[str, Any] = {"dtypes": _by_input(checked.dtypes), "problem": checked.problem}
    if checked.prepared is not None:
        one = checked.prepared
        found |= check_object(one.facts, one.notes, one.suspects, one.tried)
    return found


def checked_text(checked: _Checked) -> RenderableType:
    """Return one further build as `check` shows it."""
    name = ", ".join(checked.dtypes)
    if checked.prepared is None:
        return Group(Text(""), pairs([("build", f"{name}: cannot be run: {checked.problem}")]))
    one = checked.prepared
    return Group(Text(f"\nbuild {name}"), check_text(one.facts, one.notes, one.suspects, one.tried))


def _by_input(dtypes: tuple[str, ...]) -> dict[str, str]:
    return dict(text.split("=", 1) for text in dtypes)
