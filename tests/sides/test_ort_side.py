"""The ORT side: what was asked for is what runs, and what ORT refuses is data."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from small_models import case, contract, model, relu, relu_clip_double

from fuzzparity import Ort
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import Execution, Status
from fuzzparity.sides.environment import environment
from fuzzparity.sides.optimizers import REWRITE_RULES, known_optimizers
from fuzzparity.sides.ort_side import OrtSide, open_ort

ROW = np.array([[-1.0, 0.0, 2.0]], np.float32)


def opened(made, ort: Ort | None = None, **dtypes: str) -> OrtSide:
    side = open_ort(made.SerializeToString(), ort or Ort(), contract(**(dtypes or {"x": "float32"})))
    assert isinstance(side, OrtSide)
    return side


@pytest.mark.parametrize("level", ["none", "basic", "extended", "layout", "all"])
def test_every_level_runs_on_what_was_asked_for(level: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(relu().SerializeToString())
    side = open_ort(tmp_path / "m.onnx", Ort(optimization_level=level), contract(x="float32"))
    assert isinstance(side, OrtSide)
    assert (side.providers, side.level) == (("CPUExecutionProvider",), level)
    assert side.run(case(x=ROW)).outputs[0].tolist() == [[0.0, 0.0, 2.0]]


def test_arrays_that_ort_would_misread_run_right() -> None:
    side = opened(relu())
    for array in (ROW.astype(">f4"), ROW[:, ::-1], np.repeat(ROW, 2, 0)[::2], ROW[:0]):
        wanted = np.maximum(array.astype(np.float32), 0)
        assert np.array_equal(side.run(case(x=array)).outputs[0], wanted)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.int64, "U1"])
def test_wrong_dtypes_are_passed_on_and_refused(dtype: type) -> None:
    execution = opened(relu()).run(case(x=ROW.astype(dtype)))
    assert execution.status is Status.REFUSED
    assert execution.phase == "run"


def test_a_refusal_names_the_op_and_the_source() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], name="my_node_7")]
    inputs = {"x": (TensorProto.FLOAT, ["n", 3]), "shape": (TensorProto.INT64, [2])}
    side = opened(model(nodes, inputs, {"y": (TensorProto.FLOAT, None)}), x="float32", shape="int64")
    execution = side.run(case(x=ROW, shape=np.array([4, 4])))
    assert execution.refusal is not None
    assert execution.refusal.site.startswith("Reshape reshape_helper.h:")
    other = side.run(case(x=ROW, shape=np.array([5, 4])))
    assert other.refusal == execution.refusal


def test_too_large_an_allocation_is_out_of_memory() -> None:
    nodes = [helper.make_node("Expand", ["x", "shape"], ["y"])]
    inputs = {"x": (TensorProto.FLOAT, [1]), "shape": (TensorProto.INT64, [2])}
    side = opened(model(nodes, inputs, {"y": (TensorProto.FLOAT, None)}), x="float32", shape="int64")
    execution = side.run(case(x=ROW[0, :1], shape=np.array([1 << 24, 1 << 20])))
    assert execution.status is Status.OOM


def test_bfloat16_goes_in_and_comes_out() -> None:
    kind = (TensorProto.BFLOAT16, ["n"])
    side = opened(model([helper.make_node("Identity", ["x"], ["y"])], {"x": kind}, {"y": kind}), x="bfloat16")
    array = np.array([1.5, -0.0, np.nan]).astype(ml_dtypes.bfloat16)
    execution = side.run(case(x=array))
    assert execution.is_ok, execution.refusal
    assert execution.outputs[0].dtype == ml_dtypes.bfloat16
    assert execution.outputs[0].tobytes() == array.tobytes()


def test_a_model_that_ort_refuses_to_load_is_an_execution() -> None:
    data = relu_clip_double().SerializeToString()
    refused = open_ort(data, Ort(), contract(x="float64"))
    assert isinstance(refused, Execution)
    assert (refused.status, refused.phase) == (Status.REFUSED, "load")
    assert refused.refusal is not None
    assert refused.refusal.site.endswith("relu_clip_fusion.cc:83")
    for ort in (Ort(optimization_level="none"), Ort(disabled_optimizers=["FuseReluClip"])):
        assert isinstance(open_ort(data, ort, contract(x="float64")), OrtSide)
    assert isinstance(open_ort(b"junk", Ort(), contract(x="float32")), Execution)


@pytest.mark.parametrize(
    ("ort", "stage", "said"),
    [
        (Ort(providers=["CUDAExecutionProvider"]), "provider", "onnxruntime-gpu"),
        (Ort(providers=["CPUExecutionProvidr"]), "provider", "near it: CPUExecutionProvider"),
        (Ort(providers=[]), "provider", "no provider"),
        (Ort(provider_options={"CUDAExecutionProvider": {}}), "provider", "not among the providers"),
        (Ort(disabled_optimizers=["FuseReluClp"]), "ort", "near it: FuseReluClip"),
    ],
)
def test_options_that_do_not_exist_are_said(ort: Ort, stage: str, said: str) -> None:
    with pytest.raises(InvalidTarget) as caught:
        open_ort(relu().SerializeToString(), ort, contract(x="float32"))
    assert caught.value.stage == stage
    assert said in str(caught.value)


def test_pass_names_come_from_the_library() -> None:
    assert len(known_optimizers()) > 40
    assert "ConstantFolding" in known_optimizers()
    assert known_optimizers() >= REWRITE_RULES


def test_the_environment_says_what_runs() -> None:
    one = environment(Ort(optimization_level="basic", threads=2), ["CPUExecutionProvider"])
    assert {"torch", "numpy", "onnx", "onnxruntime"} <= set(one.packages)
    assert "level basic, 2 thread(s)" in one.line
    assert one.digest == environment(Ort(optimization_level="basic", threads=2), ["CPUExecutionProvider"]).digest
    assert one.digest != environment(Ort(), ["CPUExecutionProvider"]).digest
