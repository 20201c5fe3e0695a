"""Whom a storage follows, noted in the storage itself: nothing is written there meanwhile but what comes from that leader.

Settings say it too, but a command on the folder of a stopped follower does not see the settings of its server.
"""

from __future__ import annotations

from kbcore.config.settings import Config
from kbcore.errors import ConfigError
from kbcore.plug.ports import LogStore, RemembersLeader


def leader_of(store: LogStore) -> str:
    """The address of the leader, "" where the storage follows nobody, or is of a kind that cannot say."""
    return store.leader() if isinstance(store, RemembersLeader) else ""


def pledge(store: LogStore, leader: str) -> None:
    """Note durably whom the storage follows from now on, "" for nobody; raises StorageFull, StorageFailed."""
    if isinstance(store, RemembersLeader) and store.leader() != leader:
        store.remember(leader)


def check_allegiance(store: LogStore, config: Config) -> None:
    """Raise ConfigError where a node is to lead with the storage of a follower that nobody has promoted."""
    if config.replication_mode == "LEADER" and (leader := leader_of(store)):
        raise stray(leader, "REPLICATION_MODE=LEADER")


def stray(leader: str, setting: str) -> ConfigError:
    """The refusal to serve the storage of a follower as if it were nobody's."""
    return ConfigError(
        f"{setting}: this storage follows {leader}; start it with REPLICATION_MODE=FOLLOWER, or make it a leader first"
        " with `kbcore promote`"
    )
