"""psycopg, imported when needed, with its errors translated. Messages never contain a password."""

from __future__ import annotations

import importlib
import logging
import os
import socket
from typing import Any

from kbcore.config import Config
from kbcore.config.storage_urls import HIDDEN, NOT_WELL_FORMED, is_well_formed, redacted, secrets_of
from kbcore.errors import ConfigError, LogCorrupted, NotReady, StorageFailed, StorageFull

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5

CANCELED = "the storage server canceled a statement; the server log has the details"
NO_ANSWER = "the storage server does not answer; the server log has the details"

_MISTAKES = (
    "authentication failed",
    "does not exist",
    "no password supplied",
    "no pg_hba.conf entry",
    "connection option",
)
"""Parts of libpq's messages about a wrong URL or login, after which a retry is useless."""


class Unreachable(Exception):
    """The server does not answer or the connection broke; the result of the statement is
    unknown.
    """


class Driver:
    """Connections according to the settings, and translation of errors."""

    subject = "STORAGE_URL="
    """Beginning of messages about an unusable URL."""

    needed_by = "STORAGE_BACKEND=postgres"
    """Subject of messages about a missing library."""

    def __init__(self, config: Config) -> None:
        if not config.storage_url:
            raise ConfigError(
                "STORAGE_BACKEND=postgres needs STORAGE_URL, such as postgresql://user@host/database"
            )
        if not is_well_formed(config.storage_url):
            raise ConfigError(f"{self.subject}{redacted(config.storage_url)!r}: {NOT_WELL_FORMED}")
        try:
            self.psycopg: Any = importlib.import_module("psycopg")
        except ImportError as error:
            raise ConfigError(
                f"{self.needed_by} needs psycopg: install it with `pip install 'psycopg[binary]'`"
                f" ({error})"
            ) from error
        self._url = config.storage_url
        self._secrets = secrets_of(config.storage_url)
        self._timeout = config.storage_timeout_ms
        # FSYNC_POLICY decides which acknowledged writes a crash of the server may lose.
        self._synchronous = "on" if config.fsync_policy == "always" else "off"
        self.is_shared = bool(config.cluster_url)
        """True if the other nodes of a cluster may open the log while this process has it."""
        self.location = redacted(config.storage_url)
        self.timeout = config.storage_timeout_ms / 1000

    def connect(self, purpose: str) -> Any:
        """Return a connection with autocommit; raises ConfigError, Unreachable."""
        name = f"kbcore pid {os.getpid()} on {socket.gethostname()}"[:63]
        settings = {
            "statement_timeout": self._timeout,
            "synchronous_commit": self._synchronous,
            # The server must detect a dead client within a minute, because that client holds the
            # lock.
            "tcp_keepalives_idle": 30,
            "tcp_keepalives_interval": 10,
            "tcp_keepalives_count": 3,
            "idle_in_transaction_session_timeout": 0 if purpose == "log" else self._timeout,
        }
        connection = None
        try:
            connection = self.psycopg.connect(
                self._url,
                autocommit=True,
                application_name=name,
                connect_timeout=CONNECT_SECONDS,
                tcp_user_timeout=self._timeout,
                keepalives_idle=30,
            )
            with connection.cursor() as cursor:
                for key, value in settings.items():
                    cursor.execute(f"SET {key} = '{value}'")
        except self.psycopg.Error as error:
            if connection is not None:
                connection.close()
            raise self.refused(error) from None  # the cause may quote the URL
        return connection

    def refused(self, error: Exception) -> Exception:
        """Translate the error of a failed connect."""
        text = self.clean(str(error))
        state = getattr(error, "sqlstate", None) or ""
        if (
            isinstance(error, self.psycopg.ProgrammingError)
            or state[:2] in ("28", "3D", "42")
            # libpq reports a refused login and an unreachable server with the same class, no state.
            or any(sign in text for sign in _MISTAKES)
        ):
            return ConfigError(f"{self.subject}{self.location!r}: {text}")
        return Unreachable(f"{self.location}: {text}")

    def translated(self, error: Exception) -> Exception:
        """Translate the error of a failed statement: disk full, timeout, broken connection, or
        unexpected.
        """
        errors = self.psycopg.errors
        text = f"{self.location}: {self.clean(str(error))}"
        if isinstance(error, (errors.DiskFull, errors.OutOfMemory)):
            return StorageFull(text)
        if isinstance(
            error, (errors.QueryCanceled, errors.LockNotAvailable, errors.ReadOnlySqlTransaction)
        ):
            logger.warning("the storage server canceled a statement: %s", text)
            return NotReady(CANCELED)
        if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
            return LogCorrupted(text, directory=self.location, segment="", offset=0)
        if isinstance(error, (self.psycopg.OperationalError, self.psycopg.InterfaceError)):
            return Unreachable(text)
        if isinstance(
            error, (errors.InsufficientPrivilege, errors.UndefinedTable, errors.InvalidSchemaName)
        ):
            return ConfigError(text)
        return StorageFailed(text)

    def clean(self, text: str) -> str:
        """Return a message of the server or the library as one line without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return " ".join(text.split())


def not_ready(error: Unreachable) -> NotReady:
    """Return the error to raise while the server does not answer.

    Clients see its message, so the address of the server and the text of the driver go to the log.
    """
    logger.warning("the storage server does not answer: %s", error)
    return NotReady(NO_ANSWER)
