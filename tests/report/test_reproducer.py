import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import twins
from onnx import TensorProto

from fuzzparity.corpus.codec import decode
from fuzzparity.errors import InvalidUsage
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.report.reproducer import run_reproducer, write_reproducer
from fuzzparity.target import Ort, Tolerance
from fuzzparity.verdict import Comparison, Kind

INT_MIN = np.iinfo(np.int32).min


def replayed(folder: Path, cwd: Path) -> tuple[int, str]:
    """Run repro.py from another folder, as a user would."""
    ended = subprocess.run(
        [sys.executable, str(folder / "repro.py")], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


def crash_content(**more):
    x = np.zeros((2, 0, 3), np.float32)
    given = {"expected": twins.ok(TORCH, np.zeros((2, 1, 0, 4), np.float32)), "actual": twins.died(ORT, 6), "side": ORT}
    return twins.content(twins.lstm_model(), {"x": x}, Kind.CRASH, **{**given, **more})


def test_a_numeric_fault_shows_from_another_folder_and_is_gone_once_healed(tmp_path):
    folder = write_reproducer(tmp_path / "crashes", twins.numeric())
    code, text = replayed(folder, tmp_path)
    assert code == 1, text
    assert "SHOWS" in text
    assert "torch 2.5 / ORT 2.75 at [0, 1]" in text
    assert "version:  onnxruntime" in text
    assert "model.onnx" not in (folder / "repro.py").read_text(), "a small model is written out"
    folder = write_reproducer(tmp_path / "crashes", twins.numeric(constant=0.5))
    code, text = replayed(folder, tmp_path)
    assert (code, "GONE" in text) == (0, True), text


def test_files_serve_where_nothing_is_written_out(tmp_path):
    content = twins.numeric(write_out=False)
    folder = write_reproducer(tmp_path, content)
    assert replayed(folder, tmp_path / "..")[0] == 1
    healed = twins.add_model(0.5).SerializeToString()
    (folder / "model.onnx").write_bytes(healed)
    assert replayed(folder, tmp_path)[0] == 0


def test_the_folder_holds_every_file_and_the_arrays_are_bit_equal(tmp_path):
    content = twins.numeric()
    folder = write_reproducer(tmp_path, content)
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "expected.safetensors",
        "finding.json",
        "inputs.safetensors",
        "issue.md",
        "model.onnx",
        "repro.py",
    ]
    assert decode((folder / "inputs.safetensors").read_bytes())["x"].tobytes() == content.case.inputs["x"].tobytes()
    plain = json.loads((folder / "finding.json").read_text())
    assert plain["feeds"] == {"x": "x"}
    assert plain["allowed"]["y"] == {"rtol": 1.3e-6, "atol": 1e-5, "unordered": None}
    assert [entry.name for entry in tmp_path.iterdir()] == [folder.name]


def test_a_real_abort_shows_and_a_healed_model_is_gone(tmp_path):
    folder = write_reproducer(tmp_path, crash_content())
    code, text = replayed(folder, tmp_path)
    assert code == 1, text
    assert "the process died: SIGABRT" in text, text
    x = np.zeros((2, 1, 3), np.float32)
    healed = twins.content(twins.lstm_model(), {"x": x}, Kind.CRASH, side=ORT, actual=twins.died(ORT, 6))
    assert replayed(write_reproducer(tmp_path / "healed", healed), tmp_path)[0] == 0


def test_a_real_division_fault_shows(tmp_path):
    inputs = {"x": np.array([INT_MIN], np.int32), "z": np.array([-1], np.int32)}
    content = twins.content(twins.div_model(), inputs, Kind.CRASH, side=ORT, actual=twins.died(ORT, 8))
    code, text = replayed(write_reproducer(tmp_path, content), tmp_path)
    assert code == 1, text
    assert "SIGFPE" in text, text


def test_an_endless_loop_shows_as_a_hang_and_leaves_no_process(tmp_path):
    inputs = {"n": np.array(2**40), "x": np.ones(1, np.float32)}
    hang = Execution(ORT, Status.HANG, seconds=2.0)
    content = twins.content(twins.loop_model(), inputs, Kind.HANG, side=ORT, actual=hang, limit_seconds=2.0)
    code, text = replayed(write_reproducer(tmp_path, content), tmp_path)
    assert code == 1, text
    assert "killed" in text, text
    brief = replace(content, case=content.case.replace(n=np.array(3)))
    assert replayed(write_reproducer(tmp_path / "brief", brief), tmp_path)[0] == 0


def test_a_load_failure_shows_and_heals_without_the_guilty_pass(tmp_path):
    inputs = {"x": np.ones(2)}
    actual = twins.refused(ORT, "relu_clip_fusion.cc:LINE Unexpected data type", "load")
    content = twins.content(twins.clip_model(), inputs, Kind.LOAD_ERROR, side=ORT, actual=actual)
    code, text = replayed(write_reproducer(tmp_path, content), tmp_path)
    assert code == 1, text
    assert "relu_clip_fusion" in text, text
    healed = replace(content, ort=Ort(disabled_optimizers=["FuseReluClip"]))
    assert replayed(write_reproducer(tmp_path, healed), tmp_path)[0] == 0


def test_a_refusal_of_ort_shows(tmp_path):
    given = {
        "expected": twins.ok(TORCH, np.ones((2, 3), np.float32)),
        "actual": twins.refused(ORT, "Reshape"),
        "side": ORT,
    }
    content = twins.content(twins.reshape_model(), {"x": np.ones(5, np.float32)}, Kind.ERROR_SPLIT, **given)
    assert replayed(write_reproducer(tmp_path, content), tmp_path)[0] == 1
    healed = twins.content(twins.reshape_model(), {"x": np.ones(6, np.float32)}, Kind.ERROR_SPLIT, **given)
    assert replayed(write_reproducer(tmp_path, healed), tmp_path)[0] == 0


def test_a_refusal_of_torch_alone_shows_while_ort_answers(tmp_path):
    given = {"expected": twins.refused(TORCH, "index out of range"), "actual": twins.ok(ORT, np.ones(6)), "side": TORCH}
    content = twins.content(twins.reshape_model(), {"x": np.ones(6, np.float32)}, Kind.ERROR_SPLIT, **given)
    code, text = replayed(write_reproducer(tmp_path, content), tmp_path)
    assert code == 1
    assert "index out of range" in text
    both = twins.content(twins.reshape_model(), {"x": np.ones(5, np.float32)}, Kind.ERROR_SPLIT, **given)
    assert replayed(write_reproducer(tmp_path, both), tmp_path)[0] == 0


def test_a_steady_session_is_not_unstable(tmp_path):
    content = replace_kind(twins.numeric(), Kind.UNSTABLE)
    assert replayed(write_reproducer(tmp_path, content), tmp_path)[0] == 0


def replace_kind(content, kind):
    verdict = replace(content.finding.verdict, kind=kind, side=ORT, output=None)
    return replace(content, finding=replace(content.finding, verdict=verdict))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Kind.SHAPE, np.ones((1, 4), np.float32)),
        (Kind.DTYPE, np.ones((1, 3), np.float64)),
        (Kind.NONFINITE, np.array([[2, np.nan, 3]], np.float32)),
        (Kind.DECISION, np.array([[True, False, True]])),
    ],
)
def test_every_kind_of_difference_shows(tmp_path, kind, expected):
    content = twins.numeric(expected=twins.ok(TORCH, expected))
    content = replace(content, finding=replace(content.finding, verdict=replace(content.finding.verdict, kind=kind)))
    assert replayed(write_reproducer(tmp_path, content), tmp_path)[0] == 1


def test_an_error_below_the_screen_shows_by_half_of_itself(tmp_path):
    comparison = Comparison(Kind.NUMERIC, 0.5, max_abs=0.25, index=(0, 1))
    content = twins.numeric(allowed={"y": Tolerance(atol=10.0)}, comparison=comparison)
    assert replayed(write_reproducer(tmp_path, content), tmp_path)[0] == 1


def test_bfloat16_goes_in_and_comes_out_as_bits(tmp_path):
    import ml_dtypes
    from onnx import helper

    kinds = [twins.info("x", TensorProto.BFLOAT16, [2])], [twins.info("y", TensorProto.BFLOAT16, [2])]
    model = twins.to_model([helper.make_node("Identity", ["x"], ["y"])], *kinds)
    x = np.array([1, 0.1], ml_dtypes.bfloat16)
    for write_out in (True, False):
        for factor, code in ((2, 1), (1, 0)):
            given = {"expected": twins.ok(TORCH, x * factor), "actual": twins.ok(ORT, x), "output": "y"}
            content = twins.content(model, {"x": x}, Kind.NUMERIC, write_out=write_out, **given)
            ended, text = replayed(write_reproducer(tmp_path, content), tmp_path)
            assert ended == code, text


def test_an_input_that_the_graph_lost_is_not_fed(tmp_path):
    x = twins.numeric().case.inputs["x"]
    content = twins.numeric(onnx_names={"x": "x"})
    content = replace(content, case=content.case.replace(unused=x))
    assert replayed(write_reproducer(tmp_path, content), tmp_path)[0] == 1


def test_a_death_of_another_finding_is_never_taken_for_an_answer(tmp_path):
    x = np.zeros((2, 0, 3), np.float32)
    given = {"expected": twins.ok(TORCH, np.zeros((2, 1, 0, 4), np.float32)), "output": "y"}
    content = twins.content(twins.lstm_model(), {"x": x}, Kind.SHAPE, **given)
    code, text = replayed(write_reproducer(tmp_path, content), tmp_path)
    assert code == 125
    assert "not the recorded fault" in text


def test_a_missing_package_is_said_and_is_not_an_answer(tmp_path):
    folder = write_reproducer(tmp_path / "crashes", twins.numeric())
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('no onnxruntime here')")
    ended = subprocess.run(
        [sys.executable, str(folder / "repro.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 125
    assert "CANNOT RUN HERE" in ended.stdout


def test_hostile_names_and_headlines_stay_data(tmp_path):
    headline = 'x """\nimport os; os._exit(0)\n# \x1b[31m \u202e \\'
    content = twins.numeric(headline=headline, outputs=('y"""\n__import__("os")._exit(0)',), output=None)
    folder = write_reproducer(tmp_path, content)
    code, text = replayed(folder, tmp_path)
    assert code == 1, text
    assert "\x1b" not in text
    assert "\u202e" not in (folder / "issue.md").read_text()


def test_no_text_of_a_reproducer_holds_an_absolute_directory(tmp_path):
    headline = "/home/someone/twin/model.py:3 and /home/other/code/net.py:7 /head/Add differ"
    folder = write_reproducer(tmp_path, twins.numeric(headline=headline))
    for name in ("issue.md", "finding.json", "repro.py"):
        text = (folder / name).read_text()
        assert "/home/" not in text, name
        assert str(tmp_path) not in text, name
    assert "model.py:3 and net.py:7 /head/Add" in (folder / "repro.py").read_text()


def test_an_issue_never_shows_real_values(tmp_path):
    for content in (twins.numeric(contains=("real data",)), twins.numeric(confidential=True)):
        text = (write_reproducer(tmp_path, content) / "issue.md").read_text()
        assert "0.25" not in text
        assert "2.75" not in text
        assert "np.array" not in text
        assert "left out" in text


def test_an_issue_shows_no_model_of_real_weights_but_its_figures(tmp_path):
    text = (write_reproducer(tmp_path, twins.numeric(contains=("real weights",))) / "issue.md").read_text()
    assert "2.75" in text
    assert "make_model" not in text
    text = (write_reproducer(tmp_path, twins.numeric()) / "issue.md").read_text()
    assert "make_model" in text
    assert "not yet known" in text


def test_the_code_in_an_issue_runs(tmp_path):
    text = (write_reproducer(tmp_path, twins.numeric()) / "issue.md").read_text()
    code = text.split("```python\n")[1].split("\n```")[0]
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "2.75" in ended.stdout, ended.stderr
    assert "2.5" in ended.stdout, ended.stderr


def test_writing_again_replaces_and_cleans_what_a_killed_process_left(tmp_path):
    content = twins.numeric()
    place = write_reproducer(tmp_path, content)
    dead = 2**22 + 7  # above every pid
    (tmp_path / f".tmp-new-{place.name}-{dead}").mkdir()
    place.rename(tmp_path / f".tmp-old-{place.name}-{dead}")
    write_reproducer(tmp_path, crash_content())
    assert place.exists(), "the old folder of a swap that was cut short is back"
    assert not list(tmp_path.glob(".tmp-*"))
    (place / "mine.txt").write_text("")
    assert not (write_reproducer(tmp_path, content) / "mine.txt").exists()


def test_an_id_that_is_a_path_and_an_unwritable_folder_are_clear_errors(tmp_path):
    content = twins.numeric()
    with pytest.raises(InvalidUsage, match="cannot name a folder"):
        write_reproducer(tmp_path, replace(content, finding=replace(content.finding, finding_id="../x")))
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidUsage, match="cannot be written"):
        write_reproducer(tmp_path / "file", content)
    with pytest.raises(InvalidUsage, match="not recorded"):
        write_reproducer(tmp_path, replace(content, expected=None))


def test_the_writer_can_check_its_own_folder(tmp_path):
    assert run_reproducer(write_reproducer(tmp_path, twins.numeric())) == 1
    assert run_reproducer(tmp_path / "nothing") == 125


def test_a_model_that_is_no_model_still_gets_its_folder(tmp_path):
    actual = twins.refused(ORT, "Protobuf parsing failed", "load")
    content = twins.content(b"\x00not a model", {"x": np.ones(2)}, Kind.LOAD_ERROR, side=ORT, actual=actual)
    assert run_reproducer(write_reproducer(tmp_path, content)) == 1


def test_metadata_with_source_paths_is_not_written_out(tmp_path):
    model = twins.add_model(0.75)
    model.graph.node[0].metadata_props.add(key="stack_trace", value="/home/someone/net.py")
    content = replace(twins.numeric(), model=model.SerializeToString())
    folder = write_reproducer(tmp_path, content)
    assert "someone" not in (folder / "repro.py").read_text()
    assert onnx.load(folder / "model.onnx").graph.node[0].metadata_props


TARGET = """
import os
import torch
from fuzzparity import Target

class Net(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 3:
            os.abort()
        if x.shape[0] == 4:
            return x + torch.rand(4)
        return x + 1

def target():
    return Target(module=Net(), inputs={"x": torch.zeros(2)})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "elements", "code"),
    [(Kind.CRASH, 3, 1), (Kind.CRASH, 2, 0), (Kind.UNSTABLE, 4, 1), (Kind.UNSTABLE, 2, 0), (Kind.HANG, 2, 0)],
)
def test_a_fault_of_torch_runs_the_users_own_target(tmp_path, kind, elements, code):
    (tmp_path / "target.py").write_text(TARGET)
    content = twins.content(
        twins.add_model(),
        {"x": np.zeros(elements, np.float32)},
        kind,
        side=TORCH,
        expected=twins.died(TORCH, 6),
        target_spec="somewhere/target.py:target",
        target_folder=str(tmp_path),
    )
    folder = write_reproducer(tmp_path / "crashes", content)
    assert json.loads((folder / "finding.json").read_text())["target"]["spec"] == "../../target.py:target"
    ended, text = replayed(folder, tmp_path / "crashes")
    assert ended == code, text


@pytest.mark.slow
def test_a_target_that_cannot_be_loaded_is_not_an_answer(tmp_path):
    given = {"side": TORCH, "expected": twins.died(TORCH, 6), "target_folder": str(tmp_path)}
    content = twins.content(twins.add_model(), {"x": np.zeros(2, np.float32)}, Kind.CRASH, **given)
    code, text = replayed(write_reproducer(tmp_path / "crashes", content), tmp_path)
    assert code == 125, text


def test_a_headline_beyond_ascii_is_printed_anywhere(tmp_path):
    folder = write_reproducer(tmp_path, twins.numeric(headline="größer \u2264 x"))
    ended = subprocess.run(
        [sys.executable, str(folder / "repro.py")],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
