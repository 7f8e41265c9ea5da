"""Other arms: how often cases decided otherwise than the exported sample, by line, and what came of it.

The idea: an arm that the export did not keep and that agrees all the same answers the doubt about it; one that no case
took leaves it open.
"""

from __future__ import annotations

from fuzzparity.decisions import outcomes
from fuzzparity.execution import Execution
from fuzzparity.explain.arms import TwinArms

_MOST_LINES = 256


class OtherArms:
    """Count for one worker. `counts`: line -> cases that agreed, and that differed from where on."""

    def __init__(self, arms: TwinArms) -> None:
        """Bind to the answers of a twin, which is asked for its sample when a case decides anything at all."""
        self.counts: dict[str, tuple[int, int]] = {}
        self._arms = arms

    def add(self, expected: Execution, actual: Execution, *, is_suspicious: bool) -> None:
        """Count one case that both sides answered."""
        if not expected.decisions or not (expected.is_ok and actual.is_ok):
            return
        sample = outcomes(self._arms.sample())
        parted = (d.source for d in expected.decisions if d.source and sample.get(d.key, d.outcome) != d.outcome)
        lines = list(dict.fromkeys(parted))
        for line in lines[:1] if is_suspicious else lines:  # what differs is put down to where the path parts first
            if line in self.counts or len(self.counts) < _MOST_LINES:
                agreed, differed = self.counts.get(line, (0, 0))
                self.counts[line] = (agreed + (not is_suspicious), differed + is_suspicious)

    def taken(self) -> dict[str, tuple[int, int]]:
        """Return the counts since the last time."""
        counts, self.counts = self.counts, {}
        return counts
