"""Feedback: what an execution pair showed, as a bounded set of features.

The idea: a case is worth keeping when it shows a feature no other has shown. Each feature is text, `family:...`, with
magnitudes in coarse buckets, so that their number is bounded by the target's outputs and dims and never by time.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.contract import Contract
from fuzzparity.execution import Execution
from fuzzparity.generate.shapes import axes_of, is_prime
from fuzzparity.verdict import Judgement, Kind

MAX_OUTPUTS = 16  # outputs looked at
MAX_ROWS = 4  # rows whose decision is looked at
MAX_CLASSES = 64  # buckets of one argmax
RATIO_REACH = 12  # powers of two on each side of an error ratio of 1
MAX_DECISIONS = 64  # of one side's path that are looked at
MAX_KEYS = 1 << 10  # buckets of the places that decide
MAX_PATHS = 1 << 8  # buckets of whole paths
MARGIN_REACH = 40  # powers of two on each side of a distance of 1


def features(
    case: Case, contract: Contract, expected: Execution, actual: Execution, judgement: Judgement
) -> frozenset[str]:
    """Return the features of one judged case: outcomes, error ratios, decisions, ranges, non-finite pattern, shapes."""
    found = {f"outcome:{_outcome(expected)}|{_outcome(actual)}", f"kind:{judgement.kind.value}"}
    found.update(_shape_features(case, contract))
    for index, comparison in enumerate(judgement.comparisons[:MAX_OUTPUTS]):
        found.add(f"ratio:{index}:{_ratio_bucket(comparison.error_ratio)}")
        if comparison.kind is not Kind.AGREE:
            found.add(f"kind:{index}:{comparison.kind.value}")
    for execution in (expected, actual):
        found.update(_path_features(execution))
    if expected.is_ok:
        with np.errstate(all="ignore"):
            for index, output in enumerate(expected.outputs[:MAX_OUTPUTS]):
                found.update(_output_features(index, np.asarray(output)))
            for index, output in enumerate(actual.outputs[:MAX_OUTPUTS] if actual.is_ok else ()):
                found.add(f"nonfinite:{index}:ort:{_nonfinite_class(np.asarray(output))}")
    return frozenset(found)


def _path_features(execution: Execution) -> Iterator[str]:
    """Yield what a side decided: each outcome of each place, all of them as one, and how near to its threshold."""
    decisions = execution.decisions[:MAX_DECISIONS]
    for decision in decisions:
        key = zlib.crc32(decision.key.encode()) % MAX_KEYS
        yield f"path:{key}:{decision.outcome}"
        if decision.margin is not None:
            yield f"margin:{key}:{_distance(decision.margin)}"
    if len(decisions) > 1:
        path = "|".join(f"{decision.key}={decision.outcome}" for decision in decisions)
        yield f"path:all:{zlib.crc32(path.encode()) % MAX_PATHS}"


def _distance(margin: float) -> str:
    """Return side and exponent of a distance to a threshold, four powers of two at a time."""
    if margin == 0 or not math.isfinite(margin):
        return "at" if margin == 0 else "far"
    exponent = max(-MARGIN_REACH, min(MARGIN_REACH, math.frexp(margin)[1]))
    return f"{'above' if margin > 0 else 'below'} {exponent // 4}"


def _outcome(execution: Execution) -> str:
    if execution.is_ok:
        return "ok"
    site = execution.refusal.site or execution.refusal.error_class if execution.refusal is not None else ""
    return f"{execution.status.value} {site[:80]} {execution.signal or ''}".rstrip()


def _ratio_bucket(ratio: float) -> str:
    if not math.isfinite(ratio):
        return "inf"
    if ratio <= 0:
        return "none"
    return str(max(-RATIO_REACH, min(RATIO_REACH, math.floor(math.log2(ratio)))))


def _output_features(index: int, output: Array) -> Iterator[str]:
    yield f"size:{index}:{output.size.bit_length()}"
    if output.size == 0:
        return
    if output.dtype.kind == "b":
        share = float(output.mean())
        yield f"decision:{index}:{'none' if share == 0 else 'all' if share == 1 else 'some'}"
    elif is_float(output.dtype):
        yield from _float_features(index, output)
    elif output.dtype.kind in "iu":
        yield f"decision:{index}:{_signed_bucket(int(output.min()))}:{_signed_bucket(int(output.max()))}"


def _float_features(index: int, output: Array) -> Iterator[str]:
    if output.dtype.kind == "V":
        output = output.astype(np.float32)
    pattern = _nonfinite_class(output)
    yield f"nonfinite:{index}:torch:{pattern}"
    largest = float(np.fmax.reduce(np.abs(output), axis=None)) if pattern == "finite" else math.inf
    yield f"range:{index}:{_exponent(largest)}"
    if output.ndim and 1 < output.shape[-1] <= 4096:
        width = output.shape[-1]
        for row in output.reshape(-1, width)[:MAX_ROWS]:
            yield f"decision:{index}:{int(row.argmax()) * min(width, MAX_CLASSES) // width}"


def _nonfinite_class(output: Array) -> str:
    if not is_float(output.dtype):
        return "finite"
    wide = output.astype(np.float32) if output.dtype.kind == "V" else output
    if np.isfinite(wide).all():
        return "finite"
    nan = np.isnan(wide)
    kinds = [name for name, has in (("nan", nan), ("+", wide == np.inf), ("-", wide == -np.inf)) if has.any()]
    return nonfinite_words(kinds, not np.isfinite(wide).any())


def nonfinite_words(kinds: Sequence[str], is_everywhere: bool) -> str:
    """Return how a pattern of "nan", "+" and "-" is spelled; "finite" when there is none of them."""
    return " ".join([*kinds, "everywhere"] if is_everywhere else kinds) or "finite"


def _exponent(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return "none" if value == 0 else "inf"
    return str(max(-20, min(20, math.floor(math.log2(value) / 4))))


def _signed_bucket(value: int) -> int:
    """Return 0 for 0 and else the sign times the number of bits: at most 129 buckets."""
    return value.bit_length() if value >= 0 else -value.bit_length()


def _shape_features(case: Case, contract: Contract) -> Iterator[str]:
    for axis in axes_of(contract)[:MAX_OUTPUTS]:
        index, place = axis.places[0]
        shape = case.inputs[contract.inputs[index].name].shape
        if place < len(shape):
            size = shape[place]
            side = "as" if size == axis.size else "over" if size > axis.size else "under"
            yield f"shape:{axis.symbol}:{_size_class(size)}:{side}"
            if size in (axis.low, axis.high):
                yield f"shape:{axis.symbol}:bound {'low' if size == axis.low else 'high'}"


def _size_class(size: int) -> str:
    if size <= 3:
        return str(size)
    if size & (size - 1) == 0:
        return "power of two"
    return "prime" if is_prime(size) else "even" if size % 2 == 0 else "odd"
