"""Conditions: where the Python code of a function decides, and which of its lines follow which decision.

The idea: source and bytecode are read once for each code object. A condition that names nothing but `self` and
globals, or only asks what is None, comes out the same for every input and is left out, so that most models have
nothing to watch.
"""

from __future__ import annotations

import ast
import dis
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Protocol

from fuzzparity.sides.own_code import functions_in

Span = tuple[int, int, int, int]  # first line, first column, last line, last column
_FIXED_CALLS = frozenset({"isinstance", "issubclass", "hasattr", "callable", "is_tensor"})
_CONDITIONAL = frozenset(name for name in dis.opmap if "JUMP" in name and "_IF_" in name)
_IDLE = frozenset({"POP_TOP", "COPY", "SWAP", "NOP", "NOT_TAKEN", "TO_BOOL", "EXTENDED_ARG", "CACHE"})  # decide nothing
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Condition:
    """Hold one `if`, `while`, `for`, conditional expression, or `and` or `or` of an expression.

    `line` to `last_line`: where it is decided. `first`, `final`: lines of what runs where it holds. `other`: the line
    at which the code goes on where it does not, None where that is no line of its own block. `test`, `body`: the
    places of both in the text.
    """

    line: int
    last_line: int
    first: int
    final: int
    other: int | None
    test: Span
    body: Span
    is_for: bool = False
    is_loop: bool = False
    is_or: bool = False  # what stands for the body is then run where the test does not hold

    @property
    def has_own_lines(self) -> bool:
        """Tell whether the line that runs next tells how it was decided."""
        return self.first > self.last_line


class Watched:
    """Hold the conditions of one code object. `by_line`: those that the line which runs next tells.

    `jumps`: all of them by the offsets of their jumps, `odd_jumps` those that no line tells, on `odd_lines`.
    """

    def __init__(self, code: CodeType, found: Sequence[Condition]) -> None:
        """Find the jumps of the conditions of a code object."""
        self.by_line = {line: one for one in found if one.has_own_lines for line in range(one.line, one.last_line + 1)}
        self.found = tuple(found)
        self.has_loops = any(one.is_for for one in found)
        self.jumps: dict[int, Condition] = {}
        self._steps = list(dis.get_instructions(code))
        self._index = {step.offset: place for place, step in enumerate(self._steps)}
        spans = [_span(*place) for place in code.co_positions()]
        self._spans = [spans[step.offset // 2] for step in self._steps]
        self._arms: dict[tuple[int, int], int | None] = {}
        for place, step in enumerate(self._steps):
            condition = self._condition_of(place, found)
            if condition is not None:
                self.jumps[step.offset] = condition
        self.odd_jumps = {offset: one for offset, one in self.jumps.items() if not one.has_own_lines}
        odd = [one for one in found if not one.has_own_lines]
        self.odd_lines = frozenset(line for one in odd for line in range(one.line, one.last_line + 1))

    def arm(self, jump: int, arrival: int) -> int | None:
        """Return 1 or 0 for a jump at one offset that arrives at another, None where the condition goes on."""
        key = jump, arrival
        if key not in self._arms:
            condition = self.jumps[jump]
            arm = self._round(jump, arrival) if condition.is_for else self._way(condition, arrival)
            self._arms[key] = 1 - arm if condition.is_or and arm is not None else arm
        return self._arms[key]

    def _condition_of(self, place: int, found: Sequence[Condition]) -> Condition | None:
        """Return the condition that an instruction decides, the innermost."""
        step, span = self._steps[place], self._spans[place]
        if step.opname == "FOR_ITER":
            return next((one for one in found if one.is_for and _iterates(span, one)), None)
        if step.opname not in _CONDITIONAL:
            return None
        holding = [one for one in found if not one.is_for and self._tests(place, one)]
        return min(holding, key=lambda one: (one.test[2] - one.test[0], -one.test[1], one.test[3]), default=None)

    def _tests(self, place: int, condition: Condition) -> bool:
        """Tell whether a conditional jump is one of a condition's own.

        By the place of what is tested: that of the jump itself may be the whole statement's.
        """
        while place > 0 and self._steps[place - 1].opname in _IDLE:
            place -= 1
        span = self._spans[place - 1] if place else None
        return span is not None and _is_in(span, condition.test)

    def _round(self, jump: int, arrival: int) -> int:
        """Return whether a loop goes on: its body lies before the place that it leaves to."""
        return int(jump < arrival < int(self._steps[self._index[jump]].argval))

    def _way(self, condition: Condition, arrival: int) -> int | None:
        """Return the arm that an arrival belongs to; what has no place of its own leads on to something that has."""
        place = self._index.get(arrival)
        seen: set[int] = set()
        while place is not None and place < len(self._steps) and place not in seen:
            seen.add(place)
            step, span = self._steps[place], self._spans[place]
            if span is not None and _is_in(span, condition.body):
                return 1
            if step.opname in _CONDITIONAL and self._tests(place, condition):
                return None
            is_inside = span is None or _is_in(span, condition.test)
            if not is_inside and step.opname not in _IDLE:
                return 0
            if step.opname.startswith(("RETURN", "RAISE", "RERAISE")):
                return 0
            is_jump = "JUMP" in step.opname and step.opname not in _CONDITIONAL
            place = self._index.get(int(step.argval)) if is_jump else place + 1
        return 0


class Noting(Protocol):
    """Take what is told of one run; `rank`: of the files whose code is followed (see `own_code.rank`)."""

    @property
    def rank(self) -> int:
        """Return the rank."""

    def look_at(self, code: CodeType) -> Watched | None:
        """Return what to watch in a code object that runs; None for nothing."""

    def note_branch(self, file: str, condition: Condition, outcome: int) -> int:
        """Take the outcome of a condition, and return the one to go on with."""

    def fail(self, why: str) -> None:
        """Note that code could not be sent into an arm."""


@functools.cache
def conditions_of(code: CodeType) -> Watched | None:
    """Return what to watch in a code object; None where nothing in it can come out otherwise on another input."""
    function = function_of(code)
    if function is None:
        return None
    local = {*code.co_varnames, *code.co_cellvars, *code.co_freevars} - {"self", "cls"}
    found = list(_conditions(function, local))
    return Watched(code, found) if found else None


def compared_by(code: CodeType) -> frozenset[str]:
    """Return the operators, such as "__gt__", by which a function compares."""
    function = function_of(code)
    names = {ast.Gt: "__gt__", ast.Lt: "__lt__", ast.GtE: "__ge__", ast.LtE: "__le__"}
    nodes = ast.walk(function) if function is not None else ()
    ops = [op for node in nodes if isinstance(node, ast.Compare) for op in node.ops]
    return frozenset(names[type(op)] for op in ops if type(op) in names)


def function_of(code: CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the source of a function's code; None for a lambda, a class, or where it cannot be read."""
    for node in functions_in(code.co_filename).get(code.co_firstlineno, ()):
        if not isinstance(node, ast.Lambda) and node.name == code.co_name:
            return node
    return None


def _conditions(function: ast.FunctionDef | ast.AsyncFunctionDef, local: set[str]) -> Iterator[Condition]:
    yield from _of_block(function.body, None, local)


def _of_block(block: Sequence[ast.stmt], after: int | None, local: set[str]) -> Iterator[Condition]:
    """Yield the conditions of a list of statements; `after`: the line at which code goes on behind it."""
    for place, statement in enumerate(block):
        if isinstance(statement, _SCOPES):
            continue
        following = block[place + 1].lineno if place + 1 < len(block) else after
        if isinstance(statement, ast.If):
            yield from _of_test(statement, statement.test, following, local)
            yield from _of_block(statement.body, following, local)
            yield from _of_block(statement.orelse, following, local)
        elif isinstance(statement, ast.While):
            yield from _of_test(statement, statement.test, following, local)
            yield from _of_block([*statement.body], None, local)
            yield from _of_block(statement.orelse, following, local)
        elif isinstance(statement, ast.For):
            if not _is_fixed(statement.iter, local):
                yield _condition(statement, statement.iter, statement.body, following)
            yield from _in_expression(statement.iter, local)
            yield from _of_block(statement.body, None, local)
            yield from _of_block(statement.orelse, following, local)
        else:
            for inner in _blocks(statement):
                yield from _of_block(inner, None, local)
            for part in ast.iter_child_nodes(statement):
                if isinstance(part, ast.expr):
                    yield from _in_expression(part, local)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements inside `with`, `try` and `match`."""
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(statement, name, None):
            yield block
    for part in [*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]:
        yield part.body


def _of_test(
    statement: ast.If | ast.While, test: ast.expr, following: int | None, local: set[str]
) -> Iterator[Condition]:
    if not _is_fixed(test, local):
        other = statement.orelse[0].lineno if statement.orelse else following
        yield _condition(statement, test, statement.body, other)
    yield from _in_expression(test, local, is_tested=True)


def _condition(
    statement: ast.If | ast.While | ast.For, test: ast.expr, body: Sequence[ast.stmt], other: int | None
) -> Condition:
    return Condition(
        line=statement.lineno,
        last_line=test.end_lineno or test.lineno,
        first=body[0].lineno,
        final=body[-1].end_lineno or body[-1].lineno,
        other=other,
        test=span_of(test),
        body=(*span_of(body[0])[:2], *span_of(body[-1])[2:]),
        is_for=isinstance(statement, ast.For),
        is_loop=not isinstance(statement, ast.If),
    )


def _in_expression(node: ast.AST, local: set[str], *, is_tested: bool = False) -> Iterator[Condition]:
    """Yield the conditional expressions of one expression, and its `and` and `or`.

    `is_tested`: it is a condition itself, whose own `and`, `or` and `not` are steps to its answer and none of theirs.
    """
    if isinstance(node, (*_SCOPES, *_COMPREHENSIONS)):
        return
    if isinstance(node, ast.IfExp):
        if not _is_fixed(node.test, local):
            yield _expression(node.test, node.body)
        yield from _in_expression(node.test, local, is_tested=True)
        yield from _in_expression(node.body, local)
        yield from _in_expression(node.orelse, local)
        return
    if isinstance(node, ast.BoolOp) and not is_tested:
        for one, other in itertools.pairwise(node.values):
            if not _is_fixed(one, local):
                yield _expression(one, other, is_or=isinstance(node.op, ast.Or))
    is_tested = is_tested and (isinstance(node, ast.BoolOp | ast.UnaryOp))
    for part in ast.iter_child_nodes(node):
        yield from _in_expression(part, local, is_tested=is_tested)


def _expression(test: ast.expr, body: ast.expr, *, is_or: bool = False) -> Condition:
    line, last = test.lineno, test.end_lineno or test.lineno
    return Condition(line, last, line, line, None, span_of(test), span_of(body), is_or=is_or)


def _is_fixed(test: ast.AST, local: set[str]) -> bool:
    """Tell whether a test comes out the same for every input: what it asks of locals is at most what they are."""
    if isinstance(test, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in test.ops):
        return True
    if isinstance(test, ast.Call):
        called = test.func.attr if isinstance(test.func, ast.Attribute) else getattr(test.func, "id", "")
        if called in _FIXED_CALLS:
            return True
    if isinstance(test, ast.Name):
        return test.id not in local
    return all(_is_fixed(part, local) for part in ast.iter_child_nodes(test))


def span_of(node: ast.expr | ast.stmt) -> Span:
    """Return the place of a node in the text."""
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _span(line: int | None, end_line: int | None, column: int | None, end_column: int | None) -> Span | None:
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return line, column, end_line, end_column


def _iterates(span: Span | None, loop: Condition) -> bool:
    """Tell whether a place is that of a loop's step: what it goes over, before Python 3.13 the whole statement."""
    return span is not None and (span == loop.test or (span[0] == loop.line and _is_in(loop.test, span)))


def _is_in(place: Span, around: Span) -> bool:
    return around[:2] <= place[:2] and place[2:] <= around[2:]
