"""The float64 referee: exact whatever the module asks for, and rounded at random without touching what is exact."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import Conv, Counter, HalfInside, case, loaded
from torch import nn
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from fuzzparity.case import Case
from fuzzparity.sides.double import Float64Mode, RoundingMode, map_leaves
from fuzzparity.sides.referee import Referee
from fuzzparity.sides.torch_side import TorchSide

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 3, 5, 6)).astype(np.float32)
ROW = RNG.normal(size=(2, 3)).astype(np.float32)


def distance(referee: Referee, one: Case, draws: int = 8) -> float:
    exact = referee.exact(one)
    assert exact is not None, referee.missing
    moves = [referee.rounded(one, draw) for draw in range(draws)]
    return max(float(np.abs(move[0] - exact[0]).max()) for move in moves if move is not None)


def test_the_exact_answer_is_that_of_a_module_in_double() -> None:
    module = Conv()
    exact = Referee(loaded(module, {"image": IMAGE})).exact(case(image=IMAGE))
    assert exact is not None
    wanted = Conv().double().eval()(torch.from_numpy(IMAGE).double()).detach().numpy()
    np.testing.assert_allclose(exact[0], wanted, rtol=1e-13)
    assert module.conv.weight.dtype == torch.float32


def test_rounding_at_random_moves_an_answer_about_as_float32_does() -> None:
    target = loaded(Conv(), {"image": IMAGE})
    one = case(image=IMAGE)
    referee = Referee(target)
    exact = referee.exact(one)
    assert exact is not None
    error = float(np.abs(TorchSide(target).run(one).outputs[0] - exact[0]).max())
    assert error / 8 < distance(referee, one) < 1e-5
    assert distance(Referee(target, "float16"), one) > 100 * distance(referee, one)


def test_one_draw_gives_one_answer() -> None:
    referee = Referee(loaded(Conv(), {"image": IMAGE}))
    first, again, other = (referee.rounded(case(image=IMAGE), draw) for draw in (3, 3, 4))
    assert first is not None
    assert again is not None
    assert other is not None
    assert np.array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])


def test_narrow_floats_inside_forward_do_not_round_the_referee() -> None:
    x = np.array([0.1, 0.2, 0.3], np.float32)
    exact = Referee(loaded(HalfInside(), {"x": x})).exact(case(x=x))
    assert exact is not None
    total = x.astype(np.float64).sum()
    # torch.tensor(0.1, dtype=float32) is a float32 number before the referee sees it
    np.testing.assert_allclose(exact[0], [total + np.float32(0.1) * total] + [np.float32(0.1) * total] * 2, rtol=1e-12)


def test_what_is_exact_in_the_working_precision_is_not_moved() -> None:
    counting = Referee(loaded(lambda x: ((x > 0).float().sum() * 3, x.floor()), {"x": ROW}))
    assert distance(counting, case(x=ROW)) == 0.0


def test_integers_bools_and_non_finite_values_stay() -> None:
    referee = Referee(loaded(lambda x, i: (x / 0, x.argmax(), i // 2, x > 0), {"x": ROW, "i": np.arange(3)}))
    exact = referee.rounded(case(x=ROW, i=np.arange(3)), 0)
    assert exact is not None
    assert [array.dtype.name for array in exact] == ["float64", "int64", "int64", "bool"]
    assert np.isinf(exact[0]).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_inputs_of_any_float_dtype_are_widened(dtype: type) -> None:
    assert Referee(loaded(Conv(), {"image": IMAGE})).exact(case(image=IMAGE.astype(dtype))) is not None


def test_recurrent_attention_and_complex_modules_run() -> None:
    sequence = RNG.normal(size=(2, 4, 8)).astype(np.float32)
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    for module in (nn.LSTM(8, 3, batch_first=True), attention, lambda x: torch.fft.rfft(x).abs()):
        referee = Referee(loaded(module, {"x": sequence}))
        assert 0 < distance(referee, case(x=sequence), 2) < 1e-4, module


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_and_exported_programs_run() -> None:
    programs = [torch.jit.script(Conv().eval()), torch.export.export(Conv().eval(), (torch.from_numpy(IMAGE),))]
    for program in programs:
        referee = Referee(loaded(program, {"image": IMAGE}))
        assert distance(referee, case(image=IMAGE), 2) > 0


def test_in_place_writes_through_views_reach_their_base() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(2, 3, dtype=torch.float32)
        out[0].copy_(x[0].half())
        out[1] += x[1] * 2
        out.mul_(2)
        return out

    exact = Referee(loaded(forward, {"x": ROW})).exact(case(x=ROW))
    assert exact is not None
    np.testing.assert_array_equal(exact[0], np.stack([ROW[0], ROW[1] * 2]).astype(np.float64) * 2)


def test_the_peak_is_the_largest_finite_intermediate() -> None:
    referee = Referee(loaded(lambda x: (x * 1000).clamp(-1, 1) + x.new_full((1,), float("inf")), {"x": ROW}))
    assert referee.peak(case(x=ROW)) == pytest.approx(1000 * float(np.abs(ROW).max()))


def test_state_is_restored_and_failure_says_why() -> None:
    counter = Referee(loaded(Counter(), {"x": ROW}))
    first, second = counter.exact(case(x=ROW)), counter.exact(case(x=ROW))
    assert first is not None
    assert second is not None
    assert np.array_equal(first[0], second[0])
    linear = Referee(loaded(nn.Linear(3, 2), {"x": ROW}))
    assert linear.exact(case(x=ROW[:, :2])) is None
    assert "RuntimeError" in linear.missing
    assert linear.exact(case(x=ROW)) is not None
    assert linear.missing == ""


def test_the_default_dtype_is_restored() -> None:
    Referee(loaded(Conv(), {"image": IMAGE})).exact(case(image=IMAGE))
    assert torch.get_default_dtype() == torch.float32


def near(one: Case, draw: int) -> Case:
    noise = 1 + 1e-7 * np.random.default_rng(draw).normal(size=one.inputs["x"].shape)
    return Case({"x": one.inputs["x"].astype(np.float64) * noise})


def watched(module: nn.Module | Callable[..., torch.Tensor]) -> tuple[Referee, list[bool]]:
    """Return a referee, and for each of its calls of forward whether a mode watched it."""
    seen: list[bool] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen.append(_len_torch_dispatch_stack() > 0)
        return module(x)

    return Referee(loaded(forward, {"x": ROW})), seen


def test_around_a_proven_case_the_copy_runs_alone_and_is_proven_again() -> None:
    referee, seen = watched(lambda x: (x @ x.T).softmax(-1))
    exact = [referee.exact(case(x=ROW)), *(referee.exact(near(case(x=ROW), draw)) for draw in range(15))]
    assert seen == [True] + [False] * 16
    assert all(answer is not None for answer in exact)
    referee.exact(case(x=ROW))
    assert seen[17:] == [True, False]
    fresh = Referee(loaded(lambda x: (x @ x.T).softmax(-1), {"x": ROW}))
    for draw in range(15):
        wanted = fresh._run([near(case(x=ROW), draw).inputs["x"]], Float64Mode())
        assert wanted is not None
        assert np.array_equal(exact[draw + 1][0], wanted[0])  # type: ignore[index]


@pytest.mark.parametrize("other", [ROW[:1], ROW * 2, np.where(ROW > 1, np.nan, ROW), -ROW])
def test_what_is_proven_of_one_case_does_not_hold_for_another(other: np.ndarray) -> None:
    referee, seen = watched(lambda x: x * 2 if x[0, 0] == float(ROW[0, 0]) else (x.half() * 2).half())
    referee.exact(case(x=ROW))
    referee.exact(case(x=ROW))
    assert seen == [True, False, False]
    exact = referee.exact(case(x=other))
    assert exact is not None
    np.testing.assert_array_equal(exact[0], other.astype(np.float64) * 2)


def test_a_narrow_answer_and_a_moving_one_end_the_plain_runs() -> None:
    calls = iter(range(100))
    modules = (
        lambda x: x * 2 if x[0, 0] == float(ROW[0, 0]) else x.half(),
        lambda x: x * next(calls),
    )
    for module, plain in zip(modules, ([True, False, False, True, True], [True, False, True, True]), strict=True):
        referee, seen = watched(module)
        answers = [referee.exact(case(x=ROW)), *(referee.exact(near(case(x=ROW), draw)) for draw in range(2))]
        assert seen == plain
        assert all(answer is not None and answer[0].dtype == np.float64 for answer in answers)
        assert referee.missing == ""


def test_where_the_mode_intervenes_it_always_runs() -> None:
    referee, seen = watched(lambda x: x.float() * torch.ones(3, dtype=torch.float32))
    for _ in range(3):
        referee.exact(case(x=ROW))
    assert seen == [True] * 3


def test_a_compiled_module_is_not_compiled_again_in_double() -> None:
    compiled: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        compiled.append(1)
        return graph.forward

    referee = Referee(loaded(torch.compile(nn.Linear(3, 2), backend=backend), {"x": ROW}))
    for draw in range(3):
        assert referee.exact(near(case(x=ROW), draw)) is not None, referee.missing
        assert referee.rounded(case(x=ROW), draw) is not None
    assert not compiled


def test_rounding_is_unbiased_within_one_step_and_keeps_nan() -> None:
    x = np.array([1 + 2.0**-25, -(1 + 2.0**-25), 1.0, np.nan, np.inf, 0.0, 1e-300])
    referee = Referee(loaded(lambda x: x * 1.0, {"x": x}))
    rounded = np.stack([referee.rounded(case(x=x), draw)[0] for draw in range(400)])  # type: ignore[index]
    assert set(rounded[:, 0]) == {1.0, 1 + 2.0**-23}
    assert 0.15 < (rounded[:, 0] > 1).mean() < 0.35
    assert set(rounded[:, 1]) == {-1.0, -(1 + 2.0**-23)}
    assert (rounded[:, 2] == 1.0).all()
    assert np.isnan(rounded[:, 3]).all()
    assert (rounded[:, 4] == np.inf).all()
    assert (rounded[:, 5] == 0.0).all()


@pytest.mark.slow
def test_noise_of_a_draw_does_not_depend_on_what_ran_before() -> None:
    wide = RNG.normal(size=(300, 900)).astype(np.float32)
    huge = np.ones((1 << 20) + 3, np.float32) / 3
    for x in (ROW, wide, huge):
        first, again = (Referee(loaded(lambda x: x * 0.1, {"x": x})).rounded(case(x=x), 5) for _ in range(2))
        assert first is not None
        assert again is not None
        assert np.array_equal(first[0], again[0])
    code = f"""
import numpy as np
from small_models import case, loaded
from fuzzparity.sides.referee import Referee
x = np.array({ROW.tolist()}, np.float32)
print(Referee(loaded(lambda x: x * 0.1, {{"x": x}})).rounded(case(x=x), 5)[0].tobytes().hex())
"""
    fresh = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=Path(__file__).parent
    )
    same = Referee(loaded(lambda x: x * 0.1, {"x": ROW})).rounded(case(x=ROW), 5)
    assert same is not None
    assert fresh.stdout.strip() == same[0].tobytes().hex()


@given(st.recursive(st.integers() | st.none(), lambda leaf: st.lists(leaf) | st.tuples(leaf, leaf)))
def test_leaves_are_changed_in_place_of_themselves_only(value: object) -> None:
    assert map_leaves(lambda leaf: None, value) is value
    marked = map_leaves(lambda leaf: leaf.upper(), [value, (b"a", [value, b"b"]), {"k": b"c"}])
    assert marked == [value, (b"A", [value, b"B"]), {"k": b"C"}]


def test_a_weight_that_changes_on_the_way_is_read_anew() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.ones(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = x @ self.table
            self.table *= 3
            return x @ self.table - first

    one = case(x=RNG.normal(size=(3, 4)).astype(np.float32) * 0.7)
    referee = Referee(loaded(Growing(), {"x": one.inputs["x"]}))
    exact, rounded = referee.exact(one), referee.rounded(one, 1)
    assert exact is not None
    assert rounded is not None
    np.testing.assert_allclose(rounded[0], exact[0], rtol=0, atol=1e-5)
    assert (rounded[0] != exact[0]).any()


def test_weights_that_count_no_changes_are_rounded_as_any_value() -> None:
    with torch.inference_mode():
        module = Conv().eval()
    referee = Referee(loaded(module, {"image": IMAGE}))
    assert referee.rounded(case(image=IMAGE), 0) is not None, referee.missing
    assert 0.0 < distance(referee, case(image=IMAGE)) < 1e-5


def test_a_weight_that_is_read_at_every_step_is_off_by_the_same_in_one_run() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.weight = nn.Parameter(torch.randn(64, 64))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.mv(self.weight, x), torch.mv(self.weight, x + 0)

    module = Twice()
    referee = Referee(loaded(module, {"x": np.ones(64, np.float32)}))
    mode = RoundingMode(23, 0, weights=referee._weights)
    weight = referee._module.weight  # type: ignore[union-attr]
    assert mode._noisy(weight) is mode._noisy(weight)
    other = torch.ones(64, 64, dtype=torch.float64)
    assert mode._noisy(other) is not mode._noisy(other)
