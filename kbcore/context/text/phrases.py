"""Facts and rules as English sentences, where the wording is unambiguous.

Only the predicate name is split into words. Arguments do not change, because a model repeats them
in goals. A name that does not say by itself how to read the arguments, such as `parent(ann, bob)`,
makes no sentence: the fact stays in the notation of the rule language, unless a declaration
`@phrase parent/2 "{0} is a parent of {1}".` says how to word it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from kbcore.context.text.verbs import PAST, THIRD_PERSON
from kbplanner.errors import KBError
from kbplanner.ir.phrases import Phrase
from kbplanner.ir.terms import Atom, Literal, Rule, Variable
from kbplanner.syntax.parser import parse_program, parse_rule
from kbplanner.syntax.printer import print_constant, print_term
from kbplanner.syntax.statements import FactStatement

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
absent active adult afraid alive alone angry asleep awake aware bad big blind blue busy calm cheap
clean clear closed cold correct dead deep dirty dry early easy empty equal evil expert false fast
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

Templates = Mapping[tuple[str, int], Phrase]
"""Declared phrases by name and arity of the predicate."""

NO_TEMPLATES: Templates = {}


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


def clause_of(atom: Atom, templates: Templates = NO_TEMPLATES) -> tuple[str, str] | None:
    """Return an atom as subject and predicate of a sentence: `ann` and `works at acme`.

    The subject is empty where the sentence does not begin with the first argument. The result is
    None if no good sentence is known.
    """
    terms = tuple(map(print_term, atom.args))
    declared = templates.get((atom.predicate, atom.arity))
    if any(not isinstance(arg, str | Variable) for arg in atom.args):
        return None
    if declared is not None:
        text = declared.text if atom.positive else declared.negative
        if text is None:
            return None
        filled = _SLOT.sub(lambda slot: terms[int(slot[1])], text)
        if text.startswith("{0} "):
            return terms[0], filled[len(terms[0]) + 1 :]
        return "", filled
    phrase = verb_phrase(atom.predicate, len(atom.args), atom.positive)
    return None if phrase is None else (terms[0], " ".join((phrase, *terms[1:])))


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
    """Return an atom as a complete clause; None if no good one is known."""
    clause = clause_of(atom, templates)
    return None if clause is None else " ".join(filter(None, clause))


def reason_text(premises: Sequence[str], templates: Templates = NO_TEMPLATES) -> str | None:
    """Return premises in the rule language as `because A and B`, each once.

    `~` is before facts that are denied, `not` before those that are not known. The result is empty
    without premises, and None if one of them makes no good sentence.
    """
    clauses: dict[str, None] = {}
    for premise in premises:
        absent = premise.startswith("not ")
        atom = premise_atom(premise.removeprefix("not "))
        clause = None if atom is None else sentence(atom, templates)
        if clause is None:
            return None
        if absent:
            clause = f"{UNKNOWN} {clause}"
        clauses[clause] = None
    return f" because {' and '.join(clauses)}" if clauses else ""


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

    The result is None for text that is not a rule, for a rule with a part that makes no good
    sentence, such as a comparison, and where a constant looks like a variable.
    """
    rule = _rule(text)
    names = None if rule is None else _names(rule)
    if rule is None or names is None:
        return None
    parts = [sentence(_worded(rule.head, names), templates)]
    for item in rule.body:
        clause = (
            sentence(_worded(item.atom, names), templates) if isinstance(item, Literal) else None
        )
        if clause is not None and isinstance(item, Literal) and item.negated:
            clause = f"{UNKNOWN} {clause}"
        parts.append(clause)
    clauses = [part for part in parts if part is not None]
    if len(clauses) < len(parts):
        return None
    surely = (
        "" if rule.confidence is None else f" (confidence {print_constant(f'{rule.confidence:g}')})"
    )
    return f"{clauses[0]} if {' and '.join(clauses[1:])}{surely}"


def _names(rule: Rule) -> dict[Variable, str] | None:
    """Return the words for the variables of a rule: `X` for `?x`, `something` for `_`.

    The result is None if two variables or a constant would have the same word.
    """
    atoms = [rule.head, *(item.atom for item in rule.body if isinstance(item, Literal))]
    terms = [arg for atom in atoms for arg in atom.args]
    names = {}
    for term in terms:
        if isinstance(term, Variable):
            name = print_term(term).removeprefix("?")
            names[term] = SOMETHING if name == "_" else name[:1].upper() + name[1:]
    words_used = [name for name in names.values() if name != SOMETHING]
    constants = {term for term in terms if isinstance(term, str)}
    if len(set(words_used)) < len(words_used) or not constants.isdisjoint(names.values()):
        return None
    return names if all(print_constant(name) == name for name in words_used) else None


def _worded(atom: Atom, names: Mapping[Variable, str]) -> Atom:
    args = [names[arg] if isinstance(arg, Variable) else arg for arg in atom.args]
    return Atom(atom.predicate, tuple(args), atom.positive)


def is_obvious(premise: str) -> bool:
    """Return whether a premise says only that two different constants differ."""
    left, operator, right = premise.partition(" != ")
    return bool(operator) and left != right and not {'"', "'", " "} & {*left, *right}


@lru_cache(maxsize=1024)
def _rule(text: str) -> Rule | None:
    try:
        return parse_rule(text)
    except KBError:
        return None
