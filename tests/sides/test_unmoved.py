"""What comes from integers alone is known, whatever stands beside it; what a float can reach is never taken for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_models import case, loaded
from torch import Tensor, nn

from fuzzparity.sides.referee import Referee

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
K = np.array([[3, -5, 7, 0], [1, 2, 9, -4], [6, 6, 2, 1]], np.int64)


class Net(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("steps", torch.arange(4))

    def forward(self, x: Tensor, k: Tensor) -> Any:
        return self.function(self, x, k)


def unmoved(module: Any) -> frozenset[int]:
    referee = Referee(loaded(module, {"x": X, "k": K}))
    found = referee.unmoved(case(x=X, k=K))
    assert not referee.missing
    return found


def _write(net: Net, x: Tensor, k: Tensor) -> Tensor:
    filled = torch.zeros_like(k)
    filled[:] = x.argmax(1, keepdim=True)
    return filled


def _count(net: Net, x: Tensor, k: Tensor) -> Tensor:
    return k + int((x > 0).sum())


def _arm(net: Net, x: Tensor, k: Tensor) -> Tensor:
    return k * 2 if bool(x.sum() > 0) else k


def _positive_sizes(net: Net, x: Tensor, k: Tensor) -> Tensor:
    return torch.arange(x[x > 0].shape[0])


STILL = {
    "arithmetic": lambda net, x, k: torch.div(k, 4, rounding_mode="floor") * 3 + 1,
    "beside floats": lambda net, x, k: (k % 5).cumsum(1) + 0 * k.shape[0],
    "a buffer of integers": lambda net, x, k: net.steps + k,
    "a comparison": lambda net, x, k: k > 2,
    "an arm on integers": lambda net, x, k: k + int(k.sum()) if bool(k[0, 0] > 0) else k,
    "the places of integers": lambda net, x, k: torch.nonzero(k),
    "a write of integers": lambda net, x, k: k.clone().add_(1),
    "a write of sparse floats beside": lambda net, x, k: (torch.zeros(3, 4).double().add_(x.to_sparse()), k)[1] + 1,
    "floats moved by integers before": lambda net, x, k: (x[k[:, 0].abs() % 3], k)[1] + 1,
}
MOVED = {
    "places of floats": lambda net, x, k: x.argmax(1),
    "integers of floats": lambda net, x, k: x.long() + k,
    "integers by way of floats": lambda net, x, k: (k.float() * 0.5).long(),
    "a choice by floats": lambda net, x, k: torch.where(x > 0, k, -k),
    "an order among equals": lambda net, x, k: k.topk(2).indices,
    "a write of floats": _write,
    "a count read into Python": _count,
    "an arm on floats": _arm,
    "a size that floats decide": _positive_sizes,
    "chance": lambda net, x, k: torch.randint(0, 9, (3,)),
    "floats": lambda net, x, k: x * k,
}


@pytest.mark.parametrize("function", STILL.values(), ids=STILL)
def test_what_comes_from_integers_alone_is_unmoved(function: Callable[..., Any]) -> None:
    assert unmoved(Net(lambda net, x, k: (x.exp(), function(net, x, k)))) == {1}


@pytest.mark.parametrize("function", MOVED.values(), ids=MOVED)
def test_what_floats_or_chance_reach_is_not(function: Callable[..., Any]) -> None:
    assert unmoved(Net(lambda net, x, k: (x.exp(), function(net, x, k)))) == frozenset()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_torchscript_reads_values_unseen_and_is_not_followed() -> None:
    class Scripted(nn.Module):
        def forward(self, x: Tensor, k: Tensor) -> Tensor:
            return k * 2 if bool(x.sum() > 0) else k

    assert unmoved(torch.jit.script(Scripted())) == frozenset()
