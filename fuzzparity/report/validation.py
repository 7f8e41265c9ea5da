"""Validation: what a whole set of real inputs came to, and how its values compare with the first seed's.

The idea: counts first, then how close to the allowed error each output comes, then the files to look at by name; the
same figures as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuzzparity.explain.dataset import QUANTILES, MetricFigures, Row, Validation
from fuzzparity.finding import Finding
from fuzzparity.generate.ranges import InputRanges, Span
from fuzzparity.report.clean import printable
from fuzzparity.report.layout import duration, pairs
from fuzzparity.report.plain import finding_object, result_object
from fuzzparity.report.records import CampaignResult
from fuzzparity.verdict import as_plain

_MOST_SKIPPED = 20
_MOST_CHANNELS = 8
_STYLES = {"bug": "bold red", "contract": "yellow", "tie": "cyan", "inherent": "cyan", "note": "dim"}


class Imported(Protocol):
    """What an import took."""

    @property
    def corpus(self) -> Path:
        """Return the database."""

    @property
    def added(self) -> int:
        """Return the number of cases new to it."""

    @property
    def known(self) -> int:
        """Return the number of cases it already held."""

    @property
    def skipped(self) -> tuple[str, ...]:
        """Return what could not be read, and why."""

    @property
    def read(self) -> int:
        """Return how many inputs were read."""

    @property
    def ranges(self) -> tuple[InputRanges, ...]:
        """Return the values of first seed and data."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what is worth knowing of the data."""

    @property
    def stopped(self) -> str:
        """Return why it ended early, empty when it did not."""


def validation_text(table: Validation) -> RenderableType:
    """Return the table of a validation set."""
    total = len(table.rows)
    stopped = f"; {table.stopped}" if table.stopped else ""
    title = f"validation set: {total:,} inputs on both sides in {duration(table.seconds)}{stopped}"
    parts: list[RenderableType] = [Text(""), Text(printable(title), style="bold"), _counts(table)]
    parts += [Text(""), _quantiles(table)]
    if figures := table.metrics():
        parts += [Text(""), _metrics(figures)]
    beyond = table.beyond
    judged = f", {table.judged:,} of them judged by evidence of their own" if beyond else ""
    share = f"{beyond:,} of {total:,} inputs ({_share(beyond, total)}){judged}"
    parts += [Text(""), pairs([("beyond the screen", share)])]
    if worst := table.worst():
        parts += [Text(""), _worst(worst, is_beyond=beyond > 0)]
    lines = [("skipped", text) for text in bounded(table.skipped, _MOST_SKIPPED)]
    lines += [("note", text) for text in table.notes]
    parts += [Text(""), pairs(lines)] if lines else []
    return Group(*parts)


def bounded(lines: Sequence[str], most: int) -> list[str]:
    """Return the first of many lines, and how many more there are."""
    more = len(lines) - most
    return [*lines[:most], *([f"and {more:,} more"] if more > 0 else [])]


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.3g} %" if total else "none"


def _counts(table: Validation) -> RenderableType:
    grid = _grid("outcome", "grade", "inputs", "share")
    for kind, grade, count in table.counts():
        grid.add_row(kind, Text(grade, style=_STYLES.get(grade, "")), f"{count:,}", _share(count, len(table.rows)))
    return grid


def _quantiles(table: Validation) -> RenderableType:
    names = ["max" if share == 1.0 else f"p{100 * share:.0f}" for share in QUANTILES]
    grid = _grid("error ratio of output", *names, "compared")
    for found in table.quantiles():
        values = [_ratio(value) for value in found.values] or ["" for _ in names]
        grid.add_row(Text(printable(found.output)), *values, f"{found.compared:,}")
    return grid


def _metrics(figures: Sequence[MetricFigures]) -> RenderableType:
    grid = _grid("metric", "wanted", "least", "mean", "most", "answered", "broken", "worst input")
    for one in figures:
        values = ["" if value is None else f"{value:.4g}" for value in (one.least, one.mean, one.most)]
        answered = f"{one.answered:,} of {one.answered + one.unanswered:,}"
        broken = Text(f"{one.broken:,}", style=_STYLES["bug"] if one.broken else "")
        grid.add_row(Text(printable(one.metric)), one.bound, *values, answered, broken, Text(printable(one.worst)))
    return grid


def _ratio(value: float) -> str:
    return f"{value:.3g}"


def _worst(rows: Sequence[Row], *, is_beyond: bool) -> RenderableType:
    grid = _grid("worst inputs" if is_beyond else "largest error ratios", "outcome", "grade", "error ratio", "what")
    grid.columns[4].overflow = "fold"
    for row in rows:
        grade = Text(row.grade, style=_STYLES.get(row.grade, ""))
        grid.add_row(
            Text(printable(row.where)), row.kind, grade, _ratio(row.error_ratio), Text(printable(row.headline, 200))
        )
    return grid


def _grid(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title)
    return table


def ranges_text(ranges: Sequence[InputRanges]) -> RenderableType:
    """Return the values of the first seed and of the data side by side, channel by channel; nothing without data."""
    shown = [item for item in ranges if any(span.low is not None for span in item.data)]
    if not shown:
        return Text("")
    grid = _grid("values of input", "channel", "first seed: min", "mean", "max", "data: min", "mean", "max")
    for item in shown:
        for index, channel in enumerate(item.channels[:_MOST_CHANNELS]):
            name = printable(item.name) if index == 0 else ""
            grid.add_row(Text(name), channel, *_span(item.first[index]), *_span(item.data[index]))
        if len(item.channels) > _MOST_CHANNELS:
            grid.add_row("", f"and {len(item.channels) - _MOST_CHANNELS} more")
    return Group(Text(""), grid)


def _span(span: Span) -> list[str]:
    return ["" if value is None else f"{value:.4g}" for value in (span.low, span.mean, span.high)]


def validation_object(table: Validation) -> dict[str, Any]:
    """Return the table as JSON data, without its rows."""
    names = ["max" if share == 1.0 else f"p{100 * share:.0f}" for share in QUANTILES]
    return {
        "inputs": len(table.rows),
        "seconds": table.seconds,
        "stopped": table.stopped,
        "outcomes": [{"kind": kind, "grade": grade or None, "inputs": n} for kind, grade, n in table.counts()],
        "beyond_screen": table.beyond,
        "judged": table.judged,
        "error_ratios": [
            {
                "output": found.output,
                "compared": found.compared,
                **dict(zip(names, map(as_plain, found.values), strict=False)),
            }
            for found in table.quantiles()
        ],
        "metrics": [as_plain(one) for one in table.metrics()],
        "worst": [row.where for row in table.worst()],
        "skipped": list(table.skipped),
        "notes": list(table.notes),
        "ranges": as_plain(table.ranges),
    }


def rows_object(table: Validation) -> list[dict[str, Any]]:
    """Return every input of a table as JSON data."""
    return [
        {
            "input": row.where,
            "kind": row.kind,
            "grade": row.grade or None,
            "error_ratio": as_plain(row.error_ratio),
            "error_ratios": as_plain(row.ratios),
            "realism": row.realism,
            "judged": row.is_judged,
            "metrics": {one.metric: as_plain(one.value) for one in row.measures},
            "finding_ids": list(row.finding_ids),
            "headline": row.headline,
        }
        for row in table.rows
    ]


def explained_table_object(result: CampaignResult, table: Validation) -> dict[str, Any]:
    """Return the object of `explain --json` for many inputs: one finding for each, and the table."""
    findings = {finding.finding_id: finding for finding in result.findings}
    rows = [_finding_of(row, findings, result.new_ids) for row in table.rows]
    return {**result_object(result), "findings": rows, "validation": validation_object(table)}


def _finding_of(row: Row, findings: dict[str, Finding], new_ids: frozenset[str]) -> dict[str, Any]:
    """Return one input in the form of a finding: what it showed itself, and what became of its finding."""
    told = {
        "kind": row.kind,
        "grade": row.grade or None,
        "realism": row.realism,
        "headline": row.headline or ("both sides refuse it" if row.kind == "rejected" else "the sides agree"),
        "error_ratio": as_plain(row.error_ratio),
        "input": row.where,
        "others": list(row.finding_ids[1:]),
    }
    finding = findings.get(row.finding_ids[0]) if row.finding_ids else None
    if finding is not None:
        return {**finding_object(finding, is_new=finding.finding_id in new_ids), **told}
    nothing: dict[str, Any] = {"finding_id": "", "new": False, "blame": "none", "where": {}, "first_seen_seconds": None}
    nothing |= {"hits": 1, "reproduced": None, "standalone": "", "minimized": None, "path": ""}
    return {**nothing, **told}


def imported_text(imported: Imported) -> RenderableType:
    """Return what an import took, what it left out, and how the data compares with the first seed."""
    counts = f"{imported.added:,} new case(s), {imported.known:,} already there"
    read = f", of {imported.read:,} inputs read" if imported.read else ""
    stopped = f"; {imported.stopped}" if imported.stopped else ""
    lines = [("imported", counts + read + stopped), ("corpus", str(imported.corpus))]
    lines += [("note", text) for text in imported.notes]
    lines += [("skipped", text) for text in bounded(imported.skipped, _MOST_SKIPPED)]
    return Group(pairs(lines), ranges_text(imported.ranges))
