"""Leases with fencing tokens: the protocol that coordinator plugins implement, and its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from kbcore.errors import InvalidInput

MAX_TTL_MS = 86_400_000
"""The longest time to live of a lease: a day."""

MAX_VALUE_BYTES = 65_536
"""The longest value of a lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as its holder has it.

    `token` is the fencing token: each acquisition of the name has a larger one. `ttl_ms` is the
    time to live in milliseconds, which the coordinator may have rounded up.
    """

    name: str
    token: int
    ttl_ms: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Held:
    """A lease that is held now, as everybody sees it."""

    name: str
    token: int
    value: bytes


class ChangeKind(Enum):
    """Kind of a change that a watch reports.

    HELD: the name was acquired, with the token and value of the change. FREE: its lease ended, with
    the token of that lease. GAP: changes may have been missed; call `leases` again.
    """

    HELD = "held"
    FREE = "free"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a watch reports; a gap has no name."""

    kind: ChangeKind
    name: str = ""
    token: int = 0
    value: bytes = b""


class Watch(Protocol):
    """An iterator over changes, which waits for the next one; for one thread at a time."""

    def __iter__(self) -> Watch:
        """Return the watch itself."""

    def __next__(self) -> Change:
        """Wait for the next change and return it; raise StopIteration once the watch is closed."""

    def close(self) -> None:
        """End the iteration; also while another thread waits in it."""


class Coordinator(Protocol):
    """Leases on names, shared by several processes.

    Contract: a name has at most one holder; the clock of the coordinator decides when a lease ends.
    A holder that does not renew its lease in time loses it, also while its process is stopped.
    Because a holder may notice that late, the store that it writes to must refuse a token smaller
    than the largest one seen. A name is any Unicode text; a value is any bytes, up to 64 KiB. All
    methods may be called by several threads at a time. They raise InvalidInput for an unusable
    argument, and NotReady if the coordinator does not answer: the call then may have had its effect
    or not.
    """

    def acquire(self, name: str, ttl_ms: int, value: bytes) -> Lease | None:
        """Acquire a free name; return None if it is held, by this coordinator or another one.

        `ttl_ms` is 1 to 86,400,000. Count the time to live from before this call.
        """

    def renew(self, lease: Lease) -> bool:
        """Begin the time to live again; return False if the lease is lost.

        Only the coordinator that acquired the lease renews it. Count the time to live from before
        this call. A lost lease cannot be renewed, even if the name is still free.
        """

    def release(self, lease: Lease) -> None:
        """End a lease, so that the name is free at once; do nothing if it is lost already."""

    def store(self, lease: Lease, value: bytes) -> bool:
        """Store a value under the name of a lease; return False if the lease is lost.

        The value is durable on return, replaces the stored one, and stays when the lease ends.
        Nothing is stored after the lease is lost, in one step with the check.
        """

    def stored(self, name: str) -> bytes | None:
        """Return the value that was stored last under a name, None without one."""

    def leases(self, prefix: str) -> Sequence[Held]:
        """Return the leases held now on names that begin with `prefix`, by name."""

    def watch(self, prefix: str) -> Watch:
        """Report the changes from now on to names that begin with `prefix`.

        Changes of one name come in order. A lease that begins and ends between two changes may be
        left out, and so may FREE before HELD with a larger token. Where more may have been missed,
        GAP is reported, and the caller lists again.
        """

    def close(self) -> None:
        """Release the leases held through this coordinator, end its watches, and disconnect."""


@runtime_checkable
class RenewsMany(Protocol):
    """Optional ability of a `Coordinator`: many leases are renewed by one call."""

    def renew_all(self, leases: Sequence[Lease]) -> Sequence[bool]:
        """Renew each lease as `renew` does; return the results in their order."""


def renew_all(coordinator: Coordinator, leases: Sequence[Lease]) -> Sequence[bool]:
    """Renew leases, in one call if the coordinator can."""
    if isinstance(coordinator, RenewsMany):
        return coordinator.renew_all(leases)
    return [coordinator.renew(lease) for lease in leases]


def check_lease(name: str, ttl_ms: int, value: bytes) -> bytes:
    """Return a name as UTF-8; raise InvalidInput for an unusable name, time to live or value."""
    check_value(value)
    if not 1 <= ttl_ms <= MAX_TTL_MS:
        raise InvalidInput(f"the time to live of a lease is 1 to {MAX_TTL_MS} ms, not {ttl_ms}")
    return encode_name(name)


def check_value(value: bytes) -> None:
    """Raise InvalidInput for a value that is too long."""
    if len(value) > MAX_VALUE_BYTES:
        raise InvalidInput(f"the value of a lease has at most {MAX_VALUE_BYTES} bytes")


def encode_name(name: str) -> bytes:
    """Return a name or prefix as UTF-8; raise InvalidInput for text that has no UTF-8 form."""
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the name of a lease must be Unicode text without surrogates") from None


def differences(before: Sequence[Held], after: Sequence[Held]) -> list[Change]:
    """Return the changes between two listings of the same prefix, those that end leases first."""
    old = {held.name: held for held in before}
    new = {held.name: held for held in after}
    return [
        Change(ChangeKind.FREE, name, held.token) for name, held in old.items() if name not in new
    ] + [
        Change(ChangeKind.HELD, name, held.token, held.value)
        for name, held in new.items()
        if name not in old or old[name].token != held.token
    ]
