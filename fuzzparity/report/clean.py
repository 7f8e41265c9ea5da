"""Clean: make texts of unknown origin fit for a terminal, a source file, a public issue.

The idea: names and messages come from models, databases and folders of strangers. Control and invisible characters
are spelled out, absolute directories are cut off, and nothing here ever decides what a text means.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path
from typing import Any

# roots that people and engines build under; a name such as "/head/Conv" of an ONNX node is no directory
_ROOTS = (
    "home",
    "root",
    "Users",
    "usr",
    "opt",
    "mnt",
    "media",
    "tmp",
    "var",
    "private",
    "srv",
    "data",
    "work",
    "workspace",
    "workspaces",
    "builds",
    "scratch",
    "lib",
    "onnxruntime_src",
    "build",
    "content",
    "kaggle",
)


@functools.cache
def _directories() -> re.Pattern[str]:
    """Return what an absolute directory looks like: under a known root, or one of this process's own."""
    own = {Path(place).parts[1] for place in (os.path.expanduser("~"), sys.prefix) if len(Path(place).parts) > 1}
    roots = "|".join(re.escape(root) for root in sorted({*_ROOTS, *own}))
    return re.compile(rf"(?<![\w.:/~-])(?:~|/(?:{roots})|[A-Za-z]:)(?:[/\\][\w.+@-]+)*[/\\](?=[\w.+@-])")


_LIBRARY = re.compile(r"\S*[/\\](?:site|dist)-packages[/\\]")


def printable(text: object, limit: int = 2000) -> str:
    """Return one line of text in which everything invisible is spelled out."""
    line = "".join(_spell(character) for character in str(text)[:limit])
    return line + ("..." if len(str(text)) > limit else "")


def _spell(character: str) -> str:
    if character in "\n\t":
        return " "
    return character if character.isprintable() else ascii(character)[1:-1]


def without_paths(text: str, folder: str = "") -> str:
    """Return a text without absolute directories; files under `folder` keep their path relative to it."""
    if folder.strip("/"):
        text = text.replace(folder.rstrip("/") + "/", "").replace(folder.rstrip("/"), ".")
    return _directories().sub("", _LIBRARY.sub("", text))


def plain_without_paths(value: Any, folder: str = "") -> Any:
    """Return plain JSON data with `without_paths` applied to every text in it, keys included."""
    if isinstance(value, str):
        return without_paths(value, folder)
    if isinstance(value, dict):
        return {without_paths(str(key), folder): plain_without_paths(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_without_paths(item, folder) for item in value]
    return value


def fenced(text: str, language: str = "") -> str:
    """Return a Markdown code block whose fence no line of the text can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    body = "\n".join(printable(line, 4000) for line in text.splitlines())
    return f"{fence}{language}\n{body}\n{fence}"


def inline_markdown(text: object) -> str:
    """Return a text for a line of Markdown: no markup, no links, no mentions or HTML of its own."""
    escaped = re.sub(r"([\\`*_\[\]<>#|~!])", r"\\\1", printable(text))
    return re.sub(r"@(?=\w)", "@\u200b", escaped)
