"""The JSON of every change in the log, which every later version reads and writes unchanged."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from kbcore.durable.records import (
    CHANGES,
    VERSION,
    chained_digest,
    decode_changes,
    encode_changes,
    stamp,
)
from kbcore.errors import LogCorrupted
from kbcore.plug.ports import ConflictingFact, Keep
from kbcore.state.changes import (
    AddEpisodes,
    AddEvidence,
    AssertFacts,
    AssertRows,
    AssertRules,
    CatalogAction,
    Change,
    ChangeCatalog,
    ChangeKeys,
    ChangeSet,
    Decision,
    Declare,
    DeployRuleSet,
    DropScope,
    EndedFact,
    EndFacts,
    EndSubscriptions,
    EvictFacts,
    EvictReason,
    ForkScope,
    MergeScope,
    NoteAnswer,
    NoteDelivery,
    PurgeMemory,
    PutSubscription,
    RestoredFact,
    RestoreFacts,
    RetractFact,
    RetractPattern,
    RetractRule,
    SetPriority,
    UseLabels,
)
from kbcore.state.episodes.episodes import NewEpisode
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.facts import Fact, FactRows
from kbcore.state.idempotency import IdempotentAnswer, RequestKey
from kbcore.state.keys import StoredKey
from kbcore.state.rule_sets import VersionNote
from kbcore.state.rulebook import stored_declaration, stored_rule
from kbcore.state.subscriptions import StatePosition, StoredSubscription, Webhook
from kbplanner.ir.inputs import Input
from kbplanner.ir.phrases import Phrase
from kbplanner.ir.terms import Variable
from kbplanner.syntax.parser import parse_rule

FULL = Fact("p", ("a", "é"), False, "s", 5, 6, 7, 0.5, {"k": [1, None]})
RULE = parse_rule("q(?x) :- not p(?x).")
ROWS = (FactRows("p", 2, ["a", "b", "c", "d"]), FactRows("q", 0, [], False, "s"))
NAMED = type(RULE)(RULE.head, RULE.body, "n", 0.25, "s")
STANDING = ConflictingFact(False, 1, 2, None, 0.5, {"k": [1]})
DECISIONS = (
    ("p", ("a",), Decision(Keep.FACTS, (STANDING, ConflictingFact(True, 3, 4, 5)))),
    ("on", (), Decision(Keep.TARGET)),
    ("off", (), Decision(Keep.FACTS)),
)
KEY = StoredKey("i", "n", "reader", "00ff", 1, ("d",), ("t", "u"), 9, "why")

WRITTEN: list[tuple[Change, str]] = [
    (
        AssertFacts((Fact("p", ()), FULL)),
        '{"op":"assert","facts":[{"p":"p","a":[]},{"p":"p","a":["a","é"],"n":true,"s":"s","ttl":5,"from":6,"until":7,"c":0.5,"m":{"k":[1,null]}}]}',
    ),
    (
        AssertFacts((Fact("p", ("a",), valid_from=6, valid_until=9, late=True, restated=(7, 8)),)),
        '{"op":"assert","facts":[{"p":"p","a":["a"],"from":6,"until":9,"late":true,"again":[7,8]}]}',
    ),
    (
        AssertRows(ROWS),
        '{"op":"rows","rows":[{"p":"p","k":2,"a":["a","b","c","d"]},{"p":"q","k":0,"a":[],"n":true,"s":"s"}]}',
    ),
    (
        AssertRules((stored_rule(RULE), stored_rule(NAMED))),
        (
            '{"op":"teach","rules":[{"text":"q(?x) :- not p(?x).","lang":2},'
            '{"text":"q(?x) :- not p(?x).","lang":2,"name":"n","c":0.25,"s":"s"}]}'
        ),
    ),
    (
        Declare((Phrase("p", 1, "{0} is p", "{0} is not p", "s"),)),
        '{"op":"phrases","phrases":["@phrase p/1 \\"{0} is p\\" \\"{0} is not p\\" [scope=s]."]}',
    ),
    (
        Declare((Input("p", ("x",), "what", "s"),)),
        '{"op":"phrases","phrases":["@input p(x) \\"what\\" [scope=s]."]}',
    ),
    (
        RetractFact("p", ("a",), True, "s"),
        '{"op":"retract","a":["a"],"p":"p","positive":true,"s":"s"}',
    ),
    (
        RetractPattern("p", (Variable("x"), "a")),
        '{"op":"retractPattern","a":[{"var":"x"},"a"],"p":"p","positive":null,"s":null}',
    ),
    (
        UseLabels((("team", ("eng", "hr")), ("trust", "web"))),
        '{"op":"labels","labels":{"team":["eng","hr"],"trust":"web"}}',
    ),
    (
        RestoreFacts((RestoredFact("s", "p", ("a",), STANDING, None, 0.75),)),
        '{"op":"restore","facts":[{"s":"s","p":"p","a":["a"],"is":{"n":true,"at":1,"from":2,"until":null,"c":0.5,"m":{"k":[1]}},"priority":0.75}]}',
    ),
    (RetractRule("id", "s"), '{"op":"forgetRule","id":"id","s":"s"}'),
    (
        EvictFacts(ROWS, EvictReason.FADED),
        '{"op":"evict","reason":"faded","rows":[{"p":"p","k":2,"a":["a","b","c","d"]},{"p":"q","k":0,"a":[],"n":true,"s":"s"}]}',
    ),
    (
        AssertFacts((Fact("p", ()),), 2),
        '{"op":"assert","facts":[{"p":"p","a":[]}],"not":2}',
    ),
    (
        EndFacts((EndedFact("p", ("a",)), EndedFact("q", (), False, "s", 7))),
        '{"op":"end","facts":[{"p":"p","a":["a"]},{"p":"q","a":[],"n":true,"s":"s","until":7}]}',
    ),
    (
        RestoreFacts((RestoredFact("s", "p", ("a",), STANDING, 60),)),
        '{"op":"restore","facts":[{"s":"s","p":"p","a":["a"],"is":{"n":true,"at":1,"from":2,"until":null,"c":0.5,"m":{"k":[1]}},"ttl":60}]}',
    ),
    (
        SetPriority("p", ("a",), 0.75, False),
        '{"op":"priority","a":["a"],"v":0.75,"p":"p","positive":false,"s":null}',
    ),
    (
        AssertFacts((Fact("p", ("a",), evidence=(Evidence("e", 0, 2), Evidence("f"))),)),
        '{"op":"assert","facts":[{"p":"p","a":["a"],"e":[{"episode":"e","start":0,"end":2},{"episode":"f"}]}]}',
    ),
    (
        AddEpisodes((NewEpisode("e", "ann", "hi", 7, "s"), NewEpisode("f", "bob", "é"))),
        '{"op":"episodes","episodes":[{"id":"e","by":"ann","text":"hi","at":7,"in":"s"},{"id":"f","by":"bob","text":"é"}]}',
    ),
    (
        AddEvidence((Fact("p", ("a",), evidence=(Evidence("e"),)),)),
        '{"op":"evidence","facts":[{"p":"p","a":["a"],"e":[{"episode":"e"}]}]}',
    ),
    (
        PurgeMemory("x", "subject", ROWS, ("e",)),
        '{"op":"purge","id":"x","by":"subject","rows":[{"p":"p","k":2,"a":["a","b","c","d"]},{"p":"q","k":0,"a":[],"n":true,"s":"s"}],"episodes":["e"]}',
    ),
    (
        PurgeMemory("x", "subject", (), (), ("g",)),
        '{"op":"purge","id":"x","by":"subject","rows":[],"episodes":[],"goals":["g"]}',
    ),
    (
        PutSubscription(StoredSubscription("g", "p(?x)", None, 1000, 1, 1001)),
        '{"op":"subscribe","is":{"id":"g","goal":"p(?x)","s":null,"ttl":1000,"created":1,"expires":1001}}',
    ),
    (
        PutSubscription(
            StoredSubscription(
                "g",
                "p(?x)",
                "s",
                1000,
                1,
                1001,
                "k",
                Webhook("https://a/", "x"),
                StatePosition(3, 4),
            )
        ),
        (
            '{"op":"subscribe","is":{"id":"g","goal":"p(?x)","s":"s","ttl":1000,"created":1,"expires":1001,'
            '"by":"k","hook":{"url":"https://a/","secret":"x"},"delivered":[3,4]}}'
        ),
    ),
    (
        DeployRuleSet("n", "s", 2, VersionNote("00ff"), dropped=(("rule", "r"),)),
        (
            '{"op":"deploy","name":"n","s":"s","v":2,"note":{"sha256":"00ff"},"rules":[],'
            '"phrases":[],"facts":[],"gone":[["rule","r"]]}'
        ),
    ),
    (
        DeployRuleSet(
            "n",
            None,
            3,
            VersionNote("00ff", "m", "v1", "k", 1),
            (stored_rule(NAMED),),
            (stored_declaration(Phrase("p", 1, "{0} is p", None, "s")),),
            (FULL,),
            (("fact", "p", ("a",), False),),
        ),
        (
            '{"op":"deploy","name":"n","s":null,"v":3,"note":{"sha256":"00ff","says":"m","revision":"v1","by":"k","back":1},'
            '"rules":[{"text":"q(?x) :- not p(?x).","lang":2,"name":"n","c":0.25,"s":"s"}],'
            '"phrases":["@phrase p/1 \\"{0} is p\\" [scope=s]."],'
            '"facts":[{"p":"p","a":["a","é"],"n":true,"s":"s","ttl":5,"from":6,"until":7,"c":0.5,"m":{"k":[1,null]}}],'
            '"gone":[["fact","p",["a"],false]]}'
        ),
    ),
    (EndSubscriptions(("g", "h")), '{"op":"unsubscribe","ids":["g","h"]}'),
    (NoteDelivery("g", StatePosition(3, 4)), '{"op":"delivered","id":"g","upto":[3,4]}'),
    (
        RestoreFacts((RestoredFact("s", "p", ("a",), STANDING),)),
        '{"op":"restore","facts":[{"s":"s","p":"p","a":["a"],"is":{"n":true,"at":1,"from":2,"until":null,"c":0.5,"m":{"k":[1]}}}]}',
    ),
    (NoteAnswer(RequestKey("k", "00"), None), '{"op":"answer","req":["k","00"],"is":null}'),
    (
        NoteAnswer(RequestKey("k", "00"), IdempotentAnswer(200, (("ETag", "x"),), "ok")),
        '{"op":"answer","req":["k","00"],"is":[200,[["ETag","x"]],"ok"]}',
    ),
    (ForkScope(None, "s", True), '{"op":"fork","from":null,"s":"s","over":true}'),
    (DropScope("s"), '{"op":"dropScope","s":"s"}'),
    (
        MergeScope("s", None, 7, Keep.BOTH, DECISIONS),
        '{"op":"merge","from":"s","s":null,"as":7,"usual":"both","others":[{"p":"p","a":["a"],"keep":"facts","facts":[{"n":true,"at":1,"from":2,"until":null,"c":0.5,"m":{"k":[1]}},{"n":false,"at":3,"from":4,"until":5,"c":null,"m":{}}]},{"p":"on","a":[],"keep":"target"},{"p":"off","a":[],"keep":"facts","facts":[]}]}',
    ),
    (MergeScope(None, "s", 7), '{"op":"merge","from":null,"s":"s","as":7,"usual":"source"}'),
    (ChangeCatalog(CatalogAction.NUKE_TENANT), '{"op":"catalog","action":"nukeTenant"}'),
    (
        ChangeKeys((KEY,), ("old",)),
        '{"op":"keys","put":[{"id":"i","name":"n","role":"reader","sha256":"00ff","created":1,"dbs":["d"],"tenants":["t","u"],"expires":9,"says":"why"}],"drop":["old"]}',
    ),
]


def _without_salt(payload: bytes) -> bytes:
    """Return a payload without its salt, which is the last member and differs in each record."""
    body, salt, rest = payload.partition(b',"salt":"')
    assert (len(salt), len(rest), rest[-2:]) == (9, 18, b'"}')
    return body + b"}"


def test_records_with_the_same_content_have_different_digests() -> None:
    payload = encode_changes(ChangeSet("d", "t", ()))
    records = [stamp(payload, 9) for _ in range(100)]
    assert len({chained_digest(CHANGES, VERSION, each) for each in records}) == 100
    assert chained_digest(CHANGES, 13, records[0]) is None


@pytest.mark.parametrize(("change", "text"), WRITTEN, ids=lambda value: type(value).__name__)
def test_a_change_has_the_same_bytes_in_every_version(change: Change, text: str) -> None:
    changes = ChangeSet("d", "t", (change,))
    payload = stamp(encode_changes(changes), 9)
    body = _without_salt(payload).decode()
    assert body == f'{{"at":9,"db":"d","tenant":"t","changes":[{text}]}}'
    assert decode_changes(CHANGES, VERSION, payload) == (9, changes)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("scope", [None, "s"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"ttl": 0},
        {"valid_from": 0},
        {"valid_until": 0},
        {"confidence": 0.0},
        {"metadata": {"k": 1}},
        {"evidence": (Evidence("e", 0, 1),)},
    ],
    ids=lambda more: next(iter(more), "ordinary"),
)
@pytest.mark.parametrize("discarded", [0, 2])
def test_a_fact_alone_has_the_bytes_that_it_has_among_others(
    positive: bool, scope: str | None, more: dict[str, Any], discarded: int
) -> None:
    fact = Fact("p", ("a", "ü"), positive=positive, scope=scope, **more)
    alone, twice = (
        ChangeSet("d", "t", (AssertFacts((fact,) * count, discarded),)) for count in (1, 2)
    )
    before, _, rest = encode_changes(twice).partition(b'"facts":[')
    first, second = rest[: rest.index(b'},{"p":') + 1], rest[rest.index(b'},{"p":') + 2 :]
    assert second.startswith(first)
    assert encode_changes(alone) == before + b'"facts":[' + second
    assert decode_changes(CHANGES, VERSION, stamp(encode_changes(alone), 9)) == (9, alone)


def test_every_kind_of_change_is_tested() -> None:
    assert {type(change) for change, _ in WRITTEN} == set(get_args(Change))


def test_transactions_and_requests_are_members_of_the_record() -> None:
    changes = ChangeSet("d", "t", (), transaction="x", request=RequestKey("k", "00"))
    payload = stamp(encode_changes(changes), 9)
    body = _without_salt(payload)
    assert body == b'{"at":9,"db":"d","tenant":"t","changes":[],"tx":"x","req":["k","00"]}'
    assert decode_changes(CHANGES, VERSION, payload) == (9, changes)


def test_an_unknown_change_is_refused() -> None:
    payload = b'{"at":9,"db":"d","tenant":"t","changes":[{"op":"unknown"}]}'
    with pytest.raises(LogCorrupted, match="unknown change 'unknown'"):
        decode_changes(CHANGES, VERSION, payload)
