"""Declared phrases: stored like rules, listed, retracted, and used in text for prompts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbcore.config import Config
from kbcore.context.request import WindowRequest
from kbcore.errors import InvalidInput, NotFound, RateLimited
from kbcore.language.dump import dump_lines
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.operations.tenant_kb import TenantKB
from kbplanner.errors import RuleSyntaxError
from kbplanner.ir.phrases import Phrase, phrase_problem
from kbplanner.syntax.parser import parse_declaration, parse_program
from kbplanner.syntax.printer import print_declaration

PARENT = '@phrase parent/2 "{0} is a parent of {1}" "{0} is no parent of {1}".'


@pytest.fixture
def kb(memory_runtime: Runtime) -> TenantKB:
    return memory_runtime.knowledge_base()


@pytest.fixture
def memory_runtime():
    with open_runtime(Config(storage_backend="memory", tenant_max_rules=3)) as runtime:
        yield runtime


def natural(kb: TenantKB, **more: str) -> list[str]:
    return kb.context(WindowRequest(format="natural", scope="*", **more)).text.splitlines()  # type: ignore[arg-type]


def test_a_phrase_words_facts_and_reasons(kb: TenantKB) -> None:
    kb.execute(f"{PARENT} parent(ann, bob). ~parent(bob, ann).")
    assert natural(kb) == ["ann is a parent of bob.", "bob is no parent of ann."]
    kb.execute('@phrase parent/2 "{1} is a child of {0}".')
    assert natural(kb) == ["bob is a child of ann.", "bob · not parent: ann"]
    assert [phrase.text for phrase in kb.phrases()] == ['@phrase parent/2 "{1} is a child of {0}".']


def test_a_phrase_of_a_scope_is_used_there(kb: TenantKB) -> None:
    kb.execute('@phrase p/1 "{0} is general". @phrase p/1 "{0} is special" [scope=s].')
    kb.execute("p(a). p(b) [scope=s]. p(c) [scope=t].")
    assert sorted(natural(kb)) == [
        "In base: a is general.",
        "In s: b is special.",
        "In t: c is general.",
    ]
    assert len(kb.phrases("s")) == 2
    assert [phrase.scope for phrase in kb.phrases("t")] == [None]


def test_the_changes_of_a_window_use_phrases(kb: TenantKB) -> None:
    kb.execute(f"{PARENT} parent(ann, bob).")
    request = WindowRequest(format="natural", session="s")
    kb.context(request)
    kb.execute("parent(bob, cy).")
    changes = kb.context_with_changes(request)[1]
    assert changes is not None
    assert changes.templates(None)["parent", 2].text == "{0} is a parent of {1}"


def test_phrases_are_retracted_by_id(kb: TenantKB) -> None:
    kb.execute(PARENT)
    (stored,) = kb.phrases()
    assert stored.id == "@parent/2"
    assert kb.retract_rule(id="@parent/2").text == PARENT
    assert kb.phrases() == []
    with pytest.raises(NotFound):
        kb.retract_rule(id="@parent/2")


def test_scopes_fork_and_drop_their_phrases(kb: TenantKB) -> None:
    kb.execute('@phrase p/1 "{0} is p" [scope=s]. p(a) [scope=s].')
    kb.fork_scope("s", "copy")
    assert [phrase.scope for phrase in kb.phrases("copy")] == ["copy"]
    kb.drop_scope("s")
    assert [phrase.scope for phrase in kb.phrases()] == ["copy"]


def test_phrases_count_as_rules(kb: TenantKB) -> None:
    kb.execute('@phrase a/0 "a". @phrase b/0 "b". @phrase a/0 "a again".')
    kb.execute("p(?x) :- q(?x).")
    kb.execute('@phrase a/0 "a once more".')
    with pytest.raises(RateLimited):
        kb.execute('@phrase c/0 "c".')


def test_transactions_hold_phrases_back_until_they_commit(memory_runtime: Runtime) -> None:
    kb = memory_runtime.knowledge_base()
    id = memory_runtime.begin()
    with memory_runtime.in_transaction("default", "default", id) as inside:
        inside.execute(f"{PARENT} parent(ann, bob).")
        assert natural(inside) == ["ann is a parent of bob."]
        assert kb.phrases() == []
        inside.commit()
    assert len(kb.phrases()) == 1


@pytest.mark.parametrize("snapshot", [True, False])
def test_phrases_survive_a_restart(tmp_path: Path, snapshot: bool) -> None:
    config = Config(storage_dir=str(tmp_path), min_free_mb=0)
    with open_runtime(config) as runtime:
        runtime.knowledge_base().execute(f'{PARENT} @phrase p/1 "{{0}}\'s p" [scope=s].')
        runtime.knowledge_base().execute('@phrase q/0 "q".')
        runtime.knowledge_base().retract_rule(id="@q/0")
        before = runtime.knowledge_base().phrases()
        if snapshot:
            runtime.snapshot()
    with open_runtime(config) as runtime:
        assert runtime.knowledge_base().phrases() == before
    assert len(before) == 2


def test_dumps_hold_phrases(kb: TenantKB) -> None:
    kb.execute(f'{PARENT} @phrase p/1 "{{0}} is p" [scope=s].')
    phrases = [stored.declaration for stored in kb.phrases()]
    text = "\n".join(dump_lines([], phrases))
    assert text.splitlines() == [PARENT, '@phrase p/1 "{0} is p" [scope=s].']
    lines = list(dump_lines([], phrases, "jsonl"))
    assert lines[1] == '{"text":"@phrase p/1 \\"{0} is p\\" [scope=s]."}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('@phrase p/1 "{1}".', "no argument {1}"),
        ('@phrase p/99 "x".', "the number of arguments is 0 to"),
        ('@phrase p/1 "{0}" [ttl=5].', "has no annotation"),
        ('@phrase p "{0}".', "expected the name and arity of a predicate"),
        ('@wording p/1 "{0}".', 'no declaration "@wording"'),
        ('@phrase p/1 "{0}" "{0}" "{0}".', "expected"),
    ],
)
def test_wrong_declarations_have_a_position(text: str, message: str) -> None:
    with pytest.raises(RuleSyntaxError, match=r"line 2, column \d+") as raised:
        parse_program(f"p(a).\n{text}")
    assert message in raised.value.message


def test_a_phrase_that_was_not_parsed_is_checked(kb: TenantKB) -> None:
    with pytest.raises(InvalidInput, match=r"the phrase of p/1: the phrase lacks \{0\}"):
        kb.assert_rules([Phrase("p", 1, "nothing")])


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
    st.integers(0, 3),
    st.text(max_size=20),
    st.none() | st.text(max_size=20),
    st.none() | st.from_regex(r"[a-z]{1,5}", fullmatch=True),
)
def test_a_printed_phrase_parses_to_the_same(
    predicate: str, arity: int, text: str, negative: str | None, scope: str | None
) -> None:
    slots = "".join(f" {{{number}}}" for number in range(arity))
    both = (text + slots, None if negative is None else negative + slots)
    phrase = Phrase(predicate, arity, *both, scope)
    if phrase_problem(phrase) is None:
        assert parse_declaration(print_declaration(phrase)) == phrase
