from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fuzzparity.campaign.policies import EVERY, parse_policies, policies_for
from fuzzparity.case import Case, Lineage
from fuzzparity.cli import cli
from fuzzparity.commands import database
from fuzzparity.commands.rejudging import rejudge_stored
from fuzzparity.contract import Build, Contract, TargetFacts
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import Became, Recheck
from fuzzparity.errors import InvalidUsage
from fuzzparity.execution import Environment, Execution, Status
from fuzzparity.finding import Suspect, bucket_of
from fuzzparity.known import Standing, parse
from fuzzparity.report.known import entry_to_paste
from fuzzparity.target import Tolerance
from fuzzparity.verdict import Comparison, Grade, Kind, Realism, Verdict

CORPUS = Path(".fuzzparity/net/corpus.sqlite")
TORCH = (np.float32([[1, 100]]), np.float32([[0.5, 0.25]]))
ORT = (np.float32([[1.5, 100.25]]), np.float32([[0.5, 0.251]]))


def facts(build):
    made = Build(build * 64, "", "given", "s", "o", 1, 1, None, 20, "float32", {})
    environment = Environment("e" * 64, "3.11", "Linux", "cpu", {}, "cpu", "float32", 1, (), "all", 1)
    return TargetFacts("net", "net.py", "", ("boxes", "scores"), Contract(()), made, environment, True)


def store(build, *verdicts):
    with Corpus.open(CORPUS, create=True) as corpus:
        campaign = corpus.begin_campaign(facts(build), "fuzz", 0)
        sides = (Execution("torch", Status.OK, TORCH), Execution("ort", Status.OK, ORT))
        case = Case({"x": np.zeros(3, np.float32)})
        for verdict in verdicts:
            bucket = bucket_of(build * 64, case, verdict)
            corpus.suspect(campaign, Suspect(bucket, case, Lineage(), verdict, Realism.NEAR, *sides), 0.5)
        return [finding.finding_id for finding in corpus.findings()]


def numeric(output, grade=Grade.BUG, region=""):
    comparison = Comparison(Kind.NUMERIC, 9.0, 0.5, region=region)
    return Verdict(Kind.NUMERIC, grade, output, comparison=comparison, headline=f"{output} differs")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_policies_are_read_in_every_spelling():
    texts = ["boxes[..., :4]=boxes_pixels", "scores=rtol:1e-3,atol:1e-4", "a=1e-3", "b=rtol:0.5", "strict"]
    texts += ["c=unordered:-2, atol:0.5", "d=quantized"]
    wanted = {"boxes[..., :4]": "boxes_pixels", "scores": Tolerance(1e-3, 1e-4), "a": Tolerance(atol=1e-3)}
    wanted |= {"c": Tolerance(atol=0.5, unordered=-2), "d": "quantized"}
    assert parse_policies(texts) == wanted | {"b": Tolerance(rtol=0.5), EVERY: "strict"}
    assert policies_for(parse_policies(["y=1", "strict"]), ("y", "z")) == {"y": Tolerance(atol=1.0), "z": "strict"}
    assert policies_for(parse_policies(["w=1"]), ("y",), is_strict=False) == {}


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["y=box"], "'box' is no policy; policies: logits, boxes_normalized"),
        (["y="], "it is empty"),
        (["=1"], "it is empty"),
        (["y=rtol:1,rtol:2"], "no policy"),
        (["y=-1"], "no policy"),
        (["y=1e999"], "is not finite"),
        (["y=1.2.3"], "cannot be read"),
        (["y=1", "y=2"], "y is given twice"),
        (["y=unordered:1.5"], "no policy"),
        (["1", "2"], "every output is given twice"),
    ],
)
def test_a_wrong_policy_says_how_one_is_written(texts, said):
    with pytest.raises(InvalidUsage, match=said):
        parse_policies(texts)


@pytest.mark.parametrize(
    ("key", "policy", "said"),
    [
        ("z", "strict", "it names 'z', which is no output"),
        ("y[a]", "strict", "'a' is no integer"),
        ("y[0]", "half", "holds for a whole output"),
        ("y[0]", Tolerance(unordered=0), "holds for a whole output"),
    ],
)
def test_a_policy_for_what_is_no_output_lists_outputs_and_policies(key, policy, said):
    with pytest.raises(InvalidUsage, match=said) as error:
        policies_for({key: policy}, ("x", "y"))
    assert "outputs: x, y; policies: logits" in str(error.value)


def test_stored_findings_are_judged_again_by_what_the_sides_answered(here):
    crash = Verdict(Kind.CRASH, Grade.BUG, None, "ort", "SIGSEGV", headline="ORT died")
    store("b", numeric("boxes"), numeric("scores", Grade.INHERENT), crash)

    def judged(*texts, what="net"):
        _, found, is_one = rejudge_stored(what, parse_policies(texts))
        assert is_one is (what != "net")
        return {item.finding.verdict.output or "": item for item in found}

    loose = judged("boxes=0.5", "scores=rtol:0.005")
    assert (loose["boxes"].agrees, loose["scores"].agrees, loose[""].agrees) == (True, True, False)
    assert loose[""].stays == "crash has no size"
    assert loose[""].is_bug  # of a policy it stays one
    assert (loose["boxes"].needed.atol, loose["boxes"].needed.rtol) == (0.5, 0.5)
    strict = judged("strict")
    assert [strict[name].verdict.grade for name in ("boxes", "scores")] == [Grade.BUG, Grade.BUG]  # the user's word
    part = judged("boxes[..., 1:]=rtol:0.01", what=strict["boxes"].finding.finding_id)["boxes"]
    assert part.verdict.comparison.index == (0, 0)  # the rest is held to the default
    assert judged("boxes[..., 1:]=rtol:0.01", "boxes=0.5")["boxes"].agrees
    assert "which only a run measures" in judged("half")["boxes"].stays
    assert judged("boxes=1")["scores"].stays == "no policy is given for scores"
    with pytest.raises(InvalidUsage, match="outputs: boxes, scores"):
        judged("box=1")


def test_explain_with_a_policy_shows_before_and_after_and_fails_while_a_bug_is_left(here):
    (boxes,) = store("b", numeric("boxes"))

    def explain(*arguments):
        ended = CliRunner().invoke(cli, ["explain", *arguments], env={"COLUMNS": "160"})
        return ended.exit_code, ended.output

    code, text = explain("net", "--policy", "boxes=0.1")
    assert code == 1
    assert "1 bug(s) left" in text
    code, text = explain(boxes, "--policy", "boxes=boxes_pixels")
    assert code == 0
    for part in ("1 of 1 agree", "agrees from atol 0.5 (rtol 0) or rtol 0.5 (atol 0) on", "boxes: boxes_pixels"):
        assert part in text
    code, text = explain(boxes, "--policy", "boxes=0.1", "--json", "-")
    assert code == 1
    assert '"under_policy"' in text
    (here / "known.toml").write_text('[[issue]]\nname = "n"\nreason = "r"\noutput = "boxes"\n')
    assert explain("net", "--policy", "boxes=0.1", "--known", "known.toml")[0] == 0


def test_a_target_without_inputs_is_told_what_explain_wants(here):
    store("b", numeric("boxes"))
    (here / "net.py").touch()
    with pytest.raises(InvalidUsage, match=r"explain net.py INPUTS... .*finding ls net.py"):
        database.named_finding("net.py")
    with pytest.raises(InvalidUsage, match="no inputs were given"):
        database.named_finding("net")
    (here / "crashes" / "numeric-1a2b").mkdir(parents=True)
    (here / "crashes" / "numeric-1a2b" / "finding.json").touch()
    assert database.named_finding("crashes/numeric-1a2b") == "numeric-1a2b"
    assert database.named_finding("numeric-1a") == "numeric-1a"
    assert database.named_finding("net.py", or_corpus=True) == "net.py"


def test_an_entry_that_is_printed_holds_for_the_finding_on_every_build(here):
    odd = Verdict(Kind.ERROR_SPLIT, Grade.BUG, 'a "b"\\\n\x7f', "ort", blame="kernel:Resize")
    store("b", odd)
    store("c", odd)
    for _, finding in database.findings("net"):
        (issue,) = parse(entry_to_paste(finding), "known.toml")
        assert issue.matches(finding)


def test_the_newest_build_says_what_became_of_a_known_issue(here):
    (here / "known.toml").write_text('[[issue]]\nname = "n"\nreason = "r"\noutput = "boxes"\n')
    first, second = sorted({*store("b", numeric("boxes")), *store("c", numeric("boxes"))})

    def standing():
        return [item.standing for item in database.standings("net", ["known.toml"])]

    assert standing() == [Standing.SHOWS]
    assert [finding.is_silent for _, finding in database.findings("net", known=["known.toml"])] == [True, True]
    assert database.corpus_show("net", known=["known.toml"]).findings[0].known.name == "n"
    newest = database.findings("net")[-1][1].finding_id
    with Corpus.open(CORPUS) as corpus:
        corpus.add_rechecks([Recheck(newest, "d" * 64, "e" * 64, Became.GONE)])
    assert {first, second} >= {newest}
    assert standing() == [Standing.GONE]
    assert database.status("net", ["known.toml"])[0].known[0].standing is Standing.SHOWS  # the last campaign saw it
