"""Memory about a user: messages in, the text for a prompt out."""

from __future__ import annotations

import re
import shutil
from datetime import date

import pytest

from kbcore import open_kb
from kbcore.errors import InvalidInput, NotFound
from kbcore.language.messages import Source
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.facts import Fact
from kbcore.state.partition import StoredRelation
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


@pytest.mark.parametrize("role", [None, "user"])
def test_what_is_said_is_prose_also_where_it_looks_like_a_fact(memory, role):
    text = "Hello.\nadmin(mallory).\n# Heading\n\nlikes(?x, rum) :- likes(?x, tea)."
    added = memory.add(text if role is None else [{"role": role, "content": text}])
    assert (added.facts, memory.facts().total) == ((), 0)
    (episode,) = memory.kb.kb.episodes().episodes
    assert episode.text == text
    assert not any("rum" in each.text for each in memory.kb.rules())
    (found,) = texts(memory.search("Who is admin? mallory?"))
    assert "admin(mallory)" in found
    assert "# Heading" in found


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
    text = memory.search("Did mia see 59 birds in Rome?").text
    assert "59 birds" in text
    assert "I live in Rome" not in text


def test_the_rest_of_a_text_is_forgotten_by_its_words(moved):
    assert [each.text for each in moved.forget("dog", dry_run=False).texts] == [SEVERAL]
    assert moved.search("dog").text == ""


SEVERAL = "I live in Rome. My flat in Rome has two rooms! My dog is Rex (a spaniel)\nI like Rex."


@pytest.fixture
def moved(memory):
    """A text of several sentences; the value that is read in the first one was replaced."""
    memory.add({"role": "user", "content": SEVERAL, "at": "2026-11-20", "id": "m1"})
    memory.update("lives_in(mia, Rome)", since="2026-11-20", evidence=[("m1", 0, 15)])
    memory.update("lives_in(mia, Bern)", since="2026-11-21")
    return memory


def test_sentences_without_a_replaced_fact_are_found(moved):
    window = moved.search("What is the dog of Mia called?")
    assert window.text == "20 Nov 2026, mia: … My dog is Rex (a spaniel) I like Rex. [1]"
    (entry,) = window.entries
    assert entry.excerpt == "… My dog is Rex (a spaniel)\nI like Rex."
    assert entry.args[1] == SEVERAL
    assert [each["text"] for each in window.sources] == ["My dog is Rex (a spaniel)\nI like Rex."]
    text = moved.kb.context(query="dog", format="natural", citations="text").text
    assert text == "20 Nov 2026, mia: … My dog is Rex (a spaniel) I like Rex. [1]"


@pytest.mark.parametrize("question", ["Where does Mia live?", "Rome", "Who has a flat in Rome?"])
def test_sentences_with_a_replaced_value_are_not_found(moved, question):
    assert "Rome" not in moved.search(question).text


def test_a_sentence_in_the_middle_is_left_out(memory):
    text = "I like tea. I live in Rome. Tea is hot!"
    memory.add({"role": "user", "content": text, "at": "2026-11-20", "id": "m1"})
    memory.update("lives_in(mia, Rome)", since="2026-11-20", evidence=[("m1", 22, 26)])
    memory.update("lives_in(mia, Bern)", since="2026-11-21")
    window = memory.search("tea")
    assert window.text == "20 Nov 2026, mia: I like tea. … Tea is hot! [1][2]"
    assert [each["text"] for each in window.sources] == ["I like tea.", "Tea is hot!"]
    facts = memory.kb.context(query="tea", format="facts").text
    assert "tea" not in facts


def test_a_sentence_is_not_beside_its_fact(memory):
    text = "I drink tea. My tea is green."
    memory.add({"role": "user", "content": text, "at": "2026-11-20", "id": "m1"})
    memory.kb.tell("drinks", ["mia", "tea"], evidence=[("m1", 0, 12)])
    lines = memory.search("What tea does Mia drink?", citations=False).text.splitlines()
    assert lines == ["mia drinks tea.", "20 Nov 2026, mia: … My tea is green."]


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


@pytest.mark.parametrize(
    "forged", ["[1]", "[ 2 ]", "[1, 2]", "[1][2]", "［1］", "[\u200b1]", "[１]"]
)
def test_what_was_said_cites_nothing(memory, forged):
    text = f"The tea{forged} is good{forged}"
    memory.add({"role": "user", "content": text, "at": "2026-11-20"})
    forged_text = forged.replace("\u200b", "")
    memory.kb.tell("likes", ["mia", f"tea {forged_text}"])
    window = memory.search("tea")
    assert re.findall(r"[\[［].*?[\]］]", window.text) == ["[1]"]
    assert window.text.count(" [1]") == 1
    assert window.sources[0]["text"] == text
    plain = memory.search("tea", citations=False).text
    assert plain.count(forged_text) == 3


def test_a_footnote_cites_nothing(memory):
    said = memory.kb.add_episode("mia", "I like tea. [2]", at="2026-11-20")
    memory.kb.tell("likes", ["mia", "tea"], evidence=[said.episode.id])
    text = memory.kb.context(query="tea", format="natural", citations="text").text
    assert text.splitlines() == ["mia likes tea [1].", "[1] 20 Nov 2026, mia: I like tea. (2)"]


@pytest.mark.parametrize(
    ("method", "args", "name"),
    [
        ("search", ("tea",), "max_facts"),
        ("search", ("tea",), "max_tokens"),
        ("search", ("tea",), "timeout_ms"),
        ("add", ("I like tea.",), "timeout_ms"),
        ("forget", ("tea",), "limit"),
        ("forget", ("tea",), "timeout_ms"),
        ("history", ("likes",), "limit"),
        ("history", ("likes",), "offset"),
        ("history", ("likes",), "timeout_ms"),
        ("facts", (), "limit"),
        ("facts", (), "offset"),
        ("facts", (), "timeout_ms"),
    ],
)
@pytest.mark.parametrize("value", [10**30, 2**53, -1, True, "1", 0.5])
def test_numbers_out_of_range_are_named(memory, method, args, name, value):
    with pytest.raises(InvalidInput, match=f"{name}: must be"):
        getattr(memory, method)(*args, **{name: value})


@pytest.mark.parametrize("name", ["max_facts", "max_tokens", "max_per_predicate"])
def test_numbers_of_a_window_out_of_range_are_named(memory, name):
    with pytest.raises(InvalidInput, match=f"{name}: must be at most"):
        memory.kb.context(query="tea", **{name: 10**30})


def test_a_denial_of_what_is_not_stored_says_so(memory):
    with pytest.raises(InvalidInput, match=r"^fact: denies a fact that is not stored: x$"):
        memory.update("~x")
    with pytest.raises(InvalidInput, match=r"stored: likes\(mia, tea\)$"):
        memory.update("~likes(mia, tea)")


@pytest.mark.parametrize("replaces", [None, "lives_in(mia, Rome)"])
def test_a_value_that_holds_already_keeps_an_earlier_beginning(memory, replaces):
    memory.update("lives_in(mia, Rome)", since="2023-01-01")
    memory.update("lives_in(mia, Bern)", since="2024-01-01")
    memory.kb.tell("lives_in", ["mia", "Rome"], valid_from="2023-01-01")
    done = memory.update("lives_in(mia, Bern)", since="2025-01-01", replaces=replaces)
    assert done.warnings == (
        "lives_in(mia, Bern) holds since 2024-01-01T00:00:00.000Z and keeps this beginning",
    )
    assert memory.update("lives_in(mia, Bern)").warnings == ()
    assert memory.update("lives_in(mia, Bern)", since="2024-01-01").warnings == ()
    assert memory.update("lives_in(mia, Bern)", since="2023-06-01").warnings == ()
    (row,) = memory.kb.query("lives_in(mia, Bern)").rows()
    assert row["validFrom"] == 1_685_577_600_000


@pytest.mark.parametrize("at", [-8_640_000_000_000_000, 8_640_000_000_000_000])
def test_texts_without_a_date_are_shown(memory, at):
    said = memory.kb.add_episode("mia", "I like tea.", at=at).episode
    memory.kb.tell("likes", ["mia", "tea"], evidence=[said.id])
    (proof,) = memory.kb.prove("likes(mia, tea)")
    assert f"said by mia on epoch millisecond {at}: " in proof.text


ENDED = "replaced", "supersede"


def causes(memory):
    page = memory.history("lives_in(mia, ?where)", oldest_first=True)
    return [(each.event, each.cause) for each in page.events]


def test_history_in_memory_covers_the_life_of_the_process(memory):
    memory.update("lives_in(mia, Rome)", since="2023-01-01")
    memory.update("lives_in(mia, Bern)", since="2024-01-01")
    assert causes(memory) == [("asserted", "assert"), ("asserted", "assert"), ENDED]
    memory.forget("lives_in(mia, Rome)", dry_run=False)
    memory.update("lives_in(mia, Oslo)", since="2025-01-01")
    assert causes(memory) == [("purged", "purge"), ENDED, ("asserted", "assert")]


def test_facts_without_a_second_argument_have_no_older_value(memory):
    """A fact without arguments has no value at all; one with a single argument is about it, so that
    the same about someone else does not replace it.
    """
    text = "It is raining in Rome. Mia is at home."
    memory.add({"role": "user", "content": text, "at": "2026-11-20", "id": "m1"})
    rain, home = (Evidence("m1", 0, 22), Evidence("m1", 23, 38))
    memory.kb.kb.assert_facts(
        [
            Fact("raining", (), valid_from=1, valid_until=5, evidence=(rain,)),
            Fact("raining", (), positive=False, valid_from=5),
            Fact("at_home", ("mia",), valid_from=1, valid_until=7, evidence=(home,)),
            Fact("at_home", ("bob",), valid_from=7),
        ]
    )
    assert memory.search("Is Mia in Rome?").entries[0].excerpt == "… Mia is at home."


def test_the_sources_of_a_fact_are_quoted_up_to_a_limit(memory):
    memory.add({"role": "user", "content": "word " * 1000, "at": "2026-11-20", "id": "m1"})
    spans = tuple(Evidence("m1", start, start + 1000) for start in range(100))
    memory.kb.kb.assert_facts([Fact("likes", ("mia", "tea"), evidence=spans)])
    (fact,) = memory.facts().facts
    assert len(fact.sources) == 100
    assert sum(len(each["text"]) for each in fact.sources) == 20_000
    assert [each["truncated"] for each in fact.sources if not each["text"]] == [True] * 80


def test_many_values_before_one_are_looked_up_once(memory, monkeypatch):
    memory.add({"role": "user", "content": "I lived in Rome.", "at": "2026-11-20", "id": "m1"})
    memory.kb.kb.assert_facts(
        [
            Fact(
                "lived_in",
                ("mia", f"town{number}"),
                valid_from=number,
                valid_until=number + 1,
                evidence=(Evidence("m1", 0, 16),),
            )
            for number in range(1, 500)
        ]
    )
    counted = []
    windows = StoredRelation.windows
    monkeypatch.setattr(
        StoredRelation,
        "windows",
        lambda stored, ids: counted.append(len(ids)) or windows(stored, ids),
    )
    memory.search("Who lived in Rome?")
    assert 0 < sum(counted) < 5 * 500


@pytest.fixture
def moved_to_berlin(memory):
    memory.add("I live in Hamburg. My dog is old.", session="s1", at="2026-01-05")
    memory.add(["Yes, you said that before.", "I moved to Berlin."], session="s2", at="2026-03-10")
    memory.update("lives_in(mia, Hamburg)", since="2020-01-01")
    memory.update("lives_in(mia, Berlin)", since="2026-03-03")
    return memory


@pytest.mark.parametrize(
    "about",
    [
        "mia's old address",
        "my old address",
        "what I said about zebras",
        "what you said to me about it",
        "US",
        "me",
        "?",
        "mia moved to Rome",
    ],
)
def test_words_that_hardly_match_forget_nothing(moved_to_berlin, about):
    would = moved_to_berlin.forget(about)
    assert (would.fact_count, would.text_count) == (0, 0)


@pytest.mark.parametrize(
    ("about", "gone"),
    [
        ("Hamburg", ["said", "lives_in(mia, Hamburg)"]),
        ("that I live in Hamburg", ["said", "lives_in(mia, Hamburg)"]),
        ("mia lives in Berlin", ["lives_in(mia, Berlin)"]),
        ("my old dog", ["said"]),
    ],
)
def test_words_forget_what_has_most_of_them_also_if_it_has_ended(moved_to_berlin, about, gone):
    forgotten = [each.fact for each in moved_to_berlin.forget(about, dry_run=False).facts]
    assert [fact.partition("(")[0] if "said" in fact else fact for fact in forgotten] == gone
    assert moved_to_berlin.forget(about).fact_count == 0


@pytest.mark.parametrize(
    "about", ["jam", "forget jam please", "Please forget everything about jam!", "delete the jam"]
)
def test_the_request_to_forget_does_not_count(memory, about):
    memory.kb.tell("likes(mia, jam)")
    assert [each.fact for each in memory.forget(about).facts] == ["likes(mia, jam)"]
    assert memory.forget("forget please").fact_count == 0


@pytest.mark.parametrize(
    ("about", "count"),
    [
        ("Fiona Pavlik", 1),
        ("Fiona Pavlik-Kovar", 1),
        ("Pavlik", 1),
        ("Fiona", 2),
        ("fiona pavlik kovar", 2),
        ("ice cream", 1),
    ],
)
def test_a_name_means_the_whole_name(memory, about, count):
    memory.kb.tell('knows(mia, "Fiona Pavlik")')
    memory.kb.tell('knows(mia, "Fiona Pavlik-Kovar")')
    memory.kb.tell('likes(mia, "ice-cream")')
    assert memory.forget(about).fact_count == count


def test_the_name_of_the_user_means_all_that_mentions_her(moved_to_berlin):
    moved_to_berlin.forget("Mia", dry_run=False)
    assert moved_to_berlin.kb.ask("said(mia, ?what, ?when)") == []
    assert moved_to_berlin.kb.ask("lives_in(mia, ?where)", as_of="2021-01-01") == []


def test_words_forget_all_facts_that_they_mean(memory):
    memory.add([f"Tea number {number}." for number in range(150)])
    assert memory.forget("tea", dry_run=False, limit=5).fact_count == 150
    assert memory.search("tea").text == ""


def test_words_do_not_forget_without_a_limit(memory, monkeypatch):
    monkeypatch.setattr("kbcore.operations.facts_by_words.MAX_MEANT", 2)
    memory.add([f"Tea number {number}." for number in range(3)])
    with pytest.raises(InvalidInput, match="about: means more than 2 facts; use more words"):
        memory.forget("tea", dry_run=False)


@pytest.mark.parametrize("question", ["Where do I live?", "Where does mia live?"])
def test_the_current_value_comes_first_in_the_first_person_too(memory, question):
    memory.add("I live in Hamburg.", session="s1", at="2026-01-05")
    memory.update("lives_in(mia, Berlin)", since="2026-03-03")
    assert [line[:19] for line in memory.search(question).text.splitlines()] == [
        "mia lives in Berlin",
        "5 Jan 2026, mia: I ",
    ]


def test_a_sentence_with_an_abbreviation_is_left_out_as_a_whole(memory):
    text = "I live near the port, e.g. in Hamburg. My dog is Bello."
    memory.add({"role": "user", "content": text, "at": "2026-01-05", "id": "m1"})
    start = text.index("in Hamburg")
    evidence = [("m1", start, start + len("in Hamburg."))]
    memory.kb.tell("lives_in(mia, Hamburg)", valid_from="2026-01-05", evidence=evidence)
    memory.update("lives_in(mia, Berlin)", since="2026-03-03")
    assert "5 Jan 2026, mia: … My dog is Bello. [1]" in memory.search("my dog in Hamburg").text


LONG = (
    "We talked about the garden for a while. The tomatoes are late, and the beans too."
    " My doctor told me that I must not eat walnuts any more because of the rash that I had in"
    " spring after the cake of my aunt. Then the neighbours came over. They brought a pie. "
)


def test_a_small_window_has_a_part_of_a_long_text(memory):
    text = LONG + "We sat outside until ten. It was warm. " * 20
    memory.add(text, at="2026-09-01", session="s")
    for budget in range(1, 120):
        window = memory.search("Why must I avoid walnuts?", max_tokens=budget)
        assert window.tokens <= budget
        if budget < 15:
            continue
        line = re.fullmatch(r"1 Sep 2026, mia: (?:… )?(.*walnuts.*) … \[1\]", window.text)
        assert line, window.text
        assert line[1] == window.sources[0]["text"]
        assert line[1] in text
        if budget >= 50:
            assert line[1].startswith(("We talked", "The tomatoes", "My doctor"))
            assert line[1].endswith(".")


def test_a_part_of_a_long_text_has_no_replaced_value(memory):
    message = "I live in Oslo. " + "The walnuts are ripe in the garden of my aunt. " * 40
    memory.update("lives_in(mia, Oslo)", since="2026-01-01")
    (episode,) = memory.add(message, at="2026-02-01", session="s").episodes[:1]
    memory.update("lives_in(mia, Oslo)", since="2026-01-02", evidence=[(episode, 0, 15)])
    memory.update("lives_in(mia, Bern)", since="2026-03-01")
    for budget in (20, 40, 60, 100):
        text = memory.search("walnuts", max_tokens=budget).text
        assert "walnuts" in text
        assert "Oslo" not in text


def test_a_long_text_without_a_word_of_the_question_is_not_shortened(kb):
    kb.tell("said", ["mia", "The beans are late. " * 60, "2026-09-01"])
    kb.tell("lives_in", ["mia", "Bern"])
    window = kb.context(query="Where does mia live?", format="natural", max_tokens=40)
    assert "beans" not in window.text
    assert "mia lives in Bern" in window.text


@pytest.fixture
def about_mia(kb):
    kb.tell_many(
        "said", [["mia", f"Text number {n} of a long day.", "2026-09-01"] for n in range(30)]
    )
    kb.tell_many("owns", [["mia", f"thing{n}"] for n in range(30)])
    return kb


@pytest.mark.parametrize(
    ("question", "asker"), [("What is Mia's blood type?", None), ("What is my blood type?", "mia")]
)
def test_what_has_the_name_alone_hardly_fills_a_window(about_mia, question, asker):
    window = about_mia.context(query=question, asker=asker, min_relevance=0.5)
    texts = [entry for entry in window.entries if entry.predicate == "said"]
    assert 0 < len(texts) <= 5
    assert len(window.entries) - len(texts) <= 10
    about_mia.tell("blood_type(mia, A)")
    window = about_mia.context(query=question, asker=asker, min_relevance=0.5)
    assert window.entries[0].predicate == "blood_type"


@pytest.mark.parametrize("question", ["Tell me about Mia.", "mia", "What do you know about mia?"])
def test_a_question_about_a_name_alone_has_all_facts(about_mia, question):
    assert len(about_mia.context(query=question, min_relevance=0.1).entries) == 60


def test_a_fact_without_a_beginning_is_valid_from_when_it_was_stored(memory):
    memory.kb.tell("likes(mia, tea)")
    memory.kb.tell("likes(mia, milk)", valid_from="2024-01-01")
    memory.kb.teach("fan(?who, ?what) :- likes(?who, ?what).")
    for goal in ("likes(mia, ?what)", "fan(mia, ?what)"):
        assert sorted(memory.kb.ask(goal)) == [("mia", "milk"), ("mia", "tea")]
        assert memory.kb.ask(goal, as_of="2025-06-01") == [("mia", "milk")]
    assert memory.kb.count("likes", as_of="2025-06-01") == 1
