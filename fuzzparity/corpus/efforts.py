"""Efforts: what each move and each family of parents cost and brought in a campaign, in the database.

The idea: one row for each of them, added to as leases end, so that anyone can ask which moves pay on a target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzzparity.corpus.records import Effort

COLUMNS = {"campaign_id": str, "kind": str, "name": str, "tried": int, "kept": int}
KEY = ("campaign_id", "kind", "name")
_MOST_ROWS = 512  # of a stranger's file; there are some seventy moves and a dozen families


def add(db: Any, campaign_id: str, efforts: Mapping[tuple[str, str], tuple[int, int]]) -> None:
    """Add to what is stored; call inside a transaction. `efforts`: (kind, name) -> times used, times kept."""
    db.conn.executemany(
        "insert into efforts (campaign_id, kind, name, tried, kept) values (?, ?, ?, ?, ?) "
        "on conflict (campaign_id, kind, name) do update "
        "set tried = tried + excluded.tried, kept = kept + excluded.kept",
        [(campaign_id, kind, name, tried, kept) for (kind, name), (tried, kept) in efforts.items()],
    )


def load(db: Any, campaign_id: str) -> tuple[Effort, ...]:
    """Return the efforts of a campaign, what brought most first; () in a file of an earlier version."""
    if not db.execute("select 1 from sqlite_master where name = 'efforts'").fetchone():
        return ()
    found = db.execute(
        "select kind, name, tried, kept from efforts where campaign_id = ? order by kind, kept desc, tried, name",
        (campaign_id,),
    )
    return tuple(Effort(str(kind), str(name), int(tried), int(kept)) for kind, name, tried, kept in found)


def load_all(db: Any) -> tuple[Effort, ...]:
    """Return the efforts of all campaigns added up, what brought most first; () in a file of an earlier version."""
    if not db.execute("select 1 from sqlite_master where name = 'efforts'").fetchone():
        return ()
    found = db.execute(
        "select kind, name, min(total(tried), 9e15) as used, min(total(kept), 9e15) as brought from efforts "
        "group by kind, name "
        "order by kind, brought desc, used, name limit ?",
        (_MOST_ROWS,),
    )
    return tuple(Effort(str(kind), str(name), int(tried), int(kept)) for kind, name, tried, kept in found)
