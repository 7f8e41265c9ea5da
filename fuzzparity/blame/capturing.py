"""Capturing: the line of the user's code at which a captured program leaves the module.

The idea: what the module computes and the captured program does not is the first operator of the other arm, of another
size or of a lost write. Where a decision on a value was taken just before it, or the exporter said which condition it
took for granted, that line is the place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx

from fuzzparity.blame.localize import Located, main_node
from fuzzparity.blame.matching import departure
from fuzzparity.blame.origins import Origin, origin_of
from fuzzparity.values import Event

_DECISIONS = ("_local_scalar_dense", "is_nonzero", "aten.equal", "aten.item")
_NOTED = re.compile(r"(?:decided at|for granted \(|trac\w*[^;]*? at) ?\(?([\w./-]+\.py):(\d+)|^([\w./-]+\.py):(\d+)")


def left_at(
    eager: Sequence[Event],
    captured: Sequence[Event],
    notes: Sequence[str],
    model: onnx.ModelProto,
    relative: Callable[[str], str],
    source_of: Callable[[str], str],
) -> Located | None:
    """Return the place; None where the module computes nothing that the program does not.

    `notes`: what the exporter said. `relative`, `source_of`: absolute "file:line", stack -> "file:line" for people.
    """
    left = list(departure(eager, captured))
    noted = _noted(notes)
    if not left and not noted:
        return None
    place, event = left[0] if left else (0, Event("", ()))
    decision = _decision(eager, place) if left else None
    is_in_arm = bool(event.source) and branch_line(event.source) not in ("", event.source)
    taken = _decided_by(eager, place) if left and decision is None and not is_in_arm else None
    if taken is not None:  # what a condition alone needs is not computed either: the arm comes after it
        decision = eager[taken]
        place, event = next(((at, one) for at, one in left if at > taken), (place, event))
    source = relative(event.source) if event.source else ""
    guard = _guard(noted, source)
    is_other_arm = bool(event.op) and all(event.op != one.op for one in captured)
    branch = branch_line(event.source) if is_other_arm else ""
    if decision is not None:
        line, why = relative(decision.source), "a decision on a value that the capture froze"
    elif guard:
        line, why = guard, "a condition that the exporter took for granted"
    elif branch:
        line, why = relative(branch), "a condition on sizes, of which the capture kept the other arm"
    else:
        line, why = source, "the captured program gives another value here"
    nodes = [node for node in model.graph.node if source and source_of(origin_of(node).stack) == source]
    op, name, origin = "", "", Origin()
    if nodes:
        node = main_node(nodes, Origin(target=event.op))
        op, name, origin = node.op_type, node.name, origin_of(node)
    departs = f"; from {event.op} ({source}) on it computes something else" if event.op else ""
    how = f"born at {line}: {why}{departs}"
    return Located(op, name, origin.fx_node, origin.module, "", line, how, is_guess=not (decision or guard or branch))


def _decision(eager: Sequence[Event], place: int) -> Event | None:
    """Return the last decision on a value before an event, where nothing but its own condition lies between."""
    for event in reversed(eager[:place]):
        if any(sign in event.op for sign in _DECISIONS):
            return event
    return None


def _decided_by(eager: Sequence[Event], place: int) -> int | None:
    """Return the place of the decision on a value that an operator's outputs lead to; None where they lead to none."""
    live = {id(array) for array in eager[place].outputs}
    for at in range(place + 1, len(eager)):
        event = eager[at]
        if not any(id(array) in live for array in event.inputs):
            continue
        if any(sign in event.op for sign in _DECISIONS):
            return at
        live |= {id(array) for array in event.outputs}
    return None


def branch_line(source: str) -> str:
    """Return the "file:line" of the `if` that holds a line, or that returns before it; "" without one."""
    file, _, number = source.rpartition(":")
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return ""
    line = int(number)
    functions = [
        n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.lineno <= line <= (n.end_lineno or 0)
    ]
    if not functions:
        return ""
    function = max(functions, key=lambda n: n.lineno)
    found = [n for n in ast.walk(function) if isinstance(n, ast.If | ast.IfExp | ast.While) and n.lineno <= line]
    holding = [n for n in found if line <= (n.end_lineno or 0)]
    leaving = [n for n in found if isinstance(n, ast.If) and isinstance(n.body[-1], ast.Return | ast.Raise)]
    chosen = holding or leaving
    return f"{file}:{max(n.test.lineno for n in chosen)}" if chosen else ""


def _noted(notes: Sequence[str]) -> list[str]:
    found = []
    for note in notes:
        for match in _NOTED.finditer(note):
            file, line = (match[1], match[2]) if match[1] else (match[3], match[4])
            found.append(f"{file}:{line}")
    return list(dict.fromkeys(found))


def _guard(noted: Sequence[str], source: str) -> str:
    """Return the noted line nearest before a source line; the only one where there is no such line."""
    file, _, line = source.rpartition(":")
    same = [one for one in noted if file and one.rpartition(":")[0].endswith(file.rpartition("/")[2])]
    before = [one for one in same if int(one.rpartition(":")[2]) <= int(line or 0)]
    if before:
        return max(before, key=lambda one: int(one.rpartition(":")[2]))
    return noted[0] if len(noted) == 1 else ""
