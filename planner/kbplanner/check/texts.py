"""The check of one or more texts together: all findings of each text, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from kbplanner.authoring.blocks import BlockSource, TestBlock, read_source
from kbplanner.check.constants import Spelling, case_differences
from kbplanner.check.exclusions import excluded_premises
from kbplanner.check.external import SEARCH_PREDICATES, external_findings, hint_for
from kbplanner.check.findings import Findings
from kbplanner.check.lint import lint, never_holds
from kbplanner.check.recursion import REFUSED, recursion_findings
from kbplanner.check.rules import (
    Signature,
    contradiction,
    is_trivial,
    never_fire,
    same_rule,
    shadowed,
)
from kbplanner.check.suppressions import without_suppressed
from kbplanner.errors import InvalidInput, UnboundArgument, UnsafeRule
from kbplanner.ir.dimensions import Dimension
from kbplanner.ir.inputs import Input
from kbplanner.ir.limits import DEFAULT_LIMITS, Limits, shortened
from kbplanner.ir.modes import Modes
from kbplanner.ir.terms import Atom, Comparison, Literal, Rule
from kbplanner.pacing import go_on, let_go, paced
from kbplanner.passes.check import (
    check_fact,
    counterpart,
    rule_errors,
    type_mismatch,
    variable_lookalikes,
)
from kbplanner.syntax.arity import arity_warnings
from kbplanner.syntax.constraints import CONTRADICTION, is_optional
from kbplanner.syntax.labels import label_problem
from kbplanner.syntax.parser import imported_sets, parse_valid
from kbplanner.syntax.printer import print_constant
from kbplanner.syntax.statements import (
    DeclarationStatement,
    FactStatement,
    GoalStatement,
    RuleStatement,
    Statement,
    TextSpan,
)
from kbtypes.results import Finding

PROGRAM, GOAL = "program", "goal"
KINDS = (PROGRAM, GOAL)
"""Kinds of texts: facts, rules and queries, or one goal without `?-` and dot."""

MAX_ERRORS = 1000
"""Number of syntax errors after which the rest of a text is not read."""


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """Stored predicates with their arities, and stored rules, beside the checked texts.

    `external` has the modes of the predicates that plugins provide. Those of SEARCH_PREDICATES are
    known as well, unless the texts or the storage define them. `sets` has the names of the stored
    rule sets with rules of a predicate. `dimensions` are those of labels.
    """

    predicates: Mapping[str, AbstractSet[int]] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    external: Modes = field(default_factory=dict)
    sets: Mapping[Signature, AbstractSet[str]] = field(default_factory=dict)
    dimensions: Mapping[str, Dimension] = field(default_factory=dict)


NOTHING_STORED = StoredProgram()


PACE = 1
STATEMENTS_PER_YIELD = 20_000
"""Statements whose kind is looked at between two calls of `yield_now`: about a millisecond."""

CHEAP_PACE = 500
"""Statements or rules between two calls of `yield_now`, in checks of one or all of them: one can
have 64 KiB of expressions.
"""


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text that was read, so that who needs its statements as well reads it once."""

    text: str
    source: BlockSource

    @classmethod
    def of(
        cls, text: str, limits: Limits = DEFAULT_LIMITS, yield_now: Callable[[], None] = go_on
    ) -> ReadText:
        """Read a text, up to MAX_ERRORS errors; `yield_now` is called about once a millisecond."""
        source = read_source(text, limits, max_errors=MAX_ERRORS, yield_now=yield_now)
        return cls(text, source)


def _accept(statement: Statement) -> str | None:
    return None


@dataclass(slots=True)
class _Checked:
    """A text while it is checked.

    `statements` are those without syntax errors, `safe` its rules that can be stored,
    `unread_names` the words of statements with syntax errors. `name` is that of its file, `module`
    that of its rule set, if they are known; `imports` are the rule sets that it imports, and
    `is_strict` tells whether it has `@strict`.
    """

    findings: Findings
    statements: list[Statement]
    unread_names: AbstractSet[str] = frozenset()
    blocks: Sequence[TestBlock] = ()
    safe: list[RuleStatement] = field(default_factory=list)
    module: str | None = None
    name: str | None = None
    imports: Sequence[str] = ()
    is_strict: bool = False

    def goals(self, yield_now: Callable[[], None]) -> list[GoalStatement]:
        """Return the queries of the text."""
        statements = paced(self.statements, yield_now, STATEMENTS_PER_YIELD)
        return [each for each in statements if isinstance(each, GoalStatement)]


def check_texts(
    texts: Sequence[str | ReadText],
    stored: StoredProgram = NOTHING_STORED,
    *,
    names: Sequence[str] = (),
    scope: str | None = None,
    problem_of: Callable[[Statement], str | None] = _accept,
    limits: Limits = DEFAULT_LIMITS,
    yield_now: Callable[[], None] = go_on,
) -> list[list[Finding]]:
    """Return the findings of each text, in order; the texts belong together, and some may have been
    read already.

    `names` are those of their files, for messages, if they are known. `scope` is the scope of rules
    that name none. `problem_of` returns what else is wrong with a statement. `yield_now` is called
    after each statement that was read, and in the loops over statements and rules after that. Never
    raises for what is wrong with a text.
    """
    read = [
        text if isinstance(text, ReadText) else ReadText.of(text, limits, yield_now)
        for text in texts
    ]
    parts = [_checked(each, yield_now) for each in read]
    for part, name in zip(parts, names, strict=False):
        part.name = name
    is_strict = any(part.is_strict for part in parts)
    for part in parts:
        part.is_strict = is_strict
    parts += _imported(parts, yield_now)
    _check_types(parts, yield_now)
    _check_labels(parts, stored, yield_now)
    _check_blocks(parts, yield_now)
    for part in parts:
        _check_statements(part, paced(part.statements, yield_now, PACE), limits, problem_of)
        for statement in paced(part.safe, yield_now, PACE):
            for warning in lint([statement]):
                if warning.span is not None:
                    part.findings.add(warning.code, warning.span, warning.message, warning.hint)
    stored = _with_searches(parts, stored, yield_now)
    _check_definitions(parts, stored, yield_now)
    _check_uses(parts, stored, yield_now)
    refused = _check_recursion(parts, stored, scope, yield_now)
    yield_now()
    _check_external(parts, stored, scope, refused, yield_now)
    yield_now()
    _check_rules(parts, stored, scope, refused, yield_now)
    yield_now()
    _check_sets(parts, stored, yield_now)
    _check_constants(parts[: len(read)], yield_now)
    findings_of = [
        without_suppressed(each.text, part.findings, yield_now)
        for each, part in zip(read, parts[: len(read)], strict=True)
    ]
    for part in parts:
        let_go(part.safe, yield_now)
        let_go(part.statements, yield_now)
        part.findings.let_go(yield_now)
    for text, each in zip(texts, read, strict=True):
        if isinstance(text, str):
            let_go(each.source.parsed.statements, yield_now)
    return findings_of


def _checked(read: ReadText, yield_now: Callable[[], None]) -> _Checked:
    findings, source = Findings(read.text, yield_now), read.source
    parsed = source.parsed
    for error in parsed.errors:
        findings.add_error(error)
    module = None if parsed.module is None else parsed.module.name
    return _Checked(
        findings,
        source.statements,
        parsed.unread_names,
        source.blocks,
        module=module,
        imports=parsed.imports,
        is_strict=parsed.is_strict,
    )


def _imported(parts: Sequence[_Checked], yield_now: Callable[[], None]) -> Iterator[_Checked]:
    """Yield the rule sets that texts import; nothing is reported about them."""
    names = (name for part in parts for name in part.imports)
    for name, parsed in imported_sets(names, yield_now).items():
        yield _Checked(Findings(""), list(parsed.statements), name=name)


def check_goal(
    text: str,
    stored: StoredProgram = NOTHING_STORED,
    *,
    limits: Limits = DEFAULT_LIMITS,
    yield_now: Callable[[], None] = go_on,
) -> list[Finding]:
    """Return the findings of a goal, such as `ancestor(ann, ?x)` or `age(?x, ?n), ?n >= 18`.

    `yield_now` is called about once a millisecond.
    """
    findings = Findings(text)
    parsed = parse_valid(text, limits, mode=GOAL, max_errors=MAX_ERRORS, yield_now=yield_now)
    for error in parsed.errors:
        findings.add_error(error)
    part = _Checked(findings, parsed.statements, parsed.unread_names)
    goals = part.goals(yield_now)
    if not parsed.errors and len(goals) != 1:
        at = goals[1].span if goals else TextSpan(1, 1, 1, 2)
        findings.add("wrong-statement", at, f"expected one goal, found {len(goals)}")
    for goal in goals:
        if len(goal.body) == 1 and isinstance(goal.body[0], Comparison):
            message = "a goal is an atom, found a builtin, which has no answers of its own"
            findings.add("wrong-statement", goal.span, message)
    _check_statements(part, paced(part.statements, yield_now, PACE), limits, _accept)
    stored = _with_searches([part], stored, yield_now)
    _check_definitions([part], stored, yield_now)
    _check_external([part], stored, None, set(), yield_now)
    return findings.in_order()


# ---- statements by themselves ----


def _check_statements(
    part: _Checked,
    statements: Iterable[Statement],
    limits: Limits,
    problem_of: Callable[[Statement], str | None],
) -> None:
    for statement in statements:
        problem = problem_of(statement)
        if problem is not None:
            part.findings.add("bad-annotation", statement.span, problem)
        if isinstance(statement, FactStatement):
            try:
                check_fact(statement.atom, limits)
            except InvalidInput as error:
                part.findings.add("invalid", statement.span, error.message)
        elif isinstance(statement, GoalStatement):
            _check_query(part.findings, statement, limits)
        elif isinstance(statement, RuleStatement):
            _check_rule(part, statement, limits)


def _check_query(findings: Findings, goal: GoalStatement, limits: Limits) -> None:
    item = goal.body[0]
    if len(goal.body) > 1 or isinstance(item, Comparison):
        for problem in rule_errors(Rule(Atom("goal"), goal.body), limits):
            findings.add(*_placed(goal, problem))
    elif item.negated:
        try:
            counterpart(item)
        except InvalidInput as error:
            findings.add(*_placed(goal, error))
    for each, span in zip(goal.body, goal.items, strict=False):
        if isinstance(each, Comparison) and never_holds(each):
            findings.add("never-holds", span, f"a comparison with {each.op} can never hold")


def _check_rule(part: _Checked, statement: RuleStatement, limits: Limits) -> None:
    rule, findings = statement.rule, part.findings
    problems = rule_errors(rule, limits)
    for problem in problems:
        findings.add(*_placed(statement, problem))
    if problems:
        return
    part.safe.append(statement)
    head = statement.predicates[0][2]
    for warning in variable_lookalikes(rule):
        findings.add(warning.code, head, warning.message, warning.hint)
    if is_trivial(rule):
        message = "the rule concludes only what its own body needs"
        findings.add("shadowed-rule", head, message, "leave the rule out")
    reason = contradiction(rule)
    if reason is not None:
        findings.add("never-fires", head, f"the rule never fires: {reason}")


def _check_types(parts: Sequence[_Checked], yield_now: Callable[[], None]) -> None:
    """Report facts whose arguments are not of the types that a strict input declares.

    `@strict` of one text is about the inputs of all of them, except those that are imported.
    """
    inputs: dict[tuple[str | None, str, int], Input] = {}
    for part in parts:
        for statement in paced(part.statements, yield_now, STATEMENTS_PER_YIELD):
            if not isinstance(statement, DeclarationStatement):
                continue
            declared = statement.declaration
            if isinstance(declared, Input) and (part.is_strict or declared.is_strict):
                inputs[declared.scope, declared.predicate, declared.arity] = declared
    if not inputs:
        return
    for part in parts:
        for statement in paced(part.statements, yield_now, CHEAP_PACE):
            if not isinstance(statement, FactStatement):
                continue
            atom, scope = statement.atom, statement.annotations.scope
            known = inputs.get((scope, atom.predicate, atom.arity))
            known = known or inputs.get((None, atom.predicate, atom.arity))
            args = [arg for arg in atom.args if isinstance(arg, str)]
            if known is None or len(args) < atom.arity:  # a fact with variables is reported anyway
                continue
            if (at := known.mistyped(args)) is not None:
                part.findings.add("invalid", statement.span, type_mismatch(known, args, at))


def _check_labels(
    parts: Sequence[_Checked], stored: StoredProgram, yield_now: Callable[[], None]
) -> None:
    """Report options of statements that are labels of no dimension."""
    dimensions = dict(stored.dimensions)
    for part in parts:
        for statement in paced(part.statements, yield_now, STATEMENTS_PER_YIELD):
            if isinstance(statement, DeclarationStatement):
                declared = statement.declaration
                if isinstance(declared, Dimension):
                    dimensions[declared.name] = declared
    for part in parts:
        for statement in paced(part.statements, yield_now, CHEAP_PACE):
            if isinstance(statement, FactStatement):
                kind, labels = "fact", statement.annotations.labels
            elif isinstance(statement, RuleStatement):
                kind, labels = "rule", statement.rule.labels
            else:
                continue
            for label in labels:
                if problem := label_problem(label, dimensions, kind):
                    span = TextSpan(label.line, problem.start, label.line, problem.end)
                    part.findings.add(problem.code, span, problem.message, problem.hint)


def _placed(
    statement: RuleStatement | GoalStatement, error: InvalidInput
) -> tuple[str, TextSpan, str, str | None]:
    if not isinstance(error, UnsafeRule):
        return "invalid", statement.span, error.message, None
    span = statement.span
    if isinstance(statement, RuleStatement):
        span = statement.where(error.variable)
    else:
        places = zip(statement.body, statement.items, strict=False)
        spans = (at for item, at in places if error.variable in map(str, item.variables()))
        span = next(spans, span)
    return "unsafe", span, error.message, error.hint


# ---- test blocks ----


BLOCKS_PER_YIELD = 20
"""Test blocks checked between two calls of `yield_now`: about a millisecond; each has some
queries.
"""


def _check_blocks(parts: Sequence[_Checked], yield_now: Callable[[], None]) -> None:
    """Check names of tests and fixtures, and the fixtures and rules that tests name."""
    first: dict[tuple[str, str], TestBlock] = {}
    fixtures = {block.name for part in parts for block in part.blocks if block.kind == "fixture"}
    rules = {
        statement.rule.name
        for part in parts
        for statement in paced(part.statements, yield_now, CHEAP_PACE)
        if isinstance(statement, RuleStatement)
    }
    for part in parts:
        for block in paced(part.blocks, yield_now, BLOCKS_PER_YIELD):
            other = first.setdefault((block.kind, block.name), block)
            if other is not block:
                line = other.span.line
                message = f'the {block.kind} "{block.name}" exists already, in line {line}'
                part.findings.add("bad-test", block.span, message, "choose another name")
            for name in block.fixtures:
                if name not in fixtures:
                    part.findings.add("bad-test", block.span, f'no fixture "{name}"')
            for expectation in block.expectations:
                span = expectation.statement.span
                rule = expectation.rule
                if rule is None:
                    continue
                if rule not in rules:
                    part.findings.add("bad-test", span, f'no rule "@{rule}"')
                item = expectation.body[0]
                if len(expectation.body) > 1 or not isinstance(item, Literal) or item.negated:
                    message = '"because" follows a query of one atom that is not under "not"'
                    part.findings.add("bad-test", span, message)


# ---- predicates ----


def _check_definitions(
    parts: Sequence[_Checked], stored: StoredProgram, yield_now: Callable[[], None]
) -> None:
    """Warn about predicates that nothing defines and about unusual numbers of arguments.

    Where neither the texts nor the storage have facts or declared inputs, the facts come from
    elsewhere, and only names that are similar to a known one are reported.
    """
    has_facts = bool(stored.predicates) or any(
        True for part in parts for _ in _with_facts(part, yield_now)
    )
    stored_arities = paced(stored.predicates.items(), yield_now, CHEAP_PACE)
    known = {name: set(arities) for name, arities in stored_arities}
    defined = {signature for part in parts for signature in _defined(part, yield_now)}
    defined |= _signatures(stored.external)
    unread = _unread_names(parts)
    only_similar = not has_facts or any(
        block.file is not None and block.file.predicate is None
        for part in parts
        for block in part.blocks
    )
    for part in parts:
        warnings = arity_warnings(
            part.statements, known, defined, unread, only_similar=only_similar, yield_now=yield_now
        )
        for warning in paced(warnings, yield_now, CHEAP_PACE):
            if warning.span is not None:
                part.findings.add(warning.code, warning.span, warning.message, warning.hint)
        let_go(warnings, yield_now)


def _defined(part: _Checked, yield_now: Callable[[], None]) -> Iterator[Signature]:
    yield from _with_facts(part, yield_now)
    for statement in paced(part.statements, yield_now, CHEAP_PACE):
        if isinstance(statement, RuleStatement):
            yield statement.rule.head.predicate, statement.rule.head.arity


def _unread_names(parts: Iterable[_Checked]) -> set[str]:
    """Return the words of statements with errors, and the predicates of files of fixtures: what is
    known of them is not all.
    """
    names = {name for part in parts for name in part.unread_names}
    files = (block.file for part in parts for block in part.blocks)
    return names | {file.predicate for file in files if file is not None and file.predicate}


def _check_uses(
    parts: Sequence[_Checked], stored: StoredProgram, yield_now: Callable[[], None]
) -> None:
    """Warn about heads, in texts with queries, that no other rule and no query reads."""
    if not any(part.goals(yield_now) for part in parts):
        return
    unread = _unread_names(parts)
    used = {
        signature
        for rule in paced(stored.rules, yield_now, CHEAP_PACE)
        for signature in _read_by(rule)
    }
    used.add((CONTRADICTION, 3))  # windows and summaries show it
    for part in parts:
        for statement in paced(part.statements, yield_now, CHEAP_PACE):
            if isinstance(statement, RuleStatement):
                used.update(_read_by(statement.rule))
            elif isinstance(statement, GoalStatement):
                used.update((name, arity) for name, arity, _ in statement.predicates)
    for part in parts:
        reported: set[Signature] = set()
        statements = part.statements if part.goals(yield_now) else ()
        for statement in paced(statements, yield_now, CHEAP_PACE):
            if isinstance(statement, RuleStatement):
                name, arity, span = statement.predicates[0]
                signature = (name, arity)
                if not (signature in used or signature in reported or name in unread):
                    reported.add(signature)
                    message = f"no rule and no query uses {name}/{arity}"
                    part.findings.add("unused-predicate", span, message)
    let_go(used, yield_now)


def _read_by(rule: Rule) -> Iterator[Signature]:
    """Yield the predicates of a body without that of the head."""
    head = (rule.head.predicate, rule.head.arity)
    for item in rule.body:
        if isinstance(item, Literal):
            signature = (item.atom.predicate, item.atom.arity)
            if signature != head:
                yield signature


# ---- rules together ----


def _check_rules(
    parts: Sequence[_Checked],
    stored: StoredProgram,
    scope: str | None,
    refused: AbstractSet[int],
    yield_now: Callable[[], None],
) -> None:
    """Check names of rules, and warn about rules that never fire and about shadowed rules.

    `refused` are the identities of rules whose recursion cannot be evaluated.
    """
    own = [
        (part, statement)
        for part in parts
        for statement in paced(part.safe, yield_now, STATEMENTS_PER_YIELD)
    ]
    rules = list(stored.rules)
    rules += (_scoped(each.rule, scope) for _, each in paced(own, yield_now, CHEAP_PACE))
    program = _CheckedRules(own, rules, len(stored.rules))
    _check_names(program, yield_now)
    _check_shadowed(program, yield_now)
    for index, reason in excluded_premises(rules, yield_now):
        if (owner := program.owner(index)) is not None:
            part, statement = owner
            part.findings.add("never-fires", statement.predicates[0][2], f"the rule {reason}")
    facts = {signature for part in parts for signature in _with_facts(part, yield_now)}
    facts |= {(name, arity) for name, arities in stored.predicates.items() for arity in arities}
    if not facts and not any(part.goals(yield_now) for part in parts):
        return  # the facts come from elsewhere
    facts |= _signatures(stored.external)
    unread = _unread_names(parts)
    facts |= {
        (rule.head.predicate, rule.head.arity)
        for rule in paced(rules, yield_now, CHEAP_PACE)
        if rule.head.predicate in unread
    }
    _check_firing(program, facts, refused, yield_now)


@dataclass(frozen=True, slots=True)
class _CheckedRules:
    """The rules of all texts, `own` with their texts, after the stored ones.

    `first` is the index of the first rule of a text in `rules`.
    """

    own: Sequence[tuple[_Checked, RuleStatement]]
    rules: Sequence[Rule]
    first: int

    def owner(self, index: int) -> tuple[_Checked, RuleStatement] | None:
        """Return the text and the statement of a rule; None for a stored rule."""
        return self.own[index - self.first] if index >= self.first else None


def _check_shadowed(program: _CheckedRules, yield_now: Callable[[], None]) -> None:
    """Warn about rules whose conclusions another rule has too."""
    rules = program.rules
    for index, other in shadowed(rules, yield_now):
        owner = program.owner(index)
        if owner is None or is_trivial(rules[index]):
            continue
        part, statement = owner
        general = f"the stored rule {rules[other].name or ''}".rstrip()
        if (other_owner := program.owner(other)) is not None:
            text, shadowing = other_owner
            where = "" if text is part else f" of {text.name or 'another file'}"
            general = f"the rule in line {shadowing.span.line}{where}"
        message = f"the rule adds nothing: {general} has all of its conclusions"
        if same_rule(rules[other], rules[index]):
            message = f"the rule is there twice: {general} is the same"
        part.findings.add("shadowed-rule", statement.predicates[0][2], message)


def _check_firing(
    program: _CheckedRules,
    facts: AbstractSet[Signature],
    refused: AbstractSet[int],
    yield_now: Callable[[], None],
) -> None:
    """Warn about rules that need a predicate without facts; `facts` are those with facts."""
    for index, atom in never_fire(program.rules, facts, yield_now):
        owner = program.owner(index)
        if owner is None or id(owner[1]) in refused or is_optional(program.rules[index]):
            continue
        part, statement = owner
        name = f"{'' if atom.positive else '~'}{atom.predicate}/{atom.arity}"
        message = f"the rule never fires: {name} has no facts, and none of its rules can fire"
        hint = f"add a fact of {name}, or a rule for it that does not need it"
        part.findings.add("never-fires", statement.predicates[0][2], message, hint)


def _with_facts(part: _Checked, yield_now: Callable[[], None]) -> Iterator[Signature]:
    """Yield the predicates that have facts in a text, or get facts because they are inputs."""
    for statement in paced(part.statements, yield_now, CHEAP_PACE):
        if isinstance(statement, FactStatement):
            yield statement.atom.predicate, statement.atom.arity
        elif isinstance(statement, DeclarationStatement):
            declared = statement.declaration
            if isinstance(declared, Input):
                yield declared.predicate, declared.arity


def _check_sets(
    parts: Sequence[_Checked], stored: StoredProgram, yield_now: Callable[[], None]
) -> None:
    """Warn about predicates with rules in several rule sets, once in each text."""
    sets: dict[Signature, set[str]] = {
        signature: set(names) for signature, names in stored.sets.items()
    }
    heads: list[tuple[_Checked, Signature, TextSpan]] = []
    for part in parts:
        own: set[Signature] = set()
        for statement in paced(part.safe if part.module else (), yield_now, CHEAP_PACE):
            name, arity, span = statement.predicates[0]
            if (name, arity) not in own and name != CONTRADICTION:
                own.add((name, arity))
                sets.setdefault((name, arity), set()).add(part.module or "")
                heads.append((part, (name, arity), span))
    for part, (name, arity), span in paced(heads, yield_now, CHEAP_PACE):
        names = sorted(sets[name, arity])
        if len(names) > 1:
            listed = f"{', '.join(names[:-1])} and {names[-1]}"
            message = f"the rules of {name}/{arity} are in the rule sets {listed}"
            hint = "keep the rules of a predicate in one rule set"
            part.findings.add("split-definition", span, message, hint)


def _check_constants(parts: Sequence[_Checked], yield_now: Callable[[], None]) -> None:
    """Warn about constants that differ only in case from others in the same argument position."""
    for each in case_differences([part.statements for part in parts], yield_now):
        (text, index), (other_text, other_index) = each.at, each.other_at
        part, other = parts[text], parts[other_text]
        where = "" if other is part else f" of {other.name or 'another file'}"
        line = other.statements[other_index].span.line
        constant, usual = (print_constant(shortened(it)) for it in (each.constant, each.other))
        predicate = f"{each.position.predicate}/{each.position.arity}"
        message = (
            f"{constant} differs only in case from {usual}, in line {line}{where}, as argument"
            f" {each.position.number} of {predicate}"
        )
        part.findings.add("constant-case", _place(part.statements[index], each), message)


def _place(statement: Statement, spelling: Spelling) -> TextSpan:
    """Return where a statement uses a constant: its predicate, or the whole fact."""
    signature = spelling.position.predicate, spelling.position.arity
    if isinstance(statement, RuleStatement | GoalStatement):
        places = (span for *each, span in statement.predicates if (*each,) == signature)
        return next(places, statement.span)
    return statement.span


def _check_names(program: _CheckedRules, yield_now: Callable[[], None]) -> None:
    rules = program.rules
    by_name: dict[tuple[str | None, str], int] = {}
    for index, rule in paced(enumerate(rules), yield_now, CHEAP_PACE):
        if rule.name is None:
            continue
        other = by_name.setdefault((rule.scope, rule.name), index)
        owner = program.owner(index)
        if owner is None:
            continue
        yield_now()  # comparing two rules may take as long as the steps between two calls
        if not same_rule(rules[other], rule):
            part, statement = owner
            span = statement.span
            at = TextSpan(span.line, span.column, span.line, span.column + 1 + len(rule.name))
            message = f'the name "{rule.name}" belongs to another rule'
            hint = "choose another name"
            if program.owner(other) is None:
                hint += ", or retract the stored rule first"
            part.findings.add("repeated-name", at, message, hint)


def _check_recursion(
    parts: Sequence[_Checked],
    stored: StoredProgram,
    scope: str | None,
    yield_now: Callable[[], None],
) -> set[int]:
    """Check the rules that are visible together, for every scope.

    Return the identities of the rules whose recursion cannot be evaluated.
    """
    refused: set[int] = set()
    own = [
        (part, statement, _scoped(statement.rule, scope))
        for part in parts
        for statement in paced(part.safe, yield_now, CHEAP_PACE)
    ]
    scopes = {rule.scope for _, _, rule in paced(own, yield_now, CHEAP_PACE)}
    if None in scopes:  # such a rule holds in every scope
        scopes |= {rule.scope for rule in stored.rules}
    for each in sorted(scopes, key=lambda name: (name is not None, name or "")):
        visible, owners = _visible_in(each, stored, own, yield_now)
        first = len(visible) - len(owners)
        for result in recursion_findings(visible, first, yield_now):
            part, statement, _ = owners[result.rule - first]
            head = statement.predicates[0][2]
            part.findings.add(result.name, head, result.message, result.hint or None)
            if result.name in REFUSED:
                refused.add(id(statement))
    return refused


_OwnRule = tuple[_Checked, RuleStatement, Rule]
"""A rule of a text with its statement, and the rule in the scope that it belongs to."""


def _visible_in(
    scope: str | None,
    stored: StoredProgram,
    own: Sequence[_OwnRule],
    yield_now: Callable[[], None],
) -> tuple[list[Rule], list[_OwnRule]]:
    """Return the rules that are visible in a scope, and those of `own` among them.

    The rules of `own` are the last ones.
    """
    visible = [
        rule for rule in paced(stored.rules, yield_now, CHEAP_PACE) if rule.scope in (None, scope)
    ]
    owners = [
        entry for entry in paced(own, yield_now, CHEAP_PACE) if entry[2].scope in (None, scope)
    ]
    visible += [rule for _, _, rule in owners]
    return visible, owners


# ---- predicates of plugins ----


def _with_searches(
    parts: Sequence[_Checked], stored: StoredProgram, yield_now: Callable[[], None]
) -> StoredProgram:
    """Return what is stored, with the predicates that search the facts where nothing defines
    them.
    """
    defined = {signature for part in parts for signature in _defined(part, yield_now)}
    defined |= {(name, n) for name, arities in stored.predicates.items() for n in arities}
    searches = {
        schema: modes
        for schema, modes in SEARCH_PREDICATES.items()
        if (schema.predicate, schema.arity) not in defined
    }
    return replace(stored, external={**searches, **stored.external})


def _signatures(external: Modes) -> set[Signature]:
    return {(schema.predicate, schema.arity) for schema in external}


def _check_external(
    parts: Sequence[_Checked],
    stored: StoredProgram,
    scope: str | None,
    refused: AbstractSet[int],
    yield_now: Callable[[], None],
) -> None:
    """Check facts and heads of predicates of plugins, and that rules and queries can call them.

    `refused` are the identities of rules with recursion through an aggregate.
    """
    signatures = _signatures(stored.external)
    for part in parts:
        for statement in paced(part.statements, yield_now, CHEAP_PACE):
            if isinstance(statement, FactStatement):
                atom, span = statement.atom, statement.span
            elif isinstance(statement, RuleStatement):
                atom, span = statement.rule.head, statement.predicates[0][2]
            else:
                continue
            if atom.positive and (atom.predicate, atom.arity) in signatures:
                message = f"{atom.predicate}/{atom.arity} is an external predicate"
                hint = "choose another name: facts and rules for it cannot be stored"
                part.findings.add("external-predicate", span, message, hint)
    own = [
        (part, statement, _scoped(statement.rule, scope))
        for part in parts
        for statement in paced(part.safe, yield_now, CHEAP_PACE)
        if id(statement) not in refused
    ]
    queries = [
        (part, goal)
        for part in parts
        for goal in paced(part.goals(yield_now), yield_now, CHEAP_PACE)
    ]
    scopes = {scope, *(rule.scope for _, _, rule in paced(own, yield_now, CHEAP_PACE))}
    for each in sorted(scopes, key=lambda name: (name is not None, name or "")):
        visible, owners = _visible_in(each, stored, own, yield_now)
        asked = queries if each == scope else []
        yield_now()
        _add_calls(owners, visible, asked, stored.external, yield_now)
    let_go(own, yield_now)
    let_go(queries, yield_now)


def _add_calls(
    owners: Sequence[_OwnRule],
    visible: Sequence[Rule],
    queries: Sequence[tuple[_Checked, GoalStatement]],
    external: Modes,
    yield_now: Callable[[], None],
) -> None:
    first = len(visible) - len(owners)
    bodies = [goal.body for _, goal in paced(queries, yield_now, CHEAP_PACE)]
    try:
        calls = list(external_findings(visible, bodies, external, yield_now))
    except InvalidInput:  # rules that cannot be evaluated are reported elsewhere
        return
    for call in calls:
        if call.is_query:
            part, goal = queries[call.index]
            span = goal.span
        elif call.index >= first:
            part, statement, _ = owners[call.index - first]
            names = call.error.variables if isinstance(call.error, UnboundArgument) else []
            span = statement.where(names[0]) if names else statement.predicates[0][2]
        else:
            continue
        part.findings.add(call.name, span, call.error.message, hint_for(call.error))


def _scoped(rule: Rule, scope: str | None) -> Rule:
    return rule if rule.scope is not None or scope is None else replace(rule, scope=scope)
