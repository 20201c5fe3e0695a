"""English phrases for atoms and rules whose wording is unambiguous.

Only the predicate name is split into words. Arguments do not change, because a model repeats them
in goals. A name whose words do not show the roles of the arguments, such as `parent(ann, bob)`,
stays in the notation of the rule language.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kbplanner.errors import KBError
from kbplanner.ir.terms import Atom, BodyItem, HeadTerm, Literal, Rule
from kbplanner.syntax.parser import parse_program, parse_rule
from kbplanner.syntax.printer import print_atom, print_constant, print_item, print_term
from kbplanner.syntax.statements import FactStatement

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_-]+")

_AUXILIARY_WORDS = "is are was were can could will would shall should may might must"
_PREPOSITION_WORDS = """
a an about above after against as at before behind below between by during for from in inside into like near of on onto
over since than through to toward towards under until via with within without
"""

_AUXILIARY = frozenset(_AUXILIARY_WORDS.split())
"""Words that a `not` follows."""

_PREPOSITIONS = frozenset(_PREPOSITION_WORDS.split())
"""Words that say of two things which is which."""

_NO_VERBS = re.compile(r".*(?:ss|us|is|ics|ings)|news|species|series|sales|means|always", re.ASCII)
"""Words on -s that are no third person."""


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


def verb_phrase(predicate: str, args: tuple[HeadTerm, ...], positive: bool = True) -> str | None:
    """Return the predicate of a sentence about the first argument: `works at acme`, `is not tall`.

    The result is None if the phrase could mislead, or if negating it would need an inflected verb.
    """
    phrase = words(predicate)
    if not phrase or not 1 <= len(args) <= 2:
        return None
    auxiliary, verb = phrase[0] in _AUXILIARY, _is_verb(phrase[0])
    if (
        len(args) == 2
        and phrase[-1] not in _PREPOSITIONS
        and not verb
        and not (auxiliary and len(phrase) > 1)
    ):
        return None
    if not auxiliary and not verb and not (len(args) == 2 and phrase[0].endswith("ed")):
        phrase, auxiliary = ("is", *phrase), True
    if not positive:
        if not auxiliary:
            return None
        phrase = (phrase[0], "not", *phrase[1:])
    return " ".join([*phrase, *map(print_term, args[1:])])


def sentence(atom: Atom) -> str:
    """Return an atom as a complete clause."""
    phrase = verb_phrase(atom.predicate, atom.args, atom.positive)
    if phrase is not None:
        return f"{print_term(atom.args[0])} {phrase}"
    if not atom.args and words(atom.predicate):
        return (
            f"it {'holds' if atom.positive else 'does not hold'}: {' '.join(words(atom.predicate))}"
        )
    if not atom.positive:
        return f"it is false that {sentence(Atom(atom.predicate, atom.args))}"
    return print_atom(atom)


def premise(text: str) -> str:
    """Return a premise as a clause if it is a fact in the rule language, else unchanged."""
    atom = premise_atom(text)
    return text if atom is None else sentence(atom)


def premise_atom(text: str) -> Atom | None:
    """Return the signed atom of a premise; None if it is not a fact, for example a comparison."""
    positive = not text.startswith(("not ", "~"))
    bare = text if positive else text.removeprefix("not ").removeprefix("~").lstrip()
    try:
        statements = parse_program(bare + ".")
    except KBError:
        return None
    if len(statements) != 1 or not isinstance(statements[0], FactStatement):
        return None
    return Atom(statements[0].atom.predicate, statements[0].atom.args, positive)


@lru_cache(maxsize=1024)
def rule_phrase(text: str) -> str:
    """Return a rule as `head if premise and premise`; text that is not a rule is unchanged."""
    try:
        rule: Rule = parse_rule(text)
    except KBError:
        return text
    surely = (
        "" if rule.confidence is None else f" (confidence {print_constant(f'{rule.confidence:g}')})"
    )
    return f"{sentence(rule.head)} if {' and '.join(map(_condition, rule.body))}{surely}"


def _condition(item: BodyItem) -> str:
    if not isinstance(item, Literal):
        return print_item(item)
    return f"it is not known that {sentence(item.atom)}" if item.negated else sentence(item.atom)


def _is_verb(word: str) -> bool:
    """Return whether a word looks like a verb in the third person."""
    return word == "has" or (len(word) > 3 and word.endswith("s") and not _NO_VERBS.fullmatch(word))
