"""A language model with scripted answers, without HTTP, and a runtime with a movable clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from kbcore.plug.ports import Completion, CompletionRequest
from support.stand_in_answers import think

Answer = str | dict[str, Any] | Exception | Completion | Callable[[CompletionRequest], Any]


class Scripted:
    """Gives its answers one by one, and thinks as the stand-in does when there are no more; `asked`
    are the requests.
    """

    name = "scripted"
    model = "script-1"

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[CompletionRequest] = []
        self.closed = False

    def then(self, answers: Iterable[Answer]) -> None:
        self.answers.extend(answers)

    def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append(request)
        answer: Any = (
            self.answers.pop(0) if self.answers else think(request.system, request.messages[0].text)
        )
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, dict):
            answer = json.dumps(answer)
        return Completion(answer, 10, 5) if isinstance(answer, str) else answer

    def close(self) -> None:
        self.closed = True
