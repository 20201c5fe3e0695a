"""The parse tree between grammar and terms: what was written, before semantic checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kbplanner.syntax.scanner import Token


@dataclass(frozen=True, slots=True)
class Node:
    """A piece of a statement. `token` is its first significant token, `depth` its height as an
    expression.
    """

    kind: str
    token: Token
    args: tuple[Node, ...] = ()
    operators: tuple[Token, ...] = ()
    depth: int = 0
    start: int = 0
    end: int = 0


class Option(NamedTuple):
    """One `key=value` in brackets: a value has one token, a list in parentheses any number."""

    key: Token
    values: tuple[Token, ...]
    has_minus: bool = False
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class ClauseTree:
    """A whole statement as parsed. `items` is the body; facts have a head only, goals a body only.

    A declaration has `tokens`: its word, the name and arity of the predicate, and its texts. A
    declared input has its word and its gloss in `tokens`, and the predicate in `items`; a
    dimension its word, its name, and its values with the signs between them in `tokens`; a
    requirement its word, the dimension, the sign and the level in `tokens`, and the predicate in
    `items`; a constraint has its word in `tokens`, and what it is about in `items`.
    """

    kind: str
    head: Node | None = None
    items: tuple[Node, ...] = ()
    name: Token | None = None
    annotations: tuple[Option, ...] = field(default=())
    tokens: tuple[Token, ...] = ()


class TreeMaker:
    """Callbacks of the parser for each grammar rule; stateless: one instance serves all parses."""

    def leaf(self, parts: list[Any]) -> Node:
        """Make a variable, constant, word or star."""
        token = parts[0]
        return Node(token.type, token, start=token.start, end=token.end)

    def negative(self, parts: list[Any]) -> Node:
        """Make a number with a sign: the constant `-3`."""
        minus, number = parts
        token = Token("NUMBER", "-" + number.value, minus.start, number.end)
        return Node("NUMBER", token, start=minus.start, end=number.end)

    def call(self, parts: list[Any]) -> Node:
        """Make a name with arguments in parentheses."""
        name, *args = parts
        depth = 1 + max((arg.depth for arg in args), default=0)
        end = args[-1].end if args else name.end
        return Node("call", name, tuple(args), depth=depth, start=name.start, end=end)

    def extremum(self, parts: list[Any]) -> Node:
        """Make a word before a variable, such as `min ?d`."""
        word, variable = parts
        inner = Node(variable.type, variable, start=variable.start, end=variable.end)
        return Node("extremum", word, (inner,), depth=1, start=word.start, end=variable.end)

    def typed(self, parts: list[Any]) -> Node:
        """Make the name of an argument of a declared input with its type."""
        name, _, of_type = parts
        inner = Node(of_type.type, of_type, start=of_type.start, end=of_type.end)
        return Node("typed", name, (inner,), depth=1, start=name.start, end=of_type.end)

    def array(self, parts: list[Any]) -> Node:
        """Make a list of values in brackets; its place is that of the values."""
        depth = 1 + max(part.depth for part in parts)
        first, last = parts[0], parts[-1]
        return Node(
            "array", first.token, tuple(parts), depth=depth, start=first.start, end=last.end
        )

    def group(self, parts: list[Any]) -> Node:
        """Make an expression in parentheses."""
        (inner,) = parts
        return Node(
            "group", inner.token, (inner,), depth=inner.depth, start=inner.start, end=inner.end
        )

    def apply(self, parts: list[Any]) -> Node:
        """Make an operator between two expressions."""
        left, operator, right = parts
        depth = 1 + max(left.depth, right.depth)
        return Node("apply", left.token, (left, right), (operator,), depth, left.start, right.end)

    def plain(self, parts: list[Any]) -> Node:
        """Make a body item without comparison: an atom, if it is valid."""
        (expr,) = parts
        return Node("plain", expr.token, (expr,), start=expr.start, end=expr.end)

    def comparison(self, parts: list[Any]) -> Node:
        """Make a comparison; more than one operator is a chain, refused later."""
        first, last = parts[0], parts[-1]
        return Node(
            "compare",
            first.token,
            tuple(parts[::2]),
            tuple(parts[1::2]),
            start=first.start,
            end=last.end,
        )

    def negation(self, parts: list[Any]) -> Node:
        """Make `not` before an item."""
        word, item = parts
        return Node("not", word, (item,), depth=item.depth + 1, start=word.start, end=item.end)

    def falsity(self, parts: list[Any]) -> Node:
        """Make `~` before an atom."""
        sign, atom = parts
        return Node("falsity", sign, (atom,), start=sign.start, end=atom.end)

    def name(self, parts: list[Any]) -> tuple[str, Token]:
        """Mark the name of a rule, to distinguish it from a head."""
        return ("name", parts[0])

    def body(self, parts: list[Any]) -> tuple[Node, ...]:
        """Collect the items of a body."""
        return tuple(parts)

    def pair(self, parts: list[Any]) -> Option:
        """Make one annotation of its key and what `value` or `listed` made."""
        key, _, (values, has_minus, is_list) = parts
        return Option(key, values, has_minus, is_list)

    def value(self, parts: list[Any]) -> tuple[tuple[Token, ...], bool, bool]:
        """Make the value of an annotation, which may have a minus sign."""
        return (parts[-1],), len(parts) == 2, False

    def listed(self, parts: list[Any]) -> tuple[tuple[Token, ...], bool, bool]:
        """Make the values of an annotation that are in parentheses."""
        return tuple(parts), False, True

    def annotations(self, parts: list[Any]) -> list[Option]:
        """Collect annotations."""
        return parts

    def goal(self, parts: list[Any]) -> ClauseTree:
        """Make a goal statement."""
        return ClauseTree("goal", items=parts[0])

    def fact(self, parts: list[Any]) -> ClauseTree:
        """Make a fact statement."""
        return self._clause("fact", parts)

    def rule(self, parts: list[Any]) -> ClauseTree:
        """Make a rule statement."""
        return self._clause("rule", parts)

    def signature(self, parts: list[Any]) -> tuple[str, Token, Token]:
        """Make the name and arity of a predicate."""
        name, _, arity = parts
        return ("signature", name, arity)

    def declaration(self, parts: list[Any]) -> ClauseTree:
        """Make a declaration: a word, a predicate and its texts."""
        word, (_, name, arity), *rest = parts
        annotations = tuple(rest.pop()) if rest and isinstance(rest[-1], list) else ()
        tokens = (word, name, arity, *rest)
        return ClauseTree("declaration", annotations=annotations, tokens=tokens)

    def declared_input(self, parts: list[Any]) -> ClauseTree:
        """Make a declared input: its word, the predicate with names of arguments, and a gloss."""
        word, item, *rest = parts
        annotations = tuple(rest.pop()) if rest and isinstance(rest[-1], list) else ()
        return ClauseTree(
            "declaration", items=(item,), annotations=annotations, tokens=(word, *rest)
        )

    def dimension(self, parts: list[Any]) -> ClauseTree:
        """Make a dimension of labels: its word and its name, and values with signs between them."""
        annotations = tuple(parts.pop()) if isinstance(parts[-1], list) else ()
        word, name, _, *values = parts
        tokens = (word, name, *values)
        return ClauseTree("declaration", annotations=annotations, tokens=tokens)

    def requirement(self, parts: list[Any]) -> ClauseTree:
        """Make a requirement: its word, the predicate, the dimension, the sign and the level."""
        word, item, *rest = parts
        annotations = tuple(rest.pop()) if isinstance(rest[-1], list) else ()
        return ClauseTree(
            "declaration", items=(item,), annotations=annotations, tokens=(word, *rest)
        )

    def constraint(self, parts: list[Any]) -> ClauseTree:
        """Make a declared constraint: its word, and the items after it."""
        word, items, *rest = parts
        annotations = tuple(rest[0]) if rest else ()
        return ClauseTree("constraint", items=items, annotations=annotations, tokens=(word,))

    def expression(self, parts: list[Any]) -> Node:
        """Make an expression standing alone."""
        node: Node = parts[0]
        return node

    def _clause(self, kind: str, parts: list[Any]) -> ClauseTree:
        name = parts.pop(0)[1] if isinstance(parts[0], tuple) else None
        head = parts.pop(0)
        items = parts.pop(0) if kind == "rule" else ()
        return ClauseTree(kind, head, items, name, tuple(parts[0]) if parts else ())
