"""Inner: the guilty node inside the bodies of an If, a Loop or a Scan whose own kernels leave the ONNX reference.

The idea: a body on known values is a graph like any other; what is asked of the nodes of the main graph is asked of
its nodes, run by run, in the order in which they ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from fuzzparity.blame.nodes import guilty_node
from fuzzparity.blame.paired import Run
from fuzzparity.blame.reference import intermediate_values
from fuzzparity.blame.subgraphs import CONTAINERS, View, free_names, reference_body_runs
from fuzzparity.case import Array

_DEEPEST = 8  # of nested bodies


def guilty_inside(
    model: onnx.ModelProto, node: onnx.NodeProto, feeds: Mapping[str, Array], run: Run
) -> tuple[onnx.NodeProto, tuple[str, ...]] | None:
    """Return (the node in the bodies of `node` whose kernel leaves the reference, the path to it); None without one."""
    if node.op_type not in CONTAINERS:
        return None
    known: dict[str, Any] = {**intermediate_values(model, feeds), **feeds}
    view = View(model, model.graph)
    return _inside(view, node, {**view.constants, **known}, run, 0)


def _inside(
    view: View, node: onnx.NodeProto, known: Mapping[str, Any], run: Run, depth: int
) -> tuple[onnx.NodeProto, tuple[str, ...]] | None:
    if depth > _DEEPEST:
        return None
    for one in reference_body_runs(view, node, known, run):
        label = f"{node.name}/{one.attribute}" + ("" if node.op_type == "If" else f"[{one.turn}]")
        model, fed = body_model(one.view, one.feeds)
        values = intermediate_values(model, fed)
        found = guilty_node(model, values, fed, run)
        if found is None:
            continue
        inner = next((n for n in one.view.graph.node if n.name == found.node and n.op_type == found.op), None)
        if inner is None:
            continue
        deeper = None
        if inner.op_type in CONTAINERS:
            deeper = _inside(one.view, inner, {**known, **values, **fed}, run, depth + 1)
        return (deeper[0], (label, *deeper[1])) if deeper else (inner, (label,))
    return None


def body_model(view: View, feeds: Mapping[str, Array]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return (a body as a model of its own, all that it is to be fed): what it takes from outside are inputs."""
    outer = {name: view.constants[name] for name in free_names(view.graph) if name in view.constants}
    fed = {name: np.asarray(array) for name, array in {**outer, **feeds}.items()}
    wanted = [item.name for item in view.graph.output if item.name in view.makers]
    model = onnx.ModelProto.FromString(view.model_of(list(view.graph.node), fed, wanted))
    model.graph.initializer.extend(view.graph.initializer)
    return model, fed
