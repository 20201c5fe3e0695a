"""No search and no removal of memories stops a node: others get their turn while many facts and
texts are ranked, chosen, compared and removed.

Calls of functions between two turns are counted, not seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.http import Served, serve_in_memory
from support.turns import Relay, Turns

from kbcore.scheduling import Scheduling

ITEMS = 4000
CALLS_BETWEEN = 10 * ITEMS
"""Calls of functions between two turns, at most: a step over all items takes more."""

TENANT = {"X-Tenant-ID": "t"}

FACTS = [{"predicate": "p", "args": [f"a{number}", "b"]} for number in range(ITEMS)]
NOTED = [{**fact, "metadata": {"note": "n"}, "ttl": 1_000_000} for fact in FACTS]
MESSAGES = [
    {"role": "user", "content": f"Hello number {number} about the cats and dogs of mine."}
    for number in range(ITEMS // 2)
]

STORED: dict[str, tuple[str, Any]] = {
    "facts": ("/assert/facts", {"facts": FACTS}),
    "noted facts": ("/assert/facts", {"facts": NOTED}),
    "texts": ("/memory/add", {"messages": MESSAGES, "session": "s", "agent": "a"}),
}

QUESTION = "What about my cats and dogs?"

REQUESTS: dict[str, tuple[str, str, Any]] = {
    "show what a pattern means": ("facts", "/memory/forget", {"about": "p(?x, b)"}),
    "forget a pattern": ("facts", "/memory/forget", {"about": "p(?x, b)", "dryRun": False}),
    "forget noted facts": (
        "noted facts",
        "/memory/forget",
        {"about": "p(?x, b)", "dryRun": False},
    ),
    "forget texts": (
        "texts",
        "/memory/forget",
        {"about": "said(?speaker, ?text, ?when)", "dryRun": False},
    ),
    "forget words": ("texts", "/memory/forget", {"about": "cats and dogs", "dryRun": False}),
    "purge a speaker": ("texts", "/memory/purge", {"speaker": "user"}),
    "purge a subject": ("facts", "/memory/purge", {"subject": "b"}),
    "purge what is old": ("facts", "/memory/purge", {"before": 10**13}),
    "search": ("texts", "/memory/search", {"question": QUESTION}),
    "search a session": ("texts", "/memory/search", {"question": QUESTION, "session": "s"}),
    "search for an agent": ("texts", "/memory/search", {"question": QUESTION, "agent": "a"}),
    "search about oneself": (
        "texts",
        "/memory/context",
        {"query": QUESTION, "asker": "user", "maxFacts": 1000},
    ),
    "search with a long question": (
        "facts",
        "/memory/context",
        {"query": "Which b has the " + "color of " * 7000, "maxFacts": 10},
    ),
    "search with a long word": (
        "facts",
        "/memory/context",
        {"query": "Which b has " + "-".join(["color"] * 10_000), "maxFacts": 10},
    ),
    "find goals": ("facts", "/goals/suggest", {"question": "Who has b as p of p?"}),
    "find goals in a long question": (
        "facts",
        "/goals/suggest",
        {"question": " ".join(f"a{number}" for number in range(60)) + " p p p"},
    ),
}


@pytest.fixture
def relay() -> Relay:
    return Relay()


@pytest.fixture
def served(relay: Relay) -> Iterator[Served]:
    with serve_in_memory(scheduling=Scheduling(yield_now=relay)) as served:
        yield served


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_give_turns(name: str, served: Served, relay: Relay) -> None:
    stored, path, body = REQUESTS[name]
    first, facts = STORED[stored]
    answer = served.client.flask.post(first, json=facts, headers=TENANT)
    assert answer.status_code == 200, answer.text
    relay.turns = turns = Turns()
    with turns.counted():
        answer = served.client.flask.post(path, json=body, headers=TENANT)
    assert answer.status_code == 200, answer.text
    assert turns.count > 10
    assert turns.most_calls < CALLS_BETWEEN
