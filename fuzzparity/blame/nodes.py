"""Nodes: which node's kernel leaves the ONNX reference, each run alone on the reference's own values.

The idea: error that a node inherits says nothing of it. Fed with right values, a right kernel gives right values, so
the node whose own error stands out is the guilty one. Bodies of If, Loop and Scan are run as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzzparity.case import Array, is_float

Run = Callable[[bytes, Mapping[str, Array]], list[Any] | None]  # model, feeds -> outputs; None: refused

# an error of a node alone, over its largest |value|: 64 times eps is past the rounding of sums up to some thousands
_CLEAR = 64.0
_CONSTANTS = frozenset({"Constant"})


@dataclass(frozen=True, slots=True)
class Local:
    """Hold the local error of a node: infinite where shape, dtype, integers or non-finite patterns differ."""

    op: str
    node: str
    error: float  # largest error over the largest |value|, in eps of the dtype


def single_nodes(
    model: onnx.ModelProto, values: Mapping[str, Any], feeds: Mapping[str, Array]
) -> Iterator[tuple[onnx.NodeProto, bytes, dict[str, Array], list[Any]]]:
    """Yield (node, model with that node alone, its inputs, the reference's outputs) for each node that can be cut."""
    known: dict[str, Any] = {**values, **feeds}
    known.update({tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer})
    for node in model.graph.node:
        if node.op_type in _CONSTANTS or not all(name in known for name in node.output if name):
            continue
        names = list(dict.fromkeys(name for name in (*node.input, *_outer_names(node)) if name))
        if not all(isinstance(known.get(name), np.ndarray) for name in names):
            continue
        outputs = [name for name in node.output if name]
        if not all(isinstance(known[name], (np.ndarray, np.generic)) for name in outputs):
            continue
        inputs = {name: known[name] for name in names}
        yield (
            node,
            _alone(model, node, inputs, {n: np.asarray(known[n]) for n in outputs}),
            inputs,
            [known[name] for name in outputs],
        )


def _outer_names(node: onnx.NodeProto) -> list[str]:
    """Return the names that the bodies of a node take from outside."""
    found: list[str] = []
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
            own = {item.name for item in (*graph.input, *graph.initializer)}
            for inner in graph.node:
                found += [name for name in (*inner.input, *_outer_names(inner)) if name and name not in own]
                own.update(inner.output)
            found += [item.name for item in graph.output if item.name not in own]
    return found


def _alone(
    model: onnx.ModelProto, node: onnx.NodeProto, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
) -> bytes:
    def info(name: str, array: Array) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)

    graph = helper.make_graph(
        [node], "alone", [info(n, a) for n, a in inputs.items()], [info(n, a) for n, a in outputs.items()]
    )
    single = helper.make_model(graph, opset_imports=model.opset_import, functions=model.functions)
    single.ir_version = model.ir_version
    return bytes(single.SerializeToString())


def local_error(expected: list[Any], actual: list[Any] | None) -> float:
    """Return the error of a node alone in eps of its output's dtype, relative to the largest finite |value|."""
    if actual is None or len(actual) != len(expected):
        return float("inf")
    return max((_error(np.asarray(e), np.asarray(a)) for e, a in zip(expected, actual, strict=True)), default=0.0)


def _error(expected: Array, actual: Array) -> float:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return float("inf")
    if not is_float(expected.dtype) and expected.dtype.kind != "c":
        return 0.0 if bool(np.array_equal(expected, actual)) else float("inf")
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    e, a = expected.astype(kind), actual.astype(kind)
    with np.errstate(all="ignore"):
        same = (e == a) | (np.isnan(e) & np.isnan(a))
        if not (np.isfinite(e) & np.isfinite(a) | same).all():
            return float("inf")
        magnitude = np.abs(e[np.isfinite(e)])
        gap = np.abs(np.where(same, 0.0, e - a))
    largest = float(magnitude.max()) if magnitude.size else 0.0
    eps = float(onnx_eps(expected.dtype))
    worst = float(gap.max()) if gap.size else 0.0
    return worst / (eps * largest) if largest else (float("inf") if worst else 0.0)


def onnx_eps(dtype: np.dtype[Any]) -> float:
    """Return the eps of a float dtype, ml_dtypes included."""
    import ml_dtypes

    real = np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype
    return float(ml_dtypes.finfo(real).eps)


def guilty_node(
    model: onnx.ModelProto,
    values: Mapping[str, Any],
    feeds: Mapping[str, Array],
    run: Run,
    on_node: Callable[[str, str], None] = lambda op, name: None,
) -> Local | None:
    """Return the node whose kernel leaves the reference most clearly; None when no node does.

    The first node with a difference of pattern, shape or integers wins, else the one with the largest error in eps.
    `on_node` is told each node before it runs, so that a death names its node.
    """
    worst: Local | None = None
    for node, single, inputs, expected in single_nodes(model, values, feeds):
        on_node(node.op_type, node.name)
        error = local_error(expected, run(single, inputs))
        if error == float("inf"):
            return Local(node.op_type, node.name, error)
        if error > _CLEAR and (worst is None or error > worst.error):
            worst = Local(node.op_type, node.name, error)
    return worst
