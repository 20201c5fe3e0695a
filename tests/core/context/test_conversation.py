"""Facts around a match in a conversation: answers to questions, neighbours and sessions."""

from __future__ import annotations

import pytest
from support.runtimes import runtime
from support.windows import texts, window

from kbcore.clock import ManualClock
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.facts import Fact

ANSWER = 'said(bob, "yes, aunt Cleo did")'


def say(kb, speaker, text, session="talk"):
    """Store an episode and a fact that is based on it."""
    episode = kb.add_episode(speaker, text, session=session).episode.id
    kb.assert_facts([Fact("said", (speaker, text), evidence=(Evidence(episode),))])
    return episode


def found(kb, **more):
    return texts(window(kb, query="who came to the concert", **more))


def matches(kb, query="who came to the concert", **more):
    """Return the match of each fact that is found."""
    entries = window(kb, query=query, explain=True, **more).entries
    return {entry.args[1]: entry.why["lexical"] for entry in entries}


QUESTION = "Did anyone come to the concert?"
PART = 0.5
"""Weight of the session, and of neighbours."""


def test_the_answer_to_a_question_that_matches_comes_first(kb):
    say(kb, "ann", QUESTION)
    say(kb, "bob", "yes, aunt Cleo did")
    say(kb, "ann", "how nice")
    say(kb, "ann", "the bus was late")
    assert found(kb)[:2] == [ANSWER, f'said(ann, "{QUESTION}")']
    by_text = matches(kb)
    own = by_text[QUESTION] / (1 + PART)
    assert by_text["yes, aunt Cleo did"] == pytest.approx(own * (2 * PART + 0.7))
    assert by_text["how nice"] == pytest.approx(own * 2 * PART)
    assert "the bus was late" not in by_text


@pytest.mark.parametrize(
    ("question", "speaker"),
    [
        ("I came to the concert.", "bob"),
        ("Did anyone come to the concert? I wonder", "bob"),
        ("Did anyone come to the concert?", "ann"),
    ],
)
def test_other_neighbours_get_less_than_answers(kb, question, speaker):
    say(kb, "ann", question)
    say(kb, speaker, "yes, aunt Cleo did")
    by_text = matches(kb)
    assert by_text["yes, aunt Cleo did"] == pytest.approx(by_text[question] / (1 + PART))


def test_neighbours_are_at_most_two_episodes_before_and_after(kb):
    texts = ["one", "two", "three", "I came to the concert", "four", "five", "six"]
    for text in texts:
        say(kb, "ann", text)
    say(kb, "ann", "elsewhere", "other")
    assert set(matches(kb)) == {"two", "three", "I came to the concert", "four", "five"}


def test_a_match_of_its_session_raises_another_match(kb):
    say(kb, "ann", "the concert was loud", "a")
    for text in ("one", "two", "three"):
        say(kb, "ann", text, "a")
    say(kb, "ann", "who came, cid or dan?", "a")
    say(kb, "ann", "who came, eve or fay?", "b")
    by_text = matches(kb)
    assert by_text["who came, cid or dan?"] > by_text["who came, eve or fay?"]
    alone = by_text["who came, eve or fay?"] / (1 + PART)
    assert by_text["who came, cid or dan?"] == pytest.approx(
        alone + PART * by_text["the concert was loud"] / (1 + PART)
    )


def test_long_episodes_say_little_about_their_neighbours(kb):
    say(kb, "ann", "I came to the concert" + " and slept" * 60)
    say(kb, "bob", "yes, aunt Cleo did")
    length = len("I came to the concert" + " and slept" * 60)
    by_text = matches(kb)
    (question,) = (match for text, match in by_text.items() if text.startswith("I came"))
    gate = (200 / length) ** 2
    own = question / (1 + gate * PART)
    assert by_text["yes, aunt Cleo did"] == pytest.approx(own * gate * 2 * PART)


def test_words_side_by_side_in_query_and_fact_count_more(kb):
    say(kb, "ann", "green tea and black coffee", None)
    say(kb, "ann", "black tea and green coffee", None)
    by_text = matches(kb, query="who drinks green tea?")
    assert by_text["green tea and black coffee"] > by_text["black tea and green coffee"]
    by_text = matches(kb, query="tea, perhaps green")
    assert by_text["green tea and black coffee"] == by_text["black tea and green coffee"]


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_first_facts_of_a_large_window_are_a_small_one(kb, count):
    for number in range(60):
        say(kb, "ann", f"the concert number {number % 7} of {number}", f"s{number % 5}")
    large = found(kb, max_facts=25)
    assert len(large) == 25
    assert found(kb, max_facts=count) == large[:count]


@pytest.mark.parametrize("end", ['?"', "? ", "\uff1f", "?)"])
def test_marks_after_a_question(kb, end):
    say(kb, "ann", f"Did anyone come to the concert{end}")
    say(kb, "bob", "yes, aunt Cleo did")
    assert ANSWER in found(kb)


def test_episodes_without_a_session_are_no_dialogue(kb):
    say(kb, "ann", "Did anyone come to the concert?", None)
    say(kb, "bob", "yes, aunt Cleo did", None)
    assert len(found(kb)) == 1


def test_an_answer_is_restricted_as_matches_are(kb):
    say(kb, "ann", "Did anyone come to the concert?")
    answer = say(kb, "bob", "yes, aunt Cleo did")
    assert found(kb, min_relevance=0.95) == [ANSWER]
    kb.assert_facts([Fact("visitor", ("cleo", "there"), evidence=(Evidence(answer),))])
    assert found(kb, predicates=("said",)) == [ANSWER, f'said(ann, "{QUESTION}")']
    assert set(found(kb)) > {ANSWER, "visitor(cleo, there)"}


def test_answers_follow_retractions_and_later_evidence(kb):
    say(kb, "ann", "Did anyone come to the concert?")
    answer = say(kb, "bob", "yes, aunt Cleo did")
    assert ANSWER in found(kb)
    kb.retract_fact("said", ("bob", "yes, aunt Cleo did"))
    assert ANSWER not in found(kb)
    kb.assert_facts([Fact("visited", ("cleo", "us"))])
    assert "visited(cleo, us)" not in found(kb)
    kb.assert_facts([Fact("visited", ("cleo", "us"), evidence=(Evidence(answer),))])
    assert "visited(cleo, us)" in found(kb)


def test_an_expired_answer_is_not_found(kb, clock):
    say(kb, "ann", "Did anyone come to the concert?")
    answer = kb.add_episode("bob", "yes, Cleo", session="talk").episode.id
    kb.assert_facts([Fact("brief", ("cleo",), ttl=1000, evidence=(Evidence(answer),))])
    assert "brief(cleo)" in found(kb)
    clock.advance(2000)
    assert "brief(cleo)" not in found(kb)


def test_a_transaction_sees_its_own_answers(kb):
    say(kb, "ann", "Did anyone come to the concert?")
    assert ANSWER not in found(kb)
    node, id = kb._services, kb._services.begin()
    with node.in_transaction("default", "default", id) as inside:
        say(inside, "bob", "yes, aunt Cleo did")
    with node.in_transaction("default", "default", id, writes=False) as inside:
        assert ANSWER in found(inside)
    assert ANSWER not in found(kb)


@pytest.mark.parametrize("step", [1, 40])
def test_the_order_does_not_depend_on_which_writes_share_a_millisecond(step):
    windows = []
    for pause in (0, step):
        clock = ManualClock()
        with runtime(clock=clock) as node:
            kb = node.knowledge_base()
            for number in range(50):
                say(kb, "ann", f"the concert number {number % 7} of {number}", f"s{number % 5}")
                clock.advance(pause)
            windows.append([found(kb, max_facts=count) for count in (3, 40)])
    assert windows[0] == windows[1]
    assert windows[0][0] == windows[0][1][:3]
