"""The float64 referee: exact whatever the module asks for, and rounded at random without touching what is exact."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from small_models import Conv, Counter, HalfInside, case, loaded
from torch import nn

from fuzzparity.case import Case
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
