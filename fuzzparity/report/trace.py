"""Trace: the error along a graph as a table, as JSON, and as a picture in SVG.

The idea: most rows of a long graph say "rounding"; shown are those where something begins or changes, and the picture
shows all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from rich.console import Group
from rich.table import Table

from fuzzparity.contract import TargetFacts
from fuzzparity.explain.tracing import Range, Traced, TraceRow
from fuzzparity.report.cells import fields, table_of, text
from fuzzparity.report.clean import printable
from fuzzparity.verdict import Comparison, Verdict, as_plain

SCHEMA = 1
_MOST_ROWS = 40  # of a table that a person looks through; `--all` shows every row
_STEP = 10.0  # times the error before: an accumulated error that grows so much is worth a row
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 360, 60, 16, 40, 46  # of the picture, in pixels
_FLOOR = 1e-10  # errors below are drawn there


def trace_text(traced: Traced, name: str, *, is_whole: bool = False) -> Group:
    """Return a trace for a terminal: what is known of the place, then the rows."""
    shown = list(traced.rows) if is_whole else interesting(traced)
    first = traced.first
    lines = {
        "case": name,
        "verdict": _verdict(traced.verdict),
        **place_fields(traced.verdict),
        "over policy": f"first at {first.onnx_node} ({first.value}), {_figure(first.accumulated)}" if first else "",
        "values": f"{len(traced.rows)} paired by {traced.paired_by}"
        + ("" if len(shown) == len(traced.rows) else f"; the {len(shown)} that matter are shown, --all shows all"),
    }
    notes = [text(note, "dim") for note in traced.notes]
    return Group(fields(lines), *notes, "", _table(traced, shown), "", text(_LEGEND, "dim"))


_LEGEND = (
    "local: these nodes alone, on torch's values; accumulated: in a run of the whole file without graph passes. The "
    "largest absolute error, and in brackets how many times what torch.testing.assert_close allows."
)


def _verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return "agree"
    return f"{verdict.kind.value}, {verdict.grade.value}: {verdict.headline}"


def place_fields(verdict: Verdict | None) -> dict[str, str]:
    """Return what is known of a verdict's place: where it is born, in the graph and in the user's own code."""
    known = verdict.attribution if verdict is not None else None
    if known is None or not known.place_how:
        return {}
    return {
        "born": known.place_how,
        "in the code": ", ".join(part for part in (known.module, known.source) if part),
        "certainty": "a guess" if known.is_guess else "",
    }


def interesting(traced: Traced) -> list[TraceRow]:
    """Return the rows where something begins or changes, at most a screen or two of them, in order."""
    rows, chosen = traced.rows, set[int]()
    before = 0.0
    for row in rows:
        own = row.local.error_ratio if row.local is not None else 0.0
        whole = row.accumulated.max_abs if row.accumulated is not None else before
        if own > 1.0 or _is_guilty(traced, row) or whole > _STEP * max(before, _FLOOR) or row is traced.first:
            chosen.add(row.order)
        before = max(before, whole) if math.isfinite(whole) else before
    by_error = sorted(rows, key=lambda row: -(row.accumulated.error_ratio if row.accumulated else 0.0))
    for row in (*rows[:2], *rows[-2:], *by_error):
        if len(chosen) >= min(_MOST_ROWS, len(rows)):
            break
        if len(chosen) < 12 or row in rows[-2:]:  # a table of a dozen is worth having even where nothing is over
            chosen.add(row.order)
    kept = [row for row in rows if row.order in chosen]
    return kept[:_MOST_ROWS]


def _is_guilty(traced: Traced, row: TraceRow) -> bool:
    known = traced.verdict.attribution if traced.verdict is not None else None
    return known is not None and bool(known.onnx_node) and row.onnx_node == known.onnx_node


def _table(traced: Traced, rows: Sequence[TraceRow]) -> Table:
    table = table_of("", "#", "ONNX node", "op", "from", "local", "accumulated", "torch range", "ORT range")
    for row in rows:
        guilty = _is_guilty(traced, row)
        mark = ">" if guilty else "!" if row is traced.first else ""
        style = "bold red" if guilty else "yellow" if row.local is not None and row.local.error_ratio > 1 else ""
        origin = " ".join(part for part in (row.module, row.source) if part)
        cells = (
            mark,
            row.order,
            "/".join((*(part.rpartition("/")[2] for part in row.path), row.onnx_node)),
            "+".join(dict.fromkeys(row.ops)),
            origin,
            _figure(row.local),
            _figure(row.accumulated),
            _range(row.torch_range),
            _range(row.ort_range),
        )
        table.add_row(*(text(cell, style) for cell in cells))
    return table


def _figure(found: Comparison | None) -> str:
    if found is None:
        return ""
    if found.detail and not math.isfinite(found.error_ratio):
        return found.detail
    return f"{found.max_abs:.2g} ({found.error_ratio:.2g})" if found.max_abs or found.error_ratio else "0"


def _range(found: Range | None) -> str:
    if found is None or found.low is None or found.high is None:
        return f"{found.nonfinite} not finite" if found is not None and found.nonfinite else ""
    more = f", {found.nonfinite} not finite" if found.nonfinite else ""
    return f"{found.low:.4g}..{found.high:.4g}{more}"


def trace_object(traced: Traced, name: str, facts: TargetFacts) -> dict[str, Any]:
    """Return what `trace --json` writes."""
    verdict, first = traced.verdict, traced.first
    known = verdict.attribution if verdict is not None else None
    return {
        "schema": SCHEMA,
        "target": facts.name,
        "build": facts.build.digest,
        "case": name,
        "verdict": as_plain(verdict) if verdict is not None else None,
        "born": as_plain(known) if known is not None and known.place_how else None,
        "first_over_policy": first.onnx_node if first is not None else None,
        "paired_by": traced.paired_by,
        "notes": list(traced.notes),
        "rows": [as_plain(row) for row in traced.rows],
    }


def trace_svg(traced: Traced, title: str) -> str:
    """Return the error over the order of nodes as one SVG picture, log10; the place of birth is marked."""
    rows = [row for row in traced.rows if not row.path]
    errors = [_size(row.accumulated) for row in rows] + [_size(row.local) for row in rows]
    known = [error for error in errors if error is not None]
    low = math.floor(math.log10(min([*known, 1e-6])))
    high = math.ceil(math.log10(max([*known, 1e-3])))
    drawn = [
        *_axes(low, high, len(rows)),
        _line([_size(row.accumulated) for row in rows], low, high, "whole"),
        _line([_size(row.local) for row in rows], low, high, "own"),
        *_marks(traced, rows, low, high),
    ]
    said = escape(printable(title, 200))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{said}">'
        f"<style>{_STYLE}</style><title>{said}</title>"
        f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}"/>'
        f'<text x="{_LEFT}" y="20" class="head">{said}</text>'
        f"{''.join(drawn)}</svg>\n"
    )


_STYLE = (
    ".paper{fill:#fff}text{font:12px sans-serif;fill:#333}.head{font-weight:bold}.grid{stroke:#ddd}"
    ".whole{stroke:#1f5fa8;fill:none;stroke-width:1.5}.own{stroke:#c98500;fill:none;stroke-width:1.5}"
    ".born{stroke:#c0232c;stroke-dasharray:4 3}.red{fill:#c0232c}"
    ".key-whole{fill:#1f5fa8}.key-own{fill:#9a6700}"
    "@media(prefers-color-scheme:dark){.paper{fill:#161b22}text{fill:#ddd}.grid{stroke:#333}"
    ".whole{stroke:#6cb0ff}.key-whole{fill:#6cb0ff}.own{stroke:#f0b429}.key-own{fill:#f0b429}.red{fill:#ff7b72}}"
)


def _size(found: Comparison | None) -> float | None:
    """Return an error that can be drawn: what has no size (another shape, a NaN) has none."""
    if found is None or not math.isfinite(found.max_abs):
        return None
    return max(found.max_abs, _FLOOR)


def _x(place: int, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (place / max(1, count - 1))


def _y(error: float, low: int, high: int) -> float:
    share = (math.log10(error) - low) / max(1, high - low)
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def _axes(low: int, high: int, count: int) -> list[str]:
    drawn = []
    for power in range(low, high + 1, max(1, (high - low) // 8)):
        y = _y(10.0**power, low, high)
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
    below = _HEIGHT - _BOTTOM + 18
    drawn.append(f'<text x="{_LEFT}" y="{below}">first node</text>')
    drawn.append(f'<text x="{_WIDTH - _RIGHT}" y="{below}" text-anchor="end">last of {count}</text>')
    drawn.append(f'<text class="key-whole" x="{_WIDTH - 300}" y="20">accumulated error</text>')
    drawn.append(f'<text class="key-own" x="{_WIDTH - 160}" y="20">own error of the node</text>')
    return drawn


def _line(errors: Sequence[float | None], low: int, high: int, name: str) -> str:
    """Return one line, broken where there is nothing to draw; a lone point is a dot of the line's width."""
    path, is_down = [], False
    for place, error in enumerate(errors):
        if error is None:
            is_down = False
            continue
        x, y = _x(place, len(errors)), _y(error, low, high)
        path.append(f"{'L' if is_down else 'M'}{x:.1f} {y:.1f}")
        is_down = True
    return f'<path class="{name}" d="{" ".join(path)}"/>' if path else ""


def _marks(traced: Traced, rows: Sequence[TraceRow], low: int, high: int) -> list[str]:
    """Return the mark of the node at which the error is born, and of every value that has no size."""
    drawn = []
    for place, row in enumerate(rows):
        x = _x(place, len(rows))
        if row.accumulated is not None and not math.isfinite(row.accumulated.max_abs):
            drawn.append(f'<circle class="red" cx="{x:.1f}" cy="{_TOP}" r="3"/>')
        if _is_guilty(traced, row):
            anchor = "end" if x > _WIDTH / 2 else "start"
            label = escape(printable(f"{row.onnx_node} {row.source}".strip(), 80))
            drawn.append(f'<line class="born" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
            drawn.append(f'<text class="red" x="{x:.1f}" y="{_HEIGHT - 10}" text-anchor="{anchor}">{label}</text>')
    return drawn
