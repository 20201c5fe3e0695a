"""The synchronous client, made from `_async` by tools/make_sync.py."""
