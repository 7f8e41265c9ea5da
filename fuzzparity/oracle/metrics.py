"""Metrics: what the user's own figures say of two executions, and whether arithmetic explains a broken bound.

The idea: a metric is the user's code, so whatever it does wrong is an answer that is missing, with the reason, and
never an exception through the engine. A bound that indistinguishable inputs break as well is a tie: the figure sits on
a threshold that nobody who computes in the working precision can place.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fuzzparity.case import Array, Case
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import ORT, TORCH, Execution
from fuzzparity.oracle import draws
from fuzzparity.oracle.evidence import AMPLIFIED, Referee
from fuzzparity.oracle.question import MOVES, Answer
from fuzzparity.oracle.weighing import SOURCE
from fuzzparity.target import Metric
from fuzzparity.verdict import Comparison, Evidence, Grade, Kind, Measure, Verdict

SITE = "metric:"  # before a metric's name, in the site of its verdicts
_MOST_SAID = 200
_DRAWS = 8  # of each test, plain and amplified: half of what numeric evidence takes, since a metric may be dear


class Meter:
    """Ask a target's metrics about executions; `notes` says what they could not answer, each reason once."""

    def __init__(self, metrics: Sequence[Metric], outputs: Sequence[str]) -> None:
        """Bind metrics to the target's outputs; InvalidTarget when one is about an output that does not exist."""
        self.metrics = tuple(metrics)
        self._outputs = tuple(outputs)
        self._by_name = {metric.name: metric for metric in self.metrics}
        self._notes: dict[tuple[str, str], str] = {}
        for metric in self.metrics:
            if metric.output is not None and metric.output not in self._outputs:
                named = ", ".join(map(repr, self._outputs))
                raise InvalidTarget(
                    "declare", f"metric {metric.name!r} is about output {metric.output!r}", f"the outputs are {named}"
                )

    def __bool__(self) -> bool:
        """Tell whether there is anything to ask."""
        return bool(self.metrics)

    def taken(self) -> list[str]:
        """Return the notes that came up since the last call."""
        fresh = [note for note in self._notes.values() if note]
        self._notes = dict.fromkeys(self._notes, "")
        return fresh

    def measure(self, case: Case, expected: Execution, actual: Execution, *, agrees: bool) -> tuple[Measure, ...]:
        """Return what every metric says; `agrees`: the outputs do, so that a value of NaN means nothing."""
        if not (expected.is_ok and actual.is_ok) or len(expected.outputs) != len(actual.outputs):
            return ()
        found = tuple(self._one(m, case, expected.outputs, actual.outputs, agrees=agrees) for m in self.metrics)
        for one in found:
            if one.why:
                self._note(one, case)
        return found

    def require(self, case: Case, measures: Sequence[Measure]) -> None:
        """Refuse, by InvalidTarget, a metric without an answer on a seed that the sides agree on and that has a label.

        On one without a label it may be a metric that needs one: then it is a note.
        """
        for one in measures:
            if one.why and case.label is not None and not one.why.startswith(_UNDEFINED):
                raise InvalidTarget(
                    "metrics", f"metric {one.metric!r} fails on a seed: {one.why}", "fix it: fn answers with one number"
                )

    def verdicts(
        self,
        case: Case,
        measures: Sequence[Measure],
        expected: Execution,
        referee: Referee | None,
        working_dtype: str,
        *,
        is_wild: bool,
    ) -> Iterator[Verdict]:
        """Yield a verdict for each broken bound, graded by what the metric says of indistinguishable inputs.

        `referee` None: nobody asks (outside the contract).
        """
        for one in measures:
            if one.breaks:
                answer = self._weigh(one, case, expected, referee, working_dtype, is_wild=is_wild)
                yield _verdict(one, answer)

    def _one(
        self, metric: Metric, case: Case, expected: Sequence[Array], actual: Sequence[Array], *, agrees: bool = False
    ) -> Measure:
        bound = bound_words(metric)
        try:
            with np.errstate(all="ignore"):
                value = _number(
                    metric.fn(
                        {name: _locked(array) for name, array in case.inputs.items()},
                        {name: _locked(array) for name, array in zip(self._outputs, expected, strict=True)},
                        {name: _locked(array) for name, array in zip(self._outputs, actual, strict=True)},
                        case.label,
                    )
                )
        except (Exception, SystemExit) as error:
            return Measure(metric.name, bound=bound, why=_said(error), output=metric.output)
        if isinstance(value, str):
            return Measure(metric.name, bound=bound, why=value, output=metric.output)
        if math.isnan(value) and agrees:
            return Measure(metric.name, bound=bound, why=f"{_UNDEFINED} on outputs that agree", output=metric.output)
        shortfall = shortfall_of(metric, value)
        return Measure(metric.name, value, shortfall > 0.0, shortfall, bound, output=metric.output)

    def _weigh(
        self,
        one: Measure,
        case: Case,
        expected: Execution,
        referee: Referee | None,
        working_dtype: str,
        *,
        is_wild: bool,
    ) -> Answer:
        """Compare a shortfall with those of torch's own answer against exact answers to indistinguishable inputs."""
        exact = referee.exact(case) if referee is not None and not referee.missing else None
        metric = self._by_name[one.metric]
        if referee is None or exact is None or not _fits(exact, expected.outputs):
            why = "nobody was asked" if referee is None else referee.missing or "the referee gave no answer"
            note = "nobody can tell a fault from arithmetic here" if is_wild else "the user's bound decides"
            return Answer(Grade.NOTE if is_wild else Grade.BUG, Evidence(source=f"missing: {why}", note=note))
        like = expected.outputs
        centre = _cast(exact, like)
        own = self._one(metric, case, like, centre).shortfall  # torch against the exact answer of the very inputs
        torch_far = own > 0.0
        base = centre if torch_far else like
        largest, count = 0.0, 0
        for outputs in _indistinguishable(case, referee, working_dtype):
            if not _fits(outputs, like):
                continue
            count += 1
            largest = max(largest, self._one(metric, case, base, _cast(outputs, like)).shortfall)
            if MOVES * largest >= one.shortfall:
                break
        evidence = Evidence(source=SOURCE, draws=count, moves={"shortfall": largest})
        if largest > 0.0 and MOVES * largest >= one.shortfall:
            note = "the exact answers of inputs within rounding break the bound as well"
            return Answer(Grade.TIE, _noted(evidence, note, ()), blame="none")
        if torch_far and MOVES * own >= one.shortfall:
            return Answer(Grade.BUG, _noted(evidence, "torch is off the exact answer", (TORCH,)), TORCH, TORCH)
        note = "the exact answers of inputs within rounding keep the bound"
        return Answer(Grade.BUG, _noted(evidence, note, (ORT,)), ORT)

    def _note(self, one: Measure, case: Case) -> None:
        key = (one.metric, "" if case.label is None else "label")
        if key not in self._notes:
            on = "a case without a label: it is passed over on those" if case.label is None else "a case with a label"
            self._notes[key] = f"metric {one.metric!r} has no answer on {on} ({one.why})"


_UNDEFINED = "it is NaN"


def _indistinguishable(case: Case, referee: Referee, working_dtype: str) -> Iterator[tuple[Array, ...]]:
    """Yield exact answers to inputs that nobody can tell from the given ones, and exact runs that round as they go.

    The tests are those of evidence for decisions, but for the larger roundings: plain first, then inputs moved 8 times
    as far, then other orders of equal values.
    """
    can_perturb = draws.can_perturb(case)
    for draw in range(_DRAWS):
        yield from _given(referee.rounded(case, draw))
        if can_perturb:
            yield from _given(referee.exact(draws.one_ulp(case, draw)))
            yield from _given(referee.exact(draws.eps_of_maximum(case, draw, working_dtype)))
    if not can_perturb:
        return
    for draw in range(_DRAWS, 2 * _DRAWS):
        yield from _given(referee.exact(draws.one_ulp(case, draw, AMPLIFIED)))
        yield from _given(referee.exact(draws.eps_of_maximum(case, draw, working_dtype, AMPLIFIED)))
    for ramp in draws.ramps(case, 0.0):
        yield from _given(referee.exact(ramp))


def _given(outputs: tuple[Array, ...] | None) -> tuple[tuple[Array, ...], ...]:
    return () if outputs is None else (outputs,)


def shortfall_of(metric: Metric, value: float) -> float:
    """Return how far a value lies beyond the metric's bounds, 0.0 within them; NaN keeps no bound."""
    if math.isnan(value):
        return math.inf
    below = metric.at_least - value if metric.at_least is not None else 0.0
    above = value - metric.at_most if metric.at_most is not None else 0.0
    return max(below, above, 0.0)


def bound_words(metric: Metric) -> str:
    """Return a metric's bound as it stands in a sentence: "at least 0.95"."""
    parts = [f"at least {metric.at_least:g}"] if metric.at_least is not None else []
    parts += [f"at most {metric.at_most:g}"] if metric.at_most is not None else []
    return " and ".join(parts)


def _verdict(one: Measure, answer: Answer) -> Verdict:
    value = "NaN" if one.value is None or math.isnan(one.value) else f"{one.value:.6g}"
    said = f"metric {one.metric} is {value}; wanted {one.bound}"
    comparison = Comparison(Kind.DECISION, error_ratio=math.inf, detail=said)
    return Verdict(
        Kind.DECISION,
        answer.grade,
        one.output,
        answer.side,
        site=f"{SITE}{one.metric}",
        comparison=comparison,
        evidence=answer.evidence,
        blame=answer.blame,
        headline=f"{said}; {answer.evidence.note}" if answer.evidence.note else said,
    )


def _noted(evidence: Evidence, note: str, far_sides: tuple[str, ...]) -> Evidence:
    return Evidence(evidence.source, None, None, evidence.moves, evidence.draws, far_sides, note)


def _locked(array: Array) -> Array:
    """Return a copy that the user's code cannot write to by mistake.

    The flag alone keeps nothing: torch.from_numpy passes over it, and it can be set back.
    """
    copied = np.array(array)
    copied.flags.writeable = False
    return copied


def _number(value: Any) -> float | str:
    """Return a metric's answer as a number, or what it is instead."""
    item: Callable[[], Any] | None = getattr(value, "item", None)  # a numpy scalar, or a tensor or array of one element
    try:
        one = value if item is None else item()
    except (TypeError, ValueError, RuntimeError):  # it has another number of elements
        one = value
    if isinstance(one, (bool, int, float, np.longdouble)):  # the item of a long double is one
        return float(one)
    shape = getattr(value, "shape", None)
    of = f" of shape {list(shape)}" if shape is not None else f" {value!r:.40}" if value is not None else ""
    return f"it gave {type(value).__name__}{of}; wanted a number"


def _said(error: BaseException) -> str:
    """Return class, message and place of what the user's code raised."""
    try:
        text = " ".join(str(error).split())[:_MOST_SAID]
    except (Exception, SystemExit):  # the class is the user's as well
        text = "its message cannot be read"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    own = [frame for frame in frames if "-packages" not in frame.filename] or frames
    place = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return f"it raised {type(error).__name__}{': ' + text if text else ''}{place}"


def _fits(outputs: Sequence[Array], like: Sequence[Array]) -> bool:
    return len(outputs) == len(like) and all(a.shape == b.shape for a, b in zip(outputs, like, strict=True))


def _cast(outputs: Sequence[Array], like: Sequence[Array]) -> tuple[Array, ...]:
    """Return exact outputs in the dtypes of torch's."""
    with np.errstate(all="ignore"):
        return tuple(a.astype(b.dtype, copy=False) for a, b in zip(outputs, like, strict=True))
