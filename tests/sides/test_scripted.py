"""The recorder of scripted modules: arms, loops, margins, the way into other arms, and scripts it cannot follow."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import case, loaded

from fuzzparity.decisions import COND, OPERATORS, PYTHON_LOOP, WHILE_LOOP, Decision
from fuzzparity.sides.files import load_program
from fuzzparity.sides.recorders import recorder_of
from fuzzparity.sides.scripted import ScriptRecorder
from fuzzparity.sides.torch_side import TorchSide

ROW = np.arange(6, dtype=np.float32).reshape(2, 3)


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 20.0:
            return self.linear(x)
        return x - 1


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Head()
        self.second = Head()

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.training or mask is not None:
            x = x * 2
        y = self.first(x)
        for i in range(x.shape[0]):
            if float(y[i].max()) > 2.5:
                y = y + 1
        return self.second(y)


class Halving(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while bool(x.sum() > 10.0):
            x = x / 2
        return x


class Writing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        if (x.sum() + self.count).sum() > 1.0:
            return x.relu()
        return x.sigmoid()


def script(module: torch.nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(module.eval())


def path_of(module: Any, x: np.ndarray) -> tuple[Decision, ...]:
    return TorchSide(loaded(module, {"x": x})).run(case(x=x)).decisions


def line(module: type, offset: int) -> str:
    return f"tests/sides/test_scripted.py:{module.forward.__code__.co_firstlineno + offset}"


def test_arms_and_loops_are_recorded_with_their_lines_and_margins() -> None:
    path = path_of(script(Gated()), ROW)
    arm, inner = line(Head, 1), line(Gated, 5)
    assert [(d.key, d.outcome, d.what) for d in path] == [
        (f"torch:{arm}", 0, COND),
        (f"torch:{inner}", 0, COND),
        (f"torch:{inner}#1", 1, COND),
        (f"torch:{line(Gated, 4)}", 2, PYTHON_LOOP),
        (f"torch:{arm}#1", 0, COND),
    ]
    assert [d.margin for d in path] == [-5.0, -1.5, 1.5, None, -5.0]
    assert [d.source for d in path][:1] == [arm]


def test_a_while_tells_each_time_that_it_asks() -> None:
    path = path_of(script(Halving()), ROW * 2)
    assert [(d.what, d.outcome, d.margin) for d in path] == [
        (WHILE_LOOP, 1, 20.0),
        (WHILE_LOOP, 1, 5.0),
        (WHILE_LOOP, 0, -2.5),
    ]


@pytest.mark.parametrize("scale", [1.0, 3.0, -4.0])
def test_the_module_answers_as_without_a_recorder(scale: float) -> None:
    for module in (script(Gated()), script(Halving()), script(Writing())):
        x = torch.from_numpy(ROW * scale)
        with torch.no_grad():
            expected = copy.deepcopy(module)(x)
            found = ScriptRecorder().call(module, (x,), {})
        assert torch.equal(found, expected)


def test_a_script_is_sent_into_the_other_arms() -> None:
    module = script(Gated())
    recorder = recorder_of(module)
    assert isinstance(recorder, ScriptRecorder)
    x = torch.from_numpy(ROW)
    with torch.no_grad():
        recorder.call(module, (x,), {})
        arm = recorder.path[0].key
        sent = recorder.call(module, (), {"x": x}, {arm: 1, f"{arm}#1": 1})
        assert [d.outcome for d in recorder.path if d.key in (arm, f"{arm}#1")] == [1, 1]
        y = module.first.linear(x)
        for i in range(2):
            y = y + 1 if y[i].max() > 2.5 else y
        assert torch.equal(sent, module.second.linear(y))
        looped = script(Halving())
        assert torch.equal(recorder.call(looped, (x * 2,), {}), x / 2)
        once = {recorder.path[0].key: 1, recorder.path[1].key: 0}
        assert torch.equal(recorder.call(looped, (x * 2,), {}, once), x)


def test_a_saved_script_keeps_its_lines(tmp_path: Path) -> None:
    module = script(Gated())
    module.save(str(tmp_path / "gated.ts"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        saved = load_program(tmp_path / "gated.ts")
    assert path_of(saved, ROW) == path_of(module, ROW)


def test_a_script_without_conditions_has_no_recorder_after_its_first_run() -> None:
    side = TorchSide(loaded(script(torch.nn.Linear(3, 2)), {"x": ROW}))
    assert side.run(case(x=ROW)).decisions == ()
    assert side._recorder is None


def test_what_cannot_be_run_twice_is_told_by_its_operators_on_a_sample_of_its_runs() -> None:
    side = TorchSide(loaded(script(Writing()), {"x": ROW}))
    seen = [side.run(case(x=ROW)).decisions for _ in range(4)]
    assert [[d.what for d in path] for path in seen] == [[OPERATORS], [], [], []]
    (other,) = TorchSide(loaded(script(Writing()), {"x": ROW})).run(case(x=ROW - 9)).decisions
    assert other.key != seen[0][0].key
    assert side.sent(case(x=ROW), {"torch:x": 1}).refusal is not None  # type: ignore[union-attr]


def test_a_refusal_of_the_script_is_the_modules_own() -> None:
    side = TorchSide(loaded(script(Gated()), {"x": ROW}))
    refused = side.run(case(x=np.zeros((2, 3), np.complex64)))
    assert refused.refusal is not None
    assert refused.decisions == ()
    assert side.run(case(x=ROW)).decisions


class Dropping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(x)
        return y if y.sum() > 1.0 else y - torch.rand_like(y)


def test_what_draws_numbers_is_followed_as_long_as_its_conditions_do_not() -> None:
    module = script(Dropping())
    assert [(d.what, d.margin) for d in path_of(module, ROW)] == [(COND, 14.0)]
    torch.manual_seed(3)
    expected = module(torch.from_numpy(-ROW))
    torch.manual_seed(3)
    assert torch.equal(ScriptRecorder().call(module, (torch.from_numpy(-ROW),), {}), expected)
    recorder = ScriptRecorder()
    recorder.call(module.train(), (torch.from_numpy(ROW),), {})
    assert [d.what for d in recorder.path] == [OPERATORS]


def test_what_cannot_be_read_runs_all_the_same() -> None:
    recorder = ScriptRecorder()
    assert recorder.call(torch.abs, (torch.tensor(-1.0),), {}) == 1
    assert recorder.is_idle
