"""Targets in corpora/ whose files scripts/fetch brings: both sides agree on the seeds, and a false twin is told.

Each test is skipped by the name of its target where the files, or the library that the target is made of, are absent.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = {
    "silero_vad": ["output", "stateN"],
    "pnet": ["boxes", "faces"],
    "onet": ["box", "landmarks", "face"],
    "encoder": ["last_hidden_state", "pooler_output"],
}


def need(name: str) -> Path:
    """Return a target's folder, or skip with the reason."""
    folder = ROOT / "corpora" / name
    told = tomllib.loads((folder / "fetch.toml").read_text())
    missing = [path for path in told.get("files", {}) if not (folder / "files" / Path(path).name).is_file()]
    if missing:
        pytest.skip(f"corpora/{name}: {', '.join(missing)} not fetched; run scripts/fetch {name}")
    for module in {"encoder": ["transformers"], "pnet": ["PIL"]}.get(name, []):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"corpora/{name}: {module} is not installed; run scripts/fetch {name}")
    return folder


def ask(folder: Path, *words: object) -> tuple[int, str, dict[str, Any]]:
    """Run a command in a folder; return its exit code, what it said, and the object of --json."""
    command = [sys.executable, "-m", "fuzzparity", *map(str, words), "--json", "out.json"]
    ended = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    out = folder / "out.json"
    return ended.returncode, ended.stdout + ended.stderr, json.loads(out.read_text()) if out.exists() else {}


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTPUTS)
def test_both_sides_of_a_published_model_agree_on_its_seeds(name: str, tmp_path: Path) -> None:
    folder = need(name)
    code, said, answer = ask(tmp_path, "check", folder, "--corpus", "corpus.sqlite")
    assert code == 0, said
    assert [one for one in answer["differing"] if one["verdict"]["grade"] == "bug"] == []
    assert answer["outputs"] == OUTPUTS[name]
    assert answer["seeds"] > 20


@pytest.mark.slow
def test_a_false_twin_is_told_at_once_on_both_outputs_with_how_far(tmp_path: Path) -> None:
    folder = need("vad_false_twin")
    code, said, answer = ask(tmp_path, "fuzz", folder, "--cases", "100", "--corpus", "corpus.sqlite")
    assert code == 1, said
    bugs = [finding for finding in answer["findings"] if finding["grade"] == "bug"]
    assert {bug["kind"] for bug in bugs} == {"numeric"}
    assert {bug["where"]["output"] for bug in bugs if bug["error_ratio"] > 1000} == {"output", "stateN"}
    assert answer["executions"] == 0, "no search among inputs when every seed differs"


@pytest.mark.slow
def test_a_target_without_its_files_says_how_to_fetch_them(tmp_path: Path) -> None:
    (tmp_path / "silero_vad").mkdir()
    (tmp_path / "silero_vad" / "target.py").write_text((ROOT / "corpora" / "silero_vad" / "target.py").read_text())
    code, said, _ = ask(tmp_path, "check", "silero_vad")
    assert code == 2
    assert "fetch it with: scripts/fetch silero_vad" in said


def photos(folder: Path, count: int) -> None:
    """Write photos of many sizes: cuts of those that corpora/pnet holds."""
    from PIL import Image

    folder.mkdir()
    wholes = [Image.open(path).convert("RGB") for path in sorted((ROOT / "corpora" / "pnet" / "seeds").glob("*.jpg"))]
    for number in range(count):
        whole = wholes[number % len(wholes)]
        side, left, top = 24 + number % 40, number % 17, number % 23
        whole.crop((left, top, left + side + number % 7, top + side)).save(folder / f"photo{number:03}.png")


@pytest.mark.slow
def test_a_folder_of_photos_goes_in_through_read_and_is_refused_without(tmp_path: Path) -> None:
    folder = need("pnet")
    photos(tmp_path / "photos", 200)
    code, said, answer = ask(tmp_path, "import", folder, "photos", "--corpus", "corpus.sqlite")
    assert code == 0, said
    assert answer["read"] == 200, said
    (tmp_path / "bare.py").write_text(
        f"import dataclasses, sys\nsys.path.insert(0, {str(folder)!r})\nimport target as pnet\n"
        "def target():\n    return dataclasses.replace(pnet.target(), read=None)\n"
    )
    code, said, _ = ask(tmp_path, "import", "bare.py", "photos", "--corpus", "bare.sqlite")
    assert code == 2
    assert "read" in said
