"""Announcements survive the process that wrote them."""

import os
import signal
from pathlib import Path

import numpy as np

from fuzzparity.case import Case
from fuzzparity.work.announce import Announcer, read_announcement


def case_of(size: int, value: float = 1.0) -> Case:
    return Case({"x": np.full(size, value, np.float32), "n": np.array(size)})


def test_what_was_announced_is_read_after_a_kill(tmp_path: Path):
    path = tmp_path / "a.map"
    pid = os.fork()
    if pid == 0:
        announcer = Announcer(path)
        for size in (3, 700_000, 5):  # the second does not fit the first size of the file
            announcer.case(case_of(size), size)
        with announcer.at("torch"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    announced = read_announcement(path)
    assert announced is not None
    assert (announced.side, announced.sequence) == ("torch", 5)
    assert announced.case == case_of(5)
    assert announced.recent == tuple(case_of(size).digest for size in (5, 700_000, 3))
    assert announced.busy_seconds >= 0


def test_the_ring_holds_the_last_sixty_four_digests(tmp_path: Path):
    announcer = Announcer(tmp_path / "a.map")
    for value in range(100):
        announcer.case(case_of(2, value), value)
    announced = read_announcement(tmp_path / "a.map")
    assert announced is not None
    assert announced.recent == tuple(case_of(2, value).digest for value in range(99, 35, -1))


def test_between_runs_no_side_is_busy(tmp_path: Path):
    announcer = Announcer(tmp_path / "a.map")
    announcer.case(case_of(1), 0)
    with announcer.at("ort"):
        pass
    announced = read_announcement(tmp_path / "a.map")
    assert announced is not None
    assert (announced.side, announced.busy_seconds) == ("", 0.0)


def test_a_map_that_was_never_written_is_none(tmp_path: Path):
    (tmp_path / "b.map").write_bytes(b"x" * 10)
    assert read_announcement(tmp_path / "b.map") is None
    assert read_announcement(tmp_path / "c.map") is None
