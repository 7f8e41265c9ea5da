"""Gradients: thresholds inside a module are met, whatever becomes of their result, and differentiated."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fuzzparity import Target
from fuzzparity.case import Case
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.generate.boundary import Shown, approach
from fuzzparity.generate.rng import Rng
from fuzzparity.sides.gradients import Thresholds
from fuzzparity.sides.load import LoadedTarget, first_seed


class Called(nn.Module):
    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self._forward = forward

    def forward(self, *inputs: torch.Tensor) -> Any:
        self.count += 1
        return self._forward(*inputs)


def thresholds_of(forward: Callable[..., Any], *inputs: torch.Tensor) -> tuple[Thresholds, Case, nn.Module]:
    module = Called(forward).eval()
    target = Target(module=module, inputs={f"x{i}": one for i, one in enumerate(inputs)})
    loaded = LoadedTarget(target, "t", "t", "", (), first_seed(target), module)
    return Thresholds(loaded), loaded.seed, module


def branching(x: torch.Tensor) -> torch.Tensor:
    if x.square().sum() > 10:
        return x
    return -x


@pytest.mark.parametrize(
    ("forward", "margin", "gradient"),
    [
        (branching, 14 - 10, [2, 4, 6]),
        (lambda x: torch.where(x.sum() > 7, x, -x), 6 - 7, [1, 1, 1]),
        (lambda x: (2 * x) > torch.tensor([1.0, 3.5, 9.0]), 0.5, [0, 2, 0]),
        (lambda x: (x * 0.4).round(), 0.4 - 0.5, [0.4, 0, 0]),
        (lambda x: torch.floor(x * 0.3), 0.9 - 1.0, [0, 0, 0.3]),
        (lambda x: x.topk(2).indices, 2 - 1, [-1, 1, 0]),
        (lambda x: x.argmax(), 3 - 2, [0, -1, 1]),
        (lambda x: (x * x).min(0)[1], 4 - 1, [-2, 4, 0]),
        (lambda x: torch.cond(x.sum() < 7, lambda y: y + 1, lambda y: y - 1, (x,)), 6 - 7, [1, 1, 1]),
    ],
)
def test_a_margin_and_its_gradient(forward: Callable[..., Any], margin: float, gradient: list[float]) -> None:
    thresholds, seed, module = thresholds_of(forward, torch.tensor([1.0, 2.0, 3.0]))
    (met,) = thresholds.met(seed)
    assert met.margin == pytest.approx(margin, rel=1e-5)
    assert "(test_gradients.py:" in met.key
    found = thresholds.toward(seed, met)
    assert found is not None
    assert found[0] == pytest.approx(margin, rel=1e-5)
    assert found[1]["x0"].tolist() == pytest.approx(gradient, rel=1e-5)
    assert float(module.get_buffer("count")) == 0.0  # state is put back


def test_thresholds_are_told_apart_by_their_order_and_line() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.where(x > 4, x, -x)
        return torch.where(y.sum() > 7, y, -y)

    thresholds, seed, _ = thresholds_of(forward, torch.tensor([1.0, 2.0]))
    met = thresholds.met(seed)
    assert [one.key.split(" (")[0] for one in met] == ["gt 0", "gt 1"]
    assert len({one.key.split(":")[1] for one in met}) == 2


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x * 2,
        lambda x: x.long() > 1,
        lambda x: torch.zeros(2).sum() > 1,  # no input leads to it
        lambda x: x.detach().sum() > 1,
        lambda x: torch.linalg.cholesky(x),  # refused
    ],
)
def test_without_a_way_there_is_none(forward: Callable[..., Any]) -> None:
    thresholds, seed, _ = thresholds_of(forward, torch.tensor([1.0, 2.0]))
    for one in thresholds.met(seed):
        found = thresholds.toward(seed, one)
        assert found is None or found[1] == {}


def test_integer_inputs_and_writes_to_inputs_are_borne() -> None:
    def forward(ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x.mul_(3)
        return x[ids].sum() > 5

    thresholds, seed, _ = thresholds_of(forward, torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
    found = thresholds.toward(seed, thresholds.met(seed)[0])
    assert found is not None
    assert {name: one.tolist() for name, one in found[1].items()} == {"x1": [6, 0]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_that_hides_its_operators_has_no_thresholds() -> None:
    scripted = torch.jit.trace(lambda x: x * (x > 1), torch.ones(2))
    thresholds, seed, _ = thresholds_of(scripted, torch.tensor([1.0, 2.0]))
    assert thresholds.met(seed) == ()


def test_an_approach_crosses_a_threshold_that_no_case_crossed_and_ends_beside_it() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.square().mean() > 1e4, 1.0, 0.0)

    thresholds, seed, module = thresholds_of(forward, torch.tensor([0.1, -0.2, 0.3]))
    (met,) = thresholds.met(seed)
    steps = approach(seed, met, thresholds.toward, lambda case: case, Rng(0, 0))
    case, values = next(steps, None), []
    while case is not None:
        x = torch.from_numpy(case.inputs["x0"].copy())
        values.append((float(x.double().square().mean()), float(module(x))))
        done = Execution(TORCH, Status.OK, (np.zeros(1),)), Execution(ORT, Status.OK, (np.zeros(1),))
        try:
            case = steps.send(Shown(done))
        except StopIteration:
            break
    assert len(values) < 90
    assert {answer for _, answer in values} == {0.0, 1.0}
    assert min(abs(value - 1e4) for value, _ in values) < 1e-2  # ten ulps of the mean
