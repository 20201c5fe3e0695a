"""`kbcore memory`: episodes, correct, undo and purge, against a server and on a folder."""

from __future__ import annotations

import pytest
from support.commands import kbcore
from support.servers import Server

from kbcore import open_kb


@pytest.fixture(params=["server", "folder"])
def where(request, tmp_path):
    if request.param == "folder":
        yield ("--storage-dir", str(tmp_path / "kb"))
    else:
        with Server(tmp_path / "kb") as server:
            yield ("--url", f"http://127.0.0.1:{server.address[1]}")


def memory(where, *args, expect=0):
    return kbcore("memory", *args, *where, expect=expect)


def test_correct_and_undo(where):
    kbcore("tell", *where, "likes(ann, tea)", "drinks(?x) :- likes(?x, ?y)")
    reason = ("--reason", "she said so")
    shown = memory(where, "correct", "likes(ann, tea)", "likes(ann, coffee)", *reason).stdout
    assert shown == "- likes(ann, tea)\n+ likes(ann, coffee)\nchange 2\n"
    assert kbcore("query", *where, "likes(?x, ?y)").stdout == "likes(ann, coffee)\n"
    shown = memory(where, "undo", "2").stdout
    assert shown == (
        "undone: change 2, by change 3; 1 facts retracted, 1 restored, 0 rules changed\n"
    )
    assert kbcore("query", *where, "likes(?x, ?y)").stdout == "likes(ann, tea)\n"
    assert "later changes" in memory(where, "undo", "2", expect=1).stderr
    assert "not stored" in memory(where, "correct", "p(a)", "p(b)", *reason, expect=1).stderr
    assert "SEQ or --request" in memory(where, "undo", expect=2).stderr


def test_purge(where):
    kbcore("tell", *where, "likes(ann, tea)", "likes(bob, tea)")
    kbcore("teach", *where, "drinks(?x) :- likes(?x, ?y). seen(?x) :- likes(?x, ann).")
    dry = memory(where, "purge", "--subject", "ann", "--dry-run").stdout
    assert dry == (
        "- likes(ann, tea)  [argument]\n"
        "- drinks(ann)  [conclusion]\n"
        "  the rule stays: seen(?x) :- likes(?x, ann).\n"
        "dry run: 1 facts, 1 conclusions, 0 episodes\n"
    )
    assert "--yes" in memory(where, "purge", "--subject", "ann", expect=1).stderr
    assert memory(where, "purges").stdout == ""
    done = memory(where, "purge", "--subject", "ann", "--yes").stdout
    assert done.endswith(
        "1 facts, 1 conclusions, 0 episodes\nerased from log and snapshots\n"
        "changes before 4 can no longer be undone\n"
    )
    assert kbcore("query", *where, "likes(?x, ?y)").stdout == "likes(bob, tea)\n"
    assert ": 1 facts, 0 episodes, erased\n" in memory(where, "purges").stdout
    assert "give one of" in memory(where, "purge", "--yes", expect=2).stderr


def test_episodes(tmp_path):
    with open_kb(path=str(tmp_path)) as kb:
        (first,) = kb.ingest("likes(ann, tea).", speaker="ann", session="a", at=0).recorded
        kb.add_episode("bob", "two\nlines", at=1, id="m-2")
    where = ("--storage-dir", str(tmp_path))
    shown = memory(where, "episodes").stdout
    assert shown == (
        f"{first}  1970-01-01T00:00:00.000Z  ann: likes(ann, tea).\n"
        "m-2  1970-01-01T00:00:00.001Z  bob: two lines\n"
    )
    assert memory(where, "episodes", "--speaker", "bob").stdout == shown.splitlines(True)[1]
    assert memory(where, "episodes", "--session", "a").stdout == shown.splitlines(True)[0]
    assert memory(where, "episode", first).stdout == (
        shown.splitlines(True)[0] + "  likes(ann, tea)\n"
    )
    assert "no episode" in memory(where, "episode", "none", expect=1).stderr


def test_history_and_what_was_known(where):
    kbcore("tell", *where, "likes(ann, tea)")
    memory(where, "correct", "likes(ann, tea)", "likes(ann, milk)", "--reason", "she said so")
    lines = memory(where, "history", "likes(ann, ?x)", "--oldest-first").stdout.splitlines()
    assert [line.split("  ", 2)[2] for line in lines] == [
        "likes(ann, tea) asserted (assert)",
        "likes(ann, milk) asserted (correct: she said so)",
        "likes(ann, tea) retracted (correct: she said so)",
    ]
    at = lines[-1].split("  ")[1]
    assert kbcore("query", *where, "likes(?x, ?y)", "--known-at", at).stdout == "likes(ann, milk)\n"
    then = ("--known-at", at)
    assert kbcore("predicates", *where, *then).stdout == "likes/2  1 facts, 0 rules\n"
    assert kbcore("rules", *where, *then).stdout == ""
    assert kbcore("scope", "list", *where, *then).stdout == ""
    recalled = kbcore("memory", "recall", *where, "likes(?x, ?y)", at, *then)
    assert recalled.stdout == "likes(ann, milk)\n"
    assert "likes(ann, milk)" in kbcore("memory", "salient", *where, *then).stdout
    assert kbcore("memory", "episodes", *where, *then).stdout == ""
    late = kbcore("rules", *where, "--known-at", "9999999999999", expect=1)
    assert "knownAt: is in the future" in late.stderr
    shown = kbcore("ask", *where, "likes(?x, ?y)", "--known-at", "1000", expect=1)
    assert "oldest instant available" in shown.stderr
