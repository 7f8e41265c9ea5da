"""Call: how a flat case becomes the arguments of a module, and how a user's nested item becomes a flat case.

The idea: a case is flat everywhere (name -> array), a call may be nested and partly by keyword. The target's own
`inputs` and `kwargs` are the pattern of both; None, numbers and texts in it are constants, passed on as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fuzzparity.errors import InvalidCase, InvalidTarget
from fuzzparity.target import Target, is_constant, rebuild

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """Hold the pattern of a call. `names`: the flattened inputs, in forward's order, those given by keyword last."""

    names: tuple[str, ...]
    _inputs: Mapping[str, Any] = field(repr=False)
    _kwargs: Mapping[str, Any] = field(repr=False)
    _is_plain: bool  # every input is one tensor, given by position

    @classmethod
    def of(cls, target: Target) -> Call:
        """Return the call of a target's module."""
        names = target.input_names
        is_plain = not target.kwargs and names == tuple(target.inputs)
        return cls(names, target.inputs, target.kwargs, is_plain)

    @property
    def is_plain(self) -> bool:
        """Tell whether every input is one tensor, given by position."""
        return self._is_plain

    def arguments(self, tensors: Sequence[Any]) -> Arguments:
        """Return (args, kwargs) with these in the places of the flattened inputs, in the order of `names`.

        Those in `inputs` go by position, whatever they are called.
        """
        if self._is_plain:
            return tuple(tensors), {}
        by_name = dict(zip(self.names, tensors, strict=True))
        return self._filled(by_name.__getitem__, lambda constant: constant)

    def like(self, of: Callable[[str], Any]) -> Arguments:
        """Return the structure of (args, kwargs) with `of(name)` at each input and None at each constant.

        This is the form in which torch.export wants `dynamic_shapes`.
        """
        return self._filled(of, lambda constant: None)

    def parameters(self, module: Any, of: Callable[[str], Any]) -> dict[str, Any] | None:
        """Return the structure of `like` by forward's own parameter names, None where these are unknown.

        What goes into `*args` is a tuple and what goes into `**kwargs` a dict, as torch.export wants it.
        """
        args, kwargs = self.like(of)
        try:
            signature = inspect.signature(module.forward if isinstance(module, torch.nn.Module) else module)
            return dict(signature.bind(*args, **kwargs).arguments)
        except (TypeError, ValueError):
            return None

    def item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a user's item holds for each flattened input, found nested or under the flattened name.

        Absent inputs are left out and keys beyond the inputs ignored. `InvalidCase` where a structure or a constant is
        another than the target's: a case has no place for it.
        """
        found: dict[str, Any] = {}
        for name, pattern in {**self._inputs, **self._kwargs}.items():
            if name in item:
                found.update(_taken(pattern, item[name], name))
        for name in self.names:
            if name in item:
                found[name] = item[name]
        return {name: found[name] for name in self.names if name in found}

    def require(self, module: Any) -> None:
        """Refuse, as `InvalidTarget`, a forward whose parameters cannot take this call."""
        forward, signature = _signature(module)
        if signature is None:
            return
        args, kwargs = self.like(lambda name: None)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidTarget(
                "inputs", f"{forward} does not take this call ({error}): {self._spelled()}", self._advice(signature)
            ) from None

    def _filled(self, leaf: Callable[[str], Any], constant: Callable[[Any], Any]) -> Arguments:
        args = tuple(rebuild(value, name, leaf, constant) for name, value in self._inputs.items())
        return args, {name: rebuild(value, name, leaf, constant) for name, value in self._kwargs.items()}

    def _spelled(self) -> str:
        by_position = ", ".join(self._inputs)
        by_name = ", ".join(f"{name}=" for name in self._kwargs)
        return f"inputs {by_position or 'none'} by position" + (f", kwargs {by_name}" if by_name else "")

    def _advice(self, signature: inspect.Signature) -> str:
        only = [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY and p.name in self._inputs]
        if only:
            return f"give {', '.join(only)} in kwargs={{...}}: forward takes them by keyword only"
        return "give inputs={name: tensor} in forward's order, and in kwargs={name: tensor} what goes by keyword"


def _signature(module: Any) -> tuple[str, inspect.Signature | None]:
    """Return how a callable is called and its own signature, not that of a function it wraps; None when unknown."""
    has_forward = isinstance(module, torch.nn.Module)
    function = module.forward if has_forward else module
    if isinstance(module, torch.fx.GraphModule) or (has_forward and module._forward_pre_hooks):
        return "", None  # made by torch.export, which checks its calls itself; hooks may change the arguments
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return "", None
    name = "forward" if has_forward else getattr(function, "__name__", "the callable")
    return f"{name}{signature}", signature


def _taken(pattern: Any, value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield (flattened name, value) of what stands in the places of a pattern's leaves."""
    if isinstance(pattern, Mapping):
        if not isinstance(value, Mapping):
            raise InvalidCase(f"input {name} is {_kind(value)}; wanted a dict of {', '.join(map(str, pattern))}")
        for key in value:
            if key not in pattern:
                raise InvalidCase(f"input {name} holds {key!r}; wanted {', '.join(map(str, pattern))}")
        for key, part in pattern.items():
            if key in value:
                yield from _taken(part, value[key], f"{name}.{key}")
    elif isinstance(pattern, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(pattern):
            raise InvalidCase(f"input {name} is {_kind(value)}; wanted {len(pattern)} items, as in the target")
        for index, (part, one) in enumerate(zip(pattern, value, strict=True)):
            yield from _taken(part, one, f"{name}.{index}")
    elif not is_constant(pattern):
        yield name, value
    elif not is_constant(value) or value != pattern:
        raise InvalidCase(
            f"{name} is {value!r:.60}, and {pattern!r:.60} in the target: constants are part of the model; "
            "declare a second target, or give it as a tensor"
        )


def _kind(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"{len(value)} items"
    return "a dict" if isinstance(value, Mapping) else type(value).__name__
