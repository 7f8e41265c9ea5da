"""Quiet: run chatty library code with its output and its warnings kept off the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import IO


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
def quietly() -> Iterator[None]:
    """Keep standard output, standard error and warnings silent."""
    with warnings.catch_warnings(), captured(1), captured(2):
        warnings.simplefilter("ignore")
        yield
