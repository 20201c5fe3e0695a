"""The codes of errors: what each means, with an example of the error and of its correction."""

from __future__ import annotations

from kbplanner.check.code import Code
from kbplanner.ir.operators import FUNCTIONS

ERROR_CODES: tuple[Code, ...] = (
    Code(
        "K001",
        "syntax",
        "unexpected word or sign",
        "The parser met a word or sign that cannot stand where it stands. The message names what "
        "was expected; the hint names the usual correction.",
        bad="grandparent(?x, ?z) :- parent(?x, ?y) parent(?y, ?z).",
        good="grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).",
    ),
    Code(
        "K002",
        "missing-period",
        "missing period",
        "Every fact, rule and query ends with a period. Without it the next statement would be "
        "read as a part of this one.",
        bad="parent(ann, bob)",
        good="parent(ann, bob).",
    ),
    Code(
        "K003",
        "wrong-arrow",
        "wrong arrow",
        "The sign between the head and the body of a rule is `:-`. Other arrows are not accepted, "
        "and the head is written first.",
        bad="mortal(?x) <- human(?x).",
        good="mortal(?x) :- human(?x).",
    ),
    Code(
        "K004",
        "wrong-conjunction",
        "wrong conjunction",
        "Body items are separated by commas. For a disjunction, write one rule for each case.",
        bad="reachable(?x) :- road(?x); rail(?x).",
        good="reachable(?x) :- road(?x).\nreachable(?x) :- rail(?x).",
    ),
    Code(
        "K005",
        "wrong-operator",
        "operator of another language",
        "The operator exists in another language only. The comparison operators are `=`, `!=`, "
        "`==`, `!==`, `<`, `<=`, `>` and `>=`; negation is `not` or `~`.",
        bad="small(?x) :- size(?x, ?n), ?n =< 3.",
        good="small(?x) :- size(?x, ?n), ?n <= 3.",
    ),
    Code(
        "K006",
        "empty-body",
        "empty rule body",
        "A rule has at least one body item after `:-`. A statement without conditions is a fact.",
        bad="open(shop) :- .",
        good="open(shop).",
    ),
    Code(
        "K007",
        "unclosed-quote",
        "unclosed quote",
        "A quoted text ends on the line on which it begins. A line break inside a text is written "
        "`\\n`.",
        bad='city("New York).',
        good='city("New York").',
    ),
    Code(
        "K008",
        "unclosed-bracket",
        "unclosed bracket",
        "An opening bracket has no closing bracket before the end of the statement.",
        bad="parent(ann, bob.",
        good="parent(ann, bob).",
    ),
    Code(
        "K009",
        "unclosed-comment",
        "unclosed comment",
        "A comment that begins with `/*` has no `*/`, so the rest of the text would be ignored.",
        bad="/* family\nparent(ann, bob).",
        good="/* family */\nparent(ann, bob).",
    ),
    Code(
        "K010",
        "unmatched-bracket",
        "unmatched bracket",
        "A closing bracket has no opening bracket before it.",
        bad="parent(ann, bob)).",
        good="parent(ann, bob).",
    ),
    Code(
        "K011",
        "smart-quote",
        "typographic quote",
        "Word processors replace straight quotes by typographic ones. Texts are quoted with "
        "straight quotes only.",
        bad="city(\u201cNew York\u201d).",
        good='city("New York").',
    ),
    Code(
        "K012",
        "unsafe",
        "unsafe variable",
        "Every variable of the head, of a negated atom and of a comparison has to be bound: to "
        "occur in a positive body atom, or to be computed by `=` from variables that do. "
        "Otherwise the rule would have infinitely many conclusions. The order of the body items "
        "does not matter. This is the safety condition (range restriction) of Datalog.",
        bad="adult(?x) :- person(?y).",
        good="adult(?x) :- person(?x).",
    ),
    Code(
        "K013",
        "bad-character",
        "unexpected character",
        "The character has no meaning in the language. A text that is not a plain word is quoted.",
        bad="price(tea, 3$).",
        good='price(tea, "3$").',
    ),
    Code(
        "K014",
        "bad-word",
        "word that needs quotes",
        "A word begins with a letter and goes on with letters, digits and `_`. Any other text, "
        "such as a date or a name with a hyphen, is quoted.",
        bad="seat(ann, 4b).",
        good='seat(ann, "4b").',
    ),
    Code(
        "K015",
        "bad-variable",
        "invalid name of a variable",
        "The name of a variable has the letters A to Z and a to z, digits and `_`, and does not "
        "begin with a digit.",
        bad="known(?\u00e9) :- met(?\u00e9).",
        good="known(?e) :- met(?e).",
    ),
    Code(
        "K016",
        "lone-question-mark",
        "question mark without a name",
        "A variable is a question mark and a name. For any value, write `_`.",
        bad="known(?) :- met(?).",
        good="known(?x) :- met(?x).",
    ),
    Code(
        "K017",
        "bad-escape",
        "unknown escape sequence",
        "In a quoted text a backslash begins an escape sequence: `\\n`, `\\t`, `\\r`, `\\\\`, "
        "`\\\"`, `\\'` or `\\uXXXX`.",
        bad='file("C:\\data").',
        good='file("C:\\\\data").',
    ),
    Code(
        "K018",
        "bad-constant",
        "constant that cannot be stored",
        "A constant is a text of at most 65,536 bytes without U+0000 and without halves of "
        "surrogate pairs.",
        bad='symbol("\\ud800").',
        good='symbol("\\ud83d\\ude00").',
    ),
    Code(
        "K019",
        "bad-predicate",
        "invalid name of a predicate",
        "The name of a predicate is not empty and has at most 255 characters.",
        bad="''(a).",
        good="p(a).",
    ),
    Code(
        "K020",
        "bad-declaration",
        "invalid declaration",
        "A phrase is declared with the name and arity of a predicate and a sentence in quotes. A key "
        "has variables for the arguments that identify a fact and `_` for the others; at least two "
        "predicates are disjoint; what has to hold with a predicate comes after it. An input is declared with "
        "names of its arguments, all different, each with a type such as `number` where it has one, and a "
        "gloss in quotes.",
        bad="@key owns(?car, ?owner).",
        good="@key owns(?car, _).",
    ),
    Code(
        "K021",
        "unknown-declaration",
        "unknown declaration",
        "The declarations are `@phrase`, `@input`, `@mask`, `@levels`, `@groups`, `@requires`, `@equivalence`, "
        "`@canonical`, `@key`, `@disjoint` and `@total`. "
        "A name before a rule is followed by a colon.",
        bad='@sentence works_at/2 "{0} works at {1}".',
        good='@phrase works_at/2 "{0} works at {1}".',
    ),
    Code(
        "K022",
        "bad-arity",
        "invalid number of arguments in a declaration",
        "The number after the slash is the number of arguments of the predicate, 0 to 64.",
        bad='@phrase works_at/99 "an employee works".',
        good='@phrase works_at/2 "{0} works at {1}".',
    ),
    Code(
        "K023",
        "bad-phrase",
        "invalid phrase",
        "A phrase is one line of text with a place for each argument, `{0}`, `{1}` and so on.",
        bad='@phrase works_at/2 "{0} works".',
        good='@phrase works_at/2 "{0} works at {1}".',
    ),
    Code(
        "K024",
        "variable-in-fact",
        "variable in a fact",
        "A fact has constants only. A statement with variables is a rule with a body, or a query "
        "that begins with `?-`.",
        bad="likes(ann, ?x).",
        good="likes(ann, ?x) :- drink(?x).",
    ),
    Code(
        "K025",
        "anonymous-in-head",
        "anonymous variable in a rule head",
        "A conclusion has a value for each argument. `_` stands for any value, so it cannot stand "
        "in a head.",
        bad="knows(ann, _) :- met(ann, bob).",
        good="knows(ann, ?x) :- met(ann, ?x).",
    ),
    Code(
        "K026",
        "anonymous-in-expression",
        "anonymous variable in an expression",
        "`_` has no value, so it cannot be compared or computed with.",
        bad="adult(?x) :- age(?x, ?n), _ = ?n.",
        good="adult(?x) :- age(?x, ?n), ?n >= 18.",
    ),
    Code(
        "K027",
        "not-an-atom",
        "expected an atom",
        "A statement and a body item are atoms: the name of a predicate with arguments in "
        "brackets. A value alone is neither true nor false.",
        bad="known(?x) :- met(?x), (?x).",
        good="known(?x) :- met(?x).",
    ),
    Code(
        "K028",
        "nested-term",
        "nested term",
        "An argument is a constant, a variable or `_`. There are no terms inside terms; a value "
        "is computed in the body.",
        bad="knows(ann, mother(bob)).",
        good="knows(ann, ?x) :- mother(?x, bob).",
    ),
    Code(
        "K029",
        "expression-in-atom",
        "expression inside an atom",
        "Arithmetic stands in comparisons, not in the arguments of an atom. Compute the value "
        "with `=` and use the variable.",
        bad="next(?x, ?x + 1) :- number(?x).",
        good="next(?x, ?y) :- number(?x), ?y = ?x + 1.",
    ),
    Code(
        "K030",
        "comparison-as-head",
        "comparison as a fact or rule head",
        "A comparison is a condition. It can neither be asserted nor concluded.",
        bad="?n > 18 :- age(ann, ?n).",
        good="adult(ann) :- age(ann, ?n), ?n > 18.",
    ),
    Code(
        "K031",
        "comparison-chain",
        "chained comparison",
        "A comparison has two sides. Write one comparison for each pair.",
        bad="teen(?x) :- age(?x, ?n), 12 < ?n < 20.",
        good="teen(?x) :- age(?x, ?n), 12 < ?n, ?n < 20.",
    ),
    Code(
        "K032",
        "not-comparison",
        "negated comparison",
        "`not` stands before an atom. Write the opposite comparison instead.",
        bad="minor(?x) :- age(?x, ?n), not ?n >= 18.",
        good="minor(?x) :- age(?x, ?n), ?n < 18.",
    ),
    Code(
        "K033",
        "double-negation",
        "double negation",
        "One `not` stands before an atom, and one `~` inside it. In a fact or a head both mean "
        "the explicit negative, and one is enough.",
        bad="not ~open(shop).",
        good="~open(shop).",
    ),
    Code(
        "K034",
        "aggregate-in-body",
        "aggregate in a rule body",
        "An aggregate stands in the head of a rule. Another rule reads that head.",
        bad="busy(?x) :- assigned(?x, ?t), ?n = count(?t), ?n > 3.",
        good="tasks(?x, count(?t)) :- assigned(?x, ?t).\nbusy(?x) :- tasks(?x, ?n), ?n > 3.",
    ),
    Code(
        "K035",
        "stray-star",
        "misplaced star",
        "`*` is only allowed in `count(*)`. For any value, write `_`.",
        bad="total(sum(*)) :- price(?x).",
        good="total(sum(?x)) :- price(?x).",
    ),
    Code(
        "K036",
        "reserved-name",
        "name of a builtin",
        "The name belongs to a builtin, which cannot be asserted or concluded. In quotes it is a "
        "predicate like any other.",
        bad="contains(box, tea).",
        good="'contains'(box, tea).",
    ),
    Code(
        "K037",
        "unknown-function",
        "unknown function",
        f"The functions of expressions are {', '.join(FUNCTIONS[:-1])} and {FUNCTIONS[-1]}.",
        bad="area(?x, ?a) :- side(?x, ?s), ?a = square(?s).",
        good="area(?x, ?a) :- side(?x, ?s), ?a = ?s * ?s.",
    ),
    Code(
        "K038",
        "wrong-arity",
        "wrong number of arguments of a builtin",
        "The builtin takes another number of arguments.",
        bad="tea(?x) :- drink(?x), contains(?x).",
        good="tea(?x) :- drink(?x), contains(?x, tea).",
    ),
    Code(
        "K039",
        "named-fact",
        "fact with a name",
        "A name before a statement identifies a rule. Facts have no names.",
        bad="@first: parent(ann, bob).",
        good="parent(ann, bob).",
    ),
    Code(
        "K040",
        "bad-annotation",
        "invalid value of an annotation",
        "The value does not fit the annotation: confidence is a number from 0 to 1, ttl a "
        "positive number of milliseconds, validFrom and validUntil are epoch milliseconds or a "
        "quoted ISO 8601 text, metadata is a JSON object in quotes, and scope is a name.",
        bad="likes(ann, tea) [confidence=2].",
        good="likes(ann, tea) [confidence=0.9].",
    ),
    Code(
        "K041",
        "unknown-annotation",
        "unknown annotation",
        "A fact takes confidence, ttl, scope, validFrom, validUntil and metadata; a rule takes "
        "confidence and scope.",
        bad="likes(ann, tea) [source=chat].",
        good='likes(ann, tea) [metadata=\'{"source": "chat"}\'].',
    ),
    Code(
        "K042",
        "repeated-annotation",
        "repeated annotation",
        "Each annotation is written once.",
        bad="likes(ann, tea) [scope=a, scope=b].",
        good="likes(ann, tea) [scope=a].",
    ),
    Code(
        "K043",
        "too-long",
        "statement that exceeds a limit",
        "A rule has at most 64 body items, brackets nest at most 64 deep, and a statement has at "
        "most 50,000 words and signs. Split the rule.",
        bad="p(a) :- " + ", ".join(["q(a)"] * 65) + ".",
        good="p(a) :- q(a), r(a).",
    ),
    Code(
        "K044",
        "too-deep",
        "expression nested too deep",
        "Expressions nest at most 64 deep. Compute parts into variables.",
        bad="p(?y) :- q(?x), ?y = " + " + ".join(["?x"] * 70) + ".",
        good="p(?y) :- q(?x), ?y = ?x + ?x.",
    ),
    Code(
        "K045",
        "too-many-arguments",
        "too many arguments",
        "An atom has at most 64 arguments.",
        bad="row(" + ", ".join(["a"] * 65) + ").",
        good="row(a, b).",
    ),
    Code(
        "K046",
        "wrong-statement",
        "statement of another kind",
        "The text is to be one goal, but holds something else. This error is only reported where "
        "a goal is checked by itself.",
        bad="?n >= 18",
        good="age(?x, ?n), ?n >= 18",
        kind="goal",
    ),
    Code(
        "K047",
        "wrong-command",
        "invalid command",
        "A statement that begins with ASSERT, INFER, QUERY or RETRACT is a command of a script; "
        "this one is incomplete.",
        bad="ASSERT FORALL ?x { child(?x) };",
        good="ASSERT FORALL ?x { child(?x) <- young(?x) };",
        kind="script",
    ),
    Code(
        "K048",
        "invalid",
        "rule or fact that cannot be stored",
        "The statement is well formed, but a value in it is not accepted; the message says which.",
        bad='long(?x) :- name(?x), matches(?x, "(").',
        good='long(?x) :- name(?x), matches(?x, "a+").',
    ),
    Code(
        "K049",
        "recursive-aggregate",
        "recursion through an aggregate",
        "A rule aggregates over a predicate that depends on the result of the rule, so that the "
        "result would change what is aggregated: the rules are not stratified. Aggregate over a "
        "predicate that does not depend on the result.",
        bad="total(sum(?n)) :- part(?n).\npart(?n) :- total(?n).\npart(1).",
        good="total(sum(?n)) :- part(?n).\npart(1).",
    ),
    Code(
        "K050",
        "repeated-name",
        "rule name used twice",
        "A name identifies one rule of a scope. Two different rules have the same name, or a "
        "stored rule has it; retract the stored rule before another takes its name.",
        bad="@r: p(?x) :- q(?x).\n@r: p(?x) :- s(?x).\nq(a).\ns(a).",
        good="@r1: p(?x) :- q(?x).\n@r2: p(?x) :- s(?x).\nq(a).\ns(a).",
    ),
    Code(
        "K051",
        "unfinished",
        "unfinished statement",
        "The text ends in the middle of a statement.",
        bad="grandparent(?x, ?z) :- parent(?x, ?y),",
        good="grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).",
    ),
    Code(
        "K052",
        "test-block",
        "test block where statements are stored",
        "Tests and fixtures are run by `kbcore test` and cannot be stored, so a text that is taught, "
        "loaded or run has none. Keep them in files of their own. `kbcore check` and `kbcore fmt` "
        "accept them.",
        bad='test "parents" { parent(ann, bob). ?- parent(ann, bob). }',
        good="parent(ann, bob).\n?- parent(ann, bob).",
        kind="stored",
    ),
    Code(
        "K053",
        "bad-test",
        "invalid test",
        "A test has facts, and queries with what is expected of them; a fixture has facts only. "
        "Their names are used once, and fixtures and rules that a test names exist in the checked "
        "files. An expected answer has a value for each variable of its query.",
        bad='parent(ann, bob).\ntest "parents" { ?- parent(?x, ?y) = [ann]. }',
        good='parent(ann, bob).\ntest "parents" { ?- parent(?x, ?y) = [(ann, bob)]. }',
    ),
    Code(
        "K054",
        "stray-list",
        "misplaced list",
        "A list is the second argument of `member` in a body, and nothing else: arguments of atoms are "
        "single values. Write one fact for each value.",
        bad="likes(ann, [tea, cake]).",
        good="likes(ann, tea).\nlikes(ann, cake).",
    ),
    Code(
        "K055",
        "unbound-argument",
        "call without its input",
        "An external predicate, which a plugin provides or which searches the facts, has rows for "
        "given inputs only. In this rule or query nothing gives the argument a value, also if all arguments of "
        "the head have one. Add an atom that does.",
        bad="found(?fact) :- matches_text(?text, ?fact, ?score).\nquestion(q1, tea).",
        good="found(?fact) :- question(_, ?text), matches_text(?text, ?fact, ?score), "
        "?score > 0.1.\nquestion(q1, tea).",
    ),
    Code(
        "K056",
        "external-recursion",
        "recursion through negation over an external predicate",
        "Rules that recurse through negation are evaluated for all values at once. An external "
        "predicate has rows for given inputs only, so such rules cannot depend on it.",
        bad="win(?x) :- matches_text(?x, ?y, _), not win(?y).",
        good="win(?x) :- matches_text(?x, ?y, _), not lost(?y).\nlost(a).",
    ),
    Code(
        "K057",
        "external-predicate",
        "fact or rule for an external predicate",
        "A plugin provides all rows of the predicate. Facts and rules for it cannot be stored; choose "
        "another name.",
        bad="price(apple, 3).",
        good="own_price(apple, 3).",
        kind="external",
    ),
    Code(
        "K060",
        "extremum-place",
        "min or max in the wrong place",
        "`min ?d` or `max ?d` is the last argument of a rule head: the arguments before it are the "
        "group, and each group keeps its least or greatest value. A body reads the value as an "
        "ordinary argument.",
        bad="cheapest(min ?p, ?item) :- offer(?shop, ?item, ?p).",
        good="cheapest(?item, min ?p) :- offer(_, ?item, ?p).",
    ),
    Code(
        "K061",
        "mixed-extrema",
        "rules of one predicate keep different values",
        "All rules of a predicate have the same word before their last argument: either each of "
        "them keeps the least value, or each the greatest, or none keeps any. Stored facts join the "
        "rules without a word.",
        bad="cost(?x, min ?c) :- price(?x, ?c).\ncost(?x, ?c) :- fee(?x, ?c).\nprice(a, 3).\n"
        "fee(a, 4).",
        good="cost(?x, min ?c) :- price(?x, ?c).\ncost(?x, min ?c) :- fee(?x, ?c).\nprice(a, 3).\n"
        "fee(a, 4).",
    ),
    Code(
        "K062",
        "not-monotone",
        "recursion through min or max that is not monotone",
        "A recursion may use the best value of a group while it is still being improved. That has "
        "one result only if a better value never takes a conclusion away: the value is added to, "
        "compared in the direction in which the comparison stays true, and becomes the last "
        "argument of the head. The message says which use is at fault.",
        bad="edge(a, b, 4).\nstart(a).\ndist(?x, min ?d) :- start(?x), ?d = 0.\n"
        "dist(?y, min ?d) :- dist(?x, ?e), edge(?x, ?y, ?w), ?d = ?w - ?e.",
        good="edge(a, b, 4).\nstart(a).\ndist(?x, min ?d) :- start(?x), ?d = 0.\n"
        "dist(?y, min ?d) :- dist(?x, ?e), edge(?x, ?y, ?w), ?d = ?e + ?w.",
    ),
    Code(
        "K063",
        "module",
        "@module at a place where it has no meaning",
        "`@module access.` names the rule set that a text is deployed as. It is the first statement "
        "of the text, and stands there once. A text with it cannot be stored statement by "
        "statement: deploy it.",
        bad="open(shop).\n@module access.",
        good="@module access.\nopen(shop).",
    ),
    Code(
        "K064",
        "strict",
        "@strict at a place where it has no meaning",
        "`@strict.` stands at the head of a text: the inputs that the text declares are strict, so that "
        "facts with arguments of other types are refused.",
        bad="@input age(who, years: integer).\n@strict.",
        good="@strict.\n@input age(who, years: integer).",
    ),
    Code(
        "K065",
        "import",
        "a rule set that cannot be imported",
        "`import memory.` uses a rule set that is shipped, or that an installed package offers. Its name "
        "is not that of a file. The message says why the rule set cannot be used: it is not installed, "
        "its text has errors, or it imports itself.",
        bad="import memroy.",
        good="import memory.",
    ),
)
