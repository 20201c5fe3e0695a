"""Messages for the token at which the parser stopped: what was expected there.

The parser's list of acceptable tokens is not shown, because the position is more informative.
"""

from __future__ import annotations

from dataclasses import dataclass

from kbplanner.ir.dimensions import GROUPS, LEVELS
from kbplanner.ir.inputs import INPUT
from kbplanner.ir.masks import MASK
from kbplanner.ir.requirements import REQUIRES
from kbplanner.syntax.arity import nearest_name
from kbplanner.syntax.diagnostics import Problem, excerpt
from kbplanner.syntax.scanner import OPERAND_END, OPERAND_START, Token

_OPERATORS = {
    ":=": ('write ":-" between the head and the body', 'write "=" to compute or compare a value'),
    "=>": ('write ":-" between the head and the body: head :- body', 'write ">="'),
    "⇒": ("write the head first: head :- body", 'write ">="'),
    "→": ("write the head first: head :- body", None),
    "->": ("write the head first: head :- body", None),
    "←": ('write ":-" between the head and the body', None),
    "⇐": ('write ":-" between the head and the body', None),
    "=<": ('write "<="', 'write "<="'),
    "<>": ('write "!="', 'write "!="'),
    "\\=": ('write "!="', 'write "!="'),
    "\\+": ('write "not"', 'write "not"'),
    "¬": ('write "~" for known to be false', 'write "not"'),
}
CORRECT_OPERATORS = {
    ":=": "=",
    "=>": ">=",
    "⇒": ">=",
    "=<": "<=",
    "<>": "!=",
    "\\=": "!=",
    "\\+": "not",
    "¬": "not",
}
"""Operators of other languages, and those of this one that stand in a body in their place."""

_ARROWS = (":=", "=>", "⇒", "→", "->", "←", "⇐")
_AND = ("&", "&&", "∧")
_OPENING = {"_LPAR": "(", "_LSQB": "["}
_CLOSING = {"_RPAR": "_LPAR", "_RSQB": "_LSQB"}
_SIGN_PAIRS = {"(": ")", "[": "]"}
_COMMA_HINT = "put a comma between body atoms"
_APART_HINT = 'end a fact with "."; one statement asserts or concludes one atom'
_ARROW_HINT = 'write ":-" between the head and the body'
_OR_HINT = 'put a comma between body atoms; for "or", write one rule for each case'


@dataclass(frozen=True, slots=True)
class TokenContext:
    """Context of a token in a statement, judged from the tokens before it."""

    open: tuple[Token, ...]
    part: str  # "head", "body", "goal" or "annotations"
    compared: bool  # whether the current body item has a comparison operator
    called: bool  # whether the innermost bracket is the argument list of a name
    naming: bool  # whether the token follows the name after "@"


def context_of(tokens: list[Token], at: int) -> TokenContext:
    """Return the context of `tokens[at]`."""
    stack: list[tuple[Token, bool]] = []
    part, compared = "head", False
    for index in range(at):
        token = tokens[index]
        kind = token.type
        if kind in _OPENING:
            stack.append((token, index > 0 and tokens[index - 1].type in ("IDENT", "STRING")))
            if kind == "_LSQB" and len(stack) == 1:  # inside a bracket it begins a list
                part = "annotations"
        elif kind in _CLOSING and stack:
            stack.pop()
        elif kind == "_ARROW":
            part, compared = "body", False
        elif kind == "_GOAL":
            part, compared = "goal", False
        elif kind == "_COMMA" and not stack:
            compared = False
        elif kind in ("CMP", "EQ"):
            compared = True
    naming = at == 2 and tokens[0].type == "_AT"
    return TokenContext(
        tuple(token for token, _ in stack), part, compared, bool(stack and stack[-1][1]), naming
    )


_CONSTRAINTS = {
    "key": "write @key owns(?car, _).",
    "disjoint": "write @disjoint cat, dog.",
    "total": "write @total person(?x), age(?x, _).",
    INPUT: 'write @input stored(path, size: number) "a file and its size".',
    LEVELS: "write @levels trust: web < user < owner.",
    GROUPS: "write @groups team: hr, eng.",
    REQUIRES: "write @requires pay(?who, ?sum) trust >= user.",
}
"""An example of each declaration of constraints, inputs and dimensions."""


def explain(text: str, tokens: list[Token], at: int, line_start: int, indent: int) -> Problem:
    """Return what is wrong with `tokens[at]`; `at` past the list means the text ended there.

    `line_start` is where the line of that token begins in `text`, `indent` how far the statement's
    first token is from the beginning of its own line.
    """
    is_constraint = _is_constraint(tokens)
    if not is_constraint:
        at = _place_to_explain(tokens, at)
    context = context_of(tokens, at)
    before = tokens[at - 1] if at else None
    token = tokens[at] if at < len(tokens) else None
    if token is not None:
        problem = _bad_token(text, token, context, before)
        if problem is not None:
            return problem
    if context.open and (token is None or token.type in ("_END", "_ARROW", "_GOAL", "_AT")):
        return _unclosed_bracket(text, context.open[-1], token)
    if before is not None:
        if is_constraint and not context.open:
            return _bad_constraint(text, tokens[1].value, token, before)
        if before.type != "STRING" and _is_declaration(tokens, at):
            return _bad_declaration(text, tokens[1].value, token, before)
    if token is None:
        return _at_end(tokens[at - 1], context)
    actual = f"found {_shown(text, token)}"
    if context.part == "head" and not context.open and (problem := _wrong_arrow(tokens, at)):
        return problem
    if before is not None and before.type in OPERAND_END:
        return _after_operand(text, token, before, context, actual, line_start, indent)
    return _at_start(token, before, context, actual)


def _is_constraint(tokens: list[Token]) -> bool:
    return len(tokens) > 1 and tokens[1].type in ("CONSTRAINT", "INPUT", "DIMENSION", "REQUIRES")


def _place_to_explain(tokens: list[Token], at: int) -> int:
    """Return `at`, or the place of the colon that the name of a rule lacks."""
    is_named = at > 2 and tokens[0].type == "_AT" and tokens[2].type in ("IDENT", "STRING")
    return 2 if is_named and tokens[1].value not in DECLARATIONS else at


def _unclosed_bracket(text: str, opening: Token, token: Token | None) -> Problem:
    sign = _OPENING[opening.type]
    closing = _SIGN_PAIRS[sign]
    hint = f'expected "," or "{closing}" before {_shown(text, token)}'
    return Problem(
        "unclosed-bracket", f'this "{sign}" is never closed', hint, opening.start, opening.end
    )


def _unmatched_bracket(token: Token) -> Problem:
    opening = _OPENING[_CLOSING[token.type]]
    message = f'no "{opening}" before this "{_SIGN_PAIRS[opening]}"'
    return Problem("unmatched-bracket", message, None, token.start, token.end)


def _wrong_arrow(tokens: list[Token], at: int) -> Problem | None:
    """Return the problem of `<-` before `tokens[at]`, None without it."""
    if at < 2 or not _is_arrow_to_the_left(tokens[at - 2], tokens[at - 1]):
        return None
    message = 'expected ":-" after the head, found "<-"'
    return Problem("wrong-arrow", message, _ARROW_HINT, tokens[at - 2].start, tokens[at - 1].end)


def _bad_constraint(text: str, word: str, token: Token | None, before: Token) -> Problem:
    actual = "the end of the text" if token is None else _shown(text, token)
    mark = before if token is None else token
    expected = 'predicates with "," between them'
    if word == INPUT:
        expected = "a predicate with names of its arguments, its gloss in quotes"
    elif word == LEVELS:
        expected = 'a name, a colon, levels with "<" between them'
    elif word == GROUPS:
        expected = 'a name, a colon, groups with "," between them'
    elif word == REQUIRES:
        expected = 'a predicate with variables, the name of levels, ">=" and a level'
    message = f'expected {expected} and a final ".", found {actual}'
    return Problem("bad-declaration", message, _CONSTRAINTS[word], mark.start, mark.end)


def _bad_declaration(text: str, word: str, token: Token | None, before: Token) -> Problem:
    actual = "the end of the text" if token is None else _shown(text, token)
    mark = before if token is None else token
    example, rest = _WITH_REST.get(word, (f"{word} same/2", ""))
    message = f"expected the name and arity of a predicate{rest}, found {actual}"
    return Problem("bad-declaration", message, f"write @{example}.", mark.start, mark.end)


def _is_arrow_to_the_left(first: Token, second: Token) -> bool:
    return first.value == "<" and second.type == "MINUS" and first.end == second.start


EQUIVALENCE_WORDS = ("equivalence", "canonical")
"""Words of declarations about an equivalence relation, which are read as rules."""

DECLARATIONS = ("phrase", MASK, *EQUIVALENCE_WORDS)
"""Words after `@` that begin a declaration."""


_DECLARING = (*DECLARATIONS, *_CONSTRAINTS, "module", "strict")
"""All words of this language after `@`."""

_WITH_REST = {
    "phrase": ('phrase works_at/2 "{0} works at {1}"', " and its phrase in quotes"),
    MASK: ("mask can_read/2 1", " and numbers of arguments"),
}
"""An example of a declaration in which something follows the predicate, and what it is."""


def _is_declaration(tokens: list[Token], at: int) -> bool:
    """Return whether a statement begins like `@phrase works_at/2`, not like a rule with a name."""
    return (
        at > 1
        and tokens[0].type == "_AT"
        and tokens[1].value in DECLARATIONS
        and (at == 2 or tokens[2].type != "_COLON")
        and at <= 5
    )


def _bad_token(
    text: str, token: Token, context: TokenContext, before: Token | None
) -> Problem | None:
    kind, value = token.type, token.value
    if kind == "BADOP":
        return _bad_operator(token, context)
    if kind == "QMARK":
        message, hint = 'a variable needs a name after "?"', 'write ?x, or "_" for "any value"'
        return Problem("lone-question-mark", message, hint, token.start, token.end)
    if kind == "BADVAR":
        hint = "a variable's name has the letters A to Z, a to z, digits and _, and starts with no digit"
        return Problem(
            "bad-variable", f'"{excerpt(value)}" is not a variable', hint, token.start, token.end
        )
    if kind == "BADWORD":
        hint = f'for text, quote it: "{excerpt(value)}"'
        if value.startswith("_"):
            hint += f"; for a variable, write ?{excerpt(value)}"
        return Problem(
            "bad-word",
            f'"{excerpt(value)}" is neither a word nor a number',
            hint,
            token.start,
            token.end,
        )
    if kind == "SMART":
        message = f"typographic quotes do not quote: found {value}"
        return Problem(
            "smart-quote",
            message,
            "write straight quotes: \"text\" or 'text'",
            token.start,
            token.end,
        )
    if kind == "OPENQUOTE":
        hint = f"close it with {value} on the same line; write \\n for a line break inside"
        return Problem(
            "unclosed-quote", f"this {value} is never closed", hint, token.start, token.end
        )
    if kind == "OPENCOMMENT":
        return Problem(
            "unclosed-comment",
            'this "/*" is never closed',
            'close it with "*/"',
            token.start,
            token.end,
        )
    if kind == "BADCHAR":
        actual = value if value.isprintable() else f"U+{ord(value):04X}"
        hint = "quote text that is not a plain word"
        if value == "!":
            hint = 'write "not" before an atom, "!=" between values'
        return Problem(
            "bad-character", f'unexpected character "{actual}"', hint, token.start, token.end
        )
    return None


def _bad_operator(token: Token, context: TokenContext) -> Problem:
    value = token.value
    in_head = context.part == "head" and not context.open
    if value in _AND or value in ("||", "|", ";", "∨"):
        hint: str | None = _COMMA_HINT if value in _AND else _OR_HINT
        expected = '"," between atoms'
        if context.open:
            expected, hint = '"," between arguments', "put a comma between arguments"
        elif in_head:
            expected, hint = '":-" or "." after an atom', _APART_HINT
        return Problem(
            "wrong-conjunction",
            f'expected {expected}, found "{value}"',
            hint,
            token.start,
            token.end,
        )
    head_hint, body_hint = _OPERATORS[value]
    if in_head and value in _ARROWS:
        message = f'expected ":-" after the head, found "{value}"'
        return Problem("wrong-arrow", message, head_hint, token.start, token.end)
    hint = head_hint if in_head else body_hint
    return Problem(
        "wrong-operator", f'"{value}" is not an operator here', hint, token.start, token.end
    )


def _at_end(before: Token, context: TokenContext) -> Problem:
    if before.type in OPERAND_END:
        message, hint = (
            'expected "." at the end of the statement',
            "end every fact, rule and goal with a dot",
        )
        return Problem("missing-period", message, hint, before.end, before.end + 1)
    message = f"expected {_expected_after(before, context)}, found the end of the text"
    return Problem("unfinished", message, None, before.start, before.end)


def _after_operand(
    text: str,
    token: Token,
    before: Token,
    context: TokenContext,
    actual: str,
    line_start: int,
    indent: int,
) -> Problem:
    word = token.value.casefold() if token.type == "IDENT" else ""
    if token.type in _CLOSING and (
        not context.open or context.open[-1].type != _CLOSING[token.type]
    ):
        return _unmatched_bracket(token)
    if context.open:
        return _inside_brackets(text, token, before, context, actual)
    own_line = not text[line_start : token.start].strip() and before.end <= line_start
    starts_statement = token.type in OPERAND_START or token.type in ("_AT", "_GOAL")
    if own_line and starts_statement and token.start - line_start <= indent:
        message, hint = (
            'expected "." at the end of the statement',
            "end every fact, rule and goal with a dot",
        )
        return Problem("missing-period", message, hint, before.end, before.end + 1)
    if word == "and" or word == "or":
        return _wrong_conjunction(token, word, context, actual)
    if word == "is" and before.type == "VAR":
        message = f"expected a comparison, {actual}"
        return Problem(
            "wrong-operator", message, 'write "=" to compute a value', token.start, token.end
        )
    following, advice = _following(before, context)
    if context.part == "head" and not context.naming and before.type != "_RSQB":
        advice = _hint_after_a_head(token, word, starts_statement)
    if advice is None and context.part in ("body", "goal"):
        advice = _hint_after_an_item(token, context, starts_statement)
    return Problem("syntax", f"expected {following}, {actual}", advice, token.start, token.end)


def _wrong_conjunction(token: Token, word: str, context: TokenContext, actual: str) -> Problem:
    """Return the problem of the word `and` or `or` after an atom."""
    if context.part == "head":
        expected, hint = '":-" or "."', _APART_HINT
    else:
        expected, hint = '"," or "."', _COMMA_HINT if word == "and" else _OR_HINT
    message = f"expected {expected} after an atom, {actual}"
    return Problem("wrong-conjunction", message, hint, token.start, token.end)


def _following(before: Token, context: TokenContext) -> tuple[str, str | None]:
    """Return what must follow the operand `before`, and a hint for all that may stand there."""
    if context.naming:
        hint = 'write a space after ":"' if ":" in before.value else None
        if declaration := nearest_name(before.value, _DECLARING):
            hint = f"did you mean @{declaration}?"
        return '":" after the rule\'s name', hint
    if before.type == "_RSQB":
        return '"." after the annotations', None
    if context.part == "head":
        return '":-" or "." after an atom', None
    if context.compared:
        return '"," or "." after a comparison', None
    if before.type in ("VAR", "ANON", "NUMBER"):
        hint = "a body item is an atom, like p(?x), or a comparison, like ?x < 3"
        return f'a comparison after "{before.value}"', hint
    return '"," or "." after an atom', None


def _hint_after_a_head(token: Token, word: str, starts_statement: bool) -> str | None:
    if word in ("if", "when", "where"):
        return 'write ":-" between the head and the body'
    if token.type == "_COMMA":
        return 'end a fact with "."; to ask several atoms at once, put "?-" before them'
    if starts_statement:
        return 'end a fact with "."; for a rule, write ":-" between the head and the body'
    return None


def _hint_after_an_item(token: Token, context: TokenContext, starts_statement: bool) -> str | None:
    if token.type == "_ARROW":
        return 'a rule has one ":-"; end the statement before it with "."'
    if token.type == "_LSQB":
        return "a goal has no annotations" if context.part == "goal" else None
    return _COMMA_HINT if starts_statement else None


def _inside_brackets(
    text: str, token: Token, before: Token, context: TokenContext, actual: str
) -> Problem:
    if context.open[-1].type == "_LSQB" and len(context.open) > 1:
        hint = "put a comma between elements" if token.type in OPERAND_START else None
        message = f'expected "," or "]" after an element of a list, {actual}'
        return Problem("syntax", message, hint, token.start, token.end)
    if context.open[-1].type == "_LSQB":
        if before.type == "IDENT" and text[: before.start].rstrip()[-1] in "[,":
            message = f'expected "=" after "{excerpt(before.value)}", {actual}'
            return Problem("syntax", message, "an annotation is name=value", token.start, token.end)
        hint = (
            'a date is quoted: "2025-01-01T00:00:00Z"'
            if token.type in ("_COLON", "MINUS")
            else None
        )
        return Problem(
            "syntax",
            f'expected "," or "]" after an annotation, {actual}',
            hint,
            token.start,
            token.end,
        )
    if not context.called:
        hint = "parentheses group values, not atoms" if token.type == "_COMMA" else None
        return Problem("syntax", f'expected ")", {actual}', hint, token.start, token.end)
    hint = None
    if before.type == token.type == "IDENT":
        words = excerpt(text[before.start : token.end])
        hint = f'put a comma between arguments; text of several words is quoted: "{words}"'
    elif token.type in OPERAND_START:
        hint = "put a comma between arguments"
    elif token.type in ("CMP", "EQ"):
        hint = "a comparison is a body item of its own"
    return Problem(
        "syntax", f'expected "," or ")" after an argument, {actual}', hint, token.start, token.end
    )


def _at_start(token: Token, before: Token | None, context: TokenContext, actual: str) -> Problem:
    hint = None
    if before is None:
        if token.type == "_END":
            hint = "remove the dot"
        elif token.type == "_ARROW":
            hint = 'a rule has a head before ":-"; a question starts with "?-"'
    elif before.type == "_ARROW" and token.type == "_END":
        message = 'expected an atom after ":-", found "."'
        return Problem(
            "empty-body", message, 'assert it as a fact: leave out ":-"', token.start, token.end
        )
    elif before.type == "MINUS" and token.type in ("VAR", "_LPAR", "IDENT"):
        hint = "to change the sign of a value, write 0 - value"
    elif before.type == "_COMMA" and token.type in ("_END", "_RPAR") and token.end > token.start:
        hint = "remove the comma"
    elif context.open and token.type == "NOT":
        hint = 'to mean the word, quote it: "not"'
    return Problem(
        "syntax",
        f"expected {_expected_after(before, context)}, {actual}",
        hint,
        token.start,
        token.end,
    )


def _expected_after(before: Token | None, context: TokenContext) -> str:
    """Return what belongs after a token that ends nothing."""
    if before is None:
        return "a fact, a rule or a goal"
    after = f' after "{before.value}"'
    if before.type == "_AT":
        return "the rule's name" + after
    if before.type == "_COLON":
        return "the head of the rule after its name"
    if context.open and context.open[-1].type == "_LSQB" and len(context.open) > 1:
        return "an element of a list" + after
    if context.open and context.open[-1].type == "_LSQB":
        return ("a value" if before.type in ("EQ", "MINUS") else "name=value") + after
    if before.type in ("CMP", "EQ", "PLUS", "MINUS", "STAR", "SLASH", "DIV", "MOD"):
        return "a value" + after
    if context.open:
        return ("an argument" if context.called else "a value") + after
    return "an atom" + after


def _shown(text: str, token: Token | None) -> str:
    if token is None or token.start == token.end:
        return "the end of the text"
    excerpt_text = excerpt(text[token.start : token.end])
    return excerpt_text if token.type == "STRING" else f'"{excerpt_text}"'
