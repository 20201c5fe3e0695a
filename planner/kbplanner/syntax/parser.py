"""Text in the rule language to statements, rules, goals and atoms.

The parser is lark's LALR(1). The scanner of this package feeds it one statement at a time, so that
an error affects one statement only, all errors of a text are reported together, and texts may be of
any length. Lark is loaded with the first text that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from kbplanner.errors import InvalidInput
from kbplanner.ir.limits import DEFAULT_LIMITS, Limits
from kbplanner.ir.phrases import Phrase
from kbplanner.ir.terms import Atom, BodyItem, Expr, Literal, Rule
from kbplanner.syntax.diagnostics import Diagnostic, syntax_error
from kbplanner.syntax.lowering import Lowering
from kbplanner.syntax.plain_goals import plain_goal
from kbplanner.syntax.reader import Reader, read_chunks
from kbplanner.syntax.scanner import Token, scan_statement
from kbplanner.syntax.statements import (
    FactStatement,
    GoalStatement,
    PhraseStatement,
    RuleStatement,
    Span,
    Statement,
)
from kbplanner.syntax.tree import Clause, Node, TreeMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lark import Lark


def parse_program(
    text: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    final_dot: bool = True,
    rest: Callable[[], None] | None = None,
) -> list[Statement]:
    """Read all statements of a text; `rest` is called after each, which takes about a millisecond.

    Raises RuleSyntaxError with every independent error. The last goal may lack its dot, and without
    `final_dot` every last statement.
    """
    mode = "program" if final_dot else "clauses"
    return _rested(read_chunks((text,), parse_clause, limits, mode=mode), rest)


def _rested(statements: Iterable[Statement], rest: Callable[[], None] | None) -> list[Statement]:
    """Return the statements, and call `rest` after each of them has been read."""
    if rest is None:
        return list(statements)
    read: list[Statement] = []
    for statement in statements:
        read.append(statement)
        rest()
    return read


def parse_stream(chunks: Iterable[str], limits: Limits = DEFAULT_LIMITS) -> Iterator[Statement]:
    """Read the statements of a text that comes in chunks, cut anywhere; holds about one chunk at a
    time.

    Raises RuleSyntaxError at the end of the text, with every independent error; no statement is
    yielded after the first error. A caller that must not act on a text with errors reads the
    iterator to its end first.
    """
    return read_chunks(chunks, parse_clause, limits)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text with errors: the statements that have none, the errors, and the words of the others."""

    statements: list[Statement]
    errors: list[Diagnostic]
    unread_names: set[str]


def parse_valid(
    text: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    mode: str = "program",
    max_errors: int,
    rest: Callable[[], None] | None = None,
) -> Parsed:
    """Read a text that may have errors, at most `max_errors`. The modes are those of `Reader`.

    `rest` is called after each statement.
    """
    reader = Reader(text, parse_clause, limits, mode=mode)
    reader.max_errors = max_errors
    statements = _rested(reader.statements(after_errors=True), rest)
    return Parsed(statements, reader.errors, reader.unread_names)


def parse_rule(text: str, limits: Limits = DEFAULT_LIMITS) -> Rule:
    """Read one rule; the final dot may be missing. Raises RuleSyntaxError. `check_rule` checks
    safety.
    """
    return cast(RuleStatement, _single(text, "rule", limits)).rule


def parse_phrase(text: str, limits: Limits = DEFAULT_LIMITS) -> Phrase:
    """Read one declaration of a phrase; the final dot may be missing. Raises RuleSyntaxError."""
    return cast(PhraseStatement, _single(text, "declaration", limits)).phrase


def parse_goal(text: str, limits: Limits = DEFAULT_LIMITS) -> GoalStatement:
    """Read one goal; `?-` and the final dot may be missing. Raises RuleSyntaxError."""
    plain = plain_goal(text, limits)
    if plain is None:
        return cast(GoalStatement, _single(text, "goal", limits))
    atom, start, end = plain
    name = Span(1, start + 1, 1, start + 1 + len(atom.predicate))
    last = len(text[: text.rindex(")", start, end)].rstrip())  # as the grammar: without the bracket
    item = Span(1, start + 1, 1, last + 1)
    span = Span(1, start + 1, 1, end + 1)
    return GoalStatement((Literal(atom),), span, ((atom.predicate, atom.arity, name),), (item,))


def parse_body(text: str, limits: Limits = DEFAULT_LIMITS) -> tuple[BodyItem, ...]:
    """Read the items of one goal, as `parse_goal` does, without their places in the text."""
    plain = plain_goal(text, limits)
    if plain is None:
        return cast(GoalStatement, _single(text, "goal", limits)).body
    return (Literal(plain[0]),)


def parse_atom(text: str, limits: Limits = DEFAULT_LIMITS) -> Atom:
    """Read one signed atom, variables allowed; `~p(a)` and `not p(a)` are both the explicit
    negative.

    Raises RuleSyntaxError.
    """
    plain = plain_goal(text, limits)
    return plain[0] if plain else cast(FactStatement, _single(text, "atom", limits)).atom


def parse_expression(text: str, limits: Limits = DEFAULT_LIMITS) -> Expr:
    """Read an expression such as `?x + 1`. Raises InvalidInput, whose message says what is wrong."""
    tokens, _ = scan_statement(text, 0)
    if tokens and tokens[-1].type != "_END":
        node = _feed("expression", [*tokens, Token("_END", "", len(text), len(text))])
        if isinstance(node, Node):
            lowering = Lowering(text, limits)
            expr = lowering.expression(node)
            if lowering.problems:
                raise InvalidInput(lowering.problems[0].message)
            return expr
    raise InvalidInput("not an expression")


def parse_clause(tokens: list[Token]) -> Clause | int:
    """Run the grammar on the tokens of a statement: its tree, or the index of the token it stopped
    at.
    """
    result = _feed("statement", tokens)
    return result if isinstance(result, int) else cast(Clause, result)


def _single(text: str, mode: str, limits: Limits) -> Statement:
    reader = Reader(text, parse_clause, limits, mode=mode)
    statements = list(reader.statements())
    if reader.errors:
        raise syntax_error(reader.errors)
    if len(statements) != 1:
        raise InvalidInput(f"expected one {mode}, found {len(statements)}")
    return statements[0]


def _feed(start: str, tokens: list[Token]) -> Clause | Node | int:
    from lark.exceptions import UnexpectedToken

    state: Any = _grammar().parse_interactive(start=start).parser_state
    at = 0
    try:
        while at < len(tokens):
            state.feed_token(tokens[at])
            at += 1
        return cast("Clause | Node", state.feed_token(Token("$END", "", 0, 0), True))
    except UnexpectedToken:
        return at


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
