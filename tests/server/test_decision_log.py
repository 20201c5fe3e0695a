"""The decision log: what a line says, what it hides, and that answers never wait for it."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from support.agents import Agent
from support.http import Served, serve_in_memory
from support.receivers import SECRET, Receiver
from werkzeug.test import TestResponse

import kbcore
from kbcore import Config, open_runtime
from kbcore.config.settings import SETTINGS
from kbcore.errors import ConfigError
from kbcore.operations import decision_log, decision_targets
from kbcore.operations.decision_log import goal_text
from kbplanner.syntax.parser import parse_body
from kbplugins.webhooks.sender import Sender
from kbserver.app import create_app

RULES = (
    "owner(plan, ann). can_read(?who, ?doc) :- owner(?doc, ?who)."
    "@mask can_read/2 1. @mask owner/2 2."
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


@pytest.fixture
def served(path: Path) -> Iterator[Served]:
    with serve_in_memory(decision_log=f"file:{path}") as served:
        assert served.client.post("/teach", {"text": RULES}).status_code == 200
        yield served


def lines(served: Served, path: Path) -> list[dict[str, Any]]:
    """Write what waits, and return the lines of the file."""
    assert served.runtime.decisions is not None
    served.runtime.decisions._drain()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_says_what_was_decided(served: Served, path: Path) -> None:
    served.client.post(
        "/ask", {"text": "can_read(ann, plan)"}, headers={"X-Request-ID": "r-1", "X-Tenant-ID": "t"}
    )
    served.client.post("/ask", {"predicate": "can_read", "args": ["bob", "?doc"]})
    first, second = lines(served, path)
    assert first.pop("ms") >= 0
    assert first == {
        "time": kbcore.timestamps.iso_text(served.clock.now_ms()),
        "id": "r-1",
        "key": None,
        "database": "default",
        "tenant": "t",
        "scope": None,
        "goal": 'can_read("***", plan)',
        "holds": True,
        "answers": 1,
        "error": None,
        "generation": served.runtime.read_tenant("default", "t").generation,
        "ruleSets": [],
    }
    assert (second["goal"], second["holds"], second["answers"]) == (
        'can_read("***", ?doc)',
        False,
        0,
    )


def test_every_entry_point_logs_its_goals(served: Served, path: Path) -> None:
    client, agent = served.client, Agent(served.client)
    client.post("/ask", {"goals": ["owner(?d, ?w)", "owner(?d, ?w), can_read(?w, ?d)"]})
    client.post("/ask", {"text": "owner(?d, ?w)", "withProof": True})
    client.post("/ask?limit=1", {"text": "owner(?d, ?w)"})
    arrow = {"Accept": "application/vnd.apache.arrow.stream", "X-Tenant-ID": "t"}
    client.flask.post("/ask", json={"text": "owner(?d, ?w)"}, headers=arrow)
    call = {"name": "ask", "arguments": {"text": "owner(?d, ?w)"}}
    agent.legacy("tools/call", call, X_Tenant_ID="t")
    message = {"messageId": "m", "role": "ROLE_USER"}
    message |= {"parts": [{"data": {"op": "ask", "text": "owner(?d, ?w)"}}]}
    params = {"message": message, "tenant": "t"}
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    assert client.flask.post("/a2a", json=rpc).status_code == 200
    logged = lines(served, path)
    assert [line["answers"] for line in logged] == [1] * 7
    assert {line["tenant"] for line in logged} == {"t"}
    assert all(line["id"] for line in logged)


def test_other_reads_are_not_decisions(served: Served, path: Path) -> None:
    for route in ("/query", "/explain"):
        served.client.post(route, {"text": "owner(plan, ann)"})
    served.client.post("/explain", {"text": "owner(plan, bob)", "whyNot": True})
    served.client.post("/ask", {"text": "p("})
    assert lines(served, path) == []


def test_a_goal_over_a_limit_is_logged_with_its_error(served: Served, path: Path) -> None:
    served.client.post("/tell", {"predicate": "owner", "args": ["memo", "ann"]})
    body = {"text": "can_read(?who, ?doc)", "maxAnswers": 1}
    assert served.client.post("/ask", body).status_code == 422
    (line,) = lines(served, path)
    assert (line["holds"], line["answers"], line["error"]) == (None, None, "BUDGET_EXCEEDED")


def put(served: Served, name: str, body: dict[str, Any]) -> TestResponse:
    headers = {"X-Tenant-ID": "t"}
    return served.client.flask.put(f"/rulesets/{name}", json=body, headers=headers)


def test_lines_name_the_rule_sets_in_force(served: Served, path: Path) -> None:
    for version in (2, 3):
        text = f"level(ann, {version}). may(?who) :- level(?who, ?l), ?l >= {version}."
        assert put(served, "access", {"text": text}).status_code == 200
        served.client.post("/ask", {"text": "may(ann)"})
    other = {"text": "may(bob).", "scope": "draft"}
    assert put(served, "other", other).status_code == 200
    served.client.post("/ask", {"text": "may(bob)"})
    served.client.post("/ask", {"text": "may(bob)", "scope": "draft"})
    named = [line["ruleSets"] for line in lines(served, path)]
    access = {"name": "access", "version": 2}
    assert named == [
        [{"name": "access", "version": 1}],
        [access],
        [access],
        [access, {"name": "other", "version": 1, "scope": "draft"}],
    ]


def test_the_name_of_the_key_is_logged_never_the_key(path: Path) -> None:
    secret = "a-key-of-the-decision-log-tests"
    config = Config(storage_backend="memory", api_key=secret, decision_log=f"file:{path}")
    for fast_path in (True, False):
        with open_runtime(config) as runtime:
            client = create_app(runtime, fast_path=fast_path).test_client()
            headers = {"X-Tenant-ID": "t", "Authorization": f"Bearer {secret}"}
            assert client.post("/ask", json={"text": "p(a)"}, headers=headers).status_code == 200
            assert client.post("/ask", json={"text": "p(a)"}).status_code == 401
    text = path.read_text()
    assert [json.loads(line)["key"] for line in text.splitlines()] == ["API_KEY"] * 2
    assert secret not in text


MASKS = {("can_read", 2): frozenset({0})}


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        ("can_read(ann, plan)", 'can_read("***", plan)'),
        ("not can_read(ann, plan)", 'not can_read("***", plan)'),
        ("can_read(?who, plan)", "can_read(?who, plan)"),
        ("can_read(ann, ?d), owner(?d, ann)", 'can_read("***", ?d), owner(?d, "***")'),
        ("can_read(?w, ?d), ?w = ann", 'can_read(?w, ?d), ?w = "***"'),
        ("can_read(?w, ?d), starts_with(?w, an)", 'can_read(?w, ?d), starts_with(?w, "***")'),
        ("owner(?d, ann), ?d != plan", "owner(?d, ann), ?d != plan"),
        ("can_read(ann, plan, now)", "can_read(ann, plan, now)"),
    ],
)
def test_masked_constants(goal: str, text: str) -> None:
    assert goal_text(parse_body(goal), MASKS) == text


@pytest.mark.parametrize("several", [False, True])
def test_a_goal_with_an_unknown_predicate_shows_no_constants_where_there_are_masks(
    served: Served, path: Path, several: bool
) -> None:
    hidden = {
        "can_raed(ann, plan)": 'can_raed("***", "***")',
        "can_read(ann, plan, now)": 'can_read("***", "***", "***")',
        "not can_raed(ann, plan)": 'not can_raed("***", "***")',
        "~can_raed(ann, ?x)": '~can_raed("***", ?x)',
        "owner(?d, ?w), can_raed(?w, plan), ?w = ann": (
            'owner(?d, ?w), can_raed(?w, "***"), ?w = "***"'
        ),
        "gone(ann)": 'gone("***")',
    }
    plain = {
        "can_read(?w, plan)": "can_read(?w, plan)",
        "plain(ann)": "plain(ann)",
        "~plain(ann)": "~plain(ann)",
        "member(ann)": "member(ann)",
        "concluded(ann)": "concluded(ann)",
    }
    text = "plain(a). gone(a). @input member(who). concluded(?x) :- plain(?x)."
    assert served.client.post("/teach", {"text": text}).status_code == 200
    served.client.post("/forget", {"predicate": "gone", "args": ["a"]})
    goals = [*hidden, *plain]
    bodies = [{"goals": goals}] if several else [{"text": goal} for goal in goals]
    for body in bodies:
        assert served.client.post("/ask", body).status_code == 200
    logged = [line["goal"] for line in lines(served, path)]
    assert logged == [{**hidden, **plain}[goal] for goal in goals]


def test_an_unknown_predicate_is_unknown_in_its_scope_and_only_masks_count(
    served: Served, path: Path
) -> None:
    client = served.client
    client.post("/execute", {"command": "seen(ann).", "scope": "draft"})
    for body in ({}, {"scope": "draft"}, {"scope": "*"}):
        assert client.post("/ask", {"text": "seen(ann)", **body}).status_code == 200
    for mask in ("@can_read/2 mask", "@owner/2 mask"):
        client.post("/retract/rule", {"id": mask})
    assert client.post("/ask", {"text": "sene(ann)"}).status_code == 200
    logged = [line["goal"] for line in lines(served, path)]
    assert logged == ['seen("***")', "seen(ann)", "seen(ann)", "sene(ann)"]


def test_masks_hide_arguments_of_goals_about_the_time_before_them(
    served: Served, path: Path
) -> None:
    before = served.clock.now_ms()
    served.clock.advance(1000)
    assert served.client.post("/teach", {"text": "@mask can_read/2 1, 2."}).status_code == 200
    served.clock.advance(1000)
    for goal in ({"text": "can_read(ann, plan)"}, {"goals": ["can_read(ann, plan)"]}):
        assert served.client.post("/ask", {**goal, "knownAt": before}).status_code == 200
    now = kbcore.timestamps.iso_text(served.clock.now_ms())
    expected = ('can_read("***", "***")', True, now)
    logged = [(line["goal"], line["holds"], line["time"]) for line in lines(served, path)]
    assert logged == [expected, expected]


def test_the_queue_holds_as_many_long_goals_as_fit_into_memory(
    served: Served, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the target takes no lines, goals of megabytes would fill the memory of the node."""
    monkeypatch.setattr(decision_log, "MAX_WAITING", 200)
    decisions = served.runtime.decisions
    assert decisions is not None
    served.client.post("/tell", {"predicate": "p", "args": ["a"]})
    with decisions._draining:
        for number in range(5):
            body = {"predicate": "p", "args": [f"{number}" + "x" * 60_000]}
            assert served.client.post("/ask", body).status_code == 200
        assert metric(served, "dropped") == 2
        served.client.post("/ask", {"text": f"p(?x), ?x = {'y' * 60_000}"})
        assert metric(served, "dropped") == 3
    words = decision_log._word.cache_info().currsize
    assert [line["goal"][:4] for line in lines(served, path)] == ['p("0', 'p("1', 'p("2']
    assert decision_log._word.cache_info().currsize == words
    assert metric(served, "written") == 3


def test_a_line_names_a_bounded_number_of_rule_sets(
    served: Served, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_log, "MAX_NAMED", 2)
    for name in "abc":
        assert put(served, name, {"text": f"{name}(x)."}).status_code == 200
    served.client.post("/ask", {"text": "a(x)"})
    (line,) = lines(served, path)
    assert [each["name"] for each in line["ruleSets"]] == ["a", "b"]


def test_control_characters_are_escaped(served: Served, path: Path) -> None:
    served.client.post("/ask", {"predicate": "p", "args": ["\x9b31m\u202e\u2028\x1b[0m\n\x7f"]})
    assert len(lines(served, path)) == 1
    (text,) = path.read_text("utf-8").splitlines()
    assert text.isascii()
    assert text.isprintable()


def test_a_renamed_file_is_left_and_a_new_one_begun(served: Served, path: Path) -> None:
    served.client.post("/ask", {"text": "owner(plan, ann)"})
    assert len(lines(served, path)) == 1
    path.rename(path.with_suffix(".1"))
    served.client.post("/ask", {"text": "owner(plan, ann)"})
    assert len(lines(served, path)) == 1
    assert len(path.with_suffix(".1").read_text().splitlines()) == 1
    assert path.stat().st_mode & 0o077 == 0


def metric(served: Served, outcome: str) -> float:
    for line in served.client.get("/metrics").text.splitlines():
        if line.startswith(f'svc_decision_log_lines_total{{outcome="{outcome}"}}'):
            return float(line.split()[-1])
    raise AssertionError(outcome)


def test_answers_go_on_while_the_disk_is_full(
    served: Served, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def half(file: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:30])

    monkeypatch.setattr(decision_targets.os, "write", half)
    assert served.client.post("/ask", {"text": "owner(plan, ann)"}).status_code == 200
    assert served.runtime.decisions is not None
    served.runtime.decisions._drain()
    monkeypatch.undo()
    assert served.client.post("/ask", {"text": "owner(memo, ?who)"}).status_code == 200
    served.runtime.decisions._drain()
    torn, whole = path.read_text().splitlines()
    assert torn
    assert json.loads(whole)["goal"] == "owner(memo, ?who)"
    assert (metric(served, "failed"), metric(served, "written")) == (1, 1)


def test_what_the_queue_cannot_hold_is_dropped_and_counted(
    served: Served, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_log, "MAX_WAITING", 0)
    assert served.client.post("/ask", {"text": "owner(plan, ann)"}).status_code == 200
    assert metric(served, "dropped") == 1
    assert lines(served, path) == []


def test_embedded_goals_are_logged_when_the_setting_is_set(path: Path) -> None:
    with kbcore.open_kb("memory:", config=Config(decision_log=f"file:{path}")) as kb:
        kb.tell("owner(plan, ann).")
        kb.ask("owner(plan, ?who)")
        kb.ask_many(["owner(plan, ann)", "owner(plan, bob), owner(?d, ann)"])
    logged = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["answers"] for line in logged] == [1, 1, 0]


@pytest.mark.parametrize(
    "value",
    [
        "decisions.jsonl",
        "file:",
        "statsd",
        "statsd:localhost",
        "statsd::8125",
        "statsd:localhost:0",
        "webhook:",
        "webhook:ftp://x",
        "webhook:hooks.example.com",
    ],
)
def test_targets_that_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="DECISION_LOG"):
        Config.from_env({"DECISION_LOG": value})


def test_the_token_in_the_address_of_a_webhook_is_not_shown() -> None:
    url = "https://hooks.example.com/services/T0/B0-token"
    config = Config.from_env({"DECISION_LOG": f"webhook:{url}", "WEBHOOK_URLS": url})
    (setting,) = [each for each in SETTINGS if each.field == "decision_log"]
    assert setting.parser.format(config.decision_log) == "webhook:***"
    assert setting.parser.format("file:a/b/c.jsonl") == "file:a/b/c.jsonl"
    assert {url, "T0/B0-token"} <= set(config.secrets())


def test_a_path_that_cannot_be_opened_prevents_the_start(tmp_path: Path) -> None:
    config = Config(storage_backend="memory", decision_log=f"file:{tmp_path}/none/log")
    with pytest.raises(ConfigError, match="DECISION_LOG"), open_runtime(config):
        pass


def test_a_mask_is_stored_dumped_and_retracted(served: Served) -> None:
    kb = served.runtime.knowledge_base("default", "t")
    declared = [each.text for each in kb.contents().declarations]
    assert declared == ["@mask can_read/2 1.", "@mask owner/2 2."]
    gone = served.client.post("/retract/rule", {"id": "@can_read/2 mask"})
    assert gone.text == "Mask Retracted: @mask can_read/2 1."


@pytest.mark.parametrize(
    "text", ["@mask p/2.", "@mask p/2 3.", "@mask p/2 0.", "@mask p/2 1, 1.", '@mask p/2 "x".']
)
def test_masks_that_are_refused(served: Served, text: str) -> None:
    assert served.client.post("/teach", {"text": text}).status_code == 400


def drain(served: Served) -> None:
    assert served.runtime.decisions is not None
    served.runtime.decisions._drain()


def test_statsd_gets_the_counts_by_decision() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
        daemon.bind(("127.0.0.1", 0))
        daemon.settimeout(30)
        target = f"statsd:127.0.0.1:{daemon.getsockname()[1]}"
        with serve_in_memory(decision_log=target) as served:
            served.client.post("/tell", {"text": "owner(plan, ann)"})
            counts: Counter[str] = Counter()
            for text in ["owner(plan, ?w)", "owner(plan, ann)", "owner(plan, bob)"]:
                served.client.post("/ask", {"text": text})
            served.client.post("/tell", {"text": "owner(memo, ann)"})
            served.client.post("/ask", {"text": "owner(?d, ?w)", "maxAnswers": 1})
            while counts.total() < 4:
                drain(served)
                for line in daemon.recv(1500).decode().split("\n"):
                    name, kind, tag = line.split("|")
                    metric_name, number = name.split(":")
                    assert (metric_name, kind) == ("svc_decisions_total", "c")
                    counts[tag] += int(number)
            assert counts == {"#decision:true": 2, "#decision:false": 1, "#decision:error": 1}
            assert metric(served, "written") == 4


def serve_with(receiver: Receiver, **more: Any) -> AbstractContextManager[Served]:
    return serve_in_memory(
        decision_log=f"webhook:{receiver.url}",
        webhook_urls=(receiver.url,),
        webhook_private_addresses=True,
        webhook_secret=SECRET,
        **more,
    )


def test_a_webhook_gets_all_lines_in_order_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision_log, "WRITE_INTERVAL_S", 3600.0)
    monkeypatch.setattr(decision_targets, "MAX_MESSAGE_BYTES", 600)
    with Receiver() as receiver, serve_with(receiver) as served:
        receiver.statuses += [500, 302]
        goals = [f"owner(d{number}, ?w)" for number in range(5)]
        for goal in goals:
            served.client.post("/ask", {"text": goal})
        drain(served)
        drain(served)  # the circuit is open: nothing is sent
        assert (receiver.attempts, metric(served, "written")) == (1, 0)
        for attempts in (2, 5):
            served.clock.advance(7200_000)
            drain(served)
            assert receiver.attempts == attempts
        messages = [message for _, message in receiver.deliveries]
        assert {message["type"] for message in messages} == {"decisions.made"}
        logged = [line for message in messages for line in message["data"]["decisions"]]
        assert [line["goal"] for line in logged] == goals
        assert len({id for id, _ in receiver.deliveries}) == 3
        assert (receiver.unsigned, metric(served, "written")) == (0, 5)


def test_lines_for_a_receiver_that_fails_are_bounded_and_counted_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision_log, "MAX_WAITING", 3)
    monkeypatch.setattr(decision_log, "WRITE_INTERVAL_S", 3600.0)
    with Receiver() as receiver, serve_with(receiver) as served:
        receiver.statuses += [500, 500]
        for number in range(5):
            served.client.post("/ask", {"text": f"owner(d{number}, ?w)"})
        assert metric(served, "dropped") == 2
        assert served.runtime.decisions is not None
        served.runtime.decisions.close()
        assert (metric(served, "failed"), metric(served, "written")) == (3, 0)


def test_no_answer_waits_for_a_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "WRITE_INTERVAL_S", 3600.0)
    with Receiver() as receiver, serve_with(receiver) as served:
        is_sending, may_end = threading.Event(), threading.Event()
        send = Sender.send

        def slow(*arguments: Any) -> Any:
            is_sending.set()
            assert may_end.wait(60)
            return send(*arguments)

        monkeypatch.setattr(Sender, "send", slow)
        served.client.post("/ask", {"text": "owner(plan, ?w)"})
        writer = threading.Thread(target=drain, args=(served,))
        writer.start()
        assert is_sending.wait(60)
        assert served.client.post("/ask", {"text": "owner(memo, ?w)"}).status_code == 200
        may_end.set()
        writer.join(60)
        goals = [line["goal"] for _, m in receiver.deliveries for line in m["data"]["decisions"]]
        assert goals == ["owner(plan, ?w)", "owner(memo, ?w)"]


@pytest.mark.parametrize(
    ("url", "settings", "problem"),
    [
        ("https://logs.example.com/kb", {}, "needs WEBHOOK_URLS"),
        (
            "https://logs.example.com/kb",
            {"webhook_urls": ("https://hooks.example.com/",), "webhook_secret": SECRET},
            "not below an address that WEBHOOK_URLS allows",
        ),
        (
            "https://hooks.example.com/kb",
            {"webhook_urls": ("https://hooks.example.com/",)},
            "WEBHOOK_SECRET is not set",
        ),
    ],
)
def test_addresses_of_a_webhook_that_prevent_the_start(
    url: str, settings: dict[str, Any], problem: str
) -> None:
    config = Config(storage_backend="memory", decision_log=f"webhook:{url}", **settings)
    with pytest.raises(ConfigError, match=problem), open_runtime(config):
        pass


def test_a_private_address_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "WRITE_INTERVAL_S", 3600.0)
    with Receiver() as receiver:
        settings = {"webhook_urls": (receiver.url,), "webhook_secret": SECRET}
        with serve_in_memory(decision_log=f"webhook:{receiver.url}", **settings) as served:
            served.client.post("/ask", {"text": "owner(plan, ?w)"})
            drain(served)
            assert metric(served, "written") == 0
        assert receiver.attempts == 0
