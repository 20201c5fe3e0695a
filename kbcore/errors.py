"""The errors of a knowledge base; those of its language come from the planner, and those that
clients know from `kbtypes`.
"""

from __future__ import annotations

from typing import Any

from kbplanner.errors import (
    Cancelled,
    EngineFault,
    ExternalRecursion,
    RecursiveAggregate,
    RefusedExtremum,
    UnboundArgument,
    UnsafeRule,
)
from kbtypes.errors import (
    BudgetExceeded,
    Conflict,
    Forbidden,
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
    "AlreadyExists",
    "BadShipment",
    "BudgetExceeded",
    "CallerLeft",
    "Cancelled",
    "ConfigError",
    "Conflict",
    "Diverged",
    "EngineFault",
    "ExternalRecursion",
    "Forbidden",
    "InvalidInput",
    "KBError",
    "LoadError",
    "LogCorrupted",
    "LogTruncated",
    "MissingHeader",
    "ModelFailed",
    "ModelNotConfigured",
    "NotFound",
    "NotReady",
    "NotUnique",
    "PluginFailed",
    "PredicateFailed",
    "ProviderFailed",
    "RateLimited",
    "ReadOnlyFollower",
    "RecursiveAggregate",
    "RefusedExtremum",
    "RuleSyntaxError",
    "SnapshotFailed",
    "StorageBusy",
    "StorageFailed",
    "StorageFull",
    "TooLarge",
    "Unauthorized",
    "UnboundArgument",
    "Unconfirmed",
    "UnknownDatabase",
    "UnknownTransaction",
    "UnsafeRule",
]


class LoadError(InvalidInput):
    """A line of a file that cannot be read; details: `line`, `problem`, and `file` where it is
    known.
    """

    def __init__(self, line: int, problem: str, file: str | None = None) -> None:
        where = f"line {line}" if file is None else f"{file}: line {line}"
        details = {"line": line, "problem": problem} | ({} if file is None else {"file": file})
        super().__init__(f"{where}: {problem}", details)
        self.line = line
        self.problem = problem

    def in_file(self, file: str) -> LoadError:
        """Return the same error with the name of its file."""
        return LoadError(self.line, self.problem, file)


class MissingHeader(InvalidInput):
    """A request without a header it needs; the message names it."""

    def __init__(self, header: str) -> None:
        super().__init__(f"missing required header {header}", {"header": header})


class UnknownDatabase(NotFound):
    """A database that was never created."""

    def __init__(self, name: str) -> None:
        super().__init__(f"database '{name}' does not exist", {"database": name})


class UnknownTransaction(NotFound):
    """A transaction id that is not known in this tenant."""

    def __init__(self, transaction: str) -> None:
        super().__init__("no such transaction in this tenant", {"transaction": transaction})


class AlreadyExists(Conflict):
    """Something of this name is there already."""


class Diverged(Conflict):
    """A follower's log that is not the beginning of its leader's; `details`: reason, and the
    leader's logId, epoch, head.
    """


class BadShipment(KBError):
    """Data of a leader are invalid or missing; the follower asks again. Used between nodes only."""

    code = "NOT_READY"


class CallerLeft(Cancelled):
    """The client closed the connection before the answer was ready."""

    def __init__(self) -> None:
        super().__init__("the client left before the answer was there")


class ProviderFailed(KBError):
    """One call of a language model failed; raised by providers. Clients get ModelFailed.

    `kind` is timeout, rate_limited, refused (the request is at fault: asking again does not help)
    or error; `retry` says whether another try may help, `retry_after` in how many seconds at the
    earliest. The message holds no key.
    """

    code = "LLM_FAILED"

    def __init__(
        self,
        message: str,
        kind: str = "error",
        *,
        retry: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry = retry
        self.retry_after = retry_after


class Unconfirmed(NotReady):
    """A write that is in the log of the leader, but not confirmed by a follower.

    It takes effect if the leader stays, or if the next leader has it, and is lost otherwise.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}: it is unknown whether this write will take effect",
            {"reason": "unconfirmed", "outcome": "unknown"},
        )


class StorageFailed(KBError):
    """A sync failed: what is on the disk is unknown, so the process must stop."""

    code = "INTERNAL_ERROR"


class PluginFailed(KBError):
    """A plugin raised or returned nonsense; nothing was changed, and the message names it."""

    code = "INTERNAL_ERROR"


class SnapshotFailed(KBError):
    """A snapshot could not be stored; the log is whole and writes go on."""

    code = "INTERNAL_ERROR"


class ConfigError(KBError):
    """A setting that cannot be used; start-up only."""


class StorageBusy(KBError):
    """Another process holds the storage folder; start-up only."""


class LogCorrupted(KBError):
    """A damaged log or snapshot; start-up only. `details`: directory, segment, offset and what is
    known.
    """

    def __init__(
        self, message: str, *, directory: str, segment: str, offset: int, **more: Any
    ) -> None:
        super().__init__(
            message, {"directory": directory, "segment": segment, "offset": offset, **more}
        )
        self.directory = directory
        self.segment = segment
        self.offset = offset
