"""Finding: a verdict worth telling, its bucket, and its life from suspected to minimized.

The idea: `Bucket` is the key under which findings are one fault. It never holds magnitudes; a finding's id is fixed
when it is first seen and says nothing that later evidence could change.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fuzzparity.case import Array, Case, Lineage
from fuzzparity.execution import Execution
from fuzzparity.verdict import Grade, Judgement, Kind, Realism, Verdict


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
    cause: str = ""  # "2", "3", ...: a further cause under these fields, which the ones before do not explain

    @property
    def key(self) -> str:
        """Return the bucket as one readable text, the form in which the database holds it."""
        finite = "finite" if self.finite else "nonfinite"
        parts = (self.build[:12], self.kind, self.side, self.output, self.site, self.grade, finite)
        return "|".join((*parts, self.cause) if self.cause else parts)

    @property
    def provisional(self) -> Bucket:
        """Return the bucket as a verdict alone gives it, before anything is blamed."""
        return replace(self, cause="")

    @property
    def finding_id(self) -> str:
        """Return the id of the finding that opens this bucket: kind and 8 hex digits."""
        return f"{self.kind.replace('_', '-')}-{hashlib.sha256(self.key.encode()).hexdigest()[:8]}"


def bucket_of(build: str, case: Case, verdict: Verdict) -> Bucket:
    """Return the provisional bucket of a verdict on a case.

    A branch is one fault on whatever input and output it shows.
    """
    is_branch = verdict.kind is Kind.BRANCH_SPLIT
    return Bucket(
        build=build,
        kind=verdict.kind.value,
        side=verdict.side if verdict.kind in SIDED else "",
        output="" if is_branch else verdict.output or "",
        site=verdict.site,
        grade=verdict.grade.value,
        finite=case.is_finite or is_branch,
    )


SIDED = frozenset({Kind.CRASH, Kind.HANG, Kind.OOM, Kind.ERROR_SPLIT, Kind.UNSTABLE, Kind.LOAD_ERROR})
VALUE_KINDS = frozenset(
    {Kind.SHAPE, Kind.DTYPE, Kind.NONFINITE, Kind.DECISION, Kind.NUMERIC, Kind.BRANCH_SPLIT}
)  # what both sides compute is another thing
REPEATED_KINDS = (VALUE_KINDS | {Kind.ERROR_SPLIT, Kind.CRASH}) - {Kind.BRANCH_SPLIT}  # may hold several causes
BLAMED_KINDS = VALUE_KINDS | {Kind.CRASH, Kind.HANG, Kind.LOAD_ERROR, Kind.ERROR_SPLIT}  # arbiters have an answer to
SIZED = frozenset({Kind.NUMERIC, Kind.DECISION})  # of which a tolerance can be the last word


def may_blame(verdict: Verdict) -> bool:
    """Tell whether arbiters are worth asking: a bug whose part is not plain yet."""
    return verdict.grade is Grade.BUG and verdict.blame == "unknown" and verdict.kind in BLAMED_KINDS


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
    `real_values`: what is still the user's own. `torch_code`: the body of a function of `torch_takes` (arrays of the
    cut, and `torch_own` ones) that does in torch what the nodes are for; `exporter`: the one that makes a model of that
    function which shows it too.
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
    torch_code: tuple[str, ...] = ()
    torch_takes: tuple[str, ...] = ()
    torch_own: dict[str, Array] = field(default_factory=dict, repr=False)
    exporter: str = ""


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

    @property
    def place(self) -> tuple[str, str, str]:
        """Return operator, ONNX node and source line, as far as place or attribution know them."""
        known, where = self.verdict.attribution, self.where
        return (
            where.op or (known.op if known else ""),
            where.onnx_node or (known.onnx_node if known else ""),
            where.source or (known.source if known else ""),
        )

    @property
    def is_place_sure(self) -> bool:
        """Tell whether the place is more than a guess: found by the exporter's names, or shown by a substitution."""
        known = self.verdict.attribution
        return known is None or not known.is_guess or known.is_shown


def is_same_cause(one: Finding, other: Finding) -> bool:
    """Tell whether two findings are known to be one fault: the same part at the same place, in a kind it explains.

    A part or place that is not known joins nothing. What is no bug joins a bug by place alone, never the reverse: it
    is the caller who lets the bug lead.
    """
    if one.bucket.build != other.bucket.build:
        return False
    first, second = one.verdict, other.verdict
    left, right = one.bucket, other.bucket
    is_refusal = first.kind is second.kind is Kind.ERROR_SPLIT and first.grade is second.grade
    if is_refusal and (left.side, left.site, *one.place[:2]) == (right.side, right.site, *other.place[:2]):
        return bool(one.place[1])
    like, other_like = ((v.kind, v.output, v.grade, v.site) for v in (first, second))
    are_like = like == other_like
    if are_like and first.output and one.case_digest == other.case_digest:
        return True
    are_bugs = [item.grade is Grade.BUG for item in (first, second)]
    if not any(are_bugs):
        return are_like or (_are_at_one_place(one, other) and first.output == second.output)
    if all(are_bugs) and left.provisional == right.provisional and _are_at_one_place(one, other):
        return True  # taken for a further cause, and found at the place of one that is known
    are_sure = one.is_place_sure and other.is_place_sure
    if are_like and all(are_bugs) and _needs_no_nan(one, other):
        return not are_sure or not (one.place[1] and other.place[1]) or _are_at_one_place(one, other)
    if not (are_sure and _are_at_one_place(one, other)):
        return False
    if not all(are_bugs):
        return True
    return first.blame == second.blame not in ("unknown", "none", "") and _are_of_one_kind(one, other)


def _are_at_one_place(one: Finding, other: Finding) -> bool:
    """Compare nodes; of what the capture left out there is none, and lines are compared."""
    (op, node, source), (other_op, other_node, other_source) = one.place, other.place
    if "capture" in (one.verdict.blame, other.verdict.blame) or not (node or other_node):
        return bool(source) and source == other_source
    return bool(node) and (op, node) == (other_op, other_node)


def _are_of_one_kind(one: Finding, other: Finding) -> bool:
    """Tell whether one fault of a place explains the kinds of both.

    Wrong values show in patterns, decisions and shapes as well; wrong NaN semantics do not show on finite inputs, so
    what was met with NaN or infinity joins what is finite only where finite numbers in their place differ too.
    """
    if not {one.verdict.kind, other.verdict.kind} <= VALUE_KINDS:
        left, right = one.bucket, other.bucket
        return (left.kind, left.side, left.site) == (right.kind, right.side, right.site)
    return one.bucket.finite == other.bucket.finite or _needs_no_nan(one, other)


def _needs_no_nan(one: Finding, other: Finding) -> bool:
    """Tell whether one of two findings was met with NaN or infinity, and is the other kind of input's as well."""
    met = [item for item in (one, other) if not item.bucket.finite]
    return len(met) == 1 and met[0].verdict.is_also_finite
