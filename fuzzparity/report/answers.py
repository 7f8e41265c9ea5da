"""Answers: what `explain`, `check`, `replay`, `import` and `probe` say, for reading and as JSON.

The idea: the commands' records are taken by their form (protocols), since they are made in a higher layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuzzparity.contract import TargetFacts
from fuzzparity.corpus.records import Payload, Recheck
from fuzzparity.explain.records import Examined
from fuzzparity.finding import SIZED, Finding, Suspect
from fuzzparity.known import FILE, Told
from fuzzparity.probe.latency import ProbeRow
from fuzzparity.report.clean import printable
from fuzzparity.report.explanation import explanation
from fuzzparity.report.facts import facts_lines, note_lines
from fuzzparity.report.known import (
    known_mark,
    known_object,
    recheck_lines,
    rechecks_object,
    rechecks_text,
    standings_text,
)
from fuzzparity.report.layout import milliseconds, pairs, size
from fuzzparity.report.needed import needed_for, needed_of
from fuzzparity.report.plain import SCHEMA, as_plain_execution, finding_object, result_object
from fuzzparity.report.records import CampaignResult
from fuzzparity.verdict import Judgement, Verdict, as_plain


class Explained(Protocol):
    """One input with what was made of it."""

    @property
    def name(self) -> str:
        """Return the input's file or name."""

    @property
    def examined(self) -> Examined:
        """Return judgement and executions."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings that came of it."""


class Outcome(Protocol):
    """What a replay found."""

    @property
    def state(self) -> str:
        """Return "shows", "gone" or "cannot_run"."""

    @property
    def text(self) -> str:
        """Return what happened, a line each."""

    @property
    def finding_id(self) -> str:
        """Return the finding's id."""

    @property
    def headline(self) -> str:
        """Return the finding's headline."""


def explained_text(explained: Sequence[Explained], outputs: Sequence[str] = ()) -> RenderableType:
    """Return the explanation of each input."""
    return Group(*(_explanation(item.name, item.examined, item.findings, outputs) for item in explained))


def _explanation(
    name: str, examined: Examined, findings: Sequence[Finding], outputs: Sequence[str] = ()
) -> RenderableType:
    return explanation(
        name,
        examined.case,
        _as_blamed(examined.judgement, findings),
        outputs or _outputs(examined.judgement),
        expected=examined.expected,
        actual=examined.actual,
        findings=findings,
    )


def _as_blamed(judgement: Judgement, findings: Sequence[Finding]) -> Judgement:
    """Return a judgement with what its findings have learned since: blame, how it is known, what the error looks like.

    There is a finding for each verdict, or none at all.
    """
    if len(findings) != len(judgement.verdicts):
        return judgement
    return replace(judgement, verdicts=tuple(map(_blamed, judgement.verdicts, findings)))


def _blamed(verdict: Verdict, finding: Finding) -> Verdict:
    known = finding.verdict
    return replace(verdict, blame=known.blame, attribution=known.attribution, looks_like=known.looks_like)


def _outputs(judgement: Judgement) -> list[str]:
    """Return names of outputs as far as verdicts tell them: each verdict holds the comparison of its output."""
    names = [f"output_{index}" for index in range(len(judgement.comparisons))]
    for verdict in judgement.verdicts:
        for index, comparison in enumerate(judgement.comparisons):
            if verdict.output and verdict.comparison == comparison:
                names[index] = verdict.output
    return names


def explained_object(result: CampaignResult, explained: Sequence[Explained]) -> dict[str, Any]:
    """Return the object of `explain --json`: that of a campaign, with one finding for each input, in their order.

    The finding is the verdict told first of that input; `others` holds the ids of its other findings.
    """
    return {**result_object(result), "findings": [_of_input(item, result) for item in explained]}


def _of_input(item: Explained, result: CampaignResult) -> dict[str, Any]:
    judgement, worst = item.examined.judgement, item.examined.judgement.worst
    if worst is None:
        return {**_agreement(judgement), "input": item.name, "others": []}
    index = judgement.verdicts.index(worst)
    finding = item.findings[index]
    here = replace(finding, verdict=_blamed(worst, finding), realism=judgement.realism)
    others = [other.finding_id for other in item.findings if other is not finding]
    is_new = finding.finding_id in result.new_ids
    examined, outputs = item.examined, result.facts.outputs
    least = needed_for(worst, outputs, examined.expected, examined.actual)
    told = finding_object(here, is_new=is_new) | {"agrees_from": as_plain(least)}
    return told | {"input": item.name, "others": others}


def _agreement(judgement: Judgement) -> dict[str, Any]:
    """Return the finding's object for an input on which nothing differs."""
    return {
        "finding_id": "",
        "new": False,
        "kind": judgement.kind.value,
        "grade": None,
        "realism": judgement.realism.value,
        "blame": "none",
        "where": {},
        "headline": "both sides refuse it" if judgement.kind.value == "rejected" else "the sides agree",
        "error_ratio": as_plain(judgement.error_ratio),
        "first_seen_seconds": None,
        "hits": 1,
        "reproduced": None,
        "standalone": "",
        "minimized": None,
        "path": "",
        "known": None,
    }


def payload_text(payload: Payload, path: Path) -> RenderableType:
    """Return all that is known of a stored finding, as an explanation."""
    finding = payload.finding
    verdict = finding.verdict
    comparisons = (verdict.comparison,) if verdict.comparison is not None else ()
    judgement = Judgement(verdict.kind, finding.realism, (verdict,), comparisons)
    told = explanation(
        finding.finding_id,
        payload.case,
        judgement,
        [verdict.output or "output"],
        expected=payload.expected,
        actual=payload.actual,
        findings=(finding,),
        executed=payload.facts.outputs if payload.facts is not None else (),
    )
    lines = _next_steps(finding)
    lines += [("corpus", str(path)), ("stage", f"{finding.stage.value}, {finding.hits} hit(s)")]
    lines += [("came from", f"{payload.lineage.origin} {', '.join(payload.lineage.mutators)}".strip())]
    lines += [("runs on", payload.environment.line)] if payload.environment is not None else []
    lines += [("later", later)] if (later := rechecks_text(payload.rechecks)) else []
    lines += [("note", finding.note)] if finding.note else []
    return Group(told, pairs(lines))


def _next_steps(finding: Finding) -> list[tuple[str, str]]:
    """Return what to do with a stored finding next."""
    name = finding.finding_id
    steps = [("again", f"fuzzparity replay {name}" + (f", or python {finding.path}/repro.py" if finding.path else ""))]
    steps += [("tolerance", f"fuzzparity explain {name} --policy ...")] if finding.verdict.kind in SIZED else []
    return [*steps, ("as known", f"fuzzparity finding show {name} prints the entry for {FILE}")]


def payload_object(payload: Payload) -> dict[str, Any]:
    """Return a stored finding as JSON data: its object, verdict with evidence, both executions, lineage."""
    return {
        **finding_object(payload.finding, is_new=False),
        "agrees_from": as_plain(needed_of(payload)),
        "rechecks": rechecks_object(payload.rechecks),
        "verdict": as_plain(payload.finding.verdict),
        "stage": payload.finding.stage.value,
        "expected": as_plain_execution(payload.expected),
        "actual": as_plain_execution(payload.actual),
        "shapes": as_plain(payload.case.shapes),
        "lineage": as_plain(payload.lineage),
        "environment": as_plain(payload.environment),
    }


def examined_text(payload: Payload, examined: Examined, shows: bool) -> RenderableType:
    """Return what today's code made of a stored finding's case."""
    state = "still shows" if shows else "is gone"
    line = Text(printable(f"{payload.finding.finding_id} {state} on today's code and export"), style="bold")
    return Group(_explanation(payload.finding.finding_id, examined, ()), line)


def examined_object(payload: Payload, examined: Examined, shows: bool) -> dict[str, Any]:
    """Return the same as JSON data."""
    return {
        "finding_id": payload.finding.finding_id,
        "state": "shows" if shows else "gone",
        "kind": examined.judgement.kind.value,
        "verdicts": as_plain(examined.judgement.verdicts),
        "expected": as_plain_execution(examined.expected),
        "actual": as_plain_execution(examined.actual),
    }


class Seen(Protocol):
    """What `check` saw against the ledger of known issues."""

    @property
    def findings(self) -> Sequence[Finding]:
        """Return a finding for each suspect, in their order."""

    @property
    def earlier(self) -> Sequence[tuple[Finding, Recheck]]:
        """Return what became of findings of earlier builds."""

    @property
    def left(self) -> int:
        """Return how many of them there was no time for."""

    @property
    def known(self) -> Sequence[Told]:
        """Return what became of the entries."""


def seen_text(seen: Seen) -> RenderableType:
    """Return what became of findings of earlier builds, and of known issues."""
    lines = [Text(printable(line)) for line in recheck_lines(seen.earlier, seen.left)]
    return Group(*lines, *([standings_text(seen.known)] if seen.known else []))


def seen_object(seen: Seen) -> dict[str, Any]:
    """Return the same as JSON data."""
    rechecks = rechecks_object([became for _, became in seen.earlier])
    return {"known_issues": known_object(seen.known), "rechecks": rechecks}


def check_text(
    facts: TargetFacts,
    notes: Sequence[str],
    suspects: Sequence[Suspect],
    tried: int,
    seen: Sequence[Finding] = (),
    *,
    differing: int | None = None,
) -> RenderableType:
    """Return the target as understood, and how its seeds fared on both sides.

    `differing`: how many seeds differ, where `suspects` hold one of each bucket only.
    """
    differing = len({suspect.case.digest for suspect in suspects}) if differing is None else differing
    marks = [f" ({mark})" if (mark := known_mark(finding)) else "" for finding in seen] or [""] * len(suspects)
    lines = [*facts_lines(facts), ("seeds", f"{tried} tried on both sides, {differing} differ")]
    told = zip(suspects, marks, strict=True)
    lines += [(suspect.verdict.grade.value, suspect.verdict.headline + mark) for suspect, mark in told]
    return pairs([*lines, *note_lines(facts, notes)])


def check_object(facts: TargetFacts, notes: Sequence[str], suspects: Sequence[Suspect], tried: int) -> dict[str, Any]:
    """Return the same as JSON data."""
    return {
        "schema": SCHEMA,
        "target": facts.name,
        "build": as_plain(facts.build),
        "environment": as_plain(facts.environment),
        "contract": as_plain(facts.contract),
        "outputs": list(facts.outputs),
        "notes": [text for _, text in note_lines(facts, notes)],
        "seeds": tried,
        "differing": [{"verdict": as_plain(item.verdict), "realism": item.realism.value} for item in suspects],
    }


_STATES = {"shows": ("SHOWS", "bold red"), "gone": ("GONE", "bold green"), "cannot_run": ("CANNOT RUN HERE", "yellow")}


def replay_object(outcome: Outcome, finding: Finding | None) -> dict[str, Any]:
    """Return what a replay found as JSON data; `finding` carries the entry of known issues that it falls under."""
    known = finding.known.name if finding is not None and finding.known is not None else None
    state = str(outcome.state)
    return {"finding_id": outcome.finding_id, "state": state, "text": outcome.text, "known": known}


def replay_text(outcome: Outcome, mark: str = "") -> RenderableType:
    """Return what a replay found: state and headline first, then what happened."""
    word, style = _STATES[str(outcome.state)]
    title = Text(word, style=style).append(printable(f" {outcome.finding_id}  {outcome.headline}"), style="not bold")
    title.append(printable(f" ({mark})") if mark else "", style="not bold")
    return Group(title, *(Text("  " + printable(line)) for line in outcome.text.splitlines()))


def probe_text(rows: Sequence[ProbeRow]) -> RenderableType:
    """Return a probe's figures, a line for each case."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("case", "input", "torch P50", "P90", "P99", "ORT P50", "P90", "P99", "ORT/torch", "resident", "note"):
        table.add_column(title, overflow="fold")
    for row in rows:
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in row.shapes.items())
        times = [row.torch_p50_seconds, row.torch_p90_seconds, row.torch_p99_seconds]
        times += [row.ort_p50_seconds, row.ort_p90_seconds, row.ort_p99_seconds]
        cells = [row.case_digest[:8], shapes, *map(milliseconds, times)]
        cells += ["" if row.ratio is None else f"{row.ratio:.3g}", size(row.rss_bytes), row.note]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
