"""Sequences: steps with carried outputs stay in the contract, repeat exactly, and reach what single cases do not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from campaigns import GIVEN, Ended, corpus_of, fuzz, rows, run, write_target
from torch import nn

from fuzzparity import Target
from fuzzparity.campaign.sequences import (
    ELSEWHERE,
    LABEL,
    REPEATED,
    RESET,
    SILENCE,
    SWAPPED,
    Carrying,
    Drift,
    Sequences,
    drift,
)
from fuzzparity.case import Case, Lineage
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.corpus.codec import decode
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


SEEDS = [step_of(place, 0) for place in range(1, 6)]


def followed(rng_seed: int, cases: int = 1200) -> Iterator[tuple[int, list[tuple[Case, tuple[str, ...]]]]]:
    """Yield (sequence of the first case, its steps with their mutators) over the cases of one lease."""
    generator = Generator(CONTRACT, SEEDS, rng_seed)
    generator.begin(1)
    sequences = Sequences(CARRYING, SEEDS, rng_seed)
    state = 0.0
    for _ in range(cases):
        proposal = generator.propose()
        sequences.note(proposal, answer(0.5), answer(0.5))
        steps = []
        while sequences.has_next:
            taken = sequences.take(generator)
            assert taken.label == LABEL
            assert taken.lineage.mutators[0] == "carry stateN->state"
            assert taken.lineage.sequence > proposal.lineage.sequence
            steps.append((taken.case, taken.lineage.mutators[1:]))
            state += 0.001
            sequences.note(taken, answer(state), answer(state))
        yield proposal.lineage.sequence, steps


def test_one_case_in_twelve_is_followed_and_some_sequences_are_long() -> None:
    found = [len(steps) for _, steps in followed(3) if steps]
    assert 60 <= len(found) <= 160
    assert {*range(1, 9)} < set(found)
    assert 1 <= sum(count > 8 for count in found) <= len(found) // 4
    assert found[0] == 128
    assert sum(found[1:]) < 2 * 1200
    shapes = [(place, [(case.digest, names) for case, names in steps]) for place, steps in followed(3, 200)]
    again = [(place, [(case.digest, names) for case, names in steps]) for place, steps in followed(3, 200)]
    assert shapes == again
    assert shapes != [(place, [(c.digest, names) for c, names in steps]) for place, steps in followed(4, 200)]


def test_the_order_of_calls_is_changed_in_every_way() -> None:
    told = [(case, names) for _, steps in followed(5) for case, names in steps if names]
    assert {names for _, names in told} == {(one,) for one in (SWAPPED, REPEATED, RESET, SILENCE, ELSEWHERE)}
    for case, names in told:
        if names == (SILENCE,):
            assert not case.inputs["x"].any()
        if names == (RESET,) and len(case.inputs["state"]) == 1:
            assert not case.inputs["state"].any()
    stretches = [[names for _, names in steps] for _, steps in followed(5) if len(steps) > 8]
    assert any(names[place : place + 4] == [(SILENCE,)] * 4 for names in stretches for place in range(len(names)))


def test_seeds_follow_in_their_order() -> None:
    for _, steps in followed(3):
        taken = [float(case.inputs["x"][0, 0]) for case, _ in steps[:4]]
        if steps:
            assert taken == [1, 2, 3, 4]
            break
    else:
        raise AssertionError("no sequence went through the seeds")


def test_a_sequence_takes_turns_with_all_else_and_outlasts_a_lease() -> None:
    generator = Generator(CONTRACT, SEEDS, 0)
    sequences = Sequences(CARRYING, SEEDS, 0)
    labels: list[str] = []
    for lease in (1, 2):
        generator.begin(lease)
        for place in range(100):
            proposal = sequences.take(generator) if sequences.is_due() else generator.propose()
            sequences.note(proposal, answer(place / 100), answer(place / 100))
            labels.append(proposal.label)
    steps = [place for place, label in enumerate(labels) if label == LABEL]
    assert 0.25 * 200 < len(steps) < 0.55 * 200
    assert min(steps) < 10
    assert max(steps) > 180


def test_silence_stays_in_the_contract() -> None:
    loud = InputContract("x", "float32", (N, Dim(2)), low=0.5, high=2.0)
    carrying = Carrying({"stateN": "state"}, ("y", "stateN"), Contract((loud, CONTRACT.inputs[1])))
    assert carrying.silent(step_of(1, 3)) == step_of(0.5, 3)
    assert CARRYING.silent(step_of(1, 3)) == step_of(0, 3)
    assert CARRYING.reset(step_of(1, 3), step_of(7, 0)) == step_of(1, 0)
    assert CARRYING.reset(step_of(1, 3, count=2), step_of(7, 0)) is None


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

    def look(case: Case, expected: Execution, actual: Execution) -> bool:
        assert any(np.array_equal(case.inputs["x"], seed.inputs["x"]) for seed in seeds)
        looked.append(oracle.screen(expected, actual).is_suspicious)
        return looked[-1]

    def kind_of(case: Case, expected: Execution, actual: Execution) -> str:
        screening = oracle.screen(expected, actual)
        return screening.kind.value if screening.is_suspicious else ""

    class Both:
        def run_torch(self, case: Case) -> Execution:
            return pair.run_torch(case)

        def run(self, case: Case) -> tuple[Execution, Execution]:
            return pair.run_torch(case), pair.run_ort(case)

    carrying = Carrying(target.carry, facts.outputs, facts.contract)
    found = drift(carrying, Both(), seeds, look, kind_of=kind_of)
    assert looked == [False] * 49
    assert len(found.errors) == 50
    assert 0 < max(found.errors) < 1e-5
    assert " at step 1, " in found.note
    assert " at step 50" in found.note
    assert 0 < max(found.shaken) < 1e-5
    assert "one ulp of the state at every step moves torch by " in found.note
    assert (found.apart_at, found.single, found.grows_unseen) == (0, 0, False)
    ended = drift(carrying, Both(), seeds, look, deadly=[seeds[0].digest])
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


def test_a_drift_that_no_single_step_shows_is_said() -> None:
    shaken = (1e-7, 2e-7, 3e-7, 3e-7)
    unseen = Drift((1e-6, 2e-6, 8e-6, 9e-6), "", shaken, apart_at=3, apart_kind="numeric")
    assert unseen.grows_unseen
    assert "beyond what is allowed from step 3 on (numeric); no single step shows it" in unseen.note
    assert not Drift((1e-6, 2e-6, 8e-6, 9e-6), "", shaken, 3, "numeric", single=1).grows_unseen
    assert not Drift((1e-7, 2e-7, 8e-6, 9e-6), "", (1e-7, 1e-7, 5e-6, 5e-6), 3, "numeric").grows_unseen  # sensitive


# what the tests below plant is reached by many steps alone: the state holds a counter, and states are as in the seeds
COUNTING = """
    class Net(torch.nn.Module):
        def forward(self, x, state):
            steps = state[:, :1] + 1
            mean = state[:, 1:] * DECAY + x * (1 - DECAY)
            after = torch.cat([steps, mean], 1)
            return {"y": torch.where(steps > LATE, mean * FACTOR, mean), "stateN": after}


    DECAY, LATE, FACTOR, DECAY_OF_ONNX, CLIP = 0.9, 1e9, 1.0, 0.9, 1e9


    def counting():
        x, state, y, after = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
            for name, dims in (("x", ["n", 3]), ("state", ["n", 4]), ("y", ["n", 3]), ("stateN", ["n", 4]))
        )
        numbers = {"one": 1.0, "clip": CLIP, "decay": DECAY_OF_ONNX, "rest": 1 - DECAY}
        constants = [helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in numbers.items()]
        sizes = helper.make_tensor("sizes", TensorProto.INT64, [2], [1, 3])
        nodes = [
            helper.make_node("Split", ["state", "sizes"], ["count", "mean"], axis=1),
            helper.make_node("Add", ["count", "one"], ["counted"]),
            helper.make_node("Min", ["counted", "clip"], ["steps"]),
            helper.make_node("Mul", ["mean", "decay"], ["kept"]),
            helper.make_node("Mul", ["x", "rest"], ["new"]),
            helper.make_node("Add", ["kept", "new"], ["y"]),
            helper.make_node("Concat", ["steps", "y"], ["stateN"], axis=1),
        ]
        graph = helper.make_graph(nodes, "counting", [x, state], [y, after], [*constants, sizes])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


    def stream():
        values = np.random.default_rng(0).normal(100, 10, (40, 1, 3)).astype(np.float32)
        return ({"x": x, "state": np.zeros((1, 4), np.float32)} for x in values)


    def target():
        return Target(
            module=Net(),
            inputs={"x": torch.full((1, 3), 100.0), "state": torch.zeros(1, 4)},
            onnx=counting(),
            outputs=["y", "stateN"],
            carry={"stateN": "state"},
            opaque_inputs=["state"],
            seeds=stream,
        )
"""


def bugs_of(ended: Ended) -> list[dict[str, Any]]:
    return [finding for finding in ended.findings if finding["grade"] == "bug"]


def said_of(ended: Ended) -> str:
    return " ".join((ended.stdout + ended.stderr).split())


@pytest.mark.slow
def test_a_counter_that_the_twin_clips_after_many_steps_is_found_and_replays(tmp_path: Path) -> None:
    write_target(tmp_path, GIVEN, COUNTING, "CLIP = 60.0")  # further than the gate's own sequence goes
    ended = fuzz(tmp_path, "--cases", "350", "--workers", "1", "--rng-seed", "1")
    assert ended.code == 1, ended.stderr
    bug, *others = bugs_of(ended)
    assert {(one["kind"], one["where"]["output"]) for one in (bug, *others)} == {("numeric", "stateN")}
    # one step shows it: the reproducer holds the state that it starts from
    inputs = decode((tmp_path / bug["path"] / "inputs.safetensors").read_bytes())
    assert inputs["state"][0, 0] >= 60
    assert run(tmp_path, "replay", bug["path"]).code == 1
    told = rows(
        corpus_of(tmp_path),
        "select c.mutators from findings f join cases c on c.digest = f.first_case_digest where f.grade = 'bug'",
    )
    assert any(json.loads(mutators)[0] == "carry stateN->state" for (mutators,) in told), told


@pytest.mark.slow
def test_an_arm_that_a_side_takes_after_many_steps_alone_is_a_branch_split(tmp_path: Path) -> None:
    planted = """
    def forward(self, x, state):
        steps = state[:, :1] + 1
        mean = state[:, 1:] * DECAY + x * (1 - DECAY)
        y = mean
        if bool((steps > 60).any()):
            y = mean * 2
        return {"y": y, "stateN": torch.cat([steps, mean], 1)}


    Net.forward = forward
    """
    write_target(tmp_path, GIVEN, COUNTING, planted)
    ended = fuzz(tmp_path, "--cases", "350", "--workers", "1", "--rng-seed", "1")
    (bug,) = bugs_of(ended)
    assert bug["kind"] == "branch_split"
    assert "if bool((steps > 60).any()):" in bug["headline"]
    assert run(tmp_path, "replay", bug["path"]).code == 1


@pytest.mark.slow
def test_what_only_a_run_of_steps_shows_is_said_and_is_no_finding(tmp_path: Path) -> None:
    write_target(tmp_path, GIVEN, COUNTING, "DECAY_OF_ONNX = 0.9000005")
    checked = run(tmp_path, "check", "subject.py")
    assert "no single step shows it, only a run of steps does" in said_of(checked)
    assert checked.code == 0, checked.stdout
    right = tmp_path / "right"
    write_target(right, GIVEN, COUNTING)
    checked = run(right, "check", "subject.py")
    assert "one ulp of the state at every step moves torch by" in said_of(checked)
    assert "only a run of steps" not in said_of(checked)
    assert checked.code == 0
