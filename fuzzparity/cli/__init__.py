"""Command line: arguments in, records out to `report`, exit codes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from fuzzparity.cli import reading, reporting, running, tracing
from fuzzparity.cli.base import cli
from fuzzparity.errors import FuzzparityError, InvalidTarget

__all__ = ["cli", "main", "reading", "reporting", "running", "tracing"]

_INTERNAL_FAULT = 3


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; every error of ours is one clear message and its exit code."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `fuzzparity ... | head` ends quietly
    debug = "--debug" in (arguments if arguments is not None else sys.argv)
    try:
        cli.main(args=arguments, prog_name="fuzzparity", standalone_mode=False)
        code = 0
    except click.exceptions.Exit as exit_:
        code = exit_.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt) as error:
        print("stopped", file=sys.stderr)
        code = 128 + _signal_of(error)
    except FuzzparityError as error:
        print(f"fuzzparity: {error}", file=sys.stderr)
        if debug and isinstance(error, InvalidTarget) and error.detail:
            print(error.detail, file=sys.stderr)
        code = error.exit_code
    except Exception as error:
        if debug:
            raise
        print(f"fuzzparity: internal fault: {type(error).__name__}: {error} (--debug shows more)", file=sys.stderr)
        code = _INTERNAL_FAULT
    sys.exit(code)


def _signal_of(error: BaseException) -> int:
    """Return the signal that stopped a command: click wraps the interrupt, which carries the number."""
    cause = error.__cause__ or error
    return int(cause.args[0]) if isinstance(cause, KeyboardInterrupt) and cause.args else int(signal.SIGINT)
