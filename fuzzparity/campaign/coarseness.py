"""Coarseness: what the gate does for a twin of a coarser arithmetic before it judges any seed.

The idea: such a twin is told by its graph and by its noise on the seeds, per output. Nobody has to declare it, and it
is said with its figures; an output that agrees to float noise is held to float noise as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fuzzparity.case import Case, is_float
from fuzzparity.contract import TargetFacts
from fuzzparity.execution import Execution
from fuzzparity.explain.twin import Twin
from fuzzparity.oracle.compare import compare
from fuzzparity.oracle.policy import Policy
from fuzzparity.oracle.quality import FLOAT_DB, Quality, calibrated, decided_by
from fuzzparity.sides.coarser import HALF, QUANTIZED, SIGNIFICANDS, coarser_kind
from fuzzparity.target import QUALITIES
from fuzzparity.verdict import Kind

MOST_SEEDS = 64  # as many as the noise of any twin is calibrated by
_BITS = {QUANTIZED: 8, HALF: SIGNIFICANDS["float16"]}  # of a policy that the user set and the graph does not tell


@dataclass(frozen=True, slots=True)
class Coarseness:
    """Hold a policy with the noise of a coarser twin in it, and what to say of it."""

    policy: Policy
    notes: tuple[str, ...] = ()


def coarseness(twin: Twin, module: object, facts: TargetFacts, policy: Policy, seeds: Sequence[Case]) -> Coarseness:
    """Return the policy for a twin, calibrated on seeds where its graph or the user says that it is a coarser one."""
    asked = {name: str(kind) for name, kind in policy.tolerances.items() if kind in QUALITIES}
    kind, bits = "", 0
    if facts.build.origin == "given":
        kind, bits = coarser_kind(Path(facts.build.folder) / "model.onnx", facts.build.computing_dtype, module)
    if not kind and not asked:
        return Coarseness(policy)
    pairs = [pair for pair in (twin.run(seed) for seed in seeds[:MOST_SEEDS]) if _are_ok(*pair)]
    found = _qualities(policy, pairs, asked, kind, bits)
    decided = decided_by(policy.outputs, [expected for expected, _ in pairs]) if found else {}
    decided = {name: place for name, place in decided.items() if policy.outputs[place[0]] in found}
    notes = tuple(_words(name, one, name in asked) for name, one in found.items())
    return Coarseness(replace(policy, quality=found, decided=decided), notes)


def _qualities(
    policy: Policy,
    pairs: Sequence[tuple[Execution, Execution]],
    asked: Mapping[str, str],
    kind: str,
    bits: int,
) -> dict[str, Quality]:
    found: dict[str, Quality] = {}
    for index, name in enumerate(policy.outputs):
        arrays = [(expected.outputs[index], actual.outputs[index]) for expected, actual in pairs]
        wanted = asked.get(name, "" if name in policy.tolerances else kind)
        if not wanted or any(not is_float(e.dtype) for e, _ in arrays):
            continue
        one = calibrated(wanted, bits if wanted == kind else _BITS[wanted], arrays)
        is_noisy = any(compare(e, a, policy.default(e.dtype)).kind is Kind.NUMERIC for e, a in arrays)
        if name in asked or (is_noisy and one.typical_db < FLOAT_DB):
            found[name] = one
    return found


def _are_ok(expected: Execution, actual: Execution) -> bool:
    return expected.is_ok and actual.is_ok and len(expected.outputs) == len(actual.outputs)


def _words(name: str, one: Quality, is_asked: bool) -> str:
    why = "as you declared" if is_asked else f"the ONNX model is a {one.name} twin of a float module"
    judged = f"output {name} is judged by signal-to-noise ratio and flipped decisions ({why}): {one.words}"
    return f"{judged}; a case is beyond it below {one.least_db:.1f} dB"
