"""Writers that continue until their server is killed, and the check afterwards."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter

from support.servers import Server

WORKERS = 8
PARTS = 5
"""Facts that are forked, merged, evicted or committed together."""


def load(server, worker, round_number, acknowledged, sent, enough):
    """Tell facts one by one and in bulk until the server is gone."""
    connection = server.connect()
    try:
        for n in range(100_000):
            name = f"{round_number}-{worker}-{n}"
            if n % 7 == 6:
                names = [f"{name}-{i}" for i in range(20)]
                body = {"facts": [{"predicate": "bulk", "args": [one, name]} for one in names]}
                sent.append(("bulk", name))
                status, _ = server.post("/assert/facts", body, connection)
                entry = ("bulk", name)
            else:
                sent.append(("fact", name))
                status, _ = server.post("/tell", {"predicate": "fact", "args": [name]}, connection)
                entry = ("fact", name)
            assert status == 200
            acknowledged.append(entry)
            if len(acknowledged) > 60:
                enough.set()
    except (OSError, http.client.HTTPException):
        pass  # the server was killed: what this worker had in flight may be there or not
    finally:
        connection.close()


def present(server):
    facts = {
        row["args"][0]
        for row in json.loads(server.post("/query", {"predicate": "fact", "args": ["?x"]})[1])
    }
    bulks: dict[str, int] = {}
    for row in json.loads(server.post("/query", {"predicate": "bulk", "args": ["?x", "?y"]})[1]):
        bulks[row["args"][1]] = bulks.get(row["args"][1], 0) + 1
    return facts, bulks


def check(server, acknowledged, sent):
    facts, bulks = present(server)
    assert [name for kind, name in acknowledged if kind == "fact" and name not in facts] == []
    assert [name for kind, name in acknowledged if kind == "bulk" and name not in bulks] == []
    assert set(bulks.values()) <= {20}, "half a bulk is there"
    assert facts <= {name for kind, name in sent if kind == "fact"}


def kill_rounds(folder, rounds, seed, load=load, check=check, **settings):
    chance = random.Random(seed)
    acknowledged: list[tuple[str, str]] = []
    sent: list[tuple[str, str]] = []
    for round_number in range(rounds):
        with Server(folder, **settings) as server:
            if acknowledged:
                check(server, acknowledged, sent)
            enough = threading.Event()
            own: list[tuple[str, str]] = []
            threads = [
                threading.Thread(
                    target=load, args=(server, worker, round_number, own, sent, enough)
                )
                for worker in range(WORKERS)
            ]
            for thread in threads:
                thread.start()
            assert enough.wait(60)
            target = len(own) + chance.randrange(40)
            while len(own) < target and any(thread.is_alive() for thread in threads):
                threads[0].join(0.001)
            server.kill()
            for thread in threads:
                thread.join(60)
            acknowledged.extend(own)
    with Server(folder, **settings) as server:
        check(server, acknowledged, sent)
        assert server.stop() == 0
    return len(acknowledged)


def upkeep(server, worker, round_number, acknowledged, sent, enough):
    """Fork, merge, evict and commit transactions until the server is gone. Every write leaves
    something that can be told.
    """
    connection = server.connect()

    def done(method, path, body=None, **headers):
        data = None if body is None else json.dumps(body)
        more = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, data, {"X-Tenant-ID": "t", **more, **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        return text

    try:
        for n in range(100_000):
            kind = ("forked", "merged", "evicted", "committed")[n % 4]
            name = f"{round_number}-{worker}-{n}"
            scope = f"s{name}"
            facts = [
                {"predicate": "whole", "args": [name, i], "scope": scope} for i in range(PARTS)
            ]
            if kind == "committed":
                id = done("POST", "/tx/begin")
                for fact in facts:
                    done("POST", "/tell", fact, **{"X-Transaction-ID": id})
                sent.append((kind, name))
                done("POST", f"/tx/commit/{id}")
            else:
                sent.append((kind, name))
                doubt = {"confidence": 0.001} if kind == "evicted" else {}
                done("POST", "/assert/facts", {"facts": [{**fact, **doubt} for fact in facts]})
                if kind == "forked":
                    done(
                        "POST",
                        "/scope/fork",
                        {"sourceScope": scope, "targetScope": f"{scope}.fork"},
                    )
                elif kind == "merged":
                    done(
                        "POST", "/scope/fork", {"targetScope": f"{scope}.merge"}
                    )  # of the base, which is empty
                    done(
                        "POST",
                        "/scope/merge",
                        {"sourceScope": scope, "targetScope": f"{scope}.merge"},
                    )
                else:
                    done("POST", "/memory/decay", {"scope": scope})
            acknowledged.append((kind, name))
            if len(acknowledged) > 40:
                enough.set()
    except (OSError, http.client.HTTPException):
        pass  # the server was killed: what this worker had in flight may be there or not
    finally:
        connection.close()


def check_upkeep(server, acknowledged, sent):
    query = {"predicate": "whole", "args": ["?name", "?part"], "scope": "*"}
    counts = Counter(row["scope"] for row in json.loads(server.post("/query", query)[1]))
    assert set(counts.values()) <= {PARTS}, "half of a write is there"
    for kind, name in acknowledged:
        where = {"forked": ".fork", "merged": ".merge"}.get(kind, "")
        assert counts[f"s{name}{where}"] == (0 if kind == "evicted" else PARTS), (kind, name)
    assert {scope.removesuffix(".fork").removesuffix(".merge") for scope in counts} <= {
        f"s{name}" for _, name in sent
    }
