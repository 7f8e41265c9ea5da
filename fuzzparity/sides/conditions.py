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
from dataclasses import dataclass, field
from types import CodeType

from fuzzparity.sides.own_code import functions_in

Span = tuple[int, int, int, int]  # first line, first column, last line, last column
_FIXED_CALLS = frozenset({"isinstance", "issubclass", "hasattr", "callable", "is_tensor"})
_CONDITIONAL = tuple(name for name in dis.opmap if "JUMP" in name and "_IF_" in name)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Condition:
    """Hold one `if`, `while`, `for` or conditional expression.

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

    @property
    def has_own_lines(self) -> bool:
        """Tell whether the line that runs next tells how it was decided."""
        return self.first > self.last_line


@dataclass(frozen=True, slots=True)
class Watched:
    """Hold the conditions of one code object: by line, and by jump where lines cannot tell.

    `jumps`: by offset; `odd_lines`: those on which the jumps stand.
    """

    by_line: dict[int, Condition]
    jumps: dict[int, Condition] = field(default_factory=dict)
    positions: tuple[Span | None, ...] = ()
    odd_lines: frozenset[int] = frozenset()

    def arm(self, jump: int, arrival: int) -> int | None:
        """Return 1 or 0 for a jump at one offset that arrives at another, None where the condition goes on."""
        at = self.positions[arrival // 2] if arrival // 2 < len(self.positions) else None
        condition = self.jumps[jump]
        if at is None:
            return 0
        if _is_in(at, condition.body):
            return 1
        return None if _is_in(at, condition.test) else 0


@functools.cache
def conditions_of(code: CodeType) -> Watched | None:
    """Return what to watch in a code object; None where nothing in it can come out otherwise on another input."""
    function = _function_of(code)
    if function is None:
        return None
    local = {*code.co_varnames, *code.co_cellvars, *code.co_freevars} - {"self", "cls"}
    found = [one for one in _conditions(function, local)]
    if not found:
        return None
    by_line = {line: one for one in found if one.has_own_lines for line in range(one.line, one.last_line + 1)}
    odd = [one for one in found if not one.has_own_lines and not one.is_for]
    if not odd:
        return Watched(by_line)
    positions = tuple(_span(*place) for place in code.co_positions())
    jumps: dict[int, Condition] = {}
    for before, instruction in itertools.pairwise(dis.get_instructions(code)):
        place = positions[before.offset // 2]  # of what is tested: the jump itself may have that of the whole statement
        if instruction.opname in _CONDITIONAL and place is not None:
            holding = [one for one in found if not one.is_for and _is_in(place, one.test)]
            inner = min(holding, key=lambda one: (one.test[2] - one.test[0], -one.test[1]), default=None)
            if inner in odd:
                jumps[instruction.offset] = inner
    lines = {line for one in odd for line in range(one.line, one.last_line + 1)}
    return Watched(by_line, jumps, positions, frozenset(lines))


def compared_by(code: CodeType) -> frozenset[str]:
    """Return the operators, such as "__gt__", by which a function compares."""
    function = _function_of(code)
    names = {ast.Gt: "__gt__", ast.Lt: "__lt__", ast.GtE: "__ge__", ast.LtE: "__le__"}
    nodes = ast.walk(function) if function is not None else ()
    ops = [op for node in nodes if isinstance(node, ast.Compare) for op in node.ops]
    return frozenset(names[type(op)] for op in ops if type(op) in names)


def _function_of(code: CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
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
    yield from _in_expression(test, local)


def _condition(
    statement: ast.If | ast.While | ast.For, test: ast.expr, body: Sequence[ast.stmt], other: int | None
) -> Condition:
    return Condition(
        line=statement.lineno,
        last_line=test.end_lineno or test.lineno,
        first=body[0].lineno,
        final=body[-1].end_lineno or body[-1].lineno,
        other=other,
        test=_place(test),
        body=(*_place(body[0])[:2], *_place(body[-1])[2:]),
        is_for=isinstance(statement, ast.For),
        is_loop=not isinstance(statement, ast.If),
    )


def _in_expression(node: ast.AST, local: set[str]) -> Iterator[Condition]:
    """Yield the conditional expressions of one expression."""
    if isinstance(node, (*_SCOPES, *_COMPREHENSIONS)):
        return
    if isinstance(node, ast.IfExp) and not _is_fixed(node.test, local):
        line, last = node.test.lineno, node.test.end_lineno or node.test.lineno
        yield Condition(line, last, line, line, None, _place(node.test), _place(node.body))
    for part in ast.iter_child_nodes(node):
        yield from _in_expression(part, local)


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


def _place(node: ast.expr | ast.stmt) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _span(line: int | None, end_line: int | None, column: int | None, end_column: int | None) -> Span | None:
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return line, column, end_line, end_column


def _is_in(place: Span, around: Span) -> bool:
    return around[:2] <= place[:2] and place[2:] <= around[2:]
