"""Tidy: a cut as a model to read and to give away: plain names, known shapes, no texts.

The idea: names of values spell the structure of the user's modules and metadata his source; a cut needs neither. What
is renamed is told beside it, so that its owner finds the way back.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper, numpy_helper

from fuzzparity.blame.cut import Part
from fuzzparity.blame.subgraphs import bodies_of
from fuzzparity.case import Array


def tidied(part: Part, actual: Mapping[str, Array]) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Return (the model of a part with new names and the types that its values have, old name -> new name).

    Inputs are x, x1, ...; weights w...; outputs y...; all else v.... `actual`: its outputs, for their types.
    """
    model = onnx.ModelProto.FromString(part.model)
    graph = model.graph
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    names: dict[str, str] = {}
    for letter, group in (("x", list(part.feeds)), ("w", list(weights)), ("y", list(part.outputs))):
        for place, name in enumerate(group):
            names[name] = letter + (str(place) if place else "")
    _name_all(graph, names)
    _rename_all(graph, names)
    del graph.input[:], graph.output[:], graph.value_info[:], model.metadata_props[:], graph.metadata_props[:]
    graph.name = "cut"
    graph.ClearField("doc_string")
    for field in ("producer_name", "producer_version", "domain", "doc_string"):
        model.ClearField(field)
    graph.input.extend(_typed(names[name], array) for name, array in part.feeds.items())
    graph.output.extend(
        _typed(names[name], actual[name]) if name in actual else _untyped(names[name]) for name in part.outputs
    )
    used = {node.domain for node in graph.node} | {""}
    kept = [item for item in model.opset_import if model.functions or item.domain in used or graph_has_bodies(graph)]
    opsets = [helper.make_opsetid(item.domain, item.version) for item in kept]
    del model.opset_import[:]
    model.opset_import.extend(opsets)
    return _with_inferred_outputs(model), names


def _with_inferred_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose outputs of unknown type have what shape inference says of them; it may say nothing."""
    if all(item.HasField("type") for item in model.graph.output):
        return model
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # it raises on models that are at fault themselves
        return model


def graph_has_bodies(graph: onnx.GraphProto) -> bool:
    """Tell whether any node has bodies."""
    return any(True for node in graph.node for _ in bodies_of(node))


def original_nodes(part: Part, most: int = 12) -> tuple[str, ...]:
    """Return "name (Op)" of the nodes of a part, in order, those of its bodies not included."""
    graph = onnx.ModelProto.FromString(part.model).graph
    told = [f"{node.name or next(iter(node.output), '')} ({node.op_type})" for node in graph.node]
    return tuple(told[:most]) + ((f"and {len(told) - most} more",) if len(told) > most else ())


def weights_of(model: onnx.ModelProto) -> dict[str, Array]:
    """Return the initializers of the main graph by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def with_arrays(
    model: onnx.ModelProto, feeds: Mapping[str, Array], weights: Mapping[str, Array]
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return (a model with other weights and inputs of other shapes, the inputs); its outputs lose their shapes."""
    changed = onnx.ModelProto()
    changed.CopyFrom(_without_weights(model))
    changed.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    del changed.graph.input[:], changed.graph.output[:]
    changed.graph.input.extend(_typed(name, array) for name, array in feeds.items())
    changed.graph.output.extend(_untyped(item.name) for item in model.graph.output)
    return changed, dict(feeds)


def with_types(model: onnx.ModelProto, outputs: Mapping[str, Array]) -> onnx.ModelProto:
    """Return a model whose outputs are declared as these are."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    names = [item.name for item in model.graph.output]
    del changed.graph.output[:]
    changed.graph.output.extend(_typed(name, outputs[name]) if name in outputs else _untyped(name) for name in names)
    return changed


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    bare = onnx.ModelProto()
    bare.ir_version = model.ir_version
    bare.opset_import.extend(model.opset_import)
    bare.functions.extend(model.functions)
    bare.graph.name = model.graph.name
    bare.graph.node.extend(model.graph.node)
    return bare


def _typed(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))


def _untyped(name: str) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name)


def _name_all(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Give a new name to each value that has none, bodies included; one name stays one name."""
    for item in (*graph.input, *graph.initializer):
        names.setdefault(item.name, f"v{len(names)}")
    for node in graph.node:
        for name in node.output:
            if name:
                names.setdefault(name, f"v{len(names)}")
        for _, body in bodies_of(node):
            _name_all(body, names)


def _rename_all(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
        tensor.doc_string = ""
        del tensor.metadata_props[:]
    for item in (*graph.input, *graph.output, *graph.value_info):
        item.name = names.get(item.name, item.name)
        item.doc_string = ""
        del item.metadata_props[:]
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        node.ClearField("name")
        node.ClearField("doc_string")
        del node.metadata_props[:]
        for _, body in bodies_of(node):
            body.name, body.doc_string = "body", ""
            del body.metadata_props[:], body.value_info[:]
            _rename_all(body, names)
