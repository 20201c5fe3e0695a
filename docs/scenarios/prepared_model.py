"""A language model with fixed answers, so that the documented examples never change."""

from __future__ import annotations

import json
from typing import Any

from kbcore.plug.ports import Completion, CompletionRequest

TEXT = "Gus works at Acme."
QUESTION = "Where does Gus work?"

_FACT = {"predicate": "works_at", "args": ["Gus", "Acme"], "negated": False, "confidence": 0.9}


class Prepared:
    """A model that answers one text and one question."""

    name = "openai"
    model = "a-model"

    def complete(self, request: CompletionRequest) -> Completion:
        """Return the fixed answer for the first key that the schema requires."""
        answers: dict[str, Any] = {
            "facts": {"facts": [_FACT]},
            "queries": {"queries": [{"atoms": [{"predicate": "works_at", "args": ["Gus", "?x"]}]}]},
            "sentences": {
                "sentences": [{"text": "Gus works at Acme.", "facts": [1]}],
                "confidence": 1,
            },
        }
        answer = next(iter((request.schema or {"properties": answers})["properties"]))
        return Completion(json.dumps(answers[answer]))

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
