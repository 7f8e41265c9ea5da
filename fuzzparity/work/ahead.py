"""Ahead: the loader's process, started before the parent itself has finished importing.

The idea: importing torch takes the loader as long as the parent takes to read its own modules, so a command that is
sure to open a target starts the loader first. Until it is told what to load it only imports; a parent that ends
without having asked takes it along.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass

_ahead: list[LoaderProcess] = []


@dataclass(frozen=True, slots=True)
class LoaderProcess:
    """Hold the process and our end of its socket."""

    process: subprocess.Popen[bytes]
    socket: socket.socket


def start_process() -> LoaderProcess:
    """Start a loader, whose output goes nowhere until its LoadSpec names a log."""
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    with theirs:
        # a process group of its own: Ctrl-C on the terminal reaches the parent alone
        process = subprocess.Popen(
            [sys.executable, "-m", "fuzzparity.work.loader", str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            process_group=0,
        )
    return LoaderProcess(process, ours)


def start_ahead() -> None:
    """Start the loader that the first pool of this process will take."""
    if not _ahead:
        _ahead.append(start_process())


def take_process() -> LoaderProcess:
    """Return the loader that was started ahead, if it is still there, else a new one."""
    while _ahead:
        found = _ahead.pop()
        if found.process.poll() is None:
            return found
        found.socket.close()
    return start_process()
