"""The ONNX file as referee: float64 throughout, no vote where it cannot or where it disagrees with torch on a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, parser
from small_models import case, loaded

from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.oracle import Oracle, Policy
from fuzzparity.sides.file_referee import SOURCE, FileReferee
from fuzzparity.sides.onnx_double import in_double
from fuzzparity.sides.referee import Referee
from fuzzparity.sides.referees import Referees
from fuzzparity.verdict import Grade, Kind, Realism

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 8)).astype(np.float32)
W = RNG.normal(size=(8, 8)).astype(np.float32)


def model(body: str, *weights: onnx.TensorProto, opset: int = 20) -> onnx.ModelProto:
    text = f'<ir_version: 9, opset_import: ["" : {opset}, "own" : 1]> small (float[n,8] x) => (float[n,k] y) {{{body}}}'
    made = parser.parse_model(text)
    made.graph.initializer.extend(weights)
    return made


NETWORK = model(
    """h = MatMul (x, w)  half = Cast <to = 10> (h)  whole = Cast <to = 1> (half)
    tenth = Constant <value_float = 0.1> ()  scaled = Mul (whole, tenth)
    n = LayerNormalization <axis = -1> (scaled, ones)  s = Softmax <axis = -1> (n)  y = Erf (s)""",
    numpy_helper.from_array(W, "w"),
    numpy_helper.from_array(np.ones(8, np.float32), "ones"),
)


def network(x: torch.Tensor) -> torch.Tensor:
    scaled = x @ torch.from_numpy(W).to(x.dtype) * 0.1
    normed = torch.nn.functional.layer_norm(scaled, (8,))
    return torch.erf(normed.softmax(-1))


class OnlyFloat32(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise TypeError("this kernel takes float32 only")
        return network(x)


def referee(made: onnx.ModelProto, bits: int = 23) -> FileReferee:
    return FileReferee(made, {"x": "x"}, bits)


def test_a_file_in_double_gives_the_answer_of_a_module_in_double() -> None:
    exact = referee(NETWORK).exact(case(x=X))
    assert exact is not None
    wanted = network(torch.from_numpy(X).double()).numpy()
    # LayerNormalization's weights and 0.1 are float32 numbers in the file, the casts round nothing
    np.testing.assert_allclose(exact[0], wanted, rtol=1e-6)
    assert exact[0].dtype == np.float64
    kinds = {tensor.data_type for tensor in in_double(NETWORK).graph.initializer}
    assert kinds == {TensorProto.DOUBLE}
    assert NETWORK.graph.initializer[0].data_type == TensorProto.FLOAT


def test_it_rounds_at_random_and_knows_the_largest_value() -> None:
    one = referee(NETWORK)
    exact, moved, again = one.exact(case(x=X)), one.rounded(case(x=X), 1), one.rounded(case(x=X), 1)
    assert exact is not None
    assert moved is not None
    assert again is not None
    move = np.abs(moved[0] - exact[0]).max()
    assert 1e-9 < move < 1e-6
    np.testing.assert_array_equal(moved[0], again[0])
    assert one.peak(case(x=X)) >= np.abs(X.astype(np.float64) @ W.astype(np.float64)).max() - 1e-9


def test_weights_inside_subgraphs_and_constants_become_double() -> None:
    branch = helper.make_graph(
        [
            helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array([0.1], np.float32))),
            helper.make_node("Mul", ["x", "c"], ["z"]),
        ],
        "branch",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    made = model("yes = Constant <value_int = 1> () cond = Cast <to = 9> (yes) y = Identity (x)")
    made.graph.node.pop()
    made.graph.node.append(helper.make_node("If", ["cond"], ["y"], then_branch=branch, else_branch=branch))
    exact = referee(made).exact(case(x=X))
    assert exact is not None
    np.testing.assert_array_equal(exact[0], X.astype(np.float64) * np.float64(np.float32(0.1)))


def test_what_the_evaluator_lacks_is_named_and_no_vote() -> None:
    one = referee(model("y = own.Gadget (x)"))
    assert one.exact(case(x=X)) is None
    assert "Gadget" in one.missing


def test_a_file_that_disagrees_with_torch_on_the_seed_has_no_vote() -> None:
    expected = (network(torch.from_numpy(X)).numpy(),)
    assert referee(NETWORK).disagreement(case(x=X), expected) == ""
    assert "the file is at fault" in referee(NETWORK).disagreement(case(x=X), (expected[0] * np.float32(1.0001),))


def referees(module: Any, made: onnx.ModelProto) -> Referees:
    return Referees(Referee(loaded(module, {"x": X})), lambda: referee(made))


def test_the_file_answers_where_the_module_cannot_run_in_float64() -> None:
    asked = referees(OnlyFloat32(), NETWORK)
    assert asked.exact(case(x=X)) is not None
    assert (asked.source, asked.is_of_file, asked.missing) == (SOURCE, True, "")
    able = referees(network, NETWORK)
    assert able.exact(case(x=X)) is not None
    assert (able.source, able.is_of_file) == ("torch float64", False)
    neither = referees(OnlyFloat32(), model("y = own.Gadget (x)"))
    assert neither.exact(case(x=X)) is None
    assert "this kernel takes float32 only" in neither.missing
    assert "Gadget" in neither.missing


@pytest.mark.parametrize("is_files_fault", [False, True])
def test_its_word_against_ort_is_a_bug_of_ort_and_against_torch_blames_neither(is_files_fault: bool) -> None:
    expected = network(torch.from_numpy(X)).numpy()
    off = expected * np.float32(1.01)
    pair = (off, expected) if is_files_fault else (expected, off)
    oracle = Oracle(("y",), Policy(("y",), "float32", {}, {}), lambda case: "", lambda case: Realism.NEAR)
    sides = (Execution(side, Status.OK, (array,)) for side, array in zip((TORCH, ORT), pair, strict=True))
    verdict = oracle.judge(case(x=X), *sides, referees(OnlyFloat32(), NETWORK)).worst
    assert verdict is not None
    assert verdict.evidence is not None
    assert (verdict.kind, verdict.grade, verdict.evidence.source) == (Kind.NUMERIC, Grade.BUG, SOURCE)
    assert verdict.side == ("" if is_files_fault else ORT)
    assert verdict.blame == "unknown"
    assert ("means something else than the module" in verdict.evidence.note) == is_files_fault


def test_a_headline_says_whose_answer_it_was() -> None:
    expected = network(torch.from_numpy(X)).numpy()
    oracle = Oracle(("y",), Policy(("y",), "float32", {}, {}), lambda case: "", lambda case: Realism.NEAR)
    sides = (Execution(TORCH, Status.OK, (expected,)), Execution(ORT, Status.OK, (expected * np.float32(1.01),)))
    file, module = (
        oracle.judge(case(x=X), *sides, referees(one, NETWORK)).verdicts[0] for one in (OnlyFloat32(), network)
    )
    assert "the ONNX reference in float64 sides with torch" in file.headline
    assert "the exact answer sides with torch" in module.headline
