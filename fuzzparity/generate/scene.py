"""Scene: all that a mutator may know of a target, and the few ways in which it may act on arrays.

The idea: a draft is a list of arrays in the contract's order. Resizing goes through the axes and keeps equalities and
caps; values go through fills in the working type; `settle` confines the result to the contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fuzzparity.case import Array, Case
from fuzzparity.contract import Contract, Role
from fuzzparity.errors import InvalidCase
from fuzzparity.generate.domain import Domain, confine, domain_of, index_range, units_of
from fuzzparity.generate.dtypes import cast
from fuzzparity.generate.links import SHAPE, links_of
from fuzzparity.generate.relations import SizeRelations
from fuzzparity.generate.shapes import axes_of, resized, shapes_for, size_menu, sizes_of
from fuzzparity.generate.texture import texture_of
from fuzzparity.generate.values import Fill, classics, nonfinite_classics

_FEW_REFUSALS = 2  # of one size, none accepted, before it is tried less


class Scene:
    """Hold contract, domains, textures and links of the seeds, axes, menus of sizes and fills, and what sides refuse.

    `axes` are those that may change: an axis that an opaque input has stays as in the parent, in every input, and a
    derived one follows from another.
    """

    def __init__(self, contract: Contract, seeds: Sequence[Case], max_elements: int, max_bytes: int) -> None:
        """Read contract and seeds once."""
        self.contract = contract
        self.names = [item.name for item in contract.inputs]
        self.max_elements = max_elements
        self.max_bytes = max_bytes
        drafts = [self._arrays(seed) for seed in seeds]
        self.domains: list[Domain] = [
            domain_of(item, contract, [draft[index] for draft in drafts]) for index, item in enumerate(contract.inputs)
        ]
        self.textures = tuple(
            texture_of(item, [draft[index] for draft in drafts]) for index, item in enumerate(contract.inputs)
        )
        self.links = links_of(contract, drafts, self.textures)
        self._counted = self._counting()
        self.opaque = frozenset(index for index, item in enumerate(contract.inputs) if item.is_opaque)
        self._all_axes = axes_of(contract)
        bound = self._bound_symbols()
        self.axes = tuple(axis for axis in self._all_axes if axis.symbol not in bound)
        self._tied = self._tied_symbols()
        self.classics: list[tuple[Fill, ...]] = [
            () if index in self.opaque else classics(domain) for index, domain in enumerate(self.domains)
        ]
        self.nonfinite: list[tuple[Fill, ...]] = [
            () if index in self.opaque else nonfinite_classics(domain) for index, domain in enumerate(self.domains)
        ]
        self.mutable = [index for index, fills in enumerate(self.classics) if fills]
        self.seeds = [seed for seed in (self.repaired(draft) for draft in drafts) if seed is not None]
        self.menus: dict[str, list[int]] = {
            axis.symbol: size_menu(
                axis,
                contract.sizes,
                contract.constants,
                [sizes_of(self.axes, seed)[axis.symbol] for seed in self.seeds],
                contract.periods,
                contract.factors,
            )
            for axis in self.axes
        }
        self.units = units_of(contract)
        # a number of the code that is no divisor there may be one in a function that it is handed to
        self.periods = tuple(dict.fromkeys((*contract.periods, *(n for n in contract.sizes[:8] if 2 < n <= 512))))
        self._refused: dict[tuple[str, int], int] = {}
        self._accepted: set[tuple[str, int]] = set()
        self.relations = SizeRelations([axis.symbol for axis in self.axes])

    def tied(self, symbol: str) -> tuple[str, ...]:
        """Return the axes of inputs that share a shape with this one in all seeds, under names of their own."""
        return self._tied.get(symbol, ())

    def _tied_symbols(self) -> dict[str, tuple[str, ...]]:
        free = {axis.symbol for axis in self.axes}
        pairs = [
            (one.symbol, other.symbol)
            for link in self.links
            if link.kind == SHAPE
            for one, other in zip(
                self.contract.inputs[link.index].dims, self.contract.inputs[link.other].dims, strict=True
            )
            if one.symbol != other.symbol and {one.symbol, other.symbol} <= free
        ]
        names = {name for pair in pairs for name in pair}
        return {name: tuple(dict.fromkeys(a if b == name else b for a, b in pairs if name in (a, b))) for name in names}

    def _counting(self) -> dict[int, tuple[int, int]]:
        """Return for inputs of lengths and offsets the input and dim along which they count."""
        places = {
            index: (self.names.index(item.counted[0]), item.counted[1])
            for index, item in enumerate(self.contract.inputs)
            if item.counted is not None and item.counted[0] in self.names and not item.is_opaque
        }
        return {index: place for index, place in places.items() if self.domains[index].traits.family == "int"}

    def role(self, index: int) -> Role:
        """Return the role of an input."""
        return self.contract.inputs[index].role

    @property
    def counting(self) -> tuple[int, ...]:
        """Return the inputs of lengths and offsets whose dim is known."""
        return tuple(self._counted)

    def counted(self, index: int, arrays: Sequence[Array]) -> int:
        """Return the size along which the values of an input count."""
        owner, place = self._counted[index]
        return int(arrays[owner].shape[place])

    def _bound_symbols(self) -> set[str]:
        """Return the axes that may not change by themselves, the root of an opaque derived one among them."""
        derived = {one.symbol: one.root for one in self.contract.derived}
        opaque = {axis.symbol for axis in self._all_axes if any(index in self.opaque for index, _ in axis.places)}
        return opaque | derived.keys() | {derived[symbol] for symbol in opaque & derived.keys()}

    def _arrays(self, case: Case) -> list[Array]:
        for item in self.contract.inputs:
            if item.name not in case.inputs:
                raise InvalidCase(
                    f"a seed has inputs {', '.join(case.inputs)}; the contract wants {', '.join(self.names)}; "
                    "give every input in every seed"
                )
            if case.inputs[item.name].ndim != len(item.dims):
                raise InvalidCase(
                    f"a seed has {item.name} of shape {list(case.inputs[item.name].shape)}; the contract wants "
                    f"{len(item.dims)} dims; give seeds of the contract's rank"
                )
        return [case.inputs[name] for name in self.names]

    def case(self, arrays: Sequence[Array]) -> Case:
        """Return the arrays as a case."""
        return Case(dict(zip(self.names, arrays, strict=True)))

    def sizes(self, arrays: Sequence[Array]) -> dict[str, int]:
        """Return the size of each axis."""
        return sizes_of(self._all_axes, arrays)

    def repaired(self, arrays: Sequence[Array]) -> list[Array] | None:
        """Return a parent inside the contract made from arrays that may be outside; None where that cannot be."""
        sizes = self.sizes(arrays)
        sizes |= {axis.symbol: axis.nearest(sizes[axis.symbol]) for axis in self.axes}
        shapes = shapes_for(self.contract, sizes)
        draft = [resized(array, shape) for array, shape in zip(arrays, shapes, strict=True)]
        with np.errstate(all="ignore"):
            draft = [cast(array, domain.traits) for array, domain in zip(draft, self.domains, strict=True)]
            return self.settle(draft, keep_nonfinite=True)

    def resize(
        self,
        arrays: list[Array],
        wanted: Mapping[str, int],
        offset: int = 0,
        edge: bool = False,
        *,
        exactly: bool = False,
    ) -> list[Array] | None:
        """Return the arrays with some axes at new sizes; None when nothing changes or a cap would be passed.

        Sizes that both sides seem to refuse give way to the nearest that they take, unless `exactly` those are wanted.
        """
        sizes = self.sizes(arrays)
        sizes.update(wanted if exactly else self._taken(wanted))
        shapes = shapes_for(self.contract, sizes)
        if not self.fits(shapes) or all(a.shape == shape for a, shape in zip(arrays, shapes, strict=True)):
            return None
        return [
            array if array.shape == shape else self._resized(index, array, shape, offset, edge)
            for index, (array, shape) in enumerate(zip(arrays, shapes, strict=True))
        ]

    def _taken(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Return wished-for sizes as learned relations have them, inside the contract."""
        adapted = self.relations.adapted(wanted)
        return {axis.symbol: axis.nearest(adapted[axis.symbol]) for axis in self.axes if axis.symbol in adapted}

    def _resized(self, index: int, array: Array, shape: tuple[int, ...], offset: int, edge: bool) -> Array:
        if 0 in array.shape and 0 not in shape and self.seeds:  # growing from nothing: take a seed's values
            array = self.seeds[0][index]
        return resized(array, shape, offset, edge)

    def fitted(self, index: int, array: Array, shape: tuple[int, ...]) -> Array:
        """Return another parent's array of this input, cropped or tiled to a shape."""
        return array if array.shape == shape else self._resized(index, array, shape, 0, False)

    def fits(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Tell whether shapes stay under the caps on elements and bytes."""
        elements, nbytes = 0, 0
        for shape, domain in zip(shapes, self.domains, strict=True):
            count = 1
            for size in shape:
                count *= size
            elements += count
            nbytes += count * domain.traits.dtype.itemsize
        return elements <= self.max_elements and nbytes <= self.max_bytes

    def fill(self, index: int, array: Array, fill: Fill) -> Array:
        """Return an input's array, or a part of it, after a fill; complex numbers are filled as pairs of reals."""
        traits = self.domains[index].traits
        if traits.family == "complex":
            whole = array if array.flags.c_contiguous else array.copy(order="C")
            pairs = whole.reshape((*whole.shape, 1)).view(traits.working)
            filled = np.asarray(fill.apply(pairs)).astype(traits.working).copy(order="C")
            return filled.view(traits.dtype).reshape(array.shape)
        working = array if array.dtype == traits.working else array.astype(traits.working)
        return cast(fill.apply(working), traits)

    def settle(self, arrays: Sequence[Array], keep_nonfinite: bool) -> list[Array] | None:
        """Return the arrays confined to the contract; None when an index has nothing to point at."""
        sizes: dict[str, int] | None = None
        settled: list[Array] = []
        for index, (array, domain) in enumerate(zip(arrays, self.domains, strict=True)):
            if index in self.opaque:
                settled.append(array)
                continue
            limit = domain.index_limit
            if domain.index_symbol:
                sizes = self.sizes(arrays) if sizes is None else sizes
                limit = sizes.get(domain.index_symbol)
            if limit is not None and array.size and domain.traits.family == "int":
                first, last = index_range(domain, limit)
                if first > last:
                    return None
            settled.append(confine(array, domain, limit, keep_nonfinite and domain.allow_nonfinite))
        return settled

    def note_refusal(self, case: Case, refused: bool, said: str = "") -> None:
        """Remember which sizes both sides refuse and which are accepted; `said` is what a side said of it."""
        if not self.axes:
            return
        sizes = sizes_of(self.axes, [case.inputs[name] for name in self.names])
        if not self.relations.observe(sizes, refused, said):
            return
        for pair in sizes.items():
            if not refused:
                self._accepted.add(pair)
            elif pair not in self._accepted:
                self._refused[pair] = self._refused.get(pair, 0) + 1

    def willingness(self, symbol: str, size: int) -> float:
        """Return how willing to try a size: 1.0, and less the more often both sides refused it and never took it."""
        count = self._refused.get((symbol, size), 0)
        return 1.0 if count < _FEW_REFUSALS or (symbol, size) in self._accepted else 1.0 / count
