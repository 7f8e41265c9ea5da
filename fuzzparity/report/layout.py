"""Layout: the few forms that all reports share: name and value in two columns, times, sizes.

The idea: a value is data and never markup, whoever named it.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fuzzparity.report.clean import printable


def pairs(lines: Iterable[tuple[str, str]]) -> RenderableType:
    """Return name and value in two columns; every value is data, never markup."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in lines:
        grid.add_row(Text(name), Text(printable(value)))
    return grid


def duration(seconds: float) -> str:
    """Return seconds as "45 s", "3 m 05 s", "2 h 07 m" or "3 d 04 h"."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def milliseconds(seconds: float | None) -> str:
    """Return seconds as milliseconds with three digits."""
    return "?" if seconds is None else f"{seconds * 1000:.3g} ms"


def size(size_bytes: float) -> str:
    """Return bytes as B, KiB, MiB or GiB."""
    for unit in ("B", "KiB", "MiB"):
        if abs(size_bytes) < 1024:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"
