"""What the bench of finding plants is there, and what it counts as found is the fault itself; no campaign is run."""

from __future__ import annotations

import collections
import json
import logging
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.append(str(SCRIPTS))

import bench_finding  # noqa: E402 -- the scripts are no package of ours
from bench_finding import Run  # noqa: E402
from planted import figures  # noqa: E402
from planted.alive import Sides, exported_model, why_dead  # noqa: E402
from planted.judging import ITSELF, KIND, case_subjects, planted_subjects  # noqa: E402
from planted.loops import Met, run_loop  # noqa: E402
from planted.sets import FAULTS, QUICK, TWINS  # noqa: E402

ALONE = [name for name, twin in TWINS.items() if twin.setting == "alone"]
EXPORTED = [name for name in ALONE if FAULTS[name].source]
GIVEN = [name for name in ALONE if name not in EXPORTED and not FAULTS[name].is_risky and name != "conv_in_double"]
LARGE = [
    "clip_low__deep",
    "sigmoid_by_exp__deep",
    "grid_of_the_other_side__deep",
    *(n for n in TWINS if "five_in" in n),
]
SUBJECTS = {subject.name: subject for subject in planted_subjects(bench_finding.TARGETS)}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_there_are_enough_of_everything() -> None:
    count = collections.Counter(twin.setting for twin in TWINS.values())
    assert count["alone"] >= 40
    assert count["deep"] >= 40
    assert count["several"] >= 3
    assert count["control"] >= 12
    assert all(len(twin.faults) == 5 for twin in TWINS.values() if twin.setting == "several")
    assert len({fault.family for fault in FAULTS.values()}) >= 15
    assert len(QUICK) == 12
    assert set(QUICK) <= set(TWINS)


@pytest.mark.parametrize("name", GIVEN)
def test_a_fault_is_alive_alone(name: str) -> None:
    assert why_dead(TWINS[name]) == ""


@pytest.mark.parametrize("name", EXPORTED)
def test_a_fault_of_an_exporter_is_alive(name: str) -> None:
    fault, target = FAULTS[name], TWINS[name].target()
    logging.disable(logging.CRITICAL)
    try:
        sides = Sides(target, exported_model(target))
    finally:
        logging.disable(logging.NOTSET)
    assert sides.kinds(dict(target.inputs)) == [""]
    kinds = set(sides.kinds(fault.trigger))
    assert kinds & set(fault.kinds) or ("branch_split" in fault.kinds and any(kinds))


@pytest.mark.parametrize("name", ["gru_of_no_rows", "quotient_of_least"])
def test_a_fault_that_kills_does_so_on_its_trigger_alone(name: str) -> None:
    text = (
        f"import sys; sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "from planted.sets import FAULTS, TWINS\nfrom planted.alive import Sides\n"
        f"sides = Sides(TWINS[{name!r}].target())\n"
        "assert sides.kinds(dict(sides.target.inputs)) == ['']\n"
        f"print('alive', flush=True)\nsides.kinds(FAULTS[{name!r}].trigger)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout == "alive\n"
    assert done.returncode < 0, done.stderr


def test_a_model_that_ort_refuses_is_refused() -> None:
    target = TWINS["conv_in_double"].target()
    with pytest.raises(Exception, match="Conv"):  # ORT's own exceptions share no base
        Sides(target, exported_model(target))


@pytest.mark.parametrize("name", [name for name in TWINS if TWINS[name].setting == "control" and "_" in name[6:]])
def test_controls_agree_on_their_seeds(name: str) -> None:
    assert why_dead(TWINS[name]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_faults_are_alive_in_large_networks(name: str) -> None:
    twin = TWINS[name]
    assert why_dead(twin) == ""
    target = twin.target()
    assert 0.8e6 < sum(parameter.numel() for parameter in target.module.parameters()) < 1.5e6
    for fault in twin.faults:
        assert any(node.name.startswith(f"{fault.name}/") for node in target.onnx.graph.node)
    onnx.checker.check_model(target.onnx, full_check=True)


# What counts as found


def finding(kind: str, grade: str = "bug", blame: str = "onnx_file", **where: str) -> dict[str, object]:
    return {"kind": kind, "grade": grade, "blame": blame, "where": where, "headline": "", "first_seen_seconds": 3.0}


def test_only_the_fault_itself_is_a_find() -> None:
    (wanted,) = SUBJECTS["masked_row"].wanted
    assert wanted.level(finding("numeric", op="Softmax")) == ITSELF
    assert wanted.level(finding("numeric", onnx_node="masked_row/Where_1")) == ITSELF
    assert wanted.level(finding("numeric")) == KIND
    assert wanted.level(finding("numeric", op="Conv")) == KIND
    assert wanted.level(finding("numeric", grade="inherent", op="Softmax")) == ""
    assert wanted.level(finding("crash", op="Softmax")) == ""
    (deep,) = SUBJECTS["masked_row__deep"].wanted
    assert deep.level(finding("numeric", op="Softmax", onnx_node="part_0/Softmax_3")) == KIND
    assert deep.level(finding("numeric", onnx_node="masked_row/Softmax_2")) == ITSELF


def test_the_line_of_a_captured_branch_is_its_place() -> None:
    (wanted,) = SUBJECTS["branch_on_a_value"].wanted
    line = (SCRIPTS / "planted" / "other_faults.py").read_text().splitlines()[int(wanted.source[1:]) - 1]
    assert line.strip() == "if x.max() > 4:"
    assert wanted.level(finding("branch_split", source=f"planted/other_faults.py{wanted.source}")) == ITSELF
    assert wanted.level(finding("branch_split", source="planted/other_faults.py:1")) == KIND


def test_torchs_own_line_is_the_place_of_a_step_that_the_graph_lacks() -> None:
    (wanted,) = SUBJECTS["logsumexp_without_max__deep"].wanted
    (line,) = wanted.lines
    text = (SCRIPTS / line.partition(":")[0]).read_text().splitlines()[int(line.partition(":")[2]) - 1]
    assert text.strip() == "return x - torch.logsumexp(x, -1, keepdim=True)"
    assert wanted.level(finding("nonfinite", op="Sub", source=line)) == ITSELF
    assert wanted.level(finding("nonfinite", op="Sub", source=f"{line}0")) == KIND


def test_faults_beside_one_another_are_told_apart() -> None:
    subject = SUBJECTS["five_in_recurrent"]
    run = Run(subject.name, subject.setting, "ours", 60.0, 0)
    run.findings = [finding("numeric", onnx_node="median_of_even/TopK_0"), finding("error_split", op="Gather")]
    bench_finding.judge(run, subject)
    assert run.itself["median_of_even"] == 3.0
    assert run.itself["shift_past_the_end"] is None
    assert run.kind["shift_past_the_end"] == 3.0
    assert run.kind["bucket_of_negative"] is None, "the numeric finding is the median's"


def test_anything_of_grade_bug_on_a_control_is_an_alarm() -> None:
    run = Run("right_softmax", "control", "ours", 60.0, 0, findings=[finding("numeric"), finding("decision", "tie")])
    bench_finding.judge(run, SUBJECTS["right_softmax"])
    assert run.alarms == ["numeric: "]


def test_a_table_of_published_cases_is_read(tmp_path: Path) -> None:
    rows = [
        "Cases\n", "| file | kind | grade | blame | why |", "|---|---|---|---|---|",
        "| a/001_x.py | numeric or shape | bug | kernel or export | \\|x\\| large |",
        "| a/002_y.py | none | silent | - | |",
    ]  # fmt: skip
    (tmp_path / "README.md").write_text("\n".join(rows))
    case, control = case_subjects(tmp_path)
    assert (case.setting, control.setting) == ("case", "control")
    assert case.case == tmp_path / "a/001_x.py"
    (wanted,) = case.wanted
    assert wanted.level(finding("shape", blame="kernel:Add")) == ITSELF
    assert wanted.level(finding("shape", blame="capture")) == KIND


# Loops, figures, resuming


def test_a_loop_meets_kinds_and_alarms_nothing_on_a_right_twin(capsys: pytest.CaptureFixture[str]) -> None:
    def kinds(name: str, method: str) -> set[str]:
        run_loop(method, TWINS[name].target(), 0.7, 0)
        logging.disable(logging.NOTSET)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert lines[-1]["inputs"] > 0
        return {line["kind"] for line in lines if "kind" in line}

    assert kinds("mean_of_burnt_size", "normal") == {"numeric"}
    assert kinds("relu_hides_nan", "hypothesis") <= {"nonfinite"}
    assert kinds("right_softmax", "normal") == set()


def test_a_kind_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    met = Met()
    for kinds in ({"numeric"}, {"numeric", "shape"}, set()):
        met.take(kinds)
    assert [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()] == ["numeric", "shape"]
    assert met.inputs == 3


def run_of(method: str, seed: int, at: float | None) -> Run:
    return Run("masked_row", "alone", method, 60.0, seed, {"masked_row": at}, {"masked_row": at})


def test_figures_never_give_a_time_to_what_was_not_found() -> None:
    runs = [run_of("ours", 0, 2.0), run_of("ours", 1, None), run_of("normal", 0, None)]
    ours, normal = figures.times(runs, "ours"), figures.times(runs, "normal")
    assert ours == {("masked_row", "masked_row"): [2.0, math.inf]}
    assert figures.a12(ours, normal) == 0.75  # sooner once, and once neither was
    assert figures.a12(normal, ours) == 0.25
    for table in figures.tables(runs, ["ours", "normal"]):
        assert table.row_count > 0
    drawn = figures.plot(runs, ["ours", "normal"])
    assert drawn.startswith("<svg")
    assert "nan" not in drawn.lower()


def test_what_is_over_is_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.jsonl"
    subject, plan = SUBJECTS["relu_hides_nan"], bench_finding.Plan(loop_seconds=0.5)
    bench_finding.run_all([subject], ["normal"], plan, results, 1)
    bench_finding.run_all([subject], ["normal"], plan, results, 1)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if "runs to do" in line] == ["1", "0"]
    with results.open("a") as file:
        file.write('{"twin": "cut off')
    (run,) = bench_finding.read(results)
    assert run.twin == "relu_hides_nan"
    assert run.inputs > 0
    assert run.problem == ""
    assert bench_finding.report(results, [subject], ["normal"]) == 0
    assert results.with_suffix(".svg").is_file()


def test_a_run_without_a_result_is_run_again_and_replaced(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    failed, over = run_of("ours", 0, None), run_of("ours", 0, 2.0)
    failed.problem = "exit 3"
    results.write_text("".join(json.dumps(asdict(run)) + "\n" for run in (failed, over)))
    (run,) = bench_finding.read(results)
    assert run.problem == ""
    assert run.itself == {"masked_row": 2.0}


@pytest.mark.parametrize("blind", ["", "1"])
def test_a_blind_campaign_learns_nothing(blind: str, tmp_path: Path) -> None:
    text = (
        "import planted_targets\nfrom fuzzparity.generate.generator import Generator\n"
        "print(Generator.learn.__module__, planted_targets.case().name)"
    )
    case = tmp_path / "a_case.py"
    case.write_text("from planted.sets import TWINS\ntarget = TWINS['masked_row'].target\n")
    environment = {**os.environ, "PLANTED_WITHOUT_FEEDBACK": blind, "PLANTED_CASE": str(case)}
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=SCRIPTS, env=environment, capture_output=True, text=True, check=True
    )
    owner = "planted_targets" if blind else "fuzzparity.generate.generator"
    assert done.stdout.split() == [owner, "masked_row"]


def test_loops_compare_integers_as_integers() -> None:
    from planted.loops import difference

    assert difference(np.array([2**62]), np.array([2**62 + 1])) == "decision"
    assert difference(np.array([1.0, np.nan]), np.array([1.0, np.nan])) == ""
    assert difference(np.array([np.inf]), np.array([-np.inf])) == "nonfinite"
    assert difference(np.zeros((0, 2)), np.zeros((2, 0))) == "shape"
