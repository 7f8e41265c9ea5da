"""Tape: the calls that torch ran for a case, each with what it read and gave, to be run again on other values.

The idea: the calls that lead from some values to another are a small program of torch's own. Calls are recorded as the
module's code writes them, or operator by operator; what writes to a tensor in place is part of what reads it later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from fuzzparity.case import Array, Case
from fuzzparity.sides.eager import plain_control_flow
from fuzzparity.sides.guard import StateGuard
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.quiet import quietly
from fuzzparity.sides.tensors import to_array, to_tensor

_MOST_BYTES = 1 << 30  # of kept outputs; what comes after them has no values
_CONVOLUTIONS = ("torch.nn.functional.conv1d", "torch.nn.functional.conv2d", "torch.nn.functional.conv3d")


@dataclass(frozen=True, slots=True)
class Ref:
    """Stand for a value of the tape in the arguments of a call."""

    number: int


@dataclass(frozen=True, slots=True)
class Call:
    """Hold one call: the function under the name by which a program can call it, arguments and results as `Ref`s."""

    name: str  # "torch.nn.functional.conv2d", "torch.ops.aten.relu.default"; "" where it has none
    func: Callable[..., Any] = field(repr=False)
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: Any  # as the function gives them, tensors as Refs

    def reads(self) -> list[int]:
        """Return the numbers of the values that it reads, in order."""
        return [one.number for one in _leaves((self.args, self.kwargs)) if isinstance(one, Ref)]

    def gives(self) -> list[int]:
        """Return the numbers of the values that it gives."""
        return [one.number for one in _leaves(self.results) if isinstance(one, Ref)]


class Tape:
    """Hold the calls of one run and the values between them, by number."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.makers: dict[int, int] = {}  # value -> the place of the call that gave it
        self._numbers: dict[int, int] = {}  # id of a tensor -> the number of its value now
        self._kept: list[torch.Tensor] = []  # by number; kept alive, so that no id is used twice
        self._arrays: dict[int, Array] = {}
        self._storages: dict[int, int] = {}  # value -> address of what it lies in
        self._writers: dict[int, list[int]] = {}  # address -> places of calls that write there
        self._nbytes = 0

    def array(self, number: int) -> Array | None:
        """Return a value as it was when it was made; None where it was not kept."""
        if number not in self._arrays and number not in self.makers and not self._is_written(number):
            self._arrays[number] = to_array(self._kept[number])
        return self._arrays.get(number)

    def _is_written(self, number: int) -> bool:
        return bool(self._writers.get(self._storages[number]))

    def numbers(self) -> Iterator[tuple[int, int]]:
        """Yield (number, how many elements) of all values, in order."""
        yield from ((number, tensor.numel()) for number, tensor in enumerate(self._kept))

    def sliced(self, outputs: Sequence[int], is_leaf: Callable[[int], bool]) -> tuple[list[Call], list[int]]:
        """Return (the calls that lead to some values, in order; the values that they start from).

        They end at values that `is_leaf` names, and at those that no call gave.
        """
        wanted: set[int] = set()
        leaves: dict[int, None] = {}
        asked = [(number, len(self.calls)) for number in outputs]
        seen: set[tuple[int, int]] = set()
        while asked:
            number, before = asked.pop()
            if (number, before) in seen:
                continue
            seen.add((number, before))
            made = self.makers.get(number)
            first = number in outputs and before == len(self.calls)
            if made is None or (not first and is_leaf(number)):
                leaves.setdefault(number)
                made = -1 if made is None else made
                needed = []
            else:
                needed = [made]
            needed += [place for place in self._writers.get(self._storages[number], ()) if made < place < before]
            for place in needed:
                wanted.add(place)
                asked += [(one, place) for one in self.calls[place].reads()]
        return [self.calls[place] for place in sorted(wanted)], list(leaves)

    # recording

    def take(self, name: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a call and record it."""
        read = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        versions = [_version(tensor) for tensor in read]
        known_args, known_kwargs = _mapped(args, self._ref), _mapped(kwargs, self._ref)
        result = func(*args, **kwargs)
        place = len(self.calls)
        written = [tensor for tensor, version in zip(read, versions, strict=True) if _version(tensor) != version]
        gives_tensors = any(isinstance(leaf, torch.Tensor) for leaf in _leaves(result))
        if not written and not gives_tensors:
            return result
        for tensor in written:
            self._writers.setdefault(_address(tensor), []).append(place)
        results = _mapped(result, lambda leaf: self._given(leaf, place))
        self.calls.append(Call(name, func, known_args, known_kwargs, results))
        return result

    def _ref(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        number = self._numbers.get(id(leaf))
        return Ref(self._new(leaf) if number is None else number)

    def _given(self, leaf: Any, place: int) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        number = self._new(leaf)
        self.makers[number] = place
        if self._nbytes < _MOST_BYTES and leaf.layout == torch.strided:
            self._arrays[number] = to_array(leaf)
            self._nbytes += self._arrays[number].nbytes
        return Ref(number)

    def _new(self, tensor: torch.Tensor) -> int:
        number = len(self._kept)
        self._kept.append(tensor)
        self._numbers[id(tensor)] = number
        self._storages[number] = _address(tensor)
        return number


def taped(loaded: LoadedTarget, case: Case, *, by_operator: bool = False) -> Tape:
    """Return the calls of one run of the module; where torch refuses, they end there."""
    state = StateGuard(loaded.module)
    tape = Tape()
    mode = _Operators(tape) if by_operator else _Functions(tape)
    args, kwargs = loaded.call.arguments([to_tensor(array) for array in case.inputs.values()])
    try:
        if loaded.target.reset is not None:
            loaded.target.reset(loaded.module)
        with quietly(), torch.no_grad(), torch.compiler.set_stance("force_eager"), plain_control_flow(), mode:
            loaded.module(*args, **kwargs)
    except Exception:  # torch refuses the case
        pass
    finally:
        state.restore()
    return tape


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    """Record calls as the module's code writes them."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._tape.take(_name_of(func), func, tuple(args), dict(kwargs or {}))


class _Operators(TorchDispatchMode):  # type: ignore[misc]
    """Record the operators that run."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        text = str(func)
        name = f"torch.ops.{text}" if text.startswith("aten.") else ""
        return self._tape.take(name, func, tuple(args), dict(kwargs or {}))


def _name_of(func: Any) -> str:
    try:
        return str(resolve_name(func) or "")
    except Exception:  # it looks through modules of torch, whose attributes may raise
        return ""


def _version(tensor: torch.Tensor) -> int:
    try:
        return int(tensor._version)
    except RuntimeError:  # inference tensors track none
        return 0


def _address(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr()) or id(tensor)
    except (RuntimeError, NotImplementedError):  # sparse and other kinds have no storage of this sort
        return id(tensor)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a structure of arguments with each leaf changed; slices are looked into, which pytrees are not."""
    if isinstance(value, slice):
        return slice(*(_mapped(one, change) for one in (value.start, value.stop, value.step)))
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple):
        return tuple(_mapped(one, change) for one in value)  # named tuples too: what counts is their order
    if isinstance(value, list):
        return [_mapped(one, change) for one in value]
    if isinstance(value, dict):
        return {key: _mapped(one, change) for key, one in value.items()}
    return change(value)


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    _mapped(value, found.append)
    return found


# running again


class Replay(torch.nn.Module):  # type: ignore[misc]
    """Run calls of a tape again: a module whose inputs are some of their leaves, the others its buffers."""

    def __init__(
        self, calls: Sequence[Call], inputs: Sequence[int], fixed: Mapping[int, torch.Tensor], outputs: Sequence[int]
    ) -> None:
        super().__init__()
        self._calls, self._inputs, self._outputs = list(calls), list(inputs), list(outputs)
        self._fixed = list(fixed)
        for number, tensor in fixed.items():
            self.register_buffer(f"t{number}", tensor)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the outputs as a tuple."""
        known: dict[int, Any] = dict(zip(self._inputs, tensors, strict=True))
        known |= {number: getattr(self, f"t{number}") for number in self._fixed}

        def taken(leaf: Any) -> Any:
            return known[leaf.number] if isinstance(leaf, Ref) else leaf

        for call in self._calls:
            result = call.func(*_mapped(call.args, taken), **_mapped(dict(call.kwargs), taken))
            for one, value in zip(_leaves(call.results), _leaves(result), strict=True):
                if isinstance(one, Ref):
                    known[one.number] = value
        return tuple(known[number] for number in self._outputs)


def replayed(
    calls: Sequence[Call], leaves: Mapping[int, Array], outputs: Sequence[int], *, exact: bool = False
) -> tuple[Array, ...] | None:
    """Return what calls give on other values of their leaves; None where torch refuses. `exact`: in float64."""

    def ready(array: Array) -> torch.Tensor:
        tensor = to_tensor(array)
        return tensor.double() if exact and tensor.is_floating_point() else tensor

    try:
        with quietly(), torch.no_grad():
            module = Replay(calls, list(leaves), {}, outputs)
            return tuple(to_array(tensor) for tensor in module(*map(ready, leaves.values())))
    except Exception:  # whatever an operator says to other sizes and types
        return None


def folded(tape: Tape, calls: Sequence[Call]) -> tuple[list[Call], dict[int, Array]]:
    """Return (calls with each batch norm behind a convolution folded into it, the new weights by new numbers).

    Files that are made for inference hold them so. The new numbers are negative.
    """
    calls, made = list(calls), dict[int, Array]()
    readers: dict[int, int] = {}
    for call in calls:
        for number in call.reads():
            readers[number] = readers.get(number, 0) + 1
    for norm in [one for one in calls if one.name == "torch.nn.functional.batch_norm"]:
        given = norm.args[0] if norm.args and isinstance(norm.args[0], Ref) else None
        before = next((one for one in calls if given is not None and given.number in one.gives()), None)
        if given is None or before is None or before.name not in _CONVOLUTIONS or readers[given.number] != 1:
            continue
        new = _fold(tape, before, norm, -2 * len(made) - 2)
        if new is not None:
            calls[calls.index(norm)] = new[0]
            calls.remove(before)
            made |= new[1]
    return calls, made


def _fold(tape: Tape, convolution: Call, norm: Call, number: int) -> tuple[Call, dict[int, Array]] | None:
    """Return the convolution that does what both did, and its weight and bias."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    given = dict(zip(names, norm.args, strict=False)) | dict(norm.kwargs)
    if given.get("training") or len(convolution.args) < 2 or "weight" in convolution.kwargs:
        return None

    def tensor(value: Any) -> torch.Tensor | None:
        array = tape.array(value.number) if isinstance(value, Ref) else None
        return to_tensor(array) if array is not None else None

    mean, var = tensor(given.get("running_mean")), tensor(given.get("running_var"))
    weight = tensor(convolution.args[1])
    if mean is None or var is None or weight is None:
        return None
    own = convolution.args[2] if len(convolution.args) > 2 else convolution.kwargs.get("bias")
    gain, shift, bias = tensor(given.get("weight")), tensor(given.get("bias")), tensor(own)
    scale = torch.rsqrt(var + float(given.get("eps", 1e-5)))
    scale = scale * gain if gain is not None else scale
    offset = ((bias if bias is not None else 0) - mean) * scale + (shift if shift is not None else 0)
    arrays = {number: to_array(weight * scale.reshape(-1, *[1] * (weight.ndim - 1))), number - 1: to_array(offset)}
    kwargs = {key: one for key, one in convolution.kwargs.items() if key != "bias"}
    args = (convolution.args[0], Ref(number), Ref(number - 1), *convolution.args[3:])
    return replace(convolution, args=args, kwargs=kwargs, results=norm.results), arrays


def leaves_of(calls: Sequence[Call]) -> list[int]:
    """Return the values that calls read and none of them gives, in order."""
    made: set[int] = set()
    found: dict[int, None] = {}
    for call in calls:
        for number in call.reads():
            if number not in made:
                found.setdefault(number)
        made.update(call.gives())
    return list(found)


__all__ = ["Call", "Ref", "Replay", "Tape", "folded", "leaves_of", "replayed", "taped"]
