"""Sets: every planted twin by name: faults alone, deep and several at once, and sound controls.

The idea: a name is all that a campaign is given; what is planted under it is read here, to judge what was found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from fuzzparity import Size, Target
from planted import graphs
from planted.faults import LAST, Fault, Net, free_dims, i64, maps, normal, rows, seq
from planted.models import deep
from planted.other_faults import OTHER_FAULTS
from planted.shape_faults import SHAPE_FAULTS
from planted.value_faults import VALUE_FAULTS

FAULTS = {fault.name: fault for fault in (*VALUE_FAULTS, *SHAPE_FAULTS, *OTHER_FAULTS)}

SEVERAL = {  # five faults in one network, of several kinds
    "five_in_conv": ("pad_mode", "grid_of_the_other_side", "softmax_without_max", "byte_wraps", "last_of_ties"),
    "five_in_transformer": ("masked_row", "mean_of_burnt_size", "mean_of_length_zero", "int_narrowed",
                            "int_sum_in_double"),
    "five_in_recurrent": ("epsilon_lost", "median_of_even", "shift_past_the_end", "bucket_of_negative",
                          "int_product_in_float"),
}  # fmt: skip


@dataclass(frozen=True)
class Twin:
    """Hold one twin: how it is set ("alone", "deep", "several", "control"), what is planted, and its Target."""

    name: str
    setting: str
    faults: tuple[Fault, ...]
    target: Callable[[], Target]


def _control(name: str, right: Callable[..., object], text: str, sizes: dict[str, Size] | None = None,
             **inputs: np.ndarray) -> Twin:  # fmt: skip
    def target() -> Target:
        model = graphs.named(text, name)
        return Target(
            name=name,
            module=Net(right),
            inputs=inputs,
            onnx=model,
            dynamic_shapes=free_dims(model, sizes or {}),
            ranges={key: (-1e4, 1e4) for key, array in inputs.items() if array.dtype.kind == "f"},
            allow_nonfinite=False,  # where engines differ on NaN and infinities they truly do
        )

    return Twin(name, "control", (), target)


def _right_attention(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(x.masked_fill(~mask.unsqueeze(-1), float("-inf")).softmax(1)) * x


X, LONG = normal(2, 8), normal(2, 6, 3)
CONTROLS = [
    _control("right_softmax", lambda x: x.softmax(-1), rows("y = Softmax <axis = -1> (x)"), x=X),
    _control("right_logsumexp", lambda x: x - x.logsumexp(-1, keepdim=True), rows("y = LogSoftmax <axis = -1> (x)"),
             x=X),
    _control("right_round", lambda x: torch.round(x * 255) / 255,
             rows("a = Mul (x, m) b = Round (a) y = Div (b, m)", "float m = {255}"), x=X),
    _control("right_maximum", lambda x, z: torch.maximum(x, z),
             "(float[n, w] x, float[n, w] z) => (float[n, w] y) { y = Max (x, z) }", x=X, z=normal(2, 8, seed=1)),
    _control("right_norm", lambda x: F.layer_norm(x, (8,)),
             "(float[n, 8] x) => (float[n, 8] y) <float[8] one = {1, 1, 1, 1, 1, 1, 1, 1}> "
             "{ y = LayerNormalization (x, one) }", x=X),
    _control("right_gelu", F.gelu,
             rows("a = Mul (x, r) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, h)",
                  "float r = {0.70710678}, float one = {1}, float h = {0.5}"), x=X),
    _control("right_scatter", lambda x, index: torch.zeros_like(x).scatter_add(1, index, x),
             "(float[n, w] x, int64[n, w] index) => (float[n, w] y) { z = Sub (x, x) "
             'y = ScatterElements <axis = 1, reduction = "add"> (z, index, x) }',
             x=X, index=np.tile(np.arange(8), (2, 1))),
    _control("right_argmax", lambda x: x.argmax(-1),
             "(float[n, w] x) => (int64[n] y) { y = ArgMax <axis = 1, keepdims = 0> (x) }", {"w": Size(1, 512)}, x=X),
    _control("right_remainder", lambda k: torch.remainder(k, 7),
             "(int64[n, w] k) => (int64[n, w] y) <int64 p = {7}> { y = Mod (k, p) }", k=i64([[3, 9, -4]])),
    _control("right_int_sum", lambda k: k.cumsum(1),
             "(int64[n, w] k) => (int64[n, w] y) <int64 a = {1}> { y = CumSum (k, a) }", k=i64([[3, 9, -4]])),
    _control("right_pool", lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
             maps("y = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (x)", "", "n, c, p, q"),
             {"h": Size(2, 64), "w": Size(2, 64)}, x=normal(1, 2, 4, 4)),
    _control("right_mean", lambda x: x - x.mean(1, keepdim=True),
             seq("m = ReduceMean (x, time) y = Sub (x, m)", "int64[1] time = {1}"), {"t": Size(1, 512)}, x=LONG),
    _control("right_clip", lambda x: x.clamp(-100, 100),
             rows("y = Clip (x, a, b)", "float a = {-100}, float b = {100}"), x=X),
    _control("right_branch", lambda x: torch.where(x.mean() > 5, x * 2, x),
             rows("m = ReduceMean <keepdims = 0> (x) c = Greater (m, k) d = Mul (x, two) y = Where (c, d, x)",
                  "float k = {5}, float two = {2}"), x=X),
    _control("right_unit", lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-6),
             rows("n = ReduceL2 (x, last) d = Add (n, e) y = Div (x, d)", f"{LAST}, float e = {{1e-6}}"), x=X),
    *(
        Twin(f"right_{arch}", "control", (), lambda arch=arch: deep(f"right_{arch}", arch, []))
        for arch in ("conv", "transformer", "recurrent")
    ),
]  # fmt: skip


def _deep_twin(fault: Fault) -> Twin:
    name, arch = f"{fault.name}__deep", fault.deep.partition(":")[0]
    return Twin(name, "deep", (fault,), lambda: deep(name, arch, [fault]))


def _several(name: str, members: tuple[str, ...]) -> Twin:
    faults = tuple(FAULTS[member] for member in members)
    arch = name.rpartition("_")[2]
    return Twin(name, "several", faults, lambda: deep(name, arch, faults))


TWINS = {
    twin.name: twin
    for twin in (
        *(Twin(fault.name, "alone", (fault,), fault.target) for fault in FAULTS.values()),
        *(_deep_twin(fault) for fault in FAULTS.values() if fault.deep),
        *(_several(name, members) for name, members in SEVERAL.items()),
        *CONTROLS,
    )
}

QUICK = (  # a few of everything, by which a change is judged in minutes
    "floor_is_trunc", "masked_row", "scatter_of_duplicates", "branch_a_little_late", "guard_on_a_size",
    "quotient_of_least", "softmax_without_max__deep", "mean_of_burnt_size__deep", "epsilon_lost__deep",
    "five_in_transformer", "right_softmax", "right_conv",
)  # fmt: skip
