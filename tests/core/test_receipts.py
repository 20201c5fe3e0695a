"""Receipts: their content, that any change of them is found, and the verifier."""

from __future__ import annotations

import ast
import base64
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbcore import KnowledgeBase, open_kb
from kbcore.config import Config
from kbcore.errors import ConfigError, InvalidInput, NotFound
from kbcore.operations import receipts
from kbcore.receipts import verifier
from kbcore.receipts.canonical_json import canonical_json
from kbcore.receipts.signing import ReceiptKey, configured_key
from kbcore.receipts.verifier import NotValid, canonical, verify
from kbcore.upkeep.purge import PurgeTarget
from kbplanner.syntax.textform import literal_from_text

KEY = ReceiptKey(bytes(range(32)))
KEYS = json.dumps({"keys": [KEY.jwk]}).encode()
VERIFIER = Path(verifier.__file__)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "receipt.key").write_bytes(base64.b64encode(bytes(range(32))))
    return replace(Config(), min_free_mb=0, receipt_key_file=str(tmp_path / "receipt.key"))


@pytest.fixture
def kb(tmp_path: Path, config: Config) -> Iterator[KnowledgeBase]:
    with open_kb(path=tmp_path / "data", config=config) as opened:
        yield opened


def receipt(kb: KnowledgeBase, *goals: str, **more: Any) -> bytes:
    return kb.kb.receipt([literal_from_text(goal) for goal in goals], **more)


def signed(content: dict[str, Any]) -> bytes:
    """A bundle with another content, signed with the same key."""
    return canonical_json({"receipt": content, "signature": KEY.sign(canonical_json(content))})


def family(kb: KnowledgeBase) -> None:
    kb.tell("parent(ann, bob). parent(bob, cy).")
    kb.tell("parent", ["cy", "dee"], confidence=0.5)
    kb.teach("anc(?x, ?y) :- parent(?x, ?y).")
    kb.teach("anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z), ?x != ?z, not banned(?x).")


def test_a_receipt_has_what_the_answers_follow_from(kb: KnowledgeBase) -> None:
    family(kb)
    kb.tell("parent(zoe, yan)")
    content = verify(receipt(kb, "anc(ann, cy)", "parent(cy, ?x)", "parent(no, one)"), KEYS)
    assert [len(goal["answers"]) for goal in content["goals"]] == [1, 1, 0]
    assert content["goals"][1]["answers"][0]["confidence"] == "0.5"
    facts = {tuple(each["args"]): each["record"] for each in content["facts"]}
    assert facts == {("ann", "bob"): 1, ("bob", "cy"): 1, ("cy", "dee"): 2}
    assert [each["record"] for each in content["rules"]] == [4, 3]
    assert [each["position"] for each in content["records"]] == [1, 2, 3, 4]
    assert content["chain"]["count"] == len(content["chain"]["digests"]) == 5
    assert (content["database"], content["tenant"]) == ("default", "default")


def test_every_flipped_bit_of_every_byte_is_found(kb: KnowledgeBase) -> None:
    family(kb)
    bundle = receipt(kb, "anc(bob, cy)")
    assert verify(bundle, KEYS)
    for index in range(len(bundle)):
        for bit in (1, 32) if index % 8 else (1, 2, 4, 8, 16, 32, 64, 128):
            changed = bytearray(bundle)
            changed[index] ^= bit
            with pytest.raises(NotValid):
                verify(bytes(changed), KEYS)
    for changed in (bundle + b"\n", bundle[:-1], b" " + bundle, b"", b"{}", b"[" * 100_000):
        with pytest.raises(NotValid):
            verify(bytes(changed), KEYS)


def test_another_key_is_found(kb: KnowledgeBase) -> None:
    family(kb)
    bundle = receipt(kb, "anc(bob, cy)")
    other = ReceiptKey(bytes(32)).jwk
    with pytest.raises(NotValid, match="another key"):
        verify(bundle, json.dumps({"keys": [other]}).encode())
    with pytest.raises(NotValid, match="signature is wrong"):
        verify(bundle, json.dumps({"keys": [{**other, "kid": KEY.id}]}).encode())
    for keys in (b"", b"{}", b'{"keys":[{"kid":1}]}', b'{"keys":[]}'):
        with pytest.raises(NotValid):
            verify(bundle, keys)


def _first_node(content: Any, kind: str) -> Any:
    nodes = content["goals"][0]["answers"][0]["proof"]["nodes"].values()
    return next(node for node in nodes if node["kind"] == kind)


WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "head": (lambda c: c["chain"].update(head="0" * 64), "do not lead to the head"),
    "digest": (lambda c: c["chain"]["digests"].reverse(), "do not lead to the head"),
    "count": (lambda c: c["chain"].update(count=9), "does not begin"),
    "record": (
        lambda c: c["records"][0].update(payload=c["records"][0]["payload"].replace("ann", "eve")),
        "another digest",
    ),
    "version": (lambda c: c["records"][0].update(version=15), "another digest"),
    "position": (lambda c: c["records"][0].update(position=0), "not in the chain"),
    "purged": (lambda c: c["purges"].append({"position": 1}), "was erased"),
    "fact": (lambda c: c["facts"][0].update(args=["ann", "eve"]), "does not state"),
    "sign": (lambda c: c["facts"][0].update(negated=True), "does not state"),
    "rule": (lambda c: c["rules"][0].update(text="anc(?x, ?x) :- p(?x)."), "does not state"),
    "answer": (lambda c: c["goals"][0]["answers"][0].update(args=["ann", "eve"]), "another fact"),
    "no fact": (lambda c: c["facts"].clear(), "not in the receipt"),
    "leaf": (
        lambda c: _first_node(c, "asserted")["fact"].update(args=["ann", "eve"]),
        "not in the receipt|does not follow",
    ),
    "bindings": (
        lambda c: _first_node(c, "derived")["bindings"].update({"?x": "eve"}),
        "not follow",
    ),
    "circle": (
        lambda c: [
            node.update(depth=1) for node in c["goals"][0]["answers"][0]["proof"]["nodes"].values()
        ],
        "not follow",
    ),
    "elided": (
        lambda c: _first_node(c, "asserted").update(kind="elided"),
        "not complete|does not follow",
    ),
    "no premises": (lambda c: _first_node(c, "derived").update(premises=[]), "not follow"),
    "premise": (lambda c: _first_node(c, "derived")["premises"].pop(0), "not follow"),
    "test": (lambda c: _first_node(c, "derived")["premises"].pop(2), "not follow"),
    "order": (lambda c: _first_node(c, "derived")["premises"].reverse(), "not follow"),
    "unbound": (lambda c: _first_node(c, "derived")["bindings"].clear(), "not follow"),
    "aggregate": (
        lambda c: _first_node(c, "derived").update(kind="aggregate", premises=[], inputs=[]),
        "not follow",
    ),
    "inputs": (
        lambda c: _first_node(c, "derived").update(kind="aggregate", inputs=[{}]),
        "not follow",
    ),
    "leaf as test": (lambda c: _first_node(c, "asserted").update(kind="builtin"), "not follow"),
    "leaf as absent": (lambda c: _first_node(c, "asserted").update(kind="absent"), "not follow"),
    "root": (
        lambda c: _first_node(c, "derived").update(kind="absent", premises=[]),
        "another fact",
    ),
    "no rule": (lambda c: c["rules"].clear(), "form"),
    "float": (lambda c: c.update(createdAt=1.5), "not an integer"),
    "format": (lambda c: c.update(format="kbcore-receipt-2"), "format"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_signed_receipt_with_a_wrong_content_is_refused(kb: KnowledgeBase, name: str) -> None:
    """Every check of the verifier finds something that the signature alone does not."""
    family(kb)
    content = verify(receipt(kb, "anc(ann, cy)"), KEYS)
    assert verify(signed(content), KEYS) == content
    change, message = WRONG[name]
    change(content)
    with pytest.raises(NotValid, match=message):
        verify(signed(content), KEYS)


WRONG_INPUTS: dict[str, Callable[[Any], object]] = {
    "none": lambda node: node.update(premises=[], inputs=[]),
    "premise": lambda node: node["premises"].pop(),
    "input": lambda node: node["inputs"].pop(),
    "other": lambda node: node["inputs"][0].update({"?x": "eve", "?y": "eve"}),
    "group": lambda node: node["bindings"].update({"?x": "eve"}),
}


@pytest.mark.parametrize("name", WRONG_INPUTS)
def test_the_inputs_of_aggregates_are_checked(kb: KnowledgeBase, name: str) -> None:
    family(kb)
    kb.teach("children(?x, count(?y)) :- parent(?x, ?y).")
    content = verify(receipt(kb, "children(ann, ?n)"), KEYS)
    WRONG_INPUTS[name](_first_node(content, "aggregate"))
    with pytest.raises(NotValid, match="not follow"):
        verify(signed(content), KEYS)


def test_receipts_of_every_kind_of_statement(kb: KnowledgeBase) -> None:
    kb.tell_many("edge", [[str(i), str(i + 1)] for i in range(40)])
    kb.teach("path(?x, ?y) :- edge(?x, ?y).\npath(?x, ?z) :- path(?x, ?y), path(?y, ?z).")
    kb.teach("n(?x, count(?y)) :- path(?x, ?y).\nnext(?x, ?y) :- edge(?x, ?z), ?y = ?z + 1.")
    kb.teach("~open(?d) :- closed(?d).\nfree(?x) :- door(?x), ~locked(?x).")
    kb.tell("closed(d1). door(d2).")
    kb.tell("locked", ["d2"], negated=True)
    kb.deploy('can(?x) :- role(?x, "a b").\nrole(ann, "a b").', "access")
    kb.fork("draft")
    kb.tell("door(d3)", scope="draft")
    goals = (
        "path(3, ?y)", "n(0, ?n)", "next(5, ?y)", "~open(d1)", "free(d2)", "can(?x)", "~locked(d2)",
    )  # fmt: skip
    content = verify(receipt(kb, *goals), KEYS)
    assert all(goal["answers"] for goal in content["goals"])
    assert all(each["record"] for each in content["facts"] + content["rules"])
    inside = verify(receipt(kb, "door(?x)", scope="draft"), KEYS)
    assert {each["args"][0]: each["record"] is None for each in inside["facts"]} == {
        "d2": True,  # copied by the fork
        "d3": False,
    }
    everywhere = verify(receipt(kb, "door(?x)", scope="*"), KEYS)
    assert [each["scope"] for each in everywhere["goals"][0]["answers"]] == [None, "draft", "draft"]


def test_receipts_of_every_kind_of_rule(kb: KnowledgeBase) -> None:
    kb.tell("e(a, a). e(a, b). dist(a, 3). dist(a, 5). closed(b).")
    kb.teach("""
        test(?x) :- e(?x, ?y), starts_with(?x, ?y), not starts_with(?x, z).
        part(?x, ?v) :- e(?x, ?y), split(?y, ",", ?v).
        number(?x, ?v) :- e(?x, ?y), range(1, 3, ?v), ?v == 2.
        size(?n) :- e(?x, ?y), ?n = length(?x).
        least(?x, min ?d) :- dist(?x, ?d), dist(?x, ?e), ?e > ?d.
        total(?x, sum(?d)) :- dist(?x, ?d), not closed(?x), ?d > 0, dist(?x, _).
        twice(?x) :- e(?x, ?y), e(?y, ?x), e(?x, ?x), not ~e(?x, _), ?y != "?z".
        same("?z", "f(1)") :- e(a, a).
    """)
    goals = (
        "test(?x)", "part(a, ?v)", "number(a, ?v)", "size(?n)", "least(a, ?d)", "total(a, ?d)",
        "twice(?x)", "same(?x, ?y)",
    )  # fmt: skip
    for goal in goals:
        content = verify(receipt(kb, goal), KEYS)
        assert content["goals"][0]["answers"], goal


def test_purged_records_are_digests_only(kb: KnowledgeBase) -> None:
    kb.kb.add_episode("zebulon", "zebulon was here")
    kb.tell("knows(zebulon, ann). knows(ann, bob).")
    before = receipt(kb, "knows(ann, ?x)")
    assert b"zebulon" in before
    kb.kb.purge(PurgeTarget(subject="zebulon"))
    kb.tell("knows(ann, cy)")
    bundle = receipt(kb, "knows(ann, ?x)", since=2)
    assert b"zebulon" not in bundle
    content = verify(bundle, KEYS, before)
    assert {each["args"][1]: each["record"] for each in content["facts"]} == {"bob": None, "cy": 4}
    (tombstone,) = content["purges"]
    assert (tombstone["position"], tombstone["facts"], tombstone["episodes"]) == (3, 1, 1)
    whole = verify(receipt(kb, "knows(ann, ?x)", since=0), KEYS, before)
    assert whole["chain"]["digests"][1:2] == verify(before, KEYS)["chain"]["digests"]


def test_no_text_of_a_purge_whose_erasure_waits(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(kb.kb._services), "erase", lambda *_: False)
    kb.tell("knows(zebulon, ann). knows(ann, bob).")
    kb.kb.purge(PurgeTarget(subject="zebulon"))
    store = kb.kb._services.log("default", "default")
    assert any(b"zebulon" in each.payload for each in store.read(0))
    bundle = receipt(kb, "knows(ann, ?x)")
    assert b"zebulon" not in bundle
    assert verify(bundle, KEYS)["facts"][0]["record"] is None


def test_a_receipt_continues_an_earlier_one(tmp_path: Path, config: Config) -> None:
    with open_kb(path=tmp_path / "a", config=config) as kb:
        family(kb)
        earlier = receipt(kb, "anc(ann, cy)")
        kb.tell("parent(dee, eve)")
        later = receipt(kb, "parent(dee, ?x)", since=4)
        unlinked = receipt(kb, "parent(dee, ?x)")
    assert len(verify(later, KEYS, earlier)["chain"]["digests"]) == 1
    assert verify(unlinked, KEYS, earlier)
    with pytest.raises(NotValid, match="does not continue"):
        verify(earlier, KEYS, later)
    with open_kb(path=tmp_path / "b", config=config) as kb:
        family(kb)
        kb.tell("parent(dee, eve)")
        for since in (4, 0):
            with pytest.raises(NotValid, match="does not continue"):
                verify(receipt(kb, "parent(dee, ?x)", since=since), KEYS, earlier)
    with open_kb(path=tmp_path / "a", tenant="other", config=config) as kb:
        other = receipt(kb, "parent(dee, ?x)")
    with pytest.raises(NotValid, match="another tenant"):
        verify(other, KEYS, earlier)


def test_records_that_the_log_has_dropped(tmp_path: Path, config: Config) -> None:
    with open_kb(path=tmp_path / "data", config=config) as kb:
        family(kb)
        store = kb.kb._services.log("default", "default")
        store.begin_apart()
        kb.tell("parent(dee, eve)")
        kb._runtime.snapshot()
        store.erase_before(4)
        content = verify(receipt(kb, "parent(?x, ?y)"), KEYS)
        assert [each["record"] for each in content["facts"]] == [None, None, None, 5]
        assert verify(receipt(kb, "parent(?x, ?y)", since=1), KEYS)["chain"]["start"] != "00" * 32


def test_large_records_have_their_digest_only(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "MAX_RECORD_BYTES", 1000)
    monkeypatch.setattr(receipts, "MAX_RECORDS_BYTES", 300)
    kb.tell_many("p", [[str(i)] for i in range(500)])
    kb.tell("p(one)")
    kb.tell("p(two)")
    kb.tell("p(three)")
    content = verify(receipt(kb, "p(one)", "p(two)", "p(three)", "p(7)"), KEYS)
    stated = {each["args"][0]: each["record"] for each in content["facts"]}
    assert stated == {"one": None, "two": 3, "three": 4, "7": None}


def test_only_records_that_a_receipt_may_have_are_read_and_held(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "MAX_RECORD_BYTES", 1000)
    monkeypatch.setattr(receipts, "MAX_RECORDS_BYTES", 2000)
    original, within, sizes, held = receipts.stated, receipts._within_limits, [], []

    def stated(payload: str) -> Any:
        sizes.append(len(payload))
        return original(payload)

    def within_limits(records: dict[int, Any], items: Any) -> Any:
        held.append(sum(len(each.payload) for each in records.values()))
        return within(records, items)

    monkeypatch.setattr(receipts, "stated", stated)
    monkeypatch.setattr(receipts, "_within_limits", within_limits)
    kb.tell_many("p", [[str(i)] for i in range(500)])
    for number in range(100):
        kb.tell("p", [f"n{number}"])
    content = verify(receipt(kb, "p(?x)"), KEYS)
    assert len(content["goals"][0]["answers"]) == 600
    assert max(sizes) <= 1000
    assert max(held) <= 5000
    positions = [each["position"] for each in content["records"]]
    assert positions == list(range(102 - len(positions), 102))
    assert sum(len(each["payload"]) for each in content["records"]) > 1500


def test_what_cannot_have_a_receipt(kb: KnowledgeBase) -> None:
    family(kb)
    goal = [literal_from_text("anc(ann, ?x)")]
    for goals in ([], goal * 101):
        with pytest.raises(InvalidInput, match="goals"):
            kb.kb.receipt(goals)
    with pytest.raises(InvalidInput, match=r"goals\[1\].*not"):
        receipt(kb, "anc(ann, ?x)", "not parent(zoe, yan)")
    for since in (-1, 5):
        with pytest.raises(InvalidInput, match="since"):
            kb.kb.receipt(goal, since=since)
    kb.teach("@levels trust: web < user.")
    with pytest.raises(InvalidInput, match="view"):
        kb.viewed({"trust": "user"}).kb.receipt(goal)
    with kb.transaction() as tx, pytest.raises(InvalidInput, match="transaction"):
        tx.kb.receipt(goal)
    with pytest.raises(InvalidInput, match="knownAt"):
        kb.kb.known_at(kb.kb.clock.now_ms()).receipt(goal)
    with open_kb() as without, pytest.raises(NotFound) as caught:
        without.kb.receipt(goal)
    assert caught.value.details == {"setting": "RECEIPT_KEY_FILE"}


def test_a_proof_that_is_cut_has_no_receipt(tmp_path: Path, config: Config) -> None:
    with open_kb(path=tmp_path / "data", config=replace(config, proof_nodes=3)) as kb:
        family(kb)
        with pytest.raises(InvalidInput, match=r"goals\[0\]"):
            receipt(kb, "anc(ann, dee)")


@pytest.mark.parametrize("content", [b"", b"AAAA", b"\xff" * 44, base64.b64encode(bytes(33))])
def test_a_wrong_key_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    config = replace(Config(), receipt_key_file=str(tmp_path / "key"))
    with pytest.raises(ConfigError, match=r"RECEIPT_KEY_FILE.*32 random bytes") as caught:
        configured_key(config)
    if content:
        assert content.decode("latin-1") not in caught.value.message
    with pytest.raises(ConfigError, match="cannot be read"):
        configured_key(replace(config, receipt_key_file=str(tmp_path / "none")))
    assert "RECEIPT" not in repr(KEY)
    assert configured_key(Config()) is None


# -- the program -----------------------------------------------------------------------------------


def test_the_verifier_is_short_and_needs_cryptography_only() -> None:
    text = VERIFIER.read_text()
    assert sum(1 for line in text.splitlines() if line) <= 200
    modules = {
        (each.module if isinstance(each, ast.ImportFrom) else each.names[0].name) or ""
        for each in ast.walk(ast.parse(text))
        if isinstance(each, ast.Import | ast.ImportFrom)
    }
    packages = {each.partition(".")[0] for each in modules} - {"__future__"}
    assert packages - set(sys.stdlib_module_names) == {"cryptography"}


def test_the_verifier_runs_alone(kb: KnowledgeBase, tmp_path: Path) -> None:
    family(kb)
    bundle, later = receipt(kb, "anc(ann, cy)"), receipt(kb, "parent(ann, ?x)", since=4)
    folder = tmp_path / "alone"
    folder.mkdir()
    (folder / "verifier.py").write_bytes(VERIFIER.read_bytes())
    for name, data in {"one": bundle, "two": later, "bad": bundle[:-9], "keys": KEYS}.items():
        (folder / name).write_bytes(data)

    def run(*names: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-I", "verifier.py", *names],
            cwd=folder, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    assert run("one", "keys") == (0, "valid: default/default\n")
    assert run("two", "keys", "one") == (0, "valid: default/default\n")
    status, text = run("bad", "keys")
    assert status == 1
    assert text.startswith("not valid: ")
    (folder / "private").write_bytes(b"not JSON")
    wrong_form = "not valid: the receipt or the public key does not have its form\n"
    assert run("one", "private") == (1, wrong_form)
    assert run("one") == (1, "usage: python verifier.py BUNDLE KEYS [EARLIER]\n")
    assert run("one", "missing") == (1, "missing cannot be read: No such file or directory\n")


# -- canonical JSON --------------------------------------------------------------------------------

NUMBERS = {  # RFC 8785, appendix B
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "41b3de4355555553": "333333333.3333332",
    "becbf647612f3696": "-0.0000033333333333333333",
}


@pytest.mark.parametrize("bits", NUMBERS)
def test_numbers_are_written_as_in_the_standard(bits: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(value).decode() == NUMBERS[bits]


def test_texts_and_members_are_written_as_in_the_standard() -> None:
    value = {
        "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\U0001f600": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin",
    }  # fmt: skip
    names = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    assert list(json.loads(canonical_json(value))) == names
    assert canonical_json('\u20ac$\u000f\nA\'B"\\\\"/\x7f').decode() == (
        '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/\x7f"'
    )
    for wrong in (float("nan"), float("inf"), 1 << 53, "\ud800"):
        with pytest.raises(ValueError, match=r"."):
            canonical_json(wrong)


JSON = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(-(1 << 53) + 1, (1 << 53) - 1),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_server_and_verifier_write_the_same(value: Any) -> None:
    assert canonical_json(value) == canonical(value).encode()
    assert json.loads(canonical_json(value)) == value
