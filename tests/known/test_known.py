from dataclasses import replace
from datetime import date

import pytest

from fuzzparity.errors import InvalidUsage
from fuzzparity.finding import Bucket, Finding, Stage, Where
from fuzzparity.known import MATCHERS, Ledger, Standing, Told, parse, read_ledger, together
from fuzzparity.verdict import Attribution, Grade, Kind, Realism, Verdict

HEADLINE = "y: ORT is 0.24 off torch at [0, 7]; the exact answer sides with torch"
VERDICT = Verdict(Kind.NUMERIC, Grade.BUG, "y", "ort", blame="kernel:Resize", headline=HEADLINE)
BUCKET = Bucket("b" * 64, "numeric", "", "y", "", "bug", True)
FINDING = Finding("numeric-0a1b2c3d", BUCKET, Stage.MINIMIZED, VERDICT, Realism.NEAR, "c", "c", Where(op="Resize"))


def issue(*lines, name="half"):
    text = "\n".join(["[[issue]]", f'name = "{name}"', 'reason = "halves are rounded another way"', *lines])
    return parse(text, "known.toml")[0]


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ('kind = "numeric"', True),
        ('kind = "shape"', False),
        ('grade = "bug"', True),
        ('realism = "wild"', False),
        ('output = "y"', True),
        ('output = "ya"', False),
        ('output = "*"', True),
        ('blame = "kernel"', True),
        ('blame = "kernel:Resize"', True),
        ('blame = "kernel:Res"', False),
        ('blame = "kernel:*size"', True),
        ('blame = "optimizer:*"', False),
        ('op = "Resize"', True),
        ('op = "Re*ze*ze"', False),
        ('side = "ort"', True),
        ('side = "torch"', False),
        ('build = "bbbbbbbb"', True),
        ('build = "bbbbbbbc"', False),
        ('finding = "numeric-0a1b2c3d"', True),
        ('finding = "numeric-0a1b"', False),
        ('headline = "off torch at [0, 7]"', True),  # brackets are no pattern
        ('headline = "y: ORT is * off torch*sides with"', True),
        ('headline = "sides with*off torch"', False),
        ('kind = "numeric"\nop = "Add"', False),  # all must hold
    ],
)
def test_an_entry_holds_when_all_that_it_names_does(line, holds):
    assert issue(line).matches(FINDING) is holds


def test_the_operator_is_known_from_blame_where_no_place_is_told():
    known = replace(VERDICT, attribution=Attribution("the reference differs", op="Resize"))
    assert issue('op = "Resize"').matches(replace(FINDING, where=Where(), verdict=known))
    assert not issue('op = "Resize"').matches(replace(FINDING, where=Where()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[issue]]\nname = 'a'\nreason = 'b'", r"known.toml, entry 1 \('a'\): it says nothing of the findings"),
        ("[[issue]]\nreason = 'b'\nkind = 'crash'", "entry 1: the key 'name' is missing"),
        ("[[issue]]\nname = 'a'\nkind = 'crash'", r"entry 1 \('a'\): the key 'reason' is missing"),
        ("[[issue]]\nname = 'a'\nreason = 'b'\nknd = 'crash'", "no key 'knd'; valid keys: name, reason, link"),
        ("[[issue]]\nname = 'a'\nreason = 'b'\nkind = 'crsh'", "'kind' is 'crsh'; wanted one of agree, rejected"),
        ("[[issue]]\nname = 'a'\nreason = 'b'\ngrade = 3", "'grade' is 3; a text"),
        ("[[issue]]\nname = 'a'\nreason = ' '\ngrade = 'bug'", "'reason' is ' '; a text that is not empty"),
        ("[[issue]]\nname = 'a'\nreason = 'b'\ngrade = 'bug'\nexpires = '2027-01-01'", "a date was wanted, without"),
        ("[[issue]]\nname = 'a'\nreason = 'b'\ngrade = 'bug'\nexpires = 2027-01-01T00:00:00", "a date was wanted"),
        ("[[issue]]\nname = 'a'\nreason = 'b'\ngrade = 'bug'\nexpected = 'gone'", "wanted one of open, fixed"),
        ("[[issue]]\nname = 'a'\nreason = 'b'\nbuild = 'b'", "at least 8 digits"),
        ("name = 'a'", "'name' stands outside of any entry; entries begin with"),
        ("[issue]\nname = 'a'", "'issue' is no list of entries"),
        ("[[issue]\n", "is no TOML"),
    ],
)
def test_a_wrong_ledger_is_one_message_with_file_entry_and_key(text, said):
    with pytest.raises(InvalidUsage, match=said):
        parse(text, "known.toml")


def test_a_ledger_is_read_beside_the_target_and_from_files_that_are_named(tmp_path):
    text = '[[issue]]\nname = "{0}"\nreason = "r"\noutput = "{0}"\n'
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "known_issues.toml").write_text(text.format("a"))
    (tmp_path / "more.toml").write_text(text.format("y"))
    more = str(tmp_path / "more.toml")
    ledger = read_ledger(["", tmp_path / "nowhere", tmp_path / "target"], [more, more])
    assert [issue.name for issue in ledger.issues] == ["a", "y"]
    marked = ledger.marked(FINDING)
    assert (marked.known.name, marked.known.reason, marked.is_silent) == ("y", "r", True)
    assert Ledger().marked(marked).known is None
    assert read_ledger([tmp_path / "nowhere"]).issues == ()
    (tmp_path / "again.toml").write_text(text.format("y"))
    with pytest.raises(InvalidUsage, match="two entries are named 'y'"):
        read_ledger([], [more, tmp_path / "again.toml"])
    for name, data in (("binary.toml", b"\xff\xfe"), ("large.toml", b"#" * ((1 << 20) + 1))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InvalidUsage, match=f"{name} (is no UTF-8|has over)"):
            read_ledger([], [tmp_path / name])
    with pytest.raises(InvalidUsage, match="nowhere cannot be read"):
        read_ledger([], [tmp_path / "nowhere"])


def test_what_became_of_each_entry_is_told():
    today = date(2027, 3, 31)
    entries = {
        "open": issue('output = "y"\nblame = "kernel"', name="open"),
        "fixed": issue('output = "z"\nexpected = "fixed"', name="fixed"),
        "old": issue('kind = "numeric"\nexpires = 2027-03-30', name="old"),
        "last day": issue('output = "w"\nexpires = 2027-03-31', name="last day"),
    }
    ledger = Ledger(tuple(entries.values()), today)
    fixed = replace(FINDING, finding_id="numeric-2", verdict=replace(VERDICT, output="z"))
    lost = replace(FINDING, finding_id="numeric-3", verdict=replace(VERDICT, output="w"))
    told = {item.issue.name: (item.standing, item.finding_ids) for item in ledger.standings([FINDING, fixed], [lost])}
    assert told == {
        "open": (Standing.SHOWS, ("numeric-0a1b2c3d",)),
        "fixed": (Standing.SHOWS_AGAIN, ("numeric-2",)),
        "old": (Standing.EXPIRED, ("numeric-0a1b2c3d", "numeric-2")),
        "last day": (Standing.GONE, ("numeric-3",)),
    }
    assert ledger.marked(fixed).known.is_fixed
    assert not ledger.marked(fixed).is_silent
    assert ledger.standings([FINDING], [FINDING])[0].standing is not Standing.GONE  # it shows elsewhere


def test_what_shows_on_one_build_shows():
    one = issue('output = "y"')
    shows, gone = (Told(one, standing, (name,)) for standing, name in ((Standing.SHOWS, "a"), (Standing.GONE, "b")))
    for told in ([shows, gone], [gone, shows], [gone, shows, shows]):
        assert together(told) == (shows,)
    assert together([shows, Told(one, Standing.SHOWS, ("c", "a"))])[0].finding_ids == ("a", "c")
    other = issue('output = "y"', name="other")
    assert len(together([shows, Told(other, Standing.EXPIRED)])) == 2


def test_every_matcher_is_known_to_the_command_that_prints_an_entry():
    for key in MATCHERS:
        value = {"kind": "crash", "grade": "bug", "realism": "near", "build": "0" * 8}.get(key, "x")
        assert issue(f'{key} = "{value}"').matcher == {key: value}
