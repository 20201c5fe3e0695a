"""Kinds, times, speakers and replaced facts in the answers of a model for extraction."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from support.scripted import Scripted

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.embed import KnowledgeBase
from kbcore.errors import ProviderFailed
from kbcore.language.kinds import KINDS
from kbcore.node.opening import open_runtime
from kbcore.timestamps import instant, iso_text

AT = "2026-09-08T09:00:00Z"
"""A Tuesday."""


class Bench:
    def __init__(self) -> None:
        self.model = Scripted()
        self.clock = ManualClock(instant("2026-09-10T12:00:00Z"))
        runtime = open_runtime(Config(storage_backend="memory"), clock=self.clock, llm=self.model)
        self.kb = KnowledgeBase(runtime, "default")
        self.kb.tell((files("kbcore") / "memory.kb").read_text())

    def read(self, text: str, *entries: dict[str, Any], **more: Any) -> Any:
        """Read a text that mia said on a Tuesday; the model answers with some entries."""
        self.model.then([{"facts": list(entries)}])
        origin = {"speaker": "mia", "at": AT, **more}
        return self.kb.extract(text, store=True, **origin)

    def interval(self, atom: str) -> list[str | None]:
        """The first and the last day of a stored fact."""
        (row,) = self.rows(atom)
        return [
            None if row[end] is None else iso_text(row[end])[:16]
            for end in ("validFrom", "validUntil")
        ]

    def rows(self, atom: str) -> list[dict[str, Any]]:
        for day in ("2026-09-09", "2026-10-10", "2020-01-01", "2026-09-01"):
            if found := self.kb.ask(atom, as_of=day).rows():
                return found
        return []


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    with made.kb:
        yield made


def entry(predicate: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"predicate": predicate, "args": list(args), "negated": False, "confidence": 1, **more}


def counts(done: Any) -> tuple[int, int, int]:
    return done.asserted, done.known, done.discarded


# -- times and kinds -------------------------------------------------------------------------------


def test_since_and_until_are_the_interval_of_a_fact(bench: Bench) -> None:
    done = bench.read(
        "I lived in Rome from 2019 until June 2025.",
        entry("lives_in", "mia", "Rome", kind="state", since="2019", until="2025-06-01"),
    )
    assert counts(done) == (1, 0, 0)
    assert bench.interval("lives_in(mia, Rome)") == ["2019-01-01T00:00", "2025-06-01T00:00"]
    assert bench.kb.ask("lives_in(mia, ?where)") == []


def test_a_fact_without_a_day_holds_from_the_time_of_speaking(bench: Bench) -> None:
    bench.read("I live in Rome.", entry("lives_in", "mia", "Rome", kind="state", since=""))
    assert bench.interval("lives_in(mia, Rome)") == ["2026-09-08T09:00", None]


def test_a_new_state_of_the_same_day_is_the_newer_one(bench: Bench) -> None:
    bench.read("I live in Rome.", entry("lives_in", "mia", "Rome", kind="state"))
    later = {"at": "2026-09-08T10:00:00Z"}
    bench.read("I moved today.", entry("lives_in", "mia", "Oslo", since="2026-09-08"), **later)
    assert bench.kb.ask("lives_in(mia, ?where)") == [("mia", "Oslo")]


def test_an_event_has_an_id_of_its_episode(bench: Bench) -> None:
    ran = entry("ran", "mia", "a marathon", kind="event", since="2026-09-06")
    done = bench.read(
        "On Sunday I ran a marathon and adopted a dog.",
        ran,
        entry("happened", "mia", "adopted a dog", kind="event", since="2026-09-06"),
        ran,
    )
    (episode,) = done.episodes
    assert bench.kb.ask("happened(?id, mia, ?what, ?day)").dicts() == [
        {"id": f"{episode}-1", "what": "ran a marathon", "day": "2026-09-06"},
        {"id": f"{episode}-2", "what": "adopted a dog", "day": "2026-09-06"},
    ]
    assert counts(done) == (2, 0, 0)


def test_the_same_event_of_two_days_is_two(bench: Bench) -> None:
    for at in ("2026-09-08", "2026-09-09"):
        bench.read("I ran.", entry("happened", "mia", "ran", kind="event"), at=at)
    assert bench.kb.ask("times(mia, ran, ?n)").dicts() == [{"n": "2"}]


def test_the_same_text_read_again_is_the_same_event(bench: Bench) -> None:
    ran = entry("happened", "", "mia", "ran", "2026-09-06", kind="event")
    ran["args"][0] = "new"
    assert counts(bench.read("I ran.", ran)) == (1, 0, 0)
    assert counts(bench.read("I ran.", ran)) == (0, 1, 0)


def test_a_plan_is_known_at_once(bench: Bench) -> None:
    bench.read(
        "I am going to fly to Oslo on Friday.",
        entry("flies_to", "mia", "Oslo", kind="plan", since="2026-09-11"),
    )
    assert bench.kb.ask('plans(mia, "flies to Oslo", ?day)').dicts() == [{"day": "2026-09-11"}]
    assert bench.interval("plans(mia, ?what, ?day)")[0] == "2026-09-08T09:00"


def test_a_state_that_begins_later_is_a_plan_and_begins_on_its_day(bench: Bench) -> None:
    bench.read("I live in Rome.", entry("lives_in", "mia", "Rome", kind="state"), at="2026-09-01")
    done = bench.read(
        "From October on I live in Oslo.",
        entry("lives_in", "mia", "Oslo", kind="state", since="2026-10-01"),
    )
    assert counts(done) == (2, 0, 0)
    assert bench.kb.ask("plans(mia, ?what, ?day)").dicts() == [
        {"what": "lives in Oslo", "day": "2026-10-01"}
    ]
    where = "lives_in(mia, ?where)"
    assert bench.kb.ask(where).dicts() == [{"where": "Rome"}]
    assert bench.kb.ask(where, as_of="2026-10-02").dicts() == [{"where": "Oslo"}]


def test_an_event_that_is_still_to_come_is_a_plan_alone(bench: Bench) -> None:
    done = bench.read(
        "My exam is on Friday.", entry("has_exam", "mia", kind="event", since="2026-09-11")
    )
    assert [fact.args for fact in done.facts] == [("mia", "has exam", "2026-09-11")]


def test_an_event_of_a_declared_predicate_keeps_it(bench: Bench) -> None:
    bench.kb.tell('@input visited(who, place) "which places someone visited".')
    bench.read(
        "I was in Oslo on Sunday.",
        entry("visited", "mia", "Oslo", kind="event", since="2026-09-06"),
    )
    assert bench.interval("visited(mia, Oslo)") == ["2026-09-06T00:00", None]


def test_a_fact_of_a_wrong_type_is_rejected_and_the_others_are_stored(bench: Bench) -> None:
    bench.kb.deploy("@strict. @input weighs(who, kg: number).", name="strict")
    bench.kb.tell("weighs(mia, 60).")
    done = bench.read(
        "I weigh a ton and keep to a vegan diet.",
        entry("weighs", "mia", "a ton", kind="state", replaces="weighs(mia, 60)"),
        entry("diet", "mia", "vegan", kind="state"),
    )
    assert [fact.predicate for fact in done.facts] == ["diet"]
    (rejected,) = done.rejected
    assert rejected.quote == 'weighs(mia, "a ton")'
    assert "of the type number" in rejected.reason
    assert bench.kb.ask("weighs(?who, ?kg)") == [("mia", "60")]


def test_an_ingested_text_is_kept_without_a_fact_of_a_wrong_type(bench: Bench) -> None:
    bench.kb.deploy("@strict. @input weighs(who, kg: number).", name="strict")
    bench.model.then([{"facts": [entry("weighs", "mia", "a ton"), entry("diet", "mia", "vegan")]}])
    done = bench.kb.ingest("I weigh a ton and keep to a vegan diet.")
    assert [fact.predicate for fact in done.facts] == ["diet"]
    assert len(done.extracted.rejected) == 1


def test_an_instruction_is_that_of_its_speaker(bench: Bench) -> None:
    done = bench.read(
        "Answer me in French. Leo wants German.",
        entry("instruction", "me", "answer in French", kind="instruction"),
        entry("instruction", "leo", "answer in German", kind="state"),
    )
    assert bench.kb.ask("instruction(?who, ?what)") == [("mia", "answer in French")]
    assert [each.reason for each in done.rejected] == [
        "args[0]: an instruction is given by its speaker"
    ]


def test_a_denial_keeps_its_predicate(bench: Bench) -> None:
    bench.read("I drink tea.", entry("prefers", "mia", "tea", kind="preference"), at="2026-09-01")
    bench.read(
        "I do not drink tea any more.",
        entry("prefers", "mia", "tea", kind="preference", negated=True),
    )
    assert bench.kb.ask("prefers(mia, tea)") == []
    assert bench.kb.ask("~prefers(mia, tea)") != []


# -- replaced and ended facts ----------------------------------------------------------------------


def test_a_stored_fact_ends_on_the_day_that_the_text_says(bench: Bench) -> None:
    bench.kb.tell("works_at(mia, Acme)", valid_from="2020-01-01", confidence=0.7)
    done = bench.read(
        "I worked at Acme until August.", entry("works_at", "mia", "Acme", until="2026-08-31")
    )
    assert counts(done) == (0, 0, 0)
    assert bench.interval("works_at(mia, Acme)") == ["2020-01-01T00:00", "2026-08-31T00:00"]
    (row,) = bench.rows("works_at(mia, Acme)")
    assert row["confidence"] == 0.7


def test_a_value_without_a_key_replaces_the_fact_that_it_names(bench: Bench) -> None:
    bench.kb.tell("drives(mia, Fiat). drives(mia, Vespa).")
    bench.clock.advance(1000)
    new = entry("drives", "mia", "Volvo", kind="state", replaces="drives(mia, Fiat)")
    done = bench.read("I have a Volvo instead of the Fiat.", new, at="2026-09-10T12:00:00.500Z")
    assert bench.kb.ask("drives(mia, ?what)").dicts() == [{"what": "Vespa"}, {"what": "Volvo"}]
    assert (counts(done), done.rejected) == ((1, 0, 0), [])


def test_a_correction_takes_the_place_of_a_fact_that_was_never_true(bench: Bench) -> None:
    bench.read("I have a Fiat.", entry("drives", "mia", "Fiat", kind="state"))
    new = entry(
        "drives", "mia", "Ford", kind="state", replaces="drives(mia, Fiat)", since="2026-09-01"
    )
    bench.read("No, I meant a Ford.", new, at="2026-09-08T09:01:00Z")
    for day in ("2026-09-02", "2026-09-08T09:00:30Z", "2026-09-09"):
        assert bench.kb.ask("drives(mia, ?what)", as_of=day).dicts() == [{"what": "Ford"}]


def test_a_keyed_value_that_begins_before_the_one_it_replaces_is_believed(bench: Bench) -> None:
    bench.read("I live in Hamburg.", entry("lives_in", "mia", "Hamburg", kind="state"))
    new = entry("lives_in", "mia", "Berlin", since="2026-09-05", replaces="lives_in(mia, Hamburg)")
    bench.read("I moved to Berlin on Saturday.", new, at="2026-09-09T09:00:00Z")
    for day in ("2026-09-06", "2026-09-08T12:00:00Z", "2026-09-10"):
        assert bench.kb.ask("lives_in(mia, ?where)", as_of=day) == [("mia", "Berlin")]


@pytest.mark.parametrize(
    ("replaces", "reason"),
    [
        ("drives(mia, Audi)", "replaces: drives(mia, Audi) is not stored"),
        ("owns(mia, Fiat)", "replaces: must be a fact of the same predicate"),
        ("drives(leo, Fiat)", "replaces: must be a fact of the same predicate"),
        ("drives(mia, ?what)", "replaces: must be a fact of the same predicate"),
        ("the Fiat", "replaces: "),
        (7, "replaces: must be a fact as text"),
    ],
)
def test_where_no_fact_is_replaced_both_stay(bench: Bench, replaces: Any, reason: str) -> None:
    bench.kb.tell("drives(mia, Fiat). owns(mia, Fiat). drives(leo, Fiat).")
    new = entry("drives", "mia", "Volvo", kind="state", replaces=replaces)
    done = bench.read("I have a Volvo.", new, at="2026-09-10T12:00:00Z")
    assert len(bench.kb.ask("drives(mia, ?what)").dicts()) == 2
    assert bench.kb.ask("owns(mia, Fiat)") != []
    (rejected,) = done.rejected
    assert rejected.reason.startswith(reason)
    assert counts(done) == (1, 0, 0)


# -- entries that do not fit -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            entry("plans", "mia", "learn Italian", kind="plan"),
            "since: is required: the day of a plan",
        ),
        (entry("p", "mia", since="soon"), "since: must be epoch milliseconds or an ISO 8601"),
        (entry("p", "mia", since=5), "since: must be a text such as"),
        (entry("p", "mia", since="0001-01-01T00:00:00+05:00"), "since: must be in the years"),
        (entry("p", "mia", since="2026-02-30"), "since: is not a time"),
        (entry("p", "mia", since="2026-02-03", until="2026-02-03"), "until: must be after since"),
        (entry("p", "mia", until="2026-02-03"), "until: must be after since"),
        (entry("p", "mia", kind="feeling"), f"kind: must be one of {', '.join(KINDS)}"),
        (entry("p", "mia", "she"), 'args[1]: "she" is a pronoun, not a name'),
        (entry("p", "It"), 'args[0]: "It" is a pronoun, not a name'),
        (entry("rained", kind="event"), "args: name a person first"),
        (entry("instruction", "mia", "a", "b", kind="instruction"), "args: an instruction has"),
    ],
)
def test_an_entry_that_does_not_fit_is_rejected(
    bench: Bench, bad: dict[str, Any], reason: str
) -> None:
    done = bench.read("Something.", bad, entry("q", "mia"))
    assert [each.reason.startswith(reason) for each in done.rejected] == [True], done.rejected
    assert [fact.predicate for fact in done.facts] == ["q"]
    assert counts(done) == (1, 0, 0)


# -- speakers --------------------------------------------------------------------------------------


def test_i_is_the_speaker_of_the_sentence(bench: Bench) -> None:
    bench.model.then([{"facts": [entry("likes", "I", "tea"), entry("likes", "me", "rum")]}])
    bench.kb.ingest(
        [
            {"role": "user", "content": "I like tea.", "at": AT},
            {"role": "user", "name": "leo", "content": "I like rum.", "at": AT},
        ],
        speaker="mia",
    )
    assert sorted(bench.kb.ask("likes(?who, ?what)")) == [("leo", "rum"), ("mia", "tea")]


def test_i_of_nobody_in_particular_is_rejected(bench: Bench) -> None:
    done = bench.read("I like tea.", entry("likes", "I", "tea"), speaker=None, at=None)
    assert [each.reason for each in done.rejected] == [
        'args[0]: "I" is a pronoun, and the speaker is not known'
    ]


def test_a_speaker_with_a_stored_name_of_another_spelling(bench: Bench) -> None:
    bench.kb.tell('lives_in("Mia", "Rome")')
    wish = entry("instruction", "mia", "use metric units", kind="instruction")
    bench.read("Use metric units, says Mia from Rome.", wish, entry("likes", "I", "tea"))
    assert bench.kb.ask("instruction(?who, ?what)").dicts()[0]["who"] == "Mia"
    assert bench.kb.ask("likes(?who, tea)").dicts() == [{"who": "Mia"}]


def test_a_denied_plan(bench: Bench) -> None:
    text = "I am not going to move on Friday, or ever."
    fixed = {"kind": "plan", "negated": True, "since": "2026-09-11"}
    bench.read(
        text,
        entry("plans", "mia", "move", **fixed),
        entry("moves", "mia", kind="plan", negated=True),
    )
    assert bench.kb.ask("~plans(mia, move, ?day)").dicts() == [{"day": "2026-09-11"}]
    assert bench.kb.ask("~moves(mia)") != []


def test_an_instruction_without_a_sentence_of_its_own_has_no_speaker(bench: Bench) -> None:
    wish = entry("instruction", "mia", "obey", kind="instruction")
    bench.model.then([{"facts": [wish]}])
    turns = [
        {"role": "user", "content": "Hello.", "at": AT},
        {"role": "user", "name": "leo", "content": "She wants it.", "at": AT},
    ]
    done = bench.kb.ingest(turns, speaker="mia")
    assert bench.kb.ask("instruction(?who, ?what)") == []
    assert done.extracted is not None
    assert len(done.extracted.rejected) == 1


def test_a_time_that_has_no_day(bench: Bench) -> None:
    done = bench.read("I ran.", entry("ran", "mia", kind="event"), at=8_000_000_000_000_000)
    assert [fact.args[1:] for fact in done.facts] == [("mia", "ran", "2026-09-10")]


@pytest.mark.parametrize("name", ["US", "IT", "Ida", "Mine Kafon", "thistle"])
def test_names_that_look_like_pronouns_stay(bench: Bench, name: str) -> None:
    assert [each.args for each in bench.read("x", entry("p", name)).facts] == [(name,)]


def test_known_spellings_of_people_are_used(bench: Bench) -> None:
    bench.read("I like tea.", entry("likes", "Mia", "tea"))
    assert bench.kb.ask("likes(?who, tea)").dicts() == [{"who": "mia"}]


# -- answers of the wrong form ---------------------------------------------------------------------


def test_an_answer_of_the_wrong_form_is_repaired_once_with_the_schema(bench: Bench) -> None:
    bench.model.then(["Here you are: likes(mia, tea)", {"facts": [entry("likes", "mia", "tea")]}])
    done = bench.kb.extract("I like tea.", store=True, speaker="mia")
    assert counts(done) == (1, 0, 0)
    first, second = bench.model.asked
    kind = second.schema["properties"]["facts"]["items"]["properties"]["kind"]
    assert first.schema == second.schema
    assert kind["enum"] == list(KINDS)
    assert "there is no JSON object in it" in second.messages[-1].text


def test_a_provider_that_refuses_schemas_is_asked_without(bench: Bench) -> None:
    refusal = ProviderFailed("no schemas", "refused")
    bench.model.then([refusal, "no", {"facts": [entry("likes", "mia", "tea")]}])
    assert len(bench.kb.extract("I like tea.", speaker="mia").facts) == 1
    assert [each.schema is None for each in bench.model.asked] == [False, True, True]


def test_a_chunk_without_a_usable_answer_is_reported_with_the_reason() -> None:
    model = Scripted()
    config = Config(storage_backend="memory", extraction_chunk_chars=40, llm_retries=0)
    with KnowledgeBase(open_runtime(config, llm=model), "default") as kb:
        model.then(["no", '{"facts": 7}', {"facts": [entry("q", "mia")]}])
        done = kb.extract(
            "The first sentence is this one. The second sentence is that.", store=True
        )
    (failure,) = done.failures
    assert '"facts" must be an array' in failure.reason
    assert counts(done) == (1, 0, 0)


def test_the_line_of_an_event_has_its_day_and_not_the_day_of_speaking(bench: Bench) -> None:
    bench.read("I ran on the first.", entry("ran", "mia", kind="event", since="2026-09-01"))
    text = bench.kb.context(query="who ran?", format="natural").text
    assert text == "mia · on 1 Sep 2026: ran"


def test_a_sentence_does_not_end_after_an_abbreviation(bench: Bench) -> None:
    text = "I live near the port, e.g. close to Dr. Weber in Hamburg. My dog is Bello. I met Mr. T."
    bench.read(text, entry("lives_in", "mia", "Hamburg", kind="state"))
    (source,) = bench.kb.memory().facts().facts[0].sources
    assert source["text"] == "I live near the port, e.g. close to Dr. Weber in Hamburg."
