"""Bound sums: the rules of operators that add up many terms, and of those made of such sums.

The idea: each is written here as the formula that engines share (a two-pass variance, a shifted softmax), and its bound
is that formula's, in any order of its sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuzzparity.sides.bound_rules import Pair, rule
from fuzzparity.sides.bounded import ELEMENTARY, Arithmetic, Bounded


@rule("mm bmm mv dot")
def _matmul(a: Arithmetic, pair: Pair, x: Any, y: Any) -> Bounded:
    return a.products(pair(x), pair(y), torch.matmul, x.shape[-1])


@rule("addmm baddbmm addmv")
def _addmm(a: Arithmetic, pair: Pair, start: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Bounded:
    product = _matmul(a, pair, x, y)
    assert isinstance(product, Bounded)
    # added up inside the sum, or first or last: one more term at most
    product = product if alpha == 1 else a.mul(product, pair(alpha))
    added = pair(start) if beta == 1 else a.mul(pair(start), pair(beta))
    more = a.gamma(x.shape[-1] + 1) * added.magnitude
    total = a.add(product, added)
    return Bounded(total.value, total.bound + more)


@rule("convolution")
def _convolution(
    a: Arithmetic, pair: Pair, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Bounded:  # fmt: skip
    def convolve(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.aten.convolution(
            one, other, None, stride, padding, dilation, transposed, output_padding, groups
        )
        return found

    terms = weight.numel() // max(1, weight.shape[1] * groups if transposed else weight.shape[0])
    found = a.products(pair(x), pair(weight), convolve, terms + 4)  # a norm folded into the weights rounds them anew
    if bias is None:
        return found
    added = pair(bias).map(lambda t: t.reshape(1, -1, *[1] * (x.dim() - 2)))
    total = a.add(found, added)
    return Bounded(total.value, total.bound + a.gamma(terms + 1) * added.magnitude)


@rule("sum")
def _sum(a: Arithmetic, pair: Pair, x: Any, dims: Any = (), keepdim: bool = False, **kwargs: Any) -> Bounded:
    return a.sum(pair(x), _dims(dims), keepdim)


@rule("mean")
def _mean(a: Arithmetic, pair: Pair, x: Any, dims: Any = (), keepdim: bool = False, **kwargs: Any) -> Bounded:
    return a.mean(pair(x), _dims(dims), keepdim)


def _dims(dims: Any) -> list[int]:
    return [dims] if isinstance(dims, int) else list(dims or ())


@rule("var")
def _var(
    a: Arithmetic, pair: Pair, x: Any, dims: Any = None, unbiased: Any = None, *, correction: Any = None,
    keepdim: bool = False,
) -> Bounded:  # fmt: skip
    if isinstance(dims, bool) or isinstance(unbiased, bool):
        raise NotImplementedError
    one, over = pair(x), _dims(dims) or list(range(x.dim()))
    less = 1 if correction is None else int(correction)
    found = a.variance(one, a.mean(one, over, keepdim=True), over, less)
    return found if keepdim else found.map(lambda t: t.mean(over))


@rule("std")
def _std(a: Arithmetic, pair: Pair, x: Any, *args: Any, **kwargs: Any) -> Bounded:
    found = _var(a, pair, x, *args, **kwargs)
    assert isinstance(found, Bounded)
    return _root(a, found)


@rule("cumsum")
def _cumsum(a: Arithmetic, pair: Pair, x: Any, dim: int, **kwargs: Any) -> Bounded:
    return a.cumsum(pair(x), dim)


@rule("amax amin")
def _largest(a: Arithmetic, pair: Pair, x: Any, dims: Any = (), keepdim: bool = False) -> Bounded:
    # the largest of values that are each off by a bound is off by no more than the largest bound
    one, over = pair(x), _dims(dims) or list(range(x.dim()))
    return Bounded(one.value.amax(over, keepdim), one.bound.amax(over, keepdim))


@rule("max min")
def _max(a: Arithmetic, pair: Pair, x: Any, dim: Any = None, keepdim: bool = False) -> Bounded:
    return _largest(a, pair, x, () if dim is None else dim, keepdim)  # type: ignore[return-value]


@rule("sort")
def _sort(a: Arithmetic, pair: Pair, x: Any, dim: int = -1, descending: bool = False, **kwargs: Any) -> Bounded:
    one = pair(x)
    return Bounded(one.value, one.bound.amax(dim, keepdim=True).expand(one.bound.shape) if x.dim() else one.bound)


@rule("topk")
def _topk(a: Arithmetic, pair: Pair, x: Any, k: int, dim: int = -1, *rest: Any) -> Bounded:
    one = pair(x)
    return Bounded(one.value, one.bound.amax(dim, keepdim=True)).map(
        lambda t: t.narrow(dim, 0, 1).expand(*(k if d == dim % x.dim() else s for d, s in enumerate(x.shape)))
    )


@rule("max_pool2d_with_indices max_pool3d_with_indices")
def _max_pool(a: Arithmetic, pair: Pair, x: Any, *window: Any) -> Bounded:
    one = pair(x)
    pool = torch.nn.functional.max_pool2d if x.dim() < 5 else torch.nn.functional.max_pool3d
    given = [*window, *[None, 0, 1, False][len(window) - 1 :]]
    kernel, stride, padding, dilation, ceil_mode = given
    return one.map(lambda t: pool(t, kernel, stride or None, padding, dilation, ceil_mode))


@rule("avg_pool2d avg_pool3d")
def _avg_pool(a: Arithmetic, pair: Pair, x: Any, kernel: Any, *rest: Any) -> Bounded:
    pool = torch.nn.functional.avg_pool2d if x.dim() < 5 else torch.nn.functional.avg_pool3d
    stride, *more = rest or ([],)
    terms = math.prod(kernel) if len(kernel) > 1 else kernel[0] ** (2 if x.dim() < 5 else 3)
    return _pooled(a, pair(x), lambda t: pool(t, kernel, stride or None, *more), terms)


@rule("_adaptive_avg_pool2d _adaptive_avg_pool3d")
def _adaptive_avg_pool(a: Arithmetic, pair: Pair, x: Any, size: Sequence[int]) -> Bounded:
    pool = torch.nn.functional.adaptive_avg_pool2d if len(size) == 2 else torch.nn.functional.adaptive_avg_pool3d
    windows = zip(x.shape[-len(size) :], size, strict=True)
    terms = math.prod(math.ceil(have / wanted) + 1 for have, wanted in windows)
    return _pooled(a, pair(x), lambda t: pool(t, list(size)), terms)


def _pooled(a: Arithmetic, x: Bounded, pool: Callable[[torch.Tensor], torch.Tensor], terms: int) -> Bounded:
    bound = pool(x.bound) + a.gamma(terms + 2) * pool(x.magnitude)
    return a.rounded(Bounded(pool(x.value), bound))


@rule("native_layer_norm")
def _layer_norm(
    a: Arithmetic, pair: Pair, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> list[Bounded]:
    one, over = pair(x), list(range(x.dim() - len(shape), x.dim()))
    mean = a.mean(one, over, keepdim=True)
    variance = a.variance(one, mean, over)
    found = _scaled(a, a.normalized(one, mean, variance, eps), pair, weight, bias, lambda t: t)
    scale = a.div(pair(1.0), a.monotone(a.add(variance, pair(eps)), torch.sqrt, relative=ELEMENTARY))
    return [found, mean, scale]


@rule("native_group_norm")
def _group_norm(
    a: Arithmetic, pair: Pair, x: Any, weight: Any, bias: Any, n: int, c: int, size: int, groups: int, eps: float
) -> list[Bounded]:
    one = pair(x).map(lambda t: t.reshape(n, groups, -1))
    mean = a.mean(one, [2], keepdim=True)
    variance = a.variance(one, mean, [2])
    flat = a.normalized(one, mean, variance, eps).map(lambda t: t.reshape(x.shape))
    found = _scaled(a, flat, pair, weight, bias, lambda t: t.reshape(1, -1, *[1] * (x.dim() - 2)))
    scale = a.div(pair(1.0), a.monotone(a.add(variance, pair(eps)), torch.sqrt, relative=ELEMENTARY))
    return [found, mean.map(lambda t: t[..., 0]), scale.map(lambda t: t[..., 0])]


@rule("_native_batch_norm_legit_no_training native_batch_norm")
def _batch_norm(
    a: Arithmetic, pair: Pair, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any
) -> list[Bounded]:
    if len(rest) == 3 and rest[0]:
        raise NotImplementedError("statistics of the batch")

    def aligned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(1, -1, *[1] * (x.dim() - 2))

    centred = a.normalized(pair(x), pair(mean).map(aligned), pair(variance).map(aligned), float(rest[-1]))
    zero = torch.zeros((), dtype=torch.float64)
    empty = Bounded(torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))
    # folded into one product and one sum, shift - mean * scale is rounded on its own: what cancels is not smaller
    folded = a.normalized(pair(mean).map(aligned), Bounded(zero, zero), pair(variance).map(aligned),
                          float(rest[-1]))  # fmt: skip
    more = 4.0 * a.unit * (folded.magnitude * 2.0 + centred.magnitude)
    centred = Bounded(centred.value, centred.bound + more)
    return [_scaled(a, centred, pair, weight, bias, aligned), empty, empty]


def _scaled(
    a: Arithmetic, x: Bounded, pair: Pair, weight: Any, bias: Any, aligned: Callable[[torch.Tensor], torch.Tensor]
) -> Bounded:
    x = x if weight is None else a.mul(x, pair(weight).map(aligned))
    return x if bias is None else a.add(x, pair(bias).map(aligned))


@rule("_softmax _safe_softmax")
def _softmax(a: Arithmetic, pair: Pair, x: Any, dim: int, *rest: Any) -> Bounded:
    return a.softmax(pair(x), dim)


@rule("_log_softmax")
def _log_softmax(a: Arithmetic, pair: Pair, x: Any, dim: int, *rest: Any) -> Bounded:
    return a.log_softmax(pair(x), dim)


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _attention(
    a: Arithmetic, pair: Pair, q: Any, k: Any, v: Any, dropout: float = 0.0, is_causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> list[Bounded]:  # fmt: skip
    if is_causal:
        raise NotImplementedError
    factor = scale if scale is not None else q.shape[-1] ** -0.5
    scores = a.products(pair(q), pair(k).map(lambda t: t.transpose(-2, -1)), torch.matmul, q.shape[-1])
    scores = a.rounded(a.mul(scores, pair(factor)), 2.0)  # or its root on either side
    scores = scores if attn_mask is None else a.add(scores, pair(attn_mask))
    largest = Bounded(scores.value.amax(-1), scores.bound.amax(-1))
    weights = a.softmax(scores, -1)
    # by blocks, sums are scaled again whenever a larger score comes: as many roundings more as there are blocks
    found = a.rounded(a.products(weights, pair(v), torch.matmul, 2 * k.shape[-2]), ELEMENTARY)
    powers = a.exp(a.sub(scores, largest.map(lambda t: t.unsqueeze(-1))))
    total = a.add(a.log(a.sum(powers, [-1])), largest)
    return [found, total.map(lambda t: t.reshape(q.shape[:-1]))]


@rule("logsumexp")
def _logsumexp(a: Arithmetic, pair: Pair, x: Any, dims: Any, keepdim: bool = False) -> Bounded:
    one, over = pair(x), _dims(dims)
    largest = Bounded(one.value.amax(over, keepdim=True), one.bound.amax(over, keepdim=True))
    total = a.log(a.sum(a.exp(a.sub(one, largest)), over, keepdim=True))
    found = a.add(total, largest)
    return found if keepdim else found.map(lambda t: t.mean(over))


@rule("linalg_vector_norm norm")
def _norm(a: Arithmetic, pair: Pair, x: Any, order: Any = 2, dims: Any = None, keepdim: bool = False) -> Bounded:
    if order != 2:
        raise NotImplementedError
    one = pair(x)
    return _root(a, a.sum(a.mul(one, one), _dims(dims), keepdim))


def _root(a: Arithmetic, x: Bounded) -> Bounded:
    """Return the root of a sum of squares: steep at zero, where |sqrt(s') - sqrt(s)| is at most the bound's root."""
    root = x.value.sqrt()
    bound = torch.minimum(x.bound.sqrt(), x.bound / root)
    return a.rounded(Bounded(root, torch.where(x.bound == 0, 0.0, bound)), ELEMENTARY)
