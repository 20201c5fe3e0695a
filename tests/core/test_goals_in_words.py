"""Goals for questions in words: chains of predicates, abstention, and where they are used."""

from __future__ import annotations

import pytest

from kbcore import open_kb
from kbcore.errors import InvalidInput

PROGRAM = """
@input employer(person, company) "the company that a person works for".
@input founded_in(company, town) "the town where a company was founded".
@input boss(person, leader) "who leads the work of a person".
@input price(product, shop, amount: number) "what a product costs in a shop".
@key employer(?who, _).
@key founded_in(?what, _).
@key boss(?who, _).
@phrase parent/2 "{0} is the parent of {1}".
"""
FACTS = """
employer(mia, Acme). employer("Ann Lee", Globex). founded_in(Acme, Basel). founded_in(Globex, Bonn).
boss(mia, "Ann Lee"). tour_guide_of(mia, bob). price(milk, "Corner Store", 2). price(milk, Market, 3). parent(eve, mia).
parent(mia, tom). ~employer(mia, Umbrella).
"""


@pytest.fixture
def kb():
    with open_kb() as kb:
        kb.teach(PROGRAM)
        kb.execute(FACTS)
        yield kb


@pytest.mark.parametrize(
    ("question", "goal", "answers"),
    [
        ("Who is the employer of mia?", "employer(mia, ?x)", ("Acme",)),
        ("Which company does mia work for?", "employer(mia, ?x)", ("Acme",)),
        (
            "Where was the employer of mia founded?",
            "employer(mia, ?x), founded_in(?x, ?y)",
            ("Basel",),
        ),
        (
            "In which town was the company founded that the boss of mia works for?",
            "boss(mia, ?x), employer(?x, ?y), founded_in(?y, ?z)",
            ("Bonn",),
        ),
        ("What is mia's boss's employer?", "boss(mia, ?x), employer(?x, ?y)", ("Globex",)),
        ("Who has Acme as employer?", "employer(?x, Acme)", ("mia",)),
        (
            "What is the price of milk in the Corner Store?",
            'price(milk, "Corner Store", ?x)',
            ("2",),
        ),
        ("How much is the price of milk in the Market?", "price(milk, Market, ?x)", ("3",)),
        ("Is Acme the employer of mia?", "employer(mia, Acme)", ("true",)),
        ("Is Umbrella the employer of mia?", "employer(mia, Umbrella)", ("false",)),
        ("Who is the parent of mia?", "parent(?x, mia)", ("eve",)),
    ],
)
def test_a_question_means_a_goal(kb, question, goal, answers):
    suggestions = kb.goals_for(question)
    assert (suggestions.goal, suggestions.answers, suggestions.reason) == (goal, answers, None)
    best = suggestions.goals[0]
    assert (best.goal, best.answers, best.coverage) == (goal, answers, 1)
    is_denied = answers == ("false",)
    assert kb.ask(f"~{goal}" if is_denied else goal).count(), "the goal can be asked as it is"


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Who is the employer of zoe?", "noConstant"),
        ("Who is the dentist of mia?", "noGoal"),
        ("Where was the dentist of the employer of mia founded?", "noGoal"),
        ("In which town was mia born?", "noGoal"),
        ("Is Globex the employer of mia?", "noAnswer"),
        ("Who is the employer of tom?", "noGoal"),
        ("Who is the employer and boss of mia?", "noGoal"),
        ("What is the guide of mia?", "noGoal"),
        ("When is mia's employer?", "noAnswer"),
        ("Who is the employer of mia if it rains?", "noGoal"),
        ("Why is Acme the employer of mia?", "noGoal"),
        ("Who was ever the employer of mia?", "noGoal"),
        ("Who is not the employer of mia?", "noGoal"),
        ("How many are the employer of mia?", "noAnswer"),
        ("Who was the employer of mia when Acme was founded?", "noGoal"),
        ("?", "noConstant"),
        ("word " * 70 + "the employer of mia", "noConstant"),
    ],
)
def test_without_a_certain_goal_there_is_no_answer(kb, question, reason):
    suggestions = kb.goals_for(question)
    assert (suggestions.goal, suggestions.answers, suggestions.reason) == (None, (), reason)


def test_two_goals_that_disagree_give_no_answer(kb):
    kb.teach('@input old_boss(person, leader) "the boss of a person". @key old_boss(?who, _).')
    kb.execute("trainer(mia, bob). coach(mia, bob).")
    kb.teach('@input trainer(person, guide) "the guide". @input coach(person, guide) "the guide".')
    assert kb.goals_for("Who is the guide of mia?").answers == ("bob",)
    kb.execute("coach(mia, cy).")
    suggestions = kb.goals_for("Who is the guide of mia?")
    assert (suggestions.answers, suggestions.reason) == ((), "disagree")
    assert {each.answers for each in suggestions.goals} == {("bob",), ("bob", "cy")}


def test_conclusions_of_rules_are_part_of_chains(kb):
    kb.teach("workplace(?person, ?town) :- employer(?person, ?c), founded_in(?c, ?town).")
    assert kb.goals_for("What is the workplace of mia's boss?").answers == ("Bonn",)


def test_time_scope_and_first_person(kb):
    kb.tell("desk", ["mia", "a1"], valid_from="2024-01-01", valid_until="2025-01-01")
    kb.tell("desk", ["mia", "b2"], valid_from="2025-01-01")
    assert kb.goals_for("the desk of mia").answers == ("b2",)
    assert kb.goals_for("the desk of mia", as_of="2024-06-01").answers == ("a1",)
    kb.tell("desk", ["mia", "c3"], scope="draft")
    assert kb.goals_for("the desk of mia", scope="draft").answers == ("c3",)
    assert set(kb.goals_for("the desk of mia", scope="*").answers) == {"b2", "c3"}
    assert kb.goals_for("Where is my desk?", asker="mia").answers == ("b2",)
    assert kb.goals_for("Where is my desk?").reason == "noConstant"


def test_what_was_retracted_is_no_constant_and_no_answer(kb):
    kb.retract("employer", ["mia", "Acme"])
    suggestions = kb.goals_for("Who is the employer of mia?")
    assert (suggestions.answers, suggestions.reason) == ((), "noAnswer")
    assert kb.goals_for("Who has Acme as employer?").reason == "noGoal"
    kb.retract("founded_in", ["Acme", "Basel"])
    assert kb.goals_for("Who has Acme as employer?").reason == "noConstant"


def test_a_goal_that_takes_too_long_is_not_believed(kb):
    kb.teach("""
    step(?a, ?b) :- node(?a), node(?b).
    reachable(?person, ?c) :- step(?person, ?b), step(?b, ?c), step(?c, ?d), step(?d, ?e), ?e != ?b.
    """)
    kb.tell_many("node", [[f"n{number}"] for number in range(200)])
    suggestions = kb.goals_for("What is reachable from n1?", timeout_ms=2000)
    assert (suggestions.answers, suggestions.reason) == ((), "unfinished")


@pytest.mark.parametrize("question", ["", "  ", "a" * 4001, 7])
def test_what_is_no_question_is_refused(kb, question):
    with pytest.raises(InvalidInput) as raised:
        kb.goals_for(question)
    assert "question" in str(raised.value)


def test_a_window_begins_with_the_value_of_a_certain_goal(kb):
    for number in range(20):
        kb.tell("said_once", ["mia", f"the employer was founded in town {number}"])
    window = kb.context(query="Where was the employer of mia founded?", max_facts=6)
    first = [(entry.predicate, entry.args) for entry in window.entries[:2]]
    assert sorted(first) == [("employer", ("mia", "Acme")), ("founded_in", ("Acme", "Basel"))]


def test_a_search_of_memory_begins_with_the_current_value():
    with open_kb() as base:
        memory = base.memory(user="mia")
        memory.kb.teach(PROGRAM)
        memory.kb.execute("employer(mia, Acme). founded_in(Acme, Basel).")
        memory.add(
            [
                {"role": "user", "content": f"My employer founded a club, day {day}."}
                for day in range(5)
            ]
        )
        search = memory.search("Where was my employer founded?", max_facts=4)
        entries = {(entry.predicate, entry.args) for entry in search.entries[:2]}
        assert entries == {("employer", ("mia", "Acme")), ("founded_in", ("Acme", "Basel"))}
