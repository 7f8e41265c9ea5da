"""Session words: what may stand in an `Ort`, checked against the installed ONNX Runtime.

The idea: ORT ignores in silence a config key, an optimizer and a thread count that it does not know, so each is looked
up first. No public API lists the config keys; the library that reads them holds them as plain text.
"""

from __future__ import annotations

import difflib
import functools
import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from fuzzparity.errors import InvalidTarget
from fuzzparity.sides.optimizers import known_optimizers
from fuzzparity.target import Ort

# areas of onnxruntime_session_options_config_keys.h; a key stands in the library as a text that ends with a zero byte
_KEY = re.compile(r"(?:session|ep|optimization|mlas)(?:\.[a-z0-9_]+)+")
_KEYS = re.compile(rb"\b(" + _KEY.pattern.encode() + rb")\x00")
# onnxruntime_run_options_config_keys.h: settings of one run, which a session takes and ignores
_RUN_KEYS = frozenset(
    {
        "memory.enable_memory_arena_shrinkage",
        "disable_synchronize_execution_providers",
        "qnn.htp_perf_mode",
        "qnn.htp_perf_mode_post_run",
        "qnn.rpc_control_latency",
        "gpu_graph_id",
    }
)
_FIELD_OF = {  # keys under which ORT keeps what has an option of its own
    "session.graph_optimization_level": "optimization_level",
    "session.intra_op_num_threads": "threads",
    "session.inter_op_num_threads": "threads",
}


@functools.cache
def known_config_keys() -> frozenset[str]:
    """Return every SessionOptions config key that the installed ONNX Runtime reads; takes seconds."""
    found = {match[1].decode() for data in _contents() for match in _KEYS.finditer(data)}
    return frozenset(found - _RUN_KEYS)


@functools.cache
def is_config_key(key: str) -> bool:
    """Tell whether the installed ONNX Runtime reads a SessionOptions config key."""
    is_one = bool(_KEY.fullmatch(key)) and key not in _RUN_KEYS
    return is_one and any(data.find(key.encode() + b"\0") >= 0 for data in _contents())


def _contents() -> Iterator[mmap.mmap]:
    for library in _libraries():
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _libraries() -> list[Path]:
    folder = Path(onnxruntime.__file__).parent / "capi"
    return sorted(p for p in folder.iterdir() if ".so" in p.name or p.suffix in (".pyd", ".dll", ".dylib"))


def check_config(config: Mapping[str, str]) -> None:
    """Raise `InvalidTarget` for a config key that ORT does not read."""
    for key in map(str, config):
        field = _FIELD_OF.get(key)
        if field is not None:
            raise InvalidTarget("ort", f"config sets {key!r}", f"use Ort({field}=...), which it would not change")
        if key in _RUN_KEYS:
            raise InvalidTarget(
                "ort",
                f"config sets {key!r}, which is an option of one run, not of the session",
                "leave it out; ORT would ignore it here in silence",
            )
        if is_config_key(key):
            continue
        near = difflib.get_close_matches(key, known_config_keys(), 5, 0.5)
        raise InvalidTarget(
            "ort",
            f"config sets {key!r}, a key that ONNX Runtime {onnxruntime.__version__} does not read",
            f"near it: {', '.join(near)}" if near else f"known: {', '.join(sorted(known_config_keys()))}",
        )


def check_provider_options(ort: Ort) -> None:
    """Raise `InvalidTarget` for options of the CPU provider: it takes none, and ORT ignores them in silence."""
    given = ort.provider_options.get("CPUExecutionProvider")
    if given:
        raise InvalidTarget(
            "provider",
            f"provider_options give CPUExecutionProvider {', '.join(map(str, given))}, and it takes no options",
            "use Ort(threads=, config=, optimization_level=) for what the session does on the CPU",
        )


def check_optimizers(names: Sequence[str]) -> None:
    """Raise `InvalidTarget` for a pass that ORT does not have."""
    if not names:
        return
    known = known_optimizers()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 5, 0.4)
            raise InvalidTarget(
                "ort",
                f"disabled_optimizers names {name!r}, which ONNX Runtime {onnxruntime.__version__} does not have",
                f"near it: {', '.join(near)}" if near else f"known: {', '.join(sorted(known))}",
            )


def check_threads(ort: Ort) -> None:
    """Raise `InvalidTarget` for a number of threads that is none."""
    threads = ort.threads
    if threads is not None and (type(threads) is not int or threads < 1):
        raise InvalidTarget(
            "ort", f"threads is {threads!r}", "give a whole number of threads, 1 or more, or None for 1"
        )


def register_library(options: Any, library: str | Path, folder: str) -> None:
    """Load a library of custom operators into session options; it is the user's own code.

    `library`: its path, from `folder` on. Raises `InvalidTarget` for one that is not there or registers nothing.
    """
    path = Path(folder or ".") / library
    if not path.is_file():
        raise InvalidTarget(
            "ort",
            f"there is no custom operator library {path}",
            "give its path from the target's folder on, or an absolute one; build it first",
        )
    try:
        options.register_custom_ops_library(str(path.absolute()))
    except Exception as error:  # ORT's exceptions share no base of their own
        text = " ".join(str(error).split())
        raise InvalidTarget(
            "ort",
            f"ONNX Runtime cannot load the custom operator library {path.name}: {text[:300]}",
            "give a shared library that exports RegisterCustomOps and was built for this version of ONNX Runtime",
        ) from None
