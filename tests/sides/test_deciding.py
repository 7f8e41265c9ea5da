"""The recorder of what a module decides in Python: arms, conversions, loops, and the way into the other arm."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from small_models import case, loaded

from fuzzparity.decisions import (
    COND,
    PYTHON_BRANCH,
    PYTHON_LOOP,
    TENSOR_BOOL,
    TENSOR_ITEM,
    WHILE_LOOP,
    outcomes,
    parting,
)
from fuzzparity.sides.deciding import Recorder
from fuzzparity.sides.monitoring import Monitoring
from fuzzparity.sides.torch_side import TorchSide
from fuzzparity.sides.tracing import Tracing

ROW = np.arange(6, dtype=np.float32).reshape(2, 3)


class Arms(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] <= 16:
            y = x.mean(1)
        elif x.shape[0] > 2:
            y = x.amax(1)
        else:
            y = x.amin(1)
        if not x.abs().max() > 30.0:
            return y
        y = y * 10
        return y


class Reading(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = int(x.abs().max())
        total = x.sum()
        for i in range(x.shape[0]):
            total = total + i
        return total + n if n > 4 else total - n


class Settled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.training or mask is not None:
            x = x * 2
        for part in self.children():
            x = part(x)
        return x


class Higher(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0.5, lambda x: x + 1, lambda x: x - 1, (x,))
        return torch.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x * 2), (torch.tensor(0), y))[1]


def side_of(module: torch.nn.Module, x: np.ndarray = ROW) -> TorchSide:
    return TorchSide(loaded(module.eval(), {"x": x}))


def test_arms_are_recorded_with_their_lines_and_margins() -> None:
    execution = side_of(Arms()).run(case(x=ROW))
    size, value = execution.decisions
    first = Arms.forward.__code__.co_firstlineno
    assert (size.source, size.outcome, size.what) == (f"tests/sides/test_deciding.py:{first + 1}", 1, PYTHON_BRANCH)
    assert size.key == f"torch:{size.source}"
    assert size.margin is None
    # the condition is "not above 30": the record holds the tensor's own truth, and the distance to its threshold
    assert (value.outcome, value.what, value.margin) == (0, TENSOR_BOOL, -25.0)


def test_an_elif_is_a_decision_of_its_own() -> None:
    execution = side_of(Arms()).run(case(x=np.ones((3, 20), np.float32)))
    assert [d.outcome for d in execution.decisions] == [0, 1, 0]


def test_paths_part_at_the_first_other_arm() -> None:
    side = side_of(Arms())
    sample = outcomes(side.run(case(x=ROW)).decisions)
    other = side.run(case(x=np.full((3, 20), 99, np.float32)))
    parted = parting(other.decisions, sample)
    assert parted is not None
    assert parted.source.endswith(f":{Arms.forward.__code__.co_firstlineno + 1}")
    assert parting(side.run(case(x=ROW * 2)).decisions, sample) is None


def test_numbers_and_loops_are_recorded() -> None:
    path = side_of(Reading()).run(case(x=ROW)).decisions
    assert [(d.what, d.outcome) for d in path] == [(TENSOR_ITEM, 5), (PYTHON_LOOP, 2), (PYTHON_BRANCH, 1)]


def test_code_is_sent_into_the_other_arms() -> None:
    side = side_of(Arms())
    sample = outcomes(side.run(case(x=ROW)).decisions)
    wide = np.full((3, 20), 99, np.float32)
    assert side.run(case(x=wide)).outputs[0].tolist() == [990, 990, 990]
    sent = side.sent(case(x=wide), sample)
    assert sent is not None
    assert np.allclose(sent.outputs[0], wide.mean(1))
    back = outcomes(side.run(case(x=wide)).decisions)
    there = side.sent(case(x=ROW), back)  # and from the first arm into the last one
    assert there is not None
    assert np.allclose(there.outputs[0], ROW.max(1) * 10)


class Made(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] > 1 else x

        return inner(x)


def test_code_that_cannot_be_sent_says_so() -> None:
    side = side_of(Made())
    sent = side.sent(case(x=np.zeros((1, 3), np.float32)), outcomes(side.run(case(x=ROW)).decisions))
    assert sent is not None
    assert sent.refusal is not None
    assert "one line" in sent.refusal.text


def test_a_module_that_decides_nothing_has_no_recorder_after_a_few_runs() -> None:
    side = side_of(Settled())
    assert [side.run(case(x=ROW)).decisions for _ in range(3)] == [(), (), ()]
    assert side._recorder is None
    assert side_of(torch.nn.Linear(3, 2))._recorder is not None
    assert sys.gettrace() is None


def test_nothing_is_left_behind_by_a_first_run() -> None:
    side = side_of(Settled())
    before = dict(vars(torch.Tensor))
    side.run(case(x=ROW))
    assert dict(vars(torch.Tensor)) == before


def test_control_flow_operators_tell_their_predicates() -> None:
    side = side_of(Higher())
    for sign, arm in ((1, 1), (-1, 0)):
        path = side.run(case(x=ROW * sign)).decisions
        assert [(d.what, d.outcome) for d in path if d.what == COND] == [(COND, arm)]
        assert next(d.margin for d in path if d.what == COND) == ROW.sum() * sign - 0.5
        assert [d.outcome for d in path if d.what == WHILE_LOOP] == [1, 1, 0]


def test_a_refusal_keeps_the_path_to_it() -> None:
    class Refusing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 1:
                raise ValueError("too long")
            return x

    execution = side_of(Refusing()).run(case(x=ROW))
    assert execution.refusal is not None
    assert [d.outcome for d in execution.decisions] == [1]


def test_a_trace_function_of_someone_else_stays() -> None:
    side = side_of(Arms())
    seen: list[str] = []

    def own(frame: object, event: str, arg: object) -> None:
        seen.append(event)

    sys.settrace(own)
    try:
        side.run(case(x=ROW))
        assert sys.gettrace() is own
    finally:
        sys.settrace(None)


@torch.compile(backend="eager")
def compiled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 3 else x + 1


class Around(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 1:
            return compiled(x)
        return x


@pytest.mark.slow
def test_a_target_that_compiles_a_part_is_not_disturbed(recwarn: pytest.WarningsRecorder) -> None:
    side = side_of(Around())
    for sign, arm in ((1, 1), (-1, 0)):
        execution = side.run(case(x=ROW * sign))
        assert execution.outputs[0].tolist() == (ROW * 2 if arm else 1 - ROW).tolist()
        assert [d.outcome for d in execution.decisions][:1] == [1]
    assert not [w for w in recwarn if "deciding" in str(w.message)]


class InOneLine(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x, x], 1) if x.shape[1] % 2 and x.shape[1] > 1 else x
        if x.shape[0] > 1: y = y * 2  # fmt: skip # noqa: E701
        return y + (1 if x.shape[1] > 2 else 0)


@pytest.mark.parametrize(
    ("shape", "arms"), [((2, 3), [1, 1, 1]), ((1, 1), [0, 0, 0]), ((2, 2), [0, 1, 0]), ((1, 4), [0, 0, 1])]
)
def test_conditions_that_share_a_line_with_their_arms_are_told_apart(shape: tuple[int, int], arms: list[int]) -> None:
    execution = side_of(InOneLine()).run(case(x=np.zeros(shape, np.float32)))
    first = InOneLine.forward.__code__.co_firstlineno
    lines = [int(d.source.rpartition(":")[2]) - first for d in execution.decisions]
    assert (lines, [d.outcome for d in execution.decisions]) == ([1, 2, 3], arms)


class Chosen(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.shape[1] > 2 and x.shape[0] > 1
        y = x * 2 if wide else x
        for i in range(x.shape[0]): y = y + i  # fmt: skip # noqa: E701
        return y or y if x.numel() == 1 else y


def test_and_or_and_loops_in_one_line_are_told_apart() -> None:
    first = Chosen.forward.__code__.co_firstlineno
    for shape, told in (
        ((2, 3), [(1, 1), (2, 1), (3, 2), (4, 0)]),
        ((1, 1), [(1, 0), (2, 0), (3, 1), (4, 1), (4, 1)]),
    ):
        path = side_of(Chosen()).run(case(x=np.ones(shape, np.float32))).decisions
        assert [(int(d.source.rpartition(":")[2]) - first, d.outcome) for d in path] == told


class Base(torch.nn.Module):
    def forward(self, x: torch.Tensor, gain: float = 2.0) -> torch.Tensor:
        return x * gain


def closed(size: int) -> type[torch.nn.Module]:
    class Sized(Base):
        def forward(self, x: torch.Tensor, gain: float = 3.0, *, shift: int = 1) -> torch.Tensor:
            y = super().forward(x) if x.shape[0] < size else x - shift
            if x.shape[1] > 2 and x.sum() > 20: return y * gain  # fmt: skip # noqa: E701
            few = x.shape[1] < 2 or x.shape[0] > size
            return y + (gain if few and x.numel() else 0)

    return Sized


@pytest.mark.parametrize("kind", [InOneLine, Reading, Chosen, closed(2)])
def test_conditions_that_share_a_line_with_their_arms_are_sent_too(kind: type[torch.nn.Module]) -> None:
    side = side_of(kind())
    forward = kind.forward
    before = forward.__code__
    cases = [case(x=np.full(shape, 5, np.float32)) for shape in ((2, 3), (1, 1), (3, 4), (2, 1))]
    runs = [side.run(one) for one in cases]
    for one, run in zip(cases, runs, strict=True):
        same = side.sent(one, outcomes(run.decisions))
        assert same is not None
        loops = [d.key for d in run.decisions if d.what == PYTHON_LOOP]
        assert [d for d in same.decisions if d.key not in loops] == [d for d in run.decisions if d.key not in loops]
        assert np.array_equal(same.outputs[0], run.outputs[0])
    assert forward.__code__ is before


def test_the_other_arm_in_the_same_line_gives_its_own_answer() -> None:
    side = side_of(closed(2)())
    first = closed(2).forward.__code__.co_firstlineno
    arms = {f"torch:tests/sides/test_deciding.py:{first + line}": arm for line, arm in ((1, 1), (2, 0), (3, 0), (4, 0))}
    side.run(case(x=ROW + 5))
    sent = side.sent(case(x=ROW + 5), arms)
    assert sent is not None
    assert sent.outputs[0].tolist() == ((ROW + 5) * 2).tolist()
    other = side.sent(case(x=ROW + 5), arms | {f"torch:tests/sides/test_deciding.py:{first + 1}": 0})
    assert other is not None
    assert other.outputs[0].tolist() == (ROW + 4).tolist()


def test_code_is_told_by_the_interpreter_where_it_can_tell() -> None:
    following = Recorder(Arms())._following
    assert isinstance(following, Monitoring if sys.version_info >= (3, 12) else Tracing)
    side_of(Arms()).run(case(x=ROW))
    assert sys.gettrace() is None


def test_a_function_that_first_runs_in_a_later_arm_is_followed() -> None:
    side = side_of(Later())
    narrow = [side.run(case(x=ROW)).decisions for _ in range(4)]
    assert [[d.outcome for d in path] for path in narrow] == [[0]] * 4
    assert [d.outcome for d in side.run(case(x=np.ones((2, 20), np.float32))).decisions] == [1, 1]


def _later(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 1:
        x = x + 1
    return x


class Later(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 16:
            x = _later(x)
        return x
