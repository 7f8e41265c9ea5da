"""Eager: every operator that torch runs for a case, in order, with its outputs and the user's line that called it.

The idea: a dispatch mode sees what really runs, whatever the module is made of; run on a captured program as well, the
first difference of the two records is where the capture left the module.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fuzzparity.case import Array, Case
from fuzzparity.sides.guard import StateGuard
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.own_code import place_here
from fuzzparity.sides.quiet import quietly
from fuzzparity.sides.tensors import to_array, to_tensor
from fuzzparity.values import Event

_READ = torch.ops.aten._local_scalar_dense.default
_MOST_BYTES = 1 << 30  # of kept outputs; beyond it only what was run is kept


# operators that files write as several nodes; torch has their steps as well, and these tell such nodes apart
_COMPOUND = frozenset(
    {
        "addmm",
        "baddbmm",
        "addmv",
        "addcmul",
        "addcdiv",
        "native_layer_norm",
        "native_group_norm",
        "native_batch_norm",
        "_native_batch_norm_legit_no_training",
        "gelu",
        "silu",
        "mish",
        "hardswish",
        "hardsigmoid",
        "softplus",
        "logsumexp",
        "var",
        "std",
        "_scaled_dot_product_flash_attention_for_cpu",
    }
)


def eager_events(loaded: LoadedTarget, case: Case, *, steps: bool = False) -> list[Event]:
    """Return the operators of one run; where torch refuses, the last one is marked.

    `steps`: before an operator that stands for several, those of torch's own decomposition of it, marked as inner.
    """
    state = StateGuard(loaded.module)
    mode = _Recording(steps)
    args, kwargs = loaded.call.arguments([to_tensor(array) for array in case.inputs.values()])
    try:
        if loaded.target.reset is not None:
            loaded.target.reset(loaded.module)
        uncompiled = torch.compiler.set_stance("force_eager")
        with quietly(), torch.no_grad(), uncompiled, plain_control_flow(), mode:
            loaded.module(*args, **kwargs)
    except Exception:  # torch refuses the case: the record ends there
        pass
    finally:
        state.restore()
    return mode.events


def steps_of(run: Callable[[], Any]) -> list[Event]:
    """Return the operators that one call runs, with torch's own decomposition of those that stand for several."""
    mode = _Recording(True)
    with torch.no_grad(), mode:
        run()
    return mode.events


@contextlib.contextmanager
def plain_control_flow() -> Iterator[None]:
    """Let torch.cond and torch.while_loop be plain Python: compiled, their bodies hide the user's lines."""

    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        return true_fn(*operands) if bool(pred) else false_fn(*operands)

    def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any, **_: Any) -> Any:
        values = tuple(carried_inputs)
        while bool(cond_fn(*values)):
            values = tuple(body_fn(*values))
        return values

    own: dict[str, Any] = {"cond": cond, "while_loop": while_loop}
    kept = {name: getattr(torch, name) for name in own if hasattr(torch, name)}
    for name in kept:
        setattr(torch, name, own[name])
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(torch, name, value)


class _Recording(TorchDispatchMode):  # type: ignore[misc]
    """Keep each operator with its inputs and outputs."""

    def __init__(self, steps: bool) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._steps = steps
        self._nbytes = 0
        # array by (tensor, version): torch may write to a tensor later; tensors are held, so that no id comes again
        self._known: dict[tuple[int, int], tuple[torch.Tensor, Array]] = {}
        self._inside: str | None = None  # the source line of the operator whose steps run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _READ and not isinstance(args[0], torch.Tensor):
            return args[0]  # a number of a traced program, which TorchScript hands on unwrapped
        kwargs = kwargs or {}
        if self._inside is not None:  # a step that stands for several itself, as attention does in its decomposition
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        source = self._inside if self._inside is not None else _source_here()
        inputs = self._arrays([leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)])
        if self._steps and self._inside is None:
            self._record_steps(func, args, kwargs, source)
        try:
            result = func(*args, **kwargs)
        except Exception:
            self.events.append(Event(str(func), (), source, is_refused=True, inputs=inputs))
            raise
        leaves = _pytree.tree_leaves(result)
        if func._schema.is_mutable:
            self._forget_written(leaves)
        outputs = self._arrays([leaf for leaf in leaves if isinstance(leaf, (torch.Tensor, bool, int, float))])
        self.events.append(Event(str(func), outputs, source, inputs=inputs, is_inner=self._inside is not None))
        return result

    def _record_steps(self, func: Any, args: Any, kwargs: Any, source: str) -> None:
        """Run torch's decomposition of an operator beside it; one that cannot be run is left out."""
        name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else ""
        run: Any = None
        if name == "convolution" and len(args) > 2 and args[2] is not None:
            run = functools.partial(_convolution_and_bias, func)
        elif name in _COMPOUND:
            from torch._decomp import decomposition_table

            run = decomposition_table.get(func)
        if run is None:
            return
        self._inside = source
        kept = len(self.events)
        try:
            with self:  # a mode is off while it is at work
                run(*args, **kwargs)
        except Exception:  # whatever a decomposition says to these arguments
            del self.events[kept:]
        finally:
            self._inside = None

    def _forget_written(self, leaves: list[Any]) -> None:
        """Read tensors that were written to anew: their version counts up only after the operator has returned."""
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and not leaf.is_inference():
                self._known.pop((id(leaf), leaf._version), None)
                array = self._array(leaf)
                self._known[(id(leaf), leaf._version + 1)] = (leaf, array)

    def _arrays(self, leaves: list[Any]) -> tuple[Array, ...]:
        """Return copies of tensors, and numbers, as far as there is room."""
        found = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                found.append(np.asarray(leaf))
            elif leaf.layout == torch.strided and self._nbytes < _MOST_BYTES:
                found.append(self._array(leaf))
        return tuple(found)

    def _array(self, tensor: torch.Tensor) -> Array:
        if tensor.is_inference():  # has no version
            return np.array(to_array(tensor))
        key = (id(tensor), tensor._version)
        if key not in self._known:
            is_weight = isinstance(tensor, torch.nn.Parameter)
            array = to_array(tensor) if is_weight else np.array(to_array(tensor))
            self._nbytes += 0 if is_weight else array.nbytes
            self._known[key] = (tensor, array)
        return self._known[key][1]


def _source_here() -> str:
    place = place_here()
    return f"{place[0]}:{place[1]}" if place is not None else ""


def _convolution_and_bias(func: Any, data: Any, weight: Any, bias: Any, *more: Any) -> Any:
    """Compute a convolution as files may write it: the bias added after it."""
    plain = func(data, weight, None, *more)
    return plain + bias.reshape([-1, *[1] * (plain.ndim - 2)])
