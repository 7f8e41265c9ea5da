"""Literal: write arrays and small ONNX models out as Python source that rebuilds them exactly.

The idea: a reproducer that can be read is worth more than a file. What is written out is checked against the original
bytes while it is made; whatever is too large or cannot be spelled exactly returns None and stays in its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.printer
from onnx import numpy_helper

from fuzzparity.case import Array, is_float

MOST_ELEMENTS = 64
MOST_NODES = 12


def array_literal(array: Array, most_elements: int = MOST_ELEMENTS) -> str | None:
    """Return an expression over `np` (and `ml_dtypes`, `nan`, `inf`) that rebuilds an array bit for bit, or None."""
    if array.dtype.kind not in "biufV" or array.dtype.fields is not None:
        return None
    flat = array.reshape(-1)
    dtype = dtype_literal(array.dtype)
    if flat.size > 1 and flat.tobytes() == np.full_like(flat, flat[0]).tobytes():
        text = _spelled(flat[:1])
        if text is not None and array.dtype.kind != "V":
            zero = f"np.zeros({array.shape!r}, {dtype})"
            return zero if not any(flat[:1].tobytes()) else f"np.full({array.shape!r}, {text[0]}, {dtype})"
    if flat.size > most_elements:
        return None
    shape = f".reshape({array.shape!r})" if array.ndim != 1 else ""
    texts = _spelled(flat)
    if texts is None:
        return f'np.frombuffer(bytes.fromhex("{flat.tobytes().hex()}"), {dtype}){shape}'
    if array.dtype.kind == "V":
        return f"np.array([{', '.join(texts)}], 'float32').astype({dtype}){shape}"
    return f"np.array([{', '.join(texts)}], {dtype}){shape}"


def dtype_literal(dtype: np.dtype[Any]) -> str:
    """Return the expression for a dtype: a numpy name, or an attribute of ml_dtypes."""
    return f"ml_dtypes.{dtype.name}" if dtype.kind == "V" else repr(dtype.name)


def needs_ml_dtypes(arrays: Iterable[Array]) -> bool:
    """Tell whether any array has a dtype that plain numpy lacks."""
    return any(array.dtype.kind == "V" for array in arrays)


def _spelled(flat: Array) -> list[str] | None:
    """Return the shortest spelling of each value, or None when spelling loses bits (NaN payloads, long doubles)."""
    if flat.dtype.kind == "V" and not is_float(flat.dtype):
        return None
    wide = flat.astype(np.float32) if flat.dtype.kind == "V" else flat
    texts = [str(value) for value in wide]
    if flat.dtype.kind == "b":
        return texts
    if flat.dtype.kind in "iu":
        return texts
    values = np.array([float(text) for text in texts], np.float32 if flat.dtype.kind == "V" else flat.dtype)
    rebuilt = values.astype(flat.dtype) if flat.dtype.kind == "V" else values
    return texts if rebuilt.tobytes() == flat.tobytes() else None


def model_source(model: onnx.ModelProto, most_nodes: int = MOST_NODES) -> str | None:
    """Return the body of a function that builds a small model by `onnx.helper`, or None when it is not that simple.

    Metadata and doc texts are left out: ORT does not read them, and they hold source paths.
    """
    graph = model.graph
    odd = model.functions or graph.sparse_initializer or graph.quantization_annotation or model.training_info
    if odd or len(graph.node) > most_nodes or len(graph.initializer) > 2 * most_nodes:
        return None
    nodes = [_node(node) for node in graph.node]
    weights = [_tensor(tensor) for tensor in graph.initializer]
    infos = [_infos(group) for group in (graph.input, graph.output, graph.value_info)]
    if None in nodes or None in weights or None in infos:
        return None
    opsets = ", ".join(f"helper.make_opsetid({item.domain!a}, {item.version})" for item in model.opset_import)
    value_info = f"        value_info={infos[2]},\n" if graph.value_info else ""
    return (
        f"    nodes = [\n{_lines(nodes)}    ]\n"
        f"    graph = helper.make_graph(\n        nodes,\n        {graph.name!a},\n"
        f"        inputs={infos[0]},\n        outputs={infos[1]},\n{value_info}"
        f"        initializer=[\n{_lines(weights, 12)}        ],\n    )\n"
        f"    return helper.make_model(graph, opset_imports=[{opsets}], ir_version={model.ir_version})\n"
    )


def model_text(model: onnx.ModelProto, most_nodes: int = MOST_NODES) -> str | None:
    """Return a small model in ONNX's own text form, without its weights; None where reading it gives another model."""
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    del graph.initializer[:]
    if len(graph.node) > most_nodes or model.functions or graph.sparse_initializer:
        return None
    opsets = ", ".join(f'"{item.domain}" : {item.version}' for item in model.opset_import)
    try:
        text = f"<ir_version: {model.ir_version}, opset_import: [{opsets}]>\n{onnx.printer.to_text(graph)}"
        again = onnx.parser.parse_model(text).graph
    except Exception:  # the parser and the printer raise what C++ raises
        return None
    if '"""' in text or "\\" in text or not text.isascii():
        return None
    return text.rstrip() if _plain_graph(again) == _plain_graph(graph) else None


def _plain_graph(graph: onnx.GraphProto) -> list[bytes]:
    """Return what a graph means as bytes, part by part; the order of attributes says nothing."""
    ordered = onnx.GraphProto()
    ordered.CopyFrom(graph)
    _order(ordered)
    parts = (*ordered.node, *ordered.input, *ordered.output)
    return [part.SerializeToString(deterministic=True) for part in parts]


def _order(graph: onnx.GraphProto) -> None:
    """Bring a graph, bodies included, into the one form of all that mean the same."""
    for node in graph.node:
        attributes = sorted(node.attribute, key=lambda one: one.name)
        del node.attribute[:]
        node.attribute.extend(attributes)
        node.ClearField("name")
        for name in ("domain", "overload"):
            if not getattr(node, name):
                node.ClearField(name)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _order(attribute.g)


def _lines(texts: Sequence[str | None], indent: int = 8) -> str:
    return "".join(f"{' ' * indent}{text},\n" for text in texts)


_RESERVED = frozenset({"op_type", "inputs", "outputs", "name", "doc_string", "domain", "overload"})


def _node(node: onnx.NodeProto) -> str | None:
    parts = [ascii(node.op_type), ascii(list(node.input)), ascii(list(node.output))]
    parts += [f"{key}={getattr(node, key)!a}" for key in ("name", "domain") if getattr(node, key)]
    for attribute in node.attribute:
        value = _attribute(attribute)
        is_plain = attribute.name.isidentifier() and attribute.name.isascii() and attribute.name not in _RESERVED
        if value is None or not is_plain or node.overload:
            return None
        parts.append(f"{attribute.name}={value}")
    return f"helper.make_node({', '.join(parts)})"


def _attribute(attribute: onnx.AttributeProto) -> str | None:
    """Return an attribute's value as source; None for graphs, references, empty lists (which carry no type)."""
    if attribute.ref_attr_name:
        return None
    kinds = onnx.AttributeProto
    match attribute.type:
        case kinds.INT:
            return repr(attribute.i)
        case kinds.FLOAT:
            return repr(attribute.f)  # a float32 in double's spelling: exact
        case kinds.STRING:
            return ascii(attribute.s)
        case kinds.INTS | kinds.FLOATS | kinds.STRINGS:
            values = list(attribute.ints or attribute.floats or attribute.strings)
            return ascii(values) if values else None
        case kinds.TENSOR:
            return _tensor(attribute.t)
    return None


def _tensor(tensor: onnx.TensorProto) -> str | None:
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.data_type == onnx.TensorProto.STRING:
        return None
    if tensor.data_type in (onnx.TensorProto.UINT4, onnx.TensorProto.INT4):
        return None
    literal = array_literal(numpy_helper.to_array(tensor))
    return None if literal is None else f"numpy_helper.from_array({literal}, {tensor.name!a})"


def _infos(infos: Iterable[onnx.ValueInfoProto]) -> str | None:
    texts = []
    for info in infos:
        if info.type.WhichOneof("value") != "tensor_type":
            return None
        kind = info.type.tensor_type
        dims: list[int | str | None] | None = None
        if kind.HasField("shape"):
            dims = [_dim(dim) for dim in kind.shape.dim]
        texts.append(f"helper.make_tensor_value_info({info.name!a}, {kind.elem_type}, {dims!a})")
    return f"[{', '.join(texts)}]"


def _dim(dim: Any) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return str(dim.dim_param) if dim.HasField("dim_param") else None
