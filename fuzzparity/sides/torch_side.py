"""Torch side: run one case on the target's module, as it is.

The idea: the module gets fresh copies of its inputs, and state that a run changed is put back after it, so that every
case starts from the same twin. Whatever the target does wrong is an `Execution`, never an exception.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from fuzzparity.case import Array, Case
from fuzzparity.decisions import Decision
from fuzzparity.execution import TORCH, Execution, Refusal, Status, normalize_message, readable_message
from fuzzparity.sides.guard import StateGuard
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.recorders import recorder_of
from fuzzparity.sides.tensors import flatten_outputs, output_names, to_array, to_tensor

_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "std::bad_alloc")


class TorchSide:
    """Run cases on the target's own module.

    `mutates_inputs` and `keeps_state` turn true when a run wrote to its inputs or to what the module holds.
    """

    def __init__(self, loaded: LoadedTarget, output_names: Sequence[str] | None = None) -> None:
        self.output_names = tuple(output_names or ())
        self.mutates_inputs = False
        self._names: tuple[str, ...] | None = None
        self._device = torch.device(loaded.device)
        self._is_moved = self._device.type != "cpu"
        self._module = loaded.module
        if self._is_moved and isinstance(loaded.module, torch.nn.Module):
            self._module = loaded.module.to(self._device)
        self._call = loaded.call
        self._reset = loaded.target.reset
        self._state = StateGuard(loaded.module)
        self._recorder = recorder_of(self._module, loaded.folder)

    @property
    def keeps_state(self) -> bool:
        """Tell whether a run has changed the module."""
        return self._state.was_changed

    @property
    def places(self) -> Mapping[str, tuple[str, int]]:
        """Return file and line of each source of a decision."""
        return self._recorder.places if self._recorder is not None else {}

    @property
    def state_note(self) -> str:
        """Return what to say of a module that keeps state; "" where no run has changed it."""
        return self._state.note

    def run(self, case: Case) -> Execution:
        """Run one case; its arrays, in the order of the target's flattened inputs, become the call's arguments."""
        return self._run(case, None)

    def sent(self, case: Case, arms: Mapping[str, int]) -> Execution | None:
        """Run one case with the arms of its decisions given (key -> outcome), as a program that burnt them in would.

        None where the code cannot be sent into them.
        """
        return self._run(case, arms) if self._recorder is not None and arms else None

    def _run(self, case: Case, arms: Mapping[str, int] | None) -> Execution:
        started = perf_counter()
        try:
            tensors = self._tensors(case)
            args, kwargs = self._call.arguments(tensors)
            if self._reset is not None:
                self._reset(self._module)
            started = perf_counter()
            # no_grad and not inference_mode: inference tensors have no version counter, by which writes are detected,
            # and a module that stores one in a buffer could not be exported or trained after it
            with torch.no_grad():
                if self._recorder is None:
                    result = self._module(*args, **kwargs)
                else:
                    result = self._recorder.call(self._module, args, kwargs, arms)
            seconds = perf_counter() - started
            outputs = flatten_outputs(result)
            if self._names is None:
                self._names = output_names(result)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self._state.restore()
            return replace(refused(TORCH, error, perf_counter() - started), decisions=self._taken())
        self._note_mutation(case, tensors)
        self._state.restore()
        return Execution(TORCH, Status.OK, outputs, seconds=seconds, decisions=self._taken())

    def _taken(self) -> tuple[Decision, ...]:
        """Return the decisions of the run that has ended; a recorder that has nothing to record is let go."""
        recorder = self._recorder
        if recorder is None:
            return ()
        if recorder.is_idle:
            self._recorder = None
        return recorder.path

    def names(self, case: Case) -> tuple[str, ...]:
        """Return the output names that the module itself gives (dict keys, fields); "" for a place without one.

        They are those of the first run that answered; `case` runs when there was none.
        """
        if self._names is None:
            execution = self.run(case)
            assert self._names is not None, execution
        return self._names

    def _tensors(self, case: Case) -> list[torch.Tensor]:
        tensors = [to_tensor(array) for array in case.inputs.values()]
        return [tensor.to(self._device) for tensor in tensors] if self._is_moved else tensors

    def _note_mutation(self, case: Case, tensors: Sequence[torch.Tensor]) -> None:
        for array, tensor in zip(case.inputs.values(), tensors, strict=True):
            if not self.mutates_inputs and tensor._version:
                same = tensor.shape == array.shape and _bytes(to_array(tensor)) == _bytes(array)
                self.mutates_inputs = not same


def _bytes(array: Array) -> bytes:
    return array.astype(array.dtype.newbyteorder("="), copy=False).tobytes()


def refused(side: str, error: BaseException, seconds: float = 0.0, phase: str = "run") -> Execution:
    """Return the execution of a torch side that raised: refused, or out of memory."""
    is_oom = isinstance(error, MemoryError | torch.OutOfMemoryError) or any(s in str(error) for s in _OUT_OF_MEMORY)
    text = str(error)
    refusal = Refusal(type(error).__name__, normalize_message(text), site_of(error), readable_message(text))
    return Execution(side, Status.OOM if is_oom else Status.REFUSED, refusal=refusal, phase=phase, seconds=seconds)


def site_of(error: BaseException) -> str:
    """Return "file:line in function" of the innermost Python frame that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}"
