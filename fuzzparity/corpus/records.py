"""Records that go into the corpus database and come out of it.

Rows are records here and nowhere dicts, so that what the campaign, the commands and the reports rely on is named.
`at` is wall-clock time (ISO 8601, UTC); `seconds` are monotonic seconds since the campaign began to fuzz.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fuzzparity.case import Case, Lineage
from fuzzparity.contract import TargetFacts
from fuzzparity.execution import Environment, Execution
from fuzzparity.finding import Cut, Finding
from fuzzparity.known import Told
from fuzzparity.target import Ort


@dataclass(frozen=True, slots=True)
class KeptCase:
    """Carry a case worth keeping, with what it showed. `label` rides along from the seeds (JSON data)."""

    case: Case
    lineage: Lineage
    features: frozenset[str] = frozenset()
    kind: str = "agree"
    error_ratio: float = 0.0
    realism: str = "unknown"
    contract_breaking: bool = False
    label: Any = None


@dataclass(frozen=True, slots=True)
class CaseRow:
    """Describe a stored case without its tensors."""

    digest: str
    campaign_id: str
    build: str
    lineage: Lineage
    elements: int
    nbytes: int
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    kind: str
    error_ratio: float
    realism: str
    contract_breaking: bool
    in_pool: bool
    features: int
    added_at: str
    label: Any = None


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """Describe one campaign: what was asked for and how far it came."""

    campaign_id: str
    target: str
    build: str
    environment: str
    command: str
    rng_seed: int
    started_at: str
    ended_at: str = ""
    seconds: float = 0.0
    setup_seconds: float = 0.0
    executions: int = 0
    inputs: int = 0
    rejected: int = 0
    next_lease: int = 0
    next_sequence: int = 0
    findings: int = 0
    new_findings: int = 0
    exit_code: int | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class ResumeState:
    """Say where earlier campaigns on a build stopped.

    `buckets` maps the key of every known bucket to its finding. `state` is what the last checkpoint carried.
    """

    campaigns: int = 0
    last_campaign_id: str = ""
    next_lease: int = 0
    next_sequence: int = 0
    executions: int = 0
    inputs: int = 0
    rejected: int = 0
    seconds: float = 0.0
    corpus_size: int = 0
    buckets: dict[str, str] = field(default_factory=dict)
    seeds: tuple[str, ...] = ()  # digests of the stored seeds, in their order
    unfinished: tuple[str, ...] = ()  # findings still suspected: to be confirmed first
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Payload:
    """Hold everything of one finding: enough to write its reproducer without the target."""

    finding: Finding
    case: Case
    lineage: Lineage
    expected: Execution | None = field(default=None, repr=False)
    actual: Execution | None = field(default=None, repr=False)
    model: bytes | None = field(default=None, repr=False)  # model.onnx of the build
    model_files: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # external data, by file name
    facts: TargetFacts | None = None
    environment: Environment | None = None
    ort: Ort = field(default_factory=Ort)
    rechecks: tuple[Recheck, ...] = ()  # on later builds, oldest first
    cut: Cut | None = None  # the part of the model that shows it


class Became(StrEnum):
    """Name what became of a finding on a later build, on the case that shows it."""

    STILL_THERE = "still there"
    GONE = "gone"
    OTHERWISE = "differs otherwise"
    UNKNOWN = "unknown"  # its case does not fit the new build, or could not be judged there


@dataclass(frozen=True, slots=True)
class Recheck:
    """Say what became of a finding on another build; `finding_there`: the finding of that build, where there is one."""

    finding_id: str
    build: str
    environment: str
    state: Became
    said: str = ""
    finding_there: str = ""
    campaign_id: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Effort:
    """Say how often a move, or a family of parents, was used, and how often that showed something new."""

    kind: str  # "move", "parents"
    name: str
    tried: int
    kept: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold a campaign's counters at one moment."""

    seconds: float
    executions: int
    inputs: int
    corpus_size: int
    findings: int
    rss_bytes: int = 0
    rejected: int = 0
    workers: int = 0
    details: dict[str, Any] = field(default_factory=dict)
    campaign_id: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class ProbeEntry:
    """Hold one probed case; the percentiles are those of its probe, in seconds."""

    campaign_id: str
    build: str
    environment: str
    at: str
    seconds: float
    case_digest: str
    shapes: dict[str, tuple[int, ...]]
    torch_p50_seconds: float | None
    torch_p90_seconds: float | None
    torch_p99_seconds: float | None
    ort_p50_seconds: float | None
    ort_p90_seconds: float | None
    ort_p99_seconds: float | None
    ratio: float | None  # ORT's median over torch's
    rss_bytes: int | None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuildRow:
    """Describe a stored build."""

    digest: str
    target: str
    origin: str
    opset: int
    nodes: int
    onnx_bytes: int
    computing_dtype: str
    created_at: str
    has_model: bool


@dataclass(frozen=True, slots=True)
class Statistics:
    """Count what a corpus holds."""

    path: str
    file_bytes: int
    targets: tuple[str, ...]
    builds: int
    campaigns: int
    cases: int
    pool: int
    seeds: int
    features: int
    findings: int
    by_kind: dict[str, int]
    by_grade: dict[str, int]
    executions: int
    inputs: int
    seconds: float
    blob_bytes: int  # before compression
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Merged:
    """Say what a merge took from another corpus, and what it refused and why."""

    added: int
    known: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DimCoverage:
    """Say which sizes of one dim the stored cases hold."""

    name: str  # of the input
    dim: int
    rank: int
    low: int
    high: int
    distinct: int


@dataclass(frozen=True, slots=True)
class CorpusView:
    """Hold what `corpus show` and `report` tell."""

    statistics: Statistics
    builds: tuple[BuildRow, ...]
    campaigns: tuple[CampaignRow, ...]
    cases: tuple[CaseRow, ...]
    findings: tuple[Finding, ...]
    coverage: tuple[DimCoverage, ...] = ()
    environment: Environment | None = None  # of the last campaign
    known: tuple[Told, ...] = ()  # what became of the entries of known issues


@dataclass(frozen=True, slots=True)
class CaseView:
    """Hold what is known of one case."""

    row: CaseRow
    features: tuple[str, ...]
    case: Case


@dataclass(frozen=True, slots=True)
class StatusView:
    """Hold what `status` tells of the last campaign; `writer` is the process that runs it, if any."""

    path: str
    writer: int | None
    campaign: CampaignRow
    snapshots: tuple[Snapshot, ...]
    findings: tuple[tuple[Finding, bool], ...]  # each with whether it was new in this campaign
    known: tuple[Told, ...] = ()
    efforts: tuple[Effort, ...] = ()
