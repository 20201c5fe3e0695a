"""Rule sets in dumps: blocks between two comments in the rule language, objects of JSON lines.

A reader that does not know the comments stores the statements of a block one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kbcore.errors import InvalidInput, LoadError
from kbcore.state.names import check_name
from kbcore.strict_json import NotJson, parse_json
from kbcore.timestamps import iso_text
from kbtypes.rule_sets import RuleSetContents

MEMBER = "ruleSet"
"""The member of an object of JSON lines that has a rule set."""

HEAD = "% kb: rule-set "
END = "% kb: end of rule-set"
"""The first line of a block, up to the description of the rule set as JSON, and the last line."""

MAX_VERSION = 2**53 - 1

_MEMBERS = {"name", "scope", "version", "deployedAt", "message", "revision", "labels"}


@dataclass(frozen=True, slots=True)
class DumpedSet:
    """A rule set of a dump, and the statements of its contents.

    `line` is that of the file on which the text of the statements begins.
    """

    name: str
    scope: str | None
    version: int
    message: str | None
    revision: str | None
    text: str
    line: int
    labels: Mapping[str, Any] | None = None

    def deployment(self) -> dict[str, Any]:
        """Return the members of the body of its deployment, in camel case; the name is apart."""
        members = {
            "scope": self.scope,
            "firstVersion": self.version,
            "message": self.message,
            "revision": self.revision,
            "labels": self.labels,
        }
        return {key: value for key, value in members.items() if value is not None}


def block(contents: RuleSetContents) -> Iterator[str]:
    """Yield the lines of a rule set in the rule language."""
    yield HEAD + orjson.dumps(_description(contents)).decode()
    yield from contents.statements
    yield END


def entry(contents: RuleSetContents) -> dict[str, Any]:
    """Return a rule set as the object of a line."""
    return {MEMBER: {**_description(contents), "text": "\n".join(contents.statements)}}


def _description(contents: RuleSetContents) -> dict[str, Any]:
    members = {
        "name": contents.name,
        "scope": contents.scope,
        "version": contents.version,
        "deployedAt": iso_text(contents.deployed_at),
        "message": contents.message,
        "revision": contents.revision,
        "labels": contents.labels,
    }
    return {key: value for key, value in members.items() if value is not None}


def from_entry(value: Any, line: int, scope: str | None) -> DumpedSet:
    """Return the rule set of an object of JSON lines; raises InvalidInput."""
    if not isinstance(value, Mapping):
        raise InvalidInput.at(MEMBER, "must be an object")
    text = value.get("text")
    if not isinstance(text, str):
        raise InvalidInput.at(f"{MEMBER}.text", "must be a text")
    rest = {key: value[key] for key in value if key != "text"}
    return _read(rest, text, line, scope)


def _read(members: Mapping[str, Any], text: str, line: int, scope: str | None) -> DumpedSet:
    for key in members:
        if key not in _MEMBERS:
            raise InvalidInput.at(f"{MEMBER}.{key}", "is not a member of a rule set")
    version = members.get("version")
    if type(version) is not int or not 1 <= version <= MAX_VERSION:
        raise InvalidInput.at(f"{MEMBER}.version", "must be a whole number from 1")
    for key in ("message", "revision"):
        if not isinstance(members.get(key), str | None):
            raise InvalidInput.at(f"{MEMBER}.{key}", "must be a text")
    labels = members.get("labels")
    if not isinstance(labels, Mapping | None):
        raise InvalidInput.at(f"{MEMBER}.labels", 'is an object, such as {"trust": "user"}')
    name: Any = members.get("name")
    own = members.get("scope")
    return DumpedSet(
        check_name(f"{MEMBER}.name", name),
        scope if own is None else check_name(f"{MEMBER}.scope", own),
        version,
        members.get("message"),
        members.get("revision"),
        text,
        line,
        labels,
    )


class DumpText:
    """A text in the rule language that comes in chunks, cut anywhere, as its parts: statements that
    are stored one by one, and blocks of rule sets.

    Holds about one chunk, or one block, at a time.
    """

    def __init__(self, chunks: Iterable[str]) -> None:
        self._chunks = iter(chunks)
        self._text = ""
        self._at = 0
        self._is_at_end = False
        self._line = 1

    def statements(self) -> Iterator[str]:
        """Yield chunks of the text up to the next block or the end.

        Behind a block they begin with as many line breaks as the text before has, so that the
        statements have their places in the file.
        """
        if self._line > 1:
            yield "\n" * (self._line - 1)
        is_line_start = True
        while True:
            start = self._head(is_line_start)
            if start is not None:
                if start > self._at:
                    yield self._take(start)
                return
            end = self._text.rfind("\n", self._at) + 1
            tail = max(end, self._at)
            # What may be the beginning of a head is read together with what follows.
            may_be_head = HEAD.startswith(self._text[tail:]) and (end > self._at or is_line_start)
            end = tail if may_be_head and not self._is_at_end else len(self._text)
            if end > self._at:
                part = self._take(end)
                is_line_start = part.endswith("\n")
                yield part
            if self._is_at_end:
                return
            self._read_on()

    def rule_set(self, scope: str | None) -> DumpedSet | None:
        """Return the rule set whose block is next, None at the end of the text.

        Raises LoadError that names the line of the head.
        """
        if self._is_at_end and self._at == len(self._text):
            return None
        first = self._line
        head = self._line_of_block(first)
        lines = list[str]()
        while (line := self._line_of_block(first)).rstrip() != END:
            lines.append(line)
        try:
            members = parse_json(head[len(HEAD) :].encode(), 3, "the description of a rule set")
            if not isinstance(members, dict):
                raise InvalidInput("the description of a rule set is a JSON object")
            return _read(members, "".join(lines), first + 1, scope)
        except NotJson as error:
            raise LoadError(first, error.message) from error
        except (InvalidInput, ValueError) as error:
            raise LoadError(first, str(error)) from error

    def _line_of_block(self, first: int) -> str:
        """Return the next line with its line break."""
        while not (end := self._text.find("\n", self._at) + 1) and not self._is_at_end:
            self._read_on()
        end = end or len(self._text)
        if end == self._at:
            raise LoadError(first, f"the rule set has no line '{END}'")
        return self._take(end)

    def _head(self, is_line_start: bool) -> int | None:
        """Return where the next head begins in the text that is read."""
        if is_line_start and self._text.startswith(HEAD, self._at):
            return self._at
        return self._text.find(f"\n{HEAD}", self._at) + 1 or None

    def _take(self, end: int) -> str:
        part = self._text[self._at : end]
        self._at = end
        self._line += part.count("\n")
        return part

    def _read_on(self) -> None:
        chunk = next(self._chunks, None)
        if chunk is None:
            self._is_at_end = True
        else:
            self._text, self._at = self._text[self._at :] + chunk, 0
