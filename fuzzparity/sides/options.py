"""Options: the sides as the command line asks for them, in place of what the target says.

The idea: a provider or device that was asked for is what runs, or it is an error; nothing falls back in silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnxruntime
import torch

from fuzzparity.errors import InvalidTarget, InvalidUsage
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.precision import CUDA_PROVIDERS, require_shared_cuda, with_one_precision


def with_sides(
    loaded: LoadedTarget, providers: Sequence[str], provider_options: Sequence[str], device: str
) -> LoadedTarget:
    """Return the target with other providers, provider options ("EP.KEY=VALUE") and torch device."""
    ort = loaded.target.ort
    if providers:
        ort = dataclasses.replace(ort, providers=tuple(providers))
    options = {name: dict(given) for name, given in ort.provider_options.items()}
    for text in provider_options:
        head, equals, value = text.partition("=")
        provider, dot, key = head.partition(".")
        if not (equals and dot and provider and key):
            raise InvalidUsage(f"--provider-option {text!r} is not of the form EP.KEY=VALUE")
        if provider not in ort.providers:
            raise InvalidUsage(
                f"--provider-option {text!r} names a provider that is not used: {', '.join(ort.providers)}"
            )
        options.setdefault(provider, {})[key] = value
    device = _checked_device(device)
    if any(name in CUDA_PROVIDERS for name in ort.providers):
        require_shared_cuda(onnxruntime.__version__, torch.__version__, torch.version.cuda, _cuda_of_wheel())
    ort = with_one_precision(dataclasses.replace(ort, provider_options=options), device)
    return dataclasses.replace(loaded, target=dataclasses.replace(loaded.target, ort=ort), device=device)


def _cuda_of_wheel() -> str | None:
    """Return the CUDA version that the installed wheel of ORT names; CPU wheels and old ones name none."""
    try:
        from onnxruntime.capi.build_and_package_info import cuda_version
    except ImportError:
        return None
    return str(cuda_version) or None


def _checked_device(device: str) -> str:
    """Return the device when torch has it."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise InvalidTarget("device", f"torch knows no device {device!r}", "give cpu or cuda:N") from None
    if kind == "cpu":
        return device
    if kind != "cuda":
        raise InvalidTarget("device", f"device {device!r} is neither cpu nor cuda", "give cpu or cuda:N")
    if not torch.cuda.is_available():
        raise InvalidTarget(
            "device",
            f"{device!r} was asked for, but this torch ({torch.__version__}) sees no CUDA device",
            "use --device cpu, or install a CUDA build of torch and look at nvidia-smi",
        )
    return device
