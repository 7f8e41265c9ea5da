"""Facts: what is under test, for the start of a campaign and for `check`.

The idea: every run says on which build, devices, precision, providers and dims it works, so that no silent change of
subject goes unseen.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import RenderableType

from fuzzparity.contract import Dim, InputContract, TargetFacts
from fuzzparity.report.layout import pairs


def start_block(facts: TargetFacts, *, corpus: Path, crashes: Path, notes: Iterable[str] = ()) -> RenderableType:
    """Return what is under test and where results go."""
    places = [("corpus", str(corpus)), ("crashes", str(crashes))]
    return pairs([*facts_lines(facts), *places, *note_lines(facts, notes)])


def facts_lines(facts: TargetFacts) -> list[tuple[str, str]]:
    """Return target, build, environment, inputs with their dims, and outputs, as name and value."""
    build = facts.build
    return [
        ("target", f"{facts.name} ({facts.spec})" if facts.spec != facts.name else facts.name),
        ("build", f"{build.digest[:12]} {build.origin}, opset {build.opset_obtained}, {build.nodes} nodes"),
        ("runs on", facts.environment.line),
        *(("input", input_line(item)) for item in facts.contract.inputs),
        ("outputs", ", ".join(facts.outputs)),
    ]


def note_lines(facts: TargetFacts, notes: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return everything worth noting, each once."""
    return [("note", text) for text in dict.fromkeys((*facts.notes, *facts.build.notes, *notes))]


def input_line(item: InputContract) -> str:
    """Return one input as `name float32[batch 0.., 3, height 32..640]`."""
    bounds = "" if item.low is None and item.high is None else f", values {_open(item.low)}..{_open(item.high)}"
    lost = "" if item.onnx_name else ", not in the ONNX graph"
    return f"{item.name} {item.dtype}[{', '.join(_dim(dim) for dim in item.dims)}]{bounds}{lost}"


def _open(bound: float | None) -> str:
    return "" if bound is None else f"{bound:g}"


def _dim(dim: Dim) -> str:
    if not dim.is_dynamic:
        return str(dim.size)
    multiple = f" by {dim.multiple_of}" if dim.multiple_of > 1 else ""
    return f"{dim.symbol} {dim.low}..{'' if dim.high is None else dim.high}{multiple}"
