"""Inside: roundings within one operator that a rounding of its result does not show.

The idea: some operators are formulas in which digits cancel, and are rounded as these; others add up so many terms
that rounding the terms says too little, since each partial sum is rounded as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

# Up to here sqrt(n) u is 45 u = 2.7e-6 of the terms in float32, no more than twice what assert_close allows.
LONG = 2048
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
    absolute = [x.abs() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args]
    found: torch.Tensor = func(*absolute, **kwargs)
    return found if found.is_floating_point() else None


def spread_of_long_sum(total: torch.Tensor, magnitude: torch.Tensor, terms: int, unit: float) -> torch.Tensor:
    """Return how far partial sums' own roundings carry a sum, as one standard deviation.

    n roundings of partial sums that grow evenly to S add up to u sqrt(n / 3) S (errors grow as sqrt(n): Higham and
    Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, 2019). S is the sum itself,
    or, where terms cancel, a lane's share of their magnitudes.
    """
    return unit * math.sqrt(terms / 3.0) * torch.hypot(total, magnitude / _LANES)


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
    if name in ("sum", "mean") and tensors:
        dims = args[1] if len(args) > 1 else None
        dims = [dims] if isinstance(dims, int) else list(dims or range(tensors[0].dim()))
        return math.prod(tensors[0].shape[d] for d in dims)
    if name == "cumsum" and tensors[0].dim():
        return int(tensors[0].shape[args[1]])
    return 0
