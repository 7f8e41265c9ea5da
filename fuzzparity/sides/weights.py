"""Weights: whether the tensors of a module stand in an ONNX file, the first question when every seed differs.

The idea: exporters transpose, reshape, split and join weights, so a weight stands in the file when its values do, in
whatever order; batch norm folded into the layer beside it is folded here too, and compared as it would then stand.
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


@dataclass(frozen=True, slots=True)
class WeightsAnswer:
    """Answer how many of a module's weights, that could be told from others, stand in a file."""

    text: str
    found: int = 0
    count: int = 0


def same_weights_in(module: Any, path: Path) -> str:
    """Answer in one sentence whether a module and the ONNX file of a build hold the same weights."""
    return same_weights(module, onnx.load(str(path)))


def same_weights(module: Any, model: onnx.ModelProto) -> str:
    """Answer in one sentence whether a module and an ONNX file hold the same weights."""
    return compared_weights(module, model).text


def compared_weights(module: Any, model: onnx.ModelProto) -> WeightsAnswer:
    """Look for each weight of a module in an ONNX file; a count of 0 says that there was nothing to compare."""
    state = {name: array for name, array in _floats_of(module) if _tells(array)}
    stored = dict(_stored(model))
    if not state:
        return WeightsAnswer("the module has no weights of its own that could be looked for in the ONNX file")
    if not stored:
        quantized = any(tensor.data_type in _INTEGERS for tensor in model.graph.initializer)
        kind = "only quantized weights" if quantized else "no weights"
        return WeightsAnswer(f"the ONNX file holds {kind}: they cannot be compared with the module's")
    values = _Values(stored)
    missing = [name for name, array in state.items() if not values.hold(array)]
    folded = _folded(module, set(missing), stored) if missing else set()
    missing = [name for name in missing if name not in folded]
    found = len(state) - len(missing)
    text = f"{found} of {len(state)} weights of the module stand in the ONNX file"
    if not missing and (moved := _misplaced(state, stored)):
        return WeightsAnswer(f"{text}, but not where they belong: {'; '.join(moved[:_MOST_NAMED])}", found, len(state))
    if not missing:
        text += ": these are the same weights; the difference is in what is computed with them, or in the inputs"
        return WeightsAnswer(text, found, len(state))
    distances = [item for name in missing if (item := _nearest(name, state[name], stored)) is not None]
    far = sorted(distances, key=lambda item: (item.name != item.other, state[item.name].ndim < 2))[:_MOST_NAMED]
    words = ", ".join(f"{item.name} differs by up to {item.largest:.2g}" for item in far)
    words = words or f"nothing like {', '.join(missing[:_MOST_NAMED])} is in it"
    return WeightsAnswer(f"{text}; {words}: was it exported from another training?", found, len(state))


def _misplaced(state: dict[str, Array], stored: dict[str, Array]) -> list[str]:
    """Say which tensors of the file go by the name of a weight and hold another one's values, or its transpose."""
    told = []
    for name, weight in state.items():
        held = stored.get(name)
        if held is None or held.shape != weight.shape or np.array_equal(held, weight):
            continue
        if weight.ndim == 2 and np.array_equal(held, weight.T):
            told.append(f"{name} is transposed there")
        other = next((n for n, w in state.items() if w.shape == held.shape and np.array_equal(held, w)), "")
        if other:
            told.append(f"{name} holds the values of {other} there")
    return told


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
    """Return the missing weights that stand in the file with batch norm folded into a layer or into two vectors."""
    found: set[str] = set()
    if not isinstance(module, torch.nn.Module):
        return found
    parts = list(module.named_modules())
    for place, (name, part) in enumerate(parts):
        if not isinstance(getattr(part, "running_var", None), torch.Tensor):
            continue
        scale, shift = _scale_and_shift(part)
        own = {key for key in missing if key.startswith(f"{name}." if name else "")}
        if _is_near(scale, stored) and _is_near(shift, stored):  # left as a product and a sum
            found |= own
            continue
        # the layer before it first, from the nearest on; then the one behind it, whose inputs it scales
        layers = [(layer, _scaled_outputs) for layer in reversed(parts[:place])]
        layers += [(layer, _scaled_inputs) for layer in parts[place + 1 :]]
        for (layer_name, layer), scaled in layers:
            folded = scaled(layer, scale, shift)
            if folded is not None and _is_near(folded[0], stored):
                prefix = f"{layer_name}." if layer_name else ""
                found |= {f"{prefix}weight"} | (own | {f"{prefix}bias"} if _is_near(folded[1], stored) else set())
                break
    return found & missing


def _scale_and_shift(norm: Any) -> tuple[Array, Array]:
    """Return what a batch norm multiplies with and adds, per channel."""
    variance, mean = (to_array(tensor).astype(np.float64) for tensor in (norm.running_var, norm.running_mean))
    gain, offset = (getattr(norm, name, None) for name in ("weight", "bias"))
    scale = (to_array(gain).astype(np.float64) if gain is not None else 1.0) / np.sqrt(variance + float(norm.eps))
    shift = (to_array(offset).astype(np.float64) if offset is not None else 0.0) - mean * scale
    return scale, shift


def _weight_and_bias(layer: Any, outputs: int | None = None) -> tuple[Array, Array] | None:
    """Return those of a linear layer or a convolution, outputs first (transposed ones: inputs first, by group)."""
    weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim < 2 or not weight.is_floating_point():
        return None
    array = to_array(weight).astype(np.float64)
    count = array.shape[0] if not getattr(layer, "transposed", False) else array.shape[1] * int(layer.groups)
    if outputs not in (None, count):
        return None
    return array, to_array(bias).astype(np.float64) if isinstance(bias, torch.Tensor) else np.zeros(count)


def _scaled_outputs(layer: Any, scale: Array, shift: Array) -> tuple[Array, Array] | None:
    """Return weight and bias of a layer with the batch norm behind it folded in."""
    found = _weight_and_bias(layer, scale.size)
    if found is None:
        return None
    weight, bias = found
    rest = [1] * (weight.ndim - 2)
    if getattr(layer, "transposed", False):
        groups = int(layer.groups)
        parted = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        folded = (parted * scale.reshape(groups, 1, -1, *rest)).reshape(weight.shape)
    else:
        folded = weight * scale.reshape(-1, 1, *rest)
    return folded, bias * scale + shift


def _scaled_inputs(layer: Any, scale: Array, shift: Array) -> tuple[Array, Array] | None:
    """Return weight and bias of a layer with the batch norm before it folded in, where every input is one channel."""
    found = _weight_and_bias(layer)
    if found is None or getattr(layer, "transposed", False) or found[0].shape[1] != scale.size:
        return None
    weight, bias = found
    rest = [1] * (weight.ndim - 2)
    moved = (weight * shift.reshape(1, -1, *rest)).reshape(weight.shape[0], -1).sum(1)
    return weight * scale.reshape(1, -1, *rest), bias + moved


def _is_near(wanted: Array, stored: dict[str, Array]) -> bool:
    """Tell whether a tensor stands in the file up to rounding, in its own shape, another one, or transposed."""
    for array in stored.values():
        if array.size != wanted.size:
            continue
        forms = [array.reshape(wanted.shape)]
        forms += [array.T] if wanted.ndim == 2 and array.shape == wanted.T.shape else []
        if any(np.allclose(form.astype(np.float64), wanted, _FOLDED_RTOL, _FOLDED_ATOL) for form in forms):
            return True
    return False


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
