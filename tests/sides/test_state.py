"""State: whatever a run changes in a module is put back, said, and seen by its answers where it cannot be."""

from __future__ import annotations

import functools
import types
import warnings
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from small_models import case, contract, loaded, model
from torch import nn

from fuzzparity import Ort
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import ORT
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import Policy
from fuzzparity.sides.conduct import observe, require_carry
from fuzzparity.sides.guard import StateGuard
from fuzzparity.sides.ort_side import OrtSide, open_ort
from fuzzparity.sides.referee import Referee
from fuzzparity.sides.shapes import asked_dims
from fuzzparity.sides.terms import contract_without_model
from fuzzparity.sides.torch_side import TorchSide
from fuzzparity.verdict import Kind, Realism

ROW = np.ones((2, 3), np.float32)


class Buffers(nn.Module):
    """Write to one buffer, replace another, fill an absent one, register a new one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("written", torch.zeros(3))
        self.register_buffer("replaced", torch.zeros(3))
        self.register_buffer("absent", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.written += 1
        self.replaced = self.replaced + 1
        total = x + self.written + self.replaced
        if self.absent is None:
            self.absent = x
        else:
            total = total + 7
        if hasattr(self, "made"):
            total = total + 70
        else:
            self.register_buffer("made", x)
        return total


class Attributes(nn.Module):
    """Count, and cache in every kind of attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.last: Any = None
        self.plain = torch.zeros(3)
        self.keys: list[torch.Tensor] = []
        self.recent: deque[int] = deque([1, 2], maxlen=2)
        self.by_shape: OrderedDict[Any, Any] = OrderedDict(a=1, b=2)
        self.nested = {"layers": [{"k": torch.zeros(3)}]}
        self.names = {"seen"}
        self.box = types.SimpleNamespace(steps=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.keys.append(x)
        self.recent.append(self.count)
        self.by_shape[x.shape] = self.by_shape.pop(next(iter(self.by_shape)))
        self.nested["layers"][0]["k"] += 1
        self.nested["layers"].append({})
        self.names.add(str(self.count))
        self.plain += 1
        self.box.steps += 1
        known = 0 if self.last is None else 1
        self.last = x
        return (
            x
            + self.count
            + len(self.keys)
            + sum(self.recent)
            + sum(self.by_shape.values())
            + len(self.nested["layers"])
            + self.nested["layers"][0]["k"]
            + len(self.names)
            + self.plain
            + self.box.steps
            + known
        )


class KvCache(nn.Module):
    """Attend to all rows seen so far, by a cache in an object of its own."""

    class Cache:
        def __init__(self) -> None:
            self.keys: torch.Tensor | None = None

        def update(self, keys: torch.Tensor) -> torch.Tensor:
            self.keys = keys if self.keys is None else torch.cat([self.keys, keys])
            return self.keys

    def __init__(self) -> None:
        super().__init__()
        self.cache = self.Cache()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.cache.update(x)
        return (x @ keys.T).softmax(-1) @ keys + len(keys)


class OfAnother:
    """Call a module that it holds, as plain objects do, and count."""

    def __init__(self) -> None:
        self.inner = Buffers()
        self.calls = [0]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.calls[0] += 1
        return self.inner(x) + self.calls[0]

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return self(x)


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight += 1
        return x + self.weight


def closed_over() -> Any:
    net = Buffers()
    return lambda x: net(x)


MODULES = {
    "buffers": Buffers,
    "attributes": Attributes,
    "kv cache": KvCache,
    "object": OfAnother,
    "method": lambda: OfAnother().method,
    "partial": lambda: functools.partial(OfAnother()),
    "closure": closed_over,
    "weights": Weights,
    "inside": lambda: nn.Sequential(Buffers(), Attributes()),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_run_leaves_nothing_behind(name: str) -> None:
    one = loaded(MODULES[name](), {"x": ROW})  # type: ignore[no-untyped-call,operator]
    side, referee = TorchSide(one), Referee(one)
    other = case(x=np.arange(15, dtype=np.float32).reshape(5, 3))
    runs = [side.run(one_case) for one_case in (one.seed, other, one.seed, one.seed)]
    assert all(run.is_ok for run in runs[::2])
    assert runs[0].outputs[0].tolist() == runs[2].outputs[0].tolist() == runs[3].outputs[0].tolist()
    assert side.keeps_state
    exact = [referee.exact(one.seed) for _ in range(3)]
    assert all(answer is not None and np.allclose(answer[0], runs[0].outputs[0]) for answer in exact)


def test_what_changed_is_named() -> None:
    guard = StateGuard(module := nn.Sequential(Buffers(), Attributes()))
    module(torch.ones(2, 3))
    guard.restore()
    told = guard.note
    assert told.startswith("the module keeps state: ")
    assert "put back" in told
    assert {"buffer `0.written`", "buffer `0.replaced`", "buffer `0.absent`", "buffer `0.made`"} <= set(guard.changed)
    assert {"attribute `1.count`", "attribute `1.keys`", "attribute `1.by_shape`"} <= set(guard.changed)
    assert module[1].by_shape == OrderedDict(a=1, b=2)
    assert list(module[1].by_shape) == ["a", "b"]
    assert not hasattr(module[0], "made")
    before = dict(guard.changed)
    guard.restore()
    assert guard.changed == before


def test_a_module_without_state_has_nothing_to_say_and_code_is_left_alone() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shape: Any = (2, 3)
            self.made: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.shape = tuple(x.shape)  # equal, not identical
            if self.made is None:
                self.made = torch.sin  # compiled once, so to say
                self.late = nn.Identity()
            return self.made(x)

    module = Lazy()
    side = TorchSide(loaded(module, {"x": ROW}))
    side.run(case(x=ROW))
    assert not side.keeps_state
    assert module.made is torch.sin
    clean = TorchSide(loaded(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), {"x": ROW}))
    clean.run(case(x=ROW))
    assert not clean.keeps_state
    assert clean.state_note == ""


def test_attributes_of_torchscript_are_put_back() -> None:
    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0
            self.state = torch.zeros(3)
            self.many = [1.0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            self.state = self.state + 1
            self.state += 1
            self.many.append(2.0)
            return x + self.steps + self.state + len(self.many)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.script(nn.Sequential(Scripted()).eval())
    side = TorchSide(loaded(module, {"x": ROW}))
    answers = [side.run(case(x=ROW)).outputs[0].tolist() for _ in range(4)]
    assert answers == [answers[0]] * 4
    assert answers[0][0][0] == 6.0
    assert "attribute `0.state`" in side.state_note


def test_views_of_one_buffer_are_put_back_once() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.zeros(4))
            self.register_buffer("part", self.whole[:3])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 2:
                self.part += 1
            return x + self.whole[:3]

    module = Views()
    guard = StateGuard(module)
    module(torch.ones(3, 3))
    guard.restore()
    assert module.whole.tolist() == [0.0] * 4
    assert not any(written.is_written() for written in guard._tensors)


def test_reset_is_called_before_every_run() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = np.zeros(1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.held += 1  # in place, which nothing counts
            return x + float(self.held[0])

    asked = {"x": {}}
    one = loaded(Keeps(), {"x": ROW})
    notes = observe(one, asked).notes
    assert any("differ" in note for note in notes), notes
    reset = loaded(Keeps(), {"x": ROW}, reset=lambda module: module.held.fill(0))
    side = TorchSide(reset)
    assert [side.run(case(x=ROW)).outputs[0][0, 0] for _ in range(3)] == [2.0, 2.0, 2.0]
    referee = Referee(reset)
    assert [answer[0][0, 0] for answer in (referee.exact(case(x=ROW)) for _ in range(3)) if answer] == [2.0, 2.0, 2.0]
    assert observe(reset, asked).notes == ()


def first_is_odd(seen: list[int]) -> Any:
    def forward(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return x + (len(seen) == 1)

    return forward


def remembering(last: list[Any]) -> Any:
    def forward(x: torch.Tensor) -> torch.Tensor:
        last[0], before = x, last[0]
        return x + (0 if before is None else before.sum())

    return forward


def test_conduct_says_what_is_put_back_and_what_is_not() -> None:
    torch.manual_seed(0)
    told = {
        "the module's first run answers otherwise": first_is_odd([]),
        "the module's answer depends on what ran before": remembering([torch.from_numpy(ROW)]),
        "random numbers": lambda x: x + torch.rand(()),
        "the module writes to its inputs": lambda x: x.add_(1),
        "the module keeps state: attribute `count`": Attributes(),
    }
    for said, module in told.items():
        notes = observe(loaded(module, {"x": ROW}), {}).notes
        assert any(said in note for note in notes), (said, notes)
    assert observe(loaded(nn.Linear(3, 2), {"x": ROW}), {}).notes == ()


def test_an_ort_side_that_draws_random_numbers_is_unstable_and_not_numeric() -> None:
    row = (TensorProto.FLOAT, ["n", 3])
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"]),
        helper.make_node("Add", ["x", "noise"], ["y"]),
    ]
    drawing = open_ort(model(nodes, {"x": row}, {"y": row}).SerializeToString(), Ort(), contract(x="float32"))
    assert isinstance(drawing, OrtSide)
    side, one = TorchSide(loaded(nn.Identity(), {"x": ROW})), case(x=ROW)
    oracle = Oracle(("y",), Policy(("y",), "float32", {}), lambda case: "", lambda case: Realism.NEAR)
    expected, actual = side.run(one), drawing.run(one)
    assert oracle.screen(expected, actual).kind is Kind.NUMERIC
    judgement = oracle.judge(one, expected, actual, None, second=(side.run(one), drawing.run(one)))
    assert [(verdict.kind, verdict.side) for verdict in judgement.verdicts] == [(Kind.UNSTABLE, ORT)]


class Cell(nn.Module):
    def forward(self, x: torch.Tensor, state: torch.Tensor) -> dict[str, torch.Tensor]:
        state = 0.9 * state + x
        return {"y": state.sum(-1), "stateN": state, "steps": torch.ones(2, 3, dtype=torch.int64)}


@pytest.mark.parametrize(
    ("carry", "said"),
    [({"state": "state"}, "names output 'state'"), ({"y": "state"}, r"float32\[2\]"), ({"steps": "state"}, "int64")],
)
def test_a_carry_that_does_not_fit_is_said(carry: dict[str, str], said: str) -> None:
    one = loaded(Cell(), {"x": ROW, "state": ROW}, carry=carry)
    conduct = observe(one, {})
    terms = contract_without_model(one.target, one.seed, asked_dims(one.target, one.seed))
    with pytest.raises(InvalidTarget, match=said):
        require_carry(one, conduct.names, conduct, terms)
    fits = loaded(Cell(), {"x": ROW, "state": ROW}, carry={"stateN": "state"})
    require_carry(fits, conduct.names, observe(fits, {}), terms)
