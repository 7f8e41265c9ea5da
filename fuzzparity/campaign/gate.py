"""Gate: build the twin and run the seeds on both sides, before anything is fuzzed.

The idea: two jobs in forked children. `build` exports and saves the twin; `gate` tells which seeds agree, how much
arithmetic noise they show, and how slow a run is. A seed that differs is a finding like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fuzzparity.campaign.coarseness import coarseness
from fuzzparity.campaign.records import Built, GateReport, GateSpec
from fuzzparity.campaign.sequences import Carrying, carrying_of, drift
from fuzzparity.case import Case, Lineage
from fuzzparity.contract import Contract, Dim, InputContract, TargetFacts
from fuzzparity.corpus.database import Corpus
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.explain.gathering import MOST_BYTES, Ticker, chosen_words
from fuzzparity.explain.pairing import oracle_of
from fuzzparity.explain.records import TwinSpec
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.explain.unbuilt import build_alone, torch_alone
from fuzzparity.finding import Suspect, suspects_of
from fuzzparity.generate.contract import SeedStatistics, SeedTally, breach
from fuzzparity.generate.diverse import DiverseChoice
from fuzzparity.generate.ranges import InputRanges, RangeTally
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import Policy, calibrate
from fuzzparity.oracle.proposals import proposals
from fuzzparity.sides.dtypes import cast_case
from fuzzparity.sides.export import facts_without_model
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.seeds import SeedReader
from fuzzparity.verdict import Grade, Judgement
from fuzzparity.work.loader import Context

CALIBRATION_SEEDS = 64
_MOST_JUDGED = 16  # differing seeds that are judged with evidence
_MOST_IN_SEQUENCE = 64
_STEPS_JUDGED = 2  # of a sequence: later ones tell the same most often, and the campaign goes on from there
_ARITHMETIC = frozenset({Grade.INHERENT, Grade.TIE, Grade.NOTE})  # grades under which a seed agrees all the same
_MOST_IMPORTED = 20_000
_MOST_OWN = 10_000  # items of the target's seeds()


def build(context: Context, folder: str) -> Built:
    """Run the first seed, export or take the twin, and save it under `folder`."""
    loaded = context.loaded
    _require_declared(loaded)
    if loaded.device == "cpu":
        first = torch_alone(context, loaded.seed, context.limits)
        if first.status in (Status.CRASHED, Status.HANG):
            return Built(facts_without_model(loaded, can_run=False), loaded.seed, dead=first)
    result = build_alone(context, Path(folder))
    if result.facts is not None:
        return Built(result.facts, loaded.seed)
    assert result.error is not None
    return Built(facts_without_model(loaded, notes=result.notes), loaded.seed, result.error)


def gate(context: Context, spec: GateSpec) -> GateReport:
    """Run the seeds on both sides; InvalidTarget when torch refuses the first of them."""
    facts = spec.facts
    found = _seeds(context, spec)
    seeds = found.cases
    if not seeds:
        return _no_seed_left(context, spec)
    policy = _policy(context, spec)
    twin_spec = TwinSpec(facts, policy, found.statistics, spec.reload_state)
    twin = open_twin(context, twin_spec, context.announcer, seeds[0])
    if isinstance(twin, Execution):
        return _load_failure(context, twin_spec, twin, seeds[0])
    coarse = coarseness(twin, context.loaded.module, facts, policy, seeds)
    if coarse.policy is not policy:
        policy, twin_spec = coarse.policy, replace(twin_spec, policy=coarse.policy)
        twin = Twin(twin.pair, twin_spec, context, context.announcer)
    trial = _Trial(twin)
    for index, seed in enumerate(seeds):
        trial.run(seed, is_first=index == 0 and not spec.skip)
    carrying = carrying_of(context.loaded.target, facts)
    if carrying.carry and trial.agreed and not spec.first_only:
        trial.drift(carrying, trial.agreed[:_MOST_IN_SEQUENCE], spec.skip)
    trailing = twin.where.trailing if twin.where is not None else ()
    policy = replace(calibrate(policy, trial.pairs), trailing_masks=trailing)
    oracle = oracle_of(context, replace(twin_spec, policy=policy))
    return GateReport(
        policy,
        found.statistics,
        tuple(trial.agreed),
        tuple(suspect for suspect in trial.suspects if _still_differs(suspect, oracle)),
        len(seeds),
        trial.slowest_seconds,
        True,
        found.skipped,
        (
            *found.notes,
            *coarse.notes,
            *trial.notes,
            *trial.outside_notes(len(seeds)),
            *twin.oracle.meter.taken(),
            *_when_all_differ(context, facts, trial),
        ),
        found.ranges,
        proposals(policy, trial.answers(), tuple(context.loaded.target.carry)),
    )


def _require_declared(loaded: LoadedTarget) -> None:
    """Refuse a target whose own first inputs are outside of what it declares: nothing could ever be judged."""
    target = loaded.target
    inputs = []
    for name, array in loaded.seed.inputs.items():
        low, high = target.ranges.get(name, (None, None))
        dims = tuple(Dim(size) for size in array.shape)
        inputs.append(InputContract(name, array.dtype.name, dims, low, high, target.allow_nonfinite))
    if said := breach(Contract(tuple(inputs)), loaded.seed, target.valid):
        raise InvalidTarget(
            "declare",
            f"the target's own first inputs are outside of what it declares: {said}",
            "mend `ranges`, `valid` or `allow_nonfinite`, or give inputs that they admit",
        )


def _when_all_differ(context: Context, facts: TargetFacts, trial: _Trial) -> tuple[str, ...]:
    """Say what every seed differing means and, of a given ONNX, whether it holds the module's weights."""
    if trial.agreed or not trial.suspects:
        return ()
    note = "every seed differs: nothing is fuzzed until that is mended, unless --force is given"
    if facts.build.origin != "given":
        return (note,)
    from fuzzparity.sides.weights import same_weights_in

    return note, same_weights_in(context.loaded.module, Path(facts.build.folder) / "model.onnx")


def _still_differs(suspect: Suspect, oracle: Oracle) -> bool:
    """Tell whether a seed differs by more than the noise that all seeds together show."""
    assert suspect.expected is not None
    assert suspect.actual is not None
    return oracle.screen(suspect.expected, suspect.actual, case=suspect.case).is_suspicious


class _Trial:
    """Run seeds one after the other and sort them into those that agree and those that do not."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin
        self._judged = 0
        self.agreed: list[Case] = []
        self.suspects: list[Suspect] = []
        self.pairs: list[tuple[Execution, Execution]] = []  # executions that show noise and no fault
        self.slowest_seconds = 0.0
        self.outside = 0
        self.breach = ""
        self.notes: list[str] = []

    def run(self, seed: Case, *, is_first: bool) -> None:
        """Run one seed; InvalidTarget when torch refuses the first of all."""
        expected, actual = self._twin.run(seed)
        if is_first and expected.status is Status.REFUSED:
            assert expected.refusal is not None
            raise InvalidTarget(
                "run",
                f"the module refuses its own first inputs: {expected.refusal.error_class}: {expected.refusal.message}",
                "check that `inputs` holds what forward expects, in forward's order",
            )
        if expected.is_ok and is_first:
            self.notes += self._twin.spec.policy.require_fit(expected)
        self._tally(seed)
        if expected.is_ok and self._twin.where is not None and self._twin.where.settle(seed, expected.outputs):
            expected, actual = self._twin.run(seed)
        self.slowest_seconds = max(self.slowest_seconds, expected.seconds, actual.seconds)
        screening = self._twin.screen(seed, expected, actual)
        self._twin.oracle.meter.require(seed, screening.measures)
        if not screening.is_suspicious:
            if expected.is_ok:
                self._agrees(seed, expected, actual)
            return
        judgement = self._judge(seed, Lineage(origin="seed"), expected, actual)
        if judgement is not None and all(verdict.grade in _ARITHMETIC for verdict in judgement.verdicts):
            self._agrees(seed, expected, actual)

    def _tally(self, seed: Case) -> None:
        """Count the seeds that the contract does not admit: what differs on them is the contract's fault."""
        if said := self._twin.oracle.breach(seed):
            self.outside += 1
            self.breach = self.breach or said

    def outside_notes(self, count: int) -> tuple[str, ...]:
        """Say how many of `count` seeds are outside of the contract."""
        if not self.outside:
            return ()
        return (f"{self.outside} of {count} seeds are outside of the contract, such as: {self.breach}",)

    def answers(self) -> list[Execution]:
        """Return what torch answered on seeds, those that agree if there are any."""
        found = [expected for expected, _ in self.pairs]
        return found or [suspect.expected for suspect in self.suspects if suspect.expected is not None]

    def drift(self, carrying: Carrying, seeds: Sequence[Case], deadly: Sequence[str]) -> None:
        """Run the seeds as one sequence, note how far the sides drift apart, and judge every single step."""
        told = 0

        def look(case: Case, expected: Execution, actual: Execution) -> bool:
            nonlocal told
            if not self._twin.screen(case, expected, actual).is_suspicious:
                return False
            if told < _STEPS_JUDGED:
                told += 1
                self._judge(case, Lineage(mutators=carrying.mutators), expected, actual)
            return True

        def kind_of(case: Case, expected: Execution, actual: Execution) -> str:
            screening = self._twin.screen(case, expected, actual)
            return screening.kind.value if screening.is_suspicious else ""

        found = drift(carrying, self._twin, seeds, look, deadly=deadly, kind_of=kind_of)
        self.notes.append(found.note)

    def _judge(self, case: Case, lineage: Lineage, expected: Execution, actual: Execution) -> Judgement | None:
        if self._judged >= _MOST_JUDGED:  # all of a kind by now: evidence is dear, and the first ones told it
            return None
        self._judged += 1
        second = (self._twin.run_torch(case), self._twin.run_ort(case))
        judgement = self._twin.judge(case, expected, actual, second, relative=False)
        facts = self._twin.spec.facts
        self.suspects += suspects_of(facts.build.digest, case, lineage, judgement, expected, actual)
        return judgement

    def _agrees(self, seed: Case, expected: Execution, actual: Execution) -> None:
        self.agreed.append(seed)
        if len(self.pairs) < CALIBRATION_SEEDS:
            self.pairs.append((expected, actual))


@dataclass(frozen=True, slots=True)
class _Seeds:
    """Hold the seeds to run, the first one of the target in front, and what all of the data shows."""

    cases: tuple[Case, ...]
    statistics: SeedStatistics
    ranges: tuple[InputRanges, ...]
    skipped: tuple[str, ...]
    notes: tuple[str, ...]


def _seeds(context: Context, spec: GateSpec) -> _Seeds:
    """Read all of the data, so that all of it counts for statistics, and choose the seeds among it."""
    first = context.loaded.seed
    choice = DiverseChoice(first, spec.limit - 1, MOST_BYTES)
    tally, ranges = SeedTally(), RangeTally(first)
    tally.add(first)
    ticker = Ticker(context.send)
    reader = SeedReader(context.loaded, spec.facts.contract)
    data = ((found.where, found.case) for found in reader.read(spec.seed_paths, most_own=_MOST_OWN))
    for where, case in itertools.chain(data, _imported(context, spec)):
        tally.add(case)
        ranges.add(case, where)
        ticker.tell(ranges.count, where)
        if case != first:
            choice.offer(case)
        if spec.first_only and ranges.count >= CALIBRATION_SEEDS:
            break
    notes = [*reader.notes, *([] if spec.first_only else ranges.warnings)]
    if choice.offered > len(choice.cases) and not spec.first_only:
        notes.insert(0, chosen_words(len(choice.cases), choice.offered))
    cases = tuple(case for case in (first, *choice.cases) if case.digest not in spec.skip)
    statistics = tally.statistics(has_real_seeds=ranges.count > 0)
    return _Seeds(cases, statistics, ranges.ranges() if ranges.count else (), tuple(reader.skipped), tuple(notes))


def _imported(context: Context, spec: GateSpec) -> Iterator[tuple[str, Case]]:
    """Yield the cases that `import` put into the corpus, in the dtypes of this build."""
    path = Path(spec.corpus_path)
    if spec.first_only or not spec.corpus_path or not path.is_file():
        return
    with Corpus.open(path, read_only=True) as corpus:
        for row in corpus.cases(_MOST_IMPORTED, origin="import"):
            yield f"import {row.digest[:12]}", cast_case(corpus.case(row.digest), context.loaded.seed)


def _policy(context: Context, spec: GateSpec) -> Policy:
    """Return the policy before it is calibrated: by the target's tolerances, or by those of this call."""
    own = context.loaded.target.tolerances if spec.tolerances is None else spec.tolerances
    return Policy(spec.facts.outputs, spec.facts.build.computing_dtype, own)


def _no_seed_left(context: Context, spec: GateSpec) -> GateReport:
    """Report that every seed has killed an earlier gate: their findings are all there is."""
    return GateReport(_policy(context, spec), SeedStatistics.of([context.loaded.seed], False), (), (), 0, 0.0, True)


def _load_failure(context: Context, spec: TwinSpec, failure: Execution, seed: Case) -> GateReport:
    """Report that ORT could not open the model: the finding needs no input, so it carries the first seed."""
    from fuzzparity.sides.torch_side import TorchSide

    with context.announcer.at(TORCH):
        expected = TorchSide(context.loaded).run(seed)
    judgement = oracle_of(context, spec).judge(seed, expected, failure, None)
    suspects = suspects_of(spec.facts.build.digest, seed, Lineage(origin="seed"), judgement, expected, failure)
    assert failure.side.startswith(ORT)
    return GateReport(spec.policy, spec.statistics, (), tuple(suspects), 1, expected.seconds, loaded=False)
