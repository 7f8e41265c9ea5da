"""What ORT decides: branch ids and trip counts put out by a copy of the graph, which answers with the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from fuzzparity.case import Case
from fuzzparity.contract import Contract, Dim, InputContract
from fuzzparity.decisions import ONNX_IF, ONNX_LOOP
from fuzzparity.sides.branching import BranchingSide, tapped
from fuzzparity.target import Ort

ROW_CONTRACT = Contract((InputContract("x", "float32", (Dim(3),), onnx_name="x"),))

# outer If: x[0] > 0; inside its first branch another: x[1] > 0; then a loop of x[2] rounds with an If of its own
NESTED = """
<ir_version: 9, opset_import: ["" : 18]>
nested (float[3] x) => (float[1] y) {
    zero = Constant <value = float[1] {0.0}> ()
    i0 = Constant <value = int64[1] {0}> ()
    i1 = Constant <value = int64[1] {1}> ()
    i2 = Constant <value = int64[1] {2}> ()
    a = Gather <axis = 0> (x, i0)
    b = Gather <axis = 0> (x, i1)
    c = Gather <axis = 0> (x, i2)
    first = Greater (a, zero)
    second = Greater (b, zero)
    z = If (first) <
        then_branch = yes () => (float[1] t) {
            t = If (second) <
                then_branch = both () => (float[1] tt) { tt = Add (a, b) },
                else_branch = one () => (float[1] te) { te = Identity (a) }
            >
        },
        else_branch = no () => (float[1] e) { e = Neg (a) }
    >
    round = Cast <to = 7> (c)
    rounds = Squeeze (round)
    true = Constant <value = int64 {1}> ()
    go = Cast <to = 9> (true)
    y = Loop (rounds, go, z) <
        body = round (int64 i, bool cond, float[1] s) => (bool on, float[1] n) {
            on = Identity (cond)
            big = Greater (s, zero)
            n = If (big) <
                then_branch = halve () => (float[1] h) { h = Sub (s, c) },
                else_branch = keep () => (float[1] k) { k = Add (s, c) }
            >
        }
    >
}
"""


@pytest.fixture(scope="module")
def nested() -> onnx.ModelProto:
    model = parser.parse_model(NESTED)
    for node in model.graph.node:
        node.name = f"node_{node.output[0]}"
    return model


@pytest.mark.parametrize(
    ("x", "outer", "inner", "rounds", "last"),
    [((1, 1, 0), 1, 1, 0, -1), ((1, -1, 3), 1, 0, 3, 1), ((-1, 1, 2), 0, -1, 2, 0), ((-2, -1, 5), 0, -1, 5, 1)],
)
def test_nested_branches_and_loops_tell_what_they_did(
    nested: onnx.ModelProto, x: tuple[int, ...], outer: int, inner: int, rounds: int, last: int, tmp_path: Path
) -> None:
    onnx.save(nested, tmp_path / "model.onnx")
    side = BranchingSide(tmp_path / "model.onnx", Ort(), ROW_CONTRACT)
    case = Case({"x": np.array(x, np.float32)})
    told = side.run(case)
    assert told is not None
    (first, second, loop, inside) = told.decisions
    assert (first.key, first.outcome) == ("ort:node_z", outer)
    assert second.key.startswith("ort:node_z/then_branch/")
    assert second.outcome == inner
    assert (loop.key, loop.outcome, loop.what) == ("ort:node_y", rounds, ONNX_LOOP)
    assert inside.key.startswith("ort:node_y/body/")
    assert inside.outcome == last
    plain = onnxruntime.InferenceSession(nested.SerializeToString()).run(None, {"x": case.inputs["x"]})
    assert [plain[0].tobytes()] == [output.tobytes() for output in told.outputs]


def test_a_tapped_graph_is_valid_and_keeps_its_own_outputs_first(nested: onnx.ModelProto) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(nested)
    taps = tapped(copy)
    onnx.checker.check_model(copy, full_check=True)
    assert [value.name for value in copy.graph.output] == ["y", *(tap.name for tap in taps)]
    assert [tap.what for tap in taps] == [ONNX_IF, ONNX_IF, ONNX_LOOP, ONNX_IF]


def test_a_graph_without_branches_is_not_opened_again(tmp_path: Path) -> None:
    text = '<ir_version: 9, opset_import: ["" : 18]> plain (float[3] x) => (float[3] y) { y = Neg (x) }'
    onnx.save(parser.parse_model(text), tmp_path / "model.onnx")
    side = BranchingSide(tmp_path / "model.onnx", Ort(), ROW_CONTRACT)
    assert not side.has_branches
    assert side.run(Case({"x": np.ones(3, np.float32)})) is None
