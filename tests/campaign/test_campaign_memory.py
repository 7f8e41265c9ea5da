"""Memory: a worker that has run for long holds no more than one that has just warmed up."""

from pathlib import Path

import pytest
from campaigns import CLEAN, GIVEN, corpus_of, fuzz, rows, write_target

_MOST_GROWTH_BYTES = 64 << 20  # arenas of both engines reach their high-water mark late, with a rare large shape


@pytest.mark.slow
def test_resident_memory_stays_flat_over_twenty_thousand_executions(tmp_path: Path):
    write_target(tmp_path, GIVEN, CLEAN)
    ended = fuzz(tmp_path, "--cases", "20000", "--workers", "1")
    assert ended.code == 0, ended.stdout
    assert ended.answer["executions"] == 20000
    sql = "select executions, rss_bytes from snapshots where rss_bytes > 0 order by executions"
    seen = [(executions, int(resident)) for executions, resident in rows(corpus_of(tmp_path), sql)]
    warm = [resident for executions, resident in seen if executions >= 2000]
    assert len(warm) >= 2, seen
    assert max(warm) - warm[0] < _MOST_GROWTH_BYTES, seen
