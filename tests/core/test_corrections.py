"""Episodes and corrections with wrong arguments, in Python: each is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbcore import Conflict, InvalidInput, KnowledgeBase, open_kb


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda kb: kb.add_episode("ann", "half \ud800"), "text"),
        (lambda kb: kb.add_episode("half \ud800", "text"), "speaker"),
        (lambda kb: kb.add_episode("ann", "nul \0"), "text"),
        (lambda kb: kb.tell("p(b)", evidence=5), "evidence"),
        (lambda kb: kb.tell("p(b)", evidence=[5]), "evidence[0]"),
        (lambda kb: kb.tell("p(b)", evidence=[()]), "evidence[0]"),
        (lambda kb: kb.tell("p(b)", evidence=[{"episode": "a"}]), "evidence[0]"),
        (lambda kb: kb.correct("p(a)", "p(b)", reason="half \ud800"), "reason"),
        (lambda kb: kb.undo("1"), "seq"),
        (lambda kb: kb.undo(True), "seq"),
        (lambda kb: kb.undo(request=1), "request"),
        (lambda kb: kb.purge(subject=5), "subject"),
        (lambda kb: kb.purge(subject=" "), "subject"),
        (lambda kb: kb.purge(subject="a" * 1001), "subject"),
        (lambda kb: kb.purge(episode=5), "episode"),
        (lambda kb: kb.purge(subject="a", dry_run="yes"), "dry_run"),
    ],
)
def test_wrong_arguments_name_the_field(call: Callable[[KnowledgeBase], Any], field: str) -> None:
    with open_kb() as kb:
        kb.tell("p(a)")
        with pytest.raises(InvalidInput) as caught:
            call(kb)
        assert list((caught.value.details or {})["fields"]) == [field]
        assert kb.episodes().total == 0
        assert list(kb.ask("p(?x)")) == [("a",)]


def test_a_transaction_that_a_purge_overtook_cannot_commit() -> None:
    with open_kb() as kb:
        kb.tell("knows(bob, quixote)")

        def overtaken() -> None:
            with kb.transaction() as inside:
                inside.tell("knows(quixote, ann)")
                kb.purge(subject="quixote")

        with pytest.raises(Conflict) as caught:
            overtaken()
        assert {"purge": True} in (caught.value.details or {})["changed"]
        assert kb.count("knows") == 0
        with kb.transaction() as inside:
            inside.tell("knows(ann, bob)")
        assert kb.count("knows") == 1
