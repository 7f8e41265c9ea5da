"""Heard: what an exporter warns of, takes for granted and prints while it works, with the user's own line for each.

The idea: torch tells most of what an export loses, but on channels that nobody reads: Python warnings, and guards that
only its log shows. All are caught at the moment they are made, when the user's line still stands on the stack.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzzparity.sides.own_code import Place, own_place, place_here, places_in, short
from fuzzparity.sides.quiet import captured

_NOISE = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning)
_GUARDS = "torch.fx.experimental.symbolic_shapes"
_SOURCE = re.compile(r"L\['?(?P<name>[^'\]]+)'?\](?:\[(?P<index>\d+)\])?\.size\(\)\[(?P<dim>\d+)\]")
_FRAMEWORK_BRANCH = "in evaluate_expr)"  # torch._dynamo decides a branch of the user's code
MAX_NOTES = 20


@dataclass(slots=True)
class Guard:
    """Hold one condition on dims that an export takes for granted, such as "s77 > s17"."""

    condition: str
    place: Place


@dataclass(slots=True)
class Heard:
    """Collect notes of warnings, the guards of the last program that was captured, and what was printed."""

    warned: list[str] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    symbols: dict[str, tuple[str, int]] = field(default_factory=dict)  # symbol -> input or place of it, dim
    output: str = ""

    def place_of(self, symbol: str) -> Place | None:
        """Return the line that bounds one symbol alone."""
        return next((g.place for g in self.guards if _symbols_in(g.condition) == {symbol}), None)


@contextlib.contextmanager
def heard() -> Iterator[Heard]:
    """Keep standard output and error silent, and collect what is said.

    Deprecations are between libraries and left out; what remains (a TracerWarning above all) says what an export lost.
    """
    found = Heard()
    said: dict[str, None] = {}
    with warnings.catch_warnings(), captured(1) as out, captured(2), _guards_of(found):
        warnings.simplefilter("always")
        warnings.showwarning = lambda *given: _take_warning(said, *given)
        try:
            yield found
        finally:
            found.warned.extend(list(said)[:MAX_NOTES])
            found.output = _printed(out)


def _printed(out: Any) -> str:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, replaced or absent
        sys.stdout.flush()
    out.seek(0)
    return str(out.read(1 << 20).decode(errors="replace"))


def _take_warning(said: dict[str, None], message: Any, category: Any, file: str, line: int, *rest: Any) -> None:
    if issubclass(category, _NOISE):
        return
    place = own_place([(file, line)]) or place_here()
    where = short(place) if place else f"{Path(file).name}:{line}"
    said[f"{category.__name__}: {' '.join(str(message).split())[:300]} ({where})"] = None


@contextlib.contextmanager
def _guards_of(found: Heard) -> Iterator[None]:
    """Listen to the log of torch's symbolic shapes; nothing of it goes to the terminal."""
    logger = logging.getLogger(_GUARDS)
    before = (logger.level, logger.propagate, list(logger.handlers))
    logger.handlers[:] = [_Listener(found)]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        level, logger.propagate, logger.handlers[:] = before
        logger.setLevel(level)


class _Listener(logging.Handler):
    """Turn records of the log into guards. One export may capture several times: the last one counts."""

    def __init__(self, found: Heard) -> None:
        super().__init__(logging.INFO)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record."""
        arguments = record.args if isinstance(record.args, tuple) else ()
        if record.msg.startswith("create_env"):
            self._found.guards.clear()
            self._found.symbols.clear()
        elif record.msg.startswith("create_symbol") and len(arguments) > 2:
            source = _SOURCE.search(str(arguments[2]))
            if source is not None:
                self._found.symbols[str(arguments[0])] = (source["index"] or source["name"], int(source["dim"]))
        elif "[guard added]" in record.msg and len(arguments) > 2 and str(arguments[0]).startswith("eval"):
            self._take_guard(str(arguments[1]), str(arguments[2]))

    def _take_guard(self, condition: str, stack: str) -> None:
        """Keep a guard that a line of the user's own decided; those inside torch's operators check shapes."""
        place = own_place(places_in(stack)) if _FRAMEWORK_BRANCH in stack else None
        if place is None:
            here = place_here()
            is_own = here is not None and f"{Path(here[0]).name}:{here[1]} in " in stack and "# " not in stack
            place = here if is_own else None
        if place is not None and all(guard.condition != condition for guard in self._found.guards):
            self._found.guards.append(Guard(condition, place))


def _symbols_in(condition: str) -> set[str]:
    return set(re.findall(r"\b[su]\d+\b", condition))


def readable(guard: Guard, symbols: dict[str, tuple[str, int]], names: list[str]) -> str:
    """Return a guard's condition with "x[1]" for each symbol; `names`: the inputs in forward's order."""

    def dim(match: re.Match[str]) -> str:
        source, index = symbols.get(match[0], ("", -1))
        if source.isdigit():
            source = names[int(source)] if int(source) < len(names) else ""
        return f"{source}[{index}]" if source else match[0]

    return re.sub(r"\b[su]\d+\b", dim, guard.condition)
