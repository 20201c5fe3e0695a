"""Rate limits: token buckets, and over HTTP on the fast path and the Flask routes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.http import error_of, serve_in_memory
from support.keys import Keyed, keyed

from kbcore.clock import ManualClock
from kbcore.errors import RateLimited
from kbserver.errors import answer_of
from kbserver.security.limits import address_of
from kbserver.security.token_bucket import Buckets

GOAL = {"predicate": "p", "args": ["?x"]}
ONE = "the-one-key-of-this-server"


class Hands:
    """A clock in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    st.integers(1, 20),
    st.integers(1, 100),
    st.lists(st.floats(0, 50, allow_nan=False), min_size=1, max_size=100),
)
def test_no_interval_exceeds_the_quota_and_the_refill(quota, window, pauses):
    clock = Hands()
    buckets = Buckets("b", quota, window, clock)
    taken = []
    for pause in pauses:
        clock.now += pause
        if not buckets.wait("k"):
            assert buckets.take("k").left >= 0
            taken.append(clock.now)
        else:
            assert buckets.take("k").left == -1
    for first, start in enumerate(taken):
        for last, end in enumerate(taken[first:], first):
            assert last - first + 1 <= quota + (end - start) * quota / window + 1e-6


@given(st.integers(1, 20), st.integers(1, 100), st.integers(0, 30))
def test_a_request_after_the_announced_wait_is_admitted(quota, window, more):
    clock = Hands()
    buckets = Buckets("b", quota, window, clock)
    for _ in range(quota + more):
        buckets.take("k")
    wait = buckets.wait("k")
    assert 0 < wait <= window / quota + 1e-9
    clock.now += wait * (1 + 1e-9)
    assert buckets.wait("k") == 0
    clock.now += window
    rate = buckets.take("k")
    assert (rate.left, rate.quota, rate.window) == (quota - 1, quota, window)


def test_the_number_of_buckets_is_limited():
    buckets = Buckets("b", 2, 60, Hands(), max_buckets=100)
    buckets.take("first")
    for number in range(1000):
        buckets.take("kept")
        buckets.take(f"name-{number}")
    assert len(buckets) == 100
    assert buckets.wait("kept") > 0
    assert buckets.wait("first") == 0


@pytest.mark.parametrize("fast_path", [True, False])
def test_a_key_has_a_rate_limit(fast_path):
    with serve_in_memory(api_key=ONE, rate_limit=(3, 60)) as served:
        node = Keyed(served)
        more = {} if fast_path else {"Prefer": "handling=strict"}
        answers = [node.send("POST", "/ask", ONE, GOAL, **more) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert [answer.headers["RateLimit"] for answer in answers[:3]] == [
            '"default";r=2;t=20',
            '"default";r=1;t=40',
            '"default";r=0;t=60',
        ]
        assert {answer.headers["RateLimit-Policy"] for answer in answers} == {'"default";q=3;w=60'}
        error = error_of(answers[3], 429, "RATE_LIMITED")
        assert error["details"] == {
            "retryAfterSeconds": 20,
            "limit": "default",
            "value": 3,
            "requests": 3,
            "seconds": 60,
        }
        assert answers[3].headers["Retry-After"] == "20"
        for path in ("/health", "/health/ready", "/metrics"):
            answer = node.send("GET", path, ONE)
            assert answer.status_code == 200
            assert "RateLimit" not in answer.headers
        served.clock.advance(20_000)
        assert node.send("POST", "/ask", ONE, GOAL, **more).status_code == 200


def test_a_replayed_answer_has_current_rate_headers():
    with serve_in_memory(api_key=ONE, rate_limit=(3, 60)) as served:
        node = Keyed(served)
        fact = {"predicate": "p", "args": ["a"]}
        answers = [
            node.send("POST", "/tell", ONE, fact, **{"Idempotency-Key": "k"}) for _ in range(2)
        ]
        assert answers[1].headers["Idempotency-Replayed"] == "true"
        assert [answer.headers.getlist("RateLimit") for answer in answers] == [
            ['"default";r=2;t=20'],
            ['"default";r=1;t=40'],
        ]


def test_each_key_has_its_own_bucket():
    with keyed(rate_limit=(1, 60)) as node:
        ann, bob = node.make("reader").secret, node.make("reader").secret
        assert [
            node.send("POST", "/ask", key, GOAL).status_code for key in (ann, bob, ann, bob)
        ] == [200, 200, 429, 429]
    with serve_in_memory(rate_limit=(1, 60)) as served:
        node = Keyed(served)
        tenants = ("a", "b", "a", "b")
        assert [node.send("POST", "/ask", None, GOAL, tenant=t).status_code for t in tenants] == [
            200,
            200,
            429,
            429,
        ]


def test_tenants_and_addresses_have_limits_and_refusals_are_free():
    with keyed(rate_limit=(100, 60), rate_limit_tenant=(2, 60), rate_limit_address=(5, 60)) as node:
        key = node.make("reader").secret

        def asked(tenant: str, address: str) -> int:
            answer = node.send("POST", "/ask", key, GOAL, tenant=tenant, address=address)
            return (
                answer.status_code
                if answer.status_code == 200
                else answer.get_json()["details"]["limit"]
            )

        assert [asked("a", "192.0.2.1") for _ in range(4)] == [200, 200, "tenant", "tenant"]
        assert [asked(tenant, "192.0.2.1") for tenant in "bcde"] == [200, 200, 200, "address"]
        assert asked("e", "192.0.2.2") == 200
        shown = node.send("POST", "/ask", key, GOAL, tenant="e", address="192.0.2.3").headers
        assert shown["RateLimit"] == '"tenant";r=0;t=60'


def test_a_request_passed_on_to_flask_counts_once():
    with serve_in_memory(rate_limit=(10, 60)) as served:
        answer = Keyed(served).send("POST", "/ask", None, {"predicate": 5, "args": []})
        assert answer.status_code == 400
        assert answer.headers["RateLimit"].startswith('"default";r=9')


@pytest.mark.parametrize("more", [{}, {"Prefer": "handling=lenient"}], ids=["fast path", "flask"])
def test_a_refusal_names_its_limit_once(more):
    with serve_in_memory(rate_limit=(10, 60), tenant_max_facts=1) as served:
        served.client.tell("p", "a")
        refused = served.client.post("/tell", {"predicate": "p", "args": ["b"]}, more)
        error_of(refused, 429, "RATE_LIMITED")
        assert refused.headers.getlist("RateLimit-Policy") == ['"TENANT_MAX_FACTS";q=1']
        assert refused.headers.getlist("RateLimit") == [
            f'"TENANT_MAX_FACTS";r=0;t={refused.headers["Retry-After"]}'
        ]


@pytest.mark.parametrize(
    "details",
    [
        None,
        {"limit": "a\nb", "value": "much"},
        {"limit": 5, "seconds": "x"},
        {"limit": "größe", "value": True},
    ],
)
def test_a_plugin_may_leave_out_the_details_of_its_limit(details):
    headers = answer_of(RateLimited("enough", 2.5, details)).headers
    assert headers == {
        "Retry-After": "3",
        "RateLimit-Policy": '"default";q=0',
        "RateLimit": '"default";r=0;t=3',
    }


def test_invalid_names_have_no_bucket():
    with serve_in_memory(rate_limit=(10, 60), rate_limit_tenant=(10, 60)) as served:
        node = Keyed(served)
        for number in range(12):
            answer = node.send(
                "POST", "/ask", None, GOAL, tenant="no name " + "x" * number, address="192.0.2.1"
            )
        assert answer.status_code == 429  # they count as their address


@pytest.mark.parametrize(
    ("remote", "said", "hops", "found"),
    [
        ("10.0.0.1", "", 0, "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4", 0, "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4", 1, "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", 1, "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.2", 2, "1.2.3.4"),
        ("10.0.0.1", "1.2.3.4", 2, "10.0.0.1"),
        ("2001:db8::1", "", 0, "2001:db8::/64"),
        ("::ffff:1.2.3.4", "", 0, "1.2.3.4"),
        ("10.0.0.1", "x" * 1000, 1, "x" * 64),
        ("", "", 0, ""),
    ],
)
def test_client_addresses(remote, said, hops, found):
    assert address_of({"REMOTE_ADDR": remote, "HTTP_X_FORWARDED_FOR": said}, hops) == found


def test_limits_use_the_clock_of_the_runtime():
    clock = ManualClock()
    buckets = Buckets("b", 1, 60, clock.monotonic)
    buckets.take("k")
    clock.step(3_600_000)
    assert buckets.wait("k") == 60
    clock.advance(60_000)
    assert buckets.wait("k") == 0
