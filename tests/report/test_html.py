import dataclasses
import io
import json
import re
import sqlite3
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fuzzparity.case import Case, Lineage
from fuzzparity.cli import cli
from fuzzparity.commands import reporting
from fuzzparity.contract import Build, Contract, Dim, InputContract, TargetFacts
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import KeptCase, Snapshot
from fuzzparity.errors import CorpusError, InvalidUsage
from fuzzparity.execution import ORT, TORCH, Environment, Execution, Status
from fuzzparity.finding import Confirmation, Cut, Suspect, bucket_of
from fuzzparity.report.html import html_report, write_html
from fuzzparity.report.overview import overview, report_object
from fuzzparity.verdict import Attribution, Comparison, Evidence, Grade, Judgement, Kind, Realism, Statement, Verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from twins import add_model

EVIL = "<script>alert(1)</script>\"'><img src=//example.org/x onerror=alert(2)>&amp;{{7*7}}\x1b[2J\u202e"
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Read a page as a browser does: tags must nest, ids must be unique; addresses and ids are collected."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.addresses, self.ids, self.texts = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("href", "src", "action", "data", "xlink:href")]
        self.ids += [value for name, value in attrs if name == "id"]
        assert not any(name.startswith("on") for name, _ in attrs), attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


def make_corpus(path, facts, name="logits", *, findings=1, shape=(2, 6, 8), planted=(1, 2, 3), node=""):
    build = dataclasses.replace(facts.build, notes=(f"the exporter narrowed {name}",))
    facts = dataclasses.replace(facts, name=name, outputs=(name,), build=build)
    with Corpus.open(path, create=True) as corpus:
        campaign = corpus.begin_campaign(facts, command=f"fuzz {name}", rng_seed=0)
        rng = np.random.default_rng(0)
        kept = [Case({"x": rng.random((rows, 3), np.float32)}) for rows in (1, 2, 5)]
        corpus.keep_cases(campaign, [KeptCase(case, Lineage("seed"), frozenset({"f"})) for case in kept])
        for number in range(findings):
            expected = rng.standard_normal(shape).astype(np.float32)
            actual = expected.copy()
            actual[planted] += 0.5
            comparison = Comparison(
                Kind.NUMERIC, 300.0, 0.5, 0.25, 9.0, planted, float(expected[planted]), float(actual[planted]), 1, 96
            )
            evidence = Evidence("torch float64", 1e-7, 0.5, {"one ulp": 1e-6}, 16, ("ort",))
            known = Attribution(
                f"how {name}",
                (Statement("ONNX reference", "torch", "ok"),),
                f"until {name}",
                "Add",
                node or f"/head/Add{number}",
            )
            verdict = Verdict(
                *(Kind.NUMERIC, Grade.BUG, name, "ort", f"{name}{number}", comparison, evidence, "kernel:Add"),
                headline=f"{name} is off",
                attribution=known,
                looks_like=(f"like {name}",),
            )
            case = Case({"x": np.full((2, 3), number + 0.5, np.float32)})
            sides = Execution(TORCH, Status.OK, (expected,)), Execution(ORT, Status.OK, (actual,))
            suspect = Suspect(bucket_of(build.digest, case, verdict), case, Lineage(), verdict, Realism.NEAR, *sides)
            finding_id, _ = corpus.suspect(campaign, suspect, 1.0 + number)
            judgement = Judgement(Kind.NUMERIC, Realism.NEAR, (verdict,), (comparison,))
            if number % 2 == 0:
                corpus.confirm(finding_id, Confirmation(2, 2, judgement, verdict, *sides))
        for seconds in (0.0, 5.0, 10.0):
            corpus.snapshot(campaign, Snapshot(seconds, int(10 * seconds), 20, 3, findings))
        corpus.end_campaign(
            campaign, seconds=10.0, executions=100, inputs=200, rejected=1, exit_code=1, interrupted=False
        )
    return path


@pytest.fixture
def twin(tmp_path):
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(add_model().SerializeToString())
    build = Build("b" * 64, str(folder), "exported by dynamo", "s", "o", 11000, 7, None, 20, "float32", {"torch": "2"})
    environment = Environment(
        "e" * 64, "3.11", "Linux", "cpu", {"torch": "2.13.0"}, "cpu", "float32", 1, ("CPUExecutionProvider",), "all", 1
    )
    contract = Contract((InputContract("x", "float32", (Dim(2, "batch"), Dim(3))),))
    return TargetFacts("digits", "corpora/digits", "", ("logits",), contract, build, environment, True)


def text_of(known):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(overview(known))
    return console.export_text()


def test_the_page_tells_what_the_database_holds(tmp_path, twin):
    known = reporting.knowledge(str(make_corpus(tmp_path / "c.sqlite", twin, node="/head/Add")))
    page = Page(html_report(known))
    for told in (
        *("1 open cause (1 finding in all)", "100 executions", "200 inputs judged", "logits is off"),
        *("ONNX Runtime's kernel Add, at Add /head/Add", "2 of 2 runs in fresh sessions showed it", "until logits"),
        *("1 of 96 elements differ (1.04 %)", "300 times what is allowed", "ONNX reference: gives torch's answer"),
        *("torch is 1e-07 off it, ONNX Runtime 0.5", "farther off than rounding explains", "fuzz logits"),
        *("at 1 of 2 on axis 0", "[[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]", "The exporter narrowed logits."),
        *("0 or more", "the node at fault is framed", "Latency was not measured yet"),
    ):
        assert told in page.text, told
    assert page.tags.count("image") == 6  # three panels, each with its scale
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in page.addresses)
    linked = {address[1:] for address in page.addresses if address.startswith("#")}
    assert linked <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    told, found = text_of(known), report_object(known)
    assert told.index("Which part is guilty") < told.index("logits is off") < told.index("Where it ran")
    assert found["causes"] == [{"finding_id": known.view.findings[0].finding_id, "variants": []}]


def test_the_cut_is_drawn_beside_torchs_code_for_it(tmp_path, twin):
    path = make_corpus(tmp_path / "c.sqlite", twin)
    finding_id = reporting.knowledge(str(path)).view.findings[0].finding_id
    feeds, answer = {"x": np.ones((2, 3), np.float32)}, np.zeros((2, 3), np.float32)
    with Corpus.open(path) as corpus:
        corpus.set_cut(
            finding_id,
            Cut(
                add_model().SerializeToString(),
                feeds,
                "numeric",
                "ONNX Runtime against torch",
                1,
                {"y": answer},
                torch_code=("v1 = x + t", "return (v1,)"),
                torch_takes=("x", "t"),
                torch_own={"t": answer},
            ),
        )
    page = Page(html_report(reporting.knowledge(str(path))))
    assert "Cut: 1 node on x float32[2, 3]; shown by ONNX Runtime against torch" in page.text
    assert "In torch: v1 = x + t return (v1,)" in page.text
    with Corpus.open(path) as corpus:
        cut = corpus.finding_payload(finding_id).cut
    assert cut is not None
    assert cut.torch_own["t"].tolist() == answer.tolist()


def test_hostile_names_stay_text(tmp_path, twin):
    known = reporting.knowledge(str(make_corpus(tmp_path / "c.sqlite", twin, EVIL)))
    page = Page(html_report(known))
    for told in (text_of(known), page.text):
        assert "\\x1b[2J" in told
        assert not {"\x1b", "\u202e"} & set(told)
    assert not {"script", "img", "iframe", "object", "link"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.text
    assert "49" not in page.text.partition("{{")[0]
    assert reporting.default_path("../a b/<x>\n").name == "report-___a_b__x__.html"


def test_absurd_figures_of_a_strangers_database_are_an_error_or_left_out(tmp_path, twin):
    path = make_corpus(tmp_path / "c.sqlite", twin)
    with sqlite3.connect(path) as db:
        shapes = json.dumps({"x": [10**400, -5]})
        db.execute("update cases set shapes = ? where rowid = 1", (shapes,))
        db.execute("update findings set verdict = replace(verdict, '[1, 2, 3]', '[-1, -2, 99]')")
        db.execute(
            "insert into probes (campaign_id, build_digest, environment_digest, at, seconds, case_digest, shapes, "
            "torch_p50_seconds, ort_p50_seconds, ratio, details) "
            "values ('c', 'b', 'e', '', 1.0, 'd', ?, -1.0, 1e308, 2.0, '{}')",
            (shapes,),
        )
    Page(html_report(reporting.knowledge(str(path))))
    with sqlite3.connect(path) as db:
        db.execute("update snapshots set corpus_size = 'many', seconds = 'x'")
    db.close()
    with pytest.raises(CorpusError, match="cannot be read"):
        reporting.knowledge(str(path))


def test_the_command_writes_a_page_and_prints_its_path(tmp_path, twin, monkeypatch, capsys):
    path = str(make_corpus(tmp_path / "c.sqlite", twin))
    monkeypatch.chdir(tmp_path)
    cli.main(["report", path, "--html"], standalone_mode=False)
    cli.main(["report", path, "--html", "page.html"], standalone_mode=False)
    assert capsys.readouterr().out.split() == ["report-logits.html", "page.html"]
    assert Page((tmp_path / "report-logits.html").read_text()).tags == Page((tmp_path / "page.html").read_text()).tags
    cli.main(["report", path, "--json", "-"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["answers"][0]["question"].startswith("Which part is guilty")


def test_a_large_corpus_makes_a_bounded_page_that_says_what_is_left_out(tmp_path, twin, monkeypatch):
    monkeypatch.setattr(reporting, "MOST_TOLD", 3)
    monkeypatch.setattr(reporting, "MOST_FINDING_BYTES", 1000)
    monkeypatch.setattr("fuzzparity.report.html.MOST_LISTED", 5)
    known = reporting.knowledge(str(make_corpus(tmp_path / "c.sqlite", twin, findings=8, shape=(2, 300, 400))))
    page = Page(html_report(known))
    assert page.tags.count("section") == 3 + 6 + 1  # blocks, what every page has, what was left out
    assert "5 of 8 open causes: a line in the table, no block" in page.text
    assert "3 of 8 causes are not listed" in page.text
    assert "a report reads at most 1,000" in page.text


def test_large_tensors_are_thinned_and_nonfinite_values_told(tmp_path, twin):
    path = make_corpus(tmp_path / "c.sqlite", twin, shape=(1, 700, 900), planted=(0, 699, 1))
    text = html_report(reporting.knowledge(str(path)))
    assert "stands for several elements" in text
    assert len(text) < 400_000


def test_ignored_lost_and_unconfirmed_findings_are_set_apart(tmp_path, twin):
    path = make_corpus(tmp_path / "c.sqlite", twin, findings=3)
    with Corpus.open(path) as corpus:
        first, second, third = (item.finding_id for item in corpus.findings())
        corpus.set_ignored(first)
        corpus.confirm(third, Confirmation(0, 2))
    text = html_report(reporting.knowledge(str(path)))
    opened, _, apart = text.partition('id="apart"')
    assert f'id="{second}"' in opened
    assert "not confirmed yet" in opened
    assert f'id="{first}"' not in opened
    assert re.search(rf"{first}</code>\s*<span class=\"state\">ignored", apart)
    assert re.search(rf"{third}</code>\s*<span class=\"state\">did not come back", apart)


def test_findings_of_one_part_at_one_place_are_one_cause(tmp_path, twin):
    known = reporting.knowledge(str(make_corpus(tmp_path / "c.sqlite", twin, findings=3, node="/head/Add")))
    page = Page(html_report(known))
    assert "1 open cause (3 findings in all)" in page.text
    assert "The same fault" in page.text
    assert len(report_object(known)["causes"][0]["variants"]) == 2


def test_a_page_is_written_whole_or_not_at_all(tmp_path, twin):
    known = reporting.knowledge(str(make_corpus(tmp_path / "c.sqlite", twin)))
    path = write_html(tmp_path / "page.html", known)
    assert path.read_text().rstrip().endswith("</html>")
    with pytest.raises(InvalidUsage, match="cannot be written"):
        write_html(tmp_path / "nowhere" / "page.html", known)
    assert sorted(item.name for item in tmp_path.glob("*page*")) == ["page.html"]
