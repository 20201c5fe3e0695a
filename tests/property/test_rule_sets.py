"""Random deployments, rollbacks and writes by hand equal a model of owners, across restarts."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.runtimes import runtime

from kbcore import open_kb
from kbcore.errors import Conflict, NotFound
from kbcore.language.dump import DUMP_FORMATS
from kbcore.language.dumped_sets import END, HEAD, DumpText
from kbcore.node.knowledge_base import KnowledgeBase
from kbcore.node.runtime import Runtime

Key = tuple[str, str]

STATEMENTS: dict[Key, tuple[str, ...]] = {
    ("fact", "p(a)"): ("p(a).",),
    ("fact", "p(b)"): ("p(b).",),
    ("fact", "~p(b)"): ("~p(b).",),
    ("rule", "q"): ("q(?x) :- p(?x).",),
    ("rule", "r"): ("r(?y) :- q(?y), not s(?y).",),
    ("rule", "named"): ("@named: s(?x) :- p(?x), ?x != a.", "@named: s(?x) :- p(?x), ?x != b."),
    ("declaration", "@p/1"): ('@phrase p/1 "{0} is p".', '@phrase p/1 "p is {0}".'),
}
"""The statements of the test by key; a key with two texts has one of them at a time."""

KEYS = sorted(STATEMENTS)
NAMES = ("a", "b", "c")

BLOCK = f'{HEAD}{{"name":"a","version":2}}\np(a).\nq(b).\n{END}\n'
PIECES = (BLOCK, "r(a).\n", f"r(b). {HEAD}x\n", HEAD[:5] + "\n", "\n", f"{END}\n")
"""Pieces of a dump, each with whole lines; a head that begins no line is a comment."""

TIME = re.compile(r'"deployedAt":"[^"]*"')

Content = dict[Key, int]


@dataclass
class Model:
    """Statements stored by hand, and the versions of each rule set."""

    hand: Content = field(default_factory=dict)
    sets: dict[str, Content] = field(default_factory=dict)
    versions: dict[str, list[Content]] = field(default_factory=dict)

    def stored(self) -> Content:
        content = dict(self.hand)
        for each in self.sets.values():
            content.update(each)
        return content

    def others(self, key: Key, apart: str | None) -> list[Content]:
        sides = [(None, self.hand), *self.sets.items()]
        return [each for name, each in sides if name != apart and key in each]

    def deploy(self, name: str, content: Content) -> str:
        """Deploy, and return "conflict", "nothing" or "done"."""
        before = self.sets.get(name, {})
        if before == content:
            return "nothing"
        for key, value in content.items():
            if key in before and before[key] != value and self.others(key, name):
                return "conflict"
            others = self.others(key, name)
            if key not in before and any(each[key] != value for each in others):
                if key[0] == "rule" or any(
                    each[key] != value for each in others if each is not self.hand
                ):
                    return "conflict"
                del self.hand[key]
        self.sets[name] = dict(content)
        self.versions.setdefault(name, []).append(dict(content))
        return "done"

    def store(self, key: Key, value: int) -> bool:
        """Store by hand; return False if that is refused."""
        known = self.stored().get(key)
        if known not in (None, value):
            if key[0] == "rule":
                return False
            for each in self.sets.values():
                each.pop(key, None)
        self.hand[key] = value
        return True


Step = tuple[str, str, Content]

content = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 1), min_size=1, max_size=5).map(
    lambda chosen: {key: value % len(STATEMENTS[key]) for key, value in chosen.items()}
)
step = st.tuples(
    st.sampled_from(
        ("deploy", "deploy", "deploy", "rollback", "store", "store", "remove", "remove", "restart")
    ),
    st.sampled_from(NAMES),
    content,
)


def text_of(chosen: Content) -> str:
    return "\n".join(STATEMENTS[key][value] for key, value in chosen.items())


def stored_in(kb: KnowledgeBase) -> set[str]:
    """Return the texts of all that is stored."""
    contents = kb.kb.contents()
    texts = {("~" if row["negated"] else "") + f"p({row['args'][0]})." for row in contents.facts}
    for rule in contents.rules:
        texts.add(f"@{rule.id}: {rule.text}" if rule.id == "named" else rule.text)
    return texts | {declared.text for declared in contents.declarations}


def canonical(chosen: Content) -> set[str]:
    return {STATEMENTS[key][value] for key, value in chosen.items()}


def write_by_hand(kb: KnowledgeBase, model: Model, key: Key, value: int) -> None:
    try:
        kb.teach(STATEMENTS[key][value])
        stored = True
    except Conflict:
        stored = False
    assert stored is model.store(key, value)


def remove_by_hand(kb: KnowledgeBase, model: Model, key: Key) -> None:
    owned = any(key in each for each in model.sets.values())
    if key[0] == "fact":
        name = key[1]
        gone = kb.kb.retract_fact(
            "p", [name.removeprefix("~")[2]], positive=not name.startswith("~")
        )
        assert gone.retracted == (key in model.hand and not owned)
        model.hand.pop(key, None)
        return
    known = model.stored().get(key)
    id = key[1] if key[0] == "declaration" else STATEMENTS[key][known or 0].rstrip(".")
    if key[1] == "named":
        id = "named"
    try:
        kb.retract_rule(id)
        outcome = "removed"
    except NotFound:
        outcome = "unknown"
    except Conflict:
        outcome = "owned"
    expected = "removed" if key in model.hand else "owned" if owned else "unknown"
    assert outcome == expected
    model.hand.pop(key, None)


def run_step(kb: KnowledgeBase, model: Model, kind: str, name: str, chosen: Content) -> None:
    key, value = next(iter(chosen.items()))
    if kind == "deploy":
        versions = len(model.versions.get(name, ()))
        expected = model.deploy(name, chosen)
        dry = None
        try:
            dry = kb.deploy(text_of(chosen), name, dry_run=True)
            deployed = kb.deploy(text_of(chosen), name, expected_version=versions)
        except Conflict:
            assert expected == "conflict"
            return
        assert expected == ("done" if deployed.commit else "nothing")
        assert (dry.added, dry.changed, dry.removed, dry.facts, dry.version) == (
            deployed.added,
            deployed.changed,
            deployed.removed,
            deployed.facts,
            deployed.version,
        )
        assert deployed.version == versions + (expected == "done")
    elif kind == "rollback" and len(model.versions.get(name, ())) > 1:
        target = dict(model.versions[name][-2])
        expected = model.deploy(name, target)
        try:
            deployed = kb.rollback(name)
            assert expected == ("done" if deployed.commit else "nothing")
        except Conflict:
            assert expected == "conflict"
    elif kind == "store":
        write_by_hand(kb, model, key, value)
    elif kind == "remove":
        remove_by_hand(kb, model, key)


def check(kb: KnowledgeBase, model: Model) -> None:
    assert stored_in(kb) == canonical(model.stored())
    assert [(each.name, each.version) for each in kb.rule_sets()] == [
        (name, len(model.versions[name])) for name in sorted(model.versions)
    ]


def stop_without_snapshot(node: Runtime) -> None:
    """Let the next start replay the log, as after a kill."""
    node.system.committer.bytes = 0
    node.system.snapshots._at_bytes = 0


@given(st.lists(step, min_size=3, max_size=25), st.booleans())
@examples(200)
def test_deployments_equal_a_model_of_owners(steps: list[Step], snapshots: bool) -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        node = runtime(Path(folder))
        try:
            kb = node.open()
            for kind, name, chosen in steps:
                if kind == "restart":
                    if not snapshots:
                        stop_without_snapshot(node)
                    node.close()
                    node = runtime(Path(folder))
                    kb = node.open()
                else:
                    run_step(kb, model, kind, name, chosen)
                check(kb, model)
        finally:
            node.close()


def owners_in(kb: KnowledgeBase) -> dict[tuple[str | None, str], tuple[int, list[str], set[str]]]:
    """Return version, statements and those stored by hand too, of each rule set with any."""
    sets = (kb.rule_set(each.name, scope=each.scope) for each in kb.rule_sets())
    return {
        (each.scope, each.name): (each.version, sorted(each.statements), set(each.by_hand))
        for each in sets
        if each.statements
    }


def lines_of(dump: str) -> list[str]:
    """Return the lines of a dump without times, sorted: a rule that a rule set contains and that
    was stored by hand before others is loaded with the rule set, before all of them.
    """
    return sorted(TIME.sub("", dump).splitlines())


@given(st.lists(step, min_size=3, max_size=15), st.sampled_from(DUMP_FORMATS))
@examples(60)
def test_a_dump_has_the_rule_sets_with_versions_and_owners(
    steps: list[Step], dump_format: str
) -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as folder, open_kb() as kb, open_kb() as copy:
        for kind, name, chosen in steps:
            run_step(kb, model, kind, name, chosen)
        file = Path(folder, f"dump.{dump_format}")
        kb.dump(file)
        copy.load(file)
        assert (stored_in(copy), owners_in(copy)) == (stored_in(kb), owners_in(kb))
        assert lines_of(copy.dump(format=dump_format)) == lines_of(file.read_text())
        copy.load(file)
        assert owners_in(copy) == owners_in(kb)


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.integers(1, 40))
@examples(200)
def test_the_parts_of_a_dump_do_not_depend_on_where_it_is_cut(text: str, size: int) -> None:
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    expected = text.split(BLOCK)
    parts, blocks = [""], []
    source = DumpText(chunks)
    while True:
        line = parts[0].count("\n") + sum(BLOCK.count("\n") for _ in blocks)
        parts.append("".join(source.statements()).removeprefix("\n" * line))
        parts[0] += parts[-1]
        block = source.rule_set(None)
        if block is None:
            break
        blocks.append((block.name, block.version, block.text))
    assert parts[1:] == expected
    assert blocks == [("a", 2, "p(a).\nq(b).\n")] * (len(expected) - 1)
