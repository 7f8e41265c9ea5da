"""Status: what a campaign shows of itself while it runs, and what it is at its end.

The idea: plain records between the loop and whoever shows them. The loop prints nothing; an `Observer` is told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fuzzparity.campaign.options import Places
from fuzzparity.contract import TargetFacts
from fuzzparity.finding import Finding


@dataclass(frozen=True, slots=True)
class CampaignStatus:
    """Hold what is worth seeing at one moment. Seconds are fuzzing time."""

    stage: str  # "loading", "exporting", "seeds", "fuzzing", "finishing"
    seconds: float = 0.0
    limit_seconds: float | None = None
    executions: int = 0
    limit_executions: int | None = None
    inputs: int = 0
    rejected: int = 0
    executions_per_second: float = 0.0
    inputs_per_second: float = 0.0
    corpus_size: int = 0
    workers: int = 0
    deaths: int = 0
    pending: int = 0  # suspects waiting for confirmation or minimizing
    findings: dict[tuple[str, str], int] = field(default_factory=dict)  # (kind, grade) -> distinct findings
    since_new_seconds: float | None = None
    rss_bytes: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """Hold what a campaign ended with; the `--json` object and the summary are made of it."""

    campaign_id: str
    facts: TargetFacts
    places: Places
    seconds: float
    setup_seconds: float
    executions: int
    inputs: int
    rejected: int
    corpus_size: int
    findings: tuple[Finding, ...]
    new_ids: frozenset[str]
    exit_code: int
    interrupted_by: int | None = None
    notes: tuple[str, ...] = ()
    probe: tuple[object, ...] = ()


class Observer(Protocol):
    """Be told what a campaign does; every method returns at once."""

    def status(self, status: CampaignStatus) -> None:
        """Take the state of the moment; called a few times a second."""

    def started(self, facts: TargetFacts, places: Places, notes: tuple[str, ...]) -> None:
        """Take what is under test, once it is built."""

    def finding(self, finding: Finding, *, is_new: bool) -> None:
        """Take a finding whenever its stage changes."""

    def note(self, text: str) -> None:
        """Take one line worth telling."""
