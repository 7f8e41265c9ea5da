"""TF32 on both sides or on neither, and GPU wheels that fit each other; what needs no GPU of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import loaded
from torch import nn

from fuzzparity import Ort
from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.environment import environment
from fuzzparity.sides.options import with_sides
from fuzzparity.sides.precision import CUDA, require_shared_cuda, torch_precision, uses_tf32, with_one_precision

CPU = "CPUExecutionProvider"
BEFORE = (  # what a target may have set: old switches, old ones against each other, new ones
    "pass",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.set_float32_matmul_precision('high'); torch.backends.cuda.matmul.allow_tf32 = False",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cudnn.conv.fp32_precision = 'tf32'",
    "torch.backends.fp32_precision = 'tf32'",
)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_tf32_is_off_for_ort_unless_the_user_set_it(device: str) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        ort = with_one_precision(Ort(providers=[CUDA, CPU]), device)
        assert ort.provider_options == {CUDA: {"use_tf32": "0"}}
        own = Ort(providers=[CUDA], provider_options={CUDA: {"use_tf32": 1, "device_id": "0"}})
        assert with_one_precision(own, device).provider_options[CUDA]["use_tf32"] == 1
        assert with_one_precision(Ort(), device).provider_options == {}
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.slow
def test_torchs_flags_follow_whatever_the_target_set_before() -> None:
    code = """
import torch
from fuzzparity.sides.precision import set_torch_tf32, torch_precision
from test_precision import BEFORE
matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
for before in BEFORE:
    for is_on, precision, word in ((False, "highest", "off"), (True, "high", "on")):
        exec(before)
        set_torch_tf32(is_on)
        words = {matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision}
        assert words == {"tf32" if is_on else "ieee"}, (before, words)
        assert matmul.allow_tf32 is cudnn.allow_tf32 is is_on, before
        assert torch.get_float32_matmul_precision() == precision, before
        assert torch_precision("cuda:0") == f"float32, TF32 {word} for matmul and {word} for conv", before
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=Path(__file__).parent)


def test_the_environment_can_be_told_whatever_the_target_set() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert torch_precision("cpu").startswith("float32 ")
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch_precision("cpu") == "float32 highest"


def test_the_environment_names_device_and_provider_options() -> None:
    ort = Ort(provider_options={CPU: {"arena_extend_strategy": "kSameAsRequested"}})
    one, other = environment(ort, [CPU]), environment(Ort(), [CPU])
    assert one.ort_config == {f"{CPU}.arena_extend_strategy": "kSameAsRequested"}
    assert one.digest != other.digest
    assert environment(Ort(), [CPU], "cuda:0").torch_device.startswith("cuda:0")


@pytest.mark.parametrize("value", ["yes", 2, None])
def test_a_use_tf32_that_is_neither_is_said(value: object) -> None:
    with pytest.raises(InvalidTarget, match="use_tf32"):
        uses_tf32(value)


@pytest.mark.parametrize(
    ("ort", "torch_cuda", "ort_cuda", "fits"),
    [
        ("1.19.0", "12.6", None, True),
        ("1.26.1", "12.8", None, True),
        ("1.27.0", "13.0", None, True),
        ("1.26.1", "13.0", None, False),
        ("1.27.0", "12.8", None, False),
        ("2.0.0", "12.8", None, False),
        ("1.24.0", "13.0", "13.0.1", True),  # a wheel from elsewhere says for itself what it is
        ("1.27.0", "13.0", "12.8", False),
        ("1.27.0", None, None, True),  # a CPU build of torch brings no CUDA along
        ("1.18.0", "13.0", None, True),  # nobody knows
        ("nightly", "13.0", None, True),
    ],
)
def test_wheels_for_other_versions_of_cuda_are_refused(
    ort: str, torch_cuda: str | None, ort_cuda: str | None, fits: bool
) -> None:
    if fits:
        require_shared_cuda(ort, "2.11.0", torch_cuda, ort_cuda)
        return
    with pytest.raises(InvalidTarget, match="is built for CUDA") as caught:
        require_shared_cuda(ort, "2.11.0", torch_cuda, ort_cuda)
    assert "onnxruntime-gpu" in caught.value.advice


def test_sides_of_the_command_line_stay_as_asked_for_on_the_cpu() -> None:
    target = loaded(nn.ReLU(), {"x": np.ones((2, 3), np.float32)})
    found = with_sides(target, (), (f"{CPU}.use_arena=0",), "cpu")
    assert found.target.ort.provider_options == {CPU: {"use_arena": "0"}}
    assert found.device == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_environment_names_the_gpu() -> None:
    target = with_sides(loaded(nn.ReLU(), {"x": np.ones((2, 3), np.float32)}), (CUDA, CPU), (), "cuda:0")
    found = environment(target.target.ort, [CUDA, CPU], target.device)
    assert torch.cuda.get_device_name(0) in found.torch_device
    assert "TF32 off" in found.torch_precision
