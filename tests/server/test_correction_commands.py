"""`kbcore memory`: episodes, correct, undo and purge, against a server and on a folder."""

from __future__ import annotations

from support.commands import kbcore

from kbcore import open_kb


def memory(where, *args, expect=0):
    return kbcore("memory", *args, *where, expect=expect)


def test_correct_and_undo(own_target):
    kbcore("tell", *own_target, "likes(ann, tea)", "drinks(?x) :- likes(?x, ?y)")
    reason = ("--reason", "she said so")
    output = memory(own_target, "correct", "likes(ann, tea)", "likes(ann, coffee)", *reason).stdout
    assert output == "- likes(ann, tea)\n+ likes(ann, coffee)\nchange 2\n"
    assert kbcore("query", *own_target, "likes(?x, ?y)").stdout == "likes(ann, coffee)\n"
    output = memory(own_target, "undo", "2").stdout
    assert output == (
        "undone: change 2, by change 3; 1 fact retracted, 1 restored, 0 rules changed\n"
    )
    assert kbcore("query", *own_target, "likes(?x, ?y)").stdout == "likes(ann, tea)\n"
    assert "is undone already, by 3" in memory(own_target, "undo", "2", expect=1).stderr
    assert "not stored" in memory(own_target, "correct", "p(a)", "p(b)", *reason, expect=1).stderr
    assert "SEQ or --request" in memory(own_target, "undo", expect=2).stderr


def test_purge(own_target):
    kbcore("tell", *own_target, "likes(ann, tea)", "likes(bob, tea)")
    kbcore("teach", *own_target, "drinks(?x) :- likes(?x, ?y). seen(?x) :- likes(?x, ann).")
    dry = memory(own_target, "purge", "--subject", "ann", "--dry-run").stdout
    assert dry == (
        "- likes(ann, tea)  [argument]\n"
        "- drinks(ann)  [conclusion]\n"
        "  the rule stays: seen(?x) :- likes(?x, ann).\n"
        "dry run: 1 fact, 1 conclusion, 0 episodes\n"
    )
    assert "--yes" in memory(own_target, "purge", "--subject", "ann", expect=1).stderr
    assert memory(own_target, "purges").stdout == ""
    done = memory(own_target, "purge", "--subject", "ann", "--yes").stdout
    assert done.endswith(
        "1 fact, 1 conclusion, 0 episodes\nerased from log and snapshots\n"
        "changes before 4 can no longer be undone\n"
    )
    assert kbcore("query", *own_target, "likes(?x, ?y)").stdout == "likes(bob, tea)\n"
    assert ": 1 fact, 0 episodes, erased\n" in memory(own_target, "purges").stdout
    assert "give one of" in memory(own_target, "purge", "--yes", expect=2).stderr


def test_episodes(tmp_path):
    with open_kb(path=str(tmp_path)) as kb:
        (first,) = kb.ingest("likes(ann, tea).", speaker="ann", session="a", at=0).recorded
        kb.add_episode("bob", "two\nlines", at=1, id="m-2")
    own_target = ("--storage-dir", str(tmp_path))
    output = memory(own_target, "episodes").stdout
    assert output == (
        f"{first}  1970-01-01T00:00:00.000Z  ann: likes(ann, tea).\n"
        "m-2  1970-01-01T00:00:00.001Z  bob: two lines\n"
    )
    assert memory(own_target, "episodes", "--speaker", "bob").stdout == output.splitlines(True)[1]
    assert memory(own_target, "episodes", "--session", "a").stdout == output.splitlines(True)[0]
    assert memory(own_target, "episode", first).stdout == (
        output.splitlines(True)[0] + "  likes(ann, tea)\n"
    )
    assert "no episode" in memory(own_target, "episode", "none", expect=1).stderr


def test_history_and_what_was_known(own_target):
    kbcore("tell", *own_target, "likes(ann, tea)")
    memory(own_target, "correct", "likes(ann, tea)", "likes(ann, milk)", "--reason", "she said so")
    lines = memory(own_target, "history", "likes(ann, ?x)", "--oldest-first").stdout.splitlines()
    assert [line.split("  ", 2)[2] for line in lines] == [
        "likes(ann, tea) asserted (assert)",
        "likes(ann, milk) asserted (correct: she said so)",
        "likes(ann, tea) retracted (correct: she said so)",
    ]
    at = lines[-1].split("  ")[1]
    assert (
        kbcore("query", *own_target, "likes(?x, ?y)", "--known-at", at).stdout
        == "likes(ann, milk)\n"
    )
    then = ("--known-at", at)
    assert kbcore("predicates", *own_target, *then).stdout == "likes/2  1 fact, 0 rules\n"
    assert kbcore("rules", *own_target, *then).stdout == ""
    assert kbcore("scope", "list", *own_target, *then).stdout == ""
    recalled = kbcore("memory", "recall", *own_target, "likes(?x, ?y)", at, *then)
    assert recalled.stdout == "likes(ann, milk)\n"
    assert "likes(ann, milk)" in kbcore("memory", "salient", *own_target, *then).stdout
    assert kbcore("memory", "episodes", *own_target, *then).stdout == ""
    late = kbcore("rules", *own_target, "--known-at", "9999999999999", expect=1)
    assert "knownAt: is in the future" in late.stderr
    output = kbcore("ask", *own_target, "likes(?x, ?y)", "--known-at", "1000", expect=1)
    assert "oldest instant available" in output.stderr
