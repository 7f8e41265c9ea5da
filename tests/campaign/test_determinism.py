"""Determinism: with a count, one worker and no death, the stream of cases depends on the seed of chance alone."""

from pathlib import Path

import pytest
from campaigns import CLEAN, FAULTY, GIVEN, corpus_of, fuzz, rows, write_target

pytestmark = pytest.mark.slow


def stream(folder: Path, *arguments: object) -> list[tuple[int, str]]:
    """Return the kept and suspicious cases of a campaign by their place in its stream."""
    ended = fuzz(folder, "--cases", "2000", "--workers", "1", "--fresh", *arguments)
    assert ended.answer["executions"] == 2000
    sql = "select sequence, digest from cases where sequence >= 0 order by sequence, digest"
    return [(int(sequence), str(digest)) for sequence, digest in rows(corpus_of(folder), sql)]


@pytest.mark.parametrize("text", [CLEAN, FAULTY], ids=["clean", "faulty"])
def test_the_same_seed_gives_the_same_cases_in_the_same_order(tmp_path: Path, text: str):
    write_target(tmp_path, GIVEN, text)
    first = stream(tmp_path, "--rng-seed", "7")
    assert len(first) > 20
    assert first == stream(tmp_path, "--rng-seed", "7")
    if text == CLEAN:
        assert first != stream(tmp_path, "--rng-seed", "8")
