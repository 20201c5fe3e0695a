"""Generator of chats: two people over many sessions, with days between them.

A session has some subjects of one person or the other, with small talk in between. A subject lasts
several turns: it is named at first, and then people say "it" or nothing. Details are said in full;
as the short answer to a question; wrong at first and corrected; with a day relative to the day of
speaking; in several turns; or as news of a subject that comes up again and again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from types import ModuleType

from . import chat_texts, other_chat_texts
from .chat_texts import Family
from .drafts import PEOPLE
from .interface import Conversation, Question, Turn

SESSIONS = 24
SUBJECTS_PER_SESSION = 4
SUBJECTS_PER_PERSON = 24
SHARED_SUBJECTS = 6
DETAILS_AT_ONCE = 3

FULL, SHORT, CORRECTED = "said in full", "short answer", "corrected value"
RELATIVE, SEVERAL, NEWS = "relative date", "several turns", "news of a day"
NEVER = "never said"
KINDS = (FULL, SHORT, CORRECTED, RELATIVE, SEVERAL, NEWS, NEVER)
"""Abilities: how the evidence of a question was said."""

_NEXT = ("tomorrow", "next Tuesday", "this Friday", "next Saturday", "in two weeks", "next month",
         "on Thursday", "in ten days", "the day after tomorrow")  # fmt: skip
_LAST = ("yesterday", "last Sunday", "last Wednesday", "three days ago", "a week ago",
         "two weeks ago", "last month", "on Monday")  # fmt: skip


@dataclass(eq=False)
class _Subject:
    """A subject of a person, and the details that were not said yet."""

    who: str
    noun: str
    family: Family
    open: list[str] = field(default_factory=list)
    turns: set[str] = field(default_factory=set)
    corrigible: list[tuple[str, str, str]] = field(default_factory=list)
    """Details said in full, which a later session may correct: detail, value, id of the
    question.
    """


TEXTS: Mapping[str, ModuleType] = {"chats": chat_texts, "other-chats": other_chat_texts}
"""The sentences of the made chats, by option."""


def chat(seed: int, name: str = "chats") -> Conversation:
    """Return a chat of two people, with questions of all KINDS; `name` is one of TEXTS."""
    draw = random.Random(f"coherent chat {seed}")
    return _Chat(f"{name[:-1]}-{seed}", draw, TEXTS[name]).made()


class _Chat:
    """The turns and questions of a chat under construction; all choices come from `draw`."""

    def __init__(self, name: str, draw: random.Random, texts: ModuleType) -> None:
        self._name, self._draw, self._texts = name, draw, texts
        self._people = draw.sample([each for each in PEOPLE if each not in self._texts.FRIENDS], 2)
        self._turns: list[Turn] = []
        self._questions: dict[str, tuple[_Subject, Question]] = {}
        self._session = ""
        self._at = datetime(2024, 1, 8, 18, tzinfo=timezone.utc)
        nouns = [(noun, family) for family in self._texts.FAMILIES for noun in family.nouns]
        draw.shuffle(nouns)
        each = min(SUBJECTS_PER_PERSON, len(nouns) // 2)
        count = 2 * each - SHARED_SUBJECTS
        chosen, self._never = nouns[:count], nouns[count:]
        # Some subjects are of both people: only the name tells them apart.
        both = chosen[:SHARED_SUBJECTS]
        halves = (chosen[:each], [*both, *chosen[each:]])
        self._subjects = [
            _Subject(who, noun, family, draw.sample(family.details, len(family.details)))
            for who, half in zip(self._people, halves, strict=True)
            for noun, family in half
        ]

    def made(self) -> Conversation:
        """Return the conversation."""
        plan: list[_Subject] = []
        while len(plan) < SESSIONS * SUBJECTS_PER_SESSION:
            plan += self._draw.sample(self._subjects, len(self._subjects))
        for number in range(SESSIONS):
            start = number * SUBJECTS_PER_SESSION
            self._add_session(number, plan[start : start + SUBJECTS_PER_SESSION])
        for noun, family in self._never:
            subject = _Subject(self._draw.choice(self._people), noun, family)
            self._ask(NEVER, subject, self._draw.choice(family.details), [], [])
        questions = [
            replace(question, related=frozenset(subject.turns))
            for subject, question in self._questions.values()
        ]
        return Conversation(self._name, tuple(self._turns), tuple(questions))

    def _add_session(self, number: int, subjects: Iterable[_Subject]) -> None:
        draw = self._draw
        self._session = f"{self._name}:s{number + 1}"
        day = self._at + timedelta(days=draw.randint(2, 11) if number else 0)
        self._at = day.replace(hour=draw.randint(8, 21), minute=draw.randrange(60))
        first, second = draw.sample(self._people, 2)
        self._say(first, draw.choice(self._texts.GREETINGS))
        self._say(second, draw.choice(self._texts.REPLIES))
        for subject in subjects:
            self._add_subject(subject)
            self._add_small_talk()
        if draw.random() < 0.5:
            self._say(first, draw.choice(self._texts.BYES))

    def _add_small_talk(self) -> None:
        for one, other in self._draw.sample(self._texts.SMALL_TALK, self._draw.randint(0, 2)):
            first, second = self._draw.sample(self._people, 2)
            friend = self._draw.choice(self._texts.FRIENDS)
            self._say(first, one, friend=friend)
            self._say(second, other, friend=friend)

    def _add_subject(self, subject: _Subject) -> None:
        """Add the turns about a subject: an opening, some details, perhaps a turn about nothing."""
        draw, who, other = self._draw, subject.who, self._other(subject.who)
        start = len(self._turns)
        self._say(who, draw.choice(subject.family.openers), noun=subject.noun)
        self._say(other, draw.choice(subject.family.reactions))
        for index in range(draw.randint(1, DETAILS_AT_ONCE)):
            if index and draw.random() < 0.4:
                self._say(other, draw.choice(self._texts.REMARKS))
            self._add_detail(subject)
        if draw.random() < 0.15:
            one, reply = draw.choice(self._texts.WONDERING)
            friend = draw.choice(self._texts.FRIENDS)
            self._say(who, one, noun=subject.noun, friend=friend)
            self._say(other, reply, friend=friend)
        elif draw.random() < 0.7:
            self._say(other, draw.choice(self._texts.REMARKS))
        subject.turns.update(turn.id for turn in self._turns[start:])

    def _add_detail(self, subject: _Subject) -> None:
        draw = self._draw
        if draw.random() < 0.2:
            self._add_news(subject)
        elif draw.random() < 0.15 and subject.corrigible:
            self._correct_later(subject)
        elif subject.open:
            detail = subject.open.pop()
            kinds = (self._add_full, self._add_short, self._add_corrected, self._add_several)
            weights = (4, 5, 3, 4 if detail in self._texts.COUNTABLE else 0)
            draw.choices(kinds, weights)[0](subject, detail)
        if draw.random() < 0.3 and f"{subject.who} {subject.noun} when" not in self._questions:
            self._add_date(subject)

    def _add_full(self, subject: _Subject, detail: str) -> None:
        value = self._draw.choice(self._texts.DETAILS[detail].values)
        turn = self._say(
            subject.who,
            self._draw.choice(self._texts.DETAILS[detail].full),
            noun=subject.noun,
            value=value,
        )
        id = self._ask(FULL, subject, detail, [turn], [value])
        subject.corrigible.append((detail, value, id))

    def _add_short(self, subject: _Subject, detail: str) -> None:
        texts, draw = self._texts.DETAILS[detail], self._draw
        value, asked = draw.choice(texts.values), draw.choice((texts.asked, texts.asked_again))
        question = draw.choice(asked)
        if draw.random() < 0.3:
            question = f"{draw.choice(self._texts.REMARKS)} {question}"
        self._say(self._other(subject.who), question, noun=subject.noun)
        turn = self._say(subject.who, draw.choice(texts.short), value=value)
        self._ask(SHORT, subject, detail, [turn], [value])

    def _add_corrected(self, subject: _Subject, detail: str) -> None:
        texts, draw = self._texts.DETAILS[detail], self._draw
        wrong, value = draw.sample(texts.values, 2)
        self._say(subject.who, draw.choice(texts.full), noun=subject.noun, value=wrong)
        self._say(
            self._other(subject.who), draw.choice(self._texts.CORRECTED_REACTIONS), value=wrong
        )
        turn = self._say(subject.who, draw.choice(self._texts.CORRECTIONS), value=value)
        self._ask(CORRECTED, subject, detail, [turn], [value], [wrong])

    def _correct_later(self, subject: _Subject) -> None:
        """Correct what was said in full before, perhaps in an earlier session."""
        draw = self._draw
        detail, wrong, id = subject.corrigible.pop()
        value = draw.choice([each for each in self._texts.DETAILS[detail].values if each != wrong])
        # The sentence in full says what is corrected; the beginning says that it is.
        text = f"{draw.choice(self._texts.LATE_CORRECTIONS)} {draw.choice(self._texts.DETAILS[detail].full)}"
        turn = self._say(subject.who, text, noun=subject.noun, value=value)
        del self._questions[id]
        self._ask(CORRECTED, subject, detail, [turn], [value], [wrong])

    def _add_several(self, subject: _Subject, detail: str) -> None:
        texts, draw = self._texts.DETAILS[detail], self._draw
        values = draw.sample(texts.values, draw.randint(2, 3))
        turns = [
            self._say(subject.who, draw.choice(texts.full), noun=subject.noun, value=values[0])
        ]
        for value in values[1:]:
            self._say(self._other(subject.who), draw.choice(self._texts.REMARKS))
            turns.append(self._say(subject.who, draw.choice(self._texts.ADDITIONS), value=value))
        self._ask(SEVERAL, subject, detail, turns, values)

    def _add_date(self, subject: _Subject) -> None:
        """Tell when a subject is or was; relative to the day of speaking."""
        draw = self._draw
        is_past = draw.random() < 0.5
        when = draw.choice(_LAST if is_past else _NEXT)
        if draw.random() < 0.5:
            text = draw.choice(self._texts.PAST if is_past else self._texts.DATED)
        else:
            self._say(
                self._other(subject.who),
                draw.choice(self._texts.PAST_ASKED if is_past else self._texts.DATE_ASKED),
            )
            text = "{when}."
        turn = self._say(subject.who, text, noun=subject.noun, when=when)
        asked = draw.choice(self._texts.PAST_QUESTIONS if is_past else self._texts.DATE_QUESTIONS)
        self._note(RELATIVE, subject, "when", asked, [turn], [when])

    def _add_news(self, subject: _Subject) -> None:
        draw = self._draw
        day = f"{self._at.day} {self._at:%B %Y}"
        if f"{subject.who} {subject.noun} {day}" in self._questions:
            return
        value = draw.choice(self._texts.STEPS)
        turn = self._say(
            subject.who, draw.choice(self._texts.UPDATES), noun=subject.noun, value=value
        )
        self._note(
            NEWS, subject, day, draw.choice(self._texts.UPDATE_QUESTIONS), [turn], [value], day=day
        )

    def _ask(
        self,
        kind: str,
        subject: _Subject,
        detail: str,
        turns: Sequence[str],
        values: Sequence[str],
        competing: Sequence[str] = (),
    ) -> str:
        text = self._draw.choice(self._texts.DETAILS[detail].questions)
        return self._note(kind, subject, detail, text, turns, values, competing)

    def _note(
        self,
        kind: str,
        subject: _Subject,
        about: str,
        text: str,
        turns: Sequence[str],
        values: Sequence[str],
        competing: Sequence[str] = (),
        **more: str,
    ) -> str:
        """Add a question about a subject, and return its id."""
        id = f"{subject.who} {subject.noun} {about}"
        question = Question(
            f"{self._name}: {id}",
            kind,
            text.format(who=subject.who, noun=subject.noun, **more),
            frozenset(turns),
            tuple(values),
            tuple(competing),
        )
        self._questions[id] = subject, question
        return id

    def _say(self, speaker: str, text: str, **values: str) -> str:
        """Add a turn and return its id."""
        self._at += timedelta(seconds=self._draw.randint(5, 90))
        number = 1 + sum(turn.session == self._session for turn in self._turns[-99:])
        said = text.format(other=self._other(speaker), **values)
        said = said[0].upper() + said[1:]
        turn = Turn(f"{self._session}:{number}", self._session, speaker, said, self._at)
        self._turns.append(turn)
        return turn.id

    def _other(self, person: str) -> str:
        return next(each for each in self._people if each != person)
