"""A purge of a source: values that its facts had ended hold again."""

import random

import pytest

import kbcore
from kbcore.config.settings import Config
from kbcore.operations.episodes import correction

KEY = "@key lives(?who, _)."


@pytest.fixture
def kb(tmp_path):
    with kbcore.open_kb(path=tmp_path / "data") as opened:
        opened.teach(KEY)
        yield opened


def say(kb, who: str, text: str, at: str) -> str:
    """Store a statement with its source; return the id of the episode."""
    kb.ingest(text, speaker=who, at=at, conflict="NEWEST_WINS")
    return kb.episodes(speaker=who).episodes[-1].id


def lives(kb, at: str | None = None) -> list[str]:
    return sorted(where for _, where in kb.ask("lives(mia, ?where)", as_of=at))


def test_the_value_that_a_source_had_ended_holds_again(kb) -> None:
    say(kb, "ann", "lives(mia, oslo)", "2026-01-01")
    say(kb, "web", "lives(mia, rome)", "2026-02-01")
    assert lives(kb) == ["rome"]
    would = kb.purge(speaker="web", dry_run=True)
    assert [(row["args"], row["validUntil"]) for row in would.restored] == [(["mia", "oslo"], None)]
    assert lives(kb) == ["rome"]
    assert kb.purge(speaker="web").restored == would.restored
    assert lives(kb) == lives(kb, "2026-02-10") == ["oslo"]


def test_several_values_of_the_source_leave_no_gap(kb) -> None:
    say(kb, "ann", "lives(mia, oslo)", "2026-01-01")
    say(kb, "web", "lives(mia, rome)", "2026-02-01")
    say(kb, "web", "lives(mia, bonn)", "2026-03-01")
    say(kb, "ann", "lives(mia, bern)", "2026-04-01")
    kb.purge(speaker="web")
    assert lives(kb) == ["bern"]
    assert [lives(kb, f"2026-0{month}-15") for month in (1, 2, 3)] == [["oslo"]] * 3


def test_what_is_restored_survives_a_restart_with_its_evidence(kb, tmp_path) -> None:
    first = say(kb, "ann", "lives(mia, oslo)", "2026-01-01")
    wrong = say(kb, "web", "lives(mia, rome)", "2026-02-01")
    kb.purge(episode=wrong)
    kb.close()
    with kbcore.open_kb(path=tmp_path / "data") as again:
        assert lives(again) == ["oslo"]
        (row,) = again.query("lives(mia, ?where)").rows()
        assert [span["episode"] for span in row["evidence"]] == [first]
        assert [each.speaker for each in again.episodes().episodes] == ["ann"]


def test_what_is_restored_is_not_based_on_the_source(kb) -> None:
    first = say(kb, "ann", "lives(mia, oslo)", "2026-01-01")
    say(kb, "web", "lives(mia, oslo)", "2026-01-02")
    say(kb, "web", "lives(mia, rome)", "2026-02-01")
    (restored,) = kb.purge(speaker="web").restored
    (row,) = kb.query("lives(mia, ?where)").rows()
    assert [[span["episode"] for span in each["evidence"]] for each in (restored, row)] == [
        [first],
        [first],
    ]


def test_a_full_tenant_can_be_purged() -> None:
    with kbcore.open_kb(config=Config(tenant_max_facts=2), storage="memory") as full:
        full.teach(KEY)
        say(full, "ann", "lives(mia, oslo)", "2026-01-01")
        say(full, "web", "lives(mia, rome)", "2026-02-01")
        assert full.purge(speaker="web").fact_count == 1
        assert lives(full) == ["oslo"]


def test_a_fact_that_the_source_denied_holds_again(kb) -> None:
    say(kb, "ann", "likes(mia, tea)", "2026-01-01")
    say(kb, "web", "~likes(mia, tea)", "2026-02-01")
    assert not kb.ask("likes(mia, tea)")
    kb.purge(speaker="web")
    assert kb.ask("likes(mia, tea)")


def test_a_value_that_others_say_too_stays_and_restores_nothing(kb) -> None:
    say(kb, "ann", "lives(mia, oslo)", "2026-01-01")
    say(kb, "web", "lives(mia, rome)", "2026-02-01")
    say(kb, "bob", "lives(mia, rome)", "2026-03-01")
    assert kb.purge(speaker="web").restored == []
    assert lives(kb) == ["rome"]


def test_what_had_ended_by_itself_stays_ended(kb) -> None:
    kb.tell("lives(mia, oslo)", valid_from="2026-01-01", valid_until="2026-01-20")
    say(kb, "web", "lives(mia, rome)", "2026-02-01")
    kb.purge(speaker="web")
    assert lives(kb) == []


def test_other_purges_restore_nothing(kb) -> None:
    """A purge for a person's sake says nothing about what was true before."""
    say(kb, "ann", "lives(mia, oslo)", "2026-01-01")
    say(kb, "ann", "lives(mia, rome)", "2026-02-01")
    assert kb.purge(subject="rome").restored == []
    assert lives(kb) == []


def test_a_value_that_changes_in_between_is_looked_at_again(kb, monkeypatch) -> None:
    say(kb, "ann", "lives(mia, oslo)", "2026-01-01")
    say(kb, "web", "lives(mia, rome)", "2026-02-01")
    look, looks = correction.Corrections._given_back, []

    def then_changed(self, *given):
        looks.append(look(self, *given))
        if len(looks) == 1:
            kb.retract("lives(mia, oslo)")
        return looks[-1]

    monkeypatch.setattr(correction.Corrections, "_given_back", then_changed)
    assert kb.purge(speaker="web").restored == []
    assert len(looks) == 2
    assert lives(kb) == []


@pytest.mark.parametrize("seed", range(30))
def test_random_histories_are_those_without_the_source(seed) -> None:
    """After the purge each value holds as if the source had never spoken."""
    chance = random.Random(seed)
    with kbcore.open_kb(config={}) as whole, kbcore.open_kb(config={}) as without:
        for each in (whole, without):
            each.teach(KEY)
        days = [f"2026-01-{day:02}" for day in range(1, 29)]
        said = sorted(chance.sample(days, 8))
        for number, day in enumerate(said):
            who = chance.choice(["ann", "web"])
            text = f"lives({chance.choice(['mia', 'tom'])}, {who}town{number % 3})"
            for each in (whole, without) if who == "ann" else (whole,):
                say(each, who, text, day)
        whole.purge(speaker="web")
        for day in days:
            for person in ("mia", "tom"):
                found, expected = (
                    sorted(each.ask(f"lives({person}, ?where)", as_of=day))
                    for each in (whole, without)
                )
                assert found == expected, (said, day)
