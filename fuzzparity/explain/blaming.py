"""Blaming: ask arbiters about one confirmed finding until one part is left.

The idea: cheap arbiters first, and each next one only where it can still change the answer. What every one said is
kept with the verdict, so that a reader can check how blame is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from fuzzparity.blame import decide as words
from fuzzparity.blame.decide import Votes, decide
from fuzzparity.blame.witness import sides_with
from fuzzparity.case import Case
from fuzzparity.execution import ORT, TORCH, Execution, Status, node_told
from fuzzparity.explain.arbiters import LONGEST_SECONDS, Bench
from fuzzparity.explain.records import TwinSpec
from fuzzparity.finding import may_blame
from fuzzparity.oracle.regions import only
from fuzzparity.oracle.where import counted
from fuzzparity.target import Export
from fuzzparity.verdict import Attribution, Kind, Statement, Verdict
from fuzzparity.work.limits import CONFIRM_FACTOR
from fuzzparity.work.loader import Context


def blamed(
    context: Context,
    spec: TwinSpec,
    case: Case,
    verdict: Verdict,
    expected: Execution,
    actual: Execution,
    *,
    seconds: float,
    is_last: bool = False,
) -> Verdict:
    """Return the verdict with its blame and how it is known; unchanged where no arbiter could be asked.

    `seconds` bounds the asking: no arbiter is started after them. `is_last` asks the one that was left out
    (`is_last_open`), after what the others said; the place that is known stays as it is.
    """
    if not (is_last_open(spec, verdict) if is_last else may_blame(verdict) and spec.is_built):
        return verdict
    # what hangs needs no longer to be seen than it took to be confirmed
    is_hang = verdict.kind is Kind.HANG
    longest = min(LONGEST_SECONDS, CONFIRM_FACTOR * context.limits.run_seconds) if is_hang else LONGEST_SECONDS
    inquiry = _Inquiry(Bench(context, spec, case, longest), spec, verdict, expected, actual, time.monotonic() + seconds)
    known = verdict.attribution if is_last else None
    if known is None:
        inquiry.ask_all()
    else:
        inquiry.ask_last(known.statements)
    votes = inquiry.votes()
    blame, how = decide(votes)
    if known is not None and verdict.blame != "unknown":
        blame, how = verdict.blame, known.how
    known = known or Attribution("", op=votes.op, onnx_node=votes.node)
    workaround = words.workaround(blame, votes, inquiry.costs)
    known = replace(known, how=how, statements=votes.statements, workaround=workaround)
    return replace(verdict, blame=blame, attribution=known)


def is_last_open(spec: TwinSpec, verdict: Verdict) -> bool:
    """Tell whether the last arbiter was left out, which a given file asks for: a fresh export by dynamo."""
    if spec.facts.build.origin != "given" or verdict.attribution is None:
        return False
    votes = Votes(verdict.attribution.statements)
    asked = {one.arbiter for one in votes.statements}
    return words.FRESH_TRACED in asked and words.FRESH_EXPORT not in asked and not votes.healing_export


class _Inquiry:
    """Ask arbiters one after the other and keep what they say."""

    def __init__(
        self, bench: Bench, spec: TwinSpec, verdict: Verdict, expected: Execution, actual: Execution, deadline: float
    ) -> None:
        self._bench = bench
        self._verdict = verdict
        self._masks = expected.where
        self._deadline = deadline
        names = spec.facts.outputs
        self._output = names.index(verdict.output) if verdict.output in names else None
        self._regions = spec.policy.regions(verdict.output or "")
        self._expected, self._actual = self._counted(expected), self._counted(actual)
        self._said: dict[str, Statement] = {}
        self._passes: tuple[str, ...] = ()
        self._node: tuple[str, str] | None = None
        self._settings: tuple[str, ...] = ()
        self.costs: dict[str, float] = {}

    def votes(self) -> Votes:
        """Return all that was said."""
        op, node = self._node or ("", "")
        return Votes(tuple(self._said.values()), self._bench.is_given, self._passes, op, node, self._settings)

    def ask_all(self) -> None:
        """Ask in an order in which a clear answer comes early."""
        bench = self._bench
        if bench.settings and self._ask(words.PLAIN, lambda: bench.on_ort(bench.without(bench.settings))) == TORCH:
            self._settings = self._healing_settings()
            return
        if self._ask(words.UNOPTIMIZED, lambda: bench.on_ort(replace(bench.ort, optimization_level="none"))) == TORCH:
            self._bisect()
            is_folded = self._passes == (words.CONSTANT_PASS,)
            if is_folded and self._ask(words.REFERENCE, bench.reference) == ORT and bench.is_given:
                self._ask_file()
            return
        if self._verdict.kind is Kind.LOAD_ERROR and self._is_invalid():
            self._ask_again()
            return
        if not bench.is_given and self._ask_capture() == ORT:
            self._ask_other_exporter()
            return
        reference = self._ask(words.REFERENCE, bench.reference) or self._refused_alike()
        if reference == TORCH or (reference != ORT and self._verdict.kind in (Kind.CRASH, Kind.HANG)):
            self._node = bench.guilty_node() if self._has_time else None
        if reference != TORCH and not bench.is_given:
            self._ask_export()
        elif reference != TORCH:
            self._ask_file()

    def _refused_alike(self) -> str:
        """Ask, of a reference that raised without a vote, whether it refuses at the node at which ORT does."""
        told = node_told(self._actual) if self._verdict.kind is Kind.ERROR_SPLIT else ()
        said = self._bench.refusal_at(*told) if told and self._has_time else ""
        if not said:
            return ""
        self._said[words.REFERENCE] = Statement(words.REFERENCE, ORT, said)
        return ORT

    def _is_invalid(self) -> bool:
        """Tell whether the ONNX checker refuses the model as well; one that accepts it has no vote."""
        problem = self._bench.problem() if self._has_time else ""
        self._said[words.CHECKER] = Statement(words.CHECKER, ORT if problem else "", problem or "accepts it")
        return bool(problem)

    def _ask_again(self) -> None:
        """Ask, of a file that is no valid model, what another export gives."""
        if self._bench.is_given:
            self._ask_file()
        else:
            self._ask_other_exporter()

    def _healing_settings(self) -> tuple[str, ...]:
        """Return the one setting of the session whose absence heals, else all of them."""
        bench = self._bench
        for name in bench.settings if len(bench.settings) > 1 else ():
            if self._sides(bench.on_ort(bench.without((name,)))) == TORCH:
                return (name,)
        return bench.settings

    def _ask_file(self) -> None:
        """Ask whether a given file holds the module's weights, and whether exporting again heals it.

        By the exporter that takes a tenth of a second; the one that takes up to a minute is the last to be asked.
        """
        bench = self._bench
        if self._has_time and (said := bench.weights()):
            self._said[words.WEIGHTS] = Statement(words.WEIGHTS, "", said)
        self._ask(words.FRESH_TRACED, lambda: bench.exported_again(Export(exporter="torchscript")))

    def ask_last(self, said: Iterable[Statement]) -> None:
        """Ask, after what was said before, whether a fresh export by dynamo heals."""
        self._said = {one.arbiter: one for one in said}
        self._ask(words.FRESH_EXPORT, lambda: self._bench.exported_again(Export()))

    def _ask_capture(self) -> str:
        if self._bench.exporter == "torchscript":
            return self._ask(words.TRACED, self._bench.traced)
        return self._ask(words.CAPTURED, self._bench.captured)

    def _ask_export(self) -> None:
        """Ask what tells the exporter's own steps apart, where the reference did not say enough."""
        bench = self._bench
        is_dynamo = bench.exporter == "dynamo"
        if is_dynamo and not self._vote(words.REFERENCE):
            self._ask(words.DECOMPOSED, lambda: bench.captured(decomposed=True))
        self._ask_other_exporter()
        if is_dynamo and not any(self._vote(name) == ORT for name in (words.REFERENCE, words.DECOMPOSED)):
            self._ask(words.UNSIMPLIFIED, lambda: bench.exported_again(replace(bench.export, optimize=False)))

    def _ask_other_exporter(self) -> None:
        bench = self._bench
        other = "torchscript" if bench.exporter == "dynamo" else "dynamo"
        # capture is a fifth of what dynamo takes: what it refuses or gets wrong is not exported to be told so again
        if other == "dynamo" and self._ask(words.OTHER_CAPTURED, bench.captured) != TORCH:
            return
        self._ask(words.OTHER_EXPORTER, lambda: bench.exported_again(Export(exporter=other)))

    def _bisect(self) -> None:
        """Find the passes at fault, and what it costs to do without them."""
        bench = self._bench
        if not self._has_time:
            return
        found = bench.healing(bench.acting_passes(), lambda answer: self._sides(answer) == TORCH)
        if found is None:
            return
        self._passes = found
        disabled = (*bench.ort.disabled_optimizers, *found)
        without = bench.on_ort(replace(bench.ort, disabled_optimizers=disabled), timed=True)
        now = bench.on_ort(bench.ort, timed=True)
        if now.is_ok and without.is_ok and now.seconds > 0:
            self.costs["disabled"] = without.seconds / now.seconds
        if words.PRECISE_PASS in found:
            self._ask_precise(now)

    def _ask_precise(self, now: Execution) -> None:
        """Ask whether a fused MatMulNBits is right but for its activations, which it rounds to 8 bits by default."""
        bench = self._bench
        config = {**bench.ort.config, **words.PRECISE_CONFIG}
        precise = bench.on_ort(replace(bench.ort, config=config), timed=True)
        self._ask(words.PRECISE, lambda: precise)
        if now.is_ok and precise.is_ok and now.seconds > 0:
            self.costs["precise"] = precise.seconds / now.seconds

    @property
    def _has_time(self) -> bool:
        return time.monotonic() < self._deadline

    def _vote(self, arbiter: str) -> str:
        said = self._said.get(arbiter)
        return said.sides_with if said is not None else ""

    def _sides(self, answer: Execution) -> str:
        return sides_with(self._verdict.kind, self._output, self._expected, self._actual, self._counted(answer))

    def _counted(self, execution: Execution) -> Execution:
        """Return what of an execution the verdict is about: where differences count, in the slice that it names."""
        execution = counted(execution, self._masks)
        comparison, output = self._verdict.comparison, self._output
        if not self._regions or comparison is None or output is None or output >= len(execution.outputs):
            return execution
        outputs = list(execution.outputs)
        outputs[output] = only(outputs[output], self._regions, comparison.region)
        return replace(execution, outputs=tuple(outputs))

    def _ask(self, arbiter: str, run: Callable[[], Execution]) -> str:
        """Ask one arbiter and return the side with which it agrees; "" when time is over or it has no vote."""
        if not self._has_time:
            return ""
        answer = run()
        side = "" if self._is_no_vote(arbiter, answer) else self._sides(answer)
        said = answer.refusal.said[:200] if answer.refusal is not None else answer.status.value
        self._said[arbiter] = Statement(arbiter, side, said, answer.seconds)
        return side

    def _is_no_vote(self, arbiter: str, answer: Execution) -> bool:
        """Tell whether an arbiter failed for a reason of its own: it could not be made, or lacks an operator."""
        if answer.is_ok:
            return False
        if arbiter == words.REFERENCE:
            # a specification that raises may lack an operator or a type; one that hangs as ORT does has answered
            return not (answer.status is Status.HANG and self._verdict.kind is Kind.HANG)
        return answer.phase == "load" and arbiter != words.UNOPTIMIZED
