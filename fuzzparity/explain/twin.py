"""Twin: both sides of one build in one process, announced, with the oracle that judges them.

The idea: workers, the gate and every risky run use the same few lines to run and judge a case, so a finding is
confirmed by exactly what found it.
"""

from __future__ import annotations

from pathlib import Path

from fuzzparity.case import Array, Case
from fuzzparity.execution import ORT, TORCH, Execution
from fuzzparity.explain.arms import TwinArms
from fuzzparity.explain.records import REFEREE, TwinSpec
from fuzzparity.generate.contract import breach
from fuzzparity.oracle.judge import Oracle, Screening
from fuzzparity.oracle.where import MaskedReferee, Where, any_mask
from fuzzparity.sides.export import load_state
from fuzzparity.sides.pair import Pair, open_pair
from fuzzparity.sides.referees import Referees
from fuzzparity.verdict import Judgement, Realism
from fuzzparity.work.announce import Announcer
from fuzzparity.work.loader import Context


class AnnouncedReferee:
    """Announce every run of the referee, so that a death inside it is not taken for one of a side."""

    def __init__(self, referee: Referees, announcer: Announcer) -> None:
        """Wrap a referee of this process."""
        self._referee = referee
        self._announcer = announcer

    @property
    def missing(self) -> str:
        """Return why the referee cannot run, empty when it can."""
        return self._referee.missing

    @property
    def operators(self) -> int:
        """Return how many operators the last rounded run had, 0 where that is not known."""
        return self._referee.operators

    @property
    def source(self) -> str:
        """Return who answers."""
        return self._referee.source

    @property
    def is_of_file(self) -> bool:
        """Tell whether it answers what the ONNX file means."""
        return self._referee.is_of_file

    def bounds(self, case: Case) -> tuple[tuple[Array | None, ...], str]:
        """Return for each output how far roundings may move it at most, and where that is not known."""
        with self._announcer.at(REFEREE):
            return self._referee.bounds(case)

    def exact(self, case: Case) -> tuple[Array, ...] | None:
        """Return the outputs in float64, None when the referee cannot run."""
        with self._announcer.at(REFEREE):
            return self._referee.exact(case)

    def rounded(self, case: Case, draw: int, times: float = 1.0) -> tuple[Array, ...] | None:
        """Return the float64 outputs with every intermediate rounded at random, that many times as far."""
        with self._announcer.at(REFEREE):
            return self._referee.rounded(case, draw, times)

    def peak(self, case: Case) -> float:
        """Return the largest finite intermediate of the float64 run."""
        with self._announcer.at(REFEREE):
            return self._referee.peak(case)

    def unmoved(self, case: Case) -> frozenset[int]:
        """Return the places of outputs that come from integers alone."""
        with self._announcer.at(REFEREE):
            return self._referee.unmoved(case)


class Twin:
    """Run and judge cases on one build; every run is announced first."""

    def __init__(self, pair: Pair, spec: TwinSpec, context: Context, announcer: Announcer) -> None:
        """Join a pair of sides and the oracle of a spec."""
        target = context.loaded.target
        contract = spec.facts.contract
        self.spec = spec
        self.announcer = announcer
        self.pair = pair
        self.arms = TwinArms(pair, announcer, self._masked)
        self._referee: AnnouncedReferee | None = None
        self.where: Where | None = None
        if target.compare_where is not None:
            self.where = Where(target.compare_where, spec.facts.outputs, spec.policy.trailing_masks)
        self.oracle = Oracle(
            spec.facts.outputs,
            spec.policy,
            breach=lambda case: breach(contract, case, target.valid) or self._where_problem(case),
            realism=lambda case: spec.statistics.realism(contract, case),
            metrics=target.metrics,
            is_typical=lambda case: spec.statistics.is_typical(contract, case, any_rows=True),
        )

    def _where_problem(self, case: Case) -> str:
        """Return why all of a case was compared although the target says where: it counts as outside the contract."""
        return "" if self.where is None else self.where.problem(case)

    @property
    def referee(self) -> AnnouncedReferee | None:
        """Return the float64 referee, made on first use; None when the spec forbids it."""
        if self._referee is None and self.spec.use_referee:
            self._referee = AnnouncedReferee(self.pair.referee, self.announcer)
        return self._referee

    def run_torch(self, case: Case) -> Execution:
        """Run the torch side, announced."""
        with self.announcer.at(TORCH):
            execution = self.pair.run_torch(case)
        return self._masked(case, execution)

    def run_ort(self, case: Case) -> Execution:
        """Run the ORT side, announced."""
        with self.announcer.at(ORT):
            execution = self.pair.run_ort(case)
        return self._masked(case, execution)

    def _masked(self, case: Case, execution: Execution) -> Execution:
        return execution if self.where is None else self.where.applied(case, execution)

    def run(self, case: Case, sequence: int = -1) -> tuple[Execution, Execution]:
        """Announce a case and run both sides, torch first."""
        self.announcer.case(case, sequence)
        return self.run_torch(case), self.run_ort(case)

    def screen(self, case: Case, expected: Execution, actual: Execution, *, relative: bool = False) -> Screening:
        """Look at two executions without evidence; `relative` adds the look without an absolute bound."""
        return self.oracle.screen(expected, actual, relative=relative, case=case)

    def judge(
        self,
        case: Case,
        expected: Execution,
        actual: Execution,
        second: tuple[Execution, Execution] | None = None,
        *,
        relative: bool = True,
        asked: frozenset[str] | None = None,
        is_brief: bool = False,
    ) -> Judgement:
        """Judge two executions with evidence; `second` are the repeats that stability is judged by.

        `is_brief` takes a few draws only: then a bug is what a full look may still excuse.

        `asked` names the outputs and metrics ("metric:" before these) that verdicts are wanted on, None all.
        """
        referee: AnnouncedReferee | MaskedReferee | None = self.referee
        if referee is not None and any_mask(expected.where):
            referee = MaskedReferee(referee, expected.where)
        actual = self.arms.decided(case, actual)
        return self.oracle.judge(
            case,
            expected,
            actual,
            referee,
            second=second,
            relative=relative,
            arms=self.arms,
            asked=asked,
            is_brief=is_brief,
        )

    def realism(self, case: Case) -> Realism:
        """Say how close a case is to the seeds."""
        return self.spec.statistics.realism(self.spec.facts.contract, case)


def open_twin(context: Context, spec: TwinSpec, announcer: Announcer, case: Case | None = None) -> Twin | Execution:
    """Open both sides, announced as the load of ORT with `case`; an Execution tells how ORT failed to load."""
    folder = Path(spec.facts.build.folder)
    if spec.reload_state:
        load_state(context.loaded, folder)
    if case is not None:
        announcer.case(case)
    with announcer.at(ORT, note="load"):
        pair = open_pair(context.loaded, spec.facts, folder)
    if isinstance(pair, Execution):
        return pair
    return Twin(pair, spec, context, announcer)
