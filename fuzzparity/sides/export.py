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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fuzzparity.contract import Build, Contract, TargetFacts
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import Refusal
from fuzzparity.sides.build import Exported, write_build
from fuzzparity.sides.conduct import Conduct, observe, require_carry
from fuzzparity.sides.environment import environment, packages
from fuzzparity.sides.exporting import Alone, Attempt, NotExported, export_twin, run_here
from fuzzparity.sides.graph import read_graph
from fuzzparity.sides.guard import StateGuard
from fuzzparity.sides.lint import lint
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.mining import mined
from fuzzparity.sides.onnx_files import given_onnx, keep_outputs
from fuzzparity.sides.ort_side import check_ort
from fuzzparity.sides.shapes import AskedDims, asked_dims, static_dims
from fuzzparity.sides.state import load_state, state_digest
from fuzzparity.sides.terms import contract_of, contract_without_model
from fuzzparity.target import Target

__all__ = ["Attempt", "BuildResult", "facts_without_model", "load_state", "make_build", "run_here"]


@dataclasses.dataclass(frozen=True, slots=True)
class BuildResult:
    """Hold the facts of a build, or the refusal of the exporter (`kind` "export_error") and what was noted with it."""

    facts: TargetFacts | None = None
    error: Refusal | None = None
    kind: str = ""
    notes: tuple[str, ...] = ()


def make_build(
    loaded: LoadedTarget, builds_folder: Path, *, alone: Alone = run_here, tries_other: bool = True
) -> BuildResult:
    """Export the target, or take its given ONNX, and write `builds_folder/DIGEST`.

    `alone` runs each export: in a process of its own where the caller can fork, since one export may spoil the next
    (torch makes the second LSTM of a process static in silence). Raises `InvalidTarget` for a target that is wrong: an
    ONNX that cannot be read, inputs that torch refuses, names that do not fit. A sound target on which the exporter
    fails is a result with an error; then `tries_other` lets the other exporter show whether it would work.
    """
    target = loaded.target
    check_ort(target.ort, loaded.folder)
    asked = asked_dims(target, loaded.seed)
    given = given_onnx(target, loaded.folder)
    weights, state = state_digest(loaded.module), StateGuard(loaded.module)
    if given is not None:
        exported = Exported(given, "given")
    else:
        try:
            made = export_twin(loaded, asked, alone, tries_other)
        finally:
            state.restore()  # an exporter runs forward, which may count in a buffer
        if isinstance(made, NotExported):
            observe(loaded, asked)
            return BuildResult(error=made.error, kind="export_error", notes=made.notes)
        exported = made
    conduct = observe(loaded, asked)
    torch_names = conduct.names
    paired = _pair_outputs(target, torch_names, exported)
    if paired is None:
        message = f"torch gives {len(torch_names)} outputs, the exported model {len(exported.model.graph.output)}"
        return BuildResult(error=Refusal("OutputCount", message, "outputs"), kind="export_error", notes=exported.notes)
    outputs, exported = paired
    return BuildResult(_facts(loaded, asked, exported, weights, outputs, conduct, builds_folder))


def facts_without_model(loaded: LoadedTarget, *, can_run: bool = True, notes: tuple[str, ...] = ()) -> TargetFacts:
    """Return the facts of a target that could not be exported, as far as the target itself says them.

    `can_run=False`: its module dies on the first seed, so that the outputs are known only where the target names them.
    `notes`: what was said while the export was tried.
    """
    target = loaded.target
    asked = asked_dims(target, loaded.seed)
    conduct = observe(loaded, asked) if can_run else Conduct(tuple(target.outputs or ()))
    names = conduct.names
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
        notes=notes,
    )
    return TargetFacts(
        name=loaded.name,
        spec=loaded.spec,
        folder=loaded.folder,
        outputs=outputs,
        contract=contract_without_model(target, loaded.seed, asked),
        build=build,
        environment=environment(target.ort, target.ort.providers, loaded.device),
        has_real_seeds=target.seeds is not None,
        notes=(*loaded.notes, *conduct.notes),
        confidential=target.confidential,
        mutates_inputs=conduct.mutates_inputs,
        source_line=source_line(loaded.module),
        tolerance_outputs=tuple(name for name in outputs if name in _toleranced(target)),
        ort=target.ort,
        dtypes=loaded.dtypes,
    )


def _facts(
    loaded: LoadedTarget,
    asked: AskedDims,
    exported: Exported,
    weights: str,
    outputs: tuple[str, ...],
    conduct: Conduct,
    builds_folder: Path,
) -> TargetFacts:
    target = loaded.target
    tolerances = _tolerance_outputs(target, outputs)
    graph = read_graph(exported.model)
    contract = contract_of(target, loaded.seed, graph, asked, exported.origin == "given", mined(loaded.module))
    require_carry(loaded, outputs, conduct, contract)
    static, is_given = static_dims(asked, contract), exported.origin == "given"
    notes = [*exported.notes, *(item.text for item in lint(target, loaded.module, exported.model, is_given=is_given))]
    if static:
        notes.append(f"asked to be dynamic, static in the ONNX model: {', '.join(static)}")
    notes += _merged_dims(asked, contract)
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
        notes=(*loaded.notes, *conduct.notes),
        confidential=target.confidential,
        mutates_inputs=conduct.mutates_inputs,
        source_line=source_line(loaded.module),
        ort=target.ort,
        dtypes=loaded.dtypes,
        tolerance_outputs=tolerances,
    )


def _merged_dims(asked: AskedDims, contract: Contract) -> list[str]:
    """Return a note for each group of dims that were asked for under several names and came out as one."""
    groups: dict[str, dict[str, str]] = {}
    for item in contract.inputs:
        for dim, one in asked.get(item.name, {}).items():
            if one.name and item.dims[dim].symbol:
                groups.setdefault(item.dims[dim].symbol, {}).setdefault(one.name, f"{item.name}[{dim}]")
    merged = [group for group in groups.values() if len(group) > 1]
    return [f"asked to be independent, one dim in the ONNX model: {', '.join(group.values())}" for group in merged]


def _pair_outputs(
    target: Target, torch_names: Sequence[str], exported: Exported
) -> tuple[tuple[str, ...], Exported] | None:
    """Name the outputs and return the model with its outputs in their order; None when an export has another number.

    Paired by name where the ONNX model has all of these names, else by position. ONNX outputs beyond them are left out
    only when every other one is paired by name.
    """
    onnx_names = [value.name for value in exported.model.graph.output]
    if target.outputs is not None and len(target.outputs) != len(torch_names):
        raise InvalidTarget(
            "outputs",
            f"{len(target.outputs)} output names for {len(torch_names)} outputs: {', '.join(target.outputs)}",
            f"name each flattened output of forward; the ONNX names are {', '.join(onnx_names)}",
        )
    names = list(target.outputs or torch_names)
    is_named = all(names) and len(set(names)) == len(names) and set(names) <= set(onnx_names)
    if is_named and names != onnx_names and exported.origin == "given":
        return tuple(names), _with_outputs(exported, names)
    if len(onnx_names) == len(torch_names):
        return tuple(own or theirs for own, theirs in zip(names, onnx_names, strict=True)), exported
    if exported.origin != "given":
        return None
    missing = [name for name in names if name not in onnx_names] if all(names) else []
    more = f"; it has no {', '.join(missing)}" if missing else ""
    raise InvalidTarget(
        "outputs",
        f"torch gives {len(torch_names)} outputs, the ONNX model {len(onnx_names)}: {', '.join(onnx_names)}{more}",
        "wrap the module so that forward returns what the ONNX model does, in its order; where the ONNX model has "
        "more, `outputs` with its names for those of forward is enough",
    )


def _with_outputs(exported: Exported, names: list[str]) -> Exported:
    """Return a given model with these outputs alone, in this order, and a note that says so."""
    before = [value.name for value in exported.model.graph.output]
    rest = [name for name in before if name not in names]
    note = "outputs are paired by name"
    if rest:
        note += f"; the ONNX model also gives {', '.join(rest)}: left out of the twin, as forward does not return it"
    return dataclasses.replace(exported, model=keep_outputs(exported.model, names), notes=(*exported.notes, note))


def _tolerance_outputs(target: Target, outputs: Sequence[str]) -> tuple[str, ...]:
    names = _toleranced(target)
    for name in names:
        if name not in outputs:
            raise InvalidTarget("declare", f"tolerances name output {name!r}", f"the outputs: {', '.join(outputs)}")
    return names


def _toleranced(target: Target) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key.partition("[")[0] for key in target.tolerances))


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
