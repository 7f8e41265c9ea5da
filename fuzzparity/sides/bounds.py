"""Bounds: follow through one float64 run how far rounding in the working precision may carry each value.

The idea: a dispatch mode keeps, beside every tensor, a bound that `bounded` computes from those of its arguments. An
operator without a rule makes its results unknown, and a choice (an index, a comparison) that rounding could turn makes
unknown what is computed from it; the first operator that did so is named. What is known is a true bound for engines
that compute by the same formulas, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from fuzzparity.case import Array
from fuzzparity.sides import bound_sums  # noqa: F401  # enters its rules
from fuzzparity.sides.bound_rules import COMPARISONS, MOVES, RULES
from fuzzparity.sides.bounded import ELEMENTARY, Arithmetic, Bounded
from fuzzparity.sides.double import Float64Mode, Operator, map_leaves

_MOST_KEPT = 1 << 26  # elements whose bounds are kept: 1 GiB with their values
_CONVERSIONS = frozenset(("_to_copy", "lift_fresh", "fill_", "full_like", "where", "index_put_"))
# they take a float tensor for its shape or its memory alone
_OF_SHAPES = frozenset(
    ("fill_", "zero_", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full")
)
_STEPS = frozenset(("arange", "linspace", "logspace"))
_SLACK = 1.0 + 1e-6  # bounds are themselves computed in float64, and the values are exact to float64 only


class BoundMode(Float64Mode):
    """Keep a bound for every float tensor of a run; `unknown` names the first operator that has none."""

    def __init__(self, dtype: torch.dtype) -> None:
        """Bind to the working precision."""
        super().__init__()
        self.unknown = ""
        self._arithmetic = Arithmetic(dtype)
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}  # by id: tensor, bound (None: unknown)
        self._doubtful: dict[int, torch.Tensor] = {}  # integers and booleans that rounding might change
        self._before: torch.Tensor | None = None  # what a tensor held that is about to be changed in place
        self._elements = 0
        self._is_lost = False  # from here on nothing is known

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Remember what is about to be changed in place, then run as the parent does."""
        self._before = None
        if not isinstance(func, torch._ops.HigherOrderOperator) and func._schema.is_mutable:
            first = args[0] if args else None
            self._before = first.detach().clone() if isinstance(first, torch.Tensor) else None
        return super().__torch_dispatch__(func, types, args, kwargs)

    def finish(self, operator: Operator, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
        """Find the bounds of what an operator gave."""
        results = list(_tensors(out))
        if self._is_lost or (not results and not _is_number(out)):
            return out
        name = func._schema.name.partition("::")[2]
        inputs = list(_tensors((args, kwargs)))
        if not results:
            if any(self._is_uncertain(x) for x in inputs):  # a number that Python goes on with
                self._lose(name)
            return out
        floats = [x for x in results if _is_double(x)]
        for x in results:
            if not _is_double(x):
                self._judge_choice(name, x, args, inputs)
        if floats:
            self._judge_floats(operator, name, func, args, kwargs, inputs, floats)
        if self._elements > _MOST_KEPT:
            self._lose(f"{name}, where the bounds outgrow the memory set aside for them")
        return out

    def of(self, tensor: torch.Tensor) -> Array | None:
        """Return the bound of a result as an array of its shape, None where it is not known."""
        if not _is_double(tensor):
            return None
        bound = None if self._is_lost else self._bound(tensor)
        if bound is None:
            return None
        found: Array = torch.nan_to_num(bound * _SLACK, nan=math.inf, posinf=math.inf).detach().numpy()
        return found

    def pair(self, value: Any) -> Bounded:
        """Return an argument with its bound; numbers are rounded when they enter the working precision."""
        if not isinstance(value, torch.Tensor):
            return self._arithmetic.given(torch.tensor(float(value), dtype=torch.float64))
        if not _is_double(value):
            return self._arithmetic.given(value.to(torch.float64))
        bound = self._bound(value)
        assert bound is not None, "the caller asks only where every bound is known"
        return Bounded(self._held(value), bound)

    def _held(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what a tensor held before the operator that runs changed it."""
        entry = self._changed
        return self._before if entry is tensor and self._before is not None else tensor

    _changed: torch.Tensor | None = None

    def _bound(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the bound of a float tensor; one never seen before was not computed."""
        entry = self._kept.get(id(tensor))
        if entry is None:
            return self._keep(tensor, self._arithmetic.given(self._held(tensor)).bound)
        return entry[1]

    def _keep(self, tensor: torch.Tensor, bound: torch.Tensor | None) -> torch.Tensor | None:
        self._kept[id(tensor)] = (tensor, bound)
        self._elements += tensor.numel() if bound is not None else 0
        return bound

    def _is_uncertain(self, tensor: torch.Tensor) -> bool:
        """Tell whether rounding may change a tensor, or nothing is known of it."""
        if id(tensor) in self._doubtful:
            return True
        if not _is_double(tensor):
            return False
        bound = self._bound(tensor)
        return bound is None or bool((bound != 0).any())

    def _judge_choice(self, name: str, result: torch.Tensor, args: Sequence[Any], inputs: list[torch.Tensor]) -> None:
        """Note whether rounding may change an integer or boolean result."""
        if not any(self._is_uncertain(x) for x in inputs):
            return
        known = not any(id(x) in self._doubtful or (_is_double(x) and self._bound(x) is None) for x in inputs)
        if known and name in COMPARISONS and len(args) >= 2:
            x, y = self.pair(args[0]), self.pair(args[1])
            if bool(((x.value - y.value).abs() > x.bound + y.bound).all()):
                return
        self._doubtful[id(result)] = result

    def _judge_floats(
        self,
        operator: Operator,
        name: str,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],
        results: list[torch.Tensor],
    ) -> None:
        if operator.is_mutable:
            self._changed = args[0] if args and isinstance(args[0], torch.Tensor) else None
        try:
            bounds = self._bounds_of(operator, name, func, args, kwargs, inputs, results)
        finally:
            self._changed = None
        if not operator.is_mutable:
            is_view = bool(getattr(func, "is_view", False))
            for x, bound in zip(results, bounds, strict=True):
                self._keep(x, bound if bound is None or is_view else _laid_out_as(x, bound))
            return
        target = args[0] if args else None
        for x in results:
            held = self._kept.get(id(x), (x, None))[1]
            bound = bounds[0] if x is target and len(bounds) == 1 else None
            if held is None:
                self._keep(x, None if bound is None else bound.expand(x.shape).clone())
            else:  # in place, so that what is a view of it changes as well
                held.copy_(bound if bound is not None else torch.full_like(held, math.inf))

    def _bounds_of(
        self,
        operator: Operator,
        name: str,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],
        results: list[torch.Tensor],
    ) -> list[torch.Tensor | None]:
        nothing: list[torch.Tensor | None] = [None] * len(results)
        if any(id(x) in self._doubtful for x in inputs):
            self._note(f"{name}, which follows a choice that rounding may turn")
            return nothing
        floats = [x for x in inputs if _is_double(x)]
        if any(self._bound(x) is None for x in floats):
            return nothing
        if not floats or name in _OF_SHAPES:
            ints = [x for x in inputs if not _is_double(x)]
            return [self._made(name, ints, x) for x in results]
        if operator.is_mutable and any(_is_entangled(x, args[0]) for x in floats):
            self._note(f"{name}, which changes its own argument")
            return nothing
        plain = name.rstrip("_") if operator.is_mutable else name
        try:
            found = self._by_rule(operator, plain, func, args, kwargs)
        except (NotImplementedError, RuntimeError, TypeError, IndexError, ValueError):
            found = None  # a form of the operator that its rule does not know
        if found is None or [b.shape for b in found] != [x.shape for x in results]:
            self._note(name)
            return nothing
        if any(b.numel() and not bool(b.isfinite().any()) for b in found):
            self._note(f"{name} (worst cases add up without limit)")
            return nothing
        return list(found)

    def _by_rule(
        self, operator: Operator, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> list[torch.Tensor] | None:
        """Return the bounds of the float results of an operator, None where there is no rule for it."""
        rule = RULES.get(name)
        if rule is not None:
            found = rule(self._arithmetic, self.pair, *args, **kwargs)
            return [one.bound for one in _listed(found)]
        if operator.is_mutable and name == "copy":
            return [self.pair(args[1]).bound.expand(args[0].shape)]
        if name in MOVES or bool(getattr(func, "is_view", False)):
            moved = func(*map_leaves(self._bound_or_self, args), **map_leaves(self._bound_or_self, kwargs))
            return [x for x in _tensors(moved) if _is_double(x)]
        return None

    def _bound_or_self(self, value: Any) -> Any:
        return self._bound(value) if isinstance(value, torch.Tensor) and _is_double(value) else value

    def _made(self, name: str, ints: list[torch.Tensor], result: torch.Tensor) -> torch.Tensor:
        """Return the bound of what was made of numbers and integers alone: rounded once, or computed."""
        given = self._arithmetic.given(result)
        if name in _CONVERSIONS or (not ints and name not in _STEPS) or not result.numel():
            return given.bound
        size = torch.where(result.isfinite(), result.abs(), 0.0).amax()
        return given.bound + ELEMENTARY * self._arithmetic.unit * size

    def _note(self, name: str) -> None:
        self.unknown = self.unknown or f"aten.{name}"

    def _lose(self, name: str) -> None:
        """Go on without bounds."""
        self._note(name)
        self._is_lost = True
        self._kept.clear()
        self._doubtful.clear()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
        return
    for leaf in _pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            yield leaf


def _listed(found: Bounded | list[Bounded]) -> list[Bounded]:
    return found if isinstance(found, list) else [found]


def _is_entangled(one: torch.Tensor, changed: torch.Tensor) -> bool:
    """Tell whether a tensor shares memory with one that was changed, element for other element."""
    if one is changed or one.untyped_storage().data_ptr() != changed.untyped_storage().data_ptr():
        return False
    return (one.data_ptr(), one.shape, one.stride()) != (changed.data_ptr(), changed.shape, changed.stride())


def _laid_out_as(result: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Return a bound in memory of its own, laid out as its result is: what is a view of one is a view of the other."""
    return torch.empty_like(result, memory_format=torch.preserve_format).copy_(bound)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _is_double(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor can have a bound; complex ones have none."""
    return tensor.dtype is torch.float64 and tensor.layout is torch.strided and tensor.is_cpu
