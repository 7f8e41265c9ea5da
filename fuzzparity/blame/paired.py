"""Paired: the values of an ONNX graph by the names of torch's decomposed program, and each one's own error.

The idea: fed with torch's values, the nodes that translate one FX node either give torch's next value or are where the
error is born; what they inherit does not show. Bodies of If, Loop and Scan are walked in the same way, run by run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from fuzzparity.blame.nodes import local_error
from fuzzparity.blame.origins import origin_of
from fuzzparity.blame.subgraphs import CONTAINERS, View, bodies_of, outer_names
from fuzzparity.case import Array
from fuzzparity.values import Scope

Run = Callable[[bytes, Mapping[str, Array]], "list[Any] | None"]  # model, feeds -> outputs; None: refused


@dataclass(frozen=True, slots=True)
class Step:
    """Hold one paired value: the nodes that make it from torch's values, and how far they are off alone.

    `error`: largest error over the largest |value|, in eps; infinite where shape, integers or non-finite patterns
    differ. `path`: the bodies it lies in, ("node_cond__0/then_branch", "node_loop/body[3]").
    """

    value: str
    fx_node: str
    nodes: tuple[onnx.NodeProto, ...] = field(repr=False)
    error: float
    expected: Array = field(repr=False)
    actual: Array | None = field(repr=False)  # None: refused
    path: tuple[str, ...] = ()
    view: View | None = field(default=None, repr=False)  # of the graph it stands in
    feeds: Mapping[str, Array] = field(default_factory=dict, repr=False)  # torch's values that its nodes read


def pairs_of(view: View, scope: Scope, outputs: Collection[str] = ()) -> dict[str, str]:
    """Return ONNX value -> FX name for the main graph: by name, and graph outputs by position."""
    pairs = {name: name for name in view.makers if name in scope.values}
    for item, name in zip(view.graph.output, scope.outputs, strict=False):
        if name in scope.values and item.name in view.makers:
            pairs[item.name] = name
    return {value: name for value, name in pairs.items() if scope.values[name].dtype.kind != "c"}


def body_pairs(view: View, scope: Scope, others: Collection[str] = ()) -> dict[str, str]:
    """Return ONNX value -> FX name for one run of a body: names are made unique there, so metadata decides.

    `others`: FX names of a second graph in the same body (a loop's condition), which could be taken for one of these.
    """
    last: dict[str, str] = {}
    for node in view.graph.node:
        name = origin_of(node).fx_node
        if name in scope.values and name not in others and len([n for n in node.output if n]) == 1:
            last[name] = node.output[0]
    pairs = {value: name for name, value in last.items()}
    for item, name in zip(_own_outputs(view, scope), scope.outputs, strict=False):
        if name in scope.values and item in view.makers:
            pairs[item] = name
    return pairs


def _own_outputs(view: View, scope: Scope) -> list[str]:
    """Return the body's outputs without a loop's condition, which another graph gives."""
    names = [item.name for item in view.graph.output]
    return names[len(names) - len(scope.outputs) :]


def steps(
    view: View,
    scope: Scope,
    pairs: Mapping[str, str],
    feeds: Mapping[str, Array],
    run: Run,
    *,
    among: Collection[str] | None = None,
    on_node: Callable[[str, str], None] = lambda op, name: None,
    path: tuple[str, ...] = (),
) -> Iterator[Step]:
    """Yield the paired values of a graph in its order, each with its own error; `among` names those of interest."""
    known = known_of(view, scope, pairs, feeds)
    for value in sorted(pairs, key=lambda name: view.order[name]):
        if among is not None and value not in among:
            continue
        part = view.between([value], known.keys() - {value})
        if part is None or not part[0]:
            continue
        nodes, inputs = part
        on_node(nodes[-1].op_type, nodes[-1].name)
        fed = {name: known[name] for name in inputs if name in known}
        answer = run(view.model_of(nodes, fed, [value]), fed)
        expected = known[value]
        actual = None if answer is None else as_expected(expected, answer[0])
        error = local_error([expected], None if actual is None else [actual])
        yield Step(value, pairs[value], tuple(nodes), error, expected, actual, path, view, fed)


def known_of(view: View, scope: Scope, pairs: Mapping[str, str], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return what is known of a graph's values by ONNX name: its inputs, and torch's values in the graph's ranks."""
    known = dict(feeds)
    known.update({value: view.shaped(value, scope.values[name]) for value, name in pairs.items()})
    return known


def as_expected(expected: Array, actual: Any) -> Array:
    """Return a value in the form of torch's, where only the form differs: a number as [1], another integer width."""
    array = np.asarray(actual)
    if array.shape != expected.shape and array.size == expected.size == 1:
        array = array.reshape(expected.shape)
    if array.dtype != expected.dtype and array.dtype.kind in "biu" and expected.dtype.kind in "biu":
        array = array.astype(expected.dtype)
    return array


def container_of(step: Step) -> onnx.NodeProto | None:
    """Return the node with bodies that makes a step's value; None where no node of the step has any."""
    return next((node for node in reversed(step.nodes) if node.op_type in CONTAINERS), None)


def inner_steps(view: View, scope: Scope, step: Step, feeds: Mapping[str, Array], run: Run) -> Iterator[Step]:
    """Yield the steps inside the bodies that the node of a step ran in torch, in the order of the runs."""
    node = container_of(step)
    if node is None:
        return
    pairs = pairs_of(view, scope) if not step.path else {}
    known = known_of(view, scope, pairs, feeds)
    known = _with_outer(view, known, node, run)
    runs = scope.calls.get(origin_of(node).fx_node, [])
    bodies = dict(bodies_of(node))
    turn = 0
    for place, inner in enumerate(runs):
        if "cond_graph" in inner.graph and node.op_type == "Loop":
            continue
        attribute = _attribute_of(node, inner)
        body = View(view.model, bodies[attribute], {**view.constants, **known})
        condition = runs[place + 1] if node.op_type == "Loop" and place + 1 < len(runs) else None
        found = body_pairs(
            body, inner, set(condition.values) & set(inner.values) - _last_names(inner) if condition else ()
        )
        own = _body_feeds(node, body, inner, turn)
        label = f"{node.name}/{attribute}" + (f"[{turn}]" if node.op_type != "If" else "")
        turn += 1
        yield from steps(body, inner, found, own, run, path=(*step.path, label))


def _last_names(scope: Scope) -> set[str]:
    return set(scope.outputs)


def _attribute_of(node: onnx.NodeProto, scope: Scope) -> str:
    if node.op_type == "If":
        return "then_branch" if scope.graph.startswith("true") else "else_branch"
    return "body"


def _body_feeds(node: onnx.NodeProto, body: View, scope: Scope, turn: int) -> dict[str, Array]:
    """Return the inputs of one run of a body by ONNX name; torch's stand in the same order."""
    names = [item.name for item in body.graph.input]
    feeds: dict[str, Array] = {}
    if node.op_type == "Loop":
        feeds = {names[0]: np.asarray(turn, np.int64), names[1]: np.asarray(True)}
        names = names[2:]
    for onnx_name, name in zip(names, scope.inputs, strict=False):
        if name in scope.values:
            feeds[onnx_name] = scope.values[name]
    return feeds


def _with_outer(view: View, known: dict[str, Array], node: onnx.NodeProto, run: Run) -> dict[str, Array]:
    """Return what is known, with the values that the bodies take from outside, made from it where they are not."""
    missing = [name for name in outer_names(node) if name not in known and name not in view.constants]
    for name in missing:
        part = view.between([name], known.keys())
        if part is None or not part[0]:
            continue
        fed = {one: known[one] for one in part[1] if one in known}
        answer = run(view.model_of(part[0], fed, [name]), fed)
        if answer is not None:
            known = {**known, name: np.asarray(answer[0])}
    return known


def with_path(step: Step, path: tuple[str, ...]) -> Step:
    """Return a step as seen from another graph."""
    return replace(step, path=path)
