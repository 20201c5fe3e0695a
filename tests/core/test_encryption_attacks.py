"""Attacks on encryption at rest, and mistakes of operators: key files, moved and forged payloads,
interruptions, and writers that lost their log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from select import select

import pytest
from support.commands import kbcore
from support.encryption import with_key
from support.runtimes import BASE

from kbcore import Runtime
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.encryption.key_folder import KeyDestroyed, KeyFolder, LogKeys, keys_dir
from kbcore.encryption.master_key import create_key, key_in, master_key
from kbcore.encryption.sealer import FileSealer, Sealer
from kbcore.errors import ConfigError, LogCorrupted, StorageFull
from kbcore.node.opening import open_runtime
from kbcore.offline.encryption import rotate
from kbcore.offline.rescue import keep, restore_file, running_backup, salvage_folder
from kbcore.plug.manager import Plugins
from kbcore.plug.sealed_store import SealedStore
from kbcore.state.facts import Fact

LOG = "0123456789abcdef0123456789abcdef"
MASTER = bytes(range(32))
ANN, BOB = ("db", "ann"), ("db", "bob")


def keys_in(folder: Path) -> LogKeys:
    return KeyFolder.need(str(folder), MASTER).log(LOG)


def record_of(owner: tuple[str, str], text: str = "p") -> bytes:
    return f'{{"at":1,"db":"{owner[0]}","tenant":"{owner[1]}","changes":["{text}"]}}'.encode()


def deletion_of(owner: tuple[str, str]) -> bytes:
    change = '{"op":"catalog","action":"dropTenant"}'
    return f'{{"at":1,"db":"{owner[0]}","tenant":"{owner[1]}","changes":[{change}]}}'.encode()


@pytest.fixture
def config(tmp_path) -> Config:
    return replace(
        with_key(BASE, str(tmp_path)),
        storage_dir=str(tmp_path / "data"),
        min_free_mb=0,
        wal_segment_mb=1,
    )


def opened(config: Config) -> Runtime:
    return open_runtime(config, clock=ManualClock())


def tell(node: Runtime, tenant: str, name: str = "p") -> None:
    node.knowledge_base(tenant=tenant).assert_facts([Fact(name, (tenant,))])


def has(node: Runtime, tenant: str, name: str = "p") -> bool:
    return bool(node.knowledge_base(tenant=tenant).query_rows(name, (tenant,)))


# -- the key folder -----------------------------------------------------------


def test_zeros_that_a_power_cut_left_in_the_note_destroy_nothing(tmp_path, config) -> None:
    with opened(config) as node:
        tell(node, "ann")
        folder = Path(keys_dir(config), node.system.store.status().log_id)
    (folder / "DESTROYED").write_bytes(bytes(64))
    with opened(config) as node:
        assert has(node, "ann")
        node.system.snapshot()
    with opened(config) as node:
        assert has(node, "ann")


def test_a_payload_cannot_be_marked_as_one_of_a_deleted_tenant(tmp_path) -> None:
    keys = keys_in(tmp_path)
    sealer = Sealer(keys)
    of_deleted = sealer.record(1, 1, 1, record_of(BOB))[2]
    sealer.record(2, 1, 1, deletion_of(BOB))
    assert keys.destroy(2) == 1
    for opening in (sealer, Sealer(keys_in(tmp_path))):
        kind, version, sealed = sealer.record(3, 1, 1, record_of(ANN))
        forged = sealed[:1] + of_deleted[1:9] + sealed[9:]
        with pytest.raises(LogCorrupted):
            opening.opened_record(3, kind, version, forged)
        assert opening.opened_record(1, kind, version, of_deleted)[2] != record_of(BOB)


def test_a_part_of_a_snapshot_cannot_be_marked_as_one_of_a_deleted_tenant(tmp_path) -> None:
    keys = keys_in(tmp_path)
    sealer = Sealer(keys)
    chunks = [b'{"kind":"tenant","db":"db","tenant":"%b"}' % name for name in (b"ann", b"bob")]
    sealed = list(sealer.chunks(5, chunks, b"backup"))
    keys.retire(BOB, 9)
    assert keys.destroy(10) == 1
    assert list(sealer.opened_chunks(5, sealed, b"backup")) == chunks[:1]
    forged = [*sealed[:1], sealed[1][:1] + sealed[2][1:9] + sealed[1][9:], *sealed[2:]]
    with pytest.raises(LogCorrupted):
        list(sealer.opened_chunks(5, forged, b"backup"))


def test_an_unfinished_file_of_a_destroyed_key_is_destroyed_too(tmp_path) -> None:
    """A copy of the folder that was taken while a key was made has the key under two names."""
    keys = keys_in(tmp_path)
    sealed = Sealer(keys).record(1, 1, 1, record_of(ANN))
    name = next((tmp_path / LOG).glob("*.key"))
    unfinished = name.with_name(f"{name.name}.01234567.tmp")
    shutil.copy(name, unfinished)
    keys.retire(ANN, 1)
    keys.destroy(2)
    assert not unfinished.exists()
    with pytest.raises(KeyDestroyed):
        Sealer(keys_in(tmp_path)).open(sealed[2], b"")


def test_an_unfinished_file_of_a_destroyed_key_is_destroyed_after_a_crash(tmp_path) -> None:
    keys = keys_in(tmp_path)
    key_id = keys.key_for(ANN, 1)
    name = next((tmp_path / LOG).glob("*.key"))
    unfinished = name.with_name(f"{name.name}.01234567.tmp")
    shutil.copy(name, unfinished)
    keys.retire(ANN, 1)
    keys.destroy(2)
    shutil.copy(tmp_path / "KEYS", unfinished)
    assert keys_in(tmp_path).destroyed_at(key_id) == 1
    assert not unfinished.exists()


def test_a_rotation_leaves_nothing_that_the_old_key_opens(tmp_path, config) -> None:
    """A kill between link and unlink leaves KEYS under a second name."""
    opened(config).close()
    folder = Path(keys_dir(config))
    os.link(folder / "KEYS", folder / "KEYS.01234567.tmp")
    old = (folder / "KEYS").read_bytes()
    create_key(str(tmp_path / "new"))
    rotate(config, str(tmp_path / "new"))
    assert [path for path in folder.iterdir() if path.is_file() and path.read_bytes() == old] == []
    assert not (folder / "KEYS.01234567.tmp").exists()


def test_two_rotations_at_once_end_one_after_the_other(tmp_path, config, monkeypatch) -> None:
    opened(config).close()
    new = [str(tmp_path / name) for name in ("new-1", "new-2")]
    for file in new:
        create_key(file)
    both = threading.Barrier(2, timeout=2)
    rewrap = KeyFolder.rewrap

    def at_once(folder: KeyFolder, master: bytes) -> None:
        # Both have read the key folder, unless one waits for the other.
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait()
        rewrap(folder, master)

    monkeypatch.setattr(KeyFolder, "rewrap", at_once)
    told: list[str] = []

    def run(file: str) -> None:
        try:
            rotate(config, file)
            told.append(file)
        except ConfigError:
            pass

    threads = [threading.Thread(target=run, args=(file,)) for file in new]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1
    opened(replace(config, encryption_key_file=told[0])).close()


def test_a_key_folder_without_its_key_is_not_begun_again(tmp_path, config) -> None:
    with opened(config) as node:
        tell(node, "ann")
    folder = Path(keys_dir(config))
    (folder / "KEYS").rename(tmp_path / "moved")
    other = replace(config, storage_dir=str(tmp_path / "other"), encryption_keys_dir=str(folder))
    with pytest.raises(ConfigError, match="newest copy"):
        opened(other)
    assert not (folder / "KEYS").exists()
    (tmp_path / "moved").rename(folder / "KEYS")
    with opened(config) as node:
        assert has(node, "ann")


def test_the_key_folder_cannot_be_in_the_data(tmp_path, config) -> None:
    for inside in ("data", "data/keys", "data/x/../keys"):
        with pytest.raises(ConfigError, match="in the stored data"):
            opened(replace(config, encryption_keys_dir=str(tmp_path / inside)))


def test_a_reader_with_the_key_folder_of_another_storage_is_refused(tmp_path, config) -> None:
    class Reader:
        pass

    opened(config).close()
    encryption = Plugins(config).encryption
    for _ in range(2):
        with pytest.raises(ConfigError, match="has no keys of the log"):
            encryption.reader(Reader(), LOG)  # type: ignore[arg-type]


# -- keys that end, and do not ------------------------------------------------


def test_a_deletion_that_the_full_disk_refused_ends_no_key(tmp_path, config, monkeypatch) -> None:
    with opened(config) as node:
        tell(node, "ann")
        store = node.system.store
        assert isinstance(store, SealedStore)
        folder = Path(keys_dir(config), store.status().log_id)

        def full(records: object) -> int:
            raise StorageFull("the disk is full")

        for name in ("append", "append_for_room"):
            with monkeypatch.context() as patch:
                patch.setattr(store._inner, name, full)
                with pytest.raises(StorageFull):
                    store._append([(1, 1, deletion_of(("default", "ann")))], full)
        assert len(list(folder.glob("*.key"))) == 1
        assert list(folder.glob("*.retired")) == []


def test_a_deletion_that_a_kill_kept_from_the_log_ends_no_key(tmp_path, config) -> None:
    with opened(config) as node:
        tell(node, "ann")
        store = node.system.store
        head = store.status().head
        store.sealer.keys.retire(("default", "ann"), head)  # the record head + 1 was never written
        folder = Path(keys_dir(config), store.status().log_id)
        backup = list(
            store.sealer.chunks(head, [b'{"kind":"tenant","db":"default","tenant":"ann"}'], b"b")
        )
    for _ in range(2):
        with opened(config) as node:
            assert has(node, "ann")
            tell(node, "ann", "q")
            node.system.snapshot()
            assert list(folder.glob("*.retired")) == []
            assert len(list(node.system.store.sealer.opened_chunks(head, backup, b"b"))) == 1


def test_a_node_that_lost_the_log_cannot_end_a_key_in_use(tmp_path, config) -> None:
    """It was about to delete a tenant, and another node has gone on with the log."""
    with opened(config) as node:
        tell(node, "ann")
        store = node.system.store
        stale = KeyFolder.open(keys_dir(config), master_key(config)).log(store.status().log_id)
        stale.retire(("default", "ann"), store.status().head)
        tell(node, "ann", "q")
        tell(node, "bob")
        node.admin().drop_tenant("default", "bob")
        node.system.snapshot()  # without text from before
        tell(node, "ann", "r")
        store.close(clean=False)
    for _ in range(3):
        with opened(config) as node:
            assert all(has(node, "ann", name) for name in "pqr")
            node.system.store.close(clean=False)  # as a kill, without a snapshot


def test_a_tenant_can_be_deleted_after_a_node_that_lost_the_log_tried_it(tmp_path, config) -> None:
    with opened(config) as node:
        tell(node, "ann")
        store = node.system.store
        folder = Path(keys_dir(config), store.status().log_id)
        stale = KeyFolder.open(keys_dir(config), master_key(config)).log(store.status().log_id)
        stale.retire(("default", "ann"), store.status().head)
        tell(node, "ann", "q")
        node.admin().drop_tenant("default", "ann")
        node.system.snapshot()
        assert list(folder.glob("*.retired")) == list(folder.glob("*.key")) == []


# -- payloads elsewhere -------------------------------------------------------


def test_the_vectors_of_a_tenant_do_not_open_as_those_of_another(tmp_path) -> None:
    sealer = Sealer(keys_in(tmp_path))
    of_ann, of_bob = (FileSealer(lambda: sealer, owner) for owner in (ANN, BOB))
    sealed = of_ann.seal(b"vectors", b"place")
    assert of_ann.open(sealed, b"place") == b"vectors"
    assert of_bob.open(sealed, b"place") is None


# -- files and commands with the master key -----------------------------------


def test_key_files_that_are_none(tmp_path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    create_key(str(tmp_path / "good"))
    good = (tmp_path / "good").read_bytes()
    (tmp_path / "two").write_bytes(good + good)
    (tmp_path / "long").write_bytes(good + b"\n" * 5000 + b"x")
    (tmp_path / "windows").write_bytes(good.strip() + b"\r\n")
    (tmp_path / "raw").write_bytes(MASTER)
    (tmp_path / "link").symlink_to("good")
    assert key_in(str(tmp_path / "windows"), "S") == key_in(str(tmp_path / "link"), "S")
    for name in ("fifo", "folder", "two", "long", "raw"):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from kbcore.encryption.master_key import key_in; key_in(sys.argv[1], 'S')",
                str(tmp_path / name),
            ],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env={"PYTHONPATH": ":".join(sys.path)},
        )
        assert "ConfigError: S: " in done.stderr.splitlines()[-1], (name, done.stderr)
        assert good.decode().strip() not in done.stderr


def test_a_key_command_cannot_fill_the_memory_or_leave_processes(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("kbcore.encryption.master_key.COMMAND_SECONDS", 2)

    def failure(command: str) -> str:
        with pytest.raises(ConfigError) as caught:
            master_key(replace(Config(), encryption_key_command=command))
        assert "secret-word" not in str(caught.value)
        return str(caught.value)

    assert "more than 4096 bytes" in failure("yes secret-word")
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! $$ > {pids}; echo secret-word; wait"
    assert "took more than 2 seconds" in failure(f"sh -c '{script}'")
    for pid in map(int, pids.read_text().split()):
        assert ends(pid)


def ends(pid: int) -> bool:
    """Return True if a process has ended, or ends within seconds, as a killed one does."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select([process], [], [], 20)[0])
    finally:
        os.close(process)


def test_settings_are_shown_without_the_arguments_of_the_key_command(monkeypatch) -> None:
    command = "no-vault read -token=s3cr3t-token key"
    monkeypatch.setenv("ENCRYPTION_KEY_COMMAND", command)
    done = kbcore("config", "check", expect=78)
    assert "ENCRYPTION_KEY_COMMAND=no-vault ***" in done.stdout
    assert "s3cr3t-token" not in done.stdout + done.stderr
    assert "s3cr3t-token" not in repr(replace(Config(), encryption_key_command=command))


def test_a_key_that_other_users_can_read_is_reported(tmp_path, config, monkeypatch) -> None:
    monkeypatch.setenv("ENCRYPTION_KEY_FILE", config.encryption_key_file)
    monkeypatch.setenv("STORAGE_DIR", config.storage_dir)
    assert "other users" not in kbcore("config", "check", expect=None).stderr
    os.chmod(config.encryption_key_file, 0o644)
    assert "ENCRYPTION_KEY_FILE" in kbcore("config", "check", expect=None).stderr


# -- lost keys ----------------------------------------------------------------


def test_a_lost_key_costs_its_tenant_only(tmp_path, config) -> None:
    with opened(config) as node:
        for tenant in ("ann", "bob"):
            tell(node, tenant)
        info, parts = running_backup(node)
        keep(parts, tmp_path / "backup")
        node.system.snapshot()
        tell(node, "ann", "q")
        tell(node, "bob", "q")
        node.system.store.close(clean=False)
    folder = Path(keys_dir(config), info.logs[0].log_id)
    lost = LogKeys(
        str(folder), folder.name, KeyFolder.open(str(folder.parent), master_key(config))._key
    )
    key_id = lost.key_for(("default", "bob"), 99).hex()
    (file,) = folder.glob(f"*-{key_id}.key")
    file.unlink()
    keyed = replace(config, encryption_keys_dir=str(folder.parent))
    with pytest.raises(ConfigError, match=f"lacks the key {key_id}"):
        opened(config)
    with pytest.raises(ConfigError, match=f"lacks the key {key_id}"):
        restore_file(tmp_path / "backup", str(tmp_path / "restored"), keyed)
    restore_file(tmp_path / "backup", str(tmp_path / "restored"), keyed, skips_lost=True)
    report = salvage_folder(config.storage_dir, str(tmp_path / "salvaged"), config=keyed)
    assert report["lostKeys"] == [key_id]
    assert report["lost"] == []
    for name, facts in (("restored", 1), ("salvaged", 2)):
        copy = replace(keyed, storage_dir=str(tmp_path / name))
        for _ in range(2):
            with opened(copy) as node:
                assert sum(has(node, "ann", fact) for fact in "pq") == facts
                assert not has(node, "bob")
                tell(node, "bob", "again")
                node.system.snapshot()
