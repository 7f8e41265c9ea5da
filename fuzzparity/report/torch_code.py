"""Torch code: whether lines that a cut holds are the plain torch program that they should be.

The idea: a stored cut is data, possibly a stranger's, and its lines end in a program. So they are parsed, and only
assignments of torch's functions, methods and operators on values of the cut pass; nothing that opens, loads or runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

_FUNCTION = re.compile(r"torch\.([a-z]\w*|(nn\.functional|linalg|fft|special)\.[a-z]\w*|ops\.aten\.\w+(\.\w+)?)")
_METHOD = re.compile(r"[a-zA-Z]\w*")
_ATTRIBUTE = re.compile(
    r"torch\.(float\d\w*|bfloat16|u?int\d+|bool|complex\d+|strided|contiguous_format|channels_last(_3d)?|preserve_format)"
)
_REFUSED = frozenset(
    {"load", "save", "from_file", "compile", "numpy", "tofile", "storage", "untyped_storage", "apply_", "map_", "map2_"}
    | {"import_ir_module", "parse_ir", "fork", "wait", "share_memory_", "register_hook", "set_", "data_ptr", "backward"}
    | {
        "import_ir_module_from_buffer",
        "autocast",
        "manual_seed",
        "typename",
        "get_file_path",
        "prepare_multiprocessing",
    }
)
_PLAIN = (ast.Constant, ast.Load, ast.Store, ast.operator, ast.unaryop, ast.cmpop)
_STRUCTURE = (ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Slice, ast.keyword)


def is_torch_code(lines: Sequence[str], takes: Sequence[str]) -> bool:
    """Tell whether lines are the body of a function of these names that does nothing but compute in torch."""
    if not lines or not all(name.isidentifier() for name in takes):
        return False
    known = set(takes)
    try:
        statements = [ast.parse(line.removeprefix("return "), mode="exec").body for line in lines]
    except (SyntaxError, ValueError, RecursionError):
        return False
    is_last_returned = lines[-1].startswith("return ")
    if not is_last_returned or any(line.startswith("return ") for line in lines[:-1]):
        return False
    return all(len(body) == 1 and _is_statement(body[0], known) for body in statements)


def _is_statement(node: ast.stmt, known: set[str]) -> bool:
    """Tell whether a statement is allowed; the names that it gives become known."""
    if isinstance(node, ast.Expr):
        return _is_expression(node.value, known)
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not _is_expression(node.value, known):
        return False
    target = node.targets[0]
    if isinstance(target, ast.Subscript):
        return _is_expression(target, known)
    names = [one for one in ast.walk(target) if isinstance(one, ast.Name)]
    if not all(isinstance(one, (ast.Name, ast.Tuple, ast.Store)) for one in ast.walk(target)):
        return False
    if not all(re.fullmatch(r"v\d+|_", one.id) for one in names):
        return False
    known.update(one.id for one in names)
    return True


def _is_expression(node: ast.AST, known: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in known
    if isinstance(node, ast.Attribute):
        return bool(_ATTRIBUTE.fullmatch(ast.unparse(node))) or _is_method(node, known)
    if isinstance(node, ast.Call):
        parts = (*node.args, *(keyword.value for keyword in node.keywords))
        return _is_function(node.func, known) and all(_is_expression(part, known) for part in parts)
    if isinstance(node, _PLAIN):
        return True
    return isinstance(node, _STRUCTURE) and all(_is_expression(part, known) for part in ast.iter_child_nodes(node))


def _is_function(node: ast.expr, known: set[str]) -> bool:
    text = ast.unparse(node)
    if text == "float":  # of "inf" and "nan"
        return True
    if _FUNCTION.fullmatch(text):
        return not _REFUSED.intersection(text.split("."))
    return isinstance(node, ast.Attribute) and _is_method(node, known)


def _is_method(node: ast.Attribute, known: set[str]) -> bool:
    """Tell whether an attribute is read of a value, not of torch itself."""
    return bool(_METHOD.fullmatch(node.attr)) and node.attr not in _REFUSED and _is_expression(node.value, known)
