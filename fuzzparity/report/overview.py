"""Overview: what is known of a target, for a terminal: the four questions and the causes on the first screen.

The idea: the same sentences as on the page of `--html`, in the same order, so that the two never say different things;
details come after what a reader needs first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from fuzzparity.corpus.records import Recheck
from fuzzparity.corpus.telling import Knowledge
from fuzzparity.report.advice import known_by
from fuzzparity.report.causes import Cause, causes_object, gone_of, split, state_text
from fuzzparity.report.cells import duration, fields, table_of, text
from fuzzparity.report.known import known_object, rechecks_object, standings_text
from fuzzparity.report.paying import MOVE, PARENTS, best_text
from fuzzparity.report.sentences import Answer, answers, facts_of, part_of, place_text, plural, title_of
from fuzzparity.report.tables import campaigns_table, probes_table
from fuzzparity.report.tried import tried
from fuzzparity.verdict import Grade, as_plain

_STYLES = {Grade.BUG: "bold red", Grade.CONTRACT: "yellow", Grade.TIE: "cyan", Grade.INHERENT: "cyan"}
_FIRST = 8  # causes on the first screen of 40 lines, beside the four answers
_TOLD = 12  # causes told in full below it
_PROBES = 8  # probed cases: the newest


def overview(known: Knowledge) -> RenderableType:
    """Return what is known of a target: answers, causes, then how it is known, what was tried, where it ran."""
    opened, apart = split(known.view.findings, known.rechecks)
    gone = gone_of(known.rechecks)
    counts = known.view.statistics
    parts: list[RenderableType] = [
        text(title_of(known), "bold").append(
            f"  {plural(len(opened), 'open cause')} of {plural(counts.findings, 'finding')}, "
            f"{duration(counts.seconds)} of fuzzing, {counts.executions:,} executions, {counts.inputs:,} inputs",
            style="not bold",
        ),
        *map(_answer, answers(known)),
        _causes(opened[:_FIRST], gone),
        Text(f"and {len(opened) - _FIRST:,} more" if len(opened) > _FIRST else "", style="dim"),
    ]
    for cause in opened[:_TOLD]:
        parts += _told(cause)
    if known.view.known:
        parts += [standings_text(known.view.known), Text("")]
    if apart:
        parts += [Text("Known, ignored, gone, or did not come back", style="bold"), _causes(apart[:_FIRST], gone)]
    shown = tried(known)
    sizes = table_of("input", "dim", "contract", "smallest kept", "largest kept", "sizes kept")
    for row in shown.dims:
        sizes.add_row(*map(text, row))
    parts += [Text("What was tried", style="bold"), sizes, Text("")]
    paid = {
        "moves that paid": best_text(known.efforts, MOVE, _FIRST),
        "parents that paid": best_text(known.efforts, PARENTS, _FIRST),
    }
    parts += [fields(paid), Text("")] if any(paid.values()) else []
    parts += [Text("Speed and memory", style="bold"), probes_table(known.probes[-_PROBES:]), Text("")]
    facts = dict(facts_of(known.facts)) if known.facts else {}
    parts += [Text("Where it ran", style="bold"), fields({**facts, "corpus": counts.path}), Text("")]
    return Group(*parts, campaigns_table(known.view.campaigns[-_FIRST:]))


def report_object(known: Knowledge) -> dict[str, Any]:
    """Return the same as JSON data: the answers, the causes by id, and the view of the corpus."""
    return {
        **as_plain(known.view),
        "known": known_object(known.view.known),
        "rechecks": rechecks_object(known.rechecks),
        "probes": as_plain(known.probes),
        "answers": [{"question": item.question, "sentences": list(item.sentences)} for item in answers(known)],
        "causes": causes_object(known.view.findings),
    }


def _answer(answer: Answer) -> RenderableType:
    said = Text("\n").join(text(sentence) for sentence in answer.sentences)
    return Group(Text(answer.question, style="bold"), Padding(said, (0, 0, 0, 2)))


def _causes(causes: Sequence[Cause], gone: Mapping[str, Recheck]) -> RenderableType:
    table = table_of("grade", "finding", "guilty", "seen", "headline")
    for cause in causes:
        leader = cause.leader
        more = f" [{plural(len(cause.variants), 'more finding')}]" if cause.variants else ""
        state = state_text(leader, gone)
        marks = f" [{state}]" if state else ""
        table.add_row(
            text(leader.verdict.grade.value, _STYLES.get(leader.verdict.grade, "dim")),
            text(leader.finding_id, "bold"),
            text("?" if leader.verdict.blame in ("unknown", "") else leader.verdict.blame),
            text(f"{cause.hits:,}"),
            text(leader.verdict.headline or leader.verdict.kind.value).append_text(text(more + marks, "dim")),
        )
    return table if causes else Text("")


def _told(cause: Cause) -> list[RenderableType]:
    """Return how a cause is known and what to do, where that is more than its line says."""
    leader, known = cause.leader, known_by(cause.leader.verdict)
    attribution = leader.verdict.attribution
    blamed = leader.verdict.blame not in ("unknown", "none", "")
    lines: dict[str, object] = {
        "guilty": part_of(leader.verdict.blame) if blamed else "",
        "place": place_text(leader),
        "known by": known[0] if known else "",
        "until then": attribution.workaround if attribution else "",
        "same fault": ", ".join(item.finding_id for item in cause.variants[:_FIRST]),
        "note": leader.note,
        "replay": f"fuzzparity replay {leader.finding_id}" if leader.path else "",
    }
    more = any(lines[name] for name in ("place", "known by", "until then", "same fault", "note"))
    return [text(leader.finding_id, "bold"), fields(lines), Text("")] if more else []
