"""Known: the ledger of issues that a user knows of, a text file beside the target.

The idea: an entry names findings by what stays the same from build to build (kind, output, blame, operator) and never
by magnitudes; all that it names must hold, the first entry that holds is the one, and an expired entry holds for none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any

from fuzzparity.errors import InvalidUsage
from fuzzparity.finding import Finding, Known
from fuzzparity.verdict import Grade, Kind, Realism

FILE = "known_issues.toml"
MATCHERS = ("kind", "grade", "output", "blame", "op", "side", "build", "finding", "headline", "realism")
_KEYS = ("name", "reason", "link", "expected", "expires", *MATCHERS)
_CLOSED: Mapping[str, Iterable[str]] = {"kind": Kind, "grade": Grade, "realism": Realism, "expected": ("open", "fixed")}
_MOST_BYTES = 1 << 20  # an entry of ten lines has some 400 bytes: room for 2,500 of them
_LEAST_DIGITS = 8  # of a build's digest, as short as it is shown anywhere


class Standing(StrEnum):
    """Name what became of an entry."""

    SHOWS = "shows"  # expected, counted apart
    SHOWS_AGAIN = "shows again"  # although it is said to be fixed
    GONE = "no longer shows"  # it had the chance
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Issue:
    """Hold one entry; `matcher` has at least one of `MATCHERS`, and all that it has must hold."""

    name: str
    reason: str
    matcher: Mapping[str, str]
    link: str = ""
    is_fixed: bool = False
    expires: date | None = None
    file: str = ""

    def matches(self, finding: Finding) -> bool:
        """Tell whether everything that the entry names holds for a finding."""
        return all(_HOLDS[key](wanted, finding) for key, wanted in self.matcher.items())

    def has_expired(self, today: date) -> bool:
        """Tell whether the last day on which the entry holds is over."""
        return self.expires is not None and today > self.expires

    @property
    def known(self) -> Known:
        """Return what findings that fall under the entry carry."""
        return Known(self.name, self.reason, self.link, self.is_fixed)


@dataclass(frozen=True, slots=True)
class Told:
    """Say what became of one entry, and by which findings; of an expired one, those that it would have held for."""

    issue: Issue
    standing: Standing
    finding_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger:
    """Hold the entries of all files, in their order."""

    issues: tuple[Issue, ...] = ()
    today: date = field(default_factory=date.today)

    def issue_of(self, finding: Finding) -> Issue | None:
        """Return the first entry that holds for a finding and has not expired."""
        live = (issue for issue in self.issues if not issue.has_expired(self.today))
        return next((issue for issue in live if issue.matches(finding)), None)

    def marked(self, finding: Finding) -> Finding:
        """Return a finding with the entry that it falls under."""
        issue = self.issue_of(finding)
        known = issue.known if issue is not None else None
        return finding if finding.known == known else replace(finding, known=known)

    def standings(self, present: Sequence[Finding], gone: Sequence[Finding] = ()) -> list[Told]:
        """Return what became of the entries that there is something to say of.

        `present` show, or were not looked at again since they did; `gone` had the chance and did not show.
        """
        by_name: dict[str, list[str]] = {}
        for finding in present:
            if (issue := self.issue_of(finding)) is not None:
                by_name.setdefault(issue.name, []).append(finding.finding_id)
        told = []
        for issue in self.issues:
            ids = tuple(dict.fromkeys(by_name.get(issue.name, ())))
            if issue.has_expired(self.today):
                held = (f.finding_id for f in present if issue.matches(f))
                told.append(Told(issue, Standing.EXPIRED, tuple(dict.fromkeys(held))))
            elif ids:
                told.append(Told(issue, Standing.SHOWS_AGAIN if issue.is_fixed else Standing.SHOWS, ids))
            elif not issue.is_fixed and (lost := [f.finding_id for f in gone if self.issue_of(f) is issue]):
                told.append(Told(issue, Standing.GONE, tuple(dict.fromkeys(lost))))
        return told


_STRONGEST = (Standing.SHOWS_AGAIN, Standing.SHOWS, Standing.GONE, Standing.EXPIRED)  # what one build says first


def together(told: Iterable[Told]) -> tuple[Told, ...]:
    """Return what became of the entries on several builds or targets: what shows on one of them shows."""
    by_entry: dict[tuple[str, str], Told] = {}
    for item in told:
        key = (item.issue.file, item.issue.name)
        other = by_entry.get(key, item)
        first, second = sorted((other, item), key=lambda one: _STRONGEST.index(one.standing))
        ids = first.finding_ids + (second.finding_ids if first.standing is second.standing else ())
        by_entry[key] = replace(first, finding_ids=tuple(dict.fromkeys(ids)))
    return tuple(by_entry.values())


def read_ledger(folders: Iterable[str | Path] = (), files: Sequence[str | Path] = ()) -> Ledger:
    """Read the ledger beside a target, in the first of `folders` that has one, and further files that were named.

    InvalidUsage names file, entry and key, what was given and what was wanted.
    """
    beside = next((path for folder in folders if str(folder) and (path := Path(folder) / FILE).is_file()), None)
    paths = {os.path.realpath(path): path for path in (*([beside] if beside else []), *map(Path, files))}
    issues = tuple(issue for path in paths.values() for issue in parse(_text(path), str(path)))
    first: dict[str, Issue] = {}
    for issue in issues:
        if (other := first.setdefault(issue.name, issue)) is not issue:
            where = f"{issue.file} and {other.file}" if issue.file != other.file else issue.file
            raise InvalidUsage(f"{where}: two entries are named {issue.name!r}; give each a name of its own")
    return Ledger(issues)


def parse(text: str, file: str) -> list[Issue]:
    """Return the entries of a ledger's text; `file` is what errors call it."""
    import tomllib

    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidUsage(f"{file} is no TOML: {error}") from error
    entries = content.pop("issue", [])
    if content:
        names = ", ".join(map(repr, content))
        raise InvalidUsage(f"{file}: {names} stands outside of any entry; entries begin with [[issue]]")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidUsage(f"{file}: 'issue' is no list of entries; each entry begins with [[issue]]")
    return [_issue(entry, file, number) for number, entry in enumerate(entries, 1)]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidUsage(
            f"known issues {path} cannot be read: {error.strerror}; give a file such as {FILE}"
        ) from error
    if len(data) > _MOST_BYTES:
        raise InvalidUsage(f"known issues {path} has over {_MOST_BYTES:,} bytes, which is no ledger")
    try:
        return data.decode("utf-8-sig")  # some editors put a byte order mark in front
    except UnicodeDecodeError as error:
        raise InvalidUsage(f"known issues {path} is no UTF-8 text ({error.reason}, byte {error.start})") from error


def _issue(entry: dict[str, Any], file: str, number: int) -> Issue:
    named = f" ({entry['name']!r})" if isinstance(entry.get("name"), str) else ""
    place = f"{file}, entry {number}{named}"
    if unknown := [key for key in entry if key not in _KEYS]:
        raise InvalidUsage(f"{place}: no key {', '.join(map(repr, unknown))}; valid keys: {', '.join(_KEYS)}")
    for key, value in entry.items():
        _check(place, key, value)
    for key in ("name", "reason"):
        if key not in entry:
            raise InvalidUsage(f"{place}: the key {key!r} is missing; an entry has a name and a reason")
    matcher = {key: entry[key] for key in MATCHERS if key in entry}
    if not matcher:
        raise InvalidUsage(
            f"{place}: it says nothing of the findings that it is about; give any of {', '.join(MATCHERS)}"
        )
    is_fixed, expires = entry.get("expected") == "fixed", entry.get("expires")
    return Issue(entry["name"], entry["reason"], matcher, entry.get("link", ""), is_fixed, expires, file)


def _check(place: str, key: str, value: Any) -> None:
    """Refuse a value that a key cannot have."""
    if key == "expires":
        if type(value) is not date:
            raise InvalidUsage(
                f"{place}: {key!r} is {value!r}; a date was wanted, without quotes: expires = 2027-03-31"
            )
        return
    if not isinstance(value, str) or not value.strip():
        raise InvalidUsage(f"{place}: {key!r} is {value!r}; a text that is not empty was wanted")
    if key in _CLOSED and value not in set(_CLOSED[key]):
        raise InvalidUsage(f"{place}: {key!r} is {value!r}; wanted one of {', '.join(_CLOSED[key])}")
    if key == "build" and len(value) < _LEAST_DIGITS:
        raise InvalidUsage(f"{place}: {key!r} is {value!r}; at least {_LEAST_DIGITS} digits of its digest were wanted")


def _fits(wanted: str, found: str) -> bool:
    """Tell whether a text is the wanted one, where `*` stands for anything."""
    first, *rest = wanted.split("*")
    if not rest:
        return found == wanted
    return found.startswith(first) and _has_in_order(rest, found, len(first), is_to_end=True)


def _has(wanted: str, found: str) -> bool:
    """Tell whether the parts of a text, between its `*`, stand in another one in their order."""
    return _has_in_order(wanted.split("*"), found, 0, is_to_end=False)


def _has_in_order(parts: Sequence[str], found: str, at: int, *, is_to_end: bool) -> bool:
    for part in parts[:-1] if is_to_end else parts:
        at = found.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return not is_to_end or (found.endswith(parts[-1]) and len(found) - len(parts[-1]) >= at)


def _begins(wanted: str, found: str) -> bool:
    """Tell whether a text begins with the words of another: "kernel" and "kernel:Resize", but not "kern"."""
    if "*" in wanted:
        return _fits(wanted, found)
    rest = found[len(wanted) :]
    return found.startswith(wanted) and not (rest[:1].isalnum() or rest[:1] == "_")


_HOLDS: Mapping[str, Callable[[str, Finding], bool]] = {
    "kind": lambda wanted, finding: finding.verdict.kind == wanted,
    "grade": lambda wanted, finding: finding.verdict.grade == wanted,
    "realism": lambda wanted, finding: finding.realism == wanted,
    "output": lambda wanted, finding: _fits(wanted, finding.verdict.output or ""),
    "blame": lambda wanted, finding: _begins(wanted, finding.verdict.blame),
    "op": lambda wanted, finding: _fits(wanted, _op(finding)),
    "side": lambda wanted, finding: _begins(wanted, finding.verdict.side),
    "build": lambda wanted, finding: finding.bucket.build.startswith(wanted),
    "finding": lambda wanted, finding: _fits(wanted, finding.finding_id),
    "headline": lambda wanted, finding: _has(wanted, finding.verdict.headline),
}


def _op(finding: Finding) -> str:
    attribution = finding.verdict.attribution
    return finding.where.op or (attribution.op if attribution is not None else "")
