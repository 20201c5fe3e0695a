"""Text in the rule language to statements, rules, goals and atoms.

The parser is lark's LALR(1). The scanner of this package feeds it one statement at a time, so that
an error affects one statement only, all errors of a text are reported together, and texts may be of
any length. Lark is loaded with the first text that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from kbplanner.errors import InvalidInput
from kbplanner.ir.limits import DEFAULT_LIMITS, MAX_TOKENS, Limits, shortened
from kbplanner.ir.phrases import Declaration
from kbplanner.ir.terms import Atom, BodyItem, Expr, Literal, Rule
from kbplanner.pacing import YieldNow, current_yield, go_on
from kbplanner.syntax.arity import nearest_name
from kbplanner.syntax.diagnostics import Diagnostic, syntax_error
from kbplanner.syntax.imports import installed, text_of
from kbplanner.syntax.lowering import Lowering
from kbplanner.syntax.plain_goals import plain_goal
from kbplanner.syntax.reader import StatementReader, read_chunks
from kbplanner.syntax.scanner import Token, scan_statement
from kbplanner.syntax.statements import (
    DeclarationStatement,
    FactStatement,
    GoalStatement,
    ModuleName,
    RuleStatement,
    Statement,
    TextSpan,
)
from kbplanner.syntax.tree import ClauseTree, Node, TreeMaker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lark import Lark


MAX_GOAL_BYTES = 64 * 1024
"""Maximum size of a goal as text, in UTF-8; a goal as JSON may have longer constants."""

MAX_CACHED_CHARS = 200
"""Length of the longest goal that is cached with its items; it is read in a millisecond or two."""

CACHED_GOALS = 4096
"""Number of cached goals: a few megabytes at most."""

PARSED_PER_YIELD = 100
"""Tokens parsed between two calls of `yield_now`: about a millisecond."""


def parse_program(
    text: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    final_dot: bool = True,
    labelled: bool = False,
    yield_now: YieldNow | None = None,
) -> list[Statement]:
    """Read all statements of a text; `yield_now` is called about once a millisecond.

    Raises RuleSyntaxError with every independent error, also for a text with `@module`, which is
    deployed as a whole. The last goal may lack its dot, and without `final_dot` every last
    statement. In a `labelled` text facts and rules may have labels, which the one who stores them
    checks.
    """
    reader = StatementReader(
        text, parse_clause, limits, mode="program" if final_dot else "clauses", yield_now=yield_now
    )
    reader.importing, reader.is_labelled = _Importing(yield_now), labelled
    statements: list[Statement] = []
    statements += reader.statements()  # unlike `list()`: at a deadline the caller finds them here
    reader.refuse_module()
    if reader.errors:
        raise syntax_error(reader.errors)
    return statements


def parse_stream(
    chunks: Iterable[str],
    limits: Limits = DEFAULT_LIMITS,
    yield_now: YieldNow | None = None,
    *,
    explained: bool = True,
    labelled: bool = False,
) -> Iterator[Statement]:
    """Read the statements of a text that comes in chunks, cut anywhere; holds about one chunk at a
    time.

    Raises RuleSyntaxError with every independent error, at the end of the text or after MAX_ERRORS
    of them; no statement is yielded after the first error. Unless errors are `explained`, it is
    raised at the first one and does not say what is wrong, so that prose costs little. A caller
    that must not act on a text with errors reads the iterator to its end first. `@module` at its
    head is no statement. `labelled` is as for `parse_program`, and `yield_now` is called about once
    a millisecond.
    """
    return read_chunks(
        chunks,
        parse_clause,
        limits,
        yield_now=yield_now,
        explained=explained,
        labelled=labelled,
        importing=_Importing(yield_now),
    )


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text with errors: the statements that have none, the errors, the words of the others, the
    rule set that `@module` names, whether the text has `@strict`, and the rule sets that it
    imports, whose statements are not among its own.
    """

    statements: list[Statement]
    errors: list[Diagnostic]
    unread_names: set[str]
    module: ModuleName | None = None
    is_strict: bool = False
    imports: tuple[str, ...] = ()


def parse_valid(
    text: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    mode: str = "program",
    max_errors: int,
    labelled: bool = False,
    yield_now: YieldNow | None = None,
    known: Mapping[str, RuleStatement] | None = None,
) -> Parsed:
    """Read a text that may have errors, at most `max_errors`. The modes are those of
    `StatementReader`, and `labelled` is as for `parse_program`. Rules whose text is in `known` are
    not read again.

    `yield_now` is called about once a millisecond.
    """
    reader = StatementReader(text, parse_clause, limits, mode=mode, yield_now=yield_now)
    reader.max_errors = max_errors
    reader.importing, reader.is_labelled = _Importing(yield_now, is_expanding=False), labelled
    reader.known = known or {}
    return _parsed(reader)


def _parsed(reader: StatementReader) -> Parsed:
    statements: list[Statement] = []
    statements += reader.statements(after_errors=True)  # as in `parse_program`
    return Parsed(
        statements,
        reader.errors,
        reader.unread_names,
        reader.module,
        reader.is_strict,
        tuple(reader.imports),
    )


_imported: dict[str, Parsed] = {}
"""The installed rule sets that were read, by name."""


def imported_sets(names: Iterable[str], yield_now: YieldNow | None = None) -> dict[str, Parsed]:
    """Return installed rule sets and those that they import, each once, by name; a set follows
    those that it imports.

    Raises InvalidInput for a name that is not installed, and for a rule set that imports itself or
    has errors or queries.
    """
    sets: dict[str, Parsed] = {}
    open_names: list[str] = []

    def add(name: str) -> None:
        if name in sets:
            return
        if name in open_names:
            ring = ", ".join([*open_names[open_names.index(name) :], name])
            raise InvalidInput(f"the rule set '{name}' imports itself: {ring}")
        open_names.append(name)
        if name not in _imported:
            _imported[name] = _read_installed(name, yield_now)
        for inner in _imported[name].imports:
            add(inner)
        sets[open_names.pop()] = _imported[name]

    for name in names:
        add(name)
    return sets


def _read_installed(name: str, yield_now: YieldNow | None) -> Parsed:
    known = installed()
    if name not in known:
        nearest = nearest_name(name, known)
        hint = f"did you mean {nearest}?" if nearest else f"installed: {', '.join(sorted(known))}"
        raise InvalidInput(f"there is no installed rule set '{shortened(name)}'", {"hint": hint})
    try:
        text = text_of(name)
    except (OSError, ImportError, ValueError) as error:
        raise InvalidInput(f"the installed rule set '{name}' cannot be read") from error
    reader = StatementReader(text, parse_clause, DEFAULT_LIMITS, yield_now=yield_now)
    reader.importing = lambda inner: ()
    parsed = _parsed(reader)
    if parsed.errors:
        first = parsed.errors[0]
        raise InvalidInput(
            f"the installed rule set '{name}' has an error at line {first.line}: {first.message}"
        )
    if any(isinstance(each, GoalStatement) for each in parsed.statements):
        raise InvalidInput(f"the installed rule set '{name}' has a query")
    return parsed


class _Importing:
    """Finds the rule sets that a text imports, each once.

    Unless it `is_expanding`, names are checked only, and no statements are returned.
    """

    def __init__(self, yield_now: YieldNow | None, *, is_expanding: bool = True) -> None:
        self._yield_now = yield_now
        self._is_expanding = is_expanding
        self._done: set[str] = set()

    def __call__(self, name: str) -> list[Statement]:
        """Return the statements of a rule set and those that it imports; raises InvalidInput."""
        sets = imported_sets([name], self._yield_now)
        new = sets.keys() - self._done if self._is_expanding else ()
        self._done.update(new)
        return [
            statement
            for each, parsed in sets.items()
            if each in new
            for statement in parsed.statements
        ]


def module_of(text: str) -> str | None:
    """Return the name of the rule set that `@module` at the head of a text gives, None without
    one. Errors of the text are not reported.
    """
    reader = StatementReader(text, parse_clause, DEFAULT_LIMITS)
    next(reader.statements(after_errors=True), None)
    return None if reader.module is None else reader.module.name


def parse_rule(
    text: str, limits: Limits = DEFAULT_LIMITS, yield_now: YieldNow | None = None
) -> Rule:
    """Read one rule; the final dot may be missing. Raises RuleSyntaxError. `check_rule` checks
    safety.
    """
    return cast(RuleStatement, _single(text, "rule", limits, yield_now)).rule


def parse_declaration(text: str, limits: Limits = DEFAULT_LIMITS) -> Declaration:
    """Read one declaration of a phrase or an input; the final dot may be missing.

    Raises RuleSyntaxError.
    """
    return cast(DeclarationStatement, _single(text, "declaration", limits)).declaration


def parse_goal(
    text: str, limits: Limits = DEFAULT_LIMITS, yield_now: YieldNow | None = None
) -> GoalStatement:
    """Read one goal; `?-` and the final dot may be missing. Raises RuleSyntaxError.

    `yield_now` is called about once a millisecond.
    """
    check_goal_size(text)
    plain = plain_goal(text, limits)
    if plain is None:
        return cast(GoalStatement, _single(text, "goal", limits, yield_now))
    atom, start, end = plain
    name = TextSpan(1, start + 1, 1, start + 1 + len(atom.predicate))
    last = len(text[: text.rindex(")", start, end)].rstrip())  # as the grammar: without the bracket
    item = TextSpan(1, start + 1, 1, last + 1)
    span = TextSpan(1, start + 1, 1, end + 1)
    return GoalStatement((Literal(atom),), span, ((atom.predicate, atom.arity, name),), (item,))


def parse_body(
    text: str, limits: Limits = DEFAULT_LIMITS, yield_now: YieldNow | None = None
) -> tuple[BodyItem, ...]:
    """Read the items of one goal, as `parse_goal` does, without their places in the text.

    Programs ask the same short goals again and again: what was read last is cached.
    """
    if limits is DEFAULT_LIMITS and len(text) <= MAX_CACHED_CHARS:
        return _short_body(text)
    return _body(text, limits, yield_now)


@lru_cache(maxsize=CACHED_GOALS)
def _short_body(text: str) -> tuple[BodyItem, ...]:
    return _body(text, DEFAULT_LIMITS)


def _body(text: str, limits: Limits, yield_now: YieldNow | None = None) -> tuple[BodyItem, ...]:
    check_goal_size(text)
    plain = plain_goal(text, limits)
    if plain is None:
        return cast(GoalStatement, _single(text, "goal", limits, yield_now)).body
    return (Literal(plain[0]),)


def check_goal_size(text: str, path: str | None = None) -> None:
    """Raise InvalidInput, naming the field at `path`, if a goal is too long to be read."""
    # A code point takes at most four bytes: so most texts need not be encoded.
    if len(text) * 4 > MAX_GOAL_BYTES and len(text.encode("utf-8", "replace")) > MAX_GOAL_BYTES:
        problem = f"a goal has at most {MAX_GOAL_BYTES} bytes as text"
        raise InvalidInput(problem) if path is None else InvalidInput.at(path, problem)


def parse_atom(
    text: str, limits: Limits = DEFAULT_LIMITS, yield_now: YieldNow | None = None
) -> Atom:
    """Read one signed atom, variables allowed; `~p(a)` and `not p(a)` are both the explicit
    negative.

    Raises RuleSyntaxError.
    """
    plain = plain_goal(text, limits)
    return plain[0] if plain else cast(FactStatement, _single(text, "atom", limits, yield_now)).atom


def parse_expression(text: str, limits: Limits = DEFAULT_LIMITS) -> Expr:
    """Read an expression such as `?x + 1`. Raises InvalidInput, whose message says what is
    wrong.
    """
    yield_now = current_yield()
    tokens, _ = scan_statement(text, 0, yield_now)
    if tokens and tokens[-1].type != "_END" and len(tokens) < MAX_TOKENS:
        node = _feed("expression", [*tokens, Token("_END", "", len(text), len(text))], yield_now)
        if isinstance(node, Node):
            lowering = Lowering(text, limits, yield_now)
            expr = lowering.expression(node)
            if lowering.problems:
                raise InvalidInput(lowering.problems[0].message)
            return expr
    raise InvalidInput("not an expression")


def parse_clause(tokens: list[Token], yield_now: YieldNow = go_on) -> ClauseTree | int:
    """Run the grammar on the tokens of a statement: its tree, or the index of the token it stopped
    at. `yield_now` is called about once a millisecond.
    """
    result = _feed("statement", tokens, yield_now)
    return result if isinstance(result, int) else cast(ClauseTree, result)


def _single(text: str, mode: str, limits: Limits, yield_now: YieldNow | None = None) -> Statement:
    reader = StatementReader(text, parse_clause, limits, mode=mode, yield_now=yield_now)
    statements = list(islice(reader.statements(), 3))
    if reader.errors:
        raise syntax_error(reader.errors)
    if len(statements) != 1:
        more = " or more" if len(statements) == 3 else ""
        raise InvalidInput(f"expected one {mode}, found {len(statements)}{more}")
    return statements[0]


def _feed(start: str, tokens: list[Token], yield_now: YieldNow = go_on) -> ClauseTree | Node | int:
    from lark.exceptions import UnexpectedToken

    state: Any = _grammar().parse_interactive(start=start).parser_state
    at = 0
    try:
        while at < len(tokens):
            state.feed_token(tokens[at])
            at += 1
            if not at % PARSED_PER_YIELD:
                yield_now()
        return cast("ClauseTree | Node", state.feed_token(Token("$END", "", 0, 0), True))
    except UnexpectedToken:
        return at


def load_grammar() -> None:
    """Load the grammar, about 0.2 s in one go, so that the first text does not wait for it."""
    _grammar()


@lru_cache(maxsize=1)
def _grammar() -> Lark:
    from lark import Lark
    from lark.lexer import Lexer

    class Fed(Lexer):
        """Stands in for lark's lexer: tokens are fed by hand."""

        def __init__(self, lexer_conf: Any) -> None:
            pass

        def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Any]:
            return iter(())

    grammar = (files("kbplanner.syntax") / "grammar.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer=Fed,
        start=["statement", "expression"],
        transformer=cast(Any, TreeMaker()),
    )
