"""Quiet: run chatty library code with its warnings collected and its output kept off the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_NOISE = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning)
MAX_NOTES = 20


@contextlib.contextmanager
def captured(descriptor: int) -> Iterator[IO[bytes]]:
    """Send what is written to a file descriptor, by native code too, into a temporary file, which is given."""
    _flush()
    saved = os.dup(descriptor)
    try:
        with tempfile.TemporaryFile() as log:
            os.dup2(log.fileno(), descriptor)
            try:
                yield log
            finally:
                _flush()
                os.dup2(saved, descriptor)
    finally:
        os.close(saved)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, replaced or absent
            stream.flush()


@contextlib.contextmanager
def quietly() -> Iterator[list[str]]:
    """Keep standard output and error silent, and give a list that holds the warnings as notes at the end.

    Deprecations are between libraries and left out; what remains (a TracerWarning above all) says what an export lost.
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught, captured(1), captured(2):
        warnings.simplefilter("always")
        try:
            yield notes
        finally:
            notes.extend(dict.fromkeys(_note(item) for item in caught if not issubclass(item.category, _NOISE)))
            del notes[MAX_NOTES:]


def _note(item: warnings.WarningMessage) -> str:
    text = " ".join(str(item.message).split())
    return f"{item.category.__name__}: {text[:300]} ({Path(item.filename).name}:{item.lineno})"
