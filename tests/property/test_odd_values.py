"""One fact and one comparison through every way in: values that are easily mistaken give one
result.
"""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import bulk, values
from support.agents import Agent
from support.commands import kbcore as run_command
from support.examples import examples
from support.http import serve_in_memory
from support.servers import Server

import kbcore
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.operators import COMPARISONS
from kbplanner.ir.terms import Atom, Variable
from kbplanner.ir.values.texts import quoted
from kbplanner.syntax.parser import parse_program, parse_rule

RULES = [
    f"o{index}(?n, ?a, ?b) :- v(?n, ?a, ?b), ?a {op} ?b." for index, op in enumerate(COMPARISONS)
]
GOALS = [(f"o{index}", [Variable(name) for name in "nab"]) for index in range(len(COMPARISONS))]
NAMES = ["?n", "?a", "?b"]
TENANTS = count()

Rows = list[tuple[str, str, str]]


def json_arg(text):
    """A whole number as a number of JSON, all else as a text."""
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]*", text) else text


def facts(rows, *, as_numbers):
    return [
        {"predicate": "v", "args": [json_arg(arg) for arg in row] if as_numbers else list(row)}
        for row in rows
    ]


def answers(ask):
    return [set(map(tuple, ask(name))) for name, _ in GOALS]


def statements(rows):
    return "".join(f"v({', '.join(map(quoted, row))}).\n" for row in rows)


def embedded(rows, folder, server):
    with kbcore.open_kb() as kb:
        for row in rows:
            kb.tell("v", row)
        kb.teach("\n".join(RULES))
        return answers(lambda name: kb.ask(name, NAMES))


def loaded(name, text):
    def way(rows, folder, server):
        path = folder / name
        path.write_text(text(rows), encoding="utf-8", newline="")
        with kbcore.open_kb() as kb:
            kb.load(path, predicate="v" if name.endswith(".csv") else None, header="no")
            kb.teach("\n".join(RULES))
            return answers(lambda name: kb.ask(name, NAMES))

    return way


def csv_text(rows):
    file = io.StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue()


def over_http(as_numbers):
    def way(rows, folder, server):
        with serve_in_memory() as served:
            client = served.client
            body = {"facts": facts(rows, as_numbers=as_numbers)}
            assert client.post("/assert/facts", body).status_code == 200
            assert client.post("/teach", {"text": "\n".join(RULES)}).status_code == 200
            return answers(lambda name: client.ask(name, *NAMES))

    return way


def over_mcp(rows, folder, server):
    with serve_in_memory(mcp_max_answer_tokens=1 << 30) as served:
        agent = Agent(served.client)
        agent.call("bulk_assert", facts=facts(rows, as_numbers=True))
        agent.call("teach", text="\n".join(RULES))

        def ask(name):
            result = agent.call("ask", predicate=name, args=NAMES, limit=1000)
            return [row["args"] for row in result["structuredContent"]["results"]]

        return answers(ask)


def by_client(rows, folder, server):
    client = pytest.importorskip("kbcore_client")
    with client.connect("http://{}:{}".format(*server.address), tenant=f"t{next(TENANTS)}") as kb:
        kb.tell_many("v", rows)
        kb.teach("\n".join(RULES))
        return answers(lambda name: kb.ask(name, NAMES))


def by_command(on_server):
    def way(rows, folder, server):
        if on_server:
            where = ["--url", "http://{}:{}".format(*server.address)]
            where += ["--tenant", f"t{next(TENANTS)}"]
        else:
            where = ["--storage-dir", str(folder / "kb")]
        path = folder / "all.kb"
        path.write_text(statements(rows) + "\n".join(RULES), encoding="utf-8")
        run_command("load", *where, "--quiet", str(path))

        def ask(name):
            done = run_command("ask", *where, f"{name}(?n, ?a, ?b)", expect=None)
            lines = done.stdout.splitlines()
            return [parse_program(line, final_dot=False)[0].atom.args for line in lines]

        return answers(ask)

    return way


def in_bulk(rows, folder, server):
    rules = RuleSet([parse_rule(rule) for rule in RULES])
    atoms = [Atom("v", row) for row in rows]
    return [bulk.answers(rules, atoms, Atom(name, tuple(args))) for name, args in GOALS]


def lines_of_json(as_numbers):
    def text(rows):
        return "".join(f"{json.dumps(fact)}\n" for fact in facts(rows, as_numbers=as_numbers))

    return text


WAYS = {
    "embedded": embedded,
    "http": over_http(as_numbers=False),
    "http, numbers": over_http(as_numbers=True),
    "mcp": over_mcp,
    "client": by_client,
    "command on a folder": by_command(on_server=False),
    "command on a server": by_command(on_server=True),
    "bulk run": in_bulk,
    "jsonl": loaded("facts.jsonl", lines_of_json(as_numbers=False)),
    "jsonl, numbers": loaded("facts.jsonl", lines_of_json(as_numbers=True)),
    "csv": loaded("facts.csv", csv_text),
    "kb": loaded("facts.kb", statements),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("odd")) as server:
        yield server


def numbered(pairs):
    return [(str(index), a, b) for index, (a, b) in enumerate(pairs)]


def expected(rows):
    return [{row for row in rows if values.holds(op, row[1], row[2])} for op in COMPARISONS]


CHOSEN = numbered((a, b) for a in values.ODD for b in values.ODD)[::7]


@pytest.mark.parametrize("way", WAYS)
def test_chosen_values(way, tmp_path, server):
    assert WAYS[way](CHOSEN, tmp_path, server) == expected(CHOSEN)


@pytest.mark.parametrize("way", WAYS)
@examples(5)
@given(st.lists(st.tuples(values.constants, values.constants), min_size=40, max_size=60))
def test_random_values(way, server, tmp_path_factory, pairs):
    rows = numbered(pairs)
    assert WAYS[way](rows, tmp_path_factory.mktemp("way"), server) == expected(rows)
