"""Torch's own calls behind a cut: folded norms, scaled weights, writes in place, what cannot be told apart."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import nn

from fuzzparity.blame.matching import are_same
from fuzzparity.case import Array, Case
from fuzzparity.explain.counterpart import Counterpart, counterpart
from fuzzparity.report.torch_code import is_torch_code
from fuzzparity.sides.load import LoadedTarget, first_seed
from fuzzparity.sides.small_export import exported_calls
from fuzzparity.sides.spelled import spelled
from fuzzparity.sides.tape import taped
from fuzzparity.target import Export, Target


def loaded(module: Callable[..., object], **inputs: torch.Tensor) -> LoadedTarget:
    target = Target(module=module, inputs=inputs)
    return LoadedTarget(target, "net", "net", "", (), first_seed(target), target.module)


def found_in(
    module: Callable[..., object],
    feeds: Mapping[str, Array],
    weights: Mapping[str, Array],
    expected: Array,
    *,
    by_operator: bool = False,
    **inputs: torch.Tensor,
) -> Counterpart | None:
    case = Case({name: one.numpy() for name, one in inputs.items()})
    tape = taped(loaded(module, **inputs), case, by_operator=by_operator)
    return counterpart([tape], feeds, weights, {"y": expected}, are_same)


def code_of(found: Counterpart) -> tuple[str, ...]:
    code = spelled(found.calls, {number: name for number, (name, _) in found.takes.items()}, found.outputs)
    assert code is not None
    assert is_torch_code(code, [name for name, _ in found.takes.values()])
    return code


class Net(nn.Module):
    """A convolution with its norm, between two other layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4).eval()
        with torch.no_grad():
            self.norm.running_var.uniform_(0.5, 2.0)
            self.norm.running_mean.uniform_(-1.0, 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(self.conv(torch.sin(x))))


def folded_weights(net: Net) -> tuple[Array, Array]:
    scale = net.norm.weight / torch.sqrt(net.norm.running_var + net.norm.eps)
    weight, bias = net.conv.weight * scale[:, None, None, None], net.norm.bias - net.norm.running_mean * scale
    return weight.detach().numpy(), bias.detach().numpy()


@pytest.mark.parametrize(("factor", "free"), [(1.0, {"x", "w", "w1"}), (1.25, {"x", "t", "w1"})])
def test_a_norm_is_folded_as_the_file_has_it_and_a_scaled_weight_keeps_its_factor(factor, free):
    net, x = Net(), torch.randn(2, 3, 5, 5)
    weight, bias = folded_weights(net)
    with torch.no_grad():
        given, answer = torch.sin(x).numpy(), net.norm(net.conv(torch.sin(x))).numpy()
    found = found_in(net, {"x": given}, {"w": weight * np.float32(factor), "w1": bias}, answer, x=x)
    assert found is not None
    assert found.free == free
    (line, _) = code_of(found)
    assert line.startswith(f"v1 = torch.nn.functional.conv2d(x, {'w' if factor == 1.0 else 't'}, w1, (1, 1), (1, 1)")
    arrays = {"x": given[:1, :, :3, :3], "w": weight, "w1": bias, **found.own}
    (again,) = found.run(arrays) or (np.zeros(0),)
    assert np.allclose(again[..., 1, 1], answer[:1, ..., 1, 1], atol=1e-5)
    if factor != 1.0:
        assert np.allclose(found.related["w"].weight(arrays), weight * 1.25)


def test_what_torch_writes_in_place_is_part_of_what_reads_it_later():
    def net(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[0] = y[0].abs() + 1
        return y.sum(1)

    x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    found = found_in(net, {"x": x.numpy()}, {}, net(x).numpy(), x=x)
    assert found is not None
    code = code_of(found)
    assert "v1[0] = v4" in code, "the write stands between what it is made of and the sum"
    other = np.array([[5.0, -6.0], [-7.0, 8.0]], np.float32)
    (answer,) = found.run({"x": other}) or (None,)
    assert np.array_equal(answer, net(torch.from_numpy(other)).numpy())


def test_no_program_where_two_values_could_be_meant():
    def net(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.exp(x)) + 1  # a relu that changes nothing here

    x = torch.tensor([0.5, 1.5])
    assert found_in(net, {"x": x.numpy()}, {}, x.exp().numpy(), x=x) is None
    found = found_in(net, {"x": x.exp().numpy()}, {}, (x.exp() + 1).numpy(), x=x)
    assert found is not None
    assert found.free == set(), "before or behind the relu: other values would tell them apart"


def test_equal_weights_are_left_as_they_are():
    linear = nn.Linear(2, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        linear.bias.zero_()
    x = torch.tensor([[0.5, 1.5]])
    weights = {"w": linear.weight.detach().numpy(), "w1": np.zeros(2, np.float32), "w2": np.zeros(2, np.float32)}
    found = found_in(linear, {"x": x.numpy()}, weights, linear(x).detach().numpy(), x=x)
    assert found is not None
    assert found.free == {"x", "w"}


def test_operators_give_what_functions_do_not():
    x = torch.tensor([[3.0, 4.0], [0.1, 0.2]])
    length = x.norm(2, 1, keepdim=True).clamp_min(0.5).expand_as(x).contiguous().numpy()
    net = functools.partial(torch.nn.functional.normalize, eps=0.5)
    assert found_in(net, {"x": x.numpy()}, {}, length, x=x) is None
    found = found_in(net, {"x": x.numpy()}, {}, length, by_operator=True, x=x)
    assert found is not None
    assert [line.split("(")[0] for line in code_of(found)][1] == "v2 = torch.ops.aten.clamp_min.default"


def test_the_calls_are_exported_as_a_module_of_their_own():
    import onnxruntime

    x = torch.tensor([1e-9, 0.5])
    found = found_in(torch.log1p, {"x": x.numpy()}, {}, torch.log1p(x).numpy(), x=x)
    assert found is not None
    model = exported_calls(found.calls, found.leaves({"x": x.numpy()}), {}, found.outputs, Export("torchscript"))
    assert model is not None
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert answer.shape == (2,)


@pytest.mark.parametrize(
    "line",
    [
        "v1 = torch.load(x)",
        "v1 = torch.hub.load('a', 'b')",
        "v1 = open('a')",
        "v1 = __import__('os').system('a')",
        "v1 = x.__class__",
        "v1 = x.numpy().tofile('a')",
        "v1 = torch.ops.load_library('a')",
        "import os",
        "v1 = (lambda: 1)()",
        "v1 = [y for y in x]",
        "x = 1; y = 2",
        "v1 = y",
        "v1 = torch.from_file('a')",
    ],
)
def test_lines_that_do_more_than_compute_are_no_torch_code(line):
    assert not is_torch_code((line, "return (x,)"), ["x"])


def test_plain_lines_are_torch_code():
    lines = ("v1, _ = torch.max(x, 1)", "v1[0, :2] = -x.T[0] // 2", "v2 = torch.where(v1 > float('inf'), v1, x.shape)")
    assert is_torch_code((*lines, "return (v2, v1)"), ["x"])
