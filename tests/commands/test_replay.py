import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest

from fuzzparity.commands.replay import State, replay, replay_all, replay_each
from fuzzparity.errors import InvalidUsage
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.report.reproducer import write_reproducer
from fuzzparity.target import Ort
from fuzzparity.verdict import Kind

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
import twins


@pytest.fixture
def folder(tmp_path):
    return write_reproducer(tmp_path, twins.numeric())


def changed(folder, **fields):
    path = folder / "finding.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


def test_a_numeric_fault_shows_and_is_gone_once_healed(folder):
    outcome = replay(folder)
    assert (outcome.state, outcome.exit_code) == (State.SHOWS, 1), outcome.text
    assert "torch 2.5, ORT 2.75" in outcome.text
    (folder / "model.onnx").write_bytes(twins.add_model(0.5).SerializeToString())
    outcome = replay(folder)
    assert (outcome.state, outcome.exit_code) == (State.GONE, 0), outcome.text


def test_a_real_abort_shows(tmp_path):
    x = np.zeros((2, 0, 3), np.float32)
    content = twins.content(twins.lstm_model(), {"x": x}, Kind.CRASH, side=ORT, actual=twins.died(ORT, 6))
    outcome = replay(write_reproducer(tmp_path, content))
    assert outcome.state is State.SHOWS
    assert "signal 6" in outcome.text
    numeric = replace(content.finding.verdict, kind=Kind.SHAPE, output="y", side="")
    expected = twins.ok(TORCH, np.zeros((2, 1, 0, 4), np.float32))
    content = replace(content, finding=replace(content.finding, verdict=numeric), expected=expected)
    assert replay(write_reproducer(tmp_path, content)).state is State.CANNOT_RUN


def test_an_endless_loop_shows_and_leaves_no_process(tmp_path):
    inputs = {"n": np.array(2**40), "x": np.ones(1, np.float32)}
    hang = Execution(ORT, Status.HANG)
    content = twins.content(twins.loop_model(), inputs, Kind.HANG, side=ORT, actual=hang, limit_seconds=1.0)
    before = set(psutil.Process().children(recursive=True))
    outcome = replay(write_reproducer(tmp_path, content))
    assert outcome.state is State.SHOWS, outcome.text
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_load_failure_shows_and_heals_without_the_guilty_pass(tmp_path):
    actual = twins.refused(ORT, "relu_clip_fusion", "load")
    content = twins.content(twins.clip_model(), {"x": np.ones(2)}, Kind.LOAD_ERROR, side=ORT, actual=actual)
    assert replay(write_reproducer(tmp_path, content)).state is State.SHOWS
    healed = replace(content, ort=Ort(disabled_optimizers=["FuseReluClip"]))
    assert replay(write_reproducer(tmp_path, healed)).state is State.GONE


def test_a_side_that_refuses_shows(tmp_path):
    given = {"expected": twins.ok(TORCH, np.ones((2, 3))), "actual": twins.refused(ORT, "Reshape"), "side": ORT}
    content = twins.content(twins.reshape_model(), {"x": np.ones(5, np.float32)}, Kind.ERROR_SPLIT, **given)
    assert replay(write_reproducer(tmp_path, content)).state is State.SHOWS


def test_a_fault_of_torch_alone_is_left_to_its_owner(tmp_path):
    content = twins.content(
        twins.add_model(), {"x": np.ones((1, 3), np.float32)}, Kind.CRASH, side=TORCH, expected=twins.died(TORCH, 8)
    )
    outcome = replay(write_reproducer(tmp_path, content))
    assert outcome.exit_code == 125
    assert "repro.py" in outcome.text


def test_another_version_is_said_and_still_judged(folder):
    environment = json.loads((folder / "finding.json").read_text())["environment"]
    environment["packages"]["onnxruntime"] = "1.0.0"
    outcome = replay(changed(folder, environment=environment))
    assert outcome.state is State.SHOWS
    assert "1.0.0 recorded" in outcome.text


def test_python_of_the_folder_is_never_run(folder):
    for name in ("repro.py", "sitecustomize.py", "onnxruntime.py", "numpy.py", "json.py"):
        (folder / name).write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    assert replay(folder).state is State.SHOWS
    assert not (folder / "ran").exists()


def test_options_that_reach_files_are_left_out_and_said(folder):
    written = folder / "written.onnx"
    ort = json.loads((folder / "finding.json").read_text())["ort"]
    ort["config"] = {"ep.context_file_path": str(written), "session.dynamic_block_base": "4"}
    ort["provider_options"] = {"CPUExecutionProvider": {"backend_path": "evil.so"}}
    outcome = replay(changed(folder, ort=ort))
    assert outcome.state is State.SHOWS, outcome.text
    assert "ep.context_file_path" in outcome.text
    assert "backend_path" in outcome.text
    assert not written.exists()


def external(folder, location):
    model = twins.add_model(0.75)
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, location)
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return data


@pytest.mark.slow
def test_external_data_stays_inside_its_folder(folder):
    data = external(folder, "weights.bin")
    (folder / "weights.bin").write_bytes(data)
    assert replay(folder).state is State.SHOWS
    (folder.parent / "outside.bin").write_bytes(data)
    for location in ("../outside.bin", str(folder.parent / "outside.bin"), ""):
        external(folder, location)
        outcome = replay(folder)
        assert outcome.exit_code == 125, location
        assert "not a file of its own folder" in outcome.text
    external(folder, "weights.bin")
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to(folder.parent / "outside.bin")
    assert replay(folder).exit_code == 125


def test_external_data_inside_a_subgraph_is_seen(tmp_path):
    from fuzzparity.errors import CannotRunHere
    from fuzzparity.sides.recorded import check_external_data

    model = twins.loop_model()
    body = model.graph.node[0].attribute[0].g
    tensor = body.node.add(op_type="Constant", output=["k"]).attribute.add(name="value", type=4).t
    onnx.external_data_helper.set_external_data(tensor_with_raw(tensor), "/etc/passwd")
    with pytest.raises(CannotRunHere):
        check_external_data(model, tmp_path)


def tensor_with_raw(tensor):
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.ones(2, np.float32)))
    return tensor


def link(folder, name):
    os.rename(folder / name, folder.parent / name)
    (folder / name).symlink_to(folder.parent / name)


BROKEN = {
    "no finding.json": lambda f: (f / "finding.json").unlink(),
    "no model": lambda f: (f / "model.onnx").unlink(),
    "no inputs": lambda f: (f / "inputs.safetensors").unlink(),
    "no expected outputs": lambda f: (f / "expected.safetensors").unlink(),
    "truncated inputs": lambda f: (f / "inputs.safetensors").write_bytes((f / "inputs.safetensors").read_bytes()[:-3]),
    "huge header": lambda f: (f / "inputs.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}"),
    "bad JSON": lambda f: (f / "finding.json").write_text("{"),
    "deep JSON": lambda f: (f / "finding.json").write_text("[" * 200_000),
    "a list": lambda f: (f / "finding.json").write_text("[]"),
    "newer schema": lambda f: changed(f, schema=99),
    "wrong types": lambda f: changed(f, ort=3),
    "verdict of another type": lambda f: changed(f, finding={"verdict": []}),
    "unknown kind": lambda f: changed(f, finding={"verdict": {"kind": "evil", "side": ""}}),
    "no number as limit": lambda f: changed(f, limit_seconds="1e9"),
    "negative tolerance": lambda f: changed(f, allowed={"y": {"rtol": -1, "atol": 0}}),
    "unknown provider": lambda f: changed(f, ort={**ORT_PLAIN, "providers": ["NoSuchProvider"]}),
    "provider that is a path": lambda f: changed(f, ort={**ORT_PLAIN, "providers": ["../x.so"]}),
    "linked model": lambda f: link(f, "model.onnx"),
    "linked inputs": lambda f: link(f, "inputs.safetensors"),
    "a pipe": lambda f: ((f / "finding.json").unlink(), os.mkfifo(f / "finding.json")),
    "inputs of other names": lambda f: changed(f, feeds={"other": "x"}),
    "a model that is none": lambda f: (f / "model.onnx").write_bytes(b"\xff" * 64),
}
ORT_PLAIN = {
    "provider_options": {},
    "optimization_level": "all",
    "threads": None,
    "config": {},
    "disabled_optimizers": [],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_or_hostile_folder_is_one_message(folder, name):
    BROKEN[name](folder)
    outcome = replay(folder)
    assert outcome.exit_code == 125, outcome
    assert outcome.text
    assert "Traceback" not in outcome.text


def test_all_reproducers_are_replayed_by_name_and_strays_are_said(tmp_path):
    write_reproducer(tmp_path, twins.numeric())
    (tmp_path / "zz-empty").mkdir()
    (tmp_path / ".tmp-new-x-1").mkdir()
    (tmp_path / "readme.md").write_text("")
    outcomes = list(replay_all(tmp_path))
    assert [outcome.state for outcome in outcomes] == [State.SHOWS, State.CANNOT_RUN]
    with pytest.raises(InvalidUsage):
        list(replay_all(tmp_path / "none"))


def test_a_finding_is_replayed_by_folder_by_id_and_by_prefix(tmp_path):
    folder = write_reproducer(tmp_path, twins.numeric())
    for name in (str(folder), folder.name, folder.name[:-2]):
        assert [outcome.state for outcome in replay_each([name], tmp_path)] == [State.SHOWS]
    with pytest.raises(InvalidUsage, match="no reproducer"):
        list(replay_each(["crash-00000000"], tmp_path))
    with pytest.raises(InvalidUsage, match="is no folder"):
        list(replay_each(["some/where"], tmp_path))


def test_a_child_that_cannot_start_is_said(folder, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    outcome = replay(folder)
    assert outcome.exit_code == 125
    assert "could not start" in outcome.text
