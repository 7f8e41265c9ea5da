"""Finding: a verdict worth telling, its bucket, and its life from suspected to minimized.

The idea: `Bucket` is the key under which findings are one fault. It never holds magnitudes; a finding's id is fixed
when it is first seen and says nothing that later evidence could change.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

from fuzzparity.case import Array, Case, Lineage
from fuzzparity.execution import Execution
from fuzzparity.verdict import Judgement, Kind, Realism, Verdict


class Stage(StrEnum):
    """Name how far a finding has come."""

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    BLAMED = "blamed"
    MINIMIZED = "minimized"
    LOST = "lost"  # it did not come back in a fresh session; kept, `reproduced` is false


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """Key findings that are one fault: never a magnitude.

    `grade` keeps an inherent difference from hiding a bug of the same output, `finite` keeps NaN and Inf semantics
    (inputs that hold them) apart from faults on finite inputs.
    """

    build: str
    kind: str
    side: str
    output: str
    site: str
    grade: str
    finite: bool

    @property
    def key(self) -> str:
        """Return the bucket as one readable text, the form in which the database holds it."""
        finite = "finite" if self.finite else "nonfinite"
        return "|".join((self.build[:12], self.kind, self.side, self.output, self.site, self.grade, finite))

    @property
    def finding_id(self) -> str:
        """Return the id of the finding that opens this bucket: kind and 8 hex digits."""
        return f"{self.kind.replace('_', '-')}-{hashlib.sha256(self.key.encode()).hexdigest()[:8]}"


def bucket_of(build: str, case: Case, verdict: Verdict) -> Bucket:
    """Return the provisional bucket of a verdict on a case."""
    return Bucket(
        build=build,
        kind=verdict.kind.value,
        side=verdict.side if verdict.kind in SIDED else "",
        output=verdict.output or "",
        site=verdict.site,
        grade=verdict.grade.value,
        finite=case.is_finite,
    )


SIDED = frozenset({Kind.CRASH, Kind.HANG, Kind.OOM, Kind.ERROR_SPLIT, Kind.UNSTABLE, Kind.LOAD_ERROR})
SIZED = frozenset({Kind.NUMERIC, Kind.DECISION})  # of which a tolerance can be the last word


@dataclass(frozen=True, slots=True)
class Suspect:
    """Carry a differing case from a worker to the parent, with all that is needed to store it unconfirmed."""

    bucket: Bucket
    case: Case
    lineage: Lineage
    verdict: Verdict
    realism: Realism
    expected: Execution | None = field(default=None, repr=False)
    actual: Execution | None = field(default=None, repr=False)


def suspects_of(
    build: str,
    case: Case,
    lineage: Lineage,
    judgement: Judgement,
    expected: Execution | None,
    actual: Execution | None,
) -> list[Suspect]:
    """Return one suspect for each verdict of a judgement on a build, named by its digest."""
    return [
        Suspect(bucket_of(build, case, verdict), case, lineage, verdict, judgement.realism, expected, actual)
        for verdict in judgement.verdicts
    ]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Say what a fresh session, alone, made of a suspect: `shown` of `tries` runs showed its bucket."""

    shown: int
    tries: int
    judgement: Judgement | None = None
    verdict: Verdict | None = None
    expected: Execution | None = field(default=None, repr=False)
    actual: Execution | None = field(default=None, repr=False)

    @property
    def reproduced(self) -> bool:
        """Tell whether the finding came back at all."""
        return self.shown > 0


@dataclass(frozen=True, slots=True)
class Where:
    """Place a finding; every field may be empty."""

    op: str = ""
    onnx_node: str = ""
    fx_node: str = ""
    source: str = ""
    output: str = ""
    index: tuple[int, ...] | None = None
    batch: str = ""  # `IN_BATCH` where rows differ only together


IN_BATCH = "no row alone shows it"  # also the mutator's name in the lineage of such a case


@dataclass(frozen=True, slots=True)
class Cut:
    """Hold the part of a finding's model that still shows it, with the values that stand at the cut.

    `feeds` and `expected`: by the cut's own names; `expected` is empty where a death or a refusal shows it. `way`: what
    shows: "shape", "dtype", "nonfinite", "discrete", "numeric", "refusal", "crash", "hang". `errors`: the largest
    absolute error of each output. `recipes`: made-up array -> numpy expression that gives it. `real_weights`,
    `real_values`: what is still the user's own.
    """

    model: bytes = field(repr=False)
    feeds: dict[str, Array] = field(repr=False)
    way: str
    shown_by: str  # "ONNX Runtime against the ONNX reference"
    nodes: int
    expected: dict[str, Array] = field(default_factory=dict, repr=False)
    errors: dict[str, float] = field(default_factory=dict)
    signal: int = 0
    refusal: str = ""
    operators: tuple[str, ...] = ()  # "name (Op)" as the whole model has them
    path: tuple[str, ...] = ()  # bodies that it was taken out of
    recipes: dict[str, str] = field(default_factory=dict)
    real_weights: tuple[str, ...] = ()
    real_values: tuple[str, ...] = ()
    executions: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """Say which entry of the user's ledger of known issues a finding falls under; `is_fixed`: it should be gone."""

    name: str
    reason: str = ""
    link: str = ""
    is_fixed: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold what is known of one finding; the database row and the `--json` object are made of it."""

    finding_id: str
    bucket: Bucket
    stage: Stage
    verdict: Verdict
    realism: Realism
    case_digest: str  # the smallest case known to show it
    first_case_digest: str
    where: Where = field(default_factory=Where)
    reproduced: bool | None = None
    hits: int = 1
    first_seen_seconds: float = 0.0
    standalone: str = ""
    minimized_elements: int | None = None
    minimized_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    model_nodes: int | None = None
    model_bytes: int | None = None
    path: str = ""
    duplicate_of: str = ""
    ignored: bool = False
    note: str = ""
    known: Known | None = None  # by the ledger as it is now; the database does not hold it

    @property
    def is_silent(self) -> bool:
        """Tell whether the user does not want to be failed by it: ignored, or known and not said to be fixed."""
        return self.ignored or (self.known is not None and not self.known.is_fixed)

    @property
    def family(self) -> tuple[str, str, str, bool]:
        """Return what stays of the bucket from build to build: kind, side, output, and whether the input is finite.

        The site (a message, which versions reword) and the grade may change.
        """
        return self.bucket.kind, self.bucket.side, self.bucket.output, self.bucket.finite
