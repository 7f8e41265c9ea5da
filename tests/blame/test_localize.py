"""Places of planted faults: the node, the line and the body, by torch's own values; an exact twin has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from fuzzparity import Ort, Target
from fuzzparity.blame.localize import Located, locate_paired
from fuzzparity.blame.subgraphs import substituted
from fuzzparity.case import Case
from fuzzparity.sides.bare import run_bare
from fuzzparity.sides.exporting import dynamo_program
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.own_code import own_place, places_in
from fuzzparity.sides.program import Program
from fuzzparity.sides.quiet import quietly

PLAIN = replace(Ort(), optimization_level="none")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.norm = torch.nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.norm(self.first(x))  # line: norm
        wide = torch.relu(x * 100)  # line: relu

        def positive(value: torch.Tensor) -> torch.Tensor:
            return torch.sin(value) + 1

        def negative(value: torch.Tensor) -> torch.Tensor:
            return torch.cos(value)

        chosen = torch.cond(x.sum() > 0, positive, negative, (hidden,))  # line: cond
        _, turned = torch.while_loop(
            lambda i, value: i < 3, lambda i, value: (i + 1, torch.tanh(value) * 1.5), (torch.tensor(0), chosen)
        )
        return turned, wide + 1


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# line: {mark}"))


SMALL = np.linspace(0.001, 0.05, 12).reshape(2, 6)
LARGE = np.linspace(-1, 1.2, 12).reshape(2, 6)


def case_of(x: np.ndarray) -> Case:
    return Case({"x": x.astype(np.float32)})


class Planted:
    """An exported twin, its program, and a way to look for what is planted in a copy of it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.module = Net().eval()
        with quietly(), torch.no_grad():
            program = dynamo_program(self.loaded(LARGE), {}, case_of(LARGE))
        self.model, self.exported = program.model_proto, program.exported_program

    def loaded(self, x: np.ndarray) -> LoadedTarget:
        target = Target(module=self.module, inputs={"x": x.astype(np.float32)})
        return LoadedTarget(target, "net", "", str(Path(__file__).parent), (), case_of(x), self.module)

    def locate(self, plant: Callable[[onnx.ModelProto], object], x: np.ndarray, output: int) -> Located | None:
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        plant(model)
        case = case_of(x)
        program = Program(self.loaded(x), self.exported)
        scope = program.run(case)
        feeds, expected = {"x": case.inputs["x"]}, scope.values[scope.outputs[output]]

        def heals(name: str, value: np.ndarray) -> bool:
            changed = substituted(model, name, value).SerializeToString()
            answer = run_bare(changed, {**feeds, f"{name}__given": value}, Ort())
            return answer is not None and np.allclose(answer[output], expected, rtol=1e-4, atol=1e-5)

        def matters(name: str, value: np.ndarray) -> bool:
            changed = program.run(case, {name: value})
            return not np.allclose(changed.values[changed.outputs[output]], expected, rtol=1e-4, atol=1e-5)

        return locate_paired(
            model,
            scope,
            feeds,
            lambda part, fed: run_bare(part, fed, PLAIN),
            output=output,
            heals=heals,
            matters=matters,
            noise=program.noise,
        )


@pytest.fixture(scope="module")
def planted() -> Planted:
    return Planted()


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes(attribute.g)


def node_of(model: onnx.ModelProto, op: str) -> onnx.NodeProto:
    return next(node for node in nodes(model.graph) if node.op_type == op)


def wrong_epsilon(model: onnx.ModelProto) -> None:
    attributes = node_of(model, "LayerNormalization").attribute
    next(attribute for attribute in attributes if attribute.name == "epsilon").f = 0.5


def as_op(old: str, new: str) -> Callable[[onnx.ModelProto], None]:
    def plant(model: onnx.ModelProto) -> None:
        node_of(model, old).op_type = new

    return plant


def relu_that_ends_at_six(model: onnx.ModelProto) -> None:
    node = node_of(model, "Relu")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0, np.float32), "low"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(6, np.float32), "high"))
    node.op_type = "Clip"
    node.input.extend(["low", "high"])


def own_line(located: Located) -> int:
    place = own_place(places_in(located.stack))
    assert place is not None
    return place[1]


def test_an_exact_twin_has_no_place(planted: Planted):
    assert planted.locate(lambda model: None, LARGE, 0) is None
    assert planted.locate(lambda model: None, LARGE, 1) is None


def test_a_wrong_attribute_is_found_with_its_module_and_line(planted: Planted):
    found = planted.locate(wrong_epsilon, LARGE, 0)
    assert found is not None
    assert (found.op, found.onnx_node, found.fx_node) == ("LayerNormalization", "node_layer_norm", "layer_norm")
    assert (found.module, own_line(found), found.is_guess) == ("norm", line_of("norm"), False)
    assert "healed by giving it torch's value" in found.how


@pytest.mark.parametrize(("sign", "old", "new", "body"), [(1, "Sin", "Cos", "then"), (-1, "Cos", "Sin", "else")])
def test_a_fault_in_the_arm_that_ran_is_found_in_it(planted: Planted, sign: int, old: str, new: str, body: str):
    found = planted.locate(as_op(old, new), sign * np.abs(LARGE), 0)
    assert found is not None
    assert found.op == new
    assert found.path == (f"node_cond__0/{body}_branch",)
    assert own_line(found) == line_of("cond")


def test_a_fault_in_the_other_arm_does_not_show(planted: Planted):
    assert planted.locate(as_op("Cos", "Sin"), np.abs(LARGE), 0) is None


def test_a_fault_in_a_loop_is_found_in_its_first_turn(planted: Planted):
    found = planted.locate(as_op("Tanh", "Sigmoid"), LARGE, 0)
    assert found is not None
    assert (found.op, found.fx_node) == ("Sigmoid", "tanh")
    assert found.path[0].endswith("/body[0]")


def test_a_fault_that_needs_large_intermediates_is_found_only_with_them(planted: Planted):
    assert planted.locate(relu_that_ends_at_six, SMALL, 1) is None
    found = planted.locate(relu_that_ends_at_six, LARGE, 1)
    assert found is not None
    assert (found.op, own_line(found)) == ("Clip", line_of("relu"))


def test_of_two_faults_each_output_names_its_own(planted: Planted):
    def both(model: onnx.ModelProto) -> None:
        wrong_epsilon(model)
        relu_that_ends_at_six(model)

    places = [planted.locate(both, LARGE, output) for output in (0, 1)]
    assert [place.op for place in places if place is not None] == ["LayerNormalization", "Clip"]


def test_two_faults_on_one_way_are_both_told(planted: Planted):
    def both(model: onnx.ModelProto) -> None:
        wrong_epsilon(model)
        as_op("Tanh", "Sigmoid")(model)

    found = planted.locate(both, LARGE, 0)
    assert found is not None
    assert (found.op, found.is_guess) == ("LayerNormalization", False)
    assert len(found.also) == 1  # the loop, by the value that leaves it
