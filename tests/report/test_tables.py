import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.records import (
    CampaignRow,
    CaseRow,
    CaseView,
    CorpusView,
    Merged,
    Payload,
    ProbeEntry,
    Snapshot,
    Statistics,
    StatusView,
)
from fuzzparity.execution import ORT, Execution, Refusal, Status
from fuzzparity.finding import Finding, Stage, bucket_of
from fuzzparity.report import tables
from fuzzparity.verdict import Comparison, Evidence, Grade, Kind, Realism, Verdict

EVIL = "[red]x[/red] \x1b[2J\x07\u202e]"


def finding(text="logits"):
    case = Case({text: np.ones((1, 2), np.float32)})
    comparison = Comparison(Kind.NUMERIC, float("inf"), 2.5, 0.5, 9.0, (0, 1), 1.0, float("nan"), 1, 2, text)
    evidence = Evidence(text, 1e-4, 2.5, {text: 1e-3}, 16, (text,), text)
    verdict = Verdict(Kind.NUMERIC, Grade.BUG, text, "ort", text, comparison, evidence, headline=f"{text} differs")
    bucket = bucket_of("b" * 64, case, verdict)
    return Finding(
        *(bucket.finding_id, bucket, Stage.MINIMIZED, verdict, Realism.NEAR, case.digest, case.digest),
        minimized_shapes={text: (1, 2)},
        path=text,
        note=text,
    ), case


def everything(text):
    found, case = finding(text)
    row = CaseRow(
        *("d" * 64, text, text, Lineage(text, (text,), (text,)), 2, 8, {text: (1, 2)}, {text: text}),
        *(text, 1.0, text, False, True, 3, text, text),
    )
    campaign = CampaignRow("c", text, "b", "e", text, 0, text, findings=1)
    statistics = Statistics(text, 10, (text,), 1, 1, 1, 1, 1, 1, 1, {text: 1}, {text: 1}, 9, 9, 1.5, 4096, 4096)
    refused = Execution(ORT, Status.REFUSED, refusal=Refusal(text, text))
    probe = ProbeEntry("c", "b", "e", text, 1.0, text, {text: (1,)}, 1e-3, 2e-3, 3e-3, 1e-3, None, None, 1.0, None)
    snapshots = (Snapshot(1.0, 10, 10, 1, 0, 1000), Snapshot(2.0, 30, 30, 2, 1, 2000))
    payload = Payload(found, case, Lineage(text, (text,), (text,)), None, refused)
    return [
        (tables.findings_table, [(Path(text), found)]),
        (tables.payload_view, payload),
        (tables.corpora_table, [statistics]),
        (tables.corpus_view, CorpusView(statistics, (), (campaign,), (row,), (found,))),
        (tables.case_view, CaseView(row, (text,), case)),
        (tables.status_view, [StatusView(text, None, campaign, snapshots, ((found, True),))]),
        (tables.probes_table, [probe]),
        (tables.merged_text, Merged(1, 2, (text,))),
    ]


def shown(renderable):
    console = Console(width=300, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.mark.parametrize("place", range(8))
def test_texts_of_a_stranger_are_shown_and_do_nothing(place):
    make, record = everything(EVIL)[place]
    text = shown(make(record))
    assert "[red]x[/red]" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_a_finding_is_told_with_its_figures():
    found, case = finding()
    text = shown(tables.payload_view(Payload(found, case, Lineage("mutation", (), ("special_values",)))))
    for part in (
        "logits differs",
        "output logits",
        "index [0, 1]",
        "torch 1.0, ORT nan",
        "inf times",
        "special_values",
    ):
        assert part in text
    assert "float32[1, 2]" in text


def test_a_campaign_is_told_as_running_ended_or_dead():
    campaign = CampaignRow("c", "t", "b", "e", "fuzz", 0, "2026")
    for changed, writer, said in (
        ({}, 77, "running (process 77)"),
        ({"exit_code": 1, "ended_at": "2026-01-01"}, None, "ended 2026-01-01, exit 1"),
        ({}, None, "died before its end"),
    ):
        view = StatusView("p", writer, dataclasses.replace(campaign, **changed), (), ())
        assert said in shown(tables.status_view([view]))


def test_a_case_is_json_with_dtype_shape_and_values():
    case = Case({"x": np.array([1.0, np.nan], np.float32), "n": np.array(3), "c": np.array([1j])})
    found, _ = finding()
    plain = tables.payload_object(Payload(found, case, Lineage()))
    assert plain["case"]["x"] == {"dtype": "float32", "shape": [2], "values": [1.0, "nan"]}
    assert plain["case"]["n"]["values"] == 3
    assert json.loads(json.dumps(plain))["finding"]["verdict"]["headline"] == "logits differs"
    listed = tables.findings_object([(Path("a"), found)])
    assert (listed[0]["corpus"], listed[0]["note"], listed[0]["kind"]) == ("a", "logits", "numeric")
    json.dumps(listed)


def test_every_figure_stands_under_its_column():
    statistics = Statistics("p", 2048, ("t",), 1, 2, 33, 30, 4, 5, 6, {"numeric": 6}, {"bug": 3}, 900, 950, 1.5, 0, 0)
    header, row = (line.split() for line in shown(tables.corpora_table([statistics])).splitlines())
    told = dict(zip(header, row, strict=False))
    assert told == {
        **{"target": "t", "cases": "30", "seeds": "4", "findings": "6", "bugs": "3", "executions": "900"},
        **{"fuzzed": "1.5", "corpus": "s"},  # "1.5 s" are two words
    }
