"""Target: the pair under test and its input contract, as the user writes it down.

Plain records: what is accepted here works; an unknown name is an error that lists the valid ones. torch is never
imported; modules and tensors pass through as they are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fuzzparity.errors import InvalidTarget

_T = TypeVar("_T")


def _strict(cls: type[_T]) -> type[_T]:
    """Make a record refuse unknown names with the list of valid ones, instead of a bare TypeError."""
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    original = cls.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        unknown = sorted(set(kwargs) - set(names))
        if unknown:
            raise InvalidTarget(
                "declare",
                f"{cls.__name__} has no field {', '.join(map(repr, unknown))}",
                f"valid fields: {', '.join(names)}",
            )
        original(self, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls


@_strict
@dataclass(frozen=True, slots=True)
class Size:
    """Bound a dynamic dim: `Size(32, 640, multiple_of=32)`; `high=None` means no upper bound."""

    low: int = 0
    high: int | None = None
    name: str = ""
    multiple_of: int = 1

    def __post_init__(self) -> None:
        """Refuse bounds that admit nothing."""
        if self.low < 0 or (self.high is not None and self.high < self.low) or self.multiple_of < 1:
            raise InvalidTarget("declare", f"{self} admits no size", "give 0 <= low <= high and multiple_of >= 1")


@_strict
@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allow an error of `atol + rtol * |expected|` for one output; the user's word, so nothing overrides it.

    `unordered`: the axis along which the output is a set, whose items may come in any order (boxes [batch, n, 4]: 1).
    """

    rtol: float = 0.0
    atol: float = 0.0
    unordered: int | None = None

    def __post_init__(self) -> None:
        """Refuse negative and non-finite bounds."""
        if not (0 <= self.rtol < float("inf") and 0 <= self.atol < float("inf")):
            raise InvalidTarget("declare", f"{self} is no tolerance", "give finite rtol >= 0 and atol >= 0")
        if self.unordered is not None and (isinstance(self.unordered, bool) or not isinstance(self.unordered, int)):
            raise InvalidTarget(
                "declare", f"unordered is {self.unordered!r:.80}", "give the axis of the items, as in 0"
            )


POLICIES: dict[str, Tolerance] = {  # FACTS, "Policies by kind of output"; starting values from practice
    "logits": Tolerance(atol=1e-4),
    "boxes_normalized": Tolerance(atol=1e-3),
    "boxes_pixels": Tolerance(atol=0.5),
    "mask_probabilities": Tolerance(atol=1e-2),
    "mel": Tolerance(atol=1e-2),
    "recurrent": Tolerance(atol=1e-3),
    "strict": Tolerance(atol=1e-5),
}


QUALITIES = ("quantized", "half")  # policies without numbers: judged by noise and flips, calibrated on the seeds


@_strict
@dataclass(frozen=True, slots=True)
class Metric:
    """Hold the two sides to a bound on a figure of the task, such as "the top class agrees in every row".

    `fn(inputs, expected, actual, label) -> number`: three dicts of name -> array (torch's outputs are `expected`), and
    what rode along in the seed under "label", None where there is none; what it is given must not be written to. A
    value below `at_least` or above `at_most` is a `decision` that differs. `output`: the output that it is about, if
    it is about one. `fuzzparity.metrics` holds ready-made ones.
    """

    name: str
    fn: Callable[[dict[str, Any], dict[str, Any], dict[str, Any], Any], Any]
    at_least: float | None = None
    at_most: float | None = None
    output: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be called by name, and a metric without a bound."""
        if not isinstance(self.name, str) or not self.name.isprintable() or not self.name.strip():
            raise InvalidTarget("declare", f"a metric is named {self.name!r:.80}", "give it a name of a few letters")
        if not callable(self.fn):
            raise InvalidTarget(
                "declare",
                f"fn of metric {self.name!r} is {type(self.fn).__name__}, which cannot be called",
                "give a callable (inputs, expected, actual, label) -> number",
            )
        bounds = {name: bound for name in ("at_least", "at_most") if (bound := getattr(self, name)) is not None}
        if not bounds:
            raise InvalidTarget(
                "declare", f"metric {self.name!r} has no bound", "give at_least= or at_most=, or both, as numbers"
            )
        for name, bound in bounds.items():
            if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not math.isfinite(bound):
                raise InvalidTarget(
                    "declare", f"{name} of metric {self.name!r} is {bound!r:.80}", "give a finite number"
                )
        if len(bounds) == 2 and bounds["at_least"] > bounds["at_most"]:
            raise InvalidTarget(
                "declare", f"metric {self.name!r} can have no value: {bounds}", "give at_least <= at_most"
            )


@_strict
@dataclass(frozen=True, slots=True)
class Export:
    """Say how fuzzparity exports the module: `exporter` is "dynamo" (torch's default) or "torchscript"."""

    exporter: str = "dynamo"
    opset: int | None = None
    optimize: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)  # further keywords of torch.onnx.export

    def __post_init__(self) -> None:
        """Refuse an exporter that does not exist."""
        if self.exporter not in ("dynamo", "torchscript"):
            raise InvalidTarget("declare", f"exporter {self.exporter!r} is unknown", "use 'dynamo' or 'torchscript'")


@_strict
@dataclass(frozen=True, slots=True)
class Ort:
    """Say which ONNX Runtime session you ship.

    `optimization_level`: "none", "basic", "extended", "layout" or "all". `threads`: intra-op threads; None means one.
    `config`: SessionOptions config entries, each of a key that ORT knows. `disabled_optimizers`: pass names, each must
    exist. `custom_op_libraries`: shared libraries with custom operators, relative to the target's folder; they are the
    user's own code.
    """

    providers: Sequence[str] = ("CPUExecutionProvider",)
    provider_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    optimization_level: str = "all"
    threads: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    disabled_optimizers: Sequence[str] = ()
    custom_op_libraries: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse a level that does not exist and a bare text where a list is meant."""
        if self.optimization_level not in LEVELS:
            raise InvalidTarget(
                "declare", f"optimization_level {self.optimization_level!r} is unknown", f"use one of {LEVELS}"
            )
        for name in ("providers", "disabled_optimizers", "custom_op_libraries"):
            if isinstance(getattr(self, name), str):
                raise InvalidTarget("declare", f"Ort.{name} is a text", "give a list of names")


LEVELS = ("none", "basic", "extended", "layout", "all")


@_strict
@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Declare the pair under test; see README, "A target of your own", for every field.

    `module`: nn.Module, ScriptModule, ExportedProgram or any callable on tensors. `inputs`: name -> tensor or array, in
    forward's order; the first seed, and what export sees. `kwargs`: the same, given by keyword. Both may hold nested
    lists, tuples and dicts of tensors, whose leaves are inputs "name.0.key"; None, numbers and texts in them are
    constants. `onnx`: None (fuzzparity exports), a path, bytes, a ModelProto, or a callable that returns one of these.
    """

    module: Any
    inputs: Mapping[str, Any] = field(default_factory=dict)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    outputs: Sequence[str] | None = None
    onnx: Any = None
    export: Export = field(default_factory=Export)
    ort: Ort = field(default_factory=Ort)
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None
    dtypes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # each combination is a build of its own
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    allow_nonfinite: bool = True
    valid: Callable[[dict[str, Any]], bool] | None = None
    seeds: Callable[[], Iterable[Mapping[str, Any]]] | None = None
    read: Callable[[str], Mapping[str, Any] | Iterable[Mapping[str, Any]]] | None = None  # one file of the user's
    tolerances: Mapping[str, Tolerance | str] = field(default_factory=dict)  # by output or slice: "boxes[..., :4]"
    metrics: Sequence[Metric] = ()  # figures of the task, with their bounds
    compare_where: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None  # output -> mask of what counts
    carry: Mapping[str, str] = field(default_factory=dict)  # output -> the input it becomes in the next step
    reset: Callable[[Any], None] | None = None  # how to reset a module that keeps state; called with the module
    opaque_inputs: Sequence[str] = ()  # left as in the seeds
    batch: str | None = None  # the dim along which rows are independent; None: inferred, and proven
    confidential: bool = False

    def __post_init__(self) -> None:
        """Refuse what can be seen to be wrong without loading anything."""
        for field_name in ("inputs", "kwargs"):
            given = getattr(self, field_name)
            if not isinstance(given, Mapping) or not all(isinstance(name, str) and name for name in given):
                raise InvalidTarget(
                    "declare",
                    f"{field_name} is {type(given).__name__} {given!r:.80}",
                    "give a dict of name -> tensor, in forward's order",
                )
        if not callable(self.module):
            hint = "a state_dict is weights only; build the module and load them" if _is_state(self.module) else ""
            raise InvalidTarget(
                "declare",
                f"module is {type(self.module).__name__}, which cannot be called",
                hint or "give an nn.Module, a TorchScript module, an ExportedProgram or a callable on tensors",
            )
        names = self.input_names
        if not names:
            given = ", ".join(f"input {n!r} is {type(v).__name__} {v!r:.60}" for n, v in self.inputs.items())
            raise InvalidTarget(
                "declare",
                f"no tensor among the inputs: {given or 'there are none'}",
                "give a tensor or a numpy array for each input, e.g. {'image': torch.zeros(1, 3, 8, 8)}",
            )
        if len(set(names)) != len(names):
            twice = ", ".join(sorted({repr(name) for name in names if names.count(name) > 1}))
            raise InvalidTarget("declare", f"two inputs are named {twice}", "name each input once, kwargs included")
        self._require_inputs("ranges", self.ranges)
        self._require_inputs("dtypes", self.dtypes)
        self._require_inputs("opaque_inputs", self.opaque_inputs)
        self._require_inputs("carry", self.carry.values())
        if isinstance(self.opaque_inputs, str):
            raise InvalidTarget("declare", "opaque_inputs is a text", "give a list of names")
        for name, policy in self.tolerances.items():
            if isinstance(policy, str) and policy not in POLICIES and policy not in QUALITIES:
                named = ", ".join((*POLICIES, *QUALITIES))
                raise InvalidTarget("declare", f"tolerance {policy!r} of {name!r} is no policy", f"policies: {named}")
            if isinstance(policy, Tolerance) and policy.unordered is not None and name.endswith("]"):
                raise InvalidTarget(
                    "declare", f"tolerance {name!r} is unordered, and a slice of an output", "name the whole output"
                )
            if policy in QUALITIES and name.endswith("]"):
                raise InvalidTarget(
                    "declare", f"policy {policy!r} of {name!r} is for a whole output", "name the output without a slice"
                )
        self._require_metrics()

    def _require_metrics(self) -> None:
        given: Any = self.metrics
        if not isinstance(given, (list, tuple)) or not all(isinstance(metric, Metric) for metric in given):
            said = f"metrics is {type(given).__name__} {given!r:.80}"
            raise InvalidTarget("declare", said, "give a list of Metric(name, fn, at_least=...)")
        names = [metric.name for metric in given]
        if len(set(names)) != len(names):
            twice = ", ".join(sorted({repr(name) for name in names if names.count(name) > 1}))
            raise InvalidTarget("declare", f"two metrics are named {twice}", "name each once: findings go by the name")

    @property
    def input_names(self) -> tuple[str, ...]:
        """Return the names of the flattened inputs, in forward's order, those given by keyword last."""
        given = {**self.inputs, **self.kwargs}
        return tuple(path for name, value in given.items() for path, _ in leaves(value, name))

    def _require_inputs(self, field_name: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.input_names:
                raise InvalidTarget(
                    "declare",
                    f"{field_name} names input {name!r}",
                    f"the inputs are {', '.join(map(repr, self.input_names))}",
                )


def is_constant(value: Any) -> bool:
    """Tell whether an argument of forward is passed on as it is, and never mutated."""
    return value is None or isinstance(value, (bool, int, float, str))


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield ("name.0.key", leaf) of every leaf of nested dicts, lists and tuples that is no constant."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield from leaves(part, f"{name}.{index}")
    elif not is_constant(value):
        yield name, value


def rebuild(
    value: Any, name: str, leaf: Callable[[str], Any], constant: Callable[[Any], Any] = lambda constant: constant
) -> Any:
    """Return a structure like `value` with `leaf(path)` in the place of every leaf that `leaves` yields.

    Constants stay as they are, or become what `constant` gives for them.
    """
    if isinstance(value, Mapping):
        return {key: rebuild(part, f"{name}.{key}", leaf, constant) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [rebuild(part, f"{name}.{index}", leaf, constant) for index, part in enumerate(value)]
        if isinstance(value, tuple):
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return parts
    return constant(value) if is_constant(value) else leaf(name)


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
