"""Pictures: what an error looks like: maps of an image or sequence, profiles of a vector, values when they are few.

The idea: torch, ONNX Runtime and their difference stand side by side on the same axes; both sides share one scale, so
that what looks different is different. NaN and infinities have colours of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from fuzzparity.case import Array
from fuzzparity.report.drawing import element, number, png_uri, polyline, svg, words
from fuzzparity.report.planes import FEW_VALUES, Plane, Values, error_of, plane_of, wide

Colour = tuple[int, int, int]

_LEAST_PROFILE = 4  # fewer points make no line
PANEL = 260  # px, the width of a map
_THIN = 110  # px, the least that a long and thin map is drawn with
_PROFILE = (660, 150, 80)  # px: width, height of the values, height of the difference
# anchors of viridis and inferno, evenly spaced (matplotlib, "_cm_listed.py", CC0)
_VALUE_COLOURS: tuple[Colour, ...] = (
    *((68, 1, 84), (71, 44, 122), (59, 81, 139), (44, 113, 142), (33, 144, 141)),
    *((39, 173, 129), (92, 200, 99), (170, 220, 50), (253, 231, 37)),
)
_ERROR_COLOURS: tuple[Colour, ...] = (
    *((0, 0, 4), (31, 12, 72), (85, 15, 109), (136, 34, 106), (186, 54, 85)),
    *((227, 89, 51), (249, 140, 10), (249, 201, 50), (252, 255, 164)),
)
_NAN, _INFINITE, _UNCOUNTED = (255, 0, 200), (0, 210, 255), (128, 128, 128)


@dataclass(frozen=True, slots=True)
class Picture:
    """Hold drawings with what they show; `rows` are index, torch, ORT, difference where values are few."""

    drawings: tuple[Markup, ...] = ()
    rows: tuple[tuple[str, str, str, str], ...] = ()
    caption: str = ""
    colours: tuple[tuple[str, str], ...] = ()  # of special values: class and meaning


def picture_of(
    expected: Array, actual: Array, worst: tuple[int, ...] | None = None, where: Array | None = None
) -> Picture | None:
    """Return the picture of two outputs of one shape; None when there is nothing to compare."""
    plane = plane_of(expected, actual, worst, where)
    if plane is None:
        return None
    if expected.size <= FEW_VALUES:
        drawings = (_profile(plane),) if max(plane.lengths, default=0) >= _LEAST_PROFILE else ()
        rows = _rows(expected, actual, where)
        return Picture(drawings, rows, "Every element of this output.", _special(plane) if drawings else ())
    if len(plane.axes) == 2:
        return Picture(_maps(plane), caption=_caption(plane), colours=_special(plane))
    return Picture((_profile(plane),), caption=_caption(plane), colours=_special(plane))


def input_picture(array: Array) -> Picture | None:
    """Return one input as a map, if it has two axes to show; None otherwise."""
    plane = plane_of(array, array)
    if plane is None or len(plane.axes) != 2 or array.size <= FEW_VALUES:
        return None
    low, high = _ends(plane.expected)
    drawing = _map("input", plane.expected, _shades(plane.expected, low, high, _VALUE_COLOURS), (low, high), None)
    return Picture((drawing,), caption=_caption(plane), colours=_special(plane))


def _rows(expected: Array, actual: Array, where: Array | None) -> tuple[tuple[str, str, str, str], ...]:
    left, right = wide(expected), wide(actual)
    error = error_of(left, right, where)
    return tuple(
        (
            "".join(f"[{', '.join(map(str, index))}]"),
            f"{left[index]:.9g}",  # 9 digits tell every float32 apart (IEEE 754)
            f"{right[index]:.9g}",
            "does not count" if np.isnan(error[index]) else number(float(error[index])),
        )
        for index in np.ndindex(expected.shape)
    )


def _caption(plane: Plane) -> str:
    if len(plane.axes) == 2:
        shown = (
            f"Rows are axis {plane.axes[0]} ({plane.lengths[0]:,}), columns axis {plane.axes[1]} ({plane.lengths[1]:,})"
        )
    else:
        shown = f"Along axis {plane.axes[0]} ({plane.lengths[0]:,})" if plane.axes else "One value"
    fixed = "".join(f", at {index} of {length:,} on axis {axis}" for axis, index, length in plane.fixed)
    thinned = " Each mark stands for several elements: the one that differs most." if plane.is_thinned else ""
    is_framed = len(plane.axes) == 2 and np.nanmax(plane.error, initial=0.0) > 0
    return f"{shown}{fixed}.{thinned}{' The worst element is framed.' if is_framed else ''}"


def _special(plane: Plane) -> tuple[tuple[str, str], ...]:
    both = np.concatenate([plane.expected.reshape(-1), plane.actual.reshape(-1)])
    told = [("nan", "NaN")] if np.isnan(both).any() else []
    told += [("infinite", "infinite")] if np.isinf(both).any() or np.isinf(plane.error).any() else []
    return tuple(told + ([("uncounted", "does not count")] if np.isnan(plane.error).any() else []))


def _maps(plane: Plane) -> tuple[Markup, ...]:
    low, high = _ends(np.concatenate([plane.expected.reshape(-1), plane.actual.reshape(-1)]))
    top = _ends(plane.error)[1]
    return (
        _map("torch", plane.expected, _shades(plane.expected, low, high, _VALUE_COLOURS), (low, high), plane.marked),
        _map("ONNX Runtime", plane.actual, _shades(plane.actual, low, high, _VALUE_COLOURS), (low, high), plane.marked),
        _map(
            *("difference", plane.error, _error_shades(plane.error, top), (0.0, top), plane.marked),
            colours=_ERROR_COLOURS,
        ),
    )


def _map(
    title: str,
    values: Values,
    pixels: npt.NDArray[np.uint8],
    ends: tuple[float, float],
    marked: tuple[int, ...] | None,
    *,
    colours: tuple[Colour, ...] = _VALUE_COLOURS,
) -> Markup:
    """Return one panel: title, pixels, the worst element framed, and the scale below."""
    rows, columns = values.shape
    height = float(min(PANEL, max(_THIN, PANEL * rows / columns)))
    width = float(min(PANEL, max(_THIN, height * columns / rows))) if rows > columns else float(PANEL)
    parts = [words(0, 13, title, class_="title")]
    parts.append(
        element(
            "image",
            href=png_uri(pixels),
            **{"x": 0, "y": 20, "width": width, "height": height, "preserveAspectRatio": "none", "class_": "pixels"},
        )
    )
    parts.append(element("rect", x=0, y=20, width=width, height=height, class_="frame"))
    if marked is not None:
        cell = (max(width / columns, 5.0), max(height / rows, 5.0))
        x, y = (marked[1] + 0.5) * width / columns, 20 + (marked[0] + 0.5) * height / rows
        for class_, more in (("mark-outer", 1.5), ("mark", 0.0)):
            parts.append(
                element(
                    "rect",
                    x=x - cell[0] / 2 - more,
                    y=y - cell[1] / 2 - more,
                    width=cell[0] + 2 * more,
                    height=cell[1] + 2 * more,
                    class_=class_,
                )
            )
    scale = np.array([[colours[0]] * 1 + list(_ramp(np.linspace(0, 1, 48), colours))], np.uint8)
    parts.append(
        element(
            "image",
            href=png_uri(scale),
            **{"x": 0, "y": 26 + height, "width": PANEL, "height": 8, "preserveAspectRatio": "none"},
        )
    )
    parts.append(words(0, 47 + height, number(ends[0])))
    parts.append(words(PANEL, 47 + height, number(ends[1]), "end"))
    label = f"{title}, {rows} by {columns}, from {number(ends[0])} to {number(ends[1])}"
    return svg(PANEL, 52 + height, *parts, label=label)


def _ends(values: Values) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def _ramp(level: npt.NDArray[np.float64], colours: tuple[Colour, ...]) -> npt.NDArray[np.float64]:
    table = np.array(colours, np.float64)
    places = np.linspace(0, 1, len(table))
    return np.stack([np.interp(level, places, table[:, channel]) for channel in range(3)], axis=-1)


def _shades(values: Values, low: float, high: float, colours: tuple[Colour, ...]) -> npt.NDArray[np.uint8]:
    with np.errstate(all="ignore"):
        # halved first: high - low of two large floats overflows
        level = (values / 2 - low / 2) / (high / 2 - low / 2) if high > low else np.full(values.shape, 0.5)
    pixels = _ramp(np.nan_to_num(level, nan=0.0, posinf=1.0, neginf=0.0), colours)
    pixels[np.isnan(values)] = _NAN
    pixels[np.isinf(values)] = _INFINITE
    return pixels.round().astype(np.uint8)


def _error_shades(error: Values, top: float) -> npt.NDArray[np.uint8]:
    pixels = _shades(error, 0.0, top, _ERROR_COLOURS) if top > 0 else _shades(error, 0.0, 1.0, _ERROR_COLOURS)
    pixels[np.isnan(error)] = _UNCOUNTED
    return pixels


def _profile(plane: Plane) -> Markup:
    """Return torch and ORT as lines over one scale, and their difference as bars below."""
    width, height, below = _PROFILE
    left, top, gap = 74.0, 22.0, 26.0
    count = max(1, plane.error.size)
    step = (width - left - 8) / count
    xs = [left + (place + 0.5) * step for place in range(count)]
    low, high = _ends(np.concatenate([plane.expected.reshape(-1), plane.actual.reshape(-1)]))
    parts = [element("rect", x=left, y=top, width=width - left - 8, height=height, class_="frame")]
    parts += [words(left - 6, top + 10, number(high), "end"), words(left - 6, top + height, number(low), "end")]
    for name, values, class_ in (("torch", plane.expected, "torch"), ("ONNX Runtime", plane.actual, "ort")):
        ys = [_level(value, low, high, top, height) for value in values.reshape(-1).tolist()]
        parts.append(polyline(list(zip(xs, ys, strict=True)), f"line {class_}"))
        if count <= 40:  # single points can be told apart
            parts += [
                element("circle", cx=x, cy=y, r=3, class_=f"dot {class_}")
                for x, y in zip(xs, ys, strict=True)
                if np.isfinite(y)
            ]
        parts += _stray(xs, values.reshape(-1).tolist(), top, height)
        x = left + (0 if class_ == "torch" else 90)
        parts += [element("rect", x=x, y=6, width=14, height=4, class_=f"key {class_}"), words(x + 19, 13, name)]
    base, most = top + height + gap, _ends(plane.error)[1]
    parts.append(element("rect", x=left, y=base, width=width - left - 8, height=below, class_="frame"))
    parts += [words(left - 6, base + 10, number(most), "end"), words(left - 6, base + below, "0", "end")]
    parts.append(words(left, base - 6, "difference"))
    for x, value in zip(xs, plane.error.reshape(-1).tolist(), strict=True):
        share = 1.0 if value == np.inf else value / most if most and np.isfinite(value) else 0.0
        if share > 0:
            bar = below * share
            class_ = "bar infinite" if value == np.inf else "bar"
            parts.append(
                element("rect", x=x - step * 0.4, y=base + below - bar, width=step * 0.8, height=bar, class_=class_)
            )
    ends = (0, plane.lengths[0] - 1 if plane.lengths else 0)
    parts += [words(left, base + below + 15, str(ends[0])), words(width - 8, base + below + 15, f"{ends[1]:,}", "end")]
    label = f"torch and ONNX Runtime along {count} elements, difference up to {number(most)}"
    return svg(width, base + below + 20, *parts, label=label)


def _level(value: float, low: float, high: float, top: float, height: float) -> float:
    if not np.isfinite(value):
        return float("nan")
    share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
    return top + height - height * share


def _stray(xs: list[float], values: list[float], top: float, height: float) -> list[Markup]:
    """Return marks for what has no place on the scale: NaN and infinities at its ends."""
    marks = []
    for x, value in zip(xs, values, strict=True):
        if not np.isfinite(value):
            y = top + height if value == -np.inf else top
            marks.append(element("circle", cx=x, cy=y, r=3, class_="nan" if np.isnan(value) else "infinite"))
    return marks
