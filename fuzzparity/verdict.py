"""Verdict: the oracle's answer for one output and kind, with the evidence it rests on.

`Comparison` is what the numbers say, `Evidence` what the arbiters say, `Verdict` the answer, `Judgement` all verdicts
of one case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """Name what differs."""

    AGREE = "agree"
    REJECTED = "rejected"
    ERROR_SPLIT = "error_split"
    SHAPE = "shape"
    DTYPE = "dtype"
    NONFINITE = "nonfinite"
    DECISION = "decision"
    NUMERIC = "numeric"
    BRANCH_SPLIT = "branch_split"
    CRASH = "crash"
    HANG = "hang"
    OOM = "oom"
    UNSTABLE = "unstable"
    EXPORT_ERROR = "export_error"
    LOAD_ERROR = "load_error"
    LEAK = "leak"
    SLOW = "slow"


PRECEDENCE = (  # of kinds within a case: the first that holds is the case's headline
    Kind.CRASH,
    Kind.HANG,
    Kind.OOM,
    Kind.EXPORT_ERROR,
    Kind.LOAD_ERROR,
    Kind.ERROR_SPLIT,
    Kind.UNSTABLE,
    Kind.BRANCH_SPLIT,
    Kind.SHAPE,
    Kind.DTYPE,
    Kind.NONFINITE,
    Kind.DECISION,
    Kind.NUMERIC,
    Kind.LEAK,
    Kind.SLOW,
    Kind.REJECTED,
    Kind.AGREE,
)


class Grade(StrEnum):
    """Name what a difference means."""

    BUG = "bug"
    INHERENT = "inherent"
    TIE = "tie"
    CONTRACT = "contract"
    NOTE = "note"


GRADES = (Grade.BUG, Grade.CONTRACT, Grade.TIE, Grade.INHERENT, Grade.NOTE)  # most telling first


class Realism(StrEnum):
    """Name how close a case is to the seeds."""

    NEAR = "near"
    WILD = "wild"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold the figures of one output: `error_ratio` is the largest error over the allowed error (inf where none is)."""

    kind: Kind
    error_ratio: float = 0.0
    max_abs: float = 0.0
    scaled: float = 0.0  # max_abs over the largest finite |expected|
    ulp: float = 0.0
    index: tuple[int, ...] | None = None  # of the worst element
    expected_at: float | int | bool | str | None = None
    actual_at: float | int | bool | str | None = None
    differing: int = 0
    compared: int = 0
    detail: str = ""  # "shape [2, 4] / [3, 4]", "dtype float32 / float64", "NaN 1 / 0"
    region: str = ""  # the slice of the user's tolerances in which the worst element lies: "boxes[..., :4]"
    rms_error: float = 0.0  # max_abs over the root mean square of the finite expected values


@dataclass(frozen=True, slots=True)
class Measure:
    """Hold what one of the user's metrics says of a case; `value` is None where it has no answer, `why` says why."""

    metric: str
    value: float | None = None
    breaks: bool = False
    shortfall: float = 0.0  # how far the value lies beyond its bound, in its own units
    bound: str = ""  # "at least 1"
    why: str = ""
    output: str | None = None  # that it is about


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold what the arbiters said about one differing output; figures in units of the output."""

    source: str  # "torch float64", "missing: <why>"
    torch_distance: float | None = None  # of torch to the exact answer, at the worst element
    ort_distance: float | None = None
    moves: dict[str, float] = field(default_factory=dict)  # test -> largest move of the exact answer there
    draws: int = 0
    far_sides: tuple[str, ...] = ()  # sides beyond 8 moves
    note: str = ""
    noise: dict[str, float] = field(default_factory=dict)  # side -> largest difference of two runs on this input
    seed_noise: float | None = None  # largest error on the seeds, over their largest |expected|
    explained: float | None = None  # what arithmetic explains at the worst element: 8 moves and the default tolerance
    excess: dict[str, float] = field(default_factory=dict)  # side -> its distance over what arithmetic explains
    rounding_bound: float | None = None  # what roundings in any order add up to at most, at the worst element
    rounding_unknown: str = ""  # the operator from which on no such bound is known
    condition: float | None = None  # largest relative move of the answer over the relative change of the inputs
    defensible_rtol: float | None = None  # the tolerance that covers 8 moves and this difference, in the form that
    defensible_atol: float | None = None  # allows less; one digit
    tie_distance: float | None = None  # multiple of a test at which the exact answer flips; inf: not within 8
    tie_test: str = ""  # that test
    score_gap: float | None = None  # ulps between the scores of the two choices, where a float output holds them


RELATION = "relation: "  # begins the name of an arbiter that is a relation, which the side that it is for keeps


@dataclass(frozen=True, slots=True)
class Statement:
    """Hold what one arbiter said: `sides_with` is "torch", "ort", "neither", or "" for no vote."""

    arbiter: str
    sides_with: str
    said: str = ""  # its answer or its refusal, in few words
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Attribution:
    """Say how blame is known: what each arbiter said, the node it leads to, and a workaround where one was seen."""

    how: str
    statements: tuple[Statement, ...] = ()
    workaround: str = ""
    op: str = ""
    onnx_node: str = ""
    fx_node: str = ""  # of the program that the exporter decomposed
    module: str = ""  # path of the module that calls it: "encoder.layers.3.norm1"
    source: str = ""  # "file:line" of the user's own code
    place_how: str = ""  # how the place is known
    is_guess: bool = False  # the place was found by structure and values, and not confirmed
    is_shown: bool = False  # by a substitution: torch's value there heals the output, or its answer breaks torch's
    among: int = 1  # nodes, of which this is one, that values do not tell apart
    reader: str = ""  # the node that reads what a step of torch's, for which no node stands, should have changed


@dataclass(frozen=True, slots=True)
class Verdict:
    """Answer for one output and kind. `output` is a name, or None for the whole case (crash, error_split, ...)."""

    kind: Kind
    grade: Grade
    output: str | None = None
    side: str = ""  # the side at fault where it is plain: the one that crashed, refused or lies far from exact
    site: str = ""  # error site or signal: part of the bucket
    comparison: Comparison | None = None
    evidence: Evidence | None = None
    blame: str = "unknown"
    headline: str = ""
    attribution: Attribution | None = None
    looks_like: tuple[str, ...] = ()  # what the error on the first case looks like, where that holds
    is_also_finite: bool = False  # finite numbers in place of the input's NaN and infinities show a bug there as well


@dataclass(frozen=True, slots=True)
class Judgement:
    """Hold all verdicts of one case; empty `verdicts` means agreement or a refusal by both (`kind` says which)."""

    kind: Kind
    realism: Realism = Realism.UNKNOWN
    verdicts: tuple[Verdict, ...] = ()
    comparisons: tuple[Comparison, ...] = ()  # one for each output that could be compared
    measures: tuple[Measure, ...] = ()  # one for each metric of the target

    @property
    def error_ratio(self) -> float:
        """Return the largest error ratio over all outputs, 0.0 when nothing was compared."""
        return max((comparison.error_ratio for comparison in self.comparisons), default=0.0)

    @property
    def worst(self) -> Verdict | None:
        """Return the verdict that is told first: by grade, then by precedence of kind."""
        order = sorted(self.verdicts, key=lambda v: (GRADES.index(v.grade), PRECEDENCE.index(v.kind)))
        return order[0] if order else None


def as_plain(value: Any) -> Any:
    """Return a record as plain JSON data: dataclasses to dicts; enums, paths, dates, NaN and infinities to text."""
    import dataclasses
    import datetime
    import math
    import os

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_plain(item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value
