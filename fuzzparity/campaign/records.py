"""Records between the parent of a campaign and its children: the gate's and the workers'.

The idea: messages are frozen records and nothing else, and none of them needs torch or ORT to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fuzzparity.case import Case, Lineage
from fuzzparity.contract import TargetFacts
from fuzzparity.corpus.records import KeptCase
from fuzzparity.execution import Execution, Refusal
from fuzzparity.explain.records import TwinSpec
from fuzzparity.finding import Suspect
from fuzzparity.generate.contract import SeedStatistics
from fuzzparity.generate.perils import Peril
from fuzzparity.generate.ranges import InputRanges
from fuzzparity.generate.relations import Rule
from fuzzparity.oracle.policy import Policy
from fuzzparity.oracle.proposals import Proposal
from fuzzparity.target import Tolerance

SEED_LIMIT = 512


@dataclass(frozen=True, slots=True)
class Built:
    """Tell what became of the build: its facts, or why there is no model.

    `error`: the exporter fails on a sound module. `dead`: the module dies on the first seed.
    """

    facts: TargetFacts
    seed: Case
    error: Refusal | None = None
    dead: Execution | None = None


@dataclass(frozen=True, slots=True)
class GateSpec:
    """Say what the gate runs; `skip` holds seeds that killed an earlier gate."""

    facts: TargetFacts
    seed_paths: tuple[str, ...] = ()
    corpus_path: str = ""  # where `import` put validation data
    skip: tuple[str, ...] = ()
    reload_state: bool = False
    limit: int = SEED_LIMIT  # a diverse choice of the data
    tolerances: Mapping[str, Tolerance | str] | None = None  # instead of the target's own
    first_only: bool = False  # the first few are enough: all of the data is run afterwards


@dataclass(frozen=True, slots=True)
class GateReport:
    """Tell what the seeds showed. `agreed` are the seeds that a campaign goes on from."""

    policy: Policy
    statistics: SeedStatistics
    agreed: tuple[Case, ...]
    suspects: tuple[Suspect, ...]
    tried: int
    slowest_seconds: float
    loaded: bool  # ORT could open the model
    skipped_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ranges: tuple[InputRanges, ...] = ()  # of the first seed and of all the data
    proposals: tuple[Proposal, ...] = ()  # a policy for each output


PROBE_JOB = "fuzzparity.campaign.probing:probe"
EXAMINE_JOB = "fuzzparity.explain.examine:examine"
INVESTIGATE_JOB = "fuzzparity.explain.investigate:investigate"
ASK_JOB = "fuzzparity.explain.repeats:ask"


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """Say what the probe times: a small fixed set of cases, each `rounds` times on both sides."""

    twin: TwinSpec
    cases: tuple[Case, ...]
    rounds: int = 30


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Say what a worker works on for all its life."""

    twin: TwinSpec
    corpus_path: str
    seeds: tuple[str, ...]  # digests of the seeds that agree, in their order
    rng_seed: int
    is_deterministic: bool = False  # leases end by count alone, never by the clock
    may_stack: bool = True  # rows, where they are proven independent
    engine: str = "own"  # "atheris": libFuzzer's loop


@dataclass(frozen=True, slots=True)
class Lease:
    """Hand out a piece of the campaign: `executions` pair runs, numbered from `first_sequence`.

    `skip`: proposals at the start of the lease that an earlier worker got through before it died. `sweep_from`: where
    the sweep of classics stands, for the one worker that goes through it.
    """

    number: int
    executions: int
    first_sequence: int
    seconds: float
    skip: int = 0
    sweep_from: int | None = None
    adopt: tuple[str, ...] = ()  # digests of cases that other workers kept meanwhile
    perils: tuple[Peril, ...] = ()  # what cases have in common that killed a side


@dataclass(frozen=True, slots=True)
class Kept:
    """Report a case worth keeping."""

    row: KeptCase


@dataclass(frozen=True, slots=True)
class Hits:
    """Report how often known buckets were met again without a new suspect."""

    counts: dict[str, int]  # finding id -> hits


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Report how often cases decided otherwise than the exported sample: line -> (agreed, differed)."""

    counts: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Again:
    """Report a repeat of known findings that looks different from what they have shown; its hits are counted apart."""

    findings: tuple[str, ...]
    case: Case
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class Avoided:
    """Report how many places of a lease stayed empty since the last report, ahead of a case that may kill."""

    count: int


@dataclass(frozen=True, slots=True)
class LeaseDone:
    """Report the counters of a finished lease."""

    number: int
    executions: int
    inputs: int
    rejected: int
    judged: int
    seconds: float
    sweep_position: int | None = None
    efforts: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # (kind, name) -> tried, kept
    rules: tuple[Rule, ...] = ()  # what refusals by both sides taught about sizes
    refusals: dict[tuple[str, str], int] = field(default_factory=dict)  # (side, message) -> times, of both refused
    harmless: tuple[Peril, ...] = ()  # perils that cases have survived


@dataclass(frozen=True, slots=True)
class Ready:
    """Report that a worker has opened both sides and waits for a lease; `note` says why it does not stack rows."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """Report what is worth telling once."""

    text: str


@dataclass(frozen=True, slots=True)
class Unstacked:
    """Report that rows turned out not to be independent after all; no worker stacks them from now on."""

    reason: str
