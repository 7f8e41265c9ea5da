"""Hurry: whoever works on a finding learns that a bug waits behind it, and takes up less time.

The idea: an empty file in the run's folder is there while a bug waits; a clock that goes faster meanwhile is all that
a search with a deadline has to know of it.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

_FACTOR = 2.0  # how much faster time goes


def set_hurry(folder: Path, *, is_on: bool) -> None:
    """Say to all who work in a run's folder whether a bug waits; a folder that cannot be written to tells nobody."""
    with contextlib.suppress(OSError):
        if is_on:
            _flag(folder).touch()
        else:
            _flag(folder).unlink(missing_ok=True)


class HurriedClock:
    """Tell seconds from an arbitrary start; they pass twice as fast while a bug waits."""

    def __init__(self, folder: Path) -> None:
        """Look at the flag of a run's folder."""
        self._flag = _flag(folder)
        self._last = time.monotonic()
        self._seconds = self._last

    def __call__(self) -> float:
        """Return the time."""
        now = time.monotonic()
        self._seconds += (now - self._last) * (_FACTOR if self._flag.exists() else 1.0)
        self._last = now
        return self._seconds


def _flag(folder: Path) -> Path:
    return folder / "hurry"
