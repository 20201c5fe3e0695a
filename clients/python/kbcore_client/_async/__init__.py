"""The asynchronous client; `_sync` is made from it by tools/make_sync.py."""
