"""The cache that evicts the least recently used entries."""

from __future__ import annotations

from kbplanner.lru import LruCache


def test_the_least_recently_used_entry_is_evicted():
    cache: LruCache[str, int] = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (1, None, 3, 2)
    cache.put("a", 4)
    cache.put("d", 5)
    assert (cache.get("a"), cache.get("c"), cache.get("d")) == (4, None, 5)
    cache.clear()
    assert cache.get("a") is None
    assert len(cache) == 0
