"""Gate: build the twin and run the seeds on both sides, before anything is fuzzed.

The idea: two jobs in forked children. `build` exports and saves the twin; `gate` tells which seeds agree, how much
arithmetic noise they show, and how slow a run is. A seed that differs is a finding like any other.
"""

from __future__ import annotations

from pathlib import Path

from fuzzparity.campaign.records import GateReport, GateSpec, suspects_of
from fuzzparity.case import Case, Lineage
from fuzzparity.contract import TargetFacts
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import ORT, TORCH, Execution, Refusal, Status
from fuzzparity.explain.investigate import oracle_of
from fuzzparity.explain.records import TwinSpec
from fuzzparity.explain.twin import Twin, open_twin
from fuzzparity.finding import Suspect
from fuzzparity.generate.contract import SeedStatistics
from fuzzparity.oracle.policy import Policy, calibrate
from fuzzparity.sides.export import facts_without_model, make_build
from fuzzparity.sides.files import read_seeds
from fuzzparity.verdict import Kind
from fuzzparity.work.loader import Context

CALIBRATION_SEEDS = 64
_SEED_BYTES = 1 << 30


def build(context: Context, folder: str) -> tuple[TargetFacts, Refusal | None, Case]:
    """Export or take the twin and save it under `folder`; a Refusal says why a sound target could not be exported."""
    result = make_build(context.loaded, Path(folder))
    if result.facts is not None:
        return result.facts, None, context.loaded.seed
    assert result.error is not None
    return facts_without_model(context.loaded), result.error, context.loaded.seed


def gate(context: Context, spec: GateSpec) -> GateReport:
    """Run the seeds on both sides; InvalidTarget when torch refuses the first of them."""
    facts = spec.facts
    skipped: list[str] = []
    seeds = _seeds(context, spec, skipped)
    if not seeds:
        seeds = [context.loaded.seed]
    policy = Policy(facts.outputs, facts.build.computing_dtype, context.loaded.target.tolerances)
    statistics = SeedStatistics.of(seeds, facts.has_real_seeds or bool(spec.seed_paths))
    twin_spec = TwinSpec(facts, policy, statistics, spec.reload_state)
    twin = open_twin(context, twin_spec, context.announcer, seeds[0])
    if isinstance(twin, Execution):
        return _load_failure(context, twin_spec, twin, seeds)
    runs = [(seed, *_run_seed(twin, seed, is_first=index == 0)) for index, seed in enumerate(seeds)]
    pairs = [(expected, actual) for _, expected, actual in runs[:CALIBRATION_SEEDS] if expected.is_ok and actual.is_ok]
    policy = calibrate(policy, pairs)
    twin = Twin(twin.pair, TwinSpec(facts, policy, statistics, spec.reload_state), context, context.announcer)
    agreed: list[Case] = []
    suspects: list[Suspect] = []
    for seed, expected, actual in runs:
        if not twin.screen(expected, actual).is_suspicious:
            if expected.is_ok:
                agreed.append(seed)
            continue
        judgement = twin.judge(seed, expected, actual, relative=False)
        suspects += suspects_of(facts, seed, Lineage(origin="seed"), judgement, expected, actual)
        if judgement.kind is Kind.AGREE:
            agreed.append(seed)
    slowest = max((max(expected.seconds, actual.seconds) for _, expected, actual in runs), default=0.0)
    return GateReport(
        policy,
        statistics,
        tuple(agreed),
        tuple(suspects),
        len(runs),
        slowest,
        True,
        tuple(skipped),
    )


def _seeds(context: Context, spec: GateSpec, skipped: list[str]) -> list[Case]:
    """Return the distinct seeds, the target's own first one in front, bounded in number and bytes."""
    seeds: dict[str, Case] = {context.loaded.seed.digest: context.loaded.seed}
    total = 0
    for _, case in read_seeds(context.loaded, spec.seed_paths, skipped):
        total += case.nbytes
        if len(seeds) >= spec.limit or total > _SEED_BYTES:
            break
        seeds.setdefault(case.digest, case)
    return [case for digest, case in seeds.items() if digest not in spec.skip]


def _run_seed(twin: Twin, seed: Case, *, is_first: bool) -> tuple[Execution, Execution]:
    expected, actual = twin.run(seed)
    if is_first and expected.status is Status.REFUSED:
        assert expected.refusal is not None
        raise InvalidTarget(
            "run",
            f"the module refuses its own first inputs: {expected.refusal.error_class}: {expected.refusal.message}",
            "check that `inputs` holds what forward expects, in forward's order",
        )
    return expected, actual


def _load_failure(context: Context, spec: TwinSpec, failure: Execution, seeds: list[Case]) -> GateReport:
    """Report that ORT could not open the model: the finding needs no input, so it carries the first seed."""
    from fuzzparity.sides.torch_side import TorchSide

    with context.announcer.at(TORCH):
        expected = TorchSide(context.loaded).run(seeds[0])
    judgement = oracle_of(context, spec).judge(seeds[0], expected, failure, None)
    suspects = suspects_of(spec.facts, seeds[0], Lineage(origin="seed"), judgement, expected, failure)
    assert failure.side.startswith(ORT)
    return GateReport(spec.policy, spec.statistics, (), tuple(suspects), 1, expected.seconds, loaded=False)
