"""Rechecking: the findings of earlier builds, run again on this one: still there, or gone.

The idea: a finding belongs to a build, and every change of weights, exporter or version makes another one. Its case
outlives them all, so the newest finding of each bucket (but for the build) runs once on each later build.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fuzzparity.campaign.docket import Docket
from fuzzparity.campaign.observer import Observer
from fuzzparity.campaign.records import EXAMINE_JOB
from fuzzparity.campaign.setup import Prepared
from fuzzparity.case import Case
from fuzzparity.corpus.reading import CorpusReader
from fuzzparity.corpus.records import Became, Recheck
from fuzzparity.explain.records import Examined, ExamineSpec
from fuzzparity.finding import Bucket, Finding, Suspect, bucket_of
from fuzzparity.report.known import recheck_lines
from fuzzparity.verdict import GRADES, Kind, Realism, Verdict
from fuzzparity.work.alone import Exit

MOST_SECONDS = 20.0  # of a command; a case takes 0.5 to 2 s with its evidence, so that is a dozen or more
_SHARE = 0.1  # of a campaign's time, where it is shorter than ten times that
_BUILDING = {Kind.EXPORT_ERROR: "the exporter makes a twin now", Kind.LOAD_ERROR: "ORT opens the model now"}
_NEEDS_MORE = frozenset({Kind.UNSTABLE, Kind.LEAK, Kind.SLOW})  # than one run of one case: they stay as they are


@dataclass(slots=True)
class Rechecked:
    """Hold what became of findings of other builds, and what their cases show on this one."""

    pairs: list[tuple[Finding, Recheck]] = field(default_factory=list)
    suspects: list[tuple[Suspect, Finding]] = field(default_factory=list)  # each with the finding whose case it is
    left: int = 0  # were not looked at for want of time

    @property
    def gone(self) -> list[Finding]:
        """Return the findings that had the chance to show on this build and did not."""
        return [finding for finding, became in self.pairs if became.state is Became.GONE]

    @property
    def still_there(self) -> list[Finding]:
        """Return the findings that show on this build as well."""
        return [finding for finding, became in self.pairs if became.state is Became.STILL_THERE]

    @property
    def rechecks(self) -> tuple[Recheck, ...]:
        """Return what became of each."""
        return tuple(became for _, became in self.pairs)


def seconds_for(limit_seconds: float | None) -> float:
    """Return how long rechecking may take beside a campaign of so many seconds."""
    return MOST_SECONDS if limit_seconds is None else min(MOST_SECONDS, _SHARE * limit_seconds)


def recheck(prepared: Prepared, corpus: CorpusReader, limit_seconds: float, say: Callable[[str], None]) -> Rechecked:
    """Run what is due, bugs first; it begins no case after `limit_seconds`."""
    found = Rechecked()
    if prepared.twin is None or not prepared.can_run:
        return found
    deadline = time.monotonic() + limit_seconds
    due = due_here(prepared, corpus)
    for done, finding in enumerate(due):
        said = f"findings of earlier builds: {done} of {len(due)} run again"
        prepared.pool.tick = lambda said=said: say(said)  # type: ignore[misc]
        if finding.verdict.kind in _BUILDING:
            found.pairs.append((finding, _became(prepared, finding, Became.GONE, _BUILDING[finding.verdict.kind])))
        elif time.monotonic() >= deadline:
            found.left += 1
        else:
            _run(prepared, finding, corpus.case(finding.case_digest), found)
    prepared.pool.tick = lambda: None
    return found


def take_over(found: Rechecked, docket: Docket, observer: Observer) -> None:
    """Store what became of findings of other builds, tell it, and take up what shows here as findings of this build.

    A finding that the user ignores is ignored on this build as well.
    """
    docket.corpus.add_rechecks(found.rechecks, docket.campaign_id)
    for line in recheck_lines(found.pairs, found.left):
        observer.note(line)
    for suspect, earlier in found.suspects:
        docket.take(suspect)
        finding_id = suspect.bucket.finding_id
        is_same = is_same_family(earlier, suspect.case, suspect.verdict)
        if earlier.ignored and is_same and finding_id in docket.new_ids:
            docket.corpus.set_ignored(finding_id)


def due_here(prepared: Prepared, corpus: CorpusReader) -> list[Finding]:
    """Return the findings of other builds that this build has not been asked about, the most telling first."""
    build, environment = prepared.facts.build.digest, prepared.facts.environment.digest
    known_here = {_without_build(item) for item in corpus.findings() if item.bucket.build == build}
    settled = {
        item.finding_id
        for item in corpus.rechecks()
        if (item.build, item.environment) == (build, environment) and item.state is not Became.UNKNOWN
    }
    newest: dict[Bucket, Finding] = {}
    for finding, facts in corpus.findings_of_other_builds(build):
        is_like = facts is not None and facts.name == prepared.facts.name and facts.dtypes == prepared.facts.dtypes
        if is_like and finding.reproduced is not False and finding.verdict.kind not in _NEEDS_MORE:
            newest.setdefault(_without_build(finding), finding)
    due = [item for key, item in newest.items() if key not in known_here and item.finding_id not in settled]
    return sorted(due, key=_rank)


def _without_build(finding: Finding) -> Bucket:
    return replace(finding.bucket, build="")


def _rank(finding: Finding) -> tuple[int, bool, bool]:
    verdict = finding.verdict
    return GRADES.index(verdict.grade), verdict.kind is Kind.HANG, finding.realism is not Realism.NEAR


def _run(prepared: Prepared, finding: Finding, case: Case, found: Rechecked) -> None:
    """Run a finding's case on this build and add what came of it."""
    assert prepared.twin is not None
    if misfit := _misfit(prepared, case):
        found.pairs.append((finding, _became(prepared, finding, Became.UNKNOWN, misfit)))
        return
    answer = prepared.pool.run(EXAMINE_JOB, ExamineSpec(prepared.twin, case), limits=prepared.limits, label="recheck")
    if isinstance(answer, Exit):
        said = f"the process that ran it died with {answer.text}"
        found.pairs.append((finding, _became(prepared, finding, Became.UNKNOWN, said)))
        return
    assert isinstance(answer, Examined)
    found.pairs.append((finding, judged(prepared, finding, answer)))
    found.suspects += [(suspect, finding) for suspect in answer.suspects]


def _misfit(prepared: Prepared, case: Case) -> str:
    """Return why a case is none of this build's, "" when it is."""
    contract = prepared.facts.contract
    wanted = [item.name for item in contract.inputs]
    if set(wanted) != set(case.inputs):
        return f"its inputs are {', '.join(case.inputs)}; this build takes {', '.join(wanted)}"
    return "" if contract.has_dtypes_of(case) else "its inputs have other dtypes than this build takes"


def judged(prepared: Prepared, finding: Finding, examined: Examined) -> Recheck:
    """Return what became of a finding by what its case showed: kind, side and output decide."""
    build, verdicts = prepared.facts.build.digest, examined.judgement.verdicts
    like = [item for item in verdicts if is_same_family(finding, examined.case, item)]
    if like:
        same = next((item for item in like if item.grade is finding.verdict.grade), like[0])
        graded = f" ({same.grade.value} now)" if same.grade is not finding.verdict.grade else ""
        there = bucket_of(build, examined.case, same).finding_id
        return _became(prepared, finding, Became.STILL_THERE, f"{same.headline}{graded}", there)
    if verdicts:
        worst = examined.judgement.worst or verdicts[0]
        there = bucket_of(build, examined.case, worst).finding_id
        return _became(prepared, finding, Became.OTHERWISE, worst.headline, there)
    is_refused = examined.judgement.kind is Kind.REJECTED
    return _became(prepared, finding, Became.GONE, "both sides refuse it" if is_refused else "the sides agree")


def is_same_family(finding: Finding, case: Case, verdict: Verdict) -> bool:
    """Tell whether a verdict on a case is of a finding's kind, side, output and finiteness."""
    one = bucket_of("", case, verdict)
    return (one.kind, one.side, one.output, one.finite) == finding.family


def _became(prepared: Prepared, finding: Finding, state: Became, said: str, there: str = "") -> Recheck:
    facts = prepared.facts
    return Recheck(finding.finding_id, facts.build.digest, facts.environment.digest, state, said, there)
