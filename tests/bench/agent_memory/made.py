"""Generator of the made conversation: the same seed and size give the same turns and questions."""

from __future__ import annotations

import random
from datetime import datetime, time, timedelta, timezone
from itertools import groupby

from .abilities import ABILITIES, RULES
from .drafts import DAYS, FIRST_DAY, PEOPLE, Draft, World
from .interface import Conversation, Question, Turn

SESSION_DAYS = 7
FULL_PEOPLE, SMALL_PEOPLE = len(PEOPLE), 6


def made_conversation(seed: int, people: int = FULL_PEOPLE) -> Conversation:
    """Return one long conversation of `people` persons, with ten questions about each person.

    `people` is 4 to 48.
    """
    if not 4 <= people <= len(PEOPLE):
        raise ValueError(f"people is {people}; it must be 4 to {len(PEOPLE)}")
    draw = random.Random(seed)
    world = World(draw, draw.sample(PEOPLE, people))
    for ability in ABILITIES:
        ability(world)
    draw.shuffle(world.turns)
    world.turns.sort(key=lambda draft: draft.day)
    ids: dict[Draft, str] = {}
    turns = []
    for week, drafts in groupby(world.turns, key=lambda draft: draft.day // SESSION_DAYS):
        session = f"s{week + 1}"
        for number, draft in enumerate(drafts, 1):
            ids[draft] = f"{session}:{number}"
            start = datetime.combine(
                FIRST_DAY + timedelta(days=draft.day), time(8), tzinfo=timezone.utc
            )
            at = start + timedelta(seconds=10 * number)
            turns.append(
                Turn(ids[draft], session, draft.speaker, draft.text, at, tuple(draft.facts))
            )
    asked_at = datetime.combine(FIRST_DAY + timedelta(days=DAYS + 1), time(12), tzinfo=timezone.utc)
    questions = tuple(
        Question(
            f"q{number}",
            draft.ability,
            draft.text,
            frozenset(ids[each] for each in draft.evidence),
            tuple(draft.answers),
            tuple(draft.competing),
            draft.asker,
            asked_at,
            (draft.goal,),
            draft.query or draft.goal,
        )
        for number, draft in enumerate(world.questions, 1)
    )
    return Conversation(f"made-{seed}", tuple(turns), questions, RULES)
