"""Lint: what is likely to be wrong with an export although it runs, each with its reason and what to do.

The idea: a rule reads the module, the target's own inputs or the graph, and nothing else; a sound export gives none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import onnx
import torch
from onnx import TensorProto, numpy_helper

from fuzzparity.target import Target, leaves

_ANONYMOUS = re.compile(r"(?:input|x)\.\d+|args?_?\d+(?:_\d+)*|\d+|onnx::\S+|[lL]_\w+_")
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
_DUPLICATE_BYTES = 1 << 16  # smaller weights stored twice cost nothing
_MAX_CHECKED_BYTES = (1 << 31) - (1 << 20)  # the checker takes one protobuf message
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class Lint:
    """Hold one thing that looks wrong: the rule's name, and what was seen, why it matters and what to do."""

    name: str
    text: str


def lint(target: Target, module: Any, model: onnx.ModelProto, *, is_given: bool) -> tuple[Lint, ...]:
    """Return everything that looks wrong with one export, in a fixed order."""
    nodes = list(_nodes(model))
    found = (
        _train_mode(module),
        _untrained_norms(module),
        _shared_inputs(target),
        _anonymous_names(model) if is_given else None,
        _opset(target, model) if not is_given else None,
        _checker(model),
        _idle_inputs(model, nodes),
        _random_ops(model, nodes),
        _dropout(model, nodes),
        _narrowed_integers(model, nodes),
        _stored_twice(model),
    )
    return tuple(item for item in found if item is not None)


def _train_mode(module: Any) -> Lint | None:
    """Tell of parts that are in train mode although the module was put in eval mode."""
    parts = module.named_modules() if isinstance(module, torch.nn.Module) else ()
    names = [name or "the module" for name, part in parts if part.training and _minds_mode(part)]
    if not names:
        return None
    return Lint(
        "train_mode",
        f"{_listed(names)} is in train mode even after eval(): dropout and batch norm act as in training, and the two "
        "sides differ by chance; let its train() pass the mode on",
    )


def _minds_mode(part: torch.nn.Module) -> bool:
    kinds = (torch.nn.modules.batchnorm._NormBase, torch.nn.modules.dropout._DropoutNd)
    return isinstance(part, kinds) and not isinstance(part, torch.jit.ScriptModule)


def _untrained_norms(module: Any) -> Lint | None:
    parts = module.named_modules() if isinstance(module, torch.nn.Module) else ()
    names = [name or "the module" for name, part in parts if _is_untrained_norm(part)]
    if not names:
        return None
    return Lint(
        "untrained_batch_norm",
        f"the running mean of {_listed(names)} is all 0 and its variance all 1: never trained, or the checkpoint was "
        "not loaded, so that the export is of another model than the one you use; load the trained state",
    )


def _is_untrained_norm(part: torch.nn.Module) -> bool:
    mean, variance = getattr(part, "running_mean", None), getattr(part, "running_var", None)
    if not isinstance(mean, torch.Tensor) or not isinstance(variance, torch.Tensor) or not mean.numel():
        return False
    return not bool(mean.any()) and bool((variance == 1).all())


def _shared_inputs(target: Target) -> Lint | None:
    given = [leaf for name, value in {**target.inputs, **target.kwargs}.items() for leaf in leaves(value, name)]
    pairs = [(one, other) for (one, a), (other, b) in combinations(given, 2) if a is b]
    if not pairs:
        return None
    names = _listed([f"{one} and {other}" for one, other in pairs])
    return Lint(
        "shared_inputs",
        f"{names} are one tensor object in the target: an exporter may take the two for one input (each gets a copy "
        "here); clone one of them before your own export",
    )


def _anonymous_names(model: onnx.ModelProto) -> Lint | None:
    stored = _stored(model)
    names = [v.name for v in model.graph.input if v.name not in stored and _ANONYMOUS.fullmatch(v.name)]
    if not names:
        return None
    return Lint(
        "anonymous_inputs",
        f"ONNX input {_listed(names)} has a name that an exporter made up, and another export may make up another; "
        "pass input_names to torch.onnx.export",
    )


def _opset(target: Target, model: onnx.ModelProto) -> Lint | None:
    asked = target.export.opset
    got = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)
    if asked is None or asked == got:
        return None
    return Lint(
        "opset",
        f"opset {asked} was asked for, the model has opset {got}; ask for {got}, or use "
        "Export(exporter='torchscript'), which writes older ones",
    )


def _checker(model: onnx.ModelProto) -> Lint | None:
    """Run the full ONNX checker; ORT may still take what it refuses."""
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > _MAX_CHECKED_BYTES:
        return None
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        text = " ".join(str(error).split())
        return Lint("checker", f"the ONNX checker says: {text[:300]}")
    return None


def _idle_inputs(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> Lint | None:
    used = {name for node in nodes for name in node.input} | {value.name for value in model.graph.output}
    stored = _stored(model)
    names = [value.name for value in model.graph.input if value.name not in used and value.name not in stored]
    if not names:
        return None
    return Lint(
        "unused_inputs",
        f"nothing in the ONNX model reads input {_listed(names)}: its value was taken for a constant, or forward does "
        "not use it",
    )


def _random_ops(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> Lint | None:
    names = sorted({node.op_type for node in nodes if node.op_type in _RANDOM and node.domain in ("", "ai.onnx")})
    if any(node.op_type == "Dropout" and _trains(model, node, nodes) for node in nodes):
        names.append("Dropout in training mode")
    if not names:
        return None
    return Lint(
        "random_ops",
        f"the ONNX model draws random numbers ({_listed(names)}): parity cannot hold, whatever the inputs; pass the "
        "noise as an input, or turn it off for export",
    )


def _dropout(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> Lint | None:
    count = sum(node.op_type == "Dropout" and not _trains(model, node, nodes) for node in nodes)
    if not count:
        return None
    return Lint(
        "dropout",
        f"the ONNX model holds {count} Dropout node(s), which pass their input on: it was exported in train mode, "
        "where batch norm and the like export otherwise too; call eval() before export",
    )


def _trains(model: onnx.ModelProto, node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto]) -> bool:
    """Tell whether a Dropout node has a training_mode input that is not plainly false."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    for tensor in model.graph.initializer:
        if tensor.name == node.input[2]:
            return bool(numpy_helper.to_array(tensor).any())
    for other in nodes:
        if other.op_type == "Constant" and node.input[2] in other.output:
            return any(a.name == "value" and bool(numpy_helper.to_array(a.t).any()) for a in other.attribute)
    return True


def _narrowed_integers(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> Lint | None:
    """Tell of int64 values that are cast to int32 by a node that no cast of the module stands behind."""
    casts = [node for node in nodes if node.op_type == "Cast" and _narrows(node) and not _is_own_cast(node)]
    if not casts:
        return None
    wide = _int64_values(model)
    names = [node.name or node.output[0] for node in casts if node.input and node.input[0] in wide]
    if not names:
        return None
    return Lint(
        "narrowed_integers",
        f"{_listed(names)} casts int64 to int32, which torch does not: values beyond 2147483647 wrap around; keep "
        "int64, or bound the input with `ranges`",
    )


def _narrows(node: onnx.NodeProto) -> bool:
    return any(attribute.name == "to" and attribute.i == TensorProto.INT32 for attribute in node.attribute)


def _is_own_cast(node: onnx.NodeProto) -> bool:
    """Tell whether the program says so itself: `x.int()`, `x.to(torch.int32)`."""
    said = next((entry.value for entry in node.metadata_props if entry.key.endswith("fx_node")), "")
    return "_to_copy" in said or "convert_element_type" in said


def _int64_values(model: onnx.ModelProto) -> set[str]:
    try:
        model = onnx.shape_inference.infer_shapes(model)
    except Exception:  # above 2 GiB, or wrong in itself: the checker tells that
        pass
    values = [*model.graph.input, *model.graph.value_info]
    return {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.INT64}


def _stored_twice(model: onnx.ModelProto) -> Lint | None:
    alike: dict[tuple[object, ...], list[onnx.TensorProto]] = {}
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) >= _DUPLICATE_BYTES:
            alike.setdefault((tensor.data_type, *tensor.dims), []).append(tensor)
    by_content: dict[str, list[str]] = {}
    for tensor in (tensor for tensors in alike.values() if len(tensors) > 1 for tensor in tensors):
        key = f"{tensor.data_type}{list(tensor.dims)}{hashlib.sha256(tensor.raw_data).hexdigest()}"
        by_content.setdefault(key, []).append(tensor.name)
    groups = [names for names in by_content.values() if len(names) > 1]
    if not groups:
        return None
    return Lint(
        "duplicate_weights",
        f"{_listed([' and '.join(names[:3]) for names in groups])} hold the same weights twice: a tied weight was "
        "stored under each of its names, and the file is larger for it",
    )


def _stored(model: onnx.ModelProto) -> set[str]:
    """Return the names of initializers; an input of that name is a default that no caller has to give."""
    return {tensor.name for tensor in model.graph.initializer} | {
        sparse.values.name for sparse in model.graph.sparse_initializer
    }


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node, those of subgraphs and functions included."""
    pending: list[Any] = [model.graph, *model.functions]
    while pending:
        for node in pending.pop().node:
            yield node
            for attribute in node.attribute:
                pending.extend([*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
