"""Reference: the ONNX specification's own evaluator as an arbiter, slow and independent of ORT.

The idea: it says what the *file* means. It lacks some operators and all of ORT's own; then it is no vote.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from fuzzparity.case import Array
from fuzzparity.execution import Execution, Refusal, Status, normalize_message, readable_message

SIDE = "onnx:reference"


def run_reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Execution:
    """Run a model on inputs by ONNX name; a refusal says what the evaluator lacks or refuses."""
    started = perf_counter()
    try:
        with np.errstate(all="ignore"):
            outputs = ReferenceEvaluator(model).run(None, dict(feeds))
    except Exception as error:  # it raises whatever numpy and its own operators raise
        text = str(error)
        refusal = Refusal(type(error).__name__, normalize_message(text), type(error).__name__, readable_message(text))
        return Execution(SIDE, Status.REFUSED, refusal=refusal, seconds=perf_counter() - started)
    arrays = tuple(np.asarray(value) for value in outputs)
    return Execution(SIDE, Status.OK, arrays, seconds=perf_counter() - started)


def intermediate_values(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Any]:
    """Return every value of the main graph by name, as far as the evaluator comes."""
    found = ReferenceEvaluator(model).run(None, dict(feeds), intermediate=True)
    return dict(found) if isinstance(found, Mapping) else {}
