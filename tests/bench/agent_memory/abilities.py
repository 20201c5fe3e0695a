"""The ten abilities: what is said, what is asked, and the rules that answer it."""

from __future__ import annotations

from collections.abc import Callable

from .drafts import CITIES, DAYS, QuestionDraft, World, atom, in_words, iso

SINGLE, HOPS, TEMPORAL, UPDATE = "single fact", "multi-hop", "temporal", "update"
CONTRADICTION, PREFERENCE, INSTRUCTION = "contradiction", "preference", "instruction"
ORDER, ABSTENTION, SUMMARY = "event order", "abstention", "summary"

RULES = """
employer_city(?person, ?city) :- works_for(?person, ?firm), office_in(?firm, ?city).
neighbour_city(?person, ?city) :- neighbour(?person, ?other), employer_city(?other, ?city).
moved_out_of(?person, ?room) :- desk_in(?person, ?room, ?day), desk_in(?person, _, ?later), ?day < ?later.
current_desk(?person, ?room) :- desk_in(?person, ?room, _), not moved_out_of(?person, ?room).
disputed_day(?project, ?a, ?b) :- launches_on(?project, ?a, _), launches_on(?project, ?b, _), ?a < ?b.
later_event(?person, ?a, ?c) :-
    event(?person, ?a, ?s), event(?person, ?b, ?t), event(?person, ?c, ?u), ?s < ?t, ?t < ?u.
next_event(?person, ?a, ?b) :-
    event(?person, ?a, ?s), event(?person, ?b, ?t), ?s < ?t, not later_event(?person, ?a, ?b).
spent(?person, ?kind, sum(?euros)) :- paid(?person, ?kind, ?euros, ?_day).
times_paid(?person, ?kind, count(?day)) :- paid(?person, ?kind, _, ?day).
"""

ATTRIBUTES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "plays_instrument": (
        ("I play the {} in my free time.", "I took up the {} two years ago and still practise."),
        ("Which instrument does {} play?", "What instrument has {} been practising?"),
        ("cello", "oboe", "harp", "banjo", "trombone", "accordion", "viola", "bassoon"),
    ),
    "pet_name": (
        ("My dog is called {}.", "We have a puppy now, and we named it {}."),
        ("What is the name of the dog of {}?", "How is the dog of {} called?"),
        ("Rex", "Biscuit", "Pepper", "Waffle", "Domino", "Pixel", "Nutmeg", "Comet"),
    ),
    "allergic_to": (
        ("I am allergic to {}.", "The doctor told me that I have an allergy to {}."),
        ("What is {} allergic to?", "Which allergy does {} have?"),
        ("peanuts", "shellfish", "pollen", "latex", "sesame", "penicillin", "mustard", "soy"),
    ),
    "studied": (
        ("At university I studied {}.", "My degree is in {}."),
        ("What did {} study at university?", "In which subject does {} hold a degree?"),
        ("geology", "botany", "linguistics", "statistics", "theology", "astronomy", "law"),
    ),
    "drives": (
        ("I drive a {} to the office.", "I finally bought a car, a used {}."),
        ("Which car does {} drive?", "What kind of car did {} buy?"),
        ("Volvo", "Fiat", "Skoda", "Peugeot", "Mazda", "Saab", "Dacia", "Toyota"),
    ),
}
"""By predicate: how people say it, how it is asked, and the values."""


def single_fact_and_abstention(world: World) -> None:
    """Each person states two attributes; one is asked, and one that the person never stated."""
    for person in world.people:
        chosen = world.draw.sample(sorted(ATTRIBUTES), 3)
        drafts = []
        for predicate in chosen[:2]:
            says, _, values = ATTRIBUTES[predicate]
            value = world.draw.choice(values)
            day, text = world.draw.randrange(DAYS), world.draw.choice(says).format(value)
            drafts.append((value, world.say(day, person, text, (predicate, person, value))))
        value, draft = drafts[0]
        goal = atom(chosen[0], person, "?x")
        text = world.draw.choice(ATTRIBUTES[chosen[0]][1]).format(person)
        world.ask(QuestionDraft(SINGLE, text, [draft], [value], goal))
        text = world.draw.choice(ATTRIBUTES[chosen[2]][1]).format(person)
        world.ask(QuestionDraft(ABSTENTION, text, [], [], atom(chosen[2], person, "?x")))


# fmt: off
FIRMS = (
    "Nordwind", "Kestrel", "Bluepeak", "Corvid", "Lumen", "Tessera", "Halcyon", "Marlin",
    "Quarry", "Sextant", "Juniper", "Obelisk",
)
# fmt: on


def multi_hop(world: World) -> None:
    """Employer, city of the employer, and the employer of a neighbour, said by different people."""
    offices = {}
    for firm in FIRMS:
        city = world.draw.choice(CITIES)
        text = world.draw.choice(
            ("{} has its office in {}.", "The headquarters of {} are in {}.")
        ).format(firm, city)
        speaker, day = world.draw.choice(world.people), world.draw.randrange(DAYS)
        offices[firm] = city, world.say(day, speaker, text, ("office_in", firm, city))
    jobs = {}
    for person in world.people:
        firm = world.draw.choice(FIRMS)
        text = world.draw.choice(("I work for {}.", "I have a job at {} now.")).format(firm)
        day = world.draw.randrange(DAYS)
        jobs[person] = firm, world.say(day, person, text, ("works_for", person, firm))
    for number, person in enumerate(world.people):
        other = world.draw.choice([each for each in world.people if each != person])
        day, text = world.draw.randrange(DAYS), f"My next-door neighbour is {other}."
        met = world.say(day, person, text, ("neighbour", person, other))
        if number % 2:
            firm, job = jobs[other]
            text = f"In which city does the neighbour of {person} work?"
            evidence, goal = [met, job], atom("neighbour_city", person, "?x")
        else:
            firm, job = jobs[person]
            text = f"In which city is the employer of {person} based?"
            evidence, goal = [job], atom("employer_city", person, "?x")
        city, office = offices[firm]
        world.ask(QuestionDraft(HOPS, text, [*evidence, office], [city], goal))


def temporal(world: World) -> None:
    """Three homes one after the other; a date in one of them is asked."""
    for person in world.people:
        bounds, cities = world.days(4), world.draw.sample(CITIES, 3)
        drafts = []
        for start, end, city in zip(bounds, bounds[1:], cities, strict=False):
            text = f"From {in_words(start)} until {in_words(end - 1)} I lived in {city}."
            fact = ("lived_in", person, city, iso(start), iso(end - 1))
            drafts.append(world.say(DAYS, person, text, fact))
        chosen = world.draw.randrange(3)
        day = world.draw.randrange(bounds[chosen], bounds[chosen + 1])
        homes = atom("lived_in", person, "?x", "?from", "?to")
        world.ask(
            QuestionDraft(
                TEMPORAL,
                f"Where was {person} living on {in_words(day)}?",
                [drafts[chosen]],
                [cities[chosen]],
                f'{homes}, ?from <= "{iso(day)}", ?to >= "{iso(day)}"',
                competing=[city for city in cities if city != cities[chosen]],
            )
        )


def update(world: World) -> None:
    """A value that changes twice; the latest one is asked."""
    says = ("My desk is in room {}.", "I have moved, you now find me in room {}.")
    for person in world.people:
        rooms = [str(number) for number in world.draw.sample(range(1000, 9999), 3)]
        for number, (day, room) in enumerate(zip(world.days(3), rooms, strict=True)):
            text = says[min(number, 1)].format(room)
            latest = world.say(day, person, text, ("desk_in", person, room, iso(day)))
        text = world.draw.choice(("In which room is {} now?", "Where is the desk of {} today?"))
        goal = atom("current_desk", person, "?x")
        world.ask(
            QuestionDraft(
                UPDATE, text.format(person), [latest], [rooms[2]], goal, competing=rooms[:2]
            )
        )


COLOURS = ["Amber", "Cobalt", "Crimson", "Indigo", "Jade", "Scarlet", "Silver"]
BIRDS = ["Heron", "Falcon", "Plover", "Wren", "Osprey", "Kite", "Egret"]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]


def contradiction(world: World) -> None:
    """Two people name different days for one event; both are needed."""
    names = [f"{colour} {bird}" for colour in COLOURS for bird in BIRDS]
    for project in world.draw.sample(names, len(world.people)):
        days = world.draw.sample(WEEKDAYS, 2)
        drafts = []
        for day, speaker in zip(days, world.draw.sample(list(world.people), 2), strict=True):
            text = world.draw.choice(
                ("The {} project goes live on {}.", "As far as I know, {} launches on {}.")
            ).format(project, day)
            fact = ("launches_on", project, day, speaker)
            drafts.append(world.say(world.draw.randrange(DAYS), speaker, text, fact))
        text = f"On which day is the launch of {project}?"
        goal = atom("disputed_day", project, "?x", "?y")
        world.ask(QuestionDraft(CONTRADICTION, text, drafts, days, goal))


TASTES = {
    "drink": ("green tea", "lemonade", "cocoa", "espresso", "ginger ale", "cider"),
    "dessert": ("apple pie", "tiramisu", "rice pudding", "baklava", "sorbet", "cheesecake"),
    "music": ("jazz", "opera", "folk", "techno", "bluegrass", "reggae"),
}


def preference(world: World) -> None:
    """Something liked and something disliked of one kind; the asker asks about themselves."""
    for person in world.people:
        kind = world.draw.choice(sorted(TASTES))
        liked, disliked = world.draw.sample(TASTES[kind], 2)
        like = world.draw.choice(("Nothing beats {}.", "I really love {}.")).format(liked)
        dislike = world.draw.choice(("I can't stand {}.", "I never want {} again.")).format(
            disliked
        )
        first, second = world.draw.randrange(DAYS), world.draw.randrange(DAYS)
        draft = world.say(first, person, like, ("likes", person, kind, liked))
        world.say(second, person, dislike, ("dislikes", person, kind, disliked))
        text = world.draw.choice(
            (f"What {kind} should you choose for me?", f"Suggest a {kind} that I would enjoy.")
        )
        goal = atom("likes", person, kind, "?x")
        world.ask(
            QuestionDraft(
                PREFERENCE, text, [draft], [liked], goal, competing=[disliked], asker=person
            )
        )


TOPICS = ("recipes", "travel plans", "code reviews", "workouts", "invoices", "letters")
MANNERS = (
    "in short bullet points",
    "in formal language",
    "with a table",
    "in at most two sentences",
    "step by step",
    "with sources",
)


def instruction(world: World) -> None:
    """Two instructions for two topics; the one that applies to a request is needed."""
    says = "Whenever I ask about {}, please reply {}.", "For {} I want your answers {}."
    for person in world.people:
        topics, manners = world.draw.sample(TOPICS, 2), world.draw.sample(MANNERS, 2)
        drafts = []
        for topic, manner in zip(topics, manners, strict=True):
            text = world.draw.choice(says).format(topic, manner)
            fact = ("answer_manner", person, topic, manner)
            drafts.append(world.say(world.draw.randrange(DAYS), person, text, fact))
        text = world.draw.choice(
            ("Help me with my {} for next week.", "I need your advice on {}.")
        ).format(topics[0])
        goal = atom("answer_manner", person, topics[0], "?x")
        world.ask(
            QuestionDraft(
                INSTRUCTION, text, drafts[:1], [manners[0]], goal,
                competing=[manners[1]], asker=person,
            )
        )  # fmt: skip


EVENTS = {
    "ran a marathon": "running a marathon",
    "visited a lighthouse": "visiting a lighthouse",
    "repaired the boiler": "repairing the boiler",
    "painted the kitchen": "painting the kitchen",
    "adopted a kitten": "adopting a kitten",
    "planted tulips": "planting tulips",
    "climbed a volcano": "climbing a volcano",
    "sold the piano": "selling the piano",
    "learned to juggle": "learning to juggle",
}


def event_order(world: World) -> None:
    """Five events on different days; the one right after another is asked."""
    for person in world.people:
        events = world.draw.sample(sorted(EVENTS), 5)
        drafts = [
            world.say(day, person, f"Today I {event}.", ("event", person, event, iso(day)))
            for day, event in zip(world.days(5), events, strict=True)
        ]
        first = world.draw.randrange(4)
        text = f"What did {person} do next after {EVENTS[events[first]]}?"
        goal = atom("next_event", person, events[first], "?x")
        evidence = drafts[first : first + 2]
        world.ask(QuestionDraft(ORDER, text, evidence, [events[first + 1]], goal))


KINDS = ("books", "train tickets", "concerts", "gardening")


def summary(world: World) -> None:
    """Amounts on several days; their sum or number is asked."""
    for number, person in enumerate(world.people):
        kind, other = world.draw.sample(KINDS, 2)
        days = world.days(world.draw.randint(5, 8))
        drafts, amounts = [], []
        for day in days:
            euros = world.draw.randint(11, 99)
            text = world.draw.choice(
                ("I paid {} euros for {}.", "Today {} euros went on {}.")
            ).format(euros, kind)
            drafts.append(
                world.say(day, person, text, ("paid", person, kind, str(euros), iso(day)))
            )
            amounts.append(euros)
        euros, day = str(world.draw.randint(11, 99)), world.draw.randrange(DAYS)
        text = f"I paid {euros} euros for {other}."
        world.say(day, person, text, ("paid", person, other, euros, iso(day)))
        if number % 2:
            asked = f"How many times has {person} paid for {kind}?"
            predicate, answer = "times_paid", len(amounts)
        else:
            asked = f"How many euros has {person} paid for {kind} in all?"
            predicate, answer = "spent", sum(amounts)
        goal = atom(predicate, person, kind, "?x")
        world.ask(QuestionDraft(SUMMARY, asked, drafts, [str(answer)], goal))


SMALL_TALK = (
    "The weather in {city} was awful last week.",
    "Has anyone seen the keys of the meeting room?",
    "I read an article about {city} and its trams.",
    "Thanks, that was really helpful.",
    "Someone left a car with its lights on.",
    "I heard that the neighbour of my aunt moved to {city}.",
    "The office was very quiet today.",
    "We should have a drink after work some time.",
    "Did {person} already leave?",
    "I asked {person} about the weekend, but there are no plans yet.",
)


def small_talk(world: World) -> None:
    """Turns without facts that share words with the questions."""
    for person in world.people:
        for _ in range(20):
            text = world.draw.choice(SMALL_TALK).format(
                city=world.draw.choice(CITIES), person=world.draw.choice(world.people)
            )
            world.say(world.draw.randrange(DAYS), person, text)


ABILITIES: tuple[Callable[[World], None], ...] = (
    single_fact_and_abstention,
    multi_hop,
    temporal,
    update,
    contradiction,
    preference,
    instruction,
    event_order,
    summary,
    small_talk,
)
NAMES = (
    SINGLE,
    HOPS,
    TEMPORAL,
    UPDATE,
    CONTRADICTION,
    PREFERENCE,
    INSTRUCTION,
    ORDER,
    ABSTENTION,
    SUMMARY,
)
