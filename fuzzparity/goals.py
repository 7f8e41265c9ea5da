"""Goals: what an export took for granted, as things for a campaign to prove or to answer.

The idea: an exporter that keeps one arm of a branch, or a value of its sample, says so in a note of the build, if at
all. Each such note is a place at which the twin may mean something else than the module; whether it does, only runs
tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fuzzparity.finding import Finding
from fuzzparity.verdict import Grade

_NARROWED = re.compile(
    r"narrowed (?P<dim>\S+\[\d+\]) to (?P<range>\d+\.\.\w+)(?: \(decided at (?P<source>[^()]+:\d+)\))?"
)
_GRANTED = re.compile(r"takes (?P<condition>.+) for granted \((?P<source>[^()]+:\d+)\)")
_TRACED = re.compile(r"^TracerWarning: (?P<said>.*) \((?P<source>[^()]+:\d+)\)$")
_READ = re.compile(r"Converting a tensor to a Python (\w+)")


@dataclass(frozen=True, slots=True)
class Goal:
    """Hold one thing taken for granted: what it is, in words, and the user's line, "" where that is not known."""

    text: str
    source: str
    is_sure: bool = True  # an arm or a range was lost; else a value may have been


def goals_of(notes: Iterable[str]) -> list[Goal]:
    """Return the goals in the notes of a build, one for each place."""
    found: dict[str, Goal] = {}
    for note in notes:
        goal = _goal(note)
        if goal is not None:
            found.setdefault(goal.source or goal.text, goal)
    return list(found.values())


def _goal(note: str) -> Goal | None:
    if match := _NARROWED.search(note):
        source = match["source"] or ""
        kept = f", on the arm that the export kept at {source}" if source else ""
        return Goal(f"ORT takes {match['dim']} outside of {match['range']} as well{kept}", source)
    if match := _GRANTED.search(note):
        condition, source = match["condition"], match["source"]
        return Goal(f"ORT runs where {condition} does not hold as well, on the arm kept at {source}", source)
    if match := _TRACED.search(note):
        read = _READ.search(match["said"])
        what = (
            f"a Python {read[1]} read from a tensor is burnt in"
            if read
            else "the trace holds what was so on the sample"
        )
        return Goal(f"{what} at {match['source']}", match["source"], is_sure=False)
    return None


def standings(
    goals: Iterable[Goal], findings: Iterable[Finding], others: Mapping[str, tuple[int, int]], executions: int
) -> list[str]:
    """Return what became of each goal, in words.

    `others`: line -> cases that decided otherwise there than the exported sample, and agreed, or differed.
    """
    told, lines = list(findings), {_short(line): counts for line, counts in others.items()}
    said = []
    for goal in goals:
        proof = next((one for one in told if goal.source and _is_at(one, goal.source)), None)
        agreed, differed = lines.get(_short(goal.source), (0, 0))
        if proof is not None:
            said.append(f"guard gap proven by {proof.finding_id}: {goal.text}")
        elif agreed and not differed:
            said.append(f"guard gap harmless so far, {agreed} cases went there and agree: {goal.text}")
        elif goal.source and goal.is_sure and not (agreed or differed):
            said.append(f"guard gap open, none of {executions} executions went there: {goal.text}")
    return said


def _is_at(finding: Finding, source: str) -> bool:
    verdict = finding.verdict
    known = verdict.attribution.source if verdict.attribution is not None else ""
    return verdict.grade is Grade.BUG and _short(source) in (
        _short(finding.where.source),
        _short(known),
        _short(verdict.site),
    )


def _short(source: str) -> str:
    return source.rpartition("/")[2]
