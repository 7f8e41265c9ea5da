"""Sequences: steps with carried outputs stay in the contract, repeat exactly, and reach what single cases do not."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from campaigns import GIVEN, corpus_of, fuzz, rows, write_target
from torch import nn

from fuzzparity import Target
from fuzzparity.campaign.sequences import LABEL, Carrying, Drift, Sequences, drift
from fuzzparity.case import Case, Lineage
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.generate.generator import Generator, Proposal
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import Policy
from fuzzparity.sides.export import make_build
from fuzzparity.sides.load import LoadedTarget, first_seed
from fuzzparity.sides.pair import Pair, open_pair
from fuzzparity.verdict import Realism

N = Dim(1, "n")
CONTRACT = Contract(
    (
        InputContract("x", "float32", (N, Dim(2)), allow_nonfinite=False),
        InputContract("state", "float32", (N, Dim(2)), low=-9.0, high=9.0, allow_nonfinite=False),
    )
)
CARRYING = Carrying({"stateN": "state"}, ("y", "stateN"), CONTRACT)


def step_of(x: float, state: float, count: int = 1) -> Case:
    return Case({"x": np.full((count, 2), x, np.float32), "state": np.full((count, 2), state, np.float32)})


def answer(state: float, count: int = 1, status: Status = Status.OK, side: str = TORCH) -> Execution:
    outputs = (np.zeros(count, np.float32), np.full((count, 2), state, np.float64))
    return Execution(side, status, outputs if status is Status.OK else ())


def test_the_next_step_carries_the_state_and_keeps_or_takes_the_other_inputs() -> None:
    following = CARRYING.next_step(step_of(1, 0), answer(3))
    assert following == step_of(1, 3)
    assert list(following.inputs) == ["x", "state"]
    assert CARRYING.next_step(step_of(1, 0), answer(3), step_of(5, 7)) == step_of(5, 3)
    assert CARRYING.next_step(step_of(1, 0), answer(3), step_of(5, 7, count=4)) == step_of(1, 3)  # another batch


@pytest.mark.parametrize(
    "last", [answer(10), answer(float("nan")), answer(1, count=2), answer(1, status=Status.REFUSED)]
)
def test_a_sequence_ends_where_the_contract_does(last: Execution) -> None:
    assert CARRYING.next_step(step_of(1, 0), last) is None


def followed(rng_seed: int) -> Iterator[tuple[int, int]]:
    """Yield (sequence of the first case, steps that follow it) over 400 cases of one lease."""
    generator = Generator(CONTRACT, [step_of(1, 0)], rng_seed)
    generator.begin(1)
    sequences = Sequences(CARRYING, [step_of(1, 0), step_of(2, 0)], rng_seed)
    state = 0.0
    for _ in range(400):
        proposal = generator.propose()
        sequences.note(proposal, answer(0.5), answer(0.5))
        steps = 0
        while sequences.has_next:
            taken = sequences.take(generator)
            assert taken.label == LABEL
            assert taken.lineage.mutators == ("carry stateN->state",)
            assert taken.lineage.sequence > proposal.lineage.sequence
            state, steps = state + 0.001, steps + 1
            sequences.note(taken, answer(state), answer(state))
        yield proposal.lineage.sequence, steps


def test_one_case_in_eight_is_followed_up_to_eight_steps_deep() -> None:
    found = [steps for _, steps in followed(3) if steps]
    assert 20 <= len(found) <= 90
    assert set(found) == set(range(1, 9))
    assert list(followed(3)) == list(followed(3))
    assert list(followed(3)) != list(followed(4))


def test_nothing_follows_a_refusal_a_broken_contract_or_a_target_that_carries_nothing() -> None:
    sequences = Sequences(CARRYING, [step_of(1, 0)], 0)
    none = Sequences(Carrying({}, ("y",), CONTRACT), [step_of(1, 0)], 0)
    for place in range(200):
        lineage = Lineage(lease=1, sequence=place)
        refused = answer(1, status=Status.REFUSED, side=ORT)
        sequences.note(Proposal(step_of(1, 0), lineage, "recipe"), answer(1), refused)
        sequences.note(Proposal(step_of(1, 0), lineage, "breaking", contract_breaking=True), answer(1), answer(1))
        none.note(Proposal(step_of(1, 0), lineage, "recipe"), answer(1), answer(1))
    assert not sequences.has_next
    assert not none.has_next


class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.GRUCell(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> dict[str, torch.Tensor]:
        state = self.cell(x, state)
        return {"logits": self.head(state), "stateN": state}


@pytest.mark.slow
def test_a_right_recurrent_twin_drifts_by_rounding_alone(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    inputs = {"x": torch.zeros(2, 4), "state": torch.zeros(2, 8)}
    target = Target(module=Gru().eval(), inputs=inputs, dynamic_shapes=({0: "n"}, {0: "n"}), carry={"stateN": "state"})
    loaded = LoadedTarget(target, "gru", "gru", "", (), first_seed(target), target.module)
    facts = make_build(loaded, tmp_path).facts
    assert facts is not None
    pair = open_pair(loaded, facts, Path(facts.build.folder))
    assert isinstance(pair, Pair)
    seeds = [loaded.seed.replace(x=generator.standard_normal((2, 4)).astype(np.float32)) for _ in range(7)]
    oracle = Oracle(facts.outputs, Policy(facts.outputs, "float32", {}), lambda case: "", lambda case: Realism.NEAR)
    looked: list[bool] = []

    def look(case: Case, expected: Execution, actual: Execution) -> None:
        assert any(np.array_equal(case.inputs["x"], seed.inputs["x"]) for seed in seeds)
        looked.append(oracle.screen(expected, actual).is_suspicious)

    class Both:
        def run(self, case: Case) -> tuple[Execution, Execution]:
            return pair.run_torch(case), pair.run_ort(case)

    carrying = Carrying(target.carry, facts.outputs, facts.contract)
    found = drift(carrying, Both(), seeds, look, run_seconds=1e-4)
    assert looked == [False] * 49
    assert len(found.errors) == 50
    assert 0 < max(found.errors) < 1e-5
    assert " at step 1, " in found.note
    assert " at step 50" in found.note
    ended = drift(carrying, Both(), seeds, look, 1e-4, deadly=[seeds[0].digest])
    assert ended.note == "carry: no step could be run: a side died"
    assert "ended there: ort refused" in Drift((0.5, 0.25), "ort refused").note


# the state grows by a quarter where it is large, which no start does: states are left as in the seeds
WRONG_WHEN_LARGE = """
    class Net(torch.nn.Module):
        def forward(self, x, state):
            state = state * 0.9 + x.clamp(-1, 1)
            return {"y": state.sum(-1), "stateN": state}


    def grown(threshold):
        x, state, y, after = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
            for name, dims in (("x", ["n", 4]), ("state", ["n", 4]), ("y", ["n"]), ("stateN", ["n", 4]))
        )
        numbers = {"decay": 0.9, "low": -1.0, "high": 1.0, "threshold": threshold, "factor": 1.25}
        constants = [helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in numbers.items()]
        axis = helper.make_tensor("axis", TensorProto.INT64, [1], [-1])
        nodes = [
            helper.make_node("Mul", ["state", "decay"], ["kept"]),
            helper.make_node("Clip", ["x", "low", "high"], ["bounded"]),
            helper.make_node("Add", ["kept", "bounded"], ["sum"]),
            helper.make_node("Greater", ["sum", "threshold"], ["is_large"]),
            helper.make_node("Mul", ["sum", "factor"], ["larger"]),
            helper.make_node("Where", ["is_large", "larger", "sum"], ["stateN"]),
            helper.make_node("ReduceSum", ["stateN", "axis"], ["y"], keepdims=0),
        ]
        graph = helper.make_graph(nodes, "leaky", [x, state], [y, after], [*constants, axis])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


    def target():
        return Target(
            module=Net(),
            inputs={"x": torch.ones(1, 4), "state": torch.zeros(1, 4)},
            onnx=grown(THRESHOLD),
            outputs=["y", "stateN"],
            carry={"stateN": "state"},
            opaque_inputs=["state"],
        )
"""


@pytest.mark.slow
def test_a_state_update_that_is_wrong_for_large_states_is_found_by_carrying(tmp_path: Path) -> None:
    write_target(tmp_path, GIVEN, WRONG_WHEN_LARGE.replace("THRESHOLD", "3.0"))
    ended = fuzz(tmp_path, "--cases", "300", "--rng-seed", "1")
    assert ended.code == 1, ended.stderr
    bugs = [finding for finding in ended.findings if finding["grade"] == "bug"]
    assert {finding["kind"] for finding in bugs} == {"numeric"}
    assert "each side on its own state" in ended.stdout + ended.stderr
    told = rows(
        corpus_of(tmp_path),
        "select c.mutators from findings f join cases c on c.digest = f.first_case_digest where f.grade = 'bug'",
    )
    assert any(json.loads(mutators) == ["carry stateN->state"] for (mutators,) in told), told


@pytest.mark.slow
def test_a_right_twin_that_carries_shows_nothing(tmp_path: Path) -> None:
    write_target(tmp_path, GIVEN, WRONG_WHEN_LARGE.replace("THRESHOLD", "1e30"))
    ended = fuzz(tmp_path, "--cases", "200", "--rng-seed", "1")
    assert [finding for finding in ended.findings if finding["grade"] == "bug"] == [], ended.findings
    assert ended.code == 0, ended.stderr
