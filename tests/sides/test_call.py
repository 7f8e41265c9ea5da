"""Calls: nested and keyword arguments from flat cases, flat cases from nested items, and outputs of every structure."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from small_models import case, loaded
from torch import nn

from fuzzparity import Target
from fuzzparity.errors import InvalidCase, InvalidTarget
from fuzzparity.sides.call import Call
from fuzzparity.sides.referee import Referee
from fuzzparity.sides.tensors import flatten_outputs, output_names
from fuzzparity.sides.torch_side import TorchSide

ROW = torch.ones(1, 2)


class State(NamedTuple):
    hidden: Any
    cell: Any


class Nested(nn.Module):
    """Add up a nested structure, each part with another weight, so that an exchange shows."""

    def forward(
        self, x: torch.Tensor, cache: dict[str, Any], flag: bool, *, state: State, scale: torch.Tensor | None = None
    ) -> torch.Tensor:
        assert isinstance(state, State)
        assert isinstance(cache["k"], tuple)
        assert flag is True
        assert cache["mode"] == "sum"
        total = x + 10 * cache["k"][0] + 100 * cache["v"][0] + 1000 * state.hidden + 10000 * state.cell
        return total if scale is None else total * scale


def nested() -> Target:
    cache = {"k": (ROW, None), "v": [2 * ROW], "mode": "sum"}
    return Target(
        module=Nested(),
        inputs={"image": ROW, "cache": cache, "flag": True},
        kwargs={"state": State(ROW, 2 * ROW), "scale": None},
    )


NAMES = ("image", "cache.k.0", "cache.v.0", "state.0", "state.1")


def test_a_flat_case_becomes_nested_arguments_on_every_side() -> None:
    target = nested()
    one = loaded(target.module, dict(target.inputs), kwargs=target.kwargs)
    assert tuple(one.seed.inputs) == one.call.names == NAMES
    assert TorchSide(one).run(one.seed).outputs[0].tolist() == [[21211.0, 21211.0]]
    changed = one.seed.replace(**{"cache.v.0": np.full((1, 2), 5, np.float32)})
    assert TorchSide(one).run(changed).outputs[0].tolist() == [[21511.0, 21511.0]]
    exact = Referee(one).exact(changed)
    assert exact is not None
    assert exact[0].dtype == np.float64
    assert exact[0].tolist() == [[21511.0, 21511.0]]


def test_a_nested_item_becomes_a_flat_case() -> None:
    call = Call.of(nested())
    item = {"image": 1, "cache": {"k": (2, None), "v": [3], "mode": "sum"}, "state": (4, 5), "label": "cat"}
    assert call.item(item) == dict(zip(NAMES, range(1, 6), strict=True))
    flat = dict(zip(NAMES, range(1, 6), strict=True))
    assert call.item({**flat, "flag": True}) == flat
    assert call.item({"state": [4, 5], "cache": {"v": [3]}, "image": 1}) == {n: flat[n] for n in NAMES if n != NAMES[1]}
    assert list(call.item({"state": [4, 5], "image": 1})) == ["image", "state.0", "state.1"]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"flag": False}, "flag is False, and True in the target"),
        ({"cache": {"k": (2, 3)}}, "constants are part of the model"),
        ({"cache": {"v": [1, 2]}}, "cache.v is 2 items; wanted 1"),
        ({"cache": {"w": 1}}, "holds 'w'; wanted k, v, mode"),
        ({"cache": 3}, "cache is int; wanted a dict"),
    ],
)
def test_an_item_of_another_structure_is_refused(item: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidCase, match=said):
        Call.of(nested()).item(item)


def test_inputs_go_by_position_whatever_they_are_called() -> None:
    call = Call.of(Target(module=nn.ReLU(), inputs={"b": ROW, "a": ROW}))
    assert call.arguments([1, 2]) == ((1, 2), {})
    call.require(nn.Bilinear(2, 2, 2))
    call.require(torch.add)  # its signature is not known to Python
    call.require(lambda *xs: xs[0])
    call.require(scripted(nn.ReLU()))


def scripted(module: nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(module)


def wrapped(forward: Any) -> Any:
    @functools.wraps(forward)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **{"extra": 1, **kwargs})

    return inner


def test_a_forward_that_cannot_take_the_call_is_said() -> None:
    target = Target(module=nn.ReLU(), inputs={"x": ROW, "scale": ROW}, kwargs={"mask": ROW})
    call = Call.of(target)
    with pytest.raises(InvalidTarget, match="inputs x, scale by position, kwargs mask=") as caught:
        call.require(lambda x, *, scale, mask: x)
    assert "give scale in kwargs" in caught.value.advice
    with pytest.raises(InvalidTarget, match="unexpected keyword argument 'mask'"):
        call.require(lambda x, scale: x)
    with pytest.raises(InvalidTarget, match="missing a required argument: 'more'"):
        call.require(lambda x, scale, more, mask=None: x)
    call.require(lambda x, *rest, **named: x)
    call.require(wrapped(lambda x, scale, mask, extra: x))  # what is called takes everything


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Inner:
    boxes: Any
    absent: Any = None


@dataclasses.dataclass
class Outer:
    logits: Any
    inner: Any


@pytest.mark.parametrize(
    ("output", "names", "values"),
    [
        (torch.tensor(1.0), ("",), (1,)),
        ([torch.tensor(1), None, (torch.tensor(2), 3)], ("", "", ""), (1, 2, 3)),
        (Pair(torch.tensor(1), torch.tensor(2)), ("first", "second"), (1, 2)),
        ({"b": torch.tensor(1), "a": [torch.tensor(2), None]}, ("b", "a.0"), (1, 2)),
        (Outer(torch.tensor(1), Inner(torch.tensor(2))), ("logits", "inner.boxes"), (1, 2)),
        ((torch.tensor(1), {"d": Inner(torch.tensor(2))}), ("", "1.d.boxes"), (1, 2)),
        ({"text": "a", "n": 4, "flag": True}, ("n", "flag"), (4, True)),
    ],
)
def test_outputs_of_every_structure_are_flattened_and_named(
    output: Any, names: tuple[str, ...], values: tuple[float, ...]
) -> None:
    assert output_names(output) == names
    assert tuple(array.item() for array in flatten_outputs(output)) == values


def test_plain_callables_and_programs_take_kwargs() -> None:
    def plain(x: torch.Tensor, *, pair: list[torch.Tensor]) -> torch.Tensor:
        return x + pair[0] * pair[1]

    class Module(nn.Module):
        def forward(self, x: torch.Tensor, pair: list[torch.Tensor]) -> torch.Tensor:
            return x + pair[0] * pair[1]

    kwargs = {"pair": [2 * ROW, 3 * ROW]}
    program = torch.export.export(Module(), (ROW,), kwargs)
    for module in (plain, program, scripted(Module())):
        one = loaded(module, {"x": ROW}, kwargs=kwargs)
        assert TorchSide(one).run(one.seed).outputs[0].tolist() == [[7.0, 7.0]], module
        exact = Referee(one).exact(one.seed)
        assert exact is not None, module
        assert exact[0].tolist() == [[7.0, 7.0]], module


def test_a_case_with_another_number_of_inputs_is_refused_as_the_module_would() -> None:
    one = loaded(nn.ReLU(), {"x": ROW})
    assert TorchSide(one).run(case(x=np.ones(2), y=np.ones(2))).refusal is not None
