"""Backend for the memory tool of Anthropic (`memory_20250818`): files under `/memories` whose texts
are episodes, so that `kb.memory().search` finds what they say.

A file is the facts `memory_file(PATH, NUMBER, EPISODE, BYTES, BLANK)`, one for each part of its
text. A part is the text of an episode, or, as an episode has some visible character, the blank text
BLANK without one. The passages of a part are facts `said(PATH, TEXT, TIME)` with the episode as
evidence. A change of a file is one transaction.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from kbcore_client import Conflict, KBError, KnowledgeBase, NotFound
from kbcore_client.adapters.long_texts import PART_CHARS, quoted

if TYPE_CHECKING:
    _Tool = object
else:
    try:
        from anthropic.lib.tools import BetaAbstractMemoryTool as _Tool
    except ImportError:  # the class works without the package, or with a version without the tool
        _Tool = object

FILE, SAID = "memory_file", "said"
ROOT = "/memories"

MAX_PATH_CHARS = 256
"""Characters of a path: it is the speaker of an episode."""

MAX_FILE_CHARS = 500_000
"""Characters of a file."""

MAX_VIEW_CHARS = 100_000
"""Characters of a file in the result of a command; `view_range` shows others."""

MAX_LISTED = 1000
"""Files and directories in the result of a command."""

MAX_PLACES = 100
"""Places of a text that are named if it must be unique."""

PASSAGE_CHARS = 800
"""Characters of a passage that a search finds: about 200 tokens."""

COMMANDS: Mapping[str, Mapping[str, type]] = {
    "view": {"path": str, "view_range": list},
    "create": {"path": str, "file_text": str},
    "str_replace": {"path": str, "old_str": str, "new_str": str},
    "insert": {"path": str, "insert_line": int, "insert_text": str},
    "delete": {"path": str},
    "rename": {"old_path": str, "new_path": str},
}
"""The arguments of each command, with their types."""

_OPTIONAL = frozenset(("view_range", "new_str"))
_TYPES = {str: "a text", int: "a whole number", list: "a list of two whole numbers"}
_ATTEMPTS = 10
_LEVELS = 2
_SNIPPET_LINES = 2
_TRAVERSAL = re.compile(r"\\|%(?:2e|2f|5c)|[\x00-\x1f\x7f]", re.IGNORECASE)


class _FilePart(NamedTuple):
    """A part of a file: its number, the id of its episode, its bytes, and its text if it is
    blank.
    """

    number: int
    episode: str
    size: int
    blank: str


_Files = dict[str, tuple[_FilePart, ...]]


class _Refused(Exception):
    """A command that cannot be carried out; the message is its result."""


class KBMemoryTool(_Tool):
    """Memory tool whose files are in a knowledge base.

    With the package `anthropic`, it is one of the `tools` of `client.beta.messages.tool_runner`.
    `handle` carries out the input of a `tool_use` block without it. Paths are under `/memories`,
    and any other one is refused. A file has at most MAX_FILE_CHARS characters. Of two changes of a
    file at the same time one is carried out, and the other one is refused.

    Earlier texts of a file stay as episodes, which are not found; `kb.purge(speaker=PATH)` removes
    a file with all its texts for good.
    """

    def __init__(self, kb: KnowledgeBase, **options: Any) -> None:
        super().__init__(**options)
        self._kb = kb

    def handle(self, command: Mapping[str, Any]) -> str:
        """Carry out a command, such as `{"command": "view", "path": "/memories"}`.

        The result is the text for the model, also that of an error. Arguments that the command does
        not have are named at its end.
        """
        try:
            return self._carried_out(command)
        except _Refused as refused:
            return str(refused)

    # ---- the commands as methods of BetaAbstractMemoryTool ----

    def view(self, command: Any) -> str:
        """Show a directory, or the lines of a file."""
        return self._answer("view", command)

    def create(self, command: Any) -> str:
        """Create a file."""
        return self._answer("create", command)

    def str_replace(self, command: Any) -> str:
        """Replace a text that a file has once."""
        return self._answer("str_replace", command)

    def insert(self, command: Any) -> str:
        """Insert lines after a line of a file; 0 is its beginning."""
        return self._answer("insert", command)

    def delete(self, command: Any) -> str:
        """Delete a file, or a directory with all its files."""
        return self._answer("delete", command)

    def rename(self, command: Any) -> str:
        """Rename a file or a directory."""
        return self._answer("rename", command)

    def clear_all_memory(self) -> str:
        """Delete all files."""
        try:
            self._change(ROOT, self._remove)
        except _Refused as refused:
            return _refusal(refused)
        return "All memory cleared"

    # ---- inside ----

    def _answer(self, name: str, command: Any) -> str:
        """Carry out a command of the package; raise its error for a command that is refused."""
        values = command if isinstance(command, Mapping) else command.model_dump(exclude_unset=True)
        try:
            return self._carried_out({**values, "command": name})
        except _Refused as refused:
            return _refusal(refused)

    def _carried_out(self, command: Mapping[str, Any]) -> str:
        name = str(command.get("command"))
        if name not in COMMANDS:
            raise _Refused(f"Error: The command must be one of {', '.join(COMMANDS)}")
        takes = COMMANDS[name]
        ignored = [key for key in command if key not in takes and key != "command"]
        values = {key: command[key] for key in takes if command.get(key) is not None}
        for key, kind in takes.items():
            if key not in values and key not in _OPTIONAL:
                raise _Refused(f"Error: The argument `{key}` is required")
            if key in values and type(values[key]) is not kind:
                raise _Refused(f"Error: The argument `{key}` must be {_TYPES[kind]}")
        for key in ("path", "old_path", "new_path"):
            if key in values:
                values[key] = _checked_path(values[key])
        try:
            text: str = getattr(self, f"_{name}")(**values)
        except KBError as error:
            raise _Refused(f"Error: {error.message}") from error
        return f"{text}\nIgnored arguments: {', '.join(ignored)}" if ignored else text

    def _view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        files = _files(self._kb)
        missing = f"The path {path} does not exist. Please provide a valid path."
        if path in files:
            try:
                return _numbered(path, _lines(_text(self._kb, files[path])), view_range)
            except NotFound:  # it was purged in between
                raise _Refused(missing) from None
        if path != ROOT and not _inside(path, files):
            raise _Refused(missing)
        return _listed(path, files)

    def _create(self, path: str, file_text: str) -> str:
        def change(kb: KnowledgeBase, files: _Files) -> None:
            if path == ROOT or path in files or _inside(path, files):
                raise _Refused(f"Error: File {path} already exists")
            _refuse_below_files(path, files)
            self._store(kb, path, file_text)

        self._change(path, change)
        return f"File created successfully at: {path}"

    def _str_replace(self, path: str, old_str: str, new_str: str = "") -> str:
        snippet = ""

        def change(kb: KnowledgeBase, files: _Files) -> None:
            nonlocal snippet
            if path not in files:
                raise _Refused(
                    f"Error: The path {path} does not exist. Please provide a valid path."
                )
            text = _text(kb, files[path])
            first = _only_place(path, text, old_str)
            new = text[:first] + new_str + text[first + len(old_str) :]
            self._replace(kb, path, files[path], new)
            snippet = _snippet(new, first, first + len(new_str))

        self._change(path, change)
        return f"The memory file has been edited.\n{snippet}"

    def _insert(self, path: str, insert_line: int, insert_text: str) -> str:
        def change(kb: KnowledgeBase, files: _Files) -> None:
            if path not in files:
                raise _Refused(f"Error: The path {path} does not exist")
            text = _text(kb, files[path])
            lines = _lines(text)
            if not 0 <= insert_line <= len(lines):
                raise _Refused(
                    f"Error: Invalid `insert_line` parameter: {insert_line}. It should be within "
                    f"the range of lines of the file: [0, {len(lines)}]"
                )
            is_last = insert_line == len(lines)
            ending = "\n" if (insert_text if is_last and not text else text).endswith("\n") else ""
            lines[insert_line:insert_line] = insert_text.removesuffix("\n").split("\n")
            self._replace(kb, path, files[path], "\n".join(lines) + ending)

        self._change(path, change)
        return f"The file {path} has been edited."

    def _delete(self, path: str) -> str:
        if path == ROOT:
            raise _Refused(f"Error: The directory {ROOT} cannot be deleted")

        def change(kb: KnowledgeBase, files: _Files) -> None:
            chosen = _at(path, files)
            if not chosen:
                raise _Refused(f"Error: The path {path} does not exist")
            self._remove(kb, chosen)

        self._change(path, change)
        return f"Successfully deleted {path}"

    def _rename(self, old_path: str, new_path: str) -> str:
        if ROOT in (old_path, new_path):
            raise _Refused(f"Error: The directory {ROOT} cannot be renamed or replaced")

        def change(kb: KnowledgeBase, files: _Files) -> None:
            chosen = _at(old_path, files)
            if not chosen:
                raise _Refused(f"Error: The path {old_path} does not exist")
            if new_path in files or _inside(new_path, files):
                raise _Refused(f"Error: The destination {new_path} already exists")
            if new_path.startswith(f"{old_path}/"):
                raise _Refused(f"Error: The path {new_path} is inside {old_path}")
            _refuse_below_files(new_path, files)
            for path in chosen:
                renamed = _checked_path(new_path + path.removeprefix(old_path))
                self._store(kb, renamed, *_dated_text(kb, chosen[path]))
            self._remove(kb, chosen)

        self._change(old_path, change)
        return f"Successfully renamed {old_path} to {new_path}"

    def _change(self, path: str, change: Callable[[KnowledgeBase, _Files], None]) -> None:
        """Carry out a change as a transaction, again if only other files change at the same
        time.
        """
        before: _Files | None = None
        for _ in range(_ATTEMPTS):
            try:
                with self._kb.transaction() as kb:
                    files = _files(kb)
                    if before is None:
                        before = _at(path, files)
                    elif before != _at(path, files):
                        break
                    change(kb, files)
                return
            except Conflict:
                continue
        raise _Refused(
            f"Error: The path {path} was changed by another command at the same time. View it and "
            "try again."
        )

    def _replace(
        self, kb: KnowledgeBase, path: str, parts: tuple[_FilePart, ...], text: str
    ) -> None:
        self._remove(kb, {path: parts})
        self._store(kb, path, text)

    def _remove(self, kb: KnowledgeBase, files: _Files) -> None:
        for path in files:
            kb.retract(FILE, [path, *["?_"] * 4])
            kb.retract(SAID, [path, "?_", "?_"])

    def _store(self, kb: KnowledgeBase, path: str, text: str, at: int | None = None) -> None:
        """Store a text as a file; `at` is its time in epoch milliseconds, by default now."""
        if len(text) > MAX_FILE_CHARS:
            raise _Refused(
                f"Error: The file {path} would have {len(text)} characters, and a file has at most "
                f"{MAX_FILE_CHARS}. Use several files."
            )
        at = time.time_ns() // 1_000_000 if at is None else at
        when = datetime.fromtimestamp(at / 1000, timezone.utc).isoformat(timespec="milliseconds")
        facts: dict[str, dict[str, Any]] = {}
        for number, (start, end) in enumerate(_pieces(text, PART_CHARS) if text else [(0, 0)]):
            part = text[start:end]
            episode = kb.add_episode(path, part, at=at).id if part.strip() else ""
            blank = "" if episode else part
            size = len(part.encode(errors="surrogatepass"))
            args = f"{quoted(path)}, {number}, {quoted(episode)}, {size}, {quoted(blank)}"
            atom = f"{FILE}({args})"
            facts[atom] = {"evidence": [{"episode": episode}]} if episode else {}
            for first, after in _pieces(part, PASSAGE_CHARS) if episode else ():
                words = part[first:after].strip()
                first += len(part[first:after]) - len(part[first:after].lstrip())
                if words:
                    atom = f"{SAID}({quoted(path)}, {quoted(words)}, {quoted(when)})"
                    span = {"episode": episode, "start": first, "end": first + len(words)}
                    facts.setdefault(atom, {"evidence": [span]})
        rows = [{"text": atom, **more} for atom, more in facts.items()]
        result = kb.call_tool("bulk_assert", {"facts": rows})
        if result.is_error:
            raise _Refused(f"Error: {json.loads(result.parts[0])['message']}")


def _refusal(refused: _Refused) -> str:
    """Raise the error of tools of the package `anthropic`, or return its text if the package has no
    such error.
    """
    try:
        from anthropic.lib.tools import ToolError
    except ImportError:
        return str(refused)
    raise ToolError(str(refused)) from None


# ---- files ----


def _files(kb: KnowledgeBase) -> _Files:
    """Return the parts of all files, in their order, by path."""
    files: dict[str, list[_FilePart]] = {}
    for row in kb.query(FILE, ["?path", "?number", "?episode", "?bytes", "?blank"]).rows():
        path, number, episode, size, blank = row["args"]
        files.setdefault(path, []).append(_FilePart(int(number), episode, int(size), blank))
    return {path: tuple(sorted(files[path])) for path in sorted(files)}


def _at(path: str, files: _Files) -> _Files:
    """Return the file of a path, or the files of a directory."""
    return {each: parts for each, parts in files.items() if f"{each}/".startswith(f"{path}/")}


def _inside(path: str, files: _Files) -> bool:
    """Return True if a path is a directory."""
    return any(each.startswith(f"{path}/") for each in files)


def _refuse_below_files(path: str, files: _Files) -> None:
    """Refuse a path that has a file as a directory."""
    for each in files:
        if path.startswith(f"{each}/"):
            raise _Refused(f"Error: {each} is a file, not a directory")


def _dated_text(kb: KnowledgeBase, parts: Sequence[_FilePart]) -> tuple[str, int | None]:
    """Return the text of a file, and its time in epoch milliseconds; raise NotFound if it was
    purged.
    """
    texts, at = [], None
    for part in parts:
        if part.episode:
            episode = kb.episode(part.episode, limit=1).episode
            texts.append(episode.text)
            at = episode.at
        else:
            texts.append(part.blank)
    return "".join(texts), at


def _text(kb: KnowledgeBase, parts: Sequence[_FilePart]) -> str:
    return _dated_text(kb, parts)[0]


def _pieces(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Yield adjacent spans of a text of at most `size` characters, cut between lines or words where
    possible.
    """
    start = 0
    while len(text) - start > size:
        end = start + size
        cut = text.rfind("\n", start, end) + 1 or text.rfind(" ", start, end) + 1 or end
        yield start, cut
        start = cut
    if start < len(text):
        yield start, len(text)


def _checked_path(path: str) -> str:
    """Return a path without a slash at its end; refuse one that is not inside `/memories`."""
    names = path.removesuffix("/").split("/")
    if names[:2] != ["", ROOT[1:]]:
        raise _Refused(f"Error: The path {path!r} must begin with {ROOT}")
    if _TRAVERSAL.search(path) or not {"", ".", ".."}.isdisjoint(names[2:]):
        raise _Refused(f"Error: The path {path!r} is not a plain path inside {ROOT}")
    if len(path) > MAX_PATH_CHARS:
        raise _Refused(f"Error: A path has at most {MAX_PATH_CHARS} characters")
    return "/".join(names)


# ---- texts of results ----


def _lines(text: str) -> list[str]:
    """Return the lines of a text; an end of line at its end begins no further line."""
    return text.removesuffix("\n").split("\n") if text else []


def _numbered(path: str, lines: list[str], view_range: Sequence[int] | None) -> str:
    """Return lines of a file with their numbers, from 1."""
    first, last = 1, len(lines)
    if view_range is not None:
        if len(view_range) != 2 or not all(type(each) is int for each in view_range):
            raise _Refused(f"Error: The argument `view_range` must be {_TYPES[list]}")
        first, last = max(view_range[0], 1), view_range[1]
        last = len(lines) if last == -1 else min(last, len(lines))
    numbered = [f"Here's the content of {path} with line numbers:"]
    left = MAX_VIEW_CHARS
    for number in range(first, last + 1):
        line = f"{number:6d}\t{lines[number - 1]}"
        if len(line) >= left:
            numbered += [line[:left], f"(cut in line {number} of {len(lines)}: use view_range)"]
            break
        left -= len(line) + 1
        numbered.append(line)
    return "\n".join(numbered)


def _snippet(text: str, start: int, end: int) -> str:
    """Return the lines around a span of a text, with their numbers."""
    lines = _lines(text)
    first = max(text.count("\n", 0, start) - _SNIPPET_LINES, 0)
    last = min(text.count("\n", 0, end) + _SNIPPET_LINES + 1, len(lines))
    numbered = (f"{number + 1:6d}\t{lines[number]}" for number in range(first, last))
    return "\n".join(numbered)[:MAX_VIEW_CHARS]


def _only_place(path: str, text: str, old: str) -> int:
    """Return where a text stands in the text of a file; refuse one that it has not exactly once."""
    if not old:
        raise _Refused("Error: The argument `old_str` must not be empty")
    places: list[int] = []
    offset = text.find(old)
    while offset >= 0 and len(places) < MAX_PLACES:
        places.append(offset)
        offset = text.find(old, offset + 1)
    if not places:
        raise _Refused(
            f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}."
        )
    if len(places) > 1:
        numbers = dict.fromkeys(str(text.count("\n", 0, each) + 1) for each in places)
        raise _Refused(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
            f"{', '.join(numbers)}. Please ensure it is unique"
        )
    return places[0]


def _listed(path: str, files: _Files) -> str:
    """Return the files and directories of a directory with their sizes."""
    sizes: dict[str, int] = {path: 0}
    for each, parts in _at(path, files).items():
        size = sum(part.size for part in parts)
        sizes[path] += size
        names = each[len(path) + 1 :].split("/")
        for level in range(1, min(len(names), _LEVELS) + 1):
            if names[level - 1].startswith(".") or names[level - 1] == "node_modules":
                break
            visible = "/".join((path, *names[:level]))
            sizes[visible] = sizes.get(visible, 0) + size
    lines = [f"{_size(sizes[each])}\t{each}" for each in sorted(sizes)]
    if len(lines) > MAX_LISTED:
        lines[MAX_LISTED:] = [f"and {len(lines) - MAX_LISTED} more"]
    heading = (
        f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items "
        "and node_modules:"
    )
    return "\n".join((heading, *lines))


def _size(size: int) -> str:
    """Return a number of bytes such as `120B`, `5.5K` or `1.2M`."""
    number, unit = float(size), "B"
    for larger in ("K", "M", "G"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.1f}".removesuffix(".0") + unit
