"""Facts, goals and rules in words: English sentences where the wording is unambiguous, else labels.

Only the predicate name is split into words. Arguments do not change, because a model repeats them
in goals. A name that does not say by itself how to read the arguments, such as `parent(ann, bob)`,
makes no sentence but a label, `ann · parent: bob`, unless a declaration
`@phrase parent/2 "{0} is a parent of {1}".` says how to word it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from kbcore.context.text.memories import SAID, dated_of, time_of
from kbcore.context.text.notes import day_text, is_low
from kbcore.context.text.verbs import PAST, THIRD_PERSON
from kbplanner.errors import KBError
from kbplanner.ir.operators import ARITHMETIC, COMPARISONS, OPPOSITE
from kbplanner.ir.phrases import Phrase
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
from kbplanner.ir.values.numbers import is_number
from kbplanner.syntax.parser import parse_program, parse_rule
from kbplanner.syntax.printer import print_constant, print_expression, print_item, print_term
from kbplanner.syntax.statements import FactStatement
from kbplanner.syntax.textform import body_from_text

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_-]+")
_SLOT = re.compile(r"\{(\d+)\}")

_BE = frozenset(("is", "are", "was", "were"))
_MODAL_WORDS = """
can could will would shall should may might must
"""
_MODAL = frozenset(_MODAL_WORDS.split())

_PREPOSITIONS_WORDS = """
a an about above after against as at before behind below between by during for from in inside into
like near of on onto over since than through to toward towards under until via with within without
"""
_PREPOSITIONS = frozenset(_PREPOSITIONS_WORDS.split())
"""Words after which an argument can stand."""

_ADJECTIVES_WORDS = """
absent active adult afraid alive alone angry asleep awake aware away bad big blind blue busy calm cheap
clean clear closed cold correct dead deep dirty drunk dry early easy empty equal evil expert false fast
fat female fit flat free fresh full good green guilty happy hard healthy heavy high hot human
hungry ill innocent kind large late lazy legal light local long loud low mad male mandatory mortal
native near new nice normal offline old online open optional poor present private public quick
quiet rare raw ready red rich ripe sad safe senior short sick slow small smart soft solid sorry
spicy stale strong stupid sure sweet tall thin tiny tired true ugly urgent vacant valid vegan
vegetarian warm weak wet white wide wild wrong young
"""
_ADJECTIVES = frozenset(_ADJECTIVES_WORDS.split())
_ADJECTIVE = re.compile(r".+(?:able|ible|ful|ous|less|ive|[^e]ed|ing)", re.ASCII)

UNKNOWN = "it is not known that"
"""The words before a fact of which nothing is known."""

SOMETHING = "something"
"""The word for an argument that does not matter."""

LABEL_JOINT = " · "
"""The text between a subject and a label."""

Templates = Mapping[tuple[str, int], Phrase]
"""Declared phrases by name and arity of the predicate."""

NO_TEMPLATES: Templates = {}

Names = Mapping[Variable, str]
"""Words for variables; the others stay as they are, `?x`."""

NO_NAMES: Names = {}


@lru_cache(maxsize=4096)
def words(predicate: str) -> tuple[str, ...]:
    """Return the words of an identifier, none if it does not consist of words.

    `works_at`, `works-at` and `worksAt` all give `works at`.
    """
    if not re.fullmatch(r"[\w-]+", predicate):
        return ()
    return tuple(
        part if part.isupper() and len(part) > 1 else part.lower()
        for part in _PARTS.findall(predicate)
    )


class AtomWords(NamedTuple):
    """An atom in words: its subject, which may be empty, and what is said of it.

    `is_label` is True for a label, which is joined to its subject with a middle dot.
    """

    subject: str
    text: str
    is_label: bool = False

    @property
    def whole(self) -> str:
        """The clause with its subject."""
        return f"{self.subject}{self.joint}{self.text}" if self.subject else self.text

    @property
    def joint(self) -> str:
        """The text between the subject and what is said of it."""
        return LABEL_JOINT if self.is_label else " "


def clause_of(
    atom: Atom, templates: Templates = NO_TEMPLATES, names: Names = NO_NAMES
) -> AtomWords:
    """Return an atom in words: `ann` and `works at acme`, or as a label, `ann` and `parent: bob`.

    The subject is the first argument, or of an event who it happened to; it is empty where the
    sentence does not begin with it.
    """
    return _sentence_of(atom, templates, names) or _label_of(atom, names)


def _sentence_of(atom: Atom, templates: Templates, names: Names) -> AtomWords | None:
    """Return an atom as a sentence; None if no good one is known."""
    terms = tuple(_term_words(arg, names) for arg in atom.args)
    declared = templates.get((atom.predicate, atom.arity))
    if declared is not None:
        text = declared.text if atom.positive else declared.negative
        if text is None:
            return _verb_sentence(atom, terms)
        filled = _SLOT.sub(lambda slot: terms[int(slot[1])], text)
        if text.startswith("{0} "):
            return AtomWords(terms[0], filled[len(terms[0]) + 1 :])
        return AtomWords("", filled)
    return _verb_sentence(atom, terms)


def _verb_sentence(atom: Atom, terms: Sequence[str]) -> AtomWords | None:
    phrase = verb_phrase(atom.predicate, len(atom.args), atom.positive)
    return None if phrase is None else AtomWords(terms[0], " ".join((phrase, *terms[1:])))


def _label_of(atom: Atom, names: Names) -> AtomWords:
    """Return an atom as a label: `ann · parent: bob`, `monday · meeting: "10:00", ann`, `raining`.

    A text that was said has its day, and an event has no id.
    """
    name, args = label_name(atom.predicate), atom.args
    if (dated := dated_of(atom)) is not None:
        at = time_of(dated.when)
        day = _term_words(dated.when, names) if at is None else day_text(at)
        name, args = f"said on {day}" if atom.predicate == SAID else f"on {day}", dated[:2]
    if not atom.positive:
        name = f"not {name}"
    subject, *others = (_term_words(arg, names) for arg in args) if args else ("",)
    return AtomWords(subject, f"{name}: {', '.join(others)}" if others else name, True)


def label_name(predicate: str) -> str:
    """Return a predicate as it stands in a label: `allergic to`."""
    return " ".join(words(predicate)) or print_constant(predicate)


_COMPARISON_WORDS = {
    "!=": "is not",
    "<": "is less than",
    "<=": "is at most",
    ">": "is more than",
    ">=": "is at least",
}
_TIME_WORDS = {
    "!=": "is not",
    "<": "is before",
    "<=": "is on or before",
    ">": "is after",
    ">=": "is on or after",
}

_AGGREGATES = {
    "count": "the number of",
    "sum": "the sum of",
    "min": "the least",
    "max": "the greatest",
    "avg": "the average of",
    "representative": "one",
}


def _term_words(term: HeadTerm, names: Names) -> str:
    if isinstance(term, Aggregate | Extremum):
        of = "answers" if term.variable is None else _term_words(term.variable, names)
        return f"{_AGGREGATES[term.function]} {of}"
    return names.get(term) or print_term(term) if isinstance(term, Variable) else print_term(term)


@lru_cache(maxsize=4096)
def verb_phrase(predicate: str, arity: int, positive: bool) -> str | None:
    """Return the words between the arguments, `does not work at`; None if they could mislead."""
    phrase = words(predicate)
    if not phrase or not 1 <= arity <= 2 or not _fits(phrase, arity):
        return None
    if positive:
        return " ".join(phrase)
    first, *rest = phrase
    if first == "can":
        return " ".join(("cannot", *rest))
    if first in _BE | _MODAL:
        return " ".join((first, "not", *rest))
    if first in THIRD_PERSON:
        return " ".join(("does not", THIRD_PERSON[first], *rest))
    return " ".join(("did not", PAST[first], *rest))


def _fits(phrase: tuple[str, ...], arity: int) -> bool:
    """Return whether words make a sentence with one argument before and the others after them."""
    first, last = phrase[0], phrase[-1]
    if arity == 1:
        if first in _BE:
            return len(phrase) == 2 and (last in _ADJECTIVES or bool(_ADJECTIVE.fullmatch(last)))
        return (first in _MODAL and len(phrase) > 1 and last not in _PREPOSITIONS) or (
            phrase == (first,) and first in THIRD_PERSON
        )
    if first in _BE:
        return len(phrase) > 1 and last in _PREPOSITIONS
    if first in _MODAL:
        return len(phrase) == 2 or (len(phrase) > 2 and last in _PREPOSITIONS)
    if len(phrase) == 1:
        return first in THIRD_PERSON or first in PAST
    # Not with a past tense: `related to` and `moved to` need different auxiliaries.
    return first in THIRD_PERSON and last in _PREPOSITIONS


def sentence(atom: Atom, templates: Templates = NO_TEMPLATES) -> str | None:
    """Return an atom as a complete sentence; None if no good one is known."""
    clause = _sentence_of(atom, templates, NO_NAMES)
    return None if clause is None else clause.whole


def in_words(text: str, templates: Templates = NO_TEMPLATES) -> str:
    """Return a goal or a condition in the rule language in words, its variables as `?x`."""
    body = _body(text)
    return " and ".join(_item_words(item, templates) for item in body) if body else text


def unmet_words(text: str, templates: Templates = NO_TEMPLATES) -> str:
    """Return conditions in the rule language that are not met as what is known instead."""
    unmet = (replace(item, negated=not item.negated) for item in _body(text))
    return " and ".join(_item_words(item, templates) for item in unmet) or text


@lru_cache(maxsize=4096)
def _body(text: str) -> tuple[BodyItem, ...]:
    """Return the items of a text in the rule language, none if it cannot be read."""
    try:
        return body_from_text(text)
    except KBError:
        return ()


def _item_words(item: BodyItem, templates: Templates, names: Names = NO_NAMES) -> str:
    if not isinstance(item, Literal):
        named = replace(item, left=_named(item.left, names), right=_named(item.right, names))
        return _comparison_words(named) or print_item(named)
    clause = clause_of(item.atom, templates, names).whole
    return f"{UNKNOWN} {clause}" if item.negated else clause


def _comparison_words(item: Comparison) -> str | None:
    """Return a comparison in words, `34 is at least 18`; None for a computation and other tests."""
    op = OPPOSITE.get(item.op, "") if item.negated else item.op
    times = (
        isinstance(item.left, str) and time_of(item.left) is not None and not is_number(item.left)
    )
    phrase = (_TIME_WORDS if times else _COMPARISON_WORDS).get(op)
    if phrase is None:
        return None
    return f"{print_expression(item.left)} {phrase} {print_expression(item.right)}"


def reason_text(premises: Sequence[str], templates: Templates = NO_TEMPLATES) -> str:
    """Return premises in the rule language as `because A and B`, each once; empty without premises.

    `~` is before facts that are denied, `not` before those that are not known.
    """
    clauses = dict.fromkeys(in_words(premise, templates) for premise in premises)
    return f" because {' and '.join(clauses)}" if clauses else ""


def is_computed(premise: str) -> bool:
    """Return whether a premise that is no fact is a test that calls functions."""
    return any(map(calls, _body(premise)))


def calls(item: BodyItem) -> bool:
    """Return whether an item of a body calls a function that is not arithmetic."""
    if isinstance(item, Literal):
        return False
    return item.op not in COMPARISONS or _calls(item.left) or _calls(item.right)


def _calls(expr: Expr) -> bool:
    if not isinstance(expr, Apply):
        return False
    return expr.function not in ARITHMETIC or any(map(_calls, expr.args))


def premise_atom(text: str) -> Atom | None:
    """Return the atom of a premise, negative after `~`; None if it is not a fact, for example a
    comparison or an absence, which begins with `not`.
    """
    positive = not text.startswith("~")
    bare = text.removeprefix("~")
    if text.startswith("not "):
        return None
    try:
        statements = parse_program(bare + ".")
    except KBError:
        return None
    if len(statements) != 1 or not isinstance(statements[0], FactStatement):
        return None
    return Atom(statements[0].atom.predicate, statements[0].atom.args, positive)


def rule_phrase(text: str, templates: Templates = NO_TEMPLATES) -> str | None:
    """Return a rule as `head if premise and premise`, with capital letters for variables.

    Variables stay as they are, `?x`, where a constant looks like one in capital letters. The result
    is None for text that is not a rule, and for a rule that calls functions: they say how values
    are computed, which a reader need not know.
    """
    rule = _rule(text)
    if rule is None or any(map(calls, rule.body)):
        return None
    names = _names(rule)
    head = clause_of(rule.head, templates, names).whole
    body = [_item_words(item, templates, names) for item in rule.body]
    surely = f" (confidence {rule.confidence:.3g})" if is_low(rule.confidence) else ""
    return f"{head} if {' and '.join(body)}{surely}"


def _names(rule: Rule) -> Names:
    """Return the words for the variables of a rule: `X` for `?x`, `something` for `_`.

    Only `_` has a word if two variables or a constant would have the same one.
    """
    atoms = [rule.head, *(item.atom for item in rule.body if isinstance(item, Literal))]
    variables = {*rule.head.variables(), *(each for item in rule.body for each in item.variables())}
    anonymous = {each: SOMETHING for each in variables if each.anonymous}
    names = {each: _capital(each.name) for each in variables if not each.anonymous}
    constants = {arg for atom in atoms for arg in atom.args if isinstance(arg, str)}
    is_plain = all(name == print_constant(name) for name in names.values())
    if not is_plain or len({*names.values()}) < len(names) or constants & {*names.values()}:
        return anonymous
    return anonymous | names


def _capital(name: str) -> str:
    bare = name.lstrip("_")
    return bare[:1].upper() + bare[1:]


def _named(expr: Expr, names: Names) -> Expr:
    """Return an expression with words in place of variables."""
    if isinstance(expr, Apply):
        return Apply(expr.function, tuple(_named(arg, names) for arg in expr.args))
    return names.get(expr, expr) if isinstance(expr, Variable) else expr


def is_obvious(premise: str) -> bool:
    """Return whether a premise says only that two different constants differ, that a number is
    above or below 0, or in which order two names stand, which rules ask for to name a pair once.
    """
    if not any(op in premise for op in (" != ", " < ", " <= ", " > ", " >= ")):
        return False
    body = _body(premise)
    if len(body) != 1 or isinstance(body[0], Literal) or body[0].negated:
        return False
    op, left, right = body[0].op, body[0].left, body[0].right
    if not isinstance(left, str) or not isinstance(right, str):
        return False
    if op == "!=":
        return left != right
    if op not in _COMPARISON_WORDS:
        return False
    if is_number(left) and is_number(right):
        return "0" in (left, right)
    return time_of(left) is None or time_of(right) is None


@lru_cache(maxsize=1024)
def _rule(text: str) -> Rule | None:
    try:
        return parse_rule(text)
    except KBError:
        return None
