"""Labels: what rode along with a seed, as JSON text and back.

The idea: numbers, texts and lists are JSON as they are; an array is an object that names its dtype. The text may come
from a stranger, so nothing but arrays of numbers is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fuzzparity.corpus.plain import dumps
from fuzzparity.errors import CorpusError

MOST_TEXT = 1 << 20  # characters of one label in the database: classes and boxes are far below, masks are not
_ARRAY, _DTYPE = "array", "dtype"


def label_text(label: Any) -> str | None:
    """Return a label as JSON text, None where there is none or it is too large to be kept beside its case."""
    if label is None or _elements(label) > MOST_TEXT:
        return None
    text = dumps(_plain(label))
    return text if len(text) <= MOST_TEXT else None


def label_of(value: Any) -> Any:
    """Return the label that plain data stands for; CorpusError where an array is none."""
    if isinstance(value, Mapping):
        if set(value) == {_ARRAY, _DTYPE}:
            return _array(value[_ARRAY], value[_DTYPE])
        return {name: label_of(part) for name, part in value.items()}
    return [label_of(part) for part in value] if isinstance(value, list) else value


def _array(values: Any, dtype: Any) -> Any:
    try:
        found = np.dtype(str(dtype))
        if found.kind not in "biuf":
            raise TypeError
        return np.asarray(values, dtype=found)
    except (TypeError, ValueError, OverflowError):
        raise CorpusError(f"a label is said to be an array of {str(dtype)[:40]!r} and is none") from None


def _plain(label: Any) -> Any:
    if isinstance(label, np.ndarray):
        kept = label if label.dtype.kind in "biuf" else label.astype(np.float64)  # bfloat16 and its like
        return {_ARRAY: kept.tolist(), _DTYPE: kept.dtype.name}
    if isinstance(label, Mapping):
        return {name: _plain(part) for name, part in label.items()}
    return [_plain(part) for part in label] if isinstance(label, (list, tuple)) else label


def _elements(label: Any) -> int:
    if isinstance(label, np.ndarray):
        return label.size
    if isinstance(label, (list, tuple, Mapping)):
        return sum(map(_elements, label.values() if isinstance(label, Mapping) else label))
    return len(label) if isinstance(label, str) else 1
