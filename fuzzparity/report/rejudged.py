"""Rejudged: stored findings under another policy, for reading and as JSON.

The idea: before and after stand side by side, and what a policy cannot change says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from fuzzparity.corpus.records import Payload
from fuzzparity.finding import Finding
from fuzzparity.report.cells import table_of, text
from fuzzparity.report.explanation import explanation
from fuzzparity.report.known import known_mark
from fuzzparity.report.layout import pairs
from fuzzparity.report.needed import Needed
from fuzzparity.report.plain import SCHEMA, finding_object
from fuzzparity.target import Tolerance
from fuzzparity.verdict import Judgement, Verdict, as_plain


class Rejudged(Protocol):
    """One stored finding under another policy."""

    @property
    def payload(self) -> Payload:
        """Return everything that is stored of it."""

    @property
    def finding(self) -> Finding:
        """Return the finding as it is stored."""

    @property
    def judged(self) -> str:
        """Return on which of its cases it was judged."""

    @property
    def stays(self) -> str:
        """Return why its verdict is the recorded one, "" when it is not."""

    @property
    def judgement(self) -> Judgement | None:
        """Return the judgement of all outputs under the policy."""

    @property
    def verdict(self) -> Verdict | None:
        """Return that of its own output, None where that agrees."""

    @property
    def needed(self) -> Needed | None:
        """Return the smallest tolerances under which it would agree."""

    @property
    def agrees(self) -> bool:
        """Tell whether it agrees under the policy."""

    @property
    def is_bug(self) -> bool:
        """Tell whether a bug is left that is told."""


def rejudged_text(
    found: Sequence[Rejudged], policies: Mapping[str, Tolerance | str], path: Path, *, is_one: bool
) -> RenderableType:
    """Return the findings before and after; of one that was named, everything."""
    if not found:
        return Text("no findings")
    told = [pairs([("policy", _spelled(policies)), ("corpus", str(path))]), Text("")]
    if is_one and (one := found[0]).judgement is not None:
        told.append(_one(one, one.judgement))
    told.append(_table(found))
    agreeing, staying = sum(item.agrees for item in found), sum(bool(item.stays) for item in found)
    bugs = sum(item.is_bug for item in found)
    counts = f"{agreeing} of {len(found)} agree under the policy, {staying} stay as they were, {bugs} bug(s) left"
    judged = [("judged", one) for one in dict.fromkeys(item.judged for item in found if not item.stays)]
    return Group(*told, Text(""), Text(counts, style="bold"), pairs(judged))


def _one(item: Rejudged, judgement: Judgement) -> RenderableType:
    payload, facts = item.payload, item.payload.facts
    outputs = facts.outputs if facts is not None else ()
    name = f"{item.finding.finding_id} under the policy"
    return explanation(
        name, payload.case, judgement, outputs, executed=outputs, expected=payload.expected, actual=payload.actual
    )


def _table(found: Sequence[Rejudged]) -> RenderableType:
    table = table_of("finding", "recorded", "under the policy", "ratio", "headline")
    for item in found:
        recorded = item.finding.verdict
        mark = known_mark(item.finding) or ("ignored" if item.finding.ignored else "")
        headline = text(recorded.headline)
        for more in (item.needed.text if item.needed is not None else "", mark):
            headline.append_text(text(f" [{more}]" if more else "", "dim"))
        after = "stays: " + item.stays if item.stays else "agrees" if item.verdict is None else _named(item.verdict)
        style = "dim" if item.stays else "green" if item.agrees else "bold red" if item.is_bug else ""
        table.add_row(
            text(item.finding.finding_id, "bold"),
            text(_named(recorded)),
            text(after, style),
            text(_ratio(item)),
            headline,
        )
    return table


def _named(verdict: Verdict) -> str:
    return f"{verdict.kind.value}, {verdict.grade.value}"


def _ratio(item: Rejudged) -> str:
    found = _error_ratio(item)
    return "" if found is None else f"{found:.3g}"


def _error_ratio(item: Rejudged) -> float | None:
    """Return the error ratio of a finding's output under the policy, of one that agrees as well."""
    facts = item.payload.facts
    if item.judgement is None or facts is None:
        return None
    named = dict(zip(facts.outputs, item.judgement.comparisons, strict=False))
    comparison = named.get(item.finding.verdict.output or "")
    return comparison.error_ratio if comparison is not None else None


def _spelled(policies: Mapping[str, Tolerance | str]) -> str:
    return ", ".join(f"{'every output' if key == '*' else key}: {_policy(value)}" for key, value in policies.items())


def _policy(value: Tolerance | str) -> str:
    return value if isinstance(value, str) else f"rtol {value.rtol:g}, atol {value.atol:g}"


def rejudged_object(
    found: Sequence[Rejudged], policies: Mapping[str, Tolerance | str], path: Path, exit_code: int
) -> dict[str, Any]:
    """Return the same as JSON data."""
    return {
        "schema": SCHEMA,
        "corpus": str(path),
        "policies": as_plain(dict(policies)),
        "findings": [_object(item) for item in found],
        "exit_code": exit_code,
    }


def _object(item: Rejudged) -> dict[str, Any]:
    told = item.finding.verdict if item.stays else item.verdict
    under = {
        "agrees": item.agrees,
        "kind": told.kind.value if told is not None else "agree",
        "grade": told.grade.value if told is not None else None,
        "error_ratio": as_plain(_error_ratio(item)),
        "stays": item.stays,
        "judged": item.judged,
    }
    least = {"agrees_from": as_plain(item.needed), "under_policy": under}
    return finding_object(item.finding, is_new=False) | least
