"""Build: the files of one twin (ONNX, state, facts) in a folder named by their digest.

The idea: a digest is over what decides an answer, and a folder is there whole or not at all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import onnx

from fuzzparity.contract import Build
from fuzzparity.sides.environment import packages
from fuzzparity.sides.graph import GraphFacts
from fuzzparity.sides.state import save_state
from fuzzparity.target import Export

_MAX_ONE_FILE_BYTES = 1 << 30  # above it weights go beside the model: protobuf ends at 2 GiB


@dataclasses.dataclass(frozen=True, slots=True)
class Exported:
    """Hold one ONNX model and what was noted while it was made."""

    model: onnx.ModelProto
    origin: str  # "exported by dynamo", "exported by torchscript", "given"
    notes: tuple[str, ...] = ()
    program: bytes = dataclasses.field(default=b"", repr=False)  # the decomposed program, where it could be kept


PROGRAM_FILE = "program.pt2"


def write_build(
    builds_folder: Path, exported: Exported, graph: GraphFacts, export: Export, module: Any, state_digest: str
) -> Build:
    """Write a build's folder in one step (a temporary one that is renamed) and return its record."""
    is_given = exported.origin == "given"
    onnx_digest, versions = canonical_digest(exported.model), packages()
    words: list[Any] = [state_digest, onnx_digest, exported.origin, versions]
    if not is_given:
        words += [export.exporter, export.opset, export.optimize, sorted(map(str, export.options))]
    digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()
    folder = builds_folder / digest
    temporary = builds_folder / f".tmp-{os.getpid()}-{digest[:12]}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    _save_model(exported.model, temporary / "model.onnx")
    save_state(module, temporary / "state.safetensors")
    if exported.program:
        (temporary / PROGRAM_FILE).write_bytes(exported.program)
    build = Build(
        digest=digest,
        folder=str(folder),
        origin=exported.origin,
        state_digest=state_digest,
        onnx_digest=onnx_digest,
        onnx_bytes=sum(file.stat().st_size for file in temporary.glob("model.onnx*")),
        nodes=graph.nodes,
        opset_requested=None if is_given else export.opset,
        opset_obtained=graph.opset,
        computing_dtype=graph.computing_dtype,
        versions=versions,
        notes=exported.notes,
    )
    (temporary / "build.json").write_text(json.dumps(dataclasses.asdict(build), indent=1), encoding="utf-8")
    try:
        temporary.rename(folder)
    except OSError:  # the same build was made before
        shutil.rmtree(temporary)
        if not (folder / "build.json").is_file():
            raise
    return build


def canonical_digest(model: onnx.ModelProto) -> str:
    """Return the sha256 of a model without what names its source (stack traces, documentation, producer)."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    bare.ClearField("producer_version")
    bare.ClearField("doc_string")
    del bare.metadata_props[:]
    digest = hashlib.sha256()
    graphs: list[Any] = [bare.graph, *bare.functions]
    while graphs:
        graph = graphs.pop()
        graph.ClearField("doc_string")
        del graph.metadata_props[:]
        for node in graph.node:
            node.ClearField("doc_string")
            del node.metadata_props[:]
            for attribute in node.attribute:
                graphs.extend([*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs])
        for value in graph.value_info:
            del value.metadata_props[:]
    for tensor in bare.graph.initializer:
        for part in taken_apart(tensor):
            digest.update(part)
    del bare.graph.initializer[:]
    digest.update(bare.SerializeToString(deterministic=True))
    return digest.hexdigest()


def taken_apart(tensor: onnx.TensorProto) -> tuple[bytes, bytes]:
    """Return a tensor as its description and its data, which is taken out of it: no message holds more than 2 GiB."""
    data = bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    return tensor.SerializeToString(deterministic=True), data


def put_together(description: bytes, data: bytes) -> onnx.TensorProto:
    """Return the tensor that `taken_apart` took apart."""
    tensor = onnx.TensorProto.FromString(description)
    if data:
        tensor.raw_data = data
    return tensor


def _save_model(model: onnx.ModelProto, path: Path) -> None:
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) < _MAX_ONE_FILE_BYTES:
        path.write_bytes(model.SerializeToString(deterministic=True))
    else:
        onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data")
