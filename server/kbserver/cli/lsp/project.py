"""Rule files that belong together: where names are defined and used, and what to offer while
typing.

Knows nothing of the protocol: files have a key (their URI), stretches are offsets in code points.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from kbcore.language.rule_review import check_programs
from kbplanner.authoring.blocks import BlockSource, read_source
from kbplanner.authoring.cursor import cursor_at
from kbplanner.authoring.outline import NameKind, Occurrence, OutlinedStatement, outline_of
from kbplanner.check.texts import StoredProgram
from kbplanner.errors import InvalidInput
from kbplanner.ir.dimensions import FACT_OPTIONS, GROUPS, LEVELS, Dimension
from kbplanner.ir.inputs import INPUT, TYPES, Input
from kbplanner.ir.modes import NO_MODES, Modes
from kbplanner.ir.program import components
from kbplanner.ir.requirements import REQUIRES
from kbplanner.passes.linearise import linearise
from kbplanner.passes.lower import lower
from kbplanner.syntax.constraints import KINDS
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.expected import DECLARATIONS
from kbplanner.syntax.imports import address_of, installed, text_of
from kbplanner.syntax.parser import imported_sets
from kbplanner.syntax.printer import print_constant, print_predicate
from kbplanner.syntax.reader import IMPORT, MODULE, STRICT
from kbplanner.syntax.statements import DeclarationStatement, FactStatement, RuleStatement
from kbtypes.results import Finding

MAX_CONSTANTS = 200
"""Constants that are offered for an argument."""

MAX_RULES_SHOWN = 5
"""Rules of a predicate that its description shows."""

KEYWORDS = ("not",)

DECLARATION_WORDS = (
    INPUT,
    LEVELS,
    GROUPS,
    REQUIRES,
    *DECLARATIONS,
    *KINDS,
    MODULE,
    STRICT,
)
"""Words that are offered after `@`."""

_IMPORTED = re.compile(rf"(?:^|[.\n])[ \t]*{IMPORT}[ \t]+\w*\Z")
_VARIABLE = re.compile(r"\?[A-Za-z_][A-Za-z0-9_]*")
_RULE_NAME = re.compile(r"[^\W\d_]\w*(?:-\w+)*")

outline = lru_cache(maxsize=256)(outline_of)
source = lru_cache(maxsize=256)(read_source)


def _imported(texts: Iterable[str]) -> dict[str, str]:
    """Return the texts of the rule sets that texts import, by the URIs of their files."""
    names = (name for text in texts for name in source(text).parsed.imports)
    return {address_of(name): text_of(name) for name in imported_sets(names)}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a file, in code points."""

    file: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CompletionItem:
    """A text that replaces the word before the cursor: its kind, and a remark about it.

    The kind is `predicate`, `constant`, `variable`, `rule` or `keyword`. `size` is the length of
    the word.
    """

    text: str
    kind: str
    size: int
    remark: str = ""


class Project:
    """Files that belong together, by key, and the predicates that plugins provide."""

    def __init__(self, texts: Mapping[str, str], external: Modes = NO_MODES) -> None:
        self._own = dict(texts)
        self.texts = {**_imported(texts.values()), **texts}
        """All texts: also those of imported rule sets, which are only read."""
        self._external = external

    def findings(self) -> dict[str, list[Finding]]:
        """Return the errors and warnings of each file."""
        names = [unquote(file.rsplit("/", 1)[-1]) for file in self._own]
        stored = StoredProgram(external=self._external)
        checked = check_programs(list(self._own.values()), stored, names=names)
        return dict(zip(self._own, checked, strict=True))

    def predicate_names(self) -> set[str]:
        """Return the names of the predicates that are defined."""
        return {each.name for _, each in self._all() if each.defines and _is_predicate(each)}

    # ---- names ----

    def definitions(self, file: str, offset: int) -> list[Stretch]:
        """Return where the name at an offset is defined.

        The rules of a predicate, or its facts if it has no rules, or its declaration as an input if
        it has neither; the first occurrence of a variable in its statement; the rule of a name.
        """
        name = self._at(file, offset)
        if name is None:
            return []
        matches = list(self._same(file, name))
        if name.kind is NameKind.VARIABLE:
            return matches[:1]
        defining = [stretch for stretch in matches if self._occurrence(stretch).defines]
        rules = [stretch for stretch in defining if self._statement(stretch).kind == "rule"]
        if name.kind is NameKind.RULE:
            return defining
        declared = (each for each in matches if self._text(each).startswith(f"@{INPUT}"))
        return rules or defining or list(declared)

    def references(self, file: str, offset: int) -> list[Stretch]:
        """Return every stretch of the name at an offset."""
        name = self._at(file, offset)
        return [] if name is None else list(self._same(file, name))

    def name_at(self, file: str, offset: int) -> Stretch | None:
        """Return the stretch of the name at an offset."""
        name = self._at(file, offset)
        return None if name is None else Stretch(file, name.start, name.end)

    def rename(self, file: str, offset: int, new: str) -> dict[Stretch, str]:
        """Return the text for each stretch of the name at an offset; raises InvalidInput."""
        name = self._at(file, offset)
        if name is None:
            raise InvalidInput("there is no name here")
        if name.kind is NameKind.VARIABLE:
            new = new if new.startswith("?") else f"?{new}"
            if not _VARIABLE.fullmatch(new):
                raise InvalidInput(
                    "a variable has letters from A to Z or a to z, digits and _ after ?"
                )
            others = {
                each.name
                for each in outline(self.texts[file]).occurrences
                if each.kind is NameKind.VARIABLE and each.statement == name.statement
            }
            if new != name.name and new in others:
                raise InvalidInput(f"the statement has a variable {new} already")
            text = new
        elif name.kind is NameKind.RULE:
            text = new if _RULE_NAME.fullmatch(new) else print_constant(new)
            taken = (each for _, each in self._all() if each.kind is NameKind.RULE)
            if new != name.name and any(each.name == new for each in taken):
                raise InvalidInput(f"a rule is called {new} already")
        else:
            if not new:
                raise InvalidInput("a predicate has a name")
            text = print_constant(new)
        stretches = list(self._same(file, name))
        if any(stretch.file not in self._own for stretch in stretches):
            raise InvalidInput("the name belongs to an imported rule set")
        return dict.fromkeys(stretches, text)

    def _all(self) -> Iterator[tuple[str, Occurrence]]:
        for file, text in self.texts.items():
            for each in outline(text).occurrences:
                yield file, each

    def _at(self, file: str, offset: int) -> Occurrence | None:
        return outline(self.texts[file]).at(offset)

    def _same(self, file: str, name: Occurrence) -> Iterator[Stretch]:
        for where, each in self._all():
            if each.kind is not name.kind or (each.name, each.arity) != (name.name, name.arity):
                continue
            is_local = name.kind is NameKind.VARIABLE
            if is_local and (where != file or each.statement != name.statement):
                continue
            yield Stretch(where, each.start, each.end)

    def _occurrence(self, stretch: Stretch) -> Occurrence:
        matches = outline(self.texts[stretch.file]).at(stretch.start)
        if matches is None:
            raise AssertionError(f"no name at {stretch}")
        return matches

    def _statement(self, stretch: Stretch) -> OutlinedStatement:
        lines = outline(self.texts[stretch.file])
        return lines.statements[self._occurrence(stretch).statement]

    def _text(self, stretch: Stretch) -> str:
        """Return the text of the statement that a name is in."""
        statement = self._statement(stretch)
        return self.texts[stretch.file][statement.start : statement.end]

    # ---- descriptions ----

    def description(self, file: str, offset: int) -> str | None:
        """Return what is known about the predicate or rule at an offset, in Markdown."""
        name = self._at(file, offset)
        if name is None or name.kind is NameKind.VARIABLE:
            return None
        if name.kind is NameKind.RULE:
            stretches = self.definitions(file, offset)
            return self._rules(stretches) if stretches else None
        defining = [
            stretch for stretch in self._same(file, name) if self._occurrence(stretch).defines
        ]
        rules = [stretch for stretch in defining if self._statement(stretch).kind == "rule"]
        tested = [stretch for stretch in defining if self._statement(stretch).test is not None]
        facts = len(defining) - len(rules)
        counts = f"{counted(facts, 'fact')}, {counted(len(rules), 'rule')}"
        if tested:
            counts += f" ({counted(len(tested), 'fact')} in tests)"
        parts = [f"**{name.name}/{name.arity}**: {counts}"]
        stratum = self._stratum(name.name, name.arity) if rules else None
        if stratum is not None:
            parts[0] += f", stratum {stratum}"
        if (declared := self._inputs().get((name.name, name.arity))) is not None:
            parts.append(f"`{_signature(declared)}`")
            parts += [] if declared.gloss is None else [declared.gloss]
        if comment := self._comment(defining):
            parts.append(comment)
        if rules:
            parts.append(self._rules(rules))
        return "\n\n".join(parts)

    def predicate_at(self, file: str, offset: int) -> tuple[str, int] | None:
        """Return the name and the number of arguments of the predicate at an offset."""
        name = self._at(file, offset)
        return (name.name, name.arity) if name is not None and _is_predicate(name) else None

    def _comment(self, stretches: list[Stretch]) -> str:
        comments = (
            outline(self.texts[stretch.file]).comment_above(self._statement(stretch).start)
            for stretch in stretches
        )
        return next(filter(None, comments), "")

    def _rules(self, stretches: list[Stretch]) -> str:
        texts = list(map(self._text, stretches[:MAX_RULES_SHOWN]))
        if len(stretches) > MAX_RULES_SHOWN:
            texts.append(f"% and {len(stretches) - MAX_RULES_SHOWN} more")
        return "```kb\n" + "\n".join(texts) + "\n```"

    def _stratum(self, name: str, arity: int) -> int | None:
        """Return the number of the component of a predicate, in the order of evaluation, from 1.

        None while the rules cannot be evaluated.
        """
        try:
            clauses = linearise(lower([each.rule for each in self._rule_statements()]))
            ordered = components(clauses)
        except InvalidInput:
            return None
        for number, component in enumerate(ordered, 1):
            stored = (schema.stored for schema in component.relations)
            if any((each.predicate, each.arity) == (name, arity) for each in stored):
                return number
        return None

    def _sources(self) -> Iterator[BlockSource]:
        for text in self.texts.values():
            yield source(text)

    def _rule_statements(self) -> Iterator[RuleStatement]:
        for each in self._sources():
            for statement in each.parsed.statements:
                if isinstance(statement, RuleStatement):
                    yield statement

    def _inputs(self) -> dict[tuple[str, int], Input]:
        """Return the declared inputs by name and number of arguments."""
        return {
            (declared.predicate, declared.arity): declared
            for each in self._sources()
            for statement in each.parsed.statements
            if isinstance(statement, DeclarationStatement)
            and isinstance(declared := statement.declaration, Input)
        }

    # ---- completion ----

    def completions(self, file: str, offset: int) -> list[CompletionItem]:
        """Return what may be typed at an offset, in order."""
        before = self.texts[file][:offset]
        cursor = cursor_at(before)
        size = len(cursor.word)
        if _IMPORTED.search(before):
            return [CompletionItem(each, "keyword", size) for each in sorted(installed())]
        if cursor.word.startswith("?"):
            names = [each for each in cursor.variables if each != cursor.word]
            return [CompletionItem(each, "variable", size) for each in names]
        if cursor.takes_rule:
            return [CompletionItem(each, "rule", size) for each in self._rule_names()]
        if cursor.takes_type:
            return [CompletionItem(each, "keyword", size) for each in TYPES]
        if cursor.takes_declaration:
            return [CompletionItem(each, "keyword", size) for each in DECLARATION_WORDS]
        if cursor.option is not None:
            options = self._options(cursor.option)
            return [CompletionItem(each, "keyword", size) for each in options]
        if cursor.argument is not None:
            constants = self._constants(*cursor.argument)
            matches = [CompletionItem(each, "constant", size) for each in constants]
            variables = () if cursor.word else cursor.variables
            return [*(CompletionItem(each, "variable", size) for each in variables), *matches]
        if not cursor.takes_atom:
            return []
        keywords = [CompletionItem(each, "keyword", size) for each in KEYWORDS]
        return [*self._predicates(file, offset, size), *keywords]

    def _options(self, name: str) -> Sequence[str]:
        """Return the options of a statement, or the levels or groups of one."""
        dimensions = {
            declared.name: declared.values
            for each in self._sources()
            for statement in each.parsed.statements
            if isinstance(statement, DeclarationStatement)
            and isinstance(declared := statement.declaration, Dimension)
        }
        return dimensions.get(name, ()) if name else [*FACT_OPTIONS, *sorted(dimensions)]

    def _rule_names(self) -> list[str]:
        return sorted({each.name for _, each in self._all() if each.kind is NameKind.RULE})

    def _predicates(self, file: str, offset: int, size: int) -> Iterator[CompletionItem]:
        """Yield the predicates other than the one that is typed at an offset, in order."""
        arities: dict[str, set[int]] = {}
        for schema in self._external:
            arities.setdefault(schema.predicate, set()).add(schema.arity)
        for where, each in self._all():
            is_typed = where == file and each.start <= offset <= each.end
            if _is_predicate(each) and not is_typed:
                arities.setdefault(each.name, set()).add(each.arity)
        inputs = self._inputs()
        for name, of in sorted(arities.items()):
            yield CompletionItem(print_constant(name), "predicate", size, _remark(name, of, inputs))

    def _constants(self, predicate: str, index: int) -> list[str]:
        """Return the constants that facts have in an argument of a predicate."""
        matches: set[str] = set()
        for each in self._sources():
            for statement in each.statements:
                if isinstance(statement, FactStatement) and statement.atom.predicate == predicate:
                    args = statement.atom.args
                    if index < len(args) and isinstance(args[index], str):
                        matches.add(print_constant(str(args[index])))
        return sorted(matches)[:MAX_CONSTANTS]


def _signature(declared: Input) -> str:
    """Return an input with the names and types of its arguments."""
    name = print_predicate(declared.predicate, declared.arity)
    return f"{name}({', '.join(declared.typed_args)})" if declared.args else name


def _remark(name: str, arities: set[int], inputs: Mapping[tuple[str, int], Input]) -> str:
    """Return the remark about a predicate: its arguments if it is an input, and their number."""
    numbers = f"{name}/{', '.join(map(str, sorted(arities)))}"
    declared = [inputs[name, arity] for arity in sorted(arities) if (name, arity) in inputs]
    if len(declared) < len(arities):
        return numbers
    return "; ".join(
        _signature(each) + (f": {each.gloss}" if each.gloss else "") for each in declared
    )


def _is_predicate(name: Occurrence) -> bool:
    return name.kind is NameKind.PREDICATE
