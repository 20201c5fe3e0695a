"""Targets of commands: a running server over HTTP, or a storage folder that no server has open."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import unquote

import click
import httpx

from kbcore.config.settings import Config
from kbcore.config.storage_urls import redacted
from kbcore.embed import EmbeddedKB, open_kb
from kbcore.errors import KBError, ReadOnlyFollower
from kbcore.language.rule_review import Known, known_predicates
from kbcore.proofs.shapes import ProofOptions
from kbcore.reason.budget import RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact, FactRows
from kbplanner.ir.terms import BodyItem, Literal, Rule
from kbplanner.syntax.diagnostics import RuleWarning, printable
from kbplanner.syntax.parser import parse_goal, parse_rule
from kbplanner.syntax.printer import print_item, print_row, print_rule
from kbplanner.syntax.textform import literal_from_text
from kbserver.cli.shared.exits import EXIT_CODES, Failed, fail
from kbserver.notices import UNKNOWN_HEADER

TIMEOUT_SECONDS = 120.0
"""Timeout of a request; large batches on slow disks take long."""

_FOLLOWER_HINT = (
    "a follower is read-only; write to the leader, or run `kbcore promote` to make it the leader"
)


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Options of a query: scope ("*" for all, None for the base) and time limit in milliseconds."""

    scope: str | None = None
    timeout_ms: int | None = None

    def body(self) -> dict[str, Any]:
        """Return the options as members of a request body."""
        return {"scope": self.scope, "timeoutMs": self.timeout_ms}


class Target(Protocol):
    """The operations that commands need."""

    def assert_facts(self, facts: Sequence[Fact]) -> tuple[int, int]:
        """Store facts, all or none; return the numbers of new and of known facts."""

    def assert_rows(self, rows: Sequence[FactRows]) -> tuple[int, int]:
        """Store facts of a bulk load, all or none; return the numbers of new and of known facts."""

    def assert_rules(self, rules: Sequence[Rule]) -> list[str]:
        """Store rules and return their texts as stored."""

    def known_predicates(self) -> Known:
        """Return the predicates of every scope with their arities."""

    def rules(self) -> list[Rule]:
        """Return the rules of every scope."""

    def ask(self, goal: str, options: QueryOptions) -> list[str]:
        """Return the answers of a goal, one line of text each."""

    def execute(self, text: str, options: QueryOptions) -> str:
        """Run a text of facts, rules and queries; return the results line by line."""

    def explain(
        self, goal: str, options: QueryOptions, limit: int | None, nodes: int | None
    ) -> str:
        """Explain the answers of a goal as text."""

    def plan(self, goal: str, options: QueryOptions, analyze: bool, as_json: bool) -> str:
        """Return the plan of a goal as text or JSON; with `analyze` the goal is run."""

    def close(self) -> None:
        """Release the target."""


class Server:
    """A running server."""

    def __init__(self, url: str, database: str, tenant: str, api_key: str | None) -> None:
        headers = {"X-Database": database, "X-Tenant-ID": tenant}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, follow_redirects=False
        )

    def assert_facts(self, facts: Sequence[Fact]) -> tuple[int, int]:
        """Store facts, all or none."""
        counts = self._post("/assert/facts", {"facts": [_wire(fact) for fact in facts]}).json()
        return counts["asserted"], counts["updated"]

    def assert_rows(self, rows: Sequence[FactRows]) -> tuple[int, int]:
        """Store facts of a bulk load, all or none."""
        return self.assert_facts([fact for group in rows for fact in group.facts()])

    def assert_rules(self, rules: Sequence[Rule]) -> list[str]:
        """Store rules."""
        texts = [print_rule(rule) for rule in rules]
        self._post("/assert/rule", {"text": "\n".join(texts)})
        return texts

    def known_predicates(self) -> Known:
        """Return the predicates of every scope with their arities."""
        return known_predicates(self.send("GET", "/predicates?scope=*").json()["predicates"])

    def rules(self) -> list[Rule]:
        """Return the rules of every scope, each with its id as its name."""
        rows = self.send("GET", "/rules?scope=*").json()["rules"]
        return [
            replace(parse_rule(row["text"]), name=row["id"], scope=row["scope"]) for row in rows
        ]

    def ask(self, goal: str, options: QueryOptions) -> list[str]:
        """Return the answers of a goal."""
        literal_from_text(goal, "goal")
        answer = self._post("/ask", {"text": goal, **options.body()})
        return [print_row(row["predicate"], row["args"], row["negated"]) for row in answer.json()]

    def execute(self, text: str, options: QueryOptions) -> str:
        """Run a text of facts, rules and queries."""
        return str(self._post("/execute", {"command": text, **options.body()}).json()["result"])

    def explain(
        self, goal: str, options: QueryOptions, limit: int | None, nodes: int | None
    ) -> str:
        """Explain the answers of a goal."""
        body = {"text": goal, "limit": limit, "proofNodes": nodes, **options.body()}
        return self._post("/explain", body).text.rstrip("\n")

    def plan(self, goal: str, options: QueryOptions, analyze: bool, as_json: bool) -> str:
        """Return the plan of a goal."""
        format = "json" if as_json else "text"
        body = {"text": goal, "plan": True, "analyze": analyze, "format": format, **options.body()}
        answer = self._post("/explain", body)
        return _json(answer.json()) if as_json else answer.text.rstrip("\n")

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def events(self, query: dict[str, str]) -> Iterator[str]:
        """Yield committed events as JSON texts; raises Failed."""
        with self._stream("/memory/events", query) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield line.removeprefix("data: ")

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send a request, and report the unknown predicates that the response names."""
        answer = self.send("POST", path, body)
        if (names := answer.headers.get(UNKNOWN_HEADER)) is not None:
            _report_unknown(map(unquote, names.split(", ")))
        return answer

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """Send a request and return the response; raises Failed unless it succeeds."""
        try:
            answer = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if answer.is_success:
            return answer
        raise Failed(_message(answer))

    @contextmanager
    def stream(self, path: str) -> Iterator[Iterator[bytes]]:
        """Stream a response in pieces; raises Failed unless it succeeds and is complete."""
        with self._stream(path) as answer:
            yield answer.iter_bytes()

    @contextmanager
    def _stream(self, path: str, query: dict[str, str] | None = None) -> Iterator[httpx.Response]:
        try:
            with self._http.stream("GET", path, params=query) as answer:
                if not answer.is_success:
                    answer.read()
                    raise Failed(_message(answer))
                yield answer
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: httpx.HTTPError) -> Failed:
        if isinstance(error, httpx.ConnectError):
            problem = "cannot connect; is the server running?"
        elif isinstance(error, httpx.TimeoutException):
            problem = f"timeout after {TIMEOUT_SECONDS:g} seconds"
        else:
            problem = "the connection was closed"
        return Failed(f"no answer from {self._http.base_url}: {problem}")


class Folder:
    """A storage folder, opened in this process."""

    def __init__(self, kb: EmbeddedKB) -> None:
        self._kb = kb

    @property
    def kb(self) -> EmbeddedKB:
        """The open knowledge base."""
        return self._kb

    def assert_facts(self, facts: Sequence[Fact]) -> tuple[int, int]:
        """Store facts, all or none."""
        outcome = self._kb.kb.assert_facts(facts)
        return outcome.asserted, outcome.updated

    def assert_rows(self, rows: Sequence[FactRows]) -> tuple[int, int]:
        """Store facts of a bulk load, all or none."""
        outcome = self._kb.kb.assert_rows(rows)
        return outcome.asserted, outcome.updated

    def assert_rules(self, rules: Sequence[Rule]) -> list[str]:
        """Store rules."""
        return [stored.text for stored in self._kb.kb.assert_rules(rules).rules]

    def known_predicates(self) -> Known:
        """Return the predicates of every scope with their arities."""
        return self._kb.kb.known_predicates()

    def rules(self) -> list[Rule]:
        """Return the rules of every scope."""
        return [stored.rule for stored in self._kb.rules()]

    def ask(self, goal: str, options: QueryOptions) -> list[str]:
        """Return the answers of a goal."""
        self._report_unknown([literal_from_text(goal, "goal")], options.scope)
        rows = self._kb.ask(goal, scope=options.scope, timeout_ms=options.timeout_ms).rows()
        return [print_row(row["predicate"], row["args"], row["negated"]) for row in rows]

    def execute(self, text: str, options: QueryOptions) -> str:
        """Run a text of facts, rules and queries."""
        result = self._kb.execute(text, scope=options.scope, timeout_ms=options.timeout_ms)
        _report_unknown(map(str, result.unknown))
        return result.text

    def explain(
        self, goal: str, options: QueryOptions, limit: int | None, nodes: int | None
    ) -> str:
        """Explain the answers of a goal."""
        body = parse_goal(goal).body
        self._report_unknown(body, options.scope)
        answer_options = AnswerOptions(
            options.scope, limit, request_limits=RequestLimits(options.timeout_ms)
        )
        return self._kb.kb.explain(body, answer_options, ProofOptions(nodes=nodes))

    def plan(self, goal: str, options: QueryOptions, analyze: bool, as_json: bool) -> str:
        """Return the plan of a goal."""
        body = parse_goal(goal).body
        self._report_unknown(body, options.scope)
        answer_options = AnswerOptions(
            options.scope, request_limits=RequestLimits(options.timeout_ms)
        )
        if not as_json:
            return self._kb.kb.plan(body, answer_options, analyze=analyze)
        plans = self._kb.kb.plans(body, answer_options, analyze=analyze)
        return _json({"goal": ", ".join(map(print_item, body)), "plans": plans})

    def close(self) -> None:
        """Write a snapshot and release the folder."""
        self._kb.close()

    def _report_unknown(self, goal: Sequence[BodyItem], scope: str | None) -> None:
        atoms = [item.atom for item in goal if isinstance(item, Literal)]
        unknown = self._kb.kb.unknown_predicates(
            [(atom.predicate, atom.arity) for atom in atoms], scope
        )
        _report_unknown(map(str, unknown))


def folder(target: Target) -> Folder:
    """Return the target as a folder; it must not be a server."""
    if not isinstance(target, Folder):
        raise AssertionError("a target is a server or a folder")
    return target


class Seconds(click.ParamType[int]):
    """A positive number of seconds, given as whole milliseconds."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert seconds to milliseconds."""
        try:
            milliseconds = float(value) * 1000
        except ValueError:
            milliseconds = 0.0
        if not 1 <= milliseconds < 1e12:
            self.fail("must be a positive number of seconds, such as 2.5", param, ctx)
        return int(milliseconds)


Command = Callable[..., None]


def query_options(scope_help: str = "Scope to query; '*' for all") -> Callable[[Command], Command]:
    """Add the options of a query to a command, as its argument `options`."""

    def decorate(function: Command) -> Command:
        @click.option("--scope", help=scope_help)
        @click.option(
            "--timeout",
            "timeout_ms",
            type=Seconds(),
            help="Time limit in seconds; the limit of the server also applies",
        )
        @functools.wraps(function)
        def command(scope: str | None, timeout_ms: int | None, **rest: Any) -> None:
            function(options=QueryOptions(scope, timeout_ms), **rest)

        return command

    return decorate


SERVER_URL = "http://127.0.0.1:9300"

_TARGET_OPTIONS = (
    click.option(
        "--url",
        default=SERVER_URL,
        show_default=True,
        envvar="KBCORE_URL",
        help="Address of the server",
    ),
    click.option(
        "--storage-dir",
        metavar="FOLDER",
        help="Use this storage folder instead of a server; no server may have it open",
    ),
    click.option(
        "--storage-url", metavar="URL", help="Use this storage instead, for example sqlite:FILE"
    ),
    click.option("--database", default="default", show_default=True, help="Database on the server"),
    click.option("--tenant", default="default", show_default=True, help="Tenant"),
    click.option(
        "--api-key",
        envvar="KBCORE_API_KEY",
        help="API key; prefer the environment variable KBCORE_API_KEY",
    ),
)


def target_options(function: Command) -> Command:
    """Add the options that select the `target` of a command, and report failures in one line."""

    @functools.wraps(function)
    def command(
        url: str,
        storage_dir: str | None,
        storage_url: str | None,
        database: str,
        tenant: str,
        api_key: str | None,
        **rest: Any,
    ) -> None:
        try:
            target: Target
            if storage_url is not None and storage_dir is not None:
                raise Failed("use either --storage-url or --storage-dir, not both")
            if storage_url is not None:
                config = Config.from_env().updated({"STORAGE_URL": storage_url})
                target = Folder(open_kb(config.storage_backend, tenant=tenant, config=config))
            elif storage_dir is not None:
                target = Folder(open_kb(path=storage_dir, tenant=tenant, config=Config.from_env()))
            else:
                target = Server(url, database, tenant, api_key)
            try:
                function(target=target, **rest)
            finally:
                target.close()
        except ReadOnlyFollower as error:
            # Only a storage opened here raises this; the refusal of a server is a Failed.
            leader = (error.details or {})["leader"]
            storage = storage_dir or redacted(storage_url or "")
            fail(f"{storage} follows {leader}: {_FOLLOWER_HINT}", EXIT_CODES[ReadOnlyFollower])
        except (Failed, KBError) as error:
            fail(str(error))

    for option in reversed(_TARGET_OPTIONS):
        command = option(command)
    return command


strict_option = click.option(
    "--strict", is_flag=True, help="Treat warnings about rules as errors and store nothing"
)
"""The option of commands that store rules."""


def report_warnings(source: str, warnings: Sequence[RuleWarning], strict: bool) -> None:
    """Print warnings about rules on standard error. Raises Failed if there are any and they count
    as errors.
    """
    for warning in warnings:
        click.echo(warning.display(source), err=True)
    if strict and warnings:
        raise strict_failure(len(warnings))


def strict_failure(count: int) -> Failed:
    """Return the failure of a command with --strict, for the number of warnings."""
    return Failed(
        f"{count} {'warning' if count == 1 else 'warnings'}, treated as errors by --strict; nothing was stored"
    )


def _report_unknown(unknown: Iterable[str]) -> None:
    for name in unknown:
        click.echo(f"kbcore: no fact or rule for {printable(name)}", err=True)


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason_phrase}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _wire(fact: Fact) -> dict[str, Any]:
    body: dict[str, Any] = {"predicate": fact.predicate, "args": fact.args}
    if not fact.positive:
        body["negated"] = True
    for key, value in (
        ("scope", fact.scope),
        ("ttl", fact.ttl),
        ("validFrom", fact.valid_from),
        ("validUntil", fact.valid_until),
        ("confidence", fact.confidence),
        ("metadata", fact.metadata or None),
    ):
        if value is not None:
            body[key] = value
    return body
