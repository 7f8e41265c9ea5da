"""Branches of both sides, judged on real twins: burnt in, shared, near a threshold, and beside other faults."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from fuzzparity import Export, Target
from fuzzparity.case import Case
from fuzzparity.decisions import ONNX_IF
from fuzzparity.explain.arms import TwinArms
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import Policy
from fuzzparity.sides.export import make_build
from fuzzparity.sides.load import LoadedTarget, first_seed
from fuzzparity.sides.pair import Pair, open_pair
from fuzzparity.verdict import Grade, Judgement, Kind, Realism

TRACED = Export(exporter="torchscript")


class Quiet:
    """Announce nothing."""

    @contextlib.contextmanager
    def at(self, side: str, note: str = "") -> Iterator[None]:
        yield


class Bench:
    """Judge cases on one build as a worker does."""

    def __init__(self, folder: Path, module: torch.nn.Module, x: np.ndarray, **fields: Any) -> None:
        target = Target(module=module.eval(), inputs={"x": torch.from_numpy(x)}, **fields)
        loaded = LoadedTarget(target, "t", "t", str(Path(__file__).parent), (), first_seed(target), target.module)
        facts = make_build(loaded, folder).facts
        assert facts is not None
        pair = open_pair(loaded, facts, Path(facts.build.folder))
        assert isinstance(pair, Pair)
        self.pair = pair
        self.loaded = loaded
        self.facts = facts
        self.arms = TwinArms(pair, Quiet(), lambda case, execution: execution)  # type: ignore[arg-type]
        policy = Policy(facts.outputs, "float32", {})
        self.oracle = Oracle(facts.outputs, policy, lambda case: "", lambda case: Realism.NEAR)

    def judge(self, x: np.ndarray) -> Judgement:
        case = Case({"x": x})
        expected, actual = self.pair.run_torch(case), self.pair.run_ort(case)
        actual = self.arms.decided(case, actual)
        return self.oracle.judge(case, expected, actual, self.pair.referee, arms=self.arms)


class Spikes(torch.nn.Module):
    """Clip where there is a spike; the second output takes the largest, in which NaN counts for torch."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x[:1] + 0.25
        if x[:1].abs().max() > 3.0:
            y = y.clamp(-1.0, 1.0)
        return y, x.amax()


class Lengths(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] <= 16:
            return x.mean(dim=1)
        x = x * 2
        return x.amax(dim=1)


class Chosen(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=1) if x.shape[1] <= 16 else x.amax(dim=1) * 2


class Switch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 1.5, lambda x: x + 1, lambda x: x - 1, (x,))


class Scripted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if x.sum() > 1.5:
            y = y.relu() + 1
        if y.max() > 50.0:
            y = y * 2
        return y


def line_of(module: type, text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    start = module.forward.__code__.co_firstlineno
    number = next(n for n, line in enumerate(lines, 1) if n >= start and text in line)
    return f"test_branches.py:{number}"


@pytest.fixture(scope="module")
def spikes(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    x = np.array([0.5, -2.0, 1.0], np.float32)
    return Bench(tmp_path_factory.mktemp("spikes"), Spikes(), x, export=TRACED, outputs=["y", "top"])


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("switch"), Switch(), np.ones(64, np.float32))


def test_a_branch_on_a_value_that_was_burnt_in_is_told_with_its_line(spikes: Bench) -> None:
    (verdict,) = spikes.judge(np.array([9, -2, 1], np.float32)).verdicts
    assert (verdict.kind, verdict.grade, verdict.output) == (Kind.BRANCH_SPLIT, Grade.BUG, "y")
    assert verdict.site == line_of(Spikes, "if x[:1]")
    assert "`if x[:1].abs().max() > 3.0:`) that ORT does not have: true here, and burnt in as false" in verdict.headline
    assert verdict.blame == "unknown"  # arbiters say which part burnt it in


def test_on_the_sample_s_own_arms_nothing_is_told(spikes: Bench) -> None:
    assert spikes.judge(np.array([1, -2, 2.5], np.float32)).kind is Kind.AGREE


def test_another_fault_of_the_same_run_keeps_its_name(spikes: Bench) -> None:
    judgement = spikes.judge(np.array([9, np.nan, 1], np.float32))
    kinds = {verdict.output: verdict.kind for verdict in judgement.verdicts}
    assert kinds["y"] is Kind.BRANCH_SPLIT
    alone = spikes.judge(np.array([1, np.nan, 1], np.float32))
    assert {v.output: v.kind for v in alone.verdicts} == {k: v for k, v in kinds.items() if k == "top"}


@pytest.mark.parametrize("kind", [Lengths, Chosen])
def test_a_branch_on_a_size_is_told_by_sending_torch_into_the_kept_arm(
    tmp_path: Path, kind: type[torch.nn.Module]
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 9, 3)).astype(np.float32)
    bench = Bench(tmp_path, kind(), x, export=TRACED, dynamic_shapes={"x": {1: "n"}})
    assert bench.judge(np.ones((2, 16, 3), np.float32)).kind is Kind.AGREE
    long = np.random.default_rng(1).standard_normal((2, 24, 3)).astype(np.float32)
    (verdict,) = bench.judge(long).verdicts
    assert (verdict.kind, verdict.grade) == (Kind.BRANCH_SPLIT, Grade.BUG)
    assert verdict.site == line_of(kind, "if x.shape[1]")
    assert "false here, and burnt in as true" in verdict.headline


def test_a_right_twin_with_a_branch_agrees_on_both_arms(switch: Bench) -> None:
    for scale, arm in ((1, 1), (-1, 0)):
        case = Case({"x": np.full(64, scale, np.float32)})
        told = switch.arms.decided(case, switch.pair.run_ort(case)).decisions
        assert [(d.what, d.outcome, d.source) for d in told] == [(ONNX_IF, arm, line_of(Switch, "torch.cond"))]
        assert switch.judge(case.inputs["x"]).kind is Kind.AGREE
    assert switch.arms.note == ""


def test_a_branch_that_flips_within_rounding_is_a_tie(switch: Bench) -> None:
    generator = np.random.default_rng(0)
    kinds = set()
    for _ in range(400):
        x = generator.standard_normal(64).astype(np.float32) * 100
        x[0] += np.float32(1.5 - x.astype(np.float64).sum())
        judgement = switch.judge(x)
        kinds |= {(verdict.kind, verdict.grade) for verdict in judgement.verdicts}
        if kinds:
            break
    assert kinds == {(Kind.BRANCH_SPLIT, Grade.TIE)}


def test_a_branch_with_another_threshold_is_a_bug(switch: Bench, tmp_path: Path) -> None:
    model = onnx.load(Path(switch.facts.build.folder) / "model.onnx")
    one = np.array(1.5, np.float32).tobytes()
    found = [t for t in model.graph.initializer if t.raw_data == one]
    nodes = [n for n in model.graph.node if n.op_type == "Constant" and n.attribute[0].t.raw_data == one]
    for tensor in [*found, *(n.attribute[0].t for n in nodes)]:
        tensor.raw_data = np.array(3.5, np.float32).tobytes()
    assert found or nodes
    bench = Bench(tmp_path, Switch(), np.ones(64, np.float32), onnx=model)
    x = np.zeros(64, np.float32)
    x[0] = 2.5
    (verdict,) = bench.judge(x).verdicts
    assert (verdict.kind, verdict.grade, verdict.site) == (
        Kind.BRANCH_SPLIT,
        Grade.BUG,
        line_of(Switch, "torch.cond"),
    )
    assert "different arms" in verdict.headline
    assert "true in torch, +1 from its threshold" in verdict.headline


def scripted() -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module: torch.nn.Module = torch.jit.script(Scripted().eval())
    return module


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("script"), scripted(), np.ones((2, 8), np.float32), export=TRACED)


def test_a_right_twin_of_a_script_agrees_on_all_arms(script: Bench) -> None:
    for scale, arms in ((1, [1, 0]), (-1, [0, 0]), (1000, [1, 1]), (-1000, [0, 1])):
        case = Case({"x": np.full((2, 8), scale, np.float32)})
        assert [d.outcome for d in script.pair.run_torch(case).decisions] == arms
        told = script.arms.decided(case, script.pair.run_ort(case)).decisions
        assert [(d.what, d.outcome) for d in told] == [(ONNX_IF, arm) for arm in arms]
        assert script.judge(case.inputs["x"]).kind is Kind.AGREE


def test_a_branch_of_a_script_that_the_file_burnt_in_is_told(tmp_path: Path) -> None:
    other = Bench(tmp_path / "traced", Scripted(), np.ones((2, 8), np.float32), export=TRACED)
    model = onnx.load(Path(other.facts.build.folder) / "model.onnx")
    assert not any(node.op_type == "If" for node in model.graph.node)
    bench = Bench(tmp_path / "given", scripted(), np.ones((2, 8), np.float32), onnx=model)
    assert bench.judge(np.full((2, 8), 2, np.float32)).kind is Kind.AGREE
    (verdict,) = bench.judge(np.full((2, 8), -1, np.float32)).verdicts
    assert (verdict.kind, verdict.grade) == (Kind.BRANCH_SPLIT, Grade.BUG)
    assert verdict.site == line_of(Scripted, "if x.sum()")
    assert "false here, and burnt in as true" in verdict.headline


def test_a_branch_of_a_script_with_another_threshold_is_told(script: Bench, tmp_path: Path) -> None:
    model = onnx.load(Path(script.facts.build.folder) / "model.onnx")
    tensors = [*model.graph.initializer, *(n.attribute[0].t for n in model.graph.node if n.op_type == "Constant")]
    (threshold,) = [t for t in tensors if t.data_type == 1 and onnx.numpy_helper.to_array(t).tolist() == 1.5]
    threshold.raw_data = np.array(3.5, np.float32).tobytes()
    bench = Bench(tmp_path, scripted(), np.ones((2, 8), np.float32), onnx=model)
    x = np.zeros((2, 8), np.float32)
    x[0, 0] = 2.5
    (verdict,) = bench.judge(x).verdicts
    assert (verdict.kind, verdict.grade, verdict.site) == (
        Kind.BRANCH_SPLIT,
        Grade.BUG,
        line_of(Scripted, "if x.sum()"),
    )
    assert "true in torch, +1 from its threshold" in verdict.headline


def test_a_branch_of_a_script_that_flips_within_rounding_is_a_tie(script: Bench) -> None:
    generator = np.random.default_rng(0)
    kinds = set()
    for _ in range(200):
        x = generator.standard_normal((2, 8)).astype(np.float32) * 100
        x[0, 0] += np.float32(1.5 - x.astype(np.float64).sum())
        kinds |= {(verdict.kind, verdict.grade) for verdict in script.judge(x).verdicts}
        if kinds:
            break
    assert kinds == {(Kind.BRANCH_SPLIT, Grade.TIE)}
