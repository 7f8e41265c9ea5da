"""Cuts of planted faults: one node left, or the pattern that a pass needs; nothing is cut where nothing shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fuzzparity import Ort
from fuzzparity.blame.alike import Difference, difference
from fuzzparity.blame.cut import Ground, Part, Search, stepwise_values
from fuzzparity.blame.tidy import tidied
from fuzzparity.case import Array
from fuzzparity.sides.bare import run_bare

TESTED, PLAIN = Ort(), replace(Ort(), optimization_level="none")
X = np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype(np.float32)


def model_of(nodes: list[Any], inputs: Mapping[str, Array], outputs: list[str], weights: Mapping[str, Array] = {}):
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", infos, ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def chain(first: str, last: str, bad: int | None, length: int = 20) -> tuple[list[Any], dict[str, Array]]:
    """Return convolutions and activations from one value to another; the bad one is a LeakyRelu for a Relu."""
    rng = np.random.default_rng(1)
    nodes, weights, value = [], {}, first
    for place in range(length):
        name = f"{last}_w{place}"
        weights[name] = rng.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32)
        nodes.append(helper.make_node("Conv", [value, name], [f"{last}_c{place}"], pads=[1, 1, 1, 1]))
        value = f"{last}_r{place}" if place < length - 1 else last
        op, more = ("LeakyRelu", {"alpha": 0.3}) if place == bad else ("Relu", {})
        nodes.append(helper.make_node(op, [f"{last}_c{place}"], [value], name=f"act{place}", **more))
    return nodes, weights


def healed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model as it was meant: each planted LeakyRelu is a Relu, in bodies too."""
    meant = onnx.ModelProto()
    meant.CopyFrom(model)

    def heal(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            if node.op_type == "LeakyRelu":
                node.op_type = "Relu"
                del node.attribute[:]
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    heal(attribute.g)

    heal(meant.graph)
    return meant


def right_run(model: bytes, feeds: Mapping[str, Array]) -> list[Any] | None:
    return run_bare(healed(onnx.ModelProto.FromString(model)).SerializeToString(), feeds, PLAIN)


def right_values(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    return stepwise_values(model, feeds, right_run)


def shows(part: Part) -> bool:
    answer = run_bare(part.model, part.feeds, TESTED)
    if answer is None or not part.is_known:
        return False
    return difference([part.expected[name] for name in part.outputs], answer).way != ""


def cut(model: onnx.ModelProto, feeds: Mapping[str, Array], output: str = "y") -> tuple[Search, list[str]]:
    """Return the search and the operators that are left."""
    ground = Ground(model, feeds, right_values(model, feeds), [output])
    search = Search(shows)
    chosen = search.smallest(ground)
    if chosen is not None and len(chosen) == 1:
        inside = search.enter(ground, chosen[0], right_values, right_run)
        ground, chosen = inside or (ground, chosen)
    return search, [ground.model.graph.node[place].op_type for place in chosen or ()]


@pytest.mark.parametrize("bad", [0, 7, 19])
def test_a_net_of_forty_nodes_is_cut_to_the_bad_one(bad):
    nodes, weights = chain("x", "y", bad)
    search, left = cut(model_of(nodes, {"x": X}, ["y"], weights), {"x": X})
    assert left == ["LeakyRelu"]
    assert search.runs < 20, "bisecting takes about two logarithms"
    assert search.best is not None
    assert search.best.nodes == 1


def test_a_right_net_is_not_cut():
    nodes, weights = chain("x", "y", None)
    search, left = cut(model_of(nodes, {"x": X}, ["y"], weights), {"x": X})
    assert (left, search.best) == ([], None)


def test_of_two_faults_each_output_keeps_its_own():
    (first, one), (second, other) = chain("x", "y", 2, 4), chain("x", "z", 3, 4)
    second[-1].name = "the other"
    model = model_of([*first, *second], {"x": X}, ["y", "z"], one | other)
    for output, name in (("y", "act2"), ("z", "the other")):
        search, left = cut(model, {"x": X}, output)
        assert left == ["LeakyRelu"]
        assert search.best is not None
        assert name in str(onnx.ModelProto.FromString(search.best.model).graph.node[0].name)


def test_a_fault_in_the_taken_arm_of_an_if_is_promoted_out_of_it():
    inner, weights = chain("x", "inner", 1, 3)
    end = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    arm = helper.make_graph(inner, "then", [], [end], [numpy_helper.from_array(a, n) for n, a in weights.items()])
    same = helper.make_tensor_value_info("same", TensorProto.FLOAT, None)
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["same"])], "else", [], [same])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Less", ["low", "sum"], ["is"]),
        helper.make_node("If", ["is"], ["chosen"], name="choice", then_branch=arm, else_branch=other),
        helper.make_node("Sigmoid", ["chosen"], ["y"]),
    ]
    model = model_of(nodes, {"x": X}, ["y"], {"low": np.float32(-1e6)})
    search, left = cut(model, {"x": X})
    assert left == ["LeakyRelu"]
    assert search.best is not None
    assert search.best.path == ("choice/then_branch",)


def test_a_fault_in_a_loop_that_needs_a_late_value_is_promoted_out_of_that_turn():
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Sub", ["state", "step"], ["less"]),
            helper.make_node("LeakyRelu", ["less"], ["next"], name="bad", alpha=0.5),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    nodes = [helper.make_node("Loop", ["five", "", "x"], ["y"], name="turns", body=body)]
    start = np.full(3, 2.5, np.float32)
    model = model_of(nodes, {"x": start}, ["y"], {"five": np.int64(5), "step": np.float32(1)})
    search, left = cut(model, {"x": start})
    assert left == ["LeakyRelu"]
    assert search.best is not None
    assert search.best.path == ("turns/body[2]",), "2.5 - 3 is the first value below zero"


def test_a_pass_keeps_the_pattern_that_it_needs():
    """DivMulFusion makes (1/x)*z a division, which it is not for integers."""
    x, z = np.array([2, 3, -4]), np.array([10, 10, 10])
    nodes = [
        helper.make_node("Neg", ["z"], ["minus"]),
        helper.make_node("Abs", ["minus"], ["plus"]),
        helper.make_node("Div", ["one", "x"], ["part"]),
        helper.make_node("Mul", ["part", "plus"], ["product"]),
        helper.make_node("Abs", ["product"], ["size"]),
        helper.make_node("Cast", ["size"], ["y"], to=TensorProto.FLOAT),
    ]
    model = model_of(nodes, {"x": x, "z": z}, ["y"], {"one": np.int64(1)})
    search, left = cut(model, {"x": x, "z": z})
    assert left == ["Div", "Mul"]
    assert search.best is not None
    assert set(search.best.feeds) == {"x", "plus"}


def test_a_tidied_cut_names_nothing_of_the_model_and_shows_the_same():
    nodes, weights = chain("x", "y", 3, 5)
    nodes[0].doc_string = "/home/someone/net.py"
    search, _ = cut(model_of(nodes, {"x": X}, ["y"], weights), {"x": X})
    part = search.best
    assert part is not None
    model, names = tidied(part, part.expected)
    onnx.checker.check_model(model, full_check=True)
    assert [item.name for item in (*model.graph.input, *model.graph.output)] == ["x", "y"]
    assert "act3" not in str(model)
    feeds = {names[name]: array for name, array in part.feeds.items()}
    (plain,) = run_bare(model.SerializeToString(), feeds, TESTED) or [None]
    assert np.array_equal(plain, (run_bare(part.model, part.feeds, TESTED) or [None])[0])


def test_values_are_known_up_to_the_node_that_refuses():
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "wrong"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    model = model_of(nodes, {"x": X}, ["y"], {"wrong": np.array([7, 7])})
    assert set(stepwise_values(model, {"x": X}, right_run)) == {"a"}


def test_a_difference_keeps_to_its_pattern():
    one, nan = np.ones(3, np.float32), np.array([1, np.nan, 1], np.float32)
    assert difference([one], [one]).way == ""
    assert difference([one], [one[:2]]).way == "shape"
    assert difference([one], [one.astype(np.float64)]).way == "dtype"
    assert difference([one], [nan]).way == "nonfinite"
    assert difference([np.array([1, 2])], [np.array([1, 3])]).way == "discrete"
    first = difference([one], [one * np.float32(1.001)])
    assert first.way == "numeric"
    assert difference([one], [one * np.float32(1.0005)]).keeps(first)
    assert not difference([one], [one * np.float32(1.00002)]).keeps(first)
    assert not difference([one], [nan]).keeps(first)
    assert Difference("nonfinite", np.inf).keeps(Difference("nonfinite", np.inf))
