"""Blocks: one cause as a page tells it: headline, picture, place, evidence, input, graph, what to do.

The idea: a block answers in the order of a reader who must act: what is wrong, how it looks, where, how that is known,
how to see it oneself; every part may be missing, and then says nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from fuzzparity.case import Array, is_float
from fuzzparity.corpus.telling import Knowledge, Recorded
from fuzzparity.execution import Execution
from fuzzparity.finding import IN_BATCH, Cut, Finding
from fuzzparity.report.advice import advice, known_by, passing_tolerance
from fuzzparity.report.causes import Cause, gone_of, state_text
from fuzzparity.report.clean import printable
from fuzzparity.report.content import said
from fuzzparity.report.graphs import Drawn, drawn
from fuzzparity.report.known import known_text
from fuzzparity.report.pictures import Picture, input_picture, picture_of
from fuzzparity.report.sentences import (
    confirmed_text,
    evidence_sentences,
    figures,
    part_of,
    place_text,
    plural,
)
from fuzzparity.verdict import Grade

_MOST_VARIANTS = 20
_MOST_VALUES = 64  # of an input are written out
_MOST_INPUTS = 12


@dataclass(frozen=True, slots=True)
class Input:
    """Hold one input of the smallest case: its values when they are few, else a picture where one fits."""

    name: str
    what: str
    values: str = ""
    picture: Picture | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Hold one cause as the page shows it."""

    finding_id: str
    grade: str
    kind: str
    realism: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    figures: tuple[str, ...]
    evidence: tuple[str, ...]
    arbiters: tuple[str, ...]
    how: str
    looks_like: tuple[str, ...]
    advice: str
    workaround: str
    picture: Picture | None
    picture_of: str
    sides: tuple[tuple[str, str], ...]
    inputs: tuple[Input, ...]
    inputs_left: int
    graph: Drawn | None
    cut: Drawn | None  # the part of the model that shows it, and torch's code for it
    cut_code: str
    commands: tuple[str, ...]
    variants: tuple[tuple[str, str, str], ...]
    variants_left: int
    left_out: str
    note: str

    @property
    def size(self) -> int:
        """Return about how many bytes it takes in the page."""
        pictures = [self.picture, *(item.picture for item in self.inputs)]
        drawings = [drawing for item in pictures if item for drawing in item.drawings]
        drawings += [one.drawing for one in (self.graph, self.cut) if one]
        return 4000 + sum(map(len, drawings)) + sum(len(item.values) for item in self.inputs)


def block(cause: Cause, known: Knowledge) -> Block:
    """Return one cause for the page."""
    leader, verdict = cause.leader, cause.leader.verdict
    recorded = known.recorded[leader.finding_id]
    arbiters = known_by(verdict)
    name = verdict.output or ""
    return Block(
        finding_id=leader.finding_id,
        grade=verdict.grade.value,
        kind=verdict.kind.value.replace("_", " "),
        realism=leader.realism.value,
        headline=printable(verdict.headline or verdict.kind.value, 400),
        facts=tuple((title, value) for title, value in _facts(cause, recorded, known) if value),
        figures=tuple(figures(verdict)),
        evidence=tuple(evidence_sentences(verdict.evidence)),
        arbiters=tuple(arbiters[1:]),
        how=arbiters[0] if arbiters else "",
        looks_like=verdict.looks_like,
        advice=advice(verdict),
        workaround=verdict.attribution.workaround if verdict.attribution else "",
        picture=_picture(leader, recorded, known),
        picture_of=name,
        sides=(("torch", said(recorded.expected)), ("ONNX Runtime", said(recorded.actual))),
        inputs=tuple(_inputs(recorded)),
        inputs_left=max(0, len(recorded.case.inputs) - _MOST_INPUTS) if recorded.case else 0,
        graph=_graph(leader, known),
        cut=_cut_graph(recorded.cut),
        cut_code="\n".join(printable(line, 400) for line in recorded.cut.torch_code) if recorded.cut else "",
        commands=_commands(leader),
        variants=tuple(
            (item.finding_id, item.verdict.grade.value, printable(item.verdict.headline, 200))
            for item in cause.variants[:_MOST_VARIANTS]
        ),
        variants_left=max(0, len(cause.variants) - _MOST_VARIANTS),
        left_out=recorded.left_out,
        note=leader.note,
    )


def _facts(cause: Cause, recorded: Recorded, known: Knowledge) -> list[tuple[str, str]]:
    leader, verdict = cause.leader, cause.leader.verdict
    blamed = verdict.blame not in ("unknown", "none", "")
    guilty = part_of(verdict.blame) if blamed else "nobody" if verdict.blame == "none" else "not known yet"
    tolerance = passing_tolerance(verdict.comparison) if verdict.grade is not Grade.BUG else ""
    place, found = place_text(leader), verdict.attribution
    by = ", ".join(dict.fromkeys(name for name in recorded.mutators[-6:] if name != IN_BATCH))
    return [
        ("guilty", guilty),
        ("place", place or ("not known yet" if verdict.grade is Grade.BUG else "")),
        ("module", found.module if found else ""),
        ("FX node", leader.where.fx_node or (found.fx_node if found else "")),
        (
            "place known by",
            f"{'a guess: ' if found.is_guess else ''}{found.place_how}" if found and found.place_how else "",
        ),
        ("output", ", ".join(cause.outputs)),
        ("in the batch", leader.where.batch),
        ("tolerance", tolerance),
        ("known issue", known_text(leader)),
        ("confirmed", confirmed_text(recorded.shown, recorded.tries, leader)),
        (
            "seen",
            f"{plural(cause.hits, 'time')}, first {_minute(recorded.first_seen_at)}, last "
            f"{_minute(recorded.last_seen_at)} (UTC)"
            if recorded.first_seen_at
            else plural(cause.hits, "time"),
        ),
        ("first input", f"{recorded.origin}{f' by {by}' if by else ''}" if recorded.origin else ""),
        ("cut to", _cut(leader, known)),
        ("state", state_text(leader, gone_of(known.rechecks))),
        ("build", leader.bucket.build[:12]),
    ]


def _cut(finding: Finding, known: Knowledge) -> str:
    """Return what minimizing left of the model; empty where it is the whole model."""
    whole = {item.digest: item.nodes for item in known.view.builds}.get(finding.bucket.build)
    if not finding.model_nodes or whole is None or finding.model_nodes >= whole:
        return ""
    return f"{finding.model_nodes:,} of {plural(whole, 'node')} of the model"


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")


def _picture(finding: Finding, recorded: Recorded, known: Knowledge) -> Picture | None:
    """Return the picture of the output that differs, from the recorded executions of the smallest case."""
    expected, actual = recorded.expected, recorded.actual
    place = _output_place(finding, known)
    if place is None or not (_answers(expected, place) and _answers(actual, place)):
        return None
    assert expected is not None
    assert actual is not None
    comparison = finding.verdict.comparison
    where = expected.where[place] if place < len(expected.where) else None
    return picture_of(
        expected.outputs[place], actual.outputs[place], comparison.index if comparison is not None else None, where
    )


def _output_place(finding: Finding, known: Knowledge) -> int | None:
    """Return the place of the finding's output among the recorded ones; None when its name is not among them."""
    names = known.facts.outputs if known.facts else ()
    output = finding.verdict.output
    if output in names:
        return names.index(output)
    number = output.removeprefix("output_") if output and output.startswith("output_") else ""
    return int(number) if number.isdecimal() and len(number) < 6 else None


def _answers(execution: Execution | None, place: int) -> bool:
    return execution is not None and execution.is_ok and place < len(execution.outputs)


def _inputs(recorded: Recorded) -> list[Input]:
    if recorded.case is None:
        return []
    found = []
    for name, array in list(recorded.case.inputs.items())[:_MOST_INPUTS]:
        what = f"{array.dtype.name}{list(array.shape)}"
        if 0 < array.size <= _MOST_VALUES:
            found.append(Input(name, what, values_text(array)))
        else:
            found.append(Input(name, f"{what}, {_span(array)}" if array.size else what, picture=input_picture(array)))
    return found


def values_text(array: Array) -> str:
    """Return the values of a small array as nested lists, in the digits that tell each apart."""
    wide = array.astype(np.float64) if array.dtype.kind == "V" else array
    digits = 17 if array.dtype == np.float64 else 9  # IEEE 754: enough to read the same value back
    kept = {"separator": ", ", "threshold": _MOST_VALUES + 1, "max_line_width": 72}  # letters in half a page
    if not is_float(wide.dtype):
        return np.array2string(wide, **kept)  # type: ignore[arg-type]
    return np.array2string(wide, formatter={"float_kind": f"{{:.{digits}g}}".format}, **kept)  # type: ignore[arg-type]


def _span(array: Array) -> str:
    if array.dtype.kind not in "biufV":
        return f"{array.size:,} elements"
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    lost = array.size - finite.size
    ends = f"values {finite.min():.6g} to {finite.max():.6g}" if finite.size else "no finite value"
    return ends + (f", {lost:,} NaN or infinite" if lost else "")


def _graph(finding: Finding, known: Knowledge) -> Drawn | None:
    model = known.models.get(finding.bucket.build)
    if model is None:
        return None
    _, node, _ = finding.place
    found = drawn(model, node=node) if node else None
    return found or drawn(model, output=finding.verdict.output or "", place=_output_place(finding, known))


def _cut_graph(cut: Cut | None) -> Drawn | None:
    """Return the drawing of a cut, whose values have plain names: inputs x, weights w, outputs y."""
    if cut is None:
        return None
    found = drawn(cut.model, output=next(iter(cut.expected), "y"), place=0)
    if found is None:
        return None
    feeds = ", ".join(f"{name} {array.dtype.name}{list(array.shape)}" for name, array in cut.feeds.items())
    caption = f"{plural(cut.nodes, 'node')} on {feeds or 'no input'}; shown by {printable(cut.shown_by, 100)}"
    return Drawn(found.drawing, caption)


def _commands(finding: Finding) -> tuple[str, ...]:
    lines = [f"fuzzparity replay {finding.finding_id}", f"fuzzparity finding show {finding.finding_id}"]
    if finding.path:
        lines.insert(1, f"python {os.path.join(finding.path, 'repro.py')}")
    return tuple(lines)
