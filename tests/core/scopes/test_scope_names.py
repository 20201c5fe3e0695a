"""Names of scopes: one rule on every way in."""

from __future__ import annotations

import pytest

import kbcore
from kbcore.errors import InvalidInput
from kbcore.state.changes import AssertFacts, ChangeSet
from kbcore.state.facts import Fact, FactRows

BAD = "two words"


@pytest.fixture
def kb():
    with kbcore.open_kb() as opened:
        opened.tell("p", ["a"], scope="good:name@1.0-x")
        yield opened


@pytest.mark.parametrize("scope", [BAD, "", ".", "..", "a/b", "ä", "x" * 129, "a\n"])
def test_a_name_that_http_refuses_is_refused(kb, scope):
    for use in (
        lambda: kb.tell("p", ["a"], scope=scope),
        lambda: kb.ask("p(?x)", scope=scope),
    ):
        with pytest.raises(InvalidInput, match="is not a name: it has 1 to 128 characters"):
            use()
    assert kb.scopes() == ["good:name@1.0-x"]


@pytest.mark.parametrize(
    "use",
    [
        lambda kb: kb.tell_many("p", [("a",), ("b",)], scope=BAD),
        lambda kb: kb.tell_many("p", [(1,), (True,)], scope=BAD),
        lambda kb: kb.kb.assert_rows([FactRows("p", 1, ["a"], scope=BAD)]),
        lambda kb: kb.teach("q(?x) :- p(?x).", scope=BAD),
        lambda kb: kb.teach(f'q(?x) :- p(?x) [scope="{BAD}"].'),
        lambda kb: kb.load(f'p(a) [scope="{BAD}"].'),
        lambda kb: kb.execute("p(a).", scope=BAD),
        lambda kb: kb.retract("p", ["a"], scope=BAD),
        lambda kb: kb.retract("p", ["?x"], scope=BAD),
        lambda kb: kb.query("p", ["?x"], scope=BAD),
        lambda kb: kb.ask("p(?x), p(?y)", scope=BAD),
        lambda kb: kb.explain("p(?x)", scope=BAD),
        lambda kb: kb.count("p", scope=BAD),
        lambda kb: kb.rules(BAD),
        lambda kb: kb.fork(BAD),
        lambda kb: kb.subscribe(print, scope=BAD),
        lambda kb: kb.context(scope=BAD),
        lambda kb: kb.dump(scope=BAD),
        lambda kb: kb.predicates(BAD),
        lambda kb: kb.aggregate("count", "p(?x)", scope=BAD),
        lambda kb: kb.prove("p(?x)", scope=BAD),
        lambda kb: kb.prioritize("p", ["a"], 1.0, scope=BAD),
        lambda kb: kb.salient(scope=BAD),
        lambda kb: kb.recall("p", ["a"], 0, scope=BAD),
        lambda kb: kb.decay(scope=BAD),
        lambda kb: kb.consolidate(scope=BAD),
    ],
)
def test_every_method_has_the_same_rule(kb, use):
    with pytest.raises(InvalidInput, match=r"^(scope|target): 'two words' is not a name"):
        use(kb)
    assert kb.scopes() == ["good:name@1.0-x"]


def test_a_scope_of_an_earlier_version_can_still_be_used(kb):
    change = AssertFacts((Fact("p", ("old",), scope=BAD),))
    kb._runtime.commit(ChangeSet("default", "default", (change,)))
    assert kb.ask("p(?x)", scope=BAD) == [("old",)]
    kb.tell("p", ["new"], scope=BAD)
    kb.fork("renamed", BAD)
    assert kb.drop_scope(BAD) == 2
    assert kb.scopes() == ["good:name@1.0-x", "renamed"]
    with pytest.raises(InvalidInput):
        kb.tell("p", ["new"], scope=BAD)
