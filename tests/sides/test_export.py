"""Exporting a target into a build, by each exporter, and giving one; state and digest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from small_models import Conv, Counter, DictOutputs, InPlace, loaded, model, relu, relu_clip_double
from torch import nn
from torch.export import Dim

from fuzzparity import Export, Ort, Size
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import Execution, Refusal, Status
from fuzzparity.sides.export import Attempt, BuildResult, facts_without_model, load_state, make_build
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.pair import Pair, open_pair
from fuzzparity.work.alone import run_alone
from fuzzparity.work.limits import Limits

TORCHSCRIPT = Export(exporter="torchscript")
IMAGE = torch.randn(1, 3, 8, 6, generator=torch.Generator().manual_seed(0))
ROW = np.ones((2, 3), np.float32)


def opened(target: LoadedTarget, result: BuildResult) -> Pair:
    assert result.facts is not None, result.error
    pair = open_pair(target, result.facts, Path(result.facts.build.folder))
    assert isinstance(pair, Pair)
    return pair


def agree(target: LoadedTarget, result: BuildResult) -> Pair:
    pair = opened(target, result)
    expected, actual = pair.run_torch(target.seed), pair.run_ort(target.seed)
    assert len(expected.outputs) == len(actual.outputs) == len(pair.facts.outputs)
    for one, other in zip(expected.outputs, actual.outputs, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return pair


def test_torchscript_exports_a_build_that_agrees(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shapes = {"image": {0: "batch", 2: Size(4, 64, multiple_of=2)}}
    target = loaded(Conv(), {"image": IMAGE}, export=TORCHSCRIPT, dynamic_shapes=shapes, outputs=["logits"])
    pair = agree(target, make_build(target, tmp_path))
    facts = pair.facts
    assert facts.outputs == ("logits",)
    assert facts.build.origin == "exported by torchscript"
    assert facts.source_line.startswith("small_models.py:")
    dims = facts.contract.input("image").dims
    assert (dims[0].symbol, dims[2].low, dims[2].high, dims[2].multiple_of) == ("batch", 4, 64, 2)
    assert not dims[3].is_dynamic
    assert sorted(file.name for file in (tmp_path / facts.build.digest).iterdir()) == [
        "build.json",
        "model.onnx",
        "state.safetensors",
    ]
    assert capfd.readouterr() == ("", "")


def test_one_module_gives_one_digest_and_other_weights_another(tmp_path: Path) -> None:
    digests = []
    for shift in (0.0, 0.0, 1.0):
        module = Conv()
        with torch.no_grad():
            module.head.bias += shift
        facts = make_build(loaded(module, {"image": IMAGE}, export=TORCHSCRIPT), tmp_path).facts
        assert facts is not None
        digests.append(facts.build.digest)
    assert digests[0] == digests[1] != digests[2]
    assert len(list(tmp_path.iterdir())) == 2


def test_state_goes_back_into_another_module_and_is_checked(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self, width: int = 3) -> None:
            super().__init__()
            self.one = nn.Linear(width, width)
            self.two = nn.Linear(width, width)
            self.two.weight = self.one.weight
            self.register_buffer("turn", torch.randn(2, dtype=torch.complex64), persistent=False)
            self.register_buffer("narrow", torch.randn(2).bfloat16())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x))

    target = loaded(Tied(), {"x": ROW}, export=TORCHSCRIPT)
    facts = make_build(target, tmp_path).facts
    assert facts is not None
    fresh = loaded(Tied(), {"x": ROW}, export=TORCHSCRIPT)
    load_state(fresh, Path(facts.build.folder))
    for one, other in zip(target.module.parameters(), fresh.module.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(target.module.turn, fresh.module.turn)
    with pytest.raises(InvalidTarget, match="another module in every process"):
        load_state(loaded(Tied(4), {"x": ROW}), Path(facts.build.folder))
    with pytest.raises(InvalidTarget, match="cannot be read"):
        load_state(fresh, tmp_path / "absent")


def test_warnings_of_the_tracer_are_notes(tmp_path: Path) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x

    facts = make_build(loaded(forward, {"x": ROW}, export=TORCHSCRIPT), tmp_path).facts
    assert facts is not None
    assert "TracerWarning" in facts.build.notes[0]
    assert "test_export.py" in facts.build.notes[0]


def test_a_given_model_is_used_as_it_is(tmp_path: Path) -> None:
    target = loaded(nn.ReLU(), {"x": ROW}, onnx=relu())
    facts = agree(target, make_build(target, tmp_path)).facts
    assert facts.build.origin == "given"
    assert facts.contract.input("x").dims[0].symbol == "n"
    load_state(target, Path(facts.build.folder))


def test_a_model_that_ort_refuses_gives_an_execution(tmp_path: Path) -> None:
    target = loaded(lambda x: x.relu().clamp(-1, 1), {"x": np.zeros(3)}, onnx=relu_clip_double())
    facts = make_build(target, tmp_path).facts
    assert facts is not None
    refused = open_pair(target, facts, Path(facts.build.folder))
    assert isinstance(refused, Execution)
    assert refused.phase == "load"
    assert isinstance(open_pair(target, facts, Path(facts.build.folder), ort=Ort(optimization_level="none")), Pair)


@pytest.mark.parametrize(
    ("module", "inputs", "fields", "stage"),
    [
        (nn.Linear(4, 2), {"x": ROW}, {}, "run"),
        (lambda x: None, {"x": ROW}, {"onnx": relu()}, "run"),
        (nn.ReLU(), {"x": ROW.astype(np.float64)}, {"onnx": relu()}, "inputs"),
        (nn.ReLU(), {"x": ROW}, {"onnx": relu(), "outputs": ["a", "b"]}, "outputs"),
        (lambda x: (x, x), {"x": ROW}, {"onnx": relu()}, "outputs"),
        (nn.ReLU(), {"x": ROW}, {"onnx": relu(), "tolerances": {"z": "logits"}}, "declare"),
        (nn.ReLU(), {"x": ROW}, {"onnx": b"junk"}, "onnx"),
        (nn.ReLU(), {"x": ROW}, {"ort": Ort(providers=["CUDAExecutionProvider"])}, "provider"),
        (nn.ReLU(), {"x": ROW}, {"dynamic_shapes": {"y": {0: "n"}}}, "dynamic_shapes"),
    ],
)
def test_a_wrong_target_is_one_message(tmp_path: Path, module: object, inputs: dict, fields: dict, stage: str) -> None:
    fields.setdefault("export", TORCHSCRIPT)
    with pytest.raises(InvalidTarget) as caught:
        make_build(loaded(module, inputs, **fields), tmp_path)
    assert caught.value.stage == stage
    assert list(tmp_path.iterdir()) == []


def test_an_exporter_that_fails_on_a_sound_target_is_a_result(tmp_path: Path) -> None:
    target = loaded(lambda x: torch.linalg.eigvalsh(x @ x.T), {"x": ROW}, export=TORCHSCRIPT)
    result = make_build(target, tmp_path)
    assert result.facts is None
    assert result.kind == "export_error"
    assert result.error is not None
    assert "linalg_eigvalsh" in result.error.message
    assert facts_without_model(target).outputs == ("output_0",)


def test_a_flawed_model_is_noted_and_passed_on(tmp_path: Path) -> None:
    made = model(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [2, 3])}, {"y": (TensorProto.FLOAT, [9, 9])}
    )
    facts = make_build(loaded(nn.ReLU(), {"x": ROW}, onnx=made), tmp_path).facts
    assert facts is not None
    assert any("checker" in note for note in facts.build.notes)


def test_a_module_that_keeps_state_or_writes_to_inputs_keeps_its_build_state(tmp_path: Path) -> None:
    for module in (Counter(), InPlace()):
        target = loaded(module, {"x": ROW}, export=TORCHSCRIPT)
        facts = make_build(target, tmp_path).facts
        assert facts is not None
        load_state(target, Path(facts.build.folder))
    assert facts.mutates_inputs


@pytest.mark.slow
def test_dynamo_exports_builds_that_agree(tmp_path: Path) -> None:
    shapes = {"image": {0: "batch", 2: Size(4, 64), 3: Dim.DYNAMIC}}
    target = loaded(Conv(), {"image": IMAGE}, dynamic_shapes=shapes)
    pair = agree(target, make_build(target, tmp_path))
    assert all(pair.facts.contract.input("image").dims[dim].is_dynamic for dim in (0, 2, 3))
    bigger = dataclasses.replace(target.seed, inputs={"image": np.ones((5, 3, 7, 9), np.float32)})
    np.testing.assert_allclose(pair.run_torch(bigger).outputs[0], pair.run_ort(bigger).outputs[0], atol=1e-5)
    many = loaded(DictOutputs(), {"x": ROW})
    assert agree(many, make_build(many, tmp_path)).facts.outputs == ("second", "first.0", "first.1")
    plain = loaded(lambda a, *rest: a + rest[0], {"a": ROW, "b": ROW}, dynamic_shapes=({0: "n"}, {0: "n"}))
    assert agree(plain, make_build(plain, tmp_path)).facts.contract.input("b").dims[0].symbol == "n"


@pytest.mark.slow
def test_dynamo_exports_recurrent_embedding_and_bfloat16_models(tmp_path: Path) -> None:
    ids = np.array([[1, 2, 3], [4, 5, 6]])
    embedding = loaded(nn.Embedding(7, 4), {"ids": ids}, dynamic_shapes={"ids": {0: "batch"}})
    assert agree(embedding, make_build(embedding, tmp_path)).facts.contract.input("ids").index_limit == 7
    lstm = loaded(nn.LSTM(3, 4, batch_first=True), {"x": np.ones((2, 5, 3), np.float32)})
    agree(lstm, make_build(lstm, tmp_path))
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    narrow = loaded(lambda x: x.float() * 2, {"x": x})
    assert agree(narrow, make_build(narrow, tmp_path)).facts.build.computing_dtype == "bfloat16"


@pytest.mark.slow
def test_a_range_that_the_exporter_narrowed_is_noted_and_no_limit(tmp_path: Path) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[1] > 16 else x

    facts = make_build(loaded(forward, {"x": np.ones((2, 9), np.float32)}, dynamic_shapes=({1: "t"},)), tmp_path).facts
    assert facts is not None
    assert any("narrowed x[1] to 0..16" in note for note in facts.build.notes)
    assert facts.contract.input("x").dims[1].high is None
    assert {15, 16, 17} <= set(facts.contract.sizes)


@pytest.mark.slow
def test_dims_that_come_out_static_are_exported_again_from_another_sample(tmp_path: Path) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 1 else x.reshape(x.shape[0] * 2, -1)

    target = loaded(forward, {"x": np.ones((1, 4), np.float32)}, dynamic_shapes=({0: Dim("batch")},))
    facts = make_build(target, tmp_path).facts
    assert facts is not None
    assert facts.contract.input("x").dims[0].is_dynamic
    assert any("exported again from x[2, 4]" in note for note in facts.build.notes)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_programs_are_exported_by_the_exporter_that_takes_them(tmp_path: Path) -> None:
    x = torch.from_numpy(ROW)
    program = loaded(torch.export.export(nn.Linear(3, 2).eval(), (x,)), {"x": ROW})
    agree(program, make_build(program, tmp_path))
    script = torch.jit.script(nn.Linear(3, 2).eval())
    traced = loaded(script, {"x": ROW}, export=TORCHSCRIPT)
    agree(traced, make_build(traced, tmp_path))
    with pytest.raises(InvalidTarget, match="torchscript"):
        make_build(loaded(script, {"x": ROW}), tmp_path)


def test_the_pairs_referee_rounds_to_the_builds_precision(tmp_path: Path) -> None:
    target = loaded(nn.Linear(3, 2), {"x": ROW}, export=TORCHSCRIPT)
    pair = agree(target, make_build(target, tmp_path))
    assert pair.referee is pair.referee
    exact = pair.referee.exact(target.seed)
    assert exact is not None
    np.testing.assert_allclose(exact[0], pair.run_torch(target.seed).outputs[0], atol=1e-6)
    assert pair.run_ort(target.seed).status is Status.OK
    assert pair.environment.ort_providers == ("CPUExecutionProvider",)


@pytest.mark.slow
def test_an_export_in_a_process_of_its_own_is_not_spoilt_by_the_first(tmp_path: Path) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.lstm = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.lstm(x)[0]
            return y * 2 if x.shape[0] == 1 else y.reshape(x.shape[0] * 2, -1)

    def alone(attempt: Callable[[], Attempt]) -> Attempt:
        answer = run_alone(
            lambda announcer, send: attempt(), map_path=tmp_path / "map", limits=Limits(600), total_seconds=600
        )
        assert isinstance(answer, Attempt), answer
        return answer

    shapes = {0: Dim("batch"), 1: Dim("time")}
    target = loaded(Recurrent(), {"x": np.ones((1, 6, 3), np.float32)}, dynamic_shapes=(shapes,))
    facts = make_build(target, tmp_path / "builds", alone=alone).facts
    assert facts is not None
    assert all(facts.contract.input("x").dims[dim].is_dynamic for dim in (0, 1)), facts.build.notes
    assert any("exported again" in note for note in facts.build.notes)
    x = np.random.default_rng(0).normal(size=(3, 6, 3)).astype(np.float32)
    case = dataclasses.replace(target.seed, inputs={"x": x})
    pair = opened(target, BuildResult(facts))
    np.testing.assert_allclose(pair.run_torch(case).outputs[0], pair.run_ort(case).outputs[0], atol=1e-5)


def test_a_process_that_dies_while_it_exports_is_an_export_error(tmp_path: Path) -> None:
    def alone(attempt: Callable[[], Attempt]) -> Attempt:
        return Attempt(error=Refusal("SIGSEGV", "the exporting process ended with SIGSEGV", "exporter"))

    result = make_build(loaded(nn.ReLU(), {"x": ROW}), tmp_path, alone=alone)
    assert (result.kind, result.facts) == ("export_error", None)
    with pytest.raises(InvalidTarget, match="refuses its own inputs"):
        make_build(loaded(nn.Linear(4, 2), {"x": ROW}), tmp_path, alone=alone)


def test_facts_say_the_session_and_the_tolerances_of_the_user(tmp_path: Path) -> None:
    ort = Ort(optimization_level="basic")
    fields = {"ort": ort, "outputs": ["y"], "tolerances": {"y[..., :1]": "logits", "y": "strict"}}
    target = loaded(nn.ReLU(), {"x": ROW}, export=TORCHSCRIPT, **fields)
    facts = make_build(target, tmp_path).facts
    assert facts is not None
    for found in (facts, facts_without_model(target)):
        assert found.ort is ort
        assert found.tolerance_outputs == ("y",)
        assert found.environment.ort_level == "basic"
