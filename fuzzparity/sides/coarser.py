"""Coarser: whether a given ONNX model is a quantized or half-precision twin of a float32 module, and of how many bits.

The idea: the graph's own operators and types say so, and the module's parameters say that torch computes finer. What
the seeds show decides afterwards whether it matters: a module that holds the same quantized weights agrees to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import TensorProto

QUANTIZED, HALF = "quantized", "half"
_OPS = frozenset(  # of ONNX and of ORT's own domain; "QLinear..." by their prefix
    (
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"),
        *("MatMulNBits", "MatMulBnb4", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"),
        *("QAttention", "QGemm", "QMoE", "QOrderedMatMul", "GatherBlockQuantized", "QEmbedLayerNormalization"),
    )
)
_FOUR_BITS = frozenset((TensorProto.INT4, TensorProto.UINT4))
_FLOAT8 = frozenset(number for name, number in TensorProto.DataType.items() if name.startswith("FLOAT8"))
SIGNIFICANDS = {"float16": 11, "bfloat16": 8}  # bits, the implied one counted
_FLOAT8_BITS = 4  # of float8_e4m3fn, the finer of the two


def coarser_kind(path: Path, computing_dtype: str, module: Any) -> tuple[str, int]:
    """Return ("quantized" or "half", bits) of a twin that computes coarser than its module; ("", 0) of any other."""
    bits = quantized_bits(onnx.load(path, load_external_data=False))
    if bits:
        return QUANTIZED, bits
    if computing_dtype in SIGNIFICANDS and _is_float32(module):
        return HALF, SIGNIFICANDS[computing_dtype]
    return "", 0


def quantized_bits(model: onnx.ModelProto) -> int:
    """Return the bits of the narrowest quantized values of a graph, 0 where nothing is quantized."""
    graphs: list[Any] = [model.graph, *model.functions]
    found: set[int] = set()
    types: set[int] = set()
    while graphs:
        graph = graphs.pop()
        types.update(tensor.data_type for tensor in getattr(graph, "initializer", ()))
        for node in graph.node:
            graphs.extend(_bodies(node))
            types.update(attribute.t.data_type for attribute in node.attribute if attribute.HasField("t"))
            if node.op_type in _OPS or node.op_type.startswith("QLinear"):
                found.add(next((a.i for a in node.attribute if a.name == "bits"), 4 if "Bnb4" in node.op_type else 8))
    if not found:
        return 0
    narrow = 4 if types & _FOUR_BITS else _FLOAT8_BITS if types & _FLOAT8 else 8
    return min(*found, narrow)


def _bodies(node: onnx.NodeProto) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _is_float32(module: Any) -> bool:
    """Tell whether a module holds float32 (or wider) parameters and no narrower ones; a callable without any does."""
    if not isinstance(module, torch.nn.Module):
        return True
    dtypes = {value.dtype for value in (*module.parameters(), *module.buffers()) if value.is_floating_point()}
    return not dtypes & {torch.float16, torch.bfloat16}
