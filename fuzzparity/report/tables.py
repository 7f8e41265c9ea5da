"""Tables: what a corpus knows, as tables for a terminal and as JSON.

The idea: one function per record of the corpus, and each makes its cells with `cells`, which makes the texts of a
stranger's database harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
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
from fuzzparity.known import FILE, Told
from fuzzparity.report.advice import born, known_by
from fuzzparity.report.cells import duration, fields, milliseconds, shapes_text, size_text, sparkline, table_of, text
from fuzzparity.report.grounds import evidence_grounds
from fuzzparity.report.known import (
    entry_to_paste,
    known_mark,
    known_text,
    rechecks_object,
    rechecks_text,
    standings_text,
)
from fuzzparity.report.needed import needed_of
from fuzzparity.report.paying import MOVE, PARENTS, best_text, idle_text
from fuzzparity.report.plain import finding_object
from fuzzparity.verdict import as_plain

_GRADE_STYLES = {"bug": "bold red", "contract": "yellow", "tie": "cyan", "inherent": "dim", "note": "dim"}
_SHOWN_VALUES = 8
_MOST_EFFORTS = 6
_PAYLOAD_FIELDS = ("finding", "case", "lineage", "expected", "actual", "environment", "ort")
_EXECUTION_FIELDS = ("side", "status", "refusal", "phase", "signal", "exit_code", "seconds", "environment")


def findings_table(found: Sequence[tuple[Path, Finding]], known: Sequence[Told] = ()) -> RenderableType:
    """Return a line per finding, under the name of its corpus where there are several, then the known issues."""
    if not found:
        return Text("no findings")
    if known:
        return Group(findings_table(found), Text(""), standings_text(known))
    paths = list(dict.fromkeys(path for path, _ in found))
    if len(paths) == 1:
        return _findings_table([finding for _, finding in found])
    parts: list[RenderableType] = []
    for path in paths:
        parts += [text(path, "bold"), _findings_table([finding for where, finding in found if where == path])]
    return Group(*parts)


def _findings_table(findings: Sequence[Finding]) -> RenderableType:
    if not findings:
        return Text("no findings")
    table = table_of("finding", "grade", "realism", "stage", "hits", "ratio", "headline")
    for finding in findings:
        verdict = finding.verdict
        name = text(finding.finding_id, "strike dim" if finding.ignored else "dim" if finding.is_silent else "bold")
        if finding.ignored:
            name.append_text(text(" ignored", "dim"))
        headline = text(verdict.headline)
        for more in (f"blame: {verdict.blame}" * (verdict.blame != "unknown"), finding.note, known_mark(finding)):
            headline.append_text(text(f" [{more}]" if more else "", "dim"))
        if finding.duplicate_of:
            headline.append_text(text(f" = {finding.duplicate_of}", "dim"))
        table.add_row(
            name,
            text(verdict.grade.value, _GRADE_STYLES.get(verdict.grade.value, "")),
            *(text(value) for value in (finding.realism.value, finding.stage.value, f"{finding.hits:,}")),
            text(_ratio(finding)),
            headline,
        )
    return table


def payload_view(payload: Payload, path: Path | None = None) -> RenderableType:
    """Return everything of one finding: what, where, how sure, from which input, on which twin."""
    finding, verdict = payload.finding, payload.finding.verdict
    comparison = verdict.comparison
    lines: dict[str, object] = {
        "finding": finding.finding_id,
        "headline": verdict.headline,
        "grade": f"{verdict.grade.value}, {finding.realism.value}",
        "stage": finding.stage.value + _reproduced(finding),
        "blame": verdict.blame,
        "looks like": "; ".join(verdict.looks_like),
        "known by": "; ".join(known_by(verdict)),
        "born": born(verdict).removeprefix("born "),
        "until then": verdict.attribution.workaround if verdict.attribution else "",
        "where": _where(finding),
        "torch": _execution(payload.expected),
        "ONNX Runtime": _execution(payload.actual),
        "error ratio": f"{_ratio(finding)} times what is allowed" if comparison and comparison.error_ratio else "",
        "largest error": f"{comparison.max_abs:.6g} absolute, {comparison.scaled:.3g} of the output's magnitude, "
        f"{comparison.ulp:.3g} ulp"
        if comparison and comparison.max_abs
        else "",
        "tolerance": least.text if (least := needed_of(payload)) is not None else "",
        "there": f"torch {comparison.expected_at}, ORT {comparison.actual_at}"
        if comparison and comparison.index
        else "",
        "differing": f"{comparison.differing:,} of {comparison.compared:,} elements"
        if comparison and comparison.compared
        else "",
        "detail": comparison.detail if comparison else "",
        "evidence": "; ".join(evidence_grounds(verdict)),
        "input": _case_line(payload.case),
        "lineage": _lineage(payload.lineage.origin, payload.lineage.mutators, payload.lineage.parents),
        "hits": f"{finding.hits:,}, first after {finding.first_seen_seconds:.1f} s",
        "build": f"{finding.bucket.build[:12]} ({payload.facts.build.origin})" if payload.facts else "",
        "environment": payload.environment.line if payload.environment else "",
        "reproducer": f"{finding.path} ({finding.standalone})" if finding.path else "",
        "joins": finding.duplicate_of,
        "known": known_text(finding),
        "later": rechecks_text(payload.rechecks),
        "note": finding.note,
        "ignored": "yes" if finding.ignored else "",
        "corpus": path,
    }
    parts = [fields(lines), Text(""), _values(payload.case)]
    if finding.known is None:
        parts += [Text(""), text(f"to tell it as known, put this into {FILE} beside the target:", "dim")]
        parts += [text(line) for line in entry_to_paste(finding).splitlines()]
    return Group(*parts)


def corpora_table(statistics: Sequence[Statistics]) -> RenderableType:
    """Return a line per corpus."""
    table = table_of("target", "cases", "seeds", "findings", "bugs", "executions", "fuzzed", "corpus")
    for item in statistics:
        counts = (item.pool, item.seeds, item.findings, item.by_grade.get("bug", 0), item.executions)
        table.add_row(
            text(", ".join(item.targets)),
            *(text(f"{count:,}") for count in counts),
            text(duration(item.seconds)),
            text(f"{item.path} ({size_text(item.file_bytes)})"),
        )
    return table


def corpus_view(view: CorpusView) -> RenderableType:
    """Return what one corpus holds: counts, builds, campaigns, cases, findings."""
    counts = view.statistics
    lines: dict[str, object] = {
        "corpus": counts.path,
        "targets": ", ".join(counts.targets),
        "cases": f"{counts.pool:,} in the pool ({counts.seeds:,} seeds), {counts.cases:,} stored, "
        f"{counts.features:,} features",
        "findings": ", ".join(f"{n} {kind}" for kind, n in sorted(counts.by_kind.items())),
        "grades": ", ".join(f"{n} {grade}" for grade, n in sorted(counts.by_grade.items())),
        "fuzzed": f"{duration(counts.seconds)}, {counts.executions:,} executions, {counts.inputs:,} inputs",
        "size": f"{size_text(counts.file_bytes)} (tensors and models: {size_text(counts.blob_bytes)}, "
        f"stored as {size_text(counts.stored_bytes)})",
    }
    builds = table_of("build", "origin", "opset", "nodes", "model", "dtype", "made")
    for build in view.builds:
        size = size_text(build.onnx_bytes) + ("" if build.has_model else ", not stored")
        row = (
            build.digest[:12],
            build.origin,
            build.opset,
            build.nodes,
            size,
            build.computing_dtype,
            build.created_at[:10],
        )
        builds.add_row(*(text(item) for item in row))
    parts = [fields(lines), builds, campaigns_table(view.campaigns), cases_table(view.cases)]
    return Group(*(part for part in [*parts, _findings_table(view.findings)] for part in (part, Text(""))))


def campaigns_table(campaigns: Sequence[CampaignRow]) -> RenderableType:
    """Return a line per campaign."""
    table = table_of("campaign", "fuzzed", "executions", "findings", "new", "end", "command")
    for item in campaigns:
        end = "interrupted" if item.interrupted else "-" if item.exit_code is None else f"exit {item.exit_code}"
        row = (
            *(item.campaign_id, duration(item.seconds), f"{item.executions:,}"),
            *(item.findings, item.new_findings, end, item.command),
        )
        table.add_row(*(text(value) for value in row))
    return table


def cases_table(cases: Sequence[CaseRow]) -> RenderableType:
    """Return a line per case."""
    table = table_of("case", "from", "kind", "ratio", "realism", "features", "input", "mutators")
    for item in cases:
        row = (
            *(item.digest[:12], item.lineage.origin, item.kind, f"{item.error_ratio:.3g}", item.realism),
            *(item.features, shapes_text(item.shapes, item.dtypes), ", ".join(item.lineage.mutators)),
        )
        table.add_row(*(text(value) for value in row))
    return table


def case_view(view: CaseView) -> RenderableType:
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
    return Group(fields(lines), Text(""), _values(view.case))


def status_view(views: Sequence[StatusView]) -> RenderableType:
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
            "fuzzed": f"{duration(seconds)}, {executions:,} executions"
            + (f" ({executions / seconds:,.0f}/s)" if seconds else ""),
            "rate": sparkline(rates),
            "corpus size": sparkline([item.corpus_size for item in view.snapshots]),
            "memory": sparkline([item.rss_bytes for item in view.snapshots], size_text),
            "findings": f"{len(view.findings)}, {sum(is_new for _, is_new in view.findings)} new"
            + (f", {known} known" if (known := sum(_is_expected(finding) for finding, _ in view.findings)) else ""),
            "moves that paid": best_text(view.efforts, MOVE, _MOST_EFFORTS),
            "parents that paid": best_text(view.efforts, PARENTS, _MOST_EFFORTS),
            "moves that did not": idle_text(view.efforts, _MOST_EFFORTS),
        }
        parts += [fields(lines), Text("")]
        parts += [standings_text(view.known), Text("")] if view.known else []
        if view.findings:
            parts += [_findings_table([finding for finding, _ in view.findings]), Text("")]
    return Group(*parts[:-1])


def _is_expected(finding: Finding) -> bool:
    return finding.known is not None and finding.is_silent


def probes_table(probes: Sequence[ProbeEntry]) -> RenderableType:
    """Return a line per probed case, oldest first."""
    if not probes:
        return Text("no probe yet; `fuzzparity probe TARGET` makes one")
    table = table_of("at", "case", "input", "torch P50", "P90", "P99", "ORT P50", "P90", "P99", "ORT/torch", "RSS")
    for item in probes:
        sides = (
            *(item.torch_p50_seconds, item.torch_p90_seconds, item.torch_p99_seconds),
            *(item.ort_p50_seconds, item.ort_p90_seconds, item.ort_p99_seconds),
        )
        table.add_row(
            *(text(value) for value in (item.at[:19], item.case_digest[:12], shapes_text(item.shapes))),
            *(text(milliseconds(value)) for value in sides),
            text("" if item.ratio is None else f"{item.ratio:.2f}"),
            text("" if item.rss_bytes is None else size_text(item.rss_bytes)),
        )
    return table


def verified_text(path: object, problems: Sequence[str]) -> RenderableType:
    """Return the answer of `corpus verify`."""
    if not problems:
        return text(f"{path}: sound; every blob has the sha256 it was stored with")
    return Group(text(f"{path}: {len(problems)} problem(s)", "bold red"), *(text(f"  {line}") for line in problems))


def merged_text(merged: Merged) -> RenderableType:
    """Return the answer of `corpus merge`."""
    refused = [text(f"  refused: {problem}", "yellow") for problem in merged.problems]
    return Group(text(f"{merged.added:,} cases added, {merged.known:,} were known"), *refused)


def findings_object(found: Sequence[tuple[Path, Finding]]) -> list[dict[str, Any]]:
    """Return findings as JSON data: the object of `--json`, and what only the database knows."""
    listed = []
    for path, finding in found:
        plain = finding_object(finding, is_new=False)
        del plain["new"]  # means something within a campaign only
        plain |= {"corpus": str(path), "stage": finding.stage.value, "duplicate_of": finding.duplicate_of}
        listed.append(plain | {"ignored": finding.ignored, "note": finding.note})
    return listed


def payload_object(payload: Payload) -> dict[str, Any]:
    """Return a finding with its case, executions and lineage as JSON data; of large tensors no values."""
    plain: dict[str, Any] = {name: _plain(getattr(payload, name)) for name in _PAYLOAD_FIELDS}
    plain |= {"agrees_from": as_plain(needed_of(payload)), "rechecks": rechecks_object(payload.rechecks)}
    return plain | {"build": as_plain(payload.facts.build) if payload.facts else None}


def case_object(view: CaseView) -> dict[str, Any]:
    """Return a case with its features as JSON data; of large tensors no values."""
    return {"row": as_plain(view.row), "features": list(view.features), "case": _plain(view.case)}


def _plain(value: Any) -> Any:
    if isinstance(value, Case):
        return {name: _plain_array(array) for name, array in value.inputs.items()}
    if isinstance(value, Execution):
        outputs = [_plain_array(array) for array in value.outputs]
        return {name: as_plain(getattr(value, name)) for name in _EXECUTION_FIELDS} | {"outputs": outputs}
    return as_plain(value)


def _plain_array(array: Array) -> dict[str, Any]:
    plain: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if 0 < array.size <= 64:
        wide = array.astype(np.float64) if array.dtype.kind == "V" else array
        plain["values"] = as_plain(wide.tolist()) if wide.dtype.kind != "c" else [str(item) for item in wide.flat]
    return plain


def _values(case: Case) -> RenderableType:
    """Return the first values of each input."""
    table = table_of("input", "dtype", "shape", "values")
    for name, array in case.inputs.items():
        flat = array.reshape(-1)[:_SHOWN_VALUES]
        wide = flat.astype(np.float64) if flat.dtype.kind == "V" or is_float(flat.dtype) else flat
        shown = ", ".join(f"{item:.6g}" if wide.dtype.kind == "f" else str(item) for item in wide.tolist())
        more = f", ... ({array.size:,})" if array.size > _SHOWN_VALUES else ""
        table.add_row(text(name), text(array.dtype.name), text(list(array.shape)), text(shown + more))
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
        return f"{execution.status.value} at {execution.phase}: {execution.refusal.said}"
    how = f" by signal {execution.signal}" if execution.signal else ""
    return f"{execution.status.value}{how} at {execution.phase}"


def _lineage(origin: str, mutators: Iterable[str], parents: Iterable[str]) -> str:
    steps = ", ".join(mutators)
    of = ", ".join(parent[:12] for parent in parents)
    return origin + (f" by {steps}" if steps else "") + (f" of {of}" if of else "")


def _case_line(case: Case) -> str:
    shapes = shapes_text(case.shapes, {name: array.dtype.name for name, array in case.inputs.items()})
    return f"{shapes} ({case.elements:,} elements, {'finite' if case.is_finite else 'with NaN or Inf'})"


def _ratio(finding: Finding) -> str:
    comparison = finding.verdict.comparison
    return f"{comparison.error_ratio:.3g}" if comparison is not None and comparison.error_ratio else ""


def _state(view: StatusView) -> str:
    if view.writer is not None:
        return f"running (process {view.writer})"
    if view.campaign.exit_code is not None:
        return f"ended {view.campaign.ended_at[:19]}, exit {view.campaign.exit_code}"
    return "died before its end; the same command resumes it"
