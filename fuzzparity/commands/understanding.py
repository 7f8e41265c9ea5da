"""Understanding: what `check` learns of a target's contract and outputs beyond what its words and graph say.

The idea: one more job in a forked child, over sizes; a case that kills it is left out and the job starts again, so that
`check` tells what is known in any case.
"""

from __future__ import annotations

from fuzzparity.campaign.setup import Prepared
from fuzzparity.case import Case
from fuzzparity.explain.sizes import Sized, SizingSpec
from fuzzparity.generate.seen import seen_lines
from fuzzparity.generate.understood import Line, understood
from fuzzparity.goals import goals_of
from fuzzparity.oracle.proposals import DECLARED, Proposal
from fuzzparity.work.alone import Exit

_JOB = "fuzzparity.explain.sizing:size_up"
_MOST_DEATHS = 6


def understand(prepared: Prepared) -> tuple[Line, ...]:
    """Return the contract as understood; what the sizing showed on one side alone becomes a note."""
    sized = _sized(prepared)
    prepared.notes += sized.one_sided
    prepared.notes += [f"guard gap: {goal.text}" for goal in goals_of(prepared.facts.build.notes)]
    statistics = prepared.twin.statistics if prepared.twin is not None else None
    lines = understood(
        prepared.facts.contract,
        is_given=prepared.facts.build.origin == "given",
        statistics=statistics,
        rules=sized.rules,
        has_valid=sized.has_valid,
        seen=seen_lines(
            prepared.facts.contract,
            _seeds(prepared),
            has_real_seeds=statistics is not None and statistics.has_real_seeds,
        ),
    )
    return (*lines, *map(_output_line, prepared.proposals))


def _seeds(prepared: Prepared) -> tuple[Case, ...]:
    """Return the seeds that agree, and those that do not: what the data looks like does not depend on that."""
    return (*prepared.seeds, *(suspect.case for suspect in prepared.suspects if suspect.lineage.origin == "seed"))


def _output_line(one: Proposal) -> Line:
    """Return how an output is judged, or could be: what is proposed waits to be pasted."""
    if one.reason == DECLARED:
        return Line(f"output {one.output}", "within your tolerance", "declared", one.reason, "tolerances=")
    if not one.policy:
        return Line(f"output {one.output}", "the screen, then evidence", "default", one.reason)
    if not one.line:
        return Line(f"output {one.output}", f"by policy {one.policy}", "seeds", one.reason)
    return Line(f"output {one.output}", f"policy {one.policy} would fit", "seeds", one.reason, one.line)


def _sized(prepared: Prepared) -> Sized:
    twin = prepared.twin
    if twin is None or not twin.is_built or not prepared.can_run or not prepared.seeds:
        return Sized()
    skip: list[str] = []
    for _ in range(_MOST_DEATHS):
        spec = SizingSpec(twin, prepared.seeds[0], tuple(skip))
        answer = prepared.pool.run(_JOB, spec, limits=prepared.limits, label="sizes")
        if not isinstance(answer, Exit):
            assert isinstance(answer, Sized)
            return answer
        case = answer.announced.case if answer.announced is not None else None
        if case is None:
            break
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in case.shapes.items())
        prepared.notes.append(f"a side dies with {answer.text} on {shapes}; a campaign will tell more")
        skip.append(case.digest)
    return Sized()
