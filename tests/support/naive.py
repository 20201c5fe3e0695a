"""A naive evaluator: every rule on every combination of rows until nothing changes, stratum by stratum.

Nothing clever, nothing shared with the planner: it is what the planner and both engines are held against.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from kbplanner.numbers import test as compare
from kbplanner.terms import COMPARISONS, Atom, Comparison, Literal, Rule, Variable

Key = tuple[str, int, bool]
Model = dict[Key, set[tuple[str, ...]]]


def key(atom: Atom) -> Key:
    return atom.predicate, atom.arity, atom.positive


def model(rules: Iterable[Rule], facts: Iterable[Atom]) -> Model:
    """The perfect model of stratified rules over ground facts."""
    found: Model = {}
    for fact in facts:
        found.setdefault(key(fact), set()).add(fact.args)
    rules = list(rules)
    levels = _levels(rules)
    for level in sorted(set(levels.values())):
        own = [rule for rule in rules if levels[key(rule.head)] == level]
        while sum(_fire(rule, found) for rule in own):
            pass
    return found


def well_founded(rules: Iterable[Rule], facts: Iterable[Atom]) -> tuple[Model, Model]:
    """What is true and what is possible (true or undefined) in the well-founded model: the alternating fixpoint."""
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
                needs = [(atom, 1 if item.negated else 0)]
                if item.negated:
                    needs.append(((atom[0], atom[1], not atom[2]), 0))
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
    before = len(rows)
    tests = [item for item in rule.body if not isinstance(item, Literal) or item.negated]
    atoms = [item.atom for item in rule.body if isinstance(item, Literal) and not item.negated]
    new = set()
    for env in _join(atoms, {}, found):
        env = _equate(tests, env)
        if env is not None and all(holds(item, env, found, assumed) for item in tests):
            new.add(tuple(env[arg] if isinstance(arg, Variable) else arg for arg in rule.head.args))
    rows |= new
    return len(rows) > before


def instances(rule: Rule, found: Model) -> Iterator[tuple[Atom, list[Atom], bool]]:
    """Every instance of a rule in a model: conclusion, facts it rests on, whether it rests on an absence too.

    A negated literal that holds both by absence and by an explicit negative gives an instance of either kind.
    """
    tests = [item for item in rule.body if not isinstance(item, Literal) or item.negated]
    atoms = [item.atom for item in rule.body if isinstance(item, Literal) and not item.negated]
    for env in _join(atoms, {}, found):
        env = _equate(tests, env)
        if env is None or not all(holds(item, env, found) for item in tests):
            continue
        # What an anonymous variable stood for is not in `env`: each matching fact is a premise of its own.
        choices = [_rows(atom, env, found) for atom in atoms]
        for item in tests:
            if isinstance(item, Literal):
                opposite = Atom(item.atom.predicate, item.atom.args, not item.atom.positive)
                absent = [None] if not _rows(item.atom, env, found) or Variable("_") in item.atom.args else []
                choices.append(absent or _rows(opposite, env, found))
                if absent and Variable("_") not in item.atom.args:
                    choices[-1] = [None, *_rows(opposite, env, found)]
        head = Atom(rule.head.predicate, tuple(env.get(a, a) for a in rule.head.args), rule.head.positive)
        for choice in product(*choices):
            yield head, [fact for fact in choice if fact is not None], None in choice


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


def _equate(tests: list, env: dict) -> dict | None:
    env = dict(env)
    for _ in tests:
        for item in tests:
            if isinstance(item, Comparison) and item.op in ("=", "==") and not item.negated:
                for a, b in ((item.left, item.right), (item.right, item.left)):
                    if isinstance(a, Variable) and a not in env and (not isinstance(b, Variable) or b in env):
                        env[a] = env[b] if isinstance(b, Variable) else b
    return env


def holds(item, env: dict, found: Model, assumed: Model | None = None) -> bool:
    if isinstance(item, Comparison):
        left, right = (env[s] if isinstance(s, Variable) else s for s in (item.left, item.right))
        return compare(COMPARISONS.index(item.op) + (8 if item.negated else 0), left, right)
    name, arity, positive = key(item.atom)
    denials = found.get((name, arity, not positive), set())
    present = found if assumed is None else assumed
    rows = (row for row in present.get((name, arity, positive), ()) if row not in denials)
    return not any(_unify(item.atom.args, row, env) is not None for row in rows)


def answers(found: Model, goal: Atom) -> set[tuple[str, ...]]:
    return {row for row in found.get(key(goal), ()) if _unify(goal.args, row, {}) is not None}
