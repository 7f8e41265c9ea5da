"""Judging: whether a finding is the planted fault itself, only of its kind, or something else.

The idea: "something differs" is no find. A finding counts where its kind and grade are the fault's and, where the fault
has a place, it names the fault's operator, node or source line; beside other faults only the node tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planted.faults import Fault
from planted.sets import TWINS, Twin

ITSELF, KIND = "itself", "kind"
_REAL = "other_faults.py"  # the file whose lines faults of exporters name


@dataclass(frozen=True)
class Wanted:
    """Say what a finding of one fault may look like."""

    name: str
    kinds: tuple[str, ...]
    grades: tuple[str, ...] = ("bug",)
    blames: tuple[str, ...] = ()
    nodes: str = ""  # what the name of its nodes begins with; none: the place is not asked for
    ops: tuple[str, ...] = ()
    source: str = ""
    lines: tuple[str, ...] = ()  # of torch's own function that the fault stands for

    def level(self, finding: Mapping[str, Any]) -> str:
        """Return how well a finding fits: `ITSELF`, `KIND` (the place is missing or another), or ""."""
        if finding["kind"] not in self.kinds or finding["grade"] not in self.grades:
            return ""
        if self.blames:
            return ITSELF if _is_among(str(finding["blame"]), self.blames) else KIND
        if not (self.nodes or self.ops or self.source):
            return ITSELF
        where = finding["where"]
        named = [
            bool(self.nodes) and str(where.get("onnx_node", "")).startswith(f"{self.nodes}/"),
            where.get("op", "") in self.ops,
            bool(self.source) and str(where.get("source", "")).endswith(f"{_REAL}{self.source}"),
            str(where.get("source", "")).endswith(self.lines),
        ]
        return ITSELF if any(named) else KIND


def _is_among(blame: str, blames: Sequence[str]) -> bool:
    """Tell whether a blame is one of those accepted; "kernel" accepts every kernel."""
    return any(blame == one or blame.startswith(f"{one}:") or blame.startswith(f"{one},") for one in blames)


@dataclass(frozen=True)
class Subject:
    """Hold what is fuzzed: a spec for the command line, a setting, and what there is to find. None: a control."""

    name: str
    setting: str
    spec: str
    wanted: tuple[Wanted, ...]
    case: Path | None = None


def planted_subject(twin: Twin, targets: Path) -> Subject:
    """Return a planted twin as a subject."""
    alone = twin.setting == "alone"
    wanted = tuple(_wanted(fault, alone=alone) for fault in twin.faults)
    return Subject(twin.name, twin.setting, f"{targets}:{twin.name}", wanted)


def planted_subjects(targets: Path) -> list[Subject]:
    """Return every planted twin."""
    return [planted_subject(twin, targets) for twin in TWINS.values()]


def _wanted(fault: Fault, *, alone: bool) -> Wanted:
    kinds = set(fault.kinds)
    if not alone and kinds & {"nonfinite", "shape"}:
        kinds.add("numeric")  # right layers after it make numbers of it
    nodes = fault.name if fault.has_place and fault.wrong else ""
    ops = fault.places if alone and fault.has_place else ()
    if fault.name == "epsilon_of_half":
        nodes, ops = fault.name, ("ReduceL2", "Add", "Div")
    if fault.name == "rare_tokens" and alone:
        ops = ("Min", "Gather")
    lines = _lines_of(fault) if fault.has_place and fault.wrong else ()
    return Wanted(fault.name, tuple(sorted(kinds)), fault.grades, (), nodes, ops, fault.source, lines)


def _lines_of(fault: Fault) -> tuple[str, ...]:
    """Return the lines ("planted/value_faults.py:22") of the function that a fault takes the place of.

    A step that is missing in the graph is told by torch's line of it: no node stands for it.
    """
    code = getattr(fault.right, "__code__", None)
    if code is None or Path(code.co_filename).parent.name != "planted":
        return ()
    first = code.co_firstlineno if code.co_name != "<lambda>" else 0  # the line of a `def` does nothing
    numbers = {line for *_, line in code.co_lines() if line not in (None, first)}
    return tuple(f"planted/{Path(code.co_filename).name}:{line}" for line in sorted(numbers))


# Published cases: a folder with a table of what a fair judge accepts


def case_subjects(folder: Path) -> list[Subject]:
    """Return the cases of a folder whose README has a row for each: file, kind, grade and blame among its columns."""
    table = [line for line in (folder / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    heads = _cells(table[0])
    subjects = []
    for line in table[2:]:
        row = dict(zip(heads, _cells(line), strict=False))
        path = folder / row["file"]
        wanted = ()
        if row["kind"] != "none":
            wanted = (Wanted(path.stem, _either(row["kind"]), _either(row["grade"]), _either(row["blame"])),)
        subjects.append(Subject(path.stem, "case" if wanted else "control", str(path), wanted, path))
    return subjects


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _either(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(" or "))
