"""Which way the conditions of Python code went: told alike by the lines that run and by the interpreter's branches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from fuzzparity.sides import monitoring
from fuzzparity.sides.conditions import Condition, Watched, conditions_of
from fuzzparity.sides.monitoring import Monitoring, monitoring_of
from fuzzparity.sides.own_code import rank
from fuzzparity.sides.tracing import Tracing

# fmt: off
# ruff: noqa: E701


def blocks(n: int) -> int:
    if n > 3:
        n = n + 1
    elif n == 2 or n == 3:
        n = n * 2
    else:
        pass
    if not (n > 100 and n < 200):
        return n
    return -n


def rounds(n: int) -> int:
    total = 0
    for i in range(n):
        if i % 2 == 0:
            continue
        for j in range(n):
            if j > i: break
            total += j
    while total > n:
        total -= n + 1
    return total


def expressions(n: int) -> int:
    y = n * 2 if n > 3 else n
    y = (1 if n > 1 and n < 5 else 2) + (y or 7)
    z = n > 2 and y + 1
    if n > 5: y = y + 1
    for i in range(n): y += i
    return y + int(z) if y > n else -1


def loops_end(n: int) -> int:
    for i in range(n):
        if i > 1:
            n += 1
    while n > 4:
        n -= 3
        if n == 2: n = 0
    else:
        n += 1
    for i in range(n):
        if i: return i
    return n


def spread(n: int) -> int:
    y = (
        n + 1
        if n > 3
        else n - 1
    )
    if (
        n > 1
        and y > 2
    ):
        y = y + 1
    return [y, 0][n == 5] if sum(1 for i in range(n) if i) > 2 else y


def inner(n: int) -> int:
    if n == 0:
        return 0
    return n + inner(n - 1)


def caught(n: int) -> int:
    try:
        for i in range(n):
            if i > 1:
                raise ValueError(i)
    except ValueError:
        if n > 3:
            return 1
    return 0


def settled(n: int, mask: object = None) -> int:
    if mask is not None:
        return n
    return n + 1


class Notes:
    """Note (line from the function's first, outcome)."""

    rank = 0

    def __init__(self) -> None:
        self.found: list[tuple[int, int]] = []
        self.arms: dict[int, int] = {}
        self.failed = ""

    def look_at(self, code: CodeType) -> Watched | None:
        return conditions_of(code) if rank(code.co_filename) == self.rank else None

    def note_branch(self, file: str, condition: Condition, outcome: int) -> int:
        self.found.append((condition.line, outcome))
        return self.arms.get(condition.line, outcome)

    def fail(self, why: str) -> None:
        self.failed = why


def followed(way: Callable[[Notes], Tracing | Monitoring | None], function: Any, n: int) -> list[tuple[int, int]]:
    notes = Notes()
    following = way(notes)
    assert following is not None
    following.begin()
    try:
        function(n)
    finally:
        following.end()
    assert not notes.failed
    first = function.__code__.co_firstlineno
    return [(line - first, outcome) for line, outcome in notes.found]


WAYS = [Tracing] + ([monitoring_of] if sys.version_info >= (3, 12) else [])
ALL = (blocks, rounds, expressions, loops_end, spread, inner, caught, settled)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("function", "n", "expected"),
    [
        (blocks, 5, [(1, 1), (7, 1)]),
        (blocks, 3, [(1, 0), (3, 1), (7, 1)]),
        (blocks, 0, [(1, 0), (3, 0), (7, 1)]),
        (blocks, 150, [(1, 1), (7, 0)]),
        (rounds, 2, [(3, 1), (3, 0), (6, 0), (6, 0), (5, 2), (2, 2), (8, 0)]),
        (rounds, 3, [(3, 1), (3, 0), (6, 0), (6, 0), (6, 1), (3, 1), (2, 3), (8, 0), (5, 3)]),
        (expressions, 4, [(1, 1), (2, 1), (2, 1), (3, 1), (4, 0), (5, 4), (6, 1)]),
        (expressions, 0, [(1, 0), (2, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 1)]),
        (loops_end, 1, [(2, 0), (1, 1), (4, 0), (10, 0), (10, 1), (9, 2)]),
        (spread, 4, [(3, 1), (6, 1), (11, 1)]),
        (spread, 1, [(3, 0), (6, 0), (11, 0)]),
        (inner, 2, [(1, 0), (1, 0), (1, 1)]),
        (settled, 2, []),
    ],
)
def test_conditions_are_told_with_their_outcomes(
    way: Any, function: Any, n: int, expected: list[tuple[int, int]]
) -> None:
    assert followed(way, function, n) == expected


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the interpreter tells no branches")
@pytest.mark.parametrize("function", ALL)
def test_both_ways_tell_the_same(function: Any) -> None:
    for n in (0, 1, 2, 3, 4, 5, 6, 7, 9):
        assert followed(monitoring_of, function, n) == followed(Tracing, function, n)
        assert followed(monitoring_of, function, n) == followed(Tracing, function, n)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the interpreter tells no branches")
def test_where_other_tools_hold_the_places_there_is_no_monitoring() -> None:
    assert monitoring_of(Notes()) is not None
    held = [tool for tool in (3, 4) if sys.monitoring.get_tool(tool) is None]
    for tool in held:
        sys.monitoring.use_tool_id(tool, "someone else")
    try:
        assert monitoring._interpreter.__wrapped__() is None
    finally:
        for tool in held:
            sys.monitoring.free_tool_id(tool)


def test_nothing_is_told_outside_of_its_time() -> None:
    for way in WAYS:
        notes = Notes()
        following = way(notes)
        assert following is not None
        blocks(5)
        following.begin()
        blocks(5)
        following.end()
        blocks(5)
        assert len(notes.found) == 2
    assert sys.gettrace() is None
