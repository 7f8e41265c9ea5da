"""Repeats: whether the known causes of a bucket explain a case that fell into it, or another cause is there.

The idea: a bucket says what differs, not why. Where torch's values, put in at the places of all causes that are known,
leave nothing that is a bug, and the deviation is not born at another node, they explain the case; else there is another
cause. The findings' own smallest cases are asked first: a place that does not even heal those can tell nothing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fuzzparity.case import Array, Case, Lineage
from fuzzparity.execution import ORT, Execution, Status, node_told
from fuzzparity.explain.arbiters import Bench
from fuzzparity.explain.locating import located
from fuzzparity.explain.pairing import asked_of, map_of, matching, pair_alone
from fuzzparity.explain.records import AskedAgain, AskSpec, Cause, Pairing
from fuzzparity.explain.site import Site
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.finding import VALUE_KINDS, suspects_of
from fuzzparity.oracle.where import counted
from fuzzparity.verdict import Grade, Kind, Verdict
from fuzzparity.work.alone import run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.loader import Context

_MOST_TRIED = 12  # combinations of torch's values; each is a session of the whole model
_MOST_VALUES = 6  # of torch's that may stand for one value of the file


def ask(context: Context, spec: AskSpec) -> None:
    """Run cases one after the other and send an `AskedAgain` for each, up to another cause at a sure place.

    Of those that are not explained either and have no sure place, mostly since several causes meet in them, the first
    is told once more at the end, where nothing clearer was met.
    """
    deadline = time.monotonic() + spec.seconds
    unclear: AskedAgain | None = None
    for place, case in enumerate(spec.cases):
        left = deadline - time.monotonic()
        if place and left <= 0:
            break
        answer = _asked(context, spec, place, case, max(1.0, left))
        is_own, is_clear = place < spec.own, answer.is_clear
        if is_own and is_clear:  # a known cause that is found elsewhere on its own case: places tell nothing
            spec = replace(spec, by_place=False)
        if answer.is_explained is False and not (is_own or is_clear):
            unclear = unclear or answer
            answer = replace(answer, is_explained=None)
        context.send(answer)
        if answer.is_explained is False or (is_own and answer.is_explained is None):
            return
    if unclear is not None:
        context.send(unclear)


def _asked(context: Context, spec: AskSpec, place: int, case: Case, seconds: float) -> AskedAgain:
    """Return what a case answers: by brief looks, since what is taken for another cause is confirmed by itself."""
    if place >= spec.own and spec.bucket.kind in VALUE_KINDS and is_plainly_explained(context, spec, case, seconds):
        return AskedAgain(place, True)
    pairing = pair_alone(context, spec.twin, case, context.limits, asked_of(spec.bucket), is_brief=True)
    verdict = matching(spec.bucket, case, pairing.judgement)
    told: bool | None = None
    is_elsewhere = False
    if verdict is not None:
        told = heals(context, spec, case, verdict, pairing, seconds=seconds)
        every = replace(spec, causes=(*spec.causes, *spec.others))
        if (
            told is False and place >= spec.own and spec.others
        ):  # what is left may be a fault that another bucket has shown
            told = bool(heals(context, every, case, verdict, pairing, seconds=seconds))
        if told is not None and spec.by_place:
            op, node = sure_place(context, spec, case, verdict, pairing, seconds=seconds)
            # one kernel that is wrong at several nodes is one cause
            is_known_kernel = any(cause.part == "kernel" and cause.op == op for cause in spec.causes)
            is_elsewhere = bool(node) and not is_known_kernel and all(node != cause.node for cause in every.causes)
            told = told or is_known_kernel
    if place >= spec.own and is_elsewhere:
        told = False
    suspects = suspects_of(
        spec.bucket.build, case, spec.lineages[place], pairing.judgement, pairing.expected, pairing.actual
    )
    own = next((one for one in suspects if one.verdict is verdict), None)
    return AskedAgain(place, told, is_elsewhere, own)


def last_beside(context: Context, spec: AskSpec, trail: tuple[Case, ...]) -> Case | None:
    """Return the last of ever smaller cases that shows a cause beside the known ones, by bisection; None: none seen.

    Where the first is born at a sure place of its own, so is the one returned: several causes must not meet in it.
    """
    deadline = time.monotonic() + spec.seconds
    lined = replace(spec, cases=trail, lineages=(Lineage("minimize"),) * len(trail), own=0)
    is_clear = _asked(context, lined, 0, trail[0], spec.seconds).is_clear
    best, low, high = None, 1, len(trail)
    middle = high - 1  # the smallest first: mostly it still does
    while low < high and time.monotonic() < deadline:
        answer = _asked(context, lined, middle, trail[middle], max(1.0, deadline - time.monotonic()))
        if answer.is_clear or (answer.is_explained is False and not is_clear):
            best, low = trail[middle], middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return best


def sure_place(
    context: Context, spec: AskSpec, case: Case, verdict: Verdict, pairing: Pairing, *, seconds: float
) -> tuple[str, str]:
    """Return (operator, node) at which a deviation is born for sure; ("", "") where that is not known."""
    if verdict.kind not in VALUE_KINDS or any(cause.part in ("capture", "optimizer") for cause in spec.causes):
        return "", ""
    bare = replace(verdict, blame="unknown", attribution=None)
    found = located(context, spec.twin, case, bare, pairing.expected, pairing.actual, seconds=seconds).attribution
    if found is None or found.among > 1 or (found.is_guess and not found.is_shown):
        return "", ""
    return found.op, found.onnx_node


def heals(
    context: Context, spec: AskSpec, case: Case, verdict: Verdict, pairing: Pairing, *, seconds: float
) -> bool | None:
    """Tell whether the known causes heal what a case shows; None where that cannot be told."""
    if verdict.kind is Kind.ERROR_SPLIT:
        return _is_among(spec.causes, node_told(pairing.actual))
    if verdict.kind is Kind.CRASH:
        return _is_among(spec.causes, Bench(context, spec.twin, case).guilty_node() or ())
    if verdict.kind not in VALUE_KINDS:
        return None
    site = Site(context, spec.twin, case, verdict, pairing.expected, pairing.actual, time.monotonic() + seconds)
    return _told_alone(context, lambda announcer: _leaves_nothing(context, spec, site, announcer), seconds)


def is_plainly_explained(context: Context, spec: AskSpec, case: Case, seconds: float) -> bool:
    """Tell whether a case is explained at first sight, in one process: most repeats are.

    The nodes of the known causes read what torch read there, so that no other cause lies before them, and torch's
    values in their places leave nothing that a screen sees.
    """
    deadline = time.monotonic() + seconds
    return bool(_told_alone(context, lambda announcer: _is_plain(context, spec, case, announcer, deadline), seconds))


def _told_alone(context: Context, ask_it: Callable[[Announcer], bool | None], seconds: float) -> bool | None:
    """Return an answer that is found in a process of its own; None where that fails or dies."""

    def body(announcer: Announcer, send: Callable[[Any], None]) -> bool | None:
        try:
            return ask_it(announcer)
        except Exception:  # exporters, evaluators and foreign modules raise whatever they meet
            return None

    answer = run_alone(body, map_path=map_of(context), limits=context.limits, total_seconds=seconds)
    return answer if isinstance(answer, bool) else None


def _is_among(causes: tuple[Cause, ...], told: tuple[str, ...]) -> bool | None:
    return any(told[1] == cause.node for cause in causes) if told and all(cause.node for cause in causes) else None


# What follows runs in forks.


def _leaves_nothing(context: Context, spec: AskSpec, site: Site, announcer: Announcer) -> bool | None:
    """Tell whether the model, given torch's values at all places, differs from torch by nothing that is a bug."""
    twin = open_twin(context, spec.twin, announcer, site.case)
    expected = _reference(spec, site)
    if isinstance(twin, Execution) or not expected.is_ok:
        return None
    is_run = False
    for answer in _answers(site, spec.causes):
        is_run = True
        if not _is_left(twin, spec, site, expected, answer, is_brief=True):
            return True
        if not _is_left(twin, spec, site, expected, answer, is_brief=False):
            return True
    return False if is_run else None


def _is_plain(context: Context, spec: AskSpec, case: Case, announcer: Announcer, deadline: float) -> bool:
    twin = open_twin(context, spec.twin, announcer, case)
    if isinstance(twin, Execution) or any(cause.part == "capture" for cause in spec.causes):
        return False
    expected, actual = twin.run(case)
    verdict = Verdict(Kind(spec.bucket.kind), Grade(spec.bucket.grade), spec.bucket.output)
    site = Site(context, spec.twin, case, verdict, expected, actual, deadline)
    place = site.output
    if place is None or not _differs_at(twin, place, expected, actual) or not _read_what_torch_read(site, spec.causes):
        return False
    return any(not _differs_at(twin, place, expected, answer) for answer in _answers(site, spec.causes))


def _differs_at(twin: Twin, place: int, expected: Execution, answer: Execution) -> bool:
    """Tell whether an answer differs in one output, as far as a screen sees."""
    looks = twin.oracle.screen(expected, answer, relative=True).comparisons
    return place >= len(looks) or looks[place].kind is not Kind.AGREE


def _read_what_torch_read(site: Site, causes: tuple[Cause, ...]) -> bool:
    """Tell whether all that the nodes of causes read, in the file's own run, was read by torch at their lines as well.

    That torch had such a value somewhere says nothing: a step between the two may be lost. What a graph computes from
    sizes, torch has computed in Python.
    """
    from fuzzparity.blame.matching import are_same
    from fuzzparity.blame.subgraphs import View, label_of, needs_of

    view = View(site.model, site.model.graph)
    nodes = {label_of(node): node for node in site.model.graph.node}
    if not all(cause.node in nodes and cause.source for cause in causes):
        return False
    values = {**site.ort_values, **site.feeds}
    for cause in causes:
        read = [one for event in site.steps if site.relative(event.source) == cause.source for one in event.inputs]
        asked = [need for need in needs_of(nodes[cause.node]) if not view.is_of_sizes(need)]
        if not all(need in values and any(are_same(one, values[need]) for one in read) for need in asked):
            return False
    return True


def _is_left(twin: Twin, spec: AskSpec, site: Site, expected: Execution, answer: Execution, *, is_brief: bool) -> bool:
    """Tell whether an answer still differs from torch's by a bug in the output that is asked about."""
    judgement = twin.judge(site.case, expected, answer, asked=asked_of(spec.bucket), is_brief=is_brief)
    return any(one.grade is Grade.BUG and one.output == site.verdict.output for one in judgement.verdicts)


def _reference(spec: AskSpec, site: Site) -> Execution:
    """Return what ORT should give: torch's answer, or that of the captured program where the capture is at fault."""
    if not any(cause.part == "capture" for cause in spec.causes):
        return site.expected
    from fuzzparity.sides.captured import captured, traced
    from fuzzparity.sides.torch_side import TorchSide

    make = captured if site.bench.exporter == "dynamo" else traced
    return TorchSide(make(site.loaded)).run(site.case)


def _answers(site: Site, causes: tuple[Cause, ...]) -> Iterator[Execution]:
    """Yield what ORT gives with torch's values at the places of causes, for each choice of what they may be."""
    given = [list(_values_at(site, cause)) for cause in causes if cause.part != "capture"]
    for values in itertools.islice(itertools.product(*given), _MOST_TRIED):
        outputs = _run_with(site, dict(values))
        if outputs is not None:
            yield counted(Execution(ORT, Status.OK, tuple(outputs)), site.expected.where)


def _run_with(site: Site, values: dict[str, Array]) -> list[Any] | None:
    from fuzzparity.blame.subgraphs import substituted

    changed, feeds = site.model, dict(site.feeds)
    for name, value in values.items():
        changed = substituted(changed, name, value)
        feeds[f"{name}__given"] = value
    return site.run_optimized(changed.SerializeToString(), feeds)


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
    from fuzzparity.blame.subgraphs import View

    scope = site.program[0].run(site.case)
    view = View(site.model, site.model.graph)
    pairs = pairs_of(view, scope)
    named = [value for value, fx in pairs.items() if cause.fx_node and fx == cause.fx_node]
    for value in (*named, name):
        if value in pairs:
            return value, view.shaped(value, scope.values[pairs[value]])
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
