"""What moves and families of parents brought is added up by campaign, and `status` tells it."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fuzzparity.commands.database import status
from fuzzparity.corpus.database import Corpus
from fuzzparity.report.tables import status_view

SOURCE = """
import torch
from fuzzparity import Target

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2

def target():
    return Target(module=Net(), inputs={"x": torch.randn(3, 8)}, dynamic_shapes={"x": {0: "rows"}}, batch="rows")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which two campaigns of 400 cases have run."""
    place = tmp_path_factory.mktemp("efforts")
    (place / "target.py").write_text(SOURCE)
    for _ in range(2):
        command = [sys.executable, "-m", "fuzzparity", "fuzz", "target.py", "--cases", "400", "--json", "out.json"]
        done = subprocess.run(
            [*command, "--corpus", "c.sqlite"], cwd=place, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_each_campaign_has_the_efforts_of_its_own_leases(folder: Path) -> None:
    with Corpus.open(folder / "c.sqlite", read_only=True) as corpus:
        campaigns = [row.campaign_id for row in corpus.campaigns()]
        efforts = [corpus.efforts(one) for one in campaigns]
    assert json.loads((folder / "out.json").read_text())["campaign_id"] == campaigns[-1]
    for found in efforts:
        assert {effort.kind for effort in found} == {"move", "parents"}
        used = sum(effort.tried for effort in found if effort.kind == "parents")
        assert 0 < used <= 400
        assert any(effort.name.startswith("row ") for effort in found)
    moves = [effort.kept for effort in efforts[0] if effort.kind == "move"]
    assert moves == sorted(moves, reverse=True)
    assert sum(moves) > 0


def test_status_names_what_paid(folder: Path) -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(status_view(status(str(folder / "c.sqlite"))))
    said = console.export_text()
    with Corpus.open(folder / "c.sqlite", read_only=True) as corpus:
        best = corpus.efforts(corpus.campaigns()[-1].campaign_id)[0]
    if best.kept:
        assert f"{best.name} {best.kept} of {best.tried}" in said


def test_a_file_of_an_earlier_version_has_none_and_gets_the_table(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    Corpus.open(path, create=True).close()
    with sqlite3.connect(path) as connection:
        connection.execute("drop table efforts")
        connection.execute("delete from migrations where name = '0004_efforts'")
    with Corpus.open(path, read_only=True) as corpus:
        assert corpus.efforts("c") == ()
    with Corpus.open(path) as corpus:
        corpus.add_efforts("c", {("move", "gain"): (3, 1), ("parents", "ratio"): (5, 0)})
        corpus.add_efforts("c", {("move", "gain"): (2, 2)})
        assert [(one.name, one.tried, one.kept) for one in corpus.efforts("c")] == [("gain", 5, 3), ("ratio", 5, 0)]
