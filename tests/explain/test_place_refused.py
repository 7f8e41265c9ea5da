"""Places without two answers to compare: a side refuses, a model does not end, a type that overflows on one side."""

from __future__ import annotations

from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import parser

from fuzzparity import Ort, Target
from fuzzparity.case import Array, Case
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.explain.locating import located
from fuzzparity.explain.records import TwinSpec
from fuzzparity.generate.contract import SeedStatistics
from fuzzparity.oracle.policy import Policy
from fuzzparity.sides.export import make_build
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.parts import run_part
from fuzzparity.sides.tensors import to_array
from fuzzparity.sides.torch_side import TorchSide
from fuzzparity.verdict import Attribution, Grade, Kind, Verdict
from fuzzparity.work.announce import Announcer
from fuzzparity.work.limits import Limits
from fuzzparity.work.loader import Context

DEAD = {Kind.HANG: Execution(ORT, Status.HANG), Kind.CRASH: Execution(ORT, Status.CRASHED, signal=8)}


def place(
    folder: Path,
    module: torch.nn.Module,
    model: onnx.ModelProto | None,
    seed: dict[str, Array],
    inputs: dict[str, Array],
    verdict: Verdict,
    seconds: float = 60.0,
    **rest: Any,
) -> Attribution:
    """Return what is told of the place of a verdict on some inputs."""
    target = Target(module=module, inputs=dict(seed), onnx=model, **rest)
    loaded = LoadedTarget(target, "net", "", str(Path(__file__).parent), (), Case(seed), module)
    facts = make_build(loaded, folder).facts
    assert facts is not None
    case = Case(inputs)
    expected = TorchSide(loaded).run(case)
    path = Path(facts.build.folder) / "model.onnx"
    actual = DEAD.get(verdict.kind) or run_part(path.read_bytes(), inputs, Ort())
    verdict = replace(verdict, output=facts.outputs[0])
    context = Context(loaded, Pipe()[0], Announcer(folder / "map"), folder / "map", Limits(seconds, None))
    spec = TwinSpec(facts, Policy({}), SeedStatistics.of([case], has_real_seeds=False))
    found = located(context, spec, case, verdict, expected, actual, seconds=60.0).attribution
    assert found is not None
    return found


def line_of(mark: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith(f"# line: {mark}"))
    return f"{Path(__file__).name}:{number}"


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> net {text}')


class Flat(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x).reshape(2, -1)  # line: reshape


def test_the_node_that_refuses_and_the_line_that_it_stands_for(tmp_path: Path):
    text = "(float[n] x) => (float[a, b] y) <int64[2] size = {2, 2}> { a = Exp (x) [flat] y = Reshape (a, size) }"
    x, longer = np.ones(4, np.float32), np.ones(6, np.float32)
    found = place(
        tmp_path, Flat(), model_of(text), {"x": x}, {"x": longer}, Verdict(Kind.ERROR_SPLIT, Grade.BUG, blame="export")
    )
    assert (found.op, found.onnx_node, found.source) == ("Reshape", "flat", line_of("reshape"))
    assert "ONNX Runtime refuses at flat" in found.place_how


class Rows(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.ones(3, 2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(ids + 1, self.table)  # line: rows


def test_the_node_that_answers_where_torch_refuses(tmp_path: Path):
    text = """(int64[n] ids) => (float[n, 2] y) <int64 one = {1}, float[3, 2] table = {1, 1, 1, 1, 1, 1}>
        { a = Add (ids, one) [rows] y = Gather (table, a) }"""
    verdict = Verdict(Kind.ERROR_SPLIT, Grade.BUG, blame="onnx_file")
    seed, negative = np.array([0, 1]), np.array([0, -3])
    found = place(tmp_path, Rows(), model_of(text), {"ids": seed}, {"ids": negative}, verdict)
    assert (found.op, found.onnx_node, found.source) == ("Gather", "rows", line_of("rows"))
    assert found.is_guess


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * 0.5).sum(-1)


def test_no_node_is_named_where_the_inputs_themselves_are_refused(tmp_path: Path):
    seed, coarse = {"x": np.arange(6)}, {"x": np.arange(6, dtype=np.int32)}
    verdict = Verdict(Kind.ERROR_SPLIT, Grade.CONTRACT, attribution=Attribution(""))
    found = place(tmp_path, Sum(), None, seed, coarse, verdict)
    assert (found.op, found.onnx_node, found.source) == ("", "", "")


class Counting(torch.nn.Module):
    def forward(self, trips: torch.Tensor) -> torch.Tensor:
        return trips + 1


def test_the_loop_that_does_not_end_in_the_arm_that_ran(tmp_path: Path):
    text = """(int64 trips) => (int64 y) <int64 zero = {0}, int64 one = {1}> {
        positive = Greater (trips, zero)
        [arms] n = If (positive) <
            then_branch = then () => (int64 count) {
                twice = Add (trips, trips)
                [endless] count = Loop (twice, , zero) <
                    body = turn (int64 i, bool go, int64 before) => (bool go_on, int64 after)
                        { go_on = Identity (go)  after = Add (before, one) }
                >
            },
            else_branch = other () => (int64 none) { none = Identity (zero) }
        >
        y = Add (n, one)
    }"""
    seed, many = np.array(1), np.array(2**60)
    verdict = Verdict(Kind.HANG, Grade.BUG, blame="onnx_file")
    found = place(tmp_path, Counting(), model_of(text), {"trips": seed}, {"trips": many}, verdict, seconds=0.5)
    assert (found.op, found.onnx_node, found.is_guess) == ("Loop", "endless", False)
    assert "in arms/then_branch, which does not end alone" in found.place_how


class Kept(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


@pytest.mark.parametrize("told", [("If", "arms"), ("", "")], ids=["the If is known", "nothing is known"])
def test_the_node_that_kills_inside_of_an_arm(tmp_path: Path, told: tuple[str, str]):
    text = """(int32[n] a, int32[n] b) => (int32[n] y) <int64 first = {0}, int32 zero = {0}> {
        head = Gather (a, first)
        positive = Greater (head, zero)
        [arms] y = If (positive) <
            then_branch = then () => (int32[n] q) { [deadly] q = Div (a, b) },
            else_branch = other () => (int32[n] same) { same = Identity (a) }
        >
    }"""
    seed, least = {name: np.array([3, 2], np.int32) for name in "ab"}, np.iinfo(np.int32).min
    deadly = {"a": np.array([7, least], np.int32), "b": np.array([2, -1], np.int32)}
    verdict = Verdict(Kind.CRASH, Grade.BUG, blame="kernel:If" if told[0] else "unknown")
    verdict = replace(verdict, attribution=Attribution("", op=told[0], onnx_node=told[1]))
    found = place(tmp_path, Kept(), model_of(text), seed, deadly, verdict)
    assert (found.op, found.onnx_node, found.is_guess) == ("Div", "deadly", False)
    assert "in arms/then_branch, which kills the process alone" in found.place_how
    assert found.workaround.startswith("avoid Div on such inputs" if told[0] else "")


class Halved(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 16:  # line: halved
            x = torch.nn.functional.avg_pool1d(x, 2)
        return torch.exp(x).mean(1)


def test_a_branch_lies_at_its_line_and_at_no_node(tmp_path: Path):
    line = line_of("halved")
    verdict = Verdict(Kind.BRANCH_SPLIT, Grade.BUG, site=line, blame="capture")
    seed, wide = {"x": np.ones((2, 8), np.float32)}, {"x": np.linspace(0, 9, 36, dtype=np.float32).reshape(2, 18)}
    found = place(tmp_path, Halved(), None, seed, wide, verdict, dynamic_shapes={"x": {1: "width"}})
    assert (found.op, found.onnx_node, found.source, found.is_guess) == ("", "", line, False)
    assert "a condition that the exporter took for granted" in found.place_how


class Half(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squared = x * x  # line: squared
        return (squared * 0.001).sum(-1)


def test_where_torch_leaves_the_finite_numbers_and_onnx_runtime_does_not(tmp_path: Path):
    verdict = Verdict(Kind.NONFINITE, Grade.INHERENT, blame="precision")
    small, large = np.ones((2, 4), np.float16), np.full((2, 4), 300, np.float16)
    found = place(tmp_path, Half(), None, {"x": small}, {"x": large}, verdict)
    assert (found.op, found.fx_node, found.source) == ("Mul", "mul", line_of("squared"))
    assert "torch leaves the finite numbers" in found.place_how
    assert not np.isfinite(to_array(torch.from_numpy(large) ** 2)).any()


def test_a_file_that_is_right_has_no_place_by_value(tmp_path: Path):
    text = "(float[n] x) => (float[a, b] y) <int64[2] size = {2, -1}> { a = Exp (x)  y = Reshape (a, size) }"
    x = np.ones(4, np.float32)
    loaded = LoadedTarget(
        Target(module=Flat(), inputs={"x": x}, onnx=model_of(text)), "net", "", "", (), Case({"x": x}), Flat()
    )
    facts = make_build(loaded, tmp_path).facts
    assert facts is not None
    right, wrong = np.exp(x).reshape(2, 2), np.zeros((2, 2), np.float32)
    expected, actual = Execution(TORCH, Status.OK, (right,)), Execution(ORT, Status.OK, (wrong,))
    context = Context(loaded, Pipe()[0], Announcer(tmp_path / "map"), tmp_path / "map", Limits(60.0, None))
    spec = TwinSpec(facts, Policy({}), SeedStatistics.of([Case({"x": x})], has_real_seeds=False))
    verdict = Verdict(Kind.NUMERIC, Grade.BUG, facts.outputs[0], blame="unknown")
    assert located(context, spec, Case({"x": x}), verdict, expected, actual, seconds=60.0).attribution is None
