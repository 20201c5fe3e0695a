"""Exceptions of the client: those of the connection, and those of `kbtypes`, which a server
answers.
"""

from __future__ import annotations

from kbtypes.errors import (
    BY_CODE,
    BudgetExceeded,
    Conflict,
    Forbidden,
    InternalError,
    InvalidInput,
    KBError,
    LogTruncated,
    ModelFailed,
    ModelNotConfigured,
    NotFound,
    NotReady,
    NotUnique,
    PredicateFailed,
    RateLimited,
    ReadOnlyFollower,
    RuleSyntaxError,
    StorageFull,
    TooLarge,
    Unauthorized,
)

__all__ = [
    "BY_CODE",
    "BudgetExceeded",
    "Conflict",
    "ConnectionFailed",
    "Forbidden",
    "InternalError",
    "InvalidInput",
    "KBError",
    "LogTruncated",
    "ModelFailed",
    "ModelNotConfigured",
    "NotAServer",
    "NotFound",
    "NotInstalled",
    "NotReady",
    "NotUnique",
    "PredicateFailed",
    "RateLimited",
    "ReadOnlyFollower",
    "RuleSyntaxError",
    "StorageFull",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "error_of",
]


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


def error_of(
    status: int, answer: object, *, request_id: str | None, retry_after: float | None
) -> KBError:
    """Return the exception for an error answer of the server, which is `answer` as JSON."""
    if not isinstance(answer, dict) or not {"code", "message"} <= answer.keys():
        return NotAServer.answered(
            f"status {status} without the error of a kbcore server; check the address",
            status=status,
            request_id=request_id,
        )
    details = answer.get("details")
    details = details if isinstance(details, dict) else None
    kind = BY_CODE.get(str(answer["code"]), KBError)
    if kind is InvalidInput and details is not None and "errors" in details:
        kind = RuleSyntaxError
    error = kind.answered(str(answer["message"]), details, status=status, request_id=request_id)
    if isinstance(error, RateLimited | NotReady):
        error.retry_after = retry_after
    return error
