import dataclasses
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import Became, KeptCase, Recheck, Snapshot
from fuzzparity.errors import CorpusError, FuzzparityError, InvalidUsage
from fuzzparity.execution import Status
from fuzzparity.finding import Confirmation, Stage
from fuzzparity.target import Ort
from fuzzparity.verdict import Kind


def kept(value, *, elements=4, features=(), origin="mutation", sequence=-1, lease=0, label=None):
    case = Case({"x": np.full((elements,), value, np.float32)})
    return KeptCase(case, Lineage(origin, sequence=sequence, lease=lease), frozenset(features), label=label)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "corpora" / "corpus.sqlite"


@pytest.fixture
def corpus(path):
    with Corpus.open(path, create=True) as opened:
        yield opened


def test_a_finding_comes_back_whole_from_the_database_alone(corpus, facts, make_suspect, path):
    ort = Ort(optimization_level="basic", disabled_optimizers=["ConvBNFusion"])
    campaign = corpus.begin_campaign(facts, "fuzz corpora/digits", 7, ort=ort)
    suspect = make_suspect()
    finding_id, is_new = corpus.suspect(campaign, suspect, 1.5)
    assert is_new
    shutil.rmtree(facts.build.folder)

    with Corpus.open(path, read_only=True) as reader:
        payload = reader.finding_payload(finding_id)
    assert payload.case == suspect.case
    assert payload.lineage == suspect.lineage
    assert payload.model == b"onnx bytes " * 1000
    assert payload.model_files == {"model.onnx.data": bytes(range(256)) * 40}
    assert payload.facts == facts
    assert payload.environment == facts.environment
    assert payload.ort.disabled_optimizers == ("ConvBNFusion",)
    assert payload.expected.seconds == 0.5
    np.testing.assert_array_equal(payload.expected.outputs[0], suspect.expected.outputs[0])
    finding = payload.finding
    assert (finding.bucket, finding.stage, finding.first_seen_seconds) == (suspect.bucket, Stage.SUSPECTED, 1.5)
    assert finding.verdict.evidence == suspect.verdict.evidence
    assert np.isnan(float(finding.verdict.comparison.actual_at))


def test_a_suspect_seen_again_is_a_hit_and_the_smallest_case_is_kept(corpus, facts, make_suspect):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    first = corpus.suspect(campaign, make_suspect(elements=6), 1.0)
    assert corpus.suspect(campaign, make_suspect(elements=9), 2.0) == (first[0], False)
    assert corpus.finding(first[0]).case_digest == make_suspect(elements=6).case.digest
    smaller = make_suspect(value=2.0, elements=3)
    corpus.suspect(campaign, smaller, 3.0)
    corpus.hit(first[0], 5, campaign_id=campaign)
    finding = corpus.finding(first[0])
    assert (finding.case_digest, finding.hits) == (smaller.case.digest, 8)
    assert finding.first_case_digest == make_suspect(elements=6).case.digest
    assert [(f.hits, f.first_seen_seconds, new) for f, new in corpus.campaign_findings(campaign)] == [(8, 1.0, True)]
    assert corpus.verify() == []


def test_a_smaller_case_seen_while_another_is_confirmed_does_not_take_its_answers(corpus, facts, make_suspect):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    suspect, smaller = make_suspect(2.0, elements=6), make_suspect(3.0, elements=2)
    finding_id, _ = corpus.suspect(campaign, suspect, 1.0)
    corpus.suspect(campaign, smaller, 2.0)
    corpus.confirm(finding_id, Confirmation(2, 2, None, suspect.verdict, suspect.expected, suspect.actual), suspect)
    payload = corpus.finding_payload(finding_id)
    assert payload.case == suspect.case
    assert payload.expected.outputs[0][0, 0] == 2.0
    assert corpus.verify() == []


def test_a_finding_lives_from_suspected_to_minimized(corpus, facts, make_suspect):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    suspect = make_suspect()
    finding_id, _ = corpus.suspect(campaign, suspect, 1.0)
    assert corpus.resume_state(facts.build.digest).unfinished == (finding_id,)
    corpus.confirm(finding_id, Confirmation(3, 3, None, suspect.verdict, suspect.expected, suspect.actual))
    assert corpus.finding(finding_id).stage is Stage.CONFIRMED
    small = Case({"x": np.zeros((1,), np.float32)})
    known = corpus.finding(finding_id)
    minimal = dataclasses.replace(
        known, stage=Stage.MINIMIZED, case_digest=small.digest, minimized_elements=1, minimized_shapes=small.shapes
    )
    corpus.minimized(minimal, small, suspect.expected, suspect.actual, suspect)
    corpus.set_path(finding_id, "crashes/it")
    corpus.set_ignored(finding_id)
    corpus.set_note(finding_id, "known [red]")
    finding = corpus.finding(finding_id[:9])
    assert (finding.stage, finding.minimized_elements) == (Stage.MINIMIZED, 1)
    assert finding.minimized_shapes == {"x": (1,)}
    assert (finding.reproduced, finding.path, finding.ignored, finding.note) == (
        True,
        "crashes/it",
        True,
        "known [red]",
    )
    assert corpus.finding_payload(finding_id).case == small
    assert corpus.findings(include_ignored=False) == []
    assert corpus.verify() == []


def test_a_finding_that_does_not_come_back_is_kept_as_lost(corpus, facts, make_suspect):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    finding_id, _ = corpus.suspect(campaign, make_suspect(kind=Kind.CRASH, site="SIGSEGV"), 1.0)
    corpus.confirm(finding_id, Confirmation(0, 3))
    finding = corpus.finding(finding_id)
    assert (finding.stage, finding.reproduced, finding.verdict.site) == (Stage.LOST, False, "SIGSEGV")


def test_updating_a_finding_never_takes_back_hits_or_what_the_user_said(corpus, facts, make_suspect):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    finding_id, _ = corpus.suspect(campaign, make_suspect(), 1.0)
    stale = corpus.finding(finding_id)
    corpus.hit(finding_id, 4)
    corpus.set_note(finding_id, "mine")
    corpus.update_finding(stale)
    finding = corpus.finding(finding_id)
    assert (finding.hits, finding.note) == (5, "mine")


def test_outputs_that_are_no_tensors_do_not_lose_the_finding(corpus, facts, make_suspect):
    suspect = make_suspect()
    texts = dataclasses.replace(suspect.actual, outputs=(np.array(["a"], object),))
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    finding_id, _ = corpus.suspect(campaign, dataclasses.replace(suspect, actual=texts), 1.0)
    payload = corpus.finding_payload(finding_id)
    assert (payload.actual.outputs, payload.actual.status) == ((), Status.OK)


def test_two_buckets_with_one_short_id_are_two_findings(corpus, facts, make_suspect):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    first, _ = corpus.suspect(campaign, make_suspect(site="a"), 1.0)
    other = make_suspect(site="b")
    with corpus.db.conn:
        corpus.db.conn.execute("update findings set finding_id = ?", [other.bucket.finding_id])
    second, is_new = corpus.suspect(campaign, other, 2.0)
    assert is_new
    assert second != other.bucket.finding_id != first


def test_a_campaign_resumes_beyond_its_last_checkpoint(corpus, facts, path):
    campaign = corpus.begin_campaign(facts, "fuzz", 7)
    corpus.checkpoint(campaign, 100, 300, 4, 5, 90, seconds=2.5, state={"families": [1, 2]})
    corpus.keep_cases(campaign, [kept(1, origin="seed", label=3), kept(2, sequence=120, lease=6)])
    assert corpus.resume_state().campaigns == 0  # its own campaign is no earlier one
    corpus.close()
    with Corpus.open(path) as again:
        second = again.begin_campaign(facts, "fuzz", 7)
        state = again.resume_state(facts.build.digest, 7)
        assert (state.campaigns, state.next_lease, state.next_sequence, state.executions) == (1, 7, 121, 100)
        assert (state.corpus_size, state.state, len(state.seeds)) == (2, {"families": [1, 2]}, 1)
        assert again.resume_state(facts.build.digest, 8).next_lease == 0
        assert again.resume_state("another build").campaigns == 0
        again.end_campaign(campaign, seconds=3, executions=120, inputs=400, exit_code=1, interrupted=True)
        row = again.campaigns()[0]
        assert (row.executions, row.rejected, row.exit_code, row.interrupted) == (120, 4, 1, True)
        assert again.campaigns()[1].campaign_id == second


def test_a_case_becomes_a_seed_by_import_and_is_none_for_being_explained(corpus, facts):
    campaign = corpus.begin_campaign(facts, "explain", 0)
    corpus.keep_cases(campaign, [kept(1, origin="given"), kept(2, origin="seed")])
    assert list(corpus.cases(origin="import")) == []
    corpus.keep_cases(campaign, [kept(1, origin="import"), kept(2, origin="import")])
    assert {row.digest: row.lineage.origin for row in corpus.cases()} == {
        kept(1).case.digest: "import",
        kept(2).case.digest: "seed",
    }


def test_the_pool_comes_back_in_order_with_features(corpus, facts):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    rows = [kept(n, features={f"f{n}", "all"}, origin="seed" if n == 0 else "mutation") for n in range(5)]
    corpus.keep_cases(campaign, rows)
    corpus.keep_cases(campaign, [kept(3, features={"late"})])
    pool = corpus.pool()
    assert [case for case, _ in pool] == [row.case for row in rows]
    assert pool[3][1] == {"f3", "all", "late"}
    assert [case for case, _ in corpus.pool(3)] == [rows[0].case, rows[3].case, rows[4].case]
    assert corpus.case(rows[2].case.digest[:10]) == rows[2].case
    assert [row.elements for row in corpus.cases(2, "elements")] == [4, 4]


def test_every_dtype_goes_through_the_database(corpus, facts):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    arrays = {
        "b": np.arange(3).astype(ml_dtypes.bfloat16),
        "i4": np.array([-8, 7]).astype(ml_dtypes.int4),
        "scalar": np.array(2, np.int64),
        "empty": np.zeros((0, 5), np.float16),
        "a": np.array([True, False]),
    }
    case = Case(arrays)
    corpus.keep_cases(campaign, [KeptCase(case, Lineage())])
    assert corpus.case(case.digest).digest == case.digest
    assert list(corpus.case(case.digest).inputs) == list(arrays)


def test_large_blobs_are_compressed_or_chunked(corpus, facts):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    noise = Case({"x": np.random.default_rng(0).random(700_000)})
    zeros = Case({"x": np.zeros(2_000_000)})
    corpus.keep_cases(campaign, [KeptCase(noise, Lineage()), KeptCase(zeros, Lineage())])
    chunks = corpus._value("select max(chunks) from blobs where kind = 'case'")
    stored = corpus._value("select min(stored_bytes) from blobs where kind = 'case'")
    assert (chunks, stored < 10_000) == (6, True)
    assert corpus.case(noise.digest) == noise
    assert corpus.case(zeros.digest) == zeros


@pytest.mark.parametrize("damage", ["update blob_chunks set data = zeroblob(length(data))", "delete from blob_chunks"])
def test_a_damaged_blob_is_an_error_that_names_the_row(corpus, facts, damage):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    row = kept(1)
    corpus.keep_cases(campaign, [row])
    with corpus.db.conn:
        corpus.db.conn.execute(damage)
    with pytest.raises(CorpusError, match=f"cases row {row.case.digest}.*blobs row"):
        corpus.case(row.case.digest)
    assert any(row.case.digest in problem for problem in corpus.verify())


def test_a_zstd_bomb_is_not_unpacked(corpus, facts):
    import zstandard

    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    row = kept(1)
    corpus.keep_cases(campaign, [row])
    bomb = zstandard.ZstdCompressor().compress(bytes(300 << 20))
    with corpus.db.conn:
        corpus.db.conn.execute("update blob_chunks set data = ?", [bomb])
        corpus.db.conn.execute("update blobs set stored_bytes = ?, compression = 'zstd'", [len(bomb)])
    with pytest.raises(CorpusError, match="unpacked"):
        corpus.case(row.case.digest)


def test_minimizing_keeps_seeds_and_the_smallest_case_of_each_feature(corpus, facts, make_suspect):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    seed = kept(0, elements=9, origin="seed")
    large, small, zero = (
        kept(1, elements=8, features={"a", "b"}),
        kept(1.5, elements=2, features={"a"}),
        kept(0, elements=2, features={"a"}),
    )
    corpus.keep_cases(campaign, [seed, large, small, zero])
    finding_id, _ = corpus.suspect(campaign, make_suspect(), 0.0)
    assert corpus.minimize_corpus() == 1
    assert {case for case, _ in corpus.pool()} == {seed.case, large.case, zero.case}
    assert corpus.minimize_corpus() == 0
    assert corpus.finding_payload(finding_id).case == make_suspect().case
    assert corpus.verify() == []


def test_merging_takes_sound_cases_and_tells_of_the_others(corpus, facts, tmp_path):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    corpus.keep_cases(campaign, [kept(1, features={"mine"})])
    with Corpus.open(tmp_path / "other.sqlite", create=True) as other:
        theirs = other.begin_campaign(facts, "fuzz", 0)
        other.keep_cases(theirs, [kept(1, features={"theirs"}), kept(2, sequence=9000), kept(3)])
        broken = kept(3).case.digest
        with other.db.conn:
            other.db.conn.execute(
                "update blob_chunks set data = zeroblob(length(data)) where sha256 = "
                "(select blob_sha256 from cases where digest = ?)",
                [broken],
            )
    merged = corpus.merge(tmp_path / "other.sqlite")
    assert (merged.added, merged.known, len(merged.problems)) == (1, 1, 1)
    assert broken in merged.problems[0]
    assert corpus.features_of(kept(1).case.digest) == {"mine", "theirs"}
    assert corpus.resume_state().next_sequence == 0
    assert corpus.verify() == []


def test_a_second_writer_is_refused_and_a_reader_is_not(corpus, facts, path, make_suspect):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    finding_id, _ = corpus.suspect(campaign, make_suspect(), 0.0)
    with pytest.raises(CorpusError, match=rf"written to by process {os.getpid()}"):
        Corpus.open(path)
    code = f"from pathlib import Path\nfrom fuzzparity.corpus.database import Corpus\nCorpus.open(Path({str(path)!r}))"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "is being written to by process" in second.stderr
    with Corpus.open(path, read_only=True) as reader, pytest.raises(CorpusError, match="cannot be written"):
        reader.set_note(finding_id, "no")
    with Corpus.open(path, exclusive=False) as beside:
        beside.set_note(finding_id, "yes")
    assert corpus.finding(finding_id).note == "yes"


def test_a_reader_neither_blocks_nor_sees_half_of_a_transaction(corpus, facts, path):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    with Corpus.open(path, read_only=True) as reader:
        seen = reader.db.conn.execute("select digest from cases")
        corpus.keep_cases(campaign, [kept(n) for n in range(50)])
        assert seen.fetchall() == []
        assert reader.size == 50


def test_a_failed_step_stores_nothing(corpus, facts):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    texts = KeptCase(Case({"x": np.array(["no tensor"])}), Lineage())
    with pytest.raises(Exception, match="dtype"):
        corpus.keep_cases(campaign, [kept(1), texts])
    assert corpus.size == 0
    with pytest.raises(CorpusError, match="campaigns has no row"):
        corpus.checkpoint("nobody", 1, 1, 1, 1, 1)


def test_what_is_no_corpus_is_refused_and_left_as_it_is(tmp_path):
    text = tmp_path / "notes.sqlite"
    text.write_text("my notes")
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("create table recipes (name)")
    connection.close()
    before = {file: file.read_bytes() for file in (text, foreign)}
    for file, said in ((text, "no SQLite database"), (foreign, "something else.*recipes"), (tmp_path, "is a folder")):
        for how in ({"create": True}, {"read_only": True}):
            with pytest.raises(CorpusError, match=said):
                Corpus.open(file, **how)
    assert before == {file: file.read_bytes() for file in before}
    with pytest.raises(CorpusError, match="does not exist"):
        Corpus.open(tmp_path / "nothing.sqlite")
    with pytest.raises(CorpusError, match="cannot be"):
        Corpus.open(text / "corpus.sqlite", create=True)
    with pytest.raises(CorpusError, match="cannot be"):
        Corpus.open(tmp_path.joinpath("/proc/nowhere/corpus.sqlite"), create=True)


def test_truncated_newer_and_disguised_files_are_refused(corpus, path, tmp_path):
    corpus.db.conn.execute("pragma wal_checkpoint(truncate)")
    newer, disguised, truncated = (tmp_path / name for name in ("newer.sqlite", "disguised.sqlite", "truncated.sqlite"))
    shutil.copy(path, newer)
    with sqlite3.connect(newer) as connection:
        connection.execute("insert into migrations values ('9999_future', '')")
    connection.close()
    shutil.copy(path, disguised)
    with sqlite3.connect(disguised) as connection:
        connection.execute("drop table probes")
        connection.execute("create view probes as select 1 as probe_id")
    connection.close()
    truncated.write_bytes(path.read_bytes()[:5000])
    for file, said in ((newer, "newer fuzzparity"), (disguised, "not trusted"), (truncated, "damaged")):
        for how in ({}, {"read_only": True}):
            with pytest.raises(CorpusError, match=said):
                Corpus.open(file, **how)


def test_a_file_with_random_damage_is_read_right_or_refused(corpus, facts, make_suspect, path, tmp_path):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    corpus.keep_cases(campaign, [kept(1, features={"f"})])
    corpus.suspect(campaign, make_suspect(), 0.5)
    corpus.copy_to(tmp_path / "copy.sqlite")
    sound = (tmp_path / "copy.sqlite").read_bytes()
    chance = random.Random(0)
    for number in range(60):
        damaged = bytearray(sound)
        for _ in range(chance.choice((1, 5, 200))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        file = tmp_path / f"{number}.sqlite"
        file.write_bytes(damaged)
        try:
            with Corpus.open(file, read_only=True) as reader:
                reader.verify()
                for ask in (reader.findings, reader.campaigns, reader.statistics, reader.resume_state, reader.pool):
                    ask()
                reader.finding_payload(make_suspect().bucket.finding_id)
        except FuzzparityError:
            pass


def test_devices_and_pipes_are_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for file in (tmp_path / "fifo", Path("/dev/null")):
        with pytest.raises(CorpusError, match="device or pipe"):
            Corpus.open(file, create=True)


def test_an_empty_file_left_by_a_killed_start_becomes_a_corpus(tmp_path):
    (tmp_path / "corpus.sqlite").touch()
    with pytest.raises(CorpusError, match="empty"):
        Corpus.open(tmp_path / "corpus.sqlite", read_only=True)
    with Corpus.open(tmp_path / "corpus.sqlite", create=True) as corpus:
        assert corpus.verify() == []


def test_probes_and_snapshots_come_back(corpus, facts):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    corpus.snapshot(campaign, Snapshot(1.0, 10, 20, 3, 0, rss_bytes=1000, details={"bug": 1}))
    entry = {"case_digest": "c", "shapes": {"x": (1, 2)}, "ratio": 2.0, "rounds": 9}
    corpus.add_probe(campaign, [entry], seconds=1.5)
    assert corpus.snapshots(campaign)[0].details == {"bug": 1}
    probe = corpus.probes()[0]
    assert (probe.ratio, probe.shapes, probe.details) == (2.0, {"x": (1, 2)}, {"rounds": 9})
    assert corpus.statistics().campaigns == 1


def test_the_views_open_in_plain_sqlite(corpus, facts, make_suspect, path):
    campaign = corpus.begin_campaign(facts, "fuzz", 0)
    corpus.suspect(campaign, make_suspect(), 0.5)
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        found = {
            view: connection.execute(f"select * from {view}").fetchall() for view in ("findings_view", "cases_view")
        }
        assert found["findings_view"][0]["headline"] == "logits differ"
        assert json.loads(found["cases_view"][0]["shapes"]) == {"x": [6]}
        assert connection.execute("select new_findings from campaigns_view").fetchone()[0] == 1
    finally:
        connection.close()


def test_names_that_are_not_there_are_wrong_usage(corpus):
    for ask in (corpus.finding, corpus.case):
        for name in ("", "nothing", "%"):
            with pytest.raises(InvalidUsage, match="names no"):
                ask(name)


def test_reading_imports_neither_torch_nor_ort():
    code = "import sys, fuzzparity.corpus.database; print({'torch', 'onnxruntime', 'sqlite_utils'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_database_of_the_first_step_is_read_as_it_is_and_brought_up_by_a_writer(corpus, facts, make_suspect, path):
    finding_id, _ = corpus.suspect(corpus.begin_campaign(facts, "fuzz", 0), make_suspect(), 1.0)
    corpus.close()
    with sqlite3.connect(path) as connection:  # as the first step left it
        connection.execute("drop table rechecks")
        connection.execute("delete from migrations where name != '0001_first_tables'")
    connection.close()
    with Corpus.open(path, read_only=True) as reader:
        assert reader.finding(finding_id).finding_id == finding_id
        assert reader.finding_payload(finding_id).rechecks == ()
    other = Recheck(finding_id, "c" * 64, "e" * 64, Became.GONE, "the sides agree")
    with Corpus.open(path) as writer:
        writer.add_rechecks([other], "campaign")
        assert writer.rechecks("another") == []
    with Corpus.open(path, read_only=True) as reader:
        (found,) = reader.finding_payload(finding_id).rechecks
        assert (found.state, found.said, found.build, found.campaign_id) == (
            Became.GONE,
            other.said,
            "c" * 64,
            "campaign",
        )
        assert [f.finding_id for f, _ in reader.findings_of_other_builds("c" * 64)] == [finding_id]
        assert reader.findings_of_other_builds(facts.build.digest) == []
