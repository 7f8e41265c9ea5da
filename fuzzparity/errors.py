"""Errors that fuzzparity raises: one root, few leaves, each with the exit code its state deserves.

What the *target* does wrong is data (`Execution.status`), never an exception through the engine. A message says what
was given, what was wanted, and what to do.
"""

from __future__ import annotations


class FuzzparityError(Exception):
    """Stand at the root of every error that fuzzparity raises on purpose."""

    exit_code = 3


class InvalidUsage(FuzzparityError):
    """Report a command line, path or option that cannot be meant."""

    exit_code = 2


class InvalidTarget(FuzzparityError):
    """Report a target that is wrong: its stage, what was given, what was wanted, what to do."""

    exit_code = 2

    def __init__(self, stage: str, problem: str, advice: str = "", detail: str = "") -> None:
        """Build the message; `detail` (a traceback) is shown with `--debug` only."""
        super().__init__(stage, problem, advice, detail)
        self.stage = stage
        self.problem = problem
        self.advice = advice
        self.detail = detail

    def __reduce__(self) -> tuple[type[InvalidTarget], tuple[str, str, str, str]]:
        """Travel between processes with all four fields."""
        return InvalidTarget, (self.stage, self.problem, self.advice, self.detail)

    def __str__(self) -> str:
        """Say stage, problem and advice as one paragraph."""
        advice = f"\n  What to do: {self.advice}" if self.advice else ""
        return f"target is wrong at stage '{self.stage}': {self.problem}{advice}"


class InvalidCase(FuzzparityError):
    """Report inputs that do not make a case of this target (names, dtypes, files)."""

    exit_code = 2


class CorpusError(FuzzparityError):
    """Report a corpus database that cannot be opened, read or trusted."""

    exit_code = 2


class NotReproduced(FuzzparityError):
    """Report a starting case that does not show what it was said to show."""

    exit_code = 125


class CannotRunHere(FuzzparityError):
    """Report a reproducer whose environment is not this one."""

    exit_code = 125


class WorkerLost(FuzzparityError):
    """Report a process of ours that died and could not be replaced."""

    exit_code = 3
