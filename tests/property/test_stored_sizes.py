"""The size of a tenant that the quota reads is what a recount gives, after any changes."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import KBError
from kbcore.node.runtime import Runtime
from kbcore.operations.subscriptions.subscribing import DurableSubscription
from kbcore.state.episodes.episodes import episode_bytes
from kbcore.state.facts import Fact
from kbcore.upkeep.purge import PurgeTarget
from kbplanner.ir.phrases import Declaration
from kbplanner.ir.terms import Rule
from kbplanner.syntax.parser import parse_body, parse_declaration, parse_rule

T0 = 1_700_000_000_000
TEXTS = ("short", "ä" * 40, "zebulon said so")

number, text = st.integers(0, 2), st.sampled_from(TEXTS)
step = st.one_of(
    st.tuples(st.just("episode"), number, text),
    st.tuples(st.just("rule"), number, text),
    st.tuples(st.just("phrase"), number, text),
    st.tuples(st.just("input"), number, text),
    st.tuples(st.just("goal"), number, text),
    st.tuples(st.just("fact"), number, text),
    st.tuples(
        st.sampled_from(
            ["retract", "withdraw", "end", "fork", "drop", "purge", "undo", "transaction"]
        ),
        number,
        text,
    ),
    st.tuples(st.sampled_from(["restart", "snapshot", "nuke"]), number, text),
)


def definition(kind: str, at: int, text: str) -> str:
    if kind == "phrase":
        return f'@phrase p{at}/1 "{{0}} {text}".'
    if kind == "input":
        return f'@input p{at}(name) "{text}".'
    return f'q{at}(?x) :- p{at}(?x), ?x != "{text}".'


def parse_one(text: str) -> Rule | Declaration:
    return parse_declaration(text) if text.startswith("@") else parse_rule(text)


def carry_out(node: Runtime, kind: str, at: int, text: str) -> None:
    kb = node.knowledge_base(tenant="t")
    if kind == "episode":
        kb.add_episode("ann", f"{at} {text}")
    elif kind in ("rule", "phrase", "input"):
        kb.assert_rules([parse_one(definition(kind, at, text))])
    elif kind == "goal":
        body = parse_body(f'p{at}(?x), ?x != "{text}"')
        kb.subscribe_goal(body, id=f"g{at}{len(text)}", keep=DurableSubscription())
    elif kind == "fact":
        kb.assert_facts([Fact(f"p{at}", (text,), scope=None if at else "s")])
    elif kind == "retract":
        kb.retract_rule(id=kb.rules()[at].id)
    elif kind == "withdraw":
        kb.retract_rule(id=f"@p{at}/1")
    elif kind == "end":
        kb.end_goal(f"g{at}{len(text)}")
    elif kind == "fork":
        kb.fork_scope(None, f"s{at}")
    elif kind == "drop":
        kb.drop_scope(f"s{at}")
    elif kind == "purge":
        kb.purge(PurgeTarget(subject="zebulon"))
    elif kind == "undo":
        kb.undo(seq=node.log_head())
    elif kind == "transaction":
        id = node.begin(tenant="t")
        with node.in_transaction("default", "t", id) as inside:
            inside.assert_rules([parse_one(definition("rule", at, text))])
            inside.add_episode("bob", text)
            inside.commit()
    elif kind == "nuke":
        node.admin().nuke_tenant("default", "t")
    else:
        node.snapshot()


def kept_and_recount(node: Runtime) -> tuple[int, int]:
    tenant = node.find_tenant("default", "t")
    if tenant is None:
        return 0, 0
    parts = tenant.rules.all(), tenant.rules.declarations(), tenant.subscriptions
    recount = sum(each.bytes for part in parts for each in part)
    recount += sum(map(episode_bytes, tenant.episodes))
    kept = tenant.rules.bytes + tenant.episodes.bytes + tenant.subscriptions.bytes
    assert tenant.stored_bytes > kept  # the engine, whose memory also grows beside this thread
    return kept, recount


def open_node(folder: str, clock: ManualClock) -> Runtime:
    return runtime(Path(folder), clock=clock, sweep_interval_ms=0, tenant_max_bytes=1 << 30)


@settings(max_examples=60, deadline=None)
@given(st.lists(step, max_size=14))
def test_the_size_is_that_of_a_recount(steps: list[tuple[str, int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(T0)
        node = open_node(folder, clock)
        try:
            for kind, at, text in steps:
                if kind == "restart":
                    before = kept_and_recount(node)
                    node.close()
                    node = open_node(folder, clock)
                    assert kept_and_recount(node) == before
                else:
                    with suppress(KBError, IndexError):
                        carry_out(node, kind, at, text)
                kept, recount = kept_and_recount(node)
                assert kept == recount, (kind, at, text)
        finally:
            node.close()


def test_each_step_does_something(tmp_path: Path) -> None:
    """Without this, a step that always fails would make the test above true for nothing."""
    node = open_node(str(tmp_path), ManualClock(T0))
    order = [
        "episode",
        "rule",
        "phrase",
        "goal",
        "fact",
        "undo",
        "transaction",
        "snapshot",
        "fork",
        "drop",
        "purge",
        "end",
        "withdraw",
        "retract",
    ]
    with node:
        for kind in order:
            carry_out(node, kind, 0, TEXTS[0])
