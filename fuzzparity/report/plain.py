"""Plain: findings as JSON data: `finding.json` of a reproducer, and the object that `--json` writes.

The idea: what leaves the machine holds no absolute directory. Names by which replay finds inputs and outputs are kept
letter for letter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fuzzparity.execution import Execution
from fuzzparity.finding import Finding
from fuzzparity.report.causes import causes_object
from fuzzparity.report.clean import plain_without_paths
from fuzzparity.report.content import (
    ReproducerContent,
    allowed,
    expected_outputs,
    feeds,
    headline,
    limit_seconds,
    phase,
    relative_spec,
)
from fuzzparity.report.cutting import cut_object
from fuzzparity.report.known import known_object, rechecks_object
from fuzzparity.report.records import CampaignResult
from fuzzparity.verdict import as_plain

SCHEMA = 1


def finding_plain(content: ReproducerContent, place: Path) -> dict[str, Any]:
    """Return finding.json: everything recorded of the finding as plain data, without absolute directories."""
    facts, outputs = content.facts, expected_outputs(content)
    tolerances = allowed(content, outputs) if outputs else content.allowed
    build = {key: value for key, value in as_plain(facts.build).items() if key != "folder"}
    body = {
        "schema": SCHEMA,
        "finding_id": content.finding.finding_id,
        "headline": headline(content),
        "standalone": content.standalone,
        "contains": list(content.contains),
        "confidential": content.confidential,
        "finding": {key: value for key, value in as_plain(content.finding).items() if key != "known"} | {"path": ""},
        "expected": as_plain_execution(content.expected),
        "actual": as_plain_execution(content.actual),
        "phase": phase(content),
        "outputs": list(outputs) if outputs is not None else list(facts.outputs),
        "feeds": feeds(content),
        "allowed": as_plain(tolerances),
        "regions": as_plain(content.regions),
        "ort": as_plain(content.ort),
        "limit_seconds": limit_seconds(content),
        "memory_bytes": content.memory_bytes,
        "lineage": as_plain(content.lineage),
        "contract": as_plain(facts.contract),
        "build": build,
        "environment": as_plain(facts.environment),
        "cut": cut_object(content.cut) if content.cut is not None else None,
    }
    plain: dict[str, Any] = plain_without_paths(body, content.target_folder)
    kept = ("outputs", "feeds", "allowed", "regions", "contract")  # a name such as "/head/out" is no directory
    return (
        plain
        | {key: body[key] for key in kept}
        | {"target": {"name": facts.name, "spec": relative_spec(content, place)}}
    )


def as_plain_execution(execution: Execution | None) -> dict[str, Any] | None:
    """Return an execution as plain data; its outputs are in their own file, here only dtypes and shapes."""
    if execution is None:
        return None
    shapes = [f"{array.dtype.name}{list(array.shape)}" for array in execution.outputs]
    return {
        "side": execution.side,
        "status": execution.status.value,
        "outputs": shapes,
        "refusal": as_plain(execution.refusal),
        "phase": execution.phase,
        "signal": execution.signal,
        "exit_code": execution.exit_code,
        "seconds": execution.seconds,
    }


def finding_object(
    finding: Finding,
    *,
    is_new: bool,
    hits: int | None = None,
    first_seen_seconds: float | None = None,
    path: str | None = None,
) -> dict[str, Any]:
    """Return the finding's object of `--json` (README, "--json"); fields that are not known are null or left out."""
    verdict, where = finding.verdict, as_plain(finding.where)
    place = {key: value for key, value in where.items() if value not in ("", None)}
    if verdict.output:
        place.setdefault("output", verdict.output)
    if verdict.comparison is not None and verdict.comparison.index is not None:
        place.setdefault("index", list(verdict.comparison.index))
    minimized = {
        "elements": finding.minimized_elements,
        "shapes": as_plain(finding.minimized_shapes),
        "nodes": finding.model_nodes,
        "bytes": finding.model_bytes,
    }
    return {
        "finding_id": finding.finding_id,
        "new": is_new,
        "kind": verdict.kind.value,
        "grade": verdict.grade.value,
        "realism": finding.realism.value,
        "blame": verdict.blame,
        "where": place,
        "headline": verdict.headline,
        "error_ratio": as_plain(verdict.comparison.error_ratio) if verdict.comparison is not None else None,
        "first_seen_seconds": finding.first_seen_seconds if first_seen_seconds is None else first_seen_seconds,
        "hits": finding.hits if hits is None else hits,
        "reproduced": finding.reproduced,
        "standalone": finding.standalone,
        "minimized": minimized if finding.minimized_elements is not None else None,
        "path": finding.path if path is None else path,
        "attribution": as_plain(verdict.attribution) if verdict.attribution is not None else None,
        "looks_like": list(verdict.looks_like),
        "known": finding.known.name if finding.known is not None else None,
        "duplicate_of": finding.duplicate_of or None,
    }


def result_object(result: CampaignResult) -> dict[str, Any]:
    """Return the object that `--json` writes at a campaign's end (README, "--json")."""
    found = [
        finding_object(
            finding,
            is_new=finding.finding_id in result.new_ids,
            hits=result.hits.get(finding.finding_id),
        )
        for finding in result.findings
    ]
    return {
        "schema": SCHEMA,
        "campaign_id": result.campaign_id,
        "target": result.facts.name,
        "build": result.facts.build.digest,
        "seconds": result.seconds,
        "setup_seconds": result.setup_seconds,
        "executions": result.executions,
        "inputs": result.inputs,
        "corpus_size": result.corpus_size,
        "rejected": result.rejected,
        "environment": as_plain(result.facts.environment),
        "findings": found,
        "causes": causes_object(result.findings),
        "exit_code": result.exit_code,
        "interrupted_by": result.interrupted_by,
        "notes": list(result.notes),
        "corpus": str(result.corpus_path),
        "crashes": str(result.crashes_path),
        "probe": as_plain(result.probe),
        "known_issues": known_object(result.known),
        "rechecks": rechecks_object(result.rechecks),
    }
