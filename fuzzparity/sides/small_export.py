"""Small export: a few calls of a tape as a module of their own, exported to ONNX.

The idea: where an exporter is at fault, the smallest thing to show is a module of its own whose export is wrong.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import torch

from fuzzparity.case import Array
from fuzzparity.sides.quiet import quietly
from fuzzparity.sides.tape import Call, Replay
from fuzzparity.sides.tensors import to_tensor
from fuzzparity.sides.torchlib import parse_operators_late
from fuzzparity.target import Export


def exported_calls(
    calls: Sequence[Call],
    inputs: Mapping[int, Array],
    fixed: Mapping[int, Array],
    outputs: Sequence[int],
    export: Export,
) -> bytes | None:
    """Return the ONNX model of calls whose leaves are inputs or fixed; None where the exporter refuses them.

    Opset and exporter are those of `export`, and nothing else of it.
    """
    args = tuple(to_tensor(array) for array in inputs.values())
    module = Replay(calls, list(inputs), {n: to_tensor(array) for n, array in fixed.items()}, outputs).eval()
    try:
        with quietly(), torch.no_grad():
            if export.exporter == "torchscript":
                buffer = io.BytesIO()
                torch.onnx.export(module, args, buffer, dynamo=False, opset_version=export.opset, verbose=False)
                return buffer.getvalue()
            parse_operators_late()
            program = torch.onnx.export(
                module, args, dynamo=True, optimize=export.optimize, opset_version=export.opset, verbose=False
            )
            model: bytes = program.model_proto.SerializeToString()
            return model
    except Exception:  # exporters raise whatever they meet
        return None
