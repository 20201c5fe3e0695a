"""Databases, tenants and API keys through the client."""

from __future__ import annotations

import httpx
import pytest
from support.servers import Server

from kbcore_client import Conflict, Forbidden, InvalidInput, NotFound, connect

TOKEN = "a-bootstrap-token-of-some-length"


def test_databases_and_tenants(kb):
    admin = kb.admin
    name = f"db-{kb.tenant}"
    admin.create_database(name)
    with pytest.raises(Conflict):
        admin.create_database(name)
    there = kb.open("shop", database=name)
    there.tell("p(a)")
    admin.create_tenant("empty", name)
    assert sorted(admin.tenants(name)) == ["empty", "shop"]
    (row,) = [each for each in admin.databases() if each.name == name]
    assert (row.tenants, row.facts) == (2, 1)
    admin.empty_tenant("shop", name)
    assert there.count("p") == 0
    there.tell("p(b)")
    admin.empty_database(name)
    assert there.count("p") == 0
    admin.delete_tenant("empty", name)
    assert admin.tenants(name) == ["shop"]
    admin.delete_database(name)
    with pytest.raises(NotFound):
        admin.tenants(name)
    with pytest.raises(NotFound):
        admin.delete_tenant("unknown")


def test_a_server_that_does_not_manage_keys_says_so(kb):
    with pytest.raises(Conflict):
        kb.admin.api_keys()


def test_keys(tmp_path):
    with Server(tmp_path, AUTH_ENABLED="true", BOOTSTRAP_TOKEN=TOKEN) as server:
        url = "http://{}:{}".format(*server.address)
        body = {"name": "first", "token": TOKEN}
        first = httpx.post(f"{url}/auth/bootstrap", json=body).raise_for_status().json()
        with connect(url, tenant="shop", api_key=first["key"]) as kb:
            key = kb.admin.create_api_key("report", "reader", tenants=["shop"], expires_in_days=1)
            assert key.key is not None
            assert key.key not in repr(key)
            assert (key.role, key.tenants, key.is_expired) == ("reader", ("shop",), False)
            kb.tell("p(a)")
            with connect(url, tenant="shop", api_key=key.key) as reader:
                assert reader.count("p") == 1
                with pytest.raises(Forbidden):
                    reader.tell("p(b)")
                with pytest.raises(Forbidden):
                    reader.admin.api_keys()
            rotated = kb.admin.rotate_api_key(key.id, overlap_seconds=0)
            assert rotated.key not in (None, key.key)
            listed = kb.admin.api_keys()
            assert listed[0].name == "first"
            assert all(each.key is None for each in listed)
            kb.admin.revoke_api_key(rotated.id)
            assert rotated.id not in [each.id for each in kb.admin.api_keys()]
            with pytest.raises(NotFound):
                kb.admin.revoke_api_key("nothing")
            with pytest.raises(InvalidInput, match="role"):
                kb.admin.create_api_key("x", "owner")
            with pytest.raises(InvalidInput, match="overlap_seconds"):
                kb.admin.rotate_api_key(first["id"], overlap_seconds=-1)
