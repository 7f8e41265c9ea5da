"""What a graph implies: limits through arithmetic on an index, dims that operators need equal, masks and lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from fuzzparity.case import Case
from fuzzparity.contract import Contract
from fuzzparity.generate.understood import Line, understood
from fuzzparity.sides.graph import GraphFacts, read_graph
from fuzzparity.sides.shapes import asked_dims
from fuzzparity.sides.terms import contract_of
from fuzzparity.target import Target

I64, F32 = TensorProto.INT64, TensorProto.FLOAT


def facts(
    nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, list[Any]], **weights: Any
) -> GraphFacts:
    made = [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()]
    ends = [helper.make_tensor_value_info(name, F32, dims) for name, dims in outputs.items()]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", made, ends, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return read_graph(model)


TABLE = np.zeros((50, 4), np.float32)
node = helper.make_node


def test_a_constant_added_to_an_index_moves_its_limit_and_a_clipped_one_has_none() -> None:
    cases = {
        "plain": ([node("Gather", ["table", "ids"], ["y"])], 50, 0, "Gather over an axis of length 50"),
        "up": ([node("Add", ["two", "ids"], ["i"]), node("Gather", ["table", "i"], ["y"])], 48, 0, "after +2"),
        "down": ([node("Sub", ["ids", "two"], ["i"]), node("Gather", ["table", "i"], ["y"])], 52, 2, "after -2"),
    }
    for nodes, limit, low, why in cases.values():
        found = facts(nodes, {"ids": (I64, ["n"])}, {"y": ["n", 4]}, table=TABLE, two=np.int64(2))
        assert found.index_limits == {"ids": limit}
        assert found.index_lows.get("ids", 0) == low
        assert why in found.index_reasons["ids"]
    clipped = [node("Clip", ["ids", "zero", "most"], ["i"]), node("Gather", ["table", "i"], ["y"])]
    found = facts(clipped, {"ids": (I64, ["n"])}, {"y": ["n", 4]}, table=TABLE, zero=np.int64(0), most=np.int64(49))
    assert found.index_limits == {}
    reflected = [node("Sub", ["two", "ids"], ["i"]), node("Gather", ["table", "i"], ["y"])]
    assert facts(reflected, {"ids": (I64, ["n"])}, {"y": ["n", 4]}, table=TABLE, two=np.int64(2)).index_limits == {}


def test_operators_that_need_equal_dims_make_one_of_two_symbols() -> None:
    nodes = [node("Concat", ["a", "b"], ["ab"], axis=1), node("MatMul", ["ab", "c"], ["y"])]
    inputs = {"a": (F32, ["n", 2]), "b": (F32, ["m", 3]), "c": (F32, [5, 4])}
    graph = facts(nodes, inputs, {"y": ["n", 4]})
    assert [(one.first, one.second) for one in graph.implied.equals] == [("m", "n")]
    seed = Case({"a": np.ones((2, 2), np.float32), "b": np.ones((2, 3), np.float32), "c": np.ones((5, 4), np.float32)})
    contract = contract_for(seed, graph)
    assert contract.input("a").dims[0].symbol == contract.input("b").dims[0].symbol != ""
    line = next(line for line in understood(contract, is_given=True) if line.says == "equal to b dim 0")
    assert line.reason == "graph: Concat joins them along another axis"
    other = Case({**seed.inputs, "b": np.ones((3, 3), np.float32)})
    assert contract_for(other, graph).equal_reasons == (), "a seed that both take proves it wrong"


def contract_for(seed: Case, graph: GraphFacts, **more: Any) -> Contract:
    target = Target(module=torch.nn.Identity(), inputs=dict(seed.inputs), **more)
    return contract_of(target, seed, graph, asked_dims(target, seed), is_given=True)


def test_masks_and_lengths_are_hints_and_never_limits() -> None:
    nodes = [
        node("Cast", ["mask"], ["m"], to=F32),
        node("Sub", ["one", "m"], ["left"]),
        node("Mul", ["left", "far"], ["bias"]),
        node("Range", ["zero", "count", "step"], ["at"]),
        node("Unsqueeze", ["lengths", "axis"], ["wide"]),
        node("Less", ["at", "wide"], ["inside"]),
        node("Cast", ["inside"], ["f"], to=F32),
        node("Cast", ["flags"], ["on"], to=TensorProto.BOOL),
        node("Where", ["on", "bias", "f"], ["y"]),
    ]
    inputs = {"mask": (I64, ["b", "s"]), "lengths": (I64, ["b"]), "count": (I64, []), "flags": (I64, ["b", "s"])}
    weights = {
        "one": np.float32(1),
        "far": np.float32(-1e4),
        "zero": np.int64(0),
        "step": np.int64(1),
        "axis": np.array([1]),
    }
    graph = facts(nodes, inputs, {"y": ["b", "s"]}, **weights)
    assert {hint.input: hint.says.partition(":")[0] for hint in graph.implied.hints} == {
        "mask": "a mask",
        "flags": "a mask",
        "lengths": "lengths",
    }
    seed = Case(
        {"mask": np.ones((2, 3), int), "lengths": np.ones(2, int), "count": np.array(3), "flags": np.ones((2, 3), int)}
    )
    contract = contract_for(seed, graph, opaque_inputs=["count"])
    assert contract.input("mask").high is None
    lines = {line.subject: line for line in understood(contract) if "tried too" in line.says}
    assert lines["mask values"].change == "ranges={'mask': (0, 1)}"
    assert lines["mask values"].reason == "graph: 1 minus it, times -1e+04, is added to scores"


def test_every_line_has_a_reason_and_a_way_to_change_it() -> None:
    nodes = [node("Gather", ["table", "ids"], ["e"]), node("Mul", ["e", "x"], ["y"])]
    graph = facts(nodes, {"ids": (I64, ["n"]), "x": (F32, ["n", 4])}, {"y": ["n", 4]}, table=TABLE)
    seed = Case({"ids": np.zeros(3, np.int64), "x": np.zeros((3, 4), np.float32), "sr": np.array(8000)})
    contract = contract_for(seed, graph, ranges={"x": (-1, 1)}, opaque_inputs=["sr"])
    lines: dict[str, Line] = {f"{line.subject}: {line.says}": line for line in understood(contract, is_given=True)}
    assert {key: (line.reason, line.change) for key, line in lines.items()} == {
        "ids dim 0: any size": (
            "graph: the ONNX model leaves dim 'n' free",
            "dynamic_shapes={'ids': {0: Size(1, 64)}}",
        ),
        "ids values: 0..49": ("graph: Gather over an axis of length 50", "ranges={'ids': (0, 49)}"),
        "ids role: indices": ("graph: Gather over an axis of length 50", ""),
        "x dim 0: any size": ("graph: the ONNX model leaves dim 'n' free", "dynamic_shapes={'x': {0: Size(1, 64)}}"),
        "x dim 1: 4": ("graph: the ONNX model has it fixed", ""),
        "x values: -1..1": ("declared by you", "ranges={'x': (-1, 1)}"),
        "sr values: as in the seeds": ("declared by you: opaque_inputs", "opaque_inputs="),
        "ids dim 0: equal to x dim 0": (
            "graph: one symbol, 'n'",
            "other names in dynamic_shapes let them differ, where the model does",
        ),
        "rows: independent along n: run many at once where that is proven": (
            "the dim that leads the inputs",
            "batch='n'",
        ),
    }


def test_a_table_that_positions_look_up_is_a_goal_and_no_limit() -> None:
    nodes = [
        node("Shape", ["x"], ["size"], start=1),
        node("Squeeze", ["size"], ["count"]),
        node("Range", ["zero", "count", "one"], ["at"]),
        node("Gather", ["table", "at"], ["p"]),
        node("Add", ["x", "p"], ["y"]),
    ]
    made = [helper.make_tensor_value_info("x", F32, ["b", "s", 4])]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in (("table", TABLE), ("zero", 0), ("one", 1))]
    known = [helper.make_tensor_value_info("at", I64, ["s"])]
    ends = [helper.make_tensor_value_info("y", F32, ["b", "s", 4])]
    graph = helper.make_graph(nodes, "g", made, ends, tensors, value_info=known)
    found = read_graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    assert found.implied.positions == {"s": 50}
    assert found.sizes[:2] == (50, 51)
    contract = contract_for(Case({"x": np.zeros((2, 3, 4), np.float32)}), found)
    assert contract.input("x").dims[1].admits(51)
    (line,) = [line for line in understood(contract) if "is meant" in line.says]
    assert (line.subject, line.change) == ("x dim 1", "dynamic_shapes={'x': {1: Size(1, 50)}}")
