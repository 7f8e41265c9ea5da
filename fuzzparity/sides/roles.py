"""Roles: what each input most likely is (image, tokens, mask, lengths, offsets, state, scale), and why one thinks so.

The idea: a role only says which moves are worth making, it never limits anything; so a name, a shape and the first seed
are enough. What the target declares comes first, then what the graph does with the input, then names and shapes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator

import numpy as np

from fuzzparity.case import Array, Case, is_float
from fuzzparity.contract import Contract, Hint, InputContract, Role

_MASK = re.compile(r"mask|padding|valid|(?<![a-z])keep", re.IGNORECASE)
_LENGTHS = re.compile(r"(?<![a-z])len(gth)?s?(?![a-z])|(?<![a-z])(num|n|count)_", re.IGNORECASE)
_OFFSETS = re.compile(r"offset|indptr|cu_?seq|row_?splits|(?<![a-z])(starts|ptr)(?![a-z])", re.IGNORECASE)
_TOKENS = re.compile(r"(?<![a-z])(ids?|tokens?|words?|phonemes?|chars?|text)(?![a-z])", re.IGNORECASE)
_INDICES = re.compile(r"(?<![a-z])(ind(ex|ices)|idx|edge|position|label|target)s?(?![a-z])", re.IGNORECASE)
_STATE = re.compile(r"state|hidden|cache|(?<![a-z])(past|memory|[hc]_?0|[hc]n)(?![a-z])", re.IGNORECASE)
_CHANNELS = (1, 3, 4)
_COLOURS = (3, 4)  # without a batch dim, one channel could be a batch of one
_LEAST_SIDE = 8  # of an image


def with_roles(contract: Contract, seed: Case, carried: Collection[str]) -> Contract:
    """Return the contract with the role of every input; `carried`: inputs that outputs are fed back into."""
    hints = {hint.input: hint for hint in contract.hints if hint.dim is None}
    inputs = []
    for item in contract.inputs:
        role, why = _role(item, seed.inputs[item.name], hints.get(item.name), item.name in carried)
        counted = _counted(item, role, contract, seed)
        inputs.append(dataclasses.replace(item, role=role, role_reason=why, counted=counted))
    return dataclasses.replace(contract, inputs=tuple(inputs))


def _role(item: InputContract, array: Array, hint: Hint | None, is_carried: bool) -> tuple[Role, str]:
    return next(_guesses(item, array, hint, is_carried), (Role.GENERIC, "nothing tells more"))


def _guesses(item: InputContract, array: Array, hint: Hint | None, is_carried: bool) -> Iterator[tuple[Role, str]]:
    kind, name = array.dtype.kind, item.name
    named = f"its name, and {item.dtype}"
    if is_carried:
        yield Role.STATE, "declared by you: carry"
    if kind == "b" and array.ndim:
        yield Role.MASK, "graph: its dtype is bool"
    if hint is not None and hint.says.startswith("a mask"):
        yield Role.MASK, hint.why
    if kind in "iu" and array.ndim <= 1 and _OFFSETS.search(name):
        yield Role.OFFSETS, named
    if hint is not None and hint.says.startswith("lengths"):
        yield Role.LENGTHS, hint.why
    if _MASK.search(name) and array.ndim and kind in "iuf" and ((array == 0) | (array == 1)).all():
        yield Role.MASK, "its name, and it holds 0 and 1"
    if kind in "iu":
        if array.ndim <= 1 and _LENGTHS.search(name):
            yield Role.LENGTHS, named
        if item.index_limit is not None or item.index_symbol:
            why = item.index_reason or "graph: it indexes an axis"
            yield (Role.INDICES if _INDICES.search(name) or array.ndim == 1 else Role.TOKENS), why
        if _TOKENS.search(name):
            yield Role.TOKENS, named
        if _INDICES.search(name):
            yield Role.INDICES, named
    picture = _picture(item, array)
    if picture:
        yield Role.IMAGE, picture
    if _STATE.search(name) and is_float(array.dtype):
        yield Role.STATE, "its name"
    if array.size == 1 and not any(dim.is_dynamic for dim in item.dims):
        yield Role.SCALE, "it is a single number"


def _picture(item: InputContract, array: Array) -> str:
    """Return why an input looks like pictures: few channels over two sides; "" where it does not."""
    if array.ndim not in (3, 4) or not (is_float(array.dtype) or item.dtype == "uint8"):
        return ""
    for channel, sides in ((array.ndim - 3, (-2, -1)), (array.ndim - 1, (-3, -2))):
        height, width = (array.shape[side] for side in sides)
        is_few = array.shape[channel] in (_CHANNELS if array.ndim == 4 else _COLOURS)
        if is_few and not item.dims[channel].is_dynamic and min(height, width) >= _LEAST_SIDE:
            return f"{array.shape[channel]} channels over {height} x {width}"
    return ""


def _counted(item: InputContract, role: Role, contract: Contract, seed: Case) -> tuple[str, int] | None:
    """Return which dim the values of lengths or offsets count along: (input, dim), the smallest that holds them all."""
    array = seed.inputs[item.name]
    if role not in (Role.LENGTHS, Role.OFFSETS) or not array.size:
        return None
    own = {dim.symbol for dim in item.dims}
    largest = int(np.max(array))
    found = [
        (size, other.name, place)
        for other in contract.inputs
        if other.name != item.name
        for place, (dim, size) in enumerate(zip(other.dims, seed.inputs[other.name].shape, strict=True))
        if size >= max(largest, 2) and (not dim.symbol or dim.symbol not in own) and (place or role is Role.OFFSETS)
    ]
    _, name, place = min(found, key=lambda one: one[0], default=(0, "", 0))
    return (name, place) if name else None
