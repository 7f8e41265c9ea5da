"""Cuts: the part of the model that shows a finding, in the database, so that its reproducer can be written again.

The idea: model, inputs and answers are one blob in safetensors form, since none is of use without the others.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from fuzzparity.case import Array
from fuzzparity.corpus import blobs
from fuzzparity.corpus.codec import decode, encode
from fuzzparity.corpus.plain import dumps, from_plain, loads
from fuzzparity.corpus.rows import reading
from fuzzparity.finding import Cut

_MODEL, _FEED, _ANSWER, _OWN = "model", "feed.", "expected.", "torch."
_IN_BLOB = ("model", "feeds", "expected", "torch_own")


def store(db: Any, finding_id: str, cut: Cut, added_at: str) -> None:
    """Store the cut of a finding in place of an earlier one; call inside a transaction."""
    arrays = {_MODEL: np.frombuffer(cut.model, np.uint8)}
    arrays |= {_FEED + name: array for name, array in cut.feeds.items()}
    arrays |= {_ANSWER + name: array for name, array in cut.expected.items()}
    arrays |= {_OWN + name: array for name, array in cut.torch_own.items()}
    blob = blobs.store(db, "cut", encode(arrays))
    details = dumps({item.name: getattr(cut, item.name) for item in fields(cut) if item.name not in _IN_BLOB})
    db["cuts"].upsert(
        {"finding_id": finding_id, "details": details, "blob_sha256": blob, "added_at": added_at}, pk="finding_id"
    )


def load(db: Any, finding_id: str, max_bytes: int | None = None) -> Cut | None:
    """Return the cut of a finding; None where there is none, as in a file of an earlier version, or it is larger."""
    if not db.execute("select 1 from sqlite_master where name = 'cuts'").fetchone():
        return None
    row = db.execute("select details, blob_sha256 from cuts where finding_id = ?", (finding_id,)).fetchone()
    if row is None or (max_bytes is not None and _bytes(db, row[1]) > max_bytes):
        return None
    with reading(f"cuts row {finding_id}"):
        arrays = decode(blobs.load(db, row[1]))
        plain = {**loads(row[0]), "model": b"", "feeds": {}, "expected": {}, "torch_own": {}}
        return replace(
            from_plain(Cut, plain),
            model=arrays[_MODEL].tobytes(),
            feeds=_under(_FEED, arrays),
            expected=_under(_ANSWER, arrays),
            torch_own=_under(_OWN, arrays),
        )


def _under(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _bytes(db: Any, digest: str) -> int:
    found = db.execute("select bytes from blobs where sha256 = ?", (digest,)).fetchone()
    return found[0] if found is not None and isinstance(found[0], int) else 0
