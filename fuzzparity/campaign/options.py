"""Options of a campaign, and the places it writes to.

The idea: everything the command line can say about `fuzz` is one frozen record, checked once, before any process
starts.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from fuzzparity.errors import InvalidUsage
from fuzzparity.finding import Finding
from fuzzparity.target import Tolerance
from fuzzparity.verdict import Grade, Kind, Realism

STATE_FOLDER = ".fuzzparity"
TURN_SECONDS = 600.0  # of one build, where a campaign of several has no limit
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


@dataclass(frozen=True, slots=True)
class FailRule:
    """Match findings that make a campaign exit with 1: a grade, a grade with a realism, or a kind."""

    grade: str = ""
    realism: str = ""
    kind: str = ""

    def matches(self, finding: Finding) -> bool:
        """Tell whether a finding falls under this rule."""
        if self.kind:
            return finding.bucket.kind == self.kind
        return finding.verdict.grade.value == self.grade and self.realism in ("", finding.realism.value)


def parse_fail_on(text: str) -> tuple[FailRule, ...]:
    """Return the rules of `--fail-on` ("bug", "bug:near,crash", "never"); InvalidUsage names what is valid."""
    if text == "never":
        return ()
    rules = []
    for part in text.split(","):
        grade, _, realism = part.strip().partition(":")
        if grade in set(Grade) and realism in {"", *Realism}:
            rules.append(FailRule(grade=grade, realism=realism))
        elif grade in set(Kind) and not realism:
            rules.append(FailRule(kind=grade))
        else:
            raise InvalidUsage(
                f"--fail-on {part.strip()!r} is neither a grade ({', '.join(Grade)}; optionally ':' and one of "
                f"{', '.join(Realism)}), nor a kind ({', '.join(Kind)}), nor 'never'"
            )
    return tuple(rules)


def require_engine(name: str) -> None:
    """Raise InvalidUsage where an engine needs a package that is not installed."""
    if name == "atheris" and importlib.util.find_spec("atheris") is None:
        raise InvalidUsage(
            "--engine atheris needs the package atheris, which is not installed: pip install 'fuzzparity[atheris]', "
            "or leave --engine away"
        )


def parse_seconds(text: str) -> float:
    """Return the seconds of a duration such as "90", "90s", "10m", "1h30m"; InvalidUsage otherwise."""
    found = _DURATION.fullmatch(text.strip())
    if not text.strip() or found is None or not any(found.groups()):
        raise InvalidUsage(f"{text!r} is no duration: write 90s, 10m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise InvalidUsage(f"the duration {text!r} is not above zero")
    return total


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Say which target, on which sides: shared by all commands that load one."""

    target: str = ""
    onnx: str | None = None
    torch_file: str | None = None
    seeds: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    provider_options: tuple[str, ...] = ()
    device: str = "cpu"
    dtypes: tuple[str, ...] = ()  # "INPUT=DTYPE": one of the builds that the target asks for
    corpus: Path | None = None
    crashes: Path | None = None
    tolerances: Mapping[str, Tolerance | str] | None = None  # of this call, instead of the target's own
    known: tuple[str, ...] = ()  # ledgers of known issues, besides the one beside the target
    debug: bool = False


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """Hold what the command line of `fuzz` says."""

    target: TargetOptions
    seconds: float | None = None
    cases: int | None = None
    workers: int = 1
    rng_seed: int = 0
    fail_on: tuple[FailRule, ...] = (FailRule(grade="bug"),)
    fresh: bool = False
    force: bool = False
    probe_seconds: float = 180.0
    engine: str = "own"  # "atheris": libFuzzer's loop
    command: str = ""

    def shared(self, builds: int) -> FuzzOptions:
        """Return the share of one of several builds, unless one was asked for; without a limit they take turns."""
        if builds < 2 or self.target.dtypes:
            return self
        seconds = self.seconds / builds if self.seconds is not None else None
        cases = -(-self.cases // builds) if self.cases is not None else None
        return replace(self, seconds=TURN_SECONDS if seconds is None and cases is None else seconds, cases=cases)


@dataclass(frozen=True, slots=True)
class Places:
    """Hold the paths a campaign writes to."""

    corpus: Path
    crashes: Path
    builds: Path
    run: Path  # maps and log of this process; removed at its end


def target_folder(spec: str) -> Path | None:
    """Return the folder of a target given as a folder, None for a file or a module."""
    path = Path(spec)
    return path if path.is_dir() else None


def places(options: TargetOptions, name: str) -> Places:
    """Return where a campaign on target `name` writes; an unwritable place is InvalidUsage.

    Asked with an empty name before the target is loaded, it tries every place that does not depend on the name.
    """
    state = Path(STATE_FOLDER)
    folder = target_folder(options.target)
    if options.corpus is not None:
        corpus = options.corpus
    elif folder is not None and folder.resolve().parent.name == "corpora":
        corpus = folder / "corpus.sqlite"
    else:
        corpus = state / _safe(name) / "corpus.sqlite" if name else state / "corpus.sqlite"
    found = Places(
        corpus,
        options.crashes if options.crashes is not None else Path("crashes"),
        state / "builds",
        state / "run" / str(os.getpid()),
    )
    for path in (found.corpus.parent, found.crashes, found.builds, found.run):
        _make_writable(path)
    return found


def clear_dead_runs(run: Path) -> None:
    """Remove the run folders, beside this process's own, of processes that were killed before they could."""
    for folder in run.parent.iterdir():
        pid = folder.name
        if folder != run and pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name) or "target"


def _make_writable(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidUsage(f"{path} cannot be made: {error.strerror}; choose another place") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise InvalidUsage(f"{path} cannot be written to; choose another --corpus or --crashes, or mend its rights")
