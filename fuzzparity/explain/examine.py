"""Examine: read inputs as cases of a target, and judge one case in a process of its own."""

from __future__ import annotations

from fuzzparity.case import Case, Lineage
from fuzzparity.explain.pairing import pair_alone
from fuzzparity.explain.records import Examined, ExamineSpec, InputSpec
from fuzzparity.finding import suspects_of
from fuzzparity.sides.seeds import SeedReader
from fuzzparity.work.loader import Context


def read(context: Context, spec: InputSpec) -> tuple[list[tuple[str, Case]], list[str]]:
    """Read files and folders; what cannot be read is returned by name and reason."""
    reader = SeedReader(context.loaded)
    return [(found.where, found.case) for found in reader.read(spec.paths, own=False)], reader.skipped


def examine(context: Context, spec: ExamineSpec) -> Examined:
    """Run one case on both sides, whatever dies, and judge it with evidence."""
    pairing = pair_alone(context, spec.twin, spec.case, context.limits)
    judgement, expected, actual = pairing.judgement, pairing.expected, pairing.actual
    build = spec.twin.facts.build.digest
    suspects = suspects_of(build, spec.case, Lineage(origin="import"), judgement, expected, actual)
    return Examined(spec.case, judgement, expected, actual, tuple(suspects))
