"""Inside: what one operator may do within that a rounding of its result does not show.

The idea: some operators are formulas in which digits cancel, and are rounded as these; others add up so many terms
that rounding the terms says too little, since each partial sum is rounded as well; some read between elements, at
positions that are rounded; and some put values in an order, which for equal ones is nobody's promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

# Up to here sqrt(n) u is 45 u = 2.7e-6 of the terms in float32, no more than twice what assert_close allows: what the
# magnitudes would add where terms cancel is not worth a second sum.
LONG = 2048
# Up to here, four terms in a lane, the roundings of the partial sums come to no more than some of the result's own.
SHORT = 32
_OWN_ROUNDING = 2.0**-44  # of the largest value: float64's roundings of a mean, 1,000 values being added up
# Engines add in this many lanes at least (AVX2 holds 8 floats), so that a partial sum is that part of the magnitudes.
_LANES = 8.0


def euclidean_distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return distances as `aten::_euclidean_dist` computes them: sqrt of |x|^2 - 2 x y + |y|^2, which cancels."""
    squares = x.square().sum(-1, keepdim=True)
    others = y.square().sum(-1, keepdim=True)
    left = torch.cat([x * -2, squares, torch.ones_like(squares)], -1)
    right = torch.cat([y, torch.ones_like(others), others], -1)
    return left.matmul(right.mT).clamp_min(0).sqrt()


FORMULAS: dict[str, Callable[..., Any]] = {"_euclidean_dist": euclidean_distances}


def magnitude_of_long_sum(name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """Return the sum of the magnitudes of the terms of a long sum, None where the sum is short or no plain sum."""
    if terms_of(name, args) <= LONG or any(isinstance(x, torch.Tensor) and x.is_complex() for x in args):
        return None
    return _magnitude(func, args, kwargs)


def _magnitude(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor | None:
    absolute = [x.abs() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args]
    found: torch.Tensor = func(*absolute, **kwargs)
    return found if found.is_floating_point() else None


def adds_exactly(name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any], bits: int) -> bool:
    """Tell whether partial sums in any order fit `bits` of mantissa: counts, masks, small whole numbers.

    That the sum itself fits says little: a power of two of equal terms always does.
    """
    if name in SPREADS:
        largest = float(args[0].abs().max()) * terms_of(name, args)
    else:
        size = _magnitude(func, args, kwargs)
        if size is None or not size.numel():
            return True
        largest = float(size.max()) * (terms_of(name, args) if name == "mean" else 1)
    steps = [_step(x) for x in args if isinstance(x, torch.Tensor) and x.is_floating_point()]
    added = steps.pop(0) if name in _WITH_START else steps.pop() if name in _PRODUCTS and len(steps) > 2 else math.inf
    return largest <= min(math.prod(steps), added) * 2.0 ** (bits + 1)


SPREADS = frozenset({"var", "std", "var_mean", "std_mean"})  # around a mean, which is such a sum
_PRODUCTS = frozenset({"mm", "bmm", "mv", "dot", "convolution"})
_WITH_START = frozenset({"addmm", "baddbmm", "addmv"})


def _step(values: torch.Tensor) -> float:
    """Return the largest power of two of which all finite values are multiples, infinity where all are zero."""
    array = values.detach().numpy()
    fractions, exponents = np.frexp(array[np.isfinite(array) & (array != 0.0)])
    whole = np.ldexp(fractions, 53).astype(np.int64)
    return float(np.ldexp((whole & -whole).astype(np.float64), exponents - 53).min(initial=math.inf))


def spread_of_sum(total: torch.Tensor, magnitude: torch.Tensor | None, terms: int, unit: float) -> torch.Tensor:
    """Return how far partial sums' own roundings carry a sum, as one standard deviation.

    `magnitude`: the sum of the terms' magnitudes, None where the sum itself is to tell how large partial sums grow.

    n roundings of partial sums that grow evenly to S add up to u sqrt(n / 3) S (errors grow as sqrt(n): Higham and
    Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, 2019). S is the sum itself,
    or, where terms cancel, a lane's share of their magnitudes.
    """
    size = total.abs() if magnitude is None else torch.hypot(total, magnitude / _LANES)
    return unit * math.sqrt(terms / 3.0) * size


def terms_of(name: str, args: Sequence[Any]) -> int:
    """Return how many terms each element of a result adds up, 0 for operators that are not known here."""
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if name in ("mm", "bmm", "mv", "dot") and tensors:
        return int(tensors[0].shape[-1])
    if name in ("addmm", "baddbmm", "addmv") and len(tensors) > 1:
        return int(tensors[1].shape[-1])
    if name == "convolution":
        weight, is_transposed, groups = args[1], args[6], args[8]
        return int(weight.numel() // max(1, weight.shape[1] * groups if is_transposed else weight.shape[0]))
    if (name in ("sum", "mean") or name in SPREADS) and tensors:
        dims = args[1] if len(args) > 1 and not isinstance(args[1], bool) else None
        dims = [dims] if isinstance(dims, int) else list(dims or range(tensors[0].dim()))
        return math.prod(tensors[0].shape[d] for d in dims)
    if name == "cumsum" and tensors[0].dim():
        return int(tensors[0].shape[args[1]])
    return 0


def _top(draw: int, x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, indices = _ordered(draw, x, dim, descending=largest)
    return (values.narrow(dim, 0, k), indices.narrow(dim, 0, k)) if x.dim() else (values, indices)


def _sorted(draw: int, x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    return _ordered(0 if stable else draw, x, dim, descending=descending)


def _ordered(draw: int, x: torch.Tensor, dim: int, *, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort with equal values (NaN among them) in an order of the draw's: that of their places first, then at random."""
    if draw % 2 == 0 or not x.dim():
        values, indices = torch.sort(x, dim=dim, descending=descending, stable=True)
        return values, indices
    places = torch.from_numpy(np.random.default_rng(draw).permutation(x.shape[dim]))
    values, indices = torch.sort(x.index_select(dim, places), dim=dim, descending=descending, stable=True)
    return values, places[indices]


# of which torch promises no order among equals, by name: called with the draw's number in front
ORDERS: dict[str, Callable[..., Any]] = {"topk": _top, "sort": _sorted}


RESIZED = frozenset(
    {"upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"}
    | {"_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"}
)


def slopes(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[int, torch.Tensor]]:
    """Return the length of each side that a resize reads along, and how steep its elements are where it reads them.

    A position is a product with the scale, rounded in float32 at the size of the side: an ulp of 1,000 is as much as
    6e-5 of what two neighbours differ by.
    """
    x, found = args[0], []
    for dim in range(2, x.dim()):
        length = x.shape[dim]
        if length > 1:
            steps = x.diff(dim=dim).abs()
            steps = torch.where(steps.isfinite(), steps, 0.0)  # a NaN read with weight 0 hides nothing beside it
            after, before = steps.narrow(dim, length - 2, 1), steps.narrow(dim, 0, 1)
            steepest = torch.maximum(torch.cat([steps, after], dim), torch.cat([before, steps], dim))
            found.append((length, func(steepest, *args[1:], **kwargs)))
    return found


def without_own_rounding(name: str, out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return a variance or deviation with 0 where float64's own roundings made it: that of equal values."""
    least = _OWN_ROUNDING * float(x.abs().max()) if x.numel() else 0.0
    return torch.where(out.abs() <= (least**2 if name.startswith("var") else least), 0.0, out)


# operators that give (result, mean, 1 / deviation)
NORMS = frozenset({"native_layer_norm", "native_group_norm", "native_batch_norm"})


def shifted_norm(name: str, out: tuple[Any, ...], x: torch.Tensor, weight: torch.Tensor | None, off: float) -> Any:
    """Return a norm's results with its means off by a share of themselves, and the deviations as they are.

    Of equal values the deviation is met exactly by an engine whose mean is off by an ulp, and the other way round.
    """
    result, mean, inverse = out
    if not (mean.numel() and mean.dim() and mean.is_floating_point()):
        return out
    if name == "native_layer_norm":
        shift = mean * inverse * off
        shift = shift if weight is None else shift * weight
    elif name == "native_batch_norm":
        shift = (mean * inverse * off).reshape(1, -1, *[1] * (x.dim() - 2))
        shift = shift if weight is None else shift * weight.reshape(1, -1, *[1] * (x.dim() - 2))
    else:
        groups = mean.shape[1]
        shift = (mean * inverse * off).repeat_interleave(x.shape[1] // groups, 1)
        shift = shift if weight is None else shift * weight
        shift = shift.reshape(*shift.shape, *[1] * (x.dim() - 2))
    return result - shift, mean, inverse
