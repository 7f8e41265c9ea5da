"""Rejudging: recorded executions judged under another policy; nothing runs, and no target is imported.

The idea: execution and judgement are separate steps joined by records, so "what if I allowed that" is a question to
the database. A policy only decides what has a size; a death, a refusal or a shape stays what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fuzzparity.campaign.policies import Policies, policies_for
from fuzzparity.commands.database import find_corpus, find_finding, ledger_of
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.reading import CorpusReader
from fuzzparity.corpus.records import Payload
from fuzzparity.errors import FuzzparityError, InvalidUsage
from fuzzparity.finding import SIZED, Finding, Stage
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import Policy
from fuzzparity.oracle.regions import region_of
from fuzzparity.report.needed import Needed, needed_of
from fuzzparity.target import QUALITIES
from fuzzparity.verdict import Grade, Judgement, Verdict


@dataclass(frozen=True, slots=True)
class Rejudged:
    """Hold a stored finding under another policy; `stays`: why its verdict is the recorded one.

    `judged` says on which of its cases; `judgement` and `verdict` are those under the policy.
    """

    payload: Payload
    judged: str
    stays: str = ""
    judgement: Judgement | None = None
    verdict: Verdict | None = None  # None where the finding's output agrees
    needed: Needed | None = None

    @property
    def finding(self) -> Finding:
        """Return the finding as it is stored."""
        return self.payload.finding

    @property
    def agrees(self) -> bool:
        """Tell whether the finding's output agrees under the policy."""
        return not self.stays and self.verdict is None

    @property
    def is_bug(self) -> bool:
        """Tell whether there still is a bug in it that is told."""
        verdict = self.finding.verdict if self.stays else self.verdict
        return verdict is not None and verdict.grade is Grade.BUG and not self.finding.is_silent


def rejudge_stored(
    what: str, chosen: Policies, where: str | None = None, known: Sequence[str] = ()
) -> tuple[Path, list[Rejudged], bool]:
    """Judge a finding by its id, or all of a corpus by its target's name, again; True with them for one finding."""
    path, ids = _named(what, where)
    with Corpus.open(path, read_only=True) as corpus:
        ledger, is_one = ledger_of(corpus, known), ids is not None
        findings = corpus.findings() if ids is None else [corpus.finding(finding_id) for finding_id in ids]
        outputs = _outputs(corpus, findings)
        if outputs:
            policies_for(chosen, outputs)
        payloads = (corpus.finding_payload(finding.finding_id) for finding in findings)
        found = [rejudged(replace(payload, finding=ledger.marked(payload.finding)), chosen) for payload in payloads]
    return path, found, is_one


def _named(what: str, where: str | None) -> tuple[Path, list[str] | None]:
    """Return the corpus that is meant, and the id where one finding is."""
    try:
        path, finding = find_finding(what, where)
        return path, [finding.finding_id]
    except InvalidUsage as error:
        if where is not None or "names several" in str(error):
            raise
        try:
            return find_corpus(what), None
        except FuzzparityError:
            raise InvalidUsage(f"{error}; and there is no corpus of that name") from None


def _outputs(corpus: CorpusReader, findings: Sequence[Finding]) -> list[str]:
    """Return the outputs that the findings may be about: those of the last campaign, and their own."""
    facts = corpus.facts()
    named = [finding.verdict.output for finding in findings if finding.verdict.output]
    return list(dict.fromkeys([*(facts.outputs if facts is not None else ()), *named]))


def rejudged(payload: Payload, chosen: Policies) -> Rejudged:
    """Judge one stored finding again by its recorded executions."""
    finding, facts, verdict = payload.finding, payload.facts, payload.finding.verdict
    least, judged = needed_of(payload), _case_judged(finding)
    if verdict.site.startswith("metric:"):
        return Rejudged(payload, judged, "a metric has a bound of its own", needed=least)
    if verdict.kind not in SIZED:
        return Rejudged(payload, judged, f"{verdict.kind.value} has no size", needed=least)
    if payload.expected is None or payload.actual is None or facts is None or not payload.expected.outputs:
        return Rejudged(payload, judged, "its outputs are not recorded", needed=least)
    policies = policies_for(chosen, facts.outputs, is_strict=False)
    spoken_of = {_output_of(key, facts.outputs) for key in policies}
    if verdict.output not in spoken_of:
        return Rejudged(payload, judged, f"no policy is given for {verdict.output or 'it'}", needed=least)
    if (quality := policies.get(verdict.output or "")) in QUALITIES:
        stays = f"{quality} goes by the noise on the seeds, which only a run measures: explain TARGET INPUTS --policy"
        return Rejudged(payload, judged, stays, needed=least)
    oracle = Oracle(
        facts.outputs,
        Policy(facts.outputs, facts.build.computing_dtype, policies),
        breach=lambda case: "recorded as outside the contract" if verdict.grade is Grade.CONTRACT else "",
        realism=lambda case: finding.realism,
    )
    judgement = oracle.judge(payload.case, payload.expected, payload.actual, None)
    told = next((item for item in judgement.verdicts if item.output == verdict.output), None)
    return Rejudged(payload, judged, "", judgement, told, least)


def _output_of(key: str, outputs: Sequence[str]) -> str:
    region = region_of(key, outputs)
    return key if region is None else region.output


def _case_judged(finding: Finding) -> str:
    """Return on which case of a finding its recorded executions are."""
    if finding.stage is not Stage.MINIMIZED:
        return "the case that it was found on"
    if finding.case_digest == finding.first_case_digest:
        return "the minimized case, which is the one that it was found on"
    return "the minimized case; what the sides answered on the case that it was found on is not kept"
