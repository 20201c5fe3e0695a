"""The TypeScript client: its types fit the interface, its own tests pass against a real server, its
package loads.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import values
from support.servers import Server

from kbplanner.ir.operators import COMPARISONS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients" / "typescript"

VALUES_PROGRAM = """
import { connect } from "kbcore-client";
const { url, rows, rules } = JSON.parse(process.argv[2]);
const kb = connect(url);
for (const [n, a, b] of rows) await kb.tell("v", [BigInt(n), a, b]);
await kb.teach(rules.join(" "));
const answers = [];
for (const index of rules.keys()) answers.push([...(await kb.ask(`o${index}(?n, ?a, ?b)`))]);
console.log(JSON.stringify(answers));
"""

PROGRAM = """
import { connect, isKBError } from "kbcore-client";
const error = await connect("http://127.0.0.1:1", { retries: { attempts: 0 } }).ask("p(?x)").catch((error) => error);
console.log(isKBError(error, "CONNECTION_FAILED"));
"""


def run(*command, folder=FOLDER):
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KBCORE_PYTHON": sys.executable, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def typed():
    """The client with the types of this server."""
    if not (FOLDER / "node_modules").is_dir():
        pytest.fail("run `npm ci` in clients/typescript first")
    document = run(sys.executable, str(ROOT / "docs" / "generate.py"), "--openapi", folder=ROOT)
    (FOLDER / "openapi.json").write_text(document, encoding="utf-8")
    run("npm", "run", "--silent", "types")


def test_the_types_fit(typed):
    run("npm", "run", "--silent", "check")


def test_the_tests_of_the_client_pass(typed):
    output = run("npm", "test", "--silent")
    assert int(re.findall(r"Tests\s+(\d+) passed", output)[0]) >= 31


@pytest.fixture(scope="module")
def project(typed, tmp_path_factory):
    """A project of Node that has the packed client."""
    tmp_path = tmp_path_factory.mktemp("node")
    run("npm", "run", "--silent", "build")
    (packed,) = json.loads(run("npm", "pack", "--json", "--pack-destination", str(tmp_path)))
    assert {"dist/index.js", "dist/index.d.ts", "dist/schema.d.ts", "LICENSE", "README.md"} <= {
        file["path"] for file in packed["files"]
    }
    project = tmp_path / "project"
    modules = project / "node_modules"
    modules.mkdir(parents=True)
    run("tar", "xzf", str(tmp_path / packed["filename"]), "-C", str(modules))
    (modules / "package").rename(modules / "kbcore-client")
    for name in json.loads((FOLDER / "package.json").read_text("utf-8"))["dependencies"]:
        (modules / name).symlink_to(FOLDER / "node_modules" / name)
    (modules / "openapi-typescript-helpers").symlink_to(
        FOLDER / "node_modules" / "openapi-typescript-helpers"
    )
    return project


def test_the_package_loads_in_node(project):
    (project / "program.mjs").write_text(PROGRAM, encoding="utf-8")
    assert run("node", "program.mjs", folder=project) == "true\n"


def test_values_that_are_easily_mistaken(project, tmp_path):
    """As in property/test_odd_values.py, which has the other ways in."""
    pairs = [(a, b) for a in values.ODD for b in values.ODD][::11]
    rows = [(str(index), a, b) for index, (a, b) in enumerate(pairs)]
    rules = [
        f"o{index}(?n, ?a, ?b) :- v(?n, ?a, ?b), ?a {op} ?b."
        for index, op in enumerate(COMPARISONS)
    ]
    (project / "values.mjs").write_text(VALUES_PROGRAM, encoding="utf-8")
    with Server(tmp_path) as server:
        url = "http://{}:{}".format(*server.address)
        given = json.dumps({"url": url, "rows": rows, "rules": rules})
        answers = json.loads(run("node", "values.mjs", given, folder=project))
    expected = [{row for row in rows if values.holds(op, row[1], row[2])} for op in COMPARISONS]
    assert [{tuple(row) for row in found} for found in answers] == expected
