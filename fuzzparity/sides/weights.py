"""Weights: whether the tensors of a module stand in an ONNX file, the first question when every seed differs.

The idea: exporters transpose, reshape, split and join weights, so a weight stands in the file when its values do, in
whatever order; batch norm folded into the layer before it is folded here too, and compared as it would then stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper

from fuzzparity.case import Array, is_float
from fuzzparity.sides.state import state_of
from fuzzparity.sides.tensors import to_array

_STANDS = 0.999  # share of a weight's values that the file must hold
_FOLDED_RTOL, _FOLDED_ATOL = 1e-3, 1e-6  # folding rounds, and by its own formula
_INTEGERS = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4)
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Distance:
    """Hold how far a weight is from the tensor of the file that it should be."""

    name: str
    other: str
    largest: float


def same_weights_in(module: Any, path: Path) -> str:
    """Answer in one sentence whether a module and the ONNX file of a build hold the same weights."""
    return same_weights(module, onnx.load(str(path)))


def same_weights(module: Any, model: onnx.ModelProto) -> str:
    """Answer in one sentence whether a module and an ONNX file hold the same weights."""
    state = {name: array for name, array in _floats_of(module) if _tells(array)}
    stored = dict(_stored(model))
    if not state:
        return "the module has no weights of its own that could be looked for in the ONNX file"
    if not stored:
        quantized = any(tensor.data_type in _INTEGERS for tensor in model.graph.initializer)
        kind = "only quantized weights" if quantized else "no weights"
        return f"the ONNX file holds {kind}: they cannot be compared with the module's"
    values = _Values(stored)
    missing = [name for name, array in state.items() if not values.hold(array)]
    missing = [name for name in missing if name not in _folded(module, set(missing), stored)]
    found = len(state) - len(missing)
    text = f"{found} of {len(state)} weights of the module stand in the ONNX file"
    if not missing:
        return f"{text}: these are the same weights; the difference is in what is computed with them, or in the inputs"
    distances = [item for name in missing if (item := _nearest(name, state[name], stored)) is not None]
    far = sorted(distances, key=lambda item: (item.name != item.other, state[item.name].ndim < 2))[:_MOST_NAMED]
    words = ", ".join(f"{item.name} differs by up to {item.largest:.2g}" for item in far)
    words = words or f"nothing like {', '.join(missing[:_MOST_NAMED])} is in it"
    return f"{text}; {words}: was it exported from another training?"


def _floats_of(module: Any) -> Iterator[tuple[str, Array]]:
    for name, tensor in state_of(module).items():
        if tensor.is_floating_point():
            yield name, to_array(tensor)


def _tells(array: Array) -> bool:
    """Tell whether an array could be told from others: a bias of zeros stands in every file."""
    return array.size > 1 and bool((array != array.flat[0]).any())


def _stored(model: onnx.ModelProto) -> Iterator[tuple[str, Array]]:
    """Yield the float tensors of a file: initializers and constants, those of subgraphs included."""
    graphs: list[Any] = [model.graph, *model.functions]
    while graphs:
        graph = graphs.pop()
        tensors = [(tensor.name, tensor) for tensor in getattr(graph, "initializer", ())]
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value":
                    tensors.append((node.output[0], attribute.t))
                graphs.extend([*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs])
        for name, tensor in tensors:
            if tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16):
                yield name, np.asarray(numpy_helper.to_array(tensor))


class _Values:
    """Hold every value of a file, and answer whether it holds those of a weight."""

    def __init__(self, stored: dict[str, Array]) -> None:
        self._by_size: dict[int, list[Array]] = {}
        for array in stored.values():
            self._by_size.setdefault(array.size, []).append(array)
        wide = [array.astype(np.float64).reshape(-1) for array in stored.values() if array.dtype.itemsize >= 4]
        self._all = np.unique(np.concatenate(wide)) if wide else np.empty(0)

    def hold(self, weight: Array) -> bool:
        """Tell whether a weight's values stand in the file: in one tensor of its size, or spread over several.

        The second way is for floats of 32 bits and more only: the few values of a narrow float are everywhere.
        """
        ordered = np.sort(weight.astype(np.float64), axis=None)
        for array in self._by_size.get(weight.size, ()):
            if np.array_equal(np.sort(array.astype(np.float64), axis=None), ordered):
                return True
        if weight.dtype.itemsize < 4 or not self._all.size:
            return False
        places = np.minimum(np.searchsorted(self._all, ordered), self._all.size - 1)
        return float(np.mean(self._all[places] == ordered)) >= _STANDS


def _folded(module: Any, missing: set[str], stored: dict[str, Array]) -> set[str]:
    """Return the missing weights that stand in the file with batch norm folded into the layer before it."""
    found: set[str] = set()
    if not isinstance(module, torch.nn.Module):
        return found
    state, parts = state_of(module), list(module.named_modules())
    for place, (norm, part) in enumerate(parts):
        if not isinstance(getattr(part, "running_var", None), torch.Tensor):
            continue
        wanted = f"{norm}." if norm else ""
        for layer in (f"{name}." for name, _ in reversed(parts[:place]) if f"{name}.weight" in state):
            weight = to_array(state[f"{layer}weight"]).astype(np.float64)
            scale = _scale(state, wanted, float(getattr(part, "eps", 1e-5)))
            if weight.ndim < 2 or weight.shape[0] != scale.size:
                continue
            if _is_near(weight * scale.reshape(-1, *[1] * (weight.ndim - 1)), stored):
                found |= {name for name in missing if name.startswith((layer, wanted))}
                break
    return found


def _scale(state: dict[str, torch.Tensor], norm: str, eps: float) -> Array:
    variance = to_array(state[f"{norm}running_var"]).astype(np.float64)
    weight = state.get(f"{norm}weight")
    gain = to_array(weight).astype(np.float64) if weight is not None else np.ones_like(variance)
    scale: Array = gain / np.sqrt(variance + eps)
    return scale


def _is_near(wanted: Array, stored: dict[str, Array]) -> bool:
    return any(
        array.shape == wanted.shape and np.allclose(array.astype(np.float64), wanted, _FOLDED_RTOL, _FOLDED_ATOL)
        for array in stored.values()
    )


def _nearest(name: str, weight: Array, stored: dict[str, Array]) -> _Distance | None:
    """Return how far a weight is from the file's tensor of its name, else from the nearest one of its shape."""
    candidates = [
        _Distance(name, other, _far(weight, array if array.shape == weight.shape else array.T))
        for other, array in stored.items()
        if weight.shape in (array.shape, array.T.shape) and is_float(array.dtype)
    ]
    same = [item for item in candidates if item.other == name or item.other.endswith(f".{name}")]
    return min(same or candidates, key=lambda item: item.largest, default=None)


def _far(one: Array, other: Array) -> float:
    return float(np.max(np.abs(one.astype(np.float64) - other.astype(np.float64))))
