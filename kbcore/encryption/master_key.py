"""The master key: 32 random bytes in base64, from a file or from the output of a command."""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import shlex
import signal
import stat
import subprocess  # nosec B404 - runs the command that the operator configures
import time
from collections.abc import Iterator
from contextlib import suppress
from select import select

from kbcore.config.settings import Config
from kbcore.encryption.cipher import KEY_BYTES
from kbcore.errors import AlreadyExists, ConfigError

COMMAND_SECONDS = 30
"""Time limit of ENCRYPTION_KEY_COMMAND."""

_MAX_TEXT = 4096
_OTHERS_CAN_READ = 0o077


def is_configured(config: Config) -> bool:
    """Return True if a master key is configured."""
    return bool(config.encryption_key_file or config.encryption_key_command)


def master_key(config: Config) -> bytes:
    """Read the configured master key. Raises ConfigError, without the content of the key."""
    file, command = config.encryption_key_file, config.encryption_key_command
    if file and command:
        raise ConfigError("ENCRYPTION_KEY_FILE and ENCRYPTION_KEY_COMMAND are both set; set one")
    if command:
        return _decoded(_output(command), "the output of ENCRYPTION_KEY_COMMAND")
    return key_in(file, "ENCRYPTION_KEY_FILE")


def key_in(file: str, setting: str) -> bytes:
    """Read a key file; `setting` names it in messages. Raises ConfigError."""
    try:
        # A FIFO without a writer would be waited for.
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as opened:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ConfigError(f"{setting}: {file!r} is not a regular file")
            text = opened.read(_MAX_TEXT + 1)
    except OSError as error:
        reason = (error.strerror or "input/output error").lower()
        raise ConfigError(f"{setting}: {file!r} cannot be read: {reason}") from error
    return _decoded(text, f"{setting}: {file!r}")


def key_warnings(config: Config) -> Iterator[str]:
    """Yield a warning if other users can read the key file."""
    file = config.encryption_key_file
    with suppress(OSError):  # an error, not a warning
        if file and os.stat(file).st_mode & _OTHERS_CAN_READ:
            yield f"ENCRYPTION_KEY_FILE={file}: other users can read the key; use chmod 600"


def create_key(file: str) -> None:
    """Write a new random key to a new file that only its owner may read, durably.

    Raises AlreadyExists if a file has the name, ConfigError if it cannot be written.
    """
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise AlreadyExists(f"{file} exists; a key is never overwritten", {"file": file}) from error
    except OSError as error:
        raise _not_written(file, error) from error
    try:
        with os.fdopen(fd, "wb") as opened:
            opened.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        os.unlink(file)
        raise _not_written(file, error) from error


def _not_written(file: str, error: OSError) -> ConfigError:
    return ConfigError(f"{file} cannot be written: {(error.strerror or 'error').lower()}")


def _output(command: str) -> bytes:
    name = "ENCRYPTION_KEY_COMMAND"
    try:
        process = subprocess.Popen(  # noqa: S603  # nosec B603 - no shell; the operator's command
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
    except (OSError, ValueError, IndexError) as error:
        raise ConfigError(f"{name} cannot be run: {error}") from error
    try:
        with process:
            try:
                deadline = time.monotonic() + COMMAND_SECONDS
                output = _read_until(process, deadline)
                process.wait(max(0.0, deadline - time.monotonic()))
            except BaseException:
                with suppress(ProcessLookupError):  # also the processes that it started
                    os.killpg(process.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{name} took more than {COMMAND_SECONDS} seconds") from None
    if process.returncode:
        raise ConfigError(f"{name} ended with status {process.returncode}")
    return output


def _read_until(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Return the output of a process; raise ConfigError if it is too long, and TimeoutExpired."""
    output = b""
    while process.stdout is not None:
        if not select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise subprocess.TimeoutExpired("", COMMAND_SECONDS)
        data = process.stdout.read(_MAX_TEXT)
        if not data:
            break
        output += data
        if len(output) > _MAX_TEXT:
            raise ConfigError(f"ENCRYPTION_KEY_COMMAND printed more than {_MAX_TEXT} bytes")
    return output


def _decoded(text: bytes, source: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES or len(text) > _MAX_TEXT:
        raise ConfigError(
            f"{source} must be {KEY_BYTES} random bytes in base64, as `kbcore encryption create-key`"
            " writes them"
        )
    return key
