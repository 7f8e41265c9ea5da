"""Explanation: one input from verdict to advice, for reading.

The idea: every output is told, those that agree too, since "which outputs are right" is half of finding the guilty
part; figures first, then the evidence they rest on, then what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuzzparity.case import Case
from fuzzparity.execution import Execution
from fuzzparity.finding import Finding
from fuzzparity.report.advice import advice, born, known_by, passing_tolerance
from fuzzparity.report.clean import printable
from fuzzparity.report.content import said
from fuzzparity.report.grounds import grounds
from fuzzparity.report.known import known_text
from fuzzparity.report.needed import Needed, needed_for
from fuzzparity.verdict import Comparison, Judgement, Kind, Measure, Verdict

_NAME_COLUMNS = 14  # two before, the longest name, two after


def explanation(
    name: str,
    case: Case,
    judgement: Judgement,
    outputs: Sequence[str],
    *,
    expected: Execution | None = None,
    actual: Execution | None = None,
    findings: Sequence[Finding] = (),
    executed: Sequence[str] = (),
) -> RenderableType:
    """Return the explanation of one input: both sides, each output, each verdict with evidence and advice.

    `outputs` names the comparisons, `executed` the outputs of the executions, where that is more.
    """
    parts: list[RenderableType] = [Text(printable(f"{name}: {judgement.kind.value}"), style="bold")]
    parts.append(_line("input", f"{case!r}, {judgement.realism.value}"))
    parts += [_line("torch", said(expected))] if expected is not None else []
    other = "exporter" if judgement.kind is Kind.EXPORT_ERROR else "ORT"  # there is nothing that ORT could open
    parts += [_line(other, said(actual))] if actual is not None else []
    if judgement.comparisons:
        parts.append(_outputs_table(outputs, judgement.comparisons))
    parts += [_line("metric", _measured(one)) for one in judgement.measures]
    for verdict in judgement.verdicts:
        parts += _verdict_lines(verdict, needed_for(verdict, executed or outputs, expected, actual))
    if not judgement.verdicts:
        told = "both sides refuse it" if judgement.kind is Kind.REJECTED else "the sides agree within what is allowed"
        parts.append(_line("verdict", told))
    for item in findings:
        parts.append(_line("finding", f"{item.finding_id}  {item.path}"))
        parts += [_line("known", known_text(item))] if item.known else []
    return Group(*parts, Text(""))


def _line(name: str, text: str) -> RenderableType:
    """Return a name and what is said of it, which stays in its column where it is long."""
    line = Table.grid()
    line.add_column(width=_NAME_COLUMNS, no_wrap=True, style="dim")
    line.add_column(overflow="fold")
    line.add_row(Text(f"  {name}"), Text(printable(text)))
    return line


def _outputs_table(outputs: Sequence[str], comparisons: Sequence[Comparison]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 2))
    for title in ("output", "kind", "error ratio", "max error", "of scale", "differing", "worst at", "torch", "ORT"):
        table.add_column(title)
    for index, found in enumerate(comparisons):
        name = outputs[index] if index < len(outputs) else f"output_{index}"
        place = str(list(found.index)) if found.index is not None else ""
        values = [found.kind.value, f"{found.error_ratio:.3g}", f"{found.max_abs:.3g}", f"{found.scaled:.3g}"]
        values += [f"{found.differing:,} of {found.compared:,}", place]
        values += [_shown(found.expected_at), _shown(found.actual_at)]
        table.add_row(*(Text(printable(value)) for value in (name, *values)))
    return table


def _measured(one: Measure) -> str:
    said = f"no answer: {one.why}" if one.value is None else f"{one.value:.6g}"
    return f"{one.metric}: {said}; wanted {one.bound}"


def _shown(value: float | int | bool | str | None) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _verdict_lines(verdict: Verdict, least: Needed | None = None) -> list[RenderableType]:
    lines = [("verdict", f"{verdict.grade.value}: {verdict.headline or verdict.kind.value}")]
    lines.append(("guilty", "not yet known" if verdict.blame == "unknown" else verdict.blame))
    lines += [("looks like", text) for text in verdict.looks_like]
    lines += [("known by", text) for text in known_by(verdict)]
    lines += [("place", born(verdict))] if born(verdict) else []
    if verdict.attribution is not None and verdict.attribution.workaround:
        lines.append(("until then", verdict.attribution.workaround))
    tolerance = least.text if least is not None else passing_tolerance(verdict.comparison)
    lines += [("tolerance", tolerance)] if tolerance else []
    lines += [("evidence", text) for text in grounds(verdict)]
    told = advice(verdict)
    lines += [("advice", told)] if told else []
    return [_line(name, text) for name, text in lines]
