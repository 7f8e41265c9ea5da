"""Eager: every operator that torch runs for a case, in order, with its outputs and the user's line that called it.

The idea: a dispatch mode sees what really runs, whatever the module is made of; run on a captured program as well, the
first difference of the two records is where the capture left the module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fuzzparity.case import Case
from fuzzparity.sides.guard import StateGuard
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.own_code import place_here
from fuzzparity.sides.quiet import quietly
from fuzzparity.sides.tensors import to_array, to_tensor
from fuzzparity.values import Event

_READ = torch.ops.aten._local_scalar_dense.default
_MOST_BYTES = 1 << 30  # of kept outputs; beyond it only what was run is kept


def eager_events(loaded: LoadedTarget, case: Case) -> list[Event]:
    """Return the operators of one run; where torch refuses, the last one is marked."""
    state = StateGuard(loaded.module)
    mode = _Recording()
    args, kwargs = loaded.call.arguments([to_tensor(array) for array in case.inputs.values()])
    try:
        if loaded.target.reset is not None:
            loaded.target.reset(loaded.module)
        uncompiled = torch.compiler.set_stance("force_eager")
        with quietly(), torch.no_grad(), uncompiled, _plain_control_flow(), mode:
            loaded.module(*args, **kwargs)
    except Exception:  # torch refuses the case: the record ends there
        pass
    finally:
        state.restore()
    return mode.events


@contextlib.contextmanager
def _plain_control_flow() -> Iterator[None]:
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
    """Keep each operator with its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _READ and not isinstance(args[0], torch.Tensor):
            return args[0]  # a number of a traced program, which TorchScript hands on unwrapped
        place = place_here()
        source = f"{place[0]}:{place[1]}" if place is not None else ""
        try:
            result = func(*args, **(kwargs or {}))
        except Exception:
            self.events.append(Event(str(func), (), source, is_refused=True))
            raise
        outputs = []
        for leaf in _pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and self._nbytes < _MOST_BYTES:
                outputs.append(np.array(to_array(leaf)))  # a copy: torch may write to it later
                self._nbytes += outputs[-1].nbytes
            elif isinstance(leaf, (bool, int, float)):
                outputs.append(np.asarray(leaf))
        self.events.append(Event(str(func), tuple(outputs), source))
        return result
