"""Arrays to tensors and back, bit for bit."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fuzzparity.sides.tensors import flatten_outputs, output_names, to_array, to_tensor

DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool", ">f4", ">i8"]


@given(st.sampled_from(DTYPES).flatmap(lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, min_side=0))))
def test_an_array_comes_back_bit_for_bit(array: np.ndarray) -> None:
    back = to_array(to_tensor(array))
    assert back.shape == array.shape
    assert back.tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_narrow_floats_cross_as_integers(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.full(shape, 1.5).astype(dtype)
    back = to_array(to_tensor(array))
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_a_tensor_never_shares_memory_with_the_array() -> None:
    array = np.zeros(3)
    to_tensor(array).add_(1)
    assert not array.any()


def test_complex_outputs_become_pairs_of_reals() -> None:
    (found,) = flatten_outputs(torch.tensor([1 + 2j]).conj())
    assert found.tolist() == [[1.0, -2.0]]


def test_outputs_flatten_in_their_own_order_with_names() -> None:
    @dataclasses.dataclass
    class Boxes:
        box: torch.Tensor
        score: float

    outputs = {"z": torch.zeros(1), "a": [torch.ones(2), None, 3], "text": "left out"}
    assert output_names(outputs) == ("z", "a.0", "a.2")
    assert [array.tolist() for array in flatten_outputs(outputs)] == [[0.0], [1.0, 1.0], 3]
    assert output_names(Boxes(torch.zeros(1), 0.5)) == ("box", "score")
    assert output_names((torch.zeros(1), torch.zeros(1))) == ("", "")
