"""Errors of knowledge bases: a class for each code that a server answers, and the codes' statuses.

An error carries data, not prose: `code` (one word of the error table), `message` (one sentence for
a person) and `details` (a JSON object or None).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

Error = TypeVar("Error", bound="KBError")


class KBError(Exception):
    """Base class of all errors of a knowledge base and of its client.

    `code` names the kind for programs, `message` describes the error for a person, and `details`
    holds data for programs or is None. `status` is the HTTP status and `request_id` the id in the
    log of the server; both are None for errors that no server reported.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"

    status: int | None = None
    request_id: str | None = None

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] | None = dict(details) if details else None

    @classmethod
    def answered(
        cls: type[Error],
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        status: int | None = None,
        request_id: str | None = None,
    ) -> Error:
        """Return the error that an answer describes; it needs no other arguments of this class."""
        error = cls.__new__(cls, message)
        KBError.__init__(error, message, details)
        error.status, error.request_id = status, request_id
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self).answered, (self.message,), self.__dict__)


class InvalidInput(KBError):
    """A request or text that cannot be accepted; `details["fields"]` names the fields or arguments
    at fault.
    """

    code = "VALIDATION_ERROR"

    @classmethod
    def at(cls, field: str, problem: str) -> InvalidInput:
        """Return the error of one field: message `field: problem`, details `{"fields": {field:
        [problem]}}`.
        """
        return cls(f"{field}: {problem}", {"fields": {field: [problem]}})


class RuleSyntaxError(InvalidInput):
    """A text in the rule language with one or more errors.

    The message has each error with its line of source and carets under the place. `errors` is a
    list of `{line, column, endColumn, code, message, hint, source}`; lines and columns count from
    1, columns in code points.
    """

    def __init__(self, message: str, errors: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message, {"errors": [dict(error) for error in errors]})

    @property
    def errors(self) -> list[dict[str, Any]]:
        """All errors of the text, in its order."""
        return list((self.details or {}).get("errors", ()))

    def within(self, path: str) -> RuleSyntaxError:
        """Return the same error, naming the field that holds the text."""
        placed = RuleSyntaxError(f"{path}: {self.message}", self.errors)
        placed.details = {"errors": placed.errors, "fields": {path: [self.message]}}
        return placed


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
    """A write sent to a follower; `details["leader"]` is the address of its leader. `subject` names
    the follower, or its storage if no node runs.
    """

    code = "FOLLOWER_READ_ONLY"

    def __init__(self, leader: str, subject: str = "this node") -> None:
        super().__init__(f"{subject} is a follower; send writes to {leader}", {"leader": leader})


class LogTruncated(KBError):
    """Records that were asked for are no longer kept; `details["first"]` is the first one that
    is.
    """

    code = "LOG_TRUNCATED"


class TooLarge(KBError):
    """A body, value or batch over its limit."""

    code = "PAYLOAD_TOO_LARGE"


class BudgetExceeded(KBError):
    """Work that exceeded its budget; details: `limit` names the budget, `value` is its size, `rule`
    the rule at work or None.
    """

    code = "BUDGET_EXCEEDED"

    def __init__(self, message: str, limit: str, value: int, rule: str | None = None) -> None:
        super().__init__(message, {"limit": limit, "value": value, "rule": rule})

    @classmethod
    def of_run(cls, limit: str, value: int, rule: str | None = None) -> BudgetExceeded:
        """Return the error of a run or a model that reached a limit."""
        return cls(f"the evaluation exceeded its budget {limit} of {value}", limit, value, rule)


class RateLimited(KBError):
    """Too many requests or too much work at once; `retry_after` is in seconds, None if unknown."""

    code = "RATE_LIMITED"

    retry_after: float | None = None

    def __init__(
        self, message: str, retry_after: float, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, {"retryAfterSeconds": retry_after, **(details or {})})
        self.retry_after = retry_after


class InternalError(KBError):
    """A bug or a failed disk; the log of the server has more under `request_id`."""

    code = "INTERNAL_ERROR"


class ModelNotConfigured(KBError):
    """The request needs a language model, and none is configured."""

    code = "LLM_NOT_CONFIGURED"


class ModelFailed(KBError):
    """The language model answered badly or not at all; nothing was stored. Details: `provider`,
    `model`, `reason` and `attempts`.
    """

    code = "LLM_FAILED"


class PredicateFailed(KBError):
    """A predicate of a plugin failed or returned invalid rows; nothing was changed. Details:
    `predicate` and `reason`.
    """

    code = "PLUGIN_FAILED"

    def __init__(self, predicate: str, reason: str) -> None:
        super().__init__(
            f"the predicate {predicate} of a plugin failed ({reason}); the server log has the details",
            {"predicate": predicate, "reason": reason},
        )


class NotReady(KBError):
    """The knowledge base is starting, stopping, or a follower that has not caught up.

    `retry_after` is in seconds, None if unknown.
    """

    code = "NOT_READY"

    retry_after: float | None = None


class StorageFull(KBError):
    """No room on the disk; nothing was stored, and reads are still answered."""

    code = "STORAGE_FULL"


STATUS: dict[str, int] = {
    "VALIDATION_ERROR": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "FOLLOWER_READ_ONLY": 409,
    "LOG_TRUNCATED": 410,
    "PAYLOAD_TOO_LARGE": 413,
    "BUDGET_EXCEEDED": 422,
    "RATE_LIMITED": 429,
    "INTERNAL_ERROR": 500,
    "LLM_NOT_CONFIGURED": 501,
    "LLM_FAILED": 502,
    "PLUGIN_FAILED": 502,
    "NOT_READY": 503,
    "STORAGE_FULL": 507,
}
"""The HTTP status of each error code."""

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
"""The error of each code."""
