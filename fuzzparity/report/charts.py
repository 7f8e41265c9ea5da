"""Charts: which sizes were tried, how a campaign went, how time grows with size.

The idea: sizes and times span decades, so axes are logarithmic where they must be, and say so by their ticks; what is
plotted is bounded by whoever asks the corpus.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fuzzparity.report.drawing import element, number, polyline, svg, words

_WIDTH, _HEIGHT = 640.0, 250.0  # px
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 28.0, 26.0, 38.0  # px around the plot, for ticks and titles


@dataclass(frozen=True, slots=True)
class Axis:
    """Map values of one axis to 0..1; `forward` is what makes it linear."""

    low: float
    high: float
    ticks: tuple[float, ...]
    forward: Callable[[float], float] = float

    def share(self, value: float) -> float:
        """Return where a value lies between the ends of the axis, 0..1."""
        low, high = self.forward(self.low), self.forward(self.high)
        return 0.5 if high <= low else (self.forward(value) - low) / (high - low)


def linear(values: Sequence[float], *, is_count: bool = False) -> Axis:
    """Return a linear axis from 0 to the largest value; counts have whole numbers as ticks."""
    top = max([1e-12, *(value for value in values if math.isfinite(value))])
    unit = 10.0 ** math.floor(math.log10(top))
    step = next(step for step in (unit / 5, unit / 2, unit, unit * 2, unit * 5) if top / step <= 5)
    step = max(step, 1.0) if is_count else step
    ticks = tuple(step * count for count in range(int(top / step) + 1))
    return Axis(0.0, top, ticks)


def sizes(values: Sequence[float]) -> Axis:
    """Return an axis for sizes, linear near 0 and logarithmic beyond: log(1 + value)."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    ticks = [tick for tick in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 16384, 65536) if low <= tick <= high]
    ends = [low] * (low not in ticks) + ticks + [high] * (high not in ticks and (not ticks or high > 1.3 * ticks[-1]))
    return Axis(low, high, tuple(ends), math.log1p)


def decades(values: Sequence[float]) -> Axis:
    """Return a logarithmic axis with a tick for each decade; values are above 0."""
    ends = [value for value in values if value > 0] or [1.0]
    low, high = math.floor(math.log10(min(ends))), math.ceil(math.log10(max(ends)))
    high = max(high, low + 1)
    every = max(1, -(-(high - low) // 6))
    ticks = tuple(10.0**power for power in range(low, high + 1, every))
    return Axis(10.0**low, 10.0**high, ticks, math.log10)


@dataclass(frozen=True, slots=True)
class Dot:
    """Place one dot; `class_` is its colour, `size` its radius in px, `title` what a pointer shows."""

    x: float
    y: float
    class_: str
    size: float = 4.0
    title: str = ""


def scatter(
    dots: Sequence[Dot], x: Axis, y: Axis, titles: tuple[str, str], keys: Mapping[str, str], label: str
) -> Markup:
    """Return dots over two axes; `keys` maps class to meaning."""
    parts = _frame(x, y, titles) + _keys(keys)
    for dot in dots:
        place = {"cx": _x(x, dot.x), "cy": _y(y, dot.y)}
        parts.append(element("circle", element("title", dot.title), r=dot.size, class_=f"dot {dot.class_}", **place))
    return svg(_WIDTH, _HEIGHT, *parts, label=label)


def steps(
    lines: Mapping[str, Sequence[tuple[float, float]]], x: Axis, y: Axis, titles: tuple[str, str], label: str
) -> Markup:
    """Return step lines over two axes, by class and name, each from its first point to the right end."""
    parts = _frame(x, y, titles) + _keys({name: name for name in lines})
    for name, points in lines.items():
        path: list[tuple[float, float]] = []
        for at, value in points:
            path += [(_x(x, at), path[-1][1])] if path else []
            path.append((_x(x, at), _y(y, value)))
        path += [(_x(x, x.high), path[-1][1])] if path else []
        parts.append(polyline(path, f"line {name}"))
    return svg(_WIDTH, _HEIGHT, *parts, label=label)


def _x(axis: Axis, value: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * axis.share(value)


def _y(axis: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * axis.share(value)


def _frame(x: Axis, y: Axis, titles: tuple[str, str]) -> list[Markup]:
    bottom = _HEIGHT - _BOTTOM
    parts = [element("rect", x=_LEFT, y=_TOP, width=_WIDTH - _LEFT - _RIGHT, height=bottom - _TOP, class_="frame")]
    for tick in x.ticks:
        at = _x(x, tick)
        parts += [element("line", x1=at, x2=at, y1=_TOP, y2=bottom, class_="grid")]
        parts += [words(at, bottom + 14, number(tick), "middle")]
    for tick in y.ticks:
        at = _y(y, tick)
        parts += [element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=at, y2=at, class_="grid")]
        parts += [words(_LEFT - 6, at + 4, number(tick), "end")]
    parts += [words((_WIDTH + _LEFT) / 2, _HEIGHT - 6, titles[0], "middle"), words(4, 14, titles[1])]
    return parts


def _keys(keys: Mapping[str, str]) -> list[Markup]:
    parts: list[Markup] = []
    right = _WIDTH - _RIGHT
    for class_, name in reversed(list(keys.items())):
        right -= 7.0 * len(name) + 24  # 7 px: the mean width of a letter at 12 px
        parts += [element("circle", cx=right + 6, cy=10, r=5, class_=f"dot {class_}"), words(right + 15, 14, name)]
    return parts
