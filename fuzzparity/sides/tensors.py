"""Tensors: numpy arrays to torch tensors and back, bit for bit, bfloat16 and float8 included.

The idea: numpy knows bfloat16 and float8 only through ml_dtypes and torch knows them natively, so those cross the
border as integers of the same width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.utils import _pytree

from fuzzparity.case import Array
from fuzzparity.errors import InvalidCase

_BY_TORCH: dict[torch.dtype, tuple[torch.dtype, np.dtype[Any]]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e4m3fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fnuz)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
    torch.float8_e5m2fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2fnuz)),
}
_BY_NUMPY = {array: (tensor, carrier) for tensor, (carrier, array) in _BY_TORCH.items()}
_SAME_IN_NUMPY = frozenset(
    {
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    }
)
_INTEGERS: dict[int, type[np.generic]] = {1: np.uint8, 2: np.int16}


def to_tensor(array: Array) -> torch.Tensor:
    """Return a fresh contiguous tensor with an array's dtype, shape and bits; TypeError for a dtype torch lacks."""
    if array.dtype.isbuiltin == 1 and array.dtype.isnative:  # the common case, without a dtype made anew
        return torch.from_numpy(np.array(array, order="C", copy=True))
    own: Array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
    narrow = _BY_NUMPY.get(own.dtype)
    if narrow is None:
        return torch.from_numpy(own)
    return torch.from_numpy(own.view(_INTEGERS[own.dtype.itemsize])).view(narrow[0])


def to_array(tensor: torch.Tensor) -> Array:
    """Return a fresh array with a tensor's values.

    Complex numbers become pairs of reals in a last axis, as torch's ONNX exporters write them.
    """
    if tensor.dtype in _SAME_IN_NUMPY and tensor.layout is torch.strided and tensor.is_cpu and not tensor.is_neg():
        plain: Array = (tensor.detach() if tensor.requires_grad else tensor).numpy().copy()
        return plain
    if tensor.is_meta:
        raise InvalidCase("a tensor on the meta device has no values")
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    tensor = tensor.resolve_neg()
    narrow = _BY_TORCH.get(tensor.dtype)
    if narrow is None:
        return np.array(tensor.numpy(), copy=True)
    return np.array(tensor.contiguous().view(narrow[0]).numpy().view(narrow[1]), copy=True)


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Return the numpy dtype of a torch dtype."""
    narrow = _BY_TORCH.get(dtype)
    return narrow[1] if narrow is not None else torch.empty(0, dtype=dtype).numpy().dtype


def flatten_outputs(outputs: Any) -> tuple[Array, ...]:
    """Return the tensors and numbers of an output structure as arrays, in pytree order; None and texts are left out.

    Dict keys keep their order, as torch's exporters do.
    """
    if isinstance(outputs, torch.Tensor):
        return (to_array(outputs),)
    if type(outputs) in (tuple, list) and all(isinstance(one, torch.Tensor) for one in outputs):
        return tuple(map(to_array, outputs))
    arrays = (_as_array(leaf) for leaf in _pytree.tree_leaves(_opened(outputs)))
    return tuple(array for array in arrays if array is not None)


def output_leaves(outputs: Any) -> tuple[Any, ...]:
    """Return the leaves that `flatten_outputs` turns into arrays, as they are."""
    if isinstance(outputs, torch.Tensor):
        return (outputs,)
    return tuple(leaf for leaf in _pytree.tree_leaves(_opened(outputs)) if _as_array(leaf) is not None)


def output_names(outputs: Any) -> tuple[str, ...]:
    """Return a name for each flattened output: dict keys or fields joined by dots, "" where there are only places."""
    return tuple(name for name, _ in _named(outputs))


def _named(outputs: Any) -> Iterator[tuple[str, Array]]:
    paths = _pytree.tree_flatten_with_path(_opened(outputs))[0]
    for path, leaf in paths:
        array = _as_array(leaf)
        if array is not None:
            yield _path_name(path), array


def _opened(outputs: Any) -> Any:
    """Return an output structure with each dataclass that pytree does not know, a leaf for it, as a dict of fields."""
    if _pytree.tree_is_leaf(outputs):
        if dataclasses.is_dataclass(outputs) and not isinstance(outputs, type):
            return {f.name: _opened(getattr(outputs, f.name)) for f in dataclasses.fields(outputs)}
        return outputs
    return _pytree.tree_map(_opened, outputs)


def _as_array(leaf: Any) -> Array | None:
    if isinstance(leaf, torch.Tensor):
        return to_array(leaf)
    if isinstance(leaf, (bool, int, float, np.generic, np.ndarray)):
        return np.array(leaf)
    return None


def _path_name(path: tuple[Any, ...]) -> str:
    """Return "boxes" or "a.0" for a pytree path; "" when no key of it is a name."""
    keys = [getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", ""))) for entry in path]
    return ".".join(str(key) for key in keys) if any(isinstance(key, str) and key for key in keys) else ""
