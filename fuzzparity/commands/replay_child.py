"""Replay child: run one recorded model in a process of its own; `python -m fuzzparity.commands.replay_child`.

The idea: the parent reads how this process ended and the two files it leaves; dying is one of the answers. It reads
the folder only as data, and nothing in it is imported.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from fuzzparity.case import Array, Case
from fuzzparity.corpus.codec import encode
from fuzzparity.errors import FuzzparityError
from fuzzparity.execution import Execution, Status
from fuzzparity.report.recorded import Recorded, read_recorded
from fuzzparity.verdict import Kind, as_plain
from fuzzparity.work.limits import die_with_parent, limit_memory, memory_budget_bytes, no_core_dump

DONE, UNABLE = 71, 72  # exit codes that no crash is taken for: an answer was written; why there is none was written
REPEATS = 20  # runs of a finding that says "unstable"


def main(folder: Path, out: Path, parent_pid: int) -> int:
    """Run the reproducer in `folder`; leave `phase`, `result.json` and `outputs.safetensors` in `out`."""
    die_with_parent(parent_pid)
    no_core_dump()
    try:
        recorded = read_recorded(folder)
        result = _run(recorded, out)
    except FuzzparityError as error:
        _write(out, {"problem": str(error)})
        return UNABLE
    except MemoryError:
        phase = (out / "phase").read_text() if (out / "phase").exists() else "load"
        result = {"status": Status.OOM.value, "phase": phase}
    _write(out, result)
    return DONE


def _run(recorded: Recorded, out: Path) -> dict[str, Any]:
    from fuzzparity.sides.recorded import open_recorded

    finding = recorded.finding
    budget = memory_budget_bytes(1)
    limit_memory(min(budget, finding.memory_bytes) if finding.kind is Kind.OOM and finding.memory_bytes else budget)
    _enter(out, "load")
    side = open_recorded(recorded.model, finding.feeds, finding.ort)
    if isinstance(side, Execution):
        return as_result(side)
    _enter(out, "run")
    case = Case(recorded.inputs)
    execution = side.run(case)
    result = as_result(execution)
    if finding.kind is Kind.UNSTABLE:
        result["unstable"] = any(_differs(execution, side.run(case)) for _ in range(REPEATS - 1))
    if execution.is_ok:
        names = [str(index) for index in range(len(execution.outputs))]
        (out / "outputs.safetensors").write_bytes(encode(dict(zip(names, execution.outputs, strict=True))))
    return result


def _enter(out: Path, phase: str) -> None:
    """Say which phase begins; by rename, so that the parent never reads half a word."""
    (out / "phase.new").write_text(phase)
    (out / "phase.new").rename(out / "phase")


def as_result(execution: Execution) -> dict[str, Any]:
    """Return an execution as the plain data that the parent reads back."""
    return {"status": execution.status.value, "phase": execution.phase, "refusal": as_plain(execution.refusal)}


def _differs(first: Execution, other: Execution) -> bool:
    """Tell whether two runs of one session differ in any bit."""
    if first.status is not other.status or len(first.outputs) != len(other.outputs):
        return True
    return any(_bits(a) != _bits(b) for a, b in zip(first.outputs, other.outputs, strict=True))


def _bits(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.name, array.shape, array.tobytes()


def _write(out: Path, result: dict[str, Any]) -> None:
    (out / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()
    os._exit(code)  # past destructors: what happens after the answer is no part of the finding
