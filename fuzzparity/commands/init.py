"""Init: a first `target.py`, written from what an ONNX model says of its inputs."""

from __future__ import annotations

import os
from pathlib import Path

import onnx

from fuzzparity.errors import InvalidUsage

_MOST_MODEL_BYTES = 2 << 30
_DYNAMIC_SIZE = 2  # a size for each dynamic dim: above one, so that nothing specializes on it
_DTYPES = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.BOOL: "bool",
}

_TEMPLATE = '''"""A target for fuzzparity. Fill in what is marked with TODO, then run:

    fuzzparity check {file}
    fuzzparity fuzz {file} --time 10m
"""

from pathlib import Path

import torch

from fuzzparity import Target

HERE = Path(__file__).parent


def target() -> Target:
    {module}
    return Target(
        module=module,
        onnx=HERE / {onnx!r},
        inputs={{  # TODO: real values, in forward's order; this is the first seed
{inputs}
        }},
        # seeds=validation_batches,  # TODO: a callable that yields dicts like `inputs`, from your real data
    )
'''


def write_target(onnx_path: Path, torch_path: Path | None, output: Path) -> Path:
    """Write `output` and return it; InvalidUsage when the model cannot be read or the file exists."""
    if output.exists():
        raise InvalidUsage(f"{output} exists and is not overwritten; give another --output")
    for path in (onnx_path, *([torch_path] if torch_path else [])):
        if not path.is_file():
            raise InvalidUsage(f"there is no file {path}")
    folder = output.absolute().parent
    if not folder.is_dir():
        raise InvalidUsage(f"there is no folder {folder}")
    text = _TEMPLATE.format(
        file=output.name,
        module=_module_line(torch_path, folder),
        onnx=os.path.relpath(onnx_path.absolute(), folder),
        inputs="\n".join(_input_line(info) for info in _inputs(onnx_path)),
    )
    try:
        output.write_text(text)
    except OSError as error:
        raise InvalidUsage(f"{output} cannot be written: {error.strerror}") from error
    return output


def _inputs(path: Path) -> list[onnx.ValueInfoProto]:
    if path.stat().st_size > _MOST_MODEL_BYTES:
        raise InvalidUsage(f"{path} is larger than an ONNX file can be (2 GiB)")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise InvalidUsage(f"{path} is no ONNX model: {type(error).__name__}") from None
    weights = {item.name for item in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in weights]
    if not inputs:
        raise InvalidUsage(f"{path} is no ONNX model with inputs")
    return inputs


def _module_line(path: Path | None, folder: Path) -> str:
    if path is None:
        return "module = ...  # TODO: build your module and load its weights"
    relative = os.path.relpath(path.absolute(), folder)
    if path.suffix == ".pt2":
        return f"module = torch.export.load(HERE / {relative!r})"
    return f"module = torch.jit.load(HERE / {relative!r}).eval()"


def _input_line(info: onnx.ValueInfoProto) -> str:
    tensor = info.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else _DYNAMIC_SIZE for dim in tensor.shape.dim]
    names = [dim.dim_param or "?" for dim in tensor.shape.dim if not dim.HasField("dim_value")]
    dtype = _DTYPES.get(tensor.elem_type, "float32")
    make = "torch.rand" if "float" in dtype and dtype != "bfloat16" else "torch.zeros"
    note = f"  # dynamic: {', '.join(names)}" if names else ""
    return f"            {info.name!r}: {make}({dims}, dtype=torch.{dtype}),{note}"
