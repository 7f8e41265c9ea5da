"""Targets of every planted twin, for `fuzzparity fuzz scripts/planted_targets.py:NAME`.

With PLANTED_WITHOUT_FEEDBACK set, campaigns on them learn nothing from what they see: what a comparison is made with.
`case` is the target of a file named by PLANTED_CASE, for the same comparison.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from fuzzparity import Target
from fuzzparity.generate.generator import Generator

sys.path.insert(0, str(Path(__file__).resolve().parent))

from planted.sets import TWINS

if os.environ.get("PLANTED_WITHOUT_FEEDBACK"):
    # this process loads the target and is what workers are forked from, so they get it too
    Generator.learn = lambda *given, **named: False  # type: ignore[method-assign]
    Generator.adopt = lambda *given, **named: None  # type: ignore[method-assign]


def case() -> Target:
    """Return the target of the file that PLANTED_CASE names."""
    path = Path(os.environ["PLANTED_CASE"])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module.target()


globals().update({name: twin.target for name, twin in TWINS.items()})
