"""Maintenance: verify, minimize and merge whole corpora.

The idea: each goes once over every row and trusts none of them; what is wrong is told by row and never passed over.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

from fuzzparity.case import sort_key
from fuzzparity.corpus import blobs, rows
from fuzzparity.corpus.reading import CorpusReader
from fuzzparity.corpus.records import KeptCase, Merged
from fuzzparity.corpus.schema import DATABASE_ERRORS
from fuzzparity.errors import CorpusError, InvalidUsage

MERGE_BYTES = 256 << 20  # of one case from another corpus
MERGE_FEATURES = 10_000  # of one case from another corpus
_REFERENCES = (  # table, its key, the column that refers, what it refers to
    ("cases", "digest", "blob_sha256", "blobs", "sha256"),
    ("build_files", "name", "blob_sha256", "blobs", "sha256"),
    ("findings", "finding_id", "case_digest", "cases", "digest"),
    ("findings", "finding_id", "expected_sha256", "blobs", "sha256"),
    ("findings", "finding_id", "actual_sha256", "blobs", "sha256"),
    ("finding_cases", "finding_id", "case_digest", "cases", "digest"),
    ("cuts", "finding_id", "blob_sha256", "blobs", "sha256"),
    ("campaign_findings", "campaign_id", "finding_id", "findings", "finding_id"),
    ("features", "feature", "case_digest", "cases", "digest"),
)


def verify(corpus: CorpusReader) -> list[str]:
    """Return what is wrong: SQLite's own check, every blob's sha256, every case, finding and reference."""
    problems: list[str] = []
    try:
        said = [str(row[0]) for row in corpus.db.conn.execute("pragma integrity_check(100)")]
    except DATABASE_ERRORS as error:
        return [f"SQLite cannot read the file: {error}"]
    problems += [f"integrity_check: {line}" for line in said if line != "ok"]
    for step in (_verify_blobs, _verify_rows, _verify_references):
        try:
            problems += step(corpus)
        except (CorpusError, *DATABASE_ERRORS) as error:
            problems.append(str(error))
    return problems


def _verify_blobs(corpus: CorpusReader) -> list[str]:
    problems = []
    for row in corpus._rows("select sha256 from blobs"):
        try:
            blobs.load(corpus.db, row["sha256"])
        except (CorpusError, *DATABASE_ERRORS) as error:
            problems.append(str(error))
    return problems


def _verify_rows(corpus: CorpusReader) -> list[str]:
    problems = []
    for row in corpus._rows("select *, 0 as features from cases"):
        try:
            rows.case_row_of(row)
            rows.load_case(corpus.db, row["digest"], row["blob_sha256"])
        except (CorpusError, *DATABASE_ERRORS) as error:
            problems.append(str(error))
    for row in corpus._rows("select * from findings"):
        try:
            rows.finding_of(row)
            for side in ("expected", "actual"):
                rows.load_execution(corpus.db, side, row)
        except (CorpusError, *DATABASE_ERRORS) as error:
            problems.append(str(error))
    return problems


def _verify_references(corpus: CorpusReader) -> list[str]:
    problems = []
    for table, key, column, other, other_key in _REFERENCES:
        if not corpus._rows("select 1 from sqlite_master where name = ?", [table]):
            continue  # a file of an earlier version, opened for reading
        sql = (
            f"select {key} as name, {column} as missing from {table} where {column} is not null "
            f"and {column} not in (select {other_key} from {other})"
        )
        problems += [f"{table} row {r['name']}: {other} row {r['missing']} is missing" for r in corpus._rows(sql)]
    return problems


def minimize(corpus: CorpusReader) -> int:
    """Take every case out of the pool that is neither a seed nor the smallest of a feature; call in a transaction."""
    kept = {row["digest"] for row in corpus._rows("select digest from cases where in_pool and origin = 'seed'")}
    kept |= _smallest_per_feature(corpus)
    pool = [row["digest"] for row in corpus._rows("select digest from cases where in_pool")]
    removed = [digest for digest in pool if digest not in kept]
    conn = corpus.db.conn
    conn.executemany("update cases set in_pool = 0 where digest = ?", [(digest,) for digest in removed])
    conn.execute(
        "delete from cases where not in_pool and digest not in (select case_digest from finding_cases) "
        "and digest not in (select case_digest from findings) "
        "and digest not in (select first_case_digest from findings)"
    )
    conn.execute("delete from features where case_digest not in (select digest from cases where in_pool)")
    conn.execute(
        "delete from blobs where sha256 not in (select blob_sha256 from cases union "
        "select blob_sha256 from build_files union select coalesce(expected_sha256, '') from findings union "
        "select coalesce(actual_sha256, '') from findings union select blob_sha256 from cuts)"
    )
    conn.execute("delete from blob_chunks where sha256 not in (select sha256 from blobs)")
    return len(removed)


def _smallest_per_feature(corpus: CorpusReader) -> set[str]:
    """Return the digests of the smallest case of each feature, in the one order on cases."""
    found = corpus._rows(
        "select f.feature, c.digest, c.blob_sha256, c.elements from features f "
        "join cases c on c.digest = f.case_digest where c.in_pool"
    )
    by_feature: dict[str, list[rows.Row]] = defaultdict(list)
    for row in found:
        by_feature[row["feature"]].append(row)
    keys: dict[str, tuple[Any, ...]] = {}
    kept = set()
    for candidates in by_feature.values():
        least = min(row["elements"] for row in candidates)
        tied = [row for row in candidates if row["elements"] == least]
        for row in tied if len(tied) > 1 else ():  # the rest of the order needs the tensors
            if row["digest"] not in keys:
                keys[row["digest"]] = sort_key(rows.load_case(corpus.db, row["digest"], row["blob_sha256"]))
        kept.add(min(tied, key=lambda row: keys.get(row["digest"], ()))["digest"])
    return kept


def merge(corpus: CorpusReader, source: CorpusReader) -> Merged:
    """Store the pool of another corpus; a row that is damaged or too large is refused and told."""
    if source.path.resolve() == corpus.path.resolve():
        raise InvalidUsage(f"{source.path} is the corpus itself; give another one to merge into it")
    known = {row["digest"] for row in corpus._rows("select digest from cases where in_pool")}
    added, seen, problems = 0, 0, []
    for row in source._rows("select *, 0 as features from cases where in_pool order by rowid"):
        if row["digest"] in known:
            seen += 1
        try:
            kept = _kept(source, row)
        except (CorpusError, *DATABASE_ERRORS) as error:
            problems.append(str(error))
            continue
        rows.store_case(corpus.db, kept, f"merged:{row['campaign_id']}", str(row["build_digest"]), in_pool=True)
        added += row["digest"] not in known
    return Merged(added, seen, tuple(problems))


def _kept(source: CorpusReader, row: rows.Row) -> KeptCase:
    described = rows.case_row_of(row)
    if not isinstance(row["bytes"], int) or row["bytes"] > MERGE_BYTES:
        raise CorpusError(f"cases row {row['digest']} has {row['bytes']!r} bytes; at most {MERGE_BYTES:,} are merged")
    case = rows.load_case(source.db, row["digest"], row["blob_sha256"], max_bytes=MERGE_BYTES)
    features = frozenset(name[:500] for name in source.features_of(row["digest"]) if isinstance(name, str))
    if len(features) > MERGE_FEATURES:
        raise CorpusError(
            f"cases row {row['digest']} has {len(features)} features; at most {MERGE_FEATURES:,} are read"
        )
    # its place in the other stream means nothing in ours, and must not move where ours resumes
    lineage = dataclasses.replace(described.lineage, sequence=-1, lease=0)
    return KeptCase(
        case,
        lineage,
        features,
        kind=described.kind,
        error_ratio=described.error_ratio,
        realism=described.realism,
        contract_breaking=described.contract_breaking,
        label=described.label,
    )
