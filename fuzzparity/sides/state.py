"""State: parameters and buffers of a module as one safetensors file, with a digest, so that every worker has one twin.

The idea: unseeded weights differ in every process that builds the module; the state of the build is put into each of
them, and its digest is checked after it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.tensors import to_array

_PAIRS = "::pairs"  # a complex tensor is kept as pairs of reals under its name and this


def state_of(module: Any) -> dict[str, torch.Tensor]:
    """Return every parameter and buffer by name, tied ones under each name; nothing for a plain callable."""
    if not isinstance(module, torch.nn.Module):
        return {}
    tensors = {**dict(module.named_parameters(remove_duplicate=False))}
    tensors.update(module.named_buffers(remove_duplicate=False))
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def state_digest(module: Any) -> str:
    """Return the sha256 over names, dtypes, shapes and bytes of a module's state."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state_of(module).items()):
        array = to_array(tensor)
        digest.update(f"{name}\0{tensor.dtype}{tuple(tensor.shape)}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save_state(module: Any, path: Path) -> None:
    """Write a module's state as safetensors."""
    save_file({_key(name, tensor): _plain(tensor) for name, tensor in state_of(module).items()}, path)


def load_state(loaded: LoadedTarget, build_folder: Path) -> None:
    """Put a build's state into the loaded module and check its digest; `InvalidTarget` when they do not fit."""
    try:
        saved = load_file(build_folder / "state.safetensors")
        wanted = json.loads((build_folder / "build.json").read_text(encoding="utf-8"))["state_digest"]
    except Exception as error:
        raise InvalidTarget(
            "state",
            f"the state of build {build_folder.name[:12]} cannot be read: {type(error).__name__}: {str(error)[:200]}",
            "remove that build's folder; it is made again from the target",
        ) from None
    with torch.no_grad():
        for name, tensor in state_of(loaded.module).items():
            found = saved.get(_key(name, tensor))
            if found is None or found.shape != _plain(tensor).shape or found.dtype != _plain(tensor).dtype:
                raise InvalidTarget(
                    "state",
                    f"the module has {name} {tensor.dtype} {list(tensor.shape)}, which build "
                    f"{build_folder.name[:12]} does not hold so",
                    "the target builds another module in every process: fix its sizes, or start again with --fresh",
                )
            tensor.copy_(torch.view_as_complex(found) if tensor.is_complex() else found)
    if state_digest(loaded.module) != wanted:
        raise InvalidTarget(
            "state",
            f"the module with the state of build {build_folder.name[:12]} has another digest than that build",
            "the target's code has changed, or ties its weights otherwise; start again with --fresh",
        )


def _key(name: str, tensor: torch.Tensor) -> str:
    return name + _PAIRS if tensor.is_complex() else name


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as safetensors takes it: real, dense, contiguous and sharing memory with no other."""
    own = tensor.detach().cpu().resolve_conj()
    return (torch.view_as_real(own) if own.is_complex() else own).contiguous().clone()
