"""The repository as a newcomer meets it: what lies at the top, what README promises, what must not be in a file."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import click
import pytest

import fuzzparity
from fuzzparity.cli import cli

ROOT = Path(__file__).resolve().parent.parent
TOP_LEVEL = {
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "corpora",
    "crashes",
    "fuzzparity",
    "pyproject.toml",
    "scripts",
    "tests",
}
README = (ROOT / "README.md").read_text()


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def readme_commands() -> list[list[str]]:
    """Return every line of README's shell blocks that calls fuzzparity, as words."""
    blocks = re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("fuzzparity ")]


def test_the_top_level_holds_nothing_else() -> None:
    names = {path.relative_to(ROOT).parts[0] for path in tracked_files()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_the_files_of_a_project_are_there() -> None:
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"):
        assert (ROOT / name).read_text().strip(), name
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_changelog_names_the_version() -> None:
    assert f"## {fuzzparity.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_no_file_names_a_path_of_someones_machine() -> None:
    anyones = re.compile(rb"(?:/home/|/Users/|/root/|/work/)[A-Za-z0-9_.-]+")
    this_machines = re.compile(b"|".join(re.escape(bytes(place)) + b"/" for place in (Path.home(), ROOT)))
    for path in tracked_files():
        is_test = path.is_relative_to(ROOT / "tests")  # made-up paths are what some tests are about
        content = path.read_bytes()
        is_readable = b"\0" not in content and path != Path(__file__).resolve()
        found = is_readable and (this_machines if is_test else anyones).search(content)
        assert not found, f"{path.relative_to(ROOT)} holds {found[0].decode() if found else ''}"


def test_scripts_can_be_run() -> None:
    names = ("fuzz", "test", "check", "bench", "fetch", "setup")
    for name in (*(f"scripts/{name}" for name in names), ".ci/run"):
        assert (ROOT / name).stat().st_mode & 0o111, name
        subprocess.run(["bash", "-n", str(ROOT / name)], check=True)


def test_pins_cover_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for name in ("cpu", "corpora", "test") for line in extras[name])]
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / ".ci/constraints.txt").read_text(), re.MULTILINE))
    assert {re.match(r"[\w-]+", line)[0].lower() for line in wanted} <= set(pins)  # type: ignore[index]


def test_every_command_stands_in_readme() -> None:
    shown = {words[1] for words in readme_commands() if len(words) > 1}
    assert {name for name, command in cli.commands.items() if not command.hidden} <= shown


@pytest.mark.parametrize("words", readme_commands(), ids=" ".join)
def test_a_command_of_readme_parses(words: list[str]) -> None:
    command: click.Command | None = cli
    rest = words[1:]
    while isinstance(command, click.Group) and rest:
        _, command, rest = command.resolve_command(click.Context(command), rest)
    assert command is not None
    assert command.make_context(words[1], rest) is not None  # raises UsageError where an option or argument is wrong


def test_every_command_has_help_with_a_line_to_copy() -> None:
    for name, command in cli.commands.items():
        text = command.get_help(click.Context(command, info_name=name))
        assert f"fuzzparity {name} " in text, f"the help of {name} shows no use of it"
        leaves = command.commands.values() if isinstance(command, click.Group) else [command]
        assert all(leaf.help for leaf in leaves), f"a command of {name} has no help"
