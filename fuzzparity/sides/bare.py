"""Bare: run a small model once on ORT, without a target around it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import onnxruntime

from fuzzparity.case import Array
from fuzzparity.sides.ort_side import session_options
from fuzzparity.target import Ort


class Sessions:
    """Keep the sessions of the last few models, for whoever runs the same ones on many inputs."""

    def __init__(self, most: int = 4) -> None:
        """Start with none; `most` are held at a time."""
        self._most = most
        self._kept: dict[tuple[bytes, str], Any] = {}  # by digest of the model and the options in words

    def of(self, model: bytes, ort: Ort) -> Any:
        """Return the session of a model; raises what ORT raises where it refuses it."""
        key = hashlib.sha256(model).digest(), repr(ort)
        session = self._kept.pop(key, None) or _session(model, ort)
        self._kept[key] = session
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return session


def run_bare(model: bytes, feeds: Mapping[str, Array], ort: Ort, sessions: Sessions | None = None) -> list[Any] | None:
    """Return the outputs of a model on inputs by ONNX name; None where ORT refuses the model or the inputs."""
    try:
        session = sessions.of(model, ort) if sessions is not None else _session(model, ort)
        return list(session.run(None, dict(feeds)))
    except Exception:  # ORT's exceptions share no base; a refusal is an answer here
        return None


def _session(model: bytes, ort: Ort) -> Any:
    return onnxruntime.InferenceSession(model, session_options(ort), providers=list(ort.providers))
