"""Other faults: integers, decisions, branches, deaths, models that do not load, half precision, real exporters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuzzparity import Export, Size, Target
from planted import graphs
from planted.faults import LAST, Fault, Net, f32, free_dims, i64, normal, rows

TRACED = Export(exporter="torchscript")
THEN = "then_branch = g1 () => (float[n, w] a) {{ a = {0} }}"
ELSE = "else_branch = g2 () => (float[n, w] b) {{ b = {0} }}"


def ints(body: str, weights: str = "", result: str = "int64[n, w]", given: str = "int64[n, w]") -> str:
    """Return a graph on integers k whose body leads to y."""
    return f"({given} k) => ({result} y) {f'<{weights}>' if weights else ''} {{ {body} }}"


def _ids(fill: int) -> Callable[[int, int], dict[str, np.ndarray]]:
    return lambda n, t: {"k": np.full((n, t), fill, np.int64)}


def _small(n: int, t: int) -> dict[str, np.ndarray]:
    return {"k": np.arange(n * t, dtype=np.int64).reshape(n, t) % 50 + 1}


SMALL = {"k": i64([[3, 5, 7], [1, 4, 9]])}
INTEGER_FAULTS = [
    Fault(
        "int_sum_in_double", "integers in floats", lambda k: k.sum(1),
        ints("d = Cast <to = 11> (k) s = ReduceSum <keepdims = 0> (d, a) y = Cast <to = 7> (s)", "int64[1] a = {1}",
             "int64[n]"),
        SMALL, {"k": i64([[2**60 + 1, 2]])}, ("decision", "numeric"), deep="transformer:aux",
        extras=_small, extra_triggers=_ids(2**55 + 1),
    ),
    Fault(
        "int_product_in_float", "integers in floats", lambda k: k * 3 + 1,
        ints("d = Cast <to = 1> (k) p = Mul (d, a) q = Add (p, b) y = Cast <to = 7> (q)",
             "float a = {3}, float b = {1}"),
        SMALL, {"k": i64([[2**24 + 1]])}, ("decision", "numeric"), deep="recurrent:aux",
        extras=_small, extra_triggers=_ids(2**25 + 1),
    ),
    Fault(
        "int_narrowed", "narrowing", lambda k: torch.remainder(k, 1000003),
        ints("n = Cast <to = 6> (k) m = Mod (n, p) y = Cast <to = 7> (m)", "int32 p = {1000003}"),
        SMALL, {"k": i64([[2**33 + 7]])}, ("decision", "numeric"), deep="transformer:aux",
        extras=_small, extra_triggers=_ids(2**33 + 7),
    ),
    Fault(
        "remainder_of_negative", "floor or trunc", lambda k: torch.remainder(k, 7),
        ints("y = Mod <fmod = 1> (k, p)", "int64 p = {7}"),
        SMALL, {"k": i64([[-3, 5]])}, ("decision", "numeric"), deep="conv:aux",
        extras=_small, extra_triggers=_ids(-3),
    ),
    Fault(
        "bucket_of_negative", "floor or trunc", lambda k: torch.div(k, 16, rounding_mode="floor"),
        ints("y = Div (k, p)", "int64 p = {16}"),
        SMALL, {"k": i64([[-3, 5]])}, ("decision", "numeric"), deep="recurrent:aux",
        extras=_small, extra_triggers=_ids(-3),
    ),
    Fault(
        "byte_wraps", "saturation of a quantizer", lambda k: k.clamp(0, 255).to(torch.uint8),
        ints("y = Cast <to = 2> (k)", "", "uint8[n, w]"),
        SMALL, {"k": i64([[300, 5]])}, ("decision", "numeric"), deep="conv:aux",
        extras=_small, extra_triggers=_ids(300),
    ),
    Fault(
        "least_less_one", "integers at their ends", lambda k: (k - 1).clamp(min=0),
        ints("m = Max (k, one) y = Sub (m, one)", "int64 one = {1}"),
        SMALL, {"k": i64([[-(2**63), 5]])}, ("decision", "numeric"), deep="transformer:aux",
        extras=_small, extra_triggers=_ids(-(2**63)),
    ),
    Fault(
        "last_of_ties", "ties", lambda x: x.argmax(-1),
        "(float[n, w] x) => (int64[n] y) { y = ArgMax <axis = 1, keepdims = 0, select_last_index = 1> (x) }",
        {"x": normal(2, 8)}, {"x": f32([[1.0, 3.0, 3.0, 0.0]])}, ("decision",), ("bug", "tie"),
        deep="conv:aux", extras=lambda n, t: {"x": normal(n, 8)},
        extra_triggers=lambda n, t: {"x": np.tile(f32([1, 3, 3, 0, 0, 2, 3, 1]), (n, 1))},
    ),
    Fault(
        "top_five_of_fewer", "burnt-in size", lambda x: x.topk(min(5, x.shape[1]), dim=1).values,
        "(float[n, w] x) => (float[n, v] y) <int64[1] k = {5}> { y, i = TopK (x, k) }",
        {"x": normal(2, 8)}, {"x": normal(2, 3)}, ("error_split",), sizes={"w": Size(1, 256)},
    ),
]  # fmt: skip


class Table(torch.nn.Module):
    """Look rows of a table up."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = torch.nn.Parameter(torch.randn(rows, width))

    def forward(self, ids: Tensor) -> Tensor:
        """Return rows by number."""
        return self.table[ids]


def _clamped_table() -> Target:
    """Return a twin in which tokens from 24 on share one row."""
    module = Table(32, 3)
    values = ", ".join(str(float(value)) for value in module.table.detach().reshape(-1))
    text = (
        "(int64[n, t] ids) => (float[n, t, 3] y) "
        f"<float[32, 3] table = {{{values}}}, int64 most = {{23}}> {{ c = Min (ids, most) y = Gather (table, c) }}"
    )
    model = graphs.named(text, "rare_tokens")
    dims = free_dims(model, {})
    return Target(module=module, inputs={"ids": i64([[1, 2, 3], [5, 8, 13]])}, onnx=model, dynamic_shapes=dims)


def _steep(x: Tensor) -> Tensor:
    return torch.where(x.mean() > 5, x * 2, x)


BRANCH_FAULTS = [
    Fault(
        "branch_without_arm", "branch", _steep,
        rows(f"m = ReduceMean <keepdims = 0> (x) c = Greater (m, k) y = If (c) <{THEN.format('Identity (x)')}, "
             f"{ELSE.format('Identity (x)')}>", "float k = {5}"),
        {"x": normal(2, 8)}, {"x": normal(2, 8) + f32(9)}, ("branch_split", "numeric"),
        deep="conv:front",
    ),
    Fault(
        "branch_a_little_late", "branch", _steep,
        rows(f"m = ReduceMean <keepdims = 0> (x) c = Greater (m, k) y = If (c) <{THEN.format('Mul (x, two)')}, "
             f"{ELSE.format('Identity (x)')}>", "float k = {5.1}, float two = {2}"),
        {"x": normal(2, 8)}, {"x": np.full((2, 8), 5.05, np.float32)}, ("branch_split", "numeric"),
        deep="recurrent:front", safe=(-4.0, 4.0),
    ),
    Fault("rare_tokens", "threshold shifted", lambda ids: ids,
          "(int64[n, t] x) => (int64[n, t] y) <int64 most = {600}> { y = Min (x, most) }",
          {}, {"ids": i64([[30, 2]])}, ("numeric",), deep="transformer:ids", make=_clamped_table),
]  # fmt: skip


# Real faults: of kernels, of loading, of the exporters


def _gru_weights(hidden: int, width: int) -> str:
    rng = np.random.default_rng(3)
    parts = []
    for name, shape in (("w", (1, 3 * hidden, width)), ("r", (1, 3 * hidden, hidden))):
        values = ", ".join(f"{v:.4f}" for v in rng.uniform(-0.5, 0.5, int(np.prod(shape))))
        parts.append(f"float[{', '.join(map(str, shape))}] {name} = {{{values}}}")
    return ", ".join(parts)


class Gru(torch.nn.Module):
    """Run a GRU of the twin's weights over [t, n, 2]."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        self.gru = torch.nn.GRU(2, 3, bias=False)
        order = [1, 0, 2]  # ONNX has update, reset, hidden; torch reset, update, new
        for weight, width in ((self.gru.weight_ih_l0, 2), (self.gru.weight_hh_l0, 3)):
            drawn = np.round(rng.uniform(-0.5, 0.5, 9 * width), 4).reshape(3, 3, width)[order].reshape(9, width)
            weight.data = torch.from_numpy(drawn.astype(np.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Return the states of every step."""
        return self.gru(x)[0]


def _gru() -> Target:
    text = (
        f"(float[t, n, 2] x) => (float[t, n, 3] y) <{_gru_weights(3, 2)}, int64[1] one = {{1}}> "
        "{ g = GRU <hidden_size = 3, linear_before_reset = 1> (x, w, r) y = Squeeze (g, one) }"
    )
    model = graphs.named(text, "gru_of_no_rows")
    return Target(module=Gru(), inputs={"x": normal(4, 2, 2)}, onnx=model, dynamic_shapes=free_dims(model, {}))


def _quotient() -> Target:
    text = "(int64[n] a, int64[n] b) => (int64[n] y) <int64 one = {1}> { m = Sub (a, one) y = Div (m, b) }"
    model = graphs.named(text, "quotient_of_least")
    inputs = {"a": i64([8, 10, 12]), "b": i64([2, 4, 3])}

    def function(a: Tensor, b: Tensor) -> Tensor:
        m, flips = a - 1, b == -1
        return torch.where(flips, -m, torch.div(m, torch.where(flips, 1, b), rounding_mode="trunc"))

    return Target(module=Net(function), inputs=inputs, onnx=model, dynamic_shapes=free_dims(model, {}))


def _double_conv() -> Target:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.ReLU()).double()
    return Target(module=net, inputs={"x": normal(1, 2, 8).astype(np.float64)}, export=TRACED)


class Unit16(torch.nn.Module):
    """Bring rows of half precision to length one, in float32."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x over its norm."""
        wide = x.float()
        return (wide / (wide.norm(dim=-1, keepdim=True) + 1e-8)).half()


def _half_norm() -> Target:
    text = (
        f"(float16[n, w] x) => (float16[n, w] y) <float small = {{1e-8}}, {LAST}> "
        "{ eps = Cast <to = 10> (small) n = ReduceL2 (x, last) d = Add (n, eps) y = Div (x, d) }"
    )
    model = graphs.named(text, "epsilon_of_half")
    inputs = {"x": normal(2, 4, low=0.5).astype(np.float16)}
    return Target(module=Unit16(), inputs=inputs, onnx=model, dynamic_shapes=free_dims(model, {}))


class LongOrShort(torch.nn.Module):
    """Scale what is long."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x, doubled when it is long."""
        if x.shape[1] > 50:
            return x * 2.0
        return x + 0.0


class Loud(torch.nn.Module):
    """Halve what is loud."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x, halved where its largest value is above 4."""
        if x.max() > 4:
            return x * 0.5
        return x + 0.0


class Widest(torch.nn.Module):
    """Scale by a number that Python read."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x over the number of its items."""
        return x / float(x.shape[1]) + x.sum(1, keepdim=True)


class Steps(torch.nn.Module):
    """Add up steps in a Python loop."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the discounted sum over axis 1."""
        total = torch.zeros_like(x[:, 0])
        for step in range(x.shape[1]):
            total = total * 0.9 + x[:, step]
        return total


class Whole(torch.nn.Module):
    """Scale by a value that Python read."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x times its first value, as a whole number."""
        return x * int(x[0, 0])


def _own(module: torch.nn.Module, x: np.ndarray, exporter: str) -> Callable[[], Target]:
    def make() -> Target:
        dims = {"x": {0: "n", 1: "w"}}
        return Target(module=module, inputs={"x": x}, export=Export(exporter=exporter), dynamic_shapes=dims)

    return make


def _real(name: str, family: str, make: Any, trigger: Any, kinds: tuple[str, ...], **more: Any) -> Fault:
    return Fault(name, family, lambda *x: x, "", {}, trigger, kinds, make=make, **more)


def line_of(module: type, text: str) -> int:
    """Return the line of this file in which a class has a text."""
    lines, first = inspect.getsourcelines(module)
    return first + next(index for index, line in enumerate(lines) if text in line)


REAL_FAULTS = [
    _real("gru_of_no_rows", "death", _gru, {"x": np.zeros((3, 0, 2), np.float32)}, ("crash",), is_risky=True,
          has_place=False),
    _real("quotient_of_least", "death", _quotient, {"a": i64([-(2**63) + 1]), "b": i64([-1])}, ("crash",),
          is_risky=True, has_place=False),
    _real("conv_in_double", "does not load", _double_conv, {"x": normal(1, 2, 8).astype(np.float64)}, ("load_error",),
          has_place=False),
    _real("epsilon_of_half", "half precision", _half_norm, {"x": np.zeros((1, 4), np.float16)}, ("nonfinite",)),
    _real("guard_on_a_size", "capture", _own(LongOrShort(), normal(2, 8), "dynamo"), {"x": normal(1, 51)},
          ("branch_split", "numeric"), source=f":{line_of(LongOrShort, 'if x.shape')}"),
    _real("branch_on_a_value", "capture", _own(Loud(), normal(2, 8), "torchscript"), {"x": f32([[5.0, 1.0]])},
          ("branch_split", "numeric"), source=f":{line_of(Loud, 'if x.max')}"),
    _real("loop_over_a_size", "capture", _own(Steps(), normal(2, 5), "torchscript"), {"x": normal(1, 7)},
          ("numeric", "error_split", "branch_split"), source=f":{line_of(Steps, 'for step')}"),
    _real("number_read_by_python", "capture", _own(Whole(), normal(2, 5, low=1.2, high=1.8), "torchscript"),
          {"x": f32([[3.5, 1.0]])}, ("numeric", "branch_split"), source=f":{line_of(Whole, 'int(x')}"),
    _real("size_read_by_python", "capture", _own(Widest(), normal(2, 5), "torchscript"), {"x": normal(1, 9)},
          ("numeric",), source=f":{line_of(Widest, 'float(x')}"),
]  # fmt: skip

OTHER_FAULTS = [*INTEGER_FAULTS, *BRANCH_FAULTS, *REAL_FAULTS]
