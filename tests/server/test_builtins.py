"""Computed values in rules, over HTTP."""

from __future__ import annotations

import pytest
from support.http import Client, error_of


def ask(client: Client, rules: str, predicate: str, *args: object) -> list[list[str]]:
    assert client.post("/teach", {"text": rules}).status_code == 200
    return client.ask(predicate, *args)


def test_numbers_compare_by_value_and_match_by_text(client: Client) -> None:
    client.post("/teach", {"text": 'age(ann, "30"). age(bob, "30.0"). age(cy, 17). age(dan, old).'})
    assert client.ask("age", "?x", "30") == [["ann", "30"]]
    assert ask(client, "adult(?x) :- age(?x, ?n), ?n >= 18.", "adult", "?x") == [["ann"], ["bob"]]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("?x + ?y * 2", "13"),
        ("(?x + ?y) * 2", "20"),
        ("?x / ?y", "2.3333333333333335"),
        ("(?x - 1) / ?y", "2"),
        ("?x div ?y", "2"),
        ("(0 - ?x) div ?y", "-3"),
        ("(0 - ?x) mod ?y", "2"),
        ("abs(?y - ?x)", "4"),
        ("min(?x, ?y, 5)", "3"),
        ("max(?x, ?y, 5)", "7"),
        ("round(?x / ?y)", "2"),
        ("round(?x / ?y, 2)", "2.33"),
        ("?x * 1.5 - 0.5", "10"),
        ("?x * 1000000 * 1000000", "7000000000000"),
    ],
)
def test_arithmetic(client: Client, expression: str, value: str) -> None:
    rules = f"p(7, 3). z(?z) :- p(?x, ?y), ?z = {expression}."
    assert ask(client, rules, "z", "?z") == [[value]]
    assert client.ask("z", value) == [[value]]


@pytest.mark.parametrize(
    "expression",
    [
        "?x / 0",
        "?x mod 0",
        "?x div 0.0",
        "?x + word",
        "?x * 9223372036854775807",
        "1e308 * ?x * 10",
    ],
)
def test_a_literal_without_a_value_fails(client: Client, expression: str) -> None:
    rules = f"p(7). p(word). z(?z) :- p(?x), ?z = {expression}. z(ok) :- p(?x)."
    assert ask(client, rules, "z", "?z") == [["ok"]]


def test_computed_values_join_and_are_tested(client: Client) -> None:
    facts = "at(a, 1). at(b, 2). at(c, 3.0). at(d, 4). "
    rules = facts + "next(?x, ?y) :- at(?x, ?n), ?m = ?n + 1, at(?y, ?m)."
    assert ask(client, rules, "next", "?x", "?y") == [["a", "b"], ["b", "c"], ["c", "d"]]
    assert client.ask("next", "b", "?y") == [["b", "c"]]
    assert client.ask("next", "?x", "d") == [["c", "d"]]


def test_the_json_form(client: Client) -> None:
    rule = {
        "head": {"predicate": "next", "args": ["?x", "?z"]},
        "body": [
            {"predicate": "=", "args": ["?z", "?x + 1"]},
            {"predicate": "p", "args": ["?x"]},
            {"predicate": "<", "args": ["?x", "18"], "negated": True},
        ],
    }
    assert (
        client.post("/teach", rule).text
        == "Rule Asserted: next(?x, ?z) :- ?z = ?x + 1, p(?x), ?x >= 18."
    )
    client.post("/teach", {"text": "p(17). p(18)."})
    assert client.ask("next", "?x", "?z") == [["18", "19"]]


def test_counting_up_ends_at_a_bound_or_the_budget(client: Client) -> None:
    text = "n(0). n(?y) :- n(?x), ?x < 5, ?y = ?x + 1. m(0). m(?y) :- m(?x), ?y = ?x + 1."
    assert ask(client, text, "n", "?x") == [[str(i)] for i in range(6)]
    error = client.post("/ask", {"predicate": "m", "args": ["?x"], "maxRows": 100_000})
    details = error_of(error, 422, "BUDGET_EXCEEDED")["details"]
    assert set(details) == {"limit", "value", "rule"}


# ---- aggregates ----

ORDERS = "order(c, o1, 5). order(c, o2, 5). order(d, o3, 1.5). order(d, o4, 2). order(d, o5, later). order(e, o6, never). "


def test_a_sum_counts_each_binding(client: Client) -> None:
    rules = "order(c, o1, 5). order(c, o2, 5). total(?c, sum(?v)) :- order(?c, ?o, ?v)."
    assert ask(client, rules, "total", "?c", "?s") == [["c", "10"]]
    assert client.ask("total", "c", "10") == [["c", "10"]]
    assert client.ask("total", "c", "10.0") == []
    assert client.ask("total", "missing", "?s") == []


@pytest.mark.parametrize(
    ("head", "rows"),
    [
        ("t(?c, sum(?v))", [["c", "10"], ["d", "3.5"], ["e", "0"]]),
        ("t(?c, count(*))", [["c", "2"], ["d", "3"], ["e", "1"]]),
        ("t(?c, count(?v))", [["c", "1"], ["d", "3"], ["e", "1"]]),
        ("t(?c, min(?v))", [["c", "5"], ["d", "1.5"]]),
        ("t(?c, max(?v))", [["c", "5"], ["d", "2"]]),
        ("t(?c, avg(?v))", [["c", "5"], ["d", "1.75"]]),
        ("t(count(*))", [["6"]]),
        ("t(count(?c), sum(?v))", [["3", "13.5"]]),
        ("t(count(?c), count(?o), ?c)", [["1", "1", "e"], ["1", "2", "c"], ["1", "3", "d"]]),
        (
            "t(sum(?v), ?c, ?c, x)",
            [["0", "e", "e", "x"], ["3.5", "d", "d", "x"], ["10", "c", "c", "x"]],
        ),
        ("~t(?c, max(?o))", []),
    ],
)
def test_aggregates(client: Client, head: str, rows: list[list[str]]) -> None:
    variables = [f"?a{i}" for i in range(head.count(",") + 1)]
    assert ask(client, f"{ORDERS} {head} :- order(?c, ?o, ?v).", "t", *variables) == rows


def test_aggregates_over_derived_facts(client: Client) -> None:
    rules = """
        reach(?x, ?y) :- edge(?x, ?y).   reach(?x, ?z) :- edge(?x, ?y), reach(?y, ?z).
        edge(a, b). edge(b, c). edge(c, b). edge(d, a).
        size(?x, count(?y)) :- reach(?x, ?y).
        best(max(?n)) :- size(_, ?n).
        widest(?x) :- best(?n), size(?x, ?n).
        narrow(?x) :- edge(?x, _), not widest(?x).
    """
    assert ask(client, rules, "size", "?x", "?n") == [
        ["a", "2"],
        ["b", "2"],
        ["c", "2"],
        ["d", "3"],
    ]
    assert client.ask("size", "a", "?n") == [["a", "2"]]
    assert client.ask("widest", "?x") == [["d"]]
    assert client.ask("narrow", "?x") == [["a"], ["b"], ["c"]]
    client.tell("edge", "a", "e")
    assert client.ask("size", "a", "?n") == [["a", "3"]]
    client.post("/retract", {"predicate": "edge", "args": ["b", "c"]})
    assert client.ask("size", "?x", "?n") == [["a", "2"], ["c", "1"], ["d", "3"]]


def test_an_aggregate_in_json(client: Client) -> None:
    rule = {
        "head": {"predicate": "total", "args": ["?c", "sum(?v)"]},
        "body": [{"predicate": "order", "args": ["?c", "?o", "?v"]}],
    }
    assert (
        client.post("/assert/rule", rule).text
        == "Rule Asserted: total(?c, sum(?v)) :- order(?c, ?o, ?v)."
    )


def test_recursion_through_an_aggregate_is_refused(client: Client) -> None:
    text = "share(?x, ?y, ?n) :- owns(?x, ?y, ?n). share(?x, ?z, ?n) :- all(?x, ?y, ?s), ?s > 50, share(?y, ?z, ?n). "
    text += "all(?x, ?y, sum(?n)) :- share(?x, ?y, ?n)."
    details = error_of(client.post("/teach", {"text": text}), 400, "VALIDATION_ERROR")["details"]
    assert details == {"kind": "unstratified", "cycle": ["all/3", "share/3"]}
    assert client.get("/rules").get_json() == {"rules": []}


def test_a_retraction_below_an_aggregate_changes_its_value(client: Client) -> None:
    client.post("/teach", {"text": ORDERS + "total(?c, sum(?v)) :- order(?c, ?o, ?v)."})
    wanted = {"Prefer": "return=representation"}
    reply = client.post(
        "/retract", {"predicate": "order", "args": ["c", "o1", "5"]}, wanted
    ).get_json()
    assert [row["args"] for row in reply["cascadedAtoms"]] == [["c", "10"]]
    assert (reply["cascaded"], reply["newlyDerivable"], reply["truncated"]) == (1, 1, False)
    assert client.ask("total", "c", "?s") == [["c", "5"]]


# ---- strings ----

NAMES = 'name(a, "Ann", "Lee"). name(b, "ÅSA", "Öberg"). name(c, "straße", "İx"). '


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ('?z = concat(?f, " ", ?l)', [["a", "Ann Lee"], ["b", "ÅSA Öberg"], ["c", "straße İx"]]),
        ("concat(?f, ?l, ?z)", [["a", "AnnLee"], ["b", "ÅSAÖberg"], ["c", "straßeİx"]]),
        ("?z = lower(?f)", [["a", "ann"], ["b", "åsa"], ["c", "straße"]]),
        ("lower(?l, ?z)", [["a", "lee"], ["b", "öberg"], ["c", "ix"]]),
        ("upper(?f, ?z)", [["a", "ANN"], ["b", "ÅSA"], ["c", "STRAßE"]]),
        ("length(?f, ?z)", [["a", "3"], ["b", "3"], ["c", "6"]]),
        ("?z = length(concat(?f, ?l)) * 2", [["a", "12"], ["b", "16"], ["c", "16"]]),
        ("length(?f, 3), ?z = ok", [["a", "ok"], ["b", "ok"]]),
        ("not length(?f, 3), ?z = ok", [["c", "ok"]]),
        ('?z = trim(concat(" ", ?f, "\\t"))', [["a", "Ann"], ["b", "ÅSA"], ["c", "straße"]]),
        ("?z = substring(?f, 1, 2)", [["a", "nn"], ["b", "SA"], ["c", "tr"]]),
        ("?z = substring(?f, length(?f) - 1)", [["a", "n"], ["b", "A"], ["c", "e"]]),
        ('?z = replace(?l, "e", "")', [["a", "L"], ["b", "Öbrg"], ["c", "İx"]]),
        (
            '?z = join("|", ?x, ?f, ?l)',
            [["a", "a|Ann|Lee"], ["b", "b|ÅSA|Öberg"], ["c", "c|straße|İx"]],
        ),
        ('?z = capture(?l, "(.)e+", 1)', [["a", "L"], ["b", "b"]]),
        ('"n" = capture(?f, "A(n)", 1), ?z = ok', [["a", "ok"]]),
        ("starts_with(?f, A), ?z = ok", [["a", "ok"]]),
        ("ends_with(lower(?l), rg), ?z = ok", [["b", "ok"]]),
        ("contains(?f, ?part), part(?part), ?z = ok", [["a", "ok"], ["c", "ok"]]),
        ("not contains(?f, n), ?z = ok", [["b", "ok"], ["c", "ok"]]),
        ('matches(?f, "^[A-Z]n+$"), ?z = ok', [["a", "ok"]]),
        ('not matches(?f, "a"), ?z = ok', [["a", "ok"], ["b", "ok"]]),
    ],
)
def test_strings(client: Client, body: str, rows: list[list[str]]) -> None:
    rules = f"{NAMES} part(nn). part(aß). z(?x, ?z) :- name(?x, ?f, ?l), {body}."
    assert ask(client, rules, "z", "?x", "?z") == rows


def test_strings_in_json(client: Client) -> None:
    body = [
        {"predicate": "name", "args": ["?x", "?f", "?l"]},
        {"builtin": "matches", "args": ["?f", "n?n$"]},
        {"builtin": "concat", "args": ["?f", "-", "?l", "?z"]},
        {"builtin": "contains", "args": ["lower(?f)", "x"], "negated": True},
    ]
    response = client.post("/teach", {"head": {"predicate": "z", "args": ["?z"]}, "body": body})
    items = [
        "name(?x, ?f, ?l)",
        'matches(?f, "n?n$")',
        '?z = concat(?f, "-", ?l)',
        "not contains(lower(?f), x)",
    ]
    assert response.text == f"Rule Asserted: z(?z) :- {', '.join(items)}."
    client.post("/teach", {"text": NAMES})
    assert client.ask("z", "?z") == [["Ann-Lee"]]


def test_functions_of_texts_in_json(client: Client) -> None:
    body = [
        {"predicate": "name", "args": ["?x", "?f", "?l"]},
        {"builtin": "capture", "args": ["?l", "(e?)rg$", 1, "?c"]},
        {"builtin": "join", "args": ["-", "?f", "?c", "?j"]},
        {"builtin": "substring", "args": ["upper(?j)", 0, 5, "?z"]},
        {"builtin": "trim", "args": ["?z", "x"], "negated": True},
    ]
    response = client.post("/teach", {"head": {"predicate": "z", "args": ["?z"]}, "body": body})
    items = [
        "name(?x, ?f, ?l)",
        '?c = capture(?l, "(e?)rg$", 1)',
        '?j = join("-", ?f, ?c)',
        "?z = substring(upper(?j), 0, 5)",
        "x != trim(?z)",
    ]
    assert response.text == f"Rule Asserted: z(?z) :- {', '.join(items)}."
    client.post("/teach", {"text": NAMES})
    assert client.ask("z", "?z") == [["ÅSA-E"]]
    error = client.post(
        "/teach",
        {
            "head": {"predicate": "y", "args": ["?z"]},
            "body": [body[0], {"builtin": "join", "args": ["?l", "?z"]}],
        },
    )
    assert "takes its value last" in error_of(error, 400, "VALIDATION_ERROR")["message"]


def test_functions_of_texts_in_proofs_and_plans(client: Client) -> None:
    rules = 'z(?x, ?z) :- name(?x, ?f, ?l), ?z = capture(trim(?l), "^(.)e+", 1).'
    assert ask(client, NAMES + rules, "z", "?x", "?z") == [["a", "L"]]
    goal = {"predicate": "z", "args": ["a", "L"]}
    proof = client.post("/ask", {**goal, "withProof": True}).get_json()[0]["proof"]
    texts = [node["step"].get("text") for node in proof["step"]["bodyProofs"]]
    assert 'L = capture(trim(Lee), "^(.)e+", 1)' in texts
    plan = client.post("/explain", goal).get_data(as_text=True)
    assert "capture" in plan
    assert "trim" in plan
    goal = {"predicate": "z", "args": ["b", "?z"], "whyNot": True}
    why = client.post("/explain", goal).get_data(as_text=True)
    assert "capture" in why


@pytest.mark.parametrize(
    "pattern", ["(", "a{2", "*a", "[b-a]", "[a", "\\\\1", "(?=a)", "a)", "(a{999}){999}", "(" * 70]
)
def test_an_invalid_pattern_is_refused(client: Client, pattern: str) -> None:
    details = error_of(
        client.post("/teach", {"text": f'p(?x) :- q(?x), matches(?x, "{pattern}").'}),
        400,
        "VALIDATION_ERROR",
    )
    assert "is not a valid regular expression" in details["message"]


def test_a_pattern_is_a_constant(client: Client) -> None:
    error_of(
        client.post("/teach", {"text": "p(?x) :- q(?x, ?y), matches(?x, ?y)."}),
        400,
        "VALIDATION_ERROR",
    )


@pytest.mark.parametrize(
    "name", ["=", "<", "+", "div", "matches", "concat", "lower", "upper", "length", "contains"]
)
def test_unquoted_builtin_names_are_not_predicates_in_text(client: Client, name: str) -> None:
    for text in (f"{name}(a, b).", f"{name}(?x, ?y) :- p(?x, ?y)."):
        error_of(client.post("/teach", {"text": text}), 400, "VALIDATION_ERROR")
    error_of(client.post("/tell", {"text": f"{name}(a, b)"}), 400, "VALIDATION_ERROR")


def test_a_text_over_the_length_limit_is_no_value(client: Client) -> None:
    text = "x" * 40_000
    client.tell("p", text)
    client.tell("p", "ab")
    assert ask(client, "z(?n) :- p(?x), length(concat(?x, ?x), ?n).", "z", "?n") == [["4"]]


# ---- what the answer reports ----


@pytest.mark.parametrize("path", ["/ask", "/infer"])
def test_literals_without_a_value_are_counted(client: Client, path: str) -> None:
    text = (
        "p(1). p(0). p(x). half(?z) :- p(?x), ?z = 8 / ?x. q(?x) :- p(?x). total(sum(?x)) :- p(?x)."
    )
    client.post("/teach", {"text": text})
    for _ in range(2):  # from a goal table the second time
        response = client.post(path, {"predicate": "half", "args": ["?z"]})
        assert [row["args"] for row in response.get_json()] == [["8"]]
        assert response.headers["X-Answer-Warnings"] == "2"
    assert (
        client.post(path, {"predicate": "total", "args": ["?z"]}).headers["X-Answer-Warnings"]
        == "1"
    )
    assert "X-Answer-Warnings" not in client.post(path, {"predicate": "q", "args": ["?x"]}).headers


def test_recursion_through_a_computed_value_is_accepted_with_a_warning(client: Client) -> None:
    response = client.post("/teach", {"text": "n(?x) :- start(?x). n(?y) :- n(?x), ?y = ?x + 1."})
    assert response.status_code == 200
    assert response.headers["X-Rule-Warnings"].startswith(
        "n/1 recurses through a computed value and may not end"
    )
    for text in (
        "m(?y) :- n(?x), ?y = ?x + 1.",
        "k(?x) :- k(?x), l(?x), ?x + 1 < 3.",
        "n(?x) :- l(?x).",
    ):
        assert (
            "X-Rule-Warnings"
            not in client.post("/teach", {"text": text + " start(z). l(1). k(1)."}).headers
        )
    client.tell("start", 5)
    error = client.post("/ask", {"predicate": "m", "args": ["?x"], "maxRows": 100_000})
    details = error_of(error, 422, "BUDGET_EXCEEDED")["details"]
    assert details["rule"] == "n(?y) :- n(?x), ?y = ?x + 1."
    assert client.ask("l", "?x") == [["1"]]


def test_a_goal_can_ask_for_a_value_that_is_not_stored(client: Client) -> None:
    text = "p(7). next(?z) :- p(?x), ?z = ?x + 1. total(sum(?x)) :- p(?x). p(4)."
    client.post("/teach", {"text": text})
    assert client.ask("next", "8") == [["8"]]
    assert client.ask("total", "11") == [["11"]]
    assert client.ask("next", "9") == []


def test_proofs_of_computed_values(client: Client) -> None:
    client.post(
        "/teach",
        {
            "text": "p(7). next(?z) :- p(?x), ?m = ?x + 1, ?z = ?m * 2, ?m >= 8. total(sum(?x)) :- p(?x)."
        },
    )
    (found,) = client.post(
        "/ask", {"predicate": "next", "args": ["?z"], "withProof": True}
    ).get_json()
    step = found["proof"]["step"]
    assert found["proof"]["substitution"] == {"?z": "16", "?x": "7", "?m": "8"}
    assert [part["step"]["type"] for part in step["bodyProofs"]] == [
        "fact_match",
        "builtin",
        "builtin",
        "builtin",
    ]
    assert [part["step"]["text"] for part in step["bodyProofs"][1:]] == [
        "8 = 7 + 1",
        "16 = 8 * 2",
        "8 >= 8",
    ]
    (found,) = client.post(
        "/ask", {"predicate": "total", "args": ["?z"], "withProof": True}
    ).get_json()
    step = found["proof"]["step"]
    assert (step["type"], step["text"], step["rows"], step["inputs"]) == (
        "aggregate",
        "sum(?x) = 7",
        1,
        [{"?x": "7"}],
    )
    assert [part["goal"]["args"] for part in step["bodyProofs"]] == [["7"]]
    body = {"predicate": "total", "args": ["?z"], "withProof": True, "proofFormat": "dag"}
    (found,) = client.post("/ask", body).get_json()
    nodes = found["proof"]["nodes"].values()
    assert [(node["kind"], node["depth"]) for node in nodes] == [("aggregate", 1), ("asserted", 0)]
    told = client.post("/explain", {"text": "total(?x)"}).data.decode().splitlines()
    assert told[0].startswith("total(7)  by total(sum(?x)) :- p(?x).  (sum(?x) = 7 over 1)")
    assert told[1:] == ["  p(7)  stored"]


def test_an_aggregate_changes_with_more_facts(client: Client) -> None:
    client.post(
        "/teach", {"text": "p(7). total(sum(?x)) :- p(?x). next(?z) :- p(?x), ?z = ?x + 1."}
    )
    client.tell("p", 9, confidence=0.5)
    (row,) = client.post("/ask", {"predicate": "total", "args": ["?z"]}).get_json()
    assert (row["args"], row["metadata"]) == (["16"], {"nonMonotonic": True})
    found = client.post("/ask", {"predicate": "next", "args": ["?z"]}).get_json()
    assert [(row["args"], row["confidence"], row["metadata"]) for row in found] == [
        (["8"], None, {}),
        (["10"], 0.5, {}),
    ]
