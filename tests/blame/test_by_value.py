"""Places by value: wrong nodes of files without names, on drawn inputs and on ones made so small that zeros abound."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper, parser

from fuzzparity import Ort, Target
from fuzzparity.blame.by_value import Match, locate_by_values
from fuzzparity.blame.subgraphs import substituted
from fuzzparity.case import Array, Case
from fuzzparity.explain.programs import onnx_values
from fuzzparity.sides.bare import run_bare
from fuzzparity.sides.eager import eager_events
from fuzzparity.sides.load import LoadedTarget

PLAIN = replace(Ort(), optimization_level="none")
Function = Callable[..., torch.Tensor]


class Net(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def right(function: Function, inputs: dict[str, Array]) -> Array:
    answer: Array = function(*[torch.from_numpy(array.copy()) for array in inputs.values()]).numpy()
    return answer


def agree(expected: Array, actual: Array | None) -> bool:
    is_alike = actual is not None and expected.shape == actual.shape
    return is_alike and np.allclose(expected, actual, rtol=1e-4, atol=1e-5, equal_nan=True)


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> Array | None:
    answer = run_bare(model.SerializeToString(), feeds, Ort())
    return None if answer is None else np.asarray(answer[0])


def found(function: Function, model: onnx.ModelProto, inputs: dict[str, Array]) -> Match:
    expected = right(function, inputs)
    assert not agree(expected, run(model, inputs))

    def heals(name: str, value: Array) -> bool:
        return agree(expected, run(substituted(model, name, value), {**inputs, f"{name}__given": value}))

    module, case = Net(function), Case(inputs)
    target = Target(module=module, inputs=dict(inputs))
    loaded = LoadedTarget(target, "net", "", str(Path(__file__).parent), (), case, module)
    events = eager_events(loaded, case, steps=True)
    values = onnx_values(model, inputs, lambda part, feeds: run_bare(part, feeds, PLAIN))
    match = locate_by_values(model, values, inputs, events, [model.graph.output[0].name], heals)
    assert match is not None
    return match


def smallest(function: Function, model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    """Return inputs of zeros and ones as far as the sides still differ on them."""
    found = {name: array.copy() for name, array in inputs.items()}
    for name, array in inputs.items():
        for place in range(array.size):
            for value in (0, 1, -1):
                tried = {one: other.copy() for one, other in found.items()}
                tried[name].reshape(-1)[place] = value
                if not agree(right(function, tried), run(model, tried)):
                    found = tried
                    break
    return found


W = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
WEIGHT = torch.from_numpy(W)
X = np.random.default_rng(2).standard_normal((3, 6)).astype(np.float32)
IDS = np.array([-7, 3, -2, 5, 8, -9, 0, 1])
INT, TWICE = "(int64[n] x) => (int64[n] y) <int64 three = {3}>", "<float two = {2}>"
ROWS = "(float[n, w] x) => (float[n, m] y) <float two = {2}>"

FAULTS: dict[str, tuple[Function, str, Array, str]] = {
    "decision": (
        lambda x: (torch.relu(x).argmax(1) + 1) * 3,
        """(float[n, w] x) => (int64[n] y) <int64 three = {3}, int64 uno = {1}> { a = Relu (x)
        b = ArgMax <axis = 1, keepdims = 0, select_last_index = 1> (a)  c = Add (b, uno)  y = Mul (c, three) }""",
        -np.abs(X),
        "ArgMax",
    ),
    "truncated": (
        lambda x: torch.floor_divide(x, 3).clamp(min=-3) + x,
        f"{INT} {{ a = Div (x, three)  b = Max (a, low)  y = Add (b, x) }}".replace("{3}>", "{3}, int64 low = {-3}>"),
        IDS,
        "Div",
    ),
    "order": (
        lambda x: torch.tanh(x.sort(1, descending=True).values) * 2,
        f"{ROWS} {{ v, i = TopK <largest = 0> (x, k)  t = Tanh (v)  y = Mul (t, two) }}".replace(
            "{2}>", "{2}, int64[1] k = {6}>"
        ),
        X,
        "TopK",
    ),
    "axis": (
        lambda x: (torch.softmax(x @ WEIGHT, -1) > 0.2).float() * 2,
        f"{ROWS} {{ a = MatMul (x, w)  b = Softmax <axis = 0> (a)  c = Greater (b, part)  d = Cast <to = 1> (c) "
        f"y = Mul (d, two) }}",
        X,
        "Softmax",
    ),
    "bias": (
        lambda x: torch.tanh(torch.nn.functional.linear(x, WEIGHT.T, torch.ones(4))) * 2,
        f"{ROWS} {{ a = MatMul (x, w)  b = Sub (a, ones)  c = Tanh (b)  y = Mul (c, two) }}",
        X,
        "Sub",
    ),
    "elements": (
        lambda x: torch.sin(x)[:, 1:3] * 2,
        f"{ROWS} {{ a = Sin (x)  b = Slice (a, from, to, axes)  y = Mul (b, two) }}",
        X,
        "Slice",
    ),
    "permuted": (
        lambda x: (torch.sin(x.reshape(3, 3, 2)).permute(1, 0, 2) + 2).reshape(3, 6),
        f"{ROWS} {{ r = Reshape (x, cube)  a = Sin (r)  t = Transpose <perm = [0, 1, 2]> (a)  b = Add (t, two) "
        f"y = Reshape (b, flat) }}",
        X,
        "Transpose",
    ),
    "condition": (
        lambda x: torch.where(x >= 1, x * 0, x + 2),
        f"{ROWS} {{ c = Greater (x, one)  a = Mul (x, zero)  b = Add (x, two)  y = Where (c, a, b) }}",
        np.array([[1, 2, 0], [1, 3, -1]], np.float32),
        "Greater",
    ),
}
WEIGHTS = {
    "w": W,
    "part": np.float32(0.2),
    "ones": np.ones(4, np.float32),
    "one": np.float32(1),
    "zero": np.float32(0),
    "from": np.array([2]),
    "to": np.array([4]),
    "axes": np.array([1]),
    "cube": np.array([3, 3, 2]),
    "flat": np.array([3, 6]),
}


def model_of(text: str) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> net {text}')
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in WEIGHTS.items() if name in read
    )
    return model


@pytest.mark.parametrize("is_smallest", [False, True], ids=["drawn", "smallest"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_wrong_node_itself_is_named(fault: str, is_smallest: bool):
    function, text, x, op = FAULTS[fault]
    model = model_of(text)
    inputs = smallest(function, model, {"x": x}) if is_smallest else {"x": x}
    match = found(function, model, inputs)
    assert match.lost is None
    assert match.node.op_type == op
    assert match.heals


def test_a_bias_that_is_all_that_is_left_is_no_proof_that_the_values_before_it_are_right():
    rng = np.random.default_rng(0)
    weight, bias = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((4, 64), 64))
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> net (float[n, 4] x) => (float[n, 64] y) <float zero = {0}> '
        "{ c = Greater (x, zero)  a = Where (c, x, zero)  b = Gemm (a, weight, bias)  y = Relu (b) }"
    )
    model.graph.initializer.extend([numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")])
    given = [torch.from_numpy(array) for array in (weight.T.copy(), bias)]
    match = found(
        lambda x: torch.relu(torch.nn.functional.linear(torch.relu(x), *given)),
        model,
        {"x": np.full((1, 4), np.nan, np.float32)},
    )
    assert (match.node.op_type, match.heals) == ("Where", True)
    assert match.event is not None
    assert match.event.op == "aten.relu.default"


def test_an_operator_that_had_nothing_to_do_in_torch_still_stands_for_the_node_of_its_kind():
    weight = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> net (float[n, 4] x) => (float[n, 4] y) <float six = {6}> '
        "{ a = MatMul (x, weight)  b = Min (a, six)  c = MatMul (b, weight)  y = Tanh (c) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    given = torch.from_numpy(weight)
    x = (np.float32([[6.5, 1.0, -2.0, 0.5]]) @ np.linalg.inv(weight)).astype(np.float32)  # all below torch's bound
    match = found(lambda x: torch.tanh((x @ given).clamp(max=8.0) @ given), model, {"x": x})
    assert match.event is not None
    assert (match.node.op_type, match.event.op, match.is_sure) == ("Min", "aten.clamp.default", True)


def test_an_operator_that_the_file_lacks_is_named_with_the_node_that_reads_on():
    match = found(
        lambda x: torch.tanh(torch.relu(x @ WEIGHT) * 2),
        model_of(f"{ROWS} {{ a = MatMul (x, w)  b = Mul (a, two)  y = Tanh (b) }}"),
        {"x": X},
    )
    assert match.lost is not None
    assert (match.lost.op, match.node.op_type, match.is_sure) == ("aten.relu.default", "Mul", False)


def test_a_node_that_torch_has_no_operator_for_is_named():
    table = np.random.default_rng(1).uniform(-1, 1, (9, 5)).astype(np.float32)
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> net (int64[n] x) => (float[n, 5] y) <int64 most = {6}> '
        "{ c = Min (x, most)  g = Gather (table, c)  y = Tanh (g) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    weight = torch.from_numpy(table)
    match = found(lambda x: torch.tanh(torch.nn.functional.embedding(x, weight)), model, {"x": np.array([2, 8, 5])})
    assert (match.node.op_type, match.heals, match.lost) == ("Min", True, None)


def traced(function: Function, *sample: torch.Tensor) -> onnx.ModelProto:
    stream = io.BytesIO()
    names = [f"x{place}" for place in range(len(sample))]
    torch.onnx.export(Net(function), sample, stream, dynamo=False, input_names=names, opset_version=18)
    return onnx.load_from_string(stream.getvalue())


def rescaled_row(x: torch.Tensor) -> torch.Tensor:
    y = x + 0.0
    row = y[0]
    row.mul_((row > 0).float())
    return y.exp()


@pytest.mark.filterwarnings("ignore")
def test_a_write_that_tracing_drops_is_named():
    match = found(rescaled_row, traced(rescaled_row, torch.ones(2, 2)), {"x0": np.array([[0, -1], [0, 0]], np.float32)})
    assert match.lost is not None
    assert match.lost.op == "aten.mul_.Tensor"


@pytest.mark.filterwarnings("ignore")
def test_the_node_that_does_the_work_of_a_pattern_is_named():
    def added(total: torch.Tensor, places: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return total.index_add(0, places, rows)

    model = traced(added, torch.zeros(4, 3), torch.arange(4), torch.ones(4, 3))
    rows = np.zeros((4, 3), np.float32)
    rows[0, 0] = 1
    match = found(added, model, {"x0": np.zeros((4, 3), np.float32), "x1": np.zeros(4, np.int64), "x2": rows})
    assert match.node.op_type == "ScatterElements"
    assert match.event is not None
    assert match.event.op == "aten.index_add.default"
