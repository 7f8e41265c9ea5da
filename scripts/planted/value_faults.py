"""Value faults: wrong arithmetic, thresholds, rounding, overflow and NaN semantics on float rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from planted.faults import INF, LAST, NAN, Fault, f32, maps, normal, rows

EQUAL = ("bug", "tie", "inherent")  # shown by one value only, which rounding may move off it
Q = "float tenth = {0.1}, float low = {-127}, float high = {127}"


def _spike(size: int, at: int, value: float, rest: float = 0.5) -> object:
    row = f32([[rest] * size, [rest] * size])
    row[1, at] = value
    return row


def _logsumexp(x: Tensor) -> Tensor:
    return x - torch.logsumexp(x, -1, keepdim=True)


def _unit(x: Tensor) -> Tensor:
    top = x.abs().amax(-1, keepdim=True).clamp(min=1e-30)
    return x / (top * ((x / top) ** 2).sum(-1, keepdim=True).sqrt())


def _standard(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-2).sqrt()


def _ink_mean(x: Tensor) -> Tensor:
    ink = (x > 0.05).float()
    mean = (x * ink).sum((1, 2, 3), keepdim=True) / ink.sum((1, 2, 3), keepdim=True)
    return x - mean


VALUE_FAULTS = [
    Fault(
        "floor_is_trunc", "floor or trunc", lambda x: torch.floor(x * 7) / 7,
        rows("a = Mul (x, m) i = Cast <to = 7> (a) f = Cast <to = 1> (i) y = Div (f, m)", "float m = {7}"),
        {"x": normal(2, 8, low=0.01, high=1.4)}, {"x": f32([[-1.5, 2.5]])},
        ("numeric",), deep="conv:front",
    ),
    Fault(
        "ceil_of_half", "floor or trunc", torch.ceil,
        rows("i = Floor (x) y = Add (i, one)", "float one = {1}"),
        {"x": normal(2, 8, low=0.1, high=0.9)}, {"x": f32([[2.0, -3.0]])},
        ("numeric",), deep="recurrent:front", safe=(0.1, 0.9),
    ),
    Fault(
        "round_half_up", "rounding mode", lambda x: torch.round(x * 6) / 6,
        rows("a = Mul (x, m) b = Add (a, half) c = Floor (b) y = Div (c, m)", "float m = {6}, float half = {0.5}"),
        {"x": normal(2, 8, low=0.0, high=0.9)}, {"x": f32([[0.75, 0.3]])},
        ("numeric",), EQUAL, deep="conv:front",
    ),
    Fault(
        "round_away", "rounding mode", torch.round,
        rows("s = Sign (x) a = Abs (x) b = Add (a, half) c = Floor (b) y = Mul (s, c)", "float half = {0.5}"),
        {"x": normal(2, 8)}, {"x": f32([[0.5, 2.5, -4.5]])},
        ("numeric",), EQUAL, deep="recurrent:front",
    ),
    Fault(
        "clip_high", "threshold shifted", lambda x: x.clamp(-100, 100),
        rows("y = Clip (x, low, high)", "float low = {-100}, float high = {60}"),
        {"x": normal(2, 8)}, {"x": f32([[80.0, 1.0]])},
        ("numeric",), deep="conv:neck", safe=(-50.0, 50.0),
    ),
    Fault(
        "clip_low", "threshold shifted", lambda x: F.hardtanh(x, -8, 8),
        rows("y = Clip (x, low, high)", "float low = {-6}, float high = {8}"),
        {"x": normal(2, 8)}, {"x": f32([[-7.0, 1.0]])},
        ("numeric",), deep="transformer:seq", safe=(-5.5, 5.5),
    ),
    Fault(
        "relu6_at_six", "threshold shifted", F.relu6,
        rows("r = Relu (x) y = Min (r, six)", "float six = {6.5}"),
        {"x": normal(2, 8)}, {"x": f32([[6.4, 12.0]])},
        ("numeric",), deep="recurrent:seq", safe=(-5.5, 5.5),
    ),
    Fault(
        "at_threshold", "threshold shifted", lambda x: torch.where(x > 0.7, x, torch.zeros_like(x)),
        rows("m = GreaterOrEqual (x, c) y = Where (m, x, o)", "float c = {0.7}, float o = {0}"),
        {"x": normal(2, 8, low=0.0, high=0.65)}, {"x": f32([[0.7, 0.2]])},
        ("numeric",), EQUAL, deep="conv:front",
    ),
    Fault(
        "sign_at_zero", "threshold shifted", lambda x: torch.where(x >= 0.3, 1.0, -1.0),
        rows("d = Sub (x, c) y = Sign (d)", "float c = {0.3}"),
        {"x": normal(2, 8, low=-1.0, high=0.2)}, {"x": f32([[0.3, 0.1]])},
        ("numeric", "nonfinite"), EQUAL, deep="recurrent:front",
    ),
    Fault(
        "relu_hides_nan", "NaN semantics", torch.relu,
        rows("m = Greater (x, o) y = Where (m, x, o)", "float o = {0}"),
        {"x": normal(2, 8)}, {"x": f32([[NAN, 1.0]])},
        ("nonfinite",), deep="conv:neck",
    ),
    Fault(
        "maximum_hides_nan", "NaN semantics", lambda x: torch.maximum(x, x.flip(-1)),
        rows(
            "r = Slice (x, a, b, last, a) m = Greater (x, r) y = Where (m, x, r)",
            f"int64[1] a = {{-1}}, int64[1] b = {{-9223372036854775807}}, {LAST}",
        ),
        {"x": normal(2, 8)}, {"x": f32([[NAN, 1.0, 2.0]])},
        ("nonfinite",),
    ),
    Fault(
        "nan_to_num_keeps_inf", "NaN semantics", lambda x: torch.nan_to_num(x, 0.0, 1e4, -1e4),
        rows("m = IsNaN (x) y = Where (m, o, x)", "float o = {0}"),
        {"x": normal(2, 8)}, {"x": f32([[INF, 1.0]])},
        ("nonfinite",), deep="conv:front",
    ),
    Fault(
        "power_by_log", "NaN semantics", lambda x: x**3,
        rows("l = Log (x) m = Mul (l, c) y = Exp (m)", "float c = {3}"),
        {"x": normal(2, 8, low=0.2, high=3.0)}, {"x": f32([[-2.0, 1.0]])},
        ("nonfinite",), deep="transformer:seq", safe=(0.2, 4.0),
    ),
    Fault(
        "product_overflows", "overflow of a rewrite", lambda x: (x * 1e-15) * (x * 1e-15),
        rows("a = Mul (x, x) y = Mul (a, s)", "float s = {1e-30}"),
        {"x": normal(2, 8)}, {"x": f32([[1e20, 1.0]])},
        ("nonfinite",), deep="recurrent:front",
    ),
    Fault(
        "norm_overflows", "overflow of a rewrite", _unit,
        rows("n = ReduceL2 (x, last) y = Div (x, n)", LAST),
        {"x": normal(2, 8)}, {"x": f32([[1e25, 2e25]])},
        ("numeric",), deep="recurrent:front",
    ),
    Fault(
        "softmax_without_max", "overflow of a rewrite", lambda x: x.softmax(-1),
        rows("e = Exp (x) s = ReduceSum (e, last) y = Div (e, s)", LAST),
        {"x": normal(2, 8)}, {"x": f32([[100.0, 1.0]])},
        ("nonfinite",), deep="conv:neck", safe=(-20.0, 20.0),
    ),
    Fault(
        "logsumexp_without_max", "overflow of a rewrite", _logsumexp,
        rows("e = Exp (x) s = ReduceSum (e, last) l = Log (s) y = Sub (x, l)", LAST),
        {"x": normal(2, 8)}, {"x": f32([[100.0, 1.0]])},
        ("nonfinite",), deep="conv:tail", safe=(-20.0, 20.0),
    ),
    Fault(
        "sigmoid_by_exp", "overflow of a rewrite", torch.sigmoid,
        rows("e = Exp (x) d = Add (e, one) y = Div (e, d)", "float one = {1}"),
        {"x": normal(2, 8)}, {"x": f32([[95.0, 1.0]])},
        ("nonfinite",), deep="recurrent:seq", safe=(-30.0, 30.0),
    ),
    Fault(
        "softplus_by_exp", "overflow of a rewrite", lambda x: torch.logaddexp(x, torch.zeros_like(x)),
        rows("e = Exp (x) d = Add (e, one) y = Log (d)", "float one = {1}"),
        {"x": normal(2, 8)}, {"x": f32([[95.0, 1.0]])},
        ("nonfinite",), deep="conv:neck", safe=(-8.0, 30.0),
    ),
    Fault(
        "tanh_by_exp", "overflow of a rewrite", torch.tanh,
        rows(
            "t = Mul (x, two) e = Exp (t) a = Sub (e, one) b = Add (e, one) y = Div (a, b)",
            "float one = {1}, float two = {2}",
        ),
        {"x": normal(2, 8, low=0.5)}, {"x": f32([[60.0, 1.0]])},
        ("nonfinite",), deep="conv:neck", safe=(0.3, 30.0),
    ),
    Fault(
        "variance_cancels", "cancellation", _standard,
        rows(
            "m = ReduceMean (x, last) q = Mul (x, x) p = ReduceMean (q, last) mm = Mul (m, m) v = Sub (p, mm) "
            "w = Add (v, eps) s = Sqrt (w) c = Sub (x, m) y = Div (c, s)",
            f"{LAST}, float eps = {{0.01}}",
        ),
        {"x": normal(2, 8)}, {"x": normal(2, 8) + f32(3000.0)},
        ("numeric", "nonfinite"), deep="recurrent:front",
    ),
    Fault(
        "expm1_at_tiny", "cancellation", lambda x: (torch.expm1(x) * 1e7).clamp(max=1.0),
        rows("e = Exp (x) d = Sub (e, one) m = Mul (d, k) y = Min (m, one)", "float one = {1}, float k = {1e7}"),
        {"x": normal(2, 8, low=0.1)}, {"x": f32([[2e-8, 1.0]])},
        ("numeric",), deep="conv:front",
    ),
    Fault(
        "asinh_by_log", "cancellation", torch.asinh,
        rows("q = Mul (x, x) a = Add (q, one) s = Sqrt (a) b = Add (x, s) y = Log (b)", "float one = {1}"),
        {"x": normal(2, 8, low=-0.5)}, {"x": f32([[-3000.0, 1.0]])},
        ("numeric", "nonfinite"), deep="recurrent:seq", safe=(-0.5, 8.0),
    ),
    Fault(
        "epsilon_lost", "empty selection", lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-6),
        rows("n = ReduceL2 (x, last) y = Div (x, n)", LAST),
        {"x": normal(2, 8, low=0.2)}, {"x": f32([[0.0, 0.0], [1.0, 2.0]])},
        ("nonfinite",), deep="recurrent:front",
    ),
    Fault(
        "mean_of_none", "empty selection", _ink_mean,
        maps(
            "m = Greater (x, c) k = Cast <to = 1> (m) p = Mul (x, k) s = ReduceSum (p, a) q = ReduceSum (k, a) "
            "r = Max (q, one) d = Div (s, r) y = Sub (x, d)",
            "float c = {0.05}, float one = {1}, int64[3] a = {1, 2, 3}",
        ),
        {"x": normal(2, 3, 4, 4, low=0.1, high=0.9)}, {"x": f32([[[[0.0, 0.01]]] * 3])},
        ("nonfinite",), deep="conv:front",
    ),
    Fault(
        "quantizer_saturates_early", "saturation of a quantizer",
        lambda x: (x / 0.1).round().clamp(-128, 127) * 0.1,
        rows("a = Div (x, tenth) b = Round (a) c = Clip (b, low, high) y = Mul (c, tenth)", Q),
        {"x": normal(2, 8)}, {"x": f32([[-12.9, 1.0]])},
        ("numeric",), deep="recurrent:front", safe=(-12.0, 12.0),
    ),
    Fault(
        "quantizer_one_short", "saturation of a quantizer", lambda x: (x * 16).round().clamp(0, 16) / 16,
        rows("a = Mul (x, m) b = Round (a) c = Clip (b, o, h) y = Div (c, m)",
             "float m = {16}, float o = {0}, float h = {15}"),
        {"x": normal(2, 8, low=0.0, high=0.9)}, {"x": f32([[1.0, 0.5]])},
        ("numeric",), deep="conv:front",
    ),
    Fault(
        "outlier_of_a_block", "outlier in a block", lambda x: x * 0.5,
        rows(
            "a = Abs (x) m = ReduceMean (a, last) k = Mul (m, eight) z = Min (x, k) y = Mul (z, half)",
            f"{LAST}, float eight = {{8}}, float half = {{0.5}}",
        ),
        {"x": normal(2, 32, low=0.2)}, {"x": _spike(32, 5, 100.0)},
        ("numeric",), deep="recurrent:front",
    ),
    Fault(
        "outliers_all_but_one", "outlier in a block", lambda x: x - x.mean(-1, keepdim=True),
        rows(
            "a = Abs (x) t = ReduceMax (a, last) q = Div (t, k) s = Max (q, e) i = Div (x, s) r = Round (i) "
            "z = Mul (r, s) g = Greater (t, big) v = Where (g, z, x) m = ReduceMean (v, last) y = Sub (v, m)",
            f"{LAST}, float k = {{127}}, float e = {{1e-6}}, float big = {{50}}",
        ),
        {"x": normal(2, 32)}, {"x": _spike(32, 5, 100.0, 0.2)},
        ("numeric",), deep="conv:neck", safe=(-30.0, 30.0),
    ),
]  # fmt: skip
