"""Small modules and ONNX models for the tests of `sides`, and a loaded target around any of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from fuzzparity import Target
from fuzzparity.case import Case
from fuzzparity.contract import Contract, InputContract
from fuzzparity.sides.load import LoadedTarget, first_seed


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(image))).mean((2, 3)))


class DictOutputs(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"second": x * 2, "first": (x.sum(), x + 1), "absent": None}


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x += 1
        return x * 2


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


class HalfInside(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.zeros(3)
        noise[0] = x.half().sum()
        return noise + torch.tensor(0.1, dtype=torch.float32) * x.half().float().sum()


def loaded(module: Any, inputs: dict[str, Any], *, at: object = "", **fields: Any) -> LoadedTarget:
    target = Target(module=module, inputs=inputs, **fields)
    runnable = module.module() if isinstance(module, torch.export.ExportedProgram) else module
    if isinstance(runnable, nn.Module) and not isinstance(module, torch.export.ExportedProgram):
        runnable.eval()
    return LoadedTarget(target, "small", "small", str(at), (), first_seed(target), runnable)


def contract(**dtypes: str) -> Contract:
    return Contract(tuple(InputContract(name, dtype, (), onnx_name=name) for name, dtype in dtypes.items()))


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any] | None]],
    outputs: dict[str, tuple[int, list[Any] | None]],
    constants: dict[str, Any] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 10
    return made


def relu() -> onnx.ModelProto:
    float_row = (TensorProto.FLOAT, ["n", 3])
    return model([helper.make_node("Relu", ["x"], ["y"])], {"x": float_row}, {"y": float_row})


def relu_clip_double() -> onnx.ModelProto:
    """Return a sound model that ORT refuses to load above level "none" (microsoft/onnxruntime#23116)."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Clip", ["r", "low", "high"], ["y"])]
    double = (TensorProto.DOUBLE, [3])
    return model(nodes, {"x": double}, {"y": double}, {"low": np.array(-1.0), "high": np.array(1.0)})


def case(**inputs: Any) -> Case:
    return Case({name: np.asarray(value) for name, value in inputs.items()})
