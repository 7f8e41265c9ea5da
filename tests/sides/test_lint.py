"""Each rule of the export lint on a model that breaks it, and a sound export that breaks none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from small_models import loaded, model, relu
from torch import nn

from fuzzparity import Export, Target
from fuzzparity.sides.export import make_build
from fuzzparity.sides.lint import lint

ROW = np.ones((2, 3), np.float32)
FLOAT, INT64 = (TensorProto.FLOAT, ["n", 3]), (TensorProto.INT64, ["n", 3])


def found(made: onnx.ModelProto, *, module: object = None, is_given: bool = True, **fields: object) -> dict[str, str]:
    fields.setdefault("inputs", {"x": ROW})
    target = Target(module=module or nn.ReLU().eval(), **fields)
    return {item.name: item.text for item in lint(target, target.module, made, is_given=is_given)}


def chain(*nodes: onnx.NodeProto, inputs: dict | None = None, constants: dict | None = None) -> onnx.ModelProto:
    return model(list(nodes), inputs or {"x": FLOAT}, {"y": FLOAT}, constants)


def test_a_sound_export_breaks_no_rule(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 2))
    with torch.no_grad():
        net[1].running_mean += 0.5
    image = np.ones((2, 3, 6, 6), np.float32)
    export = Export(exporter="torchscript", opset=17)
    target = loaded(net, {"image": image}, export=export, outputs=["y"], dynamic_shapes={"image": {0: "n"}})
    facts = make_build(target, tmp_path).facts
    assert facts is not None
    assert facts.build.notes == ()
    assert found(relu()) == {}


def test_batch_norm_that_was_never_trained() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    with torch.no_grad():
        net[2].running_var *= 2
    said = found(relu(), module=net.eval())
    assert list(said) == ["untrained_batch_norm"]
    assert "running mean of 1 is all 0" in said["untrained_batch_norm"]


def test_a_part_that_stays_in_train_mode() -> None:
    class Stubborn(nn.Dropout):
        def train(self, mode: bool = True) -> Stubborn:
            return self

    said = found(relu(), module=nn.Sequential(nn.ReLU(), Stubborn(0.5)).eval())
    assert list(said) == ["train_mode"]
    assert said["train_mode"].startswith("1 is in train mode even after eval()")


def test_one_tensor_for_two_inputs() -> None:
    x = torch.ones(2, 3)
    said = found(relu(), module=lambda a, b, c: a + b + c, inputs={"a": x, "b": x.clone(), "c": x})
    assert list(said) == ["shared_inputs"]
    assert said["shared_inputs"].startswith("a and c are one tensor object")


@pytest.mark.parametrize("name", ["input.1", "onnx::Gather_0", "args_0", "12", "x.3", "l_x_"])
def test_input_names_that_an_exporter_made_up(name: str) -> None:
    made = chain(helper.make_node("Relu", [name], ["y"]), inputs={name: FLOAT})
    assert list(found(made)) == ["anonymous_inputs"]
    assert found(made, is_given=False) == {}


def test_names_that_people_give_are_no_matter() -> None:
    for name in ("x", "input", "input_ids", "image", "conv1.weight", "x1", "input2", "cache.0"):
        assert found(chain(helper.make_node("Relu", [name], ["y"]), inputs={name: FLOAT})) == {}


def test_another_opset_than_asked_for() -> None:
    said = found(relu(), is_given=False, export=Export(opset=15))
    assert said == {"opset": said["opset"]}
    assert said["opset"].startswith("opset 15 was asked for, the model has opset 17")


def test_what_the_full_checker_refuses() -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": FLOAT}, {"y": (TensorProto.FLOAT, [9, 9, 9])})
    assert list(found(made)) == ["checker"]


def test_an_input_that_nothing_reads_and_defaults_that_nobody_has_to_give() -> None:
    nodes = [helper.make_node("Add", ["x", "bias"], ["y"])]
    with_default = {"x": FLOAT, "bias": (TensorProto.FLOAT, [3])}
    assert found(chain(*nodes, inputs=with_default, constants={"bias": ROW[0]})) == {}
    idle = chain(helper.make_node("Relu", ["x"], ["y"]), inputs={"x": FLOAT, "mask": FLOAT})
    assert list(found(idle)) == ["unused_inputs"]


def test_random_numbers_and_dropout() -> None:
    noise = chain(helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"]))
    assert list(found(noise)) == ["random_ops"]
    ratio, on, off = {"r": np.float32(0.5)}, {"t": np.array(True)}, {"t": np.array(False)}
    dropout = helper.make_node("Dropout", ["x", "r", "t"], ["y"])
    assert list(found(chain(dropout, constants=ratio | off))) == ["dropout"]
    said = found(chain(dropout, constants=ratio | on))
    assert list(said) == ["random_ops"]
    assert "Dropout in training mode" in said["random_ops"]


def test_int64_values_that_are_cast_to_int32() -> None:
    nodes = [
        helper.make_node("Cast", ["ids"], ["narrow"], name="narrow_ids", to=TensorProto.INT32),
        helper.make_node("Cast", ["narrow"], ["y"], to=TensorProto.FLOAT),
    ]
    made = chain(*nodes, inputs={"ids": INT64})
    assert list(found(made)) == ["narrowed_integers"]
    made.graph.node[0].metadata_props.add(key="pkg.torch.onnx.fx_node", value="%to = _to_copy(%ids, dtype=int32)")
    assert found(made) == {}


def test_weights_that_are_stored_twice() -> None:
    wide = np.random.default_rng(0).normal(size=(3, 8000)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["one"]),
        helper.make_node("MatMul", ["x", "b"], ["two"]),
        helper.make_node("Add", ["one", "two"], ["y"]),
    ]
    out = {"y": (TensorProto.FLOAT, ["n", 8000])}
    assert list(found(model(nodes, {"x": FLOAT}, out, {"a": wide, "b": wide}))) == ["duplicate_weights"]
    assert found(model(nodes, {"x": FLOAT}, out, {"a": wide, "b": -wide})) == {}
