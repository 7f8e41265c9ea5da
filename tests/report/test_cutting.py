"""Reproducers of cuts: a few lines that show the finding, files that others' tools read, copies that tell nothing."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import twins
from onnx import TensorProto, helper, numpy_helper
from test_reproducer import replayed

from fuzzparity.case import Array
from fuzzparity.corpus.codec import decode
from fuzzparity.errors import InvalidUsage
from fuzzparity.execution import ORT, TORCH
from fuzzparity.finding import Cut
from fuzzparity.minimize.model import drawn
from fuzzparity.report.content import RECORDED_OUTPUTS, REFERENCE, WRITTEN_OUT
from fuzzparity.report.cutting import spelled_array
from fuzzparity.report.literal import model_text
from fuzzparity.report.reproducer import write_reproducer
from fuzzparity.report.sharing import write_shared
from fuzzparity.verdict import Kind


def scale_model(value: float = 2.0) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.array([value, 1], np.float32), "w")
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    infos = [twins.info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    return twins.to_model([node], infos[:1], infos[1:], [weight])


def cut_of(model: onnx.ModelProto, feeds: dict[str, Array], expected: dict[str, Array], **more: Any) -> Cut:
    given = {"way": "numeric", "shown_by": "ONNX Runtime against torch", "nodes": len(model.graph.node)} | more
    return Cut(model.SerializeToString(), feeds, expected=expected, **given)


def with_cut(value: float = 2.0, **more: Any):
    """Return the content of a finding whose cut doubles 3 where torch gives 5."""
    feeds, expected = {"x": np.array([3, 1], np.float32)}, {"y": np.array([5, 1], np.float32)}
    cut = cut_of(scale_model(value), feeds, expected, errors={"y": 1.0}, **more)
    return replace(twins.numeric(), cut=cut)


def test_the_program_of_a_cut_is_short_and_shows_it_until_it_is_healed(tmp_path):
    folder = write_reproducer(tmp_path / "crashes", with_cut())
    source = (folder / "repro.py").read_text()
    assert len(source.splitlines()) < 65
    assert "y = Mul (x, w)" in source
    ast.parse(source)
    code, text = replayed(folder, tmp_path)
    assert code == 1, text
    assert "SHOWS" in text
    healed = write_reproducer(tmp_path / "crashes", with_cut(value=5 / 3))
    code, text = replayed(healed, tmp_path)
    assert (code, "GONE" in text) == (0, True), text


def test_a_cut_is_written_as_a_backend_test_that_others_read(tmp_path):
    content = with_cut()
    folder = write_reproducer(tmp_path, content) / "cut"
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    tensors = {
        kind: numpy_helper.to_array(onnx.load_tensor(folder / "test_data_set_0" / f"{kind}_0.pb"))
        for kind in ("input", "output")
    }
    assert tensors["input"].tolist() == [3, 1]
    assert tensors["output"].tolist() == [5, 1]
    assert decode((folder / "inputs.safetensors").read_bytes())["x"].tolist() == [3, 1]
    assert decode((folder / "expected.safetensors").read_bytes())["y"].tolist() == [5, 1]
    told = json.loads((folder.parent / "finding.json").read_text())["cut"]
    assert (told["nodes"], told["bytes"], told["way"]) == (1, len(model.SerializeToString()), "numeric")


def test_a_cut_that_dies_shows_by_its_death(tmp_path):
    x = np.full(1, np.iinfo(np.int32).min, np.int32)
    model = twins.div_model()
    cut = cut_of(model, {"x": x, "z": np.full(1, -1, np.int32)}, {}, way="crash", signal=8)
    content = twins.content(
        model, dict(cut.feeds), Kind.CRASH, expected=twins.ok(TORCH, x), actual=twins.died(ORT, 8), side=ORT
    )
    folder = write_reproducer(tmp_path, replace(content, cut=cut))
    assert replayed(folder, tmp_path)[0] == 1
    sound = replace(cut, feeds={"x": x, "z": np.full(1, 1, np.int32)})
    assert replayed(write_reproducer(tmp_path, replace(content, cut=sound)), tmp_path)[0] == 0


def hanging_model() -> onnx.ModelProto:
    kinds = {"i": TensorProto.INT64, "go": TensorProto.BOOL, "c": TensorProto.INT64}
    kinds |= {"going": TensorProto.BOOL, "d": TensorProto.INT64, "n": TensorProto.INT64, "y": TensorProto.INT64}
    infos = {name: helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()}
    nodes = [helper.make_node("Identity", [one], [other]) for one, other in (("go", "going"), ("c", "d"))]
    body = helper.make_graph(nodes, "body", [infos[n] for n in ("i", "go", "c")], [infos["going"], infos["d"]])
    return twins.to_model([helper.make_node("Loop", ["n", "", "n"], ["y"], body=body)], [infos["n"]], [infos["y"]])


def test_a_cut_that_hangs_shows_when_its_time_is_over(tmp_path):
    model = hanging_model()
    cut = cut_of(model, {"n": np.array(2**62)}, {}, way="hang")
    content = twins.content(
        model, dict(cut.feeds), Kind.HANG, expected=twins.ok(TORCH, np.zeros(1)), actual=twins.ok(ORT), side=ORT
    )
    content = replace(content, cut=cut, limit_seconds=3.0)
    folder = write_reproducer(tmp_path, content)
    code, text = replayed(folder, tmp_path)
    assert (code, "no answer within 3 s" in text) == (1, True), text
    sound = replace(cut, feeds={"n": np.array(3)})
    assert replayed(write_reproducer(tmp_path, replace(content, cut=sound)), tmp_path)[0] == 0


def test_torchs_code_is_run_where_the_cut_has_it(tmp_path):
    code = ("v1 = x * t", "return (v1,)")
    own = {"t": np.array([5 / 3, 1], np.float32)}
    content = with_cut(torch_code=code, torch_takes=("x", "t"), torch_own=own)
    assert content.standalone == WRITTEN_OUT
    folder = write_reproducer(tmp_path, content)
    assert "v1 = x * t" in (folder / "repro.py").read_text()
    assert "EXPECTED" not in (folder / "repro.py").read_text()
    ended, text = replayed(folder, tmp_path)
    assert ended == 1, text
    healed = with_cut(torch_code=code, torch_takes=("x", "t"), torch_own={"t": np.array([2, 1], np.float32)})
    assert replayed(write_reproducer(tmp_path, healed), tmp_path)[0] == 0
    hostile = with_cut(torch_code=("v1 = torch.load(x)", "return (v1,)"), torch_takes=("x",))
    assert "torch.load" not in (write_reproducer(tmp_path, hostile) / "repro.py").read_text()


def test_torchs_code_takes_the_weights_of_a_model_that_is_read_from_its_file(tmp_path):
    weight = np.random.default_rng(3).normal(size=(40, 40)).astype(np.float32)  # neither few nor made up
    names = [twins.info(name, TensorProto.FLOAT, [1, 40]) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = twins.to_model([node], names[:1], names[1:], [numpy_helper.from_array(weight, "w")])
    x, code = np.ones((1, 40), np.float32), ("v1 = torch.matmul(x, w) + 1", "return (v1,)")
    cut = cut_of(model, {"x": x}, {"y": x @ weight + 1}, errors={"y": 1.0}, torch_code=code, torch_takes=("x", "w"))
    folder = write_reproducer(tmp_path, replace(twins.numeric(), cut=cut))
    assert 'load(HERE / "model.onnx")' in (folder / "repro.py").read_text()
    ended, text = replayed(folder, tmp_path)
    assert ended == 1, text


def test_a_module_is_exported_where_its_exporter_is_at_fault(tmp_path):
    x = np.array([1e-9, 0.5], np.float32)
    content = with_cut(torch_code=("v1 = torch.log1p(x * t)", "return (v1,)"), torch_takes=("x", "t"))
    cut = replace(content.cut, feeds={"x": x}, torch_own={"t": np.ones(2, np.float32)}, exporter="torchscript")
    shows = replace(content, cut=replace(cut, errors={"y": 1e-9}, expected={"y": np.log1p(x)}))
    folder = write_reproducer(tmp_path, shows)
    source = (folder / "repro.py").read_text()
    assert "dynamo=False" in source
    assert len(source.splitlines()) < 70
    assert replayed(folder, tmp_path)[0] == 1
    right = replace(shows, cut=replace(shows.cut, feeds={"x": x[1:]}, torch_own={"t": np.ones(1, np.float32)}))
    assert replayed(write_reproducer(tmp_path, right), tmp_path)[0] == 0


def test_a_cut_that_is_refused_shows_by_the_refusal_and_is_gone_where_it_loads(tmp_path):
    x = {"x": np.zeros(2, np.float64)}
    refused = replace(twins.numeric(), cut=cut_of(twins.clip_model(), x, {}, way="refusal", refusal="Clip relu.h:1"))
    code, text = replayed(write_reproducer(tmp_path, refused), tmp_path)
    assert code == 125, "it is refused elsewhere than recorded: " + text
    here = replace(refused, cut=replace(refused.cut, refusal="relu_clip_fusion.cc:30"))
    assert replayed(write_reproducer(tmp_path, here), tmp_path)[0] == 1
    kind = TensorProto.FLOAT
    loads = cut_of(twins.clip_model(kind), {"x": np.zeros(2, np.float32)}, {}, way="refusal", refusal="relu.cc:1")
    assert replayed(write_reproducer(tmp_path, replace(here, cut=loads)), tmp_path)[0] == 0


def test_long_answers_come_from_the_reference_and_made_up_weights_from_their_recipe():
    array = np.random.default_rng(5).normal(0.1, 2, (200, 2)).astype(np.float32)
    made = drawn(array)
    assert made is not None
    cut = cut_of(scale_model(), {"x": made[0]}, {"y": made[0]}, recipes={"x": made[1]})
    text = spelled_array(cut, "x", made[0])
    assert text is not None
    assert eval(text, {"np": np}).tobytes() == made[0].tobytes()
    hostile = replace(cut, recipes={"x": "__import__('os').system('true')"})
    assert spelled_array(hostile, "x", made[0]) is None
    content = replace(twins.numeric(), cut=cut)
    assert content.standalone == RECORDED_OUTPUTS
    assert (
        replace(content, cut=replace(cut, shown_by="ONNX Runtime against the ONNX reference")).standalone == REFERENCE
    )


def test_text_that_reads_as_another_model_is_not_written():
    model = scale_model()
    text = model_text(model)
    assert text is not None
    again = onnx.parser.parse_model(text)
    assert [node.op_type for node in again.graph.node] == ["Mul"]
    model.graph.node[0].doc_string = "kept nowhere"
    assert model_text(model) is None


def test_a_shared_copy_holds_the_cut_and_nothing_of_its_owner(tmp_path):
    content = replace(with_cut(), target_folder="/home/owner/secretproject", target_spec="detector.py:target")
    folder = write_shared(tmp_path / "shared", content)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"repro.py", "issue.md", "finding.json", "cut/model.onnx"} <= names
    assert not names & {"model.onnx", "inputs.safetensors", "expected.safetensors"}
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"secretproject" not in path.read_bytes()
            assert b"/head/Add" not in path.read_bytes()
    assert replayed(folder, tmp_path)[0] == 1


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"real_weights": ("w",)}, "the model's own weights: w"),
        ({"real_values": ("x",)}, "come from real data: x"),
        ({"way": "oom"}, "no program of its own"),
    ],
)
def test_what_prevents_a_copy_is_said_and_nothing_is_written(tmp_path: Path, more: dict[str, Any], reason: str):
    content = replace(with_cut(**more), confidential=True)
    with pytest.raises(InvalidUsage, match=reason):
        write_shared(tmp_path / "shared", content)
    with pytest.raises(InvalidUsage, match="it was not cut"):
        write_shared(tmp_path / "shared", replace(content, cut=None))
    assert not (tmp_path / "shared").exists()
