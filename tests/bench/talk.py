"""A labelled collection: what people told about themselves, and questions in other words, with the
facts that answer them.

Made, not gathered: 40 kinds of facts written by hand, each with a question as one would ask it; 50
people; values are drawn with a fixed seed. A question is about one person and one kind of fact, and
a single fact answers it. Some questions share inflected words with their fact, many nothing but the
name.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

Fact = tuple[str, ...]

NAMES = [
    "Ana",
    "Boris",
    "Clara",
    "Dmitri",
    "Elena",
    "Farid",
    "Greta",
    "Hamid",
    "Ines",
    "Jonas",
    "Katya",
    "Liam",
    "Mona",
    "Nils",
    "Olga",
    "Pavel",
    "Quentin",
    "Rosa",
    "Stefan",
    "Tara",
    "Umar",
    "Vera",
    "Walter",
    "Xenia",
    "Yusuf",
    "Zoe",
    "Amara",
    "Bruno",
    "Carmen",
    "Diego",
    "Edith",
    "Felix",
    "Gloria",
    "Hugo",
    "Irma",
    "Jakob",
    "Kemal",
    "Lotte",
    "Mirko",
    "Nadia",
    "Otto",
    "Petra",
    "Rafael",
    "Selma",
    "Tomas",
    "Ulla",
    "Viktor",
    "Wanda",
    "Yara",
    "Zeno",
]

KINDS = [
    (
        "works_at",
        "harbour office|city library|flower shop|bakery|north clinic",
        "Where is {} working these days?",
    ),
    ("livesIn", "Lisbon|Oslo|old mill street|Graz|a houseboat", "Which town does {} live in?"),
    ("born_in", "March 1980|June 1991|winter of 1975|1968", "When is the birthday of {}?"),
    ("hasPet", "grey cat|two parrots|old dog|tortoise", "What pets does {} keep at home?"),
    (
        "allergic_to",
        "peanuts|shellfish|birch pollen|penicillin",
        "Does {} suffer from any allergies?",
    ),
    ("plays_instrument", "cello|bass guitar|accordion|drums", "What instruments can {} play?"),
    ("favourite_food", "lentil soup|pancakes|sushi|goulash", "What does {} like eating most?"),
    ("speaks-language", "Finnish|Arabic|sign language|Greek", "What languages is {} speaking?"),
    (
        "studied",
        "marine biology|law|architecture|history of art",
        "What did {} study at university?",
    ),
    ("married_to", "a painter|a nurse|the neighbour|a pilot", "Who is the spouse of {}?"),
    ("drives", "red van|electric scooter|old truck|no car", "What is {} driving?"),
    ("afraid_of", "spiders|heights|thunder|deep water", "What fears trouble {}?"),
    (
        "collects",
        "postage stamps|vinyl records|beer mats|sea shells",
        "What kind of collection has {} got?",
    ),
    (
        "is_training_for",
        "city marathon|triathlon|chess cup|ski race",
        "What competition does {} train for?",
    ),
    (
        "drinks",
        "black coffee|jasmine tea|oat milk|tonic water",
        "Which drink should I order for {}?",
    ),
    (
        "watches",
        "crime series|cooking shows|old westerns|cartoons",
        "What is {} watching on television?",
    ),
    ("reads", "detective novels|poetry|science magazines|comics", "Suggest reading for {}"),
    (
        "wakes_up_at",
        "five thirty|noon|six sharp|quarter past seven",
        "How early does {} get out of bed?",
    ),
    ("prefersTravelBy", "night train|bicycle|ferry|bus", "How would {} prefer travelling?"),
    ("visited", "Iceland|Peru|the Black Forest|Kyoto", "Which country was {} visiting last?"),
    ("plans_to_visit", "Morocco|her aunt|the Alps|Vietnam", "Is {} planning any visits?"),
    ("bought", "sewing machine|garden shed|tent|piano", "What purchase did {} make recently?"),
    ("broke", "left wrist|coffee pot|bedroom window|glasses", "What has {} broken?"),
    ("lost", "house keys|blue umbrella|passport|wedding ring", "What is {} missing?"),
    (
        "wants_to_learn",
        "pottery|diving|programming|baking bread",
        "Which skill is {} eager to learn?",
    ),
    ("dislikes", "loud music|cold showers|coriander|queues", "What does {} hate?"),
    (
        "monthly_rent",
        "900 euros|1200 euros|640 euros|1500 euros",
        "How much does {} pay for the flat each month?",
    ),
    ("childCount", "three children|one daughter|twins|no children", "How many kids does {} have?"),
    (
        "takes_medicine",
        "iron tablets|insulin|cough syrup|eye drops",
        "What medication is {} taking?",
    ),
    (
        "doctor_appointment",
        "on Tuesday|next Friday at nine|on the 14th|after lunch",
        "When must {} see the physician?",
    ),
    (
        "volunteers_for",
        "animal shelter|food bank|choir|fire brigade",
        "What volunteering does {} do?",
    ),
    (
        "manages_team",
        "night shift|sales|warehouse|web design",
        "Which group of people is {} the boss of?",
    ),
    ("reports_to", "Mrs Lindqvist|the director|Dr Osei|nobody", "Who gets reports by {}?"),
    (
        "deadline_for",
        "tax return|grant proposal|thesis|annual report",
        "What are the deadlines of {}?",
    ),
    ("phone_model", "PixelFold7|old Nokia|iPhone12|FairPhone5", "Which mobile does {} carry?"),
    ("shoe_size", "38|44|41|46", "What size of shoes fits {}?"),
    ("repairs", "watches|clocks and radios|bicycles|roofs", "What can {} repairing be asked for?"),
    ("grows", "tomatoes|roses|chili peppers|herbs", "What is growing in the garden of {}?"),
    ("owes_money_to", "the bank|a cousin|the landlord|a friend", "Is {} in debt?"),
    (
        "celebrates",
        "Nowruz|Midsummer|Hanukkah|name day",
        "What feast is the celebration of {} about?",
    ),
]

QUESTIONS = 160


def collection() -> tuple[list[Fact], list[tuple[str, int]]]:
    """2,000 facts, and questions each with the place of its answer."""
    draw = random.Random(6)
    facts = [
        (predicate, name, draw.choice(values.split("|")))
        for name in NAMES
        for predicate, values, _ in KINDS
    ]
    places = [
        place
        for kind in range(len(KINDS))
        for place in draw.sample(range(kind, len(facts), len(KINDS)), 4)
    ]
    asked = [(KINDS[place % len(KINDS)][2].format(facts[place][1]), place) for place in places]
    assert len(asked) == QUESTIONS
    return facts, asked


def many(count: int) -> tuple[list[Fact], list[str]]:
    """Facts about people with two names each, and questions on some of them."""
    draw = random.Random(7)
    facts = []
    for at in range(count):
        predicate, values, _ = KINDS[draw.randrange(len(KINDS))]
        who = f"{draw.choice(NAMES)}_{draw.choice(NAMES)}son{at % 997}"
        facts.append((predicate, who, draw.choice(values.split("|"))))
    questions = [
        draw.choice(KINDS)[2].format(draw.choice(facts)[1].replace("_", " ")) for _ in range(60)
    ]
    return facts, questions


def recall(found: Sequence[Sequence[int]], asked: Sequence[tuple[str, int]]) -> float:
    """The share of questions whose answer is among what was found."""
    return sum(place in some for some, (_, place) in zip(found, asked, strict=True)) / len(asked)
