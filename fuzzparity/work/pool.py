"""Pool: the parent's view of the loader and its children.

The idea: the parent runs nothing native. It launches jobs, waits for events (a message, a result, a death), and
bounds every announced run by the clock, since only another process can stop a native call.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fuzzparity.errors import FuzzparityError, InvalidTarget, WorkerLost
from fuzzparity.work.ahead import take_process
from fuzzparity.work.alone import Exit, exit_of
from fuzzparity.work.announce import Watch, read_announcement
from fuzzparity.work.limits import Limits
from fuzzparity.work.loader import Forked, Launch, Loaded, LoadFailed, LoadSpec, Raised, Reaped, Returned

_LOG_TAIL_BYTES = 4000
_KILL_GRACE_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Child:
    """Stand for one child process; `exit` is set once it is gone."""

    child_id: int
    label: str
    connection: Connection
    map_path: Path
    limits: Limits
    pid: int = 0
    exit: Exit | None = None
    result: Any = None
    has_result: bool = False
    raised: Raised | None = None
    killed_for_hang: bool = False
    is_open: bool = True
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        """Attach the watch on the child's announcements."""
        self.watch = Watch(self.map_path)

    def send(self, message: Any) -> None:
        """Send a message; a child that has just died does not mind."""
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError, OSError):
            pass

    def kill(self) -> None:
        """End the process at once; its death arrives as an event."""
        if self.pid and self.exit is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


@dataclass(frozen=True, slots=True)
class Message:
    """Report what a child sent."""

    child: Child
    payload: Any


@dataclass(frozen=True, slots=True)
class Finished:
    """Report that a child's job returned and the child is gone."""

    child: Child
    result: Any


@dataclass(frozen=True, slots=True)
class Died:
    """Report that a child is gone without a result: `exit` says how and what it was doing."""

    child: Child
    exit: Exit


@dataclass(frozen=True, slots=True)
class LoaderLost:
    """Report that the loader itself is gone, and every child with it."""

    exit: Exit


Event = Message | Finished | Died | LoaderLost


class Pool:
    """Own one loader process and the children it forks."""

    def __init__(self, spec: LoadSpec, folder: Path, *, spawn: bool = False) -> None:
        """Remember what to load; `folder` takes the maps and the log. Nothing starts before `start`."""
        self.spec = spec
        self.folder = folder
        self.spawn = spawn
        self.log_path = folder / "loader.log"
        self._children: dict[int, Child] = {}
        self._next_id = 0
        self._loader: _Loader | None = None
        self._spawned: dict[int, _Loader] = {}
        self.tick: Callable[[], None] = lambda: None  # called a few times a second while `start` and `run` wait

    def start(self) -> Loaded:
        """Start the loader and load the target; InvalidTarget says what is wrong with it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._loader, loaded = self._load()
        return loaded

    def restart(self) -> Loaded:
        """Replace a loader that is gone; unseeded weights differ, so jobs must load the build's state."""
        self._close_loader()
        return self.start()

    def _load(self) -> tuple[_Loader, Loaded]:
        loader = _Loader()
        try:
            answer = loader.ask(replace(self.spec, log=str(self.log_path)), self.tick)
        except (EOFError, OSError):
            exit_ = loader.end()
            raise InvalidTarget(
                "load",
                f"the process that loads {self.spec.spec!r} died with {exit_.text}",
                "run the target's file with python alone; --debug shows the log",
                self.log_tail(),
            ) from None
        except BaseException:  # a signal: what is being loaded is of no use any more
            loader.process.kill()
            loader.end()
            raise
        if isinstance(answer, LoadFailed):
            loader.end()
            raise answer.error or WorkerLost(f"the loader failed inside fuzzparity:\n{answer.fault}")
        assert isinstance(answer, Loaded)
        return loader, answer

    def log_tail(self) -> str:
        """Return the end of what the target and its engines printed."""
        try:
            with open(self.log_path, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _LOG_TAIL_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def launch(self, job: str, arguments: tuple[Any, ...], *, limits: Limits, label: str) -> Child:
        """Start a child that runs `job`; messages, its result or its death arrive through `wait`."""
        child_id = self._next_id
        self._next_id += 1
        ours, theirs = socket.socketpair()
        map_path = self.folder / f"{label}-{child_id}.map"
        child = Child(child_id, label, Connection(ours.detach()), map_path, limits)
        launch = Launch(child_id, job, arguments, str(map_path), limits, becomes=self.spawn)
        loader = self._loader
        if self.spawn:
            loader, _ = self._load()
            self._spawned[child_id] = loader
            child.pid = loader.process.pid
        if loader is None:
            raise WorkerLost("the loader is not running")
        with theirs:
            try:
                loader.launch(launch, theirs.fileno())
            except (BrokenPipeError, ConnectionResetError):
                pass  # the loader's death is seen by the next wait
        self._children[child_id] = child
        return child

    def run(self, job: str, *arguments: Any, limits: Limits, label: str, on_message: Any = None) -> Any | Exit:
        """Run one job to its end while nothing else runs; its own errors are raised here, a death is returned."""
        child = self.launch(job, arguments, limits=limits, label=label)
        while True:
            self.tick()
            for event in self.wait(0.2):
                if isinstance(event, LoaderLost):
                    return event.exit
                if event.child is not child:
                    continue
                if isinstance(event, Message):
                    if on_message is not None:
                        on_message(event.payload)
                elif isinstance(event, Finished):
                    return event.result
                else:
                    raise_fault(child)
                    return event.exit

    def wait(self, timeout_seconds: float) -> list[Event]:
        """Return what happened since the last call, waiting for at most `timeout_seconds`."""
        events: list[Event] = []
        loader = self._loader
        sources: list[Any] = [child.connection for child in self._children.values() if child.is_open]
        if loader is not None:
            sources.append(loader.connection)
        ready = wait(sources, timeout_seconds) if sources else []
        for child in list(self._children.values()):
            if child.connection in ready:
                self._read(child, events)
        if loader is not None and loader.connection in ready:
            self._hear(loader, events)
        if self.spawn:
            self._poll_spawned(events)
        self._bound_runs()
        return events

    def _read(self, child: Child, events: list[Event]) -> None:
        try:
            payload = child.connection.recv()
        except (EOFError, OSError):
            child.is_open = False
            return
        if isinstance(payload, Returned):
            child.result, child.has_result = payload.result, True
        elif isinstance(payload, Raised):
            child.raised = payload
        else:
            events.append(Message(child, payload))

    def _hear(self, loader: _Loader, events: list[Event]) -> None:
        """Take what the loader says; messages of a child that has ended are read before its end is told."""
        try:
            message = loader.connection.recv()
        except (EOFError, OSError):
            self._loader = None
            for child in list(self._children.values()):
                self._bury(child, Exit(signal=int(signal.SIGKILL), with_loader=True), events)
            events.append(LoaderLost(loader.end()))
            return
        if isinstance(message, Forked):
            self._children[message.child_id].pid = message.pid
        elif isinstance(message, Reaped):
            child = self._children[message.child_id]
            self._bury(child, exit_of(message.wait_status), events)

    def _poll_spawned(self, events: list[Event]) -> None:
        for child_id, loader in list(self._spawned.items()):
            code = loader.process.poll()
            if code is not None:
                del self._spawned[child_id]
                exit_ = Exit(signal=-code) if code < 0 else Exit(code=code)
                self._bury(self._children[child_id], exit_, events)
                loader.end()

    def _bury(self, child: Child, exit_: Exit, events: list[Event]) -> None:
        while child.is_open and child.connection.poll():
            self._read(child, events)
        child.connection.close()
        child.is_open = False
        del self._children[child.child_id]
        if child.has_result:
            child.exit = exit_
            events.append(Finished(child, child.result))
        else:
            announced = read_announcement(child.map_path)
            fault = child.raised.traceback if child.raised else ""
            child.exit = replace(exit_, hang=child.killed_for_hang, announced=announced, fault=fault)
            events.append(Died(child, child.exit))
        child.map_path.unlink(missing_ok=True)

    def _bound_runs(self) -> None:
        for child in self._children.values():
            if not child.killed_for_hang and child.limits.are_passed(*child.watch.busy()):
                child.killed_for_hang = True
                child.kill()

    @property
    def children(self) -> list[Child]:
        """Return the children that have not ended."""
        return list(self._children.values())

    def close(self) -> None:
        """End every child and the loader; nothing is left running."""
        for child in self._children.values():
            child.kill()
            child.connection.close()
        self._children.clear()
        for loader in self._spawned.values():
            loader.end()
        self._spawned.clear()
        self._close_loader()
        for path in self.folder.glob("*.map"):
            path.unlink(missing_ok=True)

    def _close_loader(self) -> None:
        if self._loader is not None:
            self._loader.end()
            self._loader = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def raise_fault(child: Child) -> None:
    """Raise what a job raised, if it ended that way: our own errors as they are, a fault as WorkerLost."""
    if child.raised is None:
        return
    error = child.raised.error
    if isinstance(error, FuzzparityError):
        raise error
    raise WorkerLost(f"job {child.label!r} failed inside fuzzparity:\n{child.raised.traceback}")


class _Loader:
    """Hold the loader's process and socket."""

    def __init__(self) -> None:
        started = take_process()
        self.process, self._socket = started.process, started.socket
        self.connection = Connection(os.dup(self._socket.fileno()))

    def ask(self, message: Any, tick: Callable[[], None]) -> Any:
        """Send a message and wait for its answer, ticking meanwhile."""
        self.connection.send(message)
        while not self.connection.poll(0.2):
            tick()
        return self.connection.recv()

    def launch(self, launch: Launch, fd: int) -> None:
        """Send a Launch and the child's end of its socket."""
        self.connection.send(launch)
        socket.send_fds(self._socket, [b"f"], [fd])

    def end(self) -> Exit:
        """Close the socket, which ends the loader and its children, and return how it ended."""
        self.connection.close()
        self._socket.close()
        started = time.monotonic()
        while self.process.poll() is None:
            if time.monotonic() - started > _KILL_GRACE_SECONDS:
                self.process.kill()
                self.process.wait()
                break
            time.sleep(0.005)
        code = self.process.returncode
        return Exit(signal=-code) if code < 0 else Exit(code=code)
