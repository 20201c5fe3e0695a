"""Every way in with every kind of key: one process, two workers, two nodes of a cluster.

Each cell is compared with the documented role, see `support/permission_matrix.py`. In every shape
all routes and all callers are tried, over a connection to each process: the one that owns the
tenant, and the one that passes requests on. Tools and agents are tried with all callers on each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from flask import Blueprint
from pluggy import HookimplMarker
from support.http import serve_in_memory
from support.issuer import Issuer
from support.nodes import Nodes
from support.permission_matrix import (
    DOCUMENTED,
    DOCUMENTED_TOOLS,
    ROOT_KEY,
    SETTINGS,
    Caller,
    Entry,
    Need,
    Subject,
    allowed_cells,
    bearer,
    direct,
    health,
    in_page_form,
    pinned,
    refused_cells,
    tool_cells,
)
from support.postgres import schema
from support.servers import Server
from support.workers import SHARDS, children, holders, paused, tenants_of, until

from kbcore.config import Config
from kbcore.encryption.master_key import create_key
from kbcore.node.api_keys import KeyWanted
from kbcore.node.opening import open_runtime
from kbserver import create_app, operations
from kbserver.mcp.tools import all_tools

hookimpl = HookimplMarker("kbcore")

ROUTES = sorted(operations.routes())
HEADS = [("HEAD", template) for method, template in ROUTES if method == "GET"]
SHAPES = ("process", "workers", "cluster")


@dataclass
class Shape:
    """A deployment: its content, and a way in through each process, the owner of the tenant
    first.
    """

    subject: Subject
    entries: list[Entry]


def settings_with(issuer) -> dict[str, str]:
    return {**SETTINGS, "OAUTH_ISSUER": issuer.url, "PUBLIC_URL": "https://kb.example"}


def receipt_key(folder) -> str:
    """Return the path of a new key for receipts."""
    path = str(folder / "receipt.key")
    create_key(path)
    return path


@contextmanager
def one_process(folder) -> Iterator[Shape]:
    with (
        Issuer() as issuer,
        Server(
            folder / "data",
            log=folder / "log",
            REPLICATION_MODE="LEADER",
            RECEIPT_KEY_FILE=receipt_key(folder),
            **settings_with(issuer),
        ) as server,
        Entry(direct(server.address)) as root,
        Entry(direct(server.address)) as entry,
    ):
        yield Shape(Subject(root, "a", "b", issuer), [entry])


@contextmanager
def two_workers(folder) -> Iterator[Shape]:
    with (
        Issuer() as issuer,
        Server(
            folder / "data",
            "--workers",
            "2",
            log=folder / "log",
            STORAGE_SHARDS=str(SHARDS),
            **settings_with(issuer),
        ) as server,
    ):
        pids = until(lambda: len(children(server)) == 2 and children(server), "two workers")

        def worker(index: int) -> Entry:
            def opened(first) -> None:
                with paused(pids[1 - index]):
                    first()

            return Entry(pinned(server.address, opened), health)

        tenant, other = tenants_of(0, 2)
        with Entry(direct(server.address)) as root, worker(0) as owner, worker(1) as passing:
            yield Shape(Subject(root, tenant, other, issuer), [owner, passing])
            for index, entry in enumerate((owner, passing)):
                entry.send("GET", "/health", {})
                assert holders(server, entry.port) == [index], "a connection went to another worker"


@contextmanager
def two_nodes(folder, url) -> Iterator[Shape]:
    # A slow machine must not lose its shards while the matrix runs.
    with (
        Issuer() as issuer,
        Nodes(folder, url, 2, CLUSTER_TTL_MS="10000", **settings_with(issuer)) as nodes,
    ):
        nodes.headers = bearer(ROOT_KEY)
        nodes.settled(seconds=180)
        tenant, other = nodes.tenants_of(0, 2)
        first, second = (direct(node.address) for node in nodes.nodes)
        with Entry(first) as root, Entry(first) as owner, Entry(second) as passing:
            subject = Subject(root, tenant, other, issuer)
            yield Shape(subject, [owner, passing])


@pytest.fixture(scope="module", params=SHAPES)
def shape(request, tmp_path_factory) -> Iterator[Shape]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "process":
        with one_process(folder) as running:
            yield running
    elif request.param == "workers":
        with two_workers(folder) as running:
            yield running
    else:
        with (
            schema(request.getfixturevalue("postgres_server")) as url,
            two_nodes(folder, url) as running,
        ):
            yield running


# -- the pages are complete ------------------------------------------------------------------------


def test_the_page_names_every_route_with_its_role_and_no_other() -> None:
    with serve_in_memory() as served:
        rules = {
            (method, in_page_form(rule.rule))
            for rule in served.app.url_map.iter_rules()
            for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        }
    assert sorted(rules - set(DOCUMENTED)) == [], "routes without a documented role"
    assert sorted(set(DOCUMENTED) - rules) == [], "documented routes that do not exist"


def test_the_page_names_every_tool_with_its_role_and_no_other() -> None:
    assert sorted(DOCUMENTED_TOOLS) == sorted(all_tools())


# -- the matrix ------------------------------------------------------------------------------------
# The tests run in this order on one server of each shape; the last ones delete its content.


def test_what_the_page_refuses_is_refused_and_changes_nothing(shape) -> None:
    before = shape.subject.state()
    for entry in shape.entries:
        wrong = list(refused_cells(shape.subject, entry, [*ROUTES, *HEADS]))
        assert wrong == []
    assert shape.subject.state() == before


def test_tools_and_agents_that_the_page_refuses_are_refused_and_change_nothing(shape) -> None:
    before = shape.subject.state()
    for entry in shape.entries:
        assert list(tool_cells(shape.subject, entry, allowed=False)) == []
    assert shape.subject.state() == before


def test_the_first_key_is_made_once_even_with_the_right_token(shape) -> None:
    subject = shape.subject
    before = subject.state()
    for entry in shape.entries:
        for caller in subject.callers[:2]:
            target, body = subject.request("POST", "/auth/bootstrap")
            answer = entry.send("POST", target, subject.headers(caller), body)
            assert answer.status == 403, answer
    assert subject.state() == before


NOT_CARRIED_OUT = {
    "POST /admin/promote": {409},
    "GET /admin/cluster": {404},
    "POST /admin/cluster/drain": {404},
    "POST /admin/cluster/move": {404},
    "POST /admin/cluster/rebalance": {404},
    "POST /context/optimize": {200, 410},
    "POST /extract": {502},
    "POST /synthesize": {502},
    "GET /mcp": {400},
    "DELETE /mcp": {400},
    "POST /mcp/messages": {404},
    "GET /replication/log": {409, 410},
}
"""Requests that a server of one process refuses for another reason than the key."""


def test_requests_of_the_matrix_are_real(tmp_path) -> None:
    """An administrator's request to each route is carried out: else its refusal would show
    nothing.
    """
    with one_process(tmp_path) as shape:
        subject, (entry,) = shape.subject, shape.entries
        root = next(c for c in subject.callers if c.name == "the key of the setting")
        failed = {}
        for method, template in subject.order(ROUTES):
            if template == "/auth/bootstrap":
                continue
            target, body = subject.request(method, template)
            answer = entry.send(method, target, subject.headers(root), body)
            expected = NOT_CARRIED_OUT.get(f"{method} {template}", range(200, 400))
            if answer.status not in expected:
                failed[f"{method} {template}"] = answer
        assert failed == {}


def test_what_the_page_allows_is_not_refused(shape) -> None:
    for entry in shape.entries:
        assert list(tool_cells(shape.subject, entry, allowed=True)) == []
    for entry in shape.entries:
        assert list(allowed_cells(shape.subject, entry, [*HEADS, *ROUTES])) == []


# -- routes of plugins -----------------------------------------------------------------------------


class PluginRoutes:
    """A plugin with a route that takes every method."""

    @hookimpl
    def kb_http_blueprints(self, runtime):
        blueprint = Blueprint("shown", __name__)
        blueprint.add_url_rule(
            "/shown", "shown", lambda: "shown", methods=["GET", "POST", "PUT", "PATCH", "DELETE"]
        )
        return [blueprint]


PLUGIN_CALLERS = (
    (None, {}),
    *(
        (role, limits)
        for role in ("reader", "writer", "admin")
        for limits in ({}, {"tenants": ("a",)}, {"tenants": ("b",)}, {"databases": ("shop",)})
    ),
    ("replica", {}),
)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def test_routes_of_plugins_read_with_get_and_write_with_other_methods(method) -> None:
    config = Config(storage_backend="memory", auth_enabled=True)
    runtime = open_runtime(config, plugins=(PluginRoutes(),))
    try:
        client = create_app(runtime).test_client()
        need = Need("reader" if method in ("GET", "HEAD") else "writer", "the tenant")
        for role, limits in PLUGIN_CALLERS:
            headers = {"X-Tenant-ID": "a"}
            if role is not None:
                wanted = KeyWanted(role, role, **limits)
                headers |= bearer(runtime.keys().create(wanted).secret)
            caller = Caller(str(role), headers, role, **limits)
            answer = client.open("/x/shown", method=method, headers=headers)
            expected = caller.refusal(need, "a") or 200
            assert answer.status_code == expected, (role, limits, answer.text)
    finally:
        runtime.close()
