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


@pytest.mark.parametrize("id", ["mine", None])
def test_following_continues_after_the_server_was_killed(tmp_path, id):
    """Each commit is one item, also those that were made while the client had no connection."""
    settings = Settings(retries=Retries(attempts=200, first_delay=0.02, max_delay=0.1))
    with Server(tmp_path) as server:
        port = server.address[1]
        url = f"http://127.0.0.1:{port}"
        kb = connect(url, tenant="t", settings=settings)
        kb.tell("p(1)")
        changes = kb.follow("p(?x)", id=id)
        items = [next(changes)]
        kb.tell("p(2)")
        items.append(next(changes))
        kb.tell("p(3)")  # committed, and not read before the kill
        server.kill()
    with Server(tmp_path, "--port", str(port)):
        with connect(url, tenant="t") as writer:
            writer.retract("p(1)")
            writer.tell("p(4)")
        items += [next(changes) for _ in range(3)]
        changes.close()
        kb.close()
    rows = [(item.appeared, item.disappeared) for item in items]
    one, two, three, four = ([(number,)] for number in "1234")
    assert rows == [(one, []), (two, []), (three, []), ([], one), (four, [])]
    assert [item.commit_seq for item in items] == sorted({item.commit_seq for item in items})


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
