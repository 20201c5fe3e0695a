"""Goals found for questions in words, without a language model: right, wrong, abstained.

`python tests/bench/question_goals.py [--domain services] [--facts 10000]` prints a table.
Facts are stored as facts, in the shape of FactConsolidation: relations with one value each, all of
which are stated twice. Questions are nested phrases over one to four relations. Argument names and
glosses are written like the descriptions of a public list of properties; the phrases are in two
groups, those with the word of the relation and paraphrases.

The domains `people` and `services` are for development. Those of `held_out_questions.py` are held
out: please look at their table only.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from dataclasses import dataclass

from held_out_questions import HELD_OUT, PREVIOUS, TOTALS, WHETHER_PAST
from held_out_questions import PAST as PAST_TEXTS
from held_out_questions import SINCE as SINCE_TEXTS
from held_out_questions import WHETHER as WHETHER_TEXTS
from question_relations import Domain, Relation

import kbcore

SAME, OTHER, WHOLE = "word of the relation", "paraphrase", "whole question"
NUMBER, PAST, BEFORE, SINCE, WHETHER, TOTAL, ABSENT = (
    "number", "value in the past", "value before", "since when", "whether", "total", "absent",
)  # fmt: skip


PEOPLE = (
    Relation(
        "country_of_citizenship", ("person", "country"),
        "a country that recognizes the person as its citizen",
        ("the country of citizenship of {}", "{}'s country of citizenship"),
        ("the country that {} is a citizen of", "the nation whose passport {} has"),
    ),
    Relation(
        "spouse", ("person", "partner"),
        "the person has the partner as their spouse (husband, wife, partner)",
        ("the spouse of {}", "{}'s spouse"),
        ("the person {} is married to", "the husband or wife of {}"),
    ),
    Relation(
        "author", ("work", "person"), "main creator of a written work",
        ("the author of {}", "{}'s author"),
        ("the person who wrote {}", "the creator of {}"),
    ),
    Relation(
        "employer", ("person", "organization"),
        "organization for which the person works or worked",
        ("the employer of {}", "{}'s employer"),
        ("the organization {} works for", "the company that pays {}"),
    ),
    Relation(
        "headquarters_location", ("organization", "city"),
        "city or town where the headquarters of an organization is situated",
        ("the headquarters location of {}", "the city where the headquarters of {} is located"),
        ("the city in which {} has its main office", "the town where {} is headquartered"),
    ),
    Relation(
        "place_of_birth", ("person", "city"), "most specific known birth location of a person",
        ("the place of birth of {}", "{}'s place of birth"),
        ("the city {} was born in", "the birthplace of {}"),
    ),
    Relation(
        "place_of_death", ("person", "city"), "most specific known death location of a person",
        ("the place of death of {}", "{}'s place of death"),
        ("the city where {} died", "the city {} passed away in"),
    ),
    Relation(
        "head_of_state", ("country", "person"), "official with the highest formal authority in a country",
        ("the head of state of {}", "the current head of state in {}"),
        ("the monarch or president of {}", "the person with the highest authority in {}"),
    ),
    Relation(
        "capital", ("country", "city"), "seat of government of a country",
        ("the capital of {}", "the capital city of {}"),
        ("the seat of the government of {}", "the city from which {} is governed"),
    ),
    Relation(
        "continent", ("country", "continent"), "continent of which the country is a part",
        ("the continent of {}", "the continent where {} is located"),
        ("the continent that {} is part of", "the landmass with {} on it"),
    ),
    Relation(
        "official_language", ("country", "language"), "language designated as official by the country",
        ("the official language of {}", "the language that is official in {}"),
        ("the language designated by {}", "the tongue of the state {}"),
    ),
    Relation(
        "chief_executive_officer", ("organization", "person"),
        "highest-ranking corporate officer appointed as the CEO within an organization",
        ("the chief executive officer of {}", "{}'s chief executive officer"),
        ("the CEO of {}", "the top manager of {}"),
    ),
    Relation(
        "founded_by", ("organization", "person"), "founder or co-founder of the organization",
        ("the person {} was founded by", "the person who founded {}"),
        ("the founder of {}", "the person who started {}"),
    ),
    Relation(
        "developer", ("software", "organization"), "organization that developed the software",
        ("the developer of {}", "{}'s developer"),
        ("the organization that developed {}", "the maker of {}"),
    ),
    Relation(
        "educated_at", ("person", "university"), "educational institution attended by the person",
        ("the university where {} was educated", "the university {} was educated at"),
        ("the educational institution {} attended", "the university that {} graduated from"),
    ),
    Relation(
        "sport", ("team", "sport"), "sport in which the team participates or is associated with",
        ("the sport of {}", "the sport that {} is associated with"),
        ("the sport {} participates in", "the discipline in which {} competes"),
    ),
    Relation(
        "country_of_origin", ("sport", "country"), "country of origin of the sport",
        ("the country of origin of {}", "{}'s country of origin"),
        ("the country where {} originated", "the country {} was invented in"),
    ),
    Relation(
        "performer", ("song", "person"), "musician, band or other performer of a musical work",
        ("the performer of {}", "{}'s performer"),
        ("the person who performed {}", "the singer of {}"),
    ),
    Relation(
        "religion", ("person", "religion"), "religion of a person",
        ("the religion of {}", "the religion {} is affiliated with"),
        ("{}'s religion", "the faith of {}"),
    ),
    Relation(
        "head_coach", ("team", "person"), "on-field manager or head coach of a sports club",
        ("the head coach of {}", "{}'s head coach"),
        ("the manager of {}", "the trainer of {}"),
    ),
    Relation(
        "member_of_sports_team", ("person", "team"), "sports team that the person plays for",
        ("the sports team {} is a member of", "the team that {} is a member of"),
        ("the team {} plays for", "the side {} belongs to"),
    ),
)  # fmt: skip

SERVICES = (
    Relation(
        "owner", ("service", "team"), "team that is responsible for a service",
        ("the owner of {}", "{}'s owner"),
        ("the team responsible for {}", "the squad that looks after {}"),
    ),
    Relation(
        "runs_on", ("service", "cluster"), "cluster on which a service is deployed",
        ("the cluster {} runs on", "the cluster on which {} runs"),
        ("the cluster where {} is deployed", "the home of {}"),
    ),
    Relation(
        "region", ("cluster", "region"), "region of the data centre of a cluster",
        ("the region of {}", "{}'s region"),
        ("the region of the data centre of {}", "the area that hosts {}"),
    ),
    Relation(
        "on_call", ("team", "engineer"), "engineer who is on call for a team",
        ("the engineer on call for {}", "the on-call engineer of {}"),
        ("the engineer whom {} calls at night", "the person who carries the pager of {}"),
    ),
    Relation(
        "manager", ("team", "engineer"), "engineer who leads a team",
        ("the manager of {}", "{}'s manager"),
        ("the engineer who leads {}", "the head of {}"),
    ),
    Relation(
        "depends_on", ("service", "dependency"), "service that a service needs",
        ("the service {} depends on", "the service on which {} depends"),
        ("the service that {} needs", "the upstream of {}"),
    ),
    Relation(
        "office", ("engineer", "town"), "town of the office in which an engineer works",
        ("the office of {}", "{}'s office"),
        ("the town in which {} works", "the place where {} sits"),
    ),
    Relation(
        "database", ("service", "database"), "database in which a service stores its data",
        ("the database of {}", "{}'s database"),
        ("the database in which {} stores its data", "the storage behind {}"),
    ),
    Relation(
        "backup_window", ("database", "weekday"), "weekday on which a database is backed up",
        ("the backup window of {}", "{}'s backup window"),
        ("the weekday on which {} is backed up", "the day {} is saved"),
    ),
    Relation(
        "provider", ("cluster", "vendor"), "vendor from which a cluster is rented",
        ("the provider of {}", "{}'s provider"),
        ("the vendor from which {} is rented", "the firm that rents out {}"),
    ),
)  # fmt: skip

SERVICE_NAMES = {
    "service": [
        "checkout",
        "search-api",
        "mailer",
        "ledger",
        "thumbnailer",
        "gateway",
        "catalog",
        "notifier",
    ],
    "team": ["team Otter", "team Heron", "team Lynx", "team Ibex"],
    "cluster": ["blue-1", "blue-2", "green-1", "amber-3"],
    "region": ["north-east", "south-west", "central"],
    "engineer": ["Ines Falk", "Joris Maes", "Katya Orlov", "Leo Brandt", "Mina Sato"],
    "town": ["Ghent", "Turku", "Porto", "Graz"],
    "database": ["db-orders", "db-users", "db-media"],
    "weekday": ["Monday", "Tuesday", "Sunday"],
    "vendor": ["Stratus", "Hostwerk", "Nimbus"],
}
PEOPLE_NAMES = {
    "person": [
        "Karla",
        "Oliver",
        "Petra",
        "Quentin",
        "Rosa",
        "Stefan",
        "Tilda",
        "Umberto",
        "Vera",
        "Walter",
        "Xenia",
        "Yorick",
        "Zora",
        "Arne",
        "Bella",
    ],
    "work": [
        "Silent Harbour",
        "Winter Road",
        "Glass Orchard",
        "Lost Meridian",
        "Paper Moon",
        "Iron Lullaby",
    ],
    "organization": [
        "Nordal",
        "Quillon",
        "Vexar",
        "Brightwell",
        "Ostrom",
        "Calyx",
        "Tarnova",
        "Helmsted",
    ],
    "software": ["PixelForge", "DataLoom", "NoteRiver", "GridSense"],
    "song": ["Blue Ember", "Hollow Sky", "Northern Line", "Second Rain"],
    "country": ["Aldovia", "Brunland", "Cartesia", "Drumoria", "Elvania", "Fjordmark", "Grenovia"],
    "city": ["Port Amber", "Kelmont", "Lowen", "Marisburg", "Norvik", "Oxmere", "Pellingen"],
    "team": ["Kelmont Rovers", "Lowen Lions", "Norvik Stars", "Oxmere United"],
    "sport": ["rounders", "skijoring", "pelota", "shinty", "korfball"],
    "continent": ["Eastria", "Westria", "Southria"],
    "language": ["Aldish", "Brunnish", "Cartese", "Drumic"],
    "university": ["Kelmont College", "Lowen University", "Norvik Institute"],
    "religion": ["Solism", "Lunarism", "Tarism"],
}
"""Invented names by type."""

TYPES = {"partner": "person", "dependency": "service", "other_artist": "artist"}
ASKS_FOR_PEOPLE = ("Who is {}?", "What is the name of {}?")
ASKS = ("What is {}?", "Tell me {}.")


ABSENT_PHRASES = (
    "the blood type of {}", "the dentist of {}", "the favourite colour of {}", "the shoe size of {}",
    "the phone number of {}", "the landlord of {}", "the city where {} went to school",
    "the person {} is afraid of", "the country {} would like to visit", "the team {} dislikes",
)  # fmt: skip
DOMAINS = {
    "people": Domain(PEOPLE, PEOPLE_NAMES, "person", absent=ABSENT_PHRASES),
    "services": Domain(SERVICES, SERVICE_NAMES, "service", absent=ABSENT_PHRASES),
    **HELD_OUT,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its group of phrases, its number of relations, and its answer."""

    text: str
    group: str
    hops: int
    answer: str | None


def type_of(name: str) -> str:
    """Return the type of an argument."""
    return TYPES.get(name, name)


def made(
    domain: Domain, seed: int, facts: int
) -> tuple[dict[str, list[str]], list[tuple[str, str, str]]]:
    """Return names by type, and the statements in order: two of each subject and relation."""
    draw = random.Random(seed)
    pools = {kind: list(names) for kind, names in domain.names.items()}
    kinds = [type_of(each.args[0]) for each in domain.relations]
    surplus = facts // 2 - sum(len(pools[kind]) for kind in kinds)
    for number in range(max(surplus, 0) // kinds.count(domain.growing)):
        pools[domain.growing].append(f"{draw.choice(domain.names[domain.growing])} {number}")
    statements = []
    for relation in domain.relations:
        for subject in pools[type_of(relation.args[0])]:
            values = [v for v in pools[type_of(relation.args[1])] if v != subject]
            statements += [(relation.name, subject, draw.choice(values)) for _ in range(2)]
    draw.shuffle(statements)
    return pools, statements


def questions(domain: Domain, seed: int, facts: int, count: int) -> list[Asked]:
    """Return the questions: of each group and number of relations `count`."""
    pools, statements = made(domain, seed, facts)
    values = {(name, subject): value for name, subject, value in statements}
    draw = random.Random(f"{seed}/questions")
    asked = []
    for group in (SAME, OTHER):
        for hops in (1, 2, 3, 4):
            for _ in range(MAX_DRAWS * count):
                if sum(each.group == group and each.hops == hops for each in asked) == count:
                    break
                relation = draw.choice(domain.relations)
                kind = type_of(relation.args[0])
                subject = phrase = draw.choice(pools[kind])
                answer: str | None = subject
                for _ in range(hops):
                    choices = [each for each in domain.relations if type_of(each.args[0]) == kind]
                    if not choices:
                        break
                    relation = draw.choice(choices)
                    kind = type_of(relation.args[1])
                    phrase = draw.choice(relation.same if group == SAME else relation.other).format(
                        phrase
                    )
                    answer = values.get((relation.name, answer)) if answer else None
                else:
                    asks = ASKS_FOR_PEOPLE if kind in domain.people else ASKS
                    text = draw.choice(asks).format(phrase)
                    asked.append(Asked(text, group, hops, answer))
    return asked


def whole(domain: Domain, seed: int, facts: int, count: int) -> list[Asked]:
    """Return whole questions in other words, about a constant or about a paraphrase."""
    pools, statements = made(domain, seed, facts)
    values = {(name, subject): value for name, subject, value in statements}
    draw = random.Random(f"{seed}/whole")
    asked: list[Asked] = []
    last = [each for each in domain.relations if each.whole]
    while last and len(asked) < 2 * count:
        relation = draw.choice(last)
        kind, hops = type_of(relation.args[0]), 1 + len(asked) // count
        phrase = answer = None
        if hops == 1:
            phrase = answer = draw.choice(pools[kind])
        else:
            inner = [each for each in domain.relations if type_of(each.args[1]) == kind]
            if inner:
                first = draw.choice(inner)
                subject = draw.choice(pools[type_of(first.args[0])])
                phrase = draw.choice(first.other).format(subject)
                answer = values[first.name, subject]
        if phrase is not None and answer is not None:
            text = draw.choice(relation.whole).format(phrase)
            asked.append(Asked(text, WHOLE, hops, values[relation.name, answer]))
    return asked


def absent(domain: Domain, seed: int, facts: int, count: int) -> list[Asked]:
    """Return questions about what no predicate is about, which have no answer."""
    pools, _ = made(domain, seed, facts)
    draw = random.Random(f"{seed}/absent")
    phrases = domain.absent
    return [
        Asked(
            f"What is {draw.choice(phrases).format(draw.choice(pools[domain.growing]))}?",
            ABSENT,
            1,
            None,
        )
        for _ in range(count)
    ]


MAX_DRAWS = 50
"""Paths drawn for each question: some are shorter than it needs."""

FIRST, SECOND = 2021, 2023
"""Years at whose start the two values of a subject begin."""


def of_kinds(domain: Domain, seed: int, facts: int, count: int) -> list[Asked]:
    """Return questions for numbers, for values at other times, and whether something holds."""
    pools, statements = made(domain, seed, facts)
    draw = random.Random(f"{seed}/kinds")
    both: dict[tuple[str, str], list[str]] = {}
    for name, subject, value in statements:
        both.setdefault((name, subject), []).append(value)
    asked = []
    for name, texts in domain.counts if count else ():
        relation = next(each for each in domain.relations if each.name == name)
        of_name = [values[1] for (other, _), values in both.items() if other == name]
        for value in pools[type_of(relation.args[1])]:
            total = of_name.count(value)
            if total:
                asked += [Asked(text.format(value), NUMBER, 1, str(total)) for text in texts]
    for _ in range(count):
        relation = draw.choice(domain.relations)
        subject = draw.choice(pools[type_of(relation.args[0])])
        first, second = both[relation.name, subject]
        phrase = draw.choice(relation.same).format(subject)
        year = draw.choice((FIRST, FIRST + 1, SECOND, SECOND + 1))
        then = first if year < SECOND else second
        asks = {"phrase": phrase, "year": year, "value": second}
        asked.append(Asked(draw.choice(PAST_TEXTS).format(**asks), PAST, 1, then))
        if first != second:
            asked.append(Asked(draw.choice(PREVIOUS).format(**asks), BEFORE, 1, first))
            asked.append(
                Asked(draw.choice(SINCE_TEXTS).format(**asks), SINCE, 1, f"{SECOND}-01-01")
            )
            for value in (first, second):
                text = draw.choice(WHETHER_TEXTS).format(phrase=phrase, value=value)
                asked.append(Asked(text, WHETHER, 1, "true" if value == second else "false"))
            text = draw.choice(WHETHER_PAST).format(**asks)
            asked.append(Asked(text, WHETHER, 1, "true" if then == second else "false"))
    for name, _, text in TOTALS:
        relation_of = next((each for each in domain.relations if each.name == name), None)
        for value in pools[type_of(relation_of.args[1])] if relation_of else ():
            amounts = [
                amount(subject)
                for (other, subject), values in both.items()
                if other == name and values[1] == value
            ]
            if amounts:
                total = sum(amounts)
                mean = f"{total / len(amounts):.6g}"
                answer = (
                    mean if "average" in text else str(max(amounts) if "highest" in text else total)
                )
                asked.append(Asked(text.format(value), TOTAL, 1, answer))
    return asked


def amount(subject: str) -> int:
    """Return the number that a subject has in the questions for totals."""
    return 10 + sum(map(ord, subject)) % 90


def opened(
    domain: Domain,
    seed: int,
    facts: int,
    *,
    with_times: bool = False,
    onnx: tuple[str, str] | None = None,
) -> kbcore.KnowledgeBase:
    """Return a knowledge base in memory with the facts and the glosses.

    `with_times` says from when on each value holds, and adds numbers for questions for totals;
    `onnx` are the files of a sentence model and its tokenizer.
    """
    config = None
    if onnx is not None:
        model, tokenizer = onnx
        config = kbcore.Config(
            embedder="onnx", embedder_onnx_model=model, embedder_onnx_tokenizer=tokenizer
        )
    kb = kbcore.open_kb(config=config)
    for each in domain.relations:
        args = ", ".join(each.args)
        kb.teach(f'@input {each.name}({args}) "{each.gloss}". @key {each.name}(?s, _).')
    seen: set[tuple[str, str]] = set()
    for name, subject, value in made(domain, seed, facts)[1]:
        year = SECOND if (name, subject) in seen else FIRST
        seen.add((name, subject))
        since = f"{year}-01-01" if with_times else None
        kb.tell(name, [subject, value], conflict="NEWEST_WINS", valid_from=since)
    for name, measured, _ in TOTALS if with_times else ():
        for subject in {subject for other, subject in seen if other == name}:
            kb.tell(measured, [subject, amount(subject)])
    return kb


def measured(
    kb: kbcore.KnowledgeBase, asked: list[Asked], show: int
) -> tuple[dict[tuple[str, int], Counter[str]], list[float]]:
    """Return outcomes by group and number of relations, and the CPU seconds of each question."""
    counts: dict[tuple[str, int], Counter[str]] = {}
    times = []
    for each in asked:
        start = time.process_time()
        result = kb.goals_for(each.text)
        times.append(time.process_time() - start)
        expected = () if each.answer is None else (each.answer,)
        outcome = (
            "right" if result.answers == expected else "wrong" if result.answers else "abstained"
        )
        counts.setdefault((each.group, each.hops), Counter())[outcome] += 1
        if (outcome == "wrong" and show > 0) or (outcome == "abstained" and show > 1):
            print(outcome, each.text, expected, result.goal, result.answers, result.reason)
    return counts, times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--domain", default="people", help=f"some of {', '.join(DOMAINS)}")
    parser.add_argument("--facts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--show", type=int, default=0, help="1: wrong answers, 2: abstentions too")
    parser.add_argument("--onnx", nargs=2, metavar=("MODEL", "TOKENIZER"), help="sentence model")
    options = parser.parse_args()
    counts: dict[tuple[str, int], Counter[str]] = {}
    times: list[float] = []
    for name in options.domain.split(","):
        domain, sizes = DOMAINS[name], (options.seed, options.facts, options.count)
        asked = questions(domain, *sizes) + whole(domain, *sizes) + absent(domain, *sizes)
        for with_times, some in ((False, asked), (True, of_kinds(domain, *sizes))):
            kb = opened(
                domain, options.seed, options.facts, with_times=with_times, onnx=options.onnx
            )
            of_domain, own_times = measured(kb, some, options.show)
            for key, count in of_domain.items():
                counts.setdefault(key, Counter()).update(count)
            times += own_times
    print("| questions | relations | number | right | wrong | abstained |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for (group, hops), count in counts.items():
        total = sum(count.values())
        shares = " | ".join(
            f"{count[name] / total:.0%}" for name in ("right", "wrong", "abstained")
        )
        print(f"| {group} | {hops} | {total} | {shares} |")
    times.sort()
    mean, p99 = sum(times) / len(times) * 1000, times[int(len(times) * 0.99)] * 1000
    print(f"CPU per question: {mean:.1f} ms, p99 {p99:.1f} ms")


if __name__ == "__main__":
    main()
