"""Loader process: loads the target once and forks a child for every job.

The idea: everything dear (importing torch and ORT, loading the user's code and weights) happens once, before any
thread or session exists; a child then costs about 20 ms and has exactly the same module, unseeded weights included.
Where forking is not allowed (CUDA), the same program loads the target and becomes the child itself.

Run as `python -m fuzzparity.work.loader FD`; speaks over the inherited socket FD.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fuzzparity.errors import FuzzparityError
from fuzzparity.work.alone import FAULT_EXIT
from fuzzparity.work.announce import Announcer
from fuzzparity.work.limits import Limits, die_with_parent, limit_memory, no_core_dump

if TYPE_CHECKING:
    from fuzzparity.sides.load import LoadedTarget

_AHEAD = ("torch", "fuzzparity.sides.load")  # imported while nothing is asked for


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """Say what to load; `preload` names modules to import before the first fork, `later` those for the time after it.

    What comes later is what many children would import one by one; a module that is not there is left out.
    """

    spec: str
    onnx: str | None = None
    torch_file: str | None = None
    seeds: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    provider_options: tuple[str, ...] = ()  # "EP.KEY=VALUE"
    device: str = "cpu"
    dtypes: tuple[str, ...] = ()  # "INPUT=DTYPE": which of the builds that the target asks for
    log: str = ""  # file that takes what the loader and its children print


@dataclass(frozen=True, slots=True)
class Loaded:
    """Answer a LoadSpec: the target is there. `builds`: the dtypes of each build that it asks for, this one in it."""

    name: str
    folder: str
    notes: tuple[str, ...]
    builds: tuple[tuple[str, ...], ...] = ((),)


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """Answer a LoadSpec: the target is wrong, or (with `fault`) we are."""

    error: FuzzparityError | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """Ask for a child that runs `job` ("module:function") with `(context, *arguments)`; its socket follows as an fd."""

    child_id: int
    job: str
    arguments: tuple[Any, ...]
    map_path: str
    limits: Limits
    becomes: bool = False  # spawn mode: do not fork, be the child


@dataclass(frozen=True, slots=True)
class Forked:
    """Answer a Launch with the pid of the child."""

    child_id: int
    pid: int


@dataclass(frozen=True, slots=True)
class Reaped:
    """Report that a child has ended, with its `waitpid` status."""

    child_id: int
    wait_status: int


@dataclass(frozen=True, slots=True)
class Returned:
    """Carry the result of a job that ran to its end."""

    result: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """Carry the exception of a job: one of ours with its class, or the traceback of a fault."""

    error: FuzzparityError | None
    traceback: str


@dataclass(frozen=True, slots=True)
class Context:
    """Give a job what it works with: the loaded target, its socket to the parent, its announcements."""

    loaded: LoadedTarget
    connection: Connection
    announcer: Announcer
    map_path: Path
    limits: Limits
    load_spec: LoadSpec = field(default_factory=lambda: LoadSpec(""))

    def send(self, message: Any) -> None:
        """Send a message to the parent; a parent that is gone ends this process."""
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)

    def receive(self) -> Any:
        """Wait for a message of the parent; a parent that is gone ends this process."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            os._exit(0)

    def end(self) -> NoReturn:
        """End this process as if its job had returned; for a job that an engine of its own never returns to."""
        _end(self.connection, Returned(None))

    def fail(self, error: BaseException) -> NoReturn:
        """End this process as if its job had raised."""
        ours = error if isinstance(error, FuzzparityError) else None
        _end(self.connection, Raised(ours, "".join(traceback.format_exception(error))))


def resolve(job: str) -> Callable[..., Any]:
    """Return the function that "module:function" names."""
    module, _, name = job.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


class _Server:
    """Serve one parent: load, fork, reap."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._connection = Connection(os.dup(fd))
        self._children: dict[int, int] = {}  # pid -> child id
        self._loaded: LoadedTarget | None = None
        self._spec = LoadSpec("")
        self._later: list[str] = list(_AHEAD)

    def serve(self) -> NoReturn:
        """Run until the parent closes its end."""
        wake_reader, wake_writer = socket.socketpair()
        wake_reader.setblocking(False)
        wake_writer.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake_writer.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            selector.register(wake_reader, selectors.EVENT_READ)
            while True:
                events = selector.select(timeout=0.0 if self._has_spare_time else 1.0)
                if not events and self._has_spare_time:
                    self._import_one()
                for key, _ in events:
                    if key.fileobj is wake_reader:
                        wake_reader.recv(4096)
                    else:
                        self._handle()
                self._reap()

    def _handle(self) -> None:
        try:
            message = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._kill_children()
            os._exit(0)
        if isinstance(message, LoadSpec):
            self._connection.send(self._load(message))
        else:
            assert isinstance(message, Launch)
            self._launch(message)

    def _load(self, spec: LoadSpec) -> Loaded | LoadFailed:
        """Import what every child needs, then the user's target."""
        try:
            if spec.log:
                _print_to(spec.log)
            with _uncollected():
                importlib.import_module("fuzzparity.sides.load")
            self._loaded, builds = _load_target(spec)
            with _uncollected():
                for name in spec.preload:
                    importlib.import_module(name)
        except FuzzparityError as error:
            return LoadFailed(error)
        except Exception:  # a fault of ours: shown as such
            return LoadFailed(None, traceback.format_exc())
        self._spec, self._later = spec, list(spec.later)
        return Loaded(self._loaded.name, self._loaded.folder, self._loaded.notes, builds)

    @property
    def _has_spare_time(self) -> bool:
        """Tell whether a module waits to be imported, and a child works meanwhile or nothing was asked for yet."""
        return bool(self._later and (self._children or self._loaded is None))

    def _import_one(self) -> None:
        try:
            with _uncollected():
                importlib.import_module(self._later.pop(0))
        except Exception:  # of other versions; the children that need it import what they need
            pass

    def _launch(self, launch: Launch) -> None:
        _, fds, _, _ = socket.recv_fds(self._socket, 1, 1)
        connection = Connection(fds[0])
        if launch.becomes:
            self._run(launch, connection)
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._connection.close()
            self._socket.close()
            die_with_parent(me)
            self._run(launch, connection)
        connection.close()
        self._children[pid] = launch.child_id
        self._connection.send(Forked(launch.child_id, pid))

    def _run(self, launch: Launch, connection: Connection) -> NoReturn:
        """Run the job in this process and end it."""
        try:
            no_core_dump()
            limit_memory(launch.limits.memory_bytes)
            map_path = Path(launch.map_path)
            assert self._loaded is not None
            context = Context(self._loaded, connection, Announcer(map_path), map_path, launch.limits, self._spec)
            result = Returned(resolve(launch.job)(context, *launch.arguments))
        except FuzzparityError as error:
            _end(connection, Raised(error, traceback.format_exc()))
        except BaseException:  # a fault of ours: the parent reports it, the process ends
            _end(connection, Raised(None, traceback.format_exc()))
        _end(connection, result)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            child_id = self._children.pop(pid, None)
            if child_id is not None:
                self._connection.send(Reaped(child_id, status))

    def _kill_children(self) -> None:
        for pid in self._children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _print_to(log: str) -> None:
    """Send what this process and its children print to the end of a file."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Import without collecting garbage, and leave what was made out of later collections, of the children too.

    What lives as long as the process is half a million objects: looking through them takes a fifth of an import, and
    half a second in each child that does it, on pages which it then has to copy (Python's docs, `gc.freeze`).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _load_target(spec: LoadSpec) -> tuple[LoadedTarget, tuple[tuple[str, ...], ...]]:
    """Load what a spec names, as the build and with the sides that the command line asks for; and name all builds."""
    from fuzzparity.sides.dtypes import cast_loaded, chosen, combinations, words
    from fuzzparity.sides.load import load_target
    from fuzzparity.sides.options import with_sides
    from fuzzparity.sides.seed_files import first_arrays

    first = first_arrays(Path(spec.seeds[0])) if spec.torch_file and spec.seeds else None
    loaded = load_target(spec.spec, onnx=spec.onnx, torch_file=spec.torch_file, seeds_first=first)
    builds = tuple(words(combination) for combination in combinations(loaded))
    loaded = cast_loaded(loaded, chosen(loaded, spec.dtypes))
    return with_sides(loaded, spec.providers, spec.provider_options, spec.device), builds


def _end(connection: Connection, last: Returned | Raised) -> NoReturn:
    """Send a last message and end this process, past destructors that may be what kills it."""
    code = FAULT_EXIT if isinstance(last, Raised) else 0
    try:
        connection.send(last)
    except Exception:  # what cannot be sent is a fault of ours; a parent that is gone hears nothing
        code = FAULT_EXIT
        with suppress(OSError, ValueError):
            connection.send(Raised(None, traceback.format_exc()))
    sys.stdout.flush()
    sys.stderr.flush()
    connection.close()
    os._exit(code)


def main() -> None:
    """Start the loader on the socket whose fd is the first argument."""
    fd, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent_pid)
    no_core_dump()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the parent, which ends us in order
    faulthandler.enable()
    # run as __main__, this module exists twice; messages must be instances of the importable one
    module = importlib.import_module("fuzzparity.work.loader")
    module._Server(fd).serve()


if __name__ == "__main__":
    main()
