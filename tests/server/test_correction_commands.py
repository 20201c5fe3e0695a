"""`kbcore memory`: episodes, correct, undo and purge, against a server and on a folder."""

from __future__ import annotations

from support.commands import kbcore

from kbcore import open_kb


def memory(where, *args, expect=0):
    return kbcore("memory", *args, *where, expect=expect)


def test_correct_and_undo(place):
    kbcore("tell", *place, "likes(ann, tea)", "drinks(?x) :- likes(?x, ?y)")
    reason = ("--reason", "she said so")
    shown = memory(place, "correct", "likes(ann, tea)", "likes(ann, coffee)", *reason).stdout
    assert shown == "- likes(ann, tea)\n+ likes(ann, coffee)\nchange 2\n"
    assert kbcore("query", *place, "likes(?x, ?y)").stdout == "likes(ann, coffee)\n"
    shown = memory(place, "undo", "2").stdout
    assert shown == (
        "undone: change 2, by change 3; 1 facts retracted, 1 restored, 0 rules changed\n"
    )
    assert kbcore("query", *place, "likes(?x, ?y)").stdout == "likes(ann, tea)\n"
    assert "later changes" in memory(place, "undo", "2", expect=1).stderr
    assert "not stored" in memory(place, "correct", "p(a)", "p(b)", *reason, expect=1).stderr
    assert "SEQ or --request" in memory(place, "undo", expect=2).stderr


def test_purge(place):
    kbcore("tell", *place, "likes(ann, tea)", "likes(bob, tea)")
    kbcore("teach", *place, "drinks(?x) :- likes(?x, ?y). seen(?x) :- likes(?x, ann).")
    dry = memory(place, "purge", "--subject", "ann", "--dry-run").stdout
    assert dry == (
        "- likes(ann, tea)  [argument]\n"
        "- drinks(ann)  [conclusion]\n"
        "  the rule stays: seen(?x) :- likes(?x, ann).\n"
        "dry run: 1 facts, 1 conclusions, 0 episodes\n"
    )
    assert "--yes" in memory(place, "purge", "--subject", "ann", expect=1).stderr
    assert memory(place, "purges").stdout == ""
    done = memory(place, "purge", "--subject", "ann", "--yes").stdout
    assert done.endswith(
        "1 facts, 1 conclusions, 0 episodes\nerased from log and snapshots\n"
        "changes before 4 can no longer be undone\n"
    )
    assert kbcore("query", *place, "likes(?x, ?y)").stdout == "likes(bob, tea)\n"
    assert ": 1 facts, 0 episodes, erased\n" in memory(place, "purges").stdout
    assert "give one of" in memory(place, "purge", "--yes", expect=2).stderr


def test_episodes(tmp_path):
    with open_kb(path=str(tmp_path)) as kb:
        (first,) = kb.ingest("likes(ann, tea).", speaker="ann", session="a", at=0).recorded
        kb.add_episode("bob", "two\nlines", at=1, id="m-2")
    place = ("--storage-dir", str(tmp_path))
    shown = memory(place, "episodes").stdout
    assert shown == (
        f"{first}  1970-01-01T00:00:00.000Z  ann: likes(ann, tea).\n"
        "m-2  1970-01-01T00:00:00.001Z  bob: two lines\n"
    )
    assert memory(place, "episodes", "--speaker", "bob").stdout == shown.splitlines(True)[1]
    assert memory(place, "episodes", "--session", "a").stdout == shown.splitlines(True)[0]
    assert memory(place, "episode", first).stdout == (
        shown.splitlines(True)[0] + "  likes(ann, tea)\n"
    )
    assert "no episode" in memory(place, "episode", "none", expect=1).stderr


def test_history_and_what_was_known(place):
    kbcore("tell", *place, "likes(ann, tea)")
    memory(place, "correct", "likes(ann, tea)", "likes(ann, milk)", "--reason", "she said so")
    lines = memory(place, "history", "likes(ann, ?x)", "--oldest-first").stdout.splitlines()
    assert [line.split("  ", 2)[2] for line in lines] == [
        "likes(ann, tea) asserted (assert)",
        "likes(ann, milk) asserted (correct: she said so)",
        "likes(ann, tea) retracted (correct: she said so)",
    ]
    at = lines[-1].split("  ")[1]
    assert kbcore("query", *place, "likes(?x, ?y)", "--known-at", at).stdout == "likes(ann, milk)\n"
    then = ("--known-at", at)
    assert kbcore("predicates", *place, *then).stdout == "likes/2  1 facts, 0 rules\n"
    assert kbcore("rules", *place, *then).stdout == ""
    assert kbcore("scope", "list", *place, *then).stdout == ""
    recalled = kbcore("memory", "recall", *place, "likes(?x, ?y)", at, *then)
    assert recalled.stdout == "likes(ann, milk)\n"
    assert "likes(ann, milk)" in kbcore("memory", "salient", *place, *then).stdout
    assert kbcore("memory", "episodes", *place, *then).stdout == ""
    late = kbcore("rules", *place, "--known-at", "9999999999999", expect=1)
    assert "knownAt: is in the future" in late.stderr
    shown = kbcore("ask", *place, "likes(?x, ?y)", "--known-at", "1000", expect=1)
    assert "oldest instant available" in shown.stderr
