"""What an export took for granted: read from its notes, proven by a finding or answered by cases that went there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from campaigns import fuzz, run, write_target

from fuzzparity.campaign.otherarms import OtherArms
from fuzzparity.case import Case
from fuzzparity.contract import Contract
from fuzzparity.decisions import Decision
from fuzzparity.decisions import Path as Decided
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.finding import Bucket, Finding, Stage
from fuzzparity.generate.feedback import features
from fuzzparity.goals import goals_of, standings
from fuzzparity.verdict import Attribution, Grade, Judgement, Kind, Realism, Verdict

NOTES = (
    "the exporter narrowed x[1] to 0..200 (decided at net.py:5)",
    "the exporter narrowed y[0] to 3..inf",
    "the exporter takes x[0] > y[0] for granted (net.py:9); the other arm is not in the ONNX model",
    "TracerWarning: Converting a tensor to a Python boolean might cause the trace to be incorrect. (net.py:12)",
    "TracerWarning: Converting a tensor to a Python boolean might cause the trace to be incorrect. (net.py:12)",
    "the module was in train mode: put in eval mode",
)

# a spike is clipped, which the trace of a sample without one forgets; the second branch comes to the same either way
TRACED = """
    import torch

    from fuzzparity import Export, Target


    class Net(torch.nn.Module):
        def forward(self, x):
            if x.abs().max() > 3.0:
                x = x.clamp(-1.0, 1.0)
            if x.sum() > 0.5:
                x = x + 0.25
            else:
                x = 0.25 + x
            return x


    def target():
        sample = torch.tensor([0.5, -2.0, 1.0])
        return Target(module=Net(), inputs={"x": sample}, export=Export(exporter="torchscript"), outputs=["y"])
"""


def a_bug(source: str) -> Finding:
    verdict = Verdict(Kind.BRANCH_SPLIT, Grade.BUG, "y", site=source, attribution=Attribution("", source=source))
    bucket = Bucket("b" * 64, "branch_split", "", "", source, "bug", True)
    return Finding("branch-split-0a1b2c3d", bucket, Stage.MINIMIZED, verdict, Realism.NEAR, "c", "c")


def test_notes_of_a_build_become_goals_with_their_lines() -> None:
    goals = goals_of(NOTES)
    assert [goal.source for goal in goals] == ["net.py:5", "", "net.py:9", "net.py:12"]
    assert goals[0].text == "ORT takes x[1] outside of 0..200 as well, on the arm that the export kept at net.py:5"
    assert goals[1].text == "ORT takes y[0] outside of 3..inf as well"
    assert "x[0] > y[0] does not hold" in goals[2].text
    assert goals[3].text == "a Python boolean read from a tensor is burnt in at net.py:12"


def test_a_goal_is_proven_harmless_or_open() -> None:
    bug = a_bug("model/net.py:5")
    counts = {"model/net.py:5": (0, 7), "model/net.py:12": (9, 0)}
    proven, still_open, harmless = standings(goals_of(NOTES), [bug], counts, 1000)
    assert proven.startswith("guard gap proven by branch-split-0a1b2c3d: ORT takes x[1]")
    assert still_open.startswith("guard gap open, none of 1000 executions went there")
    assert harmless.startswith("guard gap harmless so far, 9 cases went there and agree: a Python boolean")
    tie = replace(bug, verdict=replace(bug.verdict, grade=Grade.TIE))
    assert len(standings(goals_of(NOTES), [tie], counts, 1000)) == 2  # what differs there is neither


def execution(side: str, *path: tuple[str, int, float | None]) -> Execution:
    decisions = tuple(Decision(key, outcome, key.partition(":")[2], margin=margin) for key, outcome, margin in path)
    return Execution(side, Status.OK, (np.ones(2, np.float32),), decisions=decisions)


def test_cases_that_decide_otherwise_than_the_sample_are_counted_by_line() -> None:
    class Sampled:
        def sample(self) -> Decided:
            return execution(TORCH, ("torch:net.py:5", 0, None), ("torch:net.py:9", 1, None)).decisions

    counting = OtherArms(Sampled())  # type: ignore[arg-type]
    answer = execution(ORT)
    for outcome, is_suspicious in ((0, False), (1, False), (1, True), (1, False)):
        torch = execution(TORCH, ("torch:net.py:5", outcome, None), ("torch:net.py:9", 1, None))
        counting.add(torch, answer, is_suspicious=is_suspicious)
    assert counting.taken() == {"net.py:5": (2, 1)}
    assert counting.taken() == {}


def test_paths_and_distances_are_features_of_bounded_number() -> None:
    def told(*path: tuple[str, int, float | None]) -> set[str]:
        case = Case({"x": np.ones(2, np.float32)})
        found = features(case, Contract(()), execution(TORCH, *path), execution(ORT), Judgement(Kind.AGREE))
        return {one for one in found if one.startswith(("path:", "margin:"))}

    one = told(("torch:net.py:5", 1, 3.0))
    assert len(one) == 2
    assert one == told(("torch:net.py:5", 1, 2.5))  # the same power of two
    assert one != told(("torch:net.py:5", 0, -3.0))
    both = told(("torch:net.py:5", 1, 3.0), ("torch:net.py:9", 0, None))
    assert len([f for f in both if f.startswith("path:all:")]) == 1
    many = told(*((f"torch:net.py:{line}", 1, 2.0**line) for line in range(900)))
    assert len(many) <= 129


@pytest.mark.slow
def test_a_campaign_proves_one_goal_and_answers_another(tmp_path: Path) -> None:
    write_target(tmp_path, TRACED)
    checked = run(tmp_path, "check", "subject.py", "--json", "-")
    lines = (tmp_path / "subject.py").read_text().splitlines()
    spike, sum_ = (next(n for n, line in enumerate(lines, 1) if text in line) for text in ("if x.abs", "if x.sum"))
    gaps = [note for note in checked.answer["notes"] if note.startswith("guard gap")]
    assert [note.rpartition(":")[2] for note in gaps] == [str(spike), str(sum_)]
    ended = fuzz(tmp_path, "--cases", "90", "--workers", "1")
    (split,) = ended.of("branch_split")
    assert (split["grade"], split["blame"], split["where"]["source"]) == ("bug", "capture", f"subject.py:{spike}")
    assert "true here, and burnt in as false" in split["headline"]
    notes = [note for note in ended.answer["notes"] if note.startswith("guard gap")]
    assert notes[0].startswith(f"guard gap proven by {split['finding_id']}")
    assert len(notes) == 2
    assert "harmless" in notes[1]
    assert notes[1].endswith(f"subject.py:{sum_}")
    repro = tmp_path / "crashes" / split["finding_id"]
    assert run(tmp_path, "replay", str(repro)).code == 1
