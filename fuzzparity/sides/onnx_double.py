"""ONNX double: an ONNX file with every narrow float turned into float64, run on the specification's own evaluator.

The idea: where a module cannot run in float64, the file can still say what it means to more digits. It is a weaker
witness: a fault of the export is in the file as well, so that its word against torch alone blames neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from fuzzparity.case import Array, is_float

_NARROW = frozenset(
    (
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
        TensorProto.FLOAT8E4M3FN,
        TensorProto.FLOAT8E5M2,
    )
)
# attributes that name the type of a result
_TYPE_ATTRIBUTES = frozenset(("to", "dtype", "output_dtype", "stash_type"))
# operators of the main graph that move values and compute none: their results are exact in any precision
MOVES = frozenset(
    (
        *("Abs", "Cast", "CastLike", "Ceil", "Clip", "Compress", "Concat", "Constant", "ConstantOfShape", "Expand"),
        *(
            "Flatten",
            "Floor",
            "Gather",
            "GatherElements",
            "GatherND",
            "Identity",
            "Max",
            "MaxPool",
            "Min",
            "Neg",
            "Pad",
        ),
        *(
            "Range",
            "ReduceMax",
            "ReduceMin",
            "Relu",
            "Reshape",
            "Round",
            "ScatterElements",
            "ScatterND",
            "Shape",
            "Sign",
        ),
        *("Size", "Slice", "Split", "Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where"),
    )
)
# operators that add up many rounded terms inside: noise on their inputs stands for the roundings in between
SUMS = frozenset(
    (
        *("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "CumSum", "Einsum", "GRU", "Gemm"),
        *("GlobalAveragePool", "GroupNormalization", "InstanceNormalization", "LSTM", "LayerNormalization"),
        *("LogSoftmax", "LpNormalization", "MatMul", "RNN", "ReduceL2", "ReduceLogSumExp", "ReduceMean", "ReduceProd"),
        *("ReduceSum", "ReduceSumSquare", "Softmax", "Attention", "RMSNormalization"),
    )
)


class Unfit(Exception):
    """Say why an evaluator's answer is not one of float64."""


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model with float64 for every narrower float: weights, constants, casts and declared types."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    for function in wide.functions:
        _widen_nodes(function.node)
    return wide


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for sparse in graph.sparse_initializer:
        _widen_tensor(sparse.values)
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type in _NARROW:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            _widen_attribute(node, attribute)


def _widen_attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    if attribute.type == onnx.AttributeProto.TENSOR:
        _widen_tensor(attribute.t)
    elif attribute.type == onnx.AttributeProto.GRAPH:
        _widen_graph(attribute.g)
    elif attribute.type == onnx.AttributeProto.GRAPHS:
        for graph in attribute.graphs:
            _widen_graph(graph)
    elif attribute.name in _TYPE_ATTRIBUTES and attribute.i in _NARROW and node.op_type != "LayerNormalization":
        attribute.i = TensorProto.DOUBLE
    elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
        values = np.array(attribute.f if attribute.name == "value_float" else list(attribute.floats), np.float64)
        attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(values)))


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _NARROW:
        values = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


Watch = Callable[[str, Callable[..., Sequence[Any]], tuple[Any, ...], Sequence[Any]], Sequence[Any]]


class WideEvaluator:
    """Run a model in float64, and let a caller look at, or change, what each node of the main graph gives."""

    def __init__(self, model: onnx.ModelProto) -> None:
        """Prepare a model; raises what the evaluator raises for operators that it lacks."""
        self._evaluator = ReferenceEvaluator(in_double(model))
        self._watch: Watch = _pass
        for node in self._evaluator.rt_nodes_:
            node.run = self._watched(node.op_type, node.run)

    def run(self, feeds: dict[str, Array], watch: Watch | None = None) -> tuple[Array, ...]:
        """Return the outputs; `watch` gets operator, function, inputs and outputs of each node.

        Raises Unfit where a node gives a narrow float or plainly computes in one, else what the evaluator raises.
        """
        self._watch = watch or _pass
        with np.errstate(all="ignore"):
            return tuple(np.asarray(value) for value in self._evaluator.run(None, feeds))

    def _watched(self, op: str, run: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        def watched(*inputs: Any, **context: Any) -> Sequence[Any]:
            outputs = run(*inputs, **context)
            for value in arrays(outputs):
                if is_float(value.dtype) and value.dtype != np.float64:
                    raise Unfit(f"{op} gives {value.dtype.name} in the ONNX reference")
                if op in SUMS and _is_narrowed(value, inputs):
                    raise Unfit(f"{op} computes in float32 in the ONNX reference")
            return self._watch(op, lambda *changed: run(*changed, **context), inputs, outputs)

        return watched


def arrays(values: Iterable[Any]) -> Iterator[Array]:
    """Yield the arrays among values."""
    return (value for value in values if isinstance(value, np.ndarray))


def _pass(op: str, run: Callable[..., Sequence[Any]], inputs: tuple[Any, ...], outputs: Sequence[Any]) -> Sequence[Any]:
    return outputs


def _is_narrowed(value: Array, inputs: Sequence[Any]) -> bool:
    """Tell whether a sum fits float32 in every one of many elements although its terms do not: it was rounded."""
    if value.dtype != np.float64 or value.size < 8 or not any(_needs_double(x) for x in arrays(inputs)):
        return False
    return not _needs_double(value) and not bool((value == np.round(value)).all())


def _needs_double(value: Array) -> bool:
    if value.dtype != np.float64:
        return False
    with np.errstate(all="ignore"):
        narrow = value.astype(np.float32).astype(np.float64)
    return bool(((value != narrow) & np.isfinite(value)).any())
