"""Looks: what an error looks like, tried against the data and said only where it holds.

The idea: users know the usual mistakes by sight (channels in another order, a pixel's shift, 0..255 against 0..1). Each
is a transformation of torch's answer that would give ORT's; it is told when it leaves next to nothing of the error.
What only places the error (one item, the border) is told when nearly all of the error lies there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fuzzparity.case import Array, is_float

Wide = npt.NDArray[np.float64]

_LEFT = 1e-3  # of the error: what a transformation may leave and still be said to explain it
_LEAST = 8  # elements: fewer are explained by anything
_MOST = 1 << 20  # elements looked at
_MOST_PERMUTED = 4  # channels whose every order is tried; more are matched one by one up to `_MOST_MATCHED`
_MOST_MATCHED = 64
_PLACED = 0.99  # of the squared error in one item or at the border
_NAMED = {255.0: "255", 1 / 255: "1/255", 256.0: "256", 1 / 256: "1/256", 2.0: "2", 0.5: "1/2", -1.0: "-1"}


def looks_like(expected: Array, actual: Array) -> tuple[str, ...]:
    """Return in words what the error of ORT's output (`actual`) looks like; empty when nothing holds.

    Both have one shape and a float or integer dtype; anything else gives nothing. Costs a few passes over the arrays.
    """
    if expected.shape != actual.shape:
        return tuple(_of_shapes(expected, actual))
    if not (_is_number(expected) and _is_number(actual)) or not _LEAST <= expected.size <= _MOST:
        return ()
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    if not (np.isfinite(e).all() and np.isfinite(a).all()):
        return ()
    error = a - e
    whole = float(np.square(error).sum())
    if whole == 0.0:
        return ()
    return tuple(dict.fromkeys((*_transformations(e, a, whole), *_places(error, whole))))


def _is_number(array: Array) -> bool:
    return is_float(array.dtype) or array.dtype.kind in "iu"


def _explains(candidate: Wide, actual: Wide, whole: float) -> bool:
    return float(np.square(actual - candidate).sum()) <= _LEFT**2 * whole


def _of_shapes(expected: Array, actual: Array) -> Iterator[str]:
    """Look at outputs of different shapes: transposed, or one longer than the other by a little."""
    if not (_is_number(expected) and _is_number(actual)) or expected.ndim != actual.ndim:
        return
    if sorted(expected.shape) == sorted(actual.shape) and 1 < expected.ndim <= 4 and expected.size <= _MOST:
        for axes in itertools.permutations(range(expected.ndim)):
            turned = expected.transpose(axes)
            if turned.shape == actual.shape and np.allclose(turned, actual, rtol=1e-3, atol=0.0, equal_nan=True):
                yield f"transposed: ORT's axes are torch's {list(axes)}"
                return
    differing = [axis for axis in range(expected.ndim) if expected.shape[axis] != actual.shape[axis]]
    if len(differing) == 1:
        (axis,) = differing
        more = actual.shape[axis] - expected.shape[axis]
        yield f"ORT has {abs(more)} {'more' if more > 0 else 'fewer'} along axis {axis}"


def _transformations(e: Wide, a: Wide, whole: float) -> Iterator[str]:
    if np.ptp(a) == 0.0 and np.ptp(e) > 0.0:
        yield f"constant: ORT answers {a.flat[0]:.6g} everywhere"
        return
    yield from _affine(e, a, whole)
    yield from _turned(e, a, whole)
    for axis in range(e.ndim):
        yield from _shifted(e, a, whole, axis)
        yield from _permuted(e, a, whole, axis)
    low, high = float(a.min()), float(a.max())
    if (low > e.min() or high < e.max()) and _explains(np.clip(e, low, high), a, whole):
        yield f"saturated: ORT stays within {low:.6g} to {high:.6g}"


def _affine(e: Wide, a: Wide, whole: float) -> Iterator[str]:
    """Try one factor, one offset, and both, over the whole output."""
    if np.ptp(e) == 0.0:
        return
    offset = float((a - e).mean())
    if _explains(e + offset, a, whole):
        yield f"offset by {offset:.6g}"
        return
    square = float(np.square(e).sum())
    factor = float((e * a).sum()) / square
    if _explains(e * factor, a, whole):
        near = next((text for value, text in _NAMED.items() if abs(factor / value - 1) < _LEFT), f"{factor:.6g}")
        yield f"scaled by {near}"
        return
    spread = e - e.mean()
    factor = float((spread * (a - a.mean())).sum()) / float(np.square(spread).sum())
    offset = float(a.mean()) - factor * float(e.mean())
    if abs(factor) > _LEFT and _explains(e * factor + offset, a, whole):
        yield f"scaled by {factor:.6g} and offset by {offset:.6g}, as by another mean and deviation"


def _turned(e: Wide, a: Wide, whole: float) -> Iterator[str]:
    """Try transposed and mirrored axes that keep the shape."""
    for one, other in itertools.combinations(range(e.ndim), 2):
        if e.shape[one] == e.shape[other] > 1 and _explains(np.swapaxes(e, one, other), a, whole):
            yield f"transposed: axes {one} and {other} are exchanged"
    for axis in range(e.ndim):
        if e.shape[axis] > 2 and _explains(np.flip(e, axis), a, whole):
            yield f"reversed along axis {axis}"


def _shifted(e: Wide, a: Wide, whole: float, axis: int) -> Iterator[str]:
    """Try a shift by one, elements at the ends left out."""
    length = e.shape[axis]
    if length < 4:
        return
    ends = [slice(None)] * e.ndim
    before, after = ends.copy(), ends.copy()
    before[axis], after[axis] = slice(None, -1), slice(1, None)
    for step, source, target in ((1, before, after), (-1, after, before)):
        part_e, part_a = e[tuple(source)], a[tuple(target)]
        there = float(np.square(part_a - e[tuple(target)]).sum())
        if there > 0.5 * whole and float(np.square(part_a - part_e).sum()) <= _LEFT**2 * there:
            yield f"shifted by {step} along axis {axis}"


def _permuted(e: Wide, a: Wide, whole: float, axis: int) -> Iterator[str]:
    """Try another order along an axis: each slice of ORT's must be one of torch's, none twice."""
    length = e.shape[axis]
    if not 2 <= length <= _MOST_MATCHED or e.size // length < 2:
        return
    rows_e, rows_a = (np.moveaxis(x, axis, 0).reshape(length, -1) for x in (e, a))
    order = _matching(rows_e, rows_a)
    if order is None or order == list(range(length)) or not _explains(np.take(e, order, axis), a, whole):
        return
    if order == list(range(length))[::-1] and length > 2:
        return  # told as reversed
    if length <= _MOST_PERMUTED * 2:
        yield f"permuted along axis {axis}: ORT's order is torch's {order}"
    else:
        yield f"permuted along axis {axis}"


def _matching(rows_e: Wide, rows_a: Wide) -> list[int] | None:
    free = list(range(len(rows_e)))
    order = []
    for row in rows_a:
        distances = [float(np.square(rows_e[index] - row).sum()) for index in free]
        if not distances:
            return None
        order.append(free.pop(int(np.argmin(distances))))
    return order


def _places(error: Wide, whole: float) -> Iterator[str]:
    """Say where nearly all of the error lies, if it lies in one place."""
    squared = np.square(error)
    names = {0: "batch item"} | ({1: "channel"} if error.ndim > 2 else {})
    for axis in range(error.ndim):
        length = error.shape[axis]
        if length < 3:
            continue
        shares = squared.sum(axis=tuple(other for other in range(error.ndim) if other != axis)) / whole
        index = int(np.argmax(shares))
        if shares[index] >= _PLACED:
            place = f"{names[axis]} {index}" if axis in names else f"index {index} of axis {axis}"
            yield f"only {place} ({shares[index]:.1%} of the squared error)"
    if error.ndim >= 3 and min(error.shape[-2:]) >= 4:
        inner = squared[..., 1:-1, 1:-1].sum() / whole
        if 1.0 - inner >= _PLACED:
            yield f"only the border of the last two axes ({1.0 - inner:.1%} of the squared error)"
