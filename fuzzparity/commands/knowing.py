"""Knowing: the ledger of known issues against what `check`, `explain` and `replay` see, and earlier findings run again.

The idea: a suspect of this moment has no blame yet; an entry that names one holds by what the corpus knows of its
bucket, on this build or on an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from fuzzparity.campaign.rechecking import MOST_SECONDS, recheck
from fuzzparity.campaign.setup import Prepared
from fuzzparity.commands.database import corpora, ledger_of
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.reading import CorpusReader
from fuzzparity.corpus.records import Recheck
from fuzzparity.errors import CorpusError
from fuzzparity.finding import Finding, Stage, Suspect
from fuzzparity.known import Ledger, Told, read_ledger, together
from fuzzparity.verdict import Grade


@dataclass(frozen=True, slots=True)
class Seen:
    """Hold what `check` saw against the ledger: a finding for each suspect, and what became of earlier ones."""

    findings: tuple[Finding, ...] = ()
    earlier: tuple[tuple[Finding, Recheck], ...] = ()
    left: int = 0  # earlier ones that there was no time for
    known: tuple[Told, ...] = ()

    @property
    def has_bug(self) -> bool:
        """Tell whether there is a bug that nobody expects, or one that is said to be fixed."""
        still = [finding for finding, became in self.earlier if became.finding_there]
        is_back = any(f.known is not None and f.known.is_fixed for f in (*self.findings, *still))
        return is_back or any(f.verdict.grade is Grade.BUG and not f.is_silent for f in self.findings)


def look(prepared: Prepared, say: Callable[[str], None]) -> Seen:
    """Run findings of earlier builds again, remember what became of them, and hold all against the ledger."""
    path, ledger = prepared.places.corpus, prepared.ledger
    if not path.is_file():
        seen = tuple(ledger.marked(as_finding(suspect)) for suspect in prepared.suspects)
        return Seen(seen, known=tuple(ledger.standings(seen)))
    with Corpus.open(path, read_only=True) as corpus:
        found = recheck(prepared, corpus, MOST_SECONDS, say)
        seen = tuple(ledger.marked(_by_what_is_stored(suspect, corpus)) for suspect in prepared.suspects)
    if found.pairs:
        with Corpus.open(path, exclusive=False) as corpus:
            corpus.add_rechecks(found.rechecks)
    present = (*seen, *found.still_there)
    earlier = tuple((ledger.marked(finding), became) for finding, became in found.pairs)
    return Seen(seen, earlier, found.left, tuple(ledger.standings(present, found.gone)))


def as_finding(suspect: Suspect) -> Finding:
    """Return a suspect as the finding that it would open."""
    digest = suspect.case.digest
    finding_id, verdict = suspect.bucket.finding_id, suspect.verdict
    return Finding(finding_id, suspect.bucket, Stage.SUSPECTED, verdict, suspect.realism, digest, digest)


def _by_what_is_stored(suspect: Suspect, corpus: CorpusReader) -> Finding:
    """Return a suspect as a finding, with the blame and the place that its bucket has in the corpus."""
    finding, like = as_finding(suspect), None
    for stored in corpus.findings():  # first seen first: the last of an earlier build counts, this build above all
        if stored.bucket == suspect.bucket:
            like = stored
            break
        if replace(stored.bucket, build=suspect.bucket.build) == suspect.bucket:
            like = stored
    if like is None:
        return finding
    verdict = replace(suspect.verdict, blame=like.verdict.blame, attribution=like.verdict.attribution)
    is_ignored = like.ignored and like.bucket == suspect.bucket
    return replace(finding, verdict=verdict, where=like.where, ignored=is_ignored)


def exit_code(findings: Iterable[Finding], has_bug: bool) -> int:
    """Return how a command ends whose inputs showed a bug or not: known ones do not count, unless said to be fixed."""
    found = list(findings)
    if any(finding.known is not None and finding.known.is_fixed for finding in found):
        return 1
    bugs = [finding for finding in found if finding.verdict.grade is Grade.BUG]
    return int(has_bug and (not bugs or any(not finding.is_silent for finding in bugs)))


class _Outcome(Protocol):
    """What a replay found, of a finding that may not be readable as one."""

    @property
    def finding_id(self) -> str: ...
    @property
    def finding(self) -> Finding | None: ...
    @property
    def state(self) -> str: ...


def replayed(outcomes: Sequence[_Outcome], files: Sequence[str]) -> tuple[list[Finding | None], list[Told]]:
    """Return the replayed findings, each with its entry, and what became of the entries.

    An entry counts that stands in a named file, or beside the target of the corpus that holds the finding.
    """
    ledgers = _ledgers({outcome.finding_id for outcome in outcomes}, files)
    alone = read_ledger((), files)
    by_ledger: dict[int, tuple[Ledger, list[Finding], list[Finding]]] = {}
    marked: list[Finding | None] = []
    for outcome in outcomes:
        if outcome.finding is None:
            marked.append(None)
            continue
        ledger = ledgers.get(outcome.finding_id, alone)
        _, present, gone = by_ledger.setdefault(id(ledger), (ledger, [], []))
        {"shows": present, "gone": gone}.get(str(outcome.state), []).append(outcome.finding)
        marked.append(ledger.marked(outcome.finding))
    told = [item for ledger, present, gone in by_ledger.values() for item in ledger.standings(present, gone)]
    return marked, list(together(told))


def _ledgers(ids: set[str], files: Sequence[str]) -> dict[str, Ledger]:
    """Return the ledger of each finding that a corpus below this directory holds."""
    found: dict[str, Ledger] = {}
    for path in corpora():
        try:
            with Corpus.open(path, read_only=True) as corpus:
                held = {finding.finding_id for finding in corpus.findings()} & ids
                if held:
                    ledger = ledger_of(corpus, files)
                    found |= dict.fromkeys(held - set(found), ledger)
        except CorpusError:
            continue  # one that cannot be read hides no other
    return found


def note_replay(path: Path, became: Recheck) -> None:
    """Remember in a corpus what `replay --current` saw."""
    with Corpus.open(path, exclusive=False) as corpus:
        corpus.add_rechecks([became])
