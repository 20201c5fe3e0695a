"""A checker of proofs: it replays every node against the rules, the stored facts and the naive
model.

It shares nothing with what makes proofs: rules are read back from their texts, and absences are
looked up in the model.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kbplanner.ir.conditions import condition_of, generator_of
from kbplanner.ir.terms import Aggregate, Apply, Atom, Comparison, Literal, Rule, Variable
from kbplanner.syntax.parser import parse_expression, parse_rule
from kbplanner.syntax.printer import print_term
from support import naive

UNKNOWN = 1 << 30


def row_atom(row: dict[str, Any]) -> Atom:
    args = tuple(Variable("_") if arg == "?_" else arg for arg in row["args"])
    return Atom(row["predicate"], args, not row.get("negated", False))


class Checker:
    """Judges proof objects over the rules and facts they were made from.

    Proofs are the `lowest` ones, or any that are well founded.
    """

    def __init__(
        self,
        rules: list[Rule],
        facts: list[Atom],
        external: Collection[str] = (),
        *,
        lowest: bool = True,
    ) -> None:
        self.lowest = lowest
        self.facts = set(facts)
        self.kept = self.facts | {kept for fact in facts for kept in naive.kept_fact(rules, fact)}
        """The facts, and the forms in which best-value predicates keep them."""
        self.external = external
        self.model = naive.model(rules, facts)
        self.rules = set(rules)
        self.heights = self._heights(rules)

    def _heights(self, rules: list[Rule]) -> dict[Atom, int]:
        """The steps of each fact's lowest proof, by trying all rules until nothing gets lower."""
        heights = dict.fromkeys(self.kept, 0)

        def height_of(facts: list[Atom]) -> int:
            return max((heights.get(fact, UNKNOWN) for fact in facts), default=0)

        instances = [found for rule in rules for found in naive.instances(rule, self.model)]
        changed = True
        while changed:
            changed = False
            for head, members, _ in instances:
                height = 1 + max((min(map(height_of, choices)) for choices in members), default=0)
                if height < heights.get(head, UNKNOWN):
                    heights[head] = height
                    changed = True
        return heights

    def dag(self, found: dict[str, Any], nodes: int) -> None:
        """A proof with every node in a table."""
        table = found["proof"]["nodes"]
        assert len(table) <= nodes
        root = table[found["proof"]["root"]]
        self.same_result(row_atom(root["fact"]), found["result"], root["kind"])
        facts = [row_atom(node["fact"]) for node in table.values() if "text" not in node]
        assert len(facts) == len(set(facts))
        used = {found["proof"]["root"]}
        for node in table.values():
            used.update(node["premises"])
            atom = row_atom(node["fact"])
            if node["kind"] == "derived":
                self.height(atom, node["depth"])
                premises = [table[name] for name in node["premises"]]
                assert all(premise["depth"] < node["depth"] for premise in premises)
                self.step(
                    atom,
                    node["rule"]["text"],
                    node["bindings"],
                    [(p["kind"], row_atom(p["fact"])) for p in premises],
                )
            elif node["kind"] == "aggregate":
                self.height(atom, node["depth"])
                premises = [table[name] for name in node["premises"]]
                assert all(premise["depth"] < node["depth"] for premise in premises)
                self.aggregate(
                    atom,
                    node["rule"]["text"],
                    node,
                    [(p["kind"], row_atom(p["fact"])) for p in premises],
                )
            elif node["kind"] == "elided":
                assert found["proof"]["truncated"]
                assert atom in self.heights
            elif node["kind"] in ("asserted", "explicit_negative", "external"):
                assert (node["kind"] != "explicit_negative") is atom.positive
                from_plugin = atom.predicate in self.external and atom.positive
                assert (node["kind"] == "external") is from_plugin
                assert node["alternatives"] >= 0
                assert atom in self.kept
            else:
                assert node["depth"] == 0
                assert not node["premises"]
        assert used == set(table)
        if found["proof"]["truncated"]:
            assert any(node["kind"] == "elided" for node in table.values())

    def tree(self, found: dict[str, Any], nodes: int, depth: int) -> None:
        """A proof as nested nodes."""
        top = found["proof"]
        assert top["goal"] == found["result"]
        todo = [(top, 0)]
        count = 0
        while todo:
            node, level = todo.pop()
            count += 1
            assert level <= depth
            step = node["step"]
            kind, atom = step["type"], row_atom(node["goal"])
            if node is top:
                self.same_result(
                    atom, found["result"], "absent" if kind == "negation_as_failure" else kind
                )
            if kind in ("rule_application", "aggregate"):
                below = step["bodyProofs"]
                premises = []
                for premise in below:
                    of, goal = premise["step"]["type"], row_atom(premise["goal"])
                    if of == "negation_as_failure":
                        goal = Atom(goal.predicate, goal.args, not goal.positive)
                        of = "absent"
                    if (
                        of != "builtin"
                        and of != "absent"
                        and self.lowest
                        and atom in self.heights
                        and goal not in self.kept
                    ):
                        assert self.heights[goal] < self.heights[atom]
                    premises.append((of, goal))
                if kind == "aggregate":
                    self.aggregate(atom, step["rule"], step, premises)
                else:
                    self.step(atom, step["rule"], node["substitution"], premises)
                todo.extend((premise, level + 1) for premise in below)
            elif kind in ("fact_match", "explicit_negative", "external"):
                told = {
                    **node["goal"],
                    "metadata": {},
                }  # what an answer says beside the fact is not told
                assert step["fact"] == told or row_atom(step["fact"]) in self.facts - {atom}
                assert atom in self.kept
                assert (kind != "explicit_negative") is atom.positive
                assert (kind == "external") is (atom.predicate in self.external and atom.positive)
            elif kind == "elided":
                assert atom in self.heights
            else:
                assert kind in ("builtin", "negation_as_failure")
                assert step["text"]
        assert count <= nodes

    def height(self, atom: Atom, depth: int) -> None:
        """The depth of a node."""
        height = self.heights[atom]
        assert depth == height if self.lowest else depth >= height

    def same_result(self, atom: Atom, result: dict[str, Any], kind: str) -> None:
        shown = row_atom(result)
        if kind == "absent":
            assert result["metadata"]["basis"] == "absence"
            literal = Literal(Atom(shown.predicate, shown.args, not shown.positive), negated=True)
            assert naive.holds(literal, {}, self.model)
        else:
            assert atom == shown
            assert shown in self.heights

    def step(
        self, head: Atom, text: str, bindings: dict[str, str], premises: list[tuple[str, Atom]]
    ) -> None:
        """An application of a rule: its instance is what stands above and below."""
        rule = parse_rule(text)
        assert rule in self.rules
        env = {Variable(name[1:]): value for name, value in bindings.items()}
        rule_head = Atom(rule.head.predicate, naive.terms(rule.head), rule.head.positive)
        (*_, concluded) = naive.kept_fact([rule], self._at(rule_head, env)) or [None]
        assert concluded == head
        self.body(rule, env, premises)

    def aggregate(
        self, head: Atom, text: str, taken: dict[str, Any], premises: list[tuple[str, Atom]]
    ) -> None:
        """An application of a rule with aggregates: every input shown is a binding of its group."""
        rule = parse_rule(text)
        assert rule in self.rules
        (members,) = (
            m
            for row, m in naive.grouped(rule, list(naive.envs(rule, self.model))).items()
            if row == head.args
        )
        inputs = [
            {Variable(name[1:]): value for name, value in given.items()}
            for given in taken["inputs"]
        ]
        aggregates = [term for term in rule.head.args if isinstance(term, Aggregate)]
        ((of_values, variable), *others) = {
            (one.function in ("min", "max", "count"), one.variable) for one in aggregates
        }
        rows = (
            len({env[variable] for env in members})
            if of_values and variable and not others
            else len(members)
        )
        assert taken["rows"] == rows
        assert len(inputs) == min(rows, 10)
        width = len(rule.body)
        assert len(premises) == len(inputs) * width
        for place, env in enumerate(inputs):
            assert env in members
            assert env not in inputs[:place]
            self.body(rule, env, premises[place * width : (place + 1) * width])
        for term, value in zip(rule.head.args, head.args, strict=True):
            if isinstance(term, Aggregate):
                assert f"{print_term(term)} = {value}" in taken["text"]

    def body(self, rule: Rule, env: dict[Variable, str], premises: list[tuple[str, Atom]]) -> None:
        """What stands below is an instance of a rule's body."""
        assert len(premises) == len(rule.body)
        for item, (kind, atom) in zip(rule.body, premises, strict=True):
            if isinstance(item, Comparison):
                assert kind == "builtin"
                test, _ = condition_of(item) or (None, False)
                call = test or generator_of(item)
                sides = (item.left, item.right)
                if test is not None:
                    sides = test.args
                elif call is not None:  # a generator is shown with the value that it gives, last
                    sides = (*call.args, item.left)
                assert atom.predicate == (call.function if call else item.op)
                for side, shown in zip(sides, atom.args, strict=True):
                    if isinstance(side, Apply):
                        assert parse_expression(str(shown)) == self._filled(side, env)
                    else:
                        assert shown == (env[side] if isinstance(side, Variable) else side)
                assert naive.holds(item, env, self.model)
                continue
            asked = self._at(item.atom, env)
            if kind == "absent":
                assert item.negated
                assert atom == asked
                assert naive.holds(item, env, self.model)
                continue
            if item.negated:
                assert item.atom.positive  # `not ~p` depends on an absence only
                asked = Atom(asked.predicate, asked.args, False)
            assert (atom.predicate, atom.positive, atom.arity) == (
                asked.predicate,
                asked.positive,
                asked.arity,
            )
            (kept,) = naive.kept_fact(self.rules, atom) or [atom]  # a fact is shown as written
            for have, want in zip(kept.args, asked.args, strict=True):
                assert isinstance(want, Variable) or have == want
            assert kept in self.heights

    @staticmethod
    def _at(atom: Atom, env: dict[Variable, str]) -> Atom:
        args = tuple(
            env[arg] if isinstance(arg, Variable) and not arg.anonymous else arg
            for arg in atom.args
        )
        return Atom(atom.predicate, args, atom.positive)

    def _filled(self, expr: Any, env: dict[Variable, str]) -> Any:
        if isinstance(expr, Apply):
            return Apply(expr.function, tuple(self._filled(arg, env) for arg in expr.args))
        return env[expr] if isinstance(expr, Variable) else expr
