"""Environment: where executions ran, as one record with a digest."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Sequence
from pathlib import Path

import onnxruntime
import torch

from fuzzparity.execution import Environment
from fuzzparity.sides.precision import torch_precision
from fuzzparity.target import Ort

PACKAGES = ("torch", "numpy", "onnx", "onnxruntime", "onnxscript", "ml_dtypes")


def environment(ort: Ort, providers: Sequence[str], device: str = "cpu") -> Environment:
    """Return the environment of this process with torch on `device` and sessions of `ort` that run on `providers`."""
    config = {str(key): str(value) for key, value in ort.config.items()}
    for name, options in ort.provider_options.items():
        config |= {f"{name}.{key}": str(value) for key, value in options.items()}
    fields = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "packages": packages(),
        "torch_device": _device(device),
        "torch_precision": torch_precision(device),
        "torch_threads": torch.get_num_threads(),
        "ort_providers": tuple(providers),
        "ort_level": ort.optimization_level,
        "ort_threads": ort.threads or 1,
        "ort_config": config,
    }
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return Environment(digest=digest, **fields)


def _device(device: str) -> str:
    """Return a device with the name of its GPU: another GPU is another environment."""
    if torch.device(device).type != "cuda" or not torch.cuda.is_available():
        return device
    return f"{device} ({torch.cuda.get_device_name(device)})"


@functools.cache
def packages() -> dict[str, str]:
    """Return the versions of the packages that decide what an execution gives."""
    # a TorchVersion is a str of a class of torch's: whoever is sent one imports torch to read it
    versions = {"onnxruntime": str(onnxruntime.__version__), "torch": str(torch.__version__)}
    for name in PACKAGES:
        try:
            versions.setdefault(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue
    return {name: versions[name] for name in sorted(versions)}


@functools.cache
def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
