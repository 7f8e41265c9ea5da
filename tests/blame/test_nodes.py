"""The guilty node is found where its kernel leaves the reference on right inputs, not where error arrives."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

from fuzzparity.blame.nodes import guilty_node, single_nodes
from fuzzparity.blame.reference import intermediate_values, refusal_at, run_reference
from fuzzparity.blame.subgraphs import View


def on_ort(model: bytes, feeds: Mapping[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def graph(text: str) -> onnx.ModelProto:
    model = parser.parse_model(text)
    onnx.checker.check_model(model)
    return model


# the true kernel fault of ORT 1.32: int64 sums run through double and lose their low bits above 2^53
SUMS = """<ir_version: 9, opset_import: ["" : 18]> sums (int64[n] x) => (int64[1] y) {
    shifted = Add (x, x)
    total = ReduceSum <noop_with_empty_axes: int = 0> (shifted)
    y = Neg (total)
}"""


def test_a_true_kernel_fault_is_placed_on_its_node():
    model = graph(SUMS)
    feeds = {"x": np.array([2**60 + 1, 3], np.int64)}
    found = guilty_node(model, intermediate_values(model, feeds), feeds, on_ort)
    assert found is not None
    assert (found.op, found.error) == ("ReduceSum", float("inf"))


def test_a_sound_graph_has_no_guilty_node():
    model = graph("""<ir_version: 9, opset_import: ["" : 18]> sound (float[n, 8] x, float[8, 8] w) => (float[n, 8] y) {
        a = MatMul (x, w)
        b = Softmax <axis = -1> (a)
        y = Tanh (b)
    }""")
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(5, 8)).astype(np.float32), "w": rng.normal(size=(8, 8)).astype(np.float32)}
    assert guilty_node(model, intermediate_values(model, feeds), feeds, on_ort) is None


def test_bodies_are_run_with_the_values_they_take_from_outside():
    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "bias"], ["z"])],
        "then",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["w"])],
        "else",
        [],
        [helper.make_tensor_value_info("w", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "bias"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    bias = helper.make_tensor("bias", TensorProto.FLOAT, [], [1.0])
    model = helper.make_model(
        helper.make_graph(nodes, "branches", [x], [y], [bias]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    feeds = {"x": np.array([0.5, 3.0], np.float32)}
    values = intermediate_values(model, feeds)
    cut = {node.op_type: (single, inputs) for node, single, inputs, _ in single_nodes(model, values, feeds)}
    single, inputs = cut["If"]
    np.testing.assert_array_equal(on_ort(single, inputs)[0], np.array([1.5, 4.0], np.float32))


def test_the_reference_answers_and_what_it_lacks_is_a_refusal():
    model = graph(SUMS)
    assert run_reference(model, {"x": np.array([1, 2], np.int64)}).outputs[0].tolist() == [-6]
    model.graph.node[0].op_type = "NoSuchOperator"
    refused = run_reference(model, {"x": np.array([1, 2], np.int64)})
    assert not refused.is_ok
    assert refused.refusal is not None


GATHER = """<ir_version: 9, opset_import: ["" : 18]> taken (float[n] x, int64[m] k) => (float[m] y)
    <int64 one = {1}> {
    later = Add (k, one)
    y = Gather <axis = 0> (x, later)
}"""


def test_the_reference_refuses_at_the_node_at_which_ort_does():
    model = graph(GATHER)
    model.graph.node[1].name = "take"
    x = np.ones(3, np.float32)
    assert "out of bounds" in refusal_at(model, {"x": x, "k": np.array([2], np.int64)}, "Gather", "take")
    assert refusal_at(model, {"x": x, "k": np.array([1], np.int64)}, "Gather", "take") == ""
    assert refusal_at(model, {"x": x, "k": np.array([2], np.int64)}, "Gather", "another") == ""


def test_a_node_that_the_reference_lacks_is_no_refusal():
    node = helper.make_node("Imagined", ["x"], ["y"], name="imagined", domain="nowhere")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("nowhere", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=9)
    with pytest.raises(Exception, match=r"nowhere|Imagined"):
        refusal_at(model, {"x": np.ones(3, np.float32)}, "Imagined", "imagined")


def test_what_comes_from_sizes_alone_is_told_from_what_holds_data():
    model = graph("""<ir_version: 9, opset_import: ["" : 18]> sized (float[n] x) => (float[n] y)
        <int64 one = {1}, float half = {0.5}> {
        s = Shape (x)
        t = Sub (s, one)
        f = Cast <to = 1> (t)
        g = Mul (f, half)
        d = Div (x, g)
        y = Mul (d, x)
    }""")
    view = View(model, model.graph)
    assert [name for name in ("one", "s", "t", "g", "d", "x", "y") if view.is_of_sizes(name)] == ["one", "s", "t", "g"]
