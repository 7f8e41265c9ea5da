"""Policies: what `--policy` says of outputs, in the words of the command line.

The idea: one spelling for a named policy, an absolute tolerance and both numbers, with or without the output's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fuzzparity.errors import InvalidTarget, InvalidUsage
from fuzzparity.oracle.regions import region_of
from fuzzparity.target import POLICIES, QUALITIES, Tolerance

EVERY = "*"  # the key of a policy for every output that none names
_NUMBER = r"[0-9.]+(?:[eE][-+]?[0-9]+)?"
_NUMBERS = re.compile(rf"(?:(rtol|atol):({_NUMBER}))|(?:(unordered):(-?[0-9]{{1,3}}))")

Policies = Mapping[str, Tolerance | str]


def parse_policies(texts: Iterable[str]) -> dict[str, Tolerance | str]:
    """Return the policies of `--policy`, by output or slice of one; InvalidUsage says how they are written."""
    chosen: dict[str, Tolerance | str] = {}
    for text in texts:
        key, separator, value = text.rpartition("=")
        key, value = key.strip(), value.strip()
        if not value or (separator and not key):
            raise _wrong(text, "it is empty")
        key = key if separator else EVERY
        if key in chosen:
            raise _wrong(text, f"{'every output' if key == EVERY else key} is given twice")
        chosen[key] = _value(text, value)
    return chosen


def _value(text: str, value: str) -> Tolerance | str:
    if value in (*POLICIES, *QUALITIES):
        return value
    if re.fullmatch(_NUMBER, value):
        return _tolerance(text, {"atol": value})
    parts = [_NUMBERS.fullmatch(part.strip()) for part in value.split(",")]
    given = {part[1] or part[3]: part[2] or part[4] for part in parts if part is not None}
    if len(given) != len(parts):
        raise _wrong(text, f"{value!r} is no policy")
    return _tolerance(text, given)


def _tolerance(text: str, numbers: Mapping[str, str]) -> Tolerance:
    try:
        axis = int(numbers["unordered"]) if "unordered" in numbers else None
        return Tolerance(float(numbers.get("rtol", 0.0)), float(numbers.get("atol", 0.0)), axis)
    except (ValueError, InvalidTarget) as error:
        raise _wrong(text, "the number cannot be read, or is not finite") from error


def policies_for(chosen: Policies, outputs: Sequence[str], *, is_strict: bool = True) -> dict[str, Tolerance | str]:
    """Return what holds for these outputs; an output that is none of them is InvalidUsage, or left out."""
    found: dict[str, Tolerance | str] = {}
    for key, value in chosen.items():
        try:
            if key != EVERY:
                region = region_of(key, outputs)
                found[key] = value
                if region is not None and (value in QUALITIES or getattr(value, "unordered", None) is not None):
                    raise InvalidTarget("declare", f"{value} holds for a whole output, and not for a slice")
        except InvalidTarget as error:
            if is_strict:
                why = error.problem.replace("tolerances name", "it names").replace("in tolerances ", "in ")
                raise _wrong(key, why, outputs) from error
    if EVERY in chosen:
        found |= {name: chosen[EVERY] for name in outputs if name not in found}
    return found


def _wrong(text: str, why: str, outputs: Sequence[str] = ()) -> InvalidUsage:
    there = f"; outputs: {', '.join(outputs)}" if outputs else ""
    named = ", ".join((*POLICIES, *QUALITIES))
    return InvalidUsage(
        f"--policy {text!r}: {why}{there}; policies: {named}; or numbers: logits=1e-3 (atol), "
        "scores=rtol:1e-3,atol:1e-4, 'boxes[..., :4]=0.5', boxes=atol:0.5,unordered:1 (items in any order along axis "
        "1); without a name it holds for every output"
    )
