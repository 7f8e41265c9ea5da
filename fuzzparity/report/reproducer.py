"""Reproducer: the folder that shows one finding, alone, on any machine with ONNX Runtime.

The idea: the folder is written beside its place and renamed, so it is never half there. What can be read at a glance
(small inputs, small models) is written out in `repro.py`; the files hold everything in any case.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2

from fuzzparity.case import Array
from fuzzparity.corpus.codec import encode
from fuzzparity.errors import InvalidUsage
from fuzzparity.execution import Execution
from fuzzparity.report.clean import printable, without_paths
from fuzzparity.report.content import (
    COMPARING,
    IMPORT_OF_TARGET,
    PATIENCE_SECONDS,
    WHERE,
    ReproducerContent,
    allowed,
    content_of_payload,
    expected_outputs,
    fault,
    feeds,
    headline,
    limit_seconds,
    masks,
    phase,
    regions_of,
    relative_spec,
    said,
)
from fuzzparity.report.cutting import cut_files, cut_program
from fuzzparity.report.issue import issue_text
from fuzzparity.report.literal import array_literal, model_source, needs_ml_dtypes
from fuzzparity.report.plain import finding_object, finding_plain
from fuzzparity.verdict import Kind

__all__ = ["ReproducerContent", "content_of_payload", "finding_object", "run_reproducer", "write_reproducer"]

_CPU = "CPUExecutionProvider"
MOST_BYTES_WRITTEN_OUT = 1 << 20  # of a model that is looked at at all


def write_reproducer(folder: Path, content: ReproducerContent) -> Path:
    """Write `folder/FINDING_ID` whole or not at all, in place of one of the same id; return its path."""
    finding_id = content.finding.finding_id
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", finding_id):
        raise InvalidUsage(f"finding id {finding_id!r:.120} cannot name a folder: give small letters, digits, - and _")
    if content.finding.verdict.kind in COMPARING and not (content.expected and content.expected.is_ok):
        raise InvalidUsage(f"finding {finding_id} compares outputs, but torch's outputs were not recorded with it")
    place = folder / finding_id
    files = _files(content, place)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clean(folder)
        temporary = folder / f".tmp-new-{finding_id}-{os.getpid()}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, data in files.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(data)
        _swap(temporary, place)
    except OSError as error:
        raise InvalidUsage(f"reproducer cannot be written to {folder}: {error}; give a writable --crashes") from error
    return place


def run_reproducer(folder: Path, timeout_seconds: float = PATIENCE_SECONDS) -> int:
    """Run `repro.py` of a folder that fuzzparity has just written itself; return 1 shows, 0 gone, 125 cannot judge."""
    command = [sys.executable, str(folder / "repro.py")]
    try:
        ended = subprocess.run(
            command, cwd=os.sep, capture_output=True, timeout=timeout_seconds, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        return 125
    return ended.returncode if ended.returncode in (0, 1) else 125


def _swap(temporary: Path, place: Path) -> None:
    """Put a finished folder in its place; the old one is moved aside first and put back by `_clean` after a kill."""
    aside = place.parent / f".tmp-old-{place.name}-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    if place.exists():
        place.rename(aside)
    temporary.rename(place)
    shutil.rmtree(aside, ignore_errors=True)


def _clean(folder: Path) -> None:
    """Remove what a killed process left; an old folder whose successor never arrived goes back to its place."""
    for entry in folder.glob(".tmp-*-*"):
        found = re.fullmatch(r"\.tmp-(new|old)-(.+)-(\d+)", entry.name)
        if found is None or (int(found[3]) != os.getpid() and _is_alive(int(found[3]))):
            continue
        if found[1] == "old" and not (folder / found[2]).exists():
            entry.rename(folder / found[2])
        else:
            shutil.rmtree(entry, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _files(content: ReproducerContent, place: Path) -> dict[str, bytes]:
    """Return the folder's files, name -> bytes."""
    outputs = expected_outputs(content)
    source = _model_source(content)
    files = {
        "repro.py": _program(content, place, outputs, source).encode("utf-8", "backslashreplace"),
        "inputs.safetensors": encode(content.case.inputs),
        "model.onnx": content.model,
        "finding.json": _json(finding_plain(content, place)),
        "issue.md": issue_text(content, source).encode("utf-8", "backslashreplace"),
    }
    if outputs is not None:
        where = {WHERE + name: mask for name, mask in masks(content).items() if WHERE + name not in outputs}
        files["expected.safetensors"] = encode(outputs | where)
    if not content.model:
        del files["model.onnx"]  # an export that failed
    for name, data in content.model_files.items():
        if not re.fullmatch(r"\w[\w.+-]*", name) or name in files:
            raise InvalidUsage(f"external data {name!r:.120} cannot stand beside model.onnx: give a plain file name")
        files[name] = data
    return files | (cut_files(content.cut) if content.cut is not None else {})


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=False, allow_nan=False, default=str) + "\n").encode()


def _model_source(content: ReproducerContent) -> str | None:
    if not content.write_out or len(content.model) > MOST_BYTES_WRITTEN_OUT:
        return None
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return model_source(onnx.load_model_from_string(content.model))
    except (DecodeError, ValueError, TypeError):  # a load failure may well be of a file that is no model
        return None


def _literals(arrays: dict[str, Array] | None, is_wanted: bool) -> list[tuple[str, str]] | None:
    """Return (name, expression) for each array when all are small enough to be written out."""
    if not is_wanted or not arrays:
        return None
    pairs = [(ascii(name), array_literal(array)) for name, array in arrays.items()]
    ready = [(name, text) for name, text in pairs if text is not None]
    return ready if len(ready) == len(pairs) else None


def _program(content: ReproducerContent, place: Path, outputs: dict[str, Array] | None, source: str | None) -> str:
    """Return repro.py: the cut where there is one that can be written out, else the whole model."""
    if not content.writes_cut:
        return _repro_source(content, place, outputs, source)
    return cut_program(content)


def _repro_source(content: ReproducerContent, place: Path, outputs: dict[str, Array] | None, source: str | None) -> str:
    """Render repro.py."""
    verdict, runs_target = content.finding.verdict, content.standalone == IMPORT_OF_TARGET
    compares = verdict.kind in COMPARING
    reference = outputs if compares else None
    inputs = dict(content.case.inputs)
    where = {name: mask for name, mask in masks(content).items() if reference and WHERE + name not in reference}
    input_literals, expected_literals = _literals(inputs, content.write_out), _literals(reference, content.write_out)
    where_literals = _literals(where, content.write_out and expected_literals is not None)
    packages = content.facts.environment.packages
    needs = "fuzzparity and the target" if runs_target else "numpy, onnx and onnxruntime"
    source = None if runs_target else source
    at_fault = fault(content)
    constants: dict[str, Any] = {
        "FINDING_ID": content.finding.finding_id,
        "HEADLINE": headline(content),
        "KIND": verdict.kind.value,
        "SIDE": "torch" if verdict.side.startswith("torch") else "ort",
        "PHASE": phase(content),
        "EXPECTED": "torch " + _clean_said(content, content.expected),
        "ACTUAL": "ONNX Runtime " + _clean_said(content, content.actual),
        "SIGNAL": (at_fault.signal if at_fault else None) or 0,
        "EXIT_CODE": (at_fault.exit_code if at_fault else None) or 0,
        "LIMIT_SECONDS": limit_seconds(content),
        "MEMORY_BYTES": content.memory_bytes if verdict.kind is Kind.OOM else None,
        "RECORDED": {name: packages[name] for name in ("onnxruntime", "torch", "numpy", "onnx") if name in packages},
        "NEEDS": needs,
    }
    if runs_target:
        constants["TARGET"] = relative_spec(content, place)
    else:
        constants |= _session_constants(content)
    if reference is not None:
        tolerances = allowed(content, reference)
        constants["WATCHED"] = verdict.output
        constants["ALLOWED"] = {name: (item.rtol, item.atol) for name, item in tolerances.items()}
        if regions := regions_of(content.regions, reference):
            constants["REGIONS"] = {  # the most specific comes last and has the last word
                name: [(region.parts, item.rtol, item.atol) for region, item in reversed(pairs)]
                for name, pairs in regions.items()
            }
    return (
        _ENVIRONMENT.get_template("repro.py.j2")
        .render(
            headline=headline(content),
            finding_id=content.finding.finding_id,
            kind=verdict.kind.value,
            grade=verdict.grade.value,
            standalone=content.standalone,
            constants=[(name, ascii(value)) for name, value in constants.items()],
            ml_dtypes=needs_ml_dtypes([*inputs.values(), *(outputs or {}).values()]),
            runs_target=runs_target,
            compares=compares,
            has_expected=reference is not None,
            input_literals=input_literals,
            expected_literals=expected_literals,
            has_where=bool(where),
            where_literals=where_literals,
            has_regions="REGIONS" in constants,
            model_source=source,
            reads_files=input_literals is None
            or (reference is not None and expected_literals is None)
            or (bool(where) and where_literals is None),
        )
        .rstrip()
        + "\n"
    )


def _clean_said(content: ReproducerContent, execution: Execution | None) -> str:
    return printable(without_paths(said(execution), content.target_folder), 500)


def _session_constants(content: ReproducerContent) -> dict[str, Any]:
    ort = content.ort
    options = {name: dict(value) for name, value in ort.provider_options.items()}
    return {
        "FEEDS": feeds(content),
        "LEVEL": content.ort_level,
        "THREADS": ort.threads or 1,
        "PROVIDERS": [(name, options[name]) if name in options else name for name in ort.providers],
        "CONFIG": dict(ort.config) | ({} if _CPU in ort.providers else {"session.disable_cpu_ep_fallback": "1"}),
        "DISABLED_OPTIMIZERS": list(ort.disabled_optimizers),
    }


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("fuzzparity.report", "templates"),
    undefined=jinja2.StrictUndefined,
    autoescape=False,
    keep_trailing_newline=True,
)
