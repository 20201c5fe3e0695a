"""Leader mark: stores in the log which leader the log follows.

While the mark is set, only records from that leader may be appended. The settings name the leader
too, but a command on the folder of a stopped follower does not see the settings of its server.
"""

from __future__ import annotations

from kbcore.config.settings import Config
from kbcore.errors import ConfigError
from kbcore.plug.ports import LogStore, RemembersLeader


def leader_of(store: LogStore) -> str:
    """Return the leader's address, or "" if the storage has or supports no leader mark."""
    return store.leader() if isinstance(store, RemembersLeader) else ""


def pledge(store: LogStore, leader: str) -> None:
    """Set the leader mark durably, "" to clear it; raises StorageFull, StorageFailed."""
    if isinstance(store, RemembersLeader) and store.leader() != leader:
        store.remember(leader)


def check_allegiance(store: LogStore, config: Config) -> None:
    """Raise ConfigError if a node would lead with the storage of an unpromoted follower."""
    if config.replication_mode == "LEADER" and (leader := leader_of(store)):
        raise stray(leader, "REPLICATION_MODE=LEADER")


def stray(leader: str, setting: str) -> ConfigError:
    """Return the error for serving the storage of a follower as a standalone node."""
    return ConfigError(
        f"{setting}: this storage follows {leader}; start it with REPLICATION_MODE=FOLLOWER, or make it a leader first"
        " with `kbcore promote`"
    )
