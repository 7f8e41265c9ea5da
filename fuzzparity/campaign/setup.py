"""Setup: from a target's name to a loaded, built and gated twin; the first seconds of every command that runs one.

The idea: each step is a job in a child of the loader, so whatever the target or the exporter does to its process ends
in a clear error or a finding, never in ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fuzzparity.campaign.options import Places, TargetOptions, places
from fuzzparity.campaign.records import GateReport, GateSpec
from fuzzparity.case import Case, Lineage
from fuzzparity.contract import TargetFacts
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import ORT, Execution, Status
from fuzzparity.explain.records import TwinSpec, death
from fuzzparity.finding import Suspect, bucket_of
from fuzzparity.generate.contract import SeedStatistics, breach
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import Policy
from fuzzparity.verdict import Grade, Kind, Realism, Verdict
from fuzzparity.work.alone import Exit
from fuzzparity.work.limits import LONGEST_SECONDS, Limits, memory_budget_bytes, run_limit_seconds
from fuzzparity.work.loader import Loaded, LoadSpec
from fuzzparity.work.pool import Pool

_PRELOAD = (
    "fuzzparity.campaign.worker",
    "fuzzparity.campaign.gate",
    "fuzzparity.campaign.probing",
    "fuzzparity.explain.examine",
    "torch._dynamo",  # the exporter and torch's dispatch modes import it on first use: two seconds in every child
)
_EXPORT_SECONDS = 1800.0
_MOST_DEADLY_SEEDS = 8


@dataclass(slots=True)
class Prepared:
    """Hold a twin that is ready to be fuzzed, or the suspects that say why it is not."""

    pool: Pool
    loaded: Loaded
    places: Places
    facts: TargetFacts
    limits: Limits
    twin: TwinSpec | None = None
    seeds: tuple[Case, ...] = ()
    suspects: list[Suspect] = field(default_factory=list)
    tried: int = 0
    notes: list[str] = field(default_factory=list)


def open_pool(options: TargetOptions, run_folder_of: Callable[[str], Places]) -> tuple[Pool, Loaded, Places]:
    """Start the loader and load the target."""
    early = run_folder_of("target")
    spec = LoadSpec(
        options.target,
        options.onnx,
        options.torch_file,
        options.seeds,
        preload=_PRELOAD,
        providers=options.providers,
        provider_options=options.provider_options,
        device=options.device,
    )
    pool = Pool(spec, early.run, spawn=options.device != "cpu")
    try:
        loaded = pool.start()
        return pool, loaded, run_folder_of(loaded.name)
    except BaseException:
        pool.close()
        raise


def prepare(options: TargetOptions, *, workers: int, say: Callable[[str], None], gate: bool = True) -> Prepared:
    """Load, build and gate a target; the caller closes `pool`. InvalidTarget when the target is wrong."""
    say("loading")
    pool, loaded, where = open_pool(options, lambda name: places(options, name))
    try:
        limits = Limits(LONGEST_SECONDS, memory_budget_bytes(workers))
        say("exporting")
        facts, suspects = build_twin(pool, where, limits)
        prepared = Prepared(pool, loaded, where, facts, limits, suspects=suspects)
        prepared.notes += [*loaded.notes, *facts.notes, *facts.build.notes]
        if not suspects and gate:
            say("seeds")
            _pass_gate(prepared, options)
        return prepared
    except BaseException:
        pool.close()
        raise


def build_twin(pool: Pool, where: Places, limits: Limits) -> tuple[TargetFacts, list[Suspect]]:
    """Export in a forked child; a failure of the exporter, its death included, is an `export_error` suspect."""
    answer = pool.run(
        "fuzzparity.campaign.gate:build",
        str(where.builds),
        limits=replace(limits, run_seconds=_EXPORT_SECONDS),
        label="export",
    )
    if isinstance(answer, Exit):
        raise InvalidTarget(
            "export",
            f"the exporting process died with {answer.text}",
            "try the other exporter (Export(exporter='torchscript') or 'dynamo')",
            pool.log_tail(),
        )
    facts, refusal, case = answer
    if refusal is None:
        return facts, []
    verdict = Verdict(
        Kind.EXPORT_ERROR,
        Grade.BUG,
        side=ORT,
        site=f"{refusal.error_class} {refusal.site}".strip(),
        blame="export",
        headline=f"the module cannot be exported: {refusal.error_class}: {refusal.message}",
    )
    actual = Execution(ORT, Status.REFUSED, refusal=refusal, phase="load")
    suspect = Suspect(
        bucket_of(facts.build.digest, case, verdict),
        case,
        Lineage(origin="seed"),
        verdict,
        Realism.UNKNOWN,
        None,
        actual,
    )
    return facts, [suspect]


def _pass_gate(prepared: Prepared, options: TargetOptions) -> None:
    """Run the gate, again without the seed that killed it if one did."""
    skip: list[str] = []
    for _ in range(_MOST_DEADLY_SEEDS):
        spec = GateSpec(prepared.facts, options.seeds, str(prepared.places.corpus), tuple(skip))
        answer = prepared.pool.run("fuzzparity.campaign.gate:gate", spec, limits=prepared.limits, label="gate")
        if isinstance(answer, GateReport):
            _take_report(prepared, answer)
            return
        case = answer.announced.case if answer.announced else None
        side = answer.announced.side if answer.announced else ""
        if case is None or side in ("", "referee"):
            raise InvalidTarget(
                "seeds", f"the process that runs the seeds died with {answer.text}", "see --debug", answer.fault
            )
        prepared.suspects.append(suspect_of_death(prepared.facts, None, answer, case, Lineage(origin="seed")))
        prepared.tried += 1
        skip.append(case.digest)
        if answer.announced is not None and answer.announced.note == "load":
            break
    prepared.twin = TwinSpec(
        prepared.facts,
        Policy(prepared.facts.outputs, prepared.facts.build.computing_dtype, {}),
        SeedStatistics.of([suspect.case for suspect in prepared.suspects], False),
    )


def _take_report(prepared: Prepared, report: GateReport) -> None:
    prepared.twin = TwinSpec(prepared.facts, report.policy, report.statistics)
    prepared.seeds = report.agreed
    prepared.suspects += report.suspects
    prepared.tried += report.tried
    prepared.limits = replace(prepared.limits, run_seconds=run_limit_seconds(report.slowest_seconds))
    prepared.notes += report.notes
    prepared.notes += [f"seed file skipped: {text}" for text in report.skipped_files]


def suspect_of_death(facts: TargetFacts, twin: TwinSpec | None, exit_: Exit, case: Case, lineage: Lineage) -> Suspect:
    """Return the suspect that stands for a process that died while it ran a side on `case`."""
    assert exit_.announced is not None
    side = exit_.announced.side
    dead = death(exit_, side)
    other = Execution("torch" if side == ORT else ORT, Status.OK)
    expected, actual = (other, dead) if side == ORT else (dead, other)
    policy = twin.policy if twin else Policy(facts.outputs, facts.build.computing_dtype, {})
    statistics = twin.statistics if twin else None
    oracle = Oracle(
        facts.outputs,
        policy,
        breach=lambda case: breach(facts.contract, case),
        realism=lambda case: statistics.realism(facts.contract, case) if statistics else Realism.UNKNOWN,
    )
    judgement = oracle.judge(case, expected, actual, None)
    verdict = judgement.verdicts[0]
    return Suspect(
        bucket_of(facts.build.digest, case, verdict),
        case,
        lineage,
        verdict,
        judgement.realism,
        expected if side != ORT else None,
        actual if side == ORT else None,
    )
