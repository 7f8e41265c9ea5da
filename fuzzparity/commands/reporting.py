"""Reporting: the body of `report`: read what a corpus knows, within bounds, without importing the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fuzzparity.commands.database import corpus_show, find_corpus
from fuzzparity.corpus import telling
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.telling import Knowledge, Recorded
from fuzzparity.errors import CorpusError
from fuzzparity.report.causes import Cause, causes_of

# Bounds of one report: a page of some megabytes, read in seconds, from a corpus of any size.
MOST_PROBES = 200
MOST_SHAPES = 2000
MOST_MOMENTS = 300
MOST_CASES = 400  # whose values are looked at for `ranges`
MOST_RANGE_BYTES = 64 << 20  # of their tensors
MOST_TOLD = 60  # causes with tensors, pictures and graphs
MOST_FINDING_BYTES = 32 << 20  # tensors of one finding
MOST_TENSOR_BYTES = 512 << 20  # tensors of all findings
MOST_MODEL_BYTES = 64 << 20  # a model that is parsed to draw a part of it


def knowledge(what: str, known: Sequence[str] = (), *, with_tensors: bool = True) -> Knowledge:
    """Return what a corpus knows, for a report; `with_tensors`: what pictures, value ranges and graphs need.

    `known`: further ledgers of known issues, beside that of the target.
    """
    path = find_corpus(what)
    view = corpus_show(str(path), limit=1, known=known)
    with Corpus.open(path, read_only=True) as corpus:
        shapes, total = telling.shape_counts(corpus, MOST_SHAPES)
        moments, sightings = telling.course(corpus, MOST_MOMENTS)
        left_out: list[str] = []
        causes = causes_of(view.findings)
        recorded = _recorded(corpus, causes, left_out) if with_tensors else {}
        ranges, ranges_of = _ranges(corpus, left_out) if with_tensors else ((), 0)
        builds = dict.fromkeys(item.finding.bucket.build for item in recorded.values())
        models = {build: model for build in builds if (model := _model(corpus, build, left_out))}
        return Knowledge(
            view,
            corpus.facts(),
            recorded,
            models,
            telling.places_of(corpus),
            shapes,
            total,
            ranges,
            ranges_of,
            moments,
            sightings,
            tuple(corpus.probes(MOST_PROBES)),
            tuple(corpus.rechecks()),
            tuple(left_out),
            telling.efforts_of(corpus),
        )


def _recorded(corpus: Corpus, causes: Sequence[Cause], left_out: list[str]) -> dict[str, Recorded]:
    """Return what was recorded of the leaders that have a block of their own; what is damaged is told, not fatal."""
    found: dict[str, Recorded] = {}
    left_bytes = MOST_TENSOR_BYTES
    for cause in causes[:MOST_TOLD]:
        leader = cause.leader
        try:
            item = telling.recorded(corpus, leader, min(left_bytes, MOST_FINDING_BYTES))
        except CorpusError as error:
            item = Recorded(leader, left_out=str(error))
        arrays = list(item.case.inputs.values()) if item.case else []
        arrays += [array for side in (item.expected, item.actual) if side for array in side.outputs]
        left_bytes -= sum(array.nbytes for array in arrays)
        found[leader.finding_id] = item
        if item.left_out:
            left_out.append(f"{leader.finding_id}: {item.left_out}")
    return found


def _ranges(corpus: Corpus, left_out: list[str]) -> tuple[tuple[telling.ValueRange, ...], int]:
    try:
        return telling.value_ranges(corpus, MOST_CASES, MOST_RANGE_BYTES)
    except CorpusError as error:
        left_out.append(f"ranges of values: {error}")
        return (), 0


def _model(corpus: Corpus, build: str, left_out: list[str]) -> bytes | None:
    try:
        return telling.model_of(corpus, build, MOST_MODEL_BYTES)
    except CorpusError as error:
        left_out.append(f"the model of build {build[:12]}: {error}")
        return None


def default_path(name: str) -> Path:
    """Return `report-NAME.html`; of a name only what is safe in a file's name stays."""
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)[:60]
    return Path(f"report-{safe or 'target'}.html")
