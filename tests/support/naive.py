"""A naive evaluator: every rule on every combination of rows until nothing changes, stratum by
stratum.

Nothing clever, and nothing shared with the planner but the values of single functions, which have
tests of their own: it is what the planner and both engines are held against.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from kbplanner.compile.aggregates import fold
from kbplanner.ir.conditions import generate, generator_of
from kbplanner.ir.operators import COMPARISONS, SUBSTRING_TESTS
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    Atom,
    Comparison,
    Extremum,
    Literal,
    Rule,
    Variable,
    expression_variables,
    extremum_of,
)
from kbplanner.ir.values.comparison import best_of, kept
from kbplanner.ir.values.comparison import test as compare
from kbplanner.ir.values.compute import compute, text_test

Key = tuple[str, int, bool]
Model = dict[Key, set[tuple[str, ...]]]


def key(atom: Atom) -> Key:
    return atom.predicate, atom.arity, atom.positive


class TooLarge(Exception):
    """A model with more rows than were allowed."""


def model(rules: Iterable[Rule], facts: Iterable[Atom], most: int | None = None) -> Model:
    """The perfect model of stratified rules over ground facts; raises TooLarge where it has more
    than `most` rows.

    Where heads have an extremum, each group of rows keeps its best one, after every firing of a
    rule.
    """
    found: Model = {}
    rules = list(rules)
    for fact in facts:
        found.setdefault(key(fact), set()).add(fact.args)
    for rule in rules:
        keep_best(rule, found.setdefault(key(rule.head), set()))
    levels = _levels(rules)
    for level in sorted(set(levels.values())):
        own = [rule for rule in rules if levels[key(rule.head)] == level]
        while sum(_fire(rule, found) for rule in own):
            if most is not None and sum(map(len, found.values())) > most:
                raise TooLarge
    return found


def well_founded(rules: Iterable[Rule], facts: Iterable[Atom]) -> tuple[Model, Model]:
    """What is true and what is possible (true or undefined) in the well-founded model: the
    alternating fixpoint.
    """
    rules, facts = list(rules), list(facts)
    true: Model = {}
    while True:
        possible = _closure(rules, facts, true)
        following = _closure(rules, facts, possible)
        if following == true:
            return true, possible
        true = following


def _closure(rules: list[Rule], facts: list[Atom], assumed: Model) -> Model:
    """The least model where exactly what is not `assumed` counts as absent."""
    found: Model = {}
    for fact in facts:
        found.setdefault(key(fact), set()).add(fact.args)
    while sum(_fire(rule, found, assumed) for rule in rules):
        pass
    return {name: rows for name, rows in found.items() if rows}


def _levels(rules: list[Rule]) -> dict[Key, int]:
    levels = {key(rule.head): 0 for rule in rules}
    for _ in range(len(rules) * len(rules) + 2):
        changed = False
        for rule in rules:
            for item in rule.body:
                if not isinstance(item, Literal):
                    continue
                atom = key(item.atom)
                needs = [(atom, 1 if item.negated or aggregates(rule) else 0)]
                if item.negated and item.atom.positive:  # `not ~p` does not read `p`
                    needs.append(((atom[0], atom[1], not atom[2]), 1 if aggregates(rule) else 0))
                for need, step in needs:
                    least = levels.get(need, 0) + step
                    if levels[key(rule.head)] < least:
                        levels[key(rule.head)] = least
                        changed = True
        if not changed:
            return levels
    raise ValueError("not stratified")


def stratified(rules: list[Rule]) -> bool:
    try:
        _levels(rules)
    except ValueError:
        return False
    return True


def _fire(rule: Rule, found: Model, assumed: Model | None = None) -> bool:
    rows = found.setdefault(key(rule.head), set())
    if extremum_of(rule.head):
        old = set(rows)
        rows |= {
            tuple(env.get(arg, arg) for arg in terms(rule.head))
            for env in envs(rule, found, assumed)
        }
        keep_best(rule, rows)
        return rows != old
    before = len(rows)
    if aggregates(rule):
        rows |= set(grouped(rule, list(envs(rule, found, assumed))))
    else:
        rows |= {
            tuple(env.get(arg, arg) for arg in rule.head.args) for env in envs(rule, found, assumed)
        }
    return len(rows) > before


def terms(head: Atom) -> tuple:
    """The arguments of a head without aggregates; an extremum is its variable."""
    return tuple(arg.variable if isinstance(arg, Extremum) else arg for arg in head.args)


def keep_best(rule: Rule, rows: set[tuple[str, ...]]) -> None:
    """Remove the rows that a rule's extremum does not keep: values that are no numbers, and values
    that are not the best.

    Numbers are kept in their canonical text.
    """
    extremum = extremum_of(rule.head)
    if extremum is None:
        return
    best: dict[tuple[str, ...], str] = {}
    for *group, text in rows:
        value = kept(text)
        if value is not None:
            known = best.get(tuple(group), value)
            best[tuple(group)] = best_of(extremum.function, (known, value)) or value
    rows.clear()
    rows.update((*group, value) for group, value in best.items())


def kept_fact(rules: Iterable[Rule], fact: Atom) -> list[Atom]:
    """The form in which a fact is kept by the rules of its predicate; no atom where its value is no
    number.
    """
    rows = {fact.args}
    for rule in rules:
        if key(rule.head) == key(fact):
            keep_best(rule, rows)
    return [Atom(fact.predicate, row, fact.positive) for row in rows]


def envs(rule: Rule, found: Model, assumed: Model | None = None) -> Iterator[dict]:
    """The values of a rule's named variables wherever its body holds; the same ones more than
    once.
    """
    tests = [item for item in rule.body if not isinstance(item, Literal) or item.negated]
    atoms = [item.atom for item in rule.body if isinstance(item, Literal) and not item.negated]
    for env in _join(atoms, {}, found):
        for named in _equate(tests, env):
            if all(holds(item, named, found, assumed) for item in tests):
                yield named


def aggregates(rule: Rule) -> bool:
    return any(isinstance(arg, Aggregate) for arg in rule.head.args)


def grouped(rule: Rule, bindings: list[dict]) -> dict[tuple[str, ...], list[dict]]:
    """The conclusions of a rule with aggregates, each with the distinct bindings it was taken
    over.
    """
    groups: dict[tuple, list[dict]] = {}
    for pairs in {tuple(sorted(env.items(), key=lambda pair: pair[0].name)) for env in bindings}:
        env = dict(pairs)
        group = tuple(env[arg] for arg in rule.head.args if isinstance(arg, Variable))
        groups.setdefault(group, []).append(env)
    rows = {}
    for members in groups.values():
        row: list[str | None] = []
        for arg in rule.head.args:
            if not isinstance(arg, Aggregate):
                row.append(members[0][arg] if isinstance(arg, Variable) else arg)
            elif arg.variable is None:
                row.append(str(len(members)))
            else:
                texts = [env[arg.variable] for env in members]
                row.append(
                    fold(arg.function, sorted(set(texts)) if arg.function == "count" else texts)[0]
                )
        if None not in row:
            rows[tuple(row)] = members
    return rows


Member = list[list[Atom]]
"""One premise of an instance: facts, of which there may be several choices."""


def instances(rule: Rule, found: Model) -> Iterator[tuple[Atom, list[Member], bool]]:
    """Every instance of a rule in a model: conclusion, premises, and whether new facts can remove
    it.

    A literal `not p` that holds both by absence and by an explicit negative gives an instance of
    either kind. With aggregates there is an instance for each group, and a member for each binding.
    """
    if aggregates(rule):
        for row, members in grouped(rule, list(envs(rule, found))).items():
            head = Atom(rule.head.predicate, row, rule.head.positive)
            yield (
                head,
                [[facts for facts, _ in _choices(rule, env, found)] for env in members],
                True,
            )
        return
    for env in envs(rule, found):
        row = tuple(env.get(arg, arg) for arg in terms(rule.head))
        if extremum_of(rule.head):
            kept = {row}
            keep_best(rule, kept)
            if not kept <= found.get(key(rule.head), set()):
                continue
            (row,) = kept or [row]
            if not kept:
                continue
        head = Atom(rule.head.predicate, row, rule.head.positive)
        for facts, absent in _choices(rule, env, found):
            is_best = extremum_of(rule.head) is not None  # a better value removes it
            yield head, [[[fact]] for fact in facts], absent or is_best


def _choices(rule: Rule, env: dict, found: Model) -> Iterator[tuple[list[Atom], bool]]:
    """The facts an instance can depend on, explicit negatives included, and whether it depends on
    an absence too.
    """
    # What an anonymous variable stood for is not in `env`: each matching fact is a premise of its
    # own.
    choices: list[list] = []
    for item in rule.body:
        if isinstance(item, Literal) and not item.negated:
            choices.append(_rows(item.atom, env, found))
        elif isinstance(item, Literal):
            opposite = Atom(item.atom.predicate, item.atom.args, not item.atom.positive)
            anonymous = Variable("_") in item.atom.args
            absent = [None] if anonymous or not _rows(item.atom, env, found) else []
            stated = [] if anonymous or not item.atom.positive else _rows(opposite, env, found)
            choices.append([*absent, *stated])
    for choice in product(*choices):
        yield [fact for fact in choice if fact is not None], None in choice


def _rows(atom: Atom, env: dict, found: Model) -> list:
    rows = (row for row in found.get(key(atom), ()) if _unify(atom.args, row, env) is not None)
    return [Atom(atom.predicate, row, atom.positive) for row in rows]


def _join(atoms: list[Atom], env: dict, found: Model) -> Iterator[dict]:
    if not atoms:
        yield env
        return
    for row in found.get(key(atoms[0]), ()):
        bound = _unify(atoms[0].args, row, env)
        if bound is not None:
            yield from _join(atoms[1:], bound, found)


def _unify(args: tuple, row: tuple[str, ...], env: dict) -> dict | None:
    bound = dict(env)
    for arg, value in zip(args, row, strict=True):
        if not isinstance(arg, Variable):
            if arg != value:
                return None
        elif not arg.anonymous and bound.setdefault(arg, value) != value:
            return None
    return bound


def _equate(tests: list, env: dict) -> Iterator[dict]:
    """Name and compute values: the first equation that can, again and again; then each value of a
    generator.

    Nothing where an equation has no value.
    """
    env = dict(env)
    while True:
        found = next((named for item in tests if (named := _named(item, env)) is not None), None)
        if found is None:
            break
        variable, value = found
        if value is None:
            return
        env[variable] = value
    for item in tests:
        call = generator_of(item)
        if call is None or item.negated or item.left in env or not isinstance(item.left, Variable):
            continue
        if all(v in env for v in expression_variables(call)):
            for value in set(_generated(call, env) or ()):
                yield from _equate(tests, {**env, item.left: value})
            return
    yield env


def _generated(call: Apply, env: dict) -> list[str] | None:
    """The values of a generator, None where it has no meaning for its arguments."""
    args = [_value(arg, env) for arg in call.args]
    values = None if None in args else generate(call.function, args)
    return None if values is None else list(values)


def _named(item, env: dict) -> tuple[Variable, str | None] | None:
    if not isinstance(item, Comparison) or item.op not in ("=", "==") or item.negated:
        return None
    for a, b in ((item.left, item.right), (item.right, item.left)):
        computes = item.op == "=" or not isinstance(b, Apply)
        if (
            computes
            and isinstance(a, Variable)
            and a not in env
            and all(v in env for v in expression_variables(b))
        ):
            return a, _value(b, env)
    return None


def _value(expr, env: dict) -> str | None:
    if not isinstance(expr, Apply):
        return env[expr] if isinstance(expr, Variable) else expr
    args = [_value(arg, env) for arg in expr.args]
    return None if None in args else compute(expr.function, args)


def holds(item, env: dict, found: Model, assumed: Model | None = None) -> bool:
    if (call := generator_of(item)) is not None:
        element, values = _value(item.left, env), _generated(call, env)
        return element is not None and values is not None and (element in values) != item.negated
    if isinstance(item, Comparison):
        left, right = _value(item.left, env), _value(item.right, env)
        if left is None or right is None:
            return False
        if item.op in SUBSTRING_TESTS:
            return text_test(SUBSTRING_TESTS.index(item.op) + 8 * item.negated, left, right)
        return compare(COMPARISONS.index(item.op) + (8 if item.negated else 0), left, right)
    name, arity, positive = key(item.atom)
    denials = (
        found.get((name, arity, False), set()) if positive else set()
    )  # `p` does not take `~p` back
    present = found if assumed is None else assumed
    rows = (row for row in present.get((name, arity, positive), ()) if row not in denials)
    return not any(_unify(item.atom.args, row, env) is not None for row in rows)


def answers(found: Model, goal: Atom) -> set[tuple[str, ...]]:
    return {row for row in found.get(key(goal), ()) if _unify(goal.args, row, {}) is not None}
