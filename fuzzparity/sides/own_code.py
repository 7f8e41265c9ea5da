"""Own code: the line of the user's own code behind an error, a warning or a stack of the exporter.

The idea: torch names its own files; what helps is the last line before them that the user wrote. Files outside of every
installed package come first; where there are none, those of a package that is no engine (a model library) do.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, FunctionType, MethodType
from typing import Any

_ENGINES = ("torch", "onnx", "onnxruntime", "onnxscript", "onnx_ir", "numpy", "fuzzparity", "sympy", "functorch")
_FILE = re.compile(r'File "([^"]+)", line (\d+)')
_SHORT = re.compile(r"# (\S+\.py):(\d+)")  # torch._dynamo and the TorchScript tracer: "# folder/net.py:7 in forward"

Place = tuple[str, int]  # file, line
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def own_place(places: Iterable[Place]) -> Place | None:
    """Return the innermost place of the user's own code; `places` go from the outermost call to the innermost."""
    outside = [place for place in places if rank(place[0]) < 2]
    own = [place for place in outside if rank(place[0]) == 0]
    return own[-1] if own else (outside[-1] if outside else None)


def place_of_error(error: BaseException, said: str = "") -> Place | None:
    """Return the user's own line behind an exporter's error, `said` being what it printed.

    Read from tracebacks along the chain of causes, from the node that could not be translated (its stack trace was
    kept when the program was captured), then from what the messages say.
    """
    chain = list(_chain(error))
    for link in reversed(chain):
        found = own_place(_frames_of(link)) or own_place(_nodes_of(link))
        if found is not None:
            return found
    for text in (*(str(link) for link in reversed(chain)), said):
        found = own_place(places_in(text))
        if found is not None:
            return found
    return None


def place_here() -> Place | None:
    """Return the user's own line that led to the caller."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return own_place(reversed(frames))


def places_in(text: str) -> list[Place]:
    """Return the places that a text names, in its order."""
    found = [(match[1], int(match[2])) for match in _FILE.finditer(text)]
    return found or [(match[1], int(match[2])) for match in _SHORT.finditer(text)]


def short(place: Place) -> str:
    """Return "net.py:7"."""
    return f"{Path(place[0]).name}:{place[1]}"


def function_of(value: Any) -> FunctionType | None:
    """Return the function behind decorators, methods and partial calls; None for anything else."""
    while isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, MethodType | staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    value = inspect.unwrap(value) if isinstance(value, FunctionType) else value
    return value if isinstance(value, FunctionType) else None


@functools.lru_cache(maxsize=64)
def functions_in(file: str) -> dict[int, list[FunctionNode]]:
    """Return the functions of a file by the line at which their code begins, that of a decorator where there is one."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[int, list[FunctionNode]] = {}
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode):
            decorators = getattr(node, "decorator_list", [])
            found.setdefault(decorators[0].lineno if decorators else node.lineno, []).append(node)
    return found


@functools.cache
def relative(file: str, folder: str) -> str:
    """Return a file relative to the target's folder, else to where we are, else by its name alone."""
    path = Path(file).resolve()
    home = Path(folder).resolve() if folder else None
    home = home.parent if home is not None and home.is_file() else home
    for root in (home, Path.cwd()):
        if root is not None and path.is_relative_to(root):
            return str(path.relative_to(root))
    return path.name


def with_code(place: Place) -> str:
    """Return "net.py:7: `if x.sum() > 0:`", without the code where it cannot be read."""
    code = linecache.getline(*place).strip()
    return f"{short(place)}: `{code[:100]}`" if code else short(place)


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _frames_of(error: BaseException) -> list[Place]:
    return [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]


def _nodes_of(error: BaseException) -> list[Place]:
    """Return the places of the graph node at work where an error was raised."""
    link = error.__traceback__
    found: list[Place] = []
    while link is not None:
        meta: Any = getattr(link.tb_frame.f_locals.get("node"), "meta", None)
        if isinstance(meta, dict) and isinstance(meta.get("stack_trace"), str):
            found = places_in(meta["stack_trace"]) or found
        link = link.tb_next
    return found


@functools.cache
def rank(file: str) -> int:
    """Return 0 for the user's own file, 1 for one of an installed package, 2 for an engine's or Python's own."""
    if not file or file.startswith("<"):
        return 2
    if any(file.startswith(root) for root in _engine_roots()):
        return 2
    packages = ("/site-packages/" in file) or ("/dist-packages/" in file)
    if not packages and file.startswith(tuple(_python_roots())):
        return 2
    return 1 if packages else 0


@functools.cache
def _engine_roots() -> tuple[str, ...]:
    roots = []
    for name in _ENGINES:
        spec = importlib.util.find_spec(name)
        roots += [f"{folder}/" for folder in (spec.submodule_search_locations or ())] if spec else []
    return tuple(roots)


@functools.cache
def _python_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(dict.fromkeys(f"{paths[name]}/" for name in ("stdlib", "platstdlib")))
