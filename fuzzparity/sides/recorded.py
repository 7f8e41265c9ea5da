"""Recorded: run the model file of a reproducer in ONNX Runtime, as data that may come from a stranger.

The idea: this runs in a child whose death is an answer. Nothing of the folder is executed but the model itself, and
the model may reach no file outside its folder: external data is checked before ORT sees the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from fuzzparity.case import Array, Case
from fuzzparity.contract import Contract, InputContract
from fuzzparity.errors import CannotRunHere
from fuzzparity.execution import Execution
from fuzzparity.sides.ort_side import OrtSide, open_ort
from fuzzparity.target import Ort

_ONNX_FORMAT = {"session.load_model_format": "ONNX"}  # never ORT's own format, whose references are not checked here


def open_recorded(model: Path, feeds: Mapping[str, str], ort: Ort) -> OrtSide | Execution:
    """Return a session on a recorded model, or the execution in which ORT refused it.

    `feeds`: input name -> ONNX input name. CannotRunHere for a model that reaches outside its folder.
    """
    contract = Contract(tuple(InputContract(name, "", (), onnx_name=onnx_name) for name, onnx_name in feeds.items()))
    ort = replace(ort, config={**ort.config, **_ONNX_FORMAT})
    try:
        proto = onnx.load(str(model), load_external_data=False)
    except (DecodeError, ValueError):
        return open_ort(model.read_bytes(), ort, contract)  # as bytes: whatever it is, it has no folder to reach from
    if check_external_data(proto, model.parent):
        return open_ort(model, ort, contract)
    return open_ort(model.read_bytes(), ort, contract)


def run_recorded(
    model: Path,
    inputs: Mapping[str, Array],
    feeds: Mapping[str, str],
    ort: Ort,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> Execution:
    """Run a recorded model once on recorded inputs; `on_phase` hears "load" and "run" before they begin."""
    on_phase("load")
    side = open_recorded(model, feeds, ort)
    if isinstance(side, Execution):
        return side
    on_phase("run")
    return side.run(Case(inputs))


def check_external_data(model: onnx.ModelProto, folder: Path) -> bool:
    """Tell whether a model has external data; CannotRunHere when any of it lies outside the model's folder."""
    found = False
    for tensor in _tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        found = True
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        path = folder / location
        if not location or not path.resolve().is_relative_to(folder.resolve()) or path.is_symlink():
            raise CannotRunHere(
                f"model.onnx keeps tensor {tensor.name!a:.80} in {location!a:.120}, which is not a file of its own "
                f"folder; nothing was run"
            )
    return found


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of a model: initializers and attributes, in subgraphs and functions too."""
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    attributes = [attribute for function in model.functions for attribute in function.attribute_proto]
    for info in model.training_info:
        graphs += [info.initialization, info.algorithm]
    while graphs or nodes or attributes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            nodes.extend(graph.node)
        elif nodes:
            attributes.extend(nodes.pop().attribute)
        else:
            attribute = attributes.pop()
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            graphs += [attribute.g, *attribute.graphs] if attribute.HasField("g") or attribute.graphs else []
