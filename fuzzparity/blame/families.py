"""Families: which ONNX operators stand for a torch operator, the one that carries its meaning first.

The idea: an exporter writes one torch operator as a pattern, of which most nodes only move, shape or choose. The node
that does the work is named: by what is known of the operator, else by how alike the names are, else by what does more
than move. After onnxscript's torchlib and torch's own symbolic functions, which write these patterns.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

# how much an operator says of what a pattern of several is for: the more, the more it does of its own
MOVING = frozenset({"Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Flatten"})
_CHOOSING = frozenset(
    {"Concat", "Shape", "Expand", "Constant", "ConstantOfShape", "Gather", "Slice", "Split", "Size", "Range", "Pad"}
)
_TESTING = frozenset({"IsNaN", "IsInf", "And", "Or", "Not", "Equal", "Less", "Greater", "Where", "NonZero"})
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Max", "Min", "Abs", "Sign"})
_PRODUCTS = frozenset({"MatMul", "Gemm"})
_OWN_WEIGHT = 4  # of every other operator
DOES_OWN = 2  # from this weight on an operator computes new numbers

# torch's name without namespace, overload and trailing "_" -> ONNX operators
_FAMILIES: dict[str, tuple[str, ...]] = {
    "floor_divide": ("Div", "Floor"),
    "floordiv": ("Div", "Floor"),
    "div": ("Div",),
    "true_divide": ("Div",),
    "truediv": ("Div",),
    "remainder": ("Mod", "Div"),
    "fmod": ("Mod",),
    "mod": ("Mod",),
    "add": ("Add",),
    "sub": ("Sub",),
    "rsub": ("Sub",),
    "mul": ("Mul",),
    "neg": ("Neg",),
    "pow": ("Pow",),
    "rsqrt": ("Sqrt", "Reciprocal"),
    "reciprocal": ("Reciprocal",),
    "square": ("Mul",),
    "addcmul": ("Mul", "Add"),
    "addcdiv": ("Div", "Add"),
    "lerp": ("Add",),
    "log1p": ("Log",),
    "log2": ("Log",),
    "log10": ("Log",),
    "expm1": ("Exp",),
    "exp2": ("Pow", "Exp"),
    "atan2": ("Atan",),
    "trunc": ("Floor", "Cast"),
    "frac": ("Floor", "Sub"),
    "logsumexp": ("ReduceLogSumExp", "Log"),
    "logaddexp": ("Log",),
    "softplus": ("Softplus",),
    "hardtanh": ("Clip",),
    "relu6": ("Clip",),
    "clamp": ("Clip", "Max", "Min"),
    "clamp_min": ("Max", "Clip"),
    "clamp_max": ("Min", "Clip"),
    "maximum": ("Max",),
    "minimum": ("Min",),
    "fmax": ("Max",),
    "fmin": ("Min",),
    "silu": ("Sigmoid", "Mul", "Swish"),
    "gelu": ("Gelu", "Erf", "Tanh"),
    "mish": ("Mish", "Tanh"),
    "hardswish": ("HardSwish", "HardSigmoid", "Clip"),
    "softmax": ("Softmax", "ReduceSum"),
    "_softmax": ("Softmax", "ReduceSum"),
    "_safe_softmax": ("Softmax",),
    "log_softmax": ("LogSoftmax", "Softmax"),
    "_log_softmax": ("LogSoftmax", "Softmax"),
    "scaled_dot_product_attention": ("Attention", "Softmax"),
    "_scaled_dot_product_flash_attention_for_cpu": ("Attention", "Softmax"),
    "_scaled_dot_product_attention_math": ("Attention", "Softmax"),
    "mm": ("MatMul", "Gemm"),
    "bmm": ("MatMul",),
    "matmul": ("MatMul", "Gemm", "Einsum"),
    "mv": ("MatMul",),
    "dot": ("MatMul",),
    "baddbmm": ("MatMul", "Add"),
    "addmm": ("Gemm", "MatMul", "Add"),
    "linear": ("Gemm", "MatMul", "Add"),
    "einsum": ("Einsum", "MatMul"),
    "convolution": ("Conv", "ConvTranspose"),
    "native_layer_norm": ("LayerNormalization", "ReduceMean"),
    "layer_norm": ("LayerNormalization", "ReduceMean"),
    "native_group_norm": ("GroupNormalization", "InstanceNormalization"),
    "group_norm": ("GroupNormalization", "InstanceNormalization"),
    "instance_norm": ("InstanceNormalization",),
    "native_batch_norm": ("BatchNormalization",),
    "_native_batch_norm_legit_no_training": ("BatchNormalization",),
    "batch_norm": ("BatchNormalization",),
    "rms_norm": ("RMSNormalization", "ReduceMean"),
    "mean": ("ReduceMean",),
    "sum": ("ReduceSum",),
    "prod": ("ReduceProd",),
    "amax": ("ReduceMax",),
    "amin": ("ReduceMin",),
    "max": ("ReduceMax", "ArgMax", "TopK", "Max"),
    "min": ("ReduceMin", "ArgMin", "TopK", "Min"),
    "any": ("ReduceMax", "ReduceSum"),
    "all": ("ReduceMin", "ReduceSum"),
    "var": ("ReduceMean", "ReduceSum"),
    "std": ("Sqrt", "ReduceMean"),
    "var_mean": ("ReduceMean",),
    "linalg_vector_norm": ("ReduceL2", "ReduceL1", "ReduceSum"),
    "norm": ("ReduceL2", "ReduceL1", "ReduceSum"),
    "argmax": ("ArgMax",),
    "argmin": ("ArgMin",),
    "topk": ("TopK",),
    "sort": ("TopK",),
    "argsort": ("TopK",),
    "cumsum": ("CumSum",),
    "cumprod": ("CumProd", "Loop"),
    "index": ("GatherND", "Gather"),
    "index_select": ("Gather",),
    "select": ("Gather", "Slice"),
    "embedding": ("Gather",),
    "embedding_bag": ("Gather", "Loop"),
    "gather": ("GatherElements",),
    "take_along_dim": ("GatherElements",),
    "scatter": ("ScatterElements",),
    "scatter_add": ("ScatterElements",),
    "scatter_reduce": ("ScatterElements",),
    "index_add": ("ScatterElements", "ScatterND"),
    "index_copy": ("ScatterElements", "ScatterND"),
    "index_fill": ("ScatterElements", "ScatterND"),
    "index_put": ("ScatterND", "ScatterElements"),
    "fill": ("ScatterND", "Expand"),
    "zero": ("ScatterND", "Expand"),
    "copy": ("ScatterND",),
    "masked_scatter": ("ScatterND", "ScatterElements"),
    "select_scatter": ("ScatterElements", "ScatterND"),
    "slice_scatter": ("ScatterND", "ScatterElements"),
    "masked_fill": ("Where",),
    "where": ("Where",),
    "nonzero": ("NonZero",),
    "slice": ("Slice",),
    "narrow": ("Slice",),
    "flip": ("Slice",),
    "roll": ("Concat", "Slice"),
    "stack": ("Concat",),
    "cat": ("Concat",),
    "repeat": ("Tile",),
    "repeat_interleave": ("Tile", "Expand"),
    "constant_pad_nd": ("Pad",),
    "reflection_pad1d": ("Pad",),
    "reflection_pad2d": ("Pad",),
    "replication_pad2d": ("Pad",),
    "tril": ("Trilu",),
    "triu": ("Trilu",),
    "arange": ("Range",),
    "one_hot": ("OneHot",),
    "unfold": ("Gather", "Scan"),
    "im2col": ("Gather",),
    "col2im": ("Col2Im",),
    "permute": ("Transpose",),
    "transpose": ("Transpose",),
    "t": ("Transpose",),
    "_to_copy": ("Cast",),
    "to": ("Cast",),
    "grid_sampler_2d": ("GridSample",),
    "grid_sampler": ("GridSample",),
    "pixel_shuffle": ("DepthToSpace",),
    "pixel_unshuffle": ("SpaceToDepth",),
    "multinomial": ("Multinomial",),
    "nms": ("NonMaxSuppression",),
    "lstm": ("LSTM",),
    "gru": ("GRU",),
    "rnn_tanh": ("RNN",),
    "eq": ("Equal",),
    "ne": ("Equal", "Not"),
    "lt": ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not"),
    "le": ("LessOrEqual", "Less", "Greater", "GreaterOrEqual", "Not"),
    "gt": ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not"),
    "ge": ("GreaterOrEqual", "Greater", "Less", "LessOrEqual", "Not"),
    "bitwise_and": ("BitwiseAnd", "And"),
    "bitwise_or": ("BitwiseOr", "Or"),
    "bitwise_xor": ("BitwiseXor", "Xor"),
    "bitwise_not": ("BitwiseNot", "Not"),
    "logical_and": ("And",),
    "logical_or": ("Or",),
    "logical_xor": ("Xor",),
    "logical_not": ("Not",),
    "_fft_r2c": ("DFT",),
    "_fft_c2c": ("DFT",),
    "_fft_c2r": ("DFT",),
    "stft": ("STFT",),
    "quantize_per_tensor": ("QuantizeLinear",),
    "dequantize_per_tensor": ("DequantizeLinear",),
    "cond": ("If",),
    "while_loop": ("Loop",),
    "scan": ("Scan",),
}
_BY_START = (  # of what comes in many spellings
    ("upsample", ("Resize",)),
    ("_upsample", ("Resize",)),
    ("interpolate", ("Resize",)),
    ("adaptive_avg_pool", ("AveragePool", "GlobalAveragePool", "ReduceMean")),
    ("_adaptive_avg_pool", ("AveragePool", "GlobalAveragePool", "ReduceMean")),
    ("adaptive_max_pool", ("MaxPool", "GlobalMaxPool")),
    ("avg_pool", ("AveragePool",)),
    ("max_pool", ("MaxPool",)),
    ("conv_transpose", ("ConvTranspose",)),
    ("conv", ("Conv",)),
)


def short_name(target: str) -> str:
    """Return "floor_divide" of "torch.ops.aten.floor_divide.default", with or without what comes before "aten"."""
    parts = target.removeprefix("torch.ops.").split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return name.rstrip("_") or name


def family(target: str) -> tuple[str, ...]:
    """Return the ONNX operators that stand for a torch operator, the one that carries its meaning first; maybe none."""
    name = short_name(target)
    known = _FAMILIES.get(name)
    if known is not None:
        return known
    return next((ops for start, ops in _BY_START if name.startswith(start)), ())


def is_akin(target: str, op: str) -> bool:
    """Tell whether an ONNX operator may stand for a torch operator: of its family, or named as it is."""
    known = family(target)
    return op in known if known else likeness(target, op) >= 3


def likeness(target: str, op: str) -> int:
    """Return how many letters two operators' names have in common in one piece, 0 where neither begins with it."""
    name, other = short_name(target).strip("_").replace("_", "").lower(), op.lower()
    match = difflib.SequenceMatcher(None, name, other, autojunk=False).find_longest_match()
    whole = match.size == len(other) or match.size == len(name)
    return match.size if whole or (match.a == 0 and match.b == 0) else 0


def weight(op: str) -> int:
    """Return how much an operator does of its own: 0 moves values, 4 computes new ones from many."""
    if op in MOVING or op in _CHOOSING:
        return 0
    if op in _TESTING:
        return 1
    if op in _ELEMENTWISE:
        return 2
    return 3 if op in _PRODUCTS else _OWN_WEIGHT


def main_place(target: str, ops: Sequence[str]) -> int:
    """Return the place in a pattern's operators of the one that carries the meaning of a torch operator.

    Of several of its family, the last; where none is, the one named most like it, else the last that does most.
    """
    for one in family(target):
        if one in ops:
            return len(ops) - 1 - list(reversed(ops)).index(one)
    alike = max(range(len(ops)), key=lambda place: (likeness(target, ops[place]), place))
    if target and likeness(target, ops[alike]) >= 3:  # letters in common at the start: selu and Selu
        return alike
    return max(range(len(ops)), key=lambda place: (weight(ops[place]), place))
