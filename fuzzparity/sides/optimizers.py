"""Optimizers: the names of the graph passes of the installed ONNX Runtime.

The idea: ORT takes any name in `disabled_optimizers` and ignores the unknown in silence, but at verbose severity a new
session logs every pass by name, so the names come from the library that is installed.
"""

from __future__ import annotations

import functools
import re

import onnxruntime
from onnx import TensorProto, helper

from fuzzparity.sides.quiet import captured

_PASS = re.compile(r"GraphTransformer (\S+) modified")
# rules inside Level1/Level2_RuleBasedTransformer, which no log names: core/optimizer/graph_transformer_utils.cc
REWRITE_RULES = frozenset(
    {
        "CastChainElimination",
        "CastElimination",
        "ClipQuantRewrite",
        "ConvAddFusion",
        "ConvBNFusion",
        "ConvMulFusion",
        "DivMulFusion",
        "EliminateDropout",
        "EliminateIdentity",
        "EliminateSlice",
        "ExpandElimination",
        "FuseReluClip",
        "GemmSumFusion",
        "GemmTransposeFusion",
        "LabelEncoderFusion",
        "MatMul_BatchNormalization_Fusion",
        "NoopElimination",
        "NotWhereFusion",
        "Pad_Fusion",
        "PreShapeNodeElimination",
        "ReluQuantRewrite",
        "UnsqueezeElimination",
    }
)


@functools.cache
def known_optimizers() -> frozenset[str]:
    """Return every name that `disabled_optimizers` may hold (one tiny session, about 5 ms)."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 0
    with captured(2) as log:
        onnxruntime.InferenceSession(_tiny(), options, providers=["CPUExecutionProvider"])
        log.seek(0)
        text = log.read().decode(errors="replace")
    return frozenset(_PASS.findall(text)) | REWRITE_RULES


def _tiny() -> bytes:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    return bytes(model.SerializeToString())
