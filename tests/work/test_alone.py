"""Running one risky thing in a forked process, with real deaths."""

import ctypes
import os
import time
from pathlib import Path

import numpy as np

from fuzzparity.case import Case
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.limits import Limits

CASE = Case({"x": np.zeros(2, np.float32)})


def test_a_result_and_messages_come_back(tmp_path: Path):
    got = []

    def body(announcer, send):
        send(1)
        send(2)
        return "done"

    assert run_alone(body, map_path=tmp_path / "m", limits=Limits(), on_message=got.append) == "done"
    assert got == [1, 2]


def test_a_segfault_is_a_value(tmp_path: Path):
    def body(announcer, send):
        announcer.case(CASE)
        with announcer.at("ort"):
            ctypes.string_at(0)

    ended = run_alone(body, map_path=tmp_path / "m", limits=Limits())
    assert isinstance(ended, Exit)
    assert ended.text == "SIGSEGV"
    assert ended.announced is not None
    assert ended.announced.side == "ort"


def test_an_endless_run_is_killed_and_so_is_an_endless_body(tmp_path: Path):
    def hang(announcer, send):
        announcer.case(CASE)
        with announcer.at("torch"):
            time.sleep(600)

    ended = run_alone(hang, map_path=tmp_path / "m", limits=Limits(run_seconds=0.3))
    assert isinstance(ended, Exit)
    assert ended.hang
    ended = run_alone(
        lambda announcer, send: time.sleep(600), map_path=tmp_path / "m", limits=Limits(), total_seconds=0.3
    )
    assert isinstance(ended, Exit)
    assert ended.hang


def test_a_fault_of_ours_carries_its_traceback(tmp_path: Path):
    ended = run_alone(lambda announcer, send: 1 / 0, map_path=tmp_path / "m", limits=Limits())
    assert isinstance(ended, Exit)
    assert "ZeroDivisionError" in ended.fault


def test_no_process_is_left_behind(tmp_path: Path):
    pid = run_alone(lambda announcer, send: os.getpid(), map_path=tmp_path / "m", limits=Limits())
    assert not Path(f"/proc/{pid}").exists()
