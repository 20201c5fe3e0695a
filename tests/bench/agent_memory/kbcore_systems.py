"""kbcore through its public Python API, with three amounts of structure."""

from __future__ import annotations

import os
from typing import Any

from kbcore import Config, open_kb

from .interface import Recall, Request, Turn

TEXTS, FACTS, GOALS = "kbcore-text", "kbcore-facts", "kbcore"
VECTORS = "kbcore-vectors"
ABSTAINING = "kbcore-abstaining"

MIN_COVERAGE = 0.5
"""Share of the words of a question that a fact must have for `kbcore-abstaining`."""

EMBEDDER = ("EMBEDDER", "EMBEDDER_ONNX_MODEL", "EMBEDDER_ONNX_TOKENIZER")
"""Variables that name the embedder of `kbcore-vectors`."""


class KBCore:
    """A knowledge base in memory.

    `kbcore-text` stores each turn as a fact `said(speaker, text, date)` and is asked in words: it
    knows what the baselines know. `kbcore-facts` stores the structured form too, each fact with
    its turn as evidence, and is asked in words. `kbcore` has the rules as well, and is asked with
    the goals of the question; without goals, in words. `kbcore-abstaining` is `kbcore-facts` with
    `min_coverage`: its window is empty if no fact has enough words of the question.
    `kbcore-vectors` is `kbcore-text` with the embedder that the environment names. `min_coverage`
    and `min_relevance` are those of each question in words.
    """

    def __init__(
        self, name: str, min_coverage: float | None = None, min_relevance: float = 0.0
    ) -> None:
        names = (TEXTS, FACTS, GOALS, VECTORS, ABSTAINING)
        if name not in names:
            raise ValueError(f"{name} is none of {', '.join(names)}")
        self.name = name
        default = MIN_COVERAGE if name == ABSTAINING else 0.0
        self._min_coverage = default if min_coverage is None else min_coverage
        self._min_relevance = min_relevance
        self._kb: Any = None

    def close(self) -> None:
        """Close the knowledge base."""
        if self._kb is not None:
            self._kb.close()
            self._kb = None

    def reset(self, rules: str) -> None:
        """Open an empty knowledge base, with the rules if goals are asked."""
        self.close()
        if self.name == VECTORS:
            names = {name: os.environ[name] for name in EMBEDDER if name in os.environ}
            self._kb = open_kb(config=Config.from_env(names), storage="memory")
            self._kb._runtime.vectors.close()  # `finish` does what the thread would do
        else:
            self._kb = open_kb()
        if self.name == GOALS and rules:
            self._kb.teach(rules)

    def store(self, turn: Turn) -> None:
        """Store the episode, what was said, and the structured facts with their evidence."""
        episode = self._kb.add_episode(
            turn.speaker, turn.text, at=turn.at, session=turn.session, id=turn.id
        ).episode.id
        date = f"{turn.at:%Y-%m-%d}"
        self._kb.tell("said", [turn.speaker, turn.text, date], evidence=[episode])
        if self.name not in (TEXTS, VECTORS):
            for fact in turn.facts:
                self._kb.tell(fact.predicate, list(fact.args), evidence=[episode])

    def finish(self) -> None:
        """Make the vectors of facts, and wait until the index of words is complete."""
        while self.name == VECTORS and self._kb._runtime.vectors.work():
            pass
        while self._kb.context(query="index", max_facts=1).index_progress is not None:
            pass

    def recall(self, request: Request) -> Recall:
        """Return the text of a window, and the episodes that its facts name as evidence."""
        options: dict[str, Any] = {
            "query": request.text,
            "min_coverage": self._min_coverage,
            "min_relevance": self._min_relevance,
        }
        if request.asker:
            options["asker"] = request.asker
        if self.name == GOALS and request.goals:
            options = {"goals": list(request.goals), "include_rules": False}
        if request.most is not None:
            options["max_facts"] = request.most
        window = self._kb.context(
            max_tokens=request.budget, fill="none", auto_resolve=False, format="natural", **options
        )
        turns = {span[0] for entry in window.entries for span in entry.evidence}
        # The text of a window without facts says that nothing relevant is known.
        return Recall(window.text if window.entries else "", turns)

    def answer(self, request: Request) -> frozenset[str] | None:
        """Return the values of `?x` and `?y`; None without rules or without a query."""
        if self.name != GOALS or not request.query:
            return None
        rows = self._kb.ask(request.query).dicts()
        return frozenset(str(row[name]) for row in rows for name in ("x", "y") if name in row)
