"""Origins: from an ONNX node to the FX node it was translated from, the module and the line of the user's code.

The idea: the dynamo exporter writes these into each node's metadata; nodes that a rewriting made have what the
exporter gave them. A node without metadata has at most its name, in which the legacy exporter writes the scopes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

import onnx

_PREFIX = "pkg.torch.onnx."
_FX_NAME = re.compile(r"%(\w+)")
_TARGET = re.compile(r"target=([^\]]+)\]")
_LEGACY = re.compile(r"^/(.+)/[^/]+$")  # "/layer1/conv/Conv"

Sourced = Callable[[str], str]  # stack trace -> "file:line" of the user's own code, "" without one


@dataclass(frozen=True, slots=True)
class Origin:
    """Say where an ONNX node comes from; every field may be empty."""

    fx_node: str = ""
    target: str = ""  # "torch.ops.aten.log1p.default"
    module: str = ""
    stack: str = ""


def origin_of(node: onnx.NodeProto) -> Origin:
    """Return what a node's metadata, or its name, says of where it comes from."""
    said = {item.key.removeprefix(_PREFIX): item.value for item in node.metadata_props}
    text = said.get("fx_node", "")
    name, target = _FX_NAME.search(text), _TARGET.search(text)
    module = _module_of(said.get("name_scopes", ""))
    if not said:
        legacy = _LEGACY.match(node.name)
        module = legacy[1].replace("/", ".") if legacy else ""
    return Origin(name[1] if name else "", target[1] if target else "", module, said.get("stack_trace", ""))


def has_origins(model: onnx.ModelProto) -> bool:
    """Tell whether the exporter's metadata is there."""
    return any(item.key == f"{_PREFIX}fx_node" for node in model.graph.node for item in node.metadata_props)


def _module_of(scopes: str) -> str:
    """Return "encoder.layers.3" of "['', 'encoder', 'encoder.layers.3', 'linear_2']"."""
    try:
        names = [str(name) for name in ast.literal_eval(scopes)] if scopes else []
    except (ValueError, SyntaxError):
        return ""
    return names[-2] if len(names) > 1 and not names[-2].startswith("_empty") else ""
