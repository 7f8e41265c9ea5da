"""Paying: which moves, and which kinds of parent, brought cases that show something new; for panel, status and page.

The idea: a campaign chooses its moves by what they bring; whoever watches it should see what that is. Counts alone are
shown, most brought first, so that they add up over leases and campaigns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fuzzparity.corpus.records import Effort
from fuzzparity.report.clean import printable

MOVE, PARENTS = "move", "parents"
_ENOUGH = 50  # uses after which a move that brought nothing is worth naming
_MOST_NAME = 40


def efforts_of(counts: Mapping[tuple[str, str], tuple[int, int]]) -> tuple[Effort, ...]:
    """Return counts by (kind, name) as records, what brought most first."""
    made = (Effort(kind, name, tried, kept) for (kind, name), (tried, kept) in counts.items())
    return tuple(sorted(made, key=lambda one: (one.kind, -one.kept, one.tried, one.name)))


def best(efforts: Iterable[Effort], kind: str, most: int) -> list[Effort]:
    """Return what brought most of one kind, as stored; what brought nothing is left out."""
    return [effort for effort in efforts if effort.kind == kind and effort.kept][:most]


def best_text(efforts: Iterable[Effort], kind: str, most: int) -> str:
    """Return "row mix 12 of 340, patch 9 of 77": new cases of uses."""
    return ", ".join(f"{_name(one)} {one.kept:,} of {one.tried:,}" for one in best(efforts, kind, most))


def pays_text(efforts: Iterable[Effort], most: int = 3) -> str:
    """Return the best moves and the families that lend the best parents in one line; "" before anything paid."""
    told = tuple(efforts)
    families = ", ".join(f"{_name(one)} {one.kept:,}" for one in best(told, PARENTS, most))
    parts = [best_text(told, MOVE, most), f"parents: {families}" if families else ""]
    return "; ".join(part for part in parts if part)


def idle_text(efforts: Iterable[Effort], most: int) -> str:
    """Return the moves that were used often and brought nothing, most used first."""
    idle = [one for one in efforts if one.kind == MOVE and not one.kept and one.tried >= _ENOUGH]
    idle.sort(key=lambda one: -one.tried)
    named = ", ".join(f"{_name(one)} 0 of {one.tried:,}" for one in idle[:most])
    return named + (f", and {len(idle) - most} more" if len(idle) > most else "")


def effort_rows(efforts: Sequence[Effort], kind: str, most: int) -> tuple[tuple[str, ...], ...]:
    """Return a row for each of one kind: name, uses, new cases, new cases in a hundred uses."""
    rows = [one for one in efforts if one.kind == kind][:most]
    return tuple(
        (_name(one), f"{one.tried:,}", f"{one.kept:,}", f"{100 * one.kept / one.tried:.2g}" if one.tried > 0 else "")
        for one in rows
    )


def _name(effort: Effort) -> str:
    return printable(effort.name, _MOST_NAME)
