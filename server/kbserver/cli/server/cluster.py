"""`kbcore cluster`: create a cluster, see its nodes, and move shards between them.

The commands ask the database of the cluster, so they also work while no node runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbplanner.syntax.diagnostics import counted
from kbserver.cli.shared.exits import fail, reports_errors
from kbserver.cli.shared.groups import CommandGroup
from kbserver.cli.shared.output import Listing, Output, output_options

if TYPE_CHECKING:
    from kbcore.cluster.control import ClusterControl
    from kbcore.cluster.records import ClusterRecord

T = TypeVar("T")

_SHOWN_SHARDS = 12
_POLL_SECONDS = 0.2

NOT_SETTLED = 1
"""Exit status if `--wait` was too short."""


def _url_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--cluster-url",
        metavar="URL",
        help="Storage of the cluster, such as postgresql://user@host/database; default: the setting CLUSTER_URL",
    )(command)


@click.group("cluster", cls=CommandGroup)
def cluster() -> None:
    """Create a cluster, see its nodes, and move shards."""


@cluster.command("create")
@click.option(
    "--shards",
    metavar="NUMBER",
    help="Number of shards, which never changes; each holds some of the tenants. Default: 64",
)
@_url_option
@reports_errors
def create(shards: str | None, cluster_url: str | None) -> None:
    """Create the storage of a cluster, unless it exists.

    The first node does this too, with 64 shards.
    """
    record, is_new = _opened(cluster_url, shards, lambda control, record, is_new: (record, is_new))
    click.echo(f"cluster {'created' if is_new else 'exists'}, {counted(record.shards, 'shard')}")


@cluster.command("status")
@click.option(
    "--wait",
    type=float,
    metavar="SECONDS",
    help="Wait until every shard is on its node; exit with status 1 if that takes longer",
)
@click.option(
    "--nodes", type=int, metavar="NUMBER", help="With --wait: wait for this number of nodes too"
)
@_url_option
@output_options
@reports_errors
def status(wait: float | None, nodes: int | None, cluster_url: str | None, output: Output) -> None:
    """List the live nodes and their shards."""
    seen = _controlled(cluster_url, lambda control: _settled(control, wait or 0.0, nodes))
    output.show(
        Listing(
            seen["nodes"],
            ("node", "state", "weight", "shards", "url"),
            lambda row: (
                row["name"],
                row["state"],
                row["weight"],
                len(row["shards"]),
                row["url"],
            ),
            lambda row: (
                f"{row['name']}  {row['state']}, {counted(len(row['shards']), 'shard')}: {_short(row['shards'])}"
            ),
        )
    )
    if seen["unowned"]:
        click.echo(f"no node has the shards {_short(seen['unowned'])}", err=True)
    if seen["moving"]:
        click.echo(f"moving: {counted(len(seen['moving']), 'shard')}", err=True)
    if wait is not None and not _is_settled(seen, nodes):
        fail("the shards are not all on their nodes yet", NOT_SETTLED)


@cluster.command("move")
@click.argument("shard", type=int)
@click.argument("node")
@_url_option
@reports_errors
def move(shard: int, node: str, cluster_url: str | None) -> None:
    """Move shard SHARD to node NODE, where it stays until `rebalance`."""
    _controlled(cluster_url, lambda control: control.move(shard, node))
    click.echo(f"shard {shard} moves to {node}")


@cluster.command("locate")
@click.argument("tenant")
@click.option("--database", default="default", metavar="NAME", help="Database of the tenant")
@_url_option
@reports_errors
def locate(tenant: str, database: str, cluster_url: str | None) -> None:
    """Show the shard of tenant TENANT and the node that has it."""
    placement = import_module("kbcore.node.shard_layout")
    seen = _controlled(cluster_url, lambda control: control.status())
    shard = placement.shard_of(database, tenant, seen["shards"])
    owner = next((node["name"] for node in seen["nodes"] if shard in node["shards"]), "no node")
    click.echo(f"shard {shard}, {owner}")


@cluster.command("drain")
@click.argument("node")
@_url_option
@reports_errors
def drain(node: str, cluster_url: str | None) -> None:
    """Move all shards away from node NODE; it gets none until `rebalance`."""
    _controlled(cluster_url, lambda control: control.drain(node))
    click.echo(f"the shards of {node} move to the other nodes")


@cluster.command("rebalance")
@_url_option
@reports_errors
def rebalance(cluster_url: str | None) -> None:
    """Forget all moves and drains, and spread the shards over all live nodes by weight."""
    _controlled(cluster_url, lambda control: control.rebalance())
    click.echo("the shards are spread over all nodes")


def _is_settled(seen: dict[str, Any], nodes: int | None) -> bool:
    """Return True if every shard is on its node, and the number of nodes is as expected."""
    live = [node for node in seen["nodes"] if node["state"] != "leaving"]
    return not (seen["unowned"] or seen["moving"]) and nodes in (None, len(live))


def _settled(control: ClusterControl, seconds: float, nodes: int | None) -> dict[str, Any]:
    """Return the cluster when it is settled, or as it is after some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        seen = control.status()
        if _is_settled(seen, nodes) or time.monotonic() >= deadline:
            return seen
        time.sleep(_POLL_SECONDS)


def _short(shards: list[int]) -> str:
    numbers = ", ".join(map(str, shards[:_SHOWN_SHARDS]))
    return f"{numbers} ..." if len(shards) > _SHOWN_SHARDS else numbers or "none"


def _controlled(url: str | None, use: Callable[[ClusterControl], T]) -> T:
    return _opened(url, None, lambda control, record, is_new: use(control), must_exist=True)


def _opened(
    url: str | None,
    shards: str | None,
    use: Callable[[ClusterControl, ClusterRecord, bool], T],
    *,
    must_exist: bool = False,
) -> T:
    """Call `use` with a cluster; create it if it does not exist and need not."""
    settings = import_module("kbcore.config.settings")
    errors = import_module("kbcore.errors")
    joining = import_module("kbserver.cluster.joining")
    control = import_module("kbcore.cluster.control")
    texts = {"CLUSTER_URL": url, "STORAGE_SHARDS": shards}
    config = settings.Config.from_env().updated({k: v for k, v in texts.items() if v is not None})
    if not config.cluster_url:
        raise errors.ConfigError(
            "set --cluster-url, or CLUSTER_URL, to the storage of the cluster, such as"
            " postgresql://user@host/database"
        )
    plugins = import_module("kbcore.plug.manager").Plugins(config)
    opened = joining.find_cluster if must_exist else joining.open_cluster
    coordinator, record, is_new = opened(config, plugins)
    try:
        return use(control.ClusterControl(coordinator, record), record, is_new)
    finally:
        coordinator.close()
