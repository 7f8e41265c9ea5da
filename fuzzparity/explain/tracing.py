"""Tracing: the error of every value along the graph for one case, each node's own and what has come together so far.

The idea: a node's own error is measured on torch's values, the accumulated one in a run of the whole file. Every value
of that run is asked for as an output, which changes what ORT fuses, so it runs without passes and nothing is judged by
it: a trace shows a path, verdicts come from the untouched session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.explain.locating import located
from fuzzparity.explain.pairing import map_of, matching, pair_alone
from fuzzparity.explain.programs import onnx_values
from fuzzparity.explain.records import TwinSpec
from fuzzparity.explain.site import Site
from fuzzparity.finding import Bucket
from fuzzparity.oracle.compare import Allowance, compare
from fuzzparity.oracle.policy import DEFAULTS
from fuzzparity.verdict import Comparison, Grade, Kind, Verdict
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.loader import Context

TRACE_SECONDS = 300.0  # of the walk over all nodes
BY_NAME, BY_VALUE = "name", "value"
_AGREEING = Verdict(Kind.AGREE, Grade.NOTE)  # for a case on which nothing differs


@dataclass(frozen=True, slots=True)
class Range:
    """Hold the finite range of a value and how many of its elements are not finite."""

    low: float | None
    high: float | None
    nonfinite: int = 0


@dataclass(frozen=True, slots=True)
class TraceRow:
    """Hold one value of the ONNX graph, in the graph's order. `ops`: the nodes that make it from torch's values.

    `local`: these nodes alone on torch's values, against torch; `accumulated`: the value in a run of the whole file.
    Either is None where it could not be measured.
    """

    order: int
    onnx_node: str
    ops: tuple[str, ...]
    value: str
    fx_node: str = ""
    module: str = ""
    source: str = ""
    local: Comparison | None = None
    accumulated: Comparison | None = None
    torch_range: Range | None = None
    ort_range: Range | None = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceSpec:
    """Name one case to trace, and the bucket of the finding that it belongs to, if any."""

    twin: TwinSpec
    case: Case
    bucket: Bucket | None = None


@dataclass(frozen=True, slots=True)
class Traced:
    """Hold the rows of one case in order, the worst verdict of the untouched session, and what there is to say."""

    rows: tuple[TraceRow, ...]
    verdict: Verdict | None = None
    paired_by: str = BY_NAME
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> TraceRow | None:
        """Return the first row of the main graph whose accumulated error is over what its dtype allows."""
        rows = (row for row in self.rows if row.accumulated is not None and not row.path)
        return next((row for row in rows if row.accumulated is not None and row.accumulated.error_ratio > 1.0), None)


def trace(context: Context, spec: TraceSpec) -> Traced:
    """Judge a case, find where its worst verdict is born, and walk the graph; each in forks of this process."""
    pairing = pair_alone(context, spec.twin, spec.case, context.limits)
    own = matching(spec.bucket, spec.case, pairing.judgement) if spec.bucket is not None else None
    verdict = own or pairing.judgement.worst
    expected, actual = pairing.expected, pairing.actual
    if verdict is not None:
        verdict = located(context, spec.twin, spec.case, verdict, expected, actual, seconds=TRACE_SECONDS)
    site = Site(context, spec.twin, spec.case, verdict or _AGREEING, expected, actual, float("inf"))

    def body(announcer: Any, send: Any) -> Traced:
        rows, paired_by, notes = _walk(site)
        return Traced(tuple(rows), verdict, paired_by, tuple(notes))

    answer = run_alone(body, map_path=map_of(context), limits=context.limits, total_seconds=TRACE_SECONDS)
    if isinstance(answer, Exit):
        why = answer.fault.strip().splitlines()[-1] if answer.fault else answer.text
        return Traced((), verdict, BY_NAME, (f"the walk over the graph ended early: {why}",))
    assert isinstance(answer, Traced)
    return answer


def _walk(site: Site) -> tuple[list[TraceRow], str, list[str]]:
    from fuzzparity.blame.origins import has_origins

    values = _tapped(site)
    if has_origins(site.model):
        rows, notes = _by_name(site, values)
        return rows, BY_NAME, notes
    return list(_by_value(site, values)), BY_VALUE, ["paired by value, since the file does not say what it was made of"]


def _tapped(site: Site) -> dict[str, Array]:
    """Return the values of one run of the whole file on ORT without passes, by name; the inputs are known."""
    return {**onnx_values(site.model, site.feeds, site.run_plain, prefers_run=True), **site.feeds}


def _by_name(site: Site, values: Mapping[str, Array]) -> tuple[list[TraceRow], list[str]]:
    from fuzzparity.blame.paired import container_of, inner_steps, pairs_of, steps
    from fuzzparity.blame.subgraphs import View

    program, is_same = site.program
    scope = program.run(site.case)
    view = View(site.model, site.model.graph)
    pairs = pairs_of(view, scope)
    rows: list[TraceRow] = []
    for step in steps(view, scope, pairs, site.feeds, site.run_plain):
        rows.append(_row_of(site, step, len(rows), values.get(step.value)))
        if container_of(step) is not None:
            for inner in inner_steps(view, scope, step, site.feeds, site.run_plain):
                rows.append(_row_of(site, inner, len(rows), None))
    notes = [] if is_same else ["the module was exported again for this, and came out as another model than the build"]
    if scope.refused_at:
        notes.append(f"torch refuses at {scope.refused_at}: {scope.refusal}")
    return rows, notes


def _row_of(site: Site, step: Any, order: int, got: Array | None) -> TraceRow:
    from fuzzparity.blame.localize import place_of
    from fuzzparity.blame.paired import as_expected

    place = place_of(step)
    whole = None if got is None else as_expected(step.expected, got)
    return TraceRow(
        order,
        place.onnx_node or step.value,
        tuple(node.op_type for node in step.nodes),
        step.value,
        step.fx_node,
        place.module,
        site.source_of(place.stack),
        None if step.actual is None else compared(step.expected, step.actual),
        None if whole is None else compared(step.expected, whole),
        range_of(step.expected),
        None if whole is None else range_of(whole),
        step.path,
    )


def _by_value(site: Site, values: Mapping[str, Array]) -> Iterator[TraceRow]:
    """Yield a row for each value of the file: compared with the value of torch's that is nearest to it in order."""
    from fuzzparity.blame.matching import counterpart
    from fuzzparity.blame.origins import origin_of
    from fuzzparity.sides.eager import eager_events

    events = eager_events(site.loaded, site.case)
    answers = site.expected.outputs if site.expected.is_ok else ()
    own = {item.name: array for item, array in zip(site.model.graph.output, answers, strict=False)}
    order = 0
    start = 0
    for node in site.model.graph.node:
        for name in node.output:
            got = values.get(name)
            if got is None or node.op_type == "Constant":
                continue
            found = counterpart(got, events, start)
            start = found[0] if found is not None else start
            event, array = (events[found[0]], found[1]) if found is not None else (None, None)
            array = array.reshape(got.shape) if array is not None else None
            if name in own and own[name].shape == got.shape:  # what it is to be is known, whatever looks more alike
                array = own[name]
            yield TraceRow(
                order,
                node.name or name,
                (node.op_type,),
                name,
                "",
                origin_of(node).module,
                site.relative(event.source) if event is not None and event.source else "",
                None,
                None if array is None else compared(array, got),
                None if array is None else range_of(array),
                range_of(got),
            )
            order += 1


def compared(expected: Array, actual: Array) -> Comparison:
    """Compare two intermediate values under what `torch.testing.assert_close` allows their dtype."""
    rtol, atol = DEFAULTS.get(expected.dtype.name, (0.0, 0.0))
    return compare(expected, actual, Allowance(rtol, atol))


def range_of(array: Array) -> Range | None:
    """Return the range of a value's finite elements; None of what has no numbers."""
    if array.dtype.kind not in "biuf" and not is_float(array.dtype):
        return None
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    return Range(low, high, int(wide.size - finite.size))
