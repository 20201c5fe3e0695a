"""Elicitation: asking the user which of several facts a call of a tool means.

In protocol versions without sessions the question is the result of the call, and the client repeats
the call with the answer: the server keeps nothing. In older versions the server sends the question
on the stream of the call, and the client posts the answer to the session.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from kbcore.errors import Conflict, KBError, RateLimited
from kbserver.mcp.rpc import INVALID_PARAMS, Json, RpcFailure

if TYPE_CHECKING:
    from kbcore.operations.queries import FactInWords
    from kbserver.mcp.calls import Call

METHOD = "elicitation/create"

FIELD = "fact"
"""The key of the question, and of the answer in its form."""

ANSWER_SECONDS = 300.0
"""Time that a user has for an answer in a session; a call without one ends and changes nothing."""

MAX_QUESTIONS = 8
"""Maximum number of open questions per session."""


class InputRequired(Exception):
    """A call that needs the answer of a question, in a protocol version without sessions."""

    def __init__(self, question: Question) -> None:
        super().__init__("input required")
        self.question = question

    @property
    def result(self) -> Json:
        """The result of the call that asks."""
        request = {"method": METHOD, "params": self.question.params}
        return {"resultType": "input_required", "inputRequests": {FIELD: request}}


@dataclass(frozen=True, slots=True)
class Question:
    """A question with the candidates for its answer."""

    message: str
    candidates: Sequence[FactInWords]

    @property
    def params(self) -> Json:
        """The parameters of the request for an answer: a form with one choice."""
        form = {
            "type": "string",
            "title": "Fact",
            "enum": [each.text for each in self.candidates],
            "enumNames": [each.words for each in self.candidates],
        }
        return {
            "mode": "form",
            "message": self.message,
            "requestedSchema": {
                "type": "object",
                "properties": {FIELD: form},
                "required": [FIELD],
            },
        }

    def chosen(self, answer: Any) -> str:
        """Return the candidate that an answer names.

        Raises Conflict if the user chose none or the candidate has gone, RpcFailure for an answer
        that is malformed.
        """
        action = answer.get("action") if type(answer) is dict else None
        if action in ("decline", "cancel"):
            unanswered("declined", "the user chose none of the facts")
        content = answer.get("content") if action == "accept" else None
        text = content.get(FIELD) if type(content) is dict else None
        if type(text) is not str:
            raise RpcFailure(INVALID_PARAMS, "the answer of the user has no text `fact`")
        if not any(each.text == text for each in self.candidates):
            unanswered("changed", "the chosen fact is no candidate any more")
        return text


Ask = Callable[[Question], str]
"""Has the user answer a question: returns the chosen candidate; raises Conflict without one."""


def unanswered(reason: str, message: str) -> NoReturn:
    """End a call whose question has no answer; raises Conflict."""
    raise Conflict(f"{message}; nothing was changed", {"reason": reason})


def takes_questions(capabilities: Any) -> bool:
    """Return True if the capabilities of a client have elicitation by forms."""
    elicitation = capabilities.get("elicitation") if type(capabilities) is dict else None
    # Without a mode, or without any entry, it is that of forms.
    return type(elicitation) is dict and ("form" in elicitation or "url" not in elicitation)


def ask_by_result(responses: Any) -> Ask:
    """Return how a request without a session asks: `responses` are the answers it brings."""

    def ask(question: Question) -> str:
        if responses is None:
            raise InputRequired(question)
        if type(responses) is not dict:
            raise RpcFailure(INVALID_PARAMS, "params.inputResponses must be an object")
        if FIELD not in responses:
            raise InputRequired(question)
        return question.chosen(responses[FIELD])

    return ask


class _OpenQuestion:
    """A question that waits for its answer."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.answer: Any = None
        self.error: KBError | None = None

    def stop(self, error: KBError) -> None:
        self.error = error
        self.ended.set()


class OpenQuestions:
    """The questions of a session that wait for an answer; thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._open: dict[str, _OpenQuestion] = {}

    def __len__(self) -> int:
        return len(self._open)

    def asks(self, call: Call, send: Callable[[Json], None]) -> Ask:
        """Return how a call of the session asks; `send` puts a message on the stream of the
        call.
        """

        def ask(question: Question) -> str:
            return question.chosen(self._ask(question, call, send))

        return ask

    def reply(self, id: object, answer: Any) -> None:
        """Give the answer of a question; the id of no open question is ignored."""
        with self._mutex:
            waiting = self._open.get(id) if isinstance(id, str) else None
        if waiting is not None:
            waiting.answer = answer
            waiting.ended.set()

    def _ask(self, question: Question, call: Call, send: Callable[[Json], None]) -> Any:
        """Send a question and wait for the answer; raises Conflict in the end, RateLimited, and the
        error that stopped the call.
        """
        waiting, id = _OpenQuestion(), f"kbcore-{secrets.token_urlsafe(12)}"
        with self._mutex:
            if len(self._open) >= MAX_QUESTIONS:
                limit = {"limit": "questions", "value": MAX_QUESTIONS}
                raise RateLimited(f"this session has {MAX_QUESTIONS} open questions", 1.0, limit)
            self._open[id] = waiting
        unwatch = call.watch(waiting.stop)
        try:
            send({"jsonrpc": "2.0", "id": id, "method": METHOD, "params": question.params})
            ended = waiting.ended.wait(ANSWER_SECONDS)
        finally:
            unwatch()
            with self._mutex:
                del self._open[id]
        if waiting.error is not None:
            raise waiting.error
        if not ended:
            unanswered("unanswered", f"the user gave no answer in {ANSWER_SECONDS:.0f} seconds")
        if waiting.answer is None:
            unanswered("unanswered", "the client could not ask the user")
        return waiting.answer
