"""Small ONNX models with real faults, and the reproducer content made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fuzzparity.case import Case
from fuzzparity.contract import Build, Contract, Dim, InputContract, TargetFacts
from fuzzparity.execution import ORT, TORCH, Environment, Execution, Refusal, Status
from fuzzparity.finding import Finding, Stage, bucket_of
from fuzzparity.report.reproducer import ReproducerContent
from fuzzparity.target import Tolerance
from fuzzparity.verdict import Comparison, Grade, Kind, Realism, Verdict

PACKAGES = ("torch", "numpy", "onnx", "onnxruntime")


def to_model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any] = ()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "twin", inputs, outputs, initializer=list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def info(name: str, kind: int, dims: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def add_model(constant: float = 0.5) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.array([1, constant, np.float32(0.1)], np.float32), "c")
    node = helper.make_node("Add", ["x", "c"], ["y"], name="/head/Add")
    return to_model(
        [node], [info("x", TensorProto.FLOAT, ["b", 3])], [info("y", TensorProto.FLOAT, ["b", 3])], [weight]
    )


def lstm_model() -> onnx.ModelProto:
    weights = [
        numpy_helper.from_array(np.full((1, 16, 3), 0.5, np.float32), "W"),
        numpy_helper.from_array(np.zeros((1, 16, 4), np.float32), "R"),
    ]
    node = helper.make_node("LSTM", ["x", "W", "R"], ["y"], hidden_size=4)
    return to_model(
        [node], [info("x", TensorProto.FLOAT, ["s", "b", 3])], [info("y", TensorProto.FLOAT, None)], weights
    )


def div_model() -> onnx.ModelProto:
    inputs = [info("x", TensorProto.INT32, [1]), info("z", TensorProto.INT32, [1])]
    return to_model([helper.make_node("Div", ["x", "z"], ["y"])], inputs, [info("y", TensorProto.INT32, [1])])


def loop_model() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["a", "a"], ["b"])],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("a", TensorProto.FLOAT, [1])],
        [info("on", TensorProto.BOOL, []), info("b", TensorProto.FLOAT, [1])],
    )
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)]
    inputs = [info("n", TensorProto.INT64, []), info("x", TensorProto.FLOAT, [1])]
    return to_model(nodes, inputs, [info("y", TensorProto.FLOAT, [1])])


def clip_model(kind: int = TensorProto.DOUBLE) -> onnx.ModelProto:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    bounds = [numpy_helper.from_array(np.array(v, dtype), n) for n, v in (("lo", 0), ("hi", 6))]
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Clip", ["a", "lo", "hi"], ["y"])]
    return to_model(nodes, [info("x", kind, [2])], [info("y", kind, [2])], bounds)


def reshape_model() -> onnx.ModelProto:
    shape = numpy_helper.from_array(np.array([2, 3], np.int64), "shape")
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    return to_model(nodes, [info("x", TensorProto.FLOAT, ["n"])], [info("y", TensorProto.FLOAT, [2, 3])], [shape])


def ok(side: str, *outputs: Any) -> Execution:
    return Execution(side, Status.OK, tuple(np.asarray(output) for output in outputs))


def refused(side: str, message: str, phase: str = "run") -> Execution:
    return Execution(side, Status.REFUSED, refusal=Refusal("RuntimeError", message), phase=phase)


def died(side: str, signal: int) -> Execution:
    return Execution(side, Status.CRASHED, signal=signal)


def content(
    model: onnx.ModelProto | bytes,
    inputs: dict[str, Any],
    kind: Kind,
    *,
    expected: Execution | None = None,
    actual: Execution | None = None,
    side: str = "",
    output: str | None = None,
    grade: Grade = Grade.BUG,
    headline: str = "",
    comparison: Comparison | None = None,
    blame: str = "unknown",
    onnx_names: dict[str, str] | None = None,
    outputs: tuple[str, ...] = ("y",),
    **more: Any,
) -> ReproducerContent:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    case = Case({name: np.asarray(value) for name, value in inputs.items()})
    verdict = Verdict(
        kind,
        grade,
        output=output,
        side=side,
        comparison=comparison,
        blame=blame,
        headline=headline or f"{kind} of {output or side}",
    )
    finding = Finding(
        bucket_of("b" * 64, case, verdict).finding_id,
        bucket_of("b" * 64, case, verdict),
        Stage.MINIMIZED,
        verdict,
        Realism.WILD,
        case.digest,
        case.digest,
        reproduced=True,
    )
    return ReproducerContent(finding, case, expected, actual, data, facts(case, data, onnx_names, outputs), **more)


def facts(case: Case, model: bytes, onnx_names: dict[str, str] | None, outputs: tuple[str, ...]) -> TargetFacts:
    from importlib.metadata import version

    names = onnx_names if onnx_names is not None else {name: name for name in case.inputs}
    contract = Contract(
        tuple(
            InputContract(name, a.dtype.name, tuple(Dim(size) for size in a.shape), onnx_name=names.get(name, ""))
            for name, a in case.inputs.items()
        )
    )
    build = Build(
        "b" * 64, "/home/someone/.fuzzparity/builds/b", "given", "", "", len(model), 1, None, 18, "float32", {}
    )
    environment = Environment(
        "e" * 64,
        "3.11.9",
        "Linux",
        "a cpu",
        {name: version(name) for name in PACKAGES},
        "cpu",
        "float32",
        1,
        ("CPUExecutionProvider",),
        "all",
        1,
    )
    return TargetFacts("twin", "/home/someone/twin", "/home/someone/twin", outputs, contract, build, environment, False)


def numeric(constant: float = 0.75, **more: Any) -> ReproducerContent:
    """A wrong constant: torch adds 0.5 where the ONNX file adds `constant`."""
    x = np.array([[1, 2, 3]], np.float32)
    expected = x + np.array([1, 0.5, np.float32(0.1)], np.float32)
    actual = x + np.array([1, 0.75, np.float32(0.1)], np.float32)
    comparison = Comparison(
        Kind.NUMERIC, 1e4, 0.25, 0.08, index=(0, 1), expected_at=2.5, actual_at=2.75, differing=1, compared=3
    )
    given = {"expected": ok(TORCH, expected), "actual": ok(ORT, actual), "output": "y", "comparison": comparison}
    given["allowed"] = {"y": Tolerance(rtol=1.3e-6, atol=1e-5)}
    given["headline"] = "y: ORT is 0.25 off at [0, 1] (allowed 1.3e-05)"
    return content(add_model(constant), {"x": x}, Kind.NUMERIC, **{**given, **more})
