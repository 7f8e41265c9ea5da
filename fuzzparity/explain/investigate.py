"""Investigate: confirm one suspect in fresh sessions, alone, minimize it, then ask which part is at fault.

The idea: this job runs in a clean child of the loader that opens no session itself. Every run that may kill its
process is forked from it, so a crash is an answer like any other; a campaign, `explain` and `replay --current` call
the same code.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from fuzzparity.blame.localize import Located
from fuzzparity.case import Case
from fuzzparity.explain.blaming import blamed, is_last_open
from fuzzparity.explain.cutting import cut_of
from fuzzparity.explain.finite import is_also_finite
from fuzzparity.explain.locating import located
from fuzzparity.explain.minimizing import Smallest, smallest
from fuzzparity.explain.pairing import asked_of, limits_of, matching, pair_alone
from fuzzparity.explain.records import (
    AskSpec,
    Interim,
    InvestigateSpec,
    Investigation,
    Pairing,
)
from fuzzparity.explain.relating import told_by_relations
from fuzzparity.explain.repeats import last_beside
from fuzzparity.finding import VALUE_KINDS, Confirmation, Suspect, may_blame
from fuzzparity.oracle.looks import looks_like
from fuzzparity.verdict import Grade, Kind, Verdict
from fuzzparity.work.limits import CONFIRM_FACTOR
from fuzzparity.work.loader import Context

_DEAR_SECONDS = 8.0  # of confirming, after which a try that showed it stands alone


def investigate(context: Context, spec: InvestigateSpec) -> Investigation:
    """Confirm a suspect, tell the parent, minimize it, run the smallest case in a fresh session and blame a part."""
    confirmation = confirm(context, spec)
    context.send(confirmation)
    if not confirmation.reproduced:
        return Investigation(spec.suspect, confirmation, spec.suspect.case)
    found = _minimized(context, spec, confirmation)
    if found.verdict is None or found.expected is None or found.actual is None:
        return found
    context.send(Interim(found, is_blamed=not may_blame(found.verdict)))
    verdict = blamed(
        context, spec.twin, found.case, found.verdict, found.expected, found.actual, seconds=spec.blame_seconds
    )
    verdict = _blamed_as_met(context, spec, confirmation, found.case, verdict)
    verdict = told_by_relations(context, spec.twin, found.case, verdict, seconds=spec.blame_seconds)
    verdict = replace(verdict, looks_like=_looks(spec, verdict, confirmation))
    if verdict.kind in VALUE_KINDS and not found.case.is_finite:
        verdict = replace(verdict, is_also_finite=is_also_finite(context, spec.twin, found.case, verdict))
    if verdict != found.verdict:
        context.send(Interim(replace(found, verdict=verdict), is_blamed=not _is_open(spec, verdict)))
    places: list[Located] = []
    verdict = located(
        context,
        spec.twin,
        found.case,
        verdict,
        found.expected,
        found.actual,
        seconds=spec.blame_seconds,
        on_found=places.append,
    )
    if is_last_open(spec.twin, verdict) and (verdict.blame == "unknown" or spec.is_patient):
        context.send(Interim(replace(found, verdict=verdict), is_blamed=not _is_open(spec, verdict)))
        asked = found.expected, found.actual
        verdict = blamed(context, spec.twin, found.case, verdict, *asked, seconds=spec.blame_seconds, is_last=True)
    place = places[0] if places else None
    cut = cut_of(
        context, spec.twin, found.case, verdict, found.expected, found.actual, place, seconds=_cut_seconds(spec)
    )
    return replace(found, verdict=verdict, cut=cut)


def _blamed_as_met(
    context: Context, spec: InvestigateSpec, confirmation: Confirmation, case: Case, verdict: Verdict
) -> Verdict:
    """Return a verdict that the smallest case leaves without blame, with what arbiters say of the case as it was met.

    Minimizing keeps the bucket, and may lead from one cause to another in it, of which less can be told.
    """
    met, expected, actual = confirmation.verdict, confirmation.expected, confirmation.actual
    is_open = may_blame(verdict) and verdict.attribution is not None
    if not is_open or case == spec.suspect.case or met is None or expected is None or actual is None:
        return verdict
    asked = blamed(context, spec.twin, spec.suspect.case, met, expected, actual, seconds=spec.blame_seconds)
    if asked.blame == "unknown" or asked.attribution is None:
        return verdict
    how = f"asked on the input as it was met: {asked.attribution.how}"
    return replace(verdict, blame=asked.blame, attribution=replace(asked.attribution, how=how))


def _is_open(spec: InvestigateSpec, verdict: Verdict) -> bool:
    """Tell whether the last arbiter may still find the part at fault."""
    return verdict.blame == "unknown" and is_last_open(spec.twin, verdict)


def _cut_seconds(spec: InvestigateSpec) -> float:
    """Return what a cut may take: nothing where blame is not asked for, since it is what a cut compares with."""
    return min(spec.cut_seconds, spec.blame_seconds)


def _looks(spec: InvestigateSpec, verdict: Verdict, confirmation: Confirmation) -> tuple[str, ...]:
    """Say what the error looks like on the case as it was found: a minimized one has too little left to see."""
    expected, actual = confirmation.expected, confirmation.actual
    names = spec.twin.facts.outputs
    if verdict.kind not in (Kind.NUMERIC, Kind.SHAPE, Kind.DECISION) or verdict.output not in names:
        return ()
    place = names.index(verdict.output)
    if expected is None or actual is None or place >= min(len(expected.outputs), len(actual.outputs)):
        return ()
    return looks_like(expected.outputs[place], actual.outputs[place])


def _minimized(context: Context, spec: InvestigateSpec, confirmation: Confirmation) -> Investigation:
    suspect = spec.suspect
    found = smallest(context, spec, confirmation)
    case = _of_cause(context, spec, found)
    if case == suspect.case and not spec.twin.is_built:  # nothing smaller, and confirmed a moment ago
        return _as_confirmed(suspect, confirmation, found.executions)
    trail = found.trail[: found.trail.index(case)] if case in found.trail else found.trail
    shown = _shown(context, spec, (*(one for one in trail if one != suspect.case), case))
    if shown is None:  # nothing smaller comes back in a fresh session: keep what did
        return _as_confirmed(suspect, confirmation, found.executions)
    case, last, verdict = shown
    realism = last.judgement.realism
    return Investigation(
        suspect,
        confirmation,
        case,
        verdict,
        last.expected,
        last.actual,
        realism,
        found.executions,
        found.reached_fixpoint,
    )


def _shown(context: Context, spec: InvestigateSpec, trail: Sequence[Case]) -> tuple[Case, Pairing, Verdict] | None:
    """Return the smallest of ever smaller cases that shows the bucket in a fresh session and by a full look.

    Mostly it is the last; where a brief look led too far, one before, by bisection.
    """
    bucket, best = spec.suspect.bucket, None
    low, high = 0, len(trail)
    middle = high - 1
    while low < high:
        last = pair_alone(context, spec.twin, trail[middle], limits_of(context, spec.suspect), asked_of(bucket))
        verdict = matching(bucket, trail[middle], last.judgement)
        if verdict is not None:
            best, low = (trail[middle], last, verdict), middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return best


def _of_cause(context: Context, spec: InvestigateSpec, found: Smallest) -> Case:
    """Return the smallest case on the way that the other causes of the suspect's bucket do not explain."""
    if not spec.beside or found.case == spec.suspect.case:
        return found.case
    asking = AskSpec(spec.twin, spec.suspect.bucket, spec.beside, seconds=spec.minimize_seconds)
    trail = (*(case for case in found.trail if case != found.case), found.case)
    return last_beside(context, asking, trail) or spec.suspect.case


def _as_confirmed(suspect: Suspect, confirmation: Confirmation, executions: int) -> Investigation:
    """Return the outcome when the case that was confirmed is the one to keep."""
    return Investigation(
        suspect,
        confirmation,
        suspect.case,
        confirmation.verdict,
        confirmation.expected,
        confirmation.actual,
        suspect.realism,
        executions,
    )


def _of_lost(suspect: Suspect) -> Verdict | None:
    """Return what remains of a suspect that did not come back: a hang was a busy machine, and no more than a note."""
    verdict = suspect.verdict
    if verdict.kind is not Kind.HANG:
        return None
    said = f"{verdict.headline}; alone and with more time it answers, so the machine was busy"
    return replace(verdict, grade=Grade.NOTE, headline=said)


def confirm(context: Context, spec: InvestigateSpec) -> Confirmation:
    """Run a suspect's case in fresh processes and count how often its bucket shows."""
    suspect = spec.suspect
    limits = limits_of(context, suspect, factor=CONFIRM_FACTOR)
    shown = 0
    found: tuple[Verdict, Pairing] | None = None
    most = 1 if suspect.verdict.kind in (Kind.HANG, Kind.EXPORT_ERROR) else spec.tries  # those that take long
    last: Pairing | None = None
    tries, began = 0, time.monotonic()
    while tries < most and not (found is not None and time.monotonic() - began > _DEAR_SECONDS):
        tries += 1
        last = pair_alone(context, spec.twin, suspect.case, limits, asked_of(suspect.bucket), last)
        verdict = matching(suspect.bucket, suspect.case, last.judgement)
        if verdict is not None:
            shown += 1
            found = found or (verdict, last)
    if found is None:
        assert last is not None
        return Confirmation(0, tries, last.judgement, _of_lost(suspect), last.expected, last.actual)
    verdict, pairing = found
    return Confirmation(shown, tries, pairing.judgement, verdict, pairing.expected, pairing.actual)
