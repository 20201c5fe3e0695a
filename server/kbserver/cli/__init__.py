"""The `kbcore` command."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kbcore import __version__
from kbserver.cli.shared.groups import CommandEntry, LazyGroup

SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "Ask and tell": {
        "ask": CommandEntry("knowledge.goals:ask", "Answer a goal from facts and rules"),
        "explain": CommandEntry(
            "knowledge.goals:explain", "Show why the answers of a goal hold, or its plan"
        ),
        "whynot": CommandEntry("knowledge.goals:whynot", "Show why a goal has no answer"),
        "how-to": CommandEntry(
            "knowledge.goals:how_to",
            "Show the facts to add or remove that would make a goal true",
        ),
        "sql": CommandEntry(
            "knowledge.sql:sql",
            "Print a condition for the rows of your own table that a goal holds for",
        ),
        "receipt": CommandEntry(
            "knowledge.receipts:receipt",
            "Create and verify signed receipts of answers, and the key that signs them",
        ),
        "follow": CommandEntry(
            "server.follow:follow", "Print the answers of a goal as they change"
        ),
        "goals": CommandEntry(
            "server.subscriptions:goals",
            "Subscribe to goals, whose changes a server keeps or sends to a webhook",
        ),
        "query": CommandEntry("knowledge.facts:query", "List stored facts, without applying rules"),
        "predicates": CommandEntry("knowledge.facts:predicates", "List the predicates"),
        "tell": CommandEntry(
            "knowledge.statements:tell", "Store facts and rules, and print the counts"
        ),
        "forget": CommandEntry("knowledge.facts:forget", "Retract facts or rules"),
        "run": CommandEntry("knowledge.statements:run", "Run a file of facts, rules and queries"),
        "shell": CommandEntry(
            "shell.shell:shell", "Type facts, rules and goals, and see answers at once"
        ),
        "load": CommandEntry("knowledge.load:load", "Load files of facts and rules"),
        "dump": CommandEntry(
            "knowledge.dump:dump", "Write all facts, rules and rule sets to a file"
        ),
    },
    "Rules": {
        "teach": CommandEntry(
            "knowledge.statements:teach", "Store rules and facts, and print the rules"
        ),
        "rules": CommandEntry(
            "knowledge.facts:rules", "List the rules, or the versions of a rule set"
        ),
        "deploy": CommandEntry("knowledge.deploy:deploy", "Replace a rule set by files"),
        "check": CommandEntry("knowledge.check:check", "Check files of facts, rules and queries"),
        "fmt": CommandEntry("knowledge.fmt:fmt", "Format files of facts, rules and queries"),
        "test": CommandEntry("knowledge.test:test", "Run the tests of rule files"),
        "lsp": CommandEntry("lsp.lsp:lsp", "Serve rule files to an editor"),
    },
    "Memory": {
        "context": CommandEntry(
            "agents.context:context", "Select the facts that a prompt should contain"
        ),
        "memory": CommandEntry(
            "agents.memory:memory", "Manage memory: episodes, corrections, purges, decay, recall"
        ),
        "scope": CommandEntry(
            "knowledge.scope:scope", "Fork, compare, merge, delete and list scopes"
        ),
        "extract": CommandEntry(
            "agents.language:extract", "Extract facts from a text with the language model"
        ),
        "synthesize": CommandEntry(
            "agents.language:synthesize", "Answer a question in words with the language model"
        ),
    },
    "Server": {
        "serve": CommandEntry(
            "server.serve:serve", "Run the server until it receives SIGTERM or SIGINT"
        ),
        "status": CommandEntry(
            "server.status:status", "Show if the server is ready, and its contents"
        ),
        "config": CommandEntry("server.config:config", "Check the settings before a start"),
        "plugins": CommandEntry("server.plugins:plugins", "List the plugins a server would load"),
        "admin": CommandEntry(
            "server.admin:admin", "Create, list, empty and delete databases and tenants"
        ),
        "keys": CommandEntry("server.keys:keys", "Create, list, revoke and rotate API keys"),
        "events": CommandEntry("server.events:events", "Print committed changes as lines of JSON"),
        "mcp": CommandEntry("agents.mcp:mcp", "Serve MCP on standard input and output"),
        "tools": CommandEntry(
            "agents.tools:tools", "Print the definitions of the tools for model APIs"
        ),
        "cluster": CommandEntry(
            "server.cluster:cluster", "Create a cluster, see its nodes, and move shards"
        ),
        "promote": CommandEntry("server.promote:promote", "Make a follower the leader"),
    },
    "Beyond memory": {
        "bulk": CommandEntry(
            "bulk.bulk:bulk", "Run rules over Parquet files that do not fit in memory"
        ),
        "export": CommandEntry(
            "bulk.tables:export",
            "Write facts as tables, a file for each predicate, that other engines read",
        ),
        "import": CommandEntry(
            "bulk.tables:import_",
            "Store the facts of tables: a Parquet or Arrow file, or a folder of them, per predicate",
        ),
    },
    "Storage": {
        "backup": CommandEntry("storage.rescue:backup", "Write a backup file"),
        "restore": CommandEntry("storage.rescue:restore", "Create a storage folder from a backup"),
        "fsck": CommandEntry("storage.rescue:fsck", "Check the files of a storage folder"),
        "salvage": CommandEntry(
            "storage.rescue:salvage", "Copy the undamaged records of a storage folder"
        ),
        "encryption": CommandEntry(
            "storage.encryption:encryption", "Encrypt stored data, and change the key"
        ),
        "storage": CommandEntry(
            "storage.storage:storage", "Copy a knowledge base to another storage, or check one"
        ),
    },
}
"""The commands by section. Each is imported when it runs, and its summary stands here too, so that
`kbcore --help` imports none.
"""

COMMANDS = {name: entry.home for section in SECTIONS.values() for name, entry in section.items()}
"""Module and attribute of each command."""


@click.group(
    cls=LazyGroup,
    package=__name__,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Use `kbcore COMMAND -h` for the options of a command.",
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.option(
    "--no-color",
    envvar="NO_COLOR",
    is_flag=True,
    flag_value="yes",
    type=str,
    default=None,
    help="Do not color messages; also with a non-empty NO_COLOR in the environment",
)
@click.pass_context
def cli(ctx: click.Context, no_color: str | None) -> None:
    """Knowledge base server: facts, rules and queries over HTTP.

    Commands that read or write a knowledge base use a running server (--url), or open a storage
    folder that no server has open (--storage-dir). The environment variables KBCORE_URL,
    KBCORE_TENANT, KBCORE_DATABASE and KBCORE_API_KEY are the defaults of these options.
    """
    if no_color:
        ctx.color = False


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line."""
    cli(args=list(args) if args is not None else None, prog_name="kbcore")
