"""Standing goals of servers with keys: only the owner or an administrator ends one."""

from __future__ import annotations

from support.keys import keyed

BODY = {"goal": "p(?x)", "id": "g"}


def test_another_reader_follows_a_goal_and_does_not_end_it() -> None:
    with keyed(mcp_tools="all") as server:
        owner, other, admin = (server.make(role).secret for role in ("reader", "reader", "admin"))
        subscribe, goal = "/goals/subscribe", "/goals/g"
        assert server.send("POST", subscribe, owner, BODY).status_code == 200
        assert server.send("GET", goal, other).status_code == 200
        assert server.send("DELETE", goal, other).status_code == 403
        assert server.send("POST", subscribe, other, BODY).status_code == 403
        call = {"name": "unsubscribe_goal", "arguments": {"id": "g"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        refused = server.send("POST", "/mcp", other, message, Accept="application/json")
        assert "belongs to another key" in refused.text
        assert server.send("POST", subscribe, owner, {**BODY, "ttl": 5000}).status_code == 200
        assert server.send("DELETE", goal, owner).get_json() == {"ended": True}
        assert server.send("POST", subscribe, owner, BODY).status_code == 200
        assert server.send("DELETE", goal, admin).get_json() == {"ended": True}


def test_a_webhook_that_is_not_allowed_names_the_field() -> None:
    with keyed() as server:
        key = server.make("reader").secret
        for webhook in ({"url": "https://a/"}, {}, "x", {"url": 5}, {"url": "x", "more": 1}):
            answer = server.send("POST", "/goals/subscribe", key, {**BODY, "webhook": webhook})
            assert answer.status_code == 400, answer.text
            assert "webhook" in answer.get_json()["details"]["fields"]
        both = {**BODY, "webhook": {"url": "https://a/"}, "durable": False}
        assert server.send("POST", "/goals/subscribe", key, both).status_code == 400
        assert server.send("GET", "/goals", key).get_json() == {"goals": []}
