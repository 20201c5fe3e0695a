"""The codes of warnings: what each means, with an example of it and of its correction."""

from __future__ import annotations

from kbplanner.check.code import Code

WARNING_CODES: tuple[Code, ...] = (
    Code(
        "K101",
        "unknown-predicate",
        "predicate without facts and rules",
        "A body or a query reads a predicate, or a mask names one, that neither the checked texts nor "
        "the knowledge base define, so it has no answers. Often the name is misspelt; the hint names a "
        "similar one. Where neither the texts nor the knowledge base have facts or declared inputs, only "
        "names that are similar to a known one are reported. If the facts come from outside, declare the "
        "predicate with `@input`.",
        bad="parent(ann, bob).\nchild(?x, ?y) :- parnet(?y, ?x).",
        good="parent(ann, bob).\nchild(?x, ?y) :- parent(?y, ?x).",
    ),
    Code(
        "K102",
        "arity",
        "unusual number of arguments",
        "Predicates of different arity are different predicates. This one is used with another "
        "number of arguments than elsewhere.",
        bad="parent(ann, bob).\nparents(?x) :- parent(?x).",
        good="parent(ann, bob).\nparents(?x) :- parent(?x, _).",
    ),
    Code(
        "K103",
        "unused-predicate",
        "predicate that is never used",
        "A rule concludes a predicate that no rule and no query of the checked texts uses. The "
        "warning is off in texts without queries, whose conclusions are asked elsewhere.",
        bad="parent(ann, bob).\nchild(?x, ?y) :- parent(?y, ?x).\n?- parent(ann, ?x).",
        good="parent(ann, bob).\nchild(?x, ?y) :- parent(?y, ?x).\n?- child(?x, ann).",
    ),
    Code(
        "K104",
        "singleton",
        "variable used once",
        "A variable that occurs once in a rule joins nothing. Often it is a misspelling of another "
        "variable. If any value is meant, write `_`, or begin the name with `_`.",
        bad="parent(ann, bob).\nisparent(?x) :- parent(?x, ?y).",
        good="parent(ann, bob).\nisparent(?x) :- parent(?x, _).",
    ),
    Code(
        "K105",
        "cross-product",
        "cross product",
        "Two parts of the body share no variable, so each answer of one is combined with each "
        "answer of the other. Often a join is missing. A rule about each pair, such as "
        "`may_read(?who, ?doc) :- admin(?who), document(?doc)`, is not reported: each part has variables "
        "of the head, and at most one part has other variables. If a part is a condition that has "
        "nothing to do with the rest, ignore the warning.",
        bad="member(ann, staff).\nshared(memo, staff).\nopen(staff).\n"
        "may_read(?who, ?doc) :- member(?who, ?group), open(?group), shared(?doc, ?other), open(?other).",
        good="member(ann, staff).\nshared(memo, staff).\nopen(staff).\n"
        "may_read(?who, ?doc) :- member(?who, ?group), open(?group), shared(?doc, ?group).",
    ),
    Code(
        "K106",
        "never-holds",
        "comparison that never holds",
        "The comparison is false for all values, so that the rule has no conclusions.",
        bad="age(ann, 30).\nodd(?x) :- age(?x, ?n), ?n != ?n.",
        good="age(ann, 30).\nodd(?x) :- age(?x, ?n), ?n != 30.",
    ),
    Code(
        "K107",
        "never-fires",
        "rule that never fires",
        "The body cannot hold: its comparisons contradict each other, it needs an atom and its absence, "
        "or it needs a predicate that has no facts and only rules that need the predicate itself. A body "
        "with atoms that `@disjoint` or `@key` exclude holds only where the constraint is violated.",
        bad="age(ann, 30).\nteen(?x) :- age(?x, ?n), ?n > 19, ?n < 13.",
        good="age(ann, 30).\nteen(?x) :- age(?x, ?n), ?n <= 19, ?n >= 13.",
    ),
    Code(
        "K108",
        "endless",
        "recursion that may not end",
        "A recursive rule computes a new value in each step, so that it can have infinitely many "
        "conclusions. Without a bound a goal may meet its budget. The warning does not examine the "
        "bound; ignore it where there is one.",
        bad="number(0).\nnumber(?y) :- number(?x), ?y = ?x + 1.",
        good="next(0, 1).\nnext(1, 2).\nnumber(0).\nnumber(?y) :- number(?x), next(?x, ?y).",
    ),
    Code(
        "K109",
        "negative-recursion",
        "recursion through negation",
        "A predicate depends on its own absence. Answers follow the well-founded semantics, in "
        "which an atom can be neither true nor false; `includeUndefined` shows such atoms.",
        bad="move(a, b).\nwin(?x) :- move(?x, ?y), not win(?y).",
        good="move(a, b).\nlost(b).\nwin(?x) :- move(?x, ?y), lost(?y).",
    ),
    Code(
        "K110",
        "shadowed-rule",
        "shadowed rule",
        "Each conclusion of the rule is also one of another, more general rule, or is already in "
        "its own body, so that the rule adds nothing.",
        bad="parent(ann, bob).\nold(bob).\nadult(?x) :- parent(?x, _).\n"
        "adult(?x) :- parent(?x, ?y), old(?y).",
        good="parent(ann, bob).\nold(bob).\nadult(?x) :- parent(?x, _).\nadult(?x) :- old(?x).",
    ),
    Code(
        "K111",
        "looks-like-variable",
        "constant that looks like a variable",
        "A word in upper case is a constant. A variable begins with a question mark.",
        bad="human(socrates).\nmortal(X) :- human(X).",
        good="human(socrates).\nmortal(?X) :- human(?X).",
    ),
    Code(
        "K112",
        "id-comparison",
        "ids compared by value",
        "`=` and `!=` compare numbers by value and instants by time, so that the ids `30` and `30.0` "
        "are equal. The warning is for variables that are named like ids, such as `?id`, "
        "`?order_id`, `?code` or `?serial`, and for constants with leading zeros or an exponent, "
        "which are texts here: `030` equals only itself. Compare what is written with `==` and "
        "`!==`, or use the same variable in both atoms.",
        bad="order(7, ann).\norder(8, bob).\nother(?id, ?id2) :- order(?id, _), order(?id2, _), "
        "?id != ?id2.",
        good="order(7, ann).\norder(8, bob).\nother(?id, ?id2) :- order(?id, _), order(?id2, _), "
        "?id !== ?id2.",
    ),
    Code(
        "K113",
        "unused-suppression",
        "comment that ignores no warning",
        "A comment `kb: ignore` or `kb: ignore-file` names a warning that is not found on its line, "
        "on the line below it or in the text, or a code that no warning has. The warning that it "
        "was written for has gone, and a new one would be hidden.",
        bad="parent(ann, bob).\n% kb: ignore K104\nold(?x) :- parent(?x, _).",
        good="parent(ann, bob).\nold(?x) :- parent(?x, _).",
    ),
    Code(
        "K114",
        "split-definition",
        "predicate with rules in several rule sets",
        "The rules of a predicate are in several rule sets, so that none of them shows when it holds, and "
        "a deployment of one changes what another concludes. The names of rule sets are those of `@module` "
        "and of the stored ones. In the example, the rule set `billing` has rules of `may/1`. Where sets are "
        "meant to extend a predicate, ignore the warning.",
        bad="@module access.\nmay(?x) :- member(?x).",
        good="@module access.\nmay_enter(?x) :- member(?x).",
        kind="sets",
    ),
    Code(
        "K115",
        "constant-case",
        "constants that differ only in case",
        "An argument of a predicate has two constants that differ only in case, such as `lena` and "
        "`Lena`. They are different constants, so that what is said of one is not said of the other. The "
        "one that is written less often is reported, where it is written first; of two that are written "
        "equally often, the second. Where both are meant, as `mW` and `MW` are, ignore the warning.",
        bad="lives_in(lena, riga).\nlives_in(tom, riga).\nlives_in(Lena, oslo).",
        good="lives_in(lena, riga).\nlives_in(tom, riga).\nlives_in(lena, oslo).",
    ),
)
