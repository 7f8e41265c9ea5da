"""Whole validation sets: a table that survives deaths and Ctrl-C, imports that choose, one finding per input."""

from __future__ import annotations

import itertools
import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fuzzparity.campaign.options import TargetOptions
from fuzzparity.campaign.setup import Prepared
from fuzzparity.cli import cli
from fuzzparity.commands.running import opened
from fuzzparity.commands.validation import import_all, run_all
from fuzzparity.corpus.database import Corpus
from fuzzparity.errors import InvalidCase
from fuzzparity.explain.dataset import Row, Validation
from fuzzparity.finding import Suspect
from fuzzparity.report.live import console
from fuzzparity.report.validation import imported_text, ranges_text, validation_text

TARGET = """
    import os, signal
    import torch
    from onnx import TensorProto, helper
    from fuzzparity import Target

    class Net(torch.nn.Module):
        def forward(self, x):
            first = float(x.reshape(-1)[0]) if x.numel() else 0.0
            if first == 666:
                os.kill(os.getpid(), signal.SIGSEGV)
            if first == 13:
                raise ValueError("thirteen")
            return torch.where(x > 100, x * 3, x * 2)

    def model():
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
        two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
        graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["y"])], "doubling", [x], [y], [two])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def endless():
        for number in range(10**9):
            yield {"x": torch.full((1, 4), float(number % 50))}

    def read(path):
        name, _, number = os.path.basename(path).partition("_")
        if name == "killer":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "bad":
            raise OSError("truncated")
        return {"x": torch.full((1, 4), float(number)), "label": 1}

    def declared(**fields):
        return Target(module=Net(), inputs={"x": torch.tensor([[0.0, 1, 2, 3]])}, onnx=model(), outputs=["y"],
                      dynamic_shapes={"x": {0: "n"}}, **fields)

    def target():
        return declared()

    def reading():
        return declared(read=read)

    def streaming():
        return declared(seeds=endless, read=read)
"""


class Silent:
    def status(self, status: Any) -> None: ...
    def started(self, facts: Any, places: Any, notes: Any) -> None: ...
    def finding(self, finding: Any, *, is_new: bool) -> None: ...
    def note(self, text: str) -> None: ...


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = Path.cwd()
    folder = tmp_path_factory.mktemp("validation")
    (folder / "subject.py").write_text(textwrap.dedent(TARGET))
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def prepared(here: Path) -> Iterator[Prepared]:
    options = TargetOptions(target="subject.py:streaming", corpus=here / "own.sqlite")
    with opened(options, Silent(), first_seeds_only=True) as found:
        yield found


def shown(renderable: Any) -> str:
    target = console()
    target.width = 160
    with target.capture() as captured:
        target.print(renderable)
    return captured.get()


@pytest.fixture(scope="module")
def files(here: Path) -> Path:
    folder = here / "files"
    folder.mkdir()
    for name in ("ok_1", "ok_2", "ok_3", "ok_4", "ok_5", "bad_0", "crash_666", "differs_200", "killer_0", "refuses_13"):
        (folder / name).touch()
    return folder


def table_of(prepared: Prepared, *paths: Path, **more: Any) -> tuple[Validation, list[Suspect]]:
    suspects: list[Suspect] = []
    given = {"own": False, "take": suspects.append, **more}
    return run_all(prepared, tuple(map(str, paths)), given.pop("say", lambda stage: None), **given), suspects


def test_every_file_gets_its_row_whatever_it_does_to_the_process(prepared: Prepared, files: Path) -> None:
    table, suspects = table_of(prepared, files)
    found = {Path(row.where).name: (row.kind, row.grade) for row in table.rows}
    assert found == {
        "crash_666": ("crash", "bug"),
        "differs_200": ("numeric", "bug"),
        "ok_1": ("agree", ""),
        "ok_2": ("agree", ""),
        "ok_3": ("agree", ""),
        "ok_4": ("agree", ""),
        "ok_5": ("agree", ""),
        "refuses_13": ("error_split", "bug"),
    }
    assert sorted(Path(line.partition(": ")[0]).name for line in table.skipped) == ["bad_0", "killer_0"]
    assert {suspect.bucket.finding_id for suspect in suspects} == {i for row in table.rows for i in row.finding_ids}
    assert all(row.realism == "near" for row in table.rows)
    assert [Path(row.where).name for row in table.worst()] == ["crash_666", "refuses_13", "differs_200"]
    assert (table.beyond, table.counts()[0], table.counts()[-1]) == (3, ("crash", "bug", 1), ("agree", "", 5))
    assert table.quantiles()[0].compared == 6
    assert table.ranges[0].data[0].high == 200  # seen before a later file killed the process
    text = shown(validation_text(table))
    for part in ("8 inputs", "crash", "SIGSEGV", "3 of 8 inputs (37.5 %)", "p99", "killer_0", "truncated"):
        assert part in text


def test_what_is_done_by_ctrl_c_is_the_answer(prepared: Prepared) -> None:
    def say(stage: str) -> None:
        if "0 inputs" not in stage:
            raise KeyboardInterrupt

    table, suspects = table_of(prepared, own=True, say=say)
    assert table.rows
    assert table.stopped
    assert not suspects
    assert {row.kind for row in table.rows} == {"agree"}
    assert "stopped by Ctrl-C" in shown(validation_text(table))


def test_inputs_that_look_the_same_share_their_grade(prepared: Prepared, here: Path) -> None:
    folder = here / "alike"
    folder.mkdir()
    for index in range(30):
        (folder / f"differs{index:02}_{200 + index}").touch()
    table, suspects = table_of(prepared, folder)
    assert {(row.kind, row.grade) for row in table.rows} == {("numeric", "bug")}
    assert (len(table.rows), table.beyond, table.judged, len(suspects)) == (30, 30, 8, 1)
    assert len({row.finding_ids for row in table.rows}) == 1


def test_an_import_keeps_a_diverse_part_and_all_of_it_counts(prepared: Prepared, here: Path) -> None:
    rng = np.random.default_rng(0)
    folder = here / "arrays"
    folder.mkdir()
    for index, value in enumerate(rng.normal(size=300)):
        (folder / f"v{index:03}_{value:.5f}").touch()
    (folder / "v300_77").touch()
    took = import_all(prepared, (str(folder),), 12, lambda stage: None)
    assert (took.added, took.known, took.read) == (12, 0, 301)
    span = took.ranges[0].data[0]
    with Corpus.open(took.corpus, read_only=True) as corpus:
        kept = [corpus.case(row.digest).inputs["x"] for row in corpus.cases(origin="import")]
    assert len(kept) == 12
    assert (min(array.min() for array in kept), max(array.max() for array in kept)) == (span.low, span.high)
    assert span.high == 77
    assert "12 of 301 inputs kept" in took.notes[0]
    again = import_all(prepared, (str(folder),), None, lambda stage: None)
    assert (again.added, again.known, again.read) == (289, 12, 301)
    text = shown(imported_text(again))
    assert "289 new case(s), 12 already there, of 301 inputs read" in text
    assert "first seed: min" in text
    with pytest.raises(InvalidCase, match="there is no file"):
        import_all(prepared, ("absent.npy",), None, lambda stage: None)


def run(*words: str) -> tuple[Result, dict[str, Any]]:
    done = CliRunner().invoke(cli, [*words, "--json", "out.json"])
    assert Path("out.json").exists(), (done.output, done.exception)
    return done, json.loads(Path("out.json").read_text())


@pytest.mark.slow
def test_explain_of_a_folder_tells_one_finding_per_input_and_minimizes_what_differs(here: Path) -> None:
    folder = here / "few"
    folder.mkdir()
    for name in ("a_1", "b_200", "c_300", "d_2"):
        (folder / name).touch()
    done, answer = run("explain", "subject.py:reading", str(folder), "--corpus", "few.sqlite")
    assert done.exit_code == 1
    assert [Path(found["input"]).name for found in answer["findings"]] == ["a_1", "b_200", "c_300", "d_2"]
    assert [found["kind"] for found in answer["findings"]] == ["agree", "numeric", "numeric", "agree"]
    assert answer["findings"][1]["finding_id"] == answer["findings"][2]["finding_id"] != ""
    assert answer["findings"][1]["reproduced"] is True
    assert Path(answer["findings"][1]["path"], "repro.py").is_file()
    assert answer["findings"][2]["error_ratio"] > answer["findings"][1]["error_ratio"] > 1
    assert answer["validation"]["outcomes"] == [
        {"kind": "numeric", "grade": "bug", "inputs": 2},
        {"kind": "agree", "grade": None, "inputs": 2},
    ]
    assert "2 of 4 inputs (50 %)" in done.output


@pytest.mark.slow
def test_check_of_all_seeds_is_a_table_and_check_shows_ranges(here: Path) -> None:
    np.save(here / "set.npy", np.random.default_rng(0).random((100, 4), np.float32))
    done, answer = run("check", "subject.py", "--all-seeds", "--seeds", "set.npy")
    assert done.exit_code == 0, done.output
    assert (answer["validation"]["inputs"], answer["validation"]["beyond_screen"]) == (100, 0)
    assert [found["input"] for found in answer["inputs"][:2]] == ["set.npy[0]", "set.npy[1]"]
    assert answer["validation"]["notes"][0].startswith("1 file(s) hold many items along the batch axis")
    assert "100 inputs on both sides" in done.output
    plainly, told = run("check", "subject.py", "--seeds", "set.npy")
    assert told["ranges"] == answer["ranges"]
    assert "first seed: min" in plainly.output


def test_quantiles_are_values_that_occur_and_the_worst_are_ordered() -> None:
    ratios = [index / 10 for index in range(1, 101)]
    rows = [Row(f"f{index}", (index, 0), "agree", ratios=(ratio,)) for index, ratio in enumerate(ratios)]
    table = Validation(("y",), rows)
    assert table.quantiles()[0].values == (5.0, 9.0, 9.9, 10.0)
    assert [row.where for row in table.worst(2)] == ["f99", "f98"]
    odd = Row("odd", (100, 0), "shape", "note", (float("inf"),))
    table.rows.append(odd)
    assert table.worst(2) == [odd]
    assert shown(validation_text(Validation(("y",))))
    assert shown(ranges_text(())).strip() == ""
    assert list(itertools.chain(*(found.values for found in Validation(("y",)).quantiles()))) == []
