"""Writes of a knowledge base: facts, rules, scripts and retractions, and previews of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kbcore_client._sync.operations import Operations
from kbcore_client.errors import InvalidInput
from kbcore_client.frames import batches_of
from kbcore_client.requests import Request
from kbtypes.episodes import Evidences, spans_of
from kbtypes.results import (
    Preview,
    RetractOutcome,
    StoredStatement,
    StoreOutcome,
)
from kbtypes.values import (
    Arg,
    Duration,
    Instant,
    arguments,
    atom_of,
    duration,
    instant,
    present,
    text_of,
    texts_of,
)

KEEP_BOTH = "KEEP_BOTH"
REPRESENTATION = "return=representation"


class Writes(Operations):
    """Writes of a knowledge base."""

    def tell(  # noqa: PLR0913  one parameter for each attribute of a fact
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        *,
        negated: bool = False,
        scope: str | None = None,
        ttl: Duration | None = None,
        valid_from: Instant | None = None,
        valid_until: Instant | None = None,
        confidence: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        evidence: Evidences = (),
        conflict: str = KEEP_BOTH,
    ) -> StoreOutcome:
        """Store a fact, `tell("parent", ["ann", "bob"])`, or the facts and rules of a text.

        A text is `tell("parent(ann, bob)")`, or several statements of the rule language, which are
        stored all or none. With any other argument than `scope` a text is one fact.

        `ttl` is a duration from this call: milliseconds, a text such as `30d`, or a timedelta.
        Points in time are epoch milliseconds, ISO 8601 texts, dates or datetimes, in UTC without an
        offset. `evidence` are ids of episodes, or spans `(id, start, end)`, that
        support the fact, beside those it has. `conflict` names a strategy for facts whose opposite
        is stored: KEEP_BOTH, REJECT, NEWEST_WINS, CONFIDENCE, or that of a plugin. Raises
        InvalidInput, RuleSyntaxError, Conflict.
        """
        details = present(
            {
                "ttl": duration(ttl),
                "validFrom": instant(valid_from),
                "validUntil": instant(valid_until),
                "confidence": confidence,
                "metadata": None if metadata is None else dict(metadata),
                "evidence": spans_of("evidence", evidence) if evidence else None,
            }
        )
        if args is None and not negated and not details and conflict == KEEP_BOTH:
            return self.teach(predicate, scope=scope)
        fact: dict[str, Any] = {"scope": scope, **details}
        if args is None:
            fact["text"] = text_of("predicate", predicate)
        else:
            fact |= {"predicate": text_of("predicate", predicate), "args": arguments(args)}
        if negated:
            fact["negated"] = True
        body = {"facts": [fact], "conflictStrategy": conflict}
        return self._assert_facts(body)

    def tell_many(
        self,
        predicate: str,
        rows: Iterable[Sequence[Arg]],
        *,
        scope: str | None = None,
        conflict: str = KEEP_BOTH,
    ) -> StoreOutcome:
        """Store many facts of one predicate, all or none; `conflict` is that of `tell`."""
        text_of("predicate", predicate)
        own = {} if scope is None else {"scope": scope}
        facts = [{"predicate": predicate, "args": arguments(row), **own} for row in rows]
        return self._assert_facts({"facts": facts, "conflictStrategy": conflict})

    def tell_frame(
        self,
        predicate: str,
        frame: Any,
        *,
        scope: str | None = None,
        conflict: str = KEEP_BOTH,
    ) -> StoreOutcome:
        """Store a fact for each row of a table, whose columns are the arguments in their order.

        `frame` is a data frame of pandas or polars, a table of pyarrow, or any object with the
        Arrow C stream interface. Batches of 50,000 rows are stored all or none; inside a
        transaction so is the whole table. Raises InvalidInput for a missing value; the batches
        before it are stored.
        """
        asserted = updated = discarded = timestamp = 0
        for batch in batches_of(frame):
            outcome = self.tell_many(predicate, batch, scope=scope, conflict=conflict)
            asserted, updated = asserted + outcome.asserted, updated + outcome.updated
            discarded, timestamp = discarded + outcome.discarded, outcome.timestamp
        return StoreOutcome(asserted, updated, timestamp, discarded=discarded)

    def retract(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        count: bool = True,
    ) -> RetractOutcome:
        """Remove a fact of both signs; with variables, every fact that matches.

        The text `~p(a)` removes only the negative fact. Without `count` the conclusions that no
        longer hold are not counted, which takes most of the time where there are many.
        """
        atom = atom_of("predicate", predicate, args)
        body: dict[str, Any] = {"scope": scope, "count": None if count else False}
        if args is None:  # JSON would read a quoted "?x" as a variable
            body["text"] = predicate
        else:
            body |= {"predicate": atom.predicate, "args": list(atom.args)}
        has_variables = "?" in atom.args or any(name is not None for name in atom.variables)
        path = "/retract/pattern" if has_variables else "/retract"
        prefer = None if has_variables else REPRESENTATION
        names = {"text": "predicate"}
        reply = self._send(Request(path, body, writes=True, prefer=prefer, names=names))
        return RetractOutcome.of(reply.json())

    def forget(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        count: bool = True,
    ) -> RetractOutcome:
        """Remove a fact or every fact that matches; another name of `retract`."""
        return self.retract(predicate, args, scope=scope, count=count)

    def retract_rule(self, rule: str | StoredStatement, *, scope: str | None = None) -> None:
        """Remove a rule, given by its id, as text, or as an element of `rules()`.

        A declaration is given by its id or as an element of `phrases()` or `inputs()`.
        Raises NotFound.
        """
        if isinstance(rule, StoredStatement):
            body = {"id": rule.id, "scope": rule.scope}
        elif ":-" in text_of("rule", rule):
            body = {"text": rule, "scope": scope}
        else:
            body = {"id": rule, "scope": scope}
        names = {"id": "rule", "text": "rule"}
        self._send(Request("/retract/rule", body, writes=True, names=names))

    def preview(
        self,
        tell: str | Sequence[str] = (),
        *,
        teach: str | Sequence[str] = (),
        forget: str | Sequence[str] = (),
        forget_rules: str | Sequence[str] = (),
        scope: str | None = None,
        limit: int = 100,
        timeout_ms: int | None = None,
    ) -> Preview:
        """Return the facts and conclusions that would become true, false or undefined if a change
        were made; nothing is stored.

        The change retracts the facts `forget` (variables match anything) and the rules
        `forget_rules`, then stores the facts and rules of the texts `tell` and `teach`. Each list
        of the result has at most `limit` elements. Raises NotFound, InvalidInput, RuleSyntaxError.
        """
        body = {
            "tell": texts_of("tell", tell) or None,
            "teach": "\n".join(texts_of("teach", teach)) or None,
            "forget": texts_of("forget", forget) or None,
            "forgetRules": texts_of("forget_rules", forget_rules) or None,
            "scope": scope,
            "limit": limit,
        }
        reply = self._send(Request("/preview", body, timeout_ms=timeout_ms))
        return Preview.of(reply.json())

    def _assert_facts(self, body: dict[str, Any]) -> StoreOutcome:
        names = {"conflictStrategy": "conflict", "text": "predicate"}
        if body["conflictStrategy"] == KEEP_BOTH:
            del body["conflictStrategy"]
        elif not isinstance(body["conflictStrategy"], str):
            raise InvalidInput.at("conflict", "must be the name of a strategy")
        reply = self._send(Request("/assert/facts", body, writes=True, names=names))
        return StoreOutcome.of(reply.json())
