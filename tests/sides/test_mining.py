"""Numbers of a model's own code become goals: comparisons, divisors, factors, attributes, functions that are called."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from small_models import model

from fuzzparity.sides.graph import read_graph
from fuzzparity.sides.mining import Mined, mined

LIMIT = 307
EDGES = (0.125, 4.25)
node = helper.make_node


def half_of(x: torch.Tensor, size: int) -> torch.Tensor:
    return x[:, :512] if x.shape[1] // size > 9 else x


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = 12

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.shape[1] % self.step else x + 1


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = 48
        self.inner = Inner()
        self.linear = torch.nn.Linear(7777, 1)  # an engine's class: its own code says nothing of this model

    @property
    def expensive(self) -> int:
        raise AssertionError("a property of the user's is never run")

    def forward(self, x: torch.Tensor, scale: float = 1.75) -> torch.Tensor:
        """Do this 999 times."""
        factor = 0.29
        keep = int(x.shape[1] * factor)
        if x.shape[1] >= LIMIT or self.expensive == 5 or x.shape[0] == 2**10:
            x = x[:, :keep] * scale
        x = half_of(self.inner(x), self.block)
        return torch.where(x > EDGES[1], x / 1.1, -x).reshape(-1, 16)


def test_code_gives_thresholds_sizes_periods_and_factors() -> None:
    found = mined(Net())
    assert {307.0, 0.125, 4.25, 5.0, 1024.0, 1.75, 48.0, 12.0, 9.0, 512.0} <= set(found.constants)
    assert {307, 1024, 12, 48, 512} <= set(found.sizes)
    assert {12, 16} <= set(found.periods)
    assert {0.29, 1.75, 1 / 1.1} <= set(found.factors)
    assert not {999.0, 7777.0} & set(found.constants)
    assert found.constants.index(307.0) < found.constants.index(1.75)  # what is compared with comes first


def test_numbers_that_any_search_tries_come_last() -> None:
    found = mined(lambda x: -x if x.sum() > 0 and x.max() < 13.5 else x)
    assert found.constants == (13.5, 0.0)


def test_plain_functions_methods_and_partial_calls_are_read() -> None:
    for target in (half_of, functools.partial(half_of, size=3), functools.partial(functools.partial(half_of), size=3)):
        assert 512 in mined(target).sizes
    assert 12 in mined(Inner().forward).periods


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_programs_without_functions_are_read_by_their_text() -> None:
    scripted = torch.jit.script(Inner())
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Hardtanh(-3.5, 2.5)))
    assert 12 in mined(scripted).periods
    assert isinstance(mined(traced), Mined)


def test_code_without_a_source_is_read_by_its_bytecode() -> None:
    scope: dict[str, Any] = {}
    exec("def net(x):\n    return x if x.shape[0] % 24 == 5 else x * 0.57", scope)
    found = mined(scope["net"])
    assert found.periods == (24,)
    assert found.factors == (0.57,)
    assert 5.0 in found.constants


def test_what_is_no_code_says_nothing() -> None:
    assert mined(torch.nn.ReLU()) == mined(len) == mined(object()) == mined(None) == Mined()


def test_graphs_give_periods_steps_factors_and_weights_dims() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], kernel_shape=[7], strides=[5]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[3], strides=[2]),
        node("QuantizeLinear", ["b", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        node("Less", ["d", "edge"], ["less"]),
        node("Resize", ["d", "", "scales"], ["r"], mode="nearest"),
        node("Mod", ["n", "m"], ["rest"]),
    ]
    inputs = {"x": (TensorProto.FLOAT, [1, 2, "t"]), "n": (TensorProto.INT64, [1])}
    weights = {
        "other": np.arange(5, dtype=np.float32),
        "w": np.zeros((2, 211, 7), np.float32),
        "scale": np.float32(0.0417),
        "zero": np.int8(3),
        "edge": np.float32(2.375),
        "scales": np.array([1, 1, 2.3], np.float32),
        "m": [24],
    }
    facts = read_graph(model(nodes, inputs, {"less": (TensorProto.BOOL, None)}, weights))
    assert {5, 10, 35, 6, 24} <= set(facts.periods)
    assert facts.steps == (float(np.float32(0.0417)),)
    assert facts.factors == (2.3,)
    assert 211 in facts.sizes
    assert facts.constants[0] == 2.375  # an operand of a comparison before anything else
