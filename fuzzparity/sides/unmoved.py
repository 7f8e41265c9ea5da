"""Unmoved: which outputs no change of a float and no rounding can reach, since none of the data they come from is one.

The idea: a run under a dispatch mode follows the memory of integers that come from integers alone. Whatever is not
known to lie there may move, and so may everything once a value that may move was read into Python or decided on a size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fuzzparity.sides.double import Float64Mode, Operator, map_leaves
from fuzzparity.sides.inside import ORDERS

_TELLING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}  # in what Python or sizes come to know
_MASKS = (torch.bool, torch.uint8)  # how many elements they choose is known by their values alone


class UnmovedMode(Float64Mode):
    """Follow the integers that come from integers alone."""

    def __init__(self) -> None:
        super().__init__()
        self._still: dict[int, torch.UntypedStorage] = {}  # held, so that nothing else comes to lie there
        self._is_lost = False

    def see(self, value: Any) -> Any:
        """Take integers that are given as ones that stay as they are."""
        if isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()):
            storage = _storage(value)
            if storage is not None:
                self._still[storage.data_ptr()] = storage
        return value

    def is_unmoved(self, value: Any) -> bool:
        """Tell whether a value of the module comes from integers alone."""
        return not self._is_lost and self._stays(value) and not (value.is_floating_point() or value.is_complex())

    def finish(self, operator: Operator, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
        """Follow one operator."""
        read = _tensors((args, kwargs))
        tags = set(func.tags)
        is_chance = operator.is_empty or torch.Tag.nondeterministic_seeded in tags or operator.name in ORDERS
        if not is_chance and all(map(self._stays, read)):
            return map_leaves(self.see, out)
        by_places = operator.name == "index" and not any(one.dtype in _MASKS for one in read[1:])
        if tags & _TELLING and not by_places:
            self._is_lost = True
        if operator.is_mutable:
            for storage in filter(None, map(_storage, read)):
                self._still.pop(storage.data_ptr(), None)
        return out

    def _stays(self, value: Any) -> bool:
        storage = _storage(value) if isinstance(value, torch.Tensor) else None
        return storage is not None and (not storage.nbytes() or storage.data_ptr() in self._still)


def _storage(value: torch.Tensor) -> torch.UntypedStorage | None:
    return value.untyped_storage() if value.layout is torch.strided and not value.is_quantized else None


def _tensors(structure: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def take(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            found.append(value)
        return value

    map_leaves(take, structure)
    return found
