"""The pool of processes, by real deaths: signals, exits, hangs, memory; nothing here is simulated."""

import os
import signal
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from fuzzparity.errors import InvalidTarget, WorkerLost
from fuzzparity.work.alone import Exit
from fuzzparity.work.limits import Limits
from fuzzparity.work.loader import LoadSpec
from fuzzparity.work.pool import Died, Finished, LoaderLost, Message, Pool

TARGET = """
    import torch
    from fuzzparity import Target

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3))

        def forward(self, x):
            return x * self.weight

    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 3)})
"""

JOBS = """
    import ctypes, os, signal, time
    import numpy as np
    from fuzzparity.case import Case
    from fuzzparity.errors import InvalidCase

    CASE = Case({"x": np.array([1.0, 2.0], np.float32)})

    def weight(context):
        return context.loaded.target.module.weight.detach().numpy().tolist()

    def echo(context):
        while (message := context.receive()) is not None:
            context.send(message * 2)
        return "done"

    def crash(context, how):
        context.announcer.case(CASE, 7)
        with context.announcer.at("ort", "load"):
            if how == "segv":
                ctypes.string_at(0)
            elif how == "abort":
                os.abort()
            elif how == "fpe":
                os.kill(os.getpid(), signal.SIGFPE)
            elif how == "exit":
                os._exit(3)
            elif how == "hang":
                time.sleep(600)
            elif how == "memory":
                np.ones(1 << 34, np.uint8)

    def ours(context):
        raise InvalidCase("not like this")

    def fault(context):
        return 1 / 0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "target.py").write_text(textwrap.dedent(TARGET))
    (tmp_path / "pool_jobs.py").write_text(textwrap.dedent(JOBS))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@pytest.fixture(params=["fork", "spawn"])
def pool(folder: Path, request: pytest.FixtureRequest):
    with Pool(LoadSpec(str(folder)), folder / "run", spawn=request.param == "spawn") as pool:
        pool.start()
        yield pool


@pytest.fixture
def forking(folder: Path):
    with Pool(LoadSpec(str(folder)), folder / "run") as pool:
        pool.start()
        yield pool


def test_every_forked_child_has_the_same_unseeded_weights(forking: Pool):
    first = forking.run("pool_jobs:weight", limits=Limits(), label="a")
    assert first == forking.run("pool_jobs:weight", limits=Limits(), label="b")
    assert len(first) == 3


@pytest.mark.parametrize(
    ("how", "signal_number", "code"),
    [("segv", signal.SIGSEGV, None), ("abort", signal.SIGABRT, None), ("fpe", signal.SIGFPE, None), ("exit", None, 3)],
)
def test_a_death_is_an_event_with_its_case(pool: Pool, how: str, signal_number: int | None, code: int | None):
    ended = pool.run("pool_jobs:crash", how, limits=Limits(), label="crash")
    assert isinstance(ended, Exit)
    assert (ended.signal, ended.code) == (signal_number, code)
    assert ended.announced is not None
    assert (ended.announced.side, ended.announced.note, ended.announced.sequence) == ("ort", "load", 7)
    assert ended.announced.case is not None
    assert ended.announced.case.inputs["x"].tolist() == [1.0, 2.0]
    assert ended.announced.recent == (ended.announced.case.digest,)


def test_a_hang_is_killed_at_its_limit(pool: Pool):
    started = time.monotonic()
    ended = pool.run("pool_jobs:crash", "hang", limits=Limits(run_seconds=0.5), label="hang")
    assert isinstance(ended, Exit)
    assert ended.hang
    assert ended.text == "time limit"
    assert time.monotonic() - started < 30


def test_the_memory_limit_is_an_exception_in_the_child(forking: Pool):
    with pytest.raises(WorkerLost, match="MemoryError"):
        forking.run("pool_jobs:crash", "memory", limits=Limits(memory_bytes=1 << 30), label="memory")


def test_our_own_errors_arrive_as_they_are_and_faults_with_their_traceback(forking: Pool):
    with pytest.raises(Exception, match="not like this"):
        forking.run("pool_jobs:ours", limits=Limits(), label="ours")
    with pytest.raises(WorkerLost, match="ZeroDivisionError"):
        forking.run("pool_jobs:fault", limits=Limits(), label="fault")


def test_messages_go_both_ways(pool: Pool):
    child = pool.launch("pool_jobs:echo", (), limits=Limits(), label="echo")
    child.send(21)
    got: list[object] = []
    while len(got) < 1:
        got += [event.payload for event in pool.wait(1.0) if isinstance(event, Message)]
    assert got == [42]
    child.send(None)
    ends = []
    while not ends:
        ends += [event for event in pool.wait(1.0) if isinstance(event, Finished)]
    assert ends[0].result == "done"


def test_a_worker_killed_from_outside_is_told(forking: Pool):
    child = forking.launch("pool_jobs:echo", (), limits=Limits(), label="echo")
    while not child.pid:
        forking.wait(0.2)
    os.kill(child.pid, signal.SIGKILL)
    died = []
    while not died:
        died += [event for event in forking.wait(1.0) if isinstance(event, Died)]
    assert died[0].exit.signal == signal.SIGKILL


def test_a_killed_loader_takes_its_children_along_and_can_be_replaced(forking: Pool):
    child = forking.launch("pool_jobs:echo", (), limits=Limits(), label="echo")
    while not child.pid:
        forking.wait(0.2)
    assert forking._loader is not None
    forking._loader.process.kill()
    events = []
    while not any(isinstance(event, LoaderLost) for event in events):
        events += forking.wait(1.0)
    assert any(isinstance(event, Died) and event.child is child for event in events)
    deadline = time.monotonic() + 30
    while psutil.pid_exists(child.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(child.pid)
    forking.restart()
    assert len(forking.run("pool_jobs:weight", limits=Limits(), label="again")) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os; os.kill(os.getpid(), 11)", "died with SIGSEGV"),
        ("import os; os._exit(9)", "died with exit 9"),
        ("raise ValueError('no weights')", "no weights"),
    ],
)
def test_a_target_that_dies_while_loading_is_one_clear_error(tmp_path: Path, text: str, message: str):
    (tmp_path / "target.py").write_text(text)
    with Pool(LoadSpec(str(tmp_path)), tmp_path / "run") as pool, pytest.raises(InvalidTarget, match=message):
        pool.start()
