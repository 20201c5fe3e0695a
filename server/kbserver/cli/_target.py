"""Where a command works: on a running server over HTTP, or on a storage folder no server has open."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import click
import httpx

from kbcore.config import Config
from kbcore.embed import EmbeddedKB, open_kb
from kbcore.errors import KBError
from kbcore.state.facts import Fact, FactRows
from kbplanner.jsonform import atom_to_json
from kbplanner.parser import parse_goal
from kbplanner.printer import print_row, print_rule
from kbplanner.terms import Literal, Rule

TIMEOUT = 120.0
"""Seconds a request may take: a large batch on a slow disk."""


class Failed(Exception):
    """A command that cannot go on; the text is for the person who typed it."""


class Target(Protocol):
    """What the commands need of a knowledge base."""

    def assert_facts(self, facts: Sequence[Fact]) -> tuple[int, int]:
        """Store facts, all or none; how many were new, how many known."""

    def assert_rows(self, rows: Sequence[FactRows]) -> tuple[int, int]:
        """Store facts of a bulk load, all or none; how many were new, how many known."""

    def assert_rules(self, rules: Sequence[Rule]) -> list[str]:
        """Teach rules; their texts as stored."""

    def ask(self, goal: str, scope: str | None) -> list[str]:
        """The answers of a goal, a line of text each."""

    def explain(self, goal: str, scope: str | None, limit: int | None, nodes: int | None, plan: bool) -> str:
        """Why the answers of a goal hold, or its plan, as text."""

    def close(self) -> None:
        """Let go of it."""


class Server:
    """A running server."""

    def __init__(self, url: str, database: str, tenant: str, api_key: str | None) -> None:
        headers = {"X-Database": database, "X-Tenant-ID": tenant}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT, follow_redirects=False)

    def assert_facts(self, facts: Sequence[Fact]) -> tuple[int, int]:
        """Store facts, all or none."""
        found = self._post("/assert/facts", {"facts": [_wire(fact) for fact in facts]}).json()
        return found["asserted"], found["updated"]

    def assert_rows(self, rows: Sequence[FactRows]) -> tuple[int, int]:
        """Store facts of a bulk load, all or none."""
        return self.assert_facts([fact for group in rows for fact in group.facts()])

    def assert_rules(self, rules: Sequence[Rule]) -> list[str]:
        """Teach rules."""
        texts = [print_rule(rule) for rule in rules]
        self._post("/assert/rule", {"text": "\n".join(texts)})
        return texts

    def ask(self, goal: str, scope: str | None) -> list[str]:
        """The answers of a goal."""
        atom = _goal_atom(goal)
        rows = self._post("/ask", {**atom, "scope": scope}).json()
        return [print_row(row["predicate"], row["args"], row["negated"]) for row in rows]

    def explain(self, goal: str, scope: str | None, limit: int | None, nodes: int | None, plan: bool) -> str:
        """Why the answers of a goal hold, or its plan."""
        body = {"text": goal, "scope": scope, "limit": limit, "proofNodes": nodes, "plan": plan}
        return self._post("/explain", body).text.rstrip("\n")

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        try:
            answer = self._http.post(path, json=body)
        except httpx.HTTPError as error:
            raise Failed(f"no answer from {self._http.base_url}: {error}") from error
        if answer.is_success:
            return answer
        try:
            message = answer.json()["message"]
        except (ValueError, KeyError, TypeError):
            message = f"{answer.status_code} {answer.reason_phrase}"
        raise Failed(message)


class Folder:
    """A storage folder, opened in this process."""

    def __init__(self, kb: EmbeddedKB) -> None:
        self._kb = kb

    def assert_facts(self, facts: Sequence[Fact]) -> tuple[int, int]:
        """Store facts, all or none."""
        outcome = self._kb.kb.assert_facts(facts)
        return outcome.asserted, outcome.updated

    def assert_rows(self, rows: Sequence[FactRows]) -> tuple[int, int]:
        """Store facts of a bulk load, all or none."""
        outcome = self._kb.kb.assert_rows(rows)
        return outcome.asserted, outcome.updated

    def assert_rules(self, rules: Sequence[Rule]) -> list[str]:
        """Teach rules."""
        return [stored.text for stored in self._kb.kb.assert_rules(rules).rules]

    def ask(self, goal: str, scope: str | None) -> list[str]:
        """The answers of a goal."""
        _goal_atom(goal)
        rows = self._kb.ask(goal, scope=scope).rows()
        return [print_row(row["predicate"], row["args"], row["negated"]) for row in rows]

    def explain(self, goal: str, scope: str | None, limit: int | None, nodes: int | None, plan: bool) -> str:
        """Why the answers of a goal hold, or its plan."""
        body = parse_goal(goal).body
        if plan:
            return self._kb.kb.plan(body, scope=scope)
        return self._kb.kb.explain(body, scope=scope, limit=limit, nodes=nodes)

    def close(self) -> None:
        """Write a snapshot and release the folder."""
        self._kb.close()


def target_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where a command works; it gets a `target`, and mistakes become one clear line."""

    @click.option(
        "--url", default="http://127.0.0.1:9300", show_default=True, envvar="KBCORE_URL", help="address of the server"
    )
    @click.option("--storage-dir", metavar="FOLDER", help="work on this folder instead; no server may have it open")
    @click.option("--database", default="default", show_default=True, help="database on the server")
    @click.option("--tenant", default="default", show_default=True, help="tenant")
    @click.option("--api-key", envvar="KBCORE_API_KEY", help="key for the server; better given as KBCORE_API_KEY")
    @functools.wraps(function)
    def command(url: str, storage_dir: str | None, database: str, tenant: str, api_key: str | None, **rest: Any) -> None:
        try:
            target: Target
            if storage_dir is None:
                target = Server(url, database, tenant, api_key)
            else:
                target = Folder(open_kb(path=storage_dir, tenant=tenant, config=Config.from_env()))
            try:
                function(target=target, **rest)
            finally:
                target.close()
        except (Failed, KBError) as error:
            click.echo(f"kbcore: {error}", err=True)
            sys.exit(1)

    return command


def _wire(fact: Fact) -> dict[str, Any]:
    found: dict[str, Any] = {"predicate": fact.predicate, "args": fact.args}
    if not fact.positive:
        found["negated"] = True
    for key, value in (
        ("scope", fact.scope),
        ("ttl", fact.ttl),
        ("validFrom", fact.valid_from),
        ("validUntil", fact.valid_until),
        ("confidence", fact.confidence),
        ("metadata", fact.metadata or None),
    ):
        if value is not None:
            found[key] = value
    return found


def _goal_atom(goal: str) -> dict[str, Any]:
    """The goal as a JSON atom; raises RuleSyntaxError, or InvalidInput where it is more than one literal."""
    literal: Literal = parse_goal(goal).goal.literal
    found = atom_to_json(literal.atom)
    return {**found, "negated": True} if literal.negated else found
