"""Files of a rule set: read, checked, and put together to one content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kbcore.errors import AlreadyExists, InvalidInput, RuleSyntaxError
from kbcore.language.files import declaration_of, fact_of, rule_of
from kbcore.state.names import check_name
from kbcore.state.rule_sets import Item, ItemKey, is_same, item_key, item_text
from kbcore.state.rulebook import stored_definition
from kbplanner.authoring.blocks import read_source
from kbplanner.ir.dimensions import WrittenLabel
from kbplanner.ir.inputs import Input
from kbplanner.ir.phrases import declaration_problem
from kbplanner.lru import LruCache
from kbplanner.pacing import YieldNow, paced
from kbplanner.passes.check import check_statements
from kbplanner.syntax.diagnostics import syntax_error
from kbplanner.syntax.imports import installed, text_of
from kbplanner.syntax.parser import Parsed, imported_sets, module_of
from kbplanner.syntax.reader import IMPORT
from kbplanner.syntax.statements import (
    FactStatement,
    GoalStatement,
    RuleStatement,
    Statement,
)

MAX_READ_SETS = 16
"""Rule sets of a tenant whose rules are remembered as they were last read."""

STATEMENTS_PER_YIELD = 8
"""Statements read between two calls of `yield_now`: about a millisecond."""


@dataclass(frozen=True, slots=True)
class RuleSetFile:
    """A file of a rule set: its path, for messages, and its text."""

    path: str
    text: str


RULE_FILE = ".kb"
"""The ending of the names of rule files."""


def rule_files(paths: Sequence[Path]) -> tuple[list[RuleSetFile], str | None]:
    """Read files, or the rule files of one folder and the folders in it, sorted; return also the
    name that a folder gives.

    Raises InvalidInput for another kind of file, for a folder beside others, or without rule
    files, and OSError.
    """
    folder = next((path for path in paths if path.is_dir()), None)
    if folder is None:
        return [_read(path, str(path)) for path in paths], None
    if len(paths) > 1:
        raise InvalidInput(f"{folder} is a folder; deploy it alone, or name files")
    paths = sorted(folder.rglob(f"*{RULE_FILE}"))
    if not paths:
        raise InvalidInput(f"{folder} has no file whose name ends in {RULE_FILE}")
    return [_read(path, str(path.relative_to(folder))) for path in paths], folder.resolve().name


def name_of(files: Sequence[RuleSetFile], name: str | None, folder_name: str | None) -> str:
    """Return the name of a rule set: the one that was asked for, that of `@module` in a file, or
    that of the folder.

    Raises InvalidInput without any, and for one that is not valid.
    """
    if name is None:
        name = next((module for each in files if (module := module_of(each.text))), folder_name)
    if name is None:
        raise InvalidInput.at("name", 'name the rule set, or begin its file with "@module name."')
    return check_name("name", name)


def _read(path: Path, display_path: str) -> RuleSetFile:
    if path.suffix != RULE_FILE:
        raise InvalidInput(f"{path.name}: the name of a rule file ends in {RULE_FILE}")
    try:
        return RuleSetFile(display_path, path.read_bytes().decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path.name}: not UTF-8 at byte {error.start}") from error


class ReadRules:
    """The rules of the files that some rule sets were last deployed from, by the text of their
    statements: most of a rule set is the same in its next version.
    """

    def __init__(self) -> None:
        self._of: LruCache[tuple[str | None, str], dict[str, RuleStatement]]
        self._of = LruCache(MAX_READ_SETS)

    def close(self) -> None:
        """Forget all rules."""
        self._of.clear()

    def of(self, scope: str | None, name: str) -> Mapping[str, RuleStatement]:
        """Return the rules that a rule set was last deployed from."""
        return self._of.get((scope, name)) or {}

    def put(
        self, scope: str | None, name: str, statements: Iterable[Statement], yield_now: YieldNow
    ) -> None:
        """Note the statements that a rule set was deployed from."""
        rules: dict[str, RuleStatement] = {}
        several: set[str] = set()  # a constraint may stand for several rules of one text
        for each in paced(statements, yield_now, STATEMENTS_PER_YIELD):
            if isinstance(each, RuleStatement) and not each.rule.labels:
                if each.text in rules:
                    several.add(each.text)
                rules[each.text] = each
        self._of.put((scope, name), {k: v for k, v in rules.items() if k not in several})


def read_rule_set(
    files: Sequence[RuleSetFile],
    name: str,
    scope: str | None,
    yield_now: YieldNow,
    known: Mapping[str, RuleStatement] | None = None,
    read: list[Statement] | None = None,
) -> dict[ItemKey, Item]:
    """Return the contents of the files of a rule set, and of the rule sets that they import, by
    key; tests and fixtures are left out. Rules whose text is in `known` are not read again. The
    statements of the files are added to `read`.

    `@strict` in a file makes the inputs of all files strict, but not those of rule sets that they
    import. A file whose `@module` gives another name is refused. Raises RuleSyntaxError
    with the errors of the first file that has any, AlreadyExists if two rules have one name, and
    InvalidInput.
    """
    items: dict[ItemKey, Item] = {}
    sources = [(file, _source(file, yield_now, known)) for file in paced(files, yield_now, 1)]
    if read is not None:
        for _, source in sources:
            read += source.statements
    is_strict = any(source.is_strict for _, source in sources)
    for file, source in sources:
        if source.module is not None and source.module.name != name:
            raise InvalidInput.at(
                "name", f"{file.path} is of the rule set '{source.module.name}', not of '{name}'"
            )
    imports = (name for _, source in sources for name in source.imports)
    parts = [(file, source, is_strict) for file, source in sources]
    for imported, source in imported_sets(imports, yield_now).items():
        parts.append((RuleSetFile(f"{IMPORT} {imported}", ""), source, source.is_strict))
    for file, source, makes_strict in parts:
        statements = paced(source.statements, yield_now, STATEMENTS_PER_YIELD)
        for item in _items(file, statements, scope, makes_strict):
            key = item_key(item)
            if key in items and not is_same(items[key], item):
                raise AlreadyExists(
                    f"{file.path}: the rule set has two different statements '{_shown(key)}'",
                    {"file": file.path},
                )
            items.setdefault(key, item)
    return items


def imported_texts(sources: Sequence[Parsed], scope: str | None) -> dict[str, str]:
    """Return the statements that texts get from installed rule sets only, each with the name of its
    rule set; the texts themselves do not have them. Raises InvalidInput.
    """
    texts: dict[str, str] = {}
    for name, source in imported_sets(
        each for parsed in sources for each in parsed.imports
    ).items():
        file = RuleSetFile(f"{IMPORT} {name}", "")
        for item in _items(file, iter(source.statements), scope, source.is_strict):
            texts.setdefault(item_text(item), name)
    is_strict = any(source.is_strict for source in sources)
    for source in sources:
        for item in _items(RuleSetFile("", ""), iter(source.statements), scope, is_strict):
            texts.pop(item_text(item), None)
    return texts


def _source(
    file: RuleSetFile, yield_now: YieldNow, known: Mapping[str, RuleStatement] | None
) -> Parsed:
    """Read a file without its tests; raises RuleSyntaxError."""
    try:
        parsed = read_source(file.text, yield_now=yield_now, known=known).parsed
        if parsed.errors:
            raise syntax_error(parsed.errors)
        check_statements(paced(parsed.statements, yield_now, STATEMENTS_PER_YIELD))
    except RuleSyntaxError as error:
        raise error.within(file.path) from None
    return parsed


def digest_of(files: Sequence[RuleSetFile]) -> str:
    """Return the SHA-256 of texts, in the order of their paths, and of the texts of the installed
    rule sets that they may import.
    """
    digest = hashlib.sha256()
    names: set[str] = set()
    for file in sorted(files, key=lambda each: each.path):
        digest.update(hashlib.sha256(file.text.encode("utf-8", "surrogatepass")).digest())
        names.update(_IMPORTED.findall(file.text))
    for text in _imported_texts(names):
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()


_IMPORTED = re.compile(rf"\b{IMPORT}\s+[\"']?([\w:-]+)")
"""Names behind the word import, in comments too."""


def _imported_texts(names: set[str]) -> Iterator[str]:
    """Yield the texts of installed rule sets with these names and of those that they import. What
    cannot be imported is left out: reading the files reports it.
    """
    with suppress(InvalidInput):
        for name in imported_sets(sorted(names & installed().keys())):
            yield text_of(name)


def _items(
    file: RuleSetFile, statements: Iterator[Statement], scope: str | None, is_strict: bool
) -> Iterator[Item]:
    for statement in statements:
        if isinstance(statement, GoalStatement):
            raise _refused(file, statement, "a query is asked, not deployed; write it into a test")
        labels: tuple[WrittenLabel, ...] = ()
        if isinstance(statement, FactStatement):
            labels = statement.annotations.labels
        elif isinstance(statement, RuleStatement):
            labels = statement.rule.labels
        if labels:
            raise _refused(
                file,
                statement,
                f'a statement of a rule set has no label or option "{labels[0].name}"',
            )
        if isinstance(statement, FactStatement):
            fact = fact_of(statement, scope)
            if fact.ttl is not None:
                raise _refused(file, statement, "a fact of a rule set has no ttl")
            _check_scope(file, statement, fact.scope, scope)
            yield fact
            continue
        definition = (
            rule_of(statement, scope)
            if isinstance(statement, RuleStatement)
            else declaration_of(statement, scope)
        )
        _check_scope(file, statement, definition.scope, scope)
        declared = None if isinstance(statement, RuleStatement) else statement.declaration
        if declared is not None and (problem := declaration_problem(declared)):
            raise _refused(file, statement, problem)
        if is_strict and isinstance(definition, Input):
            definition = replace(definition, is_strict=True)
        yield stored_definition(definition)


def _check_scope(
    file: RuleSetFile, statement: Statement, scope: str | None, expected: str | None
) -> None:
    if scope != expected:
        message = "a rule set is deployed to one scope; its statements name no other"
        raise _refused(file, statement, message)


def _refused(file: RuleSetFile, statement: Statement, problem: str) -> InvalidInput:
    return InvalidInput(
        f"{file.path}: line {statement.span.line}: {problem}",
        {"file": file.path, "line": statement.span.line, "problem": problem},
    )


def _shown(key: ItemKey) -> str:
    return key[1]
