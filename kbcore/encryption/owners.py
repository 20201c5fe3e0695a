"""The tenant whose key seals a payload, read from the first bytes of its JSON.

`kbcore/durable/records.py` and `snapshot.py` write these bytes; tests compare them with this
module. A payload of another form is sealed with the key of the log.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import orjson

Owner = tuple[str, str]
"""Database and name of a tenant."""

_TEXT = rb'"(?:[^"\\]|\\.)*"'
_RECORD = re.compile(
    rb'\{(?:"at":-?\d+,)?"db":(' + _TEXT + rb'),"tenant":(' + _TEXT + rb'),"changes":\['
    rb'(?:\{"op":"(\w+)"(?:,"action":"(\w+)")?)?'
)
_CHUNK = re.compile(rb'\{"kind":"(\w+)"(?:,"db":(' + _TEXT + rb'),"tenant":(' + _TEXT + rb"))?")

_OF_THE_LOG = frozenset((b"catalog", b"keys"))
"""Changes of databases, tenants as a whole, and API keys: they are read without a tenant's key."""

_ENDING = frozenset((b"dropTenant", b"nukeTenant"))
_ENDING_ALL = frozenset((b"dropDatabase", b"nukeDatabase"))


class RecordOwner(NamedTuple):
    """The owner of a record, None for the log; `ends` has a tenant, or with the name "" all tenants
    of a database, whose data the record deletes.
    """

    owner: Owner | None
    ends: Owner | None = None


@lru_cache(4096)
def _owner(database: bytes, tenant: bytes) -> Owner:
    """Return the owner of two texts in JSON; most records name one that was named just before."""
    return orjson.loads(database), orjson.loads(tenant)


def of_record(payload: bytes) -> RecordOwner:
    """Return the ownership of a log record."""
    match = _RECORD.match(payload)
    if match is None:
        return RecordOwner(None)
    op, action = match[3], match[4]
    if op not in _OF_THE_LOG:
        return RecordOwner(_owner(match[1], match[2]))
    if op == b"catalog" and action in _ENDING:
        return RecordOwner(None, (orjson.loads(match[1]), orjson.loads(match[2])))
    if op == b"catalog" and action in _ENDING_ALL:
        return RecordOwner(None, (orjson.loads(match[1]), ""))
    return RecordOwner(None)


def of_chunk(chunk: bytes, before: Owner | None) -> Owner | None:
    """Return the owner of a chunk of a snapshot, from that of the chunk before."""
    match = _CHUNK.match(chunk)
    if match is None or match[1] not in (b"databases", b"tenant"):
        return before
    if match[2] is None:
        return None
    return orjson.loads(match[2]), orjson.loads(match[3])
