"""Storage of a stopped follower: read-only for commands until it is promoted."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.commands import kbcore
from support.links import Link, catch_up, following, node

from kbcore.config import Config
from kbcore.embed import open_kb
from kbcore.errors import ConfigError, ReadOnlyFollower
from kbcore.node.opening import open_runtime
from kbcore.offline.migrate import check_storage
from kbcore.state.changes import AssertFacts, ChangeSet
from kbcore.state.facts import Fact
from kbserver.app import create_app

LEADER = "http://leader.test:9300"


@pytest.fixture(params=["wal", "sqlite"])
def place(request, tmp_path):
    """The URL of a follower's storage with one fact in it."""
    with node(tmp_path / "leader") as leader:
        leader.commit(ChangeSet("default", "default", (AssertFacts((Fact("p", ("a",)),)),)))
        with following(
            tmp_path / "follower", Link(leader), storage_backend=request.param
        ) as follower:
            catch_up(follower)
    folder = tmp_path / "follower"
    return f"wal:{folder}" if request.param == "wal" else f"sqlite:{folder}/kbcore.sqlite"


def writes(tmp_path):
    rules, rows = tmp_path / "more.kb", tmp_path / "more.csv"
    rules.write_text("p(b).\nq(?x) :- p(?x).\n")
    rows.write_text("b\nc\n")
    return [
        ("tell", "p(b)"),
        ("teach", "q(?x) :- p(?x)."),
        ("load", str(rules)),
        ("load", str(rows), "--predicate", "p"),
        ("scope", "fork", "draft"),
        ("admin", "create-database", "shop"),
        ("keys", "create", "ann", "--role", "admin"),
    ]


def test_writing_commands_are_refused_with_one_line(tmp_path, place):
    before = check_storage(place)
    for name, *rest in writes(tmp_path):
        sub = [rest.pop(0)] if name in ("scope", "admin", "keys") else []
        done = kbcore(name, *sub, "--storage-url", place, *rest, expect=77)
        assert done.stderr.startswith(f"kbcore: {place} follows {LEADER}: a follower is read-only;")
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    assert check_storage(place).digest == before.digest
    assert kbcore("ask", "--storage-url", place, "p(?x)").stdout == "p(a)\n"
    assert check_storage(place).head == before.head


def test_the_message_names_the_folder_as_typed(tmp_path, place):
    if place.startswith("wal:"):
        folder = place.removeprefix("wal:")
        done = kbcore("tell", "--storage-dir", folder, "p(b)", expect=77)
        assert done.stderr.startswith(f"kbcore: {folder} follows {LEADER}: ")


def test_copies_and_restores_into_it_are_refused(tmp_path, place):
    source = f"wal:{tmp_path / 'leader'}"
    done = kbcore("storage", "copy", source, place, expect=77)
    assert done.stderr == f"kbcore: {place} is a follower; send writes to {LEADER}\n"
    kbcore("storage", "copy", place, f"wal:{tmp_path / 'copy'}")
    kbcore("tell", "--storage-dir", str(tmp_path / "copy"), "p(b)")  # a copy is a log of its own


@pytest.mark.parametrize("backend", ["wal", "sqlite"])
def test_an_empty_follower_storage_is_protected_too(tmp_path, backend):
    with node(tmp_path / "leader") as leader:
        leader.commit(ChangeSet("default", "default", (AssertFacts((Fact("p", ("a",)),)),)))
        link = Link(leader)
        link.down = True
        following(tmp_path / "follower", link, storage_backend=backend).close()
        backup = tmp_path / "backup"
    kbcore("backup", "--dir", str(tmp_path / "leader"), "--to", str(backup))
    folder = tmp_path / "follower"
    place = f"wal:{folder}" if backend == "wal" else f"sqlite:{folder}/kbcore.sqlite"
    kbcore("storage", "copy", f"wal:{tmp_path / 'leader'}", place, expect=77)
    kbcore("tell", "--storage-url", place, "p(b)", expect=77)
    kbcore("restore", str(backup), "--to", str(folder), expect=1)
    with pytest.raises(ConfigError):
        check_storage(place)


def test_a_node_that_does_not_follow_refuses_to_serve_it(place):
    config = Config().updated({"STORAGE_URL": place})
    with open_runtime(config) as runtime, pytest.raises(ConfigError, match=f"follows {LEADER}"):
        create_app(runtime)
    leading = config.updated({"REPLICATION_MODE": "LEADER", "REPLICATION_TOKEN": "x" * 16})
    with pytest.raises(ConfigError, match="kbcore promote"):
        open_runtime(leading)


def test_programs_can_read_it_only(place):
    with open_kb(place) as kb:
        assert list(kb.ask("p(?x)")) == [("a",)]
        with pytest.raises(ReadOnlyFollower, match=LEADER):
            kb.tell("p", ["b"])


def test_a_promoted_storage_accepts_writes(place):
    assert kbcore("promote", "--storage-url", place).stdout.startswith(
        "leader from record 2 on, in term 2."
    )
    assert kbcore("tell", "--storage-url", place, "p(b)").stdout == "1 stored\n"
    with open_kb(place) as kb:
        assert list(kb.ask("p(?x)")) == [("a",), ("b",)]


def test_a_storage_promoted_while_running_accepts_writes(tmp_path):
    with node(tmp_path / "leader") as leader:
        leader.commit(ChangeSet("default", "default", (AssertFacts((Fact("p", ("a",)),)),)))
        with following(tmp_path / "follower", Link(leader)) as follower:
            catch_up(follower)
            follower.replication.promote(force=True)
    kbcore("tell", "--storage-dir", str(tmp_path / "follower"), "p(b)")


def test_a_follower_may_change_its_leader(tmp_path, place):
    config = Config().updated(
        {"STORAGE_URL": place, "REPLICATION_MODE": "FOLLOWER", "REPLICATION_TOKEN": "x" * 16}
    )
    with (
        node(tmp_path / "leader") as leader,
        open_runtime(config.updated({"LEADER_URL": "http://new.test"})) as moved,
    ):
        moved.replication.follow(Link(leader), start=False)
    assert (
        "follows http://new.test:"
        in kbcore("tell", "--storage-url", place, "p(b)", expect=77).stderr
    )


def test_a_server_that_does_not_follow_ends_with_78(place):
    command = [sys.executable, "-m", "kbserver.cli", "serve", "--port", "0", "--storage-url", place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.splitlines()[-1].startswith(
        f"kbcore: REPLICATION_MODE=none: this storage follows {LEADER};"
    )
