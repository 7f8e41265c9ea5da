"""Probing: time both sides on a few kept cases, in a child that does nothing else."""

from __future__ import annotations

from fuzzparity.campaign.records import ProbeSpec
from fuzzparity.errors import WorkerLost
from fuzzparity.execution import Execution
from fuzzparity.explain.twin import open_twin
from fuzzparity.probe.latency import ProbeRow, measure
from fuzzparity.work.loader import Context


def probe(context: Context, spec: ProbeSpec) -> list[ProbeRow]:
    """Open both sides and measure the cases of a spec; every run is announced, so a hang is bounded."""
    twin = open_twin(context, spec.twin, context.announcer, spec.cases[0])
    if isinstance(twin, Execution):
        raise WorkerLost(f"the probe cannot open the model: {twin.refusal}")
    return measure(spec.cases, twin.run_torch, twin.run_ort, rounds=spec.rounds)
