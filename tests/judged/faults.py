"""True faults of at least ten times the noise: planted in a file or an export, and real ones of exporters and ORT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from entries import Entry, f32, i64, normal, uniform
from onnx import TensorProto, helper, numpy_helper
from torch.nn import functional as F

from fuzzparity import Export, Ort

NAN, INF = float("nan"), float("inf")
TRACED = {"export": Export(exporter="torchscript")}


class Net(torch.nn.Module):
    """Wrap a function, so that exporters see a module with a forward of its own."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _given(
    name: str,
    module: Any,
    twin: Any,
    trigger: Mapping[str, np.ndarray] | np.ndarray,
    kinds: str = "numeric",
    blames: str = "onnx_file",
    sample: Mapping[str, np.ndarray] | None = None,
    **more: Any,
) -> Entry:
    """Return an entry with a given file; kinds and blames are joined by spaces, the sample is zeros unless given."""
    arrays = trigger if isinstance(trigger, Mapping) else {"x": trigger}
    quiet = sample or {name: np.zeros_like(array) for name, array in arrays.items()}
    return Entry(name, module, quiet, arrays, twin, tuple(kinds.split()), tuple(blames.split()), **more)


def _exported(
    name: str,
    function: Any,
    trigger: Mapping[str, np.ndarray] | np.ndarray,
    kinds: str = "numeric",
    blames: str = "export",
    sample: Mapping[str, np.ndarray] | np.ndarray | None = None,
    options: Mapping[str, Any] = TRACED,
) -> Entry:
    """Return an entry that is exported, by torchscript unless `options` say else; the sample is ones unless given."""
    arrays = trigger if isinstance(trigger, Mapping) else {"x": trigger}
    quiet = {"x": sample} if isinstance(sample, np.ndarray) else sample
    quiet = quiet or {name: np.ones_like(array) for name, array in arrays.items()}
    return Entry(name, Net(function), quiet, arrays, None, tuple(kinds.split()), tuple(blames.split()), dict(options))


def _model(
    nodes: list[Any], weights: Mapping[str, np.ndarray], inputs: Mapping[str, list[Any]], opset: int = 20
) -> Any:
    """Return a float32 model with the output y."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", infos, [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


# ---- planted in a given file

_NODE = helper.make_node
_VECTOR = "(float[n,m] x) => (float[n,m] y)"
_PICTURE = "(float[n,c,h,w] x) => (float[n,c,g,v] y)"


def _linear() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(6, 3)


def _changed_weight() -> Any:
    layer = _linear()
    weight = layer.weight.detach().numpy().copy()
    weight[1, 2] *= 1.3
    return _model(
        [_NODE("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        {"w": weight, "b": layer.bias.detach().numpy()},
        {"x": ["n", 6]},
    )


def _no_bias() -> Any:
    return _model(
        [_NODE("Gemm", ["x", "w"], ["y"], transB=1)], {"w": _linear().weight.detach().numpy()}, {"x": ["n", 6]}
    )


def _normed() -> torch.nn.Module:
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    module[1].running_mean.copy_(torch.tensor([0.3, -0.2, 0.1, 0.5]))
    module[1].running_var.copy_(torch.tensor([0.5, 2.0, 1.5, 0.01]))
    return module.eval()


def _folded_wrong() -> Any:
    """Return convolution and batch norm folded, with the variance in the place of its root."""
    conv, norm = _normed()
    scale = (norm.weight / (norm.running_var + norm.eps)).detach()
    weight = (conv.weight * scale[:, None, None, None]).detach().numpy()
    bias = ((conv.bias - norm.running_mean) * scale + norm.bias).detach().numpy()
    return _model([_NODE("Conv", ["x", "w", "b"], ["y"])], {"w": weight, "b": bias}, {"x": ["n", 3, "h", "w"]})


def _other_epsilon() -> Any:
    conv, norm = _normed()
    weights = {
        "w": conv.weight,
        "b": conv.bias,
        "s": norm.weight,
        "o": norm.bias,
        "m": norm.running_mean,
        "v": norm.running_var,
    }
    nodes = [
        _NODE("Conv", ["x", "w", "b"], ["c"]),
        _NODE("BatchNormalization", ["c", "s", "o", "m", "v"], ["y"], epsilon=1e-3),
    ]
    return _model(nodes, {name: t.detach().numpy() for name, t in weights.items()}, {"x": ["n", 3, "h", "w"]})


def _recurrent(kind: type[torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(2)
    module = kind(4, 5)
    return _First(module)


class _First(torch.nn.Module):
    """Return the first of what a module returns."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


def _gates(order: list[int], op: str, **attributes: Any) -> Any:
    """Return a recurrent node whose gates are taken from torch in an order."""
    layer = _recurrent(torch.nn.LSTM if op == "LSTM" else torch.nn.GRU).inner

    def ordered(tensor: torch.Tensor) -> np.ndarray:
        parts = tensor.detach().numpy().reshape(len(order), 5, -1)[order]
        return parts.reshape(1, 5 * len(order), -1)

    bias = np.concatenate([ordered(layer.bias_ih_l0)[..., 0], ordered(layer.bias_hh_l0)[..., 0]], 1)
    weights = {"w": ordered(layer.weight_ih_l0), "r": ordered(layer.weight_hh_l0), "b": bias, "one": np.array([1])}
    nodes = [_NODE(op, ["x", "w", "r", "b"], ["h"], hidden_size=5, **attributes), _NODE("Squeeze", ["h", "one"], ["y"])]
    return _model(nodes, weights, {"x": ["s", "n", 4]})


def _wrong_arm() -> Any:
    """Return an If whose then-branch doubles instead of trebling."""
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("p", "q")]
    then = helper.make_graph([_NODE("Mul", ["x", "two"], ["p"])], "then", [], [outs[0]])
    other = helper.make_graph([_NODE("Neg", ["x"], ["q"])], "other", [], [outs[1]])
    nodes = [
        _NODE("ReduceSum", ["x"], ["s"], keepdims=0),
        _NODE("Greater", ["s", "zero"], ["c"]),
        _NODE("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    return _model(nodes, {"two": f32(2), "zero": np.float32(0)}, {"x": ["n"]})


def _loop_too_short() -> Any:
    """Return a Loop of three rounds in the place of four."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [_NODE("Identity", ["go"], ["on"]), _NODE("Mul", ["a", "half"], ["h"]), _NODE("Add", ["h", "x"], ["b"])],
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("a", TensorProto.FLOAT, None)],
        [value("on", TensorProto.BOOL, []), value("b", TensorProto.FLOAT, None)],
    )
    nodes = [_NODE("Loop", ["count", "", "x"], ["y"], body=body)]
    return _model(nodes, {"count": np.array(3), "half": f32(0.5)}, {"x": ["n"]})


def _maximum_in_an_arm() -> Any:
    """Return an If whose then-branch takes a maximum over rows."""
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("p", "q")]
    then = helper.make_graph(
        [_NODE("Abs", ["x"], ["a"]), _NODE("ReduceMax", ["a", "last"], ["p"], keepdims=0)], "then", [], [outs[0]]
    )
    other = helper.make_graph([_NODE("ReduceSum", ["x", "last"], ["q"], keepdims=0)], "other", [], [outs[1]])
    nodes = [
        _NODE("ReduceMin", ["z"], ["s"], keepdims=0),
        _NODE("Greater", ["s", "zero"], ["c"]),
        _NODE("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=other),
    ]
    return _model(nodes, {"last": np.array([1]), "zero": np.float32(0)}, {"x": ["n", "m"], "z": [2]})


def _four_rounds(x: torch.Tensor) -> torch.Tensor:
    total = x
    for _ in range(4):
        total = total * 0.5 + x
    return total


def _greedy(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, torch.zeros_like(x) * x)


FILES = [
    _given("changed_weight", _linear(), _changed_weight, normal(4, 6)),
    _given("missing_bias", _linear(), _no_bias, normal(4, 6)),
    _given("batch_norm_folded_wrong", _normed(), _folded_wrong, normal(2, 3, 6, 6)),
    _given("batch_norm_epsilon", _normed(), _other_epsilon, normal(2, 3, 6, 6)),
    _given("lstm_gates", _recurrent(torch.nn.LSTM), lambda: _gates([0, 1, 2, 3], "LSTM"), normal(3, 2, 4)),
    _given(
        "gru_linear_before_reset", _recurrent(torch.nn.GRU), lambda: _gates([1, 0, 2], "GRU"), normal(3, 2, 4, scale=3)
    ),
    _given("softmax_axis", lambda x: x.softmax(-1), f"{_VECTOR} {{ y = Softmax <axis = 0> (x) }}", normal(4, 6)),
    _given(
        "swapped_inputs",
        lambda x, z: x - z,
        "(float[n] x, float[n] z) => (float[n] y) { y = Sub (z, x) }",
        {"x": normal(5), "z": normal(5, seed=1)},
    ),
    _given(
        "pool_counts_padding",
        lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        f"{_PICTURE} {{ y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (x) }}",
        normal(1, 2, 5, 5),
    ),
    _given(
        "aligned_corners",
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False),
        f"""{_PICTURE} <float[4] s = {{1, 1, 2, 2}}> {{
            y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , s) }}""",
        normal(1, 1, 4, 5),
    ),
    _given(
        "missing_transpose",
        lambda x: x @ torch.arange(9.0).view(3, 3).T,
        "(float[n,3] x) => (float[n,3] y) <float[3,3] w = {0,1,2,3,4,5,6,7,8}> { y = MatMul (x, w) }",
        normal(4, 3),
    ),
    _given("scale_off", lambda x: x * 4, f"{_VECTOR} <float s = {{4.01}}> {{ y = Mul (x, s) }}", normal(4, 3)),
    _given(
        "pixels_not_scaled",
        lambda x: x / 255,
        f"{_VECTOR} <float s = {{256}}> {{ y = Div (x, s) }}",
        uniform(4, 3, high=255),
    ),
    _given(
        "rounding_mode",
        torch.round,
        f"{_VECTOR} {{ y = Floor (x) }}",
        f32(0.7, 2.6, 1.2, -1.4)[None],
    ),
    _given(
        "gelu_approximated", F.gelu, f'{_VECTOR} {{ y = Gelu <approximate = "tanh"> (x) }}', f32(-2.2, -2, 2.2)[None]
    ),
    _given(
        "nan_becomes_zero",
        F.relu,
        f"{_VECTOR} <float o = {{0}}> {{ c = Greater (x, o)  y = Where (c, x, o) }}",
        f32(NAN, 1)[None],
        "nonfinite",
    ),
    _given(
        "clip_bound",
        F.relu6,
        f"{_VECTOR} <float a = {{0}}, float b = {{5}}> {{ y = Clip (x, a, b) }}",
        f32(5.5, 7)[None],
    ),
    _given(
        "kept_dim",
        lambda x: x.sum(-1),
        "(float[n,m] x) => (float y) <int64[1] a = {1}> { y = ReduceSum (x, a) }",
        normal(4, 3),
        "shape",
    ),
    _given(
        "narrow_indices",
        lambda x: x.argmax(-1),
        "(float[n,m] x) => (int32[n] y) { i = ArgMax <axis = 1, keepdims = 0> (x)  y = Cast <to = 6> (i) }",
        normal(4, 3),
        "dtype",
    ),
    _given(
        "pad_mode",
        lambda x: F.pad(x, (2, 2), mode="reflect"),
        '(float[n,c,w] x) => (float[n,c,v] y) <int64[6] p = {0,0,2,0,0,2}> { y = Pad <mode = "edge"> (x, p) }',
        normal(1, 2, 6),
    ),
    _given(
        "index_shifted",
        lambda x: x[:, 1],
        "(float[n,m] x) => (float[n] y) <int64 i = {2}> { y = Gather <axis = 1> (x, i) }",
        normal(4, 5),
    ),
    _given(
        "smallest_for_largest",
        lambda x: x.topk(2).values,
        "(float[n,m] x) => (float[n,k] y) <int64[1] k = {2}> { y, i = TopK <largest = 0> (x, k) }",
        normal(4, 5),
    ),
    _given(
        "exclusive_sum",
        lambda x: x.cumsum(-1),
        f"{_VECTOR} <int64 a = {{1}}> {{ y = CumSum <exclusive = 1> (x, a) }}",
        normal(4, 5),
    ),
    _given(
        "leak_of_a_relu",
        lambda x: F.leaky_relu(x, 0.1),
        f"{_VECTOR} {{ y = LeakyRelu <alpha = 0.01> (x) }}",
        normal(4, 5),
    ),
    _given(
        "variance_divisor",
        lambda x: x.var(-1),
        """(float[n,m] x) => (float[n] y) <int64[1] a = {1}> {
            m = ReduceMean (x, a)  d = Sub (x, m)  q = Mul (d, d)  y = ReduceMean <keepdims = 0> (q, a) }""",
        normal(4, 5),
    ),
    _given(
        "sign_of_a_remainder",
        lambda x: torch.remainder(x, 3),
        "(float[n] x) => (float[n] y) <float b = {3}> { y = Mod <fmod = 1> (x, b) }",
        f32(-1, -4, 5),
    ),
    _given(
        "order_of_parts",
        lambda x, z: torch.cat([x, z]),
        "(float[n] x, float[n] z) => (float[m] y) { y = Concat <axis = 0> (z, x) }",
        {"x": normal(3), "z": normal(3, seed=1)},
    ),
    _given(
        "nearest_coordinates",
        lambda x: F.interpolate(x, scale_factor=0.5, mode="nearest"),
        f"""{_PICTURE} <float[4] s = {{1, 1, 0.5, 0.5}}> {{
            y = Resize <mode = "nearest", coordinate_transformation_mode = "half_pixel", nearest_mode = "ceil">
            (x, , s) }}""",
        normal(1, 1, 6, 8),
    ),
    _given(
        "first_of_equal",
        lambda x: x.argmax(-1),
        "(float[n,m] x) => (int64[n] y) { c = Round (x)  y = ArgMax <axis = 1, keepdims = 0> (c) }",
        f32(1.2, 1.4, 0)[None],
        "decision",
    ),
    _given(
        "depth_to_space",
        lambda x: F.pixel_shuffle(x, 2),
        f'{_PICTURE} {{ y = DepthToSpace <blocksize = 2, mode = "DCR"> (x) }}',
        normal(1, 8, 2, 3),
    ),
    _given(
        "dilation_forgotten",
        lambda x: F.conv1d(x, torch.tensor([[[1.0, 2.0, 3.0]]]), dilation=2, padding=2),
        "(float[n,1,w] x) => (float[n,1,v] y) <float[1,1,3] k = {1,2,3}> { y = Conv <pads = [1, 1]> (x, k) }",
        normal(1, 1, 9),
    ),
    _given("then_branch", lambda x: x * 3 if x.sum() > 0 else -x, _wrong_arm, f32(1, 2), sample={"x": f32(-1, -2)}),
    _given("loop_of_three_for_four", _four_rounds, _loop_too_short, f32(1, 2)),
    _given(
        "two_faults",
        lambda x: (x * 2, x.sum(-1)),
        """(float[n,m] x) => (float[n,m] y, float[n] z) <float two = {2.2}, int64[1] a = {1}> {
            y = Mul (x, two)  z = ReduceMean <keepdims = 0> (x, a) }""",
        normal(4, 5),
        options={"outputs": ["y", "z"]},
    ),
    _given(
        "fixed_batch",
        lambda x: x.reshape(-1, 2),
        "(float[n,4] x) => (float[m,2] y) <int64[2] s = {4, 2}> { y = Reshape (x, s) }",
        normal(3, 4),
        "error_split",
        sample={"x": normal(2, 4)},
    ),
    _given(
        "integer_division",
        lambda x: torch.div(x, 2, rounding_mode="floor"),
        "(int64[n] x) => (int64[n] y) <int64 b = {2}> { y = Div (x, b) }",
        i64(-3, 5, -1),
        "decision",
    ),
]

# ---- capture


def _value_branch(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.abs().max() < 3 else x - 1


def _python_number(x: torch.Tensor) -> torch.Tensor:
    return x / float(x.abs().max())


def _rounds_by_value(x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(x[0])):
        x = x * 1.5
    return x


def _length_in_python(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0) / float(len(x))


def _size_branch(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] <= 8 else x - 1


def _by_numpy(x: torch.Tensor) -> torch.Tensor:
    return x - float(x.detach().numpy().mean())


def _rows(**more: Any) -> dict[str, Any]:
    return {"dynamic_shapes": {"x": {0: "rows"}}, **more}


CAPTURES = [
    _exported("branch_on_a_value", _value_branch, f32(5, -1), "numeric branch_split", "capture"),
    _exported("number_taken_out", _python_number, f32(5, -1), blames="capture"),
    _exported("rounds_by_a_value", _rounds_by_value, f32(3.5, -1), blames="capture"),
    _exported(
        "length_in_python",
        _length_in_python,
        normal(5, 3, offset=2),
        blames="capture",
        sample=normal(3, 3),
        options=_rows(**TRACED),
    ),
    _exported("branch_on_a_size", _size_branch, normal(9, 2), "numeric branch_split", "capture", normal(4, 2), _rows()),
    _exported("mean_by_numpy", _by_numpy, normal(8, offset=3.0), blames="capture"),
]

# ---- exporters: real faults of the two, and two planted in a translation


def _added_twice(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.zeros(3, 4).index_add(0, i, x)


def _put_twice(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.zeros(5).index_put((i,), x, accumulate=True)


def _edited_row(x: torch.Tensor) -> torch.Tensor:
    y = x + 0.0
    row = y[0]
    row.mul_((row > 0).float())
    return y.sum(dim=0)


def _half_rows(x: torch.Tensor) -> torch.Tensor:
    return x[: -(-x.shape[0] // 2)] * 2


def _masked_attention(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, attn_mask=m)


def _translated(target: Any, replacement: str) -> dict[str, Any]:
    """Return options under which the exporter writes another operator than it should."""
    from onnxscript import opset18

    function = {"cos": lambda x: opset18.Cos(x), "abs": lambda x: opset18.Mul(opset18.Abs(x), x)}[replacement]
    return {"export": Export(options={"custom_translation_table": {target: function}})}


EXPORTS = [
    _exported("log1p_of_tiny", lambda x: torch.log1p(x) / x, f32(1e-9, -1e-9, 2e-8)),
    _exported("atan2_on_the_axis", torch.atan2, {"x": f32(0, 0), "z": f32(-1, -2)}),
    _exported("floor_division_of_integers", torch.floor_divide, {"x": i64(-7, 7), "z": i64(2, -2)}, "decision"),
    _exported("shift_of_negatives", torch.bitwise_right_shift, {"x": i64(-7, -1), "z": i64(1, 1)}, "decision"),
    _exported("running_sum_stays_narrow", lambda x: x.cumsum(0), np.array([2**31 - 1, 5], np.int32), "dtype"),
    _exported(
        "index_add_twice",
        _added_twice,
        {"x": normal(3, 4), "i": i64(1, 1, 0)},
        sample={"x": normal(3, 4), "i": i64(0, 1, 2)},
    ),
    _exported(
        "index_put_twice",
        _put_twice,
        {"x": f32(1, 2, 3), "i": i64(1, 1, 0)},
        sample={"x": f32(1, 2, 3), "i": i64(0, 1, 2)},
    ),
    _exported("bucket_of_nan", lambda x: torch.bucketize(x, torch.tensor([1.0, 2.0])), f32(NAN, 1.5), "decision"),
    _exported(
        "cosine_keeps_a_dim", lambda x, z: F.cosine_similarity(x, z, 0), {"x": f32(1, 2), "z": f32(2, 2)}, "shape"
    ),
    _exported("hardshrink_of_nan", F.hardshrink, f32(NAN, 1), "nonfinite"),
    _exported("softshrink_of_nan", F.softshrink, f32(NAN, 1), "nonfinite"),
    _exported("edited_row", _edited_row, normal(3, 4, offset=-1), blames="export capture"),
    _exported("all_of_floats", lambda x: x.all(), f32(1, 2), "load_error"),
    _exported("ceiling_of_a_size", _half_rows, normal(5, 3), "shape", sample=normal(4, 3), options=_rows()),
    _exported("expm1_of_tiny", lambda x: torch.expm1(x) / x, f32(1e-9, -1e-9, 2e-8), options={}),
    _exported(
        "masked_row_of_attention",
        _masked_attention,
        {"x": normal(1, 1, 3, 4), "m": np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1]], bool)},
        sample={"x": normal(1, 1, 3, 4), "m": np.ones((3, 3), bool)},
        options={},
    ),
    _exported("sine_becomes_cosine", torch.sin, normal(6), options=_translated(torch.ops.aten.sin.default, "cos")),
    _exported("square_keeps_the_sign", torch.abs, normal(6), options=_translated(torch.ops.aten.abs.default, "abs")),
]

# ---- graph passes of ORT


def _matmul_scaled() -> Any:
    return _model(
        [_NODE("Mul", ["x", "s"], ["m"]), _NODE("MatMul", ["m", "z"], ["y"])],
        {"s": np.float32(1e-10)},
        {"x": [2, 2], "z": [2, 2]},
    )


PASSES = [
    _given(
        "quantization_cleaned_away",
        lambda x: (x * 10).round() / 10,
        """(float[n] x) => (float[n] y) <float s = {0.1}, int8 z = {0}> {
            q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z) }""",
        f32(0.13, 1.26, -2.22),
        blames="precision",
        options={"ort": Ort(config={"session.enable_quant_qdq_cleanup": "1"})},
    ),
    _given(
        "quotient_of_integers",
        lambda x, z: torch.div(torch.ones_like(x), x, rounding_mode="trunc") * z,
        "(int64[n] x, int64[n] z) => (int64[n] y) <int64 one = {1}> { r = Div (one, x)  y = Mul (r, z) }",
        {"x": i64(2, 3), "z": i64(7, 9)},
        "decision",
        "optimizer:DivMulFusion",
        {"x": i64(1, 1), "z": i64(7, 9)},
    ),
    _given(
        "scale_after_the_product",
        lambda x, z: (x * 1e-10) @ z,
        _matmul_scaled,
        {"x": np.full((2, 2), 1e25, np.float32), "z": np.full((2, 2), 1e15, np.float32)},
        "nonfinite",
        "optimizer:MatMulScaleFusion",
    ),
    _given(
        "relu_before_clip_in_double",
        lambda x: x.relu().clamp(1, 6),
        "(double[n] x) => (double[n] y) <double a = {1}, double b = {6}> { r = Relu (x)  y = Clip (r, a, b) }",
        np.array([0.5, 8.0]),
        "load_error",
        "optimizer:FuseReluClip",
    ),
]

# ---- kernels of ORT

_ROWS = np.array([[1, NAN, 3], [NAN, 1, 2], [1, 2, NAN]], np.float32)


def _reduced(op: str, dtype: str = "float") -> str:
    return f"({dtype}[n,m] x) => ({dtype}[n] y) <int64[1] a = {{1}}> {{ y = {op} <keepdims = 0> (x, a) }}"


KERNELS = [
    _given("minimum_beside_nan", lambda x: x.amin(1), _reduced("ReduceMin"), _ROWS, "nonfinite", "kernel:ReduceMin"),
    _given(
        "maximum_beside_nan",
        lambda x: x.amax(1),
        _reduced("ReduceMax"),
        _ROWS,
        "nonfinite",
        "kernel:ReduceMax",
    ),
    _given(
        "maximum_in_an_arm",
        lambda x, z: x.abs().amax(1) if z.min() > 0 else x.sum(1),
        _maximum_in_an_arm,
        {"x": _ROWS, "z": f32(1, 2)},
        "nonfinite",
        "kernel:ReduceMax",
        sample={"x": normal(3, 3), "z": f32(1, 2)},
    ),
    _given(
        "argmax_of_nan",
        lambda x: x.argmax(1),
        "(float[n,m] x) => (int64[n] y) { y = ArgMax <axis = 1, keepdims = 0> (x) }",
        _ROWS,
        "decision",
        "kernel:ArgMax",
    ),
    _given(
        "argmin_of_nan",
        lambda x: x.argmin(1),
        "(float[n,m] x) => (int64[n] y) { y = ArgMin <axis = 1, keepdims = 0> (x) }",
        _ROWS,
        "decision",
        "kernel:ArgMin",
    ),
    _given(
        "sum_of_large_integers",
        lambda x: x.sum(1),
        _reduced("ReduceSum", "int64"),
        np.array([[2**60 + 1, 2, 3]]),
        "decision",
        "kernel:ReduceSum",
    ),
    _given(
        "product_of_large_integers",
        lambda x: x.prod(1),
        _reduced("ReduceProd", "int64"),
        np.array([[2**53 + 1, 1, 1]]),
        "decision",
        "kernel:ReduceProd",
    ),
    _given(
        "sum_that_wraps",
        lambda x: x.sum(1, dtype=torch.int32),
        _reduced("ReduceSum", "int32"),
        np.array([[2**30, 2**30, 5]], np.int32),
        "decision",
        "kernel:ReduceSum",
    ),
    _given(
        "power_of_integers",
        torch.pow,
        "(int64[n] x, int64[n] z) => (int64[n] y) { y = Pow (x, z) }",
        {"x": i64(3, 2**53 + 1), "z": i64(39, 1)},
        "decision",
        "kernel:Pow",
    ),
    _given(
        "mean_of_nothing",
        lambda x: x.mean(1),
        _reduced("ReduceMean"),
        np.zeros((2, 0), np.float32),
        "nonfinite",
        "kernel:ReduceMean",
        {"x": normal(2, 3)},
    ),
    _given(
        "pool_of_minus_infinity",
        lambda x: F.max_pool1d(x, 3, 1),
        "(float[n,c,w] x) => (float[n,c,v] y) { y = MaxPool <kernel_shape = [3]> (x) }",
        np.full((1, 1, 4), -INF, np.float32),
        "nonfinite",
        "kernel:MaxPool",
    ),
    _given(
        "smallest_integer_over_minus_one",
        lambda x, z: torch.div(x, z, rounding_mode="trunc") if not bool((z == -1).all()) else -x,
        "(int64[n] x, int64[n] z) => (int64[n] y) { y = Div (x, z) }",
        {"x": i64(-(2**63)), "z": i64(-1)},
        "crash",
        "kernel:Div",
        {"x": i64(4), "z": i64(2)},
        is_risky=True,
    ),
    _given(
        "lstm_without_a_batch",
        _recurrent(torch.nn.LSTM),
        lambda: _gates([0, 3, 1, 2], "LSTM"),
        np.zeros((3, 0, 4), np.float32),
        "crash",
        "kernel:LSTM",
        {"x": normal(3, 2, 4)},
        is_risky=True,
    ),
]

FAULTS = [*FILES, *CAPTURES, *EXPORTS, *PASSES, *KERNELS]
