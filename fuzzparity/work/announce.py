"""Announcement: what a process is about to run, in a file-backed map that outlives it.

The idea: before a native call the child writes the case, the side and a sequence number into shared pages. Pages of a
file survive the death of the process that wrote them, SIGKILL included, so the parent knows what killed it and how
long it has been at it.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fuzzparity.case import Case
from fuzzparity.corpus.codec import decode, encode

IDLE = ""
_HEADER = struct.Struct("<8sqQQQ32s16s")  # magic, sequence, started_ns, payload bytes, ring index, note, side
_MAGIC = b"fpannou2"
_RING_SLOTS = 64
_DIGEST_BYTES = 32
_PAYLOAD_AT = _HEADER.size + _RING_SLOTS * _DIGEST_BYTES
_FIRST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Announced:
    """Say what a process was doing: `side` is empty when it was between runs. `started_ns` is CLOCK_MONOTONIC."""

    sequence: int
    side: str
    note: str
    started_ns: int
    case: Case | None
    recent: tuple[str, ...]  # digests of the last cases, newest first

    @property
    def busy_seconds(self) -> float:
        """Return for how long the announced run has been going on, 0.0 when idle."""
        return (time.monotonic_ns() - self.started_ns) / 1e9 if self.side else 0.0


class Announcer:
    """Write announcements of one process; the file grows with the largest case."""

    def __init__(self, path: Path) -> None:
        """Create or truncate the map at `path`."""
        self._path = path
        path.unlink(missing_ok=True)
        self._grow(_FIRST_BYTES)
        self._sequence = -1
        self._started_ns = 0
        self._payload = 0
        self._ring = 0
        self._note = b""
        self._header(b"")

    def _grow(self, size: int) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, size)  # a full disk is an OSError here, else a SIGBUS later
            else:
                os.ftruncate(descriptor, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    def _header(self, side: bytes) -> None:
        _HEADER.pack_into(
            self._map, 0, _MAGIC, self._sequence, self._started_ns, self._payload, self._ring, self._note, side
        )

    def case(self, case: Case, sequence: int = -1) -> None:
        """Announce the case that the next runs are about; `sequence` is its place in a campaign's stream."""
        data = encode(dict(case.inputs))
        if _PAYLOAD_AT + len(data) > len(self._map):
            self._map.close()
            self._grow(2 * (_PAYLOAD_AT + len(data)))
        self._payload = 0  # a death between the two header writes must not pair an old length with new bytes
        self._header(b"")
        self._map[_PAYLOAD_AT : _PAYLOAD_AT + len(data)] = data
        slot = _HEADER.size + (self._ring % _RING_SLOTS) * _DIGEST_BYTES
        self._map[slot : slot + _DIGEST_BYTES] = bytes.fromhex(case.digest)
        self._ring += 1
        self._sequence = sequence
        self._payload = len(data)
        self._header(b"")

    @contextmanager
    def at(self, side: str, note: str = "") -> Iterator[None]:
        """Announce that `side` runs the announced case for as long as the block lasts."""
        self._started_ns = time.monotonic_ns()
        self._note = note.encode()[:32]
        self._header(side.encode()[:16])
        try:
            yield
        finally:
            self._note = b""
            self._header(b"")


def read_announcement(path: Path, *, with_case: bool = True) -> Announced | None:
    """Read the map of another process, dead or alive; None when it never announced anything."""
    try:
        with open(path, "rb") as file:
            head = file.read(_PAYLOAD_AT)
            if len(head) < _PAYLOAD_AT:
                return None
            magic, sequence, started_ns, payload, ring, note, side = _HEADER.unpack_from(head)
            if magic != _MAGIC:
                return None
            case = Case(decode(file.read(payload))) if with_case and payload else None
    except FileNotFoundError:
        return None
    recent = []
    for index in range(ring - 1, max(-1, ring - 1 - _RING_SLOTS), -1):
        slot = _HEADER.size + (index % _RING_SLOTS) * _DIGEST_BYTES
        recent.append(head[slot : slot + _DIGEST_BYTES].hex())
    return Announced(
        sequence, side.rstrip(b"\0").decode(), note.rstrip(b"\0").decode(), started_ns, case, tuple(recent)
    )


class Watch:
    """Look at a running process's map without reading its case: cheap enough for every turn of the parent's loop."""

    def __init__(self, path: Path) -> None:
        """Remember where the map lies; it may not exist yet."""
        self._path = path

    def busy(self) -> tuple[str, float]:
        """Return the side that runs and for how many seconds; ("", 0.0) when idle."""
        announced = read_announcement(self._path, with_case=False)
        return (announced.side, announced.busy_seconds) if announced else (IDLE, 0.0)
