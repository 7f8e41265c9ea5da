"""The layer table of the design, held by reading every module's imports; nothing here imports torch."""

from __future__ import annotations

import ast
import functools
import graphlib
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fuzzparity

PACKAGE = Path(fuzzparity.__file__).parent

LAYERS = {
    "errors": 0,
    "case": 1,
    "target": 1,
    "decisions": 1,
    "execution": 1,
    "verdict": 1,
    "finding": 1,
    "goals": 1,
    "known": 1,
    "contract": 1,
    "values": 1,
    "metrics": 1,
    "sides": 2,
    "generate": 2,
    "oracle": 2,
    "minimize": 2,
    "blame": 2,
    "corpus": 2,
    "probe": 2,
    "work": 3,
    "explain": 4,
    "report": 4,
    "campaign": 5,
    "commands": 5,
    "parity": 5,
    "strategies": 5,
    "cli": 6,
    "__init__": 6,
    "__main__": 6,
}

ENGINES = {"torch", "onnxruntime", "onnxscript"}
ENGINE_PACKAGES = {"sides", "blame", "probe"}
# Modules elsewhere that must touch tensors, inside a function only; each needs a reason beside its name.
LAZY_ENGINES: dict[str, str] = {
    "fuzzparity.parity": "judges in the caller's own process, whose number of torch threads it sets and puts back",
}

PUBLIC_NAMES = [
    "Export",
    "FuzzparityError",
    "InvalidCase",
    "InvalidTarget",
    "Metric",
    "Ort",
    "Size",
    "Target",
    "Tolerance",
    "assert_parity",
]


@dataclass(frozen=True)
class Import:
    """One imported module, absolute, and whether it happens when the importing module is loaded."""

    name: str
    line: int
    is_lazy: bool
    is_for_types: bool


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
NAMES = list(MODULES)


@functools.cache
def tree(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text(), str(MODULES[name]))


def part(name: str) -> str:
    """Return the package or module of layer level: `fuzzparity.work.pool` -> `work`."""
    pieces = name.split(".")
    return pieces[1] if len(pieces) > 1 else "__init__"


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports(name: str) -> Iterator[Import]:
    yield from found_imports(tree(name), is_lazy=False, is_for_types=False)


def found_imports(node: ast.AST, is_lazy: bool, is_for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, is_lazy, is_for_types) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import in line {child.lineno}: imports are absolute"
            yield from resolved(child, is_lazy, is_for_types)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for_types = is_for_types or (isinstance(child, ast.If) and is_type_checking(child))
            yield from found_imports(child, is_lazy or inside, for_types)


def resolved(node: ast.ImportFrom, is_lazy: bool, is_for_types: bool) -> Iterator[Import]:
    """Name the module that each `from a import b` reads: `a.b` where that is a module of ours, else `a`."""
    for alias in node.names:
        deeper = f"{node.module}.{alias.name}"
        is_module = deeper in MODULES or f"{deeper}.__init__" in MODULES
        yield Import(deeper if is_module else str(node.module), node.lineno, is_lazy, is_for_types)


def own_imports(name: str) -> list[Import]:
    return [found for found in imports(name) if found.name.split(".")[0] == "fuzzparity"]


def calls(name: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def calls_outside(parts: set[str], forbidden: set[str]) -> list[str]:
    """Return `module:line call` for each forbidden call in a module that is not of these parts."""
    names = [name for name in NAMES if part(name) not in parts]
    return [f"{name}:{line} {called}" for name in names for called, line in calls(name) if called in forbidden]


def imports_outside(parts: set[str], forbidden: set[str]) -> list[str]:
    """Return `module:line import` for each forbidden top-level package in a module that is not of these parts."""
    names = [name for name in NAMES if part(name) not in parts]
    found = ((name, item) for name in names for item in imports(name))
    return [f"{name}:{item.line} {item.name}" for name, item in found if item.name.split(".")[0] in forbidden]


def may_import(name: str, other: str) -> bool:
    """Tell whether the table lets one module of ours import another."""
    here, there = LAYERS[part(name)], LAYERS[part(other)]
    if part(name) == part(other) or other == "fuzzparity":  # the package itself holds public names of layer 1 only
        return True
    is_beside = here == there and here in (1, 4, 5, 6)  # trades (2) and work (3) stand alone
    return there < here or is_beside


def test_every_module_has_a_layer() -> None:
    assert {part(name) for name in NAMES} <= set(LAYERS)


def test_a_module_imports_only_lower_layers_and_trades_not_one_another() -> None:
    found = ((name, item) for name in NAMES for item in own_imports(name))
    assert [f"{name}:{item.line} {item.name}" for name, item in found if not may_import(name, item.name)] == []


def test_engines_are_imported_where_tensors_are_at_home() -> None:
    elsewhere = [name for name in NAMES if part(name) not in ENGINE_PACKAGES]
    found = [(name, item) for name in elsewhere for item in imports(name) if item.name.split(".")[0] in ENGINES]
    wrong = [(n, i) for n, i in found if not i.is_for_types and not (n in LAZY_ENGINES and i.is_lazy)]
    assert [f"{name}:{item.line} {item.name}" for name, item in wrong] == []


def test_processes_are_forked_in_work_only() -> None:
    assert imports_outside({"work"}, {"multiprocessing", "concurrent"}) == []
    assert calls_outside({"work"}, {"os.fork", "os.forkpty", "os.posix_spawn"}) == []


def test_printing_is_left_to_cli_and_report() -> None:
    assert calls_outside({"cli", "report"}, {"print", "click.echo", "sys.stdout.write", "sys.stderr.write"}) == []


def test_no_module_reads_pickles_or_evaluates_text() -> None:
    assert imports_outside(set(), {"pickle", "cloudpickle", "dill", "marshal", "shelve"}) == []
    assert calls_outside(set(), {"eval", "exec"}) == []


def test_durations_never_use_the_wall_clock() -> None:
    assert calls_outside(set(), {"time.time"}) == []


def test_every_except_names_what_it_catches() -> None:
    nodes = [(name, node) for name in NAMES for node in ast.walk(tree(name))]
    bare = [f"{name}:{n.lineno}" for name, n in nodes if isinstance(n, ast.ExceptHandler) and n.type is None]
    assert bare == []


def test_every_module_opens_with_its_idea() -> None:
    assert [name for name in NAMES if tree(name).body and not ast.get_docstring(tree(name))] == []


def test_imports_form_no_cycle() -> None:
    graph = {}
    for name in NAMES:
        found = {item.name for item in own_imports(name) if not item.is_lazy and not item.is_for_types}
        graph[name] = {target if target in MODULES else f"{target}.__init__" for target in found} - {name}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError with the cycle


def test_public_names_are_these() -> None:
    assert sorted(fuzzparity.__all__) == PUBLIC_NAMES
    assert all(hasattr(fuzzparity, name) for name in PUBLIC_NAMES)


HEAVY = ("torch", "onnxruntime", "onnx", "onnxscript", "sklearn", "scipy")


def loaded_after(code: str) -> set[str]:
    """Return which heavy packages a fresh interpreter has loaded after running code."""
    text = f"{code}\nimport json, sys\nsys.stderr.write(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_importing_fuzzparity_loads_no_engine() -> None:
    assert loaded_after("import fuzzparity") == set()


def test_help_loads_no_engine() -> None:
    code = "from fuzzparity.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    assert loaded_after(code) == set()


def test_help_starts_quickly() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "fuzzparity", "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # CPU seconds, so that a busy machine does not matter; 0.3 measured, twice that allowed for slow ones
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 1.0
