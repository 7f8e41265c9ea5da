"""Torchlib: spare torch's exporter the parsing of five hundred operators at each export.

The idea: torch's dynamo exporter builds its table of operators anew for each export, and of the parsed source of every
operator it reads the domain alone. That parse, half of the time that a small export takes, waits here until somebody
asks for more than the domain; whoever asks gets the same as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Unparsed:
    """Stand for the parsed signature of an operator until more than its domain is read."""

    __slots__ = ("_parse", "domain")

    def __init__(self, domain: str, parse: Callable[[], Any]) -> None:
        self.domain = domain
        self._parse = parse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parse(), name)


class _Late:
    """Give the signature of an operator unparsed, once the first one has shown that its domain is its opset's."""

    def __init__(self, parse: Callable[[Any], Any]) -> None:
        self._parse = parse
        self._is_trusted: bool | None = None

    def __call__(self, function: Any) -> Any:
        domain = getattr(getattr(function, "_opset", None), "domain", None)
        if self._is_trusted is None:
            parsed = self._parse(function)
            self._is_trusted = domain is not None and getattr(parsed, "domain", None) == domain
            return parsed
        return _Unparsed(str(domain), lambda: self._parse(function)) if self._is_trusted else self._parse(function)


def parse_operators_late() -> bool:
    """Let operators be parsed only when they are used; tell whether onnxscript has the form that this needs.

    The source: `get_torchlib_ops` in onnxscript/_framework_apis/torch_2_5.py reads `function_ir.domain`.
    """
    try:
        from onnxscript._internal.values import TracedOnnxFunction
    except ImportError:
        return False
    kind: Any = TracedOnnxFunction
    before = kind.__dict__.get("function_ir")
    if not isinstance(before, property) or before.fget is None:
        return False
    if not isinstance(before.fget, _Late):
        kind.function_ir = property(_Late(before.fget), doc=before.__doc__)
    return True
