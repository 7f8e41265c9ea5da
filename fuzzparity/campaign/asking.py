"""Asking: the children that are asked whether the known causes of a bucket explain its repeats, and what comes of it.

The idea: one child at a time, for a bounded share of the campaign. What is explained is a hit; what is not is taken as
a suspect of its own, whose bucket counts the causes. A bucket waits while one of its causes is still being blamed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from fuzzparity.campaign.records import ASK_JOB
from fuzzparity.campaign.repeats import Repeat, Repeats
from fuzzparity.campaign.setup import Prepared
from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.explain.records import AskedAgain, AskSpec, Cause, TwinSpec
from fuzzparity.finding import REPEATED_KINDS, VALUE_KINDS, Bucket, Finding, Stage, Suspect
from fuzzparity.verdict import Grade
from fuzzparity.work.pool import Child, Died, Finished, Message

_SECONDS = 20.0  # of one child; no case is begun after them
_SECONDS_BESIDE = 8.0  # where another bucket waits that nothing was asked about yet
_MOST_CAUSES = 8  # of one bucket
_MOST_OTHERS = 4  # of other buckets, that are put in beside them
_LABEL = "repeats"


@dataclass(slots=True)
class _Asked:
    """Hold what a child is asked: smallest cases of a bucket's findings, then repeats, and the places it answered."""

    finding_id: str
    own: tuple[Repeat, ...]
    repeats: tuple[Repeat, ...]
    causes: tuple[str, ...]
    began: float
    answered: set[int] = field(default_factory=set)
    by_place: bool = True


class Asker:
    """Ask repeats of the findings of one docket."""

    def __init__(
        self,
        prepared: Prepared,
        corpus: Corpus,
        take: Callable[[Suspect], None],
        unhit: Callable[[str], None],
    ) -> None:
        """Start with nothing; `take` gets suspects, `unhit` the finding whose last hit turned out to be another's."""
        self._prepared = prepared
        self._corpus = corpus
        self._take = take
        self._unhit = unhit
        self._repeats = Repeats()
        self._running: dict[int, _Asked] = {}
        self._closed: set[str] = set()  # of which nothing can be told
        self._tried: dict[tuple[str, ...], bool] = {}  # causes that heal their own cases -> whether places tell others
        self._earlier = [item for item in corpus.findings() if item.bucket.cause]

    @property
    def running(self) -> int:
        """Return how many children are asked now."""
        return len(self._running)

    def owns(self, child: Child) -> bool:
        """Tell whether a child is one of those asked."""
        return child.child_id in self._running

    def offer(self, finding_id: str, case: Case, lineage: Lineage) -> None:
        """Take a case that fell into the bucket of a known finding."""
        if finding_id not in self._closed:
            self._repeats.offer(finding_id, Repeat(case, lineage))

    def is_waiting(self, findings: Mapping[str, Finding], busy: Collection[str]) -> bool:
        """Tell whether there is a finding about which nothing was asked yet, and could be."""
        return any(self._causes(name, findings, busy) for name in self._unasked())

    def _unasked(self, besides: str = "") -> list[str]:
        """Return the findings, besides one, whose repeats wait and were never asked."""
        return [name for name in self._repeats.waiting(unasked=True) if name != besides]

    def start(
        self,
        twin: TwinSpec,
        findings: Mapping[str, Finding],
        busy: Collection[str],
        at_seconds: float,
        *,
        is_free: bool = False,
        seconds_left: float | None = None,
    ) -> bool:
        """Start a child where none runs and one is due; tell whether one was started.

        `busy`: findings that are being investigated. `is_free`: no bug waits, so that what was never asked is.
        """
        is_due = self._repeats.is_due(at_seconds, has_bug=not is_free)
        if self._running or not (is_due or is_free):
            return False
        for name in self._repeats.waiting(unasked=not is_due):
            causes = self._causes(name, findings, busy)
            if causes:
                is_alone = not any(self._causes(one, findings, busy) for one in self._unasked(name))
                seconds = _SECONDS if is_alone else _SECONDS_BESIDE
                seconds = seconds if seconds_left is None else min(seconds, seconds_left)
                self._launch(twin, causes, _others(findings, causes), self._repeats.take(name), seconds)
                return True
        return False

    def _launch(
        self,
        twin: TwinSpec,
        findings: list[Finding],
        others: tuple[Cause, ...],
        repeats: tuple[Repeat, ...],
        seconds: float,
    ) -> None:
        first, ids = findings[0], tuple(one.finding_id for one in findings)
        own = tuple(
            Repeat(self._corpus.case(one.case_digest), Lineage("minimize", (one.first_case_digest,)))
            for one in (findings if ids not in self._tried else ())
        )
        every = (*own, *repeats)
        spec = AskSpec(
            twin,
            first.bucket,
            tuple(Cause.of(one) for one in findings),
            tuple(item.case for item in every),
            tuple(item.lineage for item in every),
            own=len(own),
            others=others,
            by_place=self._tried.get(ids, True),
            seconds=seconds,
        )
        child = self._prepared.pool.launch(ASK_JOB, (spec,), limits=self._prepared.limits, label=_LABEL)
        self._running[child.child_id] = _Asked(first.finding_id, own, repeats, ids, time.monotonic())

    def _causes(self, name: str, findings: Mapping[str, Finding], busy: Collection[str]) -> list[Finding]:
        """Return the findings of a bucket's causes, the first ahead; none where it cannot be asked, or not yet."""
        finding = findings.get(name)
        if finding is None or name in self._closed or finding.bucket.cause or finding.reproduced is not True:
            return []
        if finding.verdict.grade is not Grade.BUG or finding.verdict.kind not in REPEATED_KINDS:
            return []
        earlier = [item for item in self._earlier if item.finding_id not in findings]
        found = [finding, *_further((*findings.values(), *earlier), finding.bucket)]
        is_settled = all(one.stage in (Stage.MINIMIZED, Stage.LOST) and one.finding_id not in busy for one in found)
        if not is_settled or len(found) >= _MOST_CAUSES:
            return []
        return [one for one in found if one.stage is Stage.MINIMIZED]

    def handle(self, event: Message | Finished | Died) -> None:
        """Take an answer, or the end of a child; what it did not come to is asked another time."""
        asked = self._running[event.child.child_id]
        if isinstance(event, Message):
            if isinstance(event.payload, AskedAgain):
                self._answer(asked, event.payload)
            return
        del self._running[event.child.child_id]
        self._repeats.spent(time.monotonic() - asked.began)
        left = [item for place, item in enumerate(asked.repeats, len(asked.own)) if place not in asked.answered]
        # the one at which a child died is not asked again
        self._repeats.give_back(asked.finding_id, left[isinstance(event, Died) :])

    def _answer(self, asked: _Asked, answer: AskedAgain) -> None:
        asked.answered.add(answer.place)
        finding_id = asked.finding_id
        bucket = self._corpus.finding(finding_id).bucket
        if answer.place < len(asked.own):
            if answer.is_explained is not True:  # a place that does not heal its own case tells nothing of others
                self._closed.add(finding_id)
            asked.by_place &= not answer.is_clear
            if answer.place == len(asked.own) - 1 and finding_id not in self._closed:
                self._tried[asked.causes] = asked.by_place
            return
        if answer.is_explained is False and answer.suspect is not None:
            count = 1 + len(_further(self._corpus.findings(), bucket))
            self._take(replace(answer.suspect, bucket=replace(bucket, cause=str(count + 1))))
            self._unhit(finding_id)


def _further(findings: Iterable[Finding], bucket: Bucket) -> list[Finding]:
    """Return the findings of the further causes under a bucket, in the order in which they were found."""
    found = [item for item in findings if item.bucket.cause and item.bucket.provisional == bucket.provisional]
    return sorted(found, key=lambda item: int(item.bucket.cause))


def _others(findings: Mapping[str, Finding], causes: list[Finding]) -> tuple[Cause, ...]:
    """Return the causes that other buckets have shown, at whose nodes torch's values can be put in."""
    bucket, nodes = causes[0].bucket, {one.place[1] for one in causes}
    found: dict[str, Cause] = {}
    for one in findings.values():
        is_bug = one.verdict.grade is Grade.BUG and one.verdict.kind in VALUE_KINDS and one.stage is Stage.MINIMIZED
        if not is_bug or one.bucket.build != bucket.build or one.bucket.provisional == bucket.provisional:
            continue
        cause = Cause.of(one)
        if cause.node and cause.part != "capture" and cause.node not in nodes and one.is_place_sure:
            found.setdefault(cause.node, cause)
    return tuple(found.values())[:_MOST_OTHERS]


def causes_beside(corpus: Corpus, bucket: Bucket) -> tuple[Cause, ...]:
    """Return the causes under the fields of a bucket that were known before the one that it names."""
    if not bucket.cause:
        return ()
    findings = corpus.findings()
    every = [item for item in findings if item.bucket == bucket.provisional]
    every += [item for item in _further(findings, bucket) if int(item.bucket.cause) < int(bucket.cause)]
    return tuple(Cause.of(item) for item in every if item.stage is Stage.MINIMIZED)
