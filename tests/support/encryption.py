"""Encrypted stores and settings with a key for tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from kbcore.config import Config
from kbcore.encryption.master_key import create_key
from kbcore.plug.ports import LogStore
from kbcore.plug.sealed_store import Encryption


def with_key(config: Config, folder: str) -> Config:
    """Settings with the key file `key` in a folder, which is created if it does not exist."""
    key = os.path.join(folder, "key")
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(key):
        create_key(key)
    return replace(config, encryption_key_file=key)


def encrypted(factory: Callable[[Config], LogStore], config: Config) -> LogStore:
    """The store of a factory, encrypted; key and key folder are beside STORAGE_DIR, also for copies
    of it.
    """
    beside = os.path.dirname(config.storage_dir)
    keyed = replace(with_key(config, beside), encryption_keys_dir=os.path.join(beside, "keys"))
    return Encryption(keyed).opened(factory(config))
