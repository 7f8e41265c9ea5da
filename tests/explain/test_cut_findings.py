"""Findings of real twins are cut by real processes: an integer pass, a wrong node of a given file, a dying kernel."""

import os
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest

from fuzzparity.campaign.options import TargetOptions
from fuzzparity.campaign.setup import close_pool, prepare
from fuzzparity.case import Array, Case
from fuzzparity.explain.records import ExamineSpec, InvestigateSpec, Investigation
from fuzzparity.finding import Cut
from fuzzparity.sides.parts import run_part
from fuzzparity.target import Ort

pytestmark = pytest.mark.slow

COMMON = """
    import torch
    from onnx import TensorProto, helper, numpy_helper

    from fuzzparity import Target


    def given(nodes, inputs, kind, weights=()):
        infos = [helper.make_tensor_value_info(name, kind, ["n"]) for name in inputs]
        graph = helper.make_graph(nodes, "net", infos, [helper.make_tensor_value_info("y", kind, ["n"])], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


    def node(op, inputs, output, **more):
        return helper.make_node(op, inputs.split(), [output], name=f"at_{output}", **more)
"""
PASS = """
    def target():
        one = numpy_helper.from_array(torch.ones((), dtype=torch.int64).numpy(), "one")
        nodes = [node("Neg", "z", "m"), node("Neg", "m", "p"), node("Div", "one x", "r"), node("Mul", "r p", "y")]

        def net(x, z):
            return torch.div(torch.ones_like(x), x, rounding_mode="trunc") * z

        start = {"x": torch.tensor([1, -1]), "z": torch.tensor([5, 7])}
        return Target(module=net, inputs=start, onnx=given(nodes, "xz", TensorProto.INT64, [one]))
"""
NODE = """
    def target():
        nodes = [node("Sin", "x", "a"), node("LeakyRelu", "a", "b", alpha=0.2), node("Tanh", "b", "y")]

        def net(x):
            return torch.tanh(torch.relu(torch.sin(x)))

        return Target(module=net, inputs={"x": torch.ones(4)}, onnx=given(nodes, "x", TensorProto.FLOAT))
"""
DEATH = """
    def target():
        nodes = [node("Neg", "b", "m"), node("Neg", "m", "p"), node("Div", "a p", "q"), node("Neg", "q", "y")]

        def net(a, b):
            return -torch.trunc(a.double() / b.double()).to(torch.int64).to(torch.int32)

        start = {"a": torch.tensor([4], dtype=torch.int32), "b": torch.tensor([2], dtype=torch.int32)}
        return Target(module=net, inputs=start, onnx=given(nodes, "ab", TensorProto.INT32))
"""

# where a window is larger than what it slides over, this kernel ends the process
POOL = """
    from fuzzparity import Export


    class Pool(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.max_pool2d(x, 3, 2, ceil_mode=True)


    def target():
        start, dims = {"x": torch.ones(2, 16, 17, 17)}, {"x": {0: "n"}}
        return Target(module=Pool(), inputs=start, dynamic_shapes=dims, export=Export(exporter="torchscript"))
"""


def cut_of(folder: Path, target: str, inputs: dict[str, Array]) -> Cut | None:
    """Judge and investigate one case of a target, and return what its model was cut to."""
    (folder / "subject.py").write_text(textwrap.dedent(COMMON) + "\n\n" + textwrap.dedent(target))
    before = Path.cwd()
    os.chdir(folder)
    prepared = prepare(TargetOptions(target="subject.py"), workers=1, say=lambda stage: None)
    try:
        assert prepared.twin is not None
        spec = ExamineSpec(prepared.twin, Case(inputs))
        examined = prepared.pool.run(
            "fuzzparity.explain.examine:examine", spec, limits=prepared.limits, label="examine"
        )
        suspect = examined.suspects[0]
        job = "fuzzparity.explain.investigate:investigate"
        asked = InvestigateSpec(prepared.twin, suspect, minimize_executions=300, minimize_seconds=4.0)
        outcome = prepared.pool.run(job, asked, limits=prepared.limits, label="investigate")
        assert isinstance(outcome, Investigation)
        return outcome.cut
    finally:
        close_pool(prepared.pool)
        os.chdir(before)


def operators(cut: Cut) -> list[str]:
    return [node.op_type for node in onnx.load_model_from_string(cut.model).graph.node]


def test_a_pass_is_cut_to_its_pattern_without_the_users_values(tmp_path):
    cut = cut_of(tmp_path, PASS, {"x": np.array([2, 3, -4]), "z": np.array([10, 10, 10])})
    assert cut is not None
    assert (operators(cut), cut.way) == (["Div", "Mul"], "discrete")
    assert (cut.real_weights, cut.real_values) == ((), ())
    answer = run_part(cut.model, cut.feeds, Ort())
    assert answer.outputs[0].tolist() != cut.expected["y"].tolist()


def test_a_wrong_node_of_a_given_file_is_cut_out_with_torchs_own_value(tmp_path):
    cut = cut_of(tmp_path, NODE, {"x": np.linspace(-3, 3, 32, dtype=np.float32)})
    assert cut is not None
    assert (operators(cut), cut.shown_by) == (["LeakyRelu"], "ONNX Runtime against torch")
    (x,), (expected,) = cut.feeds.values(), cut.expected.values()
    assert x.min() < 0
    assert expected.tolist() == np.maximum(x, 0).tolist(), "what torch's relu gives there"
    assert (cut.torch_code, cut.torch_takes) == (("v1 = torch.relu(x)", "return (v1,)"), ("x",))
    assert cut.real_values == (), "torch answers for made-up values too"


def test_a_kernel_that_dies_is_cut_to_itself(tmp_path):
    least = np.iinfo(np.int32).min
    cut = cut_of(tmp_path, DEATH, {"a": np.array([7, least], np.int32), "b": np.array([2, -1], np.int32)})
    assert cut is not None
    assert (operators(cut), cut.way, cut.signal) == (["Div"], "crash", 8)
    assert {array.reshape(-1)[-1].item() for array in cut.feeds.values()} == {least, -1}


def test_a_kernel_that_dies_of_small_sizes_is_cut_to_those_that_it_survives(tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 16, 17, 17)).astype(np.float32)
    x[:, :, 0, 0] = np.nan
    cut = cut_of(tmp_path, POOL, {"x": x})
    assert cut is not None
    assert (operators(cut), cut.way) == (["MaxPool"], "nonfinite")
    (array,) = cut.feeds.values()
    assert array.size <= 9
