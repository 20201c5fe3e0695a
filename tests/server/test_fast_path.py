"""The fast path: same bytes and same effects as the Flask routes."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.runtimes import runtime

from kbcore import __version__
from kbcore.errors import RateLimited, StorageFailed
from kbplanner.syntax.parser import parse_rule
from kbserver.app import create_app

ROUTES = ("/tell", "/assert/fact", "/query", "/ask", "/infer")
USUAL = {"CONTENT_TYPE": "application/json", "HTTP_X_TENANT_ID": "t", "HTTP_X_REQUEST_ID": "n-1"}


class Both:
    """Two runtimes in step, one served by Flask alone."""

    def __init__(self, **settings):
        self.runtimes = [runtime(**settings), runtime(**settings)]
        self.failures = []
        self.apps = [
            create_app(node, fast_path=fast_path, on_storage_failed=self.failures.append)
            for node, fast_path in zip(self.runtimes, (True, False), strict=True)
        ]
        for node in self.runtimes:
            kb = node.knowledge_base(tenant="t")
            kb.assert_rules(
                [
                    parse_rule("r(?x, ?y) :- p(?x, ?y)."),
                    parse_rule("r(?x, ?z) :- p(?x, ?y), r(?y, ?z)."),
                ]
            )

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for node in self.runtimes:
            node.close()

    def ask(self, path, body, method="POST", query="", **headers):
        answers = [call(app, path, body, method, query, headers) for app in self.apps]
        assert answers[0] == answers[1]
        return answers[0]


def call(app, path, body, method, query, headers):
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "SCRIPT_NAME": "",
        "QUERY_STRING": query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "9300",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "localhost",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.version": (1, 0),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **{name: value for name, value in {**USUAL, **headers}.items() if value is not None},
    }
    started = []
    found = app(environ, lambda status, fields, exc=None: started.append((status, fields)))
    answer = b"".join(found)
    if hasattr(found, "close"):
        found.close()
    return *started[0], answer


args = st.lists(
    st.one_of(
        st.sampled_from(["a", "b", "?x", "?", "", "ü", 3, 3.0, True]),
        st.none(),
        st.text(max_size=3),
    ),
    max_size=3,
)
extras = st.dictionaries(
    st.sampled_from(
        [
            "negated",
            "truthVal",
            "scope",
            "limit",
            "ttl",
            "confidence",
            "asOf",
            "metadata",
            "withProof",
            "other",
        ]
    ),
    st.sampled_from(
        [
            None,
            True,
            False,
            "s",
            "*",
            "no name!",
            1,
            0,
            0.5,
            1_700_000_000_000,
            {},
            {"k": 1},
            [],
            "2026-01-01T00:00:00Z",
        ]
    ),
    max_size=3,
)
bodies = st.one_of(
    st.builds(
        lambda name, args, extra: {"predicate": name, "args": args, **extra},
        st.sampled_from(["p", "r", "q", "", "=", 5]),
        args,
        extras,
    ),
    st.sampled_from([{}, [], None, "x", {"predicate": "p"}]),
)
raw = st.one_of(
    bodies.map(lambda body: json.dumps(body).encode()),
    st.sampled_from(
        [
            b"",
            b"{",
            b'{"predicate":"p","args":["a"],"args":["b"]}',
            b'{"a":NaN}',
            b"\xff",
            b"[" * 80,
            b"\xef\xbb\xbf{}",
        ]
    ),
)
headers = st.dictionaries(
    st.sampled_from(
        [
            "HTTP_PREFER",
            "HTTP_X_DATABASE",
            "HTTP_X_TENANT_ID",
            "CONTENT_TYPE",
            "HTTP_X_TRANSACTION_ID",
            "HTTP_IDEMPOTENCY_KEY",
            "HTTP_ACCEPT_ENCODING",
            "HTTP_TRACEPARENT",
        ]
    ),
    st.sampled_from(
        [
            None,
            "default",
            "other",
            "handling=strict",
            "text/plain",
            "application/json; charset=utf-8",
            "no name!",
            "gzip",
        ]
    ),
    max_size=2,
)


@examples(40)
@given(st.lists(st.tuples(st.sampled_from(ROUTES), raw, headers), min_size=5, max_size=30))
def test_fast_path_and_flask_return_the_same_bytes(requests):
    with Both() as both:
        for path, body, fields in requests:
            both.ask(path, body, **fields)
        generations = {node.read_tenant("default", "t").generation for node in both.runtimes}
        assert len(generations) == 1


LAST = [
    ("X-Request-ID", "n-1"),
    ("X-KB-Version", __version__),
    ("X-Content-Type-Options", "nosniff"),
]


def test_common_requests_do_not_reach_flask(monkeypatch):
    with Both() as both:
        monkeypatch.setattr(both.apps[0].wsgi_app, "_flask_app", None)
        told = json.dumps({"predicate": "p", "args": ["a", 1]}).encode()
        goal = json.dumps({"predicate": "r", "args": ["a", "?x"]}).encode()
        assert both.ask("/tell", told) == (
            "200 OK",
            [
                ("Content-Type", "text/plain; charset=utf-8"),
                ("Content-Length", "22"),
                *LAST,
                ("X-Commit-Seq", "2"),
            ],
            b"Fact Asserted: p(a, 1)",
        )
        for path in ("/ask", "/infer", "/query"):
            assert both.ask(path, goal)[0] == "200 OK"


@pytest.mark.parametrize("path", ["/tell/", "/TELL", "/nope", "/health"])
def test_other_paths_are_passed_on(path):
    with Both() as both:
        both.ask(path, b"{}")
        both.ask(path, b"{}", method="GET")


def test_core_errors_are_answered_alike_and_counted_once(monkeypatch):
    with Both(query_max_rows=5) as both:
        for n in range(10):
            both.ask("/tell", json.dumps({"predicate": "p", "args": [str(n), str(n + 1)]}).encode())
        over = json.dumps({"predicate": "r", "args": ["?x", "?y"]}).encode()
        assert both.ask("/infer", over)[0] == "422 UNPROCESSABLE ENTITY"
        calls = []

        def refuse(error):
            def commit(changes):
                calls.append(changes)
                raise error

            return commit

        told = json.dumps({"predicate": "p", "args": ["x"]}).encode()
        for error, status in (
            (RateLimited("full", 2.0), "429 TOO MANY REQUESTS"),
            (StorageFailed("eio"), "500 INTERNAL SERVER ERROR"),
        ):
            for node in both.runtimes:
                monkeypatch.setattr(node, "commit", refuse(error))
            calls.clear()
            assert both.ask("/tell", told)[0] == status
            assert len(calls) == 2
        assert len(both.failures) == 2
        for node in both.runtimes:
            monkeypatch.setattr(node, "commit", refuse(ZeroDivisionError()))
        logging.disable(logging.CRITICAL)
        try:
            assert both.ask("/tell", told)[0] == "500 INTERNAL SERVER ERROR"
        finally:
            logging.disable(logging.NOTSET)


def test_both_compress_alike():
    with Both() as both:
        for n in range(30):
            both.ask("/tell", json.dumps({"predicate": "p", "args": [str(n), "x" * 40]}).encode())
        goal = json.dumps({"predicate": "p", "args": ["?x", "?y"]}).encode()
        for path in ("/ask", "/infer", "/query"):
            _, headers, body = both.ask(path, goal, HTTP_ACCEPT_ENCODING="gzip")
            assert ("Content-Encoding", "gzip") in headers
            assert body[:2] == b"\x1f\x8b"


@pytest.mark.parametrize(
    "authorization", [None, "Bearer the-one-key-of-all", "Bearer wrong", "Basic x", "Bearer "]
)
def test_both_authenticate_alike(authorization):
    with Both(api_key="the-one-key-of-all", rate_limit=(5, 60)) as both:
        goal = json.dumps({"predicate": "r", "args": ["a", "?x"]}).encode()
        told = json.dumps({"predicate": "p", "args": ["a", "b"]}).encode()
        for path, body in (
            ("/tell", told),
            ("/ask", goal),
            ("/infer", b"{"),
            *((("/query", goal),) * 4),
        ):
            both.ask(
                path,
                body,
                HTTP_AUTHORIZATION=authorization,
                REMOTE_ADDR="192.0.2.1",
                HTTP_ACCEPT_ENCODING="gzip",
            )
