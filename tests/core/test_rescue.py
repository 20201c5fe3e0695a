"""Backup, restore, fsck and salvage: restored content, and the report of losses."""

from __future__ import annotations

import random
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.encryption import with_key

from kbcore import open_kb
from kbcore.config import Config
from kbcore.durable import backup
from kbcore.errors import AlreadyExists, ConfigError, LogCorrupted, StorageBusy
from kbcore.offline.rescue import (
    backup_storage,
    check_folder,
    restore_file,
    running_backup,
    salvage_folder,
)
from kbcore.plug.manager import Plugins
from kbcore.timestamps import iso_text

SMALL = replace(Config(), min_free_mb=0, wal_segment_mb=1)
START = 1_700_000_000_000


@pytest.fixture(params=["plain", "encrypted"], autouse=True)
def encryption(request, tmp_path_factory, monkeypatch) -> None:
    """Every test runs on plain and on encrypted folders."""
    if request.param == "encrypted":
        beside = tmp_path_factory.mktemp("keys")
        small = replace(with_key(SMALL, str(beside)), encryption_keys_dir=str(beside / "keys"))
        monkeypatch.setattr(sys.modules[__name__], "SMALL", small)


def config(folder) -> Config:
    return replace(SMALL, storage_dir=str(folder))


def make(folder, *, clean=True) -> None:
    """Two tenants, rules, a scope, metadata; a snapshot in the middle unless it is not closed
    cleanly.
    """
    for tenant in ("ann", "bob"):
        with open_kb(path=str(folder), tenant=tenant, config=SMALL) as kb:
            kb.tell_many("edge", [(f"{tenant}{i}", str(i)) for i in range(50)])
            kb.teach("path(?x, ?y) :- edge(?x, ?y).")
            kb.tell("note", ["a"], confidence=0.5, metadata={"k": [1]}, ttl=10**12)
            kb.fork("what-if")
            kb.tell("edge", ["x", "y"], negated=True, scope="what-if")


def view(folder, tenant) -> object:
    with open_kb(path=str(folder), tenant=tenant, config=SMALL) as kb:
        keep = (
            "predicate",
            "args",
            "negated",
            "scope",
            "metadata",
            "createdAt",
            "ttl",
            "confidence",
        )
        rows = [
            {key: row[key] for key in keep}
            for predicate, arity in (("edge", 2), ("note", 1))
            for row in kb.query(predicate, ["?"] * arity, scope="*").rows()
        ]
        return rows, [rule.text for rule in kb.rules()], kb.scopes(), list(kb.ask("path(?x, ?y)"))


def test_a_restored_backup_is_what_was_backed_up(tmp_path) -> None:
    make(tmp_path / "a")
    info = backup_storage(tmp_path / "file", config(tmp_path / "a"))
    assert restore_file(tmp_path / "file", str(tmp_path / "b"), SMALL)[0] == info
    for tenant in ("ann", "bob"):
        assert view(tmp_path / "b", tenant) == view(tmp_path / "a", tenant)
    assert check_folder(str(tmp_path / "b"), SMALL)["epoch"] == 2
    assert (
        check_folder(str(tmp_path / "a"), SMALL)["logId"]
        == check_folder(str(tmp_path / "b"), SMALL)["logId"]
    )


def test_a_backup_of_a_running_node_is_consistent(tmp_path) -> None:
    with open_kb(path=str(tmp_path / "a"), config=SMALL) as kb:
        kb.tell("n", ["1"])
        info, parts = running_backup(kb._runtime)
        kb.tell("n", ["2"])
        kb.retract("n", ["1"])
        (tmp_path / "file").write_bytes(b"".join(parts))
    assert backup.verify(tmp_path / "file") == info
    restore_file(tmp_path / "file", str(tmp_path / "b"), SMALL)
    with open_kb(path=str(tmp_path / "b"), config=SMALL) as kb:
        assert list(kb.ask("n(?x)")) == [("1",)]
        kb.tell("n", ["3"])


def test_a_restored_empty_node_is_empty(tmp_path) -> None:
    open_kb(path=str(tmp_path / "a"), config=SMALL).close()
    assert backup_storage(tmp_path / "file", config(tmp_path / "a")).seq == 0
    assert restore_file(tmp_path / "file", str(tmp_path / "b"), SMALL)[1].facts == 0


def test_every_flipped_or_missing_byte_of_a_backup_is_refused_and_nothing_is_written(
    tmp_path,
) -> None:
    with open_kb(path=str(tmp_path / "a"), config=SMALL) as kb:
        kb.tell("n", ["1"])
    backup_storage(tmp_path / "file", config(tmp_path / "a"))
    whole = (tmp_path / "file").read_bytes()
    damaged = tmp_path / "damaged"
    bad = [
        whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(len(whole))
    ]
    bad += [whole[:at] for at in range(0, len(whole), 7)] + [whole + b"x", b""]
    for data in bad:
        damaged.write_bytes(data)
        with pytest.raises((LogCorrupted, ConfigError)):
            restore_file(damaged, str(tmp_path / "b"), SMALL)
    assert not (tmp_path / "b").exists()


def test_existing_files_are_not_overwritten(tmp_path) -> None:
    make(tmp_path / "a")
    (tmp_path / "there").write_text("mine")
    with pytest.raises(AlreadyExists):
        backup_storage(tmp_path / "there", config(tmp_path / "a"))
    assert (tmp_path / "there").read_text() == "mine"
    backup_storage(tmp_path / "file", config(tmp_path / "a"))
    for folder in ("a", "full"):
        (tmp_path / "full").mkdir(exist_ok=True)
        (tmp_path / "full" / "x").touch()
        with pytest.raises(AlreadyExists, match="not empty"):
            restore_file(tmp_path / "file", str(tmp_path / folder), SMALL)
        with pytest.raises(AlreadyExists, match="not empty"):
            salvage_folder(str(tmp_path / "a"), str(tmp_path / folder), config=SMALL)
    for act in (
        lambda: check_folder(str(tmp_path / "no"), SMALL),
        lambda: backup_storage(tmp_path / "f", config("no")),
    ):
        with pytest.raises(ConfigError, match="no such folder"):
            act()


def test_a_folder_in_use_is_refused(tmp_path) -> None:
    with open_kb(path=str(tmp_path / "a"), config=SMALL) as kb:
        kb.tell("n", ["1"])
        with pytest.raises(StorageBusy):
            check_folder(str(tmp_path / "a"), SMALL)
        with pytest.raises(StorageBusy):
            salvage_folder(str(tmp_path / "a"), str(tmp_path / "b"), config=SMALL)
    assert not (tmp_path / "b").exists()


def test_fsck_finds_every_kind_of_damage_and_changes_nothing(tmp_path) -> None:
    make(tmp_path / "a")
    folder = tmp_path / "a"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    report = check_folder(str(folder), SMALL)
    assert report["sound"]
    assert report["opens"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    rng = random.Random(1)
    for name, data in before.items():
        if name in ("LOCK", "reserve"):
            continue
        end = len(data.rstrip(b"\0"))
        for at in [rng.randrange(end) for _ in range(8)]:
            (folder / name).write_bytes(
                data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            )
            found = check_folder(str(folder), SMALL)
            assert not found["sound"], (name, at)
            assert any(problem["file"] == name for problem in found["problems"]), (
                name,
                at,
                found["problems"],
            )
        (folder / name).unlink()
        assert not check_folder(str(folder), SMALL)["sound"], name
        (folder / name).write_bytes(data)
    assert check_folder(str(folder), SMALL)["sound"]


def at(record: int) -> str:
    """When a record of `logged` was logged: a second after the one before."""
    return iso_text(START + record * 1000)


def logged(folder) -> list[int]:
    """A folder with a log and no snapshot: 40 records of two tenants, not closed cleanly; where
    each record begins.
    """
    plugins = Plugins(config(folder))
    store = plugins.open_storage()
    for n in range(40):
        tenant = b"ann" if n % 2 else b"bob"
        fact = b'{"p":"n","a":["%d"]}' % n
        store.append(
            [
                (
                    1,
                    3,
                    b'{"at":%d,"db":"default","tenant":"%s","changes":[{"op":"assert","facts":[%s]}]}'
                    % (START + (n + 1) * 1000, tenant, fact),
                )
            ]
        )
        store.sync()
    store.close(clean=False)
    data = next(Path(folder).glob("wal-*")).read_bytes()
    begins = rb'\{"at"' if SMALL.encryption_key_file == "" else rb"(?<=\x02\x01\0\0)\xe1"
    return [found.start() - 32 for found in re.finditer(begins, data)]


def damage(folder, at) -> None:
    path = next(Path(folder).glob("wal-*"))
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def test_salvage_keeps_the_intact_prefix_and_reports_the_losses(tmp_path) -> None:
    starts = logged(tmp_path / "a")
    damage(tmp_path / "a", starts[10] + 38)
    with pytest.raises(LogCorrupted):
        open_kb(path=str(tmp_path / "a"), config=SMALL)
    report = salvage_folder(str(tmp_path / "a"), str(tmp_path / "b"), config=SMALL)
    assert (report["soundPrefix"], report["head"], report["keptAfterDamage"], report["epoch"]) == (
        10,
        10,
        0,
        2,
    )
    assert report["soundPrefixTime"] == report["headTime"] == at(10)
    assert report["lost"] == [[11, 40]]
    assert report["lostTimes"] == [[at(10), at(40)]]
    lost = {(row["tenant"], row["certain"]): row["ranges"] for row in report["lostByTenant"]}
    times = {(row["tenant"], row["certain"]): row["times"] for row in report["lostByTenant"]}
    assert times[("ann", True)] == [[at(n), at(n)] for n in range(12, 41, 2)]
    # In an encrypted record nothing tells whose it was.
    guess = (None, False) if SMALL.encryption_key_file else ("bob", False)
    assert times[guess] == [[at(10), at(12)]]
    assert lost[("ann", True)] == [[n, n] for n in range(12, 41, 2)]
    assert lost[("bob", True)] == [[n, n] for n in range(13, 41, 2)]
    assert lost[guess] == [[11, 11]]
    assert report["kept"] == {"databases": 1, "tenants": 2, "facts": 10}
    assert check_folder(str(tmp_path / "b"), SMALL)["sound"]


def test_salvage_can_keep_intact_records_after_the_damage(tmp_path) -> None:
    starts = logged(tmp_path / "a")
    for n in (10, 11, 30):
        damage(tmp_path / "a", starts[n] + 35)
    report = salvage_folder(
        str(tmp_path / "a"), str(tmp_path / "b"), skip_damaged=True, config=SMALL
    )
    assert report["lost"] == [[11, 12], [31, 31]]
    assert report["lostTimes"] == [[at(10), at(13)], [at(30), at(32)]]
    assert (report["soundPrefixTime"], report["headTime"]) == (at(10), at(40))
    assert (report["soundPrefix"], report["keptAfterDamage"], report["head"]) == (10, 27, 37)
    assert report["kept"]["facts"] == 37
    with open_kb(path=str(tmp_path / "b"), tenant="bob", config=SMALL) as kb:
        assert {row[0] for row in kb.ask("n(?x)")} == {str(n) for n in range(0, 40, 2)} - {
            "10",
            "30",
        }
        kb.tell("n", ["again"])


def test_salvage_says_that_nobody_knows_when_the_last_records_were_lost(tmp_path) -> None:
    starts = logged(tmp_path / "a")
    for n in (0, 39):
        damage(tmp_path / "a", starts[n] + 35)
    report = salvage_folder(
        str(tmp_path / "a"), str(tmp_path / "b"), skip_damaged=True, config=SMALL
    )
    assert report["lostTimes"][0] == [None, at(2)]
    assert report["soundPrefixTime"] is None
    assert report["headTime"] == at(39)
    report = salvage_folder(str(tmp_path / "a"), str(tmp_path / "c"), config=SMALL)
    assert report["headTime"] is None
    assert report["lostTimes"][0][0] is None


def test_salvage_knows_the_time_of_a_snapshot_without_its_log(tmp_path) -> None:
    make(tmp_path / "a")
    with open_kb(path=str(tmp_path / "a"), tenant="bob", config=SMALL) as kb:
        (newest,) = kb.query("note", ["?"]).rows()
    for path in (tmp_path / "a").glob("wal-*"):
        path.unlink()
    report = salvage_folder(str(tmp_path / "a"), str(tmp_path / "b"), config=SMALL)
    assert report["soundPrefix"] == report["snapshot"] > 0
    assert report["headTime"] == report["soundPrefixTime"] >= iso_text(newest["createdAt"])


def test_salvage_works_without_a_manifest_and_with_a_damaged_snapshot(tmp_path) -> None:
    make(tmp_path / "a")
    newest = max((tmp_path / "a").glob("snap-*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    (tmp_path / "a" / "MANIFEST").unlink()
    report = salvage_folder(str(tmp_path / "a"), str(tmp_path / "b"), config=SMALL)
    assert report["lost"] == []
    for tenant in ("ann", "bob"):
        assert view(tmp_path / "b", tenant) is not None
    assert report["kept"]["facts"] == 206
    (tmp_path / "c").mkdir()
    with pytest.raises(LogCorrupted, match="no file of a log"):
        salvage_folder(str(tmp_path / "c"), str(tmp_path / "d"), config=SMALL)


def test_the_hook_kb_storage_tools_is_asked_for_the_backend(tmp_path) -> None:
    with pytest.raises(ConfigError, match="choose from: wal"):
        Plugins(replace(SMALL, storage_backend="memory")).storage_tools()
