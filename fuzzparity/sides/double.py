"""Double: dispatch modes that run any module in float64, exactly or with every intermediate rounded at random.

The idea: one mode promotes each float that enters or leaves an operator to float64 and turns each request for a
narrower float into float64, so that a `.half()` or a float32 constant inside forward neither breaks nor rounds the
exact answer. Its children look at each result, or round it at random to the working precision (stochastic arithmetic:
Vignes, "A stochastic arithmetic for reliable scientific computation", 1993), which shows how far rounding alone may
move an answer. A module has hundreds of operators and evidence asks dozens of times, so what can be known of an
operator is looked up once, and results are rounded in numpy, whose calls on small arrays cost less than torch's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fuzzparity.case import Array
from fuzzparity.sides.inside import (
    FORMULAS,
    LONG,
    NORMS,
    ORDERS,
    RESIZED,
    SHORT,
    SPREADS,
    adds_exactly,
    magnitude_of_long_sum,
    shifted_norm,
    slopes,
    spread_of_sum,
    terms_of,
    without_own_rounding,
)
from fuzzparity.sides.noise import Noise


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# operators that move values and compute none: their results are exact in any precision
_MOVES = _names(
    "clone _to_copy copy copy_ cat stack index gather embedding index_select where masked_fill masked_fill_ fill "
    "fill_ zero_ zeros zeros_like ones ones_like full full_like empty empty_like arange new_zeros new_ones "
    "new_full new_empty constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d "
    "flip roll repeat tril triu max min amax amin maximum minimum relu relu_ clamp clamp_min clamp_max hardtanh "
    "neg abs sign floor ceil round trunc sort topk max_pool2d_with_indices max_pool3d_with_indices lift_fresh "
    "lift_fresh_copy scatter slice_scatter select_scatter index_put index_put_ _unsafe_view detach alias "
    "unfold_copy upsample_nearest2d upsample_nearest1d scalar_tensor masked_select nonzero take cummax cummin sgn "
    "copysign _local_scalar_dense "
)
# operators that add up many rounded terms inside: noise on their inputs stands for the roundings in between
_SUMS = _names(
    "mm addmm bmm baddbmm mv dot addmv addbmm matmul linear convolution _convolution mkldnn_convolution sum mean var "
    "std var_mean std_mean native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit_no_training "
    "_softmax _log_softmax cumsum cumprod prod logsumexp norm linalg_vector_norm avg_pool2d avg_pool3d "
    "_adaptive_avg_pool2d _adaptive_avg_pool3d _scaled_dot_product_flash_attention_for_cpu _fft_r2c _fft_c2c _fft_c2r "
    "_scaled_dot_product_fused_attention_overrideable scatter_add index_add scatter_reduce _embedding_bag "
    "upsample_bilinear2d upsample_bicubic2d upsample_linear1d grid_sampler_2d _cdist_forward "
    "_scaled_dot_product_attention_math cudnn_convolution slow_conv_transpose2d"
)
_WIDE = {
    dtype: torch.float64
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
} | {torch.complex64: torch.complex128, torch.complex32: torch.complex128}
_DEVIATIONS = frozenset({"var", "std"})
_NEVER_FLOAT = frozenset({int, float, bool, type(None), str, torch.device, torch.memory_format, torch.layout})


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """Hold what the modes need to know of one operator."""

    name: str  # without namespace and overload
    is_metadata_check: bool  # an exported program insists on the dtypes of its export
    reads_bits: bool  # view of a tensor's bits as another dtype
    is_empty: bool  # its result holds what memory held
    is_exact: bool  # moves values, or is a view
    is_sum: bool
    is_mutable: bool


_OPERATORS: dict[Any, Operator] = {}


def operator_of(func: Any) -> Operator:
    """Return what is known of an operator, looked up once."""
    name = func._schema.name.partition("::")[2]
    is_empty = name.startswith("empty")
    return _OPERATORS.setdefault(
        func,
        Operator(
            name=name,
            is_metadata_check=name.startswith("_assert_tensor_metadata"),
            reads_bits=func is torch.ops.aten.view.dtype,
            is_empty=is_empty,
            is_exact=is_empty or name in _MOVES or bool(getattr(func, "is_view", False)),
            is_sum=name in _SUMS,
            is_mutable=func._schema.is_mutable,
        ),
    )


def map_leaves(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a structure of tuples, lists and dicts with each leaf changed; the same object where nothing was.

    Operators take and give no other structures; torch's tree_map costs twenty times as much on them.
    """
    if isinstance(value, tuple | list):
        for place, item in enumerate(value):
            if type(item) in _NEVER_FLOAT:
                continue
            changed = map_leaves(change, item)
            if changed is not item:
                rest = [*value[:place], changed, *(map_leaves(change, one) for one in value[place + 1 :])]
                return rest if isinstance(value, list) else tuple(rest)
        return value
    if isinstance(value, dict):
        changed_items = {key: map_leaves(change, item) for key, item in value.items()}
        return changed_items if any(changed_items[key] is not value[key] for key in value) else value
    return value if type(value) in _NEVER_FLOAT else change(value)


def promoted(value: Any) -> Any:
    """Return a tensor of narrow floats in float64 (complex: complex128), a narrow dtype as the wide one."""
    if isinstance(value, torch.Tensor):
        wide = _WIDE.get(value.dtype)
        return value.to(wide) if wide is not None and not value.is_quantized else value
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value


@contextlib.contextmanager
def default_float64() -> Iterator[None]:
    """Let factories make float64: a float32 buffer made inside forward would lose what is written through its views."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Float64Mode(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Promote whatever enters or leaves an operator to float64; `has_intervened` once that changed anything.

    `promotes` may be set to false where nothing narrow is known to be met: to look for it costs a fifth of a run.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.has_intervened = False
        self.promotes = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do without torch's wrapper around the method below, which costs as much; the caller forbids compiling."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        operator = _OPERATORS.get(func)
        if operator is None:
            if isinstance(func, torch._ops.HigherOrderOperator):
                self.has_intervened = True
                return self._higher_order(func, args)
            operator = operator_of(func)
        if operator.is_metadata_check:
            self.has_intervened = True
            return None
        kwargs = kwargs or {}
        if not self.promotes:
            return self.finish(operator, func, args, kwargs, func(*args, **kwargs))
        wide_args, wide_kwargs = map_leaves(promoted, args), map_leaves(promoted, kwargs) if kwargs else kwargs
        if operator.reads_bits:
            raise TypeError("forward reads the bits of a float as another dtype, which float64 does not have")
        out = func(*wide_args, **wide_kwargs)
        wide_out = map_leaves(promoted, out)
        if wide_args is not args or wide_kwargs is not kwargs or wide_out is not out:
            self.has_intervened = True
        return self.finish(operator, func, wide_args, wide_kwargs, wide_out)

    def finish(self, operator: Operator, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
        """Return what the operator is to give; the exact answer here."""
        return out

    def see(self, value: torch.Tensor) -> None:
        """Look at one tensor that enters the module."""

    def _higher_order(self, func: Any, args: Sequence[Any]) -> Any:
        """Run control flow of torch.cond and while_loop in Python, under this mode."""
        name = func.name()
        with self:
            if name == "cond":
                predicate, if_true, if_false, operands = args
                return (if_true if bool(predicate) else if_false)(*operands)
            if name == "while_loop":
                condition, body, carried, more = args
                while bool(condition(*carried, *more)):
                    carried = tuple(body(*carried, *more))
                return carried
        raise NotImplementedError(f"the float64 referee cannot run the higher-order operator {name}")


class PeakMode(Float64Mode):
    """Remember the largest finite magnitude seen."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0.0

    def see(self, value: Any) -> Any:
        """Take a value into account, and return it."""
        if _is_double(value) and not value.is_complex():
            array = _as_numpy(value)
            largest = max(float(np.maximum.reduce(array, axis=None)), -float(np.minimum.reduce(array, axis=None)))
            if not math.isfinite(largest):
                largest = float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))
            self.peak = max(self.peak, largest)
        return value

    def finish(self, operator: Operator, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
        """Look at each result."""
        return out if operator.is_empty else map_leaves(self.see, out)


# Vector libraries give these within a few ulps, not within half of one: measured against float64, ONNX Runtime's
# sigmoid is off by 1.8, its tanh by 5, torch's exp and log by 1 (float32); two ulps are what both usually keep to.
_APPROXIMATED = frozenset(
    {
        *(
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "logsumexp",
            "pow",
            "rsqrt",
            "_softmax",
            "_log_softmax",
        ),
        *("sigmoid", "log_sigmoid_forward", "tanh", "erf", "erfc", "gelu", "silu", "mish", "softplus", "elu"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh"),
    }
)


class RoundingMode(Float64Mode):
    """Round each computed float at random to `bits` of mantissa; a value that fits stays as it is.

    `times`: by how many roundings each is off; what fits stays as it is even then. `weights`: addresses of memory that
    the module holds. What is read there again and again is off by the same in one run: a recurrent model reads its
    weights at every step, and to move them anew each time took half of a run. `bits_of`: tells by the name of each
    operator, in their order, to how many bits its result is rounded instead; None: to `bits`.
    """

    def __init__(
        self,
        bits: int,
        draw: int,
        times: float = 1.0,
        weights: frozenset[int] = frozenset(),
        bits_of: Callable[[str], int | None] | None = None,
    ) -> None:
        super().__init__()
        self._weights = weights
        self._moved: dict[tuple[Any, ...], torch.Tensor] = {}
        self._working_bits = bits
        self._bits_of = bits_of
        self._draw = draw
        self._noises = {bits: Noise(bits, draw, times)}
        self._times = times
        self._is_inside = False  # an operator that is computed by others
        self._use(bits)
        self.operators = 0  # that were met

    def _use(self, bits: int) -> None:
        """Round to a number of bits from now on."""
        if bits not in self._noises:
            self._noises[bits] = Noise(bits, self._draw, self._times)
        self._bits, self._noise = bits, self._noises[bits]
        self._mask = self._noise.mask

    def finish(self, operator: Operator, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
        """Round the results of an operator that computes; those of a sum from inputs that are off by half an ulp."""
        self.operators += 1
        if self._bits_of is not None and not self._is_inside:
            self._use(self._bits_of(operator.name) or self._working_bits)
        if operator.name in ORDERS and not operator.is_mutable:
            return ORDERS[operator.name](self._draw, *args, **kwargs)
        if operator.is_exact or not self._mask:
            return out
        formula = FORMULAS.get(operator.name)
        if formula is not None:
            was_inside, self._is_inside = self._is_inside, True
            try:
                with self:
                    return formula(*args, **kwargs)
            finally:
                self._is_inside = was_inside
        if operator.is_mutable:
            return map_leaves(self._round_in_place, out)
        if operator.is_sum:
            size = magnitude_of_long_sum(operator.name, func, args, kwargs)
            if operator.name in _DEVIATIONS and _is_double(out) and not self._draw & 2:
                return self._rounded(without_own_rounding(operator.name, out, args[0]))
            if operator.name in NORMS and self._draw & 1 and self._noise.is_fine:
                to = 2.0 * self._noise.unit * float(self._noise.signs(()))
                weight = args[2] if operator.name == "native_layer_norm" else args[1]
                return map_leaves(self._rounded, shifted_norm(operator.name, out, args[0], weight, to))
            is_exact = self._fits(out) and self._fits(size)  # then it was plausibly computed exactly (a count, a mask)
            is_off = is_exact and self._is_off_by_order(operator.name, func, args, kwargs)
            if is_off or not is_exact:
                out = func(*map_leaves(self._noisy, args), **map_leaves(self._noisy, kwargs))
                out = self._with_partial_sums(out, size, self._rounded_terms(out, operator.name, args, is_off=is_off))
        if operator.name in RESIZED and _is_double(out):
            for length, slope in slopes(func, args, kwargs):  # in halves as well, positions are held in float32
                off = self._noise.position_unit * length * self._noise.signs(tuple(slope.shape))
                out = out + slope * torch.from_numpy(off)
        if operator.name in _APPROXIMATED:
            out = map_leaves(self._approximated, out)
        return map_leaves(self._rounded, out)

    def _approximated(self, value: Any) -> Any:
        """Return the result of a function that no library rounds correctly, off by two ulps where it does not fit."""
        if not _is_double(value) or value.is_complex():
            return value
        array = _as_numpy(value)
        off = array * (1.0 + 4.0 * self._noise.unit * self._noise.signs(array.shape))
        return torch.from_numpy(np.where(array.view(np.int64) & self._mask, off, array))

    def _is_off_by_order(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Tell whether this draw takes a sum that fits for one that was rounded on the way.

        An engine may meet it exactly and another not, as the mean of equal values; and a variance meets it apart from
        the mean beside it. The draws take their turns.
        """
        is_turn = self._draw & (2 if name in SPREADS else 1)
        if not is_turn or not self._noise.is_fine or terms_of(name, args) <= 2:
            return False
        return not adds_exactly(name, func, args, kwargs, self._bits)

    def _rounded_terms(self, out: Any, name: str, args: Sequence[Any], *, is_off: bool) -> int:
        """Return how many terms a plain sum adds up, 0 where the roundings of its partial sums do not show.

        Engines add up halves in float32, so that of a sum of usual length nothing is left to see in their precision.
        """
        is_plain = _is_double(out) and not out.is_complex() and name not in SPREADS
        terms = terms_of(name, args) if is_plain else 0
        return terms if is_off or terms > (SHORT if self._noise.is_fine else LONG) else 0

    def _with_partial_sums(self, out: Any, size: torch.Tensor | None, terms: int) -> Any:
        """Return a sum off by what the roundings of its partial sums may add up to."""
        if not terms:
            return out
        spread = spread_of_sum(out, size, terms, self._noise.unit)
        return out + spread * torch.from_numpy(self._noise.signs(tuple(out.shape)))

    def _fits(self, value: Any) -> bool:
        """Tell whether a result needs no rounding."""
        if isinstance(value, tuple | list):
            return all(map(self._fits, value))
        if not _is_double(value):
            return True
        return self._noise.fits(_as_numpy(_as_real(value)))

    def _round_in_place(self, value: Any) -> Any:
        if _is_double(value):
            value.copy_(self._rounded(value))
        return value

    def _rounded(self, value: Any) -> Any:
        if not _is_double(value):
            return value
        if value.is_complex():
            return torch.view_as_complex(self._rounded(_as_real(value)))
        return torch.from_numpy(self._noise.rounded(_as_numpy(value)))

    def _noisy(self, value: Any) -> Any:
        if not _is_double(value):
            return value
        address = value.untyped_storage().data_ptr()
        if address not in self._weights:
            return self._moved_by_noise(value)
        key = (address, value.storage_offset(), value.shape, value.stride(), value.dtype, value._version, self._bits)
        moved = self._moved.get(key)
        if moved is None:
            moved = self._moved[key] = self._moved_by_noise(value)
        return moved

    def _moved_by_noise(self, value: torch.Tensor) -> torch.Tensor:
        factors = self._noise.factors(tuple(value.shape))
        if value.is_complex():
            return value * torch.from_numpy(factors)
        return torch.from_numpy(_as_numpy(value) * factors)


def _is_double(value: Any) -> bool:
    """Tell whether a value is a tensor of doubles (real or complex) that numpy can look at."""
    return (
        isinstance(value, torch.Tensor)
        and value.dtype in (torch.float64, torch.complex128)
        and value.layout is torch.strided
        and value.is_cpu
        and value.numel() > 0
    )


def _as_real(value: torch.Tensor) -> torch.Tensor:
    """Return a complex tensor as pairs of reals, a real one as it is."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _as_numpy(value: torch.Tensor) -> Array:
    """Return the memory of a real tensor as an array."""
    value = value.detach()
    array: Array = (value.resolve_neg() if value.is_neg() else value).numpy()
    return array
