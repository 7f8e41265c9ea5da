"""Rows: how cases, executions and findings become rows of the database and records again.

The idea: one function each way per record, so that no other module knows a column. A row from a stranger that does
not make its record is a CorpusError with the row's key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fuzzparity.case import Case, Lineage
from fuzzparity.corpus import blobs, codec
from fuzzparity.corpus.labels import label_of, label_text
from fuzzparity.corpus.plain import dumps, from_plain, loads
from fuzzparity.corpus.records import CaseRow, KeptCase
from fuzzparity.corpus.schema import DATABASE_ERRORS, Database, now
from fuzzparity.errors import CorpusError, InvalidCase
from fuzzparity.execution import Execution
from fuzzparity.finding import Finding
from fuzzparity.verdict import Verdict

Row = dict[str, Any]

_WHERE = "where."  # before an output's name: its mask of what counts
_CASE_COLUMNS = (
    *("digest", "campaign_id", "build_digest", "origin", "sequence", "lease", "rng_seed", "parents", "mutators"),
    *("elements", "bytes", "shapes", "dtypes", "is_finite", "kind", "error_ratio", "realism", "contract_breaking"),
    *("in_pool", "label", "added_at", "blob_sha256"),
)
_INSERT_CASE = (
    f"insert into cases ({', '.join(_CASE_COLUMNS)}) values ({', '.join(':' + name for name in _CASE_COLUMNS)}) "
    # known already: it keeps its first lineage, and stays in the pool once it was there
    "on conflict (digest) do update set in_pool = max(in_pool, excluded.in_pool), "
    "label = coalesce(label, excluded.label), "
    "origin = case when excluded.origin = 'seed' then 'seed' "
    "when excluded.origin = 'import' and origin != 'seed' then 'import' else origin end"
)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Name the row when its record cannot be made."""
    try:
        yield
    except (InvalidCase, CorpusError) as error:
        raise CorpusError(f"{what} cannot be read: {error}") from error
    except (KeyError, TypeError, ValueError, *DATABASE_ERRORS) as error:
        raise CorpusError(f"{what} cannot be read: {type(error).__name__}: {error}") from error


def store_case(db: Database, kept: KeptCase, campaign_id: str, build: str, *, in_pool: bool) -> str:
    """Store a case with its features and return its digest; call inside a transaction."""
    case, lineage = kept.case, kept.lineage
    blob = blobs.store(db, "case", codec.encode(case.inputs))
    row = {
        "digest": case.digest,
        "campaign_id": campaign_id,
        "build_digest": build,
        "origin": lineage.origin,
        "sequence": lineage.sequence,
        "lease": lineage.lease,
        # SQLite integers have 63 bits and a sign; rng seeds may be any size
        "rng_seed": lineage.rng_seed if abs(lineage.rng_seed) < 1 << 63 else str(lineage.rng_seed),
        "parents": dumps(lineage.parents),
        "mutators": dumps(lineage.mutators),
        "elements": case.elements,
        "bytes": case.nbytes,
        "shapes": dumps(case.shapes),
        "dtypes": dumps({name: array.dtype.name for name, array in case.inputs.items()}),
        "is_finite": int(case.is_finite),
        "kind": str(kept.kind),
        "error_ratio": figure(kept.error_ratio),
        "realism": str(kept.realism),
        "contract_breaking": int(kept.contract_breaking),
        "in_pool": int(in_pool),
        "label": label_text(case.label if kept.label is None else kept.label),
        "added_at": now(),
        "blob_sha256": blob,
    }
    db.conn.execute(_INSERT_CASE, row)
    db.conn.executemany(
        "insert or ignore into features (feature, case_digest) values (?, ?)",
        [(feature, case.digest) for feature in sorted(kept.features)],
    )
    return case.digest


def load_case(
    db: Database, digest: str, blob: str, *, max_bytes: int = codec.MAX_BYTES, label: str | None = None
) -> Case:
    """Return a stored case, with its label if that is given; its blob and its content hash are verified."""
    with reading(f"cases row {digest}"):
        data = blobs.load(db, blob, max_bytes=max_bytes + codec.MAX_HEADER_BYTES)
        case = Case(codec.decode(data, max_bytes=max_bytes), None if label is None else label_of(loads(label)))
        if case.digest != digest:
            raise CorpusError(f"its tensors have the content hash {case.digest}")
        return case


def lineage_of(row: Mapping[str, Any]) -> Lineage:
    """Return the lineage in a row of `cases`."""
    return Lineage(
        origin=str(row["origin"]),
        parents=from_plain(tuple[str, ...], loads(row["parents"])),
        mutators=from_plain(tuple[str, ...], loads(row["mutators"])),
        rng_seed=int(row["rng_seed"]),
        lease=int(row["lease"]),
        sequence=int(row["sequence"]),
    )


def case_row_of(row: Mapping[str, Any]) -> CaseRow:
    """Return a row of `cases`, with its count of features, as a record."""
    with reading(f"cases row {row['digest']}"):
        return CaseRow(
            digest=row["digest"],
            campaign_id=row["campaign_id"],
            build=row["build_digest"],
            lineage=lineage_of(row),
            elements=row["elements"],
            nbytes=row["bytes"],
            shapes=from_plain(dict[str, tuple[int, ...]], loads(row["shapes"])),
            dtypes=from_plain(dict[str, str], loads(row["dtypes"])),
            kind=row["kind"],
            error_ratio=float(row["error_ratio"]),
            realism=row["realism"],
            contract_breaking=bool(row["contract_breaking"]),
            in_pool=bool(row["in_pool"]),
            features=row["features"],
            added_at=row["added_at"],
            label=None if row["label"] is None else loads(row["label"]),
        )


def figure(value: float | None) -> float | str | None:
    """Return a figure as SQLite keeps it: infinity stays a number, NaN (which SQLite turns to NULL) becomes text."""
    return "nan" if value is not None and value != value else value


def store_execution(db: Database, side: str, execution: Execution | None, names: Sequence[str]) -> Row:
    """Return the columns that hold an execution; its outputs become a blob. Outputs that are no tensors are left out.

    A finding must not be lost over an output of text or of an odd dtype: the record then says that it has none.
    """
    if execution is None:
        return {side: None, f"{side}_sha256": None}
    columns = {side: dumps(dataclasses.replace(execution, outputs=(), where=())), f"{side}_sha256": None}
    if execution.outputs:
        is_plain = len(set(names)) == len(names) == len(execution.outputs)
        if not is_plain or any(name.startswith(_WHERE) for name in names):
            names = [f"output_{index}" for index in range(len(execution.outputs))]
        masks = zip(names, execution.where, strict=False)
        where = {_WHERE + name: mask for name, mask in masks if mask is not None}
        try:
            data = codec.encode(dict(zip(names, execution.outputs, strict=True)) | where)
        except InvalidCase:
            return columns
        columns[f"{side}_sha256"] = blobs.store(db, side, data)
    return columns


def load_execution(db: Database, side: str, row: Mapping[str, Any]) -> Execution | None:
    """Return the execution in a row of `findings`, with its outputs."""
    if row[side] is None:
        return None
    with reading(f"findings row {row['finding_id']}, column {side}"):
        execution = from_plain(Execution, loads(row[side]))
        if row[f"{side}_sha256"] is None:
            return execution
        arrays = codec.decode(blobs.load(db, row[f"{side}_sha256"]))
        outputs = {name: array for name, array in arrays.items() if not name.startswith(_WHERE)}
        where = tuple(arrays.get(_WHERE + name) for name in outputs) if len(outputs) < len(arrays) else ()
        return dataclasses.replace(execution, outputs=tuple(outputs.values()), where=where)


def verdict_columns(verdict: Verdict) -> Row:
    """Return the columns of `findings` that follow from its verdict."""
    comparison = verdict.comparison
    return {
        "kind": verdict.kind.value,
        "grade": verdict.grade.value,
        "side": verdict.side,
        "output": verdict.output,
        "site": verdict.site,
        "blame": verdict.blame,
        "headline": verdict.headline,
        "error_ratio": figure(comparison.error_ratio) if comparison else None,
        "verdict": dumps(verdict),
    }


def finding_columns(finding: Finding) -> Row:
    """Return the columns that a finding fills; what belongs to the user (ignored, note) is not among them."""
    return {
        "finding_id": finding.finding_id,
        "bucket": finding.bucket.key,
        "bucket_fields": dumps(finding.bucket),
        "build_digest": finding.bucket.build,
        "finite": int(finding.bucket.finite),
        "stage": finding.stage.value,
        "realism": finding.realism.value,
        **verdict_columns(finding.verdict),
        "place": dumps(finding.where),
        "case_digest": finding.case_digest,
        "first_case_digest": finding.first_case_digest,
        "minimized_elements": finding.minimized_elements,
        "minimized_shapes": dumps(finding.minimized_shapes),
        "model_nodes": finding.model_nodes,
        "model_bytes": finding.model_bytes,
        "reproduced": None if finding.reproduced is None else int(finding.reproduced),
        "hits": finding.hits,
        "first_seen_seconds": finding.first_seen_seconds,
        "standalone": finding.standalone,
        "path": finding.path,
        "duplicate_of": finding.duplicate_of,
    }


def finding_of(row: Mapping[str, Any]) -> Finding:
    """Return the finding in a row of `findings`."""
    with reading(f"findings row {row['finding_id']}"):
        plain = {
            **{name: row[name] for name in ("finding_id", "stage", "realism", "case_digest", "first_case_digest")},
            **{name: row[name] for name in ("hits", "first_seen_seconds", "minimized_elements")},
            **{name: row[name] or "" for name in ("standalone", "path", "duplicate_of", "note")},
            **{name: row[name] for name in ("model_nodes", "model_bytes")},
            "bucket": loads(row["bucket_fields"]),
            "verdict": loads(row["verdict"]),
            "where": loads(row["place"]),
            "minimized_shapes": loads(row["minimized_shapes"]),
            "reproduced": None if row["reproduced"] is None else bool(row["reproduced"]),
            "ignored": bool(row["ignored"]),
        }
        return from_plain(Finding, plain)
