"""Nodes that share a PostgreSQL storage: one server for their clients, whichever node they ask."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time

import pytest
from support.followers import GoalFollower, GoalWriter
from support.nodes import SHARDS, TTL_MS, Nodes, post
from support.postgres import schema
from support.replicas import get, until
from support.workers import until as wait_until

from kbcore.node.shard_layout import shard_of

ADMIN_KEY = "admin-key-0123456789"


@pytest.fixture(scope="module")
def running(tmp_path_factory, postgres_server):
    with (
        schema(postgres_server) as url,
        Nodes(tmp_path_factory.mktemp("pair"), url, 2) as nodes,
    ):
        nodes.settled()
        yield nodes


@pytest.fixture
def pair(running):
    """Two nodes that both have shards, for tests that stop none."""
    post(running.nodes[0], "/admin/cluster/rebalance", {})
    running.settled()
    return running


@pytest.fixture
def own_pair(tmp_path, postgres_url):
    """Two nodes of this test alone."""
    with Nodes(tmp_path, postgres_url, 2) as nodes:
        nodes.settled()
        yield nodes


def tell(server, value, tenant, **headers):
    return post(server, "/tell", {"predicate": "p", "args": [value]}, tenant, **headers)


def values(server, tenant):
    status, rows, _ = post(server, "/query", {"predicate": "p", "args": ["?x"]}, tenant)
    assert status == 200, rows
    return {row["args"][0] for row in rows}


def test_any_node_answers_for_any_tenant(pair):
    first, second = pair.nodes
    tenants = [*pair.tenants_of(0), *pair.tenants_of(1)]
    assert len(set(tenants)) == 6
    for tenant in tenants:
        for value, node in (("a", first), ("b", second)):
            status, text, headers = tell(node, value, tenant)
            assert (status, text) == (200, f"Fact Asserted: p({value})")
            assert int(headers["X-Commit-Seq"]) > 0
        assert values(first, tenant) == values(second, tenant) == {"a", "b"}
    for node in pair.nodes:
        status, body, _ = get(node, "/admin/databases/default/tenants")
        assert status == 200
        assert set(tenants) <= set(json.loads(body))


def test_a_database_that_one_node_creates_exists_on_all(pair):
    for number, node in enumerate(pair.nodes):
        status, _, _ = post(node, "/admin/databases", {"name": f"shop{number}"})
        assert status == 201
        for index, other in enumerate(pair.nodes):
            tenant = f"of{index}"
            assert tell(other, "a", tenant, X_Database=f"shop{number}")[0] == 200
    connection = http.client.HTTPConnection(*pair.nodes[1].address)
    connection.request("DELETE", "/admin/databases/shop0")
    assert connection.getresponse().status == 200
    connection.close()
    for node in pair.nodes:
        for tenant in (*pair.tenants_of(0, 2), *pair.tenants_of(1, 2)):
            assert tell(node, "a", tenant, X_Database="shop0")[0] == 404
            assert tell(node, "a", tenant, X_Database="shop1")[0] == 200


def test_a_revoked_key_is_refused_by_every_node(tmp_path, postgres_url):
    with Nodes(
        tmp_path, postgres_url, 2, AUTH_ENABLED="true", BOOTSTRAP_TOKEN="let-me-in-0123456789"
    ) as nodes:
        until(lambda: get(nodes.nodes[0], "/health/ready")[0] == 200)
        status, made, _ = post(
            nodes.nodes[1], "/auth/bootstrap", {"token": "let-me-in-0123456789", "name": "root"}
        )
        assert status == 201, made
        root = {"Authorization": f"Bearer {made['key']}"}

        # Without the key: a node that does not have it yet would count it as a wrong one.
        until(lambda: all(get(node, "/health/ready")[0] == 200 for node in nodes.nodes))
        until(lambda: len({get(node, "/auth/status")[1] for node in nodes.nodes}) == 1)
        status, key, _ = post(
            nodes.nodes[0], "/auth/keys", {"name": "agent", "role": "writer"}, **root
        )
        assert status == 201, key
        agent = {"Authorization": f"Bearer {key['key']}"}
        for node in nodes.nodes:
            for tenant in ("t1", "t2", "t3"):
                assert tell(node, "a", tenant)[0] == 401
                assert tell(node, "a", tenant, **agent)[0] == 200
        connection = http.client.HTTPConnection(*nodes.nodes[1].address)
        connection.request("DELETE", f"/auth/keys/{key['id']}", headers=root)
        assert connection.getresponse().status == 200
        connection.close()
        for node in nodes.nodes:
            for tenant in ("t1", "t2", "t3"):
                assert tell(node, "a", tenant, **agent)[0] == 401


def test_clients_notice_no_join_and_no_leave(own_pair):
    nodes = own_pair
    tenants = [f"t{number}" for number in range(4)]
    problems, counts, stop = [], dict.fromkeys(tenants, 0), threading.Event()

    def write(tenant):
        while not stop.is_set():
            number = counts[tenant]
            status, text, _ = post(
                nodes.nodes[0], "/tell", {"predicate": "n", "args": [str(number)]}, tenant
            )
            if status != 200:
                problems.append((status, text))
                return
            counts[tenant] = number + 1

    threads = [threading.Thread(target=write, args=(tenant,)) for tenant in tenants]
    for thread in threads:
        thread.start()
    assert nodes.nodes[1].stop() == 0
    nodes.settled(alive=[0])
    assert nodes.shards_of(0) == list(range(SHARDS))
    nodes.start(1)
    nodes.settled()
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert nodes.shards_of(1)
    for tenant in tenants:
        body = {"predicate": "n", "args": ["?x"]}
        for node in nodes.nodes:
            rows = post(node, "/query", body, tenant)[1]
            assert {int(row["args"][0]) for row in rows} == set(range(counts[tenant]))


def test_another_node_takes_the_tenants_of_one_that_was_killed(own_pair):
    tenants = own_pair.tenants_of(1)
    for tenant in tenants:
        assert tell(own_pair.nodes[1], "a", tenant)[0] == 200
    own_pair.nodes[1].kill()
    begun = time.monotonic()
    for tenant in tenants:
        until(lambda tenant=tenant: tell(own_pair.nodes[0], "b", tenant)[0] == 200)
        assert values(own_pair.nodes[0], tenant) == {"a", "b"}
    assert time.monotonic() - begun < 20 * TTL_MS / 1000  # the benchmark has the figure
    own_pair.start(1)
    own_pair.settled()
    assert own_pair.shards_of(1)
    assert values(own_pair.nodes[1], tenants[0]) == {"a", "b"}


def test_a_paused_node_neither_writes_nor_reads_what_another_one_has(own_pair):
    tenant = own_pair.tenants_of(1, 1)[0]
    assert tell(own_pair.nodes[1], "a", tenant)[0] == 200
    own_pair.signal(1, signal.SIGSTOP)
    connection = http.client.HTTPConnection(*own_pair.nodes[1].address, timeout=30)
    body = json.dumps({"predicate": "p", "args": ["?x"]})
    headers = {"Content-Type": "application/json", "X-Tenant-ID": tenant}
    connection.request("POST", "/query", body, headers)  # it waits in the socket of the node
    until(lambda: tell(own_pair.nodes[0], "b", tenant)[0] == 200)
    own_pair.signal(1, signal.SIGCONT)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status == 200:  # from the new owner
        assert {row["args"][0] for row in json.loads(text)} == {"a", "b"}
    else:
        assert answer.status == 503
        assert json.loads(text)["details"]["outcome"] in ("not_done", "unknown")
    own_pair.settled()
    assert values(own_pair.nodes[1], tenant) == values(own_pair.nodes[0], tenant) == {"a", "b"}


def test_move_drain_and_rebalance(pair):
    tenant = pair.tenants_of(0, 1)[0]
    assert tell(pair.nodes[0], "a", tenant)[0] == 200
    text = {"text": "q(?x) :- p(?x).", "message": "m"}
    assert post(pair.nodes[0], "/rulesets/access", text, tenant, method="PUT")[0] == 200
    rule_set = get(pair.nodes[0], "/rulesets/access", X_Tenant_ID=tenant)[1]
    assert json.loads(rule_set)["version"] == 1
    status, seen, _ = post(
        pair.nodes[1], "/admin/cluster/move", {"tenantId": tenant, "node": pair.name(1)}
    )
    shard = shard_of("default", tenant, SHARDS)
    assert status == 200
    assert seen["moved"] == [{"shard": shard, "node": pair.name(1)}]
    pair.settled()
    assert shard in pair.shards_of(1)
    assert values(pair.nodes[0], tenant) == {"a"}
    assert get(pair.nodes[1], "/rulesets/access", X_Tenant_ID=tenant)[1] == rule_set
    assert post(pair.nodes[0], "/admin/cluster/drain", {"node": pair.name(1)})[0] == 200
    pair.settled()
    assert pair.shards_of(1) == []
    assert tell(pair.nodes[1], "b", tenant)[0] == 200
    assert post(pair.nodes[0], "/admin/cluster/rebalance", {})[0] == 200
    pair.settled()
    assert pair.shards_of(1)
    assert values(pair.nodes[0], tenant) == {"a", "b"}


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("move", {"shard": 1, "node": "unknown-node"}, 404, None),
        ("move", {"node": "unknown-node"}, 400, "shard"),
        ("move", {"shard": 1, "tenantId": "t", "node": "n"}, 400, "shard"),
        ("move", {"shard": 999, "node": "SELF"}, 400, "shard"),
        ("move", {"shard": 1, "database": "d", "node": "SELF"}, 400, "database"),
        ("move", {"shard": 1}, 400, "node"),
        ("drain", {"node": "unknown-node"}, 404, None),
        ("drain", {}, 400, "node"),
    ],
)
def test_wrong_changes_are_refused(one, path, body, status, field):
    body = {key: one.name(0) if value == "SELF" else value for key, value in body.items()}
    found, answer, _ = post(one.nodes[0], f"/admin/cluster/{path}", body)
    assert found == status, answer
    if field:
        assert field in answer["details"]["fields"]
    assert one.status()["moved"] == one.status()["drained"] == []


@pytest.fixture(scope="module")
def one(tmp_path_factory, postgres_server):
    with (
        schema(postgres_server) as url,
        Nodes(tmp_path_factory.mktemp("one"), url, 1, shards=2) as nodes,
    ):
        nodes.settled()
        yield nodes


def test_a_request_that_pretends_to_come_from_a_node_is_refused(one):
    for value in ("", "1:2", "nonsense", f"{int(time.time())}:{'0' * 64}"):
        status, answer, _ = post(
            one.nodes[0], "/query", {"predicate": "p", "args": ["?x"]}, X_KBCore_Node=value
        )
        assert (status, answer["code"]) == (401, "UNAUTHORIZED")
    status, _, _ = get(one.nodes[0], "/-/directory")
    assert status == 404
    # An address of a client counts only with a signature.
    assert tell(one.nodes[0], "a", "t", X_KBCore_Client="203.0.113.9 1")[0] == 200
    assert "203.0.113.9" not in one.nodes[0].log.read_text()


def test_readiness_and_metrics_show_the_cluster(one):
    status, body, _ = get(one.nodes[0], "/health/ready")
    assert status == 200
    assert json.loads(body)["checks"]["cluster"] == {
        "status": "pass",
        "message": "2 of 2 shards, 1 node",
    }
    _, text, _ = get(one.nodes[0], "/metrics")
    assert b"svc_cluster_nodes 1" in text
    assert b"svc_cluster_unowned_shards 0" in text


def test_clients_are_redirected_if_the_settings_say_so(tmp_path, postgres_url):
    with Nodes(tmp_path, postgres_url, 2, CLUSTER_ROUTE="redirect") as nodes:
        nodes.settled()
        tenant = nodes.tenants_of(1, 1)[0]
        status, answer, headers = tell(nodes.nodes[0], "a", tenant)
        assert (status, answer["code"]) == (307, "REDIRECT")
        assert headers["Location"] == f"http://127.0.0.1:{nodes.ports[1]}/tell"
        assert tell(nodes.nodes[1], "a", tenant)[0] == 200


def test_events_go_on_through_any_node_after_a_move(pair):
    tenant = pair.tenants_of(1, 1)[0]
    connection = pair.nodes[0].connect()
    connection.request("GET", "/memory/events", headers={"X-Tenant-ID": tenant})
    stream = connection.getresponse()
    assert stream.status == 200
    id = _event_id(stream)
    assert tell(pair.nodes[0], "a", tenant)[0] == 200
    id = _event(stream, "a")
    shard = shard_of("default", tenant, SHARDS)
    body = {"shard": shard, "node": pair.name(0)}
    assert post(pair.nodes[0], "/admin/cluster/move", body)[0] == 200
    while stream.readline():  # the stream ends when the shard leaves its node
        pass
    connection.close()
    pair.settled()
    assert tell(pair.nodes[1], "b", tenant)[0] == 200
    connection = pair.nodes[1].connect()
    connection.request(
        "GET", "/memory/events", headers={"X-Tenant-ID": tenant, "Last-Event-ID": id}
    )
    stream = connection.getresponse()
    assert stream.status == 200
    _event(stream, "b")  # committed in between: the new node reads it from the log
    assert tell(pair.nodes[0], "c", tenant)[0] == 200
    _event(stream, "c")
    connection.close()
    body = {"shard": shard, "node": pair.name(1)}  # back to the node that had it first
    assert post(pair.nodes[0], "/admin/cluster/move", body)[0] == 200
    pair.settled()
    connection = pair.nodes[1].connect()
    connection.request("GET", "/memory/events", headers={"X-Tenant-ID": tenant})
    stream = connection.getresponse()
    _event_id(stream)
    assert tell(pair.nodes[0], "d", tenant)[0] == 200
    _event(stream, "d")
    connection.close()


def test_a_goal_is_followed_through_moves_of_its_shard(pair):
    """Followers through both nodes get every change once, in order, wherever the shard is."""
    (tenant,) = pair.tenants_of(0, 1)
    shard = shard_of("default", tenant, SHARDS)
    body = {"goal": "p(?x)", "id": "g"}
    status, goal, _ = post(pair.nodes[0], "/goals/subscribe", body, tenant)
    assert status == 200, goal
    first, second = pair.nodes

    def write(path, body, tenant, **headers):
        return post(second, path, body, tenant, **headers)

    with (
        GoalFollower(first.connect, tenant, "g", goal["eventId"]) as one,
        GoalFollower(second.connect, tenant, "g", goal["eventId"]) as other,
    ):
        with GoalWriter(write, tenant) as writer:
            for number in (1, 0, 1):
                written = writer.written
                wait_until(lambda w=written: writer.written > w + 5, "facts are written")
                for follower in (one, other):
                    follower.wait(lambda f: f.answers)
                connections = one.connections, other.connections
                move = {"shard": shard, "node": pair.name(number)}
                assert post(first, "/admin/cluster/move", move)[0] == 200
                pair.settled()
                assert shard in pair.shards_of(number)
                one.wait(lambda f, c=connections: f.connections > c[0])
                other.wait(lambda f, c=connections: f.connections > c[1])
            written = writer.written
            wait_until(lambda w=written: writer.written > w + 5, "facts are written")
        assert writer.refused == []
        for follower in (one, other):
            follower.wait(lambda f: f.answers == writer.truth)


def _event_id(stream):
    while not (line := stream.readline()).startswith(b"id: "):
        assert line
    return line[4:].strip().decode()


def _event(stream, value):
    """Read up to the event of a fact; return its id."""
    while True:
        id = _event_id(stream)
        data = stream.readline()
        if data.startswith(b"data: ") and f'"{value}"'.encode() in data:
            return id


def test_a_transaction_ends_with_its_owner(pair):
    tenant = pair.tenants_of(1, 1)[0]
    status, id, _ = post(pair.nodes[0], "/tx/begin", {}, tenant)
    assert status == 200, id
    assert tell(pair.nodes[1], "a", tenant, X_Transaction_ID=id)[0] == 200
    body = {"tenantId": tenant, "node": pair.name(0)}
    assert post(pair.nodes[0], "/admin/cluster/move", body)[0] == 200
    pair.settled()
    status, answer, _ = post(pair.nodes[0], f"/tx/commit/{id}", {}, tenant)
    assert status in (404, 409), answer
    assert values(pair.nodes[0], tenant) == set()


def test_a_node_that_starts_again_at_once_waits_for_its_old_lease(tmp_path, postgres_url):
    with Nodes(tmp_path, postgres_url, 1, shards=2, CLUSTER_TTL_MS="4000") as nodes:
        nodes.settled()
        assert tell(nodes.nodes[0], "a", "t")[0] == 200
        nodes.nodes[0].kill()
        nodes.start(0)
        nodes.settled()
        assert values(nodes.nodes[0], "t") == {"a"}
