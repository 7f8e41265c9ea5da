"""Schema of the corpus database: its tables, views and named migrations, and how a file is opened safely.

The idea: a migration is a named step, applied in one transaction together with its record, so a file is always at one
of the known steps. Plain tables with readable columns: sqlite-utils and Datasette open the file as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fuzzparity.corpus import efforts
from fuzzparity.errors import CorpusError

APPLICATION_ID = 0x46505459  # "FPTY", in the header of the file (https://sqlite.org/pragma.html#pragma_application_id)
BUSY_SECONDS = 20.0
# what reading a damaged file raises: the message of SQLite may quote the damage and then is no UTF-8
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)

Database = Any  # sqlite_utils.Database: imported when a database is opened, since it takes 0.06 s

_TABLES: dict[str, tuple[str, dict[str, type]]] = {  # name -> primary key (comma separated), columns
    "meta": ("key", {"key": str, "value": str}),
    "environments": (
        "environment_digest",
        {
            **{"environment_digest": str, "line": str, "python": str, "platform": str, "cpu": str, "packages": str},
            **{"torch_device": str, "torch_precision": str, "torch_threads": int},
            **{"ort_providers": str, "ort_level": str, "ort_threads": int, "ort_config": str},
        },
    ),
    "builds": (
        "build_digest",
        {
            **{"build_digest": str, "target": str, "origin": str, "state_digest": str, "onnx_digest": str},
            **{"onnx_bytes": int, "nodes": int, "opset_requested": int, "opset_obtained": int},
            **{"computing_dtype": str, "versions": str, "notes": str, "created_at": str},
        },
    ),
    "build_files": ("build_digest,name", {"build_digest": str, "name": str, "blob_sha256": str}),
    "campaigns": (
        "campaign_id",
        {
            **{"campaign_id": str, "target": str, "build_digest": str, "environment_digest": str, "command": str},
            **{"rng_seed": int, "started_at": str, "ended_at": str, "seconds": float, "setup_seconds": float},
            **{"executions": int, "inputs": int, "rejected": int, "next_lease": int, "next_sequence": int},
            **{"exit_code": int, "interrupted": int, "facts": str, "ort": str, "state": str},
        },
    ),
    "cases": (
        "digest",
        {
            **{"digest": str, "campaign_id": str, "build_digest": str, "origin": str, "sequence": int, "lease": int},
            **{"rng_seed": int, "parents": str, "mutators": str, "elements": int, "bytes": int, "shapes": str},
            **{"dtypes": str, "is_finite": int, "kind": str, "error_ratio": float, "realism": str},
            **{"contract_breaking": int, "in_pool": int, "label": str, "added_at": str, "blob_sha256": str},
        },
    ),
    "features": ("feature,case_digest", {"feature": str, "case_digest": str}),
    "blobs": (
        "sha256",
        {"sha256": str, "kind": str, "bytes": int, "stored_bytes": int, "compression": str, "chunks": int},
    ),
    "blob_chunks": ("sha256,position", {"sha256": str, "position": int, "data": bytes}),
    "findings": (
        "finding_id",
        {
            **{
                "finding_id": str,
                "bucket": str,
                "bucket_fields": str,
                "build_digest": str,
                "kind": str,
                "side": str,
                "output": str,
            },
            **{"site": str, "grade": str, "finite": int, "stage": str, "realism": str, "blame": str},
            **{"headline": str, "error_ratio": float, "verdict": str, "place": str},
            **{"case_digest": str, "first_case_digest": str, "minimized_elements": int, "minimized_shapes": str},
            **{"model_nodes": int, "model_bytes": int, "reproduced": int, "shown": int, "tries": int, "hits": int},
            **{"first_campaign_id": str, "first_seen_at": str, "first_seen_seconds": float, "last_seen_at": str},
            **{"expected": str, "expected_sha256": str, "actual": str, "actual_sha256": str},
            **{"standalone": str, "path": str, "duplicate_of": str, "ignored": int, "note": str},
        },
    ),
    "finding_cases": (
        "finding_id,case_digest",
        {"finding_id": str, "case_digest": str, "role": str, "added_at": str},
    ),
    "campaign_findings": (
        "campaign_id,finding_id",
        {
            **{"campaign_id": str, "finding_id": str, "is_new": int, "hits": int},
            **{"first_seen_at": str, "first_seen_seconds": float},
        },
    ),
    "snapshots": (
        "snapshot_id",
        {
            **{"snapshot_id": int, "campaign_id": str, "at": str, "seconds": float, "executions": int, "inputs": int},
            **{"rejected": int, "corpus_size": int, "findings": int, "rss_bytes": int, "workers": int, "details": str},
        },
    ),
    "probes": (
        "probe_id",
        {
            **{"probe_id": int, "campaign_id": str, "build_digest": str, "environment_digest": str, "at": str},
            **{"seconds": float, "case_digest": str, "shapes": str},
            **{f"{side}_p{p}_seconds": float for side in ("torch", "ort") for p in (50, 90, 99)},
            **{"ratio": float, "rss_bytes": int, "details": str},
        },
    ),
}
_INDEXES = {
    "cases": (["build_digest", "sequence"], ["origin"], ["in_pool", "elements"]),
    "features": (["case_digest"],),
    "finding_cases": (["case_digest"],),
    "campaigns": (["build_digest"],),
    "campaign_findings": (["finding_id"],),
    "snapshots": (["campaign_id", "seconds"],),
    "probes": (["campaign_id"],),
}
_VIEWS = {
    "findings_view": """
        select f.finding_id, f.kind, f.grade, f.realism, f.blame, f.stage, f.headline, f.output, f.error_ratio,
               f.hits, f.reproduced, f.minimized_elements, f.minimized_shapes, f.first_seen_at, f.first_seen_seconds,
               json_extract(f.place, '$.op') as op, json_extract(f.place, '$.source') as source,
               f.path, f.duplicate_of, f.ignored, f.note, c.shapes, c.dtypes, c.mutators, b.target, b.opset_obtained
        from findings f left join cases c on c.digest = f.case_digest
                        left join builds b on b.build_digest = f.build_digest
        order by f.first_seen_at""",
    "cases_view": """
        select c.digest, c.origin, c.kind, c.error_ratio, c.realism, c.elements, c.shapes, c.dtypes, c.in_pool,
               (select count(*) from features x where x.case_digest = c.digest) as features,
               c.mutators, json_array_length(c.parents) as parents, c.sequence, c.campaign_id, c.added_at,
               b.stored_bytes
        from cases c left join blobs b on b.sha256 = c.blob_sha256""",
    "campaigns_view": """
        select c.campaign_id, c.target, c.started_at, c.ended_at, c.seconds, c.executions, c.inputs,
               round(c.executions / nullif(c.seconds, 0), 1) as executions_per_second,
               (select count(*) from campaign_findings f where f.campaign_id = c.campaign_id) as findings,
               (select count(*) from campaign_findings f where f.campaign_id = c.campaign_id and f.is_new)
                   as new_findings,
               c.exit_code, c.interrupted, e.line as environment, c.command
        from campaigns c left join environments e on e.environment_digest = c.environment_digest""",
}


def _first_tables(db: Database) -> None:
    """Create every table of the first release."""
    for name, (key, columns) in _TABLES.items():
        parts = key.split(",")
        db[name].create(columns, pk=parts[0] if len(parts) == 1 else tuple(parts))
    for name, indexes in _INDEXES.items():
        for index in indexes:
            db[name].create_index(index)
    db["findings"].create_index(["bucket"], unique=True)
    for name, sql in _VIEWS.items():
        db.create_view(name, sql)
    db["meta"].insert({"key": "format", "value": "fuzzparity corpus"})


_RECHECKS = {  # findings of one build whose case ran on another: what became of them there
    **{"recheck_id": int, "finding_id": str, "build_digest": str, "environment_digest": str, "campaign_id": str},
    **{"at": str, "state": str, "said": str, "finding_there": str},
}


def _rechecks_table(db: Database) -> None:
    """Remember on which later builds a finding still shows, and on which it is gone."""
    db["rechecks"].create(_RECHECKS, pk="recheck_id")
    db["rechecks"].create_index(["finding_id"])


_CUTS = {"finding_id": str, "details": str, "blob_sha256": str, "added_at": str}


def _cuts_table(db: Database) -> None:
    """Keep the part of the model that shows a finding, with the values that stand at the cut."""
    db["cuts"].create(_CUTS, pk="finding_id", if_not_exists=True)


def _efforts_table(db: Database) -> None:
    """Keep what each move and each family of parents cost and brought."""
    db["efforts"].create(efforts.COLUMNS, pk=efforts.KEY, if_not_exists=True)


MIGRATIONS: tuple[tuple[str, Callable[[Database], None]], ...] = (
    ("0001_first_tables", _first_tables),
    ("0002_rechecks", _rechecks_table),
    ("0003_cuts", _cuts_table),
    ("0004_efforts", _efforts_table),
)
# a reader does without later steps, which add tables and change none; whoever reads such a table asks if it is there
_NEEDED_TO_READ = "0001_first_tables"


def now() -> str:
    """Return the wall-clock time as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def connect(path: Path, *, create: bool, read_only: bool) -> Database:
    """Open a corpus file and bring it to the newest step; CorpusError when it is missing, foreign, newer or damaged.

    A reader never writes: it opens with mode=ro and leaves migrations to the next writer.
    """
    import sqlite_utils

    check_file(path, create=create, read_only=read_only)
    try:
        connection = _read_only_connection(path) if read_only else sqlite3.connect(path, timeout=BUSY_SECONDS)
        try:
            # plugins of sqlite-utils would run code of other packages in our database
            db = sqlite_utils.Database(connection, recursive_triggers=False, execute_plugins=False)
            _prepare(db, path, read_only=read_only)
        except BaseException:
            connection.close()
            raise
    except DATABASE_ERRORS as error:
        raise _unusable(path, error) from error
    return db


@contextmanager
def transaction(db: Database) -> Iterator[None]:
    """Commit everything in the block, or nothing; CorpusError when SQLite cannot (disk full, read-only, damaged)."""
    try:
        if db.conn.in_transaction:  # a part of a larger transaction, which commits
            yield
            return
        # IMMEDIATE: a deferred one that reads first cannot wait for another writer, it fails at once
        db.conn.execute("begin immediate")
        try:
            yield
        except BaseException:
            if db.conn.in_transaction:
                db.conn.execute("rollback")
            raise
        db.conn.execute("commit")
    except DATABASE_ERRORS as error:
        if db.conn.in_transaction:  # a commit that failed
            db.conn.execute("rollback")
        raise CorpusError(f"the corpus cannot be written: {error}; nothing of this step was stored") from error


def check_file(path: Path, *, create: bool, read_only: bool = False) -> None:
    """Refuse what can be seen to be wrong before SQLite touches the file."""
    try:
        if path.is_dir():
            raise CorpusError(f"{path} is a folder; a database file was wanted, such as {path / 'corpus.sqlite'}")
        if not path.exists():
            if read_only or not create:
                raise CorpusError(f"{path} does not exist; a corpus is made by `fuzzparity fuzz` or `import`")
            path.parent.mkdir(parents=True, exist_ok=True)
            return
        if not path.is_file():
            raise CorpusError(f"{path} is a device or pipe; a database file was wanted, such as corpus.sqlite")
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise CorpusError(f"{path} cannot be opened: {error.strerror}; choose another --corpus") from error
    if head and head != b"SQLite format 3\0":
        raise CorpusError(f"{path} is no SQLite database; it was left as it is. Give the path of a corpus.sqlite")
    if not head and not create:
        raise CorpusError(f"{path} is empty; a corpus.sqlite was wanted")


def _read_only_connection(path: Path) -> sqlite3.Connection:
    """Open for reading only. SQLite needs the -shm file of a WAL database, and makes it if the folder lets it."""
    name = str(path.absolute())
    for special in "%?#":  # of a URI file name: https://sqlite.org/uri.html
        name = name.replace(special, f"%{ord(special):02x}")
    uri = f"file:{name}"
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=BUSY_SECONDS)
    try:
        connection.execute("select 1 from sqlite_master limit 1").fetchone()
        return connection
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        # a database at rest in a folder we may not write to: nobody else can be writing
        return sqlite3.connect(f"{uri}?immutable=1", uri=True)


def _prepare(db: Database, path: Path, *, read_only: bool) -> None:
    """Check whose file it is, then set it up; nothing is written before the check is done."""
    db.conn.execute("pragma trusted_schema = off")  # a stranger's views and triggers call no function with effects
    kinds = dict(db.conn.execute("select name, type from sqlite_master where type in ('table', 'view', 'trigger')"))
    application_id = db.conn.execute("pragma application_id").fetchone()[0]
    is_new = not kinds
    if not is_new and application_id != APPLICATION_ID:
        raise CorpusError(
            f"{path} is a database of something else (its tables: {', '.join(sorted(kinds))[:200]}); "
            "it was left as it is. Give the path of a corpus.sqlite"
        )
    if is_new and read_only:
        raise CorpusError(f"{path} holds no corpus yet; a corpus is made by `fuzzparity fuzz` or `import`")
    if not is_new:
        _check_tables(path, kinds)
    if read_only:
        db.conn.execute("pragma query_only = on")
    else:
        db.conn.execute("pragma journal_mode = wal")
        db.conn.execute("pragma synchronous = normal")  # in WAL mode safe against death of the process
    _migrate(db, path, is_new=is_new, read_only=read_only)


def _check_tables(path: Path, kinds: dict[str, str]) -> None:
    disguised = sorted(
        name for name in (*_TABLES, "rechecks", "cuts", "efforts") if name in kinds and kinds[name] != "table"
    )
    triggers = sorted(name for name, kind in kinds.items() if kind == "trigger")
    if disguised or triggers:
        raise CorpusError(
            f"{path} is not trusted: {', '.join(disguised + triggers)[:200]} is a view or trigger where a corpus has "
            "plain tables"
        )


def _migrate(db: Database, path: Path, *, is_new: bool, read_only: bool) -> None:
    """Apply the steps that are missing, each in its own transaction with its record."""
    done = [] if is_new else [name for (name,) in db.conn.execute("select name from migrations order by name")]
    unknown = sorted(set(done) - {name for name, _ in MIGRATIONS})
    if unknown:
        raise CorpusError(f"{path} was written by a newer fuzzparity (step {unknown[0]}); upgrade fuzzparity to use it")
    pending = [(name, step) for name, step in MIGRATIONS if name not in done]
    if read_only:
        if _NEEDED_TO_READ not in done:
            raise CorpusError(f"{path} was begun and never set up; run `fuzzparity fuzz` on it once to bring it up")
        return
    for name, step in pending:
        with transaction(db):
            if is_new and name == MIGRATIONS[0][0]:
                if db.conn.execute("select 1 from sqlite_master where name = 'migrations'").fetchone():
                    continue  # another process made the file between our look and our lock
                db.conn.execute(f"pragma application_id = {APPLICATION_ID}")
                db["migrations"].create({"name": str, "applied_at": str}, pk="name")
            step(db)
            db["migrations"].insert({"name": name, "applied_at": now()})


def _unusable(path: Path, error: Exception) -> CorpusError:
    text = str(error)
    if "locked" in text or "busy" in text:
        return CorpusError(f"{path} is locked by another program ({text}); close it and try again")
    if "readonly" in text or "unable to open" in text:
        return CorpusError(f"{path} cannot be opened for this ({text}); its folder must be writable, or give --corpus")
    return CorpusError(f"{path} is damaged or no database ({text}); restore a copy, or give another --corpus")
