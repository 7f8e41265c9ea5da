"""Boundaries in the stream of cases: a budget of their own, the contract kept, splits found, right twins left alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from fuzzparity import Target
from fuzzparity.campaign.boundaries import LABEL, MUTATOR, Boundaries
from fuzzparity.case import Array, Case, Lineage
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.generate.contract import breach
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import Policy
from fuzzparity.sides.export import make_build
from fuzzparity.sides.gradients import Thresholds
from fuzzparity.sides.load import LoadedTarget, first_seed
from fuzzparity.sides.pair import Pair, open_pair
from fuzzparity.verdict import Grade, Realism

BOUNDED = Contract((InputContract("x", "float32", (Dim(1, "n"), Dim(3)), low=-2.0, high=2.0),))
FROZEN = Contract(
    (
        InputContract("x", "float32", (Dim(1, "n"), Dim(3))),
        InputContract("scale", "float32", (Dim(1, "n"), Dim(1)), is_opaque=True),
    )
)


def seed_of(contract: Contract) -> Case:
    return Case({item.name: np.ones((1, item.dims[1].size), np.float32) for item in contract.inputs})


def stream(
    contract: Contract, answer: Callable[[Case], Array], count: int, rng_seed: int = 0
) -> Iterator[tuple[Proposal, Boundaries]]:
    """Yield what runs, in its order, with both sides giving the same answer."""
    generator = Generator(contract, [seed_of(contract)], rng_seed)
    generator.begin(1)
    boundaries = Boundaries(contract, ("y",), [seed_of(contract)], rng_seed)
    for _ in range(count):
        proposal = boundaries.take(generator) if boundaries.has_next else generator.propose()
        yield proposal, boundaries
        boundaries.note(proposal, *agreed(answer(proposal.case)), is_suspicious=False)


def agreed(output: Array) -> tuple[Execution, Execution]:
    return Execution(TORCH, Status.OK, (output,)), Execution(ORT, Status.OK, (output,))


def above(case: Case) -> Array:
    with np.errstate(all="ignore"):
        return case.inputs["x"].sum(axis=1) > 0.5


def test_searches_take_a_tenth_beyond_their_allowance_and_stay_in_the_contract() -> None:
    ran = [proposal for proposal, _ in stream(BOUNDED, above, 1500)]
    searched = [proposal for proposal in ran if proposal.label == LABEL]
    assert 100 < len(searched) <= 128 + 150 + 128  # what is in hand, the share, and one search that overdraws
    assert all(proposal.lineage.mutators == (MUTATOR,) for proposal in searched)
    assert [breach(BOUNDED, proposal.case) for proposal in searched] == [""] * len(searched)
    assert [p.lineage.sequence for p in ran] == sorted({p.lineage.sequence for p in ran})


def test_the_same_cases_and_outcomes_give_the_same_searches() -> None:
    first = [proposal.case.digest for proposal, _ in stream(BOUNDED, above, 300)]
    assert first == [proposal.case.digest for proposal, _ in stream(BOUNDED, above, 300)]
    assert first != [proposal.case.digest for proposal, _ in stream(BOUNDED, above, 300, rng_seed=1)]


def test_opaque_inputs_keep_what_a_case_had() -> None:
    ran = [proposal for proposal, _ in stream(FROZEN, above, 600)]
    held = {proposal.case.inputs["scale"].tobytes() for proposal in ran if proposal.label != LABEL}
    searched = [proposal for proposal in ran if proposal.label == LABEL]
    assert searched
    assert {proposal.case.inputs["scale"].tobytes() for proposal in searched} <= held


def test_what_never_differs_costs_less_and_less() -> None:
    generator, chance = Generator(BOUNDED, [seed_of(BOUNDED)], 0), np.random.default_rng(0)
    generator.begin(1)
    boundaries, spent = Boundaries(BOUNDED, ("y",), [seed_of(BOUNDED)], 0), []
    for _ in range(10000):
        made = Proposal(Case({"x": chance.uniform(-2, 2, (1, 3)).astype(np.float32)}), Lineage(), "recipe")
        proposal = boundaries.take(generator) if boundaries.has_next else made
        boundaries.note(proposal, *agreed(above(proposal.case)), is_suspicious=False)
        spent.append(sum(boundaries.executions.values()))
    assert 128 < spent[1500] < 128 + 150 + 128
    assert spent[-1] - spent[-4000] < 200  # of 4000, where a tenth would be 400


# real twins


def value(name: str, dims: list[Any], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def model(nodes: list[onnx.NodeProto], x: list[Any], y: onnx.ValueInfoProto, **constants: float) -> onnx.ModelProto:
    held = [helper.make_tensor(name, TensorProto.FLOAT, [], [number]) for name, number in constants.items()]
    held.append(helper.make_tensor("last", TensorProto.INT64, [1], [-1]))
    graph = helper.make_graph(nodes, "given", [value("x", x)], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def arm(op: str, constant: str, size: int) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node(op, ["x", constant], [op])], op, [], [value(op, [size])])


def branching(size: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "threshold"], ["is_large"]),
        helper.make_node(
            "If", ["is_large"], ["y"], then_branch=arm("Mul", "two", size), else_branch=arm("Sub", "one", size)
        ),
    ]
    return model(nodes, [size], value("y", [size]), threshold=0.0, one=1.0, two=2.0)


def norm_above(threshold: float) -> onnx.ModelProto:
    nodes = [
        helper.make_node("ReduceL2", ["x", "last"], ["norm"]),
        helper.make_node("Greater", ["norm", "threshold"], ["is_large"]),
        helper.make_node("Neg", ["x"], ["turned"]),
        helper.make_node("Where", ["is_large", "x", "turned"], ["y"]),
    ]
    return model(nodes, ["n", 16], value("y", ["n", 16]), threshold=threshold)


def above_half(threshold: float) -> onnx.ModelProto:
    nodes = [helper.make_node("Greater", ["x", "threshold"], ["y"])]
    return model(nodes, ["n", 8], value("y", ["n", 8], TensorProto.BOOL), threshold=threshold)


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1


class NormAbove(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.norm(dim=-1, keepdim=True) > 2.0, x, -x)


class AboveHalf(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x > 0.5


def grades(
    folder: Path, module: nn.Module, x: torch.Tensor, given: onnx.ModelProto, count: int
) -> dict[Grade, list[int]]:
    """Return at which executions a boundary case was judged to which grade."""
    target = Target(module=module.eval(), inputs={"x": x}, onnx=given, outputs=["y"])
    loaded = LoadedTarget(target, "t", "t", "", (), first_seed(target), target.module)
    facts = make_build(loaded, folder).facts
    assert facts is not None
    pair = open_pair(loaded, facts, Path(facts.build.folder))
    assert isinstance(pair, Pair)
    generator = Generator(facts.contract, [loaded.seed], 0)
    generator.begin(1)
    boundaries = Boundaries(facts.contract, facts.outputs, [loaded.seed], 0, gradients=Thresholds(loaded))
    oracle = Oracle(facts.outputs, Policy(facts.outputs, "float32", {}), lambda case: "", lambda case: Realism.NEAR)
    found: dict[Grade, list[int]] = {}
    for execution in range(count):
        proposal = boundaries.take(generator) if boundaries.has_next else generator.propose()
        both = pair.run_torch(proposal.case), pair.run_ort(proposal.case)
        is_suspicious = oracle.screen(*both).is_suspicious
        if is_suspicious and proposal.label == LABEL:
            for verdict in oracle.judge(proposal.case, *both, pair.referee).verdicts:
                found.setdefault(verdict.grade, []).append(execution)
        boundaries.note(proposal, *both, is_suspicious=is_suspicious)
    return found


def test_a_branch_on_a_float_sum_is_split_within_a_thousand_executions_and_is_a_tie(tmp_path: Path) -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    found = grades(tmp_path, Branching(), x, branching(64), 1000)
    assert Grade.TIE in found
    assert Grade.BUG not in found


@pytest.mark.parametrize(
    ("module", "given", "is_bug"),
    [
        (NormAbove(), norm_above(2.0), False),
        (NormAbove(), norm_above(2.00001), True),
        (AboveHalf(), above_half(0.5), None),  # nothing is rounded on the way: not even a tie
        (AboveHalf(), above_half(0.5000001), False),  # two ulps from the input's own threshold
        (AboveHalf(), above_half(0.50001), True),
    ],
)
def test_a_threshold_elsewhere_is_a_bug_beyond_rounding_and_a_tie_within(
    tmp_path: Path, module: nn.Module, given: onnx.ModelProto, is_bug: bool | None
) -> None:
    width = given.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    x = torch.randn(2, width, generator=torch.Generator().manual_seed(0)) * 0.3
    found = grades(tmp_path, module, x, given, 700)
    assert (Grade.BUG in found) == bool(is_bug)
    assert bool(found) == (is_bug is not None)
