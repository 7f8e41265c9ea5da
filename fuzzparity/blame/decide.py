"""Decide: from what the arbiters said to the part at fault, and how that is known.

The idea: the way from the module to ORT's answer has stages: capture, translation to ONNX, graph passes, kernels. The
first stage whose own result already is ORT's answer is the part at fault. A stage that could not be asked is no vote,
and where the votes leave more than one part, blame stays "unknown".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fuzzparity.execution import ORT, TORCH
from fuzzparity.verdict import Statement

# arbiters, in the order of the way
CAPTURED = "captured program"
DECOMPOSED = "decomposed program"
TRACED = "traced module"
REFERENCE = "ONNX reference"
UNOPTIMIZED = "ORT without optimization"
PRECISE = "ORT with float accumulation in MatMulNBits"
CHECKER = "ONNX checker"  # sides with an ORT that does not load, where it refuses the model as well
OPTIMIZED = "ORT"  # at the target's own level, again and alone
PLAIN = "ORT with default settings"  # at the target's own level, on one thread
OTHER_CAPTURED = "program that the other exporter captures"
OTHER_EXPORTER = "other exporter"
UNSIMPLIFIED = "export with optimize=False"
FRESH_EXPORT = "fresh export"
FRESH_TRACED = "fresh export by torchscript"
WEIGHTS = "weights"  # no vote: whether the module's stand in a given file
# onnxruntime_session_options_config_keys.h, kOrtSessionOptionsQDQMatMulNBitsAccuracyLevel: 4 is int8 and the default
PRECISE_CONFIG = {"session.qdq_matmulnbits_accuracy_level": "1"}
CONSTANT_PASS = "ConstantFolding"  # computes what the file says, and no more
PRECISE_PASS = "QDQSelectorActionTransformer"  # the pass that makes MatMulNBits


@dataclass(frozen=True, slots=True)
class Votes:
    """Hold what the arbiters said, and what follow-up questions found."""

    statements: tuple[Statement, ...]
    is_given: bool = False  # the ONNX file was given, not exported here
    passes: tuple[str, ...] = ()  # the smallest set of passes whose absence heals
    op: str = ""  # the first node at which the kernel leaves the reference
    node: str = ""
    settings: tuple[str, ...] = ()  # of the session, each in words, without which ORT gives torch's answer

    def of(self, arbiter: str) -> str:
        """Return the side with which an arbiter agrees; "" for no vote."""
        return next((t.sides_with for t in self.statements if t.arbiter == arbiter), "")

    def said(self, arbiter: str) -> str:
        """Return what an arbiter said in words, "" where it was not asked."""
        return next((t.said for t in self.statements if t.arbiter == arbiter), "")

    @property
    def keeps_meaning(self) -> bool:
        """Tell whether the passes that act give what the file means: ORT without them strays from it by itself."""
        return self.passes == (CONSTANT_PASS,) and self.of(REFERENCE) == ORT

    @property
    def healing_export(self) -> str:
        """Return the exporter whose fresh export gives torch's answer, "" where none was seen to."""
        found = {"torchscript": FRESH_TRACED, "dynamo": FRESH_EXPORT}
        return next((name for name, arbiter in found.items() if self.of(arbiter) == TORCH), "")


def decide(votes: Votes) -> tuple[str, str]:
    """Return (blame, how it is known)."""
    if votes.of(PLAIN) == TORCH:
        without = " and ".join(votes.settings) or "the session's settings"
        return "precision", f"without {without}, all else equal, ORT gives torch's answer"
    captured = votes.of(CAPTURED) or votes.of(TRACED)
    if captured == ORT:
        name = CAPTURED if votes.of(CAPTURED) else TRACED
        return "capture", f"the {name}, run in torch, already gives ORT's answer"
    if votes.of(UNOPTIMIZED) == TORCH and not votes.keeps_meaning:
        if votes.passes:
            joined = "+".join(votes.passes)
            alone = "alone " if len(votes.passes) == 1 else "together "
            without = f"without {' and '.join(votes.passes)} {alone}it is healed"
            how = f"ORT without optimization gives torch's answer; {without}"
            if votes.of(PRECISE) == TORCH:
                how += ", and with it as well where MatMulNBits does not round its activations to 8 bits"
            return f"optimizer:{joined}", how
        return "optimizer:unknown", "ORT without optimization gives torch's answer; no set of passes heals it"
    if votes.of(CHECKER) == ORT:
        blame = "onnx_file" if votes.is_given else "export"
        return blame, f"the ONNX checker refuses the model as well: {votes.said(CHECKER)}"
    if votes.of(DECOMPOSED) == ORT:
        return "export", "the captured program is right; after decomposition it gives ORT's answer"
    reference = votes.of(REFERENCE)
    if reference == ORT:
        if votes.is_given:
            return "onnx_file", _given_text(votes)
        right = (
            f"the {CAPTURED if votes.of(CAPTURED) else TRACED} gives torch's answer and " if captured == TORCH else ""
        )
        return "export", f"{right}the ONNX reference gives ORT's: the model says something else than the module"
    if reference == TORCH and votes.of(UNOPTIMIZED) in (ORT, "neither"):
        return _kernel(votes, "the ONNX reference gives torch's answer, ORT differs at every level")
    if votes.op and votes.of(UNOPTIMIZED) == ORT:
        return _kernel(votes, "run alone on the same values, this node differs from the ONNX reference")
    if votes.of(UNSIMPLIFIED) == TORCH:
        return "export", "exported with optimize=False it is healed: the exporter's own simplification is wrong"
    if votes.is_given and votes.healing_export and votes.of(UNOPTIMIZED) == ORT:
        return "onnx_file", _given_text(votes)
    return "unknown", "the arbiters leave more than one part: " + said_of(votes.statements)


def _kernel(votes: Votes, how: str) -> tuple[str, str]:
    if not votes.op:
        return "unknown", f"{how}; no single node shows it alone"
    place = f" at node {votes.node}" if votes.node else ""
    return f"kernel:{votes.op}", f"{how}{place}"


def _given_text(votes: Votes) -> str:
    text = "the given file means something else than the module"
    if votes.of(REFERENCE) == ORT:
        text = f"the ONNX reference gives ORT's answer: {text}"
    text = f"{text}; exporting again heals it" if votes.healing_export else text
    return f"{text}; {votes.said(WEIGHTS)}" if votes.said(WEIGHTS) else text


def said_of(statements: Sequence[Statement]) -> str:
    """Return the votes as one line."""
    parts = [f"{t.arbiter}: {t.sides_with or 'no vote'}" for t in statements]
    return ", ".join(parts)


def workaround(blame: str, votes: Votes, costs: Mapping[str, float]) -> str:
    """Return what to do until it is fixed, with its measured cost (`costs`: what -> time relative to now)."""
    part, _, detail = blame.partition(":")
    if part == "optimizer" and votes.of(PRECISE) == TORCH:
        return f"Ort(config={PRECISE_CONFIG!r}){_cost(costs, 'precise')}"
    if part == "optimizer" and votes.passes:
        names = ", ".join(repr(name) for name in votes.passes)
        return f"Ort(disabled_optimizers=[{names}]){_cost(costs, 'disabled')}"
    if part == "optimizer":
        return f"Ort(optimization_level='none'){_cost(costs, 'none')}"
    if part in ("capture", "export") and votes.of(OTHER_EXPORTER) == TORCH:
        return f"the other exporter gives torch's answer{_cost(costs, 'other')}"
    if part == "export" and votes.of(UNSIMPLIFIED) == TORCH:
        return f"Export(optimize=False){_cost(costs, 'unsimplified')}"
    if part == "onnx_file" and votes.healing_export:
        return f"export the module again (by {votes.healing_export})"
    if part == "precision" and votes.settings:
        return f"drop {' and '.join(votes.settings)} from Ort(...)"
    if part == "kernel" and detail:
        return f"avoid {detail} on such inputs, or compute this part in torch"
    return ""


def _cost(costs: Mapping[str, float], what: str) -> str:
    return f" ({costs[what]:.2f} times the time of a run now)" if what in costs else ""
