"""Corpus: the database of one target, opened, written and read.

The idea: every method that writes is one transaction, committed when it returns, so what was acknowledged survives
kill -9. One process writes (the campaign's parent holds a lock), any number read at the same time.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fuzzparity.case import Case, Lineage
from fuzzparity.contract import Build, TargetFacts
from fuzzparity.corpus import blobs, cuts, efforts, maintenance, rows, schema
from fuzzparity.corpus.lock import WriterLock
from fuzzparity.corpus.plain import dumps
from fuzzparity.corpus.reading import CorpusReader
from fuzzparity.corpus.records import KeptCase, Merged, Recheck, Snapshot
from fuzzparity.corpus.schema import Database, now, transaction
from fuzzparity.errors import CorpusError
from fuzzparity.execution import Environment, Execution
from fuzzparity.finding import Confirmation, Cut, Finding, Stage, Suspect
from fuzzparity.target import Ort
from fuzzparity.verdict import as_plain

_PROBE_FIGURES = tuple(f"{side}_p{p}_seconds" for side in ("torch", "ort") for p in (50, 90, 99))


class Corpus(CorpusReader):
    """Hold one open corpus. Not to be used across a fork: SQLite connections belong to one process."""

    def __init__(self, db: Database, path: Path, lock: WriterLock | None) -> None:
        """Wrap an open database; use `Corpus.open`."""
        super().__init__(db, path)
        self._lock = lock
        self._outputs: dict[str, tuple[str, ...]] = {}  # by campaign

    @classmethod
    def open(cls, path: Path, *, create: bool = False, read_only: bool = False, exclusive: bool = True) -> Self:
        """Open a corpus; CorpusError says what is wrong with the file, which is then left as it is.

        A writer takes the lock unless `exclusive` is false, which is for short writes beside a campaign (a note on a
        finding). A reader takes nothing and blocks nobody.
        """
        path = Path(path)
        if not read_only:
            schema.check_file(path, create=create)  # before the lock puts a file beside it
        lock = WriterLock(path) if exclusive and not read_only else None
        try:
            return cls(schema.connect(path, create=create, read_only=read_only), path, lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def close(self) -> None:
        """Close the database and give the lock back."""
        self.db.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin_campaign(
        self,
        facts: TargetFacts,
        command: str,
        rng_seed: int,
        *,
        ort: Ort | None = None,
        setup_seconds: float = 0.0,
        next_lease: int = 0,
        next_sequence: int = 0,
    ) -> str:
        """Store build (with its model files), environment and facts, and return the id of a new campaign."""
        campaign_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(4).hex()}"
        with transaction(self.db):
            self._store_build(facts.name, facts.build)
            self._store_environment(facts.environment)
            self.db["campaigns"].insert(
                {
                    **{"campaign_id": campaign_id, "target": facts.name, "build_digest": facts.build.digest},
                    **{"environment_digest": facts.environment.digest, "command": command},
                    **{"rng_seed": rng_seed, "started_at": now(), "ended_at": None},
                    **{"seconds": 0.0, "setup_seconds": setup_seconds, "executions": 0, "inputs": 0, "rejected": 0},
                    **{"next_lease": next_lease, "next_sequence": next_sequence, "exit_code": None, "interrupted": 0},
                    **{"facts": dumps(facts), "ort": dumps(ort or facts.ort), "state": "{}"},
                }
            )
        self._own_campaigns.append(campaign_id)
        return campaign_id

    def checkpoint(
        self,
        campaign_id: str,
        executions: int,
        inputs: int,
        rejected: int,
        next_lease: int,
        next_sequence: int,
        *,
        seconds: float | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Store how far a campaign has come; `state` is JSON data that a resume gets back."""
        self._update(
            "campaigns",
            "campaign_id",
            campaign_id,
            {
                **{"executions": executions, "inputs": inputs, "rejected": rejected},
                **{"next_lease": next_lease, "next_sequence": next_sequence},
                **({} if seconds is None else {"seconds": seconds}),
                **({} if state is None else {"state": dumps(dict(state))}),
            },
        )

    def add_efforts(self, campaign_id: str, counts: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        """Add what moves and families of parents, (kind, name), cost and brought: times used, times kept."""
        with transaction(self.db):
            efforts.add(self.db, campaign_id, counts)

    def end_campaign(
        self,
        campaign_id: str,
        *,
        seconds: float,
        executions: int,
        inputs: int,
        exit_code: int,
        interrupted: bool,
        rejected: int | None = None,
        setup_seconds: float | None = None,
    ) -> None:
        """Store how a campaign ended."""
        self._update(
            "campaigns",
            "campaign_id",
            campaign_id,
            {
                **{"seconds": seconds, "executions": executions, "inputs": inputs, "exit_code": exit_code},
                **{"interrupted": int(interrupted), "ended_at": now()},
                **({} if rejected is None else {"rejected": rejected}),
                **({} if setup_seconds is None else {"setup_seconds": setup_seconds}),
            },
        )

    def keep_cases(self, campaign_id: str, kept: Sequence[KeptCase]) -> None:
        """Store cases and put them into the pool, all or none; a case that is known gains the new features."""
        with transaction(self.db):
            build = self._build_of(campaign_id)
            for item in kept:
                rows.store_case(self.db, item, campaign_id, build, in_pool=True)

    def suspect(self, campaign_id: str, suspect: Suspect, at_seconds: float) -> tuple[str, bool]:
        """Store a suspected finding by its bucket and return its id and whether it is new to this corpus.

        Another hit of a known bucket counts; while it is unconfirmed the smallest case seen is the one kept.
        """
        key = suspect.bucket.key
        with transaction(self.db):
            known = self._rows(
                "select f.finding_id, f.stage, c.elements from findings f "
                "left join cases c on c.digest = f.case_digest where f.bucket = ?",
                [key],
            )
            if not known:
                finding_id = self._new_finding(campaign_id, suspect, at_seconds)
            else:
                finding_id = known[0]["finding_id"]
                self._hit(campaign_id, finding_id, 1, at_seconds)
                if known[0]["stage"] == Stage.SUSPECTED and suspect.case.elements < (known[0]["elements"] or 0):
                    self._replace_case(campaign_id, finding_id, suspect)
        return finding_id, not known

    def hit(self, finding_id: str, n: int = 1, campaign_id: str = "", at_seconds: float = 0.0) -> None:
        """Count further hits of a finding, in a campaign when it is named."""
        with transaction(self.db):
            self._hit(campaign_id, finding_id, n, at_seconds)

    def confirm(self, finding_id: str, confirmation: Confirmation, suspect: Suspect | None = None) -> None:
        """Store what a fresh session made of a suspect; one that did not come back is kept as lost.

        `suspect` is what was confirmed: a smaller case may have been seen meanwhile, and what is stored of both sides
        must belong to the case that is stored.
        """
        stage = Stage.CONFIRMED if confirmation.reproduced else Stage.LOST
        with transaction(self.db):
            columns: rows.Row = {
                **{"stage": stage.value, "reproduced": int(confirmation.reproduced)},
                **{"shown": confirmation.shown, "tries": confirmation.tries},
            }
            if confirmation.verdict is not None:
                columns |= rows.verdict_columns(confirmation.verdict)
            if confirmation.verdict is not None and confirmation.reproduced:
                columns |= self._executions(finding_id, confirmation.expected, confirmation.actual)
                if suspect is not None:
                    campaign_id = str(self._finding_row(finding_id)["first_campaign_id"])
                    columns["case_digest"] = self._store_suspect_case(campaign_id, suspect)
            self._update("findings", "finding_id", finding_id, columns)

    def minimized(
        self,
        finding: Finding,
        case: Case,
        expected: Execution | None,
        actual: Execution | None,
        suspect: Suspect | None = None,
    ) -> None:
        """Store a finding with its smallest case and what both sides did with it; `suspect` is what it came from."""
        if finding.case_digest != case.digest:
            raise CorpusError(f"finding {finding.finding_id} names case {finding.case_digest}, not {case.digest}")
        with transaction(self.db):
            row = self._finding_row(finding.finding_id)
            parent = suspect.case.digest if suspect is not None else str(row["case_digest"])
            kept = KeptCase(
                case,
                Lineage("minimize", () if parent == case.digest else (parent,)),
                kind=finding.verdict.kind.value,
                error_ratio=finding.verdict.comparison.error_ratio if finding.verdict.comparison else 0.0,
                realism=finding.realism.value,
            )
            # a case that was minimal from the start is known, and keeps its lineage
            rows.store_case(self.db, kept, row["first_campaign_id"], row["build_digest"], in_pool=False)
            self._add_finding_case(finding.finding_id, case.digest, "minimized")
            self._update(
                "findings", "finding_id", finding.finding_id, self._executions(finding.finding_id, expected, actual)
            )
            self.update_finding(finding)

    def update_finding(self, finding: Finding) -> None:
        """Store all that is known of a finding; hits never go back, and ignored and note are the user's alone."""
        columns = rows.finding_columns(finding)
        with transaction(self.db):
            row = self._finding_row(finding.finding_id)
            if not self._rows("select 1 from cases where digest = ?", [finding.case_digest]):
                raise CorpusError(f"finding {finding.finding_id} names case {finding.case_digest}, which is not stored")
            for name in ("finding_id", "bucket", "bucket_fields", "build_digest", "finite"):
                columns.pop(name)  # fixed at first sight
            columns["hits"] = max(finding.hits, row["hits"])
            columns["first_seen_seconds"] = row["first_seen_seconds"]
            self._update("findings", "finding_id", finding.finding_id, columns)

    def set_cut(self, finding_id: str, cut: Cut) -> None:
        """Store the part of the model that shows a finding."""
        with transaction(self.db):
            self._finding_row(finding_id)
            cuts.store(self.db, finding_id, cut, now())

    def set_path(self, finding_id: str, path: Path | str, *, standalone: str | None = None) -> None:
        """Store where the reproducer of a finding lies, and what its torch side is."""
        columns = {"path": str(path)} | ({} if standalone is None else {"standalone": standalone})
        self._update("findings", "finding_id", finding_id, columns)

    def set_duplicates(self, finding_ids: Sequence[str], leader_id: str) -> None:
        """Store that findings are one fault with another, under which they and all that had joined them are told."""
        with transaction(self.db):
            self._finding_row(leader_id)
            self._update("findings", "finding_id", leader_id, {"duplicate_of": ""})
            for finding_id in finding_ids:
                self._update("findings", "finding_id", finding_id, {"duplicate_of": leader_id})
                self.db.conn.execute(
                    "update findings set duplicate_of = ? where duplicate_of = ? and finding_id != ?",
                    (leader_id, finding_id, leader_id),
                )

    def set_ignored(self, finding_id: str, is_ignored: bool = True) -> None:
        """Store that the user does not want to hear of a finding."""
        self._update("findings", "finding_id", finding_id, {"ignored": int(is_ignored)})

    def set_note(self, finding_id: str, note: str) -> None:
        """Store the user's note on a finding."""
        self._update("findings", "finding_id", finding_id, {"note": note})

    def add_rechecks(self, found: Sequence[Recheck], campaign_id: str = "") -> None:
        """Store what became of findings of other builds on this one."""
        with transaction(self.db):
            for item in found:
                columns = as_plain(item) | {"campaign_id": campaign_id, "at": now()}
                columns |= {"build_digest": columns.pop("build"), "environment_digest": columns.pop("environment")}
                self.db["rechecks"].insert(columns)

    def snapshot(self, campaign_id: str, snapshot: Snapshot) -> None:
        """Store a campaign's counters at this moment."""
        columns = as_plain(snapshot) | {"campaign_id": campaign_id, "at": now(), "details": dumps(snapshot.details)}
        with transaction(self.db):
            self.db["snapshots"].insert(columns)

    def add_probe(self, campaign_id: str, entries: Sequence[Any], *, seconds: float = 0.0) -> None:
        """Store one probe: `entries` are records or mappings, one per probed case.

        Fields that name a column (case_digest, shapes, torch_p50_seconds, ..., ratio, rss_bytes) go there, others
        into `details`.
        """
        with transaction(self.db):
            found = self._rows("select * from campaigns where campaign_id = ?", [campaign_id])
            shared = {
                **{"campaign_id": campaign_id, "at": now(), "seconds": seconds},
                **{name: found[0][name] if found else None for name in ("build_digest", "environment_digest")},
            }
            for entry in entries:
                plain = as_plain(dict(entry) if isinstance(entry, Mapping) else entry)
                figures = {name: plain.pop(name, None) for name in (*_PROBE_FIGURES, "ratio", "rss_bytes")}
                digest, shapes = plain.pop("case_digest", ""), plain.pop("shapes", {})
                columns = {"case_digest": digest, "shapes": dumps(shapes), "details": dumps(plain)}
                self.db["probes"].insert({**shared, **figures, **columns})

    def verify(self) -> list[str]:
        """Return everything that is wrong with the file; empty when all is well."""
        return maintenance.verify(self)

    def minimize_corpus(self) -> int:
        """Keep only seeds and the smallest case of each feature in the pool; return how many cases left it."""
        with transaction(self.db):
            removed = maintenance.minimize(self)
        try:
            self.db.conn.execute("vacuum")
        except sqlite3.Error:
            pass  # a reader is at work: the space is used again later
        return removed

    def merge(self, other: Path) -> Merged:
        """Take the cases of another corpus, which may be a stranger's: read only, each verified and bounded."""
        with Corpus.open(other, read_only=True) as source, transaction(self.db):
            return maintenance.merge(self, source)

    def _new_finding(self, campaign_id: str, suspect: Suspect, at_seconds: float) -> str:
        finding_id = suspect.bucket.finding_id
        taken = {row["finding_id"] for row in self._rows("select finding_id from findings")}
        if finding_id in taken:  # two buckets, one hash of 32 bits
            finding_id = next(name for n in range(2, 1000) if (name := f"{finding_id}x{n}") not in taken)
        digest = self._store_suspect_case(campaign_id, suspect)
        verdict = suspect.verdict
        finding = Finding(finding_id, suspect.bucket, Stage.SUSPECTED, verdict, suspect.realism, digest, digest)
        moment = now()
        self.db["findings"].insert(
            {
                **rows.finding_columns(finding),
                **rows.store_execution(self.db, "expected", suspect.expected, self._output_names(campaign_id)),
                **rows.store_execution(self.db, "actual", suspect.actual, self._output_names(campaign_id)),
                **{"shown": 0, "tries": 0, "ignored": 0, "note": "", "first_campaign_id": campaign_id},
                **{"first_seen_at": moment, "last_seen_at": moment, "first_seen_seconds": at_seconds},
            }
        )
        self._add_finding_case(finding_id, digest, "first")
        self._see(campaign_id, finding_id, 1, at_seconds, is_new=True)
        return finding_id

    def _replace_case(self, campaign_id: str, finding_id: str, suspect: Suspect) -> None:
        digest = self._store_suspect_case(campaign_id, suspect)
        self._add_finding_case(finding_id, digest, "smaller")
        columns = {
            **{"case_digest": digest, "realism": suspect.realism.value},
            **rows.verdict_columns(suspect.verdict),
            **rows.store_execution(self.db, "expected", suspect.expected, self._output_names(campaign_id)),
            **rows.store_execution(self.db, "actual", suspect.actual, self._output_names(campaign_id)),
        }
        self._update("findings", "finding_id", finding_id, columns)

    def _store_suspect_case(self, campaign_id: str, suspect: Suspect) -> str:
        comparison = suspect.verdict.comparison
        kept = KeptCase(
            suspect.case,
            suspect.lineage,
            kind=suspect.verdict.kind.value,
            error_ratio=comparison.error_ratio if comparison else 0.0,
            realism=suspect.realism.value,
        )
        return rows.store_case(self.db, kept, campaign_id, suspect.bucket.build, in_pool=False)

    def _hit(self, campaign_id: str, finding_id: str, n: int, at_seconds: float) -> None:
        self._finding_row(finding_id)
        self.db.conn.execute(
            "update findings set hits = hits + ?, last_seen_at = ? where finding_id = ?", (n, now(), finding_id)
        )
        if campaign_id:
            self._see(campaign_id, finding_id, n, at_seconds, is_new=False)

    def _see(self, campaign_id: str, finding_id: str, n: int, at_seconds: float, *, is_new: bool) -> None:
        self.db.conn.execute(
            "insert into campaign_findings (campaign_id, finding_id, is_new, hits, first_seen_at, first_seen_seconds) "
            "values (?, ?, ?, ?, ?, ?) on conflict (campaign_id, finding_id) do update set hits = hits + excluded.hits",
            (campaign_id, finding_id, int(is_new), n, now(), at_seconds),
        )

    def _add_finding_case(self, finding_id: str, digest: str, role: str) -> None:
        self.db.conn.execute(
            "insert into finding_cases (finding_id, case_digest, role, added_at) values (?, ?, ?, ?) "
            "on conflict (finding_id, case_digest) do update set role = excluded.role",
            (finding_id, digest, role, now()),
        )

    def _executions(self, finding_id: str, expected: Execution | None, actual: Execution | None) -> rows.Row:
        names = self._output_names(self._finding_row(finding_id)["first_campaign_id"])
        return {
            **rows.store_execution(self.db, "expected", expected, names),
            **rows.store_execution(self.db, "actual", actual, names),
        }

    def _output_names(self, campaign_id: str) -> Sequence[str]:
        if campaign_id not in self._outputs:
            facts = self.facts(campaign_id)
            self._outputs[campaign_id] = facts.outputs if facts else ()
        return self._outputs[campaign_id]

    def _build_of(self, campaign_id: str) -> str:
        found = self._rows("select build_digest from campaigns where campaign_id = ?", [campaign_id])
        if not found:
            raise CorpusError(f"campaign {campaign_id!r} is not in {self.path}")
        return str(found[0]["build_digest"])

    def _store_build(self, target: str, build: Build) -> None:
        columns = as_plain(build)
        columns["build_digest"] = columns.pop("digest")
        folder = Path(columns.pop("folder"))
        columns |= {"target": target, "versions": dumps(build.versions), "notes": dumps(build.notes)}
        self.db["builds"].insert({**columns, "created_at": now()}, ignore=True)
        try:
            # model.onnx, and its external data beside it
            files = sorted(path for path in folder.glob("model.onnx*") if path.is_file()) if build.folder else []
            for path in files:
                blob = blobs.store(self.db, "model", path.read_bytes())
                row = {"build_digest": build.digest, "name": path.name, "blob_sha256": blob}
                self.db["build_files"].insert(row, ignore=True)
        except OSError as error:
            raise CorpusError(f"the build in {folder} cannot be read: {error.strerror or error}") from error

    def _store_environment(self, environment: Environment) -> None:
        columns = as_plain(environment)
        columns["environment_digest"] = columns.pop("digest")
        for name in ("packages", "ort_providers", "ort_config"):
            columns[name] = dumps(columns[name])
        self.db["environments"].insert({**columns, "line": environment.line}, ignore=True)

    def _update(self, table: str, key: str, value: str, columns: rows.Row) -> None:
        """Update one row that must be there."""
        with transaction(self.db):
            names = ", ".join(f"{name} = :{name}" for name in columns)
            sql = f"update {table} set {names} where {key} = :row_key"
            if self.db.conn.execute(sql, {**columns, "row_key": value}).rowcount != 1:
                raise CorpusError(f"{table} has no row {value!r} in {self.path}")
