"""Captured: the module as an exporter sees it, still run in torch: exported, decomposed, or traced.

The idea: where the captured program already gives ORT's answer, nothing that comes after capture is at fault. Guards
are not checked: ONNX keeps none, so what counts is what the program would answer without them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from fuzzparity.sides.exporting import as_module
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.quiet import quietly
from fuzzparity.sides.shapes import asked_dims, dynamo_shapes
from fuzzparity.sides.tensors import to_tensor


def captured(loaded: LoadedTarget, *, decomposed: bool = False) -> LoadedTarget:
    """Return the target with the program that torch.export captures in the place of its module.

    `decomposed`: after the decompositions of torch's core operators. Raises what torch.export raises.
    """
    with quietly(), torch.no_grad():
        program = _program(loaded)
        if decomposed:
            program = program.run_decompositions()
        module = program.module(check_guards=False)
        module._forward_pre_hooks.clear()  # one of them still refuses sizes outside the captured range
        return dataclasses.replace(loaded, module=module)


def _program(loaded: LoadedTarget) -> Any:
    given = loaded.target.module
    if isinstance(given, torch.export.ExportedProgram):
        return given
    module = as_module(given)
    args, kwargs = _arguments(loaded)
    shapes = dynamo_shapes(asked_dims(loaded.target, loaded.seed), loaded.call, module.forward, takes_names=False)
    return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)


def traced(loaded: LoadedTarget) -> LoadedTarget:
    """Return the target with its traced module, as the TorchScript exporter sees it, in the place of its module."""
    if isinstance(loaded.module, torch.jit.ScriptModule):
        return loaded
    args, kwargs = _arguments(loaded)
    with quietly(), torch.no_grad():
        if kwargs:
            module = torch.jit.trace(
                as_module(loaded.module),
                example_kwarg_inputs={**dict(zip(loaded.target.inputs, args, strict=True)), **kwargs},
                check_trace=False,
                strict=False,
            )
        else:
            module = torch.jit.trace(as_module(loaded.module), args, check_trace=False, strict=False)
    return dataclasses.replace(loaded, module=module)


def _arguments(loaded: LoadedTarget) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return loaded.call.arguments([to_tensor(array) for array in loaded.seed.inputs.values()])
