"""Gradients: which way the inputs have to move for a comparison inside the module to come out otherwise.

The idea: torch tells every operator that it is asked for to a function mode, even those whose results never leave the
module. The values that a comparison, a ranking or a rounding works on are differentiable where its result is not, so
the run ends there and autograd gives the direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from fuzzparity.case import Array, Case, is_float
from fuzzparity.decisions import Threshold
from fuzzparity.sides.eager import plain_control_flow
from fuzzparity.sides.guard import StateGuard
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.own_code import place_here, short
from fuzzparity.sides.tensors import to_array, to_tensor

_COMPARED = frozenset(["gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "greater_equal", "less_equal"])
_RANKED = frozenset(["argmax", "argmin", "max", "min", "topk", "sort", "argsort"])
_STEPS = {"round": 0.5, "floor": 0.0, "ceil": 0.0, "trunc": 0.0, "fix": 0.0}
_MOST_MET = 64  # thresholds of one run
_MOST_ELEMENTS = 1 << 22  # of a tensor that is ranked or rounded


class Thresholds:
    """Find the thresholds of a target's module, and the gradients of their margins."""

    def __init__(self, loaded: LoadedTarget) -> None:
        self._loaded = loaded
        self._device = torch.device(loaded.device)
        self._state: StateGuard | None = None  # looked at when it is first needed: most models have no threshold

    def met(self, case: Case) -> tuple[Threshold, ...]:
        """Return the thresholds that a run comes by; none where the module cannot be followed or refuses the case."""
        mode = _Watching()
        with torch.no_grad():
            self._run([to_tensor(array).to(self._device) for array in case.inputs.values()], mode)
        return tuple(mode.met)

    def toward(self, case: Case, threshold: Threshold) -> tuple[float, dict[str, Array]] | None:
        """Return a threshold's margin on a case and its gradient by each float input, in float64.

        None where the run does not come by it, or where nothing that it depends on can be differentiated.
        """
        tensors = {name: to_tensor(array) for name, array in case.inputs.items()}
        leaves = {
            name: tensor.requires_grad_()
            for name, tensor in tensors.items()
            if is_float(case.inputs[name].dtype) and tensor.is_floating_point()
        }
        mode = _Watching(threshold)
        with torch.enable_grad():
            # a copy of each: the module may write to its inputs, which a leaf does not allow
            self._run([tensor.clone().to(self._device) for tensor in tensors.values()], mode)
            if mode.margin is None:
                return None
            margin = float(mode.margin.detach())
            if not math.isfinite(margin):
                return None
            found = _gradients(mode.margin, leaves)
        return margin, found

    def _run(self, tensors: list[torch.Tensor], mode: _Watching) -> None:
        self._state = self._state or StateGuard(self._loaded.module)
        args, kwargs = self._loaded.call.arguments(tensors)
        try:
            if self._loaded.target.reset is not None:
                self._loaded.target.reset(self._loaded.module)
            uncompiled = torch.compiler.set_stance("force_eager")
            with uncompiled, plain_control_flow(), mode:
                self._loaded.module(*args, **kwargs)
        except (Exception, SystemExit, KeyboardInterrupt, _Reached):  # a refusal, or the threshold: the run ends there
            pass
        finally:
            self._state.restore()


def _gradients(margin: torch.Tensor, leaves: dict[str, torch.Tensor]) -> dict[str, Array]:
    if not (leaves and margin.requires_grad):
        return {}
    try:
        found = torch.autograd.grad(margin, list(leaves.values()), allow_unused=True)
    except Exception:  # an operator without a derivative, or one of the user's own that fails
        return {}
    arrays = {
        name: to_array(one).astype(np.float64) for name, one in zip(leaves, found, strict=True) if one is not None
    }
    return {name: array for name, array in arrays.items() if np.isfinite(array).all() and array.any()}


class _Reached(BaseException):
    """End a run at the threshold; no `except Exception` of the user's catches it."""


class _Watching(TorchFunctionMode):  # type: ignore[misc]
    """Note every threshold, or stop at one: `margin` is then its tensor."""

    def __init__(self, wanted: Threshold | None = None) -> None:
        super().__init__()
        self.met: list[Threshold] = []
        self.margin: torch.Tensor | None = None
        self._wanted = wanted
        self._counts: dict[str, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").strip("_")
        measure = _measure_of(name, args, kwargs)
        if measure is not None and len(self.met) < _MOST_MET:
            number = self._counts.get(name, 0)
            self._counts[name] = number + 1
            if self._look(f"{name} {number}", measure):
                raise _Reached
        return func(*args, **kwargs)

    def _look(self, key: str, measure: _Measure) -> bool:
        """Note a threshold, or take the margin of the one that is wanted; tell whether the run may end here."""
        is_wanted = self._wanted is not None and self._wanted.key.partition(" (")[0] == key
        try:
            if self._wanted is None:
                self.met.extend(_noted(key, measure))
            elif is_wanted:
                self.margin = measure(self._wanted)[1]
        except Exception:  # tensors that cannot be subtracted or sorted (sparse, nested): no threshold of ours
            pass
        return is_wanted


# A measure returns the threshold that is nearest (or, given one, that one) and its margin as a tensor.
_Measure = Callable[[Threshold | None], tuple[Threshold | None, torch.Tensor | None]]


def _noted(key: str, measure: _Measure) -> Iterator[Threshold]:
    found, margin = measure(None)
    if found is None or margin is None or not math.isfinite(float(margin)):
        return
    place = place_here()
    where = f" ({short(place)})" if place is not None else ""
    yield Threshold(key + where, found.places, found.level, float(margin))


def _measure_of(name: str, args: Any, kwargs: Any) -> _Measure | None:
    """Return how an operator's threshold is measured, None for one that has none."""
    values = [value for value in args if isinstance(value, torch.Tensor)]
    if not values or not any(value.is_floating_point() for value in values) or len(args) > 3:
        return None
    first = values[0]
    if name in _COMPARED and len(args) == 2:
        return lambda wanted: _compared(args[0], args[1], wanted)
    if first.numel() > _MOST_ELEMENTS or not first.is_floating_point():
        return None
    if name in _STEPS:
        return lambda wanted: _stepping(first, _STEPS[name], wanted)
    if name in _RANKED and not (len(args) > 1 and isinstance(args[1], torch.Tensor)):
        dim = kwargs.get("dim", args[-1] if len(args) > 1 and name != "topk" else -1)
        count = int(kwargs.get("k", args[1] if len(args) > 1 else 1)) if name == "topk" else 1
        is_smallest = name in ("argmin", "min")
        dim = dim if isinstance(dim, int) and not isinstance(dim, bool) else -1
        return lambda wanted: _ranked(-first if is_smallest else first, dim, count, wanted)
    return None


def _compared(one: Any, other: Any, wanted: Threshold | None) -> tuple[Threshold | None, torch.Tensor | None]:
    difference = (one - other).reshape(-1)
    return _nearest(difference, difference.detach().abs(), 0.0, wanted)


def _stepping(
    value: torch.Tensor, offset: float, wanted: Threshold | None
) -> tuple[Threshold | None, torch.Tensor | None]:
    flat = value.reshape(-1)
    if wanted is not None:
        return _nearest(flat, flat, wanted.level, wanted)
    steps = torch.round(flat.detach() - offset) + offset
    found, _ = _nearest(flat, (flat.detach() - steps).abs(), 0.0, None)
    if found is None:
        return None, None
    level = float(steps[found.places[0]])
    return Threshold("", found.places, level), flat[found.places[0]] - level


def _nearest(
    values: torch.Tensor, distances: torch.Tensor, level: float, wanted: Threshold | None
) -> tuple[Threshold | None, torch.Tensor | None]:
    """Return the element nearest to its threshold, but for those on it, which rounding alone keeps there."""
    if wanted is not None:
        place = wanted.places[0]
        return (wanted, values[place] - level) if place < values.numel() else (None, None)
    usable = torch.isfinite(distances) & (distances > 0)
    if not bool(usable.any()):
        return None, None
    place = int(torch.where(usable, distances, math.inf).argmin())
    return Threshold("", (place,), level), values[place] - level


def _ranked(
    value: torch.Tensor, dim: int, count: int, wanted: Threshold | None
) -> tuple[Threshold | None, torch.Tensor | None]:
    """Measure how far the last element that is taken stands before the first one that is not."""
    flat = value.reshape(-1)
    if wanted is not None:
        one, other = wanted.places
        return (wanted, flat[one] - flat[other]) if max(one, other) < flat.numel() else (None, None)
    if value.dim() == 0 or value.shape[dim] <= count:
        return None, None
    order = value.detach().topk(count + 1, dim=dim)
    index = torch.arange(flat.numel(), device=value.device).reshape(value.shape)
    taken = index.gather(dim, order.indices.narrow(dim, count - 1, 2))
    values = order.values.narrow(dim, count - 1, 2)
    gaps = (values.select(dim, 0) - values.select(dim, 1)).reshape(-1)
    found, _ = _nearest(gaps, gaps.abs(), 0.0, None)
    if found is None:
        return None, None
    places = [int(taken.select(dim, which).reshape(-1)[found.places[0]]) for which in (0, 1)]
    return Threshold("", (places[0], places[1])), flat[places[0]] - flat[places[1]]
