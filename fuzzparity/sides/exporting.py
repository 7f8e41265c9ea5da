"""Exporting: one run of an exporter, in whatever process the caller gives it, and what it says of the model it made.

The idea: an export is asked for exactly as the target says, and whatever it lost, took for granted or refused comes
back as notes. Another sample is tried only when asked-for dims came out static, the other exporter only to be able to
say whether it would work.
"""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import torch

from fuzzparity.case import Case
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import Refusal, normalize_message, readable_message
from fuzzparity.sides.build import Exported, put_together, taken_apart
from fuzzparity.sides.graph import read_graph
from fuzzparity.sides.heard import Heard, heard, readable
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.own_code import place_of_error, short, with_code
from fuzzparity.sides.shapes import (
    AskedDims,
    dynamo_shapes,
    other_sample,
    static_dims,
    torchscript_axes,
)
from fuzzparity.sides.tensors import to_tensor
from fuzzparity.sides.terms import contract_of
from fuzzparity.sides.torch_side import site_of
from fuzzparity.sides.torchlib import parse_operators_late
from fuzzparity.target import Export

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_OTHER = {"dynamo": "torchscript", "torchscript": "dynamo"}
_MOST_GUARDS = 10
_AGAIN = "exported again from"  # how the note of another sample begins
_NO_HELP = "that did not help"
_NO_EXPORT = "that export failed"
_MOST_PROGRAM_BYTES = 1 << 26  # a larger program costs more to keep than to export again now and then


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """Hold what one export gave, in a form that travels between processes: a model in parts, or why there is none.

    `parts`: the model without its initializers, then description and data of each of these, since protobuf writes no
    message above 2 GiB. `program`: the decomposed program as torch saves it, for whoever looks for the place of a
    fault; empty where it is large or cannot be saved.
    """

    parts: tuple[bytes, ...] = dataclasses.field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    error: Refusal | None = None
    invalid: InvalidTarget | None = None
    program: bytes = dataclasses.field(default=b"", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class NotExported:
    """Hold why a target could not be exported, and what the other exporter makes of it."""

    error: Refusal
    notes: tuple[str, ...] = ()


Alone = Callable[[Callable[[], Attempt]], Attempt]


def run_here(attempt: Callable[[], Attempt]) -> Attempt:
    """Run an export in this process."""
    return attempt()


def export_twin(
    loaded: LoadedTarget, asked: AskedDims, alone: Alone, tries_other: bool = True
) -> Exported | NotExported:
    """Export from the first seed, and once more from another sample when asked-for dims came out static.

    `tries_other`: when that fails, see whether the other exporter would work. Raises `InvalidTarget` for a module that
    the exporter cannot take at all.
    """
    attempt = alone(lambda: _attempt(loaded, asked, loaded.seed))
    first = _unpacked(loaded, attempt)
    if isinstance(first, Refusal):
        if not tries_other:
            return NotExported(first, attempt.notes)
        return _by_the_other(loaded, asked, alone, first, attempt.notes)
    lost = _lost(loaded, asked, first)
    if not lost:
        return first
    if isinstance(loaded.target.module, torch.export.ExportedProgram) and loaded.target.export.exporter == "dynamo":
        fixed = "the dims of an ExportedProgram are fixed by torch.export.export: give it dynamic_shapes there"
        return dataclasses.replace(first, notes=(*first.notes, fixed))
    sample = other_sample(asked, loaded.seed)
    shapes = ", ".join(f"{name}{list(shape)}" for name, shape in sample.shapes.items())
    again = f"{_AGAIN} {shapes}, since {', '.join(lost)} came out static from the first seed"
    second = _unpacked(loaded, alone(lambda: _attempt(loaded, asked, sample)))
    if isinstance(second, Refusal):  # the first export stands
        return dataclasses.replace(first, notes=(*first.notes, f"{again}; {_NO_EXPORT}: {second.said}"))
    if len(_lost(loaded, asked, second)) < len(lost):
        return dataclasses.replace(second, notes=(*second.notes, again))
    return dataclasses.replace(first, notes=(*first.notes, f"{again}; {_NO_HELP}"))


def was_exported_again(notes: Sequence[str]) -> bool:
    """Tell from the notes of a build whether it was exported from another sample than the first seed."""
    return any(note.startswith(_AGAIN) and _NO_HELP not in note and _NO_EXPORT not in note for note in notes)


def pasteable(export: Export) -> str:
    """Return an `Export` as it is written in a target."""
    fields = [f'exporter="{export.exporter}"']
    fields += [f"opset={export.opset}"] if export.opset is not None else []
    fields += ["optimize=False"] if not export.optimize and export.exporter == "dynamo" else []
    return f"export=Export({', '.join(fields)})"


def _by_the_other(
    loaded: LoadedTarget, asked: AskedDims, alone: Alone, error: Refusal, notes: tuple[str, ...]
) -> NotExported:
    """Tell whether the exporter that was not asked for would work; the answer is a note, never the twin."""
    asked_for = loaded.target.export
    other = dataclasses.replace(asked_for, exporter=_OTHER[asked_for.exporter], options={})
    target = dataclasses.replace(loaded.target, export=other)
    attempt = alone(lambda: _attempt(dataclasses.replace(loaded, target=target), asked, loaded.seed))
    if attempt.invalid is not None:
        told = f"the {other.exporter} exporter does not take it either: {attempt.invalid.problem}"
    elif attempt.error is not None:
        told = f"the {other.exporter} exporter fails too: {attempt.error.said}"
    else:
        told = f"the {other.exporter} exporter takes it: {pasteable(other)}"
        notes = (*notes, *(f"{other.exporter}: {note}" for note in attempt.notes))
    error = dataclasses.replace(error, text=f"{error.text or error.message}; {told}")
    return NotExported(error, (told, *notes))


def _attempt(loaded: LoadedTarget, asked: AskedDims, sample: Case) -> Attempt:
    """Export from one sample; nothing of the target or of the exporter escapes as an exception."""
    said = Heard()
    try:
        with heard() as said, torch.no_grad():
            model, narrowed, program = _export_from(loaded, asked, sample, said)
        initializers = [part for tensor in model.graph.initializer for part in taken_apart(tensor)]
        del model.graph.initializer[:]
        notes = (*narrowed, *_guard_notes(said, list(sample.inputs), narrowed), *said.warned)
        return Attempt((model.SerializeToString(), *initializers), notes, program=program)
    except InvalidTarget as error:
        return Attempt(invalid=error)
    except (Exception, SystemExit) as error:
        return _failed(loaded, error, said)


def _unpacked(loaded: LoadedTarget, attempt: Attempt) -> Exported | Refusal:
    if attempt.invalid is not None:
        raise attempt.invalid
    if attempt.error is not None:
        return attempt.error
    model = onnx.load_from_string(attempt.parts[0])
    for description, data in zip(attempt.parts[1::2], attempt.parts[2::2], strict=True):
        model.graph.initializer.append(put_together(description, data))
    return Exported(model, f"exported by {loaded.target.export.exporter}", attempt.notes, attempt.program)


def _lost(loaded: LoadedTarget, asked: AskedDims, exported: Exported) -> tuple[str, ...]:
    contract = contract_of(loaded.target, loaded.seed, read_graph(exported.model), asked, is_given=False)
    return static_dims(asked, contract)


def _export_from(
    loaded: LoadedTarget, asked: AskedDims, sample: Case, said: Heard
) -> tuple[onnx.ModelProto, tuple[str, ...], bytes]:
    """Return the model, a note for each range that the exporter narrowed, and the program as torch saves it."""
    export = loaded.target.export
    if export.exporter == "torchscript":
        module = _exportable(loaded)
        args, keywords = _call_of_export(loaded, sample)
        buffer = io.BytesIO()
        axes = torchscript_axes(asked)
        torch.onnx.export(module, args, buffer, dynamo=False, dynamic_axes=axes or None, **keywords)
        return onnx.load_from_string(buffer.getvalue()), (), b""
    program = dynamo_program(loaded, asked, sample)
    notes = _narrowed(program.exported_program, asked, sample, said)
    return program.model_proto, notes, _saved(program.exported_program)


def _saved(program: Any) -> bytes:
    """Return a program in torch's own form; nothing where its weights are large or it cannot be written."""
    tensors = [*program.state_dict.values(), *program.constants.values()]
    nbytes = sum(one.numel() * one.element_size() for one in tensors if isinstance(one, torch.Tensor))
    if nbytes > _MOST_PROGRAM_BYTES:
        return b""
    buffer = io.BytesIO()
    try:
        torch.export.save(program, buffer)
    except Exception:  # what torch cannot serialize is exported again when it is needed
        return b""
    return buffer.getvalue()


def dynamo_program(loaded: LoadedTarget, asked: AskedDims, sample: Case) -> Any:
    """Return torch's ONNXProgram of a target: the ONNX model, and the decomposed program that it was made from."""
    export = loaded.target.export
    module = _exportable(loaded)
    args, keywords = _call_of_export(loaded, sample)
    if not isinstance(module, torch.export.ExportedProgram):
        keywords["dynamic_shapes"] = dynamo_shapes(asked, loaded.call, module.forward)
    parse_operators_late()
    program = torch.onnx.export(module, args, dynamo=True, optimize=export.optimize, **keywords)
    if _is_named_twice(program.model_proto):
        keywords["input_names"] = None  # with a name given, an input that is returned has that of the output
        program = torch.onnx.export(module, args, dynamo=True, optimize=export.optimize, **keywords)
    return program


def _call_of_export(loaded: LoadedTarget, sample: Case) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the module, and the keywords that both exporters take."""
    args, kwargs = loaded.call.arguments([to_tensor(array) for array in sample.inputs.values()])
    return args, {
        "kwargs": kwargs or None,
        "input_names": list(sample.inputs),
        "output_names": list(loaded.target.outputs) if loaded.target.outputs else None,
        "opset_version": loaded.target.export.opset,
        "verbose": False,
        **loaded.target.export.options,
    }


def _is_named_twice(model: onnx.ModelProto) -> bool:
    """Tell whether a node puts out what an input is named, which no ONNX model may."""
    inputs = {value.name for value in model.graph.input}
    return any(not inputs.isdisjoint(node.output) for node in model.graph.node)


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
    return as_module(given)


def as_module(given: Any) -> torch.nn.Module:
    """Return a module as it is, and a module around any other callable."""
    if isinstance(given, torch.nn.Module):
        return given
    wrapper = torch.nn.Module()
    wrapper.forward = given  # the exporter reads its signature from here
    return wrapper.eval()


def _narrowed(program: Any, asked: AskedDims, sample: Case, said: Heard) -> tuple[str, ...]:
    """Return a note for each dim whose range the exporter made narrower than what was asked."""
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    notes = []
    for name, value in zip(sample.inputs, values[len(values) - len(sample.inputs) :], strict=False):
        for dim, one in asked.get(name, {}).items():
            size = value.shape[dim] if isinstance(value, torch.Tensor) and dim < value.ndim else None
            symbol = size.node.expr if isinstance(size, torch.SymInt) else None
            found = program.range_constraints.get(symbol)
            if found is None:
                continue
            low, high = int(found.lower), int(found.upper) if found.upper.is_Integer else None
            if low > max(one.low, 1) or (high is not None and (one.high is None or high < one.high)):
                place = said.place_of(str(symbol))
                where = f" (decided at {short(place)})" if place else ""
                notes.append(f"the exporter narrowed {name}[{dim}] to {low}..{'inf' if high is None else high}{where}")
    return tuple(notes)


def _guard_notes(said: Heard, names: list[str], narrowed: tuple[str, ...]) -> tuple[str, ...]:
    """Return a note for each condition on dims by which a branch of the user's own code was decided for good."""
    notes = [
        f"the exporter takes {readable(guard, said.symbols, names)} for granted ({short(guard.place)}); "
        "the other arm is not in the ONNX model"
        for guard in said.guards
        if not any(f"at {short(guard.place)})" in note for note in narrowed)
    ]
    return tuple(notes[:_MOST_GUARDS])


def _failed(loaded: LoadedTarget, error: BaseException, said: Heard) -> Attempt:
    """Return an exporter's failure by its cause: torch wraps it in an error whose text is advice."""
    cause: BaseException = error.__cause__ or error
    while type(cause).__module__.startswith("torch.onnx") and cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [line for line in _ANSI.sub("", str(cause)).splitlines() if line.strip()]
    place = place_of_error(error, said.output)
    text = readable_message(lines[0] if lines else "")
    notes = tuple(said.warned)
    if place is not None:
        text = f"{text} (at {short(place)})"
        if not loaded.target.confidential:
            notes = (f"the {loaded.target.export.exporter} exporter stops at {with_code(place)}", *notes)
    site = short(place) if place is not None else site_of(cause)
    return Attempt(error=Refusal(type(cause).__name__, normalize_message(" ".join(lines[:3])), site, text), notes=notes)
