"""Script graph: copies of a TorchScript graph that tell which arms it took and how often its loops went around.

The idea: each arm and each round of a loop appends a number to one list, which the copy gives as one more output. From
a second copy everything is dropped that leads to no such number, so that it costs what its conditions cost. A third
takes the arms that it is told to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fuzzparity.decisions import COND, PYTHON_LOOP, WHILE_LOOP
from fuzzparity.sides.own_code import places_in, rank, relative

ELSE, THEN, COMPARED = range(3)  # what an event tells: number of the site times three plus one of these
MOST_TIMES = 16  # that arms of one site can be forced in one run

_IF, _LOOP = "prim::If", "prim::Loop"
_COMPARISONS = frozenset({"aten::gt", "aten::lt", "aten::ge", "aten::le"})
_NUMBERS = frozenset({"TensorType", "FloatType", "IntType", "NumberType"})
_FIXED = frozenset({"aten::__is__", "aten::__isnot__", "prim::isinstance"})  # come out the same for every input
_CHANGES_ITS_FIRST = frozenset({"append", "insert", "extend", "_set_item", "__setitem__", "clear", "reverse", "sort"})
_SAYS = frozenset({"prim::Print", "aten::warn"})
_OPAQUE = frozenset({"prim::fork", "prim::CallMethod", "prim::CallFunction", "prim::SetAttr", "prim::With"})
_ENDLESS = (1 << 63) - 1  # rounds of a `while`


@dataclass(frozen=True, slots=True)
class Site:
    """Hold one place that decides; several nodes may stand for it, where a function is called from several places."""

    base: str  # "torch:net.py:27", the key of its first time
    source: str
    what: str


class ScriptGraph:
    """Hold one graph of TorchScript and make copies of it. `sites`: its places that decide by the inputs."""

    def __init__(self, graph: Any, is_method: bool, folder: str, *, is_training: bool = False) -> None:
        """Read a graph; `is_method`: its first input is the module itself; `folder`: the target's.

        `is_training`: of some part of the module; where none is, dropout draws no numbers.
        """
        self.sites: list[Site] = []
        self.places: dict[str, tuple[str, int]] = {}  # source -> file and line
        self._folder = folder
        self._graph = graph.copy()
        torch._C._jit_pass_inline(self._graph)
        if not is_training:
            _set_out_of_training(self._graph)
        self._varying = _varying(self._graph, is_method)
        self._told = [self._site_of(node) for node in _deciding(self._graph)]
        self.is_opaque = any(_is_opaque(node) for node in _nodes(self._graph))

    def telling(self) -> Any | None:
        """Return a function that gives (events, margins) alone; None where running it would not be free.

        That is where it would write to inputs or to the module, or draw random numbers.
        """
        copy = _Copy(self)
        copy.graph.eraseOutput(0)
        for node in [node for node in _nodes(copy.graph) if node.kind() in _SAYS]:
            node.destroy()
        made = copy.function("telling", after=torch._C._jit_pass_dce)
        nodes = list(_nodes(copy.graph))
        if any(node.isNondeterministic() for node in nodes):
            return None
        aliases = copy.graph.alias_db()
        held = [value for node in nodes if node.kind() == "prim::GetAttr" for value in node.outputs()]
        is_writing = any(aliases.has_writers(value) for value in (*copy.inputs, *held))
        return None if is_writing else made

    def sendable(self) -> Any:
        """Return a function that takes one more input and gives (result, events, margins).

        That is a list with, for each site, `MOST_TIMES` numbers and one more that is -1: the arm that it takes, the
        first time, the second and so on, -1 where it decides by itself.
        """
        return _Copy(self, is_forcible=True).function("sendable")

    def told(self, graph: Any) -> Iterator[tuple[Any, int]]:
        """Yield the deciding nodes of a copy with the numbers of their sites."""
        for node, number in zip(_deciding(graph), self._told, strict=True):
            if number is not None:
                yield node, number

    def _site_of(self, node: Any) -> int | None:
        """Return the number of the site of a node; None for what does not vary, or is not the user's."""
        if not any(value.unique() in self._varying for value in _conditions(node)):
            return None
        what = COND if node.kind() == _IF else WHILE_LOOP if _is_endless(node) else PYTHON_LOOP
        place = next(iter(places_in(node.sourceRange())), None)
        source = ""
        if place is not None:
            if rank(place[0]) == 2 and not place[0].startswith("<"):
                return None
            source = f"{relative(place[0], self._folder)}:{place[1]}"
            self.places[source] = place
        base = f"torch:{source or f'{node.kind()}_{len(self.sites)}'}"
        if any(site.base == base and site.what != what for site in self.sites):
            base = f"{base}:{what.replace(' ', '_')}"
        site = Site(base, source, what)
        if site not in self.sites:
            self.sites.append(site)
        return self.sites.index(site)


class _Copy:
    """Rewrite one copy of a graph."""

    def __init__(self, owner: ScriptGraph, is_forcible: bool = False) -> None:
        self.graph = owner._graph.copy()
        self.inputs = list(self.graph.inputs())
        self._forced = None
        if is_forcible:
            self._forced = self.graph.addInput("forced")
            self._forced.setType(torch._C.ListType.ofInts())
        start = next(iter(self.graph.nodes()))
        self._events = self._list(torch._C.ListType.ofInts(), start)
        self._margins = self._list(torch._C.ListType.ofFloats(), start)
        for node, number in list(owner.told(self.graph)):
            if node.kind() == _IF:
                self._of_if(node, number)
            else:
                self._of_loop(node, number)

    def function(self, name: str, after: Callable[[Any], None] = lambda graph: None) -> Any:
        """Return the function that the graph is, its lists behind its own output."""
        self.graph.registerOutput(self._events)
        self.graph.registerOutput(self._margins)
        self.graph.makeMultiOutputIntoTuple()
        after(self.graph)
        self.graph.lint()
        return torch._C._create_function_from_graph(name, self.graph)

    def _of_if(self, node: Any, number: int) -> None:
        self._tell_compared(node.inputsAt(0), number, node)
        if self._forced is not None:
            node.replaceInput(0, self._arm(node.inputsAt(0), number, node))
        for arm, block in zip((THEN, ELSE), node.blocks(), strict=True):
            self._tell(number, arm, _first(block))

    def _of_loop(self, node: Any, number: int) -> None:
        (body,) = node.blocks()
        self._tell(number, THEN, _first(body))
        if _is_endless(node):
            end = body.returnNode()
            self._tell_compared(node.inputsAt(1), number, node)
            self._tell_compared(end.inputsAt(0), number, end)
            if self._forced is not None:
                node.replaceInput(1, self._arm(node.inputsAt(1), number, node))
                end.replaceInput(0, self._arm(end.inputsAt(0), number, end))
        after = self.graph.create("prim::Constant", [], 0)  # a place to insert before
        after.insertAfter(node)
        self._tell(number, ELSE, after)
        after.destroy()

    def _tell(self, number: int, event: int, before: Any) -> None:
        self._append(self._events, self._constant(3 * number + event, before), before)

    def _tell_compared(self, condition: Any, number: int, before: Any) -> None:
        """Tell by how much two values differ from whose comparison a condition comes, unless both are integers."""
        made = condition.node()
        made = made.inputsAt(0).node() if made.kind() == "aten::Bool" else made
        if made.kind() not in _COMPARISONS:
            return
        values = [made.inputsAt(0), made.inputsAt(1)]
        kinds = [value.type().kind() for value in values]
        if not {"TensorType", "FloatType"} & set(kinds) or not set(kinds) <= _NUMBERS:
            return
        number_type = torch._C.FloatType.get()
        # a tensor that decides has one element, and so have those that it was compared from
        floats = [
            value if kind == "FloatType" else self._op("aten::Float", [value], number_type, before)
            for value, kind in zip(values, kinds, strict=True)
        ]
        self._append(self._margins, self._op("aten::sub", floats, number_type, before), before)
        self._tell(number, COMPARED, before)

    def _arm(self, condition: Any, number: int, before: Any) -> Any:
        """Return a condition that is the one given where this time is not forced."""
        number_type, flag_type = torch._C.IntType.get(), torch._C.BoolType.get()

        def count(event: int) -> Any:
            return self._op("aten::count", [self._events, self._constant(event, before)], number_type, before)

        def flag(kind: str, *inputs: Any) -> Any:
            return self._op(kind, list(inputs), flag_type, before)

        times = self._op("aten::add", [count(3 * number), count(3 * number + 1)], number_type, before)
        times = self._op("prim::min", [times, self._constant(MOST_TIMES, before)], number_type, before)
        start = self._constant(number * (MOST_TIMES + 1), before)
        place = self._op("aten::add", [times, start], number_type, before)
        forced = self._op("aten::__getitem__", [self._forced, place], number_type, before)
        is_forced = flag("aten::ge", forced, self._constant(0, before))
        other = flag("aten::__and__", flag("aten::__not__", is_forced), condition)
        return flag("aten::__or__", flag("aten::eq", forced, self._constant(1, before)), other)

    def _list(self, kind: Any, before: Any) -> Any:
        return self._op("prim::ListConstruct", [], kind, before)

    def _append(self, held: Any, value: Any, before: Any) -> None:
        self._op("aten::append", [held, value], held.type(), before)

    def _constant(self, value: int, before: Any) -> Any:
        self.graph.setInsertPoint(before)
        return self.graph.insertConstant(value)

    def _op(self, kind: str, inputs: Sequence[Any], type_: Any, before: Any) -> Any:
        node = self.graph.create(kind, list(inputs), 1)
        node.insertBefore(before)
        node.output().setType(type_)
        return node.output()


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _set_out_of_training(graph: Any) -> None:
    for node in [node for node in _nodes(graph) if node.kind() == "prim::GetAttr" and node.s("name") == "training"]:
        graph.setInsertPoint(node)
        node.output().replaceAllUsesWith(graph.insertConstant(False))
        node.destroy()


def _deciding(graph: Any) -> list[Any]:
    return [node for node in _nodes(graph) if node.kind() in (_IF, _LOOP)]


def _first(block: Any) -> Any:
    return next(iter(block.nodes()), block.returnNode())


def _is_endless(loop: Any) -> bool:
    return bool(loop.inputsAt(0).toIValue() == _ENDLESS)


def _is_opaque(node: Any) -> bool:
    """Tell whether nobody can say what a node does, or whether doing it twice is doing it once."""
    return node.kind() in _OPAQUE or node.kind().startswith("^")  # those are functions of Python


def _conditions(node: Any) -> list[Any]:
    """Return the values by which a node goes one way or the other."""
    if node.kind() == _IF:
        return [node.inputsAt(0)]
    (body,) = node.blocks()
    return [node.inputsAt(0), node.inputsAt(1), next(iter(body.outputs()))]


def _varying(graph: Any, is_method: bool) -> set[int]:
    """Return the values (by their unique numbers) that may depend on the inputs."""
    found = {value.unique() for value in list(graph.inputs())[int(is_method) :]}
    size = -1
    while size != len(found):  # what a loop carries goes around
        size = len(found)
        for node in _nodes(graph):
            found.update(value.unique() for value in _reached(node, found))
    return found


def _reached(node: Any, varying: set[int]) -> list[Any]:
    """Return the values that depend on varying ones by way of one node."""
    kind = node.kind()
    if kind in _FIXED:
        return []
    inputs, outputs, blocks = list(node.inputs()), list(node.outputs()), list(node.blocks())

    def varies(value: Any) -> bool:
        return value.unique() in varying

    if kind == _IF:
        sides = zip(outputs, *(list(block.outputs()) for block in blocks), strict=True)
        return [one for one, *given in sides if varies(inputs[0]) or any(map(varies, given))]
    if kind == _LOOP:
        carried = list(zip(list(blocks[0].inputs())[1:], inputs[2:], list(blocks[0].outputs())[1:], strict=True))
        moved = [varies(start) or varies(end) for _, start, end in carried]
        is_counted = any(map(varies, _conditions(node)))
        inside = [value for (value, _, _), is_moved in zip(carried, moved, strict=True) if is_moved]
        return inside + [out for out, is_moved in zip(outputs, moved, strict=True) if is_moved or is_counted]
    if not any(map(varies, inputs)):
        return []
    name = kind.rpartition("::")[2]
    is_writing = name in _CHANGES_ITS_FIRST or (name.endswith("_") and not name.endswith("__"))
    return outputs + inputs[: int(is_writing)] + [value for block in blocks for value in block.inputs()]
