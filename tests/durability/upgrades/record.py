"""Records a storage folder of the installed release, with the answers that this release gives.

    python record.py FOLDER

Run it with the release installed, before the next one: FOLDER then gets `storage` and
`answers.json`, and `test_upgrade.py` opens the folder with the present code. A recorded folder is
never changed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Request = tuple[str, str, str, Any]
"""Method, path, tenant and body."""

RULES = """
ancestor(?x, ?y) :- parent(?x, ?y).
ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z).
childless(?x) :- person(?x), not parent(?x, _).
children(?x, count(?y)) :- parent(?x, ?y).
adult(?x) :- age(?x, ?n), ?n >= 18.
older(?x, ?y) :- age(?x, ?a), age(?y, ?b), ?a > ?b.
~trusted(?x) :- liar(?x).
label(?x, ?t) :- age(?x, ?n), ?t = concat(?x, "-", ?n).
in_range(?x) :- 'range'(?low, ?high, ?x), 'before'(?low, ?high).
wins(?x) :- move(?x, ?y), not wins(?y).
"""
"""Recursion, negation, an aggregate, comparisons, functions, explicit negatives, predicates whose
names are words of the language (since 0.2.0), and recursion through negation."""

FACTS = """
parent(ann, bob). parent(bob, cid). parent(bob, "Dora \\"D\\" 日本").
person(ann). person(bob). person(cid). person(dan).
age(ann, 71). age(bob, 40). age(cid, 7).
liar(eve). ~liar(ann).
'range'(low, high, 5). 'before'(low, high).
move(a, b). move(b, a). move(b, c). move(c, d).
"""


def writes() -> Iterator[Request]:
    """Yield the writes of the first process, which ends with a snapshot."""
    yield "POST", "/teach", "family", {"text": RULES}
    yield "POST", "/execute", "family", {"command": FACTS}
    metadata = {"source": "a book", "page": 7, "tags": ["x", None, True]}
    fact = {"predicate": "born", "args": ["ann", "1954-02-03"], "metadata": metadata}
    yield "POST", "/tell", "family", {**fact, "confidence": 0.75}
    yield "POST", "/tell", "family", {"predicate": "seen", "args": ["bob"], "ttl": 10**12}
    window = {"validFrom": 1_000_000_000_000, "validUntil": 1_500_000_000_000}
    yield "POST", "/tell", "family", {"predicate": "office", "args": ["bob", "3b"], **window}
    yield "POST", "/forget", "family", {"predicate": "person", "args": ["cid"]}
    yield "POST", "/scope/fork", "family", {"target": "what-if"}
    moved = {"predicate": "parent", "args": ["zoe", "ann"], "scope": "what-if"}
    yield "POST", "/tell", "family", moved
    rule = {"text": "root(?x) :- person(?x), not parent(_, ?x).", "scope": "what-if"}
    yield "POST", "/teach", "family", rule
    yield "POST", "/admin/databases", "family", {"name": "second"}


def later_writes() -> Iterator[Request]:
    """Yield the writes of the second process, which is killed: they are in the log only."""
    for number in range(6):
        body = {"predicate": "reading", "args": ["sensor", str(number)]}
        yield "POST", "/tell", "family", body
    yield (
        "POST",
        "/memory/priority",
        "family",
        {
            "predicate": "seen",
            "args": ["bob"],
            "priority": 0.9,
        },
    )
    yield "POST", "/scope/fork", "family", {"target": "merged", "source": "what-if"}
    yield "POST", "/tell", "family", {"predicate": "extra", "args": ["1"], "scope": "merged"}
    yield "POST", "/scope/merge", "family", {"source": "merged", "strategy": "SOURCE_WINS"}
    facts = [{"predicate": "note", "args": [str(number)]} for number in range(30)]
    yield "POST", "/assert/facts", "other", {"facts": facts}
    yield "POST", "/memory/consolidate", "other", {"minGroupSize": 20}
    yield "POST", "/retract/pattern", "family", {"predicate": "reading", "args": ["sensor", "?x"]}


def reads() -> Iterator[Request]:
    """Yield reads whose answers do not depend on the time."""
    goals = (
        "ancestor(ann, ?x)",
        "childless(?x)",
        "children(?x, ?n)",
        "adult(?x)",
        "older(?x, ?y)",
        "~trusted(?x)",
        "label(?x, ?t)",
        "in_range(?x)",
        "wins(?x)",
        "root(?x)",
        "extra(?x)",
    )
    for goal in goals:
        for scope in (None, "what-if"):
            yield "POST", "/ask", "family", {"text": goal, **({"scope": scope} if scope else {})}
    for pattern in ("parent(?x, ?y)", "born(?x, ?y)", "seen(?x)", "office(?x, ?y)", "~liar(?x)"):
        yield "POST", "/query", "family", {"text": pattern}
    yield "POST", "/query", "family", {"text": "reading(?x, ?y)"}
    yield "POST", "/query", "other", {"text": "note(?x)"}
    yield "POST", "/explain", "family", {"text": "ancestor(ann, cid)"}
    recall = {"predicate": "office", "args": ["?x", "?y"], "timestamp": 1_200_000_000_000}
    yield "POST", "/memory/recall", "family", recall
    yield "POST", "/scope/diff", "family", {"source": "what-if", "target": None}
    for path in ("/rules", "/scopes", "/predicates", "/admin/databases"):
        yield "GET", path, "family", None


def send(client: Any, request: Request) -> tuple[int, Any]:
    """Send a request to the Flask client of a server; return the status and the answer."""
    method, path, tenant, body = request
    answer = client.open(path, method=method, json=body, headers={"X-Tenant-ID": tenant})
    return answer.status_code, answer.get_json(silent=True) or answer.text


def main(folder: str) -> None:
    import kbcore
    from kbserver import create_app

    storage = Path(folder, "storage")
    config = kbcore.Config(storage_dir=str(storage), min_free_mb=0, wal_segment_mb=1)
    for requests in (writes, later_writes):
        runtime = kbcore.open_runtime(config)
        client = create_app(runtime).test_client()
        for request in requests():
            status, answer = send(client, request)
            if status >= 300:
                sys.exit(f"{request}: {status} {answer}")
        if requests is writes:
            runtime.close()
    answers = [[*request, *send(client, request)] for request in reads()]
    text = json.dumps(answers, indent=1, ensure_ascii=False)
    Path(folder, "answers.json").write_text(text + "\n", encoding="utf-8")
    for log in storage.glob("wal-*"):  # without the space that was reserved behind the records
        log.write_bytes(log.read_bytes().rstrip(b"\0") + bytes(8))
    (storage / "LOCK").unlink()
    os._exit(0)  # no snapshot of what the second process wrote


if __name__ == "__main__":
    main(sys.argv[1])
