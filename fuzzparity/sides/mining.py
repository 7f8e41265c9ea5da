"""Mining: the numbers in a model's own Python code at which it may begin to do something else.

The idea: an exporter keeps one path and drops the test that chose it, so that the number which matters stands in the
source alone. The code of the user's classes and of the functions that they call is read, never run: numbers that are
compared with, that sizes are divided by, and factors that sizes are multiplied by. They are goals for the search.
"""

from __future__ import annotations

import ast
import dis
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from fuzzparity.sides.own_code import function_of, functions_in, own_place

MAX_SIZE = 1 << 16
_MAX_FUNCTIONS = 512
_MAX_INSTANCES = 16  # of one class whose attributes are looked up
_MAX_NUMBERS = 64  # of one list, and of each kind that is told
_MAX_GOALS = 24  # sizes, periods and factors that are told
_GROUPING = frozenset(  # calls whose integers group elements: sizes matter modulo these
    {"view", "reshape", "split", "chunk", "unfold", "unflatten", "tile", "repeat", "pixel_shuffle", "pixel_unshuffle"}
)
_COMPARING = frozenset(
    {"lt", "le", "gt", "ge", "eq", "ne", "clamp", "clip", "clamp_min", "clamp_max", "bucketize", "isin", "threshold"}
)
_DIVIDING = frozenset({"remainder", "fmod", "floor_divide", "floordiv", "div", "divide", "true_divide"})
_MULTIPLYING = frozenset({"mul", "multiply"})
_SPACED = frozenset({"range", "arange"})  # calls whose third number is a step


@dataclass(frozen=True, slots=True)
class Mined:
    """Hold numbers of a model's own code, most telling first.

    `constants`: values that may be thresholds; `sizes`: lengths; `periods`: lengths matter modulo these; `factors`:
    sizes are multiplied by these.
    """

    constants: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    periods: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()


def mined(module: Any) -> Mined:
    """Read the code of a module, or of any callable; code that cannot be found or parsed says nothing."""
    numbers = _Numbers()
    for function in _functions(module):
        _read_function(function, numbers)
    for text, owner in _texts(module):
        _read_text(text, owner, numbers)
    return numbers.mined()


@dataclass(slots=True)
class _Numbers:
    """Collect numbers in order of appearance, those that are compared with apart from the rest."""

    compared: dict[float, None] = field(default_factory=dict)
    other: dict[float, None] = field(default_factory=dict)
    periods: dict[int, None] = field(default_factory=dict)
    factors: dict[float, None] = field(default_factory=dict)

    def compare(self, values: Iterable[float]) -> None:
        """Take numbers that something is compared with."""
        self.compared.update(dict.fromkeys(values))

    def mention(self, values: Iterable[float]) -> None:
        """Take numbers of which only their being there is known."""
        self.other.update(dict.fromkeys(values))

    def divide(self, values: Iterable[float]) -> None:
        """Take divisors: of a size as a whole number, or as its reciprocal."""
        for value in values:
            self.mention([value])
            if _is_size(value):
                self.periods[int(value)] = None
            if value and not float(value).is_integer():
                self.factors[1.0 / value] = None

    def multiply(self, values: Iterable[float]) -> None:
        """Take factors."""
        for value in values:
            self.mention([value])
            if not float(value).is_integer():
                self.factors[float(value)] = None

    def mined(self) -> Mined:
        """Return what was collected, within the caps."""
        both = sorted(dict.fromkeys([*self.compared, *self.other]), key=_is_common)  # stable: the order of finding
        sizes = [int(value) for value in both if _is_size(value)]
        factors = [value for value in self.factors if 1e-4 < abs(value) < 1e4]
        constants = [float(value) for value in both if abs(value) <= 2.0**63]
        return Mined(
            constants=tuple(constants[:_MAX_NUMBERS]),
            sizes=tuple(sizes[:_MAX_GOALS]),
            periods=tuple(self.periods)[:_MAX_GOALS],
            factors=tuple(factors[:_MAX_GOALS]),
        )


def _is_size(value: float) -> bool:
    return float(value).is_integer() and 2 <= value <= MAX_SIZE


def _is_common(value: float) -> bool:
    """Tell whether a number says nothing of one model: any search tries these."""
    return value in (-2, -1, 0, 1, 2)


# Which code


@dataclass(frozen=True, slots=True)
class _Function:
    """Hold a function and the objects that its first argument may be."""

    function: FunctionType
    owners: tuple[Any, ...] = ()


def _functions(module: Any) -> Iterator[_Function]:
    """Yield the user's own functions behind a callable, those that they call by a plain name after them."""
    pending = list(_entries(module))
    seen: set[CodeType] = set()
    while pending and len(seen) < _MAX_FUNCTIONS:
        one = pending.pop(0)
        code = one.function.__code__
        if code in seen or not _is_own(code):
            continue
        seen.add(code)
        yield one
        called = (one.function.__globals__.get(name) for name in _names(code))
        pending.extend(_Function(function) for function in map(function_of, called) if function is not None)


def _is_own(code: CodeType) -> bool:
    """Tell whether the user wrote it, in a file, in a notebook or at a prompt."""
    file = code.co_filename
    return own_place([(file, 1)]) is not None or file.startswith(("<string>", "<stdin>", "<ipython"))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _entries(module: Any) -> Iterator[_Function]:
    if not isinstance(module, torch.nn.Module):
        function = function_of(module)
        owners = (module.__self__,) if isinstance(module, MethodType) else ()
        if function is not None:
            yield _Function(function, owners)
        elif not isinstance(module, type) and callable(module):
            yield from _methods(type(module), (module,))
        return
    instances: dict[type, list[Any]] = {}
    for part in module.modules():
        if not isinstance(part, torch.jit.ScriptModule | torch.fx.GraphModule):
            instances.setdefault(type(part), []).append(part)
    for kind, parts in instances.items():
        yield from _methods(kind, tuple(parts[:_MAX_INSTANCES]))


def _methods(kind: type, owners: tuple[Any, ...]) -> Iterator[_Function]:
    for base in kind.__mro__:
        for name, value in list(vars(base).items()):
            function = function_of(value)
            if function is not None and name != "__init__":
                yield _Function(function, owners)


def _texts(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the code of programs that have text instead of functions: TorchScript and torch.fx."""
    for part in module.modules() if isinstance(module, torch.nn.Module) else ():
        if isinstance(part, torch.jit.ScriptModule | torch.fx.GraphModule):
            try:
                yield str(part.code), part
            except (RuntimeError, AttributeError):  # a module without a forward has none
                continue


# Reading it


def _read_function(one: _Function, numbers: _Numbers) -> None:
    node = _definition(one.function.__code__)
    if node is None:
        _read_bytecode(one.function.__code__, numbers)
        return
    scope = dict(one.function.__globals__)
    for name, cell in zip(one.function.__code__.co_freevars, one.function.__closure__ or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # a cell that is not filled yet
            continue
    arguments = one.function.__code__.co_varnames[: one.function.__code__.co_argcount]
    defaults = one.function.__defaults__ or ()
    scope |= dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    scope |= one.function.__kwdefaults__ or {}
    _Visitor(numbers, scope, arguments[0] if one.owners and arguments else "", one.owners).read(node)


def _read_text(text: str, owner: Any, numbers: _Numbers) -> None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    _Visitor(numbers, {}, "self", (owner,)).read(tree)


def _definition(code: CodeType) -> ast.AST | None:
    return next(iter(functions_in(code.co_filename).get(code.co_firstlineno, ())), None)


class _Visitor:
    """Read one function's tree with the names that it sees."""

    def __init__(self, numbers: _Numbers, scope: dict[str, Any], first: str, owners: tuple[Any, ...]) -> None:
        self._numbers = numbers
        self._scope = scope
        self._first = first
        self._owners = owners

    def read(self, tree: ast.AST) -> None:
        """Take in every comparison, division, product and call."""
        nodes = list(ast.walk(tree))
        for node in nodes:  # `k = 0.3` first: it may be multiplied by below
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                values = self._values(node.value)
                if values:
                    self._scope[node.targets[0].id] = values
        for node in nodes:
            if isinstance(node, ast.Compare):
                for side in (node.left, *node.comparators):
                    self._numbers.compare(self._values(side))
            elif isinstance(node, ast.BinOp):
                self._operation(node)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Slice):
                for end in (node.lower, node.upper):
                    self._numbers.mention(map(abs, self._values(end)))
                self._numbers.divide(self._values(node.step))

    def _operation(self, node: ast.BinOp) -> None:
        left, right = self._values(node.left), self._values(node.right)
        if left and right:
            return  # a constant written as a product: taken as a whole where it is used
        if isinstance(node.op, ast.Mod | ast.FloorDiv | ast.Div):
            self._numbers.divide(right)
        elif isinstance(node.op, ast.Mult):
            self._numbers.multiply([*left, *right])
        else:
            self._numbers.mention(map(abs, [*left, *right]))

    def _call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for place, argument in enumerate((*node.args, *(keyword.value for keyword in node.keywords))):
            values = self._values(argument)
            if name in _COMPARING:
                self._numbers.compare(values)
            elif name in _DIVIDING:
                self._numbers.divide(values)
            elif name in _MULTIPLYING:
                self._numbers.multiply(values)
            self._numbers.mention(values)
            if name in _GROUPING or (name in _SPACED and place == 2):
                self._numbers.divide(value for value in values if float(value).is_integer())

    def _values(self, node: ast.AST | None) -> list[float]:
        """Return the numbers that an expression stands for, one for each owner where it is an attribute of theirs."""
        if isinstance(node, ast.Constant):
            return _numbers_of(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = self._values(node.operand)
            return [-value for value in inner] if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            return _computed(node.op, self._values(node.left), self._values(node.right))
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return [value for element in node.elts for value in self._values(element)]
        if isinstance(node, ast.Subscript):
            return self._values(node.value)
        if isinstance(node, ast.Name | ast.Attribute):
            return [value for found in self._objects(node) for value in _numbers_of(found)]
        return []

    def _objects(self, node: ast.AST) -> list[Any]:
        if isinstance(node, ast.Name):
            if node.id == self._first:
                return list(self._owners)
            return [self._scope[node.id]] if node.id in self._scope else []
        if isinstance(node, ast.Attribute):
            return [found for owner in self._objects(node.value) for found in _attribute(owner, node.attr)]
        return []


def _attribute(owner: Any, name: str) -> list[Any]:
    """Return an attribute as it lies there: no property is run."""
    parts = vars(owner).get("_modules") if isinstance(owner, torch.nn.Module) else None
    if isinstance(parts, dict) and name in parts:
        return [parts[name]]
    if isinstance(owner, torch.jit.ScriptModule):
        value = getattr(owner, name, None)
        return [value] if isinstance(value, int | float) else []
    if (
        isinstance(owner, ModuleType)
        and own_place([(getattr(owner, "__file__", None) or "", 1)]) is None
        and owner.__name__ != "math"
    ):
        return []
    try:
        return [inspect.getattr_static(owner, name)]
    except AttributeError:
        return []


def _numbers_of(value: Any) -> list[float]:
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [value] if math.isfinite(value) and abs(value) <= 2**64 else []
    if isinstance(value, tuple | list | set | frozenset) and len(value) <= _MAX_NUMBERS:
        return [number for item in value if isinstance(item, int | float) for number in _numbers_of(item)]
    return []


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Pow: lambda a, b: a**b if abs(b) <= 64 and abs(a) <= 1 << 20 else math.nan,
    ast.LShift: lambda a, b: a << b if 0 <= b <= 64 else math.nan,
}


def _computed(operator: ast.operator, left: Sequence[float], right: Sequence[float]) -> list[float]:
    if len(left) != 1 or len(right) != 1 or type(operator) not in _OPERATORS:
        return []
    try:
        return _numbers_of(_OPERATORS[type(operator)](left[0], right[0]))
    except (ArithmeticError, TypeError):
        return []


def _read_bytecode(code: CodeType, numbers: _Numbers) -> None:
    """Read code without a source: a constant that is loaded right before an operation is its right operand."""
    loaded: list[float] = []
    for step in dis.get_instructions(code):
        if step.opname == "COMPARE_OP":
            numbers.compare(loaded)
        elif step.opname == "BINARY_OP" and step.argrepr in ("%", "//", "/"):
            numbers.divide(loaded)
        elif step.opname == "BINARY_OP" and step.argrepr == "*":
            numbers.multiply(loaded)
        loaded = _numbers_of(step.argval) if step.opname == "LOAD_CONST" else []
        numbers.mention(loaded)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _read_bytecode(constant, numbers)
