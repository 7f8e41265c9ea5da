"""Counterpart: what torch computes where a cut's nodes stand, as a small program that runs on other values too.

The idea: the calls of torch that lead from the values a cut reads to those it gives are its right answer for any
values. Values and weights are known again by what they hold, only where that names one and no other; what cannot be
told apart stays as it is. A weight that only nearly is torch's own is kept at its distance from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fuzzparity.case import Array, is_float

if TYPE_CHECKING:
    from fuzzparity.sides.tape import Call, Tape

_MOST_CALLS = 40  # of a program that anyone reads
_SAME_FACTOR = 1e-5  # relative: a weight of the file is a multiple of torch's, up to its rounding
# calls that hand a value on: the same numbers before and after them are no accident
_HANDING = frozenset(
    {"view", "reshape", "contiguous", "dropout", "detach", "clone", "alias", "flatten", "unflatten", "unsqueeze"}
    | {"squeeze", "to", "type", "expand", "transpose", "permute", "t", "T", "mT", "float", "_unsafe_view", "view_as"}
    | {"lift_fresh", "lift_fresh_copy", "split", "chunk", "unbind", "_to_copy", "slice", "select", "__getitem__"}
)

_MOST_CANDIDATES = 4  # values of torch's that hold the cut's answer

Same = Callable[[Array, Array], bool]


@dataclass(frozen=True)
class Related:
    """Say how a weight of the file follows from one of torch's: by a factor, else by what is added to it."""

    own: str
    factor: float | None
    added: str = ""

    def weight(self, arrays: Mapping[str, Array]) -> Array:
        """Return the file's weight for torch's."""
        own = arrays[self.own]
        if self.factor is not None:
            return (own.astype(np.float64) * self.factor).astype(own.dtype)
        return np.asarray(own + arrays[self.added], own.dtype)


@dataclass(frozen=True)
class Counterpart:
    """Hold torch's calls, and by which of the cut's arrays (`takes`: leaf -> name, how it is read) they are fed.

    `own`: arrays that only torch reads, by name. `free`: the names of arrays that may be others. `related`: weights of
    the file that follow from own ones. `differences`: what is added there, free as well.
    """

    calls: tuple[Call, ...] = field(repr=False)
    takes: Mapping[int, tuple[str, tuple[int, ...] | str]]
    outputs: tuple[int, ...]
    own: Mapping[str, Array] = field(repr=False)
    free: frozenset[str]
    related: Mapping[str, Related] = field(default_factory=dict)
    differences: Mapping[str, Array] = field(default_factory=dict, repr=False)

    def leaves(self, arrays: Mapping[str, Array]) -> dict[int, Array]:
        """Return the values that the calls start from."""
        return {number: _read(arrays[name], how) for number, (name, how) in self.takes.items()}

    def run(self, arrays: Mapping[str, Array], *, exact: bool = False) -> tuple[Array, ...] | None:
        """Return what torch gives on the cut's arrays and `own` ones; None where it refuses."""
        from fuzzparity.sides.tape import replayed

        try:
            leaves = self.leaves(arrays)
        except ValueError:  # of another size than it is to be read as
            return None
        return replayed(self.calls, leaves, self.outputs, exact=exact)


def _read(array: Array, how: tuple[int, ...] | str) -> Array:
    if how == "T":
        return np.ascontiguousarray(array.T)
    return array if isinstance(how, str) else array.reshape(how)


def counterpart(
    tapes: Iterable[Tape],
    feeds: Mapping[str, Array],
    weights: Mapping[str, Array],
    expected: Mapping[str, Array],
    same: Same,
    agrees: Callable[[Counterpart], bool] = lambda found: False,
) -> Counterpart | None:
    """Return torch's program for a cut, from the first tape that has one; None where there is none that is sure.

    It is run on the cut's own values before it is returned, and has to give `expected` there. Where several do, it is
    the one that `agrees` with the cut's nodes on other values, if one alone does.
    """
    for tape in tapes:
        found = _Search(tape, feeds, weights, expected, same).all()
        if len(found) > 1:
            found = [one for one in found if agrees(one)]
        if len(found) == 1:
            return found[0]
    return None


class _Search:
    """Look for a cut's values on one tape."""

    def __init__(
        self,
        tape: Tape,
        feeds: Mapping[str, Array],
        weights: Mapping[str, Array],
        expected: Mapping[str, Array],
        same: Same,
    ) -> None:
        self._tape, self._same = tape, same
        self._feeds, self._weights, self._expected = dict(feeds), dict(weights), dict(expected)
        self._by_size: dict[int, list[int]] = {}
        for number, size in tape.numbers():
            self._by_size.setdefault(size, []).append(number)

    def all(self) -> list[Counterpart]:
        """Return the programs, one for each value that may be the cut's answer."""
        choices = [self._outputs(array) for array in self._expected.values()]
        if not choices or not all(choices) or (len(choices) > 1 and any(len(one) > 1 for one in choices)):
            return []
        if len(choices) > 1:
            found = [self._program([one[0] for one in choices])]
        else:
            found = [self._program([number]) for number in choices[0][:_MOST_CANDIDATES]]
        return [one for one in found if one is not None]

    def _program(self, outputs: list[int]) -> Counterpart | None:
        calls, _ = self._tape.sliced(outputs, lambda number: self._feed(number) is not None)
        if not 0 < len(calls) <= _MOST_CALLS:
            return None
        for attempt in self._forms(calls):
            found = self._bound(*attempt, outputs)
            if found is not None and self._is_right(found):
                return found
        return None

    def _forms(self, calls: list[Call]) -> list[tuple[list[Call], dict[int, Array]]]:
        """Return the calls as they are, and, where a norm can be folded into a convolution, so first."""
        from fuzzparity.sides.tape import folded

        forms: list[tuple[list[Call], dict[int, Array]]] = [(calls, {})]
        fewer, made = folded(self._tape, calls)
        return [(fewer, made), *forms] if made else forms

    def _outputs(self, wanted: Array) -> list[int]:
        """Return the values that may be the cut's answer: those that hold the same numbers, each once."""
        found: list[int] = []
        for number in self._alike(wanted):
            is_new = number in self._tape.makers and self._array(number).shape == wanted.shape
            if is_new and not any(self._follows(number, one) for one in found):
                found.append(number)
        return found

    def _alike(self, wanted: Array) -> list[int]:
        return [number for number in self._by_size.get(wanted.size, ()) if self._is_like(number, wanted)]

    def _is_one_value(self, numbers: list[int]) -> bool:
        """Tell whether values that hold the same numbers are one value, only handed on."""
        return all(self._follows(number, numbers[0]) for number in numbers[1:])

    def _array(self, number: int) -> Array:
        array = self._tape.array(number)
        assert array is not None
        return array

    def _is_like(self, number: int, array: Array) -> bool:
        own = self._tape.array(number)
        return own is not None and own.dtype == array.dtype and self._same(own, array)

    def _follows(self, number: int, first: int) -> bool:
        """Tell whether a value is another only handed on."""
        while number != first:
            made = self._tape.makers.get(number)
            if made is None:
                return False
            call = self._tape.calls[made]
            reads = call.reads()
            if not reads or not _hands_on(call):
                return False
            number = reads[0]
        return True

    def _feed(self, number: int) -> str | None:
        """Return the input of the cut that a value is; None where it is none, or could be several."""
        own = self._tape.array(number)
        if own is None:
            return None
        names = [name for name, array in self._feeds.items() if self._is_like(number, array)]
        return names[0] if len(names) == 1 else None

    def _bound(self, calls: list[Call], made: Mapping[int, Array], outputs: list[int]) -> Counterpart | None:
        """Return the program with each leaf bound to an array of the cut, or to one of its own."""
        from fuzzparity.sides.tape import leaves_of

        takes: dict[int, tuple[str, Any]] = {}
        own: dict[str, Array] = {}
        for number in leaves_of(calls):
            array = made[number] if number in made else self._tape.array(number)
            if array is None or array.dtype.kind not in "biuf":
                return None
            name = self._name_of(array)
            if name is not None:
                takes[number] = (name, _how(self._given[name], array))
            else:
                fresh = f"t{len(own)}" if own else "t"
                takes[number], own[fresh] = (fresh, ""), array
        twice = {name for name, _ in takes.values() if sum(one == name for one, _ in takes.values()) > 1}
        if twice & set(self._feeds):  # a value in two places: no accident
            twice -= {name for name in twice if _says_much(self._feeds[name])}
        read = {name for name, _ in takes.values()}
        related, differences = self._related(own, read)
        free = {name for name in (self._feeds.keys() | self._weights.keys()) & read - twice if self._is_one(name)}
        free -= {name for name in free & self._feeds.keys() if not self._is_one_value(self._alike(self._feeds[name]))}
        free |= {one.own for one in related.values()} | differences.keys()
        return Counterpart(tuple(calls), takes, tuple(outputs), own, frozenset(free), related, differences)

    @property
    def _given(self) -> dict[str, Array]:
        return self._feeds | self._weights

    def _name_of(self, array: Array) -> str | None:
        """Return the array of the cut that holds the same numbers, transposed or in another shape too."""
        for name, one in self._given.items():
            if one.dtype != array.dtype or one.size != array.size or (one.size < 2 and name not in self._feeds):
                continue
            if self._same(array, one) and (one.ndim < 2 or array.ndim < 2 or one.shape == array.shape):
                return name
            if one.ndim == 2 and one.T.shape == array.shape and self._same(array, np.ascontiguousarray(one.T)):
                return name
        return None

    def _is_one(self, name: str) -> bool:
        """Tell whether an array of the cut is told apart from its others by what it holds."""
        array = self._given[name]
        others = [one for other, one in self._given.items() if other != name and one.size == array.size]
        return not any(one.dtype == array.dtype and self._same(one, array) for one in others)

    def _related(self, own: Mapping[str, Array], read: set[str]) -> tuple[dict[str, Related], dict[str, Array]]:
        """Return the weights of the file that only nearly are torch's, each with how it follows from them."""
        related: dict[str, Related] = {}
        differences: dict[str, Array] = {}
        for name, weight in self._weights.items():
            alike = [one for one, array in own.items() if array.shape == weight.shape and array.size > 1]
            if name in read or not is_float(weight.dtype) or weight.dtype.kind == "V" or len(alike) != 1:
                continue
            array = own[alike[0]]
            if array.dtype != weight.dtype or any(one.own == alike[0] for one in related.values()):
                continue
            factor = _factor(array, weight)
            added = "" if factor is not None else f"d{len(differences)}"
            if added:
                differences[added] = weight - array
            related[name] = Related(alike[0], factor, added)
        return related, differences

    def _is_right(self, found: Counterpart) -> bool:
        """Tell whether the program gives torch's own answer on the cut's own values."""
        answers = found.run(self._given | dict(found.own))
        if answers is None or len(answers) != len(self._expected):
            return False
        pairs = zip(answers, self._expected.values(), strict=True)
        return all(
            one.shape == other.shape and one.dtype == other.dtype and self._same(one, other) for one, other in pairs
        )


def _hands_on(call: Call) -> bool:
    parts = call.name.split(".")
    return any(part in _HANDING for part in parts[-3:])


def _how(given: Array, wanted: Array) -> tuple[int, ...] | str:
    if given.shape == wanted.shape:
        return ""
    return "T" if given.ndim == 2 and given.T.shape == wanted.shape else wanted.shape


def _says_much(array: Array) -> bool:
    return array.size > 1 and np.unique(array.reshape(-1)[:64]).size > 1


def _factor(own: Array, weight: Array) -> float | None:
    """Return the number by which one array is another; None where there is none."""
    wide, other = own.astype(np.float64), weight.astype(np.float64)
    size = float((wide * wide).sum())
    if not np.isfinite(size) or size == 0.0:
        return None
    factor = float(f"{float((wide * other).sum()) / size:.6g}")
    near = np.abs(other - factor * wide).max() <= _SAME_FACTOR * np.abs(other).max()
    return factor if near and factor != 0.0 else None
