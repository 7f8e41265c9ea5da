"""Tried: what was tried and measured: sizes, values, the course of the campaigns, latency; as tables and charts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from fuzzparity.contract import Contract
from fuzzparity.corpus.records import ProbeEntry
from fuzzparity.corpus.telling import Knowledge, ShapeCount
from fuzzparity.report import charts
from fuzzparity.report.cells import milliseconds, shapes_text, size_text
from fuzzparity.report.charts import Dot
from fuzzparity.report.paying import MOVE, PARENTS, effort_rows
from fuzzparity.report.sentences import dim_text, plural
from fuzzparity.verdict import GRADES

MOST_DOTS = 1500  # of one chart: about 150 kB
MOST_ROWS = 40  # of the table of probed cases
MOST_MOVES = 16  # of the table of moves
_MOST_SECONDS = 1e9  # 30 years
_MOST_SIZE = 1 << 63  # numpy has none larger; a stranger's database may claim any
_KEYS = {"agree": "agree", "rejected": "both refuse", "differ": "differ (any grade)"}


@dataclass(frozen=True, slots=True)
class Chart:
    """Hold a chart with what it shows."""

    title: str
    drawing: Markup
    caption: str


@dataclass(frozen=True, slots=True)
class Tried:
    """Hold what was tried: dims and values as tables, sizes, course and latency as charts."""

    dims: tuple[tuple[str, ...], ...]
    values: tuple[tuple[str, ...], ...]
    values_of: str
    charts: tuple[Chart, ...]
    latency: Chart | None
    probes: tuple[tuple[str, ...], ...]
    probes_left: int
    moves: tuple[tuple[str, ...], ...] = ()  # name, uses, new cases, new cases in a hundred uses
    families: tuple[tuple[str, ...], ...] = ()


def tried(known: Knowledge) -> Tried:
    """Return what was tried and measured."""
    found = (_sizes(known), _findings(known), _growth(known))
    probes = sorted(known.probes, key=lambda item: -(item.ratio or 0.0))
    total = known.view.statistics.cases
    return Tried(
        tuple(_dims(known)),
        tuple(_values(known)),
        f"{plural(known.ranges_of, 'stored case')}" + (f" of {total:,}, the newest" if known.ranges_of < total else ""),
        tuple(chart for chart in found if chart is not None),
        _latency(known.probes),
        tuple(_probe(item) for item in probes[:MOST_ROWS]),
        max(0, len(probes) - MOST_ROWS),
        effort_rows(known.efforts, MOVE, MOST_MOVES),
        effort_rows(known.efforts, PARENTS, MOST_MOVES),
    )


def _dims(known: Knowledge) -> list[tuple[str, ...]]:
    """Return a row per dim that was seen: input, dim, contract, smallest, largest, how many sizes."""
    contract = known.facts.contract if known.facts else Contract(())
    dims = {(item.name, len(item.dims), place): dim for item in contract.inputs for place, dim in enumerate(item.dims)}
    rows: list[tuple[str, ...]] = []
    for seen in known.view.coverage:
        dim = dims.get((seen.name, seen.rank, seen.dim))
        name = f"{seen.dim}" + (f" {dim.symbol}" if dim and dim.symbol else "")
        allowed = "" if dim is None else dim_text(dim) if dim.is_dynamic else f"{dim.size:,}"
        rows.append((seen.name, name, allowed, f"{seen.low:,}", f"{seen.high:,}", f"{seen.distinct:,}"))
    return rows


def _values(known: Knowledge) -> list[tuple[str, ...]]:
    """Return a row per input: dtype, declared bounds, smallest and largest finite value, whether NaN or Inf."""
    contract = {item.name: item for item in known.facts.contract.inputs} if known.facts else {}
    rows: list[tuple[str, ...]] = []
    for item in known.ranges:
        held = contract.get(item.name)
        low, high = (held.low, held.high) if held else (None, None)
        declared = "any" if low is None and high is None else f"{_bound(low)} to {_bound(high)}"
        special = ", ".join(name for name, has in (("NaN", item.has_nan), ("infinities", item.has_inf)) if has)
        ends = ("", "") if item.low is None or item.high is None else (f"{item.low:.6g}", f"{item.high:.6g}")
        rows.append((item.name, item.dtype, declared, *ends, special or "none"))
    return rows


def _bound(value: float | None) -> str:
    return "any" if value is None else f"{value:g}"


def _symbols(known: Knowledge) -> dict[str, tuple[str, int]]:
    """Return where each dynamic dim can be read: symbol -> first input and axis."""
    found: dict[str, tuple[str, int]] = {}
    for item in known.facts.contract.inputs if known.facts else ():
        for place, dim in enumerate(item.dims):
            if dim.is_dynamic:
                found.setdefault(dim.symbol, (item.name, place))
    return found


def _sizes(known: Knowledge) -> Chart | None:
    """Return the scatter of sizes that were kept, over the two dims with the most different sizes, the batch last."""
    places = _symbols(known)
    seen = {name: {_size(item, place) for item in known.shapes} - {None} for name, place in places.items()}
    batch = known.facts.contract.batch if known.facts else ""
    names = sorted((name for name in seen if len(seen[name]) > 1), key=lambda name: (name == batch, -len(seen[name])))
    if not names:
        return None
    names = names[:2] if len(names) > 1 else [names[0], ""]
    counts: dict[tuple[int, int], Counter[str]] = {}
    for item in known.shapes:
        x = _size(item, places[names[0]])
        y = _size(item, places[names[1]]) if names[1] else item.agree + item.differ + item.rejected
        if x is None or y is None:
            continue
        tally = counts.setdefault((x, y), Counter())
        tally.update({"agree": item.agree, "differ": item.differ, "rejected": item.rejected})
    dots = [
        Dot(float(x), float(y), kind, 3.0 + 2.0 * math.log10(1 + tally[kind]), _dot_title(names, x, y, tally))
        for (x, y), tally in sorted(counts.items())
        for kind in _KEYS
        if tally[kind]
    ]
    dots.sort(key=lambda dot: list(_KEYS).index(dot.class_))  # what differs lies on top
    left = max(0, len(dots) - MOST_DOTS)
    dots = dots[left:]
    axes = charts.sizes([dot.x for dot in dots]), charts.sizes([dot.y for dot in dots])
    titles = (names[0], names[1] or "cases")
    caption = f"Stored cases by {titles[0]} and {titles[1]}; a larger dot is more cases."
    if known.shapes_total > len(known.shapes) or left:
        caption += (
            f" Of {known.shapes_total:,} different shapes the ones that differ, then the most frequent, are shown."
        )
    drawing = charts.scatter(dots, *axes, titles, _KEYS, caption)
    return Chart("Sizes that were kept", drawing, caption)


def _dot_title(names: list[str], x: int, y: int, tally: Mapping[str, int]) -> str:
    place = f"{names[0]} {x}, {names[1] or 'cases'} {y}"
    return place + "".join(f"; {tally[kind]:,} {name}" for kind, name in _KEYS.items() if tally[kind])


def _size(item: ShapeCount, place: tuple[str, int]) -> int | None:
    shape = item.shapes.get(place[0], ())
    size = shape[place[1]] if place[1] < len(shape) else -1
    return size if 0 <= size <= _MOST_SIZE else None


def _findings(known: Knowledge) -> Chart | None:
    """Return the findings over fuzzing time, by the grade they have now."""
    grades = {item.finding_id: item.verdict.grade for item in known.view.findings}
    lines: dict[str, list[tuple[float, float]]] = {}
    for grade in GRADES:
        times = sorted(item.seconds for item in known.sightings if grades.get(item.finding_id) is grade)
        if times:
            every = max(1, len(times) // 300)
            points = [(at, float(count)) for count, at in enumerate(times, 1)]
            lines[grade.value] = [(0.0, 0.0), *points[::every], points[-1]]
    if not lines:
        return None
    end = max([known.view.statistics.seconds, *(points[-1][0] for points in lines.values())])
    unit, name = _unit(end)
    scaled = {key: [(at / unit, count) for at, count in points] for key, points in lines.items()}
    x, y = charts.linear([end / unit]), charts.linear([points[-1][1] for points in lines.values()], is_count=True)
    caption = f"Findings by the time they were first seen, in {name} of fuzzing over all campaigns."
    return Chart("Findings over time", charts.steps(scaled, x, y, (f"{name} of fuzzing", "findings"), caption), caption)


def _growth(known: Knowledge) -> Chart | None:
    moments = known.moments
    if len(moments) < 2 or moments[-1].seconds <= 0:
        return None
    unit, name = _unit(moments[-1].seconds)
    points = [(item.seconds / unit, float(item.corpus_size)) for item in moments]
    x, y = charts.linear([points[-1][0]]), charts.linear([size for _, size in points], is_count=True)
    caption = f"Cases kept, in {name} of fuzzing: a curve that is flat says that little new is found."
    return Chart("Growth of the corpus", charts.steps({"kept": points}, x, y, (name, "cases"), caption), caption)


def _unit(seconds: float) -> tuple[float, str]:
    return (3600.0, "hours") if seconds > 7200 else (60.0, "minutes") if seconds > 180 else (1.0, "seconds")


def _latency(probes: tuple[ProbeEntry, ...]) -> Chart | None:
    dots = []
    for item in probes:
        elements = float(min(max(1, sum(math.prod(shape) for shape in item.shapes.values())), _MOST_SIZE))
        for side, seconds in (("torch", item.torch_p50_seconds), ("ort", item.ort_p50_seconds)):
            if seconds and 0 < seconds < _MOST_SECONDS:
                title = f"{shapes_text(item.shapes)}: {milliseconds(seconds)}"
                dots.append(Dot(elements, seconds * 1000, side, 4.5, title))
    if not dots:
        return None
    axes = charts.decades([dot.x for dot in dots]), charts.decades([dot.y for dot in dots])
    caption = "Median time of a run by the number of elements of its inputs."
    keys = {"torch": "torch", "ort": "ONNX Runtime"}
    drawing = charts.scatter(dots, *axes, ("elements of the inputs", "milliseconds"), keys, caption)
    return Chart("Latency by size", drawing, caption)


def _probe(item: ProbeEntry) -> tuple[str, ...]:
    sides = (item.torch_p50_seconds, item.torch_p99_seconds, item.ort_p50_seconds, item.ort_p99_seconds)
    growth = item.details.get("rss_growth_bytes")
    grown = "" if not isinstance(growth, int) else f"{'-' if growth < 0 else ''}{size_text(abs(growth))}"
    return (
        shapes_text(item.shapes),
        *map(milliseconds, sides),
        "" if item.ratio is None else f"{item.ratio:.3g}",
        "" if item.rss_bytes is None else size_text(item.rss_bytes),
        grown,
        str(item.details.get("note", "")),
    )
