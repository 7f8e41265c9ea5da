"""Trial of one entry by the code that `explain` runs: build, gate, examine, investigate.

The idea: the loader's part (imports, one loaded target) is played by the calling process, which must be clean where
an entry is investigated: every run that may die is forked from it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from entries import Entry

from fuzzparity.campaign.gate import build, gate
from fuzzparity.campaign.records import GateReport, GateSpec
from fuzzparity.contract import TargetFacts
from fuzzparity.execution import Execution
from fuzzparity.explain.examine import examine
from fuzzparity.explain.investigate import investigate
from fuzzparity.explain.records import ExamineSpec, InvestigateSpec, TwinSpec
from fuzzparity.explain.twin import open_twin
from fuzzparity.sides.export import make_build
from fuzzparity.sides.load import LoadedTarget, first_seed
from fuzzparity.verdict import Judgement, Verdict
from fuzzparity.work.alone import run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.limits import Limits, run_limit_seconds
from fuzzparity.work.loader import Context


@dataclass(frozen=True)
class Outcome:
    """Hold what came of an entry: its judgement and, where it was investigated, one verdict for each suspect."""

    judgement: Judgement
    verdicts: tuple[Verdict, ...] = ()


class _Silent:
    """Stand for a parent that does not listen."""

    def send(self, message: Any) -> None:
        """Drop a message."""


@contextlib.contextmanager
def context_of(entry: Entry) -> Iterator[Context]:
    """Load an entry's target in this process, one torch thread, files in a temporary folder."""
    torch.set_num_threads(1)
    target = entry.target()
    with tempfile.TemporaryDirectory(prefix="judged-") as folder:
        loaded = LoadedTarget(target, "judged", "", folder, (), first_seed(target), target.module)
        path = Path(folder) / "announced.map"
        yield Context(loaded, _Silent(), Announcer(path), path, Limits())  # type: ignore[arg-type]


def judged(entry: Entry) -> Judgement:
    """Judge an entry in this process; nothing is confirmed, minimized or blamed."""
    with context_of(entry) as context:
        built = make_build(context.loaded, Path(context.loaded.folder) / "builds")
        assert built.facts is not None, built.error
        twin = _twin_of(built.facts, gate(context, GateSpec(built.facts)))
        opened = open_twin(context, twin, context.announcer, entry.case)
        if isinstance(opened, Execution):  # ORT refuses the model: there is nothing to weigh
            return examine(context, ExamineSpec(twin, entry.case)).judgement
        expected, actual = opened.run(entry.case)
        second = (opened.run_torch(entry.case), opened.run_ort(entry.case))
        return opened.judge(entry.case, expected, actual, second)


def investigated(entry: Entry) -> Outcome:
    """Judge an entry in processes of their own, then confirm, minimize and blame what was found."""
    with context_of(entry) as context:
        built = build(context, str(Path(context.loaded.folder) / "builds"))
        assert built.error is None, built.error
        assert built.dead is None, built.dead
        facts = built.facts
        report = run_alone(
            lambda announcer, send: gate(context, GateSpec(facts)),
            map_path=context.map_path.with_name("gate.map"),
            limits=context.limits,
        )
        assert isinstance(report, GateReport), report
        context = replace(context, limits=Limits(run_limit_seconds(report.slowest_seconds)))
        twin = _twin_of(facts, report)
        examined = examine(context, ExamineSpec(twin, entry.case))
        found = [investigate(context, InvestigateSpec(twin, suspect)) for suspect in examined.suspects]
        verdicts = (one.verdict or one.confirmation.verdict or one.suspect.verdict for one in found)
        return Outcome(examined.judgement, tuple(verdicts))


def _twin_of(facts: TargetFacts, report: GateReport) -> TwinSpec:
    return TwinSpec(facts, report.policy, report.statistics)
