"""Arbiters: the other ways to compute a case, each in a process of its own.

The idea: every arbiter is a function that gives an Execution, or dies, hangs or refuses, which is an Execution too. It
runs in a fork of the clean investigating process, so none can spoil another.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from fuzzparity.case import Array, Case
from fuzzparity.execution import ORT, Execution, Refusal, Status, normalize_message, readable_message
from fuzzparity.explain.pairing import map_of
from fuzzparity.explain.records import Reexport, TwinSpec, death
from fuzzparity.target import Export, Ort
from fuzzparity.work.alone import Exit, run_alone
from fuzzparity.work.announce import Announcer
from fuzzparity.work.loader import Context

LONGEST_SECONDS = 60.0  # of one arbiter; an export takes the most
_TIMED_RUNS = 7
_MOST_SAID = 200  # characters of what a checker says

T = TypeVar("T")

_made_here: list[Reexport] = []  # in this process


class Bench:
    """Call arbiters on one case of one build."""

    def __init__(self, context: Context, spec: TwinSpec, case: Case, longest_seconds: float = LONGEST_SECONDS) -> None:
        """Bind to a build; nothing is opened here. No arbiter runs for longer than `longest_seconds`."""
        self.case = case
        self._longest_seconds = longest_seconds
        self._context = context
        self._spec = spec
        self._target = context.loaded.target
        self.model = Path(spec.facts.build.folder) / "model.onnx"

    @property
    def ort(self) -> Ort:
        """Return the session options that are tested."""
        return self._target.ort

    @functools.cached_property
    def settings(self) -> tuple[str, ...]:
        """Return, in words, the settings of the session that may change an answer and are not ORT's own defaults."""
        ort = self.ort
        return (*(f"config {key!r}" for key in ort.config), *(["threads"] if (ort.threads or 1) > 1 else []))

    def without(self, settings: tuple[str, ...]) -> Ort:
        """Return the session options that are tested, less some of their `settings`."""
        ort = self.ort
        config = {key: value for key, value in ort.config.items() if f"config {key!r}" not in settings}
        return replace(ort, config=config, threads=None if "threads" in settings else ort.threads)

    @property
    def is_given(self) -> bool:
        """Tell whether the ONNX file was given."""
        return self._spec.facts.build.origin == "given"

    @property
    def export(self) -> Export:
        """Return the export options that are tested."""
        return self._target.export

    @property
    def exporter(self) -> str:
        """Return the exporter that made the file."""
        return self._target.export.exporter

    @functools.cached_property
    def feeds(self) -> dict[str, Array]:
        """Return the case by ONNX input name."""
        inputs = self._spec.facts.contract.inputs
        return {item.onnx_name: self.case.inputs[item.name] for item in inputs if item.onnx_name}

    def on_ort(self, ort: Ort, *, timed: bool = False) -> Execution:
        """Run ORT on the build with other options; `timed` gives the median seconds of a few runs."""
        from fuzzparity.sides.ort_side import open_ort

        def body() -> Execution:
            side = open_ort(self.model, ort, self._spec.facts.contract, self._context.loaded.folder)
            if isinstance(side, Execution):
                return side
            first = side.run(self.case)
            if not (timed and first.is_ok):
                return first
            seconds = sorted(side.run(self.case).seconds for _ in range(_TIMED_RUNS))
            return replace(first, seconds=seconds[len(seconds) // 2])

        return self._alone(body, ORT)

    def captured(self, *, decomposed: bool = False) -> Execution:
        """Run the program that the dynamo exporter captures, in torch."""
        from fuzzparity.sides.captured import captured

        return self._torch(lambda: captured(self._context.loaded, decomposed=decomposed))

    def traced(self) -> Execution:
        """Run the traced module, in torch."""
        from fuzzparity.sides.captured import traced

        return self._torch(lambda: traced(self._context.loaded))

    def reference(self) -> Execution:
        """Run the file on the ONNX reference evaluator."""
        from fuzzparity.blame.reference import run_reference

        return self._alone(lambda: run_reference(self._proto(), self.feeds), "reference")

    def refusal_at(self, op: str, node: str) -> str:
        """Return what the ONNX reference says where it refuses at a node what that reads; "" where it does not."""
        from fuzzparity.blame.reference import refusal_at

        answer = self._alone(lambda: refusal_at(self._proto(), self.feeds, op, node), "reference")
        return answer if isinstance(answer, str) else ""

    def problem(self) -> str:
        """Return what the ONNX checker, types and shapes included, finds wrong; "" where it accepts the file."""
        import onnx

        def body(announcer: Announcer, send: Callable[[Any], None]) -> str:
            try:
                onnx.checker.check_model(str(self.model), full_check=True)
            except Exception as error:  # of protobuf, of the checker and of inference, without a base of their own
                return readable_message(str(error))[:_MOST_SAID] or type(error).__name__
            return ""

        answer = self._run(body)
        return answer if isinstance(answer, str) else ""

    def weights(self) -> str:
        """Say whether the given file holds the module's weights; "" where there are none to compare."""
        from fuzzparity.sides.weights import compared_weights

        answer = self._run(lambda announcer, send: compared_weights(self._context.loaded.module, self._proto()))
        if isinstance(answer, Exit) or not answer.count:
            return ""
        is_whole = answer.found == answer.count
        return f"it holds all {answer.count} weights of the module" if is_whole else str(answer.text)

    def exported_again(self, export: Export) -> Execution:
        """Export the module with other options, unless that was done before, and run ORT on that."""
        from fuzzparity.sides.ort_side import open_ort

        made = self._reexport(export)
        if made.failure is not None:
            return made.failure
        contract = made.contract
        assert contract is not None

        def body() -> Execution:
            side = open_ort(Path(made.model), self.ort, contract, self._context.loaded.folder)
            return side if isinstance(side, Execution) else side.run(self.case)

        return self._alone(body, ORT)

    def _reexport(self, export: Export) -> Reexport:
        """Return the module exported with other options, and tell the parent of it where it is made here."""
        for known in (*_made_here, *self._spec.reexports):
            is_asked = (known.build, known.export) == (self._spec.facts.build.digest, export)
            if is_asked and (known.failure is not None or Path(known.model).is_file()):
                return known
        made = self._exported(export)
        _made_here.append(made)
        self._context.send(made)
        return made

    def _exported(self, export: Export) -> Reexport:
        from fuzzparity.sides.export import make_build

        shapes = self._target.dynamic_shapes if self._target.dynamic_shapes is not None else self._dims()
        target = replace(self._target, export=export, onnx=None, dynamic_shapes=shapes)
        loaded = replace(self._context.loaded, target=target)
        # in the run's own folder, which goes when the run does
        build = self._spec.facts.build.digest
        folder = Path(tempfile.mkdtemp(prefix="again-", dir=self._context.map_path.parent))

        def body() -> Execution | Reexport:
            result = make_build(loaded, folder, tries_other=False)
            if result.facts is None:
                return Execution(ORT, Status.REFUSED, refusal=result.error, phase="load")
            model = Path(result.facts.build.folder) / "model.onnx"
            return Reexport(build, export, str(model), result.facts.contract)

        answer = self._alone(body, ORT)
        return answer if isinstance(answer, Reexport) else Reexport(build, export, failure=answer)

    def _dims(self) -> dict[str, dict[int, str]]:
        """Return the dynamic dims of the contract, for a target whose given file alone says what varies."""
        symbols: dict[str, str] = {}
        return {
            item.name: {
                place: symbols.setdefault(dim.symbol, f"size_{len(symbols)}")
                for place, dim in enumerate(item.dims)
                if dim.is_dynamic
            }
            for item in self._spec.facts.contract.inputs
        }

    def acting_passes(self) -> tuple[str, ...]:
        """Return the graph passes that change this model in ORT."""
        from fuzzparity.sides.passes import acting_passes

        answer = self._run(lambda announcer, send: acting_passes(self.model, self.ort))
        return () if isinstance(answer, Exit) else tuple(answer)

    def healing(self, passes: tuple[str, ...], heals: Callable[[Execution], bool]) -> tuple[str, ...] | None:
        """Return the smallest set of passes without which ORT gives an answer that `heals`."""
        from fuzzparity.blame.passes import smallest_healing_set

        disabled = tuple(self.ort.disabled_optimizers)
        return smallest_healing_set(
            passes, lambda names: heals(self.on_ort(replace(self.ort, disabled_optimizers=(*disabled, *names))))
        )

    def guilty_node(self) -> tuple[str, str] | None:
        """Return (op, name) of the node whose kernel, unoptimized and alone, leaves the ONNX reference or dies."""
        from fuzzparity.blame.nodes import guilty_node
        from fuzzparity.blame.reference import intermediate_values
        from fuzzparity.sides.bare import run_bare

        last: list[tuple[str, str]] = []
        unoptimized = replace(self.ort, optimization_level="none")

        def body(announcer: Announcer, send: Callable[[Any], None]) -> tuple[str, str] | None:
            model = self._proto()
            values = intermediate_values(model, self.feeds)
            found = guilty_node(
                model,
                values,
                self.feeds,
                lambda single, feeds: run_bare(single, feeds, unoptimized),
                lambda op, name: send((op, name)),
            )
            return (found.op, found.node) if found is not None else None

        answer = self._run(body, last.append)
        if isinstance(answer, Exit):
            died = answer.signal is not None or answer.hang
            return last[-1] if died and last else None
        return (answer[0], answer[1]) if answer else None

    def _proto(self) -> Any:
        import onnx

        return onnx.load(self.model)

    def _torch(self, make: Callable[[], Any]) -> Execution:
        from fuzzparity.sides.torch_side import TorchSide

        return self._alone(lambda: TorchSide(make()).run(self.case), "torch")

    def _alone(self, body: Callable[[], T], side: str) -> T | Execution:
        """Run one arbiter in a process of its own; an exception of its making is a refusal."""

        def attempt(announcer: Announcer, send: Callable[[Any], None]) -> T | Execution:
            started = perf_counter()
            try:
                return body()
            except Exception as error:  # exporters and evaluators raise whatever they meet
                text = str(error)
                refusal = Refusal(type(error).__name__, normalize_message(text), "", readable_message(text))
                return Execution(side, Status.REFUSED, refusal=refusal, phase="load", seconds=perf_counter() - started)

        answer: T | Execution | Exit = self._run(attempt)
        return death(answer, side) if isinstance(answer, Exit) else answer

    def _run(self, body: Callable[..., Any], on_message: Callable[[Any], None] = lambda message: None) -> Any:
        return run_alone(
            body,
            map_path=map_of(self._context),
            limits=self._context.limits,
            on_message=on_message,
            total_seconds=self._longest_seconds,
        )
