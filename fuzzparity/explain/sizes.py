"""Sizes: what a sizing job is asked, and what it answers.

The idea: the parent speaks of a job in records alone, so that it need not import the sides which the job runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuzzparity.case import Case
from fuzzparity.explain.records import TwinSpec
from fuzzparity.generate.relations import Rule


@dataclass(frozen=True, slots=True)
class SizingSpec:
    """Say what to look at; `skip` holds the digests of cases that killed an earlier try."""

    twin: TwinSpec
    seed: Case
    skip: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sized:
    """Tell what the runs showed. `one_sided`: sizes that one side alone refuses, in words."""

    rules: tuple[Rule, ...] = ()
    runs: int = 0
    has_valid: bool = False
    one_sided: tuple[str, ...] = ()
