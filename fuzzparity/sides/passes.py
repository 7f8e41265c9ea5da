"""Passes: which graph passes of ORT change a given model, as its own log says."""

from __future__ import annotations

import re
from pathlib import Path

import onnxruntime

from fuzzparity.sides.optimizers import REWRITE_RULES, known_optimizers
from fuzzparity.sides.ort_side import session_options
from fuzzparity.sides.quiet import captured
from fuzzparity.target import Ort

_ACTED = re.compile(r"GraphTransformer (\S+) modified: 1")
_RULES = re.compile(r"Level\d_RuleBasedTransformer")


def acting_passes(model: Path, ort: Ort) -> tuple[str, ...]:
    """Return the passes that modified a model, in their order; rewrite rules follow the transformer that holds them.

    A model that cannot be loaded gives those that acted before it failed, and every rewrite rule: a rule that fails
    never gets to say that it acted.
    """
    options = session_options(ort)
    options.log_severity_level = 0
    failed = False
    with captured(2) as log:
        try:
            onnxruntime.InferenceSession(
                str(model),
                options,
                providers=list(ort.providers),
                disabled_optimizers=list(ort.disabled_optimizers) or None,
            )
        except Exception:  # ORT's exceptions share no base; why it failed is not asked here
            failed = True
        log.seek(0)
        acted = list(dict.fromkeys(_ACTED.findall(log.read().decode(errors="replace"))))
    found = [name for name in acted if name in known_optimizers() and not _RULES.fullmatch(name)]
    if failed or any(_RULES.fullmatch(name) for name in acted):
        found += sorted(REWRITE_RULES)
    return tuple(name for name in dict.fromkeys(found) if name not in ort.disabled_optimizers)
