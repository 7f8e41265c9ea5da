"""Files: the program in a file that a command line names, read as data.

The idea: a file may be wrong or from a stranger. Nothing here unpickles, and weights alone are told from a program.
"""

from __future__ import annotations

import traceback
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fuzzparity.errors import InvalidTarget


def load_program(path: Path) -> Any:
    """Return the program in a .pt2 (ExportedProgram) or TorchScript file; `InvalidTarget` for weights alone."""
    if not path.is_file():
        raise InvalidTarget("torch", f"there is no file {path}", "give a .pt2 or TorchScript file")
    members = _members(path)
    try:
        if any("/code/" in f"/{name}" for name in members):
            return torch.jit.load(str(path), map_location="cpu")
        if path.suffix == ".pt2" or any("exported_program" in name or "models/" in name for name in members):
            return torch.export.load(str(path))
    except Exception as error:
        raise InvalidTarget(
            "torch",
            f"{path} could not be loaded as a program: {type(error).__name__}: {first_line(error)}",
            "save it again with torch.export.save (.pt2) or torch.jit.save, by the same torch version",
            traceback.format_exc(),
        ) from None
    raise InvalidTarget(
        "torch",
        f"{path} holds {_weights(path)}, and a program is wanted",
        "write a target.py that builds the module and loads these weights (fuzzparity init --onnx M --torch FILE), "
        "or give a .pt2 (torch.export.save) or TorchScript (torch.jit.save) file",
    )


def _members(path: Path) -> list[str]:
    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def _weights(path: Path) -> str:
    """Say what a file without a program holds, read as weights only."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        return f"no program that torch can read ({type(error).__name__})"
    if isinstance(found, Mapping) and found and all(isinstance(value, torch.Tensor) for value in found.values()):
        return f"a state_dict of {len(found)} tensors"
    return f"a {type(found).__name__}, not a program"


def first_line(error: BaseException) -> str:
    """Return the first line of what an exception says, at most 300 characters."""
    text = str(error).strip().splitlines()
    return text[0][:300] if text else ""
