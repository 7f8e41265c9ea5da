"""Tell whether this Python has what pyproject.toml asks for; exit 0 when it does, 1 with what is missing.

    python scripts/requirements.py [--here] [--quiet] NAME...

NAME is an extra of pyproject.toml, or `torch` for torch alone. `--here`: fuzzparity itself must be installed from this
checkout, and everything that the pins name must be the pinned release. Standard library and pip's own parts only.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

try:
    from packaging.requirements import Requirement
except ImportError:
    from pip._vendor.packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent


def installed(name: str) -> str:
    """Return the installed release of a distribution, or an empty text."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def wanted(extras: list[str]) -> Iterator[Requirement]:
    """Yield the requirements of fuzzparity with the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if extras == ["torch"]:
        yield next(Requirement(line) for line in project["optional-dependencies"]["cpu"] if line.startswith("torch"))
        return
    groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    for requirement in (Requirement(line) for group in groups for line in group):
        if requirement.marker is None or requirement.marker.evaluate():
            yield requirement


def pins() -> dict[str, Requirement]:
    """Return the tested releases by name."""
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    found = (Requirement(line) for line in lines if line and not line.startswith("#"))
    return {pin.name.lower().replace("_", "-"): pin for pin in found}


def problems(extras: list[str], is_here: bool) -> Iterator[str]:
    """Yield a line for each thing that is missing or of another release."""
    pinned = pins() if is_here or extras == ["torch"] else {}
    for requirement in wanted(extras):
        release = installed(requirement.name)
        pin = pinned.get(requirement.name.lower().replace("_", "-"), requirement)
        if not release:
            yield f"{requirement.name} is not installed"
        elif not (requirement.specifier.contains(release, True) and pin.specifier.contains(release, True)):
            yield f"{requirement.name} is {release}, wanted {pin}"
    if is_here and not is_editable_here():
        yield f"fuzzparity is not installed from {ROOT}"


def is_editable_here() -> bool:
    """Tell whether the installed fuzzparity is this checkout."""
    try:
        found = importlib.metadata.distribution("fuzzparity")
    except importlib.metadata.PackageNotFoundError:
        return False
    return ROOT.as_uri() in (found.read_text("direct_url.json") or "")


def main() -> int:
    """Print what is missing, one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    if not (3, 11) <= sys.version_info < (3, 14):
        print(f"Python is {sys.version.split()[0]}, wanted 3.11, 3.12 or 3.13")
        return 1
    lines = list(problems(options.extras, options.here))
    if not options.quiet:
        print(*(f"  {sys.prefix}: {line}" for line in lines), sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
