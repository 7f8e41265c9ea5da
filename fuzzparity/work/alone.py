"""Alone: run one risky thing in a forked grandchild, from a process that is still clean.

The idea: a clean child (target loaded, no session, one thread) forks in about 20 ms, so each run of a crash or hang
predicate gets a process of its own and its death is a value, not a loss.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from fuzzparity.work.announce import Announced, Announcer, read_announcement
from fuzzparity.work.limits import Limits, die_with_parent, limit_memory, no_core_dump

FAULT_EXIT = 70  # an exception of ours in a child (EX_SOFTWARE)


@dataclass(frozen=True, slots=True)
class Exit:
    """Say how a process ended: by signal, by exit code, or killed by us at a time limit (`hang`)."""

    signal: int | None = None
    code: int | None = None
    hang: bool = False
    announced: Announced | None = None
    fault: str = ""  # traceback when our own code failed in it
    with_loader: bool = False  # innocent: the loader died and took it along

    @property
    def text(self) -> str:
        """Return a short name: "SIGSEGV", "exit 3", "time limit"."""
        if self.hang:
            return "time limit"
        if self.with_loader:
            return "its loader"
        if self.signal is not None:
            return signal_name(self.signal)
        return f"exit {self.code}"


def signal_name(number: int) -> str:
    """Return SIGSEGV for 11; the number as text when it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_of(wait_status: int, *, hang: bool = False, announced: Announced | None = None, fault: str = "") -> Exit:
    """Return the Exit of a `waitpid` status."""
    code = os.waitstatus_to_exitcode(wait_status)
    if code < 0:
        return Exit(signal=-code, hang=hang, announced=announced, fault=fault)
    return Exit(code=code, hang=hang, announced=announced, fault=fault)


def run_alone(
    body: Callable[[Announcer, Callable[[Any], None]], Any],
    *,
    map_path: Path,
    limits: Limits,
    on_message: Callable[[Any], None] = lambda message: None,
    total_seconds: float | None = None,
) -> Any | Exit:
    """Run `body(announcer, send)` in a forked process and return its result, or the Exit when it died.

    `limits.run_seconds` bounds each announced run, `total_seconds` the whole body. What the body passes to `send`
    reaches `on_message` here while it runs.
    """
    reader, writer = Pipe(duplex=False)
    map_path.unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        reader.close()
        _child(body, writer, map_path, limits, parent)
    writer.close()
    try:
        return _attend(pid, reader, map_path, limits, on_message, total_seconds)
    finally:
        reader.close()


def _child(body: Callable[..., Any], writer: Connection, map_path: Path, limits: Limits, parent: int) -> None:
    """Run the body in the forked process and never return."""
    code = FAULT_EXIT
    try:
        die_with_parent(parent)
        no_core_dump()
        limit_memory(limits.memory_bytes)
        result = body(Announcer(map_path), lambda message: writer.send(("message", message)))
        writer.send(("result", result))
        code = 0
    except BaseException:  # reported, then the process ends: nothing above may run twice
        try:
            writer.send(("fault", traceback.format_exc()))
        except (OSError, ValueError):
            pass
    finally:
        writer.close()
        os._exit(code)


def _attend(
    pid: int,
    reader: Connection,
    map_path: Path,
    limits: Limits,
    on_message: Callable[[Any], None],
    total_seconds: float | None,
) -> Any | Exit:
    """Relay messages until a result comes, the process ends, or a limit is passed."""
    started = time.monotonic()
    hang = False
    result: Any = None
    has_result = False
    fault = ""
    while True:
        try:
            if reader.poll(0.05):
                kind, payload = reader.recv()
                if kind == "message":
                    on_message(payload)
                elif kind == "result":
                    result, has_result = payload, True
                else:
                    fault = payload
                continue
        except (EOFError, OSError):
            break
        announced = read_announcement(map_path, with_case=False)
        late = total_seconds is not None and time.monotonic() - started > total_seconds
        if late or (announced is not None and limits.are_passed(announced.side, announced.busy_seconds)):
            hang = True
            os.kill(pid, signal.SIGKILL)
            break
    _, status = os.waitpid(pid, 0)
    if has_result and not hang:
        return result
    return exit_of(status, hang=hang, announced=read_announcement(map_path), fault=fault)
