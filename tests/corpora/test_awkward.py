"""Every awkward target runs from the command line, and its right twin is not called wrong."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import awkward
import pytest

NAMES = [
    name
    for name, made in inspect.getmembers(awkward, inspect.isfunction)
    if made.__module__ == "awkward" and inspect.signature(made).return_annotation == "Target"
]
CASES = 300
SAID = {  # what a user must be told about a target
    "dropped_by_export": "the ONNX model does without input unused",
    "fewer_onnx_inputs": "the ONNX model does without input unused",
    "shape_cache": "the module keeps state: attribute `grids`",
    "counts_calls": "the module keeps state: attribute `seen`, buffer `calls`",
    "in_place": "the module writes to its inputs",
    "left_in_training": "put in eval mode",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """Hold how a campaign ended."""

    code: int
    said: str
    answer: dict[str, Any]


def fuzz(name: str, folder: Path) -> Ended:
    """Run a short campaign on a target, in a folder of its own."""
    folder.mkdir()
    options = ["--cases", str(CASES), "--workers", "1", "--rng-seed", "7", "--json", "out.json"]
    ended = subprocess.run(
        [sys.executable, "-m", "fuzzparity", "fuzz", f"{awkward.__file__}:{name}", *options],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "200"},  # TMPDIR: where a target writes its twin
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    said, out = ended.stdout + ended.stderr, folder / "out.json"
    assert out.exists(), said
    return Ended(ended.returncode, said, json.loads(out.read_text()))


@pytest.fixture(scope="module")
def campaigns(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ended]]]:
    """Start the campaigns of all selected tests, as many at once as there are cores: most of each is loading."""
    here = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    names = dict.fromkeys(item.callspec.params["name"] for item in here)
    folder = tmp_path_factory.mktemp("awkward")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {name: pool.submit(fuzz, name, folder / name) for name in names}
        pool.shutdown(cancel_futures=True)


def test_there_are_twenty_targets_and_more() -> None:
    assert len(NAMES) >= 20
    assert set(SAID) <= set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_awkward_target_is_fuzzed_and_no_bug_is_called(name: str, campaigns: dict[str, Future[Ended]]) -> None:
    ended = campaigns[name].result()
    bugs = [f"{found['kind']}: {found['headline']}" for found in ended.answer["findings"] if found["grade"] == "bug"]
    assert bugs == []
    assert ended.code == 0, ended.said
    assert sum(build["executions"] for build in ended.answer["builds"] or [ended.answer]) >= CASES
    assert ended.answer["rejected"] < ended.answer["executions"] / 2
    assert SAID.get(name, "") in ended.said
