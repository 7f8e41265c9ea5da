"""Sound comparisons that look different: mathematically equal forms on inputs that make rounding visible."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from entries import Entry, f32, normal, parsed, uniform
from onnx import TensorProto, helper, numpy_helper
from torch.nn import functional as F

HALF = np.float16


def _chain(forward: Any, text: Any, name: str, trigger: np.ndarray, sample: np.ndarray | None = None) -> Entry:
    """Return an entry with the one input x; its sample has small values of the same shape."""
    quiet = normal(*trigger.shape, seed=9).astype(trigger.dtype) if sample is None else sample
    return Entry(name, forward, {"x": quiet}, {"x": trigger}, text)


def _model(nodes: list[Any], inputs: dict[str, list[Any]], weights: dict[str, np.ndarray], opset: int = 20) -> Any:
    """Return a float32 model with the output y."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", infos, [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _ones(count: int) -> str:
    return "{" + ",".join(["1"] * count) + "}"


# ---- norms and variances

_VARIANCE_BY_HAND = """<int64[1] last = {-1}, float eps = {1e-5}> {
    m = ReduceMean (x, last)  d = Sub (x, m)  q = Mul (d, d)  v = ReduceMean (q, last)
    w = Add (v, eps)  s = Sqrt (w)  y = Div (d, s) }"""
_BY_SQUARES = """<int64[1] last = {-1}> {
    m = ReduceMean (x, last)  q = Mul (x, x)  e = ReduceMean (q, last)  mm = Mul (m, m)  y = Sub (e, mm) }"""

NORMS = [
    _chain(
        lambda x: F.layer_norm(x, (64,)),
        f"(float[n,64] x) => (float[n,64] y) <float[64] one = {_ones(64)}> {{ y = LayerNormalization (x, one) }}",
        "layer_norm_offset",
        normal(4, 64, scale=0.01, offset=1e4),
    ),
    _chain(
        lambda x: F.layer_norm(x, (64,)),
        f"(float[n,64] x) => (float[n,64] y) {_VARIANCE_BY_HAND}",
        "layer_norm_by_hand",
        normal(4, 64, scale=0.1, offset=3e3),
    ),
    _chain(
        lambda x: x.var(-1, keepdim=True, unbiased=False),
        f"(float[n,m] x) => (float[n,k] y) {_BY_SQUARES}",
        "variance_by_squares",
        normal(4, 64, offset=60.0),
    ),
    _chain(
        lambda x: (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2,
        """(float[n,m] x) => (float[n,k] y) <int64[1] last = {-1}> {
            m = ReduceMean (x, last)  d = Sub (x, m)  q = Mul (d, d)  y = ReduceMean (q, last) }""",
        "variance_of_torch_by_squares",
        normal(4, 64, offset=1e3),
    ),
    _chain(
        lambda x: F.instance_norm(x),
        """(float[n,3,h] x) => (float[n,3,h] y) <float[3] one = {1,1,1}, float[3] zero = {0,0,0}>
            { y = InstanceNormalization (x, one, zero) }""",
        "instance_norm_near_constant",
        normal(2, 3, 50, scale=1e-5, offset=5.0),
    ),
    _chain(
        lambda x: F.group_norm(x, 2),
        """(float[n,4,h] x) => (float[n,4,h] y) <float[2] one = {1,1}, float[2] zero = {0,0}, int64[3] to = {0,2,-1}> {
            r = Reshape (x, to)  i = InstanceNormalization (r, one, zero)  s = Shape (x)  y = Reshape (i, s) }""",
        "group_norm_offset",
        normal(2, 4, 33, scale=1e-3, offset=700.0),
    ),
    _chain(
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + 1e-6),
        """(float[n,m] x) => (float[n,m] y) <int64[1] last = {-1}, float eps = {1e-6}> {
            m = ReduceMean (x, last)  d = Sub (x, m)  q = Mul (d, d)  v = ReduceMean (q, last)  s = Sqrt (v)
            w = Add (s, eps)  y = Div (d, w) }""",
        "standardized_constant_row",
        np.full((3, 37), 0.1, np.float32),
    ),
    _chain(
        lambda x: F.batch_norm(x, torch.full((3,), 1e3), torch.full((3,), 1e-4)),
        """(float[n,3] x) => (float[n,3] y) <float[3] one = {1,1,1}, float[3] zero = {0,0,0},
            float[3] mean = {1000,1000,1000}, float[3] var = {1e-4,1e-4,1e-4}>
            { y = BatchNormalization (x, one, zero, mean, var) }""",
        "batch_norm_small_variance",
        normal(8, 3, scale=0.01, offset=1e3),
    ),
]

# ---- narrow floats


def _running_sum_in_bfloat16(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(x.shape[0], dtype=torch.bfloat16)
    sums = []
    for column in x.bfloat16().T:
        total = total + column
        sums.append(total)
    return torch.stack(sums, -1).float()


NARROW = [
    _chain(
        lambda x: ((x * 1.1 + 0.3) * 0.7 - 0.2) * 1.9 - x * 1.463,
        """(float16[n] x) => (float16[n] y) <float a = {1.1}, float b = {0.3}, float c = {0.7}, float d = {0.2},
            float e = {1.9}, float f = {1.463}> { w = Cast <to = 1> (x)  p = Mul (w, a)  q = Add (p, b)  r = Mul (q, c)
            s = Sub (r, d)  t = Mul (s, e)  g = Mul (w, f)  u = Sub (t, g)  y = Cast <to = 10> (u) }""",
        "half_chain",
        normal(64, scale=30, dtype=HALF),
    ),
    _chain(
        lambda x: torch.softmax(x * 7.7, -1),
        """(float16[n,m] x) => (float16[n,m] y) <float a = {7.7}> {
            w = Cast <to = 1> (x)  p = Mul (w, a)  s = Softmax <axis = -1> (p)  y = Cast <to = 10> (s) }""",
        "half_softmax",
        normal(4, 32, scale=6, dtype=HALF),
    ),
    _chain(
        lambda x: x[:, :350] @ x[:, :350].T - x[:, 350:] @ x[:, 350:].T,
        """(float16[n,m] x) => (float16[n,k] y) { w = Cast <to = 1> (x)  a, b = Split <axis = 1, num_outputs = 2> (w)
            s = Transpose <perm = [1, 0]> (a)  t = Transpose <perm = [1, 0]> (b)  p = MatMul (a, s)  q = MatMul (b, t)
            d = Sub (p, q)  y = Cast <to = 10> (d) }""",
        "half_products",
        normal(6, 700, dtype=HALF),
        np.zeros((6, 700), HALF),
    ),
    _chain(
        lambda x: torch.log(1.0 - torch.sigmoid(x)),
        "(float[n,m] x) => (float[n,k] y) <float one = {1}> { s = Sigmoid (x)  d = Sub (one, s)  y = Log (d) }",
        "log_of_one_minus_a_sigmoid",
        uniform(4, 64, low=8.0, high=16.0),
    ),
    _chain(
        lambda x: torch.tanh(torch.sigmoid(x * 3) * x) - 0.5 * x,
        """(float16[n] x) => (float16[n] y) <float a = {3}, float h = {0.5}> {
            w = Cast <to = 1> (x)  p = Mul (w, a)  q = Sigmoid (p)  r = Mul (q, w)  t = Tanh (r)  u = Mul (w, h)
            v = Sub (t, u)  y = Cast <to = 10> (v) }""",
        "half_gates",
        normal(64, scale=2, dtype=HALF),
    ),
    _chain(
        lambda x: (x + 1000) - 1000,
        "(float16[n] x) => (float16[n] y) { y = Identity (x) }",
        "half_cancellation",
        normal(64, dtype=HALF),
    ),
    _chain(
        lambda x: (x * x).mean(-1),
        """(float16[n,m] x) => (float16[n] y) <int64[1] last = {-1}> {
            q = Mul (x, x)  y = ReduceMean <keepdims = 0> (q, last) }""",
        "half_square_near_the_largest",
        uniform(4, 16, low=240, high=262, dtype=HALF),
    ),
    _chain(
        lambda x: (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True, unbiased=False).add(1e-5).sqrt(),
        f"""(float16[n,32] x) => (float16[n,32] y) <float[32] one = {_ones(32)}> {{
            w = Cast <to = 1> (x)  l = LayerNormalization (w, one)  y = Cast <to = 10> (l) }}""",
        "half_layer_norm",
        normal(4, 32, scale=0.5, offset=40, dtype=HALF),
    ),
    _chain(
        lambda x: ((x.bfloat16() + 20) * 1.5 - 30).float(),
        """(float[n] x) => (float[n] y) <float a = {1.5}> {
            b = Cast <to = 16> (x)  w = Cast <to = 1> (b)  p = Mul (w, a)  r = Cast <to = 16> (p)
            y = Cast <to = 1> (r) }""",
        "bfloat16_chain",
        normal(64),
    ),
    _chain(
        _running_sum_in_bfloat16,
        """(float[n,m] x) => (float[n,m] y) <int64 last = {-1}> {
            b = Cast <to = 16> (x)  w = Cast <to = 1> (b)  c = CumSum (w, last)  r = Cast <to = 16> (c)
            y = Cast <to = 1> (r) }""",
        "bfloat16_running_sum",
        uniform(2, 200),
        np.zeros((2, 200), np.float32),
    ),
]

# ---- cancellation and amplified noise

CANCELLATION = [
    _chain(
        lambda x: ((x + 1e6) - 1e6) * 1e2,
        "(float[n] x) => (float[n] y) <float a = {1e2}> { y = Mul (x, a) }",
        "offset_added_and_taken_away",
        normal(32),
    ),
    _chain(
        lambda x: x[:, 0] * x[:, 3] - x[:, 1] * x[:, 2],
        """(float[n,4] x) => (float[n] y) <int64[3] to = {-1, 2, 2}> { r = Reshape (x, to)  y = Det (r) }""",
        "determinant_of_nearly_singular",
        np.tile(f32(1.1e3, 2.2e3, 3.3e3, 6.6000003e3), (3, 1)),
    ),
    _chain(
        lambda x: torch.logsumexp(x, -1) - x[:, 0],
        """(float[n,m] x) => (float[n] y) <int64[1] last = {-1}, int64 first = {0}> {
            g = Gather <axis = 1> (x, first)  u = Unsqueeze (g, last)  d = Sub (x, u)
            y = ReduceLogSumExp <keepdims = 0> (d, last) }""",
        "loss_at_large_offset",
        normal(4, 10, offset=2e4),
    ),
    _chain(
        lambda x: x.sum(-1) - x.flip(-1).sum(-1) + x.mean(-1),
        "(float[n,m] x) => (float[n] y) <int64[1] last = {-1}> { y = ReduceMean <keepdims = 0> (x, last) }",
        "two_equal_sums",
        normal(3, 4000, scale=1e3),
    ),
    _chain(
        lambda x: (x - x.mean(-1, keepdim=True)).sum(-1),
        """(float[n,m] x) => (float[n] y) <int64[1] last = {-1}> {
            m = ReduceMean (x, last)  d = Sub (x, m)  y = ReduceSum <keepdims = 0> (d, last) }""",
        "sum_of_deviations",
        normal(3, 1000, offset=500.0),
    ),
    _chain(
        lambda x: ((x + 0.3) - 0.3 - x) / (((x + 0.3) - 0.3 - x).abs() + 1e-9),
        """(float[n] x) => (float[n] y) <float c = {0.3}, float eps = {1e-9}> {
            m = Sub (x, c)  p = Add (m, c)  d = Sub (p, x)  a = Abs (d)  w = Add (a, eps)  y = Div (d, w) }""",
        "noise_normalized",
        normal(64),
    ),
    _chain(
        lambda x: torch.sqrt(x * x + 1) - x,
        """(float[n] x) => (float[n] y) <float one = {1}> {
            q = Mul (x, x)  w = Add (q, one)  s = Sqrt (w)  a = Add (s, x)  y = Div (one, a) }""",
        "root_minus_itself",
        uniform(32, low=1e3, high=3e3),
    ),
    _chain(
        lambda x: x**3 * 1e6 - 3e6 * x**2 + 3e6 * x - 1e6,
        """(float[n] x) => (float[n] y) <float one = {1}, float three = {3}, float big = {1e6}> {
            a = Sub (x, one)  b = Pow (a, three)  y = Mul (b, big) }""",
        "expanded_polynomial_near_its_root",
        uniform(32, low=0.99, high=1.01),
    ),
    Entry(
        "distance_of_near_points",
        lambda x, z: torch.cdist(x, z, compute_mode="use_mm_for_euclid_dist"),
        {"x": normal(5, 8), "z": normal(5, 8, seed=1)},
        {"x": normal(5, 8, offset=100), "z": normal(5, 8, offset=100) + np.float32(1e-3)},
        """(float[n,8] x, float[m,8] z) => (float[n,m] y) <int64[1] last = {-1}, int64[1] one = {1}> {
            a = Unsqueeze (x, one)  d = Sub (a, z)  y = ReduceL2 <keepdims = 0> (d, last) }""",
    ),
    _chain(
        lambda x: torch.acos(F.normalize(x[:, :3], dim=-1).mul(F.normalize(x[:, 3:], dim=-1)).sum(-1).clamp(-1, 1)),
        """(float[n,6] x) => (float[n] y) <int64[1] last = {-1}, int64[2] halves = {3, 3}, float lo = {-1},
            float hi = {1}> {
            a, b = Split <axis = 1> (x, halves)  p = Mul (a, b)  d = ReduceSum <keepdims = 0> (p, last)
            s = ReduceL2 <keepdims = 0> (a, last)  t = ReduceL2 <keepdims = 0> (b, last)  q = Mul (s, t)
            c = Div (d, q)  k = Clip (c, lo, hi)  y = Acos (k) }""",
        "angle_of_nearly_parallel",
        np.tile(normal(16, 3), (1, 2)) + normal(16, 6, seed=1, scale=1e-4),
    ),
]

CANCELLATION += [
    _chain(
        lambda x: (x**3).mean(-1) - 3 * x.mean(-1) * (x * x).mean(-1) + 2 * x.mean(-1) ** 3,
        """(float[n,m] x) => (float[n] y) <int64[1] last = {-1}, float three = {3}, float two = {2}> {
            m = ReduceMean (x, last)  d = Sub (x, m)  c = Pow (d, three)  y = ReduceMean <keepdims = 0> (c, last) }""",
        "skewness_at_an_offset",
        normal(4, 100, scale=3.0, offset=100.0),
    ),
    _chain(
        lambda x: (x[:, 0] * x[:, 3] - x[:, 1] * x[:, 2]) / (x[:, 4] * x[:, 3] - x[:, 5] * x[:, 2]),
        """(float[n,6] x) => (float[n] y) <int64[1] one = {1}> {
            a, b, c, d, e, f = Split <axis = 1, num_outputs = 6> (x)  g = Div (c, d)  h = Mul (b, g)  p = Sub (a, h)
            k = Mul (f, g)  q = Sub (e, k)  m = Div (p, q)  y = Squeeze (m, one) }""",
        "cramer_nearly_singular",
        np.tile(f32(1, 2, 3, 6, 1.1, 2.2), (8, 1)) + normal(8, 6, scale=1e-4),
    ),
    _chain(
        lambda x: (x.softmax(-1) * (x.log_softmax(-1) - (x + 1e-3).log_softmax(-1))).sum(-1) * 1e4,
        """(float[n,m] x) => (float[n] y) <float zero = {0}, int64[1] last = {-1}> {
            z = Mul (x, zero)  y = ReduceSum <keepdims = 0> (z, last) }""",
        "divergence_of_equal_distributions",
        normal(4, 30, scale=3),
    ),
    _chain(
        lambda x: torch.softmax(x - 1e7, -1),
        "(float[n,m] x) => (float[n,m] y) { y = Softmax <axis = -1> (x) }",
        "softmax_of_a_masked_row",
        normal(3, 12),
        normal(3, 12) * 0,
    ),
    _chain(
        lambda x: x * 1e3 - torch.floor(x * 1e3),
        """(float[n] x) => (float[n] y) <float k = {1e-3}> { p = Div (x, k)  f = Floor (p)  y = Sub (p, f) }""",
        "fraction_of_a_large_number",
        uniform(64, low=50, high=90),
        uniform(64, low=0.0001, high=0.0009),
    ),
    _chain(
        lambda x: (torch.sqrt(x + 1) - torch.sqrt(x)) * torch.sqrt(x),
        """(float[n] x) => (float[n] y) <float one = {1}> {
            a = Add (x, one)  s = Sqrt (a)  t = Sqrt (x)  b = Add (s, t)  y = Div (t, b) }""",
        "difference_of_roots",
        uniform(64, low=1e5, high=1e6),
    ),
    _chain(
        lambda x: (x.T @ x) / x.shape[0] - x.mean(0)[:, None] * x.mean(0)[None],
        """(float[n,4] x) => (float[4,4] y) <int64[1] first = {0}, int64 axis = {0}> {
            m = ReduceMean (x, first)  d = Sub (x, m)  t = Transpose <perm = [1, 0]> (d)  c = MatMul (t, d)
            s = Shape (x)  g = Gather (s, axis)  n1 = Cast <to = 1> (g)  y = Div (c, n1) }""",
        "covariance_by_products",
        normal(50, 4, offset=300.0),
    ),
]

# ---- ties, thresholds, rounding at halves

_NEIGHBOURS = (1 + np.random.default_rng(4).permutation(20) * 2.0**-23).astype(np.float32)

_CORNERS = [[0.1, 0.1], [0.1, 0.7], [0.7, 0.1], [0.7, 0.7]]

TIES = [
    _chain(
        lambda x: torch.topk(x, 2).values.sum(-1) + torch.topk(x, 2).indices.sum(-1),
        """(float[n,m] x) => (float[n] y) <int64[1] k = {2}, int64[1] last = {-1}> {
            v, i = TopK <largest = 1> (x, k)  s = ReduceSum <keepdims = 0> (v, last)  f = Cast <to = 1> (i)
            t = ReduceSum <keepdims = 0> (f, last)  y = Add (s, t) }""",
        "topk_of_equal_values",
        np.ones((3, 40), np.float32),
    ),
    _chain(
        lambda x: torch.sort(x + 3, dim=-1, descending=True).indices,
        "(float[n,20] x) => (int64[n,20] y) <int64[1] k = {20}> { v, y = TopK (x, k) }",
        "order_of_neighbours",
        _NEIGHBOURS[None],
    ),
    _chain(
        lambda x: torch.argmax(x * 3 / 3 + x.flip(-1), -1),
        """(float[n,m] x) => (int64[n] y) <int64 one = {1}, int64 last = {-1}, int64[1] from = {-1},
            int64[1] to = {-100}, int64[1] axis = {-1}> {
            f = Slice (x, from, to, axis, from)  s = Add (x, f)  y = ArgMax <axis = -1, keepdims = 0> (s) }""",
        "argmax_of_a_palindrome",
        uniform(16, 20),
    ),
    _chain(
        lambda x: torch.round(x / 0.1),
        "(float[n] x) => (float[n] y) <float ten = {10}> { p = Mul (x, ten)  y = Round (p) }",
        "rounding_at_halves",
        np.arange(5, 500, 10).astype(np.float32) / np.float32(100),
    ),
    _chain(
        lambda x: torch.floor(x / 0.7),
        "(float[n] x) => (float[n] y) <float r = {1.4285714285714286}> { p = Mul (x, r)  y = Floor (p) }",
        "floor_at_multiples",
        np.arange(1, 80).astype(np.float32) * np.float32(0.7),
    ),
    _chain(
        lambda x: torch.sigmoid(x) > 0.5,
        "(float[n] x) => (bool[n] y) <float zero = {0}> { y = Greater (x, zero) }",
        "threshold_of_a_sigmoid",
        f32(1e-9, -1e-9, 3e-8, 1e-12, -3e-10, 2.0),
    ),
    _chain(
        lambda x: torch.ceil(torch.exp(x) * 1.3).to(torch.int64),
        """(float[n] x) => (int64[n] y) <float s = {0.26236426446749106}> {
            a = Add (x, s)  e = Exp (a)  c = Ceil (e)  y = Cast <to = 7> (c) }""",
        "durations_at_a_boundary",
        np.log(np.arange(1, 60) / 1.3).astype(np.float32),
    ),
    _chain(
        lambda x: (x * 255).to(torch.uint8).to(torch.int64),
        """(float[n] x) => (int64[n] y) <float r = {0.00392156862745098}> {
            p = Div (x, r)  u = Cast <to = 2> (p)  y = Cast <to = 7> (u) }""",
        "pixels_from_fractions",
        (np.arange(1, 250).astype(np.float32) / np.float32(255)),
    ),
    _chain(
        lambda x: torch.unique((x + 3) * 0.7),
        "(float[n] x) => (float[k] y) { y, i, j, c = Unique (x) }",
        "unique_of_neighbours",
        _NEIGHBOURS,
    ),
    _chain(
        lambda x: torch.remainder(x, 0.1),
        """(float[n] x) => (float[n] y) <float c = {0.1}> {
            q = Div (x, c)  f = Floor (q)  p = Mul (f, c)  y = Sub (x, p) }""",
        "remainder_at_multiples",
        np.arange(1, 60).astype(np.float32) * np.float32(0.1),
    ),
    _chain(
        lambda x: torch.sign((x + 0.7) - x - 0.7),
        """(float[n] x) => (float[n] y) <float c = {0.7}> { m = Sub (x, c)  p = Sub (x, m)  d = Sub (p, c)
            y = Sign (d) }""",
        "sign_of_noise",
        normal(32),
    ),
    _chain(
        lambda x: x[0, (x[0].softmax(-1) > 1 / 8).nonzero()[:, 0]].sum(),
        """(float[1,8] x) => (float y) <float t = {0.125}, float zero = {0}, int64[2] both = {0, 1}> {
            p = Softmax <axis = 1> (x)  g = GreaterOrEqual (p, t)  w = Where (g, x, zero)
            y = ReduceSum <keepdims = 0> (w, both) }""",
        "mask_of_equal_probabilities",
        np.full((1, 8), 0.7, np.float32),
    ),
]

TIES += [
    _chain(
        lambda x: torch.floor(torch.log10(x)),
        """(float[n] x) => (float[n] y) <float k = {0.4342944819032518}> {
            l = Log (x)  m = Mul (l, k)  y = Floor (m) }""",
        "digits_of_powers_of_ten",
        (10.0 ** np.arange(1, 30)).astype(np.float32),
        uniform(29, low=2, high=8),
    ),
    _chain(
        lambda x: torch.cdist(x, torch.tensor(_CORNERS)).argmin(-1),
        """(float[n,2] x) => (int64[n] y) <float[4,2] c = {0.1, 0.1, 0.1, 0.7, 0.7, 0.1, 0.7, 0.7},
            int64[1] one = {1}, int64[1] last = {-1}> {
            a = Unsqueeze (x, one)  d = Sub (a, c)  q = Mul (d, d)  s = ReduceSum <keepdims = 0> (q, last)
            y = ArgMin <axis = 1, keepdims = 0> (s) }""",
        "nearest_of_equally_far",
        np.stack([np.full(40, 0.4, np.float32), uniform(40)], -1).astype(np.float32),
    ),
    _chain(
        lambda x: (x * 0.3 > x / 3 * 0.9).to(torch.int64),
        "(float[n] x) => (int64[n] y) { d = Sub (x, x)  g = Greater (d, x)  y = Cast <to = 7> (g) }",
        "comparison_of_equal_products",
        uniform(64),
    ),
    _chain(
        lambda x: torch.bucketize(x * (1 / 0.7), torch.arange(1.0, 9.0)),
        """(float[n] x) => (int64[n] y) <float[8] b = {0.7, 1.4, 2.1, 2.8, 3.5, 4.2, 4.9, 5.6}, int64[1] one = {1}> {
            u = Unsqueeze (x, one)  g = Greater (u, b)  i = Cast <to = 7> (g)
            y = ReduceSum <keepdims = 0> (i, one) }""",
        "buckets_at_their_edges",
        np.arange(1, 9).astype(np.float32) * np.float32(0.7),
    ),
]

# ---- large magnitudes

LARGE = [
    _chain(
        lambda x: F.interpolate(x, scale_factor=2.7, mode="bilinear", align_corners=False),
        """(float[1,1,h,w] x) => (float[1,1,g,v] y) <float[4] s = {1, 1, 2.7, 2.7}> {
            y = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (x, , s) }""",
        "bilinear_of_huge_values",
        normal(1, 1, 60, 70, scale=1e20),
    ),
    _chain(
        lambda x: torch.softmax(x @ x.T, -1) @ x,
        """(float[n,m] x) => (float[n,m] y) { t = Transpose <perm = [1, 0]> (x)  s = MatMul (x, t)
            p = Softmax <axis = -1> (s)  y = MatMul (p, x) }""",
        "attention_with_large_scores",
        normal(6, 64, scale=1e-3) + normal(1, 64, seed=3, scale=60),
    ),
    _chain(
        lambda x: torch.softmax(x, -1),
        """(float[n,m] x) => (float[n,m] y) <int64[1] last = {-1}> {
            l = ReduceLogSumExp (x, last)  d = Sub (x, l)  y = Exp (d) }""",
        "softmax_at_large_offset",
        normal(4, 16, offset=3e4),
    ),
    _chain(
        lambda x: F.avg_pool1d(x, 3, 1) * 3 - x[..., :-2] - x[..., 1:-1] - x[..., 2:],
        """(float[1,c,w] x) => (float[1,c,v] y) <int64[1] two = {2}, int64[1] far = {100000}, int64[1] axis = {2}>
            { s = Slice (x, two, far, axis)  y = Sub (s, s) }""",
        "pool_undone",
        normal(1, 2, 20, scale=1e4),
    ),
    _chain(
        lambda x: torch.fft.fft(x).abs()[:, 1:],
        """(float[n,16] x) => (float[n,k] y) <int64 axis = {1}, int64[1] last = {-1}, int64[1] one = {1},
            int64[1] far = {99}> {
            u = Unsqueeze (x, last)  c = DFT (u, , axis)  r = ReduceL2 <keepdims = 0> (c, last)
            y = Slice (r, one, far, one) }""",
        "spectrum_beside_a_large_mean",
        normal(2, 16, offset=1e5),
    ),
]


LARGE += []


def _convolution() -> Any:
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Sub", ["c", "b"], ["y"])]
    weights = {"w": normal(4, 8, 3, seed=2), "b": (normal(4, 8, 3, seed=2).sum((1, 2)) * 1000.0).reshape(1, 4, 1)}
    return _model(nodes, {"x": [1, 8, "w"]}, weights)


def _convolved(x: torch.Tensor) -> torch.Tensor:
    return F.conv1d(x - 1000.0, torch.tensor(normal(4, 8, 3, seed=2)))


LARGE.append(
    Entry(
        "convolution_of_an_offset",
        _convolved,
        {"x": normal(1, 8, 20)},
        {"x": normal(1, 8, 20, offset=1e3)},
        _convolution,
    )
)

# ---- long sums

SUMS = [
    _chain(
        lambda x: x.sum(),
        """(float[n] x) => (float y) <int64[2] to = {1000, -1}, int64[1] first = {0}, int64[2] both = {0, 1}> {
            r = Reshape (x, to)  a = ReduceSum (r, first)  y = ReduceSum <keepdims = 0> (a, both) }""",
        "sum_of_a_million",
        np.concatenate([normal(500_000, scale=1e4), -np.random.default_rng(1).permutation(normal(500_000, scale=1e4))]),
        normal(1000),
    ),
    _chain(
        lambda x: torch.cumsum(x, -1),
        "(float[n] x) => (float[n] y) <int64 last = {0}> { y = CumSum (x, last) }",
        "running_sum",
        normal(60_000, offset=3.0),
        normal(50),
    ),
    _chain(
        lambda x: x @ torch.tensor([1.0, -1.0]).repeat(x.shape[1] // 2),
        """(float[n,m] x) => (float[n] y) <int64[3] to = {0, -1, 2}, int64[1] second = {1}> {
            r = Reshape (x, to)  s = ReduceSum <keepdims = 0> (r, second)  a, b = Split <axis = 1, num_outputs = 2> (s)
            d = Sub (a, b)  y = Squeeze (d, second) }""",
        "product_with_signs",
        normal(3, 50_000, offset=1e3),
        normal(3, 40),
    ),
    _chain(
        lambda x: torch.exp(torch.log(x).sum(-1)),
        "(float[n,m] x) => (float[n] y) <int64[1] last = {-1}> { y = ReduceProd <keepdims = 0> (x, last) }",
        "product_by_logarithms",
        uniform(4, 300, low=0.5, high=1.95),
        uniform(4, 10, low=0.5, high=1.5),
    ),
    _chain(
        lambda x: torch.einsum("ij,kj->ik", x, x) - (x * x).sum(-1, keepdim=True),
        """(float[n,m] x) => (float[n,n] y) <int64[1] last = {-1}> {
            e = Einsum <equation = "ij,kj->ik"> (x, x)  q = Mul (x, x)  s = ReduceSum (q, last)  y = Sub (e, s) }""",
        "einsum_minus_its_diagonal",
        normal(4, 3000, offset=10.0),
        normal(4, 20),
    ),
    _chain(
        lambda x: x.flatten().mean() - x.mean(0).mean(),
        """(float[n,m] x) => (float y) <int64[2] both = {0, 1}, int64[1] last = {1}> {
            a = ReduceMean <keepdims = 0> (x, both)  b = ReduceMean <keepdims = 0> (x, last)
            c = ReduceMean <keepdims = 0> (b)  y = Sub (a, c) }""",
        "mean_of_means",
        normal(300, 700, offset=1e6),
        normal(4, 5),
    ),
]

# ---- edges of functions

EDGES = [
    _chain(
        lambda x: torch.exp(x),
        """(float[n] x) => (float[n] y) <float two = {2}, float k = {1.4426950408889634}>
            { m = Mul (x, k)  y = Pow (two, m) }""",
        "exponential_near_overflow",
        uniform(64, low=80, high=88),
    ),
    _chain(
        lambda x: torch.pow(x, 31.5),
        """(float[n] x) => (float[n] y) <float p = {31.5}> { l = Log (x)  m = Mul (l, p)  y = Exp (m) }""",
        "large_power",
        uniform(64, low=1.0, high=15.0),
        uniform(64, low=0.9, high=1.1),
    ),
    _chain(
        lambda x: torch.sin(x * 0.7 / 0.007),
        """(float[n] x) => (float[n] y) <float h = {50}, float two = {2}> {
            a = Mul (x, h)  s = Sin (a)  c = Cos (a)  p = Mul (s, c)  y = Mul (p, two) }""",
        "sine_of_large_angles",
        uniform(64, low=1e4, high=1e5),
    ),
    _chain(
        lambda x: torch.tan(x * 3),
        "(float[n] x) => (float[n] y) <float third = {0.33333333}> { t = Div (x, third)  y = Tan (t) }",
        "tangent_near_its_pole",
        (np.float32(np.pi / 6) + uniform(64, low=-3e-6, high=3e-6)).astype(np.float32),
    ),
    _chain(
        lambda x: torch.atanh(torch.tanh(x)),
        "(float[n] x) => (float[n] y) { y = Identity (x) }",
        "atanh_near_one",
        uniform(64, low=5, high=7),
        uniform(64, low=0.3, high=0.8),
    ),
    _chain(
        lambda x: 1 / (1 - torch.tanh(x)),
        """(float[n] x) => (float[n] y) <float two = {2}, float half = {0.5}, float one = {1}> {
            d = Mul (x, two)  e = Exp (d)  a = Add (e, one)  y = Mul (a, half) }""",
        "reciprocal_beside_saturation",
        uniform(64, low=4, high=7.5),
    ),
    _chain(
        lambda x: torch.logsumexp(x, -1) - x.amax(-1),
        """(float[n,m] x) => (float[n] y) <int64[1] last = {-1}> {
            m = ReduceMax (x, last)  d = Sub (x, m)  e = Exp (d)  s = ReduceSum (e, last)  l = Log (s)
            y = Squeeze (l, last) }""",
        "logsumexp_of_large_values",
        normal(4, 200, offset=1e5),
    ),
    _chain(
        lambda x: torch.log(x) * 1e4,
        """(float[n] x) => (float[n] y) <float half = {0.5}, float k = {2e4}> {
            s = Sqrt (x)  l = Log (s)  y = Mul (l, k) }""",
        "logarithm_near_one",
        (1 + uniform(64, low=-1e-4, high=1e-4)).astype(np.float32),
        uniform(64, low=0.5, high=2.0),
    ),
]


# ---- steps that amplify


def _power(x: torch.Tensor) -> torch.Tensor:
    product = x
    for _ in range(15):
        product = product @ x
    return product


def _logistic(x: torch.Tensor) -> torch.Tensor:
    for _ in range(45):
        x = 3.9 * x * (1 - x)
    return x


def _recurrent(x: torch.Tensor) -> torch.Tensor:
    weight, state = torch.tensor(normal(16, 16, seed=5, scale=0.9)), torch.zeros(1, 16)
    for step in x:
        state = torch.tanh(step + state @ weight)
    return state


def _logistic_twin() -> Any:
    lines, last = [], "x"
    for step in range(45):
        lines.append(f"q{step} = Mul ({last}, {last})  d{step} = Sub ({last}, q{step})  s{step} = Mul (d{step}, r)")
        last = f"s{step}"
    return parsed(f"(float[n] x) => (float[n] y) <float r = {{3.9}}> {{ {' '.join(lines)} y = Identity ({last}) }}")


def _recurrent_twin() -> Any:
    """Return the recurrence with its weight transposed and the product turned round."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["wt", "s"], ["p"]),
            helper.make_node("Add", ["p", "step"], ["a"]),
            helper.make_node("Tanh", ["a"], ["t"]),
        ],
        "step",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, 1]) for name in ("s", "step")],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [16, 1])],
    )
    nodes = [
        helper.make_node("Unsqueeze", ["x", "last"], ["u"]),
        helper.make_node("Scan", ["zero", "u"], ["f"], body=body, num_scan_inputs=1),
        helper.make_node("Transpose", ["f"], ["y"], perm=[1, 0]),
    ]
    weights = {"wt": normal(16, 16, seed=5, scale=0.9).T.copy(), "zero": np.zeros((16, 1), np.float32)}
    model = _model(nodes, {"x": ["n", 16]}, weights)
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "last"))
    return model


_SKEW = 1 / (np.arange(5)[:, None] + np.arange(5)[None] + 1.0)  # of Hilbert: as good as singular
STEPS = [
    _chain(
        _power,
        """(float[n,n] x) => (float[n,n] y) {
            a = MatMul (x, x)  b = MatMul (a, a)  c = MatMul (b, b)  y = MatMul (c, c) }""",
        "sixteenth_power_of_a_matrix",
        (_SKEW @ np.diag(f32(1.0, 0.9, -0.8, 0.7, 0.5)) @ np.linalg.inv(_SKEW)).astype(np.float32),
        normal(5, 5, scale=0.3),
    ),
    Entry(
        "logistic_map",
        _logistic,
        {"x": np.zeros(16, np.float32)},
        {"x": uniform(16, low=0.1, high=0.9)},
        _logistic_twin,
    ),
    Entry("chaotic_recurrence", _recurrent, {"x": normal(3, 16)}, {"x": normal(120, 16)}, _recurrent_twin),
]

SOUND = [*NORMS, *NARROW, *CANCELLATION, *TIES, *LARGE, *SUMS, *EDGES, *STEPS]
