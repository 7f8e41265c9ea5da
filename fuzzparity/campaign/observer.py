"""Observer: whoever is told what a campaign does; the loop prints nothing."""

from __future__ import annotations

from typing import Protocol

from fuzzparity.campaign.options import Places
from fuzzparity.contract import TargetFacts
from fuzzparity.finding import Finding
from fuzzparity.report.records import CampaignStatus


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
