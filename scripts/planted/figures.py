"""Figures: tables and a plot of runs: what was found, how soon, and how often one method is sooner than another.

The idea: a fault that was not found in the time has no time, and is never given one: medians and A12 count it as later
than any that was. A run in which it was the place that was wrong counts as "of its kind", in a column of its own.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from fuzzparity.report.drawing import element, polyline, svg, words

if TYPE_CHECKING:
    from bench_finding import Run

SETTINGS = ("alone", "deep", "several", "case")
_COLOURS = {"ours": "#0969da", "ours blind": "#8250df", "normal": "#6e7781", "hypothesis": "#bc4c00",
            "finite": "#9a6700"}  # fmt: skip
_WITH_PLACE = ("ours", "ours blind")
Times = dict[tuple[str, str], list[float]]  # (twin, fault) -> seconds of each run, inf where it was not found


def times(runs: Iterable[Run], method: str, settings: Sequence[str] = SETTINGS, *, itself: bool | None = None) -> Times:
    """Return when a method met each fault; `itself`: as itself, or as one of its kind. None: as far as it can tell."""
    wanted = method in _WITH_PLACE if itself is None else itself
    found: Times = defaultdict(list)
    for run in runs:
        if run.method == method and run.setting in settings and not run.problem:
            for fault, seconds in (run.itself if wanted else run.kind).items():
                found[run.twin, fault].append(math.inf if seconds is None else seconds)
    return found


def a12(ours: Times, others: Times) -> float | None:
    """Return how often ours is sooner, 0.5 where neither is (Vargha and Delaney, 2000), averaged over faults."""
    shares = []
    for key in ours.keys() & others.keys():
        pairs = [(a, b) for a in ours[key] for b in others[key]]
        shares.append(sum(1.0 if a < b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs))
    return statistics.mean(shares) if shares else None


def tables(runs: Sequence[Run], methods: Sequence[str]) -> list[Table]:
    """Return the table of methods, and that of the faults that ours did not find as themselves in every run."""
    return [_methods(runs, methods), _missed(runs, methods)]


def _methods(runs: Sequence[Run], methods: Sequence[str]) -> Table:
    table = Table(title="Faults found, of those planted (as itself / of its kind)", title_justify="left")
    for name in ("method", *SETTINGS, "alarms on controls", "median time", "A12 of ours", "inputs"):
        table.add_column(name, justify="left" if name == "method" else "right")
    ours = times(runs, "ours")
    for method in methods:
        mine = [run for run in runs if run.method == method]
        if not mine:
            continue
        cells = [_counts(runs, method, setting) for setting in SETTINGS]
        controls = [run for run in mine if run.setting == "control"]
        alarmed = {run.twin for run in controls if run.alarms}
        effect = a12(ours, times(runs, method)) if method != "ours" else None
        table.add_row(
            method,
            *cells,
            f"{len(alarmed)} of {len({run.twin for run in controls})}",
            _median(times(runs, method)),
            "-" if effect is None else f"{effect:.2f}",
            f"{sum(run.inputs for run in mine):,}",
        )
    return table


def _counts(runs: Sequence[Run], method: str, setting: str) -> str:
    """Return how many faults were found in at least one run, of how many."""
    kinds = times(runs, method, (setting,), itself=False)
    if not kinds:
        return "-"
    count = sum(min(each) < math.inf for each in kinds.values())
    if method not in _WITH_PLACE:
        return f"- / {count} of {len(kinds)}"
    placed = times(runs, method, (setting,), itself=True)
    return f"{sum(min(each) < math.inf for each in placed.values())} / {count} of {len(kinds)}"


def _median(found: Times) -> str:
    """Return the median over all runs, in which a fault that was not found is later than any that was."""
    every = sorted(seconds for each in found.values() for seconds in each)
    if not every:
        return "-"
    middle = every[(len(every) - 1) // 2]
    return "not found" if math.isinf(middle) else f"{middle:.1f} s"


def _missed(runs: Sequence[Run], methods: Sequence[str]) -> Table:
    table = Table(title="Faults that ours did not find as themselves in every run", title_justify="left")
    for name in ("twin", "fault", "as itself", "of its kind", "found by others", "what ours said instead"):
        table.add_column(name)
    placed, kinds = times(runs, "ours", itself=True), times(runs, "ours", itself=False)
    for (twin, fault), each in placed.items():
        hits = sum(seconds < math.inf for seconds in each)
        if hits == len(each):
            continue
        others = [m for m in methods if m != "ours" and min(times(runs, m).get((twin, fault), [math.inf])) < math.inf]
        own = [run for run in runs if run.method == "ours" and run.twin == twin]
        instead = {f"{f['kind']} {f['grade']} {_place(f['where'])}" for run in own for f in run.findings}
        near = sum(seconds < math.inf for seconds in kinds[twin, fault])
        table.add_row(twin, fault, f"{hits} of {len(each)}", f"{near} of {len(each)}", ", ".join(others) or "none",
                      "; ".join(sorted(instead)) or "nothing")  # fmt: skip
    for run in runs:
        if run.problem:
            table.add_row(run.twin, "", "", "", run.method, f"no result: {run.problem}")
        elif run.method == "ours" and run.alarms:
            table.add_row(run.twin, "none: a control", "", "", "", f"ALARM {'; '.join(run.alarms)}")
    return table


def _place(where: Mapping[str, object]) -> str:
    return f"at {where.get('onnx_node') or where.get('op') or where.get('source') or 'no place'}"


# The plot

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640.0, 360.0, 60.0, 24.0, 20.0, 44.0  # px
_FIRST_SECONDS = 0.1


def plot(runs: Sequence[Run], methods: Sequence[str]) -> str:
    """Return an SVG of the share of faults found over the time: ours as themselves, loops by kind."""
    most = max([1.0, *(run.seconds for run in runs)])
    decades = math.log10(most / _FIRST_SECONDS)

    def x(seconds: float) -> float:
        share = math.log10(max(seconds, _FIRST_SECONDS) / _FIRST_SECONDS) / decades
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(share: float) -> float:
        return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)

    marks = [element("style", _STYLE + "".join(_line_style(name) for name in methods))]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        marks += [polyline([(_LEFT, y(share)), (_WIDTH - _RIGHT, y(share))], "grid")]
        marks += [words(_LEFT - 8, y(share) + 4, f"{share:.0%}", "end")]
    for tick in (0.1, 1, 10, 100):
        if tick <= most:
            marks += [words(x(tick), _HEIGHT - _BOTTOM + 18, f"{tick:g} s", "middle")]
    marks += [words(_LEFT, 14, "planted faults found")]
    for place, method in enumerate(name for name in methods if times(runs, name)):
        every = sorted(seconds for each in times(runs, method).values() for seconds in each)
        points, found = [(x(_FIRST_SECONDS), y(0.0))], 0
        limit = max(run.seconds for run in runs if run.method == method)
        for seconds in every:
            if seconds < math.inf:
                points += [(x(seconds), y(found / len(every))), (x(seconds), y((found + 1) / len(every)))]
                found += 1
        points.append((x(limit), y(found / len(every))))
        at = _TOP + 16 * (place + 1)
        marks += [
            polyline(points, _class(method)),
            polyline([(_LEFT + 12, at - 4), (_LEFT + 36, at - 4)], _class(method)),
        ]
        marks += [words(_LEFT + 44, at, method)]
    return str(svg(_WIDTH, _HEIGHT, *marks, label="Share of planted faults found over time, by method"))


_STYLE = ".label{font:12px sans-serif;fill:#57606a}.grid{stroke:#d0d7de;stroke-width:1}"


def _class(method: str) -> str:
    return f"m-{method.replace(' ', '-')}"


def _line_style(method: str) -> str:
    return f".{_class(method)}{{stroke:{_COLOURS.get(method, '#000')};stroke-width:2}}"
