"""fuzzparity: find, minimize and replay what differs between a PyTorch model and its ONNX Runtime twin.

Importing this package imports neither torch nor ONNX Runtime. `assert_parity` and `fuzzparity.strategies`, which need
them and Hypothesis, are loaded when they are first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fuzzparity.errors import FuzzparityError, InvalidCase, InvalidTarget
from fuzzparity.target import Export, Metric, Ort, Size, Target, Tolerance

if TYPE_CHECKING:
    from fuzzparity.parity import assert_parity

__version__ = "0.1.0"

__all__ = [
    "Export",
    "FuzzparityError",
    "InvalidCase",
    "InvalidTarget",
    "Metric",
    "Ort",
    "Size",
    "Target",
    "Tolerance",
    "assert_parity",
]


def __getattr__(name: str) -> Any:
    """Load what is for property tests when it is first named."""
    if name == "assert_parity":
        return importlib.import_module("fuzzparity.parity").assert_parity
    if name == "strategies":
        return importlib.import_module("fuzzparity.strategies")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
