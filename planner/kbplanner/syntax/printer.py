"""Printer of terms as canonical text, which parses back to the same term.

`parse(print(x)) == x` for all rules and atoms, including those read from JSON: names and constants
that are not plain words or numbers are quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from kbplanner.ir.conditions import condition_of, generator_of
from kbplanner.ir.dimensions import GROUPS, LEVELS, Dimension, WrittenLabel
from kbplanner.ir.inputs import Input
from kbplanner.ir.masks import Mask
from kbplanner.ir.operators import (
    AGGREGATES,
    ARITHMETIC,
    COMPARISONS,
    OPPOSITE,
    PRODUCTS,
    needs_quotes,
)
from kbplanner.ir.phrases import Declaration
from kbplanner.ir.requirements import REQUIRES, Requirement
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    Atom,
    BodyItem,
    Comparison,
    Expr,
    Extremum,
    HeadTerm,
    Literal,
    Rule,
    Variable,
)
from kbplanner.ir.values.words import is_plain, is_word
from kbplanner.syntax.statements import NO_ANNOTATIONS, Annotations

_SPECIAL = re.compile(r"[^ !#-&(-\[\]-~]")
"""Characters that may need an escape: all but printable ASCII without quotes and backslash."""

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def print_constant(text: str) -> str:
    """Return a constant as an author writes it: plain if it is a word or a number, else in double
    quotes.
    """
    return text if is_plain(text) else _quoted(text, '"')


def print_term(term: HeadTerm) -> str:
    """Return the text of an argument of an atom."""
    if isinstance(term, str):
        return print_constant(term)
    if isinstance(term, Aggregate):
        return f"{term.function}({'*' if term.variable is None else term.variable})"
    if isinstance(term, Extremum):
        return f"{term.function} {term.variable}"
    return str(term)


def print_atom(atom: Atom) -> str:
    """Return an atom as text: `p(a, ?x)`, `~p(a)` for the explicit negative, `p` without
    arguments.
    """
    return ("" if atom.positive else "~") + _unsigned(atom, False)


def print_fact(atom: Atom, annotations: Annotations = NO_ANNOTATIONS) -> str:
    """Return a fact as a statement: the atom, its annotations if it has any, and a final dot."""
    notes = list(map(_label, annotations.labels))
    if annotations.confidence is not None:
        notes.append(f"confidence={annotations.confidence!r}")
    if annotations.ttl is not None:
        notes.append(f"ttl={_time(annotations.ttl)}")
    if annotations.scope is not None:
        notes.append(f"scope={print_constant(annotations.scope)}")
    for name, instant in (
        ("validFrom", annotations.valid_from),
        ("validUntil", annotations.valid_until),
    ):
        if instant is not None:
            notes.append(f"{name}={_time(instant)}")
    if annotations.metadata is not None:
        text = json.dumps(dict(annotations.metadata), ensure_ascii=False)
        notes.append("metadata=" + _quoted(text, "'"))
    return f"{print_atom(atom)}{' [' + ', '.join(notes) + ']' if notes else ''}."


def _label(label: WrittenLabel) -> str:
    values = ", ".join(map(print_constant, label.values))
    return f"{label.name}={f'({values})' if label.is_list else values}"


def _time(value: int | str) -> str:
    return str(value) if isinstance(value, int) else _quoted(value, '"')


def print_declaration(declared: Declaration) -> str:
    """Return a declaration as a statement, such as `@phrase works_at/2 "{0} works at {1}"`
    and a dot.
    """
    if isinstance(declared, Dimension):
        word, sign = (LEVELS, " < ") if declared.is_ordered else (GROUPS, ", ")
        return f"@{word} {declared.name}: {sign.join(declared.values)}."
    name = print_predicate(declared.predicate, declared.arity)
    if isinstance(declared, Requirement):
        args = ", ".join(str(Variable(each)) for each in declared.args)
        subject = f"{name}({args})" if args else name
        return f"@{REQUIRES} {subject} {declared.dimension} >= {declared.level}."
    if isinstance(declared, Input):
        args = f"({', '.join(declared.typed_args)})" if declared.args else ""
        subject = f"input {name}{args}"
        texts = [declared.gloss]
    elif isinstance(declared, Mask):
        positions = ", ".join(map(str, declared.positions))
        subject, texts = f"mask {name}/{declared.arity} {positions}", []
    else:
        subject = f"phrase {name}/{declared.arity}"
        texts = [declared.text, declared.negative]
    quoted = "".join(" " + _quoted(text, '"') for text in texts if text)
    notes = [] if declared.scope is None else [f"scope={print_constant(declared.scope)}"]
    if isinstance(declared, Input) and declared.is_strict:
        notes.append("strict=true")
    return f"@{subject}{quoted}{' [' + ', '.join(notes) + ']' if notes else ''}."


def print_row(predicate: str, args: Sequence[str], negated: bool) -> str:
    """Return a fact or an answer as rows show it: `p(a, b)`, or `not p(a, b)`."""
    name = print_predicate(predicate, len(args))
    sign = "not " if negated else ""
    return f"{sign}{name}({', '.join(map(print_term, args))})" if args else sign + name


def print_expression(expr: Expr) -> str:
    """Return an expression as text, with no unnecessary parentheses."""
    if not isinstance(expr, Apply):
        return print_term(expr)
    if expr.function not in ARITHMETIC:
        return f"{expr.function}({', '.join(print_expression(arg) for arg in expr.args)})"
    left, right = expr.args
    product = expr.function in PRODUCTS
    left_text, right_text = print_expression(left), print_expression(right)
    if product and _is_sum(left):
        left_text = f"({left_text})"
    if _is_sum(right) or (product and _is_product(right)):
        right_text = f"({right_text})"
    return f"{left_text} {expr.function} {right_text}"


def print_item(item: BodyItem) -> str:
    """Return one item of a body as text."""
    if isinstance(item, Literal):
        sign = "" if item.atom.positive else "~"
        return ("not " if item.negated else "") + sign + _unsigned(item.atom, True)
    return _comparison(item)


def call_of(item: BodyItem) -> tuple[str, list[str], bool] | None:
    """Return a condition or a generator as its name, its arguments as text, and whether it is under
    `not`; None for other items.
    """
    if (test := condition_of(item)) is not None:
        call, negated = test
        return call.function, [print_expression(arg) for arg in call.args], negated
    values = generator_of(item)
    if values is None or not isinstance(item, Comparison):
        return None
    args, element = [print_expression(arg) for arg in values.args], print_expression(item.left)
    if values.function == "member":
        return "member", [element, f"[{', '.join(args)}]"], item.negated
    return values.function, [*args, element], item.negated


def print_rule(rule: Rule, *, bare: bool = False) -> str:
    """Return a rule as text, as in `head(?x) :- b1(?x, ?y), not b2(?y)`, with a final dot.

    Its name, labels, confidence and scope are written around it; `bare` leaves them out.
    """
    text = f"{print_atom(rule.head)} :- {', '.join(print_item(item) for item in rule.body)}"
    if bare:
        return text + "."
    notes = list(map(_label, rule.labels))
    if rule.confidence is not None:
        notes.append(f"confidence={rule.confidence!r}")
    if rule.scope is not None:
        notes.append(f"scope={print_constant(rule.scope)}")
    name = "" if rule.name is None else f"@{_name(rule.name)}: "
    return f"{name}{text}{' [' + ', '.join(notes) + ']' if notes else ''}."


def _comparison(item: Comparison) -> str:
    if (call := call_of(item)) is not None:
        name, args, negated = call
        return f"{'not ' if negated else ''}{name}({', '.join(args)})"
    left, right = print_expression(item.left), print_expression(item.right)
    if item.op not in COMPARISONS:
        return f"{'not ' if item.negated else ''}{item.op}({left}, {right})"
    return f"{left} {OPPOSITE[item.op] if item.negated else item.op} {right}"


def _unsigned(atom: Atom, body: bool) -> str:
    predicate = print_predicate(atom.predicate, len(atom.args))
    if (
        body and atom.args and predicate in AGGREGATES
    ):  # in a body it would be read as the aggregate
        predicate = _quoted(predicate, "'")
    if not atom.args:
        return predicate
    return f"{predicate}({', '.join(print_term(arg) for arg in atom.args)})"


def print_predicate(name: str, count: int) -> str:
    """Return the name of a predicate with `count` arguments, quoted where it would be read as
    something else.
    """
    plain = is_word(name) and not needs_quotes(name, count)
    return name if plain else _quoted(name, "'")


def _name(name: str) -> str:
    return name if is_word(name) else _quoted(name, '"')


def _is_sum(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.function in ("+", "-")


def _is_product(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.function in PRODUCTS


def _quoted(text: str, quote: str) -> str:
    if text.isprintable() and "\\" not in text and quote not in text:
        return quote + text + quote
    return quote + _SPECIAL.sub(lambda match: _escaped(match[0], quote), text) + quote


def _escaped(char: str, quote: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char == quote:
        return "\\" + char
    if char.isprintable():
        return char
    halves = char.encode("utf-16-be", "surrogatepass")  # two for a character beyond U+FFFF
    return "".join(f"\\u{halves[at : at + 2].hex()}" for at in range(0, len(halves), 2))
