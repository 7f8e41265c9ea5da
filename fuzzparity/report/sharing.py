"""Sharing: a copy of a reproducer that holds nothing of its owner's: no data, weights, source or paths.

The idea: only a cut whose arrays are all made up can be given away. What is private is left out rather than masked, the
result is read once more before it is written, and whatever stands in the way is said instead.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fuzzparity.case import Case
from fuzzparity.errors import InvalidUsage
from fuzzparity.execution import ORT, TORCH, Execution, Status
from fuzzparity.finding import Where
from fuzzparity.report.clean import without_paths
from fuzzparity.report.content import ReproducerContent
from fuzzparity.report.cutting import cut_files, cut_object, cut_program
from fuzzparity.report.issue import issue_text
from fuzzparity.verdict import Attribution, as_plain


def write_shared(folder: Path, content: ReproducerContent) -> Path:
    """Write `folder/FINDING_ID` with the cut alone; raises InvalidUsage that says all that prevents it."""
    finding_id = content.finding.finding_id
    reasons = list(_hindrances(content))
    files: dict[str, bytes] = {}
    if not reasons:
        public = _public(content)
        files = _files(public)
        reasons += _leaks(files, content)
    if reasons:
        said = "".join(f"\n  - {reason}" for reason in reasons)
        raise InvalidUsage(f"finding {finding_id} cannot be shared without giving away what is yours:{said}")
    place = folder / finding_id
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", finding_id):
        raise InvalidUsage(f"finding id {finding_id!r:.120} cannot name a folder")
    if place.exists():
        raise InvalidUsage(f"{place} is there already; remove it or give another folder")
    temporary = folder / f".tmp-{finding_id}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        for name, data in files.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(data)
        temporary.rename(place)
    except OSError as error:
        raise InvalidUsage(f"nothing can be written to {folder}: {error}") from error
    return place


def _hindrances(content: ReproducerContent) -> Iterator[str]:
    """Yield what prevents a copy, in words."""
    cut = content.cut
    if cut is None:
        yield "it was not cut: only the whole model, with its weights, shows it"
        return
    if not content.writes_cut:
        yield f"a cut that shows by {cut.way}, or holds types that numpy lacks, has no program of its own"
    if cut.real_weights:
        yield f"the cut still needs the model's own weights: {', '.join(cut.real_weights)}"
    if cut.real_values and (content.confidential or content.facts.has_real_seeds):
        yield f"values that stand at the cut come from real data: {', '.join(cut.real_values)}"
    if content.ort.custom_op_libraries:
        yield "it needs custom operator libraries"


def _public(content: ReproducerContent) -> ReproducerContent:
    """Return the content of the copy: the cut as if it were the whole, and no text that was written about the rest."""
    cut, finding = content.cut, content.finding
    assert cut is not None
    verdict = finding.verdict
    place = verdict.blame.partition(":")[2] or finding.where.op
    headline = f"{verdict.kind.value} between {cut.shown_by.replace(' against ', ' and ')}" + (
        f" ({place})" if place else ""
    )
    known = verdict.attribution
    hint = Attribution("", workaround=known.workaround) if known is not None and known.workaround else None
    told = replace(
        verdict, headline=headline, output=None, comparison=None, evidence=None, attribution=hint, looks_like=()
    )
    actual = Execution(ORT, content.actual.status if content.actual else Status.OK)
    facts = replace(
        content.facts,
        spec="",
        folder="",
        build=replace(content.facts.build, nodes=cut.nodes, folder="", notes=()),
    )
    return replace(
        content,
        finding=replace(finding, verdict=told, where=Where(op=finding.where.op), path="", note=""),
        case=Case(dict(cut.feeds)),
        expected=Execution(TORCH, Status.OK, tuple(cut.expected.values())),
        actual=replace(actual, outputs=tuple(cut.expected.values()) if actual.is_ok else ()),
        model=b"",
        model_files={},
        facts=facts,
        target_spec="",
        contains=(),
        confidential=False,
        cut=replace(cut, path=(), operators=()),
    )


def _files(public: ReproducerContent) -> dict[str, bytes]:
    cut = public.cut
    assert cut is not None
    finding = public.finding
    told = {
        "schema": 1,
        "finding_id": finding.finding_id,
        "kind": finding.verdict.kind.value,
        "grade": finding.verdict.grade.value,
        "blame": finding.verdict.blame,
        "where": {"op": finding.where.op},
        "headline": finding.verdict.headline,
        "standalone": public.standalone,
        "contains": [],
        "cut": cut_object(cut),
        "packages": as_plain(public.facts.environment.packages),
    }
    return {
        "repro.py": cut_program(public).encode(),
        "issue.md": issue_text(public, None).encode("utf-8", "backslashreplace"),
        "finding.json": (json.dumps(told, indent=1, allow_nan=False) + "\n").encode(),
        **cut_files(cut),
    }


def _leaks(files: dict[str, bytes], content: ReproducerContent) -> Iterator[str]:
    """Yield what is still told in the files: paths, and names of the target or of its values."""
    words = {content.facts.name, Path(content.target_folder).name, Path(content.target_spec.partition(":")[0]).stem}
    words |= {content.finding.where.onnx_node, content.finding.where.fx_node, *_modules(content)}
    private = {word for word in words if len(word) > 5 and not word.isdigit() and word not in _PLAIN}
    for name, data in files.items():
        text = data.decode("utf-8", "replace")
        if name.endswith((".py", ".md", ".json")) and without_paths(text) != text:
            yield f"{name} names a folder of this machine"
        for word in sorted(private):
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
                yield f"{name} names {word!r}"


_PLAIN = frozenset({"target", "module", "corpora", "export", "output", "inputs"})


def _modules(content: ReproducerContent) -> list[str]:
    known = content.finding.verdict.attribution
    return [known.module, known.source.partition(":")[0]] if known is not None else []
