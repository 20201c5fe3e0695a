"""Methods that only translate; docs/generate.py writes them from the operations of the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbcore_client._async.handle import AsyncHandle, AsyncSender
from kbcore_client.requests import Request, goal_form, path_part, query_of
from kbtypes.administration import ApiKey, DatabaseInfo
from kbtypes.episodes import (
    EpisodeFacts,
    EpisodePage,
    FactHistory,
    PurgeOutcome,
    PurgeState,
    UndoOutcome,
)
from kbtypes.how_to import HowTo
from kbtypes.language import GoalSuggestions, Synthesis
from kbtypes.memory import BelievedFacts, Forgotten, MemorySearch
from kbtypes.proofs import WhyNot
from kbtypes.results import (
    ConsolidateOutcome,
    DecayOutcome,
    Executed,
    Finding,
    ForkOutcome,
    MergeOutcome,
    Neighbours,
    PredicateInfo,
    ScopeDiff,
    SlowGoal,
    StoredDimension,
    StoredInput,
    StoredMask,
    StoredPhrase,
    StoredRequirement,
    StoredRule,
    StoreOutcome,
)
from kbtypes.rule_sets import Deployment, RuleSetContents, RuleSetDiff, RuleSetInfo, RuleSetVersion
from kbtypes.values import Arg, Instant, instant, text_of
from kbtypes.windows import Summary


class AsyncAdministration(AsyncHandle):
    """Databases, tenants and API keys of a server; needs a key of role admin if keys are on.

    Errors: Forbidden without the permission, NotFound for an unknown database, tenant or key,
    Conflict for a database that exists, or if the server does not manage keys.
    """

    async def api_keys(self) -> list[ApiKey]:
        """List the keys; expired ones stay until they are revoked."""
        sent = Request("/auth/keys", method="GET")
        answer = (await self._send(sent)).json()
        return [ApiKey.of(each) for each in answer]

    async def create_api_key(
        self,
        name: str,
        role: str,
        *,
        databases: Sequence[str] = (),
        tenants: Sequence[str] = (),
        expires_in_days: float | None = None,
        description: str = "",
    ) -> ApiKey:
        """Create an API key.

        Its secret is `key` of the answer, and is never shown again. The role is `reader`,
        `writer`, `admin` or `replica`. Without `databases` and `tenants` the key is valid
        everywhere.
        """
        body = {
            "name": text_of("name", name),
            "role": text_of("role", role),
            "databases": list(databases),
            "tenants": list(tenants),
            "expiresInDays": expires_in_days,
            "description": description,
        }
        sent = Request("/auth/keys", body, writes=True)
        return ApiKey.of((await self._send(sent)).json())

    async def create_database(self, name: str) -> None:
        """Create a database."""
        body = {"name": text_of("name", name)}
        sent = Request("/admin/databases", body, writes=True)
        await self._send(sent)

    async def create_tenant(self, tenant: str, database: str = "default") -> None:
        """Create a tenant; an existing tenant is unchanged."""
        body = {"tenantId": text_of("tenant", tenant)}
        sent = Request(
            f"/admin/databases/{path_part('database', database)}/tenants",
            body,
            writes=True,
            names={"tenantId": "tenant", "name": "database"},
        )
        await self._send(sent)

    async def databases(self) -> list[DatabaseInfo]:
        """List the databases."""
        sent = Request("/admin/databases", method="GET")
        answer = (await self._send(sent)).json()
        return [DatabaseInfo.of(each) for each in answer]

    async def delete_database(self, name: str) -> None:
        """Delete a database with all its tenants."""
        sent = Request(f"/admin/databases/{path_part('name', name)}", method="DELETE", writes=True)
        await self._send(sent)

    async def delete_tenant(self, tenant: str, database: str = "default") -> None:
        """Delete a tenant with all its data."""
        sent = Request(
            f"/admin/databases/{path_part('database', database)}/tenants/{path_part('tenant', tenant)}",
            method="DELETE",
            writes=True,
            names={"name": "database"},
        )
        await self._send(sent)

    async def empty_database(self, name: str) -> None:
        """Delete all data of a database."""
        sent = Request(f"/admin/databases/{path_part('name', name)}/nuke", {}, writes=True)
        await self._send(sent)

    async def empty_tenant(self, tenant: str, database: str = "default") -> None:
        """Delete all data of a tenant."""
        sent = Request(
            f"/admin/databases/{path_part('database', database)}/tenants/{path_part('tenant', tenant)}/nuke",
            {},
            writes=True,
            names={"name": "database"},
        )
        await self._send(sent)

    async def revoke_api_key(self, id: str) -> None:
        """Revoke a key immediately and close its open streams."""
        sent = Request(f"/auth/keys/{path_part('id', id)}", method="DELETE", writes=True)
        await self._send(sent)

    async def rotate_api_key(self, id: str, *, overlap_seconds: float = 3600) -> ApiKey:
        """Create a key with the same permissions; the old key stays valid for an overlap period."""
        body = {"overlapSeconds": overlap_seconds}
        sent = Request(f"/auth/keys/{path_part('id', id)}/rotate", body, writes=True)
        return ApiKey.of((await self._send(sent)).json())

    async def tenants(self, database: str = "default") -> list[str]:
        """List the tenants of a database."""
        sent = Request(
            f"/admin/databases/{path_part('database', database)}/tenants",
            method="GET",
            names={"name": "database"},
        )
        answer: list[str] = (await self._send(sent)).json()
        return answer


class AsyncOperations(AsyncHandle):
    """Operations on a knowledge base."""

    async def check(
        self,
        text: str,
        *,
        kind: str = "program",
        scope: str | None = None,
    ) -> list[Finding]:
        """Return every error and warning of a text in the rule language; store nothing.

        `kind="goal"` checks one goal, such as `ancestor(ann, ?x)`. Predicates and rules that are
        stored count as defined; `scope` is for rules that name none. The codes are in
        docs/reference/diagnostics.md.
        """
        body = {"text": text_of("text", text), "kind": kind, "scope": scope}
        sent = Request("/check", body)
        answer = (await self._send(sent)).json()
        return [Finding.of(each) for each in answer["diagnostics"]]

    async def clear_session(self, session: str) -> None:
        """Forget the windows of a session, if it exists."""
        body = {"sessionId": text_of("session", session)}
        sent = Request("/context/session/clear", body, names={"sessionId": "session"})
        await self._send(sent)

    async def consolidate(
        self,
        *,
        min_group_size: int = 5,
        predicates: Sequence[str] | None = None,
        scope: str | None = None,
        dry_run: bool = False,
    ) -> ConsolidateOutcome:
        """Store a summary for each group of facts with equal predicate, arity and first argument.

        The summary is `<predicate>_consolidated(<first argument>, <count>)`. Groups smaller than
        `min_group_size` get none. With `dry_run` nothing changes.
        """
        body = {
            "minGroupSize": min_group_size,
            "predicates": None if predicates is None else list(predicates),
            "scope": scope,
            "dryRun": dry_run,
        }
        sent = Request("/memory/consolidate", body, writes=True)
        return ConsolidateOutcome.of((await self._send(sent)).json())

    async def context_summary(
        self,
        scope: str | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Summary:
        """Return a summary of a scope: numbers of facts, predicates and the most salient facts."""
        body = {"scope": scope}
        sent = Request("/context/summary", body, timeout_ms=timeout_ms)
        return Summary.of((await self._send(sent)).json())

    async def decay(
        self,
        threshold: float = 0.05,
        *,
        scope: str | None = None,
        dry_run: bool = False,
    ) -> DecayOutcome:
        """Evict expired facts, and facts whose salience is below `threshold` (0 to 1).

        With `dry_run` nothing changes.
        """
        body = {"threshold": threshold, "scope": scope, "dryRun": dry_run}
        sent = Request("/memory/decay", body, writes=True)
        return DecayOutcome.of((await self._send(sent)).json())

    async def diff(self, source: str | None, target: str | None) -> ScopeDiff:
        """Return the differences from one scope to another (None: the base)."""
        body = {"sourceScope": source, "targetScope": target}
        sent = Request(
            "/scope/diff",
            body,
            names={"sourceScope": "source", "targetScope": "target"},
        )
        return ScopeDiff.of((await self._send(sent)).json())

    async def dimensions(self, scope: str | None = "*") -> list[StoredDimension]:
        """Return the declared levels and groups of labels, in the order of declaration."""
        query = {"scope": scope}
        sent = Request("/rules", method="GET", query=query_of(query))
        answer = (await self._send(sent)).json()
        return [StoredDimension.of(each) for each in answer.get("dimensions", ())]

    async def drop_scope(self, scope: str) -> int:
        """Remove a scope with its facts and its own rules; return the number of removed facts."""
        sent = Request(
            f"/scope/{path_part('scope', scope)}",
            method="DELETE",
            writes=True,
            names={"name": "scope"},
        )
        answer: int = (await self._send(sent)).json()["deleted"]
        return answer

    async def episode(self, id: str, *, limit: int = 100, offset: int = 0) -> EpisodeFacts:
        """Return an episode with the stored facts that it supports; raises NotFound."""
        query = {"limit": limit, "offset": offset}
        sent = Request(f"/episodes/{path_part('id', id)}", method="GET", query=query_of(query))
        return EpisodeFacts.of((await self._send(sent)).json())

    async def episodes(
        self,
        *,
        session: str | None = None,
        speaker: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> EpisodePage:
        """Return the episodes, of one session or speaker if given, in order of storing."""
        query = {"session": session, "speaker": speaker, "limit": limit, "offset": offset}
        sent = Request("/episodes", method="GET", query=query_of(query))
        return EpisodePage.of((await self._send(sent)).json())

    async def execute(
        self,
        text: str,
        *,
        scope: str | None = None,
        timeout_ms: int | None = None,
    ) -> Executed:
        """Run a text in the rule language: store its clauses and answer its queries, in order.

        The text is applied as a whole or not at all. A query (`?- goal.`) sees the clauses before
        it. `timeout_ms` limits all queries together. Raises RuleSyntaxError with every error of the
        text, BudgetExceeded, Conflict.
        """
        body = {"command": text_of("text", text), "scope": scope}
        sent = Request(
            "/execute",
            body,
            writes=True,
            names={"command": "text"},
            timeout_ms=timeout_ms,
        )
        return Executed.of((await self._send(sent)).json())

    async def fork(
        self,
        target: str,
        source: str | None = None,
        *,
        overwrite: bool = False,
    ) -> ForkOutcome:
        """Copy the facts and the own rules of a scope (None: the base) to a new scope."""
        body = {
            "targetScope": text_of("target", target),
            "sourceScope": source,
            "overwrite": overwrite,
        }
        sent = Request(
            "/scope/fork",
            body,
            writes=True,
            names={"targetScope": "target", "sourceScope": "source"},
        )
        return ForkOutcome.of((await self._send(sent)).json())

    async def goals_for(
        self,
        question: str,
        *,
        scope: str | None = None,
        asker: str | None = None,
        as_of: Instant | None = None,
        timeout_ms: int | None = None,
    ) -> GoalSuggestions:
        """Return the goals that a question in words can mean, and the answers of the best one.

        No language model is asked: the words of the question are compared with the names, phrases,
        glosses and argument names of the predicates, and its names with the constants of the facts.
        A goal can be a chain of several predicates. `answers` is empty, and `reason` says why, if
        no goal has enough of the words, or if two that are about as good have different answers.
        `asker` is the constant that "I" stands for, `as_of` judges validity at a point in time.
        Raises InvalidInput, BudgetExceeded.
        """
        body = {
            "question": text_of("question", question),
            "scope": scope,
            "asker": asker,
            "asOf": instant(as_of),
        }
        sent = Request("/goals/suggest", body, timeout_ms=timeout_ms)
        return GoalSuggestions.of((await self._send(sent)).json())

    async def how_to(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        make: str = "true",
        changing: Iterable[str] | None = None,
        scope: str | None = None,
        limit: int = 5,
        timeout_ms: int | None = None,
    ) -> HowTo:
        """Return the smallest changes of stored facts that would make a goal true, or false with
        `make="false"`; store nothing.

        The result has at most `limit` `.proposals` of at most three changes, each with `.add` and
        `.remove`, and `.text` says them in words. Facts of predicates without rules change;
        `changing` names predicates with rules whose facts may change too. A search that meets a
        limit is `truncated`. Raises InvalidInput, RuleSyntaxError, BudgetExceeded.
        """
        body = {
            **goal_form("goal", goal, args),
            "howTo": True,
            "make": make,
            "changing": None if changing is None else list(changing),
            "scope": scope,
            "limit": limit,
        }
        sent = Request("/explain", body, names={"text": "goal"}, timeout_ms=timeout_ms)
        return HowTo.of((await self._send(sent)).json())

    async def inputs(self, scope: str | None = "*") -> list[StoredInput]:
        """Return the declared inputs, in the order of declaration."""
        query = {"scope": scope}
        sent = Request("/rules", method="GET", query=query_of(query))
        answer = (await self._send(sent)).json()
        return [StoredInput.of(each) for each in answer.get("inputs", ())]

    async def masks(self, scope: str | None = "*") -> list[StoredMask]:
        """Return the declared masks of the decision log, in the order of declaration."""
        query = {"scope": scope}
        sent = Request("/rules", method="GET", query=query_of(query))
        answer = (await self._send(sent)).json()
        return [StoredMask.of(each) for each in answer.get("masks", ())]

    async def merge(
        self,
        source: str | None,
        target: str | None = None,
        *,
        strategy: str = "SOURCE_WINS",
    ) -> MergeOutcome:
        """Merge the facts of a scope into another (None: the base).

        `strategy` decides conflicts.
        """
        body = {"sourceScope": source, "targetScope": target, "strategy": strategy}
        sent = Request(
            "/scope/merge",
            body,
            writes=True,
            names={"sourceScope": "source", "targetScope": "target"},
        )
        return MergeOutcome.of((await self._send(sent)).json())

    async def neighbours(  # noqa: PLR0913  one parameter for each option
        self,
        constant: Arg,
        *,
        predicates: Iterable[str] | None = None,
        direction: str = "both",
        scope: str | None = None,
        limit: int = 100,
        offset: int = 0,
        as_of: Instant | None = None,
        timeout_ms: int | None = None,
    ) -> Neighbours:
        """Return stored facts that have a constant in any argument, and their number by predicate.

        `predicates` selects predicates by name. `direction` is "out" for facts whose first argument
        is the constant, "in" for those with it in a later one, "both" for all. The page has at most
        `limit` facts, at most 1,000, in which the predicates take turns; further ones follow at
        higher offsets. Raises InvalidInput, BudgetExceeded.
        """
        body = {
            "constant": constant,
            "predicates": None if predicates is None else list(predicates),
            "direction": direction,
            "scope": scope,
            "limit": limit,
            "offset": offset,
            "asOf": instant(as_of),
        }
        sent = Request("/neighbours", body, timeout_ms=timeout_ms)
        return Neighbours.of((await self._send(sent)).json())

    async def phrases(self, scope: str | None = "*") -> list[StoredPhrase]:
        """Return the declared phrases of predicates, in the order of declaration."""
        query = {"scope": scope}
        sent = Request("/rules", method="GET", query=query_of(query))
        answer = (await self._send(sent)).json()
        return [StoredPhrase.of(each) for each in answer.get("phrases", ())]

    async def predicates(self, scope: str | None = None) -> list[PredicateInfo]:
        """Return the predicates that have facts or rules, or are declared, by name and
        arity.
        """
        query = {"scope": scope}
        sent = Request("/predicates", method="GET", query=query_of(query))
        answer = (await self._send(sent)).json()
        return [PredicateInfo.of(each) for each in answer["predicates"]]

    async def purge(
        self,
        *,
        subject: str | None = None,
        episode: str | None = None,
        speaker: str | None = None,
        before: Instant | None = None,
        drop_scopes: bool = False,
        dry_run: bool = False,
        limit: int = 100,
    ) -> PurgeOutcome:
        """Remove facts and episodes for good: also from the log and the snapshots.

        Exactly one of `subject` (a name), `episode` (an id), `speaker` and `before` says which.
        With `drop_scopes`, scopes whose names mention the subject are dropped. With `dry_run`
        nothing changes. `similar` of the result lists names of which the subject is only a part.
        `erased` says if the text is gone from the storage; `purges()` says so later.
        """
        body = {
            "subject": subject,
            "episode": episode,
            "speaker": speaker,
            "before": instant(before),
            "dropScopes": drop_scopes,
            "dryRun": dry_run,
            "limit": limit,
        }
        sent = Request("/memory/purge", body, writes=True, keyed=False)
        return PurgeOutcome.of((await self._send(sent)).json())

    async def purges(self) -> list[PurgeState]:
        """Return the purges, oldest first, and whether their text is gone from the storage."""
        sent = Request("/memory/purges", method="GET")
        answer = (await self._send(sent)).json()
        return [PurgeState.of(each) for each in answer["purges"]]

    async def requirements(self, scope: str | None = "*") -> list[StoredRequirement]:
        """Return the levels that answers of predicates require, in the order of declaration."""
        query = {"scope": scope}
        sent = Request("/rules", method="GET", query=query_of(query))
        answer = (await self._send(sent)).json()
        return [StoredRequirement.of(each) for each in answer.get("requirements", ())]

    async def rollback(
        self,
        name: str,
        version: int | None = None,
        *,
        expected_version: int | None = None,
        message: str | None = None,
        scope: str | None = None,
    ) -> Deployment:
        """Deploy the contents that a rule set had in an earlier version, by default the one before.

        It becomes a new version. Raises NotFound, and Conflict as `deploy` does.
        """
        body = {
            "version": version,
            "expectedVersion": expected_version,
            "message": message,
            "scope": scope,
        }
        sent = Request(f"/rulesets/{path_part('name', name)}/rollback", body, writes=True)
        return Deployment.of((await self._send(sent)).json())

    async def rule_set(self, name: str, *, scope: str | None = None) -> RuleSetContents:
        """Return the contents of a rule set as statements. Raises NotFound."""
        query = {"scope": scope}
        sent = Request(f"/rulesets/{path_part('name', name)}", method="GET", query=query_of(query))
        return RuleSetContents.of((await self._send(sent)).json())

    async def rule_set_diff(
        self,
        name: str,
        before: int,
        after: int,
        *,
        scope: str | None = None,
    ) -> RuleSetDiff:
        """Return the difference between two versions of a rule set; 0 is the empty one.

        Raises NotFound for a version that is not kept.
        """
        query = {"from": before, "to": after, "scope": scope}
        sent = Request(
            f"/rulesets/{path_part('name', name)}/diff",
            method="GET",
            query=query_of(query),
            names={"from": "before", "to": "after"},
        )
        return RuleSetDiff.of((await self._send(sent)).json())

    async def rule_set_versions(
        self,
        name: str,
        *,
        scope: str | None = None,
    ) -> list[RuleSetVersion]:
        """Return the kept versions of a rule set, the newest first. Raises NotFound."""
        query = {"scope": scope}
        sent = Request(
            f"/rulesets/{path_part('name', name)}/versions",
            method="GET",
            query=query_of(query),
        )
        answer = (await self._send(sent)).json()
        return [RuleSetVersion.of(each) for each in answer["versions"]]

    async def rule_sets(self, scope: str | None = "*") -> list[RuleSetInfo]:
        """Return the rule sets of a scope, or of all, by scope and name."""
        query = {"scope": scope}
        sent = Request("/rulesets", method="GET", query=query_of(query))
        answer = (await self._send(sent)).json()
        return [RuleSetInfo.of(each) for each in answer["ruleSets"]]

    async def rules(self, scope: str | None = "*") -> list[StoredRule]:
        """Return the rules in the order in which they were stored."""
        query = {"scope": scope}
        sent = Request("/rules", method="GET", query=query_of(query))
        answer = (await self._send(sent)).json()
        return [StoredRule.of(each) for each in answer["rules"]]

    async def scopes(self) -> list[str]:
        """Return the names of the scopes, sorted."""
        sent = Request("/scopes", method="GET")
        answer: list[str] = (await self._send(sent)).json()["scopes"]
        return answer

    async def slow_goals(self) -> list[SlowGoal]:
        """Return the slowest goals of the last hour, slowest first: at most 20, from 10 ms on.

        The list is kept in memory, so a start begins with an empty one. `ms` is the slowest run of
        a goal, `count` the number of its runs of 10 ms or more.
        """
        sent = Request("/goals/slow", method="GET")
        answer = (await self._send(sent)).json()
        return [SlowGoal.of(each) for each in answer["goals"]]

    async def synthesize(
        self,
        question: str,
        *,
        scope: str | None = None,
        citations: bool = False,
        timeout_ms: int | None = None,
    ) -> Synthesis:
        """Answer a question in words; the language model plans the queries and words the answer.

        With `citations` the answer has the numbers of its sources.

        Raises ModelNotConfigured, ModelFailed.
        """
        body = {"question": text_of("question", question), "scope": scope, "citations": citations}
        sent = Request("/synthesize", body, timeout_ms=timeout_ms)
        return Synthesis.of((await self._send(sent)).json())

    async def teach(self, text: str, *, scope: str | None = None) -> StoreOutcome:
        """Store the rules and facts of a text in the rule language, all or none.

        `scope` is for statements that name none; a rule without a scope holds in every scope.
        `warnings` of the result are about rules that are valid but probably not intended. Raises
        RuleSyntaxError with every error of the text, and InvalidInput if the text has goals.
        """
        body = {"text": text_of("text", text), "scope": scope}
        sent = Request("/teach", body, writes=True, prefer="return=representation")
        return StoreOutcome.of((await self._send(sent)).json())

    async def undo(
        self,
        seq: int | None = None,
        *,
        request: str | None = None,
        timeout_ms: int | None = None,
    ) -> UndoOutcome:
        """Undo one committed change, by its number or by the id of its request or transaction.

        Raises NotFound, and Conflict with the later changes in its details if they concern the same
        facts or rules, or if the change is no longer in the log.
        """
        body = {"commitSeq": seq, "requestId": request}
        sent = Request(
            "/memory/undo",
            body,
            writes=True,
            names={"commitSeq": "seq", "requestId": "request"},
            timeout_ms=timeout_ms,
        )
        return UndoOutcome.of((await self._send(sent)).json())

    async def why_not(  # noqa: PLR0913  one parameter for each option
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        limit: int | None = None,
        depth: int = 1,
        min_confidence: float | None = None,
        as_of: Instant | None = None,
        timeout_ms: int | None = None,
    ) -> WhyNot:
        """Explain why a goal has no answer: how far each rule gets, and its first missing premise.

        `why_not(...).text` says it in words. `limit` bounds the candidates, 5 if it is None;
        `depth` follows the missing premise of each down to this number of levels. The other options
        are those of `ask`. Raises InvalidInput, RuleSyntaxError, BudgetExceeded.
        """
        body = {
            **goal_form("goal", goal, args),
            "whyNot": True,
            "scope": scope,
            "limit": limit,
            "depth": depth,
            "minConfidence": min_confidence,
            "asOf": instant(as_of),
        }
        sent = Request("/explain", body, names={"text": "goal"}, timeout_ms=timeout_ms)
        return WhyNot.of((await self._send(sent)).json())


class AsyncMemoryOperations(AsyncSender):
    """Operations on the memory about a user."""

    async def facts(self, *, limit: int = 100, offset: int = 0) -> BelievedFacts:
        """Return what is believed now: stored facts with the passages that they are based on."""
        query = {"limit": limit, "offset": offset}
        sent = Request("/memory/facts", method="GET", query=query_of(query))
        return BelievedFacts.of((await self._send(sent)).json())

    async def forget(
        self,
        about: str,
        *,
        dry_run: bool = True,
        limit: int | None = None,
        timeout_ms: int | None = None,
    ) -> Forgotten:
        """Return what would be forgotten; with `dry_run=False`, forget it for good.

        `about` is a fact or a pattern such as `lives_in(mia, ?where)`, the id of an episode, or
        words, which mean the facts that have more than half of them; pronouns and the name of the
        user do not count. The facts go, also where they have ended, the texts that they are based
        on, and what nothing else supports; also from the log. `facts` and `texts` of the result
        list them. Raises InvalidInput and BudgetExceeded.
        """
        body = {"about": text_of("about", about), "dryRun": dry_run, "limit": limit}
        sent = Request("/memory/forget", body, writes=True, keyed=False, timeout_ms=timeout_ms)
        return Forgotten.of((await self._send(sent)).json())

    async def history(self, about: str, *, limit: int = 100, offset: int = 0) -> FactHistory:
        """Return when facts were stored, changed and removed, and by which request.

        `about` is a predicate or a pattern such as `lives_in(mia, ?where)`. Raises InvalidInput if
        the storage keeps no history, and BudgetExceeded.
        """
        query = {"about": text_of("about", about), "limit": limit, "offset": offset}
        sent = Request("/memory/history", method="GET", query=query_of(query))
        return FactHistory.of((await self._send(sent)).json())

    async def search(
        self,
        question: str,
        *,
        max_tokens: int | None = None,
        max_facts: int | None = None,
        session: str | None = None,
        agent: str | None = None,
        citations: bool = True,
        timeout_ms: int | None = None,
    ) -> MemorySearch:
        """Return what is known about a question: `text` for a prompt, `entries` and `sources`.

        Standing instructions of the user come first. With `session` or `agent`, only what was said
        in these conversations is searched. Raises InvalidInput and BudgetExceeded.
        """
        body = {
            "question": text_of("question", question),
            "maxTokens": max_tokens,
            "maxFacts": max_facts,
            "session": session,
            "agent": agent,
            "citations": citations,
        }
        sent = Request("/memory/search", body, timeout_ms=timeout_ms)
        return MemorySearch.of((await self._send(sent)).json())
