"""Programs: the values that torch and the ONNX file give at each node, for whoever has to compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fuzzparity.case import Array
from fuzzparity.contract import Build


def program_of(loaded: Any, build: Build, folder: Path) -> tuple[Any, bool]:
    """Return (the decomposed program, ready to run; whether it is known to be what the build was made from)."""
    from fuzzparity.sides.build import canonical_digest
    from fuzzparity.sides.program import Program, decomposed_programs, kept_program

    kept = kept_program(folder)
    if kept is not None:
        return Program(loaded, kept), True
    exported, is_same = decomposed_programs(loaded, lambda model: canonical_digest(model) == build.onnx_digest)
    return Program(loaded, exported), is_same


def onnx_values(
    model: Any, feeds: Mapping[str, Array], run: Callable[..., Any], *, prefers_run: bool = False
) -> dict[str, Array]:
    """Return the values of the main graph as the ONNX reference gives them; where it stops, as ORT without passes does.

    ORT is asked for the values as outputs: that changes what it fuses, so nothing is judged by them. `prefers_run`:
    ORT's values first, the reference's where it refuses.
    """
    import onnx

    from fuzzparity.blame.reference import intermediate_values

    known = {} if prefers_run else intermediate_values(model, feeds)
    values = {name: np.asarray(value) for name, value in known.items() if isinstance(value, (np.ndarray, np.generic))}
    wanted = [name for node in model.graph.node for name in node.output if name and name not in values]
    if wanted:
        tapped = onnx.ModelProto()
        tapped.CopyFrom(model)
        del tapped.graph.output[:]
        tapped.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
        answer = run(tapped.SerializeToString(), feeds)
        for name, value in zip(wanted, answer or (), strict=False):
            if isinstance(value, np.ndarray):
                values[name] = value
    return values or ({} if not prefers_run else onnx_values(model, feeds, run))
