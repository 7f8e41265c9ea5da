"""Bare: run a small model once on ORT, without a target around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnxruntime

from fuzzparity.case import Array
from fuzzparity.sides.ort_side import session_options
from fuzzparity.target import Ort


def run_bare(model: bytes, feeds: Mapping[str, Array], ort: Ort) -> list[Any] | None:
    """Return the outputs of a model on inputs by ONNX name; None where ORT refuses the model or the inputs."""
    try:
        session = onnxruntime.InferenceSession(model, session_options(ort), providers=list(ort.providers))
        return list(session.run(None, dict(feeds)))
    except Exception:  # ORT's exceptions share no base; a refusal is an answer here
        return None
