"""Tracing: follow the lines of Python code, and tell from those which way its conditions went.

The idea: the interpreter's trace function is called for each line of those functions alone that have a condition, and
for each instruction of those lines alone on which a condition shares with its arms. It may also send code to another
line, into the other arm.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from fuzzparity.sides.conditions import Condition, Noting, Watched

# Python 3.12 follows instructions only if some frame asked for it before the trace function was set
_ASKS_FIRST = sys.version_info[:2] == (3, 12)


class Tracing:
    """Tell a `noting` which way conditions go between `begin` and `end`."""

    def __init__(self, noting: Noting) -> None:
        """Bind to whoever takes what is told."""
        self._noting = noting
        self._by_id: dict[int, tuple[CodeType, Watched | None]] = {}  # a code object's own hash reads its bytecode
        self._on_call = self._call_follower()

    def begin(self) -> None:
        """Follow what runs from here on, unless someone else does: a debugger's or a coverage tool's function stays."""
        if sys.gettrace() is None:
            if _ASKS_FIRST:
                sys._getframe().f_trace_opcodes = True
            sys.settrace(self._on_call)

    def end(self) -> None:
        """Follow no more."""
        if sys.gettrace() is self._on_call:
            sys.settrace(None)

    def _call_follower(self) -> Callable[[FrameType, str, Any], Any]:
        """Return the trace function: called for every Python function that is called, so a closure of few steps."""
        by_id, noting = self._by_id, self._noting

        def on_call(frame: FrameType, event: str, arg: Any) -> Any:
            code = frame.f_code
            try:
                _, watched = by_id[id(code)]
            except KeyError:
                watched = noting.look_at(code)
                by_id[id(code)] = code, watched  # which keeps it, and so its id
            return None if watched is None else Follower(noting, watched, code.co_filename).follow

        return on_call


class Follower:
    """Follow the lines of one call of one function."""

    __slots__ = ("_counts", "_file", "_jump", "_noting", "_pending", "_watched")

    def __init__(self, noting: Noting, watched: Watched, file: str) -> None:
        self._noting = noting
        self._watched = watched
        self._file = file
        self._pending: Condition | None = None
        self._jump: int | None = None
        self._counts: dict[int, tuple[Condition, int]] = {}  # by line

    def follow(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Take one event of the interpreter's trace."""
        if event == "line":
            self._line(frame)
        elif event == "opcode":
            self._opcode(frame)
        elif event == "return":
            self._pending_ends(0)
            for condition, count in self._counts.values():
                self._noting.note_branch(self._file, condition, count)
        elif event == "exception":
            self._pending = self._jump = None
        return self.follow

    def _line(self, frame: FrameType) -> None:
        if self._watched.odd_jumps:
            self._arrive(frame.f_lasti)
            frame.f_trace_opcodes = frame.f_lineno in self._watched.odd_lines  # each step of them, and no other
        line, pending = frame.f_lineno, self._pending
        if pending is not None and not pending.line <= line <= pending.last_line:
            self._pending = None
            outcome = 1 if pending.first <= line <= pending.final else 0
            if pending.is_for:
                self._count(pending, outcome)
            elif self._noting.note_branch(self._file, pending, outcome) != outcome:
                line = self._send(frame, pending, 1 - outcome)
        if (condition := self._watched.by_line.get(line)) is not None:
            self._pending = condition

    def _pending_ends(self, outcome: int) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        if pending.is_for:
            self._count(pending, outcome)
        elif self._noting.note_branch(self._file, pending, outcome) != outcome:
            self._noting.fail("the function has returned")

    def _count(self, condition: Condition, goes_on: int) -> None:
        """Count one more time around a loop; at its end, record how often it went around."""
        _, count = self._counts.pop(condition.line, (condition, 0))
        if goes_on:
            self._counts[condition.line] = (condition, count + 1)
        else:
            self._noting.note_branch(self._file, condition, count)

    def _send(self, frame: FrameType, condition: Condition, arm: int) -> int:
        """Go on at the other arm's first line, and return it."""
        line = condition.first if arm else condition.other
        if line is None:
            self._noting.fail("what follows is outside of its block")
            return frame.f_lineno
        try:
            frame.f_lineno = line  # type: ignore[misc]  # CPython lets a trace function set it
        except ValueError as error:  # CPython refuses jumps into and out of loops and the like
            self._noting.fail(str(error))
        return frame.f_lineno

    def _opcode(self, frame: FrameType) -> None:
        at = frame.f_lasti
        self._arrive(at)
        if at in self._watched.odd_jumps:
            self._jump = at

    def _arrive(self, at: int) -> None:
        """Record where the jump before led to, if there was one."""
        jump, self._jump = self._jump, None
        if jump is None or (arm := self._watched.arm(jump, at)) is None:
            return
        condition = self._watched.jumps[jump]
        if condition.is_for:
            self._count(condition, arm)
        elif self._noting.note_branch(self._file, condition, arm) != arm:
            self._noting.fail("both arms stand in one line")
