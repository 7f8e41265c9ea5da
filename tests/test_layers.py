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

import pytest

import fuzzparity

PACKAGE = Path(fuzzparity.__file__).parent

LAYERS = {
    "errors": 0,
    "case": 1,
    "target": 1,
    "execution": 1,
    "verdict": 1,
    "finding": 1,
    "contract": 1,
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
    "cli": 6,
    "__init__": 6,
    "__main__": 6,
}

ENGINES = {"torch", "onnxruntime", "onnxscript"}
ENGINE_PACKAGES = {"sides", "blame", "probe"}
# Modules elsewhere that must touch tensors, inside a function only; each needs a reason beside its name.
LAZY_ENGINES: dict[str, str] = {}

PUBLIC_NAMES = ["Export", "FuzzparityError", "InvalidCase", "InvalidTarget", "Ort", "Size", "Target", "Tolerance"]


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


def called_names(name: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


@pytest.mark.parametrize("name", NAMES)
def test_every_module_has_a_layer(name: str) -> None:
    assert part(name) in LAYERS, f"{name} stands in no row of the layer table"


@pytest.mark.parametrize("name", NAMES)
def test_a_module_imports_only_lower_layers(name: str) -> None:
    here = LAYERS[part(name)]
    for found in own_imports(name):
        there = LAYERS[part(found.name)]
        if part(found.name) == part(name) or found.name == "fuzzparity":
            continue
        is_record = here == there == 1
        is_outer = here == there and here in (4, 5, 6)
        assert there < here or is_record or is_outer, (
            f"{name}:{found.line} (layer {here}) imports {found.name} (layer {there})"
        )


@pytest.mark.parametrize("name", [name for name in NAMES if LAYERS.get(part(name)) == 2])
def test_trades_do_not_import_one_another(name: str) -> None:
    for found in own_imports(name):
        assert LAYERS[part(found.name)] < 2 or part(found.name) == part(name), (
            f"{name}:{found.line} imports {found.name}: a trade gets callables, not another trade"
        )


@pytest.mark.parametrize("name", NAMES)
def test_engines_are_imported_where_tensors_are_at_home(name: str) -> None:
    for found in imports(name):
        if found.name.split(".")[0] not in ENGINES or part(name) in ENGINE_PACKAGES or found.is_for_types:
            continue
        assert name in LAZY_ENGINES, f"{name}:{found.line} imports {found.name}"
        assert found.is_lazy, f"{name}:{found.line} imports {found.name} outside of a function"


@pytest.mark.parametrize("name", NAMES)
def test_processes_are_started_in_work_only(name: str) -> None:
    if part(name) == "work":
        return
    for found in imports(name):
        assert found.name.split(".")[0] not in {"multiprocessing", "concurrent"}, f"{name}:{found.line}"
    for called, line in called_names(name):
        assert called not in {"os.fork", "os.forkpty", "os.posix_spawn"}, f"{name}:{line} calls {called}"


@pytest.mark.parametrize("name", NAMES)
def test_printing_is_left_to_cli_and_report(name: str) -> None:
    if part(name) in {"cli", "report"}:
        return
    for called, line in called_names(name):
        assert called not in {"print", "click.echo", "sys.stdout.write", "sys.stderr.write"}, f"{name}:{line} {called}"


@pytest.mark.parametrize("name", NAMES)
def test_no_module_reads_pickles_or_evaluates_text(name: str) -> None:
    for found in imports(name):
        assert found.name.split(".")[0] not in {"pickle", "cloudpickle", "dill", "marshal", "shelve"}, (
            f"{name}:{found.line} imports {found.name}"
        )
    for called, line in called_names(name):
        assert called not in {"eval", "exec"}, f"{name}:{line} calls {called}"


@pytest.mark.parametrize("name", NAMES)
def test_every_except_names_what_it_catches(name: str) -> None:
    for node in ast.walk(tree(name)):
        assert not (isinstance(node, ast.ExceptHandler) and node.type is None), f"{name}:{node.lineno} is a bare except"


@pytest.mark.parametrize("name", NAMES)
def test_durations_never_use_the_wall_clock(name: str) -> None:
    for called, line in called_names(name):
        assert called != "time.time", f"{name}:{line}: use time.monotonic"


@pytest.mark.parametrize("name", NAMES)
def test_every_module_opens_with_its_idea(name: str) -> None:
    assert not MODULES[name].read_text().strip() or ast.get_docstring(tree(name)), f"{name} has no docstring"


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
