"""Encryption at rest: what is in the files, wrong and missing keys, deleted tenants, backups."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import kbcore
from support.embedders import Hashing, Plugin
from support.links import Link, catch_up, following
from support.links import node as node_of_link

from kbcore import Runtime
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.context.relevance.vectors import fact_text
from kbcore.encryption.key_folder import keys_dir
from kbcore.encryption.master_key import create_key
from kbcore.errors import ConfigError
from kbcore.node.opening import open_runtime
from kbcore.offline.encryption import enable, rotate
from kbcore.offline.rescue import (
    backup_storage,
    check_folder,
    keep,
    restore_file,
    running_backup,
)
from kbcore.search.vectors.store import digest_of
from kbcore.state.facts import Fact
from kbcore.upkeep.purge import PurgeTarget

SECRETS = [b"acme-tenant", b"acme_db", b"loves_dearly", b"zanzibar", b"quicksilver", b"mercury"]


@pytest.fixture
def key(tmp_path) -> Path:
    create_key(str(tmp_path / "key"))
    return tmp_path / "key"


@pytest.fixture(params=["wal", "sqlite"])
def config(request, tmp_path, key) -> Config:
    storage = {"wal": f"wal:{tmp_path}/data", "sqlite": f"sqlite:{tmp_path}/data/kb.sqlite"}
    (tmp_path / "data").mkdir()
    base = replace(Config(), min_free_mb=0, wal_segment_mb=1, encryption_key_file=str(key))
    return base.updated({"STORAGE_URL": storage[request.param]})


def opened(config: Config) -> Runtime:
    return open_runtime(config, clock=ManualClock())


def write(node: Runtime) -> None:
    node.admin().create_database("acme_db")
    kb = node.knowledge_base("acme_db", "acme-tenant")
    kb.execute("loves_dearly(zanzibar, quicksilver). likes(?x, mercury) :- loves_dearly(?x, ?y).")


def content(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        yield path, str(path.relative_to(folder)).encode()
        if path.is_file():
            yield path, path.read_bytes()


def assert_nothing_readable(folder: Path) -> None:
    for path, data in content(folder):
        for text in SECRETS:
            assert text not in data, (path, text)


def answers(node: Runtime) -> int:
    kb = node.knowledge_base("acme_db", "acme-tenant")
    return len(kb.query_rows("loves_dearly", ("zanzibar", "quicksilver")))


def test_no_text_is_in_any_file(tmp_path, config) -> None:
    with opened(config) as node:
        write(node)
        assert_nothing_readable(tmp_path)
    with opened(config) as node:
        assert answers(node) == 1
        node.system.snapshot()
        assert_nothing_readable(tmp_path)
    with opened(replace(config)) as node:
        assert answers(node) == 1


@pytest.mark.parametrize("what", ["tenant", "database", "nuke"])
def test_a_deleted_tenant_in_an_old_copy_cannot_be_decrypted(tmp_path, config, what) -> None:
    with opened(config) as node:
        write(node)
        node.knowledge_base(tenant="other").assert_facts([Fact("p", ("a",))])
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "data", copy)
    keys = keys_dir(config)
    old = config.updated({"STORAGE_URL": config.storage_url.replace("/data", "/copy")})
    old = replace(old, encryption_keys_dir=keys)
    with opened(old) as node:
        assert answers(node) == 1
    with opened(config) as node:
        if what == "tenant":
            node.admin().drop_tenant("acme_db", "acme-tenant")
        elif what == "database":
            node.admin().drop_database("acme_db")
        else:
            node.admin().nuke_tenant("acme_db", "acme-tenant")
            write_again(node)
        node.system.snapshot()
        if what == "nuke":
            assert answers(node) == 1
    with opened(old) as node:
        assert answers(node) == 0
        assert len(node.knowledge_base(tenant="other").query_rows("p", ("a",))) == 1
    with opened(config) as node:
        assert len(node.knowledge_base(tenant="other").query_rows("p", ("a",))) == 1


def write_again(node: Runtime) -> None:
    fact = Fact("loves_dearly", ("zanzibar", "quicksilver"))
    node.knowledge_base("acme_db", "acme-tenant").assert_facts([fact])


def test_the_key_of_a_deleted_tenant_lasts_until_its_text_left_the_log(tmp_path, config) -> None:
    with opened(config) as node:
        write(node)
        log = node.system.store.status().log_id
        folder = Path(keys_dir(config), log)
        node.admin().drop_tenant("acme_db", "acme-tenant")
        retired = [path.name for path in folder.iterdir() if path.suffix == ".retired"]
        assert len(retired) == 1
        node.system.committer.bytes = node.system.snapshots._at_bytes = 0  # no snapshot at the stop
        store = node.system.store
        store.close(clean=False)
    with opened(config) as node:  # as after a kill: the log still has the tenant's records
        node.system.snapshot()
        assert [path.suffix for path in folder.iterdir()] == [""]
        key_id, seq = retired[0].split("-")[1].split(".")[:2]
        assert (folder / "DESTROYED").read_bytes().hex() == f"{key_id}{int(seq):016x}"


def plain(config: Config) -> Config:
    return replace(config, encryption_key_file="")


def test_a_plain_storage_is_refused_with_a_key_until_it_is_encrypted(tmp_path, config) -> None:
    with opened(plain(config)) as node:
        write(node)
    with pytest.raises(ConfigError, match="kbcore encryption enable"):
        opened(config)
    assert enable(config).encrypted == 1
    assert_nothing_readable(tmp_path)
    with opened(config) as node:
        assert answers(node) == 1
        write_again(node)
    assert enable(config).encrypted == 0
    with pytest.raises(ConfigError, match="is encrypted: set ENCRYPTION_KEY_FILE"):
        opened(plain(config))
    with opened(config) as node:
        assert answers(node) == 1


def test_an_empty_encrypted_storage_is_refused_without_its_key(config) -> None:
    opened(config).close()
    with pytest.raises(ConfigError, match="is encrypted"):
        opened(plain(config))


def test_a_wrong_or_missing_key_is_refused(tmp_path, config, monkeypatch) -> None:
    with opened(config) as node:
        write(node)
    create_key(str(tmp_path / "wrong"))
    (tmp_path / "short").write_text("c2hvcnQ=")
    wrong = {
        "is not the one": replace(config, encryption_key_file=str(tmp_path / "wrong")),
        "cannot be read": replace(config, encryption_key_file=str(tmp_path / "none")),
        "32 random bytes": replace(config, encryption_key_file=str(tmp_path / "short")),
        "set one": replace(config, encryption_key_command="true"),
        "status 1": replace(plain(config), encryption_key_command="false"),
        "cannot be run": replace(plain(config), encryption_key_command="no-such-command"),
        "the output of": replace(plain(config), encryption_key_command="echo secret"),
        "no keys": replace(config, encryption_keys_dir=str(tmp_path / "elsewhere")),
    }
    for message, settings in wrong.items():
        with pytest.raises(ConfigError, match=message) as caught:
            opened(settings)
        assert "secret" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ConfigError, match=r"pip install 'kbcore\[encryption\]'"):
        opened(config)
    monkeypatch.undo()
    command = f"cat {shlex.quote(config.encryption_key_file)}"
    with opened(replace(plain(config), encryption_key_command=command)) as node:
        assert answers(node) == 1


def test_the_key_can_be_changed(tmp_path, config) -> None:
    with opened(config) as node:
        write(node)
    new = str(tmp_path / "new")
    create_key(new)
    for _ in range(2):  # a second call changes nothing
        assert rotate(config, new) == keys_dir(config)
    with pytest.raises(ConfigError, match="is not the one"):
        opened(config)
    with opened(replace(config, encryption_key_file=new)) as node:
        assert answers(node) == 1
    create_key(str(tmp_path / "third"))
    with pytest.raises(ConfigError, match="is not the one"):
        rotate(config, str(tmp_path / "third"))


def test_a_rotation_that_stops_anywhere_leaves_one_of_the_keys(
    tmp_path, config, monkeypatch
) -> None:
    with opened(config) as node:
        write(node)
    new = str(tmp_path / "new")
    create_key(new)

    class Killed(BaseException):
        pass

    for call in ("open", "fsync", "replace", "unlink"):

        def stop(*args: object, **more: object) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(f"kbcore.encryption.key_folder.os.{call}", stop)
            with contextlib.suppress(Killed):
                rotate(config, new)
        with contextlib.suppress(ConfigError):
            opened(config).close()
            continue
        with opened(replace(config, encryption_key_file=new)) as node:
            assert answers(node) == 1


def test_the_scan_finds_texts_in_a_plain_folder(tmp_path, config) -> None:
    with opened(replace(config, encryption_key_file="")) as node:
        write(node)
    assert all(any(text in data for _, data in content(tmp_path)) for text in SECRETS)


def test_purges_and_snapshots_leave_nothing_readable(tmp_path, config) -> None:
    with opened(config) as node:
        write(node)
        kb = node.knowledge_base("acme_db", "acme-tenant")
        kb.assert_facts([Fact("loves_dearly", ("mercury", "zanzibar"))])
        node.system.snapshots.take()
        assert kb.purge(PurgeTarget(subject="mercury")).erased
        assert_nothing_readable(tmp_path)
        assert answers(node) == 1
    with opened(config) as node:
        assert answers(node) == 1
    assert_nothing_readable(tmp_path)


def test_the_vectors_of_facts_are_not_readable_and_come_back(tmp_path, config) -> None:
    class Counting(Hashing):
        texts = 0

        def embed(self, texts):
            type(self).texts += len(texts)
            return super().embed(texts)

    config = replace(config, embedder="hashing")
    for texts in (1, 1):
        with open_runtime(config, plugins=[Plugin(Counting())], clock=ManualClock()) as node:
            assert node.vectors is not None
            node.vectors.close()
            if not Counting.texts:
                write_in(node, "default")
            while node.vectors.work():
                pass
        assert Counting.texts == texts
    files = list(tmp_path.rglob("*.kbv"))
    assert [path.read_bytes()[6] for path in files] == [2]
    digest = digest_of(fact_text("loves_dearly", ("zanzibar", "quicksilver"), False))
    assert digest not in files[0].read_bytes()


def write_in(node: Runtime, tenant: str) -> None:
    fact = Fact("loves_dearly", ("zanzibar", "quicksilver"))
    node.knowledge_base(tenant=tenant).assert_facts([fact])


@pytest.mark.parametrize("shards", [1, 3])
def test_a_backup_is_restored_with_the_keys_and_without_deleted_tenants(
    tmp_path, key, shards
) -> None:
    config = replace(Config(), min_free_mb=0, wal_segment_mb=1, encryption_key_file=str(key))
    config = replace(config, storage_dir=str(tmp_path / "data"), storage_shards=shards)
    with opened(config) as node:
        write(node)
        write_in(node, "other")
        info, parts = running_backup(node)
        assert info.is_encrypted
        keep(parts, tmp_path / "running")
    backup_storage(tmp_path / "stopped", config)
    for backup in ("running", "stopped"):
        assert not any(text in (tmp_path / backup).read_bytes() for text in SECRETS)
    keys = replace(config, encryption_keys_dir=keys_dir(config))
    with pytest.raises(ConfigError, match="set ENCRYPTION_KEYS_DIR"):
        restore_file(tmp_path / "running", str(tmp_path / "no-keys"), config)
    with pytest.raises(ConfigError, match="backup is encrypted"):
        restore_file(tmp_path / "running", str(tmp_path / "no-key"), plain(config))
    for backup in ("running", "stopped"):
        restored = restore_file(tmp_path / backup, str(tmp_path / f"{backup}-restored"), keys)[1]
        assert (restored.tenants, restored.facts) == (2, 2)
    with opened(config) as node:
        node.admin().drop_database("acme_db")
        for shard in node.shards.values():
            shard.snapshot()
    restored = restore_file(tmp_path / "running", str(tmp_path / "later"), keys)[1]
    assert (restored.tenants, restored.facts) == (1, 1)
    assert check_folder(str(tmp_path / "later"), keys)["sound"]


def test_a_plain_backup_can_be_restored_encrypted(tmp_path, key) -> None:
    config = replace(Config(), min_free_mb=0, wal_segment_mb=1, encryption_key_file=str(key))
    config = replace(config, storage_dir=str(tmp_path / "data"))
    with opened(plain(config)) as node:
        write(node)
    backup_storage(tmp_path / "backup", plain(config))
    assert restore_file(tmp_path / "backup", str(tmp_path / "restored"), config)[1].facts == 1
    assert_nothing_readable(tmp_path / "restored")


def test_a_follower_with_another_key_has_the_data(tmp_path, key) -> None:
    create_key(str(tmp_path / "other"))
    with node_of_link(tmp_path / "leader", encryption_key_file=str(key)) as leader:
        other = {"encryption_key_file": str(tmp_path / "other")}
        with following(tmp_path / "follower", Link(leader), **other) as follower:
            write(leader)
            catch_up(follower)
            assert answers(follower) == 1
            leader.admin().drop_tenant("acme_db", "acme-tenant")
            leader.knowledge_base(tenant="other").assert_facts([Fact("p", ("a",))])
            catch_up(follower)
            for node in (leader, follower):
                node.system.snapshot()
                assert len(node.knowledge_base(tenant="other").query_rows("p", ("a",))) == 1
    for folder in ("leader", "follower"):
        assert_nothing_readable(tmp_path / folder)
    assert len(list((tmp_path / "follower.keys").rglob("DESTROYED"))) == 1


def test_commands_turn_encryption_on_and_change_the_key(tmp_path, monkeypatch) -> None:
    data, key, new = (str(tmp_path / name) for name in ("data", "key", "new"))
    monkeypatch.setenv("MIN_FREE_MB", "0")
    kbcore("tell", "--storage-dir", data, "parent(ann, bob)")
    assert (
        "no-such-key" in kbcore("encryption", "create-key", f"{key}/no-such-key", expect=78).stderr
    )
    kbcore("encryption", "create-key", key)
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    before = Path(key).read_bytes()
    assert "never overwritten" in kbcore("encryption", "create-key", key, expect=1).stderr
    assert Path(key).read_bytes() == before
    assert (
        "set ENCRYPTION_KEY_FILE" in kbcore("encryption", "enable", "--dir", data, expect=78).stderr
    )
    monkeypatch.setenv("ENCRYPTION_KEY_FILE", f"{key}-none")
    assert "cannot be read" in kbcore("config", "check", expect=78).stderr
    monkeypatch.setenv("ENCRYPTION_KEY_FILE", key)
    kbcore("config", "check")
    refused = kbcore("ask", "--storage-dir", data, "parent(ann, ?x)", expect=78)
    assert "kbcore encryption enable" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert "encrypted 1 log" in kbcore("encryption", "enable", "--dir", data).stdout
    assert "nothing to encrypt" in kbcore("encryption", "enable", "--dir", data).stdout
    assert kbcore("ask", "--storage-dir", data, "parent(ann, ?x)").stdout == "parent(ann, bob)\n"
    kbcore("encryption", "create-key", new)
    kbcore("encryption", "rotate", "--dir", data, "--new-key-file", new)
    refused = kbcore("ask", "--storage-dir", data, "parent(ann, ?x)", expect=78)
    assert "is not the one" in refused.stderr
    monkeypatch.setenv("ENCRYPTION_KEY_FILE", new)
    assert kbcore("ask", "--storage-dir", data, "parent(ann, ?x)").stdout == "parent(ann, bob)\n"
    assert '"encrypted": true' in kbcore("fsck", data).stdout
    monkeypatch.delenv("ENCRYPTION_KEY_FILE")
    for command in (("ask", "--storage-dir", data, "p(?x)"), ("fsck", data)):
        assert "is encrypted" in kbcore(*command, expect=78).stderr
