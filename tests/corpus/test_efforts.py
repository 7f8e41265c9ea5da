"""What moves and families of parents brought is added up by campaign, and `status` tells it."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fuzzparity.commands.database import status
from fuzzparity.commands.reporting import knowledge
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.telling import efforts_of as efforts_of_all
from fuzzparity.report.html import html_report
from fuzzparity.report.paying import MOVE, efforts_of, idle_text
from fuzzparity.report.records import CampaignStatus
from fuzzparity.report.tables import status_view
from fuzzparity.report.text import status_panel
from fuzzparity.verdict import as_plain

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


def test_json_of_status_holds_every_count(folder: Path) -> None:
    with Corpus.open(folder / "c.sqlite", read_only=True) as corpus:
        stored = corpus.efforts(corpus.campaigns()[-1].campaign_id)
    (told,) = as_plain(status(str(folder / "c.sqlite")))
    assert [(one["kind"], one["name"], one["tried"], one["kept"]) for one in told["efforts"]] == [
        (one.kind, one.name, one.tried, one.kept) for one in stored
    ]


def test_a_report_adds_up_all_campaigns(folder: Path) -> None:
    known = knowledge(str(folder / "c.sqlite"), with_tensors=False)
    with Corpus.open(folder / "c.sqlite", read_only=True) as corpus:
        every = [one for row in corpus.campaigns() for one in corpus.efforts(row.campaign_id)]
    assert sum(one.tried for one in known.efforts) == sum(one.tried for one in every)
    best = next(one for one in known.efforts if one.kind == "move")
    assert best.kept == max(
        sum(o.kept for o in every if o.name == one.name) for one in known.efforts if one.kind == MOVE
    )
    assert f'<td>{best.name}</td><td class="figure">{best.tried:,}</td>' in html_report(known)


def test_the_panel_names_the_best_three_moves_and_the_families_that_pay() -> None:
    efforts = efforts_of(
        {
            **{("move", f"move {n}"): (10, n) for n in range(5)},
            ("parents", "ratio"): (30, 4),
            ("parents", "seeds"): (90, 0),
        }
    )
    panel = CampaignStatus("fuzzing", seconds=1.0, executions=1, efforts=efforts)
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(status_panel(panel))
    said = console.export_text()
    assert "pays      move 4 4 of 10, move 3 3 of 10, move 2 2 of 10; parents: ratio 4" in said.replace("\n", " ")
    assert "seeds" not in said
    console.print(status_panel(replace(panel, efforts=())))
    assert "pays" not in console.export_text()


def test_moves_that_bring_nothing_are_named_when_they_were_used_often() -> None:
    efforts = efforts_of({("move", "idle"): (80, 0), ("move", "young"): (3, 0), ("move", "gain"): (100, 2)})
    assert idle_text(efforts, 3) == "idle 0 of 80"


def test_a_file_of_an_earlier_version_has_none_and_gets_the_table(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    Corpus.open(path, create=True).close()
    with sqlite3.connect(path) as connection:
        connection.execute("drop table efforts")
        connection.execute("delete from migrations where name = '0004_efforts'")
    with Corpus.open(path, read_only=True) as corpus:
        assert corpus.efforts("c") == ()
        assert efforts_of_all(corpus) == ()
    with Corpus.open(path) as corpus:
        corpus.add_efforts("c", {("move", "gain"): (3, 1), ("parents", "ratio"): (5, 0)})
        corpus.add_efforts("c", {("move", "gain"): (2, 2)})
        assert [(one.name, one.tried, one.kept) for one in corpus.efforts("c")] == [("gain", 5, 3), ("ratio", 5, 0)]
