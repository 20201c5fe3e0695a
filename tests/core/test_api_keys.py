"""API keys: creation, checks, replacement, revocation, the log and snapshots; secrets are not
stored.
"""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.http import make_runtime

from kbcore.config import Config
from kbcore.durable.records import decode_changes, encode_changes, stamp
from kbcore.errors import ConfigError, Forbidden, InvalidInput, KBError, NotFound, TooLarge
from kbcore.node.api_keys import KeyWanted, digest_of, first_admin, is_equal
from kbcore.node.opening import open_runtime
from kbcore.state.changes import ChangeKeys, ChangeSet
from kbcore.state.keys import ROLES, StoredKey

DAY = 86_400_000


@pytest.fixture
def node():
    runtime, store, clock = make_runtime()
    with runtime:
        yield runtime, store, clock


def test_a_key_has_the_requested_fields_and_is_found_by_its_full_text(node):
    runtime, store, clock = node
    made = runtime.keys().create(
        KeyWanted("bob", "writer", ("shop",), ("a", "b", "a"), 1.5, "for the shop")
    )
    key = made.key
    assert (key.name, key.role, key.databases, key.tenants) == (
        "bob",
        "writer",
        ("shop",),
        ("a", "b"),
    )
    assert key.expires_at == clock.now_ms() + DAY * 3 // 2
    assert made.secret.startswith(key.prefix + "_")
    assert re.fullmatch(r"kb_[0-9a-zA-Z]+_[0-9a-f]{64}", made.secret)  # 256 bits
    assert key.digest == hashlib.sha256(made.secret.encode()).hexdigest()
    assert runtime.keys().create(KeyWanted("bob", "writer")).secret[-64:] != made.secret[-64:]
    verify = runtime.keys().verify
    assert verify(made.secret) == key
    for wrong in (
        made.secret[:-1],
        made.secret + "0",
        made.secret.upper(),
        key.prefix,
        "",
        "kb__",
        made.secret + "\n",
    ):
        assert verify(wrong) is None
    assert all(made.secret not in record.payload.decode() for record in store.records)
    assert all(made.secret[-64:] not in repr(thing) for thing in (key, runtime.keys().all()))


def test_no_other_text_is_accepted_as_a_key(node):
    keys = node[0].keys()
    id = keys.create(first_admin("root")).key.id

    @examples(40)
    @given(
        st.text(max_size=100)
        | st.from_regex(rf"kb_({id}|[0-9a-f]{{16}})_[0-9a-f]{{64}}", fullmatch=True)
    )
    def check(text):
        assert keys.verify(text) is None

    check()


def test_a_key_ends_at_its_time_and_when_it_is_revoked(node):
    runtime, _, clock = node
    keys = runtime.keys()
    short, long = (
        keys.create(KeyWanted("a", "reader", expires_in_days=1)),
        keys.create(KeyWanted("b", "reader")),
    )
    clock.advance(DAY - 1)
    assert keys.verify(short.secret)
    assert keys.current(short.key.id)
    clock.advance(1)
    assert keys.verify(short.secret) is None
    assert not keys.current(short.key.id)
    assert [key.name for key in keys.all()] == ["a", "b"]
    assert keys.revoke(long.key.id) == long.key
    assert keys.verify(long.secret) is None
    with pytest.raises(NotFound):
        keys.revoke(long.key.id)


@pytest.mark.parametrize("overlap", [0, 10, 3600])
def test_a_replaced_key_works_during_the_overlap(node, overlap):
    runtime, _, clock = node
    keys = runtime.keys()
    old = keys.create(KeyWanted("a", "writer", ("d",), ("t",), 2))
    clock.advance(DAY)
    new = keys.rotate(old.key.id, overlap)
    assert (new.key.role, new.key.databases, new.key.tenants) == ("writer", ("d",), ("t",))
    assert new.key.expires_at == clock.now_ms() + 2 * DAY
    assert keys.verify(new.secret)
    assert (keys.verify(old.secret) is not None) == bool(overlap)
    clock.advance(overlap * 1000)
    assert keys.verify(old.secret) is None
    assert keys.verify(new.secret)


def test_an_overlap_makes_no_key_last_longer(node):
    runtime, _, clock = node
    keys = runtime.keys()
    old = keys.create(KeyWanted("a", "reader", expires_in_days=1))
    clock.advance(DAY - 1000)
    keys.rotate(old.key.id, 3600)
    clock.advance(1000)
    assert keys.verify(old.secret) is None


def test_the_first_key_is_created_once_even_if_revoked(node):
    runtime, _, _ = node
    keys = runtime.keys()
    assert keys.never_used
    first = keys.create(first_admin("root"), first=True)
    assert not keys.never_used
    keys.revoke(first.key.id)
    with pytest.raises(Forbidden):
        keys.create(first_admin("root"), first=True)
    assert len(keys) == 0


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("name", KeyWanted("", "reader")),
        ("name", KeyWanted("a\nb", "reader")),
        ("name", KeyWanted("x" * 129, "reader")),
        ("role", KeyWanted("a", "root")),
        ("role", KeyWanted("a", "replica", tenants=("t",))),
        ("databases[1]", KeyWanted("a", "reader", ("ok", "no name"))),
        ("tenants[0]", KeyWanted("a", "reader", tenants=("..",))),
        ("tenants", KeyWanted("a", "reader", tenants=tuple(map(str, range(1001))))),
        ("expiresInDays", KeyWanted("a", "reader", expires_in_days=0)),
        ("expiresInDays", KeyWanted("a", "reader", expires_in_days=float("nan"))),
        ("description", KeyWanted("a", "reader", description="x" * 1025)),
    ],
)
def test_invalid_requests_are_refused_and_change_nothing(node, field, wanted):
    runtime, store, _ = node
    with pytest.raises(InvalidInput) as refused:
        runtime.keys().create(wanted)
    assert field in refused.value.details["fields"]
    assert store.records == []
    assert runtime.keys().never_used


@pytest.mark.parametrize("overlap", [-1, 1e9, float("nan")])
def test_an_overlap_has_bounds(node, overlap):
    runtime, _, _ = node
    made = runtime.keys().create(first_admin("a"))
    with pytest.raises(InvalidInput):
        runtime.keys().rotate(made.key.id, overlap)


def test_the_number_of_keys_is_limited(node, monkeypatch):
    monkeypatch.setattr("kbcore.node.api_keys.MAX_KEYS", 2)
    runtime, _, _ = node
    made = [runtime.keys().create(first_admin("a")) for _ in range(2)]
    with pytest.raises(TooLarge):
        runtime.keys().create(first_admin("a"))
    with pytest.raises(TooLarge):
        runtime.keys().rotate(made[0].key.id, 0)
    assert len(runtime.keys()) == 2


@pytest.mark.parametrize("snapshot", [False, True])
def test_keys_survive_a_restart(tmp_path, snapshot):
    config = Config(storage_dir=str(tmp_path), min_free_mb=0)
    with open_runtime(config) as runtime:
        keys = runtime.keys()
        kept = keys.create(KeyWanted("bob", "writer", ("d",), ("t",), 3, "says"))
        gone = keys.create(first_admin("root"))
        keys.revoke(gone.key.id)
        if snapshot:
            runtime.snapshot()
    with open_runtime(config) as runtime:
        assert runtime.keys().all() == [kept.key]
        assert runtime.keys().verify(kept.secret) == kept.key
        assert runtime.keys().verify(gone.secret) is None
        runtime.keys().revoke(kept.key.id)
    with open_runtime(config) as runtime:
        assert runtime.keys().all() == []
        assert not runtime.keys().never_used
    for file in tmp_path.iterdir():
        held = file.read_bytes()
        assert kept.secret.encode() not in held
        assert kept.secret[-64:].encode() not in held


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
stored = st.builds(
    StoredKey,
    texts,
    texts,
    st.sampled_from(ROLES),
    texts,
    st.integers(0, 1 << 50),
    st.lists(texts, max_size=3).map(tuple),
    st.lists(texts, max_size=3).map(tuple),
    st.none() | st.integers(0, 1 << 50),
    texts,
)


@given(st.lists(stored, max_size=3).map(tuple), st.lists(texts, max_size=3).map(tuple))
def test_changes_of_keys_are_read_as_they_were_written(put, drop):
    changes = ChangeSet("", "", (ChangeKeys(put, drop),))
    assert decode_changes(1, 5, stamp(encode_changes(changes), 7)) == (7, changes)


def test_listeners_get_no_key_events(node):
    runtime, _, _ = node
    heard = []
    runtime.feed.subscribe(heard.append)
    runtime.keys().create(first_admin("root"))
    assert heard == []


def test_secrets_are_equal_only_as_a_whole():
    assert is_equal("abc", "abc")
    assert not is_equal("abc", "abd")
    assert not is_equal("abc", "")
    assert digest_of("a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


# -- settings --------------------------------------------------------------------------------------


def test_a_secret_may_be_in_a_file(tmp_path):
    file = tmp_path / "key"
    file.write_text("a-secret-of-a-file\n")
    assert Config.from_env({"API_KEY_FILE": str(file)}).api_key == "a-secret-of-a-file"
    with pytest.raises(ConfigError, match="both set"):
        Config.from_env({"API_KEY_FILE": str(file), "API_KEY": "x"})
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.from_env({"BOOTSTRAP_TOKEN_FILE": str(tmp_path / "none")})


@pytest.mark.parametrize("name", ["API_KEY", "BOOTSTRAP_TOKEN", "LLM_API_KEY"])
def test_no_secret_is_in_a_message_or_a_text_of_the_settings(name):
    with pytest.raises(ConfigError) as refused:
        Config().updated({name: "se cret"})
    assert "se cret" not in str(refused.value)
    assert "hidden-value" not in repr(Config().updated({name: "hidden-value"}))


@pytest.mark.parametrize("text", ["600", "0/60", "600/0", "a/b", "-1/60", "1/86401", "/", "1/2/3"])
def test_a_rate_is_requests_and_seconds(text):
    assert Config().updated({"RATE_LIMIT": "600/60"}).rate_limit == (600, 60)
    with pytest.raises(ConfigError, match="RATE_LIMIT"):
        Config().updated({"RATE_LIMIT": text})


def test_key_errors_have_our_error_classes(node):
    runtime, _, _ = node
    with pytest.raises(KBError):
        runtime.keys().rotate("nobody")
