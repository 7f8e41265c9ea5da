"""ORT side: open one ONNX Runtime session with given options, prove where it runs, and run one case.

The idea: what was asked for is what runs. A provider that is not there, or that ORT would silently replace, is an
`InvalidTarget`; a sound model that ORT cannot load is an `Execution` like any other outcome.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.metadata
import re
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime

from fuzzparity.case import Array, Case
from fuzzparity.contract import Contract
from fuzzparity.errors import InvalidTarget
from fuzzparity.execution import ORT, Execution, Refusal, Status, normalize_message, readable_message, source_site
from fuzzparity.sides.session_words import (
    check_config,
    check_optimizers,
    check_provider_options,
    check_threads,
    register_library,
)
from fuzzparity.target import Ort

CPU = "CPUExecutionProvider"
ORT_LEVELS = {
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_WHEEL_OF = {
    "CUDA": "onnxruntime-gpu",
    "Tensorrt": "onnxruntime-gpu",
    "Dml": "onnxruntime-directml",
    "OpenVINO": "onnxruntime-openvino",
    "ROCM": "onnxruntime-rocm",
    "MIGraphX": "onnxruntime-migraphx",
}
WHEELS = tuple(dict.fromkeys(("onnxruntime", *_WHEEL_OF.values())))
# types that ORT takes and gives only as OrtValue: dtype -> (TensorProto type, integer of the same width)
_VALUE_TYPES: dict[np.dtype[Any], tuple[int, Any]] = {
    np.dtype(ml_dtypes.bfloat16): (16, np.int16),
    np.dtype(ml_dtypes.float8_e4m3fn): (17, np.uint8),
    np.dtype(ml_dtypes.float8_e4m3fnuz): (18, np.uint8),
    np.dtype(ml_dtypes.float8_e5m2): (19, np.uint8),
    np.dtype(ml_dtypes.float8_e5m2fnuz): (20, np.uint8),
}
_NARROW = re.compile("bfloat16|float8")
_NODE = re.compile(r"(?:while running|for|node of type|operator:?|op:?) ([A-Z]\w*)(?:\(\d+\))?(?: node)?")
_OPTION = re.compile(r"(?:Unknown|Failed to parse) provider option")  # core/framework/provider_options_utils.h
_OUT_OF_MEMORY = ("Failed to allocate memory", "bad_alloc", "out of memory", "bad allocation", "CUDA failure 2:")


def open_ort(model: Path | bytes, ort: Ort, contract: Contract, folder: str = "") -> OrtSide | Execution:
    """Return a side with a new session, or the execution (phase "load") in which ORT refused the model.

    `folder`: the target's, from which `ort.custom_op_libraries` are named.

    Raises `InvalidTarget` for a provider or option that does not exist or is not what runs.
    """
    check_providers(ort)
    options = session_options(ort, folder)
    providers = [(name, dict(ort.provider_options.get(name, {}))) for name in ort.providers]
    source = str(model) if isinstance(model, Path) else model
    started = perf_counter()
    try:
        session = onnxruntime.InferenceSession(
            source, options, providers=providers, disabled_optimizers=list(ort.disabled_optimizers) or None
        )
    except Exception as error:  # ORT's exceptions share no base of their own
        if CPU not in ort.providers and "fallback" in str(error):
            raise InvalidTarget(
                "provider",
                f"ORT would run a part of the model outside {', '.join(ort.providers)}: {str(error)[:300]}",
                f"add {CPU} to the providers to allow that, or use a provider that takes the whole model",
            ) from None
        if _OPTION.search(str(error)):
            raise InvalidTarget(
                "provider",
                f"ORT refuses the provider options: {readable_message(str(error))[:300]}",
                "see the provider's page at onnxruntime.ai for the options that it takes",
            ) from None
        return refused(error, perf_counter() - started, "load")
    _require_providers(session, ort)
    session.disable_fallback()  # of the Python wrapper: it would run a failing case again on other providers
    return OrtSide(session, ort, contract)


class OrtSide:
    """Run cases on one session. `providers`: where it runs, in ORT's order; `level`: its optimization level."""

    def __init__(self, session: Any, ort: Ort, contract: Contract) -> None:
        self.providers: tuple[str, ...] = tuple(session.get_providers())
        self.level = ort.optimization_level
        self._asked = tuple(ort.providers)
        self._session = session
        self._outputs = [value.name for value in session.get_outputs()]
        self._feeds = [(item.name, item.onnx_name) for item in contract.inputs if item.onnx_name]
        self._is_narrow = any(_NARROW.search(value.type) for value in (*session.get_inputs(), *session.get_outputs()))
        if self._is_narrow:
            importlib.import_module("fuzzparity.sides.tensors")  # torch, which takes seconds: not within a timed run

    @property
    def notes(self) -> tuple[str, ...]:
        """Say which provider ORT added by itself."""
        added = [name for name in self.providers if name not in self._asked]
        return tuple(f"ORT added {name} as fallback" for name in added)

    def run(self, case: Case) -> Execution:
        """Run one case; dtypes go to ORT as they are, and what it refuses is a refusal."""
        started = perf_counter()
        try:
            feeds = {onnx_name: native(case.inputs[name]) for name, onnx_name in self._feeds}
            if self._is_narrow or any(array.dtype in _VALUE_TYPES for array in feeds.values()):
                outputs = self._run_values(feeds)
            else:
                outputs = self._session.run(self._outputs, feeds)
            seconds = perf_counter() - started
            return Execution(ORT, Status.OK, tuple(flat(outputs)), seconds=seconds)
        except Exception as error:
            return refused(error, perf_counter() - started)

    def _run_values(self, feeds: dict[str, Array]) -> list[Any]:
        values = {name: _value(array) for name, array in feeds.items()}
        return [_array(value) for value in self._session.run_with_ort_values(None, values)]


def session_options(ort: Ort, folder: str = "") -> Any:
    """Return SessionOptions for an `Ort`: sequential, one thread unless it says otherwise, silent.

    `folder`: the target's, from which custom operator libraries are named.
    """
    check_threads(ort)
    check_config(ort.config)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = ort.threads or 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ORT_LEVELS[ort.optimization_level]
    if CPU not in ort.providers:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for key, value in ort.config.items():
        options.add_session_config_entry(str(key), str(value))
    check_optimizers(ort.disabled_optimizers)
    for library in ort.custom_op_libraries:
        register_library(options, library, folder)
    return options


def check_ort(ort: Ort, folder: str = "") -> None:
    """Raise `InvalidTarget` for anything in an `Ort` that does not exist here, before a model is made for it."""
    check_providers(ort)
    session_options(ort, folder)


def check_providers(ort: Ort) -> None:
    """Raise `InvalidTarget` unless each provider and the owner of each provider option is there."""
    available = onnxruntime.get_available_providers()
    if not ort.providers:
        raise InvalidTarget("provider", "no provider was asked for", f"available here: {', '.join(available)}")
    for name in ort.providers:
        if name not in available:
            raise InvalidTarget("provider", _not_there(name), _how_to_get(name, available))
    for name in ort.provider_options:
        if name not in ort.providers:
            raise InvalidTarget(
                "provider",
                f"provider_options name {name!r}, which is not among the providers",
                f"the providers asked for: {', '.join(ort.providers)}",
            )
    check_provider_options(ort)


def _not_there(name: str) -> str:
    if name not in onnxruntime.get_all_providers():
        near = difflib.get_close_matches(name, onnxruntime.get_all_providers(), 3, 0.4)
        return f"there is no execution provider {name!r}" + (f"; near it: {', '.join(near)}" if near else "")
    return f"execution provider {name} is not in this build of ONNX Runtime {onnxruntime.__version__}"


def _how_to_get(name: str, available: Sequence[str]) -> str:
    both = installed_wheels()
    text = f"available here: {', '.join(available)}"
    if len(both) > 1:
        return f"{text}; {' and '.join(both)} are both installed and shadow each other: uninstall all but one"
    wheel = _WHEEL_OF.get(name.removesuffix("ExecutionProvider"))
    return f"{text}; {name} comes with the wheel {wheel} (instead of {both[0]})" if wheel and both else text


def installed_wheels() -> list[str]:
    """Return the installed distributions that provide `onnxruntime`; two of them shadow each other."""
    found = []
    for name in WHEELS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version(name)
            found.append(name)
    return found


def _require_providers(session: Any, ort: Ort) -> None:
    got = session.get_providers()
    extra = [name for name in got if name not in ort.providers and name != CPU]
    lost = [name for name in ort.providers if name not in got]
    if extra or lost or [name for name in got if name in ort.providers] != list(ort.providers):
        raise InvalidTarget(
            "provider",
            f"asked for {', '.join(ort.providers)}, but the session runs on {', '.join(got)}",
            "the libraries that the provider needs (CUDA, cuDNN, ...) could not be loaded; install the versions that "
            "this wheel was built for",
        )


def refused(error: BaseException, seconds: float = 0.0, phase: str = "run") -> Execution:
    """Return the execution of an ORT side that raised: refused, or out of memory."""
    text = str(error)
    is_oom = isinstance(error, MemoryError) or any(sign in text for sign in _OUT_OF_MEMORY)
    refusal = Refusal(type(error).__name__, normalize_message(_told(text)), site_of(error), readable_message(text))
    return Execution(ORT, Status.OOM if is_oom else Status.REFUSED, refusal=refusal, phase=phase, seconds=seconds)


def _told(text: str) -> str:
    """Return an ORT message with the lines that follow the first one joined: they hold which input and index."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def site_of(error: BaseException) -> str:
    """Return op and source `file:line` as far as a message names them, else the error's class."""
    text = str(error)
    op = _NODE.search(text)
    parts = [op[1] if op else "", source_site(text)]
    return " ".join(part for part in parts if part) or type(error).__name__


def native(array: Array) -> Array:
    """Return an array as ORT can read it: contiguous and in native byte order (others it reads wrong in silence)."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array if array.flags.c_contiguous else np.array(array, order="C")


def flat(outputs: Sequence[Any]) -> list[Array]:
    """Return outputs as arrays; sequences are opened, absent optionals left out, maps given as their values."""
    arrays: list[Array] = []
    for output in outputs:
        if output is None:
            continue
        if isinstance(output, dict):
            arrays.append(np.array(list(output.values())))
        elif isinstance(output, (list, tuple)):
            arrays.extend(flat(output))
        else:
            arrays.append(np.asarray(output))
    return arrays


def _value(array: Array) -> Any:
    narrow = _VALUE_TYPES.get(array.dtype)
    if narrow is None:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    carrier = array.view(narrow[1])
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(carrier, narrow[0])


def _array(value: Any) -> Any:
    """Return an OrtValue as numpy; the narrow floats, which `numpy()` refuses, by dlpack."""
    if value.is_tensor() and not _NARROW.search(value.data_type()):
        return value.numpy()
    if not value.has_value():
        return None
    import torch  # not above: a replay of a model without these dtypes does without it

    from fuzzparity.sides.tensors import to_array

    return to_array(torch.from_dlpack(value._ortvalue.to_dlpack()))
