"""Wrong keys from an address do not lock out the right one, and stay cheap."""

from __future__ import annotations

import pytest
from support.http import error_of, serve_in_memory
from support.keys import BOOTSTRAP, GOAL, ONE, Keyed, keyed

from kbserver.security import guard

ADDRESS = "192.0.2.1"
TOKEN = "the-token-of-the-nodes-of-this-cluster"
FOLLOWED = "/replication/status"


def use_up_wrong_keys(node: Keyed) -> None:
    for number in range(guard.MAX_WRONG_KEYS + 2):
        node.send("POST", "/ask", f"wrong-{number}", GOAL, address=ADDRESS)
    error_of(node.send("POST", "/ask", "wrong", GOAL, address=ADDRESS), 429, "RATE_LIMITED")


@pytest.mark.parametrize("fast_path", [True, False])
def test_the_right_api_key_passes_after_wrong_ones(fast_path: bool) -> None:
    more = {} if fast_path else {"Prefer": "handling=strict"}
    with serve_in_memory(api_key=ONE) as served:
        node = Keyed(served)
        use_up_wrong_keys(node)
        assert node.send("POST", "/ask", ONE, GOAL, address=ADDRESS, **more).status_code == 200
        use_up_wrong_keys(node)  # the right key gives no new tries


@pytest.mark.parametrize("mode", [{"api_key": ONE}, {"auth_enabled": True}])
def test_the_right_replication_token_passes_after_wrong_ones(mode: dict[str, object]) -> None:
    with serve_in_memory(replication_token=TOKEN, replication_mode="LEADER", **mode) as served:
        node = Keyed(served)
        use_up_wrong_keys(node)
        answer = node.send("GET", FOLLOWED, TOKEN, address=ADDRESS)
        assert answer.get_json()["role"] == "LEADER"


def test_the_tenant_in_a_body_counts_after_wrong_keys() -> None:
    """Several processes read the tenant of such a body only for clients that they recognise."""
    with serve_in_memory(api_key=ONE) as served:
        use_up_wrong_keys(Keyed(served))
        knows = served.app.extensions[guard.GUARD].recognises
        assert knows({"REMOTE_ADDR": ADDRESS, "HTTP_X_API_KEY": ONE})
        assert not knows({"REMOTE_ADDR": ADDRESS, "HTTP_X_API_KEY": "wrong"})


def test_a_managed_key_and_the_bootstrap_token_pass_after_wrong_ones() -> None:
    with keyed() as node:
        use_up_wrong_keys(node)
        body = {"name": "root", "token": "wrong"}
        statuses = [
            node.send("POST", "/auth/bootstrap", None, body, address=ADDRESS).status_code
            for _ in range(7)
        ]
        assert statuses == [401] * 5 + [429] * 2
        first = node.send(
            "POST", "/auth/bootstrap", None, {**body, "token": BOOTSTRAP}, address=ADDRESS
        )
        assert first.status_code == 201
        key = first.get_json()["key"]
        assert node.send("POST", "/ask", key, GOAL, address=ADDRESS).status_code == 200


def test_a_wrong_key_costs_one_digest_and_no_log_line_once_its_address_is_locked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    digested = []

    def counted(text: str) -> str:
        digested.append(text)
        return digest_of(text)

    digest_of = guard.digest_of
    with serve_in_memory(api_key=ONE, replication_token=TOKEN) as served:
        node = Keyed(served)
        use_up_wrong_keys(node)
        monkeypatch.setattr(guard, "digest_of", counted)
        caplog.clear()
        with caplog.at_level("INFO", logger="kbserver.audit"):
            refused = node.send("POST", "/ask", "wrong", GOAL, address=ADDRESS)
        assert refused.status_code == 429
        assert digested == ["wrong"]
        assert not caplog.records


def test_every_comparison_is_made_whichever_key_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    class Counted:
        @staticmethod
        def compare_digest(left: str, right: str) -> bool:
            compared.append(right)
            return compare_digest(left, right)

    compare_digest = guard.hmac.compare_digest
    monkeypatch.setattr(guard, "hmac", Counted)
    with serve_in_memory(api_key=ONE, replication_token=TOKEN) as served:
        node = Keyed(served)
        for key in (ONE, TOKEN, "wrong"):
            node.send("POST", "/ask", key, GOAL)
        assert len(compared) == 6
