"""Options: the sides as the command line asks for them, in place of what the target says.

The idea: a provider or device that was asked for is what runs, or it is an error; nothing falls back in silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from fuzzparity.errors import InvalidTarget, InvalidUsage
from fuzzparity.sides.load import LoadedTarget


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
    ort = dataclasses.replace(ort, provider_options=options)
    return dataclasses.replace(
        loaded, target=dataclasses.replace(loaded.target, ort=ort), device=_checked_device(device)
    )


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
