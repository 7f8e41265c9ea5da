"""Campaigns as a user runs them: the command line in a process of its own, on small targets; nothing is mocked."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_MARK = "FUZZPARITY_TEST_MARK"
_DEAD = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)

# y = 2x as a given ONNX file: no exporter runs, so a campaign starts in the time that torch takes to import
GIVEN = """
    import ctypes
    import os
    import signal
    import time

    import numpy as np
    import torch
    from onnx import TensorProto, helper

    from fuzzparity import Target


    def doubling(factor=2.0):
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "w"]) for name in "xy")
        factor = helper.make_tensor("factor", TensorProto.FLOAT, [], [factor])
        graph = helper.make_graph([helper.make_node("Mul", ["x", "factor"], ["y"])], "doubling", [x], [y], [factor])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
"""

CLEAN = """
    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)}, onnx=doubling(), outputs=["y"])
"""

# wrong by a third above 3, one column too many for an odd width, refused when there are many rows
FAULTY = """
    class Net(torch.nn.Module):
        def forward(self, x):
            if x.shape[0] > 40:
                raise ValueError("too many rows")
            y = torch.where(x > 3, x * 3, x * 2)
            return torch.cat([y, y[:, :1]], 1) if x.shape[1] % 2 and x.shape[1] > 1 else y


    def target():
        return Target(module=Net(), inputs={"x": torch.ones(2, 4)}, onnx=doubling(), outputs=["y"])
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """Hold how a command ended and what it said."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    folder: Path

    @property
    def answer(self) -> dict[str, Any]:
        """Return the JSON object of `--json -`, or of the file out.json."""
        text = self.stdout if self.stdout.startswith("{") else (self.folder / "out.json").read_text()
        answer: dict[str, Any] = json.loads(text)
        return answer

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Return the findings of the answer."""
        findings: list[dict[str, Any]] = self.answer["findings"]
        return findings

    def of(self, kind: str, said: str = "") -> list[dict[str, Any]]:
        """Return the findings of a kind whose headline says something."""
        return [f for f in self.findings if f["kind"] == kind and said in f["headline"]]


def write_target(folder: Path, *parts: str, name: str = "subject.py") -> Path:
    """Write a target of several indented parts and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("\n\n".join(textwrap.dedent(part).strip("\n") for part in parts) + "\n")
    return path


def command(*arguments: object) -> list[str]:
    """Return the command line of fuzzparity under this interpreter."""
    return [sys.executable, "-m", "fuzzparity", *map(str, arguments)]


def run(folder: Path, *arguments: object, timeout: float = 240.0) -> Ended:
    """Run a command in a folder to its end; nothing of it may be left running."""
    running = Running(folder, *arguments)
    try:
        ended = running.wait(timeout)
        assert running.left(15.0) == [], "processes were left"
        return ended
    finally:
        running.end()


def fuzz(folder: Path, *arguments: object, target: str = "subject.py", timeout: float = 240.0) -> Ended:
    """Run a campaign on the target in a folder, its answer in out.json."""
    given = arguments if "--json" in arguments else (*arguments, "--json", "out.json")
    return run(folder, "fuzz", target, *given, timeout=timeout)


class Running:
    """Hold a command that runs, and find every process that came of it by a mark in its environment."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        """Start the command."""
        self.folder = folder
        self._mark = uuid.uuid4().hex
        self._started = time.monotonic()
        self._out, self._err = (folder / f".{name}-{self._mark}" for name in ("stdout", "stderr"))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command(*arguments),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, _MARK: self._mark, "COLUMNS": "200"},
            )

    def wait(self, timeout: float) -> Ended:
        """Wait for the end of the command itself."""
        code = self.process.wait(timeout)
        seconds = time.monotonic() - self._started
        return Ended(code, self._out.read_text(), self._err.read_text(), seconds, self.folder)

    def said(self) -> str:
        """Return what the command has printed so far."""
        return self._out.read_text() + self._err.read_text()

    def wait_for(self, text: str, timeout: float = 120.0) -> None:
        """Wait until the command has printed a text."""
        deadline = time.monotonic() + timeout
        while text not in self.said():
            assert self.process.poll() is None, f"ended before it said {text!r}:\n{self.said()}"
            assert time.monotonic() < deadline, f"never said {text!r}:\n{self.said()}"
            time.sleep(0.05)

    def processes(self) -> list[psutil.Process]:
        """Return the living processes that came of the command, itself included."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == self._mark and process.status() not in _DEAD:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def loaders(self) -> list[psutil.Process]:
        """Return the loader: the child of the command that runs fuzzparity.work.loader."""
        return [p for p in self.processes() if p.ppid() == self.process.pid]

    def workers(self) -> list[psutil.Process]:
        """Return the children of the loader."""
        loaders = {loader.pid for loader in self.loaders()}
        return [p for p in self.processes() if p.ppid() in loaders]

    def left(self, within_seconds: float) -> list[psutil.Process]:
        """Return what is still there after at most `within_seconds`."""
        deadline = time.monotonic() + within_seconds
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def end(self) -> None:
        """Kill whatever is left."""
        for process in self.processes():
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                pass
        self.process.wait(30)


def corpus_of(folder: Path, name: str = "subject") -> Path:
    """Return where the corpus of a target outside of a project lies."""
    return folder / ".fuzzparity" / name / "corpus.sqlite"


def rows(database: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query; the database is opened for reading only."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=20.0)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
