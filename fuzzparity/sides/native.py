"""Native: in what precision torch itself computes each operator of a module that mixes narrow floats and wide ones.

The idea: the referee holds every float in float64, where the `.float()` of a norm in halves and the way back mean
nothing. So the module runs as it is, watched, and a run with roundings follows that record operator by operator: what
is computed in float32 on purpose is not excused by roundings of halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from fuzzparity.case import Case
from fuzzparity.sides.double import operator_of
from fuzzparity.sides.guard import StateGuard
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.quiet import quietly
from fuzzparity.sides.tensors import to_tensor

MANTISSA_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7, "float8_e4m3fn": 3, "float8_e5m2": 2}
_CAST = "_to_copy"


@dataclass(slots=True)
class Step:
    """Hold one operator, casts left out, and the mantissa bits that its result is left with, None for no float."""

    name: str
    bits: int | None


def native_steps(loaded: LoadedTarget, case: Case, bits: int) -> tuple[Step, ...]:
    """Return the operators of one run of the module as it is; nothing where it does not run.

    Nothing either where torch itself computes nothing in `bits`: then the file is the narrower one, by its user's will.
    """
    state = StateGuard(loaded.module)
    mode = _Watching()
    args, kwargs = loaded.call.arguments([to_tensor(array) for array in case.inputs.values()])
    try:
        if loaded.target.reset is not None:
            loaded.target.reset(loaded.module)
        uncompiled = torch.compiler.set_stance("force_eager")
        with quietly(), torch.no_grad(), uncompiled, mode:
            loaded.module(*args, **kwargs)
    except Exception:  # torch refuses the case
        return ()
    finally:
        state.restore()
    return tuple(mode.steps) if any(step.bits == bits for step in mode.steps) else ()


class _Watching(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Keep each operator with the precision of its result, which a cast of that may narrow."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._made_by: Any = WeakIdKeyDictionary()  # a tensor -> the steps whose rounding it carries

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(func, torch._ops.HigherOrderOperator):
            return out
        operator = operator_of(func)
        if operator.is_metadata_check:
            return out
        results = [leaf for leaf in _pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        known = [bits for bits in map(_bits_of, results) if bits is not None]
        bits = min(known, default=None)
        before = self._made_by.get(args[0], ()) if args and isinstance(args[0], torch.Tensor) else ()
        if operator.name == _CAST:
            made: tuple[Step, ...] = before
            for step in before:
                if step.bits is not None and bits is not None:
                    step.bits = min(step.bits, bits)
        else:
            step = Step(operator.name, bits)
            self.steps.append(step)
            made = (step, *before) if operator.is_exact else (step,)
        for result in results:
            self._made_by[result] = made
        return out


def _bits_of(tensor: torch.Tensor) -> int | None:
    return MANTISSA_BITS.get(str(tensor.dtype).removeprefix("torch."))


class Followed:
    """Follow a record operator by operator; from where a run leaves it on, it tells nothing."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Start at the first operator."""
        self._steps = steps
        self._place = 0

    def next(self, name: str) -> int | None:
        """Return the mantissa bits of the operator that comes next, None where that is not known."""
        if name == _CAST:
            return None
        if self._place >= len(self._steps) or self._steps[self._place].name != name:
            self._place = len(self._steps)
            return None
        step = self._steps[self._place]
        self._place += 1
        return step.bits
