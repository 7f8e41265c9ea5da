"""Every awkward target runs from the command line, and its right twin is not called wrong."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import awkward
import pytest

from fuzzparity import Target

NAMES = [
    name
    for name, made in inspect.getmembers(awkward, inspect.isfunction)
    if made.__module__ == "awkward" and inspect.signature(made).return_annotation == "Target"
]


def test_there_are_twenty_targets_and_more() -> None:
    assert len(NAMES) >= 20
    assert all(isinstance(getattr(awkward, name)(), Target) for name in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_awkward_target_is_fuzzed_and_no_bug_is_called(name: str, tmp_path: Path) -> None:
    options = ["--cases", "300", "--workers", "1", "--rng-seed", "7", "--json", "out.json"]
    ended = subprocess.run(
        [sys.executable, "-m", "fuzzparity", "fuzz", f"{awkward.__file__}:{name}", *options],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # where a target writes the files of its twin
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (tmp_path / "out.json").exists(), ended.stdout + ended.stderr
    answer = json.loads((tmp_path / "out.json").read_text())
    bugs = [f"{finding['kind']}: {finding['headline']}" for finding in answer["findings"] if finding["grade"] == "bug"]
    assert bugs == []
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert answer["executions"] >= 300
    assert answer["rejected"] < answer["executions"] / 2
