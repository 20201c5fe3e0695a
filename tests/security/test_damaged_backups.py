"""Damaged and forged files end a command with one sentence, and leave no half-made folder."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson
import pytest
from click.testing import CliRunner

from kbcore.config import Config
from kbcore.durable.backup import BackupInfo, written
from kbcore.node.opening import open_runtime
from kbcore.offline.rescue import backup_storage
from kbcore.plug.ports import LogSeed
from kbcore.state.facts import Fact
from kbplanner.syntax.parser import parse_rule
from kbserver.cli import cli
from kbserver.cli.shared.exits import EXIT_STATUSES

VARIANTS = 150
"""Damaged copies of each file that are tried."""


def filled(folder: Path, shards: int = 1, **settings: Any) -> Config:
    """Create a storage with facts, rules and a snapshot, and return its settings."""
    config = Config(storage_dir=str(folder), storage_shards=shards, **settings)
    with open_runtime(config) as runtime:
        for tenant in ("a", "b", "c"):
            kb = runtime.knowledge_base(tenant=tenant)
            kb.assert_facts([Fact("p", (str(number),)) for number in range(20)])
            kb.assert_rules([parse_rule("q(?x) :- p(?x).")])
        runtime.snapshot()
        runtime.knowledge_base(tenant="a").assert_facts([Fact("r", ("last",))])
    return config


@pytest.fixture(scope="module", params=[1, 3])
def backup(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backup")
    backup_storage(folder / "whole", filled(folder / "data", request.param))
    return folder / "whole"


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes of a file after an accident."""
    kind = chance.randrange(6)
    at = chance.randrange(len(data))
    if kind == 0:  # the head
        at = chance.randrange(0, min(64, len(data) - 8))
        return data[:at] + chance.randbytes(8) + data[at + 8 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + chance.randbytes(1 + chance.randrange(64)) + data[at + 64 :]
    if kind == 3:
        return data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :]
    if kind == 4:
        return data + chance.randbytes(1 + chance.randrange(20))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def fails_in_one_sentence(*arguments: object, lines: int = 1) -> int:
    """Run a command and check how it ends; return its exit status. At most `lines` say what
    fails.
    """
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        arguments,
        result.exc_info,
    )
    assert result.exit_code in EXIT_STATUSES
    assert "Traceback" not in result.output
    if result.exit_code and not result.stdout:
        assert 1 <= len(result.stderr.strip().splitlines()) <= lines, result.stderr
    return result.exit_code


def test_restore_of_a_damaged_backup(backup: Path, tmp_path: Path) -> None:
    chance, data = random.Random(f"backup {backup.stat().st_size}"), backup.read_bytes()
    file, to = tmp_path / "damaged", tmp_path / "to"
    for _ in range(VARIANTS):
        variant = damaged(data, chance)
        file.write_bytes(variant)
        status = fails_in_one_sentence("restore", file, "--to", to)
        assert status in (65, 78) or variant == data
        assert not to.exists() or variant == data
        shutil.rmtree(to, ignore_errors=True)


def forged(description: Any, *chunks: Any, number: int = 1) -> bytes:
    """Return a backup file with right checksums around any content."""
    text = description if isinstance(description, bytes) else orjson.dumps(description)
    data = struct.pack("<8sHII", b"KBBACKUP", number, len(text), crc32(text)) + text
    parts = [c if isinstance(c, bytes) else orjson.dumps(c) for c in chunks]
    for part in parts:
        data += struct.pack("<II", len(part), crc32(part)) + part
    data += struct.pack("<IQQ", 0xFFFFFFFF, len(parts), sum(map(len, parts)))
    data += struct.pack("<I", crc32(data))
    return data + sha256(data).digest()


DESCRIPTION = {"logId": "0" * 32, "epoch": 1, "seq": 5, "madeAt": 1}
FIRST = {"kind": "databases", "databases": [{"name": "default", "createdAt": 0}]}
TENANT = {
    "kind": "tenant",
    "db": "default",
    "tenant": "t",
    "createdAt": 0,
    "generation": 1,
    "now": 5,
    "rules": [],
}
FACTS = {
    "kind": "facts",
    "scope": None,
    "predicate": "p",
    "arity": 1,
    "positive": True,
    "count": 1,
    "args": ["a"],
}

FORGED: dict[str, bytes] = {
    "no description": forged(b""),
    "a list": forged([]),
    "null": forged(None),
    "no members": forged({}),
    "an id that is a path": forged({**DESCRIPTION, "logId": "../../x"}),
    "an id that is a number": forged({**DESCRIPTION, "logId": 5}),
    "a term that is a text": forged({**DESCRIPTION, "epoch": "x"}),
    "a negative number": forged({**DESCRIPTION, "seq": -1}),
    "a huge number": forged({**DESCRIPTION, "seq": 1 << 63}),
    "no shards": forged({**DESCRIPTION, "shards": []}, number=2),
    "shards of another shape": forged({**DESCRIPTION, "shards": [1, 2]}, number=2),
    "too many shards": forged(
        {**DESCRIPTION, "shards": [["0" * 32, 1, 1]] * 2000}, *[b""] * 2000, number=2
    ),
    "fewer sections than shards": forged(
        {**DESCRIPTION, "shards": [["0" * 32, 1, 1], ["1" * 32, 1, 1]]}, b"", number=2
    ),
    "the format of one shard for two": forged(
        {**DESCRIPTION, "shards": [["0" * 32, 1, 1], ["1" * 32, 1, 1]]}, b"", b""
    ),
    "a newer format": forged(DESCRIPTION, number=9),
    "no JSON": forged(DESCRIPTION, b"x"),
    "not UTF-8": forged(DESCRIPTION, b'{"kind": "\xff"}'),
    "deep JSON": forged(DESCRIPTION, b"[" * 100_000),
    "an array": forged(DESCRIPTION, []),
    "no kind": forged(DESCRIPTION, {}),
    "an unknown kind": forged(DESCRIPTION, FIRST, {"kind": "x"}),
    "databases of another shape": forged(DESCRIPTION, {"kind": "databases", "databases": 5}),
    "keys of another shape": forged(DESCRIPTION, {**FIRST, "keys": {"used": 1, "known": [{}]}}),
    "facts first": forged(DESCRIPTION, FIRST, FACTS),
    "a tenant without members": forged(DESCRIPTION, FIRST, {"kind": "tenant"}),
    "a time that is a text": forged(DESCRIPTION, FIRST, {**TENANT, "now": "x"}),
    "an empty section": forged(DESCRIPTION, FIRST, b"", TENANT),
    "a rule that cannot be read": forged(
        DESCRIPTION, FIRST, {**TENANT, "rules": [{"text": "p(("}]}
    ),
    "a goal of another shape": forged(DESCRIPTION, FIRST, {**TENANT, "goals": [5]}),
    "fewer arguments": forged(DESCRIPTION, FIRST, TENANT, {**FACTS, "count": 9}),
    "arguments that are numbers": forged(DESCRIPTION, FIRST, TENANT, {**FACTS, "args": [5]}),
    "a negative arity": forged(DESCRIPTION, FIRST, TENANT, {**FACTS, "arity": -1}),
    "a huge arity": forged(DESCRIPTION, FIRST, TENANT, {**FACTS, "arity": 1 << 40}),
    "a column of another length": forged(DESCRIPTION, FIRST, TENANT, {**FACTS, "TTL": [1, 2, 3]}),
    "a column of texts": forged(DESCRIPTION, FIRST, TENANT, {**FACTS, "CREATED_AT": ["x"]}),
    "metadata of no row": forged(DESCRIPTION, FIRST, TENANT, {**FACTS, "metadata": {"x": {}}}),
    "limits of no row": forged(DESCRIPTION, FIRST, TENANT, {**FACTS, "limited": [7]}),
    "episodes of another shape": forged(
        DESCRIPTION, FIRST, TENANT, {"kind": "episodes", "episodes": [["x"]]}
    ),
}


@pytest.mark.parametrize("kind", FORGED)
def test_restore_of_a_forged_backup(kind: str, tmp_path: Path) -> None:
    file, to = tmp_path / "forged", tmp_path / "to"
    file.write_bytes(FORGED[kind])
    assert fails_in_one_sentence("restore", file, "--to", to) in (65, 78)
    assert not to.exists()
    to.mkdir()
    assert fails_in_one_sentence("restore", file, "--to", to) in (65, 78)
    assert list(to.iterdir()) == []
    (to / "own").write_text("stays")
    assert fails_in_one_sentence("restore", file, "--to", to) != 0
    assert (to / "own").read_text() == "stays"


def test_a_sound_backup_is_restored(backup: Path, tmp_path: Path) -> None:
    assert fails_in_one_sentence("restore", backup, "--to", tmp_path / "to") == 0
    assert fails_in_one_sentence("storage", "check", f"wal:{tmp_path / 'to'}") == 0
    info = BackupInfo((LogSeed("0" * 32, 1, 0),), 1)
    (tmp_path / "empty").write_bytes(b"".join(written(info, [[]])))
    assert fails_in_one_sentence("restore", tmp_path / "empty", "--to", tmp_path / "new") == 0


# -- folders and files of storages -----------------------------------------------------------------


def damage_one_file(folder: Path, chance: random.Random) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 9)
    file = chance.choice(files)
    file.write_bytes(damaged(file.read_bytes(), chance))


@pytest.mark.parametrize("shards", [1, 3])
def test_salvage_fsck_and_copies_of_a_damaged_folder(shards: int, tmp_path: Path) -> None:
    whole, broken, to = tmp_path / "whole", tmp_path / "broken", tmp_path / "to"
    filled(whole, shards)
    chance = random.Random(f"folder {shards}")
    for _ in range(VARIANTS // 25):
        shutil.copytree(whole, broken)
        damage_one_file(broken, chance)
        fails_in_one_sentence("fsck", broken)
        for arguments in (
            ("salvage", broken, "--to", to),
            ("salvage", broken, "--to", to, "--skip-damaged"),
            ("storage", "copy", f"wal:{broken}", f"wal:{to}"),
            ("storage", "copy", f"wal:{broken}", f"sqlite:{to}", "--shards", 1),
        ):
            if fails_in_one_sentence(*arguments):
                assert not to.exists(), arguments
            elif to.is_dir():
                shutil.rmtree(to)
            else:
                to.unlink()
        fails_in_one_sentence("storage", "check", f"wal:{broken}")
        shutil.rmtree(broken)


def test_checks_and_copies_of_a_damaged_file(tmp_path: Path) -> None:
    whole, broken, to = tmp_path / "whole", tmp_path / "broken", tmp_path / "to"
    filled(tmp_path, storage_backend="sqlite", storage_url=f"sqlite:{whole}")
    data, chance = whole.read_bytes(), random.Random("sqlite")
    for _ in range(VARIANTS // 10):
        broken.write_bytes(damaged(data, chance))
        fails_in_one_sentence("storage", "check", f"sqlite:{broken}")
        if fails_in_one_sentence("storage", "copy", f"sqlite:{broken}", f"wal:{to}"):
            assert not to.exists()
        shutil.rmtree(to, ignore_errors=True)
        for beside in tmp_path.glob("broken*"):
            beside.unlink()


# -- imported files --------------------------------------------------------------------------------


def rule_file(folder: Path) -> Iterator[tuple[str, bytes]]:
    yield "rules.kb", b"p(a).\nq(?x) :- p(?x).\n@confidence(0.5) p(b).\n" * 5
    yield "facts.csv", b"predicate,args\np,a\np,b\n" * 20
    yield "facts.jsonl", b'{"predicate": "p", "args": ["a"]}\n' * 20
    yield "facts.json", orjson.dumps([{"predicate": "p", "args": ["a"]}] * 20)


def table_file(folder: Path) -> Iterator[tuple[str, bytes]]:
    pa = pytest.importorskip("pyarrow")
    feather, parquet = (
        pytest.importorskip("pyarrow.feather"),
        pytest.importorskip("pyarrow.parquet"),
    )
    table = pa.table({"a": [str(n) for n in range(50)], "b": list(range(50))})
    feather.write_feather(table, folder / "t.arrow", compression="uncompressed")
    parquet.write_table(table, folder / "t.parquet")
    for name in ("t.arrow", "t.parquet"):
        yield name, (folder / name).read_bytes()


@pytest.mark.parametrize("files", [rule_file, table_file])
def test_loading_damaged_files(
    files: Callable[[Path], Iterator[tuple[str, bytes]]], tmp_path: Path
) -> None:
    for name, data in files(tmp_path):
        chance = random.Random(name)
        for number in range(VARIANTS // 5):
            tables, folder = tmp_path / "tables", tmp_path / f"{name}.{number}"
            tables.mkdir(exist_ok=True)
            file = tables / name
            file.write_bytes(damaged(data, chance))
            if files is table_file:
                fails_in_one_sentence("import", tables, "--storage-dir", folder)
                file.unlink()
            else:
                fails_in_one_sentence("load", file, "--storage-dir", folder, lines=1000)
