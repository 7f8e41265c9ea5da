"""Tracing: the body of `trace`: one case, from the command line or from a stored finding, along the whole graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuzzparity.campaign.observer import Observer
from fuzzparity.campaign.options import TargetOptions
from fuzzparity.case import Case
from fuzzparity.commands.running import opened, read_inputs
from fuzzparity.contract import TargetFacts
from fuzzparity.corpus.records import Payload
from fuzzparity.errors import InvalidCase, InvalidTarget, InvalidUsage, WorkerLost
from fuzzparity.explain.tracing import Traced, TraceSpec
from fuzzparity.finding import Bucket
from fuzzparity.work.alone import Exit

_TRACE_JOB = "fuzzparity.explain.tracing:trace"


@dataclass(frozen=True, slots=True)
class TraceResult:
    """Hold a trace with what it was made of: the facts of the target and the name of the case."""

    facts: TargetFacts
    name: str
    traced: Traced


def trace_inputs(options: TargetOptions, paths: tuple[str, ...], observer: Observer) -> TraceResult:
    """Trace the one case that files of the user hold."""
    if not paths:
        raise InvalidUsage("trace wants one input: `fuzzparity trace TARGET INPUTS`, or the id of a finding")
    return _trace(options, observer, None, paths)


def trace_finding(options: TargetOptions, payload: Payload, observer: Observer) -> TraceResult:
    """Trace the case of a stored finding on today's code and export of its target."""
    if payload.facts is not None and not options.dtypes:
        options = replace(options, dtypes=payload.facts.dtypes)  # the build it was found on
    named = (payload.finding.finding_id, payload.case)
    return _trace(options, observer, named, (), payload.finding.bucket)


def _trace(
    options: TargetOptions,
    observer: Observer,
    named: tuple[str, Case] | None,
    paths: tuple[str, ...],
    bucket: Bucket | None = None,
) -> TraceResult:
    with opened(options, observer, first_seeds_only=True) as prepared:
        if prepared.twin is None or not prepared.twin.is_built:
            raise InvalidTarget(
                "export", "there is no ONNX model to go through", "`fuzzparity check` says why it was not made"
            )
        if named is None:
            found = read_inputs(prepared, paths, 1)
            for text in (*found.skipped, *found.notes):
                observer.note(text)
            if not found.cases:
                raise InvalidCase(f"{', '.join(paths)}: no input that fits the target")
            if not found.is_all:
                observer.note("only the first input is traced")
            named = found.cases[0]
        observer.started(prepared.facts, prepared.places, tuple(prepared.notes))
        name, case = named
        answer = prepared.pool.run(
            _TRACE_JOB,
            TraceSpec(prepared.twin, case, bucket),
            limits=replace(prepared.limits, other_seconds=900.0),
            label="trace",
        )
        if isinstance(answer, Exit):
            raise WorkerLost(f"the tracing process died with {answer.text}\n{answer.fault}")
        assert isinstance(answer, Traced)
        return TraceResult(prepared.facts, name, answer)
