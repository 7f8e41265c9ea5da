"""Live: show a campaign while it runs, on a terminal or in a log.

The idea: on a terminal a few lines are redrawn in place; anywhere else one plain line every few seconds, so that a log
of days stays readable. Whatever else is said goes above.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol

import rich.live
from rich.console import Console, RenderableType
from rich.text import Text

from fuzzparity.contract import TargetFacts
from fuzzparity.finding import Finding, Stage
from fuzzparity.report.clean import printable
from fuzzparity.report.records import CampaignStatus
from fuzzparity.report.text import finding_line, start_block, status_line, status_panel

LINE_SECONDS = 5.0
_LOG_COLUMNS = 140


def console(*, to_stderr: bool = False) -> Console:
    """Return a console for reports: no guessing at colours of values, and a log is not cut at eighty columns."""
    found = Console(file=sys.stderr if to_stderr else sys.stdout, highlight=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = _LOG_COLUMNS
    return found


class Paths(Protocol):
    """Name the places a campaign writes to."""

    @property
    def corpus(self) -> Path:
        """Return the database's path."""

    @property
    def crashes(self) -> Path:
        """Return the folder of reproducers."""


class Live:
    """Be told what a campaign does and show it; use as a context manager."""

    def __init__(
        self,
        *,
        to_stderr: bool = False,
        on: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = on or console(to_stderr=to_stderr)
        self._clock = clock
        self._last_line = float("-inf")
        self._last_stage = ""
        self._live: rich.live.Live | None = None
        self._told: set[tuple[str, Stage]] = set()

    def __enter__(self) -> Live:
        """Begin to draw where there is a terminal."""
        if self._console.is_terminal:
            self._live = rich.live.Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what is redrawn; what was said stays."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def status(self, status: CampaignStatus) -> None:
        """Show the state of the moment: redrawn, or as a line when the stage changes and every few seconds."""
        if self._live is not None:
            self._live.update(status_panel(status), refresh=True)
            return
        now = self._clock()
        stage = status.stage.partition(": ")[0]  # what stands behind it changes all the time
        if stage != self._last_stage or now - self._last_line >= LINE_SECONDS:
            self._last_stage, self._last_line = stage, now
            self.print(Text(status_line(status)))

    def started(self, facts: TargetFacts, places: Paths, notes: tuple[str, ...]) -> None:
        """Show what is under test, once it is built."""
        self.print(start_block(facts, corpus=places.corpus, crashes=places.crashes, notes=notes))

    def finding(self, finding: Finding, *, is_new: bool) -> None:
        """Show a finding when it is confirmed (or did not come back) and when it is minimized, once each."""
        if finding.stage is Stage.SUSPECTED or (finding.finding_id, finding.stage) in self._told:
            return
        self._told.add((finding.finding_id, finding.stage))
        self.print(finding_line(finding, is_new=is_new))

    def note(self, text: str) -> None:
        """Show one line worth telling."""
        self.print(Text(printable(text), style="dim"))

    def print(self, what: RenderableType) -> None:
        """Print above whatever is redrawn; a log is not wrapped at eighty columns."""
        is_plain = isinstance(what, Text) and not self._console.is_terminal
        self._console.print(what, soft_wrap=is_plain)
