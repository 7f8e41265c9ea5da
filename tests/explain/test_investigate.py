"""Investigations by real processes: what comes back is confirmed and minimized, what does not is told as lost."""

import os
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fuzzparity.campaign.docket import Docket
from fuzzparity.campaign.options import TargetOptions
from fuzzparity.campaign.setup import Prepared, close_pool, prepare
from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.execution import TORCH, Execution, Status
from fuzzparity.explain.arbiters import Bench
from fuzzparity.explain.investigate import _shown as shown_last
from fuzzparity.explain.investigate import confirm
from fuzzparity.explain.pairing import asked_of
from fuzzparity.explain.records import (
    Better,
    Examined,
    ExamineSpec,
    InvestigateSpec,
    Investigation,
    Pairing,
    Reexport,
    Slipped,
)
from fuzzparity.explain.twin import Twin
from fuzzparity.finding import Confirmation, Stage, Suspect, bucket_of
from fuzzparity.sides.load import load_target
from fuzzparity.target import Export
from fuzzparity.verdict import Grade, Judgement, Kind, Realism, Verdict
from fuzzparity.work.announce import Announcer
from fuzzparity.work.limits import Limits
from fuzzparity.work.loader import Context
from fuzzparity.work.pool import Child, LoaderLost

pytestmark = pytest.mark.slow

TARGET = """
    import ctypes

    import torch
    from onnx import TensorProto, helper

    from fuzzparity import Target


    class Net(torch.nn.Module):
        def forward(self, x):
            if bool((x < -5).any()):
                ctypes.string_at(0)
            y = torch.where(x > 3, x * 3, x * 2)
            return torch.cat([y, y[:, :1]], 1) if x.shape[1] == 7 else y


    def target():
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "w"]) for name in "xy")
        two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
        graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["y"])], "doubling", [x], [y], [two])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)}, onnx=model, outputs=["y"])
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    folder = tmp_path_factory.mktemp("investigate")
    (folder / "subject.py").write_text(textwrap.dedent(TARGET))
    before = Path.cwd()
    os.chdir(folder)
    try:
        prepared = prepare(TargetOptions(target="subject.py"), workers=1, say=lambda stage: None)
        yield prepared
        close_pool(prepared.pool)
    finally:
        os.chdir(before)


class Silent:
    """Be told what a docket does."""

    def status(self, status: object) -> None: ...

    def started(self, facts: object, places: object, notes: tuple[str, ...]) -> None: ...

    def finding(self, finding: object, *, is_new: bool) -> None: ...

    def note(self, text: str) -> None: ...


def examine(prepared: Prepared, case: Case) -> Examined:
    """Judge one case in a process of its own."""
    assert prepared.twin is not None
    spec = ExamineSpec(prepared.twin, case)
    job = "fuzzparity.explain.examine:examine"
    answer: Examined = prepared.pool.run(job, spec, limits=prepared.limits, label="examine")
    return answer


def investigate(prepared: Prepared, suspect: Suspect, executions: int = 600) -> tuple[Investigation, list[object]]:
    """Investigate a suspect; return the outcome and what was said on the way."""
    assert prepared.twin is not None
    said: list[object] = []
    spec = InvestigateSpec(prepared.twin, suspect, minimize_executions=executions, minimize_seconds=6.0)
    job = "fuzzparity.explain.investigate:investigate"
    answer = prepared.pool.run(job, spec, limits=prepared.limits, label="investigate", on_message=said.append)
    assert isinstance(answer, Investigation)
    return answer, said


def test_a_difference_is_confirmed_before_it_is_minimized(prepared: Prepared):
    values = np.linspace(-2, 9, 24, dtype=np.float32).reshape(4, 6)
    (suspect,) = examine(prepared, Case({"x": values})).suspects
    assert (suspect.verdict.kind, suspect.verdict.grade) == (Kind.NUMERIC, Grade.BUG)
    outcome, said = investigate(prepared, suspect)
    assert isinstance(said[0], Confirmation)
    assert (said[0].shown, said[0].tries) == (2, 2)
    assert any(isinstance(message, Better) for message in said)
    assert outcome.case.elements == 1
    assert outcome.verdict is not None
    assert bucket_of(suspect.bucket.build, outcome.case, outcome.verdict) == suspect.bucket


def test_a_second_try_that_answers_alike_is_not_weighed_again(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    judged = tmp_path / "judged"
    judge = Twin.judge

    def counted(self: Twin, *arguments: Any, **options: Any) -> Judgement:
        with judged.open("a") as file:
            file.write(".")
        return judge(self, *arguments, **options)

    loaded = load_target("subject.py")
    context = Context(loaded, None, Announcer(tmp_path / "map"), tmp_path / "map", prepared.limits)  # type: ignore
    (suspect,) = examine(prepared, Case({"x": np.full((2, 4), 5, np.float32)})).suspects
    assert prepared.twin is not None
    monkeypatch.setattr(Twin, "judge", counted)
    found = confirm(context, InvestigateSpec(prepared.twin, suspect))
    assert (found.shown, found.tries) == (2, 2)
    assert judged.read_text() == "."


@pytest.mark.parametrize("shows", range(1, 8))
def test_where_a_brief_look_led_too_far_the_last_case_that_a_full_one_confirms_is_kept(
    monkeypatch: pytest.MonkeyPatch, shows: int
):
    trail = tuple(Case({"x": np.ones(size, np.float32)}) for size in range(8, 0, -1))
    verdict = Verdict(Kind.NUMERIC, Grade.BUG, "y")
    suspect = Suspect(bucket_of("b" * 64, trail[0], verdict), trail[0], Lineage(), verdict, Realism.WILD)
    asked: list[Case] = []

    def paired(context: object, twin: object, case: Case, *rest: object) -> Pairing:
        asked.append(case)
        verdicts = (verdict,) if case in trail[:shows] else ()
        nothing = Execution(TORCH, Status.OK)
        return Pairing(nothing, nothing, Judgement(Kind.NUMERIC, verdicts=verdicts))

    monkeypatch.setattr("fuzzparity.explain.investigate.pair_alone", paired)
    context = SimpleNamespace(limits=Limits())
    found = shown_last(context, InvestigateSpec(None, suspect), trail)  # type: ignore[arg-type]
    assert found is not None
    assert found[0] == trail[shows - 1]
    assert asked[0] == trail[-1]
    assert len(asked) <= 4


def test_evidence_is_asked_on_the_output_or_metric_that_a_verdict_is_about():
    metric = Verdict(Kind.DECISION, Grade.BUG, "y", site="metric:top1")
    case = Case({"x": np.ones(1, np.float32)})
    for what in (metric, bucket_of("b" * 64, case, metric)):
        assert asked_of(what) == {"metric:top1"}
    for what in (
        Verdict(Kind.NUMERIC, Grade.BUG, "y"),
        bucket_of("b" * 64, case, Verdict(Kind.NUMERIC, Grade.BUG, "y")),
    ):
        assert asked_of(what) == {"y"}
    assert asked_of(Verdict(Kind.CRASH, Grade.BUG)) is None


def test_a_fresh_export_is_made_once_and_told(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told: list[Reexport] = []
    connection = SimpleNamespace(send=told.append)
    context = Context(load_target("subject.py"), connection, Announcer(tmp_path / "map"), tmp_path / "map", Limits())  # type: ignore
    assert prepared.twin is not None
    case = Case({"x": np.full((2, 4), 5, np.float32)})
    traced, refused = Export(exporter="torchscript"), Export(exporter="torchscript", options={"no_such_option": 1})
    first = Bench(context, prepared.twin, case).exported_again(traced)
    np.testing.assert_array_equal(first.outputs[0], np.full((2, 4), 15, np.float32))
    assert Bench(context, prepared.twin, case).exported_again(refused).status is Status.REFUSED
    assert [one.export for one in told] == [traced, refused]

    monkeypatch.setattr("fuzzparity.explain.arbiters._made_here", [])  # as in the next investigation

    def forbidden(*arguments: Any, **options: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("fuzzparity.sides.export.make_build", forbidden)
    twin = replace(prepared.twin, reexports=tuple(told))
    other = Bench(context, twin, Case({"x": np.full((3, 4), 1, np.float32)})).exported_again(traced)
    np.testing.assert_array_equal(other.outputs[0], np.full((3, 4), 2, np.float32))
    assert Bench(context, twin, case).exported_again(refused).status is Status.REFUSED
    assert len(told) == 2


def test_of_many_rows_the_one_that_differs_is_tried_first(prepared: Prepared):
    values = np.ones((400, 4), np.float32)
    values[300, 1] = 5.0
    (suspect,) = examine(prepared, Case({"x": values})).suspects
    outcome, _ = investigate(prepared, suspect, executions=1)
    assert outcome.case.inputs["x"].tolist() == [[1.0, 5.0, 1.0, 1.0]]


def test_small_cases_do_not_wait_for_huge_ones(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    huge = np.ones((400, 4), np.float32)
    huge[300, 1] = 5.0
    cases = [Case({"x": huge}), Case({"x": np.ones((1, 7), np.float32)})]
    suspects = [suspect for case in cases for suspect in examine(prepared, case).suspects]
    started: list[Suspect] = []
    launch = prepared.pool.launch

    def noted(job: str, arguments: tuple[InvestigateSpec], **rest: object) -> Child:
        started.append(arguments[0].suspect)
        return launch(job, arguments, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(prepared.pool, "launch", noted)
    with Corpus.open(tmp_path / "corpus.sqlite", create=True) as corpus:
        assert prepared.twin is not None
        docket = Docket(prepared, corpus, corpus.begin_campaign(prepared.facts, "test", 0), Silent(), lambda: 0.0)
        for suspect in suspects:
            docket.take(suspect)
        docket.start(prepared.twin, most=2)
        assert [one.case for one in started] == [cases[1], cases[0]]
        while docket.running:
            for event in prepared.pool.wait(0.1):
                assert not isinstance(event, LoaderLost)
                docket.handle(event)
        assert {finding.stage for finding in docket.findings.values()} == {Stage.MINIMIZED}


def test_a_death_is_minimized_to_what_still_kills(prepared: Prepared):
    values = np.ones((5, 6), np.float32)
    values[3, 2] = -7.5
    examined = examine(prepared, Case({"x": values}))
    assert (examined.expected.status, examined.actual.status) == (Status.CRASHED, Status.OK)
    (suspect,) = examined.suspects
    outcome, _ = investigate(prepared, suspect)
    assert outcome.confirmation.reproduced
    assert outcome.case.elements == 1
    assert outcome.expected is not None
    assert (outcome.expected.status, outcome.expected.signal) == (Status.CRASHED, 11)


def test_a_suspect_that_does_not_come_back_is_lost_and_not_minimized(prepared: Prepared):
    case = Case({"x": np.ones((2, 4), np.float32)})
    verdict = Verdict(Kind.CRASH, Grade.BUG, side=TORCH, site="SIGKILL run", headline="torch dies with SIGKILL")
    build = prepared.facts.build.digest
    dead = Execution(TORCH, Status.CRASHED, signal=9)
    suspect = Suspect(bucket_of(build, case, verdict), case, Lineage(), verdict, Realism.UNKNOWN, dead)
    outcome, said = investigate(prepared, suspect)
    assert not outcome.confirmation.reproduced
    assert outcome.case == case
    assert [type(message) for message in said] == [Confirmation]


def test_a_hang_that_does_not_come_back_was_a_busy_machine(prepared: Prepared):
    case = Case({"x": np.ones((2, 4), np.float32)})
    verdict = Verdict(Kind.HANG, Grade.BUG, side=TORCH, site="run", headline="torch does not answer after 2 s")
    build = prepared.facts.build.digest
    suspect = Suspect(bucket_of(build, case, verdict), case, Lineage(), verdict, Realism.UNKNOWN)
    outcome, _ = investigate(prepared, suspect)
    assert not outcome.confirmation.reproduced
    assert outcome.confirmation.verdict is not None
    assert outcome.confirmation.verdict.grade is Grade.NOTE
    assert "the machine was busy" in outcome.confirmation.verdict.headline


def test_another_fault_met_while_minimizing_is_told_as_its_own(prepared: Prepared):
    values = np.linspace(4, 9, 21, dtype=np.float32).reshape(3, 7)  # a column too many hides wrong values
    (suspect,) = examine(prepared, Case({"x": values})).suspects
    assert suspect.verdict.kind is Kind.SHAPE
    outcome, said = investigate(prepared, suspect)
    slipped = [message.suspect.verdict.kind for message in said if isinstance(message, Slipped)]
    assert slipped == [Kind.NUMERIC]
    assert outcome.verdict is not None
    assert outcome.verdict.kind is Kind.SHAPE
    assert outcome.case.shapes["x"][1] == 7


def test_agreement_is_no_suspect(prepared: Prepared):
    examined = examine(prepared, Case({"x": np.zeros((3, 5), np.float32)}))
    assert examined.judgement.kind is Kind.AGREE
    assert examined.suspects == ()
