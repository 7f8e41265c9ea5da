"""Dataset: records between the parent and a child that goes through validation data, and the table they add up to.

The idea: the child keeps nothing but a few figures for each input, the parent neither; so a set of any size passes
through both. What is asked of the rows (counts, quantiles, the worst) is computed here, for text and JSON alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fuzzparity.case import Case
from fuzzparity.contract import Contract
from fuzzparity.explain.records import TwinSpec
from fuzzparity.generate.ranges import InputRanges, Seen
from fuzzparity.verdict import GRADES, PRECEDENCE, Kind, Measure

QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """Say how far reading has come: cases so far, and the file at hand."""

    cases: int
    where: str


@dataclass(frozen=True, slots=True)
class Opening:
    """Say which source is about to be read, so that a death in it has a name."""

    source: int
    where: str


@dataclass(frozen=True, slots=True)
class Taken:
    """Carry cases to be kept, in the order in which they were read."""

    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class GatherSpec:
    """Say what to read and how many cases to keep: None for all, else a diverse choice."""

    paths: tuple[str, ...]
    contract: Contract | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """Tell what was read: all of it counts for `ranges`, `kept` of it were sent."""

    read: int
    kept: int
    ranges: tuple[InputRanges, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValidateSpec:
    """Say which inputs to run on which twin; `after` is the place (source, case) of the last one that is done."""

    twin: TwinSpec
    paths: tuple[str, ...] = ()
    own: bool = True  # the target's own seeds come first
    after: tuple[int, int] | None = None
    seen: dict[str, Seen] | None = None  # of the values of those before


@dataclass(frozen=True, slots=True)
class Skipped:
    """Name a file that was skipped, and why."""

    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """Report one input, with what has been seen of the values of the data."""

    row: Row
    seen: dict[str, Seen]


@dataclass(frozen=True, slots=True)
class Row:
    """Hold what became of one input. `ratios`: error over allowed error by output, empty where nothing was compared.

    `is_judged`: by evidence of its own; else the grade is that of those that look the same.
    """

    where: str
    place: tuple[int, int]
    kind: str
    grade: str = ""
    ratios: tuple[float, ...] = ()
    realism: str = ""
    headline: str = ""
    finding_ids: tuple[str, ...] = ()
    is_judged: bool = True
    measures: tuple[Measure, ...] = ()  # one for each metric of the target

    @property
    def error_ratio(self) -> float:
        """Return the largest ratio over all outputs; 0.0 when nothing was compared."""
        return max(self.ratios, default=0.0)

    @property
    def is_suspicious(self) -> bool:
        """Tell whether it is beyond the screen."""
        return self.kind not in (Kind.AGREE, Kind.REJECTED)


@dataclass(frozen=True, slots=True)
class Validated:
    """Close a run over validation data: what is known of the data as a whole."""

    ranges: tuple[InputRanges, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Hold the error ratios of one output over all inputs on which it was compared: at `QUANTILES`."""

    output: str
    values: tuple[float, ...]
    compared: int


@dataclass(frozen=True, slots=True)
class MetricFigures:
    """Hold what a metric came to over all inputs; `mean`, `least` and `most` are None where it never had an answer."""

    metric: str
    bound: str
    answered: int
    unanswered: int
    broken: int
    mean: float | None = None
    least: float | None = None
    most: float | None = None
    worst: str = ""  # the input farthest beyond the bound


@dataclass(slots=True)
class Validation:
    """Hold the table of a validation set, as far as it got: `stopped` says in words why it ended early."""

    outputs: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ranges: tuple[InputRanges, ...] = ()
    seconds: float = 0.0
    stopped: str = ""

    def counts(self) -> list[tuple[str, str, int]]:
        """Return (kind, grade, inputs), the most telling first and agreement last."""
        found = Counter((row.kind, row.grade) for row in self.rows)
        return [(kind, grade, found[kind, grade]) for kind, grade in sorted(found, key=_rank)]

    @property
    def beyond(self) -> int:
        """Return how many inputs are beyond the screen."""
        return sum(row.is_suspicious for row in self.rows)

    @property
    def judged(self) -> int:
        """Return how many of these had evidence of their own."""
        return sum(row.is_suspicious and row.is_judged for row in self.rows)

    def has(self, grade: str) -> bool:
        """Tell whether any input has a grade."""
        return any(row.grade == grade for row in self.rows)

    def quantiles(self) -> list[Quantiles]:
        """Return the error ratios of each output; sizes that differ count as infinite."""
        return [self._quantiles(index, name) for index, name in enumerate(self.outputs)]

    def _quantiles(self, index: int, name: str) -> Quantiles:
        found = np.sort([row.ratios[index] for row in self.rows if index < len(row.ratios)])
        if not found.size:
            return Quantiles(name, (), 0)
        places = [min(found.size - 1, int(np.ceil(share * found.size)) - 1) for share in QUANTILES]
        return Quantiles(name, tuple(float(found[place]) for place in places), int(found.size))

    def metrics(self) -> list[MetricFigures]:
        """Return the figures of each metric over the inputs on which both sides answered."""
        by_name: dict[str, list[tuple[str, Measure]]] = {}
        for row in self.rows:
            for one in row.measures:
                by_name.setdefault(one.metric, []).append((row.where, one))
        return [_figures(name, found) for name, found in by_name.items()]

    def worst(self, most: int = 10) -> list[Row]:
        """Return the inputs to look at first: beyond the screen by grade, kind and ratio; else the largest ratios."""
        suspicious = [row for row in self.rows if row.is_suspicious]
        chosen: Sequence[Row] = suspicious or [row for row in self.rows if row.error_ratio > 0]
        return sorted(chosen, key=lambda row: (_rank((row.kind, row.grade)), -row.error_ratio))[:most]


def _figures(name: str, found: Sequence[tuple[str, Measure]]) -> MetricFigures:
    values = [one.value for _, one in found if one.value is not None and not math.isnan(one.value)]
    broken = [(one.shortfall, where) for where, one in found if one.breaks]
    answered = sum(one.value is not None for _, one in found)
    figures = MetricFigures(name, found[0][1].bound, answered, len(found) - answered, len(broken))
    if not values:
        return replace(figures, worst=max(broken)[1] if broken else "")
    return replace(
        figures,
        mean=sum(values) / len(values),
        least=min(values),
        most=max(values),
        worst=max(broken)[1] if broken else "",
    )


def _rank(found: tuple[str, str]) -> tuple[int, int]:
    kind, grade = found
    grades: Sequence[str] = GRADES
    kinds: Sequence[str] = PRECEDENCE
    return (grades.index(grade) if grade in grades else len(grades)), kinds.index(kind)
