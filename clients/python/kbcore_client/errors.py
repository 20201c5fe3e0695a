"""Exceptions of the client: a class for each error code of the server, and those of the
connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class KBError(Exception):
    """Base class of all errors that the client raises.

    `code` names the kind for programs, `message` describes the error for a person, and `details`
    holds data for programs or is None. `status` is the HTTP status and `request_id` the id in the
    log of the server; both are None for errors that no server reported.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(
        self,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] | None = dict(details) if details else None
        self.status = status
        self.request_id = request_id


class InvalidInput(KBError):
    """A request or text that cannot be accepted; `details["fields"]` names the arguments at
    fault.
    """

    code = "VALIDATION_ERROR"

    @classmethod
    def at(cls, field: str, problem: str) -> InvalidInput:
        """Return the error of one argument."""
        return cls(f"{field}: {problem}", {"fields": {field: [problem]}})


class RuleSyntaxError(InvalidInput):
    """A text in the rule language with one or more errors.

    The message has each error with its line of source and carets under the place. `errors` is a
    list of `{line, column, endColumn, code, message, hint, source}`; lines and columns count from
    1, columns in code points.
    """

    @property
    def errors(self) -> list[dict[str, Any]]:
        """All errors of the text, in its order."""
        return list((self.details or {}).get("errors", ()))


class Unauthorized(KBError):
    """The API key is missing or wrong."""

    code = "UNAUTHORIZED"


class Forbidden(KBError):
    """The API key is known but not allowed to do this."""

    code = "FORBIDDEN"


class NotFound(KBError):
    """The addressed object does not exist."""

    code = "NOT_FOUND"


class Conflict(KBError):
    """A request that the present state does not allow."""

    code = "CONFLICT"


class NotUnique(Conflict):
    """Several answers where one was expected; details: `goal` and `count`."""


class ReadOnlyFollower(KBError):
    """A write sent to a follower; `details["leader"]` is the address of its leader."""

    code = "FOLLOWER_READ_ONLY"


class LogTruncated(KBError):
    """Records that were asked for are no longer kept; `details["first"]` is the first one that
    is.
    """

    code = "LOG_TRUNCATED"


class TooLarge(KBError):
    """A body, value or batch over its limit."""

    code = "PAYLOAD_TOO_LARGE"


class BudgetExceeded(KBError):
    """Work that exceeded a limit; details: `limit`, `value`, and `rule` or None."""

    code = "BUDGET_EXCEEDED"


class RateLimited(KBError):
    """Too many requests or too much work at once; `retry_after` is in seconds, None if unknown."""

    code = "RATE_LIMITED"

    retry_after: float | None = None


class InternalError(KBError):
    """A bug or a failed disk; the log of the server has more under `request_id`."""

    code = "INTERNAL_ERROR"


class ModelNotConfigured(KBError):
    """The request needs a language model, and the server has none."""

    code = "LLM_NOT_CONFIGURED"


class ModelFailed(KBError):
    """The language model answered badly or not at all; nothing was stored."""

    code = "LLM_FAILED"


class PredicateFailed(KBError):
    """A plugin that provides the rows of a predicate failed; nothing was changed."""

    code = "PLUGIN_FAILED"


class NotReady(KBError):
    """The server is starting, stopping, or a follower that has not caught up."""

    code = "NOT_READY"

    retry_after: float | None = None


class StorageFull(KBError):
    """The disk of the server is full; nothing was stored, and reads are still answered."""

    code = "STORAGE_FULL"


class ConnectionFailed(KBError):
    """No answer from the server: it is not running, or the connection was lost.

    It is unknown whether a write took effect if the connection was lost after the request was sent.
    """

    code = "CONNECTION_FAILED"


class TimedOut(ConnectionFailed):
    """No answer within the time limits of the client."""

    code = "TIMED_OUT"


class NotAServer(KBError):
    """An answer that no kbcore server gives; the address is probably wrong."""

    code = "NOT_A_SERVER"


class NotInstalled(KBError, ImportError):
    """An optional package that this call needs is not installed; the message says which one."""

    code = "NOT_INSTALLED"


BY_CODE: dict[str, type[KBError]] = {
    error.code: error
    for error in (
        InvalidInput,
        Unauthorized,
        Forbidden,
        NotFound,
        Conflict,
        ReadOnlyFollower,
        LogTruncated,
        TooLarge,
        BudgetExceeded,
        RateLimited,
        InternalError,
        ModelNotConfigured,
        ModelFailed,
        NotReady,
        PredicateFailed,
        StorageFull,
    )
}
"""The exception of each error code of the server."""


def error_of(
    status: int, answer: object, *, request_id: str | None, retry_after: float | None
) -> KBError:
    """Return the exception for an error answer of the server, which is `answer` as JSON."""
    if not isinstance(answer, dict) or not {"code", "message"} <= answer.keys():
        return NotAServer(
            f"status {status} without the error of a kbcore server; check the address",
            status=status,
            request_id=request_id,
        )
    details = answer.get("details")
    details = details if isinstance(details, dict) else None
    kind = BY_CODE.get(str(answer["code"]), KBError)
    if kind is InvalidInput and details is not None and "errors" in details:
        kind = RuleSyntaxError
    error = kind(str(answer["message"]), details, status=status, request_id=request_id)
    if isinstance(error, RateLimited | NotReady):
        error.retry_after = retry_after
    return error
