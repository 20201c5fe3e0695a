"""Fixtures of several folders: PostgreSQL servers, made only where a test asks for one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import examples  # noqa: F401  (sets the profile of hypothesis)
from support.optional import LEFT_OUT
from support.postgres import OwnServer, answering, schema

THOROUGH = (
    "contract/",
    "core/context/test_removal_reasons.py",
    "core/test_answer_options.py",
    "core/test_budgets.py",
    "core/test_bulk_goals.py",
    "core/test_cascade.py",
    "core/test_constraints.py",
    "core/test_evaluation.py",
    "core/test_external_predicates.py",
    "core/test_following.py",
    "core/test_lexical.py",
    "core/test_long_proofs.py",
    "core/test_migrate.py",
    "core/test_proof_costs.py",
    "core/test_vector_index.py",
    "core/test_well_founded.py",
    "core/transactions/test_visibility.py",
    "durability/",
    "engine/test_copies.py",
    "engine/test_dense.py",
    "engine/test_intersect.py",
    "engine/test_lexical.py",
    "meta/test_laws.py",
    "meta/test_plain_english.py",
    "plugins/test_bulk_duckdb.py",
    "plugins/test_conformance.py",
    "plugins/test_coordinator_",
    "plugins/test_example_project.py",
    "plugins/test_llm_http.py",
    "plugins/test_storage_postgres.py",
    "property/test_predicate_names.py",
    "property/test_plan_race.py",
    "property/test_restrictions.py",
    "security/test_damaged_backups.py",
    "security/test_injection.py",
    "security/test_node_requests.py",
    "security/test_permissions.py",
    "security/test_private_calls.py",
    "security/test_secrets_in_messages.py",
    "security/test_stalls.py",
    "server/auth/test_keys.py",
    "server/mcp/",
    "server/test_a2a.py",
    "server/test_atoms_as_text.py",
    "server/test_bulk_commands.py",
    "server/test_cluster.py",
    "server/test_command_output.py",
    "server/test_expensive_goals.py",
    "server/test_commands.py",
    "server/test_events.py",
    "server/test_explain.py",
    "server/test_follower_storage.py",
    "server/test_handover.py",
    "server/test_idempotency.py",
    "server/test_isolation.py",
    "server/test_language.py",
    "server/test_long_goals.py",
    "server/test_malformed.py",
    "server/test_malformed_sockets.py",
    "server/test_rule_warnings.py",
    "server/test_openapi.py",
    "server/test_documented_limits.py",
    "server/test_storage_commands.py",
    "server/test_table_commands.py",
    "server/test_workers.py",
)
"""Files that start many processes or try every variant; `make test` leaves them out and `make test-all` runs them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the files in THOROUGH."""
    root = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(root) and item.path.relative_to(root).as_posix().startswith(
            THOROUGH
        ):
            item.add_marker("thorough")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which folders were left out; add the counts of this run to the file KB_TEST_COUNTS, as tox
    hides what its environments print.
    """
    for folder, needs in LEFT_OUT.items():
        terminalreporter.write_line(f"LEFT OUT tests/{folder}: needs {needs}")
    path = os.environ.get("KB_TEST_COUNTS")
    if path and "PYTEST_XDIST_WORKER" not in os.environ:
        passed, skipped = (len(terminalreporter.stats.get(k, ())) for k in ("passed", "skipped"))
        with Path(path).open("a") as counts:
            counts.write(f"{passed} passed, {skipped} skipped\n")


@pytest.fixture(scope="session")
def own_postgres() -> Iterator[OwnServer]:
    """A server of our own, for tests that stop it."""
    server = OwnServer()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> str:
    """The URL of a server: one that answers already, else our own."""
    url = answering()
    return url if url is not None else request.getfixturevalue("own_postgres").url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty schema."""
    with schema(postgres_server) as url:
        yield url
