"""Builds: campaigns on every build that a target asks for by its `dtypes`, one after the other.

The idea: each build has a campaign of its own, on its share of the time and in one corpus; one that cannot be run is
told and the others go on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from fuzzparity.campaign.loop import Campaign
from fuzzparity.campaign.observer import Observer
from fuzzparity.campaign.options import FuzzOptions
from fuzzparity.errors import InvalidTarget
from fuzzparity.known import together
from fuzzparity.report.records import BuildRun, CampaignResult


def run_builds(options: FuzzOptions, observer: Observer) -> tuple[CampaignResult, tuple[BuildRun, ...]]:
    """Run a campaign on each build; return what all ended with, and each by itself.

    Raises `InvalidTarget` when the first build is wrong: the target is.
    """
    campaign = Campaign(options, observer)
    first = campaign.run()
    builds = (options.target.dtypes,) if options.target.dtypes else campaign.builds
    runs = [BuildRun(builds[0], first)]
    rest = dataclasses.replace(options.shared(len(builds)), fresh=False)
    turns = _turns(builds, is_endless=options.seconds is None and options.cases is None)
    for dtypes in turns:
        if runs[-1].result is not None and runs[-1].result.interrupted_by is not None:
            break
        runs.append(_run(dataclasses.replace(rest, target=dataclasses.replace(rest.target, dtypes=dtypes)), observer))
    return _merged([run.result for run in runs if run.result is not None]), _by_build(runs)


def _turns(builds: tuple[tuple[str, ...], ...], *, is_endless: bool) -> Iterable[tuple[str, ...]]:
    """Yield whose turn it is after the first build's first one."""
    yield from builds[1:]
    while is_endless and len(builds) > 1:
        yield from builds


def _run(options: FuzzOptions, observer: Observer) -> BuildRun:
    dtypes = options.target.dtypes
    try:
        return BuildRun(dtypes, Campaign(options, observer).run())
    except InvalidTarget as error:
        observer.note(f"build {', '.join(dtypes)} cannot be run: {error.problem}")
        return BuildRun(dtypes, problem=error.problem)


def _by_build(runs: list[BuildRun]) -> tuple[BuildRun, ...]:
    """Return one entry for each build, its turns merged."""
    by_dtypes: dict[tuple[str, ...], list[BuildRun]] = {}
    for run in runs:
        by_dtypes.setdefault(run.dtypes, []).append(run)
    merged = []
    for dtypes, turns in by_dtypes.items():
        results = [turn.result for turn in turns if turn.result is not None]
        merged.append(BuildRun(dtypes, _merged(results) if results else None, turns[-1].problem))
    return tuple(merged)


def _merged(results: list[CampaignResult]) -> CampaignResult:
    """Return several campaigns as one; what belongs to one build alone is the first one's."""
    if len(results) == 1:
        return results[0]
    hits: dict[str, int] = {}
    for result in results:
        for finding_id, count in result.hits.items():
            hits[finding_id] = hits.get(finding_id, 0) + count
    findings = {finding.finding_id: finding for result in results for finding in result.findings}
    return dataclasses.replace(
        results[0],
        seconds=sum(result.seconds for result in results),
        setup_seconds=sum(result.setup_seconds for result in results),
        executions=sum(result.executions for result in results),
        inputs=sum(result.inputs for result in results),
        rejected=sum(result.rejected for result in results),
        corpus_size=results[-1].corpus_size,
        findings=tuple(findings.values()),
        new_ids=frozenset().union(*(result.new_ids for result in results)),
        exit_code=_exit_code([result.exit_code for result in results]),
        hits=hits,
        interrupted_by=results[-1].interrupted_by,
        notes=tuple(dict.fromkeys(note for result in results for note in result.notes)),
        probe=tuple(row for result in results for row in result.probe),
        known=together(item for result in results for item in result.known),
        rechecks=tuple(dict.fromkeys(item for result in results for item in result.rechecks)),
    )


def _exit_code(codes: list[int]) -> int:
    """Return the code that several campaigns end with: a signal, a fault, a finding, then 4 when none could judge."""
    if codes[-1] >= 128:
        return codes[-1]
    found = next((code for code in (3, 1) if code in codes), 0)
    return found or (4 if all(code == 4 for code in codes) else 0)
