"""Limits of bodies: only a bulk of facts may be large, and no reader may send one."""

from __future__ import annotations

import pytest
from support.http import error_of, serve_in_memory

from kbcore.config.settings import Config
from kbcore.state.keys import WRITER
from kbserver.app import create_app  # noqa: F401 - declares all operations
from kbserver.operations import operations

LIMIT = 2000


def bodies_of_posts() -> list[str]:
    return [
        each.routes[0].partition(" ")[2]
        for each in operations()
        if each.routes[0].startswith("POST ")
        and "<" not in each.routes[0]
        and (each.body is not None or each.group in ("mcp", "agent"))
        and not each.bulk
        and not each.routes[0].startswith(("POST /auth/", "POST /admin/"))
    ]


def test_only_writers_send_large_bodies() -> None:
    config = Config()
    large = [each for each in operations() if each.body_limit(config).bytes > 4 << 20]
    assert [(each.routes[0], each.role) for each in large] == [("POST /assert/facts", WRITER)]


@pytest.mark.parametrize("keyed", [False, True])
def test_other_bodies_have_the_limit_of_texts(keyed: bool) -> None:
    headers = {"Idempotency-Key": "k"} if keyed else {}
    with serve_in_memory(max_text_body_bytes=LIMIT) as served:
        for path in bodies_of_posts():
            answer = served.client.post(path, {"text": "a" * LIMIT}, headers=headers)
            details = error_of(answer, 413, "PAYLOAD_TOO_LARGE")["details"]
            assert details == {"limit": "MAX_TEXT_BODY_BYTES", "value": LIMIT}, path


def test_a_bulk_of_facts_has_the_limit_of_bodies() -> None:
    facts = [{"predicate": "likes", "args": ["ann", f"b{i}"]} for i in range(200)]
    with serve_in_memory(max_text_body_bytes=LIMIT, max_body_bytes=20_000) as served:
        assert served.client.post("/assert/facts", {"facts": facts}).status_code == 200
        details = error_of(
            served.client.post("/assert/facts", {"facts": facts * 4}), 413, "PAYLOAD_TOO_LARGE"
        )["details"]
        assert details == {"limit": "MAX_BODY_BYTES", "value": 20_000}
