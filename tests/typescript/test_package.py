"""The TypeScript client: its types fit the interface, its own tests pass against a real server, its package loads."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients" / "typescript"

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


def test_the_package_loads_in_node(typed, tmp_path):
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
    (project / "program.mjs").write_text(PROGRAM, encoding="utf-8")
    assert run("node", "program.mjs", folder=project) == "true\n"
