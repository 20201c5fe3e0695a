"""Names that the client puts into paths: none of them leads to another path.

An HTTP library removes the parts `.` and `..` of a path before it sends it, so that the deletion of
a tenant `..` was that of its database.
"""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from kbcore_client import InvalidInput, KnowledgeBase, connect

CALLS: dict[str, Callable[[KnowledgeBase, str], object]] = {
    "empty tenant": lambda kb, name: kb.admin.empty_tenant(name, "db"),
    "empty tenant of": lambda kb, name: kb.admin.empty_tenant("t", name),
    "delete tenant": lambda kb, name: kb.admin.delete_tenant(name, "db"),
    "empty database": lambda kb, name: kb.admin.empty_database(name),
    "delete database": lambda kb, name: kb.admin.delete_database(name),
    "create tenant": lambda kb, name: kb.admin.create_tenant("t", name),
    "tenants": lambda kb, name: kb.admin.tenants(name),
    "revoke key": lambda kb, name: kb.admin.revoke_api_key(name),
    "rotate key": lambda kb, name: kb.admin.rotate_api_key(name),
    "drop scope": lambda kb, name: kb.drop_scope(name),
    "episode": lambda kb, name: kb.episode(name),
    "unsubscribe": lambda kb, name: kb.unsubscribe(name),
    "deploy": lambda kb, name: kb.deploy("p(a).", name=name),
    "rule set": lambda kb, name: kb.rule_set(name),
    "versions": lambda kb, name: kb.rule_set_versions(name),
    "differences": lambda kb, name: kb.rule_set_diff(name, 1, 2),
    "rollback": lambda kb, name: kb.rollback(name),
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the requests that leave the HTTP library."""
    paths: list[str] = []

    def handle(_: object, request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path.decode())
        return httpx.Response(404, json={"code": "NOT_FOUND", "message": "none"})

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handle)
    return paths


@pytest.mark.parametrize("name", ["..", ".", ""])
@pytest.mark.parametrize("call", CALLS)
def test_no_name_leads_to_another_path(call: str, name: str, sent: list[str]) -> None:
    with connect("http://127.0.0.1:1") as kb, pytest.raises(InvalidInput):
        CALLS[call](kb, name)
    assert sent == []


@pytest.mark.parametrize("name", ["../nuke", "a/b", "%2e%2e", "a?b", "a#b", "\r\nX: y", "..;"])
def test_other_characters_are_escaped(name: str, sent: list[str]) -> None:
    with connect("http://127.0.0.1:1") as kb:
        for call in ("empty tenant", "rule set", "drop scope"):
            with pytest.raises(Exception, match="none"):
                CALLS[call](kb, name)
    first, second, third = sent
    assert [first.count("/"), second.count("/"), third.count("/")] == [6, 2, 2]
    assert not any(char in path for path in sent for char in "?#\r\n")
    assert all("%" in path or ";" in path for path in sent)
