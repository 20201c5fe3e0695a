"""Every way in for a key that is bound to a view: nothing shows what the view does not admit.

The routes and the tools come from their records, so that a new one is tried without being named
here. What a record does not declare as `viewed` must refuse; what it does must not show the marker,
which is in everything that another group has stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from support.keys import Keyed, keyed
from support.permission_matrix import INITIALIZE, a2a_call, body_of, mcp_call
from werkzeug.test import TestResponse

from kbserver.mcp.tools import all_tools
from kbserver.operations import Operation, operations, routes
from kbserver.security.permissions import PUBLIC, About

MARKER = "zebra"
"""In names, constants, metadata and texts of the other group, and in nothing else."""

DECLARED = "@levels trust: web < user. @groups team: hr, eng."
HR, ENG = {"team": ["hr"]}, {"team": ["eng"]}
STREAMS = {
    ("GET", "/mcp"),
    ("GET", "/mcp/sse"),
    ("GET", "/goals/<id>/events"),
    ("GET", "/memory/events"),
}


@dataclass
class Walked:
    """A server with content of two groups, and keys: of an administrator, and bound ones."""

    server: Keyed
    admin: str
    writer: str
    reader: str
    web: str
    database: str | None = None

    def send(
        self, method: str, path: str, key: str, body: Any = None, **headers: str
    ) -> TestResponse:
        return self.server.send(method, path, key, body, database=self.database, **headers)

    def post(self, path: str, key: str, body: Any, **headers: str) -> Any:
        answer = self.send("POST", path, key, body, **headers)
        assert answer.status_code < 300, (path, answer.text)
        return answer


def as_labels(labels: Any) -> dict[str, str]:
    return {"X_Labels": json.dumps(labels)}


def fill(walked: Walked, *names: str) -> None:
    """Store the same things for everybody, for one group, and for the other one with the marker, in
    so far as they are named.
    """
    admin = walked.admin
    walked.post("/teach", admin, {"text": DECLARED})
    walked.post("/teach", admin, {"text": "@key lives(?who, _). noted(?y) :- note(?x, ?y)."})
    walked.post("/memory/add", admin, {"messages": "I like tea."})  # installs the vocabulary
    for name, labels in (("open", None), ("eng", ENG), (MARKER, HR)):
        if name not in names:
            continue
        own = {} if labels is None else as_labels(labels)
        facts = [
            {"predicate": "note", "args": ["ann", name], "metadata": {"by": name}},
            {"predicate": "note", "args": [f"{name}1", "tea"], "confidence": 0.9},
            {"predicate": f"of_{name}", "args": ["tea"]},
            {"predicate": "lives", "args": ["ann", f"{name}ville"]},
            {"predicate": "note", "args": ["old", f"{name}2"], "validUntil": 1_800_000_000_000},
            {"predicate": "parent", "args": ["ann", f"{name}3"]},
            {"predicate": "parent", "args": [f"{name}3", "bob"]},
        ]
        walked.post("/assert/facts", admin, {"facts": facts}, **own)
        shared = {"predicate": "note", "args": ["shared", "x"], "metadata": {"by": name}}
        walked.post("/tell", admin, shared, **own)
        walked.post("/tell", admin, {"text": f"~note(ann, {name}4)"}, **own)
        rule = f"by_{name}(?{name}) :- note(ann, ?{name}), not of_{name}(rum)."
        walked.post("/teach", admin, {"text": rule}, **own)
        deployed = f"kept_{name}(tea). kept(?x) :- kept_{name}(?x), not note(ann, none_{name})."
        text = {"text": deployed, "message": f"for {name}", "scope": None}
        rule_set = walked.send("PUT", f"/rulesets/set_{name}", admin, text, **own)
        assert rule_set.status_code == 200, rule_set.text
        message = {
            "speaker": f"{name}son",
            "text": f"Tea with {name} at noon.",
            "session": f"s{name}",
        }
        walked.post("/episodes", admin, {**message, "id": f"m-{name}"}, **own)
        evidence = [{"episode": f"m-{name}"}]
        cited = {"predicate": "note", "args": ["ann", "cited"], "evidence": evidence}
        walked.post("/tell", admin, cited, **own)
        walked.post("/memory/add", admin, {"messages": f"I like {name} in my tea."}, **own)


@pytest.fixture(scope="module")
def walked() -> Iterator[Walked]:
    with keyed(mcp_tools="all") as server:
        make = server.make
        walked = Walked(
            server,
            make("admin").secret,
            make("writer", view=ENG, labels=ENG).secret,
            make("reader", view=ENG).secret,
            make("writer", labels={"trust": "web"}).secret,
        )
        fill(walked, "open", MARKER, "eng")
        walked.post("/admin/databases", walked.admin, {"name": "only"})
        only = replace(walked, database="only")
        fill(only, "open", "eng")
        for each in (walked, only):
            each.post("/goals/subscribe", walked.reader, {"goal": "noted(?x)", "id": "m-eng"})
        yield walked


PATTERN = {"predicate": "note", "args": ["?x", "?y"]}

BODIES: dict[str, list[Any]] = {
    "/ask": [
        PATTERN,
        {"text": "noted(?x)", "withProof": True},
        {"goals": ["note(?x, ?y)", "~note(?x, ?y)", "noted(?x)"]},
        {**PATTERN, "limit": 2},
        {**PATTERN, "scope": "*"},
    ],
    "/query": [
        PATTERN,
        {**PATTERN, "negated": True},
        {**PATTERN, "limit": 1},
        {"predicate": "episode", "args": ["?a", "?b", "?c"]},
    ],
    "/explain": [
        {"predicate": "noted", "args": ["?x"]},
        {"text": "noted(none)", "whyNot": True},
        {"text": "noted(none)", "howTo": True},
        {"text": "noted(?x)", "plan": True},
        {"text": "of_zebrx(?x)"},
    ],
    "/neighbours": [{"constant": "ann"}, {"constant": "tea"}],
    "/aggregate": [
        {"predicate": "note", "op": "COUNT"},
        {"predicate": "amount", "op": "MAX", "argIndex": 1},
    ],
    "/execute": [{"command": "?- note(?x, ?y). ?- noted(?x)."}],
    "/memory/context": [
        {"query": "tea", "maxTokens": 4000},
        {"query": "noted(?x)", "maxTokens": 4000},
        {"maxTokens": 4000},
    ],
    "/context/optimize": [{"query": "tea", "maxTokens": 4000}],
    "/memory/search": [{"question": "Who likes tea?"}, {"question": "noon"}],
    "/goals/suggest": [
        {"question": question}
        for question in (
            "What is the note of ann?",
            "Where lives ann?",
            f"What is the note of {MARKER}1?",
            f"What is the note of the parent of {MARKER}1?",
            f"Is {MARKER} the note of ann?",
            f"What is by {MARKER} of ann?",
            "Who is the parent of bob?",
            "What has the parent of bob noted?",
        )
    ],
    "/memory/query/salient": [{"limit": 100}, {"predicate": "note"}],
    "/memory/query/temporal": [{**PATTERN, "timestamp": 1_700_000_000_000}],
    "/check": [
        {"text": "new(?x) :- of_zebrx(?x), note(?x, ?y)."},
        {"text": "of_zebrx(?x)", "kind": "goal"},
    ],
    "/preview": [
        {"tell": "note(ann, mint). of_eng(rum).", "limit": 1000},
        {"forget": "note(?x, ?y)", "limit": 1000},
        {"forget": "~note(?x, ?y)", "teach": "new(?x) :- note(?x, ?y).", "limit": 1000},
    ],
    "/memory/add": [{"messages": "I drink tea."}],
    "/context/diff": [{"sessionId": "walked"}],
    "/memory/update": [{"fact": "lives(ann, rome)"}],
    "/episodes": [{"speaker": "ann", "text": "hello"}],
    "/teach": [{"text": "more(?x) :- noted(?x)."}],
    "/retract/pattern": [{"predicate": "parent", "args": ["?x", "bob"]}],
    "/retract": [{"predicate": "note", "args": ["shared", "x"]}],
    "/context": [{"text": "tea(ann)."}],
    "/goals/subscribe": [
        {"goal": "note(?x, ?y)", "id": "g-eng"},
        {"goal": "noted(?x), not of_eng(?x)", "durable": False, "id": "g-memory"},
    ],
    "/mcp": [INITIALIZE],
    "/mcp/messages": [INITIALIZE],
}
"""Bodies that would show what is stored, by path; others are those of the documentation."""

QUERIES = {
    "/facts/history": "?predicate=note",
    "/memory/history": "?about=note",
    "/goals/<id>/changes": "?since=0&limit=3",
    "/rulesets/<name>/diff": "?from=0&to=1",
    "/episodes": "?limit=100",
    "/predicates": "?limit=100",
    "/rules": "?limit=100",
    "/mcp/messages": "?sessionId=none",
}

VALUES = {"<id>": "m-eng", "<name>": "set_eng", "<tenant>": "a", "<path:name>": "facts"}


def target(template: str) -> str:
    path = re.sub(r"<[^>]*>", lambda found: VALUES[found.group()], template)
    return path + QUERIES.get(template, "")


def bodies(method: str, template: str, declared: Operation) -> list[Any]:
    if method == "GET":
        return [None]
    known = next((BODIES[path] for path in paths(declared) if path in BODIES), None)
    return known or [body_of(declared)]


def paths(declared: Operation) -> list[str]:
    return [route.partition(" ")[2] for route in declared.routes]


def shows(answer: TestResponse, *, streams: bool = False) -> str:
    """Return what an answer shows."""
    if streams:
        answer.close()
        return str(answer.headers)
    return f"{answer.headers}\n{answer.get_data(as_text=True)}"


OF_TENANTS = sorted(
    (route.split()[0], route.split()[1])
    for declared in operations()
    for route in declared.routes
    if declared.about is not About.NOTHING
)
VIEWED = sorted(
    (cell for cell in OF_TENANTS if routes()[cell].viewed), key=lambda cell: cell[0] == "DELETE"
)
WHOLE = [cell for cell in OF_TENANTS if not routes()[cell].viewed]
_WRITES_LAST = sorted(VIEWED, key=lambda cell: (routes()[cell].writes, "retract" in cell[1]))


GLOBAL = re.compile(
    r'"(?:\w*[gG]eneration|windowId|seq|sinceSeq|startSeq|eventId|\w*ommitSeq)":(?:"[^"]*"|[0-9]+)'
    r"|(?m:^(?:X-Request-ID|Mcp-Session-Id|ETag|X-Commit-Seq|Content-Length): .*$)"
)
"""Numbers that are documented to be those of the whole tenant, and those of a request."""


def test_a_view_answers_as_a_base_of_what_it_admits(walked: Walked) -> None:
    """Before any other test writes: byte for byte, apart from the numbers of the whole tenant."""
    only = replace(walked, database="only")
    accept = {"Accept": "application/json"}
    for method, template in VIEWED:
        declared = routes()[method, template]
        if declared.writes or (method, template) in STREAMS:
            continue
        for body in bodies(method, template, declared):
            whole = walked.send(method, target(template), walked.reader, body, **accept)
            alone = only.send(method, target(template), walked.reader, body, **accept)
            shown, expected = (GLOBAL.sub("", shows(each)) for each in (whole, alone))
            assert shown == expected, (method, template, body)


def heard(walked: Walked, key: str, **headers: str) -> list[str]:
    """Return the events of the log up to that of `last`, as a stream sends them, without numbers of
    the whole tenant.
    """
    answer = walked.send("GET", "/memory/events?since=1", key, **headers)
    assert answer.status_code == 200, answer.text
    texts = []
    for part in answer.response:
        texts += re.findall("^data: (.*)$", part.decode(), re.M)
        if texts and '"last"' in texts[-1]:
            break
    answer.close()
    return [
        re.sub(r'"(timestamp|createdAt|validFrom)":[0-9]+', "", GLOBAL.sub("", each))
        for each in texts
    ]


def test_the_events_of_a_view_are_those_of_a_base_of_what_it_admits(walked: Walked) -> None:
    """Before any other test writes."""
    only = replace(walked, database="only")
    for each in (walked, only):
        each.post("/tell", walked.admin, {"predicate": "last", "args": ["event"]})
    for key, headers in (
        (walked.reader, {}),
        (walked.writer, {}),
        (walked.admin, {"X_View": json.dumps(ENG)}),
    ):
        events = heard(walked, key, **headers)
        assert events == heard(only, key, **headers)
        assert len(events) > 20
        assert MARKER not in str(events)
    assert MARKER in str(heard(walked, walked.admin))


def test_what_concerns_a_whole_tenant_refuses_keys_with_a_view(walked: Walked) -> None:
    for method, template in WHOLE:
        for body in bodies(method, template, routes()[method, template]):
            answer = walked.send(method, target(template), walked.writer, body)
            assert answer.status_code == 403, (method, template, answer.text)
            assert MARKER not in shows(answer), (method, template)


def test_what_concerns_a_whole_tenant_refuses_a_view(walked: Walked) -> None:
    """The requests of an administrator, who may do everything else."""
    view = json.dumps(ENG)
    for method, template in WHOLE:
        for body in bodies(method, template, routes()[method, template]):
            for name in ("X_View", "X_Labels"):
                answer = walked.send(method, target(template), walked.admin, body, **{name: view})
                assert answer.status_code == 400, (method, template, answer.text)
            if isinstance(body, dict) and method == "POST":
                answer = walked.send(method, target(template), walked.admin, {**body, "view": ENG})
                declared = routes()[method, template].body_reader
                if declared is not None and not declared.has("view"):
                    assert answer.status_code in (400, 403), (method, template, answer.text)


def test_what_concerns_a_whole_tenant_refuses_labelled_writes(walked: Walked) -> None:
    for method, template in WHOLE:
        declared = routes()[method, template]
        if declared.role in ("reader", "any"):
            continue
        for body in bodies(method, template, declared):
            answer = walked.send(method, target(template), walked.web, body)
            refused = (400, 403) if declared.dry_runs else (403,)
            assert answer.status_code in refused, (method, template, answer.text)


def test_no_route_shows_what_a_view_does_not_admit(walked: Walked) -> None:
    with_marker = set()
    for method, template in _WRITES_LAST:
        declared = routes()[method, template]
        streams = (method, template) in STREAMS
        path = target(template)
        for body in bodies(method, template, declared):
            accept = {"Accept": "application/json, text/event-stream"}
            if not (declared.writes or streams):
                everything = walked.send(method, path, walked.admin, body, **accept)
                if MARKER in shows(everything):
                    with_marker.add(template)
            asked = {"X_View": json.dumps(ENG)}
            requests = [(walked.reader, body, accept), (walked.writer, body, accept)]
            if not declared.writes:
                requests.append((walked.admin, body, {**accept, **asked}))
                if isinstance(body, dict) and declared.body is not None:
                    requests.append((walked.admin, {**body, "view": ENG}, accept))
            else:
                labelled = {**accept, **asked, "X_Labels": json.dumps(ENG)}
                requests.append((walked.admin, body, labelled))
            for key, sent, headers in requests:
                answer = walked.send(method, path, key, sent, **headers)
                assert answer.status_code < 500 or answer.status_code == 501, (path, answer.text)
                assert MARKER not in shows(answer, streams=streams), (method, path, sent)
    assert with_marker >= {
        "/ask",
        "/query",
        "/explain",
        "/neighbours",
        "/memory/context",
        "/memory/search",
        "/memory/query/salient",
        "/memory/recall",
        "/predicates",
        "/rules",
        "/episodes",
        "/memory/facts",
        "/check",
        "/preview",
    }


def test_a_view_answers_only_questions_about_public_routes_without_keys(walked: Walked) -> None:
    for declared in operations():
        if declared.about is not About.NOTHING or declared.role == PUBLIC:
            continue
        for route in declared.routes:
            method, template = route.split()
            answer = walked.send(method, target(template), walked.reader)
            assert MARKER not in shows(answer), route


def arguments_of(declared: Operation, takes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    more = {"id": "m-eng", "predicate": "note", "about": "note", "uri": "kb://rules"}
    method, _, template = declared.routes[0].partition(" ")
    for body in bodies(method, template, declared):
        known = {name: body[name] for name in takes if body and name in body}
        yield known or {name: more[name] for name in takes if name in more}


def test_no_tool_shows_what_a_view_does_not_admit(walked: Walked) -> None:
    tools = sorted(all_tools().items(), key=lambda each: (each[1].writes, each[0]))
    for name, tool in tools:
        for arguments in arguments_of(tool.operation, tool.declared.takes):
            for key, more in (
                (walked.reader, {}),
                (walked.writer, {}),
                (walked.admin, {"X_View": json.dumps(ENG), "X_Labels": json.dumps(ENG)}),
            ):
                for path, message in (
                    ("/mcp", mcp_call(name, arguments)),
                    ("/a2a", a2a_call({"op": name, **arguments})),
                ):
                    answer = walked.send("POST", path, key, message, **more)
                    assert answer.status_code < 500, (path, name, answer.text)
                    assert MARKER not in shows(answer), (path, name, arguments)
                    if not tool.operation.viewed:
                        refused = "FORBIDDEN" in answer.text or "not available" in answer.text
                        assert refused, (path, name, answer.text)
            asked = mcp_call(name, {**arguments, "view": ENG})
            answer = walked.send("POST", "/mcp", walked.admin, asked)
            if not tool.writes:
                assert MARKER not in shows(answer), (name, arguments)


METHODS = (
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("prompts/list", {}),
    ("tools/list", {}),
    ("ping", {}),
)


def test_no_resource_shows_what_a_view_does_not_admit(walked: Walked) -> None:
    def ask(key: str, method: str, params: Any) -> TestResponse:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return walked.send("POST", "/mcp", key, message)

    uris, prompts = set(), []
    for method, params in METHODS:
        for key in (walked.admin, walked.reader):
            answer = ask(key, method, params)
            result = answer.get_json().get("result", {})
            uris.update(each["uri"] for each in result.get("resources", ()))
            for each in result.get("resourceTemplates", ()):
                text = each["uriTemplate"]
                uris.update(
                    re.sub(r"\{\W?[^}]*\}", value, text) for value in ("note", "m-zebra", "ann")
                )
            prompts += [] if key == walked.reader else result.get("prompts", [])
    answers = [ask(walked.reader, "resources/read", {"uri": uri}) for uri in sorted(uris)]
    for each in prompts:
        arguments = {argument["name"]: "note" for argument in each.get("arguments", ())}
        params = {"name": each["name"], "arguments": arguments}
        answers.append(ask(walked.reader, "prompts/get", params))
        for argument in arguments:
            params = {
                "ref": {"type": "ref/prompt", "name": each["name"]},
                "argument": {"name": argument, "value": ""},
            }
            answers.append(ask(walked.reader, "completion/complete", params))
    assert len(answers) > 3
    for answer in answers:
        assert answer.status_code < 500
        text = answer.get_data(as_text=True).replace("m-zebra", "")
        assert MARKER not in text, text


# -- sessions of windows ---------------------------------------------------------------------------


def test_a_session_shows_what_has_changed_in_its_view(own: Walked) -> None:
    own.post("/admin/databases", own.admin, {"name": "only"})
    alone = replace(own, database="only")
    alone.post("/teach", own.admin, {"text": DECLARED})
    window = {"sessionId": "s", "maxFacts": 50, "fill": "salience"}

    def tell(text: str, **labels: Any) -> None:
        own.post("/tell", own.admin, {"text": text}, **labels)
        if MARKER not in text:
            alone.post("/tell", own.admin, {"text": text}, **labels)

    def both(path: str, body: Any) -> Any:
        answers = (each.post(path, own.reader, body) for each in (own, alone))
        whole, expected = (GLOBAL.sub("", shows(each)) for each in answers)
        assert whole == expected
        return whole

    tell("p(a)")
    tell("p(b)", **as_labels(ENG))
    tell(f"p({MARKER}1)", **as_labels(HR))
    both("/context/diff", {"sessionId": "s"})
    both("/memory/context", window)
    tell(f"p({MARKER}2)", **as_labels(HR))
    assert '"added":[]' in both("/context/diff", {"sessionId": "s"})
    tell("p(c)", **as_labels(ENG))
    own.post("/scope/fork", own.admin, {"source": None, "target": "draft"})  # copied as a whole
    alone.post("/scope/fork", own.admin, {"source": None, "target": "draft"})
    assert '"added":[{' in both("/context/diff", {"sessionId": "s"})
    both("/context/session/clear", {"sessionId": "s"})
    assert '"fullRefreshRecommended":true' in both("/context/diff", {"sessionId": "s"})


def test_a_session_belongs_to_its_view(own: Walked) -> None:
    own.post("/tell", own.admin, {"text": f"p({MARKER})"}, **as_labels(HR))
    session = {"sessionId": "s"}
    own.post("/memory/context", own.admin, {**session, "fill": "salience"})
    for key, view in ((own.reader, {}), (own.admin, {"X_View": json.dumps(ENG)})):
        for path in ("/context/diff", "/context/session/clear"):
            answer = own.post(path, key, session, **view)
            assert MARKER not in answer.text
    assert own.post("/context/diff", own.admin, session).get_json()["unchanged"] == 1


# -- standing goals --------------------------------------------------------------------------------


def streamed(answer: TestResponse) -> Iterator[tuple[str, Any]]:
    """Yield the events of a stream of a goal."""
    parts = b""
    for part in answer.response:
        parts += part if isinstance(part, bytes) else part.encode()
        while b"\n\n" in parts:
            text, _, parts = parts.partition(b"\n\n")
            lines = dict(line.split(": ", 1) for line in text.decode().split("\n") if ": " in line)
            if "event" in lines:
                yield lines["event"], json.loads(lines["data"])


def test_a_stream_of_a_goal_shows_what_its_view_admits(own: Walked) -> None:
    own.post("/goals/subscribe", own.reader, {"goal": "p(?x)", "id": "g"})
    requests: list[tuple[str, dict[str, str]]] = [
        (own.reader, {}),
        (own.admin, {"X_View": json.dumps(ENG)}),
    ]
    streams = [streamed(own.send("GET", "/goals/g/events", key, **view)) for key, view in requests]
    for stream in streams:
        kind, whole = next(stream)
        assert (kind, whole["answers"]) == ("answers", [])
    own.post("/tell", own.admin, {"text": f"p({MARKER})"}, **as_labels(HR))
    own.post("/tell", own.writer, {"text": "p(a)"})
    for stream in streams:
        kind, change = next(stream)
        assert kind == "changed"
        assert [row["args"] for row in change["appeared"]] == [["a"]]
        assert change["disappeared"] == []
    assert own.send("GET", "/goals/g/events", own.admin).status_code == 404
    wide = own.send("GET", "/goals/g/events", own.reader, X_View=json.dumps(HR))
    assert wide.status_code == 403
    narrow = json.dumps({**ENG, "trust": "user"})
    assert own.send("GET", "/goals/g", own.reader, X_View=narrow).status_code == 404


def test_a_stream_shows_no_lower_level_that_is_declared_later(own: Walked) -> None:
    own.post("/teach", own.admin, {"text": "@levels care: some < full."})
    key = own.server.make("reader", view={"care": "some"}).secret
    own.post("/goals/subscribe", key, {"goal": "p(?x)", "id": "g"})
    stream = streamed(own.send("GET", "/goals/g/events", key))
    assert next(stream)[1]["answers"] == []
    own.post("/teach", own.admin, {"text": "@levels care: none < some < full."})
    own.post("/tell", own.admin, {"text": f"p({MARKER})"}, **as_labels({"care": "none"}))
    assert next(stream)[0] == "goal_ended"


def test_a_goal_of_a_view_belongs_to_its_key(own: Walked) -> None:
    own.post("/goals/subscribe", own.reader, {"goal": "p(?x)", "id": "g"})
    refused = own.send("DELETE", "/goals/g", own.writer)
    assert refused.status_code == 403
    other = own.send("POST", "/goals/subscribe", own.writer, {"goal": "p(?x)", "id": "g"})
    assert other.status_code == 403
    assert own.send("DELETE", "/goals/g", own.reader).get_json() == {"ended": True}


# -- single ways in --------------------------------------------------------------------------------


@pytest.fixture
def own() -> Iterator[Walked]:
    """A server for one test that writes."""
    with keyed() as server:
        make = server.make
        walked = Walked(
            server,
            make("admin").secret,
            make("writer", view=ENG, labels=ENG).secret,
            make("reader", view=ENG).secret,
            make("writer", labels={"trust": "web"}).secret,
        )
        walked.post("/teach", walked.admin, {"text": DECLARED})
        yield walked


def test_a_view_of_another_database(own: Walked) -> None:
    own.post("/admin/databases", own.admin, {"name": "other"})
    other = replace(own, database="other")
    other.post("/teach", own.admin, {"text": DECLARED})
    other.post("/tell", own.admin, {"text": "p(open)"})
    other.post("/tell", own.admin, {"text": f"p({MARKER})"}, **as_labels(HR))
    rows = other.post("/ask", own.reader, {"text": "p(?x)"}).get_json()
    assert [row["args"] for row in rows] == [["open"]]


def test_an_idempotency_key_belongs_to_the_key_of_a_view(own: Walked) -> None:
    fact = {"text": f"p({MARKER})"}
    headers = {"Idempotency_Key": "k1"}
    own.post("/tell", own.admin, fact, **headers, **as_labels(HR))
    answer = own.send("POST", "/tell", own.writer, {"text": "p(x)"}, **headers)
    assert answer.status_code == 200, answer.text
    assert "Idempotency-Replayed" not in answer.headers
    again = own.send("POST", "/tell", own.writer, {"text": "p(x)"}, **headers)
    assert again.headers["Idempotency-Replayed"] == "true"


def test_a_conflict_names_no_fact_that_the_view_does_not_admit(own: Walked) -> None:
    own.post("/tell", own.admin, {"text": "~p(x)", "metadata": {"by": MARKER}}, **as_labels(HR))
    fact = {"text": "p(x)", "conflictStrategy": "REJECT"}
    answer = own.send("POST", "/tell", own.writer, fact)
    assert answer.status_code == 200, answer.text


def test_a_text_in_the_body_of_a_lower_key_changes_nothing_above(own: Walked) -> None:
    own.post("/tell", own.admin, {"text": "p(x)"})
    own.post("/retract", own.web, {"text": "p(x)"})
    own.post("/retract/pattern", own.web, {"predicate": "p", "args": ["?x"]})
    own.post("/execute", own.web, {"command": "RETRACT p(x)."})
    rows = own.post("/ask", own.admin, {"text": "p(?x)"}, X_View='{"trust": "user"}').get_json()
    assert [row["args"] for row in rows] == [["x"]]


@pytest.mark.parametrize(
    "view",
    [
        "",
        "[]",
        "{",
        '"team"',
        '{"team": {"hr": 1}}',
        '{"team": [["hr"]]}',
        '{"team": [1]}',
        '{"trust": ["web"]}',
        '{"trust": null}',
        '{"none": "x"}',
        "[" * 500,
        "{" + '"a":' * 900 + "1}",
        "1e999",
    ],
)
def test_malformed_views_are_refused(own: Walked, view: str) -> None:
    for name in ("X_View", "X_Labels"):
        answer = own.send("POST", "/tell", own.admin, {"text": "p(x)"}, **{name: view})
        assert answer.status_code == 400, (name, answer.text)
    for name in ("view", "labels"):
        try:
            value = json.loads(view)
        except ValueError:
            continue
        for path, text in (("/ask", "p(?x)"), ("/tell", "p(x)")):
            answer = own.send("POST", path, own.admin, {"text": text, name: value})
            assert answer.status_code == 400, (name, answer.text)


def test_more_than_is_granted_is_forbidden(own: Walked) -> None:
    for asked in ({"team": ["hr"]}, {"team": ["eng", "hr"]}):
        answer = own.send("POST", "/ask", own.reader, {"text": "p(?x)", "view": asked})
        assert answer.status_code == 403
        assert answer.get_json()["details"] == {"dimension": "team"}
        answer = own.send("POST", "/ask", own.reader, {"text": "p(?x)"}, X_View=json.dumps(asked))
        assert answer.status_code == 403
    raised = own.send("POST", "/tell", own.web, {"text": "p(x)", "labels": {"trust": "user"}})
    assert raised.status_code == 403


def test_a_transaction_shows_what_its_view_admits(own: Walked) -> None:
    id = own.post("/tx/begin", own.admin, {}).text
    staged = {"X_Transaction_ID": id}
    own.post("/tell", own.admin, {"text": f"p({MARKER})"}, **staged)
    for key, more in ((own.reader, {}), (own.admin, {"X_View": json.dumps(ENG)})):
        answer = own.send("POST", "/ask", key, {"text": "p(?x)"}, **staged, **more)
        assert answer.status_code == 400, answer.text
    for path in (f"/tx/commit/{id}", f"/tx/rollback/{id}"):
        assert own.send("POST", path, own.writer, {}).status_code in (400, 409)
    own.post("/tell", own.admin, {"text": f"p({MARKER})"}, **as_labels(HR))
    mine = {"X_Transaction_ID": own.post("/tx/begin", own.writer, {}).text}
    own.post("/tell", own.writer, {"text": "p(a)"}, **mine)
    own.post("/retract", own.writer, {"text": f"p({MARKER})"}, **mine)
    (row,) = own.post("/ask", own.writer, {"text": "p(?x)"}, **mine).get_json()
    assert row["args"] == ["a"]
    own.post("/tell", own.admin, {"text": f"p({MARKER}2)"}, **as_labels(HR))
    own.post(f"/tx/commit/{mine['X_Transaction_ID']}", own.writer, {})
    rows = own.post("/ask", own.admin, {"text": "p(?x)"}).get_json()
    assert sorted(row["args"][0] for row in rows) == ["a", MARKER, f"{MARKER}2"]
    (stored,) = own.post("/query", own.admin, {"text": "p(a)"}).get_json()
    assert stored["labels"] == ENG


def test_a_key_with_labels_writes_no_others_in_a_transaction(own: Walked) -> None:
    staged = {"X_Transaction_ID": own.post("/tx/begin", own.web, {}).text}
    raised = {"text": "p(x)", "labels": {"trust": "user"}}
    assert own.send("POST", "/tell", own.web, raised, **staged).status_code == 403
    staged = {"X_Transaction_ID": own.post("/tx/begin", own.web, {}).text}
    own.post("/tell", own.web, {"text": "p(x)"}, **staged)
    own.post("/teach", own.web, {"text": "q(?x) :- p(?x)."}, **staged)
    own.post(f"/tx/commit/{staged['X_Transaction_ID']}", own.web, {})
    assert own.post("/ask", own.admin, {"text": "q(?x)"}, X_View='{"trust": "user"}').json == []
    assert len(own.post("/ask", own.admin, {"text": "q(?x)"}).get_json()) == 1


# -- labels in text --------------------------------------------------------------------------------


def test_a_key_names_no_labels_above_its_own_in_a_text(own: Walked) -> None:
    own.post("/teach", own.admin, {"text": "p(x)."})
    for key, label, dimension in (
        (own.web, "trust=user", "trust"),
        (own.writer, "team=hr", "team"),
    ):
        for path, field in (("/teach", "text"), ("/assert/rule", "text"), ("/execute", "command")):
            for text in (
                f"p(y) [{label}].",
                f"q(?x) :- p(?x) [{label}].",
                f"p(z). p(y) [{label}].",
            ):
                answer = own.send("POST", path, key, {field: text})
                assert answer.status_code == 403, (path, text, answer.text)
                assert answer.get_json()["details"] == {"dimension": dimension}
    for key, label in ((own.web, "trust=web"), (own.writer, "team=eng")):
        own.post("/teach", key, {"text": f"p(low) [{label}]."})
    rows = own.post("/ask", own.admin, {"text": "p(?x)"}).get_json()
    assert {row["args"][0] for row in rows} == {"x", "low"}
    (low,) = own.post("/query", own.admin, {"text": "p(low)"}).get_json()
    assert [each["labels"] for each in low["byLabels"]] == [{"trust": "web"}, {"team": ["eng"]}]
    for reader in (own.reader, own.writer):
        assert "byLabels" not in own.post("/query", reader, {"text": "p(low)"}).text


def test_the_dump_of_a_server_keeps_each_set_of_labels(own: Walked) -> None:
    text = (
        DECLARED
        + """
        p(a) [team=hr, confidence=0.25]. p(a) [team=(eng, hr), confidence=0.5]. p(b) [trust=web].
        q(?x) :- p(?x). q(?x) :- p(?x) [trust=web]. @requires r(?x) trust >= user.
    """
    )
    own.post("/teach", own.admin, {"text": text})
    (row, _) = own.post("/query", own.admin, {"text": "p(?x)"}).get_json()
    assert [each["confidence"] for each in row["byLabels"]] == [0.25, 0.5]
    (requirement,) = own.send("GET", "/rules", own.admin).get_json()["requirements"]
    assert requirement["text"] == "@requires r(?x) trust >= user."


# -- answers that require a level ------------------------------------------------------------------


REQUIRED = """
@levels trust: web < user.
@requires pay(?who, ?what) trust >= user.
pay(?who, ?what) :- due(?who, ?part), ?what = concat("ze", ?part).
due(ann, "ro").
due(ann, "bra") [trust=web].
other(?x) :- due(?x, _).
"""

ASKED: list[Any] = [
    {"text": "pay(?x, ?y)", "predicate": "pay", "args": ["?x", "?y"]},
    {"text": "pay(ann, ?y)"},
    {"text": "pay(?x, ?y)", "withProof": True},
    {"text": "pay(?x, ?y)", "withTrust": True},
    {"text": "pay(?x, ?y)", "plan": True},
    {"text": "pay(?x, other)", "whyNot": True},
    {"text": "pay(?x, other)", "howTo": True},
    {"text": "pay(?x, ?y), due(?x, ?z)"},
    {"text": "not pay(?x, ?y)"},
    {"predicate": "pay", "args": ["?x", "?y"]},
    {"predicate": "pay", "args": ["?x", "?y"], "scope": "*"},
    {"predicate": "pay", "op": "COUNT"},
    {"goals": ["pay(?x, ?y)"]},
    {"goals": ["other(?x)", "pay(?x, ?y)"]},
    {"goal": "pay(?x, ?y)"},
    {"command": "?- pay(?x, ?y)."},
    {"command": "other(bob). ?- pay(?x, ?y)."},
    {"query": "pay(?x, ?y)"},
    {"query": "pay", "goals": ["pay(?x, ?y), other(?x)"]},
    {"query": "ann", "maxTokens": 4000},
    {"question": "What does ann pay?"},
    {"constant": "ann"},
]


def test_no_route_gives_an_answer_below_the_level_that_is_required() -> None:
    with keyed(mcp_tools="all") as server:
        walked = Walked(server, server.make("admin").secret, "", "", "")
        walked.post("/teach", walked.admin, {"text": REQUIRED})
        answered = set()
        for method, template in OF_TENANTS:
            declared = routes()[method, template]
            if method != "POST" or (declared.writes and template != "/execute"):
                continue
            for body in ASKED:
                for accept in (
                    "application/json",
                    "application/vnd.apache.arrow.stream",
                    "text/plain",
                ):
                    answer = walked.send(
                        method, target(template), walked.admin, body, Accept=accept
                    )
                    assert answer.status_code < 500 or answer.status_code == 501, answer.text
                    shown = answer.get_data()
                    assert MARKER.encode() not in shown, (template, body, shown)
                    if b"zero" in shown:
                        answered.add(template)
        for name, tool in all_tools().items():
            for body in () if tool.writes else ASKED:
                for path, message in (
                    ("/mcp", mcp_call(name, body)),
                    ("/a2a", a2a_call({"op": name, **body})),
                ):
                    answer = walked.send("POST", path, walked.admin, message)
                    assert MARKER not in answer.text, (name, body)
        assert answered >= {"/ask", "/infer", "/explain", "/execute"}
