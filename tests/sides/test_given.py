"""A given ONNX that does not look like forward: other names, unnamed dims, more or fewer inputs and outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from small_models import loaded, model
from torch import nn

from fuzzparity.case import Case
from fuzzparity.errors import InvalidTarget
from fuzzparity.sides import build
from fuzzparity.sides.export import make_build
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.pair import Pair, open_pair

FLOAT = (TensorProto.FLOAT, ["n", 3])
ROW = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
DOUBLE, RELU = helper.make_node("Add", ["x", "x"], ["double"]), helper.make_node("Relu", ["x"], ["relu"])
TWO = {"double": FLOAT, "relu": FLOAT}


def agree(target: LoadedTarget, folder: Path, *cases: Case) -> Pair:
    """Build a target, run its first seed and more on both sides, and return the pair when all is equal."""
    facts = make_build(target, folder).facts
    assert facts is not None
    pair = open_pair(target, facts, Path(facts.build.folder))
    assert isinstance(pair, Pair)
    for one in (target.seed, *cases):
        expected, actual = pair.run_torch(one), pair.run_ort(one)
        assert expected.is_ok, expected.refusal
        assert actual.is_ok, actual.refusal
        assert len(facts.outputs) == len(expected.outputs) == len(actual.outputs)
        for mine, theirs in zip(expected.outputs, actual.outputs, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    return pair


def test_outputs_are_paired_by_name_where_the_file_has_them_all(tmp_path: Path) -> None:
    made = model([RELU, DOUBLE], {"x": FLOAT}, {"relu": FLOAT, "double": FLOAT})
    target = loaded(lambda x: (x + x, x.relu()), {"x": ROW}, onnx=made, outputs=["double", "relu"])
    pair = agree(target, tmp_path)
    assert pair.facts.outputs == ("double", "relu")
    assert "outputs are paired by name" in pair.facts.build.notes


def test_outputs_of_other_names_are_paired_by_position(tmp_path: Path) -> None:
    made = model([RELU, DOUBLE], {"x": FLOAT}, {"relu": FLOAT, "double": FLOAT})
    target = loaded(lambda x: (x.relu(), x + x), {"x": ROW}, onnx=made, outputs=["a", "double"])
    assert agree(target, tmp_path).facts.outputs == ("a", "double")


def test_outputs_that_forward_does_not_return_are_left_out_by_name_and_said(tmp_path: Path) -> None:
    made = model([DOUBLE, RELU], {"x": FLOAT}, TWO)
    target = loaded(nn.ReLU(), {"x": ROW}, onnx=made, outputs=["relu"])
    pair = agree(target, tmp_path)
    assert any("also gives double: left out" in note for note in pair.facts.build.notes)
    by_key = loaded(lambda x: {"relu": x.relu()}, {"x": ROW}, onnx=made)
    assert agree(by_key, tmp_path).facts.outputs == ("relu",)
    assert len(made.graph.output) == 2, "the user's own model was changed"


@pytest.mark.parametrize(
    ("forward", "outputs", "said"),
    [
        (nn.ReLU(), None, "the ONNX model 2: double, relu"),
        (nn.ReLU(), ["rectified"], "it has no rectified"),
        (lambda x: (x, x + x, x.relu()), ["x", "double", "relu"], "it has no x"),
    ],
)
def test_outputs_that_cannot_be_paired_are_said(
    tmp_path: Path, forward: object, outputs: list[str] | None, said: str
) -> None:
    made = model([DOUBLE, RELU], {"x": FLOAT}, TWO)
    with pytest.raises(InvalidTarget) as caught:
        make_build(loaded(forward, {"x": ROW}, onnx=made, outputs=outputs), tmp_path)
    assert caught.value.stage == "outputs"
    assert said in str(caught.value)


def test_unnamed_dims_may_vary_each_by_itself(tmp_path: Path) -> None:
    any_matrix = (TensorProto.FLOAT, [None, None])
    made = model([RELU], {"x": any_matrix}, {"relu": any_matrix})
    target = loaded(nn.ReLU(), {"x": ROW}, onnx=made)
    dims = agree(target, tmp_path, Case({"x": ROW.T.copy()})).facts.contract.input("x").dims
    assert all(dim.is_dynamic for dim in dims)
    assert dims[0].symbol != dims[1].symbol


def test_inputs_with_defaults_are_not_asked_for_and_those_exported_away_are_said(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "bias"], ["y"])]
    with_default = {"x": FLOAT, "bias": (TensorProto.FLOAT, [3])}
    made = model(nodes, with_default, {"y": FLOAT}, {"bias": np.float32([1, 2, 3])})
    target = loaded(lambda x: x + torch.tensor([1.0, 2, 3]), {"x": ROW}, onnx=made)
    assert [item.name for item in agree(target, tmp_path).facts.contract.inputs] == ["x"]
    unused = loaded(lambda x, flag: x + torch.tensor([1.0, 2, 3]), {"x": ROW, "flag": np.array([True])}, onnx=made)
    facts = agree(unused, tmp_path).facts
    assert facts.contract.input("flag").onnx_name == ""
    assert "the ONNX model does without input flag" in facts.build.notes


def test_renamed_inputs_are_paired_by_position_and_a_missing_one_is_said(tmp_path: Path) -> None:
    made = model([helper.make_node("Sub", ["left", "right"], ["y"])], {"left": FLOAT, "right": FLOAT}, {"y": FLOAT})
    pair = agree(loaded(lambda a, b: a - b, {"a": ROW, "b": ROW * 3}, onnx=made), tmp_path)
    assert [item.onnx_name for item in pair.facts.contract.inputs] == ["left", "right"]
    with pytest.raises(InvalidTarget, match="which no input of the target fits"):
        make_build(loaded(nn.ReLU(), {"left": ROW}, onnx=made), tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript_and_exported_programs_run_against_a_given_file(tmp_path: Path) -> None:
    made = model([RELU], {"x": FLOAT}, {"relu": FLOAT})
    agree(loaded(torch.jit.script(nn.ReLU()), {"x": ROW}, onnx=made), tmp_path)
    agree(loaded(torch.export.export(nn.ReLU().eval(), (torch.from_numpy(ROW),)), {"x": ROW}, onnx=made), tmp_path)


def test_weights_beyond_what_one_message_holds_stay_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_MAX_ONE_FILE_BYTES", 1000)
    wide = np.random.default_rng(0).integers(-3, 4, (3, 400)).astype(np.float32)
    out = {"y": (TensorProto.FLOAT, ["n", 400])}
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": FLOAT}, out, {"w": wide})
    onnx.save_model(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    target = loaded(lambda x: x @ torch.from_numpy(wide), {"x": ROW}, onnx="m.onnx", at=tmp_path)
    facts = agree(target, tmp_path / "builds").facts
    folder = Path(facts.build.folder)
    assert sorted(file.name for file in folder.glob("model*")) == ["model.onnx", "model.onnx.data"]
    assert facts.build.onnx_bytes > wide.nbytes
