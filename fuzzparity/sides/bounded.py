"""Bounded: arithmetic on values that carry how far any computation in the working precision may lie from them.

The idea: running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1, 3.3 and 4.2). A
value is exact to float64; its bound holds for every order of summation, with or without fused products, because a sum
of n terms is off by at most gamma(n) = n u / (1 - n u) times the sum of their magnitudes, whatever its order. Not
covered: formulations other than those written here (a variance from E[x^2] - E[x]^2, Winograd's convolution).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

# Units roundoff by which library functions may be off. Largest seen in float32 on 600,000 values each, torch 2.13 and
# ORT 1.32 against float64: asin 7.8, tanh 5.1, atan 4.4, log 3.8 (SLEEF promises 2).
ELEMENTARY = 8.0

Function = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Bounded:
    """Hold a float64 tensor and, of the same shape, a bound on |computed - value|; infinite where none is known."""

    value: torch.Tensor
    bound: torch.Tensor

    @property
    def magnitude(self) -> torch.Tensor:
        """Return the largest |computed value| that the bound allows."""
        return self.value.abs() + self.bound

    def map(self, change: Function) -> Bounded:
        """Apply to both what moves elements and computes nothing."""
        return Bounded(change(self.value), change(self.bound))


class Arithmetic:
    """Compute with bounded values in one working precision."""

    def __init__(self, dtype: torch.dtype) -> None:
        """Take unit roundoff and range of a float dtype."""
        figures = torch.finfo(dtype)
        self.unit = figures.eps / 2
        self._dtype = dtype
        self._tiny = figures.tiny  # a result below it may be flushed to zero
        self._largest = figures.max * (1.0 + self.unit)  # what lies below it rounds to the largest and not to infinity

    def gamma(self, n: int) -> float:
        """Return n u / (1 - n u), infinite where n u reaches 1."""
        return n * self.unit / (1.0 - n * self.unit) if n * self.unit < 1.0 else math.inf

    def given(self, value: torch.Tensor) -> Bounded:
        """Return a number that was not computed: off by its rounding to the working precision, if by anything."""
        off = (value - value.to(self._dtype).to(value.dtype)).abs()
        return Bounded(value, torch.where(value.isfinite(), off, 0.0))

    def rounded(self, x: Bounded, units: float = 1.0) -> Bounded:
        """Round to the working precision, by so many units roundoff; beyond its range nothing is known."""
        size = x.magnitude
        bound = torch.where(size <= self._largest, x.bound + units * self.unit * size + self._tiny, math.inf)
        # an infinity of the inputs' own (a mask) is one in any precision
        return Bounded(x.value, torch.where(x.value.isinf() & x.bound.isfinite(), 0.0, bound))

    def add(self, x: Bounded, y: Bounded) -> Bounded:
        """Return x + y."""
        return self.rounded(Bounded(x.value + y.value, x.bound + y.bound))

    def sub(self, x: Bounded, y: Bounded) -> Bounded:
        """Return x - y."""
        return self.rounded(Bounded(x.value - y.value, x.bound + y.bound))

    def mul(self, x: Bounded, y: Bounded) -> Bounded:
        """Return x * y."""
        bound = x.value.abs() * y.bound + x.bound * y.magnitude
        return self.rounded(Bounded(x.value * y.value, bound))

    def div(self, x: Bounded, y: Bounded) -> Bounded:
        """Return x / y; nothing is known where y may be zero."""
        value = x.value / y.value
        least = y.value.abs() - y.bound
        bound = torch.where(least > 0, (x.bound + value.abs() * y.bound) / least, math.inf)
        # a quotient is often taken as a product with the reciprocal: two roundings
        return self.rounded(Bounded(value, bound), 2.0)

    def monotone(self, x: Bounded, function: Function, *, relative: float = 0.0, absolute: float = 0.0) -> Bounded:
        """Return a monotone function, itself off by so many units roundoff of its value and of 1."""
        value = function(x.value)
        reach = [(function(x.value + step * x.bound) - value).abs() for step in (-1.0, 1.0)]
        bound = torch.maximum(*reach)
        bound = torch.where(x.bound == 0, 0.0, bound) + absolute * self.unit
        found = Bounded(value, bound)
        return self.rounded(found, relative) if relative else found

    def lipschitz(self, x: Bounded, function: Function, slope: float, *, of_input: float = 0.0) -> Bounded:
        """Return a function that is nowhere steeper than `slope`, off by units roundoff of its value and its input."""
        bound = slope * x.bound + of_input * self.unit * x.magnitude
        return self.rounded(Bounded(function(x.value), bound), ELEMENTARY)

    def sum(self, x: Bounded, dims: Sequence[int], keepdim: bool = False) -> Bounded:
        """Return a sum over dims in any order."""
        dims = list(dims) or list(range(x.value.dim()))
        n = math.prod(x.value.shape[d] for d in dims) if dims else 1
        size = x.magnitude.sum(dims, keepdim)
        bound = x.bound.sum(dims, keepdim) + self.gamma(max(0, n - 1)) * size + n * self._tiny
        return Bounded(x.value.sum(dims, keepdim), torch.where(size <= self._largest, bound, math.inf))

    def mean(self, x: Bounded, dims: Sequence[int], keepdim: bool = False) -> Bounded:
        """Return a mean over dims."""
        dims = list(dims) or list(range(x.value.dim()))
        n = math.prod(x.value.shape[d] for d in dims) if dims else 1
        total = self.sum(x, dims, keepdim)
        return self.rounded(total.map(lambda t: t / n), 2.0)

    def cumsum(self, x: Bounded, dim: int) -> Bounded:
        """Return cumulative sums in any order."""
        n = x.value.shape[dim] if x.value.dim() else 1
        bound = x.bound.cumsum(dim) + self.gamma(n) * x.magnitude.cumsum(dim) + n * self._tiny
        return Bounded(x.value.cumsum(dim), bound)

    def products(self, x: Bounded, y: Bounded, product: Callable[..., torch.Tensor], terms: int) -> Bounded:
        """Return a bilinear `product(x, y)` whose elements are sums of so many products, in any order."""
        gamma = self.gamma(max(1, terms))
        # |x| Ey + Ex (|y| + Ey) + gamma (|x| + Ex) (|y| + Ey), in one product where y is exact, as weights are
        bound = product(x.bound + gamma * x.magnitude, y.magnitude)
        is_finite = bound <= gamma * self._largest
        if bool(y.bound.any()):
            bound = bound + product(x.value.abs(), y.bound)
        bound = torch.where(is_finite, bound + 2 * terms * self._tiny, math.inf)
        return Bounded(product(x.value, y.value), bound)

    def variance(self, x: Bounded, mean: Bounded, dims: Sequence[int], less: int = 0) -> Bounded:
        """Return the mean square of x - mean (kept dims), over the count less `less`: the two-pass formula."""
        apart = self.sub(x, mean)
        n = math.prod(x.value.shape[d] for d in dims)
        total = self.sum(self.mul(apart, apart), dims, keepdim=True)
        return self.rounded(total.map(lambda t: t / max(n - less, 0)), 2.0)

    def normalized(self, x: Bounded, mean: Bounded, variance: Bounded, eps: float) -> Bounded:
        """Return (x - mean) / sqrt(variance + eps)."""
        padded = self.add(variance, self.given(torch.tensor(eps, dtype=torch.float64)))
        positive = torch.where(padded.value > padded.bound, padded.bound, math.inf)
        scale = self.monotone(Bounded(padded.value, positive), torch.sqrt, relative=ELEMENTARY)
        return self.div(self.sub(x, mean), scale)

    def softmax(self, x: Bounded, dim: int) -> Bounded:
        """Return softmax along a dim, shifted by the largest."""
        powers = self._powers(x, dim)
        return self.div(powers, self.sum(powers, [dim], keepdim=True))

    def log_softmax(self, x: Bounded, dim: int) -> Bounded:
        """Return the logarithm of softmax along a dim."""
        total = self.sum(self._powers(x, dim), [dim], keepdim=True)
        return self.sub(self._shifted(x, dim), self.log(total))

    def log(self, x: Bounded) -> Bounded:
        """Return the logarithm; nothing is known where x may be zero."""
        bound = torch.where(x.value > x.bound, x.bound, math.inf)
        return self.monotone(Bounded(x.value, bound), torch.log, relative=ELEMENTARY)

    def exp(self, x: Bounded) -> Bounded:
        """Return the exponential."""
        return self.monotone(x, torch.exp, relative=ELEMENTARY)

    def _powers(self, x: Bounded, dim: int) -> Bounded:
        return self.exp(self._shifted(x, dim))

    def _shifted(self, x: Bounded, dim: int) -> Bounded:
        """Return x less its largest; where all are -inf the difference is no number, and nothing is known."""
        largest = Bounded(x.value.amax(dim, keepdim=True), x.bound.amax(dim, keepdim=True))
        apart = self.sub(x, largest)
        # -inf stands for "left out": its power is 0 on every engine
        left_out = (x.value == -math.inf) & x.bound.isfinite() & largest.value.isfinite()
        return Bounded(apart.value, torch.where(left_out, 0.0, apart.bound))
