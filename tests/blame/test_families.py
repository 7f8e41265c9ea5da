"""The node that carries a torch operator's meaning, of the pattern that exporters write for it."""

from __future__ import annotations

import pytest

from fuzzparity.blame.families import family, is_akin, main_place


@pytest.mark.parametrize(
    ("target", "ops", "main"),
    [
        (
            "torch.ops.aten.scaled_dot_product_attention.default",
            ["Mul", "Where", "MatMul", "Add", "Softmax", "IsNaN", "Where", "MatMul"],
            "Softmax",
        ),
        ("aten.index_add.default", ["Shape", "Expand", "Unsqueeze", "ScatterElements", "Add"], "ScatterElements"),
        ("aten.floor_divide.default", ["Div", "Cast", "Cast"], "Div"),
        ("torch.ops.aten.log1p.default", ["Add", "Log"], "Log"),
        ("aten.atan2.default", ["Div", "Atan", "Greater", "Where", "Less", "Where"], "Atan"),
        ("torch.ops.aten.selu.default", ["Selu", "Cast"], "Selu"),
        ("", ["Shape", "Gather", "ReduceMean", "Where", "Unsqueeze"], "ReduceMean"),
    ],
)
def test_the_node_that_does_the_work_is_the_main_one(target: str, ops: list[str], main: str):
    assert ops[main_place(target, ops)] == main


def test_writing_in_place_makes_no_other_family():
    assert family("aten.mul_.Tensor") == family("aten.mul.Tensor") == ("Mul",)
    assert is_akin("aten.upsample_nearest2d.vec", "Resize")
    assert not is_akin("aten.add.Tensor", "Mul")
