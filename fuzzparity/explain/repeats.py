"""Repeats: whether the known causes of a bucket explain a case that fell into it, or another cause is there.

The idea: a bucket says what differs, not why. Where torch's values, put in at the places of all causes that are known,
leave nothing that is a bug, and the deviation is not born at another node, they explain the case; else there is another
cause. The findings' own smallest cases are asked first: a place that does not even heal those can tell nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzzparity.case import Case, Lineage
from fuzzparity.execution import Execution, node_told
from fuzzparity.explain.arbiters import Bench
from fuzzparity.explain.first_sight import explained_at_first_sight
from fuzzparity.explain.given import answers_given, reference_of
from fuzzparity.explain.locating import located
from fuzzparity.explain.pairing import asked_of, map_of, matching, pair_alone
from fuzzparity.explain.records import AskedAgain, AskSpec, Cause, Pairing
from fuzzparity.explain.site import Site
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.finding import VALUE_KINDS, suspects_of
from fuzzparity.verdict import Grade, Kind, Verdict
from fuzzparity.work.alone import run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.loader import Context

_CASE_SECONDS = 8.0  # that a case may take which is begun in time
_MOST_OPEN = 4  # not explained at first sight, after which these are asked


def ask(context: Context, spec: AskSpec) -> None:
    """Run cases one after the other and send an `AskedAgain` for each, up to another cause at a sure place.

    Of those that are not explained either and have no sure place, mostly since several causes meet in them, the first
    is told once more at the end, where nothing clearer was met.
    """
    deadline = time.monotonic() + spec.seconds
    unclear: AskedAgain | None = None
    looked: dict[int, bool] | None = None
    for place, case in enumerate(spec.cases):
        if place == spec.own:
            looked = explained_at_first_sight(context, spec, deadline - time.monotonic(), most_open=_MOST_OPEN)
            for seen, is_explained in (looked or {}).items():
                if is_explained:
                    context.send(AskedAgain(seen, True))
        if looked is not None and looked.get(place) is not False:
            continue
        left = deadline - time.monotonic()
        if place and left <= 0:
            break
        answer = _asked(context, spec, place, case, max(_CASE_SECONDS, left))
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
    pairing = pair_alone(context, spec.twin, case, context.limits, asked_of(spec.bucket), is_brief=True)
    verdict = matching(spec.bucket, case, pairing.judgement)
    told: bool | None = None
    is_elsewhere = False
    if verdict is not None:
        told = heals(context, spec, case, verdict, pairing, seconds=seconds)
        every = replace(spec, causes=(*spec.causes, *spec.others))
        if told is False and place >= spec.own and spec.others:
            # what is left may be a fault that another bucket has shown
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
    looked = explained_at_first_sight(context, lined, spec.seconds) or {}
    is_clear = _asked(context, lined, 0, trail[0], spec.seconds).is_clear
    best, low, high = None, 1, len(trail)
    middle = high - 1  # the smallest first: mostly it still does
    while low < high and time.monotonic() < deadline:
        answer = AskedAgain(middle, True)
        if not looked.get(middle):
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

    def body(announcer: Announcer, send: Callable[[Any], None]) -> bool | None:
        try:
            return _leaves_nothing(context, spec, site, announcer)
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
    expected = reference_of(site, spec.causes)
    if isinstance(twin, Execution) or not expected.is_ok:
        return None
    is_run = False
    for answer, _ in answers_given(site, spec.causes):
        is_run = True
        if not _is_left(twin, spec, site, expected, answer, is_brief=True):
            return True
        if not _is_left(twin, spec, site, expected, answer, is_brief=False):
            return True
    return False if is_run else None


def _is_left(twin: Twin, spec: AskSpec, site: Site, expected: Execution, answer: Execution, *, is_brief: bool) -> bool:
    """Tell whether an answer still differs from torch's by a bug in the output that is asked about."""
    judgement = twin.judge(site.case, expected, answer, asked=asked_of(spec.bucket), is_brief=is_brief)
    return any(one.grade is Grade.BUG and one.output == site.verdict.output for one in judgement.verdicts)
