"""Records that reports show: a campaign at one moment, and a campaign at its end.

The idea: plain records between whoever runs something and whoever shows it; the runner prints nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fuzzparity.contract import TargetFacts
from fuzzparity.corpus.records import Effort, Recheck
from fuzzparity.finding import Finding
from fuzzparity.known import Told
from fuzzparity.probe.latency import ProbeRow


@dataclass(frozen=True, slots=True)
class CampaignStatus:
    """Hold what is worth seeing at one moment. Seconds are fuzzing time."""

    stage: str  # "loading", "exporting", "seeds", "fuzzing", "finishing"
    seconds: float = 0.0
    limit_seconds: float | None = None
    executions: int = 0
    limit_executions: int | None = None
    inputs: int = 0
    rejected: int = 0
    executions_per_second: float = 0.0
    inputs_per_second: float = 0.0
    corpus_size: int = 0
    workers: int = 0
    deaths: int = 0
    pending: int = 0  # suspects waiting for confirmation or minimizing
    findings: dict[tuple[str, str], int] = field(
        default_factory=dict
    )  # (kind, grade) -> findings, without those that joined another
    known: int = 0  # findings that the ledger of known issues expects; not among `findings`
    since_new_seconds: float | None = None
    rss_bytes: int = 0
    efforts: tuple[Effort, ...] = ()  # of moves and families of parents so far, what brought most first


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """Hold what a campaign ended with; the `--json` object and the summary are made of it."""

    campaign_id: str
    facts: TargetFacts
    corpus_path: Path
    crashes_path: Path
    seconds: float
    setup_seconds: float
    executions: int
    inputs: int
    rejected: int
    corpus_size: int
    findings: tuple[Finding, ...]
    new_ids: frozenset[str]
    exit_code: int
    hits: dict[str, int] = field(default_factory=dict)  # of each finding in this campaign
    interrupted_by: int | None = None
    notes: tuple[str, ...] = ()
    probe: tuple[ProbeRow, ...] = ()
    known: tuple[Told, ...] = ()  # what became of the entries of the ledger
    rechecks: tuple[Recheck, ...] = ()  # what became of findings of earlier builds on this one


@dataclass(frozen=True, slots=True)
class BuildRun:
    """Hold what became of one build of a target, named by its dtypes ("image=float16"); `problem`: why it never ran."""

    dtypes: tuple[str, ...]
    result: CampaignResult | None = None
    problem: str = ""
