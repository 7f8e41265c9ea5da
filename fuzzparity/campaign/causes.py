"""Causes: one line per fault in a campaign's findings.

The idea: what has been blamed joins the finding that leads its cause, so that the faults are counted and not the
outputs, patterns and grades in which they show. The one that was met first leads, but a bug never stands under what is
none, nor a fault on finite inputs under one that needs NaN or infinity.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuzzparity.corpus.database import Corpus
from fuzzparity.finding import Finding, Stage, is_same_cause
from fuzzparity.verdict import GRADES, Grade


def join(corpus: Corpus, finding: Finding) -> list[str]:
    """Put a blamed finding and those of its cause under one leader; return the ids of those that this changed."""
    here = [item for item in corpus.findings() if item.bucket.build == finding.bucket.build]
    finding = next(item for item in here if item.finding_id == finding.finding_id)
    leaders = [item for item in here if _leads(item) and item.finding_id != finding.finding_id]
    like = [item for item in leaders if is_same_cause(finding, item)]
    if not like:
        return []
    order = [item.finding_id for item in here]
    leader = min((finding, *like), key=lambda item: _rank(item, order))
    # two bugs that one tie is like stay two: it joins the first of them
    lesser = [item for item in like if _is_lesser(item, finding)]
    joining = like if leader is finding else [finding, *lesser]
    joining = [item for item in joining if item.duplicate_of != leader.finding_id]
    if not joining:
        return []
    corpus.set_duplicates([item.finding_id for item in joining], leader.finding_id)
    return [leader.finding_id, *(item.finding_id for item in joining)]


def _leads(finding: Finding) -> bool:
    return not finding.duplicate_of and finding.stage is Stage.MINIMIZED and finding.reproduced is not False


def _is_lesser(finding: Finding, other: Finding) -> bool:
    return finding.verdict.grade is not Grade.BUG and other.verdict.grade is Grade.BUG


def _rank(finding: Finding, order: Sequence[str]) -> tuple[int, bool, int]:
    return GRADES.index(finding.verdict.grade), not finding.bucket.finite, order.index(finding.finding_id)
