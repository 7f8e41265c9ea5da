"""Subgraphs: parts of an ONNX graph as models of their own, a node's bodies included.

The idea: what lies between known values and a wanted one is a model; fed with values that are right, its answer is its
own doing. With one value of a whole graph given from outside, the rest of the graph shows what that value does to the
output: that is how a place is confirmed, without tapping a session, which would change its fusions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzzparity.case import Array

CONTAINERS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_SIZES = frozenset({"Shape", "Size"})
_GRAPH, _GRAPHS = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS


def bodies_of(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """Yield (attribute, graph) for each body of a node."""
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == _GRAPHS:
            yield from ((attribute.name, graph) for graph in attribute.graphs)


def outer_names(node: onnx.NodeProto) -> list[str]:
    """Return the names that the bodies of a node take from outside."""
    return list(dict.fromkeys(name for _, body in bodies_of(node) for name in free_names(body)))


def free_names(graph: onnx.GraphProto) -> list[str]:
    """Return the names that a body takes from outside."""
    own = {item.name for item in (*graph.input, *graph.initializer)}
    found: list[str] = []
    for node in graph.node:
        found += [name for name in (*node.input, *outer_names(node)) if name and name not in own]
        own.update(node.output)
    found += [item.name for item in graph.output if item.name not in own]
    return list(dict.fromkeys(found))


def label_of(node: onnx.NodeProto) -> str:
    """Return a node's name; of one without a name, that of its value."""
    return node.name or next((name for name in node.output if name), "")


def needs_of(node: onnx.NodeProto) -> list[str]:
    """Return all that a node reads: its own inputs and what its bodies take from outside."""
    return list(dict.fromkeys(name for name in (*node.input, *outer_names(node)) if name))


@dataclass
class View:
    """See one graph of a model as values and the nodes that make them; bodies are views of their own.

    `constants`: initializers and Constant nodes, those of the graphs around it included.
    """

    model: onnx.ModelProto
    graph: onnx.GraphProto
    around: Mapping[str, Array] = field(default_factory=dict)
    constants: dict[str, Array] = field(init=False, repr=False)
    makers: dict[str, onnx.NodeProto] = field(init=False, repr=False)
    order: dict[str, int] = field(init=False, repr=False)
    ranks: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Index the graph once."""
        self.constants = dict(self.around)
        self.constants.update({tensor.name: numpy_helper.to_array(tensor) for tensor in self.graph.initializer})
        self.makers, self.order = {}, {}
        for place, node in enumerate(self.graph.node):
            constant = constant_of(node)
            if constant is not None:
                self.constants[node.output[0]] = constant
            for name in node.output:
                if name:
                    self.makers[name] = node
                    self.order[name] = place
        typed = (*self.graph.value_info, *self.graph.output, *self.graph.input)
        self.ranks = {
            item.name: len(item.type.tensor_type.shape.dim)
            for item in typed
            if item.type.HasField("tensor_type") and item.type.tensor_type.HasField("shape")
        }

    def between(self, wanted: Sequence[str], known: Collection[str]) -> tuple[list[onnx.NodeProto], list[str]] | None:
        """Return (nodes in order, known values that they read) that lead from known values to the wanted ones.

        A wanted value is made anew even when it is known. None where a needed value is neither known nor made here.
        """
        nodes: dict[int, onnx.NodeProto] = {}
        inputs: dict[str, None] = {}
        asked = list(wanted)
        seen: set[str] = set()
        first = set(wanted)
        while asked:
            name = asked.pop()
            if name in seen:
                continue
            seen.add(name)
            if (name in known or name in self.constants) and name not in first:
                inputs[name] = None
                continue
            node = self.makers.get(name)
            if node is None:
                return None
            if constant_of(node) is not None:
                continue
            nodes[self.order[name]] = node
            asked += [need for need in needs_of(node) if need not in seen]
        return [nodes[place] for place in sorted(nodes)], list(inputs)

    def ancestors(self, wanted: Sequence[str]) -> set[str]:
        """Return the names of all values that the wanted ones depend on, themselves included."""
        seen: set[str] = set()
        asked = list(wanted)
        while asked:
            name = asked.pop()
            if name in seen:
                continue
            seen.add(name)
            node = self.makers.get(name)
            if node is not None:
                asked += needs_of(node)
        return seen

    def model_of(self, nodes: Sequence[onnx.NodeProto], feeds: Mapping[str, Array], wanted: Sequence[str]) -> bytes:
        """Return a model of these nodes; constants that they read and that are not fed become initializers."""
        made = {name for node in nodes for name in node.output}
        needed = {name for node in nodes for name in needs_of(node)} - made - set(feeds)
        weights = [numpy_helper.from_array(self.constants[name], name) for name in sorted(needed & set(self.constants))]
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
            for name, array in feeds.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in wanted]
        graph = helper.make_graph(list(nodes), "part", inputs, outputs, weights)
        made_model = helper.make_model(graph, opset_imports=self.model.opset_import, functions=self.model.functions)
        made_model.ir_version = self.model.ir_version
        return bytes(made_model.SerializeToString())

    def is_of_sizes(self, name: str) -> bool:
        """Tell whether a value comes from constants and the sizes of others alone."""
        seen, asked = {name}, [name]
        while asked:
            name = asked.pop()
            node = self.makers.get(name)
            if name in self.constants or (node is not None and node.op_type in _SIZES):
                continue
            if node is None:
                return False
            fresh = set(needs_of(node)) - seen
            seen |= fresh
            asked += fresh
        return True

    def shaped(self, name: str, array: Array) -> Array:
        """Return a value with the rank that the graph declares for it: numbers of a program may stand as [1]."""
        rank = self.ranks.get(name, array.ndim)
        return array if rank == array.ndim or array.size != 1 else array.reshape((1,) * rank)


def constant_of(node: onnx.NodeProto) -> Array | None:
    """Return the value of a Constant node, None for any other node."""
    if node.op_type != "Constant":
        return None
    attribute = node.attribute[0]
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        array: Array = numpy_helper.to_array(value)
        return array
    if attribute.name in ("value_int", "value_ints"):
        return np.asarray(value, np.int64)
    if attribute.name in ("value_float", "value_floats"):
        return np.asarray(value, np.float32)
    return None


def substituted(model: onnx.ModelProto, name: str, value: Array) -> onnx.ModelProto:
    """Return the model with one value of its main graph read from an input instead of made; a graph output stays one.

    The nodes that make the value stay where others still need them.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    given = f"{name}__given"
    for node in graph.node:
        _rename(node, name, given)
    outputs = {item.name for item in graph.output}
    kept = [node for node in graph.node if not (list(node.output) == [name] and name not in outputs)]
    if name in outputs:  # what is asked for is then the given value itself
        kept = [node for node in kept if name not in node.output]
        kept.append(helper.make_node("Identity", [given], [name]))
    del graph.node[:]
    graph.node.extend(kept)
    graph.input.append(
        helper.make_tensor_value_info(given, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
    )
    return changed


def _rename(node: onnx.NodeProto, old: str, new: str) -> None:
    for place, name in enumerate(node.input):
        if name == old:
            node.input[place] = new
    for _, body in bodies_of(node):
        own = {item.name for item in (*body.input, *body.initializer)}
        for inner in body.node:
            if old not in own:
                _rename(inner, old, new)
            own.update(inner.output)
        for item in body.output:
            if item.name == old and old not in own:
                item.name = new


@dataclass(frozen=True)
class BodyRun:
    """Hold one run of a body: its view, its own inputs by name, and what is known around it."""

    attribute: str
    turn: int
    view: View
    feeds: dict[str, Array]


def reference_body_runs(
    view: View, node: onnx.NodeProto, known: Mapping[str, Any], answer: Any, most_turns: int = 200
) -> Iterator[BodyRun]:
    """Yield the runs of the bodies of an If, a Loop or a Scan on known values, in order.

    `answer(model bytes, feeds) -> outputs or None` runs a body to get the next turn's state.
    """
    around = {name: np.asarray(known[name]) for name in outer_names(node) if name in known}
    bodies = dict(bodies_of(node))

    def seen(body: onnx.GraphProto) -> View:
        return View(view.model, body, {**view.constants, **around})

    given = [np.asarray(known[name]) if name and known.get(name) is not None else None for name in node.input]
    if node.op_type == "If":
        if given[0] is not None:
            which = "then_branch" if bool(given[0].reshape(-1)[0]) else "else_branch"
            yield BodyRun(which, 0, seen(bodies[which]), {})
    elif node.op_type == "Loop":
        yield from _loop_runs(seen(bodies["body"]), given, answer, most_turns)
    elif node.op_type == "Scan":
        yield from _scan_runs(seen(bodies["body"]), node, given, answer, most_turns)


def _loop_runs(view: View, given: list[Array | None], answer: Any, most_turns: int) -> Iterator[BodyRun]:
    trips = int(given[0].reshape(-1)[0]) if given[0] is not None else most_turns
    go_on = given[1] if len(given) > 1 and given[1] is not None else np.asarray(True)
    state = [array for array in given[2:] if array is not None]
    for turn in range(min(trips, most_turns)):
        if not bool(go_on.reshape(-1)[0]):
            return
        names = [item.name for item in view.graph.input]
        feeds = dict(
            zip(names, [np.asarray(turn, np.int64), np.asarray(bool(go_on.reshape(-1)[0])), *state], strict=True)
        )
        yield BodyRun("body", turn, view, feeds)
        outputs = run_body(view, feeds, answer)
        if outputs is None:
            return
        go_on, state = outputs[0], outputs[1 : 1 + len(state)]


def _scan_runs(
    view: View, node: onnx.NodeProto, given: list[Array | None], answer: Any, most_turns: int
) -> Iterator[BodyRun]:
    count = next((a.i for a in node.attribute if a.name == "num_scan_inputs"), len(given))
    state = [array for array in given[: len(given) - count] if array is not None]
    rows = [array for array in given[len(given) - count :] if array is not None]
    axes = next((list(a.ints) for a in node.attribute if a.name == "scan_input_axes"), [0] * count)
    if not rows:
        return
    for turn in range(min(rows[0].shape[axes[0]], most_turns)):
        slices = [np.take(row, turn, axis) for row, axis in zip(rows, axes, strict=True)]
        feeds = dict(zip([item.name for item in view.graph.input], [*state, *slices], strict=True))
        yield BodyRun("body", turn, view, feeds)
        outputs = run_body(view, feeds, answer)
        if outputs is None:
            return
        state = outputs[: len(state)]


def run_body(view: View, feeds: Mapping[str, Array], answer: Any) -> list[Array] | None:
    """Run a whole body on its inputs; None where the runner refuses."""
    wanted = [item.name for item in view.graph.output]
    fed = {**{name: array for name, array in view.constants.items() if name in free_names(view.graph)}, **feeds}
    fed = {name: array for name, array in fed.items() if array is not None}
    nodes = [node for node in view.graph.node]
    extra = []
    for place, name in enumerate(wanted):  # an input that is an output as it is
        if name not in view.makers:
            extra.append(helper.make_node("Identity", [name], [f"{name}__out_{place}"]))
            wanted[place] = f"{name}__out_{place}"
    outputs = answer(view.model_of([*nodes, *extra], fed, wanted), fed)
    return None if outputs is None else [np.asarray(output) for output in outputs]
