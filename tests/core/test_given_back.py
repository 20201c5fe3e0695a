"""A purge gives other values the time back that the removed ones had taken."""

from __future__ import annotations

import shutil

import pytest

from kbcore import open_kb
from kbplanner.ir.terms import Variable

FRIEND = {"role": "user", "content": "Mia moved to Rome.", "id": "m1", "at": "2026-03-01"}


@pytest.fixture
def memory():
    with open_kb() as kb:
        memory = kb.memory(user="mia")
        memory.add([FRIEND], session="s1")
        yield memory


def homes(memory, **options):
    return [args[1] for args in memory.kb.ask("lives_in(mia, ?where)", **options)]


def said_to_live_in_rome(memory, since="2026-03-01"):
    memory.update("lives_in(mia, Rome)", since=since, evidence=["m1"])


def test_the_earlier_value_is_current_when_the_wrong_source_is_purged(memory):
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01")
    said_to_live_in_rome(memory)
    assert homes(memory) == ["Rome"]
    memory.kb.purge(episode="m1", dry_run=True)
    assert homes(memory) == ["Rome"]
    memory.kb.purge(episode="m1")
    assert homes(memory) == ["Hamburg"]
    assert homes(memory, as_of="2026-06-01") == ["Hamburg"]
    assert "Hamburg (since 1 Jan 2024)" in memory.search("Where does mia live?").text
    (fact,) = memory.facts().facts
    assert fact.fact == "lives_in(mia, Hamburg)"
    assert [each.cause for each in memory.history("lives_in(mia, Rome)").events] == ["purge"]


def test_forgetting_the_source_does_the_same_but_not_forgetting_the_fact(memory):
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01")
    said_to_live_in_rome(memory)
    memory.forget("m1", dry_run=False)
    assert homes(memory) == ["Hamburg"]
    memory.update("lives_in(mia, Berlin)", since="2026-04-01")
    memory.forget("lives_in(mia, Berlin)", dry_run=False)
    assert homes(memory) == []


def test_a_value_holds_again_up_to_the_next_one_that_stays(memory):
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01")
    said_to_live_in_rome(memory)
    memory.update("lives_in(mia, Bonn)", since="2026-05-01")
    memory.update("lives_in(mia, Kiel)", since="2026-06-01")
    memory.kb.purge(episode="m1")
    assert homes(memory, as_of="2026-04-01") == ["Hamburg"]
    assert homes(memory, as_of="2026-05-02") == ["Bonn"]
    assert homes(memory) == ["Kiel"]


def test_values_that_are_removed_together_end_nothing(memory):
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01")
    said_to_live_in_rome(memory)
    memory.update("lives_in(mia, Kiel)", since="2026-05-01", evidence=["m1"])
    memory.kb.purge(speaker="mia")
    assert homes(memory) == ["Hamburg"]


def test_a_value_that_arrived_late_gets_its_time_too(memory):
    said_to_live_in_rome(memory)
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01")
    assert homes(memory) == ["Rome"]
    memory.kb.purge(episode="m1")
    assert homes(memory) == ["Hamburg"]


def test_a_value_that_came_back_holds_on(memory):
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01")
    said_to_live_in_rome(memory)
    memory.update("lives_in(mia, Hamburg)", since="2026-04-01")
    memory.kb.purge(episode="m1")
    (row,) = memory.kb.kb.recall("lives_in", ["mia", Variable("x")], 1_774_000_000_000)
    assert (row["args"], row["validUntil"]) == (["mia", "Hamburg"], None)
    assert "Hamburg (since 1 Jan 2024)" in memory.search("Where does mia live?").text


def test_a_denied_fact_holds_again(memory):
    memory.kb.tell("diet(mia, vegan)", valid_from="2024-01-01")
    memory.update("~diet(mia, vegan)", since="2026-03-01", evidence=["m1"])
    assert memory.kb.ask("diet(mia, ?what)") == []
    memory.kb.purge(episode="m1")
    assert memory.kb.ask("diet(mia, ?what)") == [("mia", "vegan")]


def test_a_replaced_fact_without_a_key_holds_again(memory):
    for who, what in (("mia", "tea"), ("bob", "milk")):
        memory.kb.tell("favourite", [who, what], valid_from="2025-01-01")
    memory.update("favourite(bob, juice)", replaces="favourite(bob, milk)", since="2026-03-01")
    memory.update(
        "favourite(mia, coffee)",
        replaces="favourite(mia, tea)",
        since="2026-03-01",
        evidence=["m1"],
    )
    memory.kb.purge(episode="m1")
    assert sorted(memory.kb.ask("favourite(?who, ?what)")) == [("bob", "juice"), ("mia", "tea")]


def test_an_end_that_was_stated_stays(memory):
    memory.kb.tell("works_at(mia, Acme)", valid_from="2020-02-01", valid_until="2024-07-01")
    memory.update("works_at(mia, Bolt)", since="2025-01-01", evidence=["m1"])
    memory.kb.purge(episode="m1")
    assert memory.kb.ask("works_at(mia, ?where)") == []


def test_no_purged_text_comes_back_with_the_earlier_value(memory):
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01", evidence=["m1"])
    memory.add([{"role": "user", "content": "Yes, Hamburg.", "id": "m2"}])
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01", evidence=["m2"])
    said_to_live_in_rome(memory)
    memory.kb.purge(episode="m1")
    (home,) = memory.facts().facts
    assert home.fact == "lives_in(mia, Hamburg)"
    assert [source["episode"] for source in home.sources] == ["m2"]


def test_the_earlier_value_survives_a_restart(tmp_path):
    with open_kb(path=tmp_path / "a") as kb:
        memory = kb.memory(user="mia")
        memory.add([FRIEND], session="s1")
        memory.update("lives_in(mia, Hamburg)", since="2024-01-01")
        said_to_live_in_rome(memory)
        memory.kb.purge(episode="m1")
        shutil.copytree(tmp_path / "a", tmp_path / "killed")  # the log after the purge
    for folder in ("a", "killed"):
        with open_kb(path=tmp_path / folder) as kb:
            assert homes(kb.memory(user="mia")) == ["Hamburg"]
