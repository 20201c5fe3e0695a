"""Names and sentences. Each list of sentences has two parts that share no sentence: `examples`, to
develop an adapter with, and `scored`, from which the texts of a scored run are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import CLAIM, LATEST, SET

EXAMPLES, SCORED = "examples", "scored"

# fmt: off
FIRST = (
    "Adela", "Anselm", "Birgit", "Casimir", "Delia", "Edgar", "Fiona", "Gideon", "Hedda", "Ignaz",
    "Jolana", "Kaspar", "Lavinia", "Matthis", "Noemi", "Oskar", "Paulina", "Quirin", "Rahel",
    "Silvan", "Thekla", "Ulrik", "Valeria", "Wenzel", "Xaver", "Yvette", "Zdenka", "Benno",
)
LAST = (
    "Abendroth", "Brandis", "Cermak", "Dahlgren", "Eberlin", "Falkner", "Gruber", "Hollar", "Isaksen",
    "Jansky", "Kovar", "Lindgren", "Moravec", "Norberg", "Ortega", "Pavlik", "Rosner", "Sandoval",
    "Tomasek", "Ulmer", "Varga", "Winkler", "Zeman", "Almeida",
)
NICKNAMES = (
    "Bix", "Dotty", "Flip", "Gogo", "Jinx", "Kiki", "Lulu", "Moppet", "Nobs", "Pip", "Rook", "Skip",
    "Tink", "Wick", "Zaza", "Buzz", "Coco", "Fitz", "Hob", "Ozzy",
)
CITIES = (
    "Almeria", "Bruges", "Cadiz", "Dortmund", "Esbjerg", "Faro", "Gdynia", "Huelva", "Innsbruck",
    "Jonkoping", "Krems", "Lorient", "Maribor", "Namur", "Olomouc", "Pilsen", "Quimper", "Ravenna",
    "Szeged", "Trieste", "Uppsala", "Vigo", "Wels", "Zadar",
)
FIRMS = (
    "Arkwright Ltd", "Bellman Works", "Cinder Labs", "Dovetail AG", "Evergreen Oy", "Fathom Inc",
    "Gantry BV", "Hearth Foods", "Ironbark SA", "Junction Rail", "Keystone Mills", "Lantern Press",
    "Mistral Air", "Northgate Bank", "Orchard Soft", "Pinnacle Steel",
)
CLUBS = (
    "Red Otters", "Blue Herons", "Iron Foxes", "Silver Pikes", "Golden Larks", "Black Swifts",
    "White Elks", "Green Vipers", "Grey Badgers", "Amber Hawks",
)
TEAMS = (
    "billing team", "design team", "export team", "fraud team", "garden team", "harbour team",
    "import team", "jigsaw team", "kernel team", "layout team", "mobile team", "notary team",
)
FLOORS = ("floor 1", "floor 2", "floor 3", "floor 4", "floor 5", "floor 6", "floor 7", "floor 8")
COLOURS = ("teal", "maroon", "ochre", "lilac", "olive", "coral", "beige", "navy")
ROOMS = tuple(f"room {100 * storey + number}" for storey in range(1, 6) for number in range(1, 7))
FOODS = (
    "dumplings", "gnocchi", "falafel", "pierogi", "ramen", "paella", "goulash", "risotto", "ceviche",
    "couscous", "lasagne", "moussaka", "pad thai", "tortilla",
)
INSTRUMENTS = (
    "clarinet", "cornet", "dulcimer", "fiddle", "flute", "lute", "mandolin", "piccolo", "tuba",
    "zither", "bagpipe", "marimba",
)
PROJECTS = (
    "Project Anvil", "Project Breeze", "Project Cascade", "Project Dune", "Project Ember",
    "Project Fjord", "Project Glade", "Project Harrow", "Project Inlet", "Project Juniper",
    "Project Krill", "Project Ledge",
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TRIPS = tuple(f"the trip to {city}" for city in CITIES[:14])
AMOUNTS = tuple(str(number) for number in range(17, 97, 2))
CHAT = (
    "I ran into {} on the way here and we talked about the rain.",
    "{} sends greetings to all of you.",
    "Did {} ever give back the umbrella?",
    "{} was late again, the tram stood still for an hour.",
    "I have to call {} before the weekend.",
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Parts:
    """Sentences for the two parts of the data."""

    examples: tuple[str, ...]
    scored: tuple[str, ...]

    def of(self, part: str) -> tuple[str, ...]:
        """Return the sentences of a part."""
        return self.examples if part == EXAMPLES else self.scored


@dataclass(frozen=True, slots=True)
class Words:
    """The sentences of a relation: `{s}` is its left side, `{o}` its right side.

    `phrases` name the value of a relation, so that phrases of several relations can be nested.
    """

    kind: str
    values: tuple[str, ...]
    gloss: str
    says: Parts
    phrases: Parts


WORDS: dict[str, Words] = {
    "lives_in": Words(
        LATEST,
        CITIES,
        "the city where a person lives",
        Parts(
            ("{s} lives in {o}.", "{s} has a flat in {o}."),
            ("{s} resides in {o}.", "{s} is at home in {o}.", "The place {s} calls home is {o}."),
        ),
        Parts(("the city where {s} lives",), ("the home town of {s}", "the city {s} resides in")),
    ),
    "works_for": Words(
        LATEST,
        FIRMS,
        "the company a person works for",
        Parts(
            ("{s} works for {o}.", "{s} has a job at {o}."),
            ("{s} is on the payroll of {o}.", "{o} employs {s}."),
        ),
        Parts(("the company {s} works for",), ("the employer of {s}", "the firm that pays {s}")),
    ),
    "based_in": Words(
        LATEST,
        CITIES,
        "the city where a company has its head office",
        Parts(
            ("{s} is based in {o}.", "The head office of {s} is in {o}."),
            ("{s} has its headquarters in {o}.", "{o} is the seat of {s}."),
        ),
        Parts(
            ("the city where {s} is based",), ("the seat of {s}", "the headquarters city of {s}")
        ),
    ),
    "mayor": Words(
        LATEST,
        (),
        "the person who is mayor of a city",
        Parts(
            ("The mayor of {s} is {o}.", "{o} is the mayor of {s}."),
            ("{o} heads the town hall of {s}.", "{s} has {o} as its mayor."),
        ),
        Parts(
            ("the mayor of {s}",), ("the person who runs {s}", "the head of the town hall of {s}")
        ),
    ),
    "plays_for": Words(
        LATEST,
        CLUBS,
        "the club a person plays for",
        Parts(
            ("{s} plays for the {o}.", "{s} is a player of the {o}."),
            ("{s} is in the line-up of the {o}.", "The {o} have {s} under contract."),
        ),
        Parts(("the club {s} plays for",), ("the club of {s}", "the side {s} turns out for")),
    ),
    "sponsor": Words(
        LATEST,
        FIRMS,
        "the company that sponsors a club",
        Parts(
            ("The sponsor of the {s} is {o}.", "{o} sponsors the {s}."),
            ("{o} pays for the shirts of the {s}.", "The {s} are financed by {o}."),
        ),
        Parts(("the sponsor of {s}",), ("the backer of {s}", "the company that finances {s}")),
    ),
    "sits_on": Words(
        LATEST,
        FLOORS,
        "the floor where a team sits",
        Parts(
            ("The {s} sits on {o}.", "You find the {s} on {o}."),
            ("The desks of the {s} are on {o}.", "The {s} occupies {o}."),
        ),
        Parts(("the floor where the {s} sits",), ("the floor of the {s}",)),
    ),
    "painted": Words(
        LATEST,
        COLOURS,
        "the colour of a floor",
        Parts(
            ("The walls of {s} are {o}.", "The colour of {s} is {o}."),
            ("They painted {s} in {o}.", "{s} has {o} walls."),
        ),
        Parts(("the colour of {s}",), ("the wall paint of {s}",)),
    ),
    "desk": Words(
        LATEST,
        ROOMS,
        "the room where a person has the desk",
        Parts(
            ("{s} has a desk in {o}.", "The desk of {s} is in {o}."),
            ("{s} works out of {o}.", "Look for {s} in {o}."),
        ),
        Parts(("the room with the desk of {s}",), ("the office room of {s}",)),
    ),
    "likes": Words(
        SET,
        FOODS,
        "food that a person likes",
        Parts(
            ("{s} likes {o}.", "{s} enjoys {o}."),
            ("{s} is fond of {o}.", "{o}: {s} could eat that every day."),
        ),
        Parts(
            ("the food {s} likes",), ("the favourite dishes of {s}", "what {s} is fond of eating")
        ),
    ),
    "plays": Words(
        SET,
        INSTRUMENTS,
        "an instrument that a person plays",
        Parts(
            ("{s} plays the {o}.", "{s} has learned the {o}."),
            ("{s} performs on the {o}.", "The {o} is an instrument of {s}."),
        ),
        Parts(("the instruments {s} plays",), ("the instruments of {s}",)),
    ),
    "visited": Words(
        SET,
        CITIES,
        "a city that a person has visited",
        Parts(
            ("{s} has been to {o}.", "{s} once visited {o}."),
            ("{s} spent a holiday in {o}.", "A weekend in {o} is behind {s}."),
        ),
        Parts(("the cities {s} has visited",), ("the holiday cities of {s}",)),
    ),
    "cost": Words(
        SET,
        AMOUNTS,
        "an amount in euros that was paid for a trip; the amounts of a trip differ",
        Parts(
            ("We paid {o} euros for {s}.", "{s} cost us another {o} euros."),
            ("A bill of {o} euros came in for {s}.", "{o} euros went out for {s}."),
        ),
        Parts(("the amounts paid for {s}",), ("the bills of {s}",)),
    ),
    "launches_on": Words(
        CLAIM,
        WEEKDAYS,
        "the day on which a project starts, as a source says",
        Parts(
            ("{s} starts on {o}.", "The start of {s} is on {o}."),
            ("{s} goes live on {o}.", "{o} is the day on which {s} opens."),
        ),
        Parts(("the start day of {s}",), ("the opening day of {s}",)),
    ),
}

DENIALS = Parts(
    ("It is not true that {o} is {p}.", "{o} is not {p}."),
    ("{o} is no longer {p}.", "{o} was never {p}, strike that."),
)
ALIASES = Parts(
    ("{s} is the nickname of {o}.",),
    ("Everybody calls {o} simply {s}.", "{o} goes by {s}."),
)
DISTRUST = Parts(
    ("What {s} says is not reliable.",),
    ("Disregard all reports by {s}.", "{s} made things up; count none of it."),
)
FORGETS = Parts(
    ("Forget {p}.",),
    ("Please erase {p} from your notes.", "Delete {p}, we must not store it."),
)
EVERYTHING = Parts(("everything about {s}",), ("all that concerns {s}", "any record of {s}"))
SINCE = Parts(("From {d} on: {t}",), ("Effective {d}: {t}", "Starting with {d}: {t}"))

ASKS: dict[str, Parts] = {
    "values": Parts(("What is {p}?",), ("Tell me {p}.", "Do you know {p}?")),
    "who": Parts(
        ("Of whom is {o} {p}?",), ("Name all of whom {o} is {p}.", "For which of them is {o} {p}?")
    ),
    "count_who": Parts(("For how many is {o} {p}?",), ("How many are there with {o} as {p}?",)),
    "count": Parts(("How many are {p}?",), ("What is the number of {p}?",)),
    "sum": Parts(("What is the sum of {p}?",), ("How much is it for {p} in total?",)),
    "ever": Parts(("Which values did {p} ever have?",), ("List the present and past of {p}.",)),
    "verdict": Parts(("Is {o} {p}?",), ("Would you say that {o} is {p}?",)),
}
VALID_AT = Parts((" That is, on {d}.",), (" I mean how it was on {d}.",))
KNOWN_AT = Parts((" As you knew it on {d}.",), (" Going by your knowledge of {d}.",))
RULE = Parts(
    ("The pass of a team has the colour of its floor.",),
    ("A team carries passes in the colour of the floor it sits on.",),
)
CONCLUSIONS = Parts(("So the pass of the {s} is {o}.",), ("That makes {o} passes for the {s}.",))
PASS = Parts(("the colour of the pass of the {s}",), ("the pass colour of the {s}",))
