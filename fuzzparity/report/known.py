"""Known issues in words: which findings are expected, which entries are at odds with what shows, what to paste.

The idea: what is as expected takes one line; what contradicts the ledger stands out, with what to change in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.text import Text

from fuzzparity.corpus.records import Became, Recheck
from fuzzparity.finding import SIDED, Finding
from fuzzparity.known import Standing, Told
from fuzzparity.report.clean import printable
from fuzzparity.verdict import as_plain

_MOST_NAMED = 4
_STATES = {Became.STILL_THERE: "is still there", Became.GONE: "is gone", Became.OTHERWISE: "differs otherwise now"}


def known_mark(finding: Finding) -> str:
    """Return how a finding that falls under an entry is marked, "" for any other."""
    if finding.known is None:
        return ""
    return f"SAID TO BE FIXED: {finding.known.name}" if finding.known.is_fixed else f"known: {finding.known.name}"


def known_text(finding: Finding) -> str:
    """Return all that the ledger says of a finding, "" where it says nothing."""
    if finding.known is None:
        return ""
    link = f" ({finding.known.link})" if finding.known.link else ""
    fixed = ", SAID TO BE FIXED" if finding.known.is_fixed else ""
    return f"{finding.known.name}{link}{fixed}: {finding.known.reason}"


def standing_lines(told: Sequence[Told]) -> list[tuple[str, str]]:
    """Return what became of the entries of a ledger, as name and text; what needs a hand comes first."""
    lines = [(_NAMES[item.standing], _SAYS[item.standing](item)) for item in sorted(told, key=_rank)]
    shows = [item for item in told if item.standing is Standing.SHOWS]
    if shows:
        count = sum(len(item.finding_ids) for item in shows)
        lines = [line for line in lines if line[0] != "known"]
        lines.append(("known", f"{count} known: {'; '.join(_SAYS[Standing.SHOWS](item) for item in shows)}"))
    return lines


def standings_text(told: Sequence[Told]) -> Text:
    """Return the same as a text of its own, loud where an entry is contradicted."""
    text = Text()
    for name, line in standing_lines(told):
        style = "bold red" if name == _NAMES[Standing.SHOWS_AGAIN] else "yellow" if name != "known" else "dim"
        text.append(f"{name}: {printable(line)}\n", style=style)
    text.rstrip()
    return text


def _rank(item: Told) -> int:
    return [Standing.SHOWS_AGAIN, Standing.GONE, Standing.EXPIRED, Standing.SHOWS].index(item.standing)


def _name(item: Told) -> str:
    return f"{item.issue.name} ({item.issue.link})" if item.issue.link else item.issue.name


def _ids(item: Told) -> str:
    more = len(item.finding_ids) - _MOST_NAMED
    return ", ".join(item.finding_ids[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _again(item: Told) -> str:
    return f"{_name(item)} is said to be fixed, and shows again: {_ids(item)}"


def _gone(item: Told) -> str:
    return (
        f'{item.issue.name} no longer shows ({_ids(item)}): remove the entry or set expected = "fixed" '
        f"in {item.issue.file}"
    )


def _expired(item: Told) -> str:
    held = f"; it was about {_ids(item)}" if item.finding_ids else ""
    return f"{item.issue.name} expired on {item.issue.expires} and no longer holds{held} ({item.issue.file})"


_NAMES = {
    Standing.SHOWS_AGAIN: "SHOWS AGAIN",
    Standing.GONE: "known, gone",
    Standing.EXPIRED: "expired",
    Standing.SHOWS: "known",
}
_SAYS = {Standing.SHOWS_AGAIN: _again, Standing.GONE: _gone, Standing.EXPIRED: _expired, Standing.SHOWS: _name}


def known_object(told: Sequence[Told]) -> list[dict[str, Any]]:
    """Return what became of the entries as JSON data."""
    return [
        {
            "name": item.issue.name,
            "reason": item.issue.reason,
            "link": item.issue.link,
            "expected": "fixed" if item.issue.is_fixed else "open",
            "expires": item.issue.expires.isoformat() if item.issue.expires else None,
            "standing": item.standing.value,
            "findings": list(item.finding_ids),
        }
        for item in told
    ]


def recheck_lines(pairs: Iterable[tuple[Finding, Recheck]], left: int = 0) -> list[str]:
    """Return a line for each finding of an earlier build that was run again on this one."""
    lines = [_recheck_line(finding, became) for finding, became in pairs]
    if left:
        lines.append(f"{left} more findings of earlier builds were not run again: no time")
    return lines


def _recheck_line(finding: Finding, became: Recheck) -> str:
    build = f"{finding.finding_id} (of build {finding.bucket.build[:12]})"
    if became.state is Became.UNKNOWN:
        return f"{build} could not be run on this build: {became.said}"
    as_what = f" as {became.finding_there}" if became.finding_there else ""
    return f"{build} {_STATES[became.state]}{as_what}: {became.said}"


def rechecks_text(rechecks: Sequence[Recheck]) -> str:
    """Return what became of one finding on later builds, in one line, the last first."""
    told = [
        f"{'not judged' if item.state is Became.UNKNOWN else item.state.value} on build {item.build[:12]}"
        + (f" ({item.at[:10]})" if item.at else "")
        + (f", as {item.finding_there}" if item.finding_there else "")
        for item in reversed(rechecks)
    ]
    return "; ".join(told[:_MOST_NAMED])


def rechecks_object(rechecks: Sequence[Recheck]) -> list[dict[str, Any]]:
    """Return what became of findings on later builds as JSON data."""
    return [as_plain(item) for item in rechecks]


def entry_to_paste(finding: Finding) -> str:
    """Return an entry for known_issues.toml that holds for a finding and its likes on other builds."""
    verdict = finding.verdict
    lines = [
        "[[issue]]",
        f"name = {_quoted(finding.finding_id)}",
        'reason = "why it is as it is, and who waits for what"',
    ]
    lines += ['link = "https://..."', f"kind = {_quoted(verdict.kind.value)}"]
    lines += [f"output = {_quoted(verdict.output)}"] if verdict.output else []
    lines += [f"side = {_quoted(verdict.side)}"] if verdict.side and verdict.kind in SIDED else []
    lines += [f"blame = {_quoted(verdict.blame)}"] if verdict.blame not in ("", "unknown", "none") else []
    lines += [f"op = {_quoted(finding.where.op)}"] if finding.where.op else []
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Return a text as TOML writes it: as JSON does, but for DEL, which TOML wants spelled."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
