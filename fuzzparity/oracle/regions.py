"""Regions: slices of an output that are allowed a tolerance of their own, such as "boxes[..., :4]".

The idea: every element belongs to one region, the most specific that holds it: more axes pinned by an integer first,
then more axes cut by a slice, then the one written first; the whole output's allowance has the rest. Each part is
compared by the one `compare`, and one comparison speaks for the output, in the whole output's coordinates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import EllipsisType

import numpy as np

from fuzzparity.case import Array
from fuzzparity.errors import InvalidTarget
from fuzzparity.oracle.compare import Allowance, compare, has_equal_bits, place
from fuzzparity.verdict import PRECEDENCE, Comparison, Kind

Part = int | slice | EllipsisType
_SLICE = re.compile(r"(-?\d{1,18})?\s*:\s*(-?\d{1,18})?\s*(?::\s*(-?\d{1,18})?)?")
_ANY = 1 << 20
_FINAL = (Kind.NUMERIC, Kind.DECISION)  # kinds of which a tolerance of the user is the last word


@dataclass(frozen=True, slots=True)
class Region:
    """Name a part of an output; `text` is as the user wrote it, `parts` what numpy indexes by."""

    text: str
    output: str
    parts: tuple[Part, ...]

    @property
    def specificity(self) -> tuple[int, int]:
        """Return how many axes an integer pins and how many a slice cuts."""
        integers = sum(isinstance(part, int) for part in self.parts)
        return integers, sum(isinstance(part, slice) and part != slice(None) for part in self.parts)

    def mark(self, marks: Array, value: int) -> None:
        """Write a value where the region lies; on an output that has no such place it lies nowhere."""
        try:
            marks[self.parts] = value
        except IndexError:
            return

    def problem(self, shape: tuple[int, ...]) -> str:
        """Return why the region cannot be cut from an output of this shape, "" when it can; it may be empty there."""
        whole = np.broadcast_to(
            np.zeros(()), [size or _ANY for size in shape]
        )  # an empty axis may hold items elsewhere
        try:
            whole[self.parts]
        except IndexError as error:
            return str(error)
        return ""

    def is_empty(self, shape: tuple[int, ...]) -> bool:
        """Tell whether the region holds no element of an output that has some."""
        marks = np.zeros(shape, np.bool_)
        self.mark(marks, 1)
        return bool(marks.size) and not marks.any()


def region_of(key: str, outputs: Iterable[str]) -> Region | None:
    """Return the region that a key of `tolerances` names, None for a whole output.

    InvalidTarget when the output does not exist or the slice cannot be read.
    """
    outputs = tuple(outputs)
    if key in outputs:
        return None
    owners = [name for name in outputs if key.startswith(f"{name}[") and key.endswith("]")]
    if not owners:
        named = ", ".join(map(repr, outputs))
        raise InvalidTarget("declare", f"tolerances name {key!r}, which is no output", f"the outputs are {named}")
    output = max(owners, key=len)
    return Region(key, output, parse(key[len(output) + 1 : -1], key))


@lru_cache(maxsize=256)
def parse(text: str, key: str = "") -> tuple[Part, ...]:
    """Return what stands between the brackets of a slice: integers, slices and one Ellipsis, read and never run."""
    parts: list[Part] = []
    for piece in (piece.strip() for piece in text.split(",")):
        found = _SLICE.fullmatch(piece)
        if piece == "...":
            parts.append(Ellipsis)
        elif re.fullmatch(r"-?\d{1,18}", piece):
            parts.append(int(piece))
        elif found is not None and found[3] not in ("0", "-0"):
            parts.append(slice(*(None if end is None else int(end) for end in found.groups())))
        else:
            raise _unreadable(key or text, f"{piece!r} is no integer, slice or ...")
    if parts.count(Ellipsis) > 1:
        raise _unreadable(key or text, "it holds ... twice")
    return tuple(parts)


def _unreadable(key: str, why: str) -> InvalidTarget:
    return InvalidTarget(
        "declare", f"the slice in tolerances {key!r} cannot be read: {why}", "write it as in 'boxes[..., :4]' or 'y[0]'"
    )


Regions = Sequence[tuple[Region, Allowance]]  # of one output, the most specific first


def ordered(regions: Iterable[tuple[Region, Allowance]]) -> tuple[tuple[Region, Allowance], ...]:
    """Return regions by the rule that says which of them an element belongs to."""
    return tuple(sorted(regions, key=lambda item: item[0].specificity, reverse=True))


def claims(shape: tuple[int, ...], regions: Regions) -> Array:
    """Return for each element the index of its region, -1 where it lies in none."""
    marks = np.full(shape, -1, np.int32)
    for index in reversed(range(len(regions))):  # the most specific is written last
        regions[index][0].mark(marks, index)
    return marks


def outside(array: Array, regions: Regions) -> Array:
    """Return an output with every region set to zero: what the whole output's allowance judges."""
    rest: Array = array.copy()
    rest[claims(array.shape, regions) >= 0] = 0
    return rest


def only(array: Array, regions: Regions, text: str) -> Array:
    """Return an output with zero outside of the region of that text; "" names what lies in no region."""
    index = next((index for index, (region, _) in enumerate(regions) if region.text == text), -1)
    kept: Array = array.copy()
    kept[claims(array.shape, regions) != index] = 0
    return kept


def compare_regions(expected: Array, actual: Array, regions: Regions, rest: Allowance) -> Comparison:
    """Compare each region under its own allowance and everything else under `rest`; one comparison tells the worst."""
    if expected.shape != actual.shape or expected.dtype != actual.dtype or has_equal_bits(expected, actual):
        return compare(expected, actual, rest)
    marks = claims(expected.shape, regions).reshape(-1)
    e, a = expected.reshape(-1), actual.reshape(-1)
    found: list[tuple[bool, Comparison]] = []
    for index in range(-1, len(regions)):
        at = np.flatnonzero(marks == index)
        if not at.size:
            continue
        allowance = rest if index < 0 else regions[index][1]
        one = compare(e[at], a[at], allowance)
        name = "" if index < 0 else regions[index][0].text
        where = None if one.index is None else (*place(int(at[one.index[0]]), expected.shape), *one.index[1:])
        found.append((allowance.is_users and one.kind in _FINAL, replace(one, index=where, region=name)))
    return _worst(found, expected.size)


def _worst(found: list[tuple[bool, Comparison]], size: int) -> Comparison:
    """Return what speaks for the output: what the user's word decides comes before what evidence has to."""

    def rank(item: tuple[bool, Comparison]) -> tuple[bool, bool, int, float]:
        is_final, one = item
        return one.kind is Kind.AGREE, not is_final, PRECEDENCE.index(one.kind), -one.error_ratio

    worst = min(found, key=rank)[1]
    same = [one for _, one in found if one.kind is worst.kind]
    return replace(worst, differing=sum(one.differing for one in same), compared=size)
