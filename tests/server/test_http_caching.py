"""Compression, ETags, CORS, request ids and version headers."""

from __future__ import annotations

import gzip
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Response
from hypothesis import given
from hypothesis import strategies as st
from support.http import Served, error_of, serve_in_memory
from werkzeug.test import EnvironBuilder, TestResponse, run_wsgi_app

import kbcore
from kbserver.http.compress import LARGE_BYTES, compressed, takes_gzip
from kbserver.http.request_id import request_id, trace_id
from kbserver.rate_headers import Rate, rate_headers


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory() as found:
        yield found


def fill(served: Served, count: int = 40) -> None:
    facts = [{"predicate": "p", "args": [str(n), "x" * 50]} for n in range(count)]
    assert served.client.post("/assert/facts", {"facts": facts}).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Prefer": "handling=strict"}], ids=["fast path", "flask"])
@pytest.mark.parametrize("count", [40, 4000])
def test_large_responses_are_compressed_for_clients_that_accept_it(
    served: Served, headers: dict[str, str], count: int
) -> None:
    fill(served, count)
    asked = {"predicate": "p", "args": ["?x", "?y"]}
    plain = served.client.post("/query", asked, headers)
    packed = served.client.post("/query", asked, {**headers, "Accept-Encoding": "br, gzip;q=0.5"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert plain.headers["Vary"] == packed.headers["Vary"] == "Accept-Encoding"
    assert gzip.decompress(packed.data) == plain.data
    assert int(packed.headers["Content-Length"]) == len(packed.data) < len(plain.data) / 3


def test_small_answers_and_refusals_of_gzip_stay_plain(served: Served) -> None:
    small = served.client.post(
        "/tell", {"predicate": "p", "args": ["a"]}, {"Accept-Encoding": "gzip"}
    )
    assert "Content-Encoding" not in small.headers
    assert "Vary" not in small.headers
    fill(served)
    asked = {"predicate": "p", "args": ["?x", "?y"]}
    assert (
        "Content-Encoding"
        not in served.client.post("/query", asked, {"Accept-Encoding": "gzip;q=0, *"}).headers
    )


@pytest.mark.parametrize(
    ("header", "takes"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("deflate, gzip;q=1.0", True),
        ("*", True),
        ("x-gzip", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("*;q=0", False),
        ("identity", False),
        ("", False),
        ("br", False),
        ("gzip;q=0, *;q=1", False),
    ],
)
def test_accept_encoding(header: str, takes: bool) -> None:
    assert takes_gzip(header) is takes


@given(st.lists(st.binary(max_size=2000), max_size=5))
def test_compressed_responses_decompress(parts: list[bytes]) -> None:
    away: list[int] = []

    def offload(call: Any) -> bytes:
        away.append(1)
        return bytes(call())

    assert gzip.decompress(compressed(parts, len(b"".join(parts)), offload)) == b"".join(parts)
    assert not away
    assert gzip.decompress(compressed(parts, LARGE_BYTES, offload)) == b"".join(parts)
    assert away


@pytest.mark.parametrize("path", ["/predicates", "/scopes", "/rules", "/predicates?scope=*"])
def test_lists_are_revalidated_until_a_change(served: Served, path: str) -> None:
    served.client.tell("p", "a")
    first = served.client.get(path)
    tag = first.headers["ETag"]
    assert re.fullmatch(r'W/"default-t-[^"]+"', tag)
    for offered in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = served.client.get(path, {"If-None-Match": offered})
        assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", tag)
        assert "X-Request-ID" in again.headers
    assert served.client.get(path, {"If-None-Match": '"other"'}).status_code == 200
    served.client.tell("p", "b")
    changed = served.client.get(path, {"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != tag


DOCUMENTS = ("/openapi.json", "/docs", "/.well-known/agent.json", "/.well-known/agent-card.json")


@pytest.mark.parametrize(
    "path", [*DOCUMENTS, "/docs/docs.js", "/docs/docs.css", "/console/assets/index.js"]
)
def test_a_strong_tag_identifies_the_bytes_sent(served: Served, path: str) -> None:
    """RFC 9110, 8.8.3: two representations with one strong tag have the same bytes."""
    plain, packed = (
        served.client.get(path, {"Accept-Encoding": wish}) for wish in ("identity", "gzip")
    )
    tags = [found.headers["ETag"] for found in (plain, packed)]
    assert all(re.fullmatch('"[^"]+"', tag) for tag in tags)
    assert (tags[0] == tags[1]) == (plain.data == packed.data)
    assert "Content-Encoding" in packed.headers
    for first, wish in ((plain, "identity"), (packed, "gzip")):
        tag = first.headers["ETag"]
        for offered in (tag, f"W/{tag}", f'"other", {tag}'):
            again = served.client.get(path, {"Accept-Encoding": wish, "If-None-Match": offered})
            assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", tag)
            assert "Accept-Encoding" in again.headers["Vary"]
        other = "gzip" if wish == "identity" else "identity"
        crossed = served.client.get(path, {"Accept-Encoding": other, "If-None-Match": tag})
        assert crossed.status_code == 200


def test_compressed_lists_keep_their_weak_tag(served: Served) -> None:
    for number in range(60):
        served.client.tell(f"predicate_number_{number}", "a")
    plain, packed = (
        served.client.get("/predicates", {"Accept-Encoding": wish}) for wish in ("identity", "gzip")
    )
    assert packed.headers["Content-Encoding"] == "gzip"
    assert plain.headers["ETag"] == packed.headers["ETag"]
    assert plain.headers["ETag"].startswith('W/"')
    for wish in ("identity", "gzip"):
        headers = {"Accept-Encoding": wish, "If-None-Match": plain.headers["ETag"]}
        again = served.client.get("/predicates", headers)
        assert again.status_code == 304
        assert set(re.split(", *", again.headers["Vary"])) == {
            "X-View",
            "X-Tenant-ID",
            "X-Database",
            "Accept-Encoding",
        }


@pytest.mark.parametrize(("given", "sent"), [('"a"', 'W/"a"'), ('W/"a"', 'W/"a"'), (None, None)])
def test_compression_weakens_the_strong_tag_of_a_plugin(
    served: Served, given: str | None, sent: str | None
) -> None:
    def view() -> Response:
        return Response(
            "x" * 5000, content_type="text/plain", headers={"ETag": given} if given else {}
        )

    served.app.add_url_rule("/x/plugin", view_func=view)
    plain, packed = (
        served.client.get("/x/plugin", {"Accept-Encoding": wish}) for wish in ("identity", "gzip")
    )
    assert (plain.headers.get("ETag"), packed.headers.get("ETag")) == (given, sent)


def test_an_expired_fact_changes_the_tag(served: Served) -> None:
    served.client.tell("p", "a", ttl=100)
    tag = served.client.get("/predicates").headers["ETag"]
    served.clock.advance(200)
    after = served.client.get("/predicates", {"If-None-Match": tag})
    assert after.status_code == 200
    assert after.get_json()["totalFacts"] == 0


def test_a_recreated_tenant_has_other_tags(served: Served) -> None:
    served.client.tell("p", "a")
    tag = served.client.get("/predicates").headers["ETag"]
    served.runtime.admin().nuke_tenant("default", "t")
    served.client.tell("q", "a")
    assert served.client.get("/predicates", {"If-None-Match": tag}).status_code == 200


def test_another_tenant_has_other_tags_and_a_transaction_none(served: Served) -> None:
    served.client.tell("p", "a")
    tag = served.client.get("/predicates").headers["ETag"]
    other = served.client.get("/predicates", {"If-None-Match": tag, "X-Tenant-ID": "u"})
    assert other.status_code == 200
    assert (
        other.headers["ETag"] == served.client.get("/scopes", {"X-Tenant-ID": "u"}).headers["ETag"]
    )
    transaction = served.client.post("/tx/begin").text
    inside = served.client.get(
        "/predicates", {"If-None-Match": tag, "X-Transaction-ID": transaction}
    )
    assert inside.status_code == 200
    assert "ETag" not in inside.headers


def preflight(served: Served, origin: str) -> Any:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    return served.client.flask.options("/tell", headers=headers)


def test_other_origins_are_refused_by_default(served: Served) -> None:
    error_of(preflight(served, "https://a.example"), 403, "FORBIDDEN")
    answer = served.client.get("/scopes", {"Origin": "https://a.example"})
    assert not [name for name, _ in answer.headers if name.startswith("Access-Control")]


def test_configured_origins_are_allowed_without_credentials() -> None:
    with serve_in_memory(cors_origins=("https://a.example",)) as served:
        allowed = preflight(served, "https://a.example")
        assert allowed.status_code == 204
        assert uuid.UUID(allowed.headers["X-Request-ID"]).version == 7
        assert allowed.headers["X-KB-Version"] == kbcore.__version__
        assert allowed.headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert "X-Tenant-ID" in allowed.headers["Access-Control-Allow-Headers"]
        assert uuid.UUID(allowed.headers["X-Request-ID"]).version == 7
        assert allowed.headers["X-KB-Version"] == kbcore.__version__
        refused = preflight(served, "https://b.example")
        error_of(refused, 403, "FORBIDDEN")
        assert "Access-Control-Allow-Origin" not in refused.headers
        for path in ("/tell", "/nowhere"):
            answer = served.client.post(
                path, {"predicate": "p", "args": ["a"]}, {"Origin": "https://a.example"}
            )
            assert answer.headers["Access-Control-Allow-Origin"] == "https://a.example"
            assert "X-Request-ID" in answer.headers["Access-Control-Expose-Headers"]
            assert "Origin" in answer.headers["Vary"]
            assert "Access-Control-Allow-Credentials" not in answer.headers
        foreign = served.client.get("/scopes", {"Origin": "https://b.example"})
        assert "Access-Control-Allow-Origin" not in foreign.headers
        assert "Origin" in foreign.headers.get_all("Vary")


def test_any_origin_is_a_star() -> None:
    with serve_in_memory(cors_origins=("*",)) as served:
        assert preflight(served, "null").headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("path", ["/health", "/scopes", "/nowhere"])
def test_every_response_has_a_request_id_and_a_version(served: Served, path: str) -> None:
    answer = served.client.get(path)
    assert answer.headers["X-KB-Version"] == kbcore.__version__
    assert uuid.UUID(answer.headers["X-Request-ID"]).version == 7


@pytest.mark.parametrize("path", ["//tell", "///tell", "//assert/fact"])
def test_a_path_with_extra_slashes_is_not_found(served: Served, path: str) -> None:
    for _ in range(2):
        builder = EnvironBuilder(
            method="POST", json={"predicate": "p", "args": ["a"]}, headers={"X-Tenant-ID": "t"}
        )
        environ = {**builder.get_environ(), "PATH_INFO": path, "HTTP_IDEMPOTENCY_KEY": "k"}
        error_of(
            TestResponse(*run_wsgi_app(served.app, environ), request=builder.get_request()),
            404,
            "NOT_FOUND",
        )
    assert served.client.get("/predicates").get_json()["totalFacts"] == 0


def test_request_ids_are_uuids_that_sort_by_time() -> None:
    numbers = [uuid.UUID(request_id(None)) for _ in range(200)]
    assert {number.variant for number in numbers} == {uuid.RFC_4122}
    assert len(set(numbers)) == 200
    times = [number.int >> 80 for number in numbers]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "4bf92f3577b34da6a3ce929d0e0e4736",
        ),
        (
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "4bf92f3577b34da6a3ce929d0e0e4736",
        ),
        ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
        ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", None),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", None),
        ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", None),
        ("nonsense", None),
        (None, None),
    ],
)
def test_traces(header: str | None, found: str | None) -> None:
    assert trace_id(header) == found


def test_the_trace_is_in_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kbserver.access")
    header = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    served.client.post("/tell", {"predicate": "p", "args": ["a"]}, header)
    served.client.get("/scopes", header)
    served.client.get("/scopes")
    fields = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    assert [found.get("traceId") for found in fields] == [
        "4bf92f3577b34da6a3ce929d0e0e4736"
    ] * 2 + [None]


def test_without_limits_there_are_no_rate_headers(served: Served) -> None:
    assert rate_headers(None) == {}
    assert not [
        name for name, _ in served.client.get("/scopes").headers if name.startswith("RateLimit")
    ]
    assert rate_headers(Rate("default", 600, 60, -1, 41.2)) == {
        "RateLimit-Policy": '"default";q=600;w=60',
        "RateLimit": '"default";r=0;t=42',
    }
