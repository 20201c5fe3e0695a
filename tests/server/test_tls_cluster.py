"""Nodes of a cluster that reach each other by https, with certificates of one CA."""

from __future__ import annotations

from pathlib import Path

from support.certificates import Authority, served_with
from support.nodes import Nodes, post
from support.replicas import until

BULK = 1000


def test_nodes_call_and_forward_over_https(tmp_path: Path, postgres_url: str) -> None:
    authority = Authority(tmp_path / "certificates")
    settings = served_with(
        authority, TLS_CLIENT_CA=str(authority.ca), CLUSTER_CA_FILE=str(authority.ca)
    )
    with Nodes(tmp_path, postgres_url, 2, **settings) as nodes:
        nodes.settled()
        pad = "x" * 200
        for tenant in (*nodes.tenants_of(0), *nodes.tenants_of(1)):
            for number, node in enumerate(nodes.nodes):
                facts = [{"predicate": "p", "args": [f"{number}-{n}", pad]} for n in range(BULK)]
                status, body, _ = post(node, "/assert/facts", {"facts": facts}, tenant)
                assert status == 200, body
            goal = {"predicate": "p", "args": ["?x", "?y"]}
            for node in nodes.nodes:
                status, rows, _ = post(node, "/query", goal, tenant)
                assert (status, len(rows)) == (200, 2 * BULK)
        assert post(nodes.nodes[1], "/admin/databases", {"name": "shop"})[0] == 201
        assert post(nodes.nodes[0], "/admin/databases/shop/tenants", {"id": "t"})[0] == 201


def test_a_node_with_a_foreign_certificate_is_refused(tmp_path: Path, postgres_url: str) -> None:
    authority = Authority(tmp_path / "certificates")
    stranger = Authority(tmp_path / "other", "stranger")
    trust = {"TLS_CLIENT_CA": str(authority.ca), "CLUSTER_CA_FILE": str(authority.ca)}
    log = tmp_path / "node0.1.log"
    with Nodes(tmp_path, postgres_url, 1, **served_with(authority, **trust)) as nodes:
        nodes.settled()
        nodes.add(**stranger.pair("foreign").settings(), trust=stranger.client())
        refused = "no TLS connection with 127.0.0.1: its certificate is refused"
        until(lambda: f"WARN kbserver.serve {refused}" in log.read_text(), 60)
        # A change of databases is announced to the other node, which is verified as well.
        assert post(nodes.nodes[0], "/admin/databases", {"name": "shop"})[0] == 503
        assert f"WARN kbserver.http.tls {refused}" in log.read_text()
