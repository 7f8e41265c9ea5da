"""Precision: TF32 on both sides or on neither, and CUDA libraries that both sides can share.

The idea: torch multiplies matrices without TF32 and convolves with it, ORT uses it for both; left alone, a pair on a
GPU differs by its defaults. What the user set for ORT's `use_tf32` holds for both sides, and without that it is off.
"""

from __future__ import annotations

import dataclasses
import re

import torch

from fuzzparity.errors import InvalidTarget
from fuzzparity.target import Ort

CUDA = "CUDAExecutionProvider"
CUDA_PROVIDERS = (CUDA, "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")
_CUDA_OF_WHEEL = ((1, 27, 13), (1, 19, 12))  # onnxruntime-gpu on PyPI: from 1.27 on CUDA 13, from 1.19 on CUDA 12


def with_one_precision(ort: Ort, device: str) -> Ort:
    """Return the options with `use_tf32` said, and set torch's flags to the same when it runs on CUDA."""
    options = {name: dict(given) for name, given in ort.provider_options.items()}
    if CUDA in ort.providers:
        options.setdefault(CUDA, {}).setdefault("use_tf32", "0")
    if torch.device(device).type == "cuda":
        set_torch_tf32(uses_tf32(options.get(CUDA, {}).get("use_tf32", "0")))
    return dataclasses.replace(ort, provider_options=options)


def uses_tf32(value: object) -> bool:
    """Return what ORT reads in a `use_tf32` option; InvalidTarget for anything but 0 and 1."""
    text = str(value).lower()
    if text not in ("0", "1", "true", "false"):
        raise InvalidTarget("provider", f"use_tf32 of {CUDA} is {value!r}", "give 0 or 1; it holds for torch too")
    return text in ("1", "true")


def set_torch_tf32(is_on: bool) -> None:
    """Turn TF32 on or off for torch's matrix products, convolutions and recurrent layers on CUDA.

    The old switches come first: torch refuses to read them where old and new ones say different things.
    """
    torch.set_float32_matmul_precision("high" if is_on else "highest")
    torch.backends.cudnn.allow_tf32 = is_on
    word = "tf32" if is_on else "ieee"
    torch.backends.cuda.matmul.fp32_precision = word
    torch.backends.cudnn.conv.fp32_precision = word
    torch.backends.cudnn.rnn.fp32_precision = word


def torch_precision(device: str) -> str:
    """Return how torch computes float32 on a device, as set now: "float32 highest", on CUDA with TF32 on or off."""
    if torch.device(device).type == "cuda":
        matmul, conv = torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision
        return f"float32, TF32 {_on(matmul)} for matmul and {_on(conv)} for conv"
    try:
        return f"float32 {torch.get_float32_matmul_precision()}"
    except RuntimeError:  # the target set torch's old and new switches to different things
        return f"float32 {torch.backends.mkldnn.matmul.fp32_precision} for matmul"


def _on(word: str) -> str:
    return "on" if word == "tf32" else "off"


def require_shared_cuda(
    ort_version: str, torch_version: str, torch_cuda: str | None, ort_cuda: str | None = None
) -> None:
    """Raise `InvalidTarget` when the GPU wheels of ORT and torch are built for different major versions of CUDA.

    `torch_cuda`: torch.version.cuda, None in a CPU build, which brings no CUDA along. `ort_cuda`: what the wheel of
    ORT says of itself; without it the version tells. A version that nobody knows is let pass: the session will tell.
    """
    wanted = _major(ort_cuda) if ort_cuda else _cuda_of_version(ort_version)
    given = _major(torch_cuda)
    if wanted is None or given is None or wanted == given:
        return
    fitting = ">=1.27" if given >= 13 else ">=1.19,<1.27"
    raise InvalidTarget(
        "provider",
        f"onnxruntime-gpu {ort_version} is built for CUDA {wanted}, torch {torch_version} for CUDA {given}",
        f"install onnxruntime-gpu{fitting} for this torch, or a torch for CUDA {wanted} (torch 2.10 and older come "
        "with CUDA 12, 2.11 and newer with CUDA 13)",
    )


def _cuda_of_version(version: str) -> int | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return None
    here = (int(found[1]), int(found[2]))
    return next((cuda for major, minor, cuda in _CUDA_OF_WHEEL if here >= (major, minor)), None)


def _major(version: str | None) -> int | None:
    found = re.match(r"\d+", version or "")
    return int(found[0]) if found else None
