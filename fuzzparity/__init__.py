"""fuzzparity: find, minimize and replay what differs between a PyTorch model and its ONNX Runtime twin.

Importing this package imports neither torch nor ONNX Runtime.
"""

from fuzzparity.errors import FuzzparityError, InvalidCase, InvalidTarget
from fuzzparity.target import Export, Metric, Ort, Size, Target, Tolerance

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
]
