"""Scripted: what a TorchScript module decides, of which no Python is run and no tensor asked for its truth.

The idea: beside the module, which alone answers, runs a copy of as much of its graph as its conditions need, and that
tells the arms. Where no such copy can be made, the operators that the module ran stand for its path, on a sample of
its runs: to watch them is dear.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fuzzparity.decisions import OPERATORS, PYTHON_LOOP, Decision
from fuzzparity.sides.deciding import MOST_DECISIONS, NotSent
from fuzzparity.sides.script_graph import COMPARED, MOST_TIMES, ScriptGraph

_EACH = 16  # runs of one shape, of which one is watched operator by operator
_MOST_SHAPES = 1 << 10
_MOST_PATHS = 1 << 10  # that are kept
_MOST_DIGESTS = 1 << 16


class ScriptRecorder:
    """Record the decisions of one scripted module or function, as `Recorder` does those of Python code."""

    def __init__(self, folder: str = "") -> None:
        """Begin without a module: the one that is called is read; `folder`: the target's."""
        self.path: tuple[Decision, ...] = ()
        self.places: dict[str, tuple[str, int]] = {}  # source -> file and line
        self.is_idle = False
        self._folder = folder
        self._function: Any = None
        self._copies: _Copies | None = None  # of it
        self._shapes: dict[tuple[Any, ...], int] = {}  # of inputs -> runs

    def call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        forced: Mapping[str, int] | None = None,
    ) -> Any:
        """Call and record; `forced` (key -> outcome) gives the arms to take.

        Raises what the call raises, and `NotSent` where there is no way into the arms.
        """
        self.path = ()
        copies = self._copies_of(function)
        if forced is not None:
            return self._sent(copies, args, kwargs, forced)
        if copies is None:
            self.is_idle = True
        elif copies.tell is not None:
            try:
                self.path = copies.path(copies.tell(*copies.given(args, kwargs)))
            except Exception:  # as a rule the module itself refuses these inputs as well
                self.path = ()
        elif copies.graph.sites or copies.graph.is_opaque:
            return self._watched(function, args, kwargs)
        else:
            self.is_idle = True
        return function(*args, **kwargs)

    def _copies_of(self, function: Any) -> _Copies | None:
        """Return the copies of a script; None where its graph cannot be read or rewritten."""
        if self._function is not function:
            self._function, self._copies = function, None
            with contextlib.suppress(Exception):  # whatever another release of torch's own compiler raises
                self._copies = _Copies(function, self._folder)
                self.places.update(self._copies.graph.places)
        return self._copies

    def _sent(
        self, copies: _Copies | None, args: Sequence[Any], kwargs: Mapping[str, Any], forced: Mapping[str, int]
    ) -> Any:
        if copies is None or copies.tell is None:
            raise NotSent("the script does what cannot be followed")
        result, *events = copies.send(*copies.given(args, kwargs), copies.arms(forced))
        self.path = copies.path(events)
        return result

    def _watched(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        shapes = tuple(tuple(one.shape) if isinstance(one, torch.Tensor) else () for one in (*args, *kwargs.values()))
        runs = self._shapes.get(shapes, 0)
        if runs or len(self._shapes) < _MOST_SHAPES:
            self._shapes[shapes] = runs + 1
        if runs % _EACH:
            return function(*args, **kwargs)
        mode = _Operators()
        with mode:
            result = function(*args, **kwargs)
        # they are the key and not the outcome: what only some runs tell is no decision that can be searched for
        self.path = (Decision(f"torch:operators:{mode.digest % _MOST_DIGESTS}", 1, "", OPERATORS),)
        return result


class _Copies:
    """Hold the copies of one script's graph. `tell`: None where there is nothing to tell or no way to tell it."""

    def __init__(self, function: Any, folder: str) -> None:
        is_method = isinstance(function, torch.jit.ScriptModule)
        is_training = is_method and any(part.training for part in function.modules())
        self.graph = ScriptGraph(function.graph, is_method, folder, is_training=is_training)
        self.tell = self.graph.telling() if self.graph.sites and not self.graph.is_opaque else None
        self._owner = (function,) if is_method else ()
        self._schema = (function.forward if is_method else function).schema.arguments[len(self._owner) :]
        self._send: Any = None
        self._paths: dict[tuple[int, ...], tuple[Decision, ...]] = {}  # by their events, where they have no margins

    def send(self, *given: Any) -> Any:
        """Call the copy that can be sent into arms."""
        if self._send is None:
            self._send = self.graph.sendable()
        return self._send(*given)

    def given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of a call by position: the names of a graph's inputs are its own."""
        rest = self._schema[len(args) :]
        return [*self._owner, *args, *(kwargs.get(one.name, one.default_value) for one in rest)]

    def arms(self, forced: Mapping[str, int]) -> list[int]:
        """Return arms by key as the copy takes them."""
        found: list[int] = []
        for site in self.graph.sites:
            found += [forced.get(_key(site.base, times), -1) for times in range(MOST_TIMES)]
            found.append(-1)
        return found

    def path(self, told: Sequence[Any]) -> tuple[Decision, ...]:
        """Return what (events, margins) tell."""
        events, margins = told
        if margins:
            return self._decided(events, margins)
        key = tuple(events)
        if key not in self._paths:
            if len(self._paths) >= _MOST_PATHS:
                self._paths.clear()
            self._paths[key] = self._decided(events, ())
        return self._paths[key]

    def _decided(self, events: Sequence[int], margins: Sequence[float]) -> tuple[Decision, ...]:
        found: list[Decision] = []
        times, rounds = dict[int, int](), dict[int, int]()
        differences = iter(margins)
        margin: float | None = None
        for event in events:
            number, outcome = divmod(event, 3)
            site = self.graph.sites[number]
            if outcome == COMPARED:
                margin = next(differences)
                margin = margin if margin == margin else None
                continue
            if site.what == PYTHON_LOOP:
                rounds[number] = rounds.get(number, 0) + outcome
                if outcome:
                    continue
                outcome = rounds.pop(number)
            before = times.get(number, 0)
            times[number] = before + 1
            if before < MOST_TIMES and len(found) < MOST_DECISIONS:
                found.append(Decision(_key(site.base, before), outcome, site.source, site.what, margin))
            margin = None
        return tuple(found)


class _Operators(TorchDispatchMode):  # type: ignore[misc]
    """Digest the names of the operators that run, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.digest = zlib.crc32(str(func).encode(), self.digest)
        return func(*args, **(kwargs or {}))


def _key(base: str, times: int) -> str:
    return f"{base}#{times}" if times else base
