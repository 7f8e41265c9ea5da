"""Recorders: which of them records what a module decides.

The idea: what a module is made of says where its decisions can be seen: in Python, or in a graph of TorchScript.
"""

from __future__ import annotations

from typing import Any

import torch

from fuzzparity.sides.deciding import Recorder
from fuzzparity.sides.scripted import ScriptRecorder

AnyRecorder = Recorder | ScriptRecorder


def recorder_of(module: Any, folder: str = "") -> AnyRecorder | None:
    """Return a recorder of a module's decisions; None for one whose code is no Python that runs as it stands."""
    parts = list(module.modules()) if isinstance(module, torch.nn.Module) else [module]
    if isinstance(module, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        return ScriptRecorder(folder)
    if isinstance(module, torch.fx.GraphModule):
        return None
    if any(type(part).__name__ == "OptimizedModule" for part in parts):  # torch.compile
        return None
    return Recorder(module, folder)
