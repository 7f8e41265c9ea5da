"""Reading: everything that can be asked of a corpus without changing it.

`CorpusReader` is the half of `Corpus` that commands and reports use; `database` adds the half that writes.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzzparity.case import Case, Lineage
from fuzzparity.contract import TargetFacts
from fuzzparity.corpus import blobs, cuts, efforts, rows
from fuzzparity.corpus.plain import from_plain, loads
from fuzzparity.corpus.records import (
    BuildRow,
    CampaignRow,
    CaseRow,
    DimCoverage,
    Effort,
    Payload,
    ProbeEntry,
    Recheck,
    ResumeState,
    Snapshot,
    Statistics,
)
from fuzzparity.corpus.schema import DATABASE_ERRORS, Database
from fuzzparity.errors import CorpusError, InvalidUsage
from fuzzparity.execution import Environment
from fuzzparity.finding import Finding
from fuzzparity.target import Ort

_ORDERS = {
    "added": "c.rowid",
    "newest": "c.rowid desc",
    "elements": "c.elements, c.digest",
    "error_ratio": "c.error_ratio desc, c.digest",
    "sequence": "c.campaign_id, c.sequence, c.digest",
}


class CorpusReader:
    """Answer questions about one corpus; every answer is a record."""

    def __init__(self, db: Database, path: Path) -> None:
        """Wrap an open database; use `Corpus.open`."""
        self.db = db
        self.path = path
        self._own_campaigns: list[str] = []  # begun on this very object: not "earlier" when it asks

    @property
    def size(self) -> int:
        """Return the number of cases in the pool."""
        return int(self._value("select count(*) from cases where in_pool"))

    def campaigns(self) -> list[CampaignRow]:
        """Return all campaigns, first to last."""
        found = self._rows(
            "select c.*, (select count(*) from campaign_findings f where f.campaign_id = c.campaign_id) as findings, "
            "(select count(*) from campaign_findings f where f.campaign_id = c.campaign_id and f.is_new) "
            "as new_findings from campaigns c order by c.started_at, c.rowid"
        )
        return [_campaign(row) for row in found]

    def builds(self) -> list[BuildRow]:
        """Return all builds, first to last."""
        found = self._rows(
            "select b.*, exists (select 1 from build_files f where f.build_digest = b.build_digest "
            "and f.name = 'model.onnx') as has_model from builds b order by b.created_at, b.rowid"
        )
        return [
            BuildRow(
                digest=row["build_digest"],
                target=row["target"],
                origin=row["origin"],
                opset=row["opset_obtained"],
                nodes=row["nodes"],
                onnx_bytes=row["onnx_bytes"],
                computing_dtype=row["computing_dtype"],
                created_at=row["created_at"],
                has_model=bool(row["has_model"]),
            )
            for row in found
        ]

    def facts(self, campaign_id: str | None = None) -> TargetFacts | None:
        """Return what a campaign (by default the last one) knew of its target."""
        where, given = ("where campaign_id = ?", [campaign_id]) if campaign_id else ("", [])
        found = self._rows(f"select facts from campaigns {where} order by started_at desc, rowid desc limit 1", given)
        return from_plain(TargetFacts, loads(found[0]["facts"])) if found else None

    def resume_state(self, build_digest: str | None = None, rng_seed: int | None = None) -> ResumeState:
        """Return where earlier campaigns stopped: on one build (or any), with one rng_seed (or any).

        A campaign begun on this object is not an earlier one. One that died between two checkpoints has stored cases
        beyond its last one: they count.
        """
        clauses, given = ["1"], []
        for column, value in (("build_digest", build_digest), ("rng_seed", rng_seed)):
            if value is not None:
                clauses.append(f"{column} = ?")
                given.append(value)
        campaigns = self._rows(
            f"select * from campaigns where {' and '.join(clauses)} order by started_at, rowid", given
        )
        campaigns = [row for row in campaigns if row["campaign_id"] not in self._own_campaigns]
        ids = [row["campaign_id"] for row in campaigns]
        marks = ",".join("?" * len(ids))
        lease, sequence = self._rows(
            "select coalesce(max(lease) + 1, 0) as lease, coalesce(max(sequence) + 1, 0) as sequence from cases "
            f"where sequence >= 0 and campaign_id in ({marks})",
            ids,
        )[0].values()
        of_build, build = ("where build_digest = ?", [build_digest]) if build_digest else ("", [])
        known = self._rows(f"select finding_id, bucket, stage from findings {of_build}", build)
        return ResumeState(
            campaigns=len(campaigns),
            last_campaign_id=ids[-1] if ids else "",
            next_lease=max([lease, *(row["next_lease"] for row in campaigns)]),
            next_sequence=max([sequence, *(row["next_sequence"] for row in campaigns)]),
            executions=sum(row["executions"] for row in campaigns),
            inputs=sum(row["inputs"] for row in campaigns),
            rejected=sum(row["rejected"] for row in campaigns),
            seconds=sum(row["seconds"] for row in campaigns),
            corpus_size=self.size,
            buckets={row["bucket"]: row["finding_id"] for row in known},
            seeds=tuple(row["digest"] for row in self._rows("select digest from cases where origin = 'seed'")),
            unfinished=tuple(row["finding_id"] for row in known if row["stage"] == "suspected"),
            state=loads(campaigns[-1]["state"]) if campaigns else {},
        )

    def cases(
        self, limit: int | None = None, order: str = "added", *, origin: str = "", in_pool: bool | None = None
    ) -> list[CaseRow]:
        """Return stored cases without their tensors; `order`: added, newest, elements, error_ratio or sequence."""
        if order not in _ORDERS:
            raise InvalidUsage(f"cases cannot be ordered by {order!r}; use one of {', '.join(_ORDERS)}")
        clauses, given = ["1"], list[Any]()
        if origin:
            clauses.append("c.origin = ?")
            given.append(origin)
        if in_pool is not None:
            clauses.append("c.in_pool = ?")
            given.append(int(in_pool))
        found = self._rows(
            "select c.*, (select count(*) from features f where f.case_digest = c.digest) as features from cases c "
            f"where {' and '.join(clauses)} order by {_ORDERS[order]} limit ?",
            [*given, -1 if limit is None else limit],
        )
        return [rows.case_row_of(row) for row in found]

    def case_row(self, prefix: str) -> CaseRow:
        """Return the description of the case whose digest starts with `prefix`."""
        found = self._rows(
            "select c.*, (select count(*) from features f where f.case_digest = c.digest) as features from cases c "
            "where substr(c.digest, 1, ?) = ? order by c.digest limit 10",
            [len(prefix), prefix],
        )
        if len(found) != 1 or not prefix:
            several = f"; it begins {', '.join(row['digest'][:16] for row in found)}" if prefix and found else ""
            raise InvalidUsage(
                f"{prefix!r} names {'several cases' if several else 'no case'} of {self.path}{several}; "
                "`fuzzparity corpus ls` shows the digests"
            )
        return rows.case_row_of(found[0])

    def case(self, prefix: str) -> Case:
        """Return the case whose digest starts with `prefix`, verified; CorpusError names the row that is damaged."""
        return self._case(prefix if len(prefix) == 64 else self.case_row(prefix).digest)

    def features_of(self, digest: str) -> frozenset[str]:
        """Return the features of a case."""
        found = self._rows("select feature from features where case_digest = ?", [digest])
        return frozenset(row["feature"] for row in found)

    def pool(self, limit: int | None = None) -> list[tuple[Case, frozenset[str]]]:
        """Return the pool with its features in the order it grew, to go on from: all seeds, then the newest cases."""
        found = self._rows(
            "select rowid, digest, blob_sha256 from cases where in_pool order by origin != 'seed', rowid desc limit ?",
            [-1 if limit is None else limit],
        )
        found.sort(key=lambda row: row["rowid"])
        return [
            (rows.load_case(self.db, row["digest"], row["blob_sha256"]), self.features_of(row["digest"]))
            for row in found
        ]

    def findings(
        self, *, campaign_id: str = "", kind: str = "", grade: str = "", include_ignored: bool = True
    ) -> list[Finding]:
        """Return findings, first seen first."""
        clauses, given = ["1"], []
        for column, value in (("kind", kind), ("grade", grade)):
            if value:
                clauses.append(f"{column} = ?")
                given.append(value)
        if campaign_id:
            clauses.append("finding_id in (select finding_id from campaign_findings where campaign_id = ?)")
            given.append(campaign_id)
        if not include_ignored:
            clauses.append("not ignored")
        found = self._rows(f"select * from findings where {' and '.join(clauses)} order by first_seen_at, rowid", given)
        return [rows.finding_of(row) for row in found]

    def campaign_findings(self, campaign_id: str) -> list[tuple[Finding, bool]]:
        """Return the findings seen in one campaign, with hits and seconds of that campaign, and whether each is new."""
        found = self._rows(
            "select f.*, c.hits as campaign_hits, c.first_seen_seconds as campaign_seconds, c.is_new "
            "from campaign_findings c join findings f on f.finding_id = c.finding_id where c.campaign_id = ? "
            "order by c.first_seen_seconds, c.rowid",
            [campaign_id],
        )
        return [
            (
                rows.finding_of(
                    {**row, "hits": row["campaign_hits"], "first_seen_seconds": row["campaign_seconds"]},
                ),
                bool(row["is_new"]),
            )
            for row in found
        ]

    def finding(self, prefix: str) -> Finding:
        """Return the finding whose id, or the hex part of it, starts with `prefix`."""
        found = self.finding_ids(prefix)
        if len(found) != 1:
            several = f": {', '.join(found[:10])}" if found else ""
            raise InvalidUsage(
                f"{prefix!r} names {'several findings' if found else 'no finding'} of {self.path}{several}; "
                "`fuzzparity finding ls` shows the ids"
            )
        return rows.finding_of(self._finding_row(found[0]))

    def finding_ids(self, prefix: str) -> list[str]:
        """Return the ids that start with `prefix`, or whose hex part does; an exact match stands alone."""
        every = [row["finding_id"] for row in self._rows("select finding_id from findings order by finding_id")]
        if prefix in every:
            return [prefix]
        return [name for name in every if prefix and prefix in (name[: len(prefix)], _hex_part(name)[: len(prefix)])]

    def finding_payload(self, finding_id: str) -> Payload:
        """Return everything of one finding: its case, both executions, the model, facts, environment, lineage."""
        row = self._finding_row(finding_id)
        finding = rows.finding_of(row)
        with rows.reading(f"findings row {finding_id}"):
            case_row = self._rows("select * from cases where digest = ?", [finding.case_digest])
            lineage = rows.lineage_of(case_row[0]) if case_row else Lineage()
            files = {
                item["name"]: blobs.load(self.db, item["blob_sha256"])
                for item in self._rows("select * from build_files where build_digest = ?", [finding.bucket.build])
            }
            campaign = self._rows(
                "select c.facts, c.ort, e.* from campaigns c left join environments e "
                "on e.environment_digest = c.environment_digest where c.campaign_id = ?",
                [row["first_campaign_id"]],
            )
            return Payload(
                finding=finding,
                case=self._case(finding.case_digest),
                lineage=lineage,
                expected=rows.load_execution(self.db, "expected", row),
                actual=rows.load_execution(self.db, "actual", row),
                model=files.pop("model.onnx", None),
                model_files=files,
                facts=from_plain(TargetFacts, loads(campaign[0]["facts"])) if campaign else None,
                environment=_environment(campaign[0]) if campaign else None,
                ort=from_plain(Ort, loads(campaign[0]["ort"])) if campaign else Ort(),
                rechecks=tuple(self.rechecks(finding_id)),
                cut=cuts.load(self.db, finding_id),
            )

    def rechecks(self, finding_id: str | None = None) -> list[Recheck]:
        """Return what became of findings (of one, or all) on later builds, oldest first."""
        if not self._rows("select 1 from sqlite_master where name = 'rechecks'"):
            return []  # a file of an earlier version, opened for reading
        where, given = ("where finding_id = ?", [finding_id]) if finding_id else ("", [])
        found = self._rows(f"select * from rechecks {where} order by recheck_id", given)
        with rows.reading("the table rechecks"):
            return [
                from_plain(Recheck, {**row, "build": row["build_digest"], "environment": row["environment_digest"]})
                for row in found
            ]

    def findings_of_other_builds(self, build_digest: str) -> list[tuple[Finding, TargetFacts | None]]:
        """Return findings of every other build, the last seen first, each with what was known of its target."""
        found = self._rows(
            "select * from findings where build_digest != ? order by last_seen_at desc, rowid desc", [build_digest]
        )
        facts = {name: self.facts(name) for name in {row["first_campaign_id"] for row in found} if name}
        return [(rows.finding_of(row), facts.get(row["first_campaign_id"])) for row in found]

    def coverage(self) -> list[DimCoverage]:
        """Return the sizes that stored cases hold, by input, rank and dim."""
        sizes: dict[tuple[str, int, int], set[int]] = defaultdict(set)
        with rows.reading("the shapes of cases"):
            for row in self._rows("select distinct shapes from cases order by rowid"):
                for name, shape in from_plain(dict[str, tuple[int, ...]], loads(row["shapes"])).items():
                    for dim, size in enumerate(shape):
                        sizes[name, len(shape), dim].add(size)
        return [
            DimCoverage(name, dim, rank, min(found), max(found), len(found))
            for (name, rank, dim), found in sizes.items()
        ]

    def last_environment(self) -> Environment | None:
        """Return where the last campaign ran."""
        found = self._rows(
            "select e.* from campaigns c join environments e on e.environment_digest = c.environment_digest "
            "order by c.started_at desc, c.rowid desc limit 1"
        )
        return _environment(found[0]) if found else None

    def snapshots(self, campaign_id: str | None = None, limit: int | None = None) -> list[Snapshot]:
        """Return the newest snapshots (of one campaign, or all), oldest first."""
        where, given = ("where campaign_id = ?", [campaign_id]) if campaign_id else ("", [])
        found = self._rows(
            f"select * from snapshots {where} order by snapshot_id desc limit ?",
            [*given, -1 if limit is None else limit],
        )
        return [from_plain(Snapshot, {**row, "details": loads(row["details"])}) for row in reversed(found)]

    def probes(self, limit: int | None = None) -> list[ProbeEntry]:
        """Return the newest probe entries, oldest first."""
        found = self._rows("select * from probes order by probe_id desc limit ?", [-1 if limit is None else limit])
        return [
            from_plain(
                ProbeEntry,
                {
                    **row,
                    "build": row["build_digest"],
                    "environment": row["environment_digest"],
                    "shapes": loads(row["shapes"]),
                    "details": loads(row["details"]),
                },
            )
            for row in reversed(found)
        ]

    def efforts(self, campaign_id: str) -> tuple[Effort, ...]:
        """Return what moves and families of parents cost and brought in a campaign, what brought most first."""
        return efforts.load(self.db, campaign_id)

    def statistics(self) -> Statistics:
        """Return the counts of everything."""
        counts = self._rows(
            "select (select count(*) from builds) as builds, (select count(*) from campaigns) as campaigns, "
            "(select count(*) from cases) as cases, (select count(*) from cases where in_pool) as pool, "
            "(select count(*) from cases where origin = 'seed') as seeds, "
            "(select count(distinct feature) from features) as features, "
            "(select count(*) from findings) as findings, "
            "(select coalesce(sum(executions), 0) from campaigns) as executions, "
            "(select coalesce(sum(inputs), 0) from campaigns) as inputs, "
            "(select coalesce(sum(seconds), 0.0) from campaigns) as seconds, "
            "(select coalesce(sum(bytes), 0) from blobs) as blob_bytes, "
            "(select coalesce(sum(stored_bytes), 0) from blobs) as stored_bytes"
        )[0]
        return Statistics(
            path=str(self.path),
            file_bytes=self.path.stat().st_size,
            targets=tuple(row["target"] for row in self._rows("select distinct target from campaigns order by target")),
            by_kind={r["kind"]: r["n"] for r in self._rows("select kind, count(*) as n from findings group by kind")},
            by_grade={
                r["grade"]: r["n"] for r in self._rows("select grade, count(*) as n from findings group by grade")
            },
            **counts,
        )

    def copy_to(self, path: Path) -> None:
        """Write the corpus as it is now to a new file, beside a campaign that goes on."""
        if path.exists():
            raise InvalidUsage(f"{path} is there already; give a new file")
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            target = sqlite3.connect(temporary)
            try:
                self.db.conn.backup(target)
                target.execute("pragma journal_mode = delete")  # one file, without -wal beside it
            finally:
                target.close()
            temporary.replace(path)
        except (OSError, sqlite3.Error) as error:
            raise CorpusError(f"{path} cannot be written: {error}; give another file") from error
        finally:
            temporary.unlink(missing_ok=True)

    def _case(self, digest: str) -> Case:
        found = self._rows("select blob_sha256, label from cases where digest = ?", [digest])
        if not found:
            raise CorpusError(f"cases row {digest} is missing; `fuzzparity corpus verify` lists what is damaged")
        return rows.load_case(self.db, digest, found[0]["blob_sha256"], label=found[0]["label"])

    def _finding_row(self, finding_id: str) -> rows.Row:
        found = self._rows("select * from findings where finding_id = ?", [finding_id])
        if not found:
            raise CorpusError(f"finding {finding_id!r} is not in {self.path}")
        return found[0]

    def _rows(self, sql: str, given: Sequence[Any] = ()) -> list[rows.Row]:
        """Return all rows of a query; a damaged or foreign file is a CorpusError."""
        try:
            return list(self.db.query(sql, list(given)))
        except DATABASE_ERRORS as error:
            raise CorpusError(f"{self.path} cannot be read: {error}; try `fuzzparity corpus verify`") from error

    def _value(self, sql: str, given: Sequence[Any] = ()) -> Any:
        return next(iter(self._rows(sql, given)[0].values()))


def _hex_part(finding_id: str) -> str:
    return finding_id.rsplit("-", 1)[-1]


def _campaign(row: rows.Row) -> CampaignRow:
    with rows.reading(f"campaigns row {row['campaign_id']}"):
        plain = {
            **row,
            "build": row["build_digest"],
            "environment": row["environment_digest"],
            "ended_at": row["ended_at"] or "",
            "interrupted": bool(row["interrupted"]),
            "rng_seed": int(row["rng_seed"]),
        }
        return from_plain(CampaignRow, plain)


def _environment(row: rows.Row) -> Environment | None:
    if row["environment_digest"] is None:
        return None
    parsed = {name: loads(row[name]) for name in ("packages", "ort_providers", "ort_config")}
    return from_plain(Environment, {**row, **parsed, "digest": row["environment_digest"]})
