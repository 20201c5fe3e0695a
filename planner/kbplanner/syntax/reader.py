"""Reader of a text by statement: a fast path for plain facts, the grammar for the rest.

Facts arrive by the hundred thousand, so a plain ground fact is recognised by one pattern;
everything else is parsed by the grammar. Both give the same statements, in linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbplanner.errors import InvalidInput
from kbplanner.ir.dimensions import GROUPS, LEVELS
from kbplanner.ir.inputs import INPUT, Input
from kbplanner.ir.limits import DEFAULT_LIMITS, MAX_DEPTH, MAX_TOKENS, Limits
from kbplanner.ir.operators import needs_quotes
from kbplanner.ir.requirements import REQUIRES
from kbplanner.ir.terms import Atom
from kbplanner.ir.values.words import KEYWORDS, NUMBER
from kbplanner.ir.values.words import PLAIN_WORD as WORD
from kbplanner.pacing import YieldNow, current_yield, paced
from kbplanner.syntax.constraints import KINDS
from kbplanner.syntax.diagnostics import MAX_ERRORS, Diagnostic, Problem, diagnostic, syntax_error
from kbplanner.syntax.expected import EQUIVALENCE_WORDS, explain
from kbplanner.syntax.lowering import Lowering, variable_tokens
from kbplanner.syntax.scanner import (
    MAX_STATEMENT_CHARS,
    TOO_LONG,
    Token,
    block_header_size,
    file_fixture_size,
    scan_block,
    scan_statement,
)
from kbplanner.syntax.statements import (
    NO_ANNOTATIONS,
    Annotations,
    DeclarationStatement,
    FactStatement,
    GoalStatement,
    ModuleName,
    RuleStatement,
    Statement,
    TextSpan,
)
from kbplanner.syntax.tree import ClauseTree

ParseClause = Callable[[list[Token], YieldNow], "ClauseTree | int"]
"""Parses the tokens of a statement to its tree, or returns the index of the token it stopped at."""

Importing = Callable[[str], Sequence[Statement]]
"""Returns the statements of a rule set that a text imports; raises InvalidInput, with a `hint` in
its details.
"""

IMPORT = "import"
"""Word of a statement that uses another rule set: `import memory.`"""

MODULE, STRICT = "module", "strict"
"""Words at the head of a text: `@module access.` and `@strict.`"""

TYPED = "TYPED"
"""Kind of the colon between the name and the type of an argument of an input."""

MAX_NAMES = 1000
"""Number of words of a statement with errors whose names are noted."""

FEW_TOKENS = 16
"""Tokens that show whether a text is prose or a statement."""

MIN_WINDOW_CHARS = 1 << 16
"""Minimum number of characters of a stream examined at once."""

FACTS_PER_YIELD = 50
"""Plain facts read between two calls of `yield_now`: about a millisecond."""

STATEMENT_WORK = 5
"""Plain facts that take as long to read as another statement, such as an import."""

STRETCH_CHARS = 1 << 16
COMMENTS_PER_YIELD = 1000
"""Characters of white space and comments, and number of comments, skipped between two calls of
`yield_now`: about a millisecond."""

_PLAIN_STRING = r'"[^"\\\n\x00\ud800-\udfff]*"' + r"|'[^'\\\n\x00\ud800-\udfff]*'"
_ARG = rf"(?:{WORD}|-?{NUMBER}|{_PLAIN_STRING})"
_PLAIN_NOTE = (
    r"confidence\s*=\s*(?:0(?:\.[0-9]+)?|1(?:\.0+)?)"
    rf"|scope\s*=\s*(?:{WORD}|{_PLAIN_STRING})"
    rf"|ttl\s*=\s*(?:[1-9][0-9]{{0,15}}|{_PLAIN_STRING})"
    rf"|valid(?:From|Until)\s*=\s*(?:[0-9]{{1,16}}|{_PLAIN_STRING})"
)
_PLAIN_FACT = re.compile(
    rf"(~?)\s*({WORD})\(\s*({_ARG}(?:\s*,\s*{_ARG})*)\s*\)\s*"
    rf"(?:\[\s*((?:{_PLAIN_NOTE})(?:\s*,\s*(?:{_PLAIN_NOTE}))*)\s*\]\s*)?\."
)
_ARGS = re.compile(_ARG)
_NOTES = re.compile(rf"([a-zA-Z]+)\s*=\s*({_PLAIN_STRING}|[^\s,]+)")
_NOTE_FIELDS = {"validFrom": "valid_from", "validUntil": "valid_until"}
NOTES_CHARS = 512
"""Maximum number of characters of a plain fact behind its arguments; a longer one is parsed."""

MAX_NOTES = 256
"""Number of texts of annotations that a reader remembers: many facts of a file have the same."""

_SPACE = re.compile(r"\s+")


class StatementReader:
    """Reader of statements from `text`, whose first character is at `position`, a line and a
    column.

    With `final=False` more text may follow: the reader stops before a statement that touches the
    end of the text, and `pos` says where to continue. Errors are collected in `errors`; after the
    first one no statement is returned. `mode` is "program"; "clauses" for a program whose last
    statement may lack its dot; or the required kind of a single statement: "rule", "goal" or
    "atom". `yield_now` is called about once a millisecond; by default it is `current_yield`.
    """

    max_errors = MAX_ERRORS
    """Number of errors after which reading stops."""

    explained = True
    """False if errors need no explanation: prose is then read up to the first words that no
    statement has.
    """

    def __init__(
        self,
        text: str,
        parse: ParseClause,
        limits: Limits,
        *,
        position: tuple[int, int] = (1, 1),
        final: bool = True,
        mode: str = "program",
        yield_now: YieldNow | None = None,
    ) -> None:
        self.text = text
        line, column = position
        self.pos = 1 if text.startswith("\ufeff") and position == (1, 1) else 0
        self.errors: list[Diagnostic] = []
        self.unread_names: set[str] = set()
        """Words of the statements with errors."""
        self.module: ModuleName | None = None
        """The name that `@module` at the head of the text gives."""
        self.is_strict = False
        """True if `@strict` at the head of the text makes the inputs that it declares strict."""
        self.is_at_head = True
        """True until the first statement was read."""
        self.known: Mapping[str, RuleStatement] = {}
        self._notes: dict[str, Annotations] = {}
        """Statements that were read before, by their text."""
        self.importing: Importing | None = None
        """Without it `import NAME.` is no statement."""
        self.imports: list[str] = []
        """Names of the rule sets that the text imports, each once."""
        self.is_labelled = False
        """True if options with unknown names are labels, which the one who stores them checks."""
        self._parse = parse
        self._yield_now = current_yield() if yield_now is None else yield_now
        self._until_rest = FACTS_PER_YIELD
        self._limits = limits
        self._final = final
        self._mode = "program" if mode == "clauses" else mode
        self._needs_final_dot = mode == "program"
        self._line = line
        self._line_start = (
            1 - column
        )  # where the current line begins; before the text if it was cut
        self._counted = 0

    @property
    def position(self) -> tuple[int, int]:
        """Line and column of `pos`."""
        self._count_to(self.pos)
        return self._line, self.pos - self._line_start + 1

    def statements(self, *, after_errors: bool = False) -> Iterator[Statement]:
        """Yield the statements, until the end of the text or the first error.

        With `after_errors` the statements without errors that follow an error are yielded too.
        """
        while len(self.errors) < self.max_errors:
            start = self._skip(self.pos)
            if start >= len(self.text):
                if self._final:
                    self.pos = start
                return
            plain = self._plain_fact(start) if self._mode == "program" else None
            if plain is not None:
                self.is_at_head = False
                self._until_rest -= 1
                if not self._until_rest:
                    self._until_rest = FACTS_PER_YIELD
                    self._yield_now()
                if after_errors or not self.errors:
                    yield plain
                continue
            if not self.explained and self._is_prose(start):
                return
            tokens, end = scan_statement(self.text, start, self._yield_now)
            if self._may_continue(end):
                return
            if header := block_header_size(tokens):
                if not self._pass_block(tokens[:header]):
                    return
                continue
            if size := file_fixture_size(tokens):
                self.pos = tokens[size - 1].end
                self._refuse_block(tokens[:size])
                continue
            self.pos = end
            if self.known and (same := self._known_statement(tokens)):
                if after_errors or not self.errors:
                    yield same
                continue
            for statement in self._statements_of(tokens):
                if after_errors or not self.errors:
                    yield statement

    def _known_statement(self, tokens: list[Token]) -> RuleStatement | None:
        """Return the rule that these tokens are if it is known."""
        start = tokens[0].start
        same = self.known.get(self.text[start : tokens[-1].end])
        if same is None:
            return None
        self.is_at_head = False
        self._until_rest -= 1
        if not self._until_rest:
            self._until_rest = FACTS_PER_YIELD
            self._yield_now()
        self._count_to(start)
        return same.at(self._line, start - self._line_start + 1)

    def _statements_of(self, tokens: list[Token]) -> Iterator[Statement]:
        """Yield the statements of the tokens up to a dot; a head word and an error have none."""
        self._until_rest = max(self._until_rest - STATEMENT_WORK, 0)
        if not self._until_rest:
            self._until_rest = FACTS_PER_YIELD
            self._yield_now()
        if self._mode == "program" and _is_head_word(tokens):
            self._read_head(tokens)
        elif self.importing is not None and self._mode == "program" and _is_import(tokens):
            yield from self._read_import(tokens, self.importing)
        else:
            self.is_at_head = False
            yield from self._read(tokens)

    # ---- fast path ----

    def _plain_fact(self, start: int) -> FactStatement | None:
        limits = self._limits
        longest = start + limits.predicate_chars + limits.arg_bytes // 4 + NOTES_CHARS
        match = _PLAIN_FACT.match(self.text, start, longest)
        if match is None:
            return None
        sign, predicate, inside, noted = match.groups()
        if '"' in inside or "'" in inside:
            args = [arg[1:-1] if arg[0] in "\"'" else arg for arg in _ARGS.findall(inside)]
        else:
            args = [arg.strip() for arg in inside.split(",")]
        if (
            needs_quotes(predicate, len(args))
            or len(predicate) > limits.predicate_chars
            or len(args) > limits.args
            or len(inside) * 4 > limits.arg_bytes
        ):
            return None
        annotations = NO_ANNOTATIONS
        if noted is not None:
            known = self._notes.get(noted) or self._plain_notes(noted)
            if known is None:
                return None
            annotations = known
        self._count_to(start)
        line, line_start = self._line, self._line_start
        self.pos = end = match.end()
        self._count_to(end)
        span = TextSpan(line, start - line_start + 1, self._line, end - self._line_start + 1)
        return FactStatement(Atom(predicate, tuple(args), not sign), annotations, span)

    def _plain_notes(self, noted: str) -> Annotations | None:
        """Return the annotations of a plain fact, None if the grammar has to say what is wrong."""
        values: dict[str, Any] = {}
        for key, value in _NOTES.findall(noted):
            field = _NOTE_FIELDS.get(key, key)
            if field in values:
                return None
            if value[0] in "\"'":
                values[field] = value[1:-1]
            elif field == "scope":
                if value in KEYWORDS:
                    return None
                values[field] = value
            else:
                values[field] = float(value) if field == "confidence" else int(value)
        if len(self._notes) >= MAX_NOTES:
            self._notes.clear()
        self._notes[noted] = annotations = Annotations(**values)
        return annotations

    def _may_continue(self, end: int) -> bool:
        """Return True if text that follows may belong to a statement that ends at `end`."""
        return not self._final and end >= len(self.text)

    def _pass_block(self, header: list[Token]) -> bool:
        """Report a block and continue after it; return False if its end may follow."""
        _, _, end = scan_block(self.text, header[-1].end, self._yield_now)
        if self._may_continue(end):
            return False
        self.pos = end
        self._yield_now()
        self._refuse_block(header)
        return True

    # ---- grammar ----

    def _is_prose(self, start: int) -> bool:
        """Note an error, and return True, if the first tokens from `start` begin no statement."""
        tokens, _ = scan_statement(self.text, start, self._yield_now, FEW_TOKENS)
        _mark_declaration(tokens)
        result = self._parse(tokens, self._yield_now) if len(tokens) == FEW_TOKENS else FEW_TOKENS
        # The last token may be cut, and the one before may become a keyword by what follows.
        if not isinstance(result, int) or result >= FEW_TOKENS - 2:
            return False
        refused = tokens[result]
        problem = Problem("syntax", "no statement", None, refused.start, refused.end)
        _Positions(self, tokens).report([problem])
        return True

    def _read(self, tokens: list[Token]) -> Iterator[Statement]:
        while tokens:
            self._yield_now()
            self._complete(tokens)
            _mark_declaration(tokens)
            fitting = _count_within_limits(tokens)
            result = self._parse(tokens[:fitting], self._yield_now)
            if isinstance(result, ClauseTree):
                yield from self._lower(result, tokens)
                return
            where = _Positions(self, tokens)
            self._note_names(tokens)
            if result < len(tokens) and tokens[result].type == TOO_LONG:
                where.report([_too_long(tokens[result])])
                return
            if result == fitting < len(tokens):
                message = f"brackets nest at most {MAX_DEPTH} deep"
                if tokens[fitting].type == "NOT":
                    message = '"not" stands before an atom, not before another "not"'
                elif fitting == MAX_TOKENS:
                    message = f"a statement has at most {MAX_TOKENS} words and signs"
                where.report(
                    [Problem("too-long", message, None, tokens[fitting].start, tokens[fitting].end)]
                )
                return
            line_start = where.line_start(
                tokens[result].start if result < len(tokens) else tokens[-1].start
            )
            problem = explain(
                self.text, tokens, result, line_start, where.column(tokens[0].start) - 1
            )
            where.report([problem])
            if problem.code != "missing-period" or len(self.errors) >= self.max_errors:
                return
            tokens = tokens[result:]  # what follows the missing dot is a statement of its own

    def _read_head(self, tokens: list[Token]) -> None:
        """Read `@module` or `@strict`."""
        if tokens[1].value == MODULE:
            self._read_module(tokens)
        else:
            self._read_strict(tokens)

    def _read_module(self, tokens: list[Token]) -> None:
        """Read the name of the rule set, or report why it has no name."""
        where = _Positions(self, tokens)
        types = [token.type for token in tokens[2:]]
        message = None
        if types not in (["IDENT", "_END"], ["STRING", "_END"]):
            message = "expected the name of a rule set and a period after @module"
        elif not self.is_at_head or self.module is not None:
            message = "@module is the first statement of a text, and the only one of its kind"
        if message is not None:
            hint = 'write "@module access." at the head'
            end = tokens[-1].end
            where.report([Problem("module", message, hint, tokens[0].start, end)])
            return
        name = Lowering(self.text, self._limits, self._yield_now).text(tokens[2])
        self.module = ModuleName(name, where.span(tokens[0].start, tokens[-1].end))

    def _read_strict(self, tokens: list[Token]) -> None:
        """Note that the declared inputs are strict, or report why not."""
        message = None
        if [token.type for token in tokens[2:]] != ["_END"]:
            message = "expected a period after @strict"
        elif not self.is_at_head:
            message = "@strict stands at the head of a text, before its statements"
        if message is not None:
            problem = Problem(
                "strict", message, 'write "@strict."', tokens[0].start, tokens[-1].end
            )
            _Positions(self, tokens).report([problem])
            return
        self.is_strict = True

    def _read_import(self, tokens: list[Token], importing: Importing) -> Iterator[Statement]:
        """Yield the statements of the rule set that is named, at the place of the import; report
        why it cannot be used.
        """
        where = _Positions(self, tokens)
        ends = [token.type for token in tokens[2:]]
        if ends != ["_END"] and (ends or self._needs_final_dot):
            message = "expected the name of a rule set and a period after import"
            hint = 'such as "import memory."'
            where.report([Problem("import", message, hint, tokens[0].start, tokens[-1].end)])
            return
        name = Lowering(self.text, self._limits, self._yield_now).text(tokens[1])
        try:
            statements = importing(name)
        except InvalidInput as error:
            nearest = (error.details or {}).get("hint")
            problem = Problem("import", error.message, nearest, tokens[1].start, tokens[1].end)
            where.report([problem])
            return
        if name not in self.imports:
            self.imports.append(name)
        span = where.span(tokens[0].start, tokens[-1].end)
        for statement in paced(statements, self._yield_now, FACTS_PER_YIELD):
            yield _at(statement, span)

    def refuse_module(self) -> None:
        """Report the name of a rule set in a text that is stored statement by statement."""
        if self.module is None:
            return
        span = self.module.span
        message = "a text with @module is a rule set, which is deployed as a whole"
        source = self.text.split("\n", span.line)[span.line - 1]
        hint = "use kbcore deploy, or leave the line out"
        self.errors.append(diagnostic(span, source, "module", message, hint))

    def _refuse_block(self, header: list[Token]) -> None:
        hint = "keep tests in files of their own, and run them with kbcore test"
        message = f"a {header[0].value} is no fact, rule or query, and cannot be stored"
        problem = Problem("test-block", message, hint, header[0].start, header[1].end)
        _Positions(self, header).report([problem])

    def _note_names(self, tokens: list[Token]) -> None:
        names = (token.value for token in tokens[:MAX_NAMES] if token.type in ("IDENT", "STRING"))
        self.unread_names.update(name.strip("'\"") for name in names)

    def _complete(self, tokens: list[Token]) -> None:
        """Add what a text of one statement may omit: the dot, and the `?-` of a goal."""
        last = tokens[-1]
        if last.type != "_END" and (not self._needs_final_dot or tokens[0].type == "_GOAL"):
            tokens.append(Token("_END", "", last.end, last.end))
        if self._mode == "goal" and tokens[0].type != "_GOAL":
            start = tokens[0].start
            tokens.insert(0, Token("_GOAL", "", start, start))

    def _lower(self, clause: ClauseTree, tokens: list[Token]) -> Iterator[Statement]:
        where = _Positions(self, tokens)
        lowering = self._lowering(where)
        span = where.span(tokens[0].start, tokens[-1].end)
        statement: Statement
        if self._mode not in ("program", "atom" if clause.kind == "fact" else clause.kind):
            expected = {
                "rule": 'a rule: head ":-" body',
                "declaration": 'a declaration: @phrase name/arity "text", or @input name(argument)',
                "goal": "a goal",
                "atom": "a single atom",
            }[self._mode]
            message = f"expected {expected}, found a {clause.kind}"
            where.report(
                [Problem("wrong-statement", message, None, tokens[0].start, tokens[-1].end)]
            )
            return
        is_equivalence = (
            clause.kind == "declaration" and clause.tokens[0].value in EQUIVALENCE_WORDS
        )
        if clause.kind == "constraint" or is_equivalence:
            yield from self._declared_rules(clause, tokens, where)
            return
        if clause.kind == "fact":
            if self._mode == "atom":
                statement = FactStatement(lowering.lone_atom(clause), NO_ANNOTATIONS, span)
            else:
                atom, annotations = lowering.fact(clause)
                statement = FactStatement(atom, annotations, span)
        elif clause.kind == "goal":
            statement = GoalStatement(lowering.body(clause), span)
        elif clause.kind == "declaration":
            declared = lowering.declaration(clause)
            if self.is_strict and isinstance(declared, Input):
                declared = replace(declared, is_strict=True)
            statement = DeclarationStatement(declared, span)
        else:
            text = self.text[tokens[0].start : tokens[-1].end]
            statement = RuleStatement(lowering.rule(clause), span, text=text)
        if lowering.problems:
            self._note_names(tokens)
            where.report(lowering.problems)
            return
        if isinstance(statement, FactStatement | DeclarationStatement):
            yield statement
            return
        predicates = tuple(
            (name, arity, where.span(start, end)) for name, arity, start, end in lowering.predicates
        )
        items = tuple(where.span(node.start, node.end) for node in clause.items)
        if isinstance(statement, GoalStatement):
            yield replace(statement, predicates=predicates, items=items)
            return
        variables = tuple(
            (name, where.span(token.start, token.end)) for name, token in variable_tokens(tokens)
        )
        yield replace(statement, predicates=predicates, variables=variables, items=items)

    def _lowering(self, where: _Positions) -> Lowering:
        spans = where.span if self.is_labelled else None
        return Lowering(self.text, self._limits, self._yield_now, spans)

    def _declared_rules(
        self, clause: ClauseTree, tokens: list[Token], where: _Positions
    ) -> Iterator[Statement]:
        """Yield the rules that a declaration stands for, all at its place."""
        lowering = self._lowering(where)
        word = clause.tokens[0]
        read = lowering.constraint if clause.kind == "constraint" else lowering.equivalence
        rules = read(clause)
        if lowering.problems:
            self._note_names(tokens)
            where.report(lowering.problems)
            return
        predicates = [
            (name, arity, where.span(start, end)) for name, arity, start, end in lowering.predicates
        ]
        word_span = where.span(word.start, word.end)
        span = where.span(tokens[0].start, tokens[-1].end)
        text = self.text[tokens[0].start : tokens[-1].end]
        for rule in rules:
            head = rule.head.predicate, rule.head.arity, word_span
            concluded = () if head[:2] == predicates[0][:2] else (head,)
            yield RuleStatement(rule, span, predicates=(*concluded, *predicates), text=text)

    # ---- positions ----

    def _skip(self, pos: int) -> int:
        """Return the position behind white space and comments."""
        text = self.text
        rested_at, comments = pos, 0
        while True:
            match = _SPACE.match(text, pos, pos + STRETCH_CHARS)
            pos = match.end() if match else pos
            if text.startswith(("%", "#", "//"), pos):
                line_end = text.find("\n", pos)
                pos = len(text) if line_end < 0 else line_end
            elif text.startswith("/*", pos):
                close = text.find("*/", pos + 2)
                if close < 0:
                    return pos
                pos = close + 2
            elif match is None or match.end() - match.start() < STRETCH_CHARS:
                return pos
            comments += 1
            if pos - rested_at >= STRETCH_CHARS or comments == COMMENTS_PER_YIELD:
                rested_at, comments = pos, 0
                self._yield_now()

    def _count_to(self, pos: int) -> None:
        """Count lines up to `pos`; each character is read once, since positions only grow."""
        lines = self.text.count("\n", self._counted, pos)
        if lines:
            self._line += lines
            self._line_start = self.text.rfind("\n", self._counted, pos) + 1
        self._counted = max(pos, self._counted)


_MARKED = {
    **dict.fromkeys(KINDS, "CONSTRAINT"),
    INPUT: "INPUT",
    LEVELS: "DIMENSION",
    GROUPS: "DIMENSION",
    REQUIRES: "REQUIRES",
}
"""The kind of token of each word that begins a declaration with a shape of its own."""


def _mark_declaration(tokens: list[Token]) -> None:
    """Tell the word of a declared constraint, input or dimension from a name, which a colon
    follows, and the types of the arguments of an input from their names.
    """
    if len(tokens) > 2 and tokens[0].type == "_AT" and tokens[1].value in _MARKED:
        word = tokens[1]
        if word.type == "IDENT" and tokens[2].type != "_COLON":
            kind = _MARKED[word.value]
            tokens[1] = Token(kind, word.value, word.start, word.end)
            if kind == "INPUT":
                tokens[3:] = _with_types(tokens[3:])
            elif kind == "DIMENSION":
                tokens[2:] = _with_types(tokens[2:])


def _with_types(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens behind the name of an input, with each colon before a type marked; the
    scanner reads `size:number` as one word.
    """
    for token in tokens:
        name, colon, of_type = token.value.rpartition(":")
        if token.type == "_COLON":
            yield Token(TYPED, ":", token.start, token.end)
        elif token.type == "IDENT" and colon:
            split = token.start + len(name)
            yield Token("IDENT", name, token.start, split)
            yield Token(TYPED, ":", split, split + 1)
            yield Token("IDENT", of_type, split + 1, token.end)
        else:
            yield token


def _is_head_word(tokens: list[Token]) -> bool:
    """Return True for `@module name.` and `@strict.`, False for a rule that has such a name."""
    return (
        len(tokens) > 1
        and tokens[0].type == "_AT"
        and tokens[1].type == "IDENT"
        and tokens[1].value in (MODULE, STRICT)
        and not (len(tokens) > 2 and tokens[2].type == "_COLON")
    )


def _is_import(tokens: list[Token]) -> bool:
    """Return True for `import NAME`, False for an atom of that name."""
    first = tokens[0]
    return (
        len(tokens) > 1
        and (first.type, first.value) == ("IDENT", IMPORT)
        and tokens[1].type in ("IDENT", "STRING")
    )


def _at(statement: Statement, span: TextSpan) -> Statement:
    """Return a statement of another text with all its parts at one place of this text."""
    if not isinstance(statement, RuleStatement):
        return replace(statement, span=span)
    return replace(
        statement,
        span=span,
        variables=tuple((name, span) for name, _ in statement.variables),
        predicates=tuple((name, arity, span) for name, arity, _ in statement.predicates),
        items=(span,) * len(statement.items),
    )


class _Positions:
    """Lines and columns within one statement, from offsets."""

    def __init__(self, reader: StatementReader, tokens: list[Token]) -> None:
        start, end = tokens[0].start, tokens[-1].end
        reader._count_to(start)
        self._reader = reader
        self._line = reader._line
        self._starts = [reader._line_start]
        self._starts += [
            match.end() for match in re.compile("\n").finditer(reader.text, start, end)
        ]

    def line_start(self, offset: int) -> int:
        """Return the offset at which the line of `offset` begins."""
        return self._starts[bisect_right(self._starts, offset) - 1]

    def column(self, offset: int) -> int:
        """Return the column of `offset`."""
        return offset - self.line_start(offset) + 1

    def span(self, start: int, end: int) -> TextSpan:
        """Return the span between two offsets."""
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, max(start, end - 1)) - 1
        return TextSpan(
            self._line + first,
            start - self._starts[first] + 1,
            self._line + last,
            end - self._starts[last] + 1,
        )

    def report(self, problems: list[Problem]) -> None:
        """Add errors to the reader's, at most one per position."""
        text = self._reader.text
        seen: set[int] = set()
        for problem in problems:
            if problem.start in seen or len(self._reader.errors) >= self._reader.max_errors:
                continue
            seen.add(problem.start)
            line_start = self.line_start(problem.start)
            begin = max(line_start, 0)
            end = text.find("\n", begin)
            source = text[begin : len(text) if end < 0 else end].rstrip()
            span = self.span(problem.start, problem.end)
            self._reader.errors.append(
                diagnostic(
                    span,
                    source,
                    problem.code,
                    problem.message,
                    problem.hint,
                    begin - line_start + 1,
                )
            )


def report_problems(text: str, problems: Sequence[Problem]) -> list[Diagnostic]:
    """Return the errors of a text for problems at offsets of the text, in their order."""

    def parse(tokens: list[Token], yield_now: YieldNow) -> int:
        return 0

    errors = []
    for problem in problems:
        reader = StatementReader(text, parse, DEFAULT_LIMITS)
        token = Token("BADCHAR", "", problem.start, problem.end)
        _Positions(reader, [token]).report([problem])
        errors += reader.errors
    return errors


def read_chunks(
    chunks: Iterable[str],
    parse: ParseClause,
    limits: Limits,
    *,
    yield_now: YieldNow | None = None,
    explained: bool = True,
    labelled: bool = False,
    importing: Importing | None = None,
) -> Iterator[Statement]:
    """Read a text that comes in chunks; see `parser.parse_stream`.

    The part of a window that no statement ended in is read again with twice as much text, so that
    the work stays linear for statements of any length. The last chunk is read once.
    """
    errors: list[Diagnostic] = []
    max_errors = MAX_ERRORS if explained else 1
    position, required_size = (1, 1), MIN_WINDOW_CHARS
    parts: list[str] = []
    size = 0
    is_last, is_at_head, is_strict = False, True, False
    following = iter(chunks)
    chunk = next(following, "")
    while not is_last:
        parts.append(chunk)
        size += len(chunk)
        after = next(following, None)
        is_last = after is None
        chunk = after or ""
        if size < required_size and not is_last:
            continue
        reader = StatementReader(
            "".join(parts), parse, limits, position=position, final=is_last, yield_now=yield_now
        )
        reader.explained = explained
        reader.max_errors = max_errors - len(errors)
        reader.is_at_head, reader.is_strict = is_at_head, is_strict
        reader.importing, reader.is_labelled = importing, labelled
        for statement in reader.statements():
            if not errors:
                yield statement
        errors += reader.errors
        if len(errors) >= max_errors:
            break
        is_at_head, is_strict = reader.is_at_head, reader.is_strict
        position = reader.position
        unread = reader.text[reader.pos :]
        parts, size, required_size = [unread], len(unread), len(unread) * 2 + MIN_WINDOW_CHARS
    if errors:
        raise syntax_error(errors)


def _too_long(token: Token) -> Problem:
    message = (
        f"a statement has at most {MAX_STATEMENT_CHARS} characters, not counting those of words, "
        "numbers and quoted texts"
    )
    return Problem("too-long", message, None, token.start, token.end)


def _count_within_limits(tokens: list[Token]) -> int:
    """Count the tokens up to the first that exceeds a limit on tokens, brackets or `not`."""
    depth = negations = 0
    for at, token in enumerate(tokens[:MAX_TOKENS]):
        if token.type == "NOT":
            negations += 1
            if negations > MAX_DEPTH:
                return at
            continue
        negations = 0
        if token.type == "_LPAR":
            depth += 1
            if depth > MAX_DEPTH:
                return at
        elif token.type == "_RPAR":
            depth -= 1
    return min(len(tokens), MAX_TOKENS)
