"""The coordinator in a folder meets the contract, and survives what happens to its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbcore import hookimpl, open_coordinator
from kbcore.errors import ConfigError, NotReady
from kbcore.plug.conformance import CoordinatorConformance
from kbcore.plug.ports import Coordinator
from kbplugins.coordinator_file import FileCoordinator

LONG_MS = 60_000


class TestFile(CoordinatorConformance):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.url = f"file:{tmp_path}/leases"

    def make_coordinator(self) -> Coordinator:
        return open_coordinator(self.url)


def test_a_plugin_offers_a_coordinator_by_the_scheme_of_its_url() -> None:
    class Plugin:
        @hookimpl
        def kb_coordinators(self):
            return {"mine": lambda url: ("opened", url)}

    assert open_coordinator("MINE:place", [Plugin()]) == ("opened", "MINE:place")


@pytest.mark.parametrize("url", ["file:", "file://host/folder"])
def test_a_url_without_a_folder_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="a folder is needed, such as file:/"):
        open_coordinator(url)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"the folder cannot be used \(Not a directory\)"):
        open_coordinator(f"file:{tmp_path}/file")


@pytest.mark.parametrize("url", ["", "folder", "zookeeper:/x", "://"])
def test_an_unknown_scheme_is_refused_with_the_choices(url: str) -> None:
    with pytest.raises(ConfigError, match=r"a URL begins with one of: .*file"):
        open_coordinator(url)


def test_the_secrets_of_a_refused_url_are_hidden() -> None:
    with pytest.raises(ConfigError) as refused:
        open_coordinator("zookeeper://user:hush@host/")
    assert "hush" not in str(refused.value)
    assert "user:***@host" in str(refused.value)


def test_a_renewal_whose_content_was_lost_does_not_lower_the_token(tmp_path: Path) -> None:
    first = FileCoordinator(f"file:{tmp_path}")
    lease = first.acquire("a", LONG_MS, b"")
    assert lease is not None
    assert first.renew(lease)
    (folder,) = (tmp_path / "leases").iterdir()
    largest = max(int(path.name) for path in folder.iterdir())
    (folder / str(largest)).write_bytes(b"")
    second = FileCoordinator(f"file:{tmp_path}")
    later = second.acquire("a", LONG_MS, b"")
    assert later is not None
    assert later.token > largest
    assert not first.renew(lease)
    first.close()
    second.close()


def test_the_token_is_kept_where_renewals_are_lost(tmp_path: Path) -> None:
    """Only what is synced survives a power failure: the acquisition, not the renewals after it."""
    first = FileCoordinator(f"file:{tmp_path}")
    lease = first.acquire("a", LONG_MS, b"")
    assert lease is not None
    for _ in range(3):
        assert first.renew(lease)
    (folder,) = (tmp_path / "leases").iterdir()
    names = sorted(int(path.name) for path in folder.iterdir())
    assert names == [lease.token, lease.token + 3]
    (folder / str(names[1])).unlink()
    first.close()
    second = FileCoordinator(f"file:{tmp_path}")
    later = second.acquire("a", LONG_MS, b"")
    assert later is not None
    assert later.token > lease.token
    second.close()


def test_a_process_stopped_before_its_link_does_not_win_later(tmp_path: Path, monkeypatch) -> None:
    """Its version was linked and removed by other processes, so that its link succeeds."""
    slow, fast = FileCoordinator(f"file:{tmp_path}"), FileCoordinator(f"file:{tmp_path}")
    fast.release(_acquired(fast))
    version, record = slow._latest(next((tmp_path / "leases").iterdir()))
    fast.release(_acquired(fast))
    lease = _acquired(fast)
    assert fast.renew(lease)
    monkeypatch.setattr(slow, "_latest", lambda folder: (version, record))
    assert slow.acquire("a", LONG_MS, b"") is None
    assert fast.renew(lease)
    assert [held.token for held in fast.leases("")] == [lease.token]
    slow.close()
    fast.close()


def _acquired(coordinator: Coordinator):
    lease = coordinator.acquire("a", LONG_MS, b"")
    assert lease is not None
    return lease


def test_a_new_boot_ends_leases_whose_holder_is_gone(tmp_path: Path, monkeypatch) -> None:
    """The time of another boot is not compared; the lock of the holder decides."""
    first = FileCoordinator(f"file:{tmp_path}")
    lease = _acquired(first)
    second = FileCoordinator(f"file:{tmp_path}")
    second._boot = "another"
    assert second.acquire("a", LONG_MS, b"") is None
    first.close()
    assert _acquired(second).token > lease.token
    second.close()


def test_the_files_of_ended_processes_are_removed(tmp_path: Path) -> None:
    (tmp_path / "holders").mkdir()
    (tmp_path / "holders" / "gone").write_text("")
    (tmp_path / "new" / "gone.made").mkdir(parents=True)
    (tmp_path / "new" / "gone.made" / "0").write_text("")
    (tmp_path / "new" / "gone.version").write_text("")
    coordinator = FileCoordinator(f"file:{tmp_path}")
    assert list((tmp_path / "new").iterdir()) == []
    assert [path.name for path in (tmp_path / "holders").iterdir()] == [coordinator._id]
    coordinator.close()
    assert list((tmp_path / "holders").iterdir()) == []


def test_a_closed_coordinator_refuses_work(tmp_path: Path) -> None:
    coordinator = FileCoordinator(f"file:{tmp_path}")
    lease = _acquired(coordinator)
    coordinator.close()
    assert not coordinator.renew(lease)
    for call in (lambda: coordinator.acquire("a", 1, b""), lambda: coordinator.leases("")):
        with pytest.raises(NotReady, match="the coordinator is closed"):
            call()
