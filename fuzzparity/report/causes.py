"""Causes: findings that are one fault, under one leader.

The idea: a reader counts faults, not findings. Findings are one cause when one joined the other as its duplicate, or
when the same part is known to be at fault at the same place of the same build; a guess never joins two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fuzzparity.finding import Finding, Stage
from fuzzparity.verdict import GRADES, PRECEDENCE, Realism

_REALISMS = (Realism.NEAR, Realism.UNKNOWN, Realism.WILD)  # what real data would meet comes first


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
    groups: dict[object, list[Finding]] = {}
    for item in by_id.values():
        root = _root(item, by_id)
        groups.setdefault(_place_of(root) or root.finding_id, []).append(item)
    found = []
    for items in groups.values():
        items.sort(key=lambda item: (item.duplicate_of in by_id, *_order(item)))
        found.append(Cause(items[0], tuple(items[1:])))
    return sorted(found, key=lambda cause: _order(cause.leader))


def is_open(finding: Finding) -> bool:
    """Tell whether a finding still asks for something: not ignored or known, and it did not fail to come back."""
    return not finding.is_silent and finding.stage is not Stage.LOST and finding.reproduced is not False


def where_known(finding: Finding) -> tuple[str, str, str]:
    """Return operator, ONNX node and source of a finding, as far as place or attribution know them."""
    known, where = finding.verdict.attribution, finding.where
    return (
        where.op or (known.op if known else ""),
        where.onnx_node or (known.onnx_node if known else ""),
        where.source,
    )


def _root(item: Finding, by_id: dict[str, Finding]) -> Finding:
    seen = {item.finding_id}
    while item.duplicate_of in by_id and item.duplicate_of not in seen:
        item = by_id[item.duplicate_of]
        seen.add(item.finding_id)
    return min((by_id[name] for name in seen), key=_order) if item.duplicate_of in seen else item


def _place_of(item: Finding) -> tuple[object, ...] | None:
    """Return what makes two leaders one cause: part, place, build and grade, all of them known."""
    op, node, source = where_known(item)
    if item.verdict.blame in ("unknown", "none", "") or not (node or source):
        return None
    return (item.bucket.build, item.verdict.blame, item.verdict.grade, op, node, source)


def _order(item: Finding) -> tuple[int, int, int, int, str]:
    verdict = item.verdict
    kind = (GRADES.index(verdict.grade), _REALISMS.index(item.realism), PRECEDENCE.index(verdict.kind))
    return (int(not is_open(item)), *kind, item.finding_id)
