"""Cells: the texts and frames that tables are made of.

The idea: a text may come from a stranger, so it becomes a `Text` of printable characters, which is never read as
markup; figures are shown as short as they stay true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from fuzzparity.report.clean import printable

_LONG = frozenset({"headline", "command", "mutators", "corpus", "target", "input", "values", "origin"})
_SPARKS = "▁▂▃▄▅▆▇█"


def text(value: object, style: str = "") -> Text:
    """Return a text of any origin as one printable line without markup."""
    return Text(printable(value), style=style)


def table_of(*columns: str) -> Table:
    """Return an empty table; only columns of long texts fold, so that ids can be copied from a narrow terminal."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in _LONG)
    return table


def fields(lines: Mapping[str, object]) -> Table:
    """Return name and value per line; what is not known has no line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines.items():
        if value not in ("", None):
            table.add_row(Text(name), text(value))
    return table


def shapes_text(shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str] | None = None) -> str:
    """Return `x float32[1, 2], y [3]`."""
    return ", ".join(f"{name} {(dtypes or {}).get(name, '')}{list(shape)}" for name, shape in shapes.items())


def sparkline(values: Sequence[float], show: Callable[[float], str] | None = None) -> str:
    """Return the course of some values as one line of bars, with its last value."""
    if len(values) < 2 or max(values) <= 0:
        return ""
    top = max(values)
    bars = "".join(_SPARKS[min(7, int(7.99 * max(value, 0) / top))] for value in values)
    return f"{bars} {show(values[-1]) if show else f'{values[-1]:,.0f}'}"


def duration(seconds: float) -> str:
    """Return seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def milliseconds(seconds: float | None) -> str:
    """Return milliseconds in three digits; empty when not measured."""
    return "" if seconds is None else f"{seconds * 1000:.3g} ms"


def size_text(count: float) -> str:
    """Return a number of bytes in a fitting unit."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
