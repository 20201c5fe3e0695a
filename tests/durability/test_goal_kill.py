"""kill -9 of a server with subscriptions: readers, clients and webhooks miss no change."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.receivers import SECRET, Receiver
from support.servers import Server

pytestmark = pytest.mark.crash


def get(server: Server, path: str) -> Any:
    connection = server.connect()
    connection.request("GET", path, headers={"X-Tenant-ID": "t"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, body
    return json.loads(body)


def post(server: Server, path: str, body: Any) -> Any:
    status, answer = server.post(path, body)
    assert status == 200, answer
    return answer


def apply(answers: set[str], change: dict[str, Any]) -> set[str]:
    gone = {row["args"][0] for row in change["disappeared"]}
    new = {row["args"][0] for row in change["appeared"]}
    assert gone <= answers
    assert not new & answers
    return answers - gone | new


def write(server: Server, chance: random.Random, truth: set[str], count: int) -> None:
    for _ in range(count):
        name = str(chance.randrange(20))
        if name in truth and chance.random() < 0.6:
            post(server, "/retract", {"text": f"p({name})"})
            truth.discard(name)
        else:
            post(server, "/tell", {"text": f"p({name})."})
            truth.add(name)


def test_a_reader_resumes_from_any_event_after_kills(tmp_path: Path) -> None:
    chance = random.Random(7)
    truth: set[str] = set()
    positions: list[tuple[str, set[str]]] = []
    for round_number in range(6):
        with Server(tmp_path) as server:
            if round_number == 0:
                post(server, "/teach", {"text": "q(?x) :- p(?x)."})
                body = {"goal": "q(?x)", "id": "g"}
                first = json.loads(post(server, "/goals/subscribe", body))
                positions.append((first["eventId"], set()))
                assert first["durable"]
            for position, known in positions:
                since, answers, count = position, known, 0
                while changes := get(server, f"/goals/g/changes?since={quote(since)}&limit=7"):
                    assert not changes["lost"]
                    if not changes["changes"]:
                        break
                    for change in changes["changes"]:
                        answers, since = apply(answers, change), change["eventId"]
                        count += 1
                assert answers == truth, (position, count)
            write(server, chance, truth, 15)
            now = get(server, "/goals/g")
            assert {row["args"][0] for row in now["answers"]} == truth
            positions.append((now["eventId"], set(truth)))
            positions.append((str(now["commitSeq"]), set(truth)))
            write(server, chance, truth, 3)
            server.kill()


def test_a_webhook_gets_every_change_in_order_across_kills(tmp_path: Path) -> None:
    chance = random.Random(11)
    truth: set[str] = set()
    with Receiver() as receiver:
        settings = {"WEBHOOK_URLS": receiver.url, "WEBHOOK_PRIVATE_ADDRESSES": "true"}
        for round_number in range(4):
            with Server(tmp_path, **settings) as server:
                if round_number == 0:
                    webhook = {"url": receiver.url + "/a", "secret": SECRET}
                    body = {"goal": "p(?x)", "id": "g", "webhook": webhook}
                    answer = post(server, "/goals/subscribe", body)
                    assert SECRET.encode() not in answer
                receiver.statuses += [503] if round_number == 1 else []
                write(server, chance, truth, 10)
                if round_number < 3:
                    seen = len(receiver.deliveries)
                    receiver.wait(lambda r, seen=seen: r.attempts > seen or r.deliveries)
                    server.kill()
                else:
                    last = get(server, "/goals/g")

                    def has_all(receiver: Receiver, last: Any = last) -> bool:
                        return states(receiver)[1] == {row["args"][0] for row in last["answers"]}

                    receiver.wait(has_all)
                    shown = get(server, "/goals")
                    assert SECRET not in json.dumps(shown)
                    assert shown["goals"][0]["webhook"] == receiver.url + "/a"
        assert receiver.unsigned == 0
        seqs, answers = states(receiver)
        assert answers == truth
        assert seqs == sorted(seqs)


def states(receiver: Receiver) -> tuple[list[int], set[str]]:
    """Apply the deliveries in order, repeated ones once; return the commits and the answers."""
    known: set[str] = set()
    seqs: list[int] = []
    ids: set[str] = set()
    for id, message in receiver.deliveries:
        if id in ids:
            continue
        ids.add(id)
        assert message["type"] == "goal.changed"
        known = apply(known, message["data"])
        seqs.append(message["data"]["commitSeq"])
    return seqs, known
