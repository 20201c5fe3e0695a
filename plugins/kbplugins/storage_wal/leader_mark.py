"""The file that says whom a storage follows; that it is there is what counts, also where nobody can read it."""

from __future__ import annotations

from kbplugins.storage_wal.files import Disk

NAME = "FOLLOWS"


class PledgeFile:
    """A part of stores that work on files: implements `kbcore.plug.ports.RemembersLeader`."""

    _disk: Disk
    _pledge_name = NAME
    _pledge: str | None = None

    def leader(self) -> str:
        """Return the address of the leader, "" for nobody; read once."""
        if self._pledge is None:
            there = self._pledge_name in self._disk.names()
            text = self._disk.read_file(self._pledge_name).decode("utf-8", "replace").strip() if there else ""
            self._pledge = text or ("an unknown leader" if there else "")
        return self._pledge

    def remember(self, leader: str) -> None:
        """Note it; durable on return."""
        if leader:
            self._disk.replace(self._pledge_name, leader.encode() + b"\n")
        elif self._pledge_name in self._disk.names():
            self._disk.unlink(self._pledge_name)
            self._disk.sync_folder()
        self._pledge = leader
