"""Html: all that is known of a target as one page that needs nothing else: no network, no script, no file beside it.

The idea: records become a page's words and drawings here, and the template only lays them out; it escapes whatever it
is given, and a content security policy in the page forbids the browser to load anything at all.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from fuzzparity import report
from fuzzparity.corpus.records import Recheck
from fuzzparity.corpus.telling import Knowledge
from fuzzparity.errors import InvalidUsage
from fuzzparity.report.blocks import Block, block
from fuzzparity.report.causes import Cause, gone_of, split, state_text
from fuzzparity.report.cells import duration, size_text
from fuzzparity.report.clean import printable
from fuzzparity.report.known import standing_lines
from fuzzparity.report.sentences import answers, facts_of, place_text, plural, title_of
from fuzzparity.report.tried import Tried, tried

MOST_LISTED = 500  # causes in the table: beyond, nobody reads on
MOST_PAGE_BYTES = 12 << 20  # of blocks: a browser lays this out in about a second


@dataclass(frozen=True, slots=True)
class Page:
    """Hold everything that the template lays out."""

    title: str
    summary: str
    made_at: str
    questions: tuple[tuple[str, str, tuple[str, ...]], ...]  # anchor, question, sentences
    causes: tuple[dict[str, Any], ...]
    blocks: tuple[Block, ...]
    apart: tuple[dict[str, Any], ...]  # ignored, known, lost, gone
    standings: tuple[tuple[str, str], ...]  # of the entries of known issues
    tried: Tried
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    places: tuple[tuple[str, str, str], ...]
    builds: tuple[tuple[str, ...], ...]
    campaigns: tuple[tuple[str, ...], ...]
    left_out: tuple[str, ...] = field(default=())


def html_report(known: Knowledge) -> str:
    """Return the page; its size is bounded, and what was left out stands at its end."""
    return str(_template().render(page=page_of(known), style=Markup(_style())))


def write_html(path: Path, known: Knowledge) -> Path:
    """Write the page to a temporary name beside `path`, then rename it; InvalidUsage when that cannot be."""
    text = html_report(known)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InvalidUsage(f"--html {path} cannot be written: {error.strerror}; give a file in a folder") from error
    return path


def page_of(known: Knowledge) -> Page:
    """Return what a page tells, in its order."""
    opened, apart = split(known.view.findings, known.rechecks)
    gone = gone_of(known.rechecks)
    blocks, left_out = _blocks(known, opened)
    every = len(opened) + len(apart)
    if every > MOST_LISTED:
        left_out.append(f"{every - MOST_LISTED:,} of {every:,} causes are not listed: `fuzzparity finding ls` does")
    with_block = {item.finding_id for item in blocks}
    counts = known.view.statistics
    return Page(
        title=title_of(known),
        summary=f"{plural(len(opened), 'open cause')} ({plural(counts.findings, 'finding')} in all), "
        f"{duration(counts.seconds)} of fuzzing in {plural(counts.campaigns, 'campaign')}, "
        f"{counts.executions:,} executions, {counts.inputs:,} inputs judged, {counts.pool:,} cases kept",
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        questions=tuple((f"q{n}", item.question, item.sentences) for n, item in enumerate(answers(known), 1)),
        causes=tuple(_line(cause, with_block, gone) for cause in opened[:MOST_LISTED]),
        blocks=tuple(blocks),
        apart=tuple(_line(cause, with_block, gone) for cause in apart[: max(0, MOST_LISTED - len(opened))]),
        standings=tuple(standing_lines(known.view.known)),
        tried=tried(known),
        facts=tuple((name, value) for name, value in (facts_of(known.facts) if known.facts else ()) if value),
        notes=tuple(dict.fromkeys((*known.facts.notes, *known.facts.build.notes))) if known.facts else (),
        places=tuple((item.line, f"{item.campaigns:,}", f"{item.executions:,}") for item in known.places),
        builds=tuple(
            (
                *(item.digest[:12], item.origin, str(item.opset), f"{item.nodes:,}", size_text(item.onnx_bytes)),
                *(item.computing_dtype, _minute(item.created_at)),
            )
            for item in known.view.builds[-50:]
        ),
        campaigns=tuple(
            (
                *(_minute(item.started_at), duration(item.seconds), f"{item.executions:,}", f"{item.inputs:,}"),
                *(f"{item.rejected:,}", f"{item.findings:,}", f"{item.new_findings:,}", _end(item), item.command),
            )
            for item in known.view.campaigns[-100:]
        ),
        left_out=(*left_out, *known.left_out),
    )


def _blocks(known: Knowledge, causes: list[Cause]) -> tuple[list[Block], list[str]]:
    """Return a block for each cause that was recorded, as long as the page stays small enough."""
    told: list[Block] = []
    used = 0
    for cause in causes:
        if cause.leader.finding_id not in known.recorded or used > MOST_PAGE_BYTES:
            break
        told.append(block(cause, known))
        used += told[-1].size
    missing = len(causes) - len(told)
    return told, [
        f"{missing:,} of {plural(len(causes), 'open cause')}: a line in the table, no block"
    ] if missing else []


def _line(cause: Cause, with_block: set[str], gone: Mapping[str, Recheck]) -> dict[str, Any]:
    """Return a row of the table of causes."""
    leader = cause.leader
    verdict = leader.verdict
    return {
        "finding_id": leader.finding_id,
        "is_told": leader.finding_id in with_block,
        "grade": verdict.grade.value,
        "kind": verdict.kind.value.replace("_", " "),
        "realism": leader.realism.value,
        "headline": printable(verdict.headline or verdict.kind.value, 200),
        "blame": "" if verdict.blame in ("unknown", "") else verdict.blame,
        "place": place_text(leader),
        "hits": cause.hits,
        "findings": 1 + len(cause.variants),
        "state": state_text(leader, gone),
        "note": leader.note,
    }


def _end(campaign: Any) -> str:
    if campaign.interrupted:
        return "interrupted"
    return "not ended" if campaign.exit_code is None else f"exit {campaign.exit_code}"


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@cache
def _folder() -> Path:
    return Path(report.__file__).parent / "templates"


def _style() -> str:
    return (_folder() / "report.css").read_text(encoding="utf-8")


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_folder()),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value, 4000),
    )
    environment.filters["said"] = _said
    return environment.get_template("report.html.j2")


def _said(text: str) -> Markup:
    """Return a sentence with what stands in backticks as code; escaped first, so that it is all text."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(printable(text, 4000)))))
