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

from fuzzparity.blame.subgraphs import View, label_of, needs_of
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


# what numpy raises of values that do not fit; of an operator or a type that it lacks the evaluator raises others
_REFUSING = (IndexError, ValueError, ZeroDivisionError, OverflowError)


def refusal_at(model: onnx.ModelProto, feeds: Mapping[str, Array], op: str, name: str) -> str:
    """Return what the evaluator says where it comes to a node and refuses what that reads; "" where it does not."""
    place = next((at for at, one in enumerate(model.graph.node) if (one.op_type, label_of(one)) == (op, name)), None)
    if place is None:
        return ""
    node, view = model.graph.node[place], View(model, model.graph)
    wanted = [need for need in needs_of(node) if need in view.makers]
    before = {**feeds}
    if wanted:
        part = view.model_of(model.graph.node[:place], feeds, wanted)
        before |= zip(wanted, ReferenceEvaluator(onnx.load_from_string(part)).run(None, dict(feeds)), strict=True)
    given = {need: np.asarray(before[need]) for need in needs_of(node) if need in before}
    alone = ReferenceEvaluator(onnx.load_from_string(view.model_of([node], given, [one for one in node.output if one])))
    try:
        with np.errstate(all="ignore"):
            alone.run(None, given)
    except _REFUSING as error:
        return f"refuses at {name} ({op}) as well: {readable_message(str(error))}"
    return ""


def intermediate_values(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Any]:
    """Return every value of the main graph by name, as far as the evaluator comes."""
    found = ReferenceEvaluator(model).run(None, dict(feeds), intermediate=True)
    return dict(found) if isinstance(found, Mapping) else {}
