"""Places of faults planted in right exports: node and source line, with the exporter's names and without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch.nn import functional

from fuzzparity import Ort, Target
from fuzzparity.case import Array, Case
from fuzzparity.execution import TORCH, Execution, Status
from fuzzparity.explain.locating import located
from fuzzparity.explain.records import TwinSpec
from fuzzparity.generate.contract import SeedStatistics
from fuzzparity.oracle.policy import Policy
from fuzzparity.sides.build import PROGRAM_FILE
from fuzzparity.sides.export import make_build
from fuzzparity.sides.exporting import dynamo_program
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.parts import run_part
from fuzzparity.sides.quiet import quietly
from fuzzparity.sides.tensors import to_array
from fuzzparity.verdict import Attribution, Grade, Kind, Verdict
from fuzzparity.work.announce import Announcer
from fuzzparity.work.limits import Limits
from fuzzparity.work.loader import Context

pytestmark = pytest.mark.slow

Plant = Callable[[onnx.ModelProto], object]
SECONDS = 120.0


class Bed:
    """A module, its right export, and a way to ask for the place of what is planted in a copy of it."""

    def __init__(self, module: torch.nn.Module, x: Array, folder: Path) -> None:
        self.module, self.folder = module.eval(), folder
        with quietly(), torch.no_grad():
            program = dynamo_program(self.loaded(x, None), {}, Case({"x": x}))
        self.model, self.exported = program.model_proto, program.exported_program

    def loaded(self, x: Array, model: onnx.ModelProto | None) -> LoadedTarget:
        target = Target(module=self.module, inputs={"x": x}, onnx=model)
        return LoadedTarget(target, "net", "", str(Path(__file__).parent), (), Case({"x": x}), self.module)

    def place(self, plant: Plant, x: Array, *, output: int = 0, is_named: bool = True) -> Attribution:
        """Return what is told of the place of a planted fault, by an output that shows it."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        plant(model)
        if not is_named:
            for node in nodes(model.graph):
                del node.metadata_props[:]
        loaded, case = self.loaded(x, model), Case({"x": x})
        facts = make_build(loaded, self.folder).facts
        assert facts is not None
        if is_named:
            torch.export.save(self.exported, Path(facts.build.folder) / PROGRAM_FILE)
        with torch.no_grad():
            answer = self.module(torch.from_numpy(x))
        answers = answer if isinstance(answer, tuple) else (answer,)
        expected = Execution(TORCH, Status.OK, tuple(to_array(one) for one in answers))
        actual = run_part(model.SerializeToString(), {"x": x}, Ort())
        assert not np.allclose(expected.outputs[output], actual.outputs[output], rtol=1e-3, atol=1e-4)
        verdict = Verdict(Kind.NUMERIC, Grade.BUG, facts.outputs[output], blame="onnx_file")
        map_path = self.folder / "map"
        context = Context(loaded, Pipe()[0], Announcer(map_path), map_path, Limits(SECONDS, None))
        spec = TwinSpec(facts, Policy({}), SeedStatistics.of([case], has_real_seeds=False))
        found = located(context, spec, case, verdict, expected, actual, seconds=SECONDS).attribution
        assert found is not None
        return found


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes(attribute.g)


def node_of(model: onnx.ModelProto, op: str, place: int = 0) -> onnx.NodeProto:
    return [node for node in nodes(model.graph) if node.op_type == op][place]


def line_of(mark: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith(f"# line: {mark}"))
    return f"{Path(__file__).name}:{number}"


def as_op(old: str, new: str, place: int = 0) -> Plant:
    def plant(model: onnx.ModelProto) -> None:
        node_of(model, old, place).op_type = new

    return plant


def with_attribute(op: str, name: str, value: object, place: int = 0) -> Plant:
    def plant(model: onnx.ModelProto) -> None:
        node = node_of(model, op, place)
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])

    return plant


def with_scaled_weight(op: str, place: int = 0, factor: float = 1.1) -> Plant:
    """Scale the constant that a node reads, in a copy of its own."""

    def plant(model: onnx.ModelProto) -> None:
        node = node_of(model, op, place)
        weights = {tensor.name: tensor for tensor in model.graph.initializer}
        at = next(i for i, name in enumerate(node.input) if name in weights)
        array = numpy_helper.to_array(weights[node.input[at]])
        model.graph.initializer.append(numpy_helper.from_array((array * factor).astype(array.dtype), "scaled"))
        node.input[at] = "scaled"

    return plant


def draw(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


class Conv(torch.nn.Module):
    """A convolutional network of some 40 nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.convs = torch.nn.ModuleList(torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(10))
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.stem(x))
        for conv in self.convs:
            z = conv(y)  # line: conv
            z = functional.leaky_relu(z, 0.1)  # line: leaky
            y = torch.tanh(y + z)  # line: residual
        y = functional.avg_pool2d(y, 3, stride=2, padding=1)  # line: pool
        return self.head(y.mean((2, 3)))  # line: head


class Encoder(torch.nn.Module):
    """Two layers of a transformer: attention written out, and torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(16) for _ in range(2))
        self.mixed = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16)
        self.wide, self.narrow = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def heads(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [part.unflatten(-1, (4, 4)).transpose(1, 2) for part in self.mixed(x).chunk(3, -1)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        scores = q @ k.transpose(-1, -2)  # line: scores
        weights = torch.softmax(scores / 2.0, -1)  # line: softmax
        mixed = (weights @ v).transpose(1, 2).flatten(2)
        x = self.norms[0](x + self.out(mixed))  # line: norm
        x = x + self.narrow(functional.gelu(self.wide(x)))  # line: ffn
        q, k, v = self.heads(x)
        again = functional.scaled_dot_product_attention(q, k, v)  # line: sdpa
        return self.norms[1](x + again.transpose(1, 2).flatten(2))


class Branching(torch.nn.Module):
    """Control flow, and a value that only large inputs take past 6."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def positive(value: torch.Tensor) -> torch.Tensor:
            value = torch.exp(value * 0.1)
            return torch.sin(value) + 1  # line: then

        def negative(value: torch.Tensor) -> torch.Tensor:
            return torch.cos(value) * 2  # line: else

        def turn(i: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, torch.tanh(value) * 1.5  # line: body

        chosen = torch.cond(x.sum() > 0, positive, negative, (x + 0.5,))
        _, turned = torch.while_loop(lambda i, value: i < 3, turn, (torch.tensor(0), chosen))
        wide = torch.relu(x * 4 + 0.1)  # line: relu
        return turned, torch.sqrt(wide + 1)


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    torch.manual_seed(0)
    return Bed(Conv(), draw(2, 3, 9, 9), tmp_path_factory.mktemp("conv"))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    torch.manual_seed(0)
    return Bed(Encoder(), draw(2, 5, 16), tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def branching(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    return Bed(Branching(), draw(2, 6), tmp_path_factory.mktemp("branching"))


def told(found: Attribution) -> tuple[str, str, str]:
    return found.op, found.onnx_node, found.source


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize(
    ("plant", "op", "place", "mark"),
    [
        (with_scaled_weight("Conv", 6), "Conv", 6, "conv"),
        (with_attribute("LeakyRelu", "alpha", 0.3, 4), "LeakyRelu", 4, "leaky"),
        (as_op("Add", "Sub", 7), "Sub", 0, "residual"),
        (with_attribute("AveragePool", "count_include_pad", 0), "AveragePool", 0, "pool"),
        (with_scaled_weight("Gemm"), "Gemm", 0, "head"),
    ],
    ids=["conv", "leaky", "residual", "pool", "head"],
)
def test_a_conv_net_of_40_nodes(conv: Bed, plant: Plant, op: str, place: int, mark: str, is_named: bool):
    assert len(conv.model.graph.node) >= 40
    model = onnx.ModelProto()
    model.CopyFrom(conv.model)
    plant(model)
    found = conv.place(plant, draw(2, 3, 9, 9), is_named=is_named)
    assert told(found) == (op, node_of(model, op, place).name, line_of(mark))
    assert not found.is_guess


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize(
    ("plant", "op", "place", "mark"),
    [
        (with_scaled_weight("Div"), "Div", 0, "softmax"),
        (with_attribute("Softmax", "axis", 1), "Softmax", 0, "softmax"),
        (with_attribute("LayerNormalization", "epsilon", 0.3), "LayerNormalization", 0, "norm"),
        (with_scaled_weight("MatMul", 4), "MatMul", 4, "ffn"),
        (with_scaled_weight("Add", 3, 3.0), "Add", 3, "ffn"),  # the bias of the same layer
        (with_attribute("Softmax", "axis", 1, 1), "Softmax", 1, "sdpa"),
        (with_scaled_weight("Mul"), "Mul", 0, "sdpa"),  # the scale inside of torch's one operator
    ],
    ids=["scores", "softmax", "norm", "ffn", "bias", "sdpa", "scale"],
)
def test_a_transformer_encoder(encoder: Bed, plant: Plant, op: str, place: int, mark: str, is_named: bool):
    model = onnx.ModelProto()
    model.CopyFrom(encoder.model)
    plant(model)
    found = encoder.place(plant, 2 * draw(2, 5, 16), is_named=is_named)
    assert told(found) == (op, node_of(model, op, place).name, line_of(mark))
    assert not found.is_guess


def relu_that_ends_at_six(model: onnx.ModelProto) -> None:
    node = node_of(model, "Relu")
    node.op_type = "Clip"
    for name, value in (("low", 0), ("high", 6)):
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
        node.input.append(name)


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize(
    ("plant", "sign", "op", "mark"),
    [(as_op("Sin", "Tanh"), 1, "Tanh", "then"), (as_op("Cos", "Sin"), -1, "Sin", "else")],
    ids=["then", "else"],
)
def test_inside_the_arm_that_ran(branching: Bed, plant: Plant, sign: int, op: str, mark: str, is_named: bool):
    found = branching.place(plant, sign * np.abs(draw(2, 6)), is_named=is_named)
    node = "node_sin" if op == "Tanh" else "node_cos"
    assert told(found) == (op, node, line_of(mark))
    assert f"in node_cond__0/{mark}_branch" in found.place_how


@pytest.mark.parametrize("is_named", [True, False])
def test_inside_the_body_of_a_loop(branching: Bed, is_named: bool):
    found = branching.place(as_op("Tanh", "Sigmoid"), draw(2, 6), is_named=is_named)
    assert told(found) == ("Sigmoid", "node_tanh", line_of("body"))
    assert "/body[0]" in found.place_how


@pytest.mark.parametrize("is_named", [True, False])
def test_a_fault_that_needs_a_range_of_intermediate_values(branching: Bed, is_named: bool):
    found = branching.place(relu_that_ends_at_six, 3 * draw(2, 6), output=1, is_named=is_named)
    assert told(found) == ("Clip", "node_relu", line_of("relu"))


@pytest.mark.parametrize("is_named", [True, False])
def test_each_of_two_faults_by_the_output_that_shows_it(branching: Bed, is_named: bool):
    def both(model: onnx.ModelProto) -> None:
        as_op("Tanh", "Sigmoid")(model)
        relu_that_ends_at_six(model)

    places = [branching.place(both, 3 * draw(2, 6), output=output, is_named=is_named) for output in (0, 1)]
    assert [place.onnx_node for place in places] == ["node_tanh", "node_relu"]
    assert [place.source for place in places] == [line_of("body"), line_of("relu")]


@pytest.mark.parametrize("is_named", [True, False])
def test_of_two_faults_on_one_way_the_first(conv: Bed, is_named: bool):
    def both(model: onnx.ModelProto) -> None:
        with_attribute("LeakyRelu", "alpha", 0.3, 2)(model)
        with_scaled_weight("Conv", 9)(model)

    found = conv.place(both, draw(2, 3, 9, 9), is_named=is_named)
    assert told(found) == ("LeakyRelu", node_of(conv.model, "LeakyRelu", 2).name, line_of("leaky"))


@pytest.mark.parametrize("is_named", [True, False])
def test_an_operator_that_the_file_lacks(encoder: Bed, is_named: bool):
    def without_gelu(model: onnx.ModelProto) -> None:
        gelu = node_of(model, "Gelu")
        reader = next(node for node in model.graph.node if gelu.output[0] in node.input)
        reader.input[0] = gelu.input[0]
        model.graph.node.remove(gelu)

    found = encoder.place(without_gelu, draw(2, 5, 16), is_named=is_named)
    assert (found.op, found.source, found.is_guess) == ("Gelu", line_of("ffn"), True)
    assert "no node of the model stands for torch's aten.gelu.default" in found.place_how
