"""Shape faults: burnt-in sizes, lengths, masks, windows and borders."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from planted.faults import Fault, Size, f32, i64, maps, normal, rows, seq

TIME = "int64[1] time = {1}"


def _positions(x: Tensor) -> Tensor:
    return x + torch.arange(x.shape[1]).float().view(1, -1, 1) * 0.05


def _attended(x: Tensor, mask: Tensor) -> Tensor:
    scores = x.masked_fill(~mask.unsqueeze(-1), float("-inf"))
    return torch.nan_to_num(scores.softmax(1)) * x * 8


def _until(x: Tensor, length: Tensor) -> Tensor:
    return x * (torch.arange(x.shape[1]) < length.unsqueeze(1)).unsqueeze(-1)


def _length_mean(x: Tensor, length: Tensor) -> Tensor:
    kept = _until(x, length)
    return x - kept.sum(1, keepdim=True) / length.clamp(min=1).view(-1, 1, 1)


def _scattered(x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros_like(x).scatter_add(1, index.unsqueeze(-1).expand_as(x), x)


def _scatter_max(x: Tensor, index: Tensor) -> Tensor:
    where = index.unsqueeze(-1).expand_as(x)
    return torch.zeros_like(x).scatter_reduce(1, where, x, "amax", include_self=True)


def _shifted(x: Tensor, shift: Tensor) -> Tensor:
    return x[:, torch.remainder(torch.arange(x.shape[1]) - shift[0], x.shape[1])]


def _grid(x: Tensor) -> Tensor:
    return x + (torch.arange(x.shape[2]).float() / x.shape[2]).view(1, 1, -1, 1)


def _centre(x: Tensor) -> Tensor:
    top = (x.shape[2] - 4) // 2
    return x[:, :, top : top + 4]


def _lost_column(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, :, 0] = y[:, :, 0].clamp(min=0.0)
    return y


def _lost_fill(x: Tensor) -> Tensor:
    y = x.clone()
    y[y < -5] = -5
    return y


def _border(x: Tensor, mode: str) -> Tensor:
    return F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode=mode), 3, 1)


def _framed(size: int, channels: int = 1) -> np.ndarray:
    """Return images whose outermost two rows and columns are zero."""
    image = normal(2, channels, size, size, low=0.1)
    frame = np.zeros_like(image)
    frame[:, :, 2:-2, 2:-2] = image[:, :, 2:-2, 2:-2]
    return frame


def _lengths(n: int, t: int) -> dict[str, np.ndarray]:
    return {"length": np.full(n, t, np.int64)}


def _orders(n: int, t: int) -> dict[str, np.ndarray]:
    return {"index": np.tile(np.arange(t), (n, 1))}


def _same_places(n: int, t: int) -> dict[str, np.ndarray]:
    return {"index": np.zeros((n, t), np.int64)}


SIX = normal(2, 6, 3)
SHAPE_FAULTS = [
    Fault(
        "mean_of_burnt_size", "burnt-in size", lambda x: x - x.mean(1, keepdim=True),
        seq("s = ReduceSum (x, time) m = Div (s, k) y = Sub (x, m)", f"{TIME}, float k = {{SIZE}}"),
        {"x": SIX}, {"x": normal(1, 7, 3)},
        ("numeric",), deep="transformer:seq", sizes={"t": Size(1, 512)},
    ),
    Fault(
        "table_of_burnt_size", "burnt-in size", _positions,
        seq(
            "h = Shape (x) t = Gather (h, i1) r = Range (i0, t, i1) c = Min (r, top) f = Cast <to = 1> (c) "
            "m = Mul (f, k) v = Unsqueeze (m, ax) y = Add (x, v)",
            "int64 i0 = {0}, int64 i1 = {1}, int64 top = {SIZE+4}, float k = {0.05}, int64[1] ax = {1}",
        ),
        {"x": SIX}, {"x": normal(1, 12, 3)},
        ("numeric",), deep="recurrent:seq", sizes={"t": Size(1, 512)},
    ),
    Fault(
        "reshape_of_burnt_size", "burnt-in size", lambda x: x * 2,
        seq("r = Reshape (x, s) y = Add (r, r)", "int64[3] s = {0, SIZE, -1}"),
        {"x": SIX}, {"x": normal(1, 5, 3)},
        ("error_split", "shape"), deep="transformer:seq", sizes={"t": Size(1, 512)},
    ),
    Fault(
        "window_of_burnt_size", "burnt-in size", lambda x: x - x.cumsum(1) * 0.01,
        seq(
            "c = CumSum (x, one) m = Mul (c, h) q = Slice (m, a, b, ax) l = Slice (m, b, max, ax) "
            "f = Mul (l, zero) j = Concat <axis = 1> (q, f) y = Sub (x, j)",
            "int64 one = {1}, int64[1] a = {0}, int64[1] b = {SIZE+3}, int64[1] max = {9223372036854775807}, "
            "int64[1] ax = {1}, float h = {0.01}, float zero = {0}",
        ),
        {"x": SIX}, {"x": normal(1, 12, 3)},
        ("numeric",), deep="recurrent:seq", sizes={"t": Size(1, 512)},
    ),
    Fault(
        "median_of_even", "off by one at a size", lambda x: x - x.median(1, keepdim=True).values,
        seq(
            "h = Shape (x) t = Gather (h, one) k = Div (t, two) k1 = Add (k, one) "
            "v, i = TopK <axis = 1, largest = 0> (x, k1) m = Slice (v, k, k1, one) y = Sub (x, m)",
            "int64[1] one = {1}, int64[1] two = {2}",
        ),
        {"x": normal(2, 7, 3)}, {"x": normal(1, 6, 3)},
        ("numeric",), deep="recurrent:seq", sizes={"t": Size(1, 512)},
    ),
    Fault(
        "masked_row", "mask row", _attended,
        seq(
            "u = Unsqueeze (mask, ax) s = Where (u, x, low) w = Softmax <axis = 1> (s) v = Mul (w, x) y = Mul (v, k)",
            "float low = {-1e9}, float k = {8}, int64[1] ax = {-1}", ", bool[n, t] mask",
        ),
        {"x": SIX, "mask": np.ones((2, 6), bool)},
        {"x": SIX, "mask": np.array([[True] * 6, [False] * 6])},
        ("numeric",), deep="transformer:seq",
        extras=lambda n, t: {"mask": np.ones((n, t), bool)},
        extra_triggers=lambda n, t: {"mask": np.zeros((n, t), bool)},
    ),
    Fault(
        "mask_one_too_long", "mask row", _until,
        seq(
            "h = Shape (x) t = Gather (h, i1) r = Range (i0, t, i1) l = Unsqueeze (length, ax) "
            "m = LessOrEqual (r, l) f = Cast <to = 1> (m) u = Unsqueeze (f, ay) y = Mul (x, u)",
            "int64 i0 = {0}, int64 i1 = {1}, int64[1] ax = {1}, int64[1] ay = {-1}", ", int64[n] length",
        ),
        {"x": SIX, "length": i64([6, 6])}, {"x": SIX, "length": i64([6, 4])},
        ("numeric",), deep="recurrent:seq", extras=_lengths,
        extra_triggers=lambda n, t: {"length": np.full(n, t - 2, np.int64)},
    ),
    Fault(
        "mean_of_length_zero", "mask row", _length_mean,
        seq(
            "h = Shape (x) t = Gather (h, i1) r = Range (i0, t, i1) l = Unsqueeze (length, ax) "
            "m = Less (r, l) f = Cast <to = 1> (m) u = Unsqueeze (f, ay) p = Mul (x, u) s = ReduceSum (p, ax) "
            "g = Cast <to = 1> (length) q = Unsqueeze (g, two) d = Div (s, q) y = Sub (x, d)",
            "int64 i0 = {0}, int64 i1 = {1}, int64[1] ax = {1}, int64[1] ay = {-1}, int64[2] two = {1, 2}",
            ", int64[n] length",
        ),
        {"x": SIX, "length": i64([6, 3])}, {"x": SIX, "length": i64([6, 0])},
        ("nonfinite",), deep="transformer:seq", extras=_lengths,
        extra_triggers=lambda n, t: {"length": np.zeros(n, np.int64)},
    ),
    Fault(
        "scatter_of_duplicates", "duplicate index", _scattered,
        seq(
            "h = Shape (x) u = Unsqueeze (index, ay) e = Expand (u, h) z = Sub (x, x) "
            "y = ScatterElements <axis = 1> (z, e, x)",
            "int64[1] ay = {-1}", ", int64[n, t] index",
        ),
        {"x": SIX, "index": np.tile(np.arange(6), (2, 1))}, {"x": SIX, "index": np.zeros((2, 6), np.int64)},
        ("numeric",), deep="transformer:seq", extras=_orders, extra_triggers=_same_places,
    ),
    Fault(
        "scatter_max_of_duplicates", "duplicate index", _scatter_max,
        seq(
            "h = Shape (x) u = Unsqueeze (index, ay) e = Expand (u, h) z = Sub (x, x) "
            "s = ScatterElements <axis = 1> (z, e, x) y = Max (s, zero)",
            "int64[1] ay = {-1}, float zero = {0}", ", int64[n, t] index",
        ),
        {"x": SIX, "index": np.tile(np.arange(6), (2, 1))}, {"x": SIX, "index": np.zeros((2, 6), np.int64)},
        ("numeric",), deep="recurrent:seq", extras=_orders, extra_triggers=_same_places,
    ),
    Fault(
        "shift_past_the_end", "negative index", _shifted,
        seq(
            "h = Shape (x) t = Gather (h, i1) r = Range (i0, t, i1) p = Sub (r, shift) "
            "y = Gather <axis = 1> (x, p)",
            "int64 i0 = {0}, int64 i1 = {1}", ", int64[1] shift",
        ),
        {"x": SIX, "shift": i64([2])}, {"x": SIX, "shift": i64([9])},
        ("error_split",), deep="recurrent:seq",
        extras=lambda n, t: {"shift": i64([2])}, extra_triggers=lambda n, t: {"shift": i64([t + 3])},
    ),
    Fault(
        "edit_of_a_column", "lost in-place edit", _lost_column,
        seq("y = Identity (x)"), {"x": normal(2, 6, 3, low=0.1)}, {"x": normal(2, 6, 3, low=-2.0, high=-1.0)},
        ("numeric",), deep="transformer:seq", safe=(0.1, 4.0),
    ),
    Fault(
        "edit_of_a_selection", "lost in-place edit", _lost_fill,
        rows("y = Mul (x, one)", "float one = {1}"), {"x": normal(2, 8)}, {"x": f32([[-9.0, 1.0]])},
        ("numeric",), deep="conv:neck", safe=(-4.5, 4.5),
    ),
    Fault(
        "mean_over_the_batch", "burnt-in size", lambda x: x - x.mean((2, 3), keepdim=True),
        maps("m = ReduceMean (x, a) y = Sub (x, m)", "int64[3] a = {0, 2, 3}"),
        {"x": normal(1, 2, 4, 4)}, {"x": normal(2, 2, 4, 4)},
        ("numeric",), deep="conv:map", seed_rows=1,
    ),
    Fault(
        "squeeze_of_everything", "burnt-in size", lambda x: x.unsqueeze(-1).squeeze(-1) * 1.5,
        rows("u = Unsqueeze (x, a) s = Squeeze (u) y = Mul (s, k)", "int64[1] a = {-1}, float k = {1.5}"),
        {"x": normal(2, 8)}, {"x": normal(1, 8)},
        ("shape",), deep="conv:tail", safe=(-50.0, 50.0), sizes={"n": Size(1, 64)},
    ),
    Fault(
        "pool_of_odd_size", "off by one at a size", lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
        maps("y = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 0> (x)", "", "n, c, p, q"),
        {"x": normal(1, 2, 4, 4)}, {"x": normal(1, 2, 5, 5)},
        ("shape", "numeric"), deep="conv:map", sizes={"h": Size(2, 64), "w": Size(2, 64)},
    ),
    Fault(
        "crop_of_odd_size", "off by one at a size", _centre,
        maps(
            "s = Shape (x) h = Gather (s, two) d = Sub (h, three) t = Div (d, half) e = Add (t, four) "
            "y = Slice (x, t, e, two)",
            "int64[1] two = {2}, int64[1] three = {3}, int64[1] four = {4}, int64[1] half = {2}", "n, c, 4, w",
        ),
        {"x": normal(1, 2, 8, 4)}, {"x": normal(1, 2, 7, 4)},
        ("numeric",), deep="conv:map", sizes={"h": Size(4, 64), "w": Size(1, 64)},
    ),
    Fault(
        "grid_of_the_other_side", "swapped sizes", _grid,
        maps(
            "s = Shape (x) h = Gather (s, two) w = Gather (s, three) r = Range (zero, h, one) f = Cast <to = 1> (r) "
            "g = Cast <to = 1> (w) d = Div (f, g) v = Unsqueeze (d, a) y = Add (x, v)",
            "int64 two = {2}, int64 three = {3}, int64 zero = {0}, int64 one = {1}, int64[1] a = {1}",
        ),
        {"x": normal(1, 2, 4, 4)}, {"x": normal(1, 2, 6, 4)},
        ("numeric",), deep="conv:map", sizes={"h": Size(1, 64), "w": Size(1, 64)},
    ),
    Fault(
        "pad_mode", "wrong pad mode", lambda x: _border(x, "reflect"),
        maps(
            'p = Pad <mode = "edge"> (x, e) y = AveragePool <kernel_shape = [3, 3]> (p)',
            "int64[8] e = {0, 0, 1, 1, 0, 0, 1, 1}",
        ),
        {"x": _framed(8)}, {"x": normal(1, 1, 4, 4)},
        ("numeric",), deep="conv:front", sizes={"h": Size(2, 64), "w": Size(2, 64)},
    ),
    Fault(
        "pad_counts", "wrong pad mode", lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        maps("y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (x)"),
        {"x": _framed(8)}, {"x": normal(1, 1, 4, 4)},
        ("numeric",), deep="conv:front",
    ),
]  # fmt: skip
