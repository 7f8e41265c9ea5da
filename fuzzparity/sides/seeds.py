"""Seeds: validation data as a stream of cases, from the target's own `seeds`, its `read`, files and folders.

The idea: one source after the other is read, and nothing of it is kept, so a set of any size passes in flat memory.
What cannot be read is named and skipped, or is an error where it was named itself. Every case has a place in the
stream, so that a reader that died goes on behind the file that killed it.
"""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzzparity.case import Case
from fuzzparity.contract import Contract
from fuzzparity.errors import FuzzparityError, InvalidCase, InvalidTarget
from fuzzparity.sides.fitting import Fitting
from fuzzparity.sides.load import LoadedTarget
from fuzzparity.sides.media import MediaReader, NeedsRead, is_media
from fuzzparity.sides.seed_files import Item, is_seed_file, is_test_set, read_items

_TOLD = 3  # reasons in the message of a folder of which nothing could be read


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Say where a case stands in the stream: which source (a file), which case of it."""

    source: int
    case: int


@dataclass(frozen=True, slots=True)
class Found:
    """Hold one case of the stream, where it stands, and what it is called."""

    place: Place
    where: str
    case: Case


@dataclass(slots=True)
class _Folder:
    """Keep what a folder came to: cases read, what was passed over by suffix, what was refused alike."""

    read: int = 0
    problems: list[str] = field(default_factory=list)
    refused: dict[str, list[NeedsRead]] = field(default_factory=dict)
    passed_over: Counter[str] = field(default_factory=Counter)


class SeedReader:
    """Stream the cases of a target's data. `skipped`: what could not be read, a line each."""

    def __init__(
        self,
        loaded: LoadedTarget,
        contract: Contract | None = None,
        *,
        opening: Callable[[int, str], None] = lambda source, where: None,
    ) -> None:
        """Bind to a target; `opening(source, where)` is told of every source before it is read."""
        self._target = loaded.target
        self._seed = loaded.seed
        self._fitting = Fitting(loaded.target, loaded.seed, contract)
        self._media = MediaReader(loaded.seed, self._fitting.contract)
        self._onnx_names = {part.onnx_name: part.name for part in self._fitting.contract.inputs if part.onnx_name}
        self._opening = opening
        self._source = -1
        self._passed_over: Counter[str] = Counter()
        self._cut = ""
        self.skipped: list[str] = []

    @property
    def notes(self) -> list[str]:
        """Return what was done to make the data fit, and what was passed over, a line each."""
        lines = [*self._fitting.notes, *([self._cut] if self._cut else [])]
        if self._passed_over:
            kinds = ", ".join(f"{suffix or 'no suffix'} ({n})" for suffix, n in sorted(self._passed_over.items()))
            lines.append(f"files of no known kind were passed over: {kinds}")
        return lines

    def read(
        self,
        paths: Iterable[str | Path] = (),
        *,
        own: bool = True,
        after: Place | None = None,
        most_own: int | None = None,
    ) -> Iterator[Found]:
        """Yield the cases of the target's own seeds (unless `own` is false), then of files and folders.

        `most_own`: items of the target's seeds() that are taken; a loader that goes round for ever has no end.

        `after`: the place of the last case that is not wanted again. A file or folder of which nothing can be read is
        an `InvalidCase`.
        """
        self._source = -1
        if own and self._target.seeds is not None:
            yield from self._after(after, "target.seeds", lambda: self._own(self._target.seeds, most_own))
        for path in map(Path, paths):
            if path.is_dir() and not is_test_set(path):
                yield from self._folder(path, after)
            else:
                yield from self._after(after, str(path), lambda path=path: self._file(path))  # type: ignore[misc]

    def _after(
        self, after: Place | None, where: str, cases: Callable[[], Iterator[tuple[str, Case]]]
    ) -> Iterator[Found]:
        """Number a source and its cases; one that was done before is not read again."""
        self._source += 1
        source = self._source
        if after is not None and source < after.source:
            return
        self._opening(source, where)
        for number, (name, case) in enumerate(cases()):
            place = Place(source, number)
            if after is None or place > after:
                yield Found(place, name, case)

    def _own(self, seeds: Any, most: int | None) -> Iterator[tuple[str, Case]]:
        try:
            for index, item in enumerate(seeds()):
                if index == most:
                    self._cut = (
                        f"seeds() goes on behind its first {most:,} items; those are what the campaign starts from"
                    )
                    break
                where = f"target.seeds[{index}]"
                try:
                    yield from ((where, case) for case in self._fitting.cases(item))
                except InvalidCase as error:
                    self.skipped.append(f"{where}: {error}")
        except FuzzparityError:
            raise
        except (Exception, SystemExit) as error:
            raise InvalidTarget(
                "seeds",
                f"the target's seeds() raised {_said(error)}",
                "give a callable that returns an iterator of dicts, input name -> tensor",
                traceback.format_exc(),
            ) from None

    def _folder(self, folder: Path, after: Place | None) -> Iterator[Found]:
        state = _Folder()
        begun = self._source
        for path in _files(folder):
            if self._target.read is None and not (is_seed_file(path) or is_media(path) or is_test_set(path)):
                state.passed_over[path.suffix.lower()] += 1
                continue
            for found in self._after(after, str(path), lambda path=path: self._tolerant(path, state)):  # type: ignore[misc]
                state.read += 1
                yield found
        self._close(folder, state, was_done=after is not None and after.source > begun)

    def _tolerant(self, path: Path, state: _Folder) -> Iterator[tuple[str, Case]]:
        """Yield the cases of one file of a folder, and note what is wrong with it instead of raising."""
        try:
            yield from self._file(path)
        except NeedsRead as error:
            state.refused.setdefault(error.reason, []).append(error)
        except InvalidCase as error:
            self.skipped.append(str(error))
            state.problems.append(str(error))

    def _close(self, folder: Path, state: _Folder, *, was_done: bool) -> None:
        """Tell what a folder came to; InvalidCase when it came to nothing."""
        groups = sorted(state.refused.values(), key=len, reverse=True)
        if not state.read and not was_done:
            alike = sum(map(len, groups))
            if alike > len(state.problems):
                first = groups[0][0]
                others = f" (and {alike - 1} more file(s) of the folder)" if alike > 1 else ""
                raise InvalidCase(str(NeedsRead(first.where + others, first.reason, first.advice)))
            if state.problems:
                more = alike + len(state.problems) - _TOLD
                told = "; ".join(state.problems[:_TOLD]) + (f"; and {more} more" if more > 0 else "")
                raise InvalidCase(f"nothing could be read from {folder}: {told}")
            there = f"; it holds {', '.join(sorted(state.passed_over))} files" if state.passed_over else ""
            raise InvalidCase(f"no seed file in {folder}{there}; the target's read says how to read other files")
        for group in groups:
            like_it = f" and {len(group) - 1} more like it" if len(group) > 1 else ""
            self.skipped.append(
                f"{group[0].where}{like_it}: {group[0].reason}; the target's read says how to read them"
            )
        self._passed_over += state.passed_over

    def _file(self, path: Path) -> Iterator[tuple[str, Case]]:
        """Yield the cases in one file; `InvalidCase` names the file."""
        where = str(path)
        if self._target.read is not None and path.exists() and not is_test_set(path):
            yield from _numbered(where, self._cases(where, self._by_read(path)))
        elif is_media(path) and path.is_file():
            yield from _numbered(where, self._cases(where, iter([self._media.item(path)])))
        else:
            items = read_items(path, list(dict.fromkeys((*self._seed.inputs, *self._onnx_names))))
            by_onnx = is_test_set(path)
            if by_onnx:
                items = map(self._renamed, items)
            yield from _numbered(where, self._cases(where, items, divide=not by_onnx, by_onnx=by_onnx))

    def _renamed(self, item: Item) -> Item:
        """Return an item of ONNX test data under the target's names of its inputs."""
        if isinstance(item, tuple):
            return item
        return {self._onnx_names.get(name, name): value for name, value in item.items()}

    def _cases(
        self, where: str, items: Iterator[Item], *, divide: bool = False, by_onnx: bool = False
    ) -> Iterator[Case]:
        try:
            for item in items:
                yield from self._fitting.cases(item, divide=divide, by_onnx=by_onnx)
        except NeedsRead:
            raise
        except InvalidCase as error:
            text = str(error)
            raise InvalidCase(text if text.startswith(where) else f"{where}: {text}") from None

    def _by_read(self, path: Path) -> Iterator[Item]:
        """Yield what the target's `read` makes of a file; whatever it raises is about that file."""
        assert self._target.read is not None
        count = 0
        try:
            found: Any = self._target.read(str(path))
            items = [found] if isinstance(found, Mapping) else (found if found is not None else ())
            for item in items:
                if not isinstance(item, Mapping):
                    raise InvalidCase(f"read gave {type(item).__name__}; wanted a dict, or an iterator of dicts")
                count += 1
                yield item
        except FuzzparityError:
            raise
        except (Exception, SystemExit) as error:
            raise InvalidCase(f"{path}: the target's read raised {_said(error)}") from None
        if not count:
            raise InvalidCase(f"{path}: the target's read returned nothing for it")


def _numbered(where: str, cases: Iterator[Case]) -> Iterator[tuple[str, Case]]:
    """Name the cases of a file: by the file alone where there is one, with its number where there are more.

    An error is raised behind the cases that were read before it.
    """
    held: Case | None = None
    problem: InvalidCase | None = None
    number = 0
    while True:
        try:
            case = next(cases, None)
        except InvalidCase as error:
            case, problem = None, error
        if held is not None:
            yield (where if case is None and number == 0 else f"{where}[{number}]"), held
            number += 1
        held = case
        if case is None:
            break
    if problem is None and held is None and number == 0:
        problem = InvalidCase(f"{where} holds no inputs")
    if problem is not None:
        raise problem


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and of those in it, in the order of their names; ONNX test sets as one; no hidden.

    Links are followed, each folder once.
    """
    yield from _walk(folder, {os.path.realpath(folder)})


def _walk(folder: Path, seen: set[str]) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise InvalidCase(f"{folder} cannot be listed: {error.strerror}") from None
    for entry in entries:
        path = Path(entry.path)
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            yield path
        elif entry.is_dir():
            real = os.path.realpath(path)
            if real in seen:
                continue
            seen.add(real)
            if is_test_set(path):
                yield path
            else:
                yield from _walk(path, seen)


def _said(error: BaseException) -> str:
    """Return class, message and place of what the user's code raised."""
    text = str(error).strip().splitlines()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    own = [frame for frame in frames if "-packages" not in frame.filename] or frames
    place = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return f"{type(error).__name__}{': ' + text[0][:300] if text else ''}{place}"
