"""Records of an investigation: what the parent asks of a child and what comes back.

The idea: they hold no module and no session, so the parent can speak of twins without importing torch or ORT.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fuzzparity.case import Case, Lineage
from fuzzparity.contract import Contract, TargetFacts
from fuzzparity.execution import Execution, Status
from fuzzparity.finding import Bucket, Confirmation, Cut, Finding, Suspect
from fuzzparity.generate.contract import SeedStatistics
from fuzzparity.oracle.policy import Policy
from fuzzparity.target import Export
from fuzzparity.verdict import Judgement, Realism, Verdict
from fuzzparity.work.alone import Exit

REFEREE = "referee"


@dataclass(frozen=True, slots=True)
class Reexport:
    """Hold what exporting the module of a build anew came to: the model's path and its contract, or how it failed.

    No case has a say in it, and it may take half a minute: a campaign makes each once.
    """

    build: str  # its digest
    export: Export
    model: str = ""
    contract: Contract | None = None
    failure: Execution | None = None


@dataclass(frozen=True, slots=True)
class TwinSpec:
    """Say which twin a child opens and how it is judged; made once by the gate, the same in every process.

    `reload_state`: this loader did not make the build, so the state saved with it is put into the module first.
    `reexports`: those that were made already.
    """

    facts: TargetFacts
    policy: Policy
    statistics: SeedStatistics
    reload_state: bool = False
    use_referee: bool = True
    reexports: tuple[Reexport, ...] = ()

    @property
    def is_built(self) -> bool:
        """Tell whether there is a model; without one only torch and the exporter can be run."""
        return bool(self.facts.build.folder)

    def reloaded(self) -> TwinSpec:
        """Return the spec for children of another loader than the one that made the build."""
        return replace(self, reload_state=True)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Hold one try: both executions and what the oracle made of them."""

    expected: Execution
    actual: Execution
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Cause:
    """Name a known cause, so that torch's value can be put in at its place: the part, and where that is known.

    `node`: for a step that the graph lacks, the one that reads what it should have changed.
    """

    part: str  # of blame, without its detail
    op: str = ""
    node: str = ""
    fx_node: str = ""
    source: str = ""

    @classmethod
    def of(cls, finding: Finding) -> Cause:
        """Return the cause of a blamed finding."""
        known, (op, node, source) = finding.verdict.attribution, finding.place
        part, reader = finding.verdict.blame.partition(":")[0], known.reader if known else ""
        return cls(part, op, node or reader, known.fx_node if known else "", source)


@dataclass(frozen=True, slots=True)
class InvestigateSpec:
    """Say what to investigate and how much it may cost."""

    twin: TwinSpec
    suspect: Suspect
    tries: int = 2
    minimize_executions: int = 3000
    minimize_seconds: float = 20.0
    blame_seconds: float = 30.0  # no arbiter is asked after them; 0 asks none
    cut_seconds: float = 10.0  # for the smallest part of the model that shows it; 0 leaves the model whole
    beside: tuple[Cause, ...] = ()  # causes of its bucket that are known and are not its own
    is_patient: bool = True  # nothing waits: what takes long and only tells of a workaround is asked as well


@dataclass(frozen=True, slots=True)
class Better:
    """Report a smaller case that still shows the bucket."""

    case: Case


@dataclass(frozen=True, slots=True)
class Interim:
    """Report what an investigation has come to before its next long step; `is_blamed`: no arbiter is to be asked."""

    investigation: Investigation
    is_blamed: bool


@dataclass(frozen=True, slots=True)
class AskSpec:
    """Name cases that fell into a bucket, to be asked whether its known causes explain them; the first `own` must."""

    twin: TwinSpec
    bucket: Bucket
    causes: tuple[Cause, ...] = ()
    cases: tuple[Case, ...] = ()
    lineages: tuple[Lineage, ...] = ()
    own: int = 0
    others: tuple[Cause, ...] = ()  # known in other buckets
    by_place: bool = True  # a sure place that is none of theirs is another cause, though theirs heals: it lies behind
    seconds: float = 20.0  # for all of them; no case is begun after them


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """Tell of the case at a place of an `AskSpec` whether the known causes explain what it shows in the bucket."""

    place: int
    is_explained: bool | None = None  # None: it cannot be told
    is_clear: bool = False  # born at a sure place that is none of the known causes'
    suspect: Suspect | None = None  # in the bucket; None where it does not fall into it


@dataclass(frozen=True, slots=True)
class Slipped:
    """Report another fault that minimizing ran into."""

    suspect: Suspect


@dataclass(frozen=True, slots=True)
class Investigation:
    """Hold the outcome: the confirmation, and the smallest case with its own executions and verdict."""

    suspect: Suspect
    confirmation: Confirmation
    case: Case
    verdict: Verdict | None = None
    expected: Execution | None = field(default=None, repr=False)
    actual: Execution | None = field(default=None, repr=False)
    realism: Realism = Realism.UNKNOWN
    executions: int = 0
    reached_fixpoint: bool = False
    cut: Cut | None = None  # the part of the model that shows it


def death(exit_: Exit, side: str) -> Execution:
    """Return the execution of a side whose process ended: hang, crash, or out of memory by the kernel."""
    phase = "load" if exit_.announced is not None and exit_.announced.note == "load" else "run"
    status = Status.HANG if exit_.hang else Status.CRASHED
    seconds = exit_.announced.busy_seconds if exit_.announced else 0.0
    return Execution(
        side,
        status,
        phase=phase,
        signal=None if exit_.hang else exit_.signal,
        exit_code=None if exit_.hang else exit_.code,
        seconds=seconds,
    )


@dataclass(frozen=True, slots=True)
class InputSpec:
    """Name files and folders to read as cases, up to a limit."""

    paths: tuple[str, ...]
    contract: Contract
    limit: int


@dataclass(frozen=True, slots=True)
class InputsRead:
    """Hold the cases that were read, by name; `is_all`: there are no more."""

    cases: tuple[tuple[str, Case], ...]
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    is_all: bool


@dataclass(frozen=True, slots=True)
class ExamineSpec:
    """Name one case to judge alone."""

    twin: TwinSpec
    case: Case


@dataclass(frozen=True, slots=True)
class Examined:
    """Hold the judgement of one case, both executions, and a suspect for each verdict."""

    case: Case
    judgement: Judgement
    expected: Execution = field(repr=False)
    actual: Execution = field(repr=False)
    suspects: tuple[Suspect, ...] = ()
