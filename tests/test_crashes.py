"""Replay the committed reproducers: each shows the finding it was written for, both alone and by `replay`."""

import subprocess
from pathlib import Path

import pytest

from fuzzparity.commands.replay import State, replay
from fuzzparity.report.reproducer import run_reproducer

CRASHES = Path(__file__).parents[1] / "crashes"


def committed() -> list[str]:
    """Return the names of the reproducers that git tracks; what a campaign left there is not ours to judge."""
    listed = subprocess.run(
        ["git", "ls-files", "--", "crashes"], cwd=CRASHES.parent, capture_output=True, text=True, check=False
    )
    found = {Path(line).parts[1] for line in listed.stdout.splitlines() if line.endswith("/finding.json")}
    return sorted(found or {entry.parent.name for entry in CRASHES.glob("*/finding.json")})


def test_there_are_committed_reproducers_of_several_kinds():
    assert len({name.rsplit("-", 1)[0] for name in committed()}) >= 3


@pytest.mark.parametrize("name", committed())
def test_a_committed_reproducer_shows_alone(name):
    assert run_reproducer(CRASHES / name) == 1


@pytest.mark.parametrize("name", committed())
def test_a_committed_reproducer_shows_by_replay(name):
    outcome = replay(CRASHES / name)
    assert outcome.state is State.SHOWS, outcome.text


@pytest.mark.parametrize("name", committed())
def test_a_committed_reproducer_is_small_and_whole(name):
    files = {entry.name: entry.stat().st_size for entry in (CRASHES / name).iterdir()}
    assert {"repro.py", "inputs.safetensors", "model.onnx", "finding.json", "issue.md"} <= set(files)
    assert sum(files.values()) < 100_000
