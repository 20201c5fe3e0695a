"""Goals that the client follows, on a knowledge base in this process and on servers."""

from __future__ import annotations

import asyncio

import pytest
from support.servers import Server

from kbcore_client import InvalidInput, Retries, Settings, connect, connect_async

ANCESTORS = (
    "ancestor(?x, ?y) :- parent(?x, ?y). ancestor(?x, ?z) :- ancestor(?x, ?y), parent(?y, ?z)."
)


def test_answers_and_their_changes(kb):
    kb.teach(ANCESTORS)
    kb.tell("parent(ann, bob)")
    changes = kb.follow("ancestor(ann, ?who)")
    first = next(changes)
    assert (first.appeared, first.disappeared) == ([("ann", "bob")], [])
    kb.tell("parent(bob, cid)")
    second = next(changes)
    assert (second.appeared, second.disappeared) == ([("ann", "cid")], [])
    assert second.commit_seq > first.commit_seq
    kb.retract("parent(ann, bob)")
    third = next(changes)
    assert sorted(third.disappeared) == [("ann", "bob"), ("ann", "cid")]
    changes.close()


def test_a_goal_as_predicate_and_arguments(kb):
    changes = kb.follow("p", ["a b", "?x"])
    assert next(changes).appeared == []
    kb.tell("p", ["a b", 1])
    assert next(changes).appeared == [("a b", "1")]
    changes.close()


def test_a_goal_that_cannot_be_followed(kb):
    with pytest.raises(InvalidInput, match=r"now\(\)"):
        next(kb.follow("p(?x), before(?x, now())"))


def test_following_continues_after_the_server_was_killed(tmp_path):
    """Changes made while the server was away are one difference; nothing is lost or repeated."""
    settings = Settings(retries=Retries(attempts=200, first_delay=0.02, max_delay=0.1))
    with Server(tmp_path) as server:
        port = server.address[1]
        url = f"http://127.0.0.1:{port}"
        kb = connect(url, tenant="t", settings=settings)
        kb.tell("p(1)")
        changes = kb.follow("p(?x)", id="mine")
        known = set(next(changes).appeared)
        kb.tell("p(2)")
        known |= set(next(changes).appeared)
        kb.tell("p(3)")  # committed, and perhaps not read before the kill
        server.kill()
    with Server(tmp_path, "--port", str(port)):
        with connect(url, tenant="t") as writer:
            writer.retract("p(1)")
            writer.tell("p(4)")
        while known != {("2",), ("3",), ("4",)}:
            change = next(changes)
            assert not known & set(change.appeared)
            assert known >= set(change.disappeared)
            known = known - set(change.disappeared) | set(change.appeared)
        changes.close()
        kb.close()


def test_following_without_threads(http_url):
    async def follow():
        async with connect_async(http_url, tenant="following") as kb:
            changes = kb.follow("q(?x)")
            await anext(changes)
            await kb.tell("q(1)")
            change = await anext(changes)
            await changes.aclose()
            return change.appeared

    assert asyncio.run(follow()) == [("1",)]
