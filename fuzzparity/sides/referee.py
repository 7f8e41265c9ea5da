"""Referee: the target's module in float64, exactly, or with every intermediate rounded at random.

The idea: a copy of the module runs under a dispatch mode (`double`) that keeps every float in float64 whatever
forward asks for. Where the mode was seen to change nothing, the copy alone gives the same bits at a fraction of the
time; that is proven on a case and then used for the cases around it, which is where evidence asks.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from fuzzparity.case import Array, Case, is_float
from fuzzparity.decisions import Decision
from fuzzparity.sides.bounds import BoundMode
from fuzzparity.sides.double import Float64Mode, PeakMode, RoundingMode, default_float64, promoted
from fuzzparity.sides.guard import OWN_TO_TORCH, StateGuard, is_plain_object
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.native import MANTISSA_BITS, Followed, Step, native_steps
from fuzzparity.sides.recorders import AnyRecorder
from fuzzparity.sides.tensors import flatten_outputs, output_leaves, to_tensor
from fuzzparity.sides.unmoved import UnmovedMode

_MOST_WIDENED = 4096  # containers and objects that are looked into for tensors
_PLAIN_RUNS = 15  # without the mode, before both are compared again
_NEARNESS = 1 / 32  # of an input's largest magnitude: evidence moves inputs by 8 eps at most, 1 / 128 in float16


class Referee:
    """Answer in float64 for the oracle. `missing` says why there is no answer; it is empty while there is one."""

    source = "torch float64"
    is_of_file = False

    def __init__(self, loaded: LoadedTarget, working_dtype: str = "float32") -> None:
        self.missing = ""
        self.operators = 0  # of the last rounded run
        self.recorder: AnyRecorder | None = None  # of whoever wants to know what it decides
        self._bits = MANTISSA_BITS.get(working_dtype, 23)
        self._dtype: torch.dtype = getattr(torch, working_dtype) if working_dtype in MANTISSA_BITS else torch.float32
        self._module: Callable[..., Any] | None = None
        try:
            with warnings.catch_warnings():  # torch's own deprecations while it unpacks a program
                warnings.simplefilter("ignore")
                self._module = _in_double(loaded)
        except Exception as error:
            self.missing = _reason("the module cannot be copied to float64", error)
        self._held = _held_by(self._module)  # kept alive, so that nothing else comes to lie where these do
        self._weights = frozenset(one.untyped_storage().data_ptr() for one in self._held)
        self._loaded = loaded
        self._followed: tuple[str, tuple[Step, ...]] | None = None  # the case that was watched last
        self._call = loaded.call
        self._reset = loaded.target.reset
        self._state = StateGuard(self._module)
        # TorchScript compiles what it has run twice, unless a mode watches
        self._plain = _PlainRuns(are_possible=not isinstance(self._module, torch.jit.ScriptModule))

    def exact(self, case: Case) -> tuple[Array, ...] | None:
        """Return the outputs in float64 (integers stay integers), or None when the referee cannot run."""
        inputs = _widened(case)
        if self._plain.serves(inputs):
            outputs = self._run(inputs, None)
            if outputs is not None and not any(_is_narrow(array) for array in outputs):
                return outputs
            self._plain.are_possible = False
        mode = Float64Mode()
        outputs = self._run(inputs, mode)
        if outputs is not None and self._plain.are_possible:
            if mode.has_intervened:
                self._plain.forget(inputs)
            else:
                self._plain.learn(inputs, outputs, self._run(inputs, None))
                self.missing = ""
        return _wide_outputs(outputs)

    def rounded(self, case: Case, draw: int, times: float = 1.0) -> tuple[Array, ...] | None:
        """Return the outputs of one run with each intermediate rounded at random; one `draw`, one answer."""
        inputs = _widened(case)
        mode = self._rounding(case, draw, times)
        mode.promotes = not self._plain.is_proven(inputs)
        outputs = self._run(inputs, mode)
        self.operators = mode.operators
        return _wide_outputs(outputs)

    def _rounding(self, case: Case, draw: int, times: float = 1.0) -> RoundingMode:
        """Return a mode that rounds to the working precision, or where torch computes in more, to that."""
        if self._bits >= MANTISSA_BITS["float32"]:
            return RoundingMode(self._bits, draw, times, self._weights)
        if self._followed is None or self._followed[0] != case.digest:
            self._followed = case.digest, native_steps(self._loaded, case, self._bits)
        steps = self._followed[1]
        return RoundingMode(self._bits, draw, times, self._weights, Followed(steps).next if steps else None)

    def path(self, case: Case, draw: int | None = None) -> tuple[Decision, ...]:
        """Return what the module decides in one exact run, or with each intermediate rounded at random."""
        if self.recorder is None:
            return ()
        mode = Float64Mode() if draw is None else self._rounding(case, draw)
        return self.recorder.path if self._run(_widened(case), mode) is not None else ()

    def peak(self, case: Case) -> float:
        """Return the largest finite magnitude of any float intermediate, inputs included; 0.0 when it cannot run."""
        mode = PeakMode()
        outputs = self._run(_widened(case), mode)
        return mode.peak if outputs is not None else 0.0

    def bounds(self, case: Case) -> tuple[tuple[Array | None, ...], str]:
        """Return for each output how far roundings in any order may move it, and from which operator on none is known.

        None for integers and where it is not known; nothing at all when the referee cannot run.
        """
        mode = BoundMode(self._dtype)
        fused = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # one operator for a whole encoder layer, inside it none is seen
        try:
            bounds = self._run(_widened(case), mode, lambda result: tuple(map(mode.of, output_leaves(result))))
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
        return bounds or (), mode.unknown

    def unmoved(self, case: Case) -> frozenset[int]:
        """Return the places of outputs that come from integers alone, so that no float and no rounding moves them."""
        if self._module is None or not self._can_be_followed:
            return frozenset()
        mode = UnmovedMode()
        for one in self._held:
            mode.see(one)
        read = self._run(_widened(case), mode, lambda result: tuple(map(mode.is_unmoved, output_leaves(result))))
        return frozenset(place for place, is_unmoved in enumerate(read or ()) if is_unmoved)

    @functools.cached_property
    def _can_be_followed(self) -> bool:
        """Tell whether a mode sees what the module reads into Python: TorchScript reads values by itself."""
        parts = self._module.modules() if isinstance(self._module, torch.nn.Module) else ()
        return not any(isinstance(part, torch.jit.ScriptModule) for part in parts)

    def _run(
        self,
        inputs: Sequence[Array],
        mode: Float64Mode | None,
        read: Callable[[Any], tuple[Any, ...]] = flatten_outputs,
    ) -> tuple[Any, ...] | None:
        """Run the module in double under a mode and read its result; None, and why in `missing`, if it does not run."""
        if self._module is None:
            return None
        try:
            tensors = [to_tensor(array) for array in inputs]
            if mode is not None:
                for tensor in tensors:
                    mode.see(tensor)
            args, kwargs = self._call.arguments(tensors)
            if self._reset is not None:
                self._reset(self._module)
            # where a target uses torch.compile, neither the copy nor the code of the mode is to be compiled
            uncompiled = torch.compiler.set_stance("force_eager")
            with torch.no_grad(), default_float64(), uncompiled, mode or contextlib.nullcontext():
                if self.recorder is None:
                    result = self._module(*args, **kwargs)
                else:
                    result = self.recorder.call(self._module, args, kwargs)
            outputs = read(result)
        except (Exception, SystemExit) as error:
            self.missing = _reason("the module does not run in float64", error)
            return None
        finally:
            self._state.restore()
        self.missing = ""
        return outputs


class _PlainRuns:
    """Decide which cases the module in double may run without a mode.

    Forward may take another arm on another case and ask for a narrow float there, so a proof holds for inputs of the
    same shapes and nearly the same values only, and for a few runs. Whatever contradicts a proof ends this for good.
    """

    def __init__(self, *, are_possible: bool) -> None:
        self.are_possible = are_possible
        self._proven: tuple[Array, ...] | None = None
        self._left = 0

    def is_proven(self, inputs: Sequence[Array]) -> bool:
        """Tell whether the mode was seen to change nothing on inputs like these."""
        return self.are_possible and self._are_near(inputs)

    def serves(self, inputs: Sequence[Array]) -> bool:
        """Tell whether to run these inputs without a mode."""
        if self._left == 0 or not self.is_proven(inputs):
            return False
        self._left -= 1
        return True

    def learn(self, inputs: Sequence[Array], outputs: Sequence[Array], plain: Sequence[Array] | None) -> None:
        """Compare a run under a mode that changed nothing with one without it."""
        self.are_possible = plain is not None and _are_same(outputs, plain)
        self._proven, self._left = tuple(inputs), _PLAIN_RUNS

    def forget(self, inputs: Sequence[Array]) -> None:
        """Note that the mode did change something on these inputs."""
        self.are_possible = not self._are_near(inputs)
        self._proven, self._left = None, 0

    def _are_near(self, inputs: Sequence[Array]) -> bool:
        if self._proven is None:
            return False
        return all(_is_near(array, proven) for array, proven in zip(inputs, self._proven, strict=True))


def _is_near(array: Array, proven: Array) -> bool:
    if array.shape != proven.shape or array.dtype != proven.dtype:
        return False
    if array.dtype.kind not in "fc":
        return bool(np.array_equal(array, proven))
    with np.errstate(all="ignore"):
        size = np.abs(proven)
        reach = np.max(size, initial=0.0, where=np.isfinite(size)) * _NEARNESS
        near = (np.abs(array - proven) <= reach) | (array == proven) | (np.isnan(array) & np.isnan(proven))
    return bool(near.all())


def _are_same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Tell whether outputs are equal, any NaN being equal to any other."""
    return len(one) == len(other) and all(
        a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        for a, b in zip(one, other, strict=True)
    )


def _held_by(module: Any) -> tuple[torch.Tensor, ...]:
    """Return the parameters and buffers of a module that lie in memory of their own."""
    if not isinstance(module, torch.nn.Module):
        return ()
    held = (*module.parameters(), *module.buffers())
    plain = (one for one in held if one.layout is torch.strided and not (one.is_quantized or one.is_inference()))
    return tuple(one.detach() for one in plain)


def _reason(what: str, error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{what}: {type(error).__name__}{': ' + text[0][:200] if text else ''}"


def _widened(case: Case) -> list[Array]:
    return [_wide(array) for array in case.inputs.values()]


def _wide(array: Array) -> Array:
    if is_float(array.dtype):
        return array.astype(np.float64)
    return array.astype(np.complex128) if array.dtype.kind == "c" else array


def _is_narrow(array: Array) -> bool:
    return is_float(array.dtype) and array.dtype != np.float64


def _wide_outputs(outputs: tuple[Array, ...] | None) -> tuple[Array, ...] | None:
    if outputs is None:
        return None
    return tuple(array.astype(np.float64) if _is_narrow(array) else array for array in outputs)


def _in_double(loaded: LoadedTarget) -> Any:
    """Return a copy of the module with every float parameter, buffer and tensor attribute in float64."""
    if isinstance(loaded.target.module, torch.export.ExportedProgram):
        # its guards compare dtypes and sizes with those of the export
        module: Any = loaded.target.module.module(check_guards=False)
    else:
        module = loaded.module
    if isinstance(module, types.FunctionType):
        return _function_in_double(module)
    with torch.no_grad():
        return _widened_inside(copy.deepcopy(module), set())


def _function_in_double(function: types.FunctionType) -> types.FunctionType:
    """Return a function with copies, in float64, of the modules and tensors that it has closed over."""
    own = (torch.nn.Module, torch.Tensor)
    if not any(isinstance(_content(cell), own) for cell in function.__closure__ or ()):
        return function
    cells = []
    for cell in function.__closure__ or ():
        content = _content(cell)
        with torch.no_grad():
            is_own = isinstance(content, own)
            cells.append(types.CellType(_widened_inside(copy.deepcopy(content), set())) if is_own else cell)
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells)
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _widened_inside(value: Any, seen: set[int]) -> Any:
    """Return a value with every narrow float tensor in it in float64; what can change is changed in place.

    A write to a tensor that stayed narrow would be lost: it would go to a copy that the mode makes.
    """
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        return promoted(value)
    if isinstance(value, tuple):
        return _pytree.tree_map(promoted, value)
    if id(value) in seen or len(seen) > _MOST_WIDENED:
        return value
    seen.add(id(value))
    if isinstance(value, torch.nn.Module):
        value.double().cpu()
        for part in [] if isinstance(value, torch.jit.ScriptModule) else value.modules():
            for name, held in list(vars(part).items()):
                if name not in OWN_TO_TORCH:
                    vars(part)[name] = _widened_inside(held, seen)
    elif isinstance(value, list):
        value[:] = [_widened_inside(held, seen) for held in value]
    elif isinstance(value, dict):
        value.update({key: _widened_inside(held, seen) for key, held in value.items()})
    elif isinstance(value, types.MethodType):
        _widened_inside(value.__self__, seen)
    elif isinstance(value, functools.partial):
        _widened_inside(value.func, seen)
    elif is_plain_object(value):
        _widened_inside(vars(value), seen)
    return value
