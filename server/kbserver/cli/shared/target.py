"""Targets of commands: a running server over HTTP, or a storage folder that no server has open."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from urllib.parse import unquote, urlencode

import click

from kbcore.errors import KBError, ReadOnlyFollower
from kbcore.state.names import NAME_RULE, is_name
from kbplanner.syntax.diagnostics import RuleWarning, counted, printable, printable_lines
from kbserver.cli.shared.client import ServerAnswer, ServerClient
from kbserver.cli.shared.exits import EXIT_CODES, Failed, describe_os_error, fail, report

if TYPE_CHECKING:
    from kbserver.cli.shared.folder import Folder

UNKNOWN_HEADER = "x-unknown-predicates"
WARNINGS_HEADER = "x-answer-warnings"

_FOLLOWER_HINT = (
    "a follower is read-only; write to the leader, or run `kbcore promote` to make it the leader"
)


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Options of a query: scope ("*" for all, None for the base), time limit in milliseconds, the
    point in time at which facts are valid (None: now), and the one whose knowledge answers (None:
    now).
    """

    scope: str | None = None
    timeout_ms: int | None = None
    as_of: str | None = None
    known_at: str | int | None = None

    def body(self) -> dict[str, Any]:
        """Return the options as members of a request body."""
        body: dict[str, Any] = {"scope": self.scope, "timeoutMs": self.timeout_ms}
        instants = {"asOf": self.as_of, "knownAt": self.known_at}
        return body | {name: at for name, at in instants.items() if at is not None}


class CommandTarget(Protocol):
    """A knowledge base that answers the requests of the HTTP interface."""

    local: bool
    """True if this process has the storage open."""
    headers: dict[str, str]
    """The headers of every request."""

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        also: int | None = None,
    ) -> ServerAnswer:
        """Send a request and return the response; raises Failed or KBError unless it succeeds.

        `also` is a status that counts as success.
        """

    def close(self) -> None:
        """Release the target."""


def ask_target(target: CommandTarget, path: str, body: Mapping[str, Any]) -> ServerAnswer:
    """POST a request, and report what the response says besides answers: unknown predicates, and
    functions without a value.
    """
    answer = target.send("POST", path, body)
    if names := answer.headers.get(UNKNOWN_HEADER):
        for name in names.split(", "):
            note(f"no fact or rule for {unquote(name)}")
    count = answer.headers.get(WARNINGS_HEADER, "")
    if count.isdecimal():
        note(
            f"{counted(int(count), 'value')} could not be computed, because of a division by zero,"
            " arithmetic with a text, or a number beyond 64 bits"
        )
    return answer


def note(text: str) -> None:
    """Print a remark on standard error."""
    click.echo(f"kbcore: {printable_lines(text)}", err=True)


def folder(target: CommandTarget) -> Folder:
    """Return the target as a folder; it must not be a server."""
    if not target.local:
        raise AssertionError("a target is a server or a folder")
    return target  # type: ignore[return-value]


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


def query_options(
    scope_help: str = "Scope to query; '*' for all", *, historic: bool = True
) -> Callable[[Command], Command]:
    """Add the options of a query to a command, as its argument `options`.

    A `historic` one can be answered from what was known at an earlier instant.
    """

    def decorate(function: Command) -> Command:
        @click.option("--scope", help=scope_help)
        @click.option(
            "--timeout",
            "timeout_ms",
            type=Seconds(),
            help="Time limit in seconds; the limit of the server also applies",
        )
        @functools.wraps(function)
        def command(
            scope: str | None, timeout_ms: int | None, known_at: str | None = None, **rest: Any
        ) -> None:
            function(options=QueryOptions(scope, timeout_ms, known_at=instant_of(known_at)), **rest)

        return known_at_option(command) if historic else command

    return decorate


known_at_option = click.option(
    "--known-at",
    metavar="TIME",
    help="Answer from what was known at this time, such as 2026-01-31T12:00:00Z",
)
"""The option of reads that can be answered from an earlier state."""


def query_string(**parameters: str | None) -> str:
    """Return a query string with its question mark, without parameters that are None."""
    asked = {name: value for name, value in parameters.items() if value is not None}
    return "?" + urlencode(asked) if asked else ""


def instant_of(text: str | None) -> str | int | None:
    """Return an instant as the HTTP interface takes it: digits are epoch milliseconds."""
    return int(text) if text is not None and text.isdecimal() else text


SERVER_URL = "http://127.0.0.1:9300"


class TargetOption(click.Option):
    """An option that selects the knowledge base; the help of a command lists these together."""

    section = "Knowledge base"


def _name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the value of an option that is sent in a header; raise BadParameter if it is no
    name.
    """
    if not is_name(value):
        raise click.BadParameter(f"must have {NAME_RULE}")
    return value


def _key(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return an API key that a header can hold; raise BadParameter, which does not show it."""
    if value and not (value.isascii() and value.isprintable() and " " not in value):
        raise click.BadParameter("must be printable ASCII without spaces")
    return value


url_option = click.option(
    "--url",
    default=SERVER_URL,
    show_default=True,
    envvar="KBCORE_URL",
    show_envvar=True,
    cls=TargetOption,
    help="Address of the server",
)
database_option = click.option(
    "--database",
    default="default",
    show_default=True,
    envvar="KBCORE_DATABASE",
    show_envvar=True,
    callback=_name,
    cls=TargetOption,
    help="Database",
)
tenant_option = click.option(
    "--tenant",
    default="default",
    show_default=True,
    envvar="KBCORE_TENANT",
    show_envvar=True,
    callback=_name,
    cls=TargetOption,
    help="Tenant",
)
api_key_option = click.option(
    "--api-key",
    envvar="KBCORE_API_KEY",
    show_envvar=True,
    callback=_key,
    cls=TargetOption,
    help="API key; the environment variable does not show in the list of processes",
)

cacert_option = click.option(
    "--cacert",
    metavar="FILE",
    envvar="KBCORE_CA_FILE",
    show_envvar=True,
    cls=TargetOption,
    help="CA certificates (PEM) to verify an https server with; default: those of the system",
)


def labels_given(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Return a JSON object that a header can hold; raise BadParameter for another text."""
    if value is None:
        return None
    try:
        labels = json.loads(value)
    except ValueError:
        labels = None
    if not isinstance(labels, dict):
        raise click.BadParameter('must be a JSON object, such as {"trust": "user"}')
    return json.dumps(labels)


view_option = click.option(
    "--view",
    metavar="JSON",
    callback=labels_given,
    cls=TargetOption,
    help='Read only what a view admits, such as \'{"trust": "user"}\'',
)
labels_option = click.option(
    "--labels",
    metavar="JSON",
    callback=labels_given,
    cls=TargetOption,
    help='Labels of what is stored, such as \'{"trust": "web"}\'',
)

_STORAGE_OPTIONS = (
    click.option(
        "--storage-dir",
        metavar="FOLDER",
        cls=TargetOption,
        help="Use this storage folder instead of a server; no server may have it open",
    ),
    click.option(
        "--storage-url",
        metavar="URL",
        cls=TargetOption,
        help="Use this storage instead, for example sqlite:FILE",
    ),
)


def storage_options(function: Command) -> Command:
    """Add the options that name a storage to a command."""
    for option in reversed(_STORAGE_OPTIONS):
        function = option(function)
    return function


_TARGET_OPTIONS = (
    url_option,
    *_STORAGE_OPTIONS,
    database_option,
    tenant_option,
    api_key_option,
    cacert_option,
)


@contextmanager
def opened(
    url: str | None,
    storage_dir: str | None,
    storage_url: str | None,
    database: str,
    tenant: str,
    api_key: str | None,
    cacert: str | None,
) -> Iterator[CommandTarget]:
    """Yield the knowledge base that the options select, and release it at the end.

    Without any of the first three it is one in memory.
    """
    target: CommandTarget
    if storage_url is not None and storage_dir is not None:
        raise Failed("use either --storage-url or --storage-dir, not both")
    if storage_url is not None or storage_dir is not None:
        module = import_module("kbserver.cli.shared.folder")
        target = module.open_folder(storage_url, storage_dir, database, tenant)
    elif url is not None:
        target = ServerClient(url, database, tenant, api_key, cacert)
    else:
        target = import_module("kbserver.cli.shared.folder").open_memory(database, tenant)
    try:
        yield target
    finally:
        target.close()


TARGET_NAMES = ("url", "storage_dir", "storage_url", "database", "tenant", "api_key", "cacert")
"""The arguments of `opened`."""


def target_options(function: Command) -> Command:
    """Add the options that select the `target` of a command with its view and labels, and report
    its failures.
    """

    @functools.wraps(function)
    def command(
        target: CommandTarget, view: str | None, labels: str | None, **options: Any
    ) -> None:
        headers = {"X-View": view, "X-Labels": labels}
        target.headers.update({name: each for name, each in headers.items() if each})
        function(target=target, **options)

    return view_option(labels_option(whole_target_options(command)))


def whole_target_options(function: Command) -> Command:
    """Add the options of `target_options` but those of a view and labels, which some commands have
    not.
    """

    def command(**options: Any) -> None:
        where = {name: options.pop(name) for name in TARGET_NAMES}
        with opened(**where) as target:
            function(target=target, **options)

    return selects_target(functools.wraps(function)(command))


def selects_target(function: Command, tenant: bool = True) -> Command:
    """Add the options of `opened` to a command, without --tenant on request; report failures."""

    @functools.wraps(function)
    def command(**options: Any) -> None:
        try:
            function(**options)
        except ReadOnlyFollower as error:
            # Only a storage opened here raises this; the refusal of a server is a Failed.
            _refuse_follower(error, options["storage_dir"] or options["storage_url"] or "")
        except BrokenPipeError:  # click ends the command quietly if its reader has left
            raise
        except OSError as error:
            fail(describe_os_error(error))
        except (Failed, KBError) as error:
            report(error)

    for option in reversed(_TARGET_OPTIONS):
        if tenant or option is not tenant_option:
            command = option(command)
    return command


def _refuse_follower(error: ReadOnlyFollower, storage: str) -> NoReturn:
    """Report that a storage belongs to a follower, by the name that the user gave it."""
    storage = import_module("kbcore.config.storage_urls").redacted(storage)
    leader = (error.details or {})["leader"]
    fail(f"{storage} follows {leader}: {_FOLLOWER_HINT}", EXIT_CODES[ReadOnlyFollower])


strict_option = click.option(
    "--strict", is_flag=True, help="Treat warnings about rules as errors and store nothing"
)
"""The option of commands that store rules."""


def report_warnings(source: str, warnings: Iterable[RuleWarning]) -> None:
    """Print warnings about rules on standard error."""
    kind = click.style("warning:", fg="yellow", bold=True)
    for warning in warnings:
        location, _, text = printable(warning.display(source)).partition(": warning: ")
        click.echo(f"{click.style(location + ':', bold=True)} {kind} {text}", err=True)


def strict_failure(count: int) -> Failed:
    """Return the failure of a command with --strict, for the number of warnings."""
    return Failed(f"{counted(count, 'warning')}, treated as errors by --strict; nothing was stored")
