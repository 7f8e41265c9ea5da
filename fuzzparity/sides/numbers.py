"""Numbers: the constants and lengths that stand in an ONNX graph, as goals for the search.

The idea: a fault sits where a value meets a constant or a length meets a kernel. What a comparison or a quantizer holds
comes first, then attributes and small tensors; weights say lengths by their shapes alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto

from fuzzparity.case import Array

SMALL = 64  # elements of a constant that is read value by value
MAX_CONSTANTS = 64
MAX_SIZES = 48
MAX_PERIODS = 24
SIZE_RANGE = range(2, 4097)  # integers that may be a length

_COMPARES = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Clip", "ThresholdedRelu"})
_QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "FakeQuant"})
_SIZE_ATTRIBUTES = ("kernel_shape", "strides", "dilations", "split", "output_shape", "blocksize", "hidden_size")
_RANGE = re.compile(r"VR\[(-?\w+), (-?\w+)\]")
_MAX_STEPS = 8
_FEW = 8  # elements of the operand of a comparison


class Tables(Protocol):
    """Hold the flat tables of one walk over a graph: see `graph`."""

    nodes: list[NodeProto]
    small: dict[str, Array]


def constants_of(tables: Tables) -> tuple[float, ...]:
    """Return numbers that stand in the graph: what is compared with, scalars, attributes, elements of small tensors."""
    found: dict[float, None] = {}

    def take(values: Iterable[float]) -> None:
        found.update(dict.fromkeys(float(value) for value in values if math.isfinite(value)))

    for node in tables.nodes:
        if node.op_type in _COMPARES:
            for array in _operands(tables, node):
                take(array.reshape(-1).tolist() if array.size <= _FEW else ())
    take(float(array.reshape(-1)[0]) for array in tables.small.values() if array.size == 1)
    for node in tables.nodes:
        for attribute in node.attribute:
            take([attribute.f] if attribute.type == AttributeProto.FLOAT else attribute.floats[:SMALL])
    for array in sorted(tables.small.values(), key=lambda array: array.size):
        if len(found) < MAX_CONSTANTS:
            take(array.reshape(-1).tolist())
    return tuple(found)[:MAX_CONSTANTS]


def steps_of(tables: Tables) -> tuple[float, ...]:
    """Return the scales of quantizers: values are rounded to multiples of these."""
    found: dict[float, None] = {}
    for node in tables.nodes:
        if node.op_type in _QUANTIZERS and len(node.input) > 1:
            array = tables.small.get(node.input[1])
            values = array.reshape(-1)[:2].tolist() if array is not None and array.dtype.kind == "f" else ()
            found.update(dict.fromkeys(float(value) for value in values if value > 0 and math.isfinite(value)))
    return tuple(found)[:_MAX_STEPS]


def factors_of(tables: Tables) -> tuple[float, ...]:
    """Return the numbers that a Resize multiplies sizes by, where they are no whole ones."""
    found: dict[float, None] = {}
    for node in tables.nodes:
        if node.op_type in ("Resize", "Upsample"):
            for array in _operands(tables, node):
                values = [float(str(value)) for value in array.reshape(-1)[:_FEW]] if array.dtype.kind == "f" else []
                found.update(dict.fromkeys(v for v in values if v > 0 and math.isfinite(v) and not v.is_integer()))
    return tuple(found)[:_MAX_STEPS]


def periods_of(tables: Tables) -> tuple[int, ...]:
    """Return lengths modulo which sizes matter: products of strides, divisors of integers, groups of a Reshape."""
    found: dict[int, None] = {}

    def take(values: Iterable[int]) -> None:
        found.update(dict.fromkeys(int(value) for value in values if value in SIZE_RANGE))

    total = 1
    for node in tables.nodes:
        stride, kernel = (max(_integers(node, name), default=1) for name in ("strides", "kernel_shape"))
        if stride > 1:
            total = total * stride if total * stride in SIZE_RANGE else total
            take((total, stride, stride * kernel))
        take(_integers(node, "blocksize"))
    for node in tables.nodes:
        if node.op_type in ("Mod", "Div", "Reshape", "Split") and len(node.input) > 1:
            array = tables.small.get(node.input[1])
            if array is not None and array.dtype.kind in "iu":
                take(array.reshape(-1)[:_FEW].tolist())
    return tuple(found)[:MAX_PERIODS]


def sizes_of(model: onnx.ModelProto, tables: Tables) -> tuple[int, ...]:
    """Return lengths worth trying: ends of exported ranges and their neighbours, kernels, integers, weights' dims."""
    found: dict[int, None] = {}
    for entry in (*model.graph.metadata_props, *model.metadata_props):
        if entry.key.endswith("range_constraints"):
            for end in (end for pair in _RANGE.findall(entry.value) for end in pair if end.lstrip("-").isdigit()):
                found.update(dict.fromkeys(n for n in (int(end) - 1, int(end), int(end) + 1) if n >= 0))
    for node in tables.nodes:
        for name in _SIZE_ATTRIBUTES:
            found.update(dict.fromkeys(n for n in _integers(node, name) if n in SIZE_RANGE))
        if len(found) >= MAX_SIZES:
            break
    for array in tables.small.values():
        if array.dtype.kind in "iu":
            found.update(dict.fromkeys(int(n) for n in array.reshape(-1).tolist() if n in SIZE_RANGE))
    for tensor in model.graph.initializer:
        if len(tensor.dims) > 1:
            found.update(dict.fromkeys(int(n) for n in tensor.dims if n in SIZE_RANGE and n > 4))
    return tuple(found)[:MAX_SIZES]


def _operands(tables: Tables, node: NodeProto) -> Iterator[Array]:
    found: Mapping[str, Array] = tables.small
    for name in node.input:
        array = found.get(name)
        if array is not None and array.dtype.kind in "iuf":
            yield np.asarray(array)


def _integers(node: NodeProto, name: str) -> Sequence[int]:
    for attribute in node.attribute:
        if attribute.name == name:
            return [int(n) for n in attribute.ints] or [int(attribute.i)]
    return ()
