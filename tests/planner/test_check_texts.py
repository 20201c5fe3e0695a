"""Checks of texts: each code with its examples, the golden file, and each warning by itself."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner.test_diagnostics import golden_cases

from kbplanner.check.codes import BY_CODE, BY_NAME, CODES, code_of
from kbplanner.check.texts import NOTHING_STORED, StoredProgram, check_goal, check_texts
from kbplanner.compile.rules import RuleSet
from kbplanner.errors import InvalidInput, RuleSyntaxError
from kbplanner.ir.schema import RelationSchema
from kbplanner.passes.check import check_statements
from kbplanner.syntax import parser
from kbplanner.syntax.parser import parse_program, parse_rule
from kbplanner.syntax.statements import RuleStatement

PLANNER = Path(parser.__file__).parents[1]


def names(text: str, stored: StoredProgram | None = None) -> list[str]:
    return [each.name for each in check_texts([text], stored or StoredProgram())[0]]


def errors(text: str) -> list[tuple[int, int, str, str, str | None]]:
    return [
        (each.line, each.column, each.name, each.message, each.hint)
        for each in check_texts([text])[0]
        if each.severity == "error"
    ]


PRICE = {RelationSchema("price", 2): ("bf",)}

# ---- the table ----


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_the_examples_of_a_code(code):
    examples = code.examples
    if examples.kind == "script":
        pytest.skip("a script is checked in tests/core/test_check.py")
    if examples.kind == "stored":
        with pytest.raises(RuleSyntaxError) as caught:
            parse_program(examples.bad)
        assert [error["code"] for error in caught.value.errors] == [code.name]
        parse_program(examples.good)
        return
    stored = {
        "external": StoredProgram(external=PRICE),
        "sets": StoredProgram(sets={("may", 1): frozenset({"billing"})}),
    }.get(examples.kind, NOTHING_STORED)
    check = check_goal if examples.kind == "goal" else lambda text: check_texts([text], stored)[0]
    assert code.name in {each.name for each in check(examples.bad)}
    ignored = {"unknown-predicate"} if examples.kind == "goal" else set()
    assert [each.name for each in check(examples.good) if each.name not in ignored] == []


def test_codes_are_in_order_and_named_once():
    assert [code.code for code in CODES] == sorted(code.code for code in CODES)
    assert len(BY_CODE) == len(BY_NAME) == len(CODES)
    for code in CODES:
        assert code.explanation.endswith(".")
        assert code_of(code.code.lower()) is code_of(code.name) is code
    assert code_of("nothing") is None


def test_every_name_in_the_source_is_in_the_table():
    used = set()
    makers = {"Problem", "RuleWarning", "_add", "_at", "_placed", "add", "Recursion"}
    for folder in ("syntax", "passes", "check"):
        for path in (PLANNER / folder).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    function = node.func
                    name = getattr(function, "id", None) or getattr(function, "attr", "")
                    first = [arg for arg in node.args[:1] if isinstance(arg, ast.Constant)]
                    if name in makers and first and isinstance(first[0].value, str):
                        used.add(first[0].value)
    assert len(used) > 40
    assert used - {*BY_NAME} == set()


# ---- errors ----


@pytest.mark.parametrize(("text", "first_code"), [(text, code) for code, text, _ in golden_cases()])
def test_every_error_of_the_golden_file_has_a_code(text, first_code):
    with pytest.raises(RuleSyntaxError) as caught:
        check_statements(parse_program(text))
    expected = [
        (each["line"], each["column"], each["code"], each["message"], each["hint"])
        for each in caught.value.errors
    ]
    reported = errors(text)
    assert set(expected) <= set(reported)
    assert first_code in {name for _, _, name, _, _ in reported}
    assert all(BY_NAME[name].explanation for _, _, name, _, _ in reported)


def test_one_run_reports_mistakes_of_all_kinds():
    text = (
        "base(a).\np(?x, ?z) :- base(?x), not base(?w).\nq(a) r(b).\n"
        "total(sum(?n)) :- base(?n), total(?n).\n?- base(?x), ?y < 3.\n"
    )
    assert [(line, column, name) for line, column, name, _, _ in errors(text)] == [
        (2, 7, "unsafe"),
        (2, 33, "unsafe"),
        (3, 6, "syntax"),
        (4, 1, "recursive-aggregate"),
        (5, 14, "unsafe"),
    ]
    hints = [hint for _, _, name, _, hint in errors(text) if name == "recursive-aggregate"]
    assert hints == ["aggregate over a predicate whose rules do not depend on total/1"]


def test_two_cycles_through_aggregates_are_both_reported():
    text = "a(count(*)) :- a(?x).\nb(count(*)) :- b(?x).\nc(count(*)) :- b(?x)."
    assert [line for line, _, name, _, _ in errors(text) if name == "recursive-aggregate"] == [1, 2]


def test_a_statement_with_an_error_may_define_what_others_use():
    assert "unknown-predicate" not in names("ok(a).\nparent(ann bob).\nchild(?x) :- parent(?x, _).")


@given(st.text(alphabet='ab?xXY_,.:-()[]"~@% \n0<=not/*', max_size=60))
def test_no_text_makes_the_check_fail(text):
    for finding in (*check_texts([text])[0], *check_goal(text)):
        assert finding.line >= 1
        assert 1 <= finding.column < finding.end_column
        assert finding.code in BY_CODE


@given(st.lists(st.sampled_from([
    "p(a).", "q(?x) :- p(?x).", "q(?x) :- r(?y).", "r(count(?x)) :- q(?x).", "q(?x) :- r(?x).",
    "p(?x) :- q(?x), not p(?x).", "s(?y) :- s(?x), ?y = ?x + 1.", "p(a", "p(?x).", "?- p(?x).",
]), max_size=6))  # fmt: skip
def test_a_text_without_errors_can_be_stored(statements):

    text = "\n".join(statements)
    try:
        parsed = parse_program(text)
        check_statements(parsed)
        RuleSet(each.rule for each in parsed if isinstance(each, RuleStatement))
        refused = False
    except InvalidInput:
        refused = True
    assert bool(errors(text)) == refused


# ---- warnings ----


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("f(a).\np(?x) :- g(?x).\n?- p(?x).", "unknown-predicate"),
        ("parent(a, b).\np(?x) :- parent(?x).", "arity"),
        ("f(a).\np(?x) :- f(?x).\n?- f(?x).", "unused-predicate"),
        ("f(a).\np(?x) :- f(?x), p(?x), ?x != b.\n?- f(?x).", "unused-predicate"),
        ("f(a, b).\np(?x) :- f(?x, ?y).", "singleton"),
        ("f(a).\ng(a).\np(?x) :- f(?x), g(?y), f(?y).", "cross-product"),
        ("f(a).\np(?x) :- f(?x), ?x < ?x.", "never-holds"),
        ("f(a).\n?- f(?x), 1 > 2.", "never-holds"),
        ("f(7).\np(?id) :- f(?id), f(?other_id), ?id != ?other_id.", "id-comparison"),
        ("f(7).\np(?x) :- f(?x), ?x = 030.", "id-comparison"),
        ("f(7).\np(?x) :- f(?x), ?x = 3e1.", "id-comparison"),
        ("f(a).\np(?x) :- f(?x), ?x = 1, ?x = 2.", "never-fires"),
        ("f(a).\np(?x) :- f(?x), ?x > 5, 3 > ?x.", "never-fires"),
        ("f(a).\np(?x) :- f(?x), ?x >= 3, ?x < 3.", "never-fires"),
        ("e(a, b).\npath(?x, ?z) :- path(?x, ?y), e(?y, ?z).", "never-fires"),
        ("e(a).\np(?x) :- q(?x).\nq(?x) :- p(?x), e(?x).\nr(?x) :- q(?x).", "never-fires"),
        ("n(0).\nn(?y) :- n(?x), ?y = ?x + 1.", "endless"),
        ("m(a, b).\nw(?x) :- m(?x, ?y), not w(?y).", "negative-recursion"),
        ("f(a).\np(?x) :- f(?x).\np(?y) :- f(?y), ?y != b.", "shadowed-rule"),
        ("f(a).\np(?x) :- f(?x).\np(?z) :- f(?z).", "shadowed-rule"),
        ("f(a, b).\np(?x) :- f(?x, _).\np(a) :- f(a, b).", "shadowed-rule"),
        ("f(a).\np(?x) :- p(?x), f(?x).\np(a).", "shadowed-rule"),
        ("f(a).\np(X) :- f(X).", "looks-like-variable"),
    ],
)
def test_a_warning(text, name):
    assert name in names(text)


@pytest.mark.parametrize(
    "text",
    [
        "child(?x) :- parent(?x).",
        "f(a).\np(?x) :- f(?x).",
        "f(a, 1).\ns(sum(?n)) :- f(?x, ?n).",
        "f(a, b).\np(?x) :- f(?x, ?_y).",
        "f(a).\np(?x) :- f(?x), ?x >= 3, ?x <= 3.",
        "f(a).\np(?x) :- f(?x), ?x = 1, ?x !== 1.0.",
        "f(a).\np(?x) :- f(?x), ?x > a, ?x < 3.",
        "e(a, b).\npath(?x, ?y) :- e(?x, ?y).\npath(?x, ?z) :- path(?x, ?y), e(?y, ?z).",
        "e(a, b).\npath(a, b).\npath(?x, ?z) :- path(?x, ?y), e(?y, ?z).",
        "path(?x, ?z) :- path(?x, ?y), e(?y, ?z).",
        "f(a).\np(?x) :- f(?x), not g(?x).\ng(b).",
        "f(a, b).\np(?x) :- f(?x, b).\np(?x) :- f(?x, c).",
        "f(a, b).\np(?x) :- f(?x, ?x).\np(?x) :- f(?x, c).",
        "f(a).\np(?x) :- f(?x) [confidence=0.5].\np(?x) :- f(?x), ?x != b.",
        "f(a).\np(?x) :- f(?x) [scope=s].\np(?x) :- f(?x), ?x != b.",
        "f(a).\nn(count(?x)) :- f(?x).\nn(count(?x)) :- f(?x), ?x != b.",
        "f(a).\ng(a, b).\np(?x) :- f(?x), not g(?x, _).\np(?x) :- f(?x), not g(?x, b).",
    ],
)
def test_no_false_alarm(text):
    assert names(text) == []


def test_texts_are_checked_together():
    facts, rules = "parent(ann, bob).\n?- child(?x, ann).", "child(?x, ?y) :- parent(?y, ?x)."
    assert check_texts([facts, rules]) == [[], []]
    assert [each.name for each in check_texts([facts])[0]] == ["unknown-predicate"]
    assert [each.name for each in check_texts([facts, rules, rules])[2]] == ["shadowed-rule"]


INPUT = "@input age(who: text, years: integer).\n"


@pytest.mark.parametrize(
    ("texts", "lines"),
    [
        (["@strict.\n" + INPUT + "age(bob, twelve).\nage(ann, 12)."], [[3]]),
        ([INPUT + "age(bob, twelve)."], [[]]),
        (["@strict.", INPUT, "age(ann, 12).\n~age(bob, twelve)."], [[], [], [2]]),
        (["@strict.\n" + INPUT + 'test "t" { age(ann, x). ?- age(ann, _). }'], [[3]]),
        (["@strict.\n" + INPUT + "age(?x, twelve)."], [[]]),
        (["import memory.\nage(bob, twelve).", INPUT], [[], []]),
    ],
)
def test_types_of_strict_inputs(texts: list[str], lines: list[list[int]]):
    start = "the argument years of age/2 is of the type integer, found "
    mistyped = [
        [each.line for each in part if each.message.startswith(start)]
        for part in check_texts(texts)
    ]
    assert mistyped == lines


def test_what_is_stored_counts():
    stored = StoredProgram({"parent": {2}}, (parse_rule("@r: child(?x, ?y) :- parent(?y, ?x)"),))
    assert names("son(?x) :- parent(_, ?x), child(?x, _), male(?x).", stored) == [
        "unknown-predicate",
        "unknown-predicate",
    ]
    assert names("@r: child(?a, ?b) :- parent(?b, ?a).", stored) == ["shadowed-rule"]
    assert names("@r: kid(?a, ?b) :- parent(?b, ?a).", stored) == ["repeated-name"]


def test_many_similar_rules_are_checked_within_a_budget():
    body = ", ".join(f"f(?a{i}, ?a{i + 1})" for i in range(40))
    text = "f(a, b).\n" + "".join(f"p(?a0, c{n}) :- {body}, ?a0 != {n}.\n" for n in range(30))
    reversed_body = ", ".join(f"f(?a{i + 1}, ?a{i})" for i in range(40))
    text += f"p(?a0, ?a1) :- {reversed_body}, ?a0 != 1.\n"
    assert "syntax" not in names(text)


# ---- predicates of plugins ----


def with_price(text: str) -> list[tuple[int, int, str | None]]:
    findings = check_texts([text], StoredProgram({"item": {1}}, external=PRICE))[0]
    unbound = [each for each in findings if each.severity == "error"]
    assert {each.name for each in unbound} <= {"unbound-argument"}
    assert "unknown-predicate" not in {each.name for each in findings}
    return [(each.line, each.column, each.hint) for each in unbound]


def test_predicates_of_plugins_are_known():
    assert with_price("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.\n?- cheap(?x).") == []
    assert names("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.\nitem(a).") == [
        "unknown-predicate"
    ]
    assert names("near(a, b).\nnear(?x, ?z) :- near(?x, ?y), near(?y, ?z).\n?- near(a, ?x).") == []
    assert names("near(a, b, 3).\n?- near(?x, b, ?d).") == []
    assert names('?- near("tea", ?fact, ?score).') == []


def test_calls_that_nothing_binds_are_reported_where_they_are():
    hint = "use ?x in an atom that gives values"
    assert with_price("some(?p) :-\n  item(a),\n  price(?x, ?p).") == [(3, 9, hint)]
    text = "cheap(?x) :- price(?x, ?p), ?p < 10.\ntop(?n) :- cheap(?x), item(?n).\n?- cheap(?x)."
    assert with_price(text) == [(2, 18, hint), (3, 1, hint)]
    found = check_goal("price(?x, 3)", StoredProgram(external=PRICE))
    assert [(each.name, each.line, each.column) for each in found] == [("unbound-argument", 1, 1)]
    assert "argument 1 (?x)" in found[0].message


def test_rules_of_a_scope_are_checked_with_those_of_every_scope():
    """`top` calls nothing in the base, and in the scope a rule that needs its argument."""
    text = "cheap(?x) :- price(?x, ?p), ?p < 10 [scope=s].\ntop(?y) :- item(?y), cheap(?x)."
    assert [place[:2] for place in with_price(text)] == [(2, 28)]


# ---- several files ----


def messages(*texts: str, **options: Any) -> list[list[tuple[int, str, str]]]:
    return [
        [(each.line, each.name, each.message) for each in findings]
        for findings in check_texts(texts, **options)
    ]


def test_rules_of_other_files_are_named():
    files = {
        "a.kb": "p(?x) :- q(?x).\nr(?x) :- q(?x).\n",
        "b.kb": "p(?y) :- q(?y).\nr(?x) :- q(?x), s(?x).\n",
    }
    assert messages(*files.values(), names=list(files)) == [
        [],
        [
            (1, "shadowed-rule", "the rule is there twice: the rule in line 1 of a.kb is the same"),
            (
                2,
                "shadowed-rule",
                "the rule adds nothing: the rule in line 2 of a.kb has all of its conclusions",
            ),
        ],
    ]
    assert "of another file" in messages(*files.values())[1][0][2]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("p(?x), not p(?x)", "the rule never fires: p(?x) and not p(?x) contradict"),
        ("q(?x, ?y), r(?y), not q(?x, _)", "never fires: q(?x, ?y) and not q(?x, _) contradict"),
        ("~p(?x), not ~p(?x)", "never fires: ~p(?x) and not ~p(?x) contradict"),
        ("cat(?x), dog(?x)", "only where @disjoint is violated: cat(?x) and dog(?x) exclude"),
        ("owns(ann, ?x), owns(bob, ?x)", None),
        ("owns(?x, ann), r(?x), owns(?x, bob)", "fires only where @key is violated: owns(?x, ann)"),
        ("at(?x, 1, a), at(?x, 2, a)", "fires only where @key is violated: at(?x, 1, a)"),
        ("at(?x, 1, a), at(?x, 1.0, a)", None),
        ("at(?x, 1, a), at(?x, 1, b)", "fires only where @key is violated: at(?x, 1, a)"),
        ("owns(?x, ann), owns(?x, ?y)", None),
        ("p(?x), ~p(?x)", None),
        ("p(?x), not ~p(?x)", None),
        ("q(?x, _), not q(?x, ?x)", None),
        ("q(?x, ?y), not q(?y, ?x)", None),
        ("cat(?x), dog(?y), q(?x, ?y)", None),
        ("cat(?x), not dog(?x)", None),
    ],
)
def test_premises_that_exclude_each_other(body, reason):
    declared = "@disjoint cat, dog.\n@key owns(?x, _).\n@key at(?x, _, _).\n"
    (listed,) = [
        [message for _, name, message in findings if name == "never-fires"]
        for findings in messages(declared, f"h(?x) :- {body}.\n")[1:]
    ]
    assert len(listed) == (reason is not None)
    assert reason is None or reason in listed[0]


def test_a_constraint_of_a_scope_excludes_in_its_scope_only():
    declared = "@disjoint cat, dog [scope=s].\n"
    rules = "h(?x) :- cat(?x), dog(?x).\ng(?x) :- cat(?x), dog(?x) [scope=s].\n"
    assert [line for line, *_ in messages(declared, rules)[1]] == [2]


def test_a_definition_that_is_split_over_sets():
    access = "@module access.\ncan(?x) :- a(?x).\ncan(?x) :- b(?x).\nonly(?x) :- a(?x).\n"
    billing = "@module billing.\ncan(?x) :- c(?x).\n@disjoint a, c.\n"
    message = "the rules of can/1 are in the rule sets access and billing"
    split = (2, "split-definition", message)
    assert messages(access, billing) == [[split], [split]]
    same = billing.replace("billing", "access")
    assert messages(access, same) == [[], []]
    assert messages(access, billing.replace("@module billing.", "")) == [[], []]
    stored = StoredProgram(sets={("only", 1): frozenset({"other", "third"})})
    assert messages(access, stored=stored) == [
        [
            (
                4,
                "split-definition",
                "the rules of only/1 are in the rule sets access, other and third",
            )
        ]
    ]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("lives_in(lena, riga). lives_in(Lena, riga).", [("Lena", "lena", "1 of lives_in/2")]),
        ("lives_in(Lena, riga). lives_in(lena, riga).", [("lena", "Lena", "1 of lives_in/2")]),
        (
            "a(LENA). a(Lena). a(lena). a(lena).",
            [("LENA", "lena", "1 of a/1"), ("Lena", "lena", "1 of a/1")],
        ),
        ("a(x, Lena). a(y, lena). a(z, lena).", [("Lena", "lena", "2 of a/2")]),
        ("a(lena). b(?x) :- a(Lena), a(?x).", [("Lena", "lena", "1 of a/1")]),
        ("a(lena). b(?x) :- a(?x), not a(Lena).", [("Lena", "lena", "1 of a/1")]),
        ("a(lena). a(Lena, ?x) :- a(?x).", []),
        ("a(lena). ?- a(Lena).", [("Lena", "lena", "1 of a/1")]),
        ('a("new york"). a("New York").', [('"New York"', '"new york"', "1 of a/1")]),
        ('a(lena). test "t" { ?- a(Lena). }', [("Lena", "lena", "1 of a/1")]),
        # names in upper case that are always written so, and other arguments and predicates
        ("in(riga, LV). in(oslo, NO). in(bergen, NO). ?- in(?x, LV).", []),
        ("a(lena, Lena). b(Lena).", []),
        ("a(lena). ~a(lena). a(1). a(01).", []),
        ("a(lena). a(?Lena) :- b(?Lena).", []),
    ],
)
def test_constants_that_differ_only_in_case(text, reported):
    (findings,) = messages("@input b(x). @input a(x).\n" + text)
    listed = [message for _, name, message in findings if name == "constant-case"]
    assert listed == [
        f"{constant} differs only in case from {usual}, in line 2, as argument {where}"
        for constant, usual, where in reported
    ]


def test_constants_are_compared_in_all_texts_and_may_be_ignored():
    rare = "a(1).\n% kb: ignore K115\na(Lena).\na(TOM).\n"
    usual = "a(lena). a(lena). a(tom). a(tom)."
    first, second = messages(rare, usual)
    assert first == [
        (
            4,
            "constant-case",
            "TOM differs only in case from tom, in line 1 of another file, as argument 1 of a/1",
        )
    ]
    assert second == []
