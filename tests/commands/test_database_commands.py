import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fuzzparity.case import Case, Lineage
from fuzzparity.commands import database
from fuzzparity.contract import Build, Contract, TargetFacts
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import KeptCase
from fuzzparity.errors import CorpusError, InvalidUsage
from fuzzparity.execution import Environment
from fuzzparity.finding import Suspect, bucket_of
from fuzzparity.verdict import Grade, Kind, Realism, Verdict


def fill(path, name, spec, site=""):
    build = Build("b" * 64, "", "given", "s", "o", 1, 1, None, 20, "float32", {})
    environment = Environment("e" * 64, "3.11", "Linux", "cpu", {}, "cpu", "float32", 1, (), "all", 1)
    facts = TargetFacts(name, spec, "", ("y",), Contract(()), build, environment, True)
    with Corpus.open(path, create=True) as corpus:
        campaign = corpus.begin_campaign(facts, f"fuzz {spec}", 0)
        case = Case({"x": np.zeros(3, np.float32)})
        corpus.keep_cases(campaign, [KeptCase(case, Lineage("seed"), frozenset({"f"}))])
        verdict = Verdict(Kind.NUMERIC, Grade.BUG, "y", site=site, headline="y differs")
        suspect = Suspect(bucket_of(build.digest, case, verdict), case, Lineage(), verdict, Realism.NEAR)
        return corpus.suspect(campaign, suspect, 0.5)[0]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpora" / "digits").mkdir(parents=True)
    (tmp_path / "corpora" / "digits" / "target.py").write_text("raise SystemExit('never imported')")
    return tmp_path


def test_a_corpus_is_found_by_name_folder_file_and_spec(here):
    fill(Path("corpora/digits/corpus.sqlite"), "digits", "corpora/digits")
    fill(Path(".fuzzparity/voice/corpus.sqlite"), "voice", "models/speech.py:make")
    (here / "models").mkdir()
    (here / "models" / "speech.py").touch()
    digits, voice = Path("corpora/digits/corpus.sqlite"), Path(".fuzzparity/voice/corpus.sqlite")
    for what in ("digits", "corpora/digits", "corpora/digits/", "corpora/digits/target.py", str(digits)):
        assert database.find_corpus(what).resolve() == digits.resolve()
    for what in ("voice", "models/speech.py:make", str(voice), ".fuzzparity/voice"):
        assert database.find_corpus(what).resolve() == voice.resolve()
    with pytest.raises(InvalidUsage, match=r"no corpus of 'nobody' \(looked for corpora/nobody/corpus.sqlite"):
        database.find_corpus("nobody")


def test_a_finding_is_found_in_any_corpus_and_ambiguity_is_told(here):
    first = fill(Path("corpora/digits/corpus.sqlite"), "digits", "corpora/digits", "a")
    second = fill(Path(".fuzzparity/voice/corpus.sqlite"), "voice", "voice.py", "b")
    assert database.find_finding(second)[0] == Path(".fuzzparity/voice/corpus.sqlite")
    assert database.find_finding(first[len("numeric-") :])[1].finding_id == first
    with pytest.raises(InvalidUsage, match=rf"several findings: .*{first} \(corpora/digits/corpus.sqlite\)"):
        database.find_finding("numeric")
    assert database.find_finding("numeric", "voice")[1].finding_id == second
    Path(".fuzzparity/broken").mkdir()
    Path(".fuzzparity/broken/corpus.sqlite").write_text("junk")
    assert database.find_finding(first)[1].finding_id == first
    with pytest.raises(InvalidUsage, match=r"not read: .*broken"):
        database.find_finding("nothing")


def test_the_user_says_things_beside_a_running_campaign(here):
    path = Path("corpora/digits/corpus.sqlite")
    finding_id = fill(path, "digits", "corpora/digits")
    with Corpus.open(path):
        assert database.note_finding(finding_id, "known").note == "known"
        assert database.ignore_finding(finding_id).ignored
        assert not database.ignore_finding(finding_id, is_ignored=False).ignored
        assert database.status("digits")[0].writer == os.getpid()
        database.corpus_snapshot("digits", here / "copy.sqlite")
        with pytest.raises(CorpusError, match="is being written to"):
            database.corpus_min("digits")
    assert database.status("digits")[0].writer is None
    assert database.corpus_verify(str(here / "copy.sqlite")) == []
    with pytest.raises(InvalidUsage, match="is there already"):
        database.corpus_snapshot("digits", here / "copy.sqlite")


def test_the_writer_is_seen_from_another_process(here):
    fill(Path("corpora/digits/corpus.sqlite"), "digits", "corpora/digits")
    code = "from fuzzparity.commands.database import status; print(status('digits')[0].writer)"
    with Corpus.open(Path("corpora/digits/corpus.sqlite")):
        seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(seen) == os.getpid()


def test_a_corpus_is_shown_verified_minimized_and_merged(here):
    fill(Path("corpora/digits/corpus.sqlite"), "digits", "corpora/digits")
    fill(here / "other.sqlite", "digits", "elsewhere")
    view = database.corpus_show("digits")
    assert (len(view.cases), len(view.findings), len(view.campaigns), view.statistics.pool) == (1, 1, 1, 1)
    assert database.case_show("digits", view.cases[0].digest[:8]).features == ("f",)
    assert database.corpus_verify("digits") == []
    assert database.corpus_min("digits") == (1, 1)
    assert database.corpus_merge("digits", [str(here / "other.sqlite")]).known == 1
    assert len(database.findings()) == len(database.findings("digits", kind="numeric")) == 1
    assert database.findings(grade="tie") == database.probe_history("digits") == []
    assert [item.findings for item in database.corpus_list()] == [1]
    with pytest.raises(InvalidUsage, match="the corpus itself"):
        database.corpus_merge("digits", ["digits"])


def test_nothing_below_a_folder_is_said_with_where_it_was_looked_for(here):
    with pytest.raises(InvalidUsage, match=r"corpora/\*/corpus.sqlite"):
        database.status()
