"""Sending: functions of the user's code, made to ask at each of their conditions which way to go.

The idea: where a condition shares its line with its arms, no jump from line to line leads into the other one. For the
time of one call such a function runs code that is compiled from the same source, its conditions wrapped in a question.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import copy
import functools
import gc
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from fuzzparity.sides.conditions import Condition, Noting, Watched, conditions_of, function_of, span_of
from fuzzparity.sides.own_code import FunctionNode

_QUESTION = "_fuzzparity_asks"
_KEPT = "_fuzzparity_kept"
_FUTURES = functools.reduce(int.__or__, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names))


@contextlib.contextmanager
def asking(
    watched: Iterable[CodeType], noting: Noting, held: dict[CodeType, list[FunctionType]]
) -> Iterator[frozenset[CodeType]]:
    """Let the functions of code objects ask `noting.note_branch` while it lasts; give the code that they run then.

    `held`: those functions, as they are found, to be given again the next time.

    Left out are those that no function holds now (they are made by another one), and whose code cannot be made again.
    """
    changed: list[tuple[FunctionType, CodeType]] = []
    spaces: dict[int, dict[str, Any]] = {}
    running: set[CodeType] = set()
    try:
        for code in watched:
            made = _asking_code(code)
            if made is None:
                continue
            for function in _functions_of(code, held):
                changed.append((function, code))
                space = function.__globals__
                if id(space) not in spaces:
                    spaces[id(space)] = space
                    space[_QUESTION] = _question(noting)
                function.__code__ = made
                running.add(made)
        yield frozenset(running)
    finally:
        for function, code in changed:
            function.__code__ = code
        for space in spaces.values():
            space.pop(_QUESTION, None)


def _question(noting: Noting) -> Callable[[int, bool], bool]:
    def ask(number: int, holds: bool) -> bool:
        file, condition = _ASKED[number]
        return bool(noting.note_branch(file, condition, int(holds)))

    return ask


_ASKED: list[tuple[str, Condition]] = []  # by the number that a question names


def _functions_of(code: CodeType, held: dict[CodeType, list[FunctionType]]) -> list[FunctionType]:
    """Return the functions that hold a code object; to look through all that lives takes long, so it is done once."""
    if code not in held:
        found = [one for one in gc.get_referrers(code) if isinstance(one, FunctionType)]
        held[code] = [one for one in found if one.__code__ is code]
    return held[code]


@functools.cache
def _asking_code(code: CodeType) -> CodeType | None:
    """Return the code of a function with its conditions wrapped; None where it cannot be made as it was."""
    node, watched = function_of(code), conditions_of(code)
    if node is None or watched is None or _has_private_names(node):
        return None
    changed = _Wrapping(code.co_filename, watched).visit(copy.deepcopy(node))
    changed.decorator_list = []
    tree: ast.Module = ast.Module([changed], [])
    if code.co_freevars:  # bound by a function around it, as they were
        around = ast.parse(f"def around():\n    {' = '.join(code.co_freevars)} = None")
        assert isinstance(around.body[0], ast.FunctionDef)
        around.body[0].body.append(changed)
        tree = around
    flags = code.co_flags & _FUTURES
    made = compile(ast.fix_missing_locations(tree), code.co_filename, "exec", flags, dont_inherit=True)
    found = next((one for one in _codes_in(made) if one.co_name == code.co_name), None)
    return found if found is not None and _fits(found, code) else None


def _fits(made: CodeType, code: CodeType) -> bool:
    """Tell whether a function can run one code object in the place of the other."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    return (
        made.co_freevars == code.co_freevars
        and (made.co_argcount, made.co_posonlyargcount, made.co_kwonlyargcount)
        == (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        and made.co_varnames[:arguments] == code.co_varnames[:arguments]
    )


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)


def _has_private_names(node: FunctionNode) -> bool:
    """Tell whether names are spelled otherwise in the code than in the source, as those of a class's own are."""
    names = [getattr(one, "attr", getattr(one, "id", "")) for one in ast.walk(node)]
    return any(name.startswith("__") and not name.endswith("__") for name in names)


class _Wrapping(ast.NodeTransformer):
    """Wrap the conditions of one function."""

    def __init__(self, file: str, watched: Watched) -> None:
        self._file = file
        self._by_place = {condition.test: condition for condition in watched.found if not condition.is_for}
        self._is_inside = False

    def visit(self, node: ast.AST) -> Any:
        """Change one node; what has a scope of its own is left as it is."""
        scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
        if isinstance(node, (*scopes, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            if self._is_inside:
                return node
            self._is_inside = True
        if isinstance(node, ast.BoolOp):
            return self._of_operands(node)
        if not isinstance(node, ast.If | ast.While | ast.IfExp):
            return self.generic_visit(node)
        condition = self._by_place.get(span_of(node.test))
        self.generic_visit(node)
        if condition is not None:
            node.test = self._asked(condition, node.test)
        return node

    def _of_operands(self, node: ast.BoolOp) -> ast.expr:
        """Change `a and b` into `b if asked(kept := a) else kept`, where `a` is a condition of its own."""
        conditions = [self._by_place.get(span_of(value)) for value in node.values]
        values = [self.visit(value) for value in node.values]
        result: ast.expr = values.pop()
        for value, condition in zip(reversed(values), reversed(conditions[:-1]), strict=True):
            if condition is None:
                result = ast.copy_location(ast.BoolOp(node.op, [value, result]), value)
                continue
            name = f"{_KEPT}_{len(_ASKED)}"
            kept = ast.copy_location(ast.NamedExpr(ast.Name(name, ast.Store()), value), value)
            arms = [result, ast.Name(name, ast.Load())]
            if isinstance(node.op, ast.Or):
                arms.reverse()
            result = ast.copy_location(ast.IfExp(self._asked(condition, kept), arms[0], arms[1]), value)
        return result

    def _asked(self, condition: Condition, test: ast.expr) -> ast.expr:
        """Return the question; its own conditional expression asks for the truth of operands where the test did."""
        _ASKED.append((self._file, condition))
        holds = ast.IfExp(test, ast.Constant(True), ast.Constant(False))
        called = ast.Call(ast.Name(_QUESTION, ast.Load()), [ast.Constant(len(_ASKED) - 1), holds], [])
        return ast.copy_location(called, test)
