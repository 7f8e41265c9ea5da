"""Lock: one writing process per corpus, told from the file beside the database.

The idea: a POSIX record lock is held by the process alone. The kernel drops it at death, so kill -9 leaves nothing to
clean up, and forked children do not inherit it (a `flock` they would: a worker that outlives its parent for a moment
would then keep the corpus closed).
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path

from fuzzparity.errors import CorpusError

_held: dict[Path, int] = {}  # path -> pid: a record lock does not exclude its own process


class WriterLock:
    """Hold the right to write to one corpus until released."""

    def __init__(self, database: Path) -> None:
        """Take the lock; CorpusError says who holds it."""
        self.path = database.resolve().with_name(database.name + ".lock")
        if _held.get(self.path) == os.getpid():
            raise CorpusError(_taken(database, str(os.getpid())))
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise CorpusError(f"{self.path} cannot be written: {error.strerror}; choose another --corpus") from error
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip()
            os.close(self._descriptor)
            if isinstance(error, BlockingIOError | PermissionError):
                raise CorpusError(_taken(database, holder)) from None
            raise CorpusError(f"{self.path} cannot be locked: {error.strerror}; choose another --corpus") from error
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())
        _held[self.path] = os.getpid()

    def release(self) -> None:
        """Give the lock back; in a forked child, which never held it, do nothing."""
        if _held.get(self.path) == os.getpid():
            del _held[self.path]
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)


def writer_of(database: Path) -> int | None:
    """Return the process that writes to a corpus now, None when there is none; asks without taking the lock."""
    path = database.resolve().with_name(database.name + ".lock")
    if path in _held:
        return _held[path]
    if sys.platform != "linux":  # struct flock below is Linux's
        return None
    try:
        with path.open("rb+") as file:
            asked = struct.pack("hhlli", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            told = struct.unpack("hhlli", fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:  # no lock file, or not ours to read
        return None
    return int(told[4]) if told[0] != fcntl.F_UNLCK else None


def require_free(database: Path) -> None:
    """Raise the CorpusError of a taken lock without taking it: before work that would be for nothing."""
    holder = writer_of(database)
    if holder is not None:
        raise CorpusError(_taken(database, str(holder)))


def _taken(database: Path, holder: str) -> str:
    who = f"process {holder}" if holder.isdigit() else "another process"
    return (
        f"{database} is being written to by {who}; one campaign at a time can use a corpus. "
        "Wait for it, stop it, or give another --corpus"
    )
