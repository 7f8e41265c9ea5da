"""The torch side: fresh inputs, restored state, and refusals as data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import Conv, Counter, DictOutputs, InPlace, case, loaded

from fuzzparity.execution import Status
from fuzzparity.sides.torch_side import TorchSide

ROW = np.ones((2, 3), np.float32)


def test_outputs_are_flattened_in_order() -> None:
    execution = TorchSide(loaded(DictOutputs(), {"x": ROW})).run(case(x=ROW))
    assert execution.is_ok
    assert [array.shape for array in execution.outputs] == [(2, 3), (), (2, 3)]


def test_a_module_that_writes_to_its_inputs_is_detected_and_harmless() -> None:
    side, one = TorchSide(loaded(InPlace(), {"x": ROW})), case(x=ROW)
    first, second = side.run(one), side.run(one)
    assert side.mutates_inputs
    assert np.array_equal(first.outputs[0], second.outputs[0])
    assert (ROW == 1).all()
    clean = TorchSide(loaded(Conv(), {"x": np.ones((1, 3, 4, 4), np.float32)}))
    clean.run(case(x=np.ones((1, 3, 4, 4), np.float32)))
    assert not clean.mutates_inputs


def test_state_that_a_run_changed_is_put_back() -> None:
    side = TorchSide(loaded(Counter(), {"x": ROW}))
    answers = [side.run(case(x=ROW)).outputs[0][0, 0] for _ in range(3)]
    assert answers == [2.0, 2.0, 2.0]
    assert side.keeps_state


@pytest.mark.parametrize("raised", [ValueError("bad 7"), SystemExit(1), KeyboardInterrupt(), AssertionError()])
def test_whatever_the_module_raises_is_a_refusal(raised: BaseException) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        raise raised

    execution = TorchSide(loaded(forward, {"x": ROW})).run(case(x=ROW))
    assert execution.status is Status.REFUSED
    assert execution.refusal is not None
    assert execution.refusal.error_class == type(raised).__name__
    assert "test_torch_side.py" in execution.refusal.site


def test_out_of_memory_is_told_from_a_refusal() -> None:
    side = TorchSide(loaded(lambda x: x.new_zeros(1 << 60), {"x": ROW}))
    assert side.run(case(x=ROW)).status is Status.OOM


def test_wrong_dtypes_and_shapes_are_refusals() -> None:
    side = TorchSide(loaded(torch.nn.Linear(3, 2), {"x": ROW}))
    for wrong in (ROW.astype(np.float64), ROW[:, :2], np.array(["a"]), np.array(1.0)):
        assert side.run(case(x=wrong)).status is Status.REFUSED
    assert side.run(case(x=ROW[:0])).outputs[0].shape == (0, 2)


def test_odd_arrays_run() -> None:
    side = TorchSide(loaded(lambda x: x + 1, {"x": ROW}))
    for array in (np.float32(2.0), ROW[:, ::-1], ROW.astype(">f4"), ROW[:0]):
        assert side.run(case(x=array)).is_ok
