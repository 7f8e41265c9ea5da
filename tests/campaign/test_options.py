"""The options of a campaign, read before any process starts."""

import os
import subprocess
from pathlib import Path

import pytest

from fuzzparity.campaign.options import TargetOptions, clear_dead_runs, parse_fail_on, parse_seconds, places
from fuzzparity.errors import InvalidUsage


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("1.5m", 90.0), ("2h", 7200.0), (" 5s ", 5.0)],
)
def test_durations_are_read_in_hours_minutes_and_seconds(text: str, seconds: float):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "abc", "-5s", "0", "0s", "1d", "5 m", "nan", "inf", "1m1h", "10ms"])
def test_what_is_no_duration_is_refused_with_one_that_is(text: str):
    with pytest.raises(InvalidUsage, match="duration"):
        parse_seconds(text)


def test_fail_rules_are_grades_with_realism_or_kinds():
    rules = parse_fail_on("bug:near, crash,tie")
    assert [(rule.grade, rule.realism, rule.kind) for rule in rules] == [
        ("bug", "near", ""),
        ("", "", "crash"),
        ("tie", "", ""),
    ]
    assert parse_fail_on("never") == ()


@pytest.mark.parametrize("text", ["", "bugs", "bug:far", "crash:near", "bug,,tie", "never,bug"])
def test_a_wrong_fail_rule_names_what_is_valid(text: str):
    with pytest.raises(InvalidUsage, match="numeric"):
        parse_fail_on(text)


def test_places_of_a_target_elsewhere_lie_below_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found = places(TargetOptions(target="models/detector.py"), "big model/1")
    assert found.corpus == Path(".fuzzparity/big_model_1/corpus.sqlite")
    assert found.crashes == Path("crashes")
    assert found.run.is_dir()


def test_places_of_a_project_lie_with_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpora/digits").mkdir(parents=True)
    assert places(TargetOptions(target="corpora/digits"), "digits").corpus == Path("corpora/digits/corpus.sqlite")


@pytest.mark.parametrize("option", ["corpus", "crashes"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str):
    monkeypatch.chdir(tmp_path)
    path = Path("/proc/fuzzparity/x")
    options = TargetOptions(target="t.py", **{option: path})
    with pytest.raises(InvalidUsage, match="choose another"):
        places(options, "t")


def test_run_folders_of_dead_processes_are_removed_and_those_of_living_ones_kept(tmp_path: Path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name in (str(gone.pid), str(os.getppid()), str(os.getpid()), "notes"):
        (tmp_path / name).mkdir()
    clear_dead_runs(tmp_path / str(os.getpid()))
    assert {path.name for path in tmp_path.iterdir()} == {str(os.getppid()), str(os.getpid()), "notes"}
