"""Shared by all commands: the group, the options of a target, and how an answer is shown or written.

The idea: nothing heavy is imported before a command is chosen, and torch and ORT never in this process; a command's
body lives in `campaign/` or `commands/`, its words in `report/`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fuzzparity import __version__
from fuzzparity.errors import InvalidUsage

if TYPE_CHECKING:
    from fuzzparity.campaign.options import TargetOptions
    from fuzzparity.report.live import Live

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def example(*lines: str) -> str:
    """Return the example that ends a command's help; click keeps lines after a backspace mark as they are."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


class Commands(click.Group):
    """List commands in the order of their use, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of definition."""
        return list(self.commands)


@click.group(
    cls=Commands,
    context_settings=_CONTEXT,
    epilog=example(
        "fuzzparity fuzz corpora/digits --time 2m",
        "fuzzparity finding ls digits",
        "fuzzparity replay crashes/numeric-1a2b3c4d",
    ),
)
@click.version_option(__version__, prog_name="fuzzparity")
def cli() -> None:
    """Fuzz the parity of a PyTorch model and its ONNX Runtime twin."""


known_option = click.option(
    "--known",
    multiple=True,
    metavar="FILE",
    help="Known issues, besides known_issues.toml beside the target; repeatable.",
)


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that opens a target."""
    for option in reversed(
        (
            click.option(
                "--torch", "torch_file", metavar="FILE", help="A .pt2 or TorchScript program, instead of TARGET."
            ),
            click.option("--onnx", metavar="FILE", help="The ONNX twin, instead of exporting."),
            click.option(
                "--seeds",
                multiple=True,
                metavar="PATH",
                help="Real inputs: files of arrays, pictures, sounds, or folders.",
            ),
            click.option(
                "--provider",
                "providers",
                multiple=True,
                metavar="NAME",
                help="ORT execution provider; repeat in order.",
            ),
            click.option(
                "--provider-option",
                "provider_options",
                multiple=True,
                metavar="EP.KEY=VALUE",
                help="Option of a provider.",
            ),
            click.option(
                "--dtype",
                "dtypes",
                multiple=True,
                metavar="INPUT=DTYPE",
                help="One of the builds that the target's dtypes ask for; cast and exported again.",
            ),
            click.option("--device", default="cpu", show_default=True, help="Where both sides run: cpu or cuda:N."),
            click.option("--corpus", type=click.Path(path_type=Path), metavar="FILE", help="The corpus database."),
            click.option("--crashes", type=click.Path(path_type=Path), metavar="DIR", help="Where reproducers go."),
            known_option,
            click.option("--debug", is_flag=True, help="Show tracebacks and the log of the target's process."),
        )
    ):
        command = option(command)
    return command


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add TARGET and the options that go with it."""
    return click.argument("target", required=False, default="")(common_options(command))


json_option = click.option(
    "--json", "json_to", metavar="FILE|-", help="Write one JSON object; with - progress goes to stderr."
)


def target_of(given: dict[str, Any]) -> TargetOptions:
    """Take the options of a target out of what click gives; InvalidUsage when no target, or two, are named."""
    from fuzzparity.campaign.options import TargetOptions
    from fuzzparity.known import read_ledger

    names = "target onnx torch_file seeds providers provider_options device dtypes corpus crashes known debug".split()  # noqa: SIM905
    options = TargetOptions(**{name: given.pop(name) for name in names})
    if not options.target and not options.torch_file:
        raise InvalidUsage(
            "no target was given: name a folder, a file.py[:name] or module:name, or use --torch and --onnx"
        )
    read_ledger((), options.known)  # one that is wrong is told before anything is loaded
    if options.target and options.torch_file:
        raise InvalidUsage(f"both a target ({options.target}) and --torch {options.torch_file} were given; give one")
    return options


def write_json(where: str, value: Any) -> None:
    """Write one JSON object to a file, or to stdout for "-"."""
    text = json.dumps(value, indent=2, allow_nan=False)
    if where == "-":
        print(text, flush=True)
        return
    try:
        Path(where).write_text(text + "\n")
    except OSError as error:
        raise _unwritable(where, error) from error


def _unwritable(where: str, error: OSError) -> InvalidUsage:
    return InvalidUsage(
        f"--json {where} cannot be written: {error.strerror}; give a file in a folder that exists, or -"
    )


def existing(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return paths that are all there; InvalidUsage names the first that is not, before anything is loaded."""
    for path in paths:
        if not Path(path).exists():
            raise InvalidUsage(f"there is no file or folder {path}")
    return paths


def path_text(path: Path | None) -> str | None:
    """Return a path as text, None as it is."""
    return str(path) if path is not None else None


def command_line() -> str:
    """Return the command line of this process without the program."""
    return " ".join(sys.argv[1:])


def plain(value: Any) -> Any:
    """Return records as JSON data."""
    from fuzzparity.verdict import as_plain

    return as_plain(value)


def live_for(json_to: str | None) -> Live:
    """Return what shows progress: on stderr when JSON goes to stdout. `json_to` is tried before anything runs."""
    if json_to is not None and json_to != "-":
        is_there = os.path.lexists(json_to)
        try:
            with open(json_to, "a"):  # an answer that cannot be written is told before hours of work
                pass
            if not is_there:
                os.unlink(json_to)  # an empty file is no answer, should the command fail
        except OSError as error:
            raise _unwritable(json_to, error) from error
    from fuzzparity.report.live import Live

    return Live(to_stderr=json_to == "-")


def show(renderable: Any) -> None:
    """Print an answer."""
    from fuzzparity.report.live import console

    console().print(renderable)


def output(json_to: str | None, value: Callable[[], Any], renderable: Callable[[], Any]) -> None:
    """Write JSON where it is asked for, else show."""
    if json_to:
        write_json(json_to, value())
    else:
        show(renderable())
