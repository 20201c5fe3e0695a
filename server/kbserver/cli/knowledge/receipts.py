"""`kbcore receipt`: create a key, create receipts, and verify them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kbcore.encryption.master_key import create_key
from kbcore.receipts.verifier import NotValid, verify
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.shared.exits import Failed, describe_os_error, errors_in, reports_errors
from kbserver.cli.shared.groups import CommandGroup
from kbserver.cli.shared.target import CommandTarget, whole_target_options

_PATH = click.Path(dir_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("receipt", cls=CommandGroup)
def receipt() -> None:
    """Create and verify signed receipts of answers, and the key that signs them.

    The key is that of RECEIPT_KEY_FILE.
    """


@receipt.command("create-key")
@click.argument("file", type=click.Path())
@reports_errors
def create_key_file(file: str) -> None:
    """Write a new random key to FILE, which must not exist. Only its owner may read it."""
    create_key(file)
    click.echo(f"{file}: new key; keep it secret, and set RECEIPT_KEY_FILE to it")


@receipt.command("create")
@click.argument("goals", nargs=-1, required=True)
@click.option("--scope", help="Scope to read; default: the base")
@click.option(
    "--after",
    metavar="BUNDLE",
    type=_FILE,
    help="Earlier receipt of the tenant, which this one is to continue",
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=_PATH,
    required=True,
    help="File to create for the receipt",
)
@whole_target_options
def create(
    target: CommandTarget,
    goals: tuple[str, ...],
    scope: str | None,
    after: Path | None,
    output: Path,
) -> None:
    """Write a signed receipt of the answers of GOALS, with their proofs, to a file."""
    body: dict[str, Any] = {"goals": list(goals), "scope": scope}
    if after is not None:
        body["since"] = _count_of(after)
    with errors_in("goal"):
        answer = target.send("POST", "/receipt", body)
    try:
        with output.open("xb") as file:
            file.write(answer.body)
    except FileExistsError:
        raise Failed(f"{output} exists; choose another file with --output") from None
    except OSError as error:
        raise Failed(f"{output} cannot be written: {describe_os_error(error)}") from error
    content = answer.json()["receipt"]
    chain = content["chain"]
    click.echo(
        f"{output}: receipt of {counted(sum(len(goal['answers']) for goal in content['goals']), 'answer')}"
        f" at record {chain['count']}, head {chain['head']}"
    )


@receipt.command("verify")
@click.argument("bundle", type=_FILE)
@click.option(
    "--key",
    "keys",
    metavar="PUBLIC",
    type=_FILE,
    required=True,
    help="Public key: the answer of /.well-known/kbcore-receipt-key",
)
@click.option("--after", metavar="BUNDLE", type=_FILE, help="Earlier receipt that BUNDLE continues")
@reports_errors
def check(bundle: Path, keys: Path, after: Path | None) -> None:
    """Verify a receipt, and exit with 1 if it is not valid."""
    earlier = None if after is None else after.read_bytes()
    try:
        content = verify(bundle.read_bytes(), keys.read_bytes(), earlier)
    except NotValid as error:
        raise Failed(f"{bundle} is not valid: {error}") from error
    except ImportError as error:
        raise Failed(
            "this needs the package cryptography: pip install 'kbcore[encryption]'", 78
        ) from error
    chain = content["chain"]
    click.echo(
        f"{bundle}: valid; {content['database']}/{content['tenant']}"
        f" at record {chain['count']}, head {chain['head']}"
    )
    for goal in content["goals"]:
        click.echo(f"  {goal['goal']}: {counted(len(goal['answers']), 'answer')}")


def _count_of(bundle: Path) -> int:
    """Return the position of the last record of a receipt, which is not verified."""
    import json

    try:
        return int(json.loads(bundle.read_bytes())["receipt"]["chain"]["count"])
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Failed(f"{bundle} is no receipt") from error
