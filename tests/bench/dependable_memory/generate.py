"""Make the cases of all abilities from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from . import words
from .model import (
    ALIAS,
    CHAT,
    CONCLUDE,
    COUNT,
    DENY,
    DISTRUST,
    EVER,
    FORGET,
    STATE,
    SUM,
    VALUES,
    VERDICT,
    WHO,
    Case,
    Input,
    Question,
    Relation,
    Rule,
)
from .oracle import Oracle
from .words import WORDS, Parts

START = datetime(2024, 1, 1, 8)
USER = "user-1"
PASS = "pass_colour"
PASS_RULE = Rule(PASS, ("sits_on", "painted"), "the colour of the pass of a team")


@dataclass(frozen=True, slots=True)
class Size:
    """Size of the data: questions of each task, people of a case, and small talk per statement."""

    questions: int
    people: int
    chat: float


SIZES = {"small": Size(2, 8, 0.3), "medium": Size(12, 36, 1.0), "large": Size(40, 120, 2.0)}


class Builder:
    """A case under construction. All choices come from one generator of random numbers."""

    def __init__(self, name: str, seed: int, size: Size, part: str) -> None:
        self.name, self.size, self.part = name, size, part
        # A text as seed gives the same numbers in each process and version of Python.
        self.draw = random.Random(f"{name}/{seed}/{part}")
        self.inputs: list[Input] = []
        self.drafts: list[Question] = []
        self.rules: list[Rule] = []
        names = [f"{first} {last}" for first in words.FIRST for last in words.LAST]
        self.people = self.draw.sample(names, size.people)
        self.user, self.now = USER, START

    def pick(self, parts: Parts) -> str:
        """Return a sentence of the part that is made."""
        return self.draw.choice(parts.of(self.part))

    def values(self, relation: str) -> Sequence[str]:
        """Return the possible values of a relation."""
        return WORDS[relation].values or self.people

    def add(self, action: str, text: str, source: str = "", **fields: str) -> Input:
        """Add an input an hour after the last one."""
        self.now += timedelta(hours=1)
        at = stamp(self.now)
        since = fields.pop("since", at)
        entry = Input(
            f"{self.name}-{len(self.inputs) + 1}",
            at,
            self.user,
            source or "Ledger",
            action,
            text[0].upper() + text[1:],
            since=since,
            **fields,  # type: ignore[arg-type]
        )
        self.inputs.append(entry)
        return entry

    def state(
        self, subject: str, relation: str, value: str, source: str = "", since: str = ""
    ) -> Input:
        """Add a statement; `since` is its time of validity, by default the time of learning."""
        text = self.pick(WORDS[relation].says).format(s=subject, o=value)
        fields = {"subject": subject, "relation": relation, "object": value}
        if since:
            text = self.pick(words.SINCE).format(d=day(since), t=text)
            fields["since"] = since
        return self.add(STATE, text, source, **fields)

    def deny(self, subject: str, relation: str, value: str, source: str = "") -> Input:
        """Add the denial of a statement."""
        phrase = self.phrase(relation, subject)
        text = self.pick(words.DENIALS).format(o=value, p=phrase)
        return self.add(DENY, text, source, subject=subject, relation=relation, object=value)

    def chat(self) -> None:
        """Add small talk about the people, in the proportion of the size."""
        statements = len(self.inputs)
        for _ in range(round(statements * self.size.chat)):
            text = self.draw.choice(words.CHAT).format(self.draw.choice(self.people))
            self.add(CHAT, text)

    def phrase(self, relation: str, subject: str) -> str:
        """Return the words for the value of a relation."""
        parts = words.PASS if relation == PASS else WORDS[relation].phrases
        return self.pick(parts).format(s=subject)

    def ask(self, ability: str, task: str, kind: str, subject: str, *path: str, **fields) -> None:  # type: ignore[no-untyped-def]
        """Add a question; its answers are computed when the case is complete."""
        phrase = subject or "theirs"
        for relation in path:
            phrase = self.phrase(relation, phrase)
        if not subject:
            phrase = WORDS[path[0]].gloss
        name = f"count_{WHO}" if kind == COUNT and not subject else kind
        text = self.pick(words.ASKS[name]).format(p=phrase, o=fields.get("object", ""))
        if "valid_at" in fields:
            text += self.pick(words.VALID_AT).format(d=day(fields["valid_at"]))
        if "known_at" in fields:
            text += self.pick(words.KNOWN_AT).format(d=day(fields["known_at"]))
        number = f"{self.name}-q{len(self.drafts) + 1}"
        user = fields.pop("user", self.user)
        self.drafts.append(
            Question(number, ability, task, user, kind, text, subject, path, **fields)
        )

    def build(self) -> Case:
        """Return the case, with the answers of the oracle."""
        names = sorted({each.relation for each in self.inputs if each.relation in WORDS})
        relations = [
            Relation(name, WORDS[name].kind, WORDS[name].gloss, tuple(self.values(name)))
            for name in names
        ]
        case = Case(self.name, tuple(relations), tuple(self.rules), tuple(self.inputs), ())
        oracle, questions = Oracle(case), list[Question]()
        for draft in self.drafts:
            answers = oracle.answers(draft)
            gone: tuple[str, ...] = ()
            if draft.kind == VALUES:
                gone = tuple(sorted(oracle.stated(draft) - set(answers)))
            questions.append(replace(draft, answers=answers, gone=gone))
        return replace(case, questions=tuple(questions))


def stamp(moment: datetime) -> str:
    """Return a time as ISO 8601 text in UTC."""
    return moment.isoformat(timespec="seconds") + "Z"


def day(text: str) -> str:
    """Return the day of a time in words."""
    moment = datetime.fromisoformat(text.removesuffix("Z"))
    return f"{moment.day} {moment:%B %Y}"


GRAPH = {
    "lives_in": ("person", "city"),
    "works_for": ("person", "firm"),
    "based_in": ("firm", "city"),
    "mayor": ("city", "person"),
    "plays_for": ("person", "club"),
    "sponsor": ("club", "firm"),
}
"""Relations that can follow each other: the types of their left and right sides."""


def replaced(build: Builder) -> None:
    """A numbered list of facts, later ones replace earlier ones; paths of one to four relations."""
    sides = {"person": build.people, "city": words.CITIES, "firm": words.FIRMS, "club": words.CLUBS}
    facts = [(s, name) for name, (left, _) in GRAPH.items() for s in sides[left]]
    build.draw.shuffle(facts)
    repeated = build.draw.sample(facts, len(facts) // 2)
    again = build.draw.sample(repeated, len(repeated) // 2)
    for number, (subject, relation) in enumerate([*facts, *repeated, *again]):
        value = build.draw.choice([v for v in build.values(relation) if v != subject])
        entry = build.state(subject, relation, value)
        build.inputs[-1] = replace(entry, text=f"{number}. {entry.text}")
    for hops in (1, 2, 3, 4):
        for index in range(build.size.questions):
            side, path = "person", list[str]()
            while len(path) < hops:
                choices = [name for name, (left, _) in GRAPH.items() if left == side]
                path.append(build.draw.choice(choices))
                side = GRAPH[path[-1]][1]
            first = [s for s, name in (*repeated, *facts) if name == path[0]]
            subject = first[index % len(first)]
            build.ask("replaced facts", f"{hops} hop{'s' * (hops > 1)}", VALUES, subject, *path)


def changing(build: Builder) -> None:
    """Six tasks on what was said, what changed, and what depends on it."""
    ability, draw, few = "changes", build.draw, build.size.questions
    build.rules.append(PASS_RULE)
    build.add(CHAT, build.pick(words.RULE))
    colours = list(words.COLOURS)
    draw.shuffle(colours)
    coloured = dict(zip(words.FLOORS[:6], colours, strict=False))
    for floor, colour in coloured.items():
        build.state(floor, "painted", colour)
    teams = [f"{team} {number}" for number in range(1, 11) for team in words.TEAMS][: 3 * few]
    first = {team: draw.choice(sorted(coloured)) for team in teams}
    for team, floor in first.items():
        cause = build.state(team, "sits_on", floor)
        text = build.pick(words.CONCLUSIONS).format(s=team, o=coloured[floor])
        build.add(CONCLUDE, text, subject=team, relation=PASS, object=coloured[floor])
        build.inputs[-1] = replace(build.inputs[-1], because=(cause.id,))
    for trip in words.TRIPS[:few]:
        for amount in draw.sample(words.AMOUNTS, draw.randrange(3, 6)):
            build.state(trip, "cost", amount)
    for person in build.people:
        for food in draw.sample(words.FOODS, 3):
            build.state(person, "likes", food)
        build.state(person, "lives_in", draw.choice(words.CITIES))
    build.chat()
    for number, team in enumerate(teams):
        # One third moves to a painted floor, one third to a floor without colour, one third stays.
        others = [each for each in coloured if each != first[team]]
        if number % 3 == 0:
            build.state(team, "sits_on", draw.choice(others))
        elif number % 3 == 1:
            build.state(team, "sits_on", draw.choice(words.FLOORS[6:]))
    for index in range(few):
        build.ask(ability, "cascade", VALUES, teams[3 * index], PASS)
        build.ask(ability, "absence", VALUES, teams[3 * index + 1], PASS)
        build.ask(ability, "exact recall", VALUES, teams[3 * index + 2], PASS)
    people = draw.sample(build.people, min(few, len(build.people)))
    for index, person in enumerate(people):
        for city in draw.sample(words.CITIES, 2):
            build.state(person, "lives_in", city)
        build.ask(ability, "tracking", EVER, person, "lives_in")
        likes = [each.object for each in build.inputs if each.subject == person]
        dish = draw.choice([each for each in likes if each in words.FOODS])
        build.deny(person, "likes", dish)
        build.ask(ability, "deletion", VALUES, person, "likes")
        build.ask(ability, "exact recall", VALUES, person, "lives_in")
        if index % 3 == 0:
            build.ask(ability, "aggregate", SUM, words.TRIPS[index % len(words.TRIPS)], "cost")
        elif index % 3 == 1:
            build.ask(ability, "aggregate", COUNT, person, "likes")
        else:
            value = draw.choice(words.FOODS)
            build.ask(ability, "aggregate", COUNT, "", "likes", object=value)


def forgetting(build: Builder) -> None:
    """Requests to erase, by name, by nickname and in other words, and near misses that stay."""
    ability, draw, few = "forgetting", build.draw, build.size.questions
    people = list(build.people)
    names = [f"{nick}{number or ''}" for number in range(9) for nick in words.NICKNAMES]
    nicknames = dict(zip(people, names, strict=False))
    for person in people:
        alias = nicknames[person]
        build.add(
            ALIAS, build.pick(words.ALIASES).format(s=alias, o=person), subject=alias, object=person
        )
        # A near miss: a longer name that contains the name.
        double = f"{person}-{draw.choice(words.LAST)}"
        for name in (person, double):
            subject = alias if name == person and draw.random() < 0.5 else name
            build.state(subject, "lives_in", draw.choice(words.CITIES))
            build.state(name, "desk", draw.choice(words.ROOMS))
            build.state(subject, "likes", draw.choice(words.FOODS))
    build.chat()
    doubles = {each.subject.rsplit("-", 1)[0]: each.subject for each in build.inputs
               if "-" in each.subject}  # fmt: skip
    for index in range(min(few, len(people) // 3)):
        person, other, third = people[3 * index : 3 * index + 3]
        _forget(build, person, "")
        _forget(build, nicknames[other], "")
        _forget(build, third, "lives_in")
        build.ask(ability, "gone", VALUES, person, "desk")
        build.ask(ability, "gone, by nickname", VALUES, other, "lives_in")
        build.ask(ability, "gone, in other words", VALUES, third, "lives_in")
        build.ask(ability, "near name stays", VALUES, doubles[person], "desk")
        build.ask(ability, "near fact stays", VALUES, third, "desk")


def _forget(build: Builder, subject: str, relation: str) -> None:
    about = build.phrase(relation, subject) if relation else ""
    about = about or build.pick(words.EVERYTHING).format(s=subject)
    text = build.pick(words.FORGETS).format(p=about)
    build.add(FORGET, text, subject=subject, relation=relation, about=about)


def times(build: Builder) -> None:
    """Statements about another time than that of learning; some are learned late."""
    ability, draw, few = "two times", build.draw, build.size.questions
    people = draw.sample(build.people, min(few, len(build.people)))
    days = {person: sorted(draw.sample(range(20, 700, 5), 3)) for person in people}
    plan = [(person, number) for person in people for number in range(3)]
    draw.shuffle(plan)
    base = datetime(2020, 1, 1)
    learned: dict[str, list[Input]] = {person: [] for person in people}
    for person, number in plan:
        build.now += timedelta(days=1)
        since = stamp(base + timedelta(days=days[person][number]))
        value = draw.choice([each for each in words.ROOMS if f"{number}" in each])
        learned[person].append(build.state(person, "desk", value, since=since))
    build.chat()
    for person in people:
        start = days[person]
        middle = stamp(base + timedelta(days=draw.randrange(start[1], start[2])))
        before = stamp(base + timedelta(days=start[0] - 10))
        first = datetime.fromisoformat(learned[person][1].at.removesuffix("Z"))
        known = stamp(first + timedelta(hours=6))
        build.ask(ability, "valid then", VALUES, person, "desk", valid_at=middle)
        build.ask(ability, "before the first", VALUES, person, "desk", valid_at=before)
        build.ask(ability, "known then", VALUES, person, "desk", known_at=known)
        build.ask(ability, "both", VALUES, person, "desk", valid_at=middle, known_at=known)
        build.ask(ability, "now", VALUES, person, "desk")


def disputes(build: Builder) -> None:
    """Sources that agree, deny, differ, and change their position."""
    ability, draw = "disputes", build.draw
    sources = build.people[:6]
    number = 0
    for round_ in range(build.size.questions):
        kinds = ("agreed", "denied", "disputed", "withdrawn", "never said", "two values")
        for task in kinds:
            project = f"{words.PROJECTS[number % 12]} {round_ + 1}"
            number += 1
            first, second = draw.sample(sources, 2)
            value, other = draw.sample(words.WEEKDAYS, 2)
            if task != "denied":
                build.state(project, "launches_on", value, first)
            if task == "agreed":
                build.state(project, "launches_on", value, second)
            if task in ("denied", "disputed"):
                build.deny(project, "launches_on", value, second)
            if task == "withdrawn":
                build.deny(project, "launches_on", value, first)
            if task == "two values":
                build.state(project, "launches_on", other, second)
                build.ask(ability, task, VALUES, project, "launches_on")
            else:
                asked = other if task == "never said" else value
                build.ask(ability, task, VERDICT, project, "launches_on", object=asked)
    build.chat()


def trust(build: Builder, percent: int) -> None:
    """Ten sources, of which some state false values that are newer than the true ones."""
    ability, draw, few = "trust", build.draw, build.size.questions
    sources = [f"{name} Reporter" for name in draw.sample(words.FIRST, 10)]
    bad = sources[: percent // 10]
    people = draw.sample(build.people, min(2 * few, len(build.people)))
    for person in people:
        build.state(person, "works_for", draw.choice(words.FIRMS), draw.choice(sources[4:]))
    for person in people:
        # Each source reports on equally many, so the share of false reports is that of sources.
        source = draw.choice(sources)
        build.state(person, "works_for", draw.choice(words.FIRMS), source)
    for index, person in enumerate(people[:few]):
        if index % 2 == 0:
            build.state(person, "works_for", draw.choice(words.FIRMS), draw.choice(bad))
    build.chat()
    for source in bad:
        build.add(DISTRUST, build.pick(words.DISTRUST).format(s=source), subject=source)
    for person in people[:few]:
        build.ask(ability, f"{percent} % of the sources", VALUES, person, "works_for")


def users(build: Builder) -> None:
    """Three users with facts about the same people."""
    ability, draw, few = "users", build.draw, build.size.questions
    people = draw.sample(build.people, min(few + 1, len(build.people)))
    names = ("user-1", "user-2", "user-3")
    for person in people:
        for name in names:
            build.user = name
            build.state(person, "lives_in", draw.choice(words.CITIES))
            if name != "user-3":
                build.state(person, "likes", draw.choice(words.FOODS))
    build.chat()
    for person in people[:few]:
        build.ask(ability, "own", VALUES, person, "lives_in", user=draw.choice(names))
        build.ask(ability, "of another user", VALUES, person, "likes", user="user-3")


def limits(build: Builder) -> None:
    """Answers of several parts in small windows, and questions without an answer."""
    ability, draw, few = "limits", build.draw, build.size.questions
    people = draw.sample(build.people, min(few, len(build.people)))
    for person in build.people:
        build.state(person, "works_for", draw.choice(words.FIRMS))
        # Some have been to a city, so that a city stands next to names for which no home is stated.
        if draw.random() < 0.5:
            build.state(person, "visited", draw.choice(words.CITIES))
        for instrument in draw.sample(words.INSTRUMENTS, 3 if person in people else 1):
            build.state(person, "plays", instrument)
    build.state(build.people[0], "lives_in", draw.choice(words.CITIES))
    build.chat()
    strangers = [f"{first} Nowhere" for first in words.FIRST]
    for index, person in enumerate(people):
        for window in (60, 200):
            build.ask(ability, f"{window} tokens", VALUES, person, "plays", window=window)
        if person != build.people[0]:
            build.ask(ability, "never said", VALUES, person, "lives_in")
        name = f"{strangers[index % len(strangers)]} {index // len(strangers) or ''}".strip()
        build.ask(ability, "unknown person", VALUES, name, "works_for")


ABILITIES: dict[str, Callable[[Builder], None]] = {
    "replaced": replaced,
    "changing": changing,
    "forgetting": forgetting,
    "times": times,
    "disputes": disputes,
    "trust-10": lambda build: trust(build, 10),
    "trust-20": lambda build: trust(build, 20),
    "trust-40": lambda build: trust(build, 40),
    "users": users,
    "limits": limits,
}


def cases(seed: int, size: str, part: str = words.SCORED) -> list[Case]:
    """Return the cases of a seed; the same arguments give the same cases.

    Raises KeyError for an unknown size and ValueError for an unknown part.
    """
    if part not in (words.EXAMPLES, words.SCORED):
        raise ValueError(f"part is {words.EXAMPLES} or {words.SCORED}, not {part}")
    made = []
    for name, fill in ABILITIES.items():
        build = Builder(name, seed, SIZES[size], part)
        fill(build)
        made.append(build.build())
    return made
