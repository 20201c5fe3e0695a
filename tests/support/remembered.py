"""A realistic memory for the screens of the console: two users who talk, facts with their passages,
corrections, a denial, and a key that two sources violate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Post = Callable[[str, str, Any], Any]
"""Send a body to a path for a tenant, and return the answer."""


@dataclass(frozen=True)
class Said:
    """A message, and the facts that are believed from it: fact, quoted passage."""

    day: str
    role: str
    text: str
    facts: tuple[tuple[str, str], ...] = ()


def _user(day: str, text: str, *facts: tuple[str, str]) -> Said:
    return Said(day, "user", text, facts)


def _agent(day: str, text: str) -> Said:
    return Said(day, "assistant", text)


SPRING, SUMMER, AUTUMN = "2026-03-02", "2026-07-19", "2026-11-13"

MIA: dict[str, tuple[Said, ...]] = {
    "spring": (
        _user(
            SPRING,
            "Hi, I am Mia. I live in Hamburg and restore old sea charts.",
            ("lives_in(mia, Hamburg)", "I live in Hamburg"),
            ("works_as(mia, restorer)", "restore old sea charts"),
        ),
        _agent(SPRING, "Nice to meet you, Mia. Where do you work?"),
        _user(
            SPRING,
            "At the harbour museum.",
            ("works_at(mia, 'harbour museum')", "At the harbour museum"),
        ),
        _agent(SPRING, "That sounds like patient work. What do you like to eat?"),
        _user(
            SPRING,
            "I have been vegetarian since school, and I love tomato soup.",
            ("diet(mia, vegetarian)", "vegetarian since school"),
            ("likes(mia, 'tomato soup')", "I love tomato soup"),
        ),
        _agent(SPRING, "Noted."),
        _user(
            SPRING,
            "My sister Lea studies medicine in Kiel.",
            ("sister(mia, lea)", "My sister Lea"),
            ("studies(lea, medicine)", "Lea studies medicine"),
            ("lives_in(lea, Kiel)", "in Kiel"),
        ),
        _agent(SPRING, "Do you see her often?"),
    ),
    "summer": (
        _user(
            SUMMER,
            "Lea and I hiked on Amrum. I adopted a cat called Pixel!",
            ("owns(mia, pixel)", "I adopted a cat called Pixel"),
            ("is_a(pixel, cat)", "a cat called Pixel"),
        ),
        _agent(SUMMER, "Congratulations! Does Pixel eat everything?"),
        _user(
            SUMMER,
            "No, she is allergic to chicken.",
            ("allergic_to(pixel, chicken)", "allergic to chicken"),
        ),
        _agent(SUMMER, "I will remember that for her food."),
        _user(
            SUMMER,
            "My phone number is 555 1234.",
            ("phone(mia, '555 1234')", "555 1234"),
        ),
        _agent(SUMMER, "Thank you."),
    ),
    "autumn": (
        _user(
            AUTUMN,
            "I moved to Berlin today. The charts museum there hired me.",
            ("lives_in(mia, Berlin)", "I moved to Berlin"),
            ("works_at(mia, 'charts museum')", "The charts museum there hired me"),
        ),
        _agent(AUTUMN, "What a step. Are you still vegetarian?"),
        _user(
            AUTUMN,
            "Vegan by now. And I cannot stand tomato soup any more.",
            ("diet(mia, vegan)", "Vegan by now"),
            ("~likes(mia, 'tomato soup')", "I cannot stand tomato soup"),
        ),
        _agent(AUTUMN, "Understood, no tomato soup. Anything else?"),
        _user(
            AUTUMN,
            "Please answer in one sentence.",
            ("instruction(mia, 'Answer in one sentence.')", "answer in one sentence"),
        ),
        _agent(AUTUMN, "I will."),
    ),
}

BEN: dict[str, tuple[Said, ...]] = {
    "spring": (
        _user(
            SPRING,
            "I am Ben, I live in Leipzig and play chess.",
            ("lives_in(ben, Leipzig)", "I live in Leipzig"),
            ("plays(ben, chess)", "play chess"),
        ),
        _agent(SPRING, "A strong club, Leipzig."),
    ),
}

RULES = """
@phrase lives_in/2 "{0} lives in {1}".
@phrase likes/2 "{0} likes {1}" "{0} does not like {1}".
@key phone(?who, _).
neighbour(?a, ?b) :- lives_in(?a, ?city), lives_in(?b, ?city), ?a != ?b.
can_serve(?who, ?dish) :- vegan_dish(?dish), diet(?who, vegan), not allergic_to(?who, ?dish).
family(?x, ?y) :- sister(?x, ?y).
family(?x, ?y) :- sister(?y, ?x).
household(?x, ?y) :- owns(?x, ?y).
"""

IMPORTED = (
    {"text": "phone(mia, '555 9876')", "metadata": {"source": "crm"}, "confidence": 0.7},
    {"text": "vegan_dish('lentil stew')", "metadata": {"source": "recipes"}},
    {"text": "vegan_dish('pumpkin curry')", "metadata": {"source": "recipes"}},
    {"text": "located_in(Berlin, Germany)", "metadata": {"source": "atlas"}},
    {"text": "located_in(Hamburg, Germany)", "metadata": {"source": "atlas"}},
    {"text": "located_in(Kiel, Germany)", "metadata": {"source": "atlas"}},
)


def remember(post: Post, mia: str = "mia", ben: str = "ben") -> None:
    """Store the memory of both users, each in a tenant of its own."""
    for tenant, sessions in ((mia, MIA), (ben, BEN)):
        post(tenant, "/teach", {"text": RULES})
        name = "Mia" if sessions is MIA else "Ben"
        for session, messages in sessions.items():
            _talk(post, tenant, name, session, messages)
    post(mia, "/assert/facts", {"facts": list(IMPORTED)})
    post(
        mia,
        "/memory/correct",
        {
            "old": "works_as(mia, restorer)",
            "new": {"text": "works_as(mia, 'restorer of charts')"},
            "reason": "Mia said what she restores",
        },
    )


def _talk(post: Post, tenant: str, name: str, session: str, messages: tuple[Said, ...]) -> None:
    turns = [
        {
            "role": said.role,
            "content": said.text,
            "at": f"{said.day}T09:{minute:02}:00Z",
            **({"name": name} if said.role == "user" else {}),
        }
        for minute, said in enumerate(messages)
    ]
    stored = post(tenant, "/memory/add", {"session": session, "messages": turns})
    for said, episode in zip(messages, stored["episodeIds"], strict=True):
        for fact, passage in said.facts:
            start = said.text.index(passage)
            span = {"episode": episode, "start": start, "end": start + len(passage)}
            body = {"text": fact, "validFrom": said.day, "evidence": [span]}
            post(tenant, "/assert/fact", {**body, "conflictStrategy": "NEWEST_WINS"})
