"""Sessions of context windows: diffs are exact."""

from __future__ import annotations

from support.engines import HOUR, tell
from support.windows import window


def test_diffs_follow_a_session(kb, clock):
    tell(kb, "p", "a")
    tell(kb, "p", "b", ttl=60_000)
    first = window(kb, session="s", predicates=("p",), max_facts=10)
    tell(kb, "p", "c/d")
    tell(kb, "q", "not asked for")
    clock.advance(60_000)
    found = kb.context_diff("s", {})
    assert found.previous == first.id
    assert [entry.key for entry in found.added] == ["p/c%2Fd"]
    assert [entry.key for entry in found.removed] == ["p/b"]
    assert (found.unchanged, found.refresh) == (1, True)
    again = kb.context_diff("s", {})
    assert (again.previous, again.current, again.unchanged) == (found.current, found.current, 2)
    assert kb.context_diff("s", {"max_facts": 1}).unchanged == 1


def test_sessions_end(kb, node, clock):
    tell(kb, "p", "a")
    window(kb, session="s")
    clock.step(2 * HOUR)  # no time passes on the monotonic clock
    assert kb.context_diff("s", {}).previous is not None
    clock.advance(HOUR)
    assert kb.context_diff("s", {}).previous is None
    window(kb, session="s")
    kb.clear_session("s")
    assert kb.context_diff("s", {}).refresh
    window(kb, session="s")
    for number in range(1000):
        window(kb, session=f"s{number}", max_facts=1)
    assert kb.context_diff("s", {}).current == "none"
    assert kb.context_diff("s0", {}).unchanged == 1
    node.admin().nuke_tenant("default", "default")
    assert kb.context_diff("s0", {}).current == "none"
