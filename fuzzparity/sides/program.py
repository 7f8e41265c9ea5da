"""Program: what the dynamo exporter translates, run node by node in torch, bodies of control flow included.

The idea: the decomposed program that comes with an export carries the names of the ONNX values (the one before
decomposition does not: its names silently mean other values). So it is exported once more, and run with every
intermediate kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Interpreter, Node

from fuzzparity.case import Array, Case
from fuzzparity.sides.build import PROGRAM_FILE
from fuzzparity.sides.eager import steps_of
from fuzzparity.sides.exporting import dynamo_program
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.quiet import quietly
from fuzzparity.sides.shapes import asked_dims, other_sample
from fuzzparity.sides.tensors import to_array, to_tensor
from fuzzparity.values import Event, Place, Scope

_CHECKS = ("_assert", "sym_constrain", "_guard")  # refuse what lies outside of the captured range: ONNX keeps none
_DRAWS = 16  # of one-ulp changes, as evidence takes them (DESIGN, Verdict)


def kept_program(folder: Path) -> Any | None:
    """Return the program that was saved with a build; None where there is none that can be read."""
    path = folder / PROGRAM_FILE
    if not path.is_file():
        return None
    try:
        with quietly():
            return torch.export.load(path)
    except Exception:  # written by another version of torch
        return None


def decomposed_programs(loaded: LoadedTarget, is_the_build: Callable[[Any], bool]) -> tuple[Any, bool]:
    """Return (the ExportedProgram after decomposition, whether its ONNX model is the build's).

    Exported from the first seed, and, where that is another model than the build's, from the sample that an export
    takes when dims came out static. Raises what the exporter raises.
    """
    asked = asked_dims(loaded.target, loaded.seed)
    with quietly(), torch.no_grad():
        program = dynamo_program(loaded, asked, loaded.seed)
        if is_the_build(program.model_proto):
            return program.exported_program, True
        if not asked or isinstance(loaded.target.module, torch.export.ExportedProgram):
            return program.exported_program, False
        try:
            second = dynamo_program(loaded, asked, other_sample(asked, loaded.seed))
        except Exception:  # the first one stands
            return program.exported_program, False
        if is_the_build(second.model_proto):
            return second.exported_program, True
    return program.exported_program, False


class Program:
    """Run an exported program on cases, keeping every value; answer for one node alone in float64."""

    def __init__(self, loaded: LoadedTarget, exported: Any) -> None:
        self._loaded = loaded
        self._exported = exported
        # a case may lie outside of the range that was captured: ONNX keeps no such bound, so it is run all the same
        exported._check_input_constraints = lambda flat_args_with_path: None
        self._runner: _Runner | None = None

    def run(self, case: Case, replaced: Mapping[str, Array] | None = None) -> Scope:
        """Return every value of one run; where torch refuses, `refused_at` names the node.

        `replaced`: values of the main graph, by name, to go on with instead of torch's own.
        """
        args, kwargs = self._loaded.call.arguments([to_tensor(array) for array in case.inputs.values()])
        flat = self._exported._graph_module_flat_inputs(args, kwargs)
        runner = _Runner(self._exported.graph_module, replaced={n: to_tensor(a) for n, a in (replaced or {}).items()})
        self._runner = runner if not replaced else self._runner
        with quietly(), torch.no_grad():
            try:
                runner.run(*flat)
            except Exception as error:  # torch refuses the case at this node
                runner.scope.refused_at = runner.at
                runner.scope.refusal = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"
        signature = self._exported.graph_signature
        runner.scope.outputs = tuple(getattr(spec.arg, "name", "") for spec in _user_outputs(signature))
        return runner.scope

    def as_target(self) -> LoadedTarget:
        """Return the target with this program in the place of its module, as `captured` does with its own."""
        module = self._exported.module(check_guards=False)
        module._forward_pre_hooks.clear()  # one of them still refuses sizes outside the captured range
        return dataclasses.replace(self._loaded, module=module)

    def noise(self, name: str) -> tuple[Array, Array] | None:
        """Return (exact value of a node of the main graph on torch's own inputs, how far one ulp in them moves it).

        Both in float64, elementwise; None where it cannot be told: another output than one float tensor, an operator
        that does not run in float64.
        """
        runner = self._runner
        node = runner.nodes.get(name) if runner is not None else None
        if runner is None or node is None or node.op != "call_function":
            return None
        rng = torch.Generator().manual_seed(0)
        with torch.no_grad():
            try:
                exact = _call(node, runner.tensors, lambda tensor: tensor.double())
                if not isinstance(exact, torch.Tensor) or exact.dtype != torch.float64:
                    return None
                move = torch.zeros_like(exact)
                for _ in range(_DRAWS):
                    moved = _call(node, runner.tensors, lambda tensor: _one_ulp(tensor, rng))
                    move = torch.fmax(move, (moved - exact).abs())
            except Exception:  # whatever an operator says to float64
                return None
        return to_array(exact), to_array(move)

    def steps_of(self, name: str) -> list[Event]:
        """Return what torch itself runs for a node of the main graph, step by step; nothing where that fails."""
        runner = self._runner
        node = runner.nodes.get(name) if runner is not None else None
        if runner is None or node is None or node.op != "call_function":
            return []
        tensors = runner.tensors
        try:
            return steps_of(lambda: _call(node, tensors, lambda tensor: tensor, widens=False))
        except Exception:  # whatever an operator says
            return []


def _user_outputs(signature: Any) -> Sequence[Any]:
    return [spec for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]


def _one_ulp(tensor: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Return a tensor in float64 with each element moved by one ulp up, down or not at all."""
    steps = torch.randint(-1, 2, tensor.shape, generator=rng)
    wide = tensor.double()
    return wide * (1 + steps * torch.finfo(tensor.dtype).eps)


def _call(
    node: Node, values: Mapping[str, Any], change: Callable[[torch.Tensor], torch.Tensor], *, widens: bool = True
) -> Any:
    def taken(argument: Node) -> Any:
        value = values[argument.name]
        return change(value) if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else value

    def wide(value: Any) -> Any:
        return torch.float64 if widens and value in (torch.float32, torch.float16, torch.bfloat16) else value

    args = torch.fx.map_arg(node.args, taken)
    kwargs = {key: wide(value) for key, value in torch.fx.map_arg(node.kwargs, taken).items()}
    assert callable(node.target)
    return node.target(*args, **kwargs)


class _Runner(Interpreter):  # type: ignore[misc]
    """Keep every value by name, and a scope of its own for each run of a body."""

    def __init__(self, module: GraphModule, graph: str = "", replaced: Mapping[str, Any] | None = None) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._replaced = replaced or {}
        self.scope = Scope(graph)
        self.tensors: dict[str, Any] = {}
        self.nodes: dict[str, Node] = {node.name: node for node in module.graph.nodes}
        self.at = ""

    def run_node(self, n: Node) -> Any:
        """Run one node and keep what it gives."""
        self.at = n.name
        value = super().run_node(n)
        if n.name in self._replaced:
            given = self._replaced[n.name]
            value = given if isinstance(value, torch.Tensor) else given.item()
        if n.op in ("placeholder", "call_function"):
            self.tensors[n.name] = value
            array = _as_array(value)
            if array is not None:
                self.scope.values[n.name] = array
                if not isinstance(value, torch.Tensor):
                    self.scope.numbers.add(n.name)
            stack = n.meta.get("nn_module_stack") or {}
            module = list(stack.values())[-1][0] if stack else ""
            self.scope.places[n.name] = Place(str(n.target), module, str(n.meta.get("stack_trace") or ""))
            if n.op == "placeholder":
                self.scope.inputs.append(n.name)
        return value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator; control flow by running its bodies here, checks not at all."""
        name = getattr(target, "__name__", str(target))
        if any(sign in str(target) for sign in _CHECKS):
            return None
        higher = isinstance(target, torch._ops.HigherOrderOperator)
        if higher and name == "cond" and len(args) >= 4:
            return self._body(args[1] if bool(args[0]) else args[2], args[3])
        if higher and name == "while_loop":
            return self._while(*args)
        if higher and name == "scan" and len(args) >= 4:
            return self._scan(*args)
        return super().call_function(target, args, kwargs)

    def _body(self, module: GraphModule, args: Sequence[Any]) -> Any:
        runner = _Runner(module, self._name_of(module))
        self.scope.calls.setdefault(self.at, []).append(runner.scope)
        caller = self.at
        result = runner.run(*args)
        self.at = caller
        output = module.graph.output_node().args[0]
        outputs = output if isinstance(output, (list, tuple)) else (output,)
        runner.scope.outputs = tuple(one.name if isinstance(one, Node) else "" for one in outputs)
        return result

    def _name_of(self, module: GraphModule) -> str:
        return next((name for name, child in self.module.named_children() if child is module), "")

    def _while(self, condition: Any, body: Any, carried: Any, more: Any = ()) -> Any:
        values = tuple(carried)
        while bool(_first(self._body(condition, (*values, *more)))):
            values = tuple(self._body(body, (*values, *more)))
        return values

    def _scan(self, combine: Any, initial: Any, rows: Any, more: Any = ()) -> Any:
        carried, stacks = list(initial), []
        for step in range(rows[0].shape[0]):
            answer = list(self._body(combine, (*carried, *(row[step] for row in rows), *more)))
            carried, got = answer[: len(carried)], answer[len(carried) :]
            stacks.append(got)
        return [*carried, *(torch.stack(list(column)) for column in zip(*stacks, strict=True))]


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def _as_array(value: Any) -> Array | None:
    if isinstance(value, torch.Tensor):
        return np.array(to_array(value))  # a copy: what comes later may write to it
    if isinstance(value, (bool, int, float)):
        return np.asarray(value)
    return None
