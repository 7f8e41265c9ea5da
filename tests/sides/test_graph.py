"""What an ONNX graph says: inputs, precision, index limits, constants and sizes."""

from __future__ import annotations

import time

import numpy as np
import onnx
from onnx import TensorProto, helper
from small_models import model

from fuzzparity.sides.graph import read_graph

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


def test_inputs_outputs_and_opset_are_read() -> None:
    made = model([node("Add", ["x", "w"], ["y"])], {"x": (FLOAT, ["n", 3, None])}, {"y": (FLOAT, None)}, {"w": 1.5})
    facts = read_graph(made)
    assert [(item.name, item.dtype, item.dims) for item in facts.inputs] == [("x", "float32", ("n", 3, None))]
    assert (facts.outputs, facts.nodes, facts.opset) == (("y",), 1, 17)
    assert facts.constants == (1.5,)


def test_an_initializer_that_is_listed_as_input_is_none() -> None:
    made = model(
        [node("Add", ["x", "w"], ["y"])], {"x": (FLOAT, [1]), "w": (FLOAT, [1])}, {"y": (FLOAT, [1])}, {"w": [1.0]}
    )
    assert [item.name for item in read_graph(made).inputs] == ["x"]


def test_the_least_precise_float_is_the_computing_dtype() -> None:
    inputs = {"x": (FLOAT, [2])}
    for to, name in ((TensorProto.FLOAT16, "float16"), (TensorProto.BFLOAT16, "bfloat16"), (FLOAT, "float32")):
        nodes = [node("Cast", ["x"], ["h"], to=to), node("Cast", ["h"], ["y"], to=FLOAT)]
        assert read_graph(model(nodes, inputs, {"y": (FLOAT, [2])})).computing_dtype == name
    doubles = model([node("Relu", ["x"], ["y"])], {"x": (TensorProto.DOUBLE, [2])}, {"y": (TensorProto.DOUBLE, [2])})
    assert read_graph(doubles).computing_dtype == "float64"


def test_index_limits_are_followed_through_rearrangements() -> None:
    nodes = [
        node("Cast", ["ids"], ["a"], to=INT),
        node("Unsqueeze", ["a", "axes"], ["b"]),
        node("Gather", ["table", "b"], ["y"], axis=0),
        node("Gather", ["x", "place"], ["z"], axis=-1),
        node("OneHot", ["kind", "depth", "values"], ["o"]),
        node("GatherND", ["table", "pairs"], ["p"]),
        node("Add", ["free", "axes"], ["c"]),
        node("Gather", ["table", "c"], ["q"]),
    ]
    inputs = {
        "ids": (TensorProto.INT32, ["n"]),
        "place": (INT, [1]),
        "kind": (INT, [2]),
        "pairs": (INT, ["m", 2]),
        "free": (INT, [1]),
        "x": (FLOAT, ["n", "width"]),
    }
    constants = {"table": np.zeros((100, 7), np.float32), "axes": [1], "depth": 5, "values": [0.0, 1.0]}
    facts = read_graph(model(nodes, inputs, {"y": (FLOAT, None)}, constants))
    assert facts.index_limits == {"ids": 100, "place": "width", "kind": 5, "pairs": 7, "free": 99}


def test_bodies_of_loops_and_branches_are_walked() -> None:
    body = helper.make_graph(
        [
            node("Gather", ["table", "inner"], ["g"]),
            node("Identity", ["inner"], ["again"]),
            node("Identity", ["go"], ["go_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("inner", INT, [1]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("again", INT, [1]),
            helper.make_tensor_value_info("g", FLOAT, [1]),
        ],
    )
    nodes = [node("Loop", ["m", "", "ids"], ["out", "ys"], body=body)]
    made = model(nodes, {"m": (INT, []), "ids": (INT, [1])}, {"ys": (FLOAT, None)}, {"table": np.zeros(9, np.float32)})
    facts = read_graph(made)
    assert facts.nodes == 4
    assert facts.index_limits == {"ids": 9}


def test_sizes_hold_ends_of_ranges_kernels_and_integers() -> None:
    made = model(
        [node("MaxPool", ["x"], ["y"], kernel_shape=[7, 7], strides=[3, 3])],
        {"x": (FLOAT, [1, 1, "h", "w"])},
        {"y": (FLOAT, None)},
        {"split": [64, 5000, -1]},
    )
    made.graph.metadata_props.add(
        key="pkg.torch.export.ExportedProgram.range_constraints", value="{s0: VR[2, 200], s1: VR[0, int_oo]}"
    )
    assert read_graph(made).sizes == (1, 2, 3, 199, 200, 201, 0, 7, 64)


def test_exotic_and_broken_tensors_say_nothing_and_break_nothing() -> None:
    made = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, None)}, {"y": (FLOAT, None)}, {"w": [np.nan, np.inf]})
    for kind in (TensorProto.INT4, TensorProto.FLOAT8E4M3FN, TensorProto.STRING, TensorProto.UNDEFINED, 77):
        tensor = made.graph.initializer.add()
        tensor.name, tensor.data_type, tensor.raw_data = f"t{kind}", kind, b"\x12"
        tensor.dims.append(3)
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, None)
    made.graph.input.append(sequence)
    facts = read_graph(made)
    assert facts.inputs[1].dims is None
    assert facts.constants == ()
    assert read_graph(onnx.ModelProto()).opset == 0


def test_a_cycle_does_not_hang() -> None:
    nodes = [node("Identity", ["a"], ["b"]), node("Identity", ["b"], ["a"]), node("Gather", ["t", "a"], ["y"])]
    assert read_graph(model(nodes, {"x": (INT, [1])}, {"y": (FLOAT, None)}, {"t": [1.0]})).index_limits == {}


def test_ten_thousand_nodes_take_linear_time() -> None:
    def seconds(count: int) -> float:
        nodes = [node("Identity", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
        nodes += [node("Gather", ["t", f"v{count - i}"], [f"g{i}"]) for i in range(count)]
        made = model(nodes, {"v0": (INT, [1])}, {"g0": (FLOAT, None)}, {"t": [1.0, 2.0]})
        started = time.process_time()
        assert read_graph(made).index_limits == {"v0": 2}
        return time.process_time() - started

    assert seconds(10_000) < 60 * max(seconds(1_000), 0.01)
