"""Graph: what the text of an ONNX model says about its inputs and about values and sizes worth trying.

The idea: one walk over all nodes, those of subgraphs and functions included, fills flat tables by value name; every
answer is read from the tables, so that a large graph costs linear time and a broken corner of one costs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from fuzzparity.case import Array
from fuzzparity.sides.implied import Implied, implied
from fuzzparity.sides.numbers import MAX_SIZES, SMALL, constants_of, factors_of, periods_of, sizes_of, steps_of

_PASSES = frozenset({"Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Expand", "Slice", "Transpose", "Flatten"})
_AXIS_INDEXED = frozenset({"Gather", "GatherElements", "ScatterElements", "Scatter"})
_FLOATS = {  # from most to least precise, by unit roundoff: bfloat16 keeps 8 bits, float16 11
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
}
_PRECISION = tuple(_FLOATS.values())


@dataclass(frozen=True, slots=True)
class GraphInput:
    """Describe one input of a graph. A dim is its length, its symbol, or None; `dims` is None without a shape."""

    name: str
    dtype: str
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """Hold what a graph says. `index_limits`: input -> length, or symbol of the dim, of the axis its values index.

    `index_lows`: input -> smallest value, where a constant is taken off it first; `index_reasons`: input -> why.
    """

    inputs: tuple[GraphInput, ...]
    outputs: tuple[str, ...]
    nodes: int
    opset: int
    computing_dtype: str
    index_limits: dict[str, int | str] = field(default_factory=dict)
    constants: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    periods: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()
    steps: tuple[float, ...] = ()
    index_lows: dict[str, int] = field(default_factory=dict)
    index_reasons: dict[str, str] = field(default_factory=dict)
    implied: Implied = field(default_factory=Implied)


@dataclass(slots=True)
class _Tables:
    """Collect the flat tables of one walk; `origin` maps a value to the one it is a re-arranged copy of.

    `shifts`: what a constant integer adds to such a copy.
    """

    nodes: list[NodeProto] = field(default_factory=list)
    origin: dict[str, str] = field(default_factory=dict)
    shifts: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[int | str | None, ...]] = field(default_factory=dict)
    small: dict[str, Array] = field(default_factory=dict)
    element_types: set[int] = field(default_factory=set)


def read_graph(model: onnx.ModelProto) -> GraphFacts:
    """Read a model's facts; what it does not say (a shape, a limit) is absent from the answer."""
    tables = _walk(model)
    initialized = {tensor.name for tensor in model.graph.initializer}
    inputs = tuple(_graph_input(value) for value in model.graph.input if value.name not in initialized)
    limits = _index_limits(tables, {item.name for item in inputs})
    found = implied(tables, {item.name: item.dtype for item in inputs}, _copies(tables))
    ends = [size for length in found.positions.values() for size in (length, length + 1)]
    return GraphFacts(
        inputs=inputs,
        outputs=tuple(value.name for value in model.graph.output),
        nodes=len(tables.nodes),
        opset=next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0),
        computing_dtype=_computing_dtype(tables),
        index_limits={name: found.limit for name, found in limits.items()},
        constants=constants_of(tables),
        sizes=tuple(dict.fromkeys((*ends, *sizes_of(model, tables))))[:MAX_SIZES],
        periods=periods_of(tables),
        factors=factors_of(tables),
        steps=steps_of(tables),
        index_lows={name: found.low for name, found in limits.items() if found.low > 0},
        index_reasons={name: found.reason for name, found in limits.items()},
        implied=found,
    )


def _copies(tables: _Tables) -> dict[str, str]:
    """Return value -> the value that it is a re-arranged copy of, for all that are one."""
    roots: dict[str, tuple[str, int]] = {}
    found = {name: _root(tables, name, roots) for name in tables.origin}
    return {name: root for name, (root, shift) in found.items() if not shift}


def dtype_name(element_type: int) -> str:
    """Return the numpy name of an ONNX element type, "" for one that has none."""
    try:
        return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type)).name)
    except (KeyError, TypeError, ValueError):
        return ""


def _graph_input(value: onnx.ValueInfoProto) -> GraphInput:
    return GraphInput(value.name, dtype_name(value.type.tensor_type.elem_type), _dims(value))


def _dims(value: onnx.ValueInfoProto) -> tuple[int | str | None, ...] | None:
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None
        for dim in value.type.tensor_type.shape.dim
    )


def _walk(model: onnx.ModelProto) -> _Tables:
    tables = _Tables()
    pending: list[GraphProto] = [model.graph]
    functions = {(function.domain, function.name): function for function in model.functions}
    for function in model.functions:
        for node in function.node:
            pending.extend(_visit(tables, node, functions))
    while pending:
        graph = pending.pop()
        for tensor in graph.initializer:
            _take_tensor(tables, tensor.name, tensor)
        for sparse in graph.sparse_initializer:
            tables.element_types.add(sparse.values.data_type)
        for value in (*graph.input, *graph.output, *graph.value_info):
            dims = _dims(value)
            if dims is not None:
                tables.shapes.setdefault(value.name, dims)
            tables.element_types.add(value.type.tensor_type.elem_type)
        for node in graph.node:
            pending.extend(_visit(tables, node, functions))
    return tables


def _visit(tables: _Tables, node: NodeProto, functions: dict[tuple[str, str], Any]) -> Iterator[GraphProto]:
    """Take in one node and yield the bodies in it."""
    tables.nodes.append(node)
    if node.op_type in _PASSES and node.input and node.output:
        tables.origin[node.output[0]] = node.input[0]
    elif node.op_type in ("Add", "Sub") and len(node.input) == 2 and node.output:
        _take_shift(tables, node)
    called = functions.get((node.domain, node.op_type))
    if called is not None:
        for inner, outer in zip(called.input, node.input, strict=False):  # trailing inputs may be left out
            tables.origin.setdefault(inner, outer)
    for attribute in node.attribute:
        if attribute.name == "to" and node.op_type == "Cast":
            tables.element_types.add(attribute.i)
        if node.op_type == "Constant" and node.output:
            _take_constant(tables, node.output[0], attribute)
        for body in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
            if node.op_type in ("Loop", "Scan"):
                for formal, actual in zip(body.input, node.input, strict=False):  # Loop may leave M and cond out
                    if actual:
                        tables.origin.setdefault(formal.name, actual)
            yield body


def _take_shift(tables: _Tables, node: NodeProto) -> None:
    """Note a value that is another one plus a constant integer."""
    pairs = [tuple(node.input)] if node.op_type == "Sub" else [tuple(node.input), tuple(reversed(node.input))]
    for value, constant in pairs:
        array = tables.small.get(constant)
        if array is not None and array.size == 1 and array.dtype.kind in "iu":
            number = int(array.reshape(-1)[0])
            tables.origin[node.output[0]] = value
            tables.shifts[node.output[0]] = -number if node.op_type == "Sub" else number
            return


def _take_tensor(tables: _Tables, name: str, tensor: TensorProto) -> None:
    tables.element_types.add(tensor.data_type)
    tables.shapes[name] = tuple(tensor.dims)
    if math.prod(tensor.dims) > SMALL or tensor.data_location == TensorProto.EXTERNAL:
        return
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, NotImplementedError):  # a broken or exotic tensor says nothing
        return
    if array.dtype.kind in "biuf":
        tables.small[name] = array


def _take_constant(tables: _Tables, name: str, attribute: AttributeProto) -> None:
    if attribute.name == "value":
        _take_tensor(tables, name, attribute.t)
    elif attribute.name in ("value_float", "value_int"):
        tables.small[name] = np.array(attribute.f if attribute.name == "value_float" else attribute.i)
        tables.shapes[name] = ()
    elif attribute.name in ("value_floats", "value_ints"):
        values = attribute.floats if attribute.name == "value_floats" else attribute.ints
        tables.shapes[name] = (len(values),)
        if len(values) <= SMALL:
            tables.small[name] = np.array(list(values))


def _computing_dtype(tables: _Tables) -> str:
    found = [_PRECISION.index(_FLOATS[item]) for item in tables.element_types if item in _FLOATS]
    return _PRECISION[max(found)] if found else "float32"


@dataclass(frozen=True, slots=True)
class _IndexLimit:
    """Say that the values of an input lie from `low` up to, not including, `limit`, a number or a symbol."""

    limit: int | str
    low: int
    reason: str


def _index_limits(tables: _Tables, inputs: set[str]) -> dict[str, _IndexLimit]:
    limits: dict[str, _IndexLimit] = {}
    roots: dict[str, tuple[str, int]] = {}
    for node in tables.nodes:
        place = 0 if node.op_type == "OneHot" else 1
        length = _limit(tables, node)
        if length is None or len(node.input) <= place:
            continue
        root, shift = _root(tables, node.input[place], roots)
        if root not in inputs:
            continue
        found, known = _shifted(node.op_type, length, shift), limits.get(root)
        if found is not None and (known is None or _is_stricter(found, known)):
            limits[root] = found
    return limits


def _shifted(op: str, length: int | str, shift: int) -> _IndexLimit | None:
    """Return the limit of what an index was before a constant was added; None where nothing would be left."""
    over = f"an axis of length {length}" if isinstance(length, int) else f"dim {length!r}"
    if not shift:
        return _IndexLimit(length, 0, f"graph: {op} over {over}")
    if not isinstance(length, int) or length <= shift:
        return None
    # a positive shift would allow negative values too: nobody means them
    return _IndexLimit(length - shift, max(0, -shift), f"graph: {op} over {over}, after {shift:+d}")


def _is_stricter(found: _IndexLimit, known: _IndexLimit) -> bool:
    if isinstance(found.limit, int) and isinstance(known.limit, int):
        return found.limit < known.limit
    return isinstance(found.limit, int)


def _root(tables: _Tables, name: str, roots: dict[str, tuple[str, int]]) -> tuple[str, int]:
    """Return the value that a name is a re-arranged copy of and what was added on the way, each name followed once."""
    path: list[str] = []
    seen: set[str] = set()
    while name not in roots and name in tables.origin and name not in seen:  # a broken model may hold a cycle
        path.append(name)
        seen.add(name)
        name = tables.origin[name]
    root, shift = roots.get(name, (name, 0))
    for step in reversed(path):
        shift += tables.shifts.get(step, 0)
        roots[step] = (root, shift)
    return root, shift


def _limit(tables: _Tables, node: NodeProto) -> int | str | None:
    """Return the length of the axis that a node indexes, as far as its data has a known shape."""
    if node.op_type == "OneHot" and len(node.input) > 1:
        depth = tables.small.get(node.input[1])
        return int(depth.reshape(-1)[0]) if depth is not None and depth.size == 1 else None
    if node.op_type not in _AXIS_INDEXED and node.op_type not in ("GatherND", "ScatterND"):
        return None
    shape = tables.shapes.get(node.input[0]) if node.input else None
    if not shape:
        return None
    if node.op_type in _AXIS_INDEXED:
        axis = _integer(node, "axis")
        return shape[axis] if -len(shape) <= axis < len(shape) else None
    indices = tables.shapes.get(node.input[1]) if len(node.input) > 1 else None
    last = indices[-1] if indices else None
    first = _integer(node, "batch_dims")
    lengths = shape[first : first + last] if isinstance(last, int) else ()
    whole = [item for item in lengths if isinstance(item, int)]
    return min(whole) if whole else next((item for item in lengths if item), None)


def _integer(node: NodeProto, name: str) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), 0)
