"""Answers in a dialogue: facts of the episode after a matching question."""

from __future__ import annotations

import pytest
from support.windows import texts, window

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


def test_the_answer_to_a_question_that_matches_is_found(kb):
    say(kb, "ann", "Did anyone come to the concert?")
    say(kb, "bob", "yes, aunt Cleo did")
    say(kb, "ann", "how nice")
    assert found(kb) == ['said(ann, "Did anyone come to the concert?")', ANSWER]


@pytest.mark.parametrize(
    ("question", "speaker", "session"),
    [
        ("I came to the concert.", "bob", "talk"),
        ("Did anyone come to the concert? I wonder", "bob", "talk"),
        ("Did anyone come to the concert?", "ann", "talk"),
        ("Did anyone come to the concert?", "bob", "other"),
    ],
)
def test_other_episodes_are_no_answers(kb, question, speaker, session):
    say(kb, "ann", question)
    say(kb, speaker, "yes, aunt Cleo did", session)
    assert len(found(kb)) == 1


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
    assert found(kb, min_relevance=0.9) == ['said(ann, "Did anyone come to the concert?")']
    kb.assert_facts([Fact("visitor", ("cleo", "there"), evidence=(Evidence(answer),))])
    assert found(kb, predicates=("said",)) == [
        'said(ann, "Did anyone come to the concert?")',
        ANSWER,
    ]
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
