"""Where: the parts of outputs that count, by the target's own `compare_where`.

The idea: what does not count is set to zero on both sides and in the exact answer, before anything looks at it; then
no kind of difference can be seen there but shape and dtype, and nothing that judges has to know of masks.

A mask of the output's rank is broadcast. One of lower rank gives the output's leading dims ([b, s] for [b, s, h]);
only where that never fits the seeds it is aligned with the last dims, as numpy does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuzzparity.case import Array, Case
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import TORCH, Execution
from fuzzparity.oracle.evidence import Referee

CompareWhere = Callable[[dict[str, Any]], Any]  # of the user: what it returns is looked at
Masks = tuple[
    Array | None, ...
]  # one for each output, of its rank with sizes 1 where it is broadcast; None: all counts


class Where:
    """Apply a target's `compare_where` to executions; what it does wrong on a case is said by `problem`."""

    def __init__(self, compare_where: CompareWhere, outputs: Sequence[str], trailing: Sequence[str] = ()) -> None:
        """Bind the function to the outputs; `trailing` names those whose masks are aligned with their last dims."""
        self._function = compare_where
        self._outputs = tuple(outputs)
        self.trailing = tuple(trailing)
        self._asked: tuple[Case, dict[str, Array] | str] | None = None
        self._misfit: tuple[Case, str] | None = None

    def problem(self, case: Case) -> str:
        """Return why the masks of a case could not be used, so that all of it was compared; "" when they were."""
        if self._misfit is not None and self._misfit[0] is case:
            return self._misfit[1]
        answer = self._answer(case)
        return answer if isinstance(answer, str) else ""

    def applied(self, case: Case, execution: Execution) -> Execution:
        """Return an execution with zero in its outputs wherever differences do not count."""
        if not execution.outputs or len(execution.outputs) != len(self._outputs):
            return execution
        masks, misfit = self._masks(case, execution.outputs)
        if misfit and execution.side == TORCH:
            self._misfit = (case, misfit)
        return (
            replace(execution, outputs=cleared(execution.outputs, masks), where=masks) if any_mask(masks) else execution
        )

    def settle(self, case: Case, outputs: Sequence[Array]) -> bool:
        """Check the masks of a seed, learn which are aligned with the last dims, and tell whether any was learned.

        InvalidTarget when the function fails or a mask fits neither way.
        """
        before = self.trailing
        answer = self._answer(case)
        if isinstance(answer, str):
            raise _invalid(answer)
        for name, output in zip(self._outputs, outputs, strict=False):
            mask = answer.get(name)
            if mask is None or name in self.trailing or aligned(mask, output.shape) is not None:
                continue
            if aligned(mask, output.shape, trailing=True) is None:
                raise _invalid(_misfit(name, mask, output))
            self.trailing = (*self.trailing, name)
        return self.trailing != before

    def _answer(self, case: Case) -> dict[str, Array] | str:
        """Return the function's masks by output, or what is wrong with them; asked once for each case."""
        if self._asked is None or self._asked[0] is not case:
            self._asked = (case, self._ask(case))
        return self._asked[1]

    def _ask(self, case: Case) -> dict[str, Array] | str:
        try:
            given = self._function(dict(case.inputs))
            if not isinstance(given, Mapping):
                return f"compare_where() gave {type(given).__name__}"
            masks = {str(name): np.asarray(mask) for name, mask in given.items() if mask is not None}
        except Exception as error:  # the user's own code
            return f"compare_where() raised {type(error).__name__}: {str(error)[:160]}"
        unknown = [name for name in masks if name not in self._outputs]
        if unknown:
            return f"compare_where() names {', '.join(map(repr, unknown))}, which is no output"
        odd = [f"{name!r} {mask.dtype}" for name, mask in masks.items() if mask.dtype.kind not in "biu"]
        if odd:
            return f"compare_where() gave masks of other types than bool: {', '.join(odd)}"
        return {name: mask.astype(np.bool_) for name, mask in masks.items()}

    def _masks(self, case: Case, outputs: Sequence[Array]) -> tuple[Masks, str]:
        answer = self._answer(case)
        if isinstance(answer, str):
            return (), ""
        masks: list[Array | None] = []
        misfit = ""
        for name, output in zip(self._outputs, outputs, strict=True):
            mask = answer.get(name)
            found = None if mask is None else aligned(mask, output.shape, trailing=name in self.trailing)
            if mask is not None and found is None:
                misfit = _misfit(name, mask, output)
            masks.append(found)
        return tuple(masks), misfit


class MaskedReferee:
    """Answer as a referee does, with zero wherever differences do not count."""

    def __init__(self, referee: Referee, masks: Masks) -> None:
        """Wrap a referee for one case, whose masks hold for the inputs around it as well."""
        self._referee = referee
        self._masks = masks

    @property
    def missing(self) -> str:
        """Return why the referee cannot run, empty when it can."""
        return self._referee.missing

    @property
    def operators(self) -> int:
        """Return how many operators the last rounded run had, 0 where that is not known."""
        return self._referee.operators

    @property
    def source(self) -> str:
        """Return who answers."""
        return self._referee.source

    @property
    def is_of_file(self) -> bool:
        """Tell whether it answers what the ONNX file means."""
        return self._referee.is_of_file

    def bounds(self, case: Case) -> tuple[tuple[Array | None, ...], str]:
        """Return for each output how far roundings may move it at most, and where that is not known."""
        return self._referee.bounds(case)

    def exact(self, case: Case) -> tuple[Array, ...] | None:
        """Return the outputs in float64, None when the referee cannot run."""
        return self._cleared(self._referee.exact(case))

    def rounded(self, case: Case, draw: int, times: float = 1.0) -> tuple[Array, ...] | None:
        """Return the float64 outputs with every intermediate rounded at random, that many times as far."""
        return self._cleared(self._referee.rounded(case, draw, times))

    def peak(self, case: Case) -> float:
        """Return the largest finite intermediate of the float64 run."""
        return self._referee.peak(case)

    def unmoved(self, case: Case) -> frozenset[int]:
        """Return the places of outputs that come from integers alone."""
        return self._referee.unmoved(case)

    def _cleared(self, outputs: tuple[Array, ...] | None) -> tuple[Array, ...] | None:
        return None if outputs is None else cleared(outputs, self._masks)


def aligned(mask: Array, shape: tuple[int, ...], *, trailing: bool = False) -> Array | None:
    """Return a mask of an output's rank that numpy broadcasts to its shape, None where it does not fit."""
    if mask.ndim > len(shape):
        return None
    ones = (1,) * (len(shape) - mask.ndim)
    full = mask.reshape((*ones, *mask.shape) if trailing else (*mask.shape, *ones))
    fits = all(size in (1, wanted) for size, wanted in zip(full.shape, shape, strict=True))
    return full if fits else None


def cleared(outputs: Sequence[Array], masks: Masks) -> tuple[Array, ...]:
    """Return outputs with zero where their masks are false; an output that a mask does not fit stays as it is."""
    return tuple(_cleared(output, mask) for output, mask in zip(outputs, masks, strict=True))


def _cleared(output: Array, mask: Array | None) -> Array:
    if mask is None or aligned(mask, output.shape) is None:
        return output
    kept: Array = output.copy()
    kept[~np.broadcast_to(mask, output.shape)] = 0
    return kept


def counted(execution: Execution, masks: Masks) -> Execution:
    """Return a further execution of the same case with zero where differences do not count."""
    if not any_mask(masks) or len(masks) != len(execution.outputs):
        return execution
    return replace(execution, outputs=cleared(execution.outputs, masks))


def any_mask(masks: Masks) -> bool:
    """Tell whether there is a mask at all."""
    return any(mask is not None for mask in masks)


def _misfit(name: str, mask: Array, output: Array) -> str:
    return f"compare_where() gave {name!r} a mask of shape {list(mask.shape)}; the output has {list(output.shape)}"


def _invalid(problem: str) -> InvalidTarget:
    advice = (
        "give a dict of output name -> bool array that is true where differences count; a mask of lower rank gives the "
        "output's leading dims, as [b, s] does for [b, s, h]"
    )
    return InvalidTarget("compare_where", problem, advice)
