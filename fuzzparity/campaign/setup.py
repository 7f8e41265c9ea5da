"""Setup: from a target's name to a loaded, built and gated twin; the first seconds of every command that runs one.

The idea: each step is a job in a child of the loader, so whatever the target or the exporter does to its process ends
in a clear error or a finding, never in ours.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fuzzparity.campaign.options import Places, TargetOptions, clear_dead_runs, places
from fuzzparity.campaign.policies import policies_for
from fuzzparity.campaign.records import Built, GateReport, GateSpec
from fuzzparity.case import Case, Lineage
from fuzzparity.contract import TargetFacts
from fuzzparity.corpus.lock import require_free
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import ORT, Execution, Status
from fuzzparity.explain.dataset import Progress
from fuzzparity.explain.records import TwinSpec, death
from fuzzparity.explain.unbuilt import export_verdict, first_seed_verdict, not_exported
from fuzzparity.finding import Suspect, bucket_of
from fuzzparity.generate.contract import SeedStatistics, breach
from fuzzparity.generate.ranges import InputRanges
from fuzzparity.generate.understood import Line
from fuzzparity.known import Ledger, read_ledger
from fuzzparity.oracle.judge import Oracle
from fuzzparity.oracle.policy import Policy
from fuzzparity.oracle.proposals import Proposal
from fuzzparity.verdict import Realism
from fuzzparity.work.alone import Exit
from fuzzparity.work.limits import LONGEST_SECONDS, Limits, memory_budget_bytes, run_limit_seconds
from fuzzparity.work.loader import Loaded, LoadSpec
from fuzzparity.work.pool import Pool

_PRELOAD = (
    "fuzzparity.campaign.worker",
    "fuzzparity.campaign.gate",
    "fuzzparity.campaign.probing",
    "fuzzparity.explain.examine",
    "fuzzparity.explain.sizing",
    "fuzzparity.explain.validating",
)
_LATER = (  # imported while the first child exports, so that no later one has to
    "torch._dynamo",  # the exporter and torch's dispatch modes import it on first use: a second in every child
    "onnxscript",  # and what else the exporters import, for the arbiters that export once more
    "torch.onnx._internal.exporter._core",
    "onnxscript.function_libs.torch_lib.ops",
    "torch._functorch.aot_autograd",
    "networkx",
    "onnx.reference",
    "fuzzparity.explain.investigate",
)
_EXPORT_SECONDS = 1800.0
_MOST_DEADLY_SEEDS = 8
_MOST_LINES = 20


@dataclass(slots=True)
class Prepared:
    """Hold a twin that is ready to be fuzzed, or the suspects that say why it is not."""

    pool: Pool
    loaded: Loaded
    places: Places
    facts: TargetFacts
    limits: Limits
    twin: TwinSpec | None = None
    can_run: bool = True  # there is a model, and ORT can open it
    seeds: tuple[Case, ...] = ()
    suspects: list[Suspect] = field(default_factory=list)
    tried: int = 0
    notes: list[str] = field(default_factory=list)
    proposals: tuple[Proposal, ...] = ()  # a policy for each output
    understood: tuple[Line, ...] = ()  # the contract in words, where a command asked for it
    ranges: tuple[InputRanges, ...] = ()  # of the first seed and of the data that the gate saw
    ledger: Ledger = field(default_factory=Ledger)  # known issues


class Stage:
    """Say what goes on, with the last word of a child that reads data."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        """Bind a stage's name to whoever is told."""
        self._name = name
        self._say = say
        self._detail = ""

    def tick(self) -> None:
        """Say it again; called a few times a second."""
        self._say(f"{self._name}: {self._detail}" if self._detail else self._name)

    def hear(self, message: object) -> None:
        """Take what a child sends; anything but progress is for others."""
        if isinstance(message, Progress):
            self._detail = f"{message.cases:,} inputs read, {message.where}"


def shortened(lines: list[str], what: str) -> list[str]:
    """Return the first of many lines, and how many more there are."""
    if len(lines) <= _MOST_LINES:
        return lines
    return [*lines[:_MOST_LINES], f"{len(lines) - _MOST_LINES:,} {what}"]


def open_pool(
    options: TargetOptions, run_folder_of: Callable[[str], Places], tick: Callable[[], None]
) -> tuple[Pool, Loaded, Places]:
    """Start the loader and load the target."""
    early = run_folder_of("")
    clear_dead_runs(early.run)
    spec = LoadSpec(
        options.target,
        options.onnx,
        options.torch_file,
        options.seeds,
        preload=_PRELOAD,
        later=_LATER,
        providers=options.providers,
        provider_options=options.provider_options,
        device=options.device,
        dtypes=options.dtypes,
    )
    pool = Pool(spec, early.run, spawn=options.device != "cpu")
    pool.tick = tick
    try:
        loaded = pool.start()
        return pool, loaded, run_folder_of(loaded.name)
    except BaseException:
        close_pool(pool)
        raise


def close_pool(pool: Pool) -> None:
    """End every process of a pool and remove its run folder."""
    pool.close()
    shutil.rmtree(pool.folder, ignore_errors=True)


def prepare(
    options: TargetOptions,
    *,
    workers: int,
    say: Callable[[str], None],
    gate: bool = True,
    first_seeds_only: bool = False,
    writes: bool = False,
) -> Prepared:
    """Load, build and gate a target; the caller closes it by `close_pool`. InvalidTarget when the target is wrong.

    `first_seeds_only`: the gate takes the first few seeds, since all of them are run afterwards. `writes`: a corpus
    that another process writes to is refused before anything is built.
    """
    pool, loaded, where = open_pool(options, lambda name: places(options, name), lambda: say("loading"))
    try:
        if writes:
            require_free(where.corpus)
        ledger = read_ledger((loaded.folder,), options.known)
        limits = Limits(LONGEST_SECONDS, memory_budget_bytes(workers))
        pool.tick = lambda: say("exporting")
        facts, suspects = build_twin(pool, where, limits)
        prepared = Prepared(pool, loaded, where, facts, limits, suspects=suspects, ledger=ledger)
        prepared.notes += dict.fromkeys([*loaded.notes, *facts.notes, *facts.build.notes])
        if len(loaded.builds) > 1:
            listed = "; ".join(", ".join(dtypes) for dtypes in loaded.builds)
            prepared.notes.append(f"the target asks for {len(loaded.builds)} builds ({listed}); --dtype chooses one")
        if suspects:
            prepared.can_run = False
            prepared.twin = _without_gate(facts, [suspect.case for suspect in suspects])
        elif gate:
            _pass_gate(prepared, options, say, first_seeds_only)
        pool.tick = lambda: None
        return prepared
    except BaseException:
        close_pool(pool)
        raise


def build_twin(pool: Pool, where: Places, limits: Limits) -> tuple[TargetFacts, list[Suspect]]:
    """Export in a forked child; an exporter or a first seed that fails, its death included, is a suspect."""
    answer = pool.run(
        "fuzzparity.campaign.gate:build",
        str(where.builds),
        limits=replace(limits, other_seconds=_EXPORT_SECONDS),
        label="export",
    )
    if isinstance(answer, Exit):
        raise InvalidTarget(
            "export",
            f"the exporting process died with {answer.text}",
            "try the other exporter (Export(exporter='torchscript') or 'dynamo')",
            pool.log_tail(),
        )
    assert isinstance(answer, Built)
    if answer.error is None and answer.dead is None:
        return answer.facts, []
    return answer.facts, [_unbuilt_suspect(answer)]


def _unbuilt_suspect(built: Built) -> Suspect:
    """Return the suspect of a target without a twin: its first seed kills it, or it cannot be exported."""
    facts, case = built.facts, built.seed
    if built.dead is not None:
        verdict, actual = first_seed_verdict(built.dead, case, _oracle(facts, None)), None
    else:
        assert built.error is not None
        verdict, actual = export_verdict(built.error), not_exported(built.error)
    bucket = bucket_of(facts.build.digest, case, verdict)
    return Suspect(bucket, case, Lineage(origin="seed"), verdict, Realism.UNKNOWN, built.dead, actual)


def _without_gate(facts: TargetFacts, cases: list[Case]) -> TwinSpec:
    """Return the twin by which suspects are judged that no gate report came with."""
    return TwinSpec(facts, Policy(facts.outputs, facts.build.computing_dtype, {}), SeedStatistics.of(cases, False))


def _pass_gate(prepared: Prepared, options: TargetOptions, say: Callable[[str], None], first_only: bool) -> None:
    """Run the gate, again without the seed that killed it if one did."""
    skip: list[str] = []
    stage = Stage("running the seeds", say)
    tolerances = options.tolerances
    if tolerances is not None:
        tolerances = policies_for(tolerances, prepared.facts.outputs)
    prepared.pool.tick = stage.tick
    for _ in range(_MOST_DEADLY_SEEDS):
        places = prepared.places
        spec = GateSpec(
            prepared.facts, options.seeds, str(places.corpus), tuple(skip), first_only=first_only, tolerances=tolerances
        )
        answer = prepared.pool.run(
            "fuzzparity.campaign.gate:gate", spec, limits=prepared.limits, label="gate", on_message=stage.hear
        )
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
            prepared.can_run = False
            break
    prepared.twin = _without_gate(prepared.facts, [suspect.case for suspect in prepared.suspects])


def _take_report(prepared: Prepared, report: GateReport) -> None:
    prepared.twin = TwinSpec(prepared.facts, report.policy, report.statistics)
    prepared.can_run = report.loaded
    prepared.seeds = report.agreed
    prepared.suspects += report.suspects
    prepared.tried += report.tried
    prepared.limits = replace(prepared.limits, run_seconds=run_limit_seconds(report.slowest_seconds))
    prepared.ranges = report.ranges
    prepared.proposals = report.proposals
    prepared.notes += report.notes
    prepared.notes += shortened([f"seed skipped: {text}" for text in report.skipped_files], "more seeds skipped")


def suspect_of_death(facts: TargetFacts, twin: TwinSpec | None, exit_: Exit, case: Case, lineage: Lineage) -> Suspect:
    """Return the suspect that stands for a process that died while it ran a side on `case`."""
    assert exit_.announced is not None
    side = exit_.announced.side
    dead = death(exit_, side)
    other = Execution("torch" if side == ORT else ORT, Status.OK)
    expected, actual = (other, dead) if side == ORT else (dead, other)
    judgement = _oracle(facts, twin).judge(case, expected, actual, None)
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


def _oracle(facts: TargetFacts, twin: TwinSpec | None) -> Oracle:
    """Return an oracle for deaths, which need no evidence; without a twin nothing is known of the seeds."""
    policy = twin.policy if twin else Policy(facts.outputs, facts.build.computing_dtype, {})
    statistics = twin.statistics if twin else None
    return Oracle(
        facts.outputs,
        policy,
        breach=lambda case: breach(facts.contract, case),
        realism=lambda case: statistics.realism(facts.contract, case) if statistics else Realism.UNKNOWN,
    )
