"""Validating: run a stream of inputs on both sides of a twin, and judge those that look different.

The idea: one child, one pair of sessions, nothing kept but a row for each input. Evidence is dear: the first few
inputs that look the same get it in full, and the rest share their grade once those were of one mind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from fuzzparity.case import Case, Lineage
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import Execution
from fuzzparity.explain.dataset import Done, Opening, Row, Skipped, Validated, ValidateSpec
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.finding import Suspect, suspects_of
from fuzzparity.generate.contract import SeedStatistics, SeedTally
from fuzzparity.generate.ranges import RangeTally
from fuzzparity.oracle.judge import Screening
from fuzzparity.sides.seeds import Found, Place, SeedReader
from fuzzparity.verdict import Judgement, Kind, Realism
from fuzzparity.work.loader import Context

_JUDGED_ALWAYS = 8  # inputs that look the same and get evidence of their own
_JUDGED_LATER = 64  # every so many after them


@dataclass(slots=True)
class _Alike:
    """Keep what inputs that look the same turned out to be."""

    met: int = 0
    answers: set[tuple[str, str]] = field(default_factory=set)  # (kind, grade)
    row: Row | None = None


def validate(context: Context, spec: ValidateSpec) -> Validated:
    """Run every input of the data and report each; suspects of a bucket not met before go ahead of it."""
    told = 0

    def tell_skipped() -> None:
        nonlocal told
        for text in reader.skipped[told:]:
            context.send(Skipped(text))
        told = len(reader.skipped)

    def opening(source: int, where: str) -> None:  # what is sent by now outlives a death in this source
        tell_skipped()
        context.send(Opening(source, where))

    reader = SeedReader(context.loaded, spec.twin.facts.contract, opening=opening)
    ranges = RangeTally(context.loaded.seed, spec.seen)
    work: _Validator | None = None
    after = Place(*spec.after) if spec.after is not None else None
    for found in reader.read(spec.paths, own=spec.own, after=after):
        ranges.add(found.case, found.where)
        if work is None:
            work = _Validator(context, spec, found.case)
        context.send(Done(work.row(found), ranges.state))
    tell_skipped()
    notes = work.notes() if work is not None else []
    return Validated(ranges.ranges(), (*reader.notes, *ranges.warnings, *notes))


class _Validator:
    """Run and judge inputs on one twin."""

    def __init__(self, context: Context, spec: ValidateSpec, first: Case) -> None:
        twin = open_twin(context, spec.twin, context.announcer, first)
        if isinstance(twin, Execution):  # the gate opened it a moment ago
            said = twin.refusal.said if twin.refusal is not None else twin.status.value
            raise InvalidTarget("load", f"ONNX Runtime no longer opens the model: {said}", "run the command again")
        self._context = context
        self._twin: Twin = twin
        self._statistics = spec.twin.statistics
        self._contract = spec.twin.facts.contract
        # the data is what the target is used on: a case of it is near unless it is not finite
        twin.oracle.realism = self._realism
        twin.oracle.is_typical = lambda case: self._realism(case) is not Realism.WILD
        self._alike: dict[str, _Alike] = {}
        self._told: set[str] = set()

    def row(self, found: Found) -> Row:
        """Run one input on both sides and return what became of it."""
        place = (found.place.source, found.place.case)
        expected, actual = self._twin.run(found.case, found.place.case)
        screening = self._twin.screen(found.case, expected, actual)
        ratios = tuple(comparison.error_ratio for comparison in screening.comparisons)
        if not screening.is_suspicious:
            realism = Realism.NEAR if found.case.is_finite else Realism.WILD
            said = expected.refusal.said if expected.refusal is not None else ""
            measures = screening.measures
            return Row(found.where, place, screening.kind.value, "", ratios, realism.value, said, measures=measures)
        alike = self._alike.setdefault(_look(screening, found.case), _Alike())
        alike.met += 1
        is_due = alike.met <= _JUDGED_ALWAYS or len(alike.answers) > 1 or alike.met % _JUDGED_LATER == 0
        if not is_due and alike.row is not None:
            measures = screening.measures
            return replace(alike.row, where=found.where, place=place, ratios=ratios, is_judged=False, measures=measures)
        row = self._judged(found, expected, actual, ratios)
        alike.answers.add((row.kind, row.grade))
        alike.row = row
        return row

    def notes(self) -> list[str]:
        """Return what the target's metrics could not answer."""
        return self._twin.oracle.meter.taken()

    def _judged(self, found: Found, expected: Execution, actual: Execution, ratios: tuple[float, ...]) -> Row:
        second = (self._twin.run_torch(found.case), self._twin.run_ort(found.case))
        judgement = self._twin.judge(found.case, expected, actual, second, relative=False)
        suspects = suspects_of(
            self._twin.spec.facts.build.digest, found.case, Lineage(origin="given"), judgement, expected, actual
        )
        for suspect in suspects:
            if suspect.bucket.finding_id not in self._told:
                self._told.add(suspect.bucket.finding_id)
                self._context.send(suspect)
        return row_of(found.where, (found.place.source, found.place.case), judgement, suspects, ratios)

    def _realism(self, case: Case) -> Realism:
        """Say how close a case of the data is to the data: it is near, unless it is not finite."""
        tally = SeedTally()
        tally.add(case)
        statistics = SeedStatistics(True, self._statistics.count + 1, tally.statistics(True).spreads)
        return statistics.realism(self._contract, case)


def row_of(
    where: str, place: tuple[int, int], judgement: Judgement, suspects: list[Suspect], ratios: tuple[float, ...]
) -> Row:
    """Return the row of a judged input: the verdict that is told first stands for it, its finding in front."""
    worst = judgement.worst
    if worst is None:
        realism, measures = judgement.realism.value, judgement.measures
        return Row(where, place, judgement.kind.value, "", ratios, realism, measures=measures)
    ids = [item.bucket.finding_id for item in sorted(suspects, key=lambda item: item.verdict is not worst)]
    kind, grade = worst.kind.value, worst.grade.value
    realism, ids = judgement.realism.value, list(dict.fromkeys(ids))
    return Row(where, place, kind, grade, ratios, realism, worst.headline, tuple(ids), measures=judgement.measures)


def _look(screening: Screening, case: Case) -> str:
    """Return what inputs share that need not all be judged: kinds by output, the error ratio in two decades."""
    parts = [screening.kind.value, str(case.is_finite), *(one.metric for one in screening.measures if one.breaks)]
    for index, comparison in enumerate(screening.comparisons):
        if comparison.kind is not Kind.AGREE:
            ratio = comparison.error_ratio
            decades = "inf" if not math.isfinite(ratio) else str(int(math.log10(max(ratio, 1.0)) // 2))
            parts.append(f"{index}:{comparison.kind.value}:{decades}")
    return "|".join(parts)
