"""Branching: which branch each `If` of an ONNX model took, and how often each `Loop` went around.

The idea: a copy of the graph in which they put that out, run in a session of its own and never judged: what is judged
is the untouched graph, whose answer this one must repeat bit by bit to be believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from fuzzparity.case import Case
from fuzzparity.contract import Contract
from fuzzparity.decisions import ONNX_IF, ONNX_LOOP, Decision, bucketed
from fuzzparity.execution import Execution
from fuzzparity.sides.ort_side import OrtSide, open_ort
from fuzzparity.sides.own_code import own_place, places_in, relative
from fuzzparity.target import Ort

_PREFIX = "fuzzparity_branch_"
_STACK = "pkg.torch.onnx.stack_trace"
_MOST_BYTES = 1 << 30  # larger models are not held twice
NOT_REACHED = -1


@dataclass(frozen=True, slots=True)
class Tap:
    """Hold one value that tells of a node: its name in the graph that holds the node, and what it is about."""

    name: str
    path: str  # "node_cond/then_branch/If_3"
    what: str
    source: str


class BranchingSide:
    """Run cases on the copy, which is opened when it is first needed."""

    def __init__(self, model: Path, ort: Ort, contract: Contract, folder: str = "") -> None:
        """Bind to a build's file; `folder`: the target's."""
        self._asked = (model, ort, contract, folder)
        self._side: OrtSide | None = None
        self._taps: tuple[Tap, ...] | None = None

    @property
    def has_branches(self) -> bool:
        """Tell whether there is anything to tell."""
        return bool(self._open())

    def run(self, case: Case) -> Execution | None:
        """Run one case; the outputs are the model's own. None where there is no branch or the copy does not run."""
        taps = self._open()
        if not taps or self._side is None:
            return None
        execution = self._side.run(case)
        if not execution.is_ok:
            return None
        values = [int(array) for array in execution.outputs[-len(taps) :]]
        found = tuple(
            Decision(f"ort:{tap.path}", value if tap.what == ONNX_IF else bucketed(value), tap.source, tap.what)
            for tap, value in zip(taps, values, strict=True)
        )
        return replace(execution, outputs=execution.outputs[: -len(taps)], decisions=found)

    def _open(self) -> tuple[Tap, ...]:
        if self._taps is None:
            self._taps = ()
            model, ort, contract, folder = self._asked
            if not _has_branches(model):
                return ()
            copy = onnx.load(model)
            taps = tapped(copy, folder)
            side = open_ort(copy.SerializeToString(), ort, contract, folder)
            if isinstance(side, OrtSide):
                self._side, self._taps = side, taps
        return self._taps


def tapped(model: onnx.ModelProto, folder: str = "") -> tuple[Tap, ...]:
    """Make each `If` and `Loop` of a model put out what it did, as outputs behind its own; return what they tell.

    Those inside branches and bodies of loops are passed outward; of one inside a loop the last time counts.
    """
    taps = tuple(_Rewriting(folder).of_graph(model.graph, ""))
    model.graph.output.extend(_number(tap.name) for tap in taps)
    return taps


class _Rewriting:
    """Rewrite graphs in place, with names that are used once."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._count = 0

    def of_graph(self, graph: GraphProto, path: str) -> list[Tap]:
        """Rewrite the nodes of one graph and return what its values tell."""
        taps: list[Tap] = []
        before: list[NodeProto] = []
        for place, node in enumerate(graph.node):
            where = f"{path}{node.name or f'{node.op_type}_{place}'}"
            if node.op_type == "If":
                taps += self._of_if(node, where)
            elif node.op_type == "Loop":
                taps += self._of_loop(node, where, before)
        if before:
            nodes = [*before, *graph.node]
            del graph.node[:]
            graph.node.extend(nodes)
        return taps

    def _of_if(self, node: NodeProto, where: str) -> list[Tap]:
        branches = {a.name: a.g for a in node.attribute if a.name in ("then_branch", "else_branch")}
        inner = {name: self.of_graph(graph, f"{where}/{name}/") for name, graph in branches.items()}
        told = [Tap(self._name(), where, ONNX_IF, self._source(node))]
        for name, graph in branches.items():
            self._put_out(graph, [self._constant(graph, int(name == "then_branch"))])
        for owner, taps in inner.items():
            for tap in taps:
                told.append(replace(tap, name=self._name()))
                for name, graph in branches.items():
                    self._put_out(graph, [tap.name if name == owner else self._constant(graph, NOT_REACHED)])
        node.output.extend(tap.name for tap in told)
        return told

    def _of_loop(self, node: NodeProto, where: str, before: list[NodeProto]) -> list[Tap]:
        body = next(a.g for a in node.attribute if a.name == "body")
        inner = self.of_graph(body, f"{where}/body/")
        carried = max(0, len(node.input) - 2)
        told = [Tap(self._name(), where, ONNX_LOOP, self._source(node))]
        told += [replace(tap, name=self._name()) for tap in inner]
        starts = [0, *(NOT_REACHED for _ in inner)]
        count = self._name()
        added = self._name()
        body.node.append(helper.make_node("Add", [count, self._constant(body, 1)], [added]))
        values = [added, *(tap.name for tap in inner)]
        while len(node.input) < 2:
            node.input.append("")
        for place, (tap, start, value) in enumerate(zip(told, starts, values, strict=True)):
            begin = self._name()
            before.append(_constant_node(begin, start))
            node.input.append(begin)
            body.input.append(_number(count if place == 0 else self._name()))
            _insert(body.output, 1 + carried + place, _number(value))
            _insert(node.output, carried + place, tap.name)
        return told

    def _put_out(self, graph: GraphProto, names: Iterable[str]) -> None:
        graph.output.extend(_number(name) for name in names)

    def _constant(self, graph: GraphProto, value: int) -> str:
        name = self._name()
        graph.node.insert(0, _constant_node(name, value))
        return name

    def _name(self) -> str:
        self._count += 1
        return f"{_PREFIX}{self._count}"

    def _source(self, node: NodeProto) -> str:
        stack = next((item.value for item in node.metadata_props if item.key == _STACK), "")
        place = own_place(places_in(stack))
        return f"{relative(place[0], self._folder)}:{place[1]}" if place is not None else ""


def _constant_node(name: str, value: int) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, TensorProto.INT64, [], [value]))


def _number(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, [])


def _insert(repeated: object, place: int, item: object) -> None:
    """Insert into a repeated field, whose own `insert` protobuf lacks for messages in some versions."""
    kept = list(repeated)  # type: ignore[call-overload]
    kept.insert(place, item)
    del repeated[:]  # type: ignore[attr-defined]
    repeated.extend(kept)  # type: ignore[attr-defined]


def _has_branches(model: Path) -> bool:
    """Tell whether a file holds a branch or loop that can be tapped, and is small enough to be held twice."""
    if sum(part.stat().st_size for part in model.parent.glob(f"{model.name}*")) > _MOST_BYTES:
        return False
    graph = onnx.load(model, load_external_data=False).graph
    return any(node.op_type in (ONNX_IF, ONNX_LOOP) for node in _nodes(graph))


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _nodes(attribute.g)
