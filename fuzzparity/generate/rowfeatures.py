"""Row features: which rows of a stack show a feature that no case has shown, at next to no cost for all the others.

The idea: a row's features are the same texts that `features` gives for it alone. Here each is a small whole number
computed for all rows at once, and a table by output and family says which numbers are known; only for a new number is
the text made, and the pool asked.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, is_float
from fuzzparity.execution import Execution
from fuzzparity.generate.feedback import MAX_CLASSES, MAX_OUTPUTS, MAX_ROWS, RATIO_REACH, nonfinite_words

Codes = npt.NDArray[np.int64]
_EXPONENT_REACH = 20
_BITS = 65  # one more than the largest bit length


@dataclass(frozen=True, slots=True)
class _Family:
    """Hold one family of one output: a code by row, and how to spell a code as a feature."""

    key: str
    codes: Codes
    count: int
    spell: Callable[[int], str]


class RowFeatures:
    """Remember which row features are known; bounded by the target's outputs."""

    def __init__(self, known: Container[str]) -> None:
        """`known` tells which features any case has shown."""
        self._known = known
        self._tables: dict[str, npt.NDArray[np.bool_]] = {}

    def novel(
        self, expected: Execution, actual: Execution, axes: Sequence[int], ratios: Sequence[Array], most: int
    ) -> list[int]:
        """Return up to `most` rows that show something new, and take what they show as known from now on."""
        found: dict[int, None] = {}
        with np.errstate(all="ignore"):
            for family in _families(expected, actual, axes, ratios):
                table = self._tables.setdefault(family.key, np.zeros(family.count, bool))
                fresh = ~table[family.codes]
                if not fresh.any():
                    continue
                for code in np.unique(family.codes[fresh]).tolist():
                    if family.spell(code) in self._known:
                        table[code] = True
                        continue
                    row = int((family.codes == code).argmax())
                    if row in found or len(found) < most:
                        found[row] = None
                        table[code] = True
        return list(found)


def _families(
    expected: Execution, actual: Execution, axes: Sequence[int], ratios: Sequence[Array]
) -> Iterator[_Family]:
    pairs = zip(expected.outputs, actual.outputs, axes, ratios, strict=True)
    for index, (e, a, axis, ratio) in enumerate(pairs):
        if index >= MAX_OUTPUTS:
            return
        yield _ratio_family(index, ratio)
        if e.size == 0:
            continue
        if e.dtype.kind == "b":
            yield _flag_family(index, _rows(e, axis))
        elif e.dtype.kind in "iu":
            yield _integer_family(index, _rows(e, axis))
        elif is_float(e.dtype):
            yield from _float_families(index, e, a, axis)


def _rows(output: Array, axis: int) -> Array:
    front = output if axis == 0 else np.moveaxis(output, axis, 0)
    front = front.astype(np.float32) if front.dtype.kind == "V" else front
    return front.reshape(front.shape[0], -1)


def _ratio_family(index: int, ratios: Array) -> _Family:
    none, infinite = 2 * RATIO_REACH + 1, 2 * RATIO_REACH + 2
    codes = np.clip(np.floor(np.log2(ratios)), -RATIO_REACH, RATIO_REACH) + RATIO_REACH
    codes = np.where(ratios <= 0, none, np.where(np.isfinite(ratios), codes, infinite))

    def spell(code: int) -> str:
        word = {none: "none", infinite: "inf"}.get(code, str(code - RATIO_REACH))
        return f"ratio:{index}:{word}"

    return _Family(f"ratio:{index}", codes.astype(np.int64), infinite + 1, spell)


def _float_families(index: int, e: Array, a: Array, axis: int) -> Iterator[_Family]:
    e_rows, a_rows = _rows(e, axis), _rows(a, axis)
    largest = np.abs(e_rows).max(axis=1)
    classes = _nonfinite_classes(e_rows, largest)
    yield _nonfinite_family(index, "torch", classes)
    yield _nonfinite_family(index, "ort", _nonfinite_classes(a_rows, np.abs(a_rows).max(axis=1)))
    yield _range_family(index, np.where(classes == 0, largest, np.inf))
    if 1 < e.shape[-1] <= 4096 and axis != e.ndim - 1:
        yield _decision_family(index, e_rows.reshape(len(e_rows), -1, e.shape[-1])[:, :MAX_ROWS], e.shape[-1])


def _nonfinite_classes(rows: Array, largest: Array) -> Codes:
    """Return by row which of NaN (1), Inf (2) and -Inf (4) it holds, and 8 where it holds nothing else."""
    classes = np.zeros(len(rows), np.int64)
    odd = ~np.isfinite(largest)
    if odd.any():
        part = rows[odd]
        nan, above, below = np.isnan(part), part == np.inf, part == -np.inf
        everywhere = ~np.isfinite(part).any(axis=1)
        classes[odd] = nan.any(1) + 2 * above.any(1) + 4 * below.any(1) + 8 * everywhere
    return classes


def _nonfinite_family(index: int, side: str, classes: Codes) -> _Family:
    def spell(code: int) -> str:
        words = [word for bit, word in ((1, "nan"), (2, "+"), (4, "-")) if code & bit]
        return f"nonfinite:{index}:{side}:{nonfinite_words(words, bool(code & 8))}"

    return _Family(f"nonfinite:{index}:{side}", classes, 16, spell)


def _range_family(index: int, largest: Array) -> _Family:
    none, infinite = 2 * _EXPONENT_REACH + 1, 2 * _EXPONENT_REACH + 2
    codes = np.clip(np.floor(np.log2(largest.astype(np.float64)) / 4), -_EXPONENT_REACH, _EXPONENT_REACH)
    codes = np.where(largest == 0, none, np.where(np.isfinite(largest), codes + _EXPONENT_REACH, infinite))

    def spell(code: int) -> str:
        word = {none: "none", infinite: "inf"}.get(code, str(code - _EXPONENT_REACH))
        return f"range:{index}:{word}"

    return _Family(f"range:{index}", codes.astype(np.int64), infinite + 1, spell)


def _decision_family(index: int, slices: Array, width: int) -> _Family:
    classes = slices.argmax(axis=2) * min(width, MAX_CLASSES) // width
    # one code for each row is enough for the table: the first slice turns, so that each is looked at in time
    codes = classes[np.arange(len(classes)), np.arange(len(classes)) % classes.shape[1]]
    return _Family(f"decision:{index}", codes.astype(np.int64), MAX_CLASSES, lambda code: f"decision:{index}:{code}")


def _flag_family(index: int, rows: Array) -> _Family:
    codes = np.asarray(rows.any(axis=1).astype(np.int64) + rows.all(axis=1), np.int64)
    words = ("none", "some", "all")
    return _Family(f"decision:{index}", codes, 3, lambda code: f"decision:{index}:{words[code]}")


def _integer_family(index: int, rows: Array) -> _Family:
    low, high = _signed_bits(rows.min(axis=1)), _signed_bits(rows.max(axis=1))
    span = 2 * _BITS + 1

    def spell(code: int) -> str:
        return f"decision:{index}:{code // span - _BITS}:{code % span - _BITS}"

    codes = np.asarray((low + _BITS) * span + high + _BITS, np.int64)
    return _Family(f"decision:{index}", codes, span * span, spell)


def _signed_bits(values: Array) -> Codes:
    """Return the sign times the number of bits, as `features` has it (one off, at times, from 2**53 on)."""
    wide = values.astype(np.float64)
    return (np.sign(wide) * np.frexp(np.abs(wide))[1]).astype(np.int64)
