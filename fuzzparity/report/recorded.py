"""Recorded: read a reproducer's folder back, as data that may come from a stranger.

The idea: names are fixed, sizes are bounded, links are refused, and every field is checked before it is used. Options
that could make ONNX Runtime open or write files of its own are dropped, and that is said.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzzparity.case import Array
from fuzzparity.corpus.codec import decode
from fuzzparity.corpus.plain import from_plain
from fuzzparity.errors import CannotRunHere, CorpusError, FuzzparityError
from fuzzparity.finding import Finding
from fuzzparity.oracle.where import aligned
from fuzzparity.report.clean import printable
from fuzzparity.report.content import IMPORT_OF_TARGET, WHERE, regions_of
from fuzzparity.target import LEVELS, Ort, Tolerance
from fuzzparity.verdict import Kind

MOST_JSON_BYTES = 16 << 20
MOST_TENSOR_BYTES = 1 << 30
MOST_MODEL_BYTES = 4 << 30
LONGEST_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class RecordedFinding:
    """Hold what replay needs of `finding.json`, checked."""

    finding_id: str
    kind: Kind
    side: str  # "torch" or "ort": the side at fault, where one is
    output: str | None
    headline: str
    phase: str
    standalone: str
    signal: int | None
    exit_code: int | None
    outputs: tuple[str, ...]
    feeds: dict[str, str]
    allowed: dict[str, Tolerance]
    ort: Ort
    limit_seconds: float
    memory_bytes: int | None
    packages: dict[str, str]
    dropped: tuple[str, ...] = ()  # options that were not taken over
    regions: dict[str, Tolerance] = field(default_factory=dict)  # of slices: "boxes[..., :4]"
    whole: Finding | None = None  # where all of it can be read: for known issues, which go by what else it says


@dataclass(frozen=True, slots=True)
class Recorded:
    """Hold a whole reproducer: the finding, its inputs, torch's outputs where it answered, and the model's path.

    `masks`: output -> where differences count, broadcast to it; only outputs that do not count everywhere.
    """

    finding: RecordedFinding
    inputs: dict[str, Array] = field(repr=False)
    expected: dict[str, Array] | None = field(repr=False)
    model: Path
    masks: dict[str, Array] = field(default_factory=dict, repr=False)


def read_recorded(folder: Path) -> Recorded:
    """Read a reproducer's folder; CannotRunHere says what is wrong with it."""
    if not folder.is_dir():
        raise CannotRunHere(f"{folder} is no folder; give the folder of a reproducer, such as crashes/FINDING_ID")
    finding = _finding(_json_object(_bytes(folder, "finding.json", MOST_JSON_BYTES)))
    inputs = _arrays(folder, "inputs.safetensors")
    has_expected = (folder / "expected.safetensors").exists() or (folder / "expected.safetensors").is_symlink()
    expected = _arrays(folder, "expected.safetensors") if has_expected else None
    masks = _split_masks(finding, expected)
    missing = [name for name in finding.feeds if name not in inputs]
    if missing:
        raise CannotRunHere(f"inputs.safetensors lacks {', '.join(map(ascii, missing[:5]))}, which the model is fed")
    if finding.standalone != IMPORT_OF_TARGET:  # an export that failed left no model
        regular_file(folder, "model.onnx", MOST_MODEL_BYTES)
    return Recorded(finding, inputs, expected, folder / "model.onnx", masks)


def _split_masks(finding: RecordedFinding, expected: dict[str, Array] | None) -> dict[str, Array]:
    """Take the masks out of what expected.safetensors holds, and return them by output."""
    masks: dict[str, Array] = {}
    for key in [key for key in expected or {} if key.startswith(WHERE) and key not in finding.outputs]:
        assert expected is not None
        mask, name = expected.pop(key), key.removeprefix(WHERE)
        if name not in expected or mask.dtype.kind != "b" or aligned(mask, expected[name].shape) is None:
            raise CannotRunHere(f"expected.safetensors: {ascii(key)[:80]} is no mask of an output")
        masks[name] = mask
    return masks


def regular_file(folder: Path, name: str, most_bytes: int) -> Path:
    """Return the path of a file of the folder; a link, a special file or one too large is refused."""
    path = folder / name
    try:
        found = path.lstat()
    except OSError as error:
        raise CannotRunHere(f"{path} cannot be read: {error.strerror}; the folder is not whole") from None
    if not stat.S_ISREG(found.st_mode):
        raise CannotRunHere(f"{path} is no plain file; links and special files in a reproducer are not followed")
    if found.st_size > most_bytes:
        raise CannotRunHere(f"{path} has {found.st_size:,} bytes; at most {most_bytes:,} are read")
    return path


def _bytes(folder: Path, name: str, most_bytes: int) -> bytes:
    try:
        return regular_file(folder, name, most_bytes).read_bytes()
    except OSError as error:
        raise CannotRunHere(f"{folder / name} cannot be read: {error.strerror}") from None


def _arrays(folder: Path, name: str) -> dict[str, Array]:
    data = _bytes(folder, name, MOST_TENSOR_BYTES)
    try:
        return decode(data, max_bytes=MOST_TENSOR_BYTES)
    except FuzzparityError as error:
        raise CannotRunHere(f"{folder / name}: {error}") from None


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CannotRunHere(f"finding.json is no JSON: {printable(error, 120)}") from None
    if not isinstance(value, dict):
        raise CannotRunHere(f"finding.json holds a {type(value).__name__}, wanted an object")
    if value.get("schema") != 1:
        raise CannotRunHere(f"finding.json has schema {value.get('schema')!a:.40}; this fuzzparity reads schema 1")
    return value


def _finding(value: dict[str, Any]) -> RecordedFinding:
    """Return the checked finding; the first field that is wrong is named."""
    verdict = _get(_get(value, "finding", dict), "verdict", dict)
    actual = value.get("actual") if isinstance(value.get("actual"), dict) else {}
    kind = _get(verdict, "kind", str)
    if kind not in set(Kind):
        raise CannotRunHere(f"finding.json has kind {kind!a:.40}; known are {', '.join(Kind)}")
    ort, dropped = _ort(_get(value, "ort", dict))
    packages = _get(_get(value, "environment", dict), "packages", dict)
    output = verdict.get("output")
    outputs = tuple(str(name) for name in _get(value, "outputs", list))
    return RecordedFinding(
        finding_id=printable(_get(value, "finding_id", str), 120),
        kind=Kind(kind),
        side="torch" if _get(verdict, "side", str).startswith("torch") else "ort",
        output=output if isinstance(output, str) else None,
        headline=printable(_get(value, "headline", str), 400),
        phase="load" if value.get("phase") == "load" else "run",
        standalone=printable(_get(value, "standalone", str), 80),
        signal=_whole(actual, "signal"),
        exit_code=_whole(actual, "exit_code"),
        outputs=outputs,
        feeds=_texts(value, "feeds"),
        allowed={str(name): _tolerance(item) for name, item in _get(value, "allowed", dict).items()},
        ort=ort,
        limit_seconds=_seconds(value.get("limit_seconds")),
        memory_bytes=_whole(value, "memory_bytes"),
        packages={str(name): printable(version, 60) for name, version in packages.items()},
        dropped=dropped,
        regions=_regions(value, outputs),
        whole=_whole_finding(value),
    )


def _whole_finding(value: dict[str, Any]) -> Finding | None:
    """Return the finding as it was stored; None when its form is that of another version."""
    try:
        return from_plain(Finding, value.get("finding"))
    except CorpusError:
        return None


def _regions(value: dict[str, Any], outputs: tuple[str, ...]) -> dict[str, Tolerance]:
    """Return the tolerances of slices; a reproducer of an earlier version has none."""
    if "regions" not in value:
        return {}
    found = {str(key): _tolerance(item) for key, item in _get(value, "regions", dict).items()}
    try:
        regions_of(found, outputs)
    except FuzzparityError as error:
        raise CannotRunHere(f"finding.json: {printable(error, 200)}") from None
    return found


def _get(value: Any, key: str, wanted: type) -> Any:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, wanted):
        raise CannotRunHere(f"finding.json: {key!r} is {type(found).__name__}, wanted {wanted.__name__}")
    return found


def _whole(value: Any, key: str) -> int | None:
    found = value.get(key) if isinstance(value, dict) else None
    return found if type(found) is int and 0 <= found < 2**63 else None


def _texts(value: Mapping[str, Any], key: str) -> dict[str, str]:
    found = _get(value, key, dict)
    if not all(isinstance(item, str) for item in found.values()):
        raise CannotRunHere(f"finding.json: {key!r} holds something else than texts")
    return dict(found)


def _tolerance(value: Any) -> Tolerance:
    numbers = [value.get(key) if isinstance(value, dict) else None for key in ("rtol", "atol")]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
            raise CannotRunHere(f"finding.json: tolerance {value!a:.80} is not two finite numbers >= 0")
    return Tolerance(rtol=float(numbers[0]), atol=float(numbers[1]))  # type: ignore[arg-type]


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise CannotRunHere(f"finding.json: limit_seconds {value!a:.40} is no time")
    return min(max(float(value), 0.5), LONGEST_SECONDS)


# words of option names by which execution providers and sessions open, load or write files
_REACHES_FILES = re.compile(r"path|dir|folder|file|lib|cache|dump|context|profil|plugin|url|addr", re.IGNORECASE)
_PLAIN_VALUE = re.compile(r"[\w.+:-]{0,64}")


def _ort(value: dict[str, Any]) -> tuple[Ort, tuple[str, ...]]:
    """Return the session options that are safe to take over, and the names of those that are not."""
    dropped: list[str] = []
    level = value.get("optimization_level")
    if level not in LEVELS:
        raise CannotRunHere(f"finding.json: optimization_level {level!a:.40} is none of {', '.join(LEVELS)}")
    providers = _names(value, "providers") or ["CPUExecutionProvider"]
    options = {
        name: _plain(given, dropped)
        for name, given in _get(value, "provider_options", dict).items()
        if name in providers and isinstance(given, dict)
    }
    if value.get("custom_op_libraries"):
        dropped.append("custom_op_libraries")  # code, which is never loaded from a folder
    threads = value.get("threads")
    ort = Ort(
        providers=providers,
        provider_options={name: given for name, given in options.items() if given},
        optimization_level=str(level),
        threads=threads if type(threads) is int and 0 < threads <= 256 else None,
        config=_plain(_get(value, "config", dict), dropped),
        disabled_optimizers=_names(value, "disabled_optimizers"),
    )
    return ort, tuple(dropped)


def _names(value: Mapping[str, Any], key: str) -> list[str]:
    names = _get(value, key, list)
    if len(names) > 256 or not all(isinstance(name, str) and re.fullmatch(r"\w{1,80}", name) for name in names):
        raise CannotRunHere(f"finding.json: {key!r} holds something that is no name")
    return list(names)


def _plain(options: Mapping[str, Any], dropped: list[str]) -> dict[str, str]:
    """Keep options whose names speak of no files and whose values are plain words; note the others."""
    kept: dict[str, str] = {}
    for key, value in options.items():
        if _REACHES_FILES.search(key) or not _PLAIN_VALUE.fullmatch(str(value)) or len(kept) >= 64:
            dropped.append(printable(key, 80))
        else:
            kept[key] = str(value)
    return kept
