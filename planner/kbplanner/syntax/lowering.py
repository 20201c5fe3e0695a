"""Translation of the parse tree to terms, with checks and messages for the author.

All problems of a statement are collected, so an error lists all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from kbplanner.ir.conditions import condition, generator
from kbplanner.ir.dimensions import (
    FACT_OPTIONS,
    GROUPS,
    LEVELS,
    RULE_OPTIONS,
    Dimension,
    WrittenLabel,
    dimension_problem,
)
from kbplanner.ir.inputs import TYPES, Input, input_problem
from kbplanner.ir.limits import MAX_DEPTH, Limits, metadata_problem, text_problem
from kbplanner.ir.masks import MASK, Mask, mask_problem
from kbplanner.ir.operators import (
    AGGREGATES,
    EXTREMA,
    FUNCTION,
    FUNCTIONS,
    GENERATOR,
    OPPOSITE,
    RESERVED,
    STRING_FUNCTIONS,
    STRING_TESTS,
    Function,
    fits_as_atom,
    is_builtin,
)
from kbplanner.ir.phrases import Declaration, Phrase, phrase_problem
from kbplanner.ir.requirements import REQUIRES, Requirement, requirement_problem
from kbplanner.ir.terms import (
    ANONYMOUS,
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
    Term,
    Variable,
)
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.syntax.arity import nearest_name
from kbplanner.syntax.constraints import (
    CANONICAL,
    DIFFERENT,
    DISJOINT,
    KEY,
    TOTAL,
    canonical_rule,
    different_rule,
    disjoint_rules,
    key_rules,
    total_rules,
)
from kbplanner.syntax.diagnostics import Problem, excerpt
from kbplanner.syntax.scanner import Token
from kbplanner.syntax.statements import NO_ANNOTATIONS, Annotations, TextSpan
from kbplanner.syntax.tree import ClauseTree, Node

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
NODES_PER_YIELD = 200
"""Parts of expressions read between two calls of `yield_now`: about a millisecond."""

ESCAPES_PER_YIELD = 1000
"""Escapes read between two calls of `yield_now`: about a millisecond."""

_OTHER_OPTIONS = frozenset((*FACT_OPTIONS, "strict"))
"""Options that some statements have; those that others lack are no labels."""

_MASK_HINT = "write @mask can_read/2 1."
_REQUIREMENT_HINT = "write @requires pay(?who, ?sum) trust >= user."
_DIMENSION_HINTS = {
    LEVELS: "write @levels trust: web < user < owner.",
    GROUPS: "write @groups team: hr, eng.",
}


class Lowering:
    """Translator of one statement's tree to terms; `problems` collects its errors.

    With `spans`, which returns the place of two offsets, options of other names are labels.
    """

    def __init__(
        self,
        source: str,
        limits: Limits,
        yield_now: YieldNow = go_on,
        spans: Callable[[int, int], TextSpan] | None = None,
    ) -> None:
        self.source = source
        self._spans = spans
        self.limits = limits
        self._yield_now = yield_now
        self._nodes = 0
        self.problems: list[Problem] = []
        self.predicates: list[tuple[str, int, int, int]] = []

    # ---- statements ----

    def fact(self, clause: ClauseTree) -> tuple[Atom, Annotations]:
        """Return the atom and annotations of a fact."""
        if clause.name is not None:
            self._add(
                "named-fact",
                "only a rule has a name",
                "leave out the name",
                clause.name.start,
                clause.name.end,
            )
        atom = self.signed(_head(clause), "fact")
        return atom, self.annotations(clause, FACT_OPTIONS, labelled=True)

    def rule(self, clause: ClauseTree) -> Rule:
        """Return a rule."""
        head = self.signed(_head(clause), "head")
        body = self.body(clause)
        name = None
        if clause.name is not None:
            name = self.text(clause.name)
        notes = self.annotations(clause, RULE_OPTIONS, labelled=True)
        return Rule(head, body, name, notes.confidence, notes.scope, notes.labels)

    def declaration(self, clause: ClauseTree) -> Declaration:
        """Return what is declared: a phrase, an input, a mask, a dimension or a requirement."""
        if clause.tokens[0].value == REQUIRES:
            return self._requirement(clause)
        if clause.items:
            return self._input(clause)
        if clause.tokens[0].value in _DIMENSION_HINTS:
            return self._dimension(clause)
        return self._mask(clause) if clause.tokens[0].value == MASK else self._phrase(clause)

    def _input(self, clause: ClauseTree) -> Input:
        word, *texts = clause.tokens
        (item,) = clause.items
        notes = self._annotation_values(clause, ("scope", "strict"))
        node = item.args[0] if item.kind == "plain" else item
        args = node.args if node.kind == "call" else ()
        is_atom = node.kind in ("call", "IDENT", "STRING")
        if not is_atom or any(arg.kind not in ("IDENT", "typed") for arg in args):
            message = "an input is a predicate with names of its arguments in parentheses"
            hint = 'write @input stored(path, size: number) "a file and its size".'
            self._add("bad-declaration", message, hint, item.start, item.end)
            return Input("", ())
        if node.token.type == "IDENT":
            self._refuse_builtin(node.token, len(args))
        gloss = self.text(texts[0]) if texts else None
        names = tuple(self.text(arg.token) for arg in args)
        types = tuple(arg.args[0].token if arg.kind == "typed" else None for arg in args)
        for token in types:
            if token is not None and token.value not in TYPES:
                message = f"there is no type {excerpt(token.value)}"
                self._at("bad-declaration", message, f"the types are {', '.join(TYPES)}", token)
                return Input("", ())
        declared = Input(
            self.text(node.token),
            names,
            gloss,
            notes.get("scope"),
            tuple(None if each is None else each.value for each in types) if any(types) else (),
            notes.get("strict", False),
        )
        if problem := input_problem(declared, self.limits):
            self._at("bad-declaration", problem, None, texts[0] if gloss else word)
        return declared

    def _mask(self, clause: ClauseTree) -> Mask:
        _, name, arity, *numbers = clause.tokens
        scope = self.annotations(clause, ("scope",)).scope
        if not all(each.value.isdigit() and len(each.value) < 4 for each in (arity, *numbers)):
            message = "a mask has the numbers of arguments"
            self._at("bad-declaration", message, _MASK_HINT, arity)
            return Mask("", 0, ())
        positions = tuple(int(number.value) for number in numbers)
        mask = Mask(self.text(name), int(arity.value), positions, scope)
        if problem := mask_problem(mask, self.limits):
            self._at("bad-declaration", problem, _MASK_HINT, numbers[0] if numbers else arity)
        return mask

    def _dimension(self, clause: ClauseTree) -> Dimension:
        word, name, *rest = clause.tokens
        is_ordered = word.value == LEVELS
        signs = [token for token in rest if token.type == "CMP"]
        values = tuple(token.value for token in rest if token.type != "CMP")
        wrong = next((sign for sign in signs if not is_ordered or sign.value != "<"), None)
        if wrong is not None or (is_ordered and len(signs) < len(values) - 1):
            sign = '"<"' if is_ordered else '","'
            message = f"between {word.value} stands {sign}"
            self._at("bad-declaration", message, _DIMENSION_HINTS[word.value], wrong or name)
        scope = self.annotations(clause, ("scope",)).scope
        dimension = Dimension(name.value, values, is_ordered, scope)
        if problem := dimension_problem(dimension, self.limits):
            self._at("bad-declaration", problem, _DIMENSION_HINTS[word.value], name)
        return dimension

    def _requirement(self, clause: ClauseTree) -> Requirement:
        word, dimension, sign, level = clause.tokens
        (item,) = clause.items
        scope = self.annotations(clause, ("scope",)).scope
        atom = self._constrained(item)
        if sign.value != ">=":
            message = f'a requirement names the lowest level with ">=", found "{sign.value}"'
            self._at("bad-declaration", message, _REQUIREMENT_HINT, sign)
        if self.problems:
            return Requirement("", (), "", "")
        names = tuple(arg.name for arg in atom.args if isinstance(arg, Variable))
        required = Requirement(atom.predicate, names, dimension.value, level.value, scope)
        if len(set(names) - {"_"}) < sum(name != "_" for name in names):
            message = "the variables of a requirement are different"
            self._at("bad-declaration", message, _REQUIREMENT_HINT, word)
        elif problem := requirement_problem(required, self.limits):
            self._at("bad-declaration", problem, _REQUIREMENT_HINT, word)
        return required

    def _phrase(self, clause: ClauseTree) -> Phrase:
        word, name, arity, *texts = clause.tokens
        if word.value != "phrase":
            hint = (
                "write @phrase, @input, @mask, @levels, @groups, @requires, @equivalence, "
                "@canonical, @key, @disjoint or @total, "
                "or @name: before a rule"
            )
            self._at("unknown-declaration", f'no declaration "@{word.value}"', hint, word)
            return Phrase("", 0, "")
        if not texts or texts[0].type == "NUMBER":
            message = "a phrase has a text in quotes"
            hint = 'write @phrase works_at/2 "{0} works at {1}".'
            self._at("bad-declaration", message, hint, arity)
            return Phrase("", 0, "")
        if not arity.value.isdigit() or int(arity.value) > self.limits.args:
            message = f"the number of arguments is 0 to {self.limits.args}, found {arity.value}"
            self._at("bad-arity", message, None, arity)
            return Phrase("", 0, "")
        scope = self.annotations(clause, ("scope",)).scope
        text, negative = self.text(texts[0]), self.text(texts[1]) if len(texts) > 1 else None
        phrase = Phrase(self.text(name), int(arity.value), text, negative, scope)
        for token, sentence in zip(texts, (text, negative), strict=False):
            if problem := phrase_problem(replace(phrase, text=sentence or "", negative=None)):
                self._at("bad-phrase", problem, None, token)
        return phrase

    def constraint(self, clause: ClauseTree) -> tuple[Rule, ...]:
        """Return the rules of a declared constraint; none if it has a mistake."""
        (word,) = clause.tokens
        notes = self.annotations(clause, ("scope",), labelled=True)
        read = {KEY: self._key, DISJOINT: self._disjoint, TOTAL: self._total}[word.value]
        rules = () if self.problems else tuple(read(word, clause.items))
        if self.problems:
            return ()
        return tuple(replace(rule, scope=notes.scope, labels=notes.labels) for rule in rules)

    def _key(self, word: Token, items: Sequence[Node]) -> Iterable[Rule]:
        atoms = [self._constrained(item) for item in items]
        if self.problems:
            return ()
        args = atoms[0].args
        named = [arg for arg in args if arg != ANONYMOUS]
        if len(atoms) > 1:
            message = "a key is of one predicate"
        elif not named or len(named) == len(args):
            message = "a key has variables for the arguments that identify a fact, and _ for others"
        elif len(set(named)) < len(named):
            message = f"the variable {next(v for v in named if named.count(v) > 1)} is there twice"
        else:
            return key_rules(atoms[0])
        self._at("bad-declaration", message, "write @key owns(?car, _).", word)
        return ()

    def _disjoint(self, word: Token, items: Sequence[Node]) -> Iterable[Rule]:
        predicates = [self._signature(item) for item in items]
        if self.problems:
            return ()
        arities = {arity for _, arity in predicates}
        names = [name for name, _ in predicates]
        if len(names) < 2:
            message = "at least two predicates exclude each other"
        elif len(arities) > 1:
            message = "predicates that exclude each other have the same number of arguments"
        elif len(set(names)) < len(names):
            message = f"the predicate {next(n for n in names if names.count(n) > 1)} is there twice"
        else:
            return disjoint_rules(names, arities.pop())
        self._at("bad-declaration", message, "write @disjoint cat, dog.", word)
        return ()

    def _total(self, word: Token, items: Sequence[Node]) -> Iterable[Rule]:
        subject, *required = (self._constrained(item) for item in items)
        if self.problems:
            return ()
        known = {*subject.args, ANONYMOUS}
        unknown = [arg for atom in required for arg in atom.args if arg not in known]
        if not required:
            message = "after the predicate come those that have to hold with it"
        elif unknown:
            message = f"the first predicate has no variable {unknown[0]}"
        else:
            return total_rules(subject, required)
        self._at("bad-declaration", message, "write @total person(?x), age(?x, _).", word)
        return ()

    def _constrained(self, item: Node) -> Atom:
        """Read a predicate with variables and `_` in a constraint."""
        literal = self.item(item, False)
        if (
            isinstance(literal, Literal)
            and not literal.negated
            and literal.atom.positive
            and all(isinstance(arg, Variable) for arg in literal.atom.args)
        ):
            return literal.atom
        message = "a constraint is about predicates with variables and _ as arguments"
        self._add("bad-declaration", message, None, item.start, item.end)
        return Atom("")

    def _signature(self, item: Node) -> tuple[str, int]:
        """Read a predicate in a constraint: `cat`, which has one argument, or `likes/2`."""
        node = item.args[0] if item.kind == "plain" else item
        arity = 1
        if node.kind == "apply" and node.operators[0].type == "SLASH":
            node, number = node.args
            is_arity = number.kind == "NUMBER" and number.token.value.isdigit()
            arity = int(number.token.value) if is_arity else self.limits.args + 1
        if node.kind not in ("IDENT", "STRING") or arity > self.limits.args:
            message = f"expected a predicate, such as cat or likes/2, found {self.source[item.start : item.end]}"
            self._add("bad-declaration", message, None, item.start, item.end)
            return "", arity
        name = self.text(node.token)
        self.predicates.append((name, arity, node.token.start, node.token.end))
        return name, arity

    def equivalence(self, clause: ClauseTree) -> tuple[Rule, ...]:
        """Return the rules that a declaration of an equivalence relation is short for, or the rule
        of its representatives.
        """
        word, name, arity, *texts = clause.tokens
        if texts:
            message = f"@{word.value} has no text"
            self._at("bad-declaration", message, f"write @{word.value} same/2.", texts[0])
        if arity.value != "2":
            message = f"an equivalence relation has 2 arguments, found {arity.value}"
            self._at("bad-arity", message, None, arity)
        if name.type == "IDENT":
            self._refuse_builtin(name, 2)
        notes = self.annotations(clause, ("scope",), labelled=True)
        predicate = self.text(name)
        self.predicates.append((predicate, 2, name.start, name.end))
        if word.value == CANONICAL:
            rule = canonical_rule(predicate)
            return (replace(rule, scope=notes.scope, labels=notes.labels),)
        x, y, z = Variable("x"), Variable("y"), Variable("z")
        pairs = {pair: Atom(predicate, pair) for pair in ((x, y), (y, x), (y, z), (x, z))}
        both = Literal(pairs[x, y]), Literal(pairs[y, z])
        rules = [Rule(pairs[y, x], (Literal(pairs[x, y]),)), Rule(pairs[x, z], both)]
        if predicate != DIFFERENT:
            rules.append(different_rule(predicate))
        return tuple(replace(rule, scope=notes.scope, labels=notes.labels) for rule in rules)

    def lone_atom(self, clause: ClauseTree) -> Atom:
        """Return the atom of a text that is an atom, possibly with variables."""
        if clause.name is not None or clause.annotations:
            self._at(
                "wrong-statement",
                "expected a single atom",
                None,
                clause.name or clause.annotations[0].key,
            )
        return self.signed(_head(clause), "atom")

    def body(self, clause: ClauseTree) -> tuple[BodyItem, ...]:
        """Return the items of a rule body or a goal."""
        if problem := self.limits.body_problem(len(clause.items)):
            node = clause.items[self.limits.body_items]
            self._add("too-long", problem, "split it into two rules", node.start, node.end)
        return tuple(self.item(node, False) for node in paced(clause.items, self._yield_now, 1))

    # ---- atoms and body items ----

    def signed(self, node: Node, where: str) -> Atom:
        """Read the atom of a fact or a head; `~p` and `not p` both mean the explicit negative."""
        if node.kind == "compare":
            self._comparison_as_head(node, where)
            return Atom("")
        positive, inner = True, node.args[0]
        if node.kind == "not":
            positive = False
            if inner.kind != "plain":
                self._at(
                    "double-negation",
                    'one "not" or one "~" is enough',
                    'write "~" before the atom',
                    node.token,
                )
                return Atom("")
            inner = inner.args[0]
        elif node.kind == "falsity":
            positive = False
        self._refuse_reserved(_ungroup(inner))
        return self.atom(inner, where, positive)

    def item(self, node: Node, negated: bool) -> BodyItem:
        """Read one body item."""
        if node.kind == "not":
            if negated:
                self._at(
                    "double-negation",
                    '"not" stands before an atom, not before another "not"',
                    None,
                    node.token,
                )
                return Literal(Atom(""))
            return self.item(node.args[0], True)
        if node.kind == "compare":
            return self._comparison(node, negated)
        inner = _ungroup(node.args[0])
        if node.kind == "plain" and inner.kind == "call" and inner.token.type == "IDENT":
            if inner.token.value in STRING_TESTS:
                return self._string_test(inner, negated)
            if inner.token.value in STRING_FUNCTIONS:
                return self._string_function(inner, negated)
            if inner.token.value in GENERATOR and (
                inner.token.value in RESERVED or any(arg.kind == "array" for arg in inner.args)
            ):
                return self._generator(GENERATOR[inner.token.value], inner, negated)
            function = FUNCTION.get(inner.token.value)
            if function is not None and is_builtin(function.name, len(inner.args)):
                return self._test(function, inner, negated)
            if _is_aggregate(inner):
                self._aggregate_in_body(inner)
                return Literal(Atom(""))
        return Literal(self.atom(inner, "body", node.kind != "falsity"), negated)

    def atom(self, node: Node, where: str, positive: bool = True) -> Atom:
        """Read a predicate with its arguments."""
        node = _ungroup(node)
        if node.kind not in ("call", "IDENT", "STRING"):
            source = self.source[node.start : node.end]
            hint = None
            if node.kind in ("VAR", "ANON"):
                hint = f'a predicate is a name: write something like "is_known({source})", or compare with "="'
            elif node.kind == "apply":
                hint = "compare the value with something, for instance ?z = " + source
            self._add(
                "not-an-atom",
                f'expected an atom, found "{excerpt(source)}"',
                hint,
                node.start,
                node.end,
            )
            return Atom("")
        predicate = self.text(node.token)
        if problem := self.limits.predicate_problem(predicate):
            self._at("bad-predicate", problem, None, node.token)
        if problem := self.limits.args_problem(len(node.args)):
            self._at("too-many-arguments", problem, None, node.token)
        self.predicates.append((predicate, len(node.args), node.token.start, node.token.end))
        if where == "head":
            self._check_extremum_place(node.args)
        return Atom(predicate, tuple(self.argument(arg, where) for arg in node.args), positive)

    def argument(self, node: Node, where: str) -> HeadTerm:
        """Read one argument of an atom."""
        node = _ungroup(node)
        token = node.token
        if node.kind in ("IDENT", "STRING", "NUMBER"):
            text = self.text(token)
            if problem := self.limits.constant_problem(text):
                self._at("bad-constant", problem, None, token)
            return text
        if node.kind in ("VAR", "ANON"):
            if where == "fact":
                hint = 'name the thing; or add ":-" and conditions for a rule, or put "?-" before it to ask'
                self._at(
                    "variable-in-fact",
                    f'a fact has no variables, found "{token.value}"',
                    hint,
                    token,
                )
            elif node.kind == "ANON" and where == "head":
                hint = "name the variable and use it in the body"
                self._at(
                    "anonymous-in-head",
                    f'a rule head cannot say "any value": found "{token.value}"',
                    hint,
                    token,
                )
            return Variable(token.value[1:]) if node.kind == "VAR" else ANONYMOUS
        if node.kind == "extremum":
            return self._extremum(node, where)
        if node.kind == "array":
            self._stray_list(node)
            return ""
        excerpt_text = excerpt(
            self.source[node.start : node.end] + (")" if node.kind == "call" else "")
        )
        if (
            node.kind == "call"
            and token.type == "IDENT"
            and token.value in AGGREGATES
            and _is_aggregate(node)
        ):
            return self._aggregate(node, where)
        if node.kind == "call":
            hint = 'an argument is a constant, a variable or "_"'
            if token.value in FUNCTIONS:
                hint = f"compute it in the body: ?z = {excerpt_text}, and use ?z here"
            self._add(
                "nested-term", f'no "{excerpt_text}" inside an atom', hint, node.start, node.end
            )
        elif node.kind == "apply":
            hint = f'for text, quote it: "{excerpt_text}"; for a number, compute it in the body: ?z = {excerpt_text}'
            message = f'no arithmetic inside an atom, found "{excerpt_text}"'
            self._add("expression-in-atom", message, hint, node.start, node.end)
        else:
            self._at(
                "stray-star", '"*" is only allowed in count(*)', 'write "_" for "any value"', token
            )
        return ""

    # ---- aggregates ----

    def _aggregate(self, node: Node, where: str) -> HeadTerm:
        if where != "head":
            self._aggregate_in_body(node)
            return ""
        (arg,) = node.args
        if arg.kind == "STAR":
            if node.token.value != "count":
                hint = f"write {node.token.value}(?x)"
                self._at(
                    "stray-star",
                    f'"*" is only allowed in count(*), not in {node.token.value}(*)',
                    hint,
                    arg.token,
                )
            return Aggregate(node.token.value, None)
        if arg.kind == "ANON":
            self._at(
                "anonymous-in-head", "an aggregate needs a named variable", "write ?x", arg.token
            )
        return Aggregate(
            node.token.value, Variable(arg.token.value[1:]) if arg.kind == "VAR" else ANONYMOUS
        )

    def _aggregate_in_body(self, node: Node) -> None:
        name = node.token.value
        hint = (
            f"put {name}(...) into the head of a rule of its own and use that rule here; "
            f"to mean a predicate, quote its name: '{name}'(...)"
        )
        self._at(
            "aggregate-in-body",
            f'the aggregate "{name}" is only allowed in a rule head',
            hint,
            node.token,
        )

    # ---- extrema ----

    def _extremum(self, node: Node, where: str) -> HeadTerm:
        (arg,) = node.args
        word = node.token.value
        text = self.source[node.start : node.end]
        if word not in EXTREMA:
            hint = f'put a comma between arguments, or quote the text: "{excerpt(text)}"'
            message = f'expected "," or ")" after "{excerpt(word)}", found "{arg.token.value}"'
            self._at("syntax", message, hint, arg.token)
        elif where != "head":
            hint = f"write {arg.token.value} here; the rules of the predicate keep the best value"
            message = f'"{excerpt(text)}" is only allowed in a rule head'
            self._add("extremum-place", message, hint, node.start, node.end)
        elif arg.kind == "ANON":
            message = f'"{word}" needs a named variable'
            self._at("anonymous-in-head", message, f"write {word} ?x", arg.token)
        else:
            return Extremum(word, Variable(arg.token.value[1:]))
        return ""

    def _check_extremum_place(self, args: Sequence[Node]) -> None:
        """Report extrema before the last argument of a head, and one beside an aggregate."""
        extrema = [node for node in args if node.kind == "extremum" and node.token.value in EXTREMA]
        for node in extrema:
            text = excerpt(self.source[node.start : node.end])
            message = hint = None
            if node is not args[-1]:
                message = f'"{text}" has to be the last argument of the head'
                hint = "put the value last; the arguments before it are the group"
            elif any(_is_aggregate(arg) for arg in args if arg.kind == "call"):
                message = f'"{text}" cannot stand beside an aggregate'
                hint = "aggregate in a rule of its own, and use that rule here"
            if message is not None:
                self._add("extremum-place", message, hint, node.start, node.end)

    # ---- comparisons and expressions ----

    def _comparison(self, node: Node, negated: bool) -> BodyItem:
        operator = node.operators[0]
        if len(node.operators) > 1:
            parts = [self.source[arg.start : arg.end] for arg in node.args]
            pairs = (
                f"{left} {op.value} {right}"
                for left, op, right in zip(parts, node.operators, parts[1:], strict=False)
            )
            hint = "write one comparison for each pair: " + ", ".join(pairs)
            self._at(
                "comparison-chain",
                "a comparison has two sides",
                excerpt(hint, 200),
                node.operators[1],
            )
        left, right = self.expression(node.args[0]), self.expression(node.args[1])
        if negated:
            opposite = OPPOSITE[operator.value]
            before, after = (
                self.source[node.start : operator.start],
                self.source[operator.end : node.end],
            )
            hint = excerpt(f"write {before.rstrip()} {opposite} {after.lstrip()}", 200)
            word = self.source.rindex("not", 0, node.start)
            message = '"not" stands before an atom, not before a comparison'
            self._add("not-comparison", message, hint, word, word + 3)
        return Comparison(operator.value, left, right)

    def _comparison_as_head(self, node: Node, where: str) -> None:
        operator = node.operators[0]
        if where == "fact" and operator.value == "<=" and node.args[0].kind == "call":
            message, hint = (
                'expected ":-" after the head, found "<="',
                'write ":-" between the head and the body',
            )
            self._at("wrong-arrow", message, hint, operator)
            return
        hint = "move it into the body" if where == "head" else 'to ask it, put "?-" before it'
        self._at(
            "comparison-as-head", "a comparison cannot be asserted or concluded", hint, operator
        )

    def _string_test(self, node: Node, negated: bool) -> BodyItem:
        name = node.token.value
        if len(node.args) != 2:
            message, hint = (
                f"{name} takes two arguments, found {len(node.args)}",
                f"write {name}(?text, ?part)",
            )
            self._at("wrong-arity", message, hint, node.token)
            return Literal(Atom(""))
        left, right = (self.expression(arg) for arg in node.args)
        return Comparison(name, left, right, negated)

    def _string_function(self, node: Node, negated: bool) -> BodyItem:
        """Read a function written like an atom, its value last: `length(?text, ?n)` is `?n =
        length(?text)`.
        """
        name = node.token.value
        if not fits_as_atom(name, len(node.args)):
            message = f"{name} takes the value last, found {len(node.args)} argument{'s' * (len(node.args) != 1)}"
            self._at("wrong-arity", message, f"write {name}(?text, ?value)", node.token)
            return Literal(Atom(""))
        *args, value = (self.expression(arg) for arg in node.args)
        return Comparison("!=" if negated else "=", value, Apply(name, tuple(args)))

    def _test(self, function: Function, node: Node, negated: bool) -> BodyItem:
        """Read a function that is a test, as a condition: `before(?a, ?b)`."""
        if problem := self.limits.call_problem(function, len(node.args)):
            name = function.name
            hint = f"write {function.usage}; to mean a predicate, quote its name: '{name}'(...)"
            self._at("wrong-arity", problem, hint, node.token)
        args = tuple(self.expression(arg) for arg in node.args)
        return condition(Apply(function.name, args), negated)

    def _generator(self, function: Function, node: Node, negated: bool) -> BodyItem:
        """Read a generator: `range(0, 10, ?x)`, or `member(?x, [a, b])`."""
        name, args = function.name, node.args
        expected = 2 if name == "member" else function.least + 1
        if len(args) != expected or (name == "member" and args[1].kind != "array"):
            problem = f"{name} takes {expected} arguments, found {len(args)}"
            if len(args) == expected:
                problem = "the second argument of member is a list"
            hint = f"write {function.usage}; to mean a predicate, quote its name: '{name}'(...)"
            self._at("wrong-arity", problem, hint, node.token)
            return Literal(Atom(""))
        inputs, element = (args[1].args, args[0]) if name == "member" else (args[:-1], args[-1])
        if len(inputs) > self.limits.args:
            problem = f"a list has at most {self.limits.args} elements, this one has {len(inputs)}"
            self._add("too-many-arguments", problem, "store them as facts", node.start, node.end)
        values = tuple(self.expression(arg) for arg in inputs)
        return generator(Apply(name, values), self.expression(element), negated)

    def _stray_list(self, node: Node) -> None:
        message = "a list is only allowed as the second argument of member"
        hint = "write one fact or atom for each value, or member(?x, [a, b]) in a body"
        self._add("stray-list", message, hint, node.start, node.end)

    def expression(self, node: Node) -> Expr:
        """Read an expression; nesting deeper than MAX_DEPTH is refused before recursion."""
        if node.depth > MAX_DEPTH:
            message, hint = (
                f"expressions nest at most {MAX_DEPTH} deep",
                "compute parts into variables",
            )
            self._add("too-deep", message, hint, node.start, node.end)
            return ""
        self._nodes += 1
        if not self._nodes % NODES_PER_YIELD:
            self._yield_now()
        node = _ungroup(node)
        if node.kind == "apply":
            return Apply(node.operators[0].value, tuple(self.expression(arg) for arg in node.args))
        if node.kind == "call":
            return self._function(node)
        if node.kind == "array":
            self._stray_list(node)
            return ""
        if node.kind == "ANON":
            message, hint = (
                f'"{node.token.value}" has no value to compare or compute with',
                "name the variable",
            )
            self._at("anonymous-in-expression", message, hint, node.token)
            return ANONYMOUS
        return cast(Term, self.argument(node, "body"))  # an aggregate was refused above

    def _function(self, node: Node) -> Expr:
        name = self.text(node.token)
        if node.token.type == "IDENT" and name in FUNCTIONS:
            if _is_aggregate(node) and node.args[0].kind != "NUMBER":
                self._aggregate_in_body(node)
            elif problem := self.limits.call_problem(FUNCTION[name], len(node.args)):
                self._at("wrong-arity", problem, f"write {FUNCTION[name].usage}", node.token)
            return Apply(name, tuple(self.expression(arg) for arg in node.args))
        if name in AGGREGATES:
            self._aggregate_in_body(node)
        else:
            nearest = nearest_name(name, FUNCTIONS)
            hint = 'the functions are listed under "Functions" in the reference of the language'
            if nearest is not None:
                hint = f"did you mean {FUNCTION[nearest].usage}?"
            self._at("unknown-function", f'no function "{excerpt(name)}"', hint, node.token)
        return ""

    # ---- annotations ----

    def annotations(
        self, clause: ClauseTree, keys: tuple[str, ...], *, labelled: bool = False
    ) -> Annotations:
        """Read `[key=value, ...]`; other keys are labels if a statement may be `labelled`."""
        if not clause.annotations:
            return NO_ANNOTATIONS
        labels = self._labels(clause, keys) if labelled and self._spans is not None else {}
        values = self._annotation_values(clause, keys, labels)
        confidence, ttl, scope, start, end, metadata = map(values.get, FACT_OPTIONS)
        own = tuple(labels.values())
        return Annotations(confidence, ttl, scope, start, end, metadata, own)

    def _labels(self, clause: ClauseTree, keys: tuple[str, ...]) -> dict[str, WrittenLabel]:
        """Return the options that may be labels, by name."""
        labels: dict[str, WrittenLabel] = {}
        for option in clause.annotations:
            name = option.key.value
            is_number = option.has_minus or option.values[0].type == "NUMBER"
            if name in keys or is_number or name in _OTHER_OPTIONS or self._spans is None:
                continue
            if name in labels:
                self._at("repeated-annotation", f'"{name}" is given twice', None, option.key)
            at = self._spans(option.key.start, option.key.end)
            values = tuple(map(self.text, option.values))
            labels[name] = WrittenLabel(
                name, values, option.is_list, at.line, at.column, at.end_column
            )
        return labels

    def _annotation_values(
        self, clause: ClauseTree, keys: tuple[str, ...], labels: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return the values of `[key=value, ...]` by key, without those of labels."""
        values: dict[str, Any] = {}
        for option in clause.annotations:
            key, token, minus = option.key, option.values[0], option.has_minus
            name = key.value
            if name in labels:
                continue
            text = "-" * minus + self.text(token)
            if name not in keys:
                message, hint = unknown_option(clause.kind, name, keys)
                self._at("unknown-annotation", message, hint, key)
            elif name in values:
                self._at("repeated-annotation", f'"{name}" is given twice', None, key)
            elif option.is_list:
                self._at("bad-annotation", f"{name} has one value", None, token)
            elif name == "confidence":
                values[name] = self._confidence(text, token)
            elif name == "scope":
                values[name] = text
            elif name == "metadata":
                values[name] = self._metadata(text, token)
            elif name == "strict":
                if text not in ("true", "false"):
                    message = f'strict is true or false, found "{excerpt(text)}"'
                    self._at("bad-annotation", message, None, token)
                values[name] = text == "true"
            else:
                values[name] = self._instant(name, text, token, minus)
        return values

    def _confidence(self, text: str, token: Token) -> float:
        if token.type == "NUMBER" and 0.0 <= float(text) <= 1.0:
            return float(text)
        self._at(
            "bad-annotation",
            f'confidence is a number from 0 to 1, found "{excerpt(text)}"',
            None,
            token,
        )
        return 0.0

    def _metadata(self, text: str, token: Token) -> dict[str, Any]:
        """Read metadata: a JSON object in quotes."""
        try:
            value = json.loads(text, parse_constant=_refuse_constant)
            problem = (
                (metadata_problem(value) or "") if isinstance(value, dict) else "is not an object"
            )
        except RecursionError:
            problem = "is nested too deep"
        except ValueError as error:
            where = (
                f" at character {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            )
            problem = f"is not JSON{where}"
        if not problem:
            return cast("dict[str, Any]", value)
        hint = """for instance metadata='{"source": "chat"}'"""
        self._at("bad-annotation", f"metadata {problem}", hint, token)
        return {}

    def _instant(self, name: str, text: str, token: Token, minus: bool) -> int | str:
        whole = token.type == "NUMBER" and token.value.isdigit() and len(token.value) <= 16
        if name == "ttl":
            if whole and int(text) > 0:
                return int(text)
            if token.type == "STRING":
                return text
            self._at(
                "bad-annotation",
                f'ttl is a positive number of milliseconds, found "{excerpt(text)}"',
                'for instance 60000 or "30d"',
                token,
            )
            return 1
        if whole:
            return int(text)
        if token.type != "STRING":
            hint = 'for instance 1735689600000 or "2025-01-01T00:00:00Z"'
            self._at(
                "bad-annotation",
                f"{name} is epoch milliseconds or a quoted ISO 8601 text",
                hint,
                token,
            )
        return text

    # ---- texts and problems ----

    def text(self, token: Token) -> str:
        """Return the text that a word, number or string denotes."""
        if token.type != "STRING":
            return token.value
        text = token.value[1:-1]
        if "\\" in text:
            text = self._unescaped(text, token)
            if not text.isascii():
                # Two \u halves are one character; a lone half is reported below.
                text = text.encode("utf-16-le", "surrogatepass").decode(
                    "utf-16-le", "surrogatepass"
                )
        if problem := text_problem(text):
            self._at("bad-constant", problem, None, token)
            return ""
        return text

    def _unescaped(self, text: str, token: Token) -> str:
        parts, end = [], 0
        for match in paced(_ESCAPE.finditer(text), self._yield_now, ESCAPES_PER_YIELD):
            escape = self._escape(match.group(1), token, match.start())
            parts += [text[end : match.start()], escape]
            end = match.end()
        return "".join((*parts, text[end:]))

    def _escape(self, escaped: str, token: Token, offset: int) -> str:
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        plain = _PLAIN_ESCAPES.get(escaped)
        if plain is None:
            start = token.start + 1 + offset
            hint = r"the escapes are \n \t \r \\ \" \' and \uXXXX; a backslash itself is written \\"
            self._add("bad-escape", f'unknown escape "\\{escaped}"', hint, start, start + 2)
            return ""
        return plain

    def _refuse_reserved(self, node: Node) -> None:
        self._refuse_builtin(node.token, len(node.args) if node.kind == "call" else 0)

    def _refuse_builtin(self, token: Token, count: int) -> None:
        if token.type == "IDENT" and is_builtin(token.value, count):
            message = f'"{token.value}" is a builtin and cannot be asserted or concluded'
            self._at(
                "reserved-name",
                message,
                f"to mean a predicate of that name, quote it: '{token.value}'",
                token,
            )

    def _at(self, code: str, message: str, hint: str | None, token: Token) -> None:
        self._add(code, message, hint, token.start, token.end)

    def _add(self, code: str, message: str, hint: str | None, start: int, end: int) -> None:
        self.problems.append(Problem(code, message, hint, start, end))


def unknown_option(
    kind: str, name: str, options: Iterable[str], dimensions: Iterable[str] = ()
) -> tuple[str, str]:
    """Return the error, and a hint, for an option that statements of a kind do not have.

    `dimensions` are the names of labels that a knowledge base declares.
    """
    known = [*options, *sorted(dimensions)]
    nearest = nearest_name(name, known)
    hint = f"a {kind} takes " + ", ".join(known)
    if nearest is not None:
        hint = f"did you mean {nearest}? " + hint
    return f'a {kind} has no annotation "{excerpt(name)}"', hint


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def variable_tokens(tokens: list[Token]) -> Iterator[tuple[str, Token]]:
    """Yield every variable among tokens, by name without question mark."""
    for token in tokens:
        if token.type == "VAR":
            yield token.value[1:], token
        elif token.type == "ANON":
            yield "_", token


def _head(clause: ClauseTree) -> Node:
    return cast(Node, clause.head)  # facts and rules have one by the grammar


def _ungroup(node: Node) -> Node:
    while node.kind == "group":
        node = node.args[0]
    return node


def _is_aggregate(node: Node) -> bool:
    """Return True if a call looks like an aggregate: an unquoted name with a single variable or
    star.
    """
    return (
        node.token.type == "IDENT"
        and node.token.value in AGGREGATES
        and len(node.args) == 1
        and node.args[0].kind in ("VAR", "ANON", "STAR")
    )
