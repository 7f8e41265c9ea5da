"""Places without torch's program: rewritten patterns, values that are the same, lines a capture froze, bodies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from fuzzparity import Ort, Target
from fuzzparity.blame.by_value import locate_by_values
from fuzzparity.blame.capturing import left_at
from fuzzparity.blame.fused import guilty_rewrite, nodes_named, rewrites
from fuzzparity.blame.inner import guilty_inside
from fuzzparity.blame.origins import origin_of
from fuzzparity.blame.reference import intermediate_values
from fuzzparity.blame.subgraphs import substituted
from fuzzparity.case import Case
from fuzzparity.sides.bare import run_bare
from fuzzparity.sides.captured import traced
from fuzzparity.sides.eager import eager_events
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.optimized import optimized_model
from fuzzparity.sides.program import Program

PLAIN = replace(Ort(), optimization_level="none")


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, int], output: int, weights: dict[str, np.ndarray]):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in inputs.items()],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def loaded_of(module: torch.nn.Module, case: Case) -> LoadedTarget:
    target = Target(module=module, inputs=dict(case.inputs))
    return LoadedTarget(target, "net", "", str(Path(__file__).parent), (), case, module)


def plain(model: bytes, feeds: dict[str, np.ndarray]):
    return run_bare(model, feeds, PLAIN)


def optimized(model: bytes, feeds: dict[str, np.ndarray]):
    return run_bare(model, feeds, Ort())


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# line: {mark}"))


def test_the_pattern_that_a_pass_rewrote_is_named(tmp_path: Path):
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"], "twice"),
        helper.make_node("Div", ["one", "twice"], ["r"], "inverse"),
        helper.make_node("Mul", ["r", "z"], ["y"], "product"),
    ]
    model = model_of(
        nodes, {"x": TensorProto.INT32, "z": TensorProto.INT32}, TensorProto.INT32, {"one": np.array([1], np.int32)}
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with_pass = optimized_model(path, Ort())
    without = optimized_model(path, Ort(disabled_optimizers=["DivMulFusion"]))
    assert with_pass is not None
    assert without is not None
    feeds = {"x": np.array([2], np.int32), "z": np.array([9], np.int32)}
    places = rewrites(model, without, with_pass)
    found = guilty_rewrite(model, places, {**intermediate_values(model, feeds), **feeds}, optimized, plain)
    assert found is not None
    assert [node.name for node in found.nodes] == ["inverse", "product"]
    assert found.main.op_type == "Mul"
    assert [node.name for node in nodes_named(model, ["DivMulFusion"])] == ["inverse", "product"]


class Chain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.exp(x)
        b = torch.softmax(a, 1)  # line: softmax
        return torch.tanh(b) * 2


def test_a_given_file_without_names_is_paired_by_value_and_told_as_such():
    case = Case({"x": np.linspace(-1, 1, 6).reshape(2, 3).astype(np.float32)})
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"], axis=0),
        helper.make_node("Tanh", ["b"], ["c"]),
        helper.make_node("Mul", ["c", "two"], ["y"]),
    ]
    model = model_of(nodes, {"x": TensorProto.FLOAT}, TensorProto.FLOAT, {"two": np.array(2, np.float32)})
    feeds = {"x": case.inputs["x"]}
    expected = Chain()(torch.from_numpy(case.inputs["x"])).numpy()

    def heals(name: str, value: np.ndarray) -> bool:
        changed = substituted(model, name, value).SerializeToString()
        answer = optimized(changed, {**feeds, f"{name}__given": value})
        return answer is not None and np.allclose(answer[0], expected, rtol=1e-5)

    events = eager_events(loaded_of(Chain(), case), case)
    found = locate_by_values(model, intermediate_values(model, feeds), feeds, events, ["y"], heals)
    assert found is not None
    assert (found.node.op_type, found.heals, found.between) == ("Softmax", True, 1)
    assert found.event is not None
    assert found.event.source.endswith(f"test_local_places.py:{line_of('softmax')}")


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if x.sum() > 0:  # line: branch
            return torch.sin(y)
        return torch.cos(y)


def test_the_line_of_a_frozen_decision_is_named():
    seed, case = Case({"x": np.ones(3, np.float32)}), Case({"x": -np.ones(3, np.float32)})
    loaded = loaded_of(Branching(), seed)
    model = model_of([helper.make_node("Sin", ["x"], ["y"])], {"x": TensorProto.FLOAT}, TensorProto.FLOAT, {})
    found = left_at(
        eager_events(loaded, case),
        eager_events(traced(loaded), case),
        (),
        model,
        lambda source: Path(source).name,
        lambda stack: "",
    )
    assert found is not None
    assert found.source == f"test_local_places.py:{line_of('branch')}"
    assert not found.is_guess


class Asking(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        largest = x.abs().max()
        if largest > 3:  # line: asked
            return x - 1  # line: arm
        return x * 2


def test_the_line_of_a_decision_is_named_where_its_condition_is_computed_before_it():
    seed, case = Case({"x": np.ones(3, np.float32)}), Case({"x": 4 * np.ones(3, np.float32)})
    loaded = loaded_of(Asking(), seed)
    model = model_of([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": TensorProto.FLOAT}, TensorProto.FLOAT, {})
    eager, program = eager_events(loaded, case), eager_events(traced(loaded), case)
    found = left_at(eager, program, (), model, lambda source: Path(source).name, lambda stack: "")
    assert found is not None
    assert (found.source, found.is_guess) == (f"test_local_places.py:{line_of('asked')}", False)
    assert f"from aten.sub.Tensor (test_local_places.py:{line_of('arm')}) on" in found.how


class Sized(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 3:  # line: size
            return torch.sin(x)
        return torch.cos(x)


def test_the_line_of_a_condition_on_sizes_is_named():
    seed, case = Case({"x": np.ones(3, np.float32)}), Case({"x": np.ones(4, np.float32)})
    loaded = loaded_of(Sized(), seed)
    model = model_of([helper.make_node("Cos", ["x"], ["y"])], {"x": TensorProto.FLOAT}, TensorProto.FLOAT, {})
    eager, program = eager_events(loaded, case), eager_events(traced(loaded), case)
    found = left_at(eager, program, (), model, lambda source: Path(source).name, lambda stack: "")
    assert found is not None
    assert found.source == f"test_local_places.py:{line_of('size')}"


def test_a_kernel_that_is_wrong_inside_a_loop_is_found_in_the_body():
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("ReduceSum", ["state"], ["sum"], "sum", keepdims=1),  # int64 by way of double
            helper.make_node("Sub", ["state", "sum"], ["next"], "difference"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.INT64, [2]),
        ],
    )
    node = helper.make_node("Loop", ["trips", "", "x"], ["y"], "loop", body=body)
    model = model_of([node], {"x": TensorProto.INT64}, TensorProto.INT64, {"trips": np.array(2, np.int64)})
    found = guilty_inside(model, node, {"x": np.array([2**53 + 1, 2], np.int64)}, plain)
    assert found is not None
    assert (found[0].name, found[1]) == ("sum", ("loop/body[0]",))


def test_a_program_runs_cases_outside_of_the_range_that_was_captured():
    module = Sized()
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    exported = torch.export.export(module, (torch.ones(2),), dynamic_shapes=shapes, strict=False)
    case = Case({"x": np.ones(5, np.float32)})
    scope = Program(loaded_of(module, case), exported).run(case)
    assert scope.refused_at == ""
    assert scope.values[scope.outputs[0]].shape == (5,)


def test_a_node_without_metadata_has_the_scope_of_its_legacy_name():
    assert origin_of(helper.make_node("Conv", ["x"], ["y"], "/layer1/conv/Conv")).module == "layer1.conv"
    assert origin_of(helper.make_node("Conv", ["x"], ["y"], "plain")).module == ""
