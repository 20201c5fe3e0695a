"""Retries, keys, errors and time limits of the client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from kbcore_client import (
    ConnectionFailed,
    Forbidden,
    InvalidInput,
    NotAServer,
    NotInstalled,
    NotReady,
    RateLimited,
    Retries,
    Settings,
    TimedOut,
    Timeouts,
    TooLarge,
    Unauthorized,
    connect,
    connect_async,
    errors,
    http,
)
from kbtypes.errors import STATUS

STORED = {"asserted": 1, "updated": 0, "timestamp": 1}


class Script:
    """A server that gives scripted answers: a status with headers, or an error to raise."""

    def __init__(self, monkeypatch, *answers):
        self.answers = list(answers)
        self.requests = []
        self.pauses = []
        monkeypatch.setattr(http, "pause", self.pauses.append)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        body = STORED if status < 300 else {"code": "X", "message": "no", "details": None}
        codes = {429: "RATE_LIMITED", 503: "NOT_READY", 409: "CONFLICT", 400: "VALIDATION_ERROR"}
        body = {**body, "code": codes.get(status, "X")} if status >= 300 else body
        if status == 409:
            body["details"] = {"reason": "in_flight"}
        return httpx.Response(status, headers=headers, json=body)

    def connect(self, **options):
        kb = connect("http://scripted", settings=Settings(**options))
        kb._connection._client = httpx.Client(transport=httpx.MockTransport(self.answer))
        return kb

    @property
    def keys(self):
        return [request.headers.get("Idempotency-Key") for request in self.requests]


def test_a_write_is_sent_again_with_the_same_key(monkeypatch):
    script = Script(monkeypatch, httpx.ReadError("reset"), 503, (429, {"Retry-After": "2"}), 200)
    assert script.connect().tell("p", ["a"]).asserted == 1
    assert len(set(script.keys)) == 1
    assert script.keys[0]
    assert len({request.content for request in script.requests}) == 1
    assert script.pauses[0] <= 0.1
    assert 2 <= script.pauses[2] <= 2.4


def test_two_writes_have_different_keys(monkeypatch):
    script = Script(monkeypatch, 200, 200)
    kb = script.connect()
    kb.tell("p", ["a"])
    kb.tell("p", ["a"])
    assert len(set(script.keys)) == 2


def test_reads_have_no_key_and_are_sent_again(monkeypatch):
    script = Script(monkeypatch, httpx.RemoteProtocolError("closed"), 503)
    script.answers += [httpx.ReadError("gone")] * 9
    with pytest.raises(ConnectionFailed, match="scripted was lost: gone"):
        script.connect().ask("p(?x)")
    assert len(script.requests) == 5
    assert script.keys == [None] * 5


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500, 501, 502, 507])
def test_other_statuses_are_never_retried(monkeypatch, status):
    script = Script(monkeypatch, status)
    with pytest.raises(errors.KBError) as error:
        script.connect().tell("p", ["a"])
    assert error.value.status == status
    assert len(script.requests) == 1


def test_a_repeated_write_waits_for_the_first_one(monkeypatch):
    answers = httpx.ReadError("reset"), (409, {"Retry-After": "1"}), 200
    script = Script(monkeypatch, *answers)
    assert script.connect().tell("p", ["a"]).asserted == 1


def test_an_answer_after_a_long_time_is_not_waited_for(monkeypatch):
    script = Script(monkeypatch, (429, {"Retry-After": "3600"}))
    with pytest.raises(RateLimited) as error:
        script.connect().ask("p(?x)")
    assert error.value.retry_after == 3600
    assert script.pauses == []


def test_a_write_without_key_is_sent_again_only_if_it_was_not_sent(monkeypatch):
    script = Script(monkeypatch, httpx.ConnectError("refused"), 200)
    assert script.connect(idempotency=False).tell("p", ["a"]).asserted == 1
    script = Script(monkeypatch, httpx.ReadError("reset"))
    with pytest.raises(ConnectionFailed):
        script.connect(idempotency=False).tell("p", ["a"])
    assert script.keys == [None]


def test_an_answer_that_takes_too_long_is_not_asked_for_again(monkeypatch):
    script = Script(monkeypatch, httpx.ReadTimeout("slow"))
    with pytest.raises(TimedOut, match="within the time limit"):
        script.connect().ask("p(?x)")
    assert len(script.requests) == 1


def test_limits_of_the_work_extend_the_limit_of_the_answer(monkeypatch):
    script = Script(monkeypatch, 200, 200)
    kb = script.connect(timeouts=Timeouts(connect=1, read=2, write=3, pool=4))
    with pytest.raises(KeyError):  # the scripted answer is none of these requests
        kb.context()
    with pytest.raises(KeyError):
        kb.context(timeout_ms=60_000)
    first, second = (request.extensions["timeout"] for request in script.requests)
    assert first == {"connect": 1, "read": 2, "write": 3, "pool": 4}
    assert second == {**first, "read": 65}
    assert json.loads(script.requests[1].content)["timeoutMs"] == 60_000


def test_reads_wait_for_the_writes_of_the_connection(monkeypatch):
    script = Script(monkeypatch, (200, {"X-Commit-Seq": "7"}), 503, 503, 503)
    kb = script.connect(retries=Retries(attempts=0))
    kb.tell("p", ["a"])
    for handle in (kb, kb.open("other"), kb):
        with pytest.raises(NotReady):
            handle.ask("p(?x)")
    sent = [request.headers.get("X-Min-Seq") for request in script.requests]
    assert sent == [None, "7", None, "7"]


def test_reads_go_to_the_follower_and_writes_to_the_leader(monkeypatch):
    script = Script(monkeypatch, 200, 503)
    kb = connect(
        "http://leader/kb",
        read_url="http://follower:1/",
        settings=Settings(retries=Retries(attempts=0)),
    )
    kb._connection._client = httpx.Client(transport=httpx.MockTransport(script.answer))
    kb.tell("p", ["a"])
    with pytest.raises(NotReady):
        kb.ask("p(?x)")
    assert [str(request.url) for request in script.requests] == [
        "http://leader/kb/assert/facts",
        "http://follower:1/ask",
    ]


def test_another_node_of_a_cluster_has_the_tenant(monkeypatch):
    script = Script(monkeypatch, (307, {"Location": "http://other/assert/facts"}), 200)
    assert script.connect().tell("p", ["a"]).asserted == 1
    first, second = script.requests
    assert second.url.host == "other"
    assert (first.content, first.method) == (second.content, second.method)


def test_every_error_code_has_a_class():
    assert set(errors.BY_CODE) == set(STATUS)
    for code, status in STATUS.items():
        answer = {"code": code, "message": "m", "details": {"a": 1}}
        error = errors.error_of(status, answer, request_id="r", retry_after=None)
        assert type(error) is errors.BY_CODE[code]
        assert (error.code, error.status, error.details) == (code, status, {"a": 1})


def test_a_write_whose_answer_is_lost_is_carried_out_once(http_url, monkeypatch):
    monkeypatch.setattr(http, "pause", lambda seconds: None)
    kb = connect(http_url, tenant="lost")
    real, lost = httpx.HTTPTransport(), []

    def lossy(request: httpx.Request) -> httpx.Response:
        response = real.handle_request(request)
        if not lost:
            lost.append(response.read())
            raise httpx.ReadError("the answer is lost")
        return response

    kb._connection._client = httpx.Client(transport=httpx.MockTransport(lossy))
    with real, kb:
        outcome = kb.tell("p", ["a"])
    assert json.loads(lost[0])["asserted"] == 1
    assert (outcome.asserted, outcome.updated) == (1, 0)


def test_wrong_keys(keyed_url, impatient):
    with connect(keyed_url, settings=impatient) as kb, pytest.raises(Unauthorized):
        kb.ask("p(?x)")
    with connect(keyed_url, api_key="x", settings=impatient) as kb:
        with pytest.raises(Unauthorized) as error:
            kb.tell("p(a)")
        assert error.value.status == 401
        assert error.value.request_id
    assert issubclass(Forbidden, errors.KBError)


def test_no_server(impatient):
    with connect("http://127.0.0.1:1", settings=impatient) as kb:
        with pytest.raises(ConnectionFailed, match="is the server running"):
            kb.ask("p(?x)")
        with pytest.raises(ConnectionFailed):
            next(kb.events())


def test_an_address_that_is_no_kbcore_server(monkeypatch, http_url):
    with connect(f"{http_url}/nothing") as kb, pytest.raises(errors.NotFound):
        kb.ask("p(?x)")
    error = errors.error_of(404, "<html>", request_id=None, retry_after=None)
    assert isinstance(error, NotAServer)


@pytest.mark.parametrize(
    "target",
    [
        "",
        "http://",
        "http://user:secret@host",
        "http://host?x=1",
        "localhost:9300",
        "localhost",
        "[::1]:93",
    ],
)
def test_targets_that_are_refused(target):
    with pytest.raises(InvalidInput, match="target: "):
        connect(target)
    with pytest.raises(InvalidInput, match="read_url: "):
        connect("http://host", read_url="host")


def test_a_folder_is_kept(tmp_path):
    with connect(tmp_path / "kb") as kb:
        kb.tell("p(a)")
    with connect(str(tmp_path / "kb")) as kb:
        assert kb.ask("p(?x)") == [("a",)]
    with connect(f"sqlite:{tmp_path / 'kb.db'}") as kb:
        kb.tell_many("p", [[number] for number in range(10)])
    with connect(f"sqlite:{tmp_path / 'kb.db'}") as kb:
        assert kb.count("p") == 10


def test_too_many_facts_at_once(kb):
    with pytest.raises(TooLarge):
        kb.tell_many("p", ([number] for number in range(100_001)))


def test_the_asynchronous_client(target):
    async def session() -> None:
        async with connect_async(**target, tenant="async") as kb:
            await kb.tell("parent(ann, bob). parent(bob, cy).")
            asked = (kb.ask("parent(ann, ?x)"), kb.ask("parent(bob, ?x)"))
            answers = await asyncio.gather(*asked)
            assert [each.one()[1] for each in answers] == ["bob", "cy"]
            async with kb.transaction() as inside:
                await inside.tell("parent(cy, dee)")
            assert [len(page) async for page in kb.query_pages("parent(?x, ?y)", page_size=2)] == [
                2,
                1,
            ]
            stream = kb.events()
            waiting = asyncio.ensure_future(anext(stream))
            while not waiting.done():
                await kb.tell("parent(zoe, ann)")
                await asyncio.wait([waiting], timeout=0.05)
            assert (await waiting).atom["args"] == ["zoe", "ann"]
            await stream.aclose()

    asyncio.run(session())


def test_memory_without_kbcore_is_a_clear_error(root):
    script = (
        "import sys\n"
        "sys.modules['kbcore'] = None\n"
        "import kbcore_client\n"
        "assert 'httpx' not in sys.modules\n"
        "try:\n"
        "    kbcore_client.connect('memory:')\n"
        "except kbcore_client.NotInstalled as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root
    )
    assert "pip install 'kbcore-client[embedded]'" in done.stdout
    assert issubclass(NotInstalled, ImportError)


def test_the_synchronous_client_is_made_from_the_asynchronous_one(root: Path):
    command = [sys.executable, str(root / "tools" / "make_sync.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
