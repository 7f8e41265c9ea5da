"""Kill -9 at random moments: no acknowledged row is lost, nothing is left running, and the campaign resumes."""

import os
import random
import signal
import time
from pathlib import Path

import psutil
import pytest
from campaigns import FAULTY, GIVEN, Running, corpus_of, fuzz, rows, run, write_target

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("FUZZPARITY_KILL_ROUNDS", "10"))
_LEFT_SECONDS = 5.0


def acknowledged(folder: Path) -> tuple[dict[str, str], set[str], int]:
    """Return what a reader sees: findings and their stages, cases, executions of all campaigns."""
    corpus = corpus_of(folder)
    if not corpus.exists():
        return {}, set(), 0
    findings = {str(name): str(stage) for name, stage in rows(corpus, "select finding_id, stage from findings")}
    cases = {str(digest) for (digest,) in rows(corpus, "select digest from cases")}
    return findings, cases, int(rows(corpus, "select coalesce(sum(executions), 0) from campaigns")[0][0])


def victim(running: Running, whom: str) -> psutil.Process | None:
    """Return the process to kill; None when there is none at this moment."""
    found = {
        "parent": [psutil.Process(running.process.pid)],
        "loader": running.loaders(),
        "worker": running.workers(),
    }[whom]
    return random.choice(found) if found else None


def test_no_acknowledged_row_is_lost_and_the_campaign_resumes(tmp_path: Path):
    write_target(tmp_path, GIVEN, FAULTY)
    chance = random.Random(5)
    killed = []
    for number in range(ROUNDS):
        whom = ("parent", "worker", "loader")[number % 3]
        running = Running(tmp_path, "fuzz", "subject.py", "--time", "5s", "--workers", "2", "--json", "out.json")
        try:
            if whom != "parent" or chance.random() < 0.8:
                running.wait_for("s fuzzing |")
            time.sleep(chance.uniform(0.0, 4.5))
            before = acknowledged(tmp_path)
            process = victim(running, whom)
            if process is not None:
                process.send_signal(signal.SIGKILL)
                killed.append(whom)
            if whom == "parent":
                assert running.left(_LEFT_SECONDS) == []
            else:
                ended = running.wait(90)
                # one that dies late leaves no second for a case: that nothing was judged is then the truth
                nothing_judged = ended.code == 4 and ": 0 executions," in ended.stdout
                assert ended.code in (0, 1) or nothing_judged, ended.stdout + ended.stderr
                assert "internal fault" not in ended.stdout + ended.stderr
                assert running.left(_LEFT_SECONDS) == []
        finally:
            running.end()
        after = acknowledged(tmp_path)
        assert before[0].keys() <= after[0].keys()
        assert before[1] <= after[1]
        assert before[2] <= after[2]
        if corpus_of(tmp_path).exists():
            verified = run(tmp_path, "corpus", "verify", "subject")
            assert verified.code == 0, verified.stdout + verified.stderr
    assert len(killed) >= ROUNDS - 2
    _, _, executions = acknowledged(tmp_path)
    last = fuzz(tmp_path, "--cases", "300", "--workers", "1")
    assert last.code in (0, 1)
    assert any(f"resumed: {executions} executions" in note for note in last.answer["notes"])
    stages = acknowledged(tmp_path)[0]
    assert "suspected" not in stages.values(), stages
    assert not list((tmp_path / "crashes").glob(".tmp-*"))
