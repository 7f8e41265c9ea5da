"""Stacks of rows in the inner loop: where they are proven, what they find, and what they never do."""

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fuzzparity.campaign.gate import gate
from fuzzparity.campaign.records import GateSpec, Kept, Lease, LeaseDone, WorkerSpec
from fuzzparity.campaign.stacking import Counters
from fuzzparity.campaign.worker import FEW_ROWS, Worker
from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import KeptCase
from fuzzparity.explain.records import TwinSpec
from fuzzparity.finding import IN_BATCH, Suspect
from fuzzparity.generate.generator import Proposal
from fuzzparity.generate.rows import Stack
from fuzzparity.sides.export import make_build
from fuzzparity.sides.load import load_target
from fuzzparity.verdict import Grade
from fuzzparity.work.announce import Announcer
from fuzzparity.work.limits import Limits
from fuzzparity.work.loader import Context

TARGET = """
    import torch
    from onnx import TensorProto, helper
    from torch import nn

    from fuzzparity import Target, Tolerance

    MUL = [helper.make_node("Mul", ["x", "two"], ["y"])]


    def model(nodes, dtype, width):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", width])
        y = helper.make_tensor_value_info("y", dtype, None)
        two = [helper.make_tensor("two", TensorProto.FLOAT, [], [2.0]), helper.make_tensor("zero", 7, [], [0])]
        two.append(helper.make_tensor("axes", 7, [1], [0]))
        graph = helper.make_graph(nodes, "graph", [x], [y], two)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


    def made(forward, nodes=MUL, dtype=TensorProto.FLOAT, width=6, **rest):
        class Net(nn.Module):
            def forward(self, x):
                return forward(x)

        inputs = {"x": torch.linspace(-1, 1, 18).reshape(3, 6)}
        return Target(module=Net(), inputs=inputs, onnx=model(nodes, dtype, width), outputs=["y"], **rest)
"""


@dataclass
class Sent:
    """Keep the messages of a worker."""

    messages: list[Any] = field(default_factory=list)

    def send(self, message: Any) -> None:
        self.messages.append(message)


@dataclass
class Ran:
    """Hold a worker and what it has sent."""

    worker: Worker
    sent: Sent
    done: list[LeaseDone] = field(default_factory=list)

    def run(self, executions: int, *, number: int = 0, sweep: bool = True) -> "Ran":
        lease = Lease(number, executions, 0, 1e9, sweep_from=0 if sweep else None)
        self.done.append(self.worker.work(lease))
        return self

    @property
    def inputs(self) -> int:
        return sum(done.inputs for done in self.done)

    @property
    def bugs(self) -> list[Suspect]:
        return [m for m in self.sent.messages if isinstance(m, Suspect) and m.verdict.grade is Grade.BUG]


def opened(folder: Path, made: str, *, may_stack: bool = True) -> Ran:
    """Open a worker of this process on a target."""
    torch.set_num_threads(1)
    path = folder / "subject.py"
    path.write_text(f"{textwrap.dedent(TARGET)}\n\ndef target():\n    return made({made})\n")
    loaded, sent = load_target(str(path)), Sent()
    facts = make_build(loaded, folder / "builds").facts
    assert facts is not None
    context = Context(loaded, sent, Announcer(folder / "map"), folder / "map", Limits())  # type: ignore[arg-type]
    report = gate(context, GateSpec(facts))
    with Corpus.open(folder / "corpus.sqlite", create=True) as corpus:
        seeds = [KeptCase(case, Lineage(origin="seed")) for case in report.agreed]
        corpus.keep_cases(corpus.begin_campaign(facts, "test", 0), seeds)
    spec = WorkerSpec(
        TwinSpec(facts, report.policy, report.statistics),
        str(folder / "corpus.sqlite"),
        tuple(case.digest for case in report.agreed),
        0,
        is_deterministic=True,
        may_stack=may_stack,
    )
    return Ran(Worker(context, spec), sent)


def test_independent_rows_run_stacked_and_count_as_inputs(tmp_path: Path):
    ran = opened(tmp_path, "lambda x: x * 2").run(256)
    assert ran.worker.note == ""
    assert ran.done[0].executions == 256
    assert ran.inputs > 256 * 10
    assert ran.bugs == []
    kept = [m.row.case for m in ran.sent.messages if isinstance(m, Kept) and m.row.lineage.mutators[0][:4] == "row "]
    assert {case.inputs["x"].shape[0] for case in kept} == {1}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ('lambda x: x.softmax(0), [helper.make_node("Softmax", ["x"], ["y"], axis=0)]', "depends on"),
        ('lambda x: x.cumsum(0), [helper.make_node("CumSum", ["x", "zero"], ["y"])]', "depends on other rows"),
        (
            'lambda x: x - x.mean(), [helper.make_node("ReduceMean", ["x"], ["m"], keepdims=0), '
            'helper.make_node("Sub", ["x", "m"], ["y"])]',
            "depends on",
        ),
        ("lambda x: x * 2 if x.shape[0] != 7 else x * 3", "depends on how many rows"),
        ('lambda x: x.sum(0), [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]', "no axis"),
        ("lambda x: x * 2 + (x.isnan().any() * 1.0)", "depends on other rows"),
        ("lambda x: x * 2, compare_where=lambda inputs: {}", "case by case"),
    ],
    ids=["softmax", "cumsum", "mean", "seven rows", "no rows out", "a row of nan", "compare_where"],
)
def test_rows_that_are_not_proven_independent_are_not_stacked(tmp_path: Path, made: str, said: str):
    ran = opened(tmp_path, made).run(64)
    assert ran.worker.note.startswith("rows are not stacked along n: ")
    assert said in ran.worker.note
    assert ran.inputs <= 64


@pytest.mark.parametrize(
    ("made", "most"),
    [
        ("lambda x: torch.where(((x[:, 3] > 7.5) & (x[:, 1] < -2))[:, None], x * 2 + 1, x * 2)", 512),
        ("lambda x: torch.where((x == x[:, :1]).all(1)[:, None], x * 2 + 0.1, x * 2)", 256),
        ("lambda x: torch.nan_to_num(x) * 2", 256),
        ("lambda x: torch.where(((x[:, :3] > 1).all(1) & (x[:, 3:] < -1).all(1))[:, None], x * 2 + 1, x * 2)", 512),
        (
            'lambda x: x.argmax(1), [helper.make_node("ArgMax", ["x"], ["y"], axis=1, keepdims=0, '
            "select_last_index=1)], TensorProto.INT64",
            256,
        ),
    ],
    ids=["corner", "ties", "nan", "six conditions", "argmax"],
)
def test_a_planted_fault_of_single_rows_is_found_on_a_small_case(tmp_path: Path, made: str, most: int):
    ran = opened(tmp_path, made).run(most)
    told = [m for m in ran.sent.messages if isinstance(m, Suspect) and m.verdict.grade in (Grade.BUG, Grade.TIE)]
    assert told
    from_stacks = [suspect for suspect in told if suspect.lineage.mutators[0].startswith("row ")]
    assert all(suspect.case.inputs["x"].shape[0] == 1 for suspect in from_stacks)


def test_a_fault_that_only_a_batch_shows_is_told_as_the_batch(tmp_path: Path):
    ran = opened(tmp_path, "lambda x: x * 2 if x.shape[0] < 100 else x * 2.5")
    ran.run(200, number=1, sweep=False)
    assert ran.worker.note == ""
    batches = [suspect for suspect in ran.bugs if IN_BATCH in suspect.lineage.mutators]
    assert batches
    assert batches[0].case.inputs["x"].shape[0] >= 100


@pytest.mark.parametrize(
    ("when", "least"),
    [("x.shape[1] % 2", 1), ("x.shape[0] >= 100", 100)],
    ids=["on any rows", "on many"],
)
def test_a_form_that_differs_is_looked_at_on_the_fewest_rows_that_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, least: int
):
    ran = opened(tmp_path, f'lambda x: torch.cat([x * 2, x[:, :1]], 1) if {when} else x * 2, width="w"')
    alone, again = ran.worker.generator.alone, []

    def noted(case: Case, stack: Stack, names: tuple[str, ...]) -> Proposal:
        rows = case.inputs["x"]
        if names == ("stack",) and (len(rows) == 1 or len({row.tobytes() for row in rows}) > 1):  # no copies of one
            again.append((stack.rows, len(rows)))
        return alone(case, stack, names)

    monkeypatch.setattr(ran.worker.generator, "alone", noted)
    ran.run(200, number=1, sweep=False)
    assert {suspect.verdict.kind.value for suspect in ran.bugs} == {"shape"}
    assert again[0][1] == 1, "one row first"
    assert all(rows in (1, stacked) for stacked, rows in again)
    assert (max(rows for _, rows in again) >= 100) == (least == 100), "all of them where one shows nothing"


def test_stacks_that_torch_refuses_get_smaller_and_are_told_as_what_they_are(tmp_path: Path):
    text = "lambda x: x * 2 if x.shape[0] < 50 else torch.zeros(2) @ torch.zeros(3)"
    ran = opened(tmp_path, text).run(128, number=1, sweep=False)
    split = [m for m in ran.sent.messages if isinstance(m, Suspect)]
    assert {suspect.verdict.kind.value for suspect in split} == {"error_split"}
    assert ran.inputs > 128 * 2


def test_a_worker_told_not_to_stack_does_not(tmp_path: Path):
    ran = opened(tmp_path, "lambda x: x * 2", may_stack=False).run(64)
    assert ran.worker.note == ""
    assert ran.inputs <= 64


@pytest.mark.parametrize(
    ("forward", "rows"),
    [
        ("lambda x: torch.where(x > 1.5, x * 3, x * 2)", 1),
        ("lambda x: x * 2 if x.shape[0] < 32 else x * 3", 64),  # no few rows show it
    ],
)
def test_a_large_case_is_judged_on_the_few_rows_that_show_all_of_it(tmp_path: Path, forward: str, rows: int):
    ran = opened(tmp_path, forward)
    x = np.full((64, 6), 0.5, np.float32)
    x[7] = 2.0
    ran.worker.generator.begin(1)
    ran.worker._step(Proposal(Case({"x": x}), Lineage(sequence=5), "recipe"), Counters(), relative=False)
    (suspect,) = ran.bugs
    assert suspect.case.inputs["x"].shape[0] == rows
    assert (FEW_ROWS in suspect.lineage.mutators) == (rows == 1)
    assert suspect.lineage.sequence == 5
