"""No text stops a node: while a request is read, others get their turn, and its deadline ends it.

The matrix is every operation that takes text, with hostile texts in each of its text fields. Steps
are counted, not seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import cycle, product
from typing import Any

import httpcore
import httpx
import pytest
from support.agents import Agent
from support.http import Served, error_of, serve_in_memory
from support.runtimes import runtime
from support.stalls import (
    CALLS_BETWEEN,
    FORMS,
    SHAPES,
    WITHOUT_TEXT,
    body_with,
    fields_with_texts,
    grown,
    operations_with_texts,
)
from support.turns import Relay, Turns
from werkzeug.test import TestResponse

from kbcore.branching.preview import Proposal
from kbcore.scheduling import Scheduling
from kbplanner.check.texts import check_texts
from kbplanner.compile import rules as compile_rules
from kbplanner.compile.build import _Builder
from kbplanner.errors import InvalidInput, RuleSyntaxError
from kbplanner.ir.terms import Rule
from kbplanner.passes.lower import lower
from kbplanner.syntax.parser import (
    MAX_GOAL_BYTES,
    load_grammar,
    parse_goal,
    parse_program,
    parse_rule,
)
from kbplanner.syntax.scanner import MAX_STATEMENT_CHARS, TOO_LONG, scan_statement
from kbplugins.webhooks.transport import MAX_READ_BYTES, DeadlineTransport
from kbserver.mcp.tools import all_tools
from kbserver.operations import operations
from kbserver.schemas.base import Body
from kbserver.schemas.fields import Value


@pytest.fixture(autouse=True, scope="module")
def loaded_grammar() -> None:
    """Load the grammar, as a server does at its start."""
    load_grammar()


def read_or_refused(read: Callable[[], Any]) -> None:
    try:
        read()
    except InvalidInput:
        return


# ---- the parser ----


@pytest.mark.parametrize("shape", SHAPES)
def test_the_parser_gives_turns(shape: str) -> None:
    turns = Turns()
    with turns.counted():
        read_or_refused(lambda: parse_program(SHAPES[shape], yield_now=turns))
    assert turns.most_calls < CALLS_BETWEEN


@pytest.mark.parametrize("shape", SHAPES)
def test_goals_give_turns(shape: str) -> None:
    turns = Turns()
    with turns.counted():
        read_or_refused(lambda: parse_goal(SHAPES[shape][: MAX_GOAL_BYTES - 1], yield_now=turns))
    assert turns.most_calls < CALLS_BETWEEN


def test_scanning_stops_at_the_limit_of_a_statement() -> None:
    for text in ("p(", "(", "a, ", '"\n', "p(a, % comment\n"):
        turns = Turns()
        tokens, end = scan_statement(text * 1_000_000, 0, turns)
        assert tokens[-1].type == TOO_LONG
        assert end == len(text) * 1_000_000
        assert tokens[-1].start <= 2 * MAX_STATEMENT_CHARS
        assert turns.count < MAX_STATEMENT_CHARS // 100


def test_a_long_statement_is_refused_where_it_is_too_long() -> None:
    with pytest.raises(RuleSyntaxError) as raised:
        parse_program("q(a).\np(" + "a,   " * 30_000 + "b).\nr(.")
    (error,) = raised.value.errors
    assert (error["line"], error["code"]) == (2, "too-long")


def test_long_constants_are_no_long_statement() -> None:
    text = ", ".join('"' + "\\u0041" * 60_000 + '"' for _ in range(8))
    (fact,) = parse_program(f"p({text}).")
    assert fact.atom.args == ("A" * 60_000,) * 8  # type: ignore[union-attr]


def test_a_goal_has_a_limit() -> None:
    assert parse_goal("p(" + "a" * (MAX_GOAL_BYTES - 3) + ")")
    for text in ("p(" + "a" * MAX_GOAL_BYTES + ")", "p(" + "ä" * (MAX_GOAL_BYTES // 2) + ")"):
        with pytest.raises(InvalidInput, match="a goal has at most 65536 bytes"):
            parse_goal(text)


@pytest.mark.parametrize(
    "text",
    [
        "% kb: ignore " + " ".join(f"K{number}" for number in range(20_000)),
        "% kb: ignore " + "K105 " * 100_000,
        "% kb: ignore K105 K113 K104\n" * 4000,
        "% kb: ignore\n" + " " * 3_000_000,
    ],
    ids=["many codes", "one code", "many comments", "blanks"],
)
def test_comments_that_suppress_warnings_give_turns(text: str) -> None:
    turns = Turns()
    with turns.counted():
        check_texts([text], yield_now=turns)
    assert turns.most_calls < CALLS_BETWEEN / 2
    assert turns.count > len(text) // CHARS_OF_A_TURN


@pytest.mark.parametrize("line", ["?- p{0}(a).\n", "p(A{0}). p(a{0}).\n"])
def test_a_text_with_many_findings_gives_turns(line: str) -> None:
    lines = 10_000
    text = "known(a).\n" + "".join(line.format(number) for number in range(lines))
    turns = Turns()
    with turns.counted():
        (findings,) = check_texts([text], yield_now=turns)
    assert len(findings) >= lines
    assert turns.most_calls < CALLS_BETWEEN / 2


CHARS_OF_A_TURN = 1 << 19
"""Characters of a text that are searched between two turns of others, at most."""


# ---- every operation that takes text ----

SIZE_OF_BODIES = 16 * 1024
CALLS_OF_BODIES = 30_000
"""Calls of functions between two turns while a body of that size is read and answered."""

MATRIX_SHAPES = ("facts", "rules", "keys", "errors", "arguments", "calls", "conjunction", "tests")
OPERATIONS = operations_with_texts()


def short(shape: str) -> str:
    """Return the text of a shape in the size of a body."""
    return grown(SHAPES[shape], SIZE_OF_BODIES)


def cases(
    body: Body, keys: Iterable[str], first: int, main: Collection[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield bodies with a long text in each key, and names for them.

    The forms take the shapes in turn, beginning with number `first`, so that each form meets each
    shape in some operation. A key of `main` gets all shapes as texts.
    """
    turn = cycle(MATRIX_SHAPES[first % len(MATRIX_SHAPES) :] + MATRIX_SHAPES)
    for key in keys:
        for form, value in FORMS.items():
            is_main = form == "text" and key in main
            for shape in MATRIX_SHAPES if is_main else (next(turn),):
                yield f"{key}: {form} of {shape}", body_with(body, key, value(short(shape)))


def body_of(route: str) -> Body:
    """Return the reader of the body of an operation."""
    body = OPERATIONS[route].body_reader
    assert body is not None
    return body


def send(served: Served, route: str, data: Any, tenant: str) -> TestResponse:
    """Send a body to an operation; a part of the path is a name that exists, or none."""
    method, path = route.split()
    path = re.sub("<[a-z]+>", "default", path)
    return served.client.flask.open(path, method=method, json=data, headers={"X-Tenant-ID": tenant})


@pytest.mark.parametrize("route", OPERATIONS)
def test_operations_give_turns(route: str) -> None:
    body = body_of(route)
    relay = Relay()  # the committer keeps the function with which it was made
    with serve_in_memory(scheduling=Scheduling(yield_now=relay)) as served:
        main = ("text", "teach", "command", "goal")
        named = cases(body, fields_with_texts(body), len(route), main)
        for number, (name, data) in enumerate(named):
            relay.turns = turns = Turns()
            with turns.counted():
                answer = send(served, route, data, f"t{number}")
            assert answer.status_code < 500 or answer.status_code == 501, (name, answer.text)
            assert turns.most_calls < CALLS_OF_BODIES, (name, turns.most_calls)


@pytest.mark.parametrize("name", all_tools())
def test_tools_give_turns(name: str) -> None:
    tool = all_tools()[name]
    body = tool.operation.body_reader if tool.declared.body is None else tool.declared.body()
    if body is None:
        return
    keys = [key for key in fields_with_texts(body) if key in tool.declared.takes]
    with serve_in_memory(mcp_tools="all") as served:
        agent = Agent(served.client)
        for number, (case, arguments) in enumerate(cases(body, keys, len(name))):
            served.runtime.yield_now = turns = Turns()
            call = {"name": name, "arguments": arguments}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            with turns.counted():
                answer = agent.send(message, X_Tenant_ID=f"t{number}")
            assert answer.status_code == 200, (case, answer.text)
            assert turns.most_calls < CALLS_OF_BODIES, (case, turns.most_calls)


@pytest.mark.parametrize("shape", MATRIX_SHAPES)
def test_agent_messages_give_turns(shape: str) -> None:
    text = short(shape)
    parts: list[list[Any]] = [
        [{"text": text}],
        [{"text": f"?- {text}"}],
        [{"text": line} for line in text.split("\n")[:64]],
        *([{"data": {"op": op, "text": text}}] for op in ("ask", "teach", "ingest", "tell")),
        [{"data": {"op": "preview", "teach": text}}],
    ]
    with serve_in_memory(mcp_tools="all") as served:
        for number, each in enumerate(parts):
            served.runtime.yield_now = turns = Turns()
            content = {"messageId": "m", "role": "ROLE_USER", "parts": each}
            params = {"message": content, "tenant": f"t{number}"}
            message = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
            with turns.counted():
                answer = served.client.flask.post("/a2a", json=message)
            assert answer.status_code == 200, answer.text
            assert turns.most_calls < CALLS_OF_BODIES, (number, turns.most_calls)


MIN_TURNS = 10
"""Turns of a text that takes long to read: some are given after a write, which no deadline ends."""


@pytest.mark.parametrize("route", OPERATIONS)
def test_the_deadline_ends_reading(route: str) -> None:
    """A text that gives many turns ends after the two that its time allows."""
    body = body_of(route)
    with serve_in_memory(query_timeout_ms=2000) as served:
        for key in fields_with_texts(body):
            for shape in ("rules", "calls"):
                data = body_with(body, key, short(shape))
                served.runtime.yield_now = turns = Turns()
                answer = send(served, route, data, "t")
                if turns.count < MIN_TURNS or answer.status_code == 501:
                    continue
                served.runtime.yield_now = lambda: served.clock.advance(1000)
                answer = send(served, route, data, "u")
                details = error_of(answer, 422, "BUDGET_EXCEEDED")["details"]
                assert details["limit"] == "timeMs", (key, shape)


def test_the_fields_without_texts_refuse_long_ones() -> None:
    """The exceptions of the matrix: each is in use, and none takes a text of any shape."""
    fields = [
        field
        for each in operations()
        if each.body_reader is not None
        for field in each.body_reader.fields.values()
    ]
    assert {type(field) for field in fields} >= set(WITHOUT_TEXT)
    for field in fields:
        if isinstance(field, Value) and type(field) in WITHOUT_TEXT:
            for form, shape in product(FORMS.values(), ("facts", "one word")):
                with pytest.raises(ValueError, match=r"."):
                    field.read(form(short(shape)))


def test_the_matrix_has_the_operations_that_take_text() -> None:
    paths = {route.split()[1] for route in OPERATIONS}
    assert {"/infer", "/query", "/check", "/preview", "/execute", "/extract", "/explain"} <= paths
    assert {"/context", "/context/ingest", "/episodes", "/goals/subscribe"} <= paths
    assert fields_with_texts(body_of("POST /preview")) == [
        "tell",
        "teach",
        "forget",
        "forgetRules",
        "scope",
    ]


def test_a_request_over_its_deadline_stores_nothing() -> None:
    with serve_in_memory() as served:
        served.runtime.yield_now = lambda: served.clock.advance(1000)
        error = error_of(
            served.client.post("/teach", {"text": short("rules")}), 422, "BUDGET_EXCEEDED"
        )
        assert error["details"]["limit"] == "timeMs"
        served.runtime.yield_now = lambda: None
        assert served.client.get("/rules").get_json()["rules"] == []


@pytest.mark.parametrize("path", ["/ask", "/infer", "/query"])
def test_a_long_goal_names_its_field(path: str) -> None:
    with serve_in_memory() as served:
        body = {"text": "p(" + "a," * 40_000 + "a)"}
        answer = served.client.post(path, body)
        assert answer.status_code == 400
        assert "text" in answer.get_json()["details"]["fields"]


# ---- n rules cost about n steps ----


class Count:
    """Counts the calls of a method."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.count = 0
        method = getattr(owner, name)

        def counted(*args: Any, **more: Any) -> Any:
            self.count += 1
            return method(*args, **more)

        monkeypatch.setattr(owner, name, counted)


def flat(count: int) -> list[Rule]:
    return [parse_rule(f"h{i}(?x) :- q(?x, a{i}).") for i in range(count)]


def chain(count: int) -> list[Rule]:
    return [parse_rule(f"p{i + 1}(?x) :- p{i}(?x), not r(?x).") for i in range(count)]


@pytest.mark.parametrize("rules_of", [flat, chain])
def test_a_preview_plans_each_rule_once(
    rules_of: Callable[[int], list[Rule]], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = Count(monkeypatch, _Builder, "_finished")
    steps = []
    for count in (40, 80):
        node = runtime()
        try:
            plans.count = 0
            node.knowledge_base().preview(Proposal(rules=tuple(rules_of(count))))
            steps.append(plans.count)
        finally:
            node.close()
    assert steps[1] < 2.5 * steps[0]


@pytest.mark.parametrize("rules_of", [flat, chain])
def test_teaching_compiles_the_rules_once(
    rules_of: Callable[[int], list[Rule]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: list[int] = []

    def counted(rules: Any, *args: Any) -> Any:
        lowered.append(len(rules))
        return lower(rules, *args)

    monkeypatch.setattr(compile_rules, "lower", counted)
    node = runtime()
    try:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule("known(?x) :- told(?x)")])  # makes the tenant
        lowered.clear()
        kb.assert_rules(rules_of(50))
        kb.query_rows("p0", ["a"])
        assert sum(lowered) <= 2 * 51  # once for each set of explicit negatives
    finally:
        node.close()


def test_checking_takes_turns_for_rules_with_one_head() -> None:
    turns = Turns()
    text = "".join(f"h(?x) :- q(?x, a{i}).\n" for i in range(400))
    with turns.counted():
        check_texts([text], yield_now=turns)
    assert turns.most_calls < CALLS_BETWEEN


@pytest.mark.parametrize("function", ["+", "max"])
def test_computed_values_are_followed_once(function: str) -> None:
    """Each value is computed from the one before twice, so that there are 2**40 ways through."""

    def twice(before: str) -> str:
        return f"{before} + {before}" if function == "+" else f"max({before}, {before})"

    steps = "".join(f", ?v{i + 1} = {twice(f'?v{i}')}" for i in range(40))
    turns = Turns()
    with turns.counted():
        check_texts([f"d(?x, min ?v40) :- d(?x, ?v0), e(?x, ?w){steps}.\n"], yield_now=turns)
    assert turns.most_calls < CALLS_BETWEEN


@pytest.mark.parametrize("path", ["/check", "/teach"])
def test_checking_and_teaching_declare_a_time_limit(path: str) -> None:
    with serve_in_memory() as served:
        served.runtime.yield_now = lambda: served.clock.advance(5)
        body = {"text": "p(a).\n", "timeoutMs": 20_000}
        answer = served.client.post(path, body, headers={"Prefer": "handling=strict"})
        assert answer.status_code == 200, answer.text
        body = {"text": short("rules"), "timeoutMs": 20}
        details = error_of(served.client.post(path, body), 422, "BUDGET_EXCEEDED")["details"]
        assert (details["limit"], details["value"]) == ("timeMs", 20)


# ---- texts that are searched, and windows ----


def many_words(count: int) -> str:
    return " ".join(f"word{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}x{i}" for i in range(count))


@pytest.mark.parametrize(
    "text",
    [many_words(3000), "aB" * 3000, many_words(1500) + " " + many_words(1500)],
    ids=["words", "one word of many", "repeated words"],
)
def test_stored_texts_are_indexed_in_turns(text: str) -> None:
    with serve_in_memory() as served:
        facts = [{"predicate": "told", "args": [text + str(index)] * 4} for index in range(5)]
        served.client.post("/assert/facts", {"facts": facts})
        turns = Turns()
        served.runtime.yield_now = turns
        with turns.counted():
            answer = served.client.post("/memory/context", {"query": "wordaa"})
        assert answer.status_code == 200, answer.text
        assert turns.most_calls < CALLS_BETWEEN


def test_an_index_that_met_its_deadline_goes_on_later() -> None:
    with serve_in_memory() as served:
        texts = [f"{many_words(400)} end{index}" for index in range(20)]
        facts = [{"predicate": "told", "args": [text]} for text in texts]
        served.client.post("/assert/facts", {"facts": facts})
        steps = 0
        served.runtime.yield_now = lambda: served.clock.advance(1000)
        body = {"query": "end7", "timeoutMs": 5000}
        while served.client.post("/memory/context", body).status_code == 422:
            steps += 1
            assert steps < 100
        served.runtime.yield_now = lambda: None
        assert steps
        for index in (0, 7, 19):
            answer = served.client.post("/memory/context", {"query": f"end{index}"}).get_json()
            assert [entry["args"] for entry in answer["entries"]][:1] == [[texts[index]]]


def test_a_query_gives_turns_and_has_a_limit() -> None:
    with serve_in_memory() as served:
        served.client.post("/tell", {"predicate": "p", "args": ["a"]})
        turns = Turns()
        served.runtime.yield_now = turns
        for text in (many_words(5000), "aB" * 30_000):
            with turns.counted():
                answer = served.client.post("/memory/context", {"query": text})
            assert answer.status_code == 200, answer.text
        assert turns.most_calls < CALLS_BETWEEN
        for key in ("query", "asker"):
            body = {"query": "a", key: "ä" * 40_000}
            error = error_of(served.client.post("/memory/context", body), 400, "VALIDATION_ERROR")
            assert key in error["details"]["fields"]


def test_goals_of_a_window_give_turns_and_have_a_limit() -> None:
    with serve_in_memory() as served:
        facts = [{"predicate": "p", "args": [str(index)]} for index in range(120)]
        served.client.post("/assert/facts", {"facts": facts})
        turns = Turns()
        served.runtime.yield_now = turns
        for goals in (["p(?x)"] * 250, [f"q{index}(?x)" for index in range(250)]):
            with turns.counted():
                answer = served.client.post("/memory/context", {"goals": goals})
            assert answer.status_code == 200, answer.text
        assert turns.most_calls < CALLS_BETWEEN


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/memory/context", {"goals": ["p(?x)"] * 251}),
        ("/memory/context", {"predicates": ["p"] * 1001}),
        ("/memory/context", {"relevanceBuckets": [{"name": str(n)} for n in range(101)]}),
        (
            "/memory/context",
            {"relevanceBuckets": [{"name": "a", "predicates": ["p"] * 1001}]},
        ),
        ("/memory/consolidate", {"predicates": ["p"] * 1001}),
    ],
)
def test_lists_that_are_searched_have_limits(path: str, body: dict[str, Any]) -> None:
    with serve_in_memory() as served:
        error = error_of(served.client.post(path, body), 400, "VALIDATION_ERROR")
        assert error["details"]["fields"]


# ---- receivers of webhooks ----


class Repeats(httpcore.NetworkStream):
    """A connection to a receiver that sends the same bytes without an end or a pause."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.read_bytes = 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.read_bytes += len(self._data)
        return self._data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Accept the request."""

    def close(self) -> None:
        """Do nothing."""

    def get_extra_info(self, info: str) -> None:
        """Return nothing."""


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100, b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\n"]
)
def test_a_receiver_that_never_comes_to_its_answer_is_given_up(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Repeats(data)
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", lambda *args, **more: stream)
    request = httpx.Request("POST", "http://127.0.0.1:9/", content=b"{}")
    with pytest.raises(httpx.TransportError, match="ReadError"):
        DeadlineTransport(3600.0).handle_request(request)
    assert stream.read_bytes <= MAX_READ_BYTES + len(data)
