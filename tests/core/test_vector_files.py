"""Files of vectors: whatever a crash leaves, what is read is a beginning of what was written."""

from __future__ import annotations

import logging
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbcore.encryption.key_folder import KeyFolder
from kbcore.encryption.sealer import FileSealer, Sealer
from kbcore.search.vectors.files import HEADER_BYTES, VectorFile, erased_in
from kbcore.search.vectors.store import entry_of

ENTRIES = [entry_of(f"text {n}", array("f", [n + 1, -1, 0.5])) for n in range(20)]


SEALERS: list[FileSealer | None] = [None]


@pytest.fixture(params=["plain", "encrypted"], scope="module", autouse=True)
def sealer(request, tmp_path_factory) -> None:
    """Every test runs on plain and on encrypted files."""
    SEALERS[0] = None
    if request.param == "encrypted":
        keys = KeyFolder.need(str(tmp_path_factory.mktemp("keys")), bytes(range(32))).log("0" * 32)
        log = Sealer(keys)
        SEALERS[0] = FileSealer(lambda: log, ("database", "tenant"))


def file_of(folder, model="model"):
    return VectorFile(folder / "vectors" / "t.kbv", model, 3, SEALERS[0])


def test_a_plain_file_is_not_read_as_an_encrypted_one_nor_the_other_way(tmp_path, full):
    other = None if SEALERS[0] else FileSealer(lambda: pytest.fail("not opened"), ("d", "t"))
    assert VectorFile(full, "model", 3, other).read() == []


def test_an_encrypted_file_has_no_bytes_of_its_entries(full):
    cells = bytes(ENTRIES[3].digest)
    assert (cells in full.read_bytes()) == (SEALERS[0] is None)


@pytest.fixture
def full(tmp_path):
    file = file_of(tmp_path)
    file.append(ENTRIES[:10], 7)
    file.append(ENTRIES[10:], 9)
    return file.path


def test_entries_come_back(tmp_path, full):
    file = file_of(tmp_path)
    assert file.read() == ENTRIES
    assert (file.entries, file.erased, erased_in(full)) == (20, 7, 7)
    file.replace(ENTRIES[5:], 12)
    file.append(ENTRIES[:2], 99)
    assert file_of(tmp_path).read() == [*ENTRIES[5:], *ENTRIES[:2]]
    assert erased_in(full) == 12
    assert [path.name for path in full.parent.iterdir()] == ["t.kbv"]


def test_a_missing_file_is_empty(tmp_path):
    assert file_of(tmp_path).read() == []
    assert erased_in(tmp_path / "none") is None


@given(data=st.data())
@examples(100)
def test_a_torn_or_damaged_file_is_read_up_to_the_damage(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("vectors")
    file = file_of(folder)
    file.append(ENTRIES, 3)
    whole = bytearray(file.path.read_bytes())
    if data.draw(st.booleans(), label="torn"):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.path.write_bytes(whole)
    again = file_of(folder)
    read = again.read()
    assert read == ENTRIES[: len(read)]
    if len(whole) >= HEADER_BYTES and erased_in(file.path) == 3:
        again.append(ENTRIES[len(read) :], 3)  # over what is damaged
    else:
        assert read == []
        again.append(ENTRIES, 3)
    assert file_of(folder).read() == ENTRIES


def test_a_damaged_header_counts_as_nothing_erased(full, caplog, tmp_path):
    full.write_bytes(b"x" * 100)
    with caplog.at_level(logging.WARNING, "kbcore.vectors"):
        assert file_of(tmp_path).read() == []
    assert "made again" in caplog.text
    assert erased_in(full) == 0


def test_a_failed_replacement_leaves_the_file_as_it_was(tmp_path, full, monkeypatch):
    file = file_of(tmp_path)
    file.read()

    def fail(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        file.replace([], 30)
    monkeypatch.undo()
    assert file_of(tmp_path).read() == ENTRIES
    assert [path.name for path in full.parent.iterdir()] == ["t.kbv"]
