"""A walk tells each node before it runs, so that the last one told is the one at work when a process ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from fuzzparity import Ort
from fuzzparity.blame.walking import walked
from fuzzparity.case import Array
from fuzzparity.sides.bare import run_bare


class Dead(Exception):
    """Stand for the end of a process."""


def dying_of(op: str) -> Any:
    def run(model: bytes, feeds: Mapping[str, Array]) -> list[Any] | None:
        nodes = onnx.ModelProto.FromString(model).graph.node
        if any(node.op_type == op for node in nodes):
            raise Dead
        return run_bare(model, feeds, Ort())

    return run


MODEL = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
    net (float[n] x) => (float[n] y) <float zero = {0}> {
        [sum] s = ReduceSum <keepdims = 0> (x)
        [asked] c = Greater (s, zero)
        [arms] z = If (c) <
            then_branch = g1 () => (float[n] a) { [one] e = Exp (x)  [two] a = Tanh (e) },
            else_branch = g2 () => (float[n] b) { [three] b = Sin (x) }
        >
        [last] y = Abs (z)
    }""")


def told_until_death(op: str, x: list[float]) -> list[tuple[str, tuple[str, ...]]]:
    told: list[tuple[str, tuple[str, ...]]] = []
    with pytest.raises(Dead):
        walked(MODEL, {"x": np.array(x, np.float32)}, dying_of(op), lambda node, path: told.append((node.name, path)))
    return told


def test_the_node_that_ends_it_is_told_last():
    assert told_until_death("Abs", [1, 2])[-1] == ("last", ())


def test_a_node_in_the_arm_that_ran_is_told_with_the_way_to_it():
    assert told_until_death("Tanh", [1, 2])[-1] == ("two", ("arms/then_branch",))
    assert told_until_death("Sin", [-1, -2])[-1] == ("three", ("arms/else_branch",))


def test_an_if_that_ends_it_as_a_whole_is_told_after_its_arm():
    assert told_until_death("If", [1, 2])[-1] == ("arms", ())
