"""Phrases: how facts of a predicate are worded in text for people and prompts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kbplanner.ir.dimensions import Dimension, dimension_problem
from kbplanner.ir.inputs import Input, input_problem
from kbplanner.ir.limits import DEFAULT_LIMITS, Limits
from kbplanner.ir.masks import Mask, mask_problem
from kbplanner.ir.requirements import Requirement, requirement_problem
from kbplanner.ir.terms import Rule

_SLOT = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Phrase:
    """The wording of a predicate: a sentence with `{0}`, `{1}` ... for the arguments.

    `negative` is the sentence for explicitly negated facts; None: they stay in the notation of the
    rule language. `scope` is the partition in which the phrase is used (None: every one).
    """

    predicate: str
    arity: int
    text: str
    negative: str | None = None
    scope: str | None = None

    @property
    def signature(self) -> str:
        """The predicate as `name/arity`, which identifies the phrase in its scope."""
        return f"{self.predicate}/{self.arity}"


Declaration = Phrase | Input | Mask | Dimension | Requirement
"""A statement about a predicate, or about labels, that is stored beside the rules."""

Definition = Rule | Declaration
"""A statement of a rule author about predicates, beside facts."""


def declaration_problem(declared: Declaration, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """Return what is wrong with a declaration; None if nothing is."""
    if isinstance(declared, Input):
        return input_problem(declared, limits)
    if isinstance(declared, Mask):
        return mask_problem(declared, limits)
    if isinstance(declared, Dimension):
        return dimension_problem(declared, limits)
    if isinstance(declared, Requirement):
        return requirement_problem(declared, limits)
    return phrase_problem(declared, limits)


def phrase_problem(phrase: Phrase, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """Return what is wrong with a phrase; None if nothing is."""
    if problem := limits.predicate_problem(phrase.predicate):
        return problem
    if problem := limits.args_problem(phrase.arity):
        return problem
    for text in (phrase.text, phrase.negative):
        if text is not None and (problem := _sentence_problem(text, phrase.arity, limits)):
            return problem
    return None


def _sentence_problem(text: str, arity: int, limits: Limits) -> str | None:
    if problem := limits.constant_problem(text):
        return problem
    if not text.strip() or text != text.strip() or not text.isprintable():
        return "a phrase is one line of text, without spaces at its ends"
    slots = _SLOT.findall(text)
    if "{" in _SLOT.sub("", text) or "}" in _SLOT.sub("", text):
        return "a brace belongs to a place for an argument, such as {0}"
    for slot in slots:
        if not slot.isascii() or not slot.isdigit() or not int(slot) < arity:
            last = f"{{0}} to {{{arity - 1}}}" if arity else "no places"
            return f"there is no argument {{{slot}}}: a predicate with {arity} argument{'s' * (arity != 1)} has {last}"
    missing = sorted(set(range(arity)) - {int(slot) for slot in slots})
    if missing:
        return f"the phrase lacks {{{missing[0]}}}; facts that differ there would read alike"
    return None
