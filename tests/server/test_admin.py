"""Databases and tenants over HTTP."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient
from support.http import NOW, Client, error_of

BASE = "/admin/databases"


@pytest.fixture
def flask(client: Client) -> FlaskClient:
    """A client that names no tenant."""
    return client.flask


def text(response, status: int, body: str) -> None:
    assert (response.status_code, response.text) == (status, body)
    assert response.content_type == "text/plain; charset=utf-8"


def test_databases(flask: FlaskClient, client: Client) -> None:
    assert flask.get(BASE).get_json() == [
        {"name": "default", "isMultiTenant": True, "tenants": 0, "facts": 0, "createdAt": 0}
    ]
    text(flask.post(BASE, json={"name": "d:1"}), 201, "Database 'd:1' created")
    error_of(flask.post(BASE, json={"name": "d:1"}), 409, "CONFLICT")
    error_of(flask.post(BASE, json={"name": "default"}), 409, "CONFLICT")
    assert (
        client.post("/tell", {"predicate": "p", "args": ["a"]}, {"X-Database": "d:1"}).status_code
        == 200
    )
    found = flask.get(BASE).get_json()
    assert [(row["name"], row["tenants"], row["facts"]) for row in found] == [
        ("d:1", 1, 1),
        ("default", 0, 0),
    ]
    assert found[0]["createdAt"] >= NOW
    text(flask.delete(f"{BASE}/d:1"), 200, "Database 'd:1' deleted")
    error_of(flask.delete(f"{BASE}/d:1"), 404, "NOT_FOUND")
    error_of(
        client.post("/query", {"predicate": "p", "args": ["a"]}, {"X-Database": "d:1"}),
        404,
        "NOT_FOUND",
    )
    error_of(flask.delete(f"{BASE}/default"), 409, "CONFLICT")


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "*", "x" * 129, 5, None, "ü", "%2e"])
def test_names_are_checked(flask: FlaskClient, name: object) -> None:
    error = error_of(flask.post(BASE, json={"name": name}), 400, "VALIDATION_ERROR")
    assert "name" in error["details"]["fields"]
    error_of(
        flask.post(f"{BASE}/default/tenants", json={"tenantId": name}), 400, "VALIDATION_ERROR"
    )
    assert len(flask.get(BASE).get_json()) == 1
    assert flask.get(f"{BASE}/default/tenants").get_json() == []


@pytest.mark.parametrize("key", ["tenantId", "id", "name"])
def test_tenants(flask: FlaskClient, client: Client, key: str) -> None:
    tenants = f"{BASE}/default/tenants"
    assert flask.get(tenants).get_json() == []
    text(flask.post(tenants, json={key: "u"}), 201, "Tenant 'u' created")
    text(flask.post(tenants, json={key: "u"}), 200, "Tenant 'u' created")
    client.tell("p", "a")
    assert flask.get(tenants).get_json() == ["t", "u"]
    text(flask.delete(f"{tenants}/t"), 200, "Tenant 't' deleted")
    error_of(flask.delete(f"{tenants}/t"), 404, "NOT_FOUND")
    assert client.ask("p", "?x") == []
    assert flask.get(tenants).get_json() == ["u"]


def test_a_tenant_needs_an_id_and_a_database(flask: FlaskClient) -> None:
    error = error_of(flask.post(f"{BASE}/default/tenants", json={}), 400, "VALIDATION_ERROR")
    assert "tenantId" in error["details"]["fields"]
    for response in (
        flask.get(f"{BASE}/none/tenants"),
        flask.post(f"{BASE}/none/tenants", json={"tenantId": "t"}),
        flask.delete(f"{BASE}/none/tenants/t"),
        flask.post(f"{BASE}/none/nuke"),
        flask.post(f"{BASE}/none/tenants/t/nuke"),
        flask.post(f"{BASE}/default/tenants/missing/nuke"),
    ):
        error_of(response, 404, "NOT_FOUND")


def test_nuke(flask: FlaskClient, client: Client) -> None:
    def fill() -> None:
        client.tell("p", "a")
        client.tell("p", "b", scope="s")
        client.post("/teach", {"text": "q(?x) :- p(?x)."})

    for path, said in (
        (f"{BASE}/default/nuke", "Database 'default'"),
        (f"{BASE}/default/tenants/t/nuke", "Tenant 't'"),
    ):
        fill()
        transaction = client.post("/tx/begin").text
        assert (
            client.post(
                "/tell", {"predicate": "p", "args": ["c"]}, {"X-Transaction-ID": transaction}
            ).status_code
            == 200
        )
        text(flask.post(path), 200, f"{said} nuked")
        assert client.get("/scopes").get_json()["count"] == 0
        assert client.get("/rules").get_json() == {"rules": []}
        assert (
            client.post("/query", {"predicate": "p", "args": ["?x"], "scope": "*"}).get_json() == []
        )
        assert flask.get(f"{BASE}/default/tenants").get_json() == ["t"]
        assert client.post(f"/tx/commit/{transaction}").status_code in (404, 409)
        assert client.ask("p", "?x") == []


def test_admin_routes_refuse_transactions(flask: FlaskClient) -> None:
    header = {"X-Transaction-ID": "x"}
    for response in (
        flask.get(BASE, headers=header),
        flask.post(BASE, json={"name": "d"}, headers=header),
        flask.post(f"{BASE}/default/nuke", headers=header),
    ):
        error = error_of(response, 400, "VALIDATION_ERROR")
        assert error["details"] == {"header": "X-Transaction-ID"}
    assert len(flask.get(BASE).get_json()) == 1


def test_invalid_names_in_paths(flask: FlaskClient) -> None:
    error_of(flask.delete(f"{BASE}/a b"), 400, "VALIDATION_ERROR")
    error_of(flask.delete(f"{BASE}/default/tenants/a%20b"), 400, "VALIDATION_ERROR")
    error_of(
        flask.post(f"{BASE}/default/nuke", data=b"{", content_type="application/json"),
        400,
        "VALIDATION_ERROR",
    )
    error_of(flask.put(BASE), 405, "VALIDATION_ERROR")
