"""Strict inputs: facts whose arguments are not of the declared types are refused, on every way to
store them, and stored facts are examined when the declaration comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commits import Log, committer, run_all
from support.http import serve_in_memory
from support.runtimes import runtime

import kbcore
from kbcore.clock import ManualClock
from kbcore.embed import EmbeddedKB
from kbcore.errors import Conflict, InvalidInput
from kbcore.operations import base
from kbcore.operations.transaction import Operations
from kbcore.state.argument_types import MAX_LISTED_FACTS
from kbcore.state.changes import AssertFacts, ChangeSet, Declare
from kbcore.state.facts import Fact
from kbplanner.ir.inputs import Input
from kbplanner.ir.terms import Variable

STORED = "@strict.\n@input stored(path: text, owner, size: number).\n"
WRONG = 'the argument size of stored/3 is of the type number, found "big" in stored(a, ann, big)'


@pytest.fixture
def kb():
    with kbcore.open_kb() as opened:
        opened.teach(STORED)
        yield opened


def load_file(kb: EmbeddedKB, folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    kb.load(path)


WAYS = {
    "tell": lambda kb, folder: kb.tell("stored(a, ann, big)."),
    "tell values": lambda kb, folder: kb.tell("stored", ["a", "ann", "big"]),
    "tell with a strategy": lambda kb, folder: kb.tell("stored(a, ann, big)", conflict="REJECT"),
    "tell, negated": lambda kb, folder: kb.tell("~stored(a, ann, big)."),
    "tell many": lambda kb, folder: kb.tell_many("stored", [("a", "ann", "big")]),
    "tell many with a strategy": lambda kb, folder: kb.tell_many(
        "stored", [("a", "ann", "big")], conflict="NEWEST_WINS"
    ),
    "teach": lambda kb, folder: kb.teach("other(x).\nstored(a, ann, big).\nq(?x) :- other(?x)."),
    "load": lambda kb, folder: load_file(kb, folder, "facts.kb", "stored(a, ann, big).\n"),
    "load csv": lambda kb, folder: load_file(kb, folder, "facts.csv", "stored,a,ann,big\n"),
    "load json": lambda kb, folder: load_file(
        kb, folder, "f.jsonl", '{"predicate": "stored", "args": ["a", "ann", "big"]}\n'
    ),
    "execute": lambda kb, folder: kb.kb.execute("ASSERT stored(a, ann, big);"),
    "deploy": lambda kb, folder: kb.deploy("stored(a, ann, big).", name="other"),
    "preview": lambda kb, folder: kb.preview("stored(a, ann, big)"),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_stores_an_argument_of_another_type(
    kb: EmbeddedKB, tmp_path: Path, way: str
) -> None:
    before = kb.dump()
    with pytest.raises(InvalidInput) as raised:
        WAYS[way](kb, tmp_path)
    assert WRONG in raised.value.message
    details = raised.value.details
    (field,) = details["fields"]
    assert field.endswith("args[2]")
    names = ("predicate", "arity", "argument", "type")
    assert [details[name] for name in names] == ["stored", 3, "size", "number"]
    assert kb.dump() == before


def test_facts_of_the_types_are_stored(kb: EmbeddedKB) -> None:
    kb.tell("stored(a, 7, 12.5). stored(b, ann, 1e3). other(x, y, z). stored(a, b).")
    kb.tell_many("stored", [("c", "ann", 1), ("d", "ann", 2.5)])
    assert len(kb.ask("stored(?a, ?b, ?c)")) == 4


def test_the_error_names_the_fact_of_a_list(kb: EmbeddedKB) -> None:
    facts = [Fact("stored", (name, "ann", size)) for name, size in [("x", "1"), ("a", "big")]]
    with pytest.raises(InvalidInput) as raised:
        kb.kb.assert_facts(facts)
    assert list(raised.value.details["fields"]) == ["facts[1].args[2]"]
    long = "x" * 5000
    with pytest.raises(InvalidInput) as raised:
        kb.kb.assert_facts([Fact("stored", (long, "ann", long))])
    assert len(raised.value.message) < 600


def test_inputs_that_are_not_strict_check_nothing(kb: EmbeddedKB) -> None:
    kb.teach("@input plain(size: number). plain(big).")
    kb.teach("@input stored(path: text, owner, size: number).")
    kb.tell("stored(a, ann, big).")
    assert kb.ask("stored(a, ann, big)")


def test_an_input_of_a_scope_counts_before_the_general_one(kb: EmbeddedKB) -> None:
    kb.teach("@input stored(path, owner, size) [scope=loose].")
    kb.tell("stored(a, ann, big) [scope=loose].")
    with pytest.raises(InvalidInput):
        kb.tell("stored(a, ann, big) [scope=other].")
    kb.teach("@strict. @input p(n: integer) [scope=s].")
    kb.tell("p(x). p(x) [scope=t].")
    with pytest.raises(InvalidInput, match="argument n of p/1 is of the type integer"):
        kb.tell("p(x) [scope=s].")
    with pytest.raises(Conflict, match=r"stored\(a, ann, big\)"):
        kb.retract_rule("@stored/3 input", scope="loose")
    with pytest.raises(Conflict, match=r"p\(x\)"):
        kb.merge("t", "s")
    assert not kb.ask("p(?x)", scope="s")


def test_stored_facts_are_examined_when_the_declaration_comes() -> None:
    with kbcore.open_kb() as kb:
        kb.tell_many("q", [(n,) for n in range(2000)])
        kb.tell_many("q", [(f"word{n}",) for n in range(50)])
        before = kb.dump()
        for declare in (
            lambda: kb.teach("@strict. @input q(n: number). other(1)."),
            lambda: kb.deploy("@strict.\n@input q(n: number).", name="set"),
            lambda: kb.deploy("@strict.\n@input q(n: number).", name="set", dry_run=True),
        ):
            with pytest.raises(Conflict) as raised:
                declare()
            assert "q(n: number)" in raised.value.message
            assert raised.value.details["predicate"] == "q"
            assert raised.value.details["facts"] == [f"q(word{n})" for n in range(MAX_LISTED_FACTS)]
            assert kb.dump() == before
        kb.teach("@input q(n: number).")
        for n in range(50):
            kb.retract(f"q(word{n})")
        kb.teach("@strict. @input q(n: number).")
        with pytest.raises(InvalidInput):
            kb.tell("q(word1)")


def test_facts_that_have_ended_do_not_count() -> None:
    clock = ManualClock()
    with runtime(clock=clock) as node:
        kb = node.knowledge_base()
        now = clock.now_ms()
        declared = [Input("q", ("n",), types=("number",), is_strict=True)]
        kb.assert_facts([Fact("q", ("x",), valid_until=now + 1000)])
        with pytest.raises(Conflict):
            kb.assert_rules(declared)
        clock.advance(2000)
        kb.assert_rules(declared)
        with pytest.raises(InvalidInput):
            kb.assert_facts([Fact("q", ("y",), valid_from=now + 10_000)])


def test_a_deployment_may_remove_the_facts_that_are_not_of_the_types() -> None:
    with kbcore.open_kb() as kb:
        kb.deploy("q(x).\nq(1).", name="set")
        kb.deploy("@strict.\n@input q(n: number).\nq(1).", name="set")
        with pytest.raises(InvalidInput):
            kb.deploy("@strict.\n@input q(n: number).\nq(1).\nq(y).", name="set")
        with pytest.raises(InvalidInput):
            kb.tell("q(z).")
        kb.rollback("set", 1)
        kb.tell("q(z).")


def test_files_of_a_set_are_strict_together(tmp_path: Path) -> None:
    (tmp_path / "a.kb").write_text("@module s.\n@strict.\n")
    (tmp_path / "b.kb").write_text("@input q(n: number).\np(1).\n")
    with kbcore.open_kb() as kb:
        kb.deploy(tmp_path, name="s")
        with pytest.raises(InvalidInput):
            kb.tell("q(x).")
        assert [each.text for each in kb.inputs()] == ["@input q(n: number) [strict=true]."]


def test_an_undone_retraction_is_checked(kb: EmbeddedKB) -> None:
    kb.tell("q(x).")
    kb.retract("q(x)")
    retraction = kb.kb.context_summary().generation
    kb.teach("@strict. @input q(n: number).")
    with pytest.raises(InvalidInput, match="argument n of q/1"):
        kb.undo(retraction)
    assert not kb.ask("q(?x)")


def test_transactions_check_what_they_stage(kb: EmbeddedKB) -> None:
    services = kb.kb._services
    for first in ("q(1)", None):
        operations = Operations(services, kb.kb.database, kb.kb.tenant)
        if first:
            operations.assert_facts([Fact("q", ("1",))])
        with pytest.raises(InvalidInput, match="size of stored/3"):
            operations.assert_facts([Fact("stored", ("a", "ann", "big"))])
    kb.tell("r(x). r(1).")
    operations = Operations(services, kb.kb.database, kb.kb.tenant)
    operations.retract_pattern("r", (Variable("n"),))
    declared = Input("r", ("n",), types=("integer",), is_strict=True)
    operations.assert_rules([declared])
    operations.assert_facts([Fact("r", ("2",))])
    operations.commit()
    assert len(kb.ask("r(?n)")) == 1
    operations = Operations(services, kb.kb.database, kb.kb.tenant)
    operations.assert_facts([Fact("s", ("x",))])
    kb.teach("@strict. @input s(n: number).")
    with pytest.raises(InvalidInput, match="argument n of s/1"):
        operations.commit()
    assert not kb.ask("s(?x)")


def test_a_fact_that_was_checked_before_a_declaration_is_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The declaration is committed between the check of the writer and its place in the queue."""
    with runtime(tmp_path) as node:
        kb, declares, done = node.knowledge_base(), base.declares_inputs, []
        kb.assert_facts([Fact("other", ("x",))])

        def asked(change):
            if not done:
                done.append(True)
                kb.assert_rules([Input("q", ("n",), types=("number",), is_strict=True)])
            return declares(change)

        monkeypatch.setattr(base, "declares_inputs", asked)
        with pytest.raises(InvalidInput, match="argument n of q/1"):
            kb.assert_facts([Fact("q", ("x",))])
        assert done
        assert kb.query_rows("q", [Variable("x")]) == []


@pytest.mark.parametrize("held", [False, True])
def test_facts_queued_behind_a_declaration_wait_for_it(held: bool) -> None:
    """Both are in the queue together, or the declaration waits for its confirmation."""
    log = Log()
    catalog, writes = committer(log)
    writes.held = held
    log.gate = threading.Event()
    declared = Input("q", ("n",), types=("number",), is_strict=True)
    fact = Fact("q", ("x",))
    sets = [
        ChangeSet("default", "t", (AssertFacts((Fact("p", ("1",)),)),)),
        ChangeSet("default", "t", (Declare((declared,)),), lambda: None),
        ChangeSet("default", "t", (AssertFacts((fact,)),), checked_inputs=(0, 0)),
    ]
    threads: list[threading.Thread] = []
    results = []
    for number, changes in enumerate(sets):
        more, result = run_all([lambda changes=changes: writes.commit(changes)])
        threads += more
        results.append(result)
        assert log.at_gate.wait(20)
        until(lambda number=number: writes.waiting == number)
    log.gate.set()
    until(
        lambda: writes.confirm(writes.records) or not any(map(threading.Thread.is_alive, threads))
    )
    assert isinstance(results[2][0], InvalidInput)
    tenant = catalog.tenant("default", "t")
    assert tenant is not None
    assert tenant.rules.strict_count == 1


def until(condition: Callable[[], object]) -> None:
    waiting, tries = threading.Event(), 0
    while not condition():
        waiting.wait(0.001)
        tries += 1
        assert tries < 20_000, "the condition did not hold in time"


def test_http_names_the_field() -> None:
    with serve_in_memory() as served:
        served.client.post("/teach", {"text": STORED})
        body = {"predicate": "stored", "args": ["a", "ann", "big"]}
        refused = served.client.post("/tell", body)
        assert refused.status_code == 400
        assert refused.json["code"] == "VALIDATION_ERROR"
        assert list(refused.json["details"]["fields"]) == ["args[2]"]
        (listed,) = served.client.get("/rules").json["inputs"]
        assert (listed["types"], listed["strict"]) == (["text", None, "number"], True)
        (row,) = served.client.get("/predicates").json["predicates"]
        assert row["types"] == ["text", None, "number"]
