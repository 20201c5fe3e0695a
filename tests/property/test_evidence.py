"""Evidence against a simple model: asserted again, forked, merged, purged, undone, and after a
restart.
"""

from __future__ import annotations

import tempfile
from array import array
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtimes import runtime

from kbcore.errors import Conflict
from kbcore.node.runtime import Runtime
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.episodes.episodes import NewEpisode, StoredEpisodes
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.facts import Fact
from kbcore.upkeep.purge import PurgeTarget
from kbplanner.ir.terms import Variable

X = Variable("x")
ARGS = ("a", "b", "c")
EPISODES = ("e0", "e1", "e2")
SCOPES = (None, "s")

Spans = tuple[tuple[str, int | None, int | None], ...]
Model = dict[tuple[str | None, str], Spans]
"""The evidence of each stored fact, by scope and argument."""

arg, scope = st.sampled_from(ARGS), st.sampled_from(SCOPES)
span = st.sampled_from([(id, *part) for id in EPISODES for part in ((None, None), (0, 2), (1, 3))])
tell = st.tuples(st.just("tell"), scope, arg, st.lists(span, max_size=3))
retract = st.tuples(st.just("retract"), scope, arg, st.just([]))
others = st.sampled_from(
    [
        ("fork",),
        *(("merge", name) for name in ("SOURCE_WINS", "TARGET_WINS", "KEEP_BOTH", "REJECT")),
        ("restart",),
        ("crash",),
        ("undo",),
        *(("purge", id) for id in EPISODES),
    ]
)
steps = st.lists(st.one_of(tell, tell, tell, retract, others), max_size=14)


def union(first: Spans, second: Any) -> Spans:
    return tuple(dict.fromkeys((*first, *second)))


class Checked:
    """A knowledge base on disk, its model, and the states before each change that can be undone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model: Model = {}
        self.episodes = set(EPISODES)
        self.node: Runtime = runtime(folder)
        self.before: tuple[int, Model] | None = None
        for id in EPISODES:
            self.kb.add_episode("ann", f"text of {id}", id=id)

    @property
    def kb(self) -> TenantKB:
        return self.node.knowledge_base()

    def step(self, step: Any) -> None:
        before = dict(self.model)
        head = self.node.log_head()
        if step[0] == "tell":
            self.tell(*step[1:])
        elif step[0] == "retract":
            _, at, name, _ = step
            self.kb.retract_fact("p", [name], scope=at)
            self.model.pop((at, name), None)
        elif step[0] == "fork":
            self.kb.fork_scope(None, "s", overwrite=True)
            self.model = {key: value for key, value in self.model.items() if key[0] is None}
            self.model |= {("s", name): value for (_, name), value in list(self.model.items())}
        elif step[0] == "merge":
            self.merge(step[1])
        elif step[0] == "purge":
            self.purge(step[1])
        elif step[0] in ("restart", "crash"):
            self.restart(clean=step[0] == "restart")
        elif step[0] == "undo":
            self.undo()
            return
        self.before = (self.node.log_head(), before) if self.node.log_head() == head + 1 else None
        if step[0] in ("purge", "restart", "crash"):
            self.before = None

    def tell(
        self, at: str | None, name: str, spans: list[tuple[str, int | None, int | None]]
    ) -> None:
        known = [each for each in spans if each[0] in self.episodes]
        evidence = tuple(Evidence(*each) for each in known)
        self.kb.assert_facts([Fact("p", (name,), scope=at, evidence=evidence)])
        self.model[at, name] = union(self.model.get((at, name), ()), known)

    def merge(self, strategy: str) -> None:
        if "s" not in self.kb.scopes():
            return
        assert self.kb.merge_scope("s", None, strategy=strategy).conflicts == 0
        for (at, name), spans in list(self.model.items()):
            if at == "s":
                self.model[None, name] = union(self.model.get((None, name), ()), spans)

    def purge(self, id: str) -> None:
        self.kb.purge(PurgeTarget(episode=id))
        if id in self.episodes:
            for key, spans in list(self.model.items()):
                left = tuple(each for each in spans if each[0] != id)
                if spans and not left:
                    del self.model[key]
                else:
                    self.model[key] = left
        self.episodes.discard(id)

    def undo(self) -> None:
        if self.before is None:
            return
        seq, model = self.before
        self.before = None
        reason = None
        try:
            self.kb.undo(seq=seq)
            self.model = model
        except Conflict as error:
            reason = (error.details or {})["reason"]
        assert reason in (None, "nothing")
        assert model == self.model

    def restart(self, *, clean: bool) -> None:
        if not clean:
            self.node.system.snapshots._at_bytes = self.node.system.committer.bytes
        self.node.close()
        self.node = runtime(self.folder)

    def check(self) -> None:
        for at in SCOPES:
            rows = self.kb.query_rows("p", (X,), scope=at)
            stored = {
                (at, row["args"][0]): {
                    (each["episode"], each.get("start"), each.get("end"))
                    for each in row.get("evidence", ())
                }
                for row in rows
            }
            assert stored == {key: set(spans) for key, spans in self.model.items() if key[0] == at}
            assert all(row["metadata"] == {} for row in rows)
            self.check_index(at)
        for id in EPISODES:
            if id in self.episodes:
                supported = sum(any(s[0] == id for s in spans) for spans in self.model.values())
                assert self.kb.episode(id).total == supported
        assert {each.id for each in self.kb.episodes().episodes} == self.episodes

    def check_index(self, at: str | None) -> None:
        """The facts by episode, updated by each write, are those of the model."""
        with self.kb._reads(None) as (tenant, _):
            partition = tenant.partition(at)
            stored = None if partition is None else partition.get(Fact("p", ("a",)).schema)
            for id in EPISODES:
                rows = [] if stored is None else list(stored.supported_by(id))
                names = [tenant.engine.texts(array("I", row))[0] for row in rows]
                expected = {
                    name
                    for (scope, name), spans in self.model.items()
                    if scope == at and any(span[0] == id for span in spans)
                }
                assert sorted(names) == sorted(expected)


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from("abcdef"), st.sampled_from(["s", "t", None])),
        max_size=30,
    )
)
def test_the_next_episode_of_a_session_is_that_of_the_stored_order(
    made: list[tuple[bool, str, str | None]],
) -> None:
    below = StoredEpisodes()
    above = StoredEpisodes(below)
    for number, (add, id, session) in enumerate(made):
        changed = below if number < len(made) // 2 else above
        if add:
            if id not in above:
                changed.add(NewEpisode(id, "ann", id, session=session).dated(number))
        else:
            changed.remove([id])
        for episodes in (below, above):
            for episode in episodes:
                stored = [each for each in episodes if each.session == episode.session]
                after = stored[stored.index(episode) + 1 :]
                expected = after[0] if after and episode.session is not None else None
                assert episodes.following(episode) == expected


@settings(max_examples=60, deadline=None)
@given(steps)
def test_evidence_is_that_of_the_model(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checked = Checked(Path(folder))
        try:
            for step in steps:
                checked.step(step)
                checked.check()
        finally:
            checked.node.close()
