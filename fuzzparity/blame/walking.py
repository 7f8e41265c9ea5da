"""Walking: a graph run node by node, each told before it runs, for a run that dies or does not end.

The idea: the last node that was told is the one at work when the process died. An If is entered by the arm that its
condition chooses, so that the node inside it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from fuzzparity.blame.paired import Run
from fuzzparity.blame.subgraphs import View, bodies_of, constant_of, needs_of
from fuzzparity.case import Array

Told = Callable[[onnx.NodeProto, "tuple[str, ...]"], None]  # node, the bodies that it lies in


def walked(model: onnx.ModelProto, feeds: Mapping[str, Array], run: Run, told: Told) -> None:
    """Run the main graph node by node on inputs by ONNX name; nodes whose inputs no node gave are passed over."""
    _walk(View(model, model.graph), dict(feeds), run, told, ())


def _walk(view: View, known: dict[str, Array], run: Run, told: Told, path: tuple[str, ...]) -> None:
    for node in view.graph.node:
        needs = needs_of(node)
        if constant_of(node) is not None or any(name not in known and name not in view.constants for name in needs):
            continue
        told(node, path)
        fed = {name: known[name] for name in needs if name in known}
        if node.op_type == "If":
            _enter(view, node, known, run, told, path)
            told(node, path)  # all of it runs now
        names = [name for name in node.output if name]
        answer: list[Any] | None = run(view.model_of([node], fed, names), fed)
        for name, value in zip(names, answer or (), strict=False):
            if isinstance(value, (np.ndarray, np.generic)):
                known[name] = np.asarray(value)


def _enter(
    view: View, node: onnx.NodeProto, known: dict[str, Array], run: Run, told: Told, path: tuple[str, ...]
) -> None:
    """Walk the arm that an If takes, on what is known around it."""
    condition = known.get(node.input[0], view.constants.get(node.input[0]))
    if condition is None or condition.size != 1:
        return
    which = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    body = dict(bodies_of(node))[which]
    inside = View(view.model, body, {**view.constants, **known})
    _walk(inside, {}, run, told, (*path, f"{node.name}/{which}"))
