"""Referee: the target's module in float64, exactly, or with every intermediate rounded at random.

The idea: one dispatch mode over a copy of the module promotes each float that enters an operator to float64 and turns
each request for a narrower float into float64, so that a `.half()` or a float32 constant inside forward neither
breaks nor rounds the exact answer. The same mode can round each result at random to the working precision (stochastic
arithmetic: Vignes, "A stochastic arithmetic for reliable scientific computation", 1993), which shows how far rounding
alone may move an answer.
"""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fuzzparity.case import Array, Case, is_float
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.tensors import flatten_outputs, to_tensor
from fuzzparity.sides.torch_side import StateGuard

MANTISSA_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7, "float8_e4m3fn": 3, "float8_e5m2": 2}


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


class Referee:
    """Answer in float64 for the oracle. `missing` says why there is no answer; it is empty while there is one."""

    def __init__(self, loaded: LoadedTarget, working_dtype: str = "float32") -> None:
        self.missing = ""
        self._bits = MANTISSA_BITS.get(working_dtype, 23)
        self._module: Callable[..., Any] | None = None
        try:
            with warnings.catch_warnings():  # torch's own deprecations while it unpacks a program
                warnings.simplefilter("ignore")
                self._module = _in_double(loaded)
        except Exception as error:
            self.missing = _reason("the module cannot be copied to float64", error)
        self._state = StateGuard(self._module)

    def exact(self, case: Case) -> tuple[Array, ...] | None:
        """Return the outputs in float64 (integers stay integers), or None when the referee cannot run."""
        return self._run(case, _Float64Mode())

    def rounded(self, case: Case, draw: int) -> tuple[Array, ...] | None:
        """Return the outputs of one run with each intermediate rounded at random; one `draw`, one answer."""
        return self._run(case, _RoundingMode(self._bits, draw))

    def peak(self, case: Case) -> float:
        """Return the largest finite magnitude of any float intermediate, inputs included; 0.0 when it cannot run."""
        mode = _PeakMode()
        outputs = self._run(case, mode)
        return mode.peak if outputs is not None else 0.0

    def _run(self, case: Case, mode: _Float64Mode) -> tuple[Array, ...] | None:
        if self._module is None:
            return None
        try:
            tensors = [to_tensor(_widened(array)) for array in case.inputs.values()]
            for tensor in tensors:
                mode.see(tensor)
            with torch.no_grad(), _default_float64(), mode:
                result = self._module(*tensors)
            outputs = flatten_outputs(result)
        except (Exception, SystemExit) as error:
            self.missing = _reason("the module does not run in float64", error)
            return None
        finally:
            self._state.restore()
        self.missing = ""
        return tuple(array.astype(np.float64) if is_float(array.dtype) else array for array in outputs)


def _reason(what: str, error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{what}: {type(error).__name__}{': ' + text[0][:200] if text else ''}"


def _widened(array: Array) -> Array:
    if is_float(array.dtype):
        return array.astype(np.float64)
    return array.astype(np.complex128) if array.dtype.kind == "c" else array


def _in_double(loaded: LoadedTarget) -> Any:
    """Return a copy of the module with every float parameter, buffer and tensor attribute in float64."""
    if isinstance(loaded.target.module, torch.export.ExportedProgram):
        # its guards compare dtypes and sizes with those of the export
        module: Any = loaded.target.module.module(check_guards=False)
    else:
        module = loaded.module
    if not isinstance(module, torch.nn.Module):
        return module if isinstance(module, type(_in_double)) else copy.deepcopy(module)
    with torch.no_grad():
        own = copy.deepcopy(module).double()
    if isinstance(own, torch.jit.ScriptModule):
        return own
    for part in own.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor | list | tuple) and not name.startswith("_"):
                vars(part)[name] = _pytree.tree_map(_promoted, value)
    return own


def _promoted(value: Any) -> Any:
    """Return a tensor of narrow floats in float64 (complex: complex128), a narrow dtype as the wide one."""
    if isinstance(value, torch.Tensor):
        wide = _WIDE.get(value.dtype)
        return value.to(wide) if wide is not None and not value.is_quantized else value
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value


_WIDE = {
    dtype: torch.float64
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
} | {torch.complex64: torch.complex128, torch.complex32: torch.complex128}


@contextlib.contextmanager
def _default_float64() -> Iterator[None]:
    """Let factories make float64: a float32 buffer made inside forward would lose what is written through its views."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _Float64Mode(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Promote whatever enters or leaves an operator to float64."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            return self._higher_order(func, args, kwargs)
        name = func._schema.name.partition("::")[2]
        if name.startswith("_assert_tensor_metadata"):  # an exported program insists on the dtypes of its export
            return None
        args, kwargs = _pytree.tree_map(_promoted, (tuple(args), kwargs))
        if func is torch.ops.aten.view.dtype:
            raise TypeError("forward reads the bits of a float as another dtype, which float64 does not have")
        out = _pytree.tree_map(_promoted, func(*args, **kwargs))
        return self.finish(func, name, args, kwargs, out)

    def finish(self, func: Any, name: str, args: Any, kwargs: dict[str, Any], out: Any) -> Any:
        """Return what the operator is to give; the exact answer here."""
        return out

    def see(self, value: Any) -> None:
        """Look at one tensor that enters the module."""

    def _higher_order(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
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


class _PeakMode(_Float64Mode):
    """Remember the largest finite magnitude seen."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0.0

    def see(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.dtype == torch.float64 and value.numel():
            largest = float(torch.nan_to_num(value.abs(), nan=0.0, posinf=0.0).max())
            self.peak = max(self.peak, largest if math.isfinite(largest) else 0.0)

    def finish(self, func: Any, name: str, args: Any, kwargs: dict[str, Any], out: Any) -> Any:
        if not name.startswith("empty"):  # holds what memory held
            for leaf in _pytree.tree_leaves(out):
                self.see(leaf)
        return out


class _RoundingMode(_Float64Mode):
    """Round each computed float at random to `bits` of mantissa; a value that fits stays as it is."""

    def __init__(self, bits: int, draw: int) -> None:
        super().__init__()
        self._mask = (1 << (52 - bits)) - 1
        self._unit = 2.0 ** -(bits + 1)
        self._generator = torch.Generator().manual_seed(draw)

    def finish(self, func: Any, name: str, args: Any, kwargs: dict[str, Any], out: Any) -> Any:
        if not self._mask or name in _MOVES or name.startswith("empty") or getattr(func, "is_view", False):
            return out
        schema = func._schema
        if schema.is_mutable:
            for leaf in _pytree.tree_leaves(out):
                if _is_double(leaf) or _is_complex(leaf):
                    leaf.copy_(self._rounded(leaf))
            return out
        rounded = _pytree.tree_map(self._rounded, out)
        if name in _SUMS and not _same(rounded, out):
            noisy_args, noisy_kwargs = _pytree.tree_map(self._noisy, (tuple(args), kwargs))
            return _pytree.tree_map(self._rounded, func(*noisy_args, **noisy_kwargs))
        return rounded

    def _rounded(self, value: Any) -> Any:
        if _is_complex(value):
            return torch.view_as_complex(self._rounded(torch.view_as_real(value.resolve_conj())))
        if not _is_double(value) or value.layout != torch.strided:
            return value
        bits = value.contiguous().view(torch.int64)
        low = torch.randint(0, self._mask + 1, bits.shape, generator=self._generator, dtype=torch.int64)
        rounded = ((bits + low) & ~self._mask).view(torch.float64)
        # infinities have no low bits and stay; a NaN must not be carried into one
        return torch.where(torch.isnan(value), value, rounded)

    def _noisy(self, value: Any) -> Any:
        if not _is_double(value) and not _is_complex(value):
            return value
        signs = torch.randint(0, 2, value.shape, generator=self._generator, dtype=torch.int64) * 2 - 1
        return value * (1.0 + self._unit * signs)


def _is_double(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64 and value.numel() > 0


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.complex128 and value.numel() > 0


def _same(a: Any, b: Any) -> bool:
    """Tell whether rounding changed nothing: such a result was plausibly computed exactly (a count, a mask)."""
    pairs = zip(_pytree.tree_leaves(a), _pytree.tree_leaves(b), strict=True)
    return all(_real_equal(x, y) for x, y in pairs)


def _real_equal(x: Any, y: Any) -> bool:
    if _is_complex(x):
        x, y = torch.view_as_real(x.resolve_conj()), torch.view_as_real(y.resolve_conj())
    return not _is_double(x) or bool(torch.equal(x.nan_to_num(), y.nan_to_num()))
