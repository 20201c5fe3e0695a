"""The leader mark: a file with the leader that a storage follows. Its existence counts, even if unreadable."""

from __future__ import annotations

from kbplugins.storage_wal.files import Disk

NAME = "FOLLOWS"


class LeaderMark:
    """A part of stores that work on files: implements `kbcore.plug.ports.RemembersLeader`."""

    _disk: Disk
    _mark_name = NAME
    _leader: str | None = None

    def leader(self) -> str:
        """Return the address of the leader, "" for none; read once."""
        if self._leader is None:
            there = self._mark_name in self._disk.names()
            text = (
                self._disk.read_file(self._mark_name).decode("utf-8", "replace").strip()
                if there
                else ""
            )
            self._leader = text or ("an unknown leader" if there else "")
        return self._leader

    def remember(self, leader: str) -> None:
        """Store the address; durable on return."""
        if leader:
            self._disk.replace(self._mark_name, leader.encode() + b"\n")
        elif self._mark_name in self._disk.names():
            self._disk.unlink(self._mark_name)
            self._disk.sync_folder()
        self._leader = leader
