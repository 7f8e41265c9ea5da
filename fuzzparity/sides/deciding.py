"""Deciding: what a module decides in Python while it runs: its own branches, and what it reads out of tensors.

The idea: for the time of one call, the few methods by which a tensor becomes a Python value are wrapped, and the
interpreter tells which way the conditions of the module's own functions went, by their branches or by the lines that
they run. A module without either is found out in its first runs, and from then on its recorder costs nothing.

The same hooks can send the code the other way: `forced` gives the arms to take, so that the module computes what a
program does in which those arms were burnt.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from fuzzparity.decisions import (
    COND,
    PYTHON_BRANCH,
    PYTHON_LOOP,
    TENSOR_BOOL,
    TENSOR_ITEM,
    WHILE_LOOP,
    Decision,
    bucketed,
)
from fuzzparity.sides.conditions import Condition, Watched, compared_by, conditions_of
from fuzzparity.sides.monitoring import Interpreter, Monitoring, monitoring_of
from fuzzparity.sides.own_code import rank, relative
from fuzzparity.sides.sending import asking
from fuzzparity.sides.tracing import Follower, Tracing

_CONVERSIONS = ("__bool__", "item", "__int__", "__float__", "__index__", "tolist")
_COMPARISONS = ("__gt__", "__lt__", "__ge__", "__le__")
_READERS = {"int": "__int__", "float": "__float__", "item": "item", "tolist": "tolist", "range": "__index__"}
_HIGHER = {"cond.py": COND, "while_loop.py": WHILE_LOOP}
_ORIGINALS: dict[str, Callable[..., Any]] = {
    name: getattr(torch.Tensor, name) for name in (*_CONVERSIONS, *_COMPARISONS)
}
_LOOKS = 3  # first runs, in which everything is watched
_MOST_TIMES = 16  # that one place is recorded in one run
MOST_DECISIONS = 256  # of one run
_MOST_COMPARED = 64


class NotSent(Exception):
    """Say that code cannot be sent into the arm that was asked for."""


class Recorder:
    """Record the decisions of one module. `path`: those of the last call; `is_idle`: there is nothing to record."""

    def __init__(self, module: Any, folder: str = "") -> None:
        """Find out whose files are the module's own; `folder`: the target's, from which sources are named."""
        self.path: tuple[Decision, ...] = ()
        self.places: dict[str, tuple[str, int]] = {}  # source -> file and line
        self.rank = _own_rank(module)
        self._folder = folder
        self._codes: dict[CodeType, Watched | None] = {}
        self._lines = Tracing(self)
        self._following: Tracing | Monitoring = monitoring_of(self) or self._lines
        self._asked: frozenset[CodeType] = frozenset()  # that asks by itself
        self._holders: dict[CodeType, list[FunctionType]] = {}  # functions of code that can be made to ask
        self._looks = 0
        self._names: set[str] = {*_CONVERSIONS, *_COMPARISONS}
        self._is_following = True
        self._at_work: Tracing | Monitoring | None = None
        self._found: list[Decision] = []
        self._times: dict[str, int] = {}
        self._compared: dict[int, tuple[Any, Any, Any]] = {}
        self._read_at: tuple[str, int] = ("", 0)  # file and line of the last tensor that was read as a bool
        self._predicate: Any = None  # the last one of a control flow operator
        self._forced: Mapping[str, int] | None = None
        self._failed = ""
        self._has_met: set[str] = set()  # conversions

    @property
    def is_idle(self) -> bool:
        """Tell whether the module was seen to decide nothing in Python."""
        return self._looks >= _LOOKS and not self._names and not self._is_following

    def call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        forced: Mapping[str, int] | None = None,
    ) -> Any:
        """Call and record; `forced` (key -> outcome) gives the arms to take.

        Raises what the call raises, and `NotSent` where the code cannot be sent into an arm.
        """
        with self._asking() if forced is not None else contextlib.nullcontext():
            self._begin(forced)
            try:
                result = function(*args, **kwargs)
            finally:
                self._end()
        if self._failed:
            raise NotSent(self._failed)
        return result

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Let functions ask for their arms where lines cannot lead into them."""
        odd = [code for code, watched in self._codes.items() if watched is not None and watched.odd_jumps]
        with asking(odd, self, self._holders) as self._asked:
            yield

    def _begin(self, forced: Mapping[str, int] | None) -> None:
        self._found, self._times, self._failed = [], {}, ""
        self._forced = forced
        if self._looks < _LOOKS:
            _HOOKS.install(self._names)
        _HOOKS.recorder = self
        if self._is_following:
            self._at_work = self._following if forced is None else self._lines  # only those can be sent elsewhere
            self._at_work.begin()

    def _end(self) -> None:
        if self._at_work is not None:
            self._at_work.end()
            self._at_work = None
        _HOOKS.recorder = None
        self._compared.clear()
        self._predicate = None
        self.path = tuple(self._found)
        if self._looks < _LOOKS:
            self._looks += 1
            _HOOKS.remove()
            if self._looks == _LOOKS:
                self._settle()
                _HOOKS.keep(self._names)

    def _settle(self) -> None:
        """Keep only those hooks for which the module has a use."""
        watched = [code for code, one in self._codes.items() if one is not None]
        self._is_following = bool(watched)
        own = [code for code in self._codes if rank(code.co_filename) == self.rank]
        readers = {name for code in watched for word, name in _READERS.items() if word in code.co_names}
        self._names = {*self._has_met, *readers} | ({"__bool__"} if watched else set())
        if "__bool__" in self._names:
            self._names.update(name for code in own for name in compared_by(code))

    # what tensors are read as

    def note_bool(self, tensor: Any, outcome: bool, frame: FrameType | None) -> bool:
        """Record the truth of a tensor, and return the one to go on with."""
        place = self._place(frame)
        if place is None:
            return outcome
        source, what = place
        if what in _HIGHER.values():
            if self._predicate is tensor:  # a while_loop reads its first predicate twice
                return outcome
            self._predicate = tensor
        key = self._key(f"torch:{source}")
        if self._forced is not None and key:
            outcome = bool(self._forced.get(key, outcome))
        if key:
            self._add(Decision(key, int(outcome), source, what, self._margin(tensor)))
        self._has_met.add("__bool__")
        return outcome

    def note_number(self, name: str, value: Any, frame: FrameType | None) -> None:
        """Record a number that was read from a tensor."""
        if frame is None or rank(frame.f_code.co_filename) != self.rank:
            return  # a library reads numbers for its own ends
        place = self._place(frame)
        assert place is not None
        self._has_met.add(name)
        if not isinstance(value, (bool, int, float)):
            value = len(value) if isinstance(value, list) else abs(value)
        if key := self._key(f"torch:{place[0]}:{'tolist' if name == 'tolist' else 'item'}"):
            self._add(Decision(key, bucketed(value), place[0], TENSOR_ITEM))

    def note_comparison(self, result: Any, one: Any, other: Any) -> None:
        """Remember what a flag was compared from, in case that it decides."""
        if type(result) is torch.Tensor and result.numel() == 1:  # no stand-in of a compiler
            if len(self._compared) >= _MOST_COMPARED:
                self._compared.clear()
            self._compared[id(result)] = (result, one, other)

    def _margin(self, tensor: Any) -> float | None:
        held = self._compared.get(id(tensor))
        if held is None:
            return None
        try:
            one, other = (_ORIGINALS["item"](x) if isinstance(x, torch.Tensor) else x for x in held[1:])
            margin = float(one) - float(other)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            return None
        return margin if margin == margin else None

    def _place(self, frame: FrameType | None) -> tuple[str, str] | None:
        """Return source and kind of the user's own line at work, None where it is not the user's."""
        what, is_compiling = TENSOR_BOOL, False
        while frame is not None and rank(frame.f_code.co_filename) != self.rank:
            name = frame.f_code.co_filename
            if "_higher_order_ops" in name:
                what = _HIGHER.get(name.rpartition("/")[2], what)
            is_compiling |= "/torch/_dynamo/" in name
            frame = frame.f_back
        if frame is None or (is_compiling and what == TENSOR_BOOL):
            return None
        self._read_at = (frame.f_code.co_filename, frame.f_lineno)
        return self._source(frame.f_code.co_filename, frame.f_lineno), what

    # which way conditions go

    def look_at(self, code: CodeType) -> Watched | None:
        """Return what to watch in a code object that runs; None for nothing."""
        try:
            is_own = rank(code.co_filename) == self.rank and code not in self._asked
            watched = conditions_of(code) if is_own else None
        except Exception:  # whatever reading source may raise would be raised in the middle of the user's code
            watched = None
        self._codes[code] = watched
        return watched

    def note_branch(self, file: str, condition: Condition, outcome: int) -> int:
        """Record which arm was taken, unless a tensor's truth, which is recorded already, decided it; return it."""
        read_file, read_line = self._read_at
        if read_file == file and condition.line <= read_line <= condition.last_line:
            self._read_at = ("", 0)
            return outcome
        source = self._source(file, condition.line)
        what = PYTHON_LOOP if condition.is_for else PYTHON_BRANCH
        key = self._key(f"torch:{source}")
        if not key:
            return outcome
        if self._forced is not None and not condition.is_loop:
            outcome = self._forced.get(key, outcome)
        self._add(Decision(key, outcome, source, what))
        return outcome

    def fail(self, why: str) -> None:
        """Note that code could not be sent into an arm."""
        self._failed = self._failed or why

    def _key(self, base: str) -> str:
        """Return the key of this time in this run, "" beyond the times that are recorded."""
        times = self._times.get(base, 0)
        self._times[base] = times + 1
        if times >= _MOST_TIMES or len(self._found) >= MOST_DECISIONS:
            return ""
        return f"{base}#{times}" if times else base

    def _add(self, decision: Decision) -> None:
        self._found.append(decision)

    def _source(self, file: str, line: int) -> str:
        self.places[source := f"{relative(file, self._folder)}:{line}"] = (file, line)
        return source


class _Hooks:
    """Wrap methods of tensors for the `recorder` at work.

    To set a method of a class takes longer than a small module: those that a settled recorder needs stay, and do
    nothing while none is at work.
    """

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.wrappers = {name: self._wrapper(name) for name in _ORIGINALS}
        self._installed: set[str] = set()
        self._kept: set[str] = set()

    def install(self, names: Iterable[str]) -> None:
        """Wrap these methods."""
        for name in set(names) - self._installed:
            setattr(torch.Tensor, name, self.wrappers[name])
            self._installed.add(name)

    def keep(self, names: Iterable[str]) -> None:
        """Wrap these methods for good."""
        self._kept.update(names)
        self.install(names)

    def remove(self) -> None:
        """Put every other method back."""
        for name in self._installed - self._kept:
            delattr(torch.Tensor, name)
        self._installed &= self._kept

    def _wrapper(self, name: str) -> Callable[..., Any]:
        original = _ORIGINALS[name]
        if name == "__bool__":

            def as_bool(tensor: Any) -> bool:
                outcome: bool = original(tensor)
                recorder = self.recorder
                return outcome if recorder is None else recorder.note_bool(tensor, outcome, sys._getframe(1))

            return as_bool
        if name in _COMPARISONS:

            def compare(one: Any, other: Any) -> Any:
                result = original(one, other)
                if self.recorder is not None:
                    self.recorder.note_comparison(result, one, other)
                return result

            return compare

        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            value = original(tensor, *args, **kwargs)
            if self.recorder is not None:
                self.recorder.note_number(name, value, sys._getframe(1))
            return value

        return read


_HOOKS = _Hooks()


def _keep_from_compilers() -> None:
    """Tell torch.compile to leave the code of this module alone where it runs amid what a target compiles."""
    frames = torch._C._dynamo.eval_frame  # the Python side of it takes seconds to import
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    classes = (Recorder, Tracing, Follower, Monitoring, Interpreter, Watched)
    methods = [method for one in classes for method in vars(one).values()]
    functions = [*methods, *_HOOKS.wrappers.values(), rank, relative]
    for function in functions:
        code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
        if isinstance(code, CodeType):
            frames.set_code_exec_strategy(code, skip)


with contextlib.suppress(AttributeError):  # a torch whose compiler is built otherwise
    _keep_from_compilers()


def _own_rank(module: Any) -> int:
    """Return the rank of the files that are the module's own: the user's, else those of the package it comes from."""
    parts = module.modules() if isinstance(module, torch.nn.Module) else [module]
    functions = (part.forward if isinstance(part, torch.nn.Module) else part for part in parts)
    found = {rank(code.co_filename) for one in functions if (code := _code_of(one)) is not None}
    return 1 if found and min(found) == 1 else 0


def _code_of(function: Any) -> CodeType | None:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None
