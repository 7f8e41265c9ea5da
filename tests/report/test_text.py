import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import twins
from rich.console import Console

from fuzzparity.case import Case
from fuzzparity.execution import ORT, TORCH
from fuzzparity.probe.latency import ProbeRow
from fuzzparity.report.advice import advice, passing_tolerance, round_up
from fuzzparity.report.explanation import explanation
from fuzzparity.report.layout import duration
from fuzzparity.report.live import Live
from fuzzparity.report.plain import finding_object, result_object
from fuzzparity.report.records import CampaignResult, CampaignStatus
from fuzzparity.report.text import start_block, status_line, status_panel, summary
from fuzzparity.verdict import Comparison, Evidence, Grade, Judgement, Kind, Realism, Verdict

STATUS = CampaignStatus(
    "fuzzing",
    seconds=65.0,
    limit_seconds=600.0,
    executions=12_345,
    inputs=54_321,
    executions_per_second=190.2,
    inputs_per_second=835.0,
    corpus_size=77,
    workers=2,
    deaths=3,
    pending=1,
    findings={("numeric", "tie"): 1, ("crash", "bug"): 2, ("numeric", "bug"): 1},
    since_new_seconds=12.0,
)


def shown(renderable, width=160, **more):
    out = io.StringIO()
    Console(file=out, width=width, **more).print(renderable)
    return out.getvalue()


def result(*findings, **more):
    facts = twins.numeric().facts
    given = {
        "campaign_id": "c1",
        "facts": facts,
        "corpus_path": Path("corpora/twin/corpus.sqlite"),
        "crashes_path": Path("crashes"),
        "seconds": 61.0,
        "setup_seconds": 2.0,
        "executions": 1000,
        "inputs": 2000,
        "rejected": 3,
        "corpus_size": 9,
        "findings": tuple(findings),
        "new_ids": frozenset(item.finding_id for item in findings),
        "exit_code": 1,
    }
    return CampaignResult(**{**given, **more})


def stored(**more):
    finding = twins.numeric().finding
    return replace(
        finding, path=f"crashes/{finding.finding_id}", minimized_elements=3, minimized_shapes={"x": (1, 3)}, **more
    )


def test_a_status_line_says_speed_corpus_findings_and_processes():
    line = status_line(STATUS)
    for part in ("1 m 05 s of 10 m 00 s", "12,345 executions (190/s)", "54,321 inputs (835/s)", "corpus 77"):
        assert part in line
    assert "2 crash (bug), 1 numeric (bug), 1 numeric (tie)" in line
    assert "last new one 12 s ago" in line
    assert "\n" not in line
    assert "2 crash (bug)" in shown(status_panel(STATUS))
    assert status_line(CampaignStatus("exporting")) == "exporting (0 s)"


def test_a_log_gets_a_line_at_each_stage_and_every_few_seconds():
    out, now = io.StringIO(), [0.0]
    with Live(on=Console(file=out, width=40), clock=lambda: now[0]) as live:
        for second in range(11):
            now[0] = float(second)
            live.status(STATUS)
        live.status(replace(STATUS, stage="finishing"))
        live.note("a note with [bold]markup[/bold]\x1b[2J")
    lines = out.getvalue().splitlines()
    assert len(lines) == 5
    assert "[bold]markup[/bold]\\x1b[2J" in lines[-1]


def test_a_terminal_is_redrawn_in_place():
    out = io.StringIO()
    with Live(on=Console(file=out, force_terminal=True, width=120)) as live:
        live.status(STATUS)
        live.finding(stored(), is_new=True)
        live.status(STATUS)
    assert "12,345 executions" in out.getvalue()
    assert "new bug" in out.getvalue()


def test_the_start_says_target_build_place_dims_and_notes_once():
    facts = replace(twins.numeric().facts, notes=("was in train mode: put in eval mode",))
    text = shown(
        start_block(
            facts, corpus=Path("a.sqlite"), crashes=Path("crashes"), notes=("was in train mode: put in eval mode",)
        )
    )
    for part in ("twin", "bbbbbbbbbbbb", "ORT: CPUExecutionProvider", "x float32[1, 3]", "a.sqlite", "crashes"):
        assert part in text
    assert text.count("train mode") == 1


def test_a_summary_answers_the_four_questions_first_and_says_how_to_replay():
    row = ProbeRow("d", {"x": (1, 3)}, 10, 0.001, 0.002, 0.003, 0.002, 0.003, 0.004, 2.0, 10 << 20, 0)
    finding = stored()
    text = shown(summary(result(finding, probe=(row,))))
    order = [
        text.index(part) for part in ("which part is guilty", "where did it run", "what is slow", "bug or floating")
    ]
    assert order == sorted(order)
    assert order[-1] < text.index("y: ORT is 0.25 off at [0, 1]")

    assert f"python crashes/{finding.finding_id}/repro.py" in text
    assert f"fuzzparity replay {finding.finding_id}" in text
    assert "passes from" not in text, "a bug is nothing to loosen a tolerance for"
    assert "2 ms against 1 ms" in text


def test_a_summary_without_findings_says_so():
    text = shown(summary(result()))
    assert "0 finding(s)" in text
    assert "every judged input agreed" in text
    assert "not measured" in text


def test_names_of_strangers_control_nothing():
    verdict = replace(stored().verdict, headline="[red]x[/red] \x1b]0;title\x07 [/nothing]")
    text = shown(summary(result(replace(stored(), verdict=verdict))))
    assert "[red]x[/red]" in text
    assert "\x1b" not in text


CAMPAIGN = """schema campaign_id target build seconds setup_seconds executions inputs corpus_size rejected
    environment findings"""
FINDING = """finding_id new kind grade realism blame where headline error_ratio first_seen_seconds hits reproduced
    standalone minimized path"""


def test_the_json_objects_have_the_fields_of_the_contract():
    given = result_object(result(stored(), hits={stored().finding_id: 7}))
    assert list(given)[:12] == CAMPAIGN.split()
    found = json.loads(json.dumps(given, allow_nan=False))["findings"][0]
    assert list(found) == [*FINDING.split(), "attribution", "looks_like", "known", "duplicate_of"]
    assert found["hits"] == 7
    assert found["where"] == {"output": "y", "index": [0, 1]}
    assert found["minimized"] == {"elements": 3, "shapes": {"x": [1, 3]}, "nodes": None, "bytes": None}
    infinite = Comparison(Kind.SHAPE, float("inf"))
    finding = replace(stored(), verdict=replace(stored().verdict, comparison=infinite))
    json.dumps(finding_object(finding, is_new=False), allow_nan=False)


def test_an_explanation_tells_every_output_its_evidence_and_advice():
    agree = Comparison(Kind.AGREE, 0.1, compared=4)
    numeric = Comparison(
        Kind.NUMERIC, 1e4, 0.25, 0.08, index=(0, 1), expected_at=2.5, actual_at=2.75, differing=1, compared=3
    )
    evidence = Evidence("torch float64", 0.0, 0.25, {"one ulp": 1e-7}, 16, ("ort",))
    verdict = Verdict(
        Kind.NUMERIC, Grade.BUG, "y", comparison=numeric, evidence=evidence, blame="kernel:Add", headline="y is off"
    )
    text = shown(
        explanation(
            "image.npz",
            Case({"x": np.ones(3, np.float32)}),
            Judgement(Kind.NUMERIC, Realism.NEAR, (verdict,), (agree, numeric)),
            ["z", "y"],
            expected=twins.ok(TORCH, np.ones(3)),
            actual=twins.refused(ORT, "no"),
        )
    )
    for part in ("image.npz: numeric", "agree", "2.75", "kernel:Add", "one ulp", "beyond every move: ort"):
        assert part in text
    assert "report it to ONNX Runtime" in text


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.AGREE, Kind.REJECTED)])
def test_every_kind_has_advice(kind):
    assert advice(Verdict(kind, Grade.BUG))
    assert advice(Verdict(kind, Grade.TIE)).startswith("A decision flipped")


def test_a_tolerance_that_passes_is_never_below_the_error():
    for value in (1e-30, 0.1, 0.25, 0.251, 99.9, 5e-324):
        assert round_up(value) >= value
    assert passing_tolerance(Comparison(Kind.NUMERIC, 2.0, max_abs=float("inf"))) == ""
    assert passing_tolerance(Comparison(Kind.SHAPE, float("inf"))) == ""


def test_durations_read_as_people_say_them():
    assert [duration(value) for value in (0.4, 59.4, 185, 7620, 90_000)] == [
        "0 s",
        "59 s",
        "3 m 05 s",
        "2 h 07 m",
        "1 d 01 h",
    ]
