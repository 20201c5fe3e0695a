"""Sealed records and chunks: changed, moved, missing and foreign ones are found; nonces differ."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from support.encryption import with_key

from kbcore.config import Config
from kbcore.durable.records import encode_changes, stamp
from kbcore.encryption.key_folder import KeyFolder
from kbcore.encryption.owners import of_chunk, of_record
from kbcore.encryption.sealer import BACKUP, SNAPSHOT, Sealer
from kbcore.errors import ConfigError, KBError, LogCorrupted
from kbcore.node.opening import open_runtime
from kbcore.offline.rescue import check_folder, salvage_folder
from kbcore.plug.ports import LogSeed, LogStore
from kbcore.plug.sealed_store import Encryption
from kbcore.state.changes import (
    AssertFacts,
    CatalogAction,
    Change,
    ChangeCatalog,
    ChangeKeys,
    ChangeSet,
)
from kbcore.state.facts import Fact
from kbplugins.storage_wal import WalStore

MASTER = bytes(range(32))


@pytest.fixture
def sealer(tmp_path) -> Sealer:
    return Sealer(KeyFolder.need(str(tmp_path), MASTER).log("0" * 32))


def payload(tenant: str, change: Change, database: str = "default") -> bytes:
    return stamp(encode_changes(ChangeSet(database, tenant, (change,))), 5)


def fact(tenant: str, name: str) -> bytes:
    return payload(tenant, AssertFacts((Fact("p", (name,)),)))


@pytest.mark.parametrize("tenant", ["t", 'quo"te', "uml\u00e4ut \\", ""])
def test_the_owner_of_a_record_is_read_from_what_is_logged(tenant) -> None:
    owned = of_record(payload(tenant, AssertFacts((Fact("p", ("a",)),)), 'd"b'))
    assert (owned.owner, owned.ends) == (('d"b', tenant), None)
    for action in CatalogAction:
        owned = of_record(payload(tenant, ChangeCatalog(action), 'd"b'))
        assert owned.owner is None
        ends = {
            CatalogAction.DROP_TENANT: ('d"b', tenant),
            CatalogAction.NUKE_TENANT: ('d"b', tenant),
            CatalogAction.DROP_DATABASE: ('d"b', ""),
            CatalogAction.NUKE_DATABASE: ('d"b', ""),
        }
        assert owned.ends == ends.get(action)
    assert of_record(payload("", ChangeKeys((), ("k",)))).owner is None


def test_the_owner_of_a_chunk_is_read_from_what_a_snapshot_has(tmp_path) -> None:
    config = replace(Config(), storage_dir=str(tmp_path / "plain"), min_free_mb=0)
    with open_runtime(config) as node:
        for tenant in ("one", 'tw"o'):
            node.knowledge_base(tenant=tenant).assert_facts([Fact("p", (tenant,))])
        node.system.snapshot()
        loaded = node.system.store.load_snapshot()
        assert loaded is not None
        owner, owners = None, []
        for chunk in loaded[1]:
            owner = of_chunk(chunk, owner)
            owners.append(owner)
    assert owners[0] is None
    assert set(owners[1:]) == {("default", "one"), ("default", 'tw"o')}


def test_no_nonce_is_used_twice_with_a_key(sealer) -> None:
    again = Sealer(sealer.keys)
    used = {each.seal(bytes(8), b"x", b"")[9:33] for each in (sealer, again) for _ in range(1000)}
    assert len(used) == 2000


def test_a_forked_process_gets_another_salt(sealer, monkeypatch) -> None:
    before = sealer.seal(bytes(8), b"x", b"")[9:25]
    assert sealer.seal(bytes(8), b"x", b"")[9:25] == before
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert sealer.seal(bytes(8), b"x", b"")[9:25] != before


def test_tenants_have_keys_of_their_own(sealer) -> None:
    ids = {sealer.record(1, 1, 1, fact(tenant, "a"))[2][1:9] for tenant in ("a", "b", "a")}
    assert len(ids) == 2
    assert bytes(8) not in ids


def test_a_changed_or_moved_record_is_found(sealer) -> None:
    record = fact("t", "a")
    kind, version, sealed = sealer.record(7, 1, 3, record)
    assert sealer.opened_record(7, kind, version, sealed) == (1, 3, record)
    with pytest.raises(LogCorrupted, match="belongs to another place"):
        sealer.opened_record(8, kind, version, sealed)
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises((LogCorrupted, ConfigError)):
            sealer.opened_record(7, kind, version, bytes(changed))
    for size in range(len(sealed)):
        with pytest.raises((LogCorrupted, ConfigError)):
            sealer.opened_record(7, kind, version, sealed[:size])


def test_chunks_that_are_missing_mixed_or_moved_are_found(sealer) -> None:
    chunks = [b"one", b"", b"two", b"three"]
    first = list(sealer.chunks(5, chunks, SNAPSHOT))
    second = list(sealer.chunks(5, chunks, SNAPSHOT))
    assert list(sealer.opened_chunks(5, first, SNAPSHOT)) == chunks
    wrong = [[*first[:n], *first[n + 1 :]] for n in range(len(first))]
    wrong += [[*first[:n], second[n], *first[n + 1 :]] for n in range(len(first))]
    wrong += [[*first[:n], b, a, *first[n + 2 :]] for n, (a, b) in enumerate(pairwise(first))]
    wrong += [first[:n] for n in range(len(first))]
    wrong += [[*first, first[-1]], [*first, first[2]]]
    for each in wrong:
        with pytest.raises(LogCorrupted):
            list(sealer.opened_chunks(5, each, SNAPSHOT))
    for seq, purpose in ((6, SNAPSHOT), (5, BACKUP)):
        with pytest.raises(LogCorrupted):
            list(sealer.opened_chunks(seq, first, purpose))


class Log:
    """An encrypted log with records in a folder, and access below the encryption."""

    def __init__(self, folder, name: str) -> None:
        config = replace(Config(), storage_dir=str(folder / name), min_free_mb=0, wal_segment_mb=1)
        self.config = replace(
            with_key(config, str(folder)), encryption_keys_dir=str(folder / "keys")
        )
        store = self.open()
        store.append([(1, 13, fact("t", str(n))) for n in range(4)])
        store.close()

    def open(self) -> LogStore:
        return Encryption(self.config).opened(WalStore(self.config))

    def sealed(self) -> list[tuple[int, int, bytes]]:
        raw = WalStore(self.config)
        records = [(each.type, each.version, each.payload) for each in raw.read(0)]
        raw.close()
        return records

    def put(self, records: list[tuple[int, int, bytes]]) -> None:
        raw = WalStore(self.config)
        status = raw.status()
        raw.replace_with(LogSeed(status.log_id, status.epoch, 0), [])
        raw.append(records)
        raw.close()


@pytest.mark.parametrize("how", ["swapped", "dropped", "foreign", "plain", "changed"])
def test_records_with_right_checksums_in_a_wrong_place_are_found(tmp_path, how) -> None:
    log = Log(tmp_path, "log")
    records = log.sealed()
    one, two, three, four = records
    log.put(records)  # as it was
    store = log.open()
    assert len(list(store.read(0))) == 4
    store.close()
    if how == "swapped":
        records = [one, three, two, four]
    elif how == "dropped":
        records = [one, two, four]
    elif how == "foreign":
        records[2] = Log(tmp_path, "other").sealed()[2]
    elif how == "plain":
        records[2] = (1, 13, fact("t", "x"))
    else:
        changed = bytearray(three[2])
        changed[60] ^= 4
        records[2] = (2, 1, bytes(changed))
    log.put(records)
    store = log.open()
    with pytest.raises(KBError):
        list(store.read(0))
    store.close()
    if how == "foreign":  # its key is not among those of this log
        return
    report = check_folder(log.config.storage_dir, log.config)
    assert not report["sound"]
    assert "cannot be decrypted" in report["problems"][0]["found"]
    if how == "plain":
        return
    saved = salvage_folder(log.config.storage_dir, str(tmp_path / "saved"), config=log.config)
    assert saved["soundPrefix"] == (1 if how == "swapped" else 2)
