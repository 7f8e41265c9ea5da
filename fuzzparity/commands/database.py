"""Database: the bodies of the commands that only read a corpus, or change what the user says about it.

The idea: a command names a corpus in the user's words (a target's name, a folder, a file, an id); here the words
become a path, and what the corpus knows becomes records. Nothing is printed, no target is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.lock import writer_of
from fuzzparity.corpus.reading import CorpusReader
from fuzzparity.corpus.records import Became, CaseView, CorpusView, Merged, Payload, ProbeEntry, Statistics, StatusView
from fuzzparity.errors import CorpusError, InvalidUsage
from fuzzparity.finding import Finding
from fuzzparity.known import Ledger, Told, read_ledger, together

HOMES = (Path("corpora"), Path(".fuzzparity"))  # where campaigns put a corpus, seen from the working directory
FILE = "corpus.sqlite"

_T = TypeVar("_T")


def corpora() -> list[Path]:
    """Return every corpus below the working directory that a campaign would find there."""
    return [path for home in HOMES for path in sorted(home.glob(f"*/{FILE}")) if path.is_file()]


def find_corpus(what: str) -> Path:
    """Return the corpus that `what` names: a database, a folder, a target's file, or a target's name.

    InvalidUsage says where it was looked for.
    """
    path = Path(what)
    if path.is_file() and path.suffix != ".py":
        return path
    for candidate in _candidates(what):
        if candidate.is_file():
            return candidate
    named = [candidate for candidate in corpora() if _is_of(candidate, what)]
    if len(named) == 1:
        return named[0]
    if named:
        raise InvalidUsage(f"{what!r} names several corpora: {', '.join(map(str, named))}; give the path of one")
    looked = ", ".join(str(candidate) for candidate in dict.fromkeys(_candidates(what)))
    known = ", ".join(str(candidate) for candidate in corpora())
    raise InvalidUsage(
        f"no corpus of {what!r} (looked for {looked}); "
        + (f"there are {known}" if known else "`fuzzparity fuzz TARGET` makes one")
    )


def find_finding(id_prefix: str, where: str | None = None) -> tuple[Path, Finding]:
    """Return the finding whose id starts with `id_prefix`, and its corpus: `where`, or any below this directory.

    InvalidUsage when there is none, or several; a corpus that cannot be read is told and does not hide the others.
    """
    paths = [find_corpus(where)] if where else corpora()
    found: list[tuple[Path, str]] = []
    problems = []
    for path in paths:
        try:
            with Corpus.open(path, read_only=True) as corpus:
                found += [(path, finding_id) for finding_id in corpus.finding_ids(id_prefix)]
        except CorpusError as error:
            problems.append(str(error))
    exact = [item for item in found if item[1] == id_prefix]
    if len(exact) == 1:
        found = exact
    if len(found) == 1:
        path, finding_id = found[0]
        with Corpus.open(path, read_only=True) as corpus:
            return path, corpus.finding(finding_id)
    if found:
        listed = ", ".join(f"{finding_id} ({path})" for path, finding_id in found[:10])
        raise InvalidUsage(f"{id_prefix!r} names several findings: {listed}; give more of the id, or the corpus")
    looked = ", ".join(map(str, paths)) or "any corpus below this directory (there is none)"
    beside = "".join(f"\n  not read: {problem}" for problem in problems)
    raise InvalidUsage(f"no finding {id_prefix!r} in {looked}; `fuzzparity finding ls` shows the ids{beside}")


def named_finding(what: str, where: str | None = None, *, or_corpus: bool = False) -> str:
    """Return what names one finding: its id, or a reproducer's folder. InvalidUsage where a target was named alone.

    `or_corpus`: a target's name, file or database is as good, and is returned as it is.
    """
    path = Path(what)
    if (path / "finding.json").is_file():
        return path.resolve().name
    is_target = path.exists() or ":" in what or path.suffix == ".py"
    if or_corpus or (not is_target and where is not None):
        return what
    known = None
    try:
        known = find_corpus(what)
    except InvalidUsage:
        if not is_target:
            return what
    stored = f"; `fuzzparity finding ls {what}` lists what is stored of it" if known is not None else ""
    raise InvalidUsage(
        f"{what} is a target, and no inputs were given: fuzzparity explain {what} INPUTS... (files or folders){stored}"
    )


def findings(
    what: str | None = None,
    *,
    kind: str = "",
    grade: str = "",
    include_ignored: bool = True,
    known: Sequence[str] = (),
) -> list[tuple[Path, Finding]]:
    """Return the findings of one corpus, or of all below this directory, each with its entry of known issues."""
    found = []
    for path in _chosen(what):
        with Corpus.open(path, read_only=True) as corpus:
            ledger = ledger_of(corpus, known)
            stored = corpus.findings(kind=kind, grade=grade, include_ignored=include_ignored)
            found += [(path, ledger.marked(finding)) for finding in stored]
    return found


def ledger_of(corpus: CorpusReader, files: Sequence[str] = ()) -> Ledger:
    """Return the known issues of a corpus: the ledger beside its target, and further files."""
    facts, folder = corpus.facts(), corpus.path.parent
    beside = folder if (folder / "target.py").is_file() else ""
    return read_ledger((beside, facts.folder if facts is not None else ""), files)


def standings(what: str | None = None, known: Sequence[str] = ()) -> list[Told]:
    """Return what became of the entries of known issues, by what is stored of one corpus, or of all below here."""
    told = []
    for path in _chosen(what):
        with Corpus.open(path, read_only=True) as corpus:
            told += stored_standings(corpus, ledger_of(corpus, known))
    return list(together(told))


def stored_standings(corpus: CorpusReader, ledger: Ledger) -> list[Told]:
    """Return what became of the entries of a ledger, by what a corpus holds: a finding shows until it is seen gone.

    Findings that differ by their build alone are one: the newest says what became of them.
    """
    if not ledger.issues:
        return []
    last = {item.finding_id: item.state for item in corpus.rechecks() if item.state is not Became.UNKNOWN}
    found = [finding for finding in corpus.findings() if finding.reproduced is not False]
    newest = {replace(finding.bucket, build=""): finding.finding_id for finding in found}  # first seen first
    present: list[Finding] = []
    gone: list[Finding] = []
    for finding in found:
        is_gone = last.get(newest[replace(finding.bucket, build="")]) is Became.GONE
        (gone if is_gone else present).append(finding)
    return ledger.standings(present, gone)


def finding_payload(id_prefix: str, where: str | None = None, known: Sequence[str] = ()) -> tuple[Path, Payload]:
    """Return everything of one finding, enough to write its reproducer again."""
    path, finding = find_finding(id_prefix, where)
    with Corpus.open(path, read_only=True) as corpus:
        payload = corpus.finding_payload(finding.finding_id)
        return path, replace(payload, finding=ledger_of(corpus, known).marked(payload.finding))


def ignore_finding(id_prefix: str, where: str | None = None, *, is_ignored: bool = True) -> Finding:
    """Store that a finding is to be ignored (or no longer), also beside a running campaign."""
    return _say(id_prefix, where, lambda corpus, finding_id: corpus.set_ignored(finding_id, is_ignored))


def note_finding(id_prefix: str, note: str, where: str | None = None) -> Finding:
    """Store a note on a finding, also beside a running campaign."""
    return _say(id_prefix, where, lambda corpus, finding_id: corpus.set_note(finding_id, note))


def corpus_list(what: str | None = None) -> list[Statistics]:
    """Return the counts of one corpus, or of all below this directory."""
    return [_read(path, lambda corpus: corpus.statistics()) for path in _chosen(what)]


def corpus_show(what: str, *, limit: int = 20, order: str = "newest", known: Sequence[str] = ()) -> CorpusView:
    """Return what one corpus holds, `limit` cases of it."""

    def view(corpus: Corpus) -> CorpusView:
        ledger = ledger_of(corpus, known)
        return CorpusView(
            corpus.statistics(),
            tuple(corpus.builds()),
            tuple(corpus.campaigns()),
            tuple(corpus.cases(limit, order)),
            tuple(map(ledger.marked, corpus.findings())),
            tuple(corpus.coverage()),
            corpus.last_environment(),
            tuple(stored_standings(corpus, ledger)),
        )

    return _read(find_corpus(what), view)


def case_show(what: str, digest_prefix: str) -> CaseView:
    """Return one case of a corpus, verified."""

    def view(corpus: Corpus) -> CaseView:
        row = corpus.case_row(digest_prefix)
        return CaseView(row, tuple(sorted(corpus.features_of(row.digest))), corpus.case(row.digest))

    return _read(find_corpus(what), view)


def corpus_verify(what: str) -> list[str]:
    """Return what is wrong with a corpus; empty when all is well."""
    return _read(find_corpus(what), lambda corpus: corpus.verify())


def corpus_min(what: str) -> tuple[int, int]:
    """Keep the seeds and the smallest case of each feature; return the size of the pool before and after."""
    with Corpus.open(find_corpus(what)) as corpus:
        before = corpus.size
        corpus.minimize_corpus()
        return before, corpus.size


def corpus_merge(what: str, others: list[str]) -> Merged:
    """Take the cases of other corpora into one."""
    added, known, problems = 0, 0, list[str]()
    sources = [find_corpus(other) for other in others]
    with Corpus.open(find_corpus(what)) as corpus:
        for source in sources:
            merged = corpus.merge(source)
            added, known = added + merged.added, known + merged.known
            problems += [f"{source}: {problem}" for problem in merged.problems]
    return Merged(added, known, tuple(problems))


def corpus_snapshot(what: str, destination: Path) -> Path:
    """Copy a corpus as it is now to a new file, also beside a running campaign."""
    path = find_corpus(what)
    _read(path, lambda corpus: corpus.copy_to(destination))
    return destination


def status(what: str | None = None, known: Sequence[str] = ()) -> list[StatusView]:
    """Return the last campaign of one corpus, or of each below this directory."""
    return [view for path in _chosen(what) for view in _read(path, lambda corpus: _status(corpus, known))]


def probe_history(what: str, limit: int | None = None) -> list[ProbeEntry]:
    """Return the probe entries of a corpus, oldest first."""
    return _read(find_corpus(what), lambda corpus: corpus.probes(limit))


def _status(corpus: Corpus, known: Sequence[str]) -> list[StatusView]:
    campaigns = corpus.campaigns()
    if not campaigns:
        return []
    last = campaigns[-1]
    snapshots = corpus.snapshots(last.campaign_id, 60)
    ledger = ledger_of(corpus, known)
    found = [(ledger.marked(item), is_new) for item, is_new in corpus.campaign_findings(last.campaign_id)]
    told = ledger.standings([item for item, _ in found if item.reproduced is not False])
    efforts = corpus.efforts(last.campaign_id)
    view = StatusView(
        str(corpus.path), writer_of(corpus.path), last, tuple(snapshots), tuple(found), tuple(told), efforts
    )
    return [view]


def _candidates(what: str) -> list[Path]:
    """Return where the corpus of a target may lie: beside its `target.py`, or under its name."""
    spec, _, name = what.rpartition(":") if ":" in what else (what, "", "")
    path = Path(spec)
    names = [what] if "/" not in what else []
    beside = []
    if path.suffix == ".py":
        names += [name, path.stem, path.absolute().parent.name]
        beside = [path.parent / FILE]
    elif path.is_dir():
        names += [path.resolve().name]
        beside = [path / FILE]
    elif name:  # package.module:name
        names += [name, spec.rpartition(".")[2]]
    return [*beside, *(home / name / FILE for name in dict.fromkeys(names) if name for home in HOMES)]


def _is_of(path: Path, what: str) -> bool:
    """Tell whether a corpus says that it is of this target, by name or by how it was given."""
    try:
        with Corpus.open(path, read_only=True) as corpus:
            facts = corpus.facts()
    except CorpusError:
        return False
    return facts is not None and what.rstrip("/") in (facts.name, facts.spec.rstrip("/"))


def _chosen(what: str | None) -> list[Path]:
    if what is not None:
        return [find_corpus(what)]
    found = corpora()
    if not found:
        raise InvalidUsage(
            f"no corpus below {Path.cwd()} (looked for {' and '.join(f'{home}/*/{FILE}' for home in HOMES)}); "
            "`fuzzparity fuzz TARGET` makes one, or give the path of one"
        )
    return found


def _read(path: Path, ask: Callable[[Corpus], _T]) -> _T:
    with Corpus.open(path, read_only=True) as corpus:
        return ask(corpus)


def _say(id_prefix: str, where: str | None, store: Callable[[Corpus, str], None]) -> Finding:
    path, finding = find_finding(id_prefix, where)
    with Corpus.open(path, exclusive=False) as corpus:
        store(corpus, finding.finding_id)
        return corpus.finding(finding.finding_id)
