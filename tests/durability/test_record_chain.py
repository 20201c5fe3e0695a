"""The chain of the records of a tenant: one head after restarts, kills, torn records and purges, on
followers, in backups and with encryption.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.encryption import with_key
from support.links import Link, catch_up, following, node
from support.runtimes import BASE, runtime

from kbcore.durable.known_states import owner_of_payload
from kbcore.durable.records import chained_digest
from kbcore.errors import StorageFailed
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.offline.rescue import backup_storage, restore_file
from kbcore.state import record_chain
from kbcore.state.facts import Fact
from kbcore.state.record_chain import NO_HEAD, ChainState, RecordChain, next_head
from kbcore.upkeep.purge import PurgeTarget

OWNER = "default", "default"


def chain(opened: Runtime, tenant: str = "default") -> ChainState:
    return opened.read_tenant("default", tenant).chain.state()


def tell(opened: Runtime, *names: str) -> None:
    for name in names:
        opened.knowledge_base().assert_facts([Fact("p", (name,))])


def head_of_log(opened: Runtime) -> bytes:
    """The head that follows from the bytes of the whole log, without the state."""
    head = NO_HEAD
    for record in opened.log(*OWNER).read(0):
        digest = chained_digest(record.type, record.version, record.payload)
        if digest is not None and owner_of_payload(record.payload) == OWNER:
            head = next_head(head, digest)
    return head


def heads(state: ChainState) -> list[str]:
    """All heads of a chain whose digests are all kept."""
    result = [state.start]
    for at in range(0, len(state.digests), 32):
        result.append(next_head(result[-1], state.digests[at : at + 32]))
    return [each.hex() for each in result]


@pytest.fixture(params=["plain", "encrypted"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    settings = replace(BASE, storage_dir=str(tmp_path / "data"), min_free_mb=0)
    return with_key(settings, str(tmp_path)) if request.param == "encrypted" else settings


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_restart_has_the_same_head(config: Any, has_snapshot: bool) -> None:
    with open_runtime(config) as opened:
        tell(opened, "a", "b", "c")
        opened.knowledge_base("default", "other").assert_facts([Fact("p", ("x",))])
        if has_snapshot:
            opened.system.keep()
        tell(opened, "d")
        before, other = chain(opened), chain(opened, "other")
    assert (before.count, other.count) == (4, 1)
    assert len({before.head, other.head, NO_HEAD}) == 3
    with open_runtime(config) as opened:
        assert chain(opened) == before
        assert chain(opened, "other") == other
        assert head_of_log(opened) == before.head
        tell(opened, "e")
        assert heads(chain(opened))[4] == before.head.hex()


def test_a_follower_has_the_same_head(tmp_path: Path) -> None:
    with node(tmp_path / "leader") as leader:
        tell(leader, "a")
        leader.system.keep()
        link = Link(leader)
        with following(tmp_path / "follower", link) as follower:
            tell(leader, "b", "c")
            catch_up(follower)
            assert chain(follower) == chain(leader)
            assert chain(leader).count == 3


def test_a_restored_backup_has_the_same_head(config: Any, tmp_path: Path) -> None:
    with open_runtime(config) as opened:
        tell(opened, "a", "b")
        before = chain(opened)
    backup_storage(tmp_path / "file", config)
    to = str(tmp_path / "restored")
    settings = replace(config, encryption_keys_dir=config.storage_dir + ".keys")
    restore_file(tmp_path / "file", to, settings)
    with open_runtime(replace(settings, storage_dir=to)) as opened:
        assert chain(opened) == before


def test_records_of_earlier_versions_are_not_in_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nodes that have different snapshots of an old log have one head."""
    with runtime(tmp_path) as opened:
        monkeypatch.setattr("kbcore.durable.commit.VERSION", 13)
        tell(opened, "a", "b")
        assert chain(opened) == RecordChain().state()
        monkeypatch.undo()
        tell(opened, "c")
        before = chain(opened)
    assert before.count == 1
    with runtime(tmp_path) as opened:
        assert chain(opened) == before


def test_a_torn_record_is_in_no_chain(tmp_path: Path) -> None:
    with runtime(tmp_path) as opened:
        tell(opened, "a", "b")
        before = chain(opened)
        tell(opened, "c")
        opened.log(*OWNER).sync()
        # before the log is closed: a log that was closed cleanly has no torn record
        files = {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    (segment,) = (name for name in files if name.startswith("wal-"))
    end = files[segment].rindex(b'"c"')
    for length in range(1, 30):
        folder = tmp_path / f"torn{length}"
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data[: end + length] if name == segment else data)
        with runtime(folder) as opened:
            assert chain(opened) == before


def test_a_crash_between_append_and_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record was not acknowledged. Whether it is there or not, the chain is that of the log."""
    opened = runtime(tmp_path)
    tell(opened, "a")
    before = chain(opened)
    store = opened.log(*OWNER)

    def fail() -> None:
        raise StorageFailed("sync failed")

    monkeypatch.setattr(store, "sync", fail)
    with pytest.raises(StorageFailed):
        tell(opened, "b")
    assert chain(opened) == before
    monkeypatch.undo()
    store.close(clean=False)
    with runtime(tmp_path) as again:
        assert chain(again).count in (1, 2)
        assert head_of_log(again) == chain(again).head
        assert heads(chain(again))[1] == before.head.hex()


WRITER = """
import sys
import kbcore
kb = kbcore.open_kb("wal", path=sys.argv[1])
for number in range(10**6):
    kb.tell("p", [number])
    chain = kb.kb._read_tenant().chain
    print(chain.count, chain.state().head.hex(), flush=True)
"""


def test_heads_of_acknowledged_writes_survive_kills(tmp_path: Path) -> None:
    acknowledged: list[tuple[int, str]] = []
    for count in (3, 17, 40):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(count)]
            process.kill()
            lines += process.stdout.read().splitlines()
        for line in lines:
            if len(words := line.split()) == 2 and len(words[1]) == 64:
                acknowledged.append((int(words[0]), words[1]))
        with runtime(tmp_path) as opened:
            assert [heads(chain(opened))[position] for position, _ in acknowledged] == [
                head for _, head in acknowledged
            ]
    assert len(acknowledged) >= 60


def test_digests_of_purged_records_stay_in_the_chain(config: Any) -> None:
    with open_runtime(config) as opened:
        kb = opened.knowledge_base()
        kb.add_episode("zebulon", "zebulon was here")
        tell(opened, "zebulon", "ann")
        before = chain(opened)
        assert kb.purge(PurgeTarget(subject="zebulon")).erased
        after = chain(opened)
        assert after.digests.startswith(before.digests)
        (purge,) = opened.read_tenant(*OWNER).purges.all()
        assert purge.position == after.count == before.count + 1
        assert not any(b"zebulon" in each.payload for each in opened.log(*OWNER).read(purge.seq))
        tell(opened, "bob")
        latest = chain(opened)
    with open_runtime(config) as opened:
        assert chain(opened) == latest
        assert heads(latest)[before.count] == before.head.hex()
        assert [each.position for each in opened.read_tenant(*OWNER).purges.all()] == [4]


def test_the_last_digests_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_chain, "KEPT_DIGESTS", 10)
    monkeypatch.setattr(record_chain, "_DROPPED", 3 * 32)
    whole, short = RecordChain(), RecordChain()
    all_heads = [NO_HEAD]
    for number in range(700):
        digest = number.to_bytes(32, "big")
        all_heads.append(next_head(all_heads[-1], digest))
        short.waiting.append(digest)
        if number % 3 == 2:
            short.hash_waiting()
        state = short.state()
        assert state.head == all_heads[-1]
        assert min(10, state.count) <= len(state.digests) // 32 < 10 + 9
        assert state.start == all_heads[state.first - 1]
        assert heads(state)[-1] == state.head.hex()
    whole.restore(short.state().to_json())
    assert whole.state() == short.state()


def test_an_emptied_tenant_begins_again(tmp_path: Path) -> None:
    with runtime(tmp_path) as opened:
        tell(opened, "a")
        opened.admin().nuke_tenant(*OWNER)
        assert chain(opened) == RecordChain().state()
        tell(opened, "b")
        before = chain(opened)
        assert before.count == 1
    with runtime(tmp_path) as opened:
        assert chain(opened) == before
