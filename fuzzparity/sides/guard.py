"""Guard: remember what a module holds, and put back what a run changed.

The idea: state hides in buffers, in attributes that act as caches or counters, and in lists and dicts of these. All of
it is noted once as places with their values; after a run a place is looked at by identity and by a tensor's version
counter, which costs microseconds where nothing changed. What is no plain data (a compiled function, a new submodule) is
left as the run made it.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

_SCALARS = (bool, int, float, complex, str, bytes, np.ndarray, np.generic, torch.dtype, torch.device)
_CONTAINERS = (dict, list, set, collections.deque)
_FROZEN = (tuple, frozenset)
OWN_TO_TORCH = frozenset(vars(torch.nn.Module()))  # what every module holds: hooks, registries, `training`
_MOST_PLACES = 1 << 10  # outside modules, and of items in one container: an object that holds a data set is no cache
_MOST_PARAMETER_BYTES = 64 << 20  # larger models are not copied for the sake of one that writes to its weights
_SCRIPT_OWN = ("training", "_is_full_backward_hook")


class StateGuard:
    """Remember the state of a module or callable. `changed`: each place that a run wrote to, in words."""

    def __init__(self, module: Any) -> None:
        self.changed: dict[str, None] = {}
        self._boxes: list[_Box] = []
        self._scripts: list[_ScriptAttribute] = []
        self._tensors: list[_Written] = []
        self._seen: dict[int, Any] = {}  # by id; the objects are kept alive, so that no id is given twice
        self._visited = 0  # containers and objects
        for root in _roots(module):
            self._visit(root, "")
        self._look()

    @property
    def was_changed(self) -> bool:
        """Tell whether a run has changed the module."""
        return bool(self.changed)

    @property
    def note(self) -> str:
        """Return what to say of a module that keeps state; "" of one that does not."""
        if not self.changed:
            return ""
        named = ", ".join(list(self.changed)[:4]) + (", ..." if len(self.changed) > 4 else "")
        return f"the module keeps state: {named}; it is put back after every run"

    def restore(self) -> None:
        """Put everything back as it was at the start."""
        if self._is_same():
            return
        for box in self._boxes:
            if not box.is_same():
                self._note(box.put_back())
        for attribute in self._scripts:
            if not attribute.is_same():
                self._note((attribute.label,))
                attribute.put_back()
        for written in self._tensors:
            if written.is_written():
                self._note((written.label,))
                written.put_back()
        self._look()

    def _look(self) -> None:
        """Note in few lists what tells that nothing changed; to look at each place takes ten times as long."""
        for written in self._tensors:
            written.version = written.tensor._version  # only now: views share one counter
        self._watched = [written.tensor for written in self._tensors]
        self._versions = [written.version for written in self._tensors]
        dicts = [box for box in self._boxes if box.is_dict]
        self._others: list[_Box | _ScriptAttribute] = [*(box for box in self._boxes if not box.is_dict), *self._scripts]
        self._held = [box.held for box in dicts]
        self._sizes = [len(box.held) for box in dicts]
        self._places = [(box.held.get, key) for box in dicts for key in box.keys]
        self._values = [value for box in dicts for value in box.values]

    def _is_same(self) -> bool:
        """Tell whether nothing changed; comparing lists takes identity for equality first."""
        try:
            return (
                [tensor._version for tensor in self._watched] == self._versions
                and [len(held) for held in self._held] == self._sizes
                and [get(key) for get, key in self._places] == self._values
                and all(place.is_same() for place in self._others)
            )
        except Exception:  # another tensor or array in a place: what it says of equality is no bool
            return False

    def _note(self, labels: tuple[str, ...]) -> None:
        self.changed.update(dict.fromkeys(labels))

    def _visit(self, value: Any, label: str) -> None:
        """Note a value and what hangs below it."""
        if id(value) in self._seen:
            return
        if isinstance(value, torch.nn.Module):
            self._visit_modules(value, label)
        elif isinstance(value, torch.Tensor):
            self._seen[id(value)] = value
            self._watch(value, f"attribute `{label}`")
        elif self._visited >= _MOST_PLACES:
            return
        elif isinstance(value, _CONTAINERS) and len(value) <= _MOST_PLACES:
            self._visited += 1
            self._seen[id(value)] = value
            self._boxes.append(_Box(value, f"attribute `{label}`"))
            for part in list(value.values() if isinstance(value, dict) else value):
                self._visit(part, label)
        elif isinstance(value, tuple) and len(value) <= _MOST_PLACES:
            for part in value:
                self._visit(part, label)
        elif is_plain_object(value):
            self._visited += 1
            self._seen[id(value)] = value
            self._boxes.append(_Box(vars(value), f"attribute `{label}`" if label else "", f"{label}." if label else ""))
            for name, part in list(vars(value).items()):
                self._visit(part, f"{label}.{name}" if label else name)

    def _watch(self, tensor: torch.Tensor, label: str) -> None:
        if not tensor.is_inference():  # what was made in inference mode has no counter, and cannot be written to
            self._tensors.append(_Written(tensor, label))

    def _visit_modules(self, root: torch.nn.Module, label: str) -> None:
        copies_parameters = sum(tensor.nbytes for tensor in root.parameters()) <= _MOST_PARAMETER_BYTES
        names = {name for part in root.modules() for name in _script_names(part)}
        for path, part in root.named_modules(prefix=label):
            if id(part) in self._seen:
                continue
            self._seen[id(part)] = part
            inside = f"{path}." if path else ""
            tensors = [(name, tensor, "buffer") for name, tensor in part.named_buffers(recurse=False)]
            if copies_parameters:
                tensors += [(name, tensor, "parameter") for name, tensor in part.named_parameters(recurse=False)]
            for name, tensor, kind in tensors:
                if id(tensor) not in self._seen:
                    self._seen[id(tensor)] = tensor
                    self._watch(tensor, f"{kind} `{inside}{name}`")
            if isinstance(part, torch.jit.ScriptModule):
                registered = {name for name, _, _ in tensors}
                self._scripts += list(_script_attributes(part, names - registered, inside))
            else:
                self._visit_attributes(part, inside)

    def _visit_attributes(self, part: torch.nn.Module, inside: str) -> None:
        if part._buffers:
            self._boxes.append(_Box(part._buffers, "", inside, "buffer"))
        if type(part).__module__.partition(".")[0] == "torch":  # torch's own layers keep nothing else
            return
        if not part._buffers:
            self._boxes.append(_Box(part._buffers, "", inside, "buffer"))
        self._boxes.append(_Box(vars(part), "", inside, skip=OWN_TO_TORCH - {"training"}))
        for name, value in list(vars(part).items()):
            if name not in OWN_TO_TORCH:
                self._visit(value, inside + name)


class _Box:
    """Hold the references of one container (a dict, a list, an object's attributes) as they were."""

    def __init__(
        self, held: Any, label: str, inside: str = "", kind: str = "attribute", skip: frozenset[str] = frozenset()
    ) -> None:
        self.held = held
        self._label = label
        self._inside = inside
        self._kind = kind
        self.is_dict = isinstance(held, dict)
        self._skip = skip
        self._note_contents()

    def _note_contents(self) -> None:
        held = self.held
        self._size = len(held)
        self.keys = [key for key in held if key not in self._skip] if self.is_dict else []
        self.values = [held[key] for key in self.keys] if self.is_dict else list(held)

    def is_same(self) -> bool:
        """Tell whether the container holds what it held, by identity first."""
        held = self.held
        if len(held) != self._size:
            return False
        try:  # comparing lists takes identity for equality; other tensors or arrays raise, or say what they please
            return bool(([*map(held.get, self.keys)] if self.is_dict else [*held]) == self.values)
        except Exception:
            return False

    def put_back(self) -> tuple[str, ...]:
        """Put data back as it was, take what is none as it is, and return the places in words."""
        held = self.held
        if not self.is_dict:
            if not all(map(_is_data, held)):
                self._note_contents()
                return ()
            held.clear()
            (held.update if isinstance(held, set) else held.extend)(self.values)
            return (self._label,)
        before = dict(zip(self.keys, self.values, strict=True))
        changed = [
            key for key in dict.fromkeys([*before, *held]) if key not in self._skip and self._has_changed(key, before)
        ]
        changed = [key for key in changed if _is_data(held.get(key))]
        if self._label and all(map(_is_data, held.values())):
            held.clear()
            held.update(before)  # in the order that it had: a cache may forget its oldest entry
        else:
            for key in changed:
                if key in before:
                    held[key] = before[key]
                else:
                    del held[key]
        self._note_contents()
        return tuple(self._named(key) for key in changed)

    def _has_changed(self, key: Any, before: dict[Any, Any]) -> bool:
        try:
            return not (key in before and key in self.held and [before[key]] == [self.held[key]])
        except Exception:
            return True

    def _named(self, key: Any) -> str:
        return self._label or f"{self._kind} `{self._inside}{key}`"


class _Written:
    """Hold a tensor, a copy of it, and its version counter."""

    def __init__(self, tensor: torch.Tensor, label: str) -> None:
        self.tensor = tensor
        self.label = label
        self.version = tensor._version
        self._original = tensor.detach().clone()

    def is_written(self) -> bool:
        """Tell whether anything wrote to the tensor."""
        return bool(self.tensor._version != self.version)

    def put_back(self) -> None:
        """Put the values back."""
        with torch.no_grad():
            if self.tensor.shape != self._original.shape:
                self.tensor.resize_(self._original.shape)
            self.tensor.copy_(self._original)


class _ScriptAttribute:
    """Hold one attribute of a TorchScript module, which lives outside Python."""

    def __init__(self, part: Any, name: str, label: str) -> None:
        self.label = label
        self._part = part
        self._name = name
        self._value = part.getattr(name)
        self._copy = _copied(self._value)
        self._version = _version(self._value) if isinstance(self._value, torch.Tensor) else 0

    def is_same(self) -> bool:
        """Tell whether it holds what it held."""
        value = self._part.getattr(self._name)
        if isinstance(value, torch.Tensor):
            return value is self._value and _version(value) == self._version
        return _is_equal(value, self._copy)

    def put_back(self) -> None:
        """Put a fresh copy in its place."""
        self._value = _copied(self._copy)
        self._part.setattr(self._name, self._value)
        if isinstance(self._value, torch.Tensor):
            self._value = self._part.getattr(self._name)
            self._version = _version(self._value)


def _script_names(part: torch.nn.Module) -> Iterator[str]:
    """Yield the names of attributes that the code of a TorchScript module touches, its children's included."""
    if isinstance(part, torch.jit.ScriptModule):
        for method in part._c._method_names():
            graph = part._c._get_method(method).graph
            for node in [*graph.findAllNodes("prim::GetAttr"), *graph.findAllNodes("prim::SetAttr")]:
                yield node.s("name")


def _script_attributes(part: Any, names: set[str], inside: str) -> Iterator[_ScriptAttribute]:
    for name in sorted(names.difference(_SCRIPT_OWN)):
        if part._c.hasattr(name) and name not in part._parameters and _is_data(part._c.getattr(name)):
            yield _ScriptAttribute(part._c, name, f"attribute `{inside}{name}`")


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version  # what was made in inference mode cannot be written to


def _copied(value: Any) -> Any:
    """Return data with fresh tensors and containers."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value
    return value


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and bool(torch.equal(one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    same: bool = one is other or one == other
    return same


def _is_data(value: Any) -> bool:
    """Tell whether a value is state that may be undone, as opposed to code and to objects with a life of their own."""
    if value is None or isinstance(value, (torch.Tensor, *_SCALARS, *_CONTAINERS)):
        return True
    return all(map(_is_data, value)) if isinstance(value, _FROZEN) else is_plain_object(value)


def is_plain_object(value: Any) -> bool:
    """Tell whether a value is an object of somebody's own class, held in its attributes."""
    kind = type(value)
    if kind is types.SimpleNamespace:
        return True
    package = kind.__module__.partition(".")[0]
    is_foreign = package in ("torch", "numpy") or package in sys.stdlib_module_names
    is_own = not is_foreign and hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType)
    return is_own


def _roots(module: Any) -> Iterator[Any]:
    """Yield what a callable may keep state in: itself, the object of a method, what a function has closed over."""
    if isinstance(module, functools.partial):
        yield from _roots(module.func)
    elif isinstance(module, types.MethodType):
        yield module.__self__
    elif isinstance(module, types.FunctionType):
        # a list that it has closed over may be the user's own record of the calls
        closed = map(_content, module.__closure__ or ())
        yield from (value for value in closed if isinstance(value, torch.nn.Module | torch.Tensor))
    else:
        yield module


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
