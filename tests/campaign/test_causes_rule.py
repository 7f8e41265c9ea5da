"""When findings are one fault, and which of them leads: by records, and in a database as a campaign stores them."""

from dataclasses import replace

import numpy as np
import pytest

from fuzzparity.campaign.causes import join
from fuzzparity.case import Case, Lineage
from fuzzparity.contract import Build, Contract, InputContract, TargetFacts
from fuzzparity.corpus.database import Corpus
from fuzzparity.execution import Environment
from fuzzparity.explain.records import Cause
from fuzzparity.finding import Finding, Stage, Suspect, Where, bucket_of, is_same_cause
from fuzzparity.report.causes import causes_of
from fuzzparity.verdict import Attribution, Grade, Kind, Realism, Verdict

BUILD = "b" * 64
NODE = ("Relu", "node_relu", "net.py:7")


def found(kind=Kind.NUMERIC, output="y", *, grade=Grade.BUG, blame="export", place=NODE, value=1.0, **more):
    """Return a finding on an input of this value, blamed and placed."""
    known = Attribution("", (), "", *place[:2], source=place[2], is_guess=more.pop("guess", False))
    known = replace(known, is_shown=more.pop("shown", False))
    site, finite = more.pop("site", ""), more.pop("also_finite", False)
    verdict = Verdict(kind, grade, output, site=site, blame=blame, attribution=known, is_also_finite=finite)
    case = Case({"x": np.full(3, value, np.float32)})
    bucket = bucket_of(BUILD, case, verdict)
    digest = case.digest
    where = Where(*place[:2], source=place[2])
    return Finding(
        bucket.finding_id, bucket, Stage.MINIMIZED, verdict, Realism.WILD, digest, digest, where, reproduced=True
    )


SAME = {
    "another output": (found(), found(output="z", value=2.0)),
    "a decision made of it": (found(), found(Kind.DECISION, "label", value=2.0)),
    "a shape of the same node": (found(), found(Kind.SHAPE, value=2.0)),
    "a tie of the same node": (found(), found(grade=Grade.TIE, blame="none", value=2.0)),
    "infinity, where large numbers do too": (found(), found(Kind.NONFINITE, value=np.inf, also_finite=True)),
    "guesses that a substitution showed": (found(guess=True, shown=True), found(output="z", guess=True, shown=True)),
    "a line that the capture left out": (
        found(blame="capture", place=("", "", "net.py:3")),
        found(output="z", blame="capture", place=("Conv", "node_conv", "net.py:3"), value=2.0),
    ),
    "one refusal, with NaN or without": (
        found(Kind.ERROR_SPLIT, None, blame="unknown", site="bad axis"),
        found(Kind.ERROR_SPLIT, None, blame="unknown", site="bad axis", value=np.nan),
    ),
    "two inherents of one output": (
        found(grade=Grade.INHERENT, blame="none", place=("", "", "")),
        found(grade=Grade.INHERENT, blame="none", place=("", "", ""), value=np.nan),
    ),
}
APART = {
    "another node": (found(), found(output="z", place=("Relu", "node_relu_1", "net.py:7"), value=2.0)),
    "another part": (found(), found(output="z", blame="kernel:Relu", value=2.0)),
    "NaN semantics beside wrong numbers": (found(), found(Kind.NONFINITE, value=np.nan)),
    "part unknown": (found(blame="unknown"), found(output="z", blame="unknown", value=2.0)),
    "guesses": (found(guess=True), found(output="z", guess=True, value=2.0)),
    "place unknown": (found(place=("", "", "")), found(output="z", place=("", "", ""), value=2.0)),
    "a refusal beside wrong numbers": (found(), found(Kind.ERROR_SPLIT, None, site="bad axis", value=2.0)),
    "other refusals": (
        found(Kind.ERROR_SPLIT, None, site="bad axis", place=("", "", "")),
        found(Kind.ERROR_SPLIT, None, site="bad rank", place=("", "", "")),
    ),
    "ties of other outputs": (
        found(grade=Grade.TIE, blame="none", place=("", "", "")),
        found(output="z", grade=Grade.TIE, blame="none", place=("", "", "")),
    ),
}


def test_the_cause_of_a_lost_step_is_where_its_value_is_read():
    lost = found(place=("Add", "", "net.py:7"))
    known = replace(lost.verdict.attribution, reader="net/Div_1")
    lost = replace(lost, verdict=replace(lost.verdict, attribution=known))
    assert Cause.of(lost) == Cause("export", "Add", "net/Div_1", "", "net.py:7")


def test_a_further_cause_that_is_found_where_a_known_one_is_joins_it():
    first, second = found(guess=True), found(guess=True, value=2.0)
    second = replace(second, bucket=replace(second.bucket, cause="2"))
    assert is_same_cause(first, second)
    elsewhere = found(guess=True, place=("Pad", "node_pad", "net.py:3"), value=3.0)
    elsewhere = replace(elsewhere, bucket=replace(elsewhere.bucket, cause="2"))
    assert not is_same_cause(first, elsewhere)
    assert not is_same_cause(elsewhere, second)


@pytest.mark.parametrize("name", SAME)
def test_one_fault(name):
    one, other = SAME[name]
    assert is_same_cause(one, other)
    assert is_same_cause(other, one)


@pytest.mark.parametrize("name", APART)
def test_two_faults(name):
    one, other = APART[name]
    assert not is_same_cause(one, other)
    assert not is_same_cause(other, one)


def test_a_tie_that_two_bugs_explain_hides_neither():
    tie = found(grade=Grade.TIE, blame="none", value=3.0)
    bugs = [found(), found(output="z", blame="kernel:Relu", value=2.0)]
    causes = causes_of([tie, *bugs])
    assert {cause.leader.finding_id for cause in causes} == {item.finding_id for item in bugs}
    assert sum(len(cause.variants) for cause in causes) == 1


@pytest.fixture
def corpus(tmp_path):
    build = Build(BUILD, "", "given", "s", "o", 10, 2, None, 18, "float32", {})
    environment = Environment("e" * 64, "3.11", "Linux", "cpu", {}, "cpu", "float32", 1, ("CPU",), "all", 1)
    facts = TargetFacts(
        "net", "net.py", "", ("y", "z"), Contract((InputContract("x", "float32", ()),)), build, environment, True
    )
    with Corpus.open(tmp_path / "corpus.sqlite", create=True) as opened:
        opened.campaign = opened.begin_campaign(facts, "fuzz", 0)
        yield opened


def store(corpus, finding, value):
    """Store a finding as an investigation leaves it, let it join, and return what that changed."""
    case = Case({"x": np.full(3, value, np.float32)})
    suspect = Suspect(finding.bucket, case, Lineage(), finding.verdict, finding.realism)
    corpus.suspect(corpus.campaign, suspect, 1.0)
    corpus.minimized(finding, case, None, None, suspect)
    return join(corpus, finding)


def leaders(corpus):
    return {item.finding_id: item.duplicate_of for item in corpus.findings()}


def test_the_first_one_met_leads(corpus):
    first, second = found(value=5.0), found(output="z", value=2.0)
    assert store(corpus, first, 5.0) == []
    assert store(corpus, second, 2.0) == [first.finding_id, second.finding_id]
    assert leaders(corpus) == {first.finding_id: "", second.finding_id: first.finding_id}
    other = found(Kind.DECISION, "z", place=("Exp", "node_exp", ""), value=4.0)
    assert store(corpus, other, 4.0) == []
    assert leaders(corpus)[other.finding_id] == ""


def test_a_bug_takes_over_what_is_none_and_a_finite_one_what_needs_infinity(corpus):
    tie = found(grade=Grade.TIE, blame="none", value=3.0)
    wild = found(Kind.NONFINITE, value=np.inf, also_finite=True)
    finite = found(output="z", value=2.0)
    store(corpus, tie, 3.0)
    assert store(corpus, wild, np.inf) == [wild.finding_id, tie.finding_id]
    assert set(store(corpus, finite, 2.0)) == {finite.finding_id, wild.finding_id}
    assert leaders(corpus) == {
        tie.finding_id: finite.finding_id,
        wild.finding_id: finite.finding_id,
        finite.finding_id: "",
    }
    (cause,) = causes_of(corpus.findings())
    assert (cause.leader.finding_id, len(cause.variants)) == (finite.finding_id, 2)


def test_a_bucket_with_a_cause_is_another_finding_and_the_old_key_stays():
    bucket = found().bucket
    further = replace(bucket, cause="export node_exp")
    assert further.provisional == bucket
    assert further.key == f"{bucket.key}|export node_exp"
    assert further.finding_id != bucket.finding_id
