"""Facts that become due while an operation on scopes holds the lock of its tenant."""

from __future__ import annotations

import threading

import pytest

from kbcore.clock import ManualClock
from kbcore.config.settings import Config
from kbcore.errors import InvalidInput
from kbcore.node.knowledge_base import KnowledgeBase
from kbcore.node.opening import open_runtime
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import Keep, Resolution

SECOND = 1000


class Hurrying(ManualClock):
    """A clock that goes on by a second at each look, from a moment on."""

    hurries = False

    def now_ms(self) -> int:
        if self.hurries:
            self.advance(SECOND)
        return super().now_ms()


class Ours:
    always = None

    def resolve(self, conflict):
        return Resolution(Keep.SOURCE)


class Plugin:
    @hookimpl
    def kb_merge_strategies(self):
        return {"OURS": Ours()}


def refused(kb):
    with pytest.raises(InvalidInput, match="is not a name"):
        kb.query("p", ["?x"], scope="two words")


@pytest.mark.parametrize(
    "use",
    [
        lambda kb: kb.kb.diff_scopes(None, "s"),
        lambda kb: kb.kb.merge_scope("s", strategy="OURS"),
        lambda kb: kb.kb.merge_scope("s", strategy="REJECT"),
        lambda kb: kb.kb.merge_scope("s"),
        refused,
    ],
)
def test_an_operation_does_not_wait_for_itself(use):
    clock = Hurrying()
    node = open_runtime(Config(storage_backend="memory"), clock=clock, plugins=[Plugin()])
    kb = KnowledgeBase(node, "t")
    kb.tell("p", ["a"])
    kb.fork("s")
    for second in range(1, 7):
        kb.tell("due", [str(second)], valid_until=clock.now_ms() + second * SECOND)
    outcomes = []
    clock.hurries = True
    working = threading.Thread(target=lambda: outcomes.append(use(kb)), daemon=True)
    working.start()
    working.join(5)
    clock.hurries = False
    assert len(outcomes) == 1
    kb.close()  # which would wait as well
