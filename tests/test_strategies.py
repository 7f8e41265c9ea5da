"""Property tests of a user's own: recipes that shrink, and the assertion that judges in this process."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from onnx import parser

import fuzzparity
from fuzzparity import Size, Target, strategies
from fuzzparity.campaign.options import STATE_FOLDER
from fuzzparity.errors import InvalidCase, InvalidTarget
from fuzzparity.generate.contract import breach
from fuzzparity.parity import opened_target
from fuzzparity.strategies import Recipe, Values, made
from fuzzparity.verdict import Grade, Kind

FEW = settings(max_examples=60, database=None, deadline=None, derandomize=True)
MANY = settings(max_examples=600, database=None, deadline=None, derandomize=True)
MANY = settings(MANY, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate, Phase.shrink])


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def onnx_of(text: str):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> graph {text}')


class Centred(torch.nn.Module):
    """Subtract the mean of each row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(1, keepdim=True)


BURNT_IN = """(float[n, w] x) => (float[n, w] y) <float[1] size = {6}, int64[1] axes = {1}> {
    sum = ReduceSum (x, axes)
    mean = Div (sum, size)
    y = Sub (x, mean)
}"""  # the mean of rows of 6, whatever their length

RIGHT = BURNT_IN.replace("sum = ReduceSum (x, axes)", "").replace("Div (sum, size)", "ReduceMean (x, axes)")


@functools.cache
def burnt_in() -> Target:
    inputs = {"x": np.arange(12, dtype=np.float32).reshape(2, 6)}
    return Target(module=Centred(), inputs=inputs, onnx=onnx_of(BURNT_IN), dynamic_shapes={"x": {0: "n", 1: "w"}})


@functools.cache
def right() -> Target:
    return Target(
        module=Centred(),
        inputs={"x": np.arange(12, dtype=np.float32).reshape(2, 6)},
        onnx=onnx_of(RIGHT),
        dynamic_shapes={"x": {0: "n", 1: Size(2, 40, name="w", multiple_of=2)}},
        ranges={"x": (-1e6, 1e6)},
    )


class Table(torch.nn.Module):
    """Look tokens up, where a mask says so."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.table(ids) * mask.unsqueeze(-1)


@functools.cache
def table() -> Target:
    return Target(
        module=Table(),
        inputs={"ids": torch.tensor([[1, 2, 3]]), "mask": torch.ones(1, 3)},
        export=fuzzparity.Export(exporter="torchscript"),
        dynamic_shapes={"ids": {0: "batch", 1: "time"}, "mask": {0: "batch", 1: "time"}},
    )


def test_a_property_test_finds_and_shrinks_a_planted_fault() -> None:
    met = []

    @MANY
    @given(strategies.inputs(burnt_in(), nonfinite=False))
    def agrees(inputs) -> None:
        try:
            fuzzparity.assert_parity(burnt_in(), inputs)
        except AssertionError:
            met.append(inputs)
            raise

    with pytest.raises(AssertionError, match=r"numeric \(bug\): y: ORT is .* off torch"):
        agrees()
    last = met[-1]["x"]  # Hypothesis runs the smallest one last
    assert last.size <= min(x["x"].size for x in met) <= 2
    assert np.isin(last, np.arange(12)).all(), "a plain kind of values: those of the target's own inputs"


def test_a_right_twin_raises_nothing_whatever_is_drawn() -> None:
    seen = set()

    @MANY
    @given(strategies.inputs(right()))
    def agrees(inputs) -> None:
        judgement = fuzzparity.assert_parity(right(), inputs)
        seen.add((judgement.kind, inputs["x"].shape[1]))

    agrees()
    assert len({width for _, width in seen}) >= 15
    assert all(width % 2 == 0 and 2 <= width <= 40 for _, width in seen)


def test_inputs_are_inside_the_contract_and_of_many_kinds() -> None:
    contract = opened_target(table()).build(()).contract
    drawn = []

    @settings(FEW, max_examples=300)
    @given(strategies.inputs(table(), nonfinite=False))
    def draw(inputs) -> None:
        case = opened_target(table()).case(inputs)
        assert breach(contract, case) == ""
        assert case.is_finite
        drawn.append(case)

    draw()
    shapes = {case.inputs["ids"].shape for case in drawn}
    assert {0, 1} <= {shape[1] for shape in shapes}
    assert len(shapes) > 40
    assert all(case.inputs["mask"].shape == case.inputs["ids"].shape for case in drawn)
    assert any((case.inputs["mask"] == 0).any() and (case.inputs["mask"] == 1).any() for case in drawn)


def test_a_recipe_makes_the_same_inputs_again_under_the_cap() -> None:
    recipe = Recipe({"n": 900, "w": 900}, {"x": Values("fresh", exponent=3)}, rng_seed=7)
    first, again = made(burnt_in(), recipe, max_elements=2000), made(burnt_in(), recipe, max_elements=2000)
    assert first == again
    assert 500 <= first.elements <= 2000
    assert made(burnt_in(), Recipe({}, {})).inputs["x"].tolist() == burnt_in().inputs["x"].tolist()


def test_valid_of_the_target_is_kept() -> None:
    target = Target(
        module=Centred(), inputs={"x": np.ones((2, 6), np.float32)}, onnx=onnx_of(RIGHT),
        dynamic_shapes={"x": {0: "n", 1: "w"}}, valid=lambda inputs: inputs["x"].shape[0] == 2,
    )  # fmt: skip

    @FEW
    @given(strategies.inputs(target))
    def draw(inputs) -> None:
        assert inputs["x"].shape[0] == 2

    draw()


def test_dtypes_are_builds_and_each_is_judged_as_itself() -> None:
    target = Target(
        module=Centred(), inputs={"x": np.ones((2, 6), np.float32)}, dtypes={"x": ["float32", "float64"]},
        export=fuzzparity.Export(exporter="torchscript"), dynamic_shapes={"x": {0: "n", 1: "w"}},
    )  # fmt: skip
    met = set()

    @FEW
    @given(strategies.inputs(target, nonfinite=False))
    def draw(inputs) -> None:
        met.add(inputs["x"].dtype.name)
        fuzzparity.assert_parity(target, inputs)

    draw()
    assert met == {"float32", "float64"}


def test_a_failure_says_kind_grade_evidence_and_how_to_go_on(tmp_path) -> None:
    with pytest.raises(AssertionError) as caught:
        fuzzparity.assert_parity(burnt_in(), {"x": torch.tensor([[1.0, 2.0]])})
    said = str(caught.value)
    assert "numeric (bug): y: ORT is 1 off torch" in said
    assert "exact answer" in said
    assert "x: float32[1, 2] [[1.0, 2.0]]" in said
    saved = tmp_path / STATE_FOLDER / "target" / "parity.safetensors"
    assert re.search(r"fuzzparity explain TARGET (\S+)", said).group(1) == str(saved.relative_to(tmp_path))
    assert saved.is_file()


def test_what_is_outside_the_contract_or_arithmetic_is_no_failure() -> None:
    judgement = fuzzparity.assert_parity(right(), {"x": np.full((1, 3), 5.0, np.float32)})  # widths are even
    assert judgement.kind in (Kind.AGREE, Kind.REJECTED) or judgement.worst.grade is Grade.CONTRACT
    rng = np.random.default_rng(0)
    wide = (rng.standard_normal((4, 40)) * 1e-3 + 1e6 - 1).astype(np.float32)
    assert all(v.grade is not Grade.BUG for v in fuzzparity.assert_parity(right(), {"x": wide}).verdicts)


def test_one_target_is_opened_once() -> None:
    assert opened_target(right()) is opened_target(right())
    opened = opened_target(right())
    assert opened.build(()) is opened.build(())


def test_wrong_inputs_and_targets_are_told_apart_from_faults() -> None:
    with pytest.raises(InvalidCase, match=r"missing: 'x'; unknown: 'y'; the target's inputs are 'x'"):
        fuzzparity.assert_parity(right(), {"y": np.ones(3)})
    with pytest.raises(InvalidCase, match="input 'x' is str"):
        fuzzparity.assert_parity(right(), {"x": "no"})
    with pytest.raises(InvalidTarget, match="give a Target"):
        fuzzparity.assert_parity(lambda: 3, {"x": np.ones(3)})


def test_a_model_that_ort_cannot_open_is_a_failure() -> None:
    text = "(double[1, 1, n] x) => (double[1, 1, m] y) <double[1, 1, 1] w = {1}> { y = Conv (x, w) }"
    inputs = {"x": np.ones((1, 1, 3))}  # ORT has no Conv in float64
    with pytest.raises(AssertionError, match=r"load_error \(bug\).*Conv"):
        fuzzparity.assert_parity(Target(module=lambda x: x * 1, inputs=inputs, onnx=onnx_of(text)), inputs)


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fuzzparity.assert_parity(right(), {"x": np.ones((1, 4), np.float32)})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("code", ["import fuzzparity", "from fuzzparity import *; Target"])
def test_only_naming_them_loads_torch_and_hypothesis(code: str) -> None:
    tail = "; import sys; sys.exit(sum(name in sys.modules for name in ('torch', 'hypothesis', 'onnxruntime')))"
    done = subprocess.run([sys.executable, "-c", code + tail], env=os.environ, check=False)
    assert done.returncode == 0


def every_name() -> Iterator[str]:
    yield from (name for name in dir(strategies) if not name.startswith("_"))


def test_the_package_gives_both_by_name() -> None:
    assert fuzzparity.strategies is strategies
    assert {"inputs", "recipes", "made", "Recipe", "Values"} <= set(every_name())
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = fuzzparity.nothing_like_it
