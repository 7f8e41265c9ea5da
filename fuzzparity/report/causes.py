"""Causes: findings that are one fault, under one leader.

The idea: a reader counts faults, not findings. Findings are one cause when one joined the other as its duplicate, or
when the same part is known to be at fault at the same place of the same build (`is_same_cause`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fuzzparity.corpus.records import Became, Recheck
from fuzzparity.finding import Finding, Stage, is_same_cause
from fuzzparity.verdict import GRADES, PRECEDENCE, Realism

REALISMS = (Realism.NEAR, Realism.UNKNOWN, Realism.WILD)  # what real data would meet comes first


@dataclass(frozen=True, slots=True)
class Cause:
    """Hold one fault: the finding that is told, and those that show the same fault."""

    leader: Finding
    variants: tuple[Finding, ...] = ()

    @property
    def hits(self) -> int:
        """Return how often any of its findings was seen."""
        return self.leader.hits + sum(item.hits for item in self.variants)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the outputs that show it, each once, the leader's first."""
        names = [item.verdict.output for item in (self.leader, *self.variants)]
        return tuple(dict.fromkeys(name for name in names if name))


def causes_of(findings: Iterable[Finding]) -> list[Cause]:
    """Return the causes of some findings, the most telling first; chains and rings of duplicates end at a leader."""
    by_id = {item.finding_id: item for item in findings}
    joined: dict[str, list[Finding]] = {}
    for item in by_id.values():
        joined.setdefault(_root(item, by_id).finding_id, []).append(item)
    leaders: list[Finding] = []
    groups: dict[str, list[Finding]] = {}
    for root in sorted((by_id[name] for name in joined), key=_order):
        # to a leader, never to what joined it: of two bugs that one tie is like, none may hide the other
        leader = next((item for item in leaders if is_same_cause(root, item)), root)
        if leader is root:
            leaders.append(root)
        groups.setdefault(leader.finding_id, []).extend(joined[root.finding_id])
    found = []
    for leader in leaders:
        others = [item for item in groups[leader.finding_id] if item is not leader]
        found.append(Cause(leader, tuple(sorted(others, key=_order))))
    return found


def causes_object(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the causes as JSON data: the finding that leads each, and the ids of those that show the same fault."""
    return [
        {"finding_id": cause.leader.finding_id, "variants": [item.finding_id for item in cause.variants]}
        for cause in causes_of(findings)
    ]


def is_open(finding: Finding, gone: Mapping[str, Recheck] = MappingProxyType({})) -> bool:
    """Tell whether a finding asks for something: not ignored or known, it came back, and did not go with a build."""
    is_lost = finding.stage is Stage.LOST or finding.reproduced is False
    return not (finding.is_silent or is_lost or finding.finding_id in gone)


def gone_of(rechecks: Iterable[Recheck]) -> dict[str, Recheck]:
    """Return the findings that a later build no longer shows, by id; the last time that could tell counts."""
    last = {item.finding_id: item for item in rechecks if item.state is not Became.UNKNOWN}
    return {name: item for name, item in last.items() if item.state is Became.GONE}


def split(findings: Iterable[Finding], rechecks: Iterable[Recheck] = ()) -> tuple[list[Cause], list[Cause]]:
    """Return the causes that are open, and those set apart: ignored, known, lost, or gone on a later build."""
    gone = gone_of(rechecks)
    causes = causes_of(findings)
    opened = [cause for cause in causes if is_open(cause.leader, gone)]
    return opened, [cause for cause in causes if not is_open(cause.leader, gone)]


def state_text(finding: Finding, gone: Mapping[str, Recheck] = MappingProxyType({})) -> str:
    """Return what sets a finding apart, or what is still to be done; empty when it is plainly open."""
    if finding.known is not None:
        return f"{'said to be fixed' if finding.known.is_fixed else 'known'}: {finding.known.name}"
    if finding.ignored:
        return "ignored"
    if finding.finding_id in gone:
        return f"gone on build {gone[finding.finding_id].build[:12]}"
    if finding.reproduced is None:
        return "not confirmed yet"
    return "" if is_open(finding) else "did not come back"


def _root(item: Finding, by_id: dict[str, Finding]) -> Finding:
    seen = {item.finding_id}
    while item.duplicate_of in by_id and item.duplicate_of not in seen:
        item = by_id[item.duplicate_of]
        seen.add(item.finding_id)
    return min((by_id[name] for name in seen), key=_order) if item.duplicate_of in seen else item


def _order(item: Finding) -> tuple[int, int, int, int, str]:
    verdict = item.verdict
    kind = (GRADES.index(verdict.grade), REALISMS.index(item.realism), PRECEDENCE.index(verdict.kind))
    return (int(not is_open(item)), *kind, item.finding_id)
