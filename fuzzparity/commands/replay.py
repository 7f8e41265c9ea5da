"""Replay: run a reproducer's model on its inputs in today's ONNX Runtime and say whether the finding still shows.

The idea: the folder is data, from whomever it comes. A child of our own code runs the model, so that a crash or a hang
is an answer; the answer is judged here, against torch's recorded outputs under the finding's recorded tolerance.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

from fuzzparity.case import Array
from fuzzparity.commands.database import finding_payload
from fuzzparity.commands.replay_child import DONE, UNABLE
from fuzzparity.corpus.codec import decode
from fuzzparity.errors import CannotRunHere, FuzzparityError, InvalidUsage
from fuzzparity.execution import ORT, Execution, Refusal, Status
from fuzzparity.finding import Finding
from fuzzparity.oracle.compare import Allowance, compare
from fuzzparity.oracle.regions import compare_regions
from fuzzparity.oracle.where import cleared
from fuzzparity.report.clean import printable
from fuzzparity.report.content import COMPARING, DEFAULT_ALLOWED, IMPORT_OF_TARGET, regions_of, said
from fuzzparity.report.recorded import MOST_TENSOR_BYTES, Recorded, RecordedFinding, read_recorded
from fuzzparity.report.reproducer import content_of_payload, write_reproducer
from fuzzparity.target import Tolerance
from fuzzparity.verdict import Kind

START_SECONDS = 120.0  # for imports on a busy machine; the finding's own limit counts from each phase's beginning
_POLL_SECONDS = 0.02


class State(StrEnum):
    """Name what a replay found."""

    SHOWS = "shows"
    GONE = "gone"
    CANNOT_RUN = "cannot_run"


EXIT_CODES = {State.SHOWS: 1, State.GONE: 0, State.CANNOT_RUN: 125}


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Say what a replay found; `text` is what happened, a line each, fit for a terminal."""

    state: State
    text: str
    finding_id: str = ""
    headline: str = ""
    finding: Finding | None = None  # as it was recorded, where that makes one

    @property
    def exit_code(self) -> int:
        """Return 1 when the finding shows, 0 when it is gone, 125 when it cannot be judged here."""
        return EXIT_CODES[self.state]


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """Say how the child ended; `execution` is the ORT side's, made from the death where it died."""

    execution: Execution | None = None
    is_unstable: bool = False
    problem: str = ""


def replay(path: Path) -> ReplayOutcome:
    """Replay one reproducer's folder; whatever is wrong with it is one message in the outcome, never an exception."""
    try:
        recorded = read_recorded(path)
    except CannotRunHere as error:
        return ReplayOutcome(State.CANNOT_RUN, printable(error), finding_id=printable(path.name, 120))
    finding = recorded.finding
    lines = environment_lines(finding)
    if finding.standalone == IMPORT_OF_TARGET:
        lines.append(
            "the finding is in the torch side, which only your own target can run: `python repro.py` in the folder "
            "imports it, if you trust it"
        )
        return ReplayOutcome(State.CANNOT_RUN, "\n".join(lines), finding.finding_id, finding.headline, finding.whole)
    state, text = judge(recorded, run_child(path, finding.limit_seconds))
    return ReplayOutcome(state, "\n".join([*lines, *text]), finding.finding_id, finding.headline, finding.whole)


def replay_all(crashes: Path) -> Iterator[ReplayOutcome]:
    """Replay every reproducer in a folder, by name, each as soon as it is asked for."""
    if not crashes.is_dir():
        raise InvalidUsage(f"{crashes} is no folder; give the folder that holds reproducers (--crashes)")
    for folder in sorted(crashes.iterdir()):
        if folder.is_dir() and not folder.name.startswith("."):
            yield replay(folder)


def replay_each(what: Sequence[str], crashes: Path, corpus: str | None = None) -> Iterator[ReplayOutcome]:
    """Replay reproducers by folder, by id or id prefix under `crashes`, or by id from the database alone."""
    for name in what:
        folders = [Path(name)] if Path(name).is_dir() else _folders(crashes, name)
        if len(folders) > 1:
            raise InvalidUsage(f"{name!r} names several: {', '.join(folder.name for folder in folders[:8])}")
        yield replay(folders[0]) if folders else _replay_stored(name, crashes, corpus)


def _folders(crashes: Path, name: str) -> list[Path]:
    """Return the reproducers under `crashes` whose id is, or else begins with, `name`."""
    if os.sep in name or not crashes.is_dir():
        return []
    if name and (crashes / name / "finding.json").exists():
        return [crashes / name]
    return sorted(entry for entry in crashes.iterdir() if name and entry.name.startswith(name) and entry.is_dir())


def _replay_stored(name: str, crashes: Path, corpus: str | None) -> ReplayOutcome:
    """Write the reproducer of a stored finding to a temporary folder and replay it there."""
    if os.sep in name:
        raise InvalidUsage(f"{name} is no folder; give a reproducer's folder or a finding's id")
    try:
        _, payload = finding_payload(name, corpus)
    except InvalidUsage as error:
        raise InvalidUsage(f"no reproducer {name!r} under {crashes}; {error}") from None
    with tempfile.TemporaryDirectory(prefix="fuzzparity-replay-") as folder:
        return replay(write_reproducer(Path(folder), content_of_payload(payload)))


def environment_lines(finding: RecordedFinding) -> list[str]:
    """Return what differs between the recorded versions and those here, and which options were left out."""
    lines = []
    for name in ("onnxruntime", "numpy"):
        recorded, here = finding.packages.get(name), installed_version(name)
        if recorded is not None and recorded != here:
            lines.append(f"environment differs: {name} {here} here, {recorded} recorded")
    if finding.dropped:
        lines.append(f"session options not taken over from the folder: {', '.join(finding.dropped)}")
    return lines


def installed_version(package: str) -> str:
    """Return the version of an installed package, its GPU wheel included."""
    for name in (package, f"{package}-gpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "not installed"


def run_child(folder: Path, limit_seconds: float) -> ChildEnd:
    """Run the recorded model in a process group of its own; return how it ended."""
    with tempfile.TemporaryDirectory(prefix="fuzzparity-replay-") as name:
        out = Path(name)
        command = [sys.executable, "-m", "fuzzparity.commands.replay_child", str(folder.resolve()), name]
        with (out / "errors").open("wb") as errors:
            process = subprocess.Popen(
                [*command, str(os.getpid())],
                cwd=name,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"},
            )
        try:
            timed_out = not _wait(process, out, limit_seconds)
        finally:
            _kill_group(process)
        return _child_end(out, process.returncode, timed_out)


def _wait(process: subprocess.Popen[bytes], out: Path, limit_seconds: float) -> bool:
    """Wait for the child; False when a phase ("" while it starts, "load", "run") takes longer than it may."""
    phase, deadline = "", time.monotonic() + START_SECONDS
    while process.poll() is None:
        if phase != (phase := _phase(out)):
            deadline = time.monotonic() + limit_seconds
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _phase(out: Path) -> str:
    return (out / "phase").read_text() if (out / "phase").exists() else ""


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # the group ended by itself
    process.wait()


def _child_end(out: Path, code: int, timed_out: bool) -> ChildEnd:
    """Return the child's end as an execution of the ORT side, or why there is none."""
    phase = _phase(out)
    if code == UNABLE and not timed_out:
        return ChildEnd(problem=str(_result(out).get("problem", "")))
    if code == DONE and not timed_out:
        return _answer(out)
    if not phase:
        told = (out / "errors").read_text(errors="replace").strip().splitlines()
        why = f"no answer within {START_SECONDS:.0f} s" if timed_out else told[-1] if told else f"it ended with {code}"
        return ChildEnd(problem=f"the replaying process could not start: {printable(why, 300)}")
    if timed_out:
        return ChildEnd(Execution(ORT, Status.HANG, phase=phase))
    if code in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
        return ChildEnd(problem=f"the replaying process was stopped from outside by signal {-code}")
    ended: dict[str, Any] = {"signal": -code} if code < 0 else {"exit_code": code}
    return ChildEnd(Execution(ORT, Status.CRASHED, phase=phase, **ended))


def _result(out: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    return result


def _answer(out: Path) -> ChildEnd:
    result = _result(out)
    outputs: tuple[Array, ...] = ()
    if (out / "outputs.safetensors").exists():
        try:
            arrays = decode((out / "outputs.safetensors").read_bytes(), max_bytes=MOST_TENSOR_BYTES)
        except FuzzparityError as error:
            return ChildEnd(problem=f"the outputs cannot be read: {error}")
        outputs = tuple(arrays[str(index)] for index in range(len(arrays)))
    refusal = Refusal(**result["refusal"]) if result.get("refusal") else None
    execution = Execution(ORT, Status(result["status"]), outputs, refusal, result["phase"])
    return ChildEnd(execution, bool(result.get("unstable")))


# what ORT says when this installation, not the finding, is the reason
_NOT_HERE = ("Unsupported model IR version", "is under development", "is not a registered function/op")


def judge(recorded: Recorded, end: ChildEnd) -> tuple[State, list[str]]:
    """Return whether the finding shows in what the child did, and the lines that say why."""
    execution, finding = end.execution, recorded.finding
    if execution is None:
        return State.CANNOT_RUN, [printable(end.problem)]
    lines = [printable(f"ONNX Runtime {said(execution)}", 600)]
    if execution.status is Status.OK:
        state, more = _judge_answer(recorded, execution, end.is_unstable)
        return state, lines + more
    if execution.status is Status.REFUSED:
        return _judge_refusal(finding, execution), lines
    shown = {Status.CRASHED: (Kind.CRASH, Kind.OOM), Status.HANG: (Kind.HANG,), Status.OOM: (Kind.OOM,)}
    if finding.side == "ort" and finding.kind in shown[execution.status]:
        is_kill = execution.signal == signal.SIGKILL and finding.signal != signal.SIGKILL
        if not (is_kill and finding.kind is Kind.CRASH):
            return State.SHOWS, lines
    return State.CANNOT_RUN, [*lines, f"that is another fault than the recorded one ({finding.kind.value})"]


def _judge_refusal(finding: RecordedFinding, execution: Execution) -> State:
    message = execution.refusal.message if execution.refusal else ""
    if any(mark in message for mark in _NOT_HERE) and finding.kind is not Kind.LOAD_ERROR:
        return State.CANNOT_RUN
    if finding.kind in (Kind.ERROR_SPLIT, Kind.LOAD_ERROR) and finding.side == "ort":
        return State.SHOWS if execution.phase == finding.phase else State.CANNOT_RUN
    is_gone = finding.kind in (Kind.ERROR_SPLIT, Kind.CRASH, Kind.HANG, Kind.OOM)  # a clean refusal instead of a death
    return State.GONE if is_gone else State.CANNOT_RUN


def _judge_answer(recorded: Recorded, execution: Execution, is_unstable: bool) -> tuple[State, list[str]]:
    finding = recorded.finding
    if finding.kind is Kind.UNSTABLE:
        state = State.SHOWS if is_unstable else State.GONE
        return state, ["repeated runs differ" if is_unstable else "repeated runs gave the same bits"]
    if finding.kind is Kind.ERROR_SPLIT and finding.side == "torch":
        return State.SHOWS, ["torch refused this case when it was recorded"]
    if finding.kind not in COMPARING:
        state = State.CANNOT_RUN if finding.kind in (Kind.LEAK, Kind.SLOW) else State.GONE
        return state, []
    if recorded.expected is None:
        return State.CANNOT_RUN, ["expected.safetensors is missing: there is nothing to compare with"]
    return _compare(recorded.finding, recorded.expected, execution.outputs, recorded.masks)


def _compare(
    finding: RecordedFinding, expected: dict[str, Array], outputs: tuple[Array, ...], masks: dict[str, Array]
) -> tuple[State, list[str]]:
    """Compare with torch's recorded outputs; the finding's own output decides where it names one."""
    if len(expected) != len(outputs):
        return State.SHOWS, [f"torch gave {len(expected)} outputs, ONNX Runtime {len(outputs)}"]
    names = finding.outputs if set(finding.outputs) == set(expected) else tuple(expected)
    ratios, lines = {}, []
    regions = regions_of(finding.regions, names)
    for name, actual in zip(names, outputs, strict=True):
        default = DEFAULT_ALLOWED.get(expected[name].dtype.name, Tolerance())
        tolerance = finding.allowed.get(name, default)
        first, other = cleared((expected[name], actual), (masks.get(name),) * 2)
        allowance = Allowance(tolerance.rtol, tolerance.atol)
        found = (
            compare_regions(first, other, regions[name], allowance)
            if name in regions
            else compare(first, other, allowance)
        )
        ratios[name] = found.error_ratio
        place = f" at {list(found.index)}: torch {found.expected_at}, ORT {found.actual_at}" if found.index else ""
        lines.append(
            printable(f"{name}: {found.kind.value}, error ratio {found.error_ratio:.3g}{place} {found.detail}")
        )
    watched = [finding.output] if finding.output in ratios else list(ratios)
    return (State.SHOWS if any(ratios[name] > 1 for name in watched) else State.GONE), lines
