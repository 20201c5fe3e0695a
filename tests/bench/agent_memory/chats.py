"""Generator of chats: two people over many sessions, or one person who writes alone.

The shape is that of long chats between friends, as public sets describe it: some twenty sessions of
some twenty turns, a few subjects in each, greetings and remarks in between. A detail of a subject
is either said in full, with the words of the subject, or as the short answer to a question of the
other person, whose words it does not repeat. The person who writes alone says all details in full.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone

from .drafts import PEOPLE
from .interface import Conversation, Question, Turn

SESSIONS = 20
SUBJECTS_PER_SESSION = 3
FULL, SHORT = "said in full", "short answer"
"""Abilities: how the evidence of a question was said."""

SUBJECTS = (
    "pottery class", "camping trip", "charity run", "garden project", "choir concert",
    "book club", "cooking course", "photo exhibition", "kitchen renovation", "sailing lesson",
    "chess tournament", "school reunion", "birthday party", "road trip", "dance workshop",
    "job interview", "adoption meeting", "music festival", "hiking tour", "language course",
)  # fmt: skip
DETAILS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "Who went with {who} to the {what}?",
        "Did anyone come with you to the {what}?",
        "Yes, {value} did, which was lovely.",
        "{value} came with me to the {what}.",
        ("my cousin Ava", "my colleague Ben", "my aunt Cleo", "my brother Dov", "old Mr Ekberg",
         "my flatmate Fern", "my niece Gwen", "the twins"),
    ),
    (
        "Where was the {what} of {who}?",
        "Where does the {what} take place?",
        "Down at {value}, just a short walk away.",
        "The {what} was at {value} this time.",
        ("the old mill", "the harbour hall", "Lake Orrin", "the town library", "Maple Street",
         "the red barn", "the north beach", "Hill Park"),
    ),
    (
        "What did {who} take home from the {what}?",
        "What did you bring back from the {what}?",
        "Just {value}, but I am proud.",
        "I brought {value} home from the {what}.",
        ("a blue bowl", "two medals", "a stack of photos", "a jar of honey", "a wooden spoon",
         "three postcards", "a signed poster", "a paper crane"),
    ),
    (
        "How did {who} feel about the {what}?",
        "How did the {what} go?",
        "Honestly, I was {value} the whole day.",
        "The {what} made me {value}.",
        ("nervous", "thrilled", "exhausted", "grateful", "bored", "homesick", "proud", "calm"),
    ),
)  # fmt: skip
"""A detail: the later question, the question in the chat, its answer, the full sentence, the
values.
"""

GREETINGS = ("Hey {other}! Good to see you again.", "Hi {other}, how have you been?")
REPLIES = ("Hi {other}! All good here, a bit busy.", "Hey {other}, doing well, thanks.")
REMARKS = (
    "That sounds wonderful, {other}.",
    "Wow, I am so happy for you!",
    "I wish I could do something like that.",
    "Thanks for telling me, {other}.",
    "Life has been hectic here, but we manage.",
    "It really helps to talk about these things.",
)
NOTES = (
    "Slept badly, the neighbours were loud.",
    "Work was long today, nothing special.",
    "Made soup and went to bed early.",
    "Called my parents in the evening.",
)


def chat(seed: int) -> Conversation:
    """Return a chat of two people, with a question about each detail."""
    draw = random.Random(f"chat {seed}")
    pair = draw.sample(PEOPLE, 2)
    return _conversation(draw, f"chat-{seed}", pair)


def diary(seed: int) -> Conversation:
    """Return what one person wrote alone, with a question about each detail."""
    draw = random.Random(f"diary {seed}")
    return _conversation(draw, f"diary-{seed}", [draw.choice(PEOPLE)])


class _Session:
    """The turns of a session under construction."""

    def __init__(self, name: str, start: datetime) -> None:
        self._name, self._start = name, start
        self.turns: list[Turn] = []

    def say(self, speaker: str, text: str) -> str:
        """Add a turn and return its id."""
        number = len(self.turns) + 1
        at = self._start + timedelta(minutes=number)
        turn = Turn(f"{self._name}:{number}", self._name, speaker, text, at)
        self.turns.append(turn)
        return turn.id


def _conversation(draw: random.Random, name: str, people: list[str]) -> Conversation:
    turns: list[Turn] = []
    questions: list[Question] = []
    # Each subject comes up in several sessions, of one person or of both, with other details.
    plan = [subject for subject in SUBJECTS for _ in range(SESSIONS * SUBJECTS_PER_SESSION // 20)]
    draw.shuffle(plan)
    details = {
        (subject, who): draw.sample(range(len(DETAILS)), len(DETAILS))
        for subject in SUBJECTS
        for who in people
    }
    for number in range(SESSIONS):
        start = datetime(2024, 1, 8, 18, tzinfo=timezone.utc) + timedelta(days=9 * number)
        session = _Session(f"{name}:s{number + 1}", start)
        if len(people) == 2:
            first, second = draw.sample(people, 2)
            session.say(first, draw.choice(GREETINGS).format(other=second))
            session.say(second, draw.choice(REPLIES).format(other=first))
        for subject in plan[number::SESSIONS][:SUBJECTS_PER_SESSION]:
            who = draw.choice(people)
            other = next((each for each in people if each != who), None)
            for _ in range(2):
                if not details[subject, who]:
                    continue
                detail = DETAILS[details[subject, who].pop()]
                value = draw.choice(detail[4])
                ability, turn = _tell(draw, session, who, other, subject, detail, value)
                text = detail[0].format(who=who, what=subject)
                questions.append(
                    Question(
                        f"{name}:q{len(questions) + 1}", ability, text, frozenset({turn}), (value,)
                    )
                )
        turns += session.turns
    return Conversation(name, tuple(turns), tuple(questions))


def _tell(
    draw: random.Random,
    session: _Session,
    who: str,
    other: str | None,
    subject: str,
    detail: tuple[str, str, str, str, tuple[str, ...]],
    value: str,
) -> tuple[str, str]:
    """Add the turns in which a person tells a detail; return how, and the id of the turn with
    it.
    """
    _, asked, answer, full, _ = detail
    sentence = full.format(what=subject, value=value)
    sentence = sentence[0].upper() + sentence[1:]
    if other is None:
        turn = session.say(who, sentence)
        session.say(who, draw.choice(NOTES))
        return FULL, turn
    if draw.random() < 0.25:
        session.say(other, f"{draw.choice(REMARKS).format(other=who)} {asked.format(what=subject)}")
        turn = session.say(who, answer.format(value=value))
        session.say(other, draw.choice(REMARKS).format(other=who))
        return SHORT, turn
    if draw.random() < 0.5:
        session.say(other, f"What else is new, {who}?")
    turn = session.say(who, sentence)
    session.say(other, draw.choice(REMARKS).format(other=who))
    if draw.random() < 0.3:
        session.say(who, f"Have you ever been to a {subject}, {other}?")
        session.say(other, "Not yet, maybe some day.")
    return FULL, turn
