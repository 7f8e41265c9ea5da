"""Understood: the table of the contract as `check` shows it, and the same as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuzzparity.generate.understood import Line
from fuzzparity.report.cells import text

_STYLES = {"declared": "green", "learned": "yellow", "seeds": "dim", "default": "dim"}


def understood_text(lines: Sequence[Line]) -> RenderableType:
    """Return the contract as understood, a row for each line: what, why, and what to paste to change it."""
    if not lines:
        return Text("")
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("contract", no_wrap=True)
    for title in ("as understood", "because", "declare or change it by"):
        table.add_column(title, overflow="fold")
    for line in lines:
        table.add_row(
            text(line.subject), text(line.says), text(line.reason, _STYLES.get(line.source, "")), text(line.change)
        )
    return Group(Text(""), table)


def understood_object(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the contract as understood as JSON data."""
    return [
        {
            "subject": line.subject,
            "says": line.says,
            "source": line.source,
            "reason": line.reason,
            "change": line.change,
        }
        for line in lines
    ]
