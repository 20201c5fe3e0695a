"""The leader mark: a file with the address of the leader that this log follows.

If the file exists, the log follows a leader, even if the file is unreadable.
"""

from __future__ import annotations

from kbplugins.storage_wal.files import Disk

NAME = "FOLLOWS"


class LeaderMark:
    """The leader mark of stores on files; implements `kbcore.plug.ports.RemembersLeader`."""

    _disk: Disk
    _mark_name = NAME
    _leader: str | None = None

    def leader(self) -> str:
        """Return the address of the leader, "" for none; read once."""
        if self._leader is None:
            self._leader = ""
            if self._mark_name in self._disk.names():
                text = self._disk.read_file(self._mark_name).decode("utf-8", "replace")
                self._leader = text.strip() or "an unknown leader"
        return self._leader

    def remember(self, leader: str) -> None:
        """Store the address; durable on return."""
        if leader:
            self._disk.replace(self._mark_name, leader.encode() + b"\n")
        elif self._mark_name in self._disk.names():
            self._disk.unlink(self._mark_name)
            self._disk.sync_folder()
        self._leader = leader
