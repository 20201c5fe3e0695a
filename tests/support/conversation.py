"""A conversation of 40 turns with corrections, what an agent records of it, and 40 questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Turn:
    """A message, and the values that the agent records with it: fact, since, replaced fact."""

    role: str
    content: str
    updates: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class Asked:
    """A question, a text that the window has, and texts that it must not have."""

    question: str
    expected: str
    never: tuple[str, ...] = ()


def _user(content: str, *updates: tuple[str, str | None]) -> Turn:
    return Turn("user", content, updates)


def _agent(content: str) -> Turn:
    return Turn("assistant", content)


DAYS = ("2023-09-01", "2023-09-08", "2023-10-03", "2023-11-10")

SESSIONS: tuple[tuple[Turn, ...], ...] = (
    (
        _user("Hi, I am Mia. I live in Hamburg.", ("lives_in(mia, Hamburg)", None)),
        _agent("Nice to meet you, Mia."),
        _user("I work at the harbour museum.", ("works_at(mia, 'harbour museum')", None)),
        _agent("What do you do there?"),
        _user("I restore old sea charts.", ("works_as(mia, restorer)", None)),
        _agent("That sounds like patient work."),
        _user("I have been vegetarian since school.", ("diet(mia, vegetarian)", None)),
        _agent("Noted: vegetarian."),
        _user("My sister Lea studies medicine in Kiel."),
        _agent("Do you see her often?"),
    ),
    (
        _user("Lea and I hiked on the island of Amrum last weekend."),
        _agent("How was the weather?"),
        _user("It rained all day."),
        _agent("What else is new?"),
        _user("I adopted a cat called Pixel."),
        _agent("Congratulations!"),
        _user("Pixel is allergic to chicken."),
        _agent("I will remember that for her food."),
        _user("My doctor is Doctor Weber."),
        _agent("Thank you."),
    ),
    (
        _user("I quit at the museum and work at the city archive now.",
              ("works_at(mia, 'city archive')", "works_at(mia, 'harbour museum')")),
        _agent("When did you start?"),
        _user("On the first of October."),
        _agent("All the best for it!"),
        _user("I eat vegan these days.", ("diet(mia, vegan)", "diet(mia, vegetarian)")),
        _agent("No more cheese then."),
        _user("Please remind me that the rent is 900 euros."),
        _agent("I keep that in mind."),
        _user("Sorry, the rent is 950 euros, not 900."),
        _agent("Corrected."),
    ),
    (
        _user("I moved to Berlin.", ("lives_in(mia, Berlin)", "lives_in(mia, Hamburg)")),
        _agent("Which part of Berlin?"),
        _user("In Wedding, near the canal."),
        _agent("Did Pixel move along?"),
        _user("Yes, she sleeps on the piano."),
        _agent("You play the piano?"),
        _user("I started lessons with Mister Okafor."),
        _agent("On which day?"),
        _user("Every Thursday."),
        _agent("Enjoy!"),
    ),
)  # fmt: skip

HAMBURG, MUSEUM, VEGETARIAN = "Hamburg", "harbour museum", "vegetarian since"

QUESTIONS = (
    Asked("Where does mia live?", "Berlin", (HAMBURG,)),
    Asked("Where do I live?", "Berlin", (HAMBURG,)),
    Asked("Which city do I live in now?", "Berlin", (HAMBURG,)),
    Asked("What is my home town?", "", (HAMBURG,)),
    Asked("Did mia move?", "Berlin", (HAMBURG,)),
    Asked("Where does mia work?", "city archive", (MUSEUM,)),
    Asked("Where do I work?", "city archive", (MUSEUM,)),
    Asked("Do I still work at the museum?", "city archive", ("I work at the harbour museum",)),
    Asked("What work does mia do?", "restorer"),
    Asked("What does mia restore?", "restorer"),
    Asked("What diet does mia keep to?", "vegan", (VEGETARIAN,)),
    Asked("What do I eat?", "vegan", (VEGETARIAN,)),
    Asked("Am I vegetarian or vegan?", "vegan", (VEGETARIAN,)),
    Asked("Who is Lea?", "My sister Lea"),
    Asked("What does Lea study?", "studies medicine"),
    Asked("Where does my sister study?", "Kiel"),
    Asked("Where did I hike with Lea?", "Amrum"),
    Asked("Who went to Amrum?", "Lea and I hiked"),
    Asked("How was the weather on the hike?", "It rained all day"),
    Asked("What is my cat called?", "Pixel"),
    Asked("Which pet did I adopt?", "a cat called Pixel"),
    Asked("What is Pixel allergic to?", "chicken"),
    Asked("Who is my doctor?", "Doctor Weber"),
    Asked("When did I start at the archive?", "On the first of October"),
    Asked("How much is the rent?", "950 euros"),
    Asked("What rent do I pay in euros?", "950 euros"),
    Asked("Which part of Berlin?", "Wedding"),
    Asked("Do I live near the canal?", "near the canal"),
    Asked("Where does Pixel sleep?", "on the piano"),
    Asked("Did Pixel move along to Berlin?", "she sleeps on the piano"),
    Asked("Who gives me piano lessons?", "Mister Okafor"),
    Asked("On which day do I have lessons?", "Every Thursday"),
    Asked("Which instrument do I play?", "piano"),
    Asked("What did I say about cheese?", "No more cheese"),
    Asked("What did I say on the island?", "Amrum"),
    Asked("Who studies medicine?", "Lea"),
    Asked("What does my sister do?", "Lea"),
    Asked("What about sea charts?", "sea charts"),
    Asked("When did mia move to Berlin?", "Nov 2023", (HAMBURG,)),
    Asked("What is 17 times 23 in Latin?", "", (HAMBURG, MUSEUM, VEGETARIAN)),
)


def messages(session: int) -> list[dict[str, Any]]:
    """Return the chat messages of a session, with times and ids."""
    return [
        {
            "role": turn.role,
            "content": turn.content,
            "at": f"{DAYS[session]}T09:{number:02}:00Z",
            "id": message_id(session, number),
        }
        for number, turn in enumerate(SESSIONS[session])
    ]


def message_id(session: int, number: int) -> str:
    return f"s{session}-{number}"
