"""Bound rules: for each operator that is known, the bound of its results from those of its arguments.

The idea: a rule takes the arithmetic, a function that pairs an argument with its bound, and the operator's own
arguments as torch hands them over; it returns one bounded value for each float result. Those that work element by
element are here, those that add up in `bound_sums`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuzzparity.sides.bounded import ELEMENTARY, Arithmetic, Bounded

Pair = Callable[[Any], Bounded]
Rule = Callable[..., Bounded | list[Bounded]]

RULES: dict[str, Rule] = {}
COMPARISONS = frozenset(("gt", "lt", "ge", "le", "eq", "ne"))
# they move elements and compute none: the bounds move as the values do
_MOVES = (
    "clone _to_copy cat stack index gather embedding index_select flip roll repeat tril triu reflection_pad1d "
    "reflection_pad2d replication_pad1d replication_pad2d lift_fresh lift_fresh_copy slice_scatter select_scatter "
    "_unsafe_view detach alias unfold_copy take index_put unsafe_split unsafe_chunk split_with_sizes_copy"
)
MOVES = frozenset(_MOVES.split())


def rule(names: str) -> Callable[[Rule], Rule]:
    """Enter a rule under the names of operators, without their namespace and overload."""

    def register(made: Rule) -> Rule:
        for name in names.split():
            RULES[name] = made
        return made

    return register


# elementwise: (function, units roundoff of its value, units of 1)
_MONOTONE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "relu": (torch.relu, 0.0, 0.0),
    "floor": (torch.floor, 0.0, 0.0),
    "ceil": (torch.ceil, 0.0, 0.0),
    "trunc": (torch.trunc, 0.0, 0.0),
    "sign": (torch.sign, 0.0, 0.0),
    "exp": (torch.exp, ELEMENTARY, 0.0),
    "exp2": (torch.exp2, ELEMENTARY, 0.0),
    "expm1": (torch.expm1, ELEMENTARY, ELEMENTARY),  # some engines take exp(x) - 1
    "atan": (torch.atan, ELEMENTARY, 0.0),
    "asinh": (torch.asinh, ELEMENTARY, 0.0),
    "sinh": (torch.sinh, ELEMENTARY, 0.0),
    "tanh": (torch.tanh, ELEMENTARY, 0.0),
    "erf": (torch.erf, ELEMENTARY, 0.0),
    "sigmoid": (torch.sigmoid, 0.0, ELEMENTARY),  # ORT clips its argument at 18: no relative bound holds
}
# those that are not monotone: the steepest slope anywhere
_STEEPEST = {
    "gelu": 1.13,
    "silu": 1.1,
    "hardswish": 1.5,
    "mish": 1.09,
}
_POSITIVE = {"log": torch.log, "log2": torch.log2, "log10": torch.log10, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt}


def _elementwise(name: str) -> Rule:
    if name in _MONOTONE:
        function, relative, absolute = _MONOTONE[name]
        return lambda a, pair, x: a.monotone(pair(x), function, relative=relative, absolute=absolute)
    positive = _POSITIVE[name]

    def of_positive(a: Arithmetic, pair: Pair, x: Any) -> Bounded:
        one = pair(x)
        is_inside = (one.value > one.bound) | ((one.value == 0) & (one.bound == 0))
        return a.monotone(
            Bounded(one.value, torch.where(is_inside, one.bound, math.inf)), positive, relative=ELEMENTARY
        )

    return of_positive


for _name in (*_MONOTONE, *_POSITIVE):
    RULES[_name] = _elementwise(_name)


@rule("gelu")
def _gelu(a: Arithmetic, pair: Pair, x: Any, *, approximate: str = "none") -> Bounded:
    # 1 + erf(x) and its like lose their digits for negative x: off by units of x and not of the value
    kind = approximate
    # the tanh form cubes x and takes tanh of it: two more roundings of an argument up to 5 before it saturates
    of_input = ELEMENTARY if kind == "none" else 3.0 * ELEMENTARY
    return a.lipschitz(
        pair(x), lambda t: torch.nn.functional.gelu(t, approximate=kind), _STEEPEST["gelu"], of_input=of_input
    )


@rule("silu")
def _silu(a: Arithmetic, pair: Pair, x: Any) -> Bounded:
    return a.lipschitz(pair(x), torch.nn.functional.silu, _STEEPEST["silu"], of_input=ELEMENTARY)


@rule("hardswish")
def _hardswish(a: Arithmetic, pair: Pair, x: Any) -> Bounded:
    return a.lipschitz(pair(x), torch.nn.functional.hardswish, _STEEPEST["hardswish"], of_input=ELEMENTARY)


@rule("mish")
def _mish(a: Arithmetic, pair: Pair, x: Any) -> Bounded:
    return a.lipschitz(pair(x), torch.nn.functional.mish, _STEEPEST["mish"], of_input=ELEMENTARY)


@rule("sin")
def _sin(a: Arithmetic, pair: Pair, x: Any) -> Bounded:
    one = a.lipschitz(pair(x), torch.sin, 1.0)
    return Bounded(one.value, one.bound + ELEMENTARY * a.unit)


@rule("cos")
def _cos(a: Arithmetic, pair: Pair, x: Any) -> Bounded:
    one = a.lipschitz(pair(x), torch.cos, 1.0)
    return Bounded(one.value, one.bound + ELEMENTARY * a.unit)


@rule("elu")
def _elu(
    a: Arithmetic, pair: Pair, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Bounded:
    if (scale, input_scale) != (1.0, 1.0):
        raise NotImplementedError
    off = ELEMENTARY * abs(alpha)  # exp(x) - 1 may be taken as it stands
    return a.monotone(pair(x), lambda t: torch.nn.functional.elu(t, alpha), relative=ELEMENTARY, absolute=off)


@rule("leaky_relu")
def _leaky_relu(a: Arithmetic, pair: Pair, x: Any, slope: float = 0.01) -> Bounded:
    return a.lipschitz(pair(x), lambda t: torch.nn.functional.leaky_relu(t, slope), max(1.0, abs(slope)))


@rule("softplus")
def _softplus(a: Arithmetic, pair: Pair, x: Any, beta: float = 1, threshold: float = 20) -> Bounded:
    # beyond the threshold the identity stands for it, off by exp(-threshold) / beta
    cut = math.exp(-float(threshold)) / abs(float(beta)) / a.unit
    return a.monotone(pair(x), lambda t: torch.nn.functional.softplus(t, beta), relative=2 * ELEMENTARY, absolute=cut)


@rule("neg")
def _neg(a: Arithmetic, pair: Pair, x: Any) -> Bounded:
    one = pair(x)
    return Bounded(-one.value, one.bound)


@rule("abs")
def _abs(a: Arithmetic, pair: Pair, x: Any) -> Bounded:
    one = pair(x)
    return Bounded(one.value.abs(), one.bound)


@rule("clamp clamp_min clamp_max hardtanh")
def _clamp(a: Arithmetic, pair: Pair, x: Any, *bounds: Any, **named: Any) -> Bounded:
    # a clamp moves two values no further apart; its limits may be rounded
    one = pair(x)
    for limit in (*bounds, *named.values()):
        if limit is not None:
            one = Bounded(one.value, torch.maximum(one.bound, pair(limit).bound))
    return one


@rule("maximum minimum")
def _maximum(a: Arithmetic, pair: Pair, x: Any, y: Any) -> Bounded:
    one, other = pair(x), pair(y)
    return Bounded(torch.maximum(one.value, other.value), torch.maximum(one.bound, other.bound))


@rule("add")
def _add(a: Arithmetic, pair: Pair, x: Any, y: Any, *, alpha: float = 1) -> Bounded:
    return a.add(pair(x), pair(y) if alpha == 1 else a.mul(pair(y), pair(alpha)))


@rule("sub")
def _sub(a: Arithmetic, pair: Pair, x: Any, y: Any, *, alpha: float = 1) -> Bounded:
    return a.sub(pair(x), pair(y) if alpha == 1 else a.mul(pair(y), pair(alpha)))


@rule("rsub")
def _rsub(a: Arithmetic, pair: Pair, x: Any, y: Any, alpha: float = 1) -> Bounded:
    return _sub(a, pair, y, x, alpha=alpha)  # type: ignore[return-value]


@rule("mul")
def _mul(a: Arithmetic, pair: Pair, x: Any, y: Any) -> Bounded:
    return a.mul(pair(x), pair(y))


@rule("div")
def _div(a: Arithmetic, pair: Pair, x: Any, y: Any) -> Bounded:
    return a.div(pair(x), pair(y))


@rule("reciprocal")
def _reciprocal(a: Arithmetic, pair: Pair, x: Any) -> Bounded:
    return a.div(pair(1.0), pair(x))


@rule("pow")
def _pow(a: Arithmetic, pair: Pair, x: Any, exponent: Any) -> Bounded:
    if isinstance(exponent, torch.Tensor) or not isinstance(x, torch.Tensor):
        raise NotImplementedError
    one = pair(x)
    if exponent in (1, 2, 3, 4):  # by products
        found = one
        for _ in range(int(exponent) - 1):
            found = a.mul(found, one)
        return a.rounded(found, ELEMENTARY)
    # of positive numbers; a power by logarithms loses as many digits as the exponent times the logarithm has
    inside = Bounded(one.value, torch.where(one.value > one.bound, one.bound, math.inf))
    lost = float(torch.nan_to_num(one.value.abs().log(), 0.0, 0.0, 0.0).abs().amax()) if one.value.numel() else 0.0
    units = ELEMENTARY * (1.0 + abs(float(exponent)) * lost)
    return a.monotone(inside, lambda t: t ** float(exponent), relative=units)


@rule("where")
def _where(a: Arithmetic, pair: Pair, condition: Any, x: Any, y: Any) -> Bounded:
    one, other = pair(x), pair(y)
    return Bounded(torch.where(condition, one.value, other.value), torch.where(condition, one.bound, other.bound))


@rule("masked_fill")
def _masked_fill(a: Arithmetic, pair: Pair, x: Any, mask: Any, value: Any) -> Bounded:
    return _where(a, pair, mask, value, x)  # type: ignore[return-value]


@rule("constant_pad_nd")
def _pad(a: Arithmetic, pair: Pair, x: Any, pad: Sequence[int], value: float = 0) -> Bounded:
    one, fill = pair(x), pair(value)
    padded = torch.nn.functional.pad(one.value, list(pad), value=float(value))
    return Bounded(padded, torch.nn.functional.pad(one.bound, list(pad), value=float(fill.bound)))
