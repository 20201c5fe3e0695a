"""The cluster of a node: its state, and the placement of its shards. Any node answers."""

from __future__ import annotations

from typing import Any

from flask import Response

from kbcore.errors import NotFound
from kbcore.node.other_processes import Cluster
from kbcore.node.shard_layout import shard_of
from kbcore.state.catalog import DEFAULT
from kbcore.state.keys import ADMIN
from kbserver.answers import as_json
from kbserver.http.request_context import runtime
from kbserver.operations import as_object, operation
from kbserver.schemas.node import ClusterStatus, DrainBody, MoveBody
from kbserver.schemas.requests import Nothing, load
from kbserver.security.permissions import About

_NODE: dict[str, Any] = {"role": ADMIN, "about": About.NODE, "tenant": False}
_STATUS = as_object("The nodes of the cluster and their shards.", ClusterStatus)


@operation("GET /admin/cluster", replies=(_STATUS,), errors=(404,), **_NODE)
def status() -> Response:
    """Show the nodes of the cluster, which of them has which shard, and what is moving."""
    return _shown(_cluster())


@operation(
    "POST /admin/cluster/move",
    replies=(as_object("The cluster; the shard moves within seconds.", ClusterStatus),),
    body=MoveBody,
    errors=(404,),
    **_NODE,
)
def move() -> Response:
    """Move a shard, or the shard of a tenant, to a node, where it stays."""
    body, cluster = load(MoveBody), _cluster()
    if "shard" in body:
        shard: int = body["shard"]
    else:
        shard = shard_of(body.get("database", DEFAULT), body["tenant_id"], cluster.count)
    cluster.control(lambda control: control.move(shard, body["node"]))
    return _shown(cluster)


@operation(
    "POST /admin/cluster/drain",
    replies=(as_object("The cluster; the shards move within seconds.", ClusterStatus),),
    body=DrainBody,
    errors=(404,),
    **_NODE,
)
def drain() -> Response:
    """Move all shards away from a node; it gets none until the shards are balanced again."""
    body, cluster = load(DrainBody), _cluster()
    cluster.control(lambda control: control.drain(body["node"]))
    return _shown(cluster)


@operation(
    "POST /admin/cluster/rebalance",
    replies=(as_object("The cluster; the shards move within seconds.", ClusterStatus),),
    body=Nothing,
    errors=(404,),
    **_NODE,
)
def rebalance() -> Response:
    """Forget all moves and drains, and spread the shards over all live nodes by weight."""
    load(Nothing)
    cluster = _cluster()
    cluster.control(lambda control: control.rebalance())
    return _shown(cluster)


def _cluster() -> Cluster:
    peers = runtime().peers
    cluster = None if peers is None else peers.cluster
    if cluster is None:
        raise NotFound("this server is not a node of a cluster", {"setting": "CLUSTER_URL"})
    return cluster


def _shown(cluster: Cluster) -> Response:
    seen = cluster.control(lambda control: control.status())
    return as_json(seen | {"node": cluster.name, "open": cluster.open_shards()})
