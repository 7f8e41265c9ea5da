"""Signals: Ctrl-C, SIGTERM and SIGHUP end a campaign in order, at any time; nothing is lost and nothing is left."""

import signal
import time
from pathlib import Path

import pytest
from campaigns import CLEAN, FAULTY, GIVEN, Running, corpus_of, rows, run, write_target

pytestmark = pytest.mark.slow

SLOW_TO_LOAD = """
    time.sleep(60)
"""
SLOW_TO_EXPORT = """
    class Net(torch.nn.Module):
        def forward(self, x):
            if torch.compiler.is_compiling():
                time.sleep(60)
            return x * 2


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)})
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda value: str(value),
)
def test_a_signal_ends_a_campaign_in_order_and_keeps_everything(tmp_path: Path, number: signal.Signals, code: int):
    write_target(tmp_path, GIVEN, FAULTY)
    running = Running(tmp_path, "fuzz", "subject.py", "--time", "100s", "--workers", "1", "--json", "out.json")
    try:
        running.wait_for("confirmed")
        seen = rows(corpus_of(tmp_path), "select finding_id from findings")
        sent = time.monotonic()
        running.process.send_signal(number)
        ended = running.wait(10)
        assert time.monotonic() - sent < 30
        assert ended.code == code
        assert running.left(15) == []
    finally:
        running.end()
    assert ended.answer["interrupted_by"] == number
    assert ended.answer["exit_code"] == code
    assert {name for (name,) in seen} <= {found["finding_id"] for found in ended.findings}
    assert rows(corpus_of(tmp_path), "select interrupted, exit_code, executions > 0 from campaigns") == [(1, code, 1)]
    assert run(tmp_path, "corpus", "verify", "subject").code == 0
    assert list((tmp_path / ".fuzzparity/run").iterdir()) == []


def test_a_signal_while_pending_findings_are_finished_ends_that_too(tmp_path: Path):
    write_target(tmp_path, GIVEN, FAULTY)
    running = Running(tmp_path, "fuzz", "subject.py", "--cases", "600", "--workers", "1", "--json", "out.json")
    try:
        running.wait_for("finishing")
        running.process.send_signal(signal.SIGINT)
        ended = running.wait(10)
        assert ended.code in (130, 1)  # 1: it had just finished
        assert running.left(15) == []
    finally:
        running.end()
    assert ended.answer["executions"] == 600


@pytest.mark.parametrize(
    ("parts", "stage", "number", "code"),
    [
        ((GIVEN, SLOW_TO_LOAD, CLEAN), "loading", signal.SIGTERM, 143),
        ((GIVEN, SLOW_TO_EXPORT), "exporting", signal.SIGINT, 130),
    ],
    ids=["loading", "exporting"],
)
def test_a_signal_during_setup_ends_at_once(
    tmp_path: Path, parts: tuple[str, ...], stage: str, number: signal.Signals, code: int
):
    write_target(tmp_path, *parts)
    running = Running(tmp_path, "fuzz", "subject.py", "--time", "100s")
    try:
        running.wait_for(stage)
        time.sleep(3.0)
        running.process.send_signal(number)
        sent = time.monotonic()
        ended = running.wait(10)
        assert time.monotonic() - sent < 30
        assert ended.code == code
        assert running.left(15) == []
    finally:
        running.end()
    assert "Traceback" not in ended.stderr
    assert ended.stderr.strip() == "stopped"
    assert list((tmp_path / ".fuzzparity/run").iterdir()) == []
