"""Scopes, databases and tenants as a whole, and previews of changes: bodies and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kbcore.branching.preview import DEFAULT_LISTED, Proposal, rule_retraction
from kbcore.branching.truth_changes import TruthValue
from kbcore.errors import InvalidInput, TooLarge
from kbcore.operations.scopes import SOURCE_WINS
from kbcore.state.changes import RetractPattern
from kbcore.state.facts import Fact
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Rule
from kbplanner.pacing import current_yield, paced
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.textform import atom_from_text
from kbserver.http.request_context import DEFAULT, runtime
from kbserver.schemas.atoms import AtomBody, atom_given, atom_terms
from kbserver.schemas.base import Answer, Body, JsonObject, answer_of, instance, present, within
from kbserver.schemas.facts import FactBody, Row
from kbserver.schemas.fields import (
    Choice,
    Count,
    Flag,
    Json,
    Many,
    Name,
    PatternArguments,
    Text,
    TextOrElements,
    Time,
    Whole,
    WriteScope,
)
from kbserver.schemas.requests import Budgeted, OfAnyInstant, request_limits
from kbserver.schemas.rules import clauses_of
from kbtypes import results
from kbtypes.results import ScopeDiff

_SOURCE = ("sourceScope", "source", "scopeA")
_TARGET = ("targetScope", "target", "scopeB")
_TENANT = ("tenantId", "id", "name")

MAX_LISTED = 1000
"""Largest `limit` of a preview."""

_CHANGES = ("tell", "teach", "forget", "forgetRules")

Reader = Callable[[Any, str], None]
"""Reads one element of a list; its second argument is the place of the element in the body."""


class TwoScopesBody(Body):
    """A source and a target, of which at least one is named.

    Null is the base, and so is the name `default`: published clients send it.
    """

    source_scope = WriteScope()
    source = WriteScope()
    scope_a = WriteScope()
    target_scope = WriteScope()
    target = WriteScope()
    scope_b = WriteScope()

    requires: ClassVar[Json] = {"anyOf": [present(key) for key in _SOURCE + _TARGET]}

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.diff_scopes`."""
        source, target = self.value_of(fields, _SOURCE), self.value_of(fields, _TARGET)
        if source is None and target is None:
            raise InvalidInput.at(
                "sourceScope", "or targetScope is required; null is the base, but not for both"
            )
        return {"source": source, "target": target}

    def value_of(self, fields: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
        """Return the value of the first spelling that is given.

        Raises InvalidInput for different values under two spellings.
        """
        names = {key: self._fields[key][0] for key in keys}
        values = {key: fields[name] for key, name in names.items() if name in fields}
        if len(set(values.values())) > 1:
            first, other, *_ = values
            raise InvalidInput.at(other, f"says something else than {first}")
        name = next(iter(values.values()), None)
        return None if name == DEFAULT else name


class ScopeDiffBody(TwoScopesBody, OfAnyInstant):
    """Two scopes to compare."""


class ScopeForkBody(TwoScopesBody):
    """A scope to copy, and the name of the copy."""

    overwrite = Flag()

    requires: ClassVar[Json] = {"anyOf": [present(key) for key in _TARGET]}

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.fork_scope`."""
        source, target = self.value_of(fields, _SOURCE), self.value_of(fields, _TARGET)
        if target is None:
            raise InvalidInput.at("targetScope", "is required")
        return {"source": source, "target": target, "overwrite": fields.get("overwrite", False)}


class ScopeMergeBody(TwoScopesBody):
    """A scope to merge, the scope to merge into, and the strategy for conflicts."""

    strategy = Text()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.merge_scope`."""
        return {**super().arguments(fields), "strategy": fields.get("strategy", SOURCE_WINS)}


class NewDatabaseBody(Body):
    """A database to create."""

    name = Name(required=True)


class NewTenantBody(Body):
    """A tenant to create: its id under one of three keys."""

    tenant_id = Name()
    id = Name()
    name = Name()

    requires: ClassVar[Json] = {"anyOf": [present(key) for key in _TENANT]}

    def arguments(self, fields: Json) -> Json:
        """Return the id."""
        for name in ("tenant_id", "id", "name"):
            if name in fields:
                return {"tenant": fields[name]}
        raise InvalidInput.at("tenantId", "is required")


class Forked(JsonObject):
    """The outcome of a fork."""

    copied = Count()
    source_scope = Text(allow_none=True)
    target_scope = Text()


Merged = answer_of(
    results.MergeOutcome,
    "Merged",
    conflicts_for_older_clients=Count(of="conflicts", data_key="conflicts"),
)


ModifiedFact = answer_of(results.Modified, "ModifiedFact")


class Compared(JsonObject):
    """The differences of two scopes."""

    added = Many(Row)
    removed = Many(Row)
    modified = Many(ModifiedFact)
    only_in_a = Many(Row)
    only_in_b = Many(Row)
    in_both = Count()
    conflicts = Count()
    unchanged = Count()


class Dropped(JsonObject):
    """A deleted scope."""

    deleted = Count("Facts that were deleted.")
    scope = Text()


class Scopes(JsonObject):
    """The scopes of a tenant."""

    scopes = Many(Text())
    count = Count()


class Database(Answer):
    """A database."""

    name = Text()
    is_multi_tenant = Flag(of=lambda database: True)
    tenants = Count()
    facts = Count()
    created_at = Time(allow_none=True)


def diff_counts(diff: ScopeDiff) -> dict[str, int]:
    """Return the counts of common and of different facts of two scopes."""
    changed = len(diff.modified)
    return {"inBoth": diff.unchanged + changed, "conflicts": changed, "unchanged": diff.unchanged}


class ForgottenBody(AtomBody):
    """A fact to retract, or a pattern: null and variables match anything."""

    args = PatternArguments()
    scope = WriteScope()

    def arguments(self, fields: Json) -> Json:
        """Return the retraction."""
        atom, positive = atom_given(fields, nulls=True)
        pattern = RetractPattern(atom.predicate, atom_terms(atom), positive, fields.get("scope"))
        return {"retraction": pattern}


class PreviewBody(Budgeted):
    """A change: facts and rules to retract, then facts and rules to store."""

    tell = TextOrElements(
        FactBody,
        {"type": "string"},
        description="Facts to store: a text of facts and rules, or an array of such texts and of "
        "facts; at most MAX_BULK_FACTS facts.",
    )
    teach = Text("Rules and facts to store.")
    forget = TextOrElements(
        ForgottenBody,
        {"type": "string"},
        description="Facts or patterns to retract: a text such as `parent(ann, ?x)`, or an array "
        "of such texts and of objects.",
    )
    forget_rules = TextOrElements(
        {"type": "string"}, description="Rules to retract: ids, or texts of rules."
    )
    scope = WriteScope()
    limit = Whole(0, MAX_LISTED, f"Of each list; default {DEFAULT_LISTED}.")

    requires: ClassVar[Json] = {"anyOf": [present(key) for key in _CHANGES]}

    def _read(self, data: Mapping[str, Any], strict: bool, path: str) -> Json:
        """Return the arguments of `TenantKB.preview`; an error names the element and its field."""
        fields = super()._read(data, strict, path)
        if not any(name in fields for name in ("tell", "teach", "forget", "forget_rules")):
            raise InvalidInput.at("tell", "or teach, forget or forgetRules is required")
        scope = fields.get("scope")
        facts: list[Fact] = []
        definitions: list[Definition] = []
        retractions: list[RetractPattern] = []

        def store(element: Any, at: str) -> None:
            if type(element) is str:
                more_definitions, more_facts = clauses_of(
                    element, scope, at, final_dot=at == "teach", labelled=True
                )
                definitions.extend(more_definitions)
                facts.extend(more_facts)
            else:
                fact = instance(FactBody).read(element, strict=strict, path=f"{at}.")["fact"]
                facts.append(fact if fact.scope else replace(fact, scope=scope))

        def forget(element: Any, at: str) -> None:
            if type(element) is str:
                atom = atom_from_text(element, at)
                positive = None if atom.positive else False
                retraction = RetractPattern(atom.predicate, atom_terms(atom), positive)
            else:
                form = instance(ForgottenBody).read(element, strict=strict, path=f"{at}.")
                retraction = form["retraction"]
            retractions.append(retraction if retraction.scope else replace(retraction, scope=scope))

        _read_each(fields.get("tell", []), "tell", store)
        if "teach" in fields:
            store(fields["teach"], "teach")
        _read_each(fields.get("forget", []), "forget", forget)
        if len(facts) > (limit := runtime().config.max_bulk_facts):
            raise TooLarge(
                f"a preview takes at most {counted(limit, 'fact')}, this one has {len(facts)}",
                {"limit": "MAX_BULK_FACTS", "value": limit},
            )
        proposal = Proposal(
            tuple(facts),
            tuple(each for each in definitions if isinstance(each, Rule)),
            tuple(retractions),
            tuple(
                rule_retraction(text, scope)
                for text in paced(
                    _rule_names(fields.get("forget_rules", [])),
                    current_yield(),
                    ELEMENTS_PER_YIELD,
                )
            ),
        )
        return {
            "proposal": proposal,
            "limit": fields.get("limit", DEFAULT_LISTED),
            "request_limits": request_limits(fields),
        }


_WAS = Choice(*(truth.value for truth in TruthValue), description="The truth before the change.")

TruthChange = answer_of(results.TruthChange, "TruthChange", was=_WAS)


Previewed = answer_of(
    results.Preview,
    "Previewed",
    warnings=Many(
        Text(),
        "About the rules to store.",
        of=lambda outcome: [each.text for each in outcome.warnings],
    ),
)


ELEMENTS_PER_YIELD = 10
"""Elements read between two calls of `yield_now`: a fraction of a millisecond, as some are
texts.
"""


def _read_each(value: Any, name: str, read: Reader) -> None:
    """Read one text, or each element of a list of texts and objects."""
    if type(value) is str:
        read(value, name)
        return
    if type(value) is not list:
        raise InvalidInput.at(name, "must be a text or an array")
    for index, element in paced(enumerate(value), current_yield(), ELEMENTS_PER_YIELD):
        at = f"{name}[{index}]"
        if type(element) is str:
            read(element, at)
            continue
        if type(element) is not dict:
            raise InvalidInput.at(at, "must be a text or an object")
        try:
            read(element, at)
        except InvalidInput as error:
            raise within(error, at) from None


def _rule_names(value: Any) -> Sequence[str]:
    """Return the texts of rules or ids to retract."""
    texts = [value] if type(value) is str else value
    if type(texts) is not list or not all(type(text) is str for text in texts):
        raise InvalidInput.at("forgetRules", "must be a text or an array of texts")
    return texts
