"""Given: torch's values in the places of known causes, and what ONNX Runtime makes of the rest.

The idea: the exporter's names say which of torch's values belongs in a place; without them it is one that torch
computed at the cause's line, and each that fits is tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fuzzparity.case import Array
from fuzzparity.execution import ORT, Execution, Status
from fuzzparity.explain.records import Cause
from fuzzparity.explain.site import Site
from fuzzparity.oracle.where import counted

_MOST_TRIED = 12  # combinations of torch's values; each is a session of the whole model
_MOST_VALUES = 6  # of torch's that may stand for one value of the file


def reference_of(site: Site, causes: tuple[Cause, ...]) -> Execution:
    """Return what ORT should give: torch's answer, or that of the captured program where the capture is at fault."""
    if not any(cause.part == "capture" for cause in causes):
        return site.expected
    from fuzzparity.sides.captured import captured, traced
    from fuzzparity.sides.torch_side import TorchSide

    make = captured if site.bench.exporter == "dynamo" else traced
    return TorchSide(make(site.loaded)).run(site.case)


def answers_given(site: Site, causes: tuple[Cause, ...]) -> Iterator[tuple[Execution, dict[str, Array]]]:
    """Yield (what ORT answers, torch's values that it was given by name) for each choice of what these may be."""
    given = [list(_values_at(site, cause)) for cause in causes if cause.part != "capture"]
    for chosen in itertools.islice(itertools.product(*given), _MOST_TRIED):
        values = dict(chosen)
        model, feeds = with_given(site, values)
        outputs = site.run_optimized(model.SerializeToString(), feeds)
        if outputs is not None:
            yield counted(Execution(ORT, Status.OK, tuple(outputs)), site.expected.where), values


def with_given(site: Site, values: Mapping[str, Array]) -> tuple[Any, dict[str, Array]]:
    """Return the model that reads some values instead of making them, and its inputs, these among them."""
    from fuzzparity.blame.subgraphs import substituted

    model, feeds = site.model, dict(site.feeds)
    for name, value in values.items():
        model = substituted(model, name, value)
        feeds[f"{name}__given"] = value
    return model, feeds


def _values_at(site: Site, cause: Cause) -> Iterator[tuple[str, Array]]:
    """Yield (value of the file, torch's in its place) for a known cause: by the exporter's names, else by its line."""
    from fuzzparity.blame.origins import has_origins
    from fuzzparity.blame.subgraphs import label_of

    node = next((one for one in site.model.graph.node if label_of(one) == cause.node and cause.node), None)
    name = next((one for one in node.output if one), "") if node is not None else ""
    if has_origins(site.model):
        found = _by_name(site, cause, name)
        if found is not None:
            yield found
            return
    if name:
        yield from _by_line(site, cause, name)


def _by_name(site: Site, cause: Cause, name: str) -> tuple[str, Array] | None:
    from fuzzparity.blame.paired import pairs_of

    scope = site.program[0].run(site.case)
    pairs = pairs_of(site.view, scope)
    named = [value for value, fx in pairs.items() if cause.fx_node and fx == cause.fx_node]
    for value in (*named, name):
        if value in pairs:
            return value, site.view.shaped(value, scope.values[pairs[value]])
    return None


def _by_line(site: Site, cause: Cause, name: str) -> Iterator[tuple[str, Array]]:
    value = site.ort_values.get(name)  # for its form alone
    if value is None:
        return
    seen: set[bytes] = set()
    for event in reversed(site.steps):
        if event.is_refused or (cause.source and site.relative(event.source) != cause.source):
            continue
        for array in event.outputs:
            if array.dtype.kind != value.dtype.kind or (array.size != value.size and array.ndim != value.ndim):
                continue
            given = array.reshape(value.shape) if array.size == value.size else array
            given = np.ascontiguousarray(given.astype(value.dtype))
            if given.tobytes() not in seen and len(seen) < _MOST_VALUES:
                seen.add(given.tobytes())
                yield name, given
