"""Monitoring: be told by the interpreter itself which way the conditions of Python code went (Python 3.12 and later).

The idea: `sys.monitoring` reports the branches of those code objects alone that have a condition; every other place
that it asks about is switched off at the first time, and costs nothing from then on.
"""

from __future__ import annotations

import functools
import sys
import weakref
from types import CodeType
from typing import Any

from fuzzparity.sides.conditions import Condition, Noting, Watched
from fuzzparity.sides.own_code import rank

_FREE = (4, 3)  # of the six tools that there may be, those that Python's documentation gives to nobody
_BRANCHES = ("BRANCH", "BRANCH_LEFT", "BRANCH_RIGHT")  # 3.12 and 3.13 have the first, later ones the others


class Monitoring:
    """Tell a `noting` which way conditions go between `begin` and `end`."""

    def __init__(self, noting: Noting, interpreter: Interpreter) -> None:
        """Bind to whoever takes what is told."""
        self._noting = noting
        self.rank = noting.rank
        self._interpreter = interpreter
        self._has_begun = False
        interpreter.users.add(self)

    def begin(self) -> None:
        """Follow what runs from here on."""
        if not self._has_begun:  # what was switched off for another module may be this one's
            self._has_begun = True
            self._interpreter.restart()
        self._interpreter.noting = self._noting

    def end(self) -> None:
        """Follow no more."""
        self._interpreter.flush()
        self._interpreter.noting = None


def monitoring_of(noting: Noting) -> Monitoring | None:
    """Return a way to follow code by the interpreter's own reports; None where it has none, or no room for a tool."""
    interpreter = _interpreter()
    return Monitoring(noting, interpreter) if interpreter is not None else None


class Interpreter:
    """Hold the one tool of this process, and pass on what it is told to the `noting` at work."""

    def __init__(self, monitoring: Any, tool: int) -> None:
        self.noting: Noting | None = None
        self.users: weakref.WeakSet[Monitoring] = weakref.WeakSet()
        self._monitoring = monitoring
        self._tool = tool
        self._disable = monitoring.DISABLE
        self._by_id: dict[int, tuple[CodeType, Watched | None, int]] = {}  # a code object's own hash is dear
        self._rounds: dict[tuple[int, int], tuple[Condition, str, int]] = {}  # frame, line -> times around a loop
        events = monitoring.events
        branches = [getattr(events, name) for name in _BRANCHES if hasattr(events, name)]
        if len(branches) > 1:  # where there are left and right, the first is but another name for both
            branches = branches[1:]
        self._local = functools.reduce(int.__or__, branches)
        for event in branches:
            monitoring.register_callback(tool, event, self._on_branch)
        monitoring.register_callback(tool, events.PY_RETURN, self._on_return)
        monitoring.register_callback(tool, events.PY_START, self._on_start)
        monitoring.set_events(tool, events.PY_START)

    def restart(self) -> None:
        """Be told again of what was switched off."""
        self._monitoring.restart_events()

    def flush(self) -> None:
        """Tell of loops that an exception has left."""
        for key in list(self._rounds):
            self._tell_rounds(key)

    def _on_start(self, code: CodeType, at: int) -> Any:
        code_rank = rank(code.co_filename)
        if code_rank == 2:
            return self._disable
        noting = self.noting
        if noting is None or code_rank != noting.rank:  # somebody may ask for it yet, if they are there
            return None if any(user.rank == code_rank for user in self.users) else self._disable
        watched = noting.look_at(code)
        if id(code) not in self._by_id:
            self._by_id[id(code)] = code, watched, code_rank
            if watched is not None:
                events = self._local | (self._monitoring.events.PY_RETURN if watched.has_loops else 0)
                self._monitoring.set_local_events(self._tool, code, events)
        return self._disable

    def _on_branch(self, code: CodeType, at: int, to: int) -> Any:
        found = self._by_id.get(id(code))
        if found is None:
            return self._disable
        _, watched, code_rank = found
        if watched is None or (condition := watched.jumps.get(at)) is None:
            return self._disable
        noting = self.noting
        if noting is None or noting.rank != code_rank or (arm := watched.arm(at, to)) is None:
            return None
        if not condition.is_for:
            noting.note_branch(code.co_filename, condition, arm)
            return None
        key = id(sys._getframe(1)), condition.line
        _, _, times = self._rounds.get(key, (condition, "", 0))
        self._rounds[key] = condition, code.co_filename, times + arm
        if not arm:
            self._tell_rounds(key)
        return None

    def _on_return(self, code: CodeType, at: int, value: Any) -> Any:
        frame = id(sys._getframe(1))
        for key in [key for key in self._rounds if key[0] == frame]:
            self._tell_rounds(key)

    def _tell_rounds(self, key: tuple[int, int]) -> None:
        condition, file, times = self._rounds.pop(key)
        if self.noting is not None:
            self.noting.note_branch(file, condition, times)


@functools.cache
def _interpreter() -> Interpreter | None:
    monitoring: Any = getattr(sys, "monitoring", None)
    for tool in _FREE if monitoring is not None else ():
        try:
            monitoring.use_tool_id(tool, "fuzzparity")
        except ValueError:  # someone else's: a debugger's, a coverage tool's
            continue
        return Interpreter(monitoring, tool)
    return None
