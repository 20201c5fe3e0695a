"""Memory about a user: messages in, the text for a prompt out."""

from __future__ import annotations

import shutil
from datetime import date

import pytest

from kbcore import open_kb
from kbcore.errors import InvalidInput, NotFound
from kbcore.language.messages import Source
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Variable

MOVED = {"role": "user", "content": "I moved to Berlin.", "at": "2026-11-20T09:00:00Z"}
ASKED = {"role": "assistant", "content": "Do you like the parks?", "at": "2026-11-20T09:00:10Z"}
LIKED = {"role": "user", "content": "Yes, very much.", "at": "2026-11-20T09:00:20Z"}


@pytest.fixture
def kb():
    with open_kb() as opened:
        yield opened


@pytest.fixture
def memory(kb):
    return kb.memory(user="mia")


def texts(window):
    return [entry.args[1] for entry in window.entries]


def test_messages_are_found_with_speaker_and_sources(memory):
    memory.add([MOVED, ASKED, LIKED], session="s1")
    window = memory.search("Who moved to Berlin?")
    assert texts(window)[0] == "I moved to Berlin."
    assert window.entries[0].args[0] == "mia"
    source = next(each for each in window.sources if each["text"] == "I moved to Berlin.")
    assert (source["speaker"], source["at"]) == ("mia", 1_795_165_200_000)


def test_one_message_and_one_text_are_messages_of_the_user(memory):
    memory.add(MOVED)
    memory.add("I like tea.", at=date(2026, 11, 21))
    (tea,) = memory.search("tea").entries
    assert tea.args == ("mia", "I like tea.", "2026-11-21T00:00:00.000Z")


def test_a_user_is_a_tenant(kb, memory):
    memory.add(MOVED)
    assert kb.memory(user="bob").search("Berlin").text == ""
    assert kb.memory().search("Berlin").text == ""
    assert memory.kb.tenant == "mia"
    assert kb.memory().add("I like tea.").episodes
    assert kb.memory().search("tea").entries[0].args[0] == "user"
    with pytest.raises(InvalidInput, match="user"):
        kb.memory(user="")


def test_a_whole_conversation_can_be_sent_again(memory):
    memory.add([MOVED], session="s1")
    added = memory.add([MOVED, ASKED, LIKED], session="s1")
    assert len(added.episodes) == 2
    assert memory.add([MOVED, ASKED, LIKED], session="s1").episodes == ()


def test_session_and_agent_narrow_a_search(memory):
    memory.add([MOVED], session="s1", agent="travel")
    memory.add("I will move to Berlin again.", session="s2", agent="work")
    memory.add("Berlin is big.")
    assert len(memory.search("Berlin").entries) == 3
    assert texts(memory.search("Berlin", session="s1")) == ["I moved to Berlin."]
    assert texts(memory.search("Berlin", agent="work")) == ["I will move to Berlin again."]
    assert memory.search("Berlin", session="s1", agent="work").text == ""
    assert memory.search("Berlin", session="unknown").text == ""


def test_a_narrow_search_is_not_crowded_out(memory):
    memory.add([f"Berlin, Berlin: note {number}." for number in range(600)], session="long")
    memory.add("A long sentence in which, among other towns, Berlin is named.", session="short")
    assert len(memory.search("Berlin", session="short").entries) == 1


def test_a_narrow_search_follows_removed_facts(memory):
    memory.add(["Berlin is big.", "Berlin is old."], session="s1")
    memory.kb.kb.retract_pattern("said", ["mia", "Berlin is big.", Variable("when")])
    assert texts(memory.search("Berlin", session="s1")) == ["Berlin is old."]


def test_the_agent_survives_a_restart(tmp_path):
    with open_kb(path=tmp_path / "a") as kb:
        kb.memory(user="mia").add([MOVED], session="s1", agent="travel")
        shutil.copytree(tmp_path / "a", tmp_path / "killed")  # without a snapshot
    for folder in ("a", "killed"):
        with open_kb(path=tmp_path / folder) as kb:
            memory = kb.memory(user="mia")
            assert len(memory.search("Berlin", agent="travel").entries) == 1
            assert memory.search("Berlin", agent="work").entries == ()


def test_a_new_value_ends_the_older_one(memory):
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01")
    memory.update("lives_in(mia, Berlin)", since="2026-11-13")
    assert memory.search("Where does mia live?").text.strip() == (
        "mia lives in Berlin (since 13 Nov 2026)."
    )
    (fact,) = memory.facts().facts
    assert fact.args == ("mia", "Berlin")
    earlier = memory.kb.kb.recall("lives_in", ["mia", Variable("where")], 1_735_689_600_000)
    assert [row["args"] for row in earlier] == [["mia", "Hamburg"]]


def test_an_update_names_what_it_replaces(memory):
    memory.kb.kb.assert_facts([_fact("likes", "mia", "tea", valid_from=1)])
    with pytest.raises(InvalidInput, match=r"fact: has no older value to end: likes/2 has no decl"):
        memory.update("likes(mia, coffee)")
    with pytest.raises(NotFound, match="likes"):
        memory.update("likes(mia, coffee)", replaces="likes(mia, milk)")
    with pytest.raises(InvalidInput, match="replaces: is the same fact"):
        memory.update("likes(mia, tea)", replaces="likes(mia, tea)")
    with pytest.raises(InvalidInput, match="since: must be after the beginning of likes"):
        memory.update("likes(mia, coffee)", replaces="likes(mia, tea)", since=1)
    memory.update("likes(mia, coffee)", replaces="likes(mia, tea)", since="2026-11-13")
    assert [each.args[1] for each in memory.facts().facts] == ["coffee"]


def test_a_denial_updates_what_it_denies(memory):
    memory.kb.kb.assert_facts([_fact("likes", "mia", "tea", valid_from=1)])
    memory.update("~likes(mia, tea)")
    assert [each.negated for each in memory.facts().facts] == [True]


def _fact(name, *args, **more):
    return Fact(name, args, **more)


def test_forgetting_removes_the_texts_too(memory):
    memory.add([MOVED, ASKED, LIKED], session="s1")
    would = memory.forget("Who moved to Berlin?")
    assert would.dry_run
    assert "I moved to Berlin." in [each.text for each in would.texts]
    assert memory.search("Who moved to Berlin?").entries
    done = memory.forget(f'said(mia, "{MOVED["content"]}", ?when)', dry_run=False)
    assert [each.why for each in done.facts] == ["asked"]
    assert done.fact_count == 1
    assert "I moved to Berlin." not in texts(memory.search("Who moved to Berlin?"))
    assert memory.kb.kb.episodes(session="s1").total == 2


def test_forgetting_an_episode_keeps_what_has_other_evidence(memory):
    added = memory.add([{**MOVED, "id": "m1"}, {**LIKED, "id": "m2"}], session="s1")
    assert added.episodes == ("m1", "m2")
    memory.update("lives_in(mia, Berlin)", evidence=["m1", "m2"])
    gone = memory.forget("m1", dry_run=False)
    assert [each.fact.partition("(")[0] for each in gone.facts] == ["said"]
    (home,) = memory.facts().facts
    assert [source["episode"] for source in home.sources] == ["m2"]
    memory.forget("lives_in(mia, ?where)", dry_run=False)
    assert memory.facts().total == 0
    assert memory.search("very much").text == ""


@pytest.mark.parametrize("about", ["", " ", "x" * 1001])
def test_something_is_named_to_forget(memory, about):
    with pytest.raises(InvalidInput, match="about: must have 1 to 1000"):
        memory.forget(about)


@pytest.mark.parametrize(
    "about", ["lives_in(mia, )", "likes(mia, tea)@s", "?p(mia)", "lives_in mia ?where", "p(a) q(b)"]
)
def test_a_misspelt_pattern_is_no_search(memory, about):
    memory.add("lives_in is a predicate, and mia likes tea.")
    with pytest.raises(InvalidInput, match="about"):
        memory.forget(about, dry_run=False)
    assert memory.search("predicate").entries


def test_a_denial_is_a_pattern(memory):
    memory.kb.tell("~likes(mia, tea)")
    memory.kb.tell("likes(mia, milk)")
    assert [each.fact for each in memory.forget("not likes(mia, ?what)").facts] == [
        "not likes(mia, tea)"
    ]


def test_facts_are_pages(memory):
    for number in range(5):
        memory.kb.kb.assert_facts([_fact("likes", "mia", f"thing{number}")])
    memory.add("I like tea.")
    page = memory.facts(limit=2, offset=3)
    assert ([each.args[1] for each in page.facts], page.total) == (["thing3", "thing4"], 5)


def test_instructions_come_first(memory):
    memory.kb.kb.assert_facts([_fact("instruction", "mia", "Answer in one sentence.")])
    memory.add("Berlin is big.")
    assert memory.search("Berlin").entries[0].predicate == "instruction"


def test_a_question_is_needed(memory):
    with pytest.raises(InvalidInput, match="question: must not be empty"):
        memory.search(" ")
    with pytest.raises(InvalidInput, match="max_tokens"):
        memory.search("x", max_tokens=0)


def test_bad_messages_change_nothing(memory):
    with pytest.raises(InvalidInput, match=r"messages\[1\]\.role"):
        memory.add([MOVED, {"content": "hi"}])
    with pytest.raises(InvalidInput, match="session"):
        memory.add([MOVED], session="")
    assert memory.kb.kb.episodes().total == 0


def test_rules_of_the_vocabulary_answer(memory):
    memory.add("Hello.")
    assert any(rule.rule.head.predicate == "days_until" for rule in memory.kb.kb.rules())
    memory.add("Hello again.")
    names = [rule.rule.head.predicate for rule in memory.kb.kb.rules()]
    assert names.count("days_until") == 1


def test_names_of_user_and_agent_are_the_speakers(memory):
    memory.add([MOVED, ASKED, {"role": "user", "name": "bob", "content": "Bob here."}], agent="amy")
    speakers = [episode.speaker for episode in memory.kb.kb.episodes().episodes]
    assert speakers == ["mia", "amy", "bob"]


def test_a_text_is_not_beside_what_was_read_in_it(memory):
    memory.add({**MOVED, "id": "m1"})
    memory.update("lives_in(mia, Berlin)", since="2026-11-20", evidence=["m1"])
    window = memory.search("Who lives in Berlin, who moved to Berlin?")
    assert [entry.predicate for entry in window.entries] == ["lives_in"]
    assert [source["text"] for source in window.sources] == ["I moved to Berlin."]


def test_a_text_of_a_replaced_value_is_not_found(memory):
    memory.add([{**MOVED, "id": "m1"}, {**LIKED, "content": "I live in Rome now.", "id": "m2"}])
    memory.update("lives_in(mia, Berlin)", since="2026-11-20", evidence=["m1"])
    assert "I moved to Berlin." not in memory.search("Where does mia live? Berlin?").text
    memory.update("lives_in(mia, Rome)", since="2026-11-21", evidence=["m2"])
    window = memory.search("Where does mia live? Berlin or Rome?")
    assert [entry.args[:2] for entry in window.entries] == [("mia", "Rome")]


def test_a_text_of_a_denied_fact_is_not_found(memory):
    memory.add({"role": "user", "content": "I like tea.", "at": "2026-11-20", "id": "m1"})
    memory.kb.kb.assert_facts([_fact("likes", "mia", "tea", valid_from=1, evidence=[_whole("m1")])])
    memory.update("~likes(mia, tea)")
    assert [entry.predicate for entry in memory.search("tea").entries] == ["likes"]


def test_a_text_of_what_just_ended_is_found(memory):
    memory.add({"role": "user", "content": "I was in Rome.", "at": "2026-11-20", "id": "m1"})
    memory.kb.kb.assert_facts(
        [_fact("was_in", "mia", "Rome", valid_from=1, valid_until=9, evidence=[_whole("m1")])]
    )
    assert texts(memory.search("Rome")) == ["I was in Rome."]


def test_only_the_sentence_that_was_read_is_left_out(memory):
    words = ". ".join(f"I saw {number} birds in the garden of my uncle" for number in range(60))
    memory.add({"role": "user", "content": f"I live in Rome. {words}.", "id": "m1"})
    memory.update("lives_in(mia, Rome)", evidence=[("m1", 0, 15)])
    found = texts(memory.search("Did mia see 59 birds in Rome?"))
    assert any("59 birds" in each for each in found)
    assert not any("I live in Rome" in each for each in found)


def _whole(episode):
    return Evidence(episode)


def test_a_message_of_a_clock_that_is_ahead_is_found_at_once(memory):
    memory.add({"role": "user", "content": "I like tea.", "at": "2999-01-01"})
    (entry,) = memory.search("tea").entries
    assert entry.args[2] == "2999-01-01T00:00:00.000Z"


def test_an_instruction_that_does_not_match_is_not_forgotten(memory):
    memory.kb.kb.assert_facts([_fact("instruction", "mia", "Answer in French.")])
    memory.add("I like tea.")
    gone = memory.forget("tea", dry_run=False)
    assert [each.fact.partition("(")[0] for each in gone.facts] == ["said"]
    assert memory.forget("zebra", dry_run=False).fact_count == 0
    assert memory.facts().total == 1
    assert memory.forget("French", dry_run=False).fact_count == 1
    assert memory.facts().total == 0


@pytest.mark.parametrize("value", [None, 0, "", "false", 1])
def test_only_false_forgets_for_good(memory, value):
    memory.update("lives_in(mia, Berlin)")
    with pytest.raises(InvalidInput, match="dry_run: must be True or False"):
        memory.forget("lives_in(mia, ?where)", dry_run=value)
    assert memory.facts().total == 1


@pytest.mark.parametrize("since", [None, "2026-11-13"])
def test_a_replaced_fact_and_the_older_value_of_the_key_end(memory, since):
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01")
    memory.kb.kb.assert_facts([_fact("stays_at", "mia", "Hotel Elbe", valid_from=1)])
    memory.update("lives_in(mia, Berlin)", replaces='stays_at(mia, "Hotel Elbe")', since=since)
    assert [each.fact for each in memory.facts().facts] == ["lives_in(mia, Berlin)"]
    memory.update("lives_in(mia, Ulm)", replaces="lives_in(mia, Berlin)", since="2100-01-01")
    assert [each.fact for each in memory.facts().facts] == ["lives_in(mia, Berlin)"]


@pytest.mark.parametrize("about", [None, 5, b"x", ["lives_in"], "lives_in("])
def test_a_history_is_about_a_text(memory, about):
    with pytest.raises(InvalidInput, match=r"^about: "):
        memory.history(about)


def test_what_was_said_around_a_match_is_not_forgotten(memory):
    memory.add(["The password is swordfish.", "My sister is called Zoe."], session="s1")
    assert len(memory.search("password").entries) == 2
    gone = memory.forget("password", dry_run=False)
    assert [each.text for each in gone.texts] == ["The password is swordfish."]
    assert texts(memory.search("sister")) == ["My sister is called Zoe."]


def test_times_before_the_year_1_are_named(memory):
    early = -100_000_000_000_000
    for messages in ("I like tea.", [{"role": "user", "content": "I like tea.", "at": early}]):
        with pytest.raises(InvalidInput, match="at: must be in the years 1 to 9999"):
            memory.add(messages, at=early)
    memory.update("lives_in(mia, Hamburg)", since=early)
    with pytest.raises(InvalidInput, match=f"which is epoch millisecond {early}"):
        memory.update("likes(mia, tea)", replaces="lives_in(mia, Hamburg)", since=early)


def test_half_a_surrogate_pair_is_stored_as_a_question_mark(memory):
    memory.add("I like tea \ud800")
    memory.add({"role": "user", "content": "I like coffee \udfff"})
    memory.kb.kb.store_text("likes(mia, 'milk\ud800').", None, Source())
    found = texts(memory.search("tea coffee"))
    assert {"I like tea ?", "I like coffee ?"} <= {*found}
