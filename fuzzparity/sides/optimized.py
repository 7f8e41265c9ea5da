"""Optimized: the graph that ORT runs, after its passes, as ORT itself writes it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import onnxruntime

from fuzzparity.sides.ort_side import session_options
from fuzzparity.target import Ort


def optimized_model(model: Path, ort: Ort) -> onnx.ModelProto | None:
    """Return the optimized graph of a model file; None where ORT cannot load it or cannot write what it made."""
    with tempfile.TemporaryDirectory(prefix="fuzzparity-") as folder:
        path = Path(folder) / "optimized.onnx"
        options = session_options(ort)
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 4  # it warns that what it writes fits this machine only
        try:
            onnxruntime.InferenceSession(
                str(model),
                options,
                providers=list(ort.providers),
                disabled_optimizers=list(ort.disabled_optimizers) or None,
            )
            return onnx.load(path, load_external_data=False)
        except Exception:  # ORT's exceptions share no base; compiled nodes cannot be written
            return None
