"""Text: what a campaign shows of itself at its start, while it runs, and at its end.

The idea: everything shown is made of plain records and goes through `printable`, since names, messages and headlines
come from models and files. The closing summary answers the four questions of its readers before it lists anything.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from fuzzparity.contract import TargetFacts
from fuzzparity.finding import Finding
from fuzzparity.probe.latency import ProbeRow
from fuzzparity.report.advice import passing_tolerance
from fuzzparity.report.answers import (
    check_object,
    check_text,
    examined_object,
    examined_text,
    explained_object,
    explained_text,
    payload_object,
    payload_text,
    probe_text,
    replay_text,
)
from fuzzparity.report.causes import REALISMS, Cause, causes_of
from fuzzparity.report.clean import printable
from fuzzparity.report.facts import start_block
from fuzzparity.report.known import known_mark, standings_text
from fuzzparity.report.layout import duration, milliseconds, pairs, size
from fuzzparity.report.paying import pays_text
from fuzzparity.report.plain import result_object
from fuzzparity.report.records import CampaignResult, CampaignStatus
from fuzzparity.verdict import GRADES, PRECEDENCE, Grade

__all__ = [
    "check_object",
    "check_text",
    "examined_object",
    "examined_text",
    "explained_object",
    "explained_text",
    "finding_line",
    "payload_object",
    "payload_text",
    "probe_text",
    "replay_text",
    "result_object",
    "start_block",
    "status_line",
    "status_panel",
    "summary",
]

_MOST_VARIANTS = 6  # that are named beside the finding that leads them
_STYLE = {Grade.BUG: "bold red", Grade.CONTRACT: "yellow", Grade.TIE: "cyan", Grade.INHERENT: "cyan", Grade.NOTE: "dim"}


def status_line(status: CampaignStatus) -> str:
    """Return the state of a campaign as one plain line."""
    if status.stage != "fuzzing" and not status.executions:
        return f"{printable(status.stage)} ({duration(status.seconds)})"
    parts = [f"{duration(status.seconds)}{_limit(status)} {printable(status.stage)}", *_counts(status)]
    parts += [f"findings: {_found(status)}", _since(status), _processes(status)]
    return " | ".join(part for part in parts if part)


def status_panel(status: CampaignStatus) -> RenderableType:
    """Return the state of a campaign as a few lines for a terminal."""
    if status.stage != "fuzzing" and not status.executions:
        return Text(status_line(status))
    executions, inputs, corpus = _counts(status)
    lines = [
        ("time", f"{duration(status.seconds)}{_limit(status)} {status.stage}"),
        ("speed", f"{executions}, {inputs}"),
        ("corpus", f"{corpus}, {status.rejected:,} inputs rejected by both sides"),
        ("findings", ", ".join(part for part in (_found(status), _since(status)) if part)),
        ("work", f"{_processes(status)}, {size(status.rss_bytes)} resident"),
        ("pays", pays_text(status.efforts)),
    ]
    return pairs([line for line in lines if line[1]])


def _limit(status: CampaignStatus) -> str:
    if status.limit_seconds is not None:
        return f" of {duration(status.limit_seconds)}"
    return f", {status.limit_executions:,} executions wanted" if status.limit_executions is not None else ""


def _counts(status: CampaignStatus) -> tuple[str, str, str]:
    return (
        f"{status.executions:,} executions ({status.executions_per_second:,.0f}/s)",
        f"{status.inputs:,} inputs ({status.inputs_per_second:,.0f}/s)",
        f"corpus {status.corpus_size:,}",
    )


def _since(status: CampaignStatus) -> str:
    return "" if status.since_new_seconds is None else f"last new one {duration(status.since_new_seconds)} ago"


def _processes(status: CampaignStatus) -> str:
    workers = f"{status.workers} worker{'s' * (status.workers != 1)}"
    return f"{workers}, {status.pending} pending, {status.deaths} died"


def _found(status: CampaignStatus) -> str:
    return tally(status.findings) + (f", {status.known} known" if status.known else "")


def tally(findings: dict[tuple[str, str], int]) -> str:
    """Return counts by kind and grade, the most telling first: "2 crash (bug), 1 topk (tie)"."""
    order = sorted(findings.items(), key=lambda item: (_rank(GRADES, item[0][1]), _rank(PRECEDENCE, item[0][0])))
    return ", ".join(f"{count} {printable(kind)} ({printable(grade)})" for (kind, grade), count in order) or "none"


def _rank(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def finding_line(finding: Finding, *, is_new: bool) -> Text:
    """Return a finding as one line, said when its stage changes."""
    verdict = finding.verdict
    text = Text(f"{'new ' if is_new else ''}{verdict.grade.value}", style=_STYLE[verdict.grade])
    return text.append(
        f" {printable(finding.finding_id)} [{finding.stage.value}, {finding.realism.value}] "
        f"{printable(verdict.headline or verdict.kind.value, 300)}"
        + (f" ({printable(known_mark(finding))})" if finding.known else ""),
        style="default",
    )


def summary(result: CampaignResult, *, debug: bool = False) -> RenderableType:
    """Return the end of a campaign: the four questions, the findings, how to replay each."""
    causes = causes_of(result.findings)
    causes.sort(key=lambda one: (_order(one.leader), one.leader.first_seen_seconds, one.leader.finding_id))
    leaders = [cause.leader for cause in causes]
    parts: list[RenderableType] = [Text(""), Text(_closing(result, len(causes)), style="bold")]
    parts += [pairs(questions(result.facts, leaders, result.probe))]
    if result.known:
        parts += [standings_text(result.known)]
    if causes:
        parts += [Text(""), causes_list(causes, result.new_ids), Text(""), pairs(replays(leaders))]
    parts += [Text(""), pairs([("corpus", str(result.corpus_path)), *(("note", note) for note in result.notes)])]
    if debug:
        parts.append(pairs([("campaign", result.campaign_id), ("exit code", str(result.exit_code))]))
    return Group(*parts)


def _order(finding: Finding) -> tuple[bool, int, int]:
    return finding.is_silent, GRADES.index(finding.verdict.grade), PRECEDENCE.index(finding.verdict.kind)


def _closing(result: CampaignResult, causes: int) -> str:
    new = sum(finding.finding_id in result.new_ids for finding in result.findings)
    known = sum(finding.known is not None and finding.is_silent for finding in result.findings)
    expected = f", {known} known" if known else ""
    joined = f", of {causes} cause{'s' * (causes != 1)}" if causes < len(result.findings) else ""
    stopped = f" (stopped by {signal_name(result.interrupted_by)})" if result.interrupted_by else ""
    return (
        f"{len(result.findings)} finding(s), {new} new{expected}{joined}, in {duration(result.seconds)}{stopped}: "
        f"{result.executions:,} executions, {result.inputs:,} inputs judged, {result.rejected:,} rejected by both, "
        f"corpus {result.corpus_size:,}"
    )


def signal_name(number: int) -> str:
    """Return how a person calls a signal: Ctrl-C, SIGTERM."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def questions(facts: TargetFacts, findings: Sequence[Finding], probe: Sequence[ProbeRow]) -> list[tuple[str, str]]:
    """Return the four questions that readers ask, each with what is known."""
    return [
        ("which part is guilty", _guilty(findings)),
        ("where did it run", f"{facts.environment.line}; {facts.build.origin}"),
        ("what is slow, what grows", _slow(probe)),
        ("bug or floating point", _grades(findings)),
    ]


def _guilty(findings: Sequence[Finding]) -> str:
    if not findings:
        return "nothing differs"
    known = [finding for finding in findings if finding.verdict.blame not in ("unknown", "none")]
    told = [f"{finding.finding_id}: {finding.verdict.blame}{place(finding)}" for finding in known[:6]]
    left = len(findings) - len(known)
    rest = f"not yet known for {left} of {len(findings)}" if left else ""
    return "; ".join(part for part in (*told, rest) if part)


def place(finding: Finding) -> str:
    """Return where a finding lies: " at node N (file.py:12)", as far as it is known."""
    where = finding.where
    node = where.onnx_node or where.op or where.fx_node
    return (f" at {node}" if node else "") + (f" ({where.source})" if where.source else "")


def _slow(probe: Sequence[ProbeRow]) -> str:
    timed = [row for row in probe if row.ratio is not None]
    if not timed:
        return "not measured: no probe ran"
    worst = max(timed, key=lambda row: row.ratio or 0.0)
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in worst.shapes.items())
    return (
        f"ORT takes {min(row.ratio or 0.0 for row in timed):.2g} to {worst.ratio:.2g} times as long as torch "
        f"(P50 over {len(timed)} kept cases); worst at {shapes}: {milliseconds(worst.ort_p50_seconds)} against "
        f"{milliseconds(worst.torch_p50_seconds)}; {size(max(row.rss_bytes for row in probe))} resident"
    )


def _grades(findings: Sequence[Finding]) -> str:
    if not findings:
        return "every judged input agreed"
    counts = Counter(finding.verdict.grade for finding in findings)
    told = ", ".join(f"{counts[grade]} {grade.value}" for grade in GRADES if counts[grade])
    ratios = [
        f"{item.finding_id} {text}"
        for item in findings
        if item.verdict.grade is not Grade.BUG and (text := passing_tolerance(item.verdict.comparison))
    ]
    return told + (f"; {'; '.join(ratios[:4])}" if ratios else "")


def causes_list(causes: Sequence[Cause], new_ids: Iterable[str] = ()) -> RenderableType:
    """Return causes as two lines each: what it is, and what happens; a third names the findings that joined it."""
    fresh = frozenset(new_ids)
    parts: list[RenderableType] = []
    for cause in causes:
        finding, hits = cause.leader, cause.hits
        verdict = finding.verdict
        realism = min((item.realism for item in (finding, *cause.variants)), key=REALISMS.index)
        facts = [realism.value, f"{hits:,} hit{'s' * (hits != 1)}", _smallest(finding)]
        facts.append("" if finding.bucket.finite else "input with NaN or Inf")
        line = Text(f"{verdict.grade.value:9}", style=_STYLE[verdict.grade])
        line.append(printable(finding.finding_id), style="bold")
        line.append(" new" if finding.finding_id in fresh else "", style="bold")
        line.append("  " + ", ".join(fact for fact in facts if fact), style="dim")
        parts += [line, Padding(Text(headline_of(finding)), (0, 0, 0, 9))]
        if cause.variants:
            parts.append(Padding(Text(f"the same fault: {_variants(cause)}", style="dim"), (0, 0, 0, 9)))
    return Group(*parts)


def _variants(cause: Cause) -> str:
    told = []
    for item in cause.variants[:_MOST_VARIANTS]:
        marks = [item.verdict.output or "", "" if item.verdict.grade is Grade.BUG else item.verdict.grade.value]
        said = ", ".join(printable(mark, 40) for mark in marks if mark)
        told.append(printable(item.finding_id) + (f" ({said})" if said else ""))
    left = len(cause.variants) - _MOST_VARIANTS
    return ", ".join(told) + (f", and {left} more" if left > 0 else "")


def _smallest(finding: Finding) -> str:
    if not finding.minimized_shapes:
        return ""
    shapes = [f"{printable(name, 20)} {list(shape)}" for name, shape in finding.minimized_shapes.items()]
    return ", ".join(shapes[:3]) + (", ..." if len(shapes) > 3 else "")


def headline_of(finding: Finding) -> str:
    """Return a finding's headline with what qualifies it: not reproduced, ignored, a duplicate."""
    text = printable(finding.verdict.headline or finding.verdict.kind.value, 300)
    marks = ["did not come back in a fresh session"] if finding.reproduced is False else []
    marks += ["not yet confirmed"] if finding.reproduced is None else []
    marks += [f"same as {printable(finding.duplicate_of)}"] if finding.duplicate_of else []
    marks += ["ignored"] if finding.ignored else []
    marks += [printable(known_mark(finding))] if finding.known else []
    return text + (f" ({', '.join(marks)})" if marks else "")


def replays(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Return how to replay a finding and how to read it, by the first that has a folder."""
    for item in findings:
        if item.path:
            return [
                ("replay", f"fuzzparity replay {item.finding_id}"),
                ("or", f"python {os.path.join(item.path, 'repro.py')}"),
                ("all of it", f"fuzzparity finding show {item.finding_id}"),
            ]
    return []
