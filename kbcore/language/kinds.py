"""Facts that an entry of a model's answer stands for, by its kind.

Events, plans and instructions become facts of the vocabulary in `memory.kb`. A statement about a
later day is a plan from now on, and holds from that day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from kbcore.context.text.phrases import words
from kbcore.errors import InvalidInput
from kbcore.language.speech import Origin, day_of, has_day
from kbcore.timestamps import instant

STATE, EVENT, PREFERENCE, PLAN, INSTRUCTION = "state", "event", "preference", "plan", "instruction"

KINDS = (STATE, EVENT, PREFERENCE, PLAN, INSTRUCTION)
"""The kinds of facts that a model tells apart."""

HAPPENED, PLANS = "happened", "plans"
"""Predicates of the vocabulary: `happened(id, who, what, day)` and `plans(who, what, day)`; that of
instructions, `instruction(who, text)`, has the name of the kind.
"""

DAY_MS = 86_400_000

FIRST_PERSON = frozenset(("i", "me", "my", "mine", "myself"))
"""Words for the speaker."""

PRONOUNS = FIRST_PERSON.union(
    ("you", "your", "yours", "yourself", "he", "him", "his", "himself", "she", "her", "hers"),
    ("herself", "it", "its", "itself", "we", "us", "our", "ours", "ourselves", "they", "them"),
    ("their", "theirs", "themselves", "this", "that", "these", "those", "someone"),
)

_DAY = re.compile(r"(\d{4})(?:-(\d\d))?")

EventId = Callable[[str, tuple[str, ...]], str]
"""Function that returns the id of an event from its episode and its arguments."""


@dataclass(frozen=True, slots=True)
class Stated:
    """An entry of an answer: predicate, arguments, sign and kind, and the times `since` and `until`
    in epoch milliseconds, None if they are not given.
    """

    predicate: str
    args: tuple[str, ...]
    positive: bool
    kind: str | None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class DatedAtom:
    """A ground atom with its interval, as in a fact."""

    predicate: str
    args: tuple[str, ...]
    positive: bool = True
    valid_from: int | None = None
    valid_until: int | None = None


def person(field: str, text: str, speaker: str | None) -> str:
    """Return an argument with the speaker in place of "I"; raise InvalidInput at `field` for
    another pronoun, and for "I" of an unknown speaker.
    """
    word = text.strip().casefold()
    if word not in PRONOUNS or (len(text) > 1 and text.isupper()):  # US and IT are names
        return text
    if word not in FIRST_PERSON:
        raise InvalidInput.at(field, f'"{text}" is a pronoun, not a name')
    if speaker is None:
        raise InvalidInput.at(field, f'"{text}" is a pronoun, and the speaker is not known')
    return speaker


def day(field: str, value: object) -> int | None:
    """Return a time that a model wrote, in epoch milliseconds; None for an empty text and null.

    A year or a month stands for its first day. Raises InvalidInput at `field`.
    """
    if value is None or value == "":
        return None
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and (match := _DAY.fullmatch(text)):
        text = f"{match[1]}-{match[2] or '01'}-01"
    try:
        if not isinstance(text, str):
            raise ValueError("must be a text such as 2026-01-31")
        if not has_day(at := instant(text)):
            raise ValueError("must be in the years 1 to 9999")
        return at
    except ValueError as error:
        raise InvalidInput.at(field, str(error)) from None


def atoms_of(
    stated: Stated,
    origin: Origin,
    now: int,
    event_id: EventId,
    declared: Collection[tuple[str, int]],
) -> list[DatedAtom]:
    """Return the atoms that an entry stands for.

    An event of a predicate that is `declared` keeps it; any other becomes `happened`. A denial
    keeps its predicate, but that of a plan with a day denies the plan. `now` takes the place of an
    unknown time of speaking. Raises InvalidInput for an entry that does not fit its kind.
    """
    at = now if origin.at is None else origin.at
    tomorrow = (at // DAY_MS + 1) * DAY_MS
    stated = _of_the_vocabulary(stated)
    since, until = stated.since, stated.until
    if since is not None and until is not None and until <= since:
        raise InvalidInput.at("until", "must be after since")
    own_words = (stated.predicate, len(stated.args)) in declared
    is_future = since is not None and since >= tomorrow and stated.positive
    if stated.kind == INSTRUCTION:
        return [_instruction(stated, origin)]
    if stated.kind == PLAN and (stated.positive or since is not None):
        plan = _plan(stated)
        own_words = own_words and is_future and plan.predicate != stated.predicate
        return [plan, _dated(stated, at)] if own_words else [plan]
    if stated.kind == EVENT and stated.positive and not is_future and not own_words:
        who, what = _who_and_what(stated)
        args = (who, what, day_of(at if since is None else since))
        return [DatedAtom(HAPPENED, (event_id(origin.episode, args), *args))]
    if is_future:
        return [_plan(stated)] if stated.kind == EVENT else [_plan(stated), _dated(stated, at)]
    return [_dated(stated, at)]


def _of_the_vocabulary(stated: Stated) -> Stated:
    """Return an entry with the kind and the day that its predicate implies."""
    predicate, arity = stated.predicate, len(stated.args)
    if predicate == INSTRUCTION and arity == 2:
        return replace(stated, kind=INSTRUCTION)
    if predicate == PLANS and (arity == 3 or (arity == 2 and stated.kind == PLAN)):
        kind, size = PLAN, 3
    elif predicate == HAPPENED and (arity == 4 or (arity in (2, 3) and stated.kind == EVENT)):
        kind, size = EVENT, 3
        if arity == 4:  # the id is made here
            stated = replace(stated, args=stated.args[1:])
    else:
        return stated
    since = stated.since
    if since is None and len(stated.args) == size:
        since = day(f"args[{arity - 1}]", stated.args[-1])
    return replace(stated, kind=kind, since=since, args=stated.args[:2])


def _dated(stated: Stated, at: int) -> DatedAtom:
    """Return the atom of an entry with its interval. One that holds from the day of speaking holds
    from the time of speaking, so that it is newer than what was said on that day before.
    """
    since, until = stated.since, stated.until
    if since is not None and since // DAY_MS == at // DAY_MS and (until is None or until > at):
        since = None
    return DatedAtom(stated.predicate, stated.args, stated.positive, since, until)


def _instruction(stated: Stated, origin: Origin) -> DatedAtom:
    """Return an instruction; only its speaker can give it, because it is obeyed."""
    if len(stated.args) not in (1, 2):
        raise InvalidInput.at("args", "an instruction has the speaker and the wish")
    text = stated.args[-1]
    if origin.speaker is None or stated.args[0] not in (origin.speaker, text):
        raise InvalidInput.at("args[0]", "an instruction is given by its speaker")
    return DatedAtom(INSTRUCTION, (origin.speaker, text), stated.positive)


def _plan(stated: Stated) -> DatedAtom:
    if stated.since is None:
        raise InvalidInput.at("since", "is required: the day of a plan")
    return DatedAtom(PLANS, (*_who_and_what(stated), day_of(stated.since)), stated.positive)


def _who_and_what(stated: Stated) -> tuple[str, str]:
    """Return who does something, and what in words: `moved_to(mia, Oslo)` is "moved to Oslo"."""
    args = stated.args
    if stated.predicate in (HAPPENED, PLANS) and len(args) == 2:
        return args[0], args[1]
    if not args:
        raise InvalidInput.at("args", "name a person first")
    return args[0], " ".join([*words(stated.predicate), *args[1:]])
