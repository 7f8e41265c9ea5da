"""Examine: read inputs as cases of a target, and judge one case in a process of its own."""

from __future__ import annotations

import itertools

from fuzzparity.case import Lineage
from fuzzparity.explain.pairing import pair_alone
from fuzzparity.explain.records import Examined, ExamineSpec, InputSpec, InputsRead
from fuzzparity.finding import suspects_of
from fuzzparity.sides.seeds import SeedReader
from fuzzparity.work.loader import Context


def read(context: Context, spec: InputSpec) -> InputsRead:
    """Read files and folders up to a limit; what cannot be read is returned by name and reason."""
    reader = SeedReader(context.loaded, spec.contract)
    found = list(itertools.islice(reader.read(spec.paths, own=False), spec.limit + 1))
    cases = tuple((item.where, item.case) for item in found[: spec.limit])
    return InputsRead(cases, tuple(reader.skipped), tuple(reader.notes), len(found) <= spec.limit)


def examine(context: Context, spec: ExamineSpec) -> Examined:
    """Run one case on both sides, whatever dies, and judge it with evidence."""
    pairing = pair_alone(context, spec.twin, spec.case, context.limits)
    judgement, expected, actual = pairing.judgement, pairing.expected, pairing.actual
    build = spec.twin.facts.build.digest
    suspects = suspects_of(build, spec.case, Lineage(origin="given"), judgement, expected, actual)
    return Examined(spec.case, judgement, expected, actual, tuple(suspects))
