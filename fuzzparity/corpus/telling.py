"""Telling: what a report asks of a corpus, each answer bounded in bytes and rows.

The idea: a corpus may hold thousands of findings and gigabytes of tensors, a report must not; so every question here
says how much it may read, and every answer says how much it did not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fuzzparity.case import Array, Case
from fuzzparity.contract import TargetFacts
from fuzzparity.corpus import blobs, cuts, efforts, rows
from fuzzparity.corpus.plain import from_plain, loads
from fuzzparity.corpus.reading import CorpusReader
from fuzzparity.corpus.records import CorpusView, Effort, ProbeEntry, Recheck
from fuzzparity.execution import Execution
from fuzzparity.finding import Cut, Finding


@dataclass(frozen=True, slots=True)
class Recorded:
    """Hold what was recorded of one finding; `left_out` says why tensors are missing."""

    finding: Finding
    case: Case | None = None
    expected: Execution | None = field(default=None, repr=False)
    actual: Execution | None = field(default=None, repr=False)
    mutators: tuple[str, ...] = ()  # of the first case that showed it
    origin: str = ""  # of that case
    shown: int = 0  # runs in fresh sessions that showed it, of `tries`
    tries: int = 0
    first_seen_at: str = ""
    last_seen_at: str = ""
    left_out: str = ""
    cut: Cut | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ShapeCount:
    """Count the stored cases that have the same shapes, by what the sides did: agree, differ, rejected."""

    shapes: dict[str, tuple[int, ...]]
    agree: int = 0
    differ: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Say which finite values the stored cases of one input hold, and whether NaN or infinities were among them."""

    name: str
    dtype: str
    low: float | None
    high: float | None
    has_nan: bool = False
    has_inf: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Say how much was run in one environment."""

    line: str
    campaigns: int
    executions: int


@dataclass(frozen=True, slots=True)
class Moment:
    """Hold the corpus at one moment; `seconds` are fuzzing time since the very first campaign began."""

    seconds: float
    executions: int
    corpus_size: int


@dataclass(frozen=True, slots=True)
class Sighting:
    """Say when a finding was first seen, in fuzzing seconds since the very first campaign began."""

    finding_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Hold all that a report tells: the view of the corpus, what its last campaign knew, and bounded extracts."""

    view: CorpusView
    facts: TargetFacts | None = None
    recorded: Mapping[str, Recorded] = field(default_factory=dict)
    models: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # model.onnx by build digest
    places: tuple[Place, ...] = ()
    shapes: tuple[ShapeCount, ...] = ()
    shapes_total: int = 0
    ranges: tuple[ValueRange, ...] = ()
    ranges_of: int = 0  # cases that were read for `ranges`
    moments: tuple[Moment, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    probes: tuple[ProbeEntry, ...] = ()
    rechecks: tuple[Recheck, ...] = ()
    left_out: tuple[str, ...] = ()
    efforts: tuple[Effort, ...] = ()  # of all campaigns together


def recorded(corpus: CorpusReader, finding: Finding, max_bytes: int) -> Recorded:
    """Return what was recorded of a finding; tensors beyond `max_bytes` in all stay where they are, which is said."""
    row = corpus._finding_row(finding.finding_id)
    case_row = corpus._rows("select * from cases where digest = ?", [finding.case_digest])
    digests = [row["expected_sha256"], row["actual_sha256"], case_row[0]["blob_sha256"] if case_row else None]
    marks = ",".join("?" * len(digests))
    held = corpus._value(f"select coalesce(sum(bytes), 0) from blobs where sha256 in ({marks})", digests)
    first_row = corpus._rows("select * from cases where digest = ?", [finding.first_case_digest])
    lineage = rows.lineage_of(first_row[0]) if first_row else None
    left_out = ""
    if held > max_bytes:
        left_out = f"its tensors have {held:,} bytes; a report reads at most {max_bytes:,}"
        row = row | {"expected_sha256": None, "actual_sha256": None}
    with rows.reading(f"findings row {finding.finding_id}"):
        return Recorded(
            finding,
            corpus._case(finding.case_digest) if case_row and not left_out else None,
            rows.load_execution(corpus.db, "expected", row),
            rows.load_execution(corpus.db, "actual", row),
            lineage.mutators if lineage else (),
            lineage.origin if lineage else "",
            int(row["shown"] or 0),
            int(row["tries"] or 0),
            str(row["first_seen_at"] or ""),
            str(row["last_seen_at"] or ""),
            left_out,
            cuts.load(corpus.db, finding.finding_id, max_bytes),
        )


def model_of(corpus: CorpusReader, build: str, max_bytes: int) -> bytes | None:
    """Return model.onnx of a build; None when it is not stored or larger than `max_bytes`."""
    found = corpus._rows(
        "select f.blob_sha256, b.bytes from build_files f join blobs b on b.sha256 = f.blob_sha256 "
        "where f.build_digest = ? and f.name = 'model.onnx'",
        [build],
    )
    if not found or not isinstance(found[0]["bytes"], int) or found[0]["bytes"] > max_bytes:
        return None
    return blobs.load(corpus.db, found[0]["blob_sha256"], max_bytes=max_bytes)


def shape_counts(corpus: CorpusReader, limit: int) -> tuple[tuple[ShapeCount, ...], int]:
    """Return the most frequent shapes of stored cases, at most `limit`, and how many different ones there are."""
    total = int(corpus._value("select count(distinct shapes) from cases"))
    found = corpus._rows(
        "select shapes, sum(kind = 'agree') as agree, sum(kind = 'rejected') as rejected, count(*) as n from cases "
        "group by shapes order by sum(kind not in ('agree', 'rejected')) desc, n desc, shapes limit ?",
        [limit],
    )
    with rows.reading("the shapes of cases"):
        counts = tuple(
            ShapeCount(
                from_plain(dict[str, tuple[int, ...]], loads(row["shapes"])),
                int(row["agree"]),
                int(row["n"] - row["agree"] - row["rejected"]),
                int(row["rejected"]),
            )
            for row in found
        )
    return counts, total


@rows.reading("what moves brought")
def efforts_of(corpus: CorpusReader) -> tuple[Effort, ...]:
    """Return what moves and families of parents cost and brought in all campaigns together, what brought most first."""
    return efforts.load_all(corpus.db)


@rows.reading("the values of cases")
def value_ranges(corpus: CorpusReader, max_cases: int, max_bytes: int) -> tuple[tuple[ValueRange, ...], int]:
    """Return which values each input held, over the newest cases that fit, and how many cases were read."""
    found = corpus._rows("select digest, bytes from cases order by rowid desc limit ?", [max_cases])
    seen: dict[tuple[str, str], list[ValueRange]] = {}
    read = 0
    for row in found:
        max_bytes -= int(row["bytes"])
        if max_bytes < 0:
            break
        read += 1
        for name, array in corpus._case(row["digest"]).inputs.items():
            seen.setdefault((name, array.dtype.name), []).append(_range_of(name, array))
    return tuple(_joined(items) for items in seen.values()), read


def _range_of(name: str, array: Array) -> ValueRange:
    if array.dtype.kind == "c":
        array = np.abs(array)
    wide = array.astype(np.float64).reshape(-1)
    finite = wide[np.isfinite(wide)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    return ValueRange(name, array.dtype.name, low, high, bool(np.isnan(wide).any()), bool(np.isinf(wide).any()))


def _joined(items: Sequence[ValueRange]) -> ValueRange:
    lows = [item.low for item in items if item.low is not None]
    highs = [item.high for item in items if item.high is not None]
    return ValueRange(
        items[0].name,
        items[0].dtype,
        min(lows, default=None),
        max(highs, default=None),
        any(item.has_nan for item in items),
        any(item.has_inf for item in items),
    )


@rows.reading("campaigns and environments")
def places_of(corpus: CorpusReader) -> tuple[Place, ...]:
    """Return the environments that campaigns ran in, the last one first."""
    found = corpus._rows(
        "select e.line, count(*) as campaigns, sum(c.executions) as executions from campaigns c "
        "join environments e on e.environment_digest = c.environment_digest "
        "group by e.environment_digest order by max(c.started_at) desc"
    )
    return tuple(Place(str(row["line"]), int(row["campaigns"]), int(row["executions"] or 0)) for row in found)


@rows.reading("campaigns and snapshots")
def course(corpus: CorpusReader, points: int) -> tuple[tuple[Moment, ...], tuple[Sighting, ...]]:
    """Return how the corpus grew, in about `points` moments, and when each finding was first seen."""
    starts: dict[str, float] = {}
    done_seconds, executions = 0.0, Counter[str]()
    done_executions = 0
    for row in corpus._rows("select campaign_id, seconds, executions from campaigns order by started_at, rowid"):
        starts[row["campaign_id"]] = done_seconds
        executions[row["campaign_id"]] = done_executions
        done_seconds += float(row["seconds"] or 0.0)
        done_executions += int(row["executions"] or 0)
    total = int(corpus._value("select count(*) from snapshots"))
    every = max(1, total // max(1, points))
    found = corpus._rows(
        "select campaign_id, seconds, executions, corpus_size from snapshots where snapshot_id % ? = 0 "
        "or snapshot_id in (select max(snapshot_id) from snapshots group by campaign_id) order by snapshot_id",
        [every],
    )
    moments = tuple(
        Moment(
            starts[row["campaign_id"]] + row["seconds"],
            executions[row["campaign_id"]] + row["executions"],
            row["corpus_size"],
        )
        for row in found
        if row["campaign_id"] in starts
    )
    seen = corpus._rows("select finding_id, campaign_id, first_seen_seconds from campaign_findings where is_new")
    sightings = tuple(
        Sighting(row["finding_id"], starts[row["campaign_id"]] + float(row["first_seen_seconds"] or 0.0))
        for row in seen
        if row["campaign_id"] in starts
    )
    return moments, sightings
