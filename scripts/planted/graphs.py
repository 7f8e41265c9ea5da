"""Graphs: ONNX fragments written as text, and joining them with exported layers into one model.

The idea: a planted fault is a few wrong nodes between right ones. Its nodes carry its name, so that a finding can be
asked whether it points at them.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper, parser

OPSET = 18


@dataclass
class Graph:
    """Hold nodes and weights that lead from `inputs` to `outputs`, by name."""

    inputs: list[str]
    outputs: list[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    infos: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)

    @classmethod
    def of(cls, model: onnx.ModelProto) -> Graph:
        """Take a model apart."""
        graph = model.graph
        infos = {value.name: value for value in (*graph.input, *graph.output)}
        return cls([v.name for v in graph.input], [v.name for v in graph.output], list(graph.node),
                   list(graph.initializer), infos)  # fmt: skip

    def renamed(self, prefix: str, names: Mapping[str, str]) -> Graph:
        """Return a copy in which `names` are exchanged and every other name begins with the prefix."""

        def name(old: str) -> str:
            return names.get(old, f"{prefix}/{old}") if old else ""

        nodes = [_renamed_node(node, name, f"{prefix}/{node.op_type}_{i}") for i, node in enumerate(self.nodes)]
        weights = []
        for tensor in self.weights:
            copy = onnx.TensorProto()
            copy.CopyFrom(tensor)
            copy.name = name(tensor.name)
            weights.append(copy)
        return Graph([name(i) for i in self.inputs], [name(o) for o in self.outputs], nodes, weights)

    def renamed_values(self, names: Mapping[str, str]) -> Graph:
        """Return a copy in which some values are called otherwise, and everything else as before."""
        nodes = []
        for node in self.nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = [names.get(i, i) for i in node.input]
            copy.output[:] = [names.get(o, o) for o in node.output]
            nodes.append(copy)
        return Graph(self.inputs, self.outputs, nodes, self.weights)


def _renamed_node(node: onnx.NodeProto, name, own: str) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = own
    copy.input[:] = [name(i) for i in node.input]
    copy.output[:] = [name(o) for o in node.output]
    for attribute in copy.attribute:
        if attribute.HasField("g"):
            inner = [_renamed_node(n, name, f"{own}/{n.op_type}_{i}") for i, n in enumerate(attribute.g.node)]
            del attribute.g.node[:]
            attribute.g.node.extend(inner)
            for value in attribute.g.output:
                value.name = name(value.name)
                value.type.tensor_type.ClearField("shape")  # the text was written for one rank
    return copy


def parsed(text: str) -> onnx.ModelProto:
    """Return the model that a text stands for: `(float[n] x) => (float[n] y) { y = Neg (x) }`."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {OPSET}]> graph {text}')


def fragment(prefix: str, text: str, names: Mapping[str, str]) -> Graph:
    """Return a text as a part of a larger graph, its nodes named `prefix/Op_0`."""
    return Graph.of(parsed(text)).renamed(prefix, names)


def named(text: str, prefix: str) -> onnx.ModelProto:
    """Return a text as a model of its own, its nodes named `prefix/Op_0`."""
    model = parsed(text)
    for index, node in enumerate(model.graph.node):
        node.name = f"{prefix}/{node.op_type}_{index}"
    return model


def exported(
    module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], output: str, free: Mapping[str, Mapping[int, str]]
) -> Graph:
    """Return right layers as the exporter gives them; `free`: input or output -> dim -> symbol."""
    buffer = io.BytesIO()
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, tuple(inputs.values()), buffer, input_names=list(inputs), output_names=[output],
                dynamic_axes={name: dict(dims) for name, dims in free.items()}, opset_version=OPSET, dynamo=False,
            )  # fmt: skip
    finally:
        logging.disable(level)
    return Graph.of(onnx.load_from_string(buffer.getvalue()))


def affine(prefix: str, source: str, result: str, scale: float, offset: float) -> Graph:
    """Return `result = source * scale + offset`."""
    weights = [
        numpy_helper.from_array(np.asarray(value, np.float32), f"{prefix}/{name}")
        for name, value in (("scale", scale), ("offset", offset))
    ]
    nodes = [
        helper.make_node("Mul", [source, f"{prefix}/scale"], [f"{prefix}/scaled"], f"{prefix}/Mul"),
        helper.make_node("Add", [f"{prefix}/scaled", f"{prefix}/offset"], [result], f"{prefix}/Add"),
    ]
    return Graph([source], [result], nodes, weights)


def joined(
    parts: Sequence[Graph], inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    """Return parts, each after those it reads from, as one checked model."""
    nodes = [node for part in parts for node in part.nodes]
    weights = {tensor.name: tensor for part in parts for tensor in part.weights}
    graph = helper.make_graph(nodes, "planted", list(inputs), list(outputs), list(weights.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(model)
    return model
