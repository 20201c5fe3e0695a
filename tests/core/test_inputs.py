"""Declared inputs: names of arguments and a gloss, stored like phrases, and listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.http import serve_in_memory

import kbcore
from kbcore.config import Config
from kbcore.embed import EmbeddedKB
from kbcore.errors import InvalidInput, NotFound
from kbcore.language.vocabulary import vocabulary
from kbcore.node.opening import open_runtime
from kbplanner.authoring.formatter import format_text
from kbplanner.authoring.outline import outline_of
from kbplanner.check.texts import check_texts
from kbplanner.errors import RuleSyntaxError
from kbplanner.ir.inputs import TYPES, Input, input_problem
from kbplanner.syntax.parser import parse_declaration, parse_program, parse_stream
from kbplanner.syntax.printer import print_declaration

LIVES = '@input lives_in(person, city) "where a person lives now".'


@pytest.fixture
def kb():
    with kbcore.open_kb() as opened:
        yield opened


def test_an_input_is_listed_with_its_gloss(kb: EmbeddedKB) -> None:
    kb.tell(f"{LIVES} works_at(ann, acme).")
    works, lives = sorted(kb.predicates(), key=lambda each: -each.facts)
    assert (lives.predicate, lives.facts, lives.args, lives.gloss) == (
        "lives_in",
        0,
        ("person", "city"),
        "where a person lives now",
    )
    assert (works.args, works.gloss) == ((), None)


def test_a_later_declaration_replaces_an_earlier_one(kb: EmbeddedKB) -> None:
    kb.tell(f'{LIVES} @phrase lives_in/2 "{{0}} lives in {{1}}".')
    kb.tell("@input lives_in(who, place).")
    assert [each.text for each in kb.inputs()] == ["@input lives_in(who, place)."]
    assert len(kb.phrases()) == 1


def test_an_input_of_a_scope_counts_before_the_general_one(kb: EmbeddedKB) -> None:
    kb.tell(f'@input lives_in(pet, home) "where a pet lives" [scope=pets]. {LIVES}')
    glosses = {scope: kb.predicates(scope)[0].gloss for scope in (None, "pets", "other")}
    assert glosses == {
        None: "where a person lives now",
        "pets": "where a pet lives",
        "other": "where a person lives now",
    }


def test_inputs_are_retracted_by_id(kb: EmbeddedKB) -> None:
    kb.tell(LIVES)
    (stored,) = kb.inputs()
    assert stored.id == "@lives_in/2 input"
    assert kb.retract_rule(stored).text == LIVES
    assert kb.inputs() == []
    assert kb.predicates() == []
    with pytest.raises(NotFound):
        kb.retract_rule("@lives_in/2 input")


def test_scopes_fork_with_their_inputs_and_undo_brings_them_back(tmp_path: Path) -> None:
    with kbcore.open_kb(path=str(tmp_path)) as kb:
        kb.tell('@input p(x) "a p" [scope=s]. p(a) [scope=s].')
        kb.fork("copy", "s")
        assert [each.scope for each in kb.inputs("copy")] == ["copy"]
        kb.retract_rule("@p/1 input", scope="copy")
        assert kb.inputs("copy") == []
        kb.undo(kb.kb.context_summary().generation)
        assert [each.scope for each in kb.inputs("copy")] == ["copy"]


def test_a_dump_is_read_back(kb: EmbeddedKB, tmp_path: Path) -> None:
    kb.tell(f'{LIVES} @input raining "it rains now" [scope=s].')
    for form in ("kb", "jsonl"):
        path = tmp_path / f"dump.{form}"
        kb.dump(path)
        with kbcore.open_kb() as other:
            other.load(path)
            assert other.inputs() == kb.inputs()
            assert other.dump() == kb.dump()


@pytest.mark.parametrize("snapshot", [True, False])
def test_inputs_survive_a_restart(tmp_path: Path, snapshot: bool) -> None:
    config = Config(storage_dir=str(tmp_path), min_free_mb=0)
    with open_runtime(config) as runtime:
        runtime.knowledge_base().execute(f"{LIVES} @input p(x) [scope=s].")
        before = runtime.knowledge_base().inputs()
        if snapshot:
            runtime.snapshot()
    with open_runtime(config) as runtime:
        assert runtime.knowledge_base().inputs() == before
    assert len(before) == 2


def test_http_lists_and_retracts_inputs() -> None:
    with serve_in_memory() as served:
        served.client.post("/teach", {"text": LIVES})
        (listed,) = served.client.get("/rules").json["inputs"]
        assert listed == {
            "id": "@lives_in/2 input",
            "text": LIVES,
            "predicate": "lives_in",
            "arity": 2,
            "args": ["person", "city"],
            "gloss": "where a person lives now",
            "scope": None,
        }
        (row,) = served.client.get("/predicates").json["predicates"]
        assert (row["args"], row["gloss"]) == (["person", "city"], "where a person lives now")
        done = served.client.post("/retract/rule", {"id": listed["id"]})
        assert done.text == f"Input Retracted: {LIVES}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@input lives_in(?who, city).", "names of its arguments"),
        ("@input lives_in(person, person).", "two arguments are named person"),
        ('@input lives_in(person, "the city").', "names of its arguments"),
        ('@input lives_in(person) " x".', "without spaces at its ends"),
        ('@input lives_in(person) "x" [ttl=5].', "has no annotation"),
        ('@input lives_in(person) "x" "y".', "its gloss in quotes and a final"),
        ("@input ann = bob.", "names of its arguments"),
        ("@input contains(text, part).", "is a builtin"),
        ("@input p(a: float).", "there is no type float"),
        ("@input p(a: text, b:c:text).", "the name of an argument has no colon"),
        ("@input p(a: ).", 'expected an argument after ":"'),
        ("@input p(: text).", 'found ":"'),
        ("@input p(a: text) [strict=1].", "strict is true or false"),
        ("@strict.", "@strict stands at the head"),
        ("p(a: text).", 'found ":"'),
    ],
)
def test_wrong_declarations_have_a_position(text: str, message: str) -> None:
    with pytest.raises(RuleSyntaxError, match=r"line 2, column \d+") as raised:
        parse_program(f"p(a).\n{text}")
    assert message in raised.value.message


def test_a_rule_may_have_the_name_of_the_declaration() -> None:
    (statement,) = parse_program("@input: p(?x) :- q(?x).")
    assert statement.rule.name == "input"  # type: ignore[union-attr]


def test_an_input_that_was_not_parsed_is_checked(kb: EmbeddedKB) -> None:
    with pytest.raises(InvalidInput, match=r"the input p/1: an argument is named by a word"):
        kb.kb.assert_rules([Input("p", ("a b",))])


def test_editors_know_inputs() -> None:
    assert format_text('@ input lives_in( person ,city )"where"  .\n') == (
        '@input lives_in(person, city) "where".\n'
    )
    (name,) = outline_of(LIVES).occurrences
    assert (name.name, name.arity) == ("lives_in", 2)


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
    st.lists(st.text(max_size=6) | st.sampled_from(["a", "not", "mod", "min"]), max_size=3),
    st.none() | st.text(max_size=20),
    st.none() | st.from_regex(r"[a-z]{1,5}", fullmatch=True),
    st.lists(st.none() | st.sampled_from(list(TYPES)), min_size=3, max_size=3),
    st.booleans(),
)
def test_a_printed_input_parses_to_the_same(
    predicate: str,
    args: list[str],
    gloss: str | None,
    scope: str | None,
    types: list[str | None],
    strict: bool,
) -> None:
    own = tuple(types[: len(args)])
    declared = Input(predicate, tuple(args), gloss, scope, own if any(own) else (), strict)
    if input_problem(declared) is None:
        assert parse_declaration(print_declaration(declared)) == declared


def test_types_are_printed_and_listed(kb: EmbeddedKB) -> None:
    text = '@input stored(path: text, owner, size: number) "a file on a share".'
    kb.tell(text.replace(": ", ":"))
    assert [each.text for each in kb.inputs()] == [text]
    (row,) = kb.predicates()
    assert row.args == ("path", "owner", "size")
    assert row.types == ("text", None, "number")
    assert format_text(text + "\n") == text + "\n"


@pytest.mark.parametrize(
    ("of_type", "right", "wrong"),
    [
        ("text", ["a b", "7", ""], []),
        ("number", ["7", "-2.5", "1e9"], ["a", "", "7 "]),
        ("integer", ["7", "-12"], ["2.5", "seven"]),
        ("instant", ["2026-03-01", "2026-03-01T10:00:00Z"], ["2026-02-30", "now", "7"]),
        ("boolean", ["true", "false"], ["yes", "True"]),
    ],
)
def test_the_constants_of_each_type(of_type: str, right: list[str], wrong: list[str]) -> None:
    declared = Input("p", ("a",), types=(of_type,))
    assert [declared.mistyped([each]) for each in right] == [None] * len(right)
    assert [declared.mistyped([each]) for each in wrong] == [0] * len(wrong)


def test_strict_at_the_head_makes_inputs_strict() -> None:
    text = "@strict.\n@input p(a: number).\n@input q(b) [scope=s].\n"
    declared = [each.declaration for each in parse_program(text)]  # type: ignore[union-attr]
    assert [each.is_strict for each in declared] == [True, True]  # type: ignore[union-attr]
    assert [print_declaration(each) for each in declared] == [
        "@input p(a: number) [strict=true].",
        "@input q(b) [scope=s, strict=true].",
    ]
    chunked = parse_stream([*("% a comment\n" * 9000, "@strict.\n"), "% x\n" * 30000, text[9:]])
    assert [each.declaration for each in chunked] == declared  # type: ignore[union-attr]
    (rule,) = parse_program("@strict: p(?x) :- q(?x).")
    assert rule.rule.name == "strict"  # type: ignore[union-attr]


def test_inputs_without_facts_are_known(kb: EmbeddedKB) -> None:
    text = "@input stored(path, owner).\nown(?p) :- stored(?p, ?o), active(?o), sotred(?p, ?o).\n"
    findings = [(each.name, each.message, each.hint) for each in check_texts([text])[0]]
    assert findings == [
        ("unknown-predicate", "no facts or rules for active/1", None),
        ("unknown-predicate", "no facts or rules for sotred/2", "did you mean stored/2?"),
    ]
    assert kb.check("@input p(a).\nq(?x) :- p(?x).\n") == []
    kb.tell("@input p(a).")
    assert kb.check("q(?x) :- p(?x).\n") == []
    (warning,) = kb.check("q(?x) :- p(?x, ?x).\n")
    assert warning.message == "p has 2 arguments here and 1 elsewhere"
    assert kb.teach("@input r(a).\nt(?x) :- r(?x), p(?x).").warnings == ()
    assert kb.kb.unknown_predicates([("p", 1), ("sp", 1)])[0].signature == "sp/1"


def test_models_see_names_and_types_of_arguments(kb: EmbeddedKB) -> None:
    kb.tell('@input stored(path: text, owner, size: number) "a file on a share". other(a).')
    tenant = kb.kb._read_tenant()
    words = vocabulary(tenant, tenant.partitions(None), None, "files", kb.kb._new_budget(None))
    meaning = " (path: text, owner, size: number): a file on a share"
    assert words.meanings["stored", 3] == meaning
