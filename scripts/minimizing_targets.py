"""Models with one wrong node each: torch computes what is right, the given file has it wrong.

The wrong node is named `wrong` and is right again where its attribute is mended, so that any tool can be told what
a fault is: the file's answer is not that of the mended file.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from fuzzparity import Target

SIZE = 16
LEFT = {"LeakyRelu": ("alpha", 0.2, 0.0), "ThresholdedRelu": ("alpha", 1.0, 40.0)}  # attribute, right, wrong
UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Tanh": torch.tanh,
    "Sin": torch.sin,
    "Sigmoid": torch.sigmoid,
    "Softplus": torch.nn.functional.softplus,
    "Atan": torch.atan,
    "Erf": torch.erf,
}


def weight(place: int) -> torch.Tensor:
    """Return the weight of a MatMul: the same on both sides."""
    generator = torch.Generator().manual_seed(place)
    return torch.randn(SIZE, SIZE, generator=generator) * (2.0 / SIZE) ** 0.5


def steps(count: int, wrong: str, at: int) -> list[str]:
    """Return the operators of a chain, the one that is wrong at its place."""
    names = list(UNARY)
    found = ["MatMul" if place % 3 == 0 else names[place % len(names)] for place in range(count)]
    found[at] = wrong
    return found


def run(operators: list[str], x: torch.Tensor) -> torch.Tensor:
    """Return what is right."""
    for place, name in enumerate(operators):
        if name == "MatMul":
            x = x @ weight(place)
        elif name == "LeakyRelu":
            x = torch.nn.functional.leaky_relu(x, 0.2)
        elif name == "ThresholdedRelu":
            x = torch.nn.functional.threshold(x, 1.0, 0.0)
        elif name == "Mul":
            x = x * 50.0
        else:
            x = UNARY[name](x)
    return x


def nodes(
    operators: list[str], source: str, target: str, prefix: str = ""
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Return the nodes of a chain, and their weights."""
    made, weights, name = [], [], source
    for place, op in enumerate(operators):
        out = target if place == len(operators) - 1 else f"{prefix}v{place}"
        inputs, attributes, label = [name], {}, f"{prefix}n{place}"
        if op == "MatMul":
            weights.append(numpy_helper.from_array(weight(place).numpy(), f"{prefix}w{place}"))
            inputs.append(weights[-1].name)
        if op == "Mul":
            weights.append(numpy_helper.from_array(np.float32(50.0), f"{prefix}w{place}"))
            inputs.append(weights[-1].name)
        if op in LEFT:
            attribute, _, wrong = LEFT[op]
            attributes, label = {attribute: wrong}, "wrong"
        made.append(helper.make_node(op, inputs, [out], name=label, **attributes))
        name = out
    return made, weights


def model(made: list[onnx.NodeProto], weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    """Return a model of x to y."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, SIZE]) for name in ("x", "y")]
    graph = helper.make_graph(made, "net", infos[:1], infos[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def mended(wrong: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its wrong node, where it has it, right again; bodies included."""
    right = onnx.ModelProto()
    right.CopyFrom(wrong)
    graphs = [right.graph]
    while graphs:
        graph = graphs.pop()
        for node in graph.node:
            graphs += [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
            if node.op_type in LEFT:
                attribute, value, _ = LEFT[node.op_type]
                next(one for one in node.attribute if one.name == attribute).f = value
    return right


def sample() -> torch.Tensor:
    """Return the input on which all of them differ."""
    return torch.randn(4, SIZE, generator=torch.Generator().manual_seed(7))


def _target(name: str, module: Callable[..., torch.Tensor], given: onnx.ModelProto) -> Target:
    return Target(name=name, module=module, inputs={"x": sample()}, onnx=given)


def chain() -> Target:
    """Return a linear chain of 38 nodes, one of them wrong on every negative number."""
    operators = steps(38, "LeakyRelu", 22)
    return _target("chain", lambda x: run(operators, x), model(*nodes(operators, "x", "y")))


def ranged() -> Target:
    """Return 30 nodes, one of them wrong only between 1 and 40, which values reach behind a gain."""
    operators = steps(30, "ThresholdedRelu", 17)
    operators[16] = "Mul"
    return _target("ranged", lambda x: run(operators, x), model(*nodes(operators, "x", "y")))


def arm() -> Target:
    """Return 30 nodes, 12 of them in an arm of an If, one of these wrong."""
    before, inside, after = steps(9, "Tanh", 1), steps(12, "LeakyRelu", 7), steps(6, "Sin", 1)

    def module(x: torch.Tensor) -> torch.Tensor:
        x = run(before, x)
        x = run(inside, x) if bool(x.sum() < 1e6) else -x
        return run(after, x)

    first, first_weights = nodes(before, "x", "a", "a_")
    body, body_weights = nodes(inside, "a", "b", "b_")
    last, last_weights = nodes(after, "c", "y", "c_")
    info = helper.make_tensor_value_info("b", TensorProto.FLOAT, [4, SIZE])
    other = helper.make_tensor_value_info("e", TensorProto.FLOAT, [4, SIZE])
    branch = helper.make_node(
        "If",
        ["is_small"],
        ["c"],
        name="branch",
        then_branch=helper.make_graph(body, "then_body", [], [info], body_weights),
        else_branch=helper.make_graph([helper.make_node("Neg", ["a"], ["e"], name="other")], "else_body", [], [other]),
    )
    total = helper.make_node("ReduceSum", ["a"], ["total"], name="total", keepdims=0)
    small = helper.make_node("Less", ["total", "limit"], ["is_small"], name="small")
    limit = numpy_helper.from_array(np.float32(1e6), "limit")
    made = [*first, total, small, branch, *last]
    return _target("arm", module, model(made, [*first_weights, *last_weights, limit]))
