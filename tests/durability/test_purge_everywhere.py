"""A purge of a subject that was mentioned in every place which holds text: no byte is left on
disk.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.embedders import Hashing, Plugin
from support.receivers import SECRET as SIGNING
from support.runtimes import BASE

from kbcore.clock import ManualClock
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.search.vectors.store import digest_of
from kbserver.app import create_app

SECRET = "zebulon"
KEY = f"{SECRET}-1"
HOOKS = "http://127.0.0.1:9/hooks/"  # nothing answers there


def opened(folder: Path, backend: str) -> Runtime:
    config = replace(
        BASE,
        storage_backend=backend,
        storage_dir=str(folder),
        min_free_mb=0,
        history_days=30,
        embedder="hashing",
        webhook_urls=(HOOKS,),
        webhook_secret=SIGNING,
        webhook_private_addresses=True,
    )
    return open_runtime(config, plugins=[Plugin(Hashing())], clock=ManualClock(1_700_000_000_000))


def holders(folder: Path) -> list[str]:
    """Return the files that have the subject's name, or the digest of a text with it."""
    digests = [digest_of(f"{SECRET} likes {name}") for name in ("tea", "jam", "ale")]
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file()
        for data in [path.read_bytes()]
        if SECRET.encode() in data.lower() or any(digest in data for digest in digests)
    ]


class Refused(AssertionError):
    """A request failed."""


class Sender:
    """Sends requests that all succeed."""

    def __init__(self, node: Runtime) -> None:
        self._client = create_app(node).test_client()

    def __call__(self, path: str, body: Any = None, method: str = "POST", **headers: str) -> Any:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self._client.open(
            path, method=method, json=body, headers={"X-Tenant-ID": "t", **names}
        )
        if answer.status_code not in (200, 201):
            raise Refused(path, answer.text)
        return answer.get_json()

    def tell(self, predicate: str, *args: str, **more: Any) -> None:
        self("/tell", {"predicate": predicate, "args": list(args), **more})

    def goals(self) -> list[str]:
        return [goal["id"] for goal in self("/goals", method="GET")["goals"]]


def mention(send: Sender, node: Runtime) -> None:
    """Store, change and remove what mentions the subject, with snapshots in between."""
    send.tell("likes", "ann", "tea")
    send.tell("likes", SECRET, "tea", metadata={"note": SECRET, SECRET: 1})
    send.tell(SECRET, "x")
    send.tell("likes", SECRET, "rain", negated=True)
    send.tell("likes", SECRET, "jam", scope="s")
    send.tell("likes", SECRET, "ale")
    send("/retract", {"text": f"likes({SECRET}, ale)"})
    send("/scope/fork", {"source": "s", "target": f"about-{SECRET}"})
    send(f"/scope/about-{SECRET}", method="DELETE")
    node.snapshot()
    send("/assert/rule", {"text": f"fan(?x) :- likes({SECRET}, ?x)."})
    (rule,) = send("/rules", method="GET")["rules"]
    send("/query", {"predicate": "fan", "args": ["?x"]})
    send("/retract/rule", {"id": rule["id"]})
    episode = send("/episodes", {"speaker": SECRET, "text": f"{SECRET} spoke"})
    evidence = [{"episode": episode["id"]}]
    send("/assert/facts", {"facts": [{"predicate": "said", "args": ["a"], "evidence": evidence}]})
    send(
        "/memory/correct",
        {"old": f"likes({SECRET}, tea)", "new": f"likes({SECRET}, jam)", "reason": f"for {SECRET}"},
    )
    send("/tell", {"predicate": "kept", "args": ["a"]}, Idempotency_Key=KEY)
    send("/goals/subscribe", {"goal": f"likes({SECRET}, ?x)", "id": "g1"})
    send("/goals/subscribe", {"goal": "likes(?x, tea)", "id": f"g2-{SECRET}"})
    send(
        "/goals/subscribe",
        {"goal": "likes(?x, tea)", "id": "g3", "webhook": {"url": f"{HOOKS}u/{SECRET}/x"}},
    )
    send(
        "/goals/subscribe",
        {"goal": "likes(?x, tea)", "id": "g4", "webhook": {"url": f"{HOOKS}u%2F%7Aebulon"}},
    )
    send("/goals/subscribe", {"goal": "likes(?x, tea)", "id": "g5", "webhook": {"url": HOOKS}})
    assert node.vectors is not None
    node.vectors.work()
    node.snapshot()


@pytest.mark.parametrize("backend", ["wal", "sqlite"])
def test_a_purge_reaches_every_place(tmp_path: Path, backend: str) -> None:
    with opened(tmp_path, backend) as node:
        send = Sender(node)
        mention(send, node)
        assert holders(tmp_path)
        dry = send("/memory/purge", {"subject": SECRET, "dryRun": True})
        done = send("/memory/purge", {"subject": SECRET})
        assert done["erased"] is True
        assert [goal["id"] for goal in done["goals"]] == ["g1", f"g2-{SECRET}", "g3", "g4"]
        assert done["goals"][2]["webhook"] == f"{HOOKS}u/{SECRET}/x"
        assert dry["goals"] == done["goals"]
        assert holders(tmp_path) == []
        assert send.goals() == ["g5"]
    assert holders(tmp_path) == []
    with opened(tmp_path, backend) as node:
        send = Sender(node)
        node.snapshot()
        assert send.goals() == ["g5"]
        # The request with the key still counts as executed.
        before = node.log("default", "t").status().head
        send("/tell", {"predicate": "kept", "args": ["a"]}, Idempotency_Key=KEY)
        assert node.log("default", "t").status().head == before
        with pytest.raises(Refused, match="key_reused"):
            send("/tell", {"predicate": "kept", "args": ["b"]}, Idempotency_Key=KEY)
