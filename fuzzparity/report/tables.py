"""Tables: what a corpus knows, as tables for a terminal and as JSON.

The idea: a database may come from a stranger, so every text of it becomes a `Text` of printable characters, which is
never read as markup; figures are shown as short as they stay true.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fuzzparity.case import Array, Case, is_float
from fuzzparity.corpus.records import (
    CampaignRow,
    CaseRow,
    CaseView,
    CorpusView,
    Merged,
    Payload,
    ProbeEntry,
    Statistics,
    StatusView,
)
from fuzzparity.execution import Execution
from fuzzparity.finding import Finding
from fuzzparity.report.clean import printable
from fuzzparity.verdict import Evidence, as_plain

_GRADE_STYLES = {"bug": "bold red", "contract": "yellow", "tie": "cyan", "inherent": "dim", "note": "dim"}
_SHOWN_VALUES = 8
_PAYLOAD_FIELDS = ("finding", "case", "lineage", "environment", "ort")
_EXECUTION_FIELDS = ("side", "status", "refusal", "phase", "signal", "exit_code", "seconds", "environment")
_SPARKS = "▁▂▃▄▅▆▇█"


def findings_table(findings: Sequence[Finding]) -> RenderableType:
    """Return a line per finding."""
    if not findings:
        return Text("no findings")
    table = _table("finding", "grade", "realism", "stage", "blame", "hits", "error ratio", "input", "headline")
    for finding in findings:
        verdict = finding.verdict
        name = _text(finding.finding_id, "strike dim" if finding.ignored else "bold")
        if finding.duplicate_of:
            name.append_text(_text(f" = {finding.duplicate_of}", "dim"))
        table.add_row(
            name,
            _text(verdict.grade.value, _GRADE_STYLES.get(verdict.grade.value, "")),
            _text(finding.realism.value),
            _text(finding.stage.value),
            _text(verdict.blame),
            _text(f"{finding.hits:,}"),
            _text(_ratio(finding)),
            _text(_shapes(finding.minimized_shapes)),
            _text(verdict.headline + (f"  [{finding.note}]" if finding.note else "")),
        )
    return table


def finding_detail(payload: Payload) -> RenderableType:
    """Return everything of one finding: what, where, how sure, from which input, on which twin."""
    finding, verdict = payload.finding, payload.finding.verdict
    comparison = verdict.comparison
    lines: dict[str, object] = {
        "finding": finding.finding_id,
        "headline": verdict.headline,
        "grade": f"{verdict.grade.value}, {finding.realism.value}",
        "stage": finding.stage.value + _reproduced(finding),
        "blame": verdict.blame,
        "where": _where(finding),
        "torch": _execution(payload.expected),
        "ONNX Runtime": _execution(payload.actual),
        "error ratio": f"{_ratio(finding)} times what is allowed" if comparison and comparison.error_ratio else "",
        "largest error": f"{comparison.max_abs:.6g} absolute, {comparison.scaled:.3g} of the output's magnitude, "
        f"{comparison.ulp:.3g} ulp"
        if comparison and comparison.max_abs
        else "",
        "there": f"torch {comparison.expected_at}, ORT {comparison.actual_at}"
        if comparison and comparison.index
        else "",
        "differing": f"{comparison.differing:,} of {comparison.compared:,} elements"
        if comparison and comparison.compared
        else "",
        "detail": comparison.detail if comparison else "",
        "evidence": _evidence(verdict.evidence),
        "input": _case_line(payload.case),
        "lineage": _lineage(payload.lineage.origin, payload.lineage.mutators, payload.lineage.parents),
        "hits": f"{finding.hits:,}, first after {finding.first_seen_seconds:.1f} s",
        "build": f"{finding.bucket.build[:12]} ({payload.facts.build.origin})" if payload.facts else "",
        "environment": payload.environment.line if payload.environment else "",
        "reproducer": f"{finding.path} ({finding.standalone})" if finding.path else "",
        "joins": finding.duplicate_of,
        "note": finding.note,
        "ignored": "yes" if finding.ignored else "",
    }
    return Group(_fields(lines), Text(""), _values(payload.case))


def corpora_table(statistics: Sequence[Statistics]) -> RenderableType:
    """Return a line per corpus."""
    table = _table("corpus", "target", "cases", "seeds", "features", "findings", "bugs", "executions", "fuzzed", "file")
    for item in statistics:
        table.add_row(
            _text(item.path),
            _text(", ".join(item.targets)),
            *(_text(f"{count:,}") for count in (item.pool, item.seeds, item.features, item.findings)),
            _text(f"{item.by_grade.get('bug', 0):,}"),
            _text(f"{item.executions:,}"),
            _text(_duration(item.seconds)),
            _text(_bytes(item.file_bytes)),
        )
    return table


def corpus_detail(view: CorpusView) -> RenderableType:
    """Return what one corpus holds: counts, builds, campaigns, cases, findings."""
    counts = view.statistics
    lines: dict[str, object] = {
        "corpus": counts.path,
        "targets": ", ".join(counts.targets),
        "cases": f"{counts.pool:,} in the pool ({counts.seeds:,} seeds), {counts.cases:,} stored, "
        f"{counts.features:,} features",
        "findings": ", ".join(f"{n} {kind}" for kind, n in sorted(counts.by_kind.items())),
        "grades": ", ".join(f"{n} {grade}" for grade, n in sorted(counts.by_grade.items())),
        "fuzzed": f"{_duration(counts.seconds)}, {counts.executions:,} executions, {counts.inputs:,} inputs",
        "size": f"{_bytes(counts.file_bytes)} (tensors and models: {_bytes(counts.blob_bytes)}, "
        f"stored as {_bytes(counts.stored_bytes)})",
    }
    builds = _table("build", "origin", "opset", "nodes", "model", "dtype", "made")
    for build in view.builds:
        size = _bytes(build.onnx_bytes) + ("" if build.has_model else ", not stored")
        row = (build.digest[:12], build.origin, build.opset, build.nodes, size, build.computing_dtype, build.created_at)
        builds.add_row(*(_text(item) for item in row))
    parts = [_fields(lines), builds, campaigns_table(view.campaigns), cases_table(view.cases)]
    return Group(*(part for part in [*parts, findings_table(view.findings)] for part in (part, Text(""))))


def campaigns_table(campaigns: Sequence[CampaignRow]) -> RenderableType:
    """Return a line per campaign."""
    table = _table("campaign", "started", "fuzzed", "executions", "inputs", "findings", "new", "end", "command")
    for item in campaigns:
        end = "interrupted" if item.interrupted else "-" if item.exit_code is None else f"exit {item.exit_code}"
        row = (
            *(item.campaign_id, item.started_at[:19], _duration(item.seconds), f"{item.executions:,}"),
            *(f"{item.inputs:,}", item.findings, item.new_findings, end, item.command),
        )
        table.add_row(*(_text(value) for value in row))
    return table


def cases_table(cases: Sequence[CaseRow]) -> RenderableType:
    """Return a line per case."""
    table = _table("case", "origin", "kind", "error ratio", "realism", "input", "features", "mutators")
    for item in cases:
        row = (
            *(item.digest[:12], item.lineage.origin, item.kind, f"{item.error_ratio:.3g}", item.realism),
            *(_shapes(item.shapes, item.dtypes), item.features, ", ".join(item.lineage.mutators)),
        )
        table.add_row(*(_text(value) for value in row))
    return table


def case_detail(view: CaseView) -> RenderableType:
    """Return one case: its origin, features and first values."""
    row = view.row
    lines: dict[str, object] = {
        "case": row.digest,
        "input": _case_line(view.case),
        "lineage": _lineage(row.lineage.origin, row.lineage.mutators, row.lineage.parents),
        "result": f"{row.kind}, error ratio {row.error_ratio:.3g}, {row.realism}"
        + (", outside the contract" if row.contract_breaking else ""),
        "campaign": row.campaign_id,
        "features": ", ".join(view.features),
        "label": "" if row.label is None else row.label,
    }
    return Group(_fields(lines), Text(""), _values(view.case))


def status_text(views: Sequence[StatusView]) -> RenderableType:
    """Return the last campaign of each corpus: whether it runs, its counters, its course, its findings."""
    if not views:
        return Text("no campaign yet")
    parts: list[RenderableType] = []
    for view in views:
        campaign, last = view.campaign, view.snapshots[-1] if view.snapshots else None
        executions = max(campaign.executions, last.executions if last else 0)
        seconds = max(campaign.seconds, last.seconds if last else 0.0)
        rates = [
            (after.executions - before.executions) / (after.seconds - before.seconds)
            for before, after in zip(view.snapshots, view.snapshots[1:], strict=False)
            if after.seconds > before.seconds
        ]
        lines: dict[str, object] = {
            "corpus": view.path,
            "campaign": f"{campaign.campaign_id} on {campaign.target}, {_state(view)}",
            "fuzzed": f"{_duration(seconds)}, {executions:,} executions"
            + (f" ({executions / seconds:,.0f}/s)" if seconds else ""),
            "rate": _sparkline(rates),
            "corpus size": _sparkline([item.corpus_size for item in view.snapshots]),
            "memory": _sparkline([item.rss_bytes for item in view.snapshots], _bytes),
            "findings": f"{len(view.findings)}, {sum(is_new for _, is_new in view.findings)} new",
        }
        parts += [_fields(lines), Text("")]
        if view.findings:
            parts += [findings_table([finding for finding, _ in view.findings]), Text("")]
    return Group(*parts[:-1])


def probes_table(probes: Sequence[ProbeEntry]) -> RenderableType:
    """Return a line per probed case, oldest first."""
    if not probes:
        return Text("no probe yet; `fuzzparity probe TARGET` makes one")
    table = _table("at", "case", "input", "torch P50", "P90", "P99", "ORT P50", "P90", "P99", "ORT/torch", "RSS")
    for item in probes:
        sides = (
            *(item.torch_p50_seconds, item.torch_p90_seconds, item.torch_p99_seconds),
            *(item.ort_p50_seconds, item.ort_p90_seconds, item.ort_p99_seconds),
        )
        table.add_row(
            *(_text(value) for value in (item.at[:19], item.case_digest[:12], _shapes(item.shapes))),
            *(_text(_milliseconds(value)) for value in sides),
            _text("" if item.ratio is None else f"{item.ratio:.2f}"),
            _text("" if item.rss_bytes is None else _bytes(item.rss_bytes)),
        )
    return table


def verified_text(path: object, problems: Sequence[str]) -> RenderableType:
    """Return the answer of `corpus verify`."""
    if not problems:
        return _text(f"{path}: sound; every blob has the sha256 it was stored with")
    return Group(_text(f"{path}: {len(problems)} problem(s)", "bold red"), *(_text(f"  {line}") for line in problems))


def merged_text(merged: Merged) -> RenderableType:
    """Return the answer of `corpus merge`."""
    refused = [_text(f"  refused: {problem}", "yellow") for problem in merged.problems]
    return Group(_text(f"{merged.added:,} cases added, {merged.known:,} were known"), *refused)


def as_json(value: Any) -> str:
    """Return records (or lists and dicts of them) as JSON in ASCII: no control character of a database comes through.

    Tensors of a case stand as dtype, shape and, up to 64 elements, values; outputs and model bytes are left out.
    """
    return json.dumps(_plain(value), indent=2, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, Case):
        return {name: _plain_array(array) for name, array in value.inputs.items()}
    if isinstance(value, Payload):
        return {name: _plain(getattr(value, name)) for name in _PAYLOAD_FIELDS} | {
            "expected": _plain(value.expected),
            "actual": _plain(value.actual),
            "build": _plain(value.facts.build) if value.facts else None,
        }
    if isinstance(value, Execution):
        outputs = [_plain_array(array) for array in value.outputs]
        return {name: as_plain(getattr(value, name)) for name in _EXECUTION_FIELDS} | {"outputs": outputs}
    if isinstance(value, CaseView):
        return {"row": as_plain(value.row), "features": list(value.features), "case": _plain(value.case)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return as_plain(value)


def _plain_array(array: Array) -> dict[str, Any]:
    plain: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if 0 < array.size <= 64:
        wide = array.astype(np.float64) if array.dtype.kind == "V" else array
        plain["values"] = as_plain(wide.tolist()) if wide.dtype.kind != "c" else [str(item) for item in wide.flat]
    return plain


def _text(value: object, style: str = "") -> Text:
    return Text(printable(value), style=style)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _fields(lines: Mapping[str, object]) -> Table:
    """Return name and value per line; what is not known has no line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines.items():
        if value not in ("", None):
            table.add_row(Text(name), _text(value))
    return table


def _values(case: Case) -> RenderableType:
    """Return the first values of each input."""
    table = _table("input", "dtype", "shape", "values")
    for name, array in case.inputs.items():
        flat = array.reshape(-1)[:_SHOWN_VALUES]
        wide = flat.astype(np.float64) if flat.dtype.kind == "V" or is_float(flat.dtype) else flat
        shown = ", ".join(f"{item:.6g}" if wide.dtype.kind == "f" else str(item) for item in wide.tolist())
        more = f", ... ({array.size:,})" if array.size > _SHOWN_VALUES else ""
        table.add_row(_text(name), _text(array.dtype.name), _text(list(array.shape)), _text(shown + more))
    return table


def _where(finding: Finding) -> str:
    where, comparison = finding.where, finding.verdict.comparison
    index = where.index if where.index is not None else comparison.index if comparison else None
    named = {
        "op": where.op,
        "ONNX node": where.onnx_node,
        "FX node": where.fx_node,
        "source": where.source,
        "output": where.output or finding.verdict.output,
        "index": list(index) if index is not None else "",
    }
    return ", ".join(f"{name} {value}" for name, value in named.items() if value not in ("", None))


def _reproduced(finding: Finding) -> str:
    if finding.reproduced is None:
        return ", not yet tried in a fresh session"
    return ", comes back in a fresh session" if finding.reproduced else ", did not come back in a fresh session"


def _execution(execution: Execution | None) -> str:
    if execution is None:
        return ""
    if execution.is_ok:
        shapes = ", ".join(f"{array.dtype.name}{list(array.shape)}" for array in execution.outputs)
        return f"answers {shapes}" if shapes else "answers"
    if execution.refusal is not None:
        return f"{execution.status.value} at {execution.phase}: {execution.refusal.error_class}: " + (
            execution.refusal.message
        )
    how = f" by signal {execution.signal}" if execution.signal else ""
    return f"{execution.status.value}{how} at {execution.phase}"


def _evidence(evidence: Evidence | None) -> str:
    if evidence is None:
        return ""
    distances = [
        f"{side} {distance:.3g} from exact"
        for side, distance in (("torch", evidence.torch_distance), ("ORT", evidence.ort_distance))
        if distance is not None
    ]
    moves = [f"{name} moves it by {move:.3g}" for name, move in evidence.moves.items()]
    far = [f"far: {', '.join(evidence.far_sides)}"] if evidence.far_sides else []
    parts = [evidence.source, *distances, *moves, *far, *([evidence.note] if evidence.note else [])]
    return "; ".join(parts)


def _lineage(origin: str, mutators: Iterable[str], parents: Iterable[str]) -> str:
    steps = ", ".join(mutators)
    of = ", ".join(parent[:12] for parent in parents)
    return origin + (f" by {steps}" if steps else "") + (f" of {of}" if of else "")


def _case_line(case: Case) -> str:
    shapes = _shapes(case.shapes, {name: array.dtype.name for name, array in case.inputs.items()})
    return f"{shapes} ({case.elements:,} elements, {'finite' if case.is_finite else 'with NaN or Inf'})"


def _shapes(shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str] | None = None) -> str:
    return ", ".join(f"{name} {(dtypes or {}).get(name, '')}{list(shape)}" for name, shape in shapes.items())


def _ratio(finding: Finding) -> str:
    comparison = finding.verdict.comparison
    return f"{comparison.error_ratio:.3g}" if comparison is not None and comparison.error_ratio else ""


def _state(view: StatusView) -> str:
    if view.writer is not None:
        return f"running (process {view.writer})"
    if view.campaign.exit_code is not None:
        return f"ended {view.campaign.ended_at[:19]}, exit {view.campaign.exit_code}"
    return "died before its end; the same command resumes it"


def _sparkline(values: Sequence[float], show: Any = None) -> str:
    """Return the course of some values as one line of bars, with its last value."""
    if len(values) < 2 or max(values) <= 0:
        return ""
    top = max(values)
    bars = "".join(_SPARKS[min(7, int(7.99 * max(value, 0) / top))] for value in values)
    return f"{bars} {show(values[-1]) if show else f'{values[-1]:,.0f}'}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.3g} ms"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
