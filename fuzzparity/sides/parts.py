"""Parts: run a part of a model once on ORT and tell what it did, a refusal and its phase included."""

from __future__ import annotations

from collections.abc import Mapping

import onnxruntime

from fuzzparity.case import Array
from fuzzparity.execution import ORT, Execution, Status
from fuzzparity.sides.ort_side import flat, native, refused, session_options
from fuzzparity.target import Ort


def run_part(model: bytes, feeds: Mapping[str, Array], ort: Ort, folder: str = "") -> Execution:
    """Return what ORT did with a model on inputs by ONNX name; `folder`: the target's, for its operator libraries."""
    try:
        session = onnxruntime.InferenceSession(
            model,
            session_options(ort, folder),
            providers=[(name, dict(ort.provider_options.get(name, {}))) for name in ort.providers],
            disabled_optimizers=list(ort.disabled_optimizers) or None,
        )
    except Exception as error:  # ORT's exceptions share no base of their own
        return refused(error, phase="load")
    try:
        outputs = session.run(None, {name: native(array) for name, array in feeds.items()})
    except Exception as error:
        return refused(error)
    return Execution(ORT, Status.OK, tuple(flat(outputs)))
