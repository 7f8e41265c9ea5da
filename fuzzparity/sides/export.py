"""Export: the one build of a target: its state, its ONNX bytes, its contract, under one digest.

The idea: a build is what a sender and a receiver of a model would agree on. It is made once, from the first seed as
it is, in a process that does nothing else; everybody else reads its folder. Runs the native ONNX checker and torch's
exporters: call it in a child only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch

from fuzzparity.case import Case
from fuzzparity.contract import Build, TargetFacts
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import Refusal, Status, normalize_message
from fuzzparity.sides.build import Exported, write_build
from fuzzparity.sides.environment import environment, packages
from fuzzparity.sides.graph import read_graph
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.onnx_files import given_onnx
from fuzzparity.sides.ort_side import check_optimizers, check_providers
from fuzzparity.sides.quiet import quietly
from fuzzparity.sides.shapes import (
    AskedDims,
    asked_dims,
    contract_of,
    contract_without_model,
    dynamo_shapes,
    other_sample,
    static_dims,
    torchscript_axes,
)
from fuzzparity.sides.state import load_state, state_digest
from fuzzparity.sides.tensors import to_tensor
from fuzzparity.sides.torch_side import StateGuard, TorchSide, site_of
from fuzzparity.target import Target

__all__ = ["Attempt", "BuildResult", "facts_without_model", "load_state", "make_build"]

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass(frozen=True, slots=True)
class BuildResult:
    """Hold the facts of a build, or the refusal of the exporter (`kind` "export_error")."""

    facts: TargetFacts | None = None
    error: Refusal | None = None
    kind: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """Hold what one export gave, in a form that travels between processes: a model in parts, or why there is none.

    `parts`: the model without its initializers, then each of these, since protobuf writes no message above 2 GiB.
    """

    parts: tuple[bytes, ...] = dataclasses.field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    error: Refusal | None = None
    invalid: InvalidTarget | None = None


Alone = Callable[[Callable[[], Attempt]], Attempt]


def run_here(attempt: Callable[[], Attempt]) -> Attempt:
    """Run an export in this process."""
    return attempt()


def make_build(loaded: LoadedTarget, builds_folder: Path, *, alone: Alone = run_here) -> BuildResult:
    """Export the target, or take its given ONNX, and write `builds_folder/DIGEST`.

    `alone` runs each export: in a process of its own where the caller can fork, since one export may spoil the next
    (torch makes the second LSTM of a process static in silence). Raises `InvalidTarget` for a target that is wrong: an
    ONNX that cannot be read, inputs that torch refuses, names that do not fit. A sound target on which the exporter
    fails is a result with an error.
    """
    target = loaded.target
    check_providers(target.ort)
    check_optimizers(target.ort.disabled_optimizers)
    asked = asked_dims(target, loaded.seed)
    given = given_onnx(target, loaded.folder)
    weights, state = state_digest(loaded.module), StateGuard(loaded.module)
    if given is not None:
        exported = Exported(onnx.load_from_string(given), "given")
    else:
        try:
            made = _export(loaded, asked, alone)
        finally:
            state.restore()  # an exporter runs forward, which may count in a buffer
        if isinstance(made, Refusal):
            _require_first_seed(loaded)
            return BuildResult(error=made, kind="export_error")
        exported = made
    torch_names, mutates = _require_first_seed(loaded)
    outputs = _output_names(target, torch_names, exported.model)
    if outputs is None:
        message = f"torch gives {len(torch_names)} outputs, the exported model {len(exported.model.graph.output)}"
        return BuildResult(error=Refusal("OutputCount", message, "outputs"), kind="export_error")
    return BuildResult(_facts(loaded, asked, exported, weights, outputs, mutates, builds_folder))


def facts_without_model(loaded: LoadedTarget, *, can_run: bool = True) -> TargetFacts:
    """Return the facts of a target that could not be exported, as far as the target itself says them.

    `can_run=False`: its module dies on the first seed, so that the outputs are known only where the target names them.
    """
    target = loaded.target
    names, mutates = _require_first_seed(loaded) if can_run else (tuple(target.outputs or ()), False)
    given = list(target.outputs) if target.outputs and len(target.outputs) == len(names) else names
    outputs = tuple(name or f"output_{place}" for place, name in enumerate(given))
    weights, versions = state_digest(loaded.module), packages()
    origin = f"not exported by {target.export.exporter}"
    build = Build(
        digest=hashlib.sha256(json.dumps([weights, origin, versions]).encode()).hexdigest(),
        folder="",
        origin=origin,
        state_digest=weights,
        onnx_digest="",
        onnx_bytes=0,
        nodes=0,
        opset_requested=target.export.opset,
        opset_obtained=0,
        computing_dtype="float32",
        versions=versions,
    )
    return TargetFacts(
        name=loaded.name,
        spec=loaded.spec,
        folder=loaded.folder,
        outputs=outputs,
        contract=contract_without_model(target, loaded.seed, asked_dims(target, loaded.seed)),
        build=build,
        environment=environment(target.ort, target.ort.providers, loaded.device),
        has_real_seeds=target.seeds is not None,
        notes=loaded.notes,
        confidential=target.confidential,
        mutates_inputs=mutates,
        source_line=source_line(loaded.module),
        tolerance_outputs=tuple(name for name in outputs if name in _toleranced(target)),
        ort=target.ort,
    )


def _facts(
    loaded: LoadedTarget,
    asked: AskedDims,
    exported: Exported,
    weights: str,
    outputs: tuple[str, ...],
    mutates: bool,
    builds_folder: Path,
) -> TargetFacts:
    target = loaded.target
    tolerances = _tolerance_outputs(target, outputs)
    graph = read_graph(exported.model)
    contract = contract_of(target, loaded.seed, graph, asked, exported.origin == "given")
    static = static_dims(asked, contract)
    notes = [*exported.notes, *_checked(exported.model)]
    if static:
        notes.append(f"asked to be dynamic, static in the ONNX model: {', '.join(static)}")
    dropped = [item.name for item in contract.inputs if not item.onnx_name]
    if dropped:
        notes.append(f"the ONNX model does without input {', '.join(dropped)}")
    exported = dataclasses.replace(exported, notes=tuple(notes))
    build = write_build(builds_folder, exported, graph, target.export, loaded.module, weights)
    return TargetFacts(
        name=loaded.name,
        spec=loaded.spec,
        folder=loaded.folder,
        outputs=outputs,
        contract=contract,
        build=build,
        environment=environment(target.ort, target.ort.providers, loaded.device),
        has_real_seeds=target.seeds is not None,
        notes=(*loaded.notes, *(("the module writes to its inputs",) if mutates else ())),
        confidential=target.confidential,
        mutates_inputs=mutates,
        source_line=source_line(loaded.module),
        ort=target.ort,
        tolerance_outputs=tolerances,
    )


def _export(loaded: LoadedTarget, asked: AskedDims, alone: Alone) -> Exported | Refusal:
    """Export from the first seed, and once more from another sample when asked-for dims came out static."""
    first = _unpacked(loaded, alone(lambda: _attempt(loaded, asked, loaded.seed)))
    if isinstance(first, Refusal):
        return first
    lost = _lost(loaded, asked, first)
    if not lost:
        return first
    sample = other_sample(asked, loaded.seed)
    shapes = ", ".join(f"{name}{list(shape)}" for name, shape in sample.shapes.items())
    again = f"exported again from {shapes}, since {', '.join(lost)} came out static from the first seed"
    second = _unpacked(loaded, alone(lambda: _attempt(loaded, asked, sample)))
    if isinstance(second, Refusal):  # the first export stands
        return dataclasses.replace(first, notes=(*first.notes, f"{again}; that export failed: {second.message}"))
    if len(_lost(loaded, asked, second)) < len(lost):
        return dataclasses.replace(second, notes=(*second.notes, again))
    return dataclasses.replace(first, notes=(*first.notes, f"{again}; that did not help"))


def _attempt(loaded: LoadedTarget, asked: AskedDims, sample: Case) -> Attempt:
    """Export from one sample; nothing of the target or of the exporter escapes as an exception."""
    try:
        exported = _export_from(loaded, asked, sample)
        initializers = [tensor.SerializeToString() for tensor in exported.model.graph.initializer]
        del exported.model.graph.initializer[:]
        return Attempt((exported.model.SerializeToString(), *initializers), exported.notes)
    except InvalidTarget as error:
        return Attempt(invalid=error)
    except (Exception, SystemExit) as error:
        return Attempt(error=_export_refusal(error))


def _unpacked(loaded: LoadedTarget, attempt: Attempt) -> Exported | Refusal:
    if attempt.invalid is not None:
        raise attempt.invalid
    if attempt.error is not None:
        return attempt.error
    model = onnx.load_from_string(attempt.parts[0])
    model.graph.initializer.extend(onnx.TensorProto.FromString(part) for part in attempt.parts[1:])
    return Exported(model, f"exported by {loaded.target.export.exporter}", attempt.notes)


def _lost(loaded: LoadedTarget, asked: AskedDims, exported: Exported) -> tuple[str, ...]:
    contract = contract_of(loaded.target, loaded.seed, read_graph(exported.model), asked, is_given=False)
    return static_dims(asked, contract)


def _export_from(loaded: LoadedTarget, asked: AskedDims, sample: Case) -> Exported:
    export = loaded.target.export
    module = _exportable(loaded)
    arguments = tuple(to_tensor(array) for array in sample.inputs.values())
    keywords: dict[str, Any] = {
        "input_names": list(sample.inputs),
        "output_names": list(loaded.target.outputs) if loaded.target.outputs else None,
        "opset_version": export.opset,
        "verbose": False,
        **export.options,
    }
    with quietly() as warned, torch.no_grad():
        if export.exporter == "torchscript":
            model = _by_torchscript(module, arguments, torchscript_axes(asked), keywords)
            narrowed: tuple[str, ...] = ()
        else:
            if not isinstance(module, torch.export.ExportedProgram):
                keywords["dynamic_shapes"] = dynamo_shapes(asked, sample, module.forward)
            program = torch.onnx.export(module, arguments, dynamo=True, optimize=export.optimize, **keywords)
            model = program.model_proto
            narrowed = _narrowed(program.exported_program, asked, sample)
    return Exported(model, f"exported by {export.exporter}", (*narrowed, *warned))


def _by_torchscript(
    module: Any, arguments: tuple[torch.Tensor, ...], axes: dict[str, dict[int, str]], keywords: dict[str, Any]
) -> onnx.ModelProto:
    import io

    buffer = io.BytesIO()
    torch.onnx.export(module, arguments, buffer, dynamo=False, dynamic_axes=axes or None, **keywords)
    return onnx.load_from_string(buffer.getvalue())


def _exportable(loaded: LoadedTarget) -> Any:
    """Return what the exporter takes: the program, the module, or a module around a plain callable."""
    exporter = loaded.target.export.exporter
    given = loaded.target.module
    if isinstance(given, torch.export.ExportedProgram):
        return given if exporter == "dynamo" else loaded.module
    if isinstance(given, torch.jit.ScriptModule) and exporter == "dynamo":
        raise InvalidTarget(
            "export",
            "a ScriptModule cannot be exported by dynamo",
            "set export=Export(exporter='torchscript'), or give the nn.Module it was made from, or its ONNX file",
        )
    if isinstance(given, torch.nn.Module):
        return given
    wrapper = torch.nn.Module()
    wrapper.forward = given  # the exporter reads its signature from here
    return wrapper.eval()


def _narrowed(program: Any, asked: AskedDims, sample: Case) -> tuple[str, ...]:
    """Return a note for each dim whose range the exporter made narrower than what was asked."""
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    notes = []
    for name, value in zip(sample.inputs, values[len(values) - len(sample.inputs) :], strict=False):
        for dim, one in asked.get(name, {}).items():
            size = value.shape[dim] if isinstance(value, torch.Tensor) and dim < value.ndim else None
            found = program.range_constraints.get(size.node.expr) if isinstance(size, torch.SymInt) else None
            if found is None:
                continue
            low, high = int(found.lower), int(found.upper) if found.upper.is_Integer else None
            if low > max(one.low, 1) or (high is not None and (one.high is None or high < one.high)):
                notes.append(f"the exporter narrowed {name}[{dim}] to {low}..{'inf' if high is None else high}")
    return tuple(notes)


def _export_refusal(error: BaseException) -> Refusal:
    """Return an exporter's failure by its cause: torch wraps it in an error whose text is advice."""
    cause = error.__cause__ or error
    lines = [line for line in _ANSI.sub("", str(cause)).splitlines() if line.strip()]
    return Refusal(type(cause).__name__, normalize_message(" ".join(lines[:3])), site_of(cause))


def _require_first_seed(loaded: LoadedTarget) -> tuple[tuple[str, ...], bool]:
    """Run the module on the first seed; return its own output names and whether it writes to its inputs."""
    side = TorchSide(loaded)
    first = side.run(loaded.seed)
    if first.status is not Status.OK:
        assert first.refusal is not None
        shapes = ", ".join(f"{name} {a.dtype.name}{list(a.shape)}" for name, a in loaded.seed.inputs.items())
        raise InvalidTarget(
            "run",
            f"the module refuses its own inputs ({shapes}): {first.refusal.error_class}: {first.refusal.message} "
            f"({first.refusal.site})",
            "give inputs that forward takes, by position and in its order",
        )
    if not first.outputs:
        raise InvalidTarget("run", "the module returns no tensor", "return at least one tensor from forward")
    return side.names(loaded.seed), side.mutates_inputs


def _output_names(target: Target, torch_names: Sequence[str], model: onnx.ModelProto) -> tuple[str, ...] | None:
    """Name the outputs, paired by position; None when an exported model has another number of them."""
    onnx_names = [value.name for value in model.graph.output]
    if target.outputs is not None and len(target.outputs) != len(torch_names):
        raise InvalidTarget(
            "outputs",
            f"{len(target.outputs)} output names for {len(torch_names)} outputs: {', '.join(target.outputs)}",
            f"name each flattened output of forward; the ONNX names are {', '.join(onnx_names)}",
        )
    if len(onnx_names) != len(torch_names):
        if target.onnx is None:
            return None
        raise InvalidTarget(
            "outputs",
            f"torch gives {len(torch_names)} outputs, the ONNX model {len(onnx_names)}: {', '.join(onnx_names)}",
            "wrap the module so that forward returns what the ONNX model does, in its order",
        )
    if target.outputs is not None:
        return tuple(target.outputs)
    return tuple(own or theirs for own, theirs in zip(torch_names, onnx_names, strict=True))


def _tolerance_outputs(target: Target, outputs: Sequence[str]) -> tuple[str, ...]:
    names = _toleranced(target)
    for name in names:
        if name not in outputs:
            raise InvalidTarget("declare", f"tolerances name output {name!r}", f"the outputs: {', '.join(outputs)}")
    return names


def _toleranced(target: Target) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key.partition("[")[0] for key in target.tolerances))


def _checked(model: onnx.ModelProto) -> tuple[str, ...]:
    """Return a note when the full ONNX checker finds fault; ORT may still take the model."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        text = " ".join(str(error).split())
        return (f"the ONNX checker says: {text[:300]}",)
    return ()


def source_line(module: Any) -> str:
    """Return "file.py:12" of a module's forward, or of a callable; "" where Python does not know."""
    if isinstance(module, torch.jit.ScriptModule | torch.fx.GraphModule):
        return ""  # its code was generated
    forward = type(module).forward if isinstance(module, torch.nn.Module) else module
    try:
        file, line = inspect.getsourcefile(forward), inspect.getsourcelines(forward)[1]
    except (TypeError, OSError):
        return ""
    return f"{Path(file).name}:{line}" if file else ""
